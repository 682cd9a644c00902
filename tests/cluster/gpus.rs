//! GPUs that Slurm hands out: asked for by number, used as granted.

use crate::world::{Cluster, World};

const SEEN: &str = "
echo $HPCSWEEP_TRIAL >>$HERE/ran
echo $HPCSWEEP_TRIAL visible=$CUDA_VISIBLE_DEVICES granted=$SLURM_JOB_GPUS >>$HERE/seen
scontrol -o show job $SLURM_JOB_ID | tr ' ' '\\n' | grep ^TresPerNode= | tr / : >>$HERE/asked";

/// The devices of a `seen` line.
fn devices(world: &World, trial: u64, kind: &str) -> Vec<String> {
    let seen = world.lines("seen");
    let line = seen.iter().find(|l| l.starts_with(&format!("{trial} "))).unwrap();
    let text = line.split(' ').find_map(|word| word.strip_prefix(kind)).unwrap();
    text.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

#[test]
fn gpus_per_rank_are_asked_for_and_seen() {
    let world = World::new(Cluster::Plain, "gpus");
    world.plan(SEEN, "[resources]\ngpus_per_rank = 2\nmemory = \"50M\"\nwalltime = \"00:05:00\"\n");
    world.submit().ok();
    world.assert_each_ran_once(1);
    assert_eq!(world.lines("asked"), ["TresPerNode=gres:gpu:2"]);
    assert_eq!(devices(&world, 0, "visible=").len(), 2);
    assert_eq!(devices(&world, 0, "visible="), devices(&world, 0, "granted="));
}

/// Trials of one node, at the same time: their devices differ whatever the plan calls them.
#[test]
fn by_count_the_granted_devices_are_used() {
    let world = World::new(Cluster::Plain, "counted");
    let script = format!("{SEEN}\nsleep 3");
    world.plan(
        &script,
        "[schedule]\ngpu_ids = \"count\"\n[resources]\nmemory = \"50M\"\nwalltime = \"00:05:00\"\ndirectives = [\"--nodelist=n3\"]\n\
         [[trials]]\ntask_id = 1\ngpu_ids_abs = [0, 1]\n[[trials]]\ntask_id = 2\ngpu_ids_abs = [0]\n[[trials]]\ntask_id = 3\ngpu_ids_abs = []\n",
    );
    world.submit().ok();
    world.assert_each_ran_once(3);
    let all: Vec<Vec<String>> = (0..3).map(|t| devices(&world, t, "visible=")).collect();
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 0]);
    assert!(!all[0].contains(&all[1][0]), "{all:?}");
}

/// The devices a plan names are not those that Slurm grants: the error has the trial's number, and the trial
/// does not run.
#[test]
fn named_devices_that_were_not_granted_are_refused_with_the_trials_number() {
    let world = World::new(Cluster::Plain, "named");
    world.plan(
        SEEN,
        "[resources]\nmemory = \"50M\"\nwalltime = \"00:05:00\"\n[[trials]]\ngpu_ids_abs = [9]\n[[trials]]\ngpu_ids_abs = [0, 1, 2, 3]\n",
    );
    world.submit().ok();
    let status = world.finished();
    let said = &status.standings()[0];
    assert!(
        said.contains("trial 0 names device 9 in `gpu_ids_abs`, which was not granted here"),
        "{said}"
    );
    assert_eq!(status.states(), ["failed", "done"]);
    assert_eq!(world.lines("ran"), ["1"]);
    assert_eq!(devices(&world, 1, "visible="), ["0", "1", "2", "3"]);
}
