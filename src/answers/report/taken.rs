//! What a page is made of that is taken of a sweep while it is read: neither its rows nor its records are kept.

use anyhow::Result;

use super::origin::Told;
use super::timeline::Spans;
use crate::answers::collect::Table;
use crate::answers::collect::gather;
use crate::answers::usage;
use crate::sweep::status::{Status, Taker};
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::records::index::Noter;
use crate::sweep::tree::table::{self, Row};

/// What was taken; nothing, if the status has all records.
pub(crate) struct Taken {
    table: Option<gather::Taken<'static>>,
    pub(super) usage: usage::Taken,
    pub(super) spans: Spans,
    pub(super) told: Told,
}

impl Taken {
    /// Of a sweep that is still to be read. `gathers`: it is then taken while it is read.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn start(tree: &Tree, gathers: bool) -> Result<Self> {
        let table = gathers.then(|| gather::Taken::of(tree, &[]));
        let (spans, told) = (Spans::default(), Told::default());
        Ok(Self { table, usage: usage::Taken::of(tree)?, spans, told })
    }

    /// The table of the sweep.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub(super) fn table(&mut self, status: &Status) -> Result<Table> {
        match self.table.take() {
            Some(taken) => taken.table(status),
            None => crate::answers::collect::table(std::slice::from_ref(status), &[]),
        }
    }
}

/// What was made of some records.
pub(crate) struct Part {
    cells: Option<Result<gather::Piece>>,
    ended: usage::Ended,
    spans: Spans,
    told: Told,
}

impl Taker for Taken {
    type Part = Part;

    const NOTER: Option<Noter> = gather::Taken::NOTER;
    const TAKES_PARAMETERS: bool = true;

    fn row(&mut self, place: usize, row: &Row) {
        self.table.iter_mut().for_each(|table| table.row(place, row));
        self.usage.row(place, row);
    }

    fn part(&self, tree: &Tree, rows: &[Row], records: &[(u64, Record)]) -> Part {
        let (mut spans, mut told) = (Spans::default(), Told::default());
        for (trial, record) in records {
            told.add(record);
            if table::place_of(rows, *trial).is_some() {
                told.add_code(*trial, record);
                spans.add(record, None);
            }
        }
        let cells = self.table.as_ref().map(|table| table.part(tree, rows, records));
        Part { cells, ended: self.usage.part(tree, rows, records), spans, told }
    }

    fn take(&mut self, Part { cells, ended, spans, told }: Part) {
        self.table.iter_mut().zip(cells).for_each(|(table, cells)| table.take(cells));
        self.usage.take(ended);
        self.spans.join(spans);
        self.told.join(told);
    }
}
