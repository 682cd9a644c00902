//! Many at once: agents that start together with a plan without a queue, and trials that do nothing.

use hpcsweep::sweep::tree::{Tree, records};

use crate::support::faults::rounds;
use crate::support::world::{Started, World};

/// The number of agents that start at once with a plan without a queue, and the number of trials that do
/// nothing.
fn at_once(agents: usize, trials: u64) {
    let world = World::new();
    let numbers: Vec<String> = (0..trials).map(|i| i.to_string()).collect();
    world.write(
        "plan.toml",
        &format!(
            "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"true\"]\n[grid]\ni = [{}]\n",
            numbers.join(", ")
        ),
    );
    let start = |_| world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let all: Vec<Started> = (0..agents).map(start).collect();
    for agent in all {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(world.status()["counts"].to_string(), format!("{{\"done\":{trials}}}"));
    assert_eq!(world.files("results/p/pull"), ["0001.json", "0001.map"]);
    let records = records::all(&Tree::at(&world.path("results/p"))).unwrap();
    let once = records.values().filter(|r| r.attempts.len() == 1 && r.attempts[0].end.is_some());
    assert_eq!((records.len() as u64, once.count() as u64), (trials, trials));
}

#[test]
fn many_trials_that_do_nothing_are_done_once() {
    (0..rounds(1)).for_each(|_| at_once(8, 2000));
}

#[test]
fn agents_that_start_at_once_lay_a_plan_down_once() {
    (0..rounds(1)).for_each(|_| at_once(24, 48));
}
