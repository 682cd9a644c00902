//! Whether two samples differ: tests, effect sizes, and what many tests at once mean.

use statrs::distribution::{ContinuousCDF, DiscreteCDF, Hypergeometric, Normal, StudentsT};

use super::interval::{Interval, around};
use super::sample::{mean, sd, sorted};

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

/// The least part of a number that counts as a difference: what single precision rounds away is none.
const ROUNDING: f64 = 1e-7;

/// The step in which a metric is counted, as far as its values show it: the least difference between any two of them. 0 where no
/// two differ. Of a metric that is continuous it is next to nothing.
pub(crate) fn resolution(values: impl IntoIterator<Item = f64>) -> f64 {
    let finite: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    let sorted = sorted(&finite);
    let size = sorted.iter().fold(0.0, |size: f64, x| size.max(x.abs()));
    let steps = sorted.windows(2).map(|pair| pair[1] - pair[0]);
    let least = steps.filter(|step| *step > size * ROUNDING).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 0.0 }
}

/// The standard deviation of what rounding to a step leaves.
pub(super) fn rounded_away(resolution: f64) -> f64 {
    resolution / 12f64.sqrt()
}

/// The probability of a difference by Student's t, and no less than the arrangements of the numbers can show where their spread is
/// that of rounding alone: `arrangements` is the part of the most extreme ones.
fn p_of(difference: f64, error: f64, freedom: f64, is_rounding: bool, arrangements: f64) -> f64 {
    let by_t = match (error > 0.0, difference == 0.0) {
        (true, _) => p_of_t(difference / error, freedom),
        (false, true) => 1.0,
        (false, false) => 0.0,
    };
    if is_rounding { by_t.max(arrangements) } else { by_t }
}

/// Hedges' correction of a standardized difference for small samples.
fn unbiased(effect: f64, freedom: f64) -> f64 {
    if freedom < 2.0 {
        return f64::NAN;
    }
    effect * (1.0 - 3.0 / (4.0 * freedom - 1.0))
}

/// Student's t of pairs; `None` of fewer than two, and of numbers without a finite mean and spread. The metric's [`resolution`] is a
/// part of the error: pairs whose differences differ by less than that do not show that they never differ by more.
pub(crate) fn paired(pairs: &[(f64, f64)], resolution: f64) -> Option<Test> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    let n = differences.len();
    if n < 2 {
        return None;
    }
    let (difference, freedom) = (mean(&differences), (n - 1) as f64);
    // What rounding leaves of differences that are all the same is no spread.
    let size = pairs.iter().fold(0.0, |size: f64, (a, b)| size.max(a.abs()).max(b.abs()));
    let sd = Some(sd(&differences)).filter(|sd| *sd > size * 1e-14 || sd.is_nan()).unwrap_or(0.0);
    let least = 2f64.sqrt() * rounded_away(resolution);
    let error = if sd < least { least } else { sd } / (n as f64).sqrt();
    if !error.is_finite() {
        return None;
    }
    // Without an effect, each of the signs is as likely as the other.
    let signs = 2f64.powi(1 - n as i32);
    Some(Test {
        pairs: Some(n),
        difference,
        interval: around(difference, error, freedom),
        p: p_of(difference, error, freedom, sd <= least, signs),
        effect: unbiased(difference / sd, freedom),
    })
}

/// Welch's t of two independent samples; `None` where one has fewer than two, or no finite mean and spread. The metric's
/// [`resolution`] is a part of the error, as in [`paired`].
pub(crate) fn welch(a: &[f64], b: &[f64], resolution: f64) -> Option<Test> {
    if a.len().min(b.len()) < 2 {
        return None;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let (least, [s, t]) = (rounded_away(resolution), [sd(a), sd(b)]);
    let error_of = |sd: f64, n: f64| if sd < least { least } else { sd } / n.sqrt();
    let (u, v) = (error_of(s, n), error_of(t, m));
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
    let pooled = (s * ((n - 1.0) / both).sqrt()).hypot(t * ((m - 1.0) / both).sqrt());
    // Without an effect, each choice of which numbers are the first sample's is as likely as any other.
    let choices: f64 = (1..=a.len()).map(|i| i as f64 / (m + i as f64)).product();
    Some(Test {
        pairs: None,
        difference,
        interval: around(difference, error, freedom),
        p: p_of(difference, error, freedom, s <= least && t <= least, (2.0 * choices).min(1.0)),
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
        let tie_end = from
            + differences[from..].iter().take_while(|x| x.abs() == differences[from].abs()).count();
        let rank = (from + 1 + tie_end) as f64 / 2.0;
        let above = differences[from..tie_end].iter().filter(|x| **x > 0.0).count();
        positive += rank * above as f64;
        ranks.extend(std::iter::repeat_n(from + 1 + tie_end, tie_end - from));
        let ties = (tie_end - from) as f64;
        tied += ties * ties * ties - ties;
        from = tie_end;
    }
    let n = n as f64;
    let rank_total = n * (n + 1.0) / 2.0;
    if differences.len() <= MOST_EXACT {
        return Some(exact(&ranks, positive.min(rank_total - positive)));
    }
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - tied / 48.0;
    let z = (positive - rank_total / 2.0) / variance.sqrt();
    let normal = Normal::standard();
    Some(2.0 * normal.sf(z.abs()))
}

/// Twice the probability that the ranks with a positive sign add up to `sum` at most, every sign being as likely. `doubled`
/// are twice the ranks.
fn exact(doubled: &[usize], sum: f64) -> f64 {
    let greatest_sum: usize = doubled.iter().sum();
    let mut ways = vec![0.0; greatest_sum + 1];
    ways[0] = 1.0;
    for rank in doubled {
        for total in (*rank..=greatest_sum).rev() {
            ways[total] += ways[total - rank];
        }
    }
    let below: f64 = ways[..=(2.0 * sum).round() as usize].iter().sum();
    (2.0 * below / 2f64.powi(doubled.len() as i32)).min(1.0)
}

/// The probability that so many or more of a group are among those that are marked, if the group was drawn from all (Fisher's exact
/// test, one-sided).
pub(crate) fn at_least(in_group: usize, group: usize, marked: usize, all: usize) -> f64 {
    match Hypergeometric::new(all as u64, marked as u64, group as u64) {
        Ok(distribution) if in_group > 0 => distribution.sf(in_group as u64 - 1),
        _ => 1.0,
    }
}

/// The probabilities of tests of one among so many against others, where the numbers that are tested have chosen it: as if each two
/// were tested (Bonferroni), since any two could have been those that differ most.
pub(crate) fn of_chosen(ps: &[f64], among: usize) -> Vec<f64> {
    let pairs = among as f64 * (among as f64 - 1.0) / 2.0;
    ps.iter().map(|p| (p * pairs.max(1.0)).min(1.0)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{bootstrap, iqm, of_iqm, of_mean};
    use super::*;

    /// Samples with what scipy says of them; `tests/stats/scipy_cases.py` has made them.
    const CASES: &str = include_str!("../../../tests/stats/scipy_cases.json");

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
            let test = welch(&a, &b, 0.0).unwrap();
            same("welch", test.p, &case["welch"]["p"]);
            same("welch low", test.interval.unwrap()[0], &case["welch"]["interval"][0]);
            same("welch high", test.interval.unwrap()[1], &case["welch"]["interval"][1]);
            let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
            let test = paired(&pairs, 0.0).unwrap();
            same("paired", test.p, &case["paired"]["p"]);
            same("paired low", test.interval.unwrap()[0], &case["paired"]["interval"][0]);
            same("paired high", test.interval.unwrap()[1], &case["paired"]["interval"][1]);
            // Scipy has no exact probability for many pairs with ties.
            if !case["signed_rank"].is_null() {
                same("signed rank", signed_rank(&pairs).unwrap(), &case["signed_rank"]);
            }
            assert!(bootstrap(&a).is_some() == (a.len() >= 5));
            assert!(of_iqm(&a).is_none() || a.len() >= 4);
        }
    }

    #[test]
    fn differences_without_spread_are_no_more_certain_than_their_signs() {
        let same = paired(&[(1.0, 1.0), (2.0, 2.0)], 1.0).unwrap();
        assert_eq!((same.p, same.difference), (1.0, 0.0));
        // Of 2, 3, 5 and 10 pairs, at any resolution.
        for n in [2, 3, 5, 10] {
            for step in [0.0, 1e-9, 0.1] {
                let pairs: Vec<(f64, f64)> = vec![(0.97, 0.87); n];
                let test = paired(&pairs, step).unwrap();
                assert!(test.p >= 2f64.powi(1 - n as i32), "{n} {step}: {}", test.p);
                assert_eq!(test.interval.is_some(), step > 0.0);
            }
        }
        // A step of 0.5 says little of a difference of 1.
        let shifted = paired(&[(1.0, 0.0), (1.5, 0.5)], 0.5).unwrap();
        let [low, high] = shifted.interval.unwrap();
        assert!(shifted.p >= 0.5 && low < 0.5 && high > 1.5, "{shifted:?}");
        let ones = welch(&[1.0, 1.0], &[1.0, 1.0], 0.0).unwrap();
        assert_eq!((ones.p, ones.interval), (1.0, None));
        // Two of four numbers are chosen in six ways.
        let apart = welch(&[1.0, 1.0], &[2.0, 2.0], 1e-6).unwrap();
        assert!((apart.p - 1.0 / 3.0).abs() < 1e-12 && apart.interval.is_some(), "{apart:?}");
        assert_eq!(welch(&[1.0], &[1.0, 1.0], 0.0), None);
        assert_eq!(signed_rank(&[(1.0, 1.0)]), None);
    }

    #[test]
    fn the_resolution_is_the_least_step_that_is_no_rounding() {
        assert_eq!(resolution([0.5, 0.75, 0.5, 1.0, f64::NAN, f64::INFINITY]), 0.25);
        // 0.97 of single and of double precision are one number.
        let accuracies = [0.97, f64::from(0.97_f32), 0.99, 0.1 + 0.2, 0.3];
        assert!((resolution(accuracies) - 0.02).abs() < 1e-6);
        assert_eq!([resolution([2.0, 2.0]), resolution([])], [0.0, 0.0]);
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
        let test = paired(&pairs, 0.0).unwrap();
        assert_eq!((test.p, test.effect), (0.25, f64::NEG_INFINITY));
        assert!(paired(&[(1.0, 0.0), (2.0, 0.5)], 0.0).unwrap().effect.is_nan());
    }

    #[test]
    fn infinite_numbers_are_not_compared() {
        let (big, small) = ([1.0, f64::INFINITY, 2.0], [3.0, 4.0, 5.0]);
        let pairs: Vec<(f64, f64)> = big.iter().copied().zip(small).collect();
        assert_eq!(
            (paired(&pairs, 0.0), welch(&big, &small, 0.0), signed_rank(&pairs)),
            (None, None, None)
        );
        let same: Vec<(f64, f64)> = big.iter().copied().zip(big).collect();
        assert_eq!((paired(&same, 0.0), signed_rank(&same)), (None, None));
        assert_eq!(paired(&[(1.5e308, -1.5e308), (-1.5e308, 1.5e308)], 0.0), None);
        let far = paired(&[(1e300, -1e300), (-1e300, 1e300)], 0.0).unwrap();
        assert_eq!((far.difference, far.p), (0.0, 1.0));
        let far = welch(&[1e300, 2e300, 3e300], &[4e300, 5e300, 6e300], 0.0).unwrap();
        let near = welch(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.0).unwrap();
        assert!((far.p - near.p).abs() < 1e-10 && (far.effect - near.effect).abs() < 1e-10);
    }

    #[test]
    fn a_group_with_too_many_that_are_marked_is_found() {
        // All 6 of 36 in a group of 12: 924 of 1,947,792 choices.
        assert!((at_least(6, 12, 6, 36) - 924.0 / 1_947_792.0).abs() < 1e-12);
        assert_eq!([at_least(0, 12, 6, 36), at_least(0, 5, 0, 10)], [1.0, 1.0]);
        assert!(at_least(2, 12, 6, 36) > 0.5);
    }

    #[test]
    fn who_was_chosen_among_many_is_tested_as_if_each_two_were() {
        assert_eq!(of_chosen(&[0.01, 0.04, 0.03], 4), [0.06, 0.24, 0.18]);
        assert_eq!(of_chosen(&[0.04], 2), [0.04]);
        assert_eq!(of_chosen(&[0.9, 0.8], 3), [1.0, 1.0]);
        assert_eq!(of_chosen(&[], 1), [] as [f64; 0]);
    }
}
