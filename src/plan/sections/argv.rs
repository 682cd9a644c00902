//! Argument vectors, of `[run]` and of `[hooks]`.

use serde_json::json;
use toml::de::DeValue;

use crate::plan::document::form::TEXTS;
use crate::plan::document::{Entry, Form, Reader};

/// A program and its arguments, one word each; empty if the key is not written.
#[derive(Default)]
pub(crate) struct Argv {
    pub(crate) words: Vec<String>,
    /// The byte offset of each word.
    pub(crate) places: Vec<usize>,
}

/// An argument vector that names a program.
pub(crate) const ARGV: Form<Argv> = Form {
    read: read_argv,
    schema: || json!({ "type": "array", "minItems": 1, "items": { "type": "string" } }),
};

fn read_argv(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Argv> {
    let key = entry.key;
    if let DeValue::String(_) = entry.item.get_ref() {
        let hint = "write the program and its arguments one by one: `[\"python3\", \"train.py\"]`; \
                    for shell code, `[\"sh\", \"-c\", \"...\"]`";
        let sentence = format!("`{key}` must be a list of strings, not a string");
        reader.wrong(entry.at, sentence, hint);
        return None;
    }
    let words = (TEXTS.read)(reader, entry)?;
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        let sentence = format!("`{key}` names no program");
        reader.wrong(entry.at, sentence, "write it as the first element");
        return None;
    }
    let items = reader.list(entry, "a list of strings")?;
    Some(Argv { words, places: items.iter().map(|item| item.span().start).collect() })
}
