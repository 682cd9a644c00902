//! A live view of a sweep: what a dashboard shows, and how it is kept up to date without reading anything
//! twice.
//!
//! [`follow::Watcher`] reads what is new in the tree, [`model::Model`] keeps what agents have recorded in a few
//! bytes a trial, and both make a [`Frame`]: all that there is to see at one moment, as plain values. Who draws
//! it is not known here.

pub(crate) mod best;
pub mod follow;
mod gpus;
pub(crate) mod model;
mod pace;
mod trace;
pub mod whole;

use std::collections::BTreeMap;

pub(crate) use best::Best;
#[cfg(test)]
pub(crate) use best::Parameters;
pub(crate) use gpus::Gpu;
pub(crate) use trace::Curve;

use crate::base::cause::Cause;
use crate::sweep::standing::{Standing, State};
use crate::sweep::tree::damage::Damaged;

/// Most rows of a list: of thousands of failures the newest are shown.
pub(crate) const MOST_ROWS: usize = 200;

/// A sweep at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Frame {
    /// The sweep's name, as in `sweep.json`.
    pub(crate) sweep: String,
    /// How many trials it has, in whatever state.
    pub(crate) total: u64,
    /// Trials by state; they add up to `total`.
    pub(crate) counts: BTreeMap<State, u64>,
    /// Trials that ended a second, over the last minute or so.
    pub(crate) rate: Option<f64>,
    /// Seconds until all have ended, at this rate.
    pub(crate) left_s: Option<f64>,
    /// Seconds from the first start until now, or until the last end where all have ended.
    pub(crate) took_s: Option<f64>,
    /// The median of what done trials have taken, seconds.
    pub(crate) median_s: Option<f64>,
    /// The agents that run trials, or the hosts on which trials of arrays run.
    pub(crate) places: Vec<Place>,
    /// Trials that ended without success, the newest first, at most [`MOST_ROWS`].
    pub(crate) failures: Vec<Failure>,
    /// All of them by cause, the most frequent first.
    pub(crate) causes: Vec<(Cause, u64)>,
    /// The best of the trials that are done.
    pub(crate) best: Option<Best>,
    /// Trials that run, the slowest first, at most [`MOST_ROWS`].
    pub(crate) slowest: Vec<Slow>,
    /// GPUs of the trials that run.
    pub(crate) gpus: Vec<UsedGpu>,
    /// What else there is to know, a sentence each.
    pub(crate) notes: Vec<String>,
    /// Files of the sweep of which lines were left out.
    pub(crate) damage: Vec<Damaged>,
}

/// An agent, or a host on which trials of arrays run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Place {
    pub(crate) host: String,
    /// The scheduler's id of the agent's job.
    pub(crate) job: Option<String>,
    /// The agent's process id; `None` for a host, or where it is not known.
    pub(crate) pid: Option<u32>,
    /// Trials that run there.
    pub(crate) busy: u32,
    /// Trials that may run there at once, where that is known.
    pub(crate) slots: Option<u32>,
    /// Trials that have ended there for good.
    pub(crate) ended: u64,
    /// Trials that end there a second, over the last minute or so.
    pub(crate) rate: Option<f64>,
    /// Seconds since its last heartbeat.
    pub(crate) seen_s: Option<f64>,
    /// Whether that is longer than agents may be silent.
    pub(crate) silent: bool,
}

/// A trial that ended without success.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) trial: u64,
    /// The host of its last attempt; empty if none is recorded.
    pub(crate) host: String,
    /// Its state, one of those without success.
    pub(crate) state: State,
    /// Why, in words; may be empty.
    pub(crate) reason: String,
    /// Seconds since its end; `None` if no end is recorded.
    pub(crate) ago_s: Option<f64>,
}

impl Failure {
    /// Why, in the words of `status`.
    pub(crate) fn why(&self) -> String {
        Standing { state: self.state.clone(), cause: None, reason: self.reason.clone() }.why()
    }
}

/// A trial that runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slow {
    pub(crate) trial: u64,
    /// The host of its rank 0.
    pub(crate) host: String,
    /// For how long, seconds.
    pub(crate) since_s: f64,
    /// How many times the median that is.
    pub(crate) times: Option<f64>,
    /// How it has gone of late.
    pub(crate) curve: Option<Curve>,
}

/// A GPU of a trial that runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UsedGpu {
    pub(crate) trial: u64,
    /// The host on which the trial runs.
    pub(crate) host: String,
    /// Its place among the trial's GPUs.
    pub(crate) number: u32,
    /// The newest sample of it.
    pub(crate) gpu: Gpu,
}

impl Frame {
    /// Trials that have ended for good.
    pub(crate) fn ended(&self) -> u64 {
        self.counts.iter().filter(|(state, _)| state.is_final()).map(|(_, n)| n).sum()
    }

    /// Trials that have ended without success.
    pub(crate) fn bad(&self) -> u64 {
        self.counts.iter().filter(|(state, _)| state.is_bad()).map(|(_, n)| n).sum()
    }

    /// Trials of one state.
    pub(crate) fn count(&self, state: &State) -> u64 {
        self.counts.get(state).copied().unwrap_or(0)
    }
}

/// Causes with how often they are, the most frequent first.
fn sort_causes(all: impl Iterator<Item = (Cause, u64)>) -> Vec<(Cause, u64)> {
    let mut all: Vec<(Cause, u64)> = all.collect();
    all.sort_by_key(|(cause, n)| (std::cmp::Reverse(*n), *cause));
    all
}

/// The slowest first, no more than are shown.
fn sort_slowest(all: &mut Vec<Slow>) {
    all.sort_by(|a, b| {
        b.since_s.total_cmp(&a.since_s).then_with(|| (a.trial, &a.host).cmp(&(b.trial, &b.host)))
    });
    all.truncate(MOST_ROWS);
}

/// By host, then trial, at most as many as are shown.
fn sort_gpus(all: &mut Vec<UsedGpu>) {
    all.sort_by(|a, b| (&a.host, a.trial, a.number).cmp(&(&b.host, b.trial, b.number)));
    all.truncate(MOST_ROWS);
}
