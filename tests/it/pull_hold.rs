//! Agents of a sweep that is held: they begin no more of it until it is released.

use serde_json::Value;

use crate::world::{Started, World, wait_until};

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

/// How many entries of a kind the ledger has.
fn entries(world: &World, event: &str) -> usize {
    let word = format!("\"event\":\"{event}\"");
    let files = world.files("results/p/claims");
    // Not what is on its way to its name.
    let has = |f: &&String| world.read(&format!("results/p/claims/{f}")).contains(&word);
    files.iter().filter(|f| f.ends_with(".json")).filter(has).count()
}

#[track_caller]
fn said(world: &World, verb: &str, expected: &str) {
    let ran = world.run(&[verb]);
    assert_eq!((ran.code, &*ran.err), (0, &*format!("p: {expected}\n")));
}

const HELD: &str = "held: agents end what they run and take no more of it; `hpcsweep release results/p` lets it go on";

#[test]
fn agents_begin_nothing_of_a_sweep_that_is_held() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    said(&world, "hold", "nothing of it waits to begin");
    wait_until("it has given the rest back", || entries(&world, "back") == 1);
    let user = hpcsweep::host::vars::user_name();
    let status = world.run(&["status"]);
    assert!(status.out.contains(&format!("held by {user}")), "{}", status.whole());
    world.write("go", "");
    let ran = agent.end(&world);
    let left = format!(
        "it left: the sweep is held by {user}: `hpcsweep release $WORLD/results/p` lets it go on"
    );
    assert!(ran.code == 1 && ran.err.contains(&left), "{}", ran.whole());
    // Nor does who comes with the plan let it go on, or with one that has grown.
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

#[test]
fn an_agent_that_is_still_there_when_its_sweep_is_released_goes_on() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    wait_until("it has given the rest back", || entries(&world, "back") == 1);
    assert!(world.run(&["release"]).code == 0);
    world.write("go", "");
    agent.end(&world).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":12}"#);
    assert_eq!(entries(&world, "join"), 1);
}

#[test]
fn what_is_cancelled_is_not_held_any_more() {
    let world = world(12);
    let agent = busy(&world);
    said(&world, "hold", HELD);
    said(&world, "cancel", "cancelled: agents end what they run and take no more of it");
    said(&world, "release", "nothing of it is held");
    world.write("go", "");
    assert!(agent.end(&world).err.contains("it left: the sweep "));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.status()["counts"].to_string(), r#"{"done":12}"#);
}
