//! All samples, or a subset, as torch's `DistributedSampler` divides them, index for index.
//!
//! The order of an epoch is `randperm` with seed + epoch; it is filled up by starting over until every
//! rank has the same number (or cut with `drop_last`), and rank r takes every W-th from r on. World size
//! and rank never enter the shuffle (`torch/utils/data/distributed.py`).

use std::sync::Arc;

use super::{Place, share};
use crate::train::mt19937::{randperm, randperm32};

/// All samples. Defaults are torch's: seed 0, shuffled, nothing dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distributed {
    n: u64,
    place: Place,
    seed: i64,
    shuffle: bool,
    drop_last: bool,
}

impl Distributed {
    /// Deals the samples 0 to `n - 1`.
    pub fn new(n: u64, place: Place) -> Self {
        Self { n, place, seed: 0, shuffle: true, drop_last: false }
    }

    /// The seed of the order. With the epoch added, only its low 32 bits count, as in torch.
    #[must_use]
    pub fn seed(self, seed: i64) -> Self {
        Self { seed, ..self }
    }

    /// Whether each epoch has an order of its own.
    #[must_use]
    pub fn shuffle(self, shuffle: bool) -> Self {
        Self { shuffle, ..self }
    }

    /// Whether samples that do not go round are left out, instead of others being taken twice.
    #[must_use]
    pub fn drop_last(self, drop_last: bool) -> Self {
        Self { drop_last, ..self }
    }

    /// How many indices each rank has.
    pub fn len(&self) -> u64 {
        share(self.n, self.place.world, self.drop_last)
    }

    /// Whether no rank has any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices of this rank.
    pub fn indices(&self, epoch: u64) -> Vec<u64> {
        let places = places(self.n, self.len(), self.place);
        let seed = seed_of(self.seed, epoch);
        if !self.shuffle {
            return places.collect();
        }
        match u32::try_from(self.n) {
            Ok(n) => {
                let order = randperm32(n, seed);
                places.map(|place| u64::from(order[place as usize])).collect()
            }
            Err(_) => {
                let order = randperm(self.n, seed);
                places.map(|place| order[place as usize]).collect()
            }
        }
    }
}

/// A given list of samples, shuffled and divided as [`Distributed`] does with all: no other index is ever
/// visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subset {
    items: Arc<[u64]>,
    places: Distributed,
}

impl Subset {
    /// Deals the samples `items`.
    pub fn new(items: impl Into<Arc<[u64]>>, place: Place) -> Self {
        let items = items.into();
        Self { places: Distributed::new(items.len() as u64, place), items }
    }

    /// The seed of the order, as [`Distributed::seed`].
    #[must_use]
    pub fn seed(self, seed: i64) -> Self {
        Self { places: self.places.seed(seed), ..self }
    }

    /// Whether each epoch has its own order, as [`Distributed::shuffle`].
    #[must_use]
    pub fn shuffle(self, shuffle: bool) -> Self {
        Self { places: self.places.shuffle(shuffle), ..self }
    }

    /// Whether samples that do not go round are left out, as [`Distributed::drop_last`].
    #[must_use]
    pub fn drop_last(self, drop_last: bool) -> Self {
        Self { places: self.places.drop_last(drop_last), ..self }
    }

    /// How many indices each rank has.
    pub(crate) fn len(&self) -> u64 {
        self.places.len()
    }

    /// The indices of this rank.
    pub(crate) fn indices(&self, epoch: u64) -> Vec<u64> {
        let mut indices = self.places.indices(epoch);
        for index in &mut indices {
            *index = self.items[*index as usize];
        }
        indices
    }
}

/// What seeds an epoch: `manual_seed(seed + epoch)`.
fn seed_of(seed: i64, epoch: u64) -> u64 {
    (seed as u64).wrapping_add(epoch)
}

/// The places that a rank visits in an order of `n`, which starts over where it is too short.
pub(super) fn places(n: u64, each: u64, place: Place) -> impl Iterator<Item = u64> {
    let Place { rank, world } = place;
    (0..each).map(move |k| {
        let position = rank + k * world;
        if position < n { position } else { position % n }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(world: u64) -> impl Iterator<Item = Place> {
        (0..world).map(move |rank| Place::new(rank, world).unwrap())
    }

    fn dealt(
        n: u64,
        world: u64,
        epoch: u64,
        make: impl Fn(Distributed) -> Distributed,
    ) -> Vec<Vec<u64>> {
        ranks(world).map(|place| make(Distributed::new(n, place)).indices(epoch)).collect()
    }

    #[test]
    fn indices_are_those_of_torch() {
        assert_eq!(dealt(10, 4, 0, |d| d), [[4, 3, 6], [1, 9, 2], [7, 0, 4], [5, 8, 1]]);
        assert_eq!(dealt(10, 4, 1, |d| d), [[5, 0, 7], [6, 8, 4], [1, 9, 5], [2, 3, 6]]);
        let dropped = dealt(10, 4, 0, |d| d.drop_last(true));
        assert_eq!(dropped, [[4, 3], [1, 9], [7, 0], [5, 8]]);
        let plain = dealt(10, 4, 0, |d| d.shuffle(false));
        assert_eq!(plain, [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]);
        assert_eq!(dealt(7, 3, 3, |d| d.seed(42)), [[5, 2, 0], [3, 4, 5], [1, 6, 3]]);
    }

    #[test]
    fn few_samples_go_round_more_than_once() {
        let plain = |n, world| dealt(n, world, 0, |d| d.shuffle(false));
        assert_eq!(plain(3, 8).concat(), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(plain(2, 5).concat(), [0, 1, 0, 1, 0]);
        assert_eq!(dealt(2, 5, 0, |d| d.drop_last(true)).concat(), [0; 0]);
        assert_eq!(dealt(1, 4, 9, |d| d), [[0], [0], [0], [0]]);
        assert_eq!(dealt(0, 2, 0, |d| d).concat(), [0; 0]);
    }

    #[test]
    fn seed_and_epoch_are_added_as_numbers_of_32_bits() {
        // torch: DistributedSampler(range(6), 2, 0, seed=...), set_epoch(2).
        let first = |seed| Distributed::new(6, Place::new(0, 2).unwrap()).seed(seed).indices(2);
        assert_eq!(first(-1), [1, 2, 3]);
        assert_eq!(first(-5), [3, 0, 5]);
        assert_eq!(first(1 << 31), [3, 0, 5]);
        assert_eq!(first(i64::MAX), [1, 2, 3]);
    }

    #[test]
    fn a_subset_is_dealt_as_torch_deals_it_and_yields_nothing_else() {
        let items: Vec<u64> = (11..18).collect();
        let sampler = |place| Subset::new(items.clone(), place).seed(42);
        let dealt: Vec<Vec<u64>> = ranks(3).map(|place| sampler(place).indices(3)).collect();
        assert_eq!(dealt, [[16, 13, 11], [14, 15, 16], [12, 17, 14]]);
        for epoch in 0..20 {
            let mut seen: Vec<u64> =
                ranks(2).flat_map(|p| Subset::new([1, 2, 3], p).indices(epoch)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, [1, 2, 3]);
        }
    }
}
