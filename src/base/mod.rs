//! What every room stands on: this machine, faults and their causes, words, units, lists, statistics.

pub mod cause;
pub mod fault;
pub mod host;
pub mod hostlist;
pub mod idset;
pub(crate) mod stats;
pub mod units;
pub mod words;
