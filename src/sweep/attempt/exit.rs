//! How a program ended, and what that means if something may have asked it to stop.
//!
//! A scheduler signals every process of a job, in any order and over some milliseconds. So a program may have
//! saved a checkpoint and exited before its worker gets the signal, and its exit code is no evidence: 0, 1
//! and 143 are all usual after SIGTERM. Hence two questions: how long does the worker wait for a signal after
//! an end ([`Exit::moment`]), and what is the end once that time is over ([`outcome`])?

use std::process::ExitStatus;
use std::time::Duration;

use super::stop::{self, Stop};
use crate::base::host::process;
use crate::sweep::tree::records::Outcome;

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exit {
    /// Exit code, or 128 + signal.
    pub(crate) code: i32,
    /// The signal that killed it.
    pub(crate) signal: Option<i32>,
    /// Seconds it ran.
    pub(crate) duration_s: f64,
    /// Whether at its end it had a handler for SIGTERM or SIGUSR2, or held one of them back.
    pub(crate) has_handler: bool,
}

/// The longest wait for a signal that would explain an end.
const LONGEST: Duration = Duration::from_millis(100);

impl Exit {
    /// The exit of a process that ran for so long.
    pub(crate) fn of(status: ExitStatus, ran: Duration, has_handler: bool) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let (code, signal) = (process::code_of(status), status.signal());
        Self { has_handler, ..Self::of_call(code, signal, ran.as_secs_f64()) }
    }

    /// The exit that stands for the end of a function that was called and took so many seconds.
    pub(crate) fn of_call(code: i32, signal: Option<i32>, seconds: f64) -> Self {
        // As exact as it is recorded.
        let duration_s = (seconds * 1e6).round() / 1e6;
        Self { code, signal, duration_s, has_handler: false }
    }

    /// Whether a program that was told that its time will be over has left before it had finished: `is_declared` says that
    /// it has finished.
    pub(crate) fn is_leave(&self, is_declared: bool) -> bool {
        self.code == 0 && !is_declared
    }

    /// How long after the end of a program a signal to its worker still explains that end; `is_declared`: it has left a
    /// result. The wait is short: for a program that cannot have been asked to stop, it is a twentieth of the program's
    /// own time at most.
    pub(crate) fn moment(&self, is_declared: bool) -> Duration {
        if self.code == 0 && is_declared {
            return Duration::ZERO;
        }
        let least = match self {
            _ if is_by_stop(self.code, self.signal) => return 2 * LONGEST,
            _ if self.has_handler => LONGEST,
            Self { signal: Some(_), .. } => LONGEST / 2,
            // Waited for in vain a thousand times, this is ten seconds.
            Self { code: 1.., .. } => Duration::from_millis(10),
            _ => Duration::ZERO,
        };
        let ran = Duration::try_from_secs_f64(self.duration_s).unwrap_or_default();
        let share = (ran / 20).min(LONGEST);
        // A time shorter than the clock of the wait would be rounded up to it.
        least.max(if share < Duration::from_millis(1) { Duration::ZERO } else { share })
    }
}

/// Whether a program ended like one that was asked to stop, or with the exit code by which a shell reports this.
pub(crate) fn is_by_stop(code: i32, signal: Option<i32>) -> bool {
    let number = signal.unwrap_or(code - 128);
    stop::SIGNALS.iter().any(|signal| *signal as i32 == number)
}

/// How an attempt has ended whose program was asked to end because of `stop`. The exit code is no evidence then; a
/// result (`is_declared`) shows that the program had finished before.
pub(crate) fn outcome(code: i32, is_declared: bool, stop: Option<Stop>) -> Outcome {
    match stop {
        Some(stop) if stop.is_void() || code != 0 || !is_declared => stop.outcome(),
        _ if code == 0 => Outcome::Done,
        _ => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    const EXIT: Exit = Exit { code: 0, signal: None, duration_s: 60.0, has_handler: false };

    #[test]
    fn a_stop_explains_every_exit_code_but_that_of_a_program_that_has_finished() {
        use Outcome::{Done, Failed, Interrupted, Timeout};
        for (stop, asked) in [
            (Stop::Signal(Signal::SIGTERM), Interrupted),
            (Stop::Allocation, Interrupted),
            (Stop::Walltime, Timeout),
        ] {
            for code in [0, 1, 3, 76, 130, 137, 143] {
                assert_eq!(outcome(code, false, Some(stop)), asked, "{code}");
                let declared = if code == 0 { Done } else { asked };
                assert_eq!(outcome(code, true, Some(stop)), declared, "{code}");
            }
        }
        for is_declared in [false, true] {
            assert_eq!(outcome(0, is_declared, None), Done);
            assert_eq!(outcome(143, is_declared, None), Failed);
            // Its message would be void.
            assert_eq!(outcome(0, is_declared, Some(Stop::Overtaken)), Interrupted);
            assert_eq!(outcome(0, is_declared, Some(Stop::Fenced)), Interrupted);
        }
    }

    #[test]
    fn no_trial_is_held_up_by_more_than_a_twentieth_unless_it_may_have_been_told_to_stop() {
        for micros in [500, 2_000, 19_000, 40_000, 1_000_000, 3_600_000_000] {
            let ran = Duration::from_micros(micros);
            let exit = Exit { duration_s: ran.as_secs_f64(), ..EXIT };
            assert!(exit.moment(false) <= ran / 20, "{exit:?}");
        }
        let quick = Exit { duration_s: 0.002, ..EXIT };
        assert_eq!(quick.moment(false), Duration::ZERO);
        assert_eq!(EXIT.moment(true), Duration::ZERO);
        let waits = [
            (Exit { has_handler: true, ..quick }, false),
            (Exit { code: 143, ..quick }, false),
            (Exit { code: 143, signal: Some(15), ..quick }, false),
            (Exit { code: 140, signal: Some(12), ..quick }, true),
            (Exit { code: 1, ..quick }, false),
            (Exit { code: 137, signal: Some(9), ..quick }, false),
        ];
        for (exit, is_declared) in waits {
            assert!(exit.moment(is_declared) >= Duration::from_millis(10), "{exit:?}");
        }
    }
}
