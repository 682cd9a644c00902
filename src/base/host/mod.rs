//! What the machine offers: disk, programs, environment, clock, signals.
//!
//! The only room that touches the outside world; everything above it gets its data as arguments, or asks
//! here. Every error names the path or the command it is about.

pub mod access;
pub(crate) mod age;
pub(crate) mod archive;
pub(crate) mod cgroup;
pub mod clock;
pub(crate) mod content;
pub(crate) mod copy;
pub(crate) mod derived;
pub mod disk;
pub(crate) mod energy;
pub mod gpus;
pub mod http;
pub(crate) mod map;
pub(crate) mod named;
pub(crate) mod opening;
pub mod process;
pub(crate) mod rename;
pub mod signal;
pub mod threads;
pub mod vars;

pub use vars::Vars;
