//! Which trials a retry is about: what a person asked for, held against how the trials stand.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::Context;
use crate::answers::select::Wanted;
use crate::base::words::count;
use crate::submit::Source;
use crate::submit::again::{self, Again};
use crate::submit::grow::{self, Diff};
use crate::submit::retry;
use crate::sweep::tree::{Identity, Tree, table};

/// The trials of a sweep that are to run again, and why others are not.
pub(super) struct Chosen {
    trials: BTreeSet<u64>,
    diff: Diff,
    /// Trials that were asked for and do not run again, by state.
    left: BTreeMap<String, u64>,
}

/// Chooses among the trials that ended without success; without a wish all of them are meant. The scheduler is asked how they
/// stand.
///
/// # Errors
/// When the tree cannot be read, a wish cannot be understood, or the scheduler does not answer.
pub(super) fn choose(
    tree: &Tree,
    identity: &Identity,
    source: &Source,
    wanted: &Wanted,
    context: &Context,
) -> Result<Chosen> {
    let site = context.site()?;
    let vars = &context.vars;
    let status = retry::sure(tree, identity, &site, vars)?;
    let meant =
        wanted.trials_in(std::slice::from_ref(&status))?.into_iter().next().unwrap_or_default();
    let diff = grow::diff(tree, source)?;
    let on_failure = grow::on_failure(&table::heads(tree)?);
    let mut trials = again::with_chains(&status, &meant, on_failure);
    trials.retain(|trial| diff.has(*trial));
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for (row, standing) in status.trials().filter(|(row, _)| meant.contains(&row.id)) {
        if !diff.has(row.id) {
            *left.entry("dropped".to_owned()).or_default() += 1;
        } else if !trials.contains(&row.id) {
            *left.entry(standing.state.word()).or_default() += 1;
        }
    }
    if wanted.is_all() {
        left.remove("done");
    }
    Ok(Chosen { trials, diff, left })
}

impl Chosen {
    /// The choice as submissions take it.
    ///
    /// # Errors
    /// When a request cannot be changed as wished.
    pub(super) fn again(self, change: &again::Change, alone: bool) -> Result<Again> {
        Again::these(self.trials, change, &self.diff, alone)
    }

    /// Says which trials that were asked for are left alone.
    pub(super) fn say_left(&self, name: &str, context: &Context) {
        for (state, n) in &self.left {
            context.out.say(&format!("{name}: left alone: {} ({state})", count(*n, "trial")));
        }
    }
}
