//! The plan's current request reaches trials that the sweep already has, on Slurm.

use crate::world::{BOTH, Cluster, World};

/// Slurm itself ends nothing here: its walltimes are whole minutes. It is the worker that keeps the time.
#[test]
fn a_raised_walltime_is_the_workers_own() {
    let world = World::new(Cluster::Plain, "raised");
    let plan = |first: &str, others: &str| {
        let rest = format!(
            "[resources]\nmemory = \"50M\"\nwalltime = \"{others}\"\n[defaults]\ntask_id = 1\n\
             [[trials]]\nresources.walltime = \"{first}\"\n[[trials]]\n"
        );
        world.plan("[ $HPCSWEEP_LINK = 0 ] || sleep 5", &rest);
    };
    plan("00:05:00", "00:00:04");
    world.submit().ok();
    assert_eq!(world.finished().states(), ["done", "timeout"], "{}", world.report());
    plan("00:05:00", "00:10:00");
    world.retry();
    assert_eq!(world.finished().states(), ["done", "done"], "{}", world.report());
    assert_eq!(world.table(&["trial", "attempts"]), ["0 1", "1 2"]);
}

#[test]
fn a_link_that_was_refused_and_mended_waits_for_the_head_that_was_not() {
    for cluster in BOTH {
        let world = World::new(cluster, "mended");
        let script = "
            [ $HPCSWEEP_LINK != 0 ] || until [ -e $HERE/go ]; do sleep 0.2; done
            echo $HPCSWEEP_TRIAL >>$HERE/ran; echo $HPCSWEEP_TASK_ID $HPCSWEEP_LINK >>$HERE/ended";
        let plan = |second: &str| {
            let chain = |name: &str| {
                let trial = |rest: String| format!("[[trials]]\ntask_id = \"{name}\"\n{rest}\n");
                let second = format!("x = 1\nresources.directives = [\"--comment={second}\"]");
                [trial("x = 0".to_owned()), trial(second), trial("x = 2".to_owned())].concat()
            };
            world.plan(script, &[chain("a"), chain("b")].concat());
        };
        world.fake(
            "sbatch",
            "for script in \"$@\"; do :; done
            if grep -q comment=wrong \"$script\"; then
                echo 'sbatch: error: Batch job submission failed: Invalid wckey specification' >&2
                exit 1
            fi
            echo call >>$HERE/calls; exec $REAL \"$@\"",
        );
        plan("wrong");
        let ran = world.submit();
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains("\nerror: array 2 was not submitted: "), "{ran:?}");
        assert_eq!(world.calls(), 1);
        plan("right");
        world.submit().ok();
        assert_eq!(world.calls(), 3);
        let wave = world.read("results/mended/waves/0002.json");
        let wave: serde_json::Value = serde_json::from_str(&wave).unwrap();
        let arrays: Vec<String> = wave["arrays"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| format!("{} after {} wait {}", a["array"], a["after"], a["wait"]))
            .collect();
        assert_eq!(arrays, ["4 after null wait [1]", "5 after 4 wait []"]);
        let states = world.status().states();
        assert_eq!([1, 2, 4, 5].map(|trial: usize| states[trial].as_str()), ["queued"; 4]);
        world.write("go", "");
        world.assert_each_ran_once(6);
        let ended = world.read("ended");
        for chain in ["a ", "b "] {
            let own: Vec<&str> = ended.lines().filter_map(|l| l.strip_prefix(chain)).collect();
            assert_eq!(own, ["0", "1", "2"], "{ended}");
        }
        let ran = world.submit().ok();
        assert!(ran.stderr.contains("mended: nothing new to submit "), "{}", ran.stderr);
    }
}
