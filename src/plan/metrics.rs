//! `[metrics]`: what becomes of the lines that the ranks of a trial write.

use toml::de::DeValue;

use super::reader::{Entry, Reader, entries};

/// How the values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reduction {
    /// The mean, weighted where the plan names a weight.
    Mean,
    /// The sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The variance of the population, weighted likewise.
    Variance,
}

/// `[metrics]`.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Metrics {
    /// `sync = "mpi"`: the ranks' lines are reduced over MPI while the programs run, and a program may
    /// ask for a sync itself. Otherwise each rank's lines are kept with its number.
    pub mpi: bool,
    /// How the values of a name are reduced; the mean where nothing is said.
    pub reduce: Vec<(String, Reduction)>,
    /// The name whose value weighs a rank's line.
    pub weight: Option<String>,
}

impl Metrics {
    /// Whether nothing was said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How a name is reduced.
    pub fn how(&self, name: &str) -> Reduction {
        let found = self.reduce.iter().find(|(known, _)| known == name);
        found.map_or(Reduction::Mean, |(_, how)| *how)
    }
}

const HOWS: [(&str, Reduction); 5] = [
    ("mean", Reduction::Mean),
    ("sum", Reduction::Sum),
    ("min", Reduction::Min),
    ("max", Reduction::Max),
    ("variance", Reduction::Variance),
];

/// Reads `[metrics]`.
pub(super) fn read(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Metrics {
    let mut metrics = Metrics::default();
    let Some(table) = reader.table(entry) else { return metrics };
    let mut needs_mpi = None;
    for entry in entries(table) {
        match entry.key {
            "sync" => {
                let words = [("ranks", false), ("mpi", true)];
                metrics.mpi = reader.word(&entry, &words).unwrap_or(true);
            }
            "reduce" => {
                needs_mpi = Some(entry.at);
                read_reduce(reader, &entry, &mut metrics);
            }
            "weight" => {
                needs_mpi = Some(entry.at);
                metrics.weight = reader.line_of_text(&entry).map(str::to_owned);
            }
            _ => reader.unknown(&entry, "`[metrics]`", &["sync", "reduce", "weight"]),
        }
    }
    if let (Some(at), false) = (needs_mpi, metrics.mpi) {
        let hint = "add `sync = \"mpi\"`, or leave this out";
        reader.wrong(at, "metrics are reduced over ranks only with `sync = \"mpi\"`", hint);
    }
    metrics
}

fn read_reduce(reader: &mut Reader<'_>, entry: &Entry<'_>, metrics: &mut Metrics) {
    if let DeValue::Table(table) = entry.item.get_ref() {
        for entry in entries(table) {
            if let Some(how) = reader.word(&entry, &HOWS) {
                metrics.reduce.push((entry.key.to_owned(), how));
            }
        }
    } else {
        reader.expected(entry, "a table like `{ loss = \"mean\", samples = \"sum\" }`");
    }
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
