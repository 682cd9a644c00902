//! `-F json` of qstat, in which a key may stand several times (`max_queued`, once a limit) and a value may
//! be a number although it was a text: a job called `1e5` is one called `100000` there.

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};

/// A value, all members of an object kept in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Members, some perhaps of the same name.
    Object(Vec<(String, Node)>),
    /// A list.
    List(Vec<Node>),
    /// Anything else, as text.
    Text(String),
}

impl Node {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is not JSON: servers up to 23.06 put it together by hand.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let start = text.find('{').ok_or("no JSON")?;
        let mut all = serde_json::Deserializer::from_str(&text[start..]);
        Self::deserialize(&mut all).map_err(|e| e.to_string())
    }

    /// The members of an object; none of anything else.
    pub(super) fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    /// The first member of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|(n, _)| n == name).map(|(_, node)| node)
    }

    /// Every member of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.members().iter().filter(move |(n, _)| n == name).map(|(_, node)| node)
    }

    /// The text of the first member of this name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same as a number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Node::Object(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, is: bool) -> Result<Node, E> {
                Ok(Node::Text(if is { "True" } else { "False" }.to_owned()))
            }

            fn visit_i64<E>(self, n: i64) -> Result<Node, E> {
                Ok(Node::Text(n.to_string()))
            }

            fn visit_u64<E>(self, n: u64) -> Result<Node, E> {
                Ok(Node::Text(n.to_string()))
            }

            fn visit_f64<E>(self, n: f64) -> Result<Node, E> {
                Ok(Node::Text(n.to_string()))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Text(String::new()))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_stand_twice_and_numbers_are_texts() {
        let node =
            Node::parse("banner\n{\"a\": {\"q\": \"[u:x=1]\", \"q\": 7, \"b\": true}}\n").unwrap();
        let a = node.get("a").unwrap();
        let all: Vec<_> = a.all("q").collect();
        assert_eq!(all, [&Node::Text("[u:x=1]".into()), &Node::Text("7".into())]);
        assert_eq!((a.text("b"), a.number("q")), (Some("True"), None));
        assert!(Node::parse("PBS is not configured").is_err());
        assert!(Node::parse("{\"a\": \"x\"y\"}").is_err());
    }
}
