//! Entries times axes: the trials of a plan, in plan order.
//!
//! Values that many trials share are computed once (names, origins of values, rules that cannot match, resource
//! requests), so that a trial costs one allocation. Never reads TOML. Long because its tests stand with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use crate::base::fault::Fault;
use crate::base::host::gpus::DeviceId;
use crate::base::words;
use crate::plan::document::Reader;
use crate::plan::expansion::axes::{Group, Special};
use crate::plan::expansion::chains::Namer;
use crate::plan::expansion::exclude::Rule;
use crate::plan::expansion::layout::{Form, Forms, Layout};
use crate::plan::expansion::leaves::Merge;
use crate::plan::expansion::trials::{Given, MAX_TRIALS, Task, Tasks};
use crate::plan::sections::auto::Learns;
use crate::plan::sections::request::Wish;
use crate::plan::sections::resources::Resources;
use crate::plan::trial::{TaskId, Trial};
use crate::plan::value::Params;

/// At most this many faults of single trials are reported: they repeat one another.
const MAX_TRIAL_FAULTS: usize = 10;

/// The parts of a plan that are multiplied.
pub(crate) struct Sheet<'s> {
    pub(crate) merge: Merge,
    pub(crate) wish: &'s Wish,
    pub(crate) defaults: &'s Given,
    pub(crate) given: &'s [Given],
    pub(crate) groups: &'s [Group],
    pub(crate) rules: &'s [Rule],
    pub(crate) tasks: &'s Tasks,
    /// For each group whether chains run along it; empty when there are no such chains.
    pub(crate) along: &'s [bool],
    /// The place in the plan of an error that has no better place.
    pub(crate) at: usize,
}

/// The trials, and one example of every set of names they have.
pub(crate) struct Expanded {
    pub(crate) trials: Vec<Trial>,
    pub(crate) forms: Vec<Form>,
    /// For a template of `task_id` the first trial that lacks a name it uses, and that name.
    pub(crate) lacking: BTreeMap<usize, (usize, String)>,
}

/// A point's request to a scheduler, what of it is learnt, and the devices it names.
type Asked = (Arc<Resources>, Option<Arc<Learns>>, Option<Arc<[DeviceId]>>);

struct Maker<'s, 'r, 'a> {
    sheet: &'s Sheet<'s>,
    reader: &'r mut Reader<'a>,
    trials: Vec<Trial>,
    forms: Forms,
    requests: HashMap<Resources, Arc<Resources>>,
    learns: Vec<Arc<Learns>>,
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
pub(crate) fn expand(reader: &mut Reader<'_>, sheet: &Sheet<'_>) -> Option<Expanded> {
    let nothing = [Given::default()];
    let given_trials = if sheet.given.is_empty() { &nothing } else { sheet.given };
    let Some(n) = n_points(given_trials.len(), sheet.groups) else {
        let factors: Vec<String> = std::iter::once(given_trials.len())
            .chain(sheet.groups.iter().map(Group::len))
            .map(|n| words::thousands(n as u64))
            .collect();
        let max_trials = words::count(MAX_TRIALS, "trial");
        let sentence =
            format!("{} is more than the {max_trials} a plan may have", factors.join(" x "));
        reader.wrong(sheet.at, sentence, "cut the plan into several sweeps");
        return None;
    };
    let mut maker = Maker {
        sheet,
        reader,
        trials: Vec::with_capacity(n as usize),
        forms: Forms::default(),
        requests: HashMap::new(),
        learns: Vec::new(),
        namer: Namer::new(sheet.tasks, sheet.groups, sheet.along),
        told: HashSet::new(),
    };
    for (number, given) in given_trials.iter().enumerate() {
        maker.expand_entry(number, given);
    }
    let Maker { trials, forms, namer, .. } = maker;
    Some(Expanded { trials, forms: forms.all, lacking: namer.lacking })
}

impl<'s> Maker<'s, '_, '_> {
    fn expand_entry(&mut self, number: usize, given: &Given) {
        let groups = self.sheet.groups;
        let mut tree = self.sheet.defaults.tree.clone();
        for (key, node) in &given.tree.0 {
            tree.lay(key, node.clone(), self.sheet.merge);
        }
        let mut layouts: HashMap<usize, Rc<Layout<'s>>> = HashMap::new();
        let mut requests: HashMap<usize, Asked> = HashMap::new();
        let mut chains: HashMap<usize, TaskId> = HashMap::new();
        let sets_request: Vec<bool> = groups
            .iter()
            .map(|group| {
                group
                    .axes
                    .iter()
                    .any(|axis| matches!(axis.special, Some(Special::Gpus(_) | Special::Wishes(_))))
            })
            .collect();
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
                    let (rules, merge) = (self.sheet.rules, self.sheet.merge);
                    let layout =
                        Layout::new(&mut self.forms, tree.clone(), groups, &point, rules, merge);
                    let layout = Rc::new(layout);
                    layouts.insert(shape, layout.clone());
                    layout
                }
            };
            if !layout.rules.iter().any(|rule| rule.matches_point(&point)) {
                let params = layout.params(groups, &point);
                if !self.is_excluded(&layout, &point, &params) {
                    let (resources, learns, gpu_ids_abs) = match requests.get(&request) {
                        Some(asked) => asked.clone(),
                        None => {
                            let fresh = self.request(given, &point);
                            requests.insert(request, fresh.clone());
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
                    self.forms.all[layout.form].first.get_or_insert(self.trials.len());
                    self.trials.push(Trial {
                        task_id,
                        params,
                        gpu_ids_abs,
                        resources,
                        learns,
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

    fn is_excluded(&mut self, layout: &Layout<'_>, point: &[usize], params: &Params) -> bool {
        for rule in &layout.rules {
            match rule.matches_params(point, params) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(reason) => {
                    let rule_at = rule.rule.when.as_ref().map_or(rule.rule.at, |when| when.at);
                    let sentence = format!("`when` fails: {reason}");
                    let hint = "it needs a value for each combination, as in \
                                `width != 0 and lr / width > 1`";
                    self.tell(rule_at, &sentence, |_| Fault::request(&sentence).hint(hint));
                }
            }
        }
        false
    }

    /// Reports a fault of the trial being made, unless it was reported for another, or enough were reported.
    fn tell(&mut self, at: usize, what: &str, fault: impl FnOnce(usize) -> Fault) {
        if self.told.len() < MAX_TRIAL_FAULTS && self.told.insert(what.to_owned()) {
            let fault = fault(self.trials.len()).at(self.reader.place(at));
            self.reader.report(at, fault);
        }
    }

    /// The request of a point of an entry, and its devices.
    fn request(&mut self, given: &Given, point: &[usize]) -> Asked {
        let mut own_wish = given.wish.clone();
        let mut gpus = given.gpus.as_ref().or(self.sheet.defaults.gpus.as_ref());
        let mut request_at = if given.line > 0 { given.at } else { self.sheet.at };
        for (group, point) in self.sheet.groups.iter().zip(point) {
            for axis in &group.axes {
                match &axis.special {
                    Some(Special::Wishes(wishes)) => own_wish = own_wish.under(&wishes[*point]),
                    Some(Special::Gpus(ids)) => gpus = Some(&ids[*point]),
                    _ => continue,
                }
                request_at = axis.at;
            }
        }
        let n_gpu_ids = gpus.map(|ids| ids.len() as u32);
        let full_wish = self.sheet.wish.under(&own_wish);
        let request = match full_wish.settle(n_gpu_ids, &own_wish) {
            Ok(request) => request,
            Err(mut fault) => {
                let sentence = fault.sentence.clone();
                // The number is left out where it would be that of any trial.
                let is_own = !own_wish.is_empty() || n_gpu_ids.is_some();
                self.tell(request_at, &sentence, |trial| {
                    if is_own {
                        fault.sentence = format!("trial {trial}: {}", fault.sentence);
                    }
                    fault
                });
                full_wish.unsettled()
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
        let learns = full_wish.learns();
        let learns =
            (!learns.is_empty()).then(|| match self.learns.iter().find(|l| ***l == learns) {
                Some(shared) => Arc::clone(shared),
                None => {
                    self.learns.push(Arc::new(learns));
                    Arc::clone(&self.learns[self.learns.len() - 1])
                }
            });
        (shared, learns, gpus.cloned())
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
                        let template_at = self.sheet.tasks.templates[*number].1;
                        let key = format!("`task_id`: {reason}");
                        self.tell(template_at, &key.clone(), |trial| {
                            Fault::request(format!("trial {trial}: {key}"))
                        });
                        None
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::Value;
    use crate::plan::testing::{check_faults, params, plan};

    #[test]
    fn the_last_axis_is_the_fastest() {
        // The documented example of MultiRunner: 3 x 2 x 3 points in product order.
        let plan =
            plan("[grid]\nbatch_size = [16, 64, 256]\nlayers = [1, 2]\nlr = [0.001, 0.01, 0.1]");
        let expected: Vec<String> = ["16", "64", "256"]
            .iter()
            .flat_map(|b| ["1", "2"].map(|l| (b, l)))
            .flat_map(|(b, l)| ["0.001", "0.01", "0.1"].map(|lr| (b, l, lr)))
            .map(|(b, l, lr)| format!(r#"{{"batch_size":{b},"layers":{l},"lr":{lr}}}"#))
            .collect();
        assert_eq!(expected.len(), 18);
        assert_eq!(params(&plan), expected);
    }

    #[test]
    fn entries_are_outermost_and_tables_in_the_order_written() {
        let plan = plan(
            "[zip]\nz = [1, 2]\n[grid]\ng = [1, 2]\n[replicates]\ncount = 1\n[[trials]]\ne = 1\n[[trials]]\ne = 2",
        );
        let shown: Vec<String> = params(&plan).iter().map(|p| p.replace('"', "")).collect();
        assert_eq!(
            shown,
            [
                "{e:1,z:1,g:1,seed:1}",
                "{e:1,z:1,g:2,seed:1}",
                "{e:1,z:2,g:1,seed:1}",
                "{e:1,z:2,g:2,seed:1}",
                "{e:2,z:1,g:1,seed:1}",
                "{e:2,z:1,g:2,seed:1}",
                "{e:2,z:2,g:1,seed:1}",
                "{e:2,z:2,g:2,seed:1}",
            ]
        );
        let lines: Vec<u32> = plan.trials.iter().map(|trial| trial.line).collect();
        assert_eq!(lines, [10, 10, 10, 10, 12, 12, 12, 12]);
    }

    #[test]
    fn defaults_come_first_and_tables_stay_together() {
        let plan = plan(
            "[defaults]\nopt.a = 1\nn = 2\nlr = 3\n[[trials]]\nnew = 4\nopt.b = 5\n[grid]\nopt.c = [6]\nlr = [7]\nz = [8]",
        );
        assert_eq!(params(&plan), [r#"{"opt":{"a":1,"b":5,"c":6},"n":2,"lr":7,"new":4,"z":8}"#]);
    }

    #[test]
    fn names_and_requests_are_shared() {
        let plan = plan(
            "[[trials]]\na = 1\n[[trials]]\na = 2\n[grid]\nb = [1, 2]\nresources.ranks = [1, 2]",
        );
        let first = &plan.trials[0];
        assert!(plan.trials.iter().all(|t| Arc::ptr_eq(&t.params.names, &first.params.names)));
        assert!(Arc::ptr_eq(&plan.trials[6].resources, &first.resources));
        assert!(!Arc::ptr_eq(&plan.trials[1].resources, &first.resources));
        let ranks: Vec<u32> = plan.trials.iter().map(|t| t.resources.ranks).collect();
        assert_eq!(ranks, [1, 2, 1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn tables_as_values_give_each_point_its_own_names() {
        let plan = plan(
            "[defaults]\nopt.m = 1\n[grid]\nopt = [{ name = \"sgd\", lr = 0.1 }, { name = \"adam\" }]\nx = [1, 2]",
        );
        let shown: Vec<String> = params(&plan).iter().map(|p| p.replace('"', "")).collect();
        assert_eq!(
            shown,
            [
                "{opt:{m:1,name:sgd,lr:0.1},x:1}",
                "{opt:{m:1,name:sgd,lr:0.1},x:2}",
                "{opt:{m:1,name:adam},x:1}",
                "{opt:{m:1,name:adam},x:2}",
            ]
        );
    }

    #[test]
    fn a_plan_without_axes_is_one_trial() {
        assert_eq!(params(&plan("")), ["{}"]);
        assert_eq!(params(&plan("[defaults]\nx = 1")), [r#"{"x":1}"#]);
    }

    #[test]
    fn requests_of_an_axis_are_checked_with_the_trial() {
        check_faults(
            "[grid]\nresources.ranks = [1, 2, 4]\nresources.nodes = [1, 2]",
            "trial 1: `ranks = 1` is less than `nodes = 2`
  plan.toml:6: resources.nodes = [1, 2]
hint: every node needs a rank: ask for fewer nodes, or for more ranks",
        );
        check_faults(
            "[resources]\nnodes = 2\nranks = 1",
            "`ranks = 1` is less than `nodes = 2`
  plan.toml:4: [resources]
hint: every node needs a rank: ask for fewer nodes, or for more ranks",
        );
    }

    #[test]
    fn an_axis_may_not_repeat_what_a_trial_says() {
        check_faults(
            "[[trials]]\nlr = 1\n[[trials]]\ntask_id = 2\ngpu_ids_abs = [0]\nresources.ranks = 2\n[grid]\nlr = [1]\ntask_id = [1]\ngpu_ids_abs = [[0]]\nresources.ranks = [1]\nresources.nodes = [1]",
            "this trial sets `lr`, and so does the axis
  plan.toml:4: [[trials]]
hint: remove it here, or the axis in line 11
error: this trial sets `task_id`, and so does the axis
  plan.toml:6: [[trials]]
hint: remove it here, or the axis in line 12
error: this trial sets `gpu_ids_abs`, and so does the axis
  plan.toml:6: [[trials]]
hint: remove it here, or the axis in line 13
error: this trial sets `resources.ranks`, and so does the axis
  plan.toml:6: [[trials]]
hint: remove it here, or the axis in line 14",
        );
    }

    #[test]
    fn too_many_trials_are_refused_before_they_are_made() {
        check_faults(
            "[replicates]\ncount = 4000000000",
            "`count = 4000000000` is more than the 10,000,000 trials a plan may have
  plan.toml:5: count = 4000000000
hint: cut the plan into several sweeps",
        );
        check_faults(
            "[replicates]\ncount = 5000000\n[grid]\na = [1, 2, 3]",
            "1 x 5,000,000 x 3 is more than the 10,000,000 trials a plan may have
  plan.toml:6: [grid]
hint: cut the plan into several sweeps",
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_point_comes_once_and_in_product_order(lengths in prop::collection::vec(1usize..5, 1..5), n_entries in 1usize..4) {
            let axis = |(a, n): (usize, &usize)| {
                let values: Vec<String> = (0..*n).map(|v| v.to_string()).collect();
                format!("a{a} = [{}]\n", values.join(", "))
            };
            let axes: String = lengths.iter().enumerate().map(axis).collect();
            let entries: String = (0..n_entries).map(|e| format!("[[trials]]\ne = {e}\n")).collect();
            let plan = plan(&format!("{entries}[grid]\n{axes}"));
            let point = |trial: &Trial| -> Vec<i64> {
                let int = |v: &Value| if let Value::Int(i) = v { *i } else { -1 };
                trial.params.values.iter().map(int).collect()
            };
            let points: Vec<Vec<i64>> = plan.trials.iter().map(point).collect();
            prop_assert_eq!(points.len(), n_entries * lengths.iter().product::<usize>());
            prop_assert!(points.is_sorted());
            prop_assert_eq!(points.iter().collect::<HashSet<_>>().len(), points.len());
        }
    }
}
