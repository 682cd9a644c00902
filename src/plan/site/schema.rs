//! The JSON schema of a profile, by which editors complete and check it.

use serde_json::{Map, Value, json};

use super::keys::KEYS;
use super::read::VERSION;
use crate::plan::document::section::described;

/// The JSON schema (draft 7) of a site profile.
pub(crate) fn schema() -> Value {
    let mut tables = Map::new();
    tables.insert("version".to_owned(), json!({ "const": VERSION }));
    for key in KEYS {
        let table = tables.entry(key.table()).or_insert_with(
            || json!({ "type": "object", "properties": {}, "additionalProperties": false }),
        );
        table["properties"][key.leaf()] = described((key.schema)(), key.about);
    }
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A site profile of hpcsweep",
        "type": "object",
        "properties": tables,
        "required": ["version"],
        "additionalProperties": false,
    })
}
