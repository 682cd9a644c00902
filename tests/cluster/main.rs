//! The program against a real Slurm, one file a concern. `scripts/test` starts the clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "a failed test says what it saw")]

mod causes;
mod chains;
mod cluster;
mod environment;
mod exactly_once;
mod functions;
mod fused;
mod gpus;
mod growth;
mod kills;
mod limits;
mod lost_node;
mod pilots;
mod preempted;
mod programs;
mod ranks;
mod resources;
mod retry;
mod torque;
#[cfg(all(feature = "mpi", feature = "torch"))]
mod train;
mod validate;
mod world;
