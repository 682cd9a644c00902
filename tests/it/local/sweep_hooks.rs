//! `[hooks] sweep_finished` and `sweep_failed`: called once at the end of a sweep, as arrays, under agents and on one machine.

use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::World;

/// A plan of trials that `code` runs, with hooks that copy the summary into `told`.
fn plan(code: &str, trials: u32, rest: &str) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    let hook = |name: &str| {
        format!(
            "{name} = [\"sh\", \"-c\", \"(echo {name}; cat $HPCSWEEP_SUMMARY; echo) >>$HPCSWEEP_SWEEP_DIR/told\"]\n"
        )
    };
    let hooks = format!("[hooks]\n{}{}", hook("sweep_finished"), hook("sweep_failed"));
    shell(code, &format!("{hooks}{rest}[grid]\na = [{}]\n", numbers.join(", ")))
}

/// The calls so far: the hook, counts, failures, attempts and why the sweep stopped.
fn told(world: &World) -> Vec<(String, Value)> {
    if !world.exists("results/s/told") {
        return Vec::new();
    }
    let text = world.read("results/s/told");
    let lines: Vec<&str> = text.lines().collect();
    let call = |pair: &[&str]| {
        let summary: Value = serde_json::from_str(pair[1]).unwrap();
        assert!(summary["began"].as_f64() <= summary["ended"].as_f64(), "{summary}");
        assert_eq!(summary["sweep"], "s");
        let kept = ["trials", "counts", "failures", "attempts", "stopped"];
        let kept = kept.map(|name| (name.to_owned(), summary[name].clone()));
        (pair[0].to_owned(), Value::Object(kept.into_iter().collect()))
    };
    lines.chunks(2).map(call).collect()
}

fn finished(trials: u32, counts: Value, failures: Value, attempts: u32) -> (String, Value) {
    let summary = json!({ "trials": trials, "counts": counts, "failures": failures,
        "attempts": attempts, "stopped": null });
    ("sweep_finished".to_owned(), summary)
}

#[test]
fn on_this_machine_it_is_called_once_for_each_end() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || [ -e mended ] || exit 3";
    world.local(&plan(code, 3, ""), &[]);
    let failures = json!([{ "count": 1, "reason": "exit code 3", "trials": "1" }]);
    let first = finished(3, json!({"done": 2, "failed": 1}), failures, 3);
    assert_eq!(told(&world), std::slice::from_ref(&first));
    // Nothing has run since.
    world.local(&plan(code, 3, ""), &[]);
    assert_eq!(told(&world), std::slice::from_ref(&first));
    world.write("mended", "");
    world.local(&plan(code, 3, ""), &["--retry"]).ok();
    let second = finished(3, json!({"done": 3}), json!([]), 4);
    assert_eq!(told(&world), [first.clone(), second.clone()]);
    world.local(&plan(code, 4, ""), &[]).ok();
    let third = finished(4, json!({"done": 4}), json!([]), 5);
    assert_eq!(told(&world), [first, second, third]);
}

#[test]
fn of_several_agents_one_calls_it() {
    let world = World::new();
    world.write("plan.toml", &plan("true", 40, ""));
    let agents: Vec<_> = (0..3).map(|_| world.start(&["worker", "--pull", "plan.toml"])).collect();
    for agent in agents {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(told(&world), [finished(40, json!({"done": 40}), json!([]), 40)]);
}

#[test]
fn a_sweep_that_agents_halt_has_failed() {
    let world = World::new();
    let ran =
        world.local(&plan("exit 1", 40, "[pull]\nbreaker = 0.9\n"), &["--pull", "--slots", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let calls = told(&world);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (calls[0].0.as_str(), &calls[0].1["stopped"]),
        ("sweep_failed", &json!("20 of the last 20 trials failed"))
    );
}

#[test]
fn a_sweep_of_arrays_is_looked_after_until_its_end() {
    let pbs = Pbs::start();
    let retry = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\n";
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || [ -e again ] || { echo >again; exit 75; }";
    pbs.submit(&plan(code, 3, retry), &[]).ok();
    pbs.wait_idle();
    assert_eq!(told(&pbs.world), [finished(3, json!({"done": 3}), json!([]), 4)]);
    // Also without `[retry]`, and behind a cancelled sweep.
    let ran = pbs.submit(&plan(code, 4, ""), &[]);
    assert!(ran.err.contains(" calls the hooks of the sweep"), "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(told(&pbs.world)[1..], [finished(4, json!({"done": 4}), json!([]), 5)]);
}

#[test]
fn a_budget_that_is_used_up_is_a_failure_of_the_sweep() {
    let pbs = Pbs::start();
    let retry = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\nbudget = 0.0001\n";
    pbs.submit(&plan("[ -e mended ] || { sleep 1; exit 75; }", 1, retry), &[]).ok();
    pbs.wait_idle();
    let calls = told(&pbs.world);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(
        (calls[0].0.as_str(), &calls[0].1["stopped"]),
        ("sweep_failed", &json!("the budget of 0.0001 core-hours is used up"))
    );
    // A person repeats it in spite of the budget.
    pbs.world.write("mended", "");
    pbs.world.run(&["retry"]).ok();
    pbs.wait_idle();
    assert_eq!(told(&pbs.world)[1..], [finished(1, json!({"done": 1}), json!([]), 2)]);
    let why = pbs.world.run(&["why", "0"]);
    assert!(!why.ok().contains("not retried"), "{}", why.out);
}

/// On this machine, each time that the budget ends it.
#[test]
fn a_stop_by_the_budget_is_told_again_after_a_rerun_and_with_more_trials() {
    let world = World::new();
    let plan = |trials| {
        let retry = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\nbudget = 0.0000001\n";
        plan("exit 75", trials, retry)
    };
    let stops = || {
        let calls = told(&world);
        let has_failed = |(name, summary): &(String, Value)| {
            name == "sweep_failed" && summary["stopped"].as_str().unwrap().contains("budget")
        };
        assert!(calls.iter().all(has_failed), "{calls:?}");
        calls.len()
    };
    world.local(&plan(3), &[]);
    assert_eq!(stops(), 1);
    // Nothing has run since.
    world.local(&plan(3), &[]);
    assert_eq!(stops(), 1);
    world.local(&plan(3), &["--retry"]);
    assert_eq!(stops(), 2);
    world.local(&plan(4), &[]);
    assert_eq!(stops(), 3);
}

#[test]
fn a_call_that_was_lost_with_the_feeder_is_made_by_the_next_one() {
    let mut pbs = Pbs::start();
    let none_waits = "no job waits that calls the hook `sweep_finished`; to bring one: \
                      hpcsweep submit plan.toml --pbs\n";
    let status = |pbs: &Pbs| pbs.world.run(&["status"]).whole();
    pbs.set("scheduling", false);
    pbs.submit(&plan("true", 2, ""), &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    let seen = status(&pbs);
    assert!(!seen.contains("no job waits"), "{seen}");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(told(&pbs.world), []);
    let seen = status(&pbs);
    assert!(seen.contains(none_waits), "{seen}");
    let again = pbs.again(&["--retry"]);
    assert!(again.err.starts_with("feeder: job 2.pbshead"), "{}", again.whole());
    pbs.wait_idle();
    assert_eq!(told(&pbs.world), [finished(2, json!({"done": 2}), json!([]), 2)]);
    let seen = status(&pbs);
    assert!(!seen.contains("no job waits"), "{seen}");
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!(pbs.jobs().len(), jobs);
}

/// The trials still run when the feeder is lost, and the next one is killed in the middle of the call.
#[test]
fn a_feeder_that_was_lost_early_or_during_the_call_is_replaced() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let hook = "[hooks]\nsweep_finished = [\"sh\", \"-c\", \"echo >>told; [ -e again ] || kill -9 $PPID\"]\n";
    let plan = shell("true", &format!("{hook}[grid]\na = [1, 2]\n"));
    pbs.submit(&plan, &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    let again = pbs.again(&[]);
    assert!(again.err.contains("job 2.pbshead calls the hooks of the sweep"), "{}", again.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.world.read("told").lines().count(), 1);
    pbs.world.write("again", "");
    pbs.again(&[]).ok();
    pbs.wait_idle();
    pbs.again(&[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.world.read("told").lines().count(), 2);
    // A person who has cancelled the feeder wants no call.
    pbs.set("scheduling", false);
    let ran = pbs.submit(&plan.replace("2]", "2, 3]"), &[]);
    assert!(ran.err.contains("calls the hooks"), "{}", ran.whole());
    pbs.world.run(&["cancel"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let seen = pbs.world.run(&["status"]).whole();
    assert!(!seen.contains("no job waits"), "{seen}");
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!((pbs.jobs().len(), pbs.world.read("told").lines().count()), (jobs, 2));
}

#[test]
fn a_call_that_was_lost_with_a_pilot_is_made_by_the_next_submission() {
    let pbs = Pbs::start();
    let hook = "[hooks]\nsweep_finished = [\"sh\", \"-c\", \"echo >>told; [ -e again ] || kill -9 $PPID\"]\n";
    let plan = shell("true", &format!("{hook}[grid]\na = [1, 2]\n"));
    pbs.submit(&plan, &["--pull"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.world.read("told").lines().count(), 1);
    pbs.world.write("again", "");
    for _ in 0..2 {
        let ran = pbs.again(&["--pull"]);
        assert!(ran.err.contains("nothing left to run"), "{}", ran.whole());
    }
    assert_eq!(pbs.world.read("told").lines().count(), 2);
}

/// Killed in the middle of a call: the next run calls it again, once.
#[test]
fn a_call_that_was_killed_is_made_again() {
    let world = World::new();
    let hook = "[hooks]\nsweep_finished = [\"sh\", \"-c\", \"echo >>told; [ -e again ] || kill -9 $PPID\"]\n";
    let plan = shell("true", &format!("{hook}[grid]\na = [1, 2]\n"));
    assert_eq!(world.local(&plan, &[]).code, 137);
    world.write("again", "");
    world.local(&plan, &[]).ok();
    world.local(&plan, &[]).ok();
    assert_eq!(world.read("told").lines().count(), 2);
}

#[test]
fn what_a_hook_says_and_how_it_fails_is_told() {
    let world = World::new();
    let hook = "[hooks]\nsweep_finished = [\"sh\", \"-c\", \"echo said; exit 4\"]\n";
    let ran = world.local(&shell("true", &format!("{hook}[grid]\na = [1]\n")), &[]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("\nhook sweep_finished: exit code 4\n"), "{}", ran.whole());
    assert_eq!(
        world.read("results/s/hooks/output.log"),
        "said\nhpcsweep: hook sweep_finished: exit code 4\n"
    );
}
