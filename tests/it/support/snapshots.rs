//! A sweep with `[snapshot]`, and what is stored of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::support::world::World;

/// A plan whose trials run `./job.sh`.
pub(crate) fn plan(rest: &str, grid: &str) -> String {
    format!(
        "version = 1\nsweep.name = \"s\"\nrun.command = [\"./job.sh\"]\n[snapshot]\n{rest}\n[grid]\ni = {grid}\n"
    )
}

/// The program of the trials prints its version and succeeds where there is a file `good` in the plan's folder.
pub(crate) fn job(world: &World, version: &str) {
    let code = format!(
        "#!/bin/sh\necho \"$HPCSWEEP_TRIAL {version}\" >>$HPCSWEEP_SOURCE/events\n\
         [ -e $HPCSWEEP_SOURCE/good ] || exit 3\n"
    );
    fs::write(world.path("job.sh"), code).unwrap();
    fs::set_permissions(world.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// What has run since the last question.
pub(crate) fn ran(world: &World) -> String {
    if !world.exists("events") {
        return String::new();
    }
    let mut ran: Vec<String> = world.read("events").lines().map(str::to_owned).collect();
    fs::remove_file(world.path("events")).unwrap();
    ran.sort();
    ran.join(", ")
}

/// The records of submissions, in order.
pub(crate) fn submissions(world: &World) -> Vec<Value> {
    let folder = "results/s/code/submissions";
    let mut names = world.files(folder);
    names.retain(|name| name.ends_with(".json"));
    names.sort();
    names
        .iter()
        .map(|name| serde_json::from_str(&world.read(&format!("{folder}/{name}"))).unwrap())
        .collect()
}

/// The files of the snapshot of the last submission.
pub(crate) fn stored(world: &World) -> Vec<String> {
    let last = submissions(world).pop().unwrap();
    let name = last["snapshot"].as_str().unwrap().to_owned();
    let mut files = world.files(&format!("results/s/code/{name}"));
    files.sort();
    files
}

pub(crate) fn objects(world: &World) -> usize {
    world.files("results/s/code/objects").len()
}

pub(crate) fn git(world: &World, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(world.path("")).args(["-c", "user.name=a", "-c", "user.email=a@b"]);
    let out = git.args(args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

pub(crate) fn objects_are_there(world: &World) -> bool {
    world.path("results/s/code/objects").read_dir().is_ok_and(|mut all| all.next().is_some())
}
