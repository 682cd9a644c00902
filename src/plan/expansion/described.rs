//! A table in place of a list of values: `{ range = [1, 20] }`, `{ linear = [0.0, 1.0, 11] }`, `{ log = [1e-4, 1e-1, 7] }`.
//!
//! What other programs write in such a place is refused with what to write here.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::plan::document::{Entry, Item, Reader, Table, entries};
use crate::plan::expansion::ranges::{self, Spacing};
use crate::plan::value::Value;

/// The keys that describe values.
const FORMS: [&str; 3] = ["range", "linear", "log"];

/// Words by which other programs describe the values of a parameter. No axis has such a key.
const GUESSES: &[&str] = &[
    "range",
    "linear",
    "arange",
    "linspace",
    "logspace",
    "geomspace",
    "values",
    "choice",
    "choices",
    "uniform",
    "log_uniform",
    "loguniform",
    "int",
    "randint",
    "normal",
    "distribution",
];

/// Words that stand beside these, and may as well be names of parameters.
const BESIDE: &[&str] = &[
    "min", "max", "low", "high", "start", "stop", "end", "step", "num", "n", "count", "base",
    "log", "scale", "type",
];

/// A table that describes values.
pub(super) struct Description<'d> {
    table: &'d Table<'d>,
    /// What it describes them by.
    key: Entry<'d>,
}

impl<'d> Description<'d> {
    /// The description that a table is; `None` if it may as well be a table of axes.
    pub(super) fn of(table: &'d Table<'d>) -> Option<Self> {
        Some(Self { table, key: key_of(table)? })
    }

    /// The values of the axis `name`; `None`, which is reported, if there are none.
    pub(super) fn values(&self, reader: &mut Reader<'_>, name: &str) -> Option<Vec<Value>> {
        let Self { table, key } = self;
        let Some(items) = list(key).filter(|_| is_form(key)) else {
            let sentence =
                format!("axis `{name}` is a table with `{}`, not a list of values", key.key);
            reader.wrong(key.at, sentence, hint_of(name, key.key));
            return None;
        };
        let n_before = reader.n_faults();
        let known: &[&str] = if key.key == "range" { &["range", "step"] } else { &[key.key] };
        let mut step = None;
        for entry in entries(table) {
            if is_form(&entry) && entry.key != key.key {
                let sentence = format!("axis `{name}` has both `{}` and `{}`", key.key, entry.key);
                reader.wrong(entry.at, sentence, "keep one of them");
            } else if !known.contains(&entry.key) {
                reader.unknown(&entry, &format!("axis `{name}`"), known);
            } else if entry.key == "step" {
                step = number(entry.item);
                if step.is_none() {
                    reader.expected(&entry, "a number");
                }
            }
        }
        if reader.n_faults() > n_before {
            return None;
        }
        let numbers: Option<Vec<String>> = items.iter().map(number).collect();
        let spacing = Spacing::WORDS.iter().find(|(word, _)| *word == key.key);
        let values = match (numbers.as_deref(), spacing) {
            (Some([low, high]), None) => ranges::range(low, high, step.as_deref()),
            (Some([low, high, n]), Some((_, spacing))) => ranges::spaced(*spacing, low, high, n),
            (_, spacing) => {
                let (what, form) = match spacing {
                    None => ("two numbers".to_owned(), "[1, 20]"),
                    Some(_) => ("two numbers and how many values".to_owned(), "[1.0, 10.0, 11]"),
                };
                let sentence = format!("`{}` of `{name}` needs {what}", key.key);
                let hint = format!(
                    "write `{name} = {{ {} = {form} }}`; {}",
                    key.key,
                    dotted(name, key.key)
                );
                reader.wrong(key.at, sentence, hint);
                return None;
            }
        };
        let flaw = |flaw: ranges::Flaw| flaw.told(&format!("`{}` of `{name}`", key.key));
        values.map_err(flaw).map_err(|(sentence, hint)| reader.wrong(key.at, sentence, hint)).ok()
    }
}

fn key_of<'d>(table: &'d Table<'d>) -> Option<Entry<'d>> {
    let keys = entries(table);
    let is_list = |entry: &Entry<'_>| matches!(entry.item.get_ref(), DeValue::Array(_));
    let is_table = |entry: &Entry<'_>| matches!(entry.item.get_ref(), DeValue::Table(_));
    let is_one = |entry: &Entry<'_>| GUESSES.contains(&entry.key);
    let is_known = |entry: &Entry<'_>| is_one(entry) || BESIDE.contains(&entry.key);
    let form = keys.iter().find(|entry| is_form(entry) && is_list(entry));
    if let Some(form) = form {
        // What is neither a list nor a table can be no axis.
        let is_beside = |entry: &Entry<'_>| is_known(entry) || !is_list(entry) && !is_table(entry);
        return keys.iter().all(is_beside).then_some(*form);
    }
    if !keys.iter().all(is_known) {
        return None;
    }
    keys.iter().find(|e| is_one(e)).or(keys.iter().find(|e| !is_list(e))).copied()
}

fn is_form(entry: &Entry<'_>) -> bool {
    FORMS.contains(&entry.key)
}

fn list<'d>(entry: &Entry<'d>) -> Option<&'d [Item<'d>]> {
    match entry.item.get_ref() {
        DeValue::Array(items) => Some(items),
        _ => None,
    }
}

/// A number as it is written, in decimal digits.
fn number(item: &Item<'_>) -> Option<String> {
    match item.get_ref() {
        DeValue::Integer(digits) => {
            let whole = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
            Some(whole.map_or_else(|| digits.as_str().to_owned(), |whole| whole.to_string()))
        }
        DeValue::Float(digits) => Some(digits.as_str().to_owned()),
        _ => None,
    }
}

/// How the values that a table describes by a key are written.
fn hint_of(name: &str, key: &str) -> String {
    let draw = |kind| {
        format!("with `count`, below `[sample]`: `parameters.{name} = {{ {kind} = [a, b] }}`")
    };
    let random = |kind| format!("write random values, {}", draw(kind));
    let form = |form| format!("write `{name} = {{ {form} }}`");
    let suggestion = match key {
        "values" | "choice" | "choices" => format!("write `{name} = [...]`"),
        "uniform" | "distribution" => random("uniform"),
        "log_uniform" | "loguniform" => random("log_uniform"),
        "int" | "randint" => random("int"),
        "normal" => random("normal"),
        "linspace" | "linear" => form("linear = [LOW, HIGH, N]"),
        "logspace" | "geomspace" | "log" => form("log = [LOW, HIGH, N]"),
        _ => format!(
            "{}; or random ones, {}",
            form("range = [LOW, HIGH], step = STEP"),
            draw("uniform")
        ),
    };
    format!("{suggestion}; {}", dotted(name, key))
}

/// How an axis is written whose name ends like a key that describes values.
fn dotted(name: &str, key: &str) -> String {
    format!("an axis `{name}.{key}` is written `{name}.{key} = [...]`")
}

/// The JSON schemas of the tables.
pub(super) fn schemas() -> Vec<Json> {
    let number = json!({ "type": "number" });
    let form = |key: &str, about: &str, list: Json, step: Option<Json>| {
        let mut list = list;
        list["description"] = about.into();
        let mut schema = json!({
            "type": "object",
            "properties": { key: list },
            "required": [key],
            "additionalProperties": false,
        });
        if let Some(step) = step {
            schema["properties"]["step"] = step;
        }
        schema
    };
    let two = json!({ "type": "array", "items": number, "minItems": 2, "maxItems": 2 });
    let count = json!({ "type": "integer", "minimum": 2 });
    let three =
        json!({ "type": "array", "items": [number, number, count], "minItems": 3, "maxItems": 3 });
    let step = json!({ "type": "number", "description": "1 if left out between whole numbers" });
    vec![
        form("range", "both ends", two, Some(step)),
        form("linear", "both ends, and how many values with equal steps", three.clone(), None),
        form("log", "both ends, and how many values with equal ratios", three, None),
    ]
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, params, plan};

    #[test]
    fn a_table_of_two_ends_is_a_list_of_values() {
        let lists = plan(
            "[grid]\nseed = [1, 2, 3]\nopt.lr = [0.1, 0.2, 0.3]\n[zip]\na = [0.0, 0.5, 1.0]\nb = [1, 10, 100]",
        );
        let described = plan(
            "[grid]\nseed = { range = [1, 3] }\nopt = { lr = { range = [0.1, 0.3], step = 0.1 } }
[zip]\na = { linear = [0.0, 1.0, 3] }\n[zip.b]\nlog = [0x1, 1_00, 3]",
        );
        assert_eq!(params(&described), params(&lists));
        assert_eq!(params(&described).len(), 27);
    }

    #[test]
    fn a_table_that_describes_no_values_is_refused_with_the_way_to_write_them() {
        check_faults(
            "[grid]
a = { range = [1, 20], setp = 2 }
b = { range = [1, 20], linear = [0, 1, 5] }
c = { log = [1, 10, 3], step = 2 }
d = { range = [1, 2, 3] }
e = { linear = [1, 10] }
f = { range = [0.1, 0.5], step = \"0.1\" }
g = { range = [1, 20], step = 3 }
h = { log = [0, 1, 3] }
i = { range = [20, 1] }
j = { range = [1, 99999999999999999999] }
k = { linear = [1, inf, 3] }
[zip]
opt.l = { range = [1, 90000000] }
",
            "axis `a` has no key `setp`
  plan.toml:5: a = { range = [1, 20], setp = 2 }
hint: did you mean `step`?
error: axis `b` has both `range` and `linear`
  plan.toml:6: b = { range = [1, 20], linear = [0, 1, 5] }
hint: keep one of them
error: axis `c` has no key `step`
  plan.toml:7: c = { log = [1, 10, 3], step = 2 }
hint: known here: `log`
error: `range` of `d` needs two numbers
  plan.toml:8: d = { range = [1, 2, 3] }
hint: write `d = { range = [1, 20] }`; an axis `d.range` is written `d.range = [...]`
error: `linear` of `e` needs two numbers and how many values
  plan.toml:9: e = { linear = [1, 10] }
hint: write `e = { linear = [1.0, 10.0, 11] }`; an axis `e.linear` is written `e.linear = [...]`
error: `step` must be a number, not a string
  plan.toml:10: f = { range = [0.1, 0.5], step = \"0.1\" }
error: `range` of `g` does not meet its end by steps of 3
  plan.toml:11: g = { range = [1, 20], step = 3 }
hint: end it at 19, or write `step = 1`
error: the ends of `log` of `h` are not greater than 0
  plan.toml:12: h = { log = [0, 1, 3] }
hint: use `linear`, or other ends
error: `range` of `i` ends before it begins
  plan.toml:13: i = { range = [20, 1] }
hint: write the smaller number first, or add `step = -1` to count down
error: `range` of `j` has ends that are not whole numbers, and no step
  plan.toml:14: j = { range = [1, 99999999999999999999] }
hint: add the step, as in `{ range = [0.1, 0.5], step = 0.1 }`, or write `linear = [LOW, HIGH, N]` for N values
error: the ends of `linear` of `k` are not numbers
  plan.toml:15: k = { linear = [1, inf, 3] }
hint: write finite numbers
error: 90,000,000 values of `range` of `opt.l` are more than the 10,000,000 trials a plan may have
  plan.toml:17: opt.l = { range = [1, 90000000] }
hint: give fewer values",
        );
    }

    #[test]
    fn a_table_that_other_programs_would_read_is_no_table_of_axes() {
        check_faults(
            "[grid]
opt.b = { linspace = [0, 1, 5] }
c = { logspace = [-5, -1], num = 5 }
d = { values = [1, 2] }
e = { uniform = [0, 1] }
f = { min = 0, max = 1 }
[zip]
g = { log_uniform = [1e-5, 1] }
[grid.h]
values = [1, 2]
",
            "axis `opt.b` is a table with `linspace`, not a list of values
  plan.toml:5: opt.b = { linspace = [0, 1, 5] }
hint: write `opt.b = { linear = [LOW, HIGH, N] }`; an axis `opt.b.linspace` is written `opt.b.linspace = [...]`
error: axis `c` is a table with `logspace`, not a list of values
  plan.toml:6: c = { logspace = [-5, -1], num = 5 }
hint: write `c = { log = [LOW, HIGH, N] }`; an axis `c.logspace` is written `c.logspace = [...]`
error: axis `d` is a table with `values`, not a list of values
  plan.toml:7: d = { values = [1, 2] }
hint: write `d = [...]`; an axis `d.values` is written `d.values = [...]`
error: axis `e` is a table with `uniform`, not a list of values
  plan.toml:8: e = { uniform = [0, 1] }
hint: write random values, with `count`, below `[sample]`: `parameters.e = { uniform = [a, b] }`; \
an axis `e.uniform` is written `e.uniform = [...]`
error: axis `f` is a table with `min`, not a list of values
  plan.toml:9: f = { min = 0, max = 1 }
hint: write `f = { range = [LOW, HIGH], step = STEP }`; or random ones, with `count`, below `[sample]`: \
`parameters.f = { uniform = [a, b] }`; an axis `f.min` is written `f.min = [...]`
error: axis `g` is a table with `log_uniform`, not a list of values
  plan.toml:11: g = { log_uniform = [1e-5, 1] }
hint: write random values, with `count`, below `[sample]`: `parameters.g = { log_uniform = [a, b] }`; \
an axis `g.log_uniform` is written `g.log_uniform = [...]`
error: axis `h` is a table with `values`, not a list of values
  plan.toml:13: values = [1, 2]
hint: write `h = [...]`; an axis `h.values` is written `h.values = [...]`",
        );
        let named = plan(
            "[grid]\na.range = [1, 2]\nb = { min = [3], max = [4] }\nc = { range = [5], lr = [6] }",
        );
        assert_eq!(
            params(&named),
            [
                r#"{"a":{"range":1},"b":{"min":3,"max":4},"c":{"range":5,"lr":6}}"#,
                r#"{"a":{"range":2},"b":{"min":3,"max":4},"c":{"range":5,"lr":6}}"#
            ]
        );
    }
}
