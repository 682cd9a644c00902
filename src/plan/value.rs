//! Parameter values as a plan writes them, and their three spellings: text, JSON, environment.
//!
//! Floats keep their bits: the text is the shortest that reads back to the same f64.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use toml::de::DeValue;

use crate::plan::document::{Item, Reader, entries};

/// One value of a parameter. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value: null of a list of trials, or the text that `[sweep] null` names. Empty as text.
    Null,
    /// A truth value; as text `true` or `false`.
    Bool(bool),
    /// An integer of 64 bits with a sign.
    Int(i64),
    /// A 64-bit float; `inf` and `nan` are allowed and become strings in JSON.
    Float(f64),
    /// Text; TOML dates arrive here too, as written.
    Str(Arc<str>),
    /// A list of values.
    List(Arc<[Value]>),
    /// A table inside a list, or an empty table. Other tables are dotted parameters.
    Table(Arc<[(Arc<str>, Value)]>),
}

impl Value {
    /// A value that is a text; takes a copy of it.
    pub(crate) fn text(s: impl AsRef<str>) -> Self {
        Self::Str(Arc::from(s.as_ref()))
    }

    /// The value as JSON. Non-finite floats become the strings `inf`, `-inf` and `nan`.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or(serde_json::Value::Null)
    }
}

/// Reads any value as that of a parameter; `name` is the parameter it belongs to.
pub(crate) fn read_value(reader: &mut Reader<'_>, name: &str, item: &Item<'_>) -> Option<Value> {
    let start = item.span().start;
    match item.get_ref() {
        DeValue::String(text) if text.contains('\0') => {
            let sentence = format!("`{name}` holds a NUL character");
            reader.wrong(start, sentence, "no program can be given one: remove it");
            None
        }
        DeValue::String(text) if reader.null() == Some(&**text) => Some(Value::Null),
        DeValue::String(text) => Some(Value::text(text)),
        DeValue::Boolean(b) => Some(Value::Bool(*b)),
        DeValue::Datetime(date) => Some(Value::text(date.to_string())),
        DeValue::Integer(digits) => reader.digits(start, digits).map(Value::Int),
        DeValue::Float(digits) => {
            let read = digits.as_str().parse::<f64>().ok();
            let fits = read.filter(|f| f.is_finite() || !digits.as_str().contains(['e', '.']));
            if fits.is_none() {
                let sentence = format!("`{digits}` is beyond the largest float");
                reader.wrong(start, sentence, "write `inf`, or a string");
            }
            fits.map(Value::Float)
        }
        DeValue::Array(items) => {
            let values: Vec<_> =
                items.iter().filter_map(|item| read_value(reader, name, item)).collect();
            Some(Value::List(values.into()))
        }
        DeValue::Table(table) => {
            let mut pairs: Vec<(Arc<str>, Value)> = Vec::with_capacity(table.len());
            for entry in entries(table) {
                if let Some(value) = read_value(reader, name, entry.item) {
                    pairs.push((Arc::from(entry.key), value));
                }
            }
            Some(Value::Table(pairs.into()))
        }
    }
}

/// The environment variable of a parameter: `opt.lr` is `HPCSWEEP_PARAM_OPT_LR`.
pub(crate) fn variable_of(parameter: &str) -> String {
    format!(
        "HPCSWEEP_PARAM_{}",
        parameter
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect::<String>()
    )
}

/// The words for numbers that JSON cannot write.
const NOT_FINITE: [(&str, f64); 3] =
    [("nan", f64::NAN), ("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY)];

/// The shortest text that reads back to the same f64; `1.0` keeps its point.
pub(crate) fn float_text(f: f64) -> String {
    let mut text = String::new();
    // A text takes everything.
    let _ = write_float(&mut text, f);
    text
}

/// The float that a text means, if its digits come back. A power of ten has a sign, or a point before it: `12e4` may be a name.
pub(crate) fn float_as_written(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    let (digits, power) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let is_kept = match power {
        "" => {
            text.contains('.')
                && [format!("{number}"), format!("{number:.1}")].contains(&text.to_owned())
        }
        // What programs write has more digits than a float has; one that is too small for a float is another number.
        _ => {
            let is_zero = digits.bytes().all(|digit| !(b'1'..=b'9').contains(&digit));
            (power.starts_with(['-', '+']) || digits.contains('.')) && (number != 0.0 || is_zero)
        }
    };
    is_kept.then_some(number)
}

/// Writes [`float_text`].
///
/// # Errors
/// Those of `out`.
pub(crate) fn write_float(out: &mut impl fmt::Write, f: f64) -> fmt::Result {
    let is_same = |x: f64| x == f || (x.is_nan() && f.is_nan());
    match NOT_FINITE.iter().find(|(_, x)| is_same(*x)).filter(|_| !f.is_finite()) {
        Some((word, _)) => out.write_str(word),
        // argparse, getopt and others take `-1e-5` for options, and `-0.00001` for a number.
        None if f.is_sign_negative() && format!("{f:?}").contains('e') => {
            let text = format!("{f}");
            write!(out, "{text}{}", if text.contains('.') { "" } else { ".0" })
        }
        // `{:?}` of f64 is the shortest round-trip text, with an exponent outside 1e-5 .. 1e16.
        None => write!(out, "{f:?}"),
    }
}

/// A float as JSON: a number, or the string `nan`, `inf` or `-inf`.
pub(crate) fn float_json(f: f64) -> serde_json::Value {
    if f.is_finite() { f.into() } else { float_text(f).into() }
}

/// The number that JSON stands for: a number, or one of the strings of [`float_json`].
pub(crate) fn json_float(json: &serde_json::Value) -> Option<f64> {
    match json {
        serde_json::Value::String(text) => text_float(text),
        other => other.as_f64(),
    }
}

/// The number that a text stands for in JSON.
pub(crate) fn text_float(text: &str) -> Option<f64> {
    NOT_FINITE.iter().find(|(word, _)| *word == text).map(|(_, f)| *f)
}

impl fmt::Display for Value {
    /// Text as a program wants it on its command line: strings bare, lists and tables as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => Ok(()),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Float(x) => write_float(f, *x),
            Self::Str(s) => f.write_str(s),
            Self::List(_) | Self::Table(_) => {
                f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => s.serialize_unit(),
            Self::Bool(b) => s.serialize_bool(*b),
            Self::Int(i) => s.serialize_i64(*i),
            Self::Float(x) => float_json(*x).serialize(s),
            Self::Str(text) => s.serialize_str(text),
            Self::List(items) => {
                let mut seq = s.serialize_seq(Some(items.len()))?;
                for item in items.iter() {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Table(entries) => {
                let mut map = s.serialize_map(Some(entries.len()))?;
                for (k, v) in entries.iter() {
                    map.serialize_entry(&**k, v)?;
                }
                map.end()
            }
        }
    }
}

/// The parameters of one trial: dotted names (shared by all trials of the same form) and values.
///
/// `opt.lr` is the leaf `lr` of the table `opt`; [`Serialize`] gives the nested form.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Dotted leaf names, in plan order, without repeats; leaves of one table stand together.
    pub(crate) names: Arc<[Arc<str>]>,
    /// One value a name.
    pub(crate) values: Box<[Value]>,
}

impl Params {
    /// The parameters from parallel lists; leaves of one table are grouped.
    pub(crate) fn new(names: Arc<[Arc<str>]>, values: Box<[Value]>) -> Self {
        debug_assert_eq!(names.len(), values.len());
        Self { names, values }
    }

    /// The value of a dotted name.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.names.iter().position(|n| **n == *name).map(|i| &self.values[i])
    }

    /// The table with a dotted name, as something that can be written out.
    pub(crate) fn table(&self, name: &str) -> Option<impl Serialize + '_> {
        let is_inside =
            |n: &Arc<str>| n.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let first_inside = self.names.iter().position(is_inside)?;
        let end_inside =
            first_inside + self.names[first_inside..].iter().take_while(|n| is_inside(n)).count();
        Some(Level { params: self, from: first_inside, to: end_inside, depth: name.len() + 1 })
    }

    /// Dotted names with their values, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.names.iter().map(|n| &**n).zip(self.values.iter())
    }
}

impl<'de> Deserialize<'de> for Value {
    /// The value that JSON stands for: a float that is not finite stays the string that it is there.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reading;

        impl<'de> Visitor<'de> for Reading {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a parameter")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
                Ok(Value::Bool(b))
            }

            fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
                Ok(Value::Int(i))
            }

            fn visit_u64<E>(self, i: u64) -> Result<Value, E> {
                Ok(i64::try_from(i).map_or(Value::Float(i as f64), Value::Int))
            }

            fn visit_f64<E>(self, f: f64) -> Result<Value, E> {
                Ok(Value::Float(f))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Value::List(items.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut entries: Vec<(String, Value)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Value::Table(entries.into_iter().map(|(k, v)| (k.into(), v)).collect()))
            }
        }

        from.deserialize_any(Reading)
    }
}

impl<'de> Deserialize<'de> for Params {
    /// From the nested form.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Nested)
    }
}

thread_local! {
    /// The names of the parameters that this thread has read last: most trials of a table have the same.
    static NAMES: RefCell<Arc<[Arc<str>]>> = RefCell::new(Arc::new([]));
}

/// Reads parameters from the nested form.
struct Nested;

impl<'de> Visitor<'de> for Nested {
    type Value = Params;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
        fn walk(name: &str, value: Value, out: &mut impl FnMut(&str, Value)) {
            match value {
                Value::Table(entries) if !entries.is_empty() => {
                    for (key, value) in entries.iter() {
                        walk(&format!("{name}.{key}"), value.clone(), out);
                    }
                }
                leaf => out(name, leaf),
            }
        }
        let last_names = NAMES.with_borrow(Arc::clone);
        let mut values = Vec::with_capacity(last_names.len());
        // The names, as soon as they are not `last_names`.
        let mut changed_names: Option<Vec<Arc<str>>> = None;
        let mut leaf = |name: &str, value: Value| {
            let name_index = values.len();
            values.push(value);
            match &mut changed_names {
                None if last_names
                    .get(name_index)
                    .is_some_and(|last_name| **last_name == *name) => {}
                Some(names) => names.push(name.into()),
                None => {
                    changed_names = Some(
                        last_names[..name_index].iter().cloned().chain([name.into()]).collect(),
                    )
                }
            }
        };
        while let Some((Name(name), value)) = map.next_entry()? {
            walk(&name, value, &mut leaf);
        }
        let changed_names = changed_names.or_else(|| {
            (values.len() < last_names.len()).then(|| last_names[..values.len()].to_vec())
        });
        let names = changed_names.map_or(last_names, |changed_names| {
            let names: Arc<[Arc<str>]> = changed_names.into();
            NAMES.set(Arc::clone(&names));
            names
        });
        Ok(Params { names, values: values.into() })
    }
}

/// A key of JSON, of which no copy is made where it stands in the text as it is.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Serialize for Params {
    /// The nested form: `{"opt":{"lr":0.1},"epochs":3}`.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Level { params: self, from: 0, to: self.names.len(), depth: 0 }.serialize(s)
    }
}

/// One table level of [`Params`]: the leaves `from..to`, which share their first `depth` bytes.
struct Level<'a> {
    params: &'a Params,
    from: usize,
    to: usize,
    depth: usize,
}

impl Serialize for Level<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        let names = &self.params.names;
        let mut i = self.from;
        while i < self.to {
            let suffix = &names[i][self.depth..];
            match suffix.split_once('.') {
                None => {
                    map.serialize_entry(suffix, &self.params.values[i])?;
                    i += 1;
                }
                Some((head, _)) => {
                    let prefix = &names[i][..self.depth + head.len() + 1];
                    let end =
                        (i..self.to).find(|&j| !names[j].starts_with(prefix)).unwrap_or(self.to);
                    let level =
                        Level { params: self.params, from: i, to: end, depth: prefix.len() };
                    map.serialize_entry(head, &level)?;
                    i = end;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(pairs: &[(&str, Value)]) -> Params {
        Params::new(
            pairs.iter().map(|(n, _)| Arc::from(*n)).collect(),
            pairs.iter().map(|(_, v)| v.clone()).collect(),
        )
    }

    #[test]
    fn each_trial_has_its_own_names_whatever_was_read_before() {
        let of = |json: &str| serde_json::from_str::<Params>(json).unwrap();
        let names =
            |json: &str| of(json).iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        for _ in 0..2 {
            assert_eq!(names(r#"{"a":1,"b":2}"#), ["a=1", "b=2"]);
            assert_eq!(names(r#"{"a":1}"#), ["a=1"]);
            assert_eq!(names(r#"{"a":1,"b":2,"c":3}"#), ["a=1", "b=2", "c=3"]);
            assert_eq!(names(r#"{"b":2,"a":1}"#), ["b=2", "a=1"]);
            assert_eq!(names("{}"), [""; 0]);
            assert_eq!(
                names(r#"{"b":{"x":1,"y":{"\u00fc":2}},"a":{}}"#),
                ["b.x=1", "b.y.ü=2", "a={}"]
            );
        }
        let [first, second] = [of(r#"{"a":1,"b":2}"#), of(r#"{"a":3,"b":4}"#)];
        assert!(Arc::ptr_eq(&first.names, &second.names));
    }

    #[test]
    fn dotted_names_become_nested_json_and_come_back() {
        let p = params(&[
            ("opt.lr", Value::Float(1e-5)),
            ("opt.betas", Value::List([Value::Float(0.9), Value::Float(0.999)].into())),
            ("opt.sched.name", Value::text("cos")),
            ("epochs", Value::Int(3)),
            ("amp", Value::Bool(true)),
        ]);
        let json = serde_json::to_string(&p).unwrap();
        assert_eq!(
            json,
            r#"{"opt":{"lr":0.00001,"betas":[0.9,0.999],"sched":{"name":"cos"}},"epochs":3,"amp":true}"#
        );
        assert_eq!(serde_json::from_str::<Params>(&json).unwrap(), p);
    }

    #[test]
    fn json_of_every_kind_is_read() {
        let json =
            r#"{"a":{},"b":{"c":[{"d":null}],"e":true},"f":9223372036854775808,"g":-1,"h":"inf"}"#;
        let d = Value::Table([(Arc::from("d"), Value::Null)].into());
        let expected = params(&[
            ("a", Value::Table([].into())),
            ("b.c", Value::List([d].into())),
            ("b.e", Value::Bool(true)),
            ("f", Value::Float(9_223_372_036_854_775_808.0)),
            ("g", Value::Int(-1)),
            ("h", Value::text("inf")),
        ]);
        assert_eq!(serde_json::from_str::<Params>(json).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Params>("{}").unwrap(), params(&[]));
        assert!(serde_json::from_str::<Params>("[1]").is_err());
    }

    #[test]
    fn floats_keep_their_bits_in_text_and_json() {
        for f in [0.1, 1e-5, 1.0, 16_777_217.0, 5e-324, f64::MAX, -0.0, 1e22] {
            assert_eq!(float_text(f).parse::<f64>().unwrap().to_bits(), f.to_bits());
            let json: f64 =
                serde_json::from_str(&serde_json::to_string(&Value::Float(f)).unwrap()).unwrap();
            assert_eq!(json.to_bits(), f.to_bits());
        }
        assert_eq!(float_text(1.0), "1.0");
        assert_eq!(Value::Float(f64::INFINITY).to_string(), "inf");
    }
}
