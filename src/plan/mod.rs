//! A checked sweep plan: what a person wrote, expanded into trials.
//!
//! [`parse`] takes text and returns a [`Plan`] or every fault of the text at once. What is checked
//! here is not checked again further up. Never touches the disk.

pub mod author;
mod axes;
mod chains;
pub mod check;
mod command;
mod directives;
mod engine;
mod exclude;
mod expand;
mod file;
mod head;
mod hooks;
pub mod key;
mod known;
mod layout;
mod leaves;
mod listed;
mod metrics;
mod pull;
mod request;
pub mod resources;
mod run;
mod sample;
mod schema;
mod template;
#[cfg(test)]
mod testing;
mod train;
mod trials;
pub mod value;

use std::sync::Arc;

use self::author::Author;
use crate::host::access::{Readers, Shared};
use crate::host::gpus::DeviceId;

pub use command::{CommandTemplate, Rendered, TrialNames, names_of};
pub use file::{parse, parse_with};
pub use hooks::Hooks;
pub use key::Keys;
pub use metrics::{Metrics, Reduction};
pub use pull::Pull;
pub use resources::Resources;
pub use schema::{reference, schema};
pub use train::TrainTemplate;
pub use value::{Params, Value};

/// What a failed trial does to the rest of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// The rest of the chain is skipped.
    Stop,
    /// The next link runs all the same.
    Continue,
}

/// How a trial's own tables are laid over `[defaults]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Leaf by leaf: `opt.a` of the defaults stays beside the trial's `opt.b`.
    Deep,
    /// Key by key: a trial's `opt` replaces the whole `opt` of the defaults.
    Shallow,
}

/// How `gpu_ids_abs` is read inside an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuIds {
    /// Exactly these physical devices; one that was not granted is refused.
    Exact,
    /// Only their number counts: the devices the scheduler granted are used.
    Count,
}

/// `[run]`: what every trial runs, before its parameters are filled in.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Run {
    /// The argument vector; each element may hold Tera expressions over the parameters. Empty when
    /// `function` or `train` says what runs.
    pub command: Vec<String>,
    /// The name of a function that the program which starts an agent calls with the parameters of a trial
    /// (`crate::pull::solo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The argument vector of the program that has `function`: agents without `--serve` become it, once for each
    /// agent and not for each trial. Empty where only its user can start it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program: Vec<String>,
    /// `[train]` as written: trained by `hpcsweep-worker` instead of a command. Texts may hold Tera
    /// expressions; a text that is one expression alone keeps the type of its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<serde_json::Value>,
    /// `[metrics]`: what becomes of the lines that the ranks write.
    #[serde(default, skip_serializing_if = "Metrics::is_default")]
    pub metrics: Metrics,
    /// `[hooks]`: what is called when a trial has ended.
    #[serde(default, skip_serializing_if = "Hooks::is_default")]
    pub hooks: Hooks,
    /// Folder the command runs in, absolute or relative to the plan; Tera is not expanded.
    pub workdir: String,
    /// Shell lines run before the command in the job script (this is the user's own shell code).
    pub setup: Vec<String>,
    /// Environment modules loaded by the job script.
    pub modules: Vec<String>,
    /// Environment variables of the command; values may hold Tera expressions.
    pub env: Vec<(String, String)>,
    /// What a failure does to the rest of the chain.
    pub on_failure: OnFailure,
    /// How often a trial may be tried by its worker, at least 1.
    pub attempts: u32,
}

impl Run {
    /// Refuses trials that call a function: only the program that has it can.
    ///
    /// # Errors
    /// When they do.
    pub fn refuse_function(
        &self,
        author: impl FnOnce() -> Author,
    ) -> Result<(), crate::fault::Fault> {
        let Some(function) = &self.function else { return Ok(()) };
        let sentence =
            format!("the plan calls the function `{function}`, which only its own program can");
        let hint = match author() {
            Author::Person => {
                "start the program that has the function, or name it: `program` under `[run]`"
            }
            Author::Python => {
                "start the script again that has the function: it runs or submits its sweep itself"
            }
        };
        Err(crate::fault::Fault::request(sentence).hint(hint))
    }

    /// Whether ranks of a trial with several talk over MPI through `hpcsweep-worker`.
    pub fn needs_mpi(&self) -> bool {
        self.train.is_some() || self.metrics.mpi
    }
}

/// `[schedule]`: how trials become jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Axes along which a chain runs: points that differ only in these form one chain.
    pub chain_along: Vec<String>,
    /// At most this many elements of an array run at once (`--array=...%N`), or local trials.
    pub max_running: Option<u32>,
    /// How `gpu_ids_abs` is read inside an allocation.
    pub gpu_ids: GpuIds,
    /// Trials that use a GPU at the same time.
    pub gpu_share: u32,
    /// How chains become jobs; `None` leaves it to the scheduler.
    pub chains: Option<ChainsAs>,
    /// Who decides which trial runs where.
    pub mode: Mode,
    /// Trials in each element of an array, one after the other.
    pub pack: Option<u32>,
    /// How agents share the sweep.
    pub pull: Pull,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            chain_along: Vec::new(),
            max_running: None,
            gpu_ids: GpuIds::Exact,
            gpu_share: 1,
            chains: None,
            mode: Mode::Array,
            pack: None,
            pull: Pull::default(),
        }
    }
}

/// Who decides which trial runs where (`[schedule] mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The scheduler: each trial is an element of an array.
    Array,
    /// Agents, which take trials from the results tree.
    Pull,
}

/// How chains become jobs of a scheduler (`[schedule] chains`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainsAs {
    /// Each trial of a chain of two or more is a job of its own behind its predecessor.
    Jobs,
    /// Link `k` of a block is an array behind the whole array of link `k - 1`.
    Barrier,
    /// One element runs its chain link by link.
    Fused,
}

/// The name of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskId {
    /// `task_id = 1`.
    Number(i64),
    /// `task_id = "fold2"`.
    Name(Arc<str>),
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Name(s) => f.write_str(s),
        }
    }
}

/// One trial, in plan order.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The chain it belongs to; `None`: a chain of its own.
    pub task_id: Option<TaskId>,
    /// Its parameters, defaults included.
    pub params: Params,
    /// Physical devices, if the plan names them; an empty list means no device.
    pub gpu_ids_abs: Option<Arc<[DeviceId]>>,
    /// What it asks of a scheduler; equal requests share one allocation of memory.
    pub resources: Arc<Resources>,
    /// Line of the plan (from 1) of the `[[trials]]` entry it came from; 0 if there is none.
    pub line: u32,
}

/// A checked plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// `[sweep] name`: also the folder under the root.
    pub name: String,
    /// `[sweep] root` as written; relative to the plan's folder.
    pub root: String,
    /// `[sweep] seed`.
    pub seed: i64,
    /// `[sweep] shared`: who may write to the sweep besides its owner.
    pub shared: Shared,
    /// `[sweep] readable_by`: who may read it; `None`: as the umask says.
    pub readers: Option<Readers>,
    /// `[run]`.
    pub run: Run,
    /// `[resources]` before any trial's own.
    pub resources: Arc<Resources>,
    /// `[schedule]`.
    pub schedule: Schedule,
    /// All trials, in plan order.
    pub trials: Vec<Trial>,
    /// The text of the file that lists them, where the plan names one.
    pub listed: Option<String>,
}

/// The names of `params` that stand for something else in templates of a command.
pub const RESERVED_NAMES: &[&str] = &["params", "trial", "sweep"];

/// The most trials of one plan; a plan beyond it is refused before it is expanded.
pub const MAX_TRIALS: u64 = 10_000_000;
