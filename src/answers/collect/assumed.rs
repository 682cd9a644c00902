//! The metric that is meant where nobody names one.

/// Words in names of metrics, and whether the greatest is best.
const KNOWN: [(&str, bool); 20] = [
    ("val_loss", false),
    ("test_loss", false),
    ("accuracy", true),
    ("acc", true),
    ("auc", true),
    ("f1", true),
    ("score", true),
    ("reward", true),
    ("bleu", true),
    ("r2", true),
    ("throughput", true),
    ("speedup", true),
    ("loss", false),
    ("error", false),
    ("err", false),
    ("rmse", false),
    ("mse", false),
    ("mae", false),
    ("perplexity", false),
    ("time", false),
];

/// Whether a metric is a sample of a GPU by hpcsweep, and not a number of the trial's program.
pub(crate) fn is_gpu_sample(name: &str) -> bool {
    name.starts_with("gpu.")
}

/// The metric of these names that is assumed, and whether the greatest is best: one that a known word is part of, else the first.
pub(crate) fn assumed<'a>(names: &[&'a str]) -> Option<(&'a str, bool)> {
    let has_word = |name: &str, word: &str| {
        let name = name.to_ascii_lowercase();
        name == word || name.split(['.', '_', '-', '/', ' ']).any(|part| part == word)
    };
    let is_own = |name: &&&str| {
        !name.ends_with(".min")
            && !name.ends_with(".max")
            && !matches!(**name, "epoch" | "step" | "rank")
            && !is_gpu_sample(name)
    };
    let of = |(word, max): &(&str, bool)| {
        let name = names.iter().filter(is_own).find(|name| has_word(name, word))?;
        Some((*name, *max))
    };
    KNOWN.iter().find_map(of).or_else(|| names.iter().find(is_own).map(|name| (*name, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_the_program_is_assumed_and_not_a_sample_of_its_gpu() {
        assert_eq!(
            assumed(&["epoch", "gpu.0.utilization", "wer", "wer.min"]),
            Some(("wer", false))
        );
        assert_eq!(assumed(&["gpu.0.utilization", "gpu.0.throttle", "gpu.energy_j"]), None);
        assert_eq!(assumed(&["loss", "test.accuracy"]), Some(("test.accuracy", true)));
    }
}
