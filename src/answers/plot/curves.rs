//! Learning curves: of each setting the mean of its trials along their steps.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::axis::{Axis, Scale, has_place};
use super::groups::{self, Grouped, counted};
use super::{Band, Body, Figure, Line, Look, Point, Wish};
use crate::answers::analysis::{self, Bounded, Statistic};
use crate::answers::collect::{Table, points};
use crate::base::fault::Fault;
use crate::base::stats;
use crate::base::words::count;
use crate::plan::value::json_float;
use crate::sweep::status::Status;

/// Lines that colours can tell apart.
pub(super) const MOST: usize = 7;

/// The most settings that are drawn in grey, behind those with a colour.
const BEHIND: usize = 40;

/// Trials of which the curve in a table is the mean.
const MOST_TOGETHER: usize = 20;

/// Points of a line: more cannot be seen.
const POINTS: usize = 400;

/// A line for each setting: with a goal the best have colours, and others are behind them.
///
/// # Errors
/// When a record cannot be read, no finished trial has a number for the metric or has logged it more than once, or there are more
/// settings than colours and no goal.
pub(crate) fn curves(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    let grouped = Grouped::by_columns(wish, &[])?;
    let order = order(wish, &grouped);
    let name = points::name(table, wish.metric);
    if !points::has_curve(table, name) {
        return Err(logged_once(name).into());
    }
    if order.len() > MOST && wish.goal.is_none() {
        let settings = count(order.len() as u64, "setting");
        return Err(Fault::request(format!("{settings}, of which {MOST} can have a colour each"))
            .hint("say `--min` or `--max` to have those of the best, or make fewer settings: `--by NAME`")
            .into());
    }
    let first_row = order.first().and_then(|at| grouped.observed[*at].rows.first());
    let along = match first_row.map(|row| &table.rows[*row]) {
        Some(row) => points::along(&wish.sweeps[row.source()], row.trial)?,
        None => "line",
    };
    let (legend, labels) = labels(wish, &grouped, &order);
    let bounds = Bounded::for_metric(table, grouped.metric);
    let (mut lines, mut counts, mut cut) = (Vec::new(), Vec::new(), 0);
    for (rank, (at, label)) in order.iter().zip(labels).enumerate().take(MOST + BEHIND) {
        let rows = &grouped.observed[*at].rows;
        let (all, longer) = together(wish.sweeps, table, rows, along, name)?;
        // A trial may have logged a place twice.
        let n_values: Vec<usize> =
            all.iter().map(|(_, values)| values.len().min(rows.len())).collect();
        if wish.log[1] {
            groups::check_log(
                name,
                "--log-y",
                all.iter().flat_map(|(_, values)| values.iter().copied()),
            )?;
        }
        let points = means(all, |values| wish.band.around(values, wish.log[1], bounds));
        if points.len() > 1 {
            cut += usize::from(longer > 0);
            counts.extend(n_values);
            let look = if rank < MOST { Look::Colour(rank) } else { Look::Behind };
            lines.push(Line { label, points, look });
        }
    }
    if lines.is_empty() {
        return Err(logged_once(name).into());
    }
    let all_points = || lines.iter().flat_map(|line| &line.points);
    let xs = || all_points().map(|point| point.x);
    let ys = || {
        all_points().flat_map(|p| [Some(p.y), p.ends.map(|e| e[0]), p.ends.map(|e| e[1])]).flatten()
    };
    if wish.log[0] {
        groups::check_log(along, "--log-x", xs())?;
    }
    let has_ends = all_points().any(|point| point.ends.is_some());
    let mut caption =
        vec![means_words(&counts, wish.band.words(wish.log[1]).filter(|_| has_ends), wish.log[1])];
    let is_kept = wish.band == Band::Ci && has_ends && !wish.log[1];
    caption.extend(bounds.filter(|_| is_kept).map(|bounds| bounds.words(name)));
    caption.extend(grouped.caption(table, true));
    if cut > 0 {
        let ended = if cut == 1 {
            "ends where its first trial does"
        } else {
            "end where their first trial does"
        };
        caption.push(format!("{} {ended}: others went on", count(cut as u64, "line")));
    }
    if order.len() > lines.len() {
        caption.push(format!("{} of {} settings are shown", lines.len(), order.len()));
    }
    let behind = lines.iter().filter(|line| line.look == Look::Behind).count();
    if behind > 0 {
        caption.push(format!("the {} best settings have colours", lines.len() - behind));
    }
    let scale = match Scale::spanning(xs(), wish.log[0], false) {
        Scale::Linear(from, to) if from < to && xs().all(|x| x.fract() == 0.0) => {
            Scale::Whole(from, to)
        }
        scale => scale,
    };
    let x = Axis { label: along.to_owned(), scale };
    let y =
        Axis { label: groups::of_column(name), scale: Scale::spanning(ys(), wish.log[1], true) };
    Ok(Figure { title: None, x, y, body: Body::Lines { lines, legend }, caption })
}

/// The fault that there is no curve.
fn logged_once(name: &str) -> Fault {
    Fault::request(format!("no finished trial has logged `{name}` more than once")).hint(
        "a learning curve needs a line of metrics for each step: `hpcsweep collect --steps` shows them",
    )
}

/// A place along curves, and the values there.
type Place = (f64, Vec<f64>);

/// The values of a metric of some rows of a table at each place, in the order of places, up to where the first of the trials ends; and
/// how many went on.
///
/// # Errors
/// When a record cannot be read.
fn together(
    sweeps: &[Status],
    table: &Table,
    rows: &[usize],
    along: &str,
    name: &str,
) -> Result<(Vec<Place>, usize)> {
    let mut curves = rows
        .iter()
        .map(|row| {
            let row = &table.rows[*row];
            let mut points = points::of(&sweeps[row.source()], row.trial, along, name)?;
            points.retain(|(x, y)| has_place(*x) && (has_place(*y) || !y.is_finite()));
            Ok(points)
        })
        .collect::<Result<Vec<_>>>()?;
    let longer = points::end_together(&mut curves);
    let mut by_place: BTreeMap<i64, Place> = BTreeMap::new();
    for (x, y) in curves.into_iter().flatten() {
        by_place.entry(ordered(x)).or_insert((x, Vec::new())).1.push(y);
    }
    Ok((by_place.into_values().collect(), longer))
}

/// The rows of these of which [`mean_curve`] reads the records: of many, some that are drawn.
pub(crate) fn of_mean_curve(rows: &[usize]) -> Vec<usize> {
    stats::drawn(rows.len(), MOST_TOGETHER).into_iter().map(|at| rows[at]).collect()
}

/// The means of the learning curves of some rows of a table, of at most so many of them.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn mean_curve(
    sweeps: &[Status],
    table: &Table,
    metric: &str,
    rows: &[usize],
) -> Result<Vec<f64>> {
    let rows = of_mean_curve(rows);
    let Some(first) = rows.first().map(|row| &table.rows[*row]) else { return Ok(Vec::new()) };
    let along = points::along(&sweeps[first.source()], first.trial)?;
    let name = points::name(table, metric);
    let (all, _) = together(sweeps, table, &rows, along, name)?;
    Ok(all.iter().map(|(_, values)| stats::mean(values)).collect())
}

/// `mean of 5 trials; around it one standard deviation`; `band` says what is around.
pub(super) fn means_words(counts: &[usize], band: Option<&str>, is_log: bool) -> String {
    let trials = counted(counts.iter().copied());
    let mean_words = if is_log { "geometric mean" } else { "mean" };
    match band {
        _ if counts.iter().all(|n| *n < 2) => "each value is that of one trial".to_owned(),
        Some(words) => format!("{mean_words} of {trials}; around it {words}"),
        None => format!("{mean_words} of {trials}"),
    }
}

/// A key by which numbers sort as such.
fn ordered(x: f64) -> i64 {
    // Adding zero makes -0 the same place as 0.
    let bits = (x + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The settings with numbers: with a goal the best first if they are more than colours, else in the order of the plan, numbers
/// ascending.
fn order(wish: &Wish, grouped: &Grouped) -> Vec<usize> {
    let settings = &grouped.settings;
    let has_numbers = |at: &usize| !grouped.observed[*at].values.is_empty();
    let mut order: Vec<usize> = (0..settings.list.len()).filter(has_numbers).collect();
    if let Some(goal) = wish.goal.filter(|_| order.len() > MOST) {
        let ranking = analysis::rank(wish.table, settings, grouped.metric, goal, Statistic::Mean);
        return ranking.ranked.iter().map(|one| one.setting).filter(has_numbers).collect();
    }
    if let [column] = settings.varied()[..] {
        let number = |at: &usize| json_float(groups::value(&settings.list[*at], column));
        if order.iter().all(|at| number(at).is_some()) {
            order.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
        }
    }
    order
}

/// What the labels of lines are values of, if it is one column, and the labels.
fn labels(wish: &Wish, grouped: &Grouped, order: &[usize]) -> (Option<String>, Vec<String>) {
    let settings = &grouped.settings;
    let varied = settings.varied();
    let value = |at: &usize, column: usize| groups::value(&settings.list[*at], column);
    match varied[..] {
        [] => (None, order.iter().map(|_| "all trials".to_owned()).collect()),
        [column] => {
            let of_value = groups::labels(settings, column);
            let labels = order.iter().map(|at| of_value(value(at, column)));
            (Some(groups::label(&wish.table.columns[column])), labels.collect())
        }
        _ => {
            let labelled: Vec<_> =
                varied.iter().map(|column| (*column, groups::labels(settings, *column))).collect();
            (
                None,
                order
                    .iter()
                    .map(|at| {
                        let parts: Vec<String> = labelled
                            .iter()
                            .filter(|(column, _)| *value(at, *column) != Value::Null)
                            .map(|(c, of)| {
                                format!("{}={}", wish.table.columns[*c], of(value(at, *c)))
                            })
                            .collect();
                        groups::label(&parts.join(" "))
                    })
                    .collect(),
            )
        }
    }
}

/// Mean and what is around it at each place, at most [`POINTS`] of them, the first and the last included.
fn means(all: Vec<Place>, of: impl Fn(&[f64]) -> (f64, Option<[f64; 2]>)) -> Vec<Point> {
    let last_place = all.len().saturating_sub(1);
    let last_kept = last_place.min(POINTS - 1);
    let place_of = |i: usize| (i * last_place).checked_div(last_kept).unwrap_or(0);
    (0..=last_kept)
        .filter_map(|i| {
            let (x, values) = all.get(place_of(i))?;
            let (y, ends) = of(values);
            Some(Point { x: *x, y, ends })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_by_their_keys() {
        let numbers = [f64::NEG_INFINITY, -2.0, -1e-9, 0.0, 1e-9, 3.0, f64::INFINITY];
        let keys: Vec<i64> = numbers.iter().map(|x| ordered(*x)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(ordered(-0.0), ordered(0.0));
    }

    #[test]
    fn a_long_curve_keeps_its_ends() {
        let all: Vec<(f64, Vec<f64>)> = (0..5000).map(|i| (f64::from(i), vec![1.0, 3.0])).collect();
        let points = means(all, |values| Band::Range.around(values, false, None));
        assert_eq!((points.len(), points[0].x, points[POINTS - 1].x), (POINTS, 0.0, 4999.0));
        assert_eq!(points[7].ends, Some([1.0, 3.0]));
        let one = means(vec![(1.0, vec![2.0])], |values| Band::Sd.around(values, true, None));
        assert_eq!(one, [Point { x: 1.0, y: 2.0, ends: None }]);
    }
}
