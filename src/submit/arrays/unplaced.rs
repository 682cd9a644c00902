//! Arrays that were to be submitted and have no job: what they ask for holds as long as the plan is the same.

use std::collections::{BTreeSet, HashMap};

use crate::plan::Resources;
use crate::submit::again::Again;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::Diff;
use crate::sweep::tree::journal::{Journal, Standing};
use crate::sweep::tree::waves::Array;

/// The trials of arrays that the scheduler has refused, or was not asked for, with what these arrays ask for: a retry, or
/// `[retry]`, may have asked for something else than the plan does.
pub(crate) fn trials(waves: &Waves, target: &str, diff: &Diff, journal: &Journal) -> Again {
    let (mut trials, mut requests) = (BTreeSet::new(), HashMap::new());
    let places = waves.places();
    let is_refused = |array: &Array| {
        matches!(journal.arrays.get(&array.array), None | Some(Standing::Refused { .. }))
    };
    let arrays = waves.arrays().filter(|(wave, array, _)| {
        wave.target == target && array.is_of_trials() && is_refused(array)
    });
    for (_, array, all) in arrays {
        let Some(links) = array.requests() else { continue };
        let here = |trial: &u64| places.get(trial).is_some_and(|(own, _)| *own == array.array);
        for (n, &trial) in all.iter().enumerate().filter(|(_, trial)| here(trial)) {
            let own = links.get(n / array.count.max(1) as usize);
            let is_asked = |own: &&Resources| diff.request(trial).is_some_and(|now| **now != **own);
            trials.insert(trial);
            requests.extend(own.filter(is_asked).map(|own| (trial, own.clone())));
        }
    }
    Again::with_requests(trials, requests)
}
