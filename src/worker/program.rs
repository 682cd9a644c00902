//! What runs as one rank: the user's program or the trainer, and, where the plan asks for it, the helper
//! that carries the program's syncs over MPI.
//!
//! The worker itself never calls MPI, and both are its children: whatever befalls them is recorded. A
//! program under `[metrics] sync = "mpi"` is started without the launcher's MPI variables, because it is
//! the helper that takes the rank's place among the MPI processes.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::prepare::Prepared;
use super::scratch::Scratch;
use super::{Job, prepare};
use super::{launch, lifeline};
use crate::fault::Fault;
use crate::host::access::{self, Shared};
use crate::host::{Vars, disk, process};
use crate::plan::{Metrics, TrainTemplate};
use crate::rank::is_launcher_variable;
use crate::train::job::Job as TrainJob;
use crate::tree::Tree;

/// The exit code of a trainer or helper that lost the others: what befell them comes first.
pub const LOST_PEERS: i32 = 76;

/// What a helper is asked: a JSON file. Its standard input is the socket to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncJob {
    /// This rank as the launcher numbers it.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// This node.
    pub host: String,
    /// How lines are reduced.
    pub reduce: Metrics,
    /// The file to which this rank's program appends metric lines.
    pub metrics: PathBuf,
    /// The file to which rank 0's helper appends reduced lines.
    pub reduced: PathBuf,
    /// File for the one line that says why the helper failed.
    pub reason: PathBuf,
    /// File for the one line that says which metric lines were left out.
    pub odd: PathBuf,
}

/// The helper before its start.
pub struct Helper {
    argv: Vec<String>,
    env: Vars,
    /// The helper's end of the socket.
    end: OwnedFd,
}

/// A started rank.
pub struct Program {
    /// The program itself.
    pub child: Child,
    /// The helper that carries its syncs.
    pub(super) helper: Option<Child>,
}

/// Whether a helper has ended, which it must not while the program runs.
pub(super) fn is_gone(helper: &mut Child) -> bool {
    !matches!(helper.try_wait(), Ok(None))
}

/// The heavy sibling's path as an argument.
fn heavy() -> Result<String> {
    let path = launch::sibling()?;
    if path.exists() {
        return Ok(path.to_string_lossy().into_owned());
    }
    let sentence =
        format!("this trial needs `hpcsweep-worker`, and `{}` does not exist", path.display());
    Err(Fault::machine(sentence)
        .hint("build it with `--features mpi,torch`, and install both programs together")
        .into())
}

/// Refuses checkpoints that another user has made or may change. One of them may be a module, which is code.
fn check_checkpoints(tree: &Tree, trial: u64) -> Result<()> {
    let folder = tree.checkpoints(trial);
    let shared = if access::is_shared() { Shared::Group } else { Shared::No };
    for folder in folder.ancestors().take_while(|at| *at != tree.dir()) {
        access::check(folder, shared)?;
    }
    for name in disk::list(&folder)? {
        access::check(&folder.join(name), shared)?;
    }
    Ok(())
}

/// The command of a training trial: the heavy sibling with this rank's job in a file.
///
/// # Errors
/// When the plan's `[train]` cannot be filled in, the checkpoints are not to be trusted, or there is no sibling.
pub(super) fn trainer(
    job: &Job,
    attempt: u32,
    extra: &[(&str, serde_json::Value)],
    scratch: &Scratch,
) -> Result<Vec<String>> {
    let config = TrainTemplate::new(&job.head.run)?.fill(&job.row.params, job.head.seed, extra)?;
    check_checkpoints(&job.tree, job.row.id)?;
    let heavy = heavy()?;
    let train = TrainJob {
        config,
        trial: job.row.id,
        attempt,
        rank: job.rank.rank,
        world: job.world,
        local_rank: job.rank.local_rank.unwrap_or(0),
        host: job.host.clone(),
        cores: job.resources.cpus_per_rank,
        gpus: u32::try_from(job.resources.total_gpus().div_ceil(u64::from(job.world))).unwrap_or(0),
        base: job.head.workdir.clone(),
        checkpoints: job.tree.checkpoints(job.row.id),
        work: job.tree.work(job.row.id),
        metrics: scratch.metrics(),
        result: scratch.result(),
        reason: scratch.reason(),
        smoke: job.vars.get("HPCSWEEP_SMOKE").is_some_and(|v| v == "1"),
        readers: access::opened_to(),
    };
    let file = scratch.file("job.json");
    disk::write_whole(&file, &serde_json::to_vec(&train)?)?;
    Ok(vec![heavy, "train".to_owned(), file.to_string_lossy().into_owned()])
}

/// Gives a program its end of a socket (put into `env`), and makes the helper for the other end.
///
/// # Errors
/// When there is no sibling or no socket.
pub(super) fn helper(job: &Job, scratch: &Scratch, env: &mut Vars) -> Result<(Helper, OwnedFd)> {
    let heavy = heavy()?;
    let fail = |e: std::io::Error| {
        Fault::machine(format!("cannot make a pair of sockets: {}", disk::reason(&e)))
    };
    let (end, theirs) = process::socket_pair().map_err(fail)?;
    let sync = SyncJob {
        rank: job.rank.rank,
        world: job.world,
        host: job.host.clone(),
        reduce: job.head.run.metrics.clone(),
        metrics: scratch.metrics(),
        reduced: scratch.reduced(),
        reason: scratch.file("sync-reason.txt"),
        odd: scratch.odd(),
    };
    let file = scratch.file("sync.json");
    disk::write_whole(&file, &serde_json::to_vec(&sync)?)?;
    // The helper is the MPI process: it keeps what the launcher set, the program does not.
    let mut own: Vars = job.vars.clone();
    own.insert(launch::VERSION_VARIABLE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    own.insert("HPCSWEEP_REASON".to_owned(), sync.reason.to_string_lossy().into_owned());
    env.retain(|name, _| !is_mpi_variable(name));
    env.insert("HPCSWEEP_SYNC".to_owned(), theirs.as_raw_fd().to_string());
    let argv = vec![heavy, "sync".to_owned(), file.to_string_lossy().into_owned()];
    Ok((Helper { argv, env: own, end }, theirs))
}

/// Variables from which an MPI library concludes that it was started by a launcher.
pub(super) fn is_mpi_variable(name: &str) -> bool {
    const FAMILIES: [&str; 9] =
        ["OMPI_", "PMI_", "PMIX_", "PRTE_", "ORTE_", "HYDI_", "MPI_LOCAL", "MPIRUN_", "MV2_"];
    // With a step but without PMI, Open MPI believes that srun started it, and aborts (seen in 4.1.4).
    name == "SLURM_STEP_ID"
        || (is_launcher_variable(name) && FAMILIES.iter().any(|family| name.starts_with(family)))
}

impl Program {
    /// Starts a rank. With `piped` its output comes through pipes, otherwise straight into the log.
    ///
    /// # Errors
    /// Why it could not be started, in words.
    pub(super) fn start(prepared: &mut Prepared, piped: bool, log: &File) -> Result<Self, Fault> {
        let socket = prepared.sync.take();
        let keep = socket.as_ref().map(|(_, theirs)| theirs.as_fd());
        let mut program =
            Self { child: prepare::start_program(prepared, piped, log, keep)?, helper: None };
        lifeline::hold(&program.child, &prepared.env, prepared.is_trainer);
        if let Some((helper, _theirs)) = socket {
            let sink = process::Sink::Serve(helper.end);
            let started = process::start(
                &helper.argv,
                &helper.env,
                &prepared.workdir,
                sink,
                Signal::SIGKILL,
                None,
                // Its word of the program's end, which may come before it listens.
                &[Signal::SIGUSR1],
            );
            match started {
                Ok(child) => {
                    lifeline::hold(&child, &helper.env, true);
                    program.helper = Some(child);
                }
                Err(e) => {
                    process::kill_group(&program.child, Signal::SIGKILL);
                    let _ = program.child.wait();
                    return Err(process::not_started(&helper.argv[0], &e));
                }
            }
        }
        Ok(program)
    }

    /// Tells the helper that the program has ended, well or not: after a failure it ends at once.
    pub(super) fn ended(&mut self, well: bool) {
        if let Some(helper) = &self.helper {
            if well {
                process::tell(helper, Signal::SIGUSR1);
            } else {
                process::kill_group(helper, Signal::SIGKILL);
            }
        }
    }

    /// Waits for the helper, which waits for those of the other ranks; `go_on` is asked now and then.
    /// Returns whether it ended well.
    pub(super) fn wait_for_helper(&mut self, mut go_on: impl FnMut() -> bool) -> bool {
        let Some(helper) = &mut self.helper else { return true };
        let mut nap = Duration::from_millis(1);
        loop {
            match helper.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if go_on() => {
                    std::thread::sleep(nap);
                    nap = (nap * 2).min(Duration::from_millis(20));
                }
                _ => {
                    process::kill_group(helper, Signal::SIGKILL);
                    let _ = helper.wait();
                    return false;
                }
            }
        }
    }

    /// As [`Program::wait_for_helper`], for at most this long.
    pub(super) fn wait_for_helper_for(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        self.wait_for_helper(|| Instant::now() < until)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(helper) = &mut self.helper {
            process::kill_group(helper, Signal::SIGKILL);
            let _ = helper.wait();
        }
    }
}
