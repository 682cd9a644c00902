//! Sets of trials: the same words mean the same trials in every verb.

use serde_json::Value;

use crate::support::plans::shell;
use crate::support::world::World;

/// Six trials: 1 fails, 3 runs into its walltime, the others log a loss and are done.
fn sweep() -> World {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL != 1 ] || { echo broken; exit 3; }
        [ $HPCSWEEP_TRIAL != 3 ] || { echo slow; sleep 60; }
        for n in 3 2; do echo \"{\\\"loss\\\": $HPCSWEEP_PARAM_LR$n, \\\"opt\\\": {\\\"norm\\\": $n}}\" >>$HPCSWEEP_METRICS; done
        echo well";
    let grid =
        "[grid]\nlr = [0.1, 0.2, 0.3]\nopt.name = [\"adam\", \"sgd\"]\n[[exclude]]\nlr = 7\n";
    let walltime = "[resources]\nwalltime = \"1s\"\n";
    let ran = world.local(
        &shell(code, &format!("{walltime}{}", grid.replace("[[exclude]]\nlr = 7\n", ""))),
        &["-q"],
    );
    assert_eq!(ran.code, 1, "{}", ran.whole());
    world
}

/// The trials that `collect` has with these arguments.
#[track_caller]
fn trials(world: &World, args: &[&str]) -> String {
    let rows = world.table(args);
    let ids: Vec<String> = rows.iter().map(|row| row["trial"].to_string()).collect();
    ids.join(" ")
}

#[test]
fn numbers_states_and_expressions_name_trials() {
    let world = sweep();
    let check = |args: &[&str], expected: &str| {
        assert_eq!(trials(&world, args), expected, "{args:?}");
    };
    check(&["2-4,0"], "0 2 3 4");
    check(&["results/s", "1", "5"], "1 5");
    check(&["--trial", "1", "--trial", "2-3"], "1 2 3");
    check(&["--failed"], "1 3");
    check(&["--state", "failed"], "1");
    check(&["--state", "failed,done"], "0 1 2 4 5");
    check(&["0-2", "--state", "done"], "0 2");
    check(&["--cause", "exit-code"], "1");
    check(&["--cause", "timeout,oom"], "3");
    check(&["--where", "cause == 'walltime'"], "3");
    check(&["--where", "lr > 0.1"], "2 3 4 5");
    check(&["--where", "lr > 0.1 and state == \"timeout\""], "3");
    check(&["--where", "opt.name == 'sgd' and trial < 3"], "1");
    check(&["--where", "params.opt.name == 'adam'"], "0 2 4");
    check(&["--where", "exit_code == 3"], "1");
    check(&["--where", "trial in [4, 5]", "--failed"], "");
    // The last value of a metric, the least of its steps, and one below a name that parameters have too.
    check(&["--where", "loss > 0.15"], "2 4 5");
    check(&["--where", "metrics[\"loss.max\"] > 0.32"], "4 5");
    check(&["--where", "loss.max > 0.32"], "4 5");
    check(&["--where", "metrics[\"opt.norm\"] == 2"], "0 2 4 5");
    // A trial without a loss has none that is small or large; what comes first decides.
    check(&["--where", "state == 'failed' or loss > 0.3"], "1 4 5");
    check(&["--where", "loss is not defined"], "1 3");
}

#[test]
fn the_same_words_hold_for_every_verb() {
    let world = sweep();
    let status = |args: &[&str]| world.run(&[&["status"], args].concat());
    let text = status(&["--failed"]);
    let lines: Vec<&str> = text.out.lines().collect();
    assert_eq!(lines[0], "s: 2 of 6 trials in $WORLD/results/s");
    assert_eq!(lines.iter().filter(|line| line.contains("exit code 3")).count(), 1, "{}", text.out);
    assert_eq!(text.code, 1);
    let json: Value =
        serde_json::from_str(&status(&["--json", "--where", "lr < 0.15"]).out).unwrap();
    assert_eq!((&json["trials_total"], &json["trials_meant"]), (&6.into(), &2.into()));
    assert_eq!(json["counts"], serde_json::json!({"done": 1, "failed": 1}));
    assert_eq!(status(&["0", "4-5"]).code, 0);

    let best = world.run(&["best", "-m", "loss", "--min", "--where", "lr > 0.1"]);
    assert!(best.ok().starts_with("trial 2: loss = 0.22"), "{}", best.out);
    let records = world.run(&["collect", "--format", "records", "1,3"]);
    assert_eq!(records.ok().lines().count(), 2);
    assert_eq!(
        world.run(&["logs", "--failed"]).whole(),
        "==> trial 1 failed: exit code 3 <==\nbroken\n\n==> trial 3 timeout: the wall-clock limit was reached <==\nslow\nexit code 0\n"
    );
    for verb in ["cancel", "hold", "release"] {
        let ran = world.run(&[verb, "--where", "lr > 7"]);
        assert_eq!(ran.whole(), "s: no trial is meant\nexit code 0\n", "{verb}");
        let ran = world.run(&[verb, "2-3"]);
        assert_eq!(ran.whole(), "s: trials 2-3 have ended\nexit code 0\n", "{verb}");
    }
}

#[test]
fn what_names_no_trial_is_refused() {
    let world = sweep();
    let check = |args: &[&str], says: &str| {
        let ran = world.run(&[&["status"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.whole());
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    };
    check(
        &["6"],
        "error: sweep `$WORLD/results/s` has no trial 6\nhint: its trials are 0-5: `hpcsweep status --trials results/s` lists them\n",
    );
    check(&["--state", "faild"], "`faild` is not a state of a trial\nhint: did you mean `failed`?");
    check(&["--cause", "preemptd"], "`preemptd` is not a cause\nhint: did you mean `preempted`?");
    check(&["--where", "los > 1"], "column `los`\nhint: did you mean `loss`?");
    check(&["--where", "lr > 'a'"], "fails for trial 0: cannot compare");
    // Any number but 0 would do: `cancel` would mean all of them.
    for name in ["lr", " lr ", "params.lr", "opt.name", "state"] {
        check(&["--where", name], " compares nothing: ");
    }
    check(
        &["--where", "lr"],
        "error: `--where lr` compares nothing: `lr` is 0.1 in trial 0\nhint: write a condition, as in `lr == 0.1`\n",
    );
    let which = world.run(&["logs"]);
    assert!(which.err.starts_with("error: which trials of s?\n"), "{}", which.err);
    // A file of that name may be meant as well.
    world.write("3/x", "");
    check(&["3"], "`3` may be a trial or the file of that name\nhint: write `--trial 3` or `./3`");
    assert_eq!(world.run(&["status", "--trial", "3"]).code, 1);
}

#[test]
fn null_is_no_value_wherever_a_trial_shows_it() {
    let world = World::new();
    let command = r#"["sh", "-c", 'cat "$HPCSWEEP_PARAMS"; printf "\n%s" "${HPCSWEEP_PARAM_DEPTH-unset}" "$@"', "-",
        "[{{ depth }}]", "{% if depth %}--depth={{ depth }}{% endif %}", "{{ depth | json_encode }}",
        "{% if depth == null %}auto{% endif %}", "{{ depth }}", "{{ depth | default(value=7) }}", "end"]"#;
    let run = format!("run.command = {command}\n");
    let grid = "[grid]\ndepth = [3, \"none\", \"null\"]\n";
    let null = "version = 1\nsweep = { name = \"s\", null = \"none\" }\n";
    world.local(&format!("{null}{run}{grid}"), &["-q"]).ok();
    let said = |sweep: &str, trial: &str| world.run(&["logs", sweep, trial]).ok().to_owned();
    let of_null = "{\"depth\":null}\n\n[]\nnull\nauto\n\n\nend";
    assert_eq!(said("results/s", "0"), "{\"depth\":3}\n3\n[3]\n--depth=3\n3\n3\n3\nend");
    assert_eq!(said("results/s", "1"), of_null);
    let of_text = "{\"depth\":\"null\"}\nnull\n[null]\n--depth=null\n\"null\"\nnull\nnull\nend";
    assert_eq!(said("results/s", "2"), of_text);
    let check = |condition: &str, expected: &str| {
        assert_eq!(trials(&world, &["results/s", "--where", condition]), expected, "{condition}");
    };
    check("depth == null", "1");
    check("not depth", "1");
    check("depth != null", "0 2");
    check("depth == 'null'", "2");
    check("trial < 2 and depth != null and depth > 2", "0");
    let depths: Vec<Value> =
        world.table(&["results/s"]).iter().map(|row| row["depth"].clone()).collect();
    assert_eq!(depths, [Value::from(3), Value::Null, Value::from("null")]);

    // A cell of a table and JSON have the word `null`, and make the same trial of it.
    for (file, list) in
        [("t.csv", "depth\n3\nnull\n"), ("t.json", "[{\"depth\": 3}, {\"depth\": null}]")]
    {
        world.write(file, list);
        let name = file.replace('.', "-");
        let listed =
            format!("version = 1\nsweep.name = \"{name}\"\n{run}trials.file = \"{file}\"\n");
        world.local(&listed, &["-q"]).ok();
        assert_eq!(said(&format!("results/{name}"), "1"), of_null);
    }
}
