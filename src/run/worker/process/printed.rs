//! Metrics in what a program prints: the patterns of `[metrics] output`, over the lines of its log.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::base::host::disk;
use crate::plan::value::json_float;
use crate::run::worker::process::lines::parse_lenient;

/// Bytes that are read at once: a program may print faster than its metrics are recorded.
const CHUNK: u64 = 1 << 20;

/// Bytes of the longest line that is searched.
const LONGEST: usize = 64 << 10;

/// The names that say where a program is, and hold for the lines that follow.
const PLACE: [&str; 2] = ["epoch", "step"];

/// Codes of terminals: of colours, of the cursor, of titles.
static CODES: LazyLock<Regex> = LazyLock::new(|| {
    let codes = r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[ -/]*[0-~])";
    Regex::new(codes).expect("it is a constant that tests use")
});

/// The part of a log that an attempt writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) log: &'a Path,
    /// Where it begins.
    pub(crate) from: u64,
    /// What its lines begin with: ranks share a log.
    pub(crate) prefix: &'static str,
}

/// What a program prints, searched as it grows.
#[derive(Debug)]
pub(crate) struct Printed {
    patterns: Vec<Regex>,
    log: PathBuf,
    /// Bytes of the log that were read, with those of before.
    read: u64,
    prefix: &'static str,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    /// The epoch and the step that were printed last.
    place: Map<String, Value>,
    /// What was found last: a progress bar prints it many times.
    last_row: Map<String, Value>,
}

impl Printed {
    /// Searches this part of a log; `None` without patterns.
    pub(crate) fn of(patterns: &[String], part: Part<'_>) -> Option<Self> {
        // The plan was refused if it had another one.
        let patterns: Vec<Regex> = patterns.iter().filter_map(|p| Regex::new(p).ok()).collect();
        (!patterns.is_empty()).then(|| Self {
            patterns,
            log: part.log.to_owned(),
            read: part.from,
            prefix: part.prefix,
            rest: Vec::new(),
            place: Map::new(),
            last_row: Map::new(),
        })
    }

    /// Whether there is more than the next [`Printed::take`] takes.
    pub(crate) fn has_more(&self) -> bool {
        let stamp = disk::stamp(&self.log).ok().flatten();
        stamp.is_some_and(|(len, _)| len > self.read + CHUNK)
    }

    /// The metrics of the lines that are complete and were not searched yet, of a megabyte at most; with `last`, a final line
    /// needs no end.
    pub(crate) fn take(&mut self, last: bool) -> Vec<Map<String, Value>> {
        // The same log is written here: what cannot be read now can be read the next time.
        let _ = self.read_on();
        let is_end = |byte: &u8| *byte == b'\n' || (*byte == b'\r' && self.prefix.is_empty());
        let end = match self.rest.iter().rposition(is_end) {
            _ if last => self.rest.len(),
            end => end.map_or(0, |end| end + 1),
        };
        let complete: Vec<u8> = self.rest.drain(..end).collect();
        if self.rest.len() > LONGEST {
            self.rest.clear();
        }
        let mut rows = Vec::new();
        for line in complete.split(|byte| *byte == b'\n') {
            let Some(line) = line.strip_prefix(self.prefix.as_bytes()) else { continue };
            // A progress bar writes over its line.
            for line in line.split(|byte| *byte == b'\r').filter(|line| line.len() <= LONGEST) {
                rows.extend(self.search(&String::from_utf8_lossy(line)));
            }
        }
        rows
    }

    fn read_on(&mut self) -> io::Result<()> {
        let mut file = disk::open_plain(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        let before = self.rest.len();
        let outcome = file.take(CHUNK).read_to_end(&mut self.rest);
        // Bytes that were read before an error stay.
        self.read += (self.rest.len() - before) as u64;
        outcome.map(drop)
    }

    /// The metrics of one line, with the epoch and the step to which they belong.
    fn search(&mut self, line: &str) -> Option<Map<String, Value>> {
        let line = CODES.replace_all(line, "");
        let mut found = Map::new();
        for pattern in &self.patterns {
            let Some(groups) = pattern.captures(&line) else { continue };
            for name in pattern.capture_names().flatten() {
                let number = groups.name(name).and_then(|text| number(text.as_str()));
                found.extend(number.map(|number| (name.to_owned(), number)));
            }
        }
        let is_place = |name: &String| PLACE.contains(&name.as_str());
        let places = found.iter().filter(|(name, _)| is_place(name));
        self.place.extend(places.map(|(name, value)| (name.clone(), value.clone())));
        if found.keys().all(is_place) {
            return None;
        }
        let mut row = self.place.clone();
        row.extend(found);
        (row != self.last_row).then(|| {
            self.last_row.clone_from(&row);
            row
        })
    }
}

/// The number that a program has printed; a point or a comma behind it ends the sentence.
fn number(text: &str) -> Option<Value> {
    let value = parse_lenient(text.trim().trim_end_matches(['.', ',']).as_bytes())?;
    json_float(&value).is_some().then_some(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    /// What is found in a log that grows by these pieces.
    fn found(patterns: &[&str], prefix: &'static str, pieces: &[&str]) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "acc: 0.1\n").unwrap();
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        let part = Part { log: &log, from: 9, prefix };
        let mut printed = Printed::of(&patterns, part).unwrap();
        let mut rows = Vec::new();
        let mut text = "acc: 0.1\n".to_owned();
        for piece in pieces {
            text.push_str(piece);
            fs::write(&log, &text).unwrap();
            rows.extend(printed.take(false));
        }
        assert!(!printed.has_more());
        rows.extend(printed.take(true));
        rows.into_iter().map(Value::Object).collect()
    }

    #[test]
    fn each_new_line_is_searched_once_when_it_is_complete() {
        let pieces = ["acc: 0.", "5\nacc: 0.75, fine\nnone\nacc: ", "nan\nacc: 1.", "\nacc: ..."];
        let expected =
            [json!({"acc": 0.5}), json!({"acc": 0.75}), json!({"acc": "nan"}), json!({"acc": 1})];
        assert_eq!(found(&[r"acc: (?<acc>\S+)"], "", &pieces), expected);
        assert_eq!(found(&[r"acc: (?<acc>\S+)"], "", &["x\nacc: 2"]), [json!({"acc": 2})]);
    }

    #[test]
    fn colours_and_progress_bars_do_not_hide_a_metric() {
        let bar = "\x1b[1m10%\x1b[0m loss=\x1b[31;1m0.5\x1b[0m\r20% loss=0.5\r\x1b]0;title\x07\x1b(B30% loss=\x1b[K0.25\r\n";
        let expected = [json!({"loss": 0.5}), json!({"loss": 0.25})];
        assert_eq!(found(&["loss=(?<loss>[0-9.]+)"], "", &[bar]), expected);
        assert_eq!(found(&["loss=(?<loss>[0-9.]+)"], "", &["loss=0.5\rloss"]).len(), 1);
    }

    #[test]
    fn the_patterns_of_a_line_make_one_row_and_an_epoch_holds_for_what_follows() {
        let patterns = [r"Epoch (?<epoch>\d+)", r"loss (?<loss>\S+)", r"acc (?<acc>\S+)"];
        let text = "loss 9\nEpoch 1/3\nloss 0.5 acc 0.1 loss 7\nEpoch 2/3 loss 0.4\nacc 0.2\n";
        let expected = [
            json!({"loss": 9}),
            json!({"epoch": 1, "loss": 0.5, "acc": 0.1}),
            json!({"epoch": 2, "loss": 0.4}),
            json!({"epoch": 2, "acc": 0.2}),
        ];
        assert_eq!(found(&patterns, "", &[text]), expected);
    }

    #[test]
    fn of_a_shared_log_the_lines_of_one_rank_count() {
        let text = "[rank 1] a=1\n[rank 0] a=2\ra=3\n[rank 10] a=4\na=5\n[rank 0] a=6";
        let expected = [2, 3, 6].map(|a| json!({"a": a}));
        assert_eq!(found(&[r"a=(?<a>\d)"], "[rank 0] ", &[text]), expected);
    }

    #[test]
    fn a_long_log_is_taken_in_pieces_and_a_line_without_end_is_dropped() {
        let many = "x = 1 and some words\nx = 2\n".repeat(100_000);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, format!("{many}{}x = 7\nx = 3", "y".repeat(3 * CHUNK as usize))).unwrap();
        let part = Part { log: &log, from: 0, prefix: "" };
        let mut printed = Printed::of(&[r"^x = (?<x>\d)".to_owned()], part).unwrap();
        let mut rows = Vec::new();
        while printed.has_more() {
            rows.extend(printed.take(false));
            assert!(printed.rest.len() <= LONGEST);
        }
        rows.extend(printed.take(true));
        assert_eq!(rows.len(), 200_001);
        assert_eq!(rows.last().unwrap()["x"], 3);
    }
}
