//! `[grid]`, `[zip]` and `[replicates]`: the axes of a sweep, and the groups that multiply.
//!
//! A grid axis is a group of its own; all axes of the zip are one group, so are all sampled
//! parameters. Never expands anything: [`crate::plan::expansion::expand`] walks the product.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use crate::base::host::gpus::DeviceId;
use crate::base::words;
use crate::plan::document::form::{LINE, count};
use crate::plan::document::{Entry, Item, Reader, Section, Table, entries, find, section};
use crate::plan::expansion::described::{self, Description};
use crate::plan::expansion::leaves::{self, Node};
use crate::plan::expansion::trials::{self, Task, Tasks};
use crate::plan::sections::request::{RESOURCES, Wish};
use crate::plan::value::{Value, read_value};

/// What an axis sets besides parameters, one value a point.
pub(crate) enum Special {
    /// Of the axis `task_id`: the names of chains.
    Tasks(Vec<Task>),
    /// Of the axis `gpu_ids_abs`: the devices of a trial.
    Gpus(Vec<Arc<[DeviceId]>>),
    /// Of an axis `resources.KEY`: requests with this one key.
    Wishes(Vec<Wish>),
}

/// One axis: a name and its values.
pub(crate) struct Axis {
    /// The dotted name of the parameter that it sets, or `task_id`, `gpu_ids_abs`, `resources.KEY`.
    pub(crate) name: Arc<str>,
    /// Byte offset of its key.
    pub(crate) at: usize,
    /// The values as written.
    pub(crate) values: Vec<Value>,
    /// The meaning of the values besides, or instead of, a parameter.
    pub(crate) special: Option<Special>,
}

/// Axes that advance together: one factor of the product.
pub(crate) struct Group {
    /// The table it stands in: `[grid]`.
    pub(crate) table: &'static str,
    /// Its axes, all of one length.
    pub(crate) axes: Vec<Axis>,
    /// For each point the values of its leaves.
    pub(crate) points: Vec<Box<[Value]>>,
    /// For each point the number of its shape; empty when there is one shape.
    shape_of: Vec<u32>,
    /// The different sets of names that points have, as a point that has them.
    shapes: Vec<usize>,
}

impl Group {
    /// A group of axes of equal length.
    pub(crate) fn new(table: &'static str, axes: Vec<Axis>) -> Self {
        let n_points = axes.first().map_or(0, |axis| axis.values.len());
        let mut group =
            Self { table, axes, points: Vec::new(), shape_of: Vec::new(), shapes: vec![0] };
        group.points = (0..n_points)
            .map(|point| {
                let mut values = Vec::new();
                for axis in group.params() {
                    leaves::axis_values(&axis.values[point], &mut values);
                }
                values.into()
            })
            .collect();
        if group.params().any(|axis| {
            axis.values
                .iter()
                .any(|value| matches!(value, Value::Table(pairs) if !pairs.is_empty()))
        }) {
            group.find_shapes();
        }
        group
    }

    fn find_shapes(&mut self) {
        let mut shape_numbers: HashMap<Vec<Arc<str>>, u32> = HashMap::new();
        self.shapes.clear();
        for point in 0..self.points.len() {
            let mut tree = leaves::Tree::default();
            for (name, node) in self.nodes(point, 0) {
                tree.lay_at(&name, node, crate::plan::expansion::leaves::Merge::Deep);
            }
            let fresh = shape_numbers.len() as u32;
            let shape = *shape_numbers.entry(tree.leaves().0).or_insert(fresh);
            if shape == fresh {
                self.shapes.push(point);
            }
            self.shape_of.push(shape);
        }
    }

    /// The axes that are parameters. A request that varies along an axis is one too: it distinguishes the
    /// trials of a scaling study.
    pub(crate) fn params(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().filter(|axis| matches!(axis.special, None | Some(Special::Wishes(_))))
    }

    /// How many points it has.
    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// How many shapes its points have.
    pub(crate) fn n_shapes(&self) -> usize {
        self.shapes.len()
    }

    /// The number of the shape of a point.
    pub(crate) fn shape(&self, point: usize) -> usize {
        self.shape_of.get(point).map_or(0, |shape| *shape as usize)
    }

    /// The named nodes that points of a shape lay over a trial; `number` is that of the group.
    pub(crate) fn shape_nodes(&self, shape: usize, number: usize) -> Vec<(Arc<str>, Node)> {
        self.nodes(self.shapes[shape], number)
    }

    fn nodes(&self, point: usize, number: usize) -> Vec<(Arc<str>, Node)> {
        let mut next_leaf = 0;
        self.params()
            .map(|axis| {
                (axis.name.clone(), Node::of_axis(&axis.values[point], number, &mut next_leaf))
            })
            .collect()
    }

    /// A short text for each point that no other point of the group has: `lr=0.1`.
    pub(crate) fn labels(&self) -> Vec<String> {
        let mut label_counts: HashMap<String, usize> = HashMap::new();
        let mut labels: Vec<String> = Vec::with_capacity(self.len());
        for point in 0..self.len() {
            let parts: Vec<String> = self
                .axes
                .iter()
                .map(|axis| format!("{}={}", axis.name, label_text(&axis.values[point])))
                .collect();
            let mut label = parts.join(",");
            if label.chars().count() > LONGEST_LABEL {
                let head: String = label.chars().take(LONGEST_LABEL).collect();
                label = format!("{head}#{point}");
            }
            let repeats = label_counts.entry(label.clone()).or_insert(0);
            if *repeats > 0 {
                label = format!("{label}#{point}");
            }
            *repeats += 1;
            labels.push(label);
        }
        labels
    }
}

/// Labels are cut here and numbered instead: they become names of chains.
const LONGEST_LABEL: usize = 40;

/// The value as part of a label: bare when it cannot be mistaken, otherwise as JSON.
fn label_text(value: &Value) -> String {
    let text = value.to_string();
    match value {
        Value::Str(_)
            if text.is_empty()
                || !text.chars().all(|c| c.is_alphanumeric() || "._+-".contains(c)) =>
        {
            value.to_json().to_string()
        }
        _ => text,
    }
}

/// The JSON schema of a table of axes, which refers to itself by this name.
pub(crate) fn schema(own: &str) -> serde_json::Value {
    let mut forms = described::schemas();
    forms.insert(0, json!({ "type": "array", "minItems": 1 }));
    forms.push(json!({ "$ref": own }));
    json!({ "type": "object", "additionalProperties": { "anyOf": forms } })
}

/// Reads `[grid]`: every axis is a group.
pub(crate) fn read_grid(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    table: &Table<'_>,
) -> Vec<Group> {
    let axes = read_axes(reader, tasks, table, "");
    axes.into_iter().map(|axis| Group::new("[grid]", vec![axis])).collect()
}

/// Reads `[zip]`: all axes are one group and must have one length.
pub(crate) fn read_zip(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    table: &Table<'_>,
) -> Option<Group> {
    let axes = read_axes(reader, tasks, table, "");
    let first_axis = axes.first()?;
    let n_points = first_axis.values.len();
    for axis in &axes[1..] {
        if axis.values.len() != n_points {
            let axis_words = |axis: &Axis| {
                let n = words::count(axis.values.len() as u64, "value");
                format!("`{}` has {n}", axis.name)
            };
            let sentence =
                format!("in `[zip]` {}, but {}", axis_words(first_axis), axis_words(axis));
            reader.wrong(axis.at, sentence, "axes of `[zip]` advance together: give equal lengths");
            return None;
        }
    }
    Some(Group::new("[zip]", axes))
}

fn read_axes(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    table: &Table<'_>,
    prefix: &str,
) -> Vec<Axis> {
    let mut axes = Vec::new();
    for entry in entries(table) {
        let name = format!("{prefix}{}", entry.key);
        match entry.item.get_ref() {
            toml::de::DeValue::Table(inner) if !inner.is_empty() => {
                let description = Description::of(inner);
                match description.filter(|_| reader.is_written_as_table(entry.item)) {
                    Some(description) => {
                        axes.extend(read_described(reader, tasks, &entry, &name, &description))
                    }
                    None => axes.extend(read_axes(reader, tasks, inner, &format!("{name}."))),
                }
            }
            toml::de::DeValue::Array(items) => {
                axes.extend(read_axis(reader, tasks, &entry, &name, items))
            }
            other => {
                let kind_found = crate::plan::document::kind(other);
                let sentence = format!("axis `{name}` is {kind_found}, not a list of values");
                let hint = format!("write `{name} = [...]`, or move a fixed value to `[defaults]`");
                reader.wrong(entry.at, sentence, hint);
            }
        }
    }
    axes
}

fn read_axis(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
    name: &str,
    items: &[Item<'_>],
) -> Option<Axis> {
    if items.is_empty() {
        let sentence = format!("axis `{name}` has no values");
        reader.wrong(entry.at, sentence, "give at least one value, or remove the axis");
        return None;
    }
    let n_before = reader.n_faults();
    let values: Vec<Value> =
        items.iter().filter_map(|item| read_value(reader, name, item)).collect();
    let cells: Vec<Entry<'_>> =
        items.iter().map(|item| Entry { key: name, at: item.span().start, item }).collect();
    let special = read_special(reader, tasks, entry, name, &cells);
    let sound = reader.n_faults() == n_before;
    sound.then(|| Axis { name: Arc::from(name), at: entry.at, values, special })
}

/// An axis whose values a table describes.
fn read_described(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
    name: &str,
    description: &Description<'_>,
) -> Option<Axis> {
    let n_before = reader.n_faults();
    let values = description.values(reader, name)?;
    // What is no parameter is read as it would be from a list.
    let texts: Vec<String> = match is_special(name) {
        true => values.iter().map(Value::to_string).collect(),
        false => Vec::new(),
    };
    let items: Vec<Item<'_>> =
        texts.iter().filter_map(|text| toml::de::DeValue::parse(text).ok()).collect();
    let cells: Vec<Entry<'_>> =
        items.iter().map(|item| Entry { key: name, at: entry.at, item }).collect();
    let special = read_special(reader, tasks, entry, name, &cells);
    let sound = reader.n_faults() == n_before;
    sound.then(|| Axis { name: Arc::from(name), at: entry.at, values, special })
}

/// Whether an axis sets something else than a parameter.
fn is_special(name: &str) -> bool {
    name == "task_id" || name == "gpu_ids_abs" || name.starts_with("resources.")
}

/// What an axis sets besides parameters. Refuses a name that no parameter can have.
fn read_special(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
    name: &str,
    cells: &[Entry<'_>],
) -> Option<Special> {
    if !is_special(name) {
        trials::check_name(reader, entry.at, name);
        return None;
    }
    let is_null = |cell: &&Entry<'_>| matches!(cell.item.get_ref(), toml::de::DeValue::String(text) if reader.null() == Some(&**text));
    if let Some(cell) = cells.iter().find(is_null) {
        let hint = "leave it out of `[[trials]]` where it is not set: only parameters can be null";
        reader.wrong(cell.at, format!("`{name}` cannot be null"), hint);
        return None;
    }
    // The values that a table describes stand in one place: the first fault is that of all.
    Some(match name.strip_prefix("resources.") {
        Some(key) => {
            let n_before = reader.n_faults();
            let wish = |cell: &Entry<'_>| {
                let mut wish = Wish::default();
                RESOURCES.read_key(reader, &Entry { key, ..*cell }, "`resources`", &mut wish);
                (reader.n_faults() == n_before).then_some(wish)
            };
            Special::Wishes(cells.iter().map_while(wish).collect())
        }
        None if name == "task_id" => {
            Special::Tasks(cells.iter().map_while(|cell| tasks.read(reader, cell)).collect())
        }
        None => Special::Gpus(
            cells.iter().map_while(|cell| trials::read_gpu_ids(reader, cell)).collect(),
        ),
    })
}

/// `[replicates]` as written; `None` for a key that is absent or cannot be read.
pub(crate) struct Replicates {
    count: Option<u32>,
    parameter: Option<String>,
}

/// The keys of `[replicates]`.
pub(crate) static REPLICATES: Section<Replicates> = section!("`[replicates]`", Replicates:
    "count" => count: count::<1>(), "required", "how often each point is repeated";
    "parameter" => parameter: LINE, "`\"seed\"`", "the parameter that holds the seed of the repetition";
);

/// Reads `[replicates]`: the seed parameter of each repetition.
pub(crate) fn read_replicates(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    seed: i64,
) -> Option<Group> {
    reader.table(entry)?;
    let mut replicates = Replicates { count: None, parameter: None };
    let written = REPLICATES.read(reader, Some(entry), &mut replicates);
    let Some(count_at) = find(&written, "count").map(|entry| entry.at) else {
        reader.wrong(entry.at, "`[replicates]` has no `count`", "write how often: `count = 5`");
        return None;
    };
    let count = replicates.count?;
    if !trials::check_count(reader, count_at, count) {
        return None;
    }
    let named = find(&written, "parameter");
    let name_at = named.map_or(entry.at, |entry| entry.at);
    // A name that cannot be read was reported.
    let name = replicates.parameter.or_else(|| named.is_none().then(|| "seed".to_owned()))?;
    let plain = trials::check_plain_name(reader, name_at, &name);
    let values = (0..i64::from(count)).map(|i| seed.checked_add(i).map(Value::Int));
    let Some(values) = values.collect::<Option<Vec<_>>>() else {
        reader.wrong(count_at, "the last seed is beyond 64 bits", "choose a smaller `seed`");
        return None;
    };
    plain.then(|| {
        Group::new(
            "[replicates]",
            vec![Axis { name: Arc::from(name), at: name_at, values, special: None }],
        )
    })
}

/// Reports names that two axes set, and names that lie inside one another.
pub(crate) fn check_overlaps(reader: &mut Reader<'_>, groups: &[Group]) {
    let all_axes: Vec<(&Group, &Axis)> =
        groups.iter().flat_map(|group| group.axes.iter().map(move |axis| (group, axis))).collect();
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for (i, (group, axis)) in all_axes.iter().enumerate() {
        for (earlier_group, earlier) in &all_axes[..i] {
            if !inside(&axis.name, &earlier.name) && !inside(&earlier.name, &axis.name) {
                continue;
            }
            let sentence = if axis.name == earlier.name {
                format!(
                    "`{}` is set by `{}` and by `{}`",
                    axis.name, earlier_group.table, group.table
                )
            } else {
                format!("axes `{}` and `{}` set the same parameters", earlier.name, axis.name)
            };
            reader.wrong(axis.at, sentence, "keep one of the two");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, params, plan, tasks};

    #[test]
    fn zip_axes_advance_together() {
        let plan = plan("[zip]\na = [1, 2]\nopt.b = [\"x\", \"y\"]");
        assert_eq!(params(&plan), [r#"{"a":1,"opt":{"b":"x"}}"#, r#"{"a":2,"opt":{"b":"y"}}"#]);
    }

    #[test]
    fn replicates_have_a_seed_each() {
        let seeds = plan("sweep.seed = 7\n[replicates]\ncount = 3");
        assert_eq!(params(&seeds), [r#"{"seed":7}"#, r#"{"seed":8}"#, r#"{"seed":9}"#]);
        let named = plan("[replicates]\ncount = 1\nparameter = \"init.seed\"");
        assert_eq!(params(&named), [r#"{"init":{"seed":1}}"#]);
    }

    #[test]
    fn axes_that_are_no_axes_are_named() {
        check_faults(
            "[grid]
lr = []
width = 3
opt.lr = 0.1
params = [1]
\"a..b\" = [1]
resources.rank = [1]
gpu_ids_abs = [0]
",
            "axis `lr` has no values
  plan.toml:5: lr = []
hint: give at least one value, or remove the axis
error: axis `width` is an integer, not a list of values
  plan.toml:6: width = 3
hint: write `width = [...]`, or move a fixed value to `[defaults]`
error: axis `opt.lr` is a float, not a list of values
  plan.toml:7: opt.lr = 0.1
hint: write `opt.lr = [...]`, or move a fixed value to `[defaults]`
error: a parameter cannot be called `params`
  plan.toml:8: params = [1]
hint: choose another name: templates use this one for something else
error: a parameter cannot be called `a..b`
  plan.toml:9: \"a..b\" = [1]
hint: use letters, digits and `_`, with dots between tables
error: `resources` has no key `rank`
  plan.toml:10: resources.rank = [1]
hint: did you mean `ranks`?
error: `gpu_ids_abs` must be a list of devices, not an integer
  plan.toml:11: gpu_ids_abs = [0]",
        );
    }

    #[test]
    fn axes_that_are_no_parameters_can_be_described_too() {
        let plan = plan(
            "[grid]\nresources.ranks = { range = [1, 3] }\n[zip]\ntask_id = { range = [5, 6] }\nx = { log = [1, 2, 2] }",
        );
        assert_eq!(tasks(&plan), ["5", "6", "5", "6", "5", "6"].map(str::to_owned));
        let ranks: Vec<u32> = plan.trials.iter().map(|trial| trial.resources.ranks).collect();
        assert_eq!(ranks, [1, 1, 2, 2, 3, 3]);
        check_faults(
            "[grid]\nresources.ranks = { range = [-1, 1] }\ntask_id = { linear = [0, 1, 3] }\ngpu_ids_abs = { range = [0, 1] }",
            "`ranks` cannot be -1
  plan.toml:5: resources.ranks = { range = [-1, 1] }
hint: write a number from 1 to 10000000
error: `task_id` must be an integer or a string, not a float
  plan.toml:6: task_id = { linear = [0, 1, 3] }
error: `gpu_ids_abs` must be a list of devices, not an integer
  plan.toml:7: gpu_ids_abs = { range = [0, 1] }",
        );
    }

    #[test]
    fn unequal_lengths_and_double_names_are_refused() {
        check_faults(
            "[zip]\na = [1, 2]\nb = [1]",
            "in `[zip]` `a` has 2 values, but `b` has 1 value
  plan.toml:6: b = [1]
hint: axes of `[zip]` advance together: give equal lengths",
        );
        check_faults(
            "[grid]\nlr = [1]\nopt = [1]\n[zip]\nlr = [2]\n[sample]\ncount = 1\nparameters.opt.x.choice = [1]",
            "`lr` is set by `[grid]` and by `[zip]`
  plan.toml:8: lr = [2]
hint: keep one of the two
error: axes `opt` and `opt.x` set the same parameters
  plan.toml:11: parameters.opt.x.choice = [1]
hint: keep one of the two",
        );
        check_faults(
            "[replicates]\ncount = 0\n[zip]\nx = [1]",
            "`count` cannot be 0
  plan.toml:5: count = 0
hint: write a number from 1 to 4294967295",
        );
        check_faults(
            "[replicates]\nparameter = \"task_id\"",
            "`[replicates]` has no `count`
  plan.toml:4: [replicates]
hint: write how often: `count = 5`",
        );
    }
}
