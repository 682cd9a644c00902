//! Whether another run of the same trial is alive: a requeued or retried trial must not run beside itself.
//!
//! Asked before a worker begins. On its own host a run is alive while its process is. On another one it is
//! alive while it gives signs of life, which are new stamps of its record by the file system's own clock
//! ([`BEAT`]). That holds for an earlier run of the same job, too: a scheduler requeues the jobs of a node that it
//! cannot reach, and they may still run there.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::host::age;
use crate::base::host::signal::Signals;
use crate::run::worker::Job;
use crate::run::worker::process::child;
use crate::sweep::tree::records::{self, Attempt, Outcome, Record};

/// How often a run on its way stamps its record.
pub(crate) const BEAT: Duration = Duration::from_secs(20);

/// A record that was not stamped for so long is of a run that is gone.
const SILENCE: Duration = Duration::from_secs(50);

/// How long a worker waits for a run on its own host, and how long the ranks of a trial wait for rank 0, which waits for a run.
const PATIENCE: Duration = Duration::from_secs(60);

/// The state of the other runs.
pub(crate) enum Others {
    /// None is alive; this is what is recorded now.
    Gone(Record),
    /// One has done the trial meanwhile.
    Done,
    /// One is alive: where.
    Alive(String),
    /// This worker was asked to stop while it waited.
    Told(Signal),
}

/// Waits until no other run of the trial is alive; `own` is our own run, where we have begun one.
///
/// The run of a job on another host may be on a node that the scheduler has lost. No order reaches that job, and the jobs behind
/// this one depend on how this one ends. So a worker of one rank waits for it as long as it is alive. The wait for other runs is
/// short.
pub(crate) fn wait(
    job: &Job,
    mut record: Record,
    own: Option<u32>,
    signals: &mut Signals,
) -> Result<Others> {
    let since = Instant::now();
    loop {
        if record.outcome() == Some(Outcome::Done) {
            return Ok(Others::Done);
        }
        let other = record.attempts.iter().find_map(|a| living(job, a, own).map(|sign| (a, sign)));
        let Some((attempt, sign)) = other else { return Ok(Others::Gone(record)) };
        let start = &attempt.start;
        let may_be_lost = start.job.is_some() && start.host != job.host && job.world == 1;
        let is_sure = since.elapsed() >= PATIENCE && sign < since.elapsed();
        if is_sure && !may_be_lost {
            return Ok(Others::Alive(place(attempt)));
        }
        if let Some(signal) = child::pending(signals, Duration::from_millis(500), None) {
            return Ok(Others::Told(signal));
        }
        record = records::of_trial(&job.tree, job.row.id)?.0;
    }
}

/// How long ago another run stamped its record; `None` if it has ended, or is gone.
fn living(job: &Job, attempt: &Attempt, own: Option<u32>) -> Option<Duration> {
    let start = &attempt.start;
    // The ledger assigns the trials of agents.
    if attempt.end.is_some() || attempt.bundle.is_some() || Some(attempt.run) == own {
        return None;
    }
    if start.host == job.host {
        let is_other = start.is_process() && start.pid != std::process::id();
        return is_other.then_some(Duration::ZERO);
    }
    let path = job.tree.record(job.row.id, attempt.run);
    let age = age::by_server(&path, job.tree.dir()).ok()?;
    (age < SILENCE).then_some(age)
}

/// Where a run is.
fn place(attempt: &Attempt) -> String {
    let start = &attempt.start;
    let job = start.job.as_ref().map_or_else(String::new, |job| format!("job {job}, "));
    format!("{job}process {} on {}", start.pid, start.host)
}
