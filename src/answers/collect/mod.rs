//! From records to one table: a row a trial, columns for what every trial has, then its parameters,
//! then its metrics.

mod assumed;
pub(crate) mod attempts;
pub(crate) mod columns;
mod curve;
pub(crate) mod gather;
mod grid;
mod note;
pub(crate) mod points;
pub(crate) mod sheet;
pub(crate) mod statistics;
pub mod steps;
pub(crate) mod tensorboard;
#[cfg(any(feature = "tables", test))]
mod types;
pub mod whole;

#[cfg(feature = "tables")]
mod arrow;
#[cfg(feature = "tables")]
mod sqlite;
#[cfg(feature = "tables")]
pub(crate) mod typed;

pub(crate) use assumed::{assumed, is_gpu_sample};
pub use grid::Cell;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use rayon::prelude::*;
use serde_json::Value;

use crate::base::fault::Fault;
use crate::base::host::{disk, threads};
use crate::base::words::{self, thousands};
use crate::plan::value::{float_text, json_float};
use crate::sweep::standing::Standing;
use crate::sweep::status::Status;
use crate::sweep::tree::Tree;
use crate::sweep::tree::code;
use crate::sweep::tree::damage::Damaged;
use crate::sweep::tree::records::{Attempt, Origin, Record, Usage};
use crate::sweep::tree::table::Row;
use statistics::{Point, Statistic};

/// The columns every table has, before parameters and metrics.
pub(crate) const FIXED: [&str; 15] = [
    "trial",
    "task_id",
    "link",
    "state",
    "cause",
    "exit_code",
    "attempts",
    "duration_s",
    "last_duration_s",
    "host",
    "peak_memory",
    "cpu_s",
    "read_bytes",
    "written_bytes",
    "job",
];

/// The column of the functions that trials call, where those of a sweep call several.
pub(crate) const FUNCTION: &str = "function";

/// The column of the code snapshots from which trials ran, where there are several: short names.
pub(crate) const SNAPSHOT: &str = "snapshot";

/// The column of devices that the plan names.
pub(crate) const DEVICES: &str = "gpu_ids_abs";

/// Names of values that are not metrics: a row about lines that could not be read.
pub(crate) const UNREAD: [&str; 2] = ["unread_lines", "damaged"];

/// The cells of a row that are not empty, in the order of columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells(Vec<(usize, Value)>);

impl Cells {
    fn push(&mut self, column: usize, value: Value) {
        if !value.is_null() {
            self.0.push((column, value));
        }
    }

    /// By column; if one column has several, the last stays.
    fn sort(&mut self) {
        self.0.reverse();
        self.0.sort_by_key(|(column, _)| *column);
        self.0.dedup_by_key(|(column, _)| *column);
    }

    /// The value of a column; `null` for nothing.
    pub fn get(&self, column: usize) -> &Value {
        let at = self.0.binary_search_by_key(&column, |(column, _)| *column);
        at.map_or(&Value::Null, |at| &self.0[at].1)
    }

    /// The cells with their columns.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.0.iter().map(|(column, value)| (*column, value))
    }
}

/// The number of metric lines and results that could not be read, in words.
pub(crate) fn unread_words(n: u64) -> String {
    if n == 1 {
        "1 metric line or result".to_owned()
    } else {
        format!("{} metric lines or results", thousands(n))
    }
}

/// A sweep of a table, and what of it could not be read.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The sweep's folder, by which notes name the sweep.
    pub(crate) dir: PathBuf,
    /// Damaged lines by file.
    pub(crate) damage: Vec<Damaged>,
    /// Metric lines of programs that could not be read, with their trials.
    pub(crate) unread: Vec<(u64, u64)>,
    /// Who was asked how the trials stand, where that is not sure.
    pub(crate) unsure: Option<String>,
    /// The note about trials that the plan has dropped.
    pub(crate) dropped: Option<String>,
    /// The function of the plan as last submitted, where trials of the sweep call several.
    pub(crate) function: Option<String>,
    /// The parameter of `[replicates]`, in the plan as last submitted.
    pub(crate) replicates: Option<String>,
    /// `[metrics] bounds` of the plan as last submitted.
    pub(crate) bounds: Vec<(String, [f64; 2])>,
}

impl Source {
    /// The notes about a sweep.
    pub(crate) fn of(status: &Status) -> Self {
        let jobs = !status.jobs.is_empty() && !status.is_sure();
        let planned = planned(status);
        Self {
            dir: status.tree.dir().to_owned(),
            damage: status.damage.clone(),
            unread: status.unread().collect(),
            unsure: jobs.then(|| status.witness.clone()),
            dropped: status.dropped_words(),
            function: planned
                .as_ref()
                .filter(|_| status.has_several_functions())
                .and_then(function),
            replicates: planned.as_ref().and_then(replicates),
            bounds: planned.as_ref().and_then(bounds).unwrap_or_default(),
        }
    }
}

/// The plan as last submitted.
fn planned(status: &Status) -> Option<toml::Table> {
    disk::read(&status.tree.plan()).ok()?.parse().ok()
}

/// The function of a plan. A function that the sweep has had before makes no new table.
fn function(plan: &toml::Table) -> Option<String> {
    Some(plan.get("run")?.get("function")?.as_str()?.to_owned())
}

fn replicates(plan: &toml::Table) -> Option<String> {
    let parameter = plan.get("replicates")?.get("parameter");
    Some(parameter.map_or(Some("seed"), toml::Value::as_str)?.to_owned())
}

fn bounds(plan: &toml::Table) -> Option<Vec<(String, [f64; 2])>> {
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64));
    let own = |(name, ends): (&String, &toml::Value)| match &ends.as_array()?[..] {
        [least, most] => Some((name.clone(), [number(least)?, number(most)?])),
        _ => None,
    };
    let table = plan.get("metrics")?.get("bounds")?.as_table()?;
    Some(table.iter().filter_map(own).collect())
}

/// A row of a table: a trial.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// The trial's number in its sweep, from 0.
    pub trial: u64,
    source: u32,
    /// Its place in the columns.
    at: u32,
}

impl Trial {
    /// Which of the table's sweeps it is of.
    pub(crate) fn source(&self) -> usize {
        self.source as usize
    }
}

/// A table of results.
#[derive(Debug, Default)]
pub struct Table {
    /// Column names: [`FIXED`] (after `sweep`, if several were joined), [`SNAPSHOT`] and [`FUNCTION`], if a sweep has several,
    /// parameters, metrics.
    pub columns: Vec<String>,
    /// A row a trial.
    pub rows: Vec<Trial>,
    /// The first column of the parameters.
    pub(crate) first_parameter: usize,
    /// The first column of the metrics.
    pub(crate) first_metric: usize,
    /// The sweeps that were joined; [`Trial::source`] is a place in this list.
    pub(crate) sources: Vec<Source>,
    cells: Vec<grid::Column>,
    /// Rows and columns of the cells that columns hold alone, sorted, and the other columns.
    few: Vec<(u32, u32)>,
    many: Vec<usize>,
}

/// Everything of one trial that becomes cells.
pub(crate) struct Line {
    /// In the order of [`FIXED`], then snapshot and function.
    pub(crate) fixed: Vec<Value>,
    pub(crate) parameters: Vec<(String, Value)>,
    pub(crate) metrics: Vec<(String, Value)>,
    /// Metrics that were logged more than once: their least and greatest values are columns.
    repeated: Vec<String>,
}

/// What to do where no trial has logged a metric.
const NO_METRIC: &str = "no trial has recorded any metric: programs write JSON lines to the file `$HPCSWEEP_METRICS`, or \
    `[metrics] output` in the plan finds numbers in what they print, `[metrics] file` in files that they leave";

/// Trials that are read at once: their records are freed when they have become rows.
const CHUNK: usize = 1 << 14;

/// Trials of which a thread makes a part of a table.
const PIECE: usize = 1 << 10;

/// Joins sweeps into one table.
///
/// # Errors
/// When a record cannot be read.
pub fn collect(sweeps: Vec<Status>) -> Result<Table> {
    collect_with(sweeps, &[])
}

/// As [`collect`], with statistics of learning curves as columns behind the metrics that they are of.
///
/// # Errors
/// As [`collect`].
pub(crate) fn collect_with(sweeps: Vec<Status>, curves: &[Statistic]) -> Result<Table> {
    let mut joined = Joined::new(&sweeps);
    for mut status in sweeps {
        joined.begin(&status);
        for trials in chunks(&status) {
            let own = status.rows[trials.clone()].iter().map(|row| row.id);
            let records: Vec<Option<Record>> =
                own.map(|trial| status.records.remove(&trial)).collect();
            joined.add(&status, trials, records, curves)?;
        }
    }
    joined.table(curves)
}

/// As [`collect`], of sweeps that keep their records.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn table(sweeps: &[Status], curves: &[Statistic]) -> Result<Table> {
    let mut joined = Joined::new(sweeps);
    for status in sweeps {
        joined.begin(status);
        for trials in chunks(status) {
            let own = status.rows[trials.clone()].iter().map(|row| row.id);
            let records: Vec<Option<&Record>> =
                own.map(|trial| status.records.get(&trial)).collect();
            joined.add(status, trials, records, curves)?;
        }
    }
    joined.table(curves)
}

fn chunks(status: &Status) -> impl Iterator<Item = Range<usize>> + use<> {
    let rows = status.rows.len();
    (0..rows).step_by(CHUNK).map(move |from| from..rows.min(from + CHUNK))
}

/// The cells of some trials.
#[derive(Default)]
struct Part {
    /// As [`Line::fixed`].
    fixed: Vec<grid::Column>,
    parameters: grid::Named,
    metrics: grid::Named,
    /// Metrics that a trial has logged more than once.
    repeated: HashSet<String>,
}

impl Part {
    /// Sets one of the first cells of a row.
    fn set(&mut self, column: usize, row: usize, cell: Cell<'_>, rows: usize) {
        self.fixed.resize_with(self.fixed.len().max(column + 1), grid::Column::default);
        self.fixed[column].set(row, cell, rows);
    }

    /// Adds what is known of the trial in a row.
    fn add(&mut self, row: u32, line: &Line, rows: usize) {
        self.fixed.resize_with(self.fixed.len().max(line.fixed.len()), grid::Column::default);
        for (column, value) in self.fixed.iter_mut().zip(&line.fixed) {
            column.set(row as usize, value.into(), rows);
        }
        for (nth, (name, value)) in (0..).zip(&line.parameters) {
            self.parameters.set(name, (row, nth), value.into(), rows);
        }
        self.add_metrics(row, &line.metrics, &line.repeated, rows);
    }

    fn add_metrics(
        &mut self,
        row: u32,
        metrics: &[(String, Value)],
        repeated: &[String],
        rows: usize,
    ) {
        for (nth, (name, value)) in (0..).zip(metrics) {
            self.metrics.set(name, (row, nth), value.into(), rows);
        }
        for name in repeated {
            is_part_of(&mut self.repeated, name);
        }
    }

    /// Adds the cells of other trials, in these rows.
    fn join(&mut self, part: Self, places: &[u32], rows: usize) {
        self.fixed.resize_with(self.fixed.len().max(part.fixed.len()), grid::Column::default);
        for (column, other) in self.fixed.iter_mut().zip(&part.fixed) {
            column.join(other, places, rows);
        }
        self.parameters.join(&part.parameters, places, rows);
        self.metrics.join(&part.metrics, places, rows);
        self.repeated.extend(part.repeated);
    }

    /// The one number of a metric that others have logged more than once is its least and its greatest.
    fn add_ends(&mut self, rows: usize) {
        let place = |name: &str| self.metrics.get(name);
        let ends = self.repeated.iter().filter_map(|name| {
            let ends = [place(&format!("{name}.min"))?, place(&format!("{name}.max"))?];
            let of = name.strip_suffix(".min").or_else(|| name.strip_suffix(".max"));
            let of = of.filter(|of| self.repeated.contains(*of)).and_then(place);
            Some((place(name)?, ends, of))
        });
        let mut ends: Vec<(usize, [usize; 2], Option<usize>)> = ends.collect();
        ends.sort_unstable();
        for (metric, ends, of) in ends {
            let own = std::mem::take(&mut self.metrics.columns[metric]);
            // `loss.min` of a trial that has `loss` is no metric that it has logged.
            let of = of.map(|at| (at, std::mem::take(&mut self.metrics.columns[at])));
            let has_it =
                |row: usize| of.as_ref().is_some_and(|(_, of)| of.get(row).number().is_some());
            for end in ends.into_iter().filter(|end| *end != metric) {
                let column = &mut self.metrics.columns[end];
                own.each(|row, cell| {
                    if cell.number().is_some() && column.get(row).is_null() && !has_it(row) {
                        column.set(row, cell, rows);
                    }
                });
            }
            self.metrics.columns[metric] = own;
            if let Some((at, of)) = of {
                self.metrics.columns[at] = of;
            }
        }
    }
}

/// A table that grows by parts.
struct Joined {
    several: bool,
    further: Further,
    /// Trials of all sweeps.
    all: usize,
    sources: Vec<Source>,
    rows: Vec<Trial>,
    sweep: grid::Column,
    whole: Part,
}

impl Joined {
    fn new(sweeps: &[Status]) -> Self {
        let all = sweeps.iter().map(|status| status.rows.len()).sum();
        let mut joined = Self::of(sweeps.len() > 1, all);
        joined.further.snapshot = sweeps.iter().any(Status::has_several_snapshots);
        joined.further.function = sweeps.iter().any(Status::has_several_functions);
        joined
    }

    /// Of one sweep or of several, with so many trials.
    fn of(several: bool, all: usize) -> Self {
        Self {
            several,
            further: Further::default(),
            all,
            sources: Vec::new(),
            rows: Vec::with_capacity(all),
            sweep: grid::Column::default(),
            whole: Part::default(),
        }
    }

    /// The next row, and the sweep that it is of.
    fn next(&self) -> (u32, u32) {
        (self.rows.len() as u32, self.sources.len().saturating_sub(1) as u32)
    }

    /// Says of which sweep rows are, where there are several.
    fn name(&mut self, status: &Status, rows: &[u32]) {
        if self.several {
            let name = Cell::Text(&status.identity.name);
            rows.iter().for_each(|row| self.sweep.set(*row as usize, name, self.all));
        }
    }

    /// The trials that are added from now on are of this sweep.
    fn begin(&mut self, status: &Status) {
        self.sources.push(Source::of(status));
    }

    /// Adds some trials of a sweep, with their records.
    fn add<R: Borrow<Record> + Sync>(
        &mut self,
        status: &Status,
        trials: Range<usize>,
        records: Vec<Option<R>>,
        curves: &[Statistic],
    ) -> Result<()> {
        let (from, source) = self.next();
        let rows = &status.rows[trials.clone()];
        self.rows.extend(rows.iter().zip(from..).map(|(row, at)| Trial {
            trial: row.id,
            source,
            at,
        }));
        let (further, several) = (self.further, status.has_several_functions());
        let line = |(at, record): (usize, &Option<R>)| -> Result<Line> {
            let (row, standing) = (&status.rows[at], &status.standings[at]);
            let record = record.as_ref().map(Borrow::borrow);
            let mut line = line(&status.tree, row, standing, record, curves)?;
            let ran = record.filter(|_| further.snapshot).and_then(snapshot);
            let function = status.function(row.id).filter(|_| several);
            line.fixed.extend([ran.into(), function.into()]);
            Ok(line)
        };
        let part = |(at, records): (usize, &[Option<R>])| -> Result<Part> {
            let mut part = Part::default();
            let first = trials.start + at * PIECE;
            for (row, record) in records.iter().enumerate() {
                part.add(row as u32, &line((first + row, record))?, PIECE);
            }
            Ok(part)
        };
        let parts: Result<Vec<Part>> =
            threads::in_parallel(|| records.par_chunks(PIECE).enumerate().map(part).collect());
        let places: Vec<u32> = (from..self.rows.len() as u32).collect();
        for (part, places) in parts?.into_iter().zip(places.chunks(PIECE)) {
            self.whole.join(part, places, self.all);
        }
        self.name(status, &places);
        Ok(())
    }

    /// # Errors
    /// When no trial has logged a metric that is to reach a value.
    fn table(self, curves: &[Statistic]) -> Result<Table> {
        let Self { several, further, all, sources, rows, sweep, mut whole } = self;
        whole.parameters.sort();
        whole.metrics.sort();
        whole.add_ends(all);
        let mut table = Table { rows, sources, ..Table::default() };
        let fixed = FIXED.into_iter().map(|name| (name, true));
        let more = [(SNAPSHOT, further.snapshot), (FUNCTION, further.function)];
        whole.fixed.resize_with(FIXED.len() + more.len(), grid::Column::default);
        let fixed = fixed.chain(more).zip(whole.fixed);
        let sweep = (("sweep", several), sweep);
        for ((name, _), column) in std::iter::once(sweep).chain(fixed).filter(|((_, is), _)| *is) {
            table.columns.push(name.to_owned());
            table.cells.push(column);
        }
        table.first_parameter = table.columns.len();
        name_columns(&mut table, &whole.parameters.names, &whole.metrics.names);
        statistics::check(curves, &table.columns[table.first_metric..])?;
        table.cells.extend(whole.parameters.columns.into_iter().chain(whole.metrics.columns));
        Ok(Table::of(table))
    }
}

/// A table of rows without trials.
#[derive(Default)]
struct Builder {
    columns: Vec<grid::Column>,
    rows: u32,
}

impl Builder {
    fn add(&mut self, row: Vec<(usize, Cell<'_>)>) {
        for (column, cell) in row {
            let columns = self.columns.len().max(column + 1);
            self.columns.resize_with(columns, grid::Column::default);
            self.columns[column].set(self.rows as usize, cell, self.rows as usize);
        }
        self.rows += 1;
    }

    /// The table, of which no column has a name.
    fn table(self) -> Table {
        let rows = (0..self.rows).map(|at| Trial { trial: 0, source: 0, at }).collect();
        Table::of(Table { rows, cells: self.columns, ..Table::default() })
    }
}

/// A name that two kinds of column share has its kind in front: `param.acc` and `metric.acc`. No column is `acc` then.
fn name_columns(table: &mut Table, parameters: &[String], metrics: &[String]) {
    let mut taken: BTreeSet<String> = table.columns.iter().cloned().collect();
    taken.extend(UNREAD.map(str::to_owned));
    let of_parameters: HashSet<&String> = parameters.iter().collect();
    taken.extend(metrics.iter().filter(|name| of_parameters.contains(name)).cloned());
    let mut add = |name: &String, kind: &str, columns: &mut Vec<String>| {
        let mut shown = name.clone();
        while taken.contains(&shown) {
            shown = format!("{kind}.{shown}");
        }
        taken.insert(shown.clone());
        columns.push(shown);
    };
    parameters.iter().for_each(|name| add(name, "param", &mut table.columns));
    table.first_metric = table.columns.len();
    metrics.iter().for_each(|name| add(name, "metric", &mut table.columns));
}

#[derive(Default)]
struct Columns {
    names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Columns {
    /// The place of a name, which is added where it is new.
    fn place(&mut self, name: &str) -> usize {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        self.index.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }
}

/// Adds a name; whether it is new.
fn is_part_of(seen: &mut HashSet<String>, name: &str) -> bool {
    !seen.contains(name) && seen.insert(name.to_owned())
}

/// The columns that only some tables have.
#[derive(Clone, Copy, Default)]
struct Further {
    snapshot: bool,
    function: bool,
}

/// The short name of the snapshot that the attempt that counts ran.
pub(crate) fn snapshot(record: &Record) -> Option<&str> {
    record.decisive()?.start.snapshot.as_deref().map(code::short)
}

/// The values of a trial by the names of columns, with its metrics only if they are wanted: these are read from its files. What
/// was logged more than `with_metrics` times has a least and a greatest value.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn of_trial(
    status: &Status,
    (row, standing): (&Row, &Standing),
    with_metrics: Option<u64>,
) -> Result<Line> {
    let record = status.records.get(&row.id);
    let logged = record.zip(with_metrics);
    let logged = logged.map(|(record, least)| metrics(&status.tree, record, least, &[]));
    let (metrics, repeated) = logged.transpose()?.unwrap_or_default();
    Ok(Line { metrics, repeated, ..unmeasured(row, standing, record) })
}

fn line(
    tree: &Tree,
    row: &Row,
    standing: &Standing,
    record: Option<&Record>,
    curves: &[Statistic],
) -> Result<Line> {
    let logged = record.map(|record| metrics(tree, record, 1, curves)).transpose()?;
    let (metrics, repeated) = logged.unwrap_or_default();
    Ok(Line { metrics, repeated, ..unmeasured(row, standing, record) })
}

/// Calls `with` for each line of a trial's learning curve: its values by dotted name.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn each_step(
    status: &Status,
    trial: u64,
    with: impl FnMut(Vec<(String, Value)>),
) -> Result<()> {
    match status.records.get(&trial) {
        Some(record) => curve::each(&status.tree, record, with),
        None => Ok(()),
    }
}

/// A line without metrics.
fn unmeasured(row: &Row, standing: &Standing, record: Option<&Record>) -> Line {
    let mut fixed = vec![
        row.id.into(),
        row.task_id.clone().unwrap_or(Value::Null),
        row.link.into(),
        standing.state.word().into(),
        standing.cause.map_or(Value::Null, |cause| cause.word().into()),
    ];
    fixed.extend(recorded(record).map(Cell::value));
    let leaf = |(name, value): (&str, &crate::plan::Value)| (name.to_owned(), value.to_json());
    let mut parameters: Vec<(String, Value)> = row.params.iter().map(leaf).collect();
    if let Some(gpus) = &row.gpu_ids_abs {
        parameters.push((DEVICES.into(), serde_json::json!(gpus)));
    }
    Line { fixed, parameters, metrics: Vec::new(), repeated: Vec::new() }
}

/// What a record says, in the order of [`FIXED`] from `exit_code` on.
fn recorded(record: Option<&Record>) -> [Cell<'_>; 10] {
    let attempt = record.and_then(Record::decisive);
    let end = attempt.and_then(|a| a.end.as_ref());
    let usage = end.and_then(|end| end.usage.as_deref());
    let bytes = |bytes: Option<u64>| bytes.map_or(Cell::Null, Cell::whole);
    let number = |number: Option<f64>| number.map_or(Cell::Null, Cell::finite);
    [
        end.and_then(|e| e.exit_code).map_or(Cell::Null, |code| Cell::Int(code.into())),
        Cell::whole(record.map_or(0, Record::begun) as u64),
        number(record.and_then(duration_s)),
        number(attempt.and_then(Attempt::duration_s)),
        attempt.map_or(Cell::Null, |a| Cell::Text(&a.start.host)),
        bytes(end.map(|e| e.peak_memory).filter(|bytes| *bytes > 0)),
        number(usage.map(Usage::cpu_s)),
        bytes(usage.map(|usage| usage.read_bytes)),
        bytes(usage.map(|usage| usage.written_bytes)),
        attempt.and_then(|a| a.start.job.as_deref()).map_or(Cell::Null, Cell::Text),
    ]
}

/// Seconds that the attempts of a trial's curve have run in total, as far as it is known.
fn duration_s(record: &Record) -> Option<f64> {
    curve::attempts(record).filter_map(Attempt::duration_s).reduce(|a, b| a + b)
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

/// The least and the greatest of the numbers of one name of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ends {
    least: f64,
    greatest: f64,
    /// The same, exact, while all numbers are whole.
    whole: Option<[i128; 2]>,
    numbers: u64,
}

impl Default for Ends {
    fn default() -> Self {
        let (least, greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { least, greatest, whole: Some([i128::MAX, i128::MIN]), numbers: 0 }
    }
}

impl Ends {
    /// Of so many numbers with these ends.
    fn of(numbers: u64, ends: [Cell<'_>; 2]) -> Self {
        let mut own = Self::default();
        ends.into_iter().for_each(|end| own.add(end));
        Self { numbers, ..own }
    }

    /// Takes note of a value, if it is a number.
    fn add(&mut self, cell: Cell<'_>) {
        let Some(number) = cell.number() else { return };
        self.least = self.least.min(number);
        self.greatest = self.greatest.max(number);
        let known = self.whole.zip(cell.as_whole());
        self.whole = known.map(|([least, greatest], own)| [least.min(own), greatest.max(own)]);
        self.numbers += 1;
    }

    /// The least and the greatest: whole numbers where all are; NaN of numbers that are all NaN.
    fn both(&self) -> [Cell<'static>; 2] {
        match self.whole.filter(|_| self.numbers > 0) {
            Some(whole) => whole.map(Cell::of_whole),
            None if self.least <= self.greatest => [self.least, self.greatest].map(Cell::number_of),
            None => [Cell::number_of(f64::NAN); 2],
        }
    }

    /// Whether they are columns, where those of a name are that has more than `least` numbers.
    fn are_of(&self, name: &str, least: u64) -> bool {
        self.numbers > least && !is_place(name)
    }
}

/// Whether a name says where in a curve a line is.
fn is_place(name: &str) -> bool {
    name == "step" || name == "epoch"
}

/// The values of one name of a curve.
#[derive(Default)]
struct Seen {
    last: Value,
    ends: Ends,
    rank: u64,
    /// Its curve, where that is wanted.
    points: Vec<Point>,
}

/// The metrics of a record by name, as in a table.
///
/// # Errors
/// When the record cannot be read.
pub(crate) fn metrics_of(tree: &Tree, record: &Record) -> Result<Vec<(String, Value)>> {
    metrics(tree, record, 1, &[]).map(|(metrics, _)| metrics)
}

/// Metrics by name, and which of them have a least and a greatest value.
type Logged = (Vec<(String, Value)>, Vec<String>);

/// The metrics of a trial's curve: of each name its last value; of a number that was logged more than `least` times
/// also its least and greatest (`loss.min`, `loss.max`). Statistics of its curve follow. The final result comes last: an
/// object's members, or `result`.
///
/// # Errors
/// When the record cannot be read.
fn metrics(tree: &Tree, record: &Record, least: u64, curves: &[Statistic]) -> Result<Logged> {
    let (mut out, mut repeated): Logged = Default::default();
    let mut add = |out: &mut Vec<(String, Value)>, name: &str, last: Value, ends: Ends| {
        out.push((name.to_owned(), last));
        if ends.are_of(name, least) {
            let [min, max] = ends.both().map(Cell::value);
            out.extend([(format!("{name}.min"), min), (format!("{name}.max"), max)]);
            repeated.push(name.to_owned());
        }
    };
    if let Some(note) = record.note.as_deref().filter(|_| curves.is_empty()) {
        note::each(note, |name, last, ends| add(&mut out, name, last.value(), ends));
    } else {
        for (name, seen) in seen(tree.into(), record, curves)? {
            add(&mut out, &name, seen.last, seen.ends);
            if !is_place(&name) && !seen.points.is_empty() {
                out.extend(statistics::columns(curves, &name, &seen.points));
            }
        }
    }
    let end = record.decisive().and_then(|attempt| attempt.end.as_ref());
    if let Some(result) = end.and_then(|e| e.result.as_ref()) {
        let mut last = Vec::new();
        leaves(if result.is_object() { "" } else { "result" }, result, &mut last);
        let names: HashSet<&String> = last.iter().map(|(name, _)| name).collect();
        out.retain(|(name, _)| !names.contains(name));
        out.extend(last.iter().cloned());
    }
    Ok((out, repeated))
}

/// The values of each name of a trial's curve, in the order in which it logged them. With several ranks the lowest rank
/// that logs a name speaks for it.
///
/// # Errors
/// When the record cannot be read.
fn seen(from: Origin<'_>, record: &Record, curves: &[Statistic]) -> Result<Vec<(String, Seen)>> {
    let mut all: Vec<(String, Seen)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    curve::each(from, record, |line| {
        let rank = line.iter().find(|(name, _)| name == "rank");
        let rank = rank.and_then(|(_, rank)| rank.as_u64()).unwrap_or(0);
        let place = |name: &str| {
            let place = line.iter().find(|(other, _)| other == name);
            place.and_then(|(_, value)| value.as_f64())
        };
        let [epoch, step] =
            if curves.is_empty() { [None; 2] } else { ["epoch", "step"].map(place) };
        for (name, value) in line.into_iter().filter(|(name, _)| name != "rank") {
            let at = places.get(&name).copied().unwrap_or_else(|| {
                places.insert(name.clone(), all.len());
                all.push((name, Seen { rank, ..Seen::default() }));
                all.len() - 1
            });
            let entry = &mut all[at].1;
            if rank > entry.rank {
                continue;
            }
            if rank < entry.rank {
                *entry = Seen { rank, ..Seen::default() };
            }
            entry.ends.add(Cell::from(&value));
            if let Some(number) = json_float(&value).filter(|_| !curves.is_empty()) {
                entry.points.push(Point { epoch, step, value: number });
            }
            entry.last = value;
        }
    })?;
    Ok(all)
}

/// A cell as text: empty for nothing, lists and tables as JSON.
pub(crate) fn text(value: &Value) -> String {
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

/// Which end of a metric is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The least value is best.
    Min,
    /// The greatest value is best.
    Max,
}

impl Table {
    /// A table of which all cells are known.
    fn of(mut table: Self) -> Self {
        for (at, column) in table.cells.iter().enumerate() {
            match column.few() {
                Some(rows) => table.few.extend(rows.map(|row| (row, at as u32))),
                None => table.many.push(at),
            }
        }
        table.few.sort_unstable();
        table
    }

    /// The cell of a row in a column; nothing where the table has no such column.
    pub fn cell(&self, row: &Trial, column: usize) -> Cell<'_> {
        self.cells.get(column).map_or(Cell::Null, |cells| cells.get(row.at as usize))
    }

    /// The cells that a row has, with their columns.
    pub fn cells(&self, row: &Trial) -> Vec<(usize, Cell<'_>)> {
        let from = self.few.partition_point(|(own, _)| *own < row.at);
        let few = self.few[from..].iter().take_while(|(own, _)| *own == row.at);
        let mut few = few.map(|(_, column)| *column as usize).peekable();
        let mut all = Vec::new();
        for many in &self.many {
            while let Some(column) = few.next_if(|column| column < many) {
                all.push((column, self.cell(row, column)));
            }
            all.push((*many, self.cell(row, *many)));
        }
        all.extend(few.map(|column| (column, self.cell(row, column))));
        all.retain(|(_, cell)| !cell.is_null());
        all
    }

    /// The state in a row.
    pub(crate) fn state(&self, row: &Trial) -> &str {
        let column = self.columns.iter().position(|c| c == "state");
        column.and_then(|c| self.cell(row, c).as_str()).unwrap_or_default()
    }

    /// Its sweeps as words of a command to copy.
    pub(crate) fn named(&self) -> String {
        let all: Vec<String> = self.sources.iter().map(|source| disk::named(&source.dir)).collect();
        all.join(" ")
    }

    /// The function that a row's trial calls, where trials of a sweep call several.
    pub(crate) fn function(&self, row: &Trial) -> Option<&str> {
        let column = self.first_parameter.checked_sub(1)?;
        (self.columns[column] == FUNCTION).then(|| self.cell(row, column).as_str()).flatten()
    }

    /// Whether a row belongs to the right function: the one that is named, else that of its sweep's plan. Results of
    /// different functions are not alternatives.
    pub(crate) fn is_meant(&self, row: &Trial, named: Option<&str>) -> bool {
        match named.or(self.sources[row.source()].function.as_deref()) {
            Some(meant) => self.function(row) == Some(meant),
            None => true,
        }
    }

    /// Whether a column is the parameter of `[replicates]` of one of its sweeps.
    pub(crate) fn repeats(&self, column: usize) -> bool {
        (self.first_parameter..self.first_metric).contains(&column)
            && self
                .sources
                .iter()
                .any(|source| source.replicates.as_ref() == Some(&self.columns[column]))
    }

    /// The functions of its trials, in the order of the trials.
    pub(crate) fn functions(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        self.rows.iter().filter_map(|row| self.function(row)).filter(|f| seen.insert(*f)).collect()
    }

    /// The column of a parameter of this name, or of any other column.
    pub(crate) fn parameter(&self, name: &str) -> Option<usize> {
        self.column_of(name, self.first_parameter..self.first_metric, "param")
    }

    /// The column of this name among those of a kind, otherwise among all.
    fn column_of(&self, name: &str, of_kind: Range<usize>, kind: &str) -> Option<usize> {
        let shared = format!("{kind}.{name}");
        let is_named = |at: &usize| self.columns[*at] == name;
        let is_own = |at: &usize| self.columns[*at] == shared;
        of_kind
            .clone()
            .find(is_named)
            .or_else(|| of_kind.clone().find(is_own))
            .or_else(|| (0..self.columns.len()).find(is_named))
    }

    /// The column of a metric: any column.
    ///
    /// # Errors
    /// When there is none; the hint has the nearest.
    pub(crate) fn metric(&self, metric: &str) -> Result<usize> {
        if let Some(column) =
            self.column_of(metric, self.first_metric..self.columns.len(), "metric")
        {
            return Ok(column);
        }
        let known: Vec<&str> =
            self.columns[self.first_metric..].iter().map(String::as_str).collect();
        let fault = Fault::request(format!("no trial has a metric `{metric}`"));
        Err(match known.as_slice() {
            [] => fault.hint(NO_METRIC),
            known => fault.hint(words::suggestion(metric, known, "there are")),
        }
        .into())
    }

    /// Why there is no answer about these metrics yet, where no trial has finished: how the trials stand.
    ///
    /// # Errors
    /// When trials have recorded metrics, and one of these is not among them.
    pub(crate) fn unfinished<'a>(
        &self,
        metrics: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<String>> {
        if self.rows.is_empty() {
            return Ok(Some("no trial is meant".to_owned()));
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        self.rows.iter().for_each(|row| *counts.entry(self.state(row)).or_default() += 1);
        if counts.contains_key("done") {
            return Ok(None);
        }
        if self.first_metric < self.columns.len() {
            metrics.into_iter().try_for_each(|metric| self.metric(metric).map(drop))?;
        }
        let counts: Vec<String> =
            counts.iter().map(|(state, n)| format!("{} {state}", words::thousands(*n))).collect();
        Ok(Some(format!("no trial has finished: {}", counts.join(", "))))
    }

    /// The fault that no finished trial has a number for a metric.
    pub(crate) fn without_numbers(&self, metric: &str) -> anyhow::Error {
        let fault = Fault::request(format!("no finished trial has a number for `{metric}`"));
        let other = self.metric(metric).ok().and_then(|column| {
            let done = self.rows.iter().filter(|row| self.state(row) == "done");
            done.map(|row| self.cell(row, column)).find(|cell| !cell.is_null())
        });
        match other {
            Some(cell) if cell.number().is_none() => {
                let value = words::short(&cell.text(), 40);
                fault.hint(format!("its values are others, such as `{value}`: write numbers"))
            }
            _ => {
                fault.hint(format!("`hpcsweep status {}` shows how the trials stand", self.named()))
            }
        }
        .into()
    }

    /// The rows of finished trials, best first by a metric (any column of numbers). Rows without a
    /// number there, or with NaN, are left out; equal values keep the order of trials. Of a sweep whose trials call
    /// several functions only those of `function` count, or of its plan's.
    ///
    /// # Errors
    /// When there is no such column, or no finished trial has a number in it.
    pub(crate) fn ranked(
        &self,
        metric: &str,
        goal: Goal,
        function: Option<&str>,
    ) -> Result<Vec<usize>> {
        let column = self.metric(metric)?;
        let mut ranked: Vec<(f64, usize)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| self.state(row) == "done" && self.is_meant(row, function))
            .filter_map(|(i, row)| Some((self.cell(row, column).number()?, i)))
            .filter(|(value, _)| !value.is_nan())
            .collect();
        ranked.sort_by(|a, b| match goal {
            Goal::Min => a.0.total_cmp(&b.0),
            Goal::Max => b.0.total_cmp(&a.0),
        });
        if ranked.is_empty() {
            return Err(self.without_numbers(metric));
        }
        Ok(ranked.into_iter().map(|(_, i)| i).collect())
    }
}
