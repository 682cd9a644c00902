//! Signals as events: they are blocked in the whole process and read from a descriptor, so nothing
//! ever runs inside a signal handler.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::fault::Fault;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A signal came.
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
        if let Some(signal) = self.read() {
            return Some(signal);
        }
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        let millis = wait.as_millis().min(i32::MAX as u128) as i32;
        let _ = poll(&mut fds, PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO));
        self.read()
    }

    /// Waits for a signal and for something to read from `input`, whichever comes first. The end of a child
    /// is no reason to wake up.
    pub fn wait(&mut self, input: BorrowedFd<'_>, wait: Duration) -> Woken {
        let mut fds = [
            PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(input, PollFlags::POLLIN),
        ];
        let millis = wait.as_millis().min(i32::MAX as u128) as i32;
        let _ = poll(&mut fds, PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO));
        let came = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let (signal, is_readable) = (came(&fds[0]), came(&fds[1]));
        match if signal { self.read() } else { None } {
            Some(signal) if signal != Signal::SIGCHLD => Woken::Signal(signal),
            _ if is_readable => Woken::Readable,
            _ => Woken::Nothing,
        }
    }

    fn read(&mut self) -> Option<Signal> {
        let info = self.fd.read_signal().ok()??;
        Signal::try_from(info.ssi_signo.cast_signed()).ok()
    }
}
