//! A sweep as one HTML file: what was swept, what came of it, what failed, what it cost. `page` is the file, the other
//! modules make the data in it.

mod best;
mod cost;
mod curves;
mod failures;
pub(crate) mod live;
mod origin;
mod page;
mod settings;
mod summary;
mod taken;
mod timeline;
mod trials;

use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use crate::answers::analysis::Settings;
use crate::answers::collect::{Goal, Source};
use crate::answers::usage;
use crate::base::words;
use crate::sweep::status::Status;

pub(crate) use taken::Taken;

/// A report that is ready to be written.
pub(crate) struct Report {
    name: String,
    summary: summary::Summary,
    /// The data of the page.
    json: String,
    /// What of the sweep could not be read.
    pub(crate) source: Vec<Source>,
    /// How many of the trials are in the page, and how many there are.
    pub(crate) shown: usize,
    pub(crate) trials: usize,
}

/// What the page has of the sweep, in the form in which its script reads it.
#[derive(Serialize)]
struct Data {
    metric: Option<trials::Metric>,
    trials: trials::Trials,
    settings: Option<settings::Settings>,
    effects: best::Effects,
    curves: Option<curves::Curves>,
    timeline: Option<timeline::Timeline>,
    failures: Vec<failures::Failure>,
    cost: cost::Cost,
    origin: origin::Origin,
}

/// How much more than the most that was used would have been asked for, as in `hpcsweep usage`.
const MARGIN: f64 = 1.2;

/// The metric that a person wants trials to be ranked by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricWish<'a> {
    pub(crate) name: &'a str,
    pub(crate) goal: Goal,
}

/// The largest part of a page that is data, bytes: with the libraries a page stays below 5 MB.
const MOST_DATA: usize = 4_000_000;

impl Report {
    /// Makes the page of a sweep, of what was `taken` while it was read and of the records that the status has. Without a metric, one
    /// is chosen by its name; `now` is the time of the report in unix seconds.
    ///
    /// # Errors
    /// When a record cannot be read, or no trial has recorded the metric that is named.
    pub(crate) fn build(
        status: &mut Status,
        mut taken: Taken,
        wish: Option<MetricWish<'_>>,
        now: f64,
    ) -> Result<Self> {
        let table = taken.table(status)?;
        let metric = trials::metric(&table, wish)?;
        let Taken { usage, spans, told, .. } = taken;
        let ended = usage.ended(status);
        let cost = cost::sum_up(&usage::report(&ended, MARGIN), &ended);
        let (timeline, times) = timeline::lay_out(status, spans, now);
        let origin = origin::describe(status, told, now);
        let settings = Settings::group_trials(&table, &[], &[], None)?;
        let averaged_over = best::averaged(&settings);
        let ranking = metric.as_ref().map(|metric| best::ranking(&table, metric, &settings));
        let measured = metric.as_ref().zip(ranking.as_ref());
        let shown = measured
            .and_then(|(metric, ranking)| settings::tabulate(&table, metric, &settings, ranking));
        let best = measured.map_or_else(best::Best::default, |(metric, ranking)| {
            best::best(&table, metric, &averaged_over, ranking)
        });
        drop(ranking);
        let effects = best::effects(&table, metric.as_ref(), &settings);
        drop(settings);
        let ranked = metric.as_ref().map_or(Vec::new(), |metric| metric.ranked.clone());
        let mut data = Data {
            settings: shown,
            effects,
            failures: failures::list(status),
            curves: curves::thin_out(status, &table, metric.as_ref(), &best)?,
            trials: trials::Trials::default(),
            metric,
            timeline,
            cost,
            origin,
        };
        let summary = summary::summarize(&summary::Known {
            status,
            table: &table,
            data: &data,
            best: &best,
            over: &averaged_over,
            times,
        });
        // Long values may make a page too large: it then has fewer trials.
        let mut row_limit = trials::MOST;
        let json = loop {
            data.trials = trials::tabulate(
                &table,
                data.metric.as_ref(),
                &averaged_over,
                &ended,
                &ranked,
                row_limit,
            );
            let json = short_json(&data)?;
            if json.len() <= MOST_DATA || row_limit <= 1 {
                break json;
            }
            row_limit = (data.trials.shown.min(row_limit) / 2).max(1);
        };
        Ok(Self {
            name: status.identity.name.clone(),
            summary,
            json,
            source: vec![Source::of(status)],
            shown: data.trials.shown,
            trials: data.trials.total,
        })
    }

    /// Writes the page.
    ///
    /// # Errors
    /// What `out` returns.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&page::fill_in(&self.name, &self.summary, &self.json, None))
    }

    /// The page as it is served: it asks for newer data than those of this tag, every so many seconds.
    fn served(&self, tag: &str, every_s: f64) -> Vec<u8> {
        page::fill_in(&self.name, &self.summary, &self.json, Some(&page::Live { tag, every_s }))
    }

    /// The words and the data of a page that is already there, as JSON.
    fn data(&self) -> String {
        let summary = serde_json::to_string(&self.summary).unwrap_or_else(|_| "null".to_owned());
        format!("{{\"summary\":{summary},\"data\":{}}}", self.json)
    }
}

/// JSON in which whole numbers have no fraction.
struct Short;

impl Formatter for Short {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        match value == value.trunc() && value.abs() < 1e15 {
            true => write!(out, "{value}"),
            false => CompactFormatter.write_f64(out, value),
        }
    }
}

fn short_json(data: &Data) -> Result<String> {
    let mut json = Vec::new();
    data.serialize(&mut Serializer::with_formatter(&mut json, Short))?;
    Ok(String::from_utf8(json)?)
}

/// A number with the digits that a page shows; `None` where JSON has no form for it.
fn rounded(n: f64) -> Option<f64> {
    if n == n.trunc() && n.abs() < 1e15 {
        return Some(n);
    }
    n.is_finite().then(|| format!("{n:.5e}").parse().unwrap_or(n))
}

/// A value or a name within a sentence or a label: marks that turn the direction of writing are spelt out, and letters that are written
/// from right to left turn nothing but themselves.
fn isolated(text: &str) -> String {
    let text = words::printable(text);
    if text.contains(|c| {
        matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}'
            | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
    }) {
        format!("\u{2068}{text}\u{2069}")
    } else {
        text.into_owned()
    }
}

/// A number in words: four digits that matter.
fn figure(n: f64) -> String {
    digits(n, 4)
}

/// A number in words, with so many digits that matter.
fn digits(n: f64, most: usize) -> String {
    words::Figures::REPORT.digits(most).of(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_turn_nothing_beside_them() {
        for (value, words) in [
            ("adam", "adam"),
            ("a\u{202e}dam\u{2069}", "a\\u{202e}dam\\u{2069}"),
            ("\u{5d0}\u{5d1} 1", "\u{2068}\u{5d0}\u{5d1} 1\u{2069}"),
        ] {
            assert_eq!(isolated(value), words, "{value}");
        }
    }

    #[test]
    fn figures_have_four_digits_that_matter() {
        for (n, words) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.958_112_9, "0.9581"),
            (0.5, "0.5"),
            (-2.345_678, "-2.346"),
            (12345.678, "12346"),
            (0.000_012_34, "1.234e-5"),
            (1.5e9, "1.5e9"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(figure(n), words, "{n}");
        }
        assert_eq!(rounded(0.123_456_789), Some(0.123_457));
        assert_eq!(rounded(f64::INFINITY), None);
    }
}
