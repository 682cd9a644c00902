//! Whole trials: what they learn, what they leave, and that ranks change nothing but the time.

use std::fs;

use serde_json::{Value, json};

use crate::trial::{Trial, digits, weights};

/// A small network on the digits.
fn digits_mlp(extra: &Value) -> Value {
    let mut config = json!({
        "model": {"kind": "mlp", "hidden": [32], "outputs": 10},
        "data": digits(), "epochs": 3, "batch_size": 32,
        "optimizer": {"kind": "adam", "lr": 0.005},
    });
    merge(&mut config, extra);
    config
}

fn merge(config: &mut Value, extra: &Value) {
    for (name, value) in extra.as_object().unwrap() {
        config[name] = value.clone();
    }
}

#[test]
fn two_ranks_learn_digits_and_the_evaluation_is_that_of_the_best_epoch() {
    let config = digits_mlp(&json!({
        "model": {"kind": "cnn", "channels": [8, 16], "outputs": 10},
        "epochs": 4, "metric": {"name": "val_accuracy", "direction": "max"},
    }));
    let trial = Trial::new(2, &config);
    trial.done();
    let lines = trial.lines();
    let epochs = trial.epochs();
    let numbers: Vec<u64> = epochs.iter().map(|line| line["epoch"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    // 1438 samples: 23 steps of 2 x 32.
    assert_eq!(epochs[3]["step"], 92);
    let result = trial.result();
    let best = result["best_epoch"].as_u64().unwrap() as usize;
    let accuracy = |line: &Value| line["val_accuracy"].as_f64().unwrap();
    let most = epochs.iter().map(accuracy).fold(0.0, f64::max);
    assert!(most > 0.9, "{epochs:?}");
    assert_eq!(result["best_val_accuracy"], most);
    assert_eq!(accuracy(&epochs[best - 1]), most);
    assert_eq!((&result["epochs"], &result["stopped_early"]), (&json!(4), &json!(false)));
    // 8*(9+1) + 16*(72+1) + 10*(16*2*2+1)
    assert_eq!(result["parameters"], 1898);
    let last = lines.last().unwrap();
    assert_eq!(last["stage"], "evaluate");
    for (test, validation) in [("test_loss", "val_loss"), ("test_accuracy", "val_accuracy")] {
        let (a, b) = (last[test].as_f64().unwrap(), epochs[best - 1][validation].as_f64().unwrap());
        assert!((a - b).abs() < 1e-6, "{test} is {a}, {validation} was {b}");
        assert_eq!(last[test], result[test]);
    }
    // The final model is the best one, by PyTorch's names.
    assert_eq!(trial.model(), fs::read(trial.path("checkpoints/best.safetensors")).unwrap());
    assert_eq!(result["weights"], "/work/model.safetensors");
    let names: Vec<String> = weights(&trial.model()).into_keys().collect();
    assert!(names.iter().any(|name| name.ends_with(".weight")), "{names:?}");
}

#[test]
fn one_rank_with_64_and_two_with_32_are_the_same_in_f64() {
    let run = |world: u32, batch: u64| {
        let config = digits_mlp(&json!({
            "batch_size": batch, "epochs": 2, "precision": "f64", "clip_norm": 1.0,
            "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": true},
            "schedule": {"kind": "one_cycle"},
        }));
        let trial = Trial::new(world, &config);
        trial.done();
        (weights(&trial.model()), trial.epochs())
    };
    let ((one, lines), (two, others)) = (run(1, 64), run(2, 32));
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (name, numbers) in &one {
        for (a, b) in numbers.iter().zip(&two[name]) {
            assert!((a - b).abs() < 1e-12, "{name}: {a} and {b}");
        }
    }
    // The last step has the last rate of the cycle.
    assert!((lines[1]["lr"].as_f64().unwrap() - 0.1 / 25.0 / 1e4).abs() < 1e-12);
    for (a, b) in lines.iter().zip(&others) {
        for metric in ["train_loss", "val_loss", "lr"] {
            let (a, b) = (a[metric].as_f64().unwrap(), b[metric].as_f64().unwrap());
            assert!((a - b).abs() < 1e-12, "{metric}: {a} and {b}");
        }
        assert_eq!(a["val_accuracy"], b["val_accuracy"]);
    }
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    let run = |batch: u64, accumulate: u64| {
        let config = digits_mlp(&json!({
            "batch_size": batch, "accumulate": accumulate, "epochs": 1, "precision": "f64",
            "optimizer": {"kind": "sgd", "lr": 0.1},
        }));
        let trial = Trial::new(1, &config);
        trial.done();
        assert_eq!(trial.epochs()[0]["step"], 23);
        weights(&trial.model())
    };
    let (one, two) = (run(64, 1), run(16, 4));
    for (name, numbers) in &one {
        for (a, b) in numbers.iter().zip(&two[name]) {
            assert!((a - b).abs() < 1e-12, "{name}: {a} and {b}");
        }
    }
}

#[test]
fn patience_ends_all_ranks_after_the_same_epoch_with_the_best_weights() {
    let config = digits_mlp(&json!({
        "epochs": 50, "stop": {"patience": 3, "min_delta": 100.0},
    }));
    let trial = Trial::new(2, &config);
    trial.done();
    // The first epoch is the last improvement by 100.
    assert_eq!(trial.epochs().len(), 4);
    let result = trial.result();
    assert_eq!((&result["epochs"], &result["stopped_early"]), (&json!(4), &json!(true)));
    let losses: Vec<f64> =
        trial.epochs().iter().map(|line| line["val_loss"].as_f64().unwrap()).collect();
    let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
    assert_eq!(result["best_val_loss"], least);
    assert_eq!(losses[result["best_epoch"].as_u64().unwrap() as usize - 1], least);
    // An ended run is not begun again: it is evaluated, and leaves the same.
    let model = trial.model();
    trial.done();
    assert_eq!((trial.epochs().len(), trial.model()), (4, model));
    assert_eq!(trial.result(), result);
}

#[test]
fn the_rate_falls_on_a_plateau_before_patience_is_over() {
    let config = digits_mlp(&json!({
        "epochs": 9, "stop": {"patience": 4, "min_delta": 100.0},
        "optimizer": {"kind": "sgd", "lr": 1e-4},
        "schedule": {"kind": "plateau", "patience": 1, "threshold": 0.5, "factor": 0.1},
        "checkpoint": {"every_epochs": 0},
    }));
    let trial = Trial::new(1, &config);
    trial.done();
    let rates: Vec<f64> = trial.epochs().iter().map(|line| line["lr"].as_f64().unwrap()).collect();
    // Epochs 2 and 3 halve nothing.
    let tenths: Vec<f64> = rates.iter().map(|rate| (rate * 1e5).round()).collect();
    assert_eq!(tenths, [10.0, 10.0, 10.0, 1.0, 1.0]);
}

#[test]
fn turbulence_is_learnt_by_sapsans_network() {
    let trial = Trial::new(
        1,
        &json!({
            "model": {"kind": "cnn3d"},
            "data": {
                "train": {"synthetic": "turbulence", "samples": 8},
                "validation": {"synthetic": "turbulence", "samples": 4, "seed": 1},
            },
            "loss": "smooth_l1", "epochs": 3, "batch_size": 4,
            "optimizer": {"kind": "adam", "lr": 1e-3},
        }),
    );
    trial.done();
    let result = trial.result();
    assert_eq!(result["parameters"], 308_544);
    assert!(result["test_accuracy"].is_null());
    let losses: Vec<f64> =
        trial.epochs().iter().map(|line| line["train_loss"].as_f64().unwrap()).collect();
    assert!(losses[2] < losses[0], "{losses:?}");
}

#[test]
fn a_smoke_test_takes_one_batch_of_each_stage_and_leaves_its_metrics() {
    let trial = Trial::new(2, &digits_mlp(&json!({})));
    trial.change(|job| job["smoke"] = json!(true));
    trial.done();
    let lines = trial.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!((&lines[0]["epoch"], &lines[0]["step"]), (&json!(1), &json!(1)));
    assert!(lines[0]["val_loss"].is_f64());
    assert!(lines[1]["test_loss"].is_f64());
    let mut names: Vec<String> = fs::read_dir(trial.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["job.0.json", "job.1.json", "log", "metrics.jsonl", "work"]);
    assert_eq!(fs::read_dir(trial.path("work")).unwrap().count(), 0);
}

#[test]
fn sharded_by_files_a_rank_reads_its_own_only() {
    let config = digits_mlp(&json!({
        "data": {"train": "x-*.npz", "validation": {"fraction": 0.25}, "sharding": "files"},
        "evaluate": false, "epochs": 1,
    }));
    let trial = Trial::new(2, &config);
    for rank in 0..2 {
        let base = trial.path(&format!("base.{rank}"));
        fs::create_dir(&base).unwrap();
        for file in 0..4 {
            let path = base.join(format!("x-{file}.npz"));
            if file % 2 == rank {
                let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.npz");
                fs::copy(digits, path).unwrap();
            } else {
                fs::write(path, b"no array").unwrap();
            }
        }
        trial.write_job(rank, |job| job["base"] = json!(base));
    }
    trial.done();
    // Each rank has 2 x 1797 samples, of which 898 validate; 2696 = 84.25 batches.
    assert_eq!(trial.epochs()[0]["step"], 85);
}

#[test]
fn a_map_gives_each_rank_its_files_or_its_samples() {
    let steps = |sharding: &serde_json::Value, files: [&str; 2]| {
        let config = digits_mlp(&json!({
            "data": {"train": ["a.npz", "b.npz"], "sharding": sharding},
            "evaluate": false, "epochs": 1, "batch_size": 100,
            "metric": {"name": "train_loss"},
        }));
        let trial = Trial::new(2, &config);
        for rank in 0..2u32 {
            let base = trial.path(&format!("base.{rank}"));
            fs::create_dir(&base).unwrap();
            for file in ["a.npz", "b.npz"] {
                let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.npz");
                if files[rank as usize].contains(file) {
                    fs::copy(digits, base.join(file)).unwrap();
                } else {
                    fs::write(base.join(file), b"no array").unwrap();
                }
            }
            trial.write_job(rank, |job| job["base"] = json!(base));
        }
        trial.done();
        trial.epochs()[0]["step"].clone()
    };
    // A rank does not open files that it is not given.
    assert_eq!(steps(&json!([["b.npz"], ["a.npz"]]), ["b.npz", "a.npz"]), 18);
    // Ranges of samples are counted through all files; the shorter rank starts over.
    let both = ["a.npz b.npz"; 2];
    assert_eq!(steps(&json!([[[0, 3000]], [[3000, 3594]]]), both), 30);
}
