//! `hpcsweep run`: a sweep in one line, and the plan that it writes.

use std::io::Write;
use std::process::Stdio;

use crate::support::slurm::slurm;
use crate::support::world::{PROGRAM, Ran, World};

/// A program that prints its arguments, each between brackets.
const SHOW: &str = "#!/bin/sh\nfor word in \"$@\"; do printf '[%s]\\n' \"$word\"; done\n";

/// Runs hpcsweep with this text as its standard input.
fn fed(world: &World, args: &[&str], input: &[u8]) -> Ran {
    let mut child = world.command(PROGRAM).args(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that refuses its request may end before it has read all.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The plan without its first line, which has the mark.
fn plan(world: &World, name: &str) -> String {
    let text = world.read(name);
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.starts_with("# Written by hpcsweep run "), "{first}");
    assert!(first.ends_with(": the same command continues the sweep."), "{first}");
    rest.to_owned()
}

/// The one list of a sweep that is here.
fn list(world: &World, sweep: &str) -> String {
    let begin = format!("{sweep}.lines-");
    let entries = std::fs::read_dir(world.path(".")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let lists: Vec<String> = names.filter(|name| name.starts_with(&begin)).collect();
    assert_eq!(lists.len(), 1, "{lists:?}");
    lists[0].clone()
}

/// The output of each trial, in their order.
fn outputs(world: &World, sweep: &str) -> Vec<String> {
    let n = world.run(&["collect", sweep, "--format", "jsonl"]).ok().lines().count();
    (0..n).map(|id| world.run(&["logs", sweep, &id.to_string()]).ok().to_owned()).collect()
}

#[test]
fn all_parameters_reach_the_program_at_once() {
    let world = World::new();
    world.program("train", SHOW);
    let line = ["run", "lr=-1e-5", "opt.name=\"a b\"", "fast=true,false", "--"];
    world.run(&[&line[..], &["train", "--go={fast}", "{args}"]].concat()).ok();
    let flags = "[--lr=-0.00001]\n[--opt.name]\n[a b]\n";
    let all = ["true", "false"].map(|fast| format!("[--go={fast}]\n{flags}"));
    assert_eq!(outputs(&world, "results/train"), all);
    assert!(world.read("train.toml").contains("\"{{ args }}\"]\n\n"));

    world.run(&[&line[..1], &["--args", "hydra"], &line[1..], &["train", "{args}"]].concat()).ok();
    assert!(world.read("train.toml").contains("\"{{ args }}\"]\nargs = \"hydra\"\n"));
    let ran = world.run(&["logs", "results/train", "3"]);
    assert_eq!(ran.ok(), "[lr=-0.00001]\n[opt.name='a b']\n[fast=false]\n");
    let ran = world.run(&["run", "--args", "hydra", "lr=1", "--", "train"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("`command` does not have it"), "{}", ran.whole());
    let ran = world.run(&["run", "--args", "hydro", "lr=1", "--", "train"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
}

#[test]
fn one_line_writes_a_plan_and_runs_it_and_a_second_call_continues() {
    let world = World::new();
    world.program("train", SHOW);
    let line = ["run", "lr=0.1,0.01", "seed=1..2", "--", "train", "--lr", "{lr}", "--seed={seed}"];
    let ran = world.run(&line);
    ran.ok();
    let first = ran.err.lines().next().unwrap();
    assert_eq!(first, "wrote train.toml: edit it, then `hpcsweep submit train.toml`");
    assert_eq!(
        plan(&world, "train.toml"),
        "\
# Edit it as you like, then `hpcsweep submit train.toml`: `hpcsweep run` leaves an edited plan alone.
version = 1

[sweep]
name = \"train\"

[run]
command = [\"train\", \"--lr\", \"{{ lr }}\", \"--seed={{ seed }}\"]

[grid]                         # each combination of these values
lr = [0.1, 0.01]
seed = { range = [1, 2] }
"
    );
    let expected = [
        "[--lr]\n[0.1]\n[--seed=1]\n",
        "[--lr]\n[0.1]\n[--seed=2]\n",
        "[--lr]\n[0.01]\n[--seed=1]\n",
        "[--lr]\n[0.01]\n[--seed=2]\n",
    ];
    assert_eq!(outputs(&world, "results/train"), expected);
    let written = world.read("train.toml");
    let again = world.run(&line);
    assert_eq!(
        again.err,
        "as before: train.toml\ntrain: nothing left to run\nresults: $WORLD/results/train\n\
         for the results: hpcsweep collect results/train; hpcsweep report results/train\n"
    );
    assert_eq!(world.read("train.toml"), written);
    // Other words change the sweep, as a changed plan does.
    let ran = world.run(&[
        "run",
        "lr=0.1,0.01,1.0",
        "seed=1..2",
        "--",
        "train",
        "--lr",
        "{lr}",
        "--seed={seed}",
    ]);
    assert!(ran.err.contains("train: 2 trials to run on this machine"), "{}", ran.err);
    // The next step is to edit the plan.
    world.write("train.toml", &world.read("train.toml").replace("1.0]", "1.0, 2.0]"));
    assert!(world.run(&["submit", "train.toml"]).err.contains("2 trials to run"));
    let edited = world.read("train.toml");
    let refused = world.run(&line);
    assert_eq!(
        refused.whole(),
        "error: `train.toml` was edited, and this command would write it anew\n\
         hint: `hpcsweep submit train.toml` runs it as it is, `--name OTHER` writes another plan\nexit code 2\n"
    );
    assert_eq!(world.read("train.toml"), edited);
}

#[test]
fn requests_and_spaced_values_are_in_the_plan_as_a_person_writes_them() {
    let world = slurm();
    let ran = world.run(&[
        "run",
        "--slurm",
        "--dry-run",
        "--time",
        "10m",
        "--mem",
        "2G",
        "--gpus",
        "1",
        "--cpus",
        "4",
        "--partition",
        "main",
        "--account",
        "a",
        "--qos",
        "q",
        "--nodes",
        "1",
        "--ranks",
        "1",
        "lr=log(1e-4,1e-1,7)",
        "epochs=3",
        "--",
        "python3",
        "fit.py",
        "--lr",
        "{lr}",
        "--epochs",
        "{epochs}",
    ]);
    let (text, shown) = ran.ok().split_once("7] }\n\n").unwrap();
    let (first, text) = text.split_once('\n').unwrap();
    assert!(first.starts_with("# Written by hpcsweep run "), "{first}");
    assert_eq!(
        text,
        "\
# Edit it as you like, then `hpcsweep submit fit.toml`: `hpcsweep run` leaves an edited plan alone.
version = 1

[sweep]
name = \"fit\"

[run]
command = [\"python3\", \"fit.py\", \"--lr\", \"{{ lr }}\", \"--epochs\", \"{{ epochs }}\"]

[resources]                    # of each trial
nodes = 1
ranks = 1
cpus_per_rank = 4
gpus_per_rank = 1
memory = \"2G\"
walltime = \"10m\"
partition = \"main\"
account = \"a\"
qos = \"q\"

[defaults]                     # the same for all trials
epochs = 3

[grid]                         # each combination of these values
lr = { log = [0.0001, 0.1, "
    );
    assert!(shown.contains("7 trials"), "{shown}");
    assert_eq!(ran.err, "would write fit.toml:\n");
    assert!(!world.exists("fit.toml") && !world.exists("results"));
    // The same is submitted without `--dry-run`.
    let ran = world.run(&["run", "--slurm", "n=1..3", "--", "true", "{n}"]);
    assert!(ran.err.contains("true: 3 trials submitted as 1 array"), "{}", ran.whole());
}

#[test]
fn a_file_of_commands_is_run_line_by_line_in_bash() {
    let world = World::new();
    world.write(
        "commands.txt",
        "echo one | tr a-z A-Z\n\n# a comment\necho \"two  words\" '{}' {{x}} 100%\n",
    );
    let ran = world.run(&["run", "--lines", "commands.txt"]);
    ran.ok();
    assert!(
        ran.err.starts_with(
            "commands.txt: 1 comment left out\n\
             wrote commands.toml and commands.lines-"
        ),
        "{}",
        ran.err
    );
    let list = list(&world, "commands");
    assert_eq!(
        plan(&world, "commands.toml").replace(&list, "LIST"),
        "\
# Edit it as you like, then `hpcsweep submit commands.toml`: `hpcsweep run` leaves an edited plan alone.
version = 1

[sweep]
name = \"commands\"

[run]
command = [\"bash\", \"-c\", \"{{ command }}\"]

[trials]                       # one for each line, which is its `command`
file = \"LIST\"
"
    );
    assert_eq!(
        world.read(&list),
        "[\n{\"command\":\"echo one | tr a-z A-Z\"},\n{\"command\":\"echo \\\"two  words\\\" '{}' {{x}} 100%\"}\n]\n"
    );
    assert_eq!(outputs(&world, "results/commands"), ["ONE\n", "two  words {} {{x}} 100%\n"]);
}

#[test]
fn lines_of_standard_input_are_values_and_more_of_them_are_new_trials() {
    let world = World::new();
    world.program("segment", SHOW);
    let line = ["run", "--", "segment", "{}"];
    let ran = fed(&world, &line, b"data/a b.nii\ndata/c.nii\n");
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(
        plan(&world, "segment.toml").replace(&list(&world, "segment"), "LIST").ends_with(
            "command = [\"segment\", \"{{ input }}\"]\n\n\
             [trials]                       # one for each line, which is its `input`\n\
             file = \"LIST\"\n"
        ),
        "{}",
        world.read("segment.toml")
    );
    assert_eq!(outputs(&world, "results/segment"), ["[data/a b.nii]\n", "[data/c.nii]\n"]);
    let ran = fed(&world, &line, b"data/a b.nii\ndata/c.nii\ndata/d.nii\n");
    assert!(ran.err.contains("segment: 1 trial to run"), "{}", ran.err);
    // A list that was removed is written anew.
    let (file, text) = (list(&world, "segment"), world.read(&list(&world, "segment")));
    std::fs::remove_file(world.path(&file)).unwrap();
    let ran = fed(&world, &line, b"data/a b.nii\ndata/c.nii\ndata/d.nii\n");
    assert!(ran.err.starts_with(&format!("wrote segment.toml and {file}: ")), "{}", ran.err);
    assert_eq!(world.read(&file), text);
    // An edited list belongs to its editor.
    world.write(&file, &text.replace("c.nii", "e.nii"));
    let ran = fed(&world, &line, b"data/f.nii\n");
    assert_eq!(
        ran.whole(),
        format!(
            "error: the list `{file}` was edited or cut since `hpcsweep run` wrote it\n\
             hint: `mv {file} OTHER.json` keeps it and lets this command go on, `--name OTHER` writes another plan\nexit code 2\n"
        )
    );
    std::fs::rename(world.path(&file), world.path("mine.json")).unwrap();
    assert_eq!(fed(&world, &line, b"data/f.nii\n").code, 0);
}

#[test]
fn a_line_stands_at_the_end_of_a_command_without_its_place_and_axes_multiply_lines() {
    let world = World::new();
    world.program("show", SHOW);
    let ran = fed(&world, &["run", "--lines", "-", "n=1,2", "--", "show", "{n}"], b"a\nb\n");
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let expected = ["[1]\n[a]\n", "[2]\n[a]\n", "[1]\n[b]\n", "[2]\n[b]\n"];
    assert_eq!(outputs(&world, "results/show"), expected);
}

#[test]
fn standard_input_that_is_not_asked_for_is_not_read() {
    let world = World::new();
    // The writing end stays open: a reader would wait for ever.
    let mut command = world.command(PROGRAM);
    command.args(["run", "n=1,2", "--", "true", "{n}"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    let status = child.wait().unwrap();
    drop(stdin);
    assert!(status.success());
    let ran = world.run(&["run", "--", "true", "{}"]);
    assert_eq!(
        ran.whole(),
        "error: standard input has no line, and `{}` in the command asks for lines\n\
         hint: pipe them in, one value a line; for braces that the program gets as they are write `p='\"{}\"'` before `--` \
         and `{p}` in the command\nexit code 2\n"
    );
    world.program("show", SHOW);
    world.run(&["run", "p=\"{}\"", "--", "show", "{p}"]).ok();
    assert_eq!(outputs(&world, "results/show"), ["[{}]\n"]);
}

#[test]
fn any_argument_and_any_line_reach_the_program_byte_for_byte() {
    const NASTY: [&str; 18] = [
        "{",
        "{{x}}",
        "{{ x }}",
        "{% if %}",
        "{# c #}",
        "%",
        "$HOME",
        "it's",
        "\"q\"",
        "back\\slash\\",
        "a\tb",
        "  both ends  ",
        "-n",
        "--",
        "é 中 🎉",
        "*",
        "`id` $(id)",
        "} {",
    ];
    let world = World::new();
    world.program("show", SHOW);
    let long = "x".repeat(100_000);
    let mut args = vec!["run", "n=7", "--name", "all", "--", "show", "", "{n}", "{}"];
    args.extend(NASTY);
    let mut lines: Vec<&str> = NASTY.to_vec();
    lines.extend([&*long, "{n}", "{}", "\u{1}\u{7f}\u{1b}[31m"]);
    let ran = fed(&world, &args, (lines.join("\n") + "\n").as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let end: String = NASTY.iter().map(|word| format!("[{word}]\n")).collect();
    let shown = outputs(&world, "results/all");
    assert_eq!(shown.len(), lines.len());
    for (id, line) in lines.iter().enumerate() {
        let log = world.read(&format!("results/all/logs/000/{id}.1.log"));
        // The log breaks lines of more than 64 KiB only for several ranks.
        assert_eq!(log, format!("[]\n[7]\n[{line}]\n{end}"), "{}", &line[..line.len().min(40)]);
    }
}

#[test]
fn a_wrong_line_is_refused_with_the_word_and_nothing_is_written() {
    let world = World::new();
    world.write("train.toml", "mine\n");
    world.write("latin.txt", "a\n");
    std::fs::write(world.path("latin.txt"), b"a\n\xe9\n").unwrap();
    let before = world.files(".");
    for (args, said) in [
        (
            &["run", "lr=3.10", "--", "x"][..],
            "error: `lr` is `3.10`, a number that would not come back as it is written\n  on the command line: lr=3.10\n\
             hint: write `3.1`, or put it in quotes for a text: `lr='\"3.10\"'`\n",
        ),
        (
            &["run", "lr=1", "python3", "--", "x"],
            "error: `python3` is no parameter\n  on the command line: python3\n\
             hint: write `NAME=VALUES`: `lr=0.1,0.01`, `seed=1..5`, `lr=log(1e-4,1e-1,7)`, `x=linear(0,1,11)`; the command \
             stands after `--`: `-- python3`\n",
        ),
        (
            &["run", "seed=1..5", "--", "x", "--seed={sed}"],
            "error: `{sed}` names no parameter\n  in the command: --seed={sed}\n\
             hint: did you mean `{seed}`? If the program wants these braces, give the parameter `seed` another name\n",
        ),
        (
            &["run", "lr=1"],
            "error: there is no command to run\n\
             hint: write it after `--`: `hpcsweep run lr=0.1,0.01 -- python3 train.py --lr {lr}`; or one a line: `--lines FILE`\n",
        ),
        (
            &["run", "lr=1", "--", "x -v {lr}"],
            "error: the command is one word with blanks, and no program of that name is here\n  in the command: x -v {lr}\n\
             hint: write it without the quotes around all of it; for shell code `-- bash -c '...'`\n",
        ),
        (
            &["run", "lr=1", "--", "python3", "train.py", "{lr}"],
            "error: `train.toml` is there, and `hpcsweep run` did not write it\n\
             hint: `hpcsweep submit train.toml` runs it as it is, `--name OTHER` writes another plan\n",
        ),
        (
            &["run", "--lines", "latin.txt"],
            "error: a line is not UTF-8\n  latin.txt, line 2\n\
             hint: convert it (`iconv -f latin1 -t utf-8`), or rename the files that it names\n",
        ),
        (
            &["run", "--lines", "none.txt"],
            "error: cannot read the lines `none.txt`: no such file or directory\n\
             hint: `--lines FILE` names a file with one command or one value a line\n",
        ),
        (
            &["run", "--name", "a/b", "n=1", "--", "x", "{n}"],
            "error: `a/b` cannot be the name of a sweep\n\
             hint: use letters, digits, `.`, `_` and `-`; at most 64 of them, the first a letter or digit\n",
        ),
        (
            &["run", "--memory", "2", "n=1", "--", "x", "{n}"],
            "error: `--memory` cannot be `2`\nhint: write a number with its unit: `500M`, `2G`, `1T`\n",
        ),
    ] {
        assert_eq!(world.run(args).whole(), format!("{said}exit code 2\n"));
    }
    assert_eq!(world.files("."), before);
    let ran = world.run(&["run", "--lines", "train.toml"]);
    assert_eq!(
        ran.err,
        "error: `train.toml` holds the lines, and is where the plan would be\n\
         hint: give the sweep another name: `--name OTHER`\n"
    );
}

#[test]
fn what_its_user_may_not_expect_is_said() {
    let world = World::new();
    let ran = world.run(&["run", "--dry-run", "a=1..2", "b=3", "--", "true", "{a}"]);
    assert!(
        ran.err.starts_with(
            "`b` stands in no argument: programs find the value in `$HPCSWEEP_PARAM_B`\n"
        ),
        "{}",
        ran.err
    );
    let ran = world.run(&["run", "--dry-run", "--", "true"]);
    assert!(ran.err.starts_with("one trial: there is no parameter"), "{}", ran.err);
}

#[test]
fn a_plan_that_was_removed_comes_back_from_its_sweep() {
    let world = World::new();
    let line = ["run", "n=1,2", "--", "true", "{n}"];
    world.run(&line).ok();
    let written = world.read("true.toml");
    std::fs::remove_file(world.path("true.toml")).unwrap();
    let ran = world.run(&["run", "n=1..3", "--", "true", "{n}"]);
    assert_eq!(
        ran.whole(),
        "error: `results/true` has a sweep, and its plan `true.toml` is not here\n\
         hint: `cp results/true/plan.toml true.toml` puts the plan back that the sweep keeps, `--name OTHER` begins another sweep\n\
         exit code 2\n"
    );
    // The same words make the same plan.
    world.run(&line).ok();
    assert_eq!(world.read("true.toml"), written);
    std::fs::copy(world.path("results/true/plan.toml"), world.path("true.toml")).unwrap();
    let ran = world.run(&["run", "n=1..3", "--", "true", "{n}"]);
    assert!(ran.err.contains("true: 1 trial to run"), "{}", ran.whole());
}

#[test]
fn a_call_that_is_refused_changes_no_plan() {
    let world = World::new();
    let call = |args: &[&str], lines: &str| fed(&world, args, lines.as_bytes());
    let line = ["run", "--lines", "-", "--", "true", "{}"];
    assert_eq!(call(&line, "a\n").code, 0);
    let (plan, old) = (world.read("true.toml"), list(&world, "true"));
    // Another process is at work on the sweep.
    world.write(
        "results/true/submit.lock",
        "{\"host\": \"n3\", \"pid\": 7, \"started\": 1, \"since\": 1.0e9}\n",
    );
    let refused = call(&line, "a\nb\n");
    assert!(
        refused.err.contains("error: another hpcsweep is changing this sweep"),
        "{}",
        refused.err
    );
    assert!(!refused.err.contains("wrote"), "{}", refused.err);
    std::fs::remove_file(world.path("results/true/submit.lock")).unwrap();
    // There is no Slurm, and there are not so many GPUs.
    for option in [&["--slurm"][..], &["--gpus", "99"]] {
        let args = [&["run"], option, &line[1..]].concat();
        let refused = call(&args, "a\nb\n");
        assert_ne!(refused.code, 0, "{}", refused.whole());
        assert!(!refused.err.contains("wrote"), "{}", refused.err);
    }
    assert_eq!((world.read("true.toml"), list(&world, "true")), (plan, old.clone()));
    // The list that a plan named goes with it.
    assert_eq!(call(&line, "a\nb\n").code, 0);
    assert_ne!(list(&world, "true"), old);
    // Results that are a file refuse a new sweep without a trace.
    world.write("empty/results", "");
    let refused = world.run_in("empty", &["run", "n=1,2", "--", "true", "{n}"]);
    assert_ne!(refused.code, 0, "{}", refused.whole());
    assert!(!world.exists("empty/true.toml"));
}

#[test]
fn a_linked_plan_stays_a_link_and_a_protected_one_as_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let line = |values| ["run", values, "--", "true", "{n}"];
    world.write("plans/mine.toml", "");
    std::os::unix::fs::symlink("plans/true.toml", world.path("true.toml")).unwrap();
    let refused = world.run(&line("n=1"));
    assert!(
        refused.err.contains("`true.toml` is a link to a file that is not there"),
        "{}",
        refused.err
    );
    std::fs::remove_file(world.path("true.toml")).unwrap();
    world.run(&line("n=1")).ok();
    std::fs::rename(world.path("true.toml"), world.path("plans/true.toml")).unwrap();
    std::os::unix::fs::symlink("plans/true.toml", world.path("true.toml")).unwrap();
    world.run(&line("n=1,2")).ok();
    assert!(world.path("true.toml").is_symlink());
    assert!(world.read("plans/true.toml").contains("n = [1, 2]"));
    let protected = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(world.path("plans/true.toml"), protected).unwrap();
    let refused = world.run(&line("n=1..3"));
    assert!(refused.err.starts_with("error: `true.toml` is write-protected"), "{}", refused.err);
    assert!(world.read("plans/true.toml").contains("n = [1, 2]"));
}

#[test]
fn a_forgotten_separator_is_named_with_the_line_of_its_user() {
    let world = World::new();
    for (args, mended) in [
        (
            &["lr=0.1", "--time", "10m", "python3", "train.py", "--lr", "{lr}"][..],
            "hpcsweep run lr=0.1 --time 10m -- python3 train.py --lr '{lr}'",
        ),
        (&["lr=0.1", "./fit", "-x", "{lr}"], "hpcsweep run lr=0.1 -- ./fit -x '{lr}'"),
    ] {
        let ran = world.run(&[&["run"], args].concat());
        assert_eq!(ran.code, 2);
        assert!(
            ran.err.contains(&format!("tip: the command stands after '--': {mended}\n")),
            "{}",
            ran.err
        );
        assert!(!ran.err.contains("as a value"), "{}", ran.err);
    }
    let ran = world.run(&["run", "--slurm=", "n=1"]);
    assert!(!ran.err.contains("stands after"), "{}", ran.err);
    let ran = world.run(&["run", "--smoke", "n=1", "--", "true", "{n}"]);
    assert!(ran.err.contains("`--smoke=0`"), "{}", ran.err);
}
