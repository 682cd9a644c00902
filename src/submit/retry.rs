//! `--retry` under a scheduler: which trials may be asked for again.

use std::collections::HashSet;

use anyhow::Result;

use super::wave::Waves;
use crate::fault::Fault;
use crate::host::Vars;
use crate::site::Site;
use crate::status;
use crate::tree::journal::Journal;
use crate::tree::{Identity, Tree};

/// The trials that ended without success or will not run, the scheduler asked: none of them is in its
/// hands any more.
pub(super) fn without_success(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<HashSet<u64>> {
    let status = status::of(tree.clone(), identity.clone(), site, environment, true)?;
    if !status.is_sure() {
        return Err(Fault::scheduler(
            "cannot tell which trials are still in the scheduler's hands",
        )
        .at(status.witness)
        .hint("`--retry` needs the scheduler's answer; nothing was submitted")
        .into());
    }
    // A trial whose array has no answer yet is on its way: its wave is completed anyway.
    let journal = Journal::read(tree)?;
    let places = Waves::read(tree)?.places();
    let has_run = |trial: &u64| places.get(trial).is_none_or(|(a, _)| journal.job(*a).is_some());
    let bad = status.trials().filter(|(_, s)| s.state.is_bad()).map(|(row, _)| row.id);
    Ok(bad.filter(has_run).collect())
}
