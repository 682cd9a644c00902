//! `[metrics]`: what becomes of the lines that the ranks of a trial write.

use serde_json::json;
use toml::de::DeValue;

use crate::document::form::{LINE, word};
use crate::document::{Entry, Form, Reader, Section, Word, entries, section};

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
}

impl Metrics {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How a name is reduced.
    pub(crate) fn how(&self, name: &str) -> Reduction {
        let found = self.reduce.iter().find(|(known, _)| known == name);
        found.map_or(Reduction::Mean, |(_, how)| *how)
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
);

/// Names with their reductions.
const REDUCTIONS: Form<Vec<(String, Reduction)>> = Form {
    read: |reader, entry| {
        let DeValue::Table(table) = entry.item.get_ref() else {
            reader.expected(entry, "a table like `{ loss = \"mean\", samples = \"sum\" }`");
            return None;
        };
        let named =
            |entry: Entry<'_>| Some((entry.key.to_owned(), reader.word(&entry, Reduction::WORDS)?));
        Some(entries(table).into_iter().filter_map(named).collect())
    },
    schema: || json!({ "type": "object", "additionalProperties": (word::<Reduction>().schema)() }),
};

/// Reads `[metrics]`. Reductions without `sync = "mpi"` are reported.
pub(crate) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Metrics {
    let mut metrics = Metrics::default();
    let n_before = reader.n_faults();
    let written = METRICS.read(reader, Some(entry), &mut metrics);
    let needs_mpi = written.iter().rfind(|entry| entry.key != "sync");
    if let (Some(entry), false, true) = (needs_mpi, metrics.mpi, reader.n_faults() == n_before) {
        let hint = "add `sync = \"mpi\"`, or leave this out";
        reader.wrong(entry.at, "metrics are reduced over ranks only with `sync = \"mpi\"`", hint);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::{check_faults, plan};

    #[test]
    fn reductions_have_names() {
        let plan = plan(
            "[metrics]\nsync = \"mpi\"\nweight = \"n\"\nreduce = { n = \"sum\", worst = \"max\" }\n",
        );
        let expected = Metrics {
            mpi: true,
            reduce: vec![("n".into(), Reduction::Sum), ("worst".into(), Reduction::Max)],
            weight: Some("n".into()),
        };
        assert_eq!(plan.run.metrics, expected);
        assert_eq!(plan.run.metrics.how("loss"), Reduction::Mean);
        assert!(plan.run.needs_mpi());
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
