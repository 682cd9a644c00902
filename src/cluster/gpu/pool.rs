//! The devices that this process may allocate to trials, and which process has which: one allocator for `--local`, for
//! agents and for everything else that starts programs on GPUs.
//!
//! Allocated devices are held in the folder of [`Holds`], so that processes that have the same devices agree. A device
//! has as many places as trials may share it. Devices with the fewest trials are allocated first.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Choice, Wants, best, none_here, try_acquire};
use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::host::gpus::holds::{Holder, Holds};
use crate::base::host::gpus::{self, Device, DeviceId, Missing};
use crate::cluster::devices::{self, Grant};

/// The source of the list of devices.
enum Origin {
    /// A scheduler, or `CUDA_VISIBLE_DEVICES`.
    Granted(Grant),
    /// NVML: all of this host.
    Host,
    /// No source, and why.
    Nobody(Missing),
}

/// The devices that may be handed out.
pub(crate) struct Pool {
    /// Their UUIDs are the names of holds.
    devices: Vec<Device>,
    /// By the name of the hold: CUDA's name of the device here.
    names: BTreeMap<String, String>,
    origin: Origin,
    /// NVML's list of the host's devices, if numbers and UUIDs of a grant have to be compared.
    known: Vec<Device>,
    scope: String,
    holds: Holds,
    holder: Holder,
}

/// Devices that a trial has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Taken {
    holds: Vec<(String, Holder)>,
    /// The value of `CUDA_VISIBLE_DEVICES` that leaves exactly these.
    pub(crate) visible: String,
}

impl Pool {
    /// Finds the devices; `share` trials may use one at the same time. Those that a scheduler or
    /// `CUDA_VISIBLE_DEVICES` grants are agreed upon by all that have the same grant, those of a host without grants by
    /// all processes of this user there.
    ///
    /// # Errors
    /// When the folder of holds cannot be made.
    pub(crate) fn find(share: u32, vars: &Vars) -> Result<Self> {
        let (holds, holder) = (Holds::open(vars)?, Holder::own()?.sharing(share));
        let (devices, origin, known) = match devices::granted(vars) {
            Some(grant) => {
                let machine = if gpus::perhaps(vars) { gpus::machine(vars).ok() } else { None };
                let machine_devices = machine.map_or_else(Vec::new, |machine| machine.devices);
                (Vec::new(), Origin::Granted(grant.on(&machine_devices)), machine_devices)
            }
            None => match gpus::machine(vars) {
                Ok(machine) => (machine.devices, Origin::Host, Vec::new()),
                Err(why) => (Vec::new(), Origin::Nobody(why), Vec::new()),
            },
        };
        let scope = devices::scope(vars);
        let mut pool =
            Self { devices, names: BTreeMap::new(), origin, known, scope, holds, holder };
        pool.name_all();
        Ok(pool)
    }

    /// Gives each device the name of its hold and what CUDA calls it.
    fn name_all(&mut self) {
        if let Origin::Granted(grant) = &self.origin {
            for (place, granted) in grant.devices.iter().enumerate() {
                let device = stand_in(place, &granted.id, &self.scope);
                self.names.insert(device.uuid.clone(), granted.cuda.clone());
                self.devices.push(device);
            }
            return;
        }
        for device in &self.devices {
            let name = match device.uuid.as_str() {
                "" => device.index.to_string(),
                uuid => uuid.to_owned(),
            };
            self.names.insert(device.uuid.clone(), name);
        }
    }

    /// How many devices can be handed out.
    pub(crate) fn usable(&self) -> usize {
        let one_gpu = Wants::default();
        self.devices
            .iter()
            .filter(|device| best(&[(*device).clone()], &one_gpu, &BTreeMap::new()).is_ok())
            .count()
    }

    /// Why the devices are unknown, if they are.
    pub(crate) fn unknown(&self) -> Option<&Missing> {
        match &self.origin {
            Origin::Nobody(why) => Some(why),
            _ => None,
        }
    }

    /// The devices in words: `0, 1`; where a variable grants them, also which one.
    pub(crate) fn words(&self) -> String {
        let uuid_of = |device: &Device| match &self.origin {
            Origin::Granted(_) => None,
            _ if device.mig_enabled => None,
            _ if device.parent.is_some() => Some(device.uuid.clone()),
            _ => Some(device.index.to_string()),
        };
        let uuids: Vec<String> = match &self.origin {
            Origin::Granted(grant) => grant.devices.iter().map(|d| d.id.to_string()).collect(),
            _ => self.devices.iter().filter_map(uuid_of).collect(),
        };
        let listed = if uuids.is_empty() { "none".to_owned() } else { uuids.join(", ") };
        match &self.origin {
            Origin::Granted(grant) => format!("{listed} ({})", grant.words()),
            _ => listed,
        }
    }

    /// The hold of a device that a plan names; `None` if it is not there.
    fn key(&self, id: &DeviceId) -> Option<String> {
        match &self.origin {
            Origin::Granted(grant) => {
                grant.find(id, &self.known).map(|place| self.devices[place].uuid.clone())
            }
            Origin::Host => {
                let named_devices = super::named(&id.to_string(), &self.devices);
                // A GPU that is divided has several devices, and a plan names each of them.
                (named_devices.len() == 1).then(|| named_devices[0].uuid.clone())
            }
            Origin::Nobody(_) => Some(stand_in(0, id, &self.scope).uuid),
        }
    }

    /// Whether a device that a plan names exists; true if that is unknown.
    pub(crate) fn has(&self, id: &DeviceId) -> bool {
        self.key(id).is_some()
    }

    /// Whether one trial can have so many devices, or exactly those that a plan names, while no other trial has
    /// any.
    pub(crate) fn can_give(&self, count: usize, named: Option<&[DeviceId]>) -> bool {
        if count == 0 || self.unknown().is_some() {
            return true;
        }
        let keys = named.map(|ids| ids.iter().filter_map(|id| self.key(id)).collect::<Vec<_>>());
        let count = keys.as_ref().map_or(count, Vec::len);
        // Programs that run on them now will end.
        let devices: Vec<Device> = self
            .devices
            .iter()
            .map(|device| Device { processes: None, ..device.clone() })
            .collect();
        let wants = Wants { count, among: keys, ..Wants::default() };
        best(&devices, &wants, &BTreeMap::new()).is_ok()
    }

    /// Whether so many devices would be free without the holds.
    pub(crate) fn is_held(&self, count: usize) -> bool {
        let wants = Wants { count, ..Wants::default() };
        best(&self.devices, &wants, &BTreeMap::new()).is_ok()
    }

    /// Takes the best devices that have room. The inner error says why none is free now.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(crate) fn take(&self, count: usize) -> Result<Result<Taken, Fault>> {
        if let Origin::Nobody(why) = &self.origin {
            return Ok(Err(none_here(why)));
        }
        if let Origin::Granted(grant) = &self.origin
            && grant.devices.len() < count
        {
            return Ok(Err(grant.too_few(count)));
        }
        let wants = Wants { count, ..Wants::default() };
        let chosen = try_acquire(&self.devices, &wants, &self.holds, &self.holder)?;
        Ok(chosen.map(|chosen| {
            let visible: Vec<&str> =
                chosen.iter().map(|(choice, _)| self.names[&choice.uuid].as_str()).collect();
            Taken { visible: visible.join(","), holds: named_holds(chosen) }
        }))
    }

    /// Takes exactly these devices. The inner error says why they cannot be had now.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(crate) fn take_named(&self, ids: &[DeviceId]) -> Result<Result<Taken, Fault>> {
        let keys: Option<Vec<String>> = ids.iter().map(|id| self.key(id)).collect();
        let Some(keys) = keys else {
            return Ok(Err(Fault::machine("a device that the plan names is not there")));
        };
        let stand_ins: Vec<Device>;
        let devices = match &self.origin {
            Origin::Nobody(_) => {
                stand_ins = ids
                    .iter()
                    .enumerate()
                    .map(|(place, id)| stand_in(place, id, &self.scope))
                    .collect();
                &stand_ins
            }
            _ => &self.devices,
        };
        let wants = Wants { count: ids.len(), among: Some(keys.clone()), ..Wants::default() };
        let chosen = try_acquire(devices, &wants, &self.holds, &self.holder)?;
        Ok(chosen.map(|chosen| {
            // In the order of the plan, and in its words where these are CUDA's too.
            let visible: Vec<String> = keys
                .iter()
                .zip(ids)
                .map(|(key, id)| match &self.origin {
                    Origin::Granted(_) => self.names[key].clone(),
                    _ => id.to_string(),
                })
                .collect();
            Taken { visible: visible.join(","), holds: named_holds(chosen) }
        }))
    }

    /// Gives back what was taken.
    ///
    /// # Errors
    /// When holds cannot be written.
    pub(crate) fn give_back(&self, taken: &Taken) -> Result<()> {
        taken.holds.iter().try_for_each(|(key, hold)| self.holds.give_back(key, hold))
    }
}

/// The holds of what was chosen, by their names.
fn named_holds(chosen: Vec<(Choice, Holder)>) -> Vec<(String, Holder)> {
    chosen.into_iter().map(|(choice, hold)| (choice.uuid, hold)).collect()
}

/// A device of which only the name is known.
fn stand_in(place: usize, id: &DeviceId, scope: &str) -> Device {
    let (index, parent) = match id {
        DeviceId::Index(index) => (*index, None),
        // It is a part of a GPU, but it is unknown of which one.
        DeviceId::Uuid(uuid) => (place as u32, uuid.starts_with("MIG-").then(String::new)),
    };
    Device { index, uuid: format!("{scope}{id}"), parent, ..Device::default() }
}
