//! One slot whose trials the caller runs: what it is handed next, and what becomes of its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Failure, News, Options, Report, Trial};
use crate::fault::Fault;
use crate::host::{Vars, clock, vars};
use crate::pull::bind;
use crate::pull::claimer::{Claimer, Offer, Unit};
use crate::pull::course::Opened;
use crate::pull::desk::{Desk, Heard, Turn};
use crate::pull::hooks::Hooks;
use crate::pull::leaving::Time;
use crate::pull::slot::Why;
use crate::pull::verdict;
use crate::tree::bundle::Line;
use crate::tree::records::Outcome;
use crate::tree::{Tree, deck, ledger, table};

/// How an attempt was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    pub trial: u64,
    pub attempt: u32,
    pub state: Outcome,
    /// Whether nobody will try it again by himself.
    pub is_last: bool,
}

/// What is to be done next.
pub(super) enum Step {
    /// Run this, and answer.
    Run(Box<Trial>),
    /// Nothing for so long.
    Wait(Duration),
    /// The agent has left.
    Gone,
}

/// What the caller runs.
pub(super) struct Busy {
    /// `None` once nobody waits for the answer.
    pub(super) unit: Option<Unit>,
    pub(super) trial: u64,
    pub(super) attempt: u32,
    pub(super) seq: u64,
    pub(super) since: Instant,
    deadline: Option<Instant>,
    pub(super) stop: Option<(Why, Instant)>,
}

/// An agent of one slot without programs.
pub(super) struct Hand<T> {
    pub(super) desk: Desk<T>,
    pub(super) busy: Option<Busy>,
    /// The function that the sweep's plan named when the agent joined.
    function: String,
    /// Devices that the trials may use.
    pub(super) devices: Option<String>,
    stop: Arc<AtomicBool>,
    /// Bytes of the log.
    pub(super) logged: u64,
    pub(super) hooks: Hooks,
    pub(super) vars: Vars,
    /// Recorded, and not on disk yet.
    pub(super) unsaved: Option<Settled>,
    pub(super) saved: Option<Settled>,
    nap: Duration,
    is_gone: bool,
    /// Others have taken it for dead, and it has not begun anew yet.
    is_out: bool,
}

impl<T: FnMut(News<'_>)> Hand<T> {
    /// Joins a sweep. `go_on` waits for a moment while no slot may be had, and says whether to go on.
    pub(super) fn join(
        tree: &Tree,
        options: Options,
        vars: &Vars,
        mut tell: T,
        mut go_on: impl FnMut(Duration) -> bool,
    ) -> Result<Option<Self>> {
        let decks = deck::read(tree)?;
        let heads = table::heads(tree)?;
        let (Some(deck), Some(head)) = (decks.last(), heads.last()) else {
            let sentence = format!("`{}` has nothing for agents to take", tree.dir().display());
            return Err(Fault::request(sentence)
                .hint("name the plan instead of the sweep: it is laid down then")
                .into());
        };
        let Some(function) = head.run.function.clone() else {
            let sentence = format!("the trials of `{}` run a command, and no function", head.sweep);
            return Err(Fault::request(sentence)
                .hint("`hpcsweep worker --pull SWEEP` without `--serve` runs them")
                .into());
        };
        let bounds = bind::find(deck, Some(1), vars)?;
        let offer = Offer {
            host: vars::node_name(vars),
            job: crate::worker::job_id(vars),
            slots: 1,
            // The caller's threads are its own affair.
            cores: Vec::new(),
            cores_per_slot: deck.cores,
            may_shrink: false,
        };
        let joined = Claimer::join(tree, offer, ledger::link, |why| {
            tell(News::Waiting(why));
            go_on(Duration::from_millis(500))
        })?;
        let Some(claimer) = joined else { return Ok(None) };
        tell(News::Joined(&claimer.name, claimer.slots));
        let desk = Desk::new(claimer, Time::of(vars, options.time_left_s), options.may_go, tell);
        let mut hooks = Hooks::default();
        hooks.belongs_to(tree, &desk.claimer.name);
        Ok(Some(Self {
            desk,
            busy: None,
            function,
            devices: bounds.devices.first().cloned(),
            stop: Arc::default(),
            logged: 0,
            hooks,
            vars: vars.clone(),
            unsaved: None,
            saved: None,
            nap: Duration::ZERO,
            is_gone: false,
            is_out: false,
        }))
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.desk.claimer.name
    }

    /// What it has done.
    pub(super) fn report(self) -> Report {
        self.desk.report
    }

    /// What is to be done next, while the caller runs nothing.
    pub(super) fn next_step(&mut self) -> Result<Step> {
        if self.is_gone {
            return Ok(Step::Gone);
        }
        let turn = self.turn();
        self.or_trouble(turn, Step::Wait(Duration::from_millis(500)))
    }

    fn or_trouble<R>(&mut self, turn: Result<R>, meanwhile: R) -> Result<R> {
        match turn {
            Err(error) => self.desk.in_trouble(error).map(|()| meanwhile),
            done => done,
        }
    }

    fn turn(&mut self) -> Result<Step> {
        self.desk.heed_time();
        let Some(heard) = self.heed()? else {
            let gone = self.is_gone;
            return Ok(if gone { Step::Gone } else { Step::Wait(Duration::from_millis(500)) });
        };
        let mut opened = None;
        if self.desk.leaving.is_some() {
            self.desk.give_all_back();
        } else if !self.desk.is_in_trouble() && self.desk.has_time() {
            while opened.is_none()
                && self.desk.leaving.is_none()
                && let Some(unit) = self.desk.next_unit(1)?
            {
                if let Opened::Run(unit, attempt) = self.desk.open(unit)? {
                    opened = self.begin(unit, attempt)?;
                }
            }
        }
        let saved = self.save();
        if let Some(trial) = opened {
            // It is written down; what waits to be said to others waits on.
            self.or_trouble(saved, ())?;
            self.nap = Duration::ZERO;
            return Ok(Step::Run(trial));
        }
        saved?;
        if self.hooks.look() {
            return Ok(Step::Wait(Duration::from_millis(20)));
        }
        Ok(match self.desk.rest(heard)? {
            Turn::Gone => Step::Gone,
            Turn::Busy => Step::Wait(Duration::ZERO),
            Turn::Quiet => {
                let longer =
                    (self.nap * 3 / 2).clamp(Duration::from_millis(5), self.desk.longest_nap());
                self.nap = longer;
                let due = self.desk.until_due(true).max(Duration::from_millis(1));
                Step::Wait(self.nap.min(due))
            }
        })
    }

    /// Gives signs of life and heeds what others have said. `true` if there was anything new; `None` while it is
    /// taken for dead and cannot begin anew.
    fn heed(&mut self) -> Result<Option<bool>> {
        let news = match self.desk.keep_up()? {
            Heard::News(news) => news,
            Heard::Fenced => {
                if !self.is_out {
                    let note = "others have taken this agent for dead; what it ran is theirs now";
                    (self.desk.tell)(News::Note(note));
                    self.is_out = true;
                }
                if let Some(busy) = &mut self.busy {
                    busy.unit = None;
                }
                (self.unsaved, self.logged) = (None, 0);
                match self.desk.begin_anew()? {
                    Turn::Busy => {}
                    turn => {
                        self.is_gone = matches!(turn, Turn::Gone);
                        return Ok(None);
                    }
                }
                self.is_out = false;
                self.hooks.belongs_to(&self.desk.claimer.tree, &self.desk.claimer.name);
                true
            }
        };
        if news {
            self.desk.share(1);
        }
        let ledger = &self.desk.claimer.ledger;
        if !ledger.contests.is_empty() {
            if let Some(busy) = &mut self.busy
                && ledger.is_decided(busy.trial, busy.seq)
            {
                busy.stop = Some((Why::Lost, Instant::now()));
            }
            self.desk.heed_contests();
        }
        self.desk.decide()?;
        Ok(Some(news))
    }

    /// What has been written down since it was last asked.
    pub(super) fn take_saved(&mut self) -> Option<Settled> {
        self.saved.take()
    }

    /// Hands out the next trial of a unit, unless it is not for this caller.
    fn begin(&mut self, unit: Unit, attempt: u32) -> Result<Option<Box<Trial>>> {
        let Some(row) = unit.rows.front().cloned() else { return Ok(None) };
        let head = self.desk.claimer.head_of(row.id)?;
        if head.run.function.as_ref() != Some(&self.function) {
            let other = head.run.function.as_ref();
            let other = other.map_or("run a command".to_owned(), |name| format!("call `{name}`"));
            let reason = format!("another plan was laid down for the sweep, whose trials {other}");
            self.desk.claimer.give_back(vec![unit.piece()]);
            self.desk.leave(reason);
            self.desk.give_all_back();
            return Ok(None);
        }
        let walltime = row.resources.as_ref().unwrap_or(&head.resources).walltime_s;
        let (trial, since) = (row.id, Instant::now());
        let time = clock::now();
        let (argv, devices) = (Vec::new(), self.devices.clone());
        let seq = self.desk.claimer.ledger.seq;
        let line = Line::Start { trial, attempt, time, slot: 0, seq, argv, devices };
        let before = self.desk.claimer.bundle.waiting();
        self.desk.claimer.bundle.push(&line)?;
        let length = self.desk.claimer.bundle.waiting() - before;
        // What cannot be written down is not begun.
        if let Err(error) = self.desk.claimer.flush() {
            self.desk.claimer.bundle.take_back(length);
            self.desk.claimer.put_first(unit);
            return Err(error);
        }
        let deadline = walltime.and_then(|s| since.checked_add(Duration::from_secs(s)));
        self.busy =
            Some(Busy { unit: Some(unit), trial, attempt, seq, since, deadline, stop: None });
        let tree = &self.desk.claimer.tree;
        self.stop.store(false, Ordering::Relaxed);
        Ok(Some(Box::new(Trial {
            attempt,
            work_dir: tree.work(trial),
            checkpoint_dir: tree.checkpoints(trial),
            stop: Arc::clone(&self.stop),
            row,
        })))
    }

    /// Lives on while the caller runs a trial: to be called now and then ([`Hand::until_due`]). `true` once
    /// the agent has left, as nobody waits for the caller's answer any more.
    pub(super) fn watch(&mut self) -> Result<bool> {
        let turn = self.look_after();
        self.or_trouble(turn, false)
    }

    fn look_after(&mut self) -> Result<bool> {
        self.desk.heed_time();
        if self.heed()?.is_none() {
            return Ok(self.is_gone);
        }
        if self.desk.leaving.is_some() {
            self.desk.give_all_back();
        }
        self.guard()?;
        self.save()?;
        let is_void = self.busy.as_ref().is_none_or(|busy| busy.unit.is_none());
        let is_over = || self.desk.claimer.ledger.is_over(deck::total(&self.desk.claimer.decks));
        if is_void && (self.desk.leaving.is_some() || is_over()) {
            self.is_gone = matches!(self.desk.rest(false)?, Turn::Gone);
        }
        Ok(self.is_gone)
    }

    /// Asks the caller to end where it has to, and gives up what it runs when it does not.
    fn guard(&mut self) -> Result<()> {
        let leaving = self.desk.leaving.as_ref().and_then(|leaving| leaving.stop);
        let Some(busy) = self.busy.as_mut().filter(|busy| busy.unit.is_some()) else {
            return Ok(());
        };
        let is_overdue = busy.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let asked = busy.stop.map(|(why, _)| why);
        let Some(why) = asked.or(leaving).or(is_overdue.then_some(Why::Walltime)) else {
            return Ok(());
        };
        let (_, since) = *busy.stop.get_or_insert((why, Instant::now()));
        let (trial, attempt) = (busy.trial, busy.attempt);
        if asked.is_none() {
            self.stop.store(true, Ordering::Relaxed);
            self.desk.stopping(trial, attempt, why);
        }
        if since.elapsed() >= self.desk.grace_for(why) {
            let failure = Failure { exit_code: Some(137), ..Failure::default() };
            self.settle(Err(failure), None)?;
        }
        Ok(())
    }

    /// Whether what the caller runs is to end soon.
    pub(super) fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The time until [`Hand::watch`] has something to do.
    pub(super) fn until_due(&self) -> Duration {
        let mut due = self.desk.until_due(self.busy.is_none()).min(self.desk.longest_nap());
        if let Some(busy) = &self.busy {
            if busy.stop.is_some() {
                due = due.min(Duration::from_millis(100));
            } else if let Some(deadline) = busy.deadline {
                due = due.min(deadline.saturating_duration_since(Instant::now()));
            }
        }
        due.max(Duration::from_millis(1))
    }

    /// A signal has come.
    pub(super) fn told(&mut self, signal: Signal) {
        self.desk.told(signal);
    }

    /// The caller wants to go.
    pub(super) fn leave(&mut self, reason: &str) {
        self.desk.leave(reason.to_owned());
    }

    /// Metric lines of what runs.
    pub(super) fn metrics(&mut self, rows: Vec<serde_json::Map<String, Value>>) -> Result<()> {
        let Some(busy) = self.busy.as_ref().filter(|busy| busy.unit.is_some()) else {
            return Ok(());
        };
        let (trial, attempt) = (busy.trial, busy.attempt);
        self.desk.claimer.bundle.push(&Line::Metrics { trial, attempt, rows })
    }

    /// Which trial runs, and its attempt.
    pub(super) fn running(&self) -> Option<(u64, u32)> {
        self.busy.as_ref().map(|busy| (busy.trial, busy.attempt))
    }

    /// The caller has run it: its result, and the seconds it took where the caller has measured them. A caller
    /// that was interrupted takes no more, unless it was this agent that wanted an end of the trial.
    pub(super) fn answer(
        &mut self,
        result: Result<Value, Failure>,
        seconds: Option<f64>,
    ) -> Result<()> {
        let is_asked = self.busy.as_ref().is_some_and(|busy| busy.stop.is_some());
        if !is_asked && result.as_ref().is_err_and(|failure| failure.is_interrupted) {
            self.desk.leave("its function was interrupted".to_owned());
        }
        let answered = self.settle(result, seconds);
        self.busy = None;
        self.or_trouble(answered, ())
    }

    /// The caller is gone.
    pub(super) fn lost(&mut self, reason: &str) -> Result<()> {
        let leaving = self.desk.leaving.as_ref().and_then(|leaving| leaving.stop);
        if let (Some(why), Some(busy)) = (leaving, &mut self.busy) {
            // The signal that this agent had has ended the caller too.
            busy.stop.get_or_insert((why, Instant::now()));
            self.settle(Err(Failure { exit_code: Some(137), ..Failure::default() }), None)?;
        } else if let Some(Busy { unit: Some(unit), attempt, .. }) = self.busy.take() {
            let verdict = verdict::judge_fault(unit.faults, reason);
            self.desk.no_start(unit, attempt, verdict)?;
        }
        self.busy = None;
        self.desk.leave(reason.to_owned());
        Ok(())
    }
}
