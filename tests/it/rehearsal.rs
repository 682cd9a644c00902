//! `submit --dry-run` of a sweep that is there: what would be done now, and then is.

use serde_json::json;

use crate::local::shell;
use crate::scripts::slurm;
use crate::status::answer;
use crate::world::World;

const CODE: &str = "[ {{ n }} != 2 ] || [ -e now ]";

fn plan(values: &str) -> String {
    shell(CODE, &format!("[grid]\nn = [{values}]\n"))
}

/// What a dry run says; it writes nothing.
fn dry(world: &World, args: &[&str]) -> String {
    let before = world.files("results");
    let ran = world.run(&[&["submit", "plan.toml", "--dry-run"], args].concat());
    assert_eq!(world.files("results"), before);
    ran.whole()
}

#[test]
fn a_dry_run_here_says_which_trials_would_run() {
    let world = World::new();
    world.local(&plan("1, 2"), &[]);
    let head = "sweep s is in $WORLD/results/s\n";
    let same = format!(
        "{head}nothing would be done\nleft alone: 1 trial (done)\nleft alone: 1 trial (failed)\nexit code 0\n"
    );
    assert_eq!(dry(&world, &["--local"]), same);
    world.write("plan.toml", &plan("2, 3"));
    let grown = format!(
        "{head}would run: 1 trial (new)\nleft alone: 1 trial (failed)\n\
         1 trial of earlier plans is not in this one: left alone\n\n\
         trial  state  parameters\n    2  new    n=3\nexit code 0\n"
    );
    assert_eq!(dry(&world, &["--local"]), grown);
    let retried = format!(
        "{head}would run: 1 trial (new)\nwould run: 1 trial (failed)\n\
         1 trial of earlier plans is not in this one: left alone\n\n\
         trial  state   parameters\n    1  failed  n=2\n    2  new     n=3\nexit code 0\n"
    );
    assert_eq!(dry(&world, &["--local", "--retry"]), retried);
    let said: serde_json::Value =
        serde_json::from_str(dry(&world, &["--local", "--json"]).lines().next().unwrap()).unwrap();
    let expected = json!({
        "sweep": "s", "dir": world.path("results/s"), "exists": true,
        "trials": [{"trial": 2, "state": "new", "params": {"n": 3}}],
        "left": {"failed": 1}, "dropped": 1, "arrays": [], "units": null, "pilots": null,
        "notes": ["1 trial of earlier plans is not in this one: left alone"],
    });
    let shown = said.to_string().replace("$WORLD", world.text_path("").trim_end_matches('/'));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), expected);
    // It is what is done then.
    world.write("now", "");
    world.run(&["submit", "plan.toml", "--local", "--retry"]).ok();
    assert_eq!(
        world.files("results/s/records"),
        ["000/0.1.jsonl", "000/1.1.jsonl", "000/1.2.jsonl", "000/2.1.jsonl"]
    );
}

#[test]
fn a_dry_run_for_a_scheduler_says_which_arrays_would_be_submitted() {
    let world = slurm();
    world.write("plan.toml", &plan("1, 2"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "squeue", "101_0|RUNNING|None|x\n101_1|FAILED|NonZeroExitCode|x\n");
    world.write("plan.toml", &plan("1, 2, 3, 4"));
    let head = "sweep s is in $WORLD/results/s\nwould be submitted: 2 trials (new)\n";
    let array = |elements| {
        format!(
            "\narray  link  elements  after  request\n    2     0         {elements}  -      \
             nodes=1 ranks=1 cpus_per_rank=1\nexit code 0\n"
        )
    };
    let grown = format!(
        "{head}left alone: 1 trial (failed)\nleft alone: 1 trial (running)\n\n\
         trial  state  parameters\n    2  new    n=3\n    3  new    n=4\n{}",
        array(2)
    );
    assert_eq!(dry(&world, &["--slurm"]), grown);
    let retried = format!(
        "{head}would be submitted: 1 trial (failed)\nleft alone: 1 trial (running)\n\n\
         trial  state   parameters\n    1  failed  n=2\n    2  new     n=3\n    3  new     n=4\n{}",
        array(3)
    );
    assert_eq!(dry(&world, &["--slurm", "--retry"]), retried);
    let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    assert!(
        ran.code == 0 && ran.err.starts_with("array 2: 3 trials as job 101\n"),
        "{}",
        ran.whole()
    );
    // It is not run here meanwhile, and a dry run says so.
    let refused = dry(&world, &["--local"]);
    assert!(refused.contains("in a scheduler's hands"), "{refused}");
}

#[test]
fn a_dry_run_for_agents_says_what_they_would_be_dealt() {
    let world = World::new();
    world.local(&plan("1, 2"), &["--pull"]);
    world.write("plan.toml", &plan("1, 2, 3"));
    let head = "sweep s is in $WORLD/results/s\n";
    let grown = format!(
        "{head}would be submitted: 1 trial (new)\nleft alone: 1 trial (done)\nleft alone: 1 trial (failed)\n\n\
         trial  state  parameters\n    2  new    n=3\n\nfor agents: 1 unit\nexit code 0\n"
    );
    assert_eq!(dry(&world, &["--local", "--pull"]), grown);
    let pilots = grown.replace("exit code", "would be submitted: 1 pilot\nexit code");
    assert_eq!(dry(&world, &["--slurm", "--pull"]), pilots);
    world.write("now", "");
    let again = dry(&world, &["--local", "--pull", "--retry"]);
    assert!(
        again.contains("\n    1  failed  n=2\n    2  new     n=3\n\nfor agents: 2 units\n"),
        "{again}"
    );
    let ran = world.run(&["submit", "plan.toml", "--local", "--pull", "--retry"]);
    assert!(
        ran.code == 0 && ran.err.contains("s: 2 trials in 2 units for agents"),
        "{}",
        ran.whole()
    );
    assert!(
        dry(&world, &["--local", "--pull"])
            .contains("nothing would be done\nleft alone: 3 trials (done)\n")
    );
}
