//! The tables of a plan that have keys of their own, a file each: what is written becomes a value of its type.

mod argv;
pub(crate) mod auto;
pub(crate) mod container;
pub(super) mod feeder;
pub(super) mod hooks;
pub(super) mod metrics;
pub(super) mod pull;
pub(super) mod request;
pub(crate) mod resources;
pub(crate) mod retry;
pub(super) mod run;
pub(super) mod schedule;
pub(crate) mod snapshot;
pub(super) mod sweep;
pub(super) mod train;
