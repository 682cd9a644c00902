//! Chains of jobs that stand still because a job waits for one that has ended.

use std::collections::BTreeMap;

use anyhow::Result;

use super::backend::Backend;
use super::batch::Run;
use super::wave::Waves;
use crate::scheduler::calls::refusal;
use crate::scheduler::{self, pbs};
use crate::status::stalled;
use crate::tree::journal::Standing;
use crate::tree::records;

impl Run<'_> {
    /// Lets go the jobs of earlier submissions that wait for jobs that have ended. A fault on the way is told, as all that
    /// was to be submitted has been.
    pub(super) fn free_stalled(&mut self, waves: &Waves, tell: &mut impl FnMut(&str)) {
        if let Err(error) = self.try_free(waves, tell) {
            tell(&format!("jobs may wait for others that have ended: {error:#}"));
        }
    }

    fn try_free(&mut self, waves: &Waves, tell: &mut impl FnMut(&str)) -> Result<()> {
        let Backend::Pbs { history, .. } = self.backend else { return Ok(()) };
        let is_earlier = |array: u32| matches!(self.journal.arrays.get(&array), Some(Standing::Job { time, .. }) if *time < self.began);
        let waits = |array: u32, wait: &[u32], after: Option<u32>| {
            (after.is_some() || !wait.is_empty()) && is_earlier(array)
        };
        if !waves.arrays().any(|(_, a, _)| waits(a.array, &a.wait, a.after)) {
            return Ok(());
        }
        let records = records::all(&self.tree)?;
        let arrays = waves.arrays().map(|(_, array, trials)| (array, trials));
        let mut suspects = stalled::suspects(arrays, &self.journal, &records);
        suspects.retain(|suspect| is_earlier(suspect.array));
        if suspects.is_empty() {
            return Ok(());
        }
        let own = suspects.iter().map(|suspect| &suspect.job);
        let before = suspects.iter().flat_map(|suspect| &suspect.waits_for);
        let mut asked: Vec<String> = own.clone().chain(before).cloned().collect();
        pbs::sort(&mut asked);
        let jobs = pbs::ask_of(&mut self.calls, &asked, history)?;
        let ended = pbs::jobs::ended(&asked, &jobs);
        let has_ended = |id: &str| ended.contains(id);
        let mut stalled: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for job in jobs.iter().filter(|job| own.clone().any(|id| *id == job.id)) {
            if job.is_stalled(has_ended) {
                stalled.entry(job.depend_without(has_ended)).or_default().push(job.id.clone());
            }
        }
        for (depend, ids) in stalled {
            for some in scheduler::pieces(&ids) {
                let argv = pbs::depend(some, &depend);
                let output = self.calls.make(&argv)?;
                // One that has been deleted meanwhile is no fault.
                if !pbs::has_answered(output.code) {
                    return Err(refusal(&argv, &output).into());
                }
            }
            for id in ids {
                tell(&format!("job {id}: it waited for a job that has ended, and goes on"));
            }
        }
        Ok(())
    }
}
