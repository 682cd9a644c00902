//! What `best`, `compare`, `effects` and `plot` may not claim: certainty from few seeds, the luck of the trials that did not fail, independence of
//! trials that share a seed.

use serde_json::{Value, json};

use super::best::sweep;
use crate::support::plans::shell;
use crate::support::world::World;

fn lines(world: &World, args: &[&str]) -> Vec<Value> {
    let ran = world.run(args);
    ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_seeds_without_spread_tell_no_setting_from_the_best() {
    let axes = "[grid]\nlr = [1, 2, 3]\nwidth = [64]\n[replicates]\ncount = 2\n";
    let world = sweep(axes, &["0.97", "0.97", "0.96", "0.96", "0.95", "0.95"]);
    assert_eq!(
        world.run(&["best", "-m", "loss", "--max", "-n", "3"]).whole(),
        "\
lr  loss  95 % interval  sd  n  p  trials
 1  0.97                  0  2     0-1
 2  0.96                  0  2  1  2-3
 3  0.95                  0  2  1  4-5
averaged over `seed` (of [replicates])
cannot be told from the best: lr=2 width=64 (p = 1), lr=3 width=64 (p = 1) (paired t test, corrected for the choice of the best, 5 %)
the best of 3 settings was chosen by these numbers: it looks better than it is. New seeds tell: raise `count` of `[replicates]`, then `hpcsweep submit PLAN --where '(lr == 1) or (lr == 2) or (lr == 3)'`
exit code 0
"
    );
    // Two pairs have four signs, of which two are all the same.
    let compared = &lines(&world, &["compare", "lr=1", "lr=3", "-m", "loss", "--json"])[0];
    assert_eq!(compared["difference"]["p"], json!(0.5));
}

#[test]
fn a_setting_that_fails_is_ranked_last_whatever_form_its_failure_takes() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [64]\n[replicates]\ncount = 4\n";
    let mut ranked = Vec::new();
    for bad in ["x", "NaN", "\\\\\"none\\\\\""] {
        let world = sweep(axes, &["1.0", "1.1", "0.9", "1.2", "0.1", bad, "0.3", bad]);
        let best = world.run(&["best", "-m", "loss", "--min", "-n", "9"]);
        let text: Vec<String> = best.ok().lines().take(4).map(str::to_owned).collect();
        assert_eq!(
            text,
            [
                "warning: trials failed or gave no number, and these settings are ranked last: lr=2 width=64 (2/4)",
                "lr  loss  95 % interval     sd  n  failed  p  trials",
                " 1  1.05  [0.86, 1.28]   0.129  4             0-3",
                " 2   0.2                 0.141  2  2/4        4,6",
            ],
            "{bad}"
        );
        let json = lines(&world, &["best", "-m", "loss", "--min", "-n", "9", "--json"]);
        assert_eq!((&json[1]["place"], &json[1]["failed"]), (&json!("failed"), &json!(2)));
        assert_eq!(json[1]["interval"], Value::Null);
        ranked.push(json.iter().map(|one| one["setting"].clone()).collect::<Vec<_>>());
        let compared = world.run(&["compare", "lr=1", "lr=2", "-m", "loss"]);
        assert_eq!(
            compared.ok().lines().next(),
            Some(
                "warning: trials failed or gave no number, and what is compared are the others: lr=2 (2/4)"
            )
        );
    }
    assert!(ranked.iter().all(|one| *one == ranked[0]), "{ranked:?}");
}

#[test]
fn a_value_whose_trials_fail_more_often_is_not_the_best_one() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [1, 2]\n[replicates]\ncount = 5\n";
    let mut losses: Vec<String> = (0..10).map(|i| format!("1.{i}")).collect();
    losses.extend((0..10).map(|i| if i % 5 < 3 { "x".to_owned() } else { format!("0.{i}") }));
    let losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    let world = sweep(axes, &losses);
    let effects = world.run(&["effects", "-m", "loss", "--min"]);
    let text = effects.ok();
    assert_eq!(
        text.lines().next(),
        Some(
            "warning: trials failed or gave no number, more often than others with these values, which are not taken for the best: lr=2 (6/10)"
        )
    );
    assert!(text.contains("\nbest lr: 1 (mean "), "{text}");
}

#[test]
fn trials_of_one_seed_are_one_observation() {
    // The difference is 1, 3 and 5 by seed, whatever the width; the last trial of the second has no partner.
    let axes = "[grid]\nlr = [1, 2]\nwidth = [1, 2, 3]\n[replicates]\ncount = 3\n";
    let world = sweep(
        axes,
        &[
            "2", "4", "6", "2.1", "4.1", "6.1", "2.2", "4.2", "x", "1", "1", "1", "1.1", "1.1",
            "1.1", "1.2", "1.2", "1.3",
        ],
    );
    let compared = &lines(&world, &["compare", "lr=1", "lr=2", "-m", "loss", "--json"])[0];
    let difference = &compared["difference"];
    assert_eq!((&difference["pairs"], &difference["unit"]), (&json!(3), &json!("seed")));
    let (a, b) = (compared["a"]["mean"].as_f64().unwrap(), compared["b"]["mean"].as_f64().unwrap());
    assert!((a - b - 3.0).abs() < 1e-12, "{compared}");
    assert_eq!(difference["difference"], json!(3.0));
    assert!(difference["p"].as_f64().unwrap() > 0.05, "{difference}");
    assert_eq!(
        [&compared["a"], &compared["b"]].map(|side| (
            &side["trials"],
            &side["without_partner"],
            &side["n"]
        )),
        [(&json!(8), &json!(0), &json!(3)), (&json!(8), &json!(1), &json!(3))]
    );
    let text = world.run(&["compare", "lr=1", "lr=2", "-m", "loss"]);
    let said = "by the t test of 3 values of `seed`, each the means of pairs that agree in `width`, `seed`";
    assert!(text.ok().contains(said), "{}", text.out);
    assert!(
        text.out.ends_with("left out: 1 trial without a partner on the other side\n"),
        "{}",
        text.out
    );
}

#[test]
fn noise_has_no_best_value() {
    let axes = "[grid]\nlr = [1, 2]\nwidth = [1, 2]\n[replicates]\ncount = 3\n";
    let noise =
        ["1", "1.3", "1.1", "1.2", "1.1", "1.25", "1.15", "1.05", "1.3", "1.22", "1.02", "1.12"];
    let world = sweep(axes, &noise);
    let effects = world.run(&["effects", "-m", "loss", "--min"]);
    assert!(
        effects.ok().contains("\nlr: no effect shown\nwidth: no effect shown\n"),
        "{}",
        effects.out
    );
    assert!(!effects.out.contains("95 %"), "{}", effects.out);
}

#[test]
fn noise_has_no_best_value_without_repetitions_either() {
    let noise = ["1", "1.3", "1.1", "1.2", "1.1", "1.25", "1.15", "1.05", "1.3"];
    let world = sweep("[grid]\nlr = [1, 2, 3]\nwidth = [1, 2, 3]\n", &noise);
    let effects = world.run(&["effects", "-m", "loss", "--min"]);
    let text = effects.ok();
    assert!(text.contains("\nlr: no effect shown\nwidth: no effect shown\n"), "{text}");
    let said = "without repetitions, what both do together cannot be told from noise, and is what each is compared with\n";
    assert!(text.contains(said), "{text}");
}

#[test]
fn a_parameter_of_a_forest_has_an_effect_if_shuffles_show_it() {
    // Each value once, in an order of its own: `lr` is all, `width` nothing.
    let at = |i: usize| (i * 17 % 40, i * 7 % 40);
    let (lr, width): (Vec<String>, Vec<String>) =
        (0..40).map(|i| (at(i).0.to_string(), at(i).1.to_string())).unzip();
    let axes = format!("[zip]\nlr = [{}]\nwidth = [{}]\n", lr.join(", "), width.join(", "));
    let loss = |i: usize| format!("{}.{}", at(i).0 / 4, i * i % 10);
    let losses: Vec<String> = (0..40).map(loss).collect();
    let world = sweep(&axes, &losses.iter().map(String::as_str).collect::<Vec<_>>());
    let effects = world.run(&["effects", "-m", "loss", "--min"]);
    let text = effects.ok();
    assert!(text.contains("\nbest lr: ") && text.contains("\nwidth: no effect shown\n"), "{text}");
    let said = "by a forest over 40 trials (functional ANOVA), because a parameter has more than 32 values; ";
    assert!(text.contains(said), "{text}");
    let plot = world.run(&["plot", "effects", "-m", "loss", "-o", "p.svg"]);
    assert!(plot.whole().contains("no effect shown of width; "), "{}", plot.whole());
}

#[test]
fn what_three_parameters_do_together_is_no_noise_where_seeds_tell() {
    // The parity of three: no parameter, and no two, tell anything. A trial is missing.
    let losses: Vec<String> = (0..8_u32)
        .flat_map(|at| (0..3).map(move |seed| (at, seed)))
        .map(|(at, seed)| format!("{}.{}", 1 + at.count_ones() % 2, (at * 5 + seed * 3) % 7))
        .collect();
    let mut losses: Vec<&str> = losses.iter().map(String::as_str).collect();
    losses[4] = "x";
    let axes = "[grid]\nlr = [1, 2]\nwidth = [1, 2]\ndepth = [1, 2]\n[replicates]\ncount = 3\n";
    let world = sweep(axes, &losses);
    let text = world.run(&["effects", "-m", "loss", "--min"]).ok().to_owned();
    let row: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("lr x width x depth "))
        .map(|line| line.split_whitespace().collect())
        .unwrap_or_default();
    assert!(row[5].parse::<f64>().is_ok_and(|part| part > 60.0), "{text}");
    assert!(row.last().is_some_and(|p| p.parse::<f64>().is_ok_and(|p| p < 0.01)), "{text}");
    assert!(text.contains("a grid with gaps") && text.contains(" is noise"), "{text}");
}

#[test]
fn single_trials_that_are_left_out_are_named() {
    let world = World::new();
    let code = "echo \"{\\\"acc\\\": $HPCSWEEP_PARAM_V}\" >>$HPCSWEEP_METRICS";
    let axes = "[grid]\nv = ['0.80', '\"0.97\"', 'NaN', '\"95%\"', '0.7']\n";
    world.local(&shell(code, axes), &["-q"]).ok();
    assert_eq!(
        world.run(&["best", "-m", "acc", "--max"]).whole(),
        "\
trial 0: acc = 0.8  (v=0.80)
  log: $WORLD/results/s/logs/000/0.1.log
left out: 2 without a number, 1 not a number (acc = \"0.97\" in trial 1, acc = \"nan\" in trial 2, acc = \"95%\" in trial 3)
the best of 2 trials, each run once: no interval and no test without repetitions (`[replicates]` in the plan)
exit code 0
"
    );
}

#[test]
fn a_mean_curve_ends_where_the_first_of_its_trials_does() {
    let world = World::new();
    // Of `y`, two of three seeds stop early, at bad values.
    let code = "i=0; n=10; [ $HPCSWEEP_PARAM_A = y ] && [ $HPCSWEEP_PARAM_SEED != 1 ] && n=3; \
                while [ $i -lt $n ]; do echo \"{\\\"step\\\": $i, \\\"loss\\\": $n}\" >>$HPCSWEEP_METRICS; i=$((i+1)); done";
    let axes = "[grid]\na = [\"x\", \"y\"]\n[replicates]\ncount = 3\n";
    world.local(&shell(code, axes), &["-q"]).ok();
    assert_eq!(
        world.run(&["plot", "curves", "-m", "loss", "--by", "a", "-o", "c.svg"]).whole(),
        "curves of `loss` in c.svg\nfor its caption: mean of 3 trials; around it one standard deviation; averaged over `seed`; \
         1 line ends where its first trial does: others went on\nexit code 0\n"
    );
}

/// A sweep whose trials log these accuracies, in their order, with a table of the plan.
fn accuracies(values: &[&str], table: &str) -> World {
    let code = format!(
        "set -- {}; shift $HPCSWEEP_TRIAL; echo \"{{\\\"acc\\\": $1}}\" >> $HPCSWEEP_METRICS",
        values.join(" ")
    );
    let world = World::new();
    world.local(
        &shell(&code, &format!("[grid]\nlr = [1, 2]\n[replicates]\ncount = 3\n{table}")),
        &["-q"],
    );
    world
}

#[test]
fn intervals_of_bounded_metrics_stay_within_their_bounds_and_say_so() {
    let values = ["0.99", "0.90", "0.97", "0.5", "0.9", "0.6"];
    let said = |world: &World| -> Vec<String> {
        let all = ["best -m acc --max -n 2", "compare lr=1 lr=2 -m acc", "effects -m acc --max"];
        let lines = all.map(|verb| {
            let args: Vec<&str> = verb.split(' ').collect();
            let ran = world.run(&args);
            let line = ran.ok().lines().find(|line| line.starts_with("intervals stay "));
            line.unwrap_or_default().to_owned()
        });
        lines.to_vec()
    };
    let world = accuracies(&values, "");
    let assumed = "intervals stay between 0 and 1 by the logit, as the name `acc` says; `[metrics] bounds` in the plan says otherwise";
    assert_eq!(said(&world)[..2], [assumed, assumed]);
    for one in lines(&world, &["best", "-m", "acc", "--max", "-n", "2", "--json"]) {
        assert_eq!(one["bounds"], json!([0.0, 1.0]));
        let ends: Vec<f64> = serde_json::from_value(one["interval"].clone()).unwrap();
        assert!(0.0 < ends[0] && ends[0] < ends[1] && ends[1] < 1.0, "{ends:?}");
    }
    // The plan says others, and that there are none.
    let world = accuracies(&values, "[metrics]\nbounds = { acc = [0, inf] }\n");
    let given = "intervals stay above 0 by the logarithm, as `[metrics] bounds` says of `acc`";
    assert_eq!(said(&world)[..2], [given, given]);
    let world = accuracies(&values, "[metrics]\nbounds = { acc = [-inf, inf] }\n");
    assert_eq!(said(&world), ["", "", ""]);
    let best = &lines(&world, &["best", "-m", "acc", "--max", "--json"])[0];
    assert!(best["interval"][1].as_f64().unwrap() > 1.0, "{best}");
    // Percents are no parts of 1.
    assert_eq!(said(&accuracies(&["99", "90", "97", "50", "90", "60"], "")), ["", "", ""]);
}
