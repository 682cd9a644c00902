//! Jobs that may wait for ever: PBS lets go what waits for a job when that ends, and never what is registered between
//! then and the job's place in the history.

use std::collections::HashMap;

use crate::cluster::scheduler::Suspect;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{ByTrial, Record};
use crate::sweep::tree::waves::Array;

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
            // Of a trial that is only known to be done, the job is not.
            let is_of_it = |r: &Record| r.attempts.iter().any(|attempt| attempt.is_of_job(job));
            records.whole(*trial).map_or_else(|| records.contains_key(trial), is_of_it)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{OnFailure, Resources};
    use crate::sweep::tree::journal::Standing;

    /// Array 1 of trial 0, and array 2 of trial 1, which waits for it.
    fn suspected(records: &ByTrial) -> Vec<u32> {
        let array = |array: u32, after: Option<u32>| Array {
            array,
            block: 0,
            link: 0,
            first: 0,
            count: 1,
            links: 1,
            single: false,
            after,
            wait: Vec::new(),
            on_failure: OnFailure::Stop,
            resources: Resources::default(),
            walltimes_s: Vec::new(),
            pilot: None,
            feeder: None,
        };
        let job = |number: u32| {
            let (id, token) = (format!("{number}0"), String::new());
            (number, Standing::Job { id, token, time: 0.0 })
        };
        let mut journal = Journal::default();
        journal.arrays.extend([job(1), job(2)]);
        let (first, second) = (array(1, None), array(2, Some(1)));
        let arrays = [(&first, &[0_u64][..]), (&second, &[1][..])].into_iter();
        suspects(arrays, &journal, records).into_iter().map(|suspect| suspect.array).collect()
    }

    #[test]
    fn an_array_of_which_a_trial_is_known_to_be_done_has_begun() {
        let mut records = ByTrial::default();
        records.was_at_once(0, 0);
        assert_eq!(suspected(&records), [2]);
        records.was_at_once(1, 1);
        assert_eq!(suspected(&records), [0; 0]);
    }
}
