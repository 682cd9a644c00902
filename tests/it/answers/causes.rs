//! Causes: each failure is recorded with one word, and shown with the same words everywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::plans::raises;
use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

/// Cause and reason of the first trial of a plan, run by workers and by an agent.
fn causes(prepare: impl Fn(&World), plan: &str) -> [(String, String); 2] {
    ["--local", "--pull"].map(|how| {
        let world = World::new();
        prepare(&world);
        world.write("plan.toml", plan);
        match how {
            "--local" => world.run(&["submit", "plan.toml", "--local", "-q"]),
            _ => world.run(&["worker", "--pull", "plan.toml"]),
        };
        let trial = world.status()["trials"][0].clone();
        let text = |name: &str| trial[name].as_str().unwrap_or_default().to_owned();
        (text("cause"), text("reason"))
    })
}

fn check(plan: &str, cause: &str, reason: &str) {
    for (found, words) in causes(|_| (), plan) {
        assert_eq!((&*found, &*words), (cause, reason), "{plan}");
    }
}

#[test]
fn a_failure_is_named_by_how_the_program_ended() {
    check(&shell("exit 3", ""), "exit-code", "exit code 3");
    check(&shell("kill -SEGV $$", ""), "signal", "signal 11 (SIGSEGV)");
    let own = "echo the loss is not a number >$HPCSWEEP_REASON; exit 3";
    check(&shell(own, ""), "exit-code", "exit code 3: the loss is not a number");
    check(&shell("exit 0", ""), "", "");
}

#[test]
fn a_failure_is_named_by_the_end_of_its_log() {
    let said = |words: &str| format!("{words} (from its log)");
    for (words, cause) in [
        ("ModuleNotFoundError: No module named 'foo'", "exception"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "cuda-out-of-memory",
        ),
        ("MemoryError", "out-of-memory"),
        ("OSError: [Errno 122] Disk quota exceeded: 'a'", "quota"),
    ] {
        check(&shell(&raises(words), ""), cause, &said(words));
    }
    let full = "cp: error writing: No space left on device";
    check(&shell(&format!("echo {full}; exit 1"), ""), "disk-full", &said(full));
    // What a program prints before it succeeds is not read.
    check(&shell(&format!("echo {full}"), ""), "", "");
}

#[test]
fn what_did_not_start_says_what_is_missing() {
    let command =
        |command: &str| format!("version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = {command}\n");
    let file = |bytes: &'static [u8], mode: u32| {
        move |world: &World| {
            fs::write(world.path("run"), bytes).unwrap();
            fs::set_permissions(world.path("run"), fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let nothing = file(b"", 0o755);
    for (found, _) in causes(nothing, &command("[\"./nothing\"]")) {
        assert_eq!(found, "command-not-found");
    }
    for (bytes, mode, cause) in [
        (&b"#!/bin/sh\r\necho\r\n"[..], 0o755, "bad-interpreter"),
        (b"#!/opt/none/bash\n", 0o755, "bad-interpreter"),
        (b"#!/bin/sh\n", 0o644, "permission"),
        (b"\x7fELF of another machine\n", 0o755, "exec-format"),
    ] {
        for (found, reason) in causes(file(bytes, mode), &command("[\"./run\"]")) {
            assert_eq!(found, cause, "{reason}");
        }
    }
    let unknown = shell("no-such-program", "");
    for (found, reason) in causes(|_| (), &unknown) {
        assert!(found == "command-not-found" && reason.contains("no-such-program"), "{reason}");
    }
    let setup = "setup = [\"source nope.sh\"]\n";
    let reason = "exit code 1: the set-up failed at: source nope.sh";
    check(&shell("touch ran", setup), "set-up", reason);
}

#[test]
fn the_time_and_the_rest_of_a_chain_are_causes() {
    let plan = shell("sleep 600", "[resources]\nwalltime = \"1s\"\n[zip]\na = [1, 2]\n")
        .replace("[run]", "[defaults]\ntask_id = \"t\"\n[run]");
    let world = World::new();
    world.local(&plan, &[]);
    let status = world.status();
    let of = |trial: usize| status["trials"][trial]["cause"].clone();
    assert_eq!([of(0), of(1)], ["walltime", "chain-stopped"], "{status}");
}

#[test]
fn the_rank_that_failed_first_is_the_cause_with_its_own_words() {
    let world = World::new();
    let raises = raises("ValueError: no");
    let code = format!(
        "if [ $RANK = 2 ]; then {raises}; fi; trap 'exit 9' TERM; while :; do sleep 0.05; done"
    );
    world.local(&(shell(&code, "") + "[resources]\nranks = 3\n"), &[]);
    let trial = world.status()["trials"][0].clone();
    assert_eq!(trial["cause"], "exception", "{trial}");
    let reason = trial["reason"].as_str().unwrap();
    let is_it =
        reason.starts_with("rank 2 on ") && reason.ends_with(": ValueError: no (from its log)");
    assert!(is_it, "{reason}");
}

#[test]
fn every_table_has_the_cause() {
    let world = World::new();
    let code = "[ $HPCSWEEP_PARAM_A = 1 ] || exit 3";
    world.local(&shell(code, "[grid]\na = [1, 2]\n"), &[]);
    let lines = |args: &[&str]| -> Vec<Value> {
        let out = world.run(args).ok().to_owned();
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for format in ["jsonl", "records"] {
        let rows = lines(&["collect", "--format", format]);
        assert_eq!((&rows[0]["cause"], &rows[1]["cause"]), (&Value::Null, &"exit-code".into()));
    }
    let head = world.run(&["collect", "--format", "csv"]).ok().lines().next().unwrap().to_owned();
    assert!(head.starts_with("trial,task_id,link,state,cause,exit_code,"), "{head}");
}

#[test]
fn status_groups_the_failures_with_what_to_read_and_what_to_do() {
    let world = World::new();
    let import = raises("ModuleNotFoundError: No module named 'foo'");
    let code = format!(
        "case $HPCSWEEP_PARAM_A in 1|3|4) {import};; 2) exit 3;; 5) echo no {{}} >$HPCSWEEP_REASON; exit 1;; 6) exit 0;; esac; \
         echo bad value $HPCSWEEP_PARAM_A in /tmp/x$HPCSWEEP_PARAM_A >$HPCSWEEP_REASON; exit 1"
    );
    world.local(&shell(&code, "[grid]\na = [0, 1, 2, 3, 4, 5, 6, 7]\n"), &["-q"]);
    let shown = world.run(&["status"]).out;
    let from = shown.find("7 trials without").unwrap_or_else(|| panic!("{shown}"));
    let expected = "\
7 trials without success:
  3 x ModuleNotFoundError: No module named 'foo' (from its log) (trials 1, 3-4)
    what trial 1 printed: hpcsweep logs 1
  2 x exit code 1: bad value 0 in /tmp/x0 (trials 0, 7; others have other numbers or paths)
    what trial 0 printed: hpcsweep logs 0
  1 x exit code 3 (trial 2)
    what trial 2 printed: hpcsweep logs 2
  1 x exit code 1: no {} (trial 5)
    what trial 5 printed: hpcsweep logs 5
to run them again: hpcsweep submit plan.toml --local --retry
";
    assert_eq!(&shown[from..], expected);
}

#[test]
fn what_ends_an_agent_is_the_cause_of_the_attempts_that_it_ends() {
    let world = World::new();
    let code = "echo >>begun; exec sleep 1000";
    world.write("plan.toml", &shell(code, "[pull]\nlease = 0.6\n"));
    let agent = ["worker", "--pull", "plan.toml", "--slots", "1"];
    for (n, signal) in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL].into_iter().enumerate() {
        let started = world.start(&agent);
        wait_until("it has begun", || {
            world.exists("begun") && world.read("begun").lines().count() == n + 1
        });
        started.signal(signal);
        started.end(&world);
    }
    world.run(&[&agent[..], &["--time-left", "17s"]].concat());
    let why = world.run(&["why", "0", "--json"]).ok().to_owned();
    let sight: Value = serde_json::from_str(&why).unwrap();
    let causes = sight["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["cause"]);
    let expected = ["stopped", "cancelled", "worker-lost", "allocation-ended"];
    assert_eq!(causes.collect::<Vec<_>>(), expected, "{why}");
}

#[test]
fn a_working_folder_that_is_gone_is_named() {
    let plan = shell("exit 0", "workdir = \"gone\"\n");
    for (found, reason) in causes(|_| (), &plan) {
        assert!(reason.contains("gone` does not exist"), "{reason}");
        assert_eq!(found, "tree-unreachable");
    }
}
