//! The index of records: readers of a large sweep say the same with it as without, whatever becomes of it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use hpcsweep::sweep::tree::{Tree, line};
use serde_json::json;

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::World;

/// In five folders of records.
const TRIALS: u64 = 4_100;

const FOLDERS: [&str; 5] = ["000", "001", "002", "003", "004"];

/// Each hundredth trial failed, the last one is done in its second run, and all others in their first.
fn large() -> World {
    let world = slurm();
    world.write("plan.toml", &shell("true", &format!("[replicates]\ncount = {TRIALS}\n")));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let tree = Tree::at(&world.path("results/s"));
    for trial in 0..TRIALS {
        if trial % 1000 == 0 {
            fs::create_dir_all(tree.record(trial, 1).parent().unwrap()).unwrap();
        }
        let failed = trial % 100 == 0;
        run(&tree, trial, 1, failed || trial == TRIALS - 1);
    }
    run(&tree, TRIALS - 1, 2, false);
    age(&world);
    world
}

/// The record of a run.
fn run(tree: &Tree, trial: u64, attempt: u32, failed: bool) {
    let (state, code) = if failed { ("failed", 3) } else { ("done", 0) };
    let lines = [
        json!({"event": "start", "trial": trial, "attempt": attempt, "time": 1e9, "host": "n1", "pid": 7, "started": null,
            "job": format!("101_{trial}"), "ranks": 1, "argv": ["true"], "devices": null, "version": "1"}),
        json!({"event": "metrics", "trial": trial, "attempt": attempt, "rows": [{"loss": trial as f64 / 8.0}]}),
        json!({"event": "end", "trial": trial, "attempt": attempt, "time": 1e9 + 2.0, "state": state, "exit_code": code,
            "duration_s": 1.5, "peak_memory": 1 << 20, "usage": {"memory_source": "rusage", "cpu_user_s": 1.0,
            "cpu_system_s": 0.25}, "result": null}),
    ];
    let bytes: Vec<u8> = lines.iter().flat_map(|line| line::seal(line).unwrap()).collect();
    fs::write(tree.record(trial, attempt), bytes).unwrap();
}

/// Nothing was added to the folders of records for an hour.
fn age(world: &World) {
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for folder in FOLDERS {
        let path = world.path(&format!("results/s/records/{folder}"));
        File::open(path).unwrap().set_modified(long_ago).unwrap();
    }
}

const VERBS: [&[&str]; 7] = [
    &["status", "results/s", "--offline"],
    &["status", "results/s", "--json", "--offline"],
    &["usage", "results/s", "--json"],
    &["why", "300", "results/s", "--offline"],
    &["why", "results/s"],
    &["collect", "results/s", "--format", "jsonl", "--offline"],
    &["best", "results/s", "--metric", "loss", "--min", "--offline"],
];

fn said(world: &World) -> Vec<String> {
    VERBS.iter().map(|verb| world.run(verb).whole()).collect()
}

fn remove_index(world: &World) {
    let _ = fs::remove_dir_all(world.path("results/s/index"));
}

/// What the verbs say if each of them reads every record.
fn said_without(world: &World) -> Vec<String> {
    let say = |verb: &&[&str]| {
        remove_index(world);
        world.run(verb).whole()
    };
    VERBS.iter().map(say).collect()
}

#[test]
fn readers_say_the_same_with_an_index_whatever_becomes_of_it() {
    let world = large();
    let without = said_without(&world);
    remove_index(&world);
    world.run(VERBS[0]);
    // Which notes what the table has of metric lines.
    world.run(VERBS[5]);
    let paths = FOLDERS.map(|name| world.path(&format!("results/s/index/{name}")));
    let number = |path: &std::path::PathBuf| fs::metadata(path).unwrap().ino();
    let written: Vec<u64> = paths.iter().map(number).collect();
    assert_eq!(said(&world), without);
    assert_eq!(paths.iter().map(number).collect::<Vec<_>>(), written, "it is written once");

    for (at, path) in paths.iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        match at {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.clear(),
            2 => bytes = b"{}\n".to_vec(),
            _ => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(said(&world), without);
    // Another user reads the index of the owner and writes none.
    let other = |verb: &&[&str]| world.run_as(54_321, verb).map(|ran| ran.whole());
    let Some(by_another) = VERBS.iter().map(other).collect::<Option<Vec<_>>>() else { return };
    assert_eq!(by_another, without);
    remove_index(&world);
    assert_eq!(VERBS.iter().map(other).collect::<Option<Vec<_>>>().unwrap(), without);
    assert!(!world.exists("results/s/index"));
}

/// The table of all trials is made while they are read; that of a set of them is made of what was read.
#[test]
fn the_table_of_all_trials_is_that_of_a_set_which_has_all_of_them() {
    let world = large();
    damage(&world, "records/000/17.1.jsonl");
    let whole = ["collect", "results/s", "--format", "jsonl", "--offline"];
    let set = ["collect", "results/s", "0-4099", "--format", "jsonl", "--offline"];
    let (first, again) = (world.run(&whole).whole(), world.run(&whole).whole());
    remove_index(&world);
    let of_set = world.run(&set).whole();
    assert!(of_set.contains("17.1.jsonl") && of_set.lines().count() > 4_100, "{of_set}");
    assert_eq!((first == of_set, again == of_set), (true, true));
}

/// `status` keeps no records of the trials that it only counts; `--trials` and `--json` show each trial's.
#[test]
fn what_status_counts_is_what_it_lists() {
    let world = large();
    damage(&world, "records/000/17.1.jsonl");
    let head = |verb: &[&str]| {
        let said = world.run(verb).out;
        said.split("\n\n").next().unwrap_or_default().to_owned()
    };
    let counts: &[&str] = &["status", "results/s", "--offline"];
    let lists: &[&str] = &["status", "results/s", "--offline", "--trials"];
    let first = [head(counts), head(lists), head(counts)];
    remove_index(&world);
    let listed = [head(lists), head(counts)];
    assert!(
        first[0].contains("done") && first[0].contains("left out: 1 damaged line"),
        "{first:?}"
    );
    assert!(first.iter().chain(&listed).all(|head| *head == first[0]), "{first:?} {listed:?}");
}

/// `usage` keeps no records of trials that were done at once, and a set of trials keeps its own alone. An expression needs all.
#[test]
fn what_is_read_of_all_trials_is_what_is_read_of_a_set_or_for_an_expression() {
    let world = large();
    damage(&world, "records/000/17.1.jsonl");
    let every = "trial >= 0";
    let verbs: [[&[&str]; 3]; 3] = [
        [
            &["usage", "results/s", "--json"],
            &["usage", "results/s", "0-4099", "--json"],
            &["usage", "results/s", "--where", every, "--json"],
        ],
        [
            &["why", "results/s", "--offline", "300-310,4099"],
            &["why", "results/s", "--offline", "300-310", "--trial", "4099", "--where", every],
            &["why", "results/s", "--offline", "--trial", "300-310,4099"],
        ],
        [
            &["status", "results/s", "--offline", "--trials", "--trial", "3-207,4099"],
            &["status", "results/s", "--offline", "3-207,4099", "--where", every],
            &["status", "results/s", "--offline", "3-207,4099"],
        ],
    ];
    for verb in verbs {
        let first = world.run(verb[0]).whole();
        assert!(first.contains("17.1.jsonl") || verb[0][0] == "why", "{first}");
        for other in verb {
            assert_eq!(world.run(other).whole(), first, "{other:?}");
        }
        remove_index(&world);
    }
}

/// The page of all trials is made while they are read; that of a set of them is made of what was read.
#[test]
fn the_report_of_all_trials_is_that_of_a_set_which_has_all_of_them() {
    let world = large();
    let page = |more: &[&str]| {
        let verb = [&["report", "results/s", "--metric", "loss", "--min", "--offline"], more];
        world.run(&verb.concat()).ok();
        let page = world.read("report.html");
        // It says when it was made.
        let (before, rest) = page.split_once("[\"Report\",").unwrap();
        format!("{before}{}", rest.split_once(']').unwrap().1)
    };
    let set = page(&["0-4099"]);
    let (first, again) = (page(&[]), page(&[]));
    assert!(set.contains("\"curves\"") && set.contains("4,059 / 4,100"), "{set}");
    assert_eq!((first == set, again == set), (true, true));
}

/// A byte of the last line of a record changes.
fn damage(world: &World, file: &str) {
    let path = world.path(&format!("results/s/{file}"));
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn damage_to_an_indexed_record_changes_no_answer_and_is_reported_by_who_reads_it() {
    let world = large();
    let (status, collect) = (VERBS[0], VERBS[5]);
    let before = world.run(status).whole();
    // Once more for the folders' times.
    assert_eq!(world.run(status).whole(), before);
    damage(&world, "records/002/2001.1.jsonl");
    assert_eq!(world.run(status).whole(), before);
    let left_out = "1 damaged line in records/002/2001.1.jsonl";
    let collected = world.run(collect);
    assert!(collected.code == 1 && collected.err.contains(left_out), "{}", collected.whole());
    // The table has been collected once, and its records are not opened again: those of learning curves are.
    damage(&world, "records/001/1203.1.jsonl");
    assert_eq!(world.run(collect).whole(), collected.whole());
    let curves = world.run(&["collect", "results/s", "--steps", "--format", "csv", "--offline"]);
    let other = "1 damaged line in records/001/1203.1.jsonl";
    assert!(curves.err.contains(left_out) && curves.err.contains(other), "{}", curves.err);
    remove_index(&world);
    let told = world.run(status);
    assert!(told.code == 1 && told.out.contains(left_out), "{}", told.whole());
    assert!(told.out.contains(other), "{}", told.whole());

    // A failed trial may run again: its record is looked at.
    world.run(status);
    damage(&world, "records/003/3100.1.jsonl");
    let told = world.run(status);
    assert!(told.out.contains("1 damaged line in records/003/3100.1.jsonl"), "{}", told.whole());
    // A record that is gone, or another one in its place.
    let tree = Tree::at(&world.path("results/s"));
    fs::remove_file(tree.record(1001, 1)).unwrap();
    fs::remove_file(tree.record(1002, 1)).unwrap();
    run(&tree, 1002, 1, true);
    let told = world.run(&["status", "results/s", "1001,1002", "--offline"]).whole();
    assert!(told.contains("1001") && told.contains("failed"), "{told}");
    remove_index(&world);
    assert_eq!(world.run(&["status", "results/s", "1001,1002", "--offline"]).whole(), told);
}
