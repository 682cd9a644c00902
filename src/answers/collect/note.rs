//! What a table has of a trial's metric lines, as the index keeps it: readers need not open the files again. Another content
//! needs another format of the index.

use serde_json::Value;

use super::Cell;
use super::{Ends, Seen, seen};
use crate::sweep::tree::records::{In, Origin, Out, Record};

/// Notes the metric lines of a record; `None` if they cannot be read.
pub(crate) fn note(from: Origin<'_>, record: &Record) -> Option<Vec<u8>> {
    let all = seen(from, record, &[]).ok()?;
    let mut bytes = Vec::new();
    for (name, Seen { last, ends, .. }) in &all {
        let mut out = Out(&mut bytes);
        out.text(name);
        put(&mut out, Cell::from(last));
        out.number(ends.numbers);
        if ends.numbers > 0 {
            ends.both().into_iter().for_each(|end| put(&mut out, end));
        }
    }
    Some(bytes)
}

fn put(out: &mut Out<'_>, cell: Cell<'_>) {
    match cell {
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
}

/// Calls `with` for each name of a note, in the order in which the trial logged them, with the last value.
pub(super) fn each<'a>(note: &'a [u8], mut with: impl FnMut(&'a str, Cell<'_>, Ends)) {
    let mut from = In(note);
    while !from.0.is_empty() && one(&mut from, &mut with).is_some() {}
}

fn one<'a>(from: &mut In<'a>, with: &mut impl FnMut(&'a str, Cell<'_>, Ends)) -> Option<()> {
    let name = from.str()?;
    let mut json = Value::Null;
    let last = take(from, &mut json)?;
    let mut ends = Ends { numbers: from.number()?, ..Ends::default() };
    if ends.numbers > 0 {
        let mut none = [Value::Null, Value::Null];
        let [first, second] = &mut none;
        ends = Ends::of(ends.numbers, [take(from, first)?, take(from, second)?]);
    }
    with(name, last, ends);
    Some(())
}

/// Reads a cell; `json` holds a list or a table.
fn take<'a: 'b, 'b>(from: &mut In<'a>, json: &'b mut Value) -> Option<Cell<'b>> {
    Some(match from.byte()? {
        0 => Cell::Null,
        1 => Cell::Bool(false),
        2 => Cell::Bool(true),
        3 => Cell::Int(from.number()? as i64),
        4 => Cell::Large(from.number()?),
        5 => Cell::Float(from.float()?),
        6 => Cell::Text(from.str()?),
        _ => {
            *json = serde_json::from_str(from.str()?).ok()?;
            Cell::from(&*json)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ends_are_read_as_they_were_put() {
        let large = json!(u64::MAX);
        let cases = [
            json!([3, -1, 9_007_199_254_740_993_i64]),
            json!([1, large]),
            json!([1, 2.5]),
            json!([1, "nan", 3]),
            json!(["nan", "nan"]),
            json!([1.0, "inf"]),
        ];
        let expected = [
            json!([-1, 9_007_199_254_740_993_i64]),
            json!([1, large]),
            json!([1.0, 2.5]),
            json!([1.0, 3.0]),
            json!(["nan", "nan"]),
            json!([1.0, "inf"]),
        ];
        for (values, expected) in cases.iter().zip(&expected) {
            let mut ends = Ends::default();
            values.as_array().unwrap().iter().for_each(|value| ends.add(value.into()));
            let mut bytes = Vec::new();
            let mut out = Out(&mut bytes);
            out.text("n");
            put(&mut out, Cell::Null);
            out.number(ends.numbers);
            ends.both().into_iter().for_each(|end| put(&mut out, end));
            let mut seen = Vec::new();
            each(&bytes, |name, _, ends| {
                seen.push((name.to_owned(), ends.numbers, json!(ends.both().map(Cell::value))));
            });
            assert_eq!(seen, [("n".to_owned(), ends.numbers, expected.clone())]);
        }
    }
}
