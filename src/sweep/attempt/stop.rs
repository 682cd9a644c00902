//! Why a program is asked to end before it does so by itself.

use nix::sys::signal::Signal;

use crate::base::cause::Cause;
use crate::sweep::tree::records::Outcome;

/// The signals that ask a worker or an agent, and its programs, to stop.
pub(crate) const SIGNALS: [Signal; 4] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR2];

/// Why a program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The time of the trial or of its job is over.
    Walltime,
    /// The allocation of its agent ends.
    Allocation,
    /// A signal has reached its worker or agent.
    Signal(Signal),
    /// Another rank of the trial has failed or vanished.
    Peer,
    /// The helper that carries its syncs has ended.
    Helper,
    /// Another agent's end of the trial counts.
    Overtaken,
    /// Others have expired the lease of its agent.
    Fenced,
}

impl Stop {
    /// What an attempt counts as that ended because of this.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Walltime => Outcome::Timeout,
            Self::Peer | Self::Helper => Outcome::Failed,
            Self::Allocation | Self::Signal(_) | Self::Overtaken | Self::Fenced => {
                Outcome::Interrupted
            }
        }
    }

    /// Why an attempt ended that was asked to end because of this.
    pub(crate) fn cause(self) -> Cause {
        match self {
            Self::Walltime => Cause::Walltime,
            Self::Allocation => Cause::AllocationEnded,
            Self::Signal(Signal::SIGINT) => Cause::Cancelled,
            Self::Signal(_) | Self::Overtaken => Cause::Stopped,
            Self::Fenced => Cause::WorkerLost,
            Self::Peer | Self::Helper => Cause::Unknown,
        }
    }

    /// The same in words; `who` watches the program: `worker` or `agent`.
    pub(crate) fn reason(self, who: &str) -> String {
        match self {
            Self::Walltime => "the wall-clock limit was reached".to_owned(),
            Self::Allocation => format!("the {who}'s allocation ends"),
            Self::Signal(Signal::SIGINT) => "stopped by Ctrl-C".to_owned(),
            Self::Signal(signal) => format!("the {who} got {signal}"),
            Self::Peer => "another rank failed".to_owned(),
            Self::Helper => "the helper for syncs ended".to_owned(),
            Self::Overtaken => "another agent's end counts".to_owned(),
            Self::Fenced => "its agent's lease had expired".to_owned(),
        }
    }

    /// Whether the attempt is void, however it ended: another process has the trial.
    pub(crate) fn is_void(self) -> bool {
        matches!(self, Self::Overtaken | Self::Fenced)
    }
}
