//! Sweeps of every kind with what may happen to any of them: damaged records, clocks that jump, a scheduler that gives no answer.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::faults::make_shim;
use crate::support::gpus::idle;
use crate::support::pbs_once;
use crate::support::plans::shell;
use crate::support::slurm::add_slurm;
use crate::support::world::{PROGRAM, World};

/// The executor of a sweep's trials.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    /// The executor of this machine.
    Here,
    /// Elements of an array of Slurm, two trials each.
    Elements,
    /// An agent.
    Agent,
}

/// Kinds of sweeps, and what their plans say.
const KINDS: [(&str, By, &str); 6] = [
    ("pack", By::Elements, "[schedule]\npack = 2\n"),
    ("ranks", By::Here, "[resources]\nranks = 2\n"),
    ("GPUs", By::Here, "[resources]\ngpus_per_rank = 1\n"),
    ("max_running", By::Here, "[schedule]\nmax_running = 1\n"),
    ("hooks", By::Here, "[hooks]\nfinish = [\"sh\", \"-c\", \"echo $HPCSWEEP_TRIAL >>told\"]\n"),
    ("copies", By::Agent, "[pull]\nrepeatable = true\n"),
];

/// A world with two GPUs and a Slurm, and a plan of four trials of this kind; each writes down that it has run.
fn world(kind: &str, code: &str) -> (World, By) {
    let world = idle(2);
    add_slurm(&world);
    let (_, by, more) = KINDS.iter().find(|(name, ..)| *name == kind).unwrap();
    let code = format!("[ ${{RANK:-0}} = 0 ] || exit 0; echo $HPCSWEEP_TRIAL >>ran; {code}");
    world.write("plan.toml", &shell(&code, &format!("{more}[grid]\na = [0, 1, 2, 3]\n")));
    (world, *by)
}

/// Has all run that is to run, by programs that are started in this way.
fn run(world: &World, by: By, more: &[&str], start: impl Fn(&mut Command)) {
    let hpcsweep = |args: &[&str]| {
        let mut command = world.command(PROGRAM);
        start(command.args(args).args(more));
        // Damage stays, and has its own exit code.
        command.output().unwrap();
    };
    match by {
        By::Here => hpcsweep(&["submit", "plan.toml", "--local", "-q"]),
        By::Agent => hpcsweep(&["worker", "--pull", "plan.toml", "--slots", "2"]),
        By::Elements => {
            hpcsweep(&["submit", "plan.toml", "--slurm", "-q"]);
            let scripts = world.files("results/s/jobs");
            let script = scripts.iter().rfind(|name| name.ends_with(".sh")).unwrap();
            // An element beyond the last of a smaller array has nothing to run.
            for index in 0..2 {
                let mut command = world.command("bash");
                command.arg(world.path("results/s/jobs").join(script));
                command.env("SLURM_ARRAY_TASK_ID", index.to_string());
                command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "102");
                command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
                start(&mut command);
                command.output().unwrap();
            }
        }
    }
}

/// The trials that have run. A copy may have run beside any trial: only one of the two counts.
fn ran(world: &World, kind: &str) -> Vec<String> {
    let text = world.read("ran");
    let mut lines: Vec<String> = sorted(&text).into_iter().map(str::to_owned).collect();
    if kind == "copies" {
        lines.dedup();
    }
    lines
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Changes a letter in the end of a trial, and returns the file.
fn damage_end(world: &World, trial: u64) -> String {
    let has_it = |line: &str| {
        let line: Option<Value> = serde_json::from_str(line).ok();
        line.is_some_and(|line| line["event"] == "end" && line["trial"] == trial)
    };
    for file in world.files("results/s") {
        let path = world.path("results/s").join(&file);
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if let Some(line) = text.lines().find(|line| has_it(line)) {
            fs::write(&path, text.replace(line, &line.replace("\"done\"", "\"dome\""))).unwrap();
            return file;
        }
    }
    panic!("trial {trial} has no end")
}

#[test]
fn of_any_sweep_a_damaged_end_costs_its_trial_alone_which_runs_again() {
    for (kind, ..) in KINDS {
        let (world, by) = world(kind, ":");
        run(&world, by, &[], |_| ());
        assert_eq!(ran(&world, kind), ["0", "1", "2", "3"], "{kind}");
        let file = damage_end(&world, 1);
        let status = world.status();
        assert_eq!(status["counts"]["done"], 3, "{kind}: {status}");
        assert_eq!(status["damaged"], json!([{"file": file, "lines": 1}]), "{kind}");
        run(&world, by, &["--retry"], |_| ());
        assert_eq!(world.status()["counts"], json!({"done": 4}), "{kind}");
        if kind != "copies" {
            assert_eq!(ran(&world, kind), ["0", "1", "1", "2", "3"], "{kind}");
        }
        // A hook was called for the end that is no longer readable, and for the new end too.
        if kind == "hooks" {
            assert_eq!(sorted(&world.read("told")), ["0", "1", "1", "2", "3"]);
        }
    }
}

#[test]
fn of_any_sweep_a_clock_that_jumps_ends_no_trial_and_none_is_run_or_told_of_twice() {
    for (kind, ..) in KINDS {
        // Every trial sets its host's clock a day back or forth, and so it stays.
        let jump = "echo $((86400 - 172800 * (HPCSWEEP_TRIAL % 2))) >$CLOCK_SHIFT; sleep 0.05";
        let (world, by) = world(kind, jump);
        let plan = world.read("plan.toml");
        let limit = match plan.contains("[resources]\n") {
            true => plan.replace("[resources]\n", "[resources]\nwalltime = \"50s\"\n"),
            false => format!("{plan}[resources]\nwalltime = \"50s\"\n"),
        };
        world.write("plan.toml", &limit);
        make_shim(&world);
        run(&world, by, &[], |command| {
            command.env("LD_PRELOAD", world.path("shim.so"));
            command.env("CLOCK_SHIFT", world.path("shift"));
        });
        assert_eq!(world.status()["counts"], json!({"done": 4}), "{kind}");
        assert_eq!(ran(&world, kind), ["0", "1", "2", "3"], "{kind}");
        for seconds in world.column("duration_s") {
            let seconds: f64 = seconds.parse().unwrap();
            assert!((0.0..50.0).contains(&seconds), "{kind}: {seconds} s");
        }
        if kind == "hooks" {
            assert_eq!(sorted(&world.read("told")), ["0", "1", "2", "3"]);
        }
    }
}

#[test]
fn of_any_sweep_a_call_without_an_answer_submits_once() {
    for (kind, more, args) in [
        ("pack", "[schedule]\npack = 2\n", &[][..]),
        ("GPUs", "[resources]\ngpus_per_rank = 1\n", &[][..]),
        ("copies", "[pull]\nrepeatable = true\n", &["--pull", "--workers", "2"][..]),
    ] {
        for fault in ["lost", "complains", "hang"] {
            let mut pbs = pbs_once::pbs();
            pbs_once::meet(&mut pbs, fault);
            let plan = pbs_once::plan("s", 4) + more;
            let ran = pbs.submit(&plan, args);
            assert_eq!(ran.code, 0, "{kind}, {fault}: {}", ran.whole());
            assert!(ran.err.contains("looking for it"), "{kind}, {fault}: {}", ran.whole());
            if kind != "copies" {
                pbs_once::check(&pbs, 4);
                continue;
            }
            // A trial may run twice here, and counts once; the pilots are there once.
            pbs.wait_idle();
            assert_eq!(pbs.standings(), ["done"; 4], "{fault}");
            assert_eq!(pbs.names().len(), 1, "{fault}: {:?}", pbs.names());
        }
    }
}
