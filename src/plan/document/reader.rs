//! Walks a TOML document by hand, keeping for every key and value its place in the text.
//!
//! Collects faults instead of stopping at the first.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::syntax;
use crate::base::fault::{Fault, Faults};
use crate::base::words;

/// A table of a parsed document.
pub(crate) type Table<'a> = DeTable<'a>;
/// A value of a parsed document, with its place.
pub(crate) type Item<'a> = Spanned<DeValue<'a>>;

/// Further faults are counted, not reported.
const MAX_FAULTS: usize = 50;

/// One `key = value` of a table.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'d> {
    /// The key, without its table.
    pub(crate) key: &'d str,
    /// Byte offset of the key.
    pub(crate) at: usize,
    /// The value with its place in the text; may be a table.
    pub(crate) item: &'d Item<'d>,
}

/// The entries of a table in the order of the text.
pub(crate) fn entries<'d>(table: &'d Table<'d>) -> Vec<Entry<'d>> {
    let mut entries: Vec<Entry<'d>> = table
        .iter()
        .map(|(key, item)| Entry { key: key.get_ref().as_ref(), at: key.span().start, item })
        .collect();
    // A `[a.b]` above its `[a]` makes the map's order differ from the text's.
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// The type of a value, with its article: "a string", "an integer".
pub(crate) fn kind(value: &DeValue<'_>) -> &'static str {
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
pub(crate) struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    line_starts: Vec<usize>,
    /// Lines on which TOML itself is wrong: what is found there besides is a consequence.
    broken: Vec<RangeInclusive<u32>>,
    faults: Vec<(u32, Fault)>,
    /// The text that stands for no value: TOML has no null.
    null: Option<String>,
}

impl<'a> Reader<'a> {
    /// A reader of `text`, called `name` in messages.
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let line_starts = std::iter::once(0).chain(starts).collect();
        Self { name, text, line_starts, broken: Vec::new(), faults: Vec::new(), null: None }
    }

    /// The name of the text in messages.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// Sets the text that stands for no value among parameters.
    pub(crate) fn set_null(&mut self, null: Option<String>) {
        self.null = null;
    }

    /// The text that stands for no value among parameters.
    pub(crate) fn null(&self) -> Option<&str> {
        self.null.as_deref()
    }

    /// The document; what TOML itself refuses becomes faults.
    pub(crate) fn document(&mut self) -> Table<'a> {
        if let Some((form, hint)) = syntax::other_form(self.text) {
            let fault = self.fault_at(0, format!("this is {form}, not TOML")).hint(hint);
            self.faults.push((1, fault));
            self.broken.push(1..=u32::MAX);
            return syntax::parse("").0.into_inner();
        }
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
    pub(crate) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// How many faults there are so far.
    pub(crate) fn n_faults(&self) -> usize {
        self.faults.len()
    }

    /// The line (from 1) of a byte offset.
    pub(crate) fn line(&self, at: usize) -> u32 {
        self.line_starts.partition_point(|start| *start <= at) as u32
    }

    /// The byte offset at which a line (from 1) begins.
    pub(crate) fn start_of(&self, line: u32) -> Option<usize> {
        self.line_starts.get((line as usize).checked_sub(1)?).copied()
    }

    /// Whether a table is written as one: `a = { b = 1 }` or below `[a]`, and not `a.b = 1`.
    pub(crate) fn is_written_as_table(&self, item: &Item<'_>) -> bool {
        self.text.get(item.span().start..).is_some_and(|text| text.starts_with(['{', '[']))
    }

    /// `plan.toml:7: lr = []`.
    pub(crate) fn place(&self, at: usize) -> String {
        let line = self.line(at);
        let start = self.line_starts[line as usize - 1];
        let source = self.text[start..].lines().next().unwrap_or("").trim();
        match source.char_indices().nth(120) {
            Some((cut, _)) => format!("{}:{line}: {}...", self.name, &source[..cut]),
            None => format!("{}:{line}: {source}", self.name),
        }
    }

    /// A fault of the document with its place, not yet reported.
    fn fault_at(&self, at: usize, sentence: impl Into<String>) -> Fault {
        Fault::request(sentence).at(self.place(at))
    }

    /// Reports a fault at a byte offset.
    pub(crate) fn report(&mut self, at: usize, fault: Fault) {
        let line = self.line(at);
        if !self.broken.iter().any(|lines| lines.contains(&line)) {
            self.faults.push((line, fault));
        }
    }

    /// Reports a sentence with a hint.
    pub(crate) fn wrong(&mut self, at: usize, sentence: impl Into<String>, hint: impl Display) {
        let fault = self.fault_at(at, sentence).hint(hint.to_string());
        self.report(at, fault);
    }

    /// Reports something that is not in the text; in a broken document it may only be unreadable.
    pub(crate) fn missing(&mut self, sentence: impl Into<String>, hint: impl Into<String>) {
        if !self.is_broken() {
            let fault = Fault::request(sentence).at(self.name).hint(hint);
            self.faults.push((0, fault));
        }
    }

    /// Reports a key that `place` does not have.
    pub(crate) fn unknown(&mut self, entry: &Entry<'_>, place: &str, known: &[&str]) {
        let hint = words::suggestion(entry.key, known, "known here:");
        self.wrong(entry.at, format!("{place} has no key `{}`", entry.key), hint);
    }

    /// Reports a value of the wrong type.
    pub(crate) fn expected(&mut self, entry: &Entry<'_>, what: &str) {
        let kind_found = kind(entry.item.get_ref());
        let fault =
            self.fault_at(entry.at, format!("`{}` must be {what}, not {kind_found}", entry.key));
        self.report(entry.at, fault);
    }

    /// All that was found, in the order of the text.
    pub(crate) fn into_faults(mut self) -> Faults {
        self.faults.sort_by_key(|(line, _)| *line);
        let n_more = self.faults.len().saturating_sub(MAX_FAULTS);
        self.faults.truncate(MAX_FAULTS);
        let mut faults: Vec<Fault> = self.faults.into_iter().map(|(_, fault)| fault).collect();
        if n_more > 0 {
            let n = words::count(n_more as u64, "further fault");
            let sentence = format!("{n} in `{}`", self.name);
            faults.push(Fault::request(sentence).hint("fix these first"));
        }
        Faults(faults)
    }

    /// The table of an entry.
    pub(crate) fn table<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d Table<'d>> {
        match entry.item.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.expected(entry, "a table");
                None
            }
        }
    }

    /// The list of an entry.
    pub(crate) fn list<'d>(&mut self, entry: &Entry<'d>, what: &str) -> Option<&'d [Item<'d>]> {
        match entry.item.get_ref() {
            DeValue::Array(items) => Some(items),
            _ => {
                self.expected(entry, what);
                None
            }
        }
    }

    /// The text of an entry; a NUL can be part of no argument, no variable and no script.
    pub(crate) fn text<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d str> {
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
    pub(crate) fn line_of_text<'d>(&mut self, entry: &Entry<'d>) -> Option<&'d str> {
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
        if text.contains(char::is_control) {
            let sentence = format!("`{}` holds a control character", entry.key);
            self.wrong(entry.at, sentence, "remove it");
            return None;
        }
        Some(text)
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, entry: &Entry<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(entry)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let settings: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let sentence = format!("`{}` has no setting `{text}`", entry.key);
        let hint = words::suggestion(text, &settings, "write one of");
        self.wrong(entry.at, sentence, hint);
        None
    }

    /// The integer of an entry.
    pub(crate) fn integer(&mut self, entry: &Entry<'_>) -> Option<i64> {
        match entry.item.get_ref() {
            DeValue::Integer(digits) => self.digits(entry.item.span().start, digits),
            _ => {
                self.expected(entry, "an integer");
                None
            }
        }
    }

    /// The number that digits write.
    pub(crate) fn digits(&mut self, at: usize, digits: &DeInteger<'_>) -> Option<i64> {
        let read = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        if read.is_none() {
            let sentence = format!("`{digits}` does not fit into 64 bits");
            self.wrong(at, sentence, "write it as a float or as a string");
        }
        read
    }

    /// The whole number of an entry, from 1.
    pub(crate) fn whole(&mut self, entry: &Entry<'_>) -> Option<u64> {
        let number = self.integer(entry)?;
        let positive = u64::try_from(number).ok().filter(|whole| *whole > 0);
        if positive.is_none() {
            let sentence = format!("`{}` cannot be {number}", entry.key);
            self.wrong(entry.at, sentence, "write a whole number from 1");
        }
        positive
    }

    /// The count of an entry, within a range.
    pub(crate) fn count(
        &mut self,
        entry: &Entry<'_>,
        range: std::ops::RangeInclusive<u32>,
    ) -> Option<u32> {
        let number = self.integer(entry)?;
        match u32::try_from(number) {
            Ok(count) if range.contains(&count) => Some(count),
            _ => {
                let sentence = format!("`{}` cannot be {number}", entry.key);
                let (least, most) = range.into_inner();
                self.wrong(entry.at, sentence, format!("write a number from {least} to {most}"));
                None
            }
        }
    }

    /// A list of texts, each passed through `check`.
    pub(crate) fn texts(
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
                let kind_found = kind(item.get_ref());
                let sentence =
                    format!("`{}` must be a list of strings; this is {kind_found}", entry.key);
                let fault = self.fault_at(element.at, sentence);
                self.report(element.at, fault);
            }
        }
        (self.n_faults() == n_before).then_some(texts)
    }
}
