//! Choices among sample situations, and several callers at once.

use super::*;
use crate::host::Vars;
use crate::host::gpus::holds::{Holder, Holds};

const GIB: u64 = 1 << 30;

fn gpu(index: u32, processes: usize, utilization: u32, used: u64) -> Device {
    Device {
        index,
        uuid: format!("GPU-{index}a"),
        name: "A100".into(),
        memory_total: Some(40 * GIB),
        memory_used: Some(used),
        utilization: Some(utilization),
        processes: Some((0..processes).map(|n| 100 + n as u32).collect()),
        compute_mode: Some(ComputeMode::Shared),
        ecc_errors: Some(0),
        ..Device::default()
    }
}

/// One GPU in two parts, and one whole GPU in use.
fn divided() -> Vec<Device> {
    let part = |n: u32, used: u64| Device {
        index: 0,
        uuid: format!("MIG-{n}c"),
        name: "A100 MIG 3g.20gb".into(),
        parent: Some("GPU-0a".into()),
        memory_total: Some(20 * GIB),
        memory_used: Some(used),
        processes: Some(vec![]),
        ..Device::default()
    };
    let parent = Device { mig_enabled: true, ..gpu(0, 0, 0, 0) };
    vec![parent, part(1, GIB), part(2, 0), gpu(1, 1, 50, GIB)]
}

fn chosen(devices: &[Device], wants: &Wants) -> Result<Vec<String>, String> {
    chosen_beside(devices, wants, &[])
}

fn chosen_beside(
    devices: &[Device],
    wants: &Wants,
    reserved: &[&str],
) -> Result<Vec<String>, String> {
    let reserved = reserved.iter().map(|uuid| ((*uuid).to_owned(), "process 7".into())).collect();
    best(devices, wants, &reserved)
        .map(|all| all.into_iter().map(|choice| choice.uuid).collect())
        .map_err(|fault| {
            assert_eq!(fault.kind.exit_code(), 4);
            fault.to_string()
        })
}

fn one() -> Wants {
    Wants::default()
}

fn several(count: usize) -> Wants {
    Wants { count, ..one() }
}

#[test]
fn programs_count_before_utilisation_and_that_before_memory() {
    let check = |devices: &[Device], expected: &[&str]| {
        assert_eq!(chosen(devices, &several(devices.len())).unwrap(), expected);
    };
    // One is empty.
    check(&[gpu(0, 1, 90, 30 * GIB), gpu(1, 0, 0, 0)], &["GPU-1a", "GPU-0a"]);
    // Busy with little memory, against idle with memory that was left cached.
    check(&[gpu(0, 1, 99, GIB / 4), gpu(1, 0, 0, 4 * GIB)], &["GPU-1a", "GPU-0a"]);
    check(&[gpu(0, 0, 80, 0), gpu(1, 0, 10, 9 * GIB)], &["GPU-1a", "GPU-0a"]);
    check(&[gpu(0, 0, 0, 5 * GIB), gpu(1, 0, 0, 4 * GIB)], &["GPU-1a", "GPU-0a"]);
    // All the same: by index, however they are listed.
    check(&[gpu(2, 0, 0, 0), gpu(0, 0, 0, 0), gpu(1, 0, 0, 0)], &["GPU-0a", "GPU-1a", "GPU-2a"]);
    // It is the share of memory that counts.
    let small = Device { memory_total: Some(8 * GIB), ..gpu(0, 0, 0, 2 * GIB) };
    check(&[small, gpu(1, 0, 0, 4 * GIB)], &["GPU-1a", "GPU-0a"]);
    // One that does not tell stands between the idle and the busy.
    let silent = Device { processes: None, utilization: None, ..gpu(0, 0, 0, 0) };
    check(&[gpu(2, 1, 0, 0), silent, gpu(1, 0, 0, 0)], &["GPU-1a", "GPU-0a", "GPU-2a"]);
}

#[test]
fn a_divided_gpu_is_its_parts() {
    assert_eq!(chosen(&divided(), &one()).unwrap(), ["MIG-2c"]);
    assert_eq!(chosen_beside(&divided(), &one(), &["MIG-2c"]).unwrap(), ["MIG-1c"]);
    assert_eq!(chosen_beside(&divided(), &one(), &["MIG-2c", "MIG-1c"]).unwrap(), ["GPU-1a"]);
    assert_eq!(
        chosen(&divided(), &several(2)).unwrap_err(),
        "only 1 GPU can be had, and 2 GPUs are wanted
  GPU 0: divided into MIG devices
  GPU 0, MIG-1c: CUDA gives a program one MIG device
  GPU 0, MIG-2c: CUDA gives a program one MIG device"
    );
    let chosen = best(&divided()[1..], &one(), &BTreeMap::new()).unwrap();
    assert_eq!(visible_value(&chosen, Naming::Index), "MIG-2c");
}

#[test]
fn what_keeps_each_device_from_being_taken_is_said() {
    assert_eq!(chosen(&[], &one()).unwrap_err(), "there is no GPU on this host");
    let all = [gpu(0, 0, 0, 0), gpu(1, 0, 0, 0)];
    assert_eq!(
        chosen_beside(&all, &one(), &["GPU-0a", "GPU-1a"]).unwrap_err(),
        "no GPU can be had, and 1 GPU is wanted
  GPU 0: reserved (process 7)
  GPU 1: reserved (process 7)"
    );
    assert_eq!(
        chosen(&all, &several(3)).unwrap_err(),
        "only 2 GPUs can be had, and 3 GPUs are wanted"
    );
    let mode = |mode, device: Device| Device { compute_mode: Some(mode), ..device };
    let devices = [
        gpu(0, 2, 60, 0),
        gpu(1, 0, 60, 0),
        gpu(2, 0, 0, 39 * GIB),
        mode(ComputeMode::Prohibited, gpu(3, 0, 0, 0)),
        mode(ComputeMode::ExclusiveProcess, gpu(4, 1, 0, 0)),
        Device { trouble: Some("fell off the bus".into()), ..gpu(5, 0, 0, 0) },
        Device { memory_total: None, ..gpu(6, 0, 0, 0) },
    ];
    let wants =
        Wants { idle: true, max_utilization: Some(50), min_free_memory: Some(2 * GIB), ..one() };
    assert_eq!(
        chosen(&devices, &wants).unwrap_err(),
        "no GPU can be had, and 1 GPU is wanted
  GPU 0: in use by 2 programs
  GPU 1: 60 % utilised
  GPU 2: 1024 MiB free
  GPU 3: its compute mode is prohibited
  GPU 4: in exclusive use by another process
  GPU 5: fell off the bus
  GPU 6: does not tell its free memory"
    );
    // An exclusive device that nobody uses is as good as any.
    let free = mode(ComputeMode::ExclusiveProcess, gpu(4, 0, 0, 0));
    assert_eq!(chosen(&[free], &wants).unwrap(), ["GPU-4a"]);
}

#[test]
fn only_what_is_visible_and_granted_may_be_taken() {
    let four: Vec<Device> = (0..4).map(|n| gpu(n, 0, 0, 0)).collect();
    let check = |devices: &[Device], vars: &[(&str, &str)], expected: Option<&[&str]>| {
        let vars: Vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let got = allowed(devices, &vars).unwrap();
        let got: Option<Vec<&str>> =
            got.as_ref().map(|all| all.iter().map(String::as_str).collect());
        assert_eq!(got.as_deref(), expected, "{vars:?}");
    };
    let visible = "CUDA_VISIBLE_DEVICES";
    check(&four, &[], None);
    check(&four, &[(visible, "2,1")], Some(&["GPU-2a", "GPU-1a"]));
    check(&four, &[(visible, "GPU-3")], Some(&["GPU-3a"]));
    check(&four, &[(visible, "")], Some(&[]));
    check(&four, &[(visible, "NoDevFiles")], Some(&[]));
    // CUDA stops at the first entry that it does not know.
    check(&four, &[(visible, "1,9,2")], Some(&["GPU-1a"]));
    check(&four, &[(visible, "GPU-")], Some(&[]));
    // What was granted, and of that what is visible.
    check(&four, &[("SLURM_JOB_GPUS", "0,3")], Some(&["GPU-0a", "GPU-3a"]));
    check(&four, &[("SLURM_JOB_GPUS", "0,3"), (visible, "3,1")], Some(&["GPU-3a"]));
    check(&four, &[("SLURM_JOB_GPUS", "0,3"), ("SLURM_STEP_GPUS", "3")], Some(&["GPU-3a"]));
    // Behind a cgroup two are seen, and counted from 0; the scheduler has the node's numbers.
    let two = &four[..2];
    check(two, &[("SLURM_JOB_GPUS", "6,7"), (visible, "1")], Some(&["GPU-1a"]));
    check(two, &[("SLURM_JOB_GPUS", "6,7")], Some(&["GPU-0a", "GPU-1a"]));
    // Parts of a GPU by their own names or by that of the GPU.
    check(&divided(), &[(visible, "MIG-1c")], Some(&["MIG-1c"]));
    check(&divided(), &[(visible, "0")], Some(&["MIG-1c", "MIG-2c"]));
    check(&divided(), &[(visible, "GPU-0a,1")], Some(&["MIG-1c", "MIG-2c", "GPU-1a"]));
    check(&divided(), &[("SLURM_JOB_GPUS", "1"), (visible, "MIG-2c")], Some(&["MIG-2c"]));
    let vars = Vars::from([("SLURM_JOB_GPUS".to_owned(), "1".to_owned())]);
    assert_eq!(
        allowed(&divided(), &vars).unwrap_err().sentence,
        "`SLURM_JOB_GPUS=1` does not say which MIG devices were granted"
    );
}

#[test]
fn a_device_outside_what_is_allowed_is_never_chosen() {
    let devices = [gpu(0, 0, 0, 0), gpu(1, 3, 100, 39 * GIB)];
    let only_the_busy = Wants { among: Some(vec!["GPU-1a".into()]), ..one() };
    assert_eq!(chosen(&devices, &only_the_busy).unwrap(), ["GPU-1a"]);
    assert_eq!(
        chosen(&devices, &Wants { among: Some(vec![]), ..one() }).unwrap_err(),
        "none of the 2 GPUs here may be used by this process
hint: see CUDA_VISIBLE_DEVICES and what the scheduler has granted"
    );
}

#[test]
fn callers_at_the_same_moment_get_different_devices() {
    let tmp = tempfile::tempdir().unwrap();
    let vars = Vars::from([("TMPDIR".to_owned(), tmp.path().display().to_string())]);
    let holds = Holds::open(&vars).unwrap();
    let devices: Vec<Device> = (0..8).map(|n| gpu(n, 0, 0, 0)).collect();
    let hold = |n: u32| Holder::seconds(3600.0 + f64::from(n));
    let mut got: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (devices, holds) = (&devices, &holds);
                scope.spawn(move || acquire(devices, &several(2), holds, &hold(n)).unwrap())
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).map(|c| c.uuid).collect()
    });
    got.sort();
    let all: Vec<String> = devices.iter().map(|d| d.uuid.clone()).collect();
    assert_eq!(got, all);
    let late = acquire(&devices, &one(), &holds, &hold(9)).unwrap_err().to_string();
    assert!(
        late.starts_with("no GPU can be had, and 1 GPU is wanted\n  GPU 0: reserved ("),
        "{late}"
    );
}
