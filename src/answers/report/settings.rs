//! The settings of a page: what `best` prints of each, and what its trials cost.

use serde::Serialize;

use super::rounded;
use super::trials::Metric;
use crate::answers::analysis::{self, Figures, Place, Ranked, Ranking};
use crate::answers::collect::Table;
use crate::base::words::{self, thousands};

/// The most settings of a page.
const MOST: usize = 30;

/// The longest value of a setting, in characters.
const LONGEST: usize = 120;

/// The settings, the best first.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Settings {
    /// The names of the columns in which they differ.
    names: Vec<String>,
    /// What a trial costs, of which there are figures in each row.
    costs: Vec<&'static str>,
    /// What is averaged over, how settings were tested, and which are left out.
    notes: Vec<String>,
    rows: Vec<Row>,
}

/// A setting.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    /// `lr=0.1 width=64`.
    label: String,
    /// Its values in the columns in which settings differ.
    cells: Vec<String>,
    #[serde(flatten)]
    figures: Figures,
    /// `best`, `tied` where it cannot be told from the best, `worse`, `failed` where trials of it did, `untested`.
    place: &'static str,
    /// Where its dot and the ends of its line are; `None` where there is none.
    at: Option<f64>,
    ends: Option<[Option<f64>; 2]>,
    costs: Vec<Option<f64>>,
}

/// What a trial costs on average: a title, and the factor to its unit, of each figure of [`analysis::costs`].
const COSTS: [(&str, f64); 3] = [
    ("duration (s)", 1.0),
    ("processor time (s)", 1.0),
    ("peak memory (MiB)", 1.0 / (1 << 20) as f64),
];

/// The settings of a ranking; `None` where nothing repeats them: each is then a trial of the table of trials.
pub(super) fn tabulate(
    table: &Table,
    metric: &Metric,
    settings: &analysis::Settings,
    ranking: &Ranking,
) -> Option<Settings> {
    if settings.over.is_empty() || ranking.ranked.is_empty() {
        return None;
    }
    let varied = settings.varied();
    let shown = &ranking.ranked[..ranking.ranked.len().min(MOST)];
    let costs: Vec<_> =
        shown.iter().map(|one| analysis::costs(table, &settings.list[one.setting].rows)).collect();
    let has_cost = |at: &usize| costs.iter().any(|costs| costs[*at].is_some());
    let known_costs: Vec<usize> = (0..COSTS.len()).filter(has_cost).collect();
    let row = |(at, one): (usize, &Ranked)| Row {
        label: words::short(&settings.list[one.setting].words(table, settings), LONGEST),
        cells: settings
            .cells(one.setting, &varied)
            .iter()
            .map(|cell| words::short(cell, LONGEST))
            .collect(),
        figures: one.figures(),
        place: place(at, one),
        at: rounded(one.value),
        ends: one.interval.map(|ends| ends.map(rounded)),
        costs: known_costs.iter().map(|own| rounded(costs[at][*own]? * COSTS[*own].1)).collect(),
    };
    Some(Settings {
        names: varied.iter().map(|column| table.columns[*column].clone()).collect(),
        costs: known_costs.iter().map(|own| COSTS[*own].0).collect(),
        notes: notes(table, metric, settings, ranking),
        rows: shown.iter().enumerate().map(row).collect(),
    })
}

fn place(at: usize, one: &Ranked) -> &'static str {
    match (one.place, one.p) {
        (Place::Failed, _) => "failed",
        _ if at == 0 => "best",
        (_, None) => "untested",
        _ if one.is_tied() => "tied",
        _ => "worse",
    }
}

fn notes(
    table: &Table,
    metric: &Metric,
    settings: &analysis::Settings,
    ranking: &Ranking,
) -> Vec<String> {
    let averaged_over: Vec<&str> =
        settings.over.iter().map(|over| table.columns[over.column].as_str()).collect();
    let mut notes = vec![format!(
        "Mean {} of each setting, averaged over {}, with its 95 % interval, as `hpcsweep best` prints them.",
        metric.name,
        words::ticked(&averaged_over)
    )];
    if let Some(bounds) = ranking.bounds
        && ranking.ranked.iter().any(|one| one.interval.is_some())
    {
        notes.push(format!("The {}.", bounds.words(&metric.name)));
    }
    if ranking.ranked.iter().any(|one| one.p.is_some()) {
        notes.push(format!(
            "Settings marked with ≈ cannot be told from the best at 5 % ({}).",
            ranking.test()
        ));
    }
    if ranking.ranked.iter().any(|one| one.place == Place::Failed) {
        notes.push(
            "Settings with trials that failed or gave no number come after the others: their means are those of the trials \
             that were spared."
                .to_owned(),
        );
    }
    if ranking.ranked.len() > MOST {
        notes.push(format!(
            "The {MOST} best of {} settings are shown.",
            thousands(ranking.ranked.len() as u64)
        ));
    }
    notes
}
