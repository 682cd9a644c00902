//! `collect` and `best`: columns and their order, the forms of a table, several sweeps, damaged records.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World};

/// Code that logs two losses, the better one first.
const TRAIN: &str = r#"lines="{\"step\": 1, \"loss\": $HPCSWEEP_PARAM_LR}
{\"step\": 2, \"loss\": 9}"
echo "$lines" >>$HPCSWEEP_METRICS; echo "{\"acc\": 0.5}" >$HPCSWEEP_RESULT"#;

fn trained() -> World {
    let world = World::new();
    let rest = "[defaults]\ntask_id = \"t{{ name }}\"\n[grid]\nlr = [0.5, 0.25]\nname = [\"a\", \"b, c\"]\n";
    world.local(&shell(TRAIN, rest), &["-q"]).ok();
    world
}

/// The columns that differ from run to run, as `_`.
fn steady(world: &World, table: &str) -> String {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(table.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let head = rows[0].clone();
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let cells = head.iter().zip(row).map(|(name, cell)| match name {
            "duration_s" | "last_duration_s" | "host" | "peak_memory" | "cpu_s" | "read_bytes"
            | "written_bytes"
                if i > 0 =>
            {
                assert!(!cell.is_empty(), "no {name} in row {i}");
                "_"
            }
            _ => cell,
        });
        writer.write_record(cells).unwrap();
    }
    world.shown(&writer.into_inner().unwrap())
}

const CSV: &str = r#"trial,task_id,link,state,cause,exit_code,attempts,duration_s,last_duration_s,host,peak_memory,cpu_s,read_bytes,written_bytes,job,lr,name,step,loss,loss.min,loss.max,acc
0,ta,0,done,,0,1,_,_,_,_,_,_,_,,0.5,a,2,9,0.5,9.0,0.5
1,"tb, c",0,done,,0,1,_,_,_,_,_,_,_,,0.5,"b, c",2,9,0.5,9.0,0.5
2,ta,1,done,,0,1,_,_,_,_,_,_,_,,0.25,a,2,9,0.25,9.0,0.5
3,"tb, c",1,done,,0,1,_,_,_,_,_,_,_,,0.25,"b, c",2,9,0.25,9.0,0.5
"#;

#[test]
fn the_table_has_what_every_trial_has_then_parameters_then_metrics() {
    let world = trained();
    let ran = world.run(&["collect", "--format", "csv"]);
    assert_eq!(steady(&world, ran.ok()), CSV);
    assert_eq!(ran.err, "");
}

#[test]
fn json_lines_hold_the_same_cells_with_their_types() {
    let world = trained();
    let ran = world.run(&["collect", "--format", "jsonl"]);
    let first: Value = serde_json::from_str(ran.ok().lines().next().unwrap()).unwrap();
    let keys: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(keys, CSV.lines().next().unwrap().split(',').collect::<Vec<_>>());
    for (name, value) in [
        ("trial", json!(0)),
        ("task_id", json!("ta")),
        ("job", json!(null)),
        ("lr", json!(0.5)),
        ("loss", json!(9)),
        ("acc", json!(0.5)),
    ] {
        assert_eq!(first[name], value, "{name}");
    }
}

#[test]
fn the_aligned_table_shows_the_same_cells() {
    let world = trained();
    let ran = world.run(&["collect"]);
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!(lines.len(), 5);
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, CSV.lines().next().unwrap().split(',').collect::<Vec<_>>());
    // Every column begins or ends where its head does.
    let end = lines[0].find("loss.max").unwrap() + "loss.max".len();
    for line in &lines[1..] {
        assert_eq!(&line[end - 3..end], "9.0", "{line}");
    }
}

#[test]
fn the_ending_of_the_file_says_how_it_is_written() {
    let world = trained();
    let ran = world.run(&["collect", "-o", "t.csv"]);
    assert_eq!(ran.whole(), "4 rows in t.csv\nexit code 0\n");
    assert_eq!(steady(&world, &world.read("t.csv")), CSV);
    world.run(&["collect", "-o", "t.jsonl"]).ok();
    assert_eq!(world.read("t.jsonl"), world.run(&["collect", "--format", "jsonl"]).out);
    world.run(&["collect", "-o", "t.txt"]).ok();
    assert_eq!(world.read("t.txt"), world.run(&["collect"]).out);
    world.run(&["collect", "-o", "t.dat", "--format", "csv"]).ok();
    assert_eq!(world.read("t.dat"), world.read("t.csv"));
    assert_eq!(
        world.run(&["collect", "-o", "t.xls"]).whole(),
        "error: `.xls` says nothing about how to write a table\n\
         hint: end the name in .csv, .jsonl, .md, .parquet, .arrow, .sqlite or .txt, or say --format\nexit code 2\n"
    );
    assert!(!world.exists("t.xls"));
}

#[test]
fn a_pattern_joins_several_sweeps() {
    let world = World::new();
    for (name, grid) in [("one", "a = [1, 2]"), ("two", "b = [3]")] {
        let plan =
            shell("true", &format!("[grid]\n{grid}\n")).replace("\"s\"", &format!("\"{name}\""));
        world.local(&plan, &["-q"]).ok();
    }
    let expected = "\
sweep,trial,task_id,link,state,cause,exit_code,attempts,duration_s,last_duration_s,host,peak_memory,cpu_s,read_bytes,written_bytes,job,a,b
one,0,,0,done,,0,1,_,_,_,_,_,_,_,,1,
one,1,,0,done,,0,1,_,_,_,_,_,_,_,,2,
two,0,,0,done,,0,1,_,_,_,_,_,_,_,,,3
";
    for args in
        [&["results/*"][..], &["results/one", "results/two"], &[], &["results/one", "plan.toml"]]
    {
        let ran = world.run(&[&["collect", "--format", "csv"], args].concat());
        assert_eq!(steady(&world, ran.ok()), expected, "{args:?}");
    }
    // A sweep named twice is one.
    let ran = world.run(&["collect", "--format", "csv", "results/two", "results/t*", "plan.toml"]);
    assert_eq!(ran.ok().lines().count(), 2);
    // Also by another way to the same folder.
    std::os::unix::fs::symlink(world.path("results"), world.path("link")).unwrap();
    let ran = world.run(&["collect", "--format", "csv", "link/two", "results/two"]);
    assert_eq!(ran.ok().lines().count(), 2, "{}", ran.out);
    assert_eq!(
        world.run(&["collect", "results/three*"]).whole(),
        "error: no sweep is called `results/three*`\n\
         hint: name a sweep's folder, its plan, or a pattern: `hpcsweep collect 'results/*'`\nexit code 2\n"
    );
}

#[test]
fn the_sweep_submitted_last_is_meant_where_nothing_is_said() {
    let world = World::new();
    world.write("far/plan.toml", &shell("true", ""));
    world.run(&["submit", "far/plan.toml", "--local", "-q"]).ok();
    assert_eq!(world.table(&[]).len(), 1);
    assert_eq!(
        world.run(&["status"]).ok().lines().next(),
        Some("s: 1 trial in $WORLD/far/results/s")
    );
}

#[test]
fn the_best_trial_is_found_by_any_column_of_numbers() {
    let world = World::new();
    let code = "echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_LOSS}\" >>$HPCSWEEP_METRICS; [ $HPCSWEEP_PARAM_LOSS != -9 ]";
    // The failed trials would be the least; NaN is neither least nor greatest, infinity is.
    let grid = "[grid]\nloss = [\"-9\", \"3\", \"-2\", \"7\", \"Infinity\", \"NaN\"]\nn = [1, 2]\n";
    assert_eq!(world.local(&shell(code, grid), &["-q"]).code, 1);
    let code = "echo '{\"loss\": NaN}' >>$HPCSWEEP_METRICS";
    world.local(&shell(code, "").replace("\"s\"", "\"nan\""), &["-q"]).ok();
    let best = |args: &[&str]| {
        let ran = world.run(&[&["best", "results/s"], args].concat());
        let trials: Vec<Value> =
            ran.ok().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        trials
            .iter()
            .map(|t: &Value| format!("{}:{}", t["trial"], t["metric.loss"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(best(&["-m", "metric.loss", "--min", "--json"]), ["4:-2"]);
    assert_eq!(best(&["-m", "metric.loss", "--max", "--json"]), ["8:\"inf\""]);
    assert_eq!(
        best(&["-m", "metric.loss", "--max", "-n", "5", "--json"]),
        ["8:\"inf\"", "9:\"inf\"", "6:7", "7:7", "2:3"]
    );
    assert_eq!(best(&["-m", "metric.loss", "--min", "-n", "99", "--json"]).len(), 8);
    assert_eq!(
        world.run(&["best", "results/s", "-m", "metric.loss", "--min"]).whole(),
        "\
trial 4: metric.loss = -2  (param.loss=-2 n=1)
  log: $WORLD/results/s/logs/000/4.1.log
left out: 2 failed, 2 not a number (metric.loss = \"nan\" in trial 10, metric.loss = \"nan\" in trial 11)
the best of 8 trials, each run once: no interval and no test without repetitions (`[replicates]` in the plan)
exit code 0
"
    );
    assert_eq!(
        world.run(&["best", "results/nan", "-m", "loss", "--max"]).whole(),
        "error: no finished trial has a number for `loss`\n\
         hint: `hpcsweep status results/nan` shows how the trials stand\nexit code 2\n"
    );
    let csv =
        world.run(&["collect", "results/s", "--format", "csv", "--columns", "trial,metric.loss"]);
    assert!(csv.ok().ends_with("8,inf\n9,inf\n10,NaN\n11,NaN\n"), "{}", csv.out);
}

#[test]
fn a_metric_that_nobody_logged_is_refused_with_the_nearest() {
    let world = trained();
    assert_eq!(
        world.run(&["best", "--metric", "los", "--min"]).whole(),
        "error: no trial has a metric `los`\nhint: did you mean `loss`?\nexit code 2\n"
    );
    assert_eq!(
        world.run(&["best", "--metric", "zzz", "--min"]).whole(),
        "error: no trial has a metric `zzz`\n\
         hint: there are `step`, `loss`, `loss.min`, `loss.max` and `acc`\nexit code 2\n"
    );
}

#[test]
fn a_metric_of_other_values_is_refused_with_one_of_them() {
    let world = World::new();
    let code = r#"echo '{"ok": true, "note": "fine", "loss": 12.31}' >>$HPCSWEEP_METRICS"#;
    world.local(&shell(code, "[grid]\ntext = [\"\", \"b\"]\n"), &["-q"]).ok();
    for (metric, value) in [("ok", "true"), ("note", "fine")] {
        assert_eq!(
            world.run(&["best", "-m", metric, "--min"]).whole(),
            format!(
                "error: no finished trial has a number for `{metric}`\n\
                 hint: its values are others, such as `{value}`: write numbers\nexit code 2\n"
            )
        );
    }
    // An empty text is one that can be seen.
    let best = world.run(&["best", "-m", "loss", "--min"]);
    assert!(best.out.starts_with("trial 0: loss = 12.31  (text=\"\")\n"), "{}", best.whole());
    assert_eq!(
        world.run(&["effects", "-m", "loss", "--min"]).whole(),
        "error: `loss` is 12.31 in all trials\n\
         hint: nothing matters for what never differs\nexit code 2\n"
    );
}

/// What `-o` names is a person's own: where results lie does not help.
#[test]
fn a_place_where_nothing_can_be_written_is_refused_with_what_helps() {
    let world = trained();
    let refused = |place: &str| world.run(&["collect", "-o", place]).whole();
    assert_eq!(
        refused("missing/table.csv"),
        "error: cannot write `missing/table.csv`: no such file or directory\n\
         hint: there is no folder `$WORLD/missing`: make it first\nexit code 4\n"
    );
    let script = "results/script.py";
    world.write(script, "import hpcsweep\n");
    assert_eq!(
        world.run(&["status", script]).whole(),
        format!(
            "error: `{script}` is a script, not a plan\n\
             hint: name the folder of the sweep that it made\nexit code 2\n"
        )
    );
}

#[test]
fn names_that_two_kinds_of_column_share_are_told_apart() {
    let world = World::new();
    let code = r#"echo '{"lr": 7, "state": 8, "trial": 9}' >>$HPCSWEEP_METRICS"#;
    world
        .local(
            &shell(code, "[defaults]\nlr = 1\nstate = \"mine\"\n[defaults.opt]\nlr = 2\n"),
            &["-q"],
        )
        .ok();
    let row = &world.table(&[])[0];
    let mut shown = BTreeMap::new();
    for name in [
        "trial",
        "state",
        "param.lr",
        "opt.lr",
        "param.state",
        "metric.lr",
        "metric.state",
        "metric.trial",
    ] {
        shown.insert(name, row.get(name).cloned().unwrap_or(Value::Null));
    }
    let expected = json!({
        "trial": 0, "state": "done", "param.lr": 1, "opt.lr": 2, "param.state": "mine",
        "metric.lr": 7, "metric.state": 8, "metric.trial": 9,
    });
    assert_eq!(json!(shown), expected);
}

#[test]
fn records_are_whole_and_in_the_order_of_the_plan_at_hand() {
    let world = World::new();
    let code = "test $HPCSWEEP_PARAM_LR = 0.5 || { echo so it is; exit 3; }\n\
                echo '{\"loss\": {\"val\": 2}}' >$HPCSWEEP_RESULT";
    world.local(&shell(code, "[grid]\nlr = [0.5, 0.25]\nopt.name = [\"a\"]\n"), &["-q"]);
    let records = |args: &[&str]| -> Vec<Value> {
        let ran = world.run(&[&["collect", "--format", "records"], args].concat());
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let mut all = records(&[]);
    for record in &mut all {
        let members = record.as_object_mut().unwrap();
        for name in ["host", "start", "duration_s", "last_duration_s", "peak_memory", "usage"] {
            assert!(!members.shift_remove(name).unwrap().is_null(), "{name}");
        }
    }
    assert_eq!(
        json!(all),
        json!([
            {
                "trial": 0, "state": "done", "task_id": null, "link": 0,
                "params": { "lr": 0.5, "opt": { "name": "a" } },
                "attempt": 1, "attempts": 1, "exit_code": 0, "signal": null, "cause": null, "reason": null,
                "result": { "loss": { "val": 2 } }, "metrics": { "loss.val": 2 }, "unread_lines": 0,
                "output": null,
            },
            {
                "trial": 1, "state": "failed", "task_id": null, "link": 0,
                "params": { "lr": 0.25, "opt": { "name": "a" } },
                "attempt": 1, "attempts": 1, "exit_code": 3, "signal": null, "cause": "exit-code", "reason": null,
                "result": null, "metrics": {}, "unread_lines": 0, "output": "so it is\n",
            },
        ])
    );
    let plan = world.read("plan.toml").replace("[0.5, 0.25]", "[0.125, 0.25, 0.5]");
    world.write("plan.toml", &plan);
    let planned = records(&["--planned", "plan.toml"]);
    let trials: Vec<&Value> = planned.iter().map(|record| &record["trial"]).collect();
    assert_eq!(trials, [&Value::Null, &json!(1), &json!(0)]);
    let ran = world.run(&["collect", "--format", "records", "--steps"]);
    assert_eq!(ran.whole(), "error: `--steps` is about tables, not records\nexit code 2\n");
}

/// The table as JSON lines, and the exit code with the reported damage.
fn table_and_damage(world: &World) -> (Vec<Value>, String) {
    let ran = world.run(&["collect", "--format", "jsonl"]);
    let rows = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (rows, format!("{}{}", ran.err, ran.code))
}

#[test]
fn a_damaged_line_is_left_out_and_reported_and_the_rest_is_read() {
    let world = trained();
    let (whole, fine) = table_and_damage(&world);
    assert_eq!(fine, "0");
    let path = "results/s/records/000/0.1.jsonl";
    let good = world.read(path);
    let lines: Vec<&str> = good.lines().collect();
    assert!(lines.len() >= 3, "{good}");
    let said =
        |n: &str| format!("warning: $WORLD/results/s: {n} in records/000/0.1.jsonl; left out\n1");
    // One digit of the metrics is flipped: the line no longer counts, the end still does.
    let damaged = good.replacen("\"loss\":0.5", "\"loss\":0.4", 1);
    assert_ne!(damaged, good);
    world.write(path, &damaged);
    let (table, damage) = table_and_damage(&world);
    assert_eq!((&table[0]["state"], &table[0]["loss"]), (&json!("done"), &json!(null)));
    assert_eq!((&table[0]["acc"], damage), (&json!(0.5), said("1 damaged line")));
    assert_eq!(table.len(), 4);
    assert_eq!(table[1]["loss"], whole[1]["loss"]);
    let best = world.run(&["best", "-m", "acc", "--max", "--json"]);
    assert_eq!(format!("{}{}", best.err, best.code), said("1 damaged line"));
    let best: Value = serde_json::from_str(&best.out).unwrap();
    assert_eq!(best["damaged"], json!([{"file": "records/000/0.1.jsonl", "lines": 1}]));
    let status = world.run(&["status"]);
    assert!(status.out.contains("left out: 1 damaged line in records/000/0.1.jsonl\n"));
    assert_eq!((status.code, world.run(&["watch", "--once"]).code), (1, 1));
    let line = "  left out: 1 damaged line in records/000/0.1.jsonl\n";
    let why = |trial: &str| world.run(&["why", trial]);
    let (damaged, other) = (why("0"), why("1"));
    assert_eq!((damaged.out.contains(line), damaged.code), (true, 1));
    assert_eq!((other.out.contains(line), other.code), (false, 0));
    let status = world.run(&["status", "--json"]);
    let json: Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!((status.code, &json["damaged"]), (1, &best["damaged"]));
    // A torn end: the trial counts as cut short, and every cut can be read and is reported. A line counts with its newline.
    let first = good.find('\n').unwrap();
    for cut in (0..good.len() - 1).step_by(7) {
        world.write(path, &good[..cut]);
        let (table, damage) = table_and_damage(&world);
        let expected = if cut <= first { "pending" } else { "interrupted" };
        assert_eq!(table[0]["state"], expected, "cut at {cut}");
        // The journal knows that the trial has ended: also a cut at the end of a line is seen.
        assert_eq!(damage, said("1 damaged line"), "cut at {cut}");
    }
    // Foreign bytes before the good lines do no harm.
    world.write(path, &format!("\u{0}\u{1}binary\n{{}}\n\n{good}"));
    assert_eq!(table_and_damage(&world), (whole, said("2 damaged lines")));
}

#[test]
fn a_log_is_printed_as_it_was_written() {
    let world = World::new();
    world.local(&shell("printf 'a\\377b\\n\\033[1mc'", ""), &["-q"]).ok();
    let output =
        world.command(crate::support::world::PROGRAM).args(["logs", "0"]).output().unwrap();
    assert_eq!(output.stdout, b"a\xffb\n\x1b[1mc");
    assert_eq!(
        world.run(&["logs", "1"]).whole(),
        "error: sweep `$WORLD/results/s` has no trial 1\n\
         hint: its only trial is 0: `hpcsweep status --trials results/s` lists it\nexit code 2\n"
    );
}

#[test]
fn a_tree_of_another_format_is_refused() {
    let world = trained();
    let identity = world.read("results/s/sweep.json");
    world.write("results/s/sweep.json", &identity.replace("\"format\":2", "\"format\":99"));
    for verb in ["collect", "status"] {
        assert_eq!(
            world.run(&[verb]).whole(),
            "error: `$WORLD/results/s` has results of format 99; this hpcsweep reads formats 1 to 2\n\
             hint: use the version that made it\nexit code 2\n"
        );
    }
}

#[test]
fn a_device_a_pipe_or_a_link_that_is_named_stays_what_it_is() {
    let world = trained();
    let csv = world.run(&["collect", "--format", "csv"]).ok().to_owned();
    let full = ["collect", "--format", "csv", "-o", "/dev/full"];
    assert_eq!(
        world.run(&full).whole(),
        "error: cannot write `/dev/full`: no space left on device\n\
         hint: free some space (or inodes) and run the same command again; nothing is lost\nexit code 4\n"
    );
    // By its own name, as a pipe.
    let piped = world
        .call("sh", &["-c", &format!("'{PROGRAM}' collect --format csv -o /dev/stdout | cat")]);
    assert_eq!(piped.out, csv);
    world.write("target.csv", "old");
    std::os::unix::fs::symlink("target.csv", world.path("link.csv")).unwrap();
    world.run(&["collect", "-o", "link.csv"]).ok();
    assert!(world.path("link.csv").is_symlink());
    assert_eq!(world.read("target.csv"), csv);
}
