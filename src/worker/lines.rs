//! Files that a running program appends lines to, and the small ones that it leaves.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::words;

/// A file of JSON lines that grows, read as it does.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    read: u64,
    rest: Vec<u8>,
    odd_lines: u64,
    first_odd: Option<String>,
}

impl Lines {
    /// The lines of a file that need not be there yet.
    pub fn of(path: PathBuf) -> Self {
        Self { path, read: 0, rest: Vec::new(), odd_lines: 0, first_odd: None }
    }

    /// The metric lines that are complete and have not been taken yet. With `last`, a final line
    /// without a newline counts too. Lines that are no JSON object are counted, not kept.
    pub fn take(&mut self, last: bool) -> Vec<Map<String, Value>> {
        if let Some(mut file) = open_plain(&self.path)
            && self.is_longer(&file)
            && file.seek(SeekFrom::Start(self.read)).is_ok()
            && let Ok(n) = file.read_to_end(&mut self.rest)
        {
            self.read += n as u64;
        }
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
        rows
    }

    /// Whether there may be more to read; a file that was written anew is read from its beginning.
    fn is_longer(&mut self, file: &fs::File) -> bool {
        let len = file.metadata().map_or(0, |m| m.len());
        if len < self.read {
            self.read = 0;
            self.rest.clear();
        }
        len > self.read
    }

    /// What was left out, in words.
    pub fn complaint(&self) -> Option<String> {
        let first = self.first_odd.as_ref()?;
        let lines = words::count(self.odd_lines, "line");
        Some(format!("{lines} of $HPCSWEEP_METRICS left out, no JSON object: {first}"))
    }
}

/// The first line of a small file that holds any; at most 300 characters.
pub(super) fn one_line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(4096).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}

/// Opens what the program has left, if it is a file: a pipe in its place must not hold us up.
pub(super) fn open_plain(path: &Path) -> Option<fs::File> {
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = fs::File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
}

fn parse_row(line: &[u8]) -> Option<Map<String, Value>> {
    match parse_lenient(line)? {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// JSON, and the `NaN`, `Infinity`, `-Infinity` that Python's json module writes: they become the
/// strings `nan`, `inf`, `-inf`, so that a diverged run keeps its metrics.
pub fn parse_lenient(text: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(text) {
        return Some(value);
    }
    let text = std::str::from_utf8(text).ok()?;
    // A bare `nan` is what Python's print() makes of it.
    if let Some(word) = ["nan", "inf", "-inf"].iter().find(|word| **word == text) {
        return Some(Value::from(*word));
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if quoted {
            let len = if c == '\\' {
                1 + rest[1..].chars().next().map_or(0, char::len_utf8)
            } else {
                c.len_utf8()
            };
            quoted = c != '"';
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let word = [("-Infinity", "\"-inf\""), ("Infinity", "\"inf\""), ("NaN", "\"nan\"")]
            .into_iter()
            .find(|(word, _)| rest.starts_with(word));
        if let Some((word, stands_for)) = word {
            out.push_str(stands_for);
            rest = &rest[word.len()..];
        } else {
            quoted = c == '"';
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    serde_json::from_str(&out).ok()
}
