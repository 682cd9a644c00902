//! Metric lines of all ranks that belong together, reduced to one.

use serde_json::{Map, Value};

use crate::plan::value::{float_json, json_float};
use crate::plan::{Metrics, Reduction};

/// Makes one line out of the lines of the ranks, in rank order. Each name is reduced over the ranks that have
/// it, as the plan says. Values that are equal on all ranks are kept unchanged. Of texts that differ, that of
/// the lowest rank is kept. Numbers are computed in 64 bit in rank order.
pub fn reduce(rows: &[Map<String, Value>], metrics: &Metrics) -> Map<String, Value> {
    let mut reduced = Map::new();
    for name in rows.iter().flat_map(|row| row.keys()) {
        if reduced.contains_key(name) {
            continue;
        }
        let having: Vec<&Map<String, Value>> =
            rows.iter().filter(|row| row.contains_key(name)).collect();
        reduced.insert(name.clone(), one(name, &having, metrics));
    }
    reduced
}

fn one(name: &str, rows: &[&Map<String, Value>], metrics: &Metrics) -> Value {
    let how = metrics.how(name);
    let values: Vec<&Value> = rows.iter().map(|row| &row[name]).collect();
    let same = values.iter().all(|value| *value == values[0]);
    let numbers: Option<Vec<f64>> = values.iter().map(|value| number(value)).collect();
    let Some(numbers) = numbers else { return values[0].clone() };
    if same && !matches!(how, Reduction::Sum | Reduction::Variance) {
        return values[0].clone();
    }
    let weight = |row: &&Map<String, Value>| match &metrics.weight {
        // The weight itself is not weighed.
        Some(weight) if weight != name => row.get(weight).and_then(number).unwrap_or(1.0),
        _ => 1.0,
    };
    let weights: Vec<f64> = rows.iter().map(weight).collect();
    let whole: Option<Vec<i64>> = values.iter().map(|value| value.as_i64()).collect();
    if let (Some(whole), Reduction::Sum | Reduction::Min | Reduction::Max) = (whole, how) {
        let all = match how {
            Reduction::Sum => whole.iter().try_fold(0i64, |sum, n| sum.checked_add(*n)),
            Reduction::Min => whole.iter().min().copied(),
            _ => whole.iter().max().copied(),
        };
        if let Some(all) = all {
            return all.into();
        }
    }
    float_json(match how {
        Reduction::Sum => numbers.iter().sum(),
        Reduction::Min => numbers.iter().copied().fold(f64::INFINITY, smaller),
        Reduction::Max => -numbers.iter().map(|x| -x).fold(f64::INFINITY, smaller),
        Reduction::Mean => mean(&numbers, &weights),
        Reduction::Variance => {
            let center = mean(&numbers, &weights);
            let squares: Vec<f64> = numbers.iter().map(|x| (x - center).powi(2)).collect();
            mean(&squares, &weights)
        }
    })
}

/// The smaller one; no number wins over any.
fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn mean(numbers: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 =
        numbers.iter().zip(weights).filter(|(_, w)| **w != 0.0).map(|(x, w)| x * w).sum();
    sum / weights.iter().sum::<f64>()
}

/// A value as a number.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(is) => Some(f64::from(u8::from(*is))),
        other => json_float(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(rows: &[Value]) -> Vec<Map<String, Value>> {
        rows.iter().map(|row| row.as_object().unwrap().clone()).collect()
    }

    #[test]
    fn each_name_is_reduced_as_the_plan_says() {
        let metrics = Metrics {
            mpi: true,
            reduce: vec![
                ("n".into(), Reduction::Sum),
                ("worst".into(), Reduction::Max),
                ("best".into(), Reduction::Min),
                ("spread".into(), Reduction::Variance),
            ],
            weight: Some("n".into()),
            ..Metrics::default()
        };
        let of = rows(&[
            json!({"epoch": 3, "n": 1, "loss": 1.0, "worst": 5, "best": 0.5, "spread": 1.0, "host": "a"}),
            json!({"epoch": 3, "n": 3, "loss": 2.0, "worst": 4, "best": 0.25, "spread": 3.0, "host": "b", "only": 7}),
        ]);
        assert_eq!(
            Value::Object(reduce(&of, &metrics)),
            json!({"epoch": 3, "n": 4, "loss": 1.75, "worst": 5, "best": 0.25, "spread": 0.75, "host": "a", "only": 7})
        );
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let of = rows(&[json!({"loss": "nan", "a": 1}), json!({"loss": 2.0, "a": 2})]);
        let plain = Metrics { mpi: true, ..Metrics::default() };
        assert_eq!(Value::Object(reduce(&of, &plain)), json!({"loss": "nan", "a": 1.5}));
        let worst = Metrics {
            reduce: vec![("loss".into(), Reduction::Max)],
            mpi: true,
            ..Metrics::default()
        };
        assert_eq!(reduce(&of, &worst)["loss"], json!("nan"));
    }
}
