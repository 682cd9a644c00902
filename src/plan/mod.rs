//! A checked sweep plan: what a person wrote, expanded into trials.
//!
//! [`parse`] takes text and returns a [`Plan`] or every fault of the text at once. Callers do not repeat its
//! checks. Never touches the disk.
//!
//! `sections` reads what is written, table by table; `expansion` makes trials of parameters and axes; `templates` fills
//! parameters into commands; `check` holds the templates against the trials.

pub(crate) mod author;
pub(crate) mod check;
pub(crate) mod document;
mod doubts;
mod expansion;
mod file;
pub(crate) mod key;
mod run;
mod schema;
mod sections;
pub mod site;
mod templates;
#[cfg(test)]
pub(crate) mod testing;
mod trial;
pub(crate) mod value;

pub(crate) use expansion::listed::{Files, toml_text};
pub(crate) use expansion::ranges;
pub(crate) use expansion::trials::MAX_TRIALS;
pub use file::{Plan, parse, parse_with};
pub(crate) use run::{Notice, OnFailure, Run, reserve_s};
pub use schema::{reference, schema};
pub(crate) use sections::auto::{Learn, Learns};
pub(crate) use sections::container::{Container, Runtime};
pub(crate) use sections::metrics::{Metrics, Reduction};
pub(crate) use sections::pull::MOST_SLOTS;
pub use sections::pull::Pull;
pub(crate) use sections::resources::Resources;
pub(crate) use sections::retry::Retry;
pub(crate) use sections::schedule::{ChainsAs, GpuIds, Mode};
pub(crate) use sections::snapshot::Snapshot;
pub(crate) use sections::sweep::is_name;
pub(crate) use sections::train::TrainTemplate;
pub(crate) use templates::args::Style;
pub use templates::command::{CommandTemplate, Rendered, TrialNames, names_of};
pub(crate) use templates::engine::Compiled;
pub(crate) use templates::engine::is_plain;
pub(crate) use templates::known::{RESERVED_NAMES, spelled_out};
pub(crate) use trial::{TaskId, Trial};
pub use value::{Params, Value};
pub(crate) use value::{float_as_written, float_text, variable_of};
