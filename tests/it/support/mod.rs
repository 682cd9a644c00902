//! What tests share, and no test: worlds of their own, schedulers, plans.

pub(crate) mod agents;
pub(crate) mod faults;
pub(crate) mod gpus;
pub(crate) mod pbs;
pub(crate) mod pbs_once;
pub(crate) mod pbs_waiting;
pub(crate) mod plans;
pub(crate) mod slurm;
pub(crate) mod slurm_sweep;
pub(crate) mod snapshots;
pub(crate) mod sync_cases;
pub(crate) mod world;
