//! A checked sweep plan: what a person wrote, expanded into trials.
//!
//! [`parse`] takes text and returns a [`Plan`] or every fault of the text at once. What is checked
//! here is not checked again further up. Never touches the disk.
//!
//! `sections` reads what is written, table by table; `expansion` makes trials of parameters and axes; `templates` fills
//! parameters into commands; `check` holds the templates against the trials.

pub mod author;
pub mod check;
mod expansion;
mod file;
pub mod key;
mod run;
mod schema;
mod sections;
mod templates;
#[cfg(test)]
mod testing;
mod trial;
pub mod value;

pub use expansion::leaves::Merge;
pub use expansion::trials::MAX_TRIALS;
pub use file::{Plan, parse, parse_with};
pub use key::Keys;
pub use run::{OnFailure, Run};
pub use schema::{reference, schema};
pub use sections::hooks::Hooks;
pub use sections::metrics::{Metrics, Reduction};
pub use sections::pull::Pull;
pub use sections::resources::{self, Resources};
pub use sections::schedule::{ChainsAs, GpuIds, Mode, Schedule};
pub use sections::train::TrainTemplate;
pub use templates::command::{CommandTemplate, Rendered, TrialNames, names_of};
pub use templates::known::RESERVED_NAMES;
pub use trial::{TaskId, Trial};
pub use value::{Params, Value};
