//! All that a results tree says of the trials of a sweep.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use crate::plan::OnFailure;
use crate::standing::{self, Standing, Witness};
use crate::tree::records::{self, Record};
use crate::tree::table::{self, Row};
use crate::tree::{Tree, journal::Journal, lock, waves};

/// All that a tree says of its trials, in order.
pub(super) struct Read {
    pub(super) rows: Vec<Row>,
    pub(super) standings: Vec<Standing>,
    pub(super) records: HashMap<u64, Record>,
}

pub(super) fn read(tree: &Tree) -> Result<Read> {
    let rows = table::rows(tree)?;
    let heads = table::heads(tree)?;
    let records = records::all(tree)?;
    let journal = Journal::read(tree)?;
    let mut submitted: BTreeSet<u64> = BTreeSet::new();
    for wave in waves::read(tree)? {
        let map = waves::map(tree, wave.wave)?;
        for array in wave.arrays.iter().filter(|a| journal.job(a.array).is_some()) {
            submitted.extend(array.trials(&map));
        }
    }
    let witness = Witness {
        element: &|_| None,
        submitted: &|trial| submitted.contains(&trial),
        asked: false,
        believes_ends: false,
        executor: lock::is_held(tree),
        on_failure: heads.last().map_or(OnFailure::Stop, |h| h.run.on_failure),
    };
    let standings = standing::of(&rows, &records, &witness);
    Ok(Read { rows, standings, records })
}
