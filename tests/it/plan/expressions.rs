//! Expressions in the command, the variables and the hooks of a plan: its check, the worker and the calls of hooks know the
//! same names, those of `docs/plan.md`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::world::{ROOT, World};

/// The names in the table of `docs/plan.md`, in order.
fn documented() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/plan.md")).unwrap();
    let (_, section) = page.split_once("### Expressions\n").unwrap();
    let (_, table) = section.split_once("|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let names = cells.flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`')));
    names.map(str::to_owned).collect()
}

/// A plan of one trial whose command, variable and hook are these words.
fn plan(command: &str, env: &str, hook: &str) -> String {
    format!(
        "version = 1\n[sweep]\nname = \"names\"\n[run]\ncommand = [{command}]\nenv = {{ ALL = '{env}' }}\n\
         [hooks]\nfinish = [{hook}]\n[defaults]\ntask_id = \"a\"\nlr = 1e-5\nopt.lr = 0.1\n[[trials]]\n"
    )
}

#[test]
fn the_check_the_worker_and_hooks_fill_in_every_documented_name() {
    let world = World::new();
    let names = documented();
    // Alone, with text around it, and behind a filter.
    let words = |name: &String| {
        format!("'{{{{ {name} }}}}', '{name}={{{{{name}}}}}', '{{{{ {name} | json_encode }}}}'")
    };
    let words = names.iter().map(words).collect::<Vec<_>>().join(", ");
    let program =
        |file: &str| format!("'sh', '-c', 'printf \"%s\\n\" \"$@\" >{file}', '-', {words}");
    let env = names.iter().map(|name| format!("{{{{ {name} }}}}")).collect::<Vec<_>>().join(" ");
    let command = program("command").replacen("printf", "echo \"$ALL\" >env; printf", 1);
    let plan = plan(&command, &env, &program("hook"));
    world.write("plan.toml", &plan);
    world.run(&["plan", "plan.toml"]).ok();
    world.local(&plan, &[]).ok();

    let values = [
        ("lr", "1e-5", "0.00001"),
        ("opt.lr", "0.1", "0.1"),
        ("params", r#"{"lr": 1e-5, "opt": {"lr": 0.1}}"#, r#"{"lr":0.00001,"opt":{"lr":0.1}}"#),
        ("trial.id", "0", "0"),
        ("trial.chain", "0", "0"),
        ("trial.link", "0", "0"),
        ("trial.attempt", "1", "1"),
        ("trial.task_id", "a", "\"a\""),
        ("trial.gpu_ids_abs", "[]", "[]"),
        ("trial.work_dir", "$SWEEP/work/000/0", "\"$SWEEP/work/000/0\""),
        (
            "trial.checkpoint_dir",
            "$SWEEP/work/000/0/checkpoint",
            "\"$SWEEP/work/000/0/checkpoint\"",
        ),
        ("sweep.name", "names", "\"names\""),
        ("sweep.seed", "1", "1"),
        ("sweep.dir", "$SWEEP", "\"$SWEEP\""),
    ];
    assert_eq!(names, values.map(|(name, ..)| name));
    let shown = |file: &str| world.read(file).replace(&world.text_path("results/names"), "$SWEEP");
    let all = values.map(|(name, text, json)| format!("{text}\n{name}={text}\n{json}\n")).concat();
    assert_eq!(shown("command"), all);
    assert_eq!(shown("hook"), all);
    assert_eq!(shown("env"), format!("{}\n", values.map(|(_, text, _)| text).join(" ")));
}

#[test]
fn the_worker_knows_nothing_of_trial_and_sweep_that_is_not_documented() {
    let world = World::new();
    let command = "'sh', '-c', 'printf \"%s\\n\" \"$@\" >command', '-', '{{ trial | json_encode }}', '{{ sweep | json_encode }}'";
    world.local(&plan(command, "", "'true'"), &[]).ok();
    let seen = world.read("command");
    let tables = ["trial", "sweep"].iter().zip(seen.lines());
    let known: BTreeSet<String> = tables
        .flat_map(|(table, json)| {
            let fields: serde_json::Map<_, _> = serde_json::from_str(json).unwrap();
            fields.keys().map(|field| format!("{table}.{field}")).collect::<Vec<_>>()
        })
        .collect();
    let of_tables = |name: &String| name.starts_with("trial.") || name.starts_with("sweep.");
    assert_eq!(known, documented().into_iter().filter(of_tables).collect());
}

#[test]
fn the_check_refuses_a_name_that_the_worker_does_not_know() {
    let world = World::new();
    for name in ["trial.host", "sweep.root", "opt.eps", "lrr", "HPCSWEEP_TRIAL"] {
        for expression in [name.to_owned(), format!("{name} | upper")] {
            let word = format!("'true', '{{{{ {expression} }}}}'");
            for plan in [plan(&word, "", "'true'"), plan("'true'", "", &word)] {
                world.write("plan.toml", &plan);
                let ran = world.run(&["plan", "plan.toml"]);
                assert_eq!(ran.code, 2, "{expression}: {}", ran.whole());
                let refusal = format!("`{name}` is not a name of this plan");
                assert!(ran.err.contains(&refusal), "{expression}: {}", ran.err);
            }
        }
    }
}
