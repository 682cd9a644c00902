//! Arrays that were to be submitted, or were refused, before the plan was changed: a wave stands for the
//! plan of its day. What no scheduler has and the plan does not ask for any more as it stands there is given
//! up, and its trials go into the next wave.
//!
//! Nothing is written about it. An array without a job is given up when a trial of it asks for something
//! else now, has left the plan, or stands in a later array; so it makes no difference when a submission is
//! killed: the file that commits the next wave is what takes the trials over.

use std::collections::{HashMap, HashSet};

use crate::plan::Resources;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::Diff;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::waves::Array;

/// What became of arrays that are not what the plan asks for now.
#[derive(Debug, Default)]
pub(crate) struct Amended {
    /// Trials whose array was given up.
    pub(crate) due: HashSet<u64>,
    /// Trials whose array is a scheduler's job, with another request than the plan's.
    pub(crate) other: Vec<u64>,
}

/// Gives up the arrays that no scheduler has and that do not match the current plan, and those that were to wait for
/// them; and those that had no place in the queue, whose trials are divided anew. `said`: the note about it.
pub(crate) fn amend(
    waves: &mut Waves,
    target: &str,
    diff: &Diff,
    journal: &Journal,
    said: &mut Vec<String>,
) -> Amended {
    let mut amended = Amended::default();
    let mut given_up = waves.given_up.clone();
    let (places, no_place) = (waves.places(), journal.without_a_place());
    for (wave, array, trials) in waves.arrays() {
        if wave.target != target {
            continue;
        }
        let is_here = |t: &&u64| places.get(t).is_some_and(|(number, _)| *number == array.array);
        let requests = array.requests();
        let is_same = |n: usize, trial: u64| is_same(diff, array, requests.as_deref(), n, trial);
        let mut all = trials.iter().enumerate();
        if journal.job(array.array).is_none() {
            let waits_in_vain =
                array.after.iter().chain(&array.wait).any(|before| given_up.contains(before));
            let stands = all.all(|(n, trial)| is_here(&trial) && is_same(n, *trial));
            let is_divided = no_place.contains(&array.array);
            if stands && !waits_in_vain && !is_divided {
                continue;
            }
            let here: Vec<u64> = trials.iter().filter(is_here).copied().collect();
            if !stands && here.iter().any(|trial| diff.has(*trial)) {
                said.push(format!(
                    "array {}: given up: no scheduler has it, and the plan asks for something else now",
                    array.array
                ));
            }
            amended.due.extend(here);
            given_up.insert(array.array);
            continue;
        }
        let all = trials.iter().enumerate();
        let other = all.filter(|(n, trial)| {
            is_here(trial) && diff.request(**trial).is_some() && !is_same(*n, **trial)
        });
        amended.other.extend(other.map(|(_, trial)| *trial));
    }
    waves.given_up = given_up;
    amended
}

impl Amended {
    /// What to say of trials that the scheduler has and that keep an older request: those without an end, which
    /// are `covered` and not asked for anew.
    pub(crate) fn note(
        &self,
        records: &HashMap<u64, Record>,
        covered: &HashSet<u64>,
    ) -> Option<String> {
        let is_open = |trial: &&u64| {
            covered.contains(trial) && records.get(trial).is_none_or(|r| r.outcome().is_none())
        };
        let open = self.other.iter().filter(is_open).count() as u64;
        let keep = match open {
            0 => return None,
            1 => "was submitted with another request and has not ended: it keeps it, unless it is",
            _ => {
                "were submitted with another request and have not ended: they keep it, unless they are"
            }
        };
        let trials = crate::base::words::count(open, "trial");
        Some(format!("{trials} {keep} cancelled and submitted again with `--retry`"))
    }
}

/// Whether the plan asks for entry `n` of an array what the array asks for it.
fn is_same(
    diff: &Diff,
    array: &Array,
    requests: Option<&[Resources]>,
    n: usize,
    trial: u64,
) -> bool {
    let own = requests.and_then(|links| links.get(n / array.count as usize));
    own.is_some_and(|own| diff.is_asked(trial, own))
}
