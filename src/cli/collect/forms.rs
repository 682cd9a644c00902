//! The rows of a table as text, one at a time, and how large a table may be.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::collect::{Cells, text};
use crate::fault::Fault;
use crate::words::thousands;

/// Most columns of a table in which every row has all of them.
const MOST_COLUMNS: usize = 10_000;

/// Most cells of an aligned table, which is in memory as a whole.
pub(super) const MOST_CELLS: usize = 20_000_000;

/// Refuses a table that would be mostly empty, and huge.
///
/// # Errors
/// When it has too many columns.
pub(super) fn check_columns(columns: &[String]) -> Result<()> {
    if columns.len() <= MOST_COLUMNS {
        return Ok(());
    }
    let sentence = format!("a table of {} columns", thousands(columns.len() as u64));
    Err(Fault::request(sentence)
        .hint("write JSON lines, in which a row has its own members alone: `--format jsonl`")
        .into())
}

/// The fault of an aligned table that does not fit.
pub(super) fn too_large() -> Fault {
    Fault::request("too many cells for an aligned table")
        .hint("write a file, which is never in memory: `-o steps.csv`")
}

/// Writes a row as CSV.
///
/// # Errors
/// When it cannot be written.
pub(super) fn csv_row<W: Write>(
    csv: &mut csv::Writer<W>,
    cells: impl Iterator<Item = Value>,
    safe: bool,
) -> Result<()> {
    for cell in cells {
        let is_text = matches!(cell, Value::String(_));
        let mut shown = text(&cell);
        if safe && is_text && shown.starts_with(['=', '+', '-', '@', '\t', '\r']) {
            shown.insert(0, '\'');
        }
        csv.write_field(shown)?;
    }
    Ok(csv.write_record(None::<&[u8]>)?)
}

/// A row as a JSON object: all columns, or where they are too many those that it has.
pub(in crate::cli) fn object(columns: &[String], row: &Cells) -> Map<String, Value> {
    let own = |(c, value): (usize, &Value)| (columns[c].clone(), value.clone());
    if columns.len() > MOST_COLUMNS {
        return row.iter().map(own).collect();
    }
    (0..columns.len()).map(|c| own((c, row.get(c)))).collect()
}

/// Writes a row as a JSON line.
///
/// # Errors
/// When it cannot be written.
pub(super) fn jsonl_row(out: &mut dyn Write, columns: &[String], row: &Cells) -> Result<()> {
    serde_json::to_writer(&mut *out, &object(columns, row))?;
    Ok(out.write_all(b"\n")?)
}
