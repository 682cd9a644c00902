//! Programs of several ranks that hpcsweep does not sync: they keep the launcher's environment and talk to
//! each other by themselves, over MPI or torch.distributed.

use std::process::Command;

use serde_json::json;

use crate::ranks::{PYTHON, plan};
use crate::support::world::{PROGRAM, ROOT, World};

/// Lays a trial of two ranks down, and runs it under mpirun as a person would; returns its sorted log.
fn under_mpirun(script: &str) -> (World, Vec<String>) {
    let world = World::new();
    let script = format!("{ROOT}/tests/python/{script}");
    // `submit --local` starts such ranks without mpirun: its attempt lays down the sweep, and fails.
    let shell = format!("[ -n \"$OMPI_COMM_WORLD_SIZE\" ] && exec {PYTHON} -B {script}");
    let ranks = plan(2, &["sh", "-c", &shell], "[metrics]\nsync = \"ranks\"\n");
    assert_eq!(world.local(&ranks, &[]).code, 1);
    let mut command: Command = world.command("mpirun");
    command.args(["-n", "2", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]);
    command.args(["--mca", "btl", "self,tcp", "--mca", "pml", "ob1"]);
    command.args([PROGRAM, "worker", "--sweep", "results/s", "--trial", "0"]);
    // Debian 13 builds PyTorch without the library that its rendezvous takes by default.
    command.env("USE_LIBUV", "0");
    // Open MPI 5 asks the kernel for a route between the two, which are one machine.
    command.env("OMPI_MCA_reachable", "weighted");
    let output = command.output().unwrap();
    let log = world.run(&["logs", "0"]);
    assert!(output.status.success(), "{}{}", world.shown(&output.stderr), log.whole());
    let mut lines: Vec<String> = log.ok().lines().map(str::to_owned).collect();
    lines.sort();
    (world, lines)
}

#[test]
fn a_program_with_mpi4py_is_one_of_two_ranks() {
    let (world, lines) = under_mpirun("mpi_program.py");
    assert_eq!(lines, ["[rank 0] rank 0 of 2, sum 3", "[rank 1] rank 1 of 2, sum 3"]);
    // Each rank's line is kept, and says whose it is.
    let steps = world.run(&["collect", "--steps", "--format", "jsonl", "results/s"]);
    let rows: Vec<serde_json::Value> =
        steps.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ranks: Vec<_> = rows.iter().map(|row| json!([row["rank"], row["loss"]])).collect();
    ranks.sort_by_key(|row| row[0].as_u64());
    assert_eq!(ranks, [json!([0, 0.5]), json!([1, 1.5])]);
}

#[test]
fn an_unchanged_script_of_torch_distributed_trains_on_two_ranks() {
    let (_, lines) = under_mpirun("ddp_program.py");
    let told = |rank: u32| format!("[rank {rank}] rank {rank} of 2: weights equal, as one rank's");
    assert_eq!(lines, [told(0), told(1)]);
}
