//! Each sample once, on one rank: for evaluation, where a sample that counts twice is a wrong number.

use std::ops::Range;
use std::sync::Arc;

use super::Place;
use crate::train::shard::balanced;

/// Each sample of a data set, or of a list, exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exact {
    n: u64,
    items: Option<Arc<[u64]>>,
    place: Place,
}

impl Exact {
    /// Deals the samples 0 to `n - 1` in stretches.
    pub fn new(n: u64, place: Place) -> Self {
        Self { n, items: None, place }
    }

    /// Deals the samples `items` in stretches.
    pub fn from_items(items: impl Into<Arc<[u64]>>, place: Place) -> Self {
        let items = items.into();
        Self { n: items.len() as u64, items: Some(items), place }
    }

    /// Least and most samples of a rank.
    pub(crate) fn lengths(&self) -> (u64, u64) {
        (self.n / self.place.world, self.n.div_ceil(self.place.world))
    }

    /// The indices of this rank; they are the same in every epoch.
    pub(crate) fn indices(&self) -> Vec<u64> {
        let items = self.items.as_deref();
        self.places(self.place.rank)
            .map(|place| items.map_or(place, |items| items[place as usize]))
            .collect()
    }

    /// The places in the data set that a rank visits.
    fn places(&self, rank: u64) -> Range<u64> {
        balanced(self.n, self.place.world, rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everyone(n: u64, world: u64) -> Vec<Exact> {
        let place = |rank| Place::new(rank, world).unwrap();
        (0..world).map(|rank| Exact::new(n, place(rank))).collect()
    }

    #[test]
    fn ten_samples_on_four_ranks_are_ten_samples_in_order() {
        let indices: Vec<Vec<u64>> = everyone(10, 4).iter().map(Exact::indices).collect();
        assert_eq!(indices, [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7], vec![8, 9]]);
    }

    #[test]
    fn no_sample_comes_twice_and_ranks_differ_by_one_at_most() {
        for (n, world) in (0..30).flat_map(|n| (1..9).map(move |world| (n, world))) {
            let ranks = everyone(n, world);
            let parts: Vec<Vec<u64>> = ranks.iter().map(Exact::indices).collect();
            assert_eq!(parts.concat(), (0..n).collect::<Vec<u64>>());
            let counts: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
            let (least, most) = ranks[0].lengths();
            assert!(most - least <= 1);
            assert_eq!(counts.iter().min(), Some(&least));
            assert_eq!(counts.iter().max(), Some(&most));
        }
    }

    #[test]
    fn a_list_keeps_its_order() {
        let items = [40, 10, 30, 20, 50];
        let rank = |rank| Exact::from_items(items, Place::new(rank, 2).unwrap()).indices();
        assert_eq!([rank(0), rank(1)].concat(), items);
    }
}
