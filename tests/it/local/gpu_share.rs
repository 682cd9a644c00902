//! Several trials on each GPU: on this machine, under agents, in pilots; and what cannot be shared.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Each trial is on its device until `n` have been, with what it was given.
fn together(n: u32) -> String {
    format!(
        "echo $CUDA_VISIBLE_DEVICES >>seen; n=0; until [ $(wc -l <seen) -ge {n} ]; do n=$((n+1)); \
         [ $n -lt 6000 ] || exit 99; sleep 0.01; done"
    )
}

/// How many trials had each device.
fn counts(world: &World) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for line in world.read("seen").lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

fn of(all: &[(&str, u32)]) -> BTreeMap<String, u32> {
    all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

const FOUR: &str = "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2, 3, 4]\n";

#[test]
fn trials_on_this_machine_share_each_gpu() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "GPU-a,MIG-b");
    let plan = shell(&together(4), &format!("{FOUR}[schedule]\ngpu_share = 2\n"));
    let ran = world.local(&plan, &["-j", "8"]);
    ran.ok();
    assert_eq!(counts(&world), of(&[("GPU-a", 2), ("MIG-b", 2)]));
    assert!(ran.err.contains("\n2 GPUs to hand out, each to 2 trials at a time\n"), "{}", ran.err);
}

/// The devices would never become free, so waiting for them would not end.
#[test]
fn devices_that_no_program_can_have_together_are_refused_before_anything_runs() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b");
    let refused = |rest: &str| {
        let ran = world.local(&shell("true", rest), &[]);
        assert!(!world.exists("results"), "{}", ran.whole());
        ran.whole()
    };
    let expected = "\
error: trial 0 asks for 2 GPUs that no program can have together
  devices here: MIG-a, MIG-b (CUDA_VISIBLE_DEVICES=MIG-a,MIG-b)
hint: CUDA gives a program one MIG device, and none whose compute mode is prohibited
exit code 2
";
    assert_eq!(refused("[resources]\ngpus_per_rank = 2\n"), expected);
    assert_eq!(refused("[[trials]]\ngpu_ids_abs = [\"MIG-a\", \"MIG-b\"]\n"), expected);
}

#[test]
fn chains_never_have_more_than_their_share_of_a_device_whatever_they_name() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "0,1,2");
    // A place is a folder that one makes: without two places on each device one that should run fails.
    let code = "for d in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
            mkdir busy.$d.0 2>/dev/null && echo busy.$d.0 >>mine.$HPCSWEEP_TRIAL && continue
            mkdir busy.$d.1 && echo busy.$d.1 >>mine.$HPCSWEEP_TRIAL || exit 1; done
        sleep 0.02; xargs rmdir <mine.$HPCSWEEP_TRIAL";
    let trials: String = (0..24)
        .map(|i| match i % 3 {
            0 => format!("[[trials]]\ntask_id = {}\nn = {i}\ngpu_ids_abs = [{}]\n", i % 8, i % 2),
            1 => format!("[[trials]]\ntask_id = {}\nn = {i}\ngpu_ids_abs = [0, 2]\n", i % 8),
            _ => format!("[[trials]]\ntask_id = {}\nn = {i}\nresources.gpus_per_rank = 1\n", i % 8),
        })
        .collect();
    let plan = shell(code, &format!("[schedule]\ngpu_share = 2\n{trials}"));
    let ran = world.local(&plan, &["-j", "8"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.column("state"), ["\"done\""; 24]);
}

#[test]
fn a_run_waits_for_devices_that_another_run_has() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "3");
    let code = "echo $HPCSWEEP_SWEEP >>seen; until [ -e go ]; do sleep 0.01; done";
    let plan = shell(code, "[resources]\ngpus_per_rank = 1\n");
    world.write("first.toml", &plan);
    world.write("second.toml", &plan.replace("\"s\"", "\"t\""));
    let first = world.start(&["submit", "--local", "first.toml"]);
    wait_until("the first runs", || world.exists("seen"));
    let second = world.start(&["submit", "--local", "second.toml"]);
    let folder = world.path("results/t/trials");
    wait_until("the second would run", || folder.is_dir());
    world.write("go", "");
    assert_eq!(first.end(&world).code, 0);
    let ran = second.end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.read("seen"), "s\nt\n");
}

/// A plan for agents of the sweep `s`.
fn pulled(code: &str, rest: &str) -> String {
    shell(code, &format!("{rest}[pull]\nlease = 1\nbind = false\n"))
}

#[test]
fn agents_put_as_many_slots_on_each_gpu_as_the_plan_says() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "4,5");
    let rest = "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2, 3, 4, 5, 6, 7, 8]\n";
    world.write("plan.toml", &format!("{}slots_per_gpu = 4\n", pulled(&together(8), rest)));
    // Whatever the number of cores.
    let ran = world.run(&["worker", "--pull", "plan.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(counts(&world), of(&[("4", 4), ("5", 4)]));
    assert!(ran.err.contains(": 8 slots\n"), "{}", ran.err);
}

#[test]
fn agents_of_one_job_share_its_gpus_and_a_killed_one_leaves_its_places() {
    let mut world = World::new();
    world.set("SLURM_JOB_GPUS", "6,7");
    world.set("CUDA_VISIBLE_DEVICES", "0,1");
    let code = "echo $CUDA_VISIBLE_DEVICES >>seen; until [ -e go ]; do sleep 0.01; done";
    let rest = "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2, 3, 4, 5, 6]\n[schedule]\ngpu_share = 2\n";
    world.write("plan.toml", &pulled(code, rest));
    let lines = || if world.exists("seen") { world.read("seen").lines().count() } else { 0 };
    let agent = || world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    let first = agent();
    wait_until("two run", || lines() == 2);
    let second = agent();
    wait_until("four run", || lines() == 4);
    assert_eq!(counts(&world), of(&[("0", 2), ("1", 2)]));
    let third = world.run(&["worker", "--pull", "results/s"]);
    assert_eq!(third.code, 4, "{}", third.whole());
    assert!(
        third.err.starts_with("error: no GPU can be had, and 1 GPU is wanted\n"),
        "{}",
        third.err
    );
    // No process has to give the devices back: the process is gone, and its holds with it.
    first.signal(Signal::SIGKILL);
    first.end(&world);
    let heir = agent();
    wait_until("an heir runs its trials", || lines() == 6);
    assert_eq!(counts(&world), of(&[("0", 3), ("1", 3)]));
    world.write("go", "");
    for agent in [second, heir] {
        assert_eq!(agent.end(&world).code, 0);
    }
    assert_eq!(world.counts(), r#"{"done":6}"#);
}

#[test]
fn a_copy_runs_beside_others_on_a_shared_gpu() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "GPU-a");
    // The first run of the slow trial waits for its copy, which has the other place of the device.
    let code = "echo $CUDA_VISIBLE_DEVICES >>seen; [ $HPCSWEEP_PARAM_A = 5 ] || exit 0
        mkdir first 2>/dev/null || exit 0; while :; do sleep 0.05; done";
    let rest =
        "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2, 3, 4, 5]\n[schedule]\ngpu_share = 2\n";
    let plan = format!("{}repeatable = true\nstraggler = 1.5\n", pulled(code, rest));
    world.write("plan.toml", &plan);
    let agent = || world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let (first, second) = (agent(), agent());
    for agent in [first, second] {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(world.counts(), r#"{"done":5}"#);
    // On a slow machine others are copied, too.
    let seen = counts(&world);
    assert!(seen.len() == 1 && seen["GPU-a"] >= 6, "{seen:?}");
}

#[test]
fn a_sweep_within_a_trial_has_the_trials_devices_for_itself() {
    let mut world = World::new();
    world.set("SLURM_JOB_GPUS", "0,1");
    world.set("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b");
    let inner = "echo $HPCSWEEP_SWEEP $CUDA_VISIBLE_DEVICES >>$HERE/seen";
    let rest = "[[trials]]\ngpu_ids_abs = [0]\n";
    world.set("HERE", &world.text_path("."));
    world.write("inner.toml", &shell(inner, rest));
    let code = "hpcsweep submit --local $HERE/inner.toml >out.$HPCSWEEP_TRIAL 2>&1 || { cat out.*; exit 1; }";
    let code = code.replace("hpcsweep", crate::support::world::PROGRAM);
    let outer = shell(&code, "[[trials]]\ngpu_ids_abs = [1]\n").replace("\"s\"", "\"outer\"");
    let ran = world.local(&outer, &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.read("seen"), "s GPU-b\n");
}

#[test]
fn trials_of_arrays_share_no_gpu() {
    let pbs = Pbs::start();
    let plan = shell("true", &format!("{FOUR}[schedule]\ngpu_share = 2\n"));
    let ran = pbs.submit(&plan, &[]);
    let refusal = "\
error: `gpu_share = 2`: trials of arrays share no GPU, as the scheduler grants each job whole ones
hint: let agents run them in one job: `submit --pull`, or `mode = \"pull\"` under `[schedule]`, with `slots` under `[pull]`
";
    assert_eq!((ran.code, ran.err.as_str()), (2, refusal));
    assert_eq!(pbs.world.run(&["plan", "--pbs", "plan.toml"]).err, refusal);
    // Without GPUs there is nothing to share.
    let none = plan.replace("gpus_per_rank = 1", "gpus_per_rank = 0");
    pbs.submit(&none, &[]).ok();
}

#[test]
fn programs_count_devices_by_the_bus_unless_somebody_says_otherwise() {
    let mut world = World::new();
    let order = |world: &World, name: &str, rest: &str| {
        let plan = shell("echo $CUDA_DEVICE_ORDER >order", rest).replace("\"s\"", name);
        world.local(&plan, &[]).ok();
        world.read("order")
    };
    assert_eq!(order(&world, "\"a\"", ""), "PCI_BUS_ID\n");
    let own = "[run.env]\nCUDA_DEVICE_ORDER = \"FASTEST_FIRST\"\n";
    assert_eq!(order(&world, "\"b\"", own), "FASTEST_FIRST\n");
    world.set("CUDA_DEVICE_ORDER", "FASTEST_FIRST");
    assert_eq!(order(&world, "\"c\"", ""), "FASTEST_FIRST\n");
}

#[test]
fn a_killed_run_leaves_its_devices_to_the_next_when_nothing_of_it_is_left() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "3");
    let code = "if kill -0 $(cat on.$CUDA_VISIBLE_DEVICES 2>/dev/null) 2>/dev/null; then echo beside >>seen; fi
        echo $$ >on.$CUDA_VISIBLE_DEVICES; echo $CUDA_VISIBLE_DEVICES >>seen
        until [ -e go ]; do sleep 0.01; done";
    world.write("plan.toml", &shell(code, "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2]\n"));
    let submit = ["submit", "plan.toml", "--local", "-j", "2", "--retry"];
    for lines in 1..4 {
        let run = world.start(&submit);
        wait_until("a trial is on it", || {
            world.exists("seen") && world.read("seen").lines().count() >= lines
        });
        run.signal(Signal::SIGKILL);
        run.end(&world);
    }
    world.write("go", "");
    let last = world.run(&submit);
    last.ok();
    assert_eq!(world.column("state"), ["\"done\""; 2]);
    let seen = world.read("seen");
    assert!(seen.lines().all(|line| line == "3") && seen.lines().count() == 5, "{seen}");
}

/// A program that is asked to stop has its devices for as long as it takes to save.
#[test]
fn a_stopped_run_keeps_its_devices_until_its_program_has_ended() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "3");
    let code = "echo $HPCSWEEP_SWEEP begins >>seen; [ $HPCSWEEP_SWEEP = s ] || exit 0
        trap ': >saving; until [ -e saved ]; do sleep 0.01; done; echo s ends >>seen; exit 0' TERM
        while :; do sleep 0.01; done";
    let plan = shell(code, "[resources]\ngpus_per_rank = 1\n");
    world.write("first.toml", &plan);
    world.write("second.toml", &plan.replace("\"s\"", "\"t\""));
    let first = world.start(&["submit", "--local", "first.toml"]);
    wait_until("the first runs", || world.exists("seen"));
    let second = world.start(&["submit", "--local", "second.toml"]);
    let folder = world.path("results/t/trials");
    wait_until("the second would run", || folder.is_dir());
    first.signal(Signal::SIGTERM);
    wait_until("the first saves", || world.exists("saving"));
    world.write("third.toml", &plan.replace("\"s\"", "\"u\""));
    let third = world.run(&["worker", "--pull", "third.toml"]);
    let refusal = "error: no GPU can be had, and 1 GPU is wanted\n";
    assert!(third.code == 4 && third.err.contains(refusal), "{}", third.whole());
    world.write("saved", "");
    first.end(&world);
    second.end(&world);
    assert_eq!(world.read("seen"), "s begins\ns ends\nt begins\n");
}

/// Agents of a cancelled sweep end what they run, on its devices.
#[test]
fn a_cancelled_agent_keeps_its_devices_until_its_trial_has_ended() {
    let mut world = World::new();
    world.set("CUDA_VISIBLE_DEVICES", "3");
    let code = "echo $HPCSWEEP_SWEEP $CUDA_VISIBLE_DEVICES >>seen
        until [ -e go ]; do sleep 0.01; done";
    let rest = "[resources]\ngpus_per_rank = 1\n[grid]\na = [1, 2]\n";
    let plan = pulled(code, rest);
    world.write("first.toml", &plan);
    world.write("second.toml", &plan.replace("\"s\"", "\"t\""));
    let first = world.start(&["worker", "--pull", "first.toml"]);
    wait_until("the first runs", || world.exists("seen"));
    world.run(&["cancel", "results/s"]).ok();
    let second = world.run(&["worker", "--pull", "second.toml"]);
    let refusal = "error: no GPU can be had, and 1 GPU is wanted\n";
    assert!(second.code == 4 && second.err.contains(refusal), "{}", second.whole());
    world.write("go", "");
    first.end(&world);
    world.run(&["worker", "--pull", "second.toml"]).ok();
    assert_eq!(world.read("seen"), "s 3\nt 3\nt 3\n");
}
