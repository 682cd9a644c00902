//! The keys of a plan as data: the reference in `docs/plan.md`, and the JSON schema that editors complete and check by.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::plan::document::section::described;
use crate::plan::document::{Row, form};
use crate::plan::expansion::axes::{self, REPLICATES};
use crate::plan::expansion::sample::SAMPLE;
use crate::plan::file::TABLES;
use crate::plan::sections::container::CONTAINER;
use crate::plan::sections::feeder::FEEDER;
use crate::plan::sections::hooks::HOOKS;
use crate::plan::sections::metrics::METRICS;
use crate::plan::sections::pull::PULL;
use crate::plan::sections::request::RESOURCES;
use crate::plan::sections::retry::RETRY;
use crate::plan::sections::run::RUN;
use crate::plan::sections::schedule::SCHEDULE;
use crate::plan::sections::snapshot::SNAPSHOT;
use crate::plan::sections::sweep::{SWEEP, VERSION};
use crate::train::config::Config;

/// The tables whose keys are fixed, with these keys, in the order of the reference.
pub fn reference() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("sweep", SWEEP.rows()),
        ("run", RUN.rows()),
        ("metrics", METRICS.rows()),
        ("hooks", HOOKS.rows()),
        ("replicates", REPLICATES.rows()),
        ("sample", SAMPLE.rows()),
        ("resources", RESOURCES.rows()),
        ("schedule", SCHEDULE.rows()),
        ("pull", PULL.rows()),
        ("feeder", FEEDER.rows()),
        ("retry", RETRY.rows()),
        ("snapshot", SNAPSHOT.rows()),
        ("container", CONTAINER.rows()),
    ]
}

/// The JSON schema (draft 7) of a plan. It describes the form of each key; what depends on several keys, `submit` and
/// `plan` check.
pub fn schema() -> Value {
    let (train, mut definitions) = train();
    let tables = TABLES.iter().map(|(name, about)| {
        let schema = match *name {
            "version" => json!({ "const": VERSION }),
            "sweep" => required(SWEEP.schema(), &["name"]),
            "run" => RUN.schema(),
            "train" => train.clone(),
            "metrics" => METRICS.schema(),
            "hooks" => HOOKS.schema(),
            "resources" => RESOURCES.schema(),
            "schedule" => SCHEDULE.schema(),
            "pull" => PULL.schema(),
            "feeder" => FEEDER.schema(),
            "retry" => RETRY.schema(),
            "snapshot" => SNAPSHOT.schema(),
            "container" => required(CONTAINER.schema(), &["image"]),
            "defaults" => parameters(false),
            "trials" => json!({ "anyOf": [
                { "type": "array", "items": parameters(true) },
                { "type": "object", "properties": { "file": form::line_schema() }, "required": ["file"],
                  "additionalProperties": false },
            ] }),
            "grid" | "zip" => json!({ "$ref": "#/definitions/axes" }),
            "exclude" => json!({ "type": "array", "items": { "type": "object", "minProperties": 1 } }),
            "replicates" => required(REPLICATES.schema(), &["count"]),
            "sample" => required(SAMPLE.schema(), &["count", "parameters"]),
            _ => json!({}),
        };
        ((*name).to_owned(), described(schema, about))
    });
    let properties: Map<String, Value> = tables.collect();
    definitions.insert("axes".to_owned(), axes::schema("#/definitions/axes"));
    let expression = json!({ "type": "string", "pattern": "\\{\\{" });
    definitions.insert(
        "expression".to_owned(),
        described(expression, "an expression over the parameters: `\"{{ n }}\"`"),
    );
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A plan of hpcsweep",
        "type": "object",
        "properties": properties,
        "required": ["version", "sweep"],
        "additionalProperties": false,
        "definitions": definitions,
    })
}

fn required(mut schema: Value, keys: &[&str]) -> Value {
    schema["required"] = json!(keys);
    schema
}

/// `[defaults]`, or an entry of `[[trials]]`: any parameters, and the keys that are none.
fn parameters(is_trial: bool) -> Value {
    let mut properties = json!({
        "task_id": described(json!({ "type": ["integer", "string"] }), "the chain: trials of one run one after the other"),
        "gpu_ids_abs": described(
            json!({ "type": "array", "items": { "type": ["integer", "string"], "minimum": 0 }, "uniqueItems": true }),
            "physical devices of the trial",
        ),
    });
    if is_trial {
        properties["resources"] =
            described(RESOURCES.schema(), "overrides of `[resources]` for this trial");
    }
    json!({ "type": "object", "properties": properties })
}

/// `[train]`, and the definitions that it refers to.
fn train() -> (Value, Map<String, Value>) {
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    may_be_templates(&mut schema);
    let Value::Object(mut members) = schema else { return (json!({}), Map::new()) };
    let definitions = match members.remove("definitions") {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    members.retain(|name, _| !["$schema", "title"].contains(&name.as_str()));
    (Value::Object(members), definitions)
}

/// Lets every value of a form be a text with an expression: `epochs = "{{ n }}"`.
fn may_be_templates(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(may_be_templates);
            // A `kind` that is an expression fits more than one of them.
            if let Some(kinds) = members.remove("oneOf") {
                members.insert("anyOf".to_owned(), kinds);
            }
            if let Some(Value::Object(properties)) = members.get_mut("properties") {
                for property in properties.values_mut() {
                    let description =
                        property.as_object_mut().and_then(|own| own.remove("description"));
                    let own_schema = property.take();
                    *property =
                        json!({ "anyOf": [own_schema, { "$ref": "#/definitions/expression" }] });
                    if let Some(description) = description {
                        property["description"] = description;
                    }
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(may_be_templates),
        _ => {}
    }
}
