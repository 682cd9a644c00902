//! What exactly-once submission asks of a scheduler, for each of them.

use std::collections::HashSet;

use anyhow::Result;

use crate::host::process::Output;
use crate::host::vars;
use crate::scheduler::calls::Calls;
use crate::scheduler::pbs::jobs::{self, Job};
use crate::scheduler::{pbs, slurm};
use crate::site::SchedulerKind;

/// A scheduler that takes jobs, and what it can tell of them afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// Slurm; with accounts, ended jobs can be asked for.
    Slurm {
        /// Whether there are any.
        accounting: bool,
    },
    /// PBS; with a history, ended jobs can be asked for.
    Pbs {
        /// Whether there is one.
        history: bool,
        /// Whether it holds a job for a day at least.
        keeps: bool,
    },
}

/// What an array waits for.
#[derive(Default)]
pub(super) struct After {
    /// The job it follows: element by element, where the scheduler can.
    pub(super) follow: Option<String>,
    /// Jobs that must have ended.
    pub(super) wait: Vec<String>,
    /// Whether the scheduler was asked for them: they may have ended since.
    pub(super) asked: bool,
}

impl After {
    /// All of them.
    pub(super) fn jobs(&self) -> Vec<String> {
        self.follow.iter().chain(&self.wait).cloned().collect()
    }

    /// What an array waits for, in words.
    pub(super) fn words(&self) -> String {
        let jobs = self.jobs();
        if jobs.is_empty() { String::new() } else { format!(", after {}", jobs.join(", ")) }
    }
}

impl Backend {
    /// The word for it in the tree.
    pub(super) fn word(self) -> &'static str {
        self.kind().word()
    }

    pub(super) fn kind(self) -> SchedulerKind {
        match self {
            Self::Slurm { .. } => SchedulerKind::Slurm,
            Self::Pbs { .. } => SchedulerKind::Pbs,
        }
    }

    /// Whether it can be asked for jobs that have ended.
    pub(super) fn remembers(self) -> bool {
        match self {
            Self::Slurm { accounting } => accounting,
            Self::Pbs { history, .. } => history,
        }
    }

    pub(super) fn template(self) -> &'static str {
        match self {
            Self::Slurm { .. } => "slurm.sh.tera",
            Self::Pbs { .. } => "pbs.sh.tera",
        }
    }

    /// The name of a job with this token.
    pub(super) fn job_name(self, token: &str) -> String {
        match self {
            Self::Slurm { .. } => token.to_owned(),
            Self::Pbs { .. } => pbs::job_name(token),
        }
    }

    /// The call that submits a script.
    pub(super) fn submit(self, script: &str, after: &After, held: bool) -> Vec<String> {
        match self {
            Self::Slurm { .. } => slurm::submit(script, after.follow.as_deref(), &after.wait),
            Self::Pbs { .. } => pbs::submit(script, &after.jobs(), held),
        }
    }

    /// The job id in what the call printed.
    pub(super) fn submitted(self, stdout: &str) -> Option<String> {
        match self {
            Self::Slurm { .. } => slurm::submitted(stdout),
            Self::Pbs { .. } => pbs::submitted(stdout),
        }
    }

    /// Whether a failed call is known to have submitted nothing. Whatever is not, the next look settles.
    pub(super) fn is_refusal(self, output: &Output) -> bool {
        !matches!(output.code, None | Some(0))
            && self.submitted(&output.stdout).is_none()
            && match self {
                Self::Slurm { .. } => slurm::versions::is_refusal(&output.stderr),
                Self::Pbs { .. } => pbs::is_refusal(&output.stderr),
            }
    }

    /// The job of a token that was asked for at `since`, if the scheduler knows it. `script` is its script.
    pub(super) fn look_for(
        self,
        calls: &mut Calls,
        token: &str,
        script: &str,
        since: f64,
    ) -> Result<Option<String>> {
        match self {
            Self::Slurm { accounting } => {
                let found = |lines: Vec<slurm::Line>| {
                    lines.into_iter().find(|l| l.name == token).map(|l| l.job)
                };
                if let Some(job) = found(queue(calls)?) {
                    return Ok(Some(job));
                }
                if !accounting {
                    return Ok(None);
                }
                let text = calls.ask(&slurm::accounts_by_name(token, since))?;
                Ok(found(slurm::lines(&text)))
            }
            Self::Pbs { history, .. } => {
                let jobs = pbs::ask(calls, &pbs::all(history))?;
                Ok(jobs::find(&jobs, &self.job_name(token), script))
            }
        }
    }

    /// Which of these jobs the scheduler still knows, so that another may wait for them.
    pub(super) fn known(self, calls: &mut Calls, ids: &[String]) -> Result<HashSet<String>> {
        match self {
            Self::Slurm { .. } => Ok(queue(calls)?.into_iter().map(|line| line.job).collect()),
            Self::Pbs { history, keeps } => {
                let jobs = pbs::ask_of(calls, ids, history)?;
                // Without a history a job that has ended is one that PBS deletes dependents for.
                let lives = |job: &&Job| keeps || !matches!(job.state.as_str(), "F" | "E");
                Ok(jobs.iter().filter(lives).map(|job| job.id.clone()).collect())
            }
        }
    }
}

fn queue(calls: &mut Calls) -> Result<Vec<slurm::Line>> {
    Ok(slurm::lines(&calls.ask(&slurm::queue(&vars::user_name()))?))
}
