//! Text with Tera expressions as a plan holds it, and its simple forms.
//!
//! Text with plain `{{ name }}` pieces is filled in directly, to the letter as Tera would; only
//! other templates need the [`engine`](crate::plan::templates::engine). Nothing is quoted or escaped.

use std::fmt::Write;
use std::sync::Arc;

use crate::plan::templates::engine::{Compiled, Uses};
use crate::plan::value::{Value, float_text};

/// Words that Tera reads as something other than a name.
const KEYWORDS: &[&str] = &[
    "true", "True", "false", "False", "loop", "self", "and", "or", "not", "is", "in", "continue",
    "break", "none", "None", "null", "if", "else", "for",
];

/// A piece of a simple template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    /// Text as it is.
    Text(Arc<str>),
    /// The value with this dotted name.
    Name(Arc<str>),
}

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Plain,
    Pieces(Arc<[Piece]>),
    Engine,
}

/// A text that may hold Tera expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    /// The text as written.
    pub(crate) source: Arc<str>,
    form: Form,
}

impl Template {
    /// Looks at a text without parsing it fully; wrong syntax comes out in [`Template::uses`].
    pub(crate) fn new(source: &str) -> Self {
        let form = if !["{{", "{%", "{#"].iter().any(|open| source.contains(open)) {
            Form::Plain
        } else {
            pieces(source).map_or(Form::Engine, |pieces| Form::Pieces(pieces.into()))
        };
        Self { source: Arc::from(source), form }
    }

    /// Whether it is text without expressions.
    pub(crate) fn is_plain(&self) -> bool {
        self.form == Form::Plain
    }

    /// Whether it is more than text and names.
    pub(crate) fn needs_engine(&self) -> bool {
        self.form == Form::Engine
    }

    /// Its pieces, if it is text and plain names.
    pub(crate) fn pieces(&self) -> Option<&[Piece]> {
        match &self.form {
            Form::Pieces(pieces) => Some(pieces),
            _ => None,
        }
    }

    /// The names it uses.
    ///
    /// # Errors
    /// Returns what Tera says of its syntax.
    pub(crate) fn uses(&self) -> Result<Uses, String> {
        match &self.form {
            Form::Plain => Ok(Uses::default()),
            Form::Pieces(pieces) => {
                let names = pieces.iter().filter_map(|piece| match piece {
                    Piece::Name(name) => Some(name.to_string()),
                    Piece::Text(_) => None,
                });
                Ok(Uses { names: names.collect(), may_lack: false })
            }
            Form::Engine => Compiled::new(&self.source).map(|compiled| compiled.uses),
        }
    }
}

/// The pieces of a template of text and plain names; `None` if it is anything else.
fn pieces(source: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while let Some(open) = rest.find(['{']) {
        let after = &rest[open..];
        if !after.starts_with("{{") {
            if after.starts_with("{%") || after.starts_with("{#") {
                return None;
            }
            let (text, tail) = rest.split_at(open + 1);
            push_text(&mut pieces, text);
            rest = tail;
            continue;
        }
        let (inside, tail) = after[2..].split_once("}}")?;
        let name = inside.trim_matches(' ');
        if !is_path(name) {
            return None;
        }
        push_text(&mut pieces, &rest[..open]);
        pieces.push(Piece::Name(Arc::from(name)));
        rest = tail;
    }
    push_text(&mut pieces, rest);
    Some(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(Piece::Text(last)) = pieces.last_mut() {
        *last = Arc::from(format!("{last}{text}"));
    } else {
        pieces.push(Piece::Text(Arc::from(text)));
    }
}

fn is_path(name: &str) -> bool {
    let is_ident = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !KEYWORDS.contains(&part)
            && !part.starts_with("__tera")
    };
    !name.is_empty() && name.split('.').all(is_ident)
}

/// Writes a value as Tera prints it: lists and tables with a blank after each comma.
pub(crate) fn write_value(out: &mut String, value: &Value) {
    let quoted = |out: &mut String, text: &str| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{text:?}");
    };
    let inner = |out: &mut String, value: &Value| match value {
        Value::Str(text) => quoted(out, text),
        Value::Float(f) if !f.is_finite() => quoted(out, &float_text(*f)),
        Value::Null => out.push_str("null"),
        other => write_value(out, other),
    };
    match value {
        Value::Null => {}
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => out.push_str(&float_text(*f)),
        Value::Str(text) => out.push_str(text),
        Value::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                inner(out, item);
            }
            out.push(']');
        }
        Value::Table(pairs) => {
            out.push('{');
            for (i, (key, item)) in pairs.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                quoted(out, key);
                out.push_str(": ");
                inner(out, item);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::engine::{context, engine};
    use super::*;
    use crate::plan::Params;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_map(Value::Float),
            "\\PC{0,8}|[a-z\"'\\\\\n\t]{0,8}".prop_map(Value::text),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(|v| Value::List(v.into())),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| {
                    Value::Table(map.into_iter().map(|(k, v)| (Arc::from(k), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_filled_piece_is_what_tera_prints(value in value()) {
            let params = Params::new([Arc::from("x")].into(), [value.clone()].into());
            let mut ours = String::new();
            write_value(&mut ours, &value);
            let theirs =
                engine().render_str("{{ x }}", &context(&params).unwrap(), false).unwrap();
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn any_text_is_looked_at_without_a_panic(text in "[a-z{}%#. \"|é]{0,24}") {
            let template = Template::new(&text);
            let _ = template.uses();
        }
    }

    #[test]
    fn floats_come_out_of_the_engine_bit_exact() {
        for f in [1e-7, 1e-5, 1e20, 1.0, 0.1, -0.0, 5e-324, f64::MAX, 1e16, 123_456_789.0] {
            let params = Params::new([Arc::from("x")].into(), [Value::Float(f)].into());
            let text = engine().render_str("{{ x }}", &context(&params).unwrap(), false).unwrap();
            assert_eq!(text, float_text(f));
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), f.to_bits());
        }
    }

    #[test]
    fn simple_templates_need_no_engine() {
        let check = |source: &str, expected: Option<&[Piece]>| {
            assert_eq!(Template::new(source).pieces(), expected, "{source}");
        };
        let text = |s: &str| Piece::Text(Arc::from(s));
        let name = |s: &str| Piece::Name(Arc::from(s));
        check("fold{{ fold }}", Some(&[text("fold"), name("fold")]));
        check("{{opt.lr}}-{x}", Some(&[name("opt.lr"), text("-{x}")]));
        check("--lr", None);
        check("{{ lr * 2 }}", None);
        check("{{- lr }}", None);
        check("{{ true }}", None);
        check("{% if a %}{{ b }}{% endif %}", None);
        check("{{ lr", None);
    }
}
