//! `best`, `compare` and `effects`: settings with their intervals, differences, and what matters.

use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::world::{ROOT, World};

/// A sweep whose trials log these losses, in their order; `x` fails, `nan` is logged as such.
pub(super) fn sweep(axes: &str, losses: &[&str]) -> World {
    let world = World::new();
    add(&world, "s", axes, losses);
    world
}

fn add(world: &World, name: &str, axes: &str, losses: &[&str]) {
    let code = format!(
        "set -- {}; shift $HPCSWEEP_TRIAL; [ $1 != x ] && echo \"{{\\\"loss\\\": $1, \\\"size\\\": $HPCSWEEP_PARAM_WIDTH}}\" >>$HPCSWEEP_METRICS",
        losses.join(" ")
    );
    let plan = shell(&code, axes).replace("\"s\"", &format!("\"{name}\""));
    world.local(&plan, &["-q"]);
}

const AXES: &str = "[grid]\nlr = [0.1, 0.2, 0.4]\nwidth = [64]\n[replicates]\ncount = 4\n";

const LOSSES: [&str; 12] =
    ["1.00", "1.10", "0.90", "1.20", "1.05", "1.09", "0.96", "1.24", "3", "3.1", "2.9", "3.2"];

#[test]
fn the_best_setting_is_that_of_the_mean_and_says_how_sure_it_is() {
    let world = sweep(AXES, &LOSSES);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-n", "9"]).whole(),
        "\
\x20lr  loss  95 % interval     sd  n     p  trials
0.1  1.05  [0.86, 1.28]   0.129  4        0-3
0.2  1.08  [0.91, 1.29]   0.117  4  0.33  4-7
0.4  3.05  [2.85, 3.26]   0.129  4  0.38  8-11
intervals stay above 0 by the logarithm, as the name `loss` says; `[metrics] bounds` in the plan says otherwise
averaged over `seed` (of [replicates])
cannot be told from the best: lr=0.2 width=64 (p = 0.33), lr=0.4 width=64 (p = 0.38) (paired t test, corrected for the choice of the best, 5 %)
the best of 3 settings was chosen by these numbers: it looks better than it is, and its interval holds the truth in fewer than 95 % of such cases. New seeds tell: raise `count` of `[replicates]`, then `hpcsweep submit PLAN --where '(lr == 0.1) or (lr == 0.2) or (lr == 0.4)'`
exit code 0
"
    );
    let ran = world.run(&["best", "-m", "loss", "--max", "--json"]);
    let best: Value = serde_json::from_str(ran.ok()).unwrap();
    assert_eq!(best["setting"], json!({"lr": 0.4, "width": 64}));
    assert_eq!((&best["n"], &best["over"]), (&json!(4), &json!(["seed"])));
    assert_eq!(best["trials"], json!([8, 9, 10, 11]));
    // A single trial, for who asks for it.
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "--by", "trial"]).whole(),
        "trial 2: loss = 0.9  (lr=0.1 width=64 seed=3)\n  log: $WORLD/results/s/logs/000/2.1.log\nexit code 0\n"
    );
}

#[test]
fn what_is_averaged_over_can_be_named() {
    let axes = "[grid]\nlr = [0.1, 0.2]\nwidth = [1, 2]\nfold = [0, 1]\n";
    let world = sweep(axes, &["1", "2", "3", "4", "5", "6", "7", "8"]);
    let best = |args: &[&str]| {
        let ran =
            world.run(&[&["best", "-m", "loss", "--min", "-n", "9", "--json"], args].concat());
        let lines = ran.ok().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| format!("{} {} {}", line["setting"], line["mean"], line["over"]))
            .collect::<Vec<_>>()
    };
    // A fold by its name.
    assert_eq!(best(&[])[0], r#"{"lr":0.1,"width":1} 1.5 ["fold"]"#);
    assert_eq!(best(&["--over", "width"])[0], r#"{"lr":0.1,"fold":0} 2.0 ["width"]"#);
    assert_eq!(best(&["--over", "width,fold"])[0], r#"{"lr":0.1} 2.5 ["width","fold"]"#);
    assert_eq!(best(&["--by", "width"])[0], r#"{"width":1} 3.5 ["lr","fold"]"#);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "--over", "widht"]).whole(),
        "error: no trial has a parameter `widht`\nhint: did you mean `width`?\nexit code 2\n"
    );
}

#[test]
fn failed_trials_and_nan_are_said_and_never_make_a_setting_better() {
    // One lucky number, a setting with NaN, one with a failure, one with failures alone.
    let axes = "[grid]\nlr = [1, 2, 3, 4]\nwidth = [64]\n[replicates]\ncount = 3\n";
    let losses = ["x", "0.1", "x", "0.2", "NaN", "0.3", "1.0", "x", "1.2", "x", "x", "x"];
    let world = sweep(axes, &losses);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-n", "9"]).whole(),
        "\
warning: trials failed or gave no number, in each setting, and those with the fewest are first: lr=2 width=64 (1/3), lr=3 width=64 (1/3), lr=1 width=64 (2/3)
lr  loss  95 % interval      sd  n  failed  p  trials
 2  0.25                 0.0707  2  1/3        3,5
 3   1.1                  0.141  2  1/3        6,8
 1   0.1                         1  2/3        1
averaged over `seed` (of [replicates])
left out: 6 failed, 1 not a number
not ranked: 1 setting without any number
exit code 0
"
    );
}

#[test]
fn of_several_metrics_the_front_is_shown() {
    let axes = "[grid]\nwidth = [1, 2, 3]\n[replicates]\ncount = 2\n";
    let world = sweep(axes, &["4", "4", "2", "2", "3", "3"]);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-m", "size", "--min"]).whole(),
        "\
width  loss  size  n  trials
    2     2     2  2  2-3
    1     4     1  2  0-1
no other setting is as good in both and better in one: 2 of 3 settings
averaged over `seed` (of [replicates])
exit code 0
"
    );
    assert_eq!(
        world.run(&["best", "-m", "loss", "-m", "size", "--min"]).whole(),
        "error: 2 metrics need 2 goals: say `--min` or `--max` behind each\nexit code 2\n"
    );
}

#[test]
fn two_settings_are_compared_in_pairs() {
    let world = sweep(AXES, &LOSSES);
    let ran = world.run(&["compare", "lr=0.1", "lr=0.4", "-m", "loss", "--json"]);
    let compared: Value = serde_json::from_str(ran.ok()).unwrap();
    assert_eq!(compared["a"]["mean"], json!(1.05));
    let difference = &compared["difference"];
    assert_eq!((&difference["test"], &difference["pairs"]), (&json!("paired t"), &json!(4)));
    assert_eq!(difference["paired_by"], json!(["width", "seed"]));
    let text = world.run(&["compare", "lr=0.1", "lr=0.2", "-m", "loss"]);
    let lines: Vec<&str> = text.ok().lines().collect();
    assert_eq!(lines[4], "difference: -0.035 [-0.084, 0.014]");
    assert_eq!(
        lines[5],
        "p = 0.11 by the t test of 4 pairs that agree in `seed`, 0.25 by Wilcoxon's signed-rank test"
    );
    // The same numbers, named as trials.
    let trials = world.run(&["compare", "0-3", "4-7", "-m", "loss"]);
    assert_eq!(trials.ok().lines().nth(4), Some(lines[4]));
    for (args, says) in [
        (["lr=0.1", "0-3"], "error: `lr=0.1` is a setting, and `0-3` is a set of trials\n"),
        (["lr=0.1", "lr=7"], "error: no trial is of `lr=7`\n"),
        (
            ["lr=0.1", "widht=7"],
            "error: no trial has a parameter `widht`\nhint: did you mean `width`?\n",
        ),
        (["lr", "lr=7"], "error: `lr` is no sweep, no setting and no set of trials\n"),
    ] {
        let ran = world.run(&[&["compare"], &args[..], &["-m", "loss"]].concat());
        assert_eq!((ran.code, ran.err.starts_with(says)), (2, true), "{args:?}: {}", ran.err);
    }
}

#[test]
fn two_sweeps_are_compared_in_pairs() {
    let world = sweep(AXES, &LOSSES);
    let higher: Vec<String> =
        LOSSES.iter().map(|loss| format!("{:.2}", loss.parse::<f64>().unwrap() + 0.5)).collect();
    let higher: Vec<&str> = higher.iter().map(String::as_str).collect();
    add(&world, "t", AXES, &higher);
    let ran = world.run(&["compare", "results/t", "results/s", "-m", "loss", "--json"]);
    let compared: Value = serde_json::from_str(ran.ok()).unwrap();
    let difference = &compared["difference"];
    // Trials of a seed are one observation, and there are four seeds.
    assert_eq!((&difference["test"], &difference["pairs"]), (&json!("paired t"), &json!(4)));
    assert_eq!((&difference["unit"], &compared["a"]["trials"]), (&json!("seed"), &json!(12)));
    assert!((difference["difference"].as_f64().unwrap() - 0.5).abs() < 1e-12);
    // Of two sweeps, each setting says of which it is.
    let best = world.run(&["best", "results/*", "-m", "loss", "--min"]);
    let expected = "sweep   lr  loss  95 % interval     sd  n  p  trials\ns      0.1  1.05  [0.86, 1.28]   0.129  4     s/0,s/1,s/2,s/3\n";
    assert!(best.ok().starts_with(expected), "{}", best.out);
}

#[test]
fn what_matters_is_shown_of_grids_and_of_anything_else() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [1, 2, 3]\n[replicates]\ncount = 2\n";
    // lr adds 10, width 1 each, and a little noise.
    let losses = ["1", "1.2", "2.1", "2", "3", "3.1", "11", "11.1", "12", "12.1", "13.2", "13"];
    let world = sweep(axes, &losses);
    let ran = world.run(&["effects", "-m", "loss", "--min"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert!(lines[1].starts_with("lr         97."), "{}", ran.out);
    assert!(lines[2].starts_with("width      2."), "{}", ran.out);
    assert!(
        lines[3].starts_with("parts of the variance of 12 trials, a complete grid"),
        "{}",
        ran.out
    );
    assert!(lines[4].starts_with("best lr: 1 (mean 2.0"), "{}", ran.out);
    assert!(lines[5].starts_with("best width: 1 (mean 6.0"), "{}", ran.out);
    assert!(lines[6].starts_with("intervals stay above 0 by the logarithm"), "{}", ran.out);
    assert_eq!(lines[7], "averaged over `seed` (of [replicates])");
    // With a hole in the grid, the method and its tests stay.
    let ran = world.run(&["effects", "-m", "loss", "--min", "--where", "trial != 3"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert!(lines[1].starts_with("lr         93.4 %"), "{}", ran.out);
    assert_eq!(
        lines[3],
        "parts of the variance of 11 trials, a grid with gaps (least squares, each part beyond those of all others; F test), which need not \
         add up to the whole; the ranges are those of residuals drawn again, and no intervals; 0.0 % is noise"
    );
    assert!(lines[4].starts_with("best lr: 1 (mean 2.0"), "{}", ran.out);
    assert!(lines[5].starts_with("best width: 1 (mean 6.0"), "{}", ran.out);
    let json = ["effects", "-m", "loss", "--min", "--where", "trial != 3", "--json"];
    let all: Value = serde_json::from_str(world.run(&json).ok()).unwrap();
    assert_eq!((&all["method"], &all["no_grid"]), (&json!("least squares"), &Value::Null));
    // What is no grid says why.
    let few = world.run(&["effects", "-m", "loss", "--max", "0,10"]);
    assert_eq!(
        few.err,
        "error: 2 trials with a number for `loss` are too few to tell what matters, because parameters vary together\n\
         hint: 12 are the least, or half of all combinations of values once\n"
    );
    let same = sweep("[grid]\nwidth = [1, 2]\n", &["7", "7"]);
    assert_eq!(
        same.run(&["effects", "-m", "loss", "--min"]).whole(),
        "error: `loss` is 7 in all trials\nhint: nothing matters for what never differs\nexit code 2\n"
    );
    assert_eq!(
        same.run(&["effects", "-m", "lost", "--min"]).whole(),
        "error: no trial has a metric `lost`\nhint: did you mean `loss`?\nexit code 2\n"
    );
}

#[test]
fn infinite_numbers_are_ranked_and_not_tested() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [64]\n[replicates]\ncount = 3\n";
    let world = sweep(axes, &["1", "-Infinity", "2", "3", "3", "3"]);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-n", "9"]).whole(),
        "\
lr  loss  95 % interval  sd  n  p  trials
 1  -inf                     3     0-2
 2     3                  0  3     3-5
averaged over `seed` (of [replicates])
the best of 2 settings was chosen by these numbers: it looks better than it is. New seeds tell: raise `count` of `[replicates]`, then `hpcsweep submit PLAN --where 'lr == 1'`
exit code 0
"
    );
    let same = world.run(&["compare", "lr=1", "lr=1", "-m", "loss"]);
    assert_eq!(
        same.ok().lines().last(),
        Some("infinite numbers: nothing tells how much they differ")
    );
}

#[test]
fn a_setting_whose_hard_seed_failed_is_not_the_best_for_that() {
    // The second is worse for every seed that both have; its mean is less, for want of the hard one.
    let axes = "[grid]\nlr = [1, 2]\nwidth = [64]\n[replicates]\ncount = 4\n";
    let world = sweep(axes, &["1", "1.1", "1.2", "9", "1.5", "1.61", "1.72", "x"]);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-n", "9"]).whole(),
        "\
warning: trials failed or gave no number, and these settings are ranked last: lr=2 width=64 (1/4)
lr  loss  95 % interval    sd  n  failed  p  trials
 1     3  [0, 24]        3.95  4             0-3
 2  1.61                 0.11  3  1/4        4-6
intervals stay above 0 by the logarithm, as the name `loss` says; `[metrics] bounds` in the plan says otherwise
averaged over `seed` (of [replicates])
left out: 1 failed
exit code 0
"
    );
    // The same of a seed that has not run: the trials that both have tell.
    let best = world.run(&["best", "-m", "loss", "--min", "-n", "9", "--where", "trial < 7"]);
    assert_eq!(
        best.whole(),
        "\
lr  loss  95 % interval    sd  n     p  trials
 1     3  [0, 24]        3.95  4        0-3
 2  1.61  [1.36, 1.91]   0.11  3  0.25  4-6
intervals stay above 0 by the logarithm, as the name `loss` says; `[metrics] bounds` in the plan says otherwise
averaged over `seed` (of [replicates])
some settings lack trials of others: the first is the one that none, or the fewest, beat by the trials that both have
cannot be told from the best: lr=2 width=64 (p = 0.25) (paired t test, corrected for the choice of the best, 5 %)
the best of 2 settings was chosen by these numbers: it looks better than it is, and its interval holds the truth in fewer than 95 % of such cases. New seeds tell: raise `count` of `[replicates]`, then `hpcsweep submit PLAN --where '(lr == 1) or (lr == 2)'`
exit code 0
"
    );
}

#[test]
fn trials_that_ran_another_command_are_said_to_be_mixed() {
    let world = sweep(AXES, &LOSSES);
    let other: Vec<&str> = LOSSES.iter().map(|_| "50").collect();
    add(&world, "s", AXES, &[&other[..], &other[..]].concat());
    let best = world.run(&["best", "-m", "loss", "--min"]);
    let said = "mixed: 12 trials with the parameters of an earlier one, which ran another command or in another plan\n";
    assert!(best.ok().contains(said), "{}", best.out);
}

#[test]
fn a_setting_of_infinite_numbers_is_behind_finite_ones() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [64]\n[replicates]\ncount = 4\n";
    let infinite = "Infinity";
    let world = sweep(axes, &[infinite, infinite, infinite, infinite, "3", "4", "5", "6"]);
    for statistic in ["mean", "median", "iqm"] {
        let best = world.run(&["best", "-m", "loss", "--min", "--statistic", statistic, "--json"]);
        let best: Value = serde_json::from_str(best.ok()).unwrap();
        assert_eq!((&best["setting"]["lr"], &best["value"]), (&json!(2), &json!(4.5)));
    }
    let effects = world.run(&["effects", "-m", "loss", "--min"]);
    assert!(effects.err.starts_with("error: no parameter has several values"), "{}", effects.err);
}

#[test]
fn a_value_with_a_line_break_stays_on_its_line() {
    let world = World::new();
    let code = "echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "[grid]\ntext = [\"a\\nb\"]\n"), &["-q"]).ok();
    let best = world.run(&["best", "-m", "loss", "--min"]);
    assert_eq!(best.ok().lines().next(), Some("trial 0: loss = 1  (text=\"a\\nb\")"));
}

#[test]
fn a_set_without_trials_is_said_to_be_that() {
    let world = sweep(AXES, &LOSSES);
    for verb in ["best", "effects"] {
        assert_eq!(
            world.run(&[verb, "-m", "loss", "--min", "--failed"]).whole(),
            "no trial is meant\nexit code 0\n"
        );
    }
}

#[test]
fn where_no_trial_has_finished_the_answer_is_empty_and_says_so() {
    let world = sweep("[grid]\nn = [1, 2]\n", &["x", "x"]);
    let said = "no trial has finished: 2 failed\nexit code 0\n";
    for args in [&["best", "--min"][..], &["effects", "--max"], &["compare", "n=1", "n=2"]] {
        let args = [args, &["-m", "loss"]].concat();
        assert_eq!(world.run(&args).whole(), said, "{args:?}");
        assert_eq!(world.run(&[&args[..], &["--json"]].concat()).whole(), said, "{args:?}");
    }
    assert_eq!(world.run(&["best", "--min", "-m", "loss", "--json"]).out, "");
    // Trials that have failed tell which metrics there are.
    let code = "echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS; false";
    world.local(&shell(code, "").replace("\"s\"", "\"logged\""), &["-q"]);
    assert_eq!(
        world.run(&["best", "results/logged", "-m", "los", "--min"]).whole(),
        "error: no trial has a metric `los`\nhint: did you mean `loss`?\nexit code 2\n"
    );
}

#[test]
fn a_trial_that_logged_a_metric_once_has_its_least_value() {
    let world = World::new();
    let code = "[ $HPCSWEEP_PARAM_N = 1 ] && echo '{\"loss\": 5}' >>$HPCSWEEP_METRICS; echo '{\"loss\": 7}' >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "[grid]\nn = [1, 2]\n"), &["-q"]).ok();
    let columns = ["collect", "--format", "csv", "--columns", "n,loss,loss.min,loss.max"];
    assert_eq!(
        world.run(&columns).whole(),
        "n,loss,loss.min,loss.max\n1,7,5,7\n2,7,7,7\nexit code 0\n"
    );
    let ran =
        world.run(&["collect", "--where", "loss.min > 6", "--columns", "n", "--format", "csv"]);
    assert_eq!(ran.whole(), "n\n2\nexit code 0\n");
    // No trial is left out for it.
    let best = world.run(&["best", "-m", "loss.min", "--max"]);
    assert_eq!(best.ok().lines().next(), Some("trial 1: loss.min = 7  (n=2)"));
}

#[test]
fn of_values_that_are_all_nan_there_is_no_least_one() {
    let world = World::new();
    let code =
        "for i in 1 2; do echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_V}\" >>$HPCSWEEP_METRICS; done";
    world.local(&shell(code, "[grid]\nv = [\"NaN\", \"3\"]\n"), &["-q"]).ok();
    let columns = ["collect", "--format", "csv", "--columns", "v,loss,loss.min,loss.max"];
    let expected = "v,loss,loss.min,loss.max\nNaN,NaN,NaN,NaN\n3,3,3,3\n";
    assert_eq!(world.run(&columns).ok(), expected);
    let best = world.run(&["best", "-m", "loss.min", "--min"]);
    assert_eq!(best.ok().lines().next(), Some("trial 1: loss.min = 3  ▄▄  (v=3)"));
}

#[test]
fn a_cell_that_lacks_what_cannot_be_drawn_is_not_the_best() {
    let axes = "[grid]\nlr = [0.1, 0.2]\nwidth = [64]\n[replicates]\ncount = 2\n";
    let world = sweep(axes, &["1", "Infinity", "2", "2"]);
    let args = ["plot", "heatmap", "-m", "loss", "--min", "--x", "lr", "--y", "width", "--term"];
    let ran = world.run(&args).whole();
    assert!(ran.contains("the best is lr=0.2 width=64") && ran.contains("1 infinite"), "{ran}");
}

#[test]
fn a_copy_of_a_sweep_is_named_and_left_out() {
    let world = sweep("[grid]\nn = [1, 2]\nwidth = [8]\n", &["1", "2"]);
    world.call("cp", &["-a", "results/s", "copy"]).ok();
    std::os::unix::fs::symlink("s", world.path("results/again")).unwrap();
    let table = ["collect", "--format", "csv", "--columns", "trial,loss"];
    let csv = "trial,loss\n0,1\n1,2\n";
    // Another path to the same folder is no copy.
    assert_eq!(world.run(&table).whole(), format!("{csv}exit code 0\n"));
    let both = world.run(&[&["collect", "results/s", "copy"], &table[1..]].concat());
    assert_eq!((both.code, both.out.as_str()), (1, csv));
    assert_eq!(
        both.err,
        "warning: `$WORLD/copy` is left out: it is a copy of `$WORLD/results/s`; `hpcsweep merge` joins copies\n"
    );
    assert_eq!(world.run(&["status", "copy", "results/s"]).code, 1);
    // What is changed is not guessed.
    let hold = world.run(&["cancel", "results/s", "copy"]);
    assert_eq!(hold.code, 2, "{}", hold.whole());
}

#[test]
fn a_sweep_that_cannot_be_read_is_named_and_left_out() {
    let world = sweep("[grid]\nn = [1, 2]\nwidth = [8]\n", &["1", "2"]);
    add(&world, "other", "[grid]\nn = [1, 2]\nwidth = [8]\n", &["3", "4"]);
    world.write("results/other/sweep.json", "{");
    let ran = world.run(&["best", "-m", "loss", "--max"]);
    assert!(ran.out.starts_with("trial 1: loss = 2  (n=2 width=8)\n"), "{}", ran.whole());
    assert_eq!(
        ran.err,
        "warning: a sweep is left out: `$WORLD/results/other/sweep.json` is damaged: EOF while parsing an object at line 1 column 1\n"
    );
    assert_eq!(ran.code, 1);
    // With nothing else there is no answer.
    assert_eq!(world.run(&["best", "results/other", "-m", "loss", "--max"]).code, 4);
}

#[test]
fn values_that_read_alike_or_have_commas_are_told_apart() {
    let axes = "[grid]\nn = [1, \"1\"]\ntext = [\"a,b\", \"a\"]\nwidth = [8]\n";
    let world = sweep(axes, &["1", "2", "3", "4"]);
    let best = world.run(&["best", "-m", "loss", "--min", "-n", "9", "--over", "text"]);
    let firsts: Vec<&str> = best
        .ok()
        .lines()
        .skip(1)
        .take(2)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(firsts, ["1", "\"1\""]);
    let ran = world.run(&["compare", "text=a,b,n=1", "text=a,n=1", "-m", "loss", "--json"]);
    let compared: Value = serde_json::from_str(ran.ok()).unwrap();
    assert_eq!((&compared["a"]["mean"], &compared["b"]["mean"]), (&json!(1.0), &json!(2.0)));
}

#[test]
fn what_makes_no_question_is_refused() {
    let world = sweep(AXES, &LOSSES);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--min", "-m", "loss", "--max"]).whole(),
        "error: `loss` is named twice\nexit code 2\n"
    );
    assert_eq!(
        world.run(&["effects", "-m", "lr", "--min"]).whole(),
        "error: `lr` is a parameter, and no metric\nhint: effects are those of parameters on a metric\nexit code 2\n"
    );
}

#[test]
fn of_many_damaged_files_some_are_named() {
    let world = World::new();
    world.local(&shell(":", "[grid]\nb = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]\n"), &["-q"]).ok();
    for trial in 0..23 {
        world.write(&format!("results/s/records/000/{trial}.1.jsonl"), "{\n");
    }
    let ran = world.run(&["collect"]);
    assert_eq!((ran.code, ran.err.matches("damaged line").count()), (1, 21), "{}", ran.err);
    assert!(
        ran.err.contains("$WORLD/results/s: 3 further files with damaged lines; left out\n"),
        "{}",
        ran.err
    );
}

#[test]
fn only_the_trials_of_the_plan_as_it_is_now_are_meant_where_that_is_asked() {
    let world = sweep("[grid]\nlr = [0.1, 0.2]\nwidth = [1]\n", &["1", "2"]);
    let plan = std::fs::read_to_string(world.path("plan.toml")).unwrap();
    world.local(&plan.replace("[0.1, 0.2]", "[0.2]"), &["-q"]).ok();
    let first = |args: &[&str]| {
        let ran = world.run(&[&["best", "-m", "loss", "--min"], args].concat());
        ran.ok().lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(first(&[]), "trial 0: loss = 1  (lr=0.1 width=1)");
    assert_eq!(first(&["--planned"]), "trial 1: loss = 2  (lr=0.2 width=1)");
    let compare = ["compare", "lr=0.1", "lr=0.2", "-m", "loss"];
    world.run(&compare).ok();
    let ran = world.run(&[&compare[..], &["--planned"]].concat());
    assert!(
        ran.code == 2 && ran.err.starts_with("error: no trial is of `lr=0.1`\n"),
        "{}",
        ran.whole()
    );
}

#[test]
fn values_of_parameters_are_shown_without_what_binary_fractions_add() {
    let world = sweep("[grid]\nlr = [0.022000000000000002, 0.3]\nwidth = [1]\n", &["1", "2"]);
    let ran = world.run(&["effects", "-m", "loss", "--min"]);
    assert!(ran.ok().contains("\nbest lr: 0.022 (mean 1)\n"), "{}", ran.out);
}

#[test]
fn ends_of_whole_numbers_are_whole_and_exact() {
    let world = World::new();
    let code =
        "for n in $HPCSWEEP_PARAM_V; do echo \"{\\\"big\\\": $n}\" >>$HPCSWEEP_METRICS; done";
    let values =
        "\"3\", \"9007199254740992 9007199254740993\", \"18446744073709551615 -1\", \"2 1.5\"";
    world.local(&shell(code, &format!("[grid]\nv = [{values}]\n")), &["-q"]).ok();
    let columns = ["collect", "--format", "csv", "--columns", "trial,big,big.min,big.max"];
    let expected = "\
trial,big,big.min,big.max
0,3,3,3
1,9007199254740993,9007199254740992,9007199254740993
2,-1,-1,18446744073709551615
3,1.5,1.5,2.0
";
    assert_eq!(world.run(&columns).ok(), expected);
}

#[test]
fn a_metric_that_is_named_as_an_end_gives_others_no_ends_of_it() {
    let world = World::new();
    let code = "case $HPCSWEEP_TRIAL in 0) k=loss.min;; *) k=loss;; esac; \
        for n in 1 2; do echo \"{\\\"$k\\\": $n}\" >>$HPCSWEEP_METRICS; done";
    world.local(&shell(code, "[grid]\nv = [1, 2]\n"), &["-q"]).ok();
    let columns = [
        "collect",
        "--format",
        "csv",
        "--columns",
        "trial,loss,loss.min,loss.min.min,loss.min.max",
    ];
    let expected = "trial,loss,loss.min,loss.min.min,loss.min.max\n0,,2,1,2\n1,2,1,,\n";
    assert_eq!(world.run(&columns).ok(), expected);
}

/// Of each pair of settings, how many trials both have and their means, or the first line of the error.
fn compared(world: &World, a: &str, b: &str) -> String {
    let ran = world.run(&["compare", a, b, "-m", "loss", "--json"]);
    match serde_json::from_str::<Value>(&ran.out) {
        Ok(object) => ["a", "b"]
            .map(|side| format!("{} {}", object[side]["n"], object[side]["mean"]))
            .join(", "),
        Err(_) => ran.err.lines().next().unwrap_or_default().to_owned(),
    }
}

#[test]
fn whole_numbers_beyond_2_to_the_53_are_told_apart() {
    let axes =
        "[grid]\nx = [9007199254740992, 9007199254740993]\nwidth = [1]\n[replicates]\ncount = 2\n";
    let world = sweep(axes, &["1", "1.1", "2", "2.2"]);
    assert_eq!(compared(&world, "x=9007199254740992", "x=9007199254740993"), "2 1.05, 2 2.1");
    let best = world.run(&["best", "-m", "loss", "--min", "-n", "2"]);
    let firsts: Vec<&str> =
        best.ok().lines().skip(1).take(2).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(firsts, ["9007199254740992", "9007199254740993"]);
    let effects = world.run(&["effects", "-m", "loss", "--min", "--json"]);
    let effects: Value = serde_json::from_str(effects.ok()).unwrap();
    let values = effects["parameters"][0]["values"].as_array().unwrap();
    let levels: Vec<String> =
        values.iter().map(|level| format!("{} {}", level["value"], level["trials"])).collect();
    assert_eq!(levels, ["\"9007199254740992\" 2", "\"9007199254740993\" 2"]);
}

#[test]
fn ranges_of_large_whole_numbers_have_all_their_digits() {
    let values: Vec<String> =
        (0..40).map(|n| format!("{}", 9_007_199_254_740_993_i64 + n)).collect();
    let losses: Vec<String> = (0..40).map(|n: u32| n.to_string()).collect();
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let world = sweep(&format!("[grid]\nx = [{}]\nwidth = [1]\n", values.join(", ")), &losses);
    let ran = world.run(&["effects", "-m", "loss", "--max"]);
    let best = ran.ok().lines().find(|line| line.starts_with("best x: "));
    assert!(best.is_some_and(|line| line.contains("9007199254741032 (mean")), "{}", ran.whole());
}

#[test]
fn a_value_of_compare_is_the_one_that_best_shows_so() {
    let axes = "[zip]\nx = [[1], \"[1]\", \"\", \"1\", 1, 1.0, \"a,b=2\", \"c\\td\"]\nwidth = [1, 1, 1, 1, 1, 1, 1, 1]\n";
    let world = sweep(axes, &["1", "2", "3", "4", "5", "6", "7", "8"]);
    for (a, b, expected) in [
        ("x=[1]", r#"x="[1]""#, "1 1.0, 1 2.0"),
        (r#"x="""#, r#"x="1""#, "1 3.0, 1 4.0"),
        ("x=1", "x=1.0", "1 5.0, 1 6.0"),
        (r#"x="a,b=2",width=1"#, r#"x="c\td""#, "1 7.0, 1 8.0"),
        ("x=", "x=c\td", "1 3.0, 1 8.0"),
        ("x=1.00", "x=1", "error: `x=1.00` means `1` as well as `1.0`"),
    ] {
        assert_eq!(compared(&world, a, b), expected, "{a} {b}");
    }
}

#[test]
fn a_missing_value_is_not_an_empty_text() {
    let axes = "[[trials]]\nx = \"\"\nwidth = 1\n[[trials]]\nwidth = 1\n[[trials]]\nwidth = 2\n";
    let world = sweep(axes, &["1", "2", "4"]);
    assert_eq!(compared(&world, "x=", r#"x="""#), "2 3.0, 1 1.0");
}

#[test]
fn numbers_near_the_ends_of_the_range_have_effects_and_intervals() {
    for scale in ["e300", "e-310"] {
        let losses: Vec<String> = LOSSES.iter().map(|loss| format!("{loss}{scale}")).collect();
        let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
        let world = sweep(AXES, &losses);
        let effects = world.run(&["effects", "-m", "loss", "--min"]);
        let first: Vec<&str> = effects.ok().lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!((first[0], first[2]), ("lr", "%"), "{}", effects.whole());
        assert!(first[1].parse::<f64>().unwrap() > 97.0, "{}", effects.whole());
        let best = world.run(&["best", "-m", "loss", "--min", "--json", "-n", "3"]);
        for line in best.ok().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            assert!(line["interval"][0].is_f64() && line["sd"].is_f64(), "{line}");
            assert!(line["p"].is_f64() || line["p"].is_null(), "{line}");
        }
        let best: Value = serde_json::from_str(best.out.lines().nth(2).unwrap()).unwrap();
        assert!(best["p"].as_f64().is_some_and(|p| p < 0.5), "{best}");
    }
}

#[test]
fn a_setting_with_a_tab_stays_on_its_line() {
    let axes = "[grid]\ntext = [\"a\\tb\", \"c\\nd\"]\nwidth = [8]\n[replicates]\ncount = 3\n";
    let world = sweep(axes, &["1", "2", "3", "1.1", "2.2", "3"]);
    let best = world.run(&["best", "-m", "loss", "--min", "-n", "9"]);
    let tie = best.ok().lines().find(|line| line.starts_with("cannot be told"));
    assert!(tie.is_some_and(|tie| tie.contains(r#"text="c\nd" width=8"#)), "{}", best.whole());
    assert!(!best.out.contains('\t'), "{}", best.whole());
}

#[test]
fn a_request_in_another_order_or_with_another_option_is_told_the_right_one() {
    let world = sweep("[grid]\nlr = [1, 2]\nwidth = [8]\n", &["1", "2"]);
    let ran = world.run(&["compare", "results/s", "lr=1", "lr=2", "-m", "loss"]);
    assert_eq!(
        ran.whole(),
        "error: `results/s` is a sweep, and `lr=1` is a setting\n\
         hint: the sweep follows the two that are compared: `hpcsweep compare lr=1 lr=2 results/s --metric loss`\n\
         exit code 2\n"
    );
    world.run(&["compare", "lr=1", "lr=2", "results/s", "--metric", "loss"]).ok();
    let json = world.run(&["collect", "--json"]);
    assert!(json.code == 2 && json.err.contains("--format jsonl"), "{}", json.whole());
    assert!(!json.err.contains("-- --json"), "{}", json.whole());
    assert_eq!(
        world.run(&["submit", "results/s", "--local"]).whole(),
        "error: `results/s` is the folder of a sweep, and no plan\n\
         hint: its plan is the file `plan.toml`\nexit code 2\n"
    );
    assert_eq!(
        world.run(&["submit", "results", "--local"]).whole(),
        "error: `results` is a folder, and no plan\n\
         hint: name a plan's file; `hpcsweep init NAME` makes a project with one\nexit code 2\n"
    );
}

#[test]
fn a_name_of_a_parameter_and_a_metric_is_the_metric_where_one_is_asked_for() {
    let world = World::new();
    let code = "echo \"{\\\"step\\\": 1, \\\"acc\\\": $HPCSWEEP_PARAM_SCORE}\" >>$HPCSWEEP_METRICS";
    let zip = "[zip]\nacc = [0.9, 0.5, 0.7]\nscore = [3, 2, 4]\n";
    world.local(&shell(code, zip), &["-q"]).ok();
    let lines = |args: &[&str]| -> Vec<Value> {
        let ran = world.run(args);
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let best = &lines(&["best", "-m", "acc", "--max", "--by", "trial", "--json"])[0];
    assert_eq!(
        (&best["trial"], &best["param.acc"], &best["metric.acc"]),
        (&json!(2), &json!(0.7), &json!(4))
    );
    let best = world.run(&["best", "-m", "acc", "--max"]);
    assert!(
        best.out.starts_with("trial 2: acc = 4  (param.acc=0.7 score=4)\n"),
        "{}",
        best.whole()
    );
    let best = &lines(&["best", "-m", "acc", "--max", "--by", "acc", "--json"])[0];
    assert_eq!(best["setting"]["param.acc"], 0.7, "{best}");
    let sorted = lines(&["collect", "--sort", "-acc", "--format", "jsonl"]);
    let trials: Vec<&Value> = sorted.iter().map(|row| &row["trial"]).collect();
    assert_eq!(trials, [2, 0, 1]);
    let effects = world.run(&["effects", "-m", "acc", "--max"]);
    assert!(effects.err.contains("3 trials with a number for `metric.acc`"), "{}", effects.whole());
    let compared = world.run(&["compare", "acc=0.9", "acc=0.7", "-m", "acc", "--json"]);
    let compared: Value = serde_json::from_str(compared.ok()).unwrap();
    assert_eq!((&compared["a"]["value"], &compared["b"]["value"]), (&json!(3.0), &json!(4.0)));
}

/// The lines of a comparison without the columns of cost, which differ from run to run.
fn without_costs(text: &str) -> String {
    let end = text.find("  duration_s").unwrap_or(usize::MAX);
    let cut = |line: &str| line.get(..end).unwrap_or(line).trim_end().to_owned();
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| if at < 3 { cut(line) } else { line.to_owned() } + "\n").collect()
}

#[test]
fn the_samples_of_the_documentation_are_what_is_printed() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/answers.md")).unwrap();
    let blocks = |kind: &str| -> Vec<String> {
        let opens = format!("```{kind}\n");
        let all = page.split(&opens).skip(1);
        all.map(|block| block.split("```").next().unwrap().to_owned()).collect()
    };
    let world = World::new();
    world.local(&blocks("toml")[0], &["-q"]);
    let samples = blocks("console");
    assert_eq!(samples.len(), 2);
    for sample in samples {
        let (command, printed) = sample.split_once('\n').unwrap();
        let args: Vec<&str> = command.strip_prefix("$ hpcsweep ").unwrap().split(' ').collect();
        assert_eq!(without_costs(world.run(&args).ok()), without_costs(printed), "{command}");
    }
}
