//! A draw by weights: every rank makes the same draw and takes its part of it.

use std::sync::Arc;

use super::distributed::{places, seed_of};
use super::{Place, share};
use crate::fault::Fault;
use crate::train::mt19937::Mt19937;

/// Samples drawn with the probability of their weights, a new draw each epoch.
///
/// With replacement the draw is that of torch's `WeightedRandomSampler` whose generator is seeded with
/// seed + epoch (for two samples or more). Without, it is that of Efraimidis and Spirakis (2006): the
/// samples with the smallest `-ln(u) / weight`, smallest first. The draw is dealt as
/// [`super::Distributed`] deals.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighted {
    weights: Arc<[f64]>,
    /// The part of all weights up to and with each sample; empty without replacement.
    upto: Arc<[f64]>,
    samples: u64,
    place: Place,
    seed: i64,
    drop_last: bool,
}

impl Weighted {
    /// Draws `samples` samples, of which each may come more than once.
    ///
    /// # Errors
    /// A fault when a weight is negative or no number, or none is above 0.
    pub fn with_replacement(weights: &[f64], samples: u64, place: Place) -> Result<Self, Fault> {
        let sum = checked(weights)?;
        let mut so_far = 0.0;
        let mut upto: Vec<f64> = weights
            .iter()
            .map(|weight| {
                so_far += weight;
                so_far / sum
            })
            .collect();
        if let Some(last) = upto.last_mut() {
            *last = 1.0;
        }
        let weights = Arc::from(weights);
        Ok(Self { weights, upto: upto.into(), samples, place, seed: 0, drop_last: false })
    }

    /// Draws `samples` samples, each once at most.
    ///
    /// # Errors
    /// As above, and when fewer samples than are to be drawn have a weight above 0.
    pub fn without_replacement(weights: &[f64], samples: u64, place: Place) -> Result<Self, Fault> {
        checked(weights)?;
        let able = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
        if samples > able {
            return Err(Fault::request(format!(
                "{samples} samples are to be drawn once each, and {able} have a weight above 0"
            ))
            .hint("draw fewer, or with replacement"));
        }
        let (weights, upto) = (Arc::from(weights), Arc::from([]));
        Ok(Self { weights, upto, samples, place, seed: 0, drop_last: false })
    }

    /// The seed of the draws.
    #[must_use]
    pub fn seed(self, seed: i64) -> Self {
        Self { seed, ..self }
    }

    /// Whether draws that do not go round are left out, instead of others being taken twice.
    #[must_use]
    pub fn drop_last(self, drop_last: bool) -> Self {
        Self { drop_last, ..self }
    }

    /// How many indices each rank has.
    pub fn len(&self) -> u64 {
        share(self.samples, self.place.world, self.drop_last)
    }

    /// Whether no rank has any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The draw of an epoch, the same on every rank.
    pub fn draw(&self, epoch: u64) -> Vec<u64> {
        let mut stream = Mt19937::new(seed_of(self.seed, epoch));
        if !self.upto.is_empty() {
            return (0..self.samples).map(|_| self.one(stream.next_f64())).collect();
        }
        // Every sample takes a number, also one without a weight. The logarithm is that of a library
        // of ours, so that machines of different kinds make the same draw.
        let numbered = (0..).zip(&*self.weights).map(|(i, weight)| (i, *weight, stream.next_f64()));
        let mut keys: Vec<(f64, u64)> = numbered
            .filter(|(_, weight, _)| *weight > 0.0)
            .map(|(i, weight, u)| (-libm::log(1.0 - u) / weight, i))
            .collect();
        keys.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        keys.truncate(self.samples as usize);
        keys.into_iter().map(|(_, i)| i).collect()
    }

    /// The indices of this rank.
    pub fn indices(&self, epoch: u64) -> Vec<u64> {
        let draw = self.draw(epoch);
        places(self.samples, self.len(), self.place).map(|place| draw[place as usize]).collect()
    }

    /// The first sample whose part reaches `u`, and has a weight.
    fn one(&self, u: f64) -> u64 {
        let reached = self.upto.partition_point(|upto| *upto < u);
        let beyond = self.weights[reached..].iter().take_while(|weight| **weight == 0.0).count();
        (reached + beyond) as u64
    }
}

/// The sum of the weights, if they can be drawn by.
fn checked(weights: &[f64]) -> Result<f64, Fault> {
    let hint = "a weight is how often a sample comes compared with others: 0 or more";
    if let Some(i) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        let weight = weights[i];
        return Err(Fault::request(format!("sample {i} has the weight {weight}")).hint(hint));
    }
    let sum = weights.iter().fold(0.0, |sum, weight| sum + weight);
    if sum > 0.0 && sum.is_finite() {
        return Ok(sum);
    }
    Err(Fault::request(format!("the weights of all samples add up to {sum}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: [f64; 6] = [0.1, 0.0, 3.0, 1.0, 0.5, 0.0];

    #[test]
    fn with_replacement_the_draw_is_that_of_torch() {
        let draw = |weights: &[f64], seed| {
            Weighted::with_replacement(weights, 20, Place::ALONE).unwrap().seed(seed).draw(0)
        };
        let expected = [2, 2, 3, 2, 3, 2, 2, 2, 2, 3, 2, 2, 2, 2, 4, 2, 2, 2, 4, 2];
        assert_eq!(draw(&WEIGHTS, 3), expected);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let expected = [4, 9, 5, 2, 1, 7, 2, 3, 3, 7, 7, 5, 7, 5, 8, 0, 3, 8, 9, 7];
        assert_eq!(draw(&ten, 9), expected);
    }

    #[test]
    fn the_union_over_ranks_is_the_draw() {
        let rank = |rank, epoch| {
            let place = Place::new(rank, 3).unwrap();
            Weighted::with_replacement(&WEIGHTS, 9, place).unwrap().seed(5).indices(epoch)
        };
        let draw = Weighted::with_replacement(&WEIGHTS, 9, Place::ALONE).unwrap().seed(5);
        for epoch in 0..5 {
            let parts = [rank(0, epoch), rank(1, epoch), rank(2, epoch)];
            let union: Vec<u64> = (0..9).map(|k| parts[k % 3][k / 3]).collect();
            assert_eq!(union, draw.draw(epoch));
        }
        assert_ne!(draw.draw(0), draw.draw(1));
        // What does not go round is filled up from the start of the draw, or left out.
        let of_two = |rank| {
            let place = Place::new(rank, 2).unwrap();
            Weighted::with_replacement(&WEIGHTS, 9, place).unwrap().seed(5)
        };
        assert_eq!(of_two(1).indices(0).last(), draw.draw(0).first());
        assert_eq!(of_two(1).drop_last(true).indices(0).len(), 4);
    }

    #[test]
    fn without_replacement_no_sample_comes_twice_or_without_weight() {
        let sampler = |n| Weighted::without_replacement(&WEIGHTS, n, Place::ALONE).unwrap();
        let mut firsts = [0; 6];
        for epoch in 0..4600 {
            let mut draw = sampler(4).draw(epoch);
            firsts[draw[0] as usize] += 1;
            draw.sort_unstable();
            assert_eq!(draw, [0, 2, 3, 4]);
        }
        // 4.6 is the sum of the weights: of 4600 draws 100, 0, 3000, 1000, 500, 0 are expected.
        let expected = [100_i32, 0, 3000, 1000, 500, 0];
        let far = firsts.iter().zip(expected).map(|(found, e)| (found - e).abs());
        assert!(far.max() < Some(150), "{firsts:?}");
        assert_eq!(sampler(2).draw(7), sampler(4).draw(7)[..2]);
        // The smallest weight there is stands before none.
        let tiny = [0.0, f64::from_bits(1), f64::from_bits(1)];
        let tiny = Weighted::without_replacement(&tiny, 2, Place::ALONE).unwrap();
        assert_eq!(tiny.draw(0), [1, 2]);
    }

    #[test]
    fn weights_that_cannot_be_drawn_by_are_refused() {
        let check = |weights: &[f64], samples, expected: &str| {
            let fault = Weighted::without_replacement(weights, samples, Place::ALONE).unwrap_err();
            assert_eq!(fault.sentence, expected);
        };
        check(&[1.0, -2.0], 1, "sample 1 has the weight -2");
        check(&[f64::NAN], 1, "sample 0 has the weight NaN");
        check(&[0.0, 0.0], 1, "the weights of all samples add up to 0");
        check(&[], 0, "the weights of all samples add up to 0");
        let expected = "5 samples are to be drawn once each, and 4 have a weight above 0";
        check(&WEIGHTS, 5, expected);
    }
}
