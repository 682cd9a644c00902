//! Cancelling, holding and releasing what a sweep has in a scheduler's hands: one call for all of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use anyhow::Result;

use super::agents;
use super::wave::Waves;
use crate::fault::Fault;
use crate::host::{Vars, clock};
use crate::idset::IdSet;
use crate::scheduler::calls::{Calls, refusal};
use crate::scheduler::{pbs, slurm};
use crate::site::Site;
use crate::standing::{Standing, State};
use crate::status;
use crate::tree::journal::{Entry, Journal, Writer};
use crate::tree::lock::Lock;
use crate::tree::{Identity, Tree};
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

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    /// Trials that it was done for.
    pub trials: BTreeSet<u64>,
    /// Ids as the scheduler was given them.
    pub ids: Vec<String>,
    /// Agents that it was done for: jobs of the scheduler.
    pub pilots: u64,
    /// Whether agents, which may be there, were told so.
    pub is_told: bool,
    /// Trials that were named and have ended.
    pub ended: Vec<u64>,
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
    tree.check_change(tree.shared())?;
    if let Some(done) = agents::control(tree, identity, trials, wish, site, environment)? {
        return Ok(done);
    }
    let journal = Journal::read(tree)?;
    let waves = Waves::read(tree)?;
    let places = waves.places();
    let status = status::of(tree.clone(), identity.clone(), site, environment, true)?;
    let is_pbs = journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs");
    // An element that has begun is neither held nor released, whatever else it is to run.
    let begun: HashSet<_> = status
        .trials()
        .filter(|(_, s)| s.state == State::Running)
        .filter_map(|(row, _)| places.get(&row.id))
        .collect();
    let concerns = |trial: u64, standing: &Standing| {
        let waits = !places.get(&trial).is_some_and(|place| begun.contains(place));
        let is_held = standing.reason == "held";
        !standing.state.is_final()
            && match wish {
                Wish::Cancel => true,
                Wish::Hold => waits && !(is_pbs && is_held),
                Wish::Release => waits && (!is_pbs || is_held),
            }
    };
    let open: BTreeSet<u64> =
        status.trials().filter(|(row, s)| concerns(row.id, s)).map(|(row, _)| row.id).collect();
    if let Some(trial) = trials.iter().find(|&&trial| status.rows.len() as u64 <= trial) {
        return Err(Fault::request(format!("{} has no trial {trial}", identity.name)).into());
    }
    let wanted: BTreeSet<u64> =
        trials.iter().copied().filter(|trial| open.contains(trial)).collect();
    let wanted = if trials.is_empty() { open.clone() } else { wanted };

    // Whole arrays where all that is open of them is meant, else their elements.
    let mut by_array: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for trial in &wanted {
        if let Some((array, index)) = places.get(trial)
            && journal.job(*array).is_some()
        {
            by_array.entry(*array).or_default().insert(*index);
        }
    }
    if by_array.is_empty() {
        let has_ended = |trial: &u64| {
            usize::try_from(*trial).is_ok_and(|i| status.standings[i].state.is_final())
        };
        let ended = trials.iter().copied().filter(has_ended).collect();
        return Ok(Done { ended, ..Done::default() });
    }
    let mut done = Done::default();
    let mut taken: Vec<(u32, Vec<u64>)> = Vec::new();
    // What waits for others goes first, so that nothing begins because something else was deleted.
    for (number, indices) in by_array.iter().rev() {
        let Some(job) = journal.job(*number) else { continue };
        let (array, map) = waves
            .all
            .iter()
            .zip(&waves.maps)
            .find_map(|(wave, map)| Some((wave.arrays.iter().find(|a| a.array == *number)?, map)))
            .ok_or_else(|| anyhow::anyhow!("array {number} is in a wave"))?;
        if trials.is_empty() || array.single {
            done.ids.push(job.to_owned());
            let is_meant = |trial: &u64| {
                wanted.contains(trial) && places.get(trial).is_some_and(|(a, _)| a == number)
            };
            let here: Vec<u64> = array.trials(map).iter().copied().filter(is_meant).collect();
            done.trials.extend(&here);
            taken.push((*number, here));
            continue;
        }
        if is_pbs && wish != Wish::Cancel {
            return Err(Fault::request("PBS holds and releases whole arrays, not elements")
                .hint("name no trial, or cancel the trial")
                .into());
        }
        for &index in indices {
            let mut shared = array.places(map).filter(|(i, _, _)| *i == index).map(|(.., t)| t);
            if let Some(other) = shared.find(|t| !wanted.contains(t) && open.contains(t)) {
                let trial = trials.iter().find(|t| places.get(t) == places.get(&other));
                let chain = |trial: &u64| status.rows.get(*trial as usize).map(|row| row.chain);
                let (what, whose) = match trial.and_then(chain) == chain(&other) {
                    true => ("is in one job with the rest of its chain", "of the chain"),
                    false => ("is packed together with others into one job", "of that job"),
                };
                let trial = trial.map_or_else(String::new, ToString::to_string);
                return Err(Fault::request(format!(
                    "trial {trial} {what}: trial {other} has not ended either"
                ))
                .hint(format!("name all trials {whose} that have not ended"))
                .into());
            }
            done.ids.push(if is_pbs { pbs::element(job, index) } else { format!("{job}_{index}") });
            let here = array.places(map).filter(|(i, _, _)| *i == index).map(|(.., t)| t);
            let here: Vec<u64> = here.filter(|trial| wanted.contains(trial)).collect();
            done.trials.extend(&here);
            taken.push((*number, here));
        }
    }
    // Against a submission under way, which would bring more than is taken back.
    let _lock = (wish == Wish::Cancel).then(|| Lock::take(tree)).transpose()?;
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    call(&mut calls, &done.ids, wish, is_pbs)?;
    if wish == Wish::Cancel {
        let mut writer = Writer::open(tree)?;
        for (array, trials) in taken {
            let trials: IdSet = trials.iter().filter_map(|&t| u32::try_from(t).ok()).collect();
            let trials = trials.to_string();
            writer.write(&Entry::Cancelled { array, time: clock::now(), trials })?;
        }
    }
    Ok(done)
}

/// One call of the scheduler for all of these.
pub(super) fn call(calls: &mut Calls, ids: &[String], wish: Wish, is_pbs: bool) -> Result<()> {
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
    if is_done { Ok(()) } else { Err(refusal(&argv, &output).into()) }
}

impl Done {
    /// How many trials, or agents, in words.
    pub fn words(&self) -> String {
        match self.pilots {
            0 => count(self.trials.len() as u64, "trial"),
            n => count(n, "pilot"),
        }
    }
}
