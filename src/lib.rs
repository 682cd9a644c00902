//! hpcsweep: from a sweep plan to a table of results, on any Slurm or PBS cluster.
//!
//! The product is the program `hpcsweep`. As a library it runs trials that are a function of the caller: a plan with
//! `[run] function` is submitted for agents (`hpcsweep submit --pull`), and each process that calls
//! [`pull::solo::run`] takes trials of it until none is left. That function, what it takes and what it returns are
//! the library's interface. What else is public serves the programs, tests and benches of this package, and changes with
//! them.
//!
//! ```no_run
//! use hpcsweep::host::vars;
//! use hpcsweep::pull::solo::{self, Options, Trial};
//! use hpcsweep::tree::Tree;
//!
//! # fn main() -> anyhow::Result<()> {
//! let (tree, _) = Tree::open("results/fit".as_ref())?;
//! let report = solo::run(&tree, Options::default(), &vars::snapshot(), None, |_news| {}, |trial: &Trial| {
//!     let params = serde_json::to_value(&trial.row.params).unwrap_or_default();
//!     let lr = params["lr"].as_f64().unwrap_or(0.1);
//!     Ok(serde_json::json!({ "loss": (lr - 0.3).powi(2) }))
//! })?;
//! println!("{:?}", report.ended);
//! # Ok(())
//! # }
//! ```
//!
//! The rooms, bottom floor first; a room uses only rooms of lower floors (`tests/structure/tidy.rs` checks it):
//!
//! | floor | rooms |
//! |---|---|
//! | 0 | [`cause`], [`fault`], [`words`], [`units`], [`stats`] |
//! | 1 | [`host`] |
//! | 2 | [`document`], [`idset`], [`hostlist`], [`plan`], [`site`], [`rank`], [`devices`], [`gpu`], [`sync`], [`train`] |
//! | 3 | [`graph`], [`tree`] |
//! | 4 | [`scheduler`], [`attempt`] |
//! | 5 | [`render`], [`standing`], [`status`] |
//! | 6 | [`submit`], [`collect`], [`doctor`], [`project`], [`worker`], [`pull`], [`watch`], [`select`], [`usage`], [`analysis`], [`plot`], [`report`] |
//! | 7 | [`cli`] |

pub mod cause;
pub mod fault;
mod stats;
pub mod units;
pub mod words;

pub mod host;

mod devices;
mod document;
mod gpu;
pub mod hostlist;
pub mod idset;
pub mod plan;
pub mod rank;
pub mod site;
pub mod sync;
pub mod train;

mod graph;
pub mod tree;

mod attempt;
pub mod scheduler;

pub mod render;
mod standing;
pub mod status;

mod analysis;
pub mod collect;
mod doctor;
mod plot;
mod project;
pub mod pull;
mod report;
mod select;
pub mod submit;
mod usage;
pub mod watch;
pub mod worker;

pub mod cli;
