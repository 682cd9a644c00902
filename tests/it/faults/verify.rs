//! `hpcsweep verify`: what it reports, and that no file that is gone or in the place of another changes an answer without a word of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::plans::shell;
use crate::support::world::{ROOT, World};

/// The findings about a sweep, each as its file and what is wrong with it. `None`: it cannot be read.
fn findings(world: &World, sweep: &str) -> Option<Vec<String>> {
    let ran = world.run(&["verify", sweep, "--json"]);
    if ran.code > 1 {
        return None;
    }
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap().to_owned();
    let all: Vec<String> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| format!("{} {}", text(finding, "file"), text(finding, "what")))
        .collect();
    assert_eq!(ran.code, i32::from(!all.is_empty()), "{}", ran.whole());
    Some(all)
}

/// What readers say of a sweep.
fn answers(world: &World, sweep: &str) -> [String; 2] {
    let status = world.run(&["status", sweep, "--offline", "--json"]).whole();
    [status, world.run(&["collect", sweep, "--offline", "--format", "records"]).whole()]
}

#[test]
fn a_sweep_whose_files_fit_is_said_to_fit_and_is_not_written_to() {
    let world = World::new();
    world.local(&shell("echo 1 >$HPCSWEEP_RESULT", "[grid]\na = [1, 2]\n"), &["-q"]).ok();
    let before = world.files("results");
    let ran = world.run(&["verify"]);
    assert_eq!(ran.ok(), "$WORLD/results/s: all files fit\n");
    assert_eq!(world.files("results"), before);
    fs::remove_file(world.path("results/s/records/000/1.1.jsonl")).unwrap();
    fs::remove_file(world.path("results/s/plan.toml")).unwrap();
    let ran = world.run(&["verify"]);
    assert_eq!(
        (ran.code, ran.out),
        (
            1,
"$WORLD/results/s: 2 findings\n\
                 \x20 plan.toml does not exist, although the sweep has trials (restore the file from a backup)\n\
                 \x20 records/000/1.1.jsonl does not exist, although other files refer to it (restore the file from a backup)\n"
                .to_owned()
        )
    );
    fs::remove_file(world.path("results/s/sweep.json")).unwrap();
    assert_eq!(world.run(&["verify", "results/s"]).code, 2);
}

#[test]
fn stored_code_is_compared_with_its_hashes() {
    let world = World::new();
    world.write("job.sh", "#!/bin/sh\necho 1 >$HPCSWEEP_RESULT\n");
    world.call("chmod", &["+x", &world.text_path("job.sh")]).ok();
    let plan = "version = 1\nsweep.name = \"s\"\nrun.command = [\"./job.sh\"]\n[snapshot]\n[grid]\ni = [1]\n";
    world.local(plan, &["-q"]).ok();
    assert_eq!(findings(&world, "results/s").unwrap(), [""; 0]);
    let code = world.files("results/s/code");
    let file = code.iter().find(|file| file.ends_with("/job.sh")).unwrap();
    let path = world.path(&format!("results/s/code/{file}"));
    world.call("chmod", &["u+w", path.to_str().unwrap()]).ok();
    fs::write(&path, "#!/bin/sh\necho 2 >$HPCSWEEP_RESULT\n").unwrap();
    let expected = format!("code/{file} is missing, or has changed after it was stored");
    assert_eq!(findings(&world, "results/s").unwrap(), [expected]);
    fs::remove_file(world.path("results/s/code/submissions/0001.json")).unwrap();
    let found = findings(&world, "results/s").unwrap();
    assert!(
        found[0].starts_with("code/submissions have no submission with the code of trial 0"),
        "{found:?}"
    );
}

/// The sweeps of the corpus, unpacked: by name, where each is.
fn corpus(world: &World) -> BTreeMap<String, String> {
    let cases = Path::new(ROOT).join("tests/cases");
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(cases.join("views")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if let Some(name) = file.strip_suffix(".tar.gz") {
            let to =
                ["-xzf", path.to_str().unwrap(), "--no-same-owner", "-C", &world.text_path("")];
            world.call("tar", &to).ok();
            all.insert(name.to_owned(), format!("{name}/results/{name}"));
        }
    }
    for (tree, sweeps) in
        [("tree-1", &["given", "old", "pulled"][..]), ("tree-2", &["given", "pulled"])]
    {
        world.call("cp", &["-r", cases.join(tree).to_str().unwrap(), &world.text_path(tree)]).ok();
        world.call("chmod", &["-R", "go-w", &world.text_path(tree)]).ok();
        all.extend(
            sweeps.iter().map(|sweep| (format!("{tree} {sweep}"), format!("{tree}/{sweep}"))),
        );
    }
    assert!(all.len() > 10, "{all:?}");
    all
}

/// Files that say nothing of themselves: what programs printed, and what is made of other files.
fn is_checked(file: &str) -> bool {
    let is_log = Path::new(file).extension().is_some_and(|ending| ending == "log");
    !is_log && !["index/", "jobs/", "work/"].iter().any(|folder| file.starts_with(folder))
}

/// The kind of a file: its name without numbers and names of agents.
fn kind(file: &str) -> String {
    let place = file.split('/').next().unwrap();
    let ending = file.rsplit('.').next().unwrap();
    format!("{place} {ending}")
}

/// What was changed in a sweep, if its answers are others and `verify` says no more than `before`.
fn silent(world: &World, sweep: &str, before: &(Vec<String>, [String; 2])) -> bool {
    findings(world, sweep).is_some_and(|found| found == before.0)
        && answers(world, sweep) != before.1
}

#[test]
fn files_in_the_place_of_others_are_named() {
    let world = World::new();
    let sweeps = corpus(&world);
    let entry = |number: u32| format!("claims/000/{number:06}.json");
    for (name, (a, b), expected) in [
        (
            "packed",
            ("waves/0001.json".to_owned(), "waves/0002.json".to_owned()),
            "waves/0001.json has 1 damaged line",
        ),
        (
            "packed",
            ("waves/0001.map".to_owned(), "waves/0002.map".to_owned()),
            "waves/0001.map has 1 damaged line; 5 more findings about this file",
        ),
        (
            "agents",
            (entry(1), entry(2)),
            "claims/000/000001.json does not follow from the entries before it: agent `n0-32738-hqknymu2` has not joined",
        ),
        (
            "agents",
            (entry(4), entry(5)),
            "agents/f/n0-317-jkgrdkbf.jsonl began trial 2 after 4 entries of claims/, none of which gives it to this agent",
        ),
        (
            "agents",
            (entry(10), entry(11)),
            "claims/000/000011.json does not follow from the entries before it: agent `n0-317-jkgrdkbf` has written it before one of these",
        ),
    ] {
        let sweep = &sweeps[name];
        let path = |file: &str| world.path(&format!("{sweep}/{file}"));
        swap(&path(&a), &path(&b));
        assert_eq!(findings(&world, sweep).unwrap()[0], expected, "{a} {b}");
        swap(&path(&a), &path(&b));
    }
}

#[test]
fn a_file_that_is_gone_is_reported_or_changes_no_answer() {
    let world = World::new();
    let mut unnoticed = Vec::new();
    for (name, sweep) in corpus(&world) {
        let before = (findings(&world, &sweep).unwrap(), answers(&world, &sweep));
        assert!(before.0.is_empty() || name == "damaged", "{name}: {:?}", before.0);
        let files = world.files(&sweep);
        // No other file says that the newest journal has been there.
        let newest = files.iter().filter(|file| file.starts_with("journal/")).max();
        for file in files.iter().filter(|file| is_checked(file) && Some(*file) != newest) {
            let (path, aside) = (world.path(&format!("{sweep}/{file}")), world.path("aside"));
            fs::rename(&path, &aside).unwrap();
            if silent(&world, &sweep, &before) {
                unnoticed.push(format!("{name}: {file}"));
            }
            fs::rename(&aside, &path).unwrap();
        }
    }
    assert_eq!(unnoticed, [""; 0]);
}

#[test]
fn files_that_were_swapped_are_reported_or_change_no_answer() {
    let world = World::new();
    let mut unnoticed = Vec::new();
    for (name, sweep) in corpus(&world) {
        let before = (findings(&world, &sweep).unwrap(), answers(&world, &sweep));
        let files: Vec<String> =
            world.files(&sweep).into_iter().filter(|file| is_checked(file)).collect();
        let path = |file: &str| world.path(&format!("{sweep}/{file}"));
        for (at, a) in files.iter().enumerate() {
            for b in files[at + 1..].iter().filter(|b| kind(a) == kind(b)) {
                swap(&path(a), &path(b));
                if silent(&world, &sweep, &before) {
                    unnoticed.push(format!("{name}: {a} {b}"));
                }
                swap(&path(a), &path(b));
            }
        }
    }
    assert_eq!(unnoticed, [""; 0]);
}

fn swap(a: &PathBuf, b: &PathBuf) {
    let aside = a.with_extension("aside");
    fs::rename(a, &aside).unwrap();
    fs::rename(b, a).unwrap();
    fs::rename(&aside, b).unwrap();
}
