//! Which devices this process may use: what `CUDA_VISIBLE_DEVICES` names, within what a scheduler granted.

use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::host::gpus::Device;
use crate::cluster::devices;
use crate::cluster::rank;

/// The devices that one entry of `CUDA_VISIBLE_DEVICES` names: by index, or by the beginning of a UUID. A
/// GPU that is divided stands for its MIG devices. Empty if there is no such device.
pub(crate) fn named<'d>(entry: &str, devices: &'d [Device]) -> Vec<&'d Device> {
    let named: Vec<&Device> = match entry.parse::<u32>() {
        Ok(index) => devices.iter().filter(|d| d.parent.is_none() && d.index == index).collect(),
        Err(_) => devices.iter().filter(|d| d.uuid.starts_with(entry)).collect(),
    };
    match named.as_slice() {
        [gpu] if gpu.mig_enabled => {
            devices.iter().filter(|d| d.parent.as_ref() == Some(&gpu.uuid)).collect()
        }
        [_] => named,
        // CUDA takes a beginning of a UUID only where it is that of one device.
        _ => Vec::new(),
    }
}

/// The UUIDs that this process may use; `None` if nothing limits them.
///
/// # Errors
/// A fault of the machine when the scheduler granted devices and it is unknown which.
pub(crate) fn allowed(devices: &[Device], vars: &Vars) -> Result<Option<Vec<String>>, Fault> {
    let uuids = |found: Vec<&Device>| found.into_iter().map(|d| d.uuid.clone()).collect::<Vec<_>>();
    let visible: Option<Vec<String>> = rank::visible_devices(vars).map(|entries| {
        let entry_uuids = entries.into_iter().map(|entry| uuids(named(entry, devices)));
        // As CUDA reads it: the list ends at the first entry that names nothing.
        entry_uuids.take_while(|found| !found.is_empty()).flatten().collect()
    });
    let Some((ids, variable)) = devices::of_scheduler(vars) else { return Ok(visible) };
    // The scheduler counts MIG devices in its own way, and names them in CUDA_VISIBLE_DEVICES.
    let divided = devices.iter().any(|device| device.mig_enabled);
    if divided {
        return match visible {
            Some(visible) => Ok(Some(visible)),
            None => Err(Fault::machine(format!(
                "`{variable}={}` does not say which MIG devices were granted",
                ids.join(",")
            ))
            .hint("name them by CUDA_VISIBLE_DEVICES")),
        };
    }
    // Where a cgroup hides the other devices, NVML counts only what was granted, from 0 on, and the
    // scheduler's numbers are those of the whole node.
    if devices.len() <= ids.len() {
        return Ok(Some(visible.unwrap_or_else(|| uuids(devices.iter().collect()))));
    }
    let granted: Vec<String> = ids.iter().flat_map(|id| uuids(named(id, devices))).collect();
    Ok(Some(match visible {
        Some(visible) => visible.into_iter().filter(|uuid| granted.contains(uuid)).collect(),
        None => granted,
    }))
}
