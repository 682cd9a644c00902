//! Records: the events of a trial's attempts, and what they add up to.
//!
//! Each worker process that takes up a trial creates `records/<shard>/<trial>.<run>.jsonl` exclusively
//! and is its only writer; attempts within one run share the file. Reading never needs the writer.

use serde::{Deserialize, Serialize};

use super::line;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The command returned 0.
    Done,
    /// It returned another code, was killed by a signal of its own, or could not be started.
    Failed,
    /// It ran into the trial's wall-clock limit.
    Timeout,
    /// The worker was told to stop (Ctrl-C, the scheduler) before the command had ended.
    Interrupted,
}

/// What became of a trial whose chain does not go on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// It ended without success.
    Ended(Outcome),
    /// It was skipped itself.
    Skipped,
    /// It has not begun.
    Unrun,
    /// It began, and left no end.
    NoEnd,
    /// Its record says done; the scheduler says otherwise.
    Doubtful,
}

impl Break {
    /// Why the trials behind `trial` in its chain are skipped, whoever says so.
    pub fn reason(self, trial: u64) -> String {
        let what = match self {
            Self::Ended(Outcome::Done) => "is done",
            Self::Ended(Outcome::Failed) => "failed",
            Self::Ended(Outcome::Timeout) => "ran into its walltime",
            Self::Ended(Outcome::Interrupted) => "was interrupted",
            Self::Skipped => "was skipped",
            Self::Unrun => "has not run",
            Self::NoEnd => "left no end",
            Self::Doubtful => "is doubtful",
        };
        format!("its chain stopped: trial {trial} {what}")
    }
}

/// The place and environment of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Trial number.
    pub trial: u64,
    /// Attempt, from 1, counted over all runs.
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// Host of rank 0.
    pub host: String,
    /// Process id of the worker of rank 0.
    pub pid: u32,
    /// When that process was started, in clock ticks since boot: tells it from a later one.
    pub started: Option<u64>,
    /// The scheduler's job id (with its array index), if there is one.
    pub job: Option<String>,
    /// Number of ranks.
    pub ranks: u32,
    /// The argument vector that runs.
    pub argv: Vec<String>,
    /// CUDA_VISIBLE_DEVICES of rank 0, where the worker set it.
    pub devices: Option<String>,
    /// Version of the worker.
    pub version: String,
    /// How many entries the ledger of agents had: whose attempt came first where agents have run the trial too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seq: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Trial number.
    pub trial: u64,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Unix seconds.
    pub time: f64,
    /// How it ended.
    pub state: Outcome,
    /// The command's exit code, 128 + signal when a signal killed it; absent if it never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// Why, in words, where the code does not say it.
    pub reason: Option<String>,
    /// Seconds the command ran.
    pub duration_s: f64,
    /// Largest resident set of a process of rank 0, bytes.
    pub peak_memory: u64,
    /// The optional final result the command left.
    pub result: Option<serde_json::Value>,
}

impl End {
    /// Why it ended as it did: signal or exit code of a failure, and what more there is to say; empty
    /// after success.
    pub fn why(&self) -> String {
        why(Some(self), self.reason.clone())
    }
}

fn why(end: Option<&End>, words: Option<String>) -> String {
    let code = end.and_then(|end| code_of(end.state, end.signal, end.exit_code));
    code.into_iter().chain(words).collect::<Vec<_>>().join(": ")
}

/// Signal or exit code of a program that ended by itself, and not well.
pub(super) fn code_of(
    state: Outcome,
    signal: Option<i32>,
    exit_code: Option<i32>,
) -> Option<String> {
    if matches!(state, Outcome::Interrupted | Outcome::Timeout) {
        return None;
    }
    match (signal, exit_code) {
        (Some(signal), _) => Some(signal_text(signal)),
        (None, Some(code)) if code != 0 => Some(format!("exit code {code}")),
        _ => None,
    }
}

/// A signal by its number and name: `signal 11 (SIGSEGV)`.
pub fn signal_text(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => format!("signal {number} ({signal})"),
        // One of the nameless real-time signals.
        Err(_) => format!("signal {number}"),
    }
}

/// One line of a record file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// An attempt begins.
    Start(Start),
    /// Lines the command appended to its metrics file since the last such event.
    Metrics {
        /// Trial number.
        trial: u64,
        /// Attempt, from 1.
        attempt: u32,
        /// One object a line; `rank` is added when there are several.
        rows: Vec<serde_json::Map<String, serde_json::Value>>,
    },
    /// The worker was told to stop the attempt, or its time was over: written before the command is
    /// asked to end, so that the reason stands even if the worker is killed next.
    Stop {
        /// Trial number.
        trial: u64,
        /// Attempt, from 1.
        attempt: u32,
        /// Unix seconds.
        time: f64,
        /// What the attempt counts as if nothing follows.
        state: Outcome,
        /// Who asked, in words.
        reason: String,
    },
    /// An attempt has ended.
    End(End),
    /// The worker of the trial found that its chain had stopped before it.
    Skip {
        /// Trial number.
        trial: u64,
        /// Unix seconds.
        time: f64,
        /// The scheduler's job id, if there is one.
        job: Option<String>,
        /// What became of the trial before it, in words.
        reason: String,
        /// As that of a start.
        #[serde(default, skip_serializing_if = "is_zero")]
        seq: u64,
    },
}

/// The job or array that a job id is of: `12` of Slurm's `12_7`, `5[].srv` of PBS's `5[3].srv`.
pub fn array_of(job: &str) -> String {
    match (job.split_once('['), job.split_once(']')) {
        (Some((number, _)), Some((_, server))) => format!("{number}[]{server}"),
        _ => match job.split_once('_') {
            // A server's name may hold `_` too.
            Some((number, _)) if number.bytes().all(|b| b.is_ascii_digit()) => number.to_owned(),
            _ => job.to_owned(),
        },
    }
}

/// One attempt, put together from its events.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// How it began.
    pub start: Start,
    /// How it ended; `None` while it runs, or if its worker was killed.
    pub end: Option<End>,
    /// What it counts as if it has no end: it was told to stop.
    pub stopped: Option<(Outcome, String)>,
    /// Its metric lines, in order.
    pub metrics: Vec<serde_json::Map<String, serde_json::Value>>,
    /// Which run (worker process) of the trial it belongs to; 0 where an agent has run it.
    pub run: u32,
    /// Where an agent has recorded it.
    pub bundle: Option<super::bundle::Place>,
}

impl Attempt {
    /// Whether it ran in this job of a scheduler, or in an element of that array.
    pub fn is_of_job(&self, job: &str) -> bool {
        let own = self.start.job.as_deref();
        own.is_some_and(|own| own == job || array_of(own) == array_of(job))
    }

    /// How it ended; `None` while it runs, or if its worker was killed without a word.
    pub fn outcome(&self) -> Option<Outcome> {
        let end = self.end.as_ref().map(|end| end.state);
        end.or_else(|| self.stopped.as_ref().map(|(state, _)| *state))
    }

    /// As [`End::why`]; of an attempt without an end, why it was told to stop.
    pub fn why(&self) -> String {
        let end = self.end.as_ref().and_then(|end| end.reason.clone());
        let words = end.or_else(|| self.stopped.as_ref().map(|(_, reason)| reason.clone()));
        why(self.end.as_ref(), words)
    }
}

/// All that is recorded of a trial.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// In the order in which they began.
    pub attempts: Vec<Attempt>,
    /// Why it was not run when its turn came; `None` once an attempt has begun.
    pub skipped: Option<String>,
    /// How many entries the ledger of agents had then.
    pub skipped_at: u64,
    /// Lines that were torn or damaged.
    pub torn: usize,
}

impl Record {
    /// The attempt that counts: the first that is done, otherwise the last that has lost to no other.
    pub fn decisive(&self) -> Option<&Attempt> {
        let done = |a: &&Attempt| a.end.as_ref().is_some_and(|e| e.state == Outcome::Done);
        let has_lost = |a: &&Attempt| a.bundle.as_ref().is_some_and(|place| place.lost);
        let last = || self.attempts.iter().rfind(|a| !has_lost(a)).or(self.attempts.last());
        self.attempts.iter().find(done).or_else(last)
    }

    /// How many attempts were begun: a trial may be given up without another one.
    pub fn begun(&self) -> usize {
        let was_begun = |a: &&Attempt| a.bundle.as_ref().is_none_or(|place| place.begun);
        self.attempts.iter().filter(was_begun).count()
    }

    /// How the trial stands: `None` while an attempt is open (or none was made).
    pub fn outcome(&self) -> Option<Outcome> {
        self.decisive()?.outcome()
    }

    /// Whether its job may still try it again: the last attempt failed, and its run has not used up
    /// the attempts it is allowed.
    pub fn may_go_on(&self, allowed: u32) -> bool {
        let Some(last) = self.attempts.last() else { return false };
        let used = self.attempts.iter().filter(|a| a.run == last.run).count();
        self.outcome() == Some(Outcome::Failed) && used < allowed as usize
    }

    /// Whether nobody will run the trial again by himself that was dealt when the ledger had so many entries:
    /// what was begun before was so before it was asked for again.
    pub fn is_over(&self, dealt: u64) -> bool {
        let since = |seq: u64| seq > dealt;
        // Whoever else has begun it did so when it was in nobody's hands.
        if self.attempts.last().is_some_and(|a| a.bundle.is_none() && since(a.start.seq)) {
            return true;
        }
        let decisive = self.decisive();
        let done = self.outcome() == Some(Outcome::Done);
        let last = decisive.and_then(|a| a.bundle.as_ref()).is_some_and(|place| place.last);
        let ended = decisive.is_some_and(|a| a.end.is_some() && since(a.start.seq));
        done || (last && ended) || (self.skipped.is_some() && since(self.skipped_at))
    }

    fn take(&mut self, run: u32, bytes: &[u8]) {
        let (events, torn) = line::read::<Event>(bytes);
        self.torn += torn;
        for event in events {
            match event {
                Event::Skip { reason, seq, .. } => {
                    (self.skipped, self.skipped_at) = (Some(reason), seq);
                }
                Event::Start(start) => {
                    self.skipped = None;
                    let stopped = None;
                    self.attempts.push(Attempt {
                        start,
                        end: None,
                        stopped,
                        metrics: Vec::new(),
                        run,
                        bundle: None,
                    });
                }
                Event::Metrics { attempt, rows, .. } => {
                    if let Some(a) = self.open(run, attempt) {
                        a.metrics.extend(rows);
                    }
                }
                Event::Stop { attempt, state, reason, .. } => {
                    if let Some(a) = self.open(run, attempt) {
                        a.stopped = Some((state, reason));
                    }
                }
                Event::End(end) => {
                    if let Some(a) = self.open(run, end.attempt) {
                        a.end = Some(end);
                    }
                }
            }
        }
    }

    /// Adds what another file says of the same trial. What others have done meanwhile goes by what each had
    /// read of the ledger, not by anybody's clock.
    pub(super) fn add(&mut self, other: Self) {
        self.torn += other.torn;
        if other.skipped.is_some()
            && (self.skipped.is_none() || other.skipped_at >= self.skipped_at)
        {
            (self.skipped, self.skipped_at) = (other.skipped, other.skipped_at);
        }
        if !self.attempts.is_empty() && !other.attempts.is_empty() {
            self.attempts.extend(other.attempts);
            // Agents have nothing in hand when a worker of another kind begins.
            self.attempts.sort_by_key(|a| (a.start.seq, a.bundle.is_none()));
        } else {
            self.attempts.extend(other.attempts);
        }
        if self.attempts.last().is_some_and(|last| last.start.seq > self.skipped_at) {
            self.skipped = None;
        }
    }

    fn open(&mut self, run: u32, attempt: u32) -> Option<&mut Attempt> {
        self.attempts.iter_mut().rfind(|a| a.run == run && a.start.attempt == attempt)
    }
}

mod read;

pub use read::{all, of_trial, of_workers};

#[cfg(test)]
mod tests {
    use super::array_of;

    #[test]
    fn an_element_knows_its_array() {
        for (job, array) in [
            ("12_7", "12"),
            ("12", "12"),
            ("5[3].pbs_head.site", "5[].pbs_head.site"),
            ("5[].s", "5[].s"),
            ("6.pbs_head", "6.pbs_head"),
        ] {
            assert_eq!(array_of(job), array);
        }
    }
}
