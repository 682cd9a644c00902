//! What becomes of a trial after an attempt.

use super::exit;
use super::stop::Stop;
use crate::base::cause::{Cause, Why};
use crate::sweep::tree::records::Outcome;

/// Faults of machines and agents after which a trial is given up.
pub(crate) const MAX_FAULTS: u32 = 3;

/// Allocations in a row that may cut a trial off without a checkpoint written.
pub(crate) const MAX_CUTS: u32 = 3;

/// Whether a program that failed on a full disk, and has printed so many bytes, may have failed because of it, and not have
/// filled it by what it printed.
pub(crate) fn may_lack_room(printed: u64) -> bool {
    printed < 1 << 18
}

/// What becomes of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Over,
    /// It is tried again here.
    Again,
    /// `[retry]` repeats it here, or where there is more time for it.
    Repeated,
    /// It was stopped, and continues elsewhere.
    Elsewhere,
    /// Another run's end of it counts.
    Dropped,
}

impl Next {
    /// What happens after an outcome if `tried` attempts have been made, this one included, of `allowed`. A trial that
    /// was stopped uses up no attempt, and a trial that has had its time is not tried again.
    pub(crate) fn after(state: Outcome, tried: u32, allowed: u32) -> Self {
        match state {
            Outcome::Failed if tried < allowed => Self::Again,
            Outcome::Done | Outcome::Failed | Outcome::Timeout => Self::Over,
            Outcome::Interrupted => Self::Elsewhere,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// As it is recorded.
    pub(crate) state: Outcome,
    /// Why, where more is known than how the program ended.
    pub(crate) why: Option<Why>,
    /// What becomes of the trial.
    pub(crate) next: Next,
}

impl Verdict {
    /// Judges the end of an agent's program that was asked to end because of `stop`, with `tried` attempts, this one
    /// included, of `allowed`; `is_declared`: it has left a result.
    pub(crate) fn of(
        code: i32,
        is_declared: bool,
        stop: Option<Stop>,
        tried: u32,
        allowed: u32,
    ) -> Self {
        let state = exit::outcome(code, is_declared, stop);
        let stopped = stop.filter(|_| state != Outcome::Done);
        let why = stopped.map(|stop| Why::new(stop.cause(), stop.reason("agent")));
        let next = match stop {
            Some(stop) if stop.is_void() => Next::Dropped,
            _ => Next::after(state, tried, allowed),
        };
        Self { state, why, next }
    }

    /// The cause of an end without success, by the signal that ended the program if nothing more is known; of an end with
    /// success, what the program has not noticed.
    pub(crate) fn cause(&self, code: Option<i32>, signal: Option<i32>) -> Option<Cause> {
        let by_exit = match (signal, code) {
            (Some(_), _) => Cause::Signal,
            (None, Some(1..)) => Cause::ExitCode,
            _ => Cause::Unknown,
        };
        let why = self.why.as_ref().map(|why| why.cause);
        match self.state {
            Outcome::Done => why.filter(|cause| *cause == Cause::OutOfMemory),
            _ => Some(why.unwrap_or(by_exit)),
        }
    }

    /// A trial that failed, and is not tried again.
    pub(crate) fn failed(why: Why) -> Self {
        Self { state: Outcome::Failed, why: Some(why), next: Next::Over }
    }

    /// A trial that was stopped, and continues elsewhere.
    pub(crate) fn interrupted(why: Option<Why>) -> Self {
        Self { state: Outcome::Interrupted, why, next: Next::Elsewhere }
    }

    /// A fault of the machine, after so many of them: other agents may have more luck, but not for ever.
    pub(crate) fn of_fault(faults: u32, why: Why) -> Self {
        let next = if faults + 1 < MAX_FAULTS { Next::Elsewhere } else { Next::Over };
        Self { next, ..Self::failed(why) }
    }

    /// The private folder is gone, and with it the result, after so many faults of the machine.
    pub(crate) fn of_loss(faults: u32, reason: &str) -> Self {
        let fault = Self::of_fault(faults, Why::new(Cause::Unknown, reason));
        match fault.next {
            Next::Elsewhere => Self::interrupted(fault.why),
            _ => fault,
        }
    }

    /// So many allocations in a row were too short for a trial that saves nothing.
    pub(crate) fn too_long(cuts: u32) -> Self {
        let words = format!(
            "{cuts} allocations in a row ended before it, and it saved nothing: give agents more time, or write checkpoints to HPCSWEEP_CHECKPOINT_DIR"
        );
        let why = Why::new(Cause::AllocationEnded, words);
        Self { state: Outcome::Timeout, ..Self::failed(why) }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn an_end_is_judged_by_who_asked_for_it() {
        let signal = Stop::Signal(Signal::SIGTERM);
        let check = |code, stop, tried, state, next| {
            let verdict = Verdict::of(code, false, stop, tried, 2);
            assert_eq!((verdict.state, verdict.next), (state, next), "{code} {stop:?} {tried}");
        };
        check(0, None, 1, Outcome::Done, Next::Over);
        check(3, None, 1, Outcome::Failed, Next::Again);
        check(3, None, 2, Outcome::Failed, Next::Over);
        check(143, Some(Stop::Walltime), 1, Outcome::Timeout, Next::Over);
        check(0, Some(Stop::Walltime), 1, Outcome::Timeout, Next::Over);
        check(143, Some(signal), 2, Outcome::Interrupted, Next::Elsewhere);
        check(143, Some(Stop::Allocation), 2, Outcome::Interrupted, Next::Elsewhere);
        check(0, Some(signal), 2, Outcome::Interrupted, Next::Elsewhere);
        check(0, Some(Stop::Fenced), 1, Outcome::Interrupted, Next::Dropped);
        check(0, Some(Stop::Overtaken), 1, Outcome::Interrupted, Next::Dropped);
        for stop in [Stop::Walltime, Stop::Allocation, signal] {
            let finished = Verdict { state: Outcome::Done, why: None, next: Next::Over };
            assert_eq!(Verdict::of(0, true, Some(stop), 2, 2), finished, "{stop:?}");
        }
    }

    #[test]
    fn a_machine_may_fail_a_trial_a_few_times() {
        let of_fault = |faults, _: &str| Verdict::of_fault(faults, Why::new(Cause::Unknown, ""));
        let all = |fault: fn(u32, &str) -> Verdict| {
            [0, 1, 2].map(|faults| fault(faults, "")).map(|verdict| (verdict.state, verdict.next))
        };
        use Outcome::{Failed, Interrupted};
        let over = (Failed, Next::Over);
        let handed_on = |state| (state, Next::Elsewhere);
        assert_eq!(all(of_fault), [handed_on(Failed), handed_on(Failed), over]);
        assert_eq!(all(Verdict::of_loss), [handed_on(Interrupted), handed_on(Interrupted), over]);
    }
}
