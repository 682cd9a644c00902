//! `merge`: results of one plan from several clusters, shards and copies become one sweep.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::pbs::Pbs;
use crate::support::world::{Ran, World, wait_until};

/// A plan of chains and trials of their own.
fn plan(root: &str) -> String {
    let mut text = format!(
        "version = 1\n[sweep]\nname = \"s\"\nroot = \"{root}\"\n[run]\ncommand = [\"./job.sh\"]\n\
         setup = [\"export SET=up\"]\n[resources]\nwalltime = \"1m\"\n[snapshot]\npaths = [\"job.sh\"]\n"
    );
    for value in 0..6 {
        text.push_str(&format!("[[trials]]\na = {value}\n"));
        for link in [0, 1] {
            text.push_str(&format!(
                "[[trials]]\ntask_id = \"c{value}\"\nc = {value}\na = {link}\n"
            ));
        }
    }
    text
}

const JOB: &str = "#!/bin/sh\n[ \"$SET\" = up ] || exit 9\nmkdir -p $HPCSWEEP_WORK_DIR $HPCSWEEP_CHECKPOINT_DIR\necho says $HPCSWEEP_PARAM_A\n\
    for epoch in 0 1; do echo \"{\\\"epoch\\\": $epoch, \\\"loss\\\": $HPCSWEEP_PARAM_A.$epoch}\" >>$HPCSWEEP_METRICS; done\n\
    echo $HPCSWEEP_PARAM_A >$HPCSWEEP_WORK_DIR/saved\necho state >$HPCSWEEP_CHECKPOINT_DIR/state\n\
    [ \"$HPCSWEEP_PARAM_A$HPCSWEEP_PARAM_C\" != 4 ] || [ -e $HPCSWEEP_SOURCE/good ]\n";

fn prepare(world: &World) {
    world.write("job.sh", JOB);
    fs::set_permissions(world.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn submit(world: &World, root: &str, args: &[&str]) -> Ran {
    world.write(&format!("{root}.toml"), &plan(root));
    world.run(&[&["submit", &format!("{root}.toml")], args].concat())
}

/// The table without what differs from run to run.
fn table(world: &World, sweep: &str) -> String {
    let columns = "trial,task_id,link,state,cause,exit_code,attempts,a,c,epoch,loss,loss.min";
    let args = ["collect", sweep, "--format", "csv", "--columns", columns];
    let ran = world.run(&args);
    assert!(ran.code == 0 && !ran.out.is_empty(), "{}", ran.whole());
    let steps = world.run(&[
        "collect",
        sweep,
        "--steps",
        "--format",
        "csv",
        "--columns",
        "trial,epoch,loss",
    ]);
    format!("{}{}", ran.out, steps.ok())
}

/// All files of a folder with their content.
fn content(world: &World, folder: &str) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(world.path(&format!("{folder}/{name}"))).unwrap();
        (name, bytes)
    };
    world.files(folder).into_iter().map(read).collect()
}

#[test]
fn shards_of_several_ways_make_the_table_of_one_run() {
    let pbs = Pbs::start();
    let world = &pbs.world;
    prepare(world);
    assert_eq!(submit(world, "whole", &["--local"]).code, 1);
    assert_eq!(submit(world, "here", &["--local", "--shard", "1/3"]).code & !1, 0);
    submit(world, "pbs-", &["--pbs", "--shard", "2/3"]).ok();
    assert_eq!(submit(world, "agents", &["--local", "--pull", "--shard", "3/3"]).code & !1, 0);
    pbs.wait_idle();
    let before: Vec<_> = ["here", "pbs-", "agents"].map(|root| content(world, root)).into();

    fs::create_dir(world.path("on")).unwrap();
    let ran = world.run(&["merge", "here/s", "pbs-/s", "agents/s", "-o", "on/s"]);
    let expected = "s: 18 trials from 3 sweeps, 18 with attempts\nresults: $WORLD/on/s\nnext: hpcsweep status on/s\n";
    assert_eq!((ran.code, ran.err.as_str()), (0, expected));
    let whole = table(world, "whole/s");
    assert_eq!(table(world, "on/s"), whole);
    let after: Vec<_> = ["here", "pbs-", "agents"].map(|root| content(world, root)).into();
    assert!(before == after, "an input was changed");
    // What trials printed and saved, and their code.
    let text = |sweep: &str, file: &str| world.read(&format!("{sweep}/{file}"));
    for trial in 0..18 {
        let log = format!("logs/000/{trial}.1.log");
        assert_eq!(text("on/s", &log), text("whole/s", &log));
        let saved = format!("work/000/{trial}/saved");
        assert_eq!(text("on/s", &saved), text("whole/s", &saved));
    }
    assert_eq!(world.files("on/s/code/objects"), world.files("whole/s/code/objects"));

    // Once more, with overlaps: nothing changes.
    let collect = world.run(&["collect", "on/s", "--format", "records"]).whole();
    for (others, to) in [(&["pbs-/s"][..], "b"), (&["here/s", "agents/s", "on/s"], "c")] {
        let ran = world.run(&[&["merge", "on/s"], others, &["-o", to]].concat());
        assert_eq!(ran.code, 0, "{}", ran.whole());
        assert_eq!(world.run(&["collect", to, "--format", "records"]).whole(), collect);
        assert!(content(world, &format!("{to}/records")) == content(world, "on/s/records"));
        assert!(content(world, &format!("{to}/code")) == content(world, "on/s/code"));
    }
    // The merged sweep goes on as a sweep: what is missing runs, from its snapshot, with its set-up.
    world.write("good", "");
    world.write("job.sh", "#!/bin/sh\nexit 7\n");
    let again = submit(world, "on", &["--local", "--retry"]);
    assert!(again.code == 0 && again.err.contains("1 trial to run"), "{}", again.whole());
    let columns = ["collect", "on/s", "--format", "csv", "--columns", "state,attempts", "12"];
    assert_eq!(world.run(&columns).ok(), "state,attempts\ndone,2\n");
}

#[test]
fn what_one_has_lost_another_has() {
    let world = World::new();
    prepare(&world);
    assert_eq!(submit(&world, "a", &["--local"]).code, 1);
    let whole = table(&world, "a/s");
    // A copy that was made early, a damaged one, and one of which a folder is gone.
    for copy in ["early", "damaged", "gone"] {
        world.call("cp", &["-a", "a", copy]).ok();
    }
    let record = |sweep: &str, trial: u32| format!("{sweep}/s/records/000/{trial}.1.jsonl");
    for trial in 5..18 {
        fs::remove_file(world.path(&record("early", trial))).unwrap();
    }
    let four = world.read(&record("early", 4));
    let lines: Vec<&str> = four.lines().collect();
    fs::write(world.path(&record("early", 4)), format!("{}\n{}", lines[0], &lines[1][..20]))
        .unwrap();
    fs::write(
        world.path(&record("damaged", 7)),
        world.read(&record("a", 7)).replace("loss", "lass"),
    )
    .unwrap();
    for trial in [0, 1, 2, 3, 4, 7, 9] {
        fs::remove_file(world.path(&record("gone", trial))).unwrap();
    }
    // By one pattern, too: copies of a sweep are sweeps of their own here.
    let ran = world.run(&["merge", "[!a]*/s", "-o", "all"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let has = |text: &str| assert!(ran.err.contains(text), "{text}\n{}", ran.whole());
    has("warning: $WORLD/early/s: 1 damaged line in records/000/4.1.jsonl; left out\n");
    has(
        "warning: $WORLD/gone/s: 7 files of which other files tell do not exist, the first is records/000/0.1.jsonl\n",
    );
    has("warning: $WORLD/damaged/s: 1 damaged line in records/000/7.1.jsonl; left out\n");
    // Only trial 7 has lost its metrics everywhere.
    let merged = table(&world, "all");
    let differing = whole.lines().zip(merged.lines()).filter(|(a, b)| a != b).map(|(a, _)| a);
    assert!(differing.clone().next().unwrap().starts_with("7,"), "{merged}\n{whole}");
    let ran = world.run(&["merge", "early/s", "damaged/s", "gone/s", "a/s", "-o", "healed"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(table(&world, "healed"), whole);
    assert_eq!(world.run(&["status", "healed"]).code, 1);
    assert!(!world.run(&["status", "healed"]).out.contains("damaged"));

    let told = world.run(&["merge", "a/s", "early/s", "-o", "told", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let expected = serde_json::json!({
        "sweep": "s", "dir": "$WORLD/told", "sweeps": 2, "trials": 18, "begun": 18,
        "common_attempts": 5, "foreign": 0, "running": 0,
    });
    assert_eq!((told.code, object), (1, expected));

    // Of a whole folder that is gone, one line tells.
    fs::remove_dir_all(world.path("gone/s/records")).unwrap();
    let ran = world.run(&["merge", "gone/s", "early/s", "-o", "half"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let all = "18 files of which other files tell do not exist, the first is records/000/0.1.jsonl";
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("gone/s")).collect();
    assert_eq!(told, [format!("warning: $WORLD/gone/s: {all}")]);
    let status = world.run(&["status", "gone/s"]);
    assert_eq!(status.code, 1);
    let told: Vec<&str> = status.out.lines().filter(|line| line.contains("left out")).collect();
    assert_eq!(told, [format!("left out: {all}")]);
}

/// One run would have stopped when the trial was done.
#[test]
fn what_another_sweep_did_after_a_trial_was_done_does_not_count() {
    let world = World::new();
    let submit = |root: &str, steps: &str, bias: &str, code: u8| {
        let job = format!(
            "#!/bin/sh\nfor i in {steps}; do echo \"{{\\\"step\\\": $i, \\\"loss\\\": $HPCSWEEP_PARAM_A$i{bias}}}\" >>$HPCSWEEP_METRICS; done\nexit {code}\n"
        );
        world.write("job.sh", &job);
        let plan = format!(
            "version = 1\n[sweep]\nname = \"s\"\nroot = \"{root}\"\n[run]\ncommand = [\"sh\", \"job.sh\"]\n[[trials]]\na = 1\n[[trials]]\na = 2\n"
        );
        world.write(&format!("{root}.toml"), &plan);
        world.run(&["submit", &format!("{root}.toml"), "--local"]);
    };
    let columns = "state,a,step,loss,loss.min,loss.max";
    let tables = |sweep: &str| {
        let table = ["collect", sweep, "--format", "csv", "--columns", columns];
        let steps =
            ["collect", sweep, "--steps", "--format", "csv", "--columns", "trial,step,loss"];
        format!("{}{}", world.run(&table).ok(), world.run(&steps).ok())
    };
    submit("first", "1 2", "", 0);
    // Later ones elsewhere that fail, or get on further.
    submit("failed", "1 2", "9", 1);
    submit("longer", "1 2 3 4", "8", 0);
    for others in [&["failed/s"][..], &["longer/s"], &["longer/s", "failed/s"]] {
        let _ = fs::remove_dir_all(world.path("all"));
        world.run(&[&["merge", "first/s"], others, &["-o", "all"]].concat()).ok();
        assert_eq!(tables("all"), tables("first/s"));
    }
    let best = world.run(&["best", "all", "--metric", "loss", "--min"]);
    let expected = "trial 0: loss = 12  ▁█  (a=1)\n  log: $WORLD/all/logs/000/0.1.log\nthe best of 2 trials, each run once: no interval and no test without repetitions (`[replicates]` in the plan)\nexit code 0\n";
    assert_eq!(best.whole(), expected);
    let attempts = world.run(&["collect", "all", "--format", "csv", "--columns", "attempts"]);
    assert_eq!(attempts.ok(), "attempts\n3\n3\n");
}

#[test]
fn a_mixture_of_plans_is_named() {
    let world = World::new();
    prepare(&world);
    assert_eq!(submit(&world, "a", &["--local"]).code, 1);
    let other = |root: &str, from: &str, to: &str| {
        let text = plan(root).replace(from, to);
        assert_ne!(text, plan(root));
        world.write(&format!("{root}.toml"), &text);
        world.run(&["submit", &format!("{root}.toml"), "--local"]);
        world.run(&["merge", "a/s", &format!("{root}/s"), "-o", "all"])
    };
    let hint = |root: &str| {
        format!(
            "hint: `merge` joins results of one plan; a table of both: `hpcsweep collect a/s {root}/s`\nexit code 2\n"
        )
    };
    let head = |root: &str| format!("error: `{root}/s` is of another plan than `a/s`\n");
    let ran = other("b", "\"./job.sh\"", "\"./job.sh\", \"x\"");
    assert_eq!(ran.whole(), format!("{}  they differ in `command`\n{}", head("b"), hint("b")));
    let ran = other("c", "c = 3\na = 1", "c = 3\na = 7");
    let expected = "  1 of its 18 trials is not in the other plan: c=3 a=7\n";
    assert_eq!(ran.whole(), format!("{}{expected}{}", head("c"), hint("c")));
    let ran = other("d", "name = \"s\"", "name = \"t\"");
    assert_eq!(ran.code, 2);
    assert!(!world.exists("all"));
    // One that asks for other resources, or has fewer trials, is of the same plan.
    let ran = other("e", "walltime = \"1m\"", "walltime = \"2m\"");
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let columns = |sweep: &str, names: &str| {
        world.run(&["collect", sweep, "--format", "csv", "--columns", names]).ok().to_owned()
    };
    // Both have run it: the first result counts, and both attempts are there.
    let same = "trial,task_id,state,a,c,loss";
    assert_eq!(columns("all", same), columns("a/s", same));
    assert_eq!(columns("all", "attempts"), format!("attempts\n{}", "2\n".repeat(18)));
}

#[test]
fn a_merged_sweep_appears_whole_or_not_at_all() {
    let world = World::new();
    prepare(&world);
    assert_eq!(submit(&world, "a", &["--local"]).code, 1);
    let left = || fs::read_dir(world.path(".")).unwrap().count();
    let before = left();
    let there = world.run(&["merge", "a/s", "-o", "a"]);
    let expected = "error: `$WORLD/a` is there already\nhint: name a new folder; nothing was changed\nexit code 2\n";
    assert_eq!(there.whole(), expected);
    let within = world.run(&["merge", "a/s", "-o", "a/s/work/x"]);
    let expected = "error: `a/s/work/x` lies within the sweep `a/s`\nhint: name a folder that is not part of a sweep\nexit code 2\n";
    assert_eq!(within.whole(), expected);
    let none = world.run(&["merge", "home", "-o", "x"]);
    assert_eq!(none.code, 2, "{}", none.whole());
    let large = vec![b'x'; 100_000];
    fs::write(world.path("a/s/work/000/5/large"), large).unwrap();
    let script = "ulimit -f 64; exec \"$0\" merge a/s -o x";
    let limited = world.call("bash", &["-c", script, crate::support::world::PROGRAM]);
    let expected = "error: cannot copy `$WORLD/a/s/work/000/5/large`: file too large\n\
        hint: raise the limit of file sizes (`ulimit -f`) and run the same command again\nexit code 4\n";
    assert_eq!(limited.whole(), expected);
    assert_eq!(left(), before);
    // What programs saved can stay.
    world.run(&["merge", "a/s", "-o", "x", "--without", "work,logs"]).ok();
    assert!(!world.exists("x/work") && !world.exists("x/logs"));
    assert_eq!(table(&world, "x"), table(&world, "a/s"));
    world.run(&["merge", "a/s", "-o", "y", "--without", "checkpoints"]).ok();
    assert!(world.exists("y/work/000/5/large") && !world.exists("y/work/000/5/checkpoint"));
}

#[test]
fn what_runs_while_it_is_merged_is_not_lost_in_the_merged_sweep() {
    let world = World::new();
    world.write(
        "plan.toml",
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", \"[ $HPCSWEEP_PARAM_A = 0 ] || until [ -e $HPCSWEEP_SOURCE/go ]; do sleep 0.05; done\"]\n[grid]\na = [0, 1, 2]\n",
    );
    let running = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
    let record = "results/s/records/000/1.1.jsonl";
    wait_until("the second trial runs", || {
        world.exists(record) && world.read(record).contains('\n')
    });
    let merge = world.run(&["merge", "results/s", "-o", "m/s"]);
    assert_eq!(
        merge.whole(),
        "s: 3 trials from 1 sweep, 2 with attempts\nwarning: 1 trial still running: merge again when all have ended\n\
         results: $WORLD/m/s\nnext: hpcsweep status m/s\nexit code 0\n"
    );
    world.write("go", "");
    assert_eq!(running.end(&world).code, 0);

    // The merged sweep says when that was, and so does an archive of it.
    let status = world.run(&["status", "m/s"]);
    let (before, rest) = status.out.split_once("merged ").unwrap();
    let (when, rest) = rest.split_at("2026-11-24 12:00:00".len());
    assert_eq!(
        before,
        "s: 3 trials in $WORLD/m/s\n  state    trials\n  done          1\n  running       1\n  pending       1\n\
         seen by: the results tree alone: "
    );
    assert_eq!((rest, status.code), (" while 1 trial was running\n", 0));
    let why = world.run(&["why", "1", "m/s"]);
    assert!(why.out.contains(&format!("\n  why: when it was merged, {when}\n")), "{}", why.whole());
    world.run(&["export", "m/s", "-o", "a.tar"]).ok();
    world.call("tar", &["-xf", "a.tar"]).ok();
    let states = |sweep: &str| -> Vec<String> {
        let rows = world.table(&[sweep]);
        rows.iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(states("s"), ["done", "running", "pending"]);

    // Merged again, it has what has ended; submitted, it runs what had not.
    world.run(&["merge", "m/s", "results/s", "-o", "n/s"]).ok();
    assert_eq!(states("n/s"), ["done", "done", "done"]);
    assert!(!world.exists("n/s/merged.json"));
    world.write("m/plan.toml", &world.read("plan.toml").replace("[run]", "root = \".\"\n[run]"));
    world.write("m/go", "");
    world.run_in("m", &["submit", "plan.toml", "--local"]).ok();
    assert_eq!(states("m/s"), ["done", "done", "done"]);
}
