//! A trial never runs beside itself, and what befalls a worker's private folder is not the trial's fault.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::world::{PROGRAM, World, wait_until};

/// Waits until `go` exists, the first time it is called.
const WAITS: &str = "echo $$ >>ran; while [ ! -e go ]; do sleep 0.01; done";

/// A second worker of trial 0, as a retry or a requeue starts it.
fn second(world: &World, job: &str) -> Child {
    let mut command: Command = world.command(PROGRAM);
    command.args(["worker", "--sweep", "results/s", "--trial", "0"]);
    command.env("PBS_JOBID", job).spawn().unwrap()
}

/// Changes the event with which the trial's first run began, and takes away all that came after it.
fn forge(world: &World, change: impl Fn(&mut Value)) {
    let path = world.path("results/s/records/000/0.1.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut event: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    event.as_object_mut().unwrap().remove("crc");
    change(&mut event);
    fs::write(&path, hpcsweep::sweep::tree::line::seal(&event).unwrap()).unwrap();
}

/// Waits until a process does nothing but wait.
fn rests(child: &Child) {
    let mut in_a_row = 0;
    wait_until("it rests", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        in_a_row = if stat.contains("(hpcsweep) S") { in_a_row + 1 } else { 0 };
        in_a_row == 20
    });
}

#[test]
fn a_worker_waits_for_the_end_of_another_run_of_its_trial() {
    let world = World::new();
    world.write("plan.toml", &shell(WAITS, ""));
    let started = world.start(&["submit", "plan.toml", "--local", "-q"]);
    wait_until("the first run waits", || world.exists("ran"));
    let mut second = second(&world, "7.srv");
    rests(&second);
    world.write("go", "");
    assert_eq!(started.end(&world).code, 0);
    assert!(second.wait().unwrap().success(), "the trial is done, and it has nothing to do");
    assert_eq!(world.read("ran").lines().count(), 1);
    assert_eq!(world.column("attempts"), ["1"]);
}

/// The record of a run is there a moment before it says that it has begun.
#[test]
fn a_run_that_has_not_recorded_its_start_yet_is_waited_for() {
    let world = World::new();
    world.write("plan.toml", &shell(WAITS, ""));
    let started = world.start(&["submit", "plan.toml", "--local", "-q"]);
    wait_until("the first run waits", || world.exists("ran"));
    let record = "results/s/records/000/0.1.jsonl";
    let begun = world.read(record);
    world.write(record, "");
    let mut second = second(&world, "7.srv");
    wait_until("the second run has a record", || world.exists("results/s/records/000/0.2.jsonl"));
    world.write(record, &begun);
    rests(&second);
    world.write("go", "");
    assert_eq!(started.end(&world).code, 0);
    assert!(second.wait().unwrap().success());
    assert_eq!(world.read("ran").lines().count(), 1);
}

/// A run elsewhere is alive while it stamps its record, be it of another job or of the same one, which a scheduler requeues
/// while it cannot reach the node.
#[test]
fn a_run_on_another_host_is_alive_while_it_stamps_its_record() {
    for job in ["6.srv", "7.srv"] {
        let world = World::new();
        world.write("go", "");
        world.local(&shell(WAITS, ""), &["-q"]).ok();
        // The record of a worker on another host that was killed a minute ago.
        forge(&world, |start| {
            start["host"] = json!("elsewhere");
            start["job"] = json!(job);
        });
        let record = world.path("results/s/records/000/0.1.jsonl");
        let stamp = |ago: u64| {
            let time = SystemTime::now() - Duration::from_secs(ago);
            fs::File::options().append(true).open(&record).unwrap().set_modified(time).unwrap();
        };
        stamp(30);
        let mut waiting = second(&world, "7.srv");
        rests(&waiting);
        // After 30 s without a stamp the run may be alive, after a minute it is dead.
        assert_eq!(world.read("ran").lines().count(), 1);
        stamp(60);
        assert!(waiting.wait().unwrap().success());
        assert_eq!(world.read("ran").lines().count(), 2);
        assert_eq!(world.status()["counts"], json!({"done": 1}));
    }
}

#[test]
fn a_worker_that_waits_for_another_run_hears_a_signal() {
    let world = World::new();
    world.write("plan.toml", &shell(WAITS, ""));
    let started = world.start(&["submit", "plan.toml", "--local", "-q"]);
    wait_until("the first run waits", || world.exists("ran"));
    let mut second = second(&world, "7.srv");
    rests(&second);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(second.id().cast_signed()), Signal::SIGTERM)
        .unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(143));
    world.write("go", "");
    assert_eq!(started.end(&world).code, 0);
}

#[test]
fn a_private_folder_that_is_removed_costs_no_attempt() {
    // A program that cleans up too much the first time, and ends well or not.
    for code in [0, 1] {
        let world = World::new();
        let steals = format!(
            "echo $HPCSWEEP_ATTEMPT >>ran; echo '{{\"loss\": 1}}' >>$HPCSWEEP_METRICS; echo 7 >$HPCSWEEP_RESULT
             [ -e again ] || {{ : >again; rm -rf $TMPDIR/*; exit {code}; }}"
        );
        let hooks = "attempts = 2\n[hooks]\nerror = [\"touch\", \"erred\"]\n";
        world.local(&shell(&steals, hooks), &["-q"]);
        let trial = world.status()["trials"][0].clone();
        assert_eq!(trial["state"], "interrupted", "{trial}");
        let reason = trial["reason"].as_str().unwrap();
        assert!(
            reason.ends_with("was removed while it ran, with its metrics and its result"),
            "{reason}"
        );
        assert!(!world.exists("erred"));
        world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
        assert_eq!(world.read("ran"), "1\n2\n");
        let row = &world.table(&[])[0];
        assert_eq!((&row["loss"], &row["result"]), (&json!(1), &json!(7)));
    }
}

#[test]
fn an_agent_hands_a_trial_on_whose_private_folder_was_removed() {
    let world = World::new();
    let steals =
        "echo 7 >$HPCSWEEP_RESULT; echo x >>ran; [ -e again ] || { : >again; rm -rf $TMPDIR/*; }";
    world.write("plan.toml", &shell(steals, ""));
    world.run(&["worker", "--pull", "plan.toml"]).ok();
    assert_eq!(world.read("ran"), "x\nx\n");
    assert_eq!(world.table(&[])[0]["result"], json!(7));
    let ends = world.written_by_agents("s", "end");
    let states: Vec<&Value> = ends.iter().map(|end| &end["state"]).collect();
    assert_eq!(states, ["interrupted", "done"]);
}

#[test]
fn a_trial_that_has_lost_its_private_folder_to_three_agents_has_failed() {
    let world = World::new();
    world.write("plan.toml", &shell("echo x >>ran; rm -rf $TMPDIR/*", ""));
    assert_eq!(world.run(&["worker", "--pull", "plan.toml"]).code, 1);
    assert_eq!(world.read("ran"), "x\nx\nx\n");
    let ends = world.written_by_agents("s", "end");
    let ends: Vec<_> = ends.iter().map(|end| (&end["state"], end["last"] == true)).collect();
    let [handed_on, given_up] = [json!("interrupted"), json!("failed")];
    assert_eq!(ends, [(&handed_on, false), (&handed_on, false), (&given_up, true)]);
}

#[test]
fn private_folders_of_killed_workers_are_removed_by_later_ones() {
    let world = World::new();
    world.write("plan.toml", &shell("echo $PPID >worker; exec sleep 600", ""));
    for round in 0..3 {
        let started = world.start(&["submit", "plan.toml", "--local", "-q"]);
        wait_until("it runs", || world.exists("worker"));
        wait_until("it has said whose it is", || world.read("worker").ends_with('\n'));
        let worker: i32 = world.read("worker").trim().parse().unwrap();
        // Of those that were killed before nothing is left.
        assert_eq!(fs::read_dir(world.path("tmp")).unwrap().count(), 1, "round {round}");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker), Signal::SIGKILL).unwrap();
        let _ = started.end(&world);
        fs::remove_file(world.path("worker")).unwrap();
    }
    // Folders of others must stay: other names, other processes, other machines.
    let others = ["hpcsweep-gpus-0-n1", "hpcsweep-1-2-3.1.1.elsewhere", "hpcsweep-a-0-b", "other"];
    for other in others {
        fs::create_dir(world.path(&format!("tmp/{other}"))).unwrap();
    }
    world.local(&shell("true", "").replace("\"s\"", "\"t\""), &["-q"]).ok();
    let mut left: Vec<String> = fs::read_dir(world.path("tmp"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let mut expected = others.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn the_walltime_holds_for_all_attempts_together() {
    let world = World::new();
    let code = "echo $HPCSWEEP_ATTEMPT >>ran; [ $HPCSWEEP_ATTEMPT = 1 ] && sleep 1.5 && exit 1; exec sleep 600";
    world.local(&(shell(code, "attempts = 2\n") + "[resources]\nwalltime = \"3s\"\n"), &["-q"]);
    let trial = world.status()["trials"][0].clone();
    assert_eq!((&trial["state"], &trial["attempts"]), (&json!("timeout"), &json!(2)), "{trial}");
    // Of three seconds nothing is left after the first attempt and the grace of a shell.
    assert!(trial["duration_s"].as_f64().unwrap() < 2.5, "{trial}");
}

/// A user has requeued the job of a trial that had failed.
#[test]
fn a_retry_leaves_a_trial_alone_whose_job_is_in_the_queue_again() {
    let world = slurm();
    world.write("plan.toml", &shell("exit 1", ""));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let job = "101";
    let mut worker = world.command(PROGRAM);
    worker.args(["worker", "--sweep", "results/s", "--trial", "0"]);
    worker.env("SLURM_ARRAY_JOB_ID", job).env("SLURM_ARRAY_TASK_ID", "0").env("SLURM_JOB_ID", job);
    worker.env("SLURM_JOB_END_TIME", "4000000000");
    assert_eq!(worker.status().unwrap().code(), Some(1));
    let submitted = || world.read("calls").lines().filter(|l| l.starts_with("sbatch ")).count();
    let queue = |state: &str| {
        let path = world.path("bin/squeue");
        let own = fs::read_to_string(&path).unwrap();
        let own = own.lines().take(2).collect::<Vec<_>>().join("\n");
        let line = match state {
            "" => String::new(),
            state => format!("case \"$*\" in *%T*) echo '{job}_0|{state}|JobHeldUser|x' ;; esac\n"),
        };
        world.program("squeue", &format!("{own}\n{line}"));
    };
    for state in ["PENDING", "RUNNING"] {
        queue(state);
        let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
        assert_eq!(submitted(), 1, "{state}: {}", ran.whole());
        let ran = world.run(&["submit", "plan.toml", "--local", "--retry"]);
        assert!(ran.err.contains("1 trial of this sweep is queued or running"), "{}", ran.whole());
    }
    queue("");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
    assert_eq!(submitted(), 2);
}

#[test]
fn a_walltime_that_is_the_queues_ends_as_a_timeout() {
    let queues: [(&str, &str, &str); 2] = [
        ("squeue", "SLURM_JOB_ID", "echo 0:03"),
        ("qstat", "PBS_JOBID", "echo 'Job Id: 7'; echo '    Resource_List.walltime = 00:00:03'"),
    ];
    for (program, variable, says) in queues {
        let world = World::new();
        world.program(program, &format!("#!/bin/sh\necho \"$*\" >>calls\n{says}\n"));
        // A sweep within the trial, created by a first trial that fails.
        let first = "[[trials]]\ntask_id = 1\n";
        let code = "[ $HPCSWEEP_TRIAL = 1 ] || exit 1; trap 'exit 0' TERM; sleep 600 & wait";
        world.local(&shell(code, &format!("{first}{first}")), &["-q", "-j", "1"]);
        let mut worker = world.command(PROGRAM);
        worker.args(["worker", "--sweep", "results/s", "--trial", "1"]).env(variable, "7");
        worker.status().unwrap();
        let trial = world.status()["trials"][1].clone();
        assert_eq!(trial["state"], "timeout", "{program}: {trial}");
        assert_eq!(world.read("calls").lines().count(), 1, "asked once");
    }
}
