//! `[retry] auto` under agents: what failed for a reason that the plan names runs again, by the agent that saw it fail or by
//! another one.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::world::{PROGRAM, Started, World, wait_until};

/// A sweep whose trials append their number to `ran` and go on by it: `code` has a case for each. `rest` begins with keys of
/// `[retry]`; times of agents are short.
fn world(code: &str, rest: &str) -> World {
    let code = format!(
        "echo $HPCSWEEP_TRIAL >>ran; n=$(grep -cx $HPCSWEEP_TRIAL ran); case $HPCSWEEP_TRIAL in {code} esac"
    );
    let (world, code) = (World::new(), Value::from(code));
    world.write(
        "plan.toml",
        &format!(
            "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n\
             [retry]\nauto = true\n{rest}"
        ),
    );
    world
}

/// An axis of so many trials, and how agents share them.
fn agents(trials: u64, pull: &str) -> String {
    let all: Vec<String> = (0..trials).map(|i| i.to_string()).collect();
    let pull = format!("[pull]\nlease = 0.6\nbackoff = 0.01\nbreaker = false\n{pull}");
    format!("{pull}[grid]\ni = [{}]\n", all.join(", "))
}

/// How often each of these trials ran.
fn runs(world: &World, trials: u64) -> Vec<usize> {
    let ran = world.read("ran");
    (0..trials).map(|trial| ran.lines().filter(|line| *line == trial.to_string()).count()).collect()
}

/// The state of each trial with its reason.
fn standings(world: &World) -> Vec<String> {
    let status = world.status();
    let text = |trial: &Value, name: &str| trial[name].as_str().unwrap_or_default().to_owned();
    let all = status["trials"].as_array().unwrap().iter();
    all.map(|trial| format!("{} {}", text(trial, "state"), text(trial, "reason")).trim().to_owned())
        .collect()
}

/// What `why` says that was decided, in the order of time, those of one trial after those of another.
fn decided(world: &World) -> Vec<String> {
    let why = world.run(&["why", "--json"]);
    let events = why.ok().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = events.filter(|event| event["what"].as_str().unwrap().contains("retried"));
    let mut all: Vec<(u64, String)> = events
        .map(|event| {
            let trial = event["trial"].as_u64().unwrap();
            (trial, format!("{trial} {}", event["what"].as_str().unwrap()))
        })
        .collect();
    all.sort_by_key(|(trial, _)| *trial);
    all.into_iter().map(|(_, what)| what).collect()
}

/// Starts an agent of one slot with these variables.
fn agent(world: &World, vars: &[(&str, &str)]) -> Started {
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", "1"]).envs(vars.iter().copied());
    Started { child: command.spawn().unwrap() }
}

#[test]
fn only_what_the_plan_names_runs_again_and_only_so_often() {
    let code = "0) ;; 1) [ $n = 2 ] || exit 75 ;; 2) exit 75 ;; 3) exit 1 ;;";
    let rest = format!("exit_codes = {{ 75 = \"again\" }}\nmax = 2\n{}", agents(4, ""));
    let world = world(code, &rest);
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(runs(&world, 4), [1, 2, 3, 1]);
    assert_eq!(standings(&world), ["done", "done", "failed exit code 75", "failed exit code 1"]);
    assert_eq!(
        decided(&world),
        [
            "1 retried (exit code 75: again (1 of 2))",
            "2 retried (exit code 75: again (1 of 2))",
            "2 retried (exit code 75: again (2 of 2))",
            "2 not retried (exit code 75: it has run again 2 times)",
            "3 not retried (exit-code: nothing in `[retry]` repeats it)",
        ]
    );
    let why = world.run(&["why", "2"]);
    assert!(
        why.ok().contains("\n  not retried: exit code 75: it has run again 2 times\n"),
        "{}",
        why.out
    );
    // A person is not bound by that, and what a person asks for is counted anew.
    world.run(&["retry", "2"]).ok();
    world.run(&["worker", "--pull", "results/p", "--slots", "2"]);
    assert_eq!(runs(&world, 4), [1, 2, 6, 1]);
}

#[test]
fn chains_wait_for_a_repeat_and_hooks_are_called_for_ends_that_are_for_good() {
    let code = "0) [ $n = 2 ] || exit 75 ;; 1) ;; 2) exit 75 ;; 3) ;;";
    let link = |chain: u32, i: u32| format!("[[trials]]\ntask_id = {chain}\ni = {i}\n");
    let links: String = [(0, 0), (0, 1), (1, 2), (1, 3)].map(|(c, i)| link(c, i)).concat();
    let hook = |name| {
        format!(
            "{name} = [\"sh\", \"-c\", \"echo {name} $HPCSWEEP_TRIAL $HPCSWEEP_ATTEMPT >>told\"]\n"
        )
    };
    let hooks = format!("[hooks]\n{}{}", hook("finish"), hook("error"));
    let rest = format!(
        "exit_codes = {{ 75 = \"again\" }}\nmax = 1\n{hooks}[pull]\nbackoff = 0.01\nbreaker = false\n{links}"
    );
    let world = world(code, &rest);
    let ran = world.run(&["submit", "plan.toml", "--local", "--pull"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(
        standings(&world),
        ["done", "done", "failed exit code 75", "skipped its chain stopped: trial 2 failed"]
    );
    let mut told: Vec<String> = world.read("told").lines().map(str::to_owned).collect();
    told.sort();
    assert_eq!(told, ["error 2 2", "finish 0 2", "finish 1 1"]);
}

#[test]
fn what_was_decided_before_an_agent_is_killed_holds_for_the_next_one() {
    let rest = agents(1, "").replace("backoff = 0.01", "backoff = 60");
    let rest = format!("exit_codes = {{ 75 = \"again\" }}\nmax = 1\n{rest}");
    let world = world("0) exit 75 ;;", &rest);
    let first = agent(&world, &[]);
    wait_until("it was decided", || world.exists("ran") && !decided(&world).is_empty());
    // It has not failed: it waits for its repeat.
    assert_eq!(standings(&world), ["queued for an agent"]);
    first.signal(Signal::SIGKILL);
    first.end(&world);
    world.run(&["hold"]).ok();
    world.run(&["release"]).ok();
    let ran = world.run(&["worker", "--pull", "plan.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(runs(&world, 1), [2]);
    assert_eq!(
        decided(&world),
        [
            "0 retried (exit code 75: again (1 of 1))",
            "0 not retried (exit code 75: it has run again once)",
        ]
    );
    // All that has happened, in the order of time: what agents, people and `[retry]` have done.
    let why = world.run(&["why", "--json"]).ok().to_owned();
    let events: Vec<Value> = why.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.is_sorted_by_key(|event| event["time"].as_f64().unwrap()), "{why}");
    let what = |event: &Value| event["what"].as_str().unwrap().to_owned();
    let by = what(events.iter().find(|event| what(event).starts_with("held by ")).unwrap());
    assert_eq!(
        events.iter().map(what).collect::<Vec<_>>(),
        [
            "1 trial for agents",
            "agent joined",
            "started",
            "failed (exit-code)",
            "retried (exit code 75: again (1 of 1))",
            &by,
            "released",
            "agent joined",
            "agent lost",
            "started again",
            "failed (exit-code)",
            "not retried (exit code 75: it has run again once)",
            "agent left",
        ]
    );
}

#[test]
fn a_repeat_that_agents_did_not_get_to_runs_on_this_machine() {
    let rest = agents(2, "").replace("backoff = 0.01", "backoff = 60");
    let rest = format!("exit_codes = {{ 75 = \"again\" }}\nmax = 2\n{rest}");
    let world = world("0) [ $n = 3 ] || exit 75 ;;", &rest);
    let first = agent(&world, &[]);
    wait_until("it was decided", || world.exists("ran") && !decided(&world).is_empty());
    wait_until("the other is done", || standings(&world)[1] == "done");
    first.signal(Signal::SIGTERM);
    first.end(&world);
    world.run(&["cancel"]).ok();
    let ran = world.run(&["submit", "plan.toml", "--local", "-j", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(runs(&world, 2), [3, 1]);
    // That of the agent counts.
    assert_eq!(
        decided(&world),
        ["0 retried (exit code 75: again (1 of 2))", "0 retried (exit code 75: again (2 of 2))"]
    );
}

#[test]
fn a_trial_that_was_lost_with_its_agent_counts_and_is_kept_from_its_host() {
    let code = "0) [ $n = 2 ] || { echo $$ >pid; sleep 1000; } ;; 1) until [ -e go ]; do sleep 0.01; done ;;";
    let rest = format!("node = {{ exclude = true }}\n{}", agents(2, ""));
    let world = world(code, &rest);
    let lost = agent(&world, &[("SLURMD_NODENAME", "n1")]);
    wait_until("it is at trial 0", || world.exists("pid"));
    let other = agent(&world, &[("SLURMD_NODENAME", "n2")]);
    wait_until("the other one is at trial 1", || world.read("ran").contains('1'));
    let idle = agent(&world, &[("SLURMD_NODENAME", "n1")]);
    lost.signal(Signal::SIGKILL);
    lost.end(&world);
    wait_until("it was decided", || !decided(&world).is_empty());
    // The idle one could take it now, and does not.
    world.write("go", "");
    for agent in [other, idle] {
        agent.end(&world).ok();
    }
    assert_eq!(runs(&world, 2), [2, 1]);
    assert_eq!(decided(&world), ["0 retried (worker-lost on n1: again, not on n1 (1 of 3))"]);
    assert_eq!(world.column("host"), ["\"n2\"", "\"n2\""]);
}

#[test]
fn agents_that_are_preempted_hand_a_trial_on_as_often_as_the_plan_allows() {
    for (rest, more) in [("max = 1", ""), ("max = 1\npreempted = { unlimited = true }", " free")] {
        let world = world("0) sleep 1000 ;;", &format!("{rest}\n{}", agents(1, "")));
        for begun in 1..=2 {
            let agent = agent(&world, &[("SLURM_JOB_ID", "12")]);
            wait_until("it is at it", || world.exists("ran") && runs(&world, 1) == [begun]);
            agent.signal(Signal::SIGTERM);
            agent.end(&world);
        }
        let (standing, said) = match more {
            "" => (
                "failed the agent got SIGTERM",
                vec![
                    "0 retried (preempted: again (1 of 1))",
                    "0 not retried (preempted: it has run again once)",
                ],
            ),
            _ => ("queued no agent is at work", vec!["0 retried (preempted: again)"; 2]),
        };
        assert_eq!(
            (standings(&world), decided(&world)),
            (vec![standing.to_owned()], said.iter().map(ToString::to_string).collect())
        );
        let how = "\nto go on with what is queued: hpcsweep submit plan.toml --local --pull\n";
        assert_eq!(world.run(&["status"]).out.contains(how), !more.is_empty());
        if more.is_empty() {
            assert_eq!(world.status()["trials"][0]["cause"], "preempted");
        }
    }
}

#[test]
fn a_trial_has_more_time_each_time_while_it_comes_further() {
    let code =
        "0) echo '{\"step\": '$n'}' >>$HPCSWEEP_METRICS; [ $n = 3 ] || sleep 60 ;; 1) sleep 60 ;;
        2) echo '{\"step\": 1}' >>$HPCSWEEP_METRICS; sleep 60 ;;";
    let rest = format!(
        "timeout = {{ walltime = \"x1.5\", up_to = \"3s\" }}\n[resources]\nwalltime = \"2s\"\n{}",
        agents(3, "")
    );
    let world = world(code, &rest);
    world.run(&["worker", "--pull", "plan.toml", "--slots", "3"]);
    assert_eq!(runs(&world, 3), [3, 1, 2]);
    assert_eq!(
        decided(&world),
        [
            "0 retried (walltime of 00:00:02: again with 00:00:03 (1 of 3))",
            "0 retried (walltime of 00:00:03: again (2 of 3))",
            "1 not retried (walltime: it wrote no checkpoint, and its metrics did not advance)",
            "2 retried (walltime of 00:00:02: again with 00:00:03 (1 of 3))",
            "2 not retried (walltime: it wrote no checkpoint, and its metrics did not advance)",
        ]
    );
}

#[test]
fn what_needs_more_time_than_an_agent_has_left_is_for_another_one() {
    let code = "0) mkdir -p $HPCSWEEP_CHECKPOINT_DIR; echo $n >$HPCSWEEP_CHECKPOINT_DIR/state; [ $n = 2 ] || sleep 60 ;;";
    let rest = format!(
        "timeout = {{ walltime = \"x4\" }}\n[resources]\nwalltime = \"3s\"\n{}",
        agents(1, "")
    );
    let world = world(code, &rest);
    // 13 s of it are usable: enough for the repeat at the beginning, and not after the first attempt.
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "28s"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(
        ran.err.contains("too little time is left for the trials that wait"),
        "{}",
        ran.whole()
    );
    assert_eq!(standings(&world), ["queued no agent is at work"]);
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!((standings(&world), runs(&world, 1)), (vec!["done".to_owned()], vec![2]));
    assert_eq!(decided(&world), ["0 retried (walltime of 00:00:03: again with 00:00:12 (1 of 3))"]);
}

#[test]
fn a_trial_that_had_too_little_memory_runs_alone() {
    let fails = "printf 'Traceback (most recent call last):\\nMemoryError\\n' >&2; exit 1";
    let code = format!(
        "0) [ ! -e busy ] || [ $n = 1 ] || echo together >>ran; [ $n = 2 ] || {{ {fails}; }} ;;
         1) : >busy; until [ -e go ]; do sleep 0.01; done; rm busy ;;
         2) {fails} ;;"
    );
    let rest = format!("oom = {{ memory = \"x2\" }}\n{}", agents(3, ""));
    let world = world(&code, &rest);
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    wait_until("both were decided", || world.exists("ran") && decided(&world).len() == 2);
    world.write("go", "");
    assert_eq!(agent.end(&world).code, 1);
    assert_eq!((runs(&world, 3), world.read("ran").contains("together")), (vec![2, 1, 2], false));
    let again = "retried (out-of-memory: again, with no other trial beside it (1 of 3))";
    assert_eq!(
        decided(&world),
        [
            format!("0 {again}"),
            format!("2 {again}"),
            "2 not retried (out-of-memory: no other trial ran beside it, and there is no more memory)".to_owned(),
        ]
    );
}

/// Who enqueues the trial decides that. The trial waits for a while that another one begins beside it.
#[test]
fn a_trial_that_had_too_little_memory_without_agents_runs_alone_under_agents() {
    let code = "0) [ $n = 2 ] || { echo MemoryError >&2; exit 1; }
            i=0; until [ -e begun ] || [ $i = 50 ]; do sleep 0.01; i=$((i+1)); done; echo over >>ran ;;
         1) echo >begun ;;";
    let world = world(code, &format!("oom = {{ memory = \"x2\" }}\n{}", agents(1, "")));
    let rules = world.read("plan.toml");
    world.write("plan.toml", &rules.replace("auto = true", "auto = false"));
    assert_eq!(world.run(&["submit", "plan.toml"]).code, 1);
    world.write("plan.toml", &rules.replace("i = [0]", "i = [0, 1]"));
    world.run(&["worker", "--pull", "plan.toml", "--slots", "2"]).ok();
    assert_eq!(world.read("ran"), "0\n0\nover\n1\n");
}

#[test]
fn a_repeat_of_a_trial_with_a_copy_counts_once_and_the_first_end_without_a_repeat_is_the_result() {
    let code = "0) if mkdir first 2>/dev/null; then until [ -e fail ]; do sleep 0.01; done; exit 75
            elif mkdir second 2>/dev/null; then until [ -e win ]; do sleep 0.01; done
            else : >third; sleep 1000; fi ;;";
    let hook =
        |name| format!("{name} = [\"sh\", \"-c\", \"echo {name} $HPCSWEEP_TRIAL >>told\"]\n");
    let hooks = format!("[hooks]\n{}{}", hook("finish"), hook("error"));
    let rest = format!(
        "exit_codes = {{ 75 = \"again\" }}\n{hooks}{}",
        agents(8, "repeatable = true\n").replace("lease = 0.6", "lease = 20")
    );
    let world = world(code, &rest);
    let slow = agent(&world, &[]);
    wait_until("the slow one is at it", || world.exists("first"));
    let other = agent(&world, &[]);
    wait_until("there is a copy", || world.exists("second"));
    world.write("fail", "");
    wait_until("it runs again beside its copy", || world.exists("third"));
    world.write("win", "");
    let codes = [slow.end(&world).code, other.end(&world).code];
    assert_eq!((codes, standings(&world)), ([0, 0], vec!["done".to_owned(); 8]));
    assert_eq!(runs(&world, 8), [3, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(decided(&world), ["0 retried (exit code 75: again (1 of 3))"]);
    let told = world.read("told");
    let of_first: Vec<&str> = told.lines().filter(|line| line.ends_with(" 0")).collect();
    assert_eq!(of_first, ["finish 0"]);
}

#[test]
fn a_budget_that_is_used_up_ends_it_and_the_hook_of_the_sweep_says_so() {
    let hook = "sweep_failed = [\"sh\", \"-c\", \"cat $HPCSWEEP_SUMMARY >>told\"]\n";
    let rest = format!(
        "exit_codes = {{ 75 = \"again\" }}\nbudget = 0.0001\n[hooks]\n{hook}{}",
        agents(1, "")
    );
    let world = world("0) sleep 0.2; exit 75 ;;", &rest);
    let ran = world.run(&["worker", "--pull", "plan.toml"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    // Less than half of it was used by the first attempt.
    assert!((2..=3).contains(&runs(&world, 1)[0]), "{:?}", runs(&world, 1));
    let why = "the budget of 0.0001 core-hours is used up";
    assert_eq!(decided(&world).last().unwrap(), &format!("0 not retried ({why})"));
    let told: Value = serde_json::from_str(&world.read("told")).unwrap();
    assert_eq!((&told["stopped"], &told["counts"]), (&json!(why), &json!({ "failed": 1 })));
}
