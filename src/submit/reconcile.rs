//! A call without an answer: whether the scheduler has its job all the same.

use std::time::Duration;

use anyhow::Result;

use super::batch::Run;
use crate::host::clock;
use crate::tree::journal::Standing;
use crate::tree::records;
use crate::tree::waves::Array;

impl Run<'_> {
    /// Finds out what became of an earlier call for an array that has no answer: its job, or, where there was
    /// no such call or it never arrived, nothing.
    ///
    /// # Errors
    /// When nobody can tell, or the disk refuses.
    pub(super) fn settle(
        &mut self,
        array: &Array,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<String>> {
        let Some(Standing::Open { token, time }) = self.journal.arrays.get(&array.array).cloned()
        else {
            return Ok(None);
        };
        tell(&format!("array {}: an earlier call has no answer; looking for it", array.array));
        if let Some(job) = self.reconcile(&token, array, time, trials, tell)? {
            self.answer(array, &token, &job, "reconciled")?;
            tell(&format!("array {}: it is job {job}", array.array));
            return Ok(Some(job));
        }
        self.refused(array, &token, "not found by its token: the call never arrived")?;
        Ok(None)
    }

    /// Looks for the job of an array by its token: in the queue, in the accounts, in what its elements
    /// have recorded. Not found is believed only when the call is old enough to have arrived.
    pub(super) fn reconcile(
        &mut self,
        token: &str,
        array: &Array,
        since: f64,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<String>> {
        let settle = self.site.limits.settle_s as f64;
        let mut tries = 0;
        loop {
            let looked = self.look_for(token, array, trials, since);
            match looked {
                Ok(Some(job)) => return Ok(Some(job)),
                Ok(None) => {
                    let left = since + settle - clock::now();
                    if left <= 0.0 {
                        return Ok(None);
                    }
                    tell(&format!("not there yet; it may still arrive: waiting {left:.0} s"));
                    std::thread::sleep(Duration::from_secs_f64(left.min(settle)));
                }
                Err(error) if tries >= 3 => {
                    return Err(error.context(
                        "cannot tell whether the scheduler has the job; nothing was submitted twice",
                    ));
                }
                Err(_) => {
                    tries += 1;
                    let pause = (1 << tries).min(self.site.limits.settle_s);
                    std::thread::sleep(Duration::from_secs(pause));
                }
            }
        }
    }

    fn look_for(
        &mut self,
        token: &str,
        array: &Array,
        trials: &[u64],
        since: f64,
    ) -> Result<Option<String>> {
        let script = self.script(array, token);
        let script = script.to_string_lossy();
        if let Some(job) = self.backend.look_for(&mut self.calls, token, &script, since)? {
            return Ok(Some(job));
        }
        // Without accounts, a job that ran and was forgotten has left its id in a record.
        let known = |job: &str| {
            self.journal.arrays.values().any(|s| matches!(s, Standing::Job { id, .. } if id == job))
        };
        for &trial in trials {
            for attempt in records::of_trial(&self.tree, trial)?.0.attempts {
                let base = attempt.start.job.as_deref().map(records::array_of);
                if let Some(base) = base
                    && attempt.start.time >= since - 60.0
                    && !known(&base)
                {
                    return Ok(Some(base));
                }
            }
        }
        Ok(None)
    }
}
