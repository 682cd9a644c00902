//! `distributed_sampler.json`: what torch's `DistributedSampler` and `randperm` give, index for index.
//!
//! The file is read from `tests/cases`, or from the folder in `HPCSWEEP_CASES`: any file of its form can
//! be run through this test.

use std::path::PathBuf;

use hpcsweep::train::mt19937::randperm;
use hpcsweep::train::sampler::{Distributed, Place};
use serde::Deserialize;
use serde_json::Number;
use sha2::{Digest, Sha256};

use crate::support::world::ROOT;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
    randperm: Vec<Permutation>,
}

/// What every rank visits in one epoch.
#[derive(Deserialize)]
struct Case {
    n: u64,
    world_size: u64,
    seed: Number,
    epoch: u64,
    shuffle: bool,
    drop_last: bool,
    indices: Vec<Vec<u64>>,
}

/// The hash of a permutation: of its decimal numbers, joined by commas.
#[derive(Deserialize)]
struct Permutation {
    n: u64,
    seed: Number,
    sha256: String,
}

/// What torch's `manual_seed` takes: from -2^63 to 2^64 - 1.
fn seed(number: &Number) -> i64 {
    number.as_i64().or(number.as_u64().map(|seed| seed as i64)).expect("a seed of 64 bits")
}

fn cases() -> Cases {
    let folder = std::env::var_os("HPCSWEEP_CASES")
        .map_or_else(|| PathBuf::from(ROOT).join("tests/cases"), PathBuf::from);
    let path = folder.join("distributed_sampler.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_rank_visits_what_torch_says() {
    let cases = cases().cases;
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let Case { n, world_size, epoch, shuffle, drop_last, ref indices, .. } = *case;
        let of_rank = |rank| {
            let sampler = Distributed::new(n, Place::new(rank, world_size).unwrap())
                .seed(seed(&case.seed))
                .shuffle(shuffle)
                .drop_last(drop_last);
            let found = sampler.indices(epoch);
            assert_eq!(found.len() as u64, sampler.len());
            found
        };
        let found: Vec<Vec<u64>> = (0..world_size).map(of_rank).collect();
        if found != *indices {
            wrong.push(format!("case {number}: {found:?} is not {indices:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn permutations_are_those_of_torch() {
    for Permutation { n, seed: number, sha256 } in cases().randperm {
        let mut hasher = Sha256::new();
        let mut comma = "";
        for index in randperm(n, seed(&number) as u64) {
            hasher.update(format!("{comma}{index}"));
            comma = ",";
        }
        let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sha256, "randperm({n}) with seed {number}");
    }
}
