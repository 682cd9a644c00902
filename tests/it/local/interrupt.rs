//! Ctrl-C, a second executor, and what `status` says while a sweep runs.

use std::fs;

use hpcsweep::base::host::vars;
use hpcsweep::sweep::tree::Tree;
use hpcsweep::sweep::tree::lock::Lock;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::plans::shell;
use crate::support::world::{World, timeless, wait_until};

/// Links of one chain: the first ends, the second waits until it is killed, unless a file lets it continue.
const WAITING: &str =
    "echo $HPCSWEEP_TRIAL.$HPCSWEEP_ATTEMPT >>ran; [ $HPCSWEEP_TRIAL != 1 ] || [ -e go ] && exit 0
    trap 'echo asked to end; exit 3' TERM; : >waiting; sleep 600 & wait";

const CHAIN: &str = "[defaults]\ntask_id = 1\n[grid]\nn = [0, 1, 2]\n";

#[test]
fn an_interrupted_sweep_goes_on_where_it_stopped() {
    for (signal, why) in [
        (Signal::SIGINT, "stopped by Ctrl-C"),
        (Signal::SIGTERM, "the worker got SIGTERM"),
        (Signal::SIGHUP, "the worker got SIGHUP"),
    ] {
        let world = World::new();
        world.write("plan.toml", &shell(WAITING, CHAIN));
        let started = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
        wait_until("trial 1 waits", || world.exists("waiting"));

        // While it runs, its counts add up.
        let status = world.status();
        assert_eq!(status["counts"], json!({"done": 1, "pending": 1, "running": 1}));

        started.signal(signal);
        let ran = started.end(&world);
        assert_eq!(
            timeless(&ran.err),
            format!(
                "\
s: 3 trials to run on this machine, one at a time
[1/3] trial 0 done in _ s (n=0)
stopping: the running trials are asked to end; press again to kill them
[2/3] trial 1 interrupted in _ s (n=1): {why}
s: 1 done, 1 interrupted in _ s
results: $WORLD/results/s
the same command goes on where this one stopped
"
            )
        );
        assert_eq!((ran.code, ran.out.as_str()), (130, ""));
        assert_eq!(world.run(&["logs", "1"]).ok(), "asked to end\n");
        let status = world.status();
        assert_eq!(status["counts"], json!({"done": 1, "interrupted": 1, "pending": 1}));
        assert!(!world.exists("results/s/submit.lock"));

        world.write("go", "");
        let again = world.run(&["submit", "plan.toml", "--local", "-j", "1"]);
        assert!(again.err.starts_with("s: 2 trials to run on this machine"), "{}", again.whole());
        assert_eq!(again.code, 0);
        assert_eq!(world.read("ran"), "0.1\n1.1\n1.2\n2.1\n");
        assert_eq!(world.status()["counts"], json!({"done": 3}));
    }
}

#[test]
fn a_program_that_does_not_want_to_end_is_killed_by_the_second_signal() {
    let world = World::new();
    let code = "trap '' TERM; : >waiting; while :; do sleep 0.05; done";
    world.write("plan.toml", &shell(code, ""));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("the trial waits", || world.exists("waiting"));
    started.signal(Signal::SIGINT);
    wait_until("the stop is recorded", || {
        world.read("results/s/records/000/0.1.jsonl").contains("\"event\":\"stop\"")
    });
    started.signal(Signal::SIGINT);
    let ran = started.end(&world);
    assert_eq!(ran.code, 130, "{}", ran.whole());
    assert_eq!(world.status()["counts"], json!({"interrupted": 1}));
    // Nothing of it is left running.
    wait_until("its program is gone", || {
        let found = world.call("pgrep", &["-f", &world.text_path("results")]);
        !found.out.lines().any(|pid| pid.parse::<i32>().is_ok())
    });
}

#[test]
fn a_sweep_is_run_by_one_executor_at_a_time() {
    let world = World::new();
    world.write("plan.toml", &shell(WAITING, CHAIN));
    let started = world.start(&["submit", "plan.toml", "--local", "-j", "1"]);
    wait_until("trial 1 waits", || world.exists("waiting"));
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(ran.code, 4, "{}", ran.whole());
    let pid = started.child.id();
    assert!(
        ran.err.starts_with(&format!(
            "error: another hpcsweep is changing this sweep: process {pid} on "
        )),
        "{}",
        ran.err
    );
    assert!(
        ran.err.ends_with(
            "\n  $WORLD/results/s/submit.lock\nhint: wait until it has finished, or stop it, and run the same command again\n"
        ),
        "{}",
        ran.err
    );
    started.signal(Signal::SIGINT);
    assert_eq!(started.end(&world).code, 130);
}

#[test]
fn ranks_are_interrupted_together() {
    let world = World::new();
    let code = "trap 'exit 3' TERM; : >here.$RANK; sleep 600 & wait";
    world.write("plan.toml", &(shell(code, "") + "[resources]\nranks = 2\n"));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("both ranks are here", || world.exists("here.0") && world.exists("here.1"));
    started.signal(Signal::SIGINT);
    let ran = started.end(&world);
    assert_eq!(ran.code, 130, "{}", ran.whole());
    assert_eq!(world.status()["counts"], json!({"interrupted": 1}));
    assert!(world.files("tmp").is_empty(), "{:?}", world.files("tmp"));
}

#[test]
fn hold_names_the_process_that_has_the_sweep() {
    let world = World::new();
    world.local(&shell("true", ""), &[]).ok();
    let lock = Lock::take(&Tree::at(&world.path("results/s"))).unwrap();
    let process = format!("process {} on {}", std::process::id(), vars::hostname());
    let runs = format!(
        "error: s is run by a `hpcsweep submit`: {process}\n\
         hint: press Ctrl-C where it runs; its trials end and are recorded\nexit code 2\n"
    );
    assert_eq!(world.run(&["hold"]).whole(), runs);
    let dry = world.run(&["submit", "plan.toml", "--dry-run"]).whole();
    assert!(
        dry.contains(&format!("another hpcsweep is changing this sweep: {process}\n")),
        "{dry}"
    );
    // Before anything of it runs or is submitted.
    for folder in ["journal", "records", "trials"] {
        fs::remove_dir_all(world.path(&format!("results/s/{folder}"))).unwrap();
    }
    let submits = format!(
        "error: s is being submitted by {process}\n\
         hint: wait until it has submitted, and run the same command again; or end that process\nexit code 2\n"
    );
    assert_eq!(world.run(&["hold"]).whole(), submits);
    drop(lock);
}
