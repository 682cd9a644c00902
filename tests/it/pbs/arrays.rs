//! PBS: what arrays a plan becomes, and that they run as they say.

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::World;

/// Trials that write down that they begin and end.
const CODE: &str =
    "echo begin $HPCSWEEP_TRIAL >>$EVENTS; sleep 0.05; echo end $HPCSWEEP_TRIAL >>$EVENTS";

fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs
}

/// A plan of so many single trials.
fn plan(trials: u32) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    shell(CODE, &format!("[grid]\na = [{}]\n", numbers.join(", ")))
}

/// Which trials ran, and how many at once at most.
fn ran(world: &World) -> (Vec<u32>, u32) {
    let (mut ran, mut now, mut most) = (Vec::new(), 0, 0);
    for line in world.read("events").lines() {
        match line.split_once(' ').unwrap() {
            ("begin", trial) => {
                ran.push(trial.parse().unwrap());
                now += 1;
                most = most.max(now);
            }
            _ => now -= 1,
        }
    }
    ran.sort_unstable();
    (ran, most)
}

/// What arrays the server was given.
fn submitted(pbs: &Pbs) -> Vec<String> {
    let jobs = pbs.jobs();
    let range = |(id, _): &(String, String)| {
        let limit = &jobs[id]["max_run_subjobs"];
        let throttle = limit.as_i64().map_or(String::new(), |n| format!("%{n}"));
        format!("{}{throttle}", jobs[id]["array_indices_submitted"].as_str().unwrap())
    };
    pbs.states().iter().map(range).collect()
}

#[test]
fn one_trial_is_an_array_of_one() {
    let pbs = pbs();
    pbs.submit(&plan(1), &[]).ok();
    pbs.wait_idle();
    assert_eq!(submitted(&pbs), ["0-1:2"]);
    assert_eq!(ran(&pbs.world), (vec![0], 1));
    assert_eq!(pbs.standings(), ["done"]);
    assert_eq!(pbs.world.column("job"), ["\"0[0].pbshead\""]);
}

#[test]
fn an_array_is_split_where_the_server_takes_no_larger_one() {
    let mut pbs = pbs();
    pbs.set("max_array_size", 4);
    let ran_it = pbs.submit(&plan(9), &[]);
    assert_eq!(
        ran_it.whole(),
        "\
array 1: 4 trials as job 0[].pbshead
array 2: 4 trials as job 1[].pbshead
array 3: 1 trial as job 2[].pbshead
s: 9 trials submitted as 3 arrays (5 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    assert_eq!(submitted(&pbs), ["0-3", "0-3", "0-1:2"]);
    assert_eq!(ran(&pbs.world).0, (0..9).collect::<Vec<_>>());
    assert_eq!(pbs.standings(), ["done"; 9]);
}

#[test]
fn a_throttled_array_never_runs_more_at_once() {
    let pbs = pbs();
    // Each waits until another one runs beside it: two at once are allowed, and three never seen.
    let plan = plan(8).replace(
        "sleep 0.05",
        "until [ $(grep -c begin $EVENTS) -ge 2 ]; do sleep 0.01; done; sleep 0.05",
    );
    pbs.submit(&plan, &["--max-running", "2"]).ok();
    pbs.wait_idle();
    assert_eq!(submitted(&pbs), ["0-7%2"]);
    assert_eq!(ran(&pbs.world), ((0..8).collect(), 2));
}

#[test]
fn a_server_that_cannot_throttle_gets_one_block_behind_the_other() {
    let mut pbs = pbs();
    pbs.set("version", "20.0.1");
    let ran_it = pbs.submit(&plan(5), &["--max-running", "2"]);
    assert_eq!(
        ran_it.whole(),
        "\
PBS 20.0.1 cannot throttle arrays: they have 2 elements at most, and wait for each other
array 1: 2 trials as job 0[].pbshead
array 2: 2 trials as job 1[].pbshead, after 0[].pbshead
array 3: 1 trial as job 2[].pbshead, after 1[].pbshead
s: 5 trials submitted as 3 arrays (6 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    assert_eq!(submitted(&pbs), ["0-1", "0-1", "0-1:2"]);
    let (trials, most) = ran(&pbs.world);
    assert_eq!(trials, [0, 1, 2, 3, 4]);
    assert!(most <= 2, "{}", pbs.world.read("events"));
    assert_eq!(pbs.standings(), ["done"; 5]);
}

#[test]
fn what_a_failure_leaves_behind_a_block_is_no_reason_not_to_run() {
    let mut pbs = pbs();
    pbs.set("version", "20.0.1");
    // The first block fails whole; the one behind it is not a link of its chains.
    let plan = plan(4).replace("sleep 0.05", "[ $HPCSWEEP_TRIAL -gt 1 ] || exit 7");
    pbs.submit(&plan, &["--max-running", "2"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["failed: exit code 7", "failed: exit code 7", "done", "done"]);
}

#[test]
fn chains_on_a_server_that_cannot_throttle_are_fused() {
    let mut pbs = pbs();
    pbs.set("version", "20.0.1");
    let chains = "[defaults]\ntask_id = \"{{ a }}\"\n[grid]\nb = [0, 1]\na";
    let ran_it = pbs.submit(&plan(3).replace("[grid]\na", chains), &["--max-running", "2"]);
    assert!(
        ran_it.err.contains(
            "chains as fused: this server cannot throttle jobs; one allocation fits all links\n"
        ),
        "{}",
        ran_it.whole()
    );
    pbs.wait_idle();
    assert_eq!(submitted(&pbs), ["0-1", "0-1:2"]);
    let (trials, most) = ran(&pbs.world);
    assert_eq!(trials, [0, 1, 2, 3, 4, 5]);
    assert!(most <= 2, "{}", pbs.world.read("events"));
}

#[test]
fn a_throttle_holds_for_chains_in_jobs_of_their_own() {
    let pbs = pbs();
    let chains =
        "[schedule]\nchains = \"jobs\"\n[defaults]\ntask_id = \"{{ a }}\"\n[grid]\nb = [0, 1]\na";
    pbs.submit(&plan(4).replace("[grid]\na", chains), &["--max-running", "2"]).ok();
    pbs.wait_idle();
    let (trials, most) = ran(&pbs.world);
    assert_eq!(trials, (0..8).collect::<Vec<_>>());
    assert!(most <= 2, "{}", pbs.world.read("events"));
    assert_eq!(pbs.standings(), ["done"; 8]);
}

/// Three shapes, and a submission while another one runs: each array alone would keep to two.
#[test]
fn max_running_holds_over_all_arrays_and_submissions_of_a_sweep() {
    let pbs = pbs();
    let plan = |a: &str| {
        let rest = format!(
            "[schedule]\nmax_running = 2\n[grid]\na = [{a}]\nresources.cpus_per_rank = [1, 2, 3]\n"
        );
        shell(&format!("{CODE}; until [ -e $EVENTS.go ]; do sleep 0.01; done"), &rest)
    };
    let first = pbs.submit(&plan("1"), &[]);
    assert_eq!(
        first.whole(),
        "\
array 1: 1 trial as job 0[].pbshead
array 2: 1 trial as job 1[].pbshead
array 3: 1 trial as job 2[].pbshead, after 0[].pbshead, 1[].pbshead
s: 3 trials submitted as 3 arrays (6 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    let second = pbs.submit(&plan("1, 2, 3, 4"), &[]);
    assert!(
        second.err.contains("array 4: 3 trials as job 3[].pbshead, after "),
        "{}",
        second.whole()
    );
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    let (trials, most) = ran(&pbs.world);
    assert_eq!(trials, (0..12).collect::<Vec<_>>());
    assert!(most <= 2, "{}", pbs.world.read("events"));
    assert_eq!(pbs.standings(), ["done"; 12]);
    // Ended jobs delay no other job.
    let third = pbs.submit(&plan("1, 2, 3, 4, 5"), &[]);
    assert!(third.err.contains("array 7: 1 trial as job 6[].pbshead\n"), "{}", third.whole());
    pbs.wait_idle();
}

#[test]
fn a_plan_that_grew_submits_what_is_new_behind_what_it_follows() {
    let pbs = pbs();
    let links = |n: u32| {
        let links: Vec<String> = (0..n).map(|n| n.to_string()).collect();
        let rest = format!("[defaults]\ntask_id = \"c\"\n[grid]\na = [{}]\n", links.join(", "));
        shell(&format!("until [ -e $EVENTS.go ]; do sleep 0.01; done; {CODE}"), &rest)
    };
    pbs.submit(&links(1), &[]).ok();
    let ran_it = pbs.submit(&links(3), &[]);
    assert_eq!(
        ran_it.whole(),
        "\
chains as jobs: 2 calls of qsub, 200 are allowed
array 2: 1 trial as job 1.pbshead, after 0[].pbshead
array 3: 1 trial as job 2.pbshead, after 1.pbshead
s: 2 trials submitted as 2 arrays (5 scheduler calls); 1 trial submitted before
jobs: 1.pbshead 2.pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "begin 0\nend 0\nbegin 1\nend 1\nbegin 2\nend 2\n");
}
