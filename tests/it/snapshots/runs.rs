//! `[snapshot]`: trials run the code that was there when they were submitted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::snapshots::{
    git, job, objects, objects_are_there, plan, ran, stored, submissions,
};
use crate::support::world::{World, wait_until};

#[test]
fn trials_keep_their_code_until_the_current_code_is_asked_for() {
    let world = World::new();
    job(&world, "old");
    let ignore = "ignore = [\"/home/\", \"/events\", \"/good\"]";
    let first = world.local(&plan(ignore, "[0, 1]"), &["-j", "1"]);
    assert_eq!((first.code, ran(&world).as_str()), (1, "0 old, 1 old"), "{}", first.whole());
    // An edit does not reach them, also if the plan grows by a trial with the new code.
    job(&world, "new");
    world.write("good", "");
    world.write("plan.toml", &plan(ignore, "[0, 1, 2]"));
    let grown = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(ran(&world), "2 new");
    let said = "job.sh changed: 2 trials have the old one\n\
        `--retry --current-code` runs trials again with the code as it is now\n";
    assert!(grown.err.starts_with(said), "{}", grown.err);
    job(&world, "newest");
    assert_eq!(world.run(&["retry", "0"]).code, 1);
    assert_eq!(ran(&world), "0 old");
    world.run(&["retry", "1", "--current-code"]).ok();
    assert_eq!(ran(&world), "1 newest");
    let trials: Vec<Value> = submissions(&world).iter().map(|s| s["trials"].clone()).collect();
    assert_eq!(trials, [json!("0-1"), json!("2"), json!("1")]);
    // Each attempt names what it ran.
    let named = |trial: u64, run: u32| -> Value {
        let record = world.read(&format!("results/s/records/000/{trial}.{run}.jsonl"));
        let start: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
        start["snapshot"].clone()
    };
    let of: Vec<Value> = submissions(&world).iter().map(|s| s["snapshot"].clone()).collect();
    assert_eq!(
        [named(0, 1), named(0, 2), named(1, 1)],
        [of[0].clone(), of[0].clone(), of[0].clone()]
    );
    assert_eq!([named(2, 1), named(1, 2)], [of[1].clone(), of[2].clone()]);
    // All are done: nothing would run again.
    job(&world, "last");
    let done = world.run(&["submit", "plan.toml", "--local"]);
    let changed = "job.sh changed: 1 trial has the old one\n".repeat(3);
    let said = format!(
        "{changed}s: nothing left to run\nresults: $WORLD/results/s\n\
         for the results: hpcsweep collect results/s; hpcsweep report results/s\n"
    );
    assert_eq!((done.code, done.err), (0, said));
}

#[test]
fn a_snapshot_that_was_changed_runs_no_trial_until_its_code_is_stored_anew() {
    for way in [&["--local"][..], &["--local", "--pull"]] {
        let world = World::new();
        job(&world, "old");
        world.write("lib", "1\n");
        let ignore = "ignore = [\"/home/\", \"/events\", \"/good\", \"/plan.toml\"]";
        world.write("plan.toml", &plan(ignore, "[0]"));
        let submit =
            |more: &[&str]| world.run(&[&["submit", "plan.toml", "-q"], way, more].concat()).code;
        assert_eq!((submit(&[]), ran(&world).as_str()), (1, "0 old"));
        let name = submissions(&world)[0]["snapshot"].as_str().unwrap().to_owned();
        let snapshot = format!("results/s/code/{name}");
        // The content changes, and not the length: also of the object, which is the same file.
        let file = world.path(&snapshot).join("job.sh");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, fs::read_to_string(&file).unwrap().replace("old", "bad")).unwrap();
        world.write("good", "");
        let why = |sentence: &str| {
            let status = world.status();
            let trial = &status["trials"][0];
            assert_eq!(
                (&trial["state"], &trial["cause"]),
                (&json!("failed"), &json!("code-changed"))
            );
            let reason = trial["reason"].as_str().unwrap();
            let said = world.shown(reason.as_bytes());
            let hint = "restore it, or run the trial with the code as it is now: `submit --retry --current-code`";
            assert_eq!(said, format!("{sentence}; hint: {hint}"));
        };
        assert_eq!((submit(&["--retry"]), ran(&world).as_str()), (1, ""));
        why(&format!("`$WORLD/{snapshot}/job.sh` changed after it was stored"));
        fs::remove_file(world.path(&snapshot).join("lib")).unwrap();
        assert_eq!((submit(&["--retry"]), ran(&world).as_str()), (1, ""));
        why(&format!("`$WORLD/{snapshot}/job.sh` and 1 further file changed after it was stored"));
        assert_eq!((submit(&["--retry", "--current-code"]), ran(&world).as_str()), (0, "0 old"));
        assert_eq!(stored(&world), ["job.sh", "lib"]);
        assert_eq!(world.read(&format!("{snapshot}/lib")), "1\n");
    }
}

#[test]
fn jobs_that_wait_in_the_queue_keep_their_code() {
    let pbs = Pbs::start();
    let world = &pbs.world;
    let code = "#!/bin/sh\nuntil [ -e $HPCSWEEP_SOURCE/go ]; do sleep 0.01; done\n\
        echo \"$HPCSWEEP_TRIAL old\" >>$HPCSWEEP_SOURCE/events\n";
    world.write("job.sh", code);
    fs::set_permissions(world.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    // The second link is queued until the first has ended.
    let text = plan("ignore = [\"/pbs\", \"/go\"]\n[defaults]\ntask_id = 1", "[0, 1]");
    pbs.submit(&text, &[]).ok();
    job(world, "new");
    world.write("go", "");
    pbs.wait_idle();
    assert_eq!(ran(world), "0 old, 1 old");
    assert_eq!(pbs.standings(), ["done", "done"]);
}

#[test]
fn agents_run_the_code_of_the_submission() {
    let world = World::new();
    job(&world, "old");
    world.write("plan.toml", &plan("ignore = [\"/home/\", \"/events\", \"/good\"]", "[0, 1]"));
    let first = world.run(&["submit", "plan.toml", "--local", "--pull"]);
    assert_eq!((first.code, ran(&world).as_str()), (1, "0 old, 1 old"), "{}", first.whole());
    job(&world, "new");
    world.write("good", "");
    let again = world.run(&["submit", "plan.toml", "--local", "--pull", "--retry"]);
    assert!(again.err.starts_with("job.sh changed: 2 trials have the old one\n"), "{}", again.err);
    assert_eq!(ran(&world), "0 old, 1 old");
}

#[test]
fn an_agent_reads_once_which_code_its_trials_run_until_there_is_a_new_submission() {
    let world = World::new();
    job(&world, "old");
    world.write("good", "");
    world.write(
        "job.sh",
        "#!/bin/sh\necho $HPCSWEEP_TRIAL old >>$HPCSWEEP_SOURCE/events\n\
        [ $HPCSWEEP_TRIAL != 0 ] || until [ -e $HPCSWEEP_SOURCE/go ]; do sleep 0.01; done\n",
    );
    world.write("plan.toml", &plan("ignore = [\"/home/\", \"/events\", \"/go\"]", "[0, 1]"));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at trial 0", || world.exists("events"));
    job(&world, "new");
    let submissions = world.path("results/s/code/submissions");
    std::fs::rename(&submissions, world.path("away")).unwrap();
    world.write("go", "");
    agent.end(&world).ok();
    assert_eq!(ran(&world), "0 old, 1 old");
}

#[test]
fn the_code_as_it_is_now_is_for_agents_too() {
    let world = World::new();
    job(&world, "old");
    world.write("plan.toml", &plan("ignore = [\"/home/\", \"/events\"]", "[0, 1]"));
    world.run(&["submit", "plan.toml", "--local", "--pull"]);
    job(&world, "new");
    ran(&world);
    let args = ["submit", "plan.toml", "--local", "--pull", "--retry", "--current-code"];
    world.run(&args);
    assert_eq!(ran(&world), "0 new, 1 new");
    let mut snapshots: Vec<Value> = world
        .written_by_agents("s", "start")
        .iter()
        .map(|start| start["snapshot"].clone())
        .collect();
    let of: Vec<Value> = submissions(&world).iter().map(|s| s["snapshot"].clone()).collect();
    let mut expected = [of[0].clone(), of[0].clone(), of[1].clone(), of[1].clone()];
    let by_name = |a: &Value, b: &Value| a.as_str().cmp(&b.as_str());
    snapshots.sort_by(by_name);
    expected.sort_by(by_name);
    assert_eq!(snapshots, expected);
}

#[test]
fn a_snapshot_has_what_is_not_ignored_with_modes_and_links() {
    let world = World::new();
    job(&world, "old");
    for file in ["good", "lib/a.py", "lib/b.log", "data/big.h5", ".hidden", "keep.txt", "skip.txt"]
    {
        world.write(file, file);
    }
    world.write(".gitignore", "*.log\n");
    symlink("lib/a.py", world.path("link.py")).unwrap();
    symlink("data", world.path("far")).unwrap();
    nix::unistd::mkfifo(&world.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = plan("ignore = [\"/home/\", \"/data/\", \"skip.*\"]", "[0]");
    let first = world.local(&text, &[]);
    first.ok();
    assert!(
        first.err.contains("/pipe` is neither a file nor a folder: it is not part of"),
        "{}",
        first.err
    );
    let expected = [
        ".gitignore",
        ".hidden",
        "far",
        "good",
        "job.sh",
        "keep.txt",
        "lib/a.py",
        "link.py",
        "plan.toml",
    ];
    assert_eq!(stored(&world), expected);
    let name = submissions(&world)[0]["snapshot"].as_str().unwrap().to_owned();
    let folder = world.path("results/s/code").join(&name);
    // What lies in the snapshot is found there; what does not, where it is.
    assert_eq!(fs::read_link(folder.join("link.py")).unwrap().to_str(), Some("lib/a.py"));
    assert_eq!(fs::read_link(folder.join("far")).unwrap(), world.path("data"));
    let mode = |name: &str| folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("job.sh") & 0o333, mode("keep.txt") & 0o333), (0o111 & mode("job.sh"), 0));
    assert_eq!(mode("job.sh") & 0o500, 0o500);
}

#[test]
fn the_next_submission_stores_what_has_changed() {
    let world = World::new();
    job(&world, "old");
    for file in ["good", "a", "b", "c"] {
        world.write(file, file);
    }
    world.write("same", "a");
    let ignore = "ignore = [\"/home/\", \"/events\"]";
    let first = world.local(&plan(ignore, "[0]"), &[]);
    // Two files of one content are one object.
    let (had, files) = (objects(&world), stored(&world).len());
    assert_eq!(had + 1, files, "{}", first.err);
    world.write("b", "another");
    world.write("plan.toml", &plan(ignore, "[0, 1]"));
    let second = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!((objects(&world), stored(&world).len()), (had + 2, files));
    assert!(second.err.contains(" files, 2 files stored, "), "{}", second.err);
    // Without a new trial nothing is stored.
    world.write("c", "yet another");
    let third = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!((objects(&world), submissions(&world).len()), (had + 2, 2));
    let said = "b and c changed: 1 trial has the old ones\n";
    assert!(third.err.contains(said), "{}", third.err);
    assert!(third.err.contains("c changed: 1 trial has the old one\n"), "{}", third.err);
}

#[test]
fn commit_branch_and_the_difference_to_them_are_recorded() {
    let mut world = World::new();
    world.set("LOADEDMODULES", "gcc/12:cuda/12.4");
    job(&world, "old");
    world.write("good", "");
    world.write("plan.toml", &plan("packages = [\"echo\", \"numpy==2.0\"]", "[0]"));
    git(&world, &["init", "-q", "-b", "trunk"]);
    git(&world, &["add", "job.sh", "good", "plan.toml"]);
    git(&world, &["commit", "-q", "-m", "first"]);
    job(&world, "new");
    world.run(&["submit", "plan.toml", "--local"]).ok();
    let own = &submissions(&world)[0];
    let commit = git(&world, &["rev-parse", "HEAD"]);
    assert_eq!(own["git"], json!({"commit": commit, "branch": "trunk", "dirty": true}));
    assert_eq!(own["modules"], json!(["gcc/12", "cuda/12.4"]));
    let folder = "results/s/code/submissions";
    assert_eq!(world.read(&format!("{folder}/0001.packages.txt")), "numpy==2.0\n");
    // The difference is a patch for that commit.
    let diff = world.path(folder).join("0001.diff");
    git(&world, &["checkout", "-q", "job.sh"]);
    assert!(world.read("job.sh").contains("old"));
    git(&world, &["apply", diff.to_str().unwrap()]);
    assert!(world.read("job.sh").contains("new"));
}

#[test]
fn without_a_repository_nothing_of_git_is_recorded() {
    let world = World::new();
    job(&world, "old");
    world.write("good", "");
    world.local(&plan("packages = [\"nope\"]", "[0]"), &[]).ok();
    let own = &submissions(&world)[0];
    assert_eq!((&own["git"], &own["modules"]), (&Value::Null, &Value::Null));
    assert_eq!(
        own["no_packages"].as_str().unwrap(),
        "cannot start `nope`: no such file or directory"
    );
}

#[test]
fn code_beside_the_plan_s_folder_is_stored_with_it() {
    let world = World::new();
    world.write("src/tool.sh", "echo tool >>$HPCSWEEP_SOURCE/said\n");
    let text = "version = 1\nsweep.name = \"s\"\nrun.command = [\"sh\", \"../src/tool.sh\"]\n\
        [snapshot]\npaths = [\".\", \"../src\"]\n";
    world.write("exp/plan.toml", text);
    world.run_in("exp", &["submit", "plan.toml", "--local"]).ok();
    assert_eq!(world.read("exp/said"), "tool\n");
    let own = world.read("exp/results/s/code/submissions/0001.json");
    let own: Value = serde_json::from_str(&own).unwrap();
    assert_eq!((own["workdir"].as_str(), own["trials"].as_str()), (Some("exp"), Some("0")));
}

#[test]
fn what_cannot_be_stored_is_refused_and_adds_no_trial() {
    let world = World::new();
    let text = plan("paths = [\"src\"]", "[0]");
    let refused = world.local(&text, &[]);
    assert_eq!(refused.code, 2, "{}", refused.whole());
    let said = "error: cannot store `$WORLD/src`: no such file or directory\nhint: correct `[snapshot] paths`\n";
    assert_eq!(refused.err, said);
    assert!(!world.exists("results/s/trials"));
}

#[test]
fn a_submission_that_is_killed_while_it_stores_is_completed_by_the_next() {
    let world = World::new();
    job(&world, "old");
    world.write("good", "");
    for i in 0..400 {
        world.write(&format!("many/{i}"), &format!("{i}").repeat(50_000));
    }
    world.write("plan.toml", &plan("", "[0]"));
    let mut started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("it stores", || objects_are_there(&world));
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    assert!(!world.exists("events"), "it was faster than the kill");
    // Nothing half done counts, and nothing of it stays.
    world.run(&["submit", "plan.toml", "--local"]).ok();
    assert_eq!(ran(&world), "0 old");
    assert_eq!(stored(&world).iter().filter(|name| name.starts_with("many/")).count(), 400);
    let own = submissions(&world).pop().unwrap();
    let name = own["snapshot"].as_str().unwrap();
    let names: Vec<String> = fs::read_dir(world.path("results/s/code"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|entry| entry.starts_with('.'))
        .collect();
    assert_eq!(names, Vec::<String>::new());
    for i in [0, 17, 399] {
        let text = world.read(&format!("results/s/code/{name}/many/{i}"));
        assert!(text == format!("{i}").repeat(50_000), "{i}");
    }
}
