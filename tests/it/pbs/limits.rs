//! PBS: requests that a server or a queue would refuse, or accept and never run, are refused before anything
//! is submitted.

use serde_json::json;

use crate::support::pbs::Pbs;
use crate::support::pbs_once::wrap;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, wait_until};

/// A server with queues of every kind.
fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    pbs.set(
        "queues",
        json!({
            "workq": {},
            "short": {"max_array_size": 4, "max_queued": 3, "max_walltime": "01:00:00"},
            "route": {"route_destinations": ["short"]},
            "closed": {"enabled": false},
            "stopped": {"started": false},
        }),
    );
    pbs
}

fn plan(trials: u32, rest: &str) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    shell(
        "echo $HPCSWEEP_TRIAL >>$HPCSWEEP_SWEEP_DIR/ran",
        &format!("{rest}[grid]\na = [{}]\n", numbers.join(", ")),
    )
}

/// A plan that is refused with these words, in a rehearsal too, before any job and without leaving anything.
#[track_caller]
fn refused(pbs: &Pbs, plan: &str, expected: &str) {
    for args in [&["--dry-run"][..], &[]] {
        assert_eq!(pbs.submit(plan, args).whole(), expected, "{args:?}");
    }
    assert_eq!(pbs.world.files("results"), Vec::<String>::new());
    assert!(pbs.jobs().is_empty());
}

/// A server whose queue takes so many elements of a user, and which starts none of them yet.
fn that_takes(elements: u64) -> Pbs {
    let mut pbs = Pbs::start();
    pbs.config(|c| {
        c.insert("max_queued".to_owned(), json!(elements));
        c.insert("scheduling".to_owned(), json!(false));
    });
    pbs
}

/// One feeder ends, and the next one is there, between the reading of the sweep's files and the server's answer.
#[test]
fn status_between_two_feeders_names_the_next_one() {
    let pbs = that_takes(5);
    let code = "[ -e go ] && [ $HPCSWEEP_TRIAL -lt 4 ] || while [ ! -e end ]; do sleep 0.02; done";
    pbs.submit(&shell(code, "[grid]\na = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]\n"), &[]).ok();
    pbs.world.write("go", "");
    let config = pbs.world.text_path("pbs/config.json");
    let turn = format!("sed -i 's/\"scheduling\": *false/\"scheduling\":true/' {config}");
    let ended = "until real -x 2.pbshead | grep -q ' F '; do sleep 0.05; done";
    wrap(
        &pbs.world,
        "qstat",
        &format!("mkdir once 2>/dev/null && {{ {turn}; {ended}; }}; real \"$@\""),
    );
    let seen = pbs.world.run(&["status"]).out;
    assert!(seen.contains(" submits more when there is a place in the queue\n"), "{seen}");
    assert!(!seen.contains("job 2.pbshead submits"), "{seen}");
    pbs.world.write("end", "");
    pbs.wait_idle();
}

/// The trials that a job has, over all arrays of the sweep, and the most of them that waited or ran at once.
#[test]
fn more_than_may_be_queued_is_submitted_by_jobs_that_follow_each_other() {
    let mut pbs = that_takes(5);
    let ran = pbs.submit(&plan(23, ""), &[]);
    assert_eq!(
        ran.whole(),
        "\
max_queued of queue `workq` allows 5 elements: 4 trials now, 19 later, in about 10 further submissions
array 1: 2 trials as job 0[].pbshead
array 2: 2 trials as job 1[].pbshead
feeder: job 2.pbshead, after 0[].pbshead
s: 4 trials submitted as 2 arrays (7 scheduler calls); 19 trials follow when there is a place in the queue (job 2.pbshead submits them)
jobs: 0[].pbshead 1[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    let left = "\n19 trials not submitted yet: job 2.pbshead submits more when there is a place in the queue\n";
    let status = pbs.world.run(&["status"]).whole();
    assert!(status.contains(left), "{status}");
    let why = pbs.world.run(&["why", "22"]).ok().to_owned();
    assert_eq!(
        why.lines().nth(2),
        Some(
            "  waits: not submitted yet: job 2.pbshead submits more when there is a place in the queue"
        ),
        "{why}"
    );
    // Nothing more has a place, and the job that submits it is there.
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
s: nothing new to submit (4 scheduler calls); 19 trials follow when there is a place in the queue; 4 trials submitted before
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 23]);
    let mut ran: Vec<u32> =
        pbs.world.read("results/s/ran").lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..23).collect::<Vec<_>>());
    assert!(!pbs.world.run(&["status"]).whole().contains("not submitted"));
}

/// The sizes of the arrays of trials: as a dry run says, and as the submission behind it makes them.
fn sizes(pbs: &Pbs, plan: &str) -> (Vec<u64>, Vec<u64>) {
    let of = |arrays: &serde_json::Value| -> Vec<u64> {
        let arrays = arrays.as_array().unwrap().iter();
        let trials = arrays.filter(|array| array.get("feeder").is_none());
        trials.map(|array| array["count"].as_u64().unwrap()).collect()
    };
    let dry = pbs.submit(plan, &["--dry-run", "--json"]).ok().to_owned();
    let dry: serde_json::Value = serde_json::from_str(&dry).unwrap();
    let before = pbs.world.files("results/s/waves").len();
    pbs.submit(plan, &["-q"]).ok();
    let waves = pbs.world.files("results/s/waves");
    let new = waves[before..].iter().filter(|name| name.ends_with(".json"));
    let submitted = new.flat_map(|name| {
        let wave: serde_json::Value =
            serde_json::from_str(&pbs.world.read(&format!("results/s/waves/{name}"))).unwrap();
        of(&wave["arrays"])
    });
    (of(&dry["arrays"]), submitted.collect())
}

#[test]
fn a_dry_run_shows_arrays_of_the_sizes_that_are_submitted() {
    let queues = json!({"workq": {}, "short": {"max_array_size": 4}, "route": {"route_destinations": ["short"]}});
    for (limits, rest, expected) in [
        (json!({"max_array_size": 4}), "", vec![4, 4, 2]),
        (json!({"max_queued": 6}), "", vec![3, 2]),
        (json!({"max_array_size": 2, "max_queued": 6}), "", vec![2, 2, 1]),
        (json!({"max_queued": 6}), "[retry]\nauto = true\n", vec![3, 2]),
        (json!({"queues": queues}), "[resources]\npartition = \"short\"\n", vec![4, 4, 2]),
        (json!({"queues": queues}), "[resources]\npartition = \"route\"\n", vec![4, 4, 2]),
    ] {
        let mut pbs = Pbs::start();
        pbs.config(|config| {
            config.extend(limits.as_object().unwrap().clone());
            config.insert("scheduling".to_owned(), json!(false));
        });
        let (dry, submitted) = sizes(&pbs, &plan(10, rest));
        assert_eq!((&dry, &submitted), (&expected, &expected), "{limits} {rest}");
        // A sweep that is there, and grows.
        let (dry, submitted) = sizes(&pbs, &plan(13, rest));
        assert_eq!(dry, submitted, "{limits} {rest}");
    }
}

/// In words, a dry run says of the places what the submission says.
#[test]
fn a_dry_run_says_which_trials_have_a_place_now() {
    let pbs = that_takes(5);
    let dry = pbs.submit(&plan(23, ""), &["--dry-run"]).ok().to_owned();
    let ran = pbs.submit(&plan(23, ""), &[]);
    let places = ran.err.lines().next().unwrap();
    assert_eq!(
        places,
        "max_queued of queue `workq` allows 5 elements: 4 trials now, 19 later, in about 10 further submissions"
    );
    assert!(dry.lines().any(|line| line == places), "{dry}");
    let table = "\narray  link  elements  after  request\n    1     0         2  -      nodes=1 ranks=1 cpus_per_rank=1\n    \
                 2     0         2  -      nodes=1 ranks=1 cpus_per_rank=1\n";
    assert!(dry.contains(table) && dry.contains("would be submitted: 23 trials (new)\n"), "{dry}");
    // The queue is full now.
    let full = pbs.submit(&plan(30, ""), &["--dry-run"]).ok().to_owned();
    assert!(full.contains("allows 5 elements, 5 are in the queue: 0 trials now, "), "{full}");
}

/// A feeder was killed with its host while it submitted: its process cannot be looked for from here, but its job can.
#[test]
fn the_lock_of_a_feeder_on_another_host_is_free_when_its_job_has_ended() {
    let pbs = that_takes(5);
    pbs.submit(&plan(23, ""), &["-q"]).ok();
    let lock = json!({"host": "n3", "pid": 7, "started": 1, "since": 1.0e9, "job": "2.pbshead"});
    pbs.world.write("results/s/submit.lock", &format!("{lock}\n"));
    // The job is there: another submission waits, and leaves the lock alone.
    let waits = format!("exec '{}' submit plan.toml --pbs 2>said", PROGRAM);
    let mut waiting = pbs.world.command("sh").args(["-c", &waits]).spawn().unwrap();
    let word =
        "another hpcsweep is changing this sweep: process 7 on n3, job 2.pbshead; waiting for it\n";
    wait_until("it waits", || pbs.world.exists("said") && pbs.world.read("said").contains(word));
    assert_eq!(pbs.world.read("results/s/submit.lock"), format!("{lock}\n"));
    std::fs::remove_file(pbs.world.path("results/s/submit.lock")).unwrap();
    assert!(waiting.wait().unwrap().success(), "{}", pbs.world.read("said"));
    // The job is gone.
    pbs.world.write("results/s/submit.lock", &format!("{lock}\n"));
    pbs.world.call("qdel", &["2.pbshead", "0[].pbshead"]).ok();
    let ran = pbs.again(&[]);
    assert!(ran.code == 0 && !ran.err.contains("waiting for it"), "{}", ran.whole());
    assert!(ran.err.contains("feeder: job "), "{}", ran.whole());
    assert!(!pbs.world.exists("results/s/submit.lock"));
}

#[test]
fn a_queue_without_a_place_refuses_the_whole_sweep() {
    let pbs = that_takes(5);
    pbs.world.call("qsub", &["-h", "-J", "0-3", "--", "/bin/true"]).ok();
    assert_eq!(
        pbs.submit(&plan(4, ""), &[]).whole(),
        "\
error: the queue has no place for s: max_queued of queue `workq` allows 5 elements, 4 are in the queue
  4 trials not submitted yet
hint: run the same command again when some of the jobs there have ended
exit code 3
"
    );
    // One trial takes the last place.
    assert_eq!(pbs.submit(&plan(1, ""), &[]).code, 0);
}

#[test]
fn a_queue_without_the_places_of_a_feeder_refuses_what_needs_one() {
    for limit in [1, 2] {
        let mut pbs = Pbs::start();
        pbs.set("max_queued", limit);
        let elements = if limit == 1 { "1 element" } else { "2 elements" };
        let fault = format!(
            "\
error: s needs a feeder, which needs 3 places in the queue (its own, one for a trial and one for the next feeder): max_queued of queue `workq` allows {elements}
hint: let an agent run it, which needs one place: `hpcsweep submit plan.toml --pbs --pull`
exit code 2
"
        );
        let auto = "[retry]\nauto = true\n";
        for plan in
            [plan(3, ""), plan(1, auto), plan(limit + 1, "[defaults]\ntask_id = \"c{{ a }}\"\n")]
        {
            for args in [&["--dry-run"][..], &["--dry-run", "--json"], &[]] {
                assert_eq!(pbs.submit(&plan, args).whole(), fault, "{args:?}");
            }
        }
        assert!(pbs.jobs().is_empty());
        // As many elements as there are places need none, and an agent needs one place.
        pbs.submit(&plan(limit * 3, "[schedule]\npack = 3\n"), &[]).ok();
        pbs.wait_idle();
        pbs.submit(&plan(limit * 3 + 4, ""), &["--pull"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.standings(), vec!["done"; limit as usize * 3 + 4]);
    }
}

#[test]
fn trials_that_are_added_while_the_queue_is_full_follow_too() {
    let mut pbs = that_takes(3);
    pbs.submit(&plan(4, ""), &[]).ok();
    assert_eq!(
        pbs.submit(&plan(6, ""), &[]).whole(),
        "\
s: nothing new to submit (4 scheduler calls); 4 trials follow when there is a place in the queue; 2 trials submitted before
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
}

#[test]
fn a_feeder_needs_a_place_beside_the_last_trial() {
    let pbs = that_takes(5);
    pbs.world.call("qsub", &["-h", "-J", "0-3", "--", "/bin/true"]).ok();
    assert_eq!(
        pbs.submit(&plan(1, "[retry]\nauto = true\n"), &[]).whole(),
        "\
error: the queue has no place for s: max_queued of queue `workq` allows 5 elements, 4 are in the queue
  1 trial not submitted yet
hint: run the same command again when some of the jobs there have ended
exit code 3
"
    );
}

#[test]
fn what_waits_to_submit_the_rest_is_cancelled_and_held_with_the_sweep() {
    let mut pbs = that_takes(3);
    pbs.submit(&plan(4, ""), &[]).ok();
    let first =
        |ran: &crate::support::world::Ran| ran.err.lines().next().unwrap_or_default().to_owned();
    let held = pbs.world.run(&["hold"]);
    assert_eq!(first(&held), "s: held 2 trials and the feeder: 2.pbshead 1[].pbshead 0[].pbshead");
    let released = pbs.world.run(&["release"]);
    assert_eq!(
        first(&released),
        "s: released 2 trials and the feeder: 2.pbshead 1[].pbshead 0[].pbshead"
    );
    let cancelled = pbs.world.run(&["cancel"]);
    assert_eq!(
        first(&cancelled),
        "s: cancelled 2 trials and the feeder: 2.pbshead 1[].pbshead 0[].pbshead"
    );
    assert_eq!(
        pbs.standings(),
        [
            "cancelled: deleted before it began",
            "cancelled: deleted before it began",
            "pending",
            "pending"
        ]
    );
    // The next submission continues with what was never submitted.
    pbs.set("scheduling", true);
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
}

/// An order about trials reaches those that have jobs. The others are named: the feeder submits them.
#[test]
fn an_order_about_trials_names_those_that_are_not_submitted_yet() {
    let pbs = that_takes(3);
    pbs.submit(&plan(5, ""), &[]).ok();
    let said = |args: &[&str]| pbs.world.run(args).whole();
    for order in ["hold", "cancel"] {
        assert_eq!(
            said(&[order, "--where", "trial > 1"]),
            format!(
                "s: trials 2-4 are not submitted yet and left alone; `hpcsweep {order} results/s` stops the whole sweep\n\
                 exit code 0\n"
            )
        );
    }
    assert_eq!(said(&["release", "4"]), "s: nothing of it is held\nexit code 0\n");
    assert_eq!(
        said(&["cancel", "1,4"]),
        "s: trial 4 is not submitted yet and left alone; `hpcsweep cancel results/s` stops the whole sweep\n\
         s: cancelled 1 trial: 1[0].pbshead\nexit code 0\n"
    );
}

#[test]
fn trials_that_run_again_follow_with_their_requests_when_there_is_a_place() {
    let mut pbs = Pbs::start();
    let numbers: Vec<String> = (0..9).map(|n| n.to_string()).collect();
    let script =
        "[ -e $HPCSWEEP_SWEEP_DIR/mended ] && echo $HPCSWEEP_TRIAL >>$HPCSWEEP_SWEEP_DIR/ran";
    let plan = shell(script, &format!("[grid]\na = [{}]\n", numbers.join(", ")));
    pbs.submit(&plan, &[]).ok();
    pbs.wait_idle();
    pbs.world.write("results/s/mended", "");
    pbs.set("max_queued", 4);
    let ran = pbs.world.run(&["retry", "--walltime", "9m"]);
    assert_eq!(
        ran.err.lines().next().unwrap(),
        "max_queued of queue `workq` allows 4 elements: 3 trials now, 6 later, in about 3 further submissions",
        "{}",
        ran.whole()
    );
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 9]);
    let jobs = pbs.jobs();
    let walltimes = jobs.values().filter(|job| job["Resource_List"]["walltime"] == "00:09:00");
    assert!(walltimes.count() >= 5, "{jobs:#?}");
}

#[test]
fn a_routing_queue_gets_no_array_that_it_would_keep_for_ever() {
    let pbs = pbs();
    let ran = pbs.submit(&plan(7, "[resources]\npartition = \"route\"\n"), &[]);
    assert_eq!(
        ran.whole(),
        "\
queue `route` hands on 3 elements of a user at a time: no array has more
array 1: 3 trials as job 0[].pbshead
array 2: 3 trials as job 1[].pbshead
array 3: 1 trial as job 2[].pbshead
s: 7 trials submitted as 3 arrays (5 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 7]);
    let queues: Vec<_> = pbs.jobs().values().map(|job| job["queue"].clone()).collect();
    assert!(queues.iter().all(|queue| queue == "short"), "{queues:?}");
}

#[test]
fn a_queue_that_does_not_exist_is_named_with_the_nearest() {
    let pbs = pbs();
    let near = "\
error: this server has no queue `shrt`
hint: did you mean `short`?
exit code 2
";
    refused(&pbs, &plan(1, "[resources]\npartition = \"shrt\"\n"), near);
    let far = "\
error: this server has no queue `gpu`
hint: it has `workq`, `short`, `route`, `closed` and `stopped`
exit code 2
";
    refused(&pbs, &plan(1, "[resources]\npartition = \"gpu\"\n"), far);
    let list = "\
error: PBS takes one queue, not `short,workq`
hint: name one queue as `partition`, perhaps a routing one
exit code 2
";
    refused(&pbs, &plan(1, "[resources]\npartition = \"short,workq\"\n"), list);
}

#[test]
fn a_queue_that_takes_no_jobs_is_the_schedulers_fault() {
    let pbs = pbs();
    let expected = "\
error: the queue `closed` takes no jobs now: it is not enabled
hint: name another `partition`, or wait
exit code 3
";
    let plan = plan(1, "[resources]\npartition = \"closed\"\n");
    assert_eq!(pbs.submit(&plan, &[]).whole(), expected);
    assert_eq!(pbs.world.files("results"), Vec::<String>::new());
    assert!(pbs.jobs().is_empty());
    // It may take them later: the plan is not wrong.
    let dry = pbs.submit(&plan, &["--dry-run"]);
    let unknown = "places in the queue and expected start: unknown (the queue `closed` takes no jobs now: it is not enabled)\n";
    assert!(dry.code == 0 && dry.out.contains(unknown), "{}", dry.whole());
}

#[test]
fn a_queue_that_runs_nothing_is_told_of() {
    let pbs = pbs();
    let ran = pbs.submit(&plan(1, "[resources]\npartition = \"stopped\"\n"), &[]);
    let said = "queue `stopped` runs nothing now: it is not started\narray 1: 1 trial as job 0[].pbshead\n";
    assert!(ran.err.starts_with(said), "{}", ran.whole());
    assert_eq!(pbs.standings(), ["queued: Not Running: Queue not started"]);
}

#[test]
fn a_walltime_beyond_that_of_the_queue_is_refused_also_behind_a_routing_one() {
    let pbs = pbs();
    for queue in ["short", "route"] {
        let resources = format!("[resources]\nwalltime = \"02:00:00\"\npartition = \"{queue}\"\n");
        let expected = format!(
            "\
error: a walltime of 02:00:00 is more than queue `{queue}` allows: 01:00:00
hint: lower `walltime` or name another `partition`
exit code 2
"
        );
        refused(&pbs, &plan(1, &resources), &expected);
    }
}

#[test]
fn options_of_slurm_are_refused() {
    let pbs = pbs();
    let option = "\
error: PBS has no option `--exclusive`
hint: `directives` are the scheduler's own: those of qsub have one dash
exit code 2
";
    refused(&pbs, &plan(1, "[resources]\ndirectives = [\"--exclusive\"]\n"), option);
}

#[test]
fn a_folder_that_cannot_travel_is_refused_before_anything() {
    let pbs = pbs();
    for name in ["a,b", "it's", "say \"it\"", "back\\slash", "caf\u{e9}", "^array_index^"] {
        pbs.world.write(&format!("{name}/plan.toml"), &plan(1, ""));
        let ran = pbs.world.run(&["submit", "--pbs", &format!("{name}/plan.toml")]);
        assert_eq!(
            ran.whole(),
            format!(
                "\
error: PBS cannot pass on the path `$WORLD/{name}/results/s`
hint: use a folder whose path has ASCII letters alone, and no comma, quote, backslash or `^`
exit code 2
"
            )
        );
        assert_eq!(pbs.world.files(name), ["plan.toml"]);
    }
    assert!(pbs.jobs().is_empty());
}

#[test]
fn what_else_a_name_can_hold_arrives() {
    let pbs = pbs();
    let name = "it has 100% $HOME `id` \\ #;&|*".replace('\\', "{{ a }}");
    pbs.world.write(&format!("{name}/plan.toml"), &plan(2, ""));
    pbs.world.run(&["submit", "--pbs", &format!("{name}/plan.toml")]).ok();
    pbs.wait_idle();
    let mut ran: Vec<String> =
        pbs.world.read(&format!("{name}/results/s/ran")).lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["0", "1"]);
}

#[test]
fn what_the_plan_may_not_ask_of_this_site_is_refused() {
    let pbs = pbs();
    pbs.site("[caps]\nmax_walltime = \"00:30:00\"\n");
    for args in [&["--dry-run"][..], &[]] {
        let ran = pbs.submit(&plan(1, "[resources]\nwalltime = \"02:00:00\"\n"), args);
        assert_eq!(ran.code, 2, "{}", ran.whole());
    }
    assert!(pbs.jobs().is_empty());
}

#[test]
fn what_qsub_refuses_is_quoted_and_leaves_nothing_in_the_queue() {
    let mut pbs = pbs();
    let ran = pbs.submit(&plan(1, "[resources]\ndirectives = [\"-l nosuch=1\"]\n"), &[]);
    let words =
        "error: array 1 was not submitted: `qsub` says: Unknown resource Resource_List.nosuch\n";
    assert!(ran.err.starts_with(words), "{}", ran.whole());
    assert_eq!(ran.code, 3);
    assert!(pbs.jobs().is_empty());
    // Once the site has the resource, the same command submits the plan and does not mention the first try.
    pbs.set("resources", json!(["nosuch"]));
    let ran = pbs.again(&[]);
    assert!(ran.err.starts_with("array 1: 1 trial as job 1[].pbshead\n"), "{}", ran.whole());
}

/// A limit that `qstat` does not show, of a project or of all users.
#[test]
fn a_limit_that_only_qsub_knows_is_named_with_the_key_that_sends_fewer() {
    let pbs = pbs();
    wrap(&pbs.world, "qsub", "echo 'qsub: Maximum number of jobs already in queue' >&2; exit 1");
    let ran = pbs.submit(&plan(2, ""), &[]).whole();
    let hint = "\nhint: run the same command again when some jobs have ended; with the limit as `limits.max_submit_jobs` in the \
                site profile, `submit` sends as many as have a place\nexit code 3\n";
    assert!(ran.contains("`qsub` says: Maximum number of jobs already in queue"), "{ran}");
    assert!(ran.ends_with(hint), "{ran}");
    wrap(&pbs.world, "qsub", "real \"$@\"");
    pbs.site("[limits]\nmax_submit_jobs = 3\n");
    pbs.submit(&plan(5, ""), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 5]);
}

/// What `qstat` hides is learnt from what `qsub` refuses, by each feeder again.
#[test]
fn a_limit_that_only_qsub_knows_makes_the_arrays_smaller() {
    let mut pbs = that_takes(7);
    wrap(&pbs.world, "qstat", "real \"$@\" | sed s/max_queued/hidden/");
    let ran = pbs.submit(&plan(23, ""), &[]);
    let said = "\
array 1 was not submitted: `qsub` says: would exceed complex's per-user limit
a smaller submission allows 11 elements: 10 trials now, 13 later, in about 3 further submissions
array 2: 5 trials as job 1[].pbshead
array 3 was not submitted: `qsub` says: would exceed complex's per-user limit
feeder: job 3.pbshead, after 1[].pbshead
";
    assert!(ran.code == 0 && ran.err.starts_with(said), "{}", ran.whole());
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 23]);
}

/// Another user has eight of twelve places. The server's limit on each user is no narrower.
#[test]
fn a_limit_on_all_users_counts_the_jobs_of_others() {
    let mut pbs = that_takes(12);
    pbs.set("max_queued_all", 12);
    pbs.world.call("qsub", &["-h", "-J", "0-7", "--", "/bin/true"]).ok();
    let others = "real \"$@\" | sed '0,/\"Job_Owner\": *\"[^@]*/s//\"Job_Owner\":\"grace/'";
    wrap(&pbs.world, "qstat", others);
    let ran = pbs.submit(&plan(11, ""), &[]);
    let said = "max_queued of queue `workq`, of all users, allows 12 elements, 8 are in the queue: 3 trials now, 8 later, in about ";
    assert!(ran.err.starts_with(said), "{}", ran.whole());
    pbs.set("scheduling", true);
    wait_until("all have run", || {
        pbs.world.exists("results/s/ran") && pbs.world.read("results/s/ran").lines().count() == 11
    });
}

#[test]
fn a_directive_that_qsub_refuses_is_quoted_whole_and_not_looked_for() {
    let pbs = pbs();
    wrap(&pbs.world, "qsub", "echo 'qsub: directive error: -l bad=1 ' >&2; exit 2");
    let ran = pbs.submit(&plan(1, ""), &[]).whole();
    let words = "error: array 1 was not submitted: `qsub` says: directive error: -l bad=1\n";
    assert!(ran.starts_with(words), "{ran}");
}

/// The server takes such a job and deletes it.
#[test]
fn what_no_destination_of_a_routing_queue_takes_is_refused() {
    let mut pbs = Pbs::start();
    pbs.set(
        "queues",
        json!({
            "workq": {},
            "wide": {"min_nodes": 10},
            "narrow": {"max_ncpus": 2},
            "prod": {"route_destinations": ["wide", "narrow"]},
        }),
    );
    let resources = |rest: &str| format!("[resources]\npartition = \"prod\"\n{rest}");
    let expected = "\
error: no queue of `prod` takes a job of 1 node and 4 cores
  `wide` takes at least 10 nodes
  `narrow` takes at most 2 cores
hint: name another `partition`, or let agents run several trials in one job: `submit --pull`
exit code 2
";
    refused(&pbs, &plan(1, &resources("cpus_per_rank = 4\n")), expected);
    let ran = pbs.submit(&plan(1, &resources("cpus_per_rank = 2\n")), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
}
