//! The column `curve` of tables for people: learning curves as a few letters.

use anyhow::Result;

use super::Context;
use super::collect::{gathered, of_found};
use crate::collect::statistics::Statistic;
use crate::collect::{self, Table};
use crate::plot::{self, spark};
use crate::status::Status;
use crate::tree::table::count;
use crate::tree::{Identity, Tree};

/// Sweeps with more trials are read without keeping their records, which are needed for curves.
const MOST_TRIALS: usize = 100_000;

/// The records from which curves are read.
pub(super) struct Curves(Vec<Status>);

impl Curves {
    /// The table of some sweeps with statistics of curves, and the curves of its trials; none if they are not wanted, or there
    /// are too many trials.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(super) fn of(
        sweeps: Vec<Status>,
        statistics: &[Statistic],
        are_wanted: bool,
    ) -> Result<(Table, Self)> {
        let trials: usize = sweeps.iter().map(|status| status.rows.len()).sum();
        if are_wanted && trials <= MOST_TRIALS {
            return Ok((collect::table(&sweeps, statistics)?, Self(sweeps)));
        }
        Ok((collect::collect_with(sweeps, statistics)?, Self(Vec::new())))
    }

    /// As [`Curves::of`], of all trials of sweeps.
    ///
    /// # Errors
    /// When a tree or a record cannot be read.
    pub(super) fn of_whole(
        sweeps: Vec<(Tree, Identity)>,
        statistics: &[Statistic],
        are_wanted: bool,
        offline: bool,
        context: &Context,
    ) -> Result<(Table, Self)> {
        let trials: u64 = sweeps.iter().map(|(tree, _)| count(tree).unwrap_or(0)).sum();
        if are_wanted && trials <= MOST_TRIALS as u64 {
            return Self::of(of_found(sweeps, offline, context)?, statistics, true);
        }
        Ok((gathered(sweeps, offline, statistics, context)?, Self(Vec::new())))
    }

    /// A cell for each set of rows of the table; `None` if no trial of them has logged the metric more than once.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(super) fn column(
        &self,
        table: &Table,
        metric: &str,
        sets: &[&[usize]],
    ) -> Result<Option<Vec<String>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let cell = |rows: &&[usize]| {
            let values = plot::mean_curve(&self.0, table, metric, rows)?;
            Ok(spark::spark(&values, spark::WIDTH).unwrap_or_default())
        };
        let cells = sets.iter().map(cell).collect::<Result<Vec<String>>>()?;
        Ok(cells.iter().any(|cell| !cell.is_empty()).then_some(cells))
    }
}
