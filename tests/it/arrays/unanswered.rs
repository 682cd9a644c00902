//! A call that a killed submission has made is a job that may exist: it counts wherever jobs count.

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::World;

/// A Slurm whose first call of sbatch kills the submission before it arrives, and whose calls have arrived after a second.
fn killing() -> World {
    let world = slurm();
    let once = world.text_path("once");
    let kill =
        format!("#!/bin/sh\n[ -e '{once}' ] || {{ touch '{once}'; kill -9 $PPID; exit 1; }}\n");
    world.program("sbatch", &world.read("bin/sbatch").replacen("#!/bin/sh\n", &kill, 1));
    world.write("home/config/hpcsweep/site.toml", "version = 1\n[limits]\nsettle_s = 1\n");
    world
}

/// The calls of sbatch, without the paths of scripts.
fn calls(world: &World) -> Vec<String> {
    let all = world.read("calls");
    let own = all.lines().filter_map(|line| line.strip_prefix("sbatch "));
    own.map(|line| line.rsplit_once(' ').map_or("", |(options, _)| options).to_owned()).collect()
}

fn limited(trials: u32) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    let body = format!("[schedule]\nmax_running = 2\n[grid]\na = [{}]\n", numbers.join(", "));
    shell("true", &body)
}

#[test]
fn what_an_array_without_an_answer_may_run_counts_towards_max_running() {
    let world = killing();
    world.write("plan.toml", &limited(4));
    assert_eq!(world.run(&["submit", "plan.toml", "--slurm"]).code, 137);
    world.write("plan.toml", &limited(8));
    let ran = world.run(&["submit", "plan.toml", "--slurm"]);
    assert_eq!(
        ran.whole(),
        "\
array 1: an earlier call has no answer; looking for it
not there yet; it may still arrive: waiting 1 s
array 1: 4 trials as job 101
array 2: 4 trials as job 102, after 101
s: 8 trials submitted as 2 arrays (6 scheduler calls)
jobs: 101 102
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    assert_eq!(calls(&world), ["--parsable", "--parsable --dependency=afterany:101"]);
}
