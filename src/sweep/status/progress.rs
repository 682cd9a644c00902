//! How far programs came, by their metrics and checkpoints.

use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::base::host::disk;
use crate::plan::Params;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::Attempt;

/// The names by which programs count, the coarse ones first.
const COUNTERS: [&str; 6] = ["epoch", "step", "global_step", "iteration", "iter", "generation"];

/// How far a program came, by its metrics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    /// The name by which the program counts.
    pub(crate) counter: &'static str,
    /// The first value of an attempt.
    pub(crate) first: f64,
    /// The newest value of the attempt.
    pub(crate) last: f64,
    /// How far it is to come, where a parameter says so.
    pub(crate) target: Option<f64>,
}

impl Progress {
    /// The progress of an attempt.
    ///
    /// # Errors
    /// When its metrics cannot be read.
    pub(crate) fn of(tree: &Tree, attempt: &Attempt, params: &Params) -> Result<Option<Self>> {
        let mut seen = [None::<(f64, f64)>; COUNTERS.len()];
        attempt.each_row(tree, |row: Map<String, Value>| {
            for (name, seen) in COUNTERS.iter().zip(&mut seen) {
                if let Some(value) = row.get(*name).and_then(Value::as_f64) {
                    *seen = Some((seen.map_or(value, |(first, _)| first), value));
                }
            }
        })?;
        let all = COUNTERS.iter().zip(seen).filter_map(|(counter, seen)| {
            let (first, last) = seen?;
            Some(Self { counter, first, last, target: target(counter, params) })
        });
        let all: Vec<Self> = all.collect();
        Ok(all.iter().find(|one| one.target.is_some()).or(all.first()).cloned())
    }

    /// In words: `epoch 7 of 10`.
    pub(crate) fn words(&self) -> String {
        let of = self.target.map(|target| format!(" of {target}")).unwrap_or_default();
        format!("{} {}{of}", self.counter, self.last)
    }

    /// Seconds in which a whole run would have ended, by the pace of one that took so many.
    pub(crate) fn whole(&self, seconds: f64) -> Option<f64> {
        let target = self.target.filter(|target| *target > self.last)?;
        // What counts from 0 has counted one more than its number says.
        let start = if self.first >= 1.0 { self.first - 1.0 } else { self.first };
        let pace = (self.last - start) / seconds;
        (pace > 0.0).then(|| target / pace)
    }
}

/// The parameter that says how far a counter goes.
fn target(counter: &str, params: &Params) -> Option<f64> {
    let names = ["{}s", "max_{}s", "num_{}s", "n_{}s", "total_{}s", "max_{}", "{}s_max"];
    let names = names.map(|name| name.replace("{}", counter));
    let value = |name: &String| {
        let of = |(own, value): (&str, &crate::plan::Value)| {
            (own == name).then(|| value.to_json().as_f64()).flatten()
        };
        params.iter().find_map(of)
    };
    names.iter().find_map(value)
}

/// Whether an attempt came further than the one `before` it, by its metrics; any metrics count where none has a counter.
pub(crate) fn has_come_further(
    attempt: &Attempt,
    now: Option<&Progress>,
    before: Option<&Progress>,
) -> bool {
    match (now, before) {
        (Some(now), Some(before)) => now.last > before.last,
        (Some(_), None) => true,
        (None, _) => !attempt.metrics.is_empty(),
    }
}

/// Whether a trial has written a checkpoint since an attempt began: a file in its folder for checkpoints.
pub(crate) fn has_checkpoint(tree: &Tree, attempt: &Attempt) -> bool {
    let is_new = |path: &Path| {
        let changed = path.metadata().and_then(|data| data.modified()).ok();
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        changed.is_some_and(|time| time.as_secs_f64() >= attempt.start.time.floor())
    };
    let mut folders = vec![tree.checkpoints(attempt.start.trial)];
    while let Some(folder) = folders.pop() {
        for name in disk::list(&folder).unwrap_or_default() {
            let path = folder.join(name);
            match path.is_dir() {
                true if !path.is_symlink() => folders.push(path),
                true => {}
                false if is_new(&path) => return true,
                false => {}
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: Value) -> Params {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_parameter_says_how_far_a_counter_goes() {
        let params = params(serde_json::json!({ "lr": 0.1, "max_steps": 500, "epochs": "ten" }));
        assert_eq!(target("step", &params), Some(500.0));
        assert_eq!(target("epoch", &params), None);
    }
}
