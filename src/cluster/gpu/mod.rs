//! Which GPU to take: the best of those that exist, that this process may use, and that are not held.
//!
//! [`best`] decides and is pure; [`allowed()`] reads what the environment allows; [`acquire()`] puts both
//! together and holds what it chose, so that programs which start together get different devices.

mod acquire;
mod allowed;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::fault::Fault;
use crate::base::host::gpus::{ComputeMode, Device, Missing};
use crate::base::words;

pub(crate) use acquire::{acquire, held, try_acquire};
pub(crate) use allowed::{allowed, named};
pub(crate) use pool::{Pool, Taken};

/// The request for devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wants {
    /// How many, for one program.
    pub(crate) count: usize,
    /// Bytes of memory that must be free on each.
    pub(crate) min_free_memory: Option<u64>,
    /// Percent of the time in which each may compute at most.
    pub(crate) max_utilization: Option<u32>,
    /// Only devices on which no process computes.
    pub(crate) idle: bool,
    /// The UUIDs that may be taken ([`allowed()`]); `None` for all.
    pub(crate) among: Option<Vec<String>>,
}

impl Default for Wants {
    fn default() -> Self {
        Self { count: 1, min_free_memory: None, max_utilization: None, idle: false, among: None }
    }
}

/// Who holds a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Each holder in words.
    pub(crate) by: Vec<String>,
    /// Whether there is no room for another holder.
    pub(crate) is_full: bool,
}

impl Held {
    /// All holders in words.
    pub(crate) fn words(&self) -> String {
        self.by.join(", ")
    }
}

/// A device that was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Choice {
    /// NVML's index of the GPU.
    pub(crate) index: u32,
    /// Its UUID, or that of the MIG device.
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// Whether it is a part of a GPU: only its UUID names it.
    pub(crate) mig: bool,
    /// How many processes computed on it; `None` if it does not report that.
    pub(crate) processes: Option<usize>,
}

/// How devices are named in `CUDA_VISIBLE_DEVICES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By UUID, which means the same to every program.
    Uuid,
    /// By NVML's index; CUDA counts in the same order under `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    Index,
}

/// The best devices, the best one first: those with fewest holders, of these those on which fewest processes compute,
/// then the least utilised, then those with the smallest share of memory in use, then by index. A GPU that is divided
/// is not offered, its MIG devices are.
///
/// `held` has who holds which UUID.
///
/// # Errors
/// A fault of the machine, with what keeps each device from being taken.
pub(crate) fn best(
    devices: &[Device],
    wants: &Wants,
    held: &BTreeMap<String, Held>,
) -> Result<Vec<Choice>, Fault> {
    if devices.is_empty() {
        return Err(Fault::machine("there is no GPU on this host"));
    }
    let mine: Vec<&Device> = devices
        .iter()
        .filter(|device| wants.among.as_ref().is_none_or(|among| among.contains(&device.uuid)))
        .collect();
    if mine.is_empty() {
        let n_seen =
            words::count(devices.iter().filter(|d| d.parent.is_none()).count() as u64, "GPU");
        return Err(Fault::machine(format!(
            "none of the {n_seen} here may be used by this process"
        ))
        .hint("see CUDA_VISIBLE_DEVICES and what the scheduler has granted"));
    }
    let mut fit = Vec::new();
    let mut unfit = Vec::new();
    for device in mine {
        match hindrance(device, wants, held.get(&device.uuid)) {
            None => fit.push(device),
            Some(why) => unfit.push(format!("{}: {why}", label(device))),
        }
    }
    if fit.len() < wants.count {
        let wanted = words::count(wants.count as u64, "GPU");
        let sentence = match fit.len() {
            0 => format!("no GPU can be had, and {wanted} {} wanted", is_or_are(wants.count)),
            n => format!(
                "only {} can be had, and {wanted} are wanted",
                words::count(n as u64, "GPU")
            ),
        };
        let fault = Fault::machine(sentence);
        return Err(if unfit.is_empty() { fault } else { fault.at(unfit.join("\n")) });
    }
    let holders = |device: &Device| held.get(&device.uuid).map_or(0, |held| held.by.len());
    fit.sort_by_key(|device| (holders(device), rank(device)));
    Ok(fit[..wants.count].iter().map(|device| choice(device)).collect())
}

fn is_or_are(n: usize) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

/// Less is better. A device that does not report a value comes after the best possible value.
fn rank(device: &Device) -> (u64, u64, u64, u32, String) {
    let known_or_first = |n: Option<u64>| n.map_or(1, |n| n * 2);
    let processes = device.processes.as_ref().map(|all| all.len() as u64);
    let share = match (device.memory_used, device.memory_total) {
        // In millionths: a share is not an integer, and floats have no order.
        (Some(used), Some(total)) if total > 0 => {
            Some((u128::from(used) * 1_000_000 / u128::from(total)) as u64)
        }
        _ => None,
    };
    (
        known_or_first(processes),
        known_or_first(device.utilization.map(u64::from)),
        known_or_first(share),
        device.index,
        device.uuid.clone(),
    )
}

/// Why a device cannot be taken.
fn hindrance(device: &Device, wants: &Wants, held: Option<&Held>) -> Option<String> {
    let processes = device.processes.as_ref().map_or(0, Vec::len);
    if let Some(trouble) = &device.trouble {
        return Some(trouble.clone());
    }
    if device.mig_enabled {
        return Some("divided into MIG devices".into());
    }
    if device.parent.is_some() && wants.count > 1 {
        return Some("CUDA gives a program one MIG device".into());
    }
    match device.compute_mode {
        Some(ComputeMode::Prohibited) => return Some("its compute mode is prohibited".into()),
        Some(ComputeMode::ExclusiveProcess) if processes > 0 => {
            return Some("in exclusive use by another process".into());
        }
        _ => {}
    }
    if let Some(held) = held.filter(|held| held.is_full) {
        return Some(format!("reserved ({})", held.words()));
    }
    if wants.idle && processes > 0 {
        return Some(format!("in use by {}", words::count(processes as u64, "program")));
    }
    if let (Some(most), Some(now)) = (wants.max_utilization, device.utilization)
        && now > most
    {
        return Some(format!("{now} % utilised"));
    }
    if let Some(least) = wants.min_free_memory {
        match (device.memory_total, device.memory_used) {
            (Some(total), Some(used)) if total.saturating_sub(used) >= least => {}
            (Some(total), Some(used)) => {
                return Some(format!("{} MiB free", total.saturating_sub(used) >> 20));
            }
            _ => return Some("does not tell its free memory".into()),
        }
    }
    None
}

fn choice(device: &Device) -> Choice {
    Choice {
        index: device.index,
        uuid: device.uuid.clone(),
        name: device.name.clone(),
        mig: device.parent.is_some(),
        processes: device.processes.as_ref().map(Vec::len),
    }
}

/// A device as people call it: `GPU 0`, `GPU 0, MIG-...`.
pub(crate) fn label(device: &Device) -> String {
    match device.parent {
        Some(_) => format!("GPU {}, {}", device.index, device.uuid),
        None => format!("GPU {}", device.index),
    }
}

/// The value of `CUDA_VISIBLE_DEVICES` that leaves exactly these, in this order. A MIG device is named by its
/// UUID in either naming: it has no index.
pub(crate) fn visible_value(chosen: &[Choice], naming: Naming) -> String {
    chosen
        .iter()
        .map(|choice| match naming {
            Naming::Index if !choice.mig => choice.index.to_string(),
            _ => choice.uuid.clone(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// The fault of a host on which GPUs cannot be queried.
pub(crate) fn none_here(why: &Missing) -> Fault {
    let fault = Fault::machine(format!("there is no GPU on this host: {why}"));
    match why {
        Missing::Mismatch => fault.hint("load the new driver: reboot this host"),
        _ => fault,
    }
}
