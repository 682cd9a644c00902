//! `gpu_ids_abs` on this machine: what a trial may see, and that no device is used twice at a time.
//!
//! `CUDA_VISIBLE_DEVICES` names the devices, so that no GPU is needed.

use crate::support::gpus;
use crate::support::plans::shell;
use crate::support::slurm::{add_slurm, element};
use crate::support::world::World;

const SHOW: &str = "echo ${CUDA_VISIBLE_DEVICES-unset} >seen.$HPCSWEEP_TRIAL";

fn seen(world: &World, trials: u32) -> Vec<String> {
    (0..trials).map(|t| world.read(&format!("seen.{t}")).trim_end().to_owned()).collect()
}

fn with_devices(devices: &str) -> World {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", devices);
    world
}

#[test]
fn named_devices_are_all_that_a_trial_sees() {
    let world = with_devices("0,1,2,3");
    let rest = "[[trials]]\ngpu_ids_abs = [0]\n[[trials]]\ngpu_ids_abs = [2, 3]\n[[trials]]\ngpu_ids_abs = []\n[[trials]]\n";
    let ran = world.local(&shell(SHOW, rest), &[]);
    ran.ok();
    // A trial that names no devices keeps those that it is given.
    assert_eq!(seen(&world, 4), ["0", "2,3", "", "0,1,2,3"]);
    assert!(ran.err.contains("\n4 GPUs to hand out\n"), "{}", ran.err);
}

#[test]
fn a_device_that_is_not_there_is_refused_with_the_trials_number_before_anything_runs() {
    let world = with_devices("0,1");
    let rest = "[[trials]]\ngpu_ids_abs = [1]\n[[trials]]\ngpu_ids_abs = [2]\n[[trials]]\ngpu_ids_abs = [0, 7]\n";
    assert_eq!(
        world.local(&shell(SHOW, rest), &[]).whole(),
        "\
error: trial 1 names device 2 in `gpu_ids_abs`, which is not there
  devices here: 0, 1 (CUDA_VISIBLE_DEVICES=0,1)
error: trial 2 names device 7 in `gpu_ids_abs`, which is not there
  devices here: 0, 1 (CUDA_VISIBLE_DEVICES=0,1)
exit code 2
"
    );
    assert!(!world.exists("results") && !world.exists("seen.0"));
}

#[test]
fn without_any_device_a_request_for_one_is_refused() {
    let world = with_devices("");
    assert_eq!(
        world.local(&shell(SHOW, "[resources]\ngpus_per_rank = 1\n"), &[]).whole(),
        "\
error: trial 0 asks for 1 GPU, more than this machine has
  devices here: none (CUDA_VISIBLE_DEVICES=)
exit code 2
"
    );
    // A trial that wants none runs.
    world.local(&shell(SHOW, "[[trials]]\ngpu_ids_abs = []\n"), &[]).ok();
    assert_eq!(seen(&world, 1), [""]);
}

#[test]
fn what_is_refused_for_several_trials_is_said_once() {
    let world = with_devices("0");
    let trials = |gpus: u32| {
        (0..10).map(move |n| {
            format!("[[trials]]\nn = {n}\ngpus = {gpus}\nresources.gpus_per_rank = {gpus}\n")
        })
    };
    let rest: String = trials(1).take(2).chain(trials(2)).collect();
    world.write("plan.toml", &shell(SHOW, &rest));
    let refusal = "error: trials 2-11 ask for 2 GPUs each, more than this machine has\n  devices here: 0 (CUDA_VISIBLE_DEVICES=0)\nexit code 2\n";
    for how in [&["--local"][..], &["--local", "--pull"]] {
        let run = [&["submit", "plan.toml"], how].concat();
        assert!(world.run(&run).whole().ends_with(refusal), "{how:?}");
        // A rehearsal refuses what the run refuses.
        let dry = [&run[..], &["--dry-run"]].concat();
        assert!(world.run(&dry).whole().ends_with(refusal), "{how:?}");
    }
    assert!(!world.exists("results"));
}

/// Devices are for trials that run: those of trials that have ended may be gone.
#[test]
fn a_sweep_whose_trials_have_ended_needs_no_device() {
    let plan = |values: &str| {
        shell("true", &format!("[resources]\ngpus_per_rank = 2\n[grid]\na = [{values}]\n"))
    };
    for how in [&[][..], &["--pull"]] {
        let mut world = with_devices("0,1");
        world.local(&plan("1, 2"), how).ok();
        world.set("CUDA_VISIBLE_DEVICES", "0");
        let again = world.local(&plan("1, 2"), how);
        assert_eq!(again.code, 0, "{}", again.whole());
        assert!(!again.err.contains("hand out"), "{}", again.err);
        let agent = world.run(&["worker", "--pull", "results/s"]);
        assert!(agent.code == 0 || how.is_empty(), "{}", agent.whole());
        // The message does not name a trial that will not run again.
        let grown = world.local(&plan("1, 2, 3"), how).whole();
        let refusal = "error: trial 2 asks for 2 GPUs, more than this machine has\n";
        assert!(grown.starts_with(refusal), "{grown}");
    }
}

/// A trial keeps the devices that its sweep has for it, whatever the plan says now: waiting for them would have no end.
#[test]
fn a_device_that_the_sweep_has_for_a_trial_and_that_is_gone_is_refused() {
    let mut world = with_devices("0,1");
    let plan = |device: u32| shell("exit 1", &format!("[[trials]]\ngpu_ids_abs = [{device}]\n"));
    assert_eq!(world.local(&plan(1), &[]).code, 1);
    world.set("CUDA_VISIBLE_DEVICES", "0");
    let refusal = "error: trial 0 names device 1 in `gpu_ids_abs`, which is not there\n  devices here: 0 (CUDA_VISIBLE_DEVICES=0)\nexit code 2\n";
    assert_eq!(world.local(&plan(0), &["--retry"]).whole(), refusal);
}

#[test]
fn unnamed_devices_are_handed_out_one_trial_at_a_time() {
    let world = with_devices("4,5");
    // Each pair waits for both to run, so each must have a device of its own.
    let code = "echo $CUDA_VISIBLE_DEVICES >seen.$HPCSWEEP_TRIAL; mkdir busy.$CUDA_VISIBLE_DEVICES || exit 1
        n=0; until [ $(ls seen.* | wc -l) -ge 2 ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.01; done
        rmdir busy.$CUDA_VISIBLE_DEVICES";
    let rest = "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2, 3, 4, 5, 6]\n";
    world.local(&shell(code, rest), &["-j", "6"]).ok();
    let mut first: Vec<String> = seen(&world, 2);
    first.sort();
    assert_eq!(first, ["4", "5"]);
    assert!(seen(&world, 6).iter().all(|s| s == "4" || s == "5"));
}

#[test]
fn two_chains_that_name_one_device_never_run_at_the_same_time() {
    let world = with_devices("0,1,2");
    // A folder is made by one at a time: the second to try fails its trial.
    let code = "for d in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do mkdir busy.$d || exit 1; done
        : >ran.$HPCSWEEP_TRIAL; sleep 0.02
        for d in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do rmdir busy.$d; done";
    let trials: String = (0..12)
        .map(|i| {
            format!(
                "[[trials]]\ntask_id = {}\nn = {i}\ngpu_ids_abs = [{}, {}]\n",
                i % 4,
                i % 3,
                (i + 1) % 3
            )
        })
        .collect();
    let ran = world.local(&shell(code, &trials), &["-j", "4"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.column("state"), ["\"done\""; 12]);
}

#[test]
fn chains_that_name_other_devices_run_side_by_side() {
    let world = with_devices("0,1");
    let code = ": >here.$HPCSWEEP_TRIAL; n=0
        until [ -e here.0 ] && [ -e here.2 ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.01; done";
    // Trial 1 waits for its device behind trial 0; trial 2 must not wait behind it.
    let rest = "[[trials]]\ngpu_ids_abs = [0]\nn = 0\n[[trials]]\ngpu_ids_abs = [0]\nn = 1\n[[trials]]\ngpu_ids_abs = [1]\nn = 2\n";
    world.local(&shell(code, rest), &["-j", "2"]).ok();
}

#[test]
fn only_the_number_counts_where_the_plan_says_so() {
    let world = with_devices("4,5,6");
    let rest = "[schedule]\ngpu_ids = \"count\"\n[[trials]]\ngpu_ids_abs = [0, 1]\n";
    world.local(&shell(SHOW, rest), &[]).ok();
    let seen = &seen(&world, 1)[0];
    assert_eq!(seen, "4,5");
}

#[test]
fn an_allocation_says_which_devices_there_are() {
    let mut world = World::new();
    // The plan names them by the node's own numbers, CUDA by those that a cgroup shows.
    world.set("SLURM_JOB_GPUS", "4,5");
    world.set("CUDA_VISIBLE_DEVICES", "0,1");
    world.local(&shell(SHOW, "[[trials]]\ngpu_ids_abs = [5]\n"), &[]).ok();
    assert_eq!(seen(&world, 1), ["1"]);
    let other = shell(SHOW, "[[trials]]\ngpu_ids_abs = [0]\n").replace("\"s\"", "\"t\"");
    assert_eq!(
        world.local(&other, &[]).whole(),
        "\
error: trial 0 names device 0 in `gpu_ids_abs`, which is not there
  devices here: 4, 5 (SLURM_JOB_GPUS=4,5)
exit code 2
"
    );
}

/// CUDA gives a program none of the devices from the first on that is not there. A trial would run without its GPU, and nothing
/// would tell.
#[test]
fn a_variable_that_names_a_device_that_is_not_there_grants_none_behind_it() {
    let mut world = gpus::idle(2);
    let refused = |world: &World, shown: &str| {
        let words =
            "error: trial 0 asks for 1 GPU, more than this machine has\n  devices here: none";
        let ran = world.local(&shell(SHOW, "[resources]\ngpus_per_rank = 1\n"), &[]);
        assert_eq!(ran.whole(), format!("{words} (CUDA_VISIBLE_DEVICES={shown})\nexit code 2\n"));
        assert!(!world.exists("results"));
    };
    world.set("CUDA_VISIBLE_DEVICES", "7");
    refused(&world, "7");
    world.set("CUDA_VISIBLE_DEVICES", "7,0");
    refused(&world, "7,0");
    world.set("CUDA_VISIBLE_DEVICES", "1,7,0");
    world.local(&shell(SHOW, "[resources]\ngpus_per_rank = 1\n"), &[]).ok();
    assert_eq!(seen(&world, 1), ["1"]);
}

#[test]
fn a_plan_may_name_a_device_by_its_uuid_where_numbers_are_granted() {
    let mut world = gpus::idle(2);
    world.set("CUDA_VISIBLE_DEVICES", "0,1");
    world.local(&shell(SHOW, "[[trials]]\ngpu_ids_abs = [\"GPU-1\"]\n"), &[]).ok();
    assert_eq!(seen(&world, 1), ["1"]);
}

/// A sweep whose trials and hooks say what they see.
fn telling(rest: &str) -> String {
    let say = |who: &str| {
        format!("echo {who} $HPCSWEEP_TRIAL ${{CUDA_VISIBLE_DEVICES-unset}} >>told.$HPCSWEEP_TRIAL")
    };
    let hook = format!("[hooks]\nfinish = [\"sh\", \"-c\", \"{}\"]\n", say("hook"));
    shell(&say("trial"), &format!("{hook}{rest}"))
}

fn told(world: &World, trial: u32) -> String {
    world.read(&format!("told.{trial}"))
}

/// In an array, here, and under an agent.
#[test]
fn a_hook_sees_the_devices_of_its_trial() {
    let named = telling("[[trials]]\ngpu_ids_abs = [5]\n[[trials]]\ngpu_ids_abs = []\n");
    let mut slurm = World::new();
    add_slurm(&slurm);
    slurm.write("plan.toml", &named);
    slurm.run(&["submit", "plan.toml", "--slurm"]).ok();
    slurm.set("SLURM_JOB_GPUS", "4,5");
    slurm.set("CUDA_VISIBLE_DEVICES", "0,1");
    for script in ["0001", "0002"] {
        element(&slurm, &format!("results/s/jobs/{script}.sh"), 0, 1);
    }
    assert_eq!(told(&slurm, 0) + &told(&slurm, 1), "trial 0 1\nhook 0 1\ntrial 1\nhook 1\n");

    let here = with_devices("4,5");
    here.local(&named, &[]).ok();
    assert_eq!(told(&here, 0) + &told(&here, 1), "trial 0 5\nhook 0 5\ntrial 1\nhook 1\n");

    let agent = with_devices("4");
    agent.local(&telling("[resources]\ngpus_per_rank = 1\n"), &["--pull"]).ok();
    assert_eq!(told(&agent, 0), "trial 0 4\nhook 0 4\n");
}

/// Each trial that is packed into an element sees the devices that the scheduler granted to the element, also when the
/// element is started again elsewhere.
#[test]
fn packed_trials_see_the_devices_of_their_element() {
    let mut world = World::new();
    add_slurm(&world);
    let rest = "[schedule]\npack = 3\ngpu_ids = \"count\"\n[[trials]]\ngpu_ids_abs = [0, 1]\nn = 1\n\
                [[trials]]\ngpu_ids_abs = [1, 2]\nn = 2\n[[trials]]\ngpu_ids_abs = [7, 9]\nn = 3\n";
    let once = "[ $HPCSWEEP_TRIAL != 1 ] || [ -e once ] || { : >once; kill -9 $PPID; sleep 600; }";
    let plan = telling(rest).replace("echo trial", &format!("{once}; echo trial"));
    world.write("plan.toml", &plan);
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let script = world.read("results/s/jobs/0001.sh");
    assert!(script.contains("#SBATCH --array=0-0\n"), "{script}");
    assert!(script.contains("#SBATCH --gres=gpu:2\n"), "{script}");
    world.set("SLURM_JOB_GPUS", "4,5");
    world.set("CUDA_VISIBLE_DEVICES", "0,1");
    element(&world, "results/s/jobs/0001.sh", 0, 1);
    world.set("SLURM_JOB_GPUS", "2,3");
    world.set("CUDA_VISIBLE_DEVICES", "2,3");
    element(&world, "results/s/jobs/0001.sh", 0, 1);
    let all: String = (0..3).map(|trial| told(&world, trial)).collect();
    // The element went on behind the worker that was killed.
    let expected = "trial 0 0,1\nhook 0 0,1\ntrial 1 2,3\nhook 1 2,3\ntrial 2 0,1\nhook 2 0,1\n";
    assert_eq!(all, expected);
    assert_eq!(world.column("attempts"), ["1", "2", "1"]);
}
