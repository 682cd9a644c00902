//! PBS: `[retry] auto`: what failed for a reason that the plan names runs again, without a person.

use crate::support::pbs::Pbs;
use crate::support::pbs_once::wrap;
use crate::support::plans::shell;
use crate::support::world::{timeless, wait_until};

/// A plan whose trials append their number to `ran` and go on by it: `code` has a case for each.
fn plan(code: &str, rest: &str) -> String {
    let code = format!(
        "echo $HPCSWEEP_TRIAL >>$HPCSWEEP_SWEEP_DIR/ran; \
         n=$(grep -cx $HPCSWEEP_TRIAL $HPCSWEEP_SWEEP_DIR/ran); case $HPCSWEEP_TRIAL in {code} esac"
    );
    shell(&code, &format!("[retry]\nauto = true\n{rest}"))
}

/// How often each of these trials ran.
fn runs(pbs: &Pbs, trials: u64) -> Vec<usize> {
    let ran = pbs.world.read("results/s/ran");
    (0..trials).map(|trial| ran.lines().filter(|line| *line == trial.to_string()).count()).collect()
}

/// What `why` says that was decided, without times.
fn decided(pbs: &Pbs) -> Vec<String> {
    let why = pbs.world.run(&["why"]);
    let lines = why.ok().lines().filter(|line| line.contains("retried"));
    let mut lines: Vec<String> = lines
        .map(|line| timeless(line).split_once("retried").unwrap().1.trim().to_owned())
        .collect();
    lines.sort();
    lines
}

#[test]
fn only_what_the_plan_names_runs_again_and_only_so_often() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let code = "0) ;; 1) [ $n = 2 ] || exit 75 ;; 2) exit 75 ;; 3) exit 1 ;; \
                4) [ $n = 2 ] || kill -9 $PPID ;;";
    let rest = "exit_codes = { 75 = \"again\" }\nmax = 2\n[grid]\na = [0, 1, 2, 3, 4]\n";
    let ran = pbs.submit(&plan(code, rest), &[]);
    assert_eq!(
        ran.whole(),
        "\
array 1: 5 trials as job 0[].pbshead
feeder: job 1.pbshead, after 0[].pbshead
s: 5 trials submitted as 1 array (5 scheduler calls); job 1.pbshead repeats what fails, by `[retry]`
jobs: 0[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    // A second submission adds no second feeder.
    let jobs = pbs.jobs().len();
    let again = pbs.again(&[]);
    assert!(again.err.starts_with("s: nothing new to submit"), "{}", again.whole());
    assert_eq!(pbs.jobs().len(), jobs);
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 5), [1, 2, 3, 1, 2]);
    assert_eq!(
        pbs.standings(),
        ["done", "done", "failed: exit code 75", "failed: exit code 1", "done"]
    );
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert_eq!(
        decided(&pbs),
        [
            "(exit code 75: again (1 of 2)): trials 1-2",
            "(exit code 75: again (2 of 2)): trial 2",
            "(exit code 75: it has run again 2 times): trial 2",
            "(exit-code: nothing in `[retry]` repeats it): trial 3",
            &format!("(worker-lost on {host}: again (1 of 2)): trial 4"),
        ]
    );
    let why = pbs.world.run(&["why", "2"]);
    assert!(
        why.ok().contains("\n  not retried: exit code 75: it has run again 2 times\n"),
        "{}",
        why.out
    );
    // A person is not bound by that, and what a person asks for is counted anew.
    pbs.world.run(&["retry", "2"]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 5), [1, 2, 6, 1, 2]);
}

#[test]
fn a_chain_continues_where_it_broke_with_more_time_each_time() {
    let mut pbs = Pbs::start();
    // The second trial of the chain needs more than twice its walltime, and writes what it has done.
    let code = "0|2) ;; 1) echo '{\"step\": '$n'}' >>$HPCSWEEP_METRICS; [ $n = 3 ] || sleep 60 ;; \
                3) sleep 60 ;;";
    let rest = "timeout = { walltime = \"x1.5\", up_to = \"5s\" }\n[resources]\nwalltime = \"4s\"\n\
                [[trials]]\na = 0\ntask_id = 0\n[[trials]]\na = 1\ntask_id = 0\n[[trials]]\na = 2\ntask_id = 0\n\
                [[trials]]\na = 3\n";
    pbs.set("scheduling", true);
    pbs.submit(&plan(code, rest), &[]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 4), [1, 3, 1, 1]);
    assert_eq!(pbs.standings()[..3], ["done", "done", "done"]);
    assert_eq!(
        decided(&pbs),
        [
            "(walltime of 00:00:04: again with 00:00:05 (1 of 3)): trial 1",
            "(walltime of 00:00:05: again (2 of 3)): trial 1",
            "(walltime: it wrote no checkpoint, and its metrics did not advance): trial 3",
        ]
    );
}

#[test]
fn what_has_no_place_is_submitted_and_what_fails_meanwhile_runs_again() {
    let mut pbs = Pbs::start();
    pbs.set("max_queued", 4);
    let numbers: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    let code = "*) [ $n = 2 ] || [ $((HPCSWEEP_TRIAL % 3)) != 0 ] || exit 75 ;;";
    let rest = format!("exit_codes = {{ 75 = \"again\" }}\n[grid]\na = [{}]\n", numbers.join(", "));
    pbs.submit(&plan(code, &rest), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 11]);
    assert_eq!(runs(&pbs, 11), [2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1]);
}

/// The feeder waits while a person submits: the places that there are belong to the repeats.
#[test]
fn a_submission_by_hand_leaves_the_places_of_repeats_to_the_feeder() {
    let mut pbs = Pbs::start();
    pbs.set("max_queued", 4);
    pbs.set("scheduling", false);
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2, 3, 4, 5, 6]\n";
    pbs.submit(&plan("1|2) [ $n = 2 ] || exit 75 ;;", rest), &[]).ok();
    let feeder = "2.pbshead";
    pbs.world.call("qhold", &[feeder]).ok();
    pbs.set("scheduling", true);
    wait_until("the first trials have ended", || {
        pbs.jobs().iter().all(|(id, job)| id == feeder || job["job_state"] == "F")
    });
    pbs.set("scheduling", false);
    // Three places are free, two trials are to be repeated.
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
2 places kept for trials that `[retry]` may repeat
max_queued of queue `workq` allows 4 elements, 1 are in the queue: 1 trial now, 3 later, in about 3 further submissions
array 4: 1 trial as job 3[].pbshead
s: 1 trial submitted as 1 array (5 scheduler calls); 3 trials follow when there is a place in the queue; 3 trials submitted before
jobs: 3[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    // All places are kept, or taken.
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
2 places kept for trials that `[retry]` may repeat
s: nothing new to submit (4 scheduler calls); 3 trials follow when there is a place in the queue; 4 trials submitted before
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.world.call("qrls", &[feeder]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 7]);
    let ran = pbs.world.read("results/s/ran");
    let order: Vec<&str> = ran.lines().collect();
    let at = |trial: &str| order.iter().rposition(|one| *one == trial);
    assert_eq!(runs(&pbs, 7), [1, 2, 2, 1, 1, 1, 1]);
    assert!(at("1") < at("6") && at("2") < at("6"), "{order:?}");
}

#[test]
fn a_budget_that_is_used_up_ends_it() {
    let pbs = Pbs::start();
    let rest = "exit_codes = { 75 = \"again\" }\nbudget = 0.0001\n[grid]\na = [0]\n";
    let ran = pbs.submit(&plan("*) sleep 1; exit 75 ;;", rest), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(decided(&pbs), ["(the budget of 0.0001 core-hours is used up): trial 0"]);
}

#[test]
fn a_feeder_that_was_lost_is_replaced_by_the_next_submission() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let code = "1) [ $n = 2 ] || exit 75 ;; 2) exit 1 ;;";
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2]\n";
    pbs.submit(&plan(code, rest), &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 75", "failed: exit code 1"]);
    let line = "`[retry]`: no job waits that decides about 2 trials without success; to bring one: \
                hpcsweep submit plan.toml --pbs\n";
    let status = pbs.world.run(&["status"]).whole();
    assert!(status.contains(line), "{status}");
    let again = pbs.again(&[]);
    assert!(again.err.starts_with("feeder: job 2.pbshead"), "{}", again.whole());
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "done", "failed: exit code 1"]);
    // Nothing is left to decide.
    let status = pbs.world.run(&["status"]).whole();
    assert!(!status.contains("no job waits"), "{status}");
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!(pbs.jobs().len(), jobs);
}

/// Without a record of the trials, only the scheduler knows that there is nothing to decide: the first feeder that has asked
/// is the last one.
#[test]
fn what_was_deleted_before_it_began_brings_one_feeder() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let rest = "exit_codes = { 75 = \"again\" }\n[[trials]]\na = 0\n\
                [[trials]]\ntask_id = 1\na = 1\n[[trials]]\ntask_id = 1\na = 2\n";
    pbs.submit(&plan("", rest), &[]).ok();
    pbs.world.call("qdel", &["0[].pbshead", "1.pbshead", "3.pbshead"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let standings = pbs.standings();
    pbs.again(&[]).ok();
    pbs.wait_idle();
    let jobs = pbs.jobs().len();
    let again = pbs.again(&[]);
    assert!(again.err.starts_with("s: nothing new to submit"), "{}", again.whole());
    assert_eq!((pbs.jobs().len(), pbs.standings()), (jobs, standings));
}

/// An executor on this machine was killed between the end of a trial and the decision about it, as it looks here.
#[test]
fn what_this_machine_left_undecided_is_decided_by_the_feeder_that_goes_on() {
    let pbs = Pbs::start();
    let code = "0) [ $n = 2 ] || exit 75 ;; 1) exit 1 ;;";
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2]\n";
    let plan = plan(code, rest);
    pbs.world.local(&plan.replace("auto = true", "auto = false"), &[]);
    assert_eq!(runs(&pbs, 3), [1, 1, 1]);
    let ran = pbs.submit(&plan, &[]);
    assert!(ran.err.starts_with("feeder: job 0.pbshead\n"), "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 1", "done"]);
    assert_eq!(
        decided(&pbs),
        [
            "(exit code 75: again (1 of 3)): trial 0",
            "(exit-code: nothing in `[retry]` repeats it): trial 1",
        ]
    );
    // Nothing is left to decide.
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!(pbs.jobs().len(), jobs);
}

/// Not from what its array asked for, before it ran here with more.
#[test]
fn a_repeat_grows_from_the_request_of_the_attempt_that_failed() {
    let pbs = Pbs::start();
    let plan = |auto: bool, memory: &str| {
        let rest =
            format!("max = 1\noom = {{ memory = \"x2\" }}\n[resources]\nmemory = \"{memory}\"\n");
        let code = "*) echo MemoryError >&2; exit 1 ;;";
        plan(code, &rest).replace("auto = true", &format!("auto = {auto}"))
    };
    pbs.submit(&plan(false, "128M"), &[]).ok();
    pbs.wait_idle();
    pbs.world.local(&plan(false, "256M"), &["--retry"]);
    assert_eq!(runs(&pbs, 1), [2]);
    pbs.submit(&plan(true, "128M"), &[]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 1), [3]);
    let all = decided(&pbs);
    assert_eq!(all[0], "(out-of-memory with 256M: again with 512M (1 of 1)): trial 0", "{all:?}");
}

#[test]
fn what_a_lost_feeder_left_undecided_is_decided_when_agents_go_on() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let code = "0) [ $n = 2 ] || exit 75 ;; 1) exit 1 ;;";
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1]\n";
    pbs.submit(&plan(code, rest), &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let ran = pbs.world.run(&["submit", "plan.toml", "--pull", "--local"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(pbs.standings(), ["done", "failed: exit code 1"]);
    assert_eq!(runs(&pbs, 2), [2, 1]);
    let status = pbs.world.run(&["status"]).whole();
    assert!(!status.contains("no job waits"), "{status}");
}

/// What agents have left at that, and what a person has cancelled, waits for no feeder.
#[test]
fn nothing_is_to_be_decided_about_what_agents_have_left_and_persons_have_cancelled() {
    let pbs = Pbs::start();
    let code = "0) [ -e now ] || exit 1 ;; 1) exit 1 ;; 2) [ ! -e now ] || exec sleep 600 ;;";
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2]\n";
    pbs.world.write("plan.toml", &plan(code, rest));
    assert_eq!(pbs.world.run(&["submit", "plan.toml", "--pull", "--local"]).code, 1);
    pbs.world.write("now", "");
    pbs.again(&["--retry", "--trial", "0"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 1", "done"]);
    let is_awaited = |pbs: &Pbs| pbs.world.run(&["status"]).out.contains("no job waits");
    assert!(!is_awaited(&pbs));

    let other = plan(code, rest).replace("name = \"s\"", "name = \"t\"");
    pbs.submit(&other, &[]).ok();
    wait_until("it runs", || {
        let status = pbs.world.run(&["status", "results/t", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
        status["counts"]["running"] == 1 && status["counts"]["done"] == 1
    });
    pbs.world.run(&["cancel", "results/t"]).ok();
    pbs.wait_idle();
    let status = pbs.world.run(&["status", "results/t"]).whole();
    assert!(status.contains("cancelled"), "{status}");
    assert!(!status.contains("no job waits"), "{status}");
}

/// Nothing but the trial runs: what was never submitted waits for the next `submit`.
#[test]
fn the_feeder_of_a_retry_submits_nothing_else() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2]\n[hooks]\n\
                sweep_finished = [\"sh\", \"-c\", \"echo called >>calls\"]\n";
    let plan = plan("1) [ $n = 2 ] || exit 75 ;;", rest);
    pbs.submit(&plan, &[]).ok();
    pbs.world.run(&["cancel"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    pbs.world.run(&["retry", "1"]).ok();
    pbs.wait_idle();
    let cancelled = "cancelled: deleted before it began";
    assert_eq!(pbs.standings(), [cancelled, "done", cancelled]);
    assert_eq!(pbs.world.read("results/s/ran"), "1\n1\n");
    // One trial of the sweep again, elsewhere: as its own sweep, and just as alone.
    pbs.world.run(&["retry", "0", "2"]).ok();
    pbs.wait_idle();
    // Once for each time that all trials have ended.
    let called = "called\ncalled\n".to_owned();
    assert_eq!(pbs.world.read("calls"), called);
    pbs.world.run(&["submit", "results/s", "--reproduce", "1", "--pbs"]).ok();
    pbs.wait_idle();
    let ran = pbs.world.read("results/s.reproduced/1/s/ran");
    assert_eq!((ran, pbs.world.read("calls")), ("1\n1\n".to_owned(), called));
    let compared = pbs.world.run(&["submit", "results/s", "--reproduce", "1", "--pbs"]);
    assert!(compared.whole().contains("trial 1: done both times"), "{}", compared.whole());
}

/// A feeder of some trials alone is none for a submission of all.
#[test]
fn a_submission_of_all_brings_a_feeder_beside_that_of_a_retry() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1]\n";
    let plan = plan("0) [ $n = 2 ] || exit 75 ;;", rest);
    pbs.submit(&plan, &[]).ok();
    pbs.world.run(&["cancel"]).ok();
    pbs.world.run(&["retry", "1"]).ok();
    let ran = pbs.again(&["--retry"]);
    assert!(ran.err.contains("repeats what fails, by `[retry]`"), "{}", ran.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "done"]);
    assert_eq!(runs(&pbs, 2), [2, 1]);
}

#[test]
fn a_feeder_that_waits_when_every_trial_has_ended_is_seen() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let code = "*) [ $n = 2 ] || exit 75 ;;";
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1]\n";
    pbs.submit(&plan(code, rest), &[]).ok();
    pbs.world.call("qhold", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    wait_until("the trials have ended", || {
        let has_ended =
            |(id, job): (&String, &serde_json::Value)| id == "1.pbshead" || job["job_state"] == "F";
        pbs.jobs().iter().all(has_ended)
    });
    let status = |args: &[&str]| pbs.world.run(&[&["status"], args].concat()).whole();
    let shown = |seen: &str, feeder: &str, again: &str| {
        format!(
            "\
s: 2 trials in $WORLD/results/s
  state   trials
  failed       2
seen by: {seen}
{feeder}
2 trials without success:
  2 x exit code 75 (trials 0-1)
    what trial 0 printed: hpcsweep logs 0
{again}exit code 1
"
        )
    };
    let feeder = "`[retry]`: job 1.pbshead repeats 2 trials without success, or records why not, when there is a \
                  place in the queue\n";
    assert_eq!(status(&[]), shown("qstat", feeder, ""));
    let again = "to run them again: hpcsweep submit plan.toml --pbs --retry\n";
    assert_eq!(status(&["--offline"]), shown("the results tree alone", "", again));
    let why = pbs.world.run(&["why", "1"]).ok().to_owned();
    let awaits = "  `[retry]`: job 1.pbshead repeats it, or records why not, when there is a place in the queue";
    assert!(why.lines().any(|line| line == awaits), "{why}");
    for order in ["hold", "cancel"] {
        assert_eq!(
            pbs.world.run(&[order, "1"]).whole(),
            format!(
                "s: trial 1 may run again by `[retry]` and is left alone; `hpcsweep {order} results/s` stops \
                 the whole sweep\nexit code 0\n"
            )
        );
    }
    pbs.world.call("qrls", &["1.pbshead"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "done"]);
    // Nobody is asked when there is nothing to decide.
    let done = pbs.world.run(&["status"]);
    let seen = "\nseen by: the results tree alone: every trial has ended\n";
    assert!(done.ok().contains(seen), "{}", done.whole());
}

/// The feeder is killed after each other call, and a person submits again: what was decided and not submitted counts once.
#[test]
fn a_repeat_that_was_never_submitted_does_not_count() {
    let mut pbs = Pbs::start();
    pbs.set("max_queued", 3);
    let killer = "if tr '\\0' ' ' </proc/$PPID/cmdline | grep -q ' feed '; then echo x >>$TEST_PBS_HOME/calls; \
                  n=$(wc -l <$TEST_PBS_HOME/calls); [ $n -gt 7 ] || [ $((n % 2)) = 0 ] || { real \"$@\"; kill -9 $PPID; exit 1; }; \
                  fi; real \"$@\"";
    wrap(&pbs.world, "qsub", killer);
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2, 3, 4, 5]\n";
    pbs.submit(&plan("0|1) [ $n = 2 ] || exit 75 ;;", rest), &[]).ok();
    for _ in 0..9 {
        pbs.wait_quiet();
        let _ = pbs.again(&[]);
    }
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    assert_eq!(runs(&pbs, 6), [2, 2, 1, 1, 1, 1]);
    let counted = |line: &String| line.contains("(2 of 3)") || line.contains("(3 of 3)");
    assert!(!decided(&pbs).iter().any(counted), "{:?}", decided(&pbs));
}

#[test]
fn what_is_cancelled_stays_cancelled() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let rest = "exit_codes = { 75 = \"again\" }\n[grid]\na = [0, 1, 2]\n";
    pbs.submit(&plan("*) ;;", rest), &[]).ok();
    pbs.world.run(&["cancel", "1"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let states: Vec<String> =
        pbs.standings().iter().map(|s| s.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(states, ["done", "cancelled", "done"]);
    assert_eq!(decided(&pbs), [""; 0]);
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!(pbs.jobs().len(), jobs);
}

/// The wall-clock times that the jobs of arrays ask for, in the order of submission.
fn walltimes(pbs: &Pbs) -> Vec<String> {
    let jobs = pbs.jobs();
    let mut arrays: Vec<(u64, String)> = jobs
        .iter()
        .filter_map(|(id, job)| {
            let number = id.strip_suffix("[].pbshead")?.parse().ok()?;
            Some((number, job["Resource_List"]["walltime"].as_str()?.to_owned()))
        })
        .collect();
    arrays.sort();
    arrays.into_iter().map(|(_, walltime)| walltime).collect()
}

/// From now on the queue has no place for arrays, which only their submission shows.
fn refuse_arrays(pbs: &Pbs) {
    let full = "echo 'qsub: would exceed the limit of your group' >&2; exit 1";
    let code = format!("if grep -q '^#PBS -J' \"${{!#}}\"; then {full}; fi; real \"$@\"");
    wrap(&pbs.world, "qsub", &code);
}

#[test]
fn a_retry_that_had_no_place_keeps_its_request() {
    let pbs = Pbs::start();
    let code = "*) [ $n = 2 ] || exit 1 ;;";
    pbs.submit(&plan(code, "[grid]\na = [0, 1]\n").replace("auto = true\n", ""), &[]).ok();
    pbs.wait_idle();
    refuse_arrays(&pbs);
    let refused = pbs.world.run(&["retry", "--walltime", "9m"]);
    assert_eq!(refused.code, 3, "{}", refused.whole());
    wrap(&pbs.world, "qsub", "real \"$@\"");
    pbs.again(&[]).ok();
    pbs.wait_idle();
    assert_eq!((pbs.standings(), runs(&pbs, 2)), (vec!["done".to_owned(); 2], vec![2, 2]));
    assert_eq!(walltimes(&pbs).last().unwrap(), "00:09:00");
}

#[test]
fn a_repeat_that_had_no_place_is_decided_once_and_keeps_its_request() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let code = "*) echo '{\"step\": 1}' >>$HPCSWEEP_METRICS; [ $n = 2 ] || sleep 60 ;;";
    let rest =
        "timeout = { walltime = \"x1.5\" }\n[resources]\nwalltime = \"4s\"\n[grid]\na = [0, 1]\n";
    pbs.submit(&plan(code, rest), &[]).ok();
    pbs.world.call("qdel", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    refuse_arrays(&pbs);
    let feed = ["feed", "--sweep", "results/s", "--array", "2"];
    let feeder = pbs.world.start(&feed);
    let is_refused = || {
        let files = pbs.world.files("results/s/journal");
        let of = |file: &String| pbs.world.read(&format!("results/s/journal/{file}"));
        files.iter().any(|file| of(file).contains("\"event\":\"refused\""))
    };
    wait_until("the repeat was refused", is_refused);
    feeder.signal(nix::sys::signal::Signal::SIGKILL);
    feeder.end(&pbs.world);
    wrap(&pbs.world, "qsub", "real \"$@\"");
    pbs.world.run(&feed).ok();
    pbs.wait_idle();
    assert_eq!((pbs.standings(), runs(&pbs, 2)), (vec!["done".to_owned(); 2], vec![2, 2]));
    assert_eq!(decided(&pbs), ["(walltime of 00:00:04: again with 00:00:06 (1 of 3)): trials 0-1"]);
    assert_eq!(walltimes(&pbs), ["00:00:04", "00:00:06"]);
}

#[test]
fn what_a_person_repeats_is_counted_anew_and_decided_anew() {
    let pbs = Pbs::start();
    let rest = "exit_codes = { 75 = \"again\" }\nmax = 1\n[grid]\na = [0, 1]\n";
    pbs.submit(&plan("0) exit 75 ;; 1) exit 4 ;;", rest), &[]).ok();
    pbs.wait_idle();
    let once = [
        "(exit code 75: again (1 of 1)): trial 0",
        "(exit code 75: it has run again once): trial 0",
        "(exit-code: nothing in `[retry]` repeats it): trial 1",
    ];
    assert_eq!((runs(&pbs, 2), decided(&pbs)), (vec![2, 1], once.map(str::to_owned).to_vec()));
    pbs.world.run(&["retry"]).ok();
    pbs.wait_idle();
    assert_eq!(runs(&pbs, 2), [4, 2]);
    // `why` shows equal decisions within a second as one.
    let journal = pbs.world.journal("s");
    for decided in ["again (1 of 1)", "it has run again once", "nothing in `[retry]` repeats it"] {
        assert_eq!(journal.matches(decided).count(), 2, "{journal}");
    }
    // Nothing is left to decide.
    let jobs = pbs.jobs().len();
    pbs.again(&[]).ok();
    assert_eq!(pbs.jobs().len(), jobs);
}
