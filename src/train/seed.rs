//! Seeds for what is random within a step: dropout, augmentation, noise.
//!
//! Each is a function of the seed of the run, the epoch, the step and the rank, so that a resumed run
//! draws what the undisturbed one would have drawn, and no two ranks draw the same. The order of samples
//! has seeds of its own ([`super::sampler`]): those are torch's.

/// The seed of a rank in an epoch. For one run no two of them are equal.
pub(crate) fn of_rank(run: i64, epoch: u32, rank: u32) -> u64 {
    mix(mix(run as u64) ^ (u64::from(epoch) << 32 | u64::from(rank)))
}

/// The seed of a rank in a step of an epoch. In one epoch no two steps of a rank have equal seeds; those
/// of different ranks and epochs are as far apart as random numbers of 64 bits.
pub fn of_step(run: i64, epoch: u32, step: u64, rank: u32) -> u64 {
    mix(of_rank(run, epoch, rank) ^ step)
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014): a permutation of all numbers of 64 bits in which
/// every bit of the result depends on every bit given.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_mixing_is_splitmix() {
        // The first outputs of SplitMix64 with the state 0 and 1234567, as published with it.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn small_numbers_do_not_collide() {
        let mut seen = HashSet::new();
        for run in -10..40 {
            for epoch in 0..40 {
                for rank in 0..40 {
                    assert!(seen.insert(of_rank(run, epoch, rank)), "{run} {epoch} {rank}");
                }
            }
        }
        let mut seen = HashSet::new();
        for run in 0..10 {
            for epoch in 0..10 {
                for (rank, step) in (0..10).flat_map(|r| (0..100).map(move |s| (r, s))) {
                    let seed = of_step(run, epoch, step, rank);
                    assert!(seen.insert(seed), "{run} {epoch} {step} {rank}");
                    // Generators of 32 bits see the lower half.
                    assert_ne!(seed as u32, 0);
                }
            }
        }
    }

    #[test]
    fn seeds_stay_what_they_were() {
        // A checkpoint of an older version resumes with the same numbers.
        assert_eq!(of_rank(0, 0, 0), 12_035_550_249_420_947_055);
        assert_eq!(of_rank(-1, 3, 2), 14_548_130_920_860_982_383);
        assert_eq!(of_step(7, 1, 99, 3), 17_364_769_286_632_869_927);
    }
}
