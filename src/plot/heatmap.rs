//! The mean of a metric over two axes.

use anyhow::Result;

use super::axis::{Axis, Scale};
use super::boxes::check_words;
use super::groups::{self, Grouped, counted};
use super::{Body, Figure, Wish};
use crate::collect::Goal;

/// A colour for each pair of values of two axes.
///
/// # Errors
/// As [`groups::axes`] and [`Grouped::of`], and when an axis has too many values.
pub(crate) fn heatmap(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    table.metric(wish.metric)?;
    let axes = groups::axes(wish, &["--x", "--y"])?;
    let grouped = Grouped::of(wish, &axes)?;
    let values = [0, 1].map(|i| groups::values(&grouped.settings, axes[i]));
    let labels = [0, 1].map(|i| groups::labels(&grouped.settings, axes[i]));
    for (column, values) in axes.iter().zip(&values) {
        check_words(&table.columns[*column], values.len())?;
    }
    let mut rows = vec![vec![None; values[0].len()]; values[1].len()];
    let mut candidates = rows.clone();
    let settings = grouped.settings.list.iter().zip(&grouped.observed).zip(&grouped.whole);
    for ((setting, observed), is_whole) in settings {
        let place = |i: usize| values[i].iter().position(|v| v == groups::value(setting, axes[i]));
        if let (Some(x), Some(y), false) = (place(0), place(1), observed.values.is_empty()) {
            rows[y][x] = Some(crate::stats::mean(&observed.values));
            candidates[y][x] = rows[y][x].filter(|_| *is_whole);
        }
    }
    let all = || rows.iter().flatten().flatten().copied();
    if wish.log[1] {
        groups::check_log(wish.metric, "--log-y", all())?;
    }
    let counts = grouped.observed.iter().map(|one| one.values.len());
    let mut caption = vec![format!("mean of {}", counted(counts))];
    caption.extend(grouped.caption(table, true));
    let best = wish.goal.and_then(|goal| best(&candidates, goal));
    if let Some((x, y)) = best {
        let words = [(0, x), (1, y)]
            .map(|(i, at)| format!("{}={}", table.columns[axes[i]], labels[i](&values[i][at])));
        caption.push(format!("the best is {} {}", words[0], words[1]));
    }
    if rows.iter().flatten().any(Option::is_none) {
        caption.push("empty cells have no finished trial".to_owned());
    }
    let words = |i: usize| Axis {
        label: groups::of_column(&table.columns[axes[i]]),
        scale: Scale::Words(values[i].iter().map(&labels[i]).collect()),
    };
    let scale = Scale::of(all(), wish.log[1], false);
    let (x, y) = (words(0), words(1));
    let values = Axis { label: groups::of_column(wish.metric), scale };
    Ok(Figure { title: None, x, y, body: Body::Cells { rows, values, best }, caption })
}

/// The place of the best cell.
fn best(rows: &[Vec<Option<f64>>], goal: Goal) -> Option<(usize, usize)> {
    let cells = rows.iter().enumerate().flat_map(|(y, row)| {
        row.iter().enumerate().filter_map(move |(x, value)| Some(((x, y), (*value)?)))
    });
    let best = match goal {
        Goal::Min => cells.min_by(|a, b| a.1.total_cmp(&b.1)),
        Goal::Max => cells.max_by(|a, b| a.1.total_cmp(&b.1)),
    };
    best.map(|(place, _)| place)
}
