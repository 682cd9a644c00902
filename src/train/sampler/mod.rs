//! Which rank takes which samples, in which order: a pure function of seed, epoch, rank and number of
//! ranks.
//!
//! Nothing is carried from one epoch to the next, so a resumed run needs no state but epoch and step: it asks
//! for the indices of the epoch again and continues at its step.

mod batches;
mod distributed;
mod exact;
mod own;

pub use batches::Batches;
pub use distributed::{Distributed, Subset};
pub use exact::Exact;
pub use own::Own;

use crate::base::fault::Fault;

/// One rank among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    rank: u64,
    world: u64,
}

impl Place {
    /// Rank 0 of one rank, which takes all samples.
    pub const ALONE: Self = Self { rank: 0, world: 1 };

    /// Rank `rank` of `world`.
    ///
    /// # Errors
    /// A fault when there is no such rank.
    pub fn new(rank: u64, world: u64) -> Result<Self, Fault> {
        if rank < world {
            return Ok(Self { rank, world });
        }
        Err(Fault::request(format!("there is no rank {rank} among {world}"))
            .hint("ranks are counted from 0"))
    }

    /// The rank, from 0.
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// How many there are.
    pub fn world(self) -> u64 {
        self.world
    }
}

/// How the samples of an epoch are chosen and divided among ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampler {
    /// All samples, as torch's `DistributedSampler` divides them.
    Distributed(Distributed),
    /// Some samples, divided in the same way.
    Subset(Subset),
    /// Each rank its own samples.
    Own(Own),
    /// Each sample once, for evaluation.
    Exact(Exact),
}

impl Sampler {
    /// The indices that this rank visits in an epoch, in order.
    pub(crate) fn indices(&self, epoch: u64) -> Vec<u64> {
        match self {
            Self::Distributed(sampler) => sampler.indices(epoch),
            Self::Subset(sampler) => sampler.indices(epoch),
            Self::Own(sampler) => sampler.indices(epoch),
            Self::Exact(sampler) => sampler.indices(),
        }
    }

    /// Least and most samples that any rank visits in an epoch; they differ for [`Exact`] only.
    pub(crate) fn lengths(&self) -> (u64, u64) {
        match self {
            Self::Distributed(sampler) => (sampler.len(), sampler.len()),
            Self::Subset(sampler) => (sampler.len(), sampler.len()),
            Self::Own(sampler) => (sampler.len(), sampler.len()),
            Self::Exact(sampler) => sampler.lengths(),
        }
    }

    /// How many steps an epoch has: the same number on every rank.
    ///
    /// With `drop_last` only batches that are full on every rank count; without, the last one may be
    /// short, and with [`Exact`] empty on some ranks.
    pub fn steps(&self, batch_size: u64, drop_last: bool) -> u64 {
        let (least, most) = self.lengths();
        let size = batch_size.max(1);
        if drop_last { least / size } else { most.div_ceil(size) }
    }

    /// The epoch cut into batches.
    pub fn batches(&self, epoch: u64, batch_size: u64, drop_last: bool) -> Batches {
        Batches::new(self.indices(epoch), batch_size, self.steps(batch_size, drop_last))
    }
}

/// The number of samples of each rank if `n` samples are divided one by one: with `drop_last` as many as
/// every rank can have, without it as many as the last sample needs.
fn share(n: u64, world: u64, drop_last: bool) -> u64 {
    if drop_last { n / world } else { n.div_ceil(world) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_beyond_the_last_is_refused() {
        let fault = Place::new(4, 4).unwrap_err();
        assert_eq!(fault.to_string(), "there is no rank 4 among 4\nhint: ranks are counted from 0");
        assert!(Place::new(0, 0).is_err());
        assert_eq!(Place::new(3, 4).map(|p| (p.rank(), p.world())), Ok((3, 4)));
    }

    #[test]
    fn every_rank_has_the_same_steps() {
        let samplers = |world: u64| -> Vec<Vec<Sampler>> {
            let places = || (0..world).map(move |rank| Place::new(rank, world).unwrap());
            let counts: Vec<u64> = (0..world).map(|k| 3 + k).collect();
            let own = |p: Place| {
                let items = (0..counts[p.rank() as usize]).collect();
                Own::new(items, &counts, p).unwrap()
            };
            vec![
                places().map(|p| Sampler::Distributed(Distributed::new(10, p))).collect(),
                places().map(|p| Sampler::Exact(Exact::new(10, p))).collect(),
                places().map(|p| Sampler::Own(own(p))).collect(),
            ]
        };
        for world in 1..8 {
            for ranks in samplers(world) {
                for (size, drop_last) in
                    [(1, false), (2, false), (3, true), (4, false), (100, true)]
                {
                    let batches: Vec<Batches> =
                        ranks.iter().map(|r| r.batches(0, size, drop_last)).collect();
                    let steps = batches[0].steps();
                    for (rank, batches) in ranks.iter().zip(&batches) {
                        assert_eq!(batches.steps(), steps);
                        let sizes = (0..steps).map(|s| batches.batch(s).len() as u64);
                        if drop_last {
                            assert!(sizes.clone().all(|s| s == size));
                        } else {
                            assert_eq!(sizes.sum::<u64>(), rank.indices(0).len() as u64);
                        }
                    }
                }
            }
        }
    }
}
