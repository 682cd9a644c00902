//! Agents: each trial runs once, in the order of its chain, by the agent that takes it. Other agents take
//! over the trials of agents that leave, die or sleep. Long because every claim needs a sweep, agents and a
//! check of both.

use std::collections::BTreeMap;
use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::world::{Ran, Started, World, wait_until};

/// A plan whose trials run this shell code; `more` is further TOML, tables included.
fn plan(code: &str, more: &str) -> String {
    let code = Value::from(code).to_string();
    format!("version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n{more}")
}

/// An axis `i` with this many values.
fn axis(n: usize) -> String {
    let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!("[grid]\ni = [{}]\n", values.join(", "))
}

impl World {
    /// Starts an agent with these slots and waits until it has joined.
    fn agent(&self, args: &[&str]) -> Started {
        let before = self.files("results/p/agents").len();
        let agent = self.start(&[&["worker", "--pull", "plan.toml"], args].concat());
        wait_until("the agent has joined", || self.files("results/p/agents").len() > before);
        agent
    }

    /// How often each trial wrote this word to the file `events`.
    fn events(&self, word: &str) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        let text = if self.exists("events") { self.read("events") } else { String::new() };
        for line in text.lines() {
            if let Some(trial) = line.strip_prefix(word) {
                *counts.entry(trial.trim().to_owned()).or_default() += 1;
            }
        }
        counts
    }

    /// The states of all trials with their numbers, as `status --json` counts them.
    pub(crate) fn counts(&self) -> String {
        self.status()["counts"].to_string()
    }
}

const SAYS: &str = "echo begin $HPCSWEEP_TRIAL >>events; echo out $HPCSWEEP_TRIAL";

#[test]
fn agents_share_a_sweep_that_one_of_them_laid_down() {
    let world = World::new();
    world.write("plan.toml", &plan(SAYS, &axis(200)));
    let all: Vec<Started> =
        (0..24).map(|_| world.start(&["worker", "--pull", "plan.toml", "--slots", "1"])).collect();
    for agent in all {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    let events = world.events("begin");
    assert_eq!((events.len(), events.values().sum::<u32>()), (200, 200));
    assert_eq!(world.counts(), r#"{"done":200}"#);
    assert_eq!(world.run(&["logs", "17"]).ok(), "out 17\n");
    // A later agent finds nothing to do.
    let late = world.run(&["worker", "--pull", "results/p"]);
    assert!(late.err.ends_with("agent: no trial ended here\n"), "{}", late.whole());
    assert_eq!(late.code, 0);
    // Two files an agent and slot, and a handful for the sweep.
    let agents = world.files("results/p/agents").len();
    assert!(agents <= 25 * 2, "{agents}");
    assert_eq!(world.files("results/p/records"), [""; 0]);
}

#[test]
fn chains_keep_their_order_and_stop_at_a_failure() {
    let world = World::new();
    let code = "echo $HPCSWEEP_CHAIN $HPCSWEEP_LINK >>events; [ $HPCSWEEP_PARAM_X != 2 ] || exit 3";
    let more = "[schedule]\nchain_along = \"k\"\n[grid]\nx = [1, 2, 3, 4, 5, 6]\nk = [1, 2, 3]\n";
    world.write("plan.toml", &plan(code, more));
    let other = world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    let codes = [ran.code, other.end(&world).code];
    assert!(codes.contains(&1), "{codes:?}");
    let mut links: BTreeMap<String, String> = BTreeMap::new();
    for line in world.read("events").lines() {
        let (chain, link) = line.split_once(' ').unwrap();
        links.entry(chain.to_owned()).or_default().push_str(link);
    }
    let order: Vec<&str> = links.values().map(String::as_str).collect();
    assert_eq!(order, ["012", "0", "012", "012", "012", "012"]);
    assert_eq!(world.counts(), r#"{"done":15,"failed":1,"skipped":2}"#);
}

/// A sweep of six whose trial 2 waits for the file `go`, with an agent in the middle of it.
fn waiting(world: &World, more: &str) -> Started {
    let code = "echo begin $HPCSWEEP_TRIAL >>events
        if [ $HPCSWEEP_TRIAL = 2 ]; then while [ ! -e go ]; do sleep 0.01; done; fi
        echo end $HPCSWEEP_TRIAL >>events";
    let more = format!("{more}\n{}", axis(6));
    world.write("plan.toml", &plan(code, &more));
    let agent = world.agent(&["--slots", "1"]);
    wait_until("trial 2 runs", || world.events("begin").contains_key("2"));
    agent
}

const SHORT: &str = "[pull]\nlease = 0.6\n";

#[test]
fn the_trials_of_an_agent_that_was_killed_run_again_after_its_lease() {
    let world = World::new();
    let agent = waiting(&world, SHORT);
    agent.signal(Signal::SIGKILL);
    agent.end(&world);
    world.write("go", "");
    let ran = world.run(&["worker", "--pull", "results/p", "--slots", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let begun: Vec<u32> = world.events("begin").into_values().collect();
    assert_eq!(begun, [1, 1, 2, 1, 1, 1]);
    assert_eq!(world.counts(), r#"{"done":6}"#);
    assert_eq!(world.column("attempts"), ["1", "1", "2", "1", "1", "1"]);
}

#[test]
fn who_may_go_stays_while_dead_agents_hold_trials() {
    let world = World::new();
    let code = "echo begin $HPCSWEEP_TRIAL >>events; while [ ! -e go ]; do sleep 0.01; done";
    world.write("plan.toml", &plan(code, &format!("[pull]\nlease = 2\n{}", axis(6))));
    // More of them than the two that are enough for what is left.
    let dead: Vec<Started> = (0..3).map(|_| world.agent(&["--slots", "2", "--may-go"])).collect();
    wait_until("all run", || world.events("begin").len() == 6);
    for agent in dead {
        agent.signal(Signal::SIGKILL);
        agent.end(&world);
    }
    world.write("go", "");
    let late: Vec<Started> = (0..3).map(|_| world.agent(&["--slots", "2", "--may-go"])).collect();
    let ran: Vec<Ran> = late.into_iter().map(|agent| agent.end(&world)).collect();
    assert!(ran.iter().all(|ran| ran.code == 0), "{}", ran[0].whole());
    assert_eq!(world.counts(), r#"{"done":6}"#);
    let waits = |ran: &&Ran| ran.err.contains("gives no sign of life: what it holds is taken over");
    assert!(ran.iter().any(|ran| waits(&ran)), "{}", ran[0].whole());
    assert_eq!(world.events("begin").into_values().collect::<Vec<_>>(), [2; 6]);
}

#[test]
fn an_agent_that_slept_for_longer_than_its_lease_cannot_commit() {
    let world = World::new();
    let agent = waiting(&world, SHORT);
    agent.signal(Signal::SIGSTOP);
    let other = world.start(&["worker", "--pull", "results/p", "--slots", "1"]);
    wait_until("another has begun trial 2", || world.events("begin").get("2") == Some(&2));
    // Both programs end; the first agent wakes up and finds one of them.
    world.write("go", "");
    wait_until("both have ended", || world.events("end").get("2") == Some(&2));
    agent.signal(Signal::SIGCONT);
    let ran = agent.end(&world);
    assert!(ran.err.contains("others have taken this agent for dead"), "{}", ran.whole());
    assert_eq!((ran.code, other.end(&world).code), (0, 0));
    assert_eq!(world.counts(), r#"{"done":6}"#);
    let ends = world.run(&["collect", "--format", "jsonl"]);
    assert_eq!(ends.ok().lines().count(), 6);
}

#[test]
fn an_agent_that_is_told_to_go_gives_back_what_it_has() {
    for (signal, code, why) in [
        (Signal::SIGTERM, 143, "the agent got SIGTERM"),
        (Signal::SIGINT, 130, "stopped by Ctrl-C"),
        (Signal::SIGUSR2, 140, "the agent got SIGUSR2"),
    ] {
        let world = World::new();
        // Trial 2 writes its progress when it is asked to stop, and resumes from there.
        let code_of_trial = "mkdir -p $HPCSWEEP_CHECKPOINT_DIR
            if [ $HPCSWEEP_TRIAL = 2 ] && [ ! -e $HPCSWEEP_CHECKPOINT_DIR/c ]; then
              trap 'echo saved >$HPCSWEEP_CHECKPOINT_DIR/c; exit 9' TERM
              echo begin $HPCSWEEP_TRIAL >>events
              while :; do sleep 0.01; done
            fi; [ ! -e $HPCSWEEP_CHECKPOINT_DIR/c ] || echo resumed $HPCSWEEP_TRIAL >>events";
        world.write("plan.toml", &plan(code_of_trial, &axis(6)));
        let agent = world.agent(&["--slots", "1"]);
        wait_until("trial 2 runs", || world.events("begin").contains_key("2"));
        agent.signal(signal);
        let ran = agent.end(&world);
        assert_eq!(ran.code, code, "{}", ran.whole());
        assert_eq!(world.counts(), r#"{"done":2,"queued":4}"#, "{signal}");
        // If the agent had been killed meanwhile, the first of these would be all that is known.
        let asked = world.written_by_agents("p", "stop").into_iter();
        let ended = world.written_by_agents("p", "end").into_iter().filter(|end| end["trial"] == 2);
        let told: Vec<Value> = asked.chain(ended).map(|line| line["reason"].clone()).collect();
        assert_eq!(told, [why, why]);
        let ran = world.run(&["worker", "--pull", "results/p"]);
        assert_eq!(ran.code, 0, "{}", ran.whole());
        assert_eq!(world.events("resumed"), BTreeMap::from([("2".to_owned(), 1)]));
        assert_eq!(world.counts(), r#"{"done":6}"#);
    }
}

#[test]
fn a_trial_that_fails_is_tried_again_after_the_others() {
    let world = World::new();
    let code = "echo begin $HPCSWEEP_TRIAL >>events
        [ $HPCSWEEP_TRIAL != 1 ] || [ $HPCSWEEP_ATTEMPT = 3 ] || exit 5";
    let more = format!("attempts = 3\n[pull]\nbackoff = 0.05\n{}", axis(5));
    world.write("plan.toml", &plan(code, &more));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.events("begin").into_values().collect::<Vec<_>>(), [1, 3, 1, 1, 1]);
    assert_eq!(world.column("attempts"), ["1", "3", "1", "1", "1"]);
    assert_eq!(world.counts(), r#"{"done":5}"#);
}

#[test]
fn trials_that_always_fail_take_nobody_with_them() {
    let world = World::new();
    let code = "case $HPCSWEEP_TRIAL in *7) kill -9 $$;; esac";
    world.write("plan.toml", &plan(code, &axis(100)));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":90,"failed":10}"#);
    assert!(ran.err.ends_with("agent: 90 done, 10 failed\n"), "{}", ran.whole());
    // Failed trials are enqueued again on request.
    world.write(
        "plan.toml",
        &plan("true", &axis(100)).replace(
            "\"sh\", \"-c\", \"true\"",
            "\"sh\", \"-c\", \"case $HPCSWEEP_TRIAL in *7) kill -9 $$;; esac\"",
        ),
    );
    let ran = world.run(&["worker", "--pull", "plan.toml", "--retry", "--slots", "1"]);
    assert!(ran.err.contains("10 trials in 10 units"), "{}", ran.whole());
}

#[test]
fn what_was_asked_for_again_counts_whatever_its_attempts_number() {
    let world = World::new();
    let code = "echo attempt $HPCSWEEP_ATTEMPT $(ls again* 2>/dev/null)
        [ ! -e again2 ] || { echo '{\"loss\": 2}' >>$HPCSWEEP_METRICS; exit 0; }
        [ ! -e again1 ] || sleep 1000
        exit 3";
    let more = "attempts = 2\n[resources]\nwalltime = \"1s\"\n[pull]\nbackoff = 0.05\n";
    world.write("plan.toml", &plan(code, &format!("{more}{}", axis(1))));
    let run = |more: &[&str]| {
        world.run(&[&["worker", "--pull", "plan.toml", "--slots", "1"], more].concat()).code
    };
    let reason = || world.status()["trials"][0]["reason"].clone();
    assert_eq!((run(&[]), reason()), (1, "exit code 3".into()));
    // Attempt 1 of the second time comes after attempt 2 of the first.
    world.write("again1", "");
    assert_eq!((run(&["--retry"]), world.counts()), (1, r#"{"timeout":1}"#.to_owned()));
    assert_eq!(reason(), "the wall-clock limit was reached");
    world.write("again2", "");
    assert_eq!((run(&["--retry"]), world.counts()), (0, r#"{"done":1}"#.to_owned()));
    let said = "attempt 1\nattempt 2\nattempt 1 again1\nattempt 1 again1 again2\n";
    assert_eq!(world.run(&["logs", "0"]).ok(), said);
    assert_eq!(world.column("attempts"), ["4"]);
    assert_eq!(world.run(&["best", "--metric", "loss", "--min"]).code, 0);
}

#[test]
fn what_is_asked_for_again_waits_in_the_queue_until_somebody_begins_it() {
    let world = World::new();
    let more = format!("[pull]\ntime_request = \"1h\"\n{}", axis(1));
    world.write("plan.toml", &plan("[ -e good ] || exit 3", &more));
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).code, 1);
    assert_eq!(world.counts(), r#"{"failed":1}"#);
    // An agent without time for a trial enqueues it again.
    world.run(&["worker", "--pull", "plan.toml", "--retry", "--time-left", "30m"]).ok();
    assert_eq!(world.counts(), r#"{"queued":1}"#);
    world.write("good", "");
    world.run(&["worker", "--pull", "results/p"]).ok();
    assert_eq!(world.counts(), r#"{"done":1}"#);
}

#[test]
fn what_is_asked_for_again_of_an_agent_that_dies_is_not_taken_for_ended() {
    let world = World::new();
    // Trial 0 fails, and is asked for again while its agent waits for the end of trial 1 elsewhere.
    let code = "echo begin $HPCSWEEP_TRIAL >>events
        if [ $HPCSWEEP_TRIAL = 0 ]; then while [ ! -e fail ]; do sleep 0.01; done; fi
        if [ $HPCSWEEP_TRIAL = 0 ]; then [ -e again ] || exit 3; fi
        while [ ! -e go$HPCSWEEP_TRIAL ]; do sleep 0.01; done";
    world.write("plan.toml", &plan(code, &format!("{SHORT}\n{}", axis(2))));
    let first = world.agent(&["--slots", "1"]);
    wait_until("trial 0 runs", || world.events("begin").contains_key("0"));
    let other = world.agent(&["--slots", "1"]);
    wait_until("trial 1 runs", || world.events("begin").contains_key("1"));
    world.write("fail", "");
    wait_until("the first one waits", || world.entries("results/p", "\"idle\"") > 0);
    world.write("again", "");
    let late = ["worker", "--pull", "plan.toml", "--retry", "--time-left", "1s"];
    world.run(&late).ok();
    wait_until("trial 0 runs again", || world.events("begin").get("0") == Some(&2));
    first.signal(Signal::SIGKILL);
    first.end(&world);
    world.write("go0", "");
    world.write("go1", "");
    assert_eq!(other.end(&world).code, 0);
    assert_eq!(world.counts(), r#"{"done":2}"#);
}

#[test]
fn records_of_agents_and_of_others_are_in_the_order_in_which_they_were_asked_for() {
    let world = World::new();
    let text = |n| plan("echo $HPCSWEEP_ATTEMPT; exit $(cat code)", &axis(n));
    let codes = || {
        let all = world.status();
        let trials = all["trials"].as_array().unwrap().clone();
        trials.iter().map(|t| t["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    world.write("code", "3");
    world.write("plan.toml", &text(1));
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).code, 1);
    world.write("code", "4");
    assert_eq!(world.local(&text(1), &["--retry"]).code, 1);
    assert_eq!(codes(), ["exit code 4"]);
    world.write("code", "5");
    assert_eq!(world.run(&["worker", "--pull", "plan.toml", "--retry"]).code, 1);
    assert_eq!(codes(), ["exit code 5"]);
    world.write("code", "6");
    assert_eq!(world.local(&text(1), &["--retry"]).code, 1);
    assert_eq!(codes(), ["exit code 6"]);
    assert_eq!(world.column("attempts"), ["4"]);
}

#[test]
fn a_machine_that_cannot_run_trials_leaves_and_says_so() {
    let world = World::new();
    let text = plan("true", &axis(20)).replace("\"sh\"", "\"no-such-program\"");
    world.write("plan.toml", &text);
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(ran.code, 4, "{}", ran.whole());
    let last = ran.err.lines().last().unwrap();
    let expected = "it left: 5 faults of this machine, the last: cannot start `no-such-program`: no such file or directory";
    assert!(last.contains(expected), "{}", ran.whole());
    // Nothing is held against the trials yet.
    assert_eq!(world.counts(), r#"{"queued":20}"#);
}

#[test]
fn a_sweep_of_which_nearly_everything_fails_halts() {
    let world = World::new();
    world.write("plan.toml", &plan("exit 1", &axis(100)));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let expected = "it left: the sweep was halted: 20 of the last 20 trials failed";
    assert!(ran.err.lines().last().unwrap().ends_with(expected), "{}", ran.whole());
    let status = world.run(&["status"]);
    assert!(status.out.contains("halted: 20 of the last 20 trials failed"), "{}", status.whole());
    let late = world.run(&["worker", "--pull", "results/p"]);
    assert!(late.err.contains("halted"), "{}", late.whole());
    assert_eq!(late.code, 1, "{}", late.whole());
    // An agent that starts with the plan resumes the sweep.
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"failed":40,"queued":60}"#);
}

#[test]
fn an_idle_slot_runs_a_copy_of_what_takes_too_long() {
    let world = World::new();
    // The first run of trial 0 never ends; a second one ends at once.
    let code = "if [ $HPCSWEEP_TRIAL = 0 ] && mkdir first 2>/dev/null; then sleep 1000; fi; echo $HPCSWEEP_TRIAL $HPCSWEEP_SLOT >>events";
    let more = format!("[pull]\nrepeatable = true\n{}", axis(8));
    world.write("plan.toml", &plan(code, &more));
    let slow = world.agent(&["--slots", "1"]);
    wait_until("the slow one is at it", || world.exists("first"));
    let ran = world.run(&["worker", "--pull", "results/p", "--slots", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(slow.end(&world).code, 0);
    assert_eq!(world.counts(), r#"{"done":8}"#);
    assert_eq!(world.read("events").lines().count(), 8);
    // The ledger names the winner once.
    assert_eq!(world.entries("results/p", r#""event":"won""#), 1);
}

#[test]
fn a_trial_whose_copy_lost_against_a_failure_is_run_again_when_it_is_asked_for() {
    let world = World::new();
    // The first run of trial 0 fails as soon as there is a second one, which never ends.
    let code = "if [ $HPCSWEEP_TRIAL = 0 ] && [ ! -e again ]; then
          if mkdir first 2>/dev/null; then
            while [ ! -e copied ]; do sleep 0.01; done; exit 3
          fi
          echo >copied; sleep 1000
        fi";
    world.write("plan.toml", &plan(code, &format!("[pull]\nrepeatable = true\n{}", axis(8))));
    let slow = world.agent(&["--slots", "1"]);
    wait_until("the slow one is at it", || world.exists("first"));
    let other = world.run(&["worker", "--pull", "results/p", "--slots", "1"]);
    let codes = [slow.end(&world).code, other.code];
    assert_eq!((codes, world.counts()), ([1, 0], r#"{"done":7,"failed":1}"#.to_owned()));
    world.write("again", "");
    let ran = world.run(&["worker", "--pull", "plan.toml", "--retry", "--slots", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":8}"#);
    let frame = world.run(&["watch", "--once", "results/p"]);
    assert!(frame.out.contains("\ndone 8\n"), "{}", frame.whole());
}

#[test]
fn equal_trials_are_not_copied() {
    let world = World::new();
    let code = "echo begin $HPCSWEEP_TRIAL >>events; sleep 0.2";
    let more = format!("[pull]\nrepeatable = true\nstraggler = 4\n{}", axis(16));
    world.write("plan.toml", &plan(code, &more));
    let all: Vec<Started> =
        (0..4).map(|_| world.start(&["worker", "--pull", "plan.toml", "--slots", "1"])).collect();
    for agent in all {
        assert_eq!(agent.end(&world).code, 0);
    }
    assert_eq!(world.events("begin").values().sum::<u32>(), 16);
}

#[test]
fn an_agent_begins_nothing_that_its_allocation_would_cut_off() {
    let world = World::new();
    let more = format!("[pull]\ntime_request = \"1h\"\n{}", axis(4));
    world.write("plan.toml", &plan(SAYS, &more));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "30m"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let expected =
        "agent: no trial ended here; it left: too little time is left for another trial\n";
    assert!(ran.err.ends_with(expected), "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"queued":4}"#);
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "2h"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":4}"#);
}

#[test]
fn a_trial_that_had_its_whole_time_is_not_handed_on_for_ever() {
    let world = World::new();
    let code = "echo begin $HPCSWEEP_TRIAL >>events; sleep 1000";
    // The allocation is as long as the trial may run, as that of a pilot is.
    world.write("plan.toml", &plan(code, &format!("[resources]\nwalltime = \"16s\"\n{}", axis(1))));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "16s"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"timeout":1}"#);
    // A trial that begins late is cut off, and resumes elsewhere.
    world.write("plan.toml", &plan(code, &format!("[resources]\nwalltime = \"1h\"\n{}", axis(2))));
    world.run(&["worker", "--pull", "plan.toml", "--time-left", "16s"]);
    assert_eq!(world.counts(), r#"{"queued":1,"timeout":1}"#);
}

#[test]
fn a_walltime_is_kept_and_what_a_trial_leaves_behind_ends_with_it() {
    let world = World::new();
    let code = "setsid sleep 1000 & echo $! >>pids; [ $HPCSWEEP_TRIAL = 0 ] || sleep 1000";
    let more = format!("[resources]\nwalltime = \"1s\"\n{}", axis(2));
    world.write("plan.toml", &plan(code, &more));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":1,"timeout":1}"#);
    for pid in world.read("pids").lines() {
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "{pid} still runs");
    }
}

/// The end of its time is an end as any other: the first one counts, and the copy is killed.
#[test]
fn a_trial_whose_time_is_over_while_its_copy_runs_is_a_timeout() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 0 ] && [ ! -e again ] || exit 0
        if mkdir first 2>/dev/null; then : >begun; else echo $$ >copied; fi; exec sleep 1000";
    let more = format!("[resources]\nwalltime = \"3s\"\n[pull]\nrepeatable = true\n{}", axis(8));
    world.write("plan.toml", &plan(code, &more));
    let slow = world.agent(&["--slots", "1"]);
    wait_until("the slow one is at it", || world.exists("begun"));
    // It ends nothing before there is a copy, however busy the machine is.
    slow.signal(Signal::SIGSTOP);
    let other = world.start(&["worker", "--pull", "results/p", "--slots", "1"]);
    wait_until("there is a copy", || {
        world.exists("copied") && world.read("copied").ends_with('\n')
    });
    slow.signal(Signal::SIGCONT);
    let codes = [slow.end(&world).code, other.end(&world).code];
    assert_eq!((codes.iter().sum(), world.counts()), (1, r#"{"done":7,"timeout":1}"#.to_owned()));
    assert!(!world.exists(&format!("/proc/{}", world.read("copied").trim())));
    world.write("again", "");
    let ran = world.run(&["worker", "--pull", "plan.toml", "--retry", "--slots", "1"]);
    assert_eq!((ran.code, world.counts()), (0, r#"{"done":8}"#.to_owned()), "{}", ran.whole());
}

#[test]
fn slots_have_cores_of_their_own() {
    let world = World::new();
    let code = "taskset -cp $$ | sed 's/.*: //' >>cores; sleep 0.3";
    world.write("plan.toml", &plan(code, &axis(4)));
    let ran: Ran = world.run(&["worker", "--pull", "plan.toml"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let text = world.read("cores");
    let mut cores: Vec<&str> = text.lines().collect();
    cores.sort_unstable();
    cores.dedup();
    let all = std::thread::available_parallelism().unwrap().get();
    assert_eq!(cores.len(), all.min(4), "{text}");
    assert!(cores.iter().all(|core| core.parse::<u32>().is_ok()), "{text}");
}

#[test]
fn a_plan_that_grew_brings_its_new_trials_alone() {
    let world = World::new();
    world.write("plan.toml", &plan(SAYS, &axis(3)));
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).code, 0);
    world.write("plan.toml", &plan(SAYS, &axis(5)));
    let ran = world.run(&["worker", "--pull", "plan.toml"]);
    assert!(ran.err.starts_with("p: 2 trials in 2 units for agents\n"), "{}", ran.whole());
    assert_eq!(world.events("begin").into_values().collect::<Vec<_>>(), [1; 5]);
    // Others may have it once agents have not.
    assert_eq!(world.local(&plan(SAYS, &axis(6)), &[]).code, 0);
    assert_eq!(world.events("begin").into_values().collect::<Vec<_>>(), [1; 6]);
}

#[test]
fn what_a_changed_plan_has_dropped_waits_for_nobody() {
    let world = World::new();
    world.write("plan.toml", &plan(SAYS, &axis(4)));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "1s"]);
    assert_eq!((ran.code, world.counts()), (0, r#"{"queued":4}"#.to_owned()), "{}", ran.whole());
    world.write("plan.toml", &plan(SAYS, "[grid]\ni = [0, 7]\n"));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.counts(), r#"{"done":2,"dropped":3}"#);
    assert_eq!(world.table(&["--all"]).len(), 5);
}

#[test]
fn what_agents_cannot_run_is_refused() {
    let world = World::new();
    world.write("plan.toml", &plan("true", &format!("[resources]\nranks = 2\n{}", axis(2))));
    let expected = "error: trial 0 asks for 2 ranks, and agents run trials of one
hint: submit the plan as arrays: leave out `mode = \"pull\"` and `--pull`
exit code 2
";
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).whole(), expected);
    assert!(!world.exists("results"));
    world.write("plan.toml", &plan("true", &axis(2)));
    let held = waiting(&world, "");
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    assert!(ran.err.starts_with("error: agents have trials of this sweep that have not ended\n"));
    drop(held);
}

#[test]
fn a_killed_agent_keeps_a_cancelled_sweep_from_other_ways_until_another_agent_has_expired_it() {
    let world = World::new();
    let agent = waiting(&world, SHORT);
    agent.signal(Signal::SIGKILL);
    agent.end(&world);
    world.run(&["cancel"]).ok();
    for more in [&["--dry-run"][..], &[]] {
        let ran = world.run(&[&["submit", "plan.toml", "--local"], more].concat());
        let expected = "error: agents have not left this sweep, and have trials of it
  $WORLD/results/p
hint: wait until they have left; if one was killed, `hpcsweep worker --pull PLAN` takes its trials over
exit code 2
";
        assert_eq!(ran.whole(), expected);
    }
    world.write("go", "");
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.counts(), r#"{"done":6}"#);
    world.run(&["submit", "plan.toml", "--local"]).ok();
}

#[test]
fn hooks_are_called_once_for_each_trial_and_nobody_waits_for_them() {
    let world = World::new();
    let code = "echo said $HPCSWEEP_TRIAL; [ $HPCSWEEP_TRIAL != 2 ] || exit 3";
    let hook = |word: &str| {
        let code = format!(
            "sleep 0.1; echo {word} $HPCSWEEP_TRIAL ${{HPCSWEEP_EXIT_CODE}} $HPCSWEEP_LOG_TAIL >>rung"
        );
        format!("[\"sh\", \"-c\", {}]", Value::from(code))
    };
    let more = format!("[hooks]\nfinish = {}\nerror = {}\n{}", hook("ok"), hook("bad"), axis(4));
    world.write("plan.toml", &plan(code, &more));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let text = world.read("rung");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["bad 2 3 said 2", "ok 0 0 said 0", "ok 1 0 said 1", "ok 3 0 said 3"]);
}

#[test]
fn a_longer_walltime_reaches_trials_that_were_dealt() {
    let world = World::new();
    let with = |limit: &str| {
        plan("sleep 1.5", &format!("[resources]\nwalltime = \"{limit}\"\n{}", axis(1)))
    };
    world.write("plan.toml", &with("1s"));
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).code, 1);
    assert_eq!(world.counts(), r#"{"timeout":1}"#);
    world.write("plan.toml", &with("1h"));
    let ran = world.run(&["worker", "--pull", "plan.toml", "--retry"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":1}"#);
}

#[test]
fn a_trial_that_was_signalled_together_with_its_agent_has_not_failed() {
    let world = World::new();
    let agent = waiting(&world, "");
    // As a scheduler does: every process of the job, the program first.
    let me = agent.pid();
    let list = fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap();
    for pid in list.split_whitespace() {
        let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
        nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    }
    agent.signal(Signal::SIGTERM);
    let ran = agent.end(&world);
    assert_eq!(ran.code, 143, "{}", ran.whole());
    assert_eq!(world.counts(), r#"{"done":2,"queued":4}"#);
}

#[test]
fn slots_of_all_agents_on_a_host_have_devices_of_their_own() {
    let world = crate::support::gpus::idle(4);
    let code = "echo $CUDA_VISIBLE_DEVICES >>devices; while [ ! -e go ]; do sleep 0.01; done";
    let more = format!("[resources]\ngpus_per_rank = 1\n{}", axis(8));
    world.write("plan.toml", &plan(code, &more));
    let first = world.agent(&["--slots", "3"]);
    let lines = || if world.exists("devices") { world.read("devices").lines().count() } else { 0 };
    wait_until("three run", || lines() == 3);
    // One device is left for the next process.
    let second = world.agent(&["--slots", "3"]);
    wait_until("four run", || lines() == 4);
    let text = world.read("devices");
    let mut devices: Vec<&str> = text.lines().collect();
    devices.sort_unstable();
    assert_eq!(devices, ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]);
    let third = world.run(&["worker", "--pull", "results/p"]);
    assert_eq!(third.code, 4, "{}", third.whole());
    assert!(third.err.starts_with("error: no GPU can be had"), "{}", third.whole());
    world.write("go", "");
    for agent in [first, second] {
        assert_eq!(agent.end(&world).code, 0);
    }
    assert_eq!(world.counts(), r#"{"done":8}"#);
}
