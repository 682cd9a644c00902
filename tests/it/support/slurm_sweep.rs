//! A sweep that such a Slurm has.

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::World;

/// Its six trials, whose numbers are their exit codes.
pub(crate) const TRIALS: &str = "[grid]\na = [0, 1, 2, 3, 4, 5]\n";

/// A sweep of six trials that Slurm has as job 101.
pub(crate) fn submitted() -> World {
    let world = slurm();
    world.write("plan.toml", &shell("exit $HPCSWEEP_PARAM_A", TRIALS));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    world
}

/// Answers of a command, and a note that it was called.
pub(crate) fn answer(world: &World, program: &str, text: &str) {
    let log = world.text_path("calls");
    world.program(
        program,
        &format!("#!/bin/sh\nprintf '%s\\n' \"${{0##*/}} $*\" >>'{log}'\ncat <<'END'\n{text}END\n"),
    );
    world.write("calls", "");
}

/// Runs the trial of an element the way its job does.
pub(crate) fn element(world: &World, index: u32) {
    let mut command = world.command("bash");
    command.arg(world.path("results/s/jobs/0001.sh")).env("SLURM_ARRAY_TASK_ID", index.to_string());
    command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
    command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
    command.output().unwrap();
}
