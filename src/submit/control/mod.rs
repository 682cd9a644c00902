//! Cancelling, holding and releasing what a sweep has queued or running: one call for all of it.

mod agents;
pub(crate) mod done;

use crate::submit::control::done::Done;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, vars};
use crate::base::idset::IdSet;
use crate::base::words::{self, count};
use crate::cluster::scheduler::order::{self, Order};
use crate::cluster::scheduler::{Scheduler, State};
use crate::plan::site::Site;
use crate::submit::arrays::feeder;
use crate::submit::arrays::reconcile::settle_all;
use crate::submit::arrays::wave::Waves;
use crate::sweep::standing::State as Standing;
use crate::sweep::status::originals::{is_original, of_originals};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::damage::{Damage, Damaged};
use crate::sweep::tree::journal::{Entry, Journal, Writer};
use crate::sweep::tree::lock::{self, Lock};
use crate::sweep::tree::{Identity, Tree, table};

/// Files that have lost lines about jobs: only its scheduler can find such a job.
///
/// # Errors
/// When the journal cannot be read.
pub(crate) fn lost_jobs(tree: &Tree) -> Result<Vec<Damaged>> {
    let mut damage = Damage::default();
    Journal::readable(tree, &mut damage)?;
    Ok(damage.settle(|_| lock::is_held(tree)))
}

/// Gives an order about the given trials, or about all that have not ended. `tell` is called with calls
/// without an answer.
///
/// # Errors
/// When a trial is not queued or running, or the scheduler refuses.
pub(crate) fn control(
    tree: &Tree,
    identity: &Identity,
    trials: &[u64],
    order: Order,
    site: &Site,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<Done> {
    tree.trust_to_change()?;
    refuse_copy(tree, identity, trials, order)?;
    if let Some(done) =
        agents::control(tree, identity, trials, order, site, environment, &mut tell)?
    {
        return Ok(done);
    }
    // Locks out a submission under way, which would add jobs that are not cancelled or held. This comes before
    // anything is read.
    let lock = (order == Order::Cancel || trials.is_empty()).then(|| Lock::take(tree));
    let settles = order != Order::Release && matches!(lock, Some(Ok(_)));
    let journal = Journal::read(tree)?;
    let calls = || journal.calls(environment, site);
    if settles {
        settle_all(tree, site, &mut calls(), false, &mut tell)?;
    }
    let about = About { tree, identity, trials, order, site, environment };
    let (mut done, lock) = give(&about, lock)?;
    // A call of a killed submission may arrive yet: what is known does not wait for it.
    if settles
        && lock.is_some()
        && !settle_all(tree, site, &mut calls(), true, &mut tell)?.is_empty()
    {
        done.add(give(&about, lock.map(Ok))?.0);
    }
    Ok(done)
}

/// Refuses an order about a folder that was copied while its jobs wait or run: they belong to the original.
fn refuse_copy(tree: &Tree, identity: &Identity, trials: &[u64], order: Order) -> Result<()> {
    let Some(original) = Journal::read(tree)?.dir else { return Ok(()) };
    if !is_original(&original, tree, identity) {
        return Ok(());
    }
    let sentence = format!(
        "the jobs of `{}` belong to `{}`, of which it is a copy",
        tree.dir().display(),
        original.display()
    );
    let hint = there(order, &original, &IdSet::of_trials(trials.iter().copied()));
    Err(Fault::request(sentence).hint(hint).into())
}

/// The command that gives the order in another folder, about these trials or, without any, about all.
fn there(order: Order, dir: &Path, trials: &IdSet) -> String {
    let all = format!("hpcsweep {} {}", order.word(), words::sh_quote(&dir.to_string_lossy()));
    if trials.is_empty() { all } else { format!("{all} {trials}") }
}

/// What an order is about.
struct About<'a> {
    tree: &'a Tree,
    identity: &'a Identity,
    trials: &'a [u64],
    order: Order,
    site: &'a Site,
    environment: &'a Vars,
}

/// Gives an order about all that is known to be queued or running. Returns the lock, where it is needed.
fn give(about: &About<'_>, lock: Option<Result<Lock>>) -> Result<(Done, Option<Lock>)> {
    let About { tree, identity, trials, order, site, environment } = *about;
    let sweep = Sweep::read(tree, identity, order, site, environment)?;
    let end = sweep.status.rows.last().map_or(0, |row| row.id + 1);
    if let Some(trial) = trials.iter().find(|&&trial| end <= trial) {
        return Err(table::no_trial(tree, *trial, end).into());
    }
    let open = sweep.open();
    let named: HashSet<&u64> = trials.iter().collect();
    let is_wanted = |trial: &u64| named.is_empty() || named.contains(trial);
    let wanted: BTreeSet<u64> = open.union(&sweep.over).copied().filter(is_wanted).collect();
    sweep.refuse_originals(&wanted, !named.is_empty())?;
    let elements = sweep.elements(&wanted);
    let mut unsubmitted = wanted.clone();
    let with_job: HashSet<u64> =
        elements.values().flat_map(BTreeMap::values).flatten().copied().collect();
    unsubmitted.retain(|trial| named.contains(trial) && !with_job.contains(trial));
    let awaited = sweep.awaited(trials, &with_job);
    let feeders = if trials.is_empty() { sweep.feeders(site, environment)? } else { Vec::new() };

    let is_all = trials.is_empty() && !sweep.journal.arrays.is_empty();
    let is_at_work = elements.is_empty() && lock::is_held_by_another(tree);
    let changes = order == Order::Cancel || is_all;
    let lock = lock.filter(|_| changes && !is_at_work).transpose()?;
    let hold = (is_all && !is_at_work).then(|| sweep.hold()).flatten();
    let is_sweep = hold.is_some();
    if elements.is_empty() && feeders.is_empty() {
        sweep.check_seen(&[])?;
        note(tree, hold)?;
        let has_ended = |trial: &u64| sweep.has_ended(*trial) && !awaited.contains(trial);
        let ended = trials.iter().copied().filter(has_ended).collect();
        return Ok((Done { ended, unsubmitted, awaited, is_sweep, ..Done::default() }, lock));
    }
    // The feeder waits for the others, and submits more when they end.
    let has_feeder = !feeders.is_empty();
    let mut parts = feeders;
    parts.extend(sweep.parts(elements, trials.is_empty())?);
    sweep.refuse_shared(&open, &wanted)?;
    let mut calls = sweep.journal.calls(environment, site);
    let ids: Vec<String> = parts.iter().flat_map(Part::ids).cloned().collect();
    let accepted = order::give(&*sweep.scheduler, &mut calls, order, &ids)?;
    let cancelled = parts.iter().filter(|_| order == Order::Cancel);
    let cancelled = cancelled.filter_map(|part| part.cancelled(&accepted.ids));
    // Half an answer may leave out jobs that are held.
    let is_known = |trial: &u64| wanted.contains(trial) || sweep.has_ended(*trial);
    let seen = match !trials.is_empty() && trials.iter().all(is_known) {
        true => Ok(()),
        false => sweep.check_seen(&ids),
    };
    let is_whole = accepted.whole.is_ok() && seen.is_ok();
    note(tree, cancelled.chain(hold.filter(|_| is_whole)))?;
    accepted.whole?;
    seen?;
    let all = parts.iter().flat_map(Part::trials);
    let (over, trials) = all.partition(|trial| sweep.over.contains(trial));
    let done =
        Done { trials, over, ids, unsubmitted, awaited, is_sweep, has_feeder, ..Done::default() };
    Ok((done, lock))
}

/// A sweep before an order about it.
struct Sweep<'a> {
    tree: &'a Tree,
    order: Order,
    scheduler: Box<dyn Scheduler>,
    journal: Journal,
    waves: Waves,
    /// The array of each trial, and its index there.
    places: HashMap<u64, (u32, u64)>,
    /// Arrays that belong to the sweep of which this one is a copy, and its folder.
    originals: BTreeMap<u32, PathBuf>,
    status: Status,
    /// Trials that have ended and whose jobs are cancelled too: they run, with nothing in them that has not ended.
    over: BTreeSet<u64>,
}

impl<'a> Sweep<'a> {
    fn read(
        tree: &'a Tree,
        identity: &Identity,
        order: Order,
        site: &Site,
        environment: &Vars,
    ) -> Result<Self> {
        let journal = Journal::read(tree)?;
        let waves = Waves::read(tree)?;
        // `status` skips a damaged table, so the order would miss its trials.
        table::heads(tree)?;
        let places = waves.places();
        let status = status::of_all(tree.clone(), identity.clone(), site, environment)?;
        let over = if order == Order::Cancel { over(&status, &places) } else { BTreeSet::new() };
        let scheduler = journal.scheduler();
        let originals = of_originals(tree, &journal)?;
        Ok(Self { tree, order, scheduler, journal, waves, places, originals, status, over })
    }

    /// The trials that the order may concern.
    fn open(&self) -> BTreeSet<u64> {
        // An element that has begun is neither held nor released, whatever else it is to run.
        let running = self.status.trials().filter(|(_, s)| s.state == Standing::Running);
        let begun: HashSet<_> = running.filter_map(|(row, _)| self.places.get(&row.id)).collect();
        let concerns = |trial: u64| {
            let waits = !self.places.get(&trial).is_some_and(|place| begun.contains(place));
            let is_held = self.status.jobs_of.held.contains(&trial);
            match self.order {
                Order::Cancel => !self.over.contains(&trial),
                Order::Hold => waits && (self.scheduler.facts().holds_elements || !is_held),
                Order::Release => waits && is_held,
            }
        };
        let open = self.status.trials().filter(|(_, standing)| !standing.state.is_final());
        open.map(|(row, _)| row.id).filter(|trial| concerns(*trial)).collect()
    }

    /// The trials of these that a scheduler has, by array and index.
    fn elements(&self, wanted: &BTreeSet<u64>) -> BTreeMap<u32, BTreeMap<u64, Vec<u64>>> {
        let mut all: BTreeMap<u32, BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
        for trial in wanted {
            if let Some((array, index)) = self.places.get(trial)
                && self.journal.job(*array).is_some()
            {
                all.entry(*array).or_default().entry(*index).or_default().push(*trial);
            }
        }
        all
    }

    /// The feeders that are queued or running, as far as the order concerns them.
    fn feeders(&self, site: &Site, environment: &Vars) -> Result<Vec<Part>> {
        let is_own = |(array, _): &(u32, String)| !self.originals.contains_key(array);
        let mut jobs = status::feeder::jobs(self.waves.all.iter(), &self.journal, |_| true);
        jobs.retain(is_own);
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut calls = self.journal.calls(environment, site);
        let states = feeder::states(&*self.scheduler, &mut calls, &self.journal, &jobs)?;
        let concerns = |state: &State| match self.order {
            Order::Cancel => true,
            Order::Hold => matches!(state, State::Queued(_)),
            Order::Release => matches!(state, State::Held(_)),
        };
        let concerned = states.into_iter().filter(|(_, state)| concerns(state));
        Ok(concerned
            .map(|((array, job), _)| Part { array, trials: vec![(job, Vec::new())] })
            .collect())
    }

    /// The targets of an order: whole arrays if all their open elements are meant, else these elements. Jobs that wait
    /// for others come first, so that nothing begins because something else was deleted.
    fn parts(
        &self,
        elements: BTreeMap<u32, BTreeMap<u64, Vec<u64>>>,
        is_all: bool,
    ) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for (array, elements) in elements.into_iter().rev() {
            let Some(job) = self.journal.job(array) else { continue };
            let is_single = self.waves.arrays().any(|(_, a, _)| a.array == array && a.single);
            let trials = if is_all || is_single {
                vec![(job.to_owned(), elements.into_values().flatten().collect())]
            } else if self.order == Order::Cancel || self.scheduler.facts().holds_elements {
                let one = |(index, trials)| (self.scheduler.element(job, index), trials);
                elements.into_iter().map(one).collect()
            } else {
                let name = self.scheduler.facts().name;
                let sentence = format!("{name} holds and releases whole arrays, not elements");
                return Err(Fault::request(sentence)
                    .hint("name no trial, or cancel the trial")
                    .into());
            };
            parts.push(Part { array, trials });
        }
        Ok(parts)
    }

    /// The state of the sweep itself from now on, for later submissions; `None` if it stays as it is.
    fn hold(&self) -> Option<Entry> {
        let (time, is_held) = (clock::now(), self.journal.on_hold.is_some());
        match self.order {
            Order::Hold => {
                let mut standings = self.status.standings.iter();
                let is_open = standings.any(|standing| !standing.state.is_final());
                (is_open && !is_held).then(|| Entry::Hold { time, by: vars::user_name() })
            }
            Order::Cancel | Order::Release => is_held.then_some(Entry::Unhold { time }),
        }
    }

    /// Without an answer of the scheduler, refuses to report that nothing but these released jobs was held.
    fn check_seen(&self, released: &[String]) -> Result<(), Fault> {
        if self.order != Order::Release || self.status.is_sure() {
            return Ok(());
        }
        let (name, seen) = (&self.status.identity.name, &self.status.witness);
        let (released, which) = match released.len() as u64 {
            0 => (String::new(), "which jobs"),
            n => (format!("released {}, but ", count(n, "job")), "which other jobs"),
        };
        let sentence = format!("{released}cannot tell {which} of {name} are held; seen by: {seen}");
        Err(Fault::scheduler(sentence).hint("try again"))
    }

    fn has_ended(&self, trial: u64) -> bool {
        usize::try_from(trial).is_ok_and(|i| self.status.standings[i].state.is_final())
    }

    /// The trials of these without a job that have ended and may be submitted again by the feeder.
    fn awaited(&self, named: &[u64], with_job: &HashSet<u64>) -> BTreeSet<u64> {
        let may_run =
            |trial: &u64| self.status.awaited.contains(trial) && !with_job.contains(trial);
        let stops = self.order != Order::Release;
        named.iter().copied().filter(|trial| stops && may_run(trial)).collect()
    }

    /// Refuses an order about jobs of the sweep of which this one is a copy.
    fn refuse_originals(&self, wanted: &BTreeSet<u64>, are_named: bool) -> Result<(), Fault> {
        let original = |trial: &u64| self.originals.get(&self.places.get(trial)?.0);
        let Some(dir) = wanted.iter().find_map(original) else { return Ok(()) };
        let (theirs, own): (Vec<u64>, Vec<u64>) =
            wanted.iter().partition(|trial| original(trial).is_some());
        let (theirs, order) = (IdSet::of_trials(theirs), self.order.word());
        let sentence = format!(
            "the jobs of trials {theirs} belong to `{}`, of which `{}` is a copy",
            dir.display(),
            self.tree.dir().display()
        );
        let named = if are_named { theirs } else { IdSet::default() };
        let there = there(self.order, dir, &named);
        let here = IdSet::of_trials(own);
        Err(Fault::request(sentence).hint(match here.is_empty() {
            true => there,
            false => {
                format!("{there}, or for the others: hpcsweep {order} {} {here}", self.tree.named())
            }
        }))
    }

    /// Refuses a part of what shares a job: trials of one are cancelled, held and released together.
    fn refuse_shared(&self, open: &BTreeSet<u64>, wanted: &BTreeSet<u64>) -> Result<(), Fault> {
        let places = &self.places;
        let of_job: BTreeMap<_, u64> =
            wanted.iter().filter_map(|trial| Some((places.get(trial)?, *trial))).collect();
        let named = |other: &u64| of_job.get(places.get(other)?).copied();
        let others: Vec<u64> =
            open.difference(wanted).copied().filter(|other| named(other).is_some()).collect();
        let Some(trial) = others.first().and_then(named) else { return Ok(()) };
        let chain = |trial: u64| self.status.rows.get(trial as usize).map(|row| row.chain);
        let is_chain = others.iter().all(|other| named(other).and_then(chain) == chain(*other));
        let what = match is_chain {
            true => "is in one job with the rest of its chain",
            false => "is packed together with others into one job",
        };
        let numbers = IdSet::of_trials(others.iter().copied());
        let (trials, have) = if others.len() == 1 { ("trial", "has") } else { ("trials", "have") };
        let all = wanted.iter().chain(&others).collect::<BTreeSet<_>>();
        let words = IdSet::of_trials(all.into_iter().copied());
        let order = self.order.word();
        Err(Fault::request(format!(
            "trial {trial} {what}: {trials} {} {have} not ended either",
            numbers
        ))
        .hint(format!("name all of them: hpcsweep {order} {} {words}", self.tree.named())))
    }
}

/// What an order is about of one array.
struct Part {
    array: u32,
    /// Ids as the scheduler is given them, each with its trials.
    trials: Vec<(String, Vec<u64>)>,
}

impl Part {
    fn ids(&self) -> impl Iterator<Item = &String> {
        self.trials.iter().map(|(id, _)| id)
    }

    fn trials(&self) -> impl Iterator<Item = u64> {
        self.trials.iter().flat_map(|(_, trials)| trials).copied()
    }

    /// What to write down of trials that were taken back; `None` where the scheduler has accepted none of it.
    fn cancelled(&self, accepted: &HashSet<String>) -> Option<Entry> {
        let done = self.trials.iter().filter(|(id, _)| accepted.contains(id));
        let trials = done.flat_map(|(_, trials)| trials);
        let trials = IdSet::of_trials(trials.copied());
        // A feeder has no trials.
        let mut given = self.trials.iter().filter(|(id, _)| accepted.contains(id));
        let (time, is_none) =
            (clock::now(), !given.any(|(_, own)| own.is_empty() || !trials.is_empty()));
        let entry = Entry::Cancelled { array: self.array, time, trials: trials.to_string() };
        (!is_none).then_some(entry)
    }
}

/// Writes down what a call has changed.
fn note(tree: &Tree, entries: impl IntoIterator<Item = Entry>) -> Result<()> {
    let mut entries = entries.into_iter().peekable();
    if entries.peek().is_none() {
        return Ok(());
    }
    let mut writer = Writer::open(tree)?;
    entries.try_for_each(|entry| writer.write(&entry))
}

/// Trials that have ended and whose jobs run, with nothing in them that has not ended.
fn over(status: &Status, places: &HashMap<u64, (u32, u64)>) -> BTreeSet<u64> {
    let ended = &status.jobs_of.over;
    let open = status.trials().filter(|(row, s)| !s.state.is_final() && !ended.contains(&row.id));
    let open: HashSet<_> = open.filter_map(|(row, _)| places.get(&row.id)).collect();
    let is_alone = |trial: &u64| places.get(trial).is_some_and(|place| !open.contains(place));
    ended.iter().copied().filter(is_alone).collect()
}
