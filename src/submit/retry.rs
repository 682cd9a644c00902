//! What a scheduler may still run: not to be asked for again with `--retry`, nor run anywhere else.

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
    let status = status::of_all_open_or_bad(tree.clone(), identity.clone(), site, environment)?;
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

/// Trials that a scheduler may still run must not be run here too.
pub(super) fn refuse_if_queued(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<()> {
    let submitted = Waves::read(tree)?.covered();
    if submitted.is_empty() {
        return Ok(());
    }
    let status = status::of_all_open_or_bad(tree.clone(), identity.clone(), site, environment)?;
    let open = status
        .trials()
        .filter(|(row, standing)| submitted.contains(&row.id) && !standing.state.is_final())
        .count() as u64;
    if open == 0 {
        return Ok(());
    }
    let verb = if open == 1 { "is" } else { "are" };
    let sentence = format!(
        "{} of this sweep {verb} in a scheduler's hands",
        crate::words::count(open, "trial")
    );
    Err(Fault::request(sentence)
        .at(format!("{}\nseen by: {}", tree.dir().display(), status.witness))
        .hint("wait for them (`hpcsweep status`), or give the plan another `[sweep] name` to run it here")
        .into())
}
