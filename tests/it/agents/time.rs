//! Trials that are longer than the allocations of their agents.

use serde_json::{Value, json};

use crate::support::world::World;

/// Agents whose trials have about three seconds before their time is over.
fn cut_off(world: &World, times: usize) {
    for _ in 0..times {
        world.run(&["worker", "--pull", "plan.toml", "--slots", "1", "--time-left", "18s"]);
    }
}

fn world(code: &str) -> World {
    let world = World::new();
    let code = Value::from(code);
    let head = "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", ";
    world.write("plan.toml", &format!("{head}{code}]\n[grid]\ni = [0]\n"));
    world
}

fn standing(world: &World) -> Value {
    let status = world.status();
    let trial = &status["trials"][0];
    json!([trial["state"], trial["reason"]])
}

#[test]
fn what_saves_nothing_is_handed_on_a_few_times_only() {
    let world = world("[ ! -e good ] || exit 0; echo x >>begun; sleep 1000");
    cut_off(&world, 2);
    assert_eq!(standing(&world)[0], "queued");
    cut_off(&world, 1);
    let why = "3 allocations in a row ended before it, and it saved nothing: give agents more time, or write checkpoints to HPCSWEEP_CHECKPOINT_DIR";
    assert_eq!(standing(&world), json!(["timeout", why]));
    cut_off(&world, 1);
    assert_eq!(world.read("begun").lines().count(), 3);
    world.write("good", "");
    world.run(&["worker", "--pull", "plan.toml", "--retry"]).ok();
    assert_eq!(standing(&world)[0], "done");
}

#[test]
fn what_writes_checkpoints_goes_on_as_often_as_it_takes() {
    let code = "mkdir -p $HPCSWEEP_CHECKPOINT_DIR; cd $HPCSWEEP_CHECKPOINT_DIR; echo x >>state
        [ $(wc -l <state) -ge 5 ] || sleep 1000";
    let world = world(code);
    cut_off(&world, 4);
    assert_eq!(standing(&world)[0], "queued");
    cut_off(&world, 1);
    assert_eq!(standing(&world)[0], "done");
}
