//! What the end of a program means when somebody may have asked it to stop. Pure decisions; workers, agents
//! and the serving of functions all ask here.
//!
//! A scheduler signals every process of a job, in any order and over some milliseconds. So a program may have
//! saved a checkpoint and left before its worker hears anything, and its exit code says nothing: 0, 1 and 143
//! are all usual after SIGTERM. Hence two questions: how long is a signal waited for after an end
//! ([`moment`]), and what is the end once that is over ([`outcome`]).

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::tree::records::Outcome;

/// The signals that ask a worker and its program to stop.
pub const STOPPING: [Signal; 4] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR2];

/// What is known of a program that has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leave {
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// How long it ran.
    pub ran: Duration,
    /// Whether at its end it had a handler for SIGTERM or SIGUSR2, or held one of them back.
    pub has_handler: bool,
    /// Whether it has said that it finished: it has left a result.
    pub is_declared: bool,
}

impl Leave {
    /// Whether it ended as programs do that are told to stop, or as a shell says that one did.
    fn is_by_stop(&self) -> bool {
        let number = self.signal.unwrap_or(self.code - 128);
        STOPPING.iter().any(|signal| *signal as i32 == number)
    }
}

/// The longest wait for a signal that would explain an end.
const LONGEST: Duration = Duration::from_millis(100);

/// How long after the end of a program a signal to its worker still explains that end. It costs a trial
/// nothing that it would notice: a program that cannot have been told to stop is waited for a twentieth of its
/// own time at most.
pub fn moment(leave: &Leave) -> Duration {
    if leave.code == 0 && leave.is_declared {
        return Duration::ZERO;
    }
    let least = match leave {
        _ if leave.is_by_stop() => return 2 * LONGEST,
        _ if leave.has_handler => LONGEST,
        Leave { signal: Some(_), .. } => LONGEST / 2,
        // Waited for in vain a thousand times, this is ten seconds.
        Leave { code: 1.., .. } => Duration::from_millis(10),
        _ => Duration::ZERO,
    };
    let share = (leave.ran / 20).min(LONGEST);
    // What is shorter than the clock of the wait would be rounded up to it.
    least.max(if share < Duration::from_millis(1) { Duration::ZERO } else { share })
}

/// How an attempt has ended: `asked` is what it counts as if a stop ended it. The
/// exit code says nothing then; a result says that the program had finished before.
pub fn outcome(code: i32, is_declared: bool, asked: Option<Outcome>) -> Outcome {
    match asked {
        Some(asked) if code != 0 || !is_declared => asked,
        _ if code == 0 => Outcome::Done,
        _ => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAVE: Leave = Leave {
        code: 0,
        signal: None,
        ran: Duration::from_secs(60),
        has_handler: false,
        is_declared: false,
    };

    #[test]
    fn a_stop_explains_every_exit_code_but_that_of_a_program_that_has_finished() {
        use Outcome::{Done, Failed, Interrupted, Timeout};
        for asked in [Interrupted, Timeout] {
            for code in [0, 1, 3, 76, 130, 137, 143] {
                assert_eq!(outcome(code, false, Some(asked)), asked, "{code}");
                let declared = if code == 0 { Done } else { asked };
                assert_eq!(outcome(code, true, Some(asked)), declared, "{code}");
            }
        }
        for is_declared in [false, true] {
            assert_eq!(outcome(0, is_declared, None), Done);
            assert_eq!(outcome(143, is_declared, None), Failed);
        }
    }

    #[test]
    fn no_trial_is_held_up_by_more_than_a_twentieth_unless_it_may_have_been_told_to_stop() {
        for micros in [500, 2_000, 19_000, 40_000, 1_000_000, 3_600_000_000] {
            let leave = Leave { ran: Duration::from_micros(micros), ..LEAVE };
            assert!(moment(&leave) <= leave.ran / 20, "{leave:?}");
        }
        let quick = Leave { ran: Duration::from_millis(2), ..LEAVE };
        assert_eq!(moment(&quick), Duration::ZERO);
        assert_eq!(moment(&Leave { is_declared: true, ..LEAVE }), Duration::ZERO);
        let waits = [
            Leave { has_handler: true, ..quick },
            Leave { code: 143, ..quick },
            Leave { code: 143, signal: Some(15), ..quick },
            Leave { code: 140, signal: Some(12), is_declared: true, ..quick },
            Leave { code: 1, ..quick },
            Leave { code: 137, signal: Some(9), ..quick },
        ];
        for leave in waits {
            assert!(moment(&leave) >= Duration::from_millis(10), "{leave:?}");
        }
    }
}
