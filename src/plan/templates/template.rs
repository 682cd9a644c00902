//! Text with Tera expressions as a plan holds it. Nothing is quoted or escaped.

use std::sync::Arc;

use crate::plan::templates::engine::{Compiled, Uses, is_plain};

/// A text that may hold Tera expressions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    /// The text as written.
    pub(crate) source: Arc<str>,
}

impl Template {
    /// Looks at a text without parsing it; wrong syntax comes out in [`Template::uses`].
    pub(crate) fn new(source: &str) -> Self {
        Self { source: Arc::from(source) }
    }

    /// Whether it is text without expressions.
    pub(crate) fn is_plain(&self) -> bool {
        is_plain(&self.source)
    }

    /// Whether it has statements, as `{% if amp %}` is one.
    pub(crate) fn has_statements(&self) -> bool {
        self.source.contains("{%")
    }

    /// The dotted name that is all it holds (`{{ opt.lr }}`).
    pub(crate) fn name(&self) -> Option<&str> {
        let name = self.source.strip_prefix("{{")?.strip_suffix("}}")?.trim_matches(' ');
        name.split('.').all(is_ident).then_some(name)
    }

    /// The names it uses.
    ///
    /// # Errors
    /// Returns Tera's error about its syntax.
    pub(crate) fn uses(&self) -> Result<Uses, String> {
        match self.is_plain() {
            true => Ok(Uses::default()),
            false => Compiled::new(&self.source).map(|compiled| compiled.uses),
        }
    }
}

fn is_ident(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::engine::{context, engine};
    use super::*;
    use crate::plan::value::float_text;
    use crate::plan::{Params, Value};

    proptest! {
        #[test]
        fn any_text_is_looked_at_without_a_panic(text in "[a-z{}%#. \"|é]{0,24}") {
            let template = Template::new(&text);
            let _ = (template.uses(), template.name());
        }
    }

    fn printed(value: Value) -> String {
        let params = Params::new([Arc::from("x")].into(), [value].into());
        engine().render_str("{{ x }}", &context(&params).unwrap(), false).unwrap()
    }

    #[test]
    fn floats_come_out_of_the_engine_bit_exact() {
        for f in [1e-7, 1e-5, 1e20, 1.0, 0.1, -0.0, 5e-324, f64::MAX, 1e16, 123_456_789.0] {
            let text = printed(Value::Float(f));
            assert_eq!(text, float_text(f));
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), f.to_bits());
        }
        assert_eq!(printed(Value::Float(f64::NEG_INFINITY)), "-inf");
    }

    #[test]
    fn every_kind_of_value_has_a_text() {
        let list = Value::List([Value::Int(1), Value::text("it's \"a\"")].into());
        let table = Value::Table([(Arc::from("k"), Value::Bool(true))].into());
        let all = [Value::Null, Value::Bool(false), Value::Int(i64::MIN), Value::text("<a & 'b'>")];
        let texts = all.into_iter().chain([list, table]).map(printed);
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [
                "",
                "false",
                "-9223372036854775808",
                "<a & 'b'>",
                r#"[1, "it's \"a\""]"#,
                r#"{"k": true}"#
            ]
        );
    }

    #[test]
    fn one_name_alone_is_told_from_any_other_expression() {
        let name = |source: &str| Template::new(source).name().map(str::to_owned);
        assert_eq!(name("{{opt.lr}}").as_deref(), Some("opt.lr"));
        assert_eq!(name("{{  lr }}").as_deref(), Some("lr"));
        for other in ["lr", "--lr={{ lr }}", "{{ lr * 2 }}", "{{ a }}{{ b }}", "{{ }}", "{{ lr"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
