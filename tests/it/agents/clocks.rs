//! Agents whose host's clock is wrong or jumps: no living agent is considered dead because of it, and dead agents
//! are detected.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::agents::agent;
use crate::support::agents::{SAYS, SHORT, begun, counts, plan, start, world};
use crate::support::faults::make_shim;
use crate::support::world::{PROGRAM, Started, World, wait_until};

/// An agent whose clock is off by the seconds in `shift`; it has begun a trial, which waits.
fn shifted(world: &World) -> Started {
    make_shim(world);
    world.write("events.wait", "");
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", "1"]);
    command.env("LD_PRELOAD", world.path("shim.so")).env("CLOCK_SHIFT", world.path("shift"));
    let agent = Started { child: command.spawn().unwrap() };
    wait_until("it has begun", || begun(world).len() == 1);
    agent
}

#[test]
fn clocks_that_jump_expire_nobody_and_lose_nothing() {
    let world = world(&plan(SAYS, 24, SHORT));
    let shifted = shifted(&world);
    let straight = start(&world, "1");
    wait_until("both have begun", || begun(&world).len() == 2);
    for shift in ["-86400", "0", "86400", "-3600", "86400"] {
        // Aside: a reader must not find half a number.
        world.write("shift.new", shift);
        fs::rename(world.path("shift.new"), world.path("shift")).unwrap();
        std::thread::sleep(Duration::from_millis(350));
    }
    fs::remove_file(world.path("events.wait")).unwrap();
    for agent in [shifted, straight] {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(counts(&world), r#"{"done":24}"#);
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 24]);
    assert_eq!(
        (world.entries("results/p", "\"join\""), world.entries("results/p", "\"expire\"")),
        (2, 0)
    );
    // The library did move the clock of one of them.
    let mut days: Vec<f64> = Vec::new();
    for file in world.files("results/p/agents").iter().filter(|f| f.ends_with("jsonl")) {
        let text = world.read(&format!("results/p/agents/{file}"));
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        days.push((first["time"].as_f64().unwrap() / 86400.0).round());
    }
    assert_eq!((days[0] - days[1]).abs(), 1.0, "{days:?}");
}

#[test]
fn a_killed_agent_with_a_clock_of_its_own_is_found_out() {
    let world = world(&plan(SAYS, 6, SHORT));
    let shifted = shifted(&world);
    shifted.signal(Signal::SIGKILL);
    shifted.end(&world);
    fs::remove_file(world.path("events.wait")).unwrap();
    let ran = start(&world, "1").end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(counts(&world), r#"{"done":6}"#);
    assert_eq!(begun(&world).into_values().sum::<u32>(), 7);
}

#[test]
fn of_agents_that_sleep_in_turns_each_is_named_once() {
    let world = world(&plan(SAYS, 2, "[pull]\nlease = 2\n"));
    world.write("events.wait", "");
    let sleepers = ["first", "second"].map(|name| {
        let sleeper = agent(&world, name);
        wait_until("it has begun", || world.read(name).contains("1 slot"));
        sleeper
    });
    wait_until("both have begun", || begun(&world).len() == 2);
    let idle = agent(&world, "idle");
    wait_until("it has come", || world.read("idle").contains("1 slot"));
    let named = |sleeper: &Started| {
        world.read("idle").matches(&format!("agent {} on", sleeper.pid())).count()
    };
    for sleeper in &sleepers {
        sleeper.signal(Signal::SIGSTOP);
        wait_until("it is named", || named(sleeper) == 1);
        sleeper.signal(Signal::SIGCONT);
    }
    sleepers[0].signal(Signal::SIGSTOP);
    wait_until("it is taken for dead", || world.entries("results/p", "\"expire\"") == 1);
    assert_eq!(sleepers.each_ref().map(named), [1, 1], "{}", world.read("idle"));
    sleepers[0].signal(Signal::SIGCONT);
    fs::remove_file(world.path("events.wait")).unwrap();
    for mut agent in sleepers.into_iter().chain([idle]) {
        assert_eq!(agent.child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(counts(&world), r#"{"done":2}"#);
}
