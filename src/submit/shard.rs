//! A part of a plan: the trials that one of several clusters runs.
//!
//! A trial belongs to a shard by its key, or, in a chain, by the chain's name. So a chain is never divided, and a trial stays
//! where it is when the plan grows.

use std::collections::HashMap;

use anyhow::Result;

use super::{Source, grow};
use crate::base::fault::Fault;
use crate::base::words::count;
use crate::plan::Trial;
use crate::plan::key::Keys;
use crate::sweep::tree::shard::{Shard, Shards};
use crate::sweep::tree::table;

/// The part of a plan that its sweep has.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) shards: Shards,
    /// All trials of the plan.
    whole: Vec<Trial>,
}

/// What decides to which shard a trial belongs.
fn hash(trial: &Trial, keys: &mut Keys) -> u64 {
    let bytes = match &trial.task_id {
        Some(task) => {
            let name = blake3::hash(format!("hpcsweep shard 1 {task}").as_bytes());
            name.as_bytes()[..8].try_into()
        }
        None => keys.key_of(&trial.params)[..8].try_into(),
    };
    u64::from_le_bytes(bytes.unwrap_or_default())
}

impl Source {
    /// Leaves out the trials of other shards, if the sweep has only a part of its plan. Trials that the sweep has already
    /// stay.
    ///
    /// # Errors
    /// When the sweep's record of its part is damaged.
    pub(super) fn narrow(&mut self) -> Result<()> {
        let tree = self.tree();
        // Whoever cannot read the sweep is refused by its first step, which says whom to ask.
        if matches!(tree.identity(), Ok(Some(_)))
            && let Some(shards) = Shards::read(&tree)?
        {
            self.keep_to(shards);
        }
        Ok(())
    }

    fn keep_to(&mut self, shards: Shards) {
        let whole = match self.part.take() {
            Some(part) => part.whole,
            None => std::mem::take(&mut self.plan.trials),
        };
        let mut has: HashMap<String, u64> = HashMap::new();
        // Whatever acts on a damaged table refuses it later.
        for key in table::keys(&self.tree()).unwrap_or_default() {
            *has.entry(key).or_default() += 1;
        }
        let mut keys = self.plan.keys();
        let mut is_kept = |trial: &&Trial| {
            let known = has.get_mut(&grow::hex(&keys.key_of(&trial.params))).filter(|n| **n > 0);
            let is_known = known.map(|n| *n -= 1).is_some();
            is_known || shards.has(hash(trial, &mut keys))
        };
        self.plan.trials = whole.iter().filter(&mut is_kept).cloned().collect();
        self.part = Some(Part { shards, whole });
    }

    /// The sweep gets this part of the plan, besides those that it has. Returns what to say. The next growth records it.
    ///
    /// # Errors
    /// When the sweep was divided in another way, or not at all, or the part has no trial.
    pub(crate) fn take_shard(&mut self, shard: Shard) -> Result<Option<String>> {
        let tree = self.tree();
        let dir = tree.dir().display();
        let before = Shards::read(&tree)?;
        let shards = match &before {
            Some(own) => own.with(shard).ok_or_else(|| {
                Fault::request(format!("`{dir}` has {}: the plan is divided already", own.words()))
                    .hint("divide it in as many parts on each cluster; `--shard 1/1` is the whole plan")
            })?,
            None => Shards::one(shard),
        };
        if before.is_none() && !shards.is_whole() && table::count(&tree)? > 0 {
            return Err(Fault::request(format!("`{dir}` was submitted as a whole"))
                .hint("a shard is chosen when a sweep is submitted first; name another `[sweep] root`")
                .into());
        }
        self.keep_to(shards);
        let Some(part) = &self.part else { return Ok(None) };
        if self.plan.trials.is_empty() {
            let all = count(part.whole.len() as u64, "trial");
            let sentence = format!("{} of {} has no trial", part.shards.words(), self.plan.name);
            return Err(Fault::request(sentence)
                .hint(format!("the plan has {all}: divide it in fewer parts"))
                .into());
        }
        let grew = before.filter(|before| *before != part.shards);
        Ok(grew.map(|before| format!("this sweep had {} before", before.words())))
    }

    /// The part that the sweep has, in words: `shard 2 of 3: 4 of 12 trials`. `None` if it is the whole plan.
    pub(crate) fn part_words(&self) -> Option<String> {
        let part = self.part.as_ref().filter(|part| !part.shards.is_whole())?;
        let all = count(part.whole.len() as u64, "trial");
        Some(format!("{}: {} of {all}", part.shards.words(), self.plan.trials.len()))
    }
}
