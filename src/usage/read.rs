//! The attempts of a sweep that have ended, each with what it asked for.

use std::collections::HashMap;

use anyhow::Result;

use super::{Attempt, Ending};
use crate::cause::Cause;
use crate::idset::IdSet;
use crate::plan::Resources;
use crate::status::Status;
use crate::tree::damage::Damage;
use crate::tree::journal::Journal;
use crate::tree::records::{self, Outcome, array_of};
use crate::tree::table::{self, Head, Row};
use crate::tree::waves;

/// What the trials of a sweep asked for, and their records.
pub(crate) struct Attempts<'a> {
    status: &'a Status,
    heads: Vec<Head>,
    /// By the job of an array: the request of each link of an element.
    jobs: HashMap<String, Vec<Resources>>,
    /// What a trial of a job would have asked for as memory, MiB, if nothing had been learnt.
    first: HashMap<(String, u64), u64>,
    /// The link of a trial, in arrays whose elements have several.
    links: HashMap<(String, u64), usize>,
}

impl<'a> Attempts<'a> {
    /// Reads the requests of a sweep.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn of(status: &'a Status) -> Result<Self> {
        let tree = &status.tree;
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
                let is_own = |trial: &&u64| u32::try_from(**trial).is_ok_and(|id| ids.contains(id));
                let own = array.trials(map).iter().filter(is_own);
                let memory = learnt.memory_mib.unwrap_or_default();
                first.extend(own.map(|trial| ((job.clone(), *trial), memory)));
            }
            jobs.insert(job, requests);
        }
        Ok(Self { status, heads: table::heads(tree)?, jobs, first, links })
    }

    /// The attempts that have ended, in the order of trials.
    pub(crate) fn ended(&self) -> Vec<Attempt<'_>> {
        let mut all = Vec::with_capacity(self.status.rows.len());
        for (row, standing) in self.status.rows.iter().zip(&self.status.standings) {
            let Some(record) = self.status.records.get(&row.id) else { continue };
            for attempt in &record.attempts {
                let Some(request) = self.request(row, attempt) else { continue };
                let ending = attempt.end.as_ref().map_or(standing.cause, |end| end.cause);
                let ending = match (attempt.outcome(), ending) {
                    (Some(Outcome::Done), _) => Ending::Done,
                    (_, Some(Cause::OutOfMemory)) => Ending::NoMemory,
                    (Some(Outcome::Timeout), _) | (_, Some(Cause::Walltime)) => Ending::NoTime,
                    _ => Ending::Other,
                };
                let is_known = ending != Ending::Other || attempt.end.is_some();
                if is_known {
                    let first_memory_mib = self.first(row.id, attempt);
                    let measured = measured(row.id, request, ending, attempt);
                    all.push(Attempt { first_memory_mib, ..measured });
                }
            }
        }
        all
    }

    /// What it would have asked for as memory, if that was learnt.
    fn first(&self, trial: u64, attempt: &records::Attempt) -> Option<u64> {
        if self.first.is_empty() {
            return None;
        }
        let job = array_of(attempt.start.job.as_deref()?);
        self.first.get(&(job, trial)).copied()
    }

    /// What an attempt asked for: by its own record, otherwise as its job was submitted, otherwise by the table.
    pub(crate) fn request<'r>(
        &'r self,
        row: &'r Row,
        attempt: &'r records::Attempt,
    ) -> Option<&'r Resources> {
        let of_job = || {
            let job = array_of(attempt.start.job.as_deref()?);
            let requests = self.jobs.get(&job)?;
            let link = match requests.len() {
                1 => 0,
                _ => *self.links.get(&(job, row.id))?,
            };
            requests.get(link)
        };
        let by_table = || {
            let head = self.heads.iter().rfind(|head| head.first <= row.id)?;
            Some(row.resources.as_deref().unwrap_or(&head.resources))
        };
        attempt.start.resources.as_deref().or_else(of_job).or_else(by_table)
    }
}

/// An attempt with what it recorded; one whose worker was killed with it has recorded nothing.
fn measured<'a>(
    trial: u64,
    request: &'a Resources,
    end: Ending,
    attempt: &records::Attempt,
) -> Attempt<'a> {
    let recorded = attempt.end.as_ref();
    let usage = recorded.and_then(|end| end.usage.as_deref());
    let gpus = usage.map_or(&[][..], |usage| &usage.gpus);
    Attempt {
        trial,
        request,
        end,
        duration_s: attempt.duration_s().unwrap_or(0.0),
        memory: recorded.and_then(records::End::node_memory),
        cpu_s: usage.map(records::Usage::cpu_s),
        gpus: gpus.iter().filter_map(|gpu| gpu.utilization).collect(),
        gpu_energy_j: gpus.iter().filter_map(|gpu| gpu.energy_j).reduce(|a, b| a + b),
        first_memory_mib: None,
        node_energy_j: usage.and_then(|usage| usage.energy_j),
    }
}
