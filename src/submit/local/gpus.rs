//! The GPUs of a run on this machine: what is refused before anything runs, and what each trial gets.

use std::collections::HashMap;

use anyhow::Result;

use crate::base::fault::{Fault, Faults};
use crate::base::host::Vars;
use crate::base::host::gpus::DeviceId;
use crate::base::idset::IdSet;
use crate::base::words;
use crate::cluster::gpu::{Pool, Taken};
use crate::plan::{GpuIds, Plan, Trial};
use crate::submit::Source;
use crate::submit::grow::Diff;
use crate::sweep::tree::table::Row;

/// The devices of this machine, where any trial asks for some.
pub(crate) struct Devices {
    pool: Option<Pool>,
    how: GpuIds,
    share: u32,
}

/// The devices of a trial, and the value of `CUDA_VISIBLE_DEVICES` if it is set.
pub(crate) type Given = (Taken, Option<String>);

impl Devices {
    /// Looks for the devices that trials may use; there are none if no trial asks for GPUs.
    pub(crate) fn find(source: &Source, vars: &Vars) -> Result<Self> {
        let schedule = &source.plan.schedule;
        let wanted = source.plan.trials.iter().any(|t| t.resources.total_gpus() > 0);
        let pool = wanted.then(|| Pool::find(schedule.gpu_share, vars)).transpose()?;
        Ok(Self { pool, how: schedule.gpu_ids, share: schedule.gpu_share })
    }

    /// Refuses trials that name or need more devices than there are; agents choose the devices themselves. `left`
    /// returns which of the plan's trials would run, by their places there, and their numbers in the sweep; it is
    /// called only if one of the plan's trials is refused.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        diff: &Diff,
        for_agents: bool,
        left: impl FnOnce() -> Result<HashMap<usize, u64>>,
    ) -> Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let usable = pool.usable() as u64;
        let refused = |(place, trial): (usize, &Trial)| {
            let named = self.exact(pool, diff.devices(place, trial)).filter(|_| !for_agents);
            Some((place, refusal(pool, usable, named, trial.resources.total_gpus())?))
        };
        let refused: Vec<_> = plan.trials.iter().enumerate().filter_map(refused).collect();
        if refused.is_empty() {
            return Ok(());
        }
        let left = left()?;
        let mut groups: Vec<(Refusal, Vec<u32>)> = Vec::new();
        for (place, refusal) in refused {
            let Some(number) = left.get(&place) else { continue };
            let number = u32::try_from(*number).unwrap_or(u32::MAX);
            match groups.iter_mut().find(|(known, _)| *known == refusal) {
                Some((_, trials)) => trials.push(number),
                None => groups.push((refusal, vec![number])),
            }
        }
        let here = match pool.unknown() {
            Some(why) => format!("devices here: none that NVML can see ({why})"),
            None => format!("devices here: {}", pool.words()),
        };
        let fault = |(refusal, trials): (Refusal, Vec<u32>)| {
            refusal.fault(&trials.into_iter().collect()).at(here.clone())
        };
        Faults(groups.into_iter().take(MOST).map(fault).collect()).or(|| Ok(()))
    }

    /// The devices that a trial must have, where its plan names them.
    fn exact<'a>(&self, pool: &Pool, named: Option<&'a [DeviceId]>) -> Option<&'a [DeviceId]> {
        // Without NVML the devices are unknown: named devices are passed on as they are.
        named.filter(|_| self.how == GpuIds::Exact || pool.unknown().is_some())
    }

    /// How many trials of one GPU there is room for; `None` if that is unknown.
    pub(crate) fn room(&self) -> Option<u64> {
        let pool = self.pool.as_ref().filter(|pool| pool.unknown().is_none())?;
        Some(pool.usable() as u64 * u64::from(self.share))
    }

    /// What to know about them; empty where no trial asks for any.
    pub(crate) fn note(&self) -> String {
        let Some(pool) = &self.pool else { return String::new() };
        if let Some(why) = pool.unknown() {
            return format!("no GPU found here ({why}): device ids are passed on unchecked");
        }
        let gpus = words::count(pool.usable() as u64, "GPU");
        match self.share {
            1 => format!("{gpus} to hand out"),
            share => format!("{gpus} to hand out, each to {share} trials at a time"),
        }
    }

    /// The devices a trial gets and what it may see. The inner error says why they are not free now.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(crate) fn take(&self, row: &Row, count: u64) -> Result<Result<Given, Fault>> {
        let named = row.gpu_ids_abs.as_deref();
        let Some(pool) = self.pool.as_ref().filter(|_| count > 0) else {
            return Ok(Ok((Taken::default(), named.map(|_| String::new()))));
        };
        let taken = match self.exact(pool, named) {
            Some(ids) => pool.take_named(ids)?,
            None => pool.take(usize::try_from(count)?)?,
        };
        Ok(taken.map(|taken| {
            let visible = taken.visible.clone();
            (taken, Some(visible))
        }))
    }

    /// Takes back what a trial had.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(crate) fn give_back(&self, taken: &Taken) -> Result<()> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.give_back(taken))
    }
}

/// Faults that are reported at once.
const MOST: usize = 10;

/// Why a trial can never have its devices here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refusal {
    /// This one is not there.
    Missing(DeviceId),
    /// It wants so many, and there are fewer.
    TooMany(u64),
    /// It wants so many, and CUDA gives no program these.
    NotTogether(u64),
}

fn refusal(pool: &Pool, usable: u64, named: Option<&[DeviceId]>, count: u64) -> Option<Refusal> {
    if let Some(missing) = named.and_then(|named| named.iter().find(|id| !pool.has(id))) {
        return Some(Refusal::Missing(missing.clone()));
    }
    if named.is_none() && count > usable {
        return Some(Refusal::TooMany(count));
    }
    let can = usize::try_from(count).is_ok_and(|count| pool.can_give(count, named));
    (!can).then_some(Refusal::NotTogether(count))
}

impl Refusal {
    fn fault(&self, trials: &IdSet) -> Fault {
        let is_one = trials.len() == 1;
        let who = format!("{} {trials}", if is_one { "trial" } else { "trials" });
        let (asks, each) = if is_one { ("asks", "") } else { ("ask", " each") };
        let gpus = |count: u64| words::count(count, "GPU");
        match self {
            Self::Missing(id) => {
                let names = if is_one { "names" } else { "name" };
                Fault::request(format!(
                    "{who} {names} device {id} in `gpu_ids_abs`, which is not there"
                ))
            }
            Self::TooMany(count) => {
                let gpus = gpus(*count);
                Fault::request(format!("{who} {asks} for {gpus}{each}, more than this machine has"))
            }
            Self::NotTogether(count) => {
                let gpus = gpus(*count);
                Fault::request(format!(
                    "{who} {asks} for {gpus}{each} that no program can have together"
                ))
                .hint(
                    "CUDA gives a program one MIG device, and none whose compute mode is prohibited",
                )
            }
        }
    }
}

/// Refuses arrays whose trials are to share GPUs: a scheduler gives each job GPUs of its own.
///
/// # Errors
/// When they are.
pub(crate) fn refuse_share(plan: &Plan) -> Result<(), Fault> {
    let share = plan.schedule.gpu_share;
    if share == 1 || plan.trials.iter().all(|trial| trial.resources.total_gpus() == 0) {
        return Ok(());
    }
    let sentence = format!(
        "`gpu_share = {share}`: trials of arrays share no GPU, as the scheduler grants each job whole ones"
    );
    Err(Fault::request(sentence).hint(
        "let agents run them in one job: `submit --pull`, or `mode = \"pull\"` under `[schedule]`, with `slots` under `[pull]`",
    ))
}
