//! `-F json` of qstat, in which a key may stand several times (`max_queued`, once a limit) and a value may
//! be a number although it was a text: a job called `1e5` is one called `100000` there.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads an answer, passing over what stands before it.
///
/// # Errors
/// When it is not JSON: servers up to 23.06 put it together by hand.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let start = text.find('{').ok_or("no JSON")?;
    let mut all = serde_json::Deserializer::from_str(&text[start..]);
    Joined::deserialize(&mut all).map(|joined| joined.0).map_err(|e| e.to_string())
}

/// A member as text, numbers too; `None` without it.
pub(crate) fn text(value: &Value, name: &str) -> Option<String> {
    match value.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// A member as a number, also where it is written as text.
pub(crate) fn number(value: &Value, name: &str) -> Option<i64> {
    text(value, name)?.parse().ok()
}

/// The members of an object; none of anything else.
pub(crate) fn members<'v>(
    value: &'v Value,
    name: &str,
) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value.get(name).and_then(Value::as_object).into_iter().flatten()
}

/// JSON in which PBS repeats a key for each value of a list: the values are joined by commas.
struct Joined(Value);

impl<'de> Deserialize<'de> for Joined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JoinedVisitor).map(Self)
    }
}

struct JoinedVisitor;

impl<'de> Visitor<'de> for JoinedVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Joined(value)) = seq.next_element()? {
            all.push(value);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Joined(value))) = entries.next_entry::<String, Joined>()? {
            let joined = match (map.get(&key), &value) {
                (Some(Value::String(before)), Value::String(more)) => {
                    format!("{before},{more}").into()
                }
                _ => value,
            };
            map.insert(key, joined);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_one_name_are_joined_and_numbers_can_be_texts() {
        let text_of =
            "banner\n{\"a\": {\"q\": \"[u:x=1]\", \"q\": \"[o:y=2]\", \"n\": 7, \"b\": true}}\n";
        let value = parse(text_of).unwrap();
        assert_eq!(value, json!({"a": {"q": "[u:x=1],[o:y=2]", "n": 7, "b": true}}));
        let a = &value["a"];
        assert_eq!(
            (text(a, "n").as_deref(), number(a, "n"), text(a, "z")),
            (Some("7"), Some(7), None)
        );
        assert_eq!(members(&value, "a").count(), 3);
        assert!(parse("PBS is not configured").is_err());
        assert!(parse("{\"a\": \"x\"y\"}").is_err());
    }
}
