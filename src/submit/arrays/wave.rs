//! A wave: the trials that have not been submitted yet, as job arrays.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::Result;

use crate::base::host::clock;
use crate::cluster::graph::shapes::Shapes;
use crate::cluster::graph::{self, Node};
use crate::plan::{OnFailure, Resources};
use crate::submit::arrays::mapping::{self, Mapped, Rules};
use crate::submit::grow::{self, Todo};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Attempt, Outcome, Record};
use crate::sweep::tree::table;
use crate::sweep::tree::waves::{self, Array, Wave};
use crate::sweep::tree::{FORMAT, Tree};

/// Every array that a sweep has asked for or means to.
#[derive(Debug, Default)]
pub(crate) struct Waves {
    /// All waves, in order.
    pub(crate) all: Vec<Wave>,
    /// The map of each wave: the trial of every element, array after array.
    pub(crate) maps: Vec<Vec<u64>>,
    /// Arrays that no scheduler here has, and that will not be submitted any more.
    pub(crate) given_up: BTreeSet<u32>,
}

impl Waves {
    /// Reads all waves.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn read(tree: &Tree) -> Result<Self> {
        let all = waves::read(tree)?;
        let maps = all.iter().map(|w| waves::map(tree, w)).collect::<Result<_>>()?;
        Ok(Self { all, maps, given_up: BTreeSet::new() })
    }

    /// As [`Self::read`], without the arrays that were submitted where the sweep was before it was exported: none of their
    /// trials is submitted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn of_here(tree: &Tree, journal: &Journal) -> Result<Self> {
        Ok(Self { given_up: journal.elsewhere(), ..Self::read(tree)? })
    }

    /// All arrays of trials that were not given up, with those of their elements, in the order of submission.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = (&Wave, &Array, &[u64])> {
        self.all.iter().zip(&self.maps).flat_map(|(wave, map)| {
            let is_kept = |array: &&Array| !self.given_up.contains(&array.array);
            let kept = wave.arrays.iter().filter(|array| array.is_of_trials()).filter(is_kept);
            kept.map(move |array| (wave, array, array.trials(map)))
        })
    }

    /// Trials that some array runs.
    pub(crate) fn covered(&self) -> HashSet<u64> {
        self.arrays().flat_map(|(.., trials)| trials).copied().collect()
    }

    /// The array that had each trial last, and what it asked for.
    pub(crate) fn requests(&self) -> HashMap<u64, (u32, Resources)> {
        let mut asked = HashMap::new();
        for (_, array, trials) in self.arrays() {
            let requests = array.requests().unwrap_or_else(|| vec![array.resources.clone()]);
            for (n, &trial) in trials.iter().enumerate() {
                let link = n / array.count.max(1) as usize;
                let own = requests.get(link).or(requests.first());
                asked.extend(own.map(|own| (trial, (array.array, own.clone()))));
            }
        }
        asked
    }

    /// Trials whose jobs a person has cancelled, and that nothing else has run since.
    pub(crate) fn cancelled(
        &self,
        journal: &Journal,
        records: &HashMap<u64, Record>,
    ) -> HashSet<u64> {
        let has_run_since = |trial: &u64, array: u32| {
            let last = records.get(trial).and_then(|record| record.attempts.last());
            let job = journal.job(array).zip(journal.submitted(array));
            last.zip(job)
                .is_some_and(|(last, (job, at))| !last.is_of_job(job) && last.start.time >= at)
        };
        let places = self.places().into_iter();
        let own = places.filter(|(trial, (array, _))| {
            journal.is_cancelled(*array, *trial) && !has_run_since(trial, *array)
        });
        own.map(|(trial, _)| trial).collect()
    }

    /// The array and index that runs a trial; the latest, if several have.
    pub(crate) fn places(&self) -> HashMap<u64, (u32, u64)> {
        let mut places = HashMap::new();
        for (_, array, trials) in self.arrays() {
            for (n, &trial) in trials.iter().enumerate() {
                places.insert(trial, (array.array, n as u64 % array.count));
            }
        }
        places
    }
}

/// The arrays that were submitted before, and their state.
pub(crate) struct Before<'a> {
    waves: &'a Waves,
    journal: &'a Journal,
    places: HashMap<u64, (u32, u64)>,
    /// Trials with a bad end on record that the scheduler may run again.
    busy: &'a BTreeSet<u64>,
}

impl<'a> Before<'a> {
    /// All waves of a sweep and their answers. `busy`: trials with a bad end on record whose job the scheduler still has.
    pub(crate) fn new(waves: &'a Waves, journal: &'a Journal, busy: &'a BTreeSet<u64>) -> Self {
        Self { waves, journal, places: waves.places(), busy }
    }

    /// The array that was asked to run a trial last.
    fn array(&self, trial: u64) -> Option<u32> {
        self.places.get(&trial).map(|(array, _)| *array)
    }

    /// How that array ran the trial, as far as it has begun to.
    fn outcomes(&self, trial: u64, record: &Record) -> Vec<Option<Outcome>> {
        let job = self.array(trial).and_then(|array| self.journal.job(array));
        let is_own = |a: &&Attempt| job.is_some_and(|job| a.is_of_job(job));
        record.attempts.iter().filter(is_own).map(Attempt::outcome).collect()
    }

    /// Trials with a record that were submitted again since.
    pub(crate) fn coming(&self, records: &HashMap<u64, Record>) -> HashSet<u64> {
        let is_coming = |(trial, record): &(&u64, &Record)| {
            self.array(**trial).is_some() && self.outcomes(**trial, record).is_empty()
        };
        records.iter().filter(is_coming).map(|(trial, _)| *trial).collect()
    }

    /// How many trials have ended without success of which the feeder has still to decide by `[retry]`, or which it is to
    /// submit again.
    pub(crate) fn repeated(&self, records: &HashMap<u64, Record>) -> u64 {
        let is_over = |trial: u64, record: &Record| {
            self.outcomes(trial, record).iter().any(Option::is_some) && !self.busy.contains(&trial)
        };
        let is_due = |(trial, record): &(&u64, &Record)| {
            record.skipped.is_none()
                && record.is_without_success()
                && is_over(**trial, record)
                && self.journal.left(**trial, Some(record)).is_none()
                && !self.array(**trial).is_some_and(|a| self.journal.is_cancelled(a, **trial))
        };
        records.iter().filter(is_due).count() as u64
    }

    /// Arrays that may not have ended, with the number of their elements that may run. One without a job is submitted first, so
    /// it counts.
    pub(crate) fn open(&self, records: &HashMap<u64, Record>) -> Vec<(u32, u64)> {
        let is_open = |array: u32, trial: u64| {
            let over = |r: &Record| r.skipped.is_some() || self.is_over(trial, r);
            self.array(trial) == Some(array) && !records.get(&trial).is_some_and(over)
        };
        let elements = |trials: &[u64], array: &Array| -> HashSet<u64> {
            let open = trials.iter().enumerate().filter(|(_, t)| is_open(array.array, **t));
            open.map(|(n, _)| n as u64 % array.count).collect()
        };
        let all = self.waves.arrays();
        let open = all.map(|(_, a, trials)| (a.array, elements(trials, a).len() as u64));
        open.filter(|(_, elements)| *elements > 0).collect()
    }

    /// Whether what comes after a trial need not wait for it.
    fn is_over(&self, trial: u64, record: &Record) -> bool {
        record.outcome() == Some(Outcome::Done)
            || self.array(trial).is_none()
            || (!self.busy.contains(&trial)
                && self.outcomes(trial, record).iter().any(Option::is_some))
    }

    /// What chains of these trials wait for: arrays of earlier waves that run trials between or before them.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) fn waits(&self, tree: &Tree, todo: &[Todo]) -> Result<HashMap<u64, Vec<u32>>> {
        let mut waits: HashMap<u64, Vec<u32>> = HashMap::new();
        if self.waves.all.is_empty() {
            return Ok(waits);
        }
        let ours: HashSet<u64> = todo.iter().map(|t| t.id).collect();
        for t in todo {
            if let Some(id) = t.after.filter(|id| !ours.contains(id))
                && let Some(array) = self.array(id)
                && !self.is_over(id, &records::of_trial(tree, id)?.0)
            {
                waits.entry(t.chain).or_default().push(array);
            }
        }
        Ok(waits)
    }

    /// A routing queue may hand on waiting jobs before the jobs that they wait for, until they have all places. So this
    /// removes from the trials to be submitted the chains that wait for arrays of earlier waves, if they need more
    /// places than are free. Returns how many trials that were.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) fn put_off(&self, tree: &Tree, todo: &mut Vec<Todo>, free: u64) -> Result<u64> {
        if todo.len() as u64 <= free {
            return Ok(0);
        }
        let waits = self.waits(tree, todo)?;
        let all = todo.len();
        todo.retain(|t| !waits.contains_key(&t.chain));
        Ok((all - todo.len()) as u64)
    }
}

/// Plans the arrays of a wave, and the order of their trials. Chains whose predecessors belong to earlier waves and have
/// not ended get arrays of their own, which wait for those of the predecessors. `records`: those of the sweep.
///
/// # Errors
/// When the tree cannot be read, or the chains cannot be mapped as wished.
pub(crate) fn plan(
    tree: &Tree,
    target: &str,
    todo: &[Todo],
    rules: &Rules,
    before: &Before<'_>,
    records: &HashMap<u64, Record>,
) -> Result<(Wave, Vec<u64>, Mapped)> {
    let waits = before.waits(tree, todo)?;
    let mut shapes = Shapes::default();
    let (nodes, continues) = nodes(todo, &waits, &mut shapes);
    let earlier = if rules.max_running.is_some() { before.open(records) } else { Vec::new() };
    let running = earlier.iter().map(|(_, elements)| elements).sum();
    let (graph, mapped) = mapping::map(&nodes, &mut shapes, &continues, running, rules)?;

    let chain_of: HashMap<u64, u64> =
        todo.iter().filter(|_| !waits.is_empty()).map(|t| (t.id, t.chain)).collect();
    // Only fused arrays run trials whose walltimes are not that of the array.
    let is_fused = graph.arrays.iter().any(|a| a.links > 1);
    let walltimes: HashMap<u64, Option<u64>> =
        todo.iter().filter(|_| is_fused).map(|t| (t.id, t.resources.walltime_s)).collect();
    let all = &before.waves.all;
    let first = all.iter().flat_map(|w| &w.arrays).map(|a| a.array).max().unwrap_or(0) + 1;
    let on_failure = grow::on_failure(&table::heads(tree)?);
    let one = |(i, a): (usize, &graph::Array)| {
        let mut array = array(first, i, a, Resources::clone(&shapes.list[a.shape as usize]));
        array.on_failure = on_failure;
        if a.continues && a.link == 0 {
            let chains = graph.order[a.entries()].iter().filter_map(|t| chain_of.get(t));
            array.wait.extend(chains.filter_map(|chain| waits.get(chain)).flatten());
        }
        array.wait.extend(earlier.iter().filter(|_| a.behind).map(|(array, _)| *array));
        array.wait.sort_unstable();
        array.wait.dedup();
        if a.links > 1 {
            let trial = |link| &graph.order[a.first + link * a.count];
            array.walltimes_s = (0..a.links).map(|link| walltimes[trial(link)]).collect();
        }
        array
    };
    let wave = Wave {
        format: FORMAT,
        wave: all.last().map_or(0, |w| w.wave) + 1,
        target: target.to_owned(),
        created: clock::now(),
        chains: mapped.mapping,
        arrays: graph.arrays.iter().enumerate().map(one).collect(),
        learnt: Vec::new(),
        ended: Vec::new(),
    };
    Ok((wave, graph.order, mapped))
}

/// Trials as nodes of a graph, and whether each chain waits for arrays of earlier waves.
fn nodes(
    todo: &[Todo],
    waits: &HashMap<u64, Vec<u32>>,
    shapes: &mut Shapes,
) -> (Vec<Node>, Vec<bool>) {
    let mut chains: HashMap<u64, u32> = HashMap::new();
    let mut continues: Vec<bool> = Vec::new();
    let mut nodes = Vec::with_capacity(todo.len());
    for t in todo {
        let next = chains.len() as u32;
        let chain = *chains.entry(t.chain).or_insert(next);
        if chain == next {
            continues.push(waits.contains_key(&t.chain));
        }
        nodes.push(Node { trial: t.id, chain, shape: shapes.number(&t.resources) });
    }
    (nodes, continues)
}

/// The array at place `i` of a graph as one of a wave whose first array has the number `first`.
pub(crate) fn array(first: u32, i: usize, planned: &graph::Array, resources: Resources) -> Array {
    let number = |i: &usize| first + *i as u32;
    Array {
        array: number(&i),
        block: planned.block,
        link: planned.link,
        first: planned.first as u64,
        count: planned.count as u64,
        links: planned.links as u64,
        single: planned.single,
        after: planned.after.as_ref().map(number),
        wait: planned.wait.iter().map(number).collect(),
        on_failure: OnFailure::Stop,
        resources,
        walltimes_s: Vec::new(),
        pilot: None,
        feeder: None,
    }
}
