//! What ended with 0 and is not done, or perhaps not: results that nobody can read, nothing reported, less than the plan
//! expects.

use serde_json::json;

use crate::support::plans::shell;
use crate::support::world::World;

const EXECUTORS: [&[&str]; 2] = [
    &["submit", "plan.toml", "--local", "-q"],
    &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
];

#[test]
fn results_that_cannot_be_read_are_counted_where_people_look() {
    for args in EXECUTORS {
        let world = World::new();
        let code = "case $HPCSWEEP_PARAM_KIND in
            bom) printf '\\357\\273\\277{\"acc\": 0.5}';;
            repr) echo \"{'acc': 0.5, 'ok': True}\";;
            two) printf '{\"acc\": 0.5}\\n{\"acc\": 0.6}\\n';;
            esac >$HPCSWEEP_RESULT";
        world.write("plan.toml", &shell(code, "[grid]\nkind = [\"bom\", \"repr\", \"two\"]\n"));
        world.run(args).ok();
        assert_eq!(world.column("acc"), ["0.5", "null", "null"]);
        let said =
            "results/s: 2 metric lines or results left out that could not be read (trials 1, 2)\n";
        for verb in [&["collect"][..], &["best", "-m", "acc", "--max"]] {
            let ran = world.run(verb);
            assert!(ran.err.contains(said), "{}", ran.whole());
        }
        let status = world.run(&["status"]);
        let said = "left out: 2 metric lines or results of 2 trials that could not be read, the first of trial 1\n";
        assert!(status.out.contains(said), "{}", status.out);
        assert_eq!(world.status()["unread_lines"], 2);
    }
}

#[test]
fn a_trial_without_what_the_plan_expects_has_failed() {
    for args in EXECUTORS {
        let world = World::new();
        let code = "echo $HPCSWEEP_TRIAL >>$WORK/begun; x=$HPCSWEEP_PARAM_X
            [ $x = 2 ] || echo '{\"val\": {\"loss\": 1}}' >>$HPCSWEEP_METRICS
            [ $x = 3 ] || echo m >$WORK/model.$x
            [ $x = 2 ] && printf 'Error in f(x) : no data\\nExecution halted\\n'; exit 0";
        let expect =
            "attempts = 2\nexpect = [\"val.loss\", \"./model.{{ x }}\"]\n[pull]\nbackoff = 0\n";
        let code = code.replace("$WORK", &world.text_path("."));
        world.write("plan.toml", &shell(&code, &format!("{expect}[grid]\nx = [1, 2, 3]\n")));
        assert_eq!(world.run(args).code, 1);
        assert_eq!(world.column("state"), ["\"done\"", "\"failed\"", "\"failed\""]);
        assert_eq!(world.column("cause"), ["null", "\"no-result\"", "\"no-result\""]);
        assert_eq!(world.column("attempts"), ["1", "2", "2"]);
        let status = world.run(&["status"]).out;
        for said in [
            "1 x it ended with 0 and left no metric `val.loss`; its log ends with: Error in f(x) : no data (from its log) (trial 1)\n",
            "1 x it ended with 0 and left no file `$WORLD/./model.3` (trial 2)\n",
        ] {
            assert!(status.contains(said), "{status}");
        }
    }
    let world = World::new();
    world.write("plan.toml", &shell("true", "expect = [\"{{ y }}\"]\n"));
    let ran = world.run(&["plan", "plan.toml"]);
    assert!(ran.err.contains("`expect[0]`: `y` is not a name of this plan"), "{}", ran.whole());
}

#[test]
fn trials_that_report_nothing_are_doubtful_if_others_report_something() {
    for args in EXECUTORS {
        let world = World::new();
        let code = "[ $HPCSWEEP_PARAM_X = 1 ] && { echo 7 >$HPCSWEEP_RESULT; exit; }
            [ $HPCSWEEP_PARAM_X = 2 ] && printf 'Error in f(x) : no data\\nExecution halted\\n'; exit 0";
        world.write("plan.toml", &shell(code, "[grid]\nx = [1, 2, 3]\n"));
        world.run(args).ok();
        let said =
            "doubtful: 2 trials done without a metric or a result, which others have (trials 1-2)
  trial 1: Error in f(x) : no data (from its log)\n";
        let status = world.run(&["status"]).out;
        assert!(status.contains(said), "{status}");
        assert_eq!(world.status()["silent"], json!([1, 2]));
    }
    let world = World::new();
    world.local(&shell("true", "[grid]\nx = [1, 2]\n"), &["-q"]).ok();
    assert!(!world.run(&["status"]).out.contains("doubtful"));
}

#[test]
fn what_a_program_prints_through_a_filter_is_kept() {
    for args in EXECUTORS {
        let world = World::new();
        // The filter is slower than the program, and a process that waits for nobody ends with it.
        let setup = "setup = [\"exec > >(sleep 0.1; sed s/a/b/)\"]\n";
        world.write("plan.toml", &shell("sleep 1000 & seq 20000 | sed s/^/a/", setup));
        world.run(args).ok();
        let expected: String = (1..=20000).map(|n| format!("b{n}\n")).collect();
        assert!(world.run(&["logs", "0"]).out == expected, "{args:?}");
    }
}
