//! How a metric of a running trial has gone of late, from its newest metric lines.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::answers::collect::is_gpu_sample;

/// Lines that are kept of each running trial.
pub(super) const NEWEST: usize = 16;

/// Most numbers of a line that are kept.
const MOST_NUMBERS: usize = 8;

/// Names that say where a line stands, and not how the trial does.
const PLACES: [&str; 3] = ["epoch", "step", "rank"];

/// The numbers of the newest lines, the oldest line first.
#[derive(Debug, Clone, Default)]
pub(super) struct Trace(VecDeque<Vec<(String, f64)>>);

/// A metric of a running trial, and its newest values, the oldest first: at least two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) metric: String,
    pub(crate) values: Vec<f64>,
}

impl Trace {
    /// Takes metric lines into account, the oldest first. Lines of other ranks than the first, and those of GPUs, do not count.
    pub(super) fn take(&mut self, rows: &[Map<String, Value>]) {
        for row in rows {
            let rank = row.get("rank").and_then(Value::as_u64).unwrap_or(0);
            let numbers = row
                .iter()
                .filter(|(name, _)| !PLACES.contains(&name.as_str()) && !is_gpu_sample(name))
                .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
            let numbers: Vec<(String, f64)> = numbers.take(MOST_NUMBERS).collect();
            if rank == 0 && !numbers.is_empty() {
                self.0.push_back(numbers);
            }
        }
        self.0.drain(..self.0.len().saturating_sub(NEWEST));
    }

    /// The first metric of the oldest line that has several values.
    pub(super) fn curve(&self) -> Option<Curve> {
        let values = |name: &str| -> Vec<f64> {
            let of = |line: &Vec<(String, f64)>| line.iter().find(|(n, _)| n == name).map(|n| n.1);
            self.0.iter().filter_map(of).collect()
        };
        let names = self.0.iter().flatten().map(|(name, _)| name);
        let mut curves = names.map(|name| Curve { metric: name.clone(), values: values(name) });
        curves.find(|curve| curve.values.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_values_of_the_first_metric_that_has_several_stay() {
        let row = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let mut trace = Trace::default();
        trace.take(&[row(r#"{"parameters": 5, "gpu.0.power_w": 70, "note": "none"}"#)]);
        assert_eq!(trace.curve(), None);
        for epoch in 0..40 {
            let line = format!(r#"{{"epoch": {epoch}, "loss": {}, "acc": 0.5}}"#, 100 - epoch);
            trace.take(&[row(&line), row(r#"{"epoch": 0, "rank": 1, "loss": 7}"#)]);
        }
        let curve = trace.curve().unwrap();
        assert_eq!((curve.metric.as_str(), curve.values.len()), ("loss", NEWEST));
        assert_eq!(curve.values[NEWEST - 1], 61.0);
    }
}
