//! `hpcsweep why`: one screen for each trial, and the events of a sweep.

use serde_json::Value;

use crate::support::plans::shell;
use crate::support::slurm_sweep::{answer, element, submitted};
use crate::support::world::World;

/// A page without its times.
fn untimed(page: &str) -> String {
    let is_time = |word: &str| {
        word.len() == 19
            && word.as_bytes()[10] == b' '
            && word.ends_with(|c: char| c.is_ascii_digit())
    };
    let mut out = String::new();
    let mut rest = page;
    while let Some(c) = rest.chars().next() {
        let word = rest.get(..19).filter(|word| word.starts_with("20") && is_time(word));
        out.push(if word.is_some() { '_' } else { c });
        rest = &rest[word.map_or(c.len_utf8(), str::len)..];
    }
    out
}

#[test]
fn a_trial_that_ran_out_of_time_shows_its_progress_and_the_walltime_that_is_enough() {
    let world = World::new();
    let code = "echo hello; for e in 1 2; do echo \"{\\\"epoch\\\": $e}\" >>$HPCSWEEP_METRICS; done; exec sleep 600";
    let rest = "[resources]\nwalltime = \"1s\"\nmemory = \"2G\"\n[defaults]\nepochs = 400\n";
    world.local(&shell(code, rest), &["-q"]);
    let page = world.run(&["why", "0"]);
    let lines: Vec<&str> = page.ok().lines().collect();
    assert_eq!(
        lines[..3],
        [
            "trial 0 of s: timeout (walltime)",
            "  parameters: epochs=400",
            "  why: the wall-clock limit was reached",
        ]
    );
    assert!(
        lines[3].starts_with("  attempt 1: 20") && lines[3].ends_with("timeout (walltime)"),
        "{page:?}",
        page = lines
    );
    for line in [
        "  asked: 1 core, 2G memory, 00:00:01 walltime",
        "  progress: epoch 2 of 400",
        "    hello",
        "  to run it here by hand: hpcsweep submit plan.toml --smoke 0",
    ] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    let told: Value = serde_json::from_str(world.run(&["why", "0", "--json"]).ok()).unwrap();
    assert_eq!((&told["cause"], &told["progress"]), (&"walltime".into(), &"epoch 2 of 400".into()));
    // A second for two epochs are more than three minutes for all of them.
    let enough = told["enough"][0].as_str().unwrap();
    assert!(enough.starts_with("walltime = \"00:0"), "{enough}");
}

/// The command for a trial names its place in the plan as it is now, which no longer is its number.
#[test]
fn a_trial_is_run_by_hand_by_its_place_in_the_plan() {
    let world = World::new();
    let plan = |lr: &str| shell("true", &format!("[grid]\nlr = [{lr}]\n"));
    world.local(&plan("1, 2, 3"), &["-q"]);
    let by_hand = |trial: &str| {
        let told = world.run(&["why", trial, "--json"]);
        let told: Value = serde_json::from_str(told.ok()).unwrap();
        told["by_hand"]
            .as_str()
            .map(|command| command.split_whitespace().last().unwrap().to_owned())
    };
    let all = || ["0", "1", "2"].map(&by_hand);
    assert_eq!(all(), ["0", "1", "2"].map(|place| Some(place.to_owned())));
    world.write("plan.toml", &plan("3, 1, 4"));
    assert_eq!(all(), [Some("1".to_owned()), None, Some("0".to_owned())]);
}

#[test]
fn a_trial_that_ran_out_of_memory_shows_the_request_that_is_enough() {
    let world = World::new();
    let code = "head -c 60000000 /dev/zero | tail -n 1 >/dev/null; kill -9 $$";
    world.local(&shell(code, "[resources]\nmemory = \"60M\"\n"), &["-q"]);
    let told: Value = serde_json::from_str(world.run(&["why", "0", "--json"]).ok()).unwrap();
    assert_eq!(told["cause"], "out-of-memory", "{told}");
    assert_eq!(told["enough"][0], "memory = \"256M\"");
    assert!(told["reason"].as_str().unwrap().contains("60M asked for"), "{told}");
}

#[test]
fn a_trial_that_waits_shows_the_reason_in_plain_words_and_the_expected_start() {
    let world = submitted();
    element(&world, 1);
    let answers = "101_0|PENDING|QOSMaxJobsPerUserLimit|x\n101_[2-5]|PENDING|Weather|x\n";
    let log = world.text_path("calls");
    world.program(
        "squeue",
        &format!(
            "#!/bin/sh\nprintf '%s\\n' \"$*\" >>'{log}'\ncase \"$*\" in *--start*) echo 2026-12-24T18:00:00;; \
             *) printf '{answers}';; esac\n"
        ),
    );
    world.write("calls", "");
    let page = world.run(&["why", "0"]);
    let expected = "\
trial 0 of s: queued
  parameters: a=0
  waits: QOSMaxJobsPerUserLimit: you have as many running jobs as the QOS allows (job 101_0)
  what can be done: wait, name another `qos`, or run more trials in one job (`pack`, agents)
  expected start: 2026-12-24 18:00:00
";
    assert!(page.ok().starts_with(expected), "{}", page.out);
    // One question about the sweep, one about the trial.
    let calls = world.read("calls");
    assert_eq!(calls.lines().count(), 2, "{calls}");
    assert!(calls.ends_with("--start --noheader --format=%S --jobs 101_0\n"), "{calls}");
    // A reason that nobody knows is shown as it is.
    let page = world.run(&["why", "3", "--offline"]);
    assert!(
        page.ok().contains("  waits: the scheduler was not asked (job 101_3)\n"),
        "{}",
        page.out
    );
    answer(&world, "squeue", answers.replace("\\n", "\n").as_str());
    assert!(world.run(&["why", "3"]).ok().contains("  waits: Weather (job 101_3)\n"));
}

#[test]
fn without_trials_the_events_of_the_sweep_are_shown_in_the_order_of_time() {
    let world = World::new();
    let code = "[ $HPCSWEEP_PARAM_A != 2 ] || exit 3";
    world.local(&shell(code, "[grid]\na = [0, 1, 2]\n"), &["-j", "1", "-q"]);
    let events = world.run(&["why", "--json"]);
    let events: Vec<Value> =
        events.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<f64> = events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let of = |trial: u64| -> Vec<&str> {
        let own = events.iter().filter(|event| event["trial"] == trial);
        own.map(|event| event["what"].as_str().unwrap()).collect()
    };
    assert_eq!(of(0), ["started", "done"]);
    assert_eq!(of(2), ["started", "failed (exit-code)"]);
    let page = untimed(world.run(&["why"]).ok());
    assert!(page.starts_with("s:\n  _  "), "{page}");
    assert!(page.contains("  _  failed (exit-code): trial 2\n"), "{page}");
}

#[test]
fn a_trial_that_the_sweep_does_not_have_is_refused() {
    let world = World::new();
    world.local(&shell("true", ""), &["-q"]);
    let ran = world.run(&["why", "7"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
}
