//! `submit --local`: order and overlap, what a failure does, what a trial sees, what is kept of it.
//! Long because it is one list of claims, and each shows a whole plan and all that comes of it.

use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::world::{World, timeless};

/// Shell code: waits until a file is there, and fails the trial if that never happens.
const WAIT: &str = "wait_for() { n=0; until [ -e \"$1\" ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.01; done; }; ";

fn states(world: &World) -> Vec<String> {
    world.table(&[]).iter().map(|row| row["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn links_run_in_order_and_chains_side_by_side() {
    let world = World::new();
    // The first links of both chains wait for each other: they end only if they run at the same time.
    let code = format!(
        "{WAIT} me=$HPCSWEEP_TASK_ID.$HPCSWEEP_LINK; echo begin $me >>events; : >seen.$me
        [ $HPCSWEEP_LINK != 0 ] || {{ wait_for seen.a.0; wait_for seen.b.0; }}
        echo end $me >>events"
    );
    let rest = "[defaults]\ntask_id = \"{{ c }}\"\n[grid]\nn = [0, 1, 2]\nc = [\"a\", \"b\"]\n";
    world.local(&shell(&code, rest), &["-j", "2"]).ok();
    let events = world.read("events");
    for chain in ["a", "b"] {
        let is_own = |line: &&str| line.split(' ').nth(1).is_some_and(|me| me.starts_with(chain));
        let own: Vec<&str> = events.lines().filter(is_own).collect();
        let expected: Vec<String> = (0..3)
            .flat_map(|link| [format!("begin {chain}.{link}"), format!("end {chain}.{link}")])
            .collect();
        assert_eq!(own, expected);
    }
    assert_eq!(world.column("link"), ["0", "0", "1", "1", "2", "2"]);
}

#[test]
fn never_more_trials_run_than_asked_for() {
    let world = World::new();
    let code =
        "mkdir -p now; : >now/$HPCSWEEP_TRIAL; ls now | wc -l >>counts; rm now/$HPCSWEEP_TRIAL";
    let grid = "[grid]\na = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n";
    let ran = world.local(&shell(code, grid), &["-j", "1"]);
    assert!(
        ran.err.starts_with("s: 12 trials to run on this machine, one at a time\n"),
        "{}",
        ran.err
    );
    assert_eq!(world.read("counts"), "1\n".repeat(12));

    // So does the limit of the command line, beside `-j`.
    let world = World::new();
    world.local(&shell(&format!("{code}; [ -e good ]"), grid), &["-j", "8", "--max-running", "1"]);
    assert_eq!(world.read("counts"), "1\n".repeat(12));
    world.write("good", "");
    world.run(&["retry", "--failed", "-j", "8", "--max-running", "1"]).ok();
    assert_eq!(world.read("counts"), "1\n".repeat(24));

    // The plan's own limit binds too, whatever trials ask for.
    for more in ["", "[resources]\nranks = 2\n", "[resources]\ngpus_per_rank = 1\n"] {
        let world = crate::support::gpus::idle(4);
        let code = format!("[ ${{RANK:-0}} = 0 ] || exit 0; {code}");
        let plan = shell(&code, &format!("{grid}[schedule]\nmax_running = 1\n{more}"));
        let ran = world.local(&plan, &["-j", "8"]);
        assert_eq!(world.read("counts"), "1\n".repeat(12), "{more}");
        assert!(
            ran.err.starts_with("s: 12 trials to run on this machine, one at a time\n"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn a_failure_stops_its_chain_and_no_other() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>ran; exit $HPCSWEEP_PARAM_CODE";
    let rest = r#"
[[trials]]
task_id = 1
code = 0
[[trials]]
task_id = 1
code = 3
[[trials]]
task_id = 1
code = 0
[[trials]]
task_id = 1
code = 0
[[trials]]
task_id = 2
code = 0
"#;
    let ran = world.local(&shell(code, rest), &["-j", "1"]);
    assert_eq!(
        timeless(&ran.err),
        "\
s: 5 trials to run on this machine, one at a time
[1/5] trial 0 done in _ s (code=0)
[2/5] trial 1 failed in _ s (code=3): exit code 3
[3/5] trial 4 done in _ s (code=0)
s: 2 done, 1 failed, 2 skipped in _ s
results: $WORLD/results/s
what failed, and why: hpcsweep status results/s
for the results: hpcsweep collect results/s; hpcsweep report results/s
"
    );
    assert_eq!(ran.code, 1);
    assert_eq!(world.read("ran"), "0\n1\n4\n");
    assert_eq!(states(&world), ["done", "failed", "skipped", "skipped", "done"]);
    assert_eq!(world.column("exit_code"), ["0", "3", "null", "null", "0"]);
    let status = world.run(&["status"]);
    assert_eq!(
        status.whole(),
        "\
s: 5 trials in $WORLD/results/s
  state    trials
  done          2
  failed        1
  skipped       2
seen by: the results tree alone: no job was submitted
for the results: hpcsweep collect; hpcsweep report

1 trial without success:
  1 x exit code 3 (trial 1)
    what trial 1 printed: hpcsweep logs 1
to run them again: hpcsweep submit plan.toml --local --retry
exit code 1
"
    );
    // The same command again has nothing to do and says how it stands.
    let again = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!((again.code, world.read("ran").as_str()), (1, "0\n1\n4\n"));
}

#[test]
fn a_chain_goes_on_after_a_failure_where_the_plan_says_so() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>ran; exit $HPCSWEEP_PARAM_CODE";
    let rest = "on_failure = \"continue\"\n[defaults]\ntask_id = 1\n[grid]\ncode = [0, 3, 7]\nn = [1, 2]\n";
    let ran = world.local(&shell(code, rest), &["-j", "4"]);
    assert_eq!(ran.code, 1);
    assert_eq!(world.read("ran"), "0\n1\n2\n3\n4\n5\n");
    assert_eq!(states(&world), ["done", "done", "failed", "failed", "failed", "failed"]);
    assert_eq!(world.column("exit_code"), ["0", "0", "3", "3", "7", "7"]);
}

#[test]
fn a_trial_is_tried_as_often_as_the_plan_says() {
    let world = World::new();
    let code = "echo attempt $HPCSWEEP_ATTEMPT; [ $HPCSWEEP_ATTEMPT -ge $HPCSWEEP_PARAM_NEEDS ]";
    let ran = world.local(&shell(code, "attempts = 3\n[grid]\nneeds = [1, 3, 4]\n"), &[]);
    assert_eq!(ran.code, 1);
    assert_eq!(states(&world), ["done", "done", "failed"]);
    assert_eq!(world.column("attempts"), ["1", "3", "3"]);
    assert_eq!(world.run(&["logs", "1"]).ok(), "attempt 1\nattempt 2\nattempt 3\n");
    assert_eq!(world.run(&["logs", "2"]).ok(), "attempt 1\nattempt 2\nattempt 3\n");
}

#[test]
fn exit_codes_and_signals_of_programs_are_recorded_as_they_are() {
    let world = World::new();
    let code = "case $HPCSWEEP_PARAM_HOW in kill) kill -9 $$;; term) kill -TERM $$;; *) exit $HPCSWEEP_PARAM_HOW;; esac";
    let ran = world.local(
        &shell(code, "[grid]\nhow = [\"0\", \"1\", \"4\", \"130\", \"255\", \"kill\", \"term\"]\n"),
        &["-j", "1"],
    );
    assert_eq!(ran.code, 1);
    assert_eq!(world.column("exit_code"), ["0", "1", "4", "130", "255", "137", "143"]);
    assert_eq!(states(&world)[1..], ["failed"; 6]);
    let reasons: Vec<String> = world.status()["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["reason"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        reasons,
        [
            "",
            "exit code 1",
            "exit code 4",
            "exit code 130",
            "exit code 255",
            "signal 9 (SIGKILL)",
            "signal 15 (SIGTERM)"
        ]
    );
}

#[test]
fn a_trial_sees_exactly_these_variables() {
    let mut world = World::new();
    // A trial ignores variables that an outer worker, job or launcher has left.
    for name in
        ["HPCSWEEP_RANK", "HPCSWEEP_PARAM_GHOST", "HPCSWEEP_TRIAL", "SLURM_PROCID", "SLURM_JOB_ID"]
    {
        world.set(name, "7");
    }
    world.set("MINE", "kept");
    let code = "env | grep -E '^(HPCSWEEP_|SLURM_|MINE|OMP_|LR=)' | grep -v -E '^HPCSWEEP_(PARAMS|METRICS|RESULT|REASON)=' | sort; \
                ls -l $HPCSWEEP_PARAMS >/dev/null && echo params; pwd; cat; echo to stderr >&2";
    let rest = r#"
env = { OMP_NUM_THREADS = 4, LR = "lr is {{ opt.lr }}" }
[defaults]
opt = { lr = 1e-5, name = "adam" }
flag = true
betas = [0.9, 0.999]
[[trials]]
task_id = "first one"
n = 1
[[trials]]
task_id = "first one"
n = 2
"#;
    world.local(&shell(code, rest), &[]).ok();
    assert_eq!(
        world.shown(world.run(&["logs", "1"]).ok().as_bytes()),
        "\
HPCSWEEP_ATTEMPT=1
HPCSWEEP_CHAIN=0
HPCSWEEP_CHECKPOINT_DIR=$WORLD/results/s/work/000/1/checkpoint
HPCSWEEP_LAUNCHER={}
HPCSWEEP_LINK=1
HPCSWEEP_PARAM_BETAS=[0.9,0.999]
HPCSWEEP_PARAM_FLAG=true
HPCSWEEP_PARAM_N=2
HPCSWEEP_PARAM_OPT_LR=1e-5
HPCSWEEP_PARAM_OPT_NAME=adam
HPCSWEEP_PREVIOUS_WORK_DIR=$WORLD/results/s/work/000/0
HPCSWEEP_SOURCE=$WORLD
HPCSWEEP_SWEEP=s
HPCSWEEP_SWEEP_DIR=$WORLD/results/s
HPCSWEEP_TASK_ID=first one
HPCSWEEP_TRIAL=1
HPCSWEEP_WORK_DIR=$WORLD/results/s/work/000/1
LR=lr is 1e-5
MINE=kept
OMP_NUM_THREADS=4
params
$WORLD
to stderr
"
    );
    // The attempt's private folder is gone.
    assert!(world.files("tmp").is_empty(), "{:?}", world.files("tmp"));
}

/// All sixteen keys of the documented jdit example.
const JDIT_KEYS: &str = r#"
[[trials]]
task_id = 1
gpu_ids_abs = []
logdir = "log/a"
use_benchmark = true
data_root = "datasets/fashion data"
batch_shape = [64, 1, 32, 32]
opt_name = "RMSprop"
lr = 1e-5
lr_decay = 0.94
lr_minimum = 1e-6
weight_decay = 2e-5
momentum = 0.1
betas = [0.9, 0.999]
init_method = "kaiming"
depth = 64
mid_channels = 16
nepochs = 100
"#;

#[test]
fn every_kind_of_parameter_arrives_bit_by_bit() {
    let world = World::new();
    let code = "cp $HPCSWEEP_PARAMS params.$HPCSWEEP_TRIAL; env | grep '^HPCSWEEP_PARAM_' | sort >env.$HPCSWEEP_TRIAL";
    world.local(&shell(code, JDIT_KEYS), &[]).ok();
    let params: Value = serde_json::from_str(&world.read("params.0")).unwrap();
    let expected = json!({
        "logdir": "log/a",
        "use_benchmark": true,
        "data_root": "datasets/fashion data",
        "batch_shape": [64, 1, 32, 32],
        "opt_name": "RMSprop",
        "lr": 1e-5,
        "lr_decay": 0.94,
        "lr_minimum": 1e-6,
        "weight_decay": 2e-5,
        "momentum": 0.1,
        "betas": [0.9, 0.999],
        "init_method": "kaiming",
        "depth": 64,
        "mid_channels": 16,
        "nepochs": 100,
    });
    assert_eq!(params, expected);
    assert_eq!(
        world.read("env.0"),
        "\
HPCSWEEP_PARAM_BATCH_SHAPE=[64,1,32,32]
HPCSWEEP_PARAM_BETAS=[0.9,0.999]
HPCSWEEP_PARAM_DATA_ROOT=datasets/fashion data
HPCSWEEP_PARAM_DEPTH=64
HPCSWEEP_PARAM_INIT_METHOD=kaiming
HPCSWEEP_PARAM_LOGDIR=log/a
HPCSWEEP_PARAM_LR=1e-5
HPCSWEEP_PARAM_LR_DECAY=0.94
HPCSWEEP_PARAM_LR_MINIMUM=1e-6
HPCSWEEP_PARAM_MID_CHANNELS=16
HPCSWEEP_PARAM_MOMENTUM=0.1
HPCSWEEP_PARAM_NEPOCHS=100
HPCSWEEP_PARAM_OPT_NAME=RMSprop
HPCSWEEP_PARAM_USE_BENCHMARK=true
HPCSWEEP_PARAM_WEIGHT_DECAY=2e-5
"
    );
    // The table has them all, the devices and the task too.
    let row = &world.table(&[])[0];
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name}");
    }
    assert_eq!((&row["task_id"], &row["gpu_ids_abs"]), (&json!(1), &json!([])));
}

#[test]
fn floats_keep_every_bit() {
    let floats: [f64; 8] =
        [0.1, 1e-5, 1.0 / 3.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, -0.0, 123_456_789.123_456_79];
    let world = World::new();
    let axis: Vec<String> = floats.iter().map(|f| format!("{f:?}")).collect();
    let code = "cp $HPCSWEEP_PARAMS params.$HPCSWEEP_TRIAL; printf %s \"$1\" >arg.$HPCSWEEP_TRIAL";
    let plan = shell(code, &format!("[grid]\nx = [{}]\n", axis.join(", ")))
        .replace("]\n[grid]", ", \"sh\", \"{{ x }}\"]\n[grid]");
    world.local(&plan, &[]).ok();
    for (i, f) in floats.iter().enumerate() {
        let params: Value = serde_json::from_str(&world.read(&format!("params.{i}"))).unwrap();
        assert_eq!(params["x"].as_f64().unwrap().to_bits(), f.to_bits(), "{f:?} as JSON");
        let arg: f64 = world.read(&format!("arg.{i}")).parse().unwrap();
        assert_eq!(arg.to_bits(), f.to_bits(), "{f:?} as an argument");
        let cell = &world.table(&[])[i]["x"];
        assert_eq!(cell.as_f64().unwrap().to_bits(), f.to_bits(), "{f:?} in the table");
    }
}

#[test]
fn metrics_and_the_result_become_columns() {
    let world = World::new();
    let code = r#"
cat >>$HPCSWEEP_METRICS <<'END'
{"step": 1, "loss": 2.5, "acc": {"top1": 0.1}}
{"step": 2, "loss": NaN}
{"step": 3, "loss": 1.5, "note": "a NaN, in words"}
no json
[1, 2]
{"step": 4, "loss": Infinity}
END
printf '{"step": 5, "loss": 2.0}' >>$HPCSWEEP_METRICS
echo '{"accuracy": 0.75, "confusion": [[1, 2], [3, 4]]}' >$HPCSWEEP_RESULT"#;
    world.local(&shell(code, ""), &[]).ok();
    let row = &world.table(&[])[0];
    let expected = json!({
        "step": 5, "loss": 2.0, "loss.min": 1.5, "loss.max": "inf", "acc.top1": 0.1,
        "note": "a NaN, in words", "accuracy": 0.75, "confusion": [[1, 2], [3, 4]],
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name}");
    }
    assert_eq!(
        world.status()["trials"][0]["reason"].as_str().unwrap_or_default(),
        "2 lines of $HPCSWEEP_METRICS left out, no JSON object: no json",
        "what could not be read is said, though the trial is done"
    );
}

#[test]
fn a_metric_that_is_never_a_number_stays_in_the_table() {
    let world = World::new();
    let code = r#"echo '{"loss": NaN}' >>$HPCSWEEP_METRICS; echo 0.5 >$HPCSWEEP_RESULT"#;
    world.local(&shell(code, ""), &[]).ok();
    let row = &world.table(&[])[0];
    assert_eq!((&row["loss"], &row["result"]), (&json!("nan"), &json!(0.5)));
}

#[test]
fn a_result_that_is_no_json_does_no_harm() {
    let world = World::new();
    world.local(&shell("echo '{half' >$HPCSWEEP_RESULT", ""), &[]).ok();
    let row = &world.table(&[])[0];
    assert_eq!((&row["state"], row.get("result")), (&json!("done"), None));
}

#[test]
fn a_folder_is_kept_only_where_a_trial_has_used_it() {
    let world = World::new();
    let code = "case $HPCSWEEP_TRIAL in 1) echo x >$HPCSWEEP_WORK_DIR/model;; 2) echo x >$HPCSWEEP_CHECKPOINT_DIR/c;; esac";
    world.local(&shell(code, "[grid]\na = [0, 1, 2]\n"), &[]).ok();
    assert_eq!(world.files("results/s/work"), ["000/1/model", "000/2/checkpoint/c"]);
    assert!(!world.exists("results/s/work/000/0"));
    assert!(!world.exists("results/s/work/000/1/checkpoint"));
}

#[test]
fn a_trial_leaves_two_files() {
    let world = World::new();
    let code = "echo hello; echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS; echo 1 >$HPCSWEEP_RESULT";
    let sweep = |n: usize| {
        let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        let plan = shell(code, &format!("attempts = 2\n[grid]\na = [{}]\n", values.join(", ")));
        world.local(&plan.replace("\"s\"", &format!("\"s{n}\"")), &["-q"]).ok();
        world.files(&format!("results/s{n}"))
    };
    let (one, twenty) = (sweep(1), sweep(20));
    assert_eq!(twenty.len() - one.len(), 2 * 19, "{twenty:#?}");
    assert_eq!(
        one,
        [
            "journal/0001.jsonl",
            "logs/000/0.1.log",
            "plan.toml",
            "plans/000000000000.toml",
            "records/000/0.1.jsonl",
            "sweep.json",
            "trials/000000000000.idx",
            "trials/000000000000.json",
            "trials/000000000000.jsonl",
            "trials/000000000000.keys",
        ]
    );
}

#[test]
fn checkpoints_lie_in_the_same_folder_for_every_attempt() {
    let world = World::new();
    let code = "cd $HPCSWEEP_CHECKPOINT_DIR && echo $HPCSWEEP_ATTEMPT >>epochs && [ $(wc -l <epochs) -ge 4 ]";
    let plan = shell(code, "attempts = 2\n");
    assert_eq!(world.local(&plan, &[]).code, 1);
    assert_eq!(world.local(&plan, &["--retry"]).code, 0);
    assert_eq!(world.read("results/s/work/000/0/checkpoint/epochs"), "1\n2\n3\n4\n");
    assert_eq!(world.column("attempts"), ["4"]);
}

#[test]
fn a_trial_that_takes_too_long_is_a_timeout() {
    let world = World::new();
    let code = "trap 'echo asked to end; exit 0' TERM; echo begun; sleep 600 & wait";
    let rest =
        "[resources]\nwalltime = \"00:00:01\"\n[[trials]]\ntask_id = 1\n[[trials]]\ntask_id = 1\n";
    let ran = world.local(&shell(code, rest), &[]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        timeless(&ran.err),
        "\
s: 2 trials to run on this machine, 2 at a time
[1/2] trial 0 timeout in _ s: the wall-clock limit was reached
s: 0 done, 1 timed out, 1 skipped in _ s
results: $WORLD/results/s
what failed, and why: hpcsweep status results/s
"
        .replace("2 at a time", &at_a_time())
    );
    assert_eq!(states(&world), ["timeout", "skipped"]);
    assert_eq!(world.run(&["logs", "0"]).ok(), "begun\nasked to end\n");
}

/// How many trials run at once by default.
fn at_a_time() -> String {
    match std::thread::available_parallelism().unwrap().get() {
        1 => "one at a time".to_owned(),
        n => format!("{n} at a time"),
    }
}

#[test]
fn a_command_that_does_not_exist_is_a_failure_with_a_sentence() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"no-such-program\"]\nattempts = 3\n";
    let ran = world.local(plan, &["-j", "1"]);
    assert_eq!(
        timeless(&ran.err),
        "\
s: 1 trial to run on this machine, one at a time
[1/1] trial 0 failed in _ s: cannot start `no-such-program`: no such file or directory; hint: is `no-such-program` installed, and its folder in PATH here?
s: 0 done, 1 failed in _ s
results: $WORLD/results/s
what failed, and why: hpcsweep status results/s
"
    );
    assert_eq!((ran.code, states(&world)), (1, vec!["failed".to_owned()]));
    // Trying again would not help.
    assert_eq!(world.column("attempts"), ["1"]);
    assert_eq!(world.column("exit_code"), ["null"]);
}

#[test]
fn a_program_of_the_working_folder_is_found_there() {
    let world = World::new();
    world.write("inner/run.sh", "#!/bin/sh\npwd\n");
    world.call("chmod", &["+x", "inner/run.sh"]).ok();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"./run.sh\"]\nworkdir = \"inner\"\n";
    world.local(plan, &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "$WORLD/inner\n");
}

#[test]
fn a_working_folder_that_does_not_exist_is_a_failure_with_a_sentence() {
    let world = World::new();
    let ran = world.local(&shell("true", "workdir = \"no/where\"\n"), &["-j", "1"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(": the working folder `$WORLD/no/where` does not exist here\n"),
        "{}",
        ran.err
    );
    assert_eq!(states(&world), ["failed"]);
}

#[test]
fn a_set_up_line_that_fails_keeps_the_command_from_running() {
    let world = World::new();
    let ran = world.local(
        &shell("echo ran >>ran", "setup = [\"export A=1\", \"(exit 9)\", \"echo later\"]\n"),
        &[],
    );
    assert_eq!(ran.code, 1);
    let trial = world.status()["trials"][0].clone();
    assert_eq!(trial["reason"], "exit code 1: the set-up failed at: ( exit 9 )");
    assert_eq!(world.run(&["logs", "0"]).ok(), "the set-up failed at: ( exit 9 )\n");
    assert!(!world.exists("ran"));
}

#[test]
fn set_up_lines_share_a_shell_with_each_other_and_the_environment_with_the_command() {
    let world = World::new();
    world.write("env.sh", "export FROM_FILE=yes\n");
    let rest = "setup = [\"A=1\", \". ./env.sh\", \"export B=$((A + 1))\", \"if true; then\\n  export C=3\\nfi\"]\n";
    world.local(&shell("echo $FROM_FILE $B $C ${A:-unset}; echo \"$0 $1\"", rest), &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "yes 2 3 unset\nsh \n");
}

#[test]
fn a_root_that_cannot_be_written_is_the_machines_fault() {
    let world = World::new();
    world.write("file", "");
    let ran =
        world.local(&shell("true", "").replace("\"s\"", "\"s\"\nroot = \"file/results\""), &[]);
    assert_eq!(
        ran.whole(),
        "error: cannot make the folder `$WORLD/file/results/s`: not a directory\nexit code 4\n"
    );
}

#[test]
fn a_plan_that_grew_runs_only_what_is_new() {
    let world = World::new();
    let code = "echo $HPCSWEEP_PARAM_A.$HPCSWEEP_PARAM_B >>ran";
    let plan = |a: &str| shell(code, &format!("[grid]\na = [{a}]\nb = [1, 2]\n"));
    world.local(&plan("1, 2"), &["-j", "1"]).ok();
    // New points in front, behind and between; the order of the axis does not matter.
    let ran = world.local(&plan("3, 2, 1"), &["-j", "1"]);
    assert!(ran.err.starts_with("s: 2 trials to run on this machine"), "{}", ran.err);
    assert_eq!(world.read("ran"), "1.1\n1.2\n2.1\n2.2\n3.1\n3.2\n");
    assert_eq!(world.column("trial"), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(world.column("a"), ["1", "1", "2", "2", "3", "3"]);
    // Trials that the plan no longer has keep their results.
    world.local(&plan("1"), &[]).ok();
    assert_eq!(states(&world), ["done"; 6]);
    // Other resources or another name for the machine's sake run nothing again; another seed does not
    // either, unless a trial uses it. A changed command does.
    world.local(&format!("{}[resources]\ncpus_per_rank = 2\n", plan("1, 2, 3")), &[]).ok();
    assert_eq!(world.read("ran").lines().count(), 6);
    world.local(&plan("1").replace(">>ran", ">>ran2"), &["-j", "1"]).ok();
    assert_eq!(world.read("ran2"), "1.1\n1.2\n");
}

#[test]
fn a_chain_that_grew_goes_on_where_it_ended() {
    let world = World::new();
    let code =
        "echo $HPCSWEEP_TRIAL chain $HPCSWEEP_CHAIN link $HPCSWEEP_LINK x $HPCSWEEP_PARAM_X >>ran";
    let plan = |xs: &[u32]| {
        let trials: String =
            xs.iter().map(|x| format!("[[trials]]\ntask_id = {}\nx = {x}\n", x % 2)).collect();
        shell(code, &trials)
    };
    world.local(&plan(&[1, 2, 3]), &["-j", "1"]).ok();
    world.local(&plan(&[1, 2, 3, 4, 5]), &["-j", "1"]).ok();
    assert_eq!(
        world.read("ran"),
        "\
0 chain 0 link 0 x 1
2 chain 0 link 1 x 3
1 chain 1 link 0 x 2
4 chain 0 link 2 x 5
3 chain 1 link 1 x 4
"
    );
}

#[test]
fn a_chain_that_grew_behind_a_failure_stays_stopped() {
    let world = World::new();
    let code = "echo $HPCSWEEP_PARAM_X >>ran; [ $HPCSWEEP_PARAM_X != 2 ]";
    let plan = |xs: &str| shell(code, &format!("[defaults]\ntask_id = 1\n[grid]\nx = [{xs}]\n"));
    assert_eq!(world.local(&plan("1, 2"), &[]).code, 1);
    assert_eq!(world.local(&plan("1, 2, 3"), &[]).code, 1);
    assert_eq!(world.read("ran"), "1\n2\n");
    assert_eq!(states(&world), ["done", "failed", "skipped"]);
}

#[test]
fn equal_trials_are_trials_of_their_own() {
    let world = World::new();
    let plan = shell("echo $HPCSWEEP_TRIAL >>ran", "[[trials]]\na = 1\n[[trials]]\na = 1\n");
    world.local(&plan, &["-j", "1"]).ok();
    world.local(&plan, &["-j", "1"]).ok();
    assert_eq!(world.read("ran"), "0\n1\n");
    world.local(&format!("{plan}[[trials]]\na = 1\n"), &["-j", "1"]).ok();
    assert_eq!(world.read("ran"), "0\n1\n2\n");
}

#[test]
fn retry_runs_failed_and_skipped_trials_and_no_other() {
    let world = World::new();
    let code =
        "echo $HPCSWEEP_TRIAL.$HPCSWEEP_ATTEMPT >>ran; [ $HPCSWEEP_TRIAL != 1 ] || [ -e mended ]";
    let plan = shell(code, "[defaults]\ntask_id = 1\n[grid]\nx = [1, 2, 3]\n");
    assert_eq!(world.local(&plan, &[]).code, 1);
    assert_eq!(world.local(&plan, &[]).code, 1);
    assert_eq!(world.read("ran"), "0.1\n1.1\n");
    world.write("mended", "");
    assert_eq!(world.local(&plan, &["--retry"]).code, 0);
    assert_eq!(world.read("ran"), "0.1\n1.1\n1.2\n2.1\n");
    assert_eq!(states(&world), ["done", "done", "done"]);
    assert_eq!(world.column("attempts"), ["1", "2", "1"]);
    // Both runs can be read.
    assert_eq!(
        world.files("results/s/logs"),
        ["000/0.1.log", "000/1.1.log", "000/1.2.log", "000/2.1.log"]
    );
}

#[test]
fn the_table_of_a_short_run_is_shown_at_its_end() {
    let world = World::new();
    let ran = world.local(
        &shell(
            "echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_A}\" >>$HPCSWEEP_METRICS",
            "[grid]\na = [1, 2]\n",
        ),
        &["-j", "1"],
    );
    let rows: Vec<Vec<&str>> = ran.ok().lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], Vec::<&str>::new());
    assert_eq!(rows[1], ["trial", "state", "duration_s", "a", "loss"]);
    assert_eq!((&rows[2][..2], &rows[2][3..]), (&["0", "done"][..], &["1", "1"][..]));
    assert_eq!((&rows[3][..2], &rows[3][3..]), (&["1", "done"][..], &["2", "2"][..]));
    assert_eq!(rows.len(), 4);
}

#[test]
fn peak_memory_is_that_of_the_program() {
    let world = World::new();
    // 64 MiB that are touched.
    let code = "head -c 67108864 /dev/zero | tail -c 67108864 | wc -c";
    world.local(&shell(code, ""), &[]).ok();
    let bytes = world.table(&[])[0]["peak_memory"].as_u64().unwrap();
    assert!(bytes > 64 << 20 && bytes < 256 << 20, "{bytes}");
}

#[test]
fn a_program_reads_nothing_from_a_terminal_of_ours() {
    let world = World::new();
    world.local(&shell("cat; echo end", ""), &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "end\n");
}

#[test]
fn a_program_starts_with_no_signal_blocked() {
    let world = World::new();
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\n\
                command = [\"grep\", \"SigBlk\", \"/proc/self/status\"]\n";
    world.local(plan, &[]).ok();
    assert_eq!(world.run(&["logs", "0"]).ok(), "SigBlk:\t0000000000000000\n");
    world.local(&format!("{}[resources]\nranks = 2\n", plan.replace("\"s\"", "\"r\"")), &[]).ok();
    let log = world.run(&["logs", "0", "results/r"]);
    let mut lines: Vec<&str> = log.ok().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[rank 0] SigBlk:\t0000000000000000", "[rank 1] SigBlk:\t0000000000000000"]);
}

#[test]
fn a_cap_of_the_site_is_not_passed() {
    let world = World::new();
    let profile = "version = 1\n[caps]\nmax_trials = 2\nmax_walltime = \"00:10:00\"\n";
    world.write("home/config/hpcsweep/site.toml", profile);
    let plan = shell("true", "[resources]\nwalltime = \"01:00:00\"\n[grid]\na = [1, 2, 3]\n");
    assert_eq!(
        world.local(&plan, &[]).whole(),
        "\
error: this site allows 2 trials a sweep, not 3
  caps.max_trials: $WORLD/home/config/hpcsweep/site.toml:3
hint: divide the plan into several sweeps
error: this site allows 00:10:00 of walltime a trial, not 01:00:00
  caps.max_walltime: $WORLD/home/config/hpcsweep/site.toml:4
hint: ask for less `walltime`
exit code 2
"
    );
    assert!(!world.exists("results"));
}

#[test]
fn parameters_that_would_share_a_variable_are_refused() {
    let world = World::new();
    let ran = world.local(&shell("true", "[defaults]\na_b = 1\na.b = 2\n"), &[]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    assert!(ran.err.contains("HPCSWEEP_PARAM_A_B"), "{}", ran.err);
    assert!(ran.err.contains("`a_b`") && ran.err.contains("`a.b`"), "{}", ran.err);
}

#[test]
fn fields_that_a_plan_leaves_out_are_empty_in_the_check_and_in_the_trial() {
    let world = World::new();
    let command = r#"["sh", "-c", "printf '%s\n' \"$@\" >seen.$HPCSWEEP_TRIAL", "-", "<{{ trial.task_id }}>",
        "{{ trial.task_id | upper }}.", "{{ trial.gpu_ids_abs | length }}", "{{ trial.gpu_ids_abs | join(sep=\"+\") }}.",
        "{% if trial.gpu_ids_abs %}some{% else %}none{% endif %}"]"#;
    let plan = format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = {command}\n[[trials]]\n[[trials]]\ntask_id = \"a\"\n"
    );
    world.local(&plan, &[]).ok();
    assert_eq!(world.read("seen.0"), "<>\n.\n0\n.\nnone\n");
    assert_eq!(world.read("seen.1"), "<a>\nA.\n0\n.\nnone\n");
}

#[test]
fn what_changed_is_named_where_all_trials_are_new() {
    const HINT: &str = "hint: to keep both apart, give this plan another `[sweep] name`; to go on with the earlier \
                        trials, take the change back\n";
    let plan = shell("true", "[grid]\na = [1, 2]\n");
    let check = |changed: &str, expected: &str| {
        for how in [&["--local"][..], &["--local", "--pull"], &["--slurm"]] {
            let world = crate::support::slurm::slurm();
            world.local(&plan, &[]).ok();
            world.write("plan.toml", changed);
            let ran = world.run(&[&["submit", "plan.toml"], how].concat());
            assert!(ran.code == 0 && ran.err.contains(expected), "{how:?}: {}", ran.whole());
            assert_eq!(ran.err.contains("left alone"), !expected.is_empty(), "{}", ran.whole());
        }
    };
    let all = |what: &str| {
        format!(
            "{what} changed: all 2 trials are new; 2 trials of earlier plans left alone\n{HINT}"
        )
    };
    let run = |line: &str| plan.replace("[run]\n", &format!("[run]\n{line}\n"));
    check(&plan.replace("\"true\"", "\"exit 0\""), &all("`command`"));
    check(&run("env = { A = \"1\" }\nsetup = [\"true\"]"), &all("`setup` and `env`"));
    check(&run("attempts = 2"), "");
    check(&format!("{plan}b = [1]\n"), &all("the parameter `b`"));
    check(
        &plan.replace("a = [1, 2]", "a = [3, 4]"),
        "2 trials of earlier plans are not in this one: left alone\n",
    );
    check(
        &plan.replace("a = [1, 2]", "a = [2, 3]"),
        "1 trial of earlier plans is not in this one: left alone\n",
    );
}

#[test]
fn packed_trials_run_here_as_any_others() {
    let world = World::new();
    let rest = "[schedule]\npack = 2\n[resources]\nwalltime = \"10m\"\n[grid]\na = [0, 3, 0]\n";
    assert_eq!(world.local(&shell("exit {{ a }}", rest), &[]).code, 1);
    assert_eq!(world.column("state"), ["\"done\"", "\"failed\"", "\"done\""]);
}

#[test]
fn a_smoke_test_of_each_request_ends_at_the_first_that_fails() {
    let world = World::new();
    let plan = |code: &str| {
        let trial = |n: u32, cores: u32| {
            format!("[[trials]]\nn = {n}\nresources.cpus_per_rank = {cores}\n")
        };
        shell(code, &format!("{}{}{}{}", trial(0, 1), trial(1, 1), trial(2, 2), trial(3, 1)))
    };
    world.write("plan.toml", &plan("echo trial of {{ n }}"));
    let ran = world.run(&["submit", "plan.toml", "--smoke", "each"]);
    assert_eq!((ran.ok(), world.exists("results")), ("trial of 0\ntrial of 2\n", false));
    let said: Vec<&str> = ran.err.lines().filter(|line| line.contains("cpus_per_rank")).collect();
    assert_eq!(
        said,
        ["trial 0: nodes=1 ranks=1 cpus_per_rank=1", "trial 2: nodes=1 ranks=1 cpus_per_rank=2"]
    );
    world.write("plan.toml", &plan("echo trial of {{ n }}; exit 3"));
    let ran = world.run(&["submit", "plan.toml", "--smoke", "each"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "trial of 0\n"));
    let ran = world.run(&["submit", "plan.toml", "--smoke", "all"]);
    assert!(ran.err.contains("write the number of a trial, or `each`"), "{}", ran.err);
}

#[test]
fn a_launcher_that_fails_before_its_ranks_begin_is_the_reason() {
    let world = World::new();
    let plan = shell("exit 0", "[metrics]\nsync = \"mpi\"\n[resources]\nranks = 2\n");
    for (end, expected) in [
        ("exit 3", "`mpirun` exited with code 3 before the trial began"),
        ("kill -SEGV $$", "`mpirun` was ended by signal 11 (SIGSEGV) before the trial began"),
    ] {
        world.program("mpirun", &format!("#!/bin/sh\necho launched >>launches\n{end}\n"));
        let ran = world.local(&plan, &[]);
        let line = ran.err.lines().find(|line| line.starts_with("[1/1]")).unwrap_or_default();
        assert!(line.starts_with("[1/1] trial 0 interrupted in "), "{}", ran.whole());
        assert!(line.ends_with(&format!(": {expected}")), "{line}");
        assert_eq!(ran.code, 1);
    }
}
