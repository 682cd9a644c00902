//! Jobs that may wait for ever: PBS lets go what waits for a job when that ends, and never what is registered between
//! then and the job's place in the history.

use std::collections::HashMap;

use crate::scheduler::Suspect;
use crate::tree::journal::Journal;
use crate::tree::records::ByTrial;
use crate::tree::waves::Array;

/// The arrays with a job of which no trial has begun, and that wait for an array all of whose trials have ended.
/// `arrays` are all arrays of a sweep, each with its trials.
pub(crate) fn suspects<'a>(
    arrays: impl Iterator<Item = (&'a Array, &'a [u64])>,
    journal: &Journal,
    records: &ByTrial,
) -> Vec<Suspect> {
    let all: HashMap<u32, (&Array, &[u64])> = arrays.map(|(a, t)| (a.array, (a, t))).collect();
    let is_over = |array: u32| {
        all.get(&array).is_some_and(|(_, trials)| {
            trials.iter().all(|trial| {
                let record = records.get(trial);
                record.is_some_and(|r| r.outcome().is_some() || r.skipped.is_some())
                    || journal.is_cancelled(array, *trial)
            })
        })
    };
    let mut suspects = Vec::new();
    for (array, trials) in all.values() {
        let Some(job) = journal.job(array.array) else { continue };
        let has_begun = |trial: &u64| {
            records.get(trial).is_some_and(|r| r.attempts.iter().any(|a| a.is_of_job(job)))
        };
        let before = array.after.iter().chain(&array.wait);
        let over = before.filter(|before| is_over(**before));
        let waits_for: Vec<String> =
            over.filter_map(|before| journal.job(*before)).map(str::to_owned).collect();
        if !waits_for.is_empty() && !trials.iter().any(has_begun) {
            suspects.push(Suspect { array: array.array, job: job.to_owned(), waits_for });
        }
    }
    suspects.sort_by_key(|suspect| suspect.array);
    suspects
}
