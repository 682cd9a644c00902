//! `submit --shard`: several clusters share a plan.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::slurm::slurm;
use crate::support::world::{Ran, World};

/// Chains of two and trials of their own, in a place of its own for each cluster.
fn plan(root: &str, values: &[u32]) -> String {
    let mut text = format!(
        "version = 1\n[sweep]\nname = \"s\"\nroot = \"{root}\"\n[run]\n\
         command = [\"sh\", \"-c\", \"echo '{{\\\"x\\\": 1}}' >$HPCSWEEP_RESULT\"]\n\
         [resources]\nwalltime = \"1m\"\n"
    );
    for value in values {
        text.push_str(&format!("[[trials]]\na = {value}\n"));
        for link in [0, 1] {
            text.push_str(&format!(
                "[[trials]]\ntask_id = \"c{value}\"\nc = {value}\nb = {link}\n"
            ));
        }
    }
    text
}

fn submit(world: &World, values: &[u32], shard: &str) -> Ran {
    let root = shard.replace('/', "-");
    world.write(&format!("{root}.toml"), &plan(&root, values));
    world.run(&["submit", &format!("{root}.toml"), "--local", "--shard", shard])
}

/// The parameters and the chains of a sweep's trials.
fn trials(world: &World, sweep: &str) -> BTreeSet<String> {
    let rows = world.table(&[sweep]);
    let text = |row: &std::collections::BTreeMap<String, Value>, name: &str| {
        row.get(name).unwrap_or(&Value::Null).to_string()
    };
    let all: Vec<String> = rows
        .iter()
        .map(|row| ["task_id", "link", "a", "b", "c"].map(|name| text(row, name)).join(" "))
        .collect();
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len());
    set
}

#[test]
fn the_parts_of_a_plan_are_disjoint_and_their_union_is_the_whole_however_it_grows() {
    let world = World::new();
    let mut before: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 3];
    for values in [&[0, 1, 2, 3, 4, 5, 6, 7][..], &[9, 0, 1, 8, 2, 3, 4, 5, 6, 7, 10, 11]] {
        submit(&world, values, "1/1").ok();
        let whole = trials(&world, "1-1/s");
        let mut union = BTreeSet::new();
        for (n, before) in before.iter_mut().enumerate() {
            let shard = format!("{}/3", n + 1);
            submit(&world, values, &shard).ok();
            let own = trials(&world, &format!("{}/s", shard.replace('/', "-")));
            assert!(before.is_subset(&own) && own.is_disjoint(&union), "{own:?} {union:?}");
            // Chains are whole.
            for second in own.iter().filter(|trial| trial.contains("\" 1 null 1 ")) {
                let first = second.replace("\" 1 null 1 ", "\" 0 null 0 ");
                assert!(own.contains(&first), "{first} {own:?}");
            }
            union.extend(own.iter().cloned());
            *before = own;
        }
        assert_eq!(union, whole);
        assert!(before.iter().all(|own| !own.is_empty()));
    }
}

#[test]
fn a_sweep_keeps_its_part_and_says_so() {
    let world = World::new();
    let first = submit(&world, &[0, 1, 2, 3], "2/3");
    let words = first.err.lines().next().unwrap().to_owned();
    assert!(words.starts_with("shard 2 of 3: ") && words.ends_with(" of 12 trials"), "{words}");
    let own = trials(&world, "2-3/s");
    // Without the option: the same part.
    let again = world.run(&["submit", "2-3.toml", "--local"]);
    let expected = format!(
        "{words}\ns: nothing left to run\nresults: $WORLD/2-3/s\n\
         for the results: hpcsweep collect 2-3/s; hpcsweep best 2-3/s --metric x --min; hpcsweep report 2-3/s\n"
    );
    assert_eq!((again.code, again.err), (0, expected));
    assert_eq!(trials(&world, "2-3/s"), own);
    let plan = world.run(&["plan", "2-3.toml"]);
    assert_eq!(plan.err, format!("{words}\n"));
    let status = world.run(&["status", "2-3/s"]);
    assert_eq!(status.out.lines().nth(1), Some("shard 2 of 3 of the plan"));
    let status: Value =
        serde_json::from_str(world.run(&["status", "--json", "2-3/s"]).ok()).unwrap();
    assert_eq!(status["shard"], json!({"shards": [2], "of": 3}));

    // Chains with other names may belong to other parts: what the sweep has stays.
    let text = world.read("2-3.toml");
    let chains = own.iter().filter(|trial| trial.contains("\"c")).count();
    world.write("2-3.toml", &text.replace("task_id = \"c", "task_id = \"other"));
    world.run(&["submit", "2-3.toml", "--local"]).ok();
    let kept = trials(&world, "2-3/s");
    assert!(chains > 0 && kept.is_superset(&own), "{kept:?} {own:?}");
    assert!(!world.run(&["status", "2-3/s"]).out.contains("dropped"));
    world.write("2-3.toml", &text);

    // Another part, and then all of it.
    let other = world.run(&["submit", "2-3.toml", "--local", "--shard", "1/3"]);
    assert!(other.err.starts_with("shards 1, 2 of 3: "), "{}", other.err);
    assert!(other.err.contains("\nthis sweep had shard 2 of 3 before\n"), "{}", other.err);
    assert!(trials(&world, "2-3/s").is_superset(&own));
    let half = world.run(&["submit", "2-3.toml", "--local", "--shard", "1/2"]);
    assert_eq!(
        half.whole(),
        "error: `$WORLD/2-3/s` has shards 1, 2 of 3: the plan is divided already\n\
         hint: divide it in as many parts on each cluster; `--shard 1/1` is the whole plan\nexit code 2\n"
    );
    let all = world.run(&["submit", "2-3.toml", "--local", "--shard", "1/1"]);
    assert!(all.err.starts_with("this sweep had shards 1, 2 of 3 before\n"), "{}", all.err);
    assert!(trials(&world, "2-3/s").len() >= 12);
    // The trials of other parts were never dropped.
    assert!(!world.run(&["status", "2-3/s"]).out.contains("dropped"));
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let world = World::new();
    let check = |shard: &str, expected: &str| {
        let ran = submit(&world, &[0, 1], shard);
        assert_eq!(ran.code, 2, "{}", ran.whole());
        let first = ran.err.lines().next().unwrap();
        assert_eq!(
            first,
            format!("error: invalid value '{shard}' for '--shard <K/N>': {expected}")
        );
    };
    check("0/3", "the parts are `1/3` to `3/3`");
    check("4/3", "the parts are `1/3` to `3/3`");
    check("x", "write it as `2/3`: the second of three parts");
    assert!(!world.exists("0-3"));
    // Of two trials, most of a thousand parts have none.
    world.write("p.toml", &plan("p", &[0]));
    let empty = (1..=9)
        .map(|n| {
            world.run(&["submit", "p.toml", "--local", "--dry-run", "--shard", &format!("{n}/9")])
        })
        .find(|ran| ran.code == 2)
        .unwrap();
    assert!(empty.err.contains(
        " of 9 of s has no trial\nhint: the plan has 3 trials: divide it in fewer parts\n"
    ));
    // A sweep that was submitted as a whole.
    world.run(&["submit", "p.toml", "--local"]).ok();
    let late = world.run(&["submit", "p.toml", "--local", "--shard", "1/2"]);
    assert_eq!(
        late.whole(),
        "error: `$WORLD/p/s` was submitted as a whole\n\
         hint: a shard is chosen when a sweep is submitted first; name another `[sweep] root`\nexit code 2\n"
    );
}

#[test]
fn a_dry_run_and_schedulers_have_the_part_alone() {
    let world = slurm();
    world.write("p.toml", &plan("p", &[0, 1, 2, 3]));
    let dry = ["submit", "p.toml", "--slurm", "--shard", "2/3", "--dry-run", "--json"];
    let ran = world.run(&dry);
    let document: Value = serde_json::from_str(ran.ok()).unwrap();
    assert_eq!(document["shard"], json!({"shards": [2], "of": 3}));
    let n = document["trials"].as_array().unwrap().len();
    assert_eq!(ran.err.lines().next().unwrap(), format!("shard 2 of 3: {n} of 12 trials"));
    assert!(!world.exists("p"));
    let ran = world.run(&dry[..5]);
    assert!(ran.err.contains(&format!("s: {n} trials submitted as ")), "{}", ran.whole());

    let pbs = Pbs::start();
    let world = &pbs.world;
    world.write("p.toml", &plan("p", &[0, 1, 2, 3]));
    world.run(&["submit", "p.toml", "--pbs", "--shard", "2/3"]).ok();
    pbs.wait_idle();
    let own = trials(world, "p/s");
    assert_eq!(own.len(), n);
    // By agents, too.
    let pulled = world.run(&["submit", "p.toml", "--local", "--pull", "--shard", "3/3"]);
    assert_eq!(pulled.code, 0, "{}", pulled.whole());
    assert!(trials(world, "p/s").len() > n);
}

#[test]
fn a_plan_shows_the_part_that_a_submission_would_have() {
    let world = World::new();
    world.write("plan.toml", &plan("r", &[0, 1, 2, 3, 4, 5]));
    let planned = world.run(&["plan", "plan.toml", "--shard", "2/3", "--json"]);
    let document: Value = serde_json::from_str(planned.ok()).unwrap();
    let shown: Vec<Value> = document["trials"].as_array().unwrap().to_vec();
    assert!(!world.exists("r"), "a plan was written");
    let said = planned.err.clone();
    let submitted = world.run(&["submit", "plan.toml", "--local", "--shard", "2/3"]);
    assert_eq!(submitted.code, 0, "{}", submitted.whole());
    assert!(said.starts_with("shard 2 of 3: ") && submitted.err.starts_with(&said), "{said}");
    assert_eq!(trials(&world, "r/s").len(), shown.len());
    // Without the option, it keeps to the part of the sweep.
    assert_eq!(world.run(&["plan", "plan.toml", "--json"]).out, planned.out);
    let other = world.run(&["plan", "plan.toml", "--shard", "1/2"]);
    assert!(
        other.code == 2 && other.err.contains("the plan is divided already"),
        "{}",
        other.whole()
    );
}
