//! PBS: `cancel`, `hold` and `release`, of a sweep and of single trials.

use crate::support::pbs::Pbs;
use crate::support::pbs_once::wrap;
use crate::support::pbs_waiting::{begun, end, go, pbs, plan};
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, wait_until};

/// Three links each of two chains, under a mapping, on a server with room for one.
fn chains(chains: &str) -> String {
    let names = ["[[trials]]\ntask_id = 1\n", "[[trials]]\ntask_id = 2\n"];
    let mut plan = plan(&[0; 6]);
    for i in 0..6 {
        plan = plan.replacen("[[trials]]\ncode", &format!("{}code", names[i / 3]), 1);
    }
    format!("{plan}[schedule]\nchains = \"{chains}\"\n")
}

/// Writes down how a client is called.
fn watch(pbs: &Pbs, client: &str) {
    wrap(&pbs.world, client, "echo \"${0##*/} $*\" >>$EVENTS.calls; real \"$@\"");
}

#[test]
fn a_cancelled_array_keeps_what_had_ended_and_runs_no_more() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0, 7, 0, 0]), &[]).ok();
    begun(&pbs, 0);
    end(&pbs, 0, "0[0].pbshead");
    begun(&pbs, 1);
    end(&pbs, 1, "0[1].pbshead");
    begun(&pbs, 2);
    watch(&pbs, "qdel");
    let ran = pbs.world.run(&["cancel"]);
    assert_eq!(ran.whole(), "s: cancelled 2 trials: 0[].pbshead\nexit code 0\n");
    pbs.wait_idle();
    let expected = [
        "done",
        "failed: exit code 7",
        "interrupted: the worker got SIGTERM",
        "cancelled: it ended before it began",
    ];
    assert_eq!(pbs.standings(), expected);
    assert!(!pbs.world.exists("events.3"));
    let ran = pbs.world.run(&["cancel"]);
    assert_eq!(ran.whole(), "s: nothing of it is queued or running\nexit code 0\n");
    assert_eq!(pbs.world.read("events.calls"), "qdel 0[].pbshead\n");
}

/// Everything is deleted in one call, what waits for others first: nothing begins meanwhile.
fn cancelled_chains(mapping: &str, history: bool, ids: &str) {
    let mut pbs = pbs(1);
    pbs.set("history", history);
    pbs.submit(&chains(mapping), &[]).ok();
    begun(&pbs, 0);
    watch(&pbs, "qdel");
    let ran = pbs.world.run(&["cancel"]);
    assert_eq!(ran.whole(), format!("s: cancelled 6 trials: {ids}\nexit code 0\n"));
    pbs.wait_idle();
    for trial in 1..6 {
        assert!(!pbs.world.exists(&format!("events.{trial}")), "trial {trial} began");
    }
    let states: Vec<String> = pbs
        .standings()
        .iter()
        .map(|standing| standing.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["interrupted", "skipped", "skipped", "cancelled", "skipped", "skipped"]);
    let ran = pbs.world.run(&["cancel"]);
    assert_eq!(ran.whole(), "s: nothing of it is queued or running\nexit code 0\n");
    assert_eq!(pbs.world.read("events.calls"), format!("qdel {ids}\n"));

    // The same `submit` with `--retry` submits all of them again.
    (0..6).for_each(|trial| go(&pbs, trial));
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    assert_eq!(pbs.world.column("attempts"), ["2", "1", "1", "1", "1", "1"]);
}

#[test]
fn chains_of_jobs_are_cancelled_from_their_ends() {
    let ids = "5.pbshead 4.pbshead 3.pbshead 2.pbshead 1.pbshead 0.pbshead";
    cancelled_chains("jobs", true, ids);
    cancelled_chains("jobs", false, ids);
}

#[test]
fn chains_behind_barriers_are_cancelled_from_their_ends() {
    let ids = "2[].pbshead 1[].pbshead 0[].pbshead";
    cancelled_chains("barrier", true, ids);
    cancelled_chains("barrier", false, ids);
}

#[test]
fn fused_chains_are_cancelled_whole() {
    cancelled_chains("fused", true, "0[].pbshead");
}

#[test]
fn one_trial_of_an_array_is_cancelled_alone() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0; 4]), &[]).ok();
    begun(&pbs, 0);
    let ran = pbs.world.run(&["cancel", "--trial", "2", "--trial", "0"]);
    assert_eq!(ran.whole(), "s: cancelled 2 trials: 0[0].pbshead 0[2].pbshead\nexit code 0\n");
    (0..4).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    let cancelled = "cancelled: it ended before it began";
    let expected = ["interrupted: the worker got SIGTERM", "done", cancelled, "done"];
    assert_eq!(pbs.standings(), expected);
    let ran = pbs.world.run(&["cancel", "--trial", "2"]);
    assert_eq!(ran.whole(), "s: trial 2 has ended\nexit code 0\n");
    for verb in ["cancel", "hold", "release", "retry", "logs", "why", "status"] {
        let ran = pbs.world.run(&[verb, "3-4"]);
        assert_eq!(
            ran.whole(),
            "error: sweep `$WORLD/results/s` has no trial 4\n\
             hint: its trials are 0-3: `hpcsweep status --trials results/s` lists them\nexit code 2\n",
            "{verb}"
        );
    }
}

#[test]
fn a_cancelled_link_stops_its_chain_and_no_other() {
    let pbs = pbs(2);
    pbs.submit(&chains("jobs"), &[]).ok();
    begun(&pbs, 0);
    let ran = pbs.world.run(&["cancel", "--trial", "1"]);
    assert_eq!(ran.whole(), "s: cancelled 1 trial: 1.pbshead\nexit code 0\n");
    (0..6).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    assert_eq!(
        pbs.standings(),
        [
            "done",
            "cancelled: deleted before it began",
            "skipped: its chain stopped: trial 1 has not run",
            "done",
            "done",
            "done",
        ]
    );
}

#[test]
fn a_fused_chain_is_cancelled_as_the_one_job_it_is() {
    let pbs = pbs(1);
    pbs.submit(&chains("fused"), &[]).ok();
    begun(&pbs, 0);
    let ran = pbs.world.run(&["cancel", "--trial", "4"]);
    assert_eq!(
        ran.whole(),
        "\
error: trial 4 is in one job with the rest of its chain: trials 3,5 have not ended either
hint: name all of them: hpcsweep cancel results/s 3-5
exit code 2
"
    );
    let ran = pbs.world.run(&["cancel", "--trial", "3", "--trial", "4", "--trial", "5"]);
    assert_eq!(ran.whole(), "s: cancelled 3 trials: 0[1].pbshead\nexit code 0\n");
    (0..6).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    let cancelled = "cancelled: it ended before it began";
    let stopped = ["has not run", "was skipped"];
    let [fifth, last] =
        [0, 1].map(|i| format!("skipped: its chain stopped: trial {} {}", 3 + i, stopped[i]));
    assert_eq!(pbs.standings(), ["done", "done", "done", cancelled, &fifth, &last]);
}

#[test]
fn what_is_held_does_not_begin_until_it_is_released() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0; 3]), &[]).ok();
    begun(&pbs, 0);
    let ran = pbs.world.run(&["hold"]);
    let after =
        "until `hpcsweep release results/s`, nothing more of it is submitted\nexit code 0\n";
    assert_eq!(ran.whole(), format!("s: held 2 trials: 0[].pbshead\n{after}"));
    // Running trials are not disturbed, and no trial follows them.
    end(&pbs, 0, "0[0].pbshead");
    assert_eq!(pbs.standings(), ["done", "queued: held", "queued: held"]);
    let ran = pbs.world.run(&["hold"]);
    assert_eq!(ran.whole(), "s: nothing of it waits to begin\nexit code 0\n");
    let ran = pbs.world.run(&["release"]);
    assert_eq!(ran.whole(), "s: released 2 trials: 0[].pbshead\nexit code 0\n");
    begun(&pbs, 1);
    let ran = pbs.world.run(&["release"]);
    assert_eq!(ran.whole(), "s: nothing of it is held\nexit code 0\n");
    (1..3).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 3]);
    let ran = pbs.world.run(&["hold"]);
    assert_eq!(ran.whole(), "s: nothing of it waits to begin\nexit code 0\n");
}

#[test]
fn elements_of_an_array_cannot_be_held_but_jobs_can() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0; 3]), &[]).ok();
    begun(&pbs, 0);
    for verb in ["hold", "release"] {
        let ran = pbs.world.run(&[verb, "--trial", "1"]);
        let expected = match verb {
            "hold" => {
                "\
error: PBS holds and releases whole arrays, not elements
hint: name no trial, or cancel the trial
exit code 2
"
            }
            _ => "s: nothing of it is held\nexit code 0\n",
        };
        assert_eq!(ran.whole(), expected);
    }
    pbs.world.run(&["cancel"]).ok();
    pbs.wait_idle();

    let chain = chains("jobs").replace("\"s\"", "\"jobs\"");
    pbs.submit(&chain, &[]).ok();
    let at = "results/jobs";
    let ran = pbs.world.run(&["hold", at, "--trial", "3"]);
    assert!(ran.err.starts_with("jobs: held 1 trial: 4.pbshead\n"), "{}", ran.whole());
    (0..6).for_each(|trial| go(&pbs, trial));
    wait_until("the other chain is done", || pbs.jobs()["3.pbshead"]["job_state"] == "F");
    assert!(!pbs.world.exists("events.3"));
    let ran = pbs.world.run(&["release", at, "--trial", "3"]);
    assert_eq!(ran.whole(), "jobs: released 1 trial: 4.pbshead\nexit code 0\n");
    pbs.wait_idle();
    assert!(pbs.world.exists("events.5"));
}

#[test]
fn what_pbs_refuses_to_take_back_is_told_and_can_be_asked_for_again() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0, 0]), &[]).ok();
    begun(&pbs, 0);
    wrap(&pbs.world, "qdel", "echo 'qdel: Server shutting down' >&2; exit 1");
    let ran = pbs.world.run(&["cancel"]);
    assert!(ran.code == 3 && ran.err.contains("Server shutting down"), "{}", ran.whole());
    assert_eq!(pbs.standings(), ["running", "queued: Q"]);
    std::fs::remove_file(pbs.world.path("bin/qdel")).unwrap();
    pbs.world.run(&["cancel"]).ok();
    pbs.wait_idle();
    let after = pbs.standings();
    assert!(after[0].starts_with("interrupted") && after[1].starts_with("cancelled"), "{after:?}");
}

/// qdel has one exit code for all jobs: that of the last one that it refuses.
#[test]
fn what_pbs_refuses_beside_a_job_that_has_ended_is_not_taken_back() {
    let pbs = pbs(1);
    pbs.submit(&chains("jobs"), &[]).ok();
    begun(&pbs, 0);
    let said = "qdel: Unauthorized Request 2.pbshead\nqdel: Job has finished 1.pbshead\n";
    wrap(&pbs.world, "qdel", &format!("printf '{said}' >&2; exit 35"));
    let ran = pbs.world.run(&["cancel"]);
    assert!(ran.code == 3 && ran.err.contains("Unauthorized Request 2.pbshead"), "{}", ran.whole());
    let after = pbs.standings();
    let is_queued = after.iter().map(|standing| standing.starts_with("queued"));
    assert_eq!(
        is_queued.collect::<Vec<_>>(),
        [false, false, true, false, false, false],
        "{after:?}"
    );
    assert_eq!(after[1], "cancelled: cancelled before it began");
}

/// A hook that does not end keeps a job in which nothing is left to run.
#[test]
fn a_job_whose_trial_has_ended_is_taken_back_too() {
    for (code, standing) in [(0, "done"), (3, "failed: exit code 3")] {
        let pbs = pbs(2);
        let hook = "trap '' TERM; : >$EVENTS.hook.$HPCSWEEP_TRIAL; exec sleep 1000";
        let hook = format!("[\"sh\", \"-c\", {}]", toml::Value::from(hook));
        let hooks = format!("[hooks]\nfinish = {hook}\nerror = {hook}\n");
        pbs.submit(&format!("{}{hooks}", plan(&[code; 2])), &[]).ok();
        for trial in 0..2 {
            begun(&pbs, trial);
            go(&pbs, trial);
            wait_until("the hook runs", || pbs.world.exists(&format!("events.hook.{trial}")));
        }
        let ran = pbs.world.run(&["cancel", "--trial", "1"]);
        let one = "s: cancelled the job of 1 trial that has ended: 0[1].pbshead\nexit code 0\n";
        assert_eq!(ran.whole(), one);
        wait_until("0[1] has ended", || pbs.jobs()["0[1].pbshead"]["job_state"] == "X");
        let ran = pbs.world.run(&["cancel", "--trial", "1"]);
        assert_eq!(ran.whole(), "s: trial 1 has ended\nexit code 0\n");
        let ran = pbs.world.run(&["cancel"]);
        let whole = "s: cancelled the job of 1 trial that has ended: 0[].pbshead\nexit code 0\n";
        assert_eq!(ran.whole(), whole);
        pbs.wait_idle();
        assert_eq!(pbs.standings(), [standing; 2]);
        let ran = pbs.world.run(&["cancel"]);
        assert_eq!(ran.whole(), "s: nothing of it is queued or running\nexit code 0\n");
    }
}

/// The head of a chain has failed and an operator has sent its job back: what is asked for again behind it waits for it.
#[test]
fn what_is_retried_behind_a_job_that_was_sent_back_waits_for_it() {
    let mut pbs = pbs(2);
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    let code = "echo begin $HPCSWEEP_TRIAL >>$EVENTS; [ -e $EVENTS.mended ] || exit 1; echo end $HPCSWEEP_TRIAL >>$EVENTS";
    let rest = "on_failure = \"continue\"\n[hooks]\nerror = [\"sh\", \"-c\", \": >$EVENTS.told; exec sleep 600\"]\n\
                timeout = \"10m\"\n[schedule]\nchains = \"jobs\"\n[defaults]\ntask_id = 1\n[grid]\na = [1, 2]\n";
    let plan = shell(code, rest);
    pbs.submit(&plan, &[]).ok();
    // Its end is on record, and its job runs on.
    wait_until("its hook runs", || pbs.world.exists("events.told"));
    pbs.set("scheduling", false);
    pbs.world.run(&["cancel", "--trial", "1"]).ok();
    pbs.world.call("qrerun", &["0"]).ok();
    wait_until("it is back in the queue", || pbs.jobs()["0.pbshead"]["job_state"] == "Q");
    pbs.world.write("events.mended", "");
    let ran = pbs.submit(&plan, &["--retry"]);
    let left = "trial 0 ended without success, but its job is still queued or running";
    assert!(ran.code == 0 && ran.err.contains(left), "{}", ran.whole());
    assert!(ran.err.contains("1 trial as job 2[].pbshead, after 0.pbshead"), "{}", ran.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "begin 0\nbegin 0\nend 0\nbegin 1\nend 1\n");
    assert_eq!(pbs.standings(), ["done"; 2]);
}

/// An order must include the jobs that a submission adds while the order is being prepared.
#[test]
fn nothing_is_submitted_beside_an_order_about_the_whole_sweep() {
    for (verb, word) in [("cancel", "cancelled"), ("hold", "held")] {
        let pbs = pbs(1);
        pbs.submit(&plan(&[0, 0]), &[]).ok();
        begun(&pbs, 0);
        pbs.world.write("plan.toml", &plan(&[0, 0, 0]));
        // Another submission, from the question how the trials stand to its end.
        let submit = format!(
            "real \"$@\"; code=$?; if mkdir \"$EVENTS.once\" 2>/dev/null; then {PROGRAM} submit plan.toml --pbs \
             >\"$EVENTS.said\" 2>&1 & until grep -qs 'waiting for it' \"$EVENTS.said\"; do sleep 0.05; done; \
             kill $!; wait; fi; exit $code"
        );
        wrap(&pbs.world, "qstat", &submit);
        let ran = pbs.world.run(&[verb]);
        assert!(ran.whole().starts_with(&format!("s: {word} ")), "{}", ran.whole());
        let said = pbs.world.read("events.said");
        assert!(said.contains("another hpcsweep is changing this sweep"), "{said}");
        assert_eq!(pbs.states().len(), 1, "{verb}");
    }
}
