//! Which setting is best, and which parameter matters, as `best` and `effects` find them.

use serde::Serialize;

use super::trials::{Metric, drawn, swept};
use super::{figure, isolated, rounded};
use crate::answers::analysis::{self, Left, Ranking, Settings, Statistic};
use crate::answers::collect::{Goal, Table, Trial};
use crate::base::stats;
use crate::base::words;

/// Finished trials that differ only in what is averaged over: seeds, folds.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// The parameters that differ between settings: `lr=0.1 width=64`.
    pub(super) label: String,
    /// Its trials with a number, as rows.
    pub(super) rows: Vec<usize>,
    pub(super) mean: f64,
    /// The interval of 95 % of its mean, where it has several trials, and all gave a number.
    pub(super) interval: Option<[f64; 2]>,
}

/// The settings of a sweep.
#[derive(Debug, Default)]
pub(super) struct Best {
    /// How many have a number.
    pub(super) settings: usize,
    /// Those of them that are drawn: the [`BEST`] first, and then some of the others.
    pub(super) drawn: Vec<Setting>,
    /// How many others cannot be told from the best.
    pub(super) ties: usize,
    /// How many settings have trials that failed or gave no number: they come after the others.
    pub(super) failed: usize,
    /// What has no place among them, in words; empty for nothing.
    pub(super) left_out: String,
}

/// Settings that have a colour of their own: the best.
pub(super) const BEST: usize = 5;

/// Other settings that are drawn behind them.
const OTHERS: usize = 35;

fn goal(metric: &Metric) -> Goal {
    if metric.max { Goal::Max } else { Goal::Min }
}

/// The settings of a page by its metric, as `best` ranks them.
pub(super) fn ranking(table: &Table, metric: &Metric, settings: &Settings) -> Ranking {
    analysis::rank(table, settings, metric.column, goal(metric), Statistic::Mean)
}

/// The settings of finished trials, the best mean first; `over` is averaged over.
pub(super) fn best(table: &Table, metric: &Metric, over: &[usize], ranking: &Ranking) -> Best {
    let columns = swept(table, over);
    let finite = ranking.ranked.iter().filter(|one| one.value.is_finite());
    let finite: Vec<&analysis::Ranked> =
        finite.filter(|one| !one.observed.rows.is_empty()).collect();
    let (best, others) = finite.split_at(finite.len().min(BEST));
    let infinite = ranking.ranked.iter().filter(|one| one.value.is_infinite()).count();
    Best {
        settings: finite.len(),
        drawn: best
            .iter()
            .chain(&drawn(others, OTHERS))
            .filter_map(|ranked| {
                let rows = ranked.observed.rows.clone();
                let failed = ranked.observed.failed();
                let mut label = label(table, &table.rows[*rows.first()?], &columns);
                if let Some(failed) = &failed {
                    label.push_str(&format!(" (failed {failed})"));
                }
                Some(Setting { label, rows, mean: ranked.value, interval: ranked.interval })
            })
            .collect(),
        ties: ranking.ties().count(),
        failed: finite.iter().filter(|one| one.observed.failed().is_some()).count(),
        left_out: left_out(ranking.left, infinite, &isolated(&metric.name)),
    }
}

/// Trials and settings that cannot be ranked or drawn.
fn left_out(left: Left, infinite: usize, metric: &str) -> String {
    let trials = |n: usize| words::count(n as u64, "finished trial");
    let parts = [
        (left.failed, format!("{} that failed", words::count(left.failed as u64, "trial"))),
        (left.without, format!("{} without {metric}", trials(left.without))),
        (left.nan, format!("{} in which {metric} is not a number", trials(left.nan))),
        (infinite, format!("{} in which it is infinite", words::count(infinite as u64, "setting"))),
    ];
    let reasons: Vec<String> =
        parts.into_iter().filter(|(n, _)| *n > 0).map(|(_, words)| words).collect();
    if reasons.is_empty() { String::new() } else { format!(" Left out: {}.", reasons.join(", ")) }
}

/// The columns that are averaged over.
pub(super) fn averaged(settings: &Settings) -> Vec<usize> {
    settings.over.iter().map(|over| over.column).collect()
}

/// The parameters of a trial in words; its number if none differs.
pub(super) fn label(table: &Table, row: &Trial, columns: &[usize]) -> String {
    let parts: Vec<String> = columns
        .iter()
        .filter(|&&column| !table.cell(row, column).is_null())
        .map(|&column| {
            let value = match table.cell(row, column).number() {
                Some(n) => figure(n),
                None => isolated(&words::short(&table.cell(row, column).text(), 40)),
            };
            format!("{}={value}", isolated(&table.columns[column]))
        })
        .collect();
    if parts.is_empty() { format!("trial {}", row.trial) } else { parts.join(" ") }
}

/// What a parameter does to the metric.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Effect {
    pub(super) name: String,
    /// Its share of the variance of the metric on its own, from 0 to 1.
    pub(super) share: f64,
    /// Whether anything shows that it has an effect.
    pub(super) is_shown: bool,
    levels: Vec<Level>,
}

/// Trials with one value of a parameter, or with one of a range.
#[derive(Debug, PartialEq, Serialize)]
struct Level {
    label: String,
    n: usize,
    mean: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

/// What two parameters do together, beyond what each does on its own; of more, what any three or more of them do beyond that.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) names: Vec<String>,
    pub(super) share: f64,
}

/// Which parameters matter for the metric, as shares of its variance.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Effects {
    /// The largest share first.
    pub(super) axes: Vec<Effect>,
    /// Those that matter most together, the largest share first.
    pub(super) pairs: Vec<Pair>,
    /// How the shares were found, in words.
    pub(super) method: Option<String>,
}

/// The most trials over which a forest grows.
const MOST: usize = 20_000;

/// The most pairs of a page.
const PAIRS: usize = 5;

/// The effects of the parameters; none if too little is known to tell.
pub(super) fn effects(table: &Table, metric: Option<&Metric>, settings: &Settings) -> Effects {
    let Some(metric) = metric else { return Effects::default() };
    let all_settings = &settings.list;
    let rows: usize = all_settings.iter().map(|setting| setting.rows.len()).sum();
    let n_settings =
        if rows > MOST { (all_settings.len() * MOST / rows).max(1) } else { all_settings.len() };
    let list = stats::drawn(all_settings.len(), n_settings)
        .into_iter()
        .map(|place| all_settings[place].clone())
        .collect();
    let few = settings.with(list);
    let Ok(found) = analysis::effects(table, &few, metric.column, goal(metric)) else {
        return Effects::default();
    };
    let name = |axis: usize| table.columns[found.axes[axis].column].clone();
    let share = |axis: usize| {
        let main_effect = found.terms.iter().find(|term| term.axes == [axis]);
        main_effect.map_or(0.0, |term| term.share.clamp(0.0, 1.0))
    };
    let label = |level: &analysis::Level| {
        let words = words::short(&level.words.replace(" .. ", " to "), 40);
        match level.failed {
            0 => words,
            failed => format!("{words} (failed {failed}/{})", failed + level.trials),
        }
    };
    let mut axes: Vec<Effect> = found
        .axes
        .iter()
        .enumerate()
        .map(|(at, axis)| Effect {
            name: name(at),
            share: rounded(share(at)).unwrap_or(0.0),
            is_shown: found.is_shown(at),
            levels: axis
                .levels
                .iter()
                .map(|level| Level {
                    label: label(level),
                    n: level.trials,
                    mean: rounded(level.mean),
                    low: level.interval.and_then(|[low, _]| rounded(low)),
                    high: level.interval.and_then(|[_, high]| rounded(high)),
                })
                .collect(),
        })
        .collect();
    axes.sort_by(|a, b| b.share.total_cmp(&a.share));
    let pairs = found.terms.iter().filter(|term| term.axes.len() > 1).filter_map(|term| {
        let names = match term.axes.len() {
            ..=3 => term.axes.iter().map(|axis| name(*axis)).collect(),
            _ => vec![found.term(term, name, "")],
        };
        Some(Pair { names, share: rounded(term.share)? })
    });
    let trials = words::count(found.trials as u64, "trial");
    Effects {
        axes,
        pairs: pairs.take(PAIRS).collect(),
        method: Some(format!("{}, of {trials}", found.method.name())),
    }
}
