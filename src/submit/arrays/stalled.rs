//! Chains of jobs that stand still because a job waits for one that has ended.

use anyhow::Result;

use crate::submit::arrays::batch::Submission;
use crate::submit::arrays::wave::Waves;
use crate::sweep::status::stalled;
use crate::sweep::tree::journal::Standing;
use crate::sweep::tree::records;

impl Submission<'_> {
    /// Releases the jobs of earlier submissions that wait for jobs that have ended. A fault on the way is only
    /// reported, because everything has been submitted.
    pub(crate) fn free_stalled(&mut self, waves: &Waves, tell: &mut impl FnMut(&str)) {
        if let Err(error) = self.try_free(waves, tell) {
            tell(&format!("jobs may wait for others that have ended: {error:#}"));
        }
    }

    fn try_free(&mut self, waves: &Waves, tell: &mut impl FnMut(&str)) -> Result<()> {
        if !self.scheduler.facts().leaves_stalled {
            return Ok(());
        }
        let is_earlier = |array: u32| matches!(self.journal.arrays.get(&array), Some(Standing::Job { time, .. }) if *time < self.began);
        let waits = |array: u32, wait: &[u32], after: Option<u32>| {
            (after.is_some() || !wait.is_empty()) && is_earlier(array)
        };
        if !waves.arrays().any(|(_, a, _)| waits(a.array, &a.wait, a.after)) {
            return Ok(());
        }
        let records = records::all(&self.tree)?;
        let arrays = waves.arrays().map(|(_, array, trials)| (array, trials));
        let mut suspects = stalled::suspects(arrays, &self.journal, &records.into());
        suspects.retain(|suspect| is_earlier(suspect.array));
        if suspects.is_empty() {
            return Ok(());
        }
        self.scheduler.free(&mut self.calls, &suspects, tell)
    }
}
