//! Which axes matter for a metric, and which value of each is best.

use std::cmp::Ordering;
use std::collections::HashMap;

use anyhow::Result;

use super::bounds::Bounded;
use super::ranking::SIGNIFICANT;
use super::settings::{Left, Settings, key, number};
use crate::answers::collect::{Cell, Goal, Table};
use crate::base::fault::Fault;
use crate::base::stats::{self, Forest, Interval, Means, NoGrid, Term};
use crate::base::words;

/// Most values of an axis of numbers that are told apart; more are put into as many ranges with as many trials each.
const MOST_LEVELS: usize = 32;

/// The least trials of a forest.
const LEAST: usize = 12;

/// How the parts were found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Method {
    /// Exact sums of squares of a grid.
    Grid(Grid),
    /// Functional analysis of variance over a forest of regression trees: why it is no grid, or `None` where ranges of values are levels.
    Forest(Option<NoGrid>),
}

/// What is known of a grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    /// Whether each combination has as many trials as any other.
    pub(crate) is_complete: bool,
    /// The part that is noise, where repetitions tell it.
    pub(crate) noise: f64,
    /// The part that repetitions, such as those of one seed, have in common.
    pub(crate) in_common: f64,
    /// What the parts are compared with.
    pub(crate) error: stats::Error,
}

impl Method {
    /// Its word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Grid(Grid { is_complete: true, .. }) => "sums of squares",
            Self::Grid(_) => "least squares",
            Self::Forest(_) => "fanova",
        }
    }

    /// Its name in a sentence, before the trials.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Grid(Grid { is_complete: true, .. }) => "sums of squares of a complete grid",
            Self::Grid(_) => "least squares over a grid with gaps",
            Self::Forest(_) => "functional ANOVA by a forest",
        }
    }

    /// Whether it is exact, with F tests.
    pub(crate) fn is_grid(self) -> bool {
        matches!(self, Self::Grid(_))
    }
}

/// Why trials are not analysed as a grid, in words that follow "because".
pub(crate) fn why_no_grid(why: Option<NoGrid>) -> String {
    match why {
        None => format!("a parameter has more than {MOST_LEVELS} values"),
        Some(NoGrid::Sparse) => {
            "fewer than half of the combinations of values have a number".to_owned()
        }
        Some(NoGrid::Confounded) => "parameters vary together".to_owned(),
        Some(NoGrid::Large) => "the grid has gaps and too many values".to_owned(),
        Some(NoGrid::Flat) => "the numbers hardly differ".to_owned(),
    }
}

/// A value of an axis, or a range of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level {
    /// The value, or the least and the greatest of a range.
    pub(crate) words: String,
    /// The mean of the metric over all values of the other axes.
    pub(crate) mean: f64,
    /// Its 95 % interval in a grid, where something tells it; of a forest the middle 95 % of the trees, which is none.
    pub(crate) interval: Option<Interval>,
    /// How many trials with a number it has.
    pub(crate) trials: usize,
    /// How many of its trials failed or gave no number.
    pub(crate) failed: usize,
    /// Whether they fail more often than those of other values: the mean is one of the trials that were spared.
    pub(crate) is_spared: bool,
}

/// An axis and its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// The parameter's place among the table's columns.
    pub(crate) column: usize,
    /// Its values, numbers in ascending order.
    pub(crate) levels: Vec<Level>,
    /// The best of them, of those whose trials do not fail more often than those of others.
    pub(crate) best: usize,
}

impl Effects {
    /// Whether anything shows that an axis has an effect: a test at 5 %, where there is one.
    pub(crate) fn is_shown(&self, axis: usize) -> bool {
        let main_effect = self.terms.iter().find(|term| term.axes == [axis]);
        main_effect.is_some_and(|term| term.share > 0.0 && term.p.is_none_or(|p| p < SIGNIFICANT))
    }

    /// A term in words, by the names of axes: "a x b" with ` x ` between them.
    pub(crate) fn term(&self, term: &Term, name: impl Fn(usize) -> String, by: &str) -> String {
        // A term of more axes than two is of any three or more of all.
        match term.axes.len() {
            ..=3 => term.axes.iter().map(|axis| name(*axis)).collect::<Vec<_>>().join(by),
            _ => "three or more together".to_owned(),
        }
    }

    /// What the parts leave over, in words.
    pub(crate) fn rest(&self) -> String {
        let percent = |part: f64| format!("{:.1} %", part.clamp(0.0, 1.0) * 100.0);
        let explained: f64 = self.terms.iter().map(|term| term.share).sum();
        let Method::Grid(grid) = self.method else {
            return format!(
                "{} is noise and what the forest does not explain",
                percent(1.0 - explained)
            );
        };
        let noise = percent(grid.noise);
        match grid.error {
            // Less is shown as nothing.
            stats::Error::Repeated if grid.in_common >= 0.0005 => {
                let alike = percent(grid.in_common);
                format!("{noise} is noise, and {alike} what repetitions have in common")
            }
            stats::Error::Repeated => format!("{noise} is noise"),
            stats::Error::Left => format!("{noise} is noise and what three or more do together"),
            stats::Error::Pair => {
                "without repetitions, what both do together cannot be told from noise, and is what each is compared with"
                    .to_owned()
            }
            stats::Error::Nothing => "without repetitions there is no test".to_owned(),
        }
    }
}

/// How much of a metric's variance each axis and each pair of axes explains.
#[derive(Debug)]
pub(crate) struct Effects {
    /// How it was found.
    pub(crate) method: Method,
    /// The axes: columns with more than one value.
    pub(crate) axes: Vec<Axis>,
    /// The parts of the variance, the largest first; `axes` are places in [`Effects::axes`].
    pub(crate) terms: Vec<Term>,
    /// Trials with a number.
    pub(crate) trials: usize,
    /// How many trials have no number that counts, and why.
    pub(crate) left: Left,
    /// Trials whose number is infinite: no part of a variance.
    pub(crate) infinite: usize,
    /// Columns of texts in which nearly every trial differs: nothing can be said of them.
    pub(crate) unclear: Vec<usize>,
    /// The bounds of the metric, within which the intervals of a grid stay.
    pub(crate) bounds: Option<Bounded>,
}

/// Finds what matters for the metric in a column.
///
/// # Errors
/// When too few trials have a number, no axis has two values, or the metric is the same everywhere.
pub(crate) fn effects(
    table: &Table,
    settings: &Settings,
    metric: usize,
    goal: Goal,
) -> Result<Effects> {
    let (mut left, mut rows, mut failed) = (Left::default(), Vec::new(), Vec::new());
    for at in settings.list.iter().flat_map(|setting| &setting.rows) {
        let n_bad_before = left.bad();
        rows.extend(number(table, &table.rows[*at], metric, &mut left).map(|y| (*at, y)));
        failed.extend((left.bad() > n_bad_before).then_some(*at));
    }
    let n_numbers = rows.len();
    rows.retain(|(_, y)| y.is_finite());
    let infinite = n_numbers - rows.len();
    rows.sort_by_key(|(at, _)| *at);
    let (rows, ys): (Vec<usize>, Vec<f64>) = rows.into_iter().unzip();
    let (axes, unclear) = axes(table, settings, &rows);
    let name = &table.columns[metric];
    let trials = words::count(rows.len() as u64, "trial");
    if axes.is_empty() {
        let sentence = format!(
            "no parameter has several values among the {trials} with a number for `{name}`"
        );
        return Err(Fault::request(sentence)
            .hint("effects are those of axes: `[grid]` and `[sample]` in docs/plan.md")
            .into());
    }
    if ys.iter().all(|y| *y == ys[0]) {
        let sentence = format!("`{name}` is {} in all trials", words::figures(ys[0], 15));
        return Err(Fault::request(sentence).hint("nothing matters for what never differs").into());
    }
    let observed = Observations::from_axes(&axes, &ys, seeds(table, settings, &rows));
    let bounds = Bounded::for_metric(table, metric);
    let parts = match observed.grid(bounds) {
        Ok(parts) => Some(parts),
        Err(why) if rows.len() < LEAST => {
            let reason = why_no_grid(why);
            let sentence = format!(
                "{trials} with a number for `{name}` are too few to tell what matters, because {reason}"
            );
            return Err(Fault::request(sentence)
                .hint(format!("{LEAST} are the least, or half of all combinations of values once"))
                .into());
        }
        Err(why) => observed.forest(why),
    };
    let Parts { method, mut terms, marginals } = parts.ok_or_else(|| {
        Fault::request(format!("no parameter tells trials apart by `{name}`"))
            .hint("with more trials, or fewer parameters, something may show")
    })?;
    terms.sort_by(|a, b| b.share.total_cmp(&a.share));
    let axes = axes.into_iter().zip(marginals);
    let axes = axes
        .map(|((column, axis), means)| {
            let cells = |rows: &[usize]| -> Vec<Cell<'_>> {
                rows.iter().map(|at| table.cell(&table.rows[*at], column)).collect()
            };
            let failed = axis.failed(&cells(&rows), &cells(&failed));
            axis.with_means(column, means, &failed, goal)
        })
        .collect();
    let bounds = bounds.filter(|_| method.is_grid());
    Ok(Effects { method, axes, terms, trials: rows.len(), left, infinite, unclear, bounds })
}

/// The columns of settings with more than one value among some rows, each with its values as levels, and those of which nothing
/// can be said.
fn axes(table: &Table, settings: &Settings, rows: &[usize]) -> (Vec<(usize, Divided)>, Vec<usize>) {
    let (mut axes, mut unclear) = (Vec::new(), Vec::new());
    let columns = settings.list.first().map(|setting| setting.values.iter());
    for (column, _) in columns.into_iter().flatten() {
        let cells: Vec<Cell<'_>> =
            rows.iter().map(|at| table.cell(&table.rows[*at], *column)).collect();
        match divided(&cells) {
            Some(axis) if axis.words.len() > 1 => axes.push((*column, axis)),
            Some(_) => {}
            None => unclear.push(*column),
        }
    }
    (axes, unclear)
}

/// Of each row, which seed it has: trials with the same one are alike in more than their parameters.
fn seeds(table: &Table, settings: &Settings, rows: &[usize]) -> Vec<usize> {
    let mut seed_numbers: HashMap<String, usize> = HashMap::new();
    let mut seed = |at: &usize| {
        let seed_key = key(table, &table.rows[*at], settings.over.iter().map(|over| over.column));
        let next_seed = seed_numbers.len();
        *seed_numbers.entry(seed_key).or_insert(next_seed)
    };
    rows.iter().map(&mut seed).collect()
}

/// Observations, as `stats` takes them.
struct Observations<'a> {
    levels: Vec<Vec<usize>>,
    counts: Vec<usize>,
    are_ordered: Vec<bool>,
    /// Whether an axis has ranges of values as levels.
    has_ranges: bool,
    seeds: Vec<usize>,
    ys: &'a [f64],
}

/// The parts of the variance, and of each axis the means at its levels.
struct Parts {
    method: Method,
    terms: Vec<Term>,
    marginals: Vec<Means>,
}

impl<'a> Observations<'a> {
    fn from_axes(axes: &[(usize, Divided)], ys: &'a [f64], seeds: Vec<usize>) -> Self {
        Self {
            levels: (0..ys.len())
                .map(|row| axes.iter().map(|(_, axis)| axis.levels[row]).collect())
                .collect(),
            counts: axes.iter().map(|(_, axis)| axis.words.len()).collect(),
            are_ordered: axes.iter().map(|(_, axis)| axis.is_ordered).collect(),
            has_ranges: axes.iter().any(|(_, axis)| axis.is_range),
            seeds,
            ys,
        }
    }

    /// By sums of squares.
    ///
    /// # Errors
    /// Why they are no grid; `None` where levels are ranges.
    fn grid(&self, bounds: Option<Bounded>) -> Result<Parts, Option<NoGrid>> {
        if self.has_ranges {
            return Err(None);
        }
        let anova = stats::anova(&self.levels, &self.counts, self.ys, &self.seeds)?;
        let stats::Anova { terms, noise, in_common, error, means, is_complete } = anova;
        let marginals = means.into_iter().map(|axis| {
            axis.into_iter().map(|(mean, ends)| (mean, Bounded::keep(bounds, mean, ends))).collect()
        });
        let method = Method::Grid(Grid { is_complete, noise, in_common, error });
        Ok(Parts { method, terms, marginals: marginals.collect() })
    }

    /// By a forest; `None` if it finds no difference.
    fn forest(&self, why: Option<NoGrid>) -> Option<Parts> {
        let forest = Forest::grow(&self.levels, &self.counts, &self.are_ordered, self.ys);
        let mut terms = forest.terms()?;
        let ps = stats::shuffled(&self.levels, &self.counts, &self.are_ordered, self.ys);
        terms.iter_mut().zip(ps).for_each(|(term, p)| term.p = Some(p));
        let marginals = (0..self.counts.len())
            .map(|axis| {
                let level_means: Vec<(f64, Interval)> = forest.marginal(axis);
                level_means.into_iter().map(|(mean, interval)| (mean, Some(interval))).collect()
            })
            .collect();
        Some(Parts { method: Method::Forest(why), terms, marginals })
    }
}

/// The values of a column as levels.
struct Divided {
    /// The level of each row.
    levels: Vec<usize>,
    /// The words for each level.
    words: Vec<String>,
    /// Whether they are numbers.
    is_ordered: bool,
    /// Whether levels are ranges of values.
    is_range: bool,
}

impl Divided {
    /// How many of some further cells have each level; `known` are the cells of the levels. A number between levels is of the one below.
    fn failed(&self, known: &[Cell<'_>], further: &[Cell<'_>]) -> Vec<usize> {
        let mut failed = vec![0; self.words.len()];
        let exact: HashMap<String, usize> =
            known.iter().zip(&self.levels).map(|(cell, level)| (cell.json(), *level)).collect();
        let mut ordered: Vec<(f64, usize)> = known
            .iter()
            .zip(&self.levels)
            .filter_map(|(cell, level)| Some((cell.as_f64()?, *level)))
            .collect();
        ordered.sort_by(|a, b| a.0.total_cmp(&b.0));
        for cell in further {
            let below = |x: f64| {
                let n_below = ordered.partition_point(|(own, _)| *own <= x);
                ordered.get(n_below.saturating_sub(1)).map(|(_, level)| *level)
            };
            if let Some(level) = exact
                .get(&cell.json())
                .copied()
                .or_else(|| cell.as_f64().filter(|_| self.is_range).and_then(below))
            {
                failed[level] += 1;
            }
        }
        failed
    }

    /// The axis of this column, with the mean of the metric at each level.
    fn with_means(
        self,
        column: usize,
        means: Vec<(f64, Option<Interval>)>,
        failed: &[usize],
        goal: Goal,
    ) -> Axis {
        let mut trials = vec![0; self.words.len()];
        self.levels.iter().for_each(|level| trials[*level] += 1);
        let (all_failed, all) = (failed.iter().sum(), self.levels.len());
        let all_trials = all + all_failed;
        let levels: Vec<Level> = self
            .words
            .into_iter()
            .zip(means)
            .enumerate()
            .map(|(at, (words, (mean, interval)))| {
                let (trials, failed) = (trials[at], failed[at]);
                let p = stats::at_least(failed, trials + failed, all_failed, all_trials);
                Level { words, mean, interval, trials, failed, is_spared: p < SIGNIFICANT }
            })
            .collect();
        let best = levels
            .iter()
            .enumerate()
            .min_by(|a, b| {
                let by_mean = match goal {
                    Goal::Min => a.1.mean.total_cmp(&b.1.mean),
                    Goal::Max => b.1.mean.total_cmp(&a.1.mean),
                };
                a.1.is_spared.cmp(&b.1.is_spared).then(by_mean)
            })
            .map_or(0, |(at, _)| at);
        Axis { column, levels, best }
    }
}

/// `None` for texts of which there are too many.
fn divided(cells: &[Cell<'_>]) -> Option<Divided> {
    if cells.iter().any(|cell| cell.as_f64().is_none()) {
        let mut index: HashMap<String, usize> = HashMap::new();
        let mut words: Vec<String> = Vec::new();
        let mut level = |cell: &Cell<'_>| {
            *index.entry(cell.json()).or_insert_with(|| {
                words.push(if cell.is_null() { "(none)".into() } else { cell.text().into_owned() });
                words.len() - 1
            })
        };
        let levels: Vec<usize> = cells.iter().map(&mut level).collect();
        let is_clear = words.len() <= MOST_LEVELS || words.len() * 4 <= cells.len();
        return is_clear.then_some(Divided { levels, words, is_ordered: false, is_range: false });
    }
    Some(divided_numbers(cells, MOST_LEVELS))
}

/// Of numbers that have more than so many values: the range of each, and the ranges in words. `None` where the values are fewer, or
/// one is no number.
pub(crate) fn ranges(cells: &[Cell<'_>], most: usize) -> Option<(Vec<usize>, Vec<String>)> {
    if cells.iter().any(|cell| cell.as_f64().is_none()) {
        return None;
    }
    let divided = divided_numbers(cells, most);
    divided.is_range.then_some((divided.levels, divided.words))
}

/// Of numbers: their values or, of more than `most`, as many ranges with as many cells each.
fn divided_numbers(cells: &[Cell<'_>], most: usize) -> Divided {
    let order = |a: &Cell<'_>, b: &Cell<'_>| a.order(*b).unwrap_or(Ordering::Equal);
    let mut sorted = cells.to_vec();
    // Equal numbers stay as the plan has written them first.
    sorted.sort_by(order);
    let mut distinct = sorted.clone();
    distinct.dedup_by(|a, b| order(a, b).is_eq());
    let exact = |cell: &Cell<'_>| match cell {
        Cell::Float(number) => words::Figures::EXACT.of(*number),
        cell => cell.text().into_owned(),
    };
    let is_range = distinct.len() > most;
    if !is_range {
        let levels = cells
            .iter()
            .map(|cell| distinct.partition_point(|known| order(known, cell).is_lt()))
            .collect();
        let words = distinct.iter().map(exact).collect();
        return Divided { levels, words, is_ordered: true, is_range };
    }
    // The first value of each range but the first.
    let mut starts: Vec<Cell<'_>> =
        (1..most).map(|part| sorted[part * sorted.len() / most]).collect();
    starts.dedup_by(|a, b| order(a, b).is_eq());
    starts.retain(|first| order(first, &sorted[0]).is_gt());
    let level = |cell: &Cell<'_>| starts.partition_point(|first| order(first, cell).is_le());
    let levels: Vec<usize> = cells.iter().map(level).collect();
    let mut ends: Vec<Option<[Cell<'_>; 2]>> = vec![None; starts.len() + 1];
    for cell in &sorted {
        let [_, last] = ends[level(cell)].get_or_insert([*cell; 2]);
        *last = *cell;
    }
    let ends: Vec<[Cell<'_>; 2]> = ends.into_iter().flatten().collect();
    let range = |word: &dyn Fn(&Cell<'_>) -> String| -> Vec<String> {
        ends.iter()
            .map(|[low, high]| match order(low, high).is_eq() {
                true => word(low),
                false => format!("{} .. {}", word(low), word(high)),
            })
            .collect()
    };
    let mut words = range(&|cell| words::figures(cell.as_f64().unwrap_or(f64::NAN), 3));
    // Of neighbours that begin with the same digits, all digits tell them apart.
    if words.windows(2).any(|pair| pair[0] == pair[1]) {
        words = range(&exact);
    }
    Divided { levels, words, is_ordered: true, is_range }
}
