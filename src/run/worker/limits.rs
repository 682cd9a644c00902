//! When a trial's time is over, and how much of it is left to end its program.

use std::time::{Duration, Instant};

use super::Job;
use crate::base::host::{Vars, clock, process};
use crate::cluster::scheduler::JobTime;
use crate::cluster::scheduler::job as scheduler;
use crate::run::worker::process::{child, prepare};
use crate::sweep::attempt::time;

/// The variable that says when the first launch of a trial's ranks began, in Unix seconds: job scripts and the
/// local executor set it where there may be several.
pub(crate) const BEGAN: &str = "HPCSWEEP_BEGAN";

/// How long the scheduler may take to say when a job ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the trial began to use up its walltime, which holds for all of its attempts in a job together.
pub(super) fn began(vars: &Vars) -> Instant {
    let ago = vars.get(BEGAN).and_then(|began| began.parse::<f64>().ok());
    let ago = ago.map_or(0.0, |began| clock::now() - began);
    let now = Instant::now();
    // A clock that was set meanwhile does not count.
    let ago = Duration::try_from_secs_f64(ago).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(now)
}

/// When the job ends according to its scheduler, if neither plan nor environment have it: the walltime is the
/// queue's. One call, or none if the job script has the time; `None` if there is no answer.
pub(super) fn ask_end(job: &Job, known: Option<JobTime>) -> Option<Instant> {
    if job.resources.walltime_s.is_some() || scheduler::told_end(&job.vars).is_some() {
        return None;
    }
    match known {
        Some(JobTime::Unlimited) => return None,
        Some(JobTime::Seconds(seconds)) => {
            return job.began.checked_add(Duration::from_secs(seconds));
        }
        None => {}
    }
    scheduler::ask_end(&job.vars, job.began, PATIENCE)
}

/// When the trial's time is over: the scheduler's end of the job less a margin, or the walltime from its
/// beginning on where no scheduler keeps the time.
pub(super) fn clock_of(job: &Job) -> child::Clock {
    let tick = Duration::from_millis(if job.world > 1 { 20 } else { 1000 });
    // A trainer that has lost another rank can save nothing: it waits in a collective.
    let peer_grace = job.head.run.train.is_some().then_some(Duration::ZERO);
    let launcher = (job.world > 1 && job.head.run.needs_mpi()).then_some(job.launcher);
    // These end all ranks when one has failed; slurmstepd and others only pass on what they are asked.
    const ENDING: [&str; 6] = ["mpirun", "mpiexec", "orte", "prte", "hydra", "mpispawn"];
    let is_mpirun = |name: String| ENDING.iter().any(|known| name.starts_with(known));
    let mpirun = (job.world > 1 && process::name(job.launcher).is_some_and(is_mpirun))
        .then_some(job.launcher);
    let is_killed = scheduler::scheduler(&job.vars).is_some();
    // A job that was suspended ends later by as much.
    let awake = clock::awake();
    let suspended = Instant::now().saturating_duration_since(awake).as_secs_f64();
    let left_until = |at: Instant| at.saturating_duration_since(awake).as_secs_f64();
    let told = scheduler::told_end(&job.vars).map(|end| end - clock::now() + suspended);
    let left_of_job = told.or(job.ends.map(left_until));
    let ran = awake.saturating_duration_since(job.began).as_secs_f64();
    let left = time::whole_and_left(left_of_job, job.resources.walltime_s, ran);
    let (until, grace) = time::until_stop(left, is_killed);
    let deadline =
        until.and_then(|until| awake.checked_add(Duration::from_secs_f64(until.min(1e9))));
    child::Clock {
        deadline,
        notice: job.head.run.signal.and_then(|notice| prepare::notice_at(notice, deadline?)),
        grace,
        signal_grace: scheduler::signal_grace(&job.vars).unwrap_or(grace),
        helper: None,
        peer_grace,
        launcher,
        mpirun,
        tick,
    }
}
