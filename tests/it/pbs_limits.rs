//! PBS: requests that a server or a queue would refuse, or accept and never run, are refused before anything
//! is submitted.

use serde_json::json;

use crate::local::shell;
use crate::pbs_server::Pbs;

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

/// A plan that is refused with these words, before any job and without leaving anything.
#[track_caller]
fn refused(pbs: &Pbs, plan: &str, expected: &str) {
    assert_eq!(pbs.submit(plan, &[]).whole(), expected);
    assert_eq!(pbs.world.files("results"), Vec::<String>::new());
    assert!(pbs.jobs().is_empty());
}

#[test]
fn more_than_may_be_queued_is_refused() {
    let mut pbs = Pbs::start();
    pbs.set("max_queued", 3);
    let expected = "\
error: the sweep would put 5 elements into the queue, more than max_queued of queue `workq` allows: 3
hint: submit a smaller plan first and let it grow, or fuse chains (`[schedule] chains = \"fused\"`)
exit code 2
";
    refused(&pbs, &plan(5, ""), expected);
    // A smaller one runs, and grows once there is room.
    pbs.submit(&plan(3, ""), &[]).ok();
    pbs.wait_idle();
    pbs.submit(&plan(5, ""), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 5]);
}

#[test]
fn a_queue_that_fills_up_on_the_way_is_completed_by_the_next_submission() {
    let mut pbs = Pbs::start();
    pbs.config(|c| {
        c.insert("max_queued".to_owned(), json!(5));
        c.insert("max_array_size".to_owned(), json!(2));
        // Nothing ends, and makes room, before the second array is asked for.
        c.insert("scheduling".to_owned(), json!(false));
    });
    // No question reports beforehand how many jobs a user has in the queue already.
    pbs.world.call("qsub", &["-h", "-J", "0-1", "--", "/bin/true"]).ok();
    let ran = pbs.submit(&plan(4, ""), &[]);
    assert_eq!(
        ran.whole().replace(&token(&pbs), "TOKEN"),
        "\
array 1: 2 trials as job 1[].pbshead
error: array 2 was not submitted: `qsub` says: would exceed complex's per-user limit
  ran: qsub -f -v HPCSWEEP_JOB=$WORLD/results/s/jobs/s.TOKEN.2.sh $WORLD/results/s/jobs/s.TOKEN.2.sh
hint: jobs 1[].pbshead of this sweep are in the queue; fix it and run the same command again: only the rest is submitted
exit code 3
"
    );
    pbs.world.call("qdel", &["0[]"]).ok();
    pbs.config(|c| {
        c.insert("scheduling".to_owned(), json!(true));
    });
    pbs.wait_idle();
    assert_eq!(
        pbs.again(&[]).whole(),
        "\
array 2: 2 trials as job 3[].pbshead
s: 2 trials submitted as 1 array (3 scheduler calls); 2 trials submitted before
jobs: 3[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
}

fn token(pbs: &Pbs) -> String {
    let identity: serde_json::Value =
        serde_json::from_str(&pbs.world.read("results/s/sweep.json")).unwrap();
    identity["token"].as_str().unwrap().to_owned()
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
    refused(&pbs, &plan(1, "[resources]\npartition = \"closed\"\n"), expected);
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
    let ran = pbs.submit(&plan(1, "[resources]\nwalltime = \"02:00:00\"\n"), &[]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
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
