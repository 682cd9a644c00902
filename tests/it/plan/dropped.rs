//! Trials that the newest plan of a sweep no longer has: no process runs them, and every reader reports that.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{World, wait_until};

/// Trial `a` fails where `a` is odd.
fn plan(values: &str) -> String {
    shell("exit $((HPCSWEEP_PARAM_A % 2))", &format!("[grid]\na = [{values}]\n"))
}

fn status(world: &World) -> Value {
    let ran = world.run(&["status", "--json"]);
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.whole()))
}

#[test]
fn readers_say_what_the_plan_has_dropped_and_give_no_advice_that_cannot_help() {
    for how in [&["--local"][..], &["--local", "--pull"], &["--slurm"]] {
        let world = slurm();
        // Trials 0 and 1 are done, 2 and 3 fail.
        world.local(&plan("0, 2, 1, 3"), &how[1..]);
        world.write("plan.toml", &plan("0, 1"));
        world.run(&[&["submit", "plan.toml"], how].concat());
        let told = status(&world);
        assert_eq!(told["counts"]["dropped"], 1, "{how:?}: {told}");
        let of = |trial: usize, key: &str| told["trials"][trial][key].clone();
        // A result stays a result.
        assert_eq!((of(1, "state"), of(2, "state")), (json!("done"), json!("failed")));
        assert_eq!(of(3, "state"), "dropped");
        assert_eq!(of(3, "reason"), "the plan no longer has it; failed: exit code 1");
        assert_eq!(of(3, "exit_code"), 1);

        // Only what it still has can be asked for again.
        let people = world.run(&["status"]);
        assert!(
            people.out.contains("dropped: 1 trial (the plan no longer has it)\n"),
            "{people:?}"
        );
        assert!(people.out.contains("\n1 trial without success:\n"), "{people:?}");
        let collected = world.run(&["collect"]);
        assert!(
            collected.err.contains("dropped: 1 trial (the plan no longer has it)\n"),
            "{collected:?}"
        );
        let seen = world.run(&["watch", "--once", "--offline"]);
        assert!(seen.out.contains("  dropped 1\n"), "{how:?}: {seen:?}");
        assert!(seen.out.contains("dropped: 1 trial (the plan no longer has it)\n"), "{seen:?}");
        assert!(seen.out.contains("\nfailures: 1\n"), "{seen:?}");
    }
}

#[test]
fn what_has_only_dropped_trials_without_success_is_no_failure_and_comes_back_with_them() {
    let world = World::new();
    assert_eq!(world.local(&plan("0, 1"), &[]).code, 1);
    assert_eq!(world.local(&plan("0"), &[]).code, 0);
    let ran = world.run(&["status"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(ran.out.contains("dropped: 1 trial (the plan no longer has it)\n"), "{ran:?}");
    assert!(!ran.out.contains("--retry"), "{ran:?}");
    world.run(&["submit", "plan.toml", "--local", "--retry"]).ok();
    assert_eq!(world.counts(), r#"{"done":1,"dropped":1}"#);
    assert!(fs::exists(world.path("results/s/terms.json")).unwrap());

    assert_eq!(world.local(&plan("0, 1"), &[]).code, 1);
    assert_eq!(world.counts(), r#"{"done":1,"failed":1}"#);
}

#[test]
fn what_a_plan_brings_back_is_retried_as_what_it_was() {
    let world = slurm();
    world.write("plan.toml", &plan("0, 1"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    world.write("plan.toml", &plan("0"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    // Slurm has forgotten both.
    assert_eq!(world.counts(), r#"{"dropped":1,"lost":1}"#);
    world.write("plan.toml", &plan("0, 1"));
    let dry = world.run(&["submit", "plan.toml", "--slurm", "--retry", "--dry-run"]);
    assert!(dry.out.contains("would be submitted: 2 trials (lost)\n"), "{}", dry.whole());
    let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    assert!(ran.err.contains("s: 2 trials submitted as 1 array"), "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"lost":2}"#);
}

/// The plan that was enqueued last is not always the one that was submitted last.
#[test]
fn agents_that_come_with_an_earlier_plan_take_back_what_was_dropped_since() {
    let world = World::new();
    world.local(&plan("0, 1"), &["--pull"]);
    world.local(&plan("0"), &[]).ok();
    assert_eq!(world.counts(), r#"{"done":1,"dropped":1}"#);
    world.local(&plan("0, 1"), &["--pull"]);
    assert_eq!(world.counts(), r#"{"done":1,"failed":1}"#);
}

#[test]
fn a_chain_goes_on_without_a_trial_that_the_plan_has_dropped() {
    let chain = |values: &str| {
        let axis = format!("[schedule]\nchain_along = \"a\"\n[grid]\na = [{values}]\n");
        shell(
            "echo behind ${HPCSWEEP_PREVIOUS_WORK_DIR##*/}; exit $((HPCSWEEP_PARAM_A % 2))",
            &axis,
        )
    };
    // Trial 1 fails, so trial 2 does not run.
    let before = r#"{"done":1,"failed":1,"skipped":1}"#;
    let after = r#"{"done":2,"dropped":1}"#;
    for how in [&["--local"][..], &["--local", "--pull"]] {
        let world = World::new();
        world.local(&chain("0, 1, 2"), &how[1..]);
        assert_eq!(world.counts(), before, "{how:?}");
        world.write("plan.toml", &chain("0, 2"));
        world.run(&[&["submit", "plan.toml", "--retry"], how].concat());
        assert_eq!(world.counts(), after, "{how:?}");
        assert_eq!(world.run(&["logs", "2"]).ok(), "behind 0\n");
    }
    let pbs = Pbs::start();
    pbs.submit(&chain("0, 1, 2"), &[]);
    pbs.wait_idle();
    assert_eq!(pbs.world.counts(), before);
    pbs.submit(&chain("0, 2"), &["--retry"]);
    pbs.wait_idle();
    assert_eq!(pbs.world.counts(), after);
    assert_eq!(pbs.world.run(&["logs", "2"]).ok(), "behind 0\n");
}

/// An agent that still has another trial took the chain over from one that was killed, and passed over the trial while the plan did
/// not have it.
/// A plan of a chain and a trial `d`. Each writes its name, and waits until it may end.
fn chain_and_d(chain: &str) -> String {
    let trials: Vec<String> = (chain.chars())
        .map(|name| format!("[[trials]]\ntask_id = \"c\"\nname = \"{name}\"\n"))
        .chain(["[[trials]]\ntask_id = \"d\"\nname = \"d\"\n".to_owned()])
        .collect();
    let code = "echo $HPCSWEEP_PARAM_NAME >>events; until [ -e go.$HPCSWEEP_PARAM_NAME ]; do sleep 0.01; done";
    shell(code, &format!("[pull]\nlease = 0.6\n{}", trials.concat()))
}

#[test]
fn what_the_plan_brings_back_runs_again_although_an_agent_passed_over_it() {
    let world = World::new();
    let plan = |chain: &str| world.write("plan.toml", &chain_and_d(chain));
    let start = |slots: &str| world.start(&["worker", "--pull", "plan.toml", "--slots", slots]);
    let begun =
        |lines: &str| wait_until(lines, || world.exists("events") && world.read("events") == lines);
    let reason = || world.status()["trials"][1]["reason"].as_str().unwrap().to_owned();
    let passed = "the plan no longer has it; skipped: the plan had dropped it";
    plan("ab");
    let first = start("1");
    begun("a\n");
    plan("a");
    let second = start("2");
    begun("a\nd\n");
    first.signal(Signal::SIGKILL);
    wait_until("it runs again", || world.read("events") == "a\nd\na\n");
    world.write("go.a", "");
    wait_until("it is passed over", || reason() == passed);
    world.write("go.b", "");
    world.write("go.c", "");
    plan("abc");
    let third = start("1");
    wait_until("it has begun", || world.read("events").contains("c\n"));
    world.write("go.d", "");
    for agent in [second, third] {
        assert_eq!(agent.end(&world).code, 0);
    }
    drop(first.end(&world));
    assert_eq!(world.counts(), r#"{"done":4}"#);
    assert_eq!(world.read("events"), "a\nd\na\nb\nc\n");
}

/// As before, but the agent runs a later trial of the chain when the plan brings it back.
#[test]
fn what_the_plan_brings_back_runs_when_the_rest_of_its_chain_has_ended() {
    let world = World::new();
    let plan = |chain: &str| world.write("plan.toml", &chain_and_d(chain));
    let start = |slots: &str| world.start(&["worker", "--pull", "plan.toml", "--slots", slots]);
    let until = |events: &str| {
        wait_until(events, || world.exists("events") && world.read("events") == events);
    };
    for name in ["a", "b", "d"] {
        world.write(&format!("go.{name}"), "");
    }
    std::fs::remove_file(world.path("go.a")).unwrap();
    plan("abc");
    let first = start("1");
    until("a\n");
    plan("ac");
    let second = start("2");
    until("a\nd\n");
    first.signal(Signal::SIGKILL);
    drop(first.end(&world));
    until("a\nd\na\n");
    world.write("go.a", "");
    until("a\nd\na\nc\n");
    plan("abc");
    let third = start("1");
    wait_until("it has joined", || world.run(&["status"]).out.contains("2 agents at work"));
    world.write("go.c", "");
    for agent in [second, third] {
        assert_eq!(agent.end(&world).code, 0);
    }
    assert_eq!(start("1").end(&world).code, 0);
    assert_eq!(world.counts(), r#"{"done":4}"#);
    assert_eq!(world.read("events"), "a\nd\na\nc\nb\n");
}

#[test]
fn values_in_another_form_are_named_where_they_make_all_trials_new() {
    let world = World::new();
    let plan = |values: &str| shell("true", &format!("[grid]\na = [{values}]\nb = [\"x\"]\n"));
    world.local(&plan("1, 2"), &["-q"]).ok();
    let said = "the form of `a` (1 and 1.0) changed: all 2 trials are new; 2 trials of earlier plans left alone\n";
    for values in ["1.0, 2.0", "\"1\", \"2\"", "1.0, 3.0", "5, 6"] {
        world.write("plan.toml", &plan(values));
        let ran = world.run(&["submit", "plan.toml", "--local", "--dry-run"]);
        let said = said.replace("1.0", if values.starts_with('"') { "\"1\"" } else { "1.0" });
        assert_eq!(ran.whole().contains(&said), values != "5, 6", "{values}: {}", ran.whole());
    }
}
