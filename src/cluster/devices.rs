//! Which physical GPUs a trial's program may see.

use crate::base::fault::Fault;
use crate::base::host::Vars;
use crate::base::host::gpus::{Device, DeviceId};
use crate::base::words;
use crate::plan::GpuIds;

/// A device that this process was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The scheduler's name of it: the number on its node, or a UUID.
    pub(crate) id: DeviceId,
    /// What CUDA calls it here.
    pub(crate) cuda: String,
}

/// The devices that this process was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// In the order of the variable.
    pub(crate) devices: Vec<Granted>,
    /// The variable that says so.
    pub(crate) variable: &'static str,
    /// Its value.
    pub(crate) text: String,
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable by which a program that allocates devices itself (`submit --local`, an agent) tells a worker that
/// its trial may see exactly `CUDA_VISIBLE_DEVICES`.
pub(crate) const CHOSEN: &str = "HPCSWEEP_DEVICES";

/// Names the program that was started with devices of its own: a sweep within it shares these with no process outside.
pub(crate) const WITHIN: &str = "HPCSWEEP_WITHIN";

/// How CUDA counts devices, and how it does so by their places on the bus, as NVML and schedulers do. By default it puts
/// the fastest device first.
pub(crate) const ORDER: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

fn entries(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).collect()
}

/// The scheduler's grant on this node, and the variable that has it.
pub(crate) fn of_scheduler(vars: &Vars) -> Option<(Vec<&str>, &'static str)> {
    // SLURM_JOB_GPUS has the node's own ids even where a cgroup renumbers CUDA_VISIBLE_DEVICES.
    let names = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];
    names.into_iter().find_map(|name| Some((entries(vars.get(name)?), name)))
}

/// The devices this process was granted; `None` without a grant (then every id is taken as it is).
pub(crate) fn granted(vars: &Vars) -> Option<Grant> {
    let shown = vars.get(VISIBLE).map(|text| entries(text));
    let same = |text: &str| DeviceId::parse(text).map(|id| Granted { id, cuda: text.to_owned() });
    let as_shown = |shown: &[&str]| {
        // As CUDA reads it: the list ends at the first entry that cannot be a device.
        let mut devices: Vec<Granted> = Vec::new();
        for device in shown.iter().map_while(|entry| same(entry)) {
            // One that is named twice is one device all the same.
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let text = vars.get(VISIBLE).cloned().unwrap_or_default();
        Some(Grant { devices, variable: VISIBLE, text })
    };
    let Some((all, variable)) = of_scheduler(vars) else { return as_shown(&shown?) };
    let shown = shown.unwrap_or_default();
    let is_uuid = |entry: &&str| matches!(DeviceId::parse(entry), Some(DeviceId::Uuid(_)));
    let is_part = !shown.is_empty() && shown.len() < all.len();
    if is_part && (shown.iter().all(is_uuid) || shown.iter().all(|entry| all.contains(entry))) {
        // A program that was started with some of them.
        return as_shown(&shown);
    }
    // Where a cgroup hides the others of the node, CUDA counts those that are left from 0 on: Slurm's own
    // CUDA_VISIBLE_DEVICES has other numbers for the same devices, in the same order.
    let is_same = shown.len() == all.len();
    let one = |(place, id): (usize, &&str)| {
        let cuda = if is_same { shown[place] } else { id };
        let id = DeviceId::parse(id).or_else(|| DeviceId::parse(cuda))?;
        Some(Granted { id, cuda: cuda.to_owned() })
    };
    let text = vars.get(variable).cloned().unwrap_or_default();
    Some(Grant { devices: all.iter().enumerate().filter_map(one).collect(), variable, text })
}

/// The prefix of the names of holds on granted devices: processes that have the same grant agree on its devices, and
/// the same number may be another device elsewhere. Empty if nothing was granted.
pub(crate) fn scope(vars: &Vars) -> String {
    const NAMES: [&str; 6] =
        ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS", VISIBLE, "SLURM_JOB_ID", "PBS_JOBID", WITHIN];
    if granted(vars).is_none() {
        return String::new();
    }
    let said: Vec<Option<&String>> = NAMES.iter().map(|name| vars.get(*name)).collect();
    let hash = blake3::hash(format!("{said:?}").as_bytes()).to_hex();
    format!("grant-{}-", &hash[..16])
}

impl Grant {
    /// What CUDA finds of it on a host with these devices: its own list ends at the first number that is not there. What a
    /// scheduler grants is there, by whatever numbers; nothing is known where `known` is empty.
    pub(crate) fn on(mut self, known: &[Device]) -> Self {
        let is_there = |granted: &Granted| match granted.id {
            DeviceId::Index(n) => known.iter().any(|d| d.parent.is_none() && d.index == n),
            DeviceId::Uuid(_) => true,
        };
        if self.variable == VISIBLE && !known.is_empty() {
            let there = self.devices.iter().take_while(|granted| is_there(granted)).count();
            self.devices.truncate(there);
        }
        self
    }

    /// The place of a device that a plan names. A number is that of the node. If devices were granted by UUID, it is
    /// NVML's number, by which `known` lists the devices of this host, or the place in the list if NVML's number is
    /// unknown.
    pub(crate) fn find(&self, named: &DeviceId, known: &[Device]) -> Option<usize> {
        let direct = |granted: &Granted| {
            named.is_part_of(&granted.id)
                || DeviceId::parse(&granted.cuda).is_some_and(|cuda| match named {
                    DeviceId::Uuid(_) => named.is_part_of(&cuda),
                    DeviceId::Index(_) => false,
                })
        };
        if let Some(place) = self.devices.iter().position(|granted| granted.id == *named) {
            return Some(place);
        }
        let places = self.devices.iter().enumerate().filter(|(_, granted)| direct(granted));
        match places.map(|(place, _)| place).collect::<Vec<_>>()[..] {
            [] => {}
            [place] => return Some(place),
            // The beginning of several names none of them.
            _ => return None,
        }
        let told = |granted: &Granted| {
            let is_it = |device: &&Device| {
                let uuid = DeviceId::parse(&device.uuid);
                match DeviceId::parse(&granted.cuda) {
                    // A part has no number of its own.
                    Some(DeviceId::Index(n)) => device.parent.is_none() && device.index == n,
                    Some(cuda) => uuid.is_some_and(|uuid| cuda.is_part_of(&uuid)),
                    None => false,
                }
            };
            known.iter().find(is_it)
        };
        match named {
            DeviceId::Uuid(_) => self.devices.iter().position(|granted| {
                let uuid = told(granted).and_then(|device| DeviceId::parse(&device.uuid));
                uuid.is_some_and(|uuid| named.is_part_of(&uuid))
            }),
            DeviceId::Index(n) => {
                let is_uuid = |granted: &Granted| matches!(granted.id, DeviceId::Uuid(_));
                if !self.devices.iter().all(is_uuid) {
                    return None;
                }
                let number = |granted| {
                    told(granted).filter(|device| device.parent.is_none()).map(|d| d.index)
                };
                if self.devices.iter().any(|granted| number(granted).is_some()) {
                    return self.devices.iter().position(|granted| number(granted) == Some(*n));
                }
                usize::try_from(*n).ok().filter(|place| *place < self.devices.len())
            }
        }
    }

    /// The variable with its value.
    pub(crate) fn words(&self) -> String {
        format!("{}={}", self.variable, self.text)
    }

    /// The fault of a trial that needs more devices.
    pub(crate) fn too_few(&self, wanted: usize) -> Fault {
        let wanted = words::count(wanted as u64, "GPU");
        let has = match (self.devices.len(), self.text.trim().is_empty()) {
            (0, true) => format!("{} is empty", self.variable),
            (0, false) => format!("{} names none that is here", self.words()),
            (n, _) => format!("{} names {n}", self.words()),
        };
        let sentence = format!("a trial needs {wanted}, and {has}");
        Fault::machine(sentence).hint("ask the scheduler for more, or take another host")
    }
}

/// The value of `CUDA_VISIBLE_DEVICES` for a trial that names its devices; `None` leaves it alone. `known` asks NVML,
/// where numbers and UUIDs have to be compared.
///
/// # Errors
/// When a named device was not granted, with the trial's number.
pub(crate) fn visible(
    trial: u64,
    named: Option<&[DeviceId]>,
    how: GpuIds,
    vars: &Vars,
    known: impl FnOnce() -> Vec<Device>,
) -> Result<Option<String>, Fault> {
    let Some(named) = named else { return Ok(None) };
    if let Some(chosen) = vars.get(CHOSEN) {
        return Ok(Some(chosen.clone()));
    }
    if named.is_empty() {
        return Ok(Some(String::new()));
    }
    let join = |ids: &[String]| Ok(Some(ids.join(",")));
    let Some(grant) = granted(vars) else {
        return join(&named.iter().map(ToString::to_string).collect::<Vec<_>>());
    };
    let cuda = |place: usize| grant.devices[place].cuda.clone();
    if how == GpuIds::Count {
        if grant.devices.len() < named.len() {
            let sentence = format!(
                "trial {trial} asks for {}, but {} granted here",
                words::count(named.len() as u64, "device"),
                match grant.devices.len() {
                    0 => "none was".to_owned(),
                    1 => "only 1 was".to_owned(),
                    n => format!("only {n} were"),
                }
            );
            return Err(Fault::request(sentence).at(grant.words()));
        }
        return join(&(0..named.len()).map(cuda).collect::<Vec<_>>());
    }
    let direct = named.iter().all(|id| grant.devices.iter().any(|granted| granted.id == *id));
    let known = if direct { Vec::new() } else { known() };
    let places: Vec<Option<usize>> = named.iter().map(|id| grant.find(id, &known)).collect();
    let missing = named.iter().zip(&places).filter(|(_, place)| place.is_none());
    let missing: Vec<String> = missing.map(|(id, _)| id.to_string()).collect();
    if missing.is_empty() {
        return join(&places.into_iter().flatten().map(cuda).collect::<Vec<_>>());
    }
    let sentence = format!(
        "trial {trial} names device {} in `gpu_ids_abs`, which {} not granted here",
        missing.join(" and "),
        if missing.len() == 1 { "was" } else { "were" }
    );
    Err(Fault::request(sentence).at(grant.words()).hint(
        "a scheduler chooses the devices itself: with `gpu_ids = \"count\"` under [schedule] only their number counts",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(named: &[u32], how: GpuIds, vars: &[(&str, &str)], expected: Result<&str, &str>) {
        let named: Vec<DeviceId> = named.iter().copied().map(DeviceId::Index).collect();
        check_ids(&named, how, vars, &[], expected);
    }

    fn check_ids(
        named: &[DeviceId],
        how: GpuIds,
        vars: &[(&str, &str)],
        known: &[Device],
        expected: Result<&str, &str>,
    ) {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let got = visible(7, Some(named), how, &vars, || known.to_vec());
        let got = got.map(Option::unwrap_or_default);
        let got = got.map_err(|fault| fault.sentence);
        assert_eq!(got.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn named_devices_are_intersected_with_what_was_granted() {
        let allocation = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3")];
        // A cgroup shows CUDA the four that were granted, from 0 on.
        check(&[5], GpuIds::Exact, &allocation, Ok("1"));
        let open = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "4,5,6,7")];
        check(&[7, 5], GpuIds::Exact, &open, Ok("7,5"));
        // A task's share of the job's devices does not show their order.
        let bound = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "0")];
        check(&[5], GpuIds::Exact, &bound, Ok("5"));
        let refusal = "trial 7 names device 2 in `gpu_ids_abs`, which was not granted here";
        check(&[2], GpuIds::Exact, &allocation, Err(refusal));
        check(&[], GpuIds::Exact, &allocation, Ok(""));
        check(&[2, 3], GpuIds::Exact, &[], Ok("2,3"));
        check(&[2, 3], GpuIds::Count, &allocation, Ok("0,1"));
        // `submit --local` has chosen already.
        check(
            &[5],
            GpuIds::Exact,
            &[("HPCSWEEP_DEVICES", "1"), ("SLURM_JOB_GPUS", "4,5")],
            Ok("1"),
        );
        check(
            &[0, 1],
            GpuIds::Count,
            &[("CUDA_VISIBLE_DEVICES", "3")],
            Err("trial 7 asks for 2 devices, but only 1 was granted here"),
        );
        check(
            &[0],
            GpuIds::Count,
            &[("CUDA_VISIBLE_DEVICES", "")],
            Err("trial 7 asks for 1 device, but none was granted here"),
        );
    }

    #[test]
    fn numbers_and_uuids_name_the_same_devices() {
        let ids = |names: &[&str]| -> Vec<DeviceId> {
            names.iter().map(|name| DeviceId::parse(name).unwrap()).collect()
        };
        let device = |index, uuid: &str, parent: Option<&str>| Device {
            index,
            uuid: uuid.into(),
            parent: parent.map(str::to_owned),
            ..Device::default()
        };
        let known =
            [device(0, "GPU-aa", None), device(1, "GPU-bb", None), device(2, "GPU-cc", None)];
        let check = |named: &[&str], vars: &[(&str, &str)], known: &[Device], expected| {
            check_ids(&ids(named), GpuIds::Exact, vars, known, expected);
        };
        let by_uuid = [("CUDA_VISIBLE_DEVICES", "GPU-cc,GPU-bb")];
        check(&["GPU-bb"], &by_uuid, &[], Ok("GPU-bb"));
        check(&["GPU-b"], &by_uuid, &[], Ok("GPU-bb"));
        // The beginning of two is not a name, and a device that is listed twice is one.
        let alike = [("CUDA_VISIBLE_DEVICES", "GPU-bb,GPU-bc")];
        let refusal = "trial 7 names device GPU-b in `gpu_ids_abs`, which was not granted here";
        check(&["GPU-b"], &alike, &[], Err(refusal));
        let twice = [("CUDA_VISIBLE_DEVICES", "3,3,GPU-bb,3")];
        check_ids(&ids(&["8", "9"]), GpuIds::Count, &twice, &[], Ok("3,GPU-bb"));
        // A number is the host's where NVML knows it, else the place in what was inherited.
        check(&["1"], &by_uuid, &known, Ok("GPU-bb"));
        check(&["1", "0"], &by_uuid, &[], Ok("GPU-bb,GPU-cc"));
        let refusal = "trial 7 names device 0 in `gpu_ids_abs`, which was not granted here";
        check(&["0"], &by_uuid, &known, Err(refusal));
        // A UUID among numbers takes NVML.
        let by_number = [("CUDA_VISIBLE_DEVICES", "2,1")];
        check(&["GPU-cc", "1"], &by_number, &known, Ok("2,1"));
        let refusal = "trial 7 names device GPU-cc in `gpu_ids_abs`, which was not granted here";
        check(&["GPU-cc"], &by_number, &[], Err(refusal));
        // MIG devices have no numbers of their own: the place counts.
        let parts = [device(0, "MIG-1", Some("GPU-aa")), device(0, "MIG-2", Some("GPU-aa"))];
        let mig = [("SLURM_JOB_GPUS", "0,1"), ("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")];
        check(&["MIG-2"], &mig, &parts, Ok("MIG-2"));
        check(&["1"], &mig[1..], &parts, Ok("MIG-2"));
        check(&["1"], &mig, &parts, Ok("MIG-2"));
        // A program within a job that was started with some of its devices has no others.
        let part = [("SLURM_JOB_GPUS", "4,5,6,7"), ("CUDA_VISIBLE_DEVICES", "6")];
        check(&["6"], &part, &[], Ok("6"));
        let refusal = "trial 7 names device 5 in `gpu_ids_abs`, which was not granted here";
        check(&["5"], &part, &[], Err(refusal));
        let part = [("SLURM_JOB_GPUS", "4,5"), ("CUDA_VISIBLE_DEVICES", "GPU-bb")];
        check_ids(&ids(&["9"]), GpuIds::Count, &part, &[], Ok("GPU-bb"));
    }

    #[test]
    fn processes_with_the_same_grant_have_the_same_scope() {
        let of = |vars: &[(&str, &str)]| {
            scope(&vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        let one = [("CUDA_VISIBLE_DEVICES", "0"), ("PBS_JOBID", "7"), ("HOME", "/a")];
        assert_eq!(of(&one), of(&one[..2]));
        assert_ne!(of(&one), of(&one[..1]));
        assert_ne!(of(&one[..1]), of(&[one[0], (WITHIN, "x")]));
        assert_eq!(of(&[("PBS_JOBID", "7")]), "");
    }
}
