//! The feeder of a sweep: the job that submits the trials that had no place in the queue.

use std::collections::{HashMap, HashSet};

use crate::base::idset::IdSet;
use crate::cluster::scheduler::Elements;
use crate::sweep::standing::{Standing, State};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{ByTrial, Record};
use crate::sweep::tree::table::Row;
use crate::sweep::tree::waves::{Array, Feeder, Wave};

use super::places::Places;

/// The newest feeders, which alone may be queued or running: most are submitted by the one before, some beside another by a
/// person.
const NEWEST: usize = 8;

/// The arrays of the feeders that may be queued or running, of those that `is_meant`, newest first, and their jobs.
pub(crate) fn jobs<'a>(
    waves: impl DoubleEndedIterator<Item = &'a Wave>,
    journal: &Journal,
    is_meant: impl Fn(&Feeder) -> bool,
) -> Vec<(u32, String)> {
    let arrays = waves.rev().flat_map(|wave| wave.arrays.iter().rev());
    let feeders = arrays.filter(|array| array.feeder.as_ref().is_some_and(&is_meant));
    let feeders = feeders.map(|array| array.array);
    let jobs = feeders.filter_map(|array| Some((array, journal.job(array)?.to_owned())));
    jobs.take(NEWEST).filter(|(array, _)| !journal.is_taken_back(*array)).collect()
}

/// Whether the last feeder was submitted for trials that wait until others have shown what they need.
pub(super) fn is_learning<'a>(waves: impl DoubleEndedIterator<Item = &'a Wave>) -> bool {
    let mut arrays = waves.rev().flat_map(|wave| wave.arrays.iter().rev());
    arrays.find_map(|array| array.feeder.as_ref()).is_some_and(|feeder| feeder.is_learning)
}

/// A feeder that has not ended.
#[derive(Clone, Copy)]
pub(super) struct Alive<'a> {
    pub(super) array: u32,
    pub(super) job: &'a str,
    feeder: &'a Feeder,
}

/// The feeders of these jobs that have not ended.
pub(super) fn alive<'a>(
    jobs: &'a [(u32, String)],
    waves: &'a [(Wave, Vec<u64>)],
    elements: &HashMap<String, Elements>,
) -> Vec<Alive<'a>> {
    let is_alive =
        |job: &str| elements.get(job).and_then(|e| e.get(0)).is_some_and(|e| e.state.is_alive());
    let of = |number: u32| {
        let mut arrays = waves.iter().flat_map(|(wave, _)| &wave.arrays);
        arrays.find(|array| array.array == number)?.feeder.as_ref()
    };
    let jobs = jobs.iter().filter(|(_, job)| is_alive(job));
    jobs.filter_map(|(array, job)| Some(Alive { array: *array, job, feeder: of(*array)? }))
        .collect()
}

/// What the feeders that have not ended do about a sweep.
#[derive(Default)]
pub(super) struct Fed {
    /// The job of the one that submits what is left.
    pub(super) job: Option<String>,
    /// The trials without success about which one decides by `[retry]`, or that it submits again.
    pub(super) awaited: HashSet<u64>,
    /// How many of these it submits again when there is a place in the queue.
    pub(super) repeated: u64,
}

impl Fed {
    /// That of feeders that have not ended. `left`: trials that were never submitted; `bad`: those without success.
    pub(super) fn of(
        alive: &[Alive<'_>],
        left: usize,
        undecided: &HashSet<u64>,
        bad: impl Iterator<Item = u64>,
    ) -> Self {
        if alive.is_empty() {
            return Self::default();
        }
        // What is not submitted yet is none of the business of one that submits certain trials alone.
        let job = alive.iter().find(|own| left == 0 || own.feeder.only.is_none());
        let sets: Vec<Option<IdSet>> = alive.iter().map(|own| own.feeder.only()).collect();
        let has = |only: &Option<IdSet>, trial| only.as_ref().is_none_or(|ids| ids.has(trial));
        let is_decided = |trial: &u64| sets.iter().any(|only| has(only, *trial));
        let again = alive.iter().flat_map(|own| &own.feeder.again);
        let again: Vec<IdSet> =
            again.map(|own| IdSet::of_numbers(&own.trials).unwrap_or_default()).collect();
        let runs_again = |trial: u64| again.iter().any(|ids| ids.has(trial));
        let repeated: HashSet<u64> = bad.filter(|trial| runs_again(*trial)).collect();
        let decided = undecided.iter().copied().filter(is_decided);
        Self {
            job: job.map(|own| own.job.to_owned()),
            repeated: repeated.len() as u64,
            awaited: decided.chain(repeated.iter().copied()).collect(),
        }
    }
}

/// The last feeder of a sweep, if it is neither cancelled nor held.
pub(super) fn kept<'a>(
    waves: impl DoubleEndedIterator<Item = &'a Wave>,
    journal: &Journal,
) -> Option<&'a Array> {
    let mut arrays = waves.rev().flat_map(|wave| wave.arrays.iter().rev());
    let last = arrays.find(|array| array.feeder.is_some())?;
    (!journal.is_taken_back(last.array) && journal.on_hold.is_none()).then_some(last)
}

/// Whether the last feeder of a sweep decides by `[retry]` and is neither cancelled nor held.
fn decides(waves: &[(Wave, Vec<u64>)], journal: &Journal) -> bool {
    let last = kept(waves.iter().map(|(wave, _)| wave), journal);
    last.and_then(|array| array.feeder.as_ref()).is_some_and(|own| own.decides)
}

/// Trials without success of which no feeder has decided by `[retry]`, where feeders of the sweep do.
pub(super) fn undecided(
    waves: &[(Wave, Vec<u64>)],
    journal: &Journal,
    rows: &[Row],
    standings: &[Standing],
    records: &ByTrial,
    places: &Places,
) -> HashSet<u64> {
    let is_due = |(row, standing): &(&Row, &Standing)| {
        standing.state.is_bad()
            && !matches!(standing.state, State::Skipped | State::Cancelled)
            && !journal.has_settled(row.id, records.get(&row.id))
            && !places.of(row.id).is_some_and(|(array, _)| journal.is_cancelled(array, row.id))
    };
    match decides(waves, journal) {
        true => rows.iter().zip(standings).filter(is_due).map(|(row, _)| row.id).collect(),
        false => HashSet::new(),
    }
}

/// Whether a feeder may have to decide about a trial that has ended without success by its record.
pub(super) fn may_decide(waves: &[(Wave, Vec<u64>)], journal: &Journal, records: &ByTrial) -> bool {
    let is_due = |(trial, record): (&u64, &Record)| {
        record.is_without_success() && !journal.has_settled(*trial, Some(record))
    };
    decides(waves, journal) && records.iter().any(is_due)
}
