//! Signals as events: they are blocked in the whole process and read from a descriptor, so nothing
//! ever runs inside a signal handler.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::fault::Fault;

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

    fn read(&mut self) -> Option<Signal> {
        let info = self.fd.read_signal().ok()??;
        Signal::try_from(info.ssi_signo.cast_signed()).ok()
    }
}
