//! Settings: the trials of a table by what they have in common.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::Result;
use serde_json::Value;

use super::column;
use crate::answers::collect::{Table, Trial, text};
use crate::base::words;

/// Names of parameters that repeat a setting and are no part of it, as the last part of a dotted name.
const REPETITIONS: [&str; 11] = [
    "seed",
    "random_seed",
    "rng_seed",
    "random_state",
    "fold",
    "folds",
    "cv_fold",
    "replicate",
    "repetition",
    "repeat",
    "rep",
];

/// Whether a parameter repeats a setting, as its name says.
pub(crate) fn repeats_by_name(parameter: &str) -> bool {
    let last_component = parameter.rsplit('.').next().unwrap_or_default();
    REPETITIONS.contains(&last_component.to_lowercase().as_str())
}

/// Which GPU a trial was given is no part of its setting.
pub(crate) const DEVICES: &str = "gpu_ids_abs";

/// Why a column is averaged over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The user has named it, or has named all others.
    Asked,
    /// It is the parameter of `[replicates]`.
    Replicates,
    /// Its name says that it repeats.
    Name,
}

/// What is averaged over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Over {
    /// Its place among the table's columns.
    pub(crate) column: usize,
    /// What makes it a repetition: the user, `[replicates]` or its name.
    pub(crate) why: Why,
}

/// Trials that differ only in what is averaged over.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The columns that tell it from others, with its values.
    pub(crate) values: Vec<(usize, Value)>,
    /// Its rows in the table.
    pub(crate) rows: Vec<usize>,
}

impl Setting {
    /// `lr=0.1 width=64`, or `all trials` where nothing tells settings apart.
    pub(crate) fn words(&self, table: &Table, settings: &Settings) -> String {
        let pairs: Vec<String> = self
            .values
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(column, value)| {
                format!("{}={}", table.columns[*column], settings.text(*column, value))
            })
            .collect();
        if pairs.is_empty() { "all trials".to_owned() } else { pairs.join(" ") }
    }
}

/// The settings of a table.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What is averaged over: columns with more than one value.
    pub(crate) over: Vec<Over>,
    /// The settings, in the order of their first trials.
    pub(crate) list: Vec<Setting>,
    /// How many trials have the parameters of an earlier one: they ran another command, or the sweep had another plan.
    pub(crate) repeated: usize,
    /// Columns in which values of different types read alike: `1` and `"1"`.
    alike: BTreeSet<usize>,
}

/// Trials of a setting without a number that counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// They failed, or took longer than their walltime.
    pub(crate) failed: usize,
    /// They were stopped or kept from running by something else than their program: cancelled, interrupted, lost.
    pub(crate) stopped: usize,
    /// They have not ended.
    pub(crate) open: usize,
    /// They ended well, without a number for the metric.
    pub(crate) without: usize,
    /// They ended well, and the metric is not a number.
    pub(crate) nan: usize,
}

impl Left {
    /// Adds the counts of `other` to these.
    pub(crate) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.stopped += other.stopped;
        self.open += other.open;
        self.without += other.without;
        self.nan += other.nan;
    }

    /// Trials that ran and gave no number: they failed, ended without one, or with NaN. It is the setting that makes them do so, as far as
    /// anybody knows, and a mean of the others would be one of the lucky.
    pub(crate) fn bad(self) -> usize {
        self.failed + self.without + self.nan
    }

    /// The counts with their words, without those that are 0.
    pub(crate) fn words(self) -> Vec<String> {
        let parts = [
            (self.failed, "failed"),
            (self.stopped, "stopped"),
            (self.open, "not ended"),
            (self.without, "without a number"),
            (self.nan, "not a number"),
        ];
        let reasons = parts.into_iter().filter(|(n, _)| *n > 0);
        reasons.map(|(n, what)| format!("{} {what}", words::thousands(n as u64))).collect()
    }
}

/// What the trials of a setting say of a metric.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    /// The rows with a number, in the order of the table.
    pub(crate) rows: Vec<usize>,
    /// The metric's value in each of these rows: may be infinite, never NaN.
    pub(crate) values: Vec<f64>,
    /// What is averaged over, of each: equal texts make a pair with the trial of another setting.
    pub(crate) pairs: Vec<String>,
    /// How many of its trials have no number that counts, and why.
    pub(crate) left: Left,
}

impl Settings {
    /// The settings of the trials of a table that call the function that is meant. `over` are columns to average over, `by` those
    /// that make a setting; with neither, seeds of `[replicates]` and parameters whose name says that they repeat are
    /// averaged over.
    ///
    /// # Errors
    /// When there is no such column.
    pub(crate) fn group_trials(
        table: &Table,
        over: &[String],
        by: &[String],
        function: Option<&str>,
    ) -> Result<Self> {
        let is_meant = |row: &&Trial| table.is_meant(row, function);
        let parameters = table.first_parameter..table.first_metric;
        let mut candidates: Vec<usize> = parameters.collect();
        if table.sources.len() > 1 {
            candidates.insert(0, 0);
        }
        candidates.retain(|column| table.columns[*column] != DEVICES);
        let by_columns: Vec<usize> =
            by.iter().map(|name| column(table, name)).collect::<Result<_>>()?;
        let asked_columns: Vec<usize> =
            over.iter().map(|name| column(table, name)).collect::<Result<_>>()?;
        let why_over = |column: &usize| match (by_columns.is_empty(), asked_columns.is_empty()) {
            (false, _) => (!by_columns.contains(column)).then_some(Why::Asked),
            (true, false) => asked_columns.contains(column).then_some(Why::Asked),
            (true, true) => table
                .repeats(*column)
                .then_some(Why::Replicates)
                .or_else(|| repeats_by_name(&table.columns[*column]).then_some(Why::Name)),
        };
        let mut distinct_values: Vec<BTreeSet<String>> = vec![BTreeSet::new(); candidates.len()];
        for row in table.rows.iter().filter(is_meant) {
            for (column, values) in candidates.iter().zip(&mut distinct_values) {
                if values.len() < 2 {
                    values.insert(table.cell(row, *column).json());
                }
            }
        }
        let varied: BTreeSet<usize> = candidates
            .iter()
            .zip(&distinct_values)
            .filter_map(|(column, values)| (values.len() > 1).then_some(*column))
            .collect();
        let averaged: Vec<Over> = candidates
            .iter()
            .filter(|column| varied.contains(column))
            .filter_map(|column| Some(Over { column: *column, why: why_over(column)? }))
            .collect();
        // What is named tells settings apart whatever kind of column it is.
        let apart: Vec<usize> = match by_columns.is_empty() {
            false => by_columns,
            true => candidates.into_iter().filter(|column| why_over(column).is_none()).collect(),
        };
        let (mut list, mut repeated): (Vec<Setting>, usize) = (Vec::new(), 0);
        let mut seen_keys: HashSet<String> = HashSet::new();
        let varied_columns: Vec<usize> = varied.iter().copied().collect();
        let mut setting_places: HashMap<String, usize> = HashMap::new();
        for (at, row) in table.rows.iter().enumerate().filter(|(_, row)| is_meant(row)) {
            repeated +=
                usize::from(!seen_keys.insert(key(table, row, varied_columns.iter().copied())));
            let at_key = *setting_places
                .entry(key(table, row, apart.iter().copied()))
                .or_insert_with(|| {
                    list.push(Setting {
                        values: apart
                            .iter()
                            .map(|column| (*column, table.cell(row, *column).value()))
                            .collect(),
                        rows: Vec::new(),
                    });
                    list.len() - 1
                });
            list[at_key].rows.push(at);
        }
        let alike = alike(&list, apart.len());
        Ok(Self { over: averaged, list, repeated, alike })
    }

    /// Some of the settings, as if there were no others.
    pub(crate) fn with(&self, list: Vec<Setting>) -> Self {
        Self { over: self.over.clone(), list, repeated: self.repeated, alike: self.alike.clone() }
    }

    /// The columns in which settings differ.
    pub(crate) fn varied(&self) -> Vec<usize> {
        let Some(first) = self.list.first() else { return Vec::new() };
        (0..first.values.len())
            .filter(|at| {
                self.list.iter().any(|setting| setting.values[*at].1 != first.values[*at].1)
            })
            .map(|at| first.values[at].0)
            .collect()
    }

    /// The values of a setting in some columns, in words.
    pub(crate) fn cells(&self, setting: usize, columns: &[usize]) -> Vec<String> {
        columns
            .iter()
            .map(|column| {
                let value = self.list[setting].values.iter().find(|(known, _)| known == column);
                value.map_or_else(String::new, |(_, value)| self.text(*column, value))
            })
            .collect()
    }

    /// The value of a column in words; texts are quoted where a number reads alike.
    pub(crate) fn text(&self, column: usize, value: &Value) -> String {
        in_words(value, self.alike.contains(&column))
    }

    /// What the trials of a setting say of the metric in a column.
    pub(crate) fn observe(&self, table: &Table, setting: &Setting, metric: usize) -> Observed {
        let mut observed = Observed::default();
        for at in &setting.rows {
            let row = &table.rows[*at];
            if let Some(value) = number(table, row, metric, &mut observed.left) {
                observed.rows.push(*at);
                observed.values.push(value);
                observed.pairs.push(key(table, row, self.over.iter().map(|over| over.column)));
            }
        }
        observed
    }
}

impl Observed {
    /// How many of its trials that ended gave no number: `3/10`; `None` if all did.
    pub(crate) fn failed(&self) -> Option<String> {
        let bad = self.left.bad();
        (bad > 0).then(|| format!("{bad}/{}", bad + self.values.len()))
    }

    /// The part of its trials that ended which gave no number.
    pub(super) fn part_failed(&self) -> f64 {
        let bad = self.left.bad() as f64;
        bad / (bad + self.values.len() as f64).max(1.0)
    }

    /// The numbers of trials that agree in what is averaged over: of each pair, ours and the other's. Where several trials of
    /// a setting agree, their mean counts.
    pub(super) fn paired_with(&self, other: &Self) -> Vec<(f64, f64)> {
        let (own, of_other) = (self.by_pair(), other.by_pair());
        let position: HashMap<&str, f64> = of_other.into_iter().collect();
        own.into_iter().filter_map(|(pair, value)| Some((value, *position.get(pair)?))).collect()
    }

    fn by_pair(&self) -> Vec<(&str, f64)> {
        let mut pair_places: HashMap<&str, usize> = HashMap::new();
        let mut sums: Vec<(&str, f64, usize)> = Vec::new();
        for (pair, value) in self.pairs.iter().zip(&self.values) {
            let pair_place = *pair_places.entry(pair).or_insert_with(|| {
                sums.push((pair, 0.0, 0));
                sums.len() - 1
            });
            sums[pair_place].1 += value;
            sums[pair_place].2 += 1;
        }
        sums.into_iter().map(|(pair, sum, n)| (pair, sum / n as f64)).collect()
    }
}

/// A value in words. A text is quoted where `is_alike` says that another value reads alike, and where a reader would not see
/// all of it.
pub(crate) fn in_words(value: &Value, is_alike: bool) -> String {
    match value {
        Value::String(own) if is_alike || own.is_empty() || own.contains(char::is_control) => {
            words::short(&value.to_string(), usize::MAX)
        }
        _ => text(value),
    }
}

/// Whether different ones among these values have the same text.
pub(crate) fn are_alike<'a>(mut values: impl Iterator<Item = &'a Value>) -> bool {
    let mut first_values: HashMap<String, &Value> = HashMap::new();
    values.any(|value| *first_values.entry(text(value)).or_insert(value) != value)
}

/// The columns of settings in which different values have the same text.
fn alike(list: &[Setting], columns: usize) -> BTreeSet<usize> {
    let is_alike = |at: &usize| are_alike(list.iter().map(|setting| &setting.values[*at].1));
    (0..columns).filter(is_alike).filter_map(|at| Some(list.first()?.values[at].0)).collect()
}

/// The cells of some columns as one text.
pub(super) fn key(table: &Table, row: &Trial, columns: impl Iterator<Item = usize>) -> String {
    let mut key = String::new();
    for column in columns {
        key.push_str(&table.cell(row, column).json());
        key.push('\u{1f}');
    }
    key
}

/// The number of a trial that ended well; any other is counted.
pub(crate) fn number(table: &Table, row: &Trial, metric: usize, left: &mut Left) -> Option<f64> {
    match (table.state(row), table.cell(row, metric).number()) {
        ("done", Some(value)) if value.is_nan() => left.nan += 1,
        ("done", Some(value)) => return Some(value),
        ("done", None) => left.without += 1,
        ("dropped", _) => {}
        ("failed" | "timeout", _) => left.failed += 1,
        ("interrupted" | "cancelled" | "skipped" | "lost" | "doubtful", _) => left.stopped += 1,
        _ => left.open += 1,
    }
    None
}
