//! How much time an attempt has, and how long its program may take to end.

use std::time::Duration;

use crate::plan;

/// How long a program may take to end if nothing limits that: nothing kills its worker or agent.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// How long it may take after its own walltime, where its worker or agent lives on.
pub(crate) const WALLTIME_GRACE: Duration = Duration::from_secs(10);

/// The seconds that are left of an allocation when what runs in it is asked to end: room to end it and to write it down
/// before the allocation is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reserve(f64);

impl Reserve {
    /// That of a trial in a job, which has `whole` seconds in all.
    pub(crate) fn of_trial(whole: f64) -> Self {
        Self(plan::reserve_s(whole))
    }

    /// That of an agent, whose programs have this long after a signal.
    pub(crate) fn of_agent(grace: Duration) -> Self {
        Self((grace.as_secs_f64() * 0.5).clamp(2.0, 30.0))
    }

    pub(crate) fn whole(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }

    /// How long programs may take to end; the rest is for what is written down.
    pub(crate) fn grace(self) -> Duration {
        Duration::from_secs_f64(self.0 * 0.6)
    }
}

/// Seconds that a trial has in all, and those that are left of them, `ran` seconds after it began: until its job ends or its
/// own walltime is over. `None` where nothing limits it.
///
/// The walltime counts from the start of the trial's first worker, which comes a moment after that of the job. It may be over
/// long before the job: Slurm rounds up to minutes, and an allocation may be that of several trials.
pub(crate) fn whole_and_left(
    left_of_job: Option<f64>,
    walltime_s: Option<u64>,
    ran: f64,
) -> Option<(f64, f64)> {
    let own = walltime_s.map(|seconds| seconds as f64 - ran);
    let left = match (left_of_job, own) {
        (Some(job), Some(own)) => job.min(own),
        (job, own) => job.or(own)?,
    };
    Some((left + ran, left))
}

/// Seconds until the program of a worker is asked to end, where anything limits it, and how long it may take then.
/// `whole_and_left` is that of the function; `is_killed`: a scheduler kills the worker at the end.
pub(crate) fn until_stop(
    whole_and_left: Option<(f64, f64)>,
    is_killed: bool,
) -> (Option<f64>, Duration) {
    match whole_and_left {
        None => (None, GRACE),
        Some((whole, left)) if is_killed => {
            let reserve = Reserve::of_trial(whole);
            (Some((left - reserve.0).max(0.0)), reserve.grace())
        }
        Some((_, left)) => (Some(left.max(0.0)), WALLTIME_GRACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_keep_the_reserve_that_their_page_names() {
        let reserve = |grace| Reserve::of_agent(Duration::from_secs(grace)).whole().as_secs();
        assert_eq!([18, 8, 30].map(reserve), [9, 4, 15]);
    }

    #[test]
    fn what_ends_first_limits_a_trial() {
        let end = Some(100.0);
        assert_eq!(whole_and_left(end, Some(90), 20.0), Some((90.0, 70.0)));
        assert_eq!(whole_and_left(end, Some(600), 20.0), Some((120.0, 100.0)));
        assert_eq!(whole_and_left(None, Some(90), 100.0), Some((90.0, -10.0)));
        assert_eq!(whole_and_left(None, None, 20.0), None);
    }

    #[test]
    fn a_program_has_ended_before_its_worker_is_killed() {
        assert_eq!(until_stop(None, true), (None, GRACE));
        assert_eq!(until_stop(Some((90.0, -10.0)), false), (Some(0.0), WALLTIME_GRACE));
        for whole in [1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0] {
            let (until, grace) = until_stop(Some((whole, whole)), true);
            let end = until.unwrap() + grace.as_secs_f64();
            // Less than two seconds are too short for anything.
            assert!(end < whole.max(2.0) && end > whole - 30.0, "{whole}: {end}");
        }
    }
}
