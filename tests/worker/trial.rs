//! Training trials of the heavy worker as subprocesses: alone, or as ranks of a real mpirun.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The program.
pub(crate) const WORKER: &str = env!("CARGO_BIN_EXE_hpcsweep-worker");
/// Nothing here takes so long; a test that hangs fails instead.
const LIMIT: Duration = Duration::from_secs(100);

/// A trial with its folder.
pub(crate) struct Trial {
    folder: tempfile::TempDir,
    world: u32,
}

/// A run of it that continues.
pub(crate) struct Running {
    child: Child,
}

/// The files that a run left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Trial {
    /// A trial of so many ranks, whose `[train]` is `config`.
    pub(crate) fn new(world: u32, config: &Value) -> Self {
        let trial = Self { folder: tempfile::tempdir().unwrap(), world };
        fs::create_dir(trial.path("work")).unwrap();
        (0..world).for_each(|rank| trial.write_job(rank, |job| job["config"] = config.clone()));
        trial
    }

    /// Writes the job of one rank, changed.
    pub(crate) fn write_job(&self, rank: u32, change: impl FnOnce(&mut Value)) {
        let mut job = match fs::read(self.path(&format!("job.{rank}.json"))) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => json!({
                "config": null, "trial": 0, "attempt": 1, "rank": rank, "world": self.world,
                "local_rank": rank, "host": "n1", "cores": 1, "gpus": 0,
                "base": env!("CARGO_MANIFEST_DIR"),
                "checkpoints": self.path("checkpoints"), "work": self.path("work"),
                "metrics": self.path("metrics.jsonl"), "result": self.path("result.json"),
                "reason": self.path(&format!("reason.{rank}")), "smoke": false,
            }),
        };
        change(&mut job);
        fs::write(self.path(&format!("job.{rank}.json")), job.to_string()).unwrap();
    }

    /// Changes the job of every rank.
    pub(crate) fn change(&self, change: impl Fn(&mut Value)) {
        (0..self.world).for_each(|rank| self.write_job(rank, &change));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes samples to a file of this folder, from which paths start from now on.
    pub(crate) fn write_arrays(&self, name: &str, x: &[f32], shape: &[usize], y: &[u8]) {
        let bytes: Vec<u8> = x.iter().flat_map(|n| n.to_le_bytes()).collect();
        let view = |dtype, shape: &[usize], bytes| {
            safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes).unwrap()
        };
        let arrays = [
            ("x", view(safetensors::Dtype::F32, shape, &bytes)),
            ("y", view(safetensors::Dtype::U8, &[y.len()], y)),
        ];
        fs::write(self.path(name), safetensors::serialize(arrays, None).unwrap()).unwrap();
        let base = self.path("");
        self.change(|job| job["base"] = json!(base));
    }

    pub(crate) fn start(&self) -> Running {
        let mut command = match self.world {
            1 => {
                let mut command = Command::new(WORKER);
                command.arg("train").arg(self.path("job.0.json"));
                command
            }
            world => {
                let mut command = mpirun(world);
                let script = "exec \"$0\" train \"$1/job.$OMPI_COMM_WORLD_RANK.json\"";
                command.args(["sh", "-c", script, WORKER]).arg(self.folder.path());
                command
            }
        };
        let log = fs::File::create(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Running { child: command.spawn().unwrap() }
    }

    /// Runs rank 0 alone, as a launcher does that MPI does not understand.
    pub(crate) fn run_alone(&self) -> Ended {
        let output =
            Command::new(WORKER).arg("train").arg(self.path("job.0.json")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { code: output.status.code(), text }
    }

    /// Runs to the end.
    pub(crate) fn run(&self) -> Ended {
        self.end(self.start())
    }

    pub(crate) fn end(&self, mut running: Running) -> Ended {
        let code = running.wait();
        Ended { code, text: self.log() }
    }

    /// The output of the last run.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Runs to the end, which must be good.
    pub(crate) fn done(&self) -> &Self {
        let ended = self.run();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        self
    }

    /// The metric lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("metrics.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The lines of epochs, each the last of its number, without what depends on the clock.
    pub(crate) fn epochs(&self) -> Vec<Value> {
        let mut epochs: Vec<Value> = Vec::new();
        for mut line in self.lines().into_iter().filter(|line| line["epoch"].is_u64()) {
            let fields = line.as_object_mut().unwrap();
            fields.retain(|name, _| !name.contains("second"));
            epochs.retain(|other| other["epoch"] != line["epoch"]);
            epochs.push(line);
        }
        epochs
    }

    /// The result, with the path of the weights within the trial's folder.
    pub(crate) fn result(&self) -> Value {
        let mut result: Value =
            serde_json::from_slice(&fs::read(self.path("result.json")).unwrap()).unwrap();
        let weights = result["weights"].as_str().unwrap();
        let inner = weights.strip_prefix(self.folder.path().to_str().unwrap()).unwrap().to_owned();
        result["weights"] = json!(inner);
        result
    }

    /// The final weights.
    pub(crate) fn model(&self) -> Vec<u8> {
        fs::read(self.path("work/model.safetensors")).unwrap()
    }

    /// Where the last checkpoint stands: epochs and steps.
    pub(crate) fn position(&self) -> Option<(u64, u64)> {
        let bytes = fs::read(self.path("checkpoints/last.safetensors")).ok()?;
        let (_, head) = safetensors::SafeTensors::read_metadata(&bytes).ok()?;
        let state = head.metadata().as_ref()?.get("hpcsweep")?;
        let state: Value = serde_json::from_str(state).ok()?;
        let of = |name: &str| state["progress"][name].as_u64();
        Some((of("epoch")?, of("step")?))
    }

    /// Waits until the checkpoint stands at a place or behind it; `false` if the run ended before.
    pub(crate) fn reaches(&self, running: &mut Running, place: (u64, u64)) -> bool {
        let start = Instant::now();
        while self.position().is_none_or(|position| position < place) {
            if running.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(start.elapsed() < LIMIT, "no checkpoint");
            std::thread::sleep(Duration::from_millis(1));
        }
        running.child.try_wait().unwrap().is_none()
    }

    /// The line in which a rank says why it failed.
    pub(crate) fn reason(&self, rank: u32) -> String {
        fs::read_to_string(self.path(&format!("reason.{rank}"))).unwrap_or_default()
    }
}

impl Running {
    /// Sends a signal to a rank.
    pub(crate) fn signal(&self, rank: usize, signal: nix::sys::signal::Signal) {
        let own = self.child.id();
        let ranks: Vec<i32> = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))
            .unwrap()
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        let is_mpirun =
            fs::read_to_string(format!("/proc/{own}/comm")).unwrap().trim() != "hpcsweep-worker";
        let pid = if is_mpirun { ranks.get(rank).copied() } else { Some(own.cast_signed()) };
        if let Some(pid) = pid {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        }
    }

    fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            if start.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("a run took longer than {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// mpirun for ranks on this machine, however many cores it has, without a search for fast networks.
fn mpirun(world: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &world.to_string(), "--oversubscribe", "--bind-to", "none"]);
    command.args(["--allow-run-as-root", "--mca", "btl", "self,vader", "--mca", "pml", "ob1"]);
    command
}

/// A file of examples.
pub(crate) fn digits() -> Value {
    json!({"train": "examples/data/digits.npz", "validation": {"fraction": 0.2}, "scale": 0.0625})
}

/// The numbers of a file of weights, by name.
pub(crate) fn weights(bytes: &[u8]) -> BTreeMap<String, Vec<f64>> {
    let file = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let numbers = |view: safetensors::tensor::TensorView<'_>| -> Vec<f64> {
        let data = view.data();
        match view.dtype() {
            safetensors::Dtype::F32 => {
                data.as_chunks().0.iter().map(|n| f64::from(f32::from_le_bytes(*n))).collect()
            }
            safetensors::Dtype::F64 => {
                data.as_chunks().0.iter().map(|n| f64::from_le_bytes(*n)).collect()
            }
            safetensors::Dtype::I64 => {
                data.as_chunks().0.iter().map(|n| i64::from_le_bytes(*n) as f64).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    file.iter().map(|(name, view)| (name.to_owned(), numbers(view))).collect()
}
