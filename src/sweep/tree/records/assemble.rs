//! Puts the events of one file together to attempts.

use std::collections::HashMap;

use super::event::{self, Lines, has_metrics};
use super::strangers::Strangers;
use super::{Attempt, End, Event, Outcome, Record, Start, Who};
use crate::sweep::tree::ledger::{Ending, Ledger};
use crate::sweep::tree::line::{self, Spot};
use crate::sweep::tree::records::Place;

/// The file that events are read from.
#[derive(Debug)]
pub(in crate::sweep::tree) enum Source<'a> {
    /// The record of a run of one trial.
    Run(u32),
    /// The bundle of an agent.
    Agent {
        name: &'a str,
        /// The content of its first line.
        who: Who,
        /// Decides which of its lines count.
        ledger: &'a Ledger,
    },
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    Damaged,
    /// It is of another trial or run.
    Stranger,
}

/// The records that the events of a file belong to.
pub(in crate::sweep::tree) trait Records {
    /// The record of a trial, which is made if there is none.
    fn of(&mut self, trial: u64) -> &mut Record;

    /// The record of a trial, if there is one.
    fn known(&mut self, trial: u64) -> Option<&mut Record>;
}

/// The record of a run belongs to one trial: its name shows which.
impl Records for Record {
    fn of(&mut self, _trial: u64) -> &mut Record {
        self
    }

    fn known(&mut self, _trial: u64) -> Option<&mut Record> {
        Some(self)
    }
}

impl Records for HashMap<u64, Record> {
    fn of(&mut self, trial: u64) -> &mut Record {
        self.entry(trial).or_default()
    }

    fn known(&mut self, trial: u64) -> Option<&mut Record> {
        self.get_mut(&trial)
    }
}

impl<'a> Source<'a> {
    /// The bundle of an agent, from its first line on.
    pub(in crate::sweep::tree) fn agent(name: &'a str, ledger: &'a Ledger) -> Self {
        Self::Agent { name, who: Who::default(), ledger }
    }

    /// Takes a line of the file, unless it is of `strangers`.
    pub(super) fn read(
        &mut self,
        records: &mut impl Records,
        strangers: &mut Strangers<'_>,
        spot: Spot,
        line: &[u8],
    ) -> Read {
        if has_metrics(line) {
            let Some(Lines { trial, attempt }) = line::unseal(line) else { return Read::Damaged };
            if !strangers.has(trial) {
                return Read::Stranger;
            }
            if let Some(open) = self.open(records, trial, attempt) {
                open.has_rows(spot, line);
            }
            return Read::Whole;
        }
        match event::unseal(line) {
            None => Read::Damaged,
            // Bundles begin with such a line, and nothing else has one.
            Some(Event::Agent(_)) if matches!(self, Self::Run(_)) => Read::Damaged,
            Some(event) if !strangers.takes(&event) => Read::Stranger,
            Some(event) => {
                self.take(records, spot.end(), event);
                Read::Whole
            }
        }
    }

    /// Takes the event of a line; `at` is the length of the file at its end.
    pub(in crate::sweep::tree) fn take(
        &mut self,
        records: &mut impl Records,
        at: u64,
        event: Event,
    ) {
        match event {
            Event::Agent(first) => {
                if let Self::Agent { who, .. } = self {
                    *who = first;
                }
            }
            Event::Start(start) => {
                let record = records.of(start.trial);
                record.skipped = None;
                record.begin(self.begun(start, true));
            }
            Event::Metrics { .. } => {}
            Event::Stop { trial, attempt, time, state, reason } => {
                if let Some(open) = self.open(records, trial, attempt) {
                    (open.stopped, open.stopped_at) = (Some((state, reason)), Some(time));
                }
            }
            Event::End(end) => self.end(records, at, end),
            Event::Decided(decided) => {
                if !self.is_fenced(at) {
                    records.of(decided.trial).decisions.push(decided);
                }
            }
            Event::Skip { trial, seq, reason, .. } => {
                if !self.is_fenced(at) {
                    let record = records.of(trial);
                    (record.skipped, record.skipped_at) = (Some(reason), seq);
                }
            }
        }
    }

    fn is_fenced(&self, at: u64) -> bool {
        match self {
            Self::Run(_) => false,
            Self::Agent { name, ledger, .. } => ledger.is_fenced(name, at),
        }
    }

    fn end(&self, records: &mut impl Records, at: u64, end: End) {
        let (trial, attempt) = (end.trial, end.attempt);
        let seq = self.open(records, trial, attempt).map(|open| open.start.seq);
        let counts = match self {
            Self::Run(_) => true,
            Self::Agent { name: agent, ledger, .. } => {
                let seq = seq.or(end.seq).unwrap_or(0);
                ledger.counts(Ending { agent, at, trial, attempt, seq })
            }
        };
        if counts && seq.is_none() && matches!(self, Self::Agent { .. }) {
            // It could not be started, or was not to be.
            let (time, seq) = (end.time, end.seq.unwrap_or(0));
            let start = Start { trial, attempt, time, seq, ..Start::default() };
            records.of(trial).begin(self.begun(start, false));
        }
        let Some(open) = self.open(records, trial, attempt) else { return };
        if let Some(place) = &mut open.bundle {
            // No agent writes a range that ends beyond the largest file.
            let log = end.log.filter(|(at, len)| at.checked_add(*len).is_some());
            (place.log, place.last) = (log, counts && end.last);
        }
        if counts {
            open.end = Some(end);
        } else {
            let reason = "another agent's end counts".to_owned();
            open.stopped = Some((Outcome::Interrupted, reason));
        }
    }

    /// An attempt of which only the beginning is known; `is_begun`: its program was started.
    fn begun(&self, start: Start, is_begun: bool) -> Attempt {
        match self {
            Self::Run(run) => Attempt::begun(start, *run, None),
            Self::Agent { name, who, .. } => {
                let (agent, slot) = ((*name).to_owned(), start.slot.unwrap_or(0));
                let place =
                    Place { agent, slot, begun: is_begun, lost: false, log: None, last: false };
                let start = Start {
                    host: who.host.clone(),
                    pid: who.pid,
                    started: who.started,
                    job: who.job.clone(),
                    ranks: 1,
                    version: who.version.clone(),
                    ..start
                };
                Attempt::begun(start, 0, Some(place))
            }
        }
    }

    /// The attempt that events of this file are about. An agent may begin one of the same number again once it has ended.
    fn open<'r>(
        &self,
        records: &'r mut impl Records,
        trial: u64,
        attempt: u32,
    ) -> Option<&'r mut Attempt> {
        let run = if let Self::Run(run) = self { *run } else { 0 };
        let is_it = |a: &&mut Attempt| {
            a.run == run && a.start.attempt == attempt && (run > 0 || a.end.is_none())
        };
        records.known(trial)?.attempts.iter_mut().rfind(is_it)
    }
}
