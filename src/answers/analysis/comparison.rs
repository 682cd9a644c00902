//! How two sets of trials differ in a metric, and in what they cost.

use std::collections::HashMap;

use crate::answers::collect::Table;
use crate::base::stats::{self, Test};

use super::bounds::Bounded;
use super::settings::{Left, key, number};

/// One of the two.
#[derive(Debug, Clone, Default)]
pub(crate) struct Side {
    /// Its rows in the table.
    pub(crate) rows: Vec<usize>,
}

/// The numbers of one side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// The values of the metric that are compared: of each unit the mean of its trials.
    pub(crate) values: Vec<f64>,
    /// How many trials are in these.
    pub(crate) trials: usize,
    /// How many trials with a number have no partner on the other side, and are not among them.
    pub(crate) alone: usize,
    /// How many trials of the side have no number that counts, and why.
    pub(crate) left: Left,
}

/// A figure of cost, of each side the mean of its ended trials; `None` where none has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// The column's name, one of [`COSTS`].
    pub(crate) column: &'static str,
    /// Of the first and of the second side.
    pub(crate) means: [Option<f64>; 2],
}

/// What the comparison of two sides says.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The numbers of both.
    pub(crate) samples: [Sample; 2],
    /// The column whose values are the units, such as the seed; `None` where each trial or pair is one.
    pub(crate) unit: Option<usize>,
    /// The test of their difference, of pairs where at least two are common.
    pub(crate) test: Option<Test>,
    /// The probability by Wilcoxon's signed-rank test, of pairs.
    pub(crate) signed_rank: Option<f64>,
    /// The bounds of the metric, within which the intervals of the means stay.
    pub(crate) bounds: Option<Bounded>,
    /// One figure for each column of [`COSTS`], in that order.
    pub(crate) costs: Vec<Cost>,
}

/// Columns that say what a trial cost.
const COSTS: [&str; 3] = ["duration_s", "cpu_s", "peak_memory"];

/// Compares two sides by the metric in a column. Trials that agree in the columns of `common` are pairs. Trials of one seed have more in
/// common than their parameters, so that the units are the values of `over`, what is averaged over: of each unit the means of its
/// pairs count. Of several such columns the one counts whose units tell less. With none, each pair is a unit.
pub(crate) fn compare(
    table: &Table,
    sides: &[Side; 2],
    metric: usize,
    common: &[usize],
    over: &[usize],
) -> Comparison {
    let observed = sides.each_ref().map(|side| Known::observed_on(table, side, metric));
    let numbers = table.rows.iter().filter_map(|row| table.cell(row, metric).number());
    let resolution = stats::resolution(numbers);
    let bounds = Bounded::for_metric(table, metric);
    let mut units: Vec<Option<usize>> =
        over.iter().filter(|column| common.contains(column)).map(|column| Some(*column)).collect();
    if units.is_empty() {
        units.push(None);
    }
    let paired = units.iter().filter_map(|unit| {
        let paired = paired(table, &observed, common, *unit);
        let test = stats::paired(&paired.pairs, resolution)?;
        Some((*unit, paired, test))
    });
    let of_sides = sides.each_ref().map(|side| costs(table, &side.rows));
    let costs = COSTS
        .iter()
        .enumerate()
        .map(|(at, column)| Cost { column, means: of_sides.map(|means| means[at]) })
        .collect();
    let [a, b] = observed.each_ref().map(|side| side.left);
    if let Some((unit, paired, test)) = paired.max_by(|a, b| a.2.p.total_cmp(&b.2.p)) {
        let (first, second) = paired.pairs.iter().copied().unzip();
        let sample = |side: usize, values, left| {
            let trials = paired.trials[side];
            Sample { values, trials, alone: observed[side].values.len() - trials, left }
        };
        let samples = [sample(0, first, a), sample(1, second, b)];
        let signed_rank = stats::signed_rank(&paired.pairs);
        return Comparison { samples, unit, test: Some(test), signed_rank, bounds, costs };
    }
    let unit = units[0];
    let samples = observed.map(|side| {
        let values = match unit {
            Some(column) => means(side.values.iter().map(|(at, value)| {
                (key(table, &table.rows[*at], std::iter::once(column)), *value)
            })),
            None => side.values.iter().map(|(_, value)| *value).collect(),
        };
        Sample { values, trials: side.values.len(), alone: 0, left: side.left }
    });
    let test = stats::welch(&samples[0].values, &samples[1].values, resolution);
    Comparison { samples, unit, test, signed_rank: None, bounds, costs }
}

/// The rows of a side with a number.
struct Known {
    values: Vec<(usize, f64)>,
    left: Left,
}

impl Known {
    fn observed_on(table: &Table, side: &Side, metric: usize) -> Self {
        let (mut left, mut values) = (Left::default(), Vec::new());
        for at in &side.rows {
            let value = number(table, &table.rows[*at], metric, &mut left);
            values.extend(value.map(|value| (*at, value)));
        }
        Self { values, left }
    }
}

/// The numbers of two sides by units that both have.
struct Paired {
    /// Of each unit the means of its trials that have a partner.
    pairs: Vec<(f64, f64)>,
    /// How many trials these are, of each side.
    trials: [usize; 2],
}

fn paired(table: &Table, known: &[Known; 2], common: &[usize], unit: Option<usize>) -> Paired {
    let mut key_places: HashMap<String, usize> = HashMap::new();
    // Of each key its unit, and of each side the numbers.
    let mut keyed: Vec<(String, [Vec<f64>; 2])> = Vec::new();
    for (side, known) in known.iter().enumerate() {
        for (at, value) in &known.values {
            let row = &table.rows[*at];
            let trial_key = key(table, row, common.iter().copied());
            let pair_place = *key_places.entry(trial_key).or_insert_with_key(|trial_key| {
                let unit = unit.map(|column| key(table, row, std::iter::once(column)));
                keyed.push((unit.unwrap_or_else(|| trial_key.clone()), Default::default()));
                keyed.len() - 1
            });
            keyed[pair_place].1[side].push(*value);
        }
    }
    keyed.retain(|(_, sides)| sides.iter().all(|values| !values.is_empty()));
    let trials = [0, 1].map(|side| keyed.iter().map(|(_, sides)| sides[side].len()).sum());
    let side_means = |side: usize| {
        let side_mean = |sides: &[Vec<f64>; 2]| stats::mean(&sides[side]);
        means(keyed.iter().map(|(unit, sides)| (unit.clone(), side_mean(sides))))
    };
    Paired { pairs: side_means(0).into_iter().zip(side_means(1)).collect(), trials }
}

/// The means of numbers with equal words, in the order of the first of each.
fn means(all: impl Iterator<Item = (String, f64)>) -> Vec<f64> {
    let mut group_places: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Vec<f64>> = Vec::new();
    for (word, value) in all {
        let group_place = *group_places.entry(word).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group_place].push(value);
    }
    groups.iter().map(|group| stats::mean(group)).collect()
}

/// What ended trials of some rows cost on average: a figure for each column of [`COSTS`], where any trial has it.
pub(crate) fn costs(table: &Table, rows: &[usize]) -> [Option<f64>; COSTS.len()] {
    COSTS.map(|name| {
        let column = table.columns.iter().position(|known| known == name)?;
        let values: Vec<f64> =
            rows.iter().filter_map(|at| table.cell(&table.rows[*at], column).number()).collect();
        (!values.is_empty()).then(|| stats::mean(&values))
    })
}
