//! Metrics that programs print, or leave in files: found where the plan says, and the same as those that they report.

use serde_json::json;

use crate::support::plans::shell;
use crate::support::world::World;

const EXECUTORS: [&[&str]; 2] = [
    &["submit", "plan.toml", "--local", "-q"],
    &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
];

/// Prints two epochs, with colours and a progress bar; an attempt that fails prints another value before.
const CODE: &str = "x=$HPCSWEEP_PARAM_X
    [ $HPCSWEEP_ATTEMPT = 1 ] && [ $x = 2 ] && { echo 'Epoch 9: acc=9'; exit 1; }
    printf 'Epoch 1\\n 10%% acc=0.1\\r100%% \\033[32macc=0.%s\\033[0m\\n' $x
    printf 'Epoch 2: acc=0.%s5' $x
    echo '{\"own\": 7}' >>$HPCSWEEP_METRICS";

const METRICS: &str = "[metrics]\noutput = ['Epoch (?<epoch>\\d+)', 'acc=(?<acc>[\\d.]+)']\n";

#[test]
fn what_programs_print_is_found_in_the_log_of_each_attempt_as_if_they_had_reported_it() {
    for args in EXECUTORS {
        let world = World::new();
        let plan =
            "expect = [\"acc\", \"own\"]\nattempts = 2\n[pull]\nbackoff = 0\n[grid]\nx = [1, 2]\n";
        world.write("plan.toml", &shell(CODE, &format!("{plan}{METRICS}")));
        world.run(args).ok();
        assert_eq!(world.column("acc"), ["0.15", "0.25"]);
        assert_eq!(world.column("acc.min"), ["0.1", "0.1"]);
        assert_eq!(world.column("epoch"), ["2", "2"]);
        assert_eq!(world.column("own"), ["7", "7"]);
        let best = world.run(&["best", "-m", "acc", "--max"]);
        assert!(best.ok().starts_with("trial 1: acc = 0.25  "), "{}", best.whole());
        let steps = ["collect", "--steps", "0", "--columns", "trial,epoch,acc", "--format", "csv"];
        let steps = world.run(&steps);
        let mut lines: Vec<&str> = steps.ok().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0,,", "0,1,0.1", "0,2,0.15", "trial,epoch,acc"]);
        let status = world.run(&["status"]).out;
        assert!(!status.contains("doubtful"), "{status}");
    }
}

#[test]
fn a_trial_in_whose_log_nothing_is_found_is_doubtful() {
    for args in EXECUTORS {
        let world = World::new();
        let code = "[ $HPCSWEEP_PARAM_X = 2 ] || echo acc=$HPCSWEEP_PARAM_X";
        world.write("plan.toml", &shell(code, &format!("[grid]\nx = [1, 2, 3]\n{METRICS}")));
        world.run(args).ok();
        assert_eq!(world.column("acc"), ["1", "null", "3"]);
        assert_eq!(world.status()["silent"], json!([1]));
    }
}

#[test]
fn what_programs_leave_in_files_is_found_unless_it_was_there_before() {
    for args in EXECUTORS {
        let world = World::new();
        let code = "cd \"$HPCSWEEP_WORK_DIR\"; x=$HPCSWEEP_PARAM_X
            echo \"{\\\"acc\\\": 0.$x}\" >results.json
            printf 'epoch,loss\\n1,0.5\\n2,0.%s\\n' $x >log.csv";
        let folder = "{{ trial.work_dir }}";
        let files = ["results.json", "log.csv", "missing"].map(|f| format!("'{folder}/{f}'"));
        world.write("stale.txt", "1");
        let rest = format!(
            "expect = ['acc']\n[grid]\nx = [2, 3]\n[metrics]\nfile = [{}, 'stale.txt']\n",
            files.join(", ")
        );
        world.write("plan.toml", &shell(code, &rest));
        world.run(args).ok();
        assert_eq!(world.column("acc"), ["0.2", "0.3"]);
        assert_eq!(world.column("loss"), ["0.2", "0.3"]);
        assert_eq!(world.column("loss.max"), ["0.5", "0.5"]);
        assert!(!world.table(&[])[0].contains_key("stale"));
    }
}

#[test]
fn of_several_ranks_the_output_of_rank_0_counts() {
    let world = World::new();
    let code = "echo acc=$RANK.5; echo \"acc=3$RANK\"; echo 1 >$HPCSWEEP_RESULT";
    let plan = shell(code, &format!("{METRICS}[resources]\nranks = 3\n"));
    world.local(&plan, &["-q"]).ok();
    assert_eq!(world.column("acc"), ["30"]);
    assert_eq!(world.column("acc.min"), ["0.5"]);
}

#[test]
fn best_says_how_metrics_reach_it_where_there_are_none() {
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [1, 2]\n"), &["-q"]).ok();
    let ran = world.run(&["best", "-m", "acc", "--max"]);
    assert_eq!(ran.code, 2);
    for word in ["`$HPCSWEEP_METRICS`", "`[metrics] output`", "`[metrics] file`"] {
        assert!(ran.err.contains(word), "{}", ran.whole());
    }
}
