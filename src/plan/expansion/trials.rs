//! `[defaults]` and `[[trials]]` as written: parameters, and the keys that are none.
//!
//! Reads only; [`crate::plan::expansion::expand`] multiplies the entries with the axes.

use std::collections::HashMap;
use std::sync::Arc;

use toml::de::DeValue;

use crate::base::host::gpus::DeviceId;
use crate::base::words;
use crate::plan::document::{Entry, Item, Reader, Table, entries, kind};
use crate::plan::expansion::leaves::{Merge, Node, Tree};
use crate::plan::sections::request::{RESOURCES, Wish};
use crate::plan::templates::known::RESERVED_NAMES;
use crate::plan::templates::template::Template;
use crate::plan::value::{Value, read_value};

/// The most trials of one plan; a plan beyond it is refused before it is expanded.
pub(crate) const MAX_TRIALS: u64 = 10_000_000;

/// Refuses the `count` of a table that alone would make more trials than a plan may have, before they are made.
pub(crate) fn check_count(reader: &mut Reader<'_>, at: usize, count: u32) -> bool {
    let fits = u64::from(count) <= MAX_TRIALS;
    if !fits {
        let max_trials = words::count(MAX_TRIALS, "trial");
        let sentence = format!("`count = {count}` is more than the {max_trials} a plan may have");
        reader.wrong(at, sentence, "cut the plan into several sweeps");
    }
    fits
}

/// A `task_id` as written.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Number(i64),
    Name(Arc<str>),
    /// The number of a template in [`Tasks`].
    Template(usize),
}

/// The templates among the `task_id`s of a plan, each once.
#[derive(Default)]
pub(crate) struct Tasks {
    /// The templates, with the byte offset of their first use.
    pub(crate) templates: Vec<(Template, usize)>,
    known: HashMap<String, usize>,
}

impl Tasks {
    /// Reads a `task_id`; a template joins the list once. `None`, which is reported: neither integer nor text.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Task> {
        match entry.item.get_ref() {
            DeValue::Integer(_) => reader.integer(entry).map(Task::Number),
            DeValue::String(_) => {
                let text = reader.line_of_text(entry)?;
                let template = Template::new(text);
                if template.is_plain() {
                    return Some(Task::Name(Arc::from(text)));
                }
                let fresh = self.templates.len();
                let number = *self.known.entry(text.to_owned()).or_insert(fresh);
                if number == fresh {
                    self.templates.push((template, entry.at));
                }
                Some(Task::Template(number))
            }
            _ => {
                reader.expected(entry, "an integer or a string");
                None
            }
        }
    }
}

/// What `[defaults]` or one entry of `[[trials]]` gives.
#[derive(Default)]
pub(crate) struct Given {
    /// The parameters, by their tables; those with a fault are left out.
    pub(crate) tree: Tree,
    /// `task_id`, if it is written here.
    pub(crate) task: Option<Task>,
    /// `gpu_ids_abs`, if it is written here; an empty list means no device.
    pub(crate) gpus: Option<Arc<[DeviceId]>>,
    /// What of `resources` is written here; nothing for `[defaults]`.
    pub(crate) wish: Wish,
    /// Byte offset of the table.
    pub(crate) at: usize,
    /// Line of the table, 0 if there is none.
    pub(crate) line: u32,
}

/// Reads `[defaults]`, which may not have `resources`; `None` if it is no table.
pub(crate) fn read_defaults(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
) -> Option<Given> {
    let table = reader.table(entry)?;
    Some(read_given(reader, tasks, table, entry.at, false))
}

/// Reads `[[trials]]`; `None` if it is no list. Entries that are no tables are reported and left out.
pub(crate) fn read_trials(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    entry: &Entry<'_>,
) -> Option<Vec<Given>> {
    let items = reader.list(entry, "a list of tables (`[[trials]]`)")?;
    let mut given_trials = Vec::with_capacity(items.len());
    for item in items {
        let trial_at = item.span().start;
        match item.get_ref() {
            DeValue::Table(table) => {
                given_trials.push(read_given(reader, tasks, table, trial_at, true))
            }
            other => {
                let sentence = format!("an entry of `trials` must be a table, not {}", kind(other));
                reader.wrong(trial_at, sentence, "write `[[trials]]` with its parameters below");
            }
        }
    }
    Some(given_trials)
}

fn read_given(
    reader: &mut Reader<'_>,
    tasks: &mut Tasks,
    table: &Table<'_>,
    at: usize,
    is_trial: bool,
) -> Given {
    let mut given_trial = Given { at, line: reader.line(at), ..Given::default() };
    for entry in entries(table) {
        match entry.key {
            "task_id" => given_trial.task = tasks.read(reader, &entry),
            "gpu_ids_abs" => given_trial.gpus = read_gpu_ids(reader, &entry),
            "resources" if is_trial => {
                if let Some(table) = reader.table(&entry) {
                    RESOURCES.read_table(reader, table, "`resources`", &mut given_trial.wish);
                }
            }
            "resources" => reader.wrong(
                entry.at,
                "`[defaults]` cannot hold `resources`",
                "write them under `[resources]`: every trial starts from these",
            ),
            key if is_trial && key.starts_with("resources.") => {
                let cell = Entry { key: &key["resources.".len()..], ..entry };
                RESOURCES.read_key(reader, &cell, "`resources`", &mut given_trial.wish);
            }
            key => {
                if check_name(reader, entry.at, key)
                    && let Some(node) = read_node(reader, key, entry.item)
                    && is_first(reader, entry.at, key, &given_trial.tree, key)
                {
                    given_trial.tree.lay_at(key, node, Merge::Deep);
                }
            }
        }
    }
    given_trial
}

/// Refuses a parameter that the same table has already: `"a.b"` beside `a.b`.
fn is_first(reader: &mut Reader<'_>, at: usize, full: &str, tree: &Tree, key: &str) -> bool {
    let is_new = !tree.touches(key);
    if !is_new {
        let sentence = format!("the parameter `{full}` is written twice");
        reader.wrong(at, sentence, "a dot in quotes means the same as a dot without");
    }
    is_new
}

/// A value as a node: tables become nodes with checked names, everything else a leaf.
fn read_node(reader: &mut Reader<'_>, name: &str, item: &Item<'_>) -> Option<Node> {
    match item.get_ref() {
        DeValue::Table(table) if !table.is_empty() => {
            let mut tree = Tree::default();
            for entry in entries(table) {
                let full = format!("{name}.{}", entry.key);
                if check_name(reader, entry.at, &full)
                    && let Some(node) = read_node(reader, &full, entry.item)
                    && is_first(reader, entry.at, &full, &tree, entry.key)
                {
                    tree.lay_at(entry.key, node, Merge::Deep);
                }
            }
            (!tree.0.is_empty()).then_some(Node::Table(tree))
        }
        _ => read_value(reader, name, item).map(Node::from_value),
    }
}

/// Reads `gpu_ids_abs`: distinct devices.
pub(crate) fn read_gpu_ids(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Arc<[DeviceId]>> {
    let items = reader.list(entry, "a list of devices")?;
    let mut ids: Vec<DeviceId> = Vec::with_capacity(items.len());
    for item in items {
        let id = match read_value(reader, entry.key, item)? {
            Value::Int(id) => u32::try_from(id).ok().map(DeviceId::Index),
            Value::Str(text) => DeviceId::parse(&text).filter(|id| matches!(id, DeviceId::Uuid(_))),
            _ => None,
        };
        let Some(id) = id else {
            let sentence = "`gpu_ids_abs` must be a list of devices";
            let hint =
                "write numbers from 0 or UUIDs: `[0, 1]`, `[\"GPU-8932f937\"]`, `[\"MIG-...\"]`";
            reader.wrong(item.span().start, sentence, hint);
            return None;
        };
        if ids.contains(&id) {
            let sentence = format!("`gpu_ids_abs` names device {id} twice");
            reader.wrong(item.span().start, sentence, "name every device once");
            return None;
        }
        ids.push(id);
    }
    Some(ids.into())
}

/// Reports a name that no parameter can have.
pub(crate) fn check_name(reader: &mut Reader<'_>, at: usize, name: &str) -> bool {
    let top = name.split('.').next().unwrap_or("");
    if RESERVED_NAMES.contains(&top) {
        let hint = "choose another name: templates use this one for something else";
        reader.wrong(at, format!("a parameter cannot be called `{top}`"), hint);
        return false;
    }
    if name
        .split('.')
        .any(|part| part.is_empty() || part.contains(|c: char| c.is_control() || c == '='))
    {
        let hint = "use letters, digits and `_`, with dots between tables";
        reader.wrong(at, format!("a parameter cannot be called `{}`", name.escape_debug()), hint);
        return false;
    }
    true
}

/// Reports a name that no parameter can have, also those that axes may set besides.
pub(crate) fn check_plain_name(reader: &mut Reader<'_>, at: usize, name: &str) -> bool {
    let top = name.split('.').next().unwrap_or("");
    if ["task_id", "gpu_ids_abs", "resources"].contains(&top) {
        let hint = "set it in `[[trials]]`, `[grid]` or `[zip]`";
        reader.wrong(at, format!("`{name}` is not a parameter"), hint);
        return false;
    }
    check_name(reader, at, name)
}

#[cfg(test)]
mod tests {
    use crate::base::host::gpus::DeviceId;
    use crate::plan::Value;
    use crate::plan::testing::{check_faults, check_plan_faults, params, plan, tasks};

    #[test]
    fn every_kind_of_parameter_keeps_its_value() {
        // The sixteen keys of a list of tasks as jdit reads it, and what else TOML knows.
        let plan = plan(
            "[defaults]
logdir = \"runs/a b\"
gpu_ids_abs = [2, 3]
use_benchmark = true
data_root = \"/data/fashion\"
batch_shape = [32, 1, 28, 28]
opt_name = \"Adam\"
lr = 1e-5
lr_decay = 0.94
lr_minimum = 1e-6
weight_decay = 2e-5
momentum = 0
betas = [0.9, 0.999]
init_method = \"kaiming\"
depth = 8
mid_channels = 16
nepochs = 100
tenth = 0.1
unset = \"\"
far = inf
day = 2026-01-02
deep.list = [{ a = 1 }, [2, \"x\"]]
",
        );
        let [trial] = plan.trials.as_slice() else { panic!("{} trials", plan.trials.len()) };
        assert_eq!(
            params(&plan),
            [concat!(
                r#"{"logdir":"runs/a b","use_benchmark":true,"data_root":"/data/fashion","#,
                r#""batch_shape":[32,1,28,28],"opt_name":"Adam","lr":0.00001,"lr_decay":0.94,"#,
                r#""lr_minimum":1e-6,"weight_decay":0.00002,"momentum":0,"betas":[0.9,0.999],"#,
                r#""init_method":"kaiming","depth":8,"mid_channels":16,"nepochs":100,"tenth":0.1,"#,
                r#""unset":"","far":"inf","day":"2026-01-02","deep":{"list":[{"a":1},[2,"x"]]}}"#
            )]
        );
        let named = [DeviceId::Index(2), DeviceId::Index(3)];
        assert_eq!(trial.gpu_ids_abs.as_deref(), Some(&named[..]));
        assert_eq!(trial.resources.gpus, Some(2));
        for (name, bits) in [("lr", 1e-5_f64), ("tenth", 0.1), ("lr_minimum", 1e-6)] {
            let Some(Value::Float(f)) = trial.params.get(name) else { panic!("{name}") };
            assert_eq!(f.to_bits(), bits.to_bits(), "{name}");
        }
    }

    #[test]
    fn a_text_that_the_plan_names_is_null_in_every_value_of_a_parameter() {
        let plan = plan(
            "sweep.null = \"none\"
[defaults]
task_id = \"none\"
a = \"none\"
b = [1, \"none\", { c = \"none\" }]
d = \"None\"
[[trials]]
opt.e = \"none\"
[grid]
depth = [3, \"none\", \"some\"]
[sample]
count = 1
parameters.s = { choice = [\"none\"] }
[[exclude]]
depth = [\"some\", 3]
a = \"none\"
",
        );
        let expected = r#"{"a":null,"b":[1,null,{"c":null}],"d":"None","opt":{"e":null},"depth":null,"s":null}"#;
        assert_eq!(params(&plan), [expected]);
        assert_eq!(tasks(&plan), ["none"]);
        check_faults(
            "sweep.null = \"none\"\n[grid]\ntask_id = [\"a\", \"none\"]\n[zip]\nresources.partition = [\"none\"]",
            "`task_id` cannot be null
  plan.toml:6: task_id = [\"a\", \"none\"]
hint: leave it out of `[[trials]]` where it is not set: only parameters can be null
error: `resources.partition` cannot be null
  plan.toml:8: resources.partition = [\"none\"]
hint: leave it out of `[[trials]]` where it is not set: only parameters can be null",
        );
        check_plan_faults(
            "# Written by hpcsweep.Sweep: a\nversion = 1\nsweep = { name = \"s\", null = \"x\" }\nrun.command = [\"a\"]",
            "`null` cannot be set for a sweep of Python
  plan.toml:3: sweep = { name = \"s\", null = \"x\" }
hint: remove it: `None` is a value of `grid` and `points`",
        );
    }

    #[test]
    fn a_trial_wins_over_the_defaults() {
        let body = "[defaults]\ntask_id = 1\nopt.a = 1\nn = 0\n[[trials]]\nopt.b = 2\nx = 1\n[[trials]]\ntask_id = \"t\"\nn = 5\n";
        let deep = plan(body);
        assert_eq!(
            params(&deep),
            [r#"{"opt":{"a":1,"b":2},"n":0,"x":1}"#, r#"{"opt":{"a":1},"n":5}"#]
        );
        assert_eq!(tasks(&deep), ["1", "t"]);
        let shallow = plan(&format!("sweep.merge = \"shallow\"\n{body}"));
        assert_eq!(params(&shallow)[0], r#"{"opt":{"b":2},"n":0,"x":1}"#);
    }

    #[test]
    fn devices_are_part_of_the_request() {
        let plan = plan(
            "[resources]\nranks = 2\ngpus_per_rank = 1\n[[trials]]\ngpu_ids_abs = []\n[[trials]]\ngpu_ids_abs = [5, 7]\n[[trials]]\n",
        );
        let gpus: Vec<_> = plan.trials.iter().map(|t| t.resources.total_gpus()).collect();
        assert_eq!(gpus, [0, 2, 2]);
        check_faults(
            "[resources]\nranks = 2\n[[trials]]\n[[trials]]\nresources.gpus_per_rank = 2\ngpu_ids_abs = [0]",
            "trial 1: `gpu_ids_abs` names 1 device, but `gpus_per_rank = 2` times `ranks = 2` is 4
  plan.toml:7: [[trials]]
hint: remove `gpus_per_rank`: the devices are counted",
        );
    }

    #[test]
    fn faults_of_trials_are_told_together() {
        check_faults(
            "[defaults]
sweep = 1
resources.ranks = 2
[[trials]]
gpu_ids_abs = [0, 0]
task_id = 1.5
[[trials]]
gpu_ids_abs = [-1]
trial.x = 1
task_id = \"\"
[[trials]]
gpu_ids_abs = 1
opt.\"\" = 1
",
            "a parameter cannot be called `sweep`
  plan.toml:5: sweep = 1
hint: choose another name: templates use this one for something else
error: `[defaults]` cannot hold `resources`
  plan.toml:6: resources.ranks = 2
hint: write them under `[resources]`: every trial starts from these
error: `gpu_ids_abs` names device 0 twice
  plan.toml:8: gpu_ids_abs = [0, 0]
hint: name every device once
error: `task_id` must be an integer or a string, not a float
  plan.toml:9: task_id = 1.5
error: `gpu_ids_abs` must be a list of devices
  plan.toml:11: gpu_ids_abs = [-1]
hint: write numbers from 0 or UUIDs: `[0, 1]`, `[\"GPU-8932f937\"]`, `[\"MIG-...\"]`
error: a parameter cannot be called `trial`
  plan.toml:12: trial.x = 1
hint: choose another name: templates use this one for something else
error: `task_id` is empty
  plan.toml:13: task_id = \"\"
hint: give it a value, or remove the key
error: `gpu_ids_abs` must be a list of devices, not an integer
  plan.toml:15: gpu_ids_abs = 1
error: a parameter cannot be called `opt.`
  plan.toml:16: opt.\"\" = 1
hint: use letters, digits and `_`, with dots between tables",
        );
        check_faults(
            "trials = [1]",
            "an entry of `trials` must be a table, not an integer
  plan.toml:4: trials = [1]
hint: write `[[trials]]` with its parameters below",
        );
    }
}
