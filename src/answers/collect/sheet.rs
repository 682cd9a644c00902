//! An answer: rows with columns that are described, chosen and sorted.

use std::cmp::Ordering;
use std::io;

use anyhow::Result;
use rayon::prelude::*;

use super::attempts::{self, Attempts};
use super::columns::{self, Column};
use super::steps::Steps;
#[cfg(feature = "tables")]
use super::types::Type;
use super::{Builder, Cell, Cells, Source, Table, Trial};
use crate::base::fault::Fault;
use crate::base::host::threads;
use crate::base::words;

/// Where the rows come from.
enum Rows {
    Trials(Table),
    /// Read from files for each pass.
    Steps(Steps),
    Attempts(Attempts),
    /// Of another answer, since they had to be sorted.
    Sorted(Table),
}

/// Appends some rows as text.
type Text<'f> = dyn Fn(&[Line<'_>], &mut Vec<u8>) -> Result<()> + Sync + 'f;

/// A row of an answer.
pub(crate) struct Line<'a> {
    of: Of<'a>,
    chosen: Option<&'a [usize]>,
}

enum Of<'a> {
    Table(&'a Table, &'a Trial),
    Own(Cells),
}

impl Line<'_> {
    /// Its cell in a column.
    pub(crate) fn get(&self, column: usize) -> Cell<'_> {
        let column = self.chosen.map_or(column, |chosen| chosen[column]);
        match &self.of {
            Of::Table(table, row) => table.cell(row, column),
            Of::Own(cells) => Cell::from(cells.get(column)),
        }
    }

    /// The cells that it has, by column.
    pub(crate) fn cells(&self) -> Vec<(usize, Cell<'_>)> {
        match (&self.of, self.chosen) {
            (_, Some(chosen)) => {
                let all = (0..chosen.len()).map(|column| (column, self.get(column)));
                all.filter(|(_, cell)| !cell.is_null()).collect()
            }
            (Of::Table(table, row), None) => table.cells(row),
            (Of::Own(cells), None) => cells.iter().map(|(c, value)| (c, value.into())).collect(),
        }
    }
}

/// A form with types, which `hpcsweep-worker` alone writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Parquet,
    /// An Arrow IPC file.
    Arrow,
    Sqlite,
}

/// What writes an answer in such a form, and returns how many rows it has.
pub(crate) type Write = fn(&Sheet, Form, &mut dyn io::Write) -> Result<usize>;

/// An answer: described columns, and rows of trials, of metric lines or of attempts.
pub(crate) struct Sheet {
    /// The columns, as far as they are chosen.
    pub(crate) columns: Vec<Column>,
    /// The sweeps, and what of them could not be read.
    pub(crate) sources: Vec<Source>,
    /// The columns that were chosen, as places among all.
    chosen: Option<Vec<usize>>,
    rows: Rows,
    #[cfg(feature = "tables")]
    name: &'static str,
}

impl Sheet {
    /// A row a trial.
    pub(crate) fn of_trials(table: Table) -> Self {
        let columns = columns::of_trials(&table.columns, table.first_parameter, table.first_metric);
        let sources = table.sources.clone();
        Self {
            columns,
            sources,
            chosen: None,
            rows: Rows::Trials(table),
            #[cfg(feature = "tables")]
            name: "trials",
        }
    }

    /// A row a metric line.
    pub(crate) fn of_steps(steps: Steps) -> Self {
        let columns = columns::of_steps(&steps.columns, steps.first_metric());
        let sources = steps.sources();
        Self {
            columns,
            sources,
            chosen: None,
            rows: Rows::Steps(steps),
            #[cfg(feature = "tables")]
            name: "steps",
        }
    }

    /// A row an attempt.
    pub(crate) fn of_attempts(attempts: Attempts) -> Self {
        let columns = attempts::columns(attempts.are_of_several());
        let sources = attempts.sources();
        Self {
            columns,
            sources,
            chosen: None,
            rows: Rows::Attempts(attempts),
            #[cfg(feature = "tables")]
            name: "attempts",
        }
    }

    /// The table of trials with all of its columns, if it is that.
    pub(crate) fn whole_table(&self) -> Option<&Table> {
        match &self.rows {
            Rows::Trials(table) if self.chosen.is_none() => Some(table),
            _ => None,
        }
    }

    /// What a row is, as the name of a table.
    #[cfg(feature = "tables")]
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Leaves these columns, in this order.
    ///
    /// # Errors
    /// When there is no such column, or one is named twice.
    pub(crate) fn choose(&mut self, names: &[String]) -> Result<(), Fault> {
        let mut chosen = Vec::with_capacity(names.len());
        for name in names {
            let place = self.place_or_empty(name)?;
            if chosen.contains(&place) {
                return Err(Fault::request(format!("column `{name}` is named twice")));
            }
            chosen.push(place);
        }
        self.columns = chosen.iter().map(|&place| self.columns[place].clone()).collect();
        self.chosen = Some(chosen);
        Ok(())
    }

    /// Sorts the rows by columns, the first one first; a `-` before a name turns its order round. Rows without a value
    /// stay last.
    ///
    /// # Errors
    /// When there is no such column, or the rows cannot be read.
    pub(crate) fn sort(&mut self, by: &[String]) -> Result<()> {
        let mut key = |word: &String| -> Result<(usize, bool), Fault> {
            let is_name = self.columns.iter().any(|column| column.name == *word);
            match word.strip_prefix('-').filter(|_| !is_name) {
                Some(name) => Ok((self.place_or_empty(name)?, true)),
                None => Ok((self.place_or_empty(word)?, false)),
            }
        };
        let keys: Vec<(usize, bool)> = by.iter().map(&mut key).collect::<Result<_, _>>()?;
        if !matches!(self.rows, Rows::Trials(_)) && !keys.is_empty() {
            let mut all = Builder::default();
            self.each(&mut |row| {
                all.add(row.cells());
                Ok(())
            })?;
            self.rows = Rows::Sorted(all.table());
        }
        if let Rows::Trials(table) | Rows::Sorted(table) = &mut self.rows {
            let mut rows = std::mem::take(&mut table.rows);
            rows.sort_by(|a, b| {
                let by = |(column, is_back): &(usize, bool)| {
                    compare(table.cell(a, *column), table.cell(b, *column), *is_back)
                };
                keys.iter().map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            });
            table.rows = rows;
        }
        Ok(())
    }

    /// The place of a column. Where no trial is meant nothing tells which columns trials have: each name is one.
    fn place_or_empty(&mut self, name: &str) -> Result<usize, Fault> {
        let is_empty = matches!(&self.rows, Rows::Trials(table) if table.rows.is_empty());
        if is_empty && !self.columns.iter().any(|column| column.name == name) {
            self.columns.push(Column::empty(name));
        }
        self.place(name)
    }

    /// The place of a column.
    fn place(&self, name: &str) -> Result<usize, Fault> {
        // A metric that shares its name with a parameter is meant: a table is sorted by results.
        let place = |name: &str| self.columns.iter().position(|column| column.name == name);
        if let Some(place) = place(name).or_else(|| place(&format!("metric.{name}"))) {
            return Ok(place);
        }
        let known: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let fault = Fault::request(format!("there is no column `{name}`"));
        Err(match words::nearest(name, known.iter().copied()) {
            Some(near) => fault.hint(format!("did you mean `{near}`?")),
            None => fault.hint("`--columns` without names, as the last word, lists the columns"),
        })
    }

    /// Calls `with` for each row.
    ///
    /// # Errors
    /// When the rows cannot be read, and what `with` returns.
    pub(crate) fn each<'a>(&'a self, with: &mut dyn FnMut(Line<'a>) -> Result<()>) -> Result<()> {
        let chosen = self.chosen.as_deref();
        match &self.rows {
            Rows::Trials(table) | Rows::Sorted(table) => table
                .rows
                .iter()
                .try_for_each(|row| with(Line { of: Of::Table(table, row), chosen })),
            Rows::Steps(steps) => steps.each(|row| with(Line { of: Of::Own(row), chosen })),
            Rows::Attempts(all) => all.each(&mut |row| with(Line { of: Of::Own(row), chosen })),
        }
    }

    /// Writes the rows as `form` gives some of them. Returns how many there are.
    ///
    /// # Errors
    /// When the rows cannot be read, `form` fails, or `out` cannot be written.
    pub(crate) fn write(&self, form: &Text<'_>, out: &mut dyn io::Write) -> Result<usize> {
        let mut count = 0;
        let (Rows::Trials(table) | Rows::Sorted(table)) = &self.rows else {
            let mut bytes = Vec::new();
            self.each(&mut |row| {
                count += 1;
                bytes.clear();
                form(&[row], &mut bytes)?;
                Ok(out.write_all(&bytes)?)
            })?;
            return Ok(count);
        };
        let chosen = self.chosen.as_deref();
        let piece = |rows: &[Trial]| {
            let lines: Vec<Line<'_>> =
                rows.iter().map(|row| Line { of: Of::Table(table, row), chosen }).collect();
            let mut bytes = Vec::new();
            form(&lines, &mut bytes).map(|()| bytes)
        };
        for rows in table.rows.chunks(AT_ONCE) {
            let pieces: Result<Vec<Vec<u8>>> =
                threads::in_parallel(|| rows.par_chunks(PIECE).map(piece).collect());
            pieces?.iter().try_for_each(|bytes| out.write_all(bytes))?;
        }
        Ok(table.rows.len())
    }

    /// The type of each column, from all of its values, and the words of columns of words, in order.
    ///
    /// # Errors
    /// When the rows cannot be read.
    #[cfg(feature = "tables")]
    pub(super) fn types(&self) -> Result<Vec<(Type, Vec<String>)>> {
        let mut all: Vec<(Type, Vec<String>)> = vec![Default::default(); self.columns.len()];
        self.each(&mut |row| {
            for (c, cell) in row.cells() {
                let (found, words) = &mut all[c];
                match self.columns[c].kind {
                    columns::Kind::Any => found.add(cell),
                    columns::Kind::Word => {
                        let word = cell.text();
                        if let Err(at) = words.binary_search_by(|known| known.as_str().cmp(&word)) {
                            words.insert(at, word.into_owned());
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        Ok(all)
    }
}

/// Rows of a table that are written at once, and those of which a thread makes a part.
const AT_ONCE: usize = 1 << 14;
const PIECE: usize = 1 << 9;

/// The order of two cells: numbers, then texts and whatever else there is, then cells without a value. Only the order of
/// numbers and that of texts can be turned round.
fn compare(a: Cell<'_>, b: Cell<'_>, is_back: bool) -> Ordering {
    let turned = |order: Ordering| if is_back { order.reverse() } else { order };
    let class = |cell: Cell<'_>| match (cell, cell.number()) {
        (Cell::Null, _) => 3,
        (_, Some(number)) if number.is_nan() => 1,
        (_, Some(_)) => 0,
        _ => 2,
    };
    let of_class = || match (a.as_i64(), b.as_i64(), a.number(), b.number()) {
        (Some(a), Some(b), ..) => a.cmp(&b),
        // NaN is equal to itself here.
        (_, _, Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        _ => a.text().cmp(&b.text()),
    };
    class(a).cmp(&class(b)).then_with(|| turned(of_class()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn cells_without_a_value_are_last_in_both_orders() {
        let cells = json!([null, "b", 2, "nan", -1.5, "inf", [1], "a", 10]);
        let sorted = |is_back: bool| {
            let mut all = cells.as_array().unwrap().clone();
            all.sort_by(|a, b| compare(a.into(), b.into(), is_back));
            Value::Array(all)
        };
        assert_eq!(sorted(false), json!([-1.5, 2, 10, "inf", "nan", [1], "a", "b", null]));
        assert_eq!(sorted(true), json!(["inf", 10, 2, -1.5, "nan", "b", "a", [1], null]));
    }
}
