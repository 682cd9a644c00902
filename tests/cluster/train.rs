//! Training trials on nodes: the same numbers as on one machine, and nothing lost to signals and kills.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{Cluster, World};

/// The outcome of a trial: its row of the table without the columns that depend on clocks and places,
/// and its weights.
#[derive(Debug, PartialEq)]
struct Learnt {
    table: Vec<String>,
    weights: blake3::Hash,
}

/// Columns that must not depend on where a trial ran or how often it was disturbed.
const NUMBERS: [&str; 14] = [
    "state",
    "epoch",
    "step",
    "train_loss",
    "train_accuracy",
    "val_loss",
    "val_accuracy",
    "epochs",
    "best_epoch",
    "best_val_loss",
    "test_loss",
    "test_accuracy",
    "parameters",
    "stage",
];

/// Two ranks on two nodes learn digits, for some seconds, with a checkpoint after every step. `run` are
/// lines of `[run]`, `train` of `[train]`.
fn write_plan(world: &World, run: &str, train: &str, resources: &str) {
    fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.npz"),
        world.path("digits.npz"),
    )
    .unwrap();
    let resources = match resources {
        "" => "nodes = 2\nranks = 2\nmemory = \"400M\"\nwalltime = \"00:10:00\"",
        other => other,
    };
    world.write(
        "plan.toml",
        &format!(
            r#"version = 1
sweep = {{ name = "{}", root = "results", seed = 5 }}

[run]
{run}

[train]
epochs = 12
model = {{ kind = "mlp", hidden = [16], outputs = 10, dropout = 0.1, batch_norm = true }}
optimizer = {{ kind = "adam", lr = "{{{{ lr }}}}" }}
schedule = {{ kind = "cosine", warmup = 1.0 }}
checkpoint = {{ every_steps = 1 }}
{train}

[train.data]
train = "digits.npz"
scale = 0.0625
validation = {{ folds = 3, fold = "{{{{ fold }}}}" }}

[resources]
{resources}

[grid]
lr = [0.01]
fold = [1]
"#,
            world.name
        ),
    );
}

fn trainer(cluster: Cluster, name: &str) -> World {
    let world = World::new(cluster, name);
    write_plan(&world, "", "", "");
    world
}

fn learnt(world: &World) -> Learnt {
    let weights = world.sweep().join("work/000/0/model.safetensors");
    Learnt {
        table: world.table(&NUMBERS),
        weights: blake3::hash(&fs::read(weights).unwrap_or_default()),
    }
}

/// The outcome of the plan on one machine, undisturbed.
static CALM: LazyLock<Learnt> = LazyLock::new(|| {
    let world = trainer(Cluster::Plain, "calm");
    world.hpcsweep(&["submit", "plan.toml", "--local"]).ok();
    let learnt = learnt(&world);
    assert!(learnt.table[0].starts_with("done 12 "), "{:?}", learnt.table);
    learnt
});

/// Pids of the processes of a sweep on all nodes whose arguments begin so, by rank.
fn pids(world: &World, program: &str, verb: &str) -> BTreeMap<u32, i32> {
    let sweep = world.sweep().display().to_string();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.split('\0').collect();
        let is_it = words.first().is_some_and(|word| word.ends_with(&format!("/{program}")))
            && words.get(1) == Some(&verb);
        let Ok(vars) = fs::read(entry.path().join("environ")) else { continue };
        let vars = String::from_utf8_lossy(&vars).into_owned();
        let value = |name: &str| {
            vars.split('\0')
                .find_map(|v| v.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
        };
        let ours = words.contains(&sweep.as_str())
            || value("HPCSWEEP_SWEEP_DIR").is_some_and(|dir| dir == sweep);
        if let (true, true, Some(rank)) = (is_it, ours, value("SLURM_PROCID")) {
            found.insert(rank.parse().unwrap(), pid);
        }
    }
    found
}

fn checkpoint(world: &World) -> PathBuf {
    world.sweep().join("work/000/0/checkpoint/last.safetensors")
}

/// Removes the last checkpoint, so that the next one certainly belongs to the next run, which resumes from the one
/// before. (A kill may have come when neither had that name.)
fn forget_checkpoint(world: &World) {
    let _ = fs::remove_file(checkpoint(world));
}

/// Waits until the trial has learnt something, and all of its ranks are there. A run that resumes from the checkpoint before
/// the last one needs two of them.
fn until_it_trains(world: &World) -> BTreeMap<u32, i32> {
    world.until("training", || {
        let pids = pids(world, "hpcsweep-worker", "train");
        let last = checkpoint(world);
        let are_there = last.exists() && last.with_file_name("previous.safetensors").exists();
        (are_there && pids.len() == 2).then_some(pids)
    })
}

/// The text of the log of a run.
fn log(world: &World, run: u32) -> String {
    world.read(&format!("results/{}/logs/000/0.{run}.log", world.name))
}

/// That a run has gone on in the middle of the training.
fn assert_went_on(world: &World, run: u32) {
    let log = log(world, run);
    let place = log.lines().find_map(|line| line.split_once("going on after epoch "));
    let epoch: u32 = place
        .and_then(|(_, rest)| rest.split(',').next())
        .and_then(|epoch| epoch.parse().ok())
        .unwrap_or_else(|| panic!("it did not go on: {log}"));
    assert!(epoch < 12, "{log}");
}

fn assert_calm(world: &World) {
    assert_eq!(learnt(world), *CALM, "{}", world.report());
}

#[test]
fn two_nodes_give_the_numbers_of_one_machine() {
    let world = World::new(Cluster::Accounting, "places");
    let setup = format!("setup = ['echo $SLURMD_NODENAME >>{}']", world.path("nodes").display());
    write_plan(&world, &setup, "", "");
    world.submit().ok();
    assert_eq!(world.finished().states(), ["done"], "{}", world.report());
    let nodes = world.lines("nodes");
    assert!(nodes.len() == 2 && nodes[0] != nodes[1], "{nodes:?}");
    assert_calm(&world);
    assert_eq!(world.files("meet"), Vec::<String>::new());
}

#[test]
fn a_trial_told_to_end_goes_on_as_if_nothing_had_been() {
    let world = trainer(Cluster::Accounting, "told");
    world.submit().ok();
    until_it_trains(&world);
    world.call("/usr/bin/scancel", &["--signal=USR2", &format!("{}_0", world.jobs()[0])]);
    let status = world.finished();
    let said = &status.standings()[0];
    assert!(said.starts_with("interrupted: ") && said.contains("SIGUSR2"), "{said}");
    assert_eq!(pids(&world, "hpcsweep-worker", "train"), BTreeMap::new());
    world.retry();
    assert_eq!(world.finished().states(), ["done"], "{}", world.report());
    assert_went_on(&world, 2);
    assert_calm(&world);
}

#[test]
fn a_requeued_trial_goes_on_as_if_nothing_had_been() {
    let world = trainer(Cluster::Plain, "preempted");
    world.submit().ok();
    until_it_trains(&world);
    crate::kills::requeue(&world, &format!("{}_0", world.jobs()[0]));
    let status = world.until("done", || {
        let status = world.status();
        (status.states() == ["done"]).then_some(status)
    });
    assert_eq!(status.trials()[0]["attempts"], 2, "{}", world.report());
    assert!(world.read("results/preempted/records/000/0.1.jsonl").contains("\"interrupted\""));
    assert_went_on(&world, 2);
    assert_calm(&world);
}

/// A trainer killed, as by a node short of memory: first that of rank 1, then that of rank 0.
#[test]
fn a_killed_trainer_ends_all_ranks_and_the_next_run_goes_on() {
    let world = trainer(Cluster::Plain, "shot");
    world.submit().ok();
    for rank in [1, 0] {
        let pids = until_it_trains(&world);
        kill(Pid::from_raw(pids[&rank]), Signal::SIGKILL).unwrap();
        let since = Instant::now();
        let status = world.finished();
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
        let said = &status.standings()[0];
        let expected = match rank {
            1 => "rank 1 on n",
            _ => "signal 9 (SIGKILL): rank 0 failed",
        };
        assert!(said.starts_with("failed: ") && said.contains(expected), "{said}");
        assert!(said.contains("signal 9"), "{said}");
        assert_eq!(self::pids(&world, "hpcsweep-worker", "train"), BTreeMap::new());
        forget_checkpoint(&world);
        world.retry();
    }
    assert_eq!(world.finished().states(), ["done"], "{}", world.report());
    assert_went_on(&world, 3);
    assert_calm(&world);
}

/// The worker that supervises a rank is killed: its trainer must die with it, and the others end.
#[test]
fn a_killed_worker_ends_all_ranks_and_the_next_run_goes_on() {
    let world = trainer(Cluster::Accounting, "orphans");
    world.submit().ok();
    for rank in [1, 0] {
        until_it_trains(&world);
        let workers = pids(&world, "hpcsweep", "worker");
        kill(Pid::from_raw(workers[&rank]), Signal::SIGKILL).unwrap();
        let status = world.finished();
        let said = &status.standings()[0];
        let expected = match rank {
            // Slurm may have killed all ranks before anybody could say which one was the first.
            1 => {
                let is_named = said.contains("rank 1 on n") && said.contains(" vanished");
                said.starts_with("failed: ")
                    && (is_named || said.contains("all ranks were killed: one had vanished"))
            }
            // No process was left to record the end.
            _ => said.starts_with("lost") || said.starts_with("failed"),
        };
        assert!(expected, "{said}");
        world.until("no trainer", || {
            pids(&world, "hpcsweep-worker", "train").is_empty().then_some(())
        });
        forget_checkpoint(&world);
        world.retry();
    }
    assert_eq!(world.finished().states(), ["done"], "{}", world.report());
    assert_went_on(&world, 3);
    assert_calm(&world);
}

/// MPI cannot begin anew in ranks that have lost one: the job launches them once more.
#[test]
fn another_attempt_goes_on_in_the_same_job() {
    let world = World::new(Cluster::Accounting, "tries");
    write_plan(&world, "attempts = 3", "", "");
    world.submit().ok();
    let pids = until_it_trains(&world);
    kill(Pid::from_raw(pids[&1]), Signal::SIGKILL).unwrap();
    let status = world.finished();
    assert_eq!(status.states(), ["done"], "{}", world.report());
    assert_eq!(status.trials()[0]["attempts"], 2);
    assert_eq!(world.jobs().len(), 1);
    assert_went_on(&world, 2);
    assert_calm(&world);
    assert_eq!(world.files("meet"), Vec::<String>::new());
}

#[test]
fn a_launcher_without_pmix_is_explained() {
    let world = trainer(Cluster::Plain, "alone");
    world.site("[scheduler]\nlauncher = [\"srun\", \"--mpi=none\", \"--kill-on-bad-exit=1\"]\n");
    world.submit().ok();
    let status = world.finished();
    let said = &status.standings()[0];
    assert!(said.contains("srun --mpi=pmix") && said.contains("rank "), "{said}");
    // MPI that finds no PMI ends in MPI_Init (Open MPI 4), or takes each rank for a world of its own (5).
    let seen = ["MPI did not start", "MPI sees one"];
    assert!(seen.iter().any(|words| said.contains(words)), "{said}");
}

/// The test cluster's GPUs are none.
#[test]
fn a_gpu_that_cannot_be_used_is_explained() {
    let world = World::new(Cluster::Plain, "blind");
    let resources = "gpus_per_rank = 1\nmemory = \"400M\"\nwalltime = \"00:10:00\"";
    write_plan(&world, "", "", resources);
    world.submit().ok();
    let status = world.finished();
    let said = &status.standings()[0];
    assert!(
        said.contains("rank 0 on `n") && said.contains("` is to use a GPU, but libtorch"),
        "{said}"
    );
}
