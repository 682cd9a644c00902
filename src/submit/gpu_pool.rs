//! The devices of this machine, handed out to one trial at a time.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Source;
use crate::fault::{Fault, Faults};
use crate::host::{Vars, gpus};
use crate::plan::GpuIds;
use crate::tree::table::Row;

/// The devices of this machine, and which are free.
pub(super) struct Devices {
    /// Ids that may be handed out; `None` when nobody says which there are.
    all: Option<Vec<u32>>,
    free: BTreeSet<u32>,
    busy: BTreeSet<u32>,
    why_none: Option<String>,
    wanted: bool,
    how: GpuIds,
    vars: Vars,
}

impl Devices {
    /// Finds the devices and refuses trials that name or need more than there are.
    pub(super) fn find(source: &Source, vars: &Vars) -> Result<Self> {
        let trials = &source.plan.trials;
        let wanted = trials.iter().any(|t| t.resources.total_gpus() > 0);
        let mut devices = Self {
            all: None,
            free: BTreeSet::new(),
            busy: BTreeSet::new(),
            why_none: None,
            wanted,
            how: source.plan.schedule.gpu_ids,
            vars: vars.clone(),
        };
        if !wanted {
            return Ok(devices);
        }
        if let Some((ids, _)) = crate::devices::granted(vars) {
            devices.all = Some(ids.iter().filter_map(|id| id.parse().ok()).collect());
        } else {
            match gpus::list(vars) {
                Ok(list) => devices.all = Some(list.iter().map(|g| g.index).collect()),
                Err(why) => devices.why_none = Some(why.to_string()),
            }
        }
        devices.free = devices.all.iter().flatten().copied().collect();
        let mut faults = Vec::new();
        for (number, trial) in trials.iter().enumerate() {
            if let Some(fault) = devices.refuse(
                number as u64,
                trial.gpu_ids_abs.as_deref(),
                trial.resources.total_gpus(),
            ) && faults.len() < 10
            {
                faults.push(fault);
            }
        }
        Faults(faults).or(|| Ok(()))?;
        Ok(devices)
    }

    fn refuse(&self, trial: u64, named: Option<&[u32]>, count: u64) -> Option<Fault> {
        let there = || match &self.all {
            Some(all) if all.is_empty() => "none".to_owned(),
            Some(all) => all.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            None => format!("none that NVML can see ({})", self.why_none.as_deref().unwrap_or("?")),
        };
        match (named, &self.all) {
            (Some(named), Some(all)) if self.how == GpuIds::Exact => {
                let missing = named.iter().find(|id| !all.contains(id))?;
                let sentence = format!(
                    "trial {trial} names device {missing} in `gpu_ids_abs`, which is not there"
                );
                Some(Fault::request(sentence).at(format!("devices here: {}", there())))
            }
            // Without NVML nobody can tell: named devices are passed on as they are.
            (Some(_), None) => None,
            _ => {
                let have = self.all.as_ref().map_or(0, Vec::len) as u64;
                (count > have).then(|| {
                    let gpus =
                        if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
                    Fault::request(format!(
                        "trial {trial} asks for {gpus}, more than this machine has"
                    ))
                    .at(format!("devices here: {}", there()))
                })
            }
        }
    }

    pub(super) fn note(&self) -> String {
        match (&self.all, self.wanted) {
            (_, false) => String::new(),
            (Some(all), true) => {
                format!("{} to hand out", crate::words::count(all.len() as u64, "GPU"))
            }
            (None, true) => format!(
                "no GPU found here ({}): device ids are passed on unchecked",
                self.why_none.as_deref().unwrap_or("no NVML")
            ),
        }
    }

    /// The devices a trial gets and what it may see; `None` if they are not free now.
    pub(super) fn take(&mut self, row: &Row, count: u64) -> Option<(Vec<u32>, Option<String>)> {
        let own: Vec<u32> = match &row.gpu_ids_abs {
            Some(named) if self.how == GpuIds::Exact || self.all.is_none() => named.clone(),
            _ if count == 0 => return Some((Vec::new(), None)),
            _ => self.free.iter().copied().take(count as usize).collect(),
        };
        let named = row.gpu_ids_abs.is_some() && (self.how == GpuIds::Exact || self.all.is_none());
        if own.iter().any(|id| self.busy.contains(id)) || (!named && (own.len() as u64) < count) {
            return None;
        }
        for id in &own {
            self.free.remove(id);
            self.busy.insert(*id);
        }
        let ids: Vec<String> = own.iter().map(u32::to_string).collect();
        let visible = !own.is_empty() || row.gpu_ids_abs.is_some();
        let visible = visible.then(|| crate::devices::for_cuda(&ids, &self.vars));
        Some((own, visible))
    }

    pub(super) fn give_back(&mut self, own: &[u32]) {
        for id in own {
            self.busy.remove(id);
            if self.all.as_ref().is_some_and(|all| all.contains(id)) {
                self.free.insert(*id);
            }
        }
    }
}
