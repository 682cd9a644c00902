//! PBS: chains as jobs of their own, behind barriers, and fused. Whatever they are mapped to, the same trials run
//! in the same order and leave the same table as on this machine.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::World;

/// Each trial writes down that it begins and that it ends, and a metric; `code` is how it ends.
const CODE: &str = "echo begin $HPCSWEEP_TRIAL >>$EVENTS; echo \"{\\\"loss\\\": $HPCSWEEP_TRIAL.5}\" >>$HPCSWEEP_METRICS
    echo end $HPCSWEEP_TRIAL >>$EVENTS; [ -e $EVENTS.mended ] || exit $HPCSWEEP_PARAM_CODE";

/// Two chains, of which one breaks at its second link, and a trial of its own.
const TRIALS: &str = "
[[trials]]
task_id = \"long\"
code = 0
[[trials]]
task_id = \"long\"
code = 3
[[trials]]
task_id = \"short\"
code = 0
[[trials]]
task_id = \"long\"
code = 0
[[trials]]
task_id = \"short\"
code = 0
[[trials]]
task_id = \"long\"
code = 0
[[trials]]
code = 0
";

fn plan(chains: &str, on_failure: &str) -> String {
    let plan = shell(CODE, &format!("[schedule]\nchains = \"{chains}\"\n{TRIALS}"));
    plan.replace("[run]", &format!("[run]\non_failure = \"{on_failure}\""))
}

fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs
}

/// The table that this machine makes of the same plan.
fn here(chains: &str, on_failure: &str) -> Vec<BTreeMap<String, Value>> {
    let mut world = World::new();
    world.set("EVENTS", &world.text_path("events"));
    assert_eq!(world.local(&plan(chains, on_failure), &["-j", "2", "-q"]).code, 1);
    Pbs::results(&world)
}

/// Within each chain, what had begun ended before the next link began.
#[track_caller]
fn check_order(pbs: &Pbs, ran: &[u64]) {
    let events = pbs.world.read("events");
    let at = |event: String| events.lines().position(|line| line == event);
    let mut begun: Vec<&str> = events.lines().filter_map(|l| l.strip_prefix("begin ")).collect();
    begun.sort_unstable();
    let expected: Vec<String> = ran.iter().map(u64::to_string).collect();
    assert_eq!(begun, expected, "{events}");
    for chain in [[0, 1].as_slice(), &[1, 3], &[3, 5], &[2, 4]] {
        if chain.iter().all(|trial| ran.contains(trial)) {
            let end = at(format!("end {}", chain[0]));
            assert!(end.is_some() && end < at(format!("begin {}", chain[1])), "{events}");
        }
    }
}

/// One plan under one mapping: the output, the trials that run, their states, the table. Then the trials are
/// fixed and run again.
fn a_link_fails(chains: &str, said: &str, jobs_after: usize) {
    let pbs = pbs();
    let ran = pbs.submit(&plan(chains, "stop"), &[]);
    assert_eq!(ran.whole(), said);
    pbs.wait_idle();
    check_order(&pbs, &[0, 1, 2, 4, 6]);
    assert_eq!(
        pbs.standings(),
        [
            "done",
            "failed: exit code 3",
            "done",
            "skipped: its chain stopped: trial 1 failed",
            "done",
            "skipped: its chain stopped: trial 3 was skipped",
            "done",
        ]
    );
    assert_eq!(Pbs::results(&pbs.world), here(chains, "stop"));
    // The jobs' own logs are empty.
    assert_eq!(pbs.world.files("results/s/logs/jobs"), Vec::<String>::new());

    // Nothing is left to submit, until it is asked for what had failed: that alone, in its order.
    let ran = pbs.again(&[]);
    assert!(ran.err.contains("s: nothing new to submit"), "{}", ran.whole());
    pbs.world.write("events.mended", "");
    pbs.world.write("events", "");
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    check_order(&pbs, &[1, 3, 5]);
    assert_eq!(pbs.standings(), ["done"; 7]);
    assert_eq!(pbs.world.column("attempts"), ["1", "2", "1", "1", "1", "1", "1"]);
    assert_eq!(pbs.states().len(), jobs_after);
}

#[test]
fn jobs_of_their_own_follow_each_other() {
    let said = "\
chains as jobs: the plan says so
array 1: 1 trial as job 0[].pbshead
array 2: 1 trial as job 1.pbshead
array 3: 1 trial as job 2.pbshead, after 1.pbshead
array 4: 1 trial as job 3.pbshead, after 2.pbshead
array 5: 1 trial as job 4.pbshead, after 3.pbshead
array 6: 1 trial as job 5.pbshead
array 7: 1 trial as job 6.pbshead, after 5.pbshead
s: 7 trials submitted as 7 arrays (10 scheduler calls)
jobs: 0[].pbshead 1.pbshead 2.pbshead 3.pbshead 4.pbshead 5.pbshead 6.pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
";
    a_link_fails("jobs", said, 10);
}

#[test]
fn links_wait_behind_barriers() {
    let said = "\
chains as barrier: the plan says so
array 1: 3 trials as job 0[].pbshead
array 2: 2 trials as job 1[].pbshead, after 0[].pbshead
array 3: 1 trial as job 2[].pbshead, after 1[].pbshead
array 4: 1 trial as job 3[].pbshead, after 2[].pbshead
s: 7 trials submitted as 4 arrays (7 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead 3[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
";
    a_link_fails("barrier", said, 7);
}

#[test]
fn chains_run_fused() {
    let said = "\
chains as fused: the plan says so
array 1: 4 trials as job 0[].pbshead
array 2: 2 trials as job 1[].pbshead
array 3: 1 trial as job 2[].pbshead
s: 7 trials submitted as 3 arrays (5 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
";
    a_link_fails("fused", said, 4);
}

/// After a failure the chain continues.
fn goes_on(chains: &str) {
    let pbs = pbs();
    pbs.submit(&plan(chains, "continue"), &[]).ok();
    pbs.wait_idle();
    check_order(&pbs, &[0, 1, 2, 3, 4, 5, 6]);
    let mut expected = ["done"; 7];
    expected[1] = "failed: exit code 3";
    assert_eq!(pbs.standings(), expected);
    assert_eq!(Pbs::results(&pbs.world), here(chains, "continue"));
}

#[test]
fn a_plan_that_continues_does_so_in_jobs() {
    goes_on("jobs");
}

#[test]
fn a_plan_that_continues_does_so_behind_barriers() {
    goes_on("barrier");
}

#[test]
fn a_plan_that_continues_does_so_fused() {
    goes_on("fused");
}
