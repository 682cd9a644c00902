//! The type of a column, decided once over all of its values.

use serde_json::Value;

use super::Cell;

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
    fn of(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Bool(_) => Self::Bool,
            Cell::Int(_) => Self::Int,
            Cell::Large(_) | Cell::Float(_) => Self::Float,
            Cell::Text(_) if cell.number().is_some() => Self::NotFinite,
            Cell::Text(_) => Self::Text,
            Cell::Other(Value::Array(all)) => {
                let mut inner = Self::Null;
                all.iter().for_each(|value| inner.add(value.into()));
                Self::List(Box::new(inner))
            }
            Cell::Other(value) => {
                let entry =
                    |(name, value): (&String, &Value)| (name.clone(), Self::of(value.into()));
                Self::Table(value.as_object().into_iter().flatten().map(entry).collect())
            }
        }
    }

    /// Takes note of a value.
    pub(crate) fn add(&mut self, value: Cell<'_>) {
        let is_known = matches!(
            (&*self, value),
            (_, Cell::Null)
                | (Self::Text, _)
                | (Self::Bool, Cell::Bool(_))
                | (Self::Int, Cell::Int(_))
                | (Self::Float, Cell::Int(_) | Cell::Large(_) | Cell::Float(_))
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
        values.as_array().unwrap().iter().for_each(|value| found.add(value.into()));
        assert_eq!(found, expected, "{values}");
        let mut back = Type::Null;
        values.as_array().unwrap().iter().rev().for_each(|value| back.add(value.into()));
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
