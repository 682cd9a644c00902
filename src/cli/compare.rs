//! `hpcsweep compare`: how two settings or two sweeps differ in a metric, and in what they cost.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::best::{Repeats, bounds_text, failed_text, left_object, left_text, sample_object};
use super::metrics::CurveStatistics;
use super::out::aligned;
use super::spark::Curves;
use super::{Context, collect, select};
use crate::answers::analysis::{self, Comparison, Left, Settings, Side, Statistic};
use crate::answers::collect::{Cell, Table, text};
use crate::answers::select::{Wanted, is_set};
use crate::base::fault::Fault;
use crate::base::idset::IdSet;
use crate::base::stats::{self, Test};
use crate::base::words::{self, count, ends, figures, within};
use crate::plan::value::float_json;
use crate::sweep::status::Status;

/// Compare two settings, sweeps or sets of trials by a metric, and in what they cost
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A setting (`lr=0.1,width=64`), a sweep's folder or plan, or trials (`0-4`)
    #[arg(value_name = "A")]
    a: String,
    /// The other one, of the same kind
    #[arg(value_name = "B")]
    b: String,
    /// The sweeps in which settings or trials are, by default those in results/, else the last one
    #[arg(value_name = "SWEEP")]
    sweeps: Vec<String>,
    /// The metric: any column of numbers
    #[arg(short, long)]
    metric: String,
    /// Only the trials of the plan as it is now
    #[arg(long)]
    planned: bool,
    #[command(flatten)]
    statistics: CurveStatistics,
    #[command(flatten)]
    repeats: Repeats,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

/// What a side is.
#[derive(Debug)]
enum Named {
    /// A folder, a plan or a pattern.
    Sweep,
    /// Trials by number, such as `3-7,12`.
    Trials(IdSet),
    /// Parameters and their values.
    Setting(Vec<(String, String)>),
}

impl Named {
    fn read(word: &str) -> Result<Self> {
        if Path::new(word).exists() {
            return Ok(Self::Sweep);
        }
        if is_set(word) {
            return Ok(Self::Trials(IdSet::of_numbers(word)?));
        }
        if word.contains(['*', '?', '[']) && !word.contains('=') {
            return Ok(Self::Sweep);
        }
        if !word.contains('=') {
            return Err(Fault::request(format!("`{word}` is no sweep, no setting and no set of trials"))
                .hint("name a sweep's folder or plan, write a setting as `lr=0.1,width=64`, or trials as `0-4`")
                .into());
        }
        setting(word).map(Self::Setting)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Sweep => "a sweep",
            Self::Trials(_) => "a set of trials",
            Self::Setting(_) => "a setting",
        }
    }
}

/// The parameters of a setting with their values, as they are written. A value may have commas; one in quotes may have
/// anything.
fn setting(word: &str) -> Result<Vec<(String, String)>> {
    let mut setting: Vec<(String, String)> = Vec::new();
    let mut rest = word;
    loop {
        if let Some((name, value)) = rest.split_once('=')
            && !name.trim().is_empty()
            && !name.contains(',')
            && let Some(end) = quoted(value)
        {
            setting.push((name.trim().to_owned(), value[..end].trim().to_owned()));
            match value[end..].trim_start().strip_prefix(',') {
                Some(others) => rest = others,
                None => return Ok(setting),
            }
            continue;
        }
        let (part, others) = rest.split_once(',').map_or((rest, None), |(a, b)| (a, Some(b)));
        match (part.split_once('='), setting.last_mut()) {
            (Some((name, value)), _) if !name.trim().is_empty() => {
                setting.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            // The value before it has a comma.
            (None, Some((_, value))) => value.push_str(&format!(",{part}")),
            _ => {
                let sentence = format!("`{part}` is not a parameter and its value");
                let hint = "write a setting as `lr=0.1,width=64`";
                return Err(Fault::request(sentence).hint(hint).into());
            }
        }
        match others {
            Some(others) => rest = others,
            None => return Ok(setting),
        }
    }
}

/// Where a text in quotes ends with which a value begins; `None` if it is no whole value.
fn quoted(value: &str) -> Option<usize> {
    let mut texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    texts.next()?.ok()?;
    let end = texts.byte_offset();
    let rest = value[end..].trim_start();
    (rest.is_empty() || rest.starts_with(',')).then_some(end)
}

/// The fault of two sides that are not of a kind.
fn of_two_kinds(args: &Args, named: &[Named; 2]) -> Fault {
    let words = [&args.a, &args.b];
    let [a, b] = [0, 1].map(|side| format!("`{}` is {}", words[side], named[side].kind()));
    let fault = Fault::request(format!("{a}, and {b}"));
    let all: Vec<&String> = words.into_iter().chain(&args.sweeps).collect();
    let is_sweep = |word: &String| matches!(Named::read(word), Ok(Named::Sweep));
    let (sweeps, mut sorted): (Vec<&String>, Vec<&String>) =
        all.into_iter().partition(|word| is_sweep(word));
    if sorted.len() == 2 && !sweeps.is_empty() {
        sorted.extend(sweeps);
        let sorted: Vec<_> = sorted.into_iter().map(|word| words::sh_quote(word)).collect();
        let metric = words::sh_quote(&args.metric);
        let command = format!("hpcsweep compare {} --metric {metric}", sorted.join(" "));
        return fault.hint(format!("the sweep follows the two that are compared: `{command}`"));
    }
    fault.hint("compare two of a kind: settings (`lr=0.1`), sweeps or trials (`0-4`)")
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let words = [&args.a, &args.b];
    let named = [Named::read(words[0])?, Named::read(words[1])?];
    if named[0].kind() != named[1].kind() {
        return Err(of_two_kinds(args, &named).into());
    }
    let (table, curves, sides, common) = match &named {
        [Named::Sweep, Named::Sweep] => of_sweeps(args, context)?,
        [a, b] => of_one_table(args, context, [a, b])?,
    };
    let code = collect::tell(&table.sources, context);
    if let Some(words) = table.unfinished([args.metric.as_str()])? {
        return Ok(super::best::no_answer(&words, args.json, code, context));
    }
    let metric = table.metric(&args.metric)?;
    for (word, side) in words.iter().zip(&sides) {
        if side.rows.is_empty() {
            return Err(Fault::request(format!("no trial is of `{word}`"))
                .hint(format!("`hpcsweep collect {}` shows the trials", table.named()))
                .into());
        }
    }
    let compared = analysis::compare(&table, &sides, metric, &common, &over(&table, args)?);
    if let Some(side) = compared.samples.iter().position(|sample| sample.values.is_empty()) {
        let sentence =
            format!("no finished trial of `{}` has a number for `{}`", words[side], args.metric);
        return Err(Fault::request(sentence)
            .hint(format!("`hpcsweep status {}` shows how the trials stand", table.named()))
            .into());
    }
    if args.json {
        let object = object(&table, args, &compared, &common);
        context.out.json(&object)?;
    } else {
        let is_done = |at: &usize| table.state(&table.rows[*at]) == "done";
        let rows = sides
            .each_ref()
            .map(|side| -> Vec<usize> { side.rows.iter().copied().filter(is_done).collect() });
        let curves = curves.column(&table, &args.metric, &[&rows[0], &rows[1]])?;
        context.out.page(&page(&table, args, &compared, &common, curves.as_deref()));
    }
    Ok(code)
}

/// How the trials of some sweeps stand: all of them, or those of the plan as it is now.
fn read(sweeps: &[String], args: &Args, context: &Context) -> Result<Vec<Status>> {
    let named = select::Named { sweeps: sweeps.to_vec(), wanted: Wanted::default() };
    collect::meant(&named, args.planned, args.offline, context)
}

/// The columns of parameters but some. Which GPU a trial had is none.
fn parameters(table: &Table, but: &[usize]) -> Vec<usize> {
    let all = table.first_parameter..table.first_metric;
    all.filter(|c| !but.contains(c) && table.columns[*c] != analysis::DEVICES).collect()
}

/// Two sweeps: trials with equal parameters are pairs.
fn of_sweeps(args: &Args, context: &Context) -> Result<(Table, Curves, [Side; 2], Vec<usize>)> {
    if let Some(third) = args.sweeps.first() {
        let sentence = format!("`{third}` is a third sweep: two are compared");
        return Err(Fault::request(sentence).hint("name two").into());
    }
    let (mut statuses, mut firsts) = (Vec::new(), Vec::new());
    for word in [&args.a, &args.b] {
        statuses.extend(read(std::slice::from_ref(word), args, context)?);
        firsts.push(statuses.len());
    }
    let (table, curves) = Curves::of(statuses, &args.statistics.curve)?;
    let rows = |range: std::ops::Range<usize>| Side {
        rows: (0..table.rows.len())
            .filter(|at| range.contains(&table.rows[*at].source()))
            .collect(),
    };
    let sides = [rows(0..firsts[0]), rows(firsts[0]..firsts[1])];
    let common = match args.repeats.over.is_empty() {
        true => parameters(&table, &[]),
        false => over(&table, args)?,
    };
    Ok((table, curves, sides, common))
}

/// Two settings, or two sets of trials, of the same sweeps.
fn of_one_table(
    args: &Args,
    context: &Context,
    named: [&Named; 2],
) -> Result<(Table, Curves, [Side; 2], Vec<usize>)> {
    let all = read(&args.sweeps, args, context)?;
    let (table, curves) = Curves::of(all, &args.statistics.curve)?;
    let (mut fixed, mut sides) = (Vec::new(), [Side::default(), Side::default()]);
    for (named, side) in named.into_iter().zip(&mut sides) {
        let mut conditions = Vec::new();
        if let Named::Setting(parts) = named {
            for (name, value) in parts {
                let column = analysis::column(&table, name)?;
                conditions.push((column, value_of(&table, column, value)?));
            }
        }
        fixed.extend(conditions.iter().map(|(column, _)| *column));
        let is_meant = |at: &usize| {
            let row = &table.rows[*at];
            let is_named = match named {
                Named::Trials(ids) => ids.has(row.trial),
                _ => true,
            };
            is_named
                && conditions.iter().all(|(column, value)| {
                    value.as_ref() == Some(&table.cell(row, *column).value())
                })
        };
        side.rows = (0..table.rows.len()).filter(is_meant).collect();
    }
    let common = match (named[0], args.repeats.over.is_empty()) {
        (Named::Setting(_), true) => {
            // Of several sweeps, trials of the same one are pairs.
            let sweep = (table.sources.len() > 1).then_some(0);
            sweep.into_iter().chain(parameters(&table, &fixed)).collect()
        }
        _ => over(&table, args)?,
    };
    Ok((table, curves, sides, common))
}

/// What is averaged over.
fn over(table: &Table, args: &Args) -> Result<Vec<usize>> {
    let settings = Settings::group_trials(table, &args.repeats.over, &args.repeats.by, None)?;
    Ok(settings.over.iter().map(|over| over.column).collect())
}

/// The value of a column that a word means; `None` if no trial has it. It is the one that `best` shows so, else the text that
/// the word is or has in quotes, else the number that it writes in another way.
///
/// # Errors
/// When it means several, such as `1` and `1.0`.
fn value_of(table: &Table, column: usize, word: &str) -> Result<Option<Value>> {
    let mut seen = HashSet::new();
    let cells = table.rows.iter().map(|row| table.cell(row, column));
    let values: Vec<Value> =
        cells.filter(|cell| seen.insert(cell.json())).map(Cell::value).collect();
    let is_alike = analysis::are_alike(values.iter());
    let quoted: Option<String> = serde_json::from_str(word).ok();
    let number: Option<Value> = match word.parse::<i64>() {
        Ok(int) => Some(int.into()),
        Err(_) => word.parse::<u64>().map(Value::from).ok(),
    };
    let number = number.or_else(|| word.parse::<f64>().ok().map(float_json));
    let is_number = |value: &Value| {
        number.as_ref().is_some_and(|number| {
            Cell::from(value).order(Cell::from(number)) == Some(Ordering::Equal)
        })
    };
    let means: [&dyn Fn(&Value) -> bool; 4] = [
        &|value| analysis::in_words(value, is_alike) == word,
        &|value| quoted.is_some() && value.as_str() == quoted.as_deref(),
        &|value| text(value) == word,
        &is_number,
    ];
    for is_meant in means {
        let mut meant = values.iter().filter(|value| is_meant(value));
        match (meant.next(), meant.next()) {
            (None, _) => {}
            (Some(value), None) => return Ok(Some(value.clone())),
            (Some(a), Some(b)) => {
                let name = &table.columns[column];
                let [a, b] = [a, b].map(|value| analysis::in_words(value, is_alike));
                let sentence = format!("`{name}={word}` means `{a}` as well as `{b}`");
                return Err(Fault::request(sentence).hint("write one of them").into());
            }
        }
    }
    Ok(None)
}

/// The columns that pairs agree in and that differ at all.
fn paired_by(table: &Table, common: &[usize]) -> Vec<String> {
    let differs = |column: &&usize| {
        let mut cells = table.rows.iter().map(|row| table.cell(row, **column));
        let first = cells.next();
        cells.any(|cell| Some(cell) != first)
    };
    common.iter().filter(differs).map(|column| format!("`{}`", table.columns[*column])).collect()
}

fn page(
    table: &Table,
    args: &Args,
    compared: &Comparison,
    common: &[usize],
    curves: Option<&[String]>,
) -> String {
    let (words, bounds) = ([&args.a, &args.b], compared.bounds);
    let mut head: Vec<String> =
        ["", &args.metric, "95 % interval", "sd", "n"].map(str::to_owned).to_vec();
    let costs: Vec<_> =
        compared.costs.iter().filter(|cost| cost.means.iter().any(Option::is_some)).collect();
    head.extend(costs.iter().map(|cost| cost.column.to_owned()));
    head.extend(curves.map(|_| "curve".to_owned()));
    let rows: Vec<Vec<String>> = (0..2)
        .map(|side| {
            let values = &compared.samples[side].values;
            let (mean, interval) = Statistic::Mean.estimate(values, bounds);
            let half = interval.map_or(0.0, |[low, high]| (high - low) / 2.0);
            let sd = stats::sd(values);
            let mut cells = vec![
                words[side].clone(),
                within(mean, half),
                ends(interval),
                if sd.is_nan() { String::new() } else { figures(sd, 3) },
                values.len().to_string(),
            ];
            let cost = |cost: &&analysis::Cost| {
                cost.means[side].map_or_else(String::new, |mean| figures(mean, 4))
            };
            cells.extend(costs.iter().map(cost));
            cells.extend(curves.map(|curves| curves[side].clone()));
            cells
        })
        .collect();
    let failed = compared.samples.iter().zip(words).filter(|(sample, _)| sample.left.bad() > 0);
    let failed: Vec<(String, String)> = failed
        .map(|(sample, word)| {
            let (bad, good) = (sample.left.bad(), sample.trials + sample.alone);
            (word.clone(), format!("{bad}/{}", bad + good))
        })
        .collect();
    let mut out = failed_text(&failed, "and what is compared are the others");
    out.push_str(&aligned(&head, &rows));
    let interval = |values: &[f64]| Statistic::Mean.estimate(values, None).1;
    let has_interval = compared.samples.iter().any(|sample| interval(&sample.values).is_some());
    out.push_str(&bounds_text(&args.metric, bounds.filter(|_| has_interval)));
    match &compared.test {
        Some(test) => out.push_str(&test_text(table, test, compared, common)),
        None if compared.samples.iter().any(|sample| sample.values.len() < 2) => out.push_str(
            "one number or one seed on a side: nothing tells whether they differ; repeat trials with `[replicates]`\n",
        ),
        None => out.push_str("infinite numbers: nothing tells how much they differ\n"),
    }
    let mut left = Left::default();
    compared.samples.iter().for_each(|sample| left.add(sample.left));
    out.push_str(&left_text(left));
    let alone: usize = compared.samples.iter().map(|sample| sample.alone).sum();
    if alone > 0 {
        let alone = count(alone as u64, "trial");
        out.push_str(&format!("left out: {alone} without a partner on the other side\n"));
    }
    out
}

fn test_text(table: &Table, test: &Test, compared: &Comparison, common: &[usize]) -> String {
    let half = test.interval.map_or(0.0, |[low, high]| (high - low) / 2.0);
    let interval = ends(test.interval);
    let interval = if interval.is_empty() { interval } else { format!(" {interval}") };
    let mut out = format!("difference: {}{interval}\n", within(test.difference, half));
    let p = figures(test.p, 3);
    match test.pairs {
        Some(pairs) => {
            let by = paired_by(table, common);
            let by = if by.is_empty() { String::new() } else { format!(" that agree in {}", by.join(", ")) };
            let rank = compared.signed_rank.map_or_else(String::new, |p| {
                format!(", {} by Wilcoxon's signed-rank test", figures(p, 3))
            });
            // Several trials of a seed are one observation.
            let units = compared.unit.filter(|_| compared.samples[0].trials > pairs);
            let pairs = match units {
                Some(unit) => format!(
                    "{} of `{}`, each the means of pairs",
                    count(pairs as u64, "value"),
                    table.columns[unit]
                ),
                None => count(pairs as u64, "pair"),
            };
            out.push_str(&format!("p = {p} by the t test of {pairs}{by}{rank}\n"));
        }
        None => out.push_str(&format!(
            "p = {p} by Welch's t test: fewer than two trials of one side have a partner on the other\n"
        )),
    }
    if test.effect.is_finite() {
        out.push_str(&format!(
            "effect size: {} standard deviations (Hedges' g)\n",
            figures(test.effect, 3)
        ));
    }
    out
}

fn object(table: &Table, args: &Args, compared: &Comparison, common: &[usize]) -> Value {
    let words = [&args.a, &args.b];
    let side = |side: usize| {
        let sample = &compared.samples[side];
        let mut object = Map::new();
        object.insert("name".into(), json!(words[side]));
        if let Value::Object(sample) =
            sample_object(&sample.values, Statistic::Mean, compared.bounds)
        {
            object.extend(sample);
        }
        object.insert("trials".into(), json!(sample.trials));
        object.insert("without_partner".into(), json!(sample.alone));
        object.insert("left_out".into(), left_object(sample.left));
        for cost in &compared.costs {
            object.insert(cost.column.into(), json!(cost.means[side]));
        }
        Value::Object(object)
    };
    let test = compared.test.as_ref().map(|test| {
        json!({
            "test": if test.pairs.is_some() { "paired t" } else { "welch" },
            "pairs": test.pairs,
            "unit": compared.unit.map(|column| &table.columns[column]),
            "paired_by": common.iter().map(|column| &table.columns[*column]).collect::<Vec<_>>(),
            "difference": float_json(test.difference),
            "interval": test.interval.map(|ends| ends.map(float_json)),
            "p": float_json(test.p),
            "p_signed_rank": compared.signed_rank,
            "effect_size": test.effect.is_finite().then_some(test.effect),
        })
    });
    json!({ "metric": args.metric, "a": side(0), "b": side(1), "difference": test })
}
