//! A filled-in `[train]` becomes a [`Config`]; errors are reported in the words of a plan, with the key.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde_json::Value;

use super::config::Config;
use crate::base::fault::Fault;
use crate::base::words;

impl Config {
    /// The configuration that a form describes, its numbers in their ranges.
    ///
    /// # Errors
    /// The first thing that is wrong, with its key: `train.optimizer.lr`.
    pub(crate) fn read(form: &Value) -> Result<Self, Fault> {
        let config: Self = serde_path_to_error::deserialize(Node(form)).map_err(|e| {
            let path = e.path().to_string();
            let path = if path == "." { String::new() } else { path };
            e.into_inner().fault(&path).of_key(format!("train.{path}"))
        })?;
        config.check().map(|()| config)
    }
}

/// What serde found wrong.
#[derive(Debug)]
enum Wrong {
    /// A value of another type.
    Type { expected: String, found: String },
    /// A key that its table does not have.
    Key { key: String, known: &'static [&'static str] },
    /// A word that is not a setting.
    Setting { word: String, known: &'static [&'static str] },
    /// A key that its table needs.
    Missing(&'static str),
    /// A sentence of ours.
    Other(String),
}

impl Wrong {
    /// The fault, found at a key below `train`.
    fn fault(self, path: &str) -> Fault {
        let name = |path: &str| {
            if path.is_empty() { "`[train]`".into() } else { format!("`train.{path}`") }
        };
        match self {
            Self::Type { expected, found } => {
                Fault::request(format!("{} must be {expected}, not {found}", name(path)))
            }
            Self::Key { key, known } => {
                let table = path.strip_suffix(key.as_str()).unwrap_or(path).trim_end_matches('.');
                let hint = words::suggestion(&key, known, "known here:");
                Fault::request(format!("{} has no key `{key}`", name(table))).hint(hint)
            }
            Self::Setting { word, known } => {
                let hint = words::suggestion(&word, known, "write one of");
                Fault::request(format!("{} has no setting `{word}`", name(path))).hint(hint)
            }
            Self::Missing(key) => Fault::request(format!("{} has no `{key}`", name(path))),
            Self::Other(sentence) => Fault::request(format!("{}: {sentence}", name(path))),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(sentence: T) -> Self {
        Self::Other(sentence.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found_words = match found {
            Unexpected::Str(text) => format!("the text `{text}`"),
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(number) => format!("`{number}`"),
            Unexpected::Signed(number) => format!("`{number}`"),
            Unexpected::Float(number) => format!("`{number}`"),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            Unexpected::Unit => "nothing".to_owned(),
            other => other.to_string(),
        };
        let expected = match expected.to_string().as_str() {
            "u32" | "u64" | "usize" => "a whole number from 0".to_owned(),
            "i32" | "i64" => "a whole number".to_owned(),
            "f32" | "f64" => "a number".to_owned(),
            "a boolean" => "`true` or `false`".to_owned(),
            "a sequence" => "a list".to_owned(),
            "a string" | "variant identifier" => "a text".to_owned(),
            other if other.starts_with("an array of length") => {
                other.replacen("an array of length", "a list of", 1)
            }
            // A struct, or an enum: both are written as tables.
            other if other.contains("struct ") || other.contains("enum ") => "a table".to_owned(),
            other => other.to_owned(),
        };
        Self::Type { expected, found: found_words }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::Setting { word: word.to_owned(), known }
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::Key { key: key.to_owned(), known }
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

/// A value of a form, whose errors are [`Wrong`].
#[derive(Clone, Copy)]
struct Node<'a>(&'a Value);

impl IntoDeserializer<'_, Wrong> for Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (_, Some(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => {
                let mut list = SeqDeserializer::new(items.iter().map(Node));
                let value = visitor.visit_seq(&mut list)?;
                list.end()?;
                Ok(value)
            }
            Value::Object(members) => {
                let members = members.iter().map(|(key, value)| (key.as_str(), Node(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
