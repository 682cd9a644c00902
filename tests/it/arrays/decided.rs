//! Arrays, agents and this machine decide by the same rules which trials run.

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::slurm_sweep::{answer, element};
use crate::support::world::World;

const LEFT: &str =
    "1 trial ended without success, and 1 behind it are left alone: `--retry` runs them again\n";

fn states(world: &World) -> String {
    world.column("state").join(" ").replace('"', "")
}

fn plan(trials: &str) -> String {
    shell("exit $HPCSWEEP_PARAM_X", &format!("[[trials]]\ntask_id = \"a\"\nx = 1\n{trials}"))
}

/// A sweep of one trial, which was an element of an array and failed, and whose plan has grown: behind it, and beside it.
fn grown() -> World {
    let world = slurm();
    world.write("plan.toml", &plan(""));
    world.run(&["submit", "plan.toml", "--slurm", "-q"]).ok();
    element(&world, 0);
    answer(&world, "squeue", "");
    world.write("plan.toml", &plan("[[trials]]\ntask_id = \"a\"\nx = 2\n[[trials]]\nx = 0\n"));
    world
}

#[test]
fn a_new_trial_behind_a_failure_is_left_alone_by_all() {
    let world = grown();
    let ran = world.run(&["submit", "plan.toml", "--slurm"]);
    assert!(ran.code == 0 && ran.err.contains(LEFT), "{}", ran.whole());
    assert!(ran.err.contains("s: 1 trial submitted as 1 array"), "{}", ran.err);

    let world = grown();
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert!(ran.code == 1 && ran.err.contains(LEFT), "{}", ran.whole());
    assert_eq!(states(&world), "failed skipped done");

    let world = grown();
    let ran = world.run(&["submit", "plan.toml", "--local", "--pull"]);
    assert!(ran.code == 1 && ran.err.contains(LEFT), "{}", ran.whole());
    assert_eq!(states(&world), "failed skipped done");

    // Who asks for them gets them.
    let world = grown();
    let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    assert!(ran.code == 0 && !ran.err.contains("left alone"), "{}", ran.whole());
    assert!(ran.err.contains("s: 3 trials submitted as"), "{}", ran.err);
}

#[test]
fn a_trial_whose_job_was_cancelled_is_left_alone_by_all() {
    let cancelled = || {
        let world = slurm();
        world.program("scancel", "#!/bin/sh\n");
        world.write("plan.toml", &shell("true", "[grid]\nx = [1, 2]\n"));
        world.run(&["submit", "plan.toml", "--slurm", "-q"]).ok();
        answer(&world, "squeue", "101_0|PENDING|Priority|x\n101_1|PENDING|Priority|x\n");
        world.run(&["cancel", "1", "-q"]).ok();
        answer(&world, "squeue", "");
        element(&world, 0);
        world
    };
    let left = "1 trial cancelled is left alone: `--retry` runs it again\n";
    for target in [&["--slurm"][..], &["--local"], &["--local", "--pull"]] {
        let world = cancelled();
        let ran = world.run(&[&["submit", "plan.toml"], target].concat());
        assert!(ran.code < 2 && ran.err.contains(left), "{target:?}: {}", ran.whole());
        assert_eq!(states(&world), "done cancelled", "{target:?}");
    }
    let world = cancelled();
    world.run(&["submit", "plan.toml", "--local", "--retry"]).ok();
    assert_eq!(states(&world), "done done");
}
