//! The keys of a table, one entry each: name, form, default and meaning.

use serde_json::{Map, Value, json};

use super::reader::{Entry, Reader, Table, entries};

/// One key of a table that is read into an `S`.
pub(crate) struct Key<S: 'static> {
    /// Its name within its table.
    pub(crate) name: &'static str,
    /// What holds where it is not written, as Markdown.
    pub(crate) default: &'static str,
    /// The meaning, as Markdown.
    pub(crate) about: &'static str,
    /// The JSON schema of its value, without a description.
    pub(crate) schema: fn() -> Value,
    /// Reads its value into the table's, or reports why that cannot be.
    pub(crate) read: fn(&mut S, &mut Reader<'_>, &Entry<'_>),
}

/// A table of a document, and all keys it may have.
pub(crate) struct Section<S: 'static> {
    /// The table in messages: `` `[run]` ``.
    pub(crate) title: &'static str,
    /// Its keys, in the order of the reference.
    pub(crate) keys: &'static [Key<S>],
}

/// A key in the reference: texts are Markdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its name within its table.
    pub key: &'static str,
    /// What holds where it is not written.
    pub default: &'static str,
    /// What the key means, without a final period.
    pub about: &'static str,
}

/// Makes a [`Section`]: `"key" => field: FORM, "default", "meaning";` for each key. A key's value is put into the field by
/// [`Into`]; what cannot be read leaves the field as it was.
macro_rules! section {
    ($title:literal, $of:ty: $($name:literal => $field:ident: $form:expr, $default:literal, $about:literal;)*) => {
        $crate::plan::document::Section {
            title: $title,
            keys: &[$($crate::plan::document::Key {
                name: $name,
                default: $default,
                about: $about,
                schema: || ($form.schema)(),
                read: |into: &mut $of, reader, entry| {
                    if let Some(value) = ($form.read)(reader, entry) {
                        into.$field = value.into();
                    }
                },
            }),*],
        }
    };
}
pub(crate) use section;

/// The entry of a key, where it is written.
pub(crate) fn find<'e, 'd>(written: &'e [Entry<'d>], key: &str) -> Option<&'e Entry<'d>> {
    written.iter().find(|entry| entry.key == key)
}

impl<S> Section<S> {
    /// Reads the table of an entry and returns what is written there; nothing is without the entry.
    pub(crate) fn read<'d>(
        &self,
        reader: &mut Reader<'_>,
        entry: Option<&Entry<'d>>,
        into: &mut S,
    ) -> Vec<Entry<'d>> {
        let table = entry.and_then(|entry| reader.table(entry));
        table.map(|table| self.read_table(reader, table, self.title, into)).unwrap_or_default()
    }

    /// Reads a table, called `place` in messages.
    pub(crate) fn read_table<'d>(
        &self,
        reader: &mut Reader<'_>,
        table: &'d Table<'d>,
        place: &str,
        into: &mut S,
    ) -> Vec<Entry<'d>> {
        let written = entries(table);
        written.iter().for_each(|entry| self.read_key(reader, entry, place, into));
        written
    }

    /// Reads one key of a table, called `place` in messages.
    pub(crate) fn read_key(
        &self,
        reader: &mut Reader<'_>,
        entry: &Entry<'_>,
        place: &str,
        into: &mut S,
    ) {
        match self.keys.iter().find(|key| key.name == entry.key) {
            Some(key) => (key.read)(into, reader, entry),
            None => {
                let key_names: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
                reader.unknown(entry, place, &key_names);
            }
        }
    }

    /// The rows of the reference.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.keys
            .iter()
            .map(|key| Row { key: key.name, default: key.default, about: key.about })
            .collect()
    }

    /// The JSON schema of the table.
    pub(crate) fn schema(&self) -> Value {
        let properties: Map<String, Value> = self
            .keys
            .iter()
            .map(|key| {
                let text = match key.default {
                    "required" => plain(key.about),
                    default if default.starts_with("required") => {
                        format!("{} ({})", plain(key.about), plain(default))
                    }
                    default => format!("{} (default: {})", plain(key.about), plain(default)),
                };
                (key.name.to_owned(), described((key.schema)(), &text))
            })
            .collect();
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

/// A schema with what it describes.
pub(crate) fn described(mut schema: Value, text: &str) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".to_owned(), text.into());
    }
    schema
}

/// Markdown without the addresses of its links, which lead nowhere in an editor, and without the bars of its table.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut remainder = markdown;
    while let Some((before, link)) = remainder.split_once('[') {
        let Some((shown, behind)) = link.split_once("](") else { break };
        // A bracket inside code is not a link.
        if shown.contains('[') || shown.contains('`') && shown.matches('`').count() % 2 == 1 {
            text.push_str(before);
            text.push('[');
            remainder = link;
            continue;
        }
        text.push_str(before);
        text.push_str(shown);
        remainder = behind.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(remainder);
    text.replace("\\|", "|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_no_links() {
        assert_eq!(
            plain("see [below](#x), `[\"a\"]` and [Python](p.md)"),
            "see below, `[\"a\"]` and Python"
        );
        assert_eq!(plain("a `[list]` without \\| links"), "a `[list]` without | links");
    }
}
