//! The table of whole sweeps, which is made while their files are read: neither rows nor records of a million trials are in
//! memory.

use std::collections::BTreeSet;

use anyhow::{Error, Result};
use rayon::prelude::*;

use super::statistics::Statistic;
use super::{Cell, Joined, Part, Table, Trial, note, recorded, snapshot};
use crate::base::host::{Vars, threads};
use crate::plan::Value;
use crate::plan::site::Site;
use crate::sweep::status::{self, Status, Taker};
use crate::sweep::tree::records::Record;
use crate::sweep::tree::records::index::Noter;
use crate::sweep::tree::table::{self, Row};
use crate::sweep::tree::{Identity, Tree};

/// A sweep of a table.
pub(crate) struct Gathered {
    status: Status,
    part: Part,
    /// The snapshots from which trials have run.
    snapshots: BTreeSet<Option<String>>,
    curves: Vec<Statistic>,
}

/// Reads a sweep, and asks its scheduler if one is given.
///
/// # Errors
/// When the tree cannot be read; a scheduler that does not answer is not an error.
pub(crate) fn gather(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
    curves: &[Statistic],
) -> Result<Gathered> {
    let mut taken = Taken::of(&tree, curves);
    let status = status::gathered(tree, identity, whom, &mut taken)?;
    let (part, snapshots) = taken.whole(&status)?;
    Ok(Gathered { status, part, snapshots, curves: curves.to_vec() })
}

/// What is taken of a sweep while it is read.
pub(crate) struct Taken<'a> {
    /// How many there are.
    rows: usize,
    curves: &'a [Statistic],
    part: Part,
    snapshots: BTreeSet<Option<String>>,
    error: Option<Error>,
}

impl<'a> Taken<'a> {
    /// Of a sweep that is still to be read.
    pub(crate) fn of(tree: &Tree, curves: &'a [Statistic]) -> Self {
        // Room for so many; it grows where the head of a table is damaged.
        let rows = table::count(tree).unwrap_or(0) as usize;
        Self { rows, curves, part: Part::default(), snapshots: BTreeSet::new(), error: None }
    }

    /// The cells, and the snapshots from which trials have run, those of the records included that the status has.
    fn whole(self, status: &Status) -> Result<(Part, BTreeSet<Option<String>>)> {
        let Self { part, mut snapshots, error, .. } = self;
        let whole = |row: &Row| status.records.whole(row.id)?.decisive();
        let ran = status.rows.iter().filter_map(whole);
        snapshots.extend(ran.map(|attempt| attempt.start.snapshot.clone()));
        error.map_or(Ok((part, snapshots)), Err)
    }

    /// The table of the sweep, which was read since.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(crate) fn table(self, status: &Status) -> Result<Table> {
        let curves = self.curves;
        let (part, snapshots) = self.whole(status)?;
        let mut joined = Joined::of(false, status.rows.len());
        joined.further.snapshot = snapshots.len() > 1;
        joined.further.function = status.has_several_functions();
        joined.begin(status);
        let part = part.filled(status, curves)?;
        joined.place(status, part);
        joined.table(curves)
    }
}

/// The cells of some records, with their rows.
pub(crate) struct Piece {
    part: Part,
    places: Vec<u32>,
    snapshots: BTreeSet<Option<String>>,
}

impl Taker for Taken<'_> {
    type Part = Result<Piece>;

    const NOTER: Option<Noter> = Some(note::note);
    const TAKES_PARAMETERS: bool = true;

    fn row(&mut self, place: usize, row: &Row) {
        let rows = self.rows;
        if let Some(task) = &row.task_id {
            self.part.set(1, place, task.into(), rows);
        }
        let mut nth = 0;
        for (name, value) in row.params.iter() {
            let at = (place as u32, nth);
            nth += 1;
            let mut set = |cell: Cell<'_>| self.part.parameters.set(name, at, cell, rows);
            match value {
                Value::Null => set(Cell::Null),
                Value::Bool(b) => set(Cell::Bool(*b)),
                Value::Int(int) => set(Cell::Int(*int)),
                Value::Float(float) if float.is_finite() => set(Cell::Float(*float)),
                Value::Str(text) => set(Cell::Text(text)),
                other => set((&other.to_json()).into()),
            }
        }
        if let Some(gpus) = &row.gpu_ids_abs {
            let at = (place as u32, nth);
            self.part.parameters.set(super::DEVICES, at, (&serde_json::json!(gpus)).into(), rows);
        }
    }

    fn part(&self, tree: &Tree, rows: &[Row], records: &[(u64, Record)]) -> Result<Piece> {
        let mut piece =
            Piece { part: Part::default(), places: Vec::new(), snapshots: BTreeSet::new() };
        let most = records.len();
        for (trial, record) in records {
            let Some(place) = table::place_of(rows, *trial) else { continue };
            let at = piece.places.len() as u32;
            piece.places.push(place as u32);
            piece.part.add_record(tree, at, record, self.curves, most)?;
            let ran = record.decisive().and_then(|attempt| attempt.start.snapshot.as_ref());
            if !piece.snapshots.iter().any(|known| known.as_ref() == ran) {
                piece.snapshots.insert(ran.cloned());
            }
        }
        Ok(piece)
    }

    fn take(&mut self, part: Result<Piece>) {
        match part {
            Ok(Piece { part, places, snapshots }) => {
                self.part.join(part, &places, self.rows);
                self.snapshots.extend(snapshots);
            }
            Err(error) => drop(self.error.get_or_insert(error)),
        }
    }
}

impl Part {
    /// Adds what a record says.
    fn add_record(
        &mut self,
        tree: &Tree,
        row: u32,
        record: &Record,
        curves: &[Statistic],
        rows: usize,
    ) -> Result<()> {
        for (column, cell) in (5..).zip(recorded(Some(record))) {
            self.set(column, row as usize, cell, rows);
        }
        self.set(15, row as usize, snapshot(record).map_or(Cell::Null, Cell::Text), rows);
        let end = record.decisive().and_then(|attempt| attempt.end.as_ref());
        let has_result = end.is_some_and(|end| end.result.is_some());
        match record.note.as_deref().filter(|_| curves.is_empty() && !has_result) {
            Some(note) => self.add_note(row, note, rows),
            None => {
                let (metrics, repeated) = super::metrics(tree, record, 1, curves)?;
                self.add_metrics(row, &metrics, &repeated, rows);
            }
        }
        Ok(())
    }

    fn add_note(&mut self, row: u32, bytes: &[u8], rows: usize) {
        let (mut nth, mut name_of) = (0, String::new());
        note::each(bytes, |name, last, ends| {
            let mut add = |name: &str, cell: Cell<'_>| {
                self.metrics.set(name, (row, nth), cell, rows);
                nth += 1;
            };
            add(name, last);
            if ends.are_of(name, 1) {
                for (end, value) in [".min", ".max"].into_iter().zip(ends.both()) {
                    name_of.clear();
                    name_of.push_str(name);
                    name_of.push_str(end);
                    add(&name_of, value);
                }
                super::is_part_of(&mut self.repeated, name);
            }
        });
    }
}

/// Joins sweeps into one table.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn joined(sweeps: Vec<Gathered>) -> Result<Table> {
    let statuses = || sweeps.iter().map(|sweep| &sweep.status);
    let all = statuses().map(|status| status.rows.len()).sum();
    let mut joined = Joined::of(sweeps.len() > 1, all);
    joined.further.snapshot = sweeps.iter().any(|sweep| sweep.snapshots.len() > 1);
    joined.further.function = statuses().any(Status::has_several_functions);
    let curves = sweeps.first().map(|sweep| sweep.curves.clone()).unwrap_or_default();
    for sweep in sweeps {
        joined.add_gathered(sweep)?;
    }
    joined.table(&curves)
}

impl Part {
    /// With how the trials stand, and what the records say that the status has.
    fn filled(mut self, status: &Status, curves: &[Statistic]) -> Result<Self> {
        let rows = status.rows.len();
        let several = status.has_several_functions();
        let piece = |(from, of_rows): (usize, &[Row])| -> Result<(usize, Part)> {
            let mut piece = Part::default();
            let from = from * super::PIECE;
            for (at, row) in of_rows.iter().enumerate() {
                let most = of_rows.len();
                let mut set = |column, cell: Cell<'_>| piece.set(column, at, cell, most);
                let standing = &status.standings[from + at];
                set(0, Cell::whole(row.id));
                set(2, Cell::whole(row.link));
                set(3, Cell::Text(&standing.state.word()));
                set(4, standing.cause.map_or(Cell::Null, |cause| Cell::Text(cause.word())));
                let function = status.function(row.id).filter(|_| several);
                set(16, function.map_or(Cell::Null, Cell::Text));
                match status.records.whole(row.id) {
                    Some(record) => {
                        piece.add_record(&status.tree, at as u32, record, curves, most)?;
                    }
                    None if !status.records.contains_key(&row.id) => {
                        let [_, attempts, ..] = recorded(None);
                        set(6, attempts);
                    }
                    None => {}
                }
            }
            Ok((from, piece))
        };
        for (at, some) in status.rows.chunks(super::CHUNK).enumerate() {
            let before = at * super::CHUNK;
            let pieces: Result<Vec<(usize, Part)>> = threads::in_parallel(|| {
                let pieces = some.par_chunks(super::PIECE).enumerate();
                pieces.map(|(n, rows)| piece((n + before / super::PIECE, rows))).collect()
            });
            for (from, piece) in pieces? {
                let places: Vec<u32> = (from as u32..rows as u32).take(super::PIECE).collect();
                self.join(piece, &places, rows);
            }
        }
        Ok(self)
    }
}

impl Joined {
    fn add_gathered(&mut self, sweep: Gathered) -> Result<()> {
        let Gathered { mut status, part, snapshots: _, curves } = sweep;
        self.begin(&status);
        let part = part.filled(&status, &curves)?;
        // All that they say is in the cells.
        (status.standings, status.records) = Default::default();
        self.place(&status, part);
        Ok(())
    }

    /// Adds the rows of a sweep with these cells.
    fn place(&mut self, status: &Status, part: Part) {
        let (first, source) = self.next();
        let trials = status.rows.iter().zip(first..);
        self.rows.extend(trials.map(|(row, at)| Trial { trial: row.id, source, at }));
        let places: Vec<u32> = (first..self.rows.len() as u32).collect();
        if self.several {
            self.whole.join(part, &places, self.all);
        } else {
            self.whole = part;
        }
        self.name(status, &places);
    }
}
