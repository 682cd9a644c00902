//! Agents of a sweep that is held: they begin no more of it until it is released.

use serde_json::Value;

use crate::support::world::{Started, World, wait_until};

/// Trials 0 to `n - 1`, each of which writes its number; all but trial 0 wait until there is a file `go`.
fn world(n: usize) -> World {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>events; [ $HPCSWEEP_TRIAL = 0 ] || until [ -e go ]; do sleep 0.01; done";
    let (code, numbers) = (Value::from(code), (0..n).map(|i| i.to_string()).collect::<Vec<_>>());
    let numbers = numbers.join(", ");
    world.write(
        "plan.toml",
        &format!(
            "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n[grid]\ni = [{numbers}]\n"
        ),
    );
    world
}

/// An agent that runs trial 1 and holds some more.
fn busy(world: &World) -> Started {
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at it", || world.exists("events") && world.read("events") == "0\n1\n");
    agent
}

#[track_caller]
fn said(world: &World, verb: &str, expected: &str) {
    let ran = world.run(&[verb]);
    assert_eq!((ran.code, &*ran.err), (0, &*format!("p: {expected}\n")));
}

const HELD: &str = "held: agents end what they run and take no more trials; `hpcsweep release results/p` continues it";

#[test]
fn agents_begin_nothing_of_a_sweep_that_is_held() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    said(&world, "hold", "nothing of it waits to begin");
    wait_until("it has given the rest back", || world.entries("results/p", "\"back\"") == 1);
    let user = hpcsweep::base::host::vars::user_name();
    let status = world.run(&["status"]);
    assert!(status.out.contains(&format!("held by {user}")), "{}", status.whole());
    world.write("go", "");
    let ran = agent.end(&world);
    let left = format!(
        "it left: the sweep is held by {user}: `hpcsweep release $WORLD/results/p` continues it"
    );
    assert!(ran.code == 1 && ran.err.contains(&left), "{}", ran.whole());
    // An agent does not release the sweep by starting with the plan, nor with a plan that has grown.
    let plan = world.read("plan.toml");
    for plan in [plan.clone(), plan.replace("0, 1, ", "0, 1, 77, ")] {
        world.write("plan.toml", &plan);
        let ran = world.run(&["worker", "--pull", "plan.toml"]);
        assert!(ran.code == 1 && ran.err.contains(&left), "{}", ran.whole());
    }
    assert_eq!(world.read("events"), "0\n1\n");
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":2,"queued":11}"#);
    said(
        &world,
        "release",
        "released: agents that are still there go on; where none are, submit it again or start some",
    );
    said(&world, "release", "nothing of it is held");
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":13}"#);
    assert_eq!(world.read("events").lines().count(), 13);
}

/// No agent may take units that an agent held when the plan dropped them, and has given back since.
#[test]
fn links_that_the_plan_has_dropped_are_not_begun_when_an_agent_has_given_them_back() {
    let world = world(5);
    let chain = |values: &str| {
        let plan = world.read("plan.toml");
        let head =
            plan.split("[grid]").next().unwrap().replace("[schedule]\nchain_along = \"i\"\n", "");
        let chain = format!("[schedule]\nchain_along = \"i\"\n[grid]\ni = [{values}]\n");
        world.write("plan.toml", &format!("{head}{chain}"));
    };
    chain("0, 1, 2, 3, 4");
    let agent = busy(&world);
    chain("0, 1, 4");
    let second = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it has come with the plan", || world.entries("results/p", "\"join\"") == 2);
    // The agent that has them runs them to their end, and every reader says so.
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":1,"queued":3,"running":1}"#);
    let seen = world.run(&["watch", "--once"]).out;
    assert!(seen.contains("done 1  running 1  queued 3\n"), "{seen}");
    said(&world, "hold", HELD);
    assert_eq!(second.end(&world).code, 1);
    // The agent gives back the rest of the chain, which no agent may take.
    agent.signal(nix::sys::signal::Signal::SIGTERM);
    agent.end(&world);
    assert!(world.run(&["release"]).code == 0);
    world.write("go", "");
    let dry = ["submit", "plan.toml", "--local", "--pull", "--dry-run"];
    let dry = world.run(&dry).whole();
    assert!(dry.contains("would run: 2 trials") && dry.contains("for agents: 1 unit\n"), "{dry}");
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":3,"dropped":2}"#);
    assert_eq!(world.read("events"), "0\n1\n1\n4\n");
}

/// The same, where the next trial of the chain has failed once and waits for its second attempt.
#[test]
fn a_chain_whose_next_trial_was_tried_loses_its_dropped_links_all_the_same() {
    let world = World::new();
    let plan = |values: &str| {
        let code = "echo $HPCSWEEP_TRIAL >>events; [ $HPCSWEEP_TRIAL != 1 ] || [ -e go ]";
        let code = Value::from(code);
        world.write(
            "plan.toml",
            &format!(
                "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\nattempts = 2\n\
                 [pull]\nbackoff = \"60s\"\n[schedule]\nchain_along = \"i\"\n[grid]\ni = [{values}]\n"
            ),
        );
    };
    plan("0, 1, 2, 3");
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let has_failed = || {
        let bundles = world.files("results/p/agents");
        let of = |f: &String| world.read(&format!("results/p/agents/{f}"));
        bundles.iter().filter(|f| f.ends_with(".jsonl")).any(|f| of(f).contains("\"failed\""))
    };
    wait_until("it waits for the second attempt", || {
        world.exists("results/p/agents") && has_failed()
    });
    agent.signal(nix::sys::signal::Signal::SIGTERM);
    agent.end(&world);
    world.write("go", "");
    plan("0, 1, 3");
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.read("events"), "0\n1\n1\n3\n");
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":3,"dropped":1}"#);
}

#[test]
fn an_agent_that_is_still_there_when_its_sweep_is_released_goes_on() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    wait_until("it has given the rest back", || world.entries("results/p", "\"back\"") == 1);
    assert!(world.run(&["release"]).code == 0);
    world.write("go", "");
    agent.end(&world).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":12}"#);
    assert_eq!(world.entries("results/p", "\"join\""), 1);
}

#[test]
fn what_is_cancelled_is_not_held_any_more() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    said(&world, "cancel", "cancelled: agents end what they run and take no more trials");
    said(&world, "release", "nothing of it is held");
    world.write("go", "");
    assert!(agent.end(&world).err.contains("it left: the sweep "));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":12}"#);
}

/// What an agent held when the plan dropped it is not begun by the one that takes over after its death.
#[test]
fn links_that_the_plan_has_dropped_are_not_begun_by_the_agent_that_takes_over() {
    let world = World::new();
    let code = Value::from(
        "echo $HPCSWEEP_PARAM_I >>events; [ $HPCSWEEP_PARAM_I != 1 ] || until [ -e go ]; do sleep 0.01; done",
    );
    let plan = |values: &str| {
        world.write(
            "plan.toml",
            &format!(
                "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n\
                 [pull]\nlease = \"2s\"\n[schedule]\nchain_along = \"i\"\n[grid]\ni = [{values}]\n"
            ),
        );
    };
    plan("0, 1, 2, 3");
    let mut agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("it is at it", || world.exists("events") && world.read("events") == "0\n1\n");
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    world.write("go", "");
    plan("0, 1, 3");
    world.run(&["worker", "--pull", "plan.toml", "--slots", "1"]).ok();
    assert_eq!(world.read("events"), "0\n1\n1\n3\n");
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":3,"dropped":1}"#);
}
