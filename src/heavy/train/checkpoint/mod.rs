//! The checkpoints of a run while it runs.

pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod pieces;
