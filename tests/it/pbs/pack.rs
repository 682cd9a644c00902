//! PBS: `[schedule] pack`, several chains in an element of an array, one after the other.

use crate::support::pbs::Pbs;
use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

/// Trials that write down that they begin; `rest` of the plan.
fn plan(code: &str, rest: &str) -> String {
    shell(&format!("echo $HPCSWEEP_TRIAL $PBS_ARRAY_INDEX >>$EVENTS; {code}"), rest)
}

/// So many single trials.
fn singles(trials: u32) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    format!("[resources]\nwalltime = \"10m\"\n[grid]\na = [{}]\n", numbers.join(", "))
}

/// Trials in the order in which the element of this index began them.
fn of_element(pbs: &Pbs, index: u32) -> Vec<u32> {
    let events = pbs.world.read("events");
    let lines = events.lines().filter_map(|line| line.split_once(' '));
    let own = lines.filter(|(_, element)| element.parse() == Ok(index));
    own.map(|(trial, _)| trial.parse().unwrap()).collect()
}

#[test]
fn twenty_trials_are_four_elements_of_five_and_a_failure_stops_none() {
    let mut pbs = pbs();
    pbs.set("max_array_size", 4);
    let pack = format!("{}[schedule]\npack = 5\n", singles(20));
    let ran = pbs.submit(&plan("[ $HPCSWEEP_TRIAL != 6 ] || exit 3", &pack), &[]);
    assert_eq!(
        ran.whole(),
        "\
chains as fused: `pack` puts 5 chains into an element
array 1: 20 trials as job 0[].pbshead
s: 20 trials submitted as 1 array (3 scheduler calls)
jobs: 0[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    let ended = pbs.world.run(&["cancel", "--trial", "0"]);
    assert_eq!(ended.whole(), "s: trial 0 has ended\nexit code 0\n");
    let ended = pbs.world.run(&["cancel", "--trial", "3", "--trial", "6"]);
    assert_eq!(ended.whole(), "s: trials 3,6 have ended\nexit code 0\n");
    for index in 0..4 {
        assert_eq!(of_element(&pbs, index), (index * 5..index * 5 + 5).collect::<Vec<_>>());
    }
    let mut expected = vec!["done"; 20];
    expected[6] = "failed: exit code 3";
    assert_eq!(pbs.standings(), expected);
    assert_eq!(pbs.jobs()["0[].pbshead"]["Resource_List"]["walltime"], "00:50:00");
    // What failed is an element of its own when it is run again.
    assert!(pbs.again(&[]).err.contains("nothing new to submit"));
    let again = pbs.again(&["--retry"]);
    assert!(again.err.contains("array 2: 1 trial as job 1[].pbshead"), "{}", again.whole());
}

#[test]
fn a_trial_of_a_packed_element_is_not_taken_back_alone() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let pack = format!("{}[schedule]\npack = 5\n", singles(10));
    pbs.submit(&plan("true", &pack), &[]).ok();
    let ran = pbs.world.run(&["cancel", "--trial", "7"]);
    assert_eq!(
        ran.whole(),
        "\
error: trial 7 is packed together with others into one job: trials 5-6,8-9 have not ended either
hint: name all of them: hpcsweep cancel results/s 5-9
exit code 2
"
    );
    let all = ["--trial", "5", "--trial", "6", "--trial", "7", "--trial", "8", "--trial", "9"];
    let ran = pbs.world.run(&[&["cancel"], &all[..]].concat());
    assert_eq!(ran.whole(), "s: cancelled 5 trials: 0[1].pbshead\nexit code 0\n");
}

/// Chains that share an element are named at once, not one after the other.
#[test]
fn a_trial_of_packed_chains_is_taken_back_with_all_that_shares_its_job() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let chains = "[resources]\nwalltime = \"10m\"\n[defaults]\ntask_id = \"c{{ c }}\"\n\
                  [grid]\nc = [0, 1, 2, 3]\na = [0, 1]\n[schedule]\npack = 2\nchains = \"fused\"\n";
    pbs.submit(&plan("true", chains), &[]).ok();
    let ran = pbs.world.run(&["cancel", "--trial", "4"]);
    assert_eq!(
        ran.whole(),
        "\
error: trial 4 is packed together with others into one job: trials 5-7 have not ended either
hint: name all of them: hpcsweep cancel results/s 4-7
exit code 2
"
    );
    let all = ["--trial", "4", "--trial", "5", "--trial", "6", "--trial", "7"];
    let ran = pbs.world.run(&[&["cancel"], &all[..]].concat());
    assert_eq!(ran.whole(), "s: cancelled 4 trials: 0[1].pbshead\nexit code 0\n");
}

#[test]
fn chains_are_packed_whole_and_stop_by_themselves() {
    let pbs = pbs();
    // The second link of the first chain fails; the chain behind it in the element runs.
    let rest = "[defaults]\ntask_id = \"c{{ c }}\"\n[grid]\nc = [0, 1, 2]\na = [0, 1, 2]\n[schedule]\npack = 2\n";
    pbs.submit(&plan("[ $HPCSWEEP_TRIAL != 1 ] || exit 3", rest), &[]).ok();
    pbs.wait_idle();
    let mut expected = vec!["done"; 9];
    expected[1] = "failed: exit code 3";
    expected[2] = "skipped: its chain stopped: trial 1 failed";
    assert_eq!(pbs.standings(), expected);
    let mut ran: Vec<String> = pbs.world.column("job");
    ran.dedup();
    assert_eq!(ran, ["\"0[0].pbshead\"", "null", "\"0[0].pbshead\"", "\"1[0].pbshead\""]);
}

#[test]
fn nothing_begins_in_an_element_behind_a_trial_that_was_stopped() {
    let pbs = pbs();
    // Its worker has the signal before the shell of the job, which gets none here.
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || { kill -TERM $PPID; exit 75; }";
    pbs.submit(&plan(code, &format!("{}[schedule]\npack = 4\n", singles(4))), &[]).ok();
    pbs.wait_idle();
    assert_eq!(of_element(&pbs, 0), [0, 1]);
    assert_eq!(pbs.standings()[1], "interrupted: the worker got SIGTERM");
    // A program that ends with the code of a stop has only failed.
    let pbs = self::pbs();
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || exit 75";
    pbs.submit(&plan(code, &format!("{}[schedule]\npack = 4\n", singles(4))), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 75", "done", "done"]);
}

#[test]
fn nothing_begins_in_a_job_that_is_stopped_whatever_its_trial_was_at_then() {
    let stops = |what: &str, code: &str, hook: &str| {
        let pbs = pbs();
        let own = |code: &str| format!("[ $HPCSWEEP_TRIAL = 1 ] || exit 0; {code}");
        let hook = toml::Value::from(own(hook));
        let hooks = format!("[hooks]\nfinish = [\"sh\", \"-c\", {hook}]\n");
        let rest = format!("{}[schedule]\npack = 4\n{hooks}", singles(4));
        pbs.submit(&plan(&own(code), &rest), &[]).ok();
        pbs.wait_idle();
        assert_eq!(of_element(&pbs, 0), [0, 1], "{what}");
        let states = || pbs.standings().iter().map(|s| s[..4].to_owned()).collect::<Vec<_>>();
        assert_eq!(states()[..2], ["done", "done"], "{what}");
        // The element skips trials that are done and runs the others.
        pbs.again(&["--retry"]).ok();
        pbs.wait_idle();
        assert_eq!(states(), ["done"; 4], "{what}");
    };
    // Only the worker has the signal: it may arrive there before it reaches the shell.
    let stop = "kill -TERM $PPID";
    stops(
        "its program had declared its result",
        &format!("trap '' TERM; echo 1 >$HPCSWEEP_RESULT; {stop}"),
        "",
    );
    // A call that was cut off is made again, by the next submission: it must not be stopped, too.
    let stop = format!("[ ! -e called ] || exit 0; touch called; {stop}");
    stops("its hook ran", "", &format!("{stop}; exec sleep 1000"));
    stops("its hook had ended", "", &format!("{stop}; exit 0"));
}

#[test]
fn a_worker_that_passes_a_trial_over_in_a_job_that_is_stopped_says_so() {
    let world = World::new();
    let chain = "[defaults]\ntask_id = 1\n[grid]\na = [0, 1]\n";
    world.local(&shell("exit $HPCSWEEP_TRIAL", chain), &["-q"]);
    world.write("first/plan.toml", &shell("exit 3", chain).replace("\"s\"", "\"t\""));
    world.run(&["submit", "first/plan.toml", "--local", "-q"]);
    // Its signal has come before it can listen to it.
    let told = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])";
    let code = |sweep: &str, trial: &str, is_told: bool| {
        let sweep = world.text_path(sweep);
        let worker =
            [PROGRAM, "worker", "--sweep", &sweep, "--trial", trial, "--gate", "--stopped", "75"];
        let ran = match is_told {
            true => world.call("python3", &[&["-S", "-c", told], &worker[..]].concat()),
            false => world.call(PROGRAM, &worker[1..]),
        };
        ran.code
    };
    for (what, sweep, trial, untold) in
        [("done", "results/s", "0", 0), ("behind a failure", "first/results/t", "1", 1)]
    {
        assert_eq!(code(sweep, trial, false), untold, "{what}");
        assert_eq!(code(sweep, trial, true), 75, "{what}");
    }
}

#[test]
fn what_runs_and_what_waits_in_a_job_that_was_deleted_is_not_called_running_until_it_has_ended() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 1000);
    pbs.set("sees_ends_late", true);
    let code = "trap 'until [ -e $EVENTS.go ]; do sleep 0.01; done; exit 1' TERM; \
                while :; do sleep 0.05; done";
    pbs.submit(&plan(code, &format!("{}[schedule]\npack = 2\n", singles(2))), &[]).ok();
    wait_until("the first runs", || of_element(&pbs, 0) == [0]);
    pbs.world.call("qdel", &["0[].pbshead"]);
    let cancelled = "cancelled: cancelled before it began";
    assert_eq!(pbs.standings(), ["running: stopping", cancelled]);
    pbs.world.write("events.go", "");
    // The job runs on for PBS.
    wait_until("it has ended", || {
        pbs.standings() == ["interrupted: the worker got SIGTERM", cancelled]
    });
    assert_eq!(pbs.jobs()["0[0].pbshead"]["job_state"], "R");
}

#[test]
fn what_an_element_has_not_come_to_is_queued() {
    let pbs = pbs();
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || until [ -e $EVENTS.go ]; do sleep 0.01; done";
    pbs.submit(&plan(code, &format!("{}[schedule]\npack = 4\n", singles(4))), &[]).ok();
    wait_until("the second runs", || of_element(&pbs, 0) == [0, 1]);
    let behind = "queued: behind the trial before it";
    wait_until("it says so", || pbs.standings() == ["done", "running", behind, behind]);
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
}

#[test]
fn a_trial_keeps_to_its_own_walltime() {
    let pbs = pbs();
    let code = "[ $HPCSWEEP_TRIAL != 0 ] || exec sleep 1000";
    let rest = singles(2).replace("10m", "4s");
    pbs.submit(&plan(code, &format!("{rest}[schedule]\npack = 2\n")), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["timeout: the wall-clock limit was reached", "done"]);
}
