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
//! The rooms, the lowest first; a room uses only rooms above it in this table (`tests/structure/tidy.rs` checks it):
//!
//! | room | what is in it |
//! |---|---|
//! | [`base`] | this machine, faults and their causes, words, units, lists, statistics |
//! | [`train`] | training as arithmetic |
//! | [`plan`] | documents, plans, site profiles: text in, a plan or all faults out |
//! | [`cluster`] | schedulers, job scripts, ranks, devices, the graph of dependent jobs |
//! | [`sweep`] | the results tree, how an attempt ends, how each trial stands |
//! | [`run`] | workers and their ranks, agents, syncs |
//! | [`submit`] | arrays, agents and this machine as targets, control, snapshots, merging |
//! | [`answers`] | selection, tables, statistics, usage, plots, reports, `watch` |
//! | [`cli`] | one module a verb: arguments in, text and JSON out |

pub mod answers;
pub mod base;
pub mod cli;
pub mod cluster;
pub mod plan;
pub mod run;
pub mod submit;
pub mod sweep;
pub mod train;

// The names that programs of others use.
pub use base::host;
pub use run::pull;
pub use sweep::tree;
