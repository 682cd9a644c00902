//! Cost or a metric along an axis of numbers, such as ranks.

use anyhow::Result;
use serde_json::Value;

use super::axis::{Axis, Scale};
use super::curves::{MOST, means_words};
use super::groups::{self, Grouped};
use super::{Body, Figure, Line, Look, Point, Wish};
use crate::answers::analysis;
use crate::base::fault::Fault;
use crate::base::words::{count, figures};
use crate::plan::value::json_float;

/// Most numbers of an axis that are ticks of their own.
const MOST_TICKS: usize = 10;

/// A line for each setting of `--by`, and for times the ideal one: as many times the resources, as much less time.
///
/// # Errors
/// When the axis has other values than numbers above zero, or as [`groups::axes`] and [`Grouped::by_columns`].
pub(crate) fn scaling(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    table.metric(wish.metric)?;
    let axis = groups::axes(wish, &["--x"])?[0];
    let by_columns: Vec<usize> =
        wish.by.iter().map(|name| analysis::column(table, name)).collect::<Result<_>>()?;
    let grouped = Grouped::by_columns(wish, &[&[axis], &by_columns[..]].concat())?;
    let name = &table.columns[axis];
    let number = |value: &Value| json_float(value).filter(|n| value.is_number() && *n > 0.0);
    let settings = &grouped.settings.list;
    for setting in settings {
        let value = groups::value(setting, axis);
        if number(value).is_none() {
            let sentence = format!("`{name}` is {} in a trial, and not a number above 0", value);
            return Err(Fault::request(sentence)
                .hint("scaling is drawn along numbers, such as ranks: `box` takes any axis")
                .into());
        }
    }
    let mut keys: Vec<Vec<Value>> = Vec::new();
    let key = |at: usize| -> Vec<Value> {
        by_columns.iter().map(|column| groups::value(&settings[at], *column).clone()).collect()
    };
    for at in (0..settings.len()).filter(|at| !grouped.observed[*at].values.is_empty()) {
        if !keys.contains(&key(at)) {
            keys.push(key(at));
        }
    }
    if keys.len() > MOST {
        let sentence =
            format!("{}, of which {MOST} can have a colour each", count(keys.len() as u64, "line"));
        return Err(Fault::request(sentence).hint("name fewer parameters: `--by NAME`").into());
    }
    let positive = grouped.observed.iter().flat_map(|one| &one.values).all(|value| *value > 0.0);
    let mut lines = Vec::new();
    let labels: Vec<_> =
        by_columns.iter().map(|column| groups::labels(&grouped.settings, *column)).collect();
    for (colour, own) in keys.iter().enumerate() {
        let mut points: Vec<Point> = Vec::new();
        for at in (0..settings.len()).filter(|at| key(*at) == *own) {
            let values = &grouped.observed[at].values;
            if let Some(x) =
                number(groups::value(&settings[at], axis)).filter(|_| !values.is_empty())
            {
                let (y, ends) = wish.band.around(
                    values,
                    positive,
                    analysis::Bounded::for_metric(table, grouped.metric),
                );
                points.push(Point { x, y, ends });
            }
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let names: Vec<&str> = by_columns.iter().map(|column| &*table.columns[*column]).collect();
        let values: Vec<String> =
            own.iter().zip(&labels).map(|(value, label)| label(value)).collect();
        let label = line_label(&names, &values);
        lines.push(Line { label, points, look: Look::Marked(colour) });
    }
    let is_time = analysis::is_time(wish.metric) && positive;
    let mut caption = Vec::new();
    if is_time {
        let ideal: Vec<Line> = lines.iter().filter_map(ideal).collect();
        caption.extend(efficiency(&lines, name));
        lines.splice(0..0, ideal);
    }
    let measured = || lines.iter().filter(|line| line.look != Look::Ideal);
    let counts: Vec<usize> = grouped.observed.iter().map(|one| one.values.len()).collect();
    let has_ends = measured().flat_map(|line| &line.points).any(|point| point.ends.is_some());
    let band = wish.band.words(positive).filter(|_| has_ends);
    caption.insert(0, means_words(&counts, band, positive));
    caption.extend(grouped.caption(table, true));
    let mut numbers: Vec<f64> = measured().flat_map(|l| l.points.iter().map(|p| p.x)).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut x = Scale::spanning(numbers.iter().copied(), true, true);
    if let Scale::Log(_, _, at) = &mut x {
        *at = if numbers.len() <= MOST_TICKS { numbers } else { Vec::new() };
    }
    let ys = lines.iter().flat_map(|line| &line.points).flat_map(|p| {
        [Some(p.y), p.ends.map(|e| e[0]), p.ends.map(|e| e[1])].into_iter().flatten()
    });
    let y = Scale::spanning(ys.collect::<Vec<_>>().into_iter(), positive, true);
    if !positive {
        caption.push(format!("`{}` has values of 0 and less: its axis is linear", wish.metric));
    }
    let legend = match by_columns[..] {
        [column] if !is_time => Some(groups::label(&table.columns[column])),
        _ => None,
    };
    Ok(Figure {
        title: None,
        x: Axis { label: groups::of_column(name), scale: x },
        y: Axis { label: groups::of_column(wish.metric), scale: y },
        body: Body::Lines { lines, legend },
        caption,
    })
}

/// What a line of these parameters and values is called: `measured`, `4`, or `ranks=4 batch=8`.
fn line_label(names: &[&str], values: &[String]) -> String {
    match values {
        [] => "measured".to_owned(),
        [one] => one.clone(),
        all => {
            let parts: Vec<String> =
                names.iter().zip(all).map(|(name, value)| format!("{name}={value}")).collect();
            groups::label(&parts.join(" "))
        }
    }
}

/// What a line would be if as many times the resources took as much less time, from its first point on.
fn ideal(line: &Line) -> Option<Line> {
    let [first, .., last] = &line.points[..] else { return None };
    let end = Point { x: last.x, y: first.y * first.x / last.x, ends: None };
    let points = vec![Point { ends: None, ..*first }, end];
    Some(Line { label: "ideal".to_owned(), points, look: Look::Ideal })
}

/// How much of the ideal speed-up the largest trials of each line have.
fn efficiency(lines: &[Line], axis: &str) -> Vec<String> {
    lines
        .iter()
        .filter_map(|line| {
            let (first, last) = (line.points.first()?, line.points.last()?);
            let efficiency = first.y * first.x / (last.y * last.x);
            (first.x < last.x).then(|| {
                let whose =
                    if lines.len() > 1 { format!("{}: ", line.label) } else { String::new() };
                let (from, to) = (figures(first.x, 6), figures(last.x, 6));
                format!("{whose}efficiency from {axis} {from} to {to}: {:.0} %", efficiency * 100.0)
            })
        })
        .collect()
}
