//! What programs learn of the time that is left: the deadline, and a signal some seconds before it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::World;

/// A program that records its deadline and the signals that each rank has got, and ends when it is asked to. A
/// process that it has started records the signal as well.
const PROGRAM: &str = "me=$HPCSWEEP_TRIAL.$HPCSWEEP_ATTEMPT.${RANK:-0}
echo $HPCSWEEP_DEADLINE >deadline.$me
trap 'echo USR1 >>events.$me' USR1; trap 'echo TERM >>events.$me; exit 3' TERM
(trap 'echo USR1 >>child.$me; exit' USR1; while :; do sleep 100 & wait; done) &
while :; do sleep 100 & wait; done";

const SIGNAL: &str = "signal = \"USR1@1\"\n";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Checks that all of these ranks have got the signal once, before their end, and that their deadline was at most so many
/// seconds after their start.
fn check(world: &World, began: u64, names: &[&str], walltime_s: u64) {
    for name in names {
        assert_eq!(world.read(&format!("events.{name}")), "USR1\nTERM\n", "{name}");
        assert_eq!(world.read(&format!("child.{name}")), "USR1\n", "{name}");
        let deadline: u64 = world.read(&format!("deadline.{name}")).trim().parse().unwrap();
        assert!((began..=now()).contains(&deadline), "{name}: {deadline}");
        assert!(deadline <= now() && deadline + 1 >= began + walltime_s, "{name}: {deadline}");
    }
}

#[test]
fn every_rank_gets_the_signal_once_before_its_deadline() {
    let world = World::new();
    let rest = format!("{SIGNAL}[resources]\nwalltime = \"5s\"\nranks = 2\n");
    let began = now();
    world.local(&shell(PROGRAM, &rest), &[]);
    check(&world, began, &["0.1.0", "0.1.1"], 5);
    assert_eq!(world.status()["trials"][0]["state"], "timeout");
}

#[test]
fn each_attempt_of_an_agent_has_its_own_deadline_and_signal() {
    let world = World::new();
    // The first attempt fails when it gets the signal.
    let code = PROGRAM
        .replace(">>events.$me' USR1", ">>events.$me; [ $HPCSWEEP_ATTEMPT = 2 ] || exit 4' USR1");
    let rest =
        format!("attempts = 2\n{SIGNAL}[resources]\nwalltime = \"5s\"\n[pull]\nbackoff = 0.05\n");
    world.write("plan.toml", &shell(&code, &rest));
    let began = now();
    world.run(&["worker", "--pull", "plan.toml"]);
    assert_eq!(world.read("events.0.1.0"), "USR1\n");
    check(&world, began, &["0.2.0"], 5);
    assert_eq!(world.status()["trials"][0]["state"], "timeout");
}

#[test]
fn each_trial_of_a_packed_element_has_its_own_deadline_and_signal() {
    let pbs = pbs();
    // Two of the five seconds are the reserve.
    let rest = "[resources]\nwalltime = \"5s\"\n[schedule]\npack = 2\n[grid]\na = [0, 1]\n";
    let began = now();
    pbs.submit(&shell(PROGRAM, &format!("{SIGNAL}{rest}")), &[]).ok();
    pbs.wait_idle();
    check(&pbs.world, began, &["0.1.0", "1.1.0"], 3);
    assert_eq!(pbs.standings(), ["timeout: the wall-clock limit was reached"; 2]);
}

#[test]
fn a_program_that_leaves_with_0_at_the_signal_has_not_finished_unless_it_says_so() {
    for (says, state) in [("", "timeout"), ("echo 7 >$HPCSWEEP_RESULT; ", "done")] {
        let code = format!("trap '{says}exit 0' USR1; while :; do sleep 100 & wait; done");
        for args in
            [&["submit", "plan.toml", "--local", "-q"][..], &["worker", "--pull", "plan.toml"]]
        {
            let world = World::new();
            let rest = "signal = \"USR1@2\"\n[resources]\nwalltime = \"5s\"\n";
            world.write("plan.toml", &shell(&code, rest));
            world.run(args);
            assert_eq!(world.column("state"), [format!("\"{state}\"")], "{args:?}");
        }
    }
}

#[test]
fn a_program_that_begins_too_late_for_the_signal_gets_none() {
    let world = World::new();
    // The first attempt ends by the signal, which would kill the second: that does not handle it.
    let code = "[ $HPCSWEEP_ATTEMPT = 1 ] || exec sleep 0.2; trap 'echo USR1 >>events; exit 1' USR1
        while :; do sleep 100 & wait; done";
    let rest = "attempts = 2\nsignal = \"SIGUSR1@2\"\n[resources]\nwalltime = \"6s\"\n";
    world.local(&shell(code, rest), &[]).ok();
    assert_eq!(world.read("events"), "USR1\n");
    assert_eq!(world.column("state"), ["\"done\""]);
    assert_eq!(world.column("attempts"), ["2"]);
}

#[test]
fn a_program_without_a_limit_has_no_deadline() {
    let python = "python3 -S -c 'import hpcsweep; print(hpcsweep.time_left())' >left; \
                  echo ${HPCSWEEP_DEADLINE-unset} >deadline";
    let world = World::new();
    world.local(&shell(python, ""), &[]).ok();
    assert_eq!((&*world.read("deadline"), &*world.read("left")), ("unset\n", "None\n"));

    let world = World::new();
    world.local(&shell(python, "[resources]\nwalltime = \"10m\"\n"), &[]).ok();
    let left: f64 = world.read("left").trim().parse().unwrap();
    assert!(left > 0.0 && left <= 600.0, "{left}");
}
