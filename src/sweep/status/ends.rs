//! Ends of trials that another file has recorded, and that are missing in the trials' own records. Otherwise a record
//! that was cut off at the end of a line looks as if its worker had been killed then.

use anyhow::Result;

use crate::sweep::tree::Tree;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Attempt, ByTrial, Outcome, Record};
use crate::sweep::tree::table::Row;

/// Adds the records that have lost an end: of trials that an executor has seen end, and of those that were done when the
/// next of their chain began.
///
/// # Errors
/// When a record cannot be read.
pub(super) fn missing(
    tree: &Tree,
    rows: &[Row],
    records: &ByTrial,
    journal: &Journal,
    damage: &mut Damage,
) -> Result<()> {
    let ended = journal.ended.iter().map(|trial| (u64::from(trial), has_ended as Test));
    let behind = rows.iter().filter(|row| records.get(&row.id).is_some_and(began_behind));
    let before = behind.filter_map(|row| Some((row.after?, is_done as Test)));
    for (trial, test) in ended.chain(before) {
        if records.get(&trial).is_some_and(test) {
            continue;
        }
        // It may have ended since it was read.
        let (record, next) = records::of_trial(tree, trial)?;
        if !test(&record) {
            damage.add_short(records::file(trial, (next - 1).max(1)));
        }
    }
    Ok(())
}

type Test = fn(&Record) -> bool;

fn has_ended(record: &Record) -> bool {
    record.skipped.is_some() || record.attempts.iter().any(|attempt| attempt.outcome().is_some())
}

fn is_done(record: &Record) -> bool {
    let done = |attempt: &Attempt| attempt.outcome() == Some(Outcome::Done);
    record.attempts.iter().any(done)
}

/// Whether a run of the trial has seen the one before it done.
fn began_behind(record: &Record) -> bool {
    record.attempts.iter().any(|attempt| attempt.start.behind)
}
