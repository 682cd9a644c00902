//! Parameters as nested tables: laying one over another, and the dotted leaves of the result.
//!
//! A leaf says where its value comes from, so that one flattened tree serves every point of the
//! axes. Knows nothing of TOML.

use std::sync::Arc;

use crate::plan::value::Value;

/// How a trial's own tables override those of `[defaults]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Leaf by leaf: `opt.a` of the defaults stays beside the trial's `opt.b`.
    Deep,
    /// Key by key: a trial's `opt` replaces the whole `opt` of the defaults.
    Shallow,
}

/// Where the value of a leaf comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Origin {
    /// The same for all points.
    Fixed(Value),
    /// The `leaf`-th value of a point of axis group `axis`.
    Axis {
        /// Number of the axis group.
        axis: usize,
        /// Number of the value among those of a point.
        leaf: usize,
    },
}

/// A parameter or a table of parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// A parameter, by the source of its value.
    Leaf(Origin),
    /// A table with at least one entry.
    Table(Tree),
}

/// The entries of a table, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tree(pub(crate) Vec<(Arc<str>, Node)>);

impl Node {
    /// A value as a node: a table that is not empty becomes nodes, everything else one leaf.
    pub(crate) fn from_value(value: Value) -> Self {
        match value {
            Value::Table(pairs) if !pairs.is_empty() => Self::Table(Tree(
                pairs.iter().map(|(k, v)| (k.clone(), Self::from_value(v.clone()))).collect(),
            )),
            leaf => Self::Leaf(Origin::Fixed(leaf)),
        }
    }

    /// The node of an axis: its leaves are numbered on from `next`, their values left out.
    pub(crate) fn of_axis(value: &Value, axis: usize, next: &mut usize) -> Self {
        match value {
            Value::Table(pairs) if !pairs.is_empty() => Self::Table(Tree(
                pairs.iter().map(|(k, v)| (k.clone(), Self::of_axis(v, axis, next))).collect(),
            )),
            _ => {
                *next += 1;
                Self::Leaf(Origin::Axis { axis, leaf: *next - 1 })
            }
        }
    }

    fn is_empty_table(&self) -> bool {
        matches!(self, Self::Leaf(Origin::Fixed(Value::Table(pairs))) if pairs.is_empty())
    }
}

impl Tree {
    /// Lays a node over the entry `key`.
    pub(crate) fn lay(&mut self, key: &Arc<str>, node: Node, merge: Merge) {
        let Some((_, under)) = self.0.iter_mut().find(|(k, _)| k == key) else {
            self.0.push((key.clone(), node));
            return;
        };
        match (under, node) {
            (Node::Table(_), node) if merge == Merge::Deep && node.is_empty_table() => {}
            (Node::Table(under), Node::Table(over)) if merge == Merge::Deep => {
                for (key, node) in over.0 {
                    under.lay(&key, node, merge);
                }
            }
            (under, node) => *under = node,
        }
    }

    /// Lays a node over the entry with a dotted name; tables on the way are kept or made.
    pub(crate) fn lay_at(&mut self, name: &str, node: Node, merge: Merge) {
        let Some((head, rest)) = name.split_once('.') else {
            self.lay(&Arc::from(name), node, merge);
            return;
        };
        let child_index = self.0.iter().position(|(key, _)| **key == *head).unwrap_or_else(|| {
            self.0.push((Arc::from(head), Node::Table(Self::default())));
            self.0.len() - 1
        });
        let child = &mut self.0[child_index].1;
        if let Node::Leaf(_) = child {
            *child = Node::Table(Self::default());
        }
        if let Node::Table(table) = child {
            table.lay_at(rest, node, merge);
        }
    }

    /// Whether a dotted name, a table above it or an entry below it is in the tree.
    pub(crate) fn touches(&self, name: &str) -> bool {
        let (head, rest) = name.split_once('.').map_or((name, None), |(h, r)| (h, Some(r)));
        match (self.0.iter().find(|(key, _)| **key == *head), rest) {
            (Some((_, Node::Table(table))), Some(rest)) => table.touches(rest),
            (found, _) => found.is_some(),
        }
    }

    /// The dotted names of all leaves with their origins; leaves of one table stand together.
    pub(crate) fn leaves(&self) -> (Vec<Arc<str>>, Vec<Origin>) {
        let mut names = Vec::new();
        let mut origins = Vec::new();
        self.collect("", &mut names, &mut origins);
        (names, origins)
    }

    fn collect(&self, prefix: &str, names: &mut Vec<Arc<str>>, origins: &mut Vec<Origin>) {
        for (key, node) in &self.0 {
            let name =
                if prefix.is_empty() { key.clone() } else { Arc::from(format!("{prefix}.{key}")) };
            match node {
                Node::Leaf(origin) => {
                    names.push(name);
                    origins.push(origin.clone());
                }
                Node::Table(table) => table.collect(&name, names, origins),
            }
        }
    }
}

/// The values of the leaves that [`Node::of_axis`] numbered, in that order.
pub(crate) fn axis_values(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Table(pairs) if !pairs.is_empty() => {
            for (_, value) in pairs.iter() {
                axis_values(value, out);
            }
        }
        leaf => out.push(leaf.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(pairs: &[(&str, i64)]) -> Tree {
        let mut tree = Tree::default();
        for (name, value) in pairs {
            tree.lay_at(name, Node::from_value(Value::Int(*value)), Merge::Deep);
        }
        tree
    }

    fn shown(tree: &Tree) -> String {
        let (names, origins) = tree.leaves();
        let value = |origin: &Origin| match origin {
            Origin::Fixed(value) => value.to_string(),
            Origin::Axis { axis, leaf } => format!("axis {axis} leaf {leaf}"),
        };
        let shown: Vec<String> =
            names.iter().zip(&origins).map(|(n, o)| format!("{n}={}", value(o))).collect();
        shown.join(" ")
    }

    #[test]
    fn leaves_of_one_table_stand_together() {
        let tree = tree(&[("opt.a", 1), ("n", 2), ("opt.b", 3), ("opt.deep.c", 4), ("opt.d", 5)]);
        assert_eq!(shown(&tree), "opt.a=1 opt.b=3 opt.deep.c=4 opt.d=5 n=2");
    }

    #[test]
    fn deep_keeps_what_shallow_replaces() {
        let over = Node::Table(tree(&[("b", 2)]));
        let mut deep = tree(&[("opt.a", 1), ("n", 0)]);
        deep.lay(&Arc::from("opt"), over.clone(), Merge::Deep);
        assert_eq!(shown(&deep), "opt.a=1 opt.b=2 n=0");
        let mut shallow = tree(&[("opt.a", 1), ("n", 0)]);
        shallow.lay(&Arc::from("opt"), over, Merge::Shallow);
        assert_eq!(shown(&shallow), "opt.b=2 n=0");
    }

    #[test]
    fn an_empty_table_adds_nothing_to_a_deep_merge() {
        let empty = Node::from_value(Value::Table([].into()));
        let mut deep = tree(&[("opt.a", 1)]);
        deep.lay(&Arc::from("opt"), empty.clone(), Merge::Deep);
        assert_eq!(shown(&deep), "opt.a=1");
        let mut shallow = tree(&[("opt.a", 1)]);
        shallow.lay(&Arc::from("opt"), empty, Merge::Shallow);
        assert_eq!(shown(&shallow), "opt={}");
    }

    #[test]
    fn a_name_touches_what_lies_above_and_below() {
        let tree = tree(&[("opt.a", 1)]);
        for (name, expected) in
            [("opt", true), ("opt.a", true), ("opt.a.b", true), ("opt.b", false), ("op", false)]
        {
            assert_eq!(tree.touches(name), expected, "{name}");
        }
    }
}
