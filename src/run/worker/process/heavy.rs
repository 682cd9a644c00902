//! The tasks of the heavy sibling for a rank: to train, or to carry the syncs of a program.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;
use crate::base::host::access::{self, Shared};
use crate::base::host::{Vars, disk, process};
use crate::cluster::rank::is_launcher_variable;
use crate::plan::{Metrics, TrainTemplate};
use crate::run::worker::Job;
use crate::run::worker::process::launch;
use crate::run::worker::process::scratch::Scratch;
use crate::sweep::tree::Tree;
use crate::train::job::Job as TrainJob;

/// The task of a helper: a JSON file. Its standard input is the socket to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncJob {
    /// This rank as the launcher numbers it.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// The name of this rank's node.
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
pub(crate) struct Helper {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vars,
    /// The helper's end of the socket.
    pub(crate) end: OwnedFd,
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
pub(crate) fn trainer(
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
pub(crate) fn helper(job: &Job, scratch: &Scratch, env: &mut Vars) -> Result<(Helper, OwnedFd)> {
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
pub(crate) fn is_mpi_variable(name: &str) -> bool {
    const FAMILIES: [&str; 9] =
        ["OMPI_", "PMI_", "PMIX_", "PRTE_", "ORTE_", "HYDI_", "MPI_LOCAL", "MPIRUN_", "MV2_"];
    // With a step but without PMI, Open MPI believes that srun started it, and aborts (seen in 4.1.4).
    name == "SLURM_STEP_ID"
        || (is_launcher_variable(name) && FAMILIES.iter().any(|family| name.starts_with(family)))
}
