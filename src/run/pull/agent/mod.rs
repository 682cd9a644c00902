//! An agent: one process that keeps its slots busy with the programs of trials.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::fault::Fault;
use crate::base::host::signal::Signals;
use crate::base::host::{Vars, clock, process, vars};
use crate::base::units;
use crate::base::words;
use crate::run::pull::hooks::Hooks;
use crate::run::pull::lifecycle::attempts::Opened;
use crate::run::pull::lifecycle::copies::Copies;
use crate::run::pull::lifecycle::leaving::Time;
use crate::run::pull::lifecycle::{Activity, Lifecycle, Update};
use crate::run::pull::membership::{Membership, Offer, Unit};
use crate::run::pull::places::guard::Guard;
use crate::run::pull::places::slot::{self, Slot};
use crate::run::pull::places::{Devices, Order, Place, Role, Running, Sheet, bind, is_on_trial};
#[cfg(doc)]
use crate::run::worker::process::child;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::tree::deck::Deck;
use crate::sweep::tree::key::Key;
use crate::sweep::tree::ledger::{self, Ledger};
use crate::sweep::tree::records::{Event, Start};
use crate::sweep::tree::table::Row;
use crate::sweep::tree::{Tree, deck, table};

/// Bytes that wait for a full disk before no more metric lines are taken.
const MOST_WAITING: usize = 8 << 20;

pub(crate) use crate::run::pull::lifecycle::{News, Report};

/// Options from the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Trials at once; by default what the plan says, else what cores and GPUs allow.
    pub(crate) slots: Option<u32>,
    /// Seconds after which the agent's allocation ends, where the scheduler does not say.
    pub(crate) time_left_s: Option<f64>,
    /// Whether the agent may leave before the last trial has ended, if other agents can finish the rest: so
    /// that an idle node is given back.
    pub(crate) may_go: bool,
    /// Whether agents that a program starts print only errors.
    pub(crate) quiet: bool,
}

mod copy;
mod ends;
mod restart;

/// An agent with places for trials.
pub(super) struct Agent<P, T> {
    pub(crate) lifecycle: Lifecycle<T>,
    pub(crate) slots: Vec<P>,
    copies: Copies,
    hooks: Hooks,
    /// Ends what programs have started if this process is killed; functions are their caller's.
    guard: Option<Guard>,
    /// The memory for the agents of its job on this host, MiB; `None`: unknown.
    memory_mib: Option<u64>,
    /// The memory for which the job has asked for this agent's slots, MiB, where the job is not told what it has.
    own_mib: Option<u64>,
    /// What the trial in each slot asks for, MiB.
    asked_mib: Vec<u64>,
    /// Whether it was said that trials wait for memory.
    has_said_full: bool,
    /// Others have taken it for dead, and it has not begun anew yet.
    is_out: bool,
}

/// Runs an agent until nothing is left to do, or it has to go. `signals` come from [`child::listen`], called
/// before any other thread was started.
///
/// # Errors
/// When the sweep has no queue, the machine lacks what its trials need, or the tree stays unreachable.
pub(crate) fn run(
    tree: &Tree,
    options: &Options,
    vars: &Vars,
    signals: &mut Signals,
    mut tell: impl FnMut(News<'_>),
) -> Result<Report> {
    let decks = deck::read(tree)?;
    let heads = table::heads(tree)?;
    let (Some(deck), Some(head)) = (decks.last(), heads.last()) else {
        return Err(Fault::request(format!("`{}` has nothing for agents to take", tree.dir().display()))
            .hint("submit the plan with `hpcsweep submit PLAN --pull`, or name the plan instead of the sweep")
            .into());
    };
    head.run.refuse_function(|| tree.author())?;
    let bounds = match bind::find(tree, deck, options.slots, vars) {
        Ok(bounds) => bounds,
        // If nothing is left to run, the agent needs no device.
        Err(_) if is_over(tree, &decks)? => return Ok(Report::default()),
        Err(error) => return Err(error),
    };
    let host = vars::node_name(vars);
    let job = crate::cluster::scheduler::job::id(vars);
    let offer = Offer {
        host: host.clone(),
        job: job.clone(),
        slots: bounds.slots,
        cores: bounds.cores,
        cores_per_slot: deck.cores,
        may_shrink: !bounds.is_asked,
    };
    let mut told = None;
    let say = |why: &str| tell(News::Waiting(why));
    let joined = Membership::join(tree, offer, ledger::link, say, || {
        told = stopping(signals, Duration::from_millis(500));
        told.is_none()
    })?;
    let Some(membership) = joined else {
        return Ok(Report { signal: told.map(|s| s as i32), ..Report::default() });
    };
    tell(News::Joined(&membership.name, membership.slots));
    let own = process::own_cores().len();
    if deck.cores as usize > own {
        let asked = words::count(u64::from(deck.cores), "core");
        tell(News::Note(&format!("a trial asks for {asked}, and this agent has {own} for it")));
    }
    let of_slot = bind::vars_of_slot(deck, vars);
    let slots = Slot::all(&membership, &bounds.devices, &of_slot, &host, job.as_ref())?;
    let time = Time::of(vars, options.time_left_s);
    let lifecycle = Lifecycle::new(membership, time, options.may_go, tell);
    let mut agent = Agent::new(lifecycle, slots);
    let mut guard = Guard::start();
    guard.note(&agent.lifecycle.membership.name);
    agent.guard = Some(guard);
    agent.memory_mib = bind::memory_mib(vars);
    let slots = u64::from(agent.lifecycle.membership.slots);
    agent.own_mib = bind::asked_mib(deck, vars).map(|mib| mib.saturating_mul(slots));
    let lived = agent.live(signals);
    // Processes that programs have left behind without the agent's mark.
    process::end_strays(None);
    lived?;
    Ok(agent.lifecycle.report)
}

/// Whether nothing is left to do for any agent.
///
/// # Errors
/// When the ledger cannot be read.
pub(super) fn is_over(tree: &Tree, decks: &[Deck]) -> Result<bool> {
    Ok(Ledger::read(tree)?.is_over(deck::total(decks)))
}

/// A signal that asks us to stop, if one comes in this time.
fn stopping(signals: &mut Signals, wait: Duration) -> Option<Signal> {
    signals.next(wait).filter(|signal| *signal != Signal::SIGCHLD)
}

impl<T: FnMut(News<'_>)> Agent<Slot, T> {
    fn live(&mut self, signals: &mut Signals) -> Result<()> {
        let mut nap = Duration::from_millis(5);
        loop {
            match self.turn() {
                Ok(Activity::Gone) => return Ok(()),
                Ok(Activity::Busy) => nap = Duration::from_millis(5),
                Ok(Activity::Quiet) => nap = (nap * 3 / 2).min(self.lifecycle.longest_nap()),
                Err(error) => self.lifecycle.in_trouble(error)?,
            }
            if self.lifecycle.is_in_trouble() {
                nap = Duration::from_millis(500);
            }
            match signals.next(self.until_due(nap)) {
                Some(Signal::SIGCHLD) => nap = nap.min(Duration::from_millis(50)),
                Some(signal) => self.lifecycle.told(signal),
                None => {}
            }
        }
    }
}

impl<P: Place, T: FnMut(News<'_>)> Agent<P, T> {
    /// An agent that has joined, with its places.
    pub(super) fn new(lifecycle: Lifecycle<T>, slots: Vec<P>) -> Self {
        let mut hooks = Hooks::default();
        hooks.belongs_to(&lifecycle.membership.tree, &lifecycle.membership.name);
        Self {
            lifecycle,
            asked_mib: vec![0; slots.len()],
            slots,
            copies: Copies::default(),
            hooks,
            guard: None,
            memory_mib: None,
            own_mib: None,
            has_said_full: false,
            is_out: false,
        }
    }

    /// Writes what has happened.
    fn record(&mut self) -> Result<()> {
        self.lifecycle.membership.flush()?;
        self.lifecycle.membership.deliver()
    }

    /// One look at everything.
    pub(super) fn turn(&mut self) -> Result<Activity> {
        let mut busy = self.reap()?;
        self.guard();
        self.slots.iter_mut().for_each(P::measure);
        match self.lifecycle.heartbeat()? {
            Update::Fenced => return self.restart(),
            Update::News(news) => busy |= news,
        }
        if !self.lifecycle.membership.ledger.contests.is_empty() {
            self.check_contests();
        }
        self.lifecycle.share(self.slots.len());
        busy |= self.metrics()?;
        self.lifecycle.decide()?;
        let is_stuck = self.slots.iter().all(|slot| slot.running().is_none() && !slot.is_free());
        let begins = self.lifecycle.leaving.is_none() && !is_stuck;
        if !begins {
            self.lifecycle.give_all_back();
            if self.slots.iter().any(|slot| slot.running().is_some()) {
                self.lifecycle.announce();
            }
        } else if !self.lifecycle.is_in_trouble() {
            // The agent starts no trial whose start it cannot record.
            busy |= self.start()?;
        }
        self.record()?;
        if begins && self.lifecycle.is_in_trouble() {
            // What failed may have been a start: the tree is not back before one has succeeded.
            busy |= self.start()?;
            self.record()?;
        }
        self.lifecycle.out_of_trouble();
        if !self.lifecycle.membership.is_fenced() {
            for (run, state, is_last) in self.lifecycle.told.drain(..) {
                // Others may have taken slots meanwhile.
                let slot = self.slots.get_mut(run.slot);
                if let Some(slot) = slot {
                    slot.recorded(run, state, is_last);
                }
            }
        }
        self.call_hooks()?;
        let rings = self.hooks.look();
        if rings && self.lifecycle.leaving.as_ref().is_some_and(|l| l.stop.is_some()) {
            self.hooks.give_up();
        }
        if rings || self.slots.iter().any(|slot| slot.running().is_some()) {
            return Ok(if busy { Activity::Busy } else { Activity::Quiet });
        }
        self.lifecycle.rest(busy)
    }

    /// Programs that have ended.
    fn reap(&mut self) -> Result<bool> {
        let mut any = false;
        let why = self.lifecycle.leaving.as_ref().and_then(|leaving| leaving.stop);
        for i in 0..self.slots.len() {
            let others = self.pids();
            let Some((running, ended)) = self.slots[i].reap(&others, why) else { continue };
            any = true;
            self.lifecycle.needs.is_stale = true;
            self.settle(i, running, ended)?;
        }
        Ok(any)
    }

    /// All processes that this agent has started and not buried.
    fn pids(&self) -> Vec<u32> {
        let guard = self.guard.as_ref().and_then(Guard::pid);
        self.slots.iter().filter_map(P::pid).chain(self.hooks.pids()).chain(guard).collect()
    }

    /// Asks programs whose time is over to end, and kills those that do not.
    pub(super) fn guard(&mut self) {
        self.lifecycle.heed_time();
        let why = self.lifecycle.leaving.as_ref().and_then(|leaving| leaving.stop);
        for slot in &mut self.slots {
            slot.notify();
            let Some(running) = slot.running() else { continue };
            let overdue = running.is_overdue().then_some(Stop::Walltime);
            let Some(why) = running.stop.map(|(why, _)| why).or(why).or(overdue) else { continue };
            let (trial, attempt) = (running.trial, running.attempt);
            if slot.stop(why, self.lifecycle.grace_for(why)) {
                self.lifecycle.stopping(trial, attempt, why);
            }
        }
    }

    /// Stops programs whose trials others have ended, and settles which ends of ours count.
    fn check_contests(&mut self) {
        let ledger = &self.lifecycle.membership.ledger;
        for slot in &mut self.slots {
            let Some(running) = slot.running() else { continue };
            if ledger.is_decided(running.trial, running.seq) {
                slot.stop(Stop::Overtaken, Duration::ZERO);
            }
        }
        self.lifecycle.check_contests();
    }

    /// Records the metric lines of running trials; `true` if there are more. Lines for which a full disk has no
    /// room stay in their file.
    fn metrics(&mut self) -> Result<bool> {
        let mut any = false;
        for slot in &mut self.slots {
            if self.lifecycle.membership.bundle.waiting() > MOST_WAITING {
                return Ok(false);
            }
            let Some(running) = slot.running() else { continue };
            let (trial, attempt) = (running.trial, running.attempt);
            // Short trials hand theirs over at their end.
            let has_more = slot.has_more_metrics();
            if running.since.elapsed() < Duration::from_secs(1) && !has_more {
                continue;
            }
            any |= has_more;
            let rows = slot.metrics();
            if !rows.is_empty() {
                self.lifecycle.logged.insert((trial, attempt));
                self.lifecycle.membership.bundle.push(&Event::Metrics { trial, attempt, rows })?;
            }
        }
        Ok(any)
    }

    /// Begins units and copies in all free slots, unless the agent leaves. Whether anything was done.
    fn start(&mut self) -> Result<bool> {
        let mut any = false;
        if !self.lifecycle.has_time() {
            return Ok(any);
        }
        let Lifecycle { membership, needs, is_full, .. } = &mut self.lifecycle;
        // What has ended may have made room.
        *is_full &= !needs.is_stale;
        needs.look(membership)?;
        for i in 0..self.slots.len() {
            while self.slots[i].is_free() && self.lifecycle.leaving.is_none() {
                // Also after one of these has begun just now.
                if self.slots.iter().any(|s| s.running().is_some_and(Running::is_alone)) {
                    return Ok(any);
                }
                let free = self.slots.iter().filter(|slot| slot.is_free()).count() as u64;
                let started = match self.lifecycle.next_unit(free)? {
                    Some(unit) => self.begin(i, unit)?,
                    None => self.copy(i)?,
                };
                any |= started;
                if !started {
                    break;
                }
            }
        }
        Ok(any)
    }

    /// Begins the next trial of a unit in a free slot. `true` if something was done with the unit.
    fn begin(&mut self, i: usize, unit: Unit) -> Result<bool> {
        if is_on_trial(&unit)
            && self.slots.iter().any(|s| s.running().is_some_and(Running::is_on_trial))
        {
            self.lifecycle.postpone(unit);
            return Ok(true);
        }
        if unit.alone && self.slots.iter().any(|slot| slot.running().is_some()) {
            self.lifecycle.postpone(unit);
            return Ok(true);
        }
        match self.lifecycle.open(unit)? {
            Opened::Run(unit, _) if !self.has_room(unit.rows.front())? => {
                self.lifecycle.wait_for_memory(unit);
                Ok(false)
            }
            Opened::Run(unit, attempt) => {
                self.lifecycle.is_full = false;
                // A copy of it may run here too: the number of the attempt shows which of the two has won.
                let running = self.slots.iter().filter_map(P::running);
                let trial = unit.rows.front().map(|row| row.id);
                let others = running.filter(|run| Some(run.trial) == trial);
                let used = others.map(|run| run.attempt).max().unwrap_or(0);
                self.run(i, Role::Unit(unit), attempt.max(used + 1))
            }
            Opened::Passed => Ok(true),
            Opened::NotYet => Ok(false),
        }
    }

    /// Whether a trial has the memory that it asks for beside those that run, where that is learnt. One alone may always begin.
    fn has_room(&mut self, row: Option<&Row>) -> Result<bool> {
        let Some(row) = row else { return Ok(true) };
        let membership = &self.lifecycle.membership;
        let Some(all) = self.memory_mib.filter(|_| membership.learns()) else { return Ok(true) };
        let all = membership.share_of(all).min(self.own_mib.unwrap_or(u64::MAX));
        let taken = self.slots.iter().zip(&self.asked_mib);
        let mut taken =
            taken.filter(|(slot, _)| slot.running().is_some()).map(|(_, mib)| *mib).peekable();
        if taken.peek().is_none() {
            return Ok(true);
        }
        let asked = self.lifecycle.request(row, 0)?.memory_mib.unwrap_or(0);
        let taken: u64 = taken.sum();
        let has_room = taken + asked <= all;
        if !has_room && !std::mem::replace(&mut self.has_said_full, true) {
            let [asked, taken, all] = [asked, taken, all].map(units::memory_text);
            let trial = row.id;
            let words = format!(
                "memory is learnt: trial {trial} waits for {asked} of {all}, of which others have {taken}"
            );
            (self.lifecycle.tell)(News::Note(&words));
        }
        Ok(has_room)
    }

    /// Takes the devices of a trial for a slot, where each trial has its own.
    fn reserve(&mut self, i: usize, row: &Row) -> Result<Devices> {
        let request = self.lifecycle.request(row, 0)?;
        self.slots[i].reserve(row, &request, self.lifecycle.membership.is_exact())
    }

    /// Starts a trial in a slot.
    fn run(&mut self, i: usize, role: Role, attempt: u32) -> Result<bool> {
        let Some(row) = role.row().cloned() else { return Ok(true) };
        if let Some(others) = self.slots[i].refuses(self.lifecycle.membership.head_of(row.id)?) {
            return Ok(self.not_for_us(role, &others));
        }
        match self.reserve(i, &row) {
            Ok(Devices::There) => {}
            Ok(Devices::Never) => return Ok(self.not_for_us(role, "name their devices")),
            Ok(Devices::Busy) => {
                let is_unit = matches!(role, Role::Unit(_));
                match role {
                    Role::Unit(unit) => self.lifecycle.wait_for_devices(unit),
                    Role::Copy(row) => self.uncopy(row.id, true),
                }
                return Ok(is_unit);
            }
            Err(error) => {
                self.undo(role);
                return Err(error);
            }
        }
        if let Err(error) = self.lifecycle.membership.read_code() {
            return self.not_started(role, attempt, &error);
        }
        let membership = &self.lifecycle.membership;
        let head = membership.head_of(row.id)?;
        let folders = membership.settings().folders;
        let (trial, slot) = (row.id, self.slots[i].number());
        let tree = membership.tree.dir();
        if (folders || slot::names_folders(head)) && !tree.is_dir() {
            // Away for a moment: a folder of the trial's own would make it anew in its place.
            let sentence = format!("`{}` is not there", tree.display());
            self.undo(role);
            return Err(Fault::machine(sentence).into());
        }
        let times = if let Role::Unit(unit) = &role { unit.grown } else { 0 };
        let request = self.lifecycle.request(&row, times)?;
        let request = &*request;
        let asked_mib = request.memory_mib.unwrap_or(0);
        let own = (request != head.asks(&row)).then(|| Box::new(request.clone()));
        let unlearnt_mib = self.lifecycle.unlearnt_mib(&row)?;
        let may_end = request.walltime_s.is_some() || membership.settings().repeatable;
        let until = self.lifecycle.until();
        let code = match membership.code_of(trial) {
            Ok(code) => code,
            Err(error) => return self.not_started(role, attempt, &error),
        };
        let order = Order { head, row: &row, code, request, attempt, folders, may_end, until };
        let ready = match self.slots[i].prepare(order) {
            Ok(ready) => ready,
            Err(error) => return self.not_started(role, attempt, &error),
        };
        let Sheet { argv, devices, snapshot } = P::sheet(&ready);
        let time = clock::now();
        let seq = self.lifecycle.membership.ledger.seq;
        let line = Event::Start(Start {
            trial,
            attempt,
            time,
            slot: Some(slot),
            seq,
            argv,
            devices,
            snapshot,
            resources: own,
            unlearnt_mib,
            key: Key::of(&row.key),
            ..Start::default()
        });
        let before = self.lifecycle.membership.bundle.waiting();
        self.lifecycle.membership.bundle.push(&line)?;
        let length = self.lifecycle.membership.bundle.waiting() - before;
        // Written before it begins: an open start shows that a program has killed its agent.
        if let Err(error) = self.lifecycle.membership.flush() {
            self.lifecycle.membership.bundle.take_back(length);
            self.undo(role);
            return Err(error);
        }
        self.asked_mib[i] = asked_mib;
        match self.slots[i].launch(role, (attempt, seq), ready) {
            Ok(()) => Ok(true),
            Err((role, error)) => self.not_started(role, attempt, &error),
        }
    }

    /// Trials that this agent cannot run: it leaves them to others.
    fn not_for_us(&mut self, role: Role, others: &str) -> bool {
        match role {
            Role::Unit(unit) => self.lifecycle.membership.give_back(vec![unit.piece()]),
            Role::Copy(row) => self.uncopy(row.id, true),
        }
        let reason = format!("another plan was laid down for the sweep, whose trials {others}");
        self.lifecycle.leave(reason);
        self.lifecycle.give_all_back();
        true
    }

    /// A trial that was about to begin waits for the tree.
    fn undo(&mut self, role: Role) {
        match role {
            Role::Unit(unit) => self.lifecycle.membership.put_first(unit),
            Role::Copy(row) => self.uncopy(row.id, true),
        }
    }

    /// A trial could not be started: its own fault, or this machine's.
    fn not_started(&mut self, role: Role, attempt: u32, error: &anyhow::Error) -> Result<bool> {
        match role {
            Role::Copy(row) => {
                self.lifecycle.judge_not_started(0, error);
                self.uncopy(row.id, false);
            }
            Role::Unit(unit) => {
                let verdict = self.lifecycle.judge_not_started(unit.faults, error);
                self.lifecycle.record_not_started(unit, attempt, verdict)?;
            }
        }
        Ok(true)
    }

    /// The time until something has to be done.
    pub(super) fn until_due(&self, nap: Duration) -> Duration {
        let slots = self.slots.iter().filter_map(P::until_due).min();
        let stops = self.slots.iter().any(|s| s.running().is_some_and(|r| r.stop.is_some()));
        let stops = stops.then_some(Duration::from_millis(100));
        let can_begin = self.lifecycle.leaving.is_none()
            && !self.lifecycle.is_in_trouble()
            && self.slots.iter().any(P::is_free);
        let due =
            [Some(self.lifecycle.until_due(can_begin)), slots, stops].into_iter().flatten().min();
        nap.min(due.unwrap_or(nap)).max(Duration::from_millis(1))
    }
}
