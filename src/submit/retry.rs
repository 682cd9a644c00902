//! What a scheduler may still run: not to be asked for again with `--retry`, nor run anywhere else.

use std::collections::{BTreeSet, HashSet};

use anyhow::Result;

use super::grow::Diff;
use super::wave::Waves;
use crate::fault::Fault;
use crate::host::Vars;
use crate::idset::IdSet;
use crate::site::{SchedulerKind, Site};
use crate::status;
use crate::tree::journal::Journal;
use crate::tree::records::{Outcome, Record};
use crate::tree::{Identity, Tree};

/// What `--retry` is about.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// The trials that ended without success or will not run: none of them is in the scheduler's hands any more.
    pub(super) bad: HashSet<u64>,
    /// Those whose record has a bad end while the scheduler still has their job: it may be ending, or run them again.
    pub(super) busy: BTreeSet<u64>,
}

impl Retry {
    /// What to tell the user of the trials of this plan that are left alone, if there are any.
    pub(super) fn note(&self, diff: &Diff) -> Option<String> {
        let kept = self.busy.iter().filter(|id| diff.has(**id));
        let ids: IdSet = kept.filter_map(|&id| u32::try_from(id).ok()).collect();
        let (trials, verb) = match ids.len() {
            0 => return None,
            1 => (format!("trial {ids}"), "its job is"),
            _ => (format!("trials {ids}"), "their jobs are"),
        };
        Some(format!(
            "{trials} ended without success, but {verb} still in the scheduler's hands: run the same command again later"
        ))
    }
}

/// The trials that are to run again, the scheduler asked.
pub(super) fn without_success(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Retry> {
    let status = status::before_a_plan(tree.clone(), identity.clone(), site, environment, true)?;
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
    let has_failed = |id: &u64| {
        let outcome = status.records.get(id).and_then(Record::outcome);
        outcome.is_some_and(|outcome| outcome != Outcome::Done)
    };
    let open = status.trials().filter(|(_, s)| !s.state.is_final()).map(|(row, _)| row.id);
    Ok(Retry { bad: bad.filter(has_run).collect(), busy: open.filter(has_failed).collect() })
}

/// Refuses a sweep that is held, and one of which a scheduler may still run trials that somebody else would run too: `by`
/// this machine or agents, or another scheduler, as only the last one is asked how a sweep stands.
pub(super) fn check_free(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
    by: SchedulerKind,
) -> Result<()> {
    let journal = Journal::read(tree)?;
    if let Some(user) = journal.on_hold {
        return Err(Fault::request(format!("{} is held by {user}", identity.name))
            .hint(format!(
                "`hpcsweep release {}` lets it go on; then submit it again",
                tree.named()
            ))
            .into());
    }
    let had = journal.site.map(|(scheduler, _)| scheduler);
    let wish = match by {
        SchedulerKind::Local => "run it here".to_owned(),
        same if had.is_none_or(|had| had == same.word()) => return Ok(()),
        other => format!("submit it with `--{}`", other.word()),
    };
    let submitted = Waves::read(tree)?.covered();
    if submitted.is_empty() {
        return Ok(());
    }
    let status = status::before_a_plan(tree.clone(), identity.clone(), site, environment, true)?;
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
        .hint(format!(
            "wait for them (`hpcsweep status {}`), or give the plan another `[sweep] name` to {wish}",
            tree.named()
        ))
        .into())
}
