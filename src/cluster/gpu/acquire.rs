//! Choosing devices and holding them, against others who do the same at the same moment.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Choice, Held, Wants, best};
use crate::base::fault::Fault;
use crate::base::host::gpus::Device;
use crate::base::host::gpus::holds::{Holder, Holds};

/// How often another process may take a device first before something must be wrong with the folder.
const TRIES: u32 = 1000;

/// Who holds which device now; `holder` asks whether there is room for it.
pub(crate) fn held(devices: &[Device], holds: &Holds, holder: &Holder) -> BTreeMap<String, Held> {
    devices
        .iter()
        .filter_map(|device| {
            let holders = holds.holders(&device.uuid);
            let is_full = !Holds::has_room(&holders, holder);
            let holder_names: Vec<String> = holders.iter().map(Holder::words).collect();
            (!holder_names.is_empty())
                .then(|| (device.uuid.clone(), Held { by: holder_names, is_full }))
        })
        .collect()
}

/// Chooses the best devices that have room for `holder`, and holds them for it. Either all or none.
///
/// # Errors
/// As [`best`], and when holds cannot be written.
pub(crate) fn acquire(
    devices: &[Device],
    wants: &Wants,
    holds: &Holds,
    holder: &Holder,
) -> Result<Vec<Choice>> {
    let held_devices = try_acquire(devices, wants, holds, holder)??;
    Ok(held_devices.into_iter().map(|(choice, _)| choice).collect())
}

/// As [`acquire`], each with its hold; the inner error says why none is free now, in the words of [`best`].
///
/// # Errors
/// When holds cannot be written.
pub(crate) fn try_acquire(
    devices: &[Device],
    wants: &Wants,
    holds: &Holds,
    holder: &Holder,
) -> Result<Result<Vec<(Choice, Holder)>, Fault>> {
    for _ in 0..TRIES {
        let chosen = match best(devices, wants, &held(devices, holds, holder)) {
            Ok(chosen) => chosen,
            Err(fault) => return Ok(Err(fault)),
        };
        // All processes use one order: of two that want the same devices, one gets the first and then all.
        let mut order: Vec<&str> = chosen.iter().map(|choice| choice.uuid.as_str()).collect();
        order.sort_unstable();
        let mut held_devices: BTreeMap<String, Holder> = BTreeMap::new();
        for uuid in order {
            let Some(hold) = holds.take(uuid, holder)? else { break };
            held_devices.insert(uuid.to_owned(), hold);
        }
        if held_devices.len() == chosen.len() {
            let both = chosen
                .into_iter()
                .filter_map(|choice| Some((held_devices.remove(&choice.uuid)?, choice)));
            return Ok(Ok(both.map(|(hold, choice)| (choice, hold)).collect()));
        }
        for (uuid, hold) in &held_devices {
            holds.give_back(uuid, hold)?;
        }
    }
    Err(Fault::machine("another process has taken every GPU that was chosen").into())
}
