//! A scheduler that has been asked what it allows, before the first call that submits anything.

use anyhow::Result;

use super::backend::Backend;
use super::mapping::Places;
use super::{Wanted, limits, queues};
use crate::fault::Fault;
use crate::scheduler::calls::Calls;
use crate::scheduler::{Limits, pbs, slurm};
use crate::site::{SchedulerKind, Site};
use crate::tree::Tree;

/// A scheduler that has told its limits.
pub(super) enum Door {
    /// Slurm.
    Slurm(Limits, Vec<slurm::Partition>),
    /// PBS.
    Pbs(queues::Read),
}

impl Door {
    /// Asks a scheduler for its limits, and whether it takes what is wanted at all.
    ///
    /// # Errors
    /// When it does not answer, or would refuse a request or never run it.
    pub(super) fn ask(
        calls: &mut Calls,
        wanted: &Wanted<'_>,
        site: &Site,
        kind: SchedulerKind,
    ) -> Result<Self> {
        if kind == SchedulerKind::Pbs {
            return Ok(Self::Pbs(queues::read(calls, wanted, site)?));
        }
        let limits = limits::read(calls, site)?;
        let partitions = limits::check_partitions(calls, &wanted.requests, site)?;
        Ok(Self::Slurm(limits, partitions))
    }

    /// What binds a submission.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            Self::Slurm(limits, _) => limits,
            Self::Pbs(read) => &read.limits,
        }
    }

    /// The partitions, where jobs are not told by Slurm when they end: their workers learn it from the job script, as a
    /// question of each element would be one too many.
    pub(super) fn partitions(&self) -> Vec<slurm::Partition> {
        match self {
            Self::Slurm(limits, all)
                if !limits.version.as_deref().is_some_and(slurm::tells_end) =>
            {
                all.clone()
            }
            _ => Vec::new(),
        }
    }

    /// What of its limits people should hear of.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Slurm(..) => &[],
            Self::Pbs(read) => &read.notes,
        }
    }

    /// Whether it deletes what waits for a job that has ended, so that nothing may end too early. A routing queue
    /// does not hand on what is held, while what waits for it takes the places behind.
    pub(super) fn holds(&self) -> bool {
        matches!(self, Self::Pbs(read) if !read.keeps_jobs && !read.routes)
    }

    /// How it is spoken to.
    pub(super) fn backend(&self) -> Backend {
        match self {
            Self::Slurm(limits, _) => Backend::Slurm { accounting: limits.accounting },
            Self::Pbs(read) => {
                Backend::Pbs { history: read.limits.accounting, keeps: read.keeps_jobs }
            }
        }
    }

    /// The places behind a routing queue, where it hands on only so many elements at a time.
    pub(super) fn places(&self, calls: &mut Calls) -> Result<Option<Places>> {
        match self {
            Self::Slurm(..) => Ok(None),
            Self::Pbs(read) => read.places(calls),
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
            Self::Slurm(limits, _) => limits::check_queue(calls, elements, limits, account),
            Self::Pbs(read) => read.check_queue(elements),
        }
    }
}

/// Refuses a folder that the scheduler cannot name to a job.
pub(super) fn check_path(tree: &Tree, kind: SchedulerKind) -> Result<()> {
    let path = tree.dir().to_string_lossy();
    if path.chars().any(char::is_control) {
        // A directive ends at the end of its line.
        let sentence =
            format!("a job cannot be told the path {path:?}: it holds a control character");
        return Err(Fault::request(sentence)
            .hint("use a folder, and a `[sweep] root`, without line breaks and tabs in their names")
            .into());
    }
    if kind != SchedulerKind::Pbs || pbs::can_travel(&tree.dir().to_string_lossy()) {
        return Ok(());
    }
    let sentence = format!("PBS cannot pass on the path `{}`", tree.dir().display());
    let hint =
        "use a folder whose path has ASCII letters alone, and no comma, quote, backslash or `^`";
    Err(Fault::request(sentence).hint(hint).into())
}
