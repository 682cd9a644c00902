//! The column `curve` of tables for people: learning curves as a few letters.

use std::collections::HashSet;

use anyhow::Result;

use super::Context;
use super::collect::gathered;
use crate::answers::collect::points;
use crate::answers::collect::statistics::Statistic;
use crate::answers::collect::{self, Table};
use crate::answers::plot::{self, spark};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::{Identity, Tree};

/// The sweeps of a table. Of their records those are read whose curves are wanted.
pub(super) struct Curves(Vec<(Tree, Identity)>);

impl Curves {
    /// The table of some sweeps with statistics of curves, and the curves of its trials.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(super) fn of(sweeps: Vec<Status>, statistics: &[Statistic]) -> Result<(Table, Self)> {
        let own = |status: &Status| (status.tree.clone(), status.identity.clone());
        let all = sweeps.iter().map(own).collect();
        Ok((collect::collect_with(sweeps, statistics)?, Self(all)))
    }

    /// As [`Curves::of`], of all trials of sweeps.
    ///
    /// # Errors
    /// When a tree or a record cannot be read.
    pub(super) fn of_whole(
        sweeps: Vec<(Tree, Identity)>,
        statistics: &[Statistic],
        offline: bool,
        context: &Context,
    ) -> Result<(Table, Self)> {
        let table = gathered(sweeps.clone(), offline, statistics, context)?;
        Ok((table, Self(sweeps)))
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
        if !points::has_curve(table, points::name(table, metric)) {
            return Ok(None);
        }
        let rows = sets.iter().flat_map(|rows| plot::of_mean_curve(rows));
        let wanted: HashSet<(usize, u64)> =
            rows.map(|row| (table.rows[row].source(), table.rows[row].trial)).collect();
        let read = |(at, (tree, identity)): (usize, &(Tree, Identity))| {
            let whole = |trial| wanted.contains(&(at, trial));
            status::counted(tree.clone(), identity.clone(), None, &whole)
        };
        let sweeps = self.0.iter().enumerate().map(read).collect::<Result<Vec<Status>>>()?;
        let cell = |rows: &&[usize]| {
            let values = plot::mean_curve(&sweeps, table, metric, rows)?;
            Ok(spark::spark(&values, spark::WIDTH).unwrap_or_default())
        };
        let cells = sets.iter().map(cell).collect::<Result<Vec<String>>>()?;
        Ok(cells.iter().any(|cell| !cell.is_empty()).then_some(cells))
    }
}
