//! Learning curves over attempts, metric lines as programs print them, and how trials stand while a sweep runs: every
//! reader says the same.

use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{World, wait_until};

/// A trial that logs ten steps, saves the last of every three, and dies at step 8 of its first attempt.
const RESUMES: &str = r#"mkdir -p $HPCSWEEP_CHECKPOINT_DIR; kept=$HPCSWEEP_CHECKPOINT_DIR/step; step=1; [ ! -e $kept ] || step=$(( $(cat $kept) + 1 ))
    while [ $step -le 10 ]; do
        echo "{\"step\": $step, \"loss\": $(( 100 - step * 10 + HPCSWEEP_ATTEMPT ))}" >>$HPCSWEEP_METRICS
        [ $((step % 3)) != 0 ] || echo $step >$kept
        [ $HPCSWEEP_ATTEMPT != 1 ] || [ $step != 8 ] || exit 3
        step=$((step + 1))
    done"#;

/// The curve of trial 0 as `step:loss`, the least and greatest loss, and whether the total time is that of both.
fn curve(world: &World, sweep: &str) -> (String, [Value; 3], bool) {
    let steps = world.run(&["collect", "--steps", "--format", "jsonl", "--offline", sweep]);
    let rows: Vec<Value> = steps.ok().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let at: Vec<String> = rows.iter().map(|r| format!("{}:{}", r["step"], r["loss"])).collect();
    let table = world.run(&["collect", "--format", "jsonl", "--offline", sweep]);
    let row: Value = serde_json::from_str(table.out.lines().next().unwrap()).unwrap();
    let (total, last) =
        (row["duration_s"].as_f64().unwrap(), row["last_duration_s"].as_f64().unwrap());
    let records = world.run(&["collect", "--format", "records", "--offline", sweep]);
    let record: Value = serde_json::from_str(records.out.lines().next().unwrap()).unwrap();
    for name in ["loss", "loss.min", "loss.max"] {
        assert_eq!(record["metrics"][name], row[name], "{name}");
    }
    assert_eq!((&record["duration_s"], &record["last_duration_s"]), (&json!(total), &json!(last)));
    (at.join(" "), ["loss", "loss.min", "loss.max"].map(|name| row[name].clone()), total > last)
}

/// The curve of [`RESUMES`]: steps 7 and 8 are those of the second attempt.
fn expected() -> (String, [Value; 3], bool) {
    let first = (1..=6).map(|step| format!("{step}:{}", 101 - step * 10));
    let second = (7..=10).map(|step| format!("{step}:{}", 102 - step * 10));
    let curve = first.chain(second).collect::<Vec<_>>().join(" ");
    (curve, [json!(2), json!(2), json!(91)], true)
}

#[test]
fn attempts_of_one_run_are_one_learning_curve() {
    let world = World::new();
    world.local(&shell(RESUMES, "").replace("[run]", "[run]\nattempts = 2"), &["-q"]).ok();
    assert_eq!(curve(&world, "results/s"), expected());
}

#[test]
fn statistics_of_a_curve_are_columns_and_metrics() {
    let world = World::new();
    let plan = shell(RESUMES, "[grid]\na = [1, 2]\n").replace("[run]", "[run]\nattempts = 2");
    world.local(&plan, &["-q"]).ok();
    let curve = ["--curve", "area,tail,argmin,argmax", "--curve", "loss <= 40,loss<2"];
    let table = world.run(&[&["collect", "--format", "csv"], &curve[..]].concat());
    let head = table.ok().lines().next().unwrap().split_once("loss,").unwrap().1.to_owned();
    assert_eq!(
        head,
        "loss.min,loss.max,loss.area,loss.tail,loss.argmin,loss.argmax,loss<=40,loss<2"
    );
    let rows: Vec<&str> =
        table.out.lines().skip(1).map(|line| line.split_once(",10,2,").unwrap().1).collect();
    assert_eq!(rows, ["2,91,417.5,2.0,10,1,7,"; 2]);
    let best = world.run(&["best", "--curve", "loss<=40", "-m", "loss<=40", "--min"]);
    assert_eq!(best.ok().lines().next(), Some("trial 0: loss<=40 = 7  (a=1)"));
    let columns =
        world.run(&["collect", "--curve", "area,loss<=40", "--format", "csv", "--columns"]);
    let said = "loss.area,integral of `loss` over the steps,,metric\nloss<=40,first step at which `loss<=40`,,metric\n";
    assert!(columns.ok().ends_with(said), "{}", columns.out);
    for verb in [&["collect"][..], &["best", "-m", "loss", "--min"]] {
        let ran = world.run(&[verb, &["--curve", "los<=1"]].concat());
        let expected = "error: `--curve 'los<=1'`: no trial has logged `los`\nhint: did you mean `loss`?\nexit code 2\n";
        assert_eq!(ran.whole(), expected);
    }
    assert_eq!(
        world.run(&["collect", "--curve", "mean"]).whole(),
        "error: invalid value 'mean' for '--curve <STATISTICS>': there is no statistic of curves called `mean`: \
         there are `area`, `tail`, `argmin`, `argmax`, and steps to reach a value, as `loss<=0.1`\n\n\
         For more information, try '--help'.\nexit code 2\n"
    );
    assert_eq!(
        world.run(&["collect", "--steps", "--curve", "area"]).whole(),
        "error: `--curve` is about the table of trials\nexit code 2\n"
    );
}

#[test]
fn runs_of_an_array_element_are_one_learning_curve() {
    let world = slurm();
    world.write("plan.toml", &shell(RESUMES, "[grid]\na = [1, 2]\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    for code in [3, 0] {
        let mut command = world.command("bash");
        command.arg(world.path("results/s/jobs/0001.sh")).env("SLURM_ARRAY_TASK_ID", "0");
        command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
        command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
        assert_eq!(command.status().unwrap().code(), Some(code));
    }
    assert_eq!(world.files("results/s/records/000"), ["0.1.jsonl", "0.2.jsonl"]);
    assert_eq!(curve(&world, "results/s"), expected());
}

#[test]
fn attempts_of_agents_are_one_learning_curve() {
    let world = World::new();
    let plan = shell(RESUMES, "").replace("[run]", "[run]\nattempts = 2");
    world.write("plan.toml", &plan);
    world.run(&["worker", "--pull", "plan.toml", "--slots", "1", "-q"]).ok();
    assert_eq!(curve(&world, "results/s"), expected());
}

#[test]
fn a_diverged_trial_never_wins_whatever_its_program_calls_it() {
    let mut words =
        vec!["nan", "-nan", "NaN", "NAN", "-nan(ind)", "inf", "Infinity", "1e999", "1.0D+999"];
    let not_finite = words.len();
    words.push("0.5");
    let world = World::new();
    let grid = format!("[grid]\nword = {}\n", json!(words));
    let code = "echo \"{\\\"loss\\\": 1.000000e-09}\" >>$HPCSWEEP_METRICS
        echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_WORD, \\\"step\\\": 2}\" >>$HPCSWEEP_METRICS";
    world.local(&shell(code, &grid), &["-q"]).ok();
    let best = world.run(&["best", "-m", "loss", "--min", "--json"]);
    let best: Value = serde_json::from_str(best.ok()).unwrap();
    assert_eq!(
        (&best["word"], &best["loss"], &best["unread_lines"]),
        (&json!("0.5"), &json!(0.5), &json!(0))
    );
    let not: Vec<String> = world.column("loss").into_iter().take(not_finite).collect();
    let (nan, inf) = ("\"nan\"", "\"inf\"");
    assert_eq!(not, [nan, nan, nan, nan, nan, inf, inf, inf, inf]);
}

#[test]
fn metric_lines_that_cannot_be_read_are_counted_by_every_reader() {
    for args in [
        &["submit", "plan.toml", "--local", "-q"][..],
        &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
    ] {
        let world = World::new();
        let code = "echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS
            echo loss=2 >>$HPCSWEEP_METRICS; [ $HPCSWEEP_PARAM_A = 1 ] || echo '{' >>$HPCSWEEP_METRICS";
        world.write("plan.toml", &shell(code, "[grid]\na = [1, 2]\n"));
        world.run(args).ok();
        let said =
            "results/s: 3 metric lines or results left out that could not be read (trials 0, 1)\n";
        for verb in [
            &["collect"][..],
            &["collect", "--steps"],
            &["best", "-m", "loss", "--min"],
            &["collect", "--format", "records"],
        ] {
            let ran = world.run(verb);
            assert_eq!((ran.code, ran.err.ends_with(said)), (0, true), "{}", ran.whole());
            assert!(!ran.out.contains("hpcsweep.unread"), "{}", ran.out);
        }
        let status = world.status();
        let of = |trial: usize| status["trials"][trial]["unread_lines"].clone();
        assert_eq!([&status["unread_lines"], &of(0), &of(1)], [&json!(3), &json!(1), &json!(2)]);
        let people = world.run(&["status"]);
        let said = "left out: 3 metric lines or results of 2 trials that could not be read, the first of trial 0\n";
        assert!(people.out.contains(said), "{}", people.out);
        let best = world.run(&["best", "-m", "loss", "--min", "-n", "2", "--json"]);
        let lines = best
            .out
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap()["unread_lines"].clone());
        assert_eq!(lines.collect::<Vec<_>>(), [1, 2]);
    }
}

/// The states of all trials as each reader has them.
fn states(world: &World) -> [String; 4] {
    let join = |words: Vec<String>| words.join(" ").replace('"', "");
    let of = |ran: crate::support::world::Ran| -> String {
        let rows = ran.out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        join(rows.map(|row| row["state"].to_string()).collect())
    };
    let status = world.status();
    let trials = status["trials"].as_array().unwrap();
    let watched = world.run(&["watch", "--once"]).out;
    let mut counts: Vec<&str> = watched.lines().nth(1).unwrap().split("  ").collect();
    counts.sort_unstable();
    [
        join(trials.iter().map(|t| t["state"].to_string()).collect()),
        of(world.run(&["collect", "--format", "jsonl"])),
        of(world.run(&["collect", "--format", "records", "--planned", "plan.toml"])),
        counts.join(", "),
    ]
}

#[test]
fn every_reader_says_the_same_of_a_sweep_that_runs_here_or_with_agents() {
    // The first attempt of trial 0 fails, and its second one waits; trial 1 has ended, the others wait.
    let code = "[ $HPCSWEEP_PARAM_A != 1 ] || exit 0
        [ $HPCSWEEP_ATTEMPT = 2 ] || exit 3
        until [ -e go ]; do sleep 0.01; done";
    let rest = "[grid]\na = [1, 0, 2, 3]\n";
    for args in [
        &["submit", "plan.toml", "--local", "-j", "1", "-q"][..],
        &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
    ] {
        let world = World::new();
        world.write("plan.toml", &shell(code, rest).replace("[run]", "[run]\nattempts = 2"));
        let run = world.start(args);
        wait_until("the second attempt runs", || {
            world.exists("results/s/sweep.json") && world.status()["trials"][1]["attempts"] == 2
        });
        let word = if args[0] == "submit" { "pending" } else { "queued" };
        let all = format!("done running {word} {word}");
        let mut counts = ["done 1".to_owned(), "running 1".to_owned(), format!("{word} 2")];
        counts.sort_unstable();
        let counts = counts.join(", ");
        assert_eq!(states(&world), [all.clone(), all.clone(), all, counts], "{args:?}");
        // Agents try everything once before they try something again.
        if args[0] == "submit" {
            let ran = world.run(&["logs", "3"]).whole();
            assert_eq!(ran, "error: trial 3 of s has not begun: pending\nexit code 2\n");
        }
        world.write("go", "");
        run.end(&world).ok();
        let all = "done done done done".to_owned();
        assert_eq!(states(&world), [all.clone(), all.clone(), all, "done 4".to_owned()]);
    }
}

#[test]
fn an_interrupted_trial_is_pending_while_somebody_else_runs_the_sweep() {
    let world = World::new();
    let code = "echo $$ >>pids; until [ -e go ]; do sleep 0.01; done";
    world.write("plan.toml", &shell(code, "[grid]\na = [1, 2]\n"));
    let args = ["submit", "plan.toml", "--local", "-j", "1", "-q"];
    let first = world.start(&args);
    wait_until("trial 0 runs", || world.exists("pids"));
    first.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(first.end(&world).code, 130);
    let stopped = "interrupted pending".to_owned();
    assert_eq!(states(&world)[..2], [stopped.clone(), stopped]);
    world.write("pids", "");
    let again = world.start(&args);
    wait_until("one of them runs again", || world.read("pids").lines().count() == 1);
    let now = states(&world)[0].clone();
    assert_eq!(now, "running pending");
    assert_eq!(states(&world)[..2], [now.clone(), now]);
    world.write("go", "");
    again.end(&world).ok();
}

#[test]
fn a_reader_beside_slurm_asks_it_and_can_do_without() {
    let world = slurm();
    world.write("plan.toml", &shell("exit 0", "[grid]\na = [0, 1, 2]\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    world.program(
        "squeue",
        "#!/bin/sh\necho '101_0|RUNNING|None|x'; echo '101_1|PENDING|Priority|x'\n",
    );
    let all = "running queued lost".to_owned();
    let counts = "lost 1, queued 1, running 1".to_owned();
    assert_eq!(states(&world), [all.clone(), all.clone(), all, counts]);
    let ran = world.run(&["collect", "--offline", "--format", "jsonl"]);
    assert_eq!(ran.out.matches("\"state\":\"queued\"").count(), 3, "{}", ran.out);
    assert_eq!(
        (ran.err.as_str(), ran.code),
        ("$WORLD/results/s: states are those of the results tree alone\n", 0)
    );
}

/// One whose CPU time is bounded, so that it cannot try for ever.
#[test]
fn metrics_that_cannot_be_read_hold_nobody_up_and_are_reported() {
    let user = 54_322;
    let code =
        "yes '{\"loss\": 1}' | head -n 300000 >>$HPCSWEEP_METRICS; chmod 000 $HPCSWEEP_METRICS";
    for args in [&["submit", "plan.toml", "--local", "-q"][..], &["worker", "--pull", "plan.toml"]]
    {
        let world = World::new();
        if !world.give(user, "theirs", &shell(code, "")) {
            return;
        }
        let ran = world.run_as_after(user, "ulimit -t 20", "theirs", args).unwrap();
        assert_eq!(ran.code, 0, "{}", ran.whole());
        let trial = world.run(&["status", "theirs/results/s", "--json"]);
        let status: Value = serde_json::from_str(&trial.out).unwrap();
        let said = "$HPCSWEEP_METRICS cannot be read: permission denied";
        assert_eq!(
            (&status["trials"][0]["state"], &status["trials"][0]["reason"]),
            (&"done".into(), &said.into())
        );
    }
}
