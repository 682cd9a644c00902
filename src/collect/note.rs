//! What a table has of a trial's metric lines, as the index keeps it: readers need not open the files again. Another content
//! needs another format of the index.

use std::borrow::Cow;

use serde_json::Value;

use super::Cell;
use super::{Ends, Seen, seen};
use crate::tree::records::{In, Origin, Out, Record};

/// Notes the metric lines of a record; `None` if they cannot be read.
pub(crate) fn note(from: Origin<'_>, record: &Record) -> Option<Vec<u8>> {
    let all = seen(from, record, &[]).ok()?;
    let mut bytes = Vec::new();
    for (name, Seen { last, ends, .. }) in &all {
        let mut out = Out(&mut bytes);
        out.text(name);
        match Cell::from(last) {
            Cell::Null => out.byte(0),
            Cell::Bool(b) => out.byte(1 + u8::from(b)),
            Cell::Int(int) => {
                out.byte(3);
                out.number(int as u64);
            }
            Cell::Large(large) => {
                out.byte(4);
                out.number(large);
            }
            Cell::Float(float) => {
                out.byte(5);
                out.float(float);
            }
            Cell::Text(text) => {
                out.byte(6);
                out.text(text);
            }
            Cell::Other(value) => {
                out.byte(7);
                out.text(&value.to_string());
            }
        }
        out.number(ends.numbers);
        if ends.numbers > 0 {
            out.float(ends.least);
            out.float(ends.greatest);
        }
    }
    Some(bytes)
}

/// Calls `with` for each name of a note, in the order in which the trial logged them, with the last value.
pub(super) fn each<'a>(note: &'a [u8], mut with: impl FnMut(&'a str, Cell<'_>, Ends)) {
    let mut from = In(note);
    while !from.0.is_empty() && one(&mut from, &mut with).is_some() {}
}

fn one<'a>(from: &mut In<'a>, with: &mut impl FnMut(&'a str, Cell<'_>, Ends)) -> Option<()> {
    let name = from.str()?;
    let mut json = Cow::Borrowed(&Value::Null);
    let last = match from.byte()? {
        0 => Cell::Null,
        1 => Cell::Bool(false),
        2 => Cell::Bool(true),
        3 => Cell::Int(from.number()? as i64),
        4 => Cell::Large(from.number()?),
        5 => Cell::Float(from.float()?),
        6 => Cell::Text(from.str()?),
        _ => {
            json = Cow::Owned(serde_json::from_str(from.str()?).ok()?);
            Cell::from(&*json)
        }
    };
    let mut ends = Ends { numbers: from.number()?, ..Ends::default() };
    if ends.numbers > 0 {
        (ends.least, ends.greatest) = (from.float()?, from.float()?);
    }
    with(name, last, ends);
    drop(json);
    Some(())
}
