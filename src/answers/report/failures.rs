//! Trials without success by cause, as `status` groups them.

use std::collections::HashMap;

use serde::Serialize;

use crate::base::cause::group;
use crate::base::words::short;
use crate::sweep::standing::State;
use crate::sweep::status::Status;

/// The most groups of a page.
const MOST: usize = 40;

/// The longest reason of a page.
const LONGEST: usize = 300;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Failure {
    /// One word of docs/causes.md, or the state.
    pub(super) cause: String,
    /// Why the first of them ended so, cut to [`LONGEST`] characters.
    pub(super) words: String,
    pub(super) count: usize,
    /// The numbers of all of them: `trials 3, 7-9`.
    trials: String,
    /// The command that shows what the first of them printed.
    command: String,
}

/// The groups, the largest first.
pub(super) fn list(status: &Status) -> Vec<Failure> {
    let bad = || status.trials().filter(|(_, standing)| standing.state.is_bad());
    let causes: HashMap<u64, String> = bad()
        .map(|(row, standing)| {
            let cause = standing.cause.map(|cause| cause.word().to_owned());
            (row.id, cause.unwrap_or_else(|| standing.state.word()))
        })
        .collect();
    let words =
        |(row, standing): (&crate::sweep::tree::table::Row, &crate::sweep::standing::Standing)| {
            // Why the chain of a skipped trial stopped is said of the trial at which it did.
            let reason = match standing.state {
                State::Skipped => "the chain stopped before it".to_owned(),
                _ => standing.why(),
            };
            (row.id, reason)
        };
    let named = status.tree.named();
    group::of(bad().map(words))
        .into_iter()
        .take(MOST)
        .map(|group| Failure {
            cause: causes.get(&group.trials[0]).cloned().unwrap_or_default(),
            words: short(&group.words, LONGEST),
            count: group.trials.len(),
            trials: group::list(&group.trials),
            command: format!("hpcsweep logs {} {named}", group.trials[0]),
        })
        .collect()
}
