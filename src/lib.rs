//! hpcsweep: from a sweep plan to a table of results, on any Slurm or PBS cluster.
//!
//! The rooms, bottom floor first; a room uses only rooms of lower floors (`tests/it/tidy.rs` checks it):
//!
//! | floor | rooms |
//! |---|---|
//! | 0 | [`fault`], [`words`], [`units`] |
//! | 1 | [`host`] |
//! | 2 | [`document`], [`idset`], [`hostlist`], [`plan`], [`site`], [`rank`], [`devices`], [`gpu`], [`sync`], [`train`] |
//! | 3 | [`graph`], [`tree`] |
//! | 4 | [`scheduler`], [`attempt`] |
//! | 5 | [`render`], [`standing`], [`status`] |
//! | 6 | [`submit`], [`collect`], [`doctor`], [`project`], [`worker`], [`pull`], [`watch`] |
//! | 7 | [`cli`] |

pub mod fault;
pub mod units;
pub mod words;

pub mod host;

pub mod devices;
pub mod document;
pub mod gpu;
pub mod hostlist;
pub mod idset;
pub mod plan;
pub mod rank;
pub mod site;
pub mod sync;
pub mod train;

pub mod graph;
pub mod tree;

pub mod attempt;
pub mod scheduler;

pub mod render;
pub mod standing;
pub mod status;

pub mod collect;
pub mod doctor;
pub mod project;
pub mod pull;
pub mod submit;
pub mod watch;
pub mod worker;

pub mod cli;
