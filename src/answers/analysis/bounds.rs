//! The bounds of a metric: as the plan says, or as its name does.

use crate::answers::collect::Table;
use crate::base::stats::{Bounds, Interval};
use crate::base::words;

/// Words in the names of metrics from 0 to 1.
const PARTS: [&str; 17] = [
    "acc",
    "accuracy",
    "ap",
    "auc",
    "auprc",
    "auroc",
    "dice",
    "f1",
    "iou",
    "jaccard",
    "map",
    "precision",
    "recall",
    "sensitivity",
    "specificity",
    "top1",
    "top5",
];

/// Words in the names of metrics that are never below 0, beside those of times.
const POSITIVE: [&str; 14] = [
    "cer",
    "err",
    "error",
    "latency",
    "loss",
    "mae",
    "mape",
    "memory",
    "mse",
    "perplexity",
    "ppl",
    "rmse",
    "wer",
    "energy",
];

/// Words in the names of times.
const TIMES: [&str; 11] = [
    "s", "sec", "secs", "second", "seconds", "ms", "time", "walltime", "duration", "runtime",
    "hours",
];

/// The bounds of a metric, and where they are from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bounded {
    bounds: Bounds,
    /// Whether they are assumed, by its name.
    is_assumed: bool,
}

impl Bounded {
    /// Of the metric in a column: those of `[metrics] bounds` in the plan, or those that its name says, if the numbers of all trials that are
    /// done lie within them. `None` where nothing bounds it.
    pub(crate) fn for_metric(table: &Table, metric: usize) -> Option<Self> {
        let name = &table.columns[metric];
        // What is derived from a metric by its ends has its bounds.
        let base = [".min", ".max"].iter().find_map(|end| name.strip_suffix(end));
        let written = |source: &crate::answers::collect::Source| {
            let bounds_of = |name: &str| source.bounds.iter().find(|(own, _)| own == name);
            bounds_of(name).or_else(|| bounds_of(base?)).map(|(_, bounds)| Bounds(*bounds))
        };
        let (bounds, is_assumed) = match table.sources.iter().find_map(written) {
            Some(bounds) => (bounds, false),
            None => (Bounds(assumed(name)?), true),
        };
        let done = table.rows.iter().filter(|row| table.state(row) == "done");
        let mut values = done.filter_map(|row| table.cell(row, metric).number());
        let is_one = bounds.0.iter().any(|bound| bound.is_finite());
        (is_one && values.all(|value| value.is_nan() || bounds.hold(value)))
            .then_some(Self { bounds, is_assumed })
    }

    /// An interval of a value within the bounds.
    pub(crate) fn keep(
        bounded: Option<Self>,
        value: f64,
        ends: Option<Interval>,
    ) -> Option<Interval> {
        ends.map(|ends| bounded.map_or(ends, |bounded| bounded.bounds.keep(value, ends)))
    }

    /// Its bounds for JSON; `None` on a side without one.
    pub(crate) fn ends(self) -> [Option<f64>; 2] {
        self.bounds.0.map(|end| Some(end).filter(|end| end.is_finite()))
    }

    /// What intervals of a metric of this name claim by it, in words.
    pub(crate) fn words(self, name: &str) -> String {
        let figure = |end: f64| words::figures(end, 6);
        let (where_, how) = match self.ends() {
            [Some(least), Some(most)] => {
                (format!("between {} and {}", figure(least), figure(most)), "logit")
            }
            [Some(least), None] => (format!("above {}", figure(least)), "logarithm"),
            [None, Some(most)] => (format!("below {}", figure(most)), "logarithm"),
            [None, None] => return String::new(),
        };
        let reason = match self.is_assumed {
            true => {
                format!("as the name `{name}` says; `[metrics] bounds` in the plan says otherwise")
            }
            false => format!("as `[metrics] bounds` says of `{name}`"),
        };
        format!("intervals stay {where_} by the {how}, {reason}")
    }
}

/// The words of a name.
fn parts(name: &str) -> Vec<String> {
    let words = name.split(['.', '_', '-', '/', ' ', '@', ':']);
    words.map(str::to_ascii_lowercase).collect()
}

/// Whether a metric is a time, by its name.
pub(crate) fn is_time(name: &str) -> bool {
    let parts = parts(name);
    // A number of something in each second is none.
    !parts.iter().any(|part| part == "per")
        && parts.iter().any(|part| TIMES.contains(&part.as_str()))
}

/// The bounds that a name says.
fn assumed(name: &str) -> Option<[f64; 2]> {
    let parts = parts(name);
    let has_any = |known: &[&str]| parts.iter().any(|part| known.contains(&part.as_str()));
    match (has_any(&PARTS), has_any(&POSITIVE) || is_time(name)) {
        (true, _) => Some([0.0, 1.0]),
        (false, true) => Some([0.0, f64::INFINITY]),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_bounds() {
        for name in ["acc", "val_accuracy", "test/f1", "top-5.Recall", "accuracy.max", "mAP@0.5"] {
            assert_eq!(assumed(name), Some([0.0, 1.0]), "{name}");
        }
        for name in ["loss", "train.loss", "duration_s", "epoch_time", "rmse", "step-time.min"] {
            assert_eq!(assumed(name), Some([0.0, f64::INFINITY]), "{name}");
        }
        for name in
            ["reward", "samples_per_s", "score", "times", "r2", "closs", "images_per_second"]
        {
            assert_eq!(assumed(name), None, "{name}");
        }
    }

    #[test]
    fn words_say_where_bounds_are_from() {
        let bounded = |ends, is_assumed| Bounded { bounds: Bounds(ends), is_assumed };
        for (bounded, words) in [
            (
                bounded([0.0, 1.0], true),
                "intervals stay between 0 and 1 by the logit, as the name `acc` says; `[metrics] bounds` in the plan says otherwise",
            ),
            (
                bounded([0.0, f64::INFINITY], false),
                "intervals stay above 0 by the logarithm, as `[metrics] bounds` says of `acc`",
            ),
        ] {
            assert_eq!(bounded.words("acc"), words);
        }
    }
}
