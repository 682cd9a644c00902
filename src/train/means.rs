//! Metrics of an epoch: sums and counts that batches and ranks add up.
//!
//! A mean of means is wrong where batches differ in length; sums and counts are exact up to rounding.
//! They are f64 and added in rank order, so that every rank has the same bits.

use serde::{Deserialize, Serialize};

/// The mean of a loss, and the part of answers that is right. Part of a checkpoint within an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Means {
    /// Sum of the losses of all samples; written down as its bits, since JSON has no NaN.
    #[serde(with = "bits")]
    pub loss_sum: f64,
    /// How many samples were added.
    pub samples: u64,
    /// How many answers are right; counted for classes only.
    pub right: u64,
}

impl Means {
    /// Adds a batch: its mean loss, its samples and how many of them are right.
    pub fn add(&mut self, mean_loss: f64, samples: u64, right: u64) {
        // An empty batch has no mean: 0 times NaN would be one.
        if samples > 0 {
            self.loss_sum += mean_loss * samples as f64;
        }
        self.samples += samples;
        self.right += right;
    }

    /// Adds what another part has come to.
    pub fn merge(&mut self, other: &Self) {
        self.loss_sum += other.loss_sum;
        self.samples += other.samples;
        self.right += other.right;
    }

    /// All ranks together; they are given in rank order.
    pub fn of_ranks<'a>(ranks: impl IntoIterator<Item = &'a Self>) -> Self {
        ranks.into_iter().fold(Self::default(), |mut all, rank| {
            all.merge(rank);
            all
        })
    }

    /// The mean loss of a sample; NaN without samples.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.samples as f64
    }

    /// The part of right answers, from 0 to 1; NaN where there is no sample.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.samples as f64
    }

    /// As numbers that ranks can exchange; counts stay exact below 2^53.
    pub fn to_numbers(&self) -> [f64; 3] {
        [self.loss_sum, self.samples as f64, self.right as f64]
    }

    /// The sums and counts of which [`Self::to_numbers`] made these.
    pub fn from_numbers([loss_sum, samples, right]: [f64; 3]) -> Self {
        Self { loss_sum, samples: samples as u64, right: right as u64 }
    }
}

/// A number of 64 bits as its bits.
mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(number.to_bits())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_count_by_their_samples() {
        let mut means = Means::default();
        means.add(1.0, 32, 16);
        means.add(4.0, 8, 0);
        assert_eq!((means.loss(), means.accuracy()), (1.6, 0.4));
    }

    #[test]
    fn ranks_count_by_their_samples() {
        let rank = |loss, samples, right| {
            let mut means = Means::default();
            means.add(loss, samples, right);
            means
        };
        let ranks = [rank(1.0, 3, 3), rank(f64::NAN, 0, 0), rank(5.0, 1, 0)];
        let all = Means::of_ranks(&ranks);
        assert_eq!((all.loss(), all.accuracy(), all.samples), (2.0, 0.75, 4));
        assert_eq!(Means::from_numbers(all.to_numbers()), all);
    }

    #[test]
    fn ranks_are_added_in_their_order() {
        let of = |loss_sum| Means { loss_sum, samples: 1, right: 0 };
        let ranks = [of(1e16), of(1.0), of(-1e16), of(1.0)];
        assert_eq!(Means::of_ranks(&ranks).loss_sum, 1.0);
    }

    #[test]
    fn a_loss_that_is_no_number_is_seen() {
        let mut means = Means::default();
        means.add(f64::NAN, 2, 1);
        means.add(1.0, 2, 1);
        assert!(means.loss().is_nan());
        assert!(Means::default().loss().is_nan());
        let text = serde_json::to_string(&means).unwrap();
        assert!(serde_json::from_str::<Means>(&text).unwrap().loss().is_nan());
    }
}
