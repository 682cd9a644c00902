//! Waves of job arrays: which trials are to be asked for, as which arrays, and how each call is made exactly once.

pub(super) mod amend;
pub mod batch;
pub(super) mod environment;
pub mod mapping;
mod next;
pub(super) mod reconcile;
mod stalled;
mod waiting;
pub mod wave;
