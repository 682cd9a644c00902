//! Which of the visible GPUs belongs to a local rank.

use std::collections::BTreeMap;
use std::fmt;

use super::read::text;

/// One device of those visible to this process. Prints as the mapping, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device<'v> {
    /// The local rank it belongs to.
    pub(crate) local_rank: u32,
    /// Its index among the visible devices: what `cuda:N` means.
    pub index: usize,
    /// Its name in the list: an index, a `GPU-...` or a `MIG-...` id.
    pub(crate) name: &'v str,
    /// How many devices are visible.
    pub(crate) visible: usize,
}

impl fmt::Display for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_rank, index, name, visible } = self;
        write!(f, "local rank {local_rank} uses device {index} of {visible} visible (`{name}`)")
    }
}

/// Returns the device of a local rank, `None` when none is visible.
///
/// Where a launcher has already narrowed the list to one (`srun --gpus-per-task=1`), that one is
/// it, whatever the local rank (DeepSpeed PR 3165); otherwise local ranks take turns.
pub fn device_for<S: AsRef<str>>(local_rank: u32, visible: &[S]) -> Option<Device<'_>> {
    let index = (local_rank as usize).checked_rem(visible.len())?;
    Some(Device { local_rank, index, name: visible[index].as_ref(), visible: visible.len() })
}

/// Returns the devices that `CUDA_VISIBLE_DEVICES` (or ROCm's `ROCR_` and `HIP_VISIBLE_DEVICES`)
/// leaves visible; `None` when no such variable is set, and all devices are.
///
/// An entry that cannot be a device ends the list, so `0,-1,1` is one device (CUDA programming
/// guide, environment variables), and an empty value hides all.
pub fn visible_devices(vars: &BTreeMap<String, String>) -> Option<Vec<&str>> {
    const NAMES: [&str; 3] =
        ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    let set = NAMES.iter().find(|name| text(vars, name).is_some());
    let list = match set.or(NAMES.iter().find(|name| vars.contains_key(**name))) {
        Some(name) => vars.get(*name)?,
        None => return None,
    };
    Some(
        list.split(',')
            .map(str::trim)
            .take_while(|entry| {
                let id = ["GPU-", "MIG-"].iter().any(|start| entry.starts_with(start));
                id || (!entry.is_empty() && entry.bytes().all(|b| b.is_ascii_digit()))
            })
            .collect(),
    )
}
