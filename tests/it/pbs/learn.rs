//! PBS: `memory = "auto"` and `walltime = "auto"`: the first trials show what the others ask for.

use serde_json::Value;

use crate::support::pbs::Pbs;
use crate::support::pbs_once;
use crate::support::pbs_once::killer;
use crate::support::pbs_once::wrap;
use crate::support::plans::shell;

/// A plan whose trials hold so many MB, an expression of the shell.
fn plan(megabytes: &str, rest: &str) -> String {
    shell(&format!("exec python3 -c \"b = b'x' * ($(({megabytes})) * 1000000)\""), rest)
}

/// The usage of the sweep.
fn usage(pbs: &Pbs) -> Value {
    serde_json::from_str(pbs.world.run(&["usage", "--json"]).ok()).unwrap()
}

/// How many trials asked for how much memory, in MiB, and for which walltime.
fn asked(usage: &Value) -> Vec<(u64, u64, Option<u64>)> {
    let shapes = usage["shapes"].as_array().unwrap().iter();
    let of = |shape: &Value| {
        let request = &shape["request"];
        (
            request["memory_mib"].as_u64().unwrap(),
            shape["trials"].as_u64().unwrap(),
            request["walltime_s"].as_u64(),
        )
    };
    let mut all: Vec<_> = shapes.map(of).collect();
    all.sort_unstable();
    all
}

const BY_WIDTH: &str = "[resources]\nmemory = { first = \"1G\", by = [\"width\"] }\nwalltime = \"auto\"\n\
                        [grid]\nwidth = [40, 150]\nseed = [1, 2, 3]\n";

#[test]
fn the_others_ask_for_what_the_first_have_used() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    pbs.world.write("plan.toml", &plan("HPCSWEEP_PARAM_WIDTH", BY_WIDTH));
    let note = "2 trials to run first: 4 others to ask for what they use";
    let dry = pbs.again(&["--dry-run"]);
    assert!(dry.ok().contains(note), "{}", dry.whole());
    let planned = pbs.world.run(&["plan", "plan.toml"]);
    assert!(planned.ok().contains(note), "{}", planned.whole());
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
2 trials to run first: 4 others to ask for what they use
array 1: 2 trials as job 0[].pbshead
feeder: job 1.pbshead, after 0[].pbshead
s: 2 trials submitted as 1 array (5 scheduler calls); 4 trials follow when others have shown what they need (job 1.pbshead submits them)
jobs: 0[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    assert_eq!(
        pbs.world.run(&["status"]).whole(),
        "\
s: 6 trials in $WORLD/results/s
  state    trials
  queued        2
  pending       4
seen by: qstat
4 trials not submitted yet: job 1.pbshead submits more when others have shown what they need
exit code 0
"
    );
    // A second submission changes nothing.
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
4 trials still to be submitted, when those that run have shown what they need
s: nothing new to submit (3 scheduler calls); 4 trials follow when others have shown what they need; 2 trials submitted before
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    assert_eq!(
        pbs.again(&["--dry-run"]).whole(),
        "\
sweep s is in $WORLD/results/s
nothing would be done
left alone: 2 trials (queued)
left alone: 4 trials (when others have shown what it needs)
4 trials still to be submitted, when those that run have shown what they need
exit code 0
"
    );
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    assert_eq!(asked(&usage(&pbs)), [(64, 2, Some(60)), (192, 2, Some(60)), (1024, 2, None)]);
    // Nothing looks at the sweep any more.
    assert_eq!(pbs.states().len(), 4);
    let why = pbs.world.run(&["why"]);
    let learnt: Vec<&str> = why.ok().lines().filter(|line| line.contains("memory")).collect();
    assert_eq!(learnt.len(), 2, "{}", why.out);
    assert!(learnt[0].contains("  2 x memory 64M: 1 trial with width = 40 used 4"), "{learnt:?}");
    assert!(learnt[1].ends_with(": trials 4-5"), "{learnt:?}");
    let one = pbs.world.run(&["why", "1"]);
    let line = "\n  learnt: memory 64M: 1 trial with width = 40 used 4";
    assert!(one.ok().contains(line), "{}", one.whole());
    let page = pbs.world.run(&["usage"]);
    let saved = "memory learnt from other trials: 4 attempts wasted 0.0";
    assert!(page.ok().contains(saved), "{}", page.whole());
}

/// How often each trial of a sweep ran whose programs append their number to `ran`.
fn runs(pbs: &Pbs, trials: u64) -> Vec<usize> {
    let ran = pbs.world.read("results/s/ran");
    (0..trials).map(|trial| ran.lines().filter(|line| *line == trial.to_string()).count()).collect()
}

/// A plan whose trials note that they ran.
fn noted(code: &str, rest: &str) -> String {
    shell(&format!("echo $HPCSWEEP_TRIAL >>$HPCSWEEP_SWEEP_DIR/ran; {code}"), rest)
}

const NOTED: &str = "[resources]\nmemory = { first = \"1G\", by = [\"width\"] }\n\
                     [grid]\nwidth = [1, 2, 3]\nseed = [1, 2, 3, 4]\n";

#[test]
fn where_the_queue_has_few_places_each_trial_runs_once() {
    let mut pbs = Pbs::start();
    pbs.set("max_queued", 3);
    pbs.submit(&noted("", NOTED), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 12]);
    assert_eq!(runs(&pbs, 12), [1; 12]);
    assert_eq!(asked(&usage(&pbs)), [(64, 9, None), (1024, 3, None)]);
}

#[test]
fn without_the_feeder_the_next_submission_submits_the_others() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    pbs.submit(&noted("", NOTED), &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let lost = pbs.world.run(&["status"]);
    assert!(lost.out.contains("9 trials not submitted yet; to submit more: "), "{}", lost.whole());
    pbs.again(&[]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 12), [1; 12]);
    assert_eq!(asked(&usage(&pbs)), [(64, 9, None), (1024, 3, None)]);
}

#[test]
fn a_feeder_that_is_killed_while_it_submits_doubles_nothing() {
    // Arrays have two elements at most: the first three calls are of the submission, the others of its feeder.
    for number in [3, 4, 5] {
        for before in [true, false] {
            let pbs = pbs_once::pbs();
            wrap(&pbs.world, "qsub", &killer(number, before));
            let ran = pbs.submit(&noted("", NOTED), &[]);
            assert_eq!(ran.code, if number == 3 { 137 } else { 0 }, "{}", ran.whole());
            pbs.wait_quiet();
            std::fs::remove_file(pbs.world.path("bin/qsub")).unwrap();
            pbs.again(&[]).ok();
            pbs.wait_idle();
            assert_eq!(runs(&pbs, 12), [1; 12], "{number} {before}");
            assert_eq!(asked(&usage(&pbs)), [(64, 9, None), (1024, 3, None)]);
        }
    }
}

#[test]
fn a_plan_that_grows_asks_for_what_earlier_trials_have_used() {
    let pbs = Pbs::start();
    pbs.submit(&noted("", NOTED), &[]).ok();
    pbs.wait_idle();
    let more =
        NOTED.replace("[1, 2, 3, 4]", "[1, 2, 3, 4, 5]").replace("[1, 2, 3]", "[1, 2, 3, 7]");
    let ran = pbs.submit(&noted("", &more), &[]);
    assert!(
        ran.whole().contains("1 trial to run first: 4 others to ask for what they use"),
        "{}",
        ran.whole()
    );
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 20]);
    assert_eq!(runs(&pbs, 20), [1; 20]);
    assert_eq!(asked(&usage(&pbs)), [(64, 16, None), (1024, 4, None)]);
}

#[test]
fn chains_keep_their_order_while_they_wait_for_what_they_need() {
    let pbs = Pbs::start();
    let rest = "[resources]\nmemory = { first = \"1G\", by = [\"link\"] }\n\
                [defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [1, 2, 3]\nlink = [1, 2]\n";
    pbs.submit(&noted("", rest), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    let ran = pbs.world.read("results/s/ran");
    let at = |trial: &str| ran.lines().position(|line| line == trial).unwrap();
    for (first, second) in [("0", "1"), ("2", "3"), ("4", "5")] {
        assert!(at(first) < at(second), "{ran}");
    }
    assert_eq!(runs(&pbs, 6), [1; 6]);
    assert_eq!(asked(&usage(&pbs)), [(64, 4, None), (1024, 2, None)]);
}

#[test]
fn trials_that_failed_or_were_cancelled_hold_up_no_other() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    // The first of width 1 fails, the first of width 2 is cancelled before it begins.
    pbs.submit(&noted("[ $HPCSWEEP_TRIAL != 0 ]", NOTED), &[]).ok();
    pbs.world.run(&["cancel", "4"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let standings = pbs.standings();
    assert_eq!(standings[0], "failed: exit code 1");
    assert!(standings[4].starts_with("cancelled"), "{standings:?}");
    assert_eq!(
        standings.iter().filter(|standing| *standing == "done").count(),
        10,
        "{standings:?}"
    );
    assert_eq!(runs(&pbs, 12), [1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn what_was_cancelled_and_is_wanted_again_runs_first() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    pbs.submit(&noted("", NOTED), &[]).ok();
    pbs.world.run(&["cancel"]).ok();
    let ran = pbs.again(&["--retry"]);
    let note = "3 trials to run first: 9 others to ask for what they use";
    assert!(ran.whole().contains(note), "{}", ran.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 12), [1; 12]);
    assert_eq!(asked(&usage(&pbs)), [(64, 9, None), (1024, 3, None)]);
}

#[test]
fn after_a_cancel_others_run_first() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    pbs.submit(&noted("", NOTED), &[]).ok();
    pbs.world.run(&["cancel"]).ok();
    let ran = pbs.again(&[]);
    let note = "3 trials to run first: 6 others to ask for what they use";
    assert!(ran.whole().contains(note), "{}", ran.whole());
    // The new feeder was lost, too: the next one says the same of what waits.
    let feeder = pbs.states().pop().unwrap().0;
    pbs.world.call("qdel", &[&feeder]).ok();
    pbs.again(&[]).ok();
    let status = pbs.world.run(&["status"]);
    let waits = "submits more when others have shown what they need";
    assert!(status.out.contains(waits), "{}", status.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 12), [0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]);
}

#[test]
fn agents_do_not_learn_walltimes_and_say_so() {
    let pbs = Pbs::start();
    let note = "walltime is not learnt in pull mode: all trials have `first`";
    let ran = pbs.submit(&noted("", NOTED), &["--pull"]);
    assert!(!ran.whole().contains(note), "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 12), [1; 12]);
    let timed = noted("", NOTED).replace("name = \"s\"", "name = \"t\"");
    let timed = timed.replace("[grid]", "walltime = { first = \"1h\" }\n[grid]");
    let ran = pbs.submit(&timed, &["--pull"]);
    assert!(ran.whole().contains(note), "{}", ran.whole());
    pbs.wait_idle();
}

/// Memory that depends on two parameters, and by up to a tenth on a third.
#[test]
fn of_two_hundred_trials_few_have_too_little_and_half_of_the_waste_is_saved() {
    let pbs = Pbs::start();
    let exact = "40 + 8 * HPCSWEEP_PARAM_WIDTH * HPCSWEEP_PARAM_DEPTH";
    let plan = plan(
        &format!("({exact}) * (100 + HPCSWEEP_PARAM_SEED * 7 % 10) / 100"),
        "[resources]\nmemory = { first = \"1G\", by = [\"width\", \"depth\"] }\n\
         [grid]\nwidth = [1, 2, 3, 4, 5]\ndepth = [1, 2, 3, 4]\n[replicates]\ncount = 10\n",
    );
    pbs.submit(&plan, &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 200]);
    let usage = usage(&pbs);
    let first = asked(&usage).last().copied();
    assert_eq!(first, Some((1024, 20, None)));
    // What the test scheduler does not kill, it would have killed if it had more than it asked for.
    let shapes = usage["shapes"].as_array().unwrap().iter();
    let is_short = |shape: &&Value| {
        shape["memory_mib"]["largest"].as_f64() > shape["request"]["memory_mib"].as_f64()
    };
    let short: u64 = shapes.filter(is_short).map(|s| s["trials"].as_u64().unwrap()).sum();
    assert!(short <= 4, "{short}: {usage}");
    let learnt = &usage["learnt_memory"];
    let hours = |name: &str| learnt[name].as_f64().unwrap();
    assert_eq!(learnt["attempts"], 180);
    assert!(hours("wasted") * 2.0 <= hours("wasted_by_first"), "{learnt}");
}
