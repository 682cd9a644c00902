//! What the processes of an attempt have used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where a figure of memory comes from. The later ones are less exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemorySource {
    /// The rank's own control group: what the kernel charged to it, without cached files.
    Cgroup,
    /// Samples of the whole process tree; memory that processes share counts once.
    Pss,
    /// The same where the kernel does not report shares: resident memory without what each process shares with others,
    /// and the largest shared part of one process.
    Rss,
    /// The largest resident set of a single process, as wait4(2) reports it.
    Rusage,
    /// The largest resident set so far of a process that calls functions of one trial after the other.
    Process,
}

/// Which counters have counted the energy of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnergySource {
    /// The whole node's, of HPE Cray machines.
    Cray,
    /// Those of processors and memory (RAPL).
    Rapl,
}

/// What an attempt has used of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Its place among the trial's GPUs, as in the names of metrics.
    pub gpu: usize,
    /// Mean of the samples, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Largest memory in use in a sample, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Joules that it took during the attempt; absent if it does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
}

/// What an attempt has used besides the memory of its `end`: all processes of all of its ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Where `peak_memory` comes from. Several ranks: the least exact source of a rank.
    pub memory_source: MemorySource,
    /// The memory of the node that used most, bytes; absent if all ranks ran on one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_memory: Option<u64>,
    /// The memory of the rank that used most, bytes; absent with one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_memory: Option<u64>,
    /// Seconds of processor time in the programs.
    pub cpu_user_s: f64,
    /// Seconds of processor time in the kernel on their behalf.
    pub cpu_system_s: f64,
    /// Most processes seen at once; absent if the attempt was too short for a sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Most threads seen at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Bytes read from storage: what the page cache already had does not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read_bytes: u64,
    /// Bytes written to storage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written_bytes: u64,
    /// One entry for each of its GPUs that was sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUsage>,
    /// Joules of its nodes, where it had them for itself and each counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_j: Option<f64>,
    /// Which counters have counted these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_source: Option<EnergySource>,
}

impl Usage {
    /// Seconds of processor time.
    pub fn cpu_s(&self) -> f64 {
        // As exact as the parts.
        ((self.cpu_user_s + self.cpu_system_s) * 1e6).round() / 1e6
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The peak memory of a rank, and what else it has used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Peak memory of all of its processes, bytes.
    pub memory: u64,
    /// Processor time, storage, GPUs and energy.
    pub usage: Usage,
}

impl Used {
    /// What rank 0 and others have used together, each with its node. Their peaks need not have come at the same time, so
    /// the sum is an upper bound.
    pub(crate) fn together<'a>(
        (node, mut all): (&'a str, Self),
        others: impl IntoIterator<Item = (&'a str, Self)>,
    ) -> Self {
        let mut nodes = BTreeMap::from([(node, all.memory)]);
        let (mut largest, mut count) = (all.memory, 1);
        let mut metered = usize::from(all.usage.energy_j.is_some());
        for (node, rank) in others {
            *nodes.entry(node).or_default() += rank.memory;
            largest = largest.max(rank.memory);
            count += 1;
            metered += usize::from(rank.usage.energy_j.is_some());
            all = all.and(rank);
        }
        // One rank of a node counts, and a part of the nodes is no sum.
        if metered < nodes.len() {
            (all.usage.energy_j, all.usage.energy_source) = (None, None);
        }
        all.usage.rank_memory = (count > 1).then_some(largest);
        all.usage.node_memory = nodes.values().max().copied().filter(|_| nodes.len() > 1);
        all
    }

    /// The memory of the node that used most, bytes: what a request for `memory` is about.
    pub(crate) fn of_a_node(&self) -> u64 {
        self.usage.node_memory.unwrap_or(self.memory)
    }

    fn and(self, other: Self) -> Self {
        let (a, b) = (self.usage, other.usage);
        let sum = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        Self {
            memory: self.memory + other.memory,
            usage: Usage {
                memory_source: a.memory_source.max(b.memory_source),
                node_memory: None,
                rank_memory: None,
                cpu_user_s: a.cpu_user_s + b.cpu_user_s,
                cpu_system_s: a.cpu_system_s + b.cpu_system_s,
                processes: sum(a.processes, b.processes),
                threads: sum(a.threads, b.threads),
                read_bytes: a.read_bytes + b.read_bytes,
                written_bytes: a.written_bytes + b.written_bytes,
                gpus: a.gpus.into_iter().chain(b.gpus).collect(),
                energy_j: a.energy_j.into_iter().chain(b.energy_j).reduce(|a, b| a + b),
                energy_source: a.energy_source.max(b.energy_source),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(memory: u64, memory_source: MemorySource) -> Used {
        let usage = Usage {
            memory_source,
            node_memory: None,
            rank_memory: None,
            cpu_user_s: 1.5,
            cpu_system_s: 0.5,
            processes: Some(2),
            threads: (memory > 10).then_some(4),
            read_bytes: 0,
            written_bytes: 512,
            gpus: Vec::new(),
            energy_j: (memory < 20).then_some(2.0),
            energy_source: None,
        };
        Used { memory, usage }
    }

    #[test]
    fn the_usage_of_ranks_adds_up_by_node() {
        let one = rank(7, MemorySource::Pss);
        assert_eq!(one.of_a_node(), 7);
        assert_eq!(Used::together(("a", one.clone()), []), one);
        let others = [("b", rank(15, MemorySource::Rusage)), ("a", rank(20, MemorySource::Pss))];
        let all = Used::together(("a", rank(10, MemorySource::Cgroup)), others);
        assert_eq!(all.of_a_node(), 30);
        let expected = Usage {
            memory_source: MemorySource::Rusage,
            node_memory: Some(30),
            rank_memory: Some(20),
            cpu_user_s: 4.5,
            cpu_system_s: 1.5,
            processes: Some(6),
            threads: Some(8),
            read_bytes: 0,
            written_bytes: 1536,
            gpus: Vec::new(),
            energy_j: Some(4.0),
            energy_source: None,
        };
        assert_eq!(all, Used { memory: 45, usage: expected });
        let text = serde_json::to_string(&rank(7, MemorySource::Pss).usage).unwrap();
        let brief = r#"{"memory_source":"pss","cpu_user_s":1.5,"cpu_system_s":0.5,"processes":2,"written_bytes":512,"energy_j":2.0}"#;
        assert_eq!(text, brief);
        let unmetered =
            Used::together(("a", rank(7, MemorySource::Pss)), [("b", rank(30, MemorySource::Pss))]);
        assert_eq!(unmetered.usage.energy_j, None);
    }
}
