//! The rows of a table as text, one at a time, and how large a table may be.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::collect::columns::{Column, Kind};
use crate::collect::{Cells, text};
use crate::fault::Fault;
use crate::host::clock;
use crate::plan::value::json_float;
use crate::words::{printable, thousands};

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
        // Infinity and what is not a number are texts in JSON.
        let is_text = cell.is_string() && json_float(&cell).is_none();
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

/// A cell as text forms have it: a time as RFC 3339.
pub(super) fn plain(column: &Column, value: &Value) -> Value {
    match value.as_f64().filter(|_| column.kind == Kind::Time) {
        Some(time) => clock::utc(time).into(),
        None => value.clone(),
    }
}

/// Writes a row as a JSON line.
///
/// # Errors
/// When it cannot be written.
pub(super) fn jsonl_row(
    out: &mut dyn Write,
    columns: &[Column],
    names: &[String],
    row: &Cells,
) -> Result<()> {
    let mut object = object(names, row);
    // Of the cells that the row has: a table may have a column for each of its rows.
    for (c, _) in row.iter().filter(|(c, _)| columns[*c].kind == Kind::Time) {
        let column = &columns[c];
        if let Some(value) = object.get_mut(&column.name) {
            *value = plain(column, value);
        }
    }
    serde_json::to_writer(&mut *out, &object)?;
    Ok(out.write_all(b"\n")?)
}

/// Writes a row as Markdown (GitHub's tables): a cell is one line, in which nothing is markup.
///
/// # Errors
/// When it cannot be written.
pub(super) fn markdown_row(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> Result<()> {
    let mut line = String::from("|");
    for cell in cells {
        line.push(' ');
        for c in printable(&cell).chars() {
            let c = if matches!(c, '\n' | '\t') { ' ' } else { c };
            if "\\|`*_<>[]~&#".contains(c) {
                line.push('\\');
            }
            line.push(c);
        }
        line.push_str(" |");
    }
    line.push('\n');
    Ok(out.write_all(line.as_bytes())?)
}

/// Writes the line below the heads of a Markdown table.
///
/// # Errors
/// When it cannot be written.
pub(super) fn markdown_line(out: &mut dyn Write, columns: usize) -> Result<()> {
    Ok(out.write_all(format!("|{}\n", " --- |".repeat(columns)).as_bytes())?)
}
