//! When a trial's time is over, and how much of it is left to end its program.

use std::time::{Duration, Instant};

use super::{Job, child};
use crate::host::{Vars, clock, process};
use crate::scheduler::calls::Calls;
use crate::scheduler::slurm::JobTime;
use crate::scheduler::{pbs, slurm};

/// The variable that says when the first launch of a trial's ranks began, in Unix seconds: job scripts and the
/// local executor set it where there may be several.
pub const BEGAN: &str = "HPCSWEEP_BEGAN";

/// How long the scheduler may take to say when a job ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the trial began to use up its walltime, which holds for all of its attempts in a job together.
pub(super) fn began(vars: &Vars) -> Instant {
    let ago = vars.get(BEGAN).and_then(|began| began.parse::<f64>().ok());
    let ago = ago.map_or(0.0, |began| clock::now() - began);
    let now = Instant::now();
    // A clock that was set meanwhile says nothing.
    let ago = Duration::try_from_secs_f64(ago).unwrap_or_default();
    now.checked_sub(ago).unwrap_or(now)
}

/// When the job ends as its scheduler says, where neither plan nor environment do: the walltime is the
/// queue's. One call, or none where the job script says how long the job may run; `None` where there is no answer.
pub(super) fn ask_end(job: &Job, known: Option<JobTime>) -> Option<Instant> {
    if job.resources.walltime_s.is_some() || job.vars.contains_key("SLURM_JOB_END_TIME") {
        return None;
    }
    match known {
        Some(JobTime::Unlimited) => return None,
        Some(JobTime::Seconds(seconds)) => {
            return job.began.checked_add(Duration::from_secs(seconds));
        }
        None => {}
    }
    let mut calls = Calls::new(&job.vars, PATIENCE);
    let (from, seconds) = match (job.vars.get("SLURM_JOB_ID"), job.vars.get("PBS_JOBID")) {
        (Some(id), _) => {
            let left = slurm::read_time_left(&calls.ask(&slurm::time_left(id)).ok()?)?;
            (Instant::now(), left)
        }
        (None, Some(id)) => (job.began, pbs::read_walltime(&calls.ask(&pbs::job(id)).ok()?)?),
        (None, None) => return None,
    };
    from.checked_add(Duration::from_secs(seconds))
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
    let by_scheduler = ["SLURM_JOB_ID", "PBS_JOBID"].iter().any(|n| job.vars.contains_key(*n));
    // After SIGTERM PBS kills in ten seconds, unless the queue's kill_delay says otherwise, Slurm in thirty
    // (KillWait), however long or short the walltime is.
    let is_pbs = job.vars.contains_key("PBS_JOBID") && !job.vars.contains_key("SLURM_JOB_ID");
    let patience = match (by_scheduler, is_pbs) {
        (_, true) => Some(8),
        (true, false) => Some(18),
        _ => None,
    };
    let patience = patience.map(Duration::from_secs);
    let (until, grace) = match whole_and_left(job) {
        None => (None, 30.0),
        Some((whole, left)) => {
            // Room to end the program and to write it down before the scheduler's own SIGKILL.
            let room = (whole * 0.05).max((whole * 0.1).min(5.0)).clamp(2.0, 30.0);
            let margin = if by_scheduler { room } else { 0.0 };
            let grace = if by_scheduler { margin * 0.6 } else { 10.0 };
            (Some((left - margin).max(0.0)), grace)
        }
    };
    let grace = Duration::from_secs_f64(grace);
    child::Clock {
        deadline: until
            .and_then(|until| Instant::now().checked_add(Duration::from_secs_f64(until.min(1e9)))),
        grace,
        signal_grace: patience.unwrap_or(grace),
        helper: None,
        peer_grace,
        launcher,
        mpirun,
        tick,
    }
}

/// Seconds that the trial has in all, and those that are left; `None` where nothing limits it.
fn whole_and_left(job: &Job) -> Option<(f64, f64)> {
    let ran = job.began.elapsed().as_secs_f64();
    // Slurm 22.05 does not tell a job its end; newer ones do. The trial's own walltime counts from the start
    // of its first worker, which comes a moment after that of the job; it may end long before the job: Slurm
    // rounds up to minutes, and an allocation may be that of several trials.
    let end = job.vars.get("SLURM_JOB_END_TIME").and_then(|t| t.parse::<f64>().ok());
    let left_until = |at: Instant| at.saturating_duration_since(Instant::now()).as_secs_f64();
    let end = end.map(|end| end - clock::now()).or(job.ends.map(left_until));
    let own = job.resources.walltime_s.map(|seconds| seconds as f64 - ran);
    let left = match (end, own) {
        (Some(end), Some(own)) => end.min(own),
        (end, own) => end.or(own)?,
    };
    Some((left + ran, left))
}
