//! The attempts of a unit that an agent holds: whether its next trial may begin, how the end of an attempt is
//! recorded, and what follows from it for the rest of the chain.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::base::cause::{Cause, Why};
use crate::base::fault::{self, Fault, Kind};
use crate::base::host::{age, clock};
use crate::plan::OnFailure;
use crate::run::pull::lifecycle::leaving::Leaving;
use crate::run::pull::lifecycle::{Claim, Later, Lifecycle, News};
use crate::run::pull::membership::Unit;
use crate::run::pull::places::{AttemptId, Exited, Role};
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::verdict::{MAX_CUTS, MAX_FAULTS, Next, Verdict};
use crate::sweep::tree::deck;
use crate::sweep::tree::due::Due;
use crate::sweep::tree::ledger::Entry;
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::records::{Break, End, Event, Outcome};

/// The longest pause before a trial is tried again, seconds.
const LONGEST_BACKOFF_S: f64 = 60.0;

/// How often the agent checks, once a second, for an end that another agent has written: NFS shows it late.
const MOST_LOOKS: u32 = 60;

/// Whether the next trial of a unit may run.
pub(crate) enum Opened {
    /// It may, as this attempt.
    Run(Unit, u32),
    /// It is not to run; what follows from that was done.
    Passed,
    NotYet,
}

impl<T: FnMut(News<'_>)> Lifecycle<T> {
    /// The next unit for one of `free` slots: one that it holds or can take, else one whose pause is over.
    pub(crate) fn next_unit(&mut self, free: u64) -> Result<Option<Unit>> {
        let left = self.time.until.map(|end| end.saturating_duration_since(clock::awake()));
        if !self.is_full && !self.later.iter().any(|later| later.for_devices) {
            self.membership.fill(free, left.map(|left| left.as_secs_f64()))?;
        }
        if let Some(unit) = self.membership.next_unit()? {
            return Ok(Some(unit));
        }
        let now = Instant::now();
        let at = self.later.iter().position(|later| later.at <= now);
        Ok(at.map(|at| self.later.remove(at).unit))
    }

    /// Looks whether the next trial of a unit may run.
    pub(crate) fn open(&mut self, unit: Unit) -> Result<Opened> {
        let Some(row) = unit.rows.front() else { return Ok(Opened::Passed) };
        let trial = row.id;
        let (before, is_dropped) = match self.by_terms(&unit, trial) {
            Ok(terms) => terms,
            Err(error) => {
                // It waits for the tree.
                self.membership.put_first(unit);
                return Err(error);
            }
        };
        // If the trial was won before its unit was enqueued, an earlier run won it, and the trial was
        // submitted again.
        let dealt = deck::of_unit(&self.membership.decks, unit.number).map_or(0, |deck| deck.seq);
        if self.membership.ledger.is_won_since(trial, dealt) {
            self.go_on(unit, None)?;
            return Ok(Opened::Passed);
        }
        if let Some(before) = before {
            match self.membership.outcome_before(before).ok().flatten() {
                // Not ended, or not to be read now.
                None => {
                    let at = Instant::now() + Duration::from_secs(2);
                    self.later.push(Later::at(at, unit));
                    return Ok(Opened::NotYet);
                }
                Some(Outcome::Done) => {}
                Some(_) if self.membership.on_failure() == OnFailure::Continue => {}
                Some(outcome) => {
                    self.skip(&unit, &Break::Ended(outcome).reason(before))?;
                    return Ok(Opened::Passed);
                }
            }
        }
        // The plan dropped it while an agent held the unit that is dead by now.
        if is_dropped {
            return self.pass_over(unit, trial);
        }
        let begun = unit.tries + unit.faults;
        if unit.faults >= MAX_FAULTS || self.is_lost_too_often(&unit) {
            self.say_lost(&unit, begun)?;
            let times = crate::base::words::count(u64::from(unit.faults), "time");
            let reason = format!("its agent or machine was lost {times}");
            let verdict = Verdict::failed(Why::new(Cause::WorkerLost, reason));
            self.record_not_started(unit, begun, verdict)?;
            return Ok(Opened::Passed);
        }
        if unit.grown > 0 && !self.has_time_for(&unit)? {
            self.membership.leave_to_others(&unit);
            return Ok(Opened::Passed);
        }
        Ok(Opened::Run(unit, begun + 1))
    }

    /// The trial of another unit behind which the next trial of a unit runs, and whether the plan has dropped it.
    fn by_terms(&mut self, unit: &Unit, trial: u64) -> Result<(Option<u64>, bool)> {
        Ok((self.membership.before(unit)?, self.membership.is_dropped(trial)?))
    }

    /// Records that a trial does not run because the plan no longer has it. The lock keeps submissions away meanwhile: one that
    /// brings the trial back has either done so already, or finds the record. It enqueues the trial again when nothing of its chain
    /// is in hand any more: so what was dropped behind it is passed over with it.
    fn pass_over(&mut self, mut unit: Unit, trial: u64) -> Result<Opened> {
        let lock = Lock::take(&self.membership.tree);
        let (Ok(lock), Ok(is_dropped)) = (lock, self.membership.is_dropped(trial)) else {
            self.later.push(Later::at(Instant::now() + Duration::from_secs(1), unit));
            return Ok(Opened::NotYet);
        };
        if !is_dropped {
            self.membership.put_first(unit);
            return Ok(Opened::Passed);
        }
        self.record_skip(trial, "the plan had dropped it")?;
        while let Some(next) = unit.rows.get(1).map(|row| row.id) {
            // Where it cannot be read again, what was read above counts.
            if !self.membership.is_dropped(next).unwrap_or(true) {
                break;
            }
            self.record_skip(next, "the plan had dropped it")?;
            unit.rows.pop_front();
            unit.link += 1;
        }
        self.go_on(unit, Some(Outcome::Done))?;
        self.membership.flush()?;
        drop(lock);
        Ok(Opened::Passed)
    }

    /// A trial could not be started: its own fault, or this machine's, which is counted.
    pub(crate) fn judge_not_started(&mut self, faults: u32, error: &anyhow::Error) -> Verdict {
        let why = Why::new(fault::cause(error), fault::one_line(error));
        let is_machine = error.downcast_ref::<Fault>().is_none_or(|f| f.kind == Kind::Machine);
        if is_machine {
            self.fault(&why.words);
            return Verdict::of_fault(faults, why);
        }
        Verdict::failed(why)
    }

    /// Records a trial that did not run, or whose end is unknown.
    pub(crate) fn record_not_started(
        &mut self,
        unit: Unit,
        attempt: u32,
        verdict: Verdict,
    ) -> Result<()> {
        let Some(row) = unit.rows.front() else { return Ok(()) };
        let trial = row.id;
        let seq = self.membership.ledger.seq;
        let mut end = end_of(trial, attempt, &verdict, None, None);
        end.seq = Some(seq);
        self.note_due(&verdict, &end)?;
        self.membership.bundle.push(&Event::End(end.clone()))?;
        match verdict.next {
            Next::Over => {
                let (row, run) = (row.clone(), AttemptId { trial, attempt, seq, slot: 0 });
                self.over(Claim { unit: Some(unit), row, run, verdict, end })?;
            }
            _ => {
                let unit = Unit { faults: unit.faults + 1, ..unit };
                self.membership.give_back(vec![unit.piece()]);
            }
        }
        Ok(())
    }

    /// Decides about a trial that was stopped after this time. A trial that allocations cut off again and again,
    /// and that saves nothing, would otherwise start over for ever.
    pub(crate) fn cut_off(
        &self,
        unit: &mut Unit,
        why: Option<Stop>,
        ran: Duration,
        verdict: &mut Verdict,
    ) {
        let Some(row) = unit.rows.front() else { return };
        if why != Some(Stop::Allocation) || verdict.next != Next::Elsewhere {
            return;
        }
        let tree = &self.membership.tree;
        // Stamps may be a second apart, and this look comes after the end: one file too many does no harm.
        let since = ran + Duration::from_secs(1);
        let has_saved = age::is_within(&tree.checkpoints(row.id), since, tree.dir());
        // A folder that cannot be read now does not count against the trial.
        if has_saved.unwrap_or(true) {
            unit.cuts = 0;
        } else if ran >= self.usable() / 2 {
            // A shorter run does not count: the trial began late there.
            unit.cuts += 1;
        }
        if unit.cuts >= MAX_CUTS {
            *verdict = Verdict::too_long(unit.cuts);
        }
    }

    /// The machine has failed a trial.
    fn fault(&mut self, reason: &str) {
        self.errors += 1;
        let most = self.membership.settings().max_errors;
        (self.tell)(News::Note(reason));
        if self.errors >= most && self.leaving.is_none() {
            let errors = crate::base::words::count(u64::from(self.errors), "fault");
            let reason = format!("{errors} of this machine, the last: {reason}");
            self.leaving = Some(Leaving { is_ill: true, ..Leaving::because(reason) });
        }
    }

    /// Records the end of an attempt, and does what follows from it.
    pub(crate) fn settle(
        &mut self,
        role: Role,
        run: AttemptId,
        verdict: Verdict,
        ended: Exited,
        result: Option<serde_json::Value>,
    ) -> Result<()> {
        let seconds = ended.exit.duration_s;
        let (mut role, mut verdict) = (role, verdict);
        let has_logged = self.logged.remove(&(run.trial, run.attempt));
        if let Role::Unit(unit) = &mut role {
            self.rule(unit, run, &mut verdict, (&ended, has_logged))?;
        }
        let end = end_of(run.trial, run.attempt, &verdict, Some(ended), result);
        self.note_due(&verdict, &end)?;
        self.membership.bundle.push(&Event::End(end.clone()))?;
        self.membership.done += 1;
        self.membership.busy_s += seconds.max(1e-4);
        let (unit, row) = match role {
            Role::Unit(unit) => {
                let Some(row) = unit.rows.front().cloned() else { return Ok(()) };
                (Some(unit), row)
            }
            Role::Copy(row) => (None, *row),
        };
        if verdict.next == Next::Over {
            if verdict.state == Outcome::Done {
                self.pace.add(seconds);
            }
            return self.over(Claim { unit, row, run, verdict, end });
        }
        self.told.push((run, verdict.state, false));
        let Some(mut unit) = unit else { return Ok(()) };
        match verdict.next {
            Next::Over => {}
            Next::Dropped => self.go_on(unit, None)?,
            Next::Again => {
                let settings = self.membership.settings();
                let pause = settings.backoff_s * f64::from(1u32 << unit.tries.min(16));
                let at = Instant::now() + Duration::from_secs_f64(pause.min(LONGEST_BACKOFF_S));
                unit.tries += 1;
                self.later.push(Later::at(at, unit));
            }
            Next::Repeated => {
                let settings = self.membership.settings();
                let pause =
                    settings.backoff_s * f64::from(1u32 << unit.repeats.saturating_sub(1).min(16));
                let at = Instant::now() + Duration::from_secs_f64(pause.min(LONGEST_BACKOFF_S));
                self.later.push(Later::at(at, unit));
            }
            Next::Elsewhere => self.membership.give_back(vec![unit.piece()]),
        }
        Ok(())
    }

    /// The note that the hook is due for an end of this agent.
    pub(crate) fn due(&self, trial: u64, attempt: u32) -> Due {
        Due::of_agent(&self.membership.tree, trial, &self.membership.name, attempt)
    }

    /// Notes that a hook is due for an end that is about to be recorded.
    fn note_due(&self, verdict: &Verdict, end: &End) -> Result<()> {
        if verdict.next == Next::Over {
            let head = self.membership.head_of(end.trial)?;
            self.due(end.trial, end.attempt).note(head, end);
        }
        Ok(())
    }

    /// A trial has ended for good here. Where others may run it too and something follows from its end, the ledger
    /// decides first whose end counts.
    fn over(&mut self, claim: Claim) -> Result<()> {
        let ledger = &self.membership.ledger;
        let is_known = ledger.contest(claim.run.trial, claim.run.seq).is_some();
        let may_be_copied = self.membership.settings().repeatable && self.has_sequel(&claim)?;
        if is_known || may_be_copied {
            self.claims.push(claim);
            return Ok(());
        }
        self.conclude(claim)
    }

    /// Whether the end of a trial has a consequence: the next trial of its chain, or a hook.
    fn has_sequel(&self, claim: &Claim) -> Result<bool> {
        let head = self.membership.head_of(claim.run.trial)?;
        let is_last = claim.unit.as_ref().is_none_or(|unit| unit.rows.len() <= 1);
        Ok(!is_last || !head.run.hooks.is_default())
    }

    /// Finds out which of the ends here count, and does what follows from them.
    ///
    /// An agent that starts a copy of a trial writes that to the ledger, and then checks whether the trial has ended
    /// meanwhile. Here the end is on disk before the ledger is read. So one of the two knows of the other.
    pub(crate) fn decide(&mut self) -> Result<()> {
        if self.claims.is_empty() {
            return Ok(());
        }
        self.membership.save()?;
        self.membership.look()?;
        let runs: Vec<AttemptId> = self.claims.iter().map(|claim| claim.run).collect();
        for run in runs {
            if self.membership.ledger.is_undecided(run.trial, run.seq) {
                self.win(run);
            }
        }
        self.membership.deliver()?;
        if self.membership.is_fenced() {
            return Ok(());
        }
        for claim in std::mem::take(&mut self.claims) {
            let AttemptId { trial, attempt, seq, .. } = claim.run;
            let won = self.membership.ledger.contest(trial, seq).and_then(|c| c.won.as_ref());
            if won.is_none_or(|won| won.agent == self.membership.name && won.attempt == attempt) {
                self.conclude(claim)?;
            } else {
                self.due(trial, attempt).settle();
                self.told.push((claim.run, Outcome::Interrupted, false));
                claim.unit.map_or(Ok(()), |unit| self.go_on(unit, None))?;
            }
        }
        Ok(())
    }

    /// Acts on an end that counts.
    fn conclude(&mut self, claim: Claim) -> Result<()> {
        let Claim { unit, row, run, verdict, end } = claim;
        let seconds = end.duration_s;
        if end.exit_code.is_some() {
            self.told.push((run, verdict.state, true));
        }
        self.pending_hooks.push((run.slot, row, end));
        self.ended(run, &verdict, seconds);
        unit.map_or(Ok(()), |unit| self.go_on(unit, Some(verdict.state)))
    }

    /// A trial has ended for good.
    fn ended(&mut self, run: AttemptId, verdict: &Verdict, duration_s: f64) {
        *self.report.ended.entry(verdict.state).or_default() += 1;
        let reason = verdict.why.as_ref().map_or("", |why| &why.words);
        (self.tell)(News::Ended(run.trial, verdict.state, reason, duration_s));
        if self.membership.settings().repeatable {
            if self.recent.len() == 4096 {
                self.recent.pop_front();
            }
            self.recent.push_back(run);
            if self.membership.ledger.is_undecided(run.trial, run.seq) {
                self.win(run);
            }
        }
        let share = self.membership.settings().breaker;
        let failed = verdict.state != Outcome::Done;
        if let Some(reason) = self.breaker.add(failed, share)
            && self.membership.ledger.halted.is_none()
        {
            let (agent, nonce) = (self.membership.name.clone(), self.membership.nonce());
            let halted = format!("the sweep was halted: {reason}");
            self.leaving.get_or_insert(Leaving::because(halted));
            self.membership.say(Entry::Halt { agent, nonce, reason });
        }
    }

    /// Goes on with the rest of a chain behind a trial that has ended; `None`: elsewhere, well or not.
    fn go_on(&mut self, mut unit: Unit, state: Option<Outcome>) -> Result<()> {
        let Some(trial) = unit.rows.front().map(|row| row.id) else { return Ok(()) };
        let state = match state {
            None if unit.rows.len() > 1 => match self.membership.outcome_of(trial) {
                Ok(state) if state.is_some() || unit.looks >= MOST_LOOKS => state,
                // Not to be read now, or not to be seen yet.
                _ => {
                    unit.looks += 1;
                    let at = Instant::now() + Duration::from_secs(1);
                    self.later.push(Later::at(at, unit));
                    return Ok(());
                }
            },
            known => known,
        };
        unit.rows.pop_front();
        (unit.link, unit.tries, unit.faults, unit.cuts, unit.looks) = (unit.link + 1, 0, 0, 0, 0);
        (unit.spent, unit.repeats, unit.grown) = (0, 0, 0);
        let Some(next) = unit.rows.front() else { return Ok(()) };
        let deck = deck::of_unit(&self.membership.decks, unit.number);
        unit.alone = deck.is_some_and(|deck| deck.has_alone(next.id));
        if state != Some(Outcome::Done) && self.membership.on_failure() == OnFailure::Stop {
            let what = state.map_or(Break::NoEnd, Break::Ended);
            self.skip(&unit, &what.reason(trial))?;
        } else if self.leaving.is_some() {
            self.membership.give_back(vec![unit.piece()]);
        } else {
            // A chain that has begun continues before new ones begin, but for one that waits for memory.
            self.membership.put_behind(usize::from(self.is_full), unit);
        }
        Ok(())
    }

    /// Records that the rest of a chain is not run.
    fn skip(&mut self, unit: &Unit, why: &str) -> Result<()> {
        unit.rows.iter().try_for_each(|row| self.record_skip(row.id, why))
    }

    fn record_skip(&mut self, trial: u64, why: &str) -> Result<()> {
        let (time, reason) = (clock::now(), why.to_owned());
        let seq = self.membership.ledger.seq;
        self.membership.bundle.push(&Event::Skip { trial, time, job: None, seq, reason })?;
        Ok(())
    }
}

/// How the end of an attempt is recorded; `None`: its program did not run.
pub(crate) fn end_of(
    trial: u64,
    attempt: u32,
    verdict: &Verdict,
    ended: Option<Exited>,
    result: Option<serde_json::Value>,
) -> End {
    let exit = ended.as_ref().map(|ended| ended.exit);
    let log = ended.as_ref().and_then(|ended| ended.log);
    let used = ended.and_then(|ended| ended.used);
    let (code, signal) = (exit.map(|exit| exit.code), exit.and_then(|exit| exit.signal));
    End {
        trial,
        attempt,
        time: clock::now(),
        state: verdict.state,
        exit_code: code,
        signal,
        cause: verdict.cause(code, signal),
        reason: verdict.why.as_ref().map(|why| why.words.clone()),
        duration_s: exit.map_or(0.0, |exit| exit.duration_s),
        peak_memory: used.as_ref().map_or(0, |used| used.memory),
        usage: used.map(|used| Box::new(used.usage)),
        result,
        log,
        last: verdict.next == Next::Over,
        seq: None,
    }
}
