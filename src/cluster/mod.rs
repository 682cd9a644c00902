//! What hpcsweep knows of clusters: schedulers, their jobs and scripts, ranks and devices. Text and arithmetic, and the calls of a scheduler.

pub(crate) mod devices;
pub(crate) mod gpu;
pub(crate) mod graph;
pub mod rank;
pub mod render;
pub mod scheduler;
