//! Exactly the names a template may use, and nothing else.

use std::path::PathBuf;

use serde::Serialize;
use tera::Context;

use crate::base::host::access::Readers;
use crate::cluster::scheduler::Scheduler;
use crate::cluster::scheduler::pbs::directives as pbs;
use crate::plan::Run;
use crate::plan::site::Site;

/// The names that a job script may use.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JobScript {
    /// Interpreter of the script.
    pub(crate) shell: PathBuf,
    /// Name of the sweep.
    pub(crate) sweep: String,
    /// The sweep's folder, absolute.
    pub(crate) sweep_dir: PathBuf,
    /// Name of the job: holds the token by which it is found again.
    pub(crate) job_name: String,
    /// Number of the array in the sweep.
    pub(crate) array: u32,
    /// Block of its submission.
    pub(crate) block: u32,
    /// Link of the block.
    pub(crate) link: u32,
    /// Number of elements, at least 1.
    pub(crate) count: u64,
    /// Largest index of an element: `count` - 1.
    pub(crate) last_index: u64,
    /// The range of indices as PBS's `-J` takes it; `None` for a plain job.
    pub(crate) indices: Option<String>,
    /// Trials that each element runs one after the other; 1 unless chains are fused or packed.
    pub(crate) links: u64,
    /// Whether the elements are agents and no trials.
    pub(crate) pilots: bool,
    /// Whether it is a job that submits the rest of the sweep.
    pub(crate) feeder: bool,
    /// Whether a job that the scheduler takes back is to begin again.
    pub(crate) requeue: bool,
    /// Most elements that may run at once.
    pub(crate) max_running: Option<u64>,
    /// Where the scheduler puts the job's own output, `%a` standing for the index.
    pub(crate) job_log: String,
    /// The same file as the running element sees it, quoted for the shell.
    pub(crate) job_log_of_element: String,
    /// What `chmod` does to that file, which the scheduler makes under the umask of the submission.
    pub(crate) job_log_mode: Option<&'static str>,
    /// The request in PBS's words, for `-l select=`.
    pub(crate) select: String,
    /// Where its chunks lie, for `-l place=`, unless a directive says so.
    pub(crate) place: Option<&'static str>,
    /// The file that gives a job the environment it was submitted from, where the scheduler does not.
    pub(crate) environment: Option<PathBuf>,
    /// Nodes of the allocation.
    pub(crate) nodes: u32,
    /// Processes of a trial, over all of its nodes.
    pub(crate) ranks: u32,
    /// Processes on each node, where the plan fixes it.
    pub(crate) ranks_per_node: Option<u32>,
    /// Cores of each process.
    pub(crate) cpus_per_rank: u32,
    /// GPUs of each node; 0 without.
    pub(crate) gpus_per_node: u64,
    /// Memory of each node (`2G`).
    pub(crate) memory: Option<String>,
    /// Time limit in the scheduler's form (`01:00:00`), the site's cap if the plan has none; `None`: none is asked for.
    pub(crate) walltime: Option<String>,
    pub(crate) partition: Option<String>,
    pub(crate) account: Option<String>,
    /// Quality of service: the plan's, else the site's.
    pub(crate) qos: Option<String>,
    /// Node features, as the plan writes them.
    pub(crate) constraint: Option<String>,
    /// Further directives: the site's, then the plan's.
    pub(crate) directives: Vec<String>,
    /// Whether the worker is started by the launcher as a step of the job.
    pub(crate) step: bool,
    /// The most launches of the worker's step: one, unless another attempt takes another launch.
    pub(crate) launches: u32,
    /// The words that start one worker a rank.
    pub(crate) launcher: Vec<String>,
    /// The worker's argument vector.
    pub(crate) worker: Vec<String>,
}

/// The names that the set-up script may use.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SetupScript {
    /// Interpreter of the script.
    pub(crate) shell: PathBuf,
    /// Name of the sweep.
    pub(crate) sweep: String,
    /// Modules to load: the site's, then the plan's.
    pub(crate) modules: Vec<String>,
    /// The file that defines `module`, where the site names one.
    pub(crate) module_init: Option<PathBuf>,
    /// Lines of the plan's `[run] setup`, as written.
    pub(crate) setup: Vec<String>,
}

/// The names that the template of this file name may use.
pub(crate) fn names(template: &str) -> &'static [&'static str] {
    if template == "setup.sh.tera" {
        &["shell", "sweep", "modules", "module_init", "setup"]
    } else {
        &[
            "shell",
            "sweep",
            "sweep_dir",
            "job_name",
            "array",
            "block",
            "link",
            "count",
            "last_index",
            "indices",
            "links",
            "pilots",
            "feeder",
            "requeue",
            "max_running",
            "job_log",
            "job_log_of_element",
            "job_log_mode",
            "select",
            "place",
            "environment",
            "nodes",
            "ranks",
            "ranks_per_node",
            "cpus_per_rank",
            "gpus_per_node",
            "memory",
            "walltime",
            "partition",
            "account",
            "qos",
            "constraint",
            "directives",
            "step",
            "launches",
            "launcher",
            "worker",
        ]
    }
}

/// A context with the given names.
///
/// # Errors
/// When a value cannot be serialised (our bug).
pub(crate) fn from_names<T: Serialize>(names: &T) -> anyhow::Result<Context> {
    Context::from_serialize(names).map_err(|e| anyhow::anyhow!("template context: {e}"))
}

/// The site's values for a job script.
#[derive(Debug, Clone)]
pub(crate) struct SiteWords<'a> {
    pub(crate) scheduler: &'a dyn Scheduler,
    /// Absolute path of the scripts' interpreter.
    pub(crate) shell: PathBuf,
    /// Partition or queue of trials that name none.
    pub(crate) partition: Option<String>,
    /// Account or project of trials that name none.
    pub(crate) account: Option<String>,
    /// Default quality of service.
    pub(crate) qos: Option<String>,
    /// Directives for every job.
    pub(crate) directives: Vec<String>,
    /// The words that start one worker a rank; `None`: the scheduler's.
    pub(crate) launcher: Option<Vec<String>>,
    /// Whether trials talk over MPI.
    pub(crate) mpi: bool,
    /// The most launches of several ranks: the attempts of trials that talk over MPI.
    pub(crate) launches: u32,
    /// Whether trials resume from a checkpoint.
    pub(crate) resumes: bool,
    /// Whether a single rank is started by the launcher too.
    pub(crate) single_rank_step: bool,
    /// The walltime of a trial that names none, if the site caps it.
    pub(crate) max_walltime_s: Option<u64>,
    /// What PBS calls its resources.
    pub(crate) pbs: pbs::Names,
    /// The readers of the sweep.
    pub(crate) readers: Option<Readers>,
    /// The file with the variables of the submission, where jobs need it.
    pub(crate) environment: Option<PathBuf>,
}

impl<'a> SiteWords<'a> {
    /// A profile's values for the scripts of a scheduler, for trials that run this.
    pub(crate) fn from_site(site: &Site, scheduler: &'a dyn Scheduler, run: &Run) -> Self {
        let mpi = run.needs_mpi();
        Self {
            scheduler,
            shell: site.shell.path.clone(),
            partition: site.scheduler.partition.clone(),
            account: site.scheduler.account.clone(),
            qos: site.scheduler.qos.clone(),
            directives: site.scheduler.directives.clone(),
            launcher: site.scheduler.launcher.clone(),
            mpi,
            launches: if mpi { run.attempts } else { 1 },
            resumes: run.train.is_some(),
            single_rank_step: site.scheduler.single_rank_step,
            max_walltime_s: site.caps.max_walltime_s,
            pbs: pbs::Names {
                gpus: site.pbs.gpu_resource.clone(),
                constraint: site.pbs.constraint_resource.clone(),
            },
            readers: None,
            environment: None,
        }
    }
}
