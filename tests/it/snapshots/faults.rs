//! `[snapshot]` and faults: full disks, kills, other users, files that change or cannot be read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::faults::{Dice, in_own_mounts};
use crate::support::plans::shell;
use crate::support::slurm::remembering_slurm;
use crate::support::snapshots::{job, objects_are_there, plan, ran, stored, submissions};
use crate::support::world::{PROGRAM, World, wait_until};

const NOBODY: u32 = 65534;

/// What is in the folder of snapshots that no submission names: snapshots, lists, contents and files aside.
fn left_behind(world: &World) -> Vec<String> {
    let code = "results/s/code";
    let named: BTreeSet<String> = submissions(world)
        .iter()
        .filter_map(|own| Some(own["snapshot"].as_str()?.to_owned()))
        .collect();
    let mut contents = BTreeSet::new();
    for name in &named {
        let list: Value =
            serde_json::from_str(&world.read(&format!("{code}/{name}.json"))).unwrap();
        for file in list["files"].as_object().unwrap().values() {
            let ending = if file["executable"] == true { ".x" } else { "" };
            contents.insert(format!("{}{ending}", file["hash"].as_str().unwrap()));
        }
    }
    let is_known = |path: &str| match path.split_once('/') {
        None => path.strip_suffix(".json").is_some_and(|name| named.contains(name)),
        Some(("objects", rest)) => contents.contains(rest.split_once('/').unwrap().1),
        Some(("submissions", _)) => true,
        Some((first, _)) => named.contains(first),
    };
    world.files(code).into_iter().filter(|path| !is_known(path)).collect()
}

#[test]
fn a_disk_that_is_full_while_code_is_stored_leaves_no_snapshot_and_no_trial() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    job(&world, "old");
    world.write("good", "");
    for i in 0..40 {
        world.write(&format!("many/{i:02}"), &format!("{i}").repeat(10_000));
    }
    world.write("plan.toml", &plan("ignore = [\"/home/\", \"/events\"]", "[0]"));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --local -q; echo full: $?
        find results/s/code -name '.*' -o -path '*/code/????????????????????????????????*' | grep -v objects
        ls results/s/trials 2>/dev/null
        mount -o remount,size=8m results
        '{PROGRAM}' submit plan.toml --local -q; echo free: $?
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'
        ls results/s/code/*/many | wc -l"
    );
    let Some(ran) = in_own_mounts(&world, &script) else { panic!("no mounts") };
    let (first, rest) = ran.err.split_once('\n').unwrap();
    assert!(
        first.starts_with("error: cannot store `$WORLD/many/")
            && first.ends_with("`: no space left on device"),
        "{}",
        ran.whole()
    );
    assert_eq!(
        rest,
        "hint: free some space (or inodes) and run the same command again; nothing is lost\n"
    );
    assert_eq!(ran.out, "full: 4\nfree: 0\n\"counts\":{\"done\":1}\n40\n", "{}", ran.whole());
}

#[test]
fn submits_at_the_same_time_store_the_code_once() {
    let world = World::new();
    job(&world, "old");
    world.write("good", "");
    for i in 0..50 {
        world.write(&format!("many/{i}"), &format!("{i}").repeat(20_000));
    }
    world.write("plan.toml", &plan("ignore = [\"/home/\", \"/events\"]", "[0, 1, 2]"));
    let all: Vec<_> =
        (0..6).map(|_| world.start(&["submit", "plan.toml", "--local", "-q"])).collect();
    let codes: Vec<i32> = all.into_iter().map(|started| started.end(&world).code).collect();
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 4].contains(code)), "{codes:?}");
    assert_eq!(ran(&world), "0 old, 1 old, 2 old");
    assert_eq!((submissions(&world).len(), stored(&world).len()), (1, 53));
    assert_eq!(left_behind(&world), [""; 0]);
}

/// Every submission has other code. Each trial belongs to the code of the submission that added it, whenever others were
/// killed.
#[test]
fn killed_at_any_moment_a_trial_has_the_code_of_the_submission_that_added_it() {
    let world = remembering_slurm();
    for i in 0..60 {
        world.write(&format!("many/{i}"), &format!("{i}").repeat(5_000));
    }
    let ignore = "ignore = [\"/home/\", \"/bin/\", \"/tmp/\", \"/jobs\", \"/plan.toml\"]";
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut kills, mut version, mut expected) = (0, 0, Vec::new());
    let mut trials = 0;
    while kills < 15 {
        trials += 2;
        assert!(trials < 60, "only {kills} kills hit");
        let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
        world.write("plan.toml", &plan(ignore, &format!("[{}]", numbers.join(", "))));
        loop {
            version += 1;
            job(&world, &version.to_string());
            world.write("many/7", &format!("{version}").repeat(5_000));
            let mut started = world.start(&["submit", "plan.toml", "--slurm", "-q"]);
            if kills < 15 {
                std::thread::sleep(Duration::from_micros(dice.below(120_000)));
                let alive = matches!(started.child.try_wait(), Ok(None));
                kills += u32::from(alive && started.child.kill().is_ok());
            }
            let ended = started.end(&world);
            assert!([0, 137].contains(&ended.code), "{}", ended.whole());
            let total = match world.exists("results/s/sweep.json") {
                true => {
                    world.run(&["collect", "--offline", "--format", "jsonl"]).ok().lines().count()
                }
                false => 0,
            };
            expected.resize(total, version);
            if ended.code == 0 {
                break;
            }
        }
    }
    let own: Vec<Value> = submissions(&world);
    let version_of = |trial: usize| -> i32 {
        let covers = |ids: &str| {
            ids.split(',').any(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                (first.parse().unwrap()..=last.parse().unwrap()).contains(&trial)
            })
        };
        let last = own.iter().rfind(|own| covers(own["trials"].as_str().unwrap())).unwrap();
        let job = format!("results/s/code/{}/job.sh", last["snapshot"].as_str().unwrap());
        world.read(&job).split_once("TRIAL ").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
    };
    let found: Vec<i32> = (0..expected.len()).map(version_of).collect();
    assert_eq!((found.len(), &found), (trials, &expected));
    // Nothing is left of the submissions that were killed.
    assert_eq!(left_behind(&world), [""; 0]);
}

#[test]
fn a_plan_without_a_snapshot_has_nothing_of_a_submission_that_was_killed() {
    let world = remembering_slurm();
    job(&world, "old");
    world.write("good", "");
    // It is killed when its trials have their code, and are not in the table yet.
    world.write("results/s/code/keep", "");
    let ignore = "ignore = [\"/home/\", \"/bin/\", \"/tmp/\", \"/jobs\"]";
    world.write("plan.toml", &plan(ignore, "[0]"));
    world.run(&["submit", "plan.toml", "--slurm", "-q"]).ok();
    for name in ["trials", "waves", "journal", "plans", "jobs"] {
        let _ = fs::remove_dir_all(world.path(&format!("results/s/{name}")));
    }
    job(&world, "new");
    let text = plan(ignore, "[0]");
    world.write("plan.toml", &text.replace("[snapshot]\n", "").replace(ignore, ""));
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    assert_eq!(ran(&world), "0 new");
}

#[test]
fn a_file_that_changes_while_others_are_stored_is_stored_as_it_is_then() {
    let world = World::new();
    job(&world, "old");
    world.write("good", "");
    for i in 0..400 {
        world.write(&format!("many/{i}"), &format!("{i}").repeat(20_000));
    }
    world.write("zz", "before");
    world.write("plan.toml", &plan("", "[0]"));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("it stores", || objects_are_there(&world));
    started.signal(Signal::SIGSTOP);
    assert!(!world.exists("results/s/code/submissions"), "it was faster than the signal");
    world.write("zz", "after");
    fs::remove_file(world.path("many/399")).unwrap();
    started.signal(Signal::SIGCONT);
    started.end(&world).ok();
    let name = submissions(&world)[0]["snapshot"].as_str().unwrap().to_owned();
    assert_eq!(world.read(&format!("results/s/code/{name}/zz")), "after");
    let many = stored(&world).iter().filter(|name| name.starts_with("many/")).count();
    assert_eq!((ran(&world).as_str(), many), ("0 old", 399));
    assert_eq!(left_behind(&world), [""; 0]);
}

#[test]
fn a_file_and_a_folder_that_cannot_be_read_are_named() {
    let world = World::new();
    if !world.give(NOBODY, "own", &plan("", "[0]")) {
        return;
    }
    let secret = world.path("own/secret");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let submit = || world.run_as_after(NOBODY, ":", "own", &["submit", "plan.toml", "--local"]);
    let refused = submit().unwrap();
    let hint = "hint: leave it out with `[snapshot] ignore`, or open it\nexit code 4\n";
    let said = format!("error: cannot read `$WORLD/own/secret`: permission denied\n{hint}");
    assert_eq!(refused.whole(), said);
    fs::remove_file(&secret).unwrap();
    fs::create_dir(&secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    let refused = submit().unwrap();
    assert_eq!(refused.whole(), said.replace("read", "list"));
    assert!(!world.exists("own/results/s/trials"));
}

/// Members of the group share a sweep: each adds trials with their own code, and a member's submission cleans up what that
/// of another has left.
#[test]
fn members_of_the_group_store_code_in_one_sweep() {
    let world = World::new();
    if !world.give(NOBODY, "own", "") {
        return;
    }
    let _ = chown(world.path("own"), None, Some(NOBODY));
    fs::set_permissions(world.path("own"), fs::Permissions::from_mode(0o2775)).unwrap();
    let shared = |grid: &str| {
        plan("ignore = [\"/events\", \"/good\"]", grid)
            .replace("sweep.name", "sweep.shared = \"group\"\nsweep.name")
    };
    job(&world, "mine");
    fs::rename(world.path("job.sh"), world.path("own/job.sh")).unwrap();
    fs::set_permissions(world.path("own/job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    world.write("own/good", "");
    world.write("own/plan.toml", &shared("[0]"));
    // Root is the first member.
    let first = world.run_in("own", &["submit", "plan.toml", "--local"]);
    first.ok();
    // What a killed submission of root leaves.
    world.write("own/results/s/code/.new-1/x", "x");
    fs::set_permissions(
        world.path("own/results/s/code/.new-1"),
        fs::Permissions::from_mode(0o2775),
    )
    .unwrap();
    chown(world.path("own/results/s/code/.new-1"), None, Some(NOBODY)).unwrap();
    fs::remove_file(world.path("own/events")).unwrap();
    world.write("own/plan.toml", &shared("[0, 1]"));
    world.write("own/more", "more");
    let line = "umask 002";
    let args = ["submit", "plan.toml", "--local"];
    let second = world.run_as_after(NOBODY, line, "own", &args).unwrap();
    second.ok();
    assert_eq!(world.read("own/events"), "1 mine\n");
    assert!(!world.exists("own/results/s/code/.new-1"));
    // Both can read all of it, and nobody can write to what is stored.
    for file in world.files("own/results/s/code") {
        let about = fs::symlink_metadata(world.path("own/results/s/code").join(&file)).unwrap();
        let is_stored = !file.ends_with(".json") && !file.ends_with(".diff");
        assert_eq!(about.mode() & 0o440, 0o440, "{file}");
        assert!(!is_stored || about.mode() & 0o222 == 0, "{file}");
    }
}

#[test]
fn readers_of_a_sweep_can_read_its_code_and_nobody_else() {
    // The folder of a sweep for its owner alone is closed.
    for (word, bits, folder) in
        [("all", 0o444, 0o755), ("group", 0o440, 0o750), ("owner", 0o440, 0o700)]
    {
        let world = World::new();
        world.write("tool.sh", "true");
        let text = shell("sh ./tool.sh", "[snapshot]\nignore = [\"/home/\"]\n")
            .replace("name = \"s\"", &format!("name = \"s\"\nreadable_by = \"{word}\""));
        world.write("plan.toml", &text);
        let line = "umask 027; exec \"$0\" \"$@\"";
        world.call("bash", &["-c", line, PROGRAM, "submit", "plan.toml", "--local"]).ok();
        let name = submissions(&world)[0]["snapshot"].as_str().unwrap().to_owned();
        let mode = |path: &str| {
            let path = world.path("results/s/code").join(path);
            fs::metadata(path).unwrap().mode() & 0o777
        };
        assert_eq!(mode(&format!("{name}/tool.sh")), bits, "{word}");
        assert_eq!(mode(&format!("{name}.json")) & 0o444, bits, "{word}");
        assert_eq!(mode("..") & 0o777, folder, "{word}");
    }
}
