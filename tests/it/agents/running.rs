//! `max_running` under agents: together they have no more slots, whatever becomes of them and of the plan.

use nix::sys::signal::Signal;

use crate::support::agents::agent;
use crate::support::agents::{begun, counts, plan, world};
use crate::support::world::{Started, World, wait_until};

/// Trials that write their number, and wait while there is a file of theirs.
const CODE: &str = "echo $HPCSWEEP_TRIAL >>$EVENTS; sleep 0.02; while [ -e $EVENTS.wait.$HPCSWEEP_TRIAL ]; do sleep 0.01; done";

/// Writes a plan of this many trials, of which so many may run at once.
fn lay(world: &World, trials: usize, max_running: u32) {
    let more = format!("[schedule]\nmax_running = {max_running}\n[pull]\nlease = 0.6\n");
    world.write("plan.toml", &plan(CODE, trials, &more));
}

/// Its exit code; none for one that was killed.
fn ended(mut agent: Started) -> Option<i32> {
    agent.child.wait().unwrap().code()
}

fn waits(world: &World, said: &str) {
    wait_until("it waits", || world.read(said).contains("leaves no slot"));
}

/// An agent that runs a trial, and one that waits for its slot.
fn one_of_two(trials: usize) -> (World, Started, Started) {
    let world = world("");
    world.write("events.wait.0", "");
    lay(&world, trials, 1);
    let first = agent(&world, "first");
    wait_until("it has begun", || begun(&world).len() == 1);
    let second = agent(&world, "second");
    waits(&world, "second");
    (world, first, second)
}

#[test]
fn who_waits_for_a_slot_takes_over_a_trial_that_was_not_there_when_it_came() {
    // Enough to do for an agent to look for news meanwhile.
    const OLD: usize = 70;
    let (world, first, second) = one_of_two(OLD);
    world.write(&format!("events.wait.{OLD}"), "");
    lay(&world, OLD + 1, 1);
    // The agent that enqueues the plan has no slot either.
    let third = agent(&world, "third");
    waits(&world, "third");
    third.signal(Signal::SIGTERM);
    assert_eq!(ended(third), Some(143), "{}", world.read("third"));
    std::fs::remove_file(world.path("events.wait.0")).unwrap();
    wait_until("the new trial has begun", || begun(&world).len() == OLD + 1);
    first.signal(Signal::SIGKILL);
    assert_eq!(ended(first), None);
    wait_until("it is taken over", || begun(&world)[&(OLD as u64)] == 2);
    std::fs::remove_file(world.path(&format!("events.wait.{OLD}"))).unwrap();
    assert_eq!(ended(second), Some(0), "{}", world.read("second"));
    assert_eq!(counts(&world), format!("{{\"done\":{}}}", OLD + 1));
    // However long it waits, it says so once.
    let said = world.read("second");
    assert_eq!(said.matches("leaves no slot").count(), 1, "{said}");
}

#[test]
fn who_waits_for_a_slot_begins_when_the_plan_allows_more() {
    let (world, first, second) = one_of_two(1);
    world.write("events.wait.1", "");
    world.write("events.wait.2", "");
    lay(&world, 3, 2);
    // The agent that enqueues the plan may take the slot before the one that waits: it is stopped, and gives it
    // back.
    let third = agent(&world, "third");
    wait_until("it has come", || {
        world.read("third").contains("1 slot") || world.read("third").contains("leaves no slot")
    });
    third.signal(Signal::SIGTERM);
    assert_eq!(ended(third), Some(143), "{}", world.read("third"));
    wait_until("the one that waited has a slot", || world.read("second").contains("1 slot"));
    for trial in 0..3 {
        std::fs::remove_file(world.path(&format!("events.wait.{trial}"))).unwrap();
    }
    assert_eq!((ended(first), ended(second)), (Some(0), Some(0)));
    assert_eq!(counts(&world), r#"{"done":3}"#);
}
