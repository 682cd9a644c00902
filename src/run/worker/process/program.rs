//! The processes of one rank: the user's program or the trainer, and, if the plan asks for it, the helper
//! that carries the program's syncs over MPI.
//!
//! The worker itself never calls MPI, and both are its children, so it records however they end. A program
//! under `[metrics] sync = "mpi"` is started without the launcher's MPI variables, because the helper takes
//! the rank's place among the MPI processes.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::fault::Fault;
use crate::base::host::process;
use crate::run::worker::process::prepare::Prepared;
use crate::run::worker::process::{lifeline, prepare};

/// The exit code of a trainer or helper that lost the others: what befell them comes first.
pub const LOST_PEERS: i32 = 76;

/// The running processes of a rank.
pub(crate) struct Program {
    /// The user's program, or the trainer.
    pub(crate) child: Child,
    /// The helper that carries its syncs.
    pub(crate) helper: Option<Child>,
}

/// Whether a helper has ended, which it must not while the program runs.
pub(crate) fn is_gone(helper: &mut Child) -> bool {
    !matches!(helper.try_wait(), Ok(None))
}

impl Program {
    /// Starts a rank. With `piped` its output comes through pipes, otherwise straight into the log.
    ///
    /// # Errors
    /// Why it could not be started, in words.
    pub(crate) fn start(prepared: &mut Prepared, piped: bool, log: &File) -> Result<Self, Fault> {
        let socket = prepared.sync.take();
        let keep = socket.as_ref().map(|(_, theirs)| theirs.as_fd());
        let mut program =
            Self { child: prepare::start_program(prepared, piped, log, keep)?, helper: None };
        lifeline::hold(&program.child, &prepared.env, prepared.is_trainer);
        if let Some((helper, _theirs)) = socket {
            let sink = process::Sink::Serve(helper.end);
            let started = process::start(
                &helper.argv,
                &helper.env,
                &prepared.workdir,
                sink,
                Signal::SIGKILL,
                None,
                // The worker's message about the program's end, which may come before the helper listens.
                &[Signal::SIGUSR1],
            );
            match started {
                Ok(child) => {
                    lifeline::hold(&child, &helper.env, true);
                    program.helper = Some(child);
                }
                Err(e) => {
                    process::kill_group(&program.child, Signal::SIGKILL);
                    let _ = program.child.wait();
                    return Err(process::start_fault(&helper.argv[0], &e));
                }
            }
        }
        Ok(program)
    }

    /// Tells the helper that the program has ended, well or not: after a failure it ends at once.
    pub(crate) fn ended(&mut self, well: bool) {
        if let Some(helper) = &self.helper {
            if well {
                process::tell(helper, Signal::SIGUSR1);
            } else {
                process::kill_group(helper, Signal::SIGKILL);
            }
        }
    }

    /// Waits for the helper, which waits for those of the other ranks; `go_on` is asked now and then.
    /// Returns whether it ended well.
    pub(crate) fn wait_for_helper(&mut self, mut go_on: impl FnMut() -> bool) -> bool {
        let Some(helper) = &mut self.helper else { return true };
        let mut nap = Duration::from_millis(1);
        loop {
            match helper.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if go_on() => {
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(Duration::from_millis(20));
                }
                _ => {
                    process::kill_group(helper, Signal::SIGKILL);
                    let _ = helper.wait();
                    return false;
                }
            }
        }
    }

    /// As [`Program::wait_for_helper`], for at most this long.
    pub(crate) fn wait_for_helper_for(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.wait_for_helper(|| Instant::now() < until)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.helper {
            process::kill_group(helper, Signal::SIGKILL);
            let _ = helper.wait();
        }
    }
}
