//! What agents have recorded, in a few bytes a trial: pure, fed with lines as they come.
//!
//! The model keeps every end that may count with its place in its agent's bundle. When a frame is made, the
//! ledger at that time decides whether the end counts. So nothing has to be taken back when an agent's lease
//! expires later, or another end of the same trial wins. Neither the order in which bundles are read nor the size
//! of the pieces matters.

mod sight;

use std::collections::{HashMap, VecDeque};

use super::MOST_ROWS;
use super::best::{Choice, Logged};
use super::gpus::{self, Gpus};
use super::trace::Trace;
use crate::answers::collect::Goal;
use crate::base::cause::Cause;
use crate::sweep::standing::State;
use crate::sweep::tree::bundle::Placed;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::records::{self, Event, Outcome, Start};
use crate::sweep::tree::terms::Dropped;

/// The end of a trial: 40 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    /// The length of the bundle behind it.
    at: u64,
    time: f64,
    seconds: f32,
    agent: u32,
    /// How many entries of the ledger its agent had read when it began.
    seq: u32,
    /// Its metric; NaN if it has none.
    value: f32,
    attempt: u16,
    /// Why it ended without success.
    cause: Option<Cause>,
    kind: Kind,
    /// Whether there are others of this trial.
    several: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// There is no end.
    #[default]
    None,
    Done,
    Failed,
    Timeout,
    Interrupted,
    Skipped,
}

impl Kind {
    fn state(self) -> State {
        match self {
            Self::None => State::Queued,
            Self::Done => State::Done,
            Self::Failed => State::Failed,
            Self::Timeout => State::Timeout,
            Self::Interrupted => State::Interrupted,
            Self::Skipped => State::Skipped,
        }
    }
}

/// As it is kept: there are never billions of entries.
fn short(seq: u64) -> u32 {
    u32::try_from(seq).unwrap_or(u32::MAX)
}

/// As it is kept: there are never so many attempts.
fn few(attempt: u32) -> u16 {
    u16::try_from(attempt).unwrap_or(u16::MAX)
}

impl From<Outcome> for Kind {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Failed => Self::Failed,
            Outcome::Timeout => Self::Timeout,
            Outcome::Interrupted => Self::Interrupted,
        }
    }
}

/// A trial that runs, according to its agent's bundle.
#[derive(Debug)]
struct Open {
    attempt: u32,
    seq: u64,
    since: f64,
    gpus: Gpus,
    trace: Trace,
    logged: Logged,
}

/// Why a trial failed; kept of the last ones alone.
#[derive(Debug)]
struct Told {
    at: u64,
    host: Option<String>,
    reason: String,
}

#[derive(Debug, Default)]
struct Agent {
    name: String,
    host: String,
    began: Option<f64>,
    open: HashMap<u64, Open>,
    told: VecDeque<Told>,
    sign: Option<Sign>,
}

impl Agent {
    /// Seconds since its last heartbeat.
    fn seen_s(&self, now: f64) -> Option<f64> {
        self.sign.map(|sign| (now - sign.changed.unwrap_or(sign.modified)).max(0.0))
    }

    fn is_silent(&self, now: f64, patience_s: f64) -> bool {
        self.seen_s(now).is_some_and(|seen| seen > patience_s)
    }
}

/// The file time of a bundle.
#[derive(Debug, Clone, Copy)]
struct Sign {
    modified: f64,
    /// When it was seen to have changed, by our own clock.
    changed: Option<f64>,
}

/// The end of a trial that no agent has run, from its own record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Elsewhere {
    pub(crate) trial: u64,
    /// How the attempt that counts ended.
    pub(crate) state: Outcome,
    /// When that was, unix seconds; the attempt's start if it left no end.
    pub(crate) time: f64,
    /// How many entries the ledger had when it began.
    pub(crate) seq: u64,
    /// Seconds that attempt took; 0 if it left no end.
    pub(crate) duration_s: f64,
    pub(crate) host: String,
    /// Why it ended without success, in words; empty after success.
    pub(crate) reason: String,
    /// Why, in one word.
    pub(crate) cause: Option<Cause>,
}

/// A trial of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dealt {
    pub(crate) trial: u64,
    pub(crate) unit: u64,
    /// How many entries the ledger had when it was enqueued.
    pub(crate) seq: u64,
}

/// A sweep that agents run.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) ledger: Ledger,
    /// An agent may give no sign for so long, seconds.
    pub(crate) patience_s: f64,
    /// Trials that the plan no longer has.
    pub(crate) dropped: Dropped,
    /// Those of them that were enqueued for agents: an agent that holds one runs it.
    pub(crate) dealt: Vec<Dealt>,
    /// The metric of the best trial.
    choice: Choice,
    name: String,
    trials: u64,
    agents: Vec<Agent>,
    numbers: HashMap<String, u32>,
    ends: Vec<End>,
    more: HashMap<u64, Vec<End>>,
    began: Option<f64>,
}

impl Model {
    /// A sweep of which nothing has been read yet.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), patience_s: f64::INFINITY, ..Self::default() }
    }

    /// Trials are compared by this metric.
    pub(crate) fn compare_by(&mut self, wish: Option<&(String, Goal)>) {
        self.choice = Choice::new(wish);
    }

    /// The sweep has so many trials.
    pub(crate) fn has_trials(&mut self, trials: u64) {
        self.trials = self.trials.max(trials);
        self.ends.reserve_exact((self.trials as usize).saturating_sub(self.ends.len()));
    }

    /// How many it has according to its head.
    pub(crate) fn trials(&self) -> u64 {
        self.trials
    }

    /// Takes lines of an agent's bundle into account: each once, in the order of the file.
    pub(crate) fn feed(&mut self, agent: &str, lines: Vec<Placed>) {
        let number = self.number(agent);
        for (at, line) in lines {
            let agent = &mut self.agents[number as usize];
            match line {
                Event::Agent(who) => (agent.host, agent.began) = (who.host, Some(who.time)),
                Event::Start(Start { trial, attempt, time, seq, .. }) => {
                    let open = Open {
                        attempt,
                        seq,
                        since: time,
                        gpus: Gpus::new(),
                        trace: Trace::default(),
                        logged: Logged::new(),
                    };
                    agent.open.insert(trial, open);
                    self.began = Some(self.began.map_or(time, |began| began.min(time)));
                }
                Event::Metrics { trial, attempt, rows } => {
                    if let Some(open) = agent.open.get_mut(&trial).filter(|o| o.attempt == attempt)
                    {
                        gpus::take(&mut open.gpus, &rows);
                        open.trace.take(&rows);
                        self.choice.take(&mut open.logged, &rows);
                    }
                }
                Event::Stop { .. } | Event::Decided(_) => {}
                Event::End(end) => self.end(number, at, &end),
                Event::Skip { trial, time, seq, .. } => {
                    let (kind, seq) = (Kind::Skipped, short(seq));
                    self.keep(trial, End { at, time, agent: number, kind, seq, ..End::default() });
                }
            }
        }
    }

    fn end(&mut self, number: u32, at: u64, end: &records::End) {
        let agent = &mut self.agents[number as usize];
        let is_open = agent.open.get(&end.trial).is_some_and(|open| open.attempt == end.attempt);
        let open = is_open.then(|| agent.open.remove(&end.trial)).flatten();
        let (seq, logged) = open.map(|open| (open.seq, open.logged)).unzip();
        let seq = seq.or(end.seq).unwrap_or(0);
        // It will be tried again.
        if !end.last {
            return;
        }
        if end.state != Outcome::Done {
            agent.tell(Told { at, host: None, reason: end.why() });
        }
        let (value, cause) = match end.state {
            Outcome::Done => {
                (self.choice.value(logged.unwrap_or_default(), end.result.as_ref()), None)
            }
            _ => (f32::NAN, end.cause()),
        };
        self.keep(
            end.trial,
            End {
                value,
                cause,
                at,
                time: end.time,
                seconds: end.duration_s as f32,
                agent: number,
                seq: short(seq),
                attempt: few(end.attempt),
                kind: end.state.into(),
                several: false,
            },
        );
    }

    fn keep(&mut self, trial: u64, end: End) {
        let place = trial as usize;
        if self.ends.len() <= place {
            self.ends.resize(place + 1, End::default());
        }
        let first = &mut self.ends[place];
        if first.kind == Kind::None {
            *first = end;
        } else {
            first.several = true;
            self.more.entry(trial).or_default().push(end);
        }
    }

    /// Trials that ended before agents came, by trial.
    pub(crate) fn elsewhere(&mut self, ended: Vec<Elsewhere>) {
        // No agent of the ledger has this name.
        let number = self.number("");
        for end in ended {
            let (at, time) = (end.trial + 1, end.time);
            if end.state != Outcome::Done {
                let host = Some(end.host);
                self.agents[number as usize].tell(Told { at, host, reason: end.reason });
            }
            let (seconds, kind, seq) = (end.duration_s as f32, end.state.into(), short(end.seq));
            let (value, cause) = (f32::NAN, end.cause);
            let end =
                End { at, time, seconds, agent: number, kind, seq, value, cause, ..End::default() };
            self.keep(at - 1, end);
        }
    }

    /// The file time of an agent's bundle, as seen at `now`; both seconds since 1970, perhaps by two clocks.
    pub(crate) fn seen(&mut self, agent: &str, modified: f64, now: f64) {
        let number = self.number(agent);
        let sign = &mut self.agents[number as usize].sign;
        match sign {
            Some(sign) if sign.modified == modified => {}
            Some(sign) => *sign = Sign { modified, changed: Some(now) },
            None => *sign = Some(Sign { modified, changed: None }),
        }
    }

    fn number(&mut self, agent: &str) -> u32 {
        if let Some(number) = self.numbers.get(agent) {
            return *number;
        }
        let number = self.agents.len() as u32;
        self.agents.push(Agent { name: agent.to_owned(), ..Agent::default() });
        self.numbers.insert(agent.to_owned(), number);
        number
    }
}

impl Agent {
    fn tell(&mut self, told: Told) {
        if self.told.len() == MOST_ROWS {
            self.told.pop_front();
        }
        self.told.push_back(told);
    }
}

#[cfg(test)]
mod tests;
