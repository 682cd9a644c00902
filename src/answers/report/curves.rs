//! Learning curves: of each setting the mean of its repetitions, between their least and greatest values.

use std::collections::HashSet;

use anyhow::Result;
use serde::Serialize;

use super::best::{BEST, Best, Setting};
use super::rounded;
use super::trials::{Metric, drawn};
use crate::answers::collect::{Table, points};
use crate::base::words::thousands;
use crate::sweep::status::Status;

/// Repetitions of a setting that are read; of more, some are drawn.
const REPETITIONS: usize = 20;

/// Points of a curve.
const POINTS: usize = 120;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Curves {
    /// The name of the values.
    metric: String,
    /// What is counted along: `epoch`, `step` or `line`.
    x: &'static str,
    note: Option<String>,
    /// The first of them are the best.
    best: usize,
    settings: Vec<Curve>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Curve {
    label: String,
    trials: usize,
    /// Place, mean, least and greatest value.
    points: Vec<[Option<f64>; 4]>,
}

/// The curves of the best settings and of some others; `None` if no trial has logged the metric more than once.
///
/// # Errors
/// When a record cannot be read.
pub(super) fn thin_out(
    status: &mut Status,
    table: &Table,
    metric: Option<&Metric>,
    best: &Best,
) -> Result<Option<Curves>> {
    let (Some(metric), Some(first)) = (metric, best.drawn.first()) else { return Ok(None) };
    let name = points::name(table, &metric.name);
    let rows = |setting: &Setting| drawn(&setting.rows, REPETITIONS);
    let read = best.drawn.iter().flat_map(rows);
    let trials: HashSet<u64> = read.map(|row| table.rows[row].trial).collect();
    status.complete(&trials)?;
    let along = points::along(status, table.rows[first.rows[0]].trial)?;
    let (mut curves, mut cut) = (Vec::new(), 0);
    for setting in &best.drawn {
        let rows = rows(setting);
        let mut trial_points = rows
            .iter()
            .map(|row| points::of(status, table.rows[*row].trial, along, name))
            .collect::<Result<Vec<_>>>()?;
        cut += usize::from(points::end_together(&mut trial_points) > 0);
        let points = together(trial_points.concat());
        if points.len() > 1 {
            curves.push(Curve { label: setting.label.clone(), trials: rows.len(), points });
        }
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let firsts = best.drawn.len().min(BEST);
    let few = (best.drawn.len() < best.settings).then(|| {
        format!(
            "{} of {} settings: the {firsts} best, and some that were drawn from the others.",
            best.drawn.len(),
            thousands(best.settings as u64),
        )
    });
    let cut = (cut > 0).then(|| {
        "Some trials went on after another one of their setting: a curve ends where the first does."
            .to_owned()
    });
    let notes: Vec<String> = few.into_iter().chain(cut).collect();
    let note = (!notes.is_empty()).then(|| notes.join(" "));
    let best = curves.len().min(firsts);
    Ok(Some(Curves { metric: name.to_owned(), x: along, note, best, settings: curves }))
}

/// Mean, least and greatest value at each place, at most [`POINTS`] of them, the last included.
fn together(mut all: Vec<(f64, f64)>) -> Vec<[Option<f64>; 4]> {
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let parts: Vec<&[(f64, f64)]> = all.chunk_by(|a, b| a.0 == b.0).collect();
    let (last, kept) = (parts.len().saturating_sub(1), parts.len().min(POINTS));
    let kept_places = (0..kept).map(|i| i * last / (kept - 1).max(1));
    kept_places
        .map(|place| {
            let points = parts[place];
            let ys = || points.iter().map(|(_, y)| *y);
            let y_mean = ys().sum::<f64>() / points.len() as f64;
            let (least, greatest) =
                (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
            [points[0].0, y_mean, least, greatest].map(rounded)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_one_curve_with_a_band() {
        let points = together(vec![(1.0, 4.0), (2.0, 2.0), (1.0, 6.0), (2.0, 3.0)]);
        assert_eq!(points, [[1.0, 5.0, 4.0, 6.0], [2.0, 2.5, 2.0, 3.0]].map(|p| p.map(Some)));
        let long: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i), 0.0)).collect();
        let points = together(long);
        assert_eq!(
            (points.len(), points[0][0], points[POINTS - 1][0]),
            (POINTS, Some(0.0), Some(999.0))
        );
    }
}
