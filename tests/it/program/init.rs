//! `hpcsweep init`: a project that runs at once and uses its own copy of the scripts.

use crate::support::world::World;

#[test]
fn a_new_project_says_what_it_made_and_what_comes_next() {
    let world = World::new();
    let ran = world.run(&["init", "demo"]);
    assert_eq!(
        ran.whole(),
        "\
demo/plan.toml
demo/train.sh
demo/plan.schema.json
demo/templates/pbs.sh.tera
demo/templates/setup.sh.tera
demo/templates/slurm.sh.tera
next: hpcsweep submit demo/plan.toml
exit code 0
"
    );
    assert_eq!(
        world.files("demo"),
        [
            "plan.schema.json",
            "plan.toml",
            "templates/pbs.sh.tera",
            "templates/setup.sh.tera",
            "templates/slurm.sh.tera",
            "train.sh"
        ]
    );
}

#[test]
fn a_new_project_runs_at_once_and_ends_in_its_best_trial() {
    let world = World::new();
    world.run(&["init", "demo"]).ok();
    let ran = world.run(&["submit", "demo/plan.toml"]);
    assert!(ran.ok().starts_with("\ntrial  state"), "{}", ran.out);
    assert!(ran.err.starts_with("demo: 6 trials to run on this machine, "), "{}", ran.err);
    assert_eq!(world.column("state"), ["\"done\""; 6]);
    // The program really trains: the loss falls, and most with the momentum.
    for row in world.table(&[]) {
        let (loss, worst) = (row["loss"].as_f64().unwrap(), row["loss.max"].as_f64().unwrap());
        assert!(loss < worst, "{row:?}");
        assert_eq!(row["step"], 20);
    }
    let best = world.run(&["best", "--metric", "loss", "--min", "--json"]);
    let best: serde_json::Value = serde_json::from_str(best.ok()).unwrap();
    let least =
        world.table(&[]).iter().map(|row| row["loss"].as_f64().unwrap()).fold(f64::MAX, f64::min);
    assert_eq!(best["loss"], least);
}

#[test]
fn a_project_runs_from_inside_its_folder_too() {
    let world = World::new();
    world.run(&["init", "demo"]).ok();
    assert_eq!(world.run_in("demo", &["submit", "plan.toml"]).code, 0);
    assert_eq!(world.run_in("demo", &["status", "--json"]).code, 0);
    assert!(world.exists("demo/results/demo/sweep.json"));
}

#[test]
fn a_project_uses_its_own_copy_of_the_scripts() {
    let world = World::new();
    world.run(&["init", "demo"]).ok();
    let own = "demo/templates/setup.sh.tera";
    let end = "unset -f exec\n";
    let text = world.read(own).replace(end, &format!("echo my own copy\n{end}"));
    world.write(own, &text);
    world.run(&["submit", "demo/plan.toml"]).ok();
    let log = world.run(&["logs", "0", "demo/results/demo"]);
    assert!(log.ok().starts_with("my own copy\ny = "), "{}", log.out);
}

#[test]
fn a_folder_that_is_there_is_left_alone() {
    let world = World::new();
    world.write("demo/mine", "mine");
    for name in ["demo", ".", "..", "demo/mine"] {
        assert_eq!(
            world.run(&["init", name]).whole(),
            format!(
                "error: `{name}` is there already\nhint: choose another name; nothing was changed\nexit code 2\n"
            )
        );
    }
    assert_eq!(world.files("demo"), ["mine"]);
}

#[test]
fn a_name_that_no_sweep_can_have_is_refused() {
    let world = World::new();
    let before = world.files(".");
    let long = "x".repeat(65);
    for name in ["my demo", "a$(date)", "ä", ".hidden", "a\nb", &long, "a'b", "a\"b"] {
        assert_eq!(
            world.run(&["init", name]).whole(),
            format!(
                "error: `{name}` cannot be the name of a sweep\nhint: use letters, digits, `.`, `_` and `-`; \
                 at most 64 of them, the first a letter or digit\nexit code 2\n"
            )
        );
    }
    assert_eq!(world.run(&["init", ""]).code, 2);
    assert_eq!(world.run(&["init", "-x"]).code, 2);
    assert_eq!(world.files("."), before);
}

#[test]
fn a_project_may_stand_in_a_folder_that_is_not_there_yet() {
    let world = World::new();
    world.run(&["init", "a/b/demo"]).ok();
    assert!(world.read("a/b/demo/plan.toml").contains("name = \"demo\"\n"));
    world.run(&["submit", "a/b/demo/plan.toml", "-q"]).ok();
}

#[test]
fn a_project_of_a_python_function_runs_by_itself_and_is_submitted() {
    let mut world = World::new();
    world.set("PYTHONDONTWRITEBYTECODE", "1");
    let said = world.run(&["init", "demo", "-t", "python"]);
    assert_eq!(said.whole(), "demo/fit.py\nnext: hpcsweep submit demo/fit.py\nexit code 0\n");
    let plan = world.run(&["plan", "demo/fit.py", "--json"]);
    assert!(plan.ok().contains("\"momentum\":0.8"), "{}", plan.out);
    assert_eq!(world.files("demo"), ["fit.py"]);
    let ran = world.run(&["submit", "demo/fit.py", "--local", "-j", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let best = world.run(&["best", "demo/results/demo", "--metric", "loss", "--min", "--json"]);
    let best: serde_json::Value = serde_json::from_str(best.ok()).unwrap();
    assert_eq!((&best["lr"], &best["momentum"]), (&0.2.into(), &0.0.into()), "{best}");
    assert_eq!(world.table(&["demo/results/demo"]).len(), 6);
}

#[test]
fn a_project_of_chains_hands_weights_on() {
    let world = World::new();
    world.run(&["init", "demo", "--template", "chains"]).ok();
    world.run(&["submit", "demo/plan.toml", "--local"]).ok();
    assert_eq!(world.column("state"), ["\"done\""; 9]);
    for row in world.table(&[]) {
        let log = world.run(&["logs", &row["trial"].to_string(), "demo/results/demo"]);
        let begins = if row["link"] == 0 { "/dev/null\n" } else { "/weights\n" };
        assert!(log.ok().ends_with(begins), "{}", log.out);
    }
}

#[test]
fn every_template_has_a_plan_that_holds() {
    let world = World::new();
    for template in ["command", "ddp", "train", "train-pytorch", "mpi", "chains"] {
        world.run(&["init", template, "--template", template]).ok();
        let plan = format!("{template}/plan.toml");
        assert!(world.run(&["plan", &plan]).ok().starts_with(&format!("sweep {template}: ")));
    }
    let refused = world.run(&["init", "x", "--template", "fortran"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .err
            .contains("[possible values: command, python, ddp, train, train-pytorch, mpi, chains]")
    );
}
