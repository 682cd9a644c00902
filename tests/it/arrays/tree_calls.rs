//! How many calls that name a path a command makes on the results tree: on a shared file system each is a request to a
//! server that everybody waits for.

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

/// The calls on the tree of the worker of the one trial in this array, one a line.
fn calls_of_worker(world: &mut World, array: usize) -> String {
    world.set("SLURM_ARRAY_TASK_ID", "0");
    world.set("SLURM_JOB_ID", "7");
    let array = array.to_string();
    let trace = ["-f", "-e", "trace=%file", "-o", "trace", PROGRAM];
    let worker = ["worker", "--sweep", "results/s", "--first", "0", "--count", "1", "--gate"];
    let ran = world.call("strace", &[&trace[..], &worker, &["--wave", &array]].concat());
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let tree = world.text_path("results/s");
    let trace = world.read("trace");
    let calls = trace.lines().filter(|line| line.contains(&tree) && !line.contains("execve("));
    calls.fold(String::new(), |mut all, call| {
        let _ = writeln!(all, "{call}");
        all
    })
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
