//! What the trials of a sweep ask for, and what each of their attempts asked for. Tables, waves, decks and records each have a
//! part of the answer; every verb gets it here.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::Result;

use super::Tree;
use super::damage::Damage;
use super::deck::Deck;
use super::journal::Journal;
use super::records::{Attempt, Record};
use super::table::{self, Head, Row};
use super::waves::{self, Array, Learnt, Wave};
use crate::base::idset::IdSet;
use crate::cluster::scheduler::job::array_of;
use crate::plan::Resources;

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'r> {
    pub(crate) resources: &'r Resources,
    /// From what it was learnt, if its job asked for what earlier trials had used.
    pub(crate) learnt: Option<&'r str>,
    /// The memory that it would ask for if that had not been learnt, MiB.
    pub(crate) unlearnt_mib: Option<u64>,
}

impl<'r> Request<'r> {
    fn new(resources: &'r Resources, learnt: Option<&'r Learnt>) -> Self {
        let unlearnt_mib = learnt.and_then(|learnt| learnt.memory_mib);
        Self { resources, learnt: learnt.map(|learnt| learnt.why.as_str()), unlearnt_mib }
    }
}

/// A trial that asks for something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'r> {
    /// Its number in the sweep.
    pub(crate) trial: u64,
    /// Its request, where its row has one of its own.
    pub(crate) own: Option<&'r Resources>,
}

impl<'r> From<&'r Row> for Asker<'r> {
    fn from(row: &'r Row) -> Self {
        Self { trial: row.id, own: row.resources.as_deref() }
    }
}

/// The requests of a sweep.
pub(crate) struct Requests {
    heads: Vec<Head>,
    /// The arrays of trials, in the order of submission.
    arrays: Vec<Asking>,
    /// The places of arrays by their jobs.
    jobs: HashMap<String, usize>,
}

/// An array that asks for something.
struct Asking {
    /// When it was planned, unix seconds.
    created: f64,
    trials: Box<[u64]>,
    /// The request of the trial of each link.
    requests: Vec<Resources>,
    /// The link of a trial, where an element has several.
    links: HashMap<u64, usize>,
    /// Which trials of its wave ask for what was learnt.
    learnt: Arc<[(IdSet, Learnt)]>,
}

impl Asking {
    /// The request of a trial of the array.
    fn request(&self, trial: u64) -> Option<&Resources> {
        match &self.requests[..] {
            [one] => Some(one),
            several => several.get(*self.links.get(&trial)?),
        }
    }

    fn learnt(&self, trial: u64) -> Option<&Learnt> {
        let trial = u32::try_from(trial).ok()?;
        self.learnt.iter().find(|(trials, _)| trials.contains(trial)).map(|(_, learnt)| learnt)
    }
}

/// The last order to run a trial.
enum Order {
    /// An array, by its place.
    Array(usize),
    /// A deck.
    Deck {
        /// How many entries the ledger had then.
        seq: u64,
        /// What the newest deck asks for, where that is not what the table has.
        request: Option<Arc<Resources>>,
    },
}

/// What trials ask for now, or asked for last.
pub(crate) struct Newest {
    pub(crate) requests: Requests,
    orders: HashMap<u64, Order>,
}

impl Requests {
    /// Reads the requests of a sweep, as far as they can be believed.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn of(tree: &Tree) -> Result<Self> {
        // The status reports what is damaged.
        let mut damage = Damage::default();
        let journal = Journal::readable(tree, &mut damage)?;
        let waves = match journal.had_jobs() {
            false => Vec::new(),
            true => waves::readable(tree, &mut damage)?,
        };
        let arrays = waves.iter().flat_map(|(wave, map)| {
            wave.arrays.iter().map(move |array| (wave, array, array.trials(map)))
        });
        Self::new(tree, &journal, arrays)
    }

    /// As [`Requests::of`], of arrays that were read already.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub(crate) fn new<'w>(
        tree: &Tree,
        journal: &Journal,
        arrays: impl Iterator<Item = (&'w Wave, &'w Array, &'w [u64])>,
    ) -> Result<Self> {
        let mut all = Self { heads: table::heads(tree)?, arrays: Vec::new(), jobs: HashMap::new() };
        let mut waves: HashMap<u32, Arc<[(IdSet, Learnt)]>> = HashMap::new();
        for (wave, array, trials) in arrays.filter(|(_, array, _)| array.is_of_trials()) {
            let Some(requests) = array.requests() else { continue };
            let learnt = waves.entry(wave.wave).or_insert_with(|| {
                let ids = |own: &Learnt| IdSet::of_numbers(&own.trials).unwrap_or_default();
                wave.learnt.iter().map(|own| (ids(own), own.clone())).collect()
            });
            let link = |(n, trial): (usize, &u64)| (*trial, n / array.count.max(1) as usize);
            let links = match array.links {
                1 => HashMap::new(),
                _ => trials.iter().enumerate().map(link).collect(),
            };
            if let Some(job) = journal.job_anywhere(array.array) {
                all.jobs.insert(array_of(job), all.arrays.len());
            }
            let (created, learnt) = (wave.created, Arc::clone(learnt));
            all.arrays.push(Asking { created, trials: trials.into(), requests, links, learnt });
        }
        Ok(all)
    }

    /// The array whose job ran an attempt.
    fn array(&self, attempt: &Attempt) -> Option<&Asking> {
        if self.jobs.is_empty() {
            return None;
        }
        let place = self.jobs.get(&array_of(attempt.start.job.as_deref()?))?;
        self.arrays.get(*place)
    }

    /// What an attempt asked for: by its own record, otherwise as its job was submitted, otherwise by the table. `None` if no
    /// table has the trial.
    pub(crate) fn of_attempt<'r>(
        &'r self,
        asker: Asker<'r>,
        attempt: &'r Attempt,
    ) -> Option<Request<'r>> {
        let array = self.array(attempt);
        let recorded = attempt.start.resources.as_deref();
        let of_job = || array.and_then(|array| array.request(asker.trial));
        let resources = recorded.or_else(of_job).or_else(|| self.by_table(asker))?;
        let learnt = array.and_then(|array| array.learnt(asker.trial));
        let request = Request::new(resources, learnt);
        let by_agent = Some(attempt.start.unlearnt_mib).filter(|mib| *mib > 0);
        Some(Request { unlearnt_mib: by_agent.or(request.unlearnt_mib), ..request })
    }

    fn by_table<'r>(&'r self, asker: Asker<'r>) -> Option<&'r Resources> {
        let head = self.heads.iter().rfind(|head| head.first <= asker.trial)?;
        Some(asker.own.unwrap_or(&head.resources))
    }

    /// The core-seconds of all attempts of a trial: for each the cores that it asked for, as long as it ran. `now`: the time
    /// until which the last one has run, if it is running.
    pub(crate) fn core_seconds(&self, asker: Asker<'_>, record: &Record, now: Option<f64>) -> f64 {
        let last = record.attempts.last().filter(|last| last.outcome().is_none());
        let of = |attempt: &Attempt| {
            let runs = now.filter(|_| last.is_some_and(|last| std::ptr::eq(last, attempt)));
            let until_now = || runs.map(|now| (now - attempt.start.time).max(0.0));
            let seconds = attempt.duration_s().or_else(until_now).unwrap_or(0.0);
            let cores = self.of_attempt(asker, attempt).map_or(1, |own| own.resources.cores());
            seconds * cores as f64
        };
        record.attempts.iter().map(of).sum()
    }

    /// What these trials ask for now, in a sweep with these decks and the trials of each.
    pub(crate) fn newest(self, decks: &[(Deck, Vec<u64>)], trials: &BTreeSet<u64>) -> Newest {
        let mut orders: HashMap<u64, Order> = HashMap::new();
        for (place, array) in self.arrays.iter().enumerate() {
            let own = array.trials.iter().filter(|trial| trials.contains(trial));
            orders.extend(own.map(|trial| (*trial, Order::Array(place))));
        }
        let asked = decks.last().map_or(&[][..], |(deck, _)| &deck.requests);
        let shared = |(trials, request): &(String, Resources)| {
            Some((IdSet::of_numbers(trials).ok()?, Arc::new(request.clone())))
        };
        let asked: Vec<(IdSet, Arc<Resources>)> = asked.iter().filter_map(shared).collect();
        for (deck, listed) in decks {
            let (created, seq) = (deck.created, deck.seq);
            for &trial in listed.iter().filter(|trial| trials.contains(trial)) {
                let before = match orders.get(&trial) {
                    Some(Order::Array(place)) => self.arrays[*place].created,
                    _ => created,
                };
                if before <= created {
                    let request = asked.iter().find(|(trials, _)| trials.has(trial));
                    let request = request.map(|(_, request)| Arc::clone(request));
                    orders.insert(trial, Order::Deck { seq, request });
                }
            }
        }
        Newest { requests: self, orders }
    }
}

impl Newest {
    /// What a trial asks for: as it was last submitted, or as its last attempt was given it, if that began later. `None` if no
    /// table has the trial.
    pub(crate) fn of<'r>(&'r self, asker: Asker<'r>, record: &'r Record) -> Option<Request<'r>> {
        let order = self.orders.get(&asker.trial);
        let is_later = |own: &&Attempt| order.is_none_or(|order| self.has_begun_after(order, own));
        if let Some(attempt) = record.decisive().filter(is_later) {
            return self.requests.of_attempt(asker, attempt);
        }
        let (array, request) = match order {
            Some(Order::Array(place)) => {
                let array = &self.requests.arrays[*place];
                (Some(array), array.request(asker.trial))
            }
            Some(Order::Deck { request, .. }) => (None, request.as_deref()),
            None => (None, None),
        };
        let resources = request.or_else(|| self.requests.by_table(asker))?;
        Some(Request::new(resources, array.and_then(|array| array.learnt(asker.trial))))
    }

    /// Whether an attempt began after an order to run its trial.
    fn has_begun_after(&self, order: &Order, attempt: &Attempt) -> bool {
        match order {
            Order::Array(place) => {
                let array = &self.requests.arrays[*place];
                // Clocks of hosts differ: an attempt in the array's own job is later, whatever they say.
                let is_own = |own: &Asking| std::ptr::eq(own, array);
                self.requests.array(attempt).is_some_and(is_own)
                    || attempt.start.time >= array.created
            }
            Order::Deck { seq, .. } => attempt.start.seq > *seq,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tree::records::{Outcome, Start};

    /// An attempt that began at this time, with so many cores.
    fn attempt(time: f64, cores: u32) -> Attempt {
        let resources = Resources { cpus_per_rank: cores, ..Resources::default() };
        let start = Start { time, resources: Some(Box::new(resources)), ..Start::default() };
        Attempt::begun(start, 1, None)
    }

    #[test]
    fn each_attempt_costs_its_own_cores_and_one_that_runs_its_time_until_now() {
        let requests = Requests { heads: Vec::new(), arrays: Vec::new(), jobs: HashMap::new() };
        let stopped = Attempt {
            stopped: Some((Outcome::Interrupted, String::new())),
            stopped_at: Some(130.0),
            ..attempt(100.0, 2)
        };
        // Nobody knows when one has ended that left no end.
        let lost = attempt(200.0, 16);
        let record =
            Record { attempts: vec![stopped, lost, attempt(300.0, 4)], ..Record::default() };
        let asker = Asker { trial: 0, own: None };
        assert_eq!(requests.core_seconds(asker, &record, None), 60.0);
        assert_eq!(requests.core_seconds(asker, &record, Some(310.0)), 100.0);
        // The clock of another host may be ahead.
        assert_eq!(requests.core_seconds(asker, &record, Some(290.0)), 60.0);
    }
}
