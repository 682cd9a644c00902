//! A hook whose caller is killed between the end of its trial and the end of the call is called by who looks next.

use hpcsweep::sweep::tree::Tree;
use hpcsweep::sweep::tree::lock::Lock;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// A hook that notes its call. Before that, the first time for each trial, it runs `$FIRST`.
const HOOK: &str = r#"#!/bin/sh
if mkdir "$CALLS.$HPCSWEEP_TRIAL" 2>/dev/null; then eval "$FIRST"; fi
echo "$1 $HPCSWEEP_TRIAL $HPCSWEEP_STATE code=$HPCSWEEP_EXIT_CODE ${HPCSWEEP_LOG_TAIL%%hpcsweep*}" | head -1 >>"$CALLS"
"#;

const KILL: &str = "kill -9 $PPID; exit";

/// Trials of which the last fails.
fn plan(trials: u32) -> String {
    let hooks = "[hooks]\nfinish = [\"hook\", \"finish\"]\nerror = [\"hook\", \"error\"]\n";
    let rest = format!("{hooks}[grid]\nn = {:?}\n", (0..trials).collect::<Vec<_>>());
    let code = format!("echo said $HPCSWEEP_PARAM_N; [ $HPCSWEEP_PARAM_N != {} ]", trials - 1);
    shell(&code, &rest)
}

fn prepare(world: &mut World, first: &str) {
    let calls = world.text_path("calls");
    world.set("CALLS", &calls);
    world.set("FIRST", first);
    world.program("hook", HOOK);
}

/// The calls that came to their end, sorted.
fn calls(world: &World) -> Vec<String> {
    let text = if world.exists("calls") { world.read("calls") } else { String::new() };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

const CALLED: [&str; 3] =
    ["error 2 failed code=1 said 2", "finish 0 done code=0 said 0", "finish 1 done code=0 said 1"];

const OWED: &str = "3 hooks not called to the end, as the callers were lost (trials 0-2); to call them: \
                    hpcsweep submit plan.toml --";

#[test]
fn a_run_on_this_machine_calls_the_hooks_of_workers_that_were_killed() {
    let mut world = World::new();
    prepare(&mut world, KILL);
    let ran = world.local(&plan(3), &[]);
    assert_eq!(calls(&world), CALLED, "{}", ran.whole());
    let said = "3 hooks called of trials that have ended: the callers were lost\n";
    assert!(ran.err.contains(said), "{}", ran.whole());
    world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(calls(&world), CALLED);
}

#[test]
fn a_hook_that_a_stop_has_ended_is_called_by_the_next_run() {
    let mut world = World::new();
    prepare(&mut world, ": >waits; exec sleep 600");
    world.write("plan.toml", &plan(1).replace("!= 0 ]", "= 0 ]"));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("the hook waits", || world.exists("waits"));
    started.signal(Signal::SIGTERM);
    started.end(&world);
    assert_eq!(world.status()["uncalled_hooks"], json!([0]));
    // As long as a run has the sweep, wherever that is, its hooks may be under way.
    let lock = Lock::take(&Tree::at(&world.path("results/s"))).unwrap();
    assert_eq!(world.status().get("uncalled_hooks"), None);
    drop(lock);
    world.run(&["submit", "plan.toml", "--local"]).ok();
    assert_eq!(calls(&world), ["finish 0 done code=0 said 0"]);
    assert_eq!(world.status().get("uncalled_hooks"), None);
}

#[test]
fn status_names_the_hooks_of_jobs_that_were_killed_and_the_next_submission_calls_them() {
    let mut pbs = Pbs::start();
    prepare(&mut pbs.world, KILL);
    pbs.submit(&plan(3), &[]).ok();
    pbs.wait_idle();
    assert_eq!(calls(&pbs.world), [""; 0]);
    let seen = pbs.world.run(&["status"]).out;
    assert!(seen.contains(&format!("{OWED}pbs\n")), "{seen}");
    let again = pbs.again(&[]).whole();
    assert_eq!(calls(&pbs.world), CALLED, "{again}");
    let seen = pbs.world.run(&["status"]).out;
    assert!(!seen.contains("not called"), "{seen}");
    pbs.again(&[]).ok();
    assert_eq!(calls(&pbs.world), CALLED);
}

#[test]
fn a_job_that_is_given_back_to_the_queue_calls_the_hook_of_its_trial_that_is_done() {
    let mut pbs = Pbs::start();
    prepare(&mut pbs.world, ": >waits; exec sleep 600");
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    pbs.submit(&plan(1).replace("!= 0 ]", "= 0 ]"), &[]).ok();
    wait_until("the hook waits", || pbs.world.exists("waits"));
    let seen = pbs.world.run(&["status"]).out;
    assert!(!seen.contains("not called"), "its caller is alive: {seen}");
    pbs.world.call("qrerun", &["0[0]"]).ok();
    wait_until("the hook is called", || !calls(&pbs.world).is_empty());
    pbs.wait_idle();
    assert_eq!(calls(&pbs.world), ["finish 0 done code=0 said 0"]);
    assert_eq!(pbs.world.table(&[]).len(), 1);
    let seen = pbs.world.run(&["status"]).out;
    assert!(!seen.contains("not called"), "{seen}");
}

#[test]
fn a_feeder_calls_the_hooks_of_jobs_that_were_killed() {
    let mut pbs = Pbs::start();
    prepare(&mut pbs.world, KILL);
    let plan = plan(3).replace("[hooks]", "[hooks]\nsweep_finished = [\"true\"]");
    pbs.submit(&plan, &[]).ok();
    pbs.wait_idle();
    assert_eq!(calls(&pbs.world), CALLED);
}

/// What is cancelled is to end; it is not called again.
#[test]
fn a_hook_that_was_cancelled_is_not_called_again() {
    let mut pbs = Pbs::start();
    prepare(&mut pbs.world, ": >waits; exec sleep 600");
    pbs.submit(&plan(1).replace("!= 0 ]", "= 0 ]"), &[]).ok();
    wait_until("the hook waits", || pbs.world.exists("waits"));
    pbs.world.run(&["cancel"]).ok();
    pbs.wait_idle();
    let seen = pbs.world.run(&["status"]).out;
    assert!(!seen.contains("not called"), "{seen}");
    pbs.again(&[]).ok();
    assert_eq!(calls(&pbs.world), [""; 0]);
}

#[test]
fn the_next_agent_calls_the_hooks_of_one_that_was_killed() {
    let mut world = World::new();
    prepare(&mut world, KILL);
    let plan =
        plan(1).replace("!= 0 ]", "= 0 ]").replace("[hooks]", "[pull]\nlease = \"5s\"\n[hooks]");
    world.write("plan.toml", &plan);
    let killed = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(killed.code, 137, "{}", killed.whole());
    assert_eq!(calls(&world), [""; 0]);
    world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]).ok();
    assert_eq!(calls(&world), ["finish 0 done code=0 said 0"]);
    assert_eq!(world.status().get("uncalled_hooks"), None);
}
