//! Each sample once, on one rank: for evaluation, where a sample that counts twice is a wrong number.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;

use super::Place;
use crate::train::shard::balanced;

/// How samples are dealt without filling up. Ranks differ by one sample at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Deal {
    /// Rank r takes the r-th stretch: reads its files in order.
    #[default]
    Contiguous,
    /// Rank r takes every W-th from r on.
    Strided,
}

/// Each sample of a data set, or of a list, exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exact {
    n: u64,
    items: Option<Arc<[u64]>>,
    place: Place,
    deal: Deal,
}

impl Exact {
    /// Deals the samples 0 to `n - 1` in stretches.
    pub fn new(n: u64, place: Place) -> Self {
        Self { n, items: None, place, deal: Deal::default() }
    }

    /// Deals the samples `items` in stretches.
    pub fn of(items: impl Into<Arc<[u64]>>, place: Place) -> Self {
        let items = items.into();
        Self { n: items.len() as u64, items: Some(items), place, deal: Deal::default() }
    }

    /// Deals in another way.
    #[must_use]
    pub fn deal(self, deal: Deal) -> Self {
        Self { deal, ..self }
    }

    /// Least and most samples of a rank.
    pub fn lengths(&self) -> (u64, u64) {
        (self.n / self.place.world, self.n.div_ceil(self.place.world))
    }

    /// The indices of this rank; they are the same in every epoch.
    pub fn indices(&self) -> Vec<u64> {
        let items = self.items.as_deref();
        let index = |place: u64| items.map_or(place, |items| items[place as usize]);
        self.places(self.place.rank).map(index).collect()
    }

    /// How many samples each rank has, in rank order.
    pub fn counts(&self) -> Vec<u64> {
        (0..self.place.world).map(|rank| self.places(rank).count() as u64).collect()
    }

    /// The permutation that brings back the order of the data set: sample k (of the list, if one was
    /// given) is at `order()[k]` of what the ranks return, put together in rank order.
    pub fn order(&self) -> Vec<u64> {
        let mut order = vec![0; self.n as usize];
        let ranks = (0..self.place.world).flat_map(|rank| self.places(rank));
        for (at, sample) in (0..).zip(ranks) {
            order[sample as usize] = at;
        }
        order
    }

    /// Puts what the ranks return, put together in rank order, into the order of the data set.
    ///
    /// # Panics
    /// When there are fewer values than samples.
    pub fn restored<T: Clone>(&self, values: &[T]) -> Vec<T> {
        self.order().iter().map(|at| values[*at as usize].clone()).collect()
    }

    /// The places in the data set that a rank visits.
    fn places(&self, rank: u64) -> StepBy<Range<u64>> {
        let world = self.place.world;
        match self.deal {
            Deal::Contiguous => balanced(self.n, world, rank).step_by(1),
            Deal::Strided => (rank.min(self.n)..self.n).step_by(world as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everyone(n: u64, world: u64, deal: Deal) -> Vec<Exact> {
        let place = |rank| Place::new(rank, world).unwrap();
        (0..world).map(|rank| Exact::new(n, place(rank)).deal(deal)).collect()
    }

    #[test]
    fn ten_samples_on_four_ranks_are_ten_samples_in_order() {
        let ranks = everyone(10, 4, Deal::Contiguous);
        let indices: Vec<Vec<u64>> = ranks.iter().map(Exact::indices).collect();
        assert_eq!(indices, [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7], vec![8, 9]]);
        let ranks = everyone(10, 4, Deal::Strided);
        let indices: Vec<Vec<u64>> = ranks.iter().map(Exact::indices).collect();
        assert_eq!(indices, [vec![0, 4, 8], vec![1, 5, 9], vec![2, 6], vec![3, 7]]);
        assert_eq!(ranks[3].restored(&indices.concat()), (0..10).collect::<Vec<u64>>());
        assert_eq!(ranks[0].order(), [0, 3, 6, 8, 1, 4, 7, 9, 2, 5]);
    }

    #[test]
    fn no_sample_comes_twice_and_ranks_differ_by_one_at_most() {
        for (n, world) in (0..30).flat_map(|n| (1..9).map(move |world| (n, world))) {
            for deal in [Deal::Contiguous, Deal::Strided] {
                let ranks = everyone(n, world, deal);
                let parts: Vec<Vec<u64>> = ranks.iter().map(Exact::indices).collect();
                let counts: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
                assert_eq!(ranks[0].counts(), counts);
                let (least, most) = ranks[0].lengths();
                assert!(most - least <= 1);
                assert_eq!(counts.iter().min(), Some(&least));
                assert_eq!(counts.iter().max(), Some(&most));
                assert_eq!(ranks[0].restored(&parts.concat()), (0..n).collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn a_list_keeps_its_order() {
        let items = [40, 10, 30, 20, 50];
        let rank = |rank| Exact::of(items, Place::new(rank, 2).unwrap()).deal(Deal::Strided);
        let parts = [rank(0).indices(), rank(1).indices()].concat();
        assert_eq!(parts, [40, 30, 50, 10, 20]);
        assert_eq!(rank(1).restored(&parts), items);
    }
}
