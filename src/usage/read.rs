//! The attempts of a sweep that have ended, each with what it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;

use super::{Attempt, Ending, More};
use crate::cause::Cause;
use crate::idset::IdSet;
use crate::plan::Resources;
use crate::status::{Status, Taker};
use crate::tree::Tree;
use crate::tree::damage::Damage;
use crate::tree::journal::Journal;
use crate::tree::records::index::Noter;
use crate::tree::records::{self, Outcome, Record, array_of};
use crate::tree::table::{self, Head, Row};
use crate::tree::waves;

/// What the trials of a sweep asked for.
pub(crate) struct Requests {
    heads: Vec<Head>,
    /// By the job of an array: the request of each link of an element.
    jobs: HashMap<String, Vec<Resources>>,
    /// What a trial of a job would have asked for as memory, MiB, if nothing had been learnt.
    first: HashMap<(String, u64), u64>,
    /// The link of a trial, in arrays whose elements have several.
    links: HashMap<(String, u64), usize>,
}

impl Requests {
    /// Reads the requests of a sweep.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn of(tree: &Tree) -> Result<Self> {
        // What is damaged, the status has said.
        let mut damage = Damage::default();
        let journal = Journal::readable(tree, &mut damage)?;
        let (mut jobs, mut links, mut first) = (HashMap::new(), HashMap::new(), HashMap::new());
        let waves = match journal.had_jobs() {
            false => Vec::new(),
            true => waves::readable(tree, &mut damage)?,
        };
        for (wave, array, map) in
            waves.iter().flat_map(|(wave, map)| wave.arrays.iter().map(move |a| (wave, a, map)))
        {
            let Some(job) = journal.job_anywhere(array.array).map(array_of) else { continue };
            let Some(requests) = array.requests().filter(|_| array.pilot.is_none()) else {
                continue;
            };
            if array.links > 1 {
                let places = array.places(map);
                links.extend(places.map(|(_, link, trial)| ((job.clone(), trial), link as usize)));
            }
            for learnt in wave.learnt.iter().filter(|learnt| learnt.memory_mib.is_some()) {
                let ids = IdSet::of_numbers(&learnt.trials).unwrap_or_default();
                let is_own = |trial: &&u64| ids.has(**trial);
                let own = array.trials(map).iter().filter(is_own);
                let memory = learnt.memory_mib.unwrap_or_default();
                first.extend(own.map(|trial| ((job.clone(), *trial), memory)));
            }
            jobs.insert(job, requests);
        }
        Ok(Self { heads: table::heads(tree)?, jobs, first, links })
    }

    /// What it would have asked for as memory, if that was learnt.
    fn first(&self, trial: u64, attempt: &records::Attempt) -> Option<u64> {
        if attempt.start.unlearnt_mib > 0 {
            return Some(attempt.start.unlearnt_mib);
        }
        if self.first.is_empty() {
            return None;
        }
        let job = array_of(attempt.start.job.as_deref()?);
        self.first.get(&(job, trial)).copied()
    }

    /// What an attempt asked for: by its own record, otherwise as its job was submitted, otherwise by the table, which may have
    /// an `own` request of the trial.
    pub(crate) fn request<'r>(
        &'r self,
        (trial, own): (u64, Option<&'r Resources>),
        attempt: &'r records::Attempt,
    ) -> Option<&'r Resources> {
        let of_job = || {
            let job = array_of(attempt.start.job.as_deref()?);
            let requests = self.jobs.get(&job)?;
            let link = match requests.len() {
                1 => 0,
                _ => *self.links.get(&(job, trial))?,
            };
            requests.get(link)
        };
        let by_table = || self.by_table(trial, own);
        attempt.start.resources.as_deref().or_else(of_job).or_else(by_table)
    }

    fn by_table<'r>(&'r self, trial: u64, own: Option<&'r Resources>) -> Option<&'r Resources> {
        let head = self.heads.iter().rfind(|head| head.first <= trial)?;
        Some(own.unwrap_or(&head.resources))
    }
}

/// Some attempts, of which equal requests are one.
#[derive(Default)]
pub(crate) struct Ended {
    all: Vec<Attempt>,
    requests: HashSet<Arc<Resources>>,
}

impl Ended {
    /// A request that attempts share.
    fn shared(&mut self, request: &Resources) -> Arc<Resources> {
        if let Some(last) = self.all.last().filter(|last| *last.request == *request) {
            return Arc::clone(&last.request);
        }
        if let Some(known) = self.requests.get(request) {
            return Arc::clone(known);
        }
        let own = Arc::new(request.clone());
        self.requests.insert(Arc::clone(&own));
        own
    }

    /// Adds those of a trial. `cause`: why it ended so, as far as anything but its record says it.
    fn add(
        &mut self,
        requests: &Requests,
        (trial, own): (u64, Option<&Resources>),
        record: &Record,
        cause: Option<Cause>,
    ) {
        for attempt in &record.attempts {
            let Some(request) = requests.request((trial, own), attempt) else { continue };
            let ending = attempt.end.as_ref().map_or(cause, |end| end.cause);
            let ending = match (attempt.outcome(), ending) {
                // Also of a trial that is done, which went on without a process that the kernel killed.
                (_, Some(Cause::OutOfMemory)) => Ending::NoMemory,
                (Some(Outcome::Done), _) => Ending::Done,
                (Some(Outcome::Timeout), _) | (_, Some(Cause::Walltime)) => Ending::NoTime,
                _ => Ending::Other,
            };
            if ending != Ending::Other || attempt.end.is_some() {
                let request = self.shared(request);
                let first = requests.first(trial, attempt);
                self.all.push(measured((trial, request), ending, attempt, first));
            }
        }
    }
}

/// The attempts that were taken while a sweep was read.
pub(crate) struct Taken {
    requests: Requests,
    /// The requests that the table has of trials themselves.
    own: HashMap<u64, Arc<Resources>>,
    ended: Ended,
}

impl Taken {
    /// Of a sweep that is still to be read.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn of(tree: &Tree) -> Result<Self> {
        let (own, ended) = (HashMap::new(), Ended::default());
        Ok(Self { requests: Requests::of(tree)?, own, ended })
    }

    /// The attempts that have ended, in the order of trials: those that were taken, and those of the records that the status
    /// has.
    pub(crate) fn ended(self, status: &Status) -> Vec<Attempt> {
        let Self { requests, own, mut ended } = self;
        for (row, standing) in status.trials() {
            let Some(record) = status.records.whole(row.id) else { continue };
            let own = row.resources.as_deref().or_else(|| own.get(&row.id).map(|own| &**own));
            ended.add(&requests, (row.id, own), record, standing.cause);
        }
        ended.all.sort_by_key(|attempt| attempt.trial);
        ended.all
    }
}

impl Taker for Taken {
    type Part = Ended;

    const NOTER: Option<Noter> = None;
    const TAKES_PARAMETERS: bool = false;

    fn row(&mut self, _: usize, row: &Row) {
        if let Some(own) = row.resources.as_deref() {
            self.own.insert(row.id, self.ended.shared(own));
        }
    }

    fn part(&self, _: &Tree, rows: &[Row], records: &[(u64, Record)]) -> Ended {
        let mut ended = Ended::default();
        for (trial, record) in records {
            if table::place_of(rows, *trial).is_some() {
                let own = self.own.get(trial).map(|own| &**own);
                ended.add(&self.requests, (*trial, own), record, None);
            }
        }
        ended
    }

    fn take(&mut self, part: Ended) {
        for own in part.all {
            let request = self.ended.shared(&own.request);
            self.ended.all.push(Attempt { request, ..own });
        }
    }
}

/// An attempt with what it recorded; one whose worker was killed with it has recorded nothing.
fn measured(
    (trial, request): (u64, Arc<Resources>),
    end: Ending,
    attempt: &records::Attempt,
    first_memory_mib: Option<u64>,
) -> Attempt {
    let recorded = attempt.end.as_ref();
    let usage = recorded.and_then(|end| end.usage.as_deref());
    let gpus = usage.map_or(&[][..], |usage| &usage.gpus);
    let more = More {
        gpus: gpus.iter().filter_map(|gpu| gpu.utilization).collect(),
        gpu_energy_j: gpus.iter().filter_map(|gpu| gpu.energy_j).reduce(|a, b| a + b),
        node_energy_j: usage.and_then(|usage| usage.energy_j),
        first_memory_mib,
    };
    Attempt {
        trial,
        request,
        end,
        duration_s: attempt.duration_s().unwrap_or(0.0),
        memory: recorded.and_then(records::End::node_memory),
        cpu_s: usage.map(records::Usage::cpu_s),
        more: (more != More::default()).then(|| Box::new(more)),
    }
}
