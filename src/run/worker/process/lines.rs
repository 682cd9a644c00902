//! Files that a running program appends lines to, and the small ones that it leaves.

use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::base::host::disk;
use crate::base::words;
use crate::plan::value::float_json;
use crate::sweep::tree::records::UNREAD;

/// Bytes that are read at once: a program may write faster than its lines are recorded.
const CHUNK: u64 = 1 << 20;

/// Bytes by which a file is known again.
const TAIL: usize = 256;

/// Bytes of the longest line that is read.
const LONGEST: usize = 4 << 20;

/// A file of JSON lines that grows, read as it does.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    /// Bytes that were read.
    read: u64,
    /// The last of these, and the file that they were in: what shows that it was written anew.
    tail: Vec<u8>,
    inode: u64,
    rest: Vec<u8>,
    /// Whether what follows belongs to a line that is too long.
    is_passing: bool,
    odd_lines: u64,
    first_odd: Option<String>,
    /// Why the last [`Lines::take`] could not read a file that is there.
    trouble: Option<String>,
}

impl Lines {
    /// The lines of a file that need not be there yet.
    pub fn of(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            tail: Vec::new(),
            inode: 0,
            rest: Vec::new(),
            is_passing: false,
            odd_lines: 0,
            first_odd: None,
            trouble: None,
        }
    }

    /// Whether there is more than the next [`Lines::take`] takes. A file that it could not read has no more, so that
    /// no caller waits for it.
    pub fn has_more(&self) -> bool {
        let len = || fs::metadata(&self.path).map_or(0, |about| about.len());
        self.trouble.is_none() && len() > self.read + CHUNK
    }

    /// The metric lines that are complete and have not been taken yet, of a megabyte at most. With `last`, a final line
    /// without a newline counts too. Lines that are not a JSON object, or of more than four megabytes, are counted, not kept.
    pub fn take(&mut self, last: bool) -> Vec<Map<String, Value>> {
        self.trouble = self.read_on().err().map(|e| disk::reason(&e));
        self.pass_over();
        let end = match self.rest.iter().rposition(|&b| b == b'\n') {
            _ if last => self.rest.len(),
            Some(newline) => newline + 1,
            None => 0,
        };
        let mut rows = Vec::new();
        for line in self.rest[..end].split(|&b| b == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match parse_row(line) {
                Some(row) => rows.push(row),
                None => {
                    self.odd_lines += 1;
                    let text = String::from_utf8_lossy(line);
                    self.first_odd.get_or_insert_with(|| words::short(&text, 60));
                }
            }
        }
        self.rest.drain(..end);
        if self.rest.len() > LONGEST {
            self.odd_lines += 1;
            let text = String::from_utf8_lossy(&self.rest[..256]);
            self.first_odd.get_or_insert_with(|| words::short(&text, 60));
            self.is_passing = true;
            self.pass_over();
        }
        rows
    }

    /// Reads the next bytes, where there are more.
    fn read_on(&mut self) -> io::Result<()> {
        let mut file = match disk::open_plain(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if !self.is_longer(&file)? {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let before = self.rest.len();
        let outcome = file.take(CHUNK).read_to_end(&mut self.rest);
        // Bytes that were read before an error stay.
        self.read += (self.rest.len() - before) as u64;
        self.tail.extend_from_slice(&self.rest[before..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
        match outcome? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Drops what belongs to a line that is too long.
    fn pass_over(&mut self) {
        if !self.is_passing {
            return;
        }
        let end = self.rest.iter().position(|&b| b == b'\n');
        self.is_passing = end.is_none();
        self.rest.drain(..end.map_or(self.rest.len(), |end| end + 1));
    }

    /// As [`Lines::take`]; if lines were left out, or `odd` other things, one more row states how many.
    pub(crate) fn take_counted(&mut self, last: bool, odd: u64) -> Vec<Map<String, Value>> {
        let before = self.odd_lines;
        let mut rows = self.take(last);
        self.odd_lines += odd;
        if self.odd_lines > before {
            let left_out = (UNREAD.to_owned(), Value::from(self.odd_lines - before));
            rows.push(Map::from_iter([left_out]));
        }
        rows
    }

    /// Whether there may be more to read; a file that was written anew is read from its beginning.
    fn is_longer(&mut self, file: &fs::File) -> io::Result<bool> {
        let about = file.metadata()?;
        if self.read > 0 && self.is_another(file, &about)? {
            (self.read, self.is_passing) = (0, false);
            self.rest.clear();
            self.tail.clear();
        }
        self.inode = about.ino();
        Ok(about.len() > self.read)
    }

    /// Whether the file is not the one that was read, or not as it was then: a program may write it anew each time, or
    /// replace it.
    fn is_another(&self, file: &fs::File, about: &fs::Metadata) -> io::Result<bool> {
        if about.ino() != self.inode || about.len() < self.read {
            return Ok(true);
        }
        let mut tail = vec![0; self.tail.len()];
        file.read_exact_at(&mut tail, self.read - self.tail.len() as u64)?;
        Ok(tail != self.tail)
    }

    /// How many lines were left out.
    pub fn left_out(&self) -> u64 {
        self.odd_lines
    }

    /// The number of lines that were left out, in words.
    pub fn complaint(&self) -> Option<String> {
        let unread =
            self.trouble.as_ref().map(|why| format!("$HPCSWEEP_METRICS cannot be read: {why}"));
        let odd = self.first_odd.as_ref().map(|first| {
            let lines = words::count(self.odd_lines, "line");
            format!("{lines} of $HPCSWEEP_METRICS left out, no JSON object: {first}")
        });
        unread.or(odd)
    }
}

/// The first line of a small file that holds any; at most 300 characters.
pub(crate) fn one_line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    disk::open_plain(path).ok()?.take(4096).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.split('\n').map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}

fn parse_row(line: &[u8]) -> Option<Map<String, Value>> {
    match parse_lenient(line)? {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// JSON, and numbers as programs print them that JSON does not know: not-a-number and infinity as C, C++, Fortran,
/// Python, JavaScript and Java write them become the strings `nan`, `inf`, `-inf`, so that a diverged run keeps its
/// metrics; `.5`, `5.` and `+5` become numbers; a number that is too large for 64 bits becomes infinite.
pub fn parse_lenient(text: &[u8]) -> Option<Value> {
    // Programs on Windows, and some editors, begin a file with a byte order mark.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if let Ok(value) = serde_json::from_slice(text) {
        return Some(value);
    }
    let text = std::str::from_utf8(text).ok()?;
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '"' => quoted(rest),
            c if is_of_word(c) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(len);
        // A name must be quoted, whatever it looks like.
        match number(piece).filter(|_| !after.trim_start().starts_with(':')) {
            Some(number) => out.push_str(&number),
            None => out.push_str(piece),
        }
        rest = after;
    }
    serde_json::from_str(&out).ok()
}

/// Bytes of the quoted text that this begins with.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// The characters of numbers, however a program prints them: `-1.#IND`, `nan(0x8000)`, `1.0D+05`.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+-.#()_".contains(c)
}

/// A number that JSON does not know, as JSON.
fn number(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix(['+', '-']) {
        Some(digits) => (&word[..1], digits),
        None => ("", word),
    };
    let lower = digits.to_ascii_lowercase();
    let signed = |x: f64| if sign == "-" { -x } else { x };
    let name = lower.split('(').next().unwrap_or_default();
    let is_closed = name.len() == lower.len() || lower.ends_with(')');
    let json = |x: f64| Some(float_json(signed(x)).to_string());
    match name {
        "nan" | "nanq" | "nans" | "1.#qnan" | "1.#snan" | "1.#ind" | "1.#nan" if is_closed => {
            return json(f64::NAN);
        }
        "inf" | "infinity" | "1.#inf" if is_closed => return json(f64::INFINITY),
        // R's word for a value that is missing.
        "na" if word == "NA" => return Some("null".to_owned()),
        _ => {}
    }
    // What JSON knows stays as it is, to the last digit.
    let is_plain = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !is_plain || (serde_json::from_str::<Value>(word).is_ok() && sign != "+") {
        return None;
    }
    // Fortran writes double precision as 1.0D+05.
    json(lower.replace('d', "e").parse().ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_taken_in_pieces_and_what_is_too_long_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let line = |n: usize| format!("{{\"n\": {n}, \"pad\": \"{}\"}}\n", "x".repeat(1000));
        let many: String = (0..3000).map(line).collect();
        let long = format!("{{\"a\": \"{}\"}}\n", "y".repeat(2 * LONGEST));
        fs::write(&path, format!("{many}{long}{{\"b\": 1}}\n{{\"c\": 2}}")).unwrap();
        let mut lines = Lines::of(path.clone());
        let mut rows = Vec::new();
        while lines.has_more() {
            let some = lines.take(false);
            assert!(some.len() < 1100 && lines.rest.len() <= LONGEST + CHUNK as usize);
            rows.extend(some);
        }
        rows.extend(lines.take(true));
        assert_eq!(rows.len(), 3002);
        assert_eq!(rows[2999]["n"], 2999);
        assert_eq!(
            rows[3000..],
            [Map::from_iter([("b".into(), json!(1))]), Map::from_iter([("c".into(), json!(2))])]
        );
        let complaint = lines.complaint().unwrap();
        assert!(complaint.starts_with("1 line of $HPCSWEEP_METRICS left out"), "{complaint}");
        assert!(lines.take(true).is_empty());
    }

    #[test]
    fn what_stands_in_place_of_the_file_is_reported_until_there_is_one_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let line = format!("{{\"pad\": \"{}\"}}\n", "x".repeat(1000));
        fs::write(&path, line.repeat(5000)).unwrap();
        let mut lines = Lines::of(path.clone());
        assert!(!lines.take(false).is_empty() && lines.has_more());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(lines.take(false).is_empty());
        assert!(!lines.has_more());
        let complaint = "$HPCSWEEP_METRICS cannot be read: it is not a regular file";
        assert_eq!(lines.complaint().as_deref(), Some(complaint));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, line.repeat(5000)).unwrap();
        assert!(!lines.take(false).is_empty() && lines.has_more());
        assert!(lines.complaint().is_none());
    }

    #[test]
    fn a_file_that_is_written_anew_is_read_anew_whatever_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let replace = |text: &str| {
            fs::write(folder.path().join("new"), text).unwrap();
            fs::rename(folder.path().join("new"), &path).unwrap();
        };
        let write = |text: &str| fs::write(&path, text).unwrap();
        for how in [&write as &dyn Fn(&str), &replace] {
            let mut lines = Lines::of(path.clone());
            let mut last = Vec::new();
            // Of the same length, longer, shorter, and with all lines of before.
            for text in ["7}\n", "8}\n", "10, \"more\": true}\n", "9}\n", "9}\n{\"epoch\": 11}\n"] {
                how(&format!("{{\"epoch\": {text}"));
                let rows = lines.take(false);
                last.push(rows.last().map(|row| row["epoch"].to_string()).unwrap_or_default());
            }
            assert_eq!(last, ["7", "8", "10", "9", "11"]);
            assert!(lines.take(true).is_empty() && lines.complaint().is_none());
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_r_says_of_a_missing_value_is_null() {
        assert_eq!(number("NA").as_deref(), Some("null"));
        assert_eq!((number("-NA"), number("na"), number("NAN.")), (None, None, None));
    }

    #[test]
    fn numbers_that_json_does_not_know_are_read_as_programs_print_them() {
        for (words, expected) in [
            ("nan NaN NAN -nan +nan nan(0x8000) -nan(ind) nanq 1.#QNAN -1.#IND", "nan"),
            ("inf Inf INF Infinity +inf +Infinity 1.#INF 1e400 1.5E+999", "inf"),
            ("-inf -Inf -Infinity -1.#INF -1e400", "-inf"),
        ] {
            for word in words.split(' ') {
                let line = format!("{{\"loss\": {word}, \"step\":1.000000e+00,\"x\":[{word}]}}");
                let expected = json!({"loss": expected, "step": 1.0, "x": [expected]});
                assert_eq!(parse_lenient(line.as_bytes()), Some(expected), "{line}");
                let alone = parse_lenient(word.as_bytes());
                assert!(alone.is_some_and(|v| v.is_string()), "{word}");
            }
        }
        for (word, expected) in [
            (".5", json!(0.5)),
            ("5.", json!(5.0)),
            ("+5", json!(5.0)),
            ("-1.5D+02", json!(-150.0)),
            ("1e5", json!(1e5)),
        ] {
            assert_eq!(parse_lenient(word.as_bytes()), Some(expected), "{word}");
        }
    }

    #[test]
    fn texts_and_names_stay_as_they_are() {
        let line = r#"{"a": "nan, \" inf", "nan": NaN, "b": 12345678901234567890, "c": "\\"}"#;
        let expected = json!({"a": "nan, \" inf", "nan": "nan", "b": 12_345_678_901_234_567_890_u64, "c": "\\"});
        assert_eq!(parse_lenient(line.as_bytes()), Some(expected));
        for odd in [
            "{nan: 1}",
            "{\"a\": nanny}",
            "{\"a\": 0x10}",
            "{\"a\": 1 2}",
            "{\"a\": infi}",
            "{\"a\": nan",
            "{\"a\": nan(1}",
        ] {
            assert_eq!(parse_lenient(odd.as_bytes()), None, "{odd}");
        }
    }
}
