//! Trials that a scheduler may still run: `--retry` does not submit them again, and they run nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Result;

use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::idset::IdSet;
use crate::cluster::scheduler::job::array_of;
use crate::plan::site::{SchedulerKind, Site};
use crate::submit::again::Again;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::Diff;
use crate::submit::todo::Planned;
use crate::sweep::status::{self, Status};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{Outcome, Record, Told};
use crate::sweep::tree::waves::Ended;
use crate::sweep::tree::{Identity, Tree, table};

/// What `--retry` is about.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// The trials that ended without success or will not run: none of them is queued or running any more.
    pub(super) bad: HashSet<u64>,
    /// Those whose record has a bad end while the scheduler still has their job: it may be ending, or run them again.
    pub(super) busy: BTreeSet<u64>,
    /// Why the last attempts of trials ended, where their records do not say so.
    ended: Vec<Ended>,
}

impl Retry {
    /// Leaves the trials alone that are not to run again.
    pub(super) fn of(mut self, again: &Again) -> Self {
        self.bad.retain(|trial| again.has(*trial));
        self
    }

    /// What is to be kept of the ends of these trials, which are submitted again.
    pub(super) fn ended(&self, trials: &[u64]) -> Vec<Ended> {
        let trials = IdSet::of_trials(trials.iter().copied());
        let of = |ended: &Ended| {
            let own = IdSet::of_numbers(&ended.trials).unwrap_or_default();
            let own = own.iter().map(u64::from).filter(|trial| trials.has(*trial));
            Ended { trials: IdSet::of_trials(own).to_string(), ..ended.clone() }
        };
        self.ended.iter().map(of).filter(|ended| !ended.trials.is_empty()).collect()
    }

    /// The note about the trials of this plan that were to run again and are left alone, if there are any.
    pub(super) fn note(&self, diff: &Diff, again: &Again) -> Option<String> {
        let kept = self.busy.iter().filter(|id| diff.has(**id) && again.has(**id));
        let ids = IdSet::of_trials(kept.copied());
        let (trials, verb) = match ids.len() {
            0 => return None,
            1 => (format!("trial {ids}"), "its job is"),
            _ => (format!("trials {ids}"), "their jobs are"),
        };
        Some(format!(
            "{trials} ended without success, but {verb} still queued or running: run the same command again later"
        ))
    }
}

/// The trials that `--retry` is about, the scheduler asked.
pub(super) fn without_success(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Retry> {
    of_status(&sure(tree, identity, site, environment)?)
}

/// The same of a status for which the scheduler was asked.
pub(super) fn of_status(status: &Status) -> Result<Retry> {
    let status = checked(status)?;
    // A trial whose array has no answer yet is on its way: its wave is completed anyway.
    let journal = Journal::read(&status.tree)?;
    let places = Waves::of_here(&status.tree, &journal)?.places();
    let has_run = |trial: &u64| places.get(trial).is_none_or(|(a, _)| journal.job(*a).is_some());
    let bad = status.trials().filter(|(_, s)| s.state.is_bad()).map(|(row, _)| row.id);
    let has_failed = |id: &u64| status.records.get(id).is_some_and(has_ended_badly);
    let open = status.trials().filter(|(_, s)| !s.state.is_final()).map(|(row, _)| row.id);
    Ok(Retry {
        bad: bad.filter(has_run).collect(),
        busy: open.filter(has_failed).collect(),
        ended: ended(status),
    })
}

/// Why the last attempts of trials without success ended, where their records do not say so.
fn ended(status: &Status) -> Vec<Ended> {
    let mut groups: BTreeMap<(String, Cause, String), Vec<u64>> = BTreeMap::new();
    for (row, standing) in status.trials().filter(|(_, standing)| standing.state.is_bad()) {
        let last = status.records.get(&row.id).and_then(Record::decisive);
        let Some((cause, last)) = standing.cause.zip(last) else { continue };
        let Some(job) = last.start.job.as_deref().filter(|_| last.bundle.is_none()) else {
            continue;
        };
        let reason = if last.why() == standing.reason { "" } else { &*standing.reason };
        if last.cause() != Some(cause) {
            let key = (array_of(job), cause, reason.to_owned());
            groups.entry(key).or_default().push(row.id);
        }
    }
    let one = |((job, cause, reason), trials): (_, Vec<u64>)| {
        let told = Told { cause, reason };
        Ended { trials: IdSet::of_trials(trials).to_string(), job, told }
    };
    groups.into_iter().map(one).collect()
}

/// How the trials of a sweep stand, the scheduler asked.
///
/// # Errors
/// When the tree cannot be read, or the scheduler does not answer.
pub(crate) fn sure(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Status> {
    let status = status::before_a_plan(tree.clone(), identity.clone(), site, environment, true)?;
    checked(&status)?;
    Ok(status)
}

/// Refuses a status without the scheduler's answer.
fn checked(status: &Status) -> Result<&Status> {
    match status.is_sure() {
        true => Ok(status),
        false => Err(Fault::scheduler("cannot tell which trials are still queued or running")
            .at(&status.witness)
            .hint("nothing was submitted; run the same command again when the scheduler answers")
            .into()),
    }
}

/// Data about a sweep before more of it is submitted.
pub(super) struct Known<'a> {
    /// All that was asked for so far.
    pub(super) waves: &'a Waves,
    /// What came of it.
    pub(super) journal: &'a Journal,
    /// Trials that are not asked for again.
    pub(super) covered: &'a HashSet<u64>,
    pub(super) records: &'a HashMap<u64, Record>,
}

impl Known<'_> {
    /// Whether something is to be submitted behind a trial that ended without success and whose job may have been
    /// requeued: only its scheduler knows.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(super) fn is_behind_a_failure(&self, planned: &Planned<'_>) -> Result<bool> {
        let diff = planned.diff;
        if diff.known == 0 || !self.records.values().any(has_ended_badly) {
            return Ok(false);
        }
        let places = self.waves.places();
        let has_job =
            |id: u64| places.get(&id).is_some_and(|(a, _)| self.journal.job(*a).is_some());
        let may_run = |id: u64| self.records.get(&id).is_some_and(has_ended_badly) && has_job(id);
        let is_left = |id: u64| diff.has(id) && !self.covered.contains(&id);
        if planned.added.iter().filter_map(|todo| todo.after).any(may_run) {
            return Ok(true);
        }
        let mut is_behind = false;
        table::each(planned.tree, |row| {
            is_behind |= is_left(row.id) && row.after.is_some_and(may_run);
        })?;
        Ok(is_behind)
    }
}

fn has_ended_badly(record: &Record) -> bool {
    record.outcome().is_some_and(|outcome| outcome != Outcome::Done)
}

/// Refuses a sweep that is held. Also refuses a sweep of which a scheduler may still run trials that `by` would run
/// too: this machine or agents, or another scheduler, because only the last one is asked how a sweep stands.
pub(super) fn check_free(
    tree: &Tree,
    identity: &Identity,
    journal: &Journal,
    site: &Site,
    environment: &Vars,
    by: SchedulerKind,
) -> Result<()> {
    if let Some(user) = &journal.on_hold {
        return Err(Fault::request(format!("{} is held by {user}", identity.name))
            .hint(format!("`hpcsweep release {}` continues it; then submit it again", tree.named()))
            .into());
    }
    let had = journal.site.as_ref().map(|site| site.scheduler);
    let wish = match by {
        SchedulerKind::Local => "run it here".to_owned(),
        same if had.is_none_or(|had| had == same) => return Ok(()),
        other => format!("submit it with `--{}`", other.word()),
    };
    let submitted = Waves::of_here(tree, journal)?.covered();
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
        "{} of this sweep {verb} queued or running",
        crate::base::words::count(open, "trial")
    );
    Err(Fault::request(sentence)
        .at(format!("{}\nseen by: {}", tree.dir().display(), status.witness))
        .hint(format!(
            "wait for them (`hpcsweep status {}`), or give the plan another `[sweep] name` to {wish}",
            tree.named()
        ))
        .into())
}
