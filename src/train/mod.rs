//! Training as arithmetic: what a run is, which rank takes which sample, when the rate falls and when
//! to stop. Knows neither libtorch nor MPI; `hpcsweep-worker` does the work.

pub mod bucket;
pub(crate) mod check;
pub mod config;
pub mod data;
pub mod job;
pub mod means;
pub mod mt19937;
pub(crate) mod read;
pub mod sampler;
pub mod schedule;
pub mod seed;
pub mod shard;
pub mod split;
pub mod stopping;
