//! The program of one rank: what it needs before it starts, how it is started and ended, and what it leaves.

pub(crate) mod child;
mod container;
pub(crate) mod expected;
mod gpu_samples;
pub mod heavy;
mod idle;
pub mod launch;
mod lifeline;
pub mod lines;
pub(crate) mod memory;
pub(crate) mod meter;
pub(super) mod output;
pub(crate) mod prepare;
pub(crate) mod printed;
pub mod program;
pub(crate) mod scratch;
pub(crate) mod starting;
pub mod written;
