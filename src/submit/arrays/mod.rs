//! Waves of job arrays: which trials are to be asked for, as which arrays, and how each call is made exactly once.

pub(super) mod amend;
pub(crate) mod batch;
pub(crate) mod due;
pub(super) mod environment;
pub(crate) mod feeder;
mod holder;
mod job_script;
pub(crate) mod mapping;
pub(super) mod next;
pub(super) mod portion;
pub(super) mod reconcile;
pub(crate) mod scripts;
mod stalled;
mod unplaced;
mod waiting;
pub(crate) mod wave;
