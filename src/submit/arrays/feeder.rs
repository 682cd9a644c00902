//! Sweeps with more elements than the queue has places: what fits is submitted, and with it the feeder, a small job
//! that submits more when about half of that has ended. No process waits anywhere for it.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::{clock, disk};
use crate::base::words::count;
use crate::cluster::graph::Mapping;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::{Charged, Question, Room, Scheduler, State};
use crate::plan::Resources;
use crate::plan::site::{SchedulerKind, Site};
use crate::submit::Source;
use crate::submit::arrays::batch::{ArrayOptions, Submission};
use crate::submit::arrays::portion::FEEDER_PLACES;
use crate::submit::arrays::wave::Waves;
use crate::sweep::status::originals::of_originals;
use crate::sweep::status::{feeder, hooks};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Record};
use crate::sweep::tree::table;
use crate::sweep::tree::waves::{self, Array, Feeder, Repeat, Wave};
use crate::sweep::tree::{FORMAT, Tree};

impl Waves {
    /// The arrays that are feeders, each with its wave, in the order of submission.
    pub(crate) fn feeders(&self) -> impl DoubleEndedIterator<Item = (&Wave, &Array)> {
        let of = |wave: &'_ Wave| wave.arrays.iter().any(|array| array.feeder.is_some());
        let waves = self.all.iter().filter(move |wave| of(wave));
        waves.flat_map(|wave| {
            wave.arrays
                .iter()
                .filter(|array| array.feeder.is_some())
                .map(move |array| (wave, array))
        })
    }
}

/// The arrays of a wave of which half of the elements are.
pub(crate) fn half(arrays: &[Array]) -> Vec<u32> {
    let all: u64 = arrays.iter().map(|array| array.count).sum();
    let mut order: Vec<&Array> = arrays.iter().collect();
    order.sort_by_key(|array| (array.link, array.array));
    let (mut some, mut wait) = (0, Vec::new());
    for array in order {
        if some * 2 >= all {
            break;
        }
        wait.push(array.array);
        some += array.count;
    }
    wait
}

/// The feeder that begins when the arrays of `wait` have ended, after the arrays of its wave.
fn feeder(
    (number, block): (u32, u32),
    mut wait: Vec<u32>,
    first: u64,
    resources: Resources,
    feeder: Feeder,
) -> Array {
    wait.sort_unstable();
    wait.dedup();
    Array {
        array: number,
        block,
        link: 0,
        first,
        count: 1,
        links: 1,
        single: true,
        after: None,
        wait,
        on_failure: crate::plan::OnFailure::Continue,
        resources,
        walltimes_s: Vec::new(),
        pilot: None,
        feeder: Some(feeder),
    }
}

/// Who is charged for the elements of a plan.
pub(crate) fn charged<'a>(source: &'a Source, site: &'a Site) -> Charged<'a> {
    let (own, site) = (&source.plan.resources, &site.scheduler);
    Charged {
        account: own.account.as_deref().or(site.account.as_deref()),
        qos: own.qos.as_deref().or(site.qos.as_deref()),
    }
}

/// Refuses so many elements of trials if they need a feeder, and the queue will never have the places for it. A feeder that has
/// a queue of its own takes none of these places.
pub(crate) fn check_places(
    source: &Source,
    kind: SchedulerKind,
    room: &Room,
    elements: u64,
) -> Result<(), Fault> {
    let plan = &source.plan;
    let follows = plan.is_looked_after() || plan.learns();
    let fits = elements + u64::from(follows) <= room.limit && !plan.retry.auto;
    let is_apart = plan.feeder().partition != plan.resources.partition;
    if room.limit >= FEEDER_PLACES || elements == 0 || fits || is_apart {
        return Ok(());
    }
    let (name, limit) = (&plan.name, count(room.limit, "element"));
    let (path, kind) = (disk::named(&source.path), kind.word());
    Err(Fault::request(format!(
        "{name} needs a feeder, which needs {FEEDER_PLACES} places in the queue (its own, one for a trial and one for the next feeder): \
         {} allows {limit}",
        room.name
    ))
    .hint(format!("let an agent run it, which needs one place: `hpcsweep submit {path} --{kind} --pull`")))
}

impl Submission<'_> {
    /// The feeder of a wave with these arrays, whose map has so many entries. It begins when the arrays of `wait` have ended; with
    /// `true`, trials wait for it until others have shown what they need.
    pub(crate) fn feeder_of(
        &self,
        source: &Source,
        options: &ArrayOptions,
        (arrays, entries): (&[Array], u64),
        (wait, is_learning): (Vec<u32>, bool),
        again: Vec<Repeat>,
    ) -> Array {
        let number = arrays.iter().map(|array| array.array).max().unwrap_or(0) + 1;
        let block = arrays.iter().map(|array| array.block + 1).max().unwrap_or(0);
        let templates = options.templates.as_deref().map(disk::absolute);
        let own = Feeder {
            max_running: self.max_running,
            templates,
            again,
            is_learning,
            only: options.retry.only(),
            decides: source.plan.retry.auto,
        };
        feeder((number, block), wait, entries, source.plan.feeder(), own)
    }

    /// Whether the last feeder of the sweep was never submitted.
    pub(crate) fn lacks_feeder(&self, waves: &Waves) -> bool {
        let last = waves.feeders().next_back();
        last.is_some_and(|(_, array)| self.journal.job(array.array).is_none())
    }

    /// Whether a trial that was submitted, or that another process has run without success, is not done, and nothing has left
    /// it at that: a feeder was lost, or the executor on this machine.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) fn is_unsettled(&self, waves: &Waves) -> Result<bool> {
        let records = records::all(&self.tree)?;
        // Of a trial behind one that failed nothing is to be decided.
        let is_skipped = |record: &Record| record.skipped.is_some();
        let has_settled = |trial: u64| {
            let record = records.get(&trial);
            record.is_some_and(is_skipped) || self.journal.has_settled(trial, record)
        };
        let places = waves.places();
        let elsewhere = |(trial, record): (&u64, &Record)| {
            record.has_failed() && self.diff.has(*trial) && !places.contains_key(trial)
        };
        if records.iter().any(|own| elsewhere(own) && !has_settled(*own.0)) {
            return Ok(true);
        }
        Ok(waves
            .arrays()
            .filter(|(_, array, _)| self.journal.job(array.array).is_some())
            .flat_map(|(_, array, trials)| trials.iter().map(|trial| (array.array, *trial)))
            .any(|(array, trial)| !has_settled(trial) && !self.journal.is_cancelled(array, trial)))
    }

    /// Whether the feeder that was to call the hook for the end of the sweep may not have done so.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn owes_a_call(&self, waves: &Waves) -> Result<bool> {
        let (heads, trials) = (table::heads(&self.tree)?, table::count(&self.tree)?);
        let records = records::all(&self.tree)?;
        let record = |trial: u64| records.get(&trial);
        let (all, waves) = ((heads.as_slice(), trials), waves.all.iter());
        Ok(hooks::uncalled(&self.tree, all, waves, &self.journal, &record)?.is_some())
    }

    /// Brings a feeder into the queue unless one is there; `fed`: whether one is, as far as that is known. A new one begins
    /// when the arrays that are `awaited` have ended; with `true`, trials wait for it until others have shown what they need.
    /// Returns its job.
    pub(crate) fn feed(
        &mut self,
        source: &Source,
        options: &ArrayOptions,
        waves: &mut Waves,
        (fed, awaited): (Option<bool>, (Vec<u32>, bool)),
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<String>> {
        let known = (&self.tree, &*waves, &self.journal);
        let ask = |calls| is_fed(&*self.scheduler, calls, known, options);
        if fed.map_or_else(|| ask(&mut self.calls), Ok)? {
            return Ok(None);
        }
        let last = waves.feeders().next_back().map(|(wave, array)| (wave.clone(), array.clone()));
        let has_job = |array: &Array| self.journal.job(array.array).is_some();
        let serves =
            |array: &Array| array.feeder.as_ref().is_some_and(|own| options.retry.is_left_to(own));
        let (wave, array) = match last.filter(|(_, array)| !has_job(array) && serves(array)) {
            Some(last) => last,
            // The queue was full before it was expected to be, or trials of earlier waves have not ended.
            None => self.add_feeder(source, options, waves, awaited)?,
        };
        self.array(&wave, &array, &[], false, tell).map(Some)
    }

    /// Writes down a wave of a feeder alone, which waits for some arrays, or for the last one that was submitted.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn add_feeder(
        &self,
        source: &Source,
        options: &ArrayOptions,
        waves: &mut Waves,
        (mut wait, is_learning): (Vec<u32>, bool),
    ) -> Result<(Wave, Array)> {
        if wait.is_empty() {
            let all = waves.arrays().map(|(_, array, _)| array.array);
            wait.extend(all.filter(|array| self.journal.job(*array).is_some()).last());
        }
        let number =
            waves.all.iter().flat_map(|wave| &wave.arrays).map(|a| a.array).max().unwrap_or(0) + 1;
        let array = Array {
            array: number,
            first: 0,
            ..self.feeder_of(source, options, (&[], 0), (wait, is_learning), Vec::new())
        };
        let wave = Wave {
            format: FORMAT,
            wave: waves.all.last().map_or(0, |wave| wave.wave) + 1,
            target: self.scheduler.facts().kind.word().to_owned(),
            created: clock::now(),
            chains: Mapping::Elementwise,
            arrays: vec![array.clone()],
            learnt: Vec::new(),
            ended: Vec::new(),
        };
        waves::write(&self.tree, &wave, &[])?;
        let given_up = std::mem::take(&mut waves.given_up);
        *waves = Waves { given_up, ..Waves::read(&self.tree)? };
        Ok((wave, array))
    }
}

/// Whether a feeder of the sweep is queued or running that submits what a submission leaves, other than the one that submits now.
///
/// # Errors
/// When the scheduler does not answer.
pub(crate) fn is_fed(
    scheduler: &dyn Scheduler,
    calls: &mut Calls,
    (tree, waves, journal): (&Tree, &Waves, &Journal),
    options: &ArrayOptions,
) -> Result<bool> {
    let serves = |own: &Feeder| options.retry.is_left_to(own);
    let mut jobs = feeder::jobs(waves.all.iter(), journal, serves);
    // The feeder of an original submits nothing for its copy.
    let originals = of_originals(tree, journal)?;
    jobs.retain(|(array, _)| Some(*array) != options.feeder && !originals.contains_key(array));
    if jobs.is_empty() {
        return Ok(false);
    }
    Ok(!states(scheduler, calls, journal, &jobs)?.is_empty())
}

/// The states of those of these jobs that have not ended.
///
/// # Errors
/// When the scheduler does not answer.
pub(crate) fn states(
    scheduler: &dyn Scheduler,
    calls: &mut Calls,
    journal: &Journal,
    jobs: &[(u32, String)],
) -> Result<Vec<((u32, String), State)>> {
    let ids: Vec<String> = jobs.iter().map(|(_, job)| job.clone()).collect();
    let open: Vec<(String, u64)> = ids.iter().map(|job| (job.clone(), 0)).collect();
    let question = Question { jobs: &ids, open: &open, users: &journal.users, suspects: &[] };
    let answer = scheduler.ask(calls, &question);
    if !answer.is_sure {
        let sentence = "cannot tell whether a job waits that submits the rest of this sweep";
        return Err(Fault::scheduler(sentence)
            .at(answer.witness)
            .hint("run the same command again when the scheduler answers")
            .into());
    }
    let state = |(array, job): &(u32, String)| {
        let element = answer.elements.get(job)?.get(0)?;
        element.state.is_alive().then(|| ((*array, job.clone()), element.state.clone()))
    };
    Ok(jobs.iter().filter_map(state).collect())
}
