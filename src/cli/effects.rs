//! `hpcsweep effects`: which parameters matter for a metric, and which value of each is best.

use anyhow::Result;
use serde_json::{Value, json};

use super::best::{
    Repeats, bounds_text, failed_text, left_object, left_text, over_text, with_interval,
};
use super::metrics::{CurveStatistics, Metrics};
use super::out::aligned;
use super::select::Select;
use super::{Context, collect};
use crate::answers::analysis::{self, Effects, Method, Settings};
use crate::answers::collect::{Goal, Table};
use crate::base::fault::Fault;
use crate::base::words::{count, figures, ticked};

/// Show which parameters matter for a metric, and which value of each is best
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those in results/, else the last one; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    #[command(flatten)]
    metrics: Metrics,
    /// Only the trials of the plan as it is now
    #[arg(long)]
    planned: bool,
    #[command(flatten)]
    statistics: CurveStatistics,
    #[command(flatten)]
    repeats: Repeats,
    /// The function whose trials are looked at, in a sweep of functions; by default that of its plan
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Write JSON: with all values of all parameters
    #[arg(long)]
    json: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let [(metric, goal)] = args.metrics.0.as_slice() else {
        return Err(Fault::request("effects are those on one metric")
            .hint("ask for each metric by itself")
            .into());
    };
    let named = args.select.read(&args.named)?;
    let curves = &args.statistics.curve;
    let table = collect::table(&named, args.planned, args.offline, curves, context)?;
    let code = collect::tell(&table.sources, context);
    if let Some(words) = table.unfinished(args.metrics.names())? {
        return Ok(super::best::no_answer(&words, args.json, code, context));
    }
    let column = table.metric(metric)?;
    if (table.first_parameter..table.first_metric).contains(&column) {
        return Err(Fault::request(format!("`{metric}` is a parameter, and no metric"))
            .hint("effects are those of parameters on a metric")
            .into());
    }
    let function = super::best::meant(&table, args.function.as_deref())?;
    let settings = Settings::group_trials(&table, &args.repeats.over, &args.repeats.by, function)?;
    if settings
        .list
        .iter()
        .all(|setting| settings.observe(&table, setting, column).values.is_empty())
    {
        return Err(table.without_numbers(metric));
    }
    let effects = analysis::effects(&table, &settings, column, *goal)?;
    if args.json {
        let object = object(&table, &settings, &effects, metric, *goal);
        context.out.json(&object)?;
    } else {
        context.out.page(&page(&table, &settings, &effects, metric));
    }
    Ok(code)
}

/// The part from which on two parameters together are shown to people.
const WORTH_SHOWING: f64 = 0.01;

fn page(table: &Table, settings: &Settings, effects: &Effects, metric: &str) -> String {
    let name = |axis: usize| table.columns[effects.axes[axis].column].clone();
    let head = ["parameter", "part", "range", "p"].map(str::to_owned);
    let shown =
        effects.terms.iter().filter(|term| term.axes.len() == 1 || term.share >= WORTH_SHOWING);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let rows: Vec<Vec<String>> = shown
        .map(|term| {
            let interval = term.interval.map_or_else(String::new, |[low, high]| {
                format!("{:.1} .. {:.1} %", low * 100.0, high * 100.0)
            });
            let p = term.p.map_or_else(String::new, |p| figures(p, 2));
            vec![effects.term(term, name, " x "), percent(term.share), interval, p]
        })
        .collect();
    let failed: Vec<(String, String)> = effects
        .axes
        .iter()
        .flat_map(|axis| axis.levels.iter().map(move |level| (axis, level)))
        .filter(|(_, level)| level.is_spared)
        .map(|(axis, level)| {
            let name = format!("{}={}", table.columns[axis.column], level.words);
            (name, format!("{}/{}", level.failed, level.failed + level.trials))
        })
        .collect();
    let mut out = failed_text(
        &failed,
        "more often than others with these values, which are not taken for the best",
    );
    out.push_str(&aligned(&head, &rows));
    out.push_str(&format!("{}; {}\n", method_text(effects), effects.rest()));
    for (at, axis) in effects.axes.iter().enumerate() {
        let best = &axis.levels[axis.best];
        let name = &table.columns[axis.column];
        if !effects.is_shown(at) {
            out.push_str(&format!("{name}: no effect shown\n"));
            continue;
        }
        let value = match (effects.method, best.interval) {
            (Method::Forest(_), Some([low, high])) => {
                let [low, high] = [low, high].map(|end| figures(end, 3));
                format!("{}, trees {low} to {high}", figures(best.mean, 6))
            }
            (_, interval) => with_interval(best.mean, interval),
        };
        out.push_str(&format!("best {name}: {} (mean {value})\n", best.words));
    }
    let has_interval = (0..effects.axes.len()).any(|at| {
        let axis = &effects.axes[at];
        effects.is_shown(at) && axis.levels[axis.best].interval.is_some()
    });
    out.push_str(&bounds_text(metric, effects.bounds.filter(|_| has_interval)));
    out.push_str(&over_text(table, settings));
    out.push_str(&left_text(effects.left));
    if effects.infinite > 0 {
        let trials = count(effects.infinite as u64, "trial");
        out.push_str(&format!("left out: {trials} with an infinite number\n"));
    }
    if !effects.unclear.is_empty() {
        let names: Vec<&String> = effects.unclear.iter().map(|c| &table.columns[*c]).collect();
        out.push_str(&format!("too many texts to say anything of: {}\n", ticked(&names)));
    }
    out
}

/// What the parts and their ranges are.
fn method_text(effects: &Effects) -> String {
    let trials = count(effects.trials as u64, "trial");
    let has_ranges = effects.terms.iter().any(|term| term.interval.is_some());
    let ranges = if has_ranges {
        "; the ranges are those of residuals drawn again, and no intervals"
    } else {
        ""
    };
    match effects.method {
        Method::Grid(grid) if grid.is_complete => {
            format!(
                "parts of the variance of {trials}, a complete grid (sums of squares, F test){ranges}"
            )
        }
        Method::Grid(_) => format!(
            "parts of the variance of {trials}, a grid with gaps (least squares, each part beyond those of all others; F test), \
             which need not add up to the whole{ranges}"
        ),
        Method::Forest(why) => format!(
            "parts of the variance, by a forest over {trials} (functional ANOVA), because {}; the ranges are those of its trees, \
             and no intervals; p by shuffles of the parameter",
            analysis::why_no_grid(why)
        ),
    }
}

fn object(
    table: &Table,
    settings: &Settings,
    effects: &Effects,
    metric: &str,
    goal: Goal,
) -> Value {
    let name = |axis: usize| table.columns[effects.axes[axis].column].clone();
    let terms: Vec<Value> = effects
        .terms
        .iter()
        .map(|term| {
            let names: Vec<String> = term.axes.iter().map(|axis| name(*axis)).collect();
            json!({
                "parameters": names, "part": term.share, "range": term.interval, "p": term.p,
            })
        })
        .collect();
    let axes: Vec<Value> = effects
        .axes
        .iter()
        .enumerate()
        .map(|(at, axis)| {
            let level = |level: &analysis::Level| {
                let is_grid = effects.method.is_grid();
                json!({
                    "value": level.words, "mean": level.mean,
                    "interval": level.interval.filter(|_| is_grid),
                    "range_of_trees": level.interval.filter(|_| !is_grid),
                    "trials": level.trials, "failed": level.failed,
                })
            };
            json!({
                "parameter": table.columns[axis.column],
                "best": axis.levels[axis.best].words,
                "is_shown": effects.is_shown(at),
                "values": axis.levels.iter().map(level).collect::<Vec<_>>(),
            })
        })
        .collect();
    let over: Vec<&String> = settings.over.iter().map(|over| &table.columns[over.column]).collect();
    let (grid, why) = match effects.method {
        Method::Grid(grid) => (Some(grid), None),
        Method::Forest(why) => (None, Some(analysis::why_no_grid(why))),
    };
    json!({
        "metric": metric,
        "goal": if goal == Goal::Min { "min" } else { "max" },
        "method": effects.method.word(),
        "no_grid": why,
        "noise": grid.map(|grid| grid.noise),
        "in_common": grid.map(|grid| grid.in_common),
        "trials": effects.trials,
        "left_out": left_object(effects.left),
        "infinite": effects.infinite,
        "over": over,
        "effects": terms,
        "parameters": axes,
    })
}
