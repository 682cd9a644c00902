//! The training loop as a PyTorch script (`hpcsweep init --template train-pytorch`) learns what `[train]` does.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::trial::{Trial, digits};

const SCRIPT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/templates/project/train-pytorch/train.py");
const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.npz");

/// The Python that Debian's PyTorch is for.
const PYTHON: &str = "/usr/bin/python3";

/// How long ranks may take. Far more than they do: reaching it means that one waits for another that is gone.
const PATIENCE: Duration = Duration::from_secs(240);

/// A port of this host at which no process listens.
fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A rank of the script, in a folder of the trial; `port` is where several meet.
fn rank(folder: &Path, rank: u32, (world, port): (u32, u16), optimizer: &str, rate: &str) -> Child {
    let mut command = Command::new(PYTHON);
    command
        .args([SCRIPT, "--data", DIGITS, "--optimizer", optimizer, "--lr", rate])
        .env("HPCSWEEP_METRICS", folder.join("metrics.jsonl"))
        .env("HPCSWEEP_RESULT", folder.join("result.json"))
        .env("HPCSWEEP_WORK_DIR", folder)
        .env("HPCSWEEP_CHECKPOINT_DIR", folder.join("checkpoints"))
        .env("OMP_NUM_THREADS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if world > 1 {
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    }
    command.spawn().expect("PyTorch: run `scripts/setup --for test`")
}

/// What all ranks together leave.
fn script(folder: &Path, world: u32, optimizer: &str, rate: &str) -> Vec<Value> {
    let meet = (world, free_port());
    let start = |number| rank(folder, number, meet, optimizer, rate);
    let mut ranks: Vec<Child> = (0..world).map(start).collect();
    let since = Instant::now();
    // All are looked at: when one is gone the others may wait for it.
    while !ranks.is_empty() {
        let ended: Vec<_> = ranks.iter_mut().map(|rank| rank.try_wait().unwrap()).collect();
        let has_failed = ended.iter().flatten().any(|status| !status.success());
        if has_failed || since.elapsed() > PATIENCE {
            for rank in &mut ranks {
                rank.kill().unwrap();
                rank.wait().unwrap();
            }
            panic!("ranks of the script, of which one failed or all wait: {ended:?}");
        }
        let mut ended = ended.iter();
        ranks.retain(|_| ended.next().is_some_and(Option::is_none));
        std::thread::sleep(Duration::from_millis(20));
    }
    lines(folder)
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The part that does not depend on the clock.
fn numbers(line: &Value) -> BTreeMap<&String, f64> {
    let all = line.as_object().unwrap().iter();
    let all = all.filter(|(name, _)| *name != "seconds" && *name != "samples_per_second");
    all.filter_map(|(name, value)| Some((name, value.as_f64()?))).collect()
}

#[test]
fn the_exported_loop_learns_what_train_does() {
    for (world, optimizer, rate) in [(1, "sgd", 0.03), (1, "adam", 0.003), (2, "sgd", 0.03)] {
        let mut data = digits();
        data["validation"] = json!({"fraction": 0.2});
        let trial = Trial::new(
            world,
            &json!({
                "epochs": 3, "batch_size": 32, "loss": "cross_entropy", "seed": 1, "data": data,
                "model": {"kind": "cnn", "channels": [8, 16], "outputs": 10},
                "optimizer": {"kind": optimizer, "lr": rate}, "schedule": {"kind": "one_cycle"},
                "metric": {"name": "val_accuracy", "direction": "max"},
            }),
        );
        trial.done();
        let folder = tempfile::tempdir().unwrap();
        let found = script(folder.path(), world, optimizer, &rate.to_string());
        let expected = trial.lines();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) = (numbers(found), numbers(expected));
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            for (name, number) in &expected {
                // Two versions of libtorch add up in other orders; a sample may fall to the other side.
                let near =
                    if name.ends_with("accuracy") { 0.005 } else { 2e-4 * number.abs().max(0.1) };
                let other = found[name];
                assert!(
                    (other - number).abs() <= near,
                    "{world} {optimizer} {name}: {other}, {number}"
                );
            }
        }
    }
}

#[test]
fn the_exported_loop_continues_where_it_was_cut_off() {
    let whole = tempfile::tempdir().unwrap();
    let expected = script(whole.path(), 1, "sgd", "0.03");
    let cut = tempfile::tempdir().unwrap();
    let mut child = rank(cut.path(), 0, (1, 0), "sgd", "0.03");
    // The first epoch is in the checkpoint when the second one is reported.
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(cut.path().join("metrics.jsonl")).unwrap();
    let found = script(cut.path(), 1, "sgd", "0.03");
    assert_eq!(
        found.iter().map(numbers).collect::<Vec<_>>(),
        expected.iter().map(numbers).collect::<Vec<_>>()
    );
}
