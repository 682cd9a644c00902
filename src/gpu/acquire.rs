//! Choosing devices and holding them, against others who do the same at the same moment.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Choice, Wants, best};
use crate::fault::Fault;
use crate::host::gpus::Device;
use crate::host::gpus::holds::{Holder, Holds};

/// How often a device is lost to somebody else before something must be wrong with the folder.
const TRIES: u32 = 1000;

/// Who holds which device now, in words.
pub fn reserved(devices: &[Device], holds: &Holds) -> BTreeMap<String, String> {
    let held = |device: &Device| Some((device.uuid.clone(), holds.holder(&device.uuid)?.words()));
    devices.iter().filter_map(held).collect()
}

/// Chooses the best devices that nobody holds, and holds them for `holder`. Either all or none.
///
/// # Errors
/// As [`best`], and when holds cannot be written.
pub fn acquire(
    devices: &[Device],
    wants: &Wants,
    holds: &Holds,
    holder: &Holder,
) -> Result<Vec<Choice>> {
    for _ in 0..TRIES {
        let chosen = best(devices, wants, &reserved(devices, holds))?;
        // In one order for everybody: of two who want the same devices, one gets the first and then all.
        let mut order: Vec<&str> = chosen.iter().map(|choice| choice.uuid.as_str()).collect();
        order.sort_unstable();
        let mut taken = Vec::new();
        for uuid in order {
            if !holds.take(uuid, holder)? {
                break;
            }
            taken.push(uuid);
        }
        if taken.len() == chosen.len() {
            return Ok(chosen);
        }
        for uuid in taken {
            holds.give_back(uuid, holder)?;
        }
    }
    Err(Fault::machine("every GPU that was chosen went to somebody else").into())
}
