//! Which setting is best by a metric, and which cannot be told from it.

use serde::Serialize;

use super::bounds::Bounded;
use super::settings::{Left, Observed, Settings};
use crate::answers::collect::{Goal, Table};
use crate::base::stats::{self, Interval};
use crate::base::words;

/// What of a sample decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Statistic {
    /// The arithmetic mean
    Mean,
    /// The median, for heavy tails
    Median,
    /// The interquartile mean: the mean without the lowest and the highest quarter
    Iqm,
}

impl Statistic {
    /// Its value, and its 95 % interval within the bounds of the metric.
    pub(crate) fn estimate(
        self,
        sample: &[f64],
        bounds: Option<Bounded>,
    ) -> (f64, Option<Interval>) {
        let within_bounds = |value, ends| (value, Bounded::keep(bounds, value, ends));
        match self {
            Self::Mean => within_bounds(stats::mean(sample), stats::of_mean(sample)),
            // The ends are numbers of the sample, or lie between two.
            Self::Median => (stats::median(sample), stats::of_median(sample)),
            Self::Iqm => within_bounds(stats::iqm(sample), stats::of_iqm(sample)),
        }
    }

    /// Its name in a table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Iqm => "iqm",
        }
    }
}

/// Where a setting stands among the others, whatever its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// It is compared with the others.
    Ranked,
    /// It has one number where others have several: that may be luck.
    Alone,
    /// Some of its trials failed or gave no number: the mean is one of those that were spared.
    Failed,
}

/// A setting with its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Ranked {
    /// Its index among the settings.
    pub(crate) setting: usize,
    /// What its trials say of the metric.
    pub(crate) observed: Observed,
    /// The statistic of its values, by which settings are ordered.
    pub(crate) value: f64,
    /// The 95 % interval of that; `None` where trials failed: of those that were spared, nothing tells how far the others are.
    pub(crate) interval: Option<Interval>,
    /// Whether it is compared.
    pub(crate) place: Place,
    /// The probability of its difference from the best one if there is none in truth, corrected for the choice of the best
    /// among all (Bonferroni, over each two); `None` for the best, and where too few numbers are known.
    pub(crate) p: Option<f64>,
}

/// The figures of a setting in words, the same wherever they are shown; empty where there is none.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    /// The statistic, such as the mean.
    pub(crate) value: String,
    /// Its interval.
    pub(crate) interval: String,
    /// The standard deviation of its numbers.
    pub(crate) sd: String,
    /// How many numbers there are.
    pub(crate) n: String,
    /// How many of its trials gave none: `3/10`.
    pub(crate) failed: String,
    /// See [`Ranked::p`].
    pub(crate) p: String,
}

impl Ranked {
    /// What is printed of it.
    pub(crate) fn figures(&self) -> Figures {
        let half = self.interval.map_or(0.0, |[low, high]| (high - low) / 2.0);
        let sd = Some(stats::sd(&self.observed.values)).filter(|sd| !sd.is_nan());
        Figures {
            value: words::within(self.value, half),
            interval: words::ends(self.interval),
            sd: sd.map_or_else(String::new, |sd| words::figures(sd, 3)),
            n: self.observed.values.len().to_string(),
            failed: self.observed.failed().unwrap_or_default(),
            p: self.p.map_or_else(String::new, |p| words::figures(p, 2)),
        }
    }

    /// Whether it cannot be told from the best.
    pub(crate) fn is_tied(&self) -> bool {
        self.p.is_some_and(|p| p >= SIGNIFICANT)
    }
}

/// The settings of a table, the best first.
#[derive(Debug)]
pub(crate) struct Ranking {
    /// Those with a number.
    pub(crate) ranked: Vec<Ranked>,
    /// How many settings have none.
    pub(crate) empty: usize,
    /// The trials of all settings without a number that counts.
    pub(crate) left: Left,
    /// Whether all comparisons were between trials that agree in what is averaged over.
    is_paired: bool,
    /// Whether some settings lack trials that others have: their means are not of the same seeds.
    pub(crate) is_uneven: bool,
    /// The bounds of the metric, within which intervals stay.
    pub(crate) bounds: Option<Bounded>,
}

/// The probability below which a setting is told from the best.
pub(super) const SIGNIFICANT: f64 = 0.05;

impl Ranking {
    /// The settings that cannot be told from the best.
    pub(crate) fn ties(&self) -> impl Iterator<Item = &Ranked> {
        self.ranked.iter().filter(|ranked| ranked.is_tied())
    }

    /// The test behind each `p`, in words.
    pub(crate) fn test(&self) -> &'static str {
        match self.is_paired {
            true => "paired t test, corrected for the choice of the best",
            false => {
                "t test, paired where trials agree in what is averaged over, corrected for the choice of the best"
            }
        }
    }
}

/// Puts settings in order by the metric in a column. A setting with trials that failed or gave no number comes after those without, by
/// the part of its trials that did, and one with a single number after those with several. Where settings lack some trials of others, such as seeds that have not run, the first is the one
/// that no other beats by the trials that both have, or else the fewest. Differences from the best are tested by Student's t
/// of pairs that agree in what is averaged over, else by Welch's.
pub(crate) fn rank(
    table: &Table,
    settings: &Settings,
    metric: usize,
    goal: Goal,
    statistic: Statistic,
) -> Ranking {
    let mut ranked: Vec<Ranked> = Vec::new();
    let (mut empty, mut left) = (0, Left::default());
    let bounds = Bounded::for_metric(table, metric);
    for (at, setting) in settings.list.iter().enumerate() {
        let observed = settings.observe(table, setting, metric);
        left.add(observed.left);
        if observed.values.is_empty() {
            empty += 1;
            continue;
        }
        let (value, interval) = statistic.estimate(&observed.values, bounds);
        let is_whole = observed.left.bad() == 0 && !value.is_nan();
        let rank_place = if is_whole { Place::Ranked } else { Place::Failed };
        let interval = interval.filter(|_| is_whole);
        ranked.push(Ranked { setting: at, observed, value, interval, place: rank_place, p: None });
    }
    let has_several = ranked.iter().any(|ranked| ranked.observed.values.len() > 1);
    for one in ranked.iter_mut().filter(|one| has_several && one.observed.values.len() == 1) {
        one.place = one.place.max(Place::Alone);
    }
    ranked.sort_by(|a, b| {
        let by_value = match goal {
            Goal::Min => a.value.total_cmp(&b.value),
            Goal::Max => b.value.total_cmp(&a.value),
        };
        let failed = |one: &Ranked| one.observed.part_failed();
        a.place.cmp(&b.place).then(failed(a).total_cmp(&failed(b))).then(by_value)
    });
    let is_uneven = raise_best(&mut ranked, goal, statistic);
    let mut is_paired = true;
    let values = ranked.iter().flat_map(|one| one.observed.values.iter().copied());
    let resolution = stats::resolution(values);
    if let Some((best, others)) = ranked.split_first_mut() {
        let mut tested: Vec<(usize, f64)> = Vec::new();
        for (at, other) in others.iter().enumerate().filter(|(_, one)| one.place == Place::Ranked) {
            let pairs = best.observed.paired_with(&other.observed);
            let test = stats::paired(&pairs, resolution).or_else(|| {
                let test = stats::welch(&best.observed.values, &other.observed.values, resolution)?;
                is_paired = false;
                Some(test)
            });
            // What is better by the trials that both have is not told from the best, whatever its other trials say.
            let p = |test: stats::Test| match better(goal, -test.difference, 0.0) {
                true => 1.0,
                false => test.p,
            };
            tested.extend(test.map(p).filter(|p| !p.is_nan()).map(|p| (at, p)));
        }
        let ps: Vec<f64> = tested.iter().map(|(_, p)| *p).collect();
        for ((at, _), p) in tested.iter().zip(stats::of_chosen(&ps, ps.len() + 1)) {
            others[*at].p = Some(p);
        }
    }
    Ranking { ranked, empty, left, is_paired, is_uneven, bounds }
}

fn better(goal: Goal, a: f64, b: f64) -> bool {
    match goal {
        Goal::Min => a < b,
        Goal::Max => a > b,
    }
}

/// Of at most so many settings each is compared with each other, if none is unbeaten.
const MOST_COMPARED: usize = 500;

/// Puts the setting first that no other beats by the trials that both have, or else the fewest, where some settings lack
/// trials of others; whether some do.
fn raise_best(ranked: &mut [Ranked], goal: Goal, statistic: Statistic) -> bool {
    let n = ranked.iter().filter(|one| one.place == Place::Ranked).count();
    let pairs = |one: &Ranked| {
        let mut pairs = one.observed.pairs.clone();
        pairs.sort();
        pairs
    };
    let Some(first) = ranked[..n].first().map(pairs) else { return false };
    if ranked[..n].iter().all(|one| pairs(one) == first) {
        return false;
    }
    let beats = |a: usize, b: usize| {
        let common = ranked[b].observed.paired_with(&ranked[a].observed);
        let (own, other): (Vec<f64>, Vec<f64>) = common.into_iter().unzip();
        own.len() > 1
            && better(goal, statistic.estimate(&other, None).0, statistic.estimate(&own, None).0)
    };
    let mut best = 0;
    for at in 1..n {
        if beats(at, best) {
            best = at;
        }
    }
    if n <= MOST_COMPARED && (0..n).any(|at| beats(at, best)) {
        // Each is beaten by some: the one that the fewest beat.
        best =
            (0..n).min_by_key(|one| (0..n).filter(|at| beats(*at, *one)).count()).unwrap_or(best);
    }
    ranked[..=best].rotate_right(1);
    true
}
