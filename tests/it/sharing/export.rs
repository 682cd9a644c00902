//! `export`: a sweep as one archive, which another user unpacks elsewhere.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

const NOBODY: u32 = 65534;

/// A plan whose three trials log a metric, print, and save a file and a checkpoint; the last one fails.
const PLAN: &str = "version = 1\nsweep.name = \"s\"\n[run]\ncommand = [\"./job.sh\", \"{{ i }}\"]\n\
    [snapshot]\nignore = [\"/home/\", \"/bin\", \"/tmp\", \"/go\"]\n[grid]\ni = [0, 1, 2]\n";

const JOB: &str = "#!/bin/sh\necho says $1\necho \"{\\\"loss\\\": 0.$1}\" >>$HPCSWEEP_METRICS\n\
    echo saved >$HPCSWEEP_WORK_DIR/saved\necho state >$HPCSWEEP_CHECKPOINT_DIR/state\n\
    [ -z \"$WAIT\" ] || [ $1 != 1 ] || until [ -e $HPCSWEEP_SOURCE/go ]; do sleep 0.01; done\n[ $1 != 2 ]\n";

/// A world with the plan and its program.
fn world() -> World {
    let world = World::new();
    world.write("plan.toml", PLAN);
    world.write("job.sh", JOB);
    fs::set_permissions(world.path("job.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    world
}

/// The same, with the sweep run to its end.
fn ended() -> World {
    let world = world();
    assert_eq!(world.run(&["submit", "plan.toml", "--local", "-j", "1"]).code, 1);
    world
}

/// The names in an archive, in its order.
fn names(world: &World, archive: &str) -> Vec<String> {
    world.call("tar", &["-tf", archive]).ok().lines().map(str::to_owned).collect()
}

fn unpack(world: &World, archive: &str, folder: &str) {
    fs::create_dir_all(world.path(folder)).unwrap();
    world.call("tar", &["-xf", archive, "-C", folder]).ok();
}

/// `export/about.json` of an unpacked sweep.
fn about(world: &World, sweep: &str) -> Value {
    let mut about: Value =
        serde_json::from_str(&world.read(&format!("{sweep}/export/about.json"))).unwrap();
    let members = about.as_object_mut().unwrap();
    for name in ["crc", "until", "version"] {
        assert!(members.remove(name).is_some(), "{name}");
    }
    about
}

#[test]
fn a_sweep_that_was_unpacked_elsewhere_answers_as_it_did() {
    let world = ended();
    let export = world.run(&["export", "results/s", "-o", "a.tar.zst"]);
    assert_eq!((export.code, export.out.as_str()), (0, ""));
    assert!(export.err.starts_with("s: ") && export.err.ends_with(" files in a.tar.zst\n"));
    world.run(&["export", "results/s", "-o", "b.tar.zst"]).ok();
    world.run(&["export", "-o", "c.tar.gz"]).ok();
    world.run(&["export"]).ok();
    let bytes = |name: &str| fs::read(world.path(name)).unwrap();
    assert!(bytes("a.tar.zst") == bytes("b.tar.zst"), "two archives of one sweep differ");
    assert!(bytes("a.tar.zst") == bytes("s.tar.zst"));
    assert_eq!(names(&world, "a.tar.zst"), names(&world, "c.tar.gz"));

    let asked: [&[&str]; 5] = [
        &["collect", "--format", "csv"],
        &["collect", "--steps", "--format", "csv"],
        &["collect", "--format", "records"],
        &["best", "--metric", "loss", "--min", "--by", "trial"],
        &["logs", "1"],
    ];
    let answers = |folder: &str| -> Vec<String> {
        let run = |args: &&[&str]| world.run_in(folder, args).whole().replace(folder, "F");
        asked.iter().map(run).collect()
    };
    let before = answers("results/s");
    let report = world.run(&["report", "results/s"]);
    assert_eq!(report.code, 0);
    for hidden in ["results", "plan.toml", "job.sh"] {
        fs::rename(world.path(hidden), world.path(&format!("old-{hidden}"))).unwrap();
    }
    unpack(&world, "a.tar.zst", "else/where");
    assert_eq!(answers("else/where/s"), before);
    assert_eq!(world.read("else/where/s/export/table.csv"), before[0].replace("exit code 0\n", ""));
    assert!(world.read("else/where/s/export/report.html").contains("<html"));
    let states = json!({"done": 2, "failed": 1});
    let expected = json!({"format": 2, "states": states, "finished": true, "journals": 1});
    assert_eq!(about(&world, "else/where/s"), expected);
    assert_eq!(world.run(&["report", "else/where/s"]).code, 0);
    let status = world.run(&["status", "else/where/s"]);
    let expected = "s: 3 trials in $WORLD/else/where/s\n  state   trials\n  done         2\n  failed       1\n";
    assert!(status.out.starts_with(expected), "{}", status.whole());

    // The copy can be handed on, and has what it had, once.
    let again = world.run(&["export", "else/where/s", "-o", "d.tar"]);
    assert_eq!(again.code, 0, "{}", again.whole());
    assert_eq!(names(&world, "d.tar"), names(&world, "a.tar.zst"));
}

#[test]
fn another_user_reads_what_was_unpacked() {
    let world = ended();
    world.run(&["export", "-o", "a.tar.gz"]).ok();
    fs::rename(world.path("results"), world.path("hidden")).unwrap();
    fs::create_dir(world.path("guest")).unwrap();
    std::os::unix::fs::chown(world.path("guest"), Some(NOBODY), None).ok();
    fs::set_permissions(world.path("guest"), fs::Permissions::from_mode(0o777)).unwrap();
    let line = "HOME=$PWD; tar -xf ../a.tar.gz";
    let Some(ran) = world.run_as_after(NOBODY, line, "guest", &["collect", "--format", "csv", "s"])
    else {
        return;
    };
    assert_eq!(ran.ok(), world.read("guest/s/export/table.csv"));
    let report = world.run_as_after(NOBODY, "HOME=$PWD", "guest", &["report", "s"]).unwrap();
    assert_eq!(report.code, 0, "{}", report.whole());
}

#[test]
fn what_is_left_out_is_left_out_and_said() {
    let world = ended();
    let parts = |name: &str, part: &str| {
        names(&world, name).iter().filter(|file| file.contains(part)).count()
    };
    world.run(&["export", "-o", "all.tar"]).ok();
    let all = ["/checkpoint/state", "/logs/", "/saved", ".log"].map(|part| parts("all.tar", part));
    assert_eq!(all, [3, 4, 3, 3]);
    world.run(&["export", "-o", "some.tar", "--without", "logs,checkpoints"]).ok();
    let some = ["/checkpoint", "/logs", "/saved", ".log"].map(|part| parts("some.tar", part));
    assert_eq!(some, [0, 0, 3, 0]);
    unpack(&world, "some.tar", "x");
    assert_eq!(about(&world, "x/s")["without"], json!(["checkpoints", "logs"]));
    world.run(&["export", "-o", "none.tar", "--without", "work"]).ok();
    assert_eq!(parts("none.tar", "/work"), 0);
    let told = world.run(&["export", "-o", "told.tar", "--without", "logs", "--json"]);
    let mut object: Value = serde_json::from_str(told.ok()).unwrap();
    let files = object.as_object_mut().unwrap().remove("files").unwrap();
    assert!(files.as_u64().unwrap() > 10, "{files}");
    let expected = json!({
        "sweep": "s", "file": "told.tar", "trials": 3, "unfinished": 0, "without": ["logs"],
        "skipped": [], "short": [], "outward_links": 0,
    });
    assert_eq!((object, told.err.as_str()), (expected, ""));
    let collect = |sweep: &str| world.run(&["collect", "--format", "csv", sweep]).whole();
    assert_eq!(collect("x/s"), collect("results/s"));
    // What belongs to this machine never travels.
    world.write("results/s/meet/1.json", "{}");
    world.write("results/s/jobs/env-0.sh", "export SECRET=1");
    world.write("results/s/submit.lock", "");
    world.write("results/s/index/000", "");
    world.run(&["export", "-o", "again.tar"]).ok();
    assert_eq!(names(&world, "again.tar"), {
        let mut with_jobs = names(&world, "all.tar");
        let at = with_jobs.iter().position(|name| name == "s/journal").unwrap();
        with_jobs.insert(at, "s/jobs".to_owned());
        with_jobs
    });
}

#[test]
fn a_copy_runs_with_its_own_set_up_script_and_its_own_code() {
    let world = World::new();
    let run =
        "run.command = [\"sh\", \"-c\", \"[ $SET = up ] && cat code && exit $(cat $FAIL)\"]\n";
    let plan = format!(
        "version = 1\nsweep.name = \"s\"\n{run}run.setup = [\"export SET=up\"]\nsnapshot.paths = [\"code\"]\n"
    );
    world.write("p/plan.toml", &plan);
    world.write("p/code", "the code\n");
    world.write("fail", "1");
    let fail = world.text_path("fail");
    let line = |args: &[&str], folder: &str| {
        let script = format!("cd {folder} && FAIL={fail} exec \"$0\" \"$@\"");
        world.call("bash", &[&["-c", &script, PROGRAM], args].concat())
    };
    assert_eq!(line(&["submit", "plan.toml", "--local"], "p").code, 1);
    world.run(&["export", "p/results/s", "-o", "a.tar"]).ok();
    fs::rename(world.path("p"), world.path("gone")).unwrap();
    unpack(&world, "a.tar", "x");
    world.write("fail", "0");
    let retried = line(&["retry", "0", "s"], "x");
    assert_eq!(retried.code, 0, "{}", retried.whole());
    assert!(world.run(&["logs", "0", "x/s"]).out.ends_with("the code\n"));
    let again = line(&["submit", "s", "--reproduce", "0"], "x");
    assert_eq!(again.code, 0, "{}", again.whole());
}

#[test]
fn logs_that_were_left_out_are_not_taken_for_silence() {
    let world = ended();
    world.run(&["submit", "plan.toml", "--local"]);
    let agents = PLAN.replace("name = \"s\"", "name = \"p\"");
    world.write("agents.toml", &agents);
    world.run(&["worker", "--pull", "agents.toml"]);
    for sweep in ["s", "p"] {
        let (archive, from) = (format!("{sweep}.tar"), format!("results/{sweep}"));
        world.run(&["export", &from, "-o", &archive, "--without", "logs"]).ok();
        unpack(&world, &archive, "x");
        // As is each copy of a copy, and what is merged of copies.
        let (copy, again) = (format!("x/{sweep}"), format!("{sweep}-again.tar"));
        world.run(&["export", &copy, "-o", &again]).ok();
        unpack(&world, &again, "y");
        world.run(&["merge", &copy, "-o", &format!("z/{sweep}")]).ok();
        world.run(&["merge", &from, "--without", "logs", "-o", &format!("w/{sweep}")]).ok();
        for folder in ["x", "y", "z", "w"] {
            let own = format!("{folder}/{sweep}");
            let ran = world.run(&["logs", "1", &own]);
            let one =
                "trial 1: the log was left out of this copy (`--without logs`)\nexit code 0\n";
            assert_eq!(ran.whole(), one, "{own}");
            let ran = world.run(&["logs", "0-2", &own]);
            let all =
                "trials 0-2: the logs were left out of this copy (`--without logs`)\nexit code 0\n";
            assert_eq!(ran.whole(), all, "{own}");
            assert_eq!(world.run(&["why", "2", &own]).code, 0);
        }
    }
}

#[test]
fn an_archive_of_a_running_sweep_has_whole_records_and_says_that_it_is_unfinished() {
    let mut world = world();
    world.set("WAIT", "1");
    let running = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
    let record = "results/s/records/000/1.1.jsonl";
    wait_until("the second trial logs", || {
        world.exists(record) && world.read(record).contains("metrics")
    });
    // Its worker is in the middle of a line.
    let whole = fs::read(world.path(record)).unwrap();
    fs::write(world.path(record), [&whole[..], b"{\"event\":\"en"].concat()).unwrap();
    let export = world.run(&["export", "-o", "a.tar.zst"]);
    fs::write(world.path(record), &whole).unwrap();
    assert_eq!(export.code, 0, "{}", export.whole());
    assert!(
        export.err.starts_with("unfinished: 2 trials of 3 had not ended\ns: "),
        "{}",
        export.err
    );
    unpack(&world, "a.tar.zst", "x");
    assert!(fs::read(world.path("x/s/records/000/1.1.jsonl")).unwrap() == whole);
    let mut told = about(&world, "x/s");
    let exported = told.as_object_mut().unwrap().remove("exported").unwrap();
    let expected = json!({
        "format": 2, "states": {"done": 1, "running": 1, "pending": 1}, "finished": false,
        "standings": [{"state": "running", "trials": "1"}], "journals": 1,
    });
    assert_eq!(told, expected);
    world.write("go", "");
    assert_eq!(running.end(&world).code, 1);

    // The copy says what ran when it was made, and claims no kill.
    let when =
        world.call("date", &["-d", &format!("@{}", exported.as_f64().unwrap().floor()), "+%F %T"]);
    let when = when.ok().trim();
    let status = world.run(&["status", "x/s"]);
    let expected = format!(
        "s: 3 trials in $WORLD/x/s\n  state    trials\n  done          1\n  running       1\n  pending       1\n\
         seen by: the results tree alone: a copy, exported {when} while 1 trial was running\nexit code 0\n"
    );
    assert_eq!(status.whole(), expected);
    let collect = world.run(&["collect", "--format", "csv", "x/s"]);
    assert_eq!(collect.ok(), world.read("x/s/export/table.csv"));
    let why = world.run(&["why", "1", "x/s"]);
    let why = why.ok();
    assert!(why.starts_with("trial 1 of s: running\n"), "{why}");
    assert!(why.contains(&format!("\n  why: when this copy was exported, {when}\n")), "{why}");
    // A copy of the copy is as old as the copy.
    world.run(&["export", "x/s", "-o", "b.tar.zst"]).ok();
    unpack(&world, "b.tar.zst", "y");
    assert_eq!(world.read("y/s/export/about.json"), world.read("x/s/export/about.json"));

    // If the copy is submitted, trials that ran where it was made run here.
    world.write("x/plan.toml", &PLAN.replace("[run]", "sweep.root = \".\"\n[run]"));
    fs::copy(world.path("job.sh"), world.path("x/job.sh")).unwrap();
    world.write("x/go", "");
    let submit = world.run_in("x", &["submit", "plan.toml", "--local"]);
    let said = "its earlier trials run in `$WORLD/x` from now on, not in `$WORLD`\n\
                s: 2 trials to run on this machine";
    assert!(submit.err.starts_with(said), "{}", submit.whole());
    let rows = world.table(&["x/s"]);
    let states: Vec<Vec<&Value>> =
        rows.iter().map(|row| vec![&row["state"], &row["attempts"]]).collect();
    assert_eq!(json!(states), json!([["done", 1], ["done", 2], ["failed", 1]]));
}

#[test]
fn a_copy_of_jobs_shows_them_as_they_were_and_asks_for_its_own_jobs_alone() {
    let mut pbs = Pbs::start();
    pbs.set("hosts", json!([{"name": "n1", "ncpus": 1}]));
    let world = &pbs.world;
    let job = "case {{ i }} in 0) ;; 1) exit 3 ;; *) until [ -e go ]; do sleep 0.01; done ;; esac";
    let plan = format!(
        "version = 1\nsweep.name = \"s\"\nrun.command = [\"sh\", \"-c\", \"{job}\"]\n\
         resources.walltime = \"1m\"\ngrid.i = [0, 1, 2, 3, 4]\n"
    );
    pbs.submit(&plan, &[]).ok();
    wait_until("the third trial runs", || world.exists("results/s/records/000/2.1.jsonl"));
    world.run(&["cancel", "4"]).ok();
    let before = pbs.standings();
    assert_eq!(before[..3], ["done", "failed: exit code 3", "running"]);
    world.run(&["export", "-o", "a.tar"]).ok();
    world.write("go", "");
    let read = |sweep: &str| -> Value {
        serde_json::from_str(&world.run(&["status", "--json", sweep]).out).unwrap()
    };
    let states = |status: &Value| -> Vec<Value> {
        status["trials"].as_array().unwrap().iter().map(|trial| trial["state"].clone()).collect()
    };
    let were = ["done", "failed", "running", "queued", "cancelled"].map(Value::from);
    // A submission asks for what has not ended, and does not look for the jobs of the first place.
    for (folder, target) in [("x", "--pbs"), ("y", "--local")] {
        unpack(world, "a.tar", folder);
        let sweep = format!("{folder}/s");
        let status = read(&sweep);
        assert_eq!(states(&status), were, "{folder}");
        assert_eq!((&status["jobs"], &status["scheduler_calls"]), (&json!([]), &json!(0)));
        let own = plan.replace("run.", "sweep.root = \".\"\nrun.");
        world.write(&format!("{folder}/plan.toml"), &own);
        world.write(&format!("{folder}/go"), "");
        let submit = world.run_in(folder, &["submit", "plan.toml", target]);
        assert!(submit.err.contains("s: 3 trials "), "{}", submit.whole());
    }
    pbs.wait_idle();
    let are = ["done", "failed", "done", "done", "done"].map(Value::from);
    let copy = read("x/s");
    assert_eq!((states(&copy), copy["jobs"].as_array().unwrap().len()), (are.to_vec(), 1));
    assert_eq!(states(&read("y/s")), are);
    let usage = |sweep: &str| world.run(&["usage", "--json", sweep]).ok().contains("walltime");
    assert!(usage("results/s") && usage("x/s"));
}

#[test]
fn names_links_and_special_files_are_stored_as_they_are() {
    let world = ended();
    let work = world.path("results/s/work/000/0");
    let hostile: [&[u8]; 5] =
        [b"two\nlines", b"not\xff\xfeUTF-8", b" -o x;rm", &[b'n'; 255], b"\x1b[31m"];
    for name in hostile {
        fs::write(work.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let deep = (0..4).fold(work.join("deep"), |path, _| path.join("d".repeat(200)));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    fs::write(work.join("one"), "two names").unwrap();
    fs::hard_link(work.join("one"), work.join("other")).unwrap();
    fs::write(world.path("secret"), "secret").unwrap();
    symlink(world.path("secret"), work.join("out")).unwrap();
    symlink("one", work.join("in")).unwrap();
    symlink(".", work.join("loop")).unwrap();
    nix::unistd::mkfifo(&work.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(work.join("socket")).unwrap();
    let export = world.run(&["export", "-o", "a.tar.zst"]);
    let files = export.err.lines().last().unwrap().to_owned();
    let expected = format!(
        "warning: `work/000/0/pipe` is neither a file nor a folder: it is not in the archive\n\
         warning: `work/000/0/socket` is neither a file nor a folder: it is not in the archive\n\
         1 symbolic link leads out of the sweep: stored as links, without their targets\n{files}\n"
    );
    assert_eq!((export.code, export.err), (0, expected));
    unpack(&world, "a.tar.zst", "x");
    let copy = world.path("x/s/work/000/0");
    for name in hostile {
        assert_eq!(fs::read(copy.join(OsStr::from_bytes(name))).unwrap(), name);
    }
    let deep = copy.join(deep.strip_prefix(&work).unwrap());
    assert_eq!(fs::read_to_string(deep.join("file")).unwrap(), "deep");
    assert_eq!(fs::read_to_string(copy.join("other")).unwrap(), "two names");
    assert_eq!(fs::read_link(copy.join("out")).unwrap(), world.path("secret"));
    assert_eq!(fs::read_link(copy.join("loop")).unwrap(), Path::new("."));
    let skipped = json!(["work/000/0/pipe", "work/000/0/socket"]);
    assert_eq!(about(&world, "x/s")["skipped"], skipped);
    let bytes = fs::read(world.path("a.tar.zst")).unwrap();
    assert!(!bytes.windows(6).any(|part| part == b"secret\0"));
}

#[test]
fn requests_that_cannot_be_met_are_refused() {
    let world = ended();
    let check = |args: &[&str], expected: &str| {
        let ran = world.run(&[&["export"], args].concat());
        assert_eq!((ran.code, ran.whole()), (2, format!("{expected}exit code 2\n")), "{args:?}");
    };
    check(
        &["-o", "a.zip"],
        "error: `a.zip` does not say how to write an archive\n\
         hint: end the name in .tar.zst, .tar.gz or .tar\n",
    );
    check(&["-o", "home"], "error: `home` is a folder\nhint: name a file: `-o sweep.tar.zst`\n");
    check(
        &["-o", "results/s/work/a.tar"],
        "error: `results/s/work/a.tar` lies within the sweep\n\
         hint: write the archive elsewhere: it would be a part of itself\n",
    );
    check(
        &["home", "-o", "a.tar"],
        "error: `home` is not a sweep: it has no `sweep.json`\n\
         hint: name the folder that `hpcsweep submit` made: <root>/<sweep name>\n",
    );
    let ran = world.run(&["export", "-o", "missing/a.tar"]);
    assert_eq!(ran.code, 4);
    let expected = "error: cannot write `missing/a.tar`: no such file or directory\n\
                    hint: there is no folder `$WORLD/missing`: make it first\nexit code 4\n";
    assert_eq!(ran.whole(), expected);
}

#[test]
fn a_sweep_with_more_metrics_than_a_table_has_columns_is_exported_with_json_lines() {
    let world = World::new();
    let code = "awk 'BEGIN { for (i = 0; i < 12000; i++) printf \"{\\\"k%d\\\": %d}\\n\", i, i }' >$HPCSWEEP_METRICS";
    world.local(&shell(code, "[grid]\na = [1, 2]\n"), &["-q"]).ok();
    world.run(&["export", "-o", "a.tar"]).ok();
    unpack(&world, "a.tar", "guest");
    let table = world.read("guest/s/export/table.jsonl");
    assert_eq!(world.run(&["collect", "--format", "jsonl", "guest/s"]).ok(), table);
    assert_eq!(table.lines().filter(|line| line.contains("\"k11999\":11999")).count(), 2);
    assert!(!world.exists("guest/s/export/table.csv"));
}

#[test]
fn an_archive_appears_whole_or_not_at_all() {
    let world = ended();
    world.write("a.tar", "the old one");
    let left = |name: &str| world.files(".").into_iter().filter(|f| f.contains(name)).count();
    let full = world.run(&["export", "-o", "/dev/full"]);
    let expected = "error: cannot write `/dev/full`: no space left on device\n\
        hint: free some space (or inodes) and run the same command again; nothing is lost\nexit code 4\n";
    assert_eq!(full.whole(), expected);
    // A limit of the size of files, as a quota.
    let script = "ulimit -f 16; exec \"$0\" export results/s -o a.tar";
    let limited = world.call("bash", &["-c", script, PROGRAM]);
    let expected = "error: cannot write `a.tar`: file too large\n\
        hint: raise the limit of file sizes (`ulimit -f`) and run the same command again\nexit code 4\n";
    assert_eq!(limited.whole(), expected);
    assert_eq!((world.read("a.tar").as_str(), left("a.tar")), ("the old one", 1));
    // Killed in the middle: the old one stays.
    let large = fs::File::create(world.path("results/s/work/000/0/large")).unwrap();
    large.set_len(4 << 30).unwrap();
    let export = world.start(&["export", "results/s", "-o", "a.tar"]);
    let aside = || world.files(".").into_iter().find(|file| file.starts_with(".a.tar."));
    wait_until("the archive grows", || {
        aside().is_some_and(|name| fs::metadata(world.path(&name)).unwrap().len() > 1 << 20)
    });
    export.signal(Signal::SIGKILL);
    assert_eq!(export.end(&world).code, 137);
    assert_eq!(world.read("a.tar"), "the old one");
    // What it left is removed by the next one, which leaves another's file, of a host that cannot be seen from here.
    fs::remove_file(world.path("results/s/work/000/0/large")).unwrap();
    world.write(".a.tar.1-2-3@elsewhere.tmp", "");
    assert_eq!(left(".a.tar."), 2);
    world.run(&["export", "-o", "a.tar"]).ok();
    assert_eq!(left(".a.tar."), 1);
    assert!(names(&world, "a.tar").len() > 10);
}

#[test]
fn a_terminal_shows_how_far_an_archive_is() {
    let world = ended();
    let large = fs::File::create(world.path("results/s/work/000/0/large")).unwrap();
    large.set_len(64 << 20).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    let mut export = world
        .command(PROGRAM)
        .args(["export", "-o", "a.tar.zst"])
        .env("TERM", "xterm")
        .stderr(Stdio::from(pty.slave))
        .spawn()
        .unwrap();
    // The terminal ends with its last user.
    let mut shown = Vec::new();
    let _ = fs::File::from(pty.master).read_to_end(&mut shown);
    assert!(export.wait().unwrap().success());
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains(" of 64.0"), "{shown:?}");
    assert!(shown.ends_with(" files in a.tar.zst\r\n"), "{shown:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let world = ended();
    let own = world.path("results/s/work/000/1/saved");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(world.path("tmp"), fs::Permissions::from_mode(0o777)).unwrap();
    let line = "HOME=$PWD/tmp";
    let args = ["export", "results/s", "-o", "tmp/a.tar"];
    let Some(ran) = world.run_as_after(NOBODY, line, ".", &args) else { return };
    assert_eq!(ran.code, 4, "{}", ran.whole());
    let first = "error: cannot read `$WORLD/results/s/work/000/1/saved`: permission denied\n";
    assert!(ran.err.starts_with(first), "{}", ran.whole());
    assert_eq!(world.files("tmp"), Vec::<String>::new());
    let without = [&args[..], &["--without", "work"]].concat();
    world.run_as_after(NOBODY, line, ".", &without).unwrap().ok();
}

#[test]
fn agents_are_not_at_work_in_a_copy() {
    let world = World::new();
    let code = ": >begun; until [ -e go ]; do sleep 0.01; done";
    world.write("plan.toml", &crate::support::plans::shell(code, "[grid]\ni = [0, 1]\n"));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it runs", || world.exists("begun"));
    world.run(&["export", "-o", "a.tar"]).ok();
    unpack(&world, "a.tar", "x");
    let status = world.run(&["status", "x/s"]);
    let seen = status.out.lines().find(|line| line.starts_with("seen by: ")).unwrap_or_default();
    assert!(seen.contains("a copy, exported") && !seen.contains("at work"), "{}", status.whole());
    assert!(world.run(&["status"]).out.contains("1 agent at work"));
    world.write("go", "");
    agent.end(&world);
}
