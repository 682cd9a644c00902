//! Plans with `[train]` through the whole tool, on this machine.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::world::{PROGRAM, ROOT, World, wait_until};
use crate::trial::WORKER;

/// A small network learns digits in some seconds, with a checkpoint after every step; `head` are lines of
/// `[run]`, `rest` is appended.
fn plan(ranks: u32, head: &str, rest: &str) -> String {
    format!(
        r#"version = 1
sweep = {{ name = "s", seed = 5 }}
[run]
{head}
[train]
epochs = 8
model = {{ kind = "mlp", hidden = [16], outputs = 10, dropout = 0.1, batch_norm = true }}
optimizer = {{ kind = "adam", lr = "{{{{ lr }}}}" }}
checkpoint = {{ every_steps = 1 }}
[train.data]
train = "{{{{ data }}}}"
scale = 0.0625
validation = {{ folds = 3, fold = "{{{{ fold }}}}" }}
[defaults]
lr = 0.01
data = "digits.npz"
fold = 0
[resources]
ranks = {ranks}
{rest}"#
    )
}

fn world() -> World {
    let world = World::new();
    let data = Path::new(ROOT).join("examples/data/digits.npz");
    fs::copy(data, world.path("digits.npz")).unwrap();
    world
}

const FOLDER: &str = "results/s/work/000/0";

fn weights(world: &World) -> Vec<u8> {
    fs::read(world.path(&format!("{FOLDER}/model.safetensors"))).unwrap()
}

/// The weights to which the plan comes when nothing disturbs it.
fn calm(ranks: u32) -> Vec<u8> {
    let world = world();
    world.local(&plan(ranks, "", ""), &[]).ok();
    weights(&world)
}

fn reason(world: &World) -> String {
    world.status()["trials"][0]["reason"].as_str().unwrap().to_owned()
}

fn state(world: &World) -> String {
    world.status()["trials"][0]["state"].as_str().unwrap().to_owned()
}

fn record(world: &World, run: u32) -> String {
    let name = format!("results/s/records/000/0.{run}.jsonl");
    if world.exists(&name) { world.read(&name) } else { String::new() }
}

/// Pids of the trainers of this world's sweep.
fn trainers(world: &World) -> Vec<Pid> {
    let ours = format!("HPCSWEEP_SWEEP_DIR={}\0", world.text_path("results/s"));
    let is_trainer = |entry: &fs::DirEntry| {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let line = read("cmdline");
        String::from_utf8_lossy(&line).contains("hpcsweep-worker\0train\0")
            && String::from_utf8_lossy(&read("environ")).contains(&ours)
    };
    let all = fs::read_dir("/proc").unwrap().flatten().filter(is_trainer);
    all.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok().map(Pid::from_raw))
        .collect()
}

/// Waits until ranks train, and returns them.
fn until_they_train(world: &World, ranks: usize) -> Vec<Pid> {
    wait_until("it trains", || {
        world.exists(&format!("{FOLDER}/checkpoint/last.safetensors"))
            && trainers(world).len() == ranks
    });
    trainers(world)
}

/// That the last run has gone on in the middle of the training.
fn assert_went_on(world: &World) {
    let log = world.run(&["logs", "0"]);
    let place =
        log.ok().split_once("going on after epoch ").and_then(|(_, rest)| rest.split(',').next());
    let epoch: u32 =
        place.unwrap_or_else(|| panic!("it did not go on: {}", log.whole())).parse().unwrap();
    assert!(epoch < 8, "{}", log.whole());
    // The record has the whole curve, including the epochs before.
    let ran = world.run(&["collect", "--steps", "--format", "jsonl"]);
    let epochs: Vec<u64> = ran
        .ok()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|row| row["epoch"].as_u64())
        .collect();
    assert_eq!(epochs, (1..=8).collect::<Vec<u64>>());
}

#[test]
fn a_smoke_test_takes_one_batch_and_leaves_nothing() {
    for ranks in [1, 2] {
        let world = world();
        let ran = world.local(&plan(ranks, "", ""), &["--smoke"]);
        ran.ok();
        assert!(ran.err.contains("trial 0: done in "), "{}", ran.whole());
        assert!(ran.err.contains("train_loss=") && ran.err.contains("epoch=1"), "{}", ran.whole());
        assert!(!world.exists("results") && world.files("tmp").is_empty());
    }
}

#[test]
fn folds_run_one_after_the_other_and_a_failure_stops_its_chain() {
    let world = world();
    let rest = "[schedule]\nchain_along = [\"fold\"]\n[[trials]]\n[[trials]]\nlr = 1e30\n[grid]\nfold = [0, 1, 2]\n";
    let text = plan(2, "", rest).replace("fold = 0\n", "").replace("\"adam\"", "\"sgd\"");
    let ran = world.local(&text, &[]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let table = world.table(&[]);
    let of = |name: &str| table.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("state"), ["done", "done", "done", "failed", "skipped", "skipped"]);
    assert_eq!(of("fold"), [0, 1, 2, 0, 1, 2]);
    // 1797 images in three folds.
    assert!(of("epochs")[..3].iter().all(|epochs| *epochs == json!(8)));
    let reason = world.status()["trials"][3]["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("the loss of rank ") && reason.contains("in epoch 1, step "),
        "{reason}"
    );
}

#[test]
fn a_file_that_is_not_there_is_named_once() {
    for ranks in [1, 2] {
        let world = world();
        let text = plan(ranks, "", "").replace("digits.npz", "nowhere/lost.npz");
        let ran = world.local(&text, &[]);
        assert_eq!(ran.code, 1, "{}", ran.whole());
        let reason = reason(&world);
        assert_eq!(reason.matches("nowhere/lost.npz").count(), 1, "{reason}");
        assert!(reason.contains("there is no file `"), "{reason}");
    }
}

/// Puts the program into a folder of its own, beside what `worker` makes of the path of a heavy worker.
fn installed(world: &World, worker: impl Fn(&Path)) -> String {
    fs::create_dir(world.path("bin2")).unwrap();
    fs::copy(PROGRAM, world.path("bin2/hpcsweep")).unwrap();
    worker(&world.path("bin2/hpcsweep-worker"));
    world.text_path("bin2/hpcsweep")
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_heavy_worker_that_cannot_be_used_is_told_in_a_sentence() {
    let other = format!("#!/bin/sh\nHPCSWEEP_VERSION=9.9.9 exec {WORKER} \"$@\"\n");
    let own = env!("CARGO_PKG_VERSION");
    type Make<'a> = &'a dyn Fn(&Path);
    let cases: [(Make<'_>, String); 3] = [
        (
            &|_| (),
            "this trial needs `hpcsweep-worker`, and `$WORLD/bin2/hpcsweep-worker` does not exist"
                .into(),
        ),
        (
            &|path| script(path, &other),
            format!("this is hpcsweep-worker {own}, but hpcsweep is 9.9.9"),
        ),
        (
            &|path| symlink("/nowhere", path).unwrap(),
            "`$WORLD/bin2/hpcsweep-worker` does not exist".into(),
        ),
    ];
    for (worker, sentence) in &cases {
        for ranks in [1, 2] {
            let world = world();
            let program = installed(&world, worker);
            world.write("plan.toml", &plan(ranks, "attempts = 2", ""));
            let ran = world.call(&program, &["submit", "plan.toml", "--local"]);
            assert_eq!(ran.code, 1, "{}", ran.whole());
            let reason = world.shown(reason(&world).as_bytes());
            assert!(reason.contains(sentence.as_str()), "{reason}");
            assert!(reason.contains("; hint: ") || reason.contains("hint: "), "{reason}");
        }
    }
}

/// A launcher that MPI does not understand: each rank is alone in a world of its own.
#[test]
fn ranks_that_mpi_sees_as_singletons_end_at_once() {
    let world = world();
    let launcher = "#!/bin/sh
        [ \"$1\" = -n ] || exit 99; n=$2; shift 2; r=0
        while [ $r -lt $n ]; do
          HPCSWEEP_RANK=$r HPCSWEEP_WORLD_SIZE=$n HPCSWEEP_LOCAL_RANK=$r HPCSWEEP_LOCAL_WORLD_SIZE=$n \\
          HPCSWEEP_NODE_RANK=0 HPCSWEEP_NNODES=1 \"$@\" & r=$((r+1))
        done; wait\n";
    world.program("mpirun", launcher);
    let ran = world.local(&plan(2, "", ""), &[]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let reason = reason(&world);
    let sentence = "the launcher started 2 ranks, but MPI sees one: rank ";
    assert!(reason.contains(sentence) && reason.contains("`srun --mpi=pmix`"), "{reason}");
}

#[test]
fn after_ctrl_c_the_next_submission_goes_on_as_if_nothing_had_been() {
    for ranks in [1, 2] {
        let world = world();
        world.write("plan.toml", &plan(ranks, "", ""));
        let started = world.start(&["submit", "plan.toml", "--local"]);
        until_they_train(&world, ranks as usize);
        started.signal(Signal::SIGINT);
        let ran = started.end(&world);
        assert_eq!(ran.code, 130, "{}", ran.whole());
        assert_eq!(state(&world), "interrupted", "{}", ran.whole());
        assert!(trainers(&world).is_empty());
        world.run(&["submit", "plan.toml", "--local"]).ok();
        assert_went_on(&world);
        assert!(weights(&world) == calm(ranks), "the weights differ");
        assert_eq!(world.table(&[])[0]["attempts"], 2);
    }
}

/// The executor is killed: the ranks save what they have and end.
#[test]
fn after_kill_9_the_next_submission_goes_on_as_if_nothing_had_been() {
    let world = world();
    world.write("plan.toml", &plan(2, "", ""));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    until_they_train(&world, 2);
    started.signal(Signal::SIGKILL);
    started.end(&world);
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    ran.ok();
    let first = record(&world, 1);
    assert!(first.contains("\"interrupted\"") && first.contains("\"exit_code\":143"), "{first}");
    assert_went_on(&world);
    assert!(weights(&world) == calm(2), "the weights differ");
}

/// A trial of an agent keeps its checkpoints for the agent that has it next.
#[test]
fn an_agent_that_trains_is_killed_and_another_goes_on_as_if_nothing_had_been() {
    let world = world();
    world.write("plan.toml", &plan(1, "", "[pull]\nlease = 1\n"));
    let pull = ["worker", "--pull", "plan.toml", "--slots", "1"];
    let started = world.start(&pull);
    until_they_train(&world, 1);
    started.signal(Signal::SIGKILL);
    started.end(&world);
    world.run(&pull).ok();
    assert_went_on(&world);
    assert!(weights(&world) == calm(1), "the weights differ");
}

/// The worker of a rank is killed: its trainer dies with it, the other ranks end, and nothing waits.
#[test]
fn a_killed_worker_ends_the_trial_and_the_next_run_goes_on() {
    let world = world();
    world.write("plan.toml", &plan(2, "", ""));
    let submit = ["submit", "plan.toml", "--local", "--retry"];
    for (run, rank) in [(1, 1), (2, 0)] {
        let started = world.start(&submit);
        wait_until("it trains", || {
            trainers(&world).len() == 2 && record(&world, run).contains("\"metrics\"")
        });
        let worker = trainers(&world).into_iter().find_map(|pid| {
            let of =
                |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let is_it = of("environ").contains(&format!("\0OMPI_COMM_WORLD_RANK={rank}\0"));
            let parent = of("stat").rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok();
            parent.filter(|_| is_it)
        });
        kill(Pid::from_raw(worker.unwrap()), Signal::SIGKILL).unwrap();
        let ran = started.end(&world);
        assert_ne!(ran.code, 0, "{}", ran.whole());
        let (state, reason) = (state(&world), reason(&world));
        match rank {
            1 => assert!(
                state == "failed"
                    && reason.starts_with("rank 1 on ")
                    && reason.ends_with(" vanished"),
                "{state}: {reason}"
            ),
            _ => assert_eq!(
                (state.as_str(), reason.as_str()),
                ("interrupted", "its worker was killed")
            ),
        }
        wait_until("its trainers are gone", || trainers(&world).is_empty());
    }
    world.run(&submit).ok();
    assert_went_on(&world);
    assert!(weights(&world) == calm(2), "the weights differ");
}

#[test]
fn a_killed_trainer_is_started_again_as_often_as_the_plan_says() {
    let world = world();
    world.write("plan.toml", &plan(2, "attempts = 2", ""));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    let first = until_they_train(&world, 2);
    kill(first[1], Signal::SIGKILL).unwrap();
    let ran = started.end(&world);
    ran.ok();
    assert_eq!(ran.err.matches("trial 0 ").count(), 1, "{}", ran.whole());
    // Of rank 1 it is the reason, of rank 0, which may have the higher number of process, the signal.
    let said = record(&world, 1);
    assert!(said.contains("signal 9") || said.contains("\"signal\":9"), "{said}");
    assert_went_on(&world);
    assert!(weights(&world) == calm(2), "the weights differ");
    assert_eq!(world.table(&[])[0]["attempts"], 2);

    // When none is left, it has failed; a retry has as many again.
    let world = self::world();
    let text = plan(2, "attempts = 3\nsetup = ['[ -e good ]']", "");
    for runs in [3, 6] {
        let ran = world.local(&text, &["--retry"]);
        assert_eq!(ran.code, 1, "{}", ran.whole());
        assert_eq!(world.status()["trials"][0]["attempts"], runs);
        assert_eq!(world.files("results/s/records").len(), runs);
    }
    world.write("good", "");
    world.local(&text, &["--retry"]).ok();
    assert!(weights(&world) == calm(2), "the weights differ");
}

/// As a disk without room for another checkpoint: the limit is on the size of files.
#[test]
fn a_checkpoint_that_cannot_be_written_is_told_and_the_one_before_stays_good() {
    let world = world();
    let full = world.text_path("full");
    let setup = format!("setup = ['[ ! -e {full} ] || {{ trap \"\" XFSZ; ulimit -f 4; }}']");
    world.write("plan.toml", &plan(1, &setup, ""));
    let submit = ["submit", "plan.toml", "--local", "--retry"];
    let started = world.start(&submit);
    until_they_train(&world, 1);
    started.signal(Signal::SIGINT);
    started.end(&world);
    let checkpoints = |world: &World| {
        let of = |name: &str| {
            fs::read(world.path(&format!("{FOLDER}/checkpoint/{name}.safetensors"))).ok()
        };
        (of("last"), of("previous"), world.files(&format!("{FOLDER}/checkpoint")))
    };
    let before = checkpoints(&world);
    world.write("full", "");
    let ran = world.run(&submit);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let reason = reason(&world);
    assert!(reason.contains("cannot write `") && reason.contains("/checkpoint/"), "{reason}");
    assert!(checkpoints(&world) == before, "{:?}", world.files(FOLDER));
    fs::remove_file(world.path("full")).unwrap();
    world.run(&submit).ok();
    assert_went_on(&world);
    assert!(weights(&world) == calm(1), "the weights differ");
}

#[test]
fn when_its_time_is_over_a_trial_saves_and_a_retry_goes_on() {
    let world = world();
    world.write("plan.toml", &plan(2, "", "walltime = \"15s\"\n"));
    let submit = ["submit", "plan.toml", "--local", "--retry"];
    let started = world.start(&submit);
    let stopped = until_they_train(&world, 2);
    // Nothing is done until the time is over, however fast this machine is.
    stopped.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).unwrap());
    wait_until("its time is over", || record(&world, 1).contains("\"event\":\"stop\""));
    stopped.iter().for_each(|pid| kill(*pid, Signal::SIGCONT).unwrap_or(()));
    let ran = started.end(&world);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(state(&world), "timeout", "{}", ran.whole());
    assert_eq!(reason(&world), "the wall-clock limit was reached");
    let since = Instant::now();
    while world.run(&submit).code != 0 {
        assert!(
            since.elapsed() < Duration::from_secs(300),
            "{}",
            world.run(&["logs", "0"]).whole()
        );
    }
    assert_went_on(&world);
    assert!(weights(&world) == calm(2), "the weights differ");
}

/// The trainer is not a program of the user's: the readers of the sweep may read what it saves.
#[test]
fn what_training_saves_is_for_the_readers_of_a_sweep() {
    let world = world();
    let plan = plan(1, "", "").replace("seed = 5 }", "seed = 5, readable_by = \"all\" }");
    world.write("plan.toml", &plan);
    let line = "umask 077; exec \"$0\" submit plan.toml --local";
    world.call("bash", &["-c", line, PROGRAM]).ok();
    let saved = world.files("results/s/work");
    assert!(saved.contains(&"000/0/model.safetensors".to_owned()), "{saved:?}");
    for file in world.files("results/s") {
        let mode = fs::metadata(world.path("results/s").join(&file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "{file}");
    }
}
