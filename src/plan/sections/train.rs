//! `[train]` as written: a form in which texts may be expressions over a trial's parameters.
//!
//! Filled in, it must be a [`Config`]; that is tried for the trials of the plan when it is read, so that
//! no trial finds out at night.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};
use toml::de::DeValue;

use crate::base::fault::Fault;
use crate::plan::document::{Entry, Item, Reader, entries};
use crate::plan::expansion::expand::Expanded;
use crate::plan::run::Run;
use crate::plan::templates::command::{Filler, named, stand_ins};
use crate::plan::templates::engine::Parsed;
use crate::plan::templates::places::Places;
use crate::plan::templates::template::Template;
use crate::plan::value::{Params, read_value};
use crate::train::config::Config;

/// At most this many different fillings are tried when a plan is read.
const MAX_TRIED: usize = 20_000;

/// Reads `[train]` as JSON, and keeps the place of each value; `None` if any fault was reported.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    places: &mut Places,
) -> Option<Value> {
    reader.table(entry)?;
    let n_before = reader.n_faults();
    let form = json(reader, "", entry.at, entry.item, places);
    (reader.n_faults() == n_before).then_some(form)
}

fn json(
    reader: &mut Reader<'_>,
    path: &str,
    at: usize,
    item: &Item<'_>,
    places: &mut Places,
) -> Value {
    places.train.push((path.to_owned(), at));
    let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match item.get_ref() {
        DeValue::Table(table) => {
            let fields = entries(table).into_iter().map(|entry| {
                let value = json(reader, &inner(entry.key), entry.at, entry.item, places);
                (entry.key.to_owned(), value)
            });
            Value::Object(fields.collect())
        }
        DeValue::Array(items) => {
            let items = items.iter().enumerate().map(|(i, item)| {
                json(reader, &format!("{path}[{i}]"), item.span().start, item, places)
            });
            Value::Array(items.collect())
        }
        _ => {
            if let DeValue::Float(number) = item.get_ref()
                && ["nan", "inf"].iter().any(|odd| number.as_str().ends_with(odd))
            {
                let mut fault = Fault::request(format!("`train.{path}` is not a finite number"));
                fault.place = Some(reader.place(at));
                reader.report(at, fault);
            }
            let value = read_value(reader, &format!("train.{path}"), item);
            value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or(Value::Null)
        }
    }
}

/// Calls `with` for every text of a form and its path.
fn texts<'f>(form: &'f Value, path: &str, with: &mut impl FnMut(&str, &'f str)) {
    match form {
        Value::String(text) => with(path, text),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                texts(item, &format!("{path}[{i}]"), with);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                texts(value, &path, with);
            }
        }
        _ => {}
    }
}

/// The templates of `[train]` with their keys and their places.
pub(crate) fn templates(run: &Run, places: &Places) -> Vec<(String, Template, usize)> {
    let mut templates = Vec::new();
    if let Some(form) = &run.train {
        texts(form, "", &mut |path, text| {
            templates.push((format!("train.{path}"), Template::new(text), places.of_train(path)));
        });
    }
    templates
}

/// Tries `[train]` with the parameters of the trials.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    run: &Run,
    seed: i64,
    places: &Places,
    expanded: &Expanded,
) {
    if run.train.is_none() || reader.n_faults() > 0 {
        return;
    }
    let template = match TrainTemplate::new(run) {
        Ok(template) => template,
        Err(fault) => return reader.report(places.of_train(""), fault),
    };
    let mut tried = HashSet::new();
    for (id, trial) in expanded.trials.iter().enumerate() {
        let key: Vec<Option<String>> =
            template.names.iter().map(|name| text_of(&trial.params, name)).collect();
        if !template.whole_table && !tried.insert(key) {
            continue;
        }
        let extra = stand_ins(id, trial);
        if let Err(mut fault) = template.fill(&trial.params, seed, &extra) {
            let key = fault.key.as_deref().and_then(|key| key.strip_prefix("train."));
            let template_at = places.of_train(key.unwrap_or_default());
            if expanded.trials.len() > 1 && !template.names.is_empty() {
                fault.sentence = format!("trial {id}: {}", fault.sentence);
            }
            fault.place = Some(reader.place(template_at));
            reader.report(template_at, fault);
            return;
        }
        if tried.len() >= MAX_TRIED {
            return;
        }
    }
}

/// The value of a parameter, or of a table of them, as text.
fn text_of(params: &Params, name: &str) -> Option<String> {
    let value = params.get(name).map(ToString::to_string);
    value.or_else(|| serde_json::to_string(&params.table(name)?).ok())
}

/// `[train]`, ready to be filled in for any trial.
pub(crate) struct TrainTemplate {
    form: Value,
    parsed: Parsed,
    /// The names that its expressions use: parameters, `trial`, `sweep`.
    names: BTreeSet<String>,
    /// Whether it names a table of parameters, or all of them.
    whole_table: bool,
}

impl TrainTemplate {
    /// The form of a run.
    ///
    /// # Errors
    /// A fault that names the text whose template is invalid, or that there is no `[train]`.
    pub(crate) fn new(run: &Run) -> Result<Self, Fault> {
        let Some(form) = run.train.clone() else {
            return Err(Fault::request("the plan has no `[train]`"));
        };
        let mut templates = Vec::new();
        texts(&form, "", &mut |path, text| templates.push((path.to_owned(), Template::new(text))));
        let parsed =
            Parsed::new(templates.iter().map(|(path, template)| (path, &*template.source)));
        let parsed =
            parsed.map_err(|(path, why)| Fault::request(format!("`train.{path}`: {why}")))?;
        let uses = templates.iter().filter_map(|(_, template)| template.uses().ok());
        let names: BTreeSet<String> = uses.flat_map(|uses| uses.names).collect();
        let whole_table = names.iter().any(|name| name.starts_with("params"));
        Ok(Self { form, parsed, names, whole_table })
    }

    /// The configuration of one trial. `extra` are further names: `trial` and `sweep`; `seed` is the
    /// sweep's, for a form that has none.
    ///
    /// # Errors
    /// A fault that names the key when a text cannot be filled in, or the value is not one the key takes.
    pub(crate) fn fill(
        &self,
        params: &Params,
        seed: i64,
        extra: &[(&str, Value)],
    ) -> Result<Config, Fault> {
        let mut filler = Filler { params, extra, parsed: &self.parsed, context: None };
        let mut form = self.filled(&self.form, "", &mut filler)?;
        if let Value::Object(fields) = &mut form {
            fields.entry("seed").or_insert_with(|| seed.into());
        }
        Config::read(&form)
    }

    fn filled(&self, form: &Value, path: &str, filler: &mut Filler<'_>) -> Result<Value, Fault> {
        Ok(match form {
            Value::String(text) => {
                self.value_of(text, filler).map_err(|f| named(f, &format!("train.{path}")))?
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let items =
                    items.map(|(i, item)| self.filled(item, &format!("{path}[{i}]"), filler));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let mut filled_fields = Map::new();
                for (key, value) in fields {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    filled_fields.insert(key.clone(), self.filled(value, &path, filler)?);
                }
                Value::Object(filled_fields)
            }
            other => other.clone(),
        })
    }

    /// A text with its expressions filled in. One expression alone gives its value with its type.
    fn value_of(&self, text: &str, filler: &mut Filler<'_>) -> Result<Value, Fault> {
        let template = Template::new(text);
        if let Some(name) = template.name().filter(|name| self.names.contains(*name)) {
            let name = name.strip_prefix("params.").unwrap_or(name);
            if let Some(value) = filler.params.get(name) {
                return serde_json::to_value(value).map_err(|e| Fault::request(e.to_string()));
            }
            if let Some(table) = filler.params.table(name) {
                return serde_json::to_value(&table).map_err(|e| Fault::request(e.to_string()));
            }
            if let Some(field) = filler.field(name) {
                return Ok(field.clone());
            }
        }
        let filled = filler.fill(&template)?;
        let code = text.trim();
        let is_one =
            code.starts_with("{{") && code.ends_with("}}") && code.matches("{{").count() == 1;
        if is_one
            && let Ok(value @ (Value::Number(_) | Value::Bool(_))) = serde_json::from_str(&filled)
        {
            return Ok(value);
        }
        Ok(Value::String(filled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::check_plan_faults;
    use crate::plan::{Plan, parse};
    use crate::train::config::{Model, Optimizer};

    fn text(body: &str) -> String {
        format!("version = 1\nsweep.name = \"s\"\nsweep.seed = 7\n{body}")
    }

    fn plan(body: &str) -> Plan {
        parse(&text(body), "plan.toml").unwrap_or_else(|e| panic!("{e}"))
    }

    fn config(plan: &Plan, trial: usize) -> Config {
        let template = TrainTemplate::new(&plan.run).unwrap();
        let extra = stand_ins(trial, &plan.trials[trial]);
        template.fill(&plan.trials[trial].params, plan.seed, &extra).unwrap()
    }

    const TRAIN: &str = "[train]
model = { kind = \"mlp\", hidden = \"{{ hidden }}\", outputs = 10 }
data = { train = \"digits-{{ fold }}.npz\" }
epochs = \"{{ fold + 1 }}\"
optimizer = { kind = \"{{ opt.kind }}\", lr = \"{{ opt.lr }}\" }
[grid]
fold = [0, 1]
opt.kind = [\"sgd\"]
opt.lr = [1e-3]
hidden = [[16, 8]]
";

    #[test]
    fn an_expression_alone_keeps_the_type_of_its_value() {
        let plan = plan(TRAIN);
        let config = config(&plan, 1);
        assert_eq!(
            config.model,
            Model::Mlp { hidden: vec![16, 8], outputs: 10, dropout: 0.0, batch_norm: false }
        );
        assert_eq!(config.epochs, 2);
        assert_eq!(config.optimizer.lr(), 1e-3);
        assert!(matches!(config.optimizer, Optimizer::Sgd { .. }));
        assert_eq!(config.data.train, crate::train::config::Source::File("digits-1.npz".into()));
        // The sweep's seed is the run's where it names none.
        assert_eq!(config.seed, 7);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let check = |from: &str, to: &str, expected: &str| {
            check_plan_faults(&text(&TRAIN.replace(from, to)), expected);
        };
        check(
            "epochs = \"{{ fold + 1 }}\"",
            "epochs = \"many\"",
            "trial 0: `train.epochs` must be a whole number from 0, not the text `many`
  plan.toml:7: epochs = \"many\"",
        );
        check(
            "{{ opt.lr }}",
            "{{ opt.lrr }}",
            "`train.optimizer.lr`: `opt.lrr` is not a name of this plan
  plan.toml:8: optimizer = { kind = \"{{ opt.kind }}\", lr = \"{{ opt.lrr }}\" }
hint: did you mean `opt.lr`?",
        );
        check(
            "epochs = \"{{ fold + 1 }}\"",
            "epoch = 1",
            "trial 0: `[train]` has no key `epoch`
  plan.toml:7: epoch = 1
hint: did you mean `epochs`?",
        );
        check(
            "\"{{ opt.lr }}\"",
            "nan",
            "`train.optimizer.lr` is not a finite number
  plan.toml:8: optimizer = { kind = \"{{ opt.kind }}\", lr = nan }",
        );
        check(
            "[grid]",
            "[run]\ncommand = [\"a\"]\n[grid]",
            "the plan has a command and `[train]`
  plan.toml:4: [train]
hint: keep one of them: a command trains by itself, `[train]` inside the worker",
        );
    }

    #[test]
    fn every_value_that_an_expression_reaches_is_tried() {
        for (expression, axis) in [
            ("{{ sizes[0] }}", "sizes = [[1], [\"many\"]]"),
            ("{{ run | get(key='epochs') }}", "run.epochs = [1, \"many\"]"),
        ] {
            let train =
                TRAIN.replace("{{ fold + 1 }}", expression).replace("fold = [0, 1]", "fold = [0]");
            check_plan_faults(
                &text(&format!("{train}{axis}\n")),
                &format!(
                    "trial 1: `train.epochs` must be a whole number from 0, not the text `many`
  plan.toml:7: epochs = \"{expression}\""
                ),
            );
        }
    }

    #[test]
    fn the_key_knows_the_form_but_not_its_order() {
        let key = |plan: &Plan| plan.content_key(&plan.trials[0]);
        let first = plan(TRAIN);
        let swapped = TRAIN
            .replace("epochs = \"{{ fold + 1 }}\"\n", "")
            .replace("[grid]", "train.epochs = 3\n[grid]")
            .replace("train.epochs = 3", "epochs = \"{{ fold + 1 }}\"");
        assert_eq!(key(&first), key(&plan(&swapped)));
        assert_ne!(key(&first), key(&plan(&TRAIN.replace("fold + 1", "fold + 2"))));
        assert_ne!(key(&first), {
            let other = parse(&text(TRAIN).replace("seed = 7", "seed = 8"), "plan.toml").unwrap();
            key(&other)
        });
    }
}
