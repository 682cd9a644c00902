//! A scheduler that has been asked what it allows, before the first call that submits anything.

use anyhow::Result;

use super::backend::Backend;
use super::{limits, queues};
use crate::scheduler::Limits;
use crate::scheduler::calls::Calls;

/// A scheduler that has told its limits.
pub(super) enum Door {
    /// Slurm.
    Slurm(Limits),
    /// PBS.
    Pbs(queues::Read),
}

impl Door {
    /// What binds a submission.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            Self::Slurm(limits) => limits,
            Self::Pbs(read) => &read.limits,
        }
    }

    /// What of its limits people should hear of.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Slurm(_) => &[],
            Self::Pbs(read) => &read.notes,
        }
    }

    /// Whether it deletes what waits for a job that has ended, so that nothing may end too early. A routing queue
    /// does not hand on what is held, while what waits for it takes the places behind.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Pbs(read) if !read.limits.accounting && !read.routes)
    }

    /// How it is spoken to.
    pub(super) fn backend(&self) -> Backend {
        match self {
            Self::Slurm(limits) => Backend::Slurm { accounting: limits.accounting },
            Self::Pbs(read) => Backend::Pbs { history: read.limits.accounting },
        }
    }

    /// Refuses more elements than the user may have queued.
    pub(super) fn check_queue(
        &self,
        calls: &mut Calls,
        elements: u64,
        account: Option<&str>,
    ) -> Result<()> {
        match self {
            Self::Slurm(limits) => limits::check_queue(calls, elements, limits, account),
            Self::Pbs(read) => read.check_queue(elements),
        }
    }
}
