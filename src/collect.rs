//! From records to one table: a row a trial, columns for what every trial has, then its parameters,
//! then its metrics. Reads the tree alone.

mod read;
pub mod whole;

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use rayon::prelude::*;
use serde_json::{Map, Value};

use crate::fault::Fault;
use crate::plan::value::float_text;
use crate::standing::State;
use crate::tree::records::{self, Attempt, Record};
use crate::tree::table::{self, Row};
use crate::tree::{Identity, Tree};
use crate::words;
use read::Read;

/// The columns every table has, before parameters and metrics.
pub const FIXED: [&str; 10] = [
    "trial",
    "task_id",
    "link",
    "state",
    "exit_code",
    "attempts",
    "duration_s",
    "host",
    "peak_memory",
    "job",
];

/// A table of results.
#[derive(Debug, Default)]
pub struct Table {
    /// Column names: [`FIXED`] (after `sweep`, if several were joined), parameters, metrics.
    pub columns: Vec<String>,
    /// One value a column; `null` where a trial has none.
    pub rows: Vec<Vec<Value>>,
    /// The first column of the parameters.
    pub first_parameter: usize,
    /// The first column of the metrics.
    pub first_metric: usize,
    /// Folders of the sweeps, one a row.
    pub sweeps: Vec<std::path::PathBuf>,
    /// Trials of each row.
    pub trials: Vec<u64>,
}

/// Everything of one trial that becomes cells.
struct Line {
    fixed: Vec<Value>,
    parameters: Vec<(String, Value)>,
    metrics: Vec<(String, Value)>,
    trial: u64,
}

/// Joins sweeps into one table.
///
/// # Errors
/// When a tree cannot be read.
pub fn collect(sweeps: &[(Tree, Identity)]) -> Result<Table> {
    let mut table = Table::default();
    let several = sweeps.len() > 1;
    if several {
        table.columns.push("sweep".into());
    }
    table.columns.extend(FIXED.map(str::to_owned));
    table.first_parameter = table.columns.len();
    let mut lines: Vec<(usize, Line)> = Vec::new();
    for (s, (tree, _)) in sweeps.iter().enumerate() {
        lines.extend(of_sweep(tree)?.into_iter().map(|line| (s, line)));
    }
    let mut parameters = Columns::default();
    let mut metrics = Columns::default();
    for (_, line) in &lines {
        line.parameters.iter().for_each(|(name, _)| parameters.add(name));
        line.metrics.iter().for_each(|(name, _)| metrics.add(name));
    }
    // A name that two kinds of column share is told apart by its kind.
    let mut taken: BTreeSet<String> = table.columns.iter().cloned().collect();
    for name in &parameters.names {
        let shown = if taken.contains(name) { format!("param.{name}") } else { name.clone() };
        taken.insert(shown.clone());
        table.columns.push(shown);
    }
    table.first_metric = table.columns.len();
    for name in &metrics.names {
        let shown = if taken.contains(name) { format!("metric.{name}") } else { name.clone() };
        taken.insert(shown.clone());
        table.columns.push(shown);
    }
    for (s, line) in lines {
        let mut row = Vec::with_capacity(table.columns.len());
        if several {
            row.push(Value::String(sweeps[s].1.name.clone()));
        }
        row.extend(line.fixed);
        row.resize(table.columns.len(), Value::Null);
        for (name, value) in line.parameters {
            row[table.first_parameter + parameters.index[&name]] = value;
        }
        for (name, value) in line.metrics {
            row[table.first_metric + metrics.index[&name]] = value;
        }
        table.rows.push(row);
        table.sweeps.push(sweeps[s].0.dir().to_owned());
        table.trials.push(line.trial);
    }
    Ok(table)
}

#[derive(Default)]
struct Columns {
    names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Columns {
    fn add(&mut self, name: &str) {
        if !self.index.contains_key(name) {
            self.index.insert(name.to_owned(), self.names.len());
            self.names.push(name.to_owned());
        }
    }
}

fn of_sweep(tree: &Tree) -> Result<Vec<Line>> {
    let Read { rows, standings, records } = read::read(tree)?;
    Ok(rows
        .par_iter()
        .zip(standings.par_iter())
        .map(|(row, standing)| line(row, &standing.state, records.get(&row.id)))
        .collect())
}

fn line(row: &Row, state: &State, record: Option<&Record>) -> Line {
    let attempt = record.and_then(Record::decisive);
    let end = attempt.and_then(|a| a.end.as_ref());
    let fixed = vec![
        row.id.into(),
        row.task_id.clone().unwrap_or(Value::Null),
        row.link.into(),
        state.word().into(),
        end.and_then(|e| e.exit_code).map_or(Value::Null, Value::from),
        record.map_or(0, Record::begun).into(),
        end.map_or(Value::Null, |e| e.duration_s.into()),
        attempt.map_or(Value::Null, |a| a.start.host.clone().into()),
        end.filter(|e| e.peak_memory > 0).map_or(Value::Null, |e| e.peak_memory.into()),
        attempt.and_then(|a| a.start.job.clone()).map_or(Value::Null, Value::from),
    ];
    let mut parameters = Vec::new();
    leaves("", &row.params, &mut parameters);
    if let Some(gpus) = &row.gpu_ids_abs {
        parameters.push(("gpu_ids_abs".into(), gpus.clone().into()));
    }
    let metrics = attempt.map(metrics).unwrap_or_default();
    Line { fixed, parameters, metrics, trial: row.id }
}

/// Dotted leaves of a nested object.
fn leaves(prefix: &str, value: &Value, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() || prefix.is_empty() => {
            for (key, value) in map {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                leaves(&name, value, out);
            }
        }
        leaf => out.push((prefix.to_owned(), leaf.clone())),
    }
}

/// The metrics of an attempt: of each name its last value; of a number that was logged more than once
/// also its least and greatest (`loss.min`, `loss.max`). With several ranks the lowest rank that logs a
/// name speaks for it. The final result comes last: an object's members, or `result`.
fn metrics(attempt: &Attempt) -> Vec<(String, Value)> {
    struct Seen {
        last: Value,
        least: f64,
        greatest: f64,
        numbers: u64,
        rank: u64,
    }
    let mut order: Vec<String> = Vec::new();
    let mut seen: HashMap<String, Seen> = HashMap::new();
    for row in &attempt.metrics {
        let rank = row.get("rank").and_then(Value::as_u64).unwrap_or(0);
        for (name, value) in flat(row) {
            if name == "rank" {
                continue;
            }
            let entry = seen.entry(name.clone()).or_insert_with(|| {
                order.push(name);
                let (least, greatest) = (f64::INFINITY, f64::NEG_INFINITY);
                Seen { last: Value::Null, least, greatest, numbers: 0, rank }
            });
            if rank > entry.rank {
                continue;
            }
            if rank < entry.rank {
                *entry = Seen {
                    last: Value::Null,
                    least: f64::INFINITY,
                    greatest: f64::NEG_INFINITY,
                    numbers: 0,
                    rank,
                };
            }
            if let Some(number) = number(&value) {
                entry.least = entry.least.min(number);
                entry.greatest = entry.greatest.max(number);
                entry.numbers += 1;
            }
            entry.last = value;
        }
    }
    let mut out = Vec::new();
    for name in order {
        let Some(entry) = seen.remove(&name) else { continue };
        let several = entry.numbers > 1 && name != "step" && name != "epoch";
        out.push((name.clone(), entry.last));
        if several {
            out.push((format!("{name}.min"), number_json(entry.least)));
            out.push((format!("{name}.max"), number_json(entry.greatest)));
        }
    }
    if let Some(result) = attempt.end.as_ref().and_then(|e| e.result.as_ref()) {
        let mut last = Vec::new();
        leaves(if result.is_object() { "" } else { "result" }, result, &mut last);
        for (name, value) in last {
            out.retain(|(other, _)| *other != name);
            out.push((name, value));
        }
    }
    out
}

fn flat(row: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut out = Vec::with_capacity(row.len());
    for (key, value) in row {
        leaves(key, value, &mut out);
    }
    out
}

/// The number in a cell; `inf`, `-inf` and `nan` are numbers too.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => match s.as_str() {
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            "nan" => Some(f64::NAN),
            _ => None,
        },
        _ => None,
    }
}

fn number_json(f: f64) -> Value {
    if f.is_finite() { f.into() } else { float_text(f).into() }
}

/// A cell as text: empty for nothing, lists and tables as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => float_text(f),
            _ => n.to_string(),
        },
        other => other.to_string(),
    }
}

/// One metric line of a trial.
struct Step {
    sweep: usize,
    trial: u64,
    task: Value,
    cells: Vec<(String, Value)>,
}

/// The learning curves: a row a metric line of every trial's decisive attempt, in order.
///
/// # Errors
/// When a tree cannot be read.
pub fn steps(sweeps: &[(Tree, Identity)]) -> Result<Table> {
    let mut table = Table::default();
    let several = sweeps.len() > 1;
    let mut columns = Columns::default();
    let mut lines: Vec<Step> = Vec::new();
    for (s, (tree, _)) in sweeps.iter().enumerate() {
        let records = records::all(tree)?;
        for row in table::rows(tree)? {
            let Some(attempt) = records.get(&row.id).and_then(Record::decisive) else { continue };
            for metrics in &attempt.metrics {
                let cells = flat(metrics);
                cells.iter().for_each(|(name, _)| columns.add(name));
                let task = row.task_id.clone().unwrap_or(Value::Null);
                lines.push(Step { sweep: s, trial: row.id, task, cells });
            }
        }
    }
    if several {
        table.columns.push("sweep".into());
    }
    table.columns.extend(["trial".to_owned(), "task_id".to_owned()]);
    table.first_parameter = table.columns.len();
    table.first_metric = table.columns.len();
    let fixed = table.columns.clone();
    table.columns.extend(
        columns
            .names
            .iter()
            .map(|name| if fixed.contains(name) { format!("metric.{name}") } else { name.clone() }),
    );
    for Step { sweep: s, trial, task, cells } in lines {
        let mut row = Vec::with_capacity(table.columns.len());
        if several {
            row.push(Value::String(sweeps[s].1.name.clone()));
        }
        row.extend([trial.into(), task]);
        row.resize(table.columns.len(), Value::Null);
        for (name, value) in cells {
            row[table.first_metric + columns.index[&name]] = value;
        }
        table.rows.push(row);
        table.sweeps.push(sweeps[s].0.dir().to_owned());
        table.trials.push(trial);
    }
    Ok(table)
}

/// Which end of a metric is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The least value.
    Min,
    /// The greatest value.
    Max,
}

impl Table {
    /// The state in a row.
    pub fn state<'a>(&self, row: &'a [Value]) -> &'a str {
        let column = self.columns.iter().position(|c| c == "state");
        column.and_then(|c| row[c].as_str()).unwrap_or_default()
    }

    /// The rows of finished trials, best first by a metric (any column of numbers). Rows without a
    /// number there, or with NaN, are left out; equal values keep the order of trials.
    ///
    /// # Errors
    /// When there is no such column, or no finished trial has a number in it.
    pub fn ranked(&self, metric: &str, goal: Goal) -> Result<Vec<usize>> {
        let Some(column) = self.columns.iter().position(|c| c == metric) else {
            let known: Vec<&str> =
                self.columns[self.first_metric..].iter().map(String::as_str).collect();
            let fault = Fault::request(format!("no trial has a metric `{metric}`"));
            return Err(match words::nearest(metric, known.iter().copied()) {
                Some(near) => fault.hint(format!("did you mean `{near}`?")),
                None if known.is_empty() => fault.hint("no trial has recorded any metric"),
                None => fault.hint(format!("there are {}", words::ticked(&known))),
            }
            .into());
        };
        let mut ranked: Vec<(f64, usize)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| self.state(row) == "done")
            .filter_map(|(i, row)| Some((number(&row[column])?, i)))
            .filter(|(value, _)| !value.is_nan())
            .collect();
        ranked.sort_by(|a, b| match goal {
            Goal::Min => a.0.total_cmp(&b.0),
            Goal::Max => b.0.total_cmp(&a.0),
        });
        if ranked.is_empty() {
            return Err(Fault::request(format!("no finished trial has a number for `{metric}`"))
                .hint("`hpcsweep status` shows how the trials stand")
                .into());
        }
        Ok(ranked.into_iter().map(|(_, i)| i).collect())
    }
}
