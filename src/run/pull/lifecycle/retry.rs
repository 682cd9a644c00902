//! `[retry]` under agents: the agent that runs a trial decides whether it runs again, and records that with the reason. What
//! the decision changes goes with the trial's unit ([`Piece`]), so it holds for the agent that takes the unit next.
//!
//! [`Piece`]: crate::sweep::tree::ledger::Piece

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::base::cause::{Cause, Why};
use crate::base::host::clock;
use crate::base::words;
use crate::plan::{Resources, Retry};
use crate::run::pull::lifecycle::{Lifecycle, News};
use crate::run::pull::membership::{Membership, Unit};
use crate::run::pull::places::{AttemptId, Exited};
use crate::sweep::attempt::repeat::{self, Case, Ground, Ruling};
use crate::sweep::attempt::verdict::{Next, Verdict};
use crate::sweep::status::progress::{self, Progress};
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Attempt, Decided, Event, Outcome, Record};
use crate::sweep::tree::requests::{Asker, Requests};
use crate::sweep::tree::table::Row;
use crate::sweep::tree::{Tree, bundle, table};

impl<T: FnMut(News<'_>)> Lifecycle<T> {
    /// Decides about the trial of a unit whose attempt has ended without success, where the plan says so; `has_logged`:
    /// whether it has written metrics.
    pub(super) fn rule(
        &mut self,
        unit: &mut Unit,
        run: AttemptId,
        verdict: &mut Verdict,
        (ended, has_logged): (&Exited, bool),
    ) -> Result<()> {
        let Some(retry) = self.membership.retry().cloned() else { return Ok(()) };
        let (code, signal) = (ended.exit.code, ended.exit.signal);
        let Some(own) = verdict.cause(Some(code), signal) else { return Ok(()) };
        let cause = match verdict.next {
            Next::Over => own,
            // Only a job has been asked to stop by a scheduler.
            Next::Elsewhere if own == Cause::Stopped && self.membership.place().1.is_some() => {
                if self.is_cancelled() {
                    return Ok(());
                }
                Cause::Preempted
            }
            _ => return Ok(()),
        };
        let ruling = match self.is_spent(&retry) {
            true => repeat::spent(&retry),
            false => self.decide_by(&retry, unit, (run, has_logged), cause, code)?,
        };
        let AttemptId { trial, attempt, seq, .. } = run;
        let mut decided = Decided { trial, attempt, seq, time: clock::now(), ..Decided::default() };
        match ruling {
            Ruling::Left(_) if cause == Cause::Cancelled => return Ok(()),
            Ruling::Left(why) => {
                if cause == Cause::Preempted {
                    // It does not go on.
                    let words = verdict.why.take().map(|why| why.words).unwrap_or_default();
                    (verdict.state, verdict.why) = (Outcome::Failed, Some(Why::new(cause, words)));
                }
                verdict.next = Next::Over;
                decided.why = why;
            }
            Ruling::Again { request, counts, alone, why } => {
                decided.grown = request.walltime_s != self.asked(unit)?.walltime_s;
                (decided.again, decided.counts, decided.alone) = (true, counts, alone);
                decided.why = why;
                unit.tries += 1;
                unit.spent = unit.tries;
                unit.repeats += u32::from(counts);
                unit.grown += u32::from(decided.grown);
                unit.alone |= alone;
                if verdict.next == Next::Over {
                    verdict.next = Next::Repeated;
                }
            }
        }
        // Before the end of the attempt: if the agent is killed in between, the decision stands.
        Ok(self.membership.bundle.push(&Event::Decided(decided))?)
    }

    /// Whether a person has cancelled the sweep. The ledger says so before the scheduler is asked to end the pilots; if a later
    /// submission has let the sweep go on, the journal names their array.
    fn is_cancelled(&mut self) -> bool {
        // What cannot be read now is no sign of a person.
        let _ = self.membership.look();
        let is_taken_back = |job: &str| {
            Journal::read(&self.membership.tree).is_ok_and(|journal| journal.has_taken_back(job))
        };
        self.membership.ledger.halted.is_some()
            || self.membership.place().1.is_some_and(is_taken_back)
    }

    /// Whether the sweep's budget is used up. The attempt that has ended now has no end in the bundle yet: it counts with
    /// those that run. What cannot be read now does not stop the trial.
    fn is_spent(&mut self, retry: &Retry) -> bool {
        let Some(budget) = retry.budget else { return false };
        let used = self.spent.core_seconds(&mut self.membership);
        used.is_ok_and(|used| used / 3600.0 >= budget)
    }

    fn decide_by(
        &mut self,
        retry: &Retry,
        unit: &Unit,
        (run, has_logged): (AttemptId, bool),
        cause: Cause,
        exit_code: i32,
    ) -> Result<Ruling> {
        let asked = self.asked(unit)?;
        let repeats = unit.repeats + unit.faults;
        let (mut came_to, mut has_advanced) = ([None, None], false);
        // Read only where it matters: the bundles of all agents are.
        if cause == Cause::Walltime || (repeats > 0 && has_logged) {
            // What cannot be read now does not count against the trial.
            (came_to, has_advanced) = self.progress(unit, run).unwrap_or(([None, None], true));
        }
        let has_others = self.membership.slots > 1 && !unit.alone;
        let ground = Ground::Slots { has_others, is_of_many: true };
        let (host, exit_code) = (self.membership.place().0, Some(exit_code));
        let asked = &asked;
        let case = Case { cause, exit_code, asked, host, repeats, came_to, has_advanced, ground };
        Ok(repeat::decide(&case, retry))
    }

    /// How far the attempt came, and the one before it, in words; and whether it came further or saved something.
    fn progress(&mut self, unit: &Unit, run: AttemptId) -> Result<([Option<String>; 2], bool)> {
        let Some(row) = unit.rows.front() else { return Ok(([None, None], false)) };
        self.membership.flush()?;
        let Membership { tree, name, .. } = &self.membership;
        let (record, _) = records::of_trial(tree, run.trial)?;
        let is_this = |attempt: &&Attempt| {
            let place = attempt.bundle.as_ref();
            attempt.start.attempt == run.attempt && place.is_some_and(|place| place.agent == *name)
        };
        let at = record.attempts.iter().rposition(|attempt| is_this(&attempt));
        let Some(at) = at else { return Ok(([None, None], true)) };
        let last = &record.attempts[at];
        let of = |attempt: &Attempt| Progress::of(tree, attempt, &row.params);
        let now = of(last)?;
        let before = at.checked_sub(1).map(|at| of(&record.attempts[at])).transpose()?.flatten();
        let has_advanced = progress::has_come_further(last, now.as_ref(), before.as_ref())
            || progress::has_checkpoint(tree, last);
        let words = |progress: Option<Progress>| progress.map(|progress| progress.words());
        Ok(([words(now), words(before)], has_advanced))
    }

    /// What the next trial of a unit asks for; see [`Lifecycle::request`].
    fn asked(&self, unit: &Unit) -> Result<Resources> {
        let Some(row) = unit.rows.front() else { return Ok(Resources::default()) };
        Ok(self.request(row, unit.grown)?.into_owned())
    }

    /// What a trial asks for now: by the plan, with what `[retry]` has added so many `times`, and the memory that others have
    /// shown to need.
    ///
    /// # Errors
    /// When the trial is in no table.
    pub(in crate::run::pull) fn request<'r>(
        &'r self,
        row: &'r Row,
        times: u32,
    ) -> Result<Cow<'r, Resources>> {
        let mut request = Cow::Borrowed(self.unlearnt(row)?);
        if let Some(needed) = self.learnt_mib(row) {
            request.to_mut().memory_mib = Some(needed);
        }
        if times == 0 {
            return Ok(request);
        }
        if let Some(growth) = self.membership.retry().and_then(|retry| retry.timeout) {
            let grown = request.walltime_s.map(|before| growth.times(before, times));
            request.to_mut().walltime_s = grown;
        }
        Ok(request)
    }

    /// What a trial asks for where nothing was learnt from others.
    fn unlearnt<'r>(&'r self, row: &'r Row) -> Result<&'r Resources> {
        match self.membership.request_of(row.id) {
            Some(request) => Ok(request),
            None => Ok(self.membership.head_of(row.id)?.asks(row)),
        }
    }

    /// The memory that a trial needs by what others have used, MiB.
    fn learnt_mib(&self, row: &Row) -> Option<u64> {
        self.needs.of(self.membership.learn_of(row.id)?, &row.params)
    }

    /// The memory that a trial would ask for if it had not been learnt, MiB; 0 where it was not, or is the same.
    ///
    /// # Errors
    /// When the trial is in no table.
    pub(in crate::run::pull) fn unlearnt_mib(&self, row: &Row) -> Result<u64> {
        let first = self.unlearnt(row)?.memory_mib;
        let is_learnt = self.learnt_mib(row).is_some_and(|learnt| Some(learnt) != first);
        Ok(first.filter(|_| is_learnt).unwrap_or(0))
    }

    /// Whether the next trial of a unit, whose walltime has grown, has the time for it here. If no allocation like this
    /// one is long enough, half of one must be left: the trial is cut off then, and continues in the next.
    pub(super) fn has_time_for(&self, unit: &Unit) -> Result<bool> {
        let Some(until) = self.until() else { return Ok(true) };
        let Some(asked) = self.asked(unit)?.walltime_s else { return Ok(true) };
        let left = until.saturating_duration_since(Instant::now());
        let (asked, usable) = (Duration::from_secs(asked), self.usable());
        Ok(left >= if asked <= usable { asked } else { usable / 2 })
    }

    /// Whether a trial whose agent was lost has been repeated as often as the plan allows.
    pub(super) fn is_lost_too_often(&self, unit: &Unit) -> bool {
        let most = self.membership.retry().map(|retry| retry.max);
        unit.faults > 0 && most.is_some_and(|most| unit.repeats + unit.faults > most)
    }

    /// Records that a trial whose agents were lost does not run again.
    pub(super) fn say_lost(&mut self, unit: &Unit, attempt: u32) -> Result<()> {
        if self.membership.retry().is_none() {
            return Ok(());
        }
        let Some(trial) = unit.rows.front().map(|row| row.id) else { return Ok(()) };
        let times = words::times(unit.repeats + unit.faults - 1);
        let why = format!("{}: it has run again {times}", Cause::WorkerLost.word());
        let (time, seq) = (clock::now(), self.membership.ledger.seq);
        let decided = Decided { trial, attempt, time, seq, why, ..Decided::default() };
        Ok(self.membership.bundle.push(&Event::Decided(decided))?)
    }
}

/// What the attempts of a sweep have used, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// By the records of workers, core-seconds; nothing is added to them while agents have the sweep.
    of_workers: Option<f64>,
    /// By the bundle of each agent.
    of_agents: HashMap<String, OfAgent>,
    /// The cores that each trial asks for by the table.
    cores: Vec<u64>,
}

/// What the attempts of an agent have used.
#[derive(Debug, Default)]
struct OfAgent {
    /// Bytes of its bundle that were read.
    size: u64,
    /// Core-seconds of the attempts that have ended.
    ended: f64,
    /// The others, by trial and attempt.
    open: HashMap<(u64, u32), Running>,
}

/// An attempt that has recorded no end.
#[derive(Debug)]
struct Running {
    /// When it began, unix seconds.
    since: f64,
    cores: u64,
}

impl Spent {
    /// Core-seconds of all attempts that have ended or run.
    fn core_seconds(&mut self, membership: &mut Membership) -> Result<f64> {
        membership.flush()?;
        let of_workers = match self.of_workers {
            Some(known) => known,
            None => *self.of_workers.insert(of_workers(&membership.tree)?),
        };
        let (mut used, now) = (of_workers, clock::now());
        for agent in bundle::agents(&membership.tree)? {
            let mut own = self.of_agents.remove(&agent).unwrap_or_default();
            self.follow(membership, &agent, &mut own)?;
            used += own.ended;
            // What an agent ran that is gone has ended, nobody knows when.
            if membership.ledger.living().any(|(name, _)| *name == agent) {
                let until_now = |run: &Running| (now - run.since).max(0.0) * run.cores as f64;
                used += own.open.values().map(until_now).sum::<f64>();
            }
            self.of_agents.insert(agent, own);
        }
        Ok(used)
    }

    /// Reads what an agent has written since.
    fn follow(&mut self, membership: &Membership, agent: &str, own: &mut OfAgent) -> Result<()> {
        let (lines, size) = bundle::deeds(&membership.tree, agent, own.size)?;
        for (_, line) in lines {
            match line {
                Event::Start(start) => {
                    let cores = match &start.resources {
                        Some(given) => given.cores(),
                        None => self.cores_of(membership, start.trial)?,
                    };
                    let run = Running { since: start.time, cores };
                    own.open.insert((start.trial, start.attempt), run);
                }
                Event::End(end) => {
                    if let Some(run) = own.open.remove(&(end.trial, end.attempt)) {
                        own.ended += end.duration_s * run.cores as f64;
                    }
                }
                _ => {}
            }
        }
        own.size = size;
        Ok(())
    }

    fn cores_of(&mut self, membership: &Membership, trial: u64) -> Result<u64> {
        if trial >= self.cores.len() as u64 {
            let cores = |row: Row| membership.head_of(row.id).map(|head| head.asks(&row).cores());
            let rows = table::rows(&membership.tree)?;
            self.cores = rows.into_iter().map(cores).collect::<Result<_>>()?;
        }
        Ok(self.cores.get(trial as usize).copied().unwrap_or(1))
    }
}

/// The core-seconds that the records of workers have.
fn of_workers(tree: &Tree) -> Result<f64> {
    let all = records::of_workers(tree, &mut Damage::default())?;
    if all.is_empty() {
        return Ok(0.0);
    }
    let (rows, requests) = (table::rows(tree)?, Requests::of(tree)?);
    let of = |(trial, record): (u64, Record)| {
        let asker = table::row_of(&rows, trial).map(Asker::from);
        asker.map_or(0.0, |asker| requests.core_seconds(asker, &record, None))
    };
    Ok(all.into_iter().map(of).sum())
}
