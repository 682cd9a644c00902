//! The forms that the value of a key can have: how each is read, and its JSON schema.

use serde_json::{Value, json};
use toml::de::DeValue;

use super::reader::{Entry, Reader};
use crate::base::host::access::{Readers, Shared};
use crate::base::units;

/// One form of value.
pub(crate) struct Form<T> {
    /// Reads the value of an entry; `None` when it is not of this form, which is reported.
    pub(crate) read: fn(&mut Reader<'_>, &Entry<'_>) -> Option<T>,
    /// Makes the JSON schema of such a value, without a description.
    pub(crate) schema: fn() -> Value,
}

/// A setting that is one of a few words.
pub(crate) trait Word: Copy + 'static {
    /// Every setting with its word.
    const WORDS: &'static [(&'static str, Self)];
}

impl Word for Shared {
    const WORDS: &'static [(&'static str, Self)] = &[("group", Self::Group), ("no", Self::No)];
}

impl Word for Readers {
    const WORDS: &'static [(&'static str, Self)] =
        &[("owner", Self::Owner), ("group", Self::Group), ("all", Self::All)];
}

/// One of the words of a setting.
pub(crate) const fn word<T: Word>() -> Form<T> {
    Form {
        read: |reader, entry| reader.word(entry, T::WORDS),
        schema: || json!({ "enum": T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>() }),
    }
}

/// A whole number of at least `LEAST` that fits into 32 bits.
pub(crate) const fn count<const LEAST: u32>() -> Form<u32> {
    count_to::<LEAST, { u32::MAX }>()
}

/// A whole number from `LEAST` to `MOST`.
pub(crate) const fn count_to<const LEAST: u32, const MOST: u32>() -> Form<u32> {
    Form {
        read: |reader, entry| reader.count(entry, LEAST..=MOST),
        schema: || json!({ "type": "integer", "minimum": LEAST, "maximum": MOST }),
    }
}

/// A whole number from 1.
pub(crate) const WHOLE: Form<u64> = Form {
    read: |reader, entry| reader.whole(entry),
    schema: || json!({ "type": "integer", "minimum": 1 }),
};

/// An integer of 64 bits.
pub(crate) const INTEGER: Form<i64> =
    Form { read: |reader, entry| reader.integer(entry), schema: || json!({ "type": "integer" }) };

/// A flag: `true` or `false`, no number and no text.
pub(crate) const FLAG: Form<bool> = Form {
    read: |reader, entry| {
        let DeValue::Boolean(value) = entry.item.get_ref() else {
            reader.expected(entry, "`true` or `false`");
            return None;
        };
        Some(*value)
    },
    schema: || json!({ "type": "boolean" }),
};

/// A text that is not empty, in one line.
pub(crate) const LINE: Form<String> = Form {
    read: |reader, entry| reader.line_of_text(entry).map(str::to_owned),
    schema: line_schema,
};

/// A path. A person's own folder can stand first in it, as `~`; what only a shell fills in is refused.
pub(crate) const PATH: Form<String> = Form {
    read: |reader, entry| {
        let path = reader.line_of_text(entry)?;
        let of_shell = path
            .strip_prefix("~/")
            .unwrap_or(path.strip_prefix('~').filter(|rest| rest.is_empty()).unwrap_or(path));
        let Some(found) = for_shells(of_shell) else { return Some(path.to_owned()) };
        let sentence = format!("`{}` holds `{found}`, and no shell fills it in", entry.key);
        reader.wrong(entry.at, sentence, "write the path itself; `~/` in front is your home");
        None
    },
    schema: line_schema,
};

/// What a shell would fill in of a text: `~` in front, `$NAME` or `${NAME}`. Expressions of templates are none of it.
pub(crate) fn for_shells(text: &str) -> Option<&str> {
    if text == "~" || text.starts_with("~/") {
        return Some("~");
    }
    let mut remainder = text;
    while let Some(at) = remainder.find(['$', '{']) {
        remainder = &remainder[at..];
        if let Some(expression) = ["{{", "{%"].iter().find(|open| remainder.starts_with(**open)) {
            let end = remainder.find(if *expression == "{{" { "}}" } else { "%}" })?;
            remainder = &remainder[end + 2..];
            continue;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        // `${{ x }}` is a `$` before an expression.
        let name = remainder.strip_prefix('$').filter(|name| !name.starts_with("{{"));
        let name = name.map(|name| name.strip_prefix('{').unwrap_or(name));
        if let Some(name) =
            name.filter(|name| name.starts_with(|c| is_name(c) && !c.is_ascii_digit()))
        {
            let after_name = name.trim_start_matches(is_name);
            let after_variable = after_name
                .strip_prefix('}')
                .filter(|_| remainder.starts_with("${"))
                .unwrap_or(after_name);
            return Some(&remainder[..remainder.len() - after_variable.len()]);
        }
        remainder = &remainder[1..];
    }
    None
}

/// The JSON schema of a text of one line.
pub(crate) fn line_schema() -> Value {
    json!({ "type": "string", "minLength": 1, "pattern": "^[^\\n\\r]*$" })
}

/// A list of texts, each of any number of lines.
pub(crate) const TEXTS: Form<Vec<String>> = Form {
    read: |reader, entry| reader.texts(entry, |r, e| r.text(e).map(str::to_owned)),
    schema: || json!({ "type": "array", "items": { "type": "string" } }),
};

/// A list of texts, each of one line.
pub(crate) const LINES: Form<Vec<String>> = Form {
    read: |reader, entry| reader.texts(entry, |r, e| r.line_of_text(e).map(str::to_owned)),
    schema: || json!({ "type": "array", "items": line_schema() }),
};

/// A memory with its unit, in MiB.
pub(crate) const MEMORY: Form<u64> = Form {
    read: |reader, entry| unit(reader, entry, units::MEMORY_FORMS, units::parse_memory),
    schema: || json!({ "type": "string", "examples": ["500M", "2G", "1T"] }),
};

/// A time with its unit, in seconds.
pub(crate) const WALLTIME: Form<u64> = Form {
    read: |reader, entry| unit(reader, entry, units::WALLTIME_FORMS, units::parse_walltime),
    schema: || json!({ "type": "string", "examples": ["00:30:00", "1-00:00:00", "90m", "2h"] }),
};

/// A number with its unit; one without is refused.
fn unit(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    forms: &str,
    parse: fn(&str) -> Option<u64>,
) -> Option<u64> {
    if let DeValue::Integer(number) = entry.item.get_ref() {
        reader.wrong(entry.at, format!("`{} = {number}` lacks a unit", entry.key), forms);
        return None;
    }
    let text = reader.text(entry)?;
    let read = parse(text);
    if read.is_none() {
        reader.wrong(entry.at, format!("`{}` cannot be `{text}`", entry.key), forms);
    }
    read
}

#[cfg(test)]
mod tests {
    use super::for_shells;

    #[test]
    fn what_a_shell_would_fill_in_is_found_and_expressions_are_not() {
        for (text, found) in [
            ("~", "~"),
            ("~/data", "~"),
            ("/x:$PATH", "$PATH"),
            ("{{ a }}/${HOME}/x", "${HOME}"),
            ("${A\u{e9}", "${A"),
            ("${A:-1}", "${A"),
            ("$A}", "$A"),
        ] {
            assert_eq!(for_shells(text), Some(found), "{text}");
        }
        for text in [
            "a~",
            "5$",
            "$1",
            "$\u{e9}",
            "${{x}}",
            "{{ '$x' }}",
            "{% if a %}x{% endif %}",
            "{{ $x",
            "a{$",
        ] {
            assert_eq!(for_shells(text), None, "{text}");
        }
    }
}
