//! Each rank its own samples: what sharding by files comes to.

use std::sync::Arc;

use super::Place;
use super::distributed::Subset;
use crate::base::fault::Fault;

/// The samples of one rank, which no other rank reads; shuffled within the rank, with seed + epoch.
///
/// Ranks may have different numbers of samples and must take the same number of steps: those with fewer
/// start over, or with `drop_last` those with more leave some out, others in each epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    items: Subset,
    least: u64,
    most: u64,
    drop_last: bool,
}

impl Own {
    /// The samples of this rank, and how many each rank has.
    ///
    /// # Errors
    /// A fault when a rank has none, or the counts do not fit to rank and number of ranks.
    pub fn new(items: Vec<u64>, counts: &[u64], place: Place) -> Result<Self, Fault> {
        if counts.len() as u64 != place.world {
            let (given, world) = (counts.len(), place.world);
            return Err(Fault::request(format!("{given} shards for {world} ranks"))
                .hint("give every rank one shard"));
        }
        if counts[place.rank as usize] != items.len() as u64 {
            let (rank, said) = (place.rank, counts[place.rank as usize]);
            let n_items = items.len();
            return Err(Fault::request(format!(
                "rank {rank} has {n_items} samples, and {said} were expected"
            ))
            .hint("did the files change since they were counted?"));
        }
        if let Some(rank) = counts.iter().position(|count| *count == 0) {
            return Err(Fault::request(format!("rank {rank} has no samples"))
                .hint("use fewer ranks, or more and smaller files"));
        }
        let least = counts.iter().copied().min().unwrap_or(0);
        let largest = counts.iter().copied().max().unwrap_or(0);
        let items = Subset::new(Arc::from(items), Place::ALONE);
        Ok(Self { items, least, most: largest, drop_last: false })
    }

    /// The seed of the order.
    #[must_use]
    pub fn seed(self, seed: i64) -> Self {
        Self { items: self.items.seed(seed), ..self }
    }

    /// Whether each epoch has an order of its own.
    #[must_use]
    pub fn shuffle(self, shuffle: bool) -> Self {
        Self { items: self.items.shuffle(shuffle), ..self }
    }

    /// Whether ranks with more samples leave some out.
    #[must_use]
    pub fn drop_last(self, drop_last: bool) -> Self {
        Self { drop_last, ..self }
    }

    /// How many indices each rank has.
    pub(crate) fn len(&self) -> u64 {
        if self.drop_last { self.least } else { self.most }
    }

    /// The indices of this rank.
    pub(crate) fn indices(&self, epoch: u64) -> Vec<u64> {
        let order = self.items.indices(epoch);
        order.iter().copied().cycle().take(self.len() as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_as_many_steps_and_read_only_their_own() {
        let shards = [vec![0, 1, 2, 3, 4], vec![5, 6], vec![7, 8, 9]];
        let counts = [5, 2, 3];
        let make = |rank: u64| {
            let place = Place::new(rank, 3).unwrap();
            Own::new(shards[rank as usize].clone(), &counts, place).unwrap().seed(1)
        };
        for rank in 0..3 {
            let mut indices = make(rank).indices(4);
            assert_eq!(indices.len(), 5);
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices, shards[rank as usize]);
            let dropped = make(rank).drop_last(true).indices(4);
            assert_eq!(dropped, make(rank).indices(4)[..2]);
        }
        let plain = make(1).shuffle(false).indices(0);
        assert_eq!(plain, [5, 6, 5, 6, 5]);
    }

    #[test]
    fn shards_that_cannot_be_are_refused() {
        let place = Place::new(1, 2).unwrap();
        let check = |items, counts: &[u64], expected: &str| {
            assert_eq!(Own::new(items, counts, place).unwrap_err().sentence, expected);
        };
        check(vec![1], &[1], "1 shards for 2 ranks");
        check(vec![1], &[1, 2], "rank 1 has 1 samples, and 2 were expected");
        check(vec![1], &[0, 1], "rank 0 has no samples");
    }
}
