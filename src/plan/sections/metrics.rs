//! `[metrics]`: where the metrics of a trial are, and what becomes of the lines that its ranks write.

use regex::Regex;
use serde_json::json;
use toml::de::DeValue;

use crate::base::words;
use crate::plan::document::form::{LINE, TEXTS, word};
use crate::plan::document::{Entry, Form, Reader, Section, Word, entries, find, section};
use crate::plan::templates::places::Places;

/// How the values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reduction {
    /// The mean, weighted where the plan names a weight.
    Mean,
    Sum,
    /// The smallest value of any rank.
    Min,
    /// The largest value of any rank.
    Max,
    /// The variance of the population, weighted likewise.
    Variance,
}

/// `[metrics]`: whether the ranks' metric lines become one, and how.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Metrics {
    /// `sync = "mpi"`: the ranks' lines are reduced over MPI while the programs run, and a program may
    /// ask for a sync itself. Otherwise each rank's lines are kept with its number.
    pub(crate) mpi: bool,
    /// How the values of a name are reduced; the mean by default.
    pub(crate) reduce: Vec<(String, Reduction)>,
    /// The name whose value weighs a rank's line.
    pub(crate) weight: Option<String>,
    /// Regular expressions over the lines that a program prints; their named groups are metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) output: Vec<String>,
    /// Paths of files with metrics; they may hold Tera expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) file: Vec<String>,
    /// The least and the greatest possible value of a name. Readers of results take them from the plan; no trial depends on them.
    #[serde(skip)]
    pub(crate) bounds: Vec<(String, [f64; 2])>,
}

impl Metrics {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self { bounds: self.bounds.clone(), ..Self::default() }
    }

    /// How a name is reduced.
    pub(crate) fn how(&self, name: &str) -> Reduction {
        let reduction = self.reduce.iter().find(|(known, _)| known == name);
        reduction.map_or(Reduction::Mean, |(_, how)| *how)
    }
}

impl Word for Reduction {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("mean", Self::Mean),
        ("sum", Self::Sum),
        ("min", Self::Min),
        ("max", Self::Max),
        ("variance", Self::Variance),
    ];
}

/// Whether ranks sync over MPI.
impl Word for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("ranks", false), ("mpi", true)];
}

/// The keys of `[metrics]`.
pub(crate) static METRICS: Section<Metrics> = section!("`[metrics]`", Metrics:
    "sync" => mpi: word::<bool>(), "`\"ranks\"`",
        "`\"mpi\"`: reduce the lines, and let programs ask for syncs ([Python](python.md), [any language](sync-protocol.md))";
    "reduce" => reduce: REDUCTIONS, "mean",
        "how a name is reduced: `mean`, `sum`, `min`, `max`, `variance`";
    "weight" => weight: LINE, "none",
        "the name that weighs means and variances: the number of samples behind a line";
    "output" => output: OUTPUT, "none",
        "what to search in the lines that a program prints: a [regular expression](#printed) with a named group for each metric, such as `'acc: (?<acc>[0-9.]+)'`, or a list of them";
    "file" => file: FILE, "none",
        "the path of a file with metrics [that a program leaves](#left), such as `\"{{ trial.work_dir }}/results.json\"`, or a list of them";
    "bounds" => bounds: BOUNDS, "by its name",
        "the least and the greatest possible value of a name, such as `{ accuracy = [0, 1], cost = [0, inf] }`: [intervals](answers.md#bounds) stay within them";
);

/// Names with their reductions.
const REDUCTIONS: Form<Vec<(String, Reduction)>> = Form {
    read: |reader, entry| {
        let DeValue::Table(table) = entry.item.get_ref() else {
            reader.expected(entry, "a table like `{ loss = \"mean\", samples = \"sum\" }`");
            return None;
        };
        Some(
            entries(table)
                .into_iter()
                .filter_map(|entry| {
                    Some((entry.key.to_owned(), reader.word(&entry, Reduction::WORDS)?))
                })
                .collect(),
        )
    },
    schema: || json!({ "type": "object", "additionalProperties": (word::<Reduction>().schema)() }),
};

/// Regular expressions that name metrics.
const OUTPUT: Form<Vec<String>> = Form {
    read: |reader, entry| {
        let texts = texts(reader, entry)?;
        for (text, at) in &texts {
            if let Some(sentence) = fault_of(text) {
                let hint = "write a group for each metric, in single quotes: `output = 'acc: (?<acc>[0-9.]+)'`";
                reader.wrong(*at, sentence, hint);
            }
        }
        Some(texts.into_iter().map(|(text, _)| text).collect())
    },
    schema: text_or_texts,
};

/// Paths, whose expressions are checked against the trials elsewhere.
const FILE: Form<Vec<String>> = Form {
    read: |reader, entry| Some(texts(reader, entry)?.into_iter().map(|(text, _)| text).collect()),
    schema: text_or_texts,
};

fn text_or_texts() -> serde_json::Value {
    json!({ "anyOf": [{ "type": "string" }, (TEXTS.schema)()] })
}

/// A text, or a list of them, with their places.
fn texts(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<Vec<(String, usize)>> {
    if let DeValue::String(text) = entry.item.get_ref() {
        return Some(vec![(text.to_string(), entry.at)]);
    }
    let texts = (TEXTS.read)(reader, entry)?;
    let items = reader.list(entry, "a string or a list of strings")?;
    Some(texts.into_iter().zip(items.iter().map(|item| item.span().start)).collect())
}

/// Why a text is no pattern of metrics.
fn fault_of(text: &str) -> Option<String> {
    let shown = words::short(text, 60);
    match Regex::new(text) {
        Err(error) => {
            // The last line of several says what is wrong.
            let error = error.to_string();
            let line = error.lines().last().unwrap_or_default();
            let why = line.trim_start_matches("error: ");
            Some(format!("`{shown}` is not a regular expression: {why}"))
        }
        Ok(pattern) if pattern.capture_names().flatten().next().is_none() => {
            Some(format!("`{shown}` names no metric: it has no named group"))
        }
        Ok(_) => None,
    }
}

/// Names with their bounds.
const BOUNDS: Form<Vec<(String, [f64; 2])>> = Form {
    read: |reader, entry| {
        let DeValue::Table(table) = entry.item.get_ref() else {
            reader.expected(entry, "a table like `{ accuracy = [0, 1] }`");
            return None;
        };
        let number = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => None,
        };
        let named = |entry: Entry<'_>| {
            let ends = match entry.item.get_ref() {
                DeValue::Array(ends) => match &ends[..] {
                    [least, most] => number(least.get_ref()).zip(number(most.get_ref())),
                    _ => None,
                },
                _ => None,
            };
            if ends.is_none_or(|(least, most)| least.is_nan() || most.is_nan() || least >= most) {
                let sentence =
                    format!("the bounds of `{}` are no two numbers in ascending order", entry.key);
                let hint = "write the least and the greatest value, like `[0, 1]` or `[0, inf]`";
                reader.wrong(entry.at, sentence, hint);
            }
            Some((entry.key.to_owned(), ends.map(<[f64; 2]>::from)?))
        };
        Some(entries(table).into_iter().filter_map(named).collect())
    },
    schema: || {
        let ends =
            json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
        json!({ "type": "object", "additionalProperties": ends })
    },
};

/// Reads `[metrics]` of a plan with or without a command. Reductions without `sync = "mpi"` are reported.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry<'_>,
    has_command: bool,
    places: &mut Places,
) -> Metrics {
    let mut metrics = Metrics::default();
    let n_before = reader.n_faults();
    let written = METRICS.read(reader, Some(entry), &mut metrics);
    let needs_mpi =
        written.iter().rfind(|entry| !matches!(entry.key, "sync" | "bounds" | "output" | "file"));
    if let (Some(entry), false, true) = (needs_mpi, metrics.mpi, reader.n_faults() == n_before) {
        let hint = "add `sync = \"mpi\"`, or leave this out";
        reader.wrong(entry.at, "metrics are reduced over ranks only with `sync = \"mpi\"`", hint);
    }
    if let Some(entry) = find(&written, "file") {
        places.file = match entry.item.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| item.span().start).collect(),
            _ => vec![entry.at],
        };
    }
    let of_commands = ["output", "file"].into_iter().filter_map(|key| find(&written, key));
    for entry in of_commands.filter(|_| !has_command) {
        let sentence = format!("`{}` is for a command, and the plan has none", entry.key);
        let hint = "remove it: a function returns its result, and `[train]` reports its metrics";
        reader.wrong(entry.at, sentence, hint);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{check_faults, check_plan_faults, plan};

    #[test]
    fn reductions_have_names() {
        let plan = plan(
            "[metrics]\nsync = \"mpi\"\nweight = \"n\"\nreduce = { n = \"sum\", worst = \"max\" }\n",
        );
        let expected = Metrics {
            mpi: true,
            reduce: vec![("n".into(), Reduction::Sum), ("worst".into(), Reduction::Max)],
            weight: Some("n".into()),
            ..Metrics::default()
        };
        assert_eq!(plan.run.metrics, expected);
        assert_eq!(plan.run.metrics.how("loss"), Reduction::Mean);
        assert!(plan.run.needs_mpi());
    }

    #[test]
    fn bounds_need_no_reduction_and_reach_no_trial() {
        let plan = plan("[metrics]\nbounds = { \"val/acc\" = [0, 1], cost = [0.5, inf] }\n");
        let bounds = vec![("val/acc".into(), [0.0, 1.0]), ("cost".into(), [0.5, f64::INFINITY])];
        assert_eq!(plan.run.metrics.bounds, bounds);
        assert!(plan.run.metrics.is_default() && !plan.run.needs_mpi());
        check_faults(
            "[metrics]\nbounds = { acc = [1, 0], b = [0] }\n",
            "the bounds of `acc` are no two numbers in ascending order
  plan.toml:5: bounds = { acc = [1, 0], b = [0] }
hint: write the least and the greatest value, like `[0, 1]` or `[0, inf]`
error: the bounds of `b` are no two numbers in ascending order
  plan.toml:5: bounds = { acc = [1, 0], b = [0] }
hint: write the least and the greatest value, like `[0, 1]` or `[0, inf]`",
        );
    }

    #[test]
    fn patterns_are_read_and_wrong_ones_are_refused_with_their_place() {
        let one = plan(r"metrics.output = 'acc: (?<acc>\S+)'");
        assert_eq!(one.run.metrics.output, [r"acc: (?<acc>\S+)"]);
        let two = plan(r"metrics.output = ['acc: (?P<acc>\S+)', '(?<val.loss>.)']");
        assert_eq!(two.run.metrics.output.len(), 2);
        let hint = "hint: write a group for each metric, in single quotes: `output = 'acc: (?<acc>[0-9.]+)'`";
        check_faults(
            "[metrics]\noutput = [\n'acc: (?<acc>.)',\n'loss: (.)',\n'a(?<b>']",
            &format!(
                "`loss: (.)` names no metric: it has no named group
  plan.toml:7: 'loss: (.)',
{hint}
error: `a(?<b>` is not a regular expression: unclosed group
  plan.toml:8: 'a(?<b>']
{hint}"
            ),
        );
        check_faults(
            "metrics.output = 'x'",
            &format!(
                "`x` names no metric: it has no named group
  plan.toml:4: metrics.output = 'x'
{hint}"
            ),
        );
        check_plan_faults(
            "version = 1\nsweep.name = \"s\"\nrun.function = \"f\"\nmetrics.output = '(?<x>.)'",
            "`output` is for a command, and the plan has none
  plan.toml:4: metrics.output = '(?<x>.)'
hint: remove it: a function returns its result, and `[train]` reports its metrics",
        );
    }

    #[test]
    fn files_hold_expressions_that_are_checked_against_the_trials() {
        let one = plan("metrics.file = '{{ trial.work_dir }}/r-{{ x }}.json'\n[grid]\nx = [1]");
        assert_eq!(one.run.metrics.file, ["{{ trial.work_dir }}/r-{{ x }}.json"]);
        check_faults(
            "[metrics]\nfile = ['a',\n'{{ y }}']\n[grid]\nx = [1]",
            "`file[1]`: `y` is not a name of this plan
  plan.toml:6: '{{ y }}']
hint: known names: `params`, `sweep`, `trial` and `x`",
        );
        check_faults(
            "metrics.file = 1",
            "`file` must be a list of strings, not an integer
  plan.toml:4: metrics.file = 1",
        );
    }

    #[test]
    fn slips_are_named() {
        check_faults(
            "[metrics]\nsync = \"mpl\"\nreduce.a = \"avg\"\nwight = \"n\"\n",
            "`sync` has no setting `mpl`
  plan.toml:5: sync = \"mpl\"
hint: did you mean `mpi`?
error: `a` has no setting `avg`
  plan.toml:6: reduce.a = \"avg\"
hint: write one of `mean`, `sum`, `min`, `max` and `variance`
error: `[metrics]` has no key `wight`
  plan.toml:7: wight = \"n\"
hint: did you mean `weight`?",
        );
    }
}
