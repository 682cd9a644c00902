//! `hpcsweep retry`: which trials run again, with which plan and which requests, and where.

use crate::support::pbs::Pbs;
use crate::support::pbs_once::{pbs, wrap};
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Two chains of three links, and two single trials. Link 1 of chain `a`, and trial 7, fail until there is a file `mended`.
const PLAN: &str = "[[trials]]\ntask_id = \"a\"\ni = 0\n[[trials]]\ntask_id = \"a\"\ni = 1\n[[trials]]\ntask_id = \"a\"\ni = 2\n\
    [[trials]]\ntask_id = \"b\"\ni = 3\n[[trials]]\ntask_id = \"b\"\ni = 4\n[[trials]]\ntask_id = \"b\"\ni = 5\n\
    [[trials]]\ni = 6\n[[trials]]\ni = 7\n";

fn plan(rest: &str) -> String {
    let code = "echo $HPCSWEEP_TRIAL >>events; case $HPCSWEEP_TRIAL in 1|7) [ -e mended ] || exit 3;; esac";
    shell(code, &format!("{rest}{PLAN}"))
}

/// What has run since the last question.
fn ran(world: &World) -> String {
    let mut ran: Vec<String> = world.read("events").lines().map(str::to_owned).collect();
    world.write("events", "");
    ran.sort();
    ran.join(" ")
}

fn states(world: &World) -> String {
    world.column("state").join(" ").replace('"', "")
}

#[test]
fn chains_go_on_where_they_broke_and_nothing_else_runs() {
    let world = World::new();
    assert_eq!(world.local(&plan(""), &["-q"]).code, 1);
    assert_eq!(ran(&world), "0 1 3 4 5 6 7");
    world.write("mended", "");
    // The plan has grown meanwhile: that is for `submit`.
    world.write("plan.toml", &format!("{}[[trials]]\ni = 8\n", plan("")));
    let again = world.run(&["retry", "2", "5"]);
    assert_eq!(again.code, 1, "{}", again.whole());
    let said = "the plan is that of the last submission (`results/s/plan.toml`): `plan.toml` has changed since\n\
        s: left alone: 1 trial (done)\ns: 2 trials to run on this machine";
    assert!(again.err.starts_with(said), "{}", again.err);
    assert_eq!(
        (ran(&world).as_str(), states(&world).as_str()),
        ("1 2", "done done done done done done done failed")
    );
    // Without a plan, by what the trials are.
    std::fs::remove_file(world.path("plan.toml")).unwrap();
    let again = world.run(&["retry", "--where", "i > 6", "-q"]);
    assert_eq!((again.whole().as_str(), ran(&world).as_str()), ("exit code 0\n", "7"));
    let nothing = world.run(&["retry", "results/s"]);
    assert!(
        nothing.code == 0 && nothing.err.contains("s: nothing left to run\n"),
        "{}",
        nothing.err
    );
    assert_eq!(ran(&world), "");
}

#[test]
fn a_changed_request_holds_once_and_a_dry_run_tells_it() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 0 ] || sleep 3";
    let plan = shell(code, "[resources]\nwalltime = \"1s\"\n[grid]\na = [1, 2, 3]\n");
    world.local(&plan, &["-q"]);
    assert_eq!(states(&world), "done timeout timeout");
    let records = world.files("results");
    let dry = world.run(&["retry", "1", "--walltime", "1h", "--cpus", "2", "--dry-run"]);
    assert_eq!(world.files("results"), records);
    assert!(dry.ok().contains("would run: 1 trial (timeout)\nleft alone: 1 trial (done)\nleft alone: 1 trial (timeout)\n"), "{}", dry.out);
    assert!(dry.ok().contains("core-hours asked for: 2.00\n"), "{}", dry.out);
    world.run(&["retry", "1", "--walltime", "1h", "-q"]);
    assert_eq!(states(&world), "done done timeout");
    world.run(&["retry", "-q"]);
    assert_eq!(states(&world), "done done timeout");
    // The same words with the plan at hand.
    let refused = world.run(&["submit", "plan.toml", "--failed"]);
    assert!(refused.err.contains("belong to `--retry`"), "{}", refused.err);
    world
        .run(&["submit", "plan.toml", "--retry", "--state", "timeout", "--walltime", "1h", "-q"])
        .ok();
    assert_eq!(states(&world), "done done done");
}

#[test]
fn a_named_set_and_new_trials_are_submitted_together() {
    let world = World::new();
    world.local(&plan(""), &["-q"]);
    world.write("events", "");
    let grown = format!("{}[[trials]]\ni = 8\n", plan(""));
    assert_eq!(world.local(&grown, &["--retry", "--trial", "7", "-q"]).code, 1);
    assert_eq!(ran(&world), "7 8");
}

#[test]
fn agents_get_units_again_with_the_changed_request() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>events; [ $HPCSWEEP_TRIAL != 1 ] || sleep 3";
    let rest = "[resources]\nwalltime = \"1s\"\n[grid]\na = [0, 1, 2]\n";
    world.write("plan.toml", &shell(code, rest));
    let worker = ["worker", "--pull", "plan.toml", "--slots", "1"];
    assert_eq!(world.run(&worker).code, 1);
    assert_eq!((ran(&world).as_str(), states(&world).as_str()), ("0 1 2", "done timeout done"));
    let again = world.run(&["retry", "--state", "timeout", "--walltime", "1h"]);
    assert_eq!(
        again.whole(),
        "s: 1 trial in 1 unit for agents\nagents at work take them; to start one: hpcsweep worker --pull results/s\nexit code 0\n"
    );
    // It is there now, so a second retry finds nothing.
    let second = world.run(&["retry"]);
    assert_eq!(
        second.whole(),
        "s: left alone: 1 trial (queued)\ns: nothing to run again\nexit code 0\n"
    );
    world.run(&["worker", "--pull", "results/s", "--slots", "1"]).ok();
    assert_eq!((ran(&world).as_str(), states(&world).as_str()), ("1", "done done done"));
}

/// The requests of the jobs by name, in the order of their submission.
fn asked(pbs: &Pbs, name: &str) -> Vec<String> {
    let jobs = pbs.jobs();
    pbs.states()
        .iter()
        .map(|(id, _)| jobs[id]["Resource_List"][name].as_str().unwrap_or("-").to_owned())
        .collect()
}

/// Three single trials, of which 0 and 2 fail until there is a file `mended`.
fn three(rest: &str) -> String {
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; [ $HPCSWEEP_TRIAL = 1 ] || [ -e mended ] || exit 3";
    shell(code, &format!("[resources]\nmemory = \"64M\"\n{rest}[grid]\na = [0, 1, 2]\n"))
}

#[test]
fn one_array_is_asked_for_with_the_changed_request() {
    let mut pbs = pbs();
    pbs.set("max_array_size", 9);
    pbs.submit(&three("walltime = \"10m\"\n"), &["-q"]).ok();
    pbs.wait_idle();
    pbs.world.write("mended", "");
    let dry = pbs.world.run(&["retry", "2", "--memory", "96M", "--queue", "workq", "--dry-run"]);
    assert!(dry.ok().contains("memory=96M walltime=00:10:00 partition=workq"), "{}", dry.out);
    let again = pbs.world.run(&["retry", "2", "--memory", "96M"]);
    assert!(again.err.contains("s: 1 trial submitted as 1 array"), "{}", again.whole());
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["failed: exit code 3", "done", "done"]);
    assert_eq!(asked(&pbs, "mem"), ["64mb", "96mb"]);
    // What the plan says is as it was.
    pbs.world.run(&["retry", "-q"]).ok();
    pbs.wait_idle();
    assert_eq!(
        (pbs.standings(), asked(&pbs, "mem")),
        (vec!["done".to_owned(); 3], vec!["64mb".to_owned(), "96mb".to_owned(), "64mb".to_owned()])
    );
}

#[test]
fn what_is_queued_again_is_left_alone() {
    let mut pbs = pbs();
    pbs.submit(&three(""), &["-q"]).ok();
    pbs.wait_idle();
    pbs.set("scheduling", false);
    pbs.world.run(&["retry", "0", "-q"]).ok();
    let (jobs, second) = (pbs.jobs().len(), pbs.world.run(&["retry", "0,2", "--dry-run"]));
    assert!(second.ok().contains("would be submitted: 1 trial (failed)\n"), "{}", second.out);
    let second = pbs.world.run(&["retry", "0,2"]);
    assert!(second.err.starts_with("s: left alone: 1 trial (queued)\n"), "{}", second.err);
    assert!(second.err.contains("s: 1 trial submitted as 1 array"), "{}", second.err);
    assert!(pbs.jobs().len() > jobs);
    let third = pbs.world.run(&["retry"]);
    assert!(
        third.err.contains("s: left alone: 2 trials (queued)\ns: nothing to run again"),
        "{}",
        third.err
    );
}

#[test]
fn two_retries_at_once_ask_for_each_trial_once() {
    let pbs = pbs();
    pbs.submit(&three(""), &["-q"]).ok();
    pbs.wait_idle();
    pbs.world.write("mended", "");
    pbs.world.write("events", "");
    wrap(&pbs.world, "qsub", "sleep 0.3; real \"$@\"");
    let both = [0, 1].map(|_| pbs.world.start(&["retry"]));
    let ends = both.map(|one| one.end(&pbs.world));
    assert!(ends.iter().any(|ran| ran.code == 0), "{ends:?}");
    pbs.wait_idle();
    assert_eq!((ran(&pbs.world).as_str(), pbs.standings()), ("0 2", vec!["done".to_owned(); 3]));
}

#[test]
fn a_retry_that_was_killed_is_completed_once() {
    for before in [true, false] {
        let pbs = pbs();
        pbs.submit(&three(""), &["-q"]).ok();
        pbs.wait_idle();
        pbs.world.write("mended", "");
        pbs.world.write("events", "");
        let code = if before { "kill -9 $PPID; exit 1" } else { "real \"$@\"; kill -9 $PPID" };
        wrap(&pbs.world, "qsub", code);
        let retry = ["retry", "--failed", "--memory", "96M"];
        assert_eq!(pbs.world.run(&retry).code, 137);
        wrap(&pbs.world, "qsub", "real \"$@\"");
        pbs.world.run(&retry).ok();
        pbs.wait_idle();
        assert_eq!(
            (ran(&pbs.world).as_str(), pbs.standings()),
            ("0 2", vec!["done".to_owned(); 3]),
            "{before}"
        );
        assert_eq!(asked(&pbs, "mem").last().map(String::as_str), Some("96mb"), "{before}");
    }
}

/// An operator has sent the job of a failed trial back to the queue: it runs there, and nowhere else.
#[test]
fn a_trial_whose_job_was_sent_back_is_left_alone() {
    let mut pbs = pbs();
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; [ -e $EVENTS.mended ] || exit 1";
    let rest = "on_failure = \"continue\"\n[hooks]\nerror = [\"sh\", \"-c\", \": >$EVENTS.told; exec sleep 600\"]\n\
                timeout = \"10m\"\n[schedule]\nchains = \"jobs\"\n[defaults]\ntask_id = 1\n[grid]\na = [1, 2]\n";
    pbs.submit(&shell(code, rest), &["-q"]).ok();
    // Its end is on record, and its job runs on.
    wait_until("its hook runs", || pbs.world.exists("events.told"));
    pbs.set("scheduling", false);
    pbs.world.run(&["cancel", "1"]).ok();
    pbs.world.call("qrerun", &["0"]).ok();
    wait_until("it is back in the queue", || pbs.jobs()["0.pbshead"]["job_state"] == "Q");
    pbs.world.write("events.mended", "");
    let left = pbs.world.run(&["retry", "0"]);
    assert!(
        left.ok().is_empty() && left.err.contains("s: left alone: 1 trial (queued)\n"),
        "{}",
        left.err
    );
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!((ran(&pbs.world).as_str(), &*pbs.standings()[0]), ("0 0", "done"));
}

#[test]
fn without_an_answer_of_the_scheduler_nothing_is_submitted() {
    let pbs = pbs();
    pbs.submit(&three(""), &["-q"]).ok();
    pbs.wait_idle();
    wrap(
        &pbs.world,
        "qstat",
        "echo 'qstat: cannot connect to server pbshead (errno=15010)' >&2; exit 1",
    );
    let refused = pbs.world.run(&["retry"]);
    assert_eq!(refused.code, 3, "{}", refused.whole());
    assert!(
        refused.err.contains("cannot tell which trials are still queued or running"),
        "{}",
        refused.err
    );
}

#[test]
fn a_retry_waits_for_a_submission_that_is_at_work() {
    let world = World::new();
    world.local(&plan(""), &["-q"]);
    world.write("hold", "");
    let held = shell("until [ -e go ]; do sleep 0.01; done", PLAN);
    world.write("plan.toml", &held.replace("i = 0", "i = 10"));
    let other = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
    wait_until("it runs", || world.status()["counts"]["running"] == 1);
    let refused = world.run(&["retry", "7"]);
    assert_ne!(refused.code, 0, "{}", refused.whole());
    world.write("go", "");
    other.end(&world);
}

/// A copy under another name is a sweep of its own: its original, which may lie beside it, stays as it is.
#[test]
fn a_renamed_copy_is_retried_and_not_its_original() {
    let world = World::new();
    let plan = crate::support::plans::shell("[ -e now ] || exit 3", "[grid]\na = [1, 2]\n");
    assert_eq!(world.local(&plan, &[]).code, 1);
    world.call("cp", &["-a", "results/s", "results/copy"]).ok();
    world.write("now", "");
    let status = world.run(&["status", "results/copy"]);
    assert!(!status.out.contains("submit plan.toml"), "{}", status.whole());
    let ran = world.run(&["retry", "results/copy", "0"]);
    let end = "results: $WORLD/results/copy\nwhat failed, and why: hpcsweep status results/copy\n\
         for the results: hpcsweep collect results/copy; hpcsweep report results/copy\n";
    assert!(ran.err.ends_with(end), "{}", ran.whole());
    let states = |sweep: &str| {
        let columns = ["collect", sweep, "--format", "csv", "--columns", "state,attempts"];
        world.run(&columns).ok().to_owned()
    };
    assert_eq!(states("results/copy"), "state,attempts\ndone,2\nfailed,1\n");
    assert_eq!(states("results/s"), "state,attempts\nfailed,1\nfailed,1\n");
    // A copy of the folder with its own name, elsewhere, is not what its plan names.
    world.call("mkdir", &["elsewhere"]).ok();
    world.call("cp", &["-a", "results/s", "elsewhere/s"]).ok();
    let status = world.run(&["status", "elsewhere/s"]);
    assert!(!status.out.contains("submit plan.toml"), "{}", status.whole());
    assert!(world.run(&["status", "results/s"]).out.contains("submit plan.toml"));
    // Also where there is no such original.
    std::fs::rename(world.path("results/copy"), world.path("alone")).unwrap();
    world.run(&["retry", "alone"]).ok();
    assert_eq!(states("alone"), "state,attempts\ndone,2\ndone,2\n");
    assert!(!world.exists("s"));
}
