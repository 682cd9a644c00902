//! `submit --reproduce`: one trial again, from what was recorded, beside the sweep.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use crate::support::pbs::Pbs;
use crate::support::world::{World, timeless};

/// Chains of two, of which the second trial goes on with what the first one saved; `a = 9` fails. A sample of a GPU is among the
/// metrics.
const PLAN: &str = "version = 1\n[sweep]\nname = \"s\"\nseed = 5\n[run]\n\
    command = [\"./job.sh\", \"{{ a }}\", \"{{ sweep.seed }}\", \"{{ trial.id }}\"]\n\
    setup = [\"export SET=up\"]\n[resources]\nwalltime = \"1m\"\n[snapshot]\npaths = [\"job.sh\"]\n\
    [[trials]]\ntask_id = 1\na = 1\n[[trials]]\ntask_id = 1\na = 2\n[[trials]]\na = 3\n[[trials]]\na = 9\n";

const JOB: &str = "#!/bin/sh\n[ \"$SET\" = up ] || exit 8\n[ $1 != 9 ] || exit 3\n\
    before=0; [ -z \"$HPCSWEEP_PREVIOUS_WORK_DIR\" ] || before=$(cat $HPCSWEEP_PREVIOUS_WORK_DIR/x)\n\
    noise=$(cat $NOISE 2>/dev/null || echo 0)\necho $1 >$HPCSWEEP_WORK_DIR/x\n\
    echo \"{\\\"loss\\\": $((1$1 + before + noise)).5, \\\"seed\\\": $2, \\\"id\\\": $3}\" >>$HPCSWEEP_METRICS\n\
    echo \"{\\\"gpu.0.power_w\\\": $((70 + noise))}\" >>$HPCSWEEP_METRICS\n\
    echo '{\"kind\": \"text\"}' >$HPCSWEEP_RESULT\n";

fn prepare(world: &World) {
    world.write("plan.toml", PLAN);
    world.write("job.sh", JOB);
    fs::set_permissions(world.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A world in which the sweep has ended, and the program was changed since.
fn ended() -> World {
    let mut world = World::new();
    prepare(&world);
    let noise = world.text_path("noise");
    world.set("NOISE", &noise);
    assert_eq!(world.run(&["submit", "plan.toml", "--local"]).code, 1);
    world.write("job.sh", "#!/bin/sh\nexit 7\n");
    world
}

/// All that can be seen of a folder but the times of access.
fn state(world: &World, folder: &str) -> Vec<(String, Vec<u8>, i64, i64, u32)> {
    let one = |name: String| {
        let path = world.path(&format!("{folder}/{name}"));
        let about = fs::symlink_metadata(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        (name, bytes, about.mtime(), about.ctime_nsec(), about.mode())
    };
    world.files(folder).into_iter().map(one).collect()
}

#[test]
fn a_trial_runs_again_from_its_code_and_seed_and_the_sweep_does_not_change() {
    let world = ended();
    let before = state(&world, "results/s");
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "2"]);
    let expected = "\
metric  recorded  reproduced  difference
loss    13.5      13.5        equal
seed    5         5           equal
id      2         2           equal
kind    text      text        equal
trial 2: reproduced: 4 metrics, all equal
reproduced in: $WORLD/results/s.reproduced/2/s
exit code 0
";
    assert_eq!(ran.whole(), expected);
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "2", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let metric = |name: &str, value: serde_json::Value| json!({"metric": name, "recorded": value, "reproduced": value, "equal": true});
    let metrics = [
        metric("loss", json!(13.5)),
        metric("seed", json!(5)),
        metric("id", json!(2)),
        metric("kind", json!("text")),
    ];
    let dir = "$WORLD/results/s.reproduced/2/s";
    let object_expected = json!({
        "sweep": "s", "trial": 2, "dir": dir, "done": true, "reason": "", "equal": true, "metrics": metrics,
    });
    assert_eq!((ran.code, object), (0, object_expected));
    // It is done: the second time, both are compared and nothing runs.
    let records = "results/s.reproduced/2/s/records/000";
    assert_eq!(world.files(records), ["2.1.jsonl"]);
    assert_eq!(world.run(&["submit", "results/s", "--reproduce", "2"]).whole(), expected);
    assert_eq!(world.files(records), ["2.1.jsonl"]);
    assert!(state(&world, "results/s") == before, "the sweep was changed");
    // No command takes it for a sweep of this folder.
    assert_eq!(world.status()["trials_total"], 4);
}

#[test]
fn a_link_of_a_chain_goes_on_from_the_one_before_it() {
    let world = ended();
    let before = state(&world, "results/s");
    let ran = world.run(&["submit", "results/s", "--reproduce", "1", "--local"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(ran.out.contains("\nloss    13.5      13.5        equal\n"), "{}", ran.whole());
    assert_eq!(world.files("results/s.reproduced/1/s/records/000"), ["0.1.jsonl", "1.1.jsonl"]);
    assert!(state(&world, "results/s") == before, "the sweep was changed");
}

#[test]
fn what_differs_is_shown_with_numbers() {
    let world = ended();
    world.write("noise", "2");
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "2"]);
    let expected = "\
metric  recorded  reproduced  difference
loss    13.5      15.5        +2 (+14.8148 %)
seed    5         5           equal
id      2         2           equal
kind    text      text        equal
trial 2: 1 of 4 metrics different
reproduced in: $WORLD/results/s.reproduced/2/s
exit code 1
";
    assert_eq!(ran.whole(), expected);
    // One that fails this time.
    world.write("noise", "no number");
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "0"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let first = ran.err.lines().next().unwrap();
    assert!(
        first.starts_with("trial 0 was done, and is not this time: exit code "),
        "{}",
        timeless(first)
    );
    // The same command tries once more.
    world.write("noise", "0");
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "0"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
}

#[test]
fn an_unpacked_archive_can_be_reproduced_where_nothing_else_is() {
    let world = ended();
    world.run(&["export", "-o", "a.tar.gz"]).ok();
    for name in ["results", "plan.toml", "job.sh"] {
        fs::rename(world.path(name), world.path(&format!("old-{name}"))).unwrap();
    }
    fs::create_dir(world.path("else")).unwrap();
    world.call("tar", &["-xf", "a.tar.gz", "-C", "else"]).ok();
    let before = state(&world, "else/s");
    let ran = world.run_in("else", &["submit", "s", "--reproduce", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(ran.err.ends_with("reproduced in: $WORLD/else/s.reproduced/1/s\n"), "{}", ran.err);
    assert!(state(&world, "else/s") == before, "the copy was changed");
}

#[test]
fn jobs_reproduce_a_trial_and_the_same_command_compares() {
    let pbs = Pbs::start();
    let world = &pbs.world;
    prepare(world);
    world.run(&["submit", "plan.toml", "--pbs"]).ok();
    pbs.wait_idle();
    let again = ["submit", "results/s", "--reproduce", "2", "--pbs"];
    let ran = world.run(&again);
    assert!(ran.err.contains("\ns: 1 trial submitted as 1 array ("), "{}", ran.whole());
    assert!(ran.err.ends_with("the same command compares both when the trial has ended\n"));
    pbs.wait_idle();
    let ran = world.run(&again);
    assert!(
        ran.code == 0 && ran.err.starts_with("trial 2: reproduced: 4 metrics, all equal\n"),
        "{}",
        ran.whole()
    );
}

#[test]
fn whole_numbers_are_shown_alike() {
    let world = World::new();
    let log = "for n in 3 1; do echo \\\"{ \\\\\\\"n\\\\\\\": $n }\\\" >>$HPCSWEEP_METRICS; done";
    world.write(
        "plan.toml",
        &format!("version = 1\nsweep.name = \"s\"\nrun.command = [\"sh\", \"-c\", \"{log}\"]\n"),
    );
    world.run(&["submit", "plan.toml", "--local"]).ok();
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "0"]);
    let expected = "\
metric  recorded  reproduced  difference
n              1           1  equal
n.min          1           1  equal
n.max          3           3  equal
";
    assert!(ran.out == expected && ran.code == 0, "{}", ran.whole());
}

#[test]
fn what_cannot_be_reproduced_is_refused() {
    let world = ended();
    let check = |args: &[&str], expected: &str| {
        let ran = world.run(&[&["submit"], args].concat());
        assert_eq!(ran.whole(), format!("{expected}exit code 2\n"), "{args:?}");
    };
    check(
        &["plan.toml", "--reproduce", "7"],
        "error: sweep `$WORLD/results/s` has no trial 7\n\
         hint: its trials are 0-3: `hpcsweep status --trials results/s` lists them\n",
    );
    check(
        &["plan.toml", "--reproduce", "3"],
        "error: trial 3 has no result to compare with\n\
         hint: it is not done: `hpcsweep why 3 results/s` says more\n",
    );
    let record = world.read("results/s/records/000/1.1.jsonl");
    world.write("results/s/records/000/1.1.jsonl", "no record\n");
    check(
        &["plan.toml", "--reproduce", "1"],
        "error: the record of trial 1 is damaged: no result can be read\n  \
         $WORLD/results/s/records/000/1.1.jsonl\n\
         hint: `hpcsweep status results/s` lists what is damaged\n",
    );
    world.write("results/s/records/000/1.1.jsonl", &record);
    let both = world.run(&["submit", "plan.toml", "--reproduce", "2", "--shard", "1/2"]);
    assert_eq!(both.code, 2, "{}", both.whole());
    // The snapshot is gone.
    for name in world.files("results/s/code") {
        fs::remove_file(world.path(&format!("results/s/code/{name}"))).unwrap();
    }
    let ran = world.run(&["submit", "plan.toml", "--reproduce", "2"]);
    assert!(
        ran.code == 2 && ran.err.starts_with("error: the code of trial 2 is gone: snapshot "),
        "{}",
        ran.whole()
    );
    assert_eq!(world.files("results/s.reproduced"), Vec::<String>::new());
    // Without one, the folder of the program must be there.
    world.write(
        "plain/plan.toml",
        "version = 1\nsweep.name = \"p\"\nrun.command = [\"true\"]\nsweep.root = \"../there\"\n",
    );
    world.run(&["submit", "plain/plan.toml", "--local"]).ok();
    let ran = world.run(&["submit", "there/p", "--reproduce", "0"]);
    let expected = "no snapshot was stored: trial 0 runs the code that `$WORLD/plain` has now\n\
        trial 0: done both times, without metrics\nreproduced in: $WORLD/there/p.reproduced/0/p\nexit code 0\n";
    assert_eq!(ran.whole(), expected);
    fs::remove_dir_all(world.path("there/p.reproduced")).unwrap();
    fs::rename(world.path("plain"), world.path("gone")).unwrap();
    check(
        &["there/p", "--reproduce", "0"],
        "error: the code of trial 0 is not here\n  `$WORLD/plain` does not exist, and no snapshot was stored\n\
         hint: `[snapshot]` in a plan stores the code with the sweep\n",
    );
}

/// Its code is where it was recorded, not in the folder of the sweep, which keeps the plan.
#[test]
fn a_trial_whose_plan_is_gone_runs_where_it_ran() {
    let world = World::new();
    let code = r#"echo "{\"v\": $(cat value)}" >>$HPCSWEEP_METRICS"#;
    world.write("value", "7\n");
    world.local(&crate::support::plans::shell(code, ""), &["-q"]).ok();
    fs::rename(world.path("plan.toml"), world.path("other.toml")).unwrap();
    let ran = world.run(&["submit", "results/s", "--reproduce", "0"]);
    assert!(ran.ok().contains("all equal") || ran.err.contains("all equal"), "{}", ran.whole());
}
