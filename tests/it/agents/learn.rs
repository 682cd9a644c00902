//! `memory = "auto"` under agents: what trials have used is at once what others with the same values need, and only as many run
//! as have room.

use crate::support::plans::shell;
use crate::support::world::{PROGRAM, Started, World, wait_until};

/// A small trial ends when three others run beside it, a big one when it has seen that for a while no other has begun.
const CODE: &str = "mkdir $HPCSWEEP_PARAM_W.$HPCSWEEP_TRIAL
    beside() { ls -d $HPCSWEEP_PARAM_W.* | wc -l; }
    case $HPCSWEEP_PARAM_W in
    gate) until [ -e go ]; do sleep 0.01; done ;;
    small) [ $HPCSWEEP_PARAM_R = 0 ] || until [ -e four ] || { [ $(beside) = 4 ] && : >four; }; do sleep 0.01; done ;;
    big) dd if=/dev/zero of=/dev/null bs=150M count=1 2>/dev/null; i=0; n=0
        while [ $n -lt 3 ] && [ $i -lt 50 ]; do n=$(beside); i=$((i+1)); sleep 0.01; done; echo $n >>most ;;
    esac
    rmdir $HPCSWEEP_PARAM_W.$HPCSWEEP_TRIAL";

/// Two kinds of trials, `rounds` of each.
fn plan(rounds: &str, resources: &str) -> String {
    shell(
        CODE,
        &format!(
            "[resources]\n{resources}\n[pull]\nbackoff = 0.01\n\
             [grid]\nw = [\"small\", \"big\"]\nr = [{rounds}]\n"
        ),
    )
}

const AUTO: &str = "memory = { first = \"400M\", by = [\"w\"] }";

/// Runs agents of so many slots side by side, in a job that has 400 MiB.
fn agents(world: &World, slots: &[&str]) {
    let agent = |slots: &&str| {
        let mut command = world.command(PROGRAM);
        command.args(["worker", "--pull", "plan.toml", "--slots", slots]);
        command.env("SLURM_JOB_ID", "12").env("SLURM_MEM_PER_NODE", "400");
        Started { child: command.spawn().unwrap() }
    };
    let started: Vec<Started> = slots.iter().map(agent).collect();
    for agent in started {
        agent.end(world).ok();
    }
}

#[test]
fn as_many_trials_run_as_have_room_by_what_others_have_used() {
    let world = World::new();
    world.write("plan.toml", &plan("0", AUTO));
    // One at a time: each asks for all that there is.
    agents(&world, &["4"]);
    assert_eq!(world.read("most"), "1\n");
    world.write("plan.toml", &plan("0, 1, 2, 3, 4", AUTO));
    agents(&world, &["4"]);
    let most = world.read("most");
    assert_eq!(most.lines().count(), 5);
    assert!(most.lines().all(|n| n == "1" || n == "2"), "{most}");
    // What was learnt is on record: of five big ones and five small ones.
    let columns = ["collect", "--attempts", "--format", "csv", "--columns", "trial,asked_memory"];
    let asked = world.run(&columns);
    let amounts: Vec<u64> = asked
        .ok()
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
        .collect();
    let [first, small, big] = [400 << 20, 64 << 20, 192 << 20];
    let usage = world.run(&["usage"]).out;
    assert!(usage.contains("memory learnt from other trials: 8 attempts wasted "), "{usage}");
    assert_eq!(amounts, [first, first, small, small, small, small, big, big, big, big]);
}

/// Each has half of the memory, and a big trial needs nearly all of that. The first trials wait until both have joined: what is
/// not known yet asks for everything, so that each agent has one of them.
#[test]
fn agents_of_one_job_divide_its_memory() {
    let world = World::new();
    let gates = |kinds: &str, rounds: &str| plan(rounds, AUTO).replace("\"small\", \"big\"", kinds);
    world.write("plan.toml", &gates("\"big\"", "0"));
    agents(&world, &["4"]);
    world.write("plan.toml", &gates("\"gate\", \"big\"", "0, 1, 2, 3, 4, 5, 6, 7"));
    std::thread::scope(|scope| {
        scope.spawn(|| agents(&world, &["2", "2"]));
        let waiting = || (0..16).filter(|trial| world.exists(&format!("gate.{trial}"))).count();
        wait_until("each has one", || waiting() == 2);
        world.write("go", "");
    });
    let most = world.read("most");
    assert_eq!(most.lines().count(), 8);
    assert!(most.lines().all(|n| n == "1" || n == "2"), "{most}");
}

/// A plan of trials that ask for 64 MiB and one of 390, and each writes its name; those called `gate` wait.
fn with_a_big_one(trials: &str) -> World {
    let code = "echo $HPCSWEEP_PARAM_W >>events; [ $HPCSWEEP_PARAM_W != gate ] || until [ -e go ]; do sleep 0.01; done";
    let world = World::new();
    let big = "[[trials]]\nw = \"big\"\nresources.memory = \"390M\"\n";
    let first = "[resources]\nmemory = { first = \"64M\" }\n[pull]\nlease = 5\n";
    world.write("plan.toml", &shell(code, &format!("{first}{trials}{big}")));
    world
}

/// Starts an agent of a job with 400 MiB.
fn agent_of(world: &World, slots: &str) -> Started {
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", slots]);
    command.env("SLURM_JOB_ID", "12").env("SLURM_MEM_PER_NODE", "400");
    command.stderr(
        std::fs::File::options().create(true).append(true).open(world.path("said")).unwrap(),
    );
    Started { child: command.spawn().unwrap() }
}

#[test]
fn the_next_trials_of_chains_do_not_overtake_one_that_waits_for_memory() {
    let link = |chain: u32, w: &str| format!("[[trials]]\ntask_id = {chain}\nw = \"{w}\"\n");
    let chain = |id: u32| ["gate", "next", "last"].map(|w| link(id, w)).concat();
    let world = with_a_big_one(&format!("{}{}", chain(1), chain(2)));
    let mut agent = agent_of(&world, "3");
    wait_until("it waits", || {
        world.read("said").contains("memory is learnt: trial 6 waits for 390M of 400M")
    });
    world.write("go", "");
    assert!(agent.child.wait().unwrap().success());
    let events = world.read("events");
    assert_eq!(events.lines().collect::<Vec<_>>()[..3], ["gate", "gate", "big"], "{events}");
}

#[test]
fn an_idle_agent_gets_what_waits_for_memory_at_another() {
    let world = with_a_big_one("[[trials]]\nw = \"gate\"\n");
    let mut first = agent_of(&world, "2");
    wait_until("it waits", || {
        world.read("said").contains("memory is learnt: trial 1 waits for 390M of 400M")
    });
    let mut second = agent_of(&world, "1");
    wait_until("the other runs it", || {
        world.exists("events") && world.read("events").ends_with("big\n")
    });
    // The first took both and gave the big one back; the second took that.
    let entries = ["take", "back"].map(|event| world.entries("results/s", &format!("\"{event}\"")));
    assert_eq!(entries, [2, 1]);
    world.write("go", "");
    assert!(first.child.wait().unwrap().success() && second.child.wait().unwrap().success());
}
