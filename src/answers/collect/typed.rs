//! The forms of an answer in which columns have types.

use std::io::Write;

use anyhow::Result;

use super::sheet::{Form, Sheet};
use super::{arrow, sqlite};

/// Writes an answer in a form with types. Returns how many rows it has.
///
/// # Errors
/// When the rows cannot be read, or `out` cannot be written.
pub(crate) fn write(sheet: &Sheet, form: Form, out: &mut dyn Write) -> Result<usize> {
    match form {
        Form::Parquet => arrow::parquet(sheet, out),
        Form::Arrow => arrow::ipc(sheet, out),
        Form::Sqlite => sqlite::write(sheet, out),
    }
}
