//! GPUs that running trials have and do not use, from the newest samples in their records.

use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Status;
use crate::base::host::threads;
use crate::sweep::standing::State;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::{Attempt, Record};
use crate::sweep::tree::table;

/// A GPU that has done nothing for this long is reported, seconds.
const LONG: f64 = 600.0;

/// How many of the newest events are looked through: a program may log between two samples.
const NEWEST: usize = 32;

/// A GPU of a running trial that has done nothing for long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IdleGpu {
    pub(crate) trial: u64,
    /// Its place among the trial's GPUs.
    pub(crate) gpu: u32,
    /// How long it has done nothing, seconds, up to its newest sample.
    pub(crate) idle_s: f64,
}

impl Status {
    /// The GPUs that running trials have not used for ten minutes. Only the records of trials that run are read.
    pub(crate) fn idle_gpus(&self) -> Vec<IdleGpu> {
        let runs = |id: u64| -> Option<(u64, &Attempt)> {
            let last = self.records.get(&id).and_then(Record::decisive)?;
            (last.end.is_none() && !last.metrics.is_empty()).then_some((id, last))
        };
        let running = self.trials().filter(|(_, standing)| standing.state == State::Running);
        let running: Vec<(u64, &Attempt)> = running.filter_map(|(row, _)| runs(row.id)).collect();
        if running.is_empty() || !self.asks_for_gpus() {
            return Vec::new();
        }
        let of = |(trial, attempt): &(u64, &Attempt)| idle(&self.tree, *trial, attempt);
        threads::in_parallel(|| running.par_iter().flat_map_iter(of).collect())
    }

    /// Whether a trial of the sweep may have GPUs.
    fn asks_for_gpus(&self) -> bool {
        let by_table = table::heads(&self.tree).map_or(true, |heads| {
            heads.iter().any(|head| {
                head.resources.total_gpus() > 0 || !head.resources.directives.is_empty()
            })
        });
        let by_itself = |row: &table::Row| {
            // Of a row of which only the order was read, nobody knows.
            row.is_bare()
                || row.gpu_ids_abs.is_some()
                || row.resources.as_ref().is_some_and(|own| own.total_gpus() > 0)
        };
        by_table || self.rows.iter().any(by_itself)
    }
}

/// Those of one trial. A record that cannot be read says nothing.
fn idle(tree: &Tree, trial: u64, attempt: &Attempt) -> Vec<IdleGpu> {
    let mut rows = Vec::new();
    let _ = attempt.each_new_row(tree, NEWEST, |row| rows.push(row));
    let all = newest(&rows).into_iter().filter(|(_, idle_s)| *idle_s >= LONG);
    all.map(|(gpu, idle_s)| IdleGpu { trial, gpu, idle_s }).collect()
}

/// How long each GPU has been idle by its newest sample; one whose newest sample does not say so is not.
fn newest(rows: &[Map<String, Value>]) -> std::collections::BTreeMap<u32, f64> {
    let mut all = std::collections::BTreeMap::new();
    for row in rows {
        for name in row.keys() {
            let Some(number) =
                name.strip_prefix("gpu.").and_then(|rest| rest.strip_suffix(".utilization"))
            else {
                continue;
            };
            if let Ok(number) = number.parse::<u32>() {
                let idle = row.get(&format!("gpu.{number}.idle_s")).and_then(Value::as_f64);
                all.insert(number, idle.unwrap_or(0.0));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sample_decides() {
        let row = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let rows = [
            row(
                r#"{"gpu.0.utilization": 0, "gpu.0.idle_s": 900, "gpu.1.utilization": 0, "gpu.1.idle_s": 700}"#,
            ),
            row(r#"{"gpu.0.utilization": 5}"#),
            row(r#"{"loss": 1, "gpu.x.utilization": 3}"#),
        ];
        assert_eq!(newest(&rows), std::collections::BTreeMap::from([(0, 0.0), (1, 700.0)]));
        assert_eq!(newest(&[]), std::collections::BTreeMap::new());
    }
}
