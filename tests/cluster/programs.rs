//! Programs of several ranks on two nodes: an MPI program and a script of torch.distributed, which hpcsweep
//! leaves alone, and programs whose workers carry their syncs over MPI (`srun --mpi=pmix`).

use serde_json::{Value, json};

use crate::world::{Cluster, World};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// One rank on each of two nodes.
const TWO: &str = "[resources]\nnodes = 2\nranks = 2\nmemory = \"200M\"\nwalltime = \"00:05:00\"\n";

/// Shell code that runs a program with the Python that Debian's packages are for.
fn python(program: &str) -> String {
    format!(
        "export PYTHONPATH={ROOT}/site/python:{ROOT}/target/tools/python OMP_NUM_THREADS=1\n\
         exec /usr/bin/python3 -B {program}"
    )
}

/// The sorted log of the one trial.
#[track_caller]
fn log_of_done(world: &World) -> Vec<String> {
    assert_eq!(world.finished().standings(), ["done"], "{}", world.report());
    world.lines(&format!("results/{}/logs/000/0.1.log", world.name))
}

/// The names and values of the metric lines.
fn lines(world: &World) -> Vec<Value> {
    let sweep = format!("results/{}", world.name);
    let ran = world.hpcsweep(&["collect", "--steps", "--format", "jsonl", &sweep]).ok();
    let rows = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let names = ["rank", "step", "loss", "samples"];
    let row = |row: Value| {
        let fields = names.iter().filter(|name| !row[**name].is_null());
        fields.map(|name| ((*name).to_owned(), row[*name].clone())).collect::<Value>()
    };
    let mut rows: Vec<Value> = rows.map(row).collect();
    rows.sort_by_key(Value::to_string);
    rows
}

#[test]
fn a_program_with_mpi4py_on_two_nodes_is_one_of_two_ranks() {
    let world = World::new(Cluster::Plain, "mpi4py");
    world.plan(&python(&format!("{ROOT}/tests/python/mpi_program.py")), TWO);
    world.submit().ok();
    let log = log_of_done(&world);
    assert_eq!(log, ["[rank 0] rank 0 of 2, sum 3", "[rank 1] rank 1 of 2, sum 3"]);
    assert_eq!(lines(&world), [json!({"rank": 0, "loss": 0.5}), json!({"rank": 1, "loss": 1.5})]);
}

#[test]
fn an_unchanged_script_of_torch_distributed_trains_on_two_nodes() {
    let world = World::new(Cluster::Accounting, "gloo");
    // Debian 13 builds PyTorch without the library that its rendezvous takes by default.
    world.set("USE_LIBUV", "0");
    world.plan(&python(&format!("{ROOT}/tests/python/ddp_program.py")), TWO);
    world.submit().ok();
    let told = |rank: u32| format!("[rank {rank}] rank {rank} of 2: weights equal, as one rank's");
    assert_eq!(log_of_done(&world), [told(0), told(1)]);
}

/// Two ranks on each of two nodes, which sync over MPI.
const FOUR: &str = "[metrics]\nsync = \"mpi\"\nreduce = { samples = \"sum\" }\n\
    [resources]\nnodes = 2\nranks = 4\nranks_per_node = 2\nmemory = \"200M\"\nwalltime = \"00:05:00\"\n";

#[test]
fn four_ranks_on_two_nodes_sync_and_their_lines_become_one_while_they_run() {
    let world = World::new(Cluster::Plain, "synced");
    let code = r#"
import json, os, sys, time
import hpcsweep
rank = hpcsweep.rank()
def log(**row):
    with open(os.environ["HPCSWEEP_METRICS"], "a") as f:
        f.write(json.dumps(row) + "\n")
print(hpcsweep.mp_sync([rank] * (rank % 2 + 1), return_tensor=False))
try:
    hpcsweep.mp_sync("words" if rank == 2 else 1.0, return_tensor=False)
except hpcsweep.SyncError as e:
    print(e.sentence)
print(hpcsweep.reduce({"a": float(rank)}, weight=rank))
log(step=1, loss=float(rank), samples=rank)
while not os.path.exists("go"):
    time.sleep(0.01)
log(step=2, loss=2.0, samples=1)
"#;
    world.write("program.py", code);
    world.plan(&python("-S program.py"), FOUR);
    world.submit().ok();
    let first = json!({"step": 1, "loss": 1.5, "samples": 6});
    world.until("the first line in the record", || (!lines(&world).is_empty()).then_some(()));
    assert_eq!(lines(&world), std::slice::from_ref(&first));
    assert_eq!(world.status().states(), ["running"]);
    world.write("go", "");
    let mut expected: Vec<String> = (0..4)
        .flat_map(|rank| {
            let said =
                ["[0, 1, 1, 2, 3, 3]", "rank 2: cannot sync a `str`", "{'a': 2.3333333333333335}"];
            said.map(|line| format!("[rank {rank}] {line}"))
        })
        .collect();
    expected.sort();
    assert_eq!(log_of_done(&world), expected);
    assert_eq!(lines(&world), [first, json!({"step": 2, "loss": 2.0, "samples": 4})]);
}

#[test]
fn a_rank_that_is_killed_while_the_others_wait_in_a_sync_ends_the_trial() {
    let world = World::new(Cluster::Accounting, "killed");
    let code = r#"
import os, time
import hpcsweep
hpcsweep.mp_sync(1, return_tensor=False)
if hpcsweep.rank() == 2:
    os.kill(os.getpid(), 9)
hpcsweep.mp_sync(2, return_tensor=False)
"#;
    world.write("program.py", code);
    world.plan(&python("-S program.py"), FOUR);
    world.submit().ok();
    let said = &world.finished().standings()[0];
    assert!(said.starts_with("failed: ") && said.contains("rank 2 on n"), "{said}");
    assert!(said.ends_with(": signal 9 (SIGKILL)"), "{said}");
}
