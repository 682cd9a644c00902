//! A sweep as its files tell it: the results tree, how an attempt ends, how each trial stands.

pub(crate) mod attempt;
pub(crate) mod decide;
pub(crate) mod standing;
pub mod status;
pub mod tree;
