//! What a cell of a table means: the parameters of trials in CSV, as docs/plan.md ("What a cell means") states it.
//!
//! A table has no types, and programs that write tables disagree about them. So a cell means something only if it would come
//! back as it is written; any other cell is refused with the two ways to write it.

use serde_json::{Map, Value as Json};

/// Why a list of trials is not read: a sentence, and what to write instead.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) sentence: String,
    pub(super) hint: String,
}

/// The parameters of the trials of a list, each with its line, or its number from 1.
pub(super) type Rows = Vec<(usize, Map<String, Json>)>;

/// What stands for a missing value in R, pandas, NumPy, Python and spreadsheets. As a text, a template would print it.
const MISSING: [&str; 9] = ["NA", "N/A", "#N/A", "NaN", "NAN", "None", "NULL", "Null", "<NA>"];

/// The trials of a table: one object for each line with a value; a column `resources.KEY` is a key of `resources`. Each comes
/// with its line.
///
/// # Errors
/// A [`Refusal`] that names the line and the column.
pub(super) fn rows(name: &str, text: &str) -> Result<Rows, Refusal> {
    let wrong = |e: csv::Error| Refusal {
        sentence: format!("`{name}`: this is not CSV: {e}"),
        hint:
            "write a line of names, then a line of values for each trial, with commas between them"
                .to_owned(),
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = columns(name, reader.headers().map_err(wrong)?)?;
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    let start = |reader: &csv::Reader<&[u8]>| reader.position().byte() as usize;
    let mut row_start = start(&reader);
    while reader.read_record(&mut record).map_err(wrong)? {
        let line = record.position().map_or(0, |place| place.line() as usize);
        let written = text.get(row_start..start(&reader)).unwrap_or("");
        row_start = start(&reader);
        let cell_place = |column: &str| format!("`{name}:{line}`: `{column}`");
        let quoted = quoted(written, &record).map_err(|column| Refusal {
            sentence: format!("{} has quotes that are not around the whole cell", cell_place(&names[column])),
            hint: "begin and end the cell with `\"`, without blanks outside of them, and write `\"\"` for a quote within"
                .to_owned(),
        })?;
        let mut row = Map::new();
        let mut resources = Map::new();
        for ((column, cell), is_quoted) in names.iter().zip(&record).zip(quoted) {
            let value = meaning(cell, is_quoted).map_err(|(why, hint)| Refusal {
                sentence: format!("{} is `{cell}`, {why}", cell_place(column)),
                hint,
            })?;
            let Some(value) = value else { continue };
            match column.strip_prefix("resources.") {
                Some(key) => resources.insert(key.to_owned(), value),
                None => row.insert(column.clone(), value),
            };
        }
        if !resources.is_empty() {
            row.insert("resources".to_owned(), Json::Object(resources));
        }
        // Spreadsheets end in lines of empty cells.
        if !row.is_empty() {
            rows.push((line, row));
        }
    }
    Ok(rows)
}

/// The names of the columns, without the blanks around them.
fn columns(file: &str, head: &csv::StringRecord) -> Result<Vec<String>, Refusal> {
    let names: Vec<String> = head.iter().map(|name| name.trim().to_owned()).collect();
    let refuse = |what: String, hint: &str| {
        Err(Refusal { sentence: format!("`{file}`: {what}"), hint: hint.to_owned() })
    };
    if let [name] = &*names
        && let Some(mark) = name.find([';', '\t'])
    {
        let mark = if name[mark..].starts_with(';') { "semicolons" } else { "tabs" };
        let hint = "save it with commas between the cells, and with points in numbers (`0.1`)";
        return refuse(format!("its columns are separated by {mark}"), hint);
    }
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() || name.starts_with("Unnamed: ") {
            let hint = "give it a name or remove it; pandas leaves out its index with `to_csv(..., index=False)`";
            return refuse(format!("column {} has no name", number + 1), hint);
        }
        if names[..number].contains(name) {
            return refuse(format!("two columns are called `{name}`"), "keep one of them");
        }
    }
    Ok(names)
}

/// Which cells of a record stand in quotes: a quote and a cell's length tell where the next one begins.
///
/// # Errors
/// The number of the cell whose quotes are not around all of it.
fn quoted(written: &str, record: &csv::StringRecord) -> Result<Vec<bool>, usize> {
    // Empty lines stand before a record, its end of line after it.
    let mut unread = written.trim_matches(['\r', '\n']);
    let mut quoted_cells = Vec::with_capacity(record.len());
    for (number, cell) in record.iter().enumerate() {
        let is_quoted = unread.starts_with('"');
        let inside = cell.matches('"').count();
        let length = if is_quoted { cell.len() + inside + 2 } else { cell.len() };
        let (cell, after) = unread.split_at_checked(length).ok_or(number)?;
        let is_whole = if is_quoted { cell.ends_with('"') } else { inside == 0 };
        unread = match after.strip_prefix(',') {
            Some(next) if is_whole => next,
            None if is_whole && after.is_empty() => after,
            _ => return Err(number),
        };
        quoted_cells.push(is_quoted);
    }
    Ok(quoted_cells)
}

/// The value of a cell, if it is set; otherwise why it has none, and how to write what may be meant.
fn meaning(cell: &str, is_quoted: bool) -> Result<Option<Json>, (String, String)> {
    let as_text = |shown: &str| format!("{shown}, or `\"{cell}\"` in quotes for a text");
    if let Some(first @ ('[' | '{' | '"')) = cell.trim_start().chars().next() {
        // A list has commas, so that CSV wants quotes around it.
        let read = serde_json::from_str(cell).ok();
        let read = read.filter(|_| first == '"' || beyond_64_bits(cell).is_none());
        return read.map(Some).ok_or_else(|| {
            let text = Json::from(cell).to_string().replace('"', "\"\"");
            let hint = format!(
                "write JSON (`\"[true, 0.1, \"\"a\"\"]\"` in a cell), or `\"{text}\"` for a text"
            );
            ("which begins like a list or a table and is none in JSON".to_owned(), hint)
        });
    }
    if is_quoted {
        return Ok(Some(Json::from(cell)));
    }
    let cell = cell.trim();
    match cell {
        "" => return Ok(None),
        "null" => return Ok(Some(Json::Null)),
        "true" | "True" | "TRUE" => return Ok(Some(Json::from(true))),
        "false" | "False" | "FALSE" => return Ok(Some(Json::from(false))),
        _ => {}
    }
    let is_error = cell.starts_with('#') && cell.ends_with(['!', '?']);
    if is_error || MISSING.contains(&cell) {
        let hint = "leave the cell empty where the parameter is not set, write `null` for no value (`None`)";
        return Err(("which stands for a missing value".to_owned(), as_text(hint)));
    }
    if let Some(whole) = cell.parse::<i64>().ok().filter(|whole| whole.to_string() == cell) {
        return Ok(Some(Json::from(whole)));
    }
    let is_number =
        cell.ends_with(|c: char| c.is_ascii_digit() || c == '.') && cell.parse::<f64>().is_ok();
    if !is_number {
        return Ok(Some(Json::from(cell)));
    }
    if let Some(number) = crate::plan::value::float_as_written(cell) {
        return Ok(Some(Json::from(number)));
    }
    let number: f64 = cell.parse().unwrap_or(f64::NAN);
    let is_integer = cell.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit());
    let hint = if is_integer && cell.parse::<i64>().is_err() || !number.is_finite() {
        format!("write `\"{cell}\"` in quotes for a text")
    } else if is_integer {
        as_text(&format!("write `{}`", cell.parse::<i64>().unwrap_or(0)))
    } else {
        as_text(&format!("write `{}`", crate::plan::value::float_text(number)))
    };
    Err(("a number that would not come back as it is written".to_owned(), hint))
}

/// The first whole number of a JSON text that 64 bits with a sign do not hold: JSON's readers would round it.
pub(super) fn beyond_64_bits(json: &str) -> Option<&str> {
    let mut unread = json;
    loop {
        let token_start = unread.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
        unread = &unread[token_start..];
        if let Some(text) = unread.strip_prefix('"') {
            let mut is_escaped = false;
            let end = text.find(|c| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            })?;
            unread = &text[end + 1..];
            continue;
        }
        let is_part = |c: char| c.is_ascii_digit() || ['-', '+', '.', 'e', 'E'].contains(&c);
        let end = unread.find(|c| !is_part(c)).unwrap_or(unread.len());
        let (number, after) = unread.split_at(end);
        if !number.contains(['.', 'e', 'E']) && number.len() > 1 && number.parse::<i64>().is_err() {
            return Some(number);
        }
        unread = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(table: &str) -> Result<Vec<String>, String> {
        let rows = rows("t.csv", table).map_err(|e| format!("{} | {}", e.sentence, e.hint))?;
        Ok(rows.into_iter().map(|(line, row)| format!("{line} {}", Json::Object(row))).collect())
    }

    #[test]
    fn a_cell_is_what_it_would_come_back_as() {
        let cells = [
            ("1", "1"),
            ("-7", "-7"),
            ("9223372036854775807", "9223372036854775807"),
            ("0.1", "0.1"),
            ("1.0", "1.0"),
            ("0.00001", "0.00001"),
            ("1e-05", "0.00001"),
            ("1E+05", "100000.0"),
            ("1.5e3", "1500.0"),
            ("1.000000000000000056e-01", "0.1"),
            ("True", "true"),
            ("TRUE", "true"),
            ("false", "false"),
            ("null", "null"),
            ("  adam ", "\"adam\""),
            ("nan", "\"nan\""),
            ("-inf", "\"-inf\""),
            ("0x10", "\"0x10\""),
            ("1_000", "\"1_000\""),
            ("2026-11-28", "\"2026-11-28\""),
            ("\"3.10\"", "\"3.10\""),
            ("\"True\"", "\"True\""),
            ("\" a \"", "\" a \""),
            ("\"\"", "\"\""),
            ("\"[1, 2.5, null]\"", "[1,2.5,null]"),
            ("[1]", "[1]"),
            ("\"{\"\"a\"\": 1}\"", "{\"a\":1}"),
            ("\"\"\"[1]\"\"\"", "\"[1]\""),
            ("\"two\nlines, \"\"one\"\" cell\"", "\"two\\nlines, \\\"one\\\" cell\""),
        ];
        for (cell, value) in cells {
            for end in ["\n", "\r\n", ""] {
                let row = format!("2 {{\"a\":{value},\"b\":0}}");
                assert_eq!(of(&format!("a,b\n{cell},0{end}")), Ok(vec![row]), "{cell}");
                let row = format!("2 {{\"b\":0,\"a\":{value}}}");
                assert_eq!(of(&format!("b, a\n0,{cell}{end}")), Ok(vec![row]), "{cell}");
            }
        }
    }

    #[test]
    fn a_cell_that_would_come_back_as_something_else_is_refused() {
        for (cell, hint) in [
            ("3.10", "write `3.1`, or `\"3.10\"` in quotes for a text"),
            ("007", "write `7`, or `\"007\"` in quotes for a text"),
            ("+5", "write `5`, or `\"+5\"` in quotes for a text"),
            (".5", "write `0.5`, or `\".5\"` in quotes for a text"),
            ("5.", "write `5.0`, or `\"5.\"` in quotes for a text"),
            ("12e4", "write `120000.0`, or `\"12e4\"` in quotes for a text"),
            ("1E5", "write `100000.0`, or `\"1E5\"` in quotes for a text"),
            ("20241127123456789012", "write `\"20241127123456789012\"` in quotes for a text"),
            (
                "0.30000000000000000001",
                "write `0.3`, or `\"0.30000000000000000001\"` in quotes for a text",
            ),
            ("1e+999", "write `\"1e+999\"` in quotes for a text"),
            (
                "[a]",
                "write JSON (`\"[true, 0.1, \"\"a\"\"]\"` in a cell), or `\"\"\"[a]\"\"\"` for a text",
            ),
            (
                "[20241127123456789012]",
                "write JSON (`\"[true, 0.1, \"\"a\"\"]\"` in a cell), or `\"\"\"[20241127123456789012]\"\"\"` for a text",
            ),
        ] {
            let error = of(&format!("a,b\n\n1,2\n{cell},3\n")).unwrap_err();
            assert!(error.starts_with(&format!("`t.csv:4`: `a` is `{cell}`, ")), "{error}");
            assert!(error.ends_with(&format!(" | {hint}")), "{error}");
        }
        for cell in ["NaN", "NA", "None", "#N/A", "#DIV/0!", "#NAME?"] {
            let error = of(&format!("a\n{cell}\n")).unwrap_err();
            assert!(
                error.contains(&format!("`a` is `{cell}`, which stands for a missing value")),
                "{error}"
            );
        }
        for cell in ["\"a\"b", "a\"b", " \"a\"", "\"a\" ", "\"a\"b\""] {
            let error = of(&format!("a,b\n{cell},3\n")).unwrap_err();
            assert!(
                error.starts_with("`t.csv:2`: `a` has quotes that are not around"),
                "{cell}: {error}"
            );
        }
    }

    #[test]
    fn lines_of_empty_cells_are_no_trials_and_columns_have_names() {
        let rows = of("lr, width,resources.memory\n0.1,64,2G\n\n,,\n , ,\n,32,\n,,\n").unwrap();
        assert_eq!(
            rows,
            [r#"2 {"lr":0.1,"width":64,"resources":{"memory":"2G"}}"#, r#"6 {"width":32}"#]
        );
        for (table, said) in [
            ("lr;width\n0,1;2\n", "its columns are separated by semicolons"),
            ("lr\twidth\n1\t2\n", "its columns are separated by tabs"),
            (",lr\n0,1\n", "column 1 has no name"),
            ("Unnamed: 0,lr\n0,1\n", "column 1 has no name"),
            ("a, a\n1,2\n", "two columns are called `a`"),
            ("a,b\n1\n", "this is not CSV"),
        ] {
            let error = of(table).unwrap_err();
            assert!(error.starts_with(&format!("`t.csv`: {said}")), "{error}");
        }
    }

    #[test]
    fn whole_numbers_of_json_beyond_64_bits_are_found() {
        assert_eq!(
            beyond_64_bits(r#"[{"a": -9223372036854775808, "b\"": "99999999999999999999"}, 1e30]"#),
            None
        );
        assert_eq!(
            beyond_64_bits(r#"[{"a\\": [1, 9223372036854775808]}]"#),
            Some("9223372036854775808")
        );
    }
}
