//! Cancelling, holding and releasing what a sweep has in a scheduler's hands: one call for all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;

use super::agents;
use super::wave::Waves;
use crate::fault::Fault;
use crate::host::{Vars, clock, vars};
use crate::idset::IdSet;
use crate::scheduler::calls::{Calls, refusal};
use crate::scheduler::{self, pbs, slurm};
use crate::site::Site;
use crate::standing::{Standing, State};
use crate::status::{self, Status};
use crate::tree::damage::{Damage, Damaged};
use crate::tree::journal::{Entry, Journal, Writer};
use crate::tree::lock::{self, Lock};
use crate::tree::waves::Array;
use crate::tree::{Identity, Tree, table};
use crate::words::count;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Taken out of the queue, or stopped.
    Cancel,
    /// Kept from beginning.
    Hold,
    /// Let go.
    Release,
}

impl Wish {
    /// The verb of the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Release => "release",
        }
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    /// Trials that it was done for.
    pub trials: BTreeSet<u64>,
    /// Trials that have ended and whose jobs it was done for.
    pub over: BTreeSet<u64>,
    /// Ids as the scheduler was given them.
    pub ids: Vec<String>,
    /// Agents that it was done for: jobs of the scheduler.
    pub pilots: u64,
    /// Whether agents, which may be there, were told so.
    pub is_told: bool,
    /// Trials that were named and have ended.
    pub ended: Vec<u64>,
    /// Whether the sweep itself was held or released: what a later submission would bring.
    pub is_sweep: bool,
}

/// Files that have lost what they said of jobs: such a job is found by nobody but its scheduler.
///
/// # Errors
/// When the journal cannot be read.
pub fn lost_jobs(tree: &Tree) -> Result<Vec<Damaged>> {
    let mut damage = Damage::default();
    Journal::readable(tree, &mut damage)?;
    Ok(damage.settle(|_| lock::is_held(tree)))
}

/// Does it for the given trials, or for all that have not ended.
///
/// # Errors
/// When a trial is not in a scheduler's hands, or the scheduler refuses.
pub fn control(
    tree: &Tree,
    identity: &Identity,
    trials: &[u64],
    wish: Wish,
    site: &Site,
    environment: &Vars,
) -> Result<Done> {
    tree.trust_to_change()?;
    if let Some(done) = agents::control(tree, identity, trials, wish, site, environment)? {
        return Ok(done);
    }
    let journal = Journal::read(tree)?;
    let waves = Waves::read(tree)?;
    // The status passes a damaged table over: its trials would be nobody's.
    table::heads(tree)?;
    let places = waves.places();
    let status = status::of_all(tree.clone(), identity.clone(), site, environment)?;
    let is_pbs = journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs");
    // An element that has begun is neither held nor released, whatever else it is to run.
    let begun: HashSet<_> = status
        .trials()
        .filter(|(_, s)| s.state == State::Running)
        .filter_map(|(row, _)| places.get(&row.id))
        .collect();
    let over = if wish == Wish::Cancel { over(&status, &places) } else { BTreeSet::new() };
    let concerns = |trial: u64, standing: &Standing| {
        let waits = !places.get(&trial).is_some_and(|place| begun.contains(place));
        let is_held = status.jobs_of.held.contains(&trial);
        !standing.state.is_final()
            && match wish {
                Wish::Cancel => !over.contains(&trial),
                Wish::Hold => waits && !(is_pbs && is_held),
                Wish::Release => waits && is_held,
            }
    };
    let open: BTreeSet<u64> =
        status.trials().filter(|(row, s)| concerns(row.id, s)).map(|(row, _)| row.id).collect();
    if let Some(trial) = trials.iter().find(|&&trial| status.rows.len() as u64 <= trial) {
        return Err(Fault::request(format!("{} has no trial {trial}", identity.name)).into());
    }
    let named: HashSet<&u64> = trials.iter().collect();
    let is_wanted = |trial: &u64| named.is_empty() || named.contains(trial);
    let wanted: BTreeSet<u64> = open.union(&over).copied().filter(is_wanted).collect();

    // Whole arrays where all that is open of them is meant, else their elements.
    let mut by_array: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let with_job = wanted.iter().filter_map(|trial| places.get(trial));
    for (array, index) in with_job.filter(|(array, _)| journal.job(*array).is_some()) {
        by_array.entry(*array).or_default().insert(*index);
    }
    // Against a submission under way, which would bring more than is taken back or held.
    let is_all = trials.is_empty() && !journal.arrays.is_empty();
    let is_at_work = by_array.is_empty() && lock::is_held(tree);
    let changes = wish == Wish::Cancel || is_all;
    let _lock = (changes && !is_at_work).then(|| Lock::take(tree)).transpose()?;
    let hold = (is_all && !is_at_work).then(|| of_sweep(&journal, &status, wish)).flatten();
    let is_sweep = hold.is_some();
    if by_array.is_empty() {
        note(tree, hold)?;
        let has_ended = |trial: &u64| {
            usize::try_from(*trial).is_ok_and(|i| status.standings[i].state.is_final())
        };
        let ended = trials.iter().copied().filter(has_ended).collect();
        return Ok(Done { ended, is_sweep, ..Done::default() });
    }
    let mut done = Done { is_sweep, ..Done::default() };
    let mut taken: Vec<(u32, Vec<u64>)> = Vec::new();
    // What waits for others goes first, so that nothing begins because something else was deleted.
    for (number, indices) in by_array.iter().rev() {
        let Some(job) = journal.job(*number) else { continue };
        let (array, map) = array_of(&waves, *number)?;
        let is_whole = trials.is_empty() || array.single;
        if !is_whole && is_pbs && wish != Wish::Cancel {
            return Err(Fault::request("PBS holds and releases whole arrays, not elements")
                .hint("name no trial, or cancel the trial")
                .into());
        }
        if is_whole {
            done.ids.push(job.to_owned());
            let is_meant = |trial: &u64| {
                wanted.contains(trial) && places.get(trial).is_some_and(|(a, _)| a == number)
            };
            let here: Vec<u64> = array.trials(map).iter().copied().filter(is_meant).collect();
            taken.push((*number, here));
            continue;
        }
        done.ids.extend(indices.iter().map(|index| element(job, *index, is_pbs)));
        let here = array.places(map).filter(|(index, ..)| indices.contains(index));
        let here = here.map(|(.., trial)| trial).filter(|trial| wanted.contains(trial));
        taken.push((*number, here.collect()));
    }
    refuse_parts(tree, &status, &places, &open, &wanted, wish)?;
    let all = taken.iter().flat_map(|(_, here)| here).copied();
    (done.over, done.trials) = all.partition(|trial| over.contains(trial));
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let Answer { accepted, whole } = call(&mut calls, &done.ids, wish, is_pbs)?;
    let is_accepted = |array: u32, trial: &u64| {
        let job = journal.job(array).unwrap_or_default();
        let is_it = |index: u64| accepted.contains(&element(job, index, is_pbs));
        accepted.contains(job)
            || places.get(trial).is_some_and(|(own, index)| *own == array && is_it(*index))
    };
    let cancelled = |(array, trials): (u32, Vec<u64>)| {
        let trials = trials.into_iter().filter(|trial| is_accepted(array, trial));
        let trials: IdSet = trials.filter_map(|t| u32::try_from(t).ok()).collect();
        let entry = Entry::Cancelled { array, time: clock::now(), trials: trials.to_string() };
        (!trials.is_empty()).then_some(entry)
    };
    let taken = if wish == Wish::Cancel { taken } else { Vec::new() };
    let entries = taken.into_iter().filter_map(cancelled);
    note(tree, entries.chain(hold.filter(|_| whole.is_ok())))?;
    whole.map(|()| done)
}

/// The scheduler's id of an element.
fn element(job: &str, index: u64, is_pbs: bool) -> String {
    if is_pbs { pbs::element(job, index) } else { format!("{job}_{index}") }
}

/// An array of a wave, and the wave's map.
fn array_of(waves: &Waves, number: u32) -> Result<(&Array, &[u64])> {
    for (wave, map) in waves.all.iter().zip(&waves.maps) {
        if let Some(array) = wave.arrays.iter().find(|array| array.array == number) {
            return Ok((array, map));
        }
    }
    Err(anyhow::anyhow!("array {number} is in a wave"))
}

/// What holds of the sweep itself from now on: what a later submission would bring; `None` where that stays as it is.
fn of_sweep(journal: &Journal, status: &Status, wish: Wish) -> Option<Entry> {
    let (time, is_held) = (clock::now(), journal.on_hold.is_some());
    match wish {
        Wish::Hold => {
            let is_open = status.standings.iter().any(|standing| !standing.state.is_final());
            (is_open && !is_held).then(|| Entry::Hold { time, by: vars::user_name() })
        }
        Wish::Cancel | Wish::Release => is_held.then_some(Entry::Unhold { time }),
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

/// Trials that share a job are cancelled, held and released together.
fn refuse_parts(
    tree: &Tree,
    status: &Status,
    places: &HashMap<u64, (u32, u64)>,
    open: &BTreeSet<u64>,
    wanted: &BTreeSet<u64>,
    wish: Wish,
) -> Result<()> {
    let of_job: BTreeMap<_, u64> =
        wanted.iter().filter_map(|trial| Some((places.get(trial)?, *trial))).collect();
    let named = |other: &u64| of_job.get(places.get(other)?).copied();
    let others: Vec<u64> =
        open.difference(wanted).copied().filter(|other| named(other).is_some()).collect();
    let Some(trial) = others.first().and_then(named) else { return Ok(()) };
    let chain = |trial: u64| status.rows.get(trial as usize).map(|row| row.chain);
    let is_chain = others.iter().all(|other| named(other).and_then(chain) == chain(*other));
    let what = match is_chain {
        true => "is in one job with the rest of its chain",
        false => "is packed together with others into one job",
    };
    let numbers: Vec<String> = others.iter().map(ToString::to_string).collect();
    let (trials, have) = if others.len() == 1 { ("trial", "has") } else { ("trials", "have") };
    let all = wanted.iter().chain(&others).collect::<BTreeSet<_>>();
    let words: String = all.iter().map(|trial| format!(" --trial {trial}")).collect();
    Err(Fault::request(format!(
        "trial {trial} {what}: {trials} {} {have} not ended either",
        numbers.join(", ")
    ))
    .hint(format!("name all of them: hpcsweep {} {}{words}", wish.word(), tree.named()))
    .into())
}

/// What a scheduler made of calls about several jobs.
pub(super) struct Answer {
    /// Those for which it did it.
    pub(super) accepted: HashSet<String>,
    /// Its refusal, if it has refused any of them.
    pub(super) whole: Result<()>,
}

/// Tells the scheduler all of these, in one call where they fit into one. After a refusal no further call is made.
///
/// # Errors
/// When the scheduler cannot be called.
pub(super) fn call(calls: &mut Calls, ids: &[String], wish: Wish, is_pbs: bool) -> Result<Answer> {
    let mut all = Answer { accepted: HashSet::new(), whole: Ok(()) };
    for piece in scheduler::pieces(ids) {
        let answer = call_of(calls, piece, wish, is_pbs)?;
        all.accepted.extend(answer.accepted);
        all.whole = answer.whole;
        if all.whole.is_err() {
            break;
        }
    }
    Ok(all)
}

fn call_of(calls: &mut Calls, ids: &[String], wish: Wish, is_pbs: bool) -> Result<Answer> {
    let argv = match (is_pbs, wish) {
        (true, Wish::Cancel) => pbs::delete(ids),
        (true, Wish::Hold) => pbs::hold(ids),
        (true, Wish::Release) => pbs::release(ids),
        (false, Wish::Cancel) => slurm::cancel(ids),
        (false, Wish::Hold) => slurm::hold(ids),
        (false, Wish::Release) => slurm::release(ids),
    };
    let output = calls.make(&argv)?;
    // What has ended meanwhile is no fault.
    let is_done = output.code == Some(0)
        || (is_pbs && pbs::has_answered(output.code))
        || (!is_pbs && slurm::versions::has_only_ended(&output.stderr));
    if is_done {
        return Ok(Answer { accepted: ids.iter().cloned().collect(), whole: Ok(()) });
    }
    // It goes on with the others, and names those that it refuses; where it names none, nothing was done.
    let said = output.stderr.split_whitespace().map(|word| word.trim_end_matches([':', ',', '.']));
    let named: HashSet<&str> = said.collect();
    let are_named = ids.iter().any(|id| named.contains(id.as_str()));
    let accepted = ids.iter().filter(|id| are_named && !named.contains(id.as_str()));
    let whole = Err(refusal(&argv, &output).into());
    Ok(Answer { accepted: accepted.cloned().collect(), whole })
}

impl Done {
    /// How many trials, or agents, in words.
    pub fn words(&self) -> String {
        let trials = count(self.trials.len() as u64, "trial");
        let over = match self.over.len() as u64 {
            0 => None,
            1 => Some("the job of 1 trial that has ended".to_owned()),
            n => Some(format!("the jobs of {n} trials that have ended")),
        };
        match (self.pilots, over) {
            (0, None) => trials,
            (0, Some(over)) if self.trials.is_empty() => over,
            (0, Some(over)) => format!("{trials} and {over}"),
            (n, _) => count(n, "pilot"),
        }
    }
}
