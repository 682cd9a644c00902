//! The program of one rank: what it needs before it starts, how it is started and ended, and what it leaves.

pub mod child;
pub mod gpu_samples;
pub mod heavy;
pub mod launch;
mod lifeline;
pub mod lines;
pub mod memory;
pub(super) mod output;
pub mod prepare;
pub mod program;
pub mod scratch;
pub mod starting;
