//! Statistics of learning curves, as columns: the area under a curve, the mean of its last tenth, where it is least, and the
//! first step at which it reaches a value.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::base::fault::Fault;
use crate::base::words;
use crate::plan::value::float_json;

/// A statistic of a curve.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Statistic {
    /// The integral over the steps, by the trapezoidal rule.
    Area,
    /// The mean of the last tenth of the points, at least of one.
    Tail,
    /// The first step with the least value.
    Argmin,
    /// The first step with the greatest value.
    Argmax,
    /// The first step at which a metric reaches a value.
    Reached(Reached),
}

/// A value that a metric is to reach.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reached {
    /// As the user has written it, without spaces: `loss<=0.1`.
    name: String,
    metric: String,
    comparison: Comparison,
    value: f64,
}

/// How a curve compares with a value that it is to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Longer words first: `<=` begins with `<`.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::Less => a < b,
            Self::AtMost => a <= b,
            Self::Greater => a > b,
            Self::AtLeast => a >= b,
        }
    }
}

/// The words of [`Statistic`] that are about every metric, with what each means.
const WORDS: [(&str, Statistic, &str); 4] = [
    ("area", Statistic::Area, "integral of `{}` over the steps"),
    ("tail", Statistic::Tail, "mean of `{}` over the last tenth of its values"),
    ("argmin", Statistic::Argmin, "first step with the least value of `{}`"),
    ("argmax", Statistic::Argmax, "first step with the greatest value of `{}`"),
];

impl FromStr for Statistic {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Self, Fault> {
        if let Some((_, statistic, _)) = WORDS.iter().find(|(known, ..)| *known == word) {
            return Ok(statistic.clone());
        }
        let parts = COMPARISONS.iter().find_map(|(sign, comparison)| {
            let (metric, value) = word.split_once(sign)?;
            Some((metric.trim(), *comparison, value.trim()))
        });
        let Some((metric, comparison, value)) = parts else {
            let sentence = format!("there is no statistic of curves called `{word}`");
            let known = "there are `area`, `tail`, `argmin`, `argmax`, and steps to reach a value, as `loss<=0.1`";
            return Err(Fault::request(sentence).hint(known));
        };
        match value.parse::<f64>() {
            Ok(value) if !metric.is_empty() && !value.is_nan() => {
                let (name, metric) = (word.replace(' ', ""), metric.to_owned());
                Ok(Self::Reached(Reached { name, metric, comparison, value }))
            }
            _ => Err(Fault::request(format!("`{word}` compares no metric with a number"))
                .hint("write the metric, `<`, `<=`, `>` or `>=`, and a number: `loss<=0.1`")),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Reached(reached) = self {
            return f.write_str(&reached.name);
        }
        let word = WORDS.iter().find(|(_, known, _)| known == self);
        f.write_str(word.map_or("", |(word, ..)| word))
    }
}

/// Whether trials have logged the metrics that are to reach a value, where they have logged any: `metrics` are the columns of
/// those, with their statistics.
///
/// # Errors
/// When one has not been logged; the hint has the nearest.
pub(super) fn check(wanted: &[Statistic], metrics: &[String]) -> Result<(), Fault> {
    let reached = wanted.iter().filter_map(|statistic| match statistic {
        Statistic::Reached(reached) => Some(reached),
        _ => None,
    });
    let Some(missing) = reached.into_iter().find(|reached| !metrics.contains(&reached.name)) else {
        return Ok(());
    };
    let is_statistic = |name: &str| {
        let is_end = |end: &str| ["min", "max"].contains(&end) || end.parse::<Statistic>().is_ok();
        name.parse::<Statistic>().is_ok()
            || name
                .rsplit_once('.')
                .is_some_and(|(of, end)| is_end(end) && metrics.iter().any(|known| known == of))
    };
    let known: Vec<&str> =
        metrics.iter().map(String::as_str).filter(|name| !is_statistic(name)).collect();
    if known.is_empty() {
        return Ok(());
    }
    let Reached { name, metric, .. } = missing;
    if known.contains(&metric.as_str()) {
        let sentence = format!("`--curve '{name}'`: no trial has logged `{metric}` as a number");
        return Err(Fault::request(sentence).hint("a curve is what `$HPCSWEEP_METRICS` has of it"));
    }
    let fault = Fault::request(format!("`--curve '{name}'`: no trial has logged `{metric}`"));
    Err(fault.hint(words::suggestion(metric, &known, "there are")))
}

/// What a column of a statistic means, by its name, and by whether a metric is known.
pub(super) fn meaning(column: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    if let Some((metric, word)) = column.rsplit_once('.')
        && let Some((_, _, meaning)) = WORDS.iter().find(|(known, ..)| *known == word)
    {
        return is_known(metric).then(|| meaning.replace("{}", metric));
    }
    match column.parse::<Statistic>() {
        Ok(Statistic::Reached(reached)) if is_known(&reached.metric) => {
            Some(format!("first step at which `{column}`"))
        }
        _ => None,
    }
}

/// A value of a curve, with what its line says about its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// The number `epoch` of its metric line, if it has one.
    pub(super) epoch: Option<f64>,
    /// The number `step` of its metric line, if it has one.
    pub(super) step: Option<f64>,
    /// The metric's value; may be infinite or NaN.
    pub(super) value: f64,
}

/// The columns of the statistics of a metric's curve, with their values. `points` are in the order in which they were logged.
pub(super) fn columns(
    wanted: &[Statistic],
    metric: &str,
    points: &[Point],
) -> Vec<(String, Value)> {
    let curve = placed(points);
    let argument = |is_better: fn(f64, f64) -> bool| {
        let mut best: Option<(f64, f64)> = None;
        for (x, y) in curve.iter().filter(|(_, y)| !y.is_nan()) {
            if best.is_none_or(|(_, other)| is_better(*y, other)) {
                best = Some((*x, *y));
            }
        }
        best.map(|(x, _)| x)
    };
    let column = |statistic: &Statistic| {
        let (name, value) = match statistic {
            Statistic::Area => (format!("{metric}.area"), area(&curve)),
            Statistic::Tail => (format!("{metric}.tail"), tail(&curve)),
            Statistic::Argmin => (format!("{metric}.argmin"), argument(|a, b| a < b)),
            Statistic::Argmax => (format!("{metric}.argmax"), argument(|a, b| a > b)),
            Statistic::Reached(reached) if reached.metric != metric => return None,
            Statistic::Reached(Reached { name, comparison, value, .. }) => {
                let first = curve.iter().find(|(_, y)| comparison.holds(*y, *value));
                (name.clone(), first.map(|(x, _)| *x))
            }
        };
        let is_place = !matches!(statistic, Statistic::Area | Statistic::Tail);
        Some((name, value.map_or(Value::Null, |value| number(value, is_place))))
    };
    wanted.iter().filter_map(column).collect()
}

/// Steps are whole numbers, where they are.
fn number(value: f64, is_place: bool) -> Value {
    if is_place && value == value.trunc() && value.abs() < 2f64.powi(53) {
        return (value as i64).into();
    }
    float_json(value)
}

/// The points in order: by step; by epoch, where only that is known; else by number, from 1, as where steps begin again in
/// each epoch.
fn placed(points: &[Point]) -> Vec<(f64, f64)> {
    let mut points = points.to_vec();
    let has_steps = points.iter().all(|point| point.step.is_some());
    let has_epochs = points.iter().all(|point| point.epoch.is_some());
    let order = |point: &Point| {
        [point.epoch.filter(|_| has_epochs), point.step.filter(|_| has_steps)]
            .map(|place| place.unwrap_or(0.0))
    };
    points.sort_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]))
    });
    let ascends = points.windows(2).all(|pair| pair[0].step <= pair[1].step);
    let place = |(number, point): (usize, &Point)| {
        let x = match (has_steps && ascends, has_epochs && !has_steps) {
            (true, _) => point.step,
            (_, true) => point.epoch,
            _ => None,
        };
        (x.unwrap_or(number as f64 + 1.0), point.value)
    };
    points.iter().enumerate().map(place).collect()
}

/// `None` for fewer than two points.
fn area(curve: &[(f64, f64)]) -> Option<f64> {
    let trapezoid = |pair: &[(f64, f64)]| {
        let ((a, from), (b, to)) = (pair[0], pair[1]);
        // Values at the same place, as of two attempts, have no width; infinity times 0 is not a number.
        if a == b { 0.0 } else { (b - a) * (from + to) / 2.0 }
    };
    (curve.len() > 1).then(|| curve.windows(2).map(trapezoid).sum())
}

/// `None` for no points.
fn tail(curve: &[(f64, f64)]) -> Option<f64> {
    let last = &curve[curve.len() - curve.len().div_ceil(10)..];
    let sum: f64 = last.iter().map(|(_, y)| y).sum();
    (!last.is_empty()).then(|| sum / last.len() as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(words: &[&str], points: &[Point], expected: Value) {
        let wanted: Vec<Statistic> = words.iter().map(|word| word.parse().unwrap()).collect();
        let found = columns(&wanted, "loss", points).into_iter().collect();
        assert_eq!(Value::Object(found), expected);
    }

    fn at(epoch: Option<f64>, step: Option<f64>, value: f64) -> Point {
        Point { epoch, step, value }
    }

    const ALL: [&str; 6] = ["area", "tail", "argmin", "argmax", "loss<=1.5", "acc>1"];

    #[test]
    fn a_curve_is_along_its_steps() {
        let curve: Vec<Point> = [(0.0, 4.0), (10.0, 2.0), (30.0, 1.0), (40.0, 1.0)]
            .map(|(step, value)| at(None, Some(step), value))
            .to_vec();
        // 30 + 30 + 10, by hand.
        let expected = json!({
            "loss.area": 70.0, "loss.tail": 1.0, "loss.argmin": 30, "loss.argmax": 0, "loss<=1.5": 30
        });
        check(&ALL, &curve, expected.clone());
        // In whatever order attempts have logged it.
        check(&ALL, &[curve[2], curve[0], curve[3], curve[1]], expected);
    }

    #[test]
    fn steps_that_begin_again_in_each_epoch_are_counted() {
        let of = |epoch, step, value| at(Some(epoch), Some(step), value);
        let curve = [of(0.0, 0.0, 3.0), of(0.0, 1.0, 2.0), of(1.0, 0.0, 1.0), of(1.0, 1.0, 0.5)];
        let expected = json!({
            "loss.area": 4.75, "loss.tail": 0.5, "loss.argmin": 4, "loss.argmax": 1, "loss<=1.5": 3
        });
        check(&ALL, &curve, expected);
        let epochs = [at(Some(2.0), None, 1.0), at(Some(5.0), None, 3.0)];
        check(&["area", "argmax"], &epochs, json!({"loss.area": 6.0, "loss.argmax": 5}));
        let lines = [at(None, None, 1.0), at(None, None, 3.0)];
        check(&["area", "loss>2"], &lines, json!({"loss.area": 2.0, "loss>2": 2}));
    }

    #[test]
    fn what_is_not_a_number_is_in_sums_and_never_the_least() {
        let curve = [(1.0, f64::NAN), (2.0, 7.0), (3.0, f64::NAN)]
            .map(|(step, value)| at(None, Some(step), value));
        let expected = json!({
            "loss.area": "nan", "loss.tail": "nan", "loss.argmin": 2, "loss.argmax": 2, "loss<=1.5": null
        });
        check(&ALL, &curve, expected);
        check(&["area", "tail"], &curve[1..2], json!({"loss.area": null, "loss.tail": 7.0}));
    }

    #[test]
    fn statistics_are_read_as_they_are_written() {
        for word in ["area", "tail", "argmin", "argmax", "loss<=0.1", "a.b>=-2", "x<inf"] {
            assert_eq!(word.parse::<Statistic>().unwrap().to_string(), word);
        }
        for (word, sentence) in [
            ("mean", "there is no statistic of curves called `mean`"),
            ("<=1", "`<=1` compares no metric with a number"),
            ("loss<x", "`loss<x` compares no metric with a number"),
        ] {
            assert_eq!(word.parse::<Statistic>().unwrap_err().sentence, sentence);
        }
    }
}
