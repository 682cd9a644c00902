//! The attempts of a sweep that have ended, each with what it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;

use super::{Attempt, Ending, More};
use crate::base::cause::Cause;
use crate::plan::Resources;
use crate::sweep::status::{Status, Taker};
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::index::Noter;
use crate::sweep::tree::records::{self, Outcome, Record};
use crate::sweep::tree::requests::{Asker, Requests};
use crate::sweep::tree::table::{self, Row};

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
        asker: Asker<'_>,
        record: &Record,
        cause: Option<Cause>,
    ) {
        for attempt in &record.attempts {
            let Some(request) = requests.of_attempt(asker, attempt) else { continue };
            let ending = attempt.end.as_ref().map_or(cause, |end| end.cause);
            let ending = match (attempt.outcome(), ending) {
                // Also of a trial that is done, which went on without a process that the kernel killed.
                (_, Some(Cause::OutOfMemory)) => Ending::NoMemory,
                (Some(Outcome::Done), _) => Ending::Done,
                (Some(Outcome::Timeout), _) | (_, Some(Cause::Walltime)) => Ending::NoTime,
                _ => Ending::Other,
            };
            if ending != Ending::Other || attempt.end.is_some() {
                let shared = self.shared(request.resources);
                let first = request.unlearnt_mib;
                self.all.push(measured((asker.trial, shared), ending, attempt, first));
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
            ended.add(&requests, Asker { trial: row.id, own }, record, standing.cause);
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
                ended.add(&self.requests, Asker { trial: *trial, own }, record, None);
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
