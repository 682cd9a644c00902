//! How two sets of trials differ in a metric, and in what they cost.

use std::collections::HashMap;

use crate::collect::{Table, Trial};
use crate::stats::{self, Test};

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
    /// The values of the metric.
    pub(crate) values: Vec<f64>,
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
    /// The test of their difference, of pairs where at least two are common.
    pub(crate) test: Option<Test>,
    /// The probability by Wilcoxon's signed-rank test, of pairs.
    pub(crate) signed_rank: Option<f64>,
    /// One figure for each column of [`COSTS`], in that order.
    pub(crate) costs: Vec<Cost>,
}

/// Columns that say what a trial cost.
const COSTS: [&str; 3] = ["duration_s", "cpu_s", "peak_memory"];

/// Compares two sides by the metric in a column. Trials that agree in the columns of `common` are pairs.
pub(crate) fn compare(
    table: &Table,
    sides: &[Side; 2],
    metric: usize,
    common: &[usize],
) -> Comparison {
    let mut samples = [Sample::default(), Sample::default()];
    let mut keyed: [Vec<(String, f64)>; 2] = Default::default();
    for ((side, sample), keyed) in sides.iter().zip(&mut samples).zip(&mut keyed) {
        for row in side.rows.iter().map(|at| &table.rows[*at]) {
            if let Some(value) = number(table, row, metric, &mut sample.left) {
                sample.values.push(value);
                keyed.push((key(table, row, common.iter().copied()), value));
            }
        }
    }
    let pairs = pairs(&keyed);
    let test =
        stats::paired(&pairs).or_else(|| stats::welch(&samples[0].values, &samples[1].values));
    let signed_rank = (pairs.len() > 1).then(|| stats::signed_rank(&pairs)).flatten();
    let costs = COSTS.iter().map(|name| cost(table, sides, name)).collect();
    Comparison { samples, test, signed_rank, costs }
}

/// The means of trials that agree.
fn pairs(keyed: &[Vec<(String, f64)>; 2]) -> Vec<(f64, f64)> {
    let mut sums: HashMap<&str, [(f64, usize); 2]> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (side, values) in keyed.iter().enumerate() {
        for (key, value) in values {
            let sums = sums.entry(key).or_insert_with(|| {
                order.push(key);
                Default::default()
            });
            sums[side].0 += value;
            sums[side].1 += 1;
        }
    }
    let of = |key: &str| {
        let [(a, n), (b, m)] = sums[key];
        (n > 0 && m > 0).then(|| (a / n as f64, b / m as f64))
    };
    order.into_iter().filter_map(of).collect()
}

fn cost(table: &Table, sides: &[Side; 2], name: &'static str) -> Cost {
    let column = table.columns.iter().position(|known| known == name);
    let of = |side: &Side| {
        let cell = |row: &Trial| table.cell(row, column?).number();
        let values: Vec<f64> = side.rows.iter().filter_map(|at| cell(&table.rows[*at])).collect();
        (!values.is_empty()).then(|| stats::mean(&values))
    };
    Cost { column: name, means: [of(&sides[0]), of(&sides[1])] }
}
