//! Room on the disk of the results. An element that begins while there is none waits for it. Otherwise an array
//! would run through in seconds, and leave nothing.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::fault::{Fault, Kind};
use crate::base::host::disk;
use crate::base::host::signal::Signals;
use crate::run::worker::Job;
use crate::run::worker::process::{child, prepare};
use crate::run::worker::record::recorder;

/// The longest pause before the disk is tried again: others wait as well.
const PAUSE: Duration = Duration::from_secs(10);

/// The same among ranks that wait for each other for so long: they must not miss each other once there is room.
fn most_pause(deadline: Duration) -> Duration {
    PAUSE.min(deadline / 2)
}

/// This worker was asked to stop while it waited.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Signal);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "told to stop by {}", self.0)
    }
}

impl std::error::Error for Told {}

/// Does what must be done before the program of an element can begin. While the disk is full it is tried again, for as long
/// as the end of a trial waits.
///
/// # Errors
/// As `step`, where there is room or it waits no longer; [`Told`] after a signal.
pub(crate) fn wait<T>(
    job: &Job,
    signals: &mut Signals,
    mut step: impl FnMut(&mut Signals) -> Result<T>,
) -> Result<T> {
    let since = Instant::now();
    let mut pause = Duration::from_millis(500);
    let mut has_said = false;
    loop {
        let error = match step(signals) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // A user watches a run on this machine, so it does not wait.
        let waits = job.granted && since.elapsed() < recorder::PATIENCE;
        let is_machine = error.downcast_ref::<Fault>().is_none_or(|f| f.kind == Kind::Machine);
        if !waits || !is_machine || !disk::is_full(job.tree.dir()) {
            return Err(error);
        }
        if !std::mem::replace(&mut has_said, true) {
            (job.say)("the disk of the results is full: the trial begins when there is room");
        }
        if let Some(signal) = child::pending(signals, pause, None) {
            return Err(Told(signal).into());
        }
        pause = (pause * 2).min(most_pause(prepare::rendezvous_deadline(&job.vars)));
    }
}

/// Whether rank 0 may wait for room, as the other ranks see it.
pub(crate) struct Probe<'a> {
    job: &'a Job,
    since: Instant,
    pause: Duration,
    last: Instant,
}

impl<'a> Probe<'a> {
    /// The first look at the disk comes well before `deadline`.
    pub(crate) fn new(job: &'a Job, deadline: Duration) -> Self {
        let now = Instant::now();
        Self { job, since: now, pause: most_pause(deadline), last: now }
    }

    /// Whether the disk is full, at most once a pause and for as long as rank 0 waits.
    pub(crate) fn is_full(&mut self) -> bool {
        let is_due = self.job.granted && self.last.elapsed() >= self.pause;
        if !is_due || self.since.elapsed() >= recorder::PATIENCE {
            return false;
        }
        self.last = Instant::now();
        disk::is_full(self.job.tree.dir())
    }
}
