//! Trials whose job was killed with their workers, so that no record says why: because it was out of memory, or because one
//! rank was killed and the launcher ended the others at once. The scheduler's state of the job, or the lines that scheduler and
//! launcher write into the job's log, do. Of trials that were only asked to stop, these lines say why.

use std::collections::HashMap;

use crate::cause::{Cause, log};
use crate::host::disk;
use crate::scheduler::{Element, End, State as Word};
use crate::standing::{Standing, State};
use crate::tree::Tree;
use crate::tree::records::{self, Record};
use crate::tree::waves::Wave;
use crate::{units, words};

use super::places::Places;

/// The jobs of a sweep.
pub(super) struct Jobs<'a> {
    pub(super) tree: &'a Tree,
    pub(super) waves: &'a [(Wave, Vec<u64>)],
    pub(super) places: &'a Places,
    pub(super) element: &'a dyn Fn(u64) -> Option<Element>,
}

impl Jobs<'_> {
    /// Says of the trials that were killed for their memory that they were, and of others why their job was ended.
    pub(super) fn explain(
        &self,
        trials: impl Iterator<Item = u64>,
        records: &HashMap<u64, Record>,
        standings: &mut [Standing],
    ) {
        for (trial, standing) in trials.zip(standings) {
            let Some(attempt) = records.get(&trial).and_then(Record::decisive) else { continue };
            // A recorded end has the reason, unless all that it has is the kernel's signal.
            let is_blank = match &attempt.end {
                None => standing.state.is_bad(),
                Some(_) => {
                    standing.state == State::Failed
                        && standing.cause == Some(Cause::Signal)
                        && standing.reason.ends_with(&records::signal_text(9))
                }
            };
            if let (true, Some(why)) = (is_blank, self.why(trial)) {
                let cause = Some(Cause::OutOfMemory);
                *standing = Standing { state: State::Failed, cause, reason: why };
            } else if let (None, State::Failed, Some(why)) =
                (&attempt.end, &standing.state, self.lost_rank(trial))
            {
                let cause = Some(Cause::RankLost);
                *standing = Standing { state: State::Failed, cause, reason: why };
            } else if matches!(standing.cause, Some(Cause::Stopped | Cause::WorkerLost)) {
                standing.cause = self.stop(trial).or(standing.cause);
            }
        }
    }

    /// Why the job of a trial was killed, where memory is why.
    fn why(&self, trial: u64) -> Option<String> {
        let (array, index) = self.places.of(trial)?;
        let is_said = (self.element)(trial)
            .is_some_and(|element| matches!(element.state, Word::Ended(End::Memory, _)));
        let line = self.line(array, index);
        if !is_said && line.is_none() {
            return None;
        }
        let mut arrays = self.waves.iter().flat_map(|(wave, _)| &wave.arrays);
        let asked = arrays.find(|a| a.array == array).and_then(|a| a.resources.memory_mib);
        let asked = match asked {
            Some(mib) => format!("{} asked for", units::memory_text(mib)),
            None => "no `memory` asked for".to_owned(),
        };
        let line = line.map(|line| format!(" ({line})")).unwrap_or_default();
        Some(format!("out of memory: the whole job was killed, {asked}{line}"))
    }

    /// Why the job of a trial was ended, by its log.
    fn stop(&self, trial: u64) -> Option<Cause> {
        let (array, index) = self.places.of(trial)?;
        log::of_stop(&self.text(array, index)?)
    }

    /// The rank that the launcher saw end first, by the job's log.
    fn lost_rank(&self, trial: u64) -> Option<String> {
        let (array, index) = self.places.of(trial)?;
        let log::Task { rank, node, how } = log::of_first_task(&self.text(array, index)?)?;
        Some(format!("rank {rank} on {node} vanished: {how} (from the job's log)"))
    }

    /// The last line of a job's log about memory: it may show how much there was.
    fn line(&self, array: u32, index: u64) -> Option<String> {
        log::of_memory(&self.text(array, index)?).map(|line| words::short(line, 160))
    }

    /// The end of the log of an element; `None` if it has none.
    fn text(&self, array: u32, index: u64) -> Option<String> {
        let bytes = disk::read_end(&self.tree.job_log(array, index), log::MOST_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
