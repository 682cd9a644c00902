//! The best by several metrics at once.

use super::ranking::Statistic;
use super::settings::{Left, Observed, Settings};
use crate::answers::collect::{Goal, Table};

/// A setting with its numbers for each metric.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its index among the settings.
    pub(crate) setting: usize,
    /// Its numbers, in the order of the metrics.
    pub(crate) observed: Vec<Observed>,
}

/// The settings that no other beats in all metrics.
#[derive(Debug)]
pub(crate) struct Pareto {
    /// They, the best by the first metric first.
    pub(crate) front: Vec<Member>,
    /// How many settings were compared.
    pub(crate) compared: usize,
    /// How many numbers a setting needs to be compared.
    pub(crate) least: usize,
    /// Trials without a number for the first metric.
    pub(crate) left: Left,
}

/// Compares settings by the metrics in some columns. One with trials that failed or gave no number, or with a single number where others have several, is not
/// compared.
pub(crate) fn pareto(
    table: &Table,
    settings: &Settings,
    metrics: &[(usize, Goal)],
    statistic: Statistic,
) -> Pareto {
    let mut members: Vec<Member> = settings
        .list
        .iter()
        .enumerate()
        .map(|(setting, own)| Member {
            setting,
            observed: metrics.iter().map(|(c, _)| settings.observe(table, own, *c)).collect(),
        })
        .collect();
    let mut left_out = Left::default();
    members.iter().for_each(|one| left_out.add(one.observed[0].left));
    let has_several = members.iter().flat_map(|one| &one.observed).any(|one| one.values.len() > 1);
    let least = if has_several { 2 } else { 1 };
    members.retain(|one| {
        one.observed.iter().all(|own| own.values.len() >= least && own.left.bad() == 0)
    });
    let point = |one: &Member| -> Vec<f64> {
        one.observed.iter().map(|own| statistic.estimate(&own.values, None).0).collect()
    };
    let points: Vec<Vec<f64>> = members.iter().map(point).collect();
    let goals: Vec<Goal> = metrics.iter().map(|(_, goal)| *goal).collect();
    let mut places = front(&points, &goals);
    places.sort_by(|a, b| points[*a][0].total_cmp(&points[*b][0]));
    if goals[0] == Goal::Max {
        places.reverse();
    }
    let compared = members.len();
    let mut members: Vec<Option<Member>> = members.into_iter().map(Some).collect();
    let front = places.into_iter().filter_map(|at| members[at].take()).collect();
    Pareto { front, compared, least, left: left_out }
}

/// The points that no other is better than: as good in each metric, and better in one. In the order of the points.
fn front(points: &[Vec<f64>], goals: &[Goal]) -> Vec<usize> {
    let cost = |point: &[f64]| -> Vec<f64> {
        let signed = point.iter().zip(goals);
        signed.map(|(value, goal)| if *goal == Goal::Min { *value } else { -value }).collect()
    };
    let costs: Vec<Vec<f64>> = points.iter().map(|point| cost(point)).collect();
    // Who is better in all is smaller in this order, so that each is compared with those before it that stay.
    let mut order: Vec<usize> =
        (0..costs.len()).filter(|at| costs[*at].iter().all(|c| !c.is_nan())).collect();
    order.sort_by(|a, b| {
        let pairs = costs[*a].iter().zip(&costs[*b]);
        pairs.map(|(a, b)| a.total_cmp(b)).find(|by| by.is_ne()).unwrap_or(a.cmp(b))
    });
    let mut front: Vec<usize> = Vec::new();
    for at in order {
        let beats = |other: &[f64]| {
            let pairs = || other.iter().zip(&costs[at]);
            pairs().all(|(a, b)| a <= b) && pairs().any(|(a, b)| a < b)
        };
        if !front.iter().any(|other| beats(&costs[*other])) {
            front.push(at);
        }
    }
    front.sort_unstable();
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_beats_in_all_is_not_on_the_front() {
        let points = [
            [1.0, 9.0],
            [2.0, 5.0],
            [2.0, 6.0],
            [3.0, 5.0],
            [4.0, 1.0],
            [1.0, 9.0],
            [0.5, f64::NAN],
        ];
        let points = points.map(Vec::from);
        assert_eq!(front(&points, &[Goal::Min, Goal::Min]), [0, 1, 4, 5]);
        assert_eq!(front(&points, &[Goal::Max, Goal::Min]), [4]);
        assert_eq!(front(&points, &[Goal::Min, Goal::Max]), [0, 5]);
        assert_eq!(front(&[], &[Goal::Min]), [] as [usize; 0]);
    }
}
