//! The site profile: a cluster and its habits, read in layers, each value knowing where it came from.
//!
//! Built in, then `/etc/hpcsweep/site.toml`, then the installation's own
//! `share/hpcsweep/site/site.toml`, then `$HPCSWEEP_SITE`, then the user's own file; a later layer
//! wins, except that a cap can only become tighter. Every key is one line of [`keys::KEYS`]: reading,
//! showing and checking all follow from it. Never touches the disk: the caller lends a reader.

pub(crate) mod caps;
mod form;
pub(crate) mod keys;
mod layers;
mod read;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

use crate::base::host::access::{Readers, Shared};

pub(crate) use caps::{Ask, Caps};
pub use layers::{SHIPPED, load};
pub(crate) use schema::schema;

/// The profile of the site, all layers applied. Its JSON has the shape of the TOML, with `origins`
/// and `notes` beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Site {
    /// `[site]`: what the site is called.
    pub(crate) site: About,
    /// `[scheduler]`: which one, and what every job asks of it.
    pub(crate) scheduler: Scheduler,
    /// `[pbs]`: what PBS calls its resources here.
    pub(crate) pbs: Pbs,
    /// `[modules]`: environment modules of every job.
    pub(crate) modules: Modules,
    /// `[limits]`: what the scheduler allows.
    pub(crate) limits: Limits,
    /// `[results]`: who may write to sweeps and read them where the plan does not say.
    pub(crate) results: Results,
    /// `[caps]`: what the site allows; a later layer can only make them tighter.
    pub(crate) caps: Caps,
    /// `[templates]`: edited job scripts.
    pub(crate) templates: Templates,
    /// `[shell]`: the shell of job scripts.
    pub(crate) shell: Shell,
    /// Where each value that is not built in came from, by key.
    pub(crate) origins: BTreeMap<&'static str, Origin>,
    /// Remarks by key: a cap that a later layer could not raise.
    pub(crate) notes: BTreeMap<&'static str, String>,
}

/// `[results]`: who may write and read sweeps whose plans do not say so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Results {
    /// Which users may write to a sweep besides its owner.
    pub(crate) shared: Shared,
    /// Which users may read a sweep; `None`: as the umask says.
    pub(crate) readable_by: Option<Readers>,
}

/// `[site]`: the cluster's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct About {
    /// What people call the cluster.
    pub(crate) name: Option<String>,
}

/// Which scheduler the site has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    /// Whatever is found: Slurm, PBS, otherwise this machine.
    #[default]
    Auto,
    /// Slurm, whatever version it is.
    Slurm,
    /// PBS: OpenPBS or PBS Pro.
    Pbs,
    /// No scheduler: processes of this machine.
    Local,
}

impl SchedulerKind {
    /// Every kind with the word a profile uses for it.
    pub(crate) const ALL: [(&'static str, Self); 4] =
        [("slurm", Self::Slurm), ("pbs", Self::Pbs), ("local", Self::Local), ("auto", Self::Auto)];

    /// The word a profile uses for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
            Self::Local => "local",
        }
    }

    /// Whether it is a scheduler, which is given jobs.
    pub(crate) fn takes_jobs(self) -> bool {
        !matches!(self, Self::Local | Self::Auto)
    }
}

/// `[scheduler]`: which one, its defaults, and how it starts workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Scheduler {
    /// Which scheduler the site has.
    pub(crate) kind: SchedulerKind,
    /// Partition or queue of a plan that names none.
    pub(crate) partition: Option<String>,
    /// Account of a plan that names none.
    pub(crate) account: Option<String>,
    /// Quality of service of a plan that names none.
    pub(crate) qos: Option<String>,
    /// Words put before the worker for several ranks; `None`: the scheduler's.
    pub(crate) launcher: Option<Vec<String>>,
    /// Further options of every job, each beginning with `-`.
    pub(crate) directives: Vec<String>,
    /// Whether single-rank trials start through the launcher as well.
    pub(crate) single_rank_step: bool,
}

/// `[pbs]`: what PBS calls GPUs and node features here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Pbs {
    /// The resource that counts GPUs; `None` where there is none.
    pub(crate) gpu_resource: Option<String>,
    /// The resource that `constraint` asks for.
    pub(crate) constraint_resource: Option<String>,
}

impl Default for Pbs {
    fn default() -> Self {
        Self { gpu_resource: Some("ngpus".to_owned()), constraint_resource: None }
    }
}

/// `[modules]`: environment modules of every job, and the file that defines `module`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Modules {
    /// Modules that every job loads before the plan's own.
    pub(crate) load: Vec<String>,
    /// Shell file that defines `module`, where the shells of jobs lack it.
    pub(crate) init: Option<PathBuf>,
}

/// `[limits]`: `None` means that the scheduler is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Limits {
    /// Largest index of an array plus one, as Slurm's MaxArraySize.
    pub(crate) max_array_size: Option<u64>,
    /// Most elements of one array, as Slurm's max_array_tasks.
    pub(crate) max_array_tasks: Option<u64>,
    /// Most elements one user may have queued or running.
    pub(crate) max_submit_jobs: Option<u64>,
    /// Most elements the whole cluster keeps, as Slurm's MaxJobCount.
    pub(crate) max_job_count: Option<u64>,
    /// Calls of qsub that one submission may make so that chains become jobs of their own.
    pub(crate) max_calls: u64,
    /// Seconds after a call without an answer during which its job may still appear.
    pub(crate) settle_s: u64,
    /// Seconds after which a call of the scheduler is given up.
    pub(crate) call_timeout_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_array_size: None,
            max_array_tasks: None,
            max_submit_jobs: None,
            max_job_count: None,
            max_calls: 200,
            settle_s: 10,
            call_timeout_s: 60,
        }
    }
}

/// `[templates]`: job scripts that replace the built-in ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Templates {
    /// Folder of edited templates; a relative one is under the folder of its profile.
    pub(crate) dir: Option<PathBuf>,
}

/// `[shell]`: the interpreter of job scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Shell {
    /// Absolute path of the shell in the first line of job scripts.
    pub(crate) path: PathBuf,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No file set it.
    BuiltIn,
    /// A profile set it.
    File {
        /// The profile's path, as it was read.
        path: PathBuf,
        /// Line in it, from 1.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// One line of `hpcsweep site show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The key with its table: `caps.max_nodes`.
    pub key: &'static str,
    /// Its value as text; in words where nothing is set.
    pub(crate) value: String,
    /// Where the value came from.
    pub(crate) origin: String,
    /// A remark, or nothing.
    pub(crate) note: String,
}

impl Default for Site {
    /// The built-in profile, which the layers override.
    fn default() -> Self {
        Self {
            site: About::default(),
            scheduler: Scheduler::default(),
            pbs: Pbs::default(),
            modules: Modules::default(),
            limits: Limits::default(),
            results: Results::default(),
            caps: Caps::default(),
            templates: Templates::default(),
            shell: Shell { path: PathBuf::from("/bin/bash") },
            origins: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }
}

impl Site {
    /// Where the value of a key came from; a key that no file set is built in.
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::BuiltIn)
    }

    /// Every key with its value, its origin and a remark, in the order of the reference.
    pub fn rows(&self) -> Vec<Row> {
        keys::KEYS
            .iter()
            .map(|key| Row {
                key: key.name,
                value: (key.show)(self),
                origin: self.origin(key.name).to_string(),
                note: self.notes.get(key.name).cloned().unwrap_or_default(),
            })
            .collect()
    }
}
