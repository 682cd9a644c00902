//! What one trial asks of a scheduler: nodes, ranks, cores, GPUs, memory, time, queue.

use serde::{Deserialize, Serialize};

/// The resource request of a trial. Equal requests can share a job array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// Nodes of the allocation, at least 1.
    pub nodes: u32,
    /// Processes of the trial, at least 1; a multiple of `nodes` unless `ranks_per_node` says otherwise.
    pub ranks: u32,
    /// Ranks on each node, if the plan fixes it.
    pub ranks_per_node: Option<u32>,
    /// Cores of each rank, at least 1.
    pub cpus_per_rank: u32,
    /// GPUs of each rank.
    pub gpus_per_rank: u32,
    /// GPUs of the whole trial when `gpu_ids_abs` counts them; then `gpus_per_rank` is 0.
    pub gpus: Option<u32>,
    /// Memory of one node in MiB; `None` leaves it to the site.
    pub memory_mib: Option<u64>,
    /// Wall-clock limit in seconds; `None` leaves it to the site.
    pub walltime_s: Option<u64>,
    /// Partition or queue.
    pub partition: Option<String>,
    /// Account or project to charge.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Node features asked for.
    pub constraint: Option<String>,
    /// Further options of the scheduler, as written: `--exclusive`, `--mail-type=END`.
    pub directives: Vec<String>,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            nodes: 1,
            ranks: 1,
            ranks_per_node: None,
            cpus_per_rank: 1,
            gpus_per_rank: 0,
            gpus: None,
            memory_mib: None,
            walltime_s: None,
            partition: None,
            account: None,
            qos: None,
            constraint: None,
            directives: Vec::new(),
        }
    }
}

impl Resources {
    /// Cores of the whole trial.
    pub fn cores(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.cpus_per_rank)
    }

    /// GPUs of the whole trial.
    pub fn total_gpus(&self) -> u64 {
        self.gpus.map_or(u64::from(self.ranks) * u64::from(self.gpus_per_rank), u64::from)
    }
}
