//! Which axes of a complete grid matter: exact sums of squares of main effects and of interactions of two axes.

use std::collections::HashMap;

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::interval::{Interval, around};
use super::sample::{has_spread, mean, squares};

/// The part that one axis, or two together, have in the variance of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Term {
    /// One axis for its main effect; two for what they do together beyond their main effects.
    pub(crate) axes: Vec<usize>,
    /// Its part of the whole variance, from 0 to 1.
    pub(crate) share: f64,
    /// The 95 % interval of the part; `None` where nothing tells how sure it is.
    pub(crate) interval: Option<Interval>,
    /// The probability of a part as large as this if the term does nothing (F test); `None` where nothing is left to
    /// compare with, and of a forest.
    pub(crate) p: Option<f64>,
}

/// The analysis of a complete grid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Anova {
    /// The parts of the variance, in the order of [`terms`].
    pub(crate) terms: Vec<Term>,
    /// The variance of a single observation, and with how many degrees of freedom it is known.
    error: f64,
    freedom: usize,
}

impl Anova {
    /// The means at each level of an axis, with the 95 % intervals that the error tells.
    pub(crate) fn marginal(
        &self,
        levels: &Levels,
        ys: &[f64],
        axis: usize,
        count: usize,
    ) -> Vec<(f64, Option<Interval>)> {
        let means = means(levels, ys, &[axis]);
        let at = |level: usize| {
            let (mean, n) = means[&vec![level]];
            (mean, around(mean, (self.error / n as f64).sqrt(), self.freedom as f64))
        };
        (0..count).map(at).collect()
    }
}

/// How often the residuals are drawn again.
const RESAMPLES: usize = 999;

/// The levels of each observation, one for each axis.
type Levels = [Vec<usize>];

/// The means of a metric by the levels of some axes.
fn means(levels: &Levels, ys: &[f64], axes: &[usize]) -> HashMap<Vec<usize>, (f64, usize)> {
    let mut sums: HashMap<Vec<usize>, (f64, usize)> = HashMap::new();
    for (level, y) in levels.iter().zip(ys) {
        let (sum, n) = sums.entry(axes.iter().map(|axis| level[*axis]).collect()).or_default();
        *sum += y;
        *n += 1;
    }
    sums.values_mut().for_each(|(sum, n)| *sum /= *n as f64);
    sums
}

/// One axis, and each two.
pub(super) fn terms(axes: usize) -> Vec<Vec<usize>> {
    let pairs = (0..axes).flat_map(|a| (a + 1..axes).map(move |b| vec![a, b]));
    (0..axes).map(|axis| vec![axis]).chain(pairs).collect()
}

/// Of each observation, what a term adds to the mean of all.
fn effect(levels: &Levels, ys: &[f64], term: &[usize]) -> Vec<f64> {
    let of = |axes: &[usize]| {
        let means = means(levels, ys, axes);
        let key = |level: &Vec<usize>| axes.iter().map(|axis| level[*axis]).collect::<Vec<_>>();
        levels.iter().map(|level| means[&key(level)].0).collect::<Vec<f64>>()
    };
    let all = mean(ys);
    match term {
        [a, b] => {
            let (both, a, b) = (of(term), of(&[*a]), of(&[*b]));
            both.iter().zip(a).zip(b).map(|((both, a), b)| both - a - b + all).collect()
        }
        _ => of(term).into_iter().map(|own| own - all).collect(),
    }
}

/// The parts of the variance of `ys`, in the order of [`terms`], where the observations are a complete grid: each
/// combination of levels as often as any other. `levels` are from 0 to `counts` of their axis. `None` for any other set of
/// observations, or without any variance.
///
/// The error is the variance within combinations that were observed more than once, else what the main effects and the
/// interactions of two axes leave over.
pub(crate) fn anova(levels: &Levels, counts: &[usize], ys: &[f64]) -> Option<Anova> {
    let all: Vec<usize> = (0..counts.len()).collect();
    let cells = means(levels, ys, &all);
    let combinations = counts.iter().try_fold(1usize, |product, n| product.checked_mul(*n))?;
    let each = ys.len() / combinations.max(1);
    let is_complete = cells.len() == combinations && cells.values().all(|(_, n)| *n == each);
    if !is_complete || each == 0 || !has_spread(squares(ys)) {
        return None;
    }
    let terms = terms(counts.len());
    let freedom = |term: &Vec<usize>| term.iter().map(|axis| counts[*axis] - 1).product::<usize>();
    let effects: Vec<Vec<f64>> = terms.iter().map(|term| effect(levels, ys, term)).collect();
    let grand = mean(ys);
    let fitted: Vec<f64> = match each {
        1 => (0..ys.len())
            .map(|i| grand + effects.iter().map(|effect| effect[i]).sum::<f64>())
            .collect(),
        _ => levels.iter().map(|level| cells[level].0).collect(),
    };
    let left = match each {
        1 => (ys.len() - 1).saturating_sub(terms.iter().map(freedom).sum()),
        _ => ys.len() - combinations,
    };
    let residuals: Vec<f64> = ys.iter().zip(&fitted).map(|(y, fitted)| y - fitted).collect();
    let error = residuals.iter().map(|x| x * x).sum::<f64>() / left as f64;
    let total = squares(ys);
    let sum = |effect: &[f64]| effect.iter().map(|x| x * x).sum::<f64>();
    let intervals = (left > 0).then(|| drawn_again(levels, &terms, &fitted, &residuals, left));
    let whole = terms.iter().enumerate().map(|(at, term)| {
        let squares = sum(&effects[at]);
        let p = (left > 0).then(|| {
            let free = freedom(term) as f64;
            // What rounding leaves of nothing is nothing.
            match (squares > total * 1e-20, error * left as f64 > total * 1e-20) {
                (false, _) => 1.0,
                (true, false) => 0.0,
                (true, true) => FisherSnedecor::new(free, left as f64)
                    .map_or(f64::NAN, |f| f.sf(squares / free / error)),
            }
        });
        Term {
            axes: term.clone(),
            share: squares / total,
            interval: intervals.as_ref().map(|all| all[at]),
            p,
        }
    });
    Some(Anova { terms: whole.collect(), error, freedom: left })
}

/// The middle 95 % of the parts when the residuals are drawn again.
fn drawn_again(
    levels: &Levels,
    terms: &[Vec<usize>],
    fitted: &[f64],
    residuals: &[f64],
    left: usize,
) -> Vec<Interval> {
    let n = fitted.len();
    // Fitted values are closer to the observations than the truth is.
    let scale = (n as f64 / left as f64).sqrt();
    let mut random = fastrand::Rng::with_seed(n as u64);
    // A large grid says the same with fewer draws, and sooner.
    let draws = RESAMPLES.min(40_000_000 / (n * terms.len()).max(1)).max(99);
    let mut shares = vec![Vec::with_capacity(draws); terms.len()];
    for _ in 0..draws {
        let ys: Vec<f64> =
            fitted.iter().map(|fit| fit + scale * residuals[random.usize(..n)]).collect();
        let total = squares(&ys);
        for (term, shares) in terms.iter().zip(&mut shares) {
            let sum: f64 = effect(levels, &ys, term).iter().map(|x| x * x).sum();
            shares.push(if total > 0.0 { sum / total } else { 0.0 });
        }
    }
    shares.into_iter().map(middle).collect()
}

/// The middle 95 % of some values.
pub(super) fn middle(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let outside = ((values.len() + 1) as f64 * 0.025) as usize;
    let outside = outside.max(1).min(values.len());
    [values[outside - 1], values[values.len() - outside]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(counts: &[usize], each: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for n in counts {
            all = all
                .into_iter()
                .flat_map(|one: Vec<usize>| (0..*n).map(move |level| [&one[..], &[level]].concat()))
                .collect();
        }
        all.iter().flat_map(|one| std::iter::repeat_n(one.clone(), each)).collect()
    }

    #[test]
    fn sums_of_squares_add_up_and_are_those_of_the_book() {
        // Montgomery, Design and Analysis of Experiments: battery life by material and temperature, 4 replicates.
        let ys = [
            130.0, 155.0, 74.0, 180.0, 34.0, 40.0, 80.0, 75.0, 20.0, 70.0, 82.0, 58.0, 150.0,
            188.0, 159.0, 126.0, 136.0, 122.0, 106.0, 115.0, 25.0, 70.0, 58.0, 45.0, 138.0, 110.0,
            168.0, 160.0, 174.0, 120.0, 150.0, 139.0, 96.0, 104.0, 82.0, 60.0,
        ];
        let found = anova(&grid(&[3, 3], 4), &[3, 3], &ys).unwrap().terms;
        let total = squares(&ys);
        let sums: Vec<i64> = found.iter().map(|term| (term.share * total).round() as i64).collect();
        assert_eq!(sums, [10_684, 39_119, 9_614]);
        let ps: Vec<String> = found.iter().map(|term| format!("{:.4}", term.p.unwrap())).collect();
        assert_eq!(ps, ["0.0020", "0.0000", "0.0186"]);
        for term in &found {
            let [low, high] = term.interval.unwrap();
            assert!(low < term.share && term.share < high, "{term:?}");
        }
    }

    #[test]
    fn without_replicates_higher_interactions_are_the_error() {
        let levels = grid(&[2, 3, 4], 1);
        let wave = |level: &Vec<usize>| ((level[0] * 7 + level[1] * 3 + level[2] * 5) % 4) as f64;
        let ys: Vec<f64> = levels.iter().map(|l| 10.0 * l[2] as f64 + 0.1 * wave(l)).collect();
        let found = anova(&levels, &[2, 3, 4], &ys).unwrap().terms;
        assert_eq!(found.len(), 6);
        assert!(found[2].share > 0.99 && found[2].p.unwrap() < 1e-9, "{found:?}");
        let rest: f64 = found.iter().map(|term| term.share).sum();
        assert!(rest <= 1.0 + 1e-12);
        // Two axes, once each: nothing is left over.
        let two = anova(&grid(&[2, 2], 1), &[2, 2], &[1.0, 2.0, 3.0, 5.0]).unwrap().terms;
        assert!(two.iter().all(|term| term.p.is_none() && term.interval.is_none()));
    }

    #[test]
    fn what_is_no_complete_grid_is_left_to_others() {
        let levels = grid(&[2, 2], 2);
        let ys = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert!(anova(&levels, &[2, 2], &ys).is_some());
        assert_eq!(anova(&levels[1..], &[2, 2], &ys[1..]), None);
        assert_eq!(anova(&levels[..6], &[2, 2], &ys[..6]), None);
        assert_eq!(anova(&levels, &[2, 2], &[1.0; 8]), None);
    }
}
