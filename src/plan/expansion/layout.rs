//! How trials of one entry and one shape of points are made: names, and where each value is from.
//!
//! Trials of the same form share one list of names. Never makes a trial itself.

use std::collections::HashMap;
use std::sync::Arc;

use crate::plan::expansion::axes::Group;
use crate::plan::expansion::exclude::{Rule, RuleInForm};
use crate::plan::expansion::leaves::{Merge, Node, Origin, Tree};
use crate::plan::value::{Params, Value};

/// A set of parameter names in an order.
pub(crate) struct Form {
    /// Dotted names of parameters, in the order of a trial's values.
    pub(crate) names: Arc<[Arc<str>]>,
    /// The first trial that has them; `None` if all were excluded.
    pub(crate) first: Option<usize>,
}

/// The forms seen so far, each once.
#[derive(Default)]
pub(crate) struct Forms {
    /// The forms in the order they were seen.
    pub(crate) all: Vec<Form>,
    known: HashMap<Arc<[Arc<str>]>, usize>,
}

impl Forms {
    fn number(&mut self, names: Vec<Arc<str>>) -> usize {
        if let Some(known) = self.known.get(names.as_slice()) {
            return *known;
        }
        let names: Arc<[Arc<str>]> = names.into();
        self.known.insert(names.clone(), self.all.len());
        self.all.push(Form { names, first: None });
        self.all.len() - 1
    }
}

/// What all trials of one entry and one shape of points have in common.
pub(crate) struct Layout<'s> {
    /// The number of the form.
    pub(crate) form: usize,
    /// The exclusions that can match.
    pub(crate) rules: Vec<RuleInForm<'s>>,
    names: Arc<[Arc<str>]>,
    origins: Vec<Origin>,
}

impl<'s> Layout<'s> {
    /// The layout of an entry's parameters, overridden by the shapes of a point.
    pub(crate) fn new(
        forms: &mut Forms,
        mut tree: Tree,
        groups: &[Group],
        point: &[usize],
        rules: &'s [Rule],
        merge: Merge,
    ) -> Self {
        for (g, group) in groups.iter().enumerate() {
            for (name, node) in group.shape_nodes(group.shape(point[g]), g) {
                let merge = match &node {
                    Node::Leaf(_) => Merge::Shallow,
                    Node::Table(_) => merge,
                };
                tree.lay_at(&name, node, merge);
            }
        }
        let (names, origins) = tree.leaves();
        let form = forms.number(names);
        let names = forms.all[form].names.clone();
        let rules = rules.iter().filter_map(|rule| rule.in_form(&names, &origins, groups));
        Self { form, rules: rules.collect(), names, origins }
    }

    /// The parameters of a point.
    pub(crate) fn params(&self, groups: &[Group], point: &[usize]) -> Params {
        let values: Box<[Value]> = self
            .origins
            .iter()
            .map(|origin| match origin {
                Origin::Fixed(value) => value.clone(),
                Origin::Axis { axis, leaf } => groups[*axis].points[point[*axis]][*leaf].clone(),
            })
            .collect();
        Params::new(self.names.clone(), values)
    }
}
