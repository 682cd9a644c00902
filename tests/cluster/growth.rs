//! A plan that grew: only what is new is submitted, and it keeps its place.

use crate::world::{BOTH, Cluster, World};

#[test]
fn a_plan_that_grew_submits_only_what_is_new() {
    for cluster in BOTH {
        let world = World::new(cluster, "grew");
        world.count_calls();
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran";
        world.plan(script, "[grid]\nx = [1, 2, 3]");
        world.submit().ok();
        world.plan(script, "[grid]\nx = [0, 1, 2, 3, 4]");
        let ran = world.submit().ok();
        assert!(ran.stderr.contains("grew: 2 trials submitted as 1 array"), "{}", ran.stderr);
        assert_eq!(world.calls(), 2);
        world.assert_each_ran_once(5);
        // The first three keep their numbers.
        assert_eq!(world.table(&["trial", "x"]), ["0 1", "1 2", "2 3", "3 0", "4 4"]);
        let ran = world.submit().ok();
        assert!(ran.stderr.contains("grew: nothing new to submit "), "{}", ran.stderr);
        assert_eq!(world.calls(), 2);
    }
}

/// Two chains of different lengths, so that the new links wait for different arrays.
#[test]
fn a_chain_that_grew_waits_for_its_predecessors() {
    for cluster in BOTH {
        let world = World::new(cluster, "longer");
        let script = "
            echo $HPCSWEEP_TRIAL >>$HERE/ran
            case $HPCSWEEP_PARAM_STEP in 1) sleep 4;; esac
            echo $HPCSWEEP_TASK_ID $HPCSWEEP_LINK >>$HERE/ended";
        let plan = |a: &str, b: &str| {
            let trials: Vec<String> = [("a", a), ("b", b)]
                .iter()
                .flat_map(|(chain, steps)| {
                    let one =
                        |step: char| format!("[[trials]]\ntask_id = \"{chain}\"\nstep = {step}\n");
                    steps.chars().map(one).collect::<Vec<_>>()
                })
                .collect();
            world.plan(script, &trials.concat());
        };
        plan("1", "01");
        world.submit().ok();
        plan("123", "0123");
        world.submit().ok();
        world.assert_each_ran_once(7);
        let ended = world.read("ended");
        let of = |chain: &str| -> Vec<&str> {
            ended.lines().filter_map(|line| line.strip_prefix(chain)).collect()
        };
        assert_eq!(of("a "), ["0", "1", "2"]);
        assert_eq!(of("b "), ["0", "1", "2", "3"]);
    }
}

#[test]
fn what_grows_behind_a_failure_does_not_run() {
    for (cluster, forget) in
        [(Cluster::Plain, true), (Cluster::Plain, false), (Cluster::Accounting, false)]
    {
        let world = World::new(cluster, "behind");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; sleep 2; [ $HPCSWEEP_PARAM_STEP != bad ]";
        let trial = |step: &str| format!("[[trials]]\ntask_id = \"a\"\nstep = \"{step}\"\n");
        world.plan(script, &trial("bad"));
        world.submit().ok();
        if forget {
            world.finished();
            world.forgotten();
        }
        world.plan(script, &[trial("bad"), trial("next"), trial("last")].concat());
        world.submit().ok();
        // Whether the scheduler or the worker reports the stop depends on what the scheduler still
        // knows.
        let standings: Vec<String> = world.finished().standings();
        let expected =
            ["failed: exit code 1", "skipped: its chain stopped", "skipped: its chain stopped"];
        assert!(
            standings.iter().zip(expected).all(|(said, begins)| said.starts_with(begins)),
            "{standings:?}"
        );
        assert_eq!(world.lines("ran"), ["0"]);
    }
}
