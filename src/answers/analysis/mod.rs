//! From the table of results to an answer: which setting is best, how two settings differ, and which axes matter.
//!
//! A *setting* is what trials have in common that differ only in what is averaged over: seeds of `[replicates]`, folds, or
//! what the user names.

mod bounds;
mod comparison;
mod effects;
mod pareto;
mod ranking;
mod settings;

pub(crate) use bounds::{Bounded, is_time};
pub(crate) use comparison::{Comparison, Cost, Side, compare, costs};
pub(crate) use effects::{Effects, Level, Method, effects, ranges, why_no_grid};
pub(crate) use pareto::{Member, Pareto, pareto};
pub(crate) use ranking::{Figures, Place, Ranked, Ranking, Statistic, rank};
pub(crate) use settings::{
    DEVICES, Left, Observed, Over, Setting, Settings, Why, are_alike, in_words, number,
    repeats_by_name,
};

use anyhow::Result;

use crate::answers::collect::Table;
use crate::base::fault::Fault;
use crate::base::words;

/// The column of this name among all or, with `from`, among those from there on.
///
/// # Errors
/// When there is none; the hint has the nearest.
pub(crate) fn column(table: &Table, name: &str) -> Result<usize> {
    if let Some(column) = table.parameter(name) {
        return Ok(column);
    }
    let parameters = &table.columns[table.first_parameter..table.first_metric];
    let names: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let fault = Fault::request(format!("no trial has a parameter `{name}`"));
    Err(match names.as_slice() {
        [] => fault.hint("the trials have no parameters"),
        names => fault.hint(words::suggestion(name, names, "there are")),
    }
    .into())
}
