//! Causes on a real Slurm: what its word, the worker and the log say together.

use crate::world::{BOTH, Cluster, World};

/// The causes of all trials, as `status --json` has them.
fn causes(world: &World) -> Vec<String> {
    let json = world.status().json;
    let trials = json["trials"].as_array().unwrap();
    trials.iter().map(|trial| trial["cause"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn what_ended_a_trial_is_named() {
    BOTH.into_iter().for_each(named_on);
}

fn named_on(cluster: Cluster) {
    let world = World::new(cluster, "causes");
    let script = "echo $HPCSWEEP_TRIAL >>$HERE/began
        case $HPCSWEEP_PARAM_X in
          0) exit 0;;
          1) exit 3;;
          2) kill -SEGV $$;;
          3) printf 'Traceback (most recent call last):\\n  File \"t.py\", line 1\\nKeyError: 1\\n'; exit 1;;
          *) exec sleep 300;;
        esac";
    let mut rest = "[resources]\nmemory = \"50M\"\n".to_owned();
    for x in 0..5 {
        rest.push_str(&format!("[[trials]]\nx = {x}\n"));
    }
    rest.push_str("[[trials]]\nx = 5\nresources.walltime = \"3s\"\n");
    world.plan(script, &rest);
    world.submit().ok();
    world.until("running", || world.lines("began").contains(&"4".to_owned()).then_some(()));
    let element = world.until("its element", || {
        let json = world.status().json;
        json["trials"][4]["job"].as_str().map(str::to_owned)
    });
    world.call("/usr/bin/scancel", &[&element]);
    world.finished();
    let expected = ["-", "exit-code", "signal", "exception", "cancelled", "walltime"];
    assert_eq!(causes(&world), expected, "{}", world.report());
    let why = world.hpcsweep(&["why", "4", "results/causes"]).ok().stdout.clone();
    assert!(why.starts_with("trial 4 of causes: interrupted (cancelled)\n"), "{why}");
}

#[test]
fn a_trial_that_waits_says_why_in_plain_words_and_when_it_is_to_start() {
    let world = World::new(Cluster::Accounting, "waits");
    let rest = "[resources]\nmemory = \"50M\"\ndirectives = [\"--begin=now+1hour\"]\n";
    world.plan("exit 0", rest);
    world.submit().ok();
    let why = world.until("BeginTime", || {
        let why = world.hpcsweep(&["why", "0", "results/waits"]).ok().stdout.clone();
        why.contains("BeginTime").then_some(why)
    });
    assert!(why.contains("  waits: BeginTime: it may not start before its time"), "{why}");
    assert!(why.contains("  expected start: 20"), "{why}");
    world.hpcsweep(&["cancel", "results/waits"]).ok();
    assert_eq!(causes(&world), ["cancelled"]);
}
