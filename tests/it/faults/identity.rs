//! Whole files in the place of others: a record says of which trial it is, and what another file refers to is missed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::faults::Dice;
use crate::support::plans::shell;
use crate::support::world::World;

/// A plan whose trials report their parameter as the loss.
fn plan(values: &str) -> String {
    shell(
        "echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_X}\" >>$HPCSWEEP_METRICS",
        &format!("[grid]\nx = [{values}]\n"),
    )
}

fn submitted(world: &World, values: &str) {
    world.write("plan.toml", &plan(values));
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
}

/// By agents.
fn pulled(world: &World, values: &str) {
    world.write("plan.toml", &plan(values));
    world.run(&["worker", "--pull", "plan.toml", "--slots", "1", "-q"]).ok();
}

/// The loss of each trial by its `x`, and whether a reader has said anything.
fn losses(world: &World) -> (BTreeMap<u64, Value>, bool) {
    let ran = world.run(&["collect", "--format", "jsonl"]);
    let rows = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.collect();
    let known = rows.iter().filter(|row| row["x"].is_u64());
    let all = known.map(|row| (row["x"].as_u64().unwrap(), row["loss"].clone())).collect();
    (all, ran.code != 0)
}

/// No trial has the loss of another.
fn check_losses(world: &World, what: &str) {
    for (x, loss) in losses(world).0 {
        assert!(loss.is_null() || loss == json!(x), "{what}: x = {x} has the loss {loss}");
    }
}

/// Each verb says it and fails.
fn said(world: &World, words: &str) {
    for verb in [&["status"][..], &["collect"], &["best", "-m", "loss", "--min", "--by", "trial"]] {
        let ran = world.run(verb);
        assert!(ran.whole().contains(words), "{verb:?} without `{words}`: {}", ran.whole());
        assert_eq!(ran.code, 1, "{verb:?}: {}", ran.whole());
    }
}

/// Refused, and nothing is written.
fn refused(world: &World, words: &str) {
    let before = files(&world.path("results/s"));
    for options in [&["-q"][..], &["--dry-run"]] {
        let ran = world.run(&[&["submit", "plan.toml", "--local"], options].concat());
        assert!(ran.code == 4 && ran.err.contains(words), "{}", ran.whole());
        assert!(ran.err.contains("hint: restore `trials/` from a backup"), "{}", ran.whole());
    }
    assert_eq!(files(&world.path("results/s")), before);
}

/// The files of a sweep that belong to hpcsweep, with their contents; without locks.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                let is_own = !["logs/", "work/", "jobs/", "index/", "code/"]
                    .iter()
                    .any(|folder| name.starts_with(folder));
                if is_own && !name.contains(".lock") && !name.ends_with(".log") {
                    all.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    all
}

#[test]
fn a_record_in_the_place_of_another_trial_s_is_left_out_and_named() {
    let world = World::new();
    submitted(&world, "10, 20, 30");
    let record = |name: &str| world.path("results/s/records/000").join(name);
    fs::copy(record("1.1.jsonl"), record("2.1.jsonl")).unwrap();
    said(
        &world,
        "3 lines of trial 1 in records/000/2.1.jsonl (restore the file from a backup, or remove it)",
    );
    let why = world.run(&["why", "2"]).whole();
    assert!(why.contains("3 lines of trial 1 in records/000/2.1.jsonl"), "{why}");
    assert_eq!(losses(&world).0, [(10, json!(10)), (20, json!(20)), (30, Value::Null)].into());
    let damaged = &world.status()["damaged"];
    assert_eq!(damaged[0]["of"], "trial 1", "{damaged}");
    // Without the file, its trial runs again.
    fs::remove_file(record("2.1.jsonl")).unwrap();
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    assert_eq!(losses(&world).0[&30], json!(30));
}

#[test]
fn a_record_in_the_place_of_another_run_is_left_out_and_named() {
    let world = World::new();
    let code = "echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS; [ -e all ]";
    world.write("plan.toml", &shell(code, "[grid]\nx = [1]\n"));
    world.run(&["submit", "plan.toml", "--local", "-q"]);
    world.write("all", "");
    world.run(&["submit", "plan.toml", "--local", "-q", "--retry"]).ok();
    let record = |name: &str| world.path("results/s/records/000").join(name);
    fs::copy(record("0.1.jsonl"), record("0.2.jsonl")).unwrap();
    said(&world, "3 lines of run 1 in records/000/0.2.jsonl");
}

#[test]
fn a_record_of_a_sweep_whose_trials_have_other_numbers_is_left_out() {
    let (world, other) = (World::new(), World::new());
    submitted(&world, "1, 2, 3");
    submitted(&other, "3, 2, 1");
    let record = |world: &World| world.path("results/s/records/000/0.1.jsonl");
    fs::copy(record(&other), record(&world)).unwrap();
    said(
        &world,
        "3 lines of a trial 0 with other parameters or another command in records/000/0.1.jsonl",
    );
    check_losses(&world, "a record of another sweep");
    // That of the same trial is one.
    fs::copy(
        other.path("results/s/records/000/1.1.jsonl"),
        world.path("results/s/records/000/1.1.jsonl"),
    )
    .unwrap();
    assert_eq!(losses(&world).0[&2], json!(2));
}

#[test]
fn a_sweep_whose_tables_were_purged_gets_no_new_numbers() {
    let world = World::new();
    submitted(&world, "20, 30");
    submitted(&world, "10, 20, 30");
    for gone in ["sweep.json", "plan.toml"] {
        fs::remove_file(world.path("results/s").join(gone)).unwrap();
    }
    for gone in ["plans", "trials", "journal"] {
        fs::remove_dir_all(world.path("results/s").join(gone)).unwrap();
    }
    let words = "`$WORLD/results/s/trials/000000000000.json` does not exist, although trials from 0 on have been submitted";
    refused(&world, words);
}

#[test]
fn a_table_that_is_missing_before_another_is_reported_and_nothing_is_submitted() {
    let world = World::new();
    submitted(&world, "20, 30");
    submitted(&world, "10, 20, 30");
    let tables = |first: u64| {
        let of = |ending| world.path(&format!("results/s/trials/{first:012}.{ending}"));
        ["json", "jsonl", "idx", "keys"].map(of)
    };
    let kept: Vec<Vec<u8>> = tables(0).iter().map(|path| fs::read(path).unwrap()).collect();
    tables(0).iter().for_each(|path| fs::remove_file(path).unwrap());
    said(&world, "trials/000000000000.json does not exist, although other files refer to it");
    refused(&world, "trials/000000000000.json` does not exist");
    tables(0).iter().zip(kept).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    // So is the newest one.
    tables(2).iter().for_each(|path| fs::remove_file(path).unwrap());
    said(&world, "trials/000000000002.json does not exist, although other files refer to it");
    refused(&world, "trials/000000000002.json` does not exist");
}

#[test]
fn a_bundle_of_an_unknown_or_another_agent_is_left_out_and_a_lost_one_is_missed() {
    let (world, other) = (World::new(), World::new());
    pulled(&world, "1, 2, 3");
    pulled(&other, "3, 2, 1");
    let bundle = |world: &World| {
        let all = files(&world.path("results/s"));
        all.into_iter()
            .find(|(name, _)| name.starts_with("agents/") && name.ends_with(".jsonl"))
            .unwrap()
    };
    let ((own, good), (strange, bytes)) = (bundle(&world), bundle(&other));
    // As a copy of the other sweep's files would leave it.
    let path = world.path("results/s").join(&strange);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, &bytes).unwrap();
    said(&world, "which `claims/` does not know, in agents/");
    check_losses(&world, "a bundle of another sweep");
    fs::remove_file(&path).unwrap();
    assert!(!losses(&world).1);
    // Under the name of the agent that the sweep knows.
    let path = world.path("results/s").join(&own);
    fs::write(&path, &bytes).unwrap();
    said(&world, &format!(" in {own} (restore"));
    check_losses(&world, "another agent's bundle");
    fs::remove_file(&path).unwrap();
    said(&world, &format!("{own} does not exist, although other files refer to it"));
    fs::write(&path, &good).unwrap();
    fs::remove_dir_all(world.path("results/s/claims")).unwrap();
    said(&world, "which `claims/` does not know, in agents/");
}

#[test]
fn folders_that_other_files_refer_to_are_missed() {
    let world = crate::support::slurm::slurm();
    world.write("plan.toml", &shell("true", "[grid]\nx = [1, 2]\n[schedule]\nmax_running = 9\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let set = |from: &str, to: &str| {
        fs::rename(world.path("results/s").join(from), world.path("results/s").join(to)).unwrap();
    };
    for (folder, first) in [("trials", "000000000000"), ("waves", "0001")] {
        set(folder, "gone");
        let status = world.run(&["status"]);
        let words =
            format!("{folder}/{first}.json does not exist, although other files refer to it");
        assert!(status.whole().contains(&words) && status.code == 1, "{}", status.whole());
        set("gone", folder);
    }
}

/// Two sweeps of one plan in another order, of which files are swapped, copied over each other and removed: a trial has its own
/// loss or none, and if it has none a reader says why.
#[test]
fn no_swapped_and_no_removed_file_gives_a_trial_the_result_of_another() {
    for (name, begin) in [("workers", submitted as fn(&World, &str)), ("agents", pulled)] {
        let (world, other) = (World::new(), World::new());
        begin(&world, "1, 2");
        begin(&world, "1, 2, 3, 4");
        begin(&other, "4, 3");
        begin(&other, "4, 3, 2, 1");
        let dir = world.path("results/s");
        let (good, strange) = (files(&dir), files(&other.path("results/s")));
        assert_eq!(losses(&world), ((1..=4).map(|x| (x, json!(x))).collect(), false), "{name}");
        let names: Vec<&String> = good
            .keys()
            .filter(|name| {
                ["records", "agents", "trials", "claims"].iter().any(|own| name.starts_with(own))
            })
            .collect();
        let mut dice = Dice(7);
        let look = |change: &str, changed: Vec<(&String, Option<&Vec<u8>>)>| {
            for (name, bytes) in &changed {
                match bytes {
                    Some(bytes) => fs::write(dir.join(name), bytes).unwrap(),
                    None => fs::remove_file(dir.join(name)).unwrap(),
                }
            }
            let _ = fs::remove_dir_all(dir.join("index"));
            let (rows, is_said) = losses(&world);
            let what = format!(
                "{name}: {change} {:?}",
                changed.iter().map(|own| own.0).collect::<Vec<_>>()
            );
            for (x, loss) in &rows {
                assert!(
                    *loss == json!(x) || (loss.is_null() && is_said),
                    "{what}: x = {x} has the loss {loss}"
                );
            }
            assert!(rows.len() == 4 || is_said, "{what}: {rows:?}");
            changed.iter().for_each(|(name, _)| fs::write(dir.join(name), &good[*name]).unwrap());
        };
        for one in &names {
            look("removed", vec![(one, None)]);
            if let Some(bytes) = strange.get(*one) {
                look("of the other sweep", vec![(one, Some(bytes))]);
            }
        }
        for _ in 0..30 {
            let (a, b) = (
                names[dice.below(names.len() as u64) as usize],
                names[dice.below(names.len() as u64) as usize],
            );
            look("copied over", vec![(a, Some(&good[b]))]);
            look("swapped", vec![(a, Some(&good[b])), (b, Some(&good[a]))]);
        }
    }
}
