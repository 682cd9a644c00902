//! Records: the events of a trial's attempts, and what they add up to.
//!
//! Each worker process that takes up a trial creates `records/<shard>/<trial>.<run>.jsonl` exclusively
//! and is its only writer; attempts within one run share the file. Reading never needs the writer.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Tree;
use super::line::{self, Spot};
use crate::base::cause::Cause;
use crate::cluster::scheduler::job::array_of;

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
    /// The worker was asked to stop (Ctrl-C, the scheduler) before the command had ended.
    Interrupted,
}

/// The fate of a trial after which its chain does not continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
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
    /// Why the trials after `trial` in its chain are skipped. All commands use these words.
    pub(crate) fn reason(self, trial: u64) -> String {
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

/// The member of a row among the metric lines that says how many lines of the program could not be read. A worker
/// adds such a row; no program does.
pub const UNREAD: &str = "hpcsweep.unread_lines";

/// Where an attempt stands in a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name of the agent whose bundle it is.
    pub agent: String,
    pub(crate) slot: u32,
    /// Whether it was begun, and not only given up.
    pub(crate) begun: bool,
    /// Whether another run of the trial at the same time has won.
    pub lost: bool,
    /// Its output in the agent's log: offset and length, bytes.
    pub(crate) log: Option<(u64, u64)>,
    /// Whether its end counts, and the trial runs again only on request.
    pub last: bool,
}

/// One attempt, put together from its events.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// How it began: time, place and command.
    pub start: Start,
    /// How it ended; `None` while it runs, or if its worker was killed.
    pub end: Option<End>,
    /// Its state if it has no end: it was asked to stop.
    pub(crate) stopped: Option<(Outcome, String)>,
    /// When it was asked to, unix seconds.
    pub(crate) stopped_at: Option<f64>,
    /// Whether its agent was lost before it had an end.
    pub(crate) is_orphan: bool,
    /// Where its metric lines stand in the file that has recorded it, in order.
    pub(crate) metrics: Vec<Spot>,
    /// Metric lines of its program that could not be read.
    pub(crate) unread: u64,
    /// Which run (worker process) of the trial it belongs to; 0 where an agent has run it.
    pub(crate) run: u32,
    /// Where an agent has recorded it.
    pub bundle: Option<Place>,
    /// Why it ended, where its record does not say so and a submission has written it down.
    pub(crate) told: Option<Told>,
}

/// Why an attempt ended, by its scheduler or the log of its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) cause: Cause,
    /// In words; empty where those of the record say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

impl Attempt {
    /// Whether it has ended without a metric or a result.
    pub(crate) fn is_silent(&self) -> bool {
        self.metrics.is_empty() && self.end.as_ref().is_some_and(|end| end.result.is_none())
    }

    /// Whether it ran in this job of a scheduler, or in an element of that array.
    pub fn is_of_job(&self, job: &str) -> bool {
        let own = self.start.job.as_deref();
        own.is_some_and(|own| own == job || array_of(own) == array_of(job))
    }

    /// How it ended; `None` while it runs, or if its worker was killed before it recorded the end.
    pub fn outcome(&self) -> Option<Outcome> {
        let end = self.end.as_ref().map(|end| end.state);
        end.or_else(|| self.stopped.as_ref().map(|(state, _)| *state))
    }

    /// An attempt of which only the start is known.
    pub(crate) fn begun(start: Start, run: u32, bundle: Option<Place>) -> Self {
        Self {
            start,
            end: None,
            stopped: None,
            stopped_at: None,
            is_orphan: false,
            metrics: Vec::new(),
            unread: 0,
            run,
            bundle,
            told: None,
        }
    }

    /// Takes note of a line with metrics.
    pub(super) fn has_rows(&mut self, spot: Spot, line: &[u8]) {
        self.metrics.push(spot);
        self.unread += unread_in(line);
    }

    /// Whether it has recorded its end, and that it is done.
    pub(crate) fn is_done(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.state == Outcome::Done)
    }

    /// Seconds its program ran, as far as it is known.
    pub fn duration_s(&self) -> Option<f64> {
        let stopped = || self.stopped_at.map(|at| (at - self.start.time).max(0.0));
        self.end.as_ref().map(|end| end.duration_s).or_else(stopped)
    }

    /// The file that has recorded it.
    fn file(&self, tree: &Tree) -> PathBuf {
        match &self.bundle {
            Some(place) => tree.agent_file(&place.agent, "jsonl"),
            None => tree.record(self.start.trial, self.run),
        }
    }

    /// Calls `with` for its metric lines, in order, those of one event in memory at a time; without those that count
    /// what could not be read.
    ///
    /// # Errors
    /// When the file cannot be read, or has changed since it was.
    pub fn each_row(&self, tree: &Tree, with: impl FnMut(Map<String, Value>)) -> Result<()> {
        self.each_row_in(Origin::Tree(tree), with)
    }

    /// As [`Attempt::each_row`], of lines that may be in memory.
    ///
    /// # Errors
    /// As [`Attempt::each_row`].
    pub(crate) fn each_row_in(
        &self,
        from: Origin<'_>,
        mut with: impl FnMut(Map<String, Value>),
    ) -> Result<()> {
        self.each_row_of(from, &self.metrics, &mut with)
    }

    /// As [`Attempt::each_row`], of the newest `most` events alone.
    ///
    /// # Errors
    /// As [`Attempt::each_row`].
    pub(crate) fn each_new_row(
        &self,
        tree: &Tree,
        most: usize,
        mut with: impl FnMut(Map<String, Value>),
    ) -> Result<()> {
        let from = self.metrics.len().saturating_sub(most);
        self.each_row_of(Origin::Tree(tree), &self.metrics[from..], &mut with)
    }

    fn each_row_of(
        &self,
        from: Origin<'_>,
        spots: &[Spot],
        with: &mut dyn FnMut(Map<String, Value>),
    ) -> Result<()> {
        self.each_event_of(from, spots, &mut |rows| {
            rows.into_iter().filter(|row| !row.contains_key(UNREAD)).for_each(&mut *with);
            Ok(())
        })
    }

    /// Calls `with` for the lines of each event with metric lines, in order, those included that count what could not be
    /// read.
    ///
    /// # Errors
    /// As [`Attempt::each_row`], and what `with` returns.
    pub(crate) fn each_event(
        &self,
        tree: &Tree,
        mut with: impl FnMut(Vec<Map<String, Value>>) -> Result<()>,
    ) -> Result<()> {
        self.each_event_of(Origin::Tree(tree), &self.metrics, &mut with)
    }

    fn each_event_of(
        &self,
        from: Origin<'_>,
        spots: &[Spot],
        with: &mut dyn FnMut(Vec<Map<String, Value>>) -> Result<()>,
    ) -> Result<()> {
        if spots.is_empty() {
            return Ok(());
        }
        let mut lines = from.lines(self)?;
        for spot in spots {
            let event: Option<Rows> = line::unseal(lines.read(*spot)?);
            with(event.ok_or_else(|| super::numbers::damaged(&lines.path()))?.rows)?;
        }
        Ok(())
    }

    /// Why it ended without success, as recorded; by its outcome, if an older worker has recorded it or it has no end.
    pub fn cause(&self) -> Option<Cause> {
        if let Some(end) = &self.end {
            return end.cause();
        }
        match self.outcome()? {
            Outcome::Done => None,
            Outcome::Timeout => Some(Cause::Walltime),
            Outcome::Interrupted if self.is_orphan => Some(Cause::WorkerLost),
            Outcome::Interrupted => Some(Cause::Stopped),
            Outcome::Failed => Some(Cause::Unknown),
        }
    }

    /// As [`End::why`]; for an attempt without an end, why it was asked to stop, or what others said of it.
    pub fn why(&self) -> String {
        let end = self.end.as_ref().and_then(|end| end.reason.clone());
        let is_done = self.outcome() == Some(Outcome::Done);
        let stop = |(_, reason): &(Outcome, String)| match is_done {
            true => format!("it had left its result before it was stopped: {reason}"),
            false => reason.clone(),
        };
        let told = self.told.as_ref().map(|told| told.reason.clone());
        let words = end.or_else(|| self.stopped.as_ref().map(stop)).or(told);
        why(self.end.as_ref(), words)
    }
}

/// All that is recorded of a trial.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// In the order in which they began.
    pub attempts: Vec<Attempt>,
    /// Why it was not run when its turn came; `None` once an attempt has begun.
    pub(crate) skipped: Option<String>,
    /// How many entries the ledger of agents had then.
    pub(crate) skipped_at: u64,
    /// What agents have decided by `[retry]`, in the order of the attempts.
    pub(crate) decisions: Vec<Decided>,
    /// What a reader has noted of its metric lines, if the index has that.
    pub(crate) note: Option<Box<[u8]>>,
}

impl Record {
    /// The attempt that counts: the first that is done, otherwise the last that has lost to no other.
    pub fn decisive(&self) -> Option<&Attempt> {
        let has_lost = |a: &&Attempt| a.bundle.as_ref().is_some_and(|place| place.lost);
        let last = || self.attempts.iter().rfind(|a| !has_lost(a)).or(self.attempts.last());
        self.attempts.iter().find(|a| a.is_done()).or_else(last)
    }

    /// How many attempts were begun: a trial may be given up without another one.
    pub fn begun(&self) -> usize {
        let was_begun = |a: &&Attempt| a.bundle.as_ref().is_none_or(|place| place.begun);
        self.attempts.iter().filter(was_begun).count()
    }

    /// Whether an attempt began at this time, unix seconds, or later.
    pub(crate) fn has_begun_since(&self, time: f64) -> bool {
        self.attempts.iter().any(|own| own.start.time >= time)
    }

    /// Whether an attempt began between these times, unix seconds.
    pub(crate) fn has_begun_within(&self, from: f64, to: f64) -> bool {
        self.attempts.iter().any(|own| from < own.start.time && own.start.time < to)
    }

    /// Why an attempt ended without success, as far as the records and submissions say it: one that its job ran again was given back
    /// to the queue, and one without an end before another was lost with its worker.
    pub(crate) fn cause_of(&self, place: usize) -> Option<Cause> {
        let attempt = &self.attempts[place];
        let next = self.attempts.get(place + 1);
        let is_same_job = next
            .is_some_and(|next| next.start.job.is_some() && next.start.job == attempt.start.job);
        let told = attempt.told.as_ref().map(|told| told.cause);
        match told.or(attempt.cause()) {
            Some(Cause::Stopped) if is_same_job => Some(Cause::Requeued),
            None if attempt.end.is_none() && next.is_some() => Some(Cause::WorkerLost),
            cause => cause,
        }
    }

    /// The word for how an attempt ended: that of its outcome, or `lost` if another one has begun without it. `None`
    /// for the last one if it has recorded no end.
    pub(crate) fn state_of(&self, place: usize) -> Option<String> {
        let outcome = self.attempts[place].outcome();
        let lost = (place + 1 < self.attempts.len()).then(|| "lost".to_owned());
        outcome.map(|state| format!("{state:?}").to_lowercase()).or(lost)
    }

    /// Metric lines of its program, in all attempts, that could not be read.
    pub fn unread(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.unread).sum()
    }

    /// Whether nothing says that the trial has ended or does not run.
    pub(crate) fn is_open(&self) -> bool {
        self.outcome().is_none() && self.skipped.is_none()
    }

    /// How the trial stands: `None` while an attempt is open (or none was made).
    pub fn outcome(&self) -> Option<Outcome> {
        self.decisive()?.outcome()
    }

    /// Whether it has ended, and not well.
    pub(crate) fn is_without_success(&self) -> bool {
        self.skipped.is_some() || !matches!(self.outcome(), None | Some(Outcome::Done))
    }

    /// Whether it has ended without success and runs again only on request, as agents record with an end.
    pub(crate) fn has_failed(&self) -> bool {
        let is_bad = matches!(self.outcome(), Some(Outcome::Failed | Outcome::Timeout));
        let place = self.decisive().and_then(|attempt| attempt.bundle.as_ref());
        is_bad && place.is_none_or(|place| place.last)
    }

    /// Whether its job may still try it again: the last attempt failed, and its run has not used up
    /// the attempts it is allowed.
    pub(crate) fn may_go_on(&self, allowed: u32) -> bool {
        let Some(last) = self.attempts.last() else { return false };
        let used = self.attempts.iter().filter(|a| a.run == last.run).count();
        self.outcome() == Some(Outcome::Failed) && used < allowed as usize
    }

    /// Whether a trial that was enqueued when the ledger had so many entries runs again only on request: runs
    /// that began before belong to an earlier request.
    pub fn is_over(&self, dealt: u64) -> bool {
        let since = |seq: u64| seq > dealt;
        // Another process that has begun the trial did so when no agent held it.
        if self.attempts.last().is_some_and(|a| a.bundle.is_none() && since(a.start.seq)) {
            return true;
        }
        let decisive = self.decisive();
        let done = self.outcome() == Some(Outcome::Done);
        let last = decisive.and_then(|a| a.bundle.as_ref()).is_some_and(|place| place.last);
        let ended = decisive.is_some_and(|a| a.end.is_some() && since(a.start.seq));
        done || (last && ended) || (self.skipped.is_some() && since(self.skipped_at))
    }

    /// Whether it was skipped, and has no result.
    pub(crate) fn is_skipped(&self) -> bool {
        self.skipped.is_some() && self.outcome().is_none()
    }

    /// Why it did not run again by itself; `None` where it has begun since, or where that was not to be decided.
    pub(crate) fn left(&self) -> Option<&str> {
        let last = self.decisions.last().filter(|last| !last.again)?;
        (!self.has_run_after(last)).then_some(&last.why)
    }

    /// Whether it has begun after a decision of an agent.
    pub(crate) fn has_run_after(&self, decided: &Decided) -> bool {
        match decided.attempt {
            0 => self.has_begun_since(decided.time),
            // Agents count attempts anew for each deck: their order is that of the ledger.
            attempt => self
                .attempts
                .iter()
                .any(|own| (own.start.seq, own.start.attempt) > (decided.seq, attempt)),
        }
    }

    /// Adds an attempt. Most trials have one, and a vector would begin with room for four.
    pub(super) fn begin(&mut self, attempt: Attempt) {
        if self.attempts.is_empty() {
            self.attempts.reserve_exact(1);
        }
        self.attempts.push(attempt);
    }

    /// Adds the data of another file about the same trial. The order follows from what each agent had read of
    /// the ledger, not from clocks.
    pub(super) fn add(&mut self, other: Self) {
        // It is of some of its attempts now.
        self.note = None;
        if other.skipped.is_some()
            && (self.skipped.is_none() || other.skipped_at >= self.skipped_at)
        {
            (self.skipped, self.skipped_at) = (other.skipped, other.skipped_at);
        }
        if !other.decisions.is_empty() {
            self.decisions.extend(other.decisions);
            self.decisions.sort_by_key(|decided| decided.seq);
        }
        if !self.attempts.is_empty() && !other.attempts.is_empty() {
            self.attempts.extend(other.attempts);
            // Agents have nothing in hand when a worker of another kind begins.
            self.attempts.sort_by_key(|a| (a.start.seq, a.bundle.is_none()));
        } else if self.attempts.is_empty() {
            self.attempts = other.attempts;
        }
        if self.attempts.last().is_some_and(|last| last.start.seq > self.skipped_at) {
            self.skipped = None;
        }
    }
}

mod agents;
mod assemble;
mod bundles;
mod by_trial;
mod event;
pub(crate) mod index;
mod kept;
mod origin;
mod packed;
mod read;
mod strangers;
mod usage;

pub(super) use assemble::Source;
pub(super) use bundles::of_bundles;
pub(crate) use by_trial::ByTrial;
pub(super) use event::has_metrics;
pub use event::{Decided, End, Event, Start, Who, Whole, signal_text};
use event::{Rows, unread_in, why};
pub(crate) use origin::Origin;

pub use usage::{EnergySource, GpuUsage, MemorySource, Usage, Used};

pub use packed::unpacked;
pub(crate) use packed::{In, Out};
pub(super) use read::last_trial;
pub(crate) use read::{SweepRecords, briefly, gathered, indexed};
pub use read::{all, file, lines_before, of_trial, of_workers, readable};

#[cfg(test)]
mod tests {
    use super::{Attempt, Decided, End, Outcome, Record, Start};

    /// Agents count attempts from 1 for each deck.
    #[test]
    fn what_agents_have_left_has_run_since_only_if_it_began_later() {
        let begun =
            |seq, attempt| Attempt::begun(Start { seq, attempt, ..Start::default() }, 1, None);
        let left = Decided { seq: 9, attempt: 1, why: "left".into(), ..Decided::default() };
        let mut attempts = vec![begun(2, 1), begun(2, 2), begun(2, 3), begun(9, 1)];
        let record = |attempts: &[Attempt]| Record {
            attempts: attempts.to_vec(),
            decisions: vec![left.clone()],
            ..Record::default()
        };
        assert_eq!(record(&attempts).left(), Some("left"));
        attempts.push(begun(9, 2));
        assert_eq!(record(&attempts).left(), None);
    }

    fn ended(state: Outcome, exit_code: i32, reason: Option<&str>, stop: Option<&str>) -> String {
        let start: Start = serde_json::from_value(serde_json::json!({
            "trial": 0, "attempt": 1, "time": 0.0, "host": "n1", "pid": 1, "job": null, "ranks": 1, "argv": [],
            "devices": null, "version": "",
        }))
        .unwrap();
        let end = End {
            trial: 0,
            attempt: 1,
            time: 1.0,
            state,
            exit_code: Some(exit_code),
            signal: None,
            cause: None,
            reason: reason.map(str::to_owned),
            duration_s: 1.0,
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: false,
            seq: None,
        };
        let stopped = stop.map(|reason| (Outcome::Interrupted, reason.to_owned()));
        Attempt { end: Some(end), stopped, ..Attempt::begun(start, 1, None) }.why()
    }

    #[test]
    fn how_a_trial_ended_is_said_once() {
        use Outcome::{Done, Failed, Interrupted};
        let rank = "rank 3 on n2: exit code 17";
        assert_eq!(ended(Failed, 17, Some(rank), None), rank);
        assert_eq!(ended(Failed, 1, Some(rank), None), rank);
        let own = "the loss is not a number";
        assert_eq!(ended(Failed, 7, Some(own), None), format!("exit code 7: {own}"));
        assert_eq!(ended(Failed, 3, None, None), "exit code 3");
        let stop = Some("the worker got SIGTERM");
        assert_eq!(ended(Interrupted, 143, stop, stop), "the worker got SIGTERM");
        let expected = "it had left its result before it was stopped: the worker got SIGTERM";
        assert_eq!(ended(Done, 0, None, stop), expected);
    }
}
