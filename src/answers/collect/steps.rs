//! Learning curves as a table: a row a metric line. It is never in memory as a whole: one pass over the records finds
//! the columns, another one the rows.

use std::collections::HashSet;

use anyhow::Result;
use rayon::prelude::*;
use serde_json::Value;

use super::{Cells, Columns, Source, curve, is_part_of};
use crate::base::host::threads;
use crate::sweep::status::Status;

/// The learning curves of sweeps.
pub struct Steps {
    /// The names of the columns: `sweep`, if there are several, trial, task and metrics.
    pub(crate) columns: Vec<String>,
    metrics: Columns,
    sweeps: Vec<Status>,
}

/// Trials whose columns are found at once.
const ABREAST: usize = 1024;

impl Steps {
    /// Finds the columns.
    ///
    /// # Errors
    /// When a tree cannot be read.
    pub fn new(sweeps: Vec<Status>) -> Result<Self> {
        let mut metrics = Columns::default();
        for status in &sweeps {
            for part in status.rows.chunks(ABREAST) {
                let names: Result<Vec<Vec<String>>> = threads::in_parallel(|| {
                    part.par_iter().map(|row| names(status, row.id)).collect()
                });
                for name in names?.iter().flatten() {
                    metrics.place(name);
                }
            }
        }
        let mut columns: Vec<String> = Vec::new();
        columns.extend((sweeps.len() > 1).then(|| "sweep".to_owned()));
        columns.extend(["trial".to_owned(), "task_id".to_owned()]);
        let fixed = columns.clone();
        let shown = |name: &String| {
            if fixed.contains(name) { format!("metric.{name}") } else { name.clone() }
        };
        columns.extend(metrics.names.iter().map(shown));
        Ok(Self { columns, metrics, sweeps })
    }

    /// The first column of the metrics.
    pub(super) fn first_metric(&self) -> usize {
        self.columns.len() - self.metrics.names.len()
    }

    /// The sweeps, and what of them could not be read.
    pub(crate) fn sources(&self) -> Vec<Source> {
        self.sweeps.iter().map(Source::of).collect()
    }

    /// Calls `with` for each row: the cells that it has, by column.
    ///
    /// # Errors
    /// When a tree cannot be read, and what `with` returns.
    pub fn each(&self, mut with: impl FnMut(Cells) -> Result<()>) -> Result<()> {
        let first = self.first_metric();
        for status in &self.sweeps {
            for row in &status.rows {
                let Some(record) = status.records.get(&row.id) else { continue };
                let mut done = Ok(());
                curve::each(&status.tree, record, |line| {
                    if done.is_err() {
                        return;
                    }
                    let mut cells = Cells::default();
                    if first == 3 {
                        cells.push(0, status.identity.name.clone().into());
                    }
                    cells.push(first - 2, row.id.into());
                    cells.push(first - 1, row.task_id.clone().unwrap_or(Value::Null));
                    for (name, value) in line {
                        cells.push(first + self.metrics.index[&name], value);
                    }
                    cells.sort();
                    done = with(cells);
                })?;
                done?;
            }
        }
        Ok(())
    }
}

/// The names that a trial has logged, in order.
fn names(status: &Status, trial: u64) -> Result<Vec<String>> {
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    if let Some(record) = status.records.get(&trial) {
        curve::each(&status.tree, record, |line| {
            for (name, _) in line {
                if is_part_of(&mut seen, &name) {
                    names.push(name);
                }
            }
        })?;
    }
    Ok(names)
}
