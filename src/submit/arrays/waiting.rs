//! What an array waits for, and a scheduler that deletes what waits in vain.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;

use crate::cluster::scheduler::After;
use crate::submit::arrays::batch::Submission;
use crate::submit::arrays::wave::Waves;
use crate::sweep::tree::journal::{Journal, Standing};
use crate::sweep::tree::records::{self, Record};
use crate::sweep::tree::waves::{Array, Feeder};

/// Elements that a feeder waits for at most. One of so many ends soon enough, and a command line has room for them.
const MOST_ELEMENTS: usize = 16;

impl Submission<'_> {
    /// What an array waits for. A parent that the scheduler may have forgotten is left to the worker,
    /// which looks at its predecessor's record anyway.
    pub(crate) fn dependency(&mut self, array: &Array) -> Result<After> {
        let mut after = After::default();
        let known = |journal: &Journal, array: u32| journal.job(array).map(str::to_owned);
        let since = self.scheduler.knows_since(self.began);
        let fresh = |journal: &Journal, array: u32| match journal.arrays.get(&array) {
            Some(Standing::Job { time, .. }) => *time >= since,
            _ => false,
        };
        if let Some(parent) = array.after {
            after.follow = known(&self.journal, parent);
        }
        after.wait = array.wait.iter().filter_map(|&a| known(&self.journal, a)).collect();
        let recent = array.after.is_none_or(|a| fresh(&self.journal, a));
        let all_fresh = recent && array.wait.iter().all(|&a| fresh(&self.journal, a));
        if !all_fresh {
            after.asked = true;
            let known = self.scheduler.known(&mut self.calls, &after.jobs())?;
            after.follow = after.follow.filter(|job| known.contains(job));
            after.wait.retain(|job| known.contains(job));
        }
        let begins_early = |own: &Feeder| !own.is_learning && self.scheduler.facts().is_elementwise;
        if array.feeder.as_ref().is_some_and(begins_early) {
            after.any = self.later_half(&after.wait)?;
            after.wait.clear();
        }
        Ok(after)
    }

    /// Whether a feeder can wait for an element of these arrays.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn has_open_elements(&self, arrays: &BTreeSet<u32>) -> Result<bool> {
        let jobs = arrays.iter().filter_map(|array| self.journal.job(*array).map(str::to_owned));
        let is_elementwise = self.scheduler.facts().is_elementwise;
        Ok(is_elementwise && !self.later_half(&jobs.collect::<Vec<_>>())?.is_empty())
    }

    /// Elements of these jobs that have not ended: some of the later half of them, in the order in which they begin. A feeder
    /// begins when one of them has ended, because it would wait for the slowest trial otherwise.
    fn later_half(&self, jobs: &[String]) -> Result<Vec<String>> {
        let waves = Waves::read(&self.tree)?;
        let records = match self.open_trials {
            Some(_) => HashMap::new(),
            None => records::all(&self.tree)?,
        };
        let places = waves.places();
        let is_open = |array: &Array, job: &str, trial: u64| {
            let is_new = self.journal.submitted(array.array).is_some_and(|at| at >= self.began);
            let has_ended = |record: &Record| {
                let own = record.attempts.iter().filter(|attempt| attempt.is_of_job(job));
                record.skipped.is_some() || own.into_iter().any(|a| a.outcome().is_some())
            };
            places.get(&trial).is_some_and(|(own, _)| *own == array.array)
                && (is_new
                    || match &self.open_trials {
                        Some(open) => open.contains(&trial),
                        None => !records.get(&trial).is_some_and(has_ended),
                    })
        };
        let mut elements = Vec::new();
        for (_, array, trials) in waves.arrays() {
            let job = self.journal.job(array.array).filter(|job| jobs.iter().any(|id| id == job));
            let Some(job) = job else { continue };
            for index in 0..array.count {
                let own = trials.iter().skip(index as usize).step_by(array.count.max(1) as usize);
                if own.into_iter().any(|trial| is_open(array, job, *trial)) {
                    let element = match array.single {
                        true => job.to_owned(),
                        false => self.scheduler.element(job, index),
                    };
                    elements.push((array.link, array.array, element));
                }
            }
        }
        elements.sort_by_key(|(link, array, _)| (*link, *array));
        let half = elements.len() / 2;
        Ok(elements.into_iter().skip(half).take(MOST_ELEMENTS).map(|(.., id)| id).collect())
    }

    /// Whether the scheduler has deleted a job at once, because one that it waits for ended between our question for that
    /// one and the call.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn is_swept_away(
        &mut self,
        after: &After,
        job: &str,
        trials: &[u64],
    ) -> Result<bool> {
        let waits_for = after.jobs();
        // Jobs of this submission are held, or wait for held ones.
        if waits_for.is_empty() || !after.asked || !self.scheduler.deletes_dependents() {
            return Ok(false);
        }
        let mut asked = waits_for.clone();
        asked.push(job.to_owned());
        let known = self.scheduler.known(&mut self.calls, &asked)?;
        // While they are all there it is, too.
        if known.contains(job) || waits_for.iter().all(|id| known.contains(id)) {
            return Ok(false);
        }
        // The job may have been released, run, and been forgotten.
        for &trial in trials {
            let (record, _) = records::of_trial(&self.tree, trial)?;
            if record.skipped.is_some() || record.attempts.iter().any(|a| a.is_of_job(job)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
