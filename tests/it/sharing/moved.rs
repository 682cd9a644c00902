//! Projects that were moved, copied and merged with their results: what has still to run runs in the folder of the plan.

use std::fs;

use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// A project in `a`, whose program fails; the failure says where it ran.
fn project() -> World {
    let world = World::new();
    world.write("a/plan.toml", &shell("pwd >>ran; ./program", "[grid]\na = [1, 2]\n"));
    program(&world, "a", "exit 3");
    assert_eq!(world.run_in("a", &["submit", "plan.toml", "--local", "-q"]).code, 1);
    world
}

fn program(world: &World, folder: &str, code: &str) {
    world.program("program", &format!("#!/bin/sh\n{code}\n"));
    let of = world.path(folder).join("program");
    fs::rename(world.path("bin/program"), of).unwrap();
}

fn note(world: &World, new: &str, old: &str) -> String {
    let (new, old) = (world.text_path(new), world.text_path(old));
    world.shown(
        format!("its earlier trials run in `{new}` from now on, not in `{old}`\n").as_bytes(),
    )
}

#[test]
fn a_project_that_was_moved_with_its_results_goes_on_where_it_is() {
    for way in [&["--local"][..], &["--local", "--pull"]] {
        let world = project();
        fs::rename(world.path("a"), world.path("b")).unwrap();
        fs::remove_file(world.path("b/ran")).unwrap();
        program(&world, "b", "exit 0");
        let again = [&["submit", "plan.toml", "--retry"], way].concat();
        let ran = world.run_in("b", &again);
        assert_eq!(ran.code, 0, "{}", ran.whole());
        assert!(ran.err.contains(&note(&world, "b", "a")), "{}", ran.whole());
        assert_eq!(world.shown(&fs::read(world.path("b/ran")).unwrap()), "$WORLD/b\n$WORLD/b\n");
        // It is said once.
        let ran = world.run_in("b", &again);
        assert!(!ran.err.contains("from now on"), "{}", ran.whole());
    }
}

/// A copy knows the jobs of its original, and does nothing about them.
#[test]
fn orders_about_a_copy_leave_the_jobs_of_its_original_alone() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let plan = shell("true", "[grid]\na = [1, 2]\n");
    pbs.world.write("a/plan.toml", &plan);
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    pbs.world.call("cp", &["-a", "a", "c"]).ok();
    for order in ["hold", "cancel", "release"] {
        assert_eq!(
            pbs.world.run_in("c", &[order, "plan.toml"]).whole(),
            format!(
                "error: the jobs of `$WORLD/c/results/s` belong to `$WORLD/a/results/s`, of which it is a copy\n\
                 hint: hpcsweep {order} $WORLD/a/results/s\nexit code 2\n"
            )
        );
    }
    assert!(pbs.states().iter().all(|(_, state)| state == "Q"), "{:?}", pbs.states());
    let named = pbs.world.run_in("c", &["cancel", "plan.toml", "1"]).whole();
    assert!(
        named.ends_with("\nhint: hpcsweep cancel $WORLD/a/results/s 1\nexit code 2\n"),
        "{named}"
    );
    // What the copy has submitted itself does not make the others its own.
    pbs.world.write("c/plan.toml", &plan.replace("[1, 2]", "[1, 2, 3]"));
    pbs.world.run_in("c", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    for order in ["hold", "cancel"] {
        assert_eq!(
            pbs.world.run_in("c", &[order, "plan.toml"]).whole(),
            format!(
                "error: the jobs of trials 0-1 belong to `$WORLD/a/results/s`, of which `$WORLD/c/results/s` is a copy\n\
                 hint: hpcsweep {order} $WORLD/a/results/s, or for the others: hpcsweep {order} results/s 2\n\
                 exit code 2\n"
            )
        );
    }
    let named = pbs.world.run_in("c", &["cancel", "plan.toml", "0", "2"]).whole();
    let hint = "\nhint: hpcsweep cancel $WORLD/a/results/s 0, or for the others: hpcsweep cancel results/s 2\nexit code 2\n";
    assert!(named.ends_with(hint), "{named}");
    assert!(pbs.states().iter().all(|(_, state)| state == "Q"), "{:?}", pbs.states());
    // A job of the copy is not found by the name of one of the original.
    pbs.world.write("a/plan.toml", &plan.replace("[1, 2]", "[1, 2, 3]"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    let names = ["a", "c"].map(|folder| {
        let journal = pbs.world.read(&format!("{folder}/results/s/journal/0002.jsonl"));
        let intent = journal.lines().find(|line| line.contains("\"intent\"")).unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&intent).unwrap()["token"]
            .as_str()
            .unwrap()
            .to_owned()
    });
    assert!(names[0].ends_with(".2") && names[1].ends_with(".2"), "{names:?}");
    assert_ne!(names[0], names[1]);
    pbs.world.run_in("a", &["cancel", "plan.toml", "2"]).ok();
    pbs.world.run_in("c", &["cancel", "plan.toml", "2"]).ok();
    assert_eq!(pbs.states().iter().filter(|(_, state)| state == "Q").count(), 1);
    // A folder that was moved is the sweep itself.
    fs::rename(pbs.world.path("a"), pbs.world.path("b")).unwrap();
    pbs.world.run_in("b", &["cancel", "plan.toml"]).ok();
    pbs.wait_idle();
}

/// What waits in the queue may find another sweep in its folder.
#[test]
fn jobs_of_a_sweep_that_was_moved_run_nothing_of_the_one_that_took_its_place() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let plan = shell("echo >>ran", "[grid]\na = [1, 2]\n");
    pbs.world.write("plan.toml", &plan);
    pbs.world.run(&["submit", "plan.toml", "--pbs", "-q"]).ok();
    fs::rename(pbs.world.path("results/s"), pbs.world.path("results/old")).unwrap();
    pbs.world.write("plan.toml", &plan.replace("[1, 2]", "[10, 20]"));
    pbs.world.run(&["submit", "plan.toml", "--pbs", "-q"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.world.read("ran").lines().count(), 2);
    let rows = pbs.world.table(&["results/s"]);
    let of = |row: &std::collections::BTreeMap<String, serde_json::Value>| {
        (row["state"].clone(), row["attempts"].clone())
    };
    assert!(rows.iter().all(|row| of(row) == ("done".into(), 1.into())), "{rows:?}");
    let status = pbs.world.run(&["status", "results/old"]).whole();
    let said = "2 x its job was submitted in `$WORLD/results/s`, where this sweep no longer is (trials 0-1)";
    assert!(status.contains(said), "{status}");
}

/// What waits names the folder in which it was submitted.
#[test]
fn jobs_that_wait_while_the_project_is_moved_are_named_with_a_way_out() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.world.write("a/plan.toml", &shell("true", "[grid]\na = [1, 2]\n"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    fs::rename(pbs.world.path("a"), pbs.world.path("b")).unwrap();
    let said = "\
        the jobs of trials 0-1 were submitted in `$WORLD/a/results/s`, where this sweep no longer is: they will fail unless their nodes see it there\n\
        hint: put a link there that leads here; or cancel them (hpcsweep cancel results/s 0-1) and submit again with --retry\n";
    let status = pbs.world.run_in("b", &["status"]).whole();
    assert!(status.contains(said), "{status}");
    let submitted = pbs.world.run_in("b", &["submit", "plan.toml", "--pbs"]).whole();
    assert!(submitted.contains(said), "{submitted}");
    let why = pbs.world.run_in("b", &["why", "1"]).whole();
    let line = "\n  folder: its job was submitted in `$WORLD/a/results/s`, where this sweep no longer is: it will fail unless \
                its node sees it there\n";
    assert!(why.contains(line), "{why}");
    // A link there is a way out, and cancelling them is another.
    std::os::unix::fs::symlink(pbs.world.path("b"), pbs.world.path("a")).unwrap();
    let status = pbs.world.run_in("b", &["status"]).whole();
    assert!(!status.contains("no longer is"), "{status}");
    fs::remove_file(pbs.world.path("a")).unwrap();
    pbs.world.run_in("b", &["cancel", "results/s", "0-1"]).ok();
    pbs.wait_idle();
    let status = pbs.world.run_in("b", &["status"]).whole();
    assert!(status.contains("cancelled") && !status.contains("no longer is"), "{status}");
    pbs.set("scheduling", true);
    pbs.world.run_in("b", &["submit", "plan.toml", "--pbs", "--retry", "-q"]).ok();
    pbs.wait_idle();
    let status = pbs.world.run_in("b", &["status"]).whole();
    assert!(status.contains("done   2\n") || status.contains("done"), "{status}");
}

/// The job that submits the rest names the old folder, too.
#[test]
fn a_feeder_that_waits_while_the_project_is_moved_is_named() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.set("max_queued", 3);
    pbs.world.write("a/plan.toml", &shell("true", "[grid]\na = [1, 2, 3, 4, 5]\n"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    fs::rename(pbs.world.path("a"), pbs.world.path("b")).unwrap();
    assert_eq!(
        pbs.world.run_in("b", &["status"]).whole(),
        "s: 5 trials in $WORLD/b/results/s\n  state    trials\n  queued        2\n  pending       3\nseen by: qstat\n\
         the jobs of trials 0-1 and of the feeder (2.pbshead) were submitted in `$WORLD/a/results/s`, where this sweep no \
         longer is: they will fail unless their nodes see it there\n\
         hint: put a link there that leads here; or cancel them (hpcsweep cancel results/s 0-1) and submit again with --retry\n\
         3 trials not submitted yet: job 2.pbshead submits more when there is a place in the queue\nexit code 0\n"
    );
    // A link keeps them all, the feeder included.
    std::os::unix::fs::symlink(pbs.world.path("b"), pbs.world.path("a")).unwrap();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let status = pbs.world.run_in("b", &["status"]).whole();
    assert!(status.contains("\n  done        5\n"), "{status}");
}

/// What was not mended has failed, for a reason that is said.
#[test]
fn jobs_that_failed_because_the_project_was_moved_say_so() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.world.write("a/plan.toml", &shell("true", "[grid]\na = [1, 2]\n"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    fs::rename(pbs.world.path("a"), pbs.world.path("b")).unwrap();
    // There is a folder for the output of jobs: a server without one tries for long.
    fs::create_dir_all(pbs.world.path("a/results/s/logs/jobs/0001")).unwrap();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(
        pbs.world.run_in("b", &["status"]).whole(),
        "s: 2 trials in $WORLD/b/results/s\n  state   trials\n  failed       2\nseen by: qstat\n\n\
         2 trials without success:\n  \
         2 x its job was submitted in `$WORLD/a/results/s`, where this sweep no longer is (trials 0-1)\n\
         to run them again: the same `hpcsweep submit`, with --retry\nexit code 1\n"
    );
}

/// The trials of a copy whose jobs its original has submitted have their results there.
#[test]
fn a_copy_says_whose_the_jobs_are() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.world.write("a/plan.toml", &shell("true", "[grid]\na = [1, 2]\n"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    pbs.world.call("cp", &["-a", "a", "c"]).ok();
    let said = "\
        the jobs of trials 0-1 belong to `$WORLD/a/results/s`, of which this is a copy: they write their results there\n\
        hint: to run the same here too, give the plan another `[sweep] name`\n";
    for command in [&["status"][..], &["submit", "plan.toml", "--pbs"]] {
        let ran = pbs.world.run_in("c", command).whole();
        assert!(ran.contains(said), "{ran}");
        let ran = pbs.world.run_in("a", command).whole();
        assert!(!ran.contains("copy"), "{ran}");
    }
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(
        pbs.world.run_in("c", &["status"]).whole(),
        "s: 2 trials in $WORLD/c/results/s\n  state  trials\n  lost        2\nseen by: qstat\n\n\
         2 trials without success:\n  \
         2 x lost: its job belongs to `$WORLD/a/results/s`, of which this is a copy (trials 0-1)\n\
         to run them again: the same `hpcsweep submit`, with --retry\nexit code 1\n"
    );
}

/// The same of jobs with agents.
#[test]
fn agents_that_wait_while_the_project_is_moved_are_named() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let plan = shell("true", "[grid]\na = [1, 2]\n[pull]\nslots = 1\n");
    pbs.world.write("a/plan.toml", &plan);
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "--pull", "-q"]).ok();
    fs::rename(pbs.world.path("a"), pbs.world.path("b")).unwrap();
    assert_eq!(
        pbs.world.run_in("b", &["status"]).whole(),
        "s: 2 trials in $WORLD/b/results/s\n  state   trials\n  queued       2\n\
         seen by: qstat; pilot job 0[].pbshead: 1 queued\n\
         the jobs of agents (0[].pbshead) were submitted in `$WORLD/a/results/s`, where this sweep no longer is: they will fail unless their nodes see it there\n\
         hint: put a link there that leads here; or cancel them (hpcsweep cancel results/s) and submit again\n\
         exit code 0\n"
    );
}

#[test]
fn a_copied_project_runs_its_own_code_and_the_original_keeps_its_own() {
    let world = project();
    world.call("cp", &["-a", "a", "c"]).ok();
    program(&world, "c", "exit 0");
    let ran = world.run_in("c", &["submit", "plan.toml", "--local", "--retry"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(ran.err.contains(&note(&world, "c", "a")), "{}", ran.whole());
    let by_hand = |folder: &str| {
        let why = world.run_in(folder, &["why", "1"]);
        why.out.lines().find_map(|line| Some(line.split_once("submit ")?.1.to_owned()))
    };
    assert_eq!(by_hand("c").as_deref(), Some("plan.toml --smoke 1"));
    world.call("cp", &["-a", "a", "d"]).ok();
    assert_eq!(by_hand("d"), None, "the plan of a copy is its original's");
    assert_eq!(world.run_in("a", &["submit", "plan.toml", "--local", "--retry", "-q"]).code, 1);
    let ran = |folder: &str| world.read(&format!("{folder}/ran")).lines().count();
    assert_eq!((ran("a"), ran("c")), (4, 4));
}

#[test]
fn what_is_missing_of_a_merged_sweep_runs_in_the_folder_of_its_plan() {
    let world = World::new();
    let plan = shell("pwd >>ran", "[grid]\na = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n");
    for (folder, shard) in [("a", "1/3"), ("b", "2/3")] {
        world.write(&format!("{folder}/plan.toml"), &plan);
        world.run_in(folder, &["submit", "plan.toml", "--local", "-q", "--shard", shard]).ok();
    }
    world.write("m/plan.toml", &plan);
    world.run(&["merge", "a/results/s", "b/results/s", "-o", "m/results/s"]).ok();
    let ran = world.run_in("m", &["submit", "plan.toml", "--local"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let there = fs::read_to_string(world.path("m/ran")).unwrap();
    let own = world.text_path("m");
    assert!(there.lines().all(|line| line == own), "{there}");
    let ran = |folder: &str| world.read(&format!("{folder}/ran")).lines().count();
    assert_eq!(ran("a") + ran("b") + ran("m"), 9);
}

#[test]
fn another_way_to_the_same_folder_is_no_move() {
    let world = project();
    std::os::unix::fs::symlink(world.path("a"), world.path("link")).unwrap();
    let ran = world.run_in("link", &["submit", "plan.toml", "--local", "--retry"]);
    assert!(ran.code == 1 && !ran.err.contains("from now on"), "{}", ran.whole());
    assert!(!world.read("a/results/s/trials/000000000000.json").contains("link"));
}

/// The feeder of the original submits nothing for its copy, which submits one itself.
#[test]
fn a_copy_has_a_feeder_of_its_own() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.set("max_queued", 3);
    pbs.world.write("a/plan.toml", &shell("echo >>ran", "[grid]\na = [1, 2, 3, 4, 5]\n"));
    pbs.world.run_in("a", &["submit", "plan.toml", "--pbs", "-q"]).ok();
    pbs.world.call("cp", &["-a", "a", "c"]).ok();
    let said = "\
        the jobs of trials 0-1 and of the feeder (2.pbshead) belong to `$WORLD/a/results/s`, of which this is a copy: they \
        write their results there\n\
        hint: to run the same here too, give the plan another `[sweep] name`\n";
    assert_eq!(
        pbs.world.run_in("c", &["status"]).whole(),
        format!(
            "s: 5 trials in $WORLD/c/results/s\n  state    trials\n  queued        2\n  pending       3\nseen by: qstat\n{said}\
             3 trials not submitted yet; to submit more: the same `hpcsweep submit`\nexit code 0\n"
        )
    );
    pbs.set("max_queued", 5);
    let ran = pbs.world.run_in("c", &["submit", "plan.toml", "--pbs"]).whole();
    assert!(
        ran.contains(
            "2 trials follow when there is a place in the queue (job 4.pbshead submits them)"
        ),
        "{ran}"
    );
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let lines = |folder: &str| pbs.world.read(&format!("{folder}/ran")).lines().count();
    assert_eq!((lines("a"), lines("c")), (5, 3));
    let status = pbs.world.run_in("a", &["status"]).whole();
    assert!(status.contains("\n  done        5\n"), "{status}");
}

/// Nor do its agents take trials of the copy.
#[test]
fn a_copy_has_agents_of_its_own() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let plan = shell("echo >>ran", "[grid]\na = [1, 2]\n[pull]\nslots = 1\n");
    pbs.world.write("a/plan.toml", &plan);
    let submit = ["submit", "plan.toml", "--pbs", "--pull", "-q"];
    pbs.world.run_in("a", &submit).ok();
    pbs.world.call("cp", &["-a", "a", "c"]).ok();
    let status = pbs.world.run_in("c", &["status"]).whole();
    let said =
        "the jobs of agents (0[].pbshead) belong to `$WORLD/a/results/s`, of which this is a copy";
    assert!(status.contains(said) && status.contains("no agent is at work"), "{status}");
    pbs.world.run_in("c", &submit).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let lines = |folder: &str| pbs.world.read(&format!("{folder}/ran")).lines().count();
    assert_eq!((lines("a"), lines("c")), (2, 2));
}

/// What runs on this machine writes to the folder that it has opened, and nothing more begins.
#[test]
fn a_project_that_is_moved_while_it_runs_here_says_that_its_folder_is_gone() {
    let world = World::new();
    let code = ": >began; until [ -e go ]; do sleep 0.01; done";
    world.write("a/plan.toml", &shell(code, "[grid]\na = [1, 2]\n"));
    let run = world.start(&["submit", "a/plan.toml", "--local", "--jobs", "1"]);
    wait_until("the first has begun", || world.exists("a/began"));
    fs::rename(world.path("a"), world.path("b")).unwrap();
    world.write("b/go", "");
    let ran = run.end(&world).whole();
    let said = "error: the sweep's folder `$WORLD/a/results/s` is gone\n\
                hint: if it was moved, submit again where it is now: what has ended there counts\nexit code 4\n";
    assert!(ran.ends_with(said), "{ran}");
    world.run_in("b", &["submit", "plan.toml", "--local", "-q"]).ok();
    let status = world.run_in("b", &["status"]).whole();
    assert!(status.contains("\n  done        2\n"), "{status}");
}
