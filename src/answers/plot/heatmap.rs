//! The mean of a metric over two axes.

use anyhow::Result;

use super::axis::{Axis, Scale, minus};
use super::boxes::{MOST_WORDS, check_words};
use super::groups::{self, Grouped, counted};
use super::{Body, Figure, Wish};
use crate::answers::analysis;
use crate::answers::collect::{Goal, Table};
use crate::base::stats;
use crate::base::words::thousands;

/// Ranges of an axis with more numbers than can be told apart.
const RANGES: usize = 10;

/// A colour for each pair of values of two axes, or of ranges of them.
///
/// # Errors
/// As [`groups::axes`] and [`Grouped::by_columns`], and when an axis has too many values that are no numbers.
pub(crate) fn heatmap(wish: &Wish) -> Result<Figure> {
    let table = wish.table;
    table.metric(wish.metric)?;
    let axes = groups::axes(wish, &["--x", "--y"])?;
    let grouped = Grouped::by_columns(wish, &axes)?;
    let exact = [0, 1].map(|i| Along::exact(&grouped, axes[i]));
    // A grid has trials in most cells; random numbers have a row and a column for each.
    let is_scattered = grouped.observed.len() * 2 < exact[0].words.len() * exact[1].words.len();
    let [x, y] = exact;
    let along = [
        x.divided(table, &grouped, axes[0], is_scattered)?,
        y.divided(table, &grouped, axes[1], is_scattered)?,
    ];
    let mut cells = vec![vec![Cell::default(); along[0].words.len()]; along[1].words.len()];
    for (at, (observed, is_whole)) in grouped.observed.iter().zip(&grouped.whole).enumerate() {
        let cell = &mut cells[along[1].places[at]][along[0].places[at]];
        cell.values.extend(&observed.values);
        cell.lacks_some |= !is_whole;
    }
    let means = |of: fn(&Cell) -> Option<f64>| -> Vec<Vec<Option<f64>>> {
        cells.iter().map(|row| row.iter().map(of).collect()).collect()
    };
    let rows = means(Cell::mean);
    let all_values = || rows.iter().flatten().flatten().copied();
    if wish.log[1] {
        groups::check_log(wish.metric, "--log-y", all_values())?;
    }
    let counts = cells.iter().flatten().map(|cell| cell.values.len());
    let mut caption = vec![format!("mean of {}", counted(counts))];
    caption.extend(along.iter().filter_map(|along| along.note.clone()));
    caption.extend(grouped.caption(table, true));
    let complete_means = means(|cell| cell.mean().filter(|_| !cell.lacks_some));
    let best = wish.goal.and_then(|goal| best(&complete_means, goal));
    if let Some((x, y)) = best {
        let words = [(0, x), (1, y)]
            .map(|(i, at)| format!("{}={}", table.columns[axes[i]], along[i].words[at]));
        caption.push(format!("the best is {} {}", words[0], words[1]));
    }
    if rows.iter().flatten().any(Option::is_none) {
        caption.push("empty cells have no finished trial".to_owned());
    }
    let scale = Scale::spanning(all_values(), wish.log[1], false);
    let values = Axis { label: groups::of_column(wish.metric), scale };
    let words = |i: usize| Axis {
        label: groups::of_column(&table.columns[axes[i]]),
        scale: Scale::Words(along[i].words.clone()),
    };
    let (x, y) = (words(0), words(1));
    Ok(Figure { title: None, x, y, body: Body::Cells { rows, values, best }, caption })
}

/// The numbers of a cell.
#[derive(Debug, Clone, Default)]
struct Cell {
    values: Vec<f64>,
    /// Whether some of its trials failed or cannot be drawn: it is not the best.
    lacks_some: bool,
}

impl Cell {
    fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| stats::mean(&self.values))
    }
}

/// The places along an axis.
struct Along {
    words: Vec<String>,
    /// The place of each setting.
    places: Vec<usize>,
    /// Which ranges they are, if they are that.
    note: Option<String>,
}

impl Along {
    /// Each value has a place.
    fn exact(grouped: &Grouped, column: usize) -> Self {
        let values = groups::values(&grouped.settings, column);
        let words = values.iter().map(groups::labels(&grouped.settings, column)).collect();
        let place_of = |setting| values.iter().position(|v| v == groups::value(setting, column));
        let places = grouped.settings.list.iter().map(|setting| place_of(setting).unwrap_or(0));
        Self { words, places: places.collect(), note: None }
    }

    /// The same, or ranges where these are numbers of a scattered axis, or more than fit beside each other.
    ///
    /// # Errors
    /// When they are more than fit, and no numbers.
    fn divided(
        self,
        table: &Table,
        grouped: &Grouped,
        column: usize,
        is_scattered: bool,
    ) -> Result<Self> {
        let (name, n) = (&table.columns[column], self.words.len());
        let cells: Vec<_> = grouped
            .settings
            .list
            .iter()
            .filter_map(|setting| Some(table.cell(&table.rows[*setting.rows.first()?], column)))
            .collect();
        match analysis::ranges(&cells, RANGES).filter(|_| is_scattered || n > MOST_WORDS) {
            Some((places, words)) => {
                let words: Vec<String> =
                    words.iter().map(|words| minus(words).replace(" .. ", " to ")).collect();
                let note = format!(
                    "`{name}` has {} values, in {} ranges with about as many each: {}",
                    thousands(n as u64),
                    words.len(),
                    words.join(", ")
                );
                Ok(Self { words, places, note: Some(note) })
            }
            None => check_words(name, n).map(|()| self),
        }
    }
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
