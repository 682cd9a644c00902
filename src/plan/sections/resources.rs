//! What one trial asks of a scheduler: nodes, ranks, cores, GPUs, memory, time, queue.

use serde::{Deserialize, Serialize};

use crate::base::fault::Fault;

/// The resource request of a trial. Equal requests can share a job array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// Nodes of the allocation, at least 1.
    pub(crate) nodes: u32,
    /// Processes of the trial, at least 1; a multiple of `nodes` unless `ranks_per_node` says otherwise.
    pub(crate) ranks: u32,
    /// Ranks on each node, if the plan fixes it.
    pub(crate) ranks_per_node: Option<u32>,
    /// Cores of each rank, at least 1.
    pub(crate) cpus_per_rank: u32,
    /// GPUs of each rank.
    pub(crate) gpus_per_rank: u32,
    /// GPUs of the whole trial when `gpu_ids_abs` counts them; then `gpus_per_rank` is 0.
    pub(crate) gpus: Option<u32>,
    /// Memory of one node in MiB; `None` leaves it to the site.
    pub(crate) memory_mib: Option<u64>,
    /// Wall-clock limit in seconds; `None` leaves it to the site.
    pub(crate) walltime_s: Option<u64>,
    /// Partition of Slurm or queue of PBS; `None` leaves it to the site.
    pub(crate) partition: Option<String>,
    /// Account or project to charge.
    pub(crate) account: Option<String>,
    /// Quality of service of Slurm; `None` leaves it to the site.
    pub(crate) qos: Option<String>,
    /// Node features asked for.
    pub(crate) constraint: Option<String>,
    /// Further options of the scheduler, as written: `--exclusive`, `--mail-type=END`.
    #[serde(default)]
    pub(crate) directives: Vec<String>,
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
    pub(crate) fn cores(&self) -> u64 {
        u64::from(self.ranks) * u64::from(self.cpus_per_rank)
    }

    /// Memory of the whole trial in GiB; `None` where the site decides it.
    pub(crate) fn memory_gib(&self) -> Option<f64> {
        self.memory_mib.map(|mib| mib as f64 / 1024.0 * f64::from(self.nodes))
    }

    /// Requests as they are handed to a worker, one or one for each link: a line of JSON without what is not
    /// asked for.
    ///
    /// # Errors
    /// When they cannot be serialised (our bug).
    pub(crate) fn to_words(requests: &[Self]) -> serde_json::Result<String> {
        let mut list = serde_json::to_value(requests)?;
        for request in list.as_array_mut().into_iter().flatten() {
            if let Some(members) = request.as_object_mut() {
                members.retain(|_, v| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty()));
            }
        }
        serde_json::to_string(&list)
    }

    /// The request of a link, of those that [`Resources::to_words`] has made a line of.
    ///
    /// # Errors
    /// When the line is neither of these, or has no request for this link.
    pub(crate) fn of_link(words: &str, link: u64) -> Result<Self, Fault> {
        let hint = "job scripts pass a JSON list with one request, or one for each link";
        let fault = |sentence: String| Fault::request(sentence).hint(hint);
        let list: Vec<Self> = serde_json::from_str(words)
            .map_err(|_| fault(format!("cannot read `--resources`: `{words}`")))?;
        let number = if list.len() == 1 { 0 } else { usize::try_from(link).unwrap_or(usize::MAX) };
        list.into_iter().nth(number).ok_or_else(|| {
            fault(format!("`--resources` has no request for link {link}: `{words}`"))
        })
    }

    /// GPUs of the whole trial.
    pub(crate) fn total_gpus(&self) -> u64 {
        self.gpus.map_or(u64::from(self.ranks) * u64::from(self.gpus_per_rank), u64::from)
    }
}
