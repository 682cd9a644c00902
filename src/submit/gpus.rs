//! The GPUs of a run on this machine: what is refused before anything runs, and what each trial gets.

use anyhow::Result;

use super::Source;
use crate::fault::{Fault, Faults};
use crate::gpu::{Pool, Taken};
use crate::host::Vars;
use crate::host::gpus::DeviceId;
use crate::plan::{GpuIds, Plan};
use crate::tree::table::Row;
use crate::words;

/// The devices of this machine, where any trial asks for some.
pub(super) struct Devices {
    pool: Option<Pool>,
    how: GpuIds,
    share: u32,
}

/// What a trial was given: the devices, and the value of `CUDA_VISIBLE_DEVICES` where it is set.
pub(super) type Given = (Taken, Option<String>);

impl Devices {
    /// Finds the devices and refuses trials that name or need more than there are.
    pub(super) fn find(source: &Source, vars: &Vars) -> Result<Self> {
        let schedule = &source.plan.schedule;
        let trials = &source.plan.trials;
        let wanted = trials.iter().any(|t| t.resources.total_gpus() > 0);
        let pool = wanted.then(|| Pool::find(schedule.gpu_share, vars)).transpose()?;
        let devices = Self { pool, how: schedule.gpu_ids, share: schedule.gpu_share };
        let Some(pool) = &devices.pool else { return Ok(devices) };
        let usable = pool.usable() as u64;
        let refused = trials.iter().enumerate().filter_map(|(number, trial)| {
            let (named, count) = (trial.gpu_ids_abs.as_deref(), trial.resources.total_gpus());
            refuse(pool, usable, number, devices.exact(pool, named), count)
        });
        Faults(refused.take(10).collect()).or(|| Ok(()))?;
        Ok(devices)
    }

    /// The devices that a trial must have, where its plan names them.
    fn exact<'a>(&self, pool: &Pool, named: Option<&'a [DeviceId]>) -> Option<&'a [DeviceId]> {
        // Without NVML nobody can tell: named devices are passed on as they are.
        named.filter(|_| self.how == GpuIds::Exact || pool.unknown().is_some())
    }

    /// What to know about them; empty where no trial asks for any.
    pub(super) fn note(&self) -> String {
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

    /// The devices a trial gets and what it may see. The inner error says why they cannot be had now.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(super) fn take(&self, row: &Row, count: u64) -> Result<Result<Given, Fault>> {
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
    pub(super) fn give_back(&self, taken: &Taken) -> Result<()> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.give_back(taken))
    }
}

fn refuse(
    pool: &Pool,
    usable: u64,
    trial: usize,
    named: Option<&[DeviceId]>,
    count: u64,
) -> Option<Fault> {
    let here = match pool.unknown() {
        Some(why) => format!("devices here: none that NVML can see ({why})"),
        None => format!("devices here: {}", pool.words()),
    };
    let gpus = words::count(count, "GPU");
    let sentence = match named.and_then(|named| named.iter().find(|id| !pool.has(id))) {
        Some(missing) => {
            format!("trial {trial} names device {missing} in `gpu_ids_abs`, which is not there")
        }
        None if named.is_none() && count > usable => {
            format!("trial {trial} asks for {gpus}, more than this machine has")
        }
        None if usize::try_from(count).is_ok_and(|count| !pool.can_give(count, named)) => {
            let sentence =
                format!("trial {trial} asks for {gpus} that no program can have together");
            let hint =
                "CUDA gives a program one MIG device, and none whose compute mode is prohibited";
            return Some(Fault::request(sentence).at(here).hint(hint));
        }
        None => return None,
    };
    Some(Fault::request(sentence).at(here))
}

/// Refuses arrays whose trials are to share GPUs: a scheduler gives each job GPUs of its own.
///
/// # Errors
/// When they are.
pub fn refuse_share(plan: &Plan) -> Result<(), Fault> {
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
