//! The errors of TOML in a text, each slip once: a string or a list that is not closed swallows the text after it,
//! and the parser's errors about that text are not the author's.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slip {
    /// Byte offset of what is wrong.
    pub(super) at: usize,
    /// The bytes that mean nothing because of it: those of the value it is in, if it is in one.
    pub(super) spoilt: Range<usize>,
    /// The parser's message, without the place.
    pub(super) message: String,
    /// How it is fixed, where that is known.
    pub(super) hint: Option<String>,
}

/// The document as far as it can be read, and what is wrong with it, in the order of the text.
pub(super) fn parse(text: &str) -> (Spanned<DeTable<'_>>, Vec<Slip>) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut errors_found: Vec<(Range<usize>, &str)> =
        errors.iter().map(|e| (e.span().unwrap_or(0..0), e.message())).collect();
    errors_found.sort_by_key(|(span, _)| span.start);
    let mut values = Vec::new();
    lists(document.get_ref(), text, &mut values);
    let newlines: Vec<usize> =
        text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let line = |at: usize| 1 + newlines.partition_point(|newline| *newline < at);
    let mut slips: Vec<Slip> = Vec::new();
    // They come in the order of the text: only the one before can be in the same line.
    let mut spoilt_to = 0;
    for (span, message) in &errors_found {
        let is_in_line = slips.last().is_some_and(|slip| line(slip.at) == line(span.start));
        if span.start < spoilt_to || is_in_line {
            continue;
        }
        let value = values.iter().find(|value| (value.start..=value.end).contains(&span.start));
        let is_open = value.is_some_and(|value| {
            errors_found
                .iter()
                .any(|(at, message)| at.start == value.end && message.starts_with("unclosed array"))
        });
        let spoilt = match value {
            // The end of a text belongs to it.
            Some(value) => value.start..value.end + 1,
            None => span.start..span.start,
        };
        let hint = hint(message).or_else(|| {
            let begins = line(value?.start);
            is_open.then(|| {
                format!("the list that begins in line {begins} is not closed: is its `]` missing?")
            })
        });
        spoilt_to = spoilt_to.max(spoilt.end);
        slips.push(Slip { at: span.start, spoilt, message: (*message).to_owned(), hint });
    }
    (document, slips)
}

/// What a text is that was written in another form, and what its author can do: the parser would complain about each line.
pub(super) fn other_form(text: &str) -> Option<(&'static str, &'static str)> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.starts_with('{') {
        let is_notebook = ["\"cells\"", "\"nbformat\""].iter().all(|word| text.contains(word));
        return Some(match is_notebook {
            true => ("a notebook", "give a plan, or a Python script that calls `hpcsweep.Sweep`"),
            false => ("JSON", AS_TOML),
        });
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let is_yaml = lines.clone().next().is_some_and(|line| {
        let key = line.split_once(':').filter(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
        line.trim_end() == "---"
            || key.is_some_and(|(name, _)| {
                name.chars().all(|c| c.is_alphanumeric() || "_-. ".contains(c))
            })
    });
    (is_yaml && !lines.any(|line| line.starts_with('['))).then_some(("YAML", AS_TOML))
}

const AS_TOML: &str = "write `key = value` below the name of its table, `[table]`";

fn hint(message: &str) -> Option<String> {
    let quote = match message {
        "invalid basic string, expected `\"`" => '"',
        "invalid literal string, expected `'`" => '\'',
        "duplicate key" => {
            return Some("keep one of the two; a table's keys stand under one heading".to_owned());
        }
        _ => return None,
    };
    Some(format!("a string ends in the line in which it begins: is its `{quote}` missing?"))
}

/// Where the lists and inline tables are that are values of keys.
fn lists(table: &DeTable<'_>, text: &str, found: &mut Vec<Range<usize>>) {
    for (_, item) in table {
        let span = item.span();
        let is_value = text
            .get(..span.start)
            .is_some_and(|before| before.trim_end_matches([' ', '\t']).ends_with('='));
        match item.get_ref() {
            DeValue::Array(_) | DeValue::Table(_) if is_value => found.push(span),
            DeValue::Table(table) => lists(table, text, found),
            DeValue::Array(items) => {
                let tables = items.iter().filter_map(|item| item.get_ref().as_table());
                tables.for_each(|table| lists(table, text, found));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a byte offset, from 1.
    fn line(text: &str, at: usize) -> usize {
        1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count()
    }

    fn said(text: &str) -> Vec<String> {
        let (_, slips) = parse(text);
        let shown = |slip: &Slip| {
            let hint = slip.hint.as_deref().map(|hint| format!(" ({hint})"));
            format!("{}: {}{}", line(text, slip.at), slip.message, hint.unwrap_or_default())
        };
        slips.iter().map(shown).collect()
    }

    #[test]
    fn a_string_or_a_list_that_is_not_closed_is_one_slip() {
        let rest = "d = \"x\"\n[grid]\na = [1, 2]\n[defaults]\nx = \"y\"\n";
        let string = "a string ends in the line in which it begins: is its";
        for (line, expected) in [
            ("c = [\"true]", format!("1: invalid basic string, expected `\"` ({string} `\"` missing?)")),
            ("c = \"true", format!("1: invalid basic string, expected `\"` ({string} `\"` missing?)")),
            ("c = ['a', 'b]", format!("1: invalid literal string, expected `'` ({string} `'` missing?)")),
            (
                "c = [\n  \"a\",\n  \"b,\n  \"c\",\n]",
                format!("3: invalid basic string, expected `\"` ({string} `\"` missing?)"),
            ),
            (
                "c = [\"true\"",
                "2: missing comma between array elements, expected `,` (the list that begins in line 1 is not \
                 closed: is its `]` missing?)"
                    .to_owned(),
            ),
        ] {
            assert_eq!(said(&format!("{line}\n{rest}")), [expected], "{line}");
        }
        assert_eq!(said("c = [\"a\", \"b]").len(), 1);
        assert_eq!(said("x = \"\"\"a\nb = 2\n[c]\nd = 3\n").len(), 1);
        assert_eq!(said(rest), Vec::<String>::new());
    }

    #[test]
    fn slips_that_have_nothing_to_do_with_each_other_are_all_said() {
        let text = "a = b\nc = [1 2]\n[x\n[[t]]\nd = [\"y]\n[z]\nq = 1\nq = 2\n";
        let lines = |text: &str| -> Vec<usize> {
            parse(text).1.iter().map(|slip| line(text, slip.at)).collect()
        };
        assert_eq!(lines(text), [1, 2, 3, 5]);
        assert_eq!(lines(&text.replace("[\"y]", "[\"y\"]")), [1, 2, 3, 8]);
    }
}
