//! The best trial so far: of the metric that the user names, or of the one that a report would assume.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::answers::collect::{Goal, assumed, is_gpu_sample};
use crate::plan::value::json_float;

/// The parameters of a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Parameters {
    /// Their names, with values as text.
    pub(crate) all: Vec<(String, String)>,
    /// Names of those in which the first and the last trial of the sweep differ, as along each axis of a grid.
    pub(crate) varied: Vec<String>,
}

/// The best of the trials that are done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Best {
    /// The name of the metric.
    pub(crate) metric: String,
    /// Whether the greatest is best, and not the least.
    pub(crate) max: bool,
    /// Whether nobody has named the metric.
    pub(crate) assumed: bool,
    pub(crate) trial: u64,
    /// Its number, with seven digits.
    pub(crate) value: f32,
    /// Those of the trial; empty until they have been read.
    pub(crate) parameters: Parameters,
}

/// The numbers that a trial that runs has logged: of each name the last one, the least and the greatest.
pub(super) type Logged = HashMap<String, [f64; 3]>;

/// The metric by which trials are compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Choice {
    metric: Option<(String, bool)>,
    assumed: bool,
}

impl Choice {
    /// The metric that is named, if one is.
    pub(super) fn new(wish: Option<&(String, Goal)>) -> Self {
        let metric = wish.map(|(name, goal)| (name.clone(), *goal == Goal::Max));
        Self { metric, assumed: false }
    }

    /// Takes metric lines of a trial into account, the oldest first.
    pub(super) fn take(&self, logged: &mut Logged, rows: &[Map<String, Value>]) {
        rows.iter().for_each(|row| {
            // The numbers of other ranks are not those of the trial.
            if row.get("rank").and_then(Value::as_f64).is_none_or(|rank| rank == 0.0) {
                row.iter().for_each(|(name, value)| self.add(logged, name, value));
            }
        });
    }

    fn add(&self, logged: &mut Logged, name: &str, value: &Value) {
        if let Value::Object(inner) = value {
            inner.iter().for_each(|(key, value)| self.add(logged, &format!("{name}.{key}"), value));
            return;
        }
        if is_gpu_sample(name)
            || self.metric.as_ref().is_some_and(|(own, _)| base(own) != name && own != name)
        {
            return;
        }
        let Some(number) = json_float(value) else { return };
        let [last, least, greatest] = logged.entry(name.to_owned()).or_insert([number; 3]);
        (*last, *least, *greatest) = (number, least.min(number), greatest.max(number));
    }

    /// The number of a trial that is done, by what it has logged and its result; NaN if it has none. The first such trial with a
    /// number decides which metric is assumed.
    pub(super) fn value(&mut self, mut logged: Logged, result: Option<&Value>) -> f32 {
        match result {
            Some(Value::Object(members)) => {
                members.iter().for_each(|(name, value)| self.add(&mut logged, name, value));
            }
            Some(value) => self.add(&mut logged, "result", value),
            None => {}
        }
        if self.metric.is_none() {
            let mut names: Vec<&str> = logged.keys().map(String::as_str).collect();
            names.sort_unstable();
            self.metric = assumed(&names).map(|(name, max)| (name.to_owned(), max));
            self.assumed = self.metric.is_some();
        }
        let Some((name, _)) = &self.metric else { return f32::NAN };
        let ends = || {
            let [_, least, greatest] = logged.get(base(name))?;
            Some(if name.ends_with(".min") { *least } else { *greatest })
        };
        let number = logged.get(name).map(|[last, ..]| *last);
        number.or_else(|| (base(name) != name).then(ends).flatten()).map_or(f32::NAN, |n| n as f32)
    }

    /// The best of trials with their numbers; of equal ones the first.
    pub(super) fn best(&self, all: impl Iterator<Item = (u64, f32)>) -> Option<Best> {
        let (metric, max) = self.metric.clone()?;
        let better = |a: f32, b: f32| if max { a > b } else { a < b };
        let numbers = all.filter(|(_, value)| !value.is_nan());
        let (trial, value) = numbers.reduce(|a, b| if better(b.1, a.1) { b } else { a })?;
        let (assumed, parameters) = (self.assumed, Parameters::default());
        Some(Best { metric, max, assumed, trial, value, parameters })
    }
}

/// The name without `.min` or `.max`, which mean the least and the greatest of all steps.
fn base(name: &str) -> &str {
    name.strip_suffix(".min").or_else(|| name.strip_suffix(".max")).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The best of trials with these metric lines and results.
    fn best(
        wish: Option<(&str, Goal)>,
        trials: &[(&[Value], Option<Value>)],
    ) -> Option<(String, bool, u64, f32)> {
        let mut choice = Choice::new(wish.map(|(name, goal)| (name.to_owned(), goal)).as_ref());
        let mut values = Vec::new();
        for (rows, result) in trials {
            let rows: Vec<Map<String, Value>> =
                rows.iter().map(|row| row.as_object().unwrap().clone()).collect();
            let mut logged = Logged::new();
            choice.take(&mut logged, &rows);
            values.push(choice.value(logged, result.as_ref()));
        }
        let found = choice.best((0..).zip(values))?;
        assert_eq!(found.assumed, wish.is_none());
        Some((found.metric, found.max, found.trial, found.value))
    }

    #[test]
    fn the_best_trial_is_that_of_the_last_numbers_unless_the_name_says_otherwise() {
        let at = |loss: f64| json!({"epoch": 1, "loss": loss, "gpu.0.power_w": 1});
        let a: &[Value] = &[at(1.0), at(5.0), json!({"rank": 1, "loss": 0.1})];
        let b: &[Value] = &[at(4.0), at(3.0)];
        let trials = [(a, None), (b, Some(json!({"test": {"accuracy": 0.5}}))), (&[][..], None)];
        let name = |name: &str| name.to_owned();
        assert_eq!(best(None, &trials), Some((name("loss"), false, 1, 3.0)));
        assert_eq!(best(Some(("loss", Goal::Max)), &trials), Some((name("loss"), true, 0, 5.0)));
        assert_eq!(
            best(Some(("loss.min", Goal::Min)), &trials),
            Some((name("loss.min"), false, 0, 1.0))
        );
        assert_eq!(
            best(Some(("test.accuracy", Goal::Max)), &trials),
            Some((name("test.accuracy"), true, 1, 0.5))
        );
        assert_eq!(best(Some(("los", Goal::Min)), &trials), None);
        assert_eq!(best(None, &[]), None);
        // A result counts, not what was logged before; NaN is no number.
        let own = [(a, Some(json!({"loss": 2}))), (b, Some(json!({"loss": "NaN"})))];
        assert_eq!(best(None, &own), Some((name("loss"), false, 0, 2.0)));
        assert_eq!(best(None, &[(&[][..], Some(json!(7)))]), Some((name("result"), false, 0, 7.0)));
    }
}
