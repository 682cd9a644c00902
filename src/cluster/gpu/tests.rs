//! Choices among sample situations, and several callers at once.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use crate::base::host::Vars;
use crate::base::host::gpus::DeviceId;
use crate::base::host::gpus::holds::{Holder, Holds};

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
    let held =
        |uuid: &&str| ((*uuid).to_owned(), Held { by: vec!["process 7".into()], is_full: true });
    best(devices, wants, &reserved.iter().map(held).collect())
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
    // A device that does not report its utilisation comes between the idle and the busy.
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
    // An exclusive device that no program uses is as good as any.
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
    // The granted devices, and those of them that are visible.
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

fn world(vars: &[(&str, &str)]) -> (tempfile::TempDir, Vars) {
    let tmp = tempfile::tempdir().unwrap();
    let mut vars: Vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    vars.insert("TMPDIR".to_owned(), tmp.path().display().to_string());
    (tmp, vars)
}

fn ids(names: &[&str]) -> Vec<DeviceId> {
    names.iter().map(|name| DeviceId::parse(name).unwrap()).collect()
}

#[test]
fn a_pool_hands_out_the_device_with_fewest_trials_in_an_order_that_is_always_the_same() {
    let (_tmp, vars) = world(&[("CUDA_VISIBLE_DEVICES", "4,5,6")]);
    let pool = Pool::find(2, &vars).unwrap();
    let take = |count| pool.take(count).unwrap().map_err(|fault| fault.sentence);
    let visible = |count| take(count).unwrap().visible;
    assert_eq!((pool.usable(), pool.words().as_str()), (3, "4, 5, 6 (CUDA_VISIBLE_DEVICES=4,5,6)"));
    let first = take(1).unwrap();
    assert_eq!((first.visible.as_str(), visible(1), visible(1)), ("4", "5".into(), "6".into()));
    assert_eq!((visible(2), visible(1)), ("4,5".into(), "6".into()));
    assert_eq!(take(1).unwrap_err(), "no GPU can be had, and 1 GPU is wanted");
    pool.give_back(&first).unwrap();
    assert_eq!(visible(1), "4");
    assert_eq!(
        take(4).unwrap_err(),
        "a trial needs 4 GPUs, and CUDA_VISIBLE_DEVICES=4,5,6 names 3"
    );
}

#[test]
fn a_plan_names_devices_of_a_pool_by_number_or_uuid() {
    let named = |pool: &Pool, names: &[&str]| {
        let taken = pool.take_named(&ids(names)).unwrap();
        taken.map(|taken| taken.visible).map_err(|fault| fault.sentence)
    };
    let (_tmp, vars) = world(&[("CUDA_VISIBLE_DEVICES", "GPU-aa,MIG-bb,MIG-cc")]);
    let pool = Pool::find(1, &vars).unwrap();
    assert_eq!(named(&pool, &["MIG-b"]).unwrap(), "MIG-bb");
    assert_eq!(named(&pool, &["0"]).unwrap(), "GPU-aa");
    assert!(pool.has(&ids(&["2"])[0]) && !pool.has(&ids(&["3"])[0]));
    assert!(named(&pool, &["GPU-aa"]).is_err(), "held as number 0");
    // Another that has the same list, and one within a trial that was given a part of it.
    assert!(named(&Pool::find(1, &vars).unwrap(), &["1"]).is_err());
    let mut within = vars.clone();
    within.insert("CUDA_VISIBLE_DEVICES".into(), "MIG-bb".into());
    within.insert(crate::cluster::devices::WITHIN.into(), "3-abc".into());
    assert_eq!(named(&Pool::find(1, &within).unwrap(), &["0"]).unwrap(), "MIG-bb");

    let (tmp, mut vars) = world(&[]);
    let file = tmp.path().join("nvml.json");
    let machine = json!({ "devices": divided() });
    std::fs::write(&file, machine.to_string()).unwrap();
    vars.insert("HPCSWEEP_NVML_FILE".into(), file.display().to_string());
    let pool = Pool::find(2, &vars).unwrap();
    assert_eq!((pool.usable(), pool.words().as_str()), (3, "MIG-1c, MIG-2c, 1"));
    assert_eq!(named(&pool, &["1"]).unwrap(), "1");
    assert_eq!(named(&pool, &["GPU-1"]).unwrap(), "GPU-1");
    assert!(named(&pool, &["1"]).is_err(), "two have it");
    assert_eq!(named(&pool, &["MIG-1"]).unwrap(), "MIG-1");
    assert!(!pool.has(&ids(&["0"])[0]), "it is divided");
    // Parts that are free, and the one that has a place left.
    let rest: Vec<String> = (0..3).map(|_| pool.take(1).unwrap().unwrap().visible).collect();
    assert_eq!(rest, ["MIG-2c", "MIG-2c", "MIG-1c"]);
    assert!(pool.take(1).unwrap().is_err());

    let (_tmp, mut vars) = world(&[]);
    let missing = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(missing.path(), r#"{"missing": "library"}"#).unwrap();
    vars.insert("HPCSWEEP_NVML_FILE".into(), missing.path().display().to_string());
    // If the devices are unknown, those that a plan names are passed on, and still counted.
    let pool = Pool::find(1, &vars).unwrap();
    assert_eq!(named(&pool, &["7", "GPU-x"]).unwrap(), "7,GPU-x");
    assert!(named(&pool, &["7"]).is_err() && pool.take(1).unwrap().is_err());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// Several processes of one share, and one that wants devices alone, take and give back at random.
    #[test]
    fn a_device_never_has_more_trials_than_may_share_it(
        devices in 1_usize..4,
        share in 1_u32..4,
        steps in proptest::collection::vec((0_usize..3, 0_usize..4, proptest::bool::ANY), 1..60),
    ) {
        let list = (0..devices).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let (_tmp, vars) = world(&[("CUDA_VISIBLE_DEVICES", &list)]);
        let play = || -> Vec<String> {
            let pools: Vec<Pool> = [share, share, 1].map(|s| Pool::find(s, &vars).unwrap()).into();
            let mut all: Vec<(usize, Taken)> = Vec::new();
            let mut log = Vec::new();
            for (who, count, gives) in &steps {
                let own = all.iter().position(|(by, _)| by == who).filter(|_| *gives);
                if let Some(place) = own {
                    let (by, taken) = all.remove(place);
                    pools[by].give_back(&taken).unwrap();
                    continue;
                }
                let before = use_of(&all, share);
                let room = |n: &usize| {
                    let mine = if *who == 2 { 1.0 } else { 1.0 / f64::from(share) };
                    before.get(&n.to_string()).copied().unwrap_or(0.0) + mine <= 1.0 + 1e-9
                };
                let free = (0..devices).filter(room).count();
                let taken = pools[*who].take(*count).unwrap();
                // Devices that can be allocated are allocated, and no others.
                assert_eq!(taken.is_ok(), *count <= free, "{before:?} {who} {count}");
                log.push(taken.as_ref().map(|t| t.visible.clone()).unwrap_or_default());
                all.extend(taken.ok().map(|taken| (*who, taken)));
                assert!(use_of(&all, share).values().all(|used| *used <= 1.0 + 1e-9));
            }
            for (by, taken) in &all {
                pools[*by].give_back(taken).unwrap();
            }
            // Nothing is left behind.
            let whole = pools[2].take(devices).unwrap().unwrap();
            pools[2].give_back(&whole).unwrap();
            log
        };
        assert_eq!(play(), play(), "the same order each time");
    }
}

/// How much of each device is in use.
fn use_of(all: &[(usize, Taken)], share: u32) -> BTreeMap<String, f64> {
    let mut used = BTreeMap::new();
    for (by, taken) in all {
        for id in taken.visible.split(',').filter(|id| !id.is_empty()) {
            let part = if *by == 2 { 1.0 } else { 1.0 / f64::from(share) };
            *used.entry(id.to_owned()).or_insert(0.0) += part;
        }
    }
    used
}

#[test]
fn threads_that_take_and_give_back_at_once_never_share_beyond_the_share() {
    let (_tmp, vars) = world(&[("CUDA_VISIBLE_DEVICES", "0,1")]);
    let used: [AtomicU32; 2] = Default::default();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let pool = Pool::find(2, &vars).unwrap();
                for _ in 0..60 {
                    let Ok(taken) = pool.take(1).unwrap() else { continue };
                    let place: usize = taken.visible.parse().unwrap();
                    assert!(used[place].fetch_add(1, Ordering::SeqCst) < 2);
                    used[place].fetch_sub(1, Ordering::SeqCst);
                    pool.give_back(&taken).unwrap();
                }
            });
        }
    });
    let left = Pool::find(1, &vars).unwrap().take(2).unwrap().err();
    assert_eq!(left.map(|fault| fault.to_string()), None, "nothing is left behind");
}
