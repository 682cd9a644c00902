//! hpcsweep: from a sweep plan to a table of results, on any Slurm or PBS cluster.
pub mod fault;
pub mod graph;
pub mod host;
pub mod words;
