//! The sweep in words: what was swept, what is best, what matters, what failed, what it cost.

use std::collections::BTreeSet;

use serde::Serialize;

use super::best::Best;
use super::timeline::Times;
use super::{Data, digits, figure, isolated, trials};
use crate::answers::collect::Table;
use crate::base::words::{count, duration, short, thousands};
use crate::sweep::standing::State;
use crate::sweep::status::Status;

/// What the words are about.
pub(super) struct Known<'a> {
    pub(super) status: &'a Status,
    pub(super) table: &'a Table,
    pub(super) data: &'a Data,
    pub(super) best: &'a Best,
    pub(super) over: &'a [usize],
    pub(super) times: Option<Times>,
}

/// The words of a page.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Figures at a glance: a title, the figure, and what it is of.
    pub(super) tiles: Vec<[String; 3]>,
    /// Questions with their answers.
    pub(super) answers: Vec<(&'static str, String)>,
}

/// The most parts of a sentence.
const MOST: usize = 4;

pub(super) fn summarize(known: &Known<'_>) -> Summary {
    let answers = [
        ("Swept", Some(swept(known))),
        ("Trials", Some(counts(known))),
        ("Best", Some(best(known))),
        ("What matters", matters(known)),
        ("What failed", failed(known)),
        ("Cost", cost(known)),
    ];
    Summary {
        tiles: tiles(known),
        answers: answers.into_iter().filter_map(|(what, text)| Some((what, text?))).collect(),
    }
}

fn total(known: &Known<'_>) -> usize {
    known.status.rows.len()
}

/// Which parameters had which values.
fn swept(known: &Known<'_>) -> String {
    let columns = trials::swept(known.table, known.over);
    let trials = count(total(known) as u64, "trial");
    let mut product = 1_usize;
    let (mut parts, mut repeated) = (Vec::new(), String::new());
    for &column in &columns {
        let (n, words) = values(known.table, column);
        product = product.saturating_mul(n);
        parts.push(format!("{} ({words})", isolated(&known.table.columns[column])));
    }
    let mut averaged: Vec<String> = Vec::new();
    for &column in known.over {
        let (n, words) = values(known.table, column);
        product = product.saturating_mul(n);
        averaged.push(format!("{} ({words})", isolated(&known.table.columns[column])));
    }
    if !averaged.is_empty() {
        repeated = format!(", averaged over {}", averaged.join(" and "));
    }
    if parts.is_empty() {
        return format!("{trials} with the same parameters{repeated}.");
    }
    let coverage =
        if product == total(known) && columns.len() > 1 { "every combination of " } else { "" };
    let n_unnamed = parts.len().saturating_sub(8);
    parts.truncate(8);
    if n_unnamed > 0 {
        parts.push(format!("{} more", thousands(n_unnamed as u64)));
    }
    let last_part = parts.pop().unwrap_or_default();
    let parts =
        if parts.is_empty() { last_part } else { format!("{} and {last_part}", parts.join(", ")) };
    format!("{trials}: {coverage}{parts}{repeated}.")
}

/// How many values a parameter has, and which.
fn values(table: &Table, column: usize) -> (usize, String) {
    let mut texts: Vec<String> = Vec::new();
    let (mut seen, mut numbers) = (BTreeSet::new(), Vec::new());
    for row in &table.rows {
        let value = table.cell(row, column);
        if value.is_null() || !seen.insert(value.text().into_owned()) {
            continue;
        }
        numbers.extend(value.number());
        if texts.len() < 6 {
            texts.push(match value.number() {
                Some(n) => figure(n),
                None => isolated(&short(&value.text(), 30)),
            });
        }
    }
    let n = seen.len();
    let words = match numbers.len() == n && n > 6 {
        true => {
            let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{} from {} to {}", count(n as u64, "value"), figure(least), figure(greatest))
        }
        false if n > texts.len() => format!("{} and {} more", texts.join(", "), n - texts.len()),
        false => texts.join(", "),
    };
    (n, words)
}

fn counts(known: &Known<'_>) -> String {
    let counts = known.status.counts();
    let done = counts.get(&State::Done).copied().unwrap_or(0);
    if done == 0 {
        let other_states = listed(&counts);
        return format!("No trial has finished: {other_states}.");
    }
    if done as usize == total(known) {
        return format!("All {} are done.", thousands(done));
    }
    let other_states =
        listed(&counts.into_iter().filter(|(state, _)| *state != State::Done).collect());
    format!(
        "{} of {} are done; the others are {other_states}.",
        thousands(done),
        thousands(total(known) as u64)
    )
}

fn listed(counts: &std::collections::BTreeMap<State, u64>) -> String {
    let state_counts: Vec<String> =
        counts.iter().map(|(state, n)| format!("{} {}", thousands(*n), state.word())).collect();
    state_counts.join(", ")
}

fn best(known: &Known<'_>) -> String {
    let (Some(metric), Some(first)) = (&known.data.metric, known.best.drawn.first()) else {
        let done = known.status.counts().get(&State::Done).copied().unwrap_or(0);
        return match (done, known.best.left_out.trim_start()) {
            (0, _) => "Nothing can be compared before a trial has finished.".to_owned(),
            (_, "") => "No finished trial has recorded a number as a metric.".to_owned(),
            (_, left_out) => format!("No setting can be ranked. {left_out}"),
        };
    };
    let name = &isolated(&metric.name);
    let end = if metric.max { "greatest" } else { "least" };
    let mut words = match first.interval {
        Some([low, high]) => format!(
            "{} has the {end} {name}: {} on average over {} (95 % interval {} to {}).",
            first.label,
            figure(first.mean),
            count(first.rows.len() as u64, "trial"),
            figure(low),
            figure(high)
        ),
        None => {
            let trial = known.table.rows[first.rows[0]].trial;
            let label = match first.label == format!("trial {trial}") {
                true => first.label.clone(),
                false => format!("{} (trial {trial})", first.label),
            };
            format!("{label} has the {end} {name}: {}.", figure(first.mean))
        }
    };
    if known.best.failed > 0 {
        let failed = count(known.best.failed as u64, "setting");
        words = format!(
            "In {failed} of {}, trials failed or gave no number: {} ranked last. {words}",
            thousands(known.best.settings as u64),
            if known.best.failed == 1 { "it is" } else { "they are" },
        );
    }
    if first.interval.is_some() {
        if known.best.settings > 1 {
            words.push_str(
                " It was chosen by these numbers, so that it looks better than it is, and the interval holds the truth in fewer than \
                 95 % of such cases.",
            );
        }
        match known.best.ties {
            0 => {}
            n => words.push_str(&format!(
                " A test at 5 % cannot tell {} of the other {} from it.",
                thousands(n as u64),
                count(known.best.settings as u64 - 1, "setting")
            )),
        }
        let row = metric.ranked.first().map(|&row| &known.table.rows[row]);
        if let Some(row) = row {
            let value = known.table.cell(row, metric.column).number().unwrap_or(f64::NAN);
            words.push_str(&format!(
                " The best single trial is {} with {}.",
                row.trial,
                figure(value)
            ));
        }
    }
    words.push_str(&known.best.left_out);
    if metric.assumed {
        let option = if metric.max { "--min" } else { "--max" };
        words.push_str(&format!(
            " No metric was named: that the {end} {name} is best was assumed from its name; `--metric NAME {option}` \
             says something else."
        ));
    }
    words
}

fn matters(known: &Known<'_>) -> Option<String> {
    let effects = &known.data.effects;
    let metric = &isolated(&known.data.metric.as_ref()?.name);
    let method = effects.method.as_ref()?;
    let single = effects.axes.iter().filter(|effect| effect.is_shown);
    let single = single.map(|effect| (isolated(&effect.name), effect.share));
    let together = effects.pairs.iter().map(|pair| {
        let names: Vec<String> = pair.names.iter().map(|name| isolated(name)).collect();
        (names.join(" with "), pair.share)
    });
    let mut shares: Vec<(String, f64)> =
        single.chain(together).filter(|(_, share)| *share >= 0.01).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    if shares.is_empty() {
        return Some(format!(
            "No parameter is shown to explain 1 % of the variance of {metric} ({method})."
        ));
    }
    let n_unnamed = shares.len().saturating_sub(MOST);
    shares.truncate(MOST);
    let unnamed = match n_unnamed {
        0 => String::new(),
        n => format!(", and {} less each", count(n as u64, "other part")),
    };
    let parts: Vec<String> =
        shares.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect();
    let hidden = effects.axes.iter().filter(|effect| !effect.is_shown);
    let hidden: Vec<String> = hidden.map(|effect| isolated(&effect.name)).take(MOST).collect();
    let hidden = match hidden.is_empty() {
        true => String::new(),
        false => format!(" No effect shown of {}.", hidden.join(", ")),
    };
    Some(format!("Of the variance of {metric}: {}{unnamed} ({method}).{hidden}", parts.join(", ")))
}

fn failed(known: &Known<'_>) -> Option<String> {
    let failures = &known.data.failures;
    let repeated = known.times.map_or(0, |times| times.repeated);
    let reruns = (repeated > 0).then(|| {
        format!("{} ran again after an earlier attempt.", count(repeated as u64, "attempt"))
    });
    if failures.is_empty() {
        return reruns.map(|sentence| format!("Nothing. {sentence}"));
    }
    let total: usize = failures.iter().map(|failure| failure.count).sum();
    let mut parts: Vec<String> = failures
        .iter()
        .take(MOST)
        .map(|failure| format!("{} × {}", failure.count, isolated(&short(&failure.words, 90))))
        .collect();
    if failures.len() > MOST {
        parts.push(format!("{} more", count((failures.len() - MOST) as u64, "reason")));
    }
    let words =
        format!("{} ended without success: {}.", count(total as u64, "trial"), parts.join("; "));
    Some(match reruns {
        Some(reruns) => format!("{words} {reruns}"),
        None => words,
    })
}

fn cost(known: &Known<'_>) -> Option<String> {
    let cost = &known.data.cost;
    let times = known.times?;
    let (amount, unit) = time(cost.core_hours);
    let mut parts = vec![format!("{amount} core-{unit}")];
    if cost.gpu_hours > 0.0 {
        let (amount, unit) = time(cost.gpu_hours);
        parts.push(format!("{amount} GPU-{unit}"));
    }
    parts.extend(cost.energy_kwh.map(|kwh| format!("{} kWh", figure(kwh))));
    let used: Vec<String> = cost
        .hours
        .iter()
        .map(|hours| format!("{:.0} % of the {}", hours.share * 100.0, hours.what))
        .collect();
    let used = match used.is_empty() {
        true => String::new(),
        false => format!(" Trials used {}.", used.join(", ")),
    };
    let energy =
        if cost.energy_kwh.is_some() { "" } else { " No node or GPU reported its energy." };
    Some(format!(
        "{} on {}, in {} from the first start to the last end.{used}{energy}",
        parts.join(", "),
        count(times.hosts as u64, "host"),
        duration(times.span)
    ))
}

/// Hours of cores or GPUs: a figure and its unit.
fn time(hours: f64) -> (String, &'static str) {
    if hours < 0.1 { (figure(hours * 3600.0), "seconds") } else { (figure(hours), "hours") }
}

fn tiles(known: &Known<'_>) -> Vec<[String; 3]> {
    let done = known.status.counts().get(&State::Done).copied().unwrap_or(0);
    let total = total(known) as u64;
    let failed: usize = known.data.failures.iter().map(|failure| failure.count).sum();
    let note = match (failed, total - done.min(total)) {
        (0, 0) => "all of them".to_owned(),
        (0, open) => format!("{} open", thousands(open)),
        (failed, _) => format!("{} without success", thousands(failed as u64)),
    };
    let mut tiles = vec![[
        "Trials done".to_owned(),
        format!("{} / {}", thousands(done), thousands(total)),
        note,
    ]];
    if let (Some(metric), Some(first)) = (&known.data.metric, known.best.drawn.first()) {
        let spread = match first.interval {
            Some([low, high]) => {
                format!("± {}, mean of {}", digits((high - low) / 2.0, 2), first.rows.len())
            }
            None => format!("trial {}", known.table.rows[first.rows[0]].trial),
        };
        tiles.push([format!("Best {}", metric.name), figure(first.mean), spread]);
    }
    let Some(times) = known.times else { return tiles };
    let cost = &known.data.cost;
    let gpus = (cost.gpu_hours > 0.0).then(|| {
        let (amount, unit) = time(cost.gpu_hours);
        format!("{amount} GPU-{unit}")
    });
    let energy = cost.energy_kwh.map(|kwh| format!("{} kWh", figure(kwh)));
    let further: Vec<String> = [Some(gpus.unwrap_or_else(|| "no GPUs".to_owned())), energy]
        .into_iter()
        .flatten()
        .collect();
    let (amount, unit) = time(cost.core_hours);
    tiles.push([format!("Core-{unit}"), amount, further.join(", ")]);
    tiles.push([
        "Time".to_owned(),
        duration(times.span),
        format!("on {}", count(times.hosts as u64, "host")),
    ]);
    tiles
}
