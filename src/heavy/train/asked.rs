//! Whether this rank was asked to end: by the scheduler, the worker, or a user.

use std::time::Duration;

use anyhow::Result;
use hpcsweep::base::host::signal::Signals;
use nix::sys::signal::Signal;

/// Listens to the signals that ask for an end.
pub(crate) struct Asked {
    signals: Signals,
    by: Option<Signal>,
}

impl Asked {
    /// Blocks the signals. Must come before any other thread is started: those it starts inherit it.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub(crate) fn listen() -> Result<Self> {
        let asks = [Signal::SIGTERM, Signal::SIGUSR2, Signal::SIGINT, Signal::SIGHUP];
        Ok(Self { signals: Signals::listen(&asks)?, by: None })
    }

    /// Whether one has come by now.
    pub(crate) fn by_now(&mut self) -> bool {
        self.within(Duration::ZERO)
    }

    /// Waits so long for one at most.
    pub(crate) fn within(&mut self, wait: Duration) -> bool {
        if self.by.is_none() {
            self.by = self.signals.next(wait);
        }
        self.by.is_some()
    }
}
