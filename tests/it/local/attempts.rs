//! `attempts` that were raised in the plan reach trials that the sweep has, with every executor.

use std::fs;

use crate::support::agents::begun;
use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Two trials that fail each time.
fn plan(attempts: u32) -> String {
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; exit 3";
    shell(code, "[pull]\nbackoff = 0\nbreaker = false\n[grid]\na = [1, 2]\n")
        .replace("[run]\n", &format!("[run]\nattempts = {attempts}\n"))
}

fn world() -> World {
    let mut world = World::new();
    world.set("EVENTS", &world.text_path("events"));
    world.write("events", "");
    world
}

/// How often each of the two has begun.
fn runs(world: &World) -> Vec<u32> {
    begun(world).into_values().collect()
}

#[test]
fn raised_attempts_reach_trials_of_a_local_sweep() {
    let world = world();
    assert_eq!((world.local(&plan(1), &[]).code, runs(&world)), (1, vec![1; 2]));
    // Failed trials stay failed until a user asks for them.
    assert_eq!((world.local(&plan(3), &[]).code, runs(&world)), (1, vec![1; 2]));
    assert_eq!((world.local(&plan(3), &["--retry"]).code, runs(&world)), (1, vec![4; 2]));
    assert_eq!((world.local(&plan(2), &["--retry"]).code, runs(&world)), (1, vec![6; 2]));
    assert_eq!(world.column("attempts"), ["6", "6"]);
}

#[test]
fn raised_attempts_reach_trials_of_arrays() {
    let pbs = pbs();
    pbs.submit(&plan(1), &[]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs.world), [1; 2]);
    pbs.submit(&plan(3), &["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs.world), [4; 2]);
    assert_eq!(pbs.standings(), ["failed: exit code 3"; 2]);
}

#[test]
fn raised_attempts_reach_jobs_that_wait() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.submit(&plan(1), &[]).ok();
    pbs.submit(&plan(2), &[]);
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(runs(&pbs.world), [2; 2]);
}

#[test]
fn raised_attempts_reach_trials_of_agents_also_of_one_that_is_at_it() {
    let world = world();
    let pull = |more: &[&str]| {
        world.run(&[&["worker", "--pull", "plan.toml", "--slots", "1"], more].concat()).code
    };
    world.write("plan.toml", &plan(1));
    assert_eq!((pull(&[]), runs(&world)), (1, vec![1; 2]));
    world.write("plan.toml", &plan(3));
    assert_eq!((pull(&["--retry"]), runs(&world)), (1, vec![4; 2]));
    // An agent that runs meanwhile reads the new number.
    let waits = |attempts| {
        plan(attempts).replace("exit 3", "while [ -e $EVENTS.wait ]; do sleep 0.01; done; exit 3")
    };
    world.write("events.wait", "");
    world.write("plan.toml", &waits(1));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it has begun", || world.read("events").lines().count() == 9);
    world.write("plan.toml", &waits(2));
    world.run(&["worker", "--pull", "plan.toml", "--time-left", "1s"]).ok();
    fs::remove_file(world.path("events.wait")).unwrap();
    assert_eq!(agent.end(&world).code, 1);
    assert_eq!(world.read("events").lines().count(), 12);
}
