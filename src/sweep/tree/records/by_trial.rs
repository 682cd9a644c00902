//! The records of a sweep by trial, for those who ask how trials stand.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use serde_json::Value;

use super::{Attempt, End, Outcome, Record, Start};
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::table::Which;

/// The records of trials. Of a trial that was done at once, it may have no more than that: a million of them take a million
/// bytes. What is to be known of their attempts has then been taken while they were read.
#[derive(Debug, Default)]
pub(crate) struct ByTrial {
    whole: HashMap<u64, Record>,
    /// By trial: 0 where nothing is known, else the place in [`AT_ONCE`] and 1.
    at_once: Vec<u8>,
}

/// The records of a trial that was done at once: outside of the jobs of arrays, of the first of a chain, and of one that began
/// when the trial before it was done; then the same in a job of an array, whose id is not known. The last four have reported
/// nothing: the result of the others stands for what they have reported.
static AT_ONCE: LazyLock<[Record; 8]> = LazyLock::new(|| {
    std::array::from_fn(|place| {
        let (behind, in_job, is_silent) = (place & 1 > 0, place & 2 > 0, place & 4 > 0);
        let job = in_job.then(String::new);
        let start = Start { attempt: 1, behind, job, ..Start::default() };
        let mut attempt = Attempt::begun(start, 1, None);
        attempt.end = Some(End {
            trial: 0,
            attempt: 1,
            time: 0.0,
            state: Outcome::Done,
            exit_code: None,
            signal: None,
            cause: None,
            reason: None,
            duration_s: 0.0,
            peak_memory: 0,
            usage: None,
            result: (!is_silent).then_some(Value::Null),
            log: None,
            last: true,
            seq: None,
        });
        Record { attempts: vec![attempt], ..Record::default() }
    })
});

/// Trials of a sweep at most: see `plan::MAX_TRIALS`.
const MOST: u64 = 1 << 24;

impl From<HashMap<u64, Record>> for ByTrial {
    fn from(whole: HashMap<u64, Record>) -> Self {
        Self { whole, at_once: Vec::new() }
    }
}

/// Those of which all is known.
impl Deref for ByTrial {
    type Target = HashMap<u64, Record>;

    fn deref(&self) -> &Self::Target {
        &self.whole
    }
}

impl DerefMut for ByTrial {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.whole
    }
}

impl ByTrial {
    /// Adds what another file has recorded of a trial.
    pub(super) fn add(&mut self, trial: u64, mut record: Record) {
        let note = record.note.take().filter(|_| !self.whole.contains_key(&trial));
        let entry = self.whole.entry(trial).or_default();
        entry.add(record);
        entry.note = note;
    }

    /// Those of which all is known.
    pub(crate) fn into_whole(self) -> HashMap<u64, Record> {
        self.whole
    }

    /// What is known of the record of a trial.
    pub(crate) fn get(&self, trial: &u64) -> Option<&Record> {
        self.whole.get(trial).or_else(|| {
            let known = usize::try_from(*trial).ok().and_then(|at| self.at_once.get(at))?;
            AT_ONCE.get(usize::from(*known).checked_sub(1)?)
        })
    }

    /// The record of a trial, if all of it is known.
    pub(crate) fn whole(&self, trial: u64) -> Option<&Record> {
        self.whole.get(&trial)
    }

    /// The trial with the highest number of those of which anything is recorded.
    pub(crate) fn last(&self) -> Option<u64> {
        let at_once = self.at_once.iter().rposition(|known| *known > 0).map(|at| at as u64);
        let says_something =
            |record: &Record| !record.attempts.is_empty() || record.skipped.is_some();
        let whole = self.whole.iter().filter(|(_, record)| says_something(record));
        whole.map(|(trial, _)| *trial).max().max(at_once)
    }

    /// How many entries of the ledger had been read at most when an attempt of those of which all is known began.
    pub(crate) fn last_entry(&self) -> u64 {
        let attempts = self.whole.values().flat_map(|record| &record.attempts);
        attempts.map(|attempt| attempt.start.seq).max().unwrap_or(0)
    }

    /// Whether a trial has a record.
    pub(crate) fn contains_key(&self, trial: &u64) -> bool {
        self.get(trial).is_some()
    }

    /// Whether a trial with this record was done at once, and nothing more is to be said of how it stands; then its place in
    /// [`AT_ONCE`].
    pub(super) fn at_once(trial: u64, record: &Record) -> Option<u8> {
        let Record { attempts, skipped, skipped_at, decisions, note: _ } = record;
        let [attempt] = &attempts[..] else { return None };
        let Attempt { end: Some(end), stopped: None, unread: 0, bundle, .. } = attempt else {
            return None;
        };
        let counts = bundle.as_ref().is_none_or(|place| place.begun && !place.lost);
        let has_more = end.exit_code.is_some_and(|code| code != 0)
            || end.signal.is_some()
            || end.cause.is_some()
            || end.reason.is_some();
        let is_plain = (skipped, *skipped_at) == (&None, 0)
            && decisions.is_empty()
            && attempt.stopped_at.is_none();
        let is_it = counts && trial < MOST && end.state == Outcome::Done && !has_more && is_plain;
        let in_job = bundle.is_none() && attempt.start.job.is_some();
        let marks = [attempt.start.behind, in_job, attempt.is_silent()];
        let place = || marks.iter().rev().fold(0, |place, mark| 2 * place + u8::from(*mark));
        is_it.then(place)
    }

    /// Takes note that a trial was done at once; `place` as what [`ByTrial::at_once`] says.
    pub(crate) fn was_at_once(&mut self, trial: u64, place: u8) {
        let at = trial as usize;
        if at >= self.at_once.len() {
            self.at_once.resize(at + 1, 0);
        }
        self.at_once[at] = 1 + place;
    }
}

/// What was read of some trials.
#[derive(Default)]
pub(super) struct Part {
    /// By trial.
    pub(super) records: Vec<(u64, Record)>,
    /// Trials that were done at once, whose records are not kept, as [`ByTrial`] has them.
    pub(super) at_once: Vec<(u64, u8)>,
    pub(super) damage: Damage,
}

impl Part {
    /// Keeps no records of trials that were done at once, unless they are `whole`: it returns them.
    pub(super) fn split(&mut self, whole: Which<'_>) -> Vec<(u64, Record)> {
        let at_once = |(trial, record): &(u64, Record)| {
            ByTrial::at_once(*trial, record).filter(|_| !whole(*trial))
        };
        let records = std::mem::take(&mut self.records);
        let (done, whole): (Vec<_>, _) = records.into_iter().partition(|of| at_once(of).is_some());
        self.at_once.extend(done.iter().filter_map(|of| Some((of.0, at_once(of)?))));
        self.records = whole;
        done
    }

    pub(super) fn given_to(self, all: &mut ByTrial, damage: &mut Damage) {
        all.extend(self.records);
        self.at_once.into_iter().for_each(|(trial, place)| all.was_at_once(trial, place));
        damage.extend(self.damage);
    }

    /// As [`Part::given_to`], where other files may have recorded the same trials.
    pub(super) fn added_to(self, all: &mut ByTrial) {
        self.records.into_iter().for_each(|(trial, record)| all.add(trial, record));
        self.at_once.into_iter().for_each(|(trial, place)| all.was_at_once(trial, place));
    }
}
