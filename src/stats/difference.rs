//! Whether two samples differ: tests, effect sizes, and what many tests at once mean.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::interval::{Interval, around};
use super::sample::{mean, sd};

/// What a test says of the difference of two means.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Test {
    /// How many pairs; `None` where the samples are independent.
    pub(crate) pairs: Option<usize>,
    /// The mean of the first minus that of the second.
    pub(crate) difference: f64,
    /// Its 95 % interval; `None` where there is too little for one.
    pub(crate) interval: Option<Interval>,
    /// The probability of a difference as large as this, or larger, if there is none in truth (two-sided).
    pub(crate) p: f64,
    /// The difference in standard deviations, without the bias of small samples (Hedges' g; of pairs, those of their
    /// differences). NaN with a single degree of freedom, and infinite without any spread.
    pub(crate) effect: f64,
}

/// The two-sided probability of Student's t.
fn p_of_t(t: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) => 2.0 * distribution.sf(t.abs()),
        Err(_) => f64::NAN,
    }
}

/// Of a difference and its standard error. Without any spread, a difference is certain.
fn p_of(difference: f64, error: f64, freedom: f64) -> f64 {
    match (error > 0.0, difference == 0.0) {
        (true, _) => p_of_t(difference / error, freedom),
        (false, true) => 1.0,
        (false, false) => 0.0,
    }
}

/// Hedges' correction of a standardized difference for small samples.
fn unbiased(effect: f64, freedom: f64) -> f64 {
    if freedom < 2.0 {
        return f64::NAN;
    }
    effect * (1.0 - 3.0 / (4.0 * freedom - 1.0))
}

/// Student's t of pairs; `None` of fewer than two, and of numbers without a finite mean and spread.
pub(crate) fn paired(pairs: &[(f64, f64)]) -> Option<Test> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    let n = differences.len();
    if n < 2 {
        return None;
    }
    let (difference, freedom) = (mean(&differences), (n - 1) as f64);
    // What rounding leaves of differences that are all the same is no spread.
    let size = pairs.iter().fold(0.0, |size: f64, (a, b)| size.max(a.abs()).max(b.abs()));
    let sd = Some(sd(&differences)).filter(|sd| *sd > size * 1e-14 || sd.is_nan()).unwrap_or(0.0);
    let error = sd / (n as f64).sqrt();
    if !error.is_finite() {
        return None;
    }
    Some(Test {
        pairs: Some(n),
        difference,
        interval: around(difference, error, freedom),
        p: p_of(difference, error, freedom),
        effect: unbiased(difference / sd, freedom),
    })
}

/// Welch's t of two independent samples; `None` where one has fewer than two, or no finite mean and spread.
pub(crate) fn welch(a: &[f64], b: &[f64]) -> Option<Test> {
    if a.len().min(b.len()) < 2 {
        return None;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let (u, v) = (sd(a) / n.sqrt(), sd(b) / m.sqrt());
    let difference = mean(a) - mean(b);
    let error = u.hypot(v);
    if !error.is_finite() {
        return None;
    }
    let both = n + m - 2.0;
    let freedom = match error > 0.0 {
        true => 1.0 / ((u / error).powi(4) / (n - 1.0) + (v / error).powi(4) / (m - 1.0)),
        false => both,
    };
    let pooled = (sd(a) * ((n - 1.0) / both).sqrt()).hypot(sd(b) * ((m - 1.0) / both).sqrt());
    Some(Test {
        pairs: None,
        difference,
        interval: around(difference, error, freedom),
        p: p_of(difference, error, freedom),
        effect: unbiased(difference / pooled, both),
    })
}

/// Most pairs for which all signs are counted; the normal approximation is close for more.
const MOST_EXACT: usize = 50;

/// Wilcoxon's signed-rank test of pairs, two-sided, without those that are equal: exact up to 50 pairs, given the ties among
/// them, else by the normal distribution with the correction for ties. `None` where no pair differs, or a difference is not finite.
pub(crate) fn signed_rank(pairs: &[(f64, f64)]) -> Option<f64> {
    let mut differences: Vec<f64> =
        pairs.iter().map(|(a, b)| a - b).filter(|difference| *difference != 0.0).collect();
    let n = differences.len();
    if n == 0 || differences.iter().any(|difference| !difference.is_finite()) {
        return None;
    }
    differences.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (mut positive, mut tied, mut from) = (0.0, 0.0, 0);
    // Twice the ranks, so that those of ties are whole numbers.
    let mut ranks: Vec<usize> = Vec::with_capacity(n);
    while from < n {
        let equal = |x: &&f64| x.abs() == differences[from].abs();
        let to = from + differences[from..].iter().take_while(equal).count();
        let rank = (from + 1 + to) as f64 / 2.0;
        let above = differences[from..to].iter().filter(|x| **x > 0.0).count();
        positive += rank * above as f64;
        ranks.extend(std::iter::repeat_n(from + 1 + to, to - from));
        let ties = (to - from) as f64;
        tied += ties * ties * ties - ties;
        from = to;
    }
    let n = n as f64;
    let all = n * (n + 1.0) / 2.0;
    if differences.len() <= MOST_EXACT {
        return Some(exact(&ranks, positive.min(all - positive)));
    }
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tied / 48.0;
    let z = (positive - all / 2.0) / variance.sqrt();
    let normal = Normal::standard();
    Some(2.0 * normal.sf(z.abs()))
}

/// Twice the probability that the ranks with a positive sign add up to `sum` at most, every sign being as likely. `doubled`
/// are twice the ranks.
fn exact(doubled: &[usize], sum: f64) -> f64 {
    let most: usize = doubled.iter().sum();
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for rank in doubled {
        for total in (*rank..=most).rev() {
            ways[total] += ways[total - rank];
        }
    }
    let below: f64 = ways[..=(2.0 * sum).round() as usize].iter().sum();
    (2.0 * below / 2f64.powi(doubled.len() as i32)).min(1.0)
}

/// The probabilities of several tests, so that all together they err in as few cases as one (Holm 1979).
pub(crate) fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|a, b| ps[*a].total_cmp(&ps[*b]));
    let mut adjusted = vec![f64::NAN; ps.len()];
    let mut least: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max((ps[at] * (ps.len() - rank) as f64).min(1.0));
        adjusted[at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{bootstrap, iqm, of_iqm, of_mean};
    use super::*;

    /// Samples with what scipy says of them; `tests/stats/scipy_cases.py` has made them.
    const CASES: &str = include_str!("../../tests/stats/scipy_cases.json");

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    #[track_caller]
    fn same(what: &str, own: f64, scipy: &Value) {
        let scipy = scipy.as_f64().unwrap();
        let off = (own - scipy).abs() / scipy.abs().max(1e-3);
        assert!(off < 1e-10, "{what}: {own} and scipy {scipy}");
    }

    #[test]
    fn tests_and_intervals_are_those_of_scipy() {
        let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
        assert!(cases.len() > 20);
        for case in &cases {
            let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
            let [low, high] = of_mean(&a).unwrap();
            same("low", low, &case["interval"][0]);
            same("high", high, &case["interval"][1]);
            same("iqm", iqm(&a), &case["iqm"]);
            let test = welch(&a, &b).unwrap();
            same("welch", test.p, &case["welch"]["p"]);
            same("welch low", test.interval.unwrap()[0], &case["welch"]["interval"][0]);
            same("welch high", test.interval.unwrap()[1], &case["welch"]["interval"][1]);
            let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
            let test = paired(&pairs).unwrap();
            same("paired", test.p, &case["paired"]["p"]);
            same("paired low", test.interval.unwrap()[0], &case["paired"]["interval"][0]);
            same("paired high", test.interval.unwrap()[1], &case["paired"]["interval"][1]);
            // Scipy has no exact probability for many pairs with ties.
            if !case["signed_rank"].is_null() {
                same("signed rank", signed_rank(&pairs).unwrap(), &case["signed_rank"]);
            }
            assert!(bootstrap(&a).is_some() == (a.len() >= 5));
            assert!(of_iqm(&a).is_some() == (a.len() >= 4));
        }
    }

    #[test]
    fn samples_without_spread_are_certain() {
        let same = paired(&[(1.0, 1.0), (2.0, 2.0)]).unwrap();
        assert_eq!((same.p, same.difference), (1.0, 0.0));
        let shifted = paired(&[(1.0, 0.0), (2.0, 1.0)]).unwrap();
        assert_eq!((shifted.p, shifted.interval), (0.0, Some([1.0, 1.0])));
        assert_eq!(welch(&[1.0, 1.0], &[1.0, 1.0]).unwrap().p, 1.0);
        assert_eq!(welch(&[1.0], &[1.0, 1.0]), None);
        assert_eq!(signed_rank(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn few_pairs_with_ties_are_not_more_certain_than_their_signs() {
        let all_one = |n: usize| vec![(1.0, 0.0); n];
        assert_eq!(signed_rank(&all_one(5)), Some(0.0625));
        assert_eq!(signed_rank(&all_one(2)), Some(0.5));
        // Ranks 1.5, 1.5 and 3, of which the first is negative: 3 of 8 sums are 1.5 or less.
        assert_eq!(signed_rank(&[(0.0, 1.0), (1.0, 0.0), (2.0, 0.0), (4.0, 4.0)]), Some(0.75));
    }

    #[test]
    fn differences_that_differ_by_rounding_alone_have_no_spread() {
        let pairs = [(1.1, 1.6), (1.2, 1.7), (0.3, 0.8)];
        let test = paired(&pairs).unwrap();
        assert_eq!((test.p, test.effect), (0.0, f64::NEG_INFINITY));
        assert!(paired(&[(1.0, 0.0), (2.0, 0.5)]).unwrap().effect.is_nan());
    }

    #[test]
    fn infinite_numbers_are_not_compared() {
        let (big, small) = ([1.0, f64::INFINITY, 2.0], [3.0, 4.0, 5.0]);
        let pairs: Vec<(f64, f64)> = big.iter().copied().zip(small).collect();
        assert_eq!((paired(&pairs), welch(&big, &small), signed_rank(&pairs)), (None, None, None));
        let same: Vec<(f64, f64)> = big.iter().copied().zip(big).collect();
        assert_eq!((paired(&same), signed_rank(&same)), (None, None));
        assert_eq!(paired(&[(1.5e308, -1.5e308), (-1.5e308, 1.5e308)]), None);
        let far = paired(&[(1e300, -1e300), (-1e300, 1e300)]).unwrap();
        assert_eq!((far.difference, far.p), (0.0, 1.0));
        let far = welch(&[1e300, 2e300, 3e300], &[4e300, 5e300, 6e300]).unwrap();
        let near = welch(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert!((far.p - near.p).abs() < 1e-10 && (far.effect - near.effect).abs() < 1e-10);
    }

    #[test]
    fn many_tests_err_as_seldom_as_one() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [] as [f64; 0]);
    }
}
