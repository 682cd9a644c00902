//! The plan's current request reaches trials that the sweep already has, on this machine.

use crate::support::plans::shell;
use crate::support::world::World;

fn states(world: &World) -> Vec<String> {
    world.column("state")
}

/// A plan of one program and these requests.
fn plan(code: &str, resources: &str) -> String {
    shell(code, &format!("[resources]\n{resources}\n"))
}

#[test]
fn a_raised_walltime_is_the_workers_own() {
    let world = World::new();
    let code = "sleep 3";
    assert_eq!(world.local(&plan(code, "walltime = \"1s\""), &["-q"]).code, 1);
    assert_eq!(states(&world), ["\"timeout\""]);
    world.local(&plan(code, "walltime = \"10m\""), &["--retry", "-q"]).ok();
    assert_eq!(states(&world), ["\"done\""]);
    assert_eq!(world.column("attempts"), ["2"]);
    // It is still the same trial, and the table is as it was.
    assert_eq!(world.files("results/s/trials").len(), 4);
}

#[test]
fn other_ranks_are_started_and_expected() {
    let world = World::new();
    let code = "echo $RANK of $WORLD_SIZE >>ran; [ -e mended ]";
    assert_eq!(world.local(&plan(code, "ranks = 2"), &["-q"]).code, 1);
    world.write("mended", "");
    world.write("ran", "");
    world.local(&plan(code, "ranks = 3"), &["--retry", "-q"]).ok();
    let mut ran: Vec<String> = world.read("ran").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["0 of 3", "1 of 3", "2 of 3"]);
    // One rank needs no launcher, and knows nothing of others.
    let alone = plan("[ -z \"$RANK\" ]", "ranks = 2").replace("\"s\"", "\"alone\"");
    assert_eq!(world.local(&alone, &["-q"]).code, 1);
    world.local(&alone.replace("ranks = 2", "ranks = 1"), &["--retry", "-q"]).ok();
}

#[test]
fn what_goes_on_after_ctrl_c_asks_for_what_the_plan_says_now() {
    let world = World::new();
    // The executor is stopped while the first trial runs; the second has not begun.
    let code = "echo $HPCSWEEP_TRIAL ${WORLD_SIZE:-1} >>ran; [ -e mended ] || { kill -INT $(ps -o ppid= -p $PPID); sleep 600; }";
    let two = |resources: &str| plan(code, resources) + "[grid]\na = [0, 1]\n";
    assert_eq!(world.local(&two("ranks = 1"), &["-j", "1", "-q"]).code, 130);
    world.write("mended", "");
    world.local(&two("ranks = 2"), &["-j", "1", "-q"]).ok();
    assert_eq!(world.read("ran"), "0 1\n0 2\n0 2\n1 2\n1 2\n");
}

#[test]
fn equal_trials_are_told_apart_by_their_requests_then_by_their_order() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>ran; sleep 3";
    let two = |first: &str, second: &str| {
        let trial = |walltime: &str| format!("[[trials]]\nresources.walltime = \"{walltime}\"\n");
        shell(code, &format!("{}{}", trial(first), trial(second)))
    };
    assert_eq!(world.local(&two("1s", "10m"), &["-q"]).code, 1);
    assert_eq!(states(&world), ["\"timeout\"", "\"done\""]);
    world.write("ran", "");
    // In the other order: the second of the sweep is still the one that asks for ten minutes.
    world.local(&two("10m", "20m"), &["--retry", "-q"]).ok();
    assert_eq!(world.read("ran"), "0\n");
    assert_eq!(states(&world), ["\"done\"", "\"done\""]);
    assert_eq!(world.column("attempts"), ["2", "1"]);
}

#[test]
fn a_worker_refuses_a_request_that_it_cannot_read() {
    let world = World::new();
    world.local(&plan("true", "ranks = 1"), &["-q"]).ok();
    let worker = ["worker", "--sweep", "results/s", "--trial", "0", "--resources"];
    let said = |text: &str| world.run(&[&worker[..], &[text]].concat()).whole();
    let hint =
        "hint: job scripts pass a JSON list with one request, or one for each link\nexit code 2\n";
    assert_eq!(said("[]"), format!("error: `--resources` has no request for link 0: `[]`\n{hint}"));
    assert_eq!(said("1h"), format!("error: cannot read `--resources`: `1h`\n{hint}"));
}
