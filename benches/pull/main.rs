//! What agents cost: no-op trials a second beside xargs, HyperQueue and GNU parallel, and of Python functions beside a
//! plain loop, files left behind, memory, and how evenly work is shared. Ratios of one run, measured in turn.
//!
//! Run by `scripts/bench pull`, which gets HyperQueue and GNU parallel.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");

fn main() {
    // `cargo test --benches` and the like only want to know that it builds.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let tmp = std::env::temp_dir().join(format!("hpcsweep-bench-{}", std::process::id()));
    std::fs::create_dir_all(&tmp).unwrap();
    let parts: [(&str, Part); 6] = [
        ("spawned", spawned),
        ("functions", in_process),
        ("python", python),
        ("entries", entries),
        ("memory", million),
        ("sharing", sharing),
    ];
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for name in &asked {
        assert!(name == "all" || parts.iter().any(|(part, _)| part == name), "no part `{name}`");
    }
    for (name, part) in parts {
        if asked.is_empty() || asked.iter().any(|part| part == name || part == "all") {
            part(&tmp);
        }
    }
    std::fs::remove_dir_all(&tmp).unwrap();
}

type Part = fn(&Path);

fn rounds() -> usize {
    std::env::var("HPCSWEEP_BENCH_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

fn timed(action: impl FnOnce()) -> f64 {
    let start = Instant::now();
    action();
    start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn run(command: &mut Command) {
    let status = quiet(command).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn axis(n: usize) -> String {
    let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!("[grid]\ni = [{}]\n", values.join(", "))
}

/// A plan whose trials run this, in a folder of its own.
fn plan(folder: &Path, name: &str, command: &str, body: &str) -> PathBuf {
    let text =
        format!("version = 1\n[sweep]\nname = \"{name}\"\n[run]\ncommand = {command}\n{body}");
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

fn agent(folder: &Path, plan: &Path, slots: usize) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["worker", "--pull", plan.to_str().unwrap(), "--slots", &slots.to_string()]);
    command.current_dir(folder);
    command
}

fn forget(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder.join("results"));
}

/// Files under a folder.
fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Seconds for `n` runs of /bin/true; the first is ours, with output kept.
fn spawned(tmp: &Path) {
    println!("trials of /bin/true a second, output kept");
    println!(
        "{:>7} {:>5} {:>8} {:>8} {:>6} {:>9} {:>6} {:>9} {:>6} {:>6}",
        "trials",
        "slots",
        "hpcsweep",
        "xargs",
        "ratio",
        "hq",
        "ratio",
        "parallel",
        "ratio",
        "files"
    );
    let asked = std::env::var("HPCSWEEP_BENCH_TRIALS").ok().map(|n| vec![n.parse().unwrap()]);
    let sizes = asked.unwrap_or_else(|| vec![2_000, 10_000, 100_000]);
    for (n, slots) in sizes.into_iter().flat_map(|n| [(n, 4), (n, 1)]) {
        let plan = plan(tmp, "spawn", "[\"/bin/true\"]", &axis(n));
        let numbers: String = (0..n).map(|i| format!("{i}\n")).collect();
        let list = tmp.join("numbers");
        std::fs::write(&list, numbers).unwrap();
        let (mut ours, mut xargs, mut hq, mut parallel) = (vec![], vec![], vec![], vec![]);
        let mut left = 0;
        // A hundred thousand take minutes each.
        for _ in 0..if n > 10_000 { 1 } else { rounds() } {
            forget(tmp);
            ours.push(timed(|| run(&mut agent(tmp, &plan, slots))));
            left = files(&tmp.join("results"));
            let mut floor = Command::new("xargs");
            floor.args(["-a", list.to_str().unwrap(), "-n1", &format!("-P{slots}"), "/bin/true"]);
            xargs.push(timed(|| run(&mut floor)));
            let mut peer = Command::new("parallel");
            peer.args([
                "--will-cite",
                "-a",
                list.to_str().unwrap(),
                &format!("-j{slots}"),
                "/bin/true",
            ]);
            parallel.push(timed(|| run(&mut peer)));
            hq.push(hyperqueue(tmp, n, slots));
        }
        let rate = |times: Vec<f64>| n as f64 / median(times);
        let (ours, xargs, hq, parallel) = (rate(ours), rate(xargs), rate(hq), rate(parallel));
        println!(
            "{n:>7} {slots:>5} {ours:>8.0} {xargs:>8.0} {:>6.2} {hq:>9.0} {:>6.2} {parallel:>9.0} {:>6.2} {left:>6}",
            ours / xargs,
            ours / hq,
            ours / parallel,
        );
    }
    println!("bounds: xargs 0.9 (4 slots), HyperQueue 3, GNU parallel 4\n");
}

/// Seconds that HyperQueue takes from submitting to the end, its server and worker being up.
fn hyperqueue(tmp: &Path, n: usize, slots: usize) -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/pull/hq.py");
    let mut command = Command::new("python3");
    command.args([script, &n.to_string(), &slots.to_string()]).current_dir(tmp);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "HyperQueue: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().last().unwrap().trim().parse().unwrap()
}

/// Trials that are a function of this process: claimed and recorded.
fn in_process(tmp: &Path) {
    use hpcsweep::run::pull::solo;
    use hpcsweep::submit::Source;
    use hpcsweep::submit::pilots::deal;
    println!("no-op functions in this process, claimed and recorded, a second (bound 5000)");
    let vars = hpcsweep::base::host::vars::snapshot();
    let rate = |n: usize| {
        let path = tmp.join("noop.toml");
        let text = format!(
            "version = 1\n[sweep]\nname = \"noop\"\n[run]\nfunction = \"noop\"\n{}",
            axis(n)
        );
        std::fs::write(&path, text).unwrap();
        forget(tmp);
        let (source, site) = (Source::read(&path).unwrap(), hpcsweep::plan::site::Site::default());
        let templates = source.templates(None, &site).unwrap();
        let asked = deal::DealOptions { serves: true, ..deal::DealOptions::default() };
        let tree = deal::deal(&source, &site, &templates, &asked, &vars, || false).unwrap().tree;
        drop(source);
        let mut ran = 0;
        let seconds = timed(|| {
            let function = |_: &solo::Trial| {
                ran += 1;
                Ok(serde_json::Value::Null)
            };
            solo::run(&tree, solo::Options::default(), &vars, None, |_| {}, function).unwrap();
        });
        assert_eq!(ran, n);
        n as f64 / seconds
    };
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        println!("{n:>7} {:>8.0}", median((0..rounds()).map(|_| rate(n)).collect()));
    }
    println!();
}

/// Trials that are calls of a Python function, in one process.
fn python(tmp: &Path) {
    println!("no-op functions of Python, in one process, a second (bound 20000)");
    println!("{:>7} {:>8} {:>8} {:>10}", "trials", "calls", "whole", "plain loop");
    let root = env!("CARGO_MANIFEST_DIR");
    let rates = |n: usize| -> Vec<f64> {
        forget(tmp);
        let mut command = Command::new("python3");
        command.args([&format!("{root}/benches/pull/noop.py"), &n.to_string()]).current_dir(tmp);
        command.env("PYTHONPATH", format!("{root}/site/python")).env("HPCSWEEP_BIN", PROGRAM);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "noop.py: {}", output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().map(|rate| rate.parse().unwrap()).collect()
    };
    for n in [10_000, 100_000] {
        let all: Vec<Vec<f64>> = (0..rounds()).map(|_| rates(n)).collect();
        let of = |i: usize| median(all.iter().map(|rates| rates[i]).collect());
        println!("{n:>7} {:>8.0} {:>8.0} {:>10.0}", of(0), of(1), of(2));
    }
    println!();
}

/// Directory entries of the results tree that an agent reads, planning included.
fn entries(tmp: &Path) {
    println!("directory entries of the tree read by an agent, by strace");
    for n in [1_000, 10_000] {
        let plan = plan(tmp, "entries", "[\"/bin/true\"]", &axis(n));
        forget(tmp);
        let log = tmp.join("strace");
        let ours = agent(tmp, &plan, 4);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-y", "-qq", "-e", "trace=getdents64", "-o", log.to_str().unwrap()]);
        run(traced.arg(ours.get_program()).args(ours.get_args()).current_dir(tmp));
        let text = std::fs::read_to_string(&log).unwrap();
        let of_the_tree = text.lines().filter(|line| line.contains("/results/entries"));
        let count = |line: &str| -> Option<usize> {
            let (_, after) = line.split_once("/* ")?;
            after.split(' ').next()?.parse().ok()
        };
        let read: usize = of_the_tree.map(|line| count(line).unwrap_or(0)).sum();
        println!("{n:>7} trials {read:>6} entries, {:.4} a trial", read as f64 / n as f64);
    }
    println!();
}

/// Memory of an agent, and claims, with a million trials to come.
fn million(tmp: &Path) {
    let values: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    let values = values.join(", ");
    let body = format!("[grid]\na = [{values}]\nb = [{values}]\n");
    let plan = plan(tmp, "million", "[\"/bin/true\"]", &body);
    forget(tmp);
    let mut agent = quiet(&mut agent(tmp, &plan, 4)).spawn().unwrap();
    let tree = tmp.join("results/million");
    let ended = || {
        let bundles = tree.join("agents");
        let size = |path: &Path| std::fs::metadata(path).map(|m| m.len()).unwrap_or(0);
        let shards = std::fs::read_dir(bundles).into_iter().flatten().flatten();
        let files = shards.flat_map(|shard| std::fs::read_dir(shard.path()).unwrap().flatten());
        files.map(|file| size(&file.path())).sum::<u64>()
    };
    while ended() < 2_000_000 {
        assert!(agent.try_wait().unwrap().is_none(), "the agent has ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!("an agent with a million trials to come: {peak} (bound 200 MB)");
    println!("files by then: {}\n", files(&tree));
    stop(&mut agent);
}

fn stop(agent: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(agent.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    agent.wait().unwrap();
}

/// When the last result was there: the latest end that is done, unix seconds.
fn last_result(tree: &Path) -> f64 {
    let shards = std::fs::read_dir(tree.join("agents")).unwrap().flatten();
    let files = shards.flat_map(|shard| std::fs::read_dir(shard.path()).unwrap().flatten());
    let bundles = files.map(|file| file.path()).filter(|path| path.extension().unwrap() == "jsonl");
    let ends = bundles.flat_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        text.lines().map(line).filter(|line| line["state"] == "done").collect::<Vec<_>>()
    });
    ends.map(|end| end["time"].as_f64().unwrap()).fold(0.0, f64::max)
}

/// One slot ten times slower than three others.
fn sharing(tmp: &Path) {
    let code = |each: f64| format!("[\"sh\", \"-c\", \"sleep ${{SLOW:-{each}}}\"]");
    let makespan = |name: &str, n: usize, each: f64, more: &str| {
        let plan = plan(tmp, name, &code(each), &format!("{more}{}", axis(n)));
        forget(tmp);
        let since = hpcsweep::base::host::clock::now();
        let mut all: Vec<Child> = Vec::new();
        for i in 0..4 {
            let mut command = agent(tmp, &plan, 1);
            if i == 0 {
                command.env("SLOW", (10.0 * each).to_string());
            }
            all.push(quiet(&mut command).spawn().unwrap());
        }
        for mut agent in all {
            assert!(agent.wait().unwrap().success());
        }
        last_result(&tmp.join("results").join(name)) - since
    };
    let n = 600;
    // The cost of a trial with its process, run by one agent alone.
    let plan = plan(tmp, "alone", &code(0.05), &axis(20));
    forget(tmp);
    let each = timed(|| run(&mut agent(tmp, &plan, 1))) / 20.0;
    let ideal = n as f64 / (3.0 / each + 1.0 / (each + 0.45));
    let took = makespan("shared", n, 0.05, "");
    println!(
        "one slot ten times slower than three: {took:.2} s, ideal {ideal:.2} s, ratio {:.2} (bound 1.15)",
        took / ideal
    );
    let alone = makespan("few", 20, 0.3, "");
    let copied = makespan("copied", 20, 0.3, "[pull]\nrepeatable = true\n");
    println!(
        "20 trials, the last result with copies: {copied:.2} s, without {alone:.2} s, ratio {:.2} (bound 0.8)",
        copied / alone
    );
}
