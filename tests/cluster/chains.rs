//! Sweeps of chains, from the plan to the table.

use std::collections::BTreeMap;

use crate::world::{BOTH, Cluster, World};

/// Appends when it begins and ends. The first links of three chains wait for each other: they end only if they run at the
/// same time.
const TIMED: &str = "
echo $HPCSWEEP_TRIAL >>$HERE/ran
echo $HPCSWEEP_TRIAL $(date +%s%N) >>$HERE/begun
echo \"{\\\"loss\\\": $HPCSWEEP_TRIAL}\" >>$HPCSWEEP_METRICS
case $HPCSWEEP_TRIAL in 0 | 4 | 8) until [ $(grep -cE '^[048] ' $HERE/begun) = 3 ]; do sleep 0.05; done ;; esac
echo $HPCSWEEP_TRIAL $(date +%s%N) >>$HERE/ended";

fn times(world: &World, name: &str) -> BTreeMap<u64, u64> {
    let of = |line: &String| {
        let (trial, time) = line.split_once(' ').unwrap();
        (trial.parse().unwrap(), time.parse().unwrap())
    };
    world.lines(name).iter().map(of).collect()
}

#[test]
fn links_run_in_order_and_chains_beside_each_other() {
    for cluster in BOTH {
        let world = World::new(cluster, "order");
        world.plan(
            TIMED,
            "[defaults]\ntask_id = \"fold{{ fold }}\"\n[grid]\nfold = [0, 1, 2]\nlr = [0.1, 0.2, 0.3, 0.4]",
        );
        world.count_calls();
        let planned = world.hpcsweep(&["plan", "--json", "plan.toml"]).ok();
        let planned: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
        assert_eq!(planned["arrays"].as_array().unwrap().len(), 4);

        world.submit().ok();
        assert_eq!(world.calls(), 4);
        let status = world.finished();
        assert_eq!((status.code, status.counts()), (0, BTreeMap::from([("done".to_owned(), 12)])));
        world.assert_each_ran_once(12);

        let (begun, ended) = (times(&world, "begun"), times(&world, "ended"));
        for trial in (0..12).filter(|t| t % 4 > 0) {
            assert!(ended[&(trial - 1)] < begun[&trial], "trial {trial} began too early");
        }

        let columns =
            ["trial", "task_id", "link", "state", "exit_code", "attempts", "fold", "lr", "loss"];
        assert_eq!(
            world.table(&columns)[3..6],
            [
                "3 fold0 3 done 0 1 0 0.4 3".to_owned(),
                "4 fold1 0 done 0 1 1 0.1 4".to_owned(),
                "5 fold1 1 done 0 1 1 0.2 5".to_owned(),
            ]
        );
    }
}

#[test]
fn a_failure_stops_the_rest_of_its_own_chain_only() {
    for cluster in BOTH {
        let world = World::new(cluster, "stops");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_TRIAL != 4 ] || exit 3";
        world.plan(
            script,
            "[defaults]\ntask_id = \"fold{{ fold }}\"\n[grid]\nfold = [0, 1, 2]\nstep = [0, 1, 2]",
        );
        world.submit().ok();
        let status = world.finished();
        let done = "done".to_owned();
        let mut expected = vec![done; 9];
        expected[4] = "failed: exit code 3".into();
        expected[5] = "skipped: its chain stopped: trial 4 failed".into();
        assert_eq!(status.standings(), expected);
        assert_eq!(status.code, 1);
        assert_eq!(world.lines("ran"), ["0", "1", "2", "3", "4", "6", "7", "8"]);
        assert_eq!(
            world.table(&["trial", "state", "exit_code"])[3..6],
            ["3 done 0", "4 failed 3", "5 skipped"]
        );
    }
}

#[test]
fn with_continue_a_chain_goes_on_after_a_failure() {
    for cluster in BOTH {
        let world = World::new(cluster, "continues");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_LINK != 1 ] || kill -9 $$";
        world.plan(
            script,
            "on_failure = \"continue\"\n[defaults]\ntask_id = \"fold{{ fold }}\"\n[grid]\nfold = [0, 1]\nstep = [0, 1, 2]",
        );
        world.submit().ok();
        let status = world.finished();
        let expected = [
            "done",
            "failed: signal 9 (SIGKILL)",
            "done",
            "done",
            "failed: signal 9 (SIGKILL)",
            "done",
        ];
        assert_eq!(status.standings(), expected);
        assert_eq!(world.lines("ran"), ["0", "1", "2", "3", "4", "5"]);
        // The failure is the trial's; towards the scheduler its job went well, or the chain would stop.
        if cluster == Cluster::Accounting {
            let jobs = world.jobs().join(",");
            let states =
                ["--noheader", "--allocations", "--parsable2", "--format=State", "-j", &jobs];
            let text = world.until("in the accounts", || {
                let text = world.call("/usr/bin/sacct", &states);
                (!text.contains("RUNNING") && text.lines().count() == 6).then_some(text)
            });
            assert!(text.lines().all(|state| state == "COMPLETED"), "{text}");
        }
    }
}

#[test]
fn a_failed_trial_is_tried_again_in_its_job_as_often_as_the_plan_says() {
    let world = World::new(Cluster::Plain, "attempts");
    let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_ATTEMPT = $HPCSWEEP_PARAM_GOOD ]";
    world.plan(script, "attempts = 3\n[grid]\ngood = [2, 9]");
    world.submit().ok();
    assert_eq!(world.finished().standings(), ["done", "failed: exit code 1"]);
    assert_eq!(world.lines("ran"), ["0", "0", "1", "1", "1"]);
    assert_eq!(world.table(&["trial", "state", "attempts"]), ["0 done 2", "1 failed 3"]);
}

/// Between two attempts the last one has failed. Still, no command may report the trial as failed,
/// because its job runs.
#[test]
fn between_two_attempts_a_trial_is_running() {
    for cluster in BOTH {
        let world = World::new(cluster, "between");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; sleep 0.05; [ $HPCSWEEP_ATTEMPT = 30 ]";
        world.plan(script, "attempts = 30\n[defaults]\ntask_id = 1\n[grid]\nstep = [1]");
        world.submit().ok();
        // Without a pause between the looks: the moments between attempts are short.
        loop {
            let states = world.status().states();
            assert!(["queued", "running", "done"].contains(&states[0].as_str()), "{states:?}");
            if states[0] == "done" {
                break;
            }
        }
        assert_eq!(world.lines("ran").len(), 30);
    }
}

/// With MinJobAge 2 the failed element is forgotten while others of its array still run.
#[test]
fn what_the_scheduler_has_forgotten_stays_as_it_was() {
    let world = World::new(Cluster::Plain, "forgotten");
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/ran
        case $HPCSWEEP_TRIAL in 0) exit 5;; 2) sleep 15;; esac";
    world.plan(
        script,
        "[defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [0, 1, 2]\nstep = [0, 1]",
    );
    world.submit().ok();
    let expected = [
        "failed: exit code 5",
        "skipped: its chain stopped: trial 0 failed",
        "done",
        "done",
        "done",
        "done",
    ];
    assert_eq!(world.finished().standings(), expected);
    world.forgotten();
    assert_eq!(world.status().standings(), expected);
    assert_eq!(world.lines("ran"), ["0", "2", "3", "4", "5"]);
}

#[test]
fn arrays_beyond_the_largest_are_split_and_stay_dense() {
    for (cluster, site, sizes) in [
        (Cluster::Accounting, "", vec![20, 20, 5]),
        (Cluster::Plain, "limits.max_array_size = 12\n", vec![12, 12, 12, 9]),
    ] {
        let world = World::new(cluster, "split");
        world.site(site);
        let values: Vec<String> = (0..45).map(|i| i.to_string()).collect();
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; echo $SLURM_ARRAY_TASK_ID >>$HERE/indices";
        world.plan(script, &format!("[grid]\nx = [{}]", values.join(", ")));
        world.count_calls();
        world.submit().ok();
        assert_eq!(world.calls(), sizes.len());
        world.assert_each_ran_once(45);
        let mut indices: Vec<String> =
            sizes.iter().flat_map(|n| 0..*n).map(|i| i.to_string()).collect();
        indices.sort_by_key(|i| i.parse::<u64>().unwrap());
        assert_eq!(world.lines("indices"), indices);
    }
}

/// A chain whose links ask for different things: their arrays differ, their order does not.
#[test]
fn links_of_different_requests_follow_each_other() {
    let world = World::new(Cluster::Accounting, "shapes");
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/ran
        echo $HPCSWEEP_TASK_ID $HPCSWEEP_LINK $SLURM_JOB_PARTITION $SLURM_CPUS_ON_NODE >>$HERE/seen";
    let chain = |name: &str, first: u32| {
        let trial = |rest: &str| format!("[[trials]]\ntask_id = \"{name}\"\n{rest}\n");
        [
            trial(&format!("x = 1\nresources.cpus_per_rank = {first}")),
            trial("x = 2\nresources.partition = \"short\"\nresources.walltime = \"00:03:00\""),
            trial("x = 3"),
        ]
        .concat()
    };
    world.plan(script, &[chain("a", 2), chain("b", 2), chain("c", 3)].concat());
    world.count_calls();
    world.submit().ok();
    // Two shapes of chains, three links each.
    assert_eq!(world.calls(), 6);
    world.assert_each_ran_once(9);
    let seen = world.read("seen");
    for (name, cpus) in [("a", 2), ("b", 2), ("c", 3)] {
        let own: Vec<&str> = seen.lines().filter(|line| line.starts_with(name)).collect();
        let expected = [
            format!("{name} 0 main {cpus}"),
            format!("{name} 1 short 1"),
            format!("{name} 2 main 1"),
        ];
        assert_eq!(own, expected);
    }
}

#[test]
fn a_trial_leaves_two_files_and_its_job_none() {
    let world = World::new(Cluster::Plain, "files");
    let values: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", &format!("[grid]\nx = [{}]", values.join(", ")));
    world.submit().ok();
    world.assert_each_ran_once(50);
    let trials: Vec<u64> = (0..50).collect();
    let names = |kind: &str, ending: &str| {
        let mut names: Vec<String> =
            trials.iter().map(|t| format!("{kind}/000/{t}.1.{ending}")).collect();
        names.sort();
        names
    };
    assert_eq!(world.files("records"), names("records", "jsonl"));
    // A worker removes its job's empty output last, after it has recorded the end.
    world.until("no output of jobs is left", || {
        (world.files("logs") == names("logs", "log")).then_some(())
    });
    assert_eq!(world.files("work"), Vec::<String>::new());
    assert_eq!(world.files("meet"), Vec::<String>::new());
    assert_eq!(
        std::fs::read_dir(world.path("tmp")).unwrap().count(),
        0,
        "scratch folders are left"
    );
}
