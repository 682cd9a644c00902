//! Pilots and packed arrays on a real Slurm.

use std::collections::BTreeSet;

use crate::world::{BOTH, Cluster, World};

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
        // The trial that the cancelled pilot had begun ran again, and no other.
        assert_eq!(world.lines("ran").len(), 14, "{:?}", world.lines("ran"));
    }
}

/// Two pilots of two slots each, all busy. A trial that is asked to end takes a moment to write a
/// checkpoint. It ends at once when it resumes from the checkpoint. The others wait for the file `go`.
fn with_checkpoints(cluster: Cluster, name: &str) -> World {
    let world = World::new(cluster, name);
    let script = format!(
        "{SAYS}
        state=$HPCSWEEP_CHECKPOINT_DIR/state; mkdir -p $HPCSWEEP_CHECKPOINT_DIR
        if [ -e $state ]; then echo $HPCSWEEP_TRIAL $(cat $state) >>$HERE/resumed; exit 0; fi
        save() {{ trap '' TERM; sleep 0.5; echo $SLURMD_NODENAME >$state; exit 143; }}
        trap save TERM
        until [ -e $HERE/go ]; do sleep 0.05; done"
    );
    world.plan(&script, &trials(12, "[pull]\nworkers = 2\nslots = 2\n"));
    world.hpcsweep(&["submit", "plan.toml", "--slurm", "--pull"]).ok();
    world.until("both are at it", || (world.lines("ran").len() == 4).then_some(()));
    world
}

/// Waits until a pilot has left two trials with their checkpoints; which, and on which node.
fn left(world: &World) -> Vec<String> {
    world.until("one has given back what it ran", || {
        let status = world.status();
        let one = status.json["witness"].to_string().contains("1 agent at work");
        (one && status.counts()["queued"] == 10).then_some(())
    });
    let saved: Vec<String> = world.files("work").into_iter().collect();
    let saved = saved.iter().map(|file| {
        let trial = file.split('/').nth(2).unwrap();
        format!("{trial} {}", world.read(&format!("results/{}/{file}", world.name)).trim())
    });
    let saved: Vec<String> = saved.collect();
    assert_eq!(saved.len(), 2, "{saved:?}");
    assert!(saved.iter().all(|line| world.lines("ran").contains(line)), "{saved:?}");
    saved
}

/// All trials have ended. Twelve trials began once and the two that were `saved` once more, and no agent was
/// considered dead.
fn all_went_on(world: &World, saved: &[String]) {
    let status = world.finished();
    assert_eq!(status.states(), vec!["done"; 12], "{}", world.report());
    let mut resumed = world.lines("resumed");
    resumed.sort();
    assert_eq!(resumed, saved);
    let mut expected: Vec<u64> = (0..12).collect();
    expected
        .extend(saved.iter().map(|line| line.split_once(' ').unwrap().0.parse::<u64>().unwrap()));
    expected.sort_unstable();
    assert_eq!(ran(world).0, expected);
    let claims = world.files("claims");
    let read = |file: &String| world.read(&format!("results/{}/{file}", world.name));
    assert!(!claims.iter().any(|file| read(file).contains("\"event\":\"expire\"")));
}

#[test]
fn a_requeued_pilot_comes_again_and_goes_on_with_what_it_left() {
    for cluster in BOTH {
        let world = with_checkpoints(cluster, "requeued-pilot");
        let job = format!("{}_0", world.jobs()[0]);
        world.call("/usr/bin/scontrol", &["requeuehold", &job]);
        let saved = left(&world);
        world.until("in the queue again", || {
            let show = world.call("/usr/bin/scontrol", &["--oneliner", "show", "job", &job]);
            show.contains(" JobState=PENDING ").then_some(())
        });
        // Without the two minutes that Slurm makes it wait.
        world.call("/usr/bin/scontrol", &["update", &format!("jobid={job}"), "starttime=now+3"]);
        world.call("/usr/bin/scontrol", &["release", &job]);
        // The other pilot has no slot for them: nothing of it ends before there is a file.
        world.until("it goes on", || (world.lines("resumed").len() == 2).then_some(()));
        world.until("it is at two more", || (world.lines("ran").len() == 8).then_some(()));
        world.write("go", "");
        all_went_on(&world, &saved);
    }
}

#[test]
fn a_pilot_that_is_told_of_its_end_leaves_its_trials_to_the_other() {
    for cluster in BOTH {
        let world = with_checkpoints(cluster, "told-pilot");
        let job = format!("{}_0", world.jobs()[0]);
        // As `--signal=B:USR2@60` and preemption with a grace time do.
        world.call("/usr/bin/scancel", &["--batch", "--signal=USR2", &job]);
        let saved = left(&world);
        world.write("go", "");
        all_went_on(&world, &saved);
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
