//! `[container]`: the command of a trial runs in an image, by Charliecloud, and everything else stays as it is.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::json;

use crate::support::world::World;

/// A world with an image `image` made of this machine's shell and a few programs.
fn world() -> World {
    let world = World::new();
    let image = world.path("image");
    let mut files = BTreeSet::new();
    for program in ["/bin/sh", "/bin/cat", "/bin/sleep", "/usr/bin/env"] {
        let out = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(libraries.map(str::to_owned));
        files.insert(program.to_owned());
    }
    for file in files {
        let place = image.join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(fs::canonicalize(&file).unwrap(), place).unwrap();
    }
    for folder in ["dev", "proc", "sys", "etc", "tmp", "root", "home", "usr", "data"] {
        fs::create_dir_all(image.join(folder)).unwrap();
    }
    for file in ["passwd", "group", "hosts", "resolv.conf"] {
        fs::write(image.join("etc").join(file), "").unwrap();
    }
    fs::write(image.join("inside"), "in the image\n").unwrap();
    let own = world.text_path("");
    fs::create_dir_all(image.join(own.trim_start_matches('/'))).unwrap();
    world
}

fn plan(code: &str, rest: &str) -> String {
    let code = toml::Value::String(code.to_owned());
    format!(
        "version = 1\nsweep.name = \"s\"\nrun.command = [\"sh\", \"-c\", {code}, \"sh\", \"a b\", \"it's $HOME\", \"--\"]\n\
         [container]\nimage = \"./image\"\nruntime = \"charliecloud\"\n{rest}"
    )
}

#[test]
fn a_program_runs_inside_with_its_arguments_folders_and_variables() {
    let world = world();
    let code = "cat /inside; echo \"$1|$2|$3\"; echo $HPCSWEEP_TRIAL $HPCSWEEP_PARAM_LR; \
        echo '{\"loss\": 2}' >>$HPCSWEEP_METRICS; echo 5 >$HPCSWEEP_RESULT; echo kept >$HPCSWEEP_WORK_DIR/file; \
        echo here >beside; cat /data/given";
    world.write("given/given", "given\n");
    let binds = format!("binds = [\"{}:/data\"]\n[defaults]\nlr = 0.5\n", world.text_path("given"));
    let ran = world.local(&plan(code, &binds), &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.whole(), world.run(&["logs", "0"]).whole());
    let log = world.run(&["logs", "0"]);
    assert_eq!(log.ok(), "in the image\na b|it's $HOME|--\n0 0.5\ngiven\n");
    let row = &world.table(&[])[0];
    assert_eq!((&row["loss"], &row["result"]), (&json!(2), &json!(5)));
    assert_eq!(world.read("results/s/work/000/0/file"), "kept\n");
    assert_eq!(world.read("beside"), "here\n");
}

#[test]
fn exit_codes_and_signals_pass() {
    let world = world();
    let rest = "[[trials]]\ncode = \"exit 7\"\n[[trials]]\ncode = \"kill -SEGV $$\"\n\
        [[trials]]\ncode = \"trap 'echo told >$HPCSWEEP_WORK_DIR/told; exit 9' TERM; while :; do sleep 0.05; done\"\n\
        resources.walltime = \"2s\"\n";
    let ran = world.local(&plan("eval \"$HPCSWEEP_PARAM_CODE\"", rest), &[]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(world.column("exit_code"), ["7", "139", "9"]);
    assert_eq!(world.column("cause"), ["\"exit-code\"", "\"signal\"", "\"walltime\""]);
    assert_eq!(world.read("results/s/work/000/2/told"), "told\n");
}

#[test]
fn each_rank_is_in_a_container_of_its_own_with_its_rank() {
    let world = world();
    let rest = "[resources]\nranks = 2\n";
    let ran = world
        .local(&plan("echo $RANK/$WORLD_SIZE >$HPCSWEEP_WORK_DIR/$RANK; cat /inside", rest), &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.whole(), world.run(&["logs", "0"]).whole());
    let said = |rank: u32| world.read(&format!("results/s/work/000/0/{rank}"));
    assert_eq!((said(0).as_str(), said(1).as_str()), ("0/2\n", "1/2\n"));
}

/// The host's Python, whose libraries the image lacks.
const PYTHON: &str = "binds = [\"/usr:/usr\"]\n";

#[test]
fn python_finds_the_module_inside() {
    let world = world();
    let code = "python3 -S -c 'import hpcsweep; print(hpcsweep.time_left())'";
    world.local(&plan(code, PYTHON), &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "None\n");
    assert_eq!(world.files("tmp"), [""; 0]);
}

#[test]
fn ranks_in_containers_are_synced_over_mpi() {
    let world = world();
    let code = "echo '{\"loss\": '$RANK'}' >>$HPCSWEEP_METRICS; python3 -S -c '\
        import hpcsweep; print(hpcsweep.reduce({\"x\": hpcsweep.rank() + 5})[\"x\"])'";
    let rest = format!("{PYTHON}[resources]\nranks = 2\n[metrics]\nsync = \"mpi\"\n");
    let ran = world.local(&plan(code, &rest), &[]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.whole(), world.run(&["logs", "0"]).whole());
    assert_eq!(world.column("loss"), ["0.5"]);
    let log = world.run(&["logs", "0"]);
    let mut lines: Vec<&str> = log.ok().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[rank 0] 5.5", "[rank 1] 5.5"]);
}

#[test]
fn a_snapshot_is_seen_inside() {
    let world = world();
    world.write("code.sh", "echo old");
    let text = plan(". ./code.sh", "[snapshot]\npaths = [\"code.sh\", \"plan.toml\"]\n");
    world.local(&text, &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "old\n");
}

#[test]
fn agents_run_programs_in_containers() {
    let world = world();
    world.write("plan.toml", &plan("cat /inside", "[grid]\ni = [0, 1]\n"));
    let ran = world.run(&["submit", "plan.toml", "--local", "--pull"]);
    assert_eq!(ran.code, 0, "{}\n{}", ran.whole(), world.run(&["logs", "0"]).whole());
    assert_eq!(world.run(&["logs", "1"]).ok(), "in the image\n");
}

#[test]
fn what_is_missing_is_named_with_its_cause() {
    let world = world();
    let reason = |text: &str| {
        world.local(text, &["-q"]);
        let last = world.status()["trials"].as_array().unwrap().last().unwrap().clone();
        (last["cause"].clone(), last["reason"].as_str().unwrap_or_default().to_owned())
    };
    let text = plan("true", "[grid]\ni = [1]\n");
    let (cause, said) = reason(&text.replace("./image", "./nowhere"));
    let expected = "the image `$WORLD/nowhere` does not exist here";
    assert_eq!((cause, said.split("; hint").next().unwrap()), (json!("set-up"), expected));
    let (cause, said) =
        reason(&text.replace("charliecloud", "enroot").replace("./image", "debian"));
    assert_eq!(cause, json!("command-not-found"));
    assert!(said.starts_with("cannot start `enroot`: no such file or directory"), "{said}");
    let binds = format!("binds = [\"{}:/not/there\"]\n[grid]", world.text_path("image"));
    let (cause, said) = reason(&text.replace("[grid]", &binds));
    assert_eq!(cause, json!("set-up"));
    assert!(said.contains("has no folder `/not/there` to bind to"), "{said}");
}
