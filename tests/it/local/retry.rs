//! `[retry]` in sweeps that run on this machine.

use crate::support::plans::shell;
use crate::support::world::World;

/// Counts how often a trial has begun, in `$n`; programs run in the folder of the plan.
const COUNTS: &str = "f=count.$HPCSWEEP_TRIAL; echo >>$f; n=$(wc -l <$f)";

fn plan(code: &str, rest: &str) -> String {
    shell(&format!("{COUNTS}; {code}"), rest)
}

const RULES: &str = "[retry]\nauto = true\nmax = 2\nexit_codes = { 75 = \"again\" }\n\
    oom = { memory = \"x2\" }\ntimeout = { walltime = \"x40\" }\n";

/// What `submit` says, without times.
fn said(err: &str) -> Vec<String> {
    let about = |line: &&str| line.starts_with('[') || line.starts_with("trial ");
    let untimed = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        if let Some(at) = words.iter().position(|word| *word == "in") {
            words.drain(at..at + 3);
        }
        words.join(" ")
    };
    err.lines().filter(about).map(untimed).collect()
}

#[test]
fn what_the_rules_name_runs_again_with_its_reason_on_record() {
    let world = World::new();
    let code = "case $HPCSWEEP_PARAM_A in
        1) [ $n = 3 ] || exit 75 ;;
        2) exit 75 ;;
        3) exit 4 ;;
        4) [ $n = 2 ] || kill -9 $PPID ;;
        5) [ $n = 2 ] || { echo MemoryError >&2; exit 1; } ;;
        esac";
    let rest = format!("[grid]\na = [1, 2, 3, 4, 5]\n{RULES}");
    let ran = world.local(&plan(code, &rest), &["-j", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let host = world.call("hostname", &[]).out.trim().to_owned();
    let expected = format!(
        "trial 0 runs again: exit code 75: again (1 of 2)
trial 0 runs again: exit code 75: again (2 of 2)
[1/5] trial 0 done (a=1)
trial 1 runs again: exit code 75: again (1 of 2)
trial 1 runs again: exit code 75: again (2 of 2)
[2/5] trial 1 failed (a=2): exit code 75
[3/5] trial 2 failed (a=3): exit code 4
trial 3 runs again: worker-lost on {host}: again (1 of 2)
[4/5] trial 3 done (a=4)
[5/5] trial 4 failed (a=5): MemoryError (from its log)"
    );
    assert_eq!(said(&ran.err).join("\n"), expected, "{}", ran.whole());
    let why = world.run(&["why", "results/s"]).out;
    for decided in [
        "not retried (exit code 75: it has run again 2 times): trial 1\n",
        "not retried (exit-code: nothing in `[retry]` repeats it): trial 2\n",
        "not retried (out-of-memory: no other trial ran beside it, and there is no more memory): trial 4\n",
    ] {
        assert_eq!(why.matches(decided).count(), 1, "{why}");
    }
    // Everything is decided: another submission repeats nothing, and a person may.
    let again = world.run(&["submit", "plan.toml", "--local"]);
    assert!(again.err.contains("s: nothing left to run\n"), "{}", again.whole());
    let retry = world.run(&["retry", "4", "-j", "1"]);
    assert_eq!(said(&retry.err), ["[1/1] trial 4 done (a=5)"], "{}", retry.whole());
}

#[test]
fn a_walltime_grows_where_the_trial_has_come_further() {
    let world = World::new();
    let code = "case $HPCSWEEP_PARAM_A$n in
        11) echo '{\"step\": 1}' >>$HPCSWEEP_METRICS; exec sleep 60 ;;
        12) sleep 4 ;;
        2*) exec sleep 60 ;;
        esac";
    let rest = format!("[grid]\na = [1, 2]\n[resources]\nwalltime = \"3s\"\n{RULES}");
    let ran = world.local(&plan(code, &rest), &["-j", "1"]);
    let expected = [
        "trial 0 runs again: walltime of 00:00:03: again with 00:02:00 (1 of 2)",
        "[1/2] trial 0 done (a=1)",
        "[2/2] trial 1 timeout (a=2): the wall-clock limit was reached",
    ];
    assert_eq!(said(&ran.err), expected, "{}", ran.whole());
    // Each attempt is shown with the walltime that it had.
    let columns = "trial,attempt,state,asked_walltime_s";
    let attempts = ["collect", "--attempts", "--format", "csv", "--columns", columns];
    assert_eq!(
        world.run(&attempts).ok(),
        format!("{columns}\n0,1,timeout,3\n0,2,done,120\n1,1,timeout,3\n")
    );
    for (trial, walltime) in [("0", "00:02:00"), ("1", "00:00:03")] {
        let why = world.run(&["why", trial]).out;
        let asked = why.lines().find(|line| line.trim_start().starts_with("asked"));
        assert!(asked.is_some_and(|line| line.contains(walltime)), "{why}");
    }
}

/// Each counts the programs that run at the same time.
#[test]
fn after_too_little_memory_a_trial_runs_with_nothing_beside_it() {
    let world = World::new();
    let code = "mkdir run.$HPCSWEEP_TRIAL; beside=$(ls -d run.* | wc -l)
        if [ $HPCSWEEP_TRIAL = 0 ] && [ $n = 1 ]; then
            until [ -e count.1 ]; do sleep 0.01; done
            rmdir run.0; echo MemoryError >&2; exit 1
        fi
        rmdir run.$HPCSWEEP_TRIAL; echo \"{\\\"beside\\\": $beside}\" >>$HPCSWEEP_METRICS";
    let rest = format!("[grid]\na = [1, 2, 3, 4, 5]\n{RULES}");
    let ran = world.local(&plan(code, &rest), &["-j", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let line = "trial 0 runs again: out-of-memory: again, with no other trial beside it (1 of 2)";
    assert!(said(&ran.err).iter().any(|said| said == line), "{}", ran.whole());
    let beside = ["collect", "0", "--format", "csv", "--columns", "attempts,beside"];
    assert_eq!(world.run(&beside).ok(), "attempts,beside\n2,1\n");
}

/// As after a kill between the end of a trial and the decision about it.
#[test]
fn what_an_earlier_run_left_undecided_is_decided_by_the_next() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 2 ] || [ $n = 2 ] || exit 75";
    let chain =
        "[[trials]]\ntask_id = 1\na = 1\n[[trials]]\ntask_id = 1\na = 2\n[[trials]]\na = 3\n";
    let before = world.local(&plan(code, chain), &["-j", "1"]);
    assert!(before.err.contains("1 done, 1 failed, 1 skipped"), "{}", before.whole());
    let ran = world.local(&plan(code, &format!("{chain}{RULES}")), &["-j", "1"]);
    let expected = [
        "[1/2] trial 0 done (a=1)",
        "trial 1 runs again: exit code 75: again (1 of 2)",
        "[2/2] trial 1 done (a=2)",
    ];
    assert_eq!(said(&ran.err), expected, "{}", ran.whole());
    assert_eq!(ran.code, 0);
}

/// A repeat that was decided and never began is none, and neither are attempts that were killed before.
#[test]
fn what_was_interrupted_uses_up_no_repeat() {
    let world = World::new();
    let code = "case $n in
        1) kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID ;;
        2) touch failed; exit 75 ;;
        esac";
    let rest = RULES.replace("max = 2", "max = 1");
    let plan = plan(code, &format!("[grid]\na = [1]\n{rest}"));
    // Its executor is killed while it runs, and then before it can begin the repeat that it has decided.
    assert_eq!(world.local(&plan, &[]).code, 137);
    let ran = world.local(&plan, &[]);
    let expected = ["trial 0 runs again: exit code 75: again (1 of 1)", "[1/1] trial 0 done (a=1)"];
    assert_eq!(said(&ran.err), expected, "{}", ran.whole());
}

#[test]
fn nothing_is_repeated_beyond_the_budget() {
    let world = World::new();
    let rest = format!(
        "[grid]\na = [1]\n{RULES}budget = 0.0000001\n[hooks]\nsweep_failed = [\"sh\", \"-c\", \"cp $HPCSWEEP_SUMMARY summary\"]\n"
    );
    let ran = world.local(&plan("sleep 0.01; exit 75", &rest), &[]);
    assert_eq!(said(&ran.err), ["[1/1] trial 0 failed (a=1): exit code 75"], "{}", ran.whole());
    let why = world.run(&["why", "results/s"]).out;
    assert!(why.contains("not retried (the budget of 0.0000001 core-hours is used up)"), "{why}");
    assert!(world.read("summary").contains("the budget of 0.0000001 core-hours is used up"));
}

#[test]
fn what_a_person_runs_again_is_counted_anew_and_decided_anew() {
    let world = World::new();
    let code = "case $HPCSWEEP_PARAM_A in 1) exit 75 ;; 2) exit 4 ;; esac";
    let rest = format!("[grid]\na = [1, 2]\n{}", RULES.replace("max = 2", "max = 1"));
    let ran = world.local(&plan(code, &rest), &["-j", "1"]);
    let ends = [
        "trial 0 runs again: exit code 75: again (1 of 1)",
        "[1/2] trial 0 failed (a=1): exit code 75",
        "[2/2] trial 1 failed (a=2): exit code 4",
    ];
    assert_eq!(said(&ran.err), ends, "{}", ran.whole());
    let retry = world.run(&["retry", "-j", "1"]);
    assert_eq!(said(&retry.err), ends, "{}", retry.whole());
    // `why` shows equal decisions within a second as one.
    let journal = world.journal("s");
    for decided in ["again (1 of 1)", "it has run again once", "nothing in `[retry]` repeats it"] {
        assert_eq!(journal.matches(decided).count(), 2, "{journal}");
    }
    // Nothing is left to decide.
    let again = world.run(&["submit", "plan.toml", "--local"]);
    assert!(again.err.contains("s: nothing left to run\n"), "{}", again.whole());
}
