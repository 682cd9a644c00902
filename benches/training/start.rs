//! How long it takes to the first step, and what of it is what.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::contest::{Bind, mpirun, python};
use crate::table::{row, single};
use crate::{MODELS, PROGRAM, WORKER, fresh};

/// The steps of the heavy worker until then.
const OURS: [&str; 5] =
    ["loader with libtorch", "MPI_Init", "data", "model, DDP, optimizer", "the step"];
/// What PyTorch does.
const THEIRS: [&str; 6] = [
    "the interpreter",
    "import torch",
    "process group",
    "import numpy, data",
    "model, DDP, optimizer",
    "the step",
];

/// From the call of the launcher to the first step, in parts; and a whole trial of one step.
pub(crate) fn run(tmp: &Path, rounds: usize) {
    let folder = fresh(tmp);
    let (name, model, _) = MODELS[0];
    let data = folder.join("data.npz");
    let data = data.to_str().unwrap();
    let made = Command::new("python3")
        .args(["-c", "import sys, numpy\nnumpy.savez(sys.argv[1], x=numpy.ones((64, 3, 32, 32), 'f4'), y=numpy.arange(64) % 10)", data])
        .env("PYTHONPATH", std::env::var("HPCSWEEP_BENCH_TORCH").unwrap_or_default())
        .status()
        .unwrap();
    assert!(made.success());
    let config = format!(
        r#"{{"model":{model},"data":{{"train":"{data}"}},"epochs":1,"batch_size":32,"evaluate":false}}"#
    );
    let file = folder.join("config.json");
    std::fs::write(&file, &config).unwrap();
    for ranks in [1, 2] {
        let mut ours = vec![Vec::new(); OURS.len() + 1];
        let mut theirs = vec![Vec::new(); THEIRS.len() + 1];
        let mut whole = Vec::new();
        for round in 0..rounds {
            let began = now();
            let mut command = match ranks {
                // One rank trains without MPI, and so without mpirun.
                1 => Command::new(WORKER),
                _ => mpirun(ranks, Bind::Free, WORKER),
            };
            command.args(["bench", "start", file.to_str().unwrap(), &began.to_string()]);
            take(&mut ours, vec![command]);
            let began = now().to_string();
            take(&mut theirs, python(ranks, Bind::Free, &["start", data, name, &began]));
            whole.push(trial(&folder, ranks, data, round));
        }
        let title = format!("to the first step, {ranks} rank{}", if ranks > 1 { "s" } else { "" });
        row(&format!("{title} / PyTorch's"), last(&ours), last(&theirs), None);
        let launcher = if ranks > 1 { "mpirun, " } else { "" };
        for (part, times) in OURS.iter().zip(&ours) {
            let launcher = if *part == OURS[0] { launcher } else { "" };
            single(&format!("  {launcher}{part}"), times);
        }
        for (part, times) in THEIRS.iter().zip(&theirs) {
            single(&format!("  PyTorch: {part}"), times);
        }
        single("  a whole trial of two steps: submit --local", &whole);
    }
}

/// Runs to the end and adds the parts, then the sum.
fn take(times: &mut [Vec<f64>], commands: Vec<Command>) {
    let mut children: Vec<_> = commands
        .into_iter()
        .map(|mut command| command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let others = children.split_off(1);
    let first = children.remove(0).wait_with_output().unwrap();
    assert!(first.status.success(), "{}", first.status);
    for mut other in others {
        assert!(other.wait().unwrap().success());
    }
    let text = String::from_utf8(first.stdout).unwrap();
    let marks: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(marks.len() + 1, times.len());
    let starts = std::iter::once(0.0).chain(marks.iter().copied());
    for ((mark, start), times) in marks.iter().zip(starts).zip(times.iter_mut()) {
        times.push(mark - start);
    }
    times[marks.len()].push(marks[marks.len() - 1]);
}

fn last(times: &[Vec<f64>]) -> &[f64] {
    &times[times.len() - 1]
}

/// The whole of a trial.
fn trial(folder: &Path, ranks: usize, data: &str, round: usize) -> f64 {
    let plan = format!(
        "version = 1\n[sweep]\nname = \"start{ranks}-{round}\"\n[train]\nepochs = 1\nevaluate = false\n\
         model = {{ kind = \"cnn\", channels = [32, 64, 128], outputs = 10 }}\n\
         data = {{ train = \"{data}\" }}\n[resources]\nranks = {ranks}\n[grid]\ni = [0]\n"
    );
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    let begin = Instant::now();
    let status = Command::new(PROGRAM)
        .args(["-q", "submit", "plan.toml", "--local"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    begin.elapsed().as_secs_f64()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}
