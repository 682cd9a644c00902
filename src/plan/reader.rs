//! Walks a TOML document by hand, keeping for every key and value its place in the text.
//!
//! Collects faults instead of stopping at the first; knows TOML and sentences, not what a plan is.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::Value;
use crate::fault::{Fault, Faults};
use crate::{syntax, words};

/// A table of a parsed document.
pub(super) type Table<'a> = DeTable<'a>;
/// A value of a parsed document, with its place.
pub(super) type Item<'a> = Spanned<DeValue<'a>>;

/// More faults than these are counted, not told.
const MAX_FAULTS: usize = 50;

/// One `key = value` of a table.
#[derive(Clone, Copy)]
pub(super) struct Entry<'d> {
    /// The key, without its table.
    pub(super) key: &'d str,
    /// Byte offset of the key.
    pub(super) at: usize,
    /// The value.
    pub(super) item: &'d Item<'d>,
}

/// The entries of a table in the order of the text.
pub(super) fn entries<'d>(table: &'d Table<'d>) -> Vec<Entry<'d>> {
    let mut all: Vec<Entry<'d>> = table
        .iter()
        .map(|(key, item)| Entry { key: key.get_ref().as_ref(), at: key.span().start, item })
        .collect();
    // A `[a.b]` above its `[a]` makes the map's order differ from the text's.
    all.sort_by_key(|entry| entry.at);
    all
}

/// What a value is, with its article: "a string", "an integer".
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Text, its lines, and the faults found in it so far.
pub(super) struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    line_starts: Vec<usize>,
    /// Lines on which TOML itself is wrong: what is found there besides is a consequence.
    broken: Vec<RangeInclusive<u32>>,
    faults: Vec<(u32, Fault)>,
}

impl<'a> Reader<'a> {
    /// A reader of `text`, called `name` in messages.
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let line_starts = std::iter::once(0).chain(starts).collect();
        Self { name, text, line_starts, broken: Vec::new(), faults: Vec::new() }
    }

    /// What the text is called in messages.
    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// The document; what TOML itself refuses becomes faults.
    pub(super) fn document(&mut self) -> Table<'a> {
        let (table, slips) = syntax::parse(self.text);
        for slip in slips {
            let sentence = match slip.message.as_str() {
                "duplicate key" => "the same key or table is written twice".to_owned(),
                message => format!("this is not TOML: {message}"),
            };
            let fault = Fault { hint: slip.hint, ..self.fault_at(slip.at, sentence) };
            let line = self.line(slip.at);
            self.faults.push((line, fault));
            let (first, last) = (self.line(slip.spoilt.start), self.line(slip.spoilt.end));
            self.broken.push(first.min(line)..=last.max(line));
        }
        table.into_inner()
    }

    /// Whether TOML itself was wrong somewhere.
    pub(super) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// How many faults there are so far.
    pub(super) fn n_faults(&self) -> usize {
        self.faults.len()
    }

    /// The line (from 1) of a byte offset.
    pub(super) fn line(&self, at: usize) -> u32 {
        self.line_starts.partition_point(|start| *start <= at) as u32
    }

    /// The byte offset at which a line (from 1) begins.
    pub(super) fn start_of(&self, line: u32) -> Option<usize> {
        self.line_starts.get((line as usize).checked_sub(1)?).copied()
    }

    /// `plan.toml:7: lr = []`.
    pub(super) fn place(&self, at: usize) -> String {
        let line = self.line(at);
        let start = self.line_starts[line as usize - 1];
        let source = self.text[start..].lines().next().unwrap_or("").trim();
        match source.char_indices().nth(120) {
            Some((cut, _)) => format!("{}:{line}: {}...", self.name, &source[..cut]),
            None => format!("{}:{line}: {source}", self.name),
        }
    }

    /// A fault of the plan with its place, not yet reported.
    pub(super) fn fault_at(&self, at: usize, sentence: impl Into<String>) -> Fault {
        Fault::request(sentence).at(self.place(at))
    }

    /// Reports a fault at a byte offset.
    pub(super) fn report(&mut self, at: usize, fault: Fault) {
        let line = self.line(at);
        if !self.broken.iter().any(|lines| lines.contains(&line)) {
            self.faults.push((line, fault));
        }
    }

    /// Reports a sentence with a hint.
    pub(super) fn wrong(&mut self, at: usize, sentence: impl Into<String>, hint: impl Display) {
        let fault = self.fault_at(at, sentence).hint(hint.to_string());
        self.report(at, fault);
    }

    /// Reports something that is not in the text; in a broken document it may only be unreadable.
    pub(super) fn missing(&mut self, sentence: impl Into<String>, hint: impl Into<String>) {
        if !self.is_broken() {
            let fault = Fault::request(sentence).at(self.name).hint(hint);
            self.faults.push((0, fault));
        }
    }

    /// Reports a key that `place` does not have.
    pub(super) fn unknown(&mut self, entry: &Entry<'_>, place: &str, known: &[&str]) {
        let hint = match words::nearest(entry.key, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", words::ticked(known)),
        };
        self.wrong(entry.at, format!("{place} has no key `{}`", entry.key), hint);
    }

    /// Reports a value of the wrong type.
    pub(super) fn expected(&mut self, entry: &Entry<'_>, what: &str) {
        let found = kind(entry.item.get_ref());
        let fault = self.fault_at(entry.at, format!("`{}` must be {what}, not {found}", entry.key));
        self.report(entry.at, fault);
    }

    /// All that was found, in the order of the text.
    pub(super) fn into_faults(mut self) -> Faults {
        self.faults.sort_by_key(|(line, _)| *line);
        let n_more = self.faults.len().saturating_sub(MAX_FAULTS);
        self.faults.truncate(MAX_FAULTS);
        let mut all: Vec<Fault> = self.faults.into_iter().map(|(_, fault)| fault).collect();
        if n_more > 0 {
            let n = words::count(n_more as u64, "further fault");
            all.push(Fault::request(format!("{n} of the plan")).hint("mend these first"));
        }
        Faults(all)
    }

    /// The table of an entry.
    pub(super) fn table<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d Table<'d>> {
        match entry.item.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.expected(entry, "a table");
                None
            }
        }
    }

    /// The list of an entry.
    pub(super) fn list<'d>(&mut self, entry: &Entry<'d>, what: &str) -> Option<&'d [Item<'d>]> {
        match entry.item.get_ref() {
            DeValue::Array(items) => Some(items),
            _ => {
                self.expected(entry, what);
                None
            }
        }
    }

    /// The text of an entry; a NUL can be part of no argument, no variable and no script.
    pub(super) fn text<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d str> {
        match entry.item.get_ref() {
            DeValue::String(text) if text.contains('\0') => {
                let sentence = format!("`{}` holds a NUL character", entry.key);
                self.wrong(entry.at, sentence, "no program can be given one: remove it");
                None
            }
            DeValue::String(text) => Some(text),
            _ => {
                self.expected(entry, "a string");
                None
            }
        }
    }

    /// The text of an entry that must be one non-empty line.
    pub(super) fn line_of_text<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d str> {
        let text = self.text(entry)?;
        if text.trim().is_empty() {
            let sentence = format!("`{}` is empty", entry.key);
            self.wrong(entry.at, sentence, "give it a value, or remove the key");
            return None;
        }
        if text.contains(['\n', '\r']) {
            let sentence = format!("`{}` holds a line break", entry.key);
            self.wrong(entry.at, sentence, "it becomes part of one line: remove the break");
            return None;
        }
        Some(text)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, entry: &Entry<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(entry)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let sentence = format!("`{}` has no setting `{text}`", entry.key);
        let hint = match words::nearest(text, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", words::ticked(&known)),
        };
        self.wrong(entry.at, sentence, hint);
        None
    }

    /// The integer of an entry.
    pub(super) fn integer(&mut self, entry: &Entry<'_>) -> Option<i64> {
        match entry.item.get_ref() {
            DeValue::Integer(_) => match self.value(entry.key, entry.item)? {
                Value::Int(i) => Some(i),
                _ => None,
            },
            _ => {
                self.expected(entry, "an integer");
                None
            }
        }
    }

    /// The count of an entry, at least `least`.
    pub(super) fn count(&mut self, entry: &Entry<'_>, least: u32) -> Option<u32> {
        let number = self.integer(entry)?;
        match u32::try_from(number) {
            Ok(count) if count >= least => Some(count),
            _ => {
                let sentence = format!("`{}` cannot be {number}", entry.key);
                let most = u32::MAX;
                self.wrong(entry.at, sentence, format!("write a number from {least} to {most}"));
                None
            }
        }
    }

    /// A list of texts, each passed through `check`.
    pub(super) fn texts(
        &mut self,
        entry: &Entry<'_>,
        check: fn(&mut Self, &Entry<'_>) -> Option<String>,
    ) -> Option<Vec<String>> {
        let n_before = self.n_faults();
        let items = self.list(entry, "a list of strings")?;
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let element = Entry { key: entry.key, at: item.span().start, item };
            if let DeValue::String(_) = item.get_ref() {
                texts.extend(check(self, &element));
            } else {
                let found = kind(item.get_ref());
                let sentence =
                    format!("`{}` must be a list of strings; this is {found}", entry.key);
                let fault = self.fault_at(element.at, sentence);
                self.report(element.at, fault);
            }
        }
        (self.n_faults() == n_before).then_some(texts)
    }

    /// Any value as a parameter value; `name` is the parameter it belongs to.
    pub(super) fn value(&mut self, name: &str, item: &Item<'_>) -> Option<Value> {
        let at = item.span().start;
        match item.get_ref() {
            DeValue::String(text) if text.contains('\0') => {
                let sentence = format!("`{name}` holds a NUL character");
                self.wrong(at, sentence, "no program can be given one: remove it");
                None
            }
            DeValue::String(text) => Some(Value::text(text)),
            DeValue::Boolean(b) => Some(Value::Bool(*b)),
            DeValue::Datetime(date) => Some(Value::text(date.to_string())),
            DeValue::Integer(digits) => {
                let read = i64::from_str_radix(digits.as_str(), digits.radix());
                if read.is_err() {
                    let sentence = format!("`{digits}` does not fit into 64 bits");
                    self.wrong(at, sentence, "write it as a float or as a string");
                }
                read.ok().map(Value::Int)
            }
            DeValue::Float(digits) => {
                let read = digits.as_str().parse::<f64>().ok();
                let fits = read.filter(|f| f.is_finite() || !digits.as_str().contains(['e', '.']));
                if fits.is_none() {
                    let sentence = format!("`{digits}` is beyond the largest float");
                    self.wrong(at, sentence, "write `inf`, or a string");
                }
                fits.map(Value::Float)
            }
            DeValue::Array(items) => {
                let values: Vec<_> =
                    items.iter().filter_map(|item| self.value(name, item)).collect();
                Some(Value::List(values.into()))
            }
            DeValue::Table(table) => {
                let mut pairs: Vec<(Arc<str>, Value)> = Vec::with_capacity(table.len());
                for entry in entries(table) {
                    if let Some(value) = self.value(name, entry.item) {
                        pairs.push((Arc::from(entry.key), value));
                    }
                }
                Some(Value::Table(pairs.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, check_plan_faults};

    #[test]
    fn wrong_toml_is_told_with_its_lines_and_without_consequences() {
        check_plan_faults(
            "version = 1\n[sweep\nname = \"x\"\n[run]\ncommand = [\"a\", \"b]\n",
            "this is not TOML: unclosed table, expected `]`
  plan.toml:2: [sweep
error: this is not TOML: unclosed array, expected `]`
  plan.toml:5: command = [\"a\", \"b]
hint: the list that begins in line 5 is not closed: is its `]` missing?",
        );
        check_faults(
            "[defaults]\nlr = 1\nlr = 2",
            "the same key or table is written twice
  plan.toml:6: lr = 2
hint: keep one of the two; a table's keys stand under one heading",
        );
    }

    #[test]
    fn values_that_no_program_could_take_are_refused() {
        check_faults(
            "[defaults]\na = 99999999999999999999\nb = 1e999\nc = \"x\\u0000\"",
            "`99999999999999999999` does not fit into 64 bits
  plan.toml:5: a = 99999999999999999999
hint: write it as a float or as a string
error: `1e999` is beyond the largest float
  plan.toml:6: b = 1e999
hint: write `inf`, or a string
error: `c` holds a NUL character
  plan.toml:7: c = \"x\\u0000\"
hint: no program can be given one: remove it",
        );
    }

    #[test]
    fn many_faults_are_counted() {
        let lines: Vec<String> = (0..60).map(|i| format!("x{i} = 1")).collect();
        let error = crate::plan::parse(&lines.join("\n"), "plan.toml").unwrap_err().to_string();
        assert_eq!(error.matches("error: ").count(), 50);
        assert!(
            error.ends_with("error: 13 further faults of the plan\nhint: mend these first"),
            "{error}"
        );
    }

    #[test]
    fn long_lines_are_cut() {
        let long = "x".repeat(200);
        let head: String = format!("bad = \"{long}").chars().take(120).collect();
        check_faults(
            &format!("bad = \"{long}\""),
            &format!(
                "the plan has no key `bad`
  plan.toml:4: {head}...
hint: known here: `version`, `sweep`, `run`, `train`, `metrics`, `hooks`, `resources`, `schedule`, `pull`, `defaults`, `trials`, `grid`, `zip`, `exclude`, `replicates` and `sample`"
            ),
        );
    }
}
