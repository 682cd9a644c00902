//! `[hooks]`: a hook is called once for each trial that has ended for good, with everything that is known of
//! it. Whatever a hook does, the trial's result stands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::faults::in_own_mounts;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, only, timeless, wait_until};

/// A hook that records its arguments and its variables.
const HOOK: &str = r#"#!/bin/sh
echo "$* trial=$HPCSWEEP_TRIAL attempt=$HPCSWEEP_ATTEMPT $HPCSWEEP_STATE" \
  "code=[$HPCSWEEP_EXIT_CODE] signal=[$HPCSWEEP_SIGNAL] $HPCSWEEP_REASON" >>"$CALLS"
"#;

/// Both hooks, each called by its name.
const HOOKS: &str = "[hooks]\nfinish = [\"hook\", \"finish\"]\nerror = [\"hook\", \"error\"]\n";

/// A world with the hook above on its PATH.
fn world() -> World {
    let mut world = World::new();
    world.set("CALLS", &world.text_path("calls"));
    world.program("hook", HOOK);
    world
}

/// The environments of the hooks' calls.
fn calls(world: &World) -> String {
    if world.exists("calls") { world.read("calls") } else { String::new() }
}

fn log(world: &World, trial: u64) -> String {
    world.run(&["logs", &trial.to_string()]).ok().to_owned()
}

#[test]
fn each_trial_that_ends_is_told_of_once() {
    let world = world();
    let rest = format!(
        r#"{HOOKS}
[resources]
walltime = "60s"
[[trials]]
code = "true"
[[trials]]
code = "exec python3 -c 'raise ValueError(0)' 2>&1"
[[trials]]
code = "exit 3"
[[trials]]
code = "kill -9 $$"
[[trials]]
code = "echo 'the disk is full' >$HPCSWEEP_REASON; exit 4"
[[trials]]
code = "exec sleep 600"
resources.walltime = "1s"
[[trials]]
code = "exit 1"
task_id = "chain"
[[trials]]
code = "true"
task_id = "chain"
[[trials]]
code = "echo well"
"#
    );
    let ran = world.local(&shell("eval \"$HPCSWEEP_PARAM_CODE\"", &rest), &["-j", "1"]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert_eq!(
        world.status()["counts"],
        json!({"done": 2, "failed": 5, "timeout": 1, "skipped": 1})
    );
    let expected = "\
finish trial=0 attempt=1 done code=[0] signal=[] 
error trial=1 attempt=1 failed code=[1] signal=[] ValueError: 0 (from its log)
error trial=2 attempt=1 failed code=[3] signal=[] exit code 3
error trial=3 attempt=1 failed code=[137] signal=[9] signal 9 (SIGKILL)
error trial=4 attempt=1 failed code=[4] signal=[] exit code 4: the disk is full
error trial=5 attempt=1 timeout code=[143] signal=[15] the wall-clock limit was reached
error trial=6 attempt=1 failed code=[1] signal=[] exit code 1
finish trial=8 attempt=1 done code=[0] signal=[] 
";
    assert_eq!(calls(&world), expected);
    // Submitting again runs nothing and calls no hook. A retry that ends again calls its hook again.
    world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(calls(&world), expected);
    world.run(&["submit", "plan.toml", "--local", "--retry", "-j", "1"]);
    let again = calls(&world);
    let again: Vec<&str> = again[expected.len()..].lines().map(|l| &l[..l.len().min(23)]).collect();
    let wanted = (1..=6).map(|trial| format!("error trial={trial} attempt=2"));
    assert_eq!(again, wanted.collect::<Vec<_>>());
}

#[test]
fn a_program_that_cannot_be_started_is_an_error_too() {
    let world = world();
    let plan = format!("version = 1\nsweep.name = \"s\"\nrun.command = [\"nope\"]\n{HOOKS}");
    assert_eq!(world.local(&plan, &[]).code, 1);
    assert_eq!(
        calls(&world),
        "error trial=0 attempt=1 failed code=[] signal=[] cannot start `nope`: no such file or \
         directory; hint: is `nope` installed, and its folder in PATH here?\n"
    );
}

#[test]
fn attempts_that_are_tried_again_are_told_to_nobody() {
    for (ranks, attempts, needs, expected) in [
        (1, 3, 2, "finish trial=0 attempt=2 done code=[0] signal=[] \n"),
        (1, 2, 9, "error trial=0 attempt=2 failed code=[5] signal=[] exit code 5\n"),
        (2, 3, 2, "finish trial=0 attempt=2 done code=[0] signal=[] \n"),
        (2, 2, 9, "error trial=0 attempt=2 failed code=[5] signal=[] exit code 5: rank 0 failed\n"),
    ] {
        let world = world();
        // Rank 1 fails only after rank 0, so that the reason is the same in every run.
        let code = format!(
            "[ $HPCSWEEP_ATTEMPT -ge {needs} ] && exit 0; [ \"$RANK\" != 1 ] || exec sleep 600; exit 5"
        );
        let rest = format!("attempts = {attempts}\n{HOOKS}[resources]\nranks = {ranks}\n");
        let ran = world.local(&shell(&code, &rest), &[]);
        assert_eq!(calls(&world), expected, "{}", ran.whole());
    }
}

/// An `mpirun -n N program`, without any MPI.
const MPIRUN: &str = r#"#!/bin/sh
n=$2; shift 2; rank=0
echo launch >>"$LAUNCHES"
while [ $rank -lt $n ]; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$n OMPI_COMM_WORLD_LOCAL_RANK=$rank \
  OMPI_COMM_WORLD_LOCAL_SIZE=$n OMPI_COMM_WORLD_NODE_RANK=$rank "$@" &
  rank=$((rank + 1))
done
wait
"#;

#[test]
fn launches_that_are_followed_by_another_are_told_to_nobody() {
    let mut world = world();
    world.set("LAUNCHES", &world.text_path("launches"));
    world.program("mpirun", MPIRUN);
    // The worker's rank is not the hook's.
    let in_mpi = "[ -z \"$OMPI_COMM_WORLD_RANK\" ] || echo called in MPI >>\"$CALLS\"\n";
    world.program("hook", &format!("{HOOK}{in_mpi}"));
    let rest = format!("attempts = 2\n{HOOKS}[metrics]\nsync = \"mpi\"\n[resources]\nranks = 2\n");
    let plan = shell("exit 5", &rest);
    assert_eq!(world.local(&plan, &[]).code, 1);
    assert_eq!(world.read("launches"), "launch\n".repeat(2), "{}", log(&world, 0));
    let told = calls(&world);
    assert!(told.starts_with("error trial=0 attempt=2 failed "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    // The same again.
    assert_eq!(world.run(&["submit", "plan.toml", "--local", "--retry"]).code, 1);
    assert_eq!(world.read("launches"), "launch\n".repeat(4));
    let told = calls(&world);
    let second = told.lines().nth(1).unwrap();
    assert!(second.starts_with("error trial=0 attempt=4 failed "), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");

    // The same in a job, whose script launches again when it is asked to.
    let launch = |n: u32| {
        let mut command = world.command(&world.text_path("bin/mpirun"));
        command.args(["-n", "2", PROGRAM, "worker", "--trial", "0", "--sweep", "results/s"]);
        command.env("HPCSWEEP_AGAIN", world.path("again")).env("SLURM_JOB_ID", "12");
        command.env("HPCSWEEP_MEET", n.to_string());
        let output = command.output().unwrap();
        assert!(world.exists("again"), "{}", world.shown(&output.stderr));
        std::fs::remove_file(world.path("again")).unwrap();
        calls(&world).lines().count()
    };
    assert_eq!((launch(1), launch(2)), (2, 3));
}

#[test]
fn a_hook_is_told_all_there_is_to_know() {
    let mut world = world();
    // A hook ignores variables that an outer hook or worker has left.
    world.set("HPCSWEEP_LOG_TAIL", "old");
    world.set("HPCSWEEP_METRICS", "old");
    world.write("w/here", "");
    world.program(
        "say-all",
        "#!/bin/sh\nls here || exit 9\n\
         env -0 | grep -z -E '^(HPCSWEEP_|WORDS=)' | sort -z >\"$CALLS.env\"\n\
         cp \"$HPCSWEEP_OUTCOME\" \"$CALLS.json\"\n\
         stat -c %a \"$(dirname \"$HPCSWEEP_OUTCOME\")\" >\"$CALLS.mode\"\n\
         for word in \"$@\"; do printf '%s\\0' \"$word\"; done >\"$CALLS.argv\"\n\
         echo said by the hook; echo and this on stderr >&2; rm here\n",
    );
    let code = r#"for n in $(seq 30); do echo line $n; done; echo '{"best": 1}' >$HPCSWEEP_RESULT
        printf 'odd \377\000 bytes'; exit 3"#;
    let rest = r#"workdir = "w"
env = { WORDS = "{{ words }}" }
[hooks]
error = ["say-all", "{{ words }}", "{{ lr * 2 }}", "{{ trial.id }} {{ sweep.name }}", "", "$(touch x)"]
[[trials]]
task_id = "fold 1"
lr = 0.5
words = """it's "quoted" $(touch x)
two `lines` \\"""
opt.deep = [1, "a"]
"#;
    let ran = world.local(&shell(code, rest), &[]);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    let words = "it's \"quoted\" $(touch x)\ntwo `lines` \\";
    let split =
        |text: String| -> Vec<String> { text.split_terminator('\0').map(str::to_owned).collect() };
    assert_eq!(split(world.read("calls.argv")), [words, "1.0", "0 s", "", "$(touch x)"]);
    assert!(!world.exists("w/x"));

    let mut told: Value = serde_json::from_str(&world.read("calls.json")).unwrap();
    let (took, host) = (told["duration_s"].take(), told["host"].take());
    assert!(took.as_f64().unwrap() > 0.0);
    let record = world.read("results/s/records/000/0.1.jsonl");
    let start: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    assert_eq!(host, start["host"]);
    let lines: String = (12..=30).map(|n| format!("line {n}\n")).collect();
    let tail = format!("{lines}odd \u{fffd}\u{fffd} bytes");
    assert_eq!(
        told,
        json!({
            "sweep": "s", "sweep_dir": world.path("results/s"), "trial": 0, "task_id": "fold 1",
            "params": {"lr": 0.5, "words": words, "opt": {"deep": [1, "a"]}}, "attempt": 1,
            "state": "failed", "exit_code": 3, "signal": null, "cause": "exit-code", "reason": "exit code 3",
            "duration_s": null, "host": null, "result": {"best": 1}, "log_tail": tail,
        })
    );
    let env = split(world.shown(world.read("calls.env").as_bytes()));
    let outcome = env.iter().find(|v| v.starts_with("HPCSWEEP_OUTCOME=")).unwrap();
    let expected = [
        "HPCSWEEP_ATTEMPT=1".to_owned(),
        format!("HPCSWEEP_DURATION_S={took}"),
        "HPCSWEEP_EXIT_CODE=3".to_owned(),
        format!("HPCSWEEP_HOST={}", host.as_str().unwrap()),
        format!("HPCSWEEP_LOG_TAIL={tail}"),
        outcome.clone(),
        "HPCSWEEP_PARAM_LR=0.5".to_owned(),
        "HPCSWEEP_PARAM_OPT_DEEP=[1,\"a\"]".to_owned(),
        format!("HPCSWEEP_PARAM_WORDS={words}"),
        "HPCSWEEP_REASON=exit code 3".to_owned(),
        "HPCSWEEP_SIGNAL=".to_owned(),
        "HPCSWEEP_SOURCE=$WORLD/w".to_owned(),
        "HPCSWEEP_STATE=failed".to_owned(),
        "HPCSWEEP_SWEEP=s".to_owned(),
        "HPCSWEEP_SWEEP_DIR=$WORLD/results/s".to_owned(),
        "HPCSWEEP_TASK_ID=fold 1".to_owned(),
        "HPCSWEEP_TRIAL=0".to_owned(),
        format!("WORDS={words}"),
    ];
    assert_eq!(env, expected);
    // The file was this user's alone, and is gone.
    assert_eq!(world.read("calls.mode"), "700\n");
    assert_eq!(world.files("tmp"), Vec::<String>::new());
    // The hook's output is in the trial's log, and the hook succeeded.
    let log = std::fs::read(world.path("results/s/logs/000/0.1.log")).unwrap();
    assert!(log.ends_with(b"odd \xff\0 byteshere\nsaid by the hook\nand this on stderr\n"));
}

#[test]
fn a_hook_that_fails_changes_nothing_but_the_log() {
    for (finish, said) in [
        (
            "[\"sh\", \"-c\", \"printf 'no server'; exit 3\"]",
            "no server\nhpcsweep: hook finish: exit code 3\n",
        ),
        ("[\"sh\", \"-c\", \"kill -9 $$\"]", "hpcsweep: hook finish: signal 9 (SIGKILL)\n"),
        (
            "[\"no-such-hook\"]",
            "hpcsweep: hook finish: cannot start `no-such-hook`: no such file or directory\n",
        ),
    ] {
        let world = world();
        let grid = "[grid]\nn = [0, 1]\ntask_id = [1]\n";
        let plan = shell("echo well", &format!("[hooks]\nfinish = {finish}\n{grid}"));
        let ran = world.local(&plan, &["-j", "1"]);
        assert_eq!(ran.code, 0, "{}", ran.whole());
        assert_eq!(world.status()["counts"], json!({"done": 2}));
        for trial in [0, 1] {
            assert_eq!(log(&world, trial), format!("well\n{said}"), "{finish}");
        }
    }
}

#[test]
fn a_hook_is_called_on_a_full_disk_and_the_log_says_what_it_had_to_do_without() {
    let hook = "head -c 9000 /dev/zero && echo ${HPCSWEEP_OUTCOME-none} >>called";
    for (full, lost, outcome) in [
        ("results", "what it printed is lost: its disk is full", false),
        (
            "scratch",
            "no $HPCSWEEP_OUTCOME: cannot append to `*/outcome.json`: no space left on device",
            true,
        ),
    ] {
        let world = World::new();
        world.write("scratch/here", "");
        world.write("results/here", "");
        // Record and log have room in their last blocks; the hook's input is longer than the trial's output.
        let code = format!(
            "head -c 6000 /dev/zero | tr '\\0' x; dd if=/dev/zero of={full}/filler bs=1k count=1000 2>/dev/null; :"
        );
        let rest = format!("[hooks]\nfinish = [\"sh\", \"-c\", \"{hook}\"]\n");
        world.write("plan.toml", &shell(&code, &rest));
        let script = format!(
            "set -u; mount -t tmpfs -o size=256k none {full} || exit 90
            TMPDIR=$PWD/scratch '{PROGRAM}' submit plan.toml --local -q
            cat called; tail -n 1 results/s/logs/000/0.1.log"
        );
        let ran = in_own_mounts(&world, &script).expect("mounts of one's own");
        let (called, log) = ran.out.split_once('\n').unwrap_or_default();
        assert_eq!(called == "none", outcome, "{full}: {}", ran.whole());
        let log = log.split('`').enumerate().map(|(i, part)| match part.rsplit_once('/') {
            Some((_, name)) if i % 2 == 1 => format!("*/{name}"),
            _ => part.to_owned(),
        });
        let log: Vec<String> = log.collect();
        assert_eq!(log.join("`"), format!("hpcsweep: hook finish: {lost}\n"), "{full}");
    }
}

#[test]
fn a_hook_that_cannot_be_filled_in_is_named_in_the_log() {
    let world = world();
    // The first trial has a number there, and shows nothing wrong when the plan is read.
    let rest = "[hooks]\nfinish = [\"true\", \"{{ n * 2 }}\"]\n[grid]\nn = [1, \"a\"]\n";
    world.local(&shell("echo well", rest), &[]).ok();
    let logs = (log(&world, 0), log(&world, 1));
    let said = "hpcsweep: hook finish: `hooks.finish[1]`: math operations can only be done on \
                numbers, found `string`\n";
    assert_eq!(logs, ("well\n".to_owned(), format!("well\n{said}")));
}

#[test]
fn a_hook_that_hangs_is_killed_and_the_chain_goes_on() {
    let world = world();
    // It asks not to be ended, and leaves a process in its group and one outside.
    let hook = "trap '' TERM; sleep 600 & echo $! >>pids; setsid sleep 600 & echo $! >>pids; \
                echo $$ >>pids; wait";
    let hook = toml::Value::String(hook.to_owned());
    let rest = format!(
        "[hooks]\nfinish = [\"sh\", \"-c\", {hook}]\ntimeout = \"1s\"\n[grid]\ntask_id = [7]\nn = [0, 1]\n"
    );
    world.local(&shell("echo well", &rest), &[]).ok();
    assert_eq!(world.status()["counts"], json!({"done": 2}));
    let pids = world.read("pids");
    assert_eq!(pids.lines().count(), 6);
    for pid in pids.lines() {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
    for trial in [0, 1] {
        assert_eq!(log(&world, trial), "well\nhpcsweep: hook finish: killed after 1 s\n");
    }
    assert_eq!(world.files("tmp"), Vec::<String>::new());
}

#[test]
fn a_pipe_in_the_place_of_the_log_holds_nobody_up() {
    let world = world();
    let code =
        "cd $HPCSWEEP_SWEEP_DIR; log=$(ls logs/000/*.log agents/*/*.log 2>/dev/null | head -1)
                rm $log; mkfifo $log; echo printed; exit 3";
    for pull in [&[][..], &["--pull"]] {
        assert_eq!(world.local(&shell(code, HOOKS), pull).code, 1);
        assert_eq!(
            calls(&world),
            "error trial=0 attempt=1 failed code=[3] signal=[] exit code 3\n"
        );
        let logs = world.run(&["logs", "0"]);
        assert!(
            logs.code == 4 && logs.err.contains("it is not a regular file"),
            "{}",
            logs.whole()
        );
        fs::remove_dir_all(world.path("results")).unwrap();
        fs::remove_file(world.path("calls")).unwrap();
    }
}

/// If the log of an agent's slot has become a pipe, the next trial in the slot runs, and its output is
/// dropped.
#[test]
fn a_pipe_in_the_place_of_a_slots_log_stops_no_other_trial() {
    let world = world();
    let code = "cd $HPCSWEEP_SWEEP_DIR; [ $HPCSWEEP_TRIAL != 0 ] || { log=$(ls agents/*/*.log); rm $log; mkfifo $log; }
                echo printed; echo $HPCSWEEP_TRIAL >>$HPCSWEEP_SWEEP_DIR/../ran";
    let rest = format!("{HOOKS}[grid]\na = [0, 1, 2]\n");
    let ran = world.local(&shell(code, &rest), &["--pull", "--slots", "1"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(world.read("results/ran"), "0\n1\n2\n");
    assert_eq!(calls(&world).lines().count(), 3);
    let logs = world.run(&["logs", "1"]);
    assert!(logs.code == 4 && logs.err.contains("it is not a regular file"), "{}", logs.whole());
}

#[test]
fn ranks_have_one_hook() {
    let world = world();
    world.program("hook", &format!("{HOOK}echo \"$HPCSWEEP_LOG_TAIL\" >>\"$CALLS\"\n"));
    let code = "echo I am $RANK; [ $RANK != 1 ] || exit $HPCSWEEP_PARAM_CODE";
    let rest = format!("{HOOKS}[resources]\nranks = 2\n[grid]\ncode = [0, 3]\n");
    assert_eq!(world.local(&shell(code, &rest), &["-j", "1"]).code, 1);
    let host = world.call("uname", &["-n"]).ok().trim().split('.').next().unwrap().to_owned();
    let told = calls(&world);
    let (well, badly) = told.split_at(told.find("error").unwrap());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ranks = ["[rank 0] I am 0".to_owned(), "[rank 1] I am 1".to_owned()];
    let finish = "finish trial=0 attempt=1 done code=[0] signal=[] ".to_owned();
    let error =
        format!("error trial=1 attempt=1 failed code=[3] signal=[] rank 1 on {host}: exit code 3");
    assert_eq!(sorted(well), [&ranks[..], &[finish]].concat());
    assert_eq!(sorted(badly), [&ranks[..], &[error]].concat());
}

#[test]
fn what_goes_on_elsewhere_is_not_told_until_it_ends() {
    let world = world();
    let code = "[ -e go ] && exit 0; : >waiting; exec sleep 600";
    world.write("plan.toml", &shell(code, HOOKS));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("the trial waits", || world.exists("waiting"));
    started.signal(Signal::SIGTERM);
    assert_eq!(started.end(&world).code, 130);
    assert_eq!(
        (calls(&world), world.status()["counts"].clone()),
        (String::new(), json!({"interrupted": 1}))
    );
    world.write("go", "");
    world.run(&["submit", "plan.toml", "--local"]).ok();
    assert_eq!(calls(&world), "finish trial=0 attempt=2 done code=[0] signal=[] \n");
}

#[test]
fn a_signal_ends_the_hook_and_not_the_result() {
    let world = world();
    let hook =
        "[hooks]\nfinish = [\"sh\", \"-c\", \": >waiting; exec sleep 600\"]\ntimeout = \"1h\"\n";
    world.write("plan.toml", &shell("echo well", hook));
    let started = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
    wait_until("the hook waits", || world.exists("waiting"));
    started.signal(Signal::SIGTERM);
    let ran = started.end(&world);
    assert_eq!(
        timeless(&ran.whole()),
        "\
s: 1 trial to run on this machine, one at a time
stopping: the running trials are asked to end; press again to kill them
[1/1] trial 0 done in _ s
s: 1 done in _ s
results: $WORLD/results/s
the same command goes on where this one stopped
exit code 130
"
    );
    assert_eq!(log(&world, 0), "well\nhpcsweep: hook finish: the worker got SIGTERM\n");
    assert_eq!(world.status()["counts"], json!({"done": 1}));
}

#[test]
fn changed_hooks_run_nothing_again_and_are_those_of_new_trials() {
    let world = world();
    let plan = |hooks: &str, n: &str| shell("true", &format!("{hooks}[grid]\nn = {n}\n"));
    world.local(&plan("", "[0]"), &[]).ok();
    assert_eq!(calls(&world), "");
    assert!(!world.read("results/s/trials/000000000000.json").contains("hooks"));
    let ran = world.local(&plan(HOOKS, "[0]"), &[]);
    assert!(ran.err.starts_with("s: nothing left to run\n"), "{}", ran.whole());
    world.local(&plan(HOOKS, "[0, 1]"), &[]).ok();
    assert_eq!(calls(&world), "finish trial=1 attempt=1 done code=[0] signal=[] \n");
}

#[test]
fn a_smoke_test_calls_hooks_and_says_so() {
    let world = world();
    world.program("hook", "#!/bin/sh\necho \"$1 smoke=$HPCSWEEP_SMOKE\" >>\"$CALLS\"\n");
    world.write("plan.toml", &shell("true", HOOKS));
    world.run(&["submit", "plan.toml", "--smoke"]).ok();
    assert_eq!(calls(&world), "finish smoke=1\n");
}

/// Set in the process that calls the library.
const LINKED: &str = "HOOKS_LINKED_SWEEP";

#[test]
fn a_program_that_links_the_library_is_told_in_its_own_process() {
    if let Some(sweep) = std::env::var_os(LINKED) {
        let which = hpcsweep::run::worker::Which::Trial(0);
        let (sweep, resources) = (sweep.into(), None);
        let request = hpcsweep::run::worker::Request {
            sweep,
            which,
            gate: true,
            resources,
            job_time: None,
            stopped: None,
            say: |_| {},
        };
        let mut heard = Vec::new();
        let mut told = |ending: &hpcsweep::run::worker::hooks::Ending<'_>| {
            let told = ending.to_json();
            heard.push(format!("{} {} {}", told["state"], told["attempt"], told["log_tail"]));
        };
        let vars = hpcsweep::base::host::vars::snapshot();
        let code = hpcsweep::run::worker::run(&request, vars, Some(&mut told)).unwrap();
        println!("\ncode {code}: {}", heard.join(", "));
        return;
    }
    let world = world();
    let plan = shell("echo try $HPCSWEEP_ATTEMPT; [ -e good ]", &format!("attempts = 2\n{HOOKS}"));
    assert_eq!(world.local(&plan, &[]).code, 1);
    // A worker is a process of its own: it takes signals and orphans for its own.
    let linked = || {
        let exe = std::env::current_exe().unwrap();
        let name = "a_program_that_links_the_library_is_told_in_its_own_process";
        let mut command = world.command(exe.to_str().unwrap());
        command
            .env(LINKED, world.path("results/s"))
            .args(only(module_path!(), name))
            .arg("--nocapture");
        let output = command.output().unwrap();
        let out = world.shown(&output.stdout);
        out.lines().find(|line| line.starts_with("code ")).unwrap_or(&out).to_owned()
    };
    assert_eq!(linked(), "code 1: \"failed\" 4 \"try 3\\ntry 4\"");
    world.write("good", "");
    assert_eq!(linked(), "code 0: \"done\" 5 \"try 5\"");
    assert_eq!(linked(), "code 0: ");
    // The plan's own hook is called besides.
    assert_eq!(
        calls(&world),
        "\
error trial=0 attempt=2 failed code=[1] signal=[] exit code 1
error trial=0 attempt=4 failed code=[1] signal=[] exit code 1
finish trial=0 attempt=5 done code=[0] signal=[] 
"
    );
}

#[test]
fn slips_are_refused_before_anything_runs() {
    let world = world();
    world.write("hook.sh", "#!/bin/sh\n: >ran\n");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("hook.sh"), mode).unwrap();
    let plan = shell("true", "[hooks]\nfinish = \"./hook.sh\"\nonerror = [\"./hook.sh\"]\n");
    let ran = world.local(&plan, &[]);
    assert_eq!(
        ran.whole(),
        "\
error: `finish` must be a list of strings, not a string
  plan.toml:7: finish = \"./hook.sh\"
hint: write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; for shell code, `[\"sh\", \"-c\", \"...\"]`
error: `[hooks]` has no key `onerror`
  plan.toml:8: onerror = [\"./hook.sh\"]
hint: did you mean `error`?
exit code 2
"
    );
    // A program named by a relative path is one of `[run] workdir`.
    world.local(&shell("true", "[hooks]\nfinish = [\"./hook.sh\"]\n"), &[]).ok();
    assert!(world.exists("ran"));
}
