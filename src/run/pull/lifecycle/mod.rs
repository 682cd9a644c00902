//! The life of an agent besides running trials: it renews its lease, reads what others have written to the ledger,
//! gives back units that others can begin sooner, and leaves in time. How its units continue is in
//! [`crate::run::pull::lifecycle::attempts`].

pub(super) mod attempts;
pub(super) mod copies;
pub(super) mod leaving;
mod needs;
mod news;
mod pace;
mod retry;

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::fault;
use crate::base::host::clock;
use crate::base::words;
use crate::run::pull::lifecycle::leaving::{Leaving, Time};
use crate::run::pull::lifecycle::needs::Needs;
pub use crate::run::pull::lifecycle::news::{News, Report};
use crate::run::pull::lifecycle::pace::{Breaker, Pace};
use crate::run::pull::lifecycle::retry::Spent;
use crate::run::pull::membership::{Membership, Unit};
use crate::run::pull::places::AttemptId;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::time::{Reserve, WALLTIME_GRACE};
use crate::sweep::attempt::verdict::Verdict;
use crate::sweep::tree::deck;
use crate::sweep::tree::ledger::Entry;
use crate::sweep::tree::records::{End, Event, Outcome};
use crate::sweep::tree::table::Row;

/// How long the tree may be out of reach before an agent gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// What an agent did in one pass over its slots.
pub(super) enum Activity {
    /// Something happened: the next pass follows soon.
    Busy,
    /// Nothing happened: the agent may sleep for longer.
    Quiet,
    /// The agent has left.
    Gone,
}

/// News from the ledger.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Update {
    /// They have taken this agent for dead.
    Fenced,
    /// The agent is still a member; whether there were new entries.
    News(bool),
}

/// A trial that waits for its next attempt here.
pub(super) struct Later {
    pub(crate) at: Instant,
    pub(crate) unit: Unit,
    /// Whether it waits for devices that others have.
    pub(crate) for_devices: bool,
}

impl Later {
    pub(super) fn at(at: Instant, unit: Unit) -> Self {
        Self { at, unit, for_devices: false }
    }
}

/// The end of a trial that has ended for good here, unless another run of it counts.
pub(super) struct Claim {
    /// The rest of its chain, the trial first; a copy has none.
    pub(crate) unit: Option<Unit>,
    pub(crate) row: Row,
    pub(crate) run: AttemptId,
    pub(crate) verdict: Verdict,
    pub(crate) end: End,
}

/// What an agent knows besides its slots.
pub(super) struct Lifecycle<T> {
    pub(crate) membership: Membership,
    pub(crate) pace: Pace,
    pub(crate) leaving: Option<Leaving>,
    /// Whether the other agents have been notified.
    has_announced: bool,
    pub(crate) time: Time,
    pub(crate) report: Report,
    pub(crate) tell: T,
    may_go: bool,
    pub(crate) later: Vec<Later>,
    pub(crate) breaker: Breaker,
    /// What ended here of late: it may turn out to have a copy.
    pub(crate) recent: VecDeque<AttemptId>,
    pub(crate) errors: u32,
    /// Trials that have ended for good, with their slots, whose hooks have not been called yet.
    pub(crate) pending_hooks: Vec<(usize, Row, End)>,
    /// Ends of trials that others may run too: they have no effect until the ledger says that they count.
    pub(crate) claims: Vec<Claim>,
    /// Runs whose ends are recorded: how, and whether the trial runs again only on request.
    pub(crate) told: Vec<(AttemptId, Outcome, bool)>,
    trouble: Option<(Instant, String)>,
    /// The agents that it has reported to wait for.
    waits: HashSet<String>,
    /// Attempts of this agent, by trial and number, that have written metrics and not ended.
    pub(crate) logged: HashSet<(u64, u32)>,
    /// What the attempts of the sweep have used.
    pub(crate) spent: Spent,
    /// What trials with memory that is learnt need.
    pub(crate) needs: Needs,
    /// Whether the first unit that waits here has no room beside the trials that run.
    pub(crate) is_full: bool,
}

impl<T: FnMut(News<'_>)> Lifecycle<T> {
    /// The lifecycle of an agent that has joined.
    pub(super) fn new(membership: Membership, time: Time, may_go: bool, tell: T) -> Self {
        Self {
            membership,
            pace: Pace::default(),
            leaving: None,
            has_announced: false,
            time,
            report: Report::default(),
            tell,
            may_go,
            later: Vec::new(),
            breaker: Breaker::default(),
            recent: VecDeque::new(),
            errors: 0,
            pending_hooks: Vec::new(),
            claims: Vec::new(),
            told: Vec::new(),
            trouble: None,
            waits: HashSet::new(),
            logged: HashSet::new(),
            spent: Spent::default(),
            needs: Needs::default(),
            is_full: false,
        }
    }

    /// Renews the lease and reads the ledger, where it is time to.
    pub(super) fn heartbeat(&mut self) -> Result<Update> {
        if !self.membership.beat()? {
            return Ok(Update::Fenced);
        }
        let pace = if self.is_endgame() { 0.2 } else { 1.0 };
        let news = self.membership.since_look().as_secs_f64() >= pace && self.membership.look()?;
        if self.membership.is_fenced() {
            return Ok(Update::Fenced);
        }
        let ledger = &self.membership.ledger;
        if ledger.held.is_none() && self.leaving.as_ref().is_some_and(|leaving| leaving.is_held) {
            // Released while something still ran here.
            self.leaving = None;
        }
        if let (Some(why), None) = (ledger.stopped(), &self.leaving) {
            let is_held = ledger.held.is_some();
            let sweep = words::sh_quote(&self.membership.tree.dir().to_string_lossy());
            let reason = match is_held {
                true => format!("the sweep is {why}: `hpcsweep release {sweep}` continues it"),
                false => format!("the sweep was {why}"),
            };
            self.leaving = Some(Leaving { is_held, ..Leaving::because(reason) });
        }
        Ok(Update::News(news))
    }

    /// Gives half of what waits here to others that have nothing left, where the `slots` of this agent have
    /// enough to do.
    pub(super) fn share(&mut self, slots: usize) {
        let idle = self.membership.ledger.living().filter(|(_, agent)| agent.idle).count() as u64;
        let waiting = self.membership.waiting();
        if idle > 0 && waiting > 0 && self.membership.open() == 0 && self.is_long(waiting, slots) {
            let back = self.membership.unbegun(waiting.div_ceil(2));
            self.membership.give_back(back);
        }
    }

    /// Whether so many units would keep this agent busy for longer than sharing them takes.
    fn is_long(&self, units: u64, slots: usize) -> bool {
        let each = self.pace.quantile(0.5, 1).unwrap_or(1.0);
        each * units as f64 / slots.max(1) as f64 > 0.2
    }

    /// Says of trials that have ended here, and turn out to run elsewhere too, that this end is the one.
    pub(super) fn check_contests(&mut self) {
        let ended: Vec<AttemptId> = self.recent.iter().copied().collect();
        for run in ended {
            if self.membership.ledger.is_undecided(run.trial, run.seq) {
                self.win(run);
            }
        }
    }

    /// Claims the end of a trial with a copy, unless another agent was faster. The end is on disk before.
    pub(super) fn win(&mut self, run: AttemptId) {
        let (agent, nonce) = (self.membership.name.clone(), self.membership.nonce());
        let AttemptId { trial, attempt, seq: begun, .. } = run;
        // It may wait for a disk that is full.
        if self
            .membership
            .is_about_to_say(|entry| matches!(entry, Entry::Won { trial: t, .. } if *t == trial))
        {
            return;
        }
        self.membership.say(Entry::Won { agent, nonce, trial, attempt, begun });
    }

    /// Joins again under another name: other agents have this one's trials now. It must be called again while
    /// there is no slot ([`Activity::Quiet`]), between checks of signals. An agent that was about to leave
    /// anyway leaves.
    pub(super) fn restart(&mut self) -> Result<Activity> {
        self.later.clear();
        self.recent.clear();
        self.pending_hooks.clear();
        self.claims.clear();
        self.told.clear();
        self.logged.clear();
        self.heed_time();
        if let Some(leaving) = self.leaving.clone() {
            return Ok(self.gone(leaving));
        }
        if let Some(why) = self.membership.rejoin()? {
            if !self.waits.contains(&why) {
                (self.tell)(News::Waiting(&why));
                self.waits.insert(why);
            }
            return Ok(Activity::Quiet);
        }
        self.waits.clear();
        let name = self.membership.name.clone();
        (self.tell)(News::Joined(&name, self.membership.slots));
        Ok(Activity::Busy)
    }

    /// Keeps a unit until trials here have ended. Nothing overtakes it: it would never begin. Others get what the agent does not
    /// hold yet.
    pub(super) fn wait_for_memory(&mut self, unit: Unit) {
        self.is_full = true;
        self.membership.put_first(unit);
    }

    /// Keeps a unit for a moment.
    pub(super) fn postpone(&mut self, unit: Unit) {
        self.later.push(Later::at(Instant::now() + Duration::from_millis(500), unit));
    }

    /// Others have the devices of the next trial of a unit. Meanwhile no more is claimed: units are for those who can run
    /// them.
    pub(super) fn wait_for_devices(&mut self, unit: Unit) {
        let at = Instant::now() + Duration::from_millis(50);
        self.later.push(Later { at, unit, for_devices: true });
    }

    /// A signal has come.
    pub(super) fn told(&mut self, signal: Signal) {
        let again = self.leaving.as_ref().is_some_and(|l| matches!(l.stop, Some(Stop::Signal(_))));
        if again {
            // A second one is not patient.
            self.time.grace = Duration::ZERO;
            return;
        }
        let reason = match signal {
            Signal::SIGINT => "stopped by Ctrl-C".to_owned(),
            signal => format!("it got {signal}"),
        };
        self.report.signal = Some(signal as i32);
        let stop = Some(Stop::Signal(signal));
        self.leaving = Some(Leaving { stop, ..Leaving::because(reason) });
    }

    /// Takes no more; what runs may end in peace.
    pub(super) fn leave(&mut self, reason: String) {
        self.leaving.get_or_insert(Leaving::because(reason));
    }

    /// Leaves in time before the allocation is over, and asks what still runs to end, whyever it takes no more.
    pub(super) fn heed_time(&mut self) {
        let margin = self.margin();
        let is_over = self.time.until.is_some_and(|end| clock::awake() + margin >= end);
        if is_over && self.leaving.as_ref().is_none_or(|leaving| leaving.stop.is_none()) {
            let because = || Leaving::because("its allocation ends".to_owned());
            let leaving = self.leaving.get_or_insert_with(because);
            (leaving.stop, leaving.is_held) = (Some(Stop::Allocation), false);
        }
    }

    /// When what runs is asked to end because the allocation does.
    pub(super) fn until(&self) -> Option<Instant> {
        self.time.until.and_then(|end| end.checked_sub(self.margin()))
    }

    /// How long a trial can run here at most before it is asked to end.
    pub(super) fn usable(&self) -> Duration {
        let end = self.time.until.map(|end| end.saturating_duration_since(self.time.began));
        end.unwrap_or(Duration::MAX).saturating_sub(self.margin())
    }

    /// Room to end programs and to write it down before the allocation is over.
    pub(super) fn margin(&self) -> Duration {
        self.reserve().whole()
    }

    fn reserve(&self) -> Reserve {
        Reserve::of_agent(self.time.grace)
    }

    /// How long what runs may take to end after it was asked to.
    pub(super) fn grace_for(&self, why: Stop) -> Duration {
        match why {
            Stop::Walltime => WALLTIME_GRACE,
            Stop::Allocation => self.reserve().grace(),
            Stop::Signal(_) => self.time.grace,
            // The agent does not wait for these programs.
            _ => Duration::ZERO,
        }
    }

    /// Records that an attempt was asked to end; the following end records it again.
    pub(super) fn stopping(&mut self, trial: u64, attempt: u32, why: Stop) {
        if !why.is_void() {
            let (state, reason) = (why.outcome(), why.reason("agent"));
            let line = Event::Stop { trial, attempt, time: clock::now(), state, reason };
            let _ = self.membership.bundle.push(&line);
        }
    }

    /// Whether a trial that begins now would end before the allocation does. If not, the agent leaves.
    pub(super) fn has_time(&mut self) -> bool {
        let Some(end) = self.time.until else { return true };
        let left = end.saturating_duration_since(clock::awake()).as_secs_f64();
        let asked = self.membership.settings().time_request_s.map(|s| s as f64);
        let need = asked.or_else(|| self.pace.quantile(0.95, 5)).unwrap_or(0.0);
        let has_time = left > need + self.margin().as_secs_f64();
        if !has_time && self.leaving.is_none() {
            let reason = "too little time is left for another trial".to_owned();
            self.leaving = Some(Leaving::because(reason));
        }
        has_time
    }

    /// Gives back what was not begun.
    pub(super) fn give_all_back(&mut self) {
        let mut back = self.membership.unbegun(u64::MAX);
        back.extend(self.later.drain(..).map(|later| later.unit.piece()));
        self.membership.give_back(back);
    }

    /// Announces once that this agent has asked its running programs to end, and leaves then. Agents that join now
    /// may have to run its trials.
    pub(super) fn announce(&mut self) {
        let ends = self.leaving.as_ref().is_some_and(|leaving| leaving.stop.is_some());
        if ends && !self.has_announced {
            self.has_announced = true;
            self.membership.say_leaving();
        }
    }

    fn gone(&mut self, leaving: Leaving) -> Activity {
        (self.report.reason, self.report.is_ill) = (leaving.reason, leaving.is_ill);
        let ledger = &self.membership.ledger;
        self.report.is_halted = ledger.stopped().is_some();
        self.report.failed = ledger.failed().map(str::to_owned);
        Activity::Gone
    }

    /// With nothing running: leaves, or waits.
    pub(super) fn rest(&mut self, busy: bool) -> Result<Activity> {
        if !self.claims.is_empty() {
            return Ok(Activity::Busy);
        }
        if let Some(leaving) = self.leaving.clone() {
            self.give_all_back();
            if self.membership.leave(&leaving.reason)? {
                return Ok(self.gone(leaving));
            }
            self.membership.look()?;
            return Ok(Activity::Busy);
        }
        let mine = self.membership.waiting() + self.later.len() as u64;
        if mine == 0 && self.membership.is_of_no_use() {
            self.leave("too little time is left for the trials that wait".to_owned());
            return Ok(Activity::Busy);
        }
        if mine > 0 || self.membership.open() > 0 {
            return Ok(if busy { Activity::Busy } else { Activity::Quiet });
        }
        if !self.membership.say_idle()? {
            self.membership.look()?;
            return Ok(Activity::Busy);
        }
        let over = self.membership.ledger.is_over(deck::total(&self.membership.decks));
        if over || (self.may_go && self.membership.is_spare()) {
            if self.membership.leave("")? {
                return Ok(Activity::Gone);
            }
            self.membership.look()?;
            return Ok(Activity::Busy);
        }
        self.say_whom_it_waits_for();
        Ok(Activity::Quiet)
    }

    fn say_whom_it_waits_for(&mut self) {
        // Once of each: the signs of several may come late in turns.
        let missed = self.membership.missed().filter(|(who, _)| !self.waits.contains(who));
        let Some((who, left)) = missed else { return };
        let left = words::duration(left.as_secs_f64());
        let note = format!(
            "agent {who} gives no sign of life: what it holds is taken over when its lease ends, in {left}"
        );
        (self.tell)(News::Waiting(&note));
        self.waits.insert(who);
    }

    /// The tree cannot be read or written. Running programs continue, and the agent retries for a while, unless that is in vain.
    pub(super) fn in_trouble(&mut self, error: anyhow::Error) -> Result<()> {
        if fault::is_lasting(&error) {
            return Err(error);
        }
        let now = Instant::now();
        let text = fault::sentence(&error);
        let since = match &self.trouble {
            Some((since, known)) => {
                if *known != text {
                    (self.tell)(News::Note(&text));
                }
                *since
            }
            None => {
                (self.tell)(News::Note(&text));
                now
            }
        };
        self.trouble = Some((since, text));
        let lost_patience = now - since > PATIENCE;
        if lost_patience || (self.leaving.is_some() && now - since > self.time.grace) {
            return Err(error);
        }
        Ok(())
    }

    /// Whether the tree is out of reach.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// The tree is back, if it was away.
    pub(super) fn out_of_trouble(&mut self) {
        if self.leaving.is_none() && self.trouble.take().is_some() {
            (self.tell)(News::Note("the results tree is back"));
        }
    }

    fn is_endgame(&self) -> bool {
        self.membership.open() == 0
    }

    /// How long nothing may be looked at while nothing happens.
    pub(super) fn longest_nap(&self) -> Duration {
        Duration::from_millis(if self.is_endgame() { 250 } else { 1000 })
    }

    /// The time until the next heartbeat is due, or, if a trial `can_begin`, until the pause of one is over.
    pub(super) fn until_due(&self, can_begin: bool) -> Duration {
        let now = Instant::now();
        let later = self.later.iter().filter(|_| can_begin);
        let later = later.map(|later| later.at.saturating_duration_since(now)).min();
        let beat = self.membership.next_beat();
        later.map_or(beat, |later| later.min(beat))
    }
}
