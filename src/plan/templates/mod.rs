//! Text of a plan into which the parameters of a trial are filled.

pub(super) mod args;
pub(super) mod command;
pub(super) mod engine;
pub(super) mod known;
pub(super) mod places;
pub(super) mod template;
