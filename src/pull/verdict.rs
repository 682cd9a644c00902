//! What the end of a program means for its trial, and what an agent records of it.

use super::membership::MAX_FAULTS;
use super::place::{Ended, Why};
use crate::host::clock;
use crate::tree::bundle;
use crate::tree::records::Outcome;
use crate::worker::stopped;

/// What becomes of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is over.
    Over,
    /// It is tried again, after others.
    Again,
    /// It was stopped, and goes on elsewhere.
    Elsewhere,
    /// Somebody else's end of it counts.
    Dropped,
}

/// One run of a trial by this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The trial.
    pub trial: u64,
    /// The attempt.
    pub attempt: u32,
    /// How many entries of the ledger were read when it began.
    pub seq: u64,
    /// The slot.
    pub slot: usize,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    /// As it is recorded.
    pub state: Outcome,
    /// Why, in words.
    pub reason: Option<String>,
    /// What becomes of the trial.
    pub next: Next,
}

/// Judges the end of a program that was asked to end because of `stop`, with `tries` failed attempts before it
/// of `allowed`; `is_declared`: it has left a result.
pub(super) fn judge(
    ended: Ended,
    is_declared: bool,
    stop: Option<Why>,
    tries: u32,
    allowed: u32,
) -> Verdict {
    let verdict = |state, reason: &str, next| Verdict {
        state,
        reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
        next,
    };
    let (asked, reason, next) = match stop {
        Some(Why::Lost) => {
            return verdict(Outcome::Interrupted, "another agent's end counts", Next::Dropped);
        }
        Some(Why::Fenced) => {
            return verdict(Outcome::Interrupted, "others took its agent for dead", Next::Dropped);
        }
        Some(Why::Walltime) => {
            (Some(Outcome::Timeout), "the wall-clock limit was reached".to_owned(), Next::Over)
        }
        Some(Why::Allocation) => {
            let reason = "the agent's allocation ends".to_owned();
            (Some(Outcome::Interrupted), reason, Next::Elsewhere)
        }
        Some(Why::Signal(signal)) => {
            let reason = match signal {
                nix::sys::signal::Signal::SIGINT => "stopped by Ctrl-C".to_owned(),
                signal => format!("the agent got {signal}"),
            };
            (Some(Outcome::Interrupted), reason, Next::Elsewhere)
        }
        None if tries + 1 < allowed => (None, String::new(), Next::Again),
        None => (None, String::new(), Next::Over),
    };
    match stopped::outcome(ended.code, is_declared, asked) {
        Outcome::Done => verdict(Outcome::Done, "", Next::Over),
        state => verdict(state, &reason, next),
    }
}

/// What a fault of the machine means: other agents may have more luck, but not for ever.
pub(super) fn judge_fault(faults: u32, reason: &str) -> Verdict {
    let next = if faults + 1 < MAX_FAULTS { Next::Elsewhere } else { Next::Over };
    Verdict { state: Outcome::Failed, reason: Some(reason.to_owned()), next }
}

/// What it means that so many allocations in a row were too short for a trial that saves nothing.
pub(super) fn too_long(cuts: u32) -> Verdict {
    let reason = format!(
        "{cuts} allocations in a row ended before it, and it saved nothing: give agents more time, or write checkpoints to HPCSWEEP_CHECKPOINT_DIR"
    );
    Verdict { state: Outcome::Timeout, reason: Some(reason), next: Next::Over }
}

/// The line that says so.
pub(super) fn line(
    trial: u64,
    attempt: u32,
    verdict: &Verdict,
    ended: Option<Ended>,
    result: Option<serde_json::Value>,
) -> bundle::Ended {
    bundle::Ended {
        trial,
        attempt,
        time: clock::now(),
        state: verdict.state,
        exit_code: ended.map(|e| e.code),
        signal: ended.and_then(|e| e.signal),
        reason: verdict.reason.clone(),
        duration_s: ended.map_or(0.0, |e| e.duration_s),
        peak_memory: ended.map_or(0, |e| e.peak_memory),
        result,
        log: ended.and_then(|e| e.log),
        last: verdict.next == Next::Over,
        seq: None,
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn an_end_is_judged_by_who_asked_for_it() {
        let judged = |code, is_declared, stop, tries| {
            let (signal, log, has_handler) = (None, None, false);
            let ended = Ended { code, signal, duration_s: 1.0, peak_memory: 0, log, has_handler };
            let verdict = judge(ended, is_declared, stop, tries, 2);
            (verdict.state, verdict.next)
        };
        let check = |code, stop, tries, state, next| {
            assert_eq!(judged(code, false, stop, tries), (state, next), "{code} {stop:?} {tries}");
        };
        check(0, None, 0, Outcome::Done, Next::Over);
        check(3, None, 0, Outcome::Failed, Next::Again);
        check(3, None, 1, Outcome::Failed, Next::Over);
        check(143, Some(Why::Walltime), 0, Outcome::Timeout, Next::Over);
        check(0, Some(Why::Walltime), 0, Outcome::Timeout, Next::Over);
        check(143, Some(Why::Signal(Signal::SIGTERM)), 1, Outcome::Interrupted, Next::Elsewhere);
        check(143, Some(Why::Allocation), 1, Outcome::Interrupted, Next::Elsewhere);
        check(0, Some(Why::Signal(Signal::SIGTERM)), 1, Outcome::Interrupted, Next::Elsewhere);
        for stop in [Why::Walltime, Why::Allocation, Why::Signal(Signal::SIGTERM)] {
            assert_eq!(judged(0, true, Some(stop), 1), (Outcome::Done, Next::Over), "{stop:?}");
        }
        // However it ended: its word would be void.
        check(0, Some(Why::Fenced), 0, Outcome::Interrupted, Next::Dropped);
        check(0, Some(Why::Lost), 0, Outcome::Interrupted, Next::Dropped);
    }

    #[test]
    fn a_machine_may_fail_a_trial_a_few_times() {
        let next = |faults| judge_fault(faults, "no fork").next;
        assert_eq!([next(0), next(1), next(2)], [Next::Elsewhere, Next::Elsewhere, Next::Over]);
    }
}
