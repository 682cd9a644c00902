//! Bad ends and interruptions: nothing is lost, all ranks end, and one sentence says why.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::trial::{Trial, digits};

/// A network with all that a checkpoint must hold: moments, running statistics, dropout, a schedule,
/// steps that are put together of several batches.
fn everything(optimizer: &Value) -> Value {
    json!({
        "model": {
            "kind": "mlp", "hidden": [16], "outputs": 10, "dropout": 0.2, "batch_norm": true,
        },
        "data": digits(), "epochs": 3, "batch_size": 32, "accumulate": 2,
        "optimizer": optimizer, "clip_norm": 2.0, "seed": 3,
        "schedule": {"kind": "cosine", "warmup": 1.0},
        "checkpoint": {"every_steps": 1}, "evaluate": false,
    })
}

fn adam() -> Value {
    json!({"kind": "adam", "lr": 0.01})
}

/// Runs the trial to its end; before that, interrupts it by `signal` wherever its checkpoint has come to
/// one of these places, each time another rank.
fn disturbed(trial: &Trial, signal: Signal, places: &[(u64, u64)]) {
    for (n, place) in places.iter().enumerate() {
        let mut running = trial.start();
        assert!(trial.reaches(&mut running, *place), "ended too soon: {}", trial.log());
        running.signal(n, signal);
        let ended = trial.end(running);
        if signal == Signal::SIGKILL {
            assert_ne!(ended.code, Some(0), "{}", ended.text);
        } else {
            assert_eq!(ended.code, Some(143), "{}", ended.text);
        }
    }
    trial.done();
}

/// What an undisturbed run and a disturbed one leave is the same, to the last bit.
fn assert_same(trial: &Trial, calm: &Trial) {
    assert!(trial.model() == calm.model(), "the weights differ");
    assert_eq!(trial.epochs(), calm.epochs());
    assert_eq!(trial.result(), calm.result());
}

#[test]
fn killed_at_any_step_it_goes_on_as_if_nothing_had_been() {
    for optimizer in [adam(), json!({"kind": "sgd", "lr": 0.1, "momentum": 0.9})] {
        let calm = Trial::new(1, &everything(&optimizer));
        calm.done();
        let trial = Trial::new(1, &everything(&optimizer));
        disturbed(&trial, Signal::SIGKILL, &[(0, 2), (0, 17), (1, 0), (1, 5)]);
        assert_same(&trial, &calm);
    }
}

#[test]
fn one_killed_rank_ends_both_and_they_go_on_as_if_nothing_had_been() {
    let calm = Trial::new(2, &everything(&adam()));
    calm.done();
    let trial = Trial::new(2, &everything(&adam()));
    disturbed(&trial, Signal::SIGKILL, &[(0, 5), (1, 3)]);
    assert_same(&trial, &calm);
}

#[test]
fn asked_to_end_all_ranks_write_a_checkpoint_and_end() {
    let mut config = everything(&adam());
    let calm = Trial::new(2, &config);
    calm.done();
    // Few besides the one that is asked for.
    config["checkpoint"] = json!({"every_steps": 11});
    for signal in [Signal::SIGUSR2, Signal::SIGTERM] {
        let trial = Trial::new(2, &config);
        // The signal reaches one rank: 0 first, then 1.
        disturbed(&trial, signal, &[(0, 11), (1, 11)]);
        assert_same(&trial, &calm);
    }
}

#[test]
fn a_script_goes_on_with_its_own_buffers_and_is_kept_with_its_program() {
    let config = json!({
        "model": {"kind": "script", "file": "script.pt"},
        "data": {"train": "samples.safetensors", "validation": {"fraction": 0.25}},
        "epochs": 4, "batch_size": 4, "optimizer": {"kind": "adam", "lr": 0.01},
        "checkpoint": {"every_steps": 1},
    });
    let make = || {
        let trial = Trial::new(2, &config);
        let x: Vec<f32> = (0_u16..128 * 4).map(|n| f32::from(n * 79 % 101) / 50.0 - 1.0).collect();
        let classes: Vec<u8> =
            x.chunks(4).map(|x| u8::from(x[0] > x[1]) + u8::from(x[2] > 0.0)).collect();
        trial.write_arrays("samples.safetensors", &x, &[128, 4], &classes);
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worker/scripts/script.pt");
        std::fs::copy(file, trial.path("script.pt")).unwrap();
        trial
    };
    let calm = make();
    calm.done();
    let trial = make();
    disturbed(&trial, Signal::SIGKILL, &[(1, 5)]);
    assert_same(&trial, &calm);
    let first = trial.epochs()[0]["val_loss"].as_f64().unwrap();
    let best = trial.result()["best_val_loss"].as_f64().unwrap();
    assert!(best < first, "{best} after {first}");
    // The module that is left behind is the best one, and trains like any other.
    std::fs::copy(trial.path("work/model.pt"), trial.path("script.pt")).unwrap();
    std::fs::remove_dir_all(trial.path("checkpoints")).unwrap();
    trial.change(|job| {
        job["config"]["epochs"] = json!(1);
        job["config"]["optimizer"]["lr"] = json!(1e-12);
    });
    trial.done();
    let again = trial.result()["best_val_loss"].as_f64().unwrap();
    // Running statistics continue.
    assert!((again - best).abs() < 0.05, "{again} instead of {best}");
}

#[test]
fn a_damaged_checkpoint_costs_the_steps_since_the_one_before() {
    let calm = Trial::new(1, &everything(&adam()));
    calm.done();
    let trial = Trial::new(1, &everything(&adam()));
    let mut running = trial.start();
    assert!(trial.reaches(&mut running, (1, 3)), "ended too soon: {}", trial.log());
    // Asked to end, it leaves both checkpoints; a kill can come while one takes the place of the other.
    running.signal(0, Signal::SIGTERM);
    trial.end(running);
    let last = trial.path("checkpoints/last.safetensors");
    let mut bytes = std::fs::read(&last).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    trial.done();
    assert!(trial.log().contains("is damaged: its checksum is wrong"), "{}", trial.log());
    assert_same(&trial, &calm);
}

#[test]
fn another_configuration_does_not_go_on_from_the_checkpoint() {
    let trial = Trial::new(1, &everything(&adam()));
    trial.done();
    trial.change(|job| job["config"]["batch_size"] = json!(16));
    let ended = trial.run();
    assert_eq!(ended.code, Some(1));
    assert!(trial.reason(0).contains("is of another configuration"), "{}", trial.reason(0));
    // More epochs are the same run, where the rate does not depend on them.
    let mut config = everything(&adam());
    config["schedule"] = json!({"kind": "constant"});
    let calm = Trial::new(1, &config);
    calm.done();
    config["epochs"] = json!(2);
    let trial = Trial::new(1, &config);
    trial.done();
    trial.change(|job| job["config"]["epochs"] = json!(3));
    trial.done();
    assert_same(&trial, &calm);
}

#[test]
fn a_loss_that_is_no_number_ends_all_ranks_with_one_sentence() {
    let trial = Trial::new(
        2,
        &json!({
            "model": {"kind": "mlp", "hidden": [8], "outputs": 10}, "data": digits(), "epochs": 2,
            "optimizer": {"kind": "sgd", "lr": 1e30},
        }),
    );
    assert_eq!(trial.run().code, Some(1));
    let reason = trial.reason(0);
    assert!(reason.starts_with("the loss of rank "), "{reason}");
    assert!(reason.contains("in epoch 1, step "), "{reason}");
    assert_eq!(trial.reason(1), reason);
}

/// Data of two classes with 3 numbers a sample, the first number of sample 4 being this.
fn write_samples(trial: &Trial, file: &str, odd: f32) {
    let mut x: Vec<f32> = (0_u8..32 * 3).map(|n| f32::from(n % 7)).collect();
    x[12] = odd;
    let classes: Vec<u8> = (0..32).map(|n| n % 2).collect();
    trial.write_arrays(file, &x, &[32, 3], &classes);
}

fn on_samples(extra: &Value) -> Value {
    let mut config = json!({
        "model": {"kind": "mlp", "hidden": [8], "outputs": 2},
        "data": {"train": "train.safetensors", "validation": "validation.safetensors"},
        "epochs": 2, "batch_size": 4, "evaluate": false,
    });
    config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    config
}

#[test]
fn a_validation_that_is_no_number_ends_all_ranks_with_one_sentence() {
    for (extra, code) in
        [(json!({}), 1), (json!({"stop": {"patience": 3}}), 1), (json!({"non_finite": "skip"}), 0)]
    {
        let trial = Trial::new(2, &on_samples(&extra));
        write_samples(&trial, "train.safetensors", 1.0);
        write_samples(&trial, "validation.safetensors", f32::NAN);
        assert_eq!(trial.run().code, Some(code), "{extra}");
        for rank in (0..2).filter(|_| code == 1) {
            let reason = trial.reason(rank);
            assert!(reason.starts_with("`val_loss` is NaN after epoch 1"), "{reason}");
        }
    }
}

#[test]
fn data_that_have_changed_do_not_go_on_from_the_checkpoint() {
    let trial = Trial::new(2, &on_samples(&json!({"epochs": 1})));
    for file in ["train.safetensors", "validation.safetensors"] {
        write_samples(&trial, file, 1.0);
    }
    trial.done();
    let longer = || trial.change(|job| job["config"]["epochs"] = json!(2));
    for file in ["train.safetensors", "validation.safetensors"] {
        longer();
        write_samples(&trial, file, 2.0);
        assert_eq!(trial.run().code, Some(1));
        let reason = trial.reason(0);
        assert!(
            reason.contains("is of other data: files of `[train.data]` have changed"),
            "{reason}"
        );
        assert_eq!(trial.reason(1), reason);
        write_samples(&trial, file, 1.0);
    }
    longer();
    trial.done();
    assert_eq!(trial.epochs().len(), 2);
}

#[test]
fn a_step_with_a_loss_that_is_no_number_can_be_left_out() {
    let trial = Trial::new(
        2,
        &json!({
            "model": {"kind": "mlp", "hidden": [8], "outputs": 2, "batch_norm": true},
            "data": {"train": "poisoned.safetensors", "shuffle": false}, "epochs": 3, "batch_size": 4,
            "non_finite": "skip", "evaluate": false,
        }),
    );
    let mut x: Vec<f32> = (0_u8..32 * 3).map(|n| f32::from(n % 7)).collect();
    // Of sample 4, which is rank 0's: its statistics are those that are kept.
    x[12] = f32::NAN;
    let classes: Vec<u8> = (0..32).map(|n| n % 2).collect();
    trial.write_arrays("poisoned.safetensors", &x, &[32, 3], &classes);
    trial.done();
    let losses: Vec<f64> =
        trial.epochs().iter().map(|line| line["train_loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 3);
    assert!(trial.log().contains("epoch 1, step 1: the loss of rank 0 is NaN"), "{}", trial.log());
    let all = crate::trial::weights(&trial.model());
    assert!(all.values().flatten().all(|number| number.is_finite()));
}

#[test]
fn ranks_that_mean_different_runs_do_not_begin() {
    let trial = Trial::new(2, &everything(&adam()));
    trial.write_job(1, |job| job["config"]["seed"] = json!(4));
    assert_eq!(trial.run().code, Some(1));
    let said = "rank 1 on `n1` has another configuration than rank 0 on `n1`";
    for rank in 0..2 {
        assert!(trial.reason(rank).starts_with(said), "{}", trial.reason(rank));
    }
}

#[test]
fn singletons_are_found_out() {
    let trial = Trial::new(2, &everything(&adam()));
    let ended = trial.run_alone();
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        trial.reason(0).trim(),
        "the launcher started 2 ranks, but MPI sees one: rank 0 on n1 is alone; hint: try `srun --mpi=pmix` (see `srun --mpi=list`) or mpirun"
    );
}

#[test]
fn a_rank_that_fails_alone_ends_the_others() {
    let trial = Trial::new(2, &everything(&adam()));
    trial.write_job(1, |job| job["base"] = json!("/nowhere"));
    assert_eq!(trial.run().code, Some(1));
    assert!(trial.reason(1).starts_with("there is no file `/nowhere/"), "{}", trial.reason(1));
    assert_eq!(trial.reason(0), "");
}
