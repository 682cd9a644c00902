//! A part of the training data that decides instead of being learnt from.
//!
//! The order is `randperm(n, seed)`, so that the parts are the same on every rank and in every run with
//! this seed, whatever the number of ranks.

use crate::base::fault::Fault;
use crate::base::words;
use crate::train::config::Validation;
use crate::train::mt19937::randperm;
use crate::train::shard::balanced;

/// The two parts; each sample is in exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Samples to learn from.
    pub train: Vec<u64>,
    /// Samples whose metric decides; the model never learns from them.
    pub validation: Vec<u64>,
}

/// The parts that a plan asks for, of `n` samples; `None` where validation has data of its own.
///
/// # Errors
/// A fault when a part would be empty.
pub fn split(how: &Validation, n: u64, seed: i64) -> Result<Option<Split>, Fault> {
    match how {
        Validation::Fraction { fraction: part } => fraction(n, *part, seed).map(Some),
        Validation::Fold { folds, fold: one } => fold(n, *folds, *one, seed).map(Some),
        Validation::Source(_) => Ok(None),
    }
}

/// `floor(n * fraction)` samples to validate: the parts, in order, of torch's
/// `random_split(data, [1 - fraction, fraction])` with a generator seeded with `seed`.
///
/// # Errors
/// A fault when `fraction` is not between 0 and 1, or a part would be empty.
pub(crate) fn fraction(n: u64, fraction: f64, seed: i64) -> Result<Split, Fault> {
    let count = (n as f64 * fraction).floor();
    if !(count >= 1.0 && count < n as f64) {
        return Err(Fault::request(format!(
            "a fraction of {fraction} of {} leaves nothing on one side",
            words::count(n, "sample")
        ))
        .at("train.data.validation.fraction")
        .hint("the fraction is between 0 and 1; give more data or another one"));
    }
    let mut train = randperm(n, seed as u64);
    let validation = train.split_off((n - count as u64) as usize);
    Ok(Split { train, validation })
}

/// Fold `fold` of `folds` to validate, the rest to learn from. The folds of all numbers are a partition
/// of the samples; their sizes differ by one at most.
///
/// # Errors
/// A fault when there is no such fold, or there are fewer than two or more folds than samples.
pub(crate) fn fold(n: u64, folds: u64, fold: u64, seed: i64) -> Result<Split, Fault> {
    if folds < 2 || fold >= folds {
        return Err(Fault::request(format!("there is no fold {fold} of {folds}"))
            .at("train.data.validation.fold")
            .hint("use 2 folds or more; the first one is 0"));
    }
    if folds > n {
        let samples = words::count(n, "sample");
        return Err(Fault::request(format!("{folds} folds of {samples}: some would be empty"))
            .at("train.data.validation.folds")
            .hint("use fewer folds, or more data"));
    }
    let mut train = randperm(n, seed as u64);
    let range = balanced(n, folds, fold);
    let validation = train.drain(range.start as usize..range.end as usize).collect();
    Ok(Split { train, validation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_that_of_torch() {
        let check = |n, part, seed, train: &[u64], validation: &[u64]| {
            let expected = Split { train: train.into(), validation: validation.into() };
            assert_eq!(fraction(n, part, seed), Ok(expected));
        };
        check(10, 0.2, 0, &[4, 1, 7, 5, 3, 9, 0, 8], &[6, 2]);
        check(7, 0.5, 42, &[1, 6, 3, 5], &[4, 0, 2]);
        let split = fraction(103, 0.25, 7).unwrap();
        let expected = [
            81, 63, 54, 38, 21, 98, 43, 13, 99, 72, 3, 68, 20, 76, 84, 70, 51, 25, 39, 34, 48, 19,
            73, 10, 12,
        ];
        assert_eq!(split.validation, expected);
        assert_eq!((split.train.len(), split.train[0]), (78, 44));
    }

    #[test]
    fn folds_are_a_partition() {
        for (n, folds) in [(10, 5), (11, 3), (7, 7), (100, 9)] {
            let splits: Vec<Split> = (0..folds).map(|k| fold(n, folds, k, 3).unwrap()).collect();
            let everything: Vec<u64> = (0..n).collect();
            let sorted = |mut list: Vec<u64>| {
                list.sort_unstable();
                list
            };
            let validation = splits.iter().flat_map(|split| split.validation.clone()).collect();
            assert_eq!(sorted(validation), everything);
            for split in &splits {
                let both = [&split.train[..], &split.validation].concat();
                assert_eq!(sorted(both), everything);
                let size = split.validation.len() as u64;
                assert!(size == n / folds || size == n.div_ceil(folds));
            }
        }
        assert_eq!(fold(10, 5, 1, 0).unwrap().validation, [7, 5]);
    }

    #[test]
    fn parts_that_would_be_empty_are_refused() {
        let check = |found: Result<Split, Fault>, expected: &str| {
            assert_eq!(found.unwrap_err().sentence, expected);
        };
        check(fraction(10, 0.05, 0), "a fraction of 0.05 of 10 samples leaves nothing on one side");
        check(fraction(1, 0.5, 0), "a fraction of 0.5 of 1 sample leaves nothing on one side");
        check(fraction(9, 1.0, 0), "a fraction of 1 of 9 samples leaves nothing on one side");
        check(
            fraction(9, f64::NAN, 0),
            "a fraction of NaN of 9 samples leaves nothing on one side",
        );
        check(fold(10, 5, 5, 0), "there is no fold 5 of 5");
        check(fold(10, 1, 0, 0), "there is no fold 0 of 1");
        check(fold(3, 5, 0, 0), "5 folds of 3 samples: some would be empty");
    }

    #[test]
    fn a_plan_says_how() {
        let parts = split(&Validation::Fold { folds: 5, fold: 1 }, 10, 0).unwrap().unwrap();
        assert_eq!(parts, fold(10, 5, 1, 0).unwrap());
        let parts = split(&Validation::Fraction { fraction: 0.2 }, 10, 0).unwrap().unwrap();
        assert_eq!(parts, fraction(10, 0.2, 0).unwrap());
        let own = Validation::Source(crate::train::config::Source::File("v.npz".into()));
        assert_eq!(split(&own, 10, 0), Ok(None));
    }
}
