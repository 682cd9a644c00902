//! A login node with several clusters: a sweep's jobs are asked for where they are, whatever the shell names later.

use serde_json::json;

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::World;

/// Two clusters behind one login node. Jobs are on the one whose name is `at`; the other one knows none.
fn clusters(at: &str) -> World {
    let world = slurm();
    world.program("real-sbatch", &world.read("bin/sbatch"));
    let sbatch =
        "out=$(real-sbatch \"$@\") || exit; echo \"$out${SLURM_CLUSTERS:+;$SLURM_CLUSTERS}\"";
    let is_here = format!("[ \"$SLURM_CLUSTERS\" = '{at}' ]");
    let squeue = format!(
        "{is_here} || exit 0; [ -z '{at}' ] || echo 'CLUSTER: {at}'\n\
         printf '100_0|RUNNING|None|x\\n100_1|PENDING|Priority|x\\n'"
    );
    let scancel = format!(
        "{is_here} || {{ echo 'scancel: error: Kill job error on job id 100: Invalid job id specified' >&2; exit 1; }}"
    );
    for (program, code) in [("sbatch", sbatch), ("squeue", &squeue), ("scancel", &scancel)] {
        world.program(program, &format!("#!/bin/sh\n{code}\n"));
    }
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2]\n"));
    world
}

/// What holds for a sweep that was submitted, from shells that name any cluster or none.
fn is_known_from_any_shell(mut world: World) {
    for name in ["", "alpha", "beta"] {
        world.set("SLURM_CLUSTERS", name);
        assert_eq!(world.status()["counts"], json!({"running": 1, "queued": 1}), "{name}");
        let again = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
        assert!(again.err.starts_with("s: nothing new to submit"), "{name}: {}", again.whole());
    }
    world.set("SLURM_CLUSTERS", "alpha");
    let cancelled = world.run(&["cancel"]).whole();
    assert_eq!(cancelled, "s: cancelled 2 trials: 100\nexit code 0\n");
}

#[test]
fn jobs_on_another_cluster_are_asked_for_there_from_any_shell() {
    let mut world = clusters("beta");
    world.set("SLURM_CLUSTERS", "beta");
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    is_known_from_any_shell(world);
}

#[test]
fn jobs_on_the_default_cluster_are_asked_for_there_from_any_shell() {
    let world = clusters("");
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    is_known_from_any_shell(world);
}
