//! PBS: pilots, the agents of a sweep that are elements of one array. They are asked for once, whatever becomes
//! of the calls, and only where there are none and something is left to do.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::gpus::idle_devices;
use crate::support::pbs::Pbs;
use crate::support::pbs_once::{check, pbs, wrap};
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// A sweep of so many single trials, each of which appends its number to a file in one write.
fn plan(trials: u32, code: &str, rest: &str) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    let grid = format!("[grid]\na = [{}]\n", numbers.join(", "));
    shell(&format!("echo $HPCSWEEP_TRIAL >>$EVENTS; {code}"), &format!("{rest}{grid}"))
}

/// Trials that end when the file `go` is there.
const WAITS: &str = "until [ -e $EVENTS.go ]; do sleep 0.01; done";

/// The submitted jobs: the range of each array.
fn ranges(pbs: &Pbs) -> Vec<String> {
    let jobs = pbs.jobs();
    let range = |(id, _): &(String, String)| {
        jobs[id]["array_indices_submitted"].as_str().unwrap().to_owned()
    };
    pbs.states().iter().map(range).collect()
}

/// The output of a command, without the sweep's folder.
#[track_caller]
fn said(world: &World, args: &[&str]) -> String {
    world.run(args).whole()
}

#[test]
fn two_pilots_are_one_array_and_share_the_trials() {
    let pbs = pbs();
    // Nothing ends before both agents have begun something.
    let both = "echo >$EVENTS.$PPID; until [ $(ls $EVENTS.* | wc -l) -ge 2 ]; do sleep 0.01; done";
    let ran = pbs.submit(&plan(12, both, ""), &["--pull", "--workers", "2", "--slots", "2"]);
    assert_eq!(
        ran.whole(),
        "\
s: 12 trials in 12 units for agents
array 1: 2 pilots as job 0[].pbshead
s: 2 pilots of 2 slots submitted (3 scheduler calls)
jobs: 0[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    check(&pbs, 12);
    assert_eq!(ranges(&pbs), ["0-1"]);
    let jobs: BTreeSet<String> = pbs.world.column("job").into_iter().collect();
    assert_eq!(jobs.into_iter().collect::<Vec<_>>(), ["\"0[0].pbshead\"", "\"0[1].pbshead\""]);
    let job = &pbs.jobs()["0[].pbshead"];
    assert_eq!(job["Resource_List"]["select"], "1:ncpus=2:mpiprocs=1:ompthreads=2");
    let logs = pbs.world.files("results/s/logs/jobs");
    assert_eq!(logs, ["0001/0.log", "0001/1.log"]);
    let again = pbs.again(&["--pull"]);
    assert_eq!(
        again.whole(),
        "\
s: nothing left to run (2 scheduler calls)
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
}

#[test]
fn a_plan_may_say_it_and_pilots_that_wait_or_run_are_enough() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.set("max_array_size", 3);
    let rest = "[schedule]\nmode = \"pull\"\n[pull]\nworkers = 3\nslots = 2\n";
    pbs.submit(&plan(5, WAITS, rest), &[]).ok();
    assert_eq!(ranges(&pbs), ["0-2"]);
    assert_eq!(pbs.standings(), ["queued: for a pilot job"; 5]);
    let status = pbs.world.run(&["status"]);
    assert!(
        status.out.contains("seen by: qstat; pilot job 0[].pbshead: 3 queued\n"),
        "{}",
        status.whole()
    );
    let there = "\
s: no pilots are needed, there are some (3 scheduler calls)
pilot job 0[].pbshead: 3 queued
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
";
    assert_eq!(pbs.again(&[]).whole(), there);
    pbs.set("scheduling", true);
    wait_until("all trials run", || pbs.standings() == ["running"; 5]);
    let status = pbs.world.run(&["status"]);
    let seen = "seen by: qstat; 3 agents at work; pilot job 0[].pbshead: 3 running\n";
    assert!(status.out.contains(seen), "{}", status.whole());
    // A plan that has grown adds its trials to the existing ones.
    let ran = pbs.submit(&plan(7, WAITS, rest), &[]);
    assert!(
        ran.err.starts_with("s: 2 trials in 2 units for agents\ns: no pilots are needed"),
        "{}",
        ran.whole()
    );
    pbs.world.write("events.go", "");
    check(&pbs, 7);
    assert_eq!(ranges(&pbs), ["0-2"]);
}

#[test]
fn killed_before_or_after_qsub_the_pilots_are_there_once() {
    for before in [true, false] {
        let pbs = pbs();
        let kill =
            if before { "kill -9 $PPID; exit 1" } else { "real \"$@\"; kill -9 $PPID; exit 1" };
        wrap(
            &pbs.world,
            "qsub",
            &format!("[ -e $EVENTS.again ] || {{ echo >$EVENTS.again; {kill}; }}\nreal \"$@\""),
        );
        let asked = ["--pull", "--workers", "2"];
        assert_eq!(pbs.submit(&plan(4, WAITS, ""), &asked).code, 137);
        let ran = pbs.again(&asked);
        let start = "array 1: an earlier call has no answer; looking for it\n";
        let rest = if before {
            "array 2: 2 pilots as job 0[].pbshead\ns: 2 pilots submitted ("
        } else {
            "array 1: it is job 0[].pbshead\ns: 2 pilots submitted ("
        };
        // How often the server is asked depends on how long that takes.
        let text: String = ran
            .err
            .lines()
            .filter(|l| !l.starts_with("not there yet"))
            .map(|l| format!("{l}\n"))
            .collect();
        assert!(text.starts_with(&format!("{start}{rest}")), "{}", ran.whole());
        pbs.world.write("events.go", "");
        check(&pbs, 4);
        assert_eq!(ranges(&pbs), ["0-1"]);
    }
}

/// Arrays and agents follow one rule.
#[test]
fn trials_whose_jobs_were_cancelled_run_under_agents_on_request_alone() {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    let plan = shell("true", "[grid]\na = [0, 1, 2]\n");
    pbs.submit(&plan, &[]).ok();
    pbs.world.run(&["cancel", "0-1"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let counts = |pbs: &Pbs| pbs.world.status()["counts"].clone();
    assert_eq!(counts(&pbs), json!({"cancelled": 2, "done": 1}));
    pbs.again(&["--pull"]).ok();
    pbs.wait_idle();
    assert_eq!(counts(&pbs), json!({"cancelled": 2, "done": 1}));
    let rehearsed = pbs.again(&["--pull", "--dry-run", "--retry"]);
    assert!(rehearsed.whole().contains("2 trials"), "{}", rehearsed.whole());
    pbs.again(&["--pull", "--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(counts(&pbs), json!({"done": 3}));
}

#[test]
fn cancelled_pilots_leave_and_come_back_when_they_are_asked_for() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 30);
    pbs.submit(&plan(4, WAITS, ""), &["--pull", "--workers", "2", "--slots", "1"]).ok();
    wait_until("both are at it", || pbs.world.read("events").lines().count() == 2);
    assert_eq!(
        said(&pbs.world, &["cancel", "--trial", "99"]),
        "\
error: sweep `$WORLD/results/s` has no trial 99
hint: its trials are 0-3: `hpcsweep status --trials results/s` lists them
exit code 2
"
    );
    let one = said(&pbs.world, &["cancel", "--trial", "1"]);
    assert_eq!(
        one,
        "\
error: agents share the trials of s: trial 1 is not a job
hint: name no trial to cancel all of it, or submit a plan without the trial
exit code 2
"
    );
    assert_eq!(said(&pbs.world, &["cancel"]), "s: cancelled 2 pilots: 0[].pbshead\nexit code 0\n");
    pbs.wait_idle();
    let user = hpcsweep::base::host::vars::user_name();
    assert_eq!(pbs.standings(), vec![format!("queued: halted: cancelled by {user}"); 4]);
    let again = "s: nothing of it is queued or running\nexit code 0\n";
    assert_eq!(said(&pbs.world, &["cancel"]), again);
    let how = "\nto go on with what is queued: hpcsweep submit plan.toml --pbs --pull\n";
    assert!(said(&pbs.world, &["status"]).contains(how));
    pbs.world.write("events.go", "");
    let ran = pbs.again(&["--pull", "--workers", "1"]);
    assert!(
        ran.err.starts_with(&format!(
            "array 2: 1 pilot as job 1[].pbshead\ns: it was halted (cancelled by {user}) and goes on\ns: 1 pilot submitted"
        )),
        "{}",
        ran.whole()
    );
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
}

/// The second time, they have been asked for again before they have handed their trials back.
#[test]
fn cancelled_pilots_use_up_no_repeats() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 30);
    let code = "trap 'until [ -e $EVENTS.end ]; do sleep 0.01; done; exit 1' TERM; \
                until [ -e $EVENTS.go ]; do sleep 0.01; done";
    let rest = "[retry]\nauto = true\nmax = 1\n";
    let asked = ["--pull", "--workers", "1", "--slots", "1"];
    let begun = |pbs: &Pbs| match pbs.world.exists("events") {
        true => pbs.world.read("events").lines().count(),
        false => 0,
    };
    pbs.world.write("events.end", "");
    for round in 1..=2 {
        pbs.submit(&plan(1, code, rest), &asked).ok();
        wait_until("it is at it", || begun(&pbs) == round);
        pbs.world.run(&["cancel"]).ok();
        pbs.wait_idle();
    }
    std::fs::remove_file(pbs.world.path("events.end")).unwrap();
    pbs.again(&asked).ok();
    wait_until("it is at it", || begun(&pbs) == 3);
    pbs.world.run(&["cancel"]).ok();
    let ran = pbs.again(&asked);
    assert!(ran.err.contains("1 pilot as job"), "{}", ran.whole());
    pbs.world.write("events.end", "");
    wait_until("it is at it again", || begun(&pbs) == 4);
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    let why = pbs.world.run(&["why"]);
    assert!(!why.ok().contains("retried"), "{}", why.out);
}

#[test]
fn what_agents_had_can_be_submitted_as_arrays_once_it_is_cancelled() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 30);
    pbs.submit(&plan(4, WAITS, ""), &["--pull", "--workers", "2", "--slots", "1"]).ok();
    wait_until("both are at it", || pbs.world.read("events").lines().count() == 2);
    let refused = pbs.again(&["--retry"]);
    let expected = "error: agents have trials of this sweep that have not ended
  $WORLD/results/s
hint: `hpcsweep worker --pull results/s` continues them; to submit them otherwise, first run: hpcsweep cancel results/s
";
    assert_eq!((refused.code, refused.err.as_str()), (2, expected));
    pbs.world.run(&["cancel"]).ok();
    pbs.wait_idle();
    pbs.world.write("events.go", "");
    let before = pbs.jobs();
    let rehearsed = pbs.again(&["--retry", "--dry-run"]);
    assert!(rehearsed.out.contains("4 trials"), "{}", rehearsed.whole());
    assert_eq!(pbs.jobs(), before);
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
    // Nothing is left to agents, and a new trial is theirs again.
    let agent = pbs.world.run(&["worker", "--pull", "results/s"]);
    assert_eq!(agent.code, 0, "{}", agent.whole());
    pbs.submit(&plan(5, WAITS, ""), &["--pull", "--workers", "1"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 5]);
    let begun = pbs.world.read("events").lines().count();
    assert_eq!(begun, 7, "two were stopped, five ended");
}

#[test]
fn agents_that_were_started_by_hand_hear_of_a_cancelling() {
    let pbs = pbs();
    pbs.world.write("plan.toml", &plan(4, WAITS, ""));
    let agent = pbs.world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at it", || pbs.world.read("events").lines().count() == 1);
    let expected = "s: cancelled: agents end what they run and take no more trials\nexit code 0\n";
    assert_eq!(said(&pbs.world, &["cancel"]), expected);
    pbs.world.write("events.go", "");
    let ran = agent.end(&pbs.world);
    assert!(ran.err.contains("it left: the sweep was halted: cancelled by "), "{}", ran.whole());
    assert_eq!(pbs.world.read("events"), "0\n");
}

#[test]
fn waiting_pilots_can_be_held_and_let_go() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.submit(&plan(4, "", ""), &["--pull", "--workers", "2"]).ok();
    let held = "\
s: held: agents end what they run and take no more trials; `hpcsweep release results/s` continues it
s: held 2 pilots: 0[].pbshead
exit code 0
";
    assert_eq!(said(&pbs.world, &["hold"]), held);
    assert_eq!(said(&pbs.world, &["hold"]), "s: nothing of it waits to begin\nexit code 0\n");
    pbs.set("scheduling", true);
    // A held sweep stays held, whichever user submits it.
    let user = hpcsweep::base::host::vars::user_name();
    let more = pbs.again(&["--pull"]).err;
    let still = format!("s: it is held by {user}: `hpcsweep release results/s` continues it (");
    assert!(more.starts_with(&still), "{more}");
    let released =
        "s: released: agents go on with it\ns: released 2 pilots: 0[].pbshead\nexit code 0\n";
    assert_eq!(said(&pbs.world, &["release"]), released);
    check(&pbs, 4);
}

#[test]
fn what_failed_is_dealt_again_to_new_pilots() {
    let pbs = pbs();
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || [ -e $EVENTS.go ]";
    pbs.submit(&plan(3, code, ""), &["--pull", "--workers", "2", "--slots", "1"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 1", "done"]);
    pbs.world.write("events.go", "");
    let ran = pbs.again(&["--pull", "--workers", "2", "--retry"]);
    let expected = "s: 1 trial in 1 unit for agents\narray 2: 1 pilot as job 1[].pbshead\n";
    assert!(ran.err.starts_with(expected), "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 3]);
    // With nothing left the plan may be submitted otherwise.
    assert!(pbs.again(&[]).err.contains("nothing new to submit"));
}

#[test]
fn a_pilot_that_was_deleted_leaves_its_trials_to_the_others() {
    let mut pbs = pbs();
    // Time to say goodbye, however busy the machine is.
    pbs.set("kill_delay", 30);
    pbs.submit(&plan(6, WAITS, ""), &["--pull", "--workers", "2", "--slots", "1"]).ok();
    wait_until("both are at it", || pbs.world.read("events").lines().count() == 2);
    pbs.world.call("qdel", &["0[0].pbshead"]);
    wait_until("it is gone", || pbs.jobs()["0[0].pbshead"]["job_state"] != "R");
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    // One of them began twice.
    assert_eq!(pbs.world.read("events").lines().count(), 7);
}

/// Kills the agents of a sweep as a node that fails does; how many they were.
fn kill_agents(world: &World) -> usize {
    let bundles = world.files("results/s/agents");
    let bundles = bundles.iter().filter(|name| name.ends_with(".jsonl"));
    let pids = bundles.map(|name| name.rsplit('-').nth(1).unwrap().to_owned());
    pids.filter(|pid| world.call("kill", &["-9", pid]).code == 0).count()
}

#[test]
fn pilots_that_come_after_others_were_killed_take_their_trials_over() {
    let pbs = pbs();
    // Longer than a submission takes: the new ones find leases that are not over.
    let rest = "[pull]\nlease = 8\n";
    let code = "echo >$EVENTS.$PPID; sleep 0.$((HPCSWEEP_TRIAL % 5))";
    let pull = ["--pull", "--workers", "2", "--slots", "1"];
    pbs.submit(&plan(30, code, rest), &pull).ok();
    // Both hold more than they run.
    wait_until("both are at it", || {
        let began = pbs.world.files(".").iter().filter(|f| f.starts_with("events.")).count();
        began == 2 && pbs.world.entries("results/s", "\"take\"") >= 3
    });
    assert_eq!(kill_agents(&pbs.world), 2);
    pbs.wait_idle();
    let ran = pbs.again(&pull);
    assert!(ran.err.starts_with("array 2: 2 pilots as job 1[].pbshead\n"), "{}", ran.whole());
    // They say whom they wait for, and until when.
    let mut seen = String::new();
    wait_until("the leases are waited for", || {
        let status = pbs.world.run(&["status", "--trials"]).out;
        let says = status.contains(" of agent ") && status.contains("; its lease ends in ");
        if says {
            seen = status;
        }
        says || pbs.standings() == ["done"; 30]
    });
    assert!(seen.contains(" at work; ") && seen.contains("no sign of life for"), "{seen}");
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 30]);
    assert_eq!(pbs.names().len(), 2);
}

#[test]
fn pilots_that_have_left_keep_no_others_away() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 1000);
    pbs.set("sees_ends_late", true);
    pbs.submit(&plan(4, WAITS, ""), &["--pull", "--slots", "1"]).ok();
    wait_until("it is at it", || pbs.world.read("events").lines().count() == 1);
    pbs.world.call("qdel", &["0[].pbshead"]);
    wait_until("it has left", || pbs.standings() == ["queued: no agent is at work"; 4]);
    let status = pbs.world.run(&["status"]);
    let seen = "seen by: qstat; no agent is at work; pilot job 0[].pbshead: 1 about to end\n";
    assert!(status.out.contains(seen), "{}", status.whole());
    let how = "\nto go on with what is queued: hpcsweep submit plan.toml --pbs --pull\n";
    assert!(status.out.contains(how), "{}", status.whole());
    pbs.world.write("events.go", "");
    let ran = pbs.again(&["--pull", "--slots", "1"]);
    assert!(ran.err.starts_with("array 2: 1 pilot as job 1[].pbshead\n"), "{}", ran.whole());
    wait_until("all is done", || pbs.standings() == ["done"; 4]);
    assert_eq!(pbs.jobs()["0[0].pbshead"]["job_state"], "R");
}

#[test]
fn pilots_that_are_about_to_leave_keep_no_others_away() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 1000);
    pbs.set("sees_ends_late", true);
    // The first attempt does not listen, and is killed by its agent in the end.
    let code = "[ ! -e $EVENTS.$HPCSWEEP_TRIAL ] || exit 0; : >$EVENTS.$HPCSWEEP_TRIAL; \
                trap : TERM; while :; do sleep 0.05; done";
    let asked = ["--pull", "--workers", "2", "--slots", "1"];
    pbs.submit(&plan(2, code, "[pull]\nlease = \"3s\"\n"), &asked).ok();
    wait_until("they are at it", || pbs.world.read("events").lines().count() == 2);
    pbs.world.call("qdel", &["0[].pbshead"]);
    wait_until("they say so", || pbs.world.entries("results/s", "\"leaving\":true") == 2);
    let ran = pbs.again(&asked);
    assert!(ran.err.starts_with("array 2: 2 pilots as job 1[].pbshead\n"), "{}", ran.whole());
    // None of those that come leaves to others what others leave.
    wait_until("all is done", || pbs.standings() == ["done"; 2]);
}

#[test]
fn pilots_on_one_host_share_no_device_and_bind_no_core_that_is_not_theirs() {
    let mut pbs = pbs();
    let host = json!({"name": "n1", "ncpus": 4, "ngpus": 2});
    pbs.set("hosts", json!([host]));
    pbs.world.write("nvml.json", &idle_devices(2));
    pbs.world.set("HPCSWEEP_NVML_FILE", &pbs.world.text_path("nvml.json"));
    let both = "echo $CUDA_VISIBLE_DEVICES >>$EVENTS.devices; grep Cpus_allowed_list /proc/self/status >>$EVENTS.cores; \
                until [ $(cat $EVENTS.devices | wc -l) -ge 2 ]; do sleep 0.01; done";
    let rest = "[resources]\ngpus_per_rank = 1\n";
    let asked = ["--pull", "--workers", "2", "--slots", "1"];
    pbs.submit(&plan(2, both, rest), &asked).ok();
    check(&pbs, 2);
    let read = |name: &str| -> BTreeSet<String> {
        pbs.world.read(name).lines().map(str::to_owned).collect()
    };
    assert_eq!(read("events.devices").into_iter().collect::<Vec<_>>(), ["GPU-0", "GPU-1"]);
    // All that the host has, if that is more than the one core of the job: which one is it?
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    assert_eq!(read("events.cores").into_iter().collect::<Vec<_>>(), [own]);
}

#[test]
fn a_slot_has_the_threads_of_a_trial_not_those_of_the_pilot() {
    let pbs = pbs();
    let rest = "[resources]\ncpus_per_rank = 2\n";
    let code = "echo $OMP_NUM_THREADS >>$EVENTS.threads";
    pbs.submit(&plan(2, code, rest), &["--pull", "--slots", "2"]).ok();
    check(&pbs, 2);
    assert_eq!(pbs.world.read("events.threads"), "2\n2\n");
    let job = &pbs.jobs()["0[].pbshead"];
    assert_eq!(job["Resource_List"]["select"], "1:ncpus=4:mpiprocs=1:ompthreads=4");
}

#[test]
fn the_plan_shows_them() {
    let pbs = pbs();
    let rest = "[schedule]\nmode = \"pull\"\n[pull]\nworkers = 4\nslots = 8\nwalltime = \"2h\"\n";
    pbs.world.write("plan.toml", &plan(100, "", rest));
    let ran = pbs.again(&["--dry-run"]);
    let shown = ran.ok().split_once("array  block").unwrap().1;
    assert_eq!(
        format!("array  block{}", shown.replace(&pbs.world.text_path(""), "$WORLD/")),
        "\
array  block  link  pilots  after  request
    1      0     0       4  -      nodes=1 ranks=1 cpus_per_rank=8 walltime=02:00:00

directives of array 1:
  #PBS -N 's.<token>.1'
  #PBS -J 0-3
  #PBS -l select=1:ncpus=8:mpiprocs=1:ompthreads=8
  #PBS -l walltime=02:00:00
  #PBS -W umask=022
  #PBS -j oe
  #PBS -k oed
  #PBS -o '$WORLD/results/s/logs/jobs/0001/^array_index^.log'
  #PBS -m n
  #PBS -r y

scheduler calls to submit: 3 (1 of qsub, 4 pilots of 8 slots)
core-hours asked for: 64.00
GB-hours asked for: unknown (no memory)
GPU-hours asked for: 0.00
this is by the site profile alone: `submit` asks the server and its queues, which may allow less
"
    );
    assert!(!pbs.world.exists("results"));
}

#[test]
fn with_local_an_agent_runs_here_and_shows_the_results() {
    let pbs = pbs();
    pbs.world.write("plan.toml", &plan(3, "[ $HPCSWEEP_TRIAL != 1 ]", ""));
    let ran = pbs.world.run(&["submit", "plan.toml", "--pull", "--local", "--slots", "2"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert!(ran.err.starts_with("s: 3 trials in 3 units for agents\nagent "), "{}", ran.whole());
    assert!(
        ran.err.contains("agent: 2 done, 1 failed\nresults: $WORLD/results/s\n"),
        "{}",
        ran.whole()
    );
    assert!(ran.out.contains("failed"), "{}", ran.whole());
    assert_eq!(pbs.standings(), ["done", "failed: exit code 1", "done"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let pbs = pbs();
    let refused = |rest: &str, args: &[&str], expected: &str| {
        pbs.world.write("plan.toml", &plan(3, "", rest));
        let ran = pbs.again(args);
        assert_eq!((ran.code, ran.err.as_str()), (2, expected));
        assert!(!pbs.world.exists("results"), "{expected}");
    };
    refused(
        "",
        &["--workers", "2"],
        "error: `--workers` belongs to pull mode\nhint: add `--pull`, or write `mode = \"pull\"` under `[schedule]`\n",
    );
    refused(
        "[schedule]\npack = 2\n",
        &["--pull"],
        "error: agents take trials one by one: `pack` belongs to arrays\nhint: leave `pack` out under `[schedule]`, or `--pull` here\n",
    );
    pbs.site("[caps]\nmax_walltime = \"1h\"\n");
    pbs.world.write("plan.toml", &plan(3, "", "[pull]\nwalltime = \"2h\"\n"));
    let ran = pbs.again(&["--pull"]);
    assert!(
        ran.err.starts_with("error: this site allows 01:00:00 of walltime a trial, not 02:00:00\n"),
        "{}",
        ran.whole()
    );
    assert!(!pbs.world.exists("results"));
}

#[test]
fn pilots_that_are_too_short_for_a_trial_are_refused() {
    let pbs = pbs();
    let refused = |more: &str| {
        let ran = pbs.submit(&plan(3, "", more), &["--pull"]);
        assert_eq!((ran.code, pbs.world.exists("results")), (2, false), "{}", ran.whole());
        ran.err.lines().next().unwrap().to_owned()
    };
    let longest = "[resources]\nwalltime = \"2h\"\n";
    assert_eq!(
        refused(&format!("{longest}[pull]\nwalltime = \"1h\"\n")),
        "error: trial 0 asks for 2 h 00 min, and a pilot has 1 h 00 min"
    );
    assert_eq!(
        refused(&format!("{longest}[pull]\ntime_request = \"2h\"\n")),
        "error: `time_request` asks for 2 h 00 min, and a pilot has 2 h 00 min"
    );
}
