//! Which sweep a verb is about that names none.

use crate::support::plans::shell;
use crate::support::world::World;

/// A world in whose folder `a` a sweep has run. The folder `b` is empty.
fn elsewhere() -> World {
    let world = World::new();
    world.write("a/plan.toml", &shell("exit 1", "[grid]\nx = [1]\n"));
    world.run_in("a", &["submit", "plan.toml", "--local"]);
    std::fs::create_dir(world.path("b")).unwrap();
    world
}

/// Verbs that change or write something.
const ACTS: [&[&str]; 9] = [
    &["cancel"],
    &["hold"],
    &["release"],
    &["retry"],
    &["collect", "-o", "t.csv"],
    &["collect", "--format", "records", "-o", "t.jsonl"],
    &["collect", "--tensorboard", "runs"],
    &["report"],
    &["export"],
];

/// Verbs that only show something.
const SHOWS: [&[&str]; 5] = [&["status"], &["collect"], &["usage"], &["logs", "0"], &["why"]];

#[track_caller]
fn refuse(world: &World, verbs: &[&[&str]], why: &str) {
    let before = (world.files("a/results"), world.files("b"));
    for args in verbs {
        assert_eq!(
            world.run_in("b", args).whole(),
            format!(
                "error: no sweep here: {why}\n\
                 hint: name its folder; the last one submitted is $WORLD/a/results/s\nexit code 2\n"
            ),
            "{args:?}"
        );
    }
    assert_eq!((world.files("a/results"), world.files("b")), before);
}

#[test]
fn a_verb_that_changes_or_writes_something_never_takes_a_sweep_of_another_folder() {
    let world = elsewhere();
    refuse(&world, &ACTS, "no plan and no `results/`");
    // A sweep below this folder is another folder's, too.
    let ran = world.run(&["cancel"]).whole();
    assert!(ran.starts_with("error: no sweep here: no plan and no `results/`\n"), "{ran}");
}

#[test]
fn a_verb_that_shows_something_says_that_the_sweep_is_not_here() {
    let world = elsewhere();
    for args in SHOWS {
        let ran = world.run_in("b", args);
        let words = "not here: the last one submitted, $WORLD/a/results/s\n";
        assert!(ran.err.starts_with(words) && ran.code < 2, "{args:?}: {}", ran.whole());
        // A sweep of this folder is meant without a word.
        let own = world.run_in("a", args);
        let here = |out: &str| out.replace("$WORLD/a/", "");
        assert_eq!((own.code, here(&own.out)), (ran.code, here(&ran.out)), "{args:?}");
    }
}

#[test]
fn where_a_plan_or_results_are_no_other_sweep_is_meant() {
    let world = elsewhere();
    world.write("b/other.toml", "[tool]\nname = 1\n");
    refuse(&world, &ACTS, "no plan and no `results/`");
    world.write("b/sweep.toml", &shell("true", "[grid]\nx = [1]\n"));
    for verbs in [&ACTS[..], &SHOWS] {
        refuse(&world, verbs, "`sweep.toml` was not submitted");
    }
    std::fs::create_dir(world.path("b/results")).unwrap();
    for verbs in [&ACTS[..], &SHOWS] {
        refuse(&world, verbs, "nothing in `results/`");
    }
}

#[test]
fn the_sweep_of_a_plan_here_is_found_under_another_root() {
    let world = elsewhere();
    let plan = shell("true", "[grid]\nx = [1]\n");
    world.write("b/plan.toml", &plan.replace("name = \"s\"", "name = \"s\"\nroot = \"../far\""));
    world.run_in("b", &["submit", "plan.toml", "--local"]);
    world.run_in("a", &["submit", "plan.toml", "--local", "--retry"]);
    let ran = world.run_in("b", &["cancel"]);
    assert_eq!(ran.whole(), "s: nothing of it is queued or running\nexit code 0\n");
    assert!(world.run_in("b", &["status"]).out.contains("done"));
}
