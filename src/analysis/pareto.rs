//! The best by several metrics at once.

use crate::collect::Goal;

/// The points that no other is better than: as good in each metric, and better in one. In the order of the points.
pub(crate) fn front(points: &[Vec<f64>], goals: &[Goal]) -> Vec<usize> {
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
