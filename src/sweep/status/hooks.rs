//! The hooks of a whole sweep: the note of a call for an end, and whether a call is missing because the feeder was lost.

use std::path::PathBuf;

use anyhow::Result;

use super::feeder;
use crate::base::host::disk;
use crate::sweep::attempt::repeat;
use crate::sweep::tree::due::{self, Due};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Attempt, Outcome, Record};
use crate::sweep::tree::table::Head;
use crate::sweep::tree::waves::Wave;
use crate::sweep::tree::{Tree, deck};

/// The keys of `[hooks]`.
const FINISHED: &str = "sweep_finished";
const FAILED: &str = "sweep_failed";

/// The hook for the end of a sweep: its key and its argument vector. `stopped`: why the sweep has stopped before its end, if
/// it has. `None` where its last trials have no such hook.
pub(crate) fn of_end<'a>(
    heads: &'a [Head],
    stopped: Option<&str>,
) -> Option<(&'static str, &'a [String])> {
    let hooks = &heads.last()?.run.hooks;
    let (name, argv) = match stopped {
        Some(_) => (FAILED, &hooks.sweep_failed),
        None => (FINISHED, &hooks.sweep_finished),
    };
    (!argv.is_empty()).then_some((name, argv.as_slice()))
}

/// The file that tells of the call for this end: another end has had more attempts, or trials. Agents that halt a sweep may
/// still be ending what they run: there, another stop has had more decks, or jobs.
///
/// # Errors
/// When a deck cannot be read.
pub(crate) fn note<'a>(
    tree: &Tree,
    trials: u64,
    jobs: usize,
    records: impl Iterator<Item = &'a Record>,
    stopped: Option<&str>,
) -> Result<PathBuf> {
    let begun = || records.map(Record::begun).sum::<usize>();
    let name = match stopped {
        Some(why) if repeat::is_of_budget(why) => format!("spent-{trials}-{}", begun()),
        Some(_) => format!("stopped-{}-{jobs}", deck::read(tree)?.len()),
        None => format!("finished-{trials}-{}", begun()),
    };
    Ok(tree.dir().join(format!("hooks/{name}.json")))
}

/// Why trials do not run again that are not done, if that is the budget. `stands`: whether that is still so of a trial, which a
/// person may have repeated since.
///
/// # Errors
/// As `stands`.
pub(crate) fn spent(
    journal: &Journal,
    mut stands: impl FnMut(u64) -> Result<bool>,
) -> Result<Option<&str>> {
    for (trial, why) in journal.reasons() {
        if repeat::is_of_budget(why) && stands(trial)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Whether a trial with this record is not done, and has not run since it was decided that it does not run again.
pub(crate) fn is_left(journal: &Journal, trial: u64, record: Option<&Record>) -> bool {
    let is_done = record.and_then(Record::outcome) == Some(Outcome::Done);
    !is_done && journal.left(trial, record).is_some()
}

/// The hook that no feeder has called yet for the end of a sweep as it stands, although the last feeder was to do so. That
/// feeder may be alive, and trials may be open.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn uncalled<'a>(
    tree: &Tree,
    (heads, trials): (&[Head], u64),
    waves: impl DoubleEndedIterator<Item = &'a Wave>,
    journal: &Journal,
    record: &dyn Fn(u64) -> Option<&'a Record>,
) -> Result<Option<&'static str>> {
    let has_end = heads.last().is_some_and(|head| head.run.hooks.has_end());
    let was_given = || {
        let last = feeder::kept(waves, journal);
        last.is_some_and(|array| journal.job(array.array).is_some())
    };
    if !has_end || !was_given() {
        return Ok(None);
    }
    let stopped = spent(journal, |trial| Ok(is_left(journal, trial, record(trial))))?;
    let Some((name, _)) = of_end(heads, stopped) else { return Ok(None) };
    let all = (0..trials).filter_map(record);
    let note = note(tree, trials, journal.jobs().count(), all, stopped)?;
    Ok(disk::stamp(&note)?.is_none().then_some(name))
}

/// The hooks of trials that are due, each with the attempt for the end of which it is.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn due(tree: &Tree) -> Result<Vec<(Due, Attempt)>> {
    let mut all = Vec::new();
    for due in due::read(tree)? {
        let (record, _) = records::of_trial(tree, due.trial)?;
        all.extend(due.attempt(tree, &record).cloned().map(|attempt| (due, attempt)));
    }
    Ok(all)
}
