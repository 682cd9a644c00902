//! `--retry` of a sweep that agents are at: what has failed runs again at once, and nothing runs twice.

use serde_json::Value;

use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// A sweep whose trial 1 fails until there is a file `mended`, and whose trial 2 waits for a file `go`.
fn world(rest: &str) -> World {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>events
        [ $HPCSWEEP_TRIAL != 1 ] || [ -e mended ] || exit 3
        [ $HPCSWEEP_TRIAL != 2 ] || until [ -e go ]; do sleep 0.01; done";
    let code = Value::from(code);
    let head = "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", ";
    world.write("plan.toml", &format!("{head}{code}]\n{rest}"));
    world
}

fn counts(world: &World) -> String {
    world.status()["counts"].to_string()
}

#[test]
fn what_has_failed_runs_again_while_its_agent_lives() {
    let world = world("[grid]\ni = [0, 1, 2, 3, 4, 5]\n");
    let one = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at trial 2", || {
        world.exists("events") && world.read("events") == "0\n1\n2\n"
    });
    assert_eq!(counts(&world), r#"{"done":1,"failed":1,"queued":3,"running":1}"#);
    world.write("mended", "");
    let other = world.start(&["worker", "--pull", "plan.toml", "--slots", "1", "--retry"]);
    wait_until("it has run again", || world.status()["trials"][1]["state"] == "done");
    assert_eq!(world.status()["trials"][2]["state"], "running");
    world.write("go", "");
    other.end(&world).ok();
    assert_eq!(one.end(&world).code, 1);
    assert_eq!(counts(&world), r#"{"done":6}"#);
    let mut ran: Vec<String> = world.read("events").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["0", "1", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_chain_that_goes_on_behind_a_failure_is_left_in_peace_until_it_has_ended() {
    let chain = "[[trials]]\ntask_id = 1\ni = 0\n[[trials]]\ntask_id = 2\ni = 1\n[[trials]]\ntask_id = 2\ni = 2\n";
    let world = world(&format!("on_failure = \"continue\"\n{chain}"));
    let one = world.start(&["worker", "--pull", "plan.toml", "--slots", "2"]);
    wait_until("it is at trial 2", || {
        world.exists("events") && world.read("events").ends_with("2\n")
    });
    wait_until("trial 0 has ended", || counts(&world) == r#"{"done":1,"failed":1,"running":1}"#);
    world.write("mended", "");
    let retry = [
        "worker",
        "--pull",
        "plan.toml",
        "--slots",
        "1",
        "--may-go",
        "--time-left",
        "30m",
        "--retry",
    ];
    let other = world.start(&retry);
    wait_until("it has been asked for", || world.exists("results/p/pull/0002.json"));
    world.write("go", "");
    assert_eq!((one.end(&world).code, other.end(&world).code), (1, 0));
    assert_eq!(counts(&world), r#"{"done":2,"failed":1}"#);
    world.run(&retry).ok();
    assert_eq!(counts(&world), r#"{"done":3}"#);
    assert_eq!(world.read("events").lines().count(), 4);
}

#[test]
fn what_a_plan_adds_behind_a_failure_waits_while_that_runs_again() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>events; [ $HPCSWEEP_TRIAL = 1 ] || { [ -e mended ] || exit 3; until [ -e go ]; do sleep 0.01; done; }";
    let plan = |links: usize| {
        let trials: String =
            (0..links).map(|i| format!("[[trials]]\ntask_id = 1\ni = {i}\n")).collect();
        let code = Value::from(code);
        let head = "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", ";
        world.write("plan.toml", &format!("{head}{code}]\n{trials}"));
    };
    let worker = ["worker", "--pull", "plan.toml", "--slots", "1"];
    plan(1);
    assert_eq!(world.run(&worker).code, 1);
    world.write("mended", "");
    let again = world.start(&[&worker[..], &["--retry"]].concat());
    wait_until("it runs again", || world.read("events") == "0\n0\n");
    plan(2);
    let behind = world.start(&worker);
    wait_until("it waits behind it", || {
        world.run(&["status"]).out.contains("2 agents") && counts(&world).contains("\"queued\":1")
    });
    world.write("go", "");
    again.end(&world).ok();
    behind.end(&world).ok();
    assert_eq!(
        (counts(&world), world.read("events")),
        (r#"{"done":2}"#.into(), "0\n0\n1\n".into())
    );
}

/// Requests of `retry` hold until the trial has run, whatever is submitted in between.
#[test]
fn a_request_of_retry_outlives_other_submissions() {
    let world = World::new();
    let plan = |values: &str| {
        let auto = "memory = { first = \"64M\" }\nwalltime = \"10m\"\n";
        shell("[ -e fine ]", &format!("[resources]\n{auto}[grid]\na = [{values}]\n"))
    };
    world.write("plan.toml", &plan("0, 1, 2"));
    let agent = || world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]).code;
    assert_eq!(agent(), 1);
    world.write("fine", "");
    world.run(&["retry", "0", "--walltime", "20m", "--memory", "128M"]).ok();
    world.run(&["retry", "1", "--walltime", "30m"]).ok();
    world.write("plan.toml", &plan("0, 1, 2, 3"));
    agent();
    let columns = [
        "collect",
        "--attempts",
        "--format",
        "csv",
        "--columns",
        "trial,asked_walltime_s,asked_memory",
    ];
    let asked = "trial,asked_walltime_s,asked_memory\n0,600,67108864\n0,1200,134217728\n1,600,67108864\n\
                 1,1800,67108864\n2,600,67108864\n3,600,67108864\n";
    assert_eq!(world.run(&columns).ok(), asked);
}

/// Trial 1 has failed, trial 2 runs and the others wait when the sweep is cancelled.
#[test]
fn what_was_cancelled_stays_so_while_one_of_its_trials_runs_again() {
    let world = world("[grid]\ni = [0, 1, 2, 3, 4, 5]\n");
    let one = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at trial 2", || {
        world.exists("events") && world.read("events") == "0\n1\n2\n"
    });
    world.run(&["cancel"]).ok();
    // A trial that is still at work may come back any time.
    for more in [&["--dry-run"][..], &[]] {
        let early = world.run(&[&["retry", "1"], more].concat());
        assert_eq!(
            early.whole(),
            "\
error: agents have not left this sweep, and have trials of it
  $WORLD/results/p
hint: wait until they have left; if one was killed, `hpcsweep worker --pull PLAN` takes its trials over
exit code 2
",
            "{more:?}"
        );
    }
    wait_until("it has heard", || world.entries("results/p", "\"back\"") > 0);
    world.write("go", "");
    assert_eq!(one.end(&world).code, 1);
    world.write("mended", "");
    // A set without a trial to run changes nothing.
    let none = world.run(&["retry", "4"]).whole();
    assert_eq!(none, "p: left alone: 1 trial (queued)\np: nothing to run again\nexit code 0\n");
    let dry = world.run(&["retry", "1", "--dry-run"]);
    assert!(dry.ok().contains("1 trial (failed)\n"), "{}", dry.whole());
    world.run(&["retry", "1"]).ok();
    world.run(&["worker", "--pull", "results/p"]).ok();
    assert_eq!(counts(&world), r#"{"done":3,"pending":3}"#);
    assert_eq!(world.read("events"), "0\n1\n2\n1\n");
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(counts(&world), r#"{"done":6}"#);
    assert_eq!(world.read("events"), "0\n1\n2\n1\n3\n4\n5\n");
}
