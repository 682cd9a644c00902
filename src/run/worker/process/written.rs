//! Metrics in files that a program leaves: `[metrics] file`.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::plan::value::json_float;
use crate::plan::{CommandTemplate, Params};
use crate::run::worker::process::lines::parse_lenient;
use crate::sweep::tree::records::UNREAD;

/// Bytes of the largest file that is read.
const LARGEST: u64 = 16 << 20;

/// The files of metrics of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Each with its size and its time of change before the attempt: the clock of a file server does not say when that began.
    files: Vec<(PathBuf, Option<(u64, f64)>)>,
}

impl Written {
    /// Takes note of the files of a trial in `workdir` before its program begins.
    ///
    /// # Errors
    /// When a template cannot be filled in.
    pub(crate) fn of(
        files: &[String],
        (params, extra): (&Params, &[(&str, Value)]),
        workdir: &Path,
    ) -> Result<Self, Fault> {
        let filled = CommandTemplate::named("file", files, &[])?.render(params, extra)?;
        let paths = filled.argv.into_iter().map(|file| workdir.join(file));
        let stamped = paths.map(|path| {
            let before = stamp(&path);
            (path, before)
        });
        Ok(Self { files: stamped.collect() })
    }

    /// The metrics of the files that the program has written, once. What cannot be read is counted.
    pub(crate) fn take(&mut self) -> Vec<Map<String, Value>> {
        let mut rows = Vec::new();
        let mut n_odd: u64 = 0;
        for (path, before) in self.files.drain(..) {
            let now = stamp(&path);
            if now.is_none() || now == before {
                continue;
            }
            let found = read(&path);
            n_odd += found.n_odd;
            rows.extend(found.rows);
        }
        rows.extend((n_odd > 0).then(|| Map::from_iter([(UNREAD.to_owned(), n_odd.into())])));
        rows
    }
}

fn stamp(path: &Path) -> Option<(u64, f64)> {
    disk::stamp(path).ok().flatten()
}

/// The metrics of one file.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// In their order.
    pub rows: Vec<Map<String, Value>>,
    /// How many lines were left out; a file as a whole is one.
    pub n_odd: u64,
}

fn read(path: &Path) -> Found {
    let mut bytes = Vec::new();
    let file =
        disk::open_plain(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    if file.is_err() || bytes.len() as u64 > LARGEST {
        return Found { n_odd: 1, ..Found::default() };
    }
    parse(&bytes, path)
}

/// The metrics of a file with this content. Its ending says which form it has.
pub fn parse(bytes: &[u8], path: &Path) -> Found {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("csv") => table(bytes, b','),
        Some("tsv") => table(bytes, b'\t'),
        _ => json(bytes, &path.file_stem().unwrap_or_default().to_string_lossy()),
    }
}

/// A JSON object, a list of them, one a line, or a number alone, which is called `name`.
fn json(bytes: &[u8], name: &str) -> Found {
    let whole = bytes.trim_ascii();
    let rows = match parse_lenient(whole) {
        _ if whole.is_empty() => return Found::default(),
        Some(Value::Object(row)) => vec![row],
        Some(Value::Array(items)) => return objects(items.into_iter().map(Some)),
        Some(value) if json_float(&value).is_some() => {
            vec![Map::from_iter([(name.to_owned(), value)])]
        }
        _ => {
            let lines = whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            return objects(lines.filter(|line| !line.is_empty()).map(parse_lenient));
        }
    };
    Found { rows, n_odd: 0 }
}

fn objects(values: impl Iterator<Item = Option<Value>>) -> Found {
    let mut found = Found::default();
    for value in values {
        match value {
            Some(Value::Object(row)) => found.rows.push(row),
            _ => found.n_odd += 1,
        }
    }
    found
}

/// A row for each line below the names. A cell without a name or a value gives nothing.
fn table(bytes: &[u8], delimiter: u8) -> Found {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::All).from_reader(bytes);
    let Ok(names) = reader.byte_headers().cloned() else {
        return Found { n_odd: 1, ..Found::default() };
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = Found::default();
    for record in reader.byte_records() {
        let Ok(record) = record else {
            found.n_odd += 1;
            continue;
        };
        let cells = names.iter().zip(&record);
        let cells = cells.filter(|(name, cell)| !name.is_empty() && !cell.is_empty());
        let number = |cell: &[u8]| parse_lenient(cell).filter(|value| json_float(value).is_some());
        let row = cells.map(|(name, cell)| {
            (text(name), number(cell).unwrap_or_else(|| Value::String(text(cell))))
        });
        found.rows.push(row.collect());
    }
    found.rows.retain(|row| !row.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// What is found in a file of this name: its rows, and how many lines were left out.
    fn found(name: &str, text: &str) -> (Value, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let Found { rows, n_odd } = read(&path);
        (json!(rows), n_odd)
    }

    #[test]
    fn each_form_of_a_file_gives_its_rows() {
        for (name, text, rows, n_odd) in [
            ("a.json", "{\"acc\": 0.5,\n\"loss\": NaN}", json!([{"acc": 0.5, "loss": "nan"}]), 0),
            ("a.json", "[{\"a\": 1}, {\"a\": 2}, 3]", json!([{"a": 1}, {"a": 2}]), 1),
            ("a.jsonl", "{\"a\": 1}\n\nno\n{\"a\": 2}", json!([{"a": 1}, {"a": 2}]), 1),
            ("fitness.txt", " 0.25\n", json!([{"fitness": 0.25}]), 0),
            ("fitness", "-inf", json!([{"fitness": "-inf"}]), 0),
            ("a.txt", "two words\n", json!([]), 1),
            ("a.txt", "", json!([]), 0),
            (
                "a.csv",
                "epoch, acc,,name\n1,0.5,7,a b\n2,,8,\n",
                json!([{"epoch": 1, "acc": 0.5, "name": "a b"}, {"epoch": 2}]),
                0,
            ),
            ("a.csv", "a,b\n1\n1,2\n", json!([{"a": 1, "b": 2}]), 1),
            ("a.tsv", "\u{feff}a\tb\n1\tnan\n", json!([{"a": 1, "b": "nan"}]), 0),
            ("a.csv", "a,b\n", json!([]), 0),
        ] {
            assert_eq!(found(name, text), (rows, n_odd), "{name}: {text}");
        }
    }

    #[test]
    fn a_file_counts_if_the_attempt_has_written_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("old-3", "1");
        write("anew-3", "1");
        fs::create_dir(folder.path().join("folder")).unwrap();
        let params = Params::new([Arc::from("x")].into(), [crate::plan::Value::Int(3)].into());
        let names = ["old-{{ x }}", "anew-{{ x }}", "new", "missing"].map(str::to_owned);
        let mut written = Written::of(&names, (&params, &[]), folder.path()).unwrap();
        fs::remove_file(folder.path().join("anew-3")).unwrap();
        write("anew-3", "22");
        write("new", "{");
        let expected = json!([{"anew-3": 22}, {"hpcsweep.unread_lines": 1}]);
        assert_eq!(json!(written.take()), expected);
        assert!(written.take().is_empty());
    }
}
