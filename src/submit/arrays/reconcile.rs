//! A call without an answer: whether the scheduler has its job all the same.

use std::time::Duration;

use anyhow::Result;

use super::wave::Waves;
use crate::base::host::clock;
use crate::cluster::scheduler::Scheduler;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::job::array_of;
use crate::plan::site::Site;
use crate::sweep::tree::journal::{Entry, Journal, Standing, Writer};
use crate::sweep::tree::waves::Array;
use crate::sweep::tree::{Tree, records};

/// Finds out what became of the calls of submissions that are gone, and writes it down. Returns the jobs that it found. `waits`:
/// until each call must have arrived; otherwise one look settles what it finds. The caller holds the lock.
///
/// A call without an answer is a job that may exist, so whatever counts jobs, or decides about them, settles it first.
///
/// # Errors
/// When the scheduler's state is unknown, or the disk refuses.
pub(in crate::submit) fn settle_all(
    tree: &Tree,
    site: &Site,
    calls: &mut Calls,
    waits: bool,
    tell: &mut impl FnMut(&str),
) -> Result<Vec<(Array, String)>> {
    let journal = Journal::read(tree)?;
    if !journal.has_open_call() {
        return Ok(Vec::new());
    }
    let scheduler = journal.scheduler();
    let target = scheduler.facts().kind.word();
    let mut search = Search {
        tree,
        journal: &journal,
        scheduler: &*scheduler,
        calls,
        settle_s: site.limits.settle_s,
    };
    let waves = Waves::read(tree)?;
    let (mut writer, mut found) = (Writer::open(tree)?, Vec::new());
    for (wave, map) in waves.all.iter().zip(&waves.maps).filter(|(wave, _)| wave.target == target) {
        for array in &wave.arrays {
            let trials = array.trials(map);
            let entry = match waits {
                true => search.settle(array, trials, tell)?,
                false => search.glance(array, trials, tell),
            };
            if let Some(entry) = entry {
                writer.write(&entry)?;
                if let Entry::Answer { job, .. } = entry {
                    found.push((array.clone(), job));
                }
            }
        }
    }
    Ok(found)
}

/// Why an array may be asked for again.
const NOT_FOUND: &str = "not found by its token: the call never arrived";

/// What to write down of a job that was found.
fn found(array: &Array, token: String, job: String) -> Entry {
    let (how, time) = ("reconciled".to_owned(), clock::now());
    Entry::Answer { array: array.array, token, time, job, cluster: None, how }
}

/// Looks for the jobs of calls.
pub(in crate::submit) struct Search<'a> {
    pub(super) tree: &'a Tree,
    pub(super) journal: &'a Journal,
    pub(super) scheduler: &'a dyn Scheduler,
    pub(super) calls: &'a mut Calls,
    /// Seconds in which a call that was made must have arrived.
    pub(super) settle_s: u64,
}

impl Search<'_> {
    /// What became of an earlier call for an array; `None` where none is without an answer.
    fn settle(
        &mut self,
        array: &Array,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<Entry>> {
        let Some((token, time)) = self.unanswered(array) else { return Ok(None) };
        let number = array.array;
        tell(&format!("array {number}: an earlier call has no answer; looking for it"));
        let Some(job) = self.reconcile(&token, array, time, trials, tell)? else {
            let (reason, time) = (NOT_FOUND.to_owned(), clock::now());
            return Ok(Some(Entry::Refused { array: number, token, time, reason, full: false }));
        };
        tell(&format!("array {number}: it is job {job}"));
        Ok(Some(found(array, token, job)))
    }

    /// As [`Search::settle`], by one look: `None` also where it finds no job.
    fn glance(
        &mut self,
        array: &Array,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Option<Entry> {
        let (token, time) = self.unanswered(array)?;
        let job = self.look_for(&token, array, trials, time).ok()??;
        tell(&format!("array {}: an earlier call has no answer: it is job {job}", array.array));
        Some(found(array, token, job))
    }

    /// The token and the time of a call without an answer.
    fn unanswered(&self, array: &Array) -> Option<(String, f64)> {
        match self.journal.arrays.get(&array.array)? {
            Standing::Open { token, time } => Some((token.clone(), *time)),
            _ => None,
        }
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
        let settle = self.settle_s as f64;
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
                    let pause = (1 << tries).min(self.settle_s);
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
        let script = self.tree.script(&self.scheduler.script(array.array, token));
        let script = script.to_string_lossy();
        if let Some(job) = self.scheduler.find(self.calls, token, &script, since)? {
            return Ok(Some(job));
        }
        // Without accounts, a job that ran and was forgotten has left its id in a record.
        let known = |job: &str| self.journal.jobs().any(|id| id == job);
        for &trial in trials {
            for attempt in records::of_trial(self.tree, trial)?.0.attempts {
                let base = attempt.start.job.as_deref().map(array_of);
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
