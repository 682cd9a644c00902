//! The program against a real Slurm, one file a concern. `scripts/test` starts the clusters.

mod chains;
mod cluster;
mod environment;
mod exactly_once;
mod gpus;
mod growth;
mod kills;
mod limits;
mod ranks;
mod retry;
mod world;
