//! `hpcsweep gpu`, the samples of a running trial, and the doctor's findings about GPUs, with a file in place
//! of NVML. Long because all of it needs the same made-up devices.

use std::collections::BTreeMap;

use crate::support::gpus::{idle, with};
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

/// Two GPUs: the first busy with little memory, the second idle with memory left cached.
const TWO: &str = r#"{
  "driver": "550.54.15", "cuda": "12.4",
  "devices": [
    { "index": 0, "uuid": "GPU-aaaa", "name": "NVIDIA A100", "memory_total": 42949672960,
      "memory_used": 314572800, "utilization": 99, "processes": [4711], "compute_mode": "shared",
      "ecc_errors": 0 },
    { "index": 1, "uuid": "GPU-bbbb", "name": "NVIDIA A100", "memory_total": 42949672960,
      "memory_used": 4194304000, "utilization": 0, "processes": [], "compute_mode": "shared",
      "ecc_errors": 0 }
  ]
}"#;

/// One GPU in two parts.
const DIVIDED: &str = r#"{
  "devices": [
    { "index": 0, "uuid": "GPU-aaaa", "name": "NVIDIA A100", "mig_enabled": true,
      "memory_total": 42949672960, "memory_used": 1000000000, "processes": [] },
    { "index": 0, "uuid": "MIG-1111", "name": "NVIDIA A100 MIG 3g.20gb", "parent": "GPU-aaaa",
      "memory_total": 20937965568, "memory_used": 900000000, "processes": [4711] },
    { "index": 0, "uuid": "MIG-2222", "name": "NVIDIA A100 MIG 3g.20gb", "parent": "GPU-aaaa",
      "memory_total": 20937965568, "memory_used": 39845888, "processes": [] }
  ]
}"#;

#[test]
fn the_list_shows_every_device_and_who_holds_it() {
    let mut world = with(TWO);
    let table = "\
gpu  name         MiB used    MiB  util %  programs  allowed  reserved  uuid
  0  NVIDIA A100       300  40960      99         1  yes                GPU-aaaa
  1  NVIDIA A100      4000  40960       0         0  yes                GPU-bbbb
";
    assert_eq!(world.run(&["gpu", "list"]).whole(), format!("{table}exit code 0\n"));
    let me = std::process::id().to_string();
    world.run(&["gpu", "best", "--while", &me]).ok();
    world.set("CUDA_VISIBLE_DEVICES", "1");
    let ran = world.run(&["gpu", "list", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(ran.ok()).unwrap();
    let column = |name: &str| -> Vec<String> { rows.iter().map(|r| r[name].to_string()).collect() };
    assert_eq!(column("allowed"), ["false", "true"]);
    assert_eq!(column("reserved"), ["null".to_owned(), format!("\"process {me}\"")]);
    assert_eq!(column("processes"), ["[4711]", "[]"]);
}

#[test]
fn the_best_gpu_is_the_idle_one_whatever_memory_was_left_cached() {
    let world = with(TWO);
    assert_eq!(world.run(&["gpu", "best"]).whole(), "GPU-bbbb\nexit code 0\n");
    // That one is held now; the other is busy, and taken with a word.
    let second = world.run(&["gpu", "best", "--index"]);
    assert_eq!(second.whole(), "0\nGPU 0 is the best, though in use by 1 program\nexit code 0\n");
    let third = world.run(&["gpu", "best"]);
    assert_eq!((third.code, third.out.as_str()), (4, ""));
    assert!(
        third.err.starts_with("error: no GPU can be had, and 1 GPU is wanted\n  GPU 0: reserved ("),
        "{}",
        third.err
    );
}

#[test]
fn a_sweep_that_waits_for_gpus_says_once_until_when_they_are_reserved() {
    let world = with(TWO);
    world.run(&["gpu", "best", "--count", "2", "--for", "3", "-q"]).ok();
    let ran = world.local(&shell("true", "[resources]\ngpus_per_rank = 1\n"), &[]);
    ran.ok();
    let waits = ran.err.lines().skip_while(|line| !line.starts_with("waiting for GPUs"));
    let waits: Vec<_> = waits.take_while(|line| !line.starts_with("[1/1]")).collect();
    assert_eq!(waits.len(), 3, "{}", ran.err);
    assert!(waits[1..].iter().all(|line| line.contains(": reserved (until 20")), "{}", ran.err);
}

#[test]
fn what_is_asked_of_a_gpu_is_kept() {
    let world = with(TWO);
    let two = ["gpu", "best", "--for", "0", "--count", "2", "-q"];
    assert_eq!(world.run(&two).whole(), "GPU-bbbb,GPU-aaaa\nexit code 0\n");
    let free = world.run(&["gpu", "best", "--for", "0", "--min-free-memory", "39G", "-q"]);
    assert_eq!(free.whole(), "GPU-aaaa\nexit code 0\n");
    let ran = world.run(&[&two[..], &["--max-utilization", "50"]].concat());
    assert_eq!(
        ran.whole(),
        "\
error: only 1 GPU can be had, and 2 GPUs are wanted
  GPU 0: 99 % utilised
exit code 4
"
    );
    let json = world.run(&["gpu", "best", "--for", "0", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.ok()).unwrap();
    assert_eq!(
        json,
        serde_json::json!({ "cuda_visible_devices": "GPU-bbbb", "devices": [
            { "index": 1, "uuid": "GPU-bbbb", "name": "NVIDIA A100", "mig": false, "processes": 0 }
        ] })
    );
    // Nothing of this held anything.
    assert_eq!(world.files("tmp"), Vec::<String>::new());
    for wrong in [&["--count", "0"][..], &["--min-free-memory", "5"], &["--for", "1", "--", "true"]]
    {
        assert_eq!(world.run(&[&["gpu", "best"][..], wrong].concat()).code, 2, "{wrong:?}");
    }
}

#[test]
fn only_visible_and_granted_gpus_are_taken() {
    let mut world = with(TWO);
    let best = ["gpu", "best", "-q", "--for", "0"];
    for visible in ["0", "GPU-aaaa", "GPU-a"] {
        world.set("CUDA_VISIBLE_DEVICES", visible);
        assert_eq!(world.run(&best).whole(), "GPU-aaaa\nexit code 0\n");
    }
    world.set("CUDA_VISIBLE_DEVICES", "0,1");
    world.set("SLURM_JOB_GPUS", "0");
    assert_eq!(world.run(&best).whole(), "GPU-aaaa\nexit code 0\n");
    world.set("CUDA_VISIBLE_DEVICES", "");
    assert_eq!(
        world.run(&best).whole(),
        "\
error: none of the 2 GPUs here may be used by this process
hint: see CUDA_VISIBLE_DEVICES and what the scheduler has granted
exit code 4
"
    );
}

#[test]
fn of_a_divided_gpu_a_part_is_taken() {
    let world = with(DIVIDED);
    assert_eq!(world.run(&["gpu", "best"]).whole(), "MIG-2222\nexit code 0\n");
    assert_eq!(world.run(&["gpu", "best", "-q"]).whole(), "MIG-1111\nexit code 0\n");
}

#[test]
fn a_host_without_a_gpu_says_so_in_one_sentence() {
    for (file, says) in [
        (r#"{"missing": "library"}"#, ": NVIDIA's NVML library is not installed\n"),
        (r#"{"missing": "driver"}"#, ": NVIDIA's driver is not loaded\n"),
        (
            r#"{"missing": "mismatch"}"#,
            ": NVIDIA's driver and its libraries are of different versions\n\
             hint: load the new driver: reboot this host\n",
        ),
        (r#"{"devices": []}"#, "\n"),
    ] {
        let world = with(file);
        for args in [&["gpu", "best"][..], &["gpu", "best", "--", "true"], &["gpu", "list"]] {
            let expected = format!("error: there is no GPU on this host{says}exit code 4\n");
            assert_eq!(world.run(args).whole(), expected, "{args:?}");
        }
    }
}

#[test]
fn programs_that_start_together_get_different_gpus() {
    let world = idle(4);
    let started: Vec<_> = (0..5).map(|_| world.start(&["gpu", "best"])).collect();
    let ended: Vec<_> = started.into_iter().map(|s| s.end(&world)).collect();
    let mut got: Vec<&str> =
        ended.iter().filter(|ran| ran.code == 0).map(|ran| ran.out.trim_end()).collect();
    got.sort_unstable();
    assert_eq!(got, ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]);
    assert_eq!(ended.iter().filter(|ran| ran.code == 4).count(), 1);
}

#[test]
fn a_command_holds_its_gpu_until_it_ends() {
    let world = idle(1);
    let command = "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER >seen; until [ -e go ]; do sleep 0.01; done; exit 7";
    let holder = world.start(&["gpu", "best", "--index", "--", "sh", "-c", command]);
    wait_until("the command runs", || world.exists("seen") && !world.read("seen").is_empty());
    assert_eq!(world.read("seen"), "0 PCI_BUS_ID\n");
    // The process that holds is the command itself.
    let refused = world.run(&["gpu", "best"]);
    assert_eq!(
        refused.whole(),
        format!(
            "error: no GPU can be had, and 1 GPU is wanted\n  GPU 0: reserved (process {})\nexit code 4\n",
            holder.pid()
        )
    );
    world.write("go", "");
    assert_eq!(holder.end(&world).whole(), "exit code 7\n");
    let seen = world.run(&["gpu", "best", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(seen.whole(), "GPU-0\nexit code 0\n");
    let none = world.run(&["gpu", "best", "--", "no-such-program"]);
    assert_eq!(none.code, 4, "{}", none.whole());
    assert!(none.err.starts_with("error: cannot start `no-such-program`: "), "{}", none.err);
    world.run(&["gpu", "best"]).ok();
}

/// Two devices with samples: one with a counter of energy, one that reports less.
const SAMPLED: &str = r#"{
  "devices": [
    { "index": 0, "uuid": "GPU-aaaa", "name": "NVIDIA A100", "memory_total": 1000, "samples": [
        { "energy_j": 500.0 },
        { "energy_j": 800.0, "utilization": 40, "memory_used": 100, "power_w": 200.5,
          "temperature_c": 61, "throttle": ["power cap"], "sm_clock_mhz": 1410 },
        { "energy_j": 900.5, "utilization": 90, "memory_used": 300, "power_w": 250.25,
          "temperature_c": 70, "throttle": [], "sm_clock_mhz": 1300 } ] },
    { "index": 1, "uuid": "GPU-bbbb", "name": "NVIDIA T4", "samples": [ { "utilization": 5 } ] }
  ]
}"#;

/// Ends once the record of its trial has as many lines of samples as it says.
const UNTIL_SAMPLED: &str = "until [ $(cat $HPCSWEEP_SWEEP_DIR/records/000/0.1.jsonl | grep -c '^{\"event\":\"metrics') -ge 2 ]; do sleep 0.01; done";

#[test]
fn a_trial_with_gpus_has_their_samples_and_their_energy() {
    let mut world = with(SAMPLED);
    world.set("HPCSWEEP_GPU_SAMPLE_S", "0.05");
    let rest = "[[trials]]\ngpu_ids_abs = [0]\n";
    world.local(&shell(UNTIL_SAMPLED, rest), &[]).ok();
    let row = &world.table(&[])[0];
    let metrics: serde_json::Map<String, serde_json::Value> = row
        .iter()
        .filter(|(name, _)| name.starts_with("gpu."))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    assert_eq!(
        serde_json::Value::Object(metrics),
        serde_json::json!({
            "gpu.0.utilization": 90, "gpu.0.utilization.min": 40, "gpu.0.utilization.max": 90,
            "gpu.0.memory_used": 300, "gpu.0.memory_used.min": 100, "gpu.0.memory_used.max": 300,
            "gpu.0.power_w": 250.25, "gpu.0.power_w.min": 200.5, "gpu.0.power_w.max": 250.25,
            "gpu.0.temperature_c": 70, "gpu.0.temperature_c.min": 61, "gpu.0.temperature_c.max": 70,
            "gpu.0.sm_clock_mhz": 1300, "gpu.0.sm_clock_mhz.min": 1300, "gpu.0.sm_clock_mhz.max": 1410,
            "gpu.0.throttle": "none", "gpu.0.memory_total": 1000,
            "gpu.0.energy_j": 400.5, "gpu.energy_j": 400.5,
        })
    );
    let record = world.run(&["collect", "--format", "records"]);
    let record: serde_json::Value = serde_json::from_str(record.ok()).unwrap();
    let gpu = &record["usage"]["gpus"][0];
    assert_eq!(
        (&gpu["gpu"], &gpu["memory"], &gpu["energy_j"]),
        (&0.into(), &300.into(), &400.5.into())
    );
    // One sample of 40, and the others of 90.
    let mean = gpu["utilization"].as_f64().unwrap();
    assert!((65.0..90.0).contains(&mean), "{record}");
    assert_eq!(record["usage"]["gpus"].as_array().unwrap().len(), 1);
}

#[test]
fn ranks_of_one_node_do_not_count_a_gpu_twice() {
    let mut world = with(SAMPLED);
    world.set("HPCSWEEP_GPU_SAMPLE_S", "0.05");
    let rest = "[resources]\nranks = 2\n[[trials]]\ngpu_ids_abs = [1, 0]\n";
    world.local(&shell(UNTIL_SAMPLED, rest), &[]).ok();
    let record = world.read("results/s/records/000/0.1.jsonl");
    let rows: Vec<serde_json::Value> = record
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "metrics")
        .flat_map(|event| event["rows"].as_array().unwrap().clone())
        .collect();
    assert!(rows.len() > 2 && rows.iter().all(|row| row["rank"] == 0), "{record}");
    // In the order in which the trial sees them: `gpu.1` is the A100.
    let last = rows.last().unwrap();
    assert_eq!(
        last,
        &serde_json::json!({ "gpu.1.memory_total": 1000, "gpu.1.energy_j": 400.5, "rank": 0 })
    );
    assert!(rows[0].as_object().unwrap().contains_key("gpu.0.utilization"));
}

#[test]
fn without_gpus_or_where_sampling_is_off_nothing_is_added() {
    let names = |world: &World| -> Vec<String> {
        world.table(&[]).into_iter().flat_map(BTreeMap::into_keys).collect()
    };
    let world = with(SAMPLED);
    world.local(&shell("true", "[[trials]]\ngpu_ids_abs = []\n[[trials]]\n"), &[]).ok();
    assert!(!names(&world).iter().any(|name| name.starts_with("gpu.")));
    for (every, expected) in [("0", false), ("60", true)] {
        let mut world = with(SAMPLED);
        world.set("HPCSWEEP_GPU_SAMPLE_S", every);
        world.local(&shell("true", "[[trials]]\ngpu_ids_abs = [0]\n"), &[]).ok();
        // A trial that is over before the first sample still says what it took.
        assert_eq!(names(&world).iter().any(|name| name == "gpu.energy_j"), expected);
    }
}

#[test]
fn a_file_in_the_place_of_nvml_may_be_named_from_where_one_is() {
    let mut world = with(SAMPLED);
    world.set("HPCSWEEP_NVML_FILE", "nvml.json");
    world.set("HPCSWEEP_GPU_SAMPLE_S", "60");
    world.local(&shell("true", "[[trials]]\ngpu_ids_abs = [0]\n"), &[]).ok();
    let row = &world.table(&["--all"])[0];
    assert!(row.get("gpu.energy_j").is_some(), "{row:?}");
}

#[test]
fn trouble_with_the_gpus_is_a_note_and_fails_no_trial() {
    let mut world = with(r#"{"missing": {"other": "GPU is lost"}}"#);
    world.set("CUDA_VISIBLE_DEVICES", "0");
    world.local(&shell("true", "[[trials]]\n"), &[]).ok();
    let row = &world.table(&[])[0];
    assert_eq!((&row["state"], &row["gpu.note"]), (&"done".into(), &"NVML: GPU is lost".into()));
    let other = with(SAMPLED);
    other
        .local(
            &shell("export CUDA_VISIBLE_DEVICES", "[run.env]\nCUDA_VISIBLE_DEVICES = \"9\"\n"),
            &[],
        )
        .ok();
    let row = &other.table(&[])[0];
    assert_eq!(row["gpu.note"], "NVML knows none of CUDA_VISIBLE_DEVICES=9");
}

/// The doctor's findings about GPUs, as lines.
fn doctor(world: &World) -> Vec<String> {
    let ran = world.run(&["doctor"]);
    let lines = ran.out.lines().skip_while(|line| !line.contains("  GPUs: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_doctor_says_what_is_wrong_with_each_gpu() {
    assert_eq!(
        doctor(&with(TWO)),
        [
            "ok    GPUs: 2 GPUs; driver 550.54.15, CUDA up to 12.4",
            "ok    GPU: GPU 0: NVIDIA A100 (40,960 MiB)",
            "ok    GPU: GPU 1: NVIDIA A100 (40,960 MiB)",
        ]
    );
    assert_eq!(
        doctor(&with(DIVIDED)),
        [
            "ok    GPUs: 1 GPU; driver of unknown version",
            "note  GPU: GPU 0: NVIDIA A100 (40,960 MiB); divided into 2 MIG devices",
            "      name MIG devices by UUID; a program can use one at a time",
            "ok    GPU: GPU 0, MIG-1111: NVIDIA A100 MIG 3g.20gb (19,968 MiB)",
            "ok    GPU: GPU 0, MIG-2222: NVIDIA A100 MIG 3g.20gb (19,968 MiB)",
        ]
    );
    let sick = with(
        r#"{"driver": "550", "devices": [
            {"index": 0, "uuid": "GPU-0", "name": "V100", "compute_mode": "exclusive_process",
             "throttle": ["power cap", "hardware slowdown", "hardware thermal slowdown"]},
            {"index": 1, "uuid": "GPU-1", "name": "V100", "ecc_errors": 2, "throttle": ["power cap"]},
            {"index": 2, "trouble": "device fell off the bus"},
            {"index": 3, "uuid": "GPU-3", "name": "V100", "compute_mode": "prohibited"}]}"#,
    );
    assert_eq!(
        doctor(&sick),
        [
            "ok    GPUs: 4 GPUs; driver 550",
            "note  GPU: GPU 0: V100; exclusive mode; throttled: hardware slowdown, hardware thermal slowdown",
            "      one process at a time: ranks cannot share it; it computes slower than it could: look at cooling and power supply",
            "BAD   GPU: GPU 1: V100; 2 uncorrected memory errors; clocks held by power cap",
            "      results may be wrong: have it reset or replaced",
            "BAD   GPU: GPU 2; cannot be asked: device fell off the bus",
            "      reset it or reboot this host",
            "BAD   GPU: GPU 3: V100; compute mode prohibited",
            "      an administrator can change it: `nvidia-smi -c DEFAULT`",
        ]
    );
    assert_eq!(sick.run(&["doctor"]).code, 4);
    assert_eq!(
        doctor(&with(r#"{"missing": "mismatch"}"#)),
        [
            "BAD   GPUs: none: NVIDIA's driver and its libraries are of different versions",
            "      an update changed the libraries: reboot this host, or load the new driver",
        ]
    );
}

#[test]
fn the_doctor_shows_the_mpi_that_starts_programs() {
    let world = World::new();
    let check = |world: &World, about: &str| {
        let ran = world.run(&["doctor", "--json"]);
        let checks: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
        let found = checks.iter().find(|check| check["about"] == about);
        found.map(|check| format!("{}: {}", check["verdict"], check["seen"]))
    };
    world.program("mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n");
    assert_eq!(check(&world, "mpirun").unwrap(), r#""ok": "mpirun (Open MPI) 4.1.4""#);
    world.program("mpirun", "#!/bin/sh\necho 'cannot find libopen-rte.so.40' >&2\nexit 127\n");
    assert_eq!(
        check(&world, "mpirun").unwrap(),
        r#""note": "`mpirun --version` fails: cannot find libopen-rte.so.40""#
    );
    // Without a scheduler that answers, srun is asked where it exists; pmix is missed.
    world.program("scontrol", "#!/bin/sh\nexit 1\n");
    world.program("srun", "#!/bin/sh\necho 'MPI plugin types are...\n\tnone\n\tpmi2'\n");
    assert_eq!(
        check(&world, "MPI plugins").unwrap(),
        r#""note": "none pmi2 (default unknown): pmix is missing""#
    );
    world.program("srun", "#!/bin/sh\necho 'srun: error: no configuration' >&2\nexit 1\n");
    assert_eq!(
        check(&world, "MPI plugins").unwrap(),
        r#""note": "srun says: srun: error: no configuration""#
    );
}

#[test]
fn the_doctor_shows_what_the_heavy_worker_is_made_of() {
    let world = World::new();
    // By a program of its own: what this process writes, a child of another test may hold open for a
    // moment, and Linux runs no file that is open for writing.
    world.call("cp", &[PROGRAM, &world.text_path("bin/hpcsweep")]).ok();
    let about = |said: &str| -> Vec<String> {
        let version = env!("CARGO_PKG_VERSION");
        let script = format!(
            "#!/bin/sh\necho hpcsweep-worker {version}\n[ $1 = about ] || exit 0\n{said}\n"
        );
        world.program("hpcsweep-worker", &script);
        let ran = world.call(&world.text_path("bin/hpcsweep"), &["doctor"]);
        let lines = ran.out.lines().filter(|line| line.contains("  worker: "));
        lines.map(|line| line.replace("  worker: ", " ")).collect()
    };
    let (mpi, torch) = (
        "mpi: Open MPI 4.1.4 (thread level multiple)",
        "libtorch: 2.11.0, CUDA: no (libtorch_cuda.so: not found)",
    );
    let say = |lines: &[&str]| -> String {
        lines.iter().map(|line| format!("echo '{line}'\n")).collect()
    };
    let none = "libtorch: not built in";
    assert_eq!(about(&say(&[mpi, torch])), [format!("ok   {mpi}"), format!("ok   {torch}")]);
    assert_eq!(
        about(&say(&[mpi, none])),
        [format!("ok   {mpi}"), "note hpcsweep-worker was built without libtorch".to_owned()]
    );
    assert_eq!(
        about(&say(&["mpi: not built in", none])),
        ["note hpcsweep-worker was built without MPI and libtorch"]
    );
    assert_eq!(
        about("echo 'PMIX ERROR' >&2; exit 1"),
        ["note `hpcsweep-worker about` fails: PMIX ERROR"]
    );
    std::fs::remove_file(world.path("bin/hpcsweep-worker")).unwrap();
    let ran = world.call(&world.text_path("bin/hpcsweep"), &["doctor"]);
    assert!(
        ran.out.starts_with(
            "BAD   installation: this installation has no MPI worker: `$WORLD/bin/hpcsweep-worker` does not exist\n"
        ),
        "{}",
        ran.out
    );
}
