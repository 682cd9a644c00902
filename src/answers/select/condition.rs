//! The expression of `--where`: a condition of the template engine, as `when` of a plan is, over everything that the table of
//! results has of a trial.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use anyhow::Result;
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::answers::collect::{self, FIXED, FUNCTION, Line, SNAPSHOT};
use crate::base::fault::Fault;
use crate::base::host::threads;
use crate::base::words;
use crate::plan::value::json_float;
use crate::plan::{Compiled, Params, spelled_out};
use crate::sweep::standing::Standing;
use crate::sweep::status::Status;
use crate::sweep::tree::table::Row;

/// The names of all parameters and of all metrics of a trial.
const PARAMS: &str = "params";
const METRICS: &str = "metrics";

/// The expression of `--where`, checked, with its text for messages.
pub(super) struct Condition {
    text: String,
    compiled: Compiled,
}

/// A value of a trial, as expressions see it.
enum Seen<'a> {
    /// A column, or part of one.
    Json(Value),
    /// A number, which JSON may not have.
    Number(f64),
    Params(&'a Params),
    /// What is below a dotted name.
    Table(HashMap<String, Seen<'a>>),
}

impl Serialize for Seen<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(value) => value.serialize(s),
            Self::Number(number) => number.serialize(s),
            Self::Params(params) => params.serialize(s),
            Self::Table(entries) => entries.serialize(s),
        }
    }
}

impl Condition {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn new(text: &str) -> Result<Self, Fault> {
        let compiled = Compiled::condition(text).map_err(|reason| {
            Fault::request(format!("`--where {text}` is not an expression: {reason}"))
                .hint("write a condition, as in `lr > 0.1 and state == \"failed\"`")
        })?;
        Ok(Self { text: text.to_owned(), compiled })
    }

    /// Whether it uses a column that depends on how a trial stands.
    pub(super) fn asks_for_states(&self) -> bool {
        let heads = self.compiled.heads();
        heads.iter().any(|head| FIXED[3..].contains(&head.as_str()))
    }

    /// Those of the trials of each sweep for which it holds.
    ///
    /// # Errors
    /// When it uses a name that no trial has, or fails for a trial that has all names.
    pub(super) fn narrow(
        &self,
        sweeps: &[Status],
        all: Vec<BTreeSet<u64>>,
    ) -> Result<Vec<BTreeSet<u64>>> {
        let rows = || sweeps.iter().flat_map(|status| &status.rows);
        let params = rows().flat_map(|row| row.params.names.iter().map(|name| &**name));
        if let Some(name) = spelled_out(&self.text, params) {
            return Err(calculates(name, PARAMS).into());
        }
        let unknown = self.unknown(sweeps);
        // Whatever others have logged, the only value of a trial is its least.
        let with_metrics = (!unknown.is_empty()).then_some(0);
        let metrics_seen = Mutex::new(BTreeSet::new());
        let mut narrowed = Vec::with_capacity(all.len());
        for (status, trials) in sweeps.iter().zip(all) {
            let holds = |(row, standing): (&Row, &Standing)| -> Result<Option<u64>> {
                let line = collect::of_trial(status, (row, standing), with_metrics)?;
                if !unknown.is_empty() {
                    note(&line, &metrics_seen);
                }
                let holds = self.holds(status, row, &line)?;
                Ok(holds.then_some(row.id))
            };
            let rows = status.rows.par_iter().zip(&status.standings);
            let matches: Vec<Result<Option<u64>>> = threads::in_parallel(|| {
                rows.filter(|(row, _)| trials.contains(&row.id)).map(holds).collect()
            });
            // In the order of trials: of several faults the first one is reported.
            let matching: Result<Vec<Option<u64>>> = matches.into_iter().collect();
            narrowed.push(matching?.into_iter().flatten().collect());
        }
        let metrics_seen = metrics_seen.into_inner().unwrap_or_default();
        let is_seen = |name: &&String| {
            metrics_seen.iter().any(|metric: &String| {
                metric
                    .strip_prefix(name.as_str())
                    .is_some_and(|r| r.is_empty() || r.starts_with('.'))
            })
        };
        let mut missing = unknown.iter().filter(|name| *name != METRICS && !is_seen(name));
        if let Some(name) = spelled_out(&self.text, metrics_seen.iter().map(String::as_str)) {
            return Err(calculates(name, METRICS).into());
        }
        match missing.next().filter(|_| !self.compiled.uses.may_lack) {
            Some(name) => Err(no_name(name, sweeps, &metrics_seen).into()),
            None => Ok(narrowed),
        }
    }

    /// The first parts of names that are neither columns nor parameters: metrics, if anything.
    fn unknown(&self, sweeps: &[Status]) -> Vec<String> {
        let mut unknown_heads: Vec<String> = self.compiled.heads().to_vec();
        let namespaces = [PARAMS, FUNCTION, SNAPSHOT];
        unknown_heads
            .retain(|head| !namespaces.contains(&&**head) && !FIXED.contains(&head.as_str()));
        for row in sweeps.iter().flat_map(|status| &status.rows) {
            if unknown_heads.is_empty() {
                break;
            }
            unknown_heads
                .retain(|head| row.params.get(head).is_none() && row.params.table(head).is_none());
        }
        unknown_heads
    }

    /// Whether it holds for a trial. A trial that lacks a value which is needed is not meant.
    fn holds(&self, status: &Status, row: &Row, line: &Line) -> Result<bool, Fault> {
        let mut lacks = false;
        let holds = self.compiled.holds(|head| {
            let value = self.value(status, row, line, head);
            lacks |= value.is_none();
            value
        });
        match holds {
            Ok(true) => self.refuse_bare(row.id, |head| self.value(status, row, line, head)),
            Ok(false) => Ok(false),
            Err(_) if lacks || self.is_about_parts() => Ok(false),
            Err(reason) => Err(Fault::request(format!(
                "`--where {}` fails for trial {}: {reason}",
                self.text, row.id
            ))
            .hint("compare numbers with numbers, and texts with texts in quotes")),
        }
    }

    /// Whether a trial is meant for which the expression holds. A name alone holds for any number but 0: that is a slip, of
    /// which `cancel` would make much.
    ///
    /// # Errors
    /// When it is a name alone, whose value is no flag.
    fn refuse_bare<'a>(
        &self,
        trial: u64,
        of: impl FnOnce(&str) -> Option<Seen<'a>>,
    ) -> Result<bool, Fault> {
        let name = self.text.trim();
        let mut parts = name.split('.');
        let is_name = self.compiled.uses.names.contains(name);
        let head = parts.next().filter(|_| is_name).and_then(of);
        let json = head.and_then(|value| serde_json::to_value(value).ok());
        let value = match parts.try_fold(json.unwrap_or_default(), |v, part| v.get(part).cloned()) {
            None | Some(Value::Null | Value::Bool(_)) => return Ok(true),
            Some(value) => words::short(&value.to_string(), 40),
        };
        let sentence =
            format!("`--where {name}` compares nothing: `{name}` is {value} in trial {trial}");
        Err(Fault::request(sentence).hint(format!("write a condition, as in `{name} == {value}`")))
    }

    /// Whether it looks into tables, which may lack a part.
    fn is_about_parts(&self) -> bool {
        self.compiled.uses.names.iter().any(|name| name.contains('.'))
            || self.compiled.heads().iter().any(|head| head == PARAMS || head == METRICS)
    }

    /// The value of the first part of a name: a column, a parameter, or metrics.
    fn value<'a>(
        &self,
        status: &Status,
        row: &'a Row,
        line: &Line,
        head: &str,
    ) -> Option<Seen<'a>> {
        if let Some(column) = FIXED.iter().position(|name| *name == head) {
            return line.fixed.get(column).filter(|v| !v.is_null()).cloned().map(Seen::Json);
        }
        match head {
            FUNCTION => return status.function(row.id).map(|name| Seen::Json(name.into())),
            PARAMS => return Some(Seen::Params(&row.params)),
            METRICS => {
                let metrics =
                    line.metrics.iter().map(|(name, value)| (name.clone(), number(value)));
                return Some(Seen::Table(metrics.collect()));
            }
            _ => {}
        }
        if let Some(value) = row.params.get(head) {
            return Some(Seen::Json(value.to_json()));
        }
        if let Some(table) = row.params.table(head) {
            return serde_json::to_value(table).ok().map(Seen::Json);
        }
        if head == SNAPSHOT {
            let name = status.records.get(&row.id).and_then(collect::snapshot);
            return name.map(|name| Seen::Json(name.into()));
        }
        let uses_parts = self
            .compiled
            .uses
            .names
            .iter()
            .any(|name| name.strip_prefix(head).is_some_and(|rest| rest.starts_with('.')));
        if !uses_parts {
            let metric = line.metrics.iter().find(|(name, _)| name == head);
            return metric.map(|(_, value)| number(value));
        }
        let parts: HashMap<String, Seen<'_>> = line
            .metrics
            .iter()
            .filter_map(|(name, value)| {
                let subkey = name.strip_prefix(head)?.strip_prefix('.')?;
                Some((subkey.to_owned(), number(value)))
            })
            .collect();
        (!parts.is_empty()).then_some(Seen::Table(parts))
    }
}

/// A metric: a number may be written as a text that JSON has for it.
fn number<'a>(value: &Value) -> Seen<'a> {
    match json_float(value) {
        Some(number) if value.is_string() => Seen::Number(number),
        _ => Seen::Json(value.clone()),
    }
}

/// Takes note of the metrics of a trial.
fn note(line: &Line, seen: &Mutex<BTreeSet<String>>) {
    let Ok(mut seen) = seen.lock() else { return };
    for (name, _) in &line.metrics {
        if !seen.contains(name) {
            seen.insert(name.clone());
        }
    }
}

fn calculates(name: &str, of: &str) -> Fault {
    let fault = Fault::request(format!("`{name}` is a name, and an expression calculates with it"));
    fault.hint(format!("write `{of}[\"{name}\"]`"))
}

fn no_name(name: &str, sweeps: &[Status], metrics: &BTreeSet<String>) -> Fault {
    let mut names: BTreeSet<&str> = FIXED.into_iter().collect();
    names.extend(metrics.iter().map(String::as_str));
    for row in sweeps.iter().flat_map(|status| &status.rows) {
        names.extend(row.params.names.iter().map(|name| &**name));
    }
    let fault = Fault::request(format!("no trial has a parameter, a metric or a column `{name}`"));
    let names: Vec<&str> = names.into_iter().collect();
    fault.hint(words::suggestion(name, &names, "there are"))
}
