//! Where trials of a sweep are: in the plan, and in the arrays of jobs.

use std::collections::HashMap;
use std::path::Path;

use crate::base::host::disk;
use crate::submit::Source;
use crate::submit::arrays::wave::Waves;
use crate::sweep::status::Status;
use crate::sweep::tree::table::{self, Row};

/// Whether a plan is the very one that has made all trials of a sweep, so that each has its own number as its place there. The
/// lists of trials in other files, which it may name, may have changed.
pub(super) fn is_plan_of(status: &Status, file: &Path) -> bool {
    let Ok(text) = disk::read(file) else { return false };
    let heads = table::heads(&status.tree).unwrap_or_default();
    let crc = crc32fast::hash(text.as_bytes());
    let made_all = matches!(&heads[..], [head] if head.first == 0 && head.plan_crc == Some(crc));
    made_all && status.shards.is_none() && !text.contains("file")
}

/// The places in a plan of trials that run the same as these of a sweep; of several equal ones, that of the same number or
/// the first.
pub(super) fn in_plan(source: &Source, rows: &[&Row]) -> HashMap<u64, usize> {
    let trials = &source.plan.trials;
    let mut maker = source.plan.keys();
    let mut key = |place: usize| trials.get(place).map(|trial| maker.key_of(&trial.params));
    let wanted = |row: &&Row| Some((key_of(&row.key)?, row.id));
    let all: Vec<([u8; 16], u64)> = rows.iter().filter_map(wanted).collect();
    let (same, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(own, trial)| key(*trial as usize) == Some(*own));
    let mut places: HashMap<u64, usize> =
        same.into_iter().map(|(_, trial)| (trial, trial as usize)).collect();
    if !others.is_empty() {
        let mut first = HashMap::new();
        for place in 0..trials.len() {
            first.entry(key(place)).or_insert(place);
        }
        places.extend(
            others.iter().filter_map(|(own, trial)| Some((*trial, *first.get(&Some(*own))?))),
        );
    }
    places
}

/// A key from its digits.
fn key_of(digits: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    Some(number.to_be_bytes())
}

/// The array and index that runs a trial; the latest, if several have.
pub(super) fn in_arrays(waves: &Waves, trial: u64) -> Option<(u32, u64)> {
    let places = waves.arrays().filter_map(|(_, array, trials)| {
        let n = trials.iter().rposition(|own| *own == trial)? as u64;
        Some((array.array, n % array.count))
    });
    places.last()
}
