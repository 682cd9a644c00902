//! What hpcsweep costs beside what it is built on: ratios, measured in turn in one run.
//!
//! Run by `scripts/bench`, which builds the programs and starts a Slurm. Times are of a shared machine:
//! read the ratios, not the seconds.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hpcsweep::sweep::tree::records::{End, Event, Outcome, Start};
use hpcsweep::sweep::tree::{Tree, line};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");

fn main() {
    // `cargo test --benches` and the like only want to know that it builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let tmp = std::env::temp_dir().join(format!("hpcsweep-bench-{}", std::process::id()));
    std::fs::create_dir_all(&tmp).unwrap();
    println!("{:<58} {:>10} {:>10} {:>7} {:>7}", "what", "median s", "beside s", "ratio", "bound");
    worker(&tmp);
    planning(&tmp);
    collecting(&tmp);
    if std::env::var_os("SLURM_CONF").is_some() {
        slurm(&tmp);
    } else {
        println!("Slurm: not measured, no cluster (scripts/bench starts one)");
    }
    std::fs::remove_dir_all(&tmp).unwrap();
}

/// The median times of two actions done in turn.
fn in_turn(n: usize, mut a: impl FnMut(), mut b: impl FnMut()) -> (f64, f64) {
    let (mut ta, mut tb) = (Vec::new(), Vec::new());
    for _ in 0..n {
        ta.push(timed(&mut a));
        tb.push(timed(&mut b));
    }
    (median(ta), median(tb))
}

fn timed(action: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    action();
    start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn row(what: &str, ours: f64, beside: f64, bound: &str) {
    println!("{what:<58} {ours:>10.4} {beside:>10.4} {:>7.2} {bound:>7}", ours / beside);
}

fn run(program: &str, args: &[&str], folder: &Path) {
    let status = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{program} {args:?}: {status}");
}

fn plan(folder: &Path, name: &str, body: &str) -> PathBuf {
    plan_of(folder, name, "\"true\"", body)
}

fn plan_of(folder: &Path, name: &str, command: &str, body: &str) -> PathBuf {
    let text =
        format!("version = 1\n[sweep]\nname = \"{name}\"\n[run]\ncommand = [{command}]\n{body}\n");
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

/// One trial of `true` through the worker, and `true`; then with expressions for Tera to fill in, and without.
fn worker(tmp: &Path) {
    let sweep = |name: &str, command: &str| {
        plan_of(tmp, name, command, "[defaults]\nlr = 1e-5\nopt = \"adam\"\n[grid]\ni = [0]");
        run(PROGRAM, &["-q", "submit", &format!("{name}.toml")], tmp);
        tmp.join("results").join(name)
    };
    let trial = |sweep: &Path| {
        let _ = std::fs::remove_dir_all(sweep.join("records"));
        run(PROGRAM, &["worker", "--sweep", sweep.to_str().unwrap(), "--trial", "0"], tmp);
    };
    let plain = sweep("worker", "\"true\"");
    let (ours, bare) = in_turn(
        101,
        || trial(&plain),
        || {
            let _ = std::fs::remove_dir_all(plain.join("records"));
            run("true", &[], tmp);
        },
    );
    row("one trial of `true` / `true`", ours, bare, "");
    println!("{:<58} {:>7.2} ms {:>26}", "  the worker costs", (ours - bare) * 1e3, "5 ms");
    let words = r#""true", "--lr={{ lr }}", "{{ trial.attempt }}", "{{ opt | upper }}""#;
    let filled = sweep("expressions", words);
    let (filled, plain) = in_turn(101, || trial(&filled), || trial(&plain));
    row("one trial with expressions / without", filled, plain, "1.1");
}

/// Planning 10^3 .. 10^6 trials: seconds a trial against the next smaller size.
fn planning(tmp: &Path) {
    let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let mut before: Option<f64> = None;
    for power in 3..=6 {
        let axes: Vec<String> = (0..power).map(|i| format!("a{i} = {digits}")).collect();
        let body = format!(
            "[resources]\nwalltime = \"1h\"\n[defaults]\nepochs = 3\n[grid]\n{}",
            axes.join("\n")
        );
        let name = format!("plan{power}");
        plan(tmp, &name, &body);
        let time = median(
            (0..5)
                .map(|_| timed(&mut || run(PROGRAM, &["plan", &format!("{name}.toml")], tmp)))
                .collect(),
        );
        let each = time / 10f64.powi(power);
        let what = format!(
            "planning 10^{power} trials ({:.2} us a trial / of the size before)",
            each * 1e6
        );
        row(&what, time, before.map_or(time, |b| b * 10.0), "linear");
        before = Some(time);
    }
}

/// Collecting 10^5 finished trials against reading the same bytes with cat.
fn collecting(tmp: &Path) {
    let digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let axes: Vec<String> = (0..5).map(|i| format!("a{i} = {digits}")).collect();
    plan(tmp, "collect", &format!("[grid]\n{}", axes.join("\n")));
    // The table of trials is made by a submission that is interrupted at once; the records as a worker
    // writes them.
    let mut submit = Command::new(PROGRAM)
        .args(["-q", "submit", "collect.toml"])
        .current_dir(tmp)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let head = tmp.join("results/collect/trials/000000000000.json");
    while !head.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    submit.kill().unwrap();
    submit.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let tree = Tree::at(&tmp.join("results/collect"));
    let _ = std::fs::remove_dir_all(tree.dir().join("records"));
    for trial in 0..100_000 {
        let path = tree.record(trial, 1);
        if trial % 1000 == 0 {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        std::fs::write(path, record(trial)).unwrap();
    }
    let cat = "find results/collect/trials results/collect/records -type f -print0 | xargs -0 cat >/dev/null";
    let (ours, beside) = in_turn(
        5,
        || run(PROGRAM, &["-q", "collect", "results/collect", "-o", "out.csv"], tmp),
        || run("sh", &["-c", cat], tmp),
    );
    let rows = std::fs::read_to_string(tmp.join("out.csv")).unwrap().lines().count();
    assert_eq!(rows, 100_001);
    row("collecting 10^5 trials / cat of the same bytes", ours, beside, "3");
}

fn record(trial: u64) -> Vec<u8> {
    let start = Event::Start(Start {
        trial,
        attempt: 1,
        time: 1.0e9,
        host: "n1".into(),
        pid: 4711,
        job: Some(format!("12_{trial}")),
        ranks: 1,
        argv: vec!["python3".into(), "train.py".into(), "--lr".into(), "0.001".into()],
        version: "0.1.0".into(),
        ..Start::default()
    });
    let rows = (1..=3).map(|step| {
        let json = serde_json::json!({ "step": step, "loss": 1.0 / (trial + step) as f64, "accuracy": 0.5 });
        json.as_object().unwrap().clone()
    });
    let metrics = Event::Metrics { trial, attempt: 1, rows: rows.collect() };
    let end = Event::End(End {
        trial,
        attempt: 1,
        time: 1.0e9 + 1.0,
        state: Outcome::Done,
        exit_code: Some(0),
        signal: None,
        cause: None,
        reason: None,
        duration_s: 1.0,
        peak_memory: 1 << 20,
        usage: None,
        result: None,
        log: None,
        last: false,
        seq: None,
    });
    [start, metrics, end].iter().flat_map(|e| line::seal(e).unwrap()).collect()
}

/// 100 no-op trials on a real Slurm, from the call to an empty queue.
fn slurm(tmp: &Path) {
    let drain = || {
        loop {
            let queue = Command::new("squeue").arg("--noheader").output().unwrap();
            if queue.stdout.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    std::fs::write(tmp.join("step.toml"), "version = 1\n[scheduler]\nsingle_rank_step = true\n")
        .unwrap();
    let mut number = 0;
    for (what, wrapped, profile) in [
        ("100 trials of `true` / sbatch --array --wrap true", "true", None),
        ("the same in a step each / the same with `srun true`", "srun true", Some("step.toml")),
    ] {
        let (ours, bare) = in_turn(
            7,
            || {
                number += 1;
                let name = format!("noop{number}");
                let axis: Vec<String> = (0..100).map(|i| i.to_string()).collect();
                plan(
                    tmp,
                    &name,
                    &format!("[resources]\nmemory = \"50M\"\n[grid]\ni = [{}]", axis.join(", ")),
                );
                let mut command = Command::new(PROGRAM);
                command.args(["-q", "submit", &format!("{name}.toml"), "--slurm"]).current_dir(tmp);
                if let Some(profile) = profile {
                    command.env("HPCSWEEP_SITE", tmp.join(profile));
                }
                assert!(command.stderr(Stdio::null()).status().unwrap().success());
                drain();
            },
            || {
                let wrap = format!("--wrap={wrapped}");
                run("sbatch", &["--array=0-99", "--mem=50M", "--output=/dev/null", &wrap], tmp);
                drain();
            },
        );
        row(what, ours, bare, "1.15");
    }
}
