//! What readers of large sweeps cost beside `squeue`: sweeps of 10^3 .. 10^6 trials in arrays of a real Slurm.
//!
//! Run by `scripts/bench readers`, which builds the programs and starts a Slurm that takes arrays of a million elements. Times
//! are of a shared machine: read the differences and ratios of one run.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use hpcsweep::sweep::tree::{Tree, line};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");

/// The question that `status` asks about all jobs of a user.
const QUESTION: [&str; 4] = ["--noheader", "--array", "--states=all", "--format=%i|%T|%r|%j"];

/// How often each is measured.
const ROUNDS: usize = 7;

/// The most that `status`, `why` and `usage` may take longer than `squeue`, at 10^5 trials.
const BOUND_MS: f64 = 100.0;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // `cargo test --benches` and the like only want to know that it builds.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    let given: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let powers = if given.is_empty() { vec![3, 4, 5, 6] } else { given };
    let tmp = std::env::temp_dir().join(format!("hpcsweep-bench-{}", std::process::id()));
    std::fs::create_dir_all(&tmp).unwrap();
    println!(
        "{:<44} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "what", "ms", "squeue ms", "more ms", "ratio", "first ms"
    );
    powers.into_iter().for_each(|power| sweep(&tmp, power));
    std::fs::remove_dir_all(&tmp).unwrap();
}

/// A sweep of 10^power trials: half of them wait, then all have ended.
fn sweep(tmp: &Path, power: u32) {
    let (name, trials) = (format!("r{power}"), 10_u64.pow(power));
    let mut plan = format!(
        "version = 1\n[sweep]\nname = \"{name}\"\n[run]\ncommand = [\"python3\", \"train.py\", \"--lr={{{{ a0 }}}}\"]\n\
         [resources]\nwalltime = \"10m\"\nmemory = \"100M\"\ndirectives = [\"--hold\"]\n[grid]\n"
    );
    for axis in 0..power {
        writeln!(plan, "a{axis} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]").unwrap();
    }
    std::fs::write(tmp.join(format!("{name}.toml")), plan).unwrap();
    assert!(run(tmp, PROGRAM, &["-q", "submit", &format!("{name}.toml"), "--slurm"]).0 < 2);
    let folder = format!("results/{name}");
    let tree = Tree::at(&tmp.join(&folder));
    let job =
        String::from_utf8(Command::new("squeue").args(["-h", "-o", "%F"]).output().unwrap().stdout);
    let job = job.unwrap().lines().next().unwrap_or("1").to_owned();
    for (what, ended) in [("half of 10", 0..trials / 2), ("all of 10", trials / 2..trials)] {
        for trial in ended {
            let path = tree.record(trial, 1);
            if trial % 1000 == 0 || trial == 0 {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            }
            std::fs::write(path, record(trial, &job)).unwrap();
        }
        let middle = (trials / 4).to_string();
        let verbs: [(&str, &[&str]); 4] = [
            ("status", &["status", &folder]),
            ("why of a trial", &["why", &middle, &folder]),
            ("why", &["why", &folder]),
            ("usage", &["usage", &folder]),
        ];
        // The folders' times are settled, as those of a sweep that has run for a while.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let _ = std::fs::remove_dir_all(tree.dir().join("index"));
        for (verb, args) in verbs {
            let (_, first) = run(tmp, PROGRAM, args);
            let (mut ours, mut beside) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                ours.push(run(tmp, PROGRAM, args).1);
                beside.push(run(tmp, "squeue", &QUESTION).1);
            }
            let (ours, beside) = (median(ours), median(beside));
            let more = ours - beside;
            let mark = if power == 5 && more > BOUND_MS { " !" } else { "" };
            println!(
                "{:<44} {ours:>10.1} {beside:>10.1} {more:>10.1} {:>8.2} {first:>8.1}{mark}",
                format!("{verb}, {what}^{power} trials ended"),
                ours / beside
            );
        }
    }
    run(tmp, "scancel", &[&job]);
    std::fs::remove_dir_all(tree.dir()).unwrap();
}

/// Runs a program; its exit code, and milliseconds.
fn run(folder: &Path, program: &str, args: &[&str]) -> (i32, f64) {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let code = command.status().unwrap().code().unwrap();
    let ms = start.elapsed().as_secs_f64() * 1e3;
    assert!(code < 2, "{program} {args:?}: {code}");
    (code, ms)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The record that a worker writes.
fn record(trial: u64, job: &str) -> Vec<u8> {
    let rows: Vec<_> = (1..=3)
        .map(|step| serde_json::json!({ "step": step, "loss": 1.0 / (trial + step) as f64, "accuracy": 0.5 }))
        .collect();
    let lines = [
        serde_json::json!({
            "event": "start", "trial": trial, "attempt": 1, "time": 1.0e9, "host": format!("n{}", trial % 97), "pid": 4711,
            "started": 99, "job": format!("{job}_{trial}"), "ranks": 1, "argv": ["python3", "train.py", "--lr=1"],
            "devices": null, "version": "0.1.0",
        }),
        serde_json::json!({ "event": "metrics", "trial": trial, "attempt": 1, "rows": rows }),
        serde_json::json!({
            "event": "end", "trial": trial, "attempt": 1, "time": 1.0e9 + 1.0, "state": "done", "exit_code": 0, "signal": null,
            "reason": null, "duration_s": 1.0, "peak_memory": 1 << 20, "usage": { "memory_source": "rusage",
            "cpu_user_s": 0.5, "cpu_system_s": 0.25, "written_bytes": 4096 }, "result": null,
        }),
    ];
    lines.iter().flat_map(|line| line::seal(line).unwrap()).collect()
}
