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
        "data": digits(), "epochs": 4, "batch_size": 32, "accumulate": 2,
        "optimizer": optimizer, "clip_norm": 2.0, "seed": 3,
        "schedule": {"kind": "cosine", "warmup": 1.0},
        "checkpoint": {"every_steps": 1}, "evaluate": false,
    })
}

fn adam() -> Value {
    json!({"kind": "adam", "lr": 0.01})
}

/// Runs the trial to its end; before that, interrupts it by `signal` whenever `after` checkpoints more
/// have been written.
fn disturbed(trial: &Trial, signal: Signal, after: &[u32]) {
    for (n, count) in after.iter().enumerate() {
        let mut running = trial.start();
        for _ in 0..*count {
            let before = trial.position();
            assert!(trial.moves(&mut running, before), "ended too soon: {}", trial.log());
        }
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
        disturbed(&trial, Signal::SIGKILL, &[3, 17, 1, 29]);
        assert_same(&trial, &calm);
    }
}

#[test]
fn one_killed_rank_ends_both_and_they_go_on_as_if_nothing_had_been() {
    let calm = Trial::new(2, &everything(&adam()));
    calm.done();
    let trial = Trial::new(2, &everything(&adam()));
    disturbed(&trial, Signal::SIGKILL, &[5, 9]);
    assert_same(&trial, &calm);
}

#[test]
fn asked_to_end_all_ranks_write_a_checkpoint_and_end() {
    for signal in [Signal::SIGUSR2, Signal::SIGTERM] {
        let mut config = everything(&adam());
        let calm = Trial::new(2, &config);
        calm.done();
        // Only the one that is asked for.
        config["checkpoint"] = json!({"every_steps": 11});
        let trial = Trial::new(2, &config);
        // The signal reaches one rank: 0 first, then 1.
        disturbed(&trial, signal, &[1, 1]);
        assert_same(&trial, &calm);
    }
}

#[test]
fn a_damaged_checkpoint_costs_the_steps_since_the_one_before() {
    let calm = Trial::new(1, &everything(&adam()));
    calm.done();
    let trial = Trial::new(1, &everything(&adam()));
    let mut running = trial.start();
    while trial.position() < Some((1, 3)) {
        let before = trial.position();
        assert!(trial.moves(&mut running, before), "{}", trial.log());
    }
    running.signal(0, Signal::SIGKILL);
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
    trial.change(|job| job["config"]["epochs"] = json!(4));
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
    assert!(reason.starts_with("rank ") && reason.contains(": the loss is "), "{reason}");
    assert!(reason.contains("in epoch 1, step "), "{reason}");
    assert_eq!(trial.reason(1), reason);
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
    x[17] = f32::NAN;
    let bytes: Vec<u8> = x.iter().flat_map(|n| n.to_le_bytes()).collect();
    let classes: Vec<u8> = (0..32).map(|n| n % 2).collect();
    let view = |dtype, shape: &[usize], bytes| {
        safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes).unwrap()
    };
    let arrays = [
        ("x", view(safetensors::Dtype::F32, &[32, 3], &bytes)),
        ("y", view(safetensors::Dtype::U8, &[32], &classes)),
    ];
    let file = safetensors::serialize(arrays, None).unwrap();
    std::fs::write(trial.path("poisoned.safetensors"), file).unwrap();
    let base = trial.path("");
    trial.change(|job| job["base"] = json!(base));
    trial.done();
    let losses: Vec<f64> =
        trial.epochs().iter().map(|line| line["train_loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 3);
    assert!(trial.log().contains("epoch 1, step 1: the loss of rank 1 is NaN"), "{}", trial.log());
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
        "the launcher started 2 ranks, but MPI sees one: rank 0 on n1 is alone; \
         hint: try `srun --mpi=pmix` (see `srun --mpi=list`) or mpirun"
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
