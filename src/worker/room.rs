//! Room on the disk of the results. An element that begins while there is none waits for it: else an array would run
//! through in seconds, and leave nothing.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{Job, child, recorder};
use crate::host::disk;
use crate::host::signal::Signals;

/// The longest pause before the disk is tried again: others wait as well.
const PAUSE: Duration = Duration::from_secs(10);

/// We were told to stop while we waited.
#[derive(Debug)]
pub(super) struct Told(pub(super) Signal);

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
pub(super) fn wait<T>(
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
        // Somebody looks at a run on this machine; and the other ranks of a trial do not wait for the first.
        let waits = job.granted && job.world == 1 && since.elapsed() < recorder::PATIENCE;
        if !waits || !disk::is_full(job.tree.dir()) {
            return Err(error);
        }
        if !std::mem::replace(&mut has_said, true) {
            (job.say)("the disk of the results is full: the trial begins when there is room");
        }
        if let Some(signal) = child::pending(signals, pause, None) {
            return Err(Told(signal).into());
        }
        pause = (pause * 2).min(PAUSE);
    }
}
