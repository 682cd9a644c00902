//! The arguments by which all verbs take sweeps and sets of trials.

use std::path::Path;

use anyhow::Result;

use super::Context;
use crate::answers::select::{Wanted, is_set};
use crate::base::fault::Fault;
use crate::sweep::status::Status;
use crate::sweep::tree::{Identity, Tree};

/// Which trials of a sweep a verb is about.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Select {
    /// Only these trials, as `3-7,12`; may be given several times
    #[arg(id = "trial", long = "trial", value_name = "IDS")]
    trials: Vec<String>,
    /// Only trials that ended without success
    ///
    /// These are the states failed, timeout, interrupted, cancelled, skipped, lost and doubtful.
    #[arg(long)]
    failed: bool,
    /// Only trials in this state, or in one of several: `failed,timeout`
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Only trials with this cause, or one of several: `oom,walltime`
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    cause: Vec<String>,
    /// Only trials for which this holds: `lr > 0.1 and state == "failed"`
    ///
    /// The names are those of parameters, metrics and columns of `collect`. A trial without a value that the expression needs
    /// is left out.
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,
}

/// The words of a command that are no options.
pub(super) struct Named {
    /// Sweeps: folders, plans or patterns.
    pub(super) sweeps: Vec<String>,
    /// Which of their trials are meant.
    pub(super) wanted: Wanted,
}

impl Select {
    /// Tells sets of trials from sweeps among the words.
    ///
    /// # Errors
    /// When a word may be both, or a set or the expression cannot be read.
    pub(super) fn read(&self, named: &[String]) -> Result<Named> {
        let (sets, sweeps): (Vec<&String>, Vec<&String>) = named.iter().partition(|w| is_set(w));
        if let Some(word) = sets.iter().find(|word| Path::new(word).exists()) {
            return Err(Fault::request(format!(
                "`{word}` may be a trial or the file of that name"
            ))
            .hint(format!("write `--trial {word}` or `./{word}`"))
            .into());
        }
        let sets: Vec<&str> = sets.into_iter().chain(&self.trials).map(String::as_str).collect();
        let wanted =
            Wanted::new(&sets, self.failed, &self.state, &self.cause, self.condition.as_deref())?;
        Ok(Named { sweeps: sweeps.into_iter().cloned().collect(), wanted })
    }
}

impl Named {
    /// The trials of one sweep that are meant; `None` if all are. The scheduler is asked only if it matters how they stand.
    ///
    /// # Errors
    /// As [`Wanted::trials_in`].
    pub(super) fn trials(
        &self,
        tree: &Tree,
        identity: &Identity,
        context: &Context,
    ) -> Result<Option<Vec<u64>>> {
        if self.wanted.is_all() {
            return Ok(None);
        }
        if let Some(ids) = self.wanted.ids.as_ref().filter(|_| self.wanted.is_by_number()) {
            return Ok(Some(ids.iter().map(u64::from).collect()));
        }
        let status = self.status(tree.clone(), identity.clone(), context)?;
        let all = self.wanted.trials_in(std::slice::from_ref(&status))?;
        Ok(all.into_iter().next().map(|trials| trials.into_iter().collect()))
    }

    /// How the trials of a sweep stand, as far as it matters for the choice.
    ///
    /// # Errors
    /// When the tree or the site profile cannot be read.
    pub(super) fn status(
        &self,
        tree: Tree,
        identity: Identity,
        context: &Context,
    ) -> Result<Status> {
        if !self.wanted.asks_for_states() {
            return self.wanted.look(tree, identity, None);
        }
        let site = context.site()?;
        self.wanted.look(tree, identity, Some((&site, &context.vars)))
    }
}
