//! From defaults, listed trials, axes and samples to the trials of a plan.

pub(super) mod axes;
mod cells;
mod chains;
mod described;
pub(super) mod exclude;
pub(super) mod expand;
pub(super) mod layout;
pub(super) mod leaves;
pub(super) mod listed;
pub(crate) mod ranges;
pub(super) mod sample;
pub(super) mod trials;
