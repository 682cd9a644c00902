//! A PBS that takes arrays of two, and what must hold there: every array is asked for once.

use std::collections::BTreeSet;

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::{ROOT, World};

/// A server that takes arrays of two, and a profile that waits no longer than a test likes.
pub(crate) fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs.world.write("events", "");
    pbs.set("max_array_size", 2);
    pbs.site(&limits(60));
    pbs
}

/// A profile in which calls are given up after so many seconds.
fn limits(call_timeout_s: u32) -> String {
    format!("[limits]\nsettle_s = 1\ncall_timeout_s = {call_timeout_s}\n")
}

/// The next call of `qsub` meets this fault. One that hangs is given up soon.
pub(crate) fn meet(pbs: &mut Pbs, fault: &str) {
    pbs.set("qsub_fault_count", 1);
    pbs.set("qsub_fault", fault);
    if fault == "hang" {
        pbs.site(&limits(3));
    }
}

/// A sweep of so many single trials, each of which appends its number to a file in one write.
pub(crate) fn plan(name: &str, trials: u32) -> String {
    let numbers: Vec<String> = (0..trials).map(|n| n.to_string()).collect();
    let rest = format!("[grid]\na = [{}]\n", numbers.join(", "));
    shell("echo $HPCSWEEP_TRIAL >>$EVENTS", &rest).replace("\"s\"", &format!("\"{name}\""))
}

/// Nothing is left to do, every array was asked for once, and every trial has run once.
#[track_caller]
pub(crate) fn check(pbs: &Pbs, trials: u32) {
    pbs.wait_idle();
    let events = pbs.world.read("events");
    let mut ran: Vec<u32> = events.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..trials).collect::<Vec<_>>(), "{events}");
    let names = pbs.names();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    assert_eq!(pbs.standings(), vec!["done"; trials as usize]);
}

/// Puts shell code in front of a client of PBS; it ends with `real "$@"`, or without.
pub(crate) fn wrap(world: &World, client: &str, code: &str) {
    let text = format!("#!/bin/bash\nreal() {{ {ROOT}/tests/pbs/bin/{client} \"$@\"; }}\n{code}\n");
    world.program(client, &text);
}

/// Code that kills the submission before or after the call of this number.
pub(crate) fn killer(number: u32, before: bool) -> String {
    let count = "echo \"$*\" >>$EVENTS.calls; [ $(wc -l <$EVENTS.calls) -eq NUMBER ]";
    let count = count.replace("NUMBER", &number.to_string());
    if before {
        format!("if {count}; then kill -9 $PPID; exit 1; fi; real \"$@\"")
    } else {
        format!("real \"$@\"; code=$?; if {count}; then kill -9 $PPID; fi; exit $code")
    }
}
