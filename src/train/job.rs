//! What `hpcsweep worker` hands to the `hpcsweep-worker` it starts: one JSON file a rank.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::config::Config;
use crate::base::host::access::Readers;

/// One rank's part of a training trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What to train, with the trial's parameters filled in.
    pub config: Config,
    /// Number of the trial in the sweep.
    pub trial: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// This rank as the launcher numbers it.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// This rank among those of its node.
    pub local_rank: u32,
    /// The name of this rank's node.
    pub host: String,
    /// Cores this rank asked for.
    pub cores: u32,
    /// GPUs this rank asked for.
    pub gpus: u32,
    /// Folder from which relative paths of the configuration start.
    pub base: PathBuf,
    /// The trial's checkpoints, the same for all attempts and ranks.
    pub checkpoints: PathBuf,
    /// The trial's own folder in the results.
    pub work: PathBuf,
    /// File to append metric lines to; rank 0 alone does.
    pub metrics: PathBuf,
    /// File for the final result; rank 0 alone writes it.
    pub result: PathBuf,
    /// File for the one line that says why this rank failed.
    pub reason: PathBuf,
    /// One batch of each stage only, and no checkpoint.
    pub smoke: bool,
    /// The readers of its files; `None`: as the umask says.
    pub readers: Option<Readers>,
}
