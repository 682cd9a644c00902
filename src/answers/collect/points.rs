//! The values of one metric along a trial's learning curve.

use anyhow::Result;

use super::{Table, each_step};
use crate::plan::value::json_float;
use crate::sweep::status::Status;

/// Names of what the lines of a curve are counted along, the best first.
const ALONG: [&str; 2] = ["epoch", "step"];

/// The column of the values themselves: `loss` of `loss.min`.
pub(crate) fn name<'a>(table: &Table, metric: &'a str) -> &'a str {
    let whole = metric.strip_suffix(".min").or_else(|| metric.strip_suffix(".max"));
    whole.filter(|name| table.columns.iter().any(|c| c == name)).unwrap_or(metric)
}

/// Whether a trial of the table has logged a metric more than once.
pub(crate) fn has_curve(table: &Table, name: &str) -> bool {
    let own = name.strip_prefix("metric.").unwrap_or(name);
    let has = |name: &str| table.columns.iter().any(|column| *column == format!("{name}.min"));
    ALONG.contains(&own) || has(name) || has(own)
}

/// What the lines of a trial are counted along: `epoch`, `step`, or `line` if they have neither.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn along(status: &Status, trial: u64) -> Result<&'static str> {
    let mut has = [false; 2];
    each_step(status, trial, |line| {
        for (has, name) in has.iter_mut().zip(ALONG) {
            *has |= line.iter().any(|(other, value)| other == name && value.is_number());
        }
    })?;
    Ok(ALONG.iter().zip(has).find(|(_, has)| *has).map_or("line", |(name, _)| name))
}

/// The points of a trial's curve, of the lowest rank that has logged the metric: place and value, finite, in the order in
/// which they were logged.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn of(
    status: &Status,
    trial: u64,
    along: &str,
    column: &str,
) -> Result<Vec<(f64, f64)>> {
    let metric = column.strip_prefix("metric.").unwrap_or(column);
    let mut points: Vec<(u64, f64, f64)> = Vec::new();
    let mut lines = 0.0;
    each_step(status, trial, |line| {
        let of = |name: &str| {
            let value = line.iter().find(|(other, _)| other == name);
            value.and_then(|(_, value)| json_float(value))
        };
        lines += 1.0;
        let x = if along == "line" { Some(lines) } else { of(along) };
        if let (Some(x), Some(y)) = (x, of(metric).filter(|y| y.is_finite())) {
            points.push((of("rank").unwrap_or(0.0) as u64, x, y));
        }
    })?;
    let lowest = points.iter().map(|(rank, ..)| *rank).min();
    Ok(points
        .into_iter()
        .filter(|(rank, ..)| Some(*rank) == lowest)
        .map(|(_, x, y)| (x, y))
        .collect())
}

/// Ends the curves of trials whose mean is taken where the shortest of them ends: a mean beyond it would be one of fewer trials. Returns how many were
/// longer. Curves of which fewer than two places would be left stay as they are.
pub(crate) fn end_together(curves: &mut [Vec<(f64, f64)>]) -> usize {
    let last = |curve: &Vec<(f64, f64)>| curve.iter().map(|(x, _)| *x).max_by(f64::total_cmp);
    let Some(end) = curves.iter().filter_map(last).min_by(f64::total_cmp) else { return 0 };
    let first = curves.iter().flatten().map(|(x, _)| *x).min_by(f64::total_cmp);
    if first.is_none_or(|first| first >= end) {
        return 0;
    }
    let mut longer = 0;
    for curve in curves {
        let before = curve.len();
        curve.retain(|(x, _)| *x <= end);
        longer += usize::from(curve.len() < before);
    }
    longer
}
