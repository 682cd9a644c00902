//! The key of a trial: a hash of what it runs, the same wherever it stands in a plan.
//!
//! Resources, devices, chains, hooks and the name of the sweep are not part of it: changing them does
//! not make a finished trial a new one.

use std::sync::Arc;

use crate::plan::file::Plan;
use crate::plan::run::Run;
use crate::plan::templates::engine;
use crate::plan::trial::Trial;
use crate::plan::value::{Params, Value};

/// Makes the keys of trials of one plan.
pub(crate) struct Keys {
    run: [u8; 32],
    /// Worked out for the names last seen.
    form: Option<Form>,
    bytes: Vec<u8>,
}

/// What trials with the same names have in common.
struct Form {
    names: Arc<[Arc<str>]>,
    /// The places of the names, sorted by name.
    order: Vec<usize>,
    /// The hash of the run and the names.
    key: [u8; 32],
}

impl Keys {
    /// Keys of trials that run this in a sweep of this seed.
    pub(crate) fn new(run: &Run, seed: i64) -> Self {
        let mut bytes = Vec::new();
        let list = |bytes: &mut Vec<u8>, items: &[String]| {
            put_len(bytes, items.len());
            items.iter().for_each(|item| put_text(bytes, item));
        };
        list(&mut bytes, &run.command);
        list(&mut bytes, &run.setup);
        list(&mut bytes, &run.modules);
        put_text(&mut bytes, &run.workdir);
        let mut env: Vec<&(String, String)> = run.env.iter().collect();
        env.sort();
        put_len(&mut bytes, env.len());
        for (name, value) in env {
            put_text(&mut bytes, name);
            put_text(&mut bytes, value);
        }
        if let Some(function) = &run.function {
            put_text(&mut bytes, "function");
            put_text(&mut bytes, function);
        }
        if let Some(train) = &run.train {
            put_text(&mut bytes, &sorted(train).to_string());
        }
        if let Some(own) = &run.container {
            put_text(&mut bytes, "container");
            put_text(&mut bytes, &serde_json::json!(own).to_string());
        }
        if !run.args.is_default() {
            put_text(&mut bytes, "args");
            put_text(&mut bytes, &serde_json::json!(run.args).to_string());
        }
        if is_seeded(run) {
            bytes.extend(seed.to_le_bytes());
        }
        let run = blake3::derive_key("hpcsweep run 1", &bytes);
        Self { run, form: None, bytes }
    }

    /// The key of a trial with these parameters. Equal trials have equal keys.
    pub(crate) fn key_of(&mut self, params: &Params) -> [u8; 16] {
        let names = &params.names;
        let is_known = self.form.as_ref().is_some_and(|form| Arc::ptr_eq(&form.names, names));
        if !is_known {
            self.bytes.clear();
            let mut order: Vec<usize> = (0..names.len()).collect();
            order.sort_by(|a, b| names[*a].cmp(&names[*b]));
            self.bytes.extend(self.run);
            put_len(&mut self.bytes, names.len());
            order.iter().for_each(|i| put_text(&mut self.bytes, &names[*i]));
            let key = blake3::derive_key("hpcsweep names 1", &self.bytes);
            self.form = Some(Form { names: names.clone(), order, key });
        }
        let mut hash = [0; 16];
        if let Some(Form { order, key, .. }) = &self.form {
            self.bytes.clear();
            order.iter().for_each(|i| put_value(&mut self.bytes, &params.values[*i]));
            let long_hash = blake3::keyed_hash(key, &self.bytes);
            hash.copy_from_slice(&long_hash.as_bytes()[..16]);
        }
        hash
    }
}

/// Whether the seed of the sweep is part of what runs: where a template names it, or a training run has none of its own.
fn is_seeded(run: &Run) -> bool {
    // The text alone decides where keys of earlier versions depend on it.
    let reads = |text: &str| text.contains("sweep.seed") || engine::reads(text, "sweep", &["seed"]);
    let mut texts = run.command.iter().chain(run.env.iter().map(|(_, value)| value));
    run.train.as_ref().is_some_and(|train| train.get("seed").is_none() || any_text(train, &reads))
        || texts.any(|text| reads(text))
}

/// Whether a text anywhere in a table is such.
fn any_text(json: &serde_json::Value, is_such: &dyn Fn(&str) -> bool) -> bool {
    match json {
        serde_json::Value::String(text) => is_such(text),
        serde_json::Value::Array(items) => items.iter().any(|item| any_text(item, is_such)),
        serde_json::Value::Object(table) => table.values().any(|item| any_text(item, is_such)),
        _ => false,
    }
}

/// What the keys of a plan's trials have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeded<'a> {
    pub(crate) run: &'a Run,
    pub(crate) seed: i64,
}

/// The settings of a plan by which all keys of two plans differ, as the plan names them; none where only parameters may.
pub(crate) fn changed(old: Seeded<'_>, new: Seeded<'_>) -> Vec<&'static str> {
    let (Seeded { run: old, seed: old_seed }, Seeded { run: new, seed: new_seed }) = (old, new);
    let env = |run: &Run| {
        let mut env = run.env.clone();
        env.sort();
        env
    };
    let train = |run: &Run| run.train.as_ref().map(sorted);
    let seed = |run: &Run, seed: i64| is_seeded(run).then_some(seed);
    [
        ("command", old.command != new.command),
        ("args", old.args != new.args),
        ("function", old.function != new.function),
        ("[train]", train(old) != train(new)),
        ("[container]", old.container != new.container),
        ("setup", old.setup != new.setup),
        ("modules", old.modules != new.modules),
        ("workdir", old.workdir != new.workdir),
        ("env", env(old) != env(new)),
        ("seed", seed(old, old_seed) != seed(new, new_seed)),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}

/// A form with its keys in order: the order of writing does not matter.
fn sorted(form: &serde_json::Value) -> serde_json::Value {
    match form {
        serde_json::Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            keys.into_iter().map(|key| (key.clone(), sorted(&fields[key]))).collect()
        }
        serde_json::Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

impl Plan {
    /// A maker of keys of this plan's trials: use it for many.
    pub(crate) fn keys(&self) -> Keys {
        Keys::new(&self.run, self.seed)
    }

    /// Trials that are equal in every key of the plan, by their places in it: groups of two and more. Links of a chain
    /// may be equal on purpose, and trials without parameters cannot differ.
    pub(crate) fn equal(&self) -> Vec<Vec<usize>> {
        let mut keys = self.keys();
        let mut keyed_trials: Vec<([u8; 16], usize)> = Vec::new();
        for (i, trial) in self.trials.iter().enumerate() {
            if trial.task_id.is_none() && !trial.params.values.is_empty() {
                keyed_trials.push((keys.key_of(&trial.params), i));
            }
        }
        keyed_trials.sort_unstable();
        let is_same = |a: usize, b: usize| {
            let (a, b) = (&self.trials[a], &self.trials[b]);
            a.gpu_ids_abs == b.gpu_ids_abs && a.resources == b.resources
        };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for same in keyed_trials.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
            let first_group = groups.len();
            for &(_, i) in same {
                match groups[first_group..].iter_mut().find(|group| is_same(group[0], i)) {
                    Some(group) => group.push(i),
                    None => groups.push(vec![i]),
                }
            }
        }
        groups.retain(|group| group.len() > 1);
        groups.sort_unstable();
        groups
    }

    /// The key of one trial of this plan.
    pub fn content_key(&self, trial: &Trial) -> [u8; 16] {
        self.keys().key_of(&trial.params)
    }
}

fn put_len(bytes: &mut Vec<u8>, n: usize) {
    bytes.extend((n as u64).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_len(bytes, text.len());
    bytes.extend(text.as_bytes());
}

/// A value so that different values have different bytes and none is the beginning of another.
fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(6),
        Value::Bool(b) => bytes.extend([0, u8::from(*b)]),
        Value::Int(i) => {
            bytes.push(1);
            bytes.extend(i.to_le_bytes());
        }
        Value::Float(f) => {
            bytes.push(2);
            bytes.extend(f.to_bits().to_le_bytes());
        }
        Value::Str(text) => {
            bytes.push(3);
            put_text(bytes, text);
        }
        Value::List(items) => {
            bytes.push(4);
            put_len(bytes, items.len());
            items.iter().for_each(|item| put_value(bytes, item));
        }
        Value::Table(pairs) => {
            bytes.push(5);
            put_len(bytes, pairs.len());
            let mut sorted: Vec<&(Arc<str>, Value)> = pairs.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            for (key, value) in sorted {
                put_text(bytes, key);
                put_value(bytes, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Seeded;
    use crate::plan::testing::plan;

    #[test]
    fn a_seed_that_a_template_reads_in_any_way_is_part_of_the_key() {
        let key = |text: &str, seed: u32| {
            let body = format!("sweep.seed = {seed}\nrun.env.S = '{text}'\n[[trials]]\na = 1");
            let plan = plan(&body);
            plan.content_key(&plan.trials[0])
        };
        for text in [
            "{{ sweep.seed }}",
            "{{ sweep[\"seed\"] }}",
            "{{ sweep | json_encode }}",
            "{{ sweep.name }} {{ sweep[\"seed\"] }}",
        ] {
            assert_ne!(key(text, 1), key(text, 2), "{text}");
        }
        for text in ["{{ sweep.name }}", "{{ sweep.dir }} sweep.py", "{{ a }} sweep[\"seed\"]"] {
            assert_eq!(key(text, 1), key(text, 2), "{text}");
        }
    }

    #[test]
    fn a_key_follows_what_is_run_and_nothing_else() {
        let key = |body: &str| {
            let plan = plan(body);
            plan.content_key(&plan.trials[0])
        };
        let base = key("[[trials]]\na = 1\nb.c = \"x\"");
        for same in [
            "[[trials]]\nb.c = \"x\"\na = 1",
            "[defaults]\na = 1\n[grid]\nb.c = [\"x\", \"y\"]",
            "[resources]\nranks = 4\n[[trials]]\ntask_id = 3\ngpu_ids_abs = [1]\na = 1\nb.c = \"x\"",
            "hooks.error = [\"mail\", \"{{ a }} {{ sweep.seed }}\"]\n[[trials]]\na = 1\nb.c = \"x\"",
            "run.attempts = 3\nrun.on_failure = \"continue\"\nsweep.seed = 9\n[[trials]]\na = 1\nb.c = \"x\"",
        ] {
            assert_eq!(key(same), base, "{same}");
        }
        let base_plan = plan("[[trials]]\na = 1\nb.c = \"x\"");
        let mut others = HashSet::from([base]);
        for other in [
            "[[trials]]\na = 1.0\nb.c = \"x\"",
            "[[trials]]\na = \"1\"\nb.c = \"x\"",
            "[[trials]]\na = 1\nc = \"x\"",
            "[[trials]]\na = 1\nb.c = [\"x\"]",
            "[[trials]]\na = 1\nb.c = \"x\"\nd = {}",
            "run.env.A = \"1\"\n[[trials]]\na = 1\nb.c = \"x\"",
            "run.setup = [\"true\"]\n[[trials]]\na = 1\nb.c = \"x\"",
            "run.modules = [\"true\"]\n[[trials]]\na = 1\nb.c = \"x\"",
            "run.workdir = \"/\"\n[[trials]]\na = 1\nb.c = \"x\"",
        ] {
            assert!(others.insert(key(other)), "{other}");
            let other_plan = plan(other);
            let parts = super::changed(
                Seeded { run: &base_plan.run, seed: base_plan.seed },
                Seeded { run: &other_plan.run, seed: other_plan.seed },
            );
            let part = other.strip_prefix("run.").and_then(|rest| rest.split(['.', ' ']).next());
            assert_eq!(parts, part.into_iter().collect::<Vec<_>>(), "{other}");
        }
        let seeded = |seed: &str| {
            plan(&format!(
                "sweep.seed = {seed}\nrun.env.S = \"{{{{ sweep.seed }}}}\"\n[[trials]]\na = 1"
            ))
        };
        let (one, two) = (seeded("1"), seeded("2"));
        let [of_one, of_two] = [&one, &two].map(|plan| Seeded { run: &plan.run, seed: plan.seed });
        assert_eq!(super::changed(of_one, of_two), ["seed"]);
        assert_eq!(super::changed(of_one, of_one), [""; 0]);
    }

    #[test]
    fn keys_of_many_trials_are_those_of_each() {
        let plan = plan("[[trials]]\nz = 1\n[[trials]]\n[grid]\na = [1, 2]\nb = [\"x\", \"y\"]");
        let mut keys = plan.keys();
        let all: Vec<_> = plan.trials.iter().map(|trial| keys.key_of(&trial.params)).collect();
        let each: Vec<_> = plan.trials.iter().map(|trial| plan.content_key(trial)).collect();
        assert_eq!(all, each);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 8);
    }

    #[test]
    fn equal_trials_are_those_that_nothing_tells_apart() {
        let check =
            |body: &str, expected: &[&[usize]]| assert_eq!(plan(body).equal(), expected, "{body}");
        check("[grid]\nlr = [0.1, 0.2, 0.1]\nn = [1, 1]", &[&[0, 1, 4, 5], &[2, 3]]);
        check("[grid]\nlr = [0.1, 0.2]", &[]);
        check("[[trials]]\nlr = 1\n[[trials]]\nlr = 1.0", &[]);
        check("[[trials]]\n[[trials]]", &[]);
        check(
            "[[trials]]\nlr = 1\n[[trials]]\nlr = 1\nresources.ranks = 2\n[[trials]]\nlr = 1",
            &[&[0, 2]],
        );
        check("[[trials]]\ntask_id = 1\nlr = 1\n[[trials]]\ntask_id = 1\nlr = 1", &[]);
        check("[[trials]]\nlr = 1\ngpu_ids_abs = [0]\n[[trials]]\nlr = 1\ngpu_ids_abs = [1]", &[]);
        check("[replicates]\ncount = 3\n[grid]\na = [1]", &[]);
    }

    #[test]
    fn a_key_is_the_same_in_every_version() {
        // A changed key would submit every finished trial again.
        let plan = plan("[defaults]\nlr = 1e-5\nnet = \"a\"\nok = true\nl = [1, { b = 2 }]");
        let key = plan.content_key(&plan.trials[0]);
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "1e86b213b38a2cdba1fafd813721bf28");
    }
}
