//! Causes on PBS: those of programs are the same as under agents and on this machine; those that PBS makes have a word each.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::pbs::Pbs;
use crate::support::pbs_waiting::worker;
use crate::support::plans::raises;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Cause and reason of each trial of the one sweep.
fn causes(world: &World) -> Vec<(String, String)> {
    let status = world.status();
    let text = |trial: &Value, name: &str| trial[name].as_str().unwrap_or_default().to_owned();
    let trials = status["trials"].as_array().unwrap().iter();
    trials.map(|trial| (text(trial, "cause"), text(trial, "reason"))).collect()
}

/// The causes of a plan's trials on PBS, which are those under agents and on this machine, with the same words.
fn everywhere(prepare: impl Fn(&World), plan: &str) -> Vec<String> {
    let pbs = Pbs::start();
    prepare(&pbs.world);
    pbs.submit(plan, &[]).ok();
    pbs.wait_idle();
    let own = causes(&pbs.world);
    for how in [["submit", "plan.toml", "--local"], ["worker", "--pull", "plan.toml"]] {
        let world = World::new();
        prepare(&world);
        world.write("plan.toml", plan);
        world.run(&how);
        assert_eq!(causes(&world), own, "{how:?}");
    }
    own.into_iter().map(|(cause, _)| cause).collect()
}

#[test]
fn what_ends_a_program_has_the_same_cause_on_pbs_under_agents_and_here() {
    let cases = [
        ("exit 3".to_owned(), "exit-code"),
        ("echo the loss is not a number >$HPCSWEEP_REASON; exit 3".to_owned(), "exit-code"),
        ("kill -SEGV $$".to_owned(), "signal"),
        (raises("ValueError: no"), "exception"),
        (raises("MemoryError"), "out-of-memory"),
        (raises("torch.OutOfMemoryError: CUDA out of memory."), "cuda-out-of-memory"),
        (raises("OSError: [Errno 122] Disk quota exceeded: a"), "quota"),
        (raises("OSError: [Errno 28] No space left on device"), "disk-full"),
        (raises("torch.distributed.DistStoreError: client socket has timed out"), "rendezvous"),
        (raises("hpcsweep.SyncError: the ranks disagree on the shape"), "sync-mismatch"),
        ("no-such-program".to_owned(), "command-not-found"),
        ("./locked".to_owned(), "permission"),
    ];
    let code: Vec<String> =
        cases.iter().enumerate().map(|(n, (code, _))| format!("{n}) {code} ;;")).collect();
    let numbers: Vec<String> = (0..cases.len()).map(|n| n.to_string()).collect();
    let code = format!("case $HPCSWEEP_PARAM_A in {} esac", code.join("\n"));
    let plan =
        shell(&code, &format!("[pull]\nbreaker = false\n[grid]\na = [{}]\n", numbers.join(", ")));
    let prepare = |world: &World| world.write("locked", "#!/bin/sh\n");
    assert_eq!(everywhere(prepare, &plan), cases.map(|(_, cause)| cause));
}

#[test]
fn what_does_not_start_has_the_same_cause_on_pbs_under_agents_and_here() {
    let files: [(&str, &[u8], u32, &str); 4] = [
        ("crlf", b"#!/bin/sh\r\necho\r\n", 0o755, "bad-interpreter"),
        ("none", b"#!/opt/none/bash\n", 0o755, "bad-interpreter"),
        ("locked", b"#!/bin/sh\n", 0o644, "permission"),
        ("elf", b"\x7fELF of another machine\n", 0o755, "exec-format"),
    ];
    let prepare = |world: &World| {
        for (name, bytes, mode, _) in files {
            fs::write(world.path(name), bytes).unwrap();
            fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let plan = "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"./{{ a }}\"]\n[pull]\nbreaker = false\n\
        max_errors = 99\n[grid]\na = [\"crlf\", \"none\", \"locked\", \"elf\"]\n";
    assert_eq!(everywhere(prepare, plan), files.map(|(.., cause)| cause));
    let setup = shell("touch ran", "setup = [\"source nope.sh\"]\n");
    assert_eq!(everywhere(|_| (), &setup), ["set-up"]);
    let chain = "[[trials]]\ntask_id = 0\na = 0\n[[trials]]\ntask_id = 0\na = 1\n";
    assert_eq!(everywhere(|_| (), &shell("exit 3", chain)), ["exit-code", "chain-stopped"]);
}

#[test]
fn what_ends_a_trial_from_outside_has_its_cause_on_pbs() {
    let mut pbs = Pbs::start();
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    let code = ": >$HPCSWEEP_SWEEP_DIR/begun.$HPCSWEEP_TRIAL
        case $HPCSWEEP_PARAM_A in 3) [ $HPCSWEEP_ATTEMPT = 1 ] || exit 0 ;; esac
        while :; do sleep 0.05; done";
    let rest = "[[trials]]\na = 0\n[trials.resources]\nwalltime = \"3s\"\n[[trials]]\na = 1\n[[trials]]\na = 2\n\
        [[trials]]\na = 3\n";
    pbs.submit(&shell(code, rest), &[]).ok();
    for trial in 0..4 {
        let begun = format!("results/s/begun.{trial}");
        wait_until("all have begun", || pbs.world.exists(&begun));
    }
    let why = |trial: &str| pbs.world.run(&["why", trial, "--json"]).ok().to_owned();
    let job = |trial: &str| {
        let sight: Value = serde_json::from_str(&why(trial)).unwrap();
        sight["attempts"][0]["job"].as_str().unwrap().to_owned()
    };
    pbs.world.run(&["cancel", "1"]).ok();
    let lost = worker(&pbs, 2);
    nix::sys::signal::kill(lost, nix::sys::signal::Signal::SIGKILL).unwrap();
    pbs.world.call("qrerun", &[&job("3")]).ok();
    pbs.wait_idle();
    let all: Vec<String> = causes(&pbs.world).into_iter().map(|(cause, _)| cause).collect();
    assert_eq!(all, ["walltime", "cancelled", "worker-lost", ""], "{:?}", causes(&pbs.world));
    let sight: Value = serde_json::from_str(&why("3")).unwrap();
    assert_eq!(sight["attempts"][0]["cause"], "requeued", "{sight}");
}
