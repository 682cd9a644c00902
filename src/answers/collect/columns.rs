//! The data dictionary: what each column of an answer means, its unit and where its values come from.

use std::collections::HashSet;

use super::{FUNCTION, SNAPSHOT, statistics};

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whatever programs and plans have written: the values decide.
    Any,
    /// Flags, `true` or `false`.
    Bool,
    /// Whole numbers without a unit.
    Int,
    /// Numbers without a unit, in 64 bit.
    Float,
    /// Texts of any kind, such as hosts and reasons.
    Text,
    /// One of a few words.
    Word,
    /// A duration, in seconds.
    Seconds,
    /// A time, in seconds since 1970, UTC.
    Time,
    /// An amount of memory or data, in bytes.
    Bytes,
}

impl Kind {
    /// The unit of its values.
    fn unit(self) -> Option<&'static str> {
        match self {
            Self::Seconds => Some("s"),
            Self::Bytes => Some("byte"),
            _ => None,
        }
    }
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// The name in the answer's head.
    pub(crate) name: String,
    /// What its values are.
    pub(crate) kind: Kind,
    /// The unit of its numbers, where they have one that is known.
    pub(crate) unit: Option<&'static str>,
    /// Where the values come from: the plan, the parameters, the records, the metrics.
    pub(crate) source: &'static str,
    /// What a value means, in a few words for the data dictionary.
    pub(crate) meaning: String,
}

impl Column {
    /// A column of which nothing is known but its name.
    pub(super) fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: Kind::Any,
            unit: None,
            source: PARAMETER,
            meaning: "parameter or metric of trials that are not meant".to_owned(),
        }
    }
}

/// A line of a dictionary: name, kind, unit unless it is that of the kind, source, meaning.
pub(super) type Entry = (&'static str, Kind, Option<&'static str>, &'static str, &'static str);

const PLAN: &str = "plan";
const PARAMETER: &str = "parameter";
const METRIC: &str = "metric";
pub(super) const RECORD: &str = "record";
const STATUS: &str = "record, scheduler";

/// The columns that tables of trials have before parameters and metrics.
const TRIALS: [Entry; 18] = [
    ("sweep", Kind::Word, None, PLAN, "name of the sweep"),
    ("trial", Kind::Int, None, PLAN, "number of the trial in its sweep, from 0"),
    ("task_id", Kind::Any, None, PLAN, "name of the trial's chain"),
    ("link", Kind::Int, None, PLAN, "place of the trial in its chain, from 0"),
    (
        "state",
        Kind::Word,
        None,
        STATUS,
        "how the trial stands: docs/results-tree.md lists the states",
    ),
    (
        "cause",
        Kind::Word,
        None,
        STATUS,
        "why it ended without success: docs/causes.md lists the causes",
    ),
    (
        "exit_code",
        Kind::Int,
        None,
        RECORD,
        "exit code of the attempt that counts; 128 + signal if a signal ended it",
    ),
    ("attempts", Kind::Int, None, RECORD, "attempts that have begun"),
    (
        "duration_s",
        Kind::Seconds,
        None,
        RECORD,
        "time of all attempts of the learning curve together",
    ),
    ("last_duration_s", Kind::Seconds, None, RECORD, "time of the attempt that counts"),
    ("host", Kind::Text, None, RECORD, "host of rank 0 of the attempt that counts"),
    (
        "peak_memory",
        Kind::Bytes,
        None,
        RECORD,
        "peak memory of all processes of the attempt that counts, on all nodes",
    ),
    ("cpu_s", Kind::Seconds, None, RECORD, "processor time of the attempt that counts"),
    (
        "read_bytes",
        Kind::Bytes,
        None,
        RECORD,
        "bytes that the attempt that counts read from storage",
    ),
    (
        "written_bytes",
        Kind::Bytes,
        None,
        RECORD,
        "bytes that the attempt that counts wrote to storage",
    ),
    ("job", Kind::Text, None, RECORD, "the scheduler's job of the attempt that counts"),
    (SNAPSHOT, Kind::Text, None, RECORD, "code snapshot of the attempt that counts"),
    (FUNCTION, Kind::Text, None, PLAN, "function that the trial calls"),
];

/// Columns by their entries in a dictionary, in the order of the names; a name without an entry is left out.
pub(super) fn of_entries<'a>(
    entries: &[Entry],
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<Column> {
    let column = |name: &str| {
        let (_, kind, unit, source, meaning) = entries.iter().find(|entry| entry.0 == name)?;
        Some(Column {
            name: name.to_owned(),
            kind: *kind,
            unit: unit.or(kind.unit()),
            source,
            meaning: (*meaning).to_owned(),
        })
    };
    names.into_iter().filter_map(column).collect()
}

/// The columns of a table of trials, of which the first parameter and the first metric are known.
pub(super) fn of_trials(names: &[String], parameter: usize, metric: usize) -> Vec<Column> {
    let mut all = of_entries(&TRIALS, names[..parameter].iter().map(String::as_str));
    all.extend(names[parameter..metric].iter().map(|name| Column {
        name: name.clone(),
        kind: Kind::Any,
        unit: None,
        source: PARAMETER,
        meaning: format!("parameter `{}`", name.strip_prefix("param.").unwrap_or(name)),
    }));
    let metrics = &names[metric..];
    let known: HashSet<&str> = metrics.iter().map(String::as_str).collect();
    all.extend(metrics.iter().map(|name| {
        let of = |end: &str| name.strip_suffix(end).filter(|of| known.contains(of));
        let meaning = match (of(".min"), of(".max")) {
            (Some(of), _) => format!("least value of `{of}` over all steps"),
            (_, Some(of)) => format!("greatest value of `{of}` over all steps"),
            _ => statistics::meaning(name, |of| known.contains(of)).unwrap_or_else(|| {
                let own = name.strip_prefix("metric.").unwrap_or(name);
                format!("last value of `{own}`, or its value in the result")
            }),
        };
        metric_column(name, meaning)
    }));
    all
}

/// The columns of learning curves, of which the first metric is known.
pub(super) fn of_steps(names: &[String], metric: usize) -> Vec<Column> {
    let mut all = of_entries(&TRIALS, names[..metric].iter().map(String::as_str));
    all.extend(names[metric..].iter().map(|name| {
        let own = name.strip_prefix("metric.").unwrap_or(name);
        metric_column(name, format!("value of `{own}` in the line of metrics"))
    }));
    all
}

fn metric_column(name: &str, meaning: String) -> Column {
    Column { name: name.to_owned(), kind: Kind::Any, unit: None, source: METRIC, meaning }
}

#[cfg(test)]
mod tests {
    use super::super::FIXED;
    use super::*;

    #[test]
    fn every_column_that_all_tables_have_is_explained() {
        let all = of_entries(&TRIALS, FIXED);
        assert_eq!(all.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), FIXED);
        assert!(all.iter().all(|column| !column.meaning.is_empty()));
    }

    #[test]
    fn least_and_greatest_values_are_told_from_metrics_of_that_name() {
        let names = ["trial", "lr", "loss", "loss.min", "a.max"].map(str::to_owned);
        let meanings: Vec<String> =
            of_trials(&names, 1, 2).into_iter().map(|column| column.meaning).collect();
        assert_eq!(
            meanings,
            [
                "number of the trial in its sweep, from 0",
                "parameter `lr`",
                "last value of `loss`, or its value in the result",
                "least value of `loss` over all steps",
                "last value of `a.max`, or its value in the result",
            ]
        );
    }
}
