//! Entries times axes: the trials of a plan, in plan order.
//!
//! What is the same for many trials is worked out once (names, origins of values, rules that cannot
//! match, resource requests), so that a trial costs one allocation. Never reads TOML.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use super::axes::{Group, Special};
use super::chains::Namer;
use super::exclude::{Rule, RuleInForm};
use super::leaves::{Node, Origin};
use super::reader::Reader;
use super::request::Wish;
use super::trials::{Given, Task, Tasks};
use super::value::{Params, Value};
use super::{MAX_TRIALS, Merge, Resources, TaskId, Trial};
use crate::fault::Fault;
use crate::words;

/// At most this many faults of single trials are told: they repeat one another.
const MAX_TRIAL_FAULTS: usize = 10;

/// What is multiplied.
pub(super) struct Sheet<'s> {
    pub(super) merge: Merge,
    pub(super) wish: &'s Wish,
    pub(super) defaults: &'s Given,
    pub(super) given: &'s [Given],
    pub(super) groups: &'s [Group],
    pub(super) rules: &'s [Rule],
    pub(super) tasks: &'s Tasks,
    /// For each group whether chains run along it; empty when there are no such chains.
    pub(super) along: &'s [bool],
    /// Where the plan says what cannot be placed otherwise.
    pub(super) at: usize,
}

/// The trials, and one example of every set of names they have.
pub(super) struct Expanded {
    pub(super) trials: Vec<Trial>,
    pub(super) forms: Vec<Form>,
    /// For a template of `task_id` the first trial that lacks a name it uses, and that name.
    pub(super) lacking: BTreeMap<usize, (usize, String)>,
}

/// A set of parameter names in an order.
pub(super) struct Form {
    /// The dotted names.
    pub(super) names: Arc<[Arc<str>]>,
    /// The first trial that has them; `None` if all were excluded.
    pub(super) first: Option<usize>,
}

/// How the trials of one entry and one combination of shapes are made.
struct Layout<'s> {
    form: usize,
    names: Arc<[Arc<str>]>,
    origins: Vec<Origin>,
    rules: Vec<RuleInForm<'s>>,
}

struct Maker<'s, 'r, 'a> {
    sheet: &'s Sheet<'s>,
    reader: &'r mut Reader<'a>,
    trials: Vec<Trial>,
    forms: Vec<Form>,
    form_of: HashMap<Arc<[Arc<str>]>, usize>,
    requests: HashMap<Resources, Arc<Resources>>,
    namer: Namer<'s>,
    told: HashSet<String>,
}

/// How many trials there are before exclusion; `None` beyond [`MAX_TRIALS`].
fn n_points(n_given: usize, groups: &[Group]) -> Option<u64> {
    groups
        .iter()
        .try_fold(n_given as u64, |n, group| n.checked_mul(group.len() as u64))
        .filter(|n| *n <= MAX_TRIALS)
}

/// Expands the sheet; faults of single trials go to the reader.
pub(super) fn expand(reader: &mut Reader<'_>, sheet: &Sheet<'_>) -> Option<Expanded> {
    let nothing = [Given::default()];
    let given = if sheet.given.is_empty() { &nothing } else { sheet.given };
    let Some(n) = n_points(given.len(), sheet.groups) else {
        let factors: Vec<String> = std::iter::once(given.len())
            .chain(sheet.groups.iter().map(Group::len))
            .map(|n| words::thousands(n as u64))
            .collect();
        let most = words::count(MAX_TRIALS, "trial");
        let sentence = format!("{} is more than the {most} a plan may have", factors.join(" x "));
        reader.wrong(sheet.at, sentence, "cut the plan into several sweeps");
        return None;
    };
    let mut maker = Maker {
        sheet,
        reader,
        trials: Vec::with_capacity(n as usize),
        forms: Vec::new(),
        form_of: HashMap::new(),
        requests: HashMap::new(),
        namer: Namer::new(sheet.tasks, sheet.groups, sheet.along),
        told: HashSet::new(),
    };
    for (number, given) in given.iter().enumerate() {
        maker.expand_entry(number, given);
    }
    let Maker { trials, forms, namer, .. } = maker;
    Some(Expanded { trials, forms, lacking: namer.lacking })
}

impl<'s> Maker<'s, '_, '_> {
    fn expand_entry(&mut self, number: usize, given: &Given) {
        let groups = self.sheet.groups;
        let mut tree = self.sheet.defaults.tree.clone();
        for (key, node) in &given.tree.0 {
            tree.lay(key, node.clone(), self.sheet.merge);
        }
        let mut layouts: HashMap<usize, Rc<Layout<'s>>> = HashMap::new();
        let mut asked: HashMap<usize, (Arc<Resources>, Option<Arc<[u32]>>)> = HashMap::new();
        let mut chains: HashMap<usize, TaskId> = HashMap::new();
        let touches = |group: &Group| {
            group
                .axes
                .iter()
                .any(|axis| matches!(axis.special, Some(Special::Gpus(_) | Special::Wishes(_))))
        };
        let sets_request: Vec<bool> = groups.iter().map(touches).collect();
        let mut point = vec![0usize; groups.len()];
        loop {
            // Mixed radix numbers of what matters: shapes, requests, chains.
            let (mut shape, mut request, mut chain) = (0usize, 0usize, 0usize);
            for (g, group) in groups.iter().enumerate() {
                shape = shape * group.n_shapes() + group.shape(point[g]);
                if sets_request[g] {
                    request = request * group.len() + point[g];
                }
                if self.sheet.along.get(g) == Some(&false) {
                    chain = chain * group.len() + point[g];
                }
            }
            let layout = match layouts.get(&shape) {
                Some(layout) => layout.clone(),
                None => {
                    let layout = Rc::new(self.layout(&tree, &point));
                    layouts.insert(shape, layout.clone());
                    layout
                }
            };
            if !layout.rules.iter().any(|rule| rule.matches_point(&point)) {
                let params = Params::new(layout.names.clone(), self.values(&layout, &point));
                if !self.is_excluded(&layout, &point, &params) {
                    let (resources, gpu_ids_abs) = match asked.get(&request) {
                        Some(asked) => asked.clone(),
                        None => {
                            let fresh = self.request(given, &point);
                            asked.insert(request, fresh.clone());
                            fresh
                        }
                    };
                    let task_id = if self.sheet.along.is_empty() {
                        self.task_id(given, &point, &params)
                    } else {
                        let namer = &self.namer;
                        let name =
                            chains.entry(chain).or_insert_with(|| namer.along(number, &point));
                        Some(name.clone())
                    };
                    self.forms[layout.form].first.get_or_insert(self.trials.len());
                    self.trials.push(Trial {
                        task_id,
                        params,
                        gpu_ids_abs,
                        resources,
                        line: given.line,
                    });
                }
            }
            // The next point: the last group fastest.
            let Some(g) = (0..groups.len()).rev().find(|g| point[*g] + 1 < groups[*g].len()) else {
                return;
            };
            point[g] += 1;
            point[g + 1..].fill(0);
        }
    }

    fn layout(&mut self, tree: &super::leaves::Tree, point: &[usize]) -> Layout<'s> {
        let mut tree = tree.clone();
        for (g, group) in self.sheet.groups.iter().enumerate() {
            for (name, node) in group.shape_nodes(group.shape(point[g]), g) {
                let merge = match &node {
                    Node::Leaf(_) => Merge::Shallow,
                    Node::Table(_) => self.sheet.merge,
                };
                tree.lay_at(&name, node, merge);
            }
        }
        let (names, origins) = tree.leaves();
        let form = match self.form_of.get(names.as_slice()) {
            Some(form) => *form,
            None => {
                let names: Arc<[Arc<str>]> = names.into();
                self.form_of.insert(names.clone(), self.forms.len());
                self.forms.push(Form { names, first: None });
                self.forms.len() - 1
            }
        };
        let names = self.forms[form].names.clone();
        let groups = self.sheet.groups;
        let rules = self.sheet.rules.iter();
        let rules = rules.filter_map(|rule| rule.in_form(&names, &origins, groups)).collect();
        Layout { form, names, origins, rules }
    }

    fn values(&self, layout: &Layout<'_>, point: &[usize]) -> Box<[Value]> {
        let groups = self.sheet.groups;
        layout
            .origins
            .iter()
            .map(|origin| match origin {
                Origin::Fixed(value) => value.clone(),
                Origin::Axis { axis, leaf } => groups[*axis].points[point[*axis]][*leaf].clone(),
            })
            .collect()
    }

    fn is_excluded(&mut self, layout: &Layout<'_>, point: &[usize], params: &Params) -> bool {
        for rule in &layout.rules {
            match rule.matches_params(point, params) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(reason) => {
                    let at = rule.rule.when.as_ref().map_or(rule.rule.at, |when| when.at);
                    let sentence = format!("`when` fails: {reason}");
                    self.tell(at, &sentence, |_| Fault::request(&sentence));
                }
            }
        }
        false
    }

    /// Reports a fault of the trial being made, unless it was told for another, or enough were told.
    fn tell(&mut self, at: usize, what: &str, fault: impl FnOnce(usize) -> Fault) {
        if self.told.len() < MAX_TRIAL_FAULTS && self.told.insert(what.to_owned()) {
            let fault = fault(self.trials.len()).at(self.reader.place(at));
            self.reader.report(at, fault);
        }
    }

    /// The request of a point of an entry, and its devices.
    fn request(&mut self, given: &Given, point: &[usize]) -> (Arc<Resources>, Option<Arc<[u32]>>) {
        let mut own = given.wish.clone();
        let mut gpus = given.gpus.as_ref().or(self.sheet.defaults.gpus.as_ref());
        let mut at = if given.line > 0 { given.at } else { self.sheet.at };
        for (group, point) in self.sheet.groups.iter().zip(point) {
            for axis in &group.axes {
                match &axis.special {
                    Some(Special::Wishes(wishes)) => own = own.under(&wishes[*point]),
                    Some(Special::Gpus(ids)) => gpus = Some(&ids[*point]),
                    _ => continue,
                }
                at = axis.at;
            }
        }
        let n_gpu_ids = gpus.map(|ids| ids.len() as u32);
        let whole = self.sheet.wish.under(&own);
        let request = match whole.settle(n_gpu_ids, &own) {
            Ok(request) => request,
            Err(mut fault) => {
                let sentence = fault.sentence.clone();
                // The number is left out where it would be that of any trial.
                let is_own = !own.is_empty() || n_gpu_ids.is_some();
                self.tell(at, &sentence, |trial| {
                    if is_own {
                        fault.sentence = format!("trial {trial}: {}", fault.sentence);
                    }
                    fault
                });
                whole.unsettled()
            }
        };
        let shared = match self.requests.get(&request) {
            Some(shared) => shared.clone(),
            None => {
                let shared = Arc::new(request.clone());
                self.requests.insert(request, shared.clone());
                shared
            }
        };
        (shared, gpus.cloned())
    }

    fn task_id(&mut self, given: &Given, point: &[usize], params: &Params) -> Option<TaskId> {
        let mut task = given.task.as_ref().or(self.sheet.defaults.task.as_ref());
        for (group, point) in self.sheet.groups.iter().zip(point) {
            for axis in &group.axes {
                if let Some(Special::Tasks(tasks)) = &axis.special {
                    task = Some(&tasks[*point]);
                }
            }
        }
        match task? {
            Task::Number(number) => Some(TaskId::Number(*number)),
            Task::Name(name) => Some(TaskId::Name(name.clone())),
            Task::Template(number) => {
                match self.namer.templated(*number, self.trials.len(), params)? {
                    Ok(task_id) => Some(task_id),
                    Err(reason) => {
                        let at = self.sheet.tasks.templates[*number].1;
                        let key = format!("`task_id`: {reason}");
                        self.tell(at, &key.clone(), |trial| {
                            Fault::request(format!("trial {trial}: {key}"))
                        });
                        None
                    }
                }
            }
        }
    }
}
