//! The template engine: how Tera is set up, which names an expression uses, what it complains of.
//!
//! The only file of this room that builds an engine. Nothing it prints is quoted or escaped: values
//! go into argument vectors and comparisons, never into shell code.

use std::collections::BTreeSet;

use tera::{Context, Kwargs, State, Tera};

use crate::plan::value::Params;

/// An engine as all templates of a plan use it: no escaping, and a filter `json_encode`.
pub(crate) fn engine() -> Tera {
    let mut tera = Tera::default();
    tera.autoescape_on(Vec::<&str>::new());
    tera.register_filter("json_encode", |value: &tera::Value, _: Kwargs, _: &State| {
        serde_json::to_string(value).map_err(tera::Error::message)
    });
    tera
}

/// The parameters as a context of templates: nested tables, and all of them as `params`.
pub(crate) fn context(params: &Params) -> Result<Context, tera::Error> {
    let mut context = Context::from_serialize(params)?;
    context.insert("params", params);
    Ok(context)
}

/// The names that a template uses.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Uses {
    /// Names, dotted as far as they are.
    pub(crate) names: BTreeSet<String>,
    /// Whether it provides for names that are missing (`default`, `is defined`, `?.`).
    pub(crate) may_lack: bool,
}

/// Whether a text holds nothing for Tera.
pub(crate) fn is_plain(source: &str) -> bool {
    !["{{", "{%", "{#"].iter().any(|open| source.contains(open))
}

/// Whether a template may read one of the fields of an object: by its name (`sweep.seed`), or through the object as a
/// whole (`sweep["seed"]`, `sweep | json_encode`).
pub(crate) fn reads(source: &str, object: &str, fields: &[&str]) -> bool {
    let is_field = |name: &str| {
        let field_path = name.strip_prefix(object).and_then(|rest| rest.strip_prefix('.'));
        field_path.is_some_and(|path| fields.contains(&path.split('.').next().unwrap_or(path)))
    };
    let names = || Compiled::new(source).map(|compiled| compiled.uses.names).unwrap_or_default();
    !is_plain(source) && names().iter().any(|name| name == object || is_field(name))
}

/// Templates that are parsed once, together. Text without expressions builds no engine.
pub(crate) struct Parsed(Option<Tera>);

impl Parsed {
    /// Parses templates, each of which has a key.
    ///
    /// # Errors
    /// Returns the key of the first one with wrong syntax, and Tera's error about it.
    pub(crate) fn new<'t, K>(
        templates: impl IntoIterator<Item = (K, &'t str)>,
    ) -> Result<Self, (K, String)> {
        let expressions = templates.into_iter().filter(|(_, source)| !is_plain(source));
        let expressions: Vec<(K, &str)> = expressions.collect();
        if expressions.is_empty() {
            return Ok(Self(None));
        }
        let mut tera = engine();
        // All at once, because after each addition Tera checks all templates that it has.
        let Err(error) =
            tera.add_raw_templates(expressions.iter().map(|(_, source)| (source, source)))
        else {
            return Ok(Self(Some(tera)));
        };
        let mut first_invalid = None;
        for (key, source) in expressions {
            match Compiled::new(source) {
                Ok(_) => drop(first_invalid.get_or_insert(key)),
                Err(why) => return Err((key, why)),
            }
        }
        // Each is sound alone.
        first_invalid.map_or(Ok(Self(None)), |key| Err((key, sentence(&error))))
    }

    /// The text of one of them; `context` is asked for only where there is something to fill in.
    ///
    /// # Errors
    /// Returns Tera's error, or that of `context`.
    pub(crate) fn render<'c>(
        &self,
        source: &str,
        context: impl FnOnce() -> Result<&'c Context, tera::Error>,
    ) -> Result<String, tera::Error> {
        match &self.0 {
            Some(tera) if !is_plain(source) => tera.render(source, context()?),
            _ => Ok(source.to_owned()),
        }
    }
}

/// Tera's error, as a fragment of a sentence.
pub(crate) fn sentence(error: &tera::Error) -> String {
    use tera::ErrorKind;
    let text = match error.kind() {
        ErrorKind::SyntaxError(report) | ErrorKind::RenderingError(report) => {
            report.message().to_owned()
        }
        other => other.to_string(),
    };
    let line = text.lines().next().unwrap_or("").trim_start_matches("error: ");
    let line = line.split(". Available").next().unwrap_or(line).trim_end_matches('.');
    let mut letters = line.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => "the engine gives no reason".to_owned(),
    }
}

/// One template, parsed, for many trials.
pub(crate) struct Compiled {
    engine: Tera,
    /// The names it uses.
    pub(crate) uses: Uses,
    /// The first part of each, once.
    heads: Vec<String>,
}

impl Compiled {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns Tera's error about its syntax.
    pub(crate) fn new(source: &str) -> Result<Self, String> {
        let mut engine = engine();
        engine.add_raw_template(NAME, source).map_err(|e| sentence(&e))?;
        let heads = engine.get_template_variables(NAME).map_err(|e| sentence(&e))?;
        let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        let is_variable = |head: &str| heads.iter().any(|known| known == head);
        let mut names = paths(source, Subscripts::End, is_variable);
        for head in &heads {
            if !names.iter().any(|name| name.split('.').next() == Some(head)) {
                names.insert(head.clone());
            }
        }
        let marks = ["default(", "defined", "?."];
        let may_lack = marks.iter().any(|mark| source.contains(mark));
        Ok(Self { engine, uses: Uses { names, may_lack }, heads })
    }

    /// The first parts of the names it uses.
    pub(crate) fn heads(&self) -> &[String] {
        &self.heads
    }

    /// Whether an expression in the form of [`Compiled::condition`] holds for values that are found by the first parts of
    /// their names.
    ///
    /// # Errors
    /// Returns Tera's error.
    pub(crate) fn holds<V: serde::Serialize>(
        &self,
        mut value: impl FnMut(&str) -> Option<V>,
    ) -> Result<bool, String> {
        let mut context = Context::new();
        for head in &self.heads {
            if let Some(value) = value(head) {
                context.insert(head.clone(), &value);
            }
        }
        let text = self.engine.render(NAME, &context).map_err(|e| sentence(&e))?;
        Ok(!text.is_empty())
    }

    /// Parses a condition: its text is empty where it does not hold.
    ///
    /// # Errors
    /// Returns Tera's error about its syntax.
    pub(crate) fn condition(expression: &str) -> Result<Self, String> {
        // The user has written no tag.
        Self::new(&format!("{{% if {expression} %}}1{{% endif %}}"))
            .map_err(|reason| reason.replace("`%}`", "the end"))
    }

    /// The text for these parameters; only the names it uses are handed over.
    ///
    /// # Errors
    /// Returns Tera's error.
    pub(crate) fn render(&self, params: &Params) -> Result<String, String> {
        let mut context = Context::new();
        for head in &self.heads {
            if head == "params" {
                context.insert(head.clone(), params);
            } else if let Some(value) = params.get(head) {
                context.insert(head.clone(), value);
            } else if let Some(table) = params.table(head) {
                context.insert(head.clone(), &table);
            }
        }
        self.engine.render(NAME, &context).map_err(|e| sentence(&e))
    }
}

/// The name of the one template of a [`Compiled`].
const NAME: &str = "template";

/// The names that a template uses, with names in brackets as parts of them: `params["lr-decay"]` is `params.lr-decay`. None
/// where its syntax is wrong.
pub(crate) fn whole_paths(source: &str) -> BTreeSet<String> {
    if is_plain(source) {
        return BTreeSet::new();
    }
    let Ok(compiled) = Compiled::new(source) else { return BTreeSet::new() };
    paths(source, Subscripts::Join, |head| compiled.heads.iter().any(|known| known == head))
}

/// What a name in brackets does to the name before it.
#[derive(Clone, Copy, PartialEq)]
enum Subscripts {
    /// It ends it.
    End,
    /// It is a part of it.
    Join,
}

/// The names in the expressions of a template whose head is a variable, dotted as far as they are.
fn paths(
    source: &str,
    subscripts: Subscripts,
    is_variable: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut paths = BTreeSet::new();
    let mut unread = source;
    while let Some(open) = unread.find("{{").into_iter().chain(unread.find("{%")).min() {
        let mut code = &unread[open + 2..];
        let mut previous_char = ' ';
        while let Some(c) = code.chars().next() {
            if code.starts_with("}}") || code.starts_with("%}") {
                break;
            }
            if ['"', '\'', '`'].contains(&c) {
                code = code[1..].split_once(c).map_or("", |(_, tail)| tail);
            } else if is_name(c) {
                let end = code.find(|c: char| !is_name(c) && c != '.').unwrap_or(code.len());
                let mut name = code[..end].trim_end_matches('.').to_owned();
                code = &code[end..];
                while let Some((part, after)) = subscript(code)
                    && subscripts == Subscripts::Join
                {
                    name = format!("{name}.{part}");
                    code = after;
                }
                let head = name.split('.').next().unwrap_or("");
                if previous_char != '.' && is_variable(head) {
                    paths.insert(name);
                }
            } else {
                code = &code[c.len_utf8()..];
            }
            previous_char = c;
        }
        unread = code.get(2..).unwrap_or("");
    }
    paths
}

/// The name in brackets with which this begins (`["lr-decay"]`), and what follows.
fn subscript(code: &str) -> Option<(&str, &str)> {
    let inside = code.strip_prefix('[')?.trim_start();
    let quote = inside.chars().next().filter(|c| "\"'`".contains(*c))?;
    let (name, after) = inside[1..].split_once(quote)?;
    Some((name, after.trim_start().strip_prefix(']')?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::Value;

    #[test]
    fn the_names_of_an_expression_are_found() {
        let uses = |source: &str| Compiled::new(source).map(|c| c.uses).unwrap();
        let names = |source: &str| uses(source).names.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names("{{ opt.lr * scale }} {{ 'no.name' }}"), "opt.lr scale");
        assert_eq!(names("{% for b in betas %}{{ b }}{% endfor %}"), "betas");
        assert_eq!(names("{{ lr | round(precision=n) }}"), "lr n");
        assert!(uses("{{ lr | default(value=0.1) }}").may_lack);
        assert!(!uses("{{ lr * 2 }}").may_lack);
        assert_eq!(
            Compiled::new("{{ lr + }}").err().unwrap(),
            "found `}}` but expected one of: integer, float, string, bool, ident, `-`, `not`, `<`, `{`, `[` or `(`"
        );
    }

    #[test]
    fn lists_can_be_written_as_json() {
        let betas = Value::List([Value::Float(0.9), Value::text("a\"b")].into());
        let params = Params::new([Arc::from("x")].into(), [betas].into());
        let template = Compiled::new("{{ x | json_encode }}").unwrap();
        assert_eq!(template.render(&params).unwrap(), r#"[0.9,"a\"b"]"#);
    }
}
