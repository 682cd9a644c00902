//! The rows of a table as text, one at a time, and how large a table may be.

use std::borrow::Cow;
use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::answers::collect::Cell;
use crate::answers::collect::columns::{Column, Kind};
use crate::answers::collect::sheet::Line;
use crate::base::fault::Fault;
use crate::base::host::clock;
use crate::base::words::{printable, thousands};

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
pub(super) fn csv_row<'a, W: Write>(
    csv: &mut csv::Writer<W>,
    cells: impl Iterator<Item = Shown<'a>>,
    safe: bool,
) -> Result<()> {
    // One buffer for all cells: a table has millions of them.
    let mut buffer = String::new();
    for shown in cells {
        let text = shown.text_in(&mut buffer);
        if safe && shown.is_text() && text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
            csv.write_field(format!("'{text}"))?;
        } else {
            csv.write_field(text)?;
        }
    }
    Ok(csv.write_record(None::<&[u8]>)?)
}

/// A cell as text forms have it.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    cell: Cell<'a>,
    /// Whether it is a time: written as RFC 3339.
    is_time: bool,
}

impl<'a> Shown<'a> {
    /// A text.
    pub(super) fn text(text: &'a str) -> Self {
        Self { cell: Cell::Text(text), is_time: false }
    }

    /// A cell of a column.
    pub(super) fn of(column: &Column, cell: Cell<'a>) -> Self {
        Self { cell, is_time: column.kind == Kind::Time && cell.as_f64().is_some() }
    }

    /// As CSV has it. R takes a column of numbers with `nan` for one of texts, and reads `NaN` as everybody does.
    pub(super) fn for_csv(self) -> Self {
        match self.cell {
            Cell::Text("nan") => Self { cell: Cell::Text("NaN"), ..self },
            _ => self,
        }
    }

    /// Its text; `buffer` holds the text of what is none.
    fn text_in<'b>(self, buffer: &'b mut String) -> &'b str
    where
        'a: 'b,
    {
        buffer.clear();
        match self.cell {
            Cell::Text(text) => return text,
            cell if self.is_time => buffer.extend(cell.as_f64().map(clock::utc)),
            cell => cell.write_in(buffer),
        }
        buffer
    }

    /// Its text.
    pub(super) fn into_text(self) -> String {
        let mut buffer = String::new();
        match self.cell {
            Cell::Text(text) => text.to_owned(),
            _ => {
                self.text_in(&mut buffer);
                buffer
            }
        }
    }

    /// Whether it stands for nothing but a text: infinity and what is not a number are texts in JSON.
    fn is_text(self) -> bool {
        self.is_time || (self.cell.as_str().is_some() && self.cell.number().is_none())
    }
}

fn time(column: &Column, cell: Cell<'_>) -> Option<String> {
    cell.as_f64().filter(|_| column.kind == Kind::Time).map(clock::utc)
}

/// A row as a JSON object: all columns, or where they are too many those that it has.
pub(in crate::cli) fn object(
    columns: &[String],
    cells: Vec<(usize, Cell<'_>)>,
) -> Map<String, Value> {
    let mut object = Map::new();
    if columns.len() <= MOST_COLUMNS {
        object.extend(columns.iter().map(|name| (name.clone(), Value::Null)));
    }
    object.extend(cells.into_iter().map(|(c, cell)| (columns[c].clone(), cell.value())));
    object
}

/// Writes a row as a JSON line: all columns, or where they are too many those that it has.
///
/// # Errors
/// When it cannot be written.
pub(super) fn jsonl_row(out: &mut Vec<u8>, columns: &[Column], row: &Line<'_>) -> Result<()> {
    let member = |out: &mut Vec<u8>, at: usize, (c, cell): (usize, Cell<'_>)| -> Result<()> {
        out.push(if at == 0 { b'{' } else { b',' });
        serde_json::to_writer(&mut *out, &columns[c].name)?;
        out.push(b':');
        Ok(match (time(&columns[c], cell), cell) {
            (Some(time), _) => serde_json::to_writer(&mut *out, &time),
            (None, Cell::Null) => serde_json::to_writer(&mut *out, &()),
            (None, Cell::Bool(b)) => serde_json::to_writer(&mut *out, &b),
            (None, Cell::Int(int)) => serde_json::to_writer(&mut *out, &int),
            (None, Cell::Large(large)) => serde_json::to_writer(&mut *out, &large),
            (None, Cell::Float(float)) => serde_json::to_writer(&mut *out, &float),
            (None, Cell::Text(text)) => serde_json::to_writer(&mut *out, text),
            (None, Cell::Other(value)) => serde_json::to_writer(&mut *out, value),
        }?)
    };
    let before = out.len();
    if columns.len() > MOST_COLUMNS {
        let mut cells = row.cells().into_iter().enumerate();
        cells.try_for_each(|(at, cell)| member(out, at, cell))?;
    } else {
        (0..columns.len()).try_for_each(|c| member(out, c, (c, row.get(c))))?;
    }
    if out.len() == before {
        out.push(b'{');
    }
    out.extend(b"}\n");
    Ok(())
}

/// Writes a row as Markdown (GitHub's tables): a cell is one line, in which nothing is markup.
///
/// # Errors
/// When it cannot be written.
pub(super) fn markdown_row<'a>(
    out: &mut dyn Write,
    cells: impl Iterator<Item = Cow<'a, str>>,
) -> Result<()> {
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
