//! Faults of agents: they are killed while they create the queue, or considered dead while they live. Trials
//! kill their agent or leave processes behind.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::agents::{SAYS, SHORT, begun, counts, plan, start, world};
use crate::support::faults::rounds;
use crate::support::faults::{Dice, children};
use crate::support::world::{PROGRAM, Ran, Started, World, wait_until};

/// Starts agents one after the other until one has ended by itself; how many were killed.
fn agents_until_done(world: &World, slots: &str) -> u32 {
    for killed in 0..20 {
        let ran = start(world, slots).end(world);
        if ran.code != 137 {
            assert!(ran.code <= 1, "{}", ran.whole());
            return killed;
        }
    }
    panic!("it kills agents for ever: {}", counts(world));
}

#[test]
fn a_plan_is_laid_down_whole_or_not_at_all() {
    const ALL: u64 = 20_000;
    let more = "[pull]\ntime_request = \"2h\"\n";
    let world = world(&plan("true", ALL as usize, more));
    // No time for a trial: the agent creates the queue and leaves.
    let args = ["worker", "--pull", "plan.toml", "--time-left", "1h"];
    let since = Instant::now();
    world.run(&args).ok();
    let mut whole = since.elapsed();
    let text = world.read("plan.toml");
    let mut dice = Dice(0x8CB9_2BA7_2F3D_8DD7);
    let mut hits = 0;
    for number in 0..rounds(2) {
        let name = format!("p{number}");
        world.write("plan.toml", &text.replace("\"p\"", &format!("\"{name}\"")));
        let total = |world: &World| {
            if !world.exists(&format!("results/{name}/sweep.json")) {
                return None;
            }
            let status = world.run(&["status", "--json", "--offline", &format!("results/{name}")]);
            assert!(status.code <= 1, "{}", status.whole());
            let status: Value = serde_json::from_str(&status.out).unwrap();
            status["trials_total"].as_u64()
        };
        // The second agent meets what the first has left, and may be killed in the middle of that.
        for _ in 0..2 {
            let mut started = world.start(&args);
            std::thread::sleep(whole.mul_f64(dice.below(1000) as f64 / 1000.0));
            let is_hit = matches!(started.child.try_wait(), Ok(None));
            let _ = started.child.kill();
            started.child.wait().unwrap();
            if is_hit {
                hits += 1;
            } else {
                // Faster than the first one was, on a machine that others use too.
                whole /= 2;
            }
            let seen = total(&world);
            assert!([None, Some(0), Some(ALL)].contains(&seen), "{seen:?} trials");
        }
        world.run(&args).ok();
        assert_eq!(total(&world), Some(ALL));
        let deck: Value =
            serde_json::from_str(&world.read(&format!("results/{name}/pull/0001.json"))).unwrap();
        assert_eq!((&deck["count"], &deck["trials"]), (&ALL.into(), &ALL.into()));
        assert!(!world.exists(&format!("results/{name}/pull/0002.json")));
        fs::remove_dir_all(world.path(&format!("results/{name}"))).unwrap();
    }
    assert!(hits > 0, "no kill hit");
}

#[test]
fn many_agents_take_over_the_plan_of_one_that_was_killed() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for _ in 0..rounds(2) {
        let world = world(&plan("echo $HPCSWEEP_TRIAL >>$EVENTS", 200, ""));
        let mut first = start(&world, "1");
        std::thread::sleep(Duration::from_millis(dice.below(25)));
        first.child.kill().unwrap();
        drop(first);
        let all: Vec<Started> = (0..24).map(|_| start(&world, "1")).collect();
        let ran: Vec<Ran> = all.into_iter().map(|agent| agent.end(&world)).collect();
        for ran in &ran {
            assert_eq!(ran.code, 0, "{}", ran.whole());
        }
        assert_eq!(counts(&world), r#"{"done":200}"#);
        let mut decks = world.files("results/p/pull");
        // All readers ignore the file that the first one was about to write when it was killed.
        decks.retain(|name| !name.starts_with('.'));
        assert_eq!(decks, ["0001.json", "0001.map"]);
        // One that was killed in the middle of a trial would have it run again.
        assert_eq!(begun(&world).len(), 200);
        assert!(begun(&world).values().sum::<u32>() <= 201, "{:?}", begun(&world));
    }
}

#[test]
fn an_agent_runs_what_a_plan_brings_that_grew_by_a_little() {
    let more = "[pull]\ntime_request = \"2h\"\n";
    let world = world(&plan(SAYS, 6, more));
    world.write("events.wait", "");
    let agent = start(&world, "1");
    wait_until("it has begun", || begun(&world).len() == 1);
    world.write("plan.toml", &plan(SAYS, 8, more));
    // The agent that enqueues the plan has no time for its trials.
    let ran = world.run(&["worker", "--pull", "plan.toml", "--time-left", "1h"]);
    assert!(ran.err.starts_with("p: 2 trials in 2 units for agents\n"), "{}", ran.whole());
    fs::remove_file(world.path("events.wait")).unwrap();
    let ran = agent.end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(begun(&world).into_values().collect::<Vec<_>>(), [1; 8]);
}

#[test]
fn an_agent_that_waits_to_begin_anew_hears_signals() {
    let more = format!("[schedule]\nmax_running = 1\n{SHORT}");
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let world = world(&plan(SAYS, 2, &more));
        world.write("events.wait", "");
        let mut command = world.command(PROGRAM);
        let said = fs::File::create(world.path("said")).unwrap();
        command.args(["worker", "--pull", "plan.toml", "--slots", "1"]).stderr(said);
        let mut first = Started { child: command.spawn().unwrap() };
        wait_until("it has begun", || begun(&world).len() == 1);
        first.signal(Signal::SIGSTOP);
        let second = start(&world, "1");
        wait_until("the other has its place", || begun(&world).len() == 2);
        first.signal(Signal::SIGCONT);
        wait_until("it waits", || world.read("said").contains("leaves no slot"));
        first.signal(signal);
        assert_eq!(first.child.wait().unwrap().code(), Some(code), "{}", world.read("said"));
        fs::remove_file(world.path("events.wait")).unwrap();
        assert_eq!(second.end(&world).code, 0);
        assert_eq!(counts(&world), r#"{"done":2}"#);
    }
}

#[test]
fn an_agent_begins_anew_when_there_is_room_for_it_again() {
    let more = format!("[schedule]\nmax_running = 1\n{SHORT}");
    let world = world(&plan(SAYS, 2, &more));
    world.write("events.wait", "");
    let first = start(&world, "1");
    wait_until("it has begun", || begun(&world).len() == 1);
    first.signal(Signal::SIGSTOP);
    let second = start(&world, "1");
    wait_until("the other has its place", || begun(&world).len() == 2);
    first.signal(Signal::SIGCONT);
    // The other dies, and its place is free after its lease.
    second.signal(Signal::SIGKILL);
    second.end(&world);
    fs::remove_file(world.path("events.wait")).unwrap();
    let ran = first.end(&world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert_eq!(counts(&world), r#"{"done":2}"#);
}

#[test]
fn a_trial_that_kills_its_agents_is_given_up_and_the_others_are_not() {
    for slots in ["1", "4"] {
        // The others are at it when the fatal one strikes, more than once.
        let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
            [ $HPCSWEEP_TRIAL != 2 ] || kill -9 $PPID; sleep 0.3";
        let world = world(&plan(code, 6, SHORT));
        assert_eq!(agents_until_done(&world, slots), 3);
        assert_eq!(counts(&world), r#"{"done":5,"failed":1}"#, "{slots} slots");
        let why = world.status()["trials"][2]["reason"].clone();
        assert_eq!(why, "its agent or machine was lost 3 times");
        assert_eq!(begun(&world)[&2], 3);
        assert_eq!(world.column("attempts")[2], "3");
        assert_eq!(world.status()["trials"][2]["attempts"], 3);
    }
}

#[test]
fn what_a_trial_leaves_behind_ends_with_it_or_with_its_agent() {
    // A daemon that keeps the mark of its slot, and one that hides by an empty environment.
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; setsid sleep 1000 & echo $! >>marked
        env -i setsid sleep 1000 & echo $! >>hidden
        if [ $HPCSWEEP_TRIAL = 0 ]; then sleep 600 & echo $! >own; wait $!; fi";
    let world = world(&plan(code, 4, SHORT));
    let agent = start(&world, "2");
    wait_until("all have begun", || begun(&world).len() == 4 && world.exists("own"));
    let pids =
        |file: &str| -> Vec<String> { world.read(file).lines().map(str::to_owned).collect() };
    let lives = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    // Those of the trials that have ended are gone, those of the other slot are not.
    wait_until("marked ones of ended trials are gone", || {
        pids("marked").iter().filter(|pid| lives(pid)).count() == 1
    });
    assert!(pids("own").iter().all(lives));
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.end(&world).code, 143);
    for file in ["marked", "own", "hidden"] {
        wait_until(file, || !pids(file).iter().any(lives));
    }
}

#[test]
fn what_an_agent_that_was_killed_leaves_behind_ends_with_the_one_that_takes_over() {
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS
        if mkdir first 2>/dev/null; then setsid sleep 1000 & echo $! >left; wait; fi";
    let world = world(&plan(code, 1, SHORT));
    let agent = start(&world, "1");
    wait_until("it has begun", || world.exists("left") && !world.read("left").is_empty());
    // Together with its guard, as the kernel does where memory is short.
    for pid in children(agent.pid().as_raw()) {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if line.contains("--guard") {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        }
    }
    agent.signal(Signal::SIGKILL);
    agent.end(&world);
    let pid = world.read("left").trim().to_owned();
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    assert!(lives());
    assert_eq!(start(&world, "1").end(&world).code, 0);
    wait_until("it is gone", || !lives());
    assert_eq!(counts(&world), r#"{"done":1}"#);
}

#[test]
fn what_an_agent_that_was_killed_leaves_behind_ends_with_it() {
    // One in the group of its program, and one in its own session; no agent takes over.
    let code = "setsid sleep 1000 & echo $! >>left; sleep 1000 & echo $! >>left; : >all; wait";
    let world = world(&plan(code, 1, ""));
    let agent = start(&world, "1");
    wait_until("it has begun", || world.exists("all"));
    agent.signal(Signal::SIGKILL);
    agent.end(&world);
    let lives = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    let left = world.read("left");
    assert_eq!(left.lines().count(), 2);
    wait_until("they are gone", || !left.lines().any(lives));
}

#[test]
fn a_command_that_may_not_be_run_fails_its_trials_and_spares_the_agent() {
    use std::os::unix::fs::PermissionsExt;
    let world =
        world(&plan("", 16, "").replace("[\"sh\", \"-c\", \"\"]", "[\"./tool-{{ i % 2 }}\"]"));
    // Without a first line that names its interpreter a script is the shell's.
    for (name, mode) in [("tool-0", 0o644), ("tool-1", 0o755)] {
        world.write(name, "echo $HPCSWEEP_TRIAL >>$EVENTS\n");
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let ran = start(&world, "1").end(&world);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    assert!(ran.err.ends_with("agent: 8 done, 8 failed\n"), "{}", ran.whole());
    assert_eq!(counts(&world), r#"{"done":8,"failed":8}"#);
    let why = world.status()["trials"][0]["reason"].clone();
    assert_eq!(why, "cannot start `./tool-0`: permission denied");
    assert_eq!(begun(&world).into_keys().collect::<Vec<_>>(), [1, 3, 5, 7, 9, 11, 13, 15]);
}

/// The lines of the only bundle that has ends, changed.
fn change_bundle(world: &World, change: impl Fn(&str) -> bool) {
    for file in world.files("results/p/agents").iter().filter(|file| file.ends_with(".jsonl")) {
        let name = format!("results/p/agents/{file}");
        let text = world.read(&name);
        // Of as many bytes, as a flipped bit leaves them.
        let lines = text.split_inclusive('\n').map(|line| match change(line) {
            true => line.replacen("\"event\"", "\"evenT\"", 1),
            false => line.to_owned(),
        });
        world.write(&name, &lines.collect::<String>());
    }
}

#[test]
fn trials_whose_ends_are_damaged_are_dealt_anew_by_whoever_comes_with_the_plan() {
    let chain = "[defaults]\ntask_id = \"c{{ i // 2 }}\"\n";
    for (more, lost, again) in [("", "\"trial\":1,", vec![1]), (chain, "\"trial\":2,", vec![2])] {
        for args in [
            &["worker", "--pull", "plan.toml", "--slots", "1"][..],
            &["submit", "plan.toml", "--pull", "--local"],
        ] {
            let world = world(&plan("echo $HPCSWEEP_TRIAL >>$EVENTS", 4, more));
            start(&world, "1").end(&world).ok();
            change_bundle(&world, |line| {
                line.starts_with("{\"event\":\"end\"") && line.contains(lost)
            });
            let ran = world.run(&["status", "results/p"]);
            assert_eq!(ran.code, 1, "{}", ran.whole());
            world.write("events", "");
            let ran = world.run(args);
            assert!(ran.code <= 1, "{}", ran.whole());
            assert_eq!(begun(&world).into_keys().collect::<Vec<_>>(), again);
            assert_eq!(counts(&world), r#"{"done":4}"#);
            // Nothing is left to be enqueued.
            world.write("events", "");
            world.run(args);
            assert_eq!(begun(&world).len(), 0);
        }
    }
}

#[test]
fn what_dead_agents_held_is_dealt_anew_when_the_plan_has_grown_meanwhile() {
    let world = world(&plan(SAYS, 4, SHORT));
    world.write("events.wait", "");
    let mut agents = [start(&world, "1"), start(&world, "1")];
    wait_until("both have begun", || begun(&world).len() == 2);
    for agent in &mut agents {
        agent.child.kill().unwrap();
        agent.child.wait().unwrap();
    }
    fs::remove_file(world.path("events.wait")).unwrap();
    world.write("plan.toml", &plan(SAYS, 6, SHORT));
    start(&world, "2").end(&world).ok();
    assert_eq!(counts(&world), r#"{"done":6}"#);
    assert_eq!(begun(&world).into_keys().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(world.entries("results/p", "\"expire\""), 2);
}
