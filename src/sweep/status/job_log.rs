//! Trials whose job was killed with their workers, so that no record says why: because it was out of memory, or because one
//! rank was killed and the launcher ended the others at once. The scheduler's state of the job, or the lines that scheduler and
//! launcher write into the job's log, do. Of trials that were only asked to stop, these lines say why.

use std::borrow::Cow;

use crate::base::cause::{Cause, log};
use crate::base::host::disk;
use crate::base::units;
use crate::base::words;
use crate::cluster::scheduler::{Element, End, State as Word};
use crate::sweep::standing::{Standing, State};
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::{self, Attempt, ByTrial, Record};
use crate::sweep::tree::waves::Wave;

use super::places::Places;

/// The jobs of a sweep.
pub(super) struct Jobs<'a> {
    /// The end of the log of an element of an array; `None` if it has none.
    pub(super) log: &'a dyn Fn(u32, u64) -> Option<String>,
    pub(super) waves: &'a [(Wave, Vec<u64>)],
    pub(super) places: &'a Places,
    pub(super) element: &'a dyn Fn(u64) -> Option<Cow<'a, Element>>,
    /// Whether an attempt ran in the job of its trial.
    pub(super) is_of: &'a dyn Fn(u64, &Attempt) -> bool,
}

impl Jobs<'_> {
    /// Says of the trials that were killed for their memory that they were, and of others why their job was ended.
    pub(super) fn explain(
        &self,
        trials: impl Iterator<Item = u64>,
        records: &ByTrial,
        standings: &mut [Standing],
    ) {
        for (trial, standing) in trials.zip(standings) {
            let record = records.get(&trial);
            let is_unrecorded =
                record.is_none_or(|record| record.attempts.is_empty() && record.skipped.is_none());
            if is_unrecorded && matches!(standing.state, State::Failed | State::Lost) {
                self.add_words(trial, standing);
                continue;
            }
            let attempt = record.and_then(Record::decisive);
            let of_job = |attempt: &&Attempt| attempt.end.is_none() || (self.is_of)(trial, attempt);
            let Some(attempt) = attempt.filter(of_job) else { continue };
            // A recorded end has the reason, unless all that it has is the kernel's signal.
            let is_blank = match &attempt.end {
                None => standing.state.is_bad(),
                Some(_) => {
                    standing.state == State::Failed
                        && standing.cause == Some(Cause::Signal)
                        && standing.reason.ends_with(&records::signal_text(9))
                }
            };
            // Most trials have said how they ended, and their logs stay closed.
            let may_be_lost = attempt.end.is_none() && standing.state == State::Failed;
            let memory = is_blank.then(|| self.why(trial)).flatten();
            let memory = memory.map(|why| (Cause::OutOfMemory, why));
            let lost = || self.lost_rank(trial).map(|why| (Cause::RankLost, why));
            let by_log = memory.or_else(|| may_be_lost.then(lost).flatten());
            if let Some((cause, reason)) = by_log {
                *standing = Standing { state: State::Failed, cause: Some(cause), reason };
            } else if matches!(standing.cause, Some(Cause::Stopped | Cause::WorkerLost)) {
                standing.cause = self.stop(trial).or(standing.cause);
            }
        }
    }

    /// Adds what the job's log says of a trial that never began, as where its program or ours was moved while the job waited.
    fn add_words(&self, trial: u64, standing: &mut Standing) {
        let log = self.places.of(trial).and_then(|(array, index)| (self.log)(array, index));
        let Some((cause, line)) = log.as_deref().and_then(log::of_job) else { return };
        standing.cause = cause.or(standing.cause);
        standing.reason = format!("{}: {line} (from the job's log)", standing.reason);
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
        log::of_stop(&(self.log)(array, index)?)
    }

    /// Which rank the launcher saw end first, by the job's log.
    fn lost_rank(&self, trial: u64) -> Option<String> {
        let (array, index) = self.places.of(trial)?;
        let said = log::of_lost_rank(&(self.log)(array, index)?)?;
        Some(format!("{said} (from the job's log)"))
    }

    /// The last line of a job's log about memory: it may show how much there was.
    fn line(&self, array: u32, index: u64) -> Option<String> {
        log::of_memory(&(self.log)(array, index)?).map(|line| words::short(line, 160))
    }
}

/// The end of the log of an element in a sweep's tree.
pub(super) fn end(tree: &Tree, array: u32, index: u64) -> Option<String> {
    let bytes = disk::read_end(&tree.job_log(array, index), log::MOST_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::*;
    use crate::plan::{OnFailure, Resources};
    use crate::sweep::tree::records::{End, Outcome, Start};
    use crate::sweep::tree::waves::Array;

    /// Trial 0 is done, trial 1 failed by itself, trial 2 left no end.
    #[test]
    fn the_log_of_a_job_is_read_only_where_no_record_says_how_the_trial_ended() {
        let array = Array {
            array: 1,
            block: 0,
            link: 0,
            first: 0,
            count: 3,
            links: 1,
            single: false,
            after: None,
            wait: Vec::new(),
            on_failure: OnFailure::Stop,
            resources: Resources::default(),
            walltimes_s: Vec::new(),
            pilot: None,
            feeder: None,
        };
        let wave = Wave {
            format: 2,
            wave: 1,
            target: "slurm".into(),
            created: 0.0,
            chains: crate::cluster::graph::Mapping::default(),
            arrays: vec![array],
            learnt: Vec::new(),
            ended: Vec::new(),
        };
        let waves = vec![(wave, vec![0, 1, 2])];
        let record = |trial: u64, state: Option<(Outcome, i32)>| {
            let start = Start { trial, attempt: 1, ..Start::default() };
            let end = state.map(|(state, code)| -> End {
                let end = serde_json::json!({
                    "trial": trial, "attempt": 1, "time": 1.0, "state": state, "exit_code": code, "duration_s": 1.0,
                });
                serde_json::from_value(end).unwrap()
            });
            let attempt = Attempt { end, ..Attempt::begun(start, 1, None) };
            (trial, Record { attempts: vec![attempt], ..Record::default() })
        };
        let records = HashMap::from([
            record(0, Some((Outcome::Done, 0))),
            record(1, Some((Outcome::Failed, 3))),
            record(2, None),
        ])
        .into();
        let standing = |state, cause| Standing { state, cause, reason: String::new() };
        let mut standings = [
            standing(State::Done, None),
            standing(State::Failed, Some(Cause::ExitCode)),
            standing(State::Failed, Some(Cause::WorkerLost)),
        ];
        let opened = RefCell::new(Vec::new());
        let log = |_: u32, index: u64| {
            opened.borrow_mut().push(index);
            None
        };
        let places = Places::new(&waves);
        let jobs = Jobs {
            log: &log,
            waves: &waves,
            places: &places,
            element: &|_| None,
            is_of: &|_, _| true,
        };
        jobs.explain(0..3, &records, &mut standings);
        let mut opened = opened.into_inner();
        opened.dedup();
        assert_eq!(opened, [2]);
    }
}
