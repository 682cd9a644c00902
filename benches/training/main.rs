//! What training and syncs cost beside PyTorch and beside MPI itself: ratios, measured in turn in one run.
//!
//! Run by `scripts/bench training`, which builds the programs and gets PyTorch. Times are of a shared
//! machine: read the ratios, not the seconds.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and fails loudly")]

mod contest;
mod start;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use contest::{Bind, Contest, Socket, mpirun, python};
use hpcsweep::train::sampler::{Distributed, Place};
use table::{row, share};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hpcsweep");
const WORKER: &str = env!("CARGO_BIN_EXE_hpcsweep-worker");
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/training");

/// The models: PyTorch's name, the configuration, steps in a turn.
const MODELS: [(&str, &str, usize); 2] = [
    ("cnn", r#"{"kind":"cnn","channels":[32,64,128],"outputs":10}"#, 20),
    ("resnet18", r#"{"kind":"resnet18","width":64,"outputs":10}"#, 3),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` and the like only want to know that it builds.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    let parts: Vec<&str> =
        args.iter().map(String::as_str).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let rounds = std::env::var("HPCSWEEP_BENCH_ROUNDS").map_or(15, |n| n.parse().unwrap());
    let tmp = tempfile::Builder::new().prefix("hpcsweep-bench-").tempdir().unwrap();
    let tmp = tmp.path();
    table::head();
    for (part, run) in [
        ("step", steps as fn(&Path, usize)),
        ("weak", weak),
        ("sync", syncs),
        ("metrics", metrics),
        ("sampler", sampler),
        ("start", start::run),
    ] {
        if is_wanted(part) {
            run(tmp, rounds);
        }
    }
}

/// The heavy worker as a training rank.
fn worker(tmp: &Path, ranks: usize, bind: Bind, model: &str, how: &str) -> Contest {
    let socket = Socket::in_folder(&fresh(tmp));
    let mut command = mpirun(ranks, bind, WORKER);
    command.args(["bench", "step", socket.path(), model, how]);
    Contest::start(vec![command], &socket, ranks)
}

/// PyTorch's DDP.
fn torch(tmp: &Path, ranks: usize, bind: Bind, model: &str) -> Contest {
    let socket = Socket::in_folder(&fresh(tmp));
    let commands = python(ranks, bind, &["step", socket.path(), model]);
    Contest::start(commands, &socket, ranks)
}

/// A folder of its own.
fn fresh(tmp: &Path) -> std::path::PathBuf {
    tempfile::tempdir_in(tmp).unwrap().keep()
}

/// The median step of a turn, on the slowest rank.
fn step(contest: &mut Contest, steps: usize) -> f64 {
    let ranks = contest.ask(&steps.to_string());
    ranks.iter().map(|rank| table::median(&rank[..steps])).fold(0.0, f64::max)
}

/// A step of DDP beside PyTorch's; what of it is spent waiting for other ranks.
fn steps(tmp: &Path, rounds: usize) {
    for (name, config, count) in MODELS {
        let mut ours: Vec<Contest> = [(1, "overlap"), (2, "overlap"), (2, "after")]
            .map(|(ranks, how)| worker(tmp, ranks, Bind::Free, config, how))
            .into();
        let mut theirs = [1, 2].map(|ranks| torch(tmp, ranks, Bind::Free, name));
        let mut times: [Vec<f64>; 5] = Default::default();
        let mut waits: [Vec<f64>; 2] = Default::default();
        for _ in 0..rounds {
            times[0].push(step(&mut ours[0], count));
            times[1].push(step(&mut theirs[0], count));
            times[3].push(step(&mut theirs[1], count));
            for (way, contest) in ours[1..].iter_mut().enumerate() {
                let ranks = contest.ask(&count.to_string());
                // The rank that waits least is the one that the others wait for.
                let waited = |rank: &Vec<f64>| {
                    rank[count..].iter().sum::<f64>() / rank[..count].iter().sum::<f64>()
                };
                waits[way].push(ranks.iter().map(waited).fold(1.0, f64::min));
                let slowest = ranks.iter().map(|rank| table::median(&rank[..count]));
                times[2 + 2 * way].push(slowest.fold(0.0, f64::max));
            }
        }
        row(&format!("{name}, 1 rank: a step / PyTorch DDP"), &times[0], &times[1], Some(0.85));
        row(
            &format!("{name}, 2 ranks: a step / PyTorch DDP (gloo)"),
            &times[2],
            &times[3],
            Some(0.85),
        );
        row(&format!("{name}, 2 ranks: with overlap / without"), &times[2], &times[4], None);
        share(&format!("{name}: share of a step waiting for sums, with overlap"), &waits[0]);
        share(&format!("{name}: share of a step waiting for sums, without"), &waits[1]);
    }
}

/// The same work for each rank, ranks bound to cores of their own.
fn weak(tmp: &Path, rounds: usize) {
    if contest::cores().len() < 2 {
        println!("weak scaling: not measured, there is one core");
        return;
    }
    for (name, config, count) in MODELS {
        let mut all = [
            worker(tmp, 1, Bind::Apart, config, "overlap"),
            worker(tmp, 2, Bind::Apart, config, "overlap"),
            torch(tmp, 1, Bind::Apart, name),
            torch(tmp, 2, Bind::Apart, name),
        ];
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            for (contest, times) in all.iter_mut().zip(&mut times) {
                times.push(step(contest, count));
            }
        }
        row(
            &format!("{name}, bound: a step on 1 rank / on 2 (efficiency)"),
            &times[0],
            &times[1],
            None,
        );
        row(&format!("{name}, bound: the same of PyTorch DDP"), &times[2], &times[3], None);
    }
}

/// A gather of bytes beside the C program's.
fn syncs(tmp: &Path, rounds: usize) {
    let program = tmp.join("gather");
    let built = Command::new("mpicc")
        .args(["-O2", "-o", program.to_str().unwrap(), &format!("{HERE}/gather.c")])
        .status()
        .unwrap();
    assert!(built.success(), "mpicc: {built}");
    let sizes = [
        (4, 20_000),
        (4 << 10, 10_000),
        (64 << 10, 2000),
        (1 << 20, 100),
        (16 << 20, 10),
        (64 << 20, 3),
    ];
    let mut times: Vec<[Vec<f64>; 2]> = sizes.map(|_| Default::default()).into();
    // Where pages lie is luck that a program keeps: several starts.
    for _ in 0..5 {
        let mut ours = exchange(tmp);
        let socket = Socket::in_folder(&fresh(tmp));
        let mut command = mpirun(2, Bind::Free, program.to_str().unwrap());
        command.arg(socket.path());
        let mut theirs = Contest::start(vec![command], &socket, 2);
        for ((bytes, calls), times) in sizes.iter().zip(&mut times) {
            let order = format!("0 {bytes} {calls}");
            for _ in 0..rounds.div_ceil(2) {
                times[0].push(ours.slowest(&order));
                times[1].push(theirs.slowest(&order));
            }
        }
    }
    for ((bytes, _), times) in sizes.iter().zip(&times) {
        let bound = (*bytes >= 64 << 10).then_some(1.05);
        let size = match bytes {
            b if *b < 1 << 10 => format!("{b} B"),
            b if *b < 1 << 20 => format!("{} KiB", b >> 10),
            b => format!("{} MiB", b >> 20),
        };
        row(&format!("sync of {size} a rank / MPI_Allgather from C"), &times[0], &times[1], bound);
    }
}

/// Two ranks that exchange on orders.
fn exchange(tmp: &Path) -> Contest {
    let socket = Socket::in_folder(&fresh(tmp));
    let mut command = mpirun(2, Bind::Free, WORKER);
    command.args(["bench", "exchange", socket.path()]);
    Contest::start(vec![command], &socket, 2)
}

/// Twenty metrics, beside PyTorch's way to exchange objects.
fn metrics(tmp: &Path, rounds: usize) {
    let mut ours = exchange(tmp);
    let socket = Socket::in_folder(&fresh(tmp));
    let mut theirs = Contest::start(python(2, Bind::Free, &["object", socket.path()]), &socket, 2);
    let mut module = module(tmp);
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..2 * rounds {
        times[0].push(ours.slowest("1 0 2000"));
        times[1].push(theirs.slowest("0 0 200"));
        times[2].push(ours.slowest("2 0 2000"));
        times[3].push(module.slowest("0 0 100"));
    }
    let what = "20 metrics";
    row(
        &format!("{what}: mp_sync_map / all_gather_object (gloo)"),
        &times[0],
        &times[1],
        Some(0.1),
    );
    row(&format!("{what}: reduced / all_gather_object (gloo)"), &times[2], &times[1], Some(0.1));
    row(&format!("{what}: Python's mp_sync_dict / all_gather_object"), &times[3], &times[1], None);
}

/// The Python module in a trial whose helper syncs over MPI.
fn module(tmp: &Path) -> Contest {
    let folder = fresh(tmp);
    let socket = Socket::in_folder(&folder);
    let plan = format!(
        "version = 1\n[sweep]\nname = \"socket\"\n[run]\ncommand = [\"python3\", \"{HERE}/peer.py\", \
         \"socket\", \"{}\"]\n[resources]\nranks = 2\n[metrics]\nsync = \"mpi\"\n[grid]\ni = [0]\n",
        socket.path()
    );
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["-q", "submit", "plan.toml", "--local"]).current_dir(&folder);
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/site/python");
    command.env("PYTHONPATH", module);
    Contest::start(vec![command], &socket, 2)
}

/// The order of an epoch of 10^6 samples, on one of 8 ranks.
fn sampler(tmp: &Path, rounds: usize) {
    const N: u64 = 1_000_000;
    let socket = Socket::in_folder(&fresh(tmp));
    let mut theirs = Contest::start(python(1, Bind::Free, &["sampler", socket.path()]), &socket, 1);
    let ours = Distributed::new(N, Place::new(0, 8).unwrap());
    let mut times: [Vec<f64>; 3] = Default::default();
    for epoch in 0..2 * rounds as u64 {
        let begin = Instant::now();
        for again in 0..5 {
            std::hint::black_box(ours.indices(5 * epoch + again));
        }
        times[0].push(begin.elapsed().as_secs_f64() / 5.0);
        times[1].push(theirs.slowest(&format!("0 {N} 1")));
        times[2].push(theirs.slowest(&format!("1 {N} 5")));
    }
    let what = "sampler, 10^6 samples, 1 of 8 ranks";
    row(&format!("{what} / DistributedSampler"), &times[0], &times[1], Some(1.0));
    row(&format!("{what} / torch.randperm alone"), &times[0], &times[2], None);
}
