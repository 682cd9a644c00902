//! What several ranks do together, judged: `hpcsweep-worker selftest` under mpirun.

use std::collections::BTreeMap;
use std::process::Command;

/// What `selftest WHAT` prints with two ranks.
fn selftest(what: &str) -> BTreeMap<String, String> {
    let mut command = Command::new("mpirun");
    command
        .args(["-n", "2", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"])
        .args(["--mca", "btl", "self,vader", "--mca", "pml", "ob1"])
        .args([env!("CARGO_BIN_EXE_hpcsweep-worker"), "selftest", what])
        // Two ranks on the cores of one machine must not spin against each other.
        .env("OMP_NUM_THREADS", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let pair = |line: &str| line.split_once(": ").map(|(k, v)| (k.to_owned(), v.to_owned()));
    text.lines().map(|line| pair(line).unwrap()).collect()
}

#[test]
fn bytes_and_sums_are_exchanged_whole_whatever_one_call_carries() {
    let seen = selftest("mpi");
    let words = "[0, 10, 20, 1, 11, 21] [1, 1, 1, 1, 1] \
                 [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38] \
                 [1.0, 3.0, 5.0, 7.0, 9.0] [0.0, 1.0, 2.0, 3.0, 4.0]";
    assert_eq!((seen["exchanged"].as_str(), seen["cut"].as_str()), (words, "the same"));
    assert!(["funneled", "serialized", "multiple"].contains(&seen["threads"].as_str()));
}

#[test]
fn two_ranks_train_as_one() {
    let seen = selftest("ddp");
    let again = selftest("ddp");
    assert_eq!(seen, again, "the same run is the same to the last bit");
    for (name, most) in [
        ("f64, 20 steps", 1e-12),
        ("f32, 1 step", 1e-6),
        ("unequal batches", 1e-12),
        ("a rank without samples", 1e-12),
        ("accumulated", 1e-12),
        ("clipped", 1e-12),
        ("after the backward pass", 1e-12),
    ] {
        let difference: f64 = seen[name].parse().unwrap();
        assert!(difference <= most, "{name}: {difference:e}");
    }
    assert_eq!(seen["weights"].len(), 64, "both ranks have the same weights: {}", seen["weights"]);
    assert_eq!(seen["cut"], "the same");
    // Two steps of size 0.5 with half the weight as decay: a by gradient 1, b by 1/2, c not at all.
    assert_eq!(seen["unused"], "[-0.3125, 0.125, 1.0]");
    assert_eq!(seen["buffers"], "others, then the same as on rank 0");
    assert_eq!(
        seen["another model"],
        "rank 1 has another model than rank 0: 6 parameters with 29 numbers and 0 buffers instead of \
         4 with 17 and 0"
    );
}
