//! Signals as events: they are blocked in the whole process and read from a descriptor, so nothing
//! ever runs inside a signal handler.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::base::fault::Fault;

/// Whether SIGXFSZ is ignored here that was not when this process began.
static IGNORES_FILE_SIZE: AtomicBool = AtomicBool::new(false);

/// A file that may not grow (`ulimit -f`) is an error of its write from now on, and does not kill this process.
#[expect(unsafe_code, reason = "signal(2) is unsafe by declaration")]
pub fn ignore_file_size() {
    // SAFETY: no handler.
    let before = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    if matches!(before, Ok(SigHandler::SigDfl)) {
        IGNORES_FILE_SIZE.store(true, Ordering::Relaxed);
    }
}

/// Undoes [`ignore_file_size`] in a child that becomes a program. Async-signal-safe.
#[expect(unsafe_code, reason = "signal(2) is unsafe by declaration")]
pub(super) fn restore_file_size() {
    if IGNORES_FILE_SIZE.load(Ordering::Relaxed) {
        // SAFETY: no handler.
        let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigDfl) };
    }
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// One of the blocked signals came, other than SIGCHLD.
    Signal(Signal),
    /// There is something to read, or an end of it.
    Readable,
    /// The time has passed.
    Nothing,
}

/// The signals a worker or an executor listens to.
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the given signals in this thread (and those it starts later) and listens to them.
    /// Programs started by [`super::process`] get an empty mask again.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn listen(signals: &[Signal]) -> anyhow::Result<Self> {
        let mut set = SigSet::empty();
        for signal in signals {
            set.add(*signal);
        }
        let fail =
            |e: nix::Error| Fault::machine(format!("cannot listen to signals: {}", e.desc()));
        set.thread_block().map_err(fail)?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(fail)?;
        Ok(Self { fd })
    }

    /// The next signal, or `None` when `wait` has passed without one.
    pub fn next(&mut self, wait: Duration) -> Option<Signal> {
        self.next_from(wait).map(|(signal, _)| signal)
    }

    /// As [`Signals::next`], with the process that has sent it; 0 if the kernel does not report it.
    pub(crate) fn next_from(&mut self, wait: Duration) -> Option<(Signal, u32)> {
        if let Some(came) = self.read() {
            return Some(came);
        }
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, whole_millis(wait));
        self.read()
    }

    /// Waits for a signal and for something to read from `input`, whichever comes first. The end of a child
    /// is no reason to wake up.
    pub(crate) fn wait(&mut self, input: BorrowedFd<'_>, wait: Duration) -> Woken {
        let mut fds = [
            PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(input, PollFlags::POLLIN),
        ];
        let _ = poll(&mut fds, whole_millis(wait));
        let came = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let (signal, is_readable) = (came(&fds[0]), came(&fds[1]));
        match if signal { self.read() } else { None } {
            Some((signal, _)) if signal != Signal::SIGCHLD => Woken::Signal(signal),
            _ if is_readable => Woken::Readable,
            _ => Woken::Nothing,
        }
    }

    /// Waits for a signal; `None` if the reader of `output` goes first: a terminal, or the other end of a pipe.
    pub(crate) fn next_while(&mut self, output: BorrowedFd<'_>) -> Option<Signal> {
        loop {
            if let Some((signal, _)) = self.read() {
                return Some(signal);
            }
            let mut fds = [
                PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
                PollFd::new(output, PollFlags::empty()),
            ];
            let _ = poll(&mut fds, PollTimeout::NONE);
            if fds[1].revents().is_some_and(|events| !events.is_empty()) {
                return self.read().map(|(signal, _)| signal);
            }
        }
    }

    fn read(&mut self) -> Option<(Signal, u32)> {
        let info = self.fd.read_signal().ok()??;
        Some((Signal::try_from(info.ssi_signo.cast_signed()).ok()?, info.ssi_pid))
    }
}

/// Rounded up: what is due in half a millisecond is not due yet, and would be asked for again and again.
fn whole_millis(wait: Duration) -> PollTimeout {
    let millis = wait.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_shorter_than_was_asked_for() {
        let millis = |micros| whole_millis(Duration::from_micros(micros)).as_millis();
        assert_eq!([0, 1, 1000, 1001].map(millis), [0, 1, 1, 2].map(Some));
        assert_eq!(whole_millis(Duration::MAX), PollTimeout::MAX);
    }
}
