//! Pilots and packed arrays on a real Slurm.

use std::collections::BTreeSet;

use crate::world::{BOTH, World};

/// `n` trials, and further tables.
fn trials(n: u32, rest: &str) -> String {
    let numbers: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!(
        "[resources]\nmemory = \"50M\"\nwalltime = \"00:10:00\"\n[grid]\nx = [{}]\n{rest}",
        numbers.join(", ")
    )
}

/// A trial writes its number and its agent's node.
const SAYS: &str = "echo $HPCSWEEP_TRIAL $SLURMD_NODENAME >>$HERE/ran";

/// How often each trial ran, and on which nodes.
fn ran(world: &World) -> (Vec<u64>, BTreeSet<String>) {
    let lines = world.lines("ran");
    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
    let mut trials: Vec<u64> = pairs.clone().map(|(trial, _)| trial.parse().unwrap()).collect();
    trials.sort_unstable();
    (trials, pairs.map(|(_, node)| node.to_owned()).collect())
}

#[test]
fn two_pilots_on_two_nodes_share_forty_trials() {
    for cluster in BOTH {
        let world = World::new(cluster, "pilots");
        // Nothing ends before both nodes have begun something.
        let both = "mkdir -p $HERE/nodes/$SLURMD_NODENAME
            until [ $(ls $HERE/nodes | wc -l) -ge 2 ]; do sleep 0.05; done";
        let rest = "[schedule]\nmode = \"pull\"\n[pull]\nworkers = 2\nslots = 8\n";
        world.plan(&format!("{both}\n{SAYS}"), &trials(40, rest));
        world.count_calls();
        let said = world.submit().ok().stderr;
        assert!(said.contains("pilots: 2 pilots of 8 slots submitted"), "{said}");
        assert_eq!((world.calls(), world.jobs().len()), (1, 1));
        let again = world.submit().ok().stderr;
        assert!(!again.contains("submitted"), "{again}");
        let status = world.until("all done", || {
            let status = world.status();
            status.is_final().then_some(status)
        });
        assert_eq!(status.states(), vec!["done"; 40], "{}", world.report());
        let (trials, nodes) = ran(&world);
        assert_eq!(trials, (0..40).collect::<Vec<_>>());
        assert_eq!(nodes.len(), 2, "{nodes:?}");
        assert_eq!(world.calls(), 1);
    }
}

#[test]
fn the_trials_of_a_pilot_that_was_cancelled_end_elsewhere() {
    for cluster in BOTH {
        let world = World::new(cluster, "cancelled-pilot");
        let waits = "until [ -e $HERE/go ]; do sleep 0.05; done";
        world.plan(&format!("{SAYS}\n{waits}"), &trials(12, "[pull]\nworkers = 2\nslots = 2\n"));
        world.hpcsweep(&["submit", "plan.toml", "--slurm", "--pull"]).ok();
        world.until("both are at it", || (world.lines("ran").len() == 4).then_some(()));
        world.call("scancel", &[&format!("{}_0", world.jobs()[0])]);
        world.until("one is left", || {
            let agents = world.status().json["witness"].to_string();
            agents.contains("1 agent at work").then_some(())
        });
        world.write("go", "");
        let status = world.until("all done", || {
            let status = world.status();
            status.is_final().then_some(status)
        });
        assert_eq!(status.states(), vec!["done"; 12], "{}", world.report());
        // What the cancelled one had begun began again, and nothing else.
        assert_eq!(world.lines("ran").len(), 14, "{:?}", world.lines("ran"));
    }
}

#[test]
fn a_packed_array_runs_five_trials_in_each_of_four_elements() {
    for cluster in BOTH {
        let world = World::new(cluster, "packed");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_TRIAL != 6 ] || exit 3";
        world.plan(script, &trials(20, "[schedule]\npack = 5\n"));
        world.count_calls();
        world.submit().ok();
        assert_eq!((world.calls(), world.jobs().len()), (1, 1));
        let status = world.finished();
        let mut expected = vec!["done".to_owned(); 20];
        expected[6] = "failed: exit code 3".into();
        assert_eq!(status.standings(), expected, "{}", world.report());
        assert_eq!(world.lines("ran").len(), 20);
    }
}
