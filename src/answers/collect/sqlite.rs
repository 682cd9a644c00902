//! An answer as a SQLite database: a table of rows with a type for each column, and the data dictionary as the table `columns`.

use std::collections::HashSet;
use std::io::Write;

use anyhow::Result;
use rusqlite::types::Value as Stored;
use rusqlite::{Connection, MAIN_DB, params, params_from_iter};

use super::Cell;
use super::columns::{Column, Kind};
use super::sheet::Sheet;
use super::types::Type;
use crate::base::fault::Fault;
use crate::base::host::clock;
use crate::base::words::thousands;

/// Most columns of a table of SQLite, as it is usually built.
const MOST_COLUMNS: usize = 2000;

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// True and false are 1 and 0.
    Integer,
    Real,
    Text,
    /// As text, RFC 3339 in UTC.
    Time,
}

impl Shape {
    fn of(column: &Column, of: &Type) -> Self {
        match (column.kind, of) {
            (Kind::Bool | Kind::Int | Kind::Bytes, _) => Self::Integer,
            (Kind::Any, Type::Bool | Type::Int) => Self::Integer,
            (Kind::Float | Kind::Seconds, _) => Self::Real,
            (Kind::Any, Type::Float | Type::NotFinite) => Self::Real,
            (Kind::Time, _) => Self::Time,
            (Kind::Any | Kind::Text | Kind::Word, _) => Self::Text,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Real => "REAL",
            Self::Text | Self::Time => "TEXT",
        }
    }

    fn cell(self, value: Cell<'_>) -> Stored {
        let cell = match self {
            Self::Integer => value.as_i64().or(value.as_bool().map(i64::from)).map(Stored::Integer),
            // SQLite has no NaN, and no value is what its functions leave out.
            Self::Real => value.number().filter(|number| !number.is_nan()).map(Stored::Real),
            Self::Text => (!value.is_null()).then(|| Stored::Text(value.text().into_owned())),
            Self::Time => value.as_f64().map(|time| Stored::Text(clock::utc(time))),
        };
        cell.unwrap_or(Stored::Null)
    }
}

/// Writes an answer. Returns how many rows it has.
///
/// # Errors
/// When the rows cannot be read, there are too many columns, or `out` cannot be written.
pub(super) fn write(sheet: &Sheet, out: &mut dyn Write) -> Result<usize> {
    if sheet.columns.len() > MOST_COLUMNS {
        let sentence =
            format!("SQLite has no table of {} columns", thousands(sheet.columns.len() as u64));
        return Err(Fault::request(sentence)
            .hint("choose some with `--columns`, or write another format: `--format parquet`")
            .into());
    }
    let types = sheet.types()?;
    let shapes: Vec<Shape> =
        sheet.columns.iter().zip(&types).map(|(column, (of, _))| Shape::of(column, of)).collect();
    let names = names(&sheet.columns);
    let mut database = Connection::open_in_memory()?;
    let part = database.transaction()?;
    let declared: Vec<String> = names
        .iter()
        .zip(&shapes)
        .map(|(name, shape)| format!("{} {}", quoted(name), shape.word()))
        .collect();
    let table = sheet.name();
    part.execute_batch(&format!(
        "CREATE TABLE {table} ({}) STRICT; CREATE TABLE columns (name TEXT PRIMARY KEY, meaning TEXT, unit TEXT, source TEXT) \
         STRICT, WITHOUT ROWID;",
        declared.join(", ")
    ))?;
    let mut rows = 0;
    {
        let places = vec!["?"; names.len()].join(", ");
        let mut insert = part.prepare(&format!("INSERT INTO {table} VALUES ({places})"))?;
        sheet.each(&mut |row| {
            rows += 1;
            let cells = shapes.iter().enumerate().map(|(c, shape)| shape.cell(row.get(c)));
            insert.execute(params_from_iter(cells))?;
            Ok(())
        })?;
        let mut insert = part.prepare("INSERT INTO columns VALUES (?, ?, ?, ?)")?;
        for (name, column) in names.iter().zip(&sheet.columns) {
            insert.execute(params![name, column.meaning, column.unit, column.source])?;
        }
    }
    part.commit()?;
    out.write_all(&database.serialize(MAIN_DB)?)?;
    Ok(rows)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names for columns. To SQLite, `LR` and `lr` are the same: the second one is `lr_2`.
fn names(columns: &[Column]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let own = columns.iter().map(|column| column.name.to_ascii_lowercase());
    let all: HashSet<String> = own.collect();
    let mut name = |column: &Column| {
        // A zero byte would end the name.
        let plain = column.name.replace('\0', "");
        let numbered = (2..).map(|n| format!("{plain}_{n}"));
        let is_free = |name: &String| {
            let lower = name.to_ascii_lowercase();
            !taken.contains(&lower) && (name == &plain || !all.contains(&lower))
        };
        let found = std::iter::once(plain.clone()).chain(numbered).find(is_free);
        let found = found.unwrap_or(plain.clone());
        taken.insert(found.to_ascii_lowercase());
        found
    };
    columns.iter().map(&mut name).collect()
}
