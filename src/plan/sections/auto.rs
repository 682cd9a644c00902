//! `memory = "auto"`, `walltime = "auto"` of `[resources]`: requests that are learnt from trials that have ended. The first trials
//! ask for `first`, the others for what these have used.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::de::DeValue;

use super::pull::number_in;
use crate::plan::Params;
use crate::plan::document::form::{LINES, MEMORY, WALLTIME};
use crate::plan::document::{Entry, Form, Reader, Section, entries, section};

/// What a plan asks for of one thing: memory in MiB, or walltime in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Amount {
    /// An amount that the plan states.
    Fixed(u64),
    /// What trials that have ended have used.
    Learnt(Arc<Learn>),
}

impl Amount {
    /// What is asked for before anything is known; `None` leaves it to the site.
    pub(crate) fn first(&self) -> Option<u64> {
        match self {
            Self::Fixed(amount) => Some(*amount),
            Self::Learnt(learn) => learn.first,
        }
    }

    /// How it is learnt, where it is.
    pub(crate) fn learn(&self) -> Option<&Arc<Learn>> {
        match self {
            Self::Fixed(_) => None,
            Self::Learnt(learn) => Some(learn),
        }
    }
}

/// How a request is learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Learn {
    /// What the first trials ask for; `None` leaves it to the site.
    pub(crate) first: Option<u64>,
    /// What the others ask for: this times what the first have used.
    pub(crate) margin: f64,
    /// The parameters on which it depends: trials with equal values of them need the same.
    pub(crate) by: Vec<String>,
    /// The key's place in the plan.
    #[serde(skip)]
    pub(crate) at: usize,
}

impl Learn {
    /// The values on which it depends, of a trial: `width = 64, depth = 2`. Trials with the same text need the same.
    pub(crate) fn values(&self, params: &Params) -> String {
        let values: Vec<String> = self
            .by
            .iter()
            .map(|name| {
                let value = params.get(name).map(ToString::to_string);
                format!("{name} = {}", value.as_deref().unwrap_or("nothing"))
            })
            .collect();
        values.join(", ")
    }
}

/// What of a trial's request is learnt.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Learns {
    pub(crate) memory: Option<Arc<Learn>>,
    pub(crate) walltime: Option<Arc<Learn>>,
}

impl Learns {
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_none() && self.walltime.is_none()
    }

    /// Both, as far as there are any.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Learn>> {
        self.memory.iter().chain(&self.walltime)
    }
}

/// The margin of a plan that names none.
pub(crate) const MARGIN: f64 = 1.2;

/// A learnt request as written.
struct Written {
    first: Option<u64>,
    margin: f64,
    by: Vec<String>,
}

impl Default for Written {
    fn default() -> Self {
        Self { first: None, margin: MARGIN, by: Vec::new() }
    }
}

static LEARNT_MEMORY: Section<Written> = section!("`memory`", Written:
    "first" => first: MEMORY, "the site's", "what the first trials ask for";
    "margin" => margin: FACTOR, "1.2", "the others ask for this times what the first have used";
    "by" => by: LINES, "`[]`", "the parameters on which memory depends";
);

static LEARNT_WALLTIME: Section<Written> = section!("`walltime`", Written:
    "first" => first: WALLTIME, "the site's", "what the first trials ask for";
    "margin" => margin: FACTOR, "1.2", "the others ask for this times what the first have used";
    "by" => by: LINES, "`[]`", "the parameters on which the time depends";
);

/// A memory such as `"2G"`, without `"auto"`; in MiB.
pub(crate) const FIXED_MEMORY: Form<Amount> = Form {
    read: |reader, entry| (MEMORY.read)(reader, entry).map(Amount::Fixed),
    schema: MEMORY.schema,
};

/// A walltime such as `"2h"`, without `"auto"`; in seconds.
pub(crate) const FIXED_WALLTIME: Form<Amount> = Form {
    read: |reader, entry| (WALLTIME.read)(reader, entry).map(Amount::Fixed),
    schema: WALLTIME.schema,
};

/// A memory, or how it is learnt.
pub(crate) const MEMORY_OR_AUTO: Form<Amount> = Form {
    read: |reader, entry| amount(reader, entry, &LEARNT_MEMORY, &FIXED_MEMORY),
    schema: || schema(&LEARNT_MEMORY, &MEMORY),
};

/// A walltime, or how it is learnt.
pub(crate) const WALLTIME_OR_AUTO: Form<Amount> = Form {
    read: |reader, entry| amount(reader, entry, &LEARNT_WALLTIME, &FIXED_WALLTIME),
    schema: || schema(&LEARNT_WALLTIME, &WALLTIME),
};

/// A number from 1 to 100 that what was used is multiplied by.
const FACTOR: Form<f64> = Form {
    read: |reader, entry| number_in(reader, entry, 1.0..=100.0, "a factor from 1 to 100, as `1.2`"),
    schema: || json!({ "type": "number", "minimum": 1, "maximum": 100 }),
};

fn schema(section: &Section<Written>, fixed: &Form<u64>) -> Value {
    json!({ "anyOf": [(fixed.schema)(), { "const": "auto" }, section.schema()] })
}

fn amount(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    section: &Section<Written>,
    fixed: &Form<Amount>,
) -> Option<Amount> {
    let mut written = Written::default();
    match entry.item.get_ref() {
        DeValue::String(text) if text.trim() == "auto" => {}
        DeValue::Table(table) => {
            let n_faults_before = reader.n_faults();
            section.read_table(reader, table, section.title, &mut written);
            if reader.n_faults() > n_faults_before {
                return None;
            }
            if entries(table).is_empty() {
                let hint = format!("write `{} = \"auto\"`", entry.key);
                reader.wrong(entry.at, format!("`{}` is an empty table", entry.key), hint);
                return None;
            }
        }
        _ => return (fixed.read)(reader, entry),
    }
    let Written { first, margin, by } = written;
    Some(Amount::Learnt(Arc::new(Learn { first, margin, by, at: entry.at })))
}

#[cfg(test)]
mod tests {
    use crate::plan::testing::{check_faults, plan};

    #[test]
    fn the_first_trials_ask_for_first() {
        let plan = plan(
            "[resources]\nmemory = { first = \"4G\", margin = 1.5, by = [\"width\"] }\nwalltime = \"auto\"\n\
             [grid]\nwidth = [1, 2]\n[[trials]]\n[[trials]]\nresources.memory = \"1G\"\n",
        );
        let of = |i: usize| {
            let trial = &plan.trials[i];
            let learns = trial.learns.as_ref().unwrap();
            let memory = learns.memory.as_ref().map(|m| (m.first, m.margin, m.by.join(",")));
            let time = learns.walltime.as_ref().map(|w| (w.first, w.margin, w.by.join(",")));
            (trial.resources.memory_mib, memory, trial.resources.walltime_s, time)
        };
        let time = Some((None, 1.2, String::new()));
        let memory = Some((Some(4096), 1.5, "width".to_owned()));
        assert_eq!(of(0), (Some(4096), memory.clone(), None, time.clone()));
        assert_eq!(of(1), (Some(4096), memory, None, time.clone()));
        // A request of its own is not learnt.
        assert_eq!(of(2), (Some(1024), None, None, time));
        assert!(plan.learns());
    }

    #[test]
    fn slips_are_told_with_the_place() {
        check_faults(
            "[resources]\nmemory = { first = \"4G\", by = [\"widht\"] }\n[grid]\nwidth = [1, 2]\n",
            "`by` names `widht`, which no trial has
  plan.toml:5: memory = { first = \"4G\", by = [\"widht\"] }
hint: did you mean `width`?",
        );
        check_faults(
            "[resources]\nmemory = {}\n",
            "`memory` is an empty table
  plan.toml:5: memory = {}
hint: write `memory = \"auto\"`",
        );
        check_faults(
            "[resources]\nwalltime = { first = \"2h\", margin = 0.5 }\n",
            "`margin` cannot be 0.5
  plan.toml:5: walltime = { first = \"2h\", margin = 0.5 }
hint: write a factor from 1 to 100, as `1.2`",
        );
    }
}
