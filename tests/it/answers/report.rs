//! `hpcsweep report`: the file, and what is in it. `scripts/report-check` opens it in a browser.

use std::fs;

use hpcsweep::sweep::tree::{Tree, line};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{ROOT, World};

/// A sweep of three settings with two repetitions each, and three failures for two reasons.
const PLAN: &str = r#"
version = 1
[sweep]
name = "s"
[run]
command = ["sh", "-c", '''
x={{ x }}; seed={{ seed }}
[ $x = 4 ] && [ $seed = 2 ] && { echo "not a number" > $HPCSWEEP_REASON; exit 3; }
[ $x = 5 ] && exit 4
for epoch in 1 2 3; do echo "{\"epoch\": $epoch, \"loss\": $((x + seed + epoch)).5}" >> $HPCSWEEP_METRICS; done
''']
[grid]
x = [1, 2, 4, 5]
[replicates]
count = 2
"#;

/// The data of a page: the one script that is none.
fn data(page: &str) -> Value {
    let (_, data) = page.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// The values of a column of the page's table.
fn column(data: &Value, name: &str) -> Vec<Value> {
    let columns = data["trials"]["columns"].as_array().unwrap();
    let found = columns.iter().find(|column| column["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no column {name}"));
    match found.get("n") {
        Some(numbers) => numbers.as_array().unwrap().clone(),
        None => {
            let texts = found["d"].as_array().unwrap();
            let of = |place: &Value| place.as_u64().map(|at| texts[at as usize].clone());
            let places = found["v"].as_array().unwrap().iter();
            places.map(|place| of(place).unwrap_or(Value::Null)).collect()
        }
    }
}

/// The text of a page between two marks.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    page.split_once(from).unwrap().1.split_once(to).unwrap().0
}

#[test]
fn a_report_is_one_file_that_says_what_a_sweep_came_to() {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    let ran = world.run(&["report", "--metric", "loss", "--min"]);
    assert_eq!(ran.whole(), "8 trials in report.html\nexit code 0\n");
    let page = world.read("report.html");
    let answers = between(&page, "<dl class=\"answers\">", "</dl>");
    for words in [
        "<dt>Swept</dt><dd>8 trials: x (1, 2, 4, 5), averaged over seed (1, 2).</dd>",
        "<dt>Trials</dt><dd>5 of 8 are done; the others are 3 failed.</dd>",
        "x=1 has the least loss: 6 on average over 2 trials (95 % interval 2.081 to 17.3).",
        "The best single trial is 0 with 5.5.",
        "3 trials ended without success: 2 × exit code 4; 1 × exit code 3: not a number.",
    ] {
        assert!(answers.contains(words), "{words}\n{answers}");
    }
    let data = data(&page);
    assert_eq!(data["metric"], json!({"name": "loss", "max": false, "assumed": false}));
    let done = ["done", "done", "done", "done", "done", "failed", "failed", "failed"];
    assert_eq!(column(&data, "state"), done.map(Value::from));
    let loss = [json!(5.5), json!(6.5), json!(6.5), json!(7.5), json!(8.5)];
    assert_eq!(column(&data, "loss")[..5], loss);
    let curves = data["curves"]["settings"].as_array().unwrap();
    assert_eq!(curves[0]["label"], "x=1");
    assert_eq!(curves[0]["points"][0], json!([1, 4, 3.5, 4.5]));
    let causes: Vec<(&Value, &Value)> = data["failures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|failure| (&failure["count"], &failure["command"]))
        .collect();
    let logs = [json!("hpcsweep logs 6 results/s"), json!("hpcsweep logs 5 results/s")];
    assert_eq!(causes, [(&json!(2), &logs[0]), (&json!(1), &logs[1])]);
    assert_eq!(data["timeline"]["bars"].as_array().unwrap().len(), 8);
    assert_eq!(data["cost"]["shapes"].as_array().unwrap().len(), 1);
    assert!(data["origin"]["plan"].as_str().unwrap().contains("[replicates]\ncount = 2"));
}

#[test]
fn a_metric_that_has_the_name_of_a_parameter_is_the_metric() {
    let world = World::new();
    let code = "echo \"{\\\"loss\\\": 7.$HPCSWEEP_PARAM_N}\" >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "[zip]\nloss = [4, 5]\nn = [5, 2]\n"), &["-q"]).ok();
    world.run(&["report", "--metric", "loss", "--min"]).ok();
    let page = world.read("report.html");
    let answers = between(&page, "<dl class=\"answers\">", "</dl>");
    assert!(answers.contains("trial 1") && answers.contains("7.2"), "{answers}");
    assert_eq!(column(&data(&page), "metric.loss"), [json!(7.5), json!(7.2)]);
}

#[test]
fn a_report_shows_the_figures_of_each_setting_that_best_prints() {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    let best = world.run(&["best", "--metric", "loss", "--min", "-n", "9"]);
    let printed: Vec<&str> = best.ok().lines().skip(1).take(4).collect();
    assert_eq!(
        printed,
        [
            "x  loss  95 % interval     sd  n  failed    p  curve  trials",
            "1   6.0  [2.1, 17.3]    0.707  2               ▁▅█    0-1",
            "2   7.0  [2.8, 17.3]    0.707  2          0.5  ▁▅█    2-3",
            "4   8.5                        1  1/2          ▁▅█    4",
        ]
    );
    world.run(&["report", "--metric", "loss", "--min"]).ok();
    let mut settings = data(&world.read("report.html"))["settings"].take();
    for row in settings["rows"].as_array_mut().unwrap() {
        let costs = row["costs"].take();
        assert!(costs.as_array().unwrap().iter().all(Value::is_number), "{costs}");
    }
    let row = |x: &str, figures: [&str; 6], place, at: f64, ends: Value| {
        let [value, interval, sd, n, failed, p] = figures;
        json!({"label": format!("x={x}"), "cells": [x], "value": value, "interval": interval, "sd": sd, "n": n,
            "failed": failed, "p": p, "place": place, "at": at, "ends": ends, "costs": null})
    };
    // Whole numbers have no fraction in a page.
    let row = |x, figures, place, at: f64, ends| {
        let mut row = row(x, figures, place, at, ends);
        if at.fract() == 0.0 {
            row["at"] = json!(at as u64);
        }
        row
    };
    assert_eq!(
        settings,
        json!({
            "names": ["x"],
            "costs": ["duration (s)", "processor time (s)", "peak memory (MiB)"],
            "notes": [
                "Mean loss of each setting, averaged over `seed`, with its 95 % interval, as `hpcsweep best` prints them.",
                "The intervals stay above 0 by the logarithm, as the name `loss` says; `[metrics] bounds` in the plan says otherwise.",
                "Settings marked with ≈ cannot be told from the best at 5 % (paired t test, corrected for the choice of the best).",
                "Settings with trials that failed or gave no number come after the others: their means are those of the trials that \
                 were spared.",
            ],
            "rows": [
                row("1", ["6.0", "[2.1, 17.3]", "0.707", "2", "", ""], "best", 6.0, json!([2.08113, 17.2983])),
                row("2", ["7.0", "[2.8, 17.3]", "0.707", "2", "", "0.5"], "tied", 7.0, json!([2.82448, 17.3483])),
                row("4", ["8.5", "", "", "1", "1/2", ""], "failed", 8.5, Value::Null),
            ],
        })
    );
    // Where nothing repeats, each setting is a trial.
    world.run(&["report", "0,2", "--metric", "loss", "--min"]).ok();
    assert_eq!(data(&world.read("report.html"))["settings"], Value::Null);
}

#[test]
fn a_value_written_from_right_to_left_turns_no_word_beside_it() {
    let world = World::new();
    let code = r#"echo "{\"loss\": $HPCSWEEP_TRIAL}" >> $HPCSWEEP_METRICS"#;
    let axes = "[grid]\nword = [\"\u{5d0}\u{5d1}\", \"a\\u202eb\", \"c\"]\n";
    world.local(&shell(code, axes), &["-q"]);
    world.run(&["report", "--metric", "loss", "--min"]).ok();
    let page = world.read("report.html");
    let answers = between(&page, "<dl class=\"answers\">", "</dl>");
    for words in [
        "3 trials: word (\u{2068}\u{5d0}\u{5d1}\u{2069}, a\\u{202e}b, c).",
        "word=\u{2068}\u{5d0}\u{5d1}\u{2069} (trial 0) has the least loss: 0.",
    ] {
        assert!(answers.contains(words), "{words}\n{answers}");
    }
    // What is exported is the value itself.
    assert_eq!(
        column(&data(&page), "word"),
        ["\u{5d0}\u{5d1}", "a\u{202e}b", "c"].map(Value::from)
    );
}

#[test]
fn a_page_has_no_script_but_those_whose_hashes_it_names_and_no_address() {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    world.run(&["report", "-o", "r.html", "--metric", "loss", "--min"]).ok();
    let page = world.read("r.html");
    let policy = between(&page, "http-equiv=\"Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("http") && !policy.contains("unsafe-eval"), "{policy}");
    let scripts: Vec<&str> = page.split("<script>").skip(1).collect();
    assert_eq!(scripts.len(), 3);
    let hashes = fs::read_to_string(format!("{ROOT}/templates/report/hashes.txt")).unwrap();
    for (script, hash) in scripts.iter().zip(hashes.lines()) {
        assert!(policy.contains(hash), "{hash} is not in {policy}");
        let text = script.split_once("</script>").unwrap().0;
        // The hashes themselves are compared beside the page's source.
        assert_eq!(Sha256::digest(text).len(), 32);
    }
    // Outside of the scripts nothing is loaded: no element has an address but those of the page itself.
    let markup = page.split("<script").next().unwrap();
    for (at, _) in markup.match_indices("src=").chain(markup.match_indices("href=")) {
        let address = markup[at..].split('"').nth(1).unwrap();
        assert!(address.starts_with('#') || address == "data:,", "{address}");
    }
    assert!(!markup.contains("@import") && !markup.contains("url("));
}

#[test]
fn values_of_a_hostile_trial_are_never_markup() {
    let hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&<!--";
    let world = World::new();
    world.program(
        "p",
        "#!/usr/bin/env python3\nimport json, os, sys\nword = sys.argv[1]\n\
         out = open(os.environ['HPCSWEEP_METRICS'], 'a')\n\
         for epoch in (1, 2):\n    out.write(json.dumps({'epoch': epoch, 'loss': epoch, word: word, 'text': word}) + '\\n')\n\
         open(os.environ['HPCSWEEP_RESULT'], 'w').write(json.dumps({'final ' + word: word}))\n\
         if sys.argv[2] == '2':\n    open(os.environ['HPCSWEEP_REASON'], 'w').write(word)\n    sys.exit(1)\n",
    );
    let word = json!(hostile);
    world.local(
        &format!(
            "version = 1\n# {hostile}\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"p\", \"{{{{ word }}}}\", \"{{{{ x }}}}\"]\n\
             [[trials]]\ntask_id = {word}\nword = {word}\nx = 1\n[[trials]]\ntask_id = \"b\"\nword = {word}\nx = 2\n\
             [[trials]]\ntask_id = \"c\"\nword = \"=1+1\"\nx = 3\n"
        ),
        &["-q"],
    );
    let ran = world.run(&["report", "--metric", "loss", "--min"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let page = world.read("report.html");
    assert_eq!(page.matches("<script").count(), 4);
    assert_eq!(page.matches("</script>").count(), 4);
    assert!(!page.contains("<img") && !page.contains("<b>"));
    let data = data(&page);
    assert_eq!(column(&data, "word")[0], hostile);
    let words = data["failures"][0]["words"].as_str().unwrap();
    assert!(words.contains("</script><script>alert(1)"), "{words}");
    assert!(data["origin"]["plan"].as_str().unwrap().contains(hostile));
}

#[test]
fn a_sweep_in_which_nothing_has_finished_has_a_report_that_says_so() {
    let world = World::new();
    world.local(&shell("exit 1", "[grid]\nx = [1, 2]\n"), &["-q"]);
    world.run(&["report"]).ok();
    let page = world.read("report.html");
    assert!(page.contains("<dd>No trial has finished: 2 failed.</dd>"));
    assert!(page.contains("<dd>Nothing can be compared before a trial has finished.</dd>"));
    let data = data(&page);
    assert_eq!((&data["metric"], &data["curves"]), (&Value::Null, &Value::Null));
    // A metric may be named that trials will log.
    world.run(&["report", "--metric", "loss", "--min"]).ok();
}

#[test]
fn a_metric_that_is_not_there_names_the_nearest_and_leaves_the_file() {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    world.write("report.html", "before");
    assert_eq!(
        world.run(&["report", "--metric", "los", "--min"]).whole(),
        "error: no trial has a metric `los`\nhint: did you mean `loss`?\nexit code 2\n"
    );
    assert_eq!(world.read("report.html"), "before");
    assert_eq!(world.run(&["report", "--metric", "loss"]).code, 2);
    assert_eq!(world.run(&["report", "--min"]).code, 2);
    let ran = world.run(&["report", "-o", "results"]);
    assert_eq!(
        ran.whole(),
        "error: `results` is a folder\nhint: name a file: `-o report.html`\nexit code 2\n"
    );
    assert_eq!(world.run(&["report", "-o", "none/report.html"]).code, 4);
    let left = world.files("").into_iter().filter(|name| name.contains("report.html"));
    assert_eq!(left.collect::<Vec<_>>(), ["report.html"], "nothing is left beside it");
}

#[test]
fn a_metric_that_nobody_names_is_told_by_its_name() {
    let world = World::new();
    world.local(
        &shell(
            "echo \"{\\\"samples\\\": 9, \\\"val_accuracy\\\": 0.$HPCSWEEP_PARAM_X}\" >> $HPCSWEEP_METRICS",
            "[grid]\nx = [1, 2]\n",
        ),
        &["-q"],
    );
    world.run(&["report"]).ok();
    let page = world.read("report.html");
    assert_eq!(
        data(&page)["metric"],
        json!({"name": "val_accuracy", "max": true, "assumed": true})
    );
    assert!(page.contains("that the greatest val_accuracy is best was assumed from its name"));
}

#[test]
fn a_report_is_of_the_trials_that_are_chosen() {
    let world = World::new();
    world.local(PLAN, &["-q"]);
    world.run(&["report", "0-3", "--metric", "loss", "--min"]).ok();
    let page = world.read("report.html");
    assert!(page.contains("<dd>All 4 are done.</dd>"));
    assert_eq!(column(&data(&page), "trial"), [0, 1, 2, 3].map(Value::from));
}

/// More than a page shows.
const MANY: u64 = 10_400;

#[test]
fn a_large_sweep_is_thinned_and_says_so_and_stays_small() {
    let world = slurm();
    let plan = format!(
        "[sample]\ncount = {MANY}\nparameters = {{ lr = {{ log_uniform = [1e-5, 1] }}, width = {{ int = [8, 512] }}, drop = {{ uniform = [0, 1] }} }}\n"
    );
    world.write("plan.toml", &shell("true", &plan));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let tree = Tree::at(&world.path("results/s"));
    for trial in 0..MANY {
        let path = tree.record(trial, 1);
        if trial % 1000 == 0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        let (failed, time) = (trial % 50 == 0, 1e9 + trial as f64);
        let state = if failed { "failed" } else { "done" };
        let loss = (trial as f64).sin().abs() + 0.1;
        let rows = json!([{"epoch": 1, "loss": loss * 2.0, "accuracy": loss / 3.0, "text": "some words of the trial"}, {"epoch": 2, "loss": loss}]);
        let lines = [
            json!({"event": "start", "trial": trial, "attempt": 1, "time": time, "host": format!("n{}", trial % 40), "pid": 7,
                "started": null, "job": format!("101_{trial}"), "ranks": 1, "argv": ["true"], "devices": null, "version": "1"}),
            json!({"event": "metrics", "trial": trial, "attempt": 1, "rows": rows}),
            json!({"event": "end", "trial": trial, "attempt": 1, "time": time + 99.5, "state": state, "exit_code": u8::from(failed),
                "duration_s": 99.5, "peak_memory": 1 << 20, "usage": {"memory_source": "rusage", "cpu_user_s": loss,
                "cpu_system_s": 0.25}, "result": null}),
        ];
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line::seal(line).unwrap()).collect();
        fs::write(path, bytes).unwrap();
    }
    let ran = world.run(&["report", "--offline", "--metric", "loss", "--min"]);
    assert!(
        ran.err.ends_with("10,400 trials (10,000 are in its table) in report.html\n"),
        "{}",
        ran.whole()
    );
    let page = world.read("report.html");
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.contains("10,192 of 10,400 are done; the others are 208 failed."));
    let data = data(&page);
    let notes = data["trials"]["notes"][0].as_str().unwrap();
    assert!(
        notes.starts_with("The page shows 10,000 of 10,400 trials: the 2,500 best,"),
        "{notes}"
    );
    let trials = column(&data, "trial");
    assert_eq!(trials.len(), 10_000);
    assert!(trials.windows(2).all(|two| two[0].as_u64() < two[1].as_u64()));
    let states = column(&data, "state");
    assert_eq!(states.iter().filter(|state| **state == "failed").count(), 208, "all of them fit");
    assert!(data["timeline"]["bars"].as_array().unwrap().len() <= 3_100);
    assert!(data["curves"]["settings"].as_array().unwrap().len() <= 40);
}
