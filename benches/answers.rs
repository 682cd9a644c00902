//! What answers cost: `collect` beside `cat` and pandas, `best`, `effects` and `report`, of sweeps of 10^3 .. 10^6 trials.
//!
//! Run by `scripts/bench answers`, which builds the programs. Times are of a shared machine: read the ratios of one run.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hpcsweep::sweep::tree::{Tree, line};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");

/// How often each is measured in turn; a sweep of a million trials, once.
const ROUNDS: usize = 5;

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
    let [what, ours, beside] = ["what", "median s", "beside s"];
    println!("{what:<52} {ours:>9} {beside:>9} {:>7} {:>9}", "ratio", "memory");
    powers.into_iter().for_each(|power| sweep(&tmp, power));
    std::fs::remove_dir_all(&tmp).unwrap();
}

/// A sweep of 10^power finished trials, each with three steps.
fn sweep(tmp: &Path, power: u32) {
    let (name, trials) = (format!("a{power}"), 10_u64.pow(power));
    let folder = format!("results/{name}");
    let tree = Tree::at(&tmp.join(&folder));
    make(tmp, &name, power);
    for trial in 0..trials {
        let path = tree.record(trial, 1);
        if trial % 1000 == 0 {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        std::fs::write(path, record(trial)).unwrap();
    }
    // All folders have settled times, as those of a sweep that ended some time ago.
    std::thread::sleep(Duration::from_secs(3));
    let all = "find trials records -name '*.jsonl' -print0 | xargs -0 cat";
    let inside = tmp.join(&folder);
    let lines = tmp.join("lines.jsonl");
    let lines = lines.to_str().unwrap();
    run(&inside, "sh", &["-c", &format!("{all} >{lines}")]);
    let cat = |_: &str| run(&inside, "sh", &["-c", &format!("{all} >/dev/null")]);
    let pandas = format!("import pandas; pandas.read_json({lines:?}, lines=True)");
    let python = std::env::var("HPCSWEEP_BENCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_pandas = Command::new(&python).args(["-c", "import pandas"]).output();
    let has_pandas = has_pandas.is_ok_and(|ran| ran.status.success());

    let collect = ["-q", "collect", &folder, "--offline", "-o", "out.csv"];
    let index = tree.dir().join("index");
    let cold = |_: &str| {
        let _ = std::fs::remove_dir_all(&index);
        run(tmp, PROGRAM, &collect)
    };
    let warm = |_: &str| run(tmp, PROGRAM, &collect);
    row((power, &format!("collect of 10^{power}, first time / cat")), cold, Some(&cat));
    row((power, &format!("collect of 10^{power}, again / cat")), warm, Some(&cat));
    if has_pandas {
        let pandas = |_: &str| run(tmp, &python, &["-c", &pandas]);
        row(
            (power, &format!("collect of 10^{power}, again / pandas.read_json")),
            warm,
            Some(&pandas),
        );
    } else {
        println!("  not measured beside pandas: HPCSWEEP_BENCH_PYTHON names no Python that has it");
    }
    let parquet = ["-q", "collect", &folder, "--offline", "-o", "out.parquet"];
    row(
        (power, &format!("collect of 10^{power} as Parquet / as CSV")),
        |_| run(tmp, PROGRAM, &parquet),
        Some(&warm),
    );
    let metric = ["--offline", "--metric", "loss", "--min"];
    let best = [&["best", &folder][..], &metric].concat();
    row(
        (power, &format!("best of 10^{power} / collect")),
        |_| run(tmp, PROGRAM, &best),
        Some(&warm),
    );
    let report = [&["-q", "report", &folder, "-o", "report.html"][..], &metric].concat();
    row(
        (power, &format!("report of 10^{power} / collect")),
        |_| run(tmp, PROGRAM, &report),
        Some(&warm),
    );
    let bytes = std::fs::metadata(tmp.join("report.html")).unwrap().len();
    println!("  report.html: {:.2} MB", bytes as f64 / 1e6);
    std::fs::remove_dir_all(tree.dir()).unwrap();
}

/// What one run took: seconds, and the most memory of its largest process, in bytes.
type Took = (f64, u64);

fn row(
    (power, what): (u32, &str),
    ours: impl Fn(&str) -> Took,
    beside: Option<&dyn Fn(&str) -> Took>,
) {
    let (mut own, mut other, mut memory) = (Vec::new(), Vec::new(), 0);
    for _ in 0..if power < 6 { ROUNDS } else { 1 } {
        let took = ours(what);
        own.push(took.0);
        memory = memory.max(took.1);
        other.extend(beside.map(|beside| beside(what).0));
    }
    let (own, other) = (median(own), median(other));
    println!(
        "{what:<52} {own:>9.3} {other:>9.3} {:>7.2} {:>6.0} MB",
        own / other,
        memory as f64 / 1e6
    );
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn run(folder: &Path, program: &str, args: &[&str]) -> Took {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    // The kernel keeps the most that a process has had until it is waited for; a sample a millisecond finds it.
    let mut memory = 0;
    let ended = loop {
        memory = memory.max(peak(&status).unwrap_or(0));
        match child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert!(ended.success(), "{program} {args:?}: {ended}");
    (start.elapsed().as_secs_f64(), memory)
}

/// `VmHWM` of a process, in bytes.
fn peak(status: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb * 1024)
}

/// The table of trials, made by a submission that is interrupted at once.
fn make(tmp: &Path, name: &str, power: u32) {
    let mut plan =
        format!("version = 1\n[sweep]\nname = \"{name}\"\n[run]\ncommand = [\"true\"]\n[grid]\n");
    for axis in 1..power {
        writeln!(plan, "a{axis} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]").unwrap();
    }
    plan.push_str("[replicates]\ncount = 10\n");
    std::fs::write(tmp.join(format!("{name}.toml")), plan).unwrap();
    let mut submit = Command::new(PROGRAM)
        .args(["-q", "submit", &format!("{name}.toml"), "-j", "1"])
        .current_dir(tmp)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let records = tmp.join(format!("results/{name}/records"));
    while !records.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    submit.kill().unwrap();
    submit.wait().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    std::fs::remove_dir_all(records).unwrap();
}

/// The record that a worker writes.
fn record(trial: u64) -> Vec<u8> {
    let rows: Vec<_> = (1..=3)
        .map(|step| serde_json::json!({ "step": step, "loss": 1.0 / (trial % 977 + step) as f64, "accuracy": 0.5 }))
        .collect();
    let lines = [
        serde_json::json!({
            "event": "start", "trial": trial, "attempt": 1, "time": 1.0e9, "host": format!("n{}", trial % 97), "pid": 4711,
            "started": 99, "job": format!("1_{trial}"), "ranks": 1, "argv": ["python3", "train.py", "--lr=1"],
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
