//! The PBS that tests run against: its own tests, and that a script submitted from here really runs.

use std::process::Command;

use serde_json::json;

use crate::support::pbs::{Pbs, folder};

#[test]
fn the_test_scheduler_passes_its_tests() {
    let ran = Command::new("python3")
        .args(["-m", "unittest", "discover", "--verbose"])
        .current_dir(folder())
        // No `.pyc` in the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|e| panic!("{}", crate::support::world::missing("python3", &e)));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "python3 -m unittest discover\n{said}");
    let count = said.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(count >= 50, "only {count} tests ran\n{said}");
}

#[test]
fn an_array_runs_and_leaves_its_files() {
    let mut pbs = Pbs::start();
    pbs.world.write("s.sh", "echo $PBS_ARRAY_INDEX\nexit $PBS_ARRAY_INDEX\n");
    let ran = pbs.world.call("qsub", &["-J", "0-1", "-j", "oe", "s.sh"]);
    assert_eq!(ran.whole(), "0[].pbshead\nexit code 0\n");
    pbs.wait_idle();
    assert_eq!(pbs.world.read("s.sh.o0.0") + &pbs.world.read("s.sh.o0.1"), "0\n1\n");
    let ends: Vec<_> =
        pbs.jobs().into_iter().map(|(id, job)| (id, job["Exit_status"].clone())).collect();
    let id = |name: &str| format!("{name}.pbshead");
    assert_eq!(ends[..2], [(id("0[0]"), json!(0)), (id("0[1]"), json!(1))]);
    assert_eq!(pbs.states(), [(id("0[]"), "F".to_owned())]);

    pbs.config(|c| {
        c.insert("qsub_fault".to_owned(), json!("lost"));
    });
    let ran = pbs.world.call("qsub", &["--", "/bin/true"]);
    assert_eq!(ran.whole(), "qsub: Connection timed out\nexit code 1\n");
    pbs.wait_idle();
    assert_eq!(pbs.jobs()["1.pbshead"]["Exit_status"], json!(0));
}
