//! The table of a page: the columns of `collect` that a reader compares, and what each trial has cost. Large sweeps are
//! thinned.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use serde::Serialize;

use super::{MetricWish, rounded};
use crate::answers::analysis::DEVICES;
use crate::answers::collect::{Goal, Table, Trial, assumed};
use crate::answers::usage::Attempt;
use crate::base::stats;
use crate::base::words::{self, thousands};

/// The most trials of a page.
pub(super) const MOST: usize = 10_000;

/// The most columns of parameters, and of metrics.
const MOST_COLUMNS: usize = 24;

/// The longest text of a cell.
const LONGEST: usize = 120;

/// The metric by which trials are compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Metric {
    pub(super) name: String,
    /// Whether the greatest value is best, and not the least.
    pub(super) max: bool,
    /// Whether nobody has named it.
    pub(super) assumed: bool,
    #[serde(skip)]
    pub(super) column: usize,
    /// The finished trials with a number, best first, as rows.
    #[serde(skip)]
    pub(super) ranked: Vec<usize>,
}

/// The metric that is named, else one that its name tells; `None` if no finished trial has any.
///
/// # Errors
/// As [`Table::ranked`], of one that is named.
pub(super) fn metric(table: &Table, wish: Option<MetricWish<'_>>) -> Result<Option<Metric>> {
    let metric_named = |name: &str, goal: Goal, assumed: bool| -> Result<Metric> {
        let ranked = table.ranked(name, goal, None)?;
        let column = table.metric(name)?;
        Ok(Metric { name: name.to_owned(), max: goal == Goal::Max, assumed, column, ranked })
    };
    if let Some(MetricWish { name, goal }) = wish {
        // A sweep in which nothing has finished has a report, too: a metric that it has may be named.
        let is_known = table.metric(name).is_ok();
        let none_is_done = table.rows.iter().all(|row| table.state(row) != "done");
        if none_is_done && (is_known || table.columns.len() == table.first_metric) {
            return Ok(None);
        }
        return metric_named(name, goal, false).map(Some);
    }
    // Not every column has numbers: then another one is assumed.
    let mut names: Vec<&str> =
        table.columns[table.first_metric..].iter().map(String::as_str).collect();
    while let Some((name, max)) = assumed(&names) {
        if let Ok(metric) = metric_named(name, if max { Goal::Max } else { Goal::Min }, true) {
            return Ok(Some(metric));
        }
        names.retain(|own| *own != name);
    }
    Ok(None)
}

/// What a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Trial,
    State,
    Param,
    Metric,
    Cost,
    Other,
}

/// The values of a column, one for each trial of the page.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Values {
    Numbers {
        n: Vec<Option<f64>>,
    },
    /// Texts, and of each trial the place of its text.
    Texts {
        d: Vec<String>,
        v: Vec<Option<usize>>,
    },
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit: Option<&'static str>,
    /// Whether it is a parameter of which the trials have different values, and not averaged over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) swept: bool,
    #[serde(flatten)]
    pub(super) values: Values,
}

#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Trials {
    pub(super) total: usize,
    pub(super) shown: usize,
    /// What the page leaves out, in words.
    pub(super) notes: Vec<String>,
    pub(super) columns: Vec<Column>,
}

/// The parameters of which the trials have different values, as columns, without those that are averaged over.
pub(super) fn swept(table: &Table, over: &[usize]) -> Vec<usize> {
    (table.first_parameter..table.first_metric)
        .filter(|column| !over.contains(column) && table.columns[*column] != DEVICES)
        .filter(|&column| {
            let mut values = table.rows.iter().map(|row| table.cell(row, column));
            let first_value = values.next();
            values.any(|value| Some(value) != first_value)
        })
        .collect()
}

/// The trials that a page shows, ascending: the best, and so many drawn from those without success and from the others.
fn chosen(table: &Table, ranked: &[usize], most: usize) -> Vec<usize> {
    let n_rows = table.rows.len();
    if n_rows <= most {
        return (0..n_rows).collect();
    }
    let mut kept_rows: HashSet<usize> = ranked.iter().copied().take(most / 4).collect();
    let bad: Vec<usize> = (0..n_rows)
        .filter(|&i| !matches!(table.state(&table.rows[i]), "done" | "pending"))
        .collect();
    kept_rows.extend(drawn(&bad, most / 4));
    let other_rows: Vec<usize> = (0..n_rows).filter(|i| !kept_rows.contains(i)).collect();
    let room = most - kept_rows.len();
    kept_rows.extend(drawn(&other_rows, room));
    let mut sorted_rows: Vec<usize> = kept_rows.into_iter().collect();
    sorted_rows.sort_unstable();
    sorted_rows
}

/// So many of some, drawn: every so-manieth of a grid could have one value of an axis alone.
pub(super) fn drawn<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    stats::drawn(all.len(), most).into_iter().map(|at| all[at]).collect()
}

/// Hours and energy of a trial.
#[derive(Default, Clone, Copy)]
struct Spent {
    core_h: f64,
    gpu_h: f64,
    energy_j: Option<f64>,
}

/// Of these trials.
fn spent(rows: &[&Trial], ended: &[Attempt]) -> HashMap<u64, Spent> {
    let of_none = rows.iter().map(|row| (row.trial, (Spent::default(), false)));
    let mut spent_by_trial: HashMap<u64, (Spent, bool)> = of_none.collect();
    for attempt in ended {
        let Some((own, has_ended)) = spent_by_trial.get_mut(&attempt.trial) else { continue };
        *has_ended = true;
        let hours = attempt.duration_s / 3600.0;
        own.core_h += attempt.request.cores() as f64 * hours;
        own.gpu_h += attempt.request.total_gpus() as f64 * hours;
        let energy =
            [attempt.more().gpu_energy_j, attempt.more().node_energy_j].into_iter().flatten();
        own.energy_j = energy.chain(own.energy_j).reduce(|a, b| a + b);
    }
    let ended = spent_by_trial.into_iter().filter(|(_, (_, has_ended))| *has_ended);
    ended.map(|(trial, (spent, _))| (trial, spent)).collect()
}

/// What trials have spent, as columns; without what none has.
fn spent_columns(rows: &[&Trial], ended: &[Attempt]) -> Vec<Column> {
    let spent = spent(rows, ended);
    // The second unit is for small values, and the factor to it.
    let column = |name: &str,
                  [unit, small]: [_; 2],
                  factor,
                  of: &dyn Fn(&Spent) -> Option<f64>|
     -> Option<Column> {
        let all_values = || rows.iter().map(|row| of(spent.get(&row.trial)?));
        let greatest = all_values().flatten().fold(0.0, f64::max);
        let (unit, factor) = if greatest < 0.1 { (small, factor) } else { (unit, 1.0) };
        let n = all_values().map(|value| rounded(value? * factor)).collect();
        let (values, role) = (Values::Numbers { n }, Role::Cost);
        let (name, unit) = (name.to_owned(), Some(unit));
        (greatest > 0.0).then_some(Column { name, role, unit, swept: false, values })
    };
    [
        column("core time", ["core-h", "core-s"], 3600.0, &|spent| Some(spent.core_h)),
        column("GPU time", ["GPU-h", "GPU-s"], 3600.0, &|spent| Some(spent.gpu_h)),
        column("energy", ["kWh", "Wh"], 1000.0, &|spent| Some(spent.energy_j? / 3.6e6)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The trials of a page: at most `most` of them.
pub(super) fn tabulate(
    table: &Table,
    metric: Option<&Metric>,
    over: &[usize],
    ended: &[Attempt],
    ranked: &[usize],
    most: usize,
) -> Trials {
    let places = chosen(table, ranked, most);
    let rows: Vec<&Trial> = places.iter().map(|&i| &table.rows[i]).collect();
    let mut notes = Vec::new();
    if rows.len() < table.rows.len() {
        notes.push(format!(
            "The page shows {} of {} trials: the {} best, and of those that are not done (up to {}) and of the others some that \
             were drawn. What the summary says is about all trials; `hpcsweep collect` writes all of them.",
            thousands(rows.len() as u64),
            thousands(table.rows.len() as u64),
            thousands((most / 4).min(ranked.len()) as u64),
            thousands((most / 4) as u64),
        ));
    }
    let mut columns = Vec::new();
    let name_of = |name: &str| table.columns.iter().position(|column| column == name);
    let mut add = |name: &str, shown: &str, role, unit, swept, factor: f64| {
        let Some(column) = name_of(name) else { return };
        let values = values(table, &rows, column, factor);
        if !is_empty(&values) || role == Role::State {
            columns.push(Column { name: shown.to_owned(), role, unit, swept, values });
        }
    };
    add("trial", "trial", Role::Trial, None, false, 1.0);
    add("task_id", "task_id", Role::Other, None, false, 1.0);
    add("state", "state", Role::State, None, false, 1.0);
    add("cause", "cause", Role::Other, None, false, 1.0);
    let swept = self::swept(table, over);
    let mut parameters: Vec<usize> = (table.first_parameter..table.first_metric).collect();
    // Where there are too many, those that differ are shown.
    parameters.sort_by_key(|column| (!swept.contains(column), !over.contains(column), *column));
    let dropped_parameters = parameters.split_off(parameters.len().min(MOST_COLUMNS));
    for &column in &parameters {
        let name = &table.columns[column];
        add(name, name, Role::Param, None, swept.contains(&column), 1.0);
    }
    let mut metrics: Vec<usize> = (table.first_metric..table.columns.len()).collect();
    metrics.sort_by_key(|&column| {
        let name = &table.columns[column];
        let is_own = metric.is_some_and(|metric| metric.column == column);
        (
            !is_own,
            matches!(name.as_str(), "epoch" | "step" | "rank"),
            name.ends_with(".min") || name.ends_with(".max"),
            column,
        )
    });
    let n_dropped =
        dropped_parameters.len() + metrics.split_off(metrics.len().min(MOST_COLUMNS)).len();
    // The best and worst steps of a metric come after what a trial has cost.
    let metric_column = metric.map(|metric| metric.column);
    let is_end = |name: &str| name.ends_with(".min") || name.ends_with(".max");
    let (ends, firsts): (Vec<usize>, Vec<usize>) = metrics
        .into_iter()
        .partition(|&column| is_end(&table.columns[column]) && Some(column) != metric_column);
    for &column in &firsts {
        let name = &table.columns[column];
        add(name, name, Role::Metric, None, false, 1.0);
    }
    if n_dropped > 0 {
        notes.push(format!(
            "{} of parameters and metrics are left out; `hpcsweep collect` writes all of them.",
            words::count(n_dropped as u64, "column")
        ));
    }
    add("duration_s", "duration", Role::Cost, Some("s"), false, 1.0);
    add("cpu_s", "processor time", Role::Cost, Some("s"), false, 1.0);
    add("peak_memory", "peak memory", Role::Cost, Some("MiB"), false, 1.0 / f64::from(1 << 20));
    add("attempts", "attempts", Role::Other, None, false, 1.0);
    add("host", "host", Role::Other, None, false, 1.0);
    add("job", "job", Role::Other, None, false, 1.0);
    columns.extend(spent_columns(&rows, ended));
    for &column in &ends {
        let (name, role) = (table.columns[column].clone(), Role::Metric);
        let values = values(table, &rows, column, 1.0);
        columns.push(Column { name, role, unit: None, swept: false, values });
    }
    Trials { total: table.rows.len(), shown: rows.len(), notes, columns }
}

fn is_empty(values: &Values) -> bool {
    match values {
        Values::Numbers { n } => n.iter().all(Option::is_none),
        Values::Texts { v, .. } => v.iter().all(Option::is_none),
    }
}

/// A column as numbers if all of its values are, else as texts.
fn values(table: &Table, rows: &[&Trial], column: usize, factor: f64) -> Values {
    let cells = || rows.iter().map(|row| table.cell(row, column));
    if cells().all(|value| value.is_null() || value.number().is_some()) {
        return Values::Numbers {
            n: cells().map(|value| rounded(value.number()? * factor)).collect(),
        };
    }
    let (mut d, mut places) = (Vec::new(), HashMap::new());
    let v = cells()
        .map(|value| {
            if value.is_null() {
                return None;
            }
            let text = words::short(&value.text(), LONGEST);
            Some(*places.entry(text).or_insert_with_key(|text| {
                d.push(text.clone());
                d.len() - 1
            }))
        })
        .collect();
    Values::Texts { d, v }
}
