//! The type of a column, decided once over all of its values.

use serde_json::Value;

use crate::plan::value::json_float;

/// What the values of a column have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Type {
    /// No value so far but null.
    #[default]
    Null,
    Bool,
    /// Whole numbers of 64 bits with a sign.
    Int,
    Float,
    /// Words for numbers that JSON does not have: `nan`, `inf`. Among numbers they are numbers.
    NotFinite,
    Text,
    List(Box<Type>),
    /// Names with their types, in the order in which they came.
    Table(Vec<(String, Type)>),
}

impl Type {
    /// The type of one value.
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Int,
            Value::Number(_) => Self::Float,
            Value::String(_) if json_float(value).is_some() => Self::NotFinite,
            Value::String(_) => Self::Text,
            Value::Array(all) => {
                let mut inner = Self::Null;
                all.iter().for_each(|value| inner.add(value));
                Self::List(Box::new(inner))
            }
            Value::Object(all) => {
                let entry = |(name, value): (&String, &Value)| (name.clone(), Self::of(value));
                Self::Table(all.iter().map(entry).collect())
            }
        }
    }

    /// Takes note of a value.
    pub(crate) fn add(&mut self, value: &Value) {
        let is_known = matches!(
            (&*self, value),
            (_, Value::Null)
                | (Self::Text, _)
                | (Self::Bool, Value::Bool(_))
                | (Self::Float, Value::Number(_))
        );
        if !is_known {
            *self = std::mem::take(self).and(Self::of(value));
        }
    }

    /// What both have in common: text, if nothing else.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Null, other) | (other, Self::Null) => other,
            (a, b) if a == b => a,
            (
                Self::Int | Self::Float | Self::NotFinite,
                Self::Int | Self::Float | Self::NotFinite,
            ) => Self::Float,
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.and(*b))),
            (Self::Table(mut all), Self::Table(more)) => {
                for (name, other) in more {
                    match all.iter_mut().find(|(own, _)| *own == name) {
                        Some((_, own)) => *own = std::mem::take(own).and(other),
                        None => all.push((name, other)),
                    }
                }
                Self::Table(all)
            }
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(values: Value, expected: Type) {
        let mut found = Type::Null;
        values.as_array().unwrap().iter().for_each(|value| found.add(value));
        assert_eq!(found, expected, "{values}");
        let mut back = Type::Null;
        values.as_array().unwrap().iter().rev().for_each(|value| back.add(value));
        assert_eq!(back, found, "{values} backwards");
    }

    #[test]
    fn a_type_holds_all_values_in_any_order() {
        let list = |inner| Type::List(Box::new(inner));
        check(json!([null, null]), Type::Null);
        check(json!([1, null, 2]), Type::Int);
        check(json!([1, 2.5, "nan"]), Type::Float);
        check(json!(["nan", 1]), Type::Float);
        check(json!(["nan", "inf"]), Type::NotFinite);
        check(json!(["nan", "one"]), Type::Text);
        check(json!([18_446_744_073_709_551_615_u64, 1]), Type::Float);
        check(json!([true, 1]), Type::Text);
        check(json!([1, [1]]), Type::Text);
        check(json!([[], [1, 2.5], ["inf"]]), list(Type::Float));
        check(json!([[[1]], [["a"]]]), list(list(Type::Text)));
        check(json!([{ "a": 1 }, { "a": 2.5 }]), Type::Table(vec![("a".into(), Type::Float)]));
    }
}
