//! Who may write to a sweep: hpcsweep runs nothing that another user has made or can change.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

const NOBODY: u32 = 65534;

fn mode(world: &World, name: &str) -> u32 {
    fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o7777
}

fn set_mode(world: &World, name: &str, mode: u32) {
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// A sweep of two trials of which the first failed, so that there is something to run again.
fn half_done(world: &World) -> String {
    let plan = shell("[ {{ n }} = 2 ] || [ -e now ]", "[grid]\nn = [1, 2]\n");
    assert_eq!(world.local(&plan, &[]).code, 1);
    world.write("now", "");
    plan
}

#[test]
fn what_others_may_write_to_is_not_run() {
    let world = World::new();
    let plan = half_done(&world);
    let check = |name: &str, bad: u32, what: &str| {
        let path = format!("results/s/{name}");
        let good = mode(&world, &path);
        set_mode(&world, &path, bad);
        let shown = path.trim_end_matches('/');
        let refusal = format!("`$WORLD/{shown}` can be written by {what}");
        let ran = world.local(&plan, &["--retry"]);
        assert!(ran.code == 4 && ran.err.contains(&refusal), "{name}: {}", ran.whole());
        // A worker has no use for journals.
        if name != "journal" {
            let worker = world.run(&["worker", "--sweep", "results/s", "--trial", "0"]);
            let is_refused = worker.code == 4 && worker.err.contains(&refusal);
            assert!(is_refused, "{name}: {}", worker.whole());
        }
        assert!(!world.exists("results/s/records/000/0.2.jsonl"));
        set_mode(&world, &path, good);
    };
    check("", 0o775, "its group");
    check("", 0o777, "every user");
    check("sweep.json", 0o664, "its group");
    check("trials", 0o775, "its group");
    let table = world.files("results/s/trials").remove(0);
    check(&format!("trials/{table}"), 0o646, "every user");
    check("journal", 0o777, "every user");
    check("records", 0o775, "its group");
    world.local(&plan, &["--retry"]).ok();
}

/// The hint for users who want to change another user's sweep.
fn only(owner: &str) -> String {
    format!(
        "hint: only {owner} can submit, run, hold or cancel this sweep, and with `shared = \"group\"` under `[sweep]` in \
         the plan its group"
    )
}

/// To read it is not what they want.
#[test]
fn who_may_not_change_a_sweep_learns_whose_it_is() {
    let world = World::new();
    let plan = half_done(&world);
    let verbs: [&[&str]; 6] = [
        &["submit", "plan.toml", "--retry", "--local"],
        &["submit", "plan.toml", "--retry", "--local", "--dry-run"],
        &["submit", "plan.toml", "--local", "--pull"],
        &["cancel", "results/s"],
        &["hold", "results/s"],
        &["release", "results/s"],
    ];
    let check = |what: &str| {
        for verb in verbs {
            let Some(ran) = world.run_as(NOBODY, verb) else { return };
            let refusal =
                format!("error: `$WORLD/results/s` {what}\n{}\n", only("the user `root`"));
            assert_eq!(ran.whole(), format!("{refusal}exit code 4\n"), "{verb:?}");
        }
    };
    check("belongs to the user `root`");
    let closed = plan.replace("name = \"s\"", "name = \"s\"\nreadable_by = \"owner\"");
    world.local(&closed, &[]);
    for verb in verbs {
        let Some(ran) = world.run_as(NOBODY, verb) else { return };
        assert!(
            ran.code == 4 && ran.err.ends_with(&format!("{}\n", only("the user `root`"))),
            "{verb:?} {}",
            ran.whole()
        );
    }
    set_mode(&world, "plan.toml", 0o600);
    let Some(ran) = world.run_as(NOBODY, &["submit", "plan.toml"]) else { return };
    let hint = "hint: `plan.toml` belongs to the user `root`: only the owner can submit this plan; to see its results, \
                name the sweep's folder\n";
    assert!(ran.err.ends_with(hint), "{}", ran.whole());
}

#[test]
fn a_sweep_that_somebody_else_has_made_is_not_adopted() {
    if !nix::unistd::getuid().is_root() {
        // Only root can make a file that belongs to another user.
        return;
    }
    let world = World::new();
    let plan = half_done(&world);
    for name in ["results/s", "results/s/trials", "results/s/sweep.json"] {
        let path = world.path(name);
        chown(&path, Some(NOBODY), None).unwrap();
        let refusal = format!(
            "error: `$WORLD/{name}` belongs to the user `nobody`\n{}\nexit code 4\n",
            only("the user `nobody`")
        );
        assert_eq!(world.local(&plan, &["--retry"]).whole(), refusal);
        // A dry run says so, too, and `cancel` reports the same.
        for args in
            [&["submit", "plan.toml", "--dry-run"][..], &["cancel"], &["hold"], &["release"]]
        {
            assert_eq!(world.run(args).whole(), refusal, "{args:?}");
        }
        let worker = world.run(&["worker", "--sweep", "results/s", "--trial", "0"]);
        assert_eq!(worker.code, 4, "{}", worker.whole());
        chown(&path, Some(0), None).unwrap();
    }
    // Those of one group say that they share it, and only to them does it matter.
    chown(world.path("results/s"), Some(NOBODY), Some(0)).unwrap();
    chown(world.path("results/s/sweep.json"), Some(NOBODY), Some(0)).unwrap();
    let worker = world.run(&["worker", "--sweep", "results/s", "--trial", "0"]);
    assert!(worker.code == 4 && worker.err.contains("belongs to"), "{}", worker.whole());
    let shared = plan.replace("name = \"s\"", "name = \"s\"\nshared = \"group\"");
    world.local(&shared, &["--retry"]).ok();
}

#[test]
fn a_shared_sweep_can_be_written_by_its_group_whatever_the_umask() {
    let world = World::new();
    let plan = shell("umask >umask; : >$HPCSWEEP_WORK_DIR/result", "");
    let plan =
        plan.replace("name = \"s\"", "name = \"s\"\nshared = \"group\"\nreadable_by = \"group\"");
    world.local(&plan, &[]).ok();
    assert_eq!(mode(&world, "results/s"), 0o2770);
    for name in ["trials", "records/000", "logs/000"] {
        assert_eq!(mode(&world, &format!("results/s/{name}")) & 0o777, 0o775, "{name}");
    }
    for name in ["sweep.json", "records/000/0.1.jsonl", "logs/000/0.1.log", "work/000/0/result"] {
        assert_eq!(mode(&world, &format!("results/s/{name}")) & 0o660, 0o660, "{name}");
    }
    // What others can write to is refused all the same.
    set_mode(&world, "results/s/trials", 0o777);
    let ran = world.local(&plan, &["--retry"]);
    assert!(ran.err.contains("can be written by every user"), "{}", ran.whole());
}

#[test]
fn a_plan_says_who_may_read() {
    for (word, expected) in [("owner", 0o700), ("group", 0o2750), ("all", 0o755)] {
        let world = World::new();
        let plan = shell("true", "");
        let plan = plan.replace("name = \"s\"", &format!("name = \"s\"\nreadable_by = \"{word}\""));
        world.local(&plan, &[]).ok();
        assert_eq!(mode(&world, "results/s"), expected, "{word}");
    }
}

#[test]
fn no_link_is_followed_to_where_a_log_is_written() {
    let world = World::new();
    world.write("precious", "kept\n");
    world.local(&shell("exit 1", "attempts = 2\n"), &[]);
    fs::remove_file(world.path("results/s/logs/000/0.1.log")).unwrap();
    // The next run's log, as another user can guess its name.
    symlink(world.path("precious"), world.path("results/s/logs/000/0.2.log")).unwrap();
    let ran = world.local(&shell("echo overwritten; exit 1", "attempts = 2\n"), &["--retry"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.read("precious"), "kept\n");
}

/// A reader of a log may have access to more files than the program that put a link in its place.
#[test]
fn no_link_is_followed_from_where_a_log_is_read() {
    let world = World::new();
    world.write("precious", "a secret\n");
    let code = "precious=$PWD/precious; cd $HPCSWEEP_SWEEP_DIR
                log=$(ls logs/000/*.log agents/*/*.log 2>/dev/null | head -1)
                echo printed; echo $log >$OLDPWD/log; ln -sf $precious $log; exit 3";
    let hook = toml::Value::String("echo \"heard [$HPCSWEEP_LOG_TAIL]\" >heard".to_owned());
    let plan = shell(code, &format!("[hooks]\nerror = [\"sh\", \"-c\", {hook}]\n"));
    for agents in [false, true] {
        let pull: &[&str] = if agents { &["--pull"] } else { &[] };
        assert_eq!(world.local(&plan, pull).code, 1);
        assert_eq!(world.read("heard"), "heard []\n", "{agents}");
        let records = world.run(&["collect", "--format", "records"]).ok().to_owned();
        assert!(records.contains("failed") && !records.contains("secret"), "{records}");
        let log = world.read("log");
        let log = log.trim();
        assert_eq!(world.read(&format!("results/s/{log}")), "a secret\n");
        let said = format!(
            "error: cannot read `$WORLD/results/s/{log}`: it is a symbolic link that is not followed\nexit code 4\n"
        );
        assert_eq!(world.run(&["logs", "0"]).whole(), said);
        fs::remove_dir_all(world.path("results")).unwrap();
    }
}

/// The error about a file that is closed in a sweep's folder that is open.
fn refused_below(doing: &str, name: &str, mode: &str) -> String {
    format!(
        "error: cannot {doing} `$WORLD/results/s/{name}`: permission denied\n\
         hint: `$WORLD/results/s/{name}` belongs to the user `root`, and is closed to you: ask the owner to open \
         what is in the sweep's folder (`find $WORLD/results/s -mindepth 1 -name meet -prune -o ! -type l ! -name 'env-*.sh' -exec chmod {mode} {{}} +`)\n\
         exit code 4\n"
    )
}

/// Files have the mode that the umask gives, and the command that the refusal names opens them, but nothing private.
#[test]
fn what_the_umask_has_closed_in_an_open_folder_is_opened_as_the_refusal_says() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    let plan = shell("true", "");
    world.write("plan.toml", &plan);
    let submit = "umask 077; exec \"$0\" submit plan.toml --local";
    world.call("bash", &["-c", submit, PROGRAM]).ok();
    world.write("results/s/jobs/env-0123456789ab.sh", "");
    set_mode(&world, "results/s/jobs/env-0123456789ab.sh", 0o600);
    fs::create_dir_all(world.path("results/s/meet")).unwrap();
    world.write("results/s/meet/0.json", "");
    set_mode(&world, "results/s/meet/0.json", 0o600);
    world.write("precious", "");
    set_mode(&world, "precious", 0o600);
    symlink(world.path("precious"), world.path("results/s/link")).unwrap();
    let status = ["status", "results/s"];
    for (top, change) in [(0o755, "a+rX"), (0o750, "g+rX")] {
        set_mode(&world, "results/s", top);
        chown(world.path("results/s"), None, (top == 0o750).then_some(NOBODY)).unwrap();
        let Some(ran) = world.run_as(NOBODY, &status) else { return };
        assert_eq!(ran.whole(), refused_below("read", "sweep.json", change));
    }
    set_mode(&world, "results/s", 0o755);
    let said = world.run_as(NOBODY, &status).unwrap().whole();
    let command = said.split('`').find(|part| part.starts_with("find ")).unwrap();
    let command = command.replace("$WORLD", world.path("").to_str().unwrap());
    world.call("sh", &["-c", &command]).ok();
    world.run_as(NOBODY, &status).unwrap().ok();
    for private in ["results/s/jobs/env-0123456789ab.sh", "results/s/meet/0.json", "precious"] {
        assert_eq!(mode(&world, private), 0o600, "{private}");
    }
}

#[test]
fn who_may_not_read_a_sweep_learns_whom_to_ask() {
    let world = World::new();
    let plan = shell("echo 1", "");
    let closed = |word: &str| {
        plan.replace("name = \"s\"", &format!("name = \"s\"\nreadable_by = \"{word}\""))
    };
    world.local(&closed("owner"), &[]).ok();
    let refused = |at: &str, name: &str| {
        format!(
            "error: cannot read `$WORLD/{name}`: permission denied\n\
             hint: `$WORLD/{at}` belongs to the user `root`: ask the owner to let you read it \
             (`readable_by = \"group\"` or `\"all\"` under `[sweep]` in the plan, and the same `submit` again)\n\
             exit code 4\n"
        )
    };
    let verbs: [&[&str]; 5] = [
        &["status"],
        &["collect"],
        &["best", "--metric", "x", "--min"],
        &["watch", "--once"],
        &["logs", "0"],
    ];
    let each = |named: &[&str], expected: &str| {
        for verb in verbs {
            let Some(ran) = world.run_as(NOBODY, &[verb, named].concat()) else { return };
            assert_eq!(ran.whole(), expected, "{verb:?} {named:?}");
        }
    };
    let identity = "results/s/sweep.json";
    for named in [&[][..], &["results/s"], &["results/*"], &["plan.toml"]] {
        each(named, &refused("results/s", identity));
    }
    // The folder above it is closed, or something below it.
    set_mode(&world, "results", 0o700);
    let above = "error: cannot read `$WORLD/results/s/sweep.json`: permission denied\n\
                 hint: `$WORLD/results` belongs to the user `root`, and is closed to you: ask the owner to let you through \
                 (`chmod a+x $WORLD/results`, or `g+x` for the group)\nexit code 4\n";
    for named in [&["results/s"][..], &[]] {
        each(named, above);
    }
    set_mode(&world, "results", 0o755);
    world.local(&closed("all"), &[]).ok();
    set_mode(&world, "results/s/records/000", 0o700);
    if let Some(ran) = world.run_as(NOBODY, &["status"]) {
        let said = refused_below("list", "records/000", "a+rX");
        assert_eq!(ran.whole(), said);
    }
    set_mode(&world, "results/s/records/000", 0o755);
    set_mode(&world, "plan.toml", 0o600);
    if let Some(ran) = world.run_as(NOBODY, &["status", "plan.toml"]) {
        let said = "error: cannot read the plan `plan.toml`: permission denied\n\
                    hint: `plan.toml` belongs to the user `root`: only the owner can submit this plan; to see its \
                    results, name the sweep's folder\nexit code 2\n";
        assert_eq!(ran.whole(), said);
    }
    // Readers still show the files that are open.
    world.local(&closed("owner").replace("name = \"s\"", "name = \"t\""), &[]).ok();
    let Some(ran) = world.run_as(NOBODY, &["collect", "--format", "csv"]) else { return };
    assert!(ran.code == 0 && ran.out.lines().count() == 2, "{}", ran.whole());
    let warning =
        "warning: `results/t` is left out: it belongs to the user `root` and is closed to you\n";
    assert!(ran.err.contains(warning), "{}", ran.whole());
}

#[test]
fn a_sweep_that_its_owner_has_closed_can_be_opened() {
    if nix::unistd::getuid().is_root() {
        let world = World::new();
        world.local(&shell("true", ""), &[]).ok();
        for name in ["results/s", "results/s/sweep.json"] {
            chown(world.path(name), Some(NOBODY), None).unwrap();
        }
        set_mode(&world, "results/s/sweep.json", 0);
        let said = world.run_as(NOBODY, &["status", "results/s"]).unwrap().whole();
        assert_eq!(
            said,
            "error: cannot read `$WORLD/results/s/sweep.json`: permission denied\n\
             hint: it is yours: `chmod -R u+rX $WORLD/results/s/sweep.json` opens it\nexit code 4\n"
        );
    }
}

#[test]
fn agents_of_a_group_share_a_sweep_and_each_member_can_hold_it() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    chown(world.path("results"), None, Some(NOBODY)).unwrap();
    set_mode(&world, "results", 0o2775);
    set_mode(&world, "tmp", 0o777);
    let code =
        "[ $HPCSWEEP_TRIAL != 0 ] || until [ -e go ]; do sleep 0.01; done; id -u >$HPCSWEEP_RESULT";
    let rest = "[pull]\nlease = 2\n[grid]\na = [1, 2, 3, 4]\n";
    let shared = shell(code, rest).replace("name = \"s\"", "name = \"s\"\nshared = \"group\"");
    world.write("plan.toml", &shared);
    let first = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let counts = || world.status()["counts"].to_string();
    wait_until("the first has begun", || {
        world.exists("results/s/pull/0001.json") && counts().contains("running")
    });
    let as_other = |args: &[&str]| world.run_as(NOBODY, args).unwrap();
    let mine = "hint: only the user `root` can submit, run, hold or cancel this sweep, and with `shared = \"group\"` under \
                `[sweep]` in the plan its group: a member of the group names the plan that says so, not the folder\n";
    for verb in [&["worker", "--pull"][..], &["hold"], &["cancel"]] {
        let ran = as_other(&[verb, &["results/s"]].concat());
        assert!(ran.code == 4 && ran.err.ends_with(mine), "{}", ran.whole());
    }
    // The other user releases what one has held.
    as_other(&["hold", "plan.toml"]).ok();
    let held = world.run(&["status", "results/s"]);
    assert!(held.out.contains("held by nobody"), "{}", held.whole());
    world.run(&["release", "results/s"]).ok();
    std::thread::scope(|scope| {
        let pull = ["worker", "--pull", "plan.toml", "--slots", "1"];
        let second = scope.spawn(move || as_other(&pull));
        wait_until("it has taken the others over", || counts() == r#"{"done":3,"running":1}"#);
        world.write("go", "");
        second.join().unwrap().ok();
    });
    first.end(&world).ok();
    let other = NOBODY.to_string();
    assert_eq!(world.column("result"), ["0", &other, &other, &other]);
}

#[test]
fn a_folder_that_cannot_be_made_asks_for_another_name() {
    let world = World::new();
    world.local(&shell("true", ""), &[]).ok();
    for args in
        [["collect", "results/s", "--tensorboard", "new"], ["merge", "results/s", "-o", "new"]]
    {
        let Some(ran) = world.run_as(NOBODY, &args) else { return };
        let whole = ran.whole().replace("$WORLD/", "");
        assert_eq!(
            whole,
            "error: cannot make the folder `new`: permission denied\n\
             hint: name a folder in one that you may write to\nexit code 4\n"
        );
    }
}
