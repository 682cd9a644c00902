//! How many calls that name a path a command makes on the results tree: on a shared file system each is a request to a
//! server that everybody waits for.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::support::slurm::slurm;
use crate::support::world::{PROGRAM, World};

/// A plan of so many trials.
fn plan(trials: usize) -> String {
    let values: Vec<String> = (0..trials).map(|i| i.to_string()).collect();
    format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[grid]\ni = [{}]\n",
        values.join(", ")
    )
}

/// The calls on the tree that the program makes with these arguments, one a line.
fn calls_of(world: &mut World, args: &[&str]) -> String {
    let trace = ["-f", "-e", "trace=%file", "-o", "trace", PROGRAM];
    let ran = world.call("strace", &[&trace[..], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let tree = world.text_path("results/s");
    let trace = world.read("trace");
    let calls = trace.lines().filter(|line| line.contains(&tree) && !line.contains("execve("));
    calls.fold(String::new(), |mut all, call| {
        let _ = writeln!(all, "{call}");
        all
    })
}

/// Those of the worker of the one trial in this array.
fn calls_of_worker(world: &mut World, array: usize) -> String {
    world.set("SLURM_ARRAY_TASK_ID", "0");
    world.set("SLURM_JOB_ID", "7");
    let worker = ["worker", "--sweep", "results/s", "--first", "0", "--count", "1", "--gate"];
    calls_of(world, &[&worker[..], &["--wave", &array.to_string()]].concat())
}

#[test]
fn a_worker_makes_at_most_thirty_calls_on_the_tree_whatever_was_submitted_before() {
    let mut world = slurm();
    for trials in 1..=50 {
        world.write("plan.toml", &plan(trials));
        world.run(&["submit", "plan.toml", "--slurm", "-q"]).ok();
    }
    // The first one makes folders.
    for array in [1, 2, 49, 50] {
        let calls = calls_of_worker(&mut world, array);
        assert!(calls.lines().count() <= 30, "{} calls:\n{calls}", calls.lines().count());
    }
    let states = world.column("state");
    assert_eq!(states.iter().filter(|state| *state == "\"done\"").count(), 4, "{states:?}");
}

#[test]
fn a_submission_reads_each_file_of_the_tables_once_under_its_lock() {
    let mut world = slurm();
    for trials in 1..=10 {
        world.write("plan.toml", &plan(trials));
        world.run(&["submit", "plan.toml", "--slurm", "-q"]).ok();
    }
    world.write("plan.toml", &plan(11));
    let calls = calls_of(&mut world, &["submit", "plan.toml", "--slurm", "-q"]);
    let mut opened: BTreeMap<&str, u32> = BTreeMap::new();
    for call in calls.lines().filter(|call| call.contains("openat(") && call.contains("/trials/")) {
        let name = call.split('"').nth(1).unwrap_or_default();
        *opened.entry(name).or_default() += 1;
    }
    // A first look may come before the lock is taken.
    let often: Vec<_> = opened.iter().filter(|(_, times)| **times > 2).collect();
    assert!(often.is_empty(), "{often:#?}");
    assert!(opened.len() > 30, "{opened:#?}");
}

#[test]
fn an_agent_makes_at_most_two_calls_on_the_tree_for_a_trial() {
    let calls = |trials: usize| {
        let mut world = World::new();
        world.write("plan.toml", &plan(trials));
        let calls = calls_of(&mut world, &["worker", "--pull", "plan.toml", "--slots", "2", "-q"]);
        assert_eq!(world.column("state"), vec!["\"done\""; trials]);
        calls
    };
    let (few, many) = (calls(20), calls(420));
    // Beside what it does once a second and in the end.
    let (few, many) = (few.lines().count(), many.lines().count());
    assert!(many.saturating_sub(few) <= 2 * 400, "{few} calls for 20 trials, {many} for 420");
}
