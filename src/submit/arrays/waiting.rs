//! What an array waits for, and a scheduler that deletes what waits in vain.

use anyhow::Result;

use crate::scheduler::After;
use crate::submit::arrays::batch::Submission;
use crate::tree::journal::{Journal, Standing};
use crate::tree::records;
use crate::tree::waves::Array;

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
        Ok(after)
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
