//! Trials on PBS that wait until they may end.

use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::wait_until;

/// Shell code: says that the trial has begun, and waits until it may end.
pub(crate) const WAIT: &str = "trap 'exit 9' TERM; : >$EVENTS.$HPCSWEEP_TRIAL
    n=0; until [ -e $EVENTS.go.$HPCSWEEP_TRIAL ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.01; done; ";

/// A server with room for so many elements at once.
pub(crate) fn pbs(room: u32) -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs.set("hosts", json!([{"name": "pbsn1", "ncpus": room}]));
    pbs
}

/// A plan of so many single trials that wait until they may end, each with its exit code.
pub(crate) fn plan(codes: &[u32]) -> String {
    let trials: String = codes.iter().map(|code| format!("[[trials]]\ncode = {code}\n")).collect();
    shell(&format!("{WAIT}exit $HPCSWEEP_PARAM_CODE"), &trials)
}

/// Waits until a trial has begun.
#[track_caller]
pub(crate) fn begun(pbs: &Pbs, trial: u32) {
    wait_until(&format!("trial {trial} has begun"), || {
        pbs.world.exists(&format!("events.{trial}"))
    });
}

/// Lets a trial end.
pub(crate) fn go(pbs: &Pbs, trial: u32) {
    pbs.world.write(&format!("events.go.{trial}"), "");
}

/// Lets a trial end, and waits until PBS has seen that.
#[track_caller]
pub(crate) fn end(pbs: &Pbs, trial: u32, element: &str) {
    go(pbs, trial);
    wait_until(&format!("{element} has ended"), || {
        pbs.jobs()
            .get(element)
            .is_none_or(|job| ["X", "F"].iter().any(|state| job["job_state"] == *state))
    });
}

/// The process of the worker that runs a trial now.
pub(crate) fn worker(pbs: &Pbs, trial: u32) -> Pid {
    let files = pbs.world.files("results/s/records/000");
    let own = format!("{trial}.");
    let last = files.iter().rfind(|file| file.starts_with(&own)).unwrap();
    let text = pbs.world.read(&format!("results/s/records/000/{last}"));
    let start: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(start["event"], "start");
    Pid::from_raw(start["pid"].as_i64().unwrap().try_into().unwrap())
}
