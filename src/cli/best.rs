//! `hpcsweep best`: the best setting by a metric, or the settings that no other beats by several.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::metrics::{CurveStatistics, Metrics};
use super::out::aligned;
use super::select::Select;
use super::spark::Curves;
use super::{Context, collect, sweeps};
use crate::answers::analysis::{
    self, Bounded, Left, Member, Over, Pareto, Place, Ranked, Ranking, Settings, Statistic, Why,
};
use crate::answers::collect::{Goal, Table, Trial, UNREAD, text};
use crate::base::fault::Fault;
use crate::base::idset::IdSet;
use crate::base::stats::{self, Interval};
use crate::base::words::{self, count, within};
use crate::plan::value::float_json;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records;

/// Show the best settings by a metric, averaged over seeds and folds, with intervals
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those in results/, else the last one; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Several metrics, each with its goal, show the settings that no other beats (the Pareto front)
    #[command(flatten)]
    metrics: Metrics,
    /// Only the trials of the plan as it is now
    #[arg(long)]
    planned: bool,
    #[command(flatten)]
    statistics: CurveStatistics,
    #[command(flatten)]
    repeats: Repeats,
    /// What of repeated trials decides
    #[arg(long, value_enum, default_value = "mean")]
    statistic: Statistic,
    /// The function whose trials are ranked, in a sweep of functions; by default that of its plan
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// How many to show
    #[arg(short = 'n', long, default_value = "1")]
    top: NonZeroUsize,
    /// Write JSON: a line a setting; of single trials the row of the table, `unread_lines` and the `damaged` files
    #[arg(long)]
    json: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

/// Which trials repeat a setting.
#[derive(Debug, clap::Args)]
pub(super) struct Repeats {
    /// Parameters to average over; by default that of `[replicates]`, and `seed`, `fold` and the like
    #[arg(long, value_name = "PARAMETERS", value_delimiter = ',')]
    pub(super) over: Vec<String>,
    /// Parameters that make a setting: all others are averaged over; `--by trial` for single trials
    #[arg(long, value_name = "PARAMETERS", value_delimiter = ',', conflicts_with = "over")]
    pub(super) by: Vec<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named = args.select.read(&args.named)?;
    let statistics = &args.statistics.curve;
    let (table, curves) = match args.planned || !named.wanted.is_all() {
        true => {
            let all = collect::meant(&named, args.planned, args.offline, context)?;
            Curves::of(all, statistics)?
        }
        false => {
            let found = sweeps::find(&named.sweeps, context)?;
            Curves::of_whole(found, statistics, args.offline, context)?
        }
    };
    let function = meant(&table, args.function.as_deref())?;
    let code = collect::tell(&table.sources, context);
    let (metric, goal) = &args.metrics.0[0];
    if let Some(words) = table.unfinished(args.metrics.names())? {
        return Ok(no_answer(&words, args.json, code, context));
    }
    name_other_functions(&table, metric, *goal, function, context);
    for (metric, _) in &args.metrics.0 {
        table.metric(metric)?;
    }
    let settings = Settings::group_trials(&table, &args.repeats.over, &args.repeats.by, function)?;
    if args.metrics.0.len() > 1 {
        return pareto(&table, &settings, args, code, context);
    }
    let Repeats { over, by } = &args.repeats;
    let is_plain = settings.over.is_empty() && over.is_empty() && by.is_empty();
    if by == &["trial"] || is_plain && args.statistic == Statistic::Mean {
        return trials(&table, (&settings, &curves), args, function, code, context);
    }
    let ranking = analysis::rank(&table, &settings, table.metric(metric)?, *goal, args.statistic);
    if ranking.ranked.is_empty() {
        return Err(table.without_numbers(metric));
    }
    let shown = &ranking.ranked[..args.top.get().min(ranking.ranked.len())];
    if args.json {
        for ranked in shown {
            let object = setting_object(&table, &settings, (ranked, ranking.bounds), args);
            context.out.json(&object)?;
        }
        return Ok(code);
    }
    let rows: Vec<&[usize]> = shown.iter().map(|one| one.observed.rows.as_slice()).collect();
    let curves = curves.column(&table, metric, &rows)?;
    context.out.page(&settings_text(&table, &settings, &ranking, (shown, curves), args));
    Ok(code)
}

/// The answer that there is none yet.
pub(super) fn no_answer(words: &str, json: bool, code: u8, context: &Context) -> u8 {
    if json {
        context.out.say(words);
    } else {
        context.out.data(words);
    }
    code
}

/// Results of other functions are not alternatives: a user who wants them names the function.
fn name_other_functions(
    table: &Table,
    metric: &str,
    goal: Goal,
    function: Option<&str>,
    context: &Context,
) {
    for other in table.functions() {
        let of_it =
            |row: &&Trial| table.function(row) == Some(other) && !table.is_meant(row, function);
        let left_out = table.rows.iter().filter(of_it).count() as u64;
        if left_out == 0 {
            continue;
        }
        let (trials, are) = (count(left_out, "trial"), if left_out == 1 { "is" } else { "are" });
        let done = table.ranked(metric, goal, Some(other)).map_or(0, |ranked| ranked.len());
        context.out.say(&format!(
            "{trials} of `{other}` {are} left out, of which {done} have a number for `{metric}`: hpcsweep best {} {} \
             --function {}",
            table.named(),
            Metrics::words(metric, goal),
            words::sh_quote(other),
        ));
    }
}

/// Single trials, where nothing repeats them.
fn trials(
    table: &Table,
    (settings, curves): (&Settings, &Curves),
    args: &Args,
    function: Option<&str>,
    code: u8,
    context: &Context,
) -> Result<u8> {
    let (metric, goal) = &args.metrics.0[0];
    let ranked = table.ranked(metric, *goal, function)?;
    let shown = &ranked[..args.top.get().min(ranked.len())];
    if args.json {
        for &i in shown {
            context.out.json(&best_object(table, &table.rows[i]))?;
        }
        return Ok(code);
    }
    let rows: Vec<&[usize]> = shown.iter().map(std::slice::from_ref).collect();
    let curves = curves.column(table, metric, &rows)?;
    let mut text = best_text(table, settings, (shown, curves), metric)?;
    text.push_str(&left_out_text(table, (metric, table.metric(metric)?), function));
    if ranked.len() > 1 && args.repeats.by != ["trial"] {
        text.push_str(&format!(
            "the best of {}, each run once: no interval and no test without repetitions (`[replicates]` in the plan)\n",
            count(ranked.len() as u64, "trial")
        ));
    }
    context.out.page(&text);
    Ok(code)
}

/// Single trials that are not ranked, and why; of those whose value is no number, which they are.
fn left_out_text(table: &Table, (metric, column): (&str, usize), function: Option<&str>) -> String {
    let (mut left, mut values) = (Left::default(), Vec::new());
    for row in table.rows.iter().filter(|row| table.is_meant(row, function)) {
        let before = left;
        analysis::number(table, row, column, &mut left);
        let cell = table.cell(row, column);
        if !cell.is_null() && (left.without, left.nan) != (before.without, before.nan) {
            values.push(format!(
                "{metric} = {} in trial {}",
                words::short(&cell.json(), 40),
                row.trial
            ));
        }
    }
    let more = values.len().saturating_sub(MOST_NAMED);
    values.truncate(MOST_NAMED);
    values.extend((more > 0).then(|| format!("{more} more")));
    let named = if values.is_empty() { String::new() } else { format!(" ({})", values.join(", ")) };
    let said = left_text(left);
    said.strip_suffix('\n').map_or_else(String::new, |said| format!("{said}{named}\n"))
}

/// The settings that no other beats in all metrics.
fn pareto(
    table: &Table,
    settings: &Settings,
    args: &Args,
    code: u8,
    context: &Context,
) -> Result<u8> {
    let column = |(name, goal): &(String, Goal)| Ok((table.metric(name)?, *goal));
    let metrics = args.metrics.0.iter().map(column).collect::<Result<Vec<_>>>()?;
    let pareto = analysis::pareto(table, settings, &metrics, args.statistic);
    if pareto.compared == 0 {
        let names: Vec<&str> = args.metrics.0.iter().map(|(name, _)| name.as_str()).collect();
        let sentence = format!("no finished trial has numbers for {}", words::ticked(&names));
        return Err(Fault::request(sentence)
            .hint(format!("`hpcsweep status {}` shows how the trials stand", table.named()))
            .into());
    }
    if !args.json {
        context.out.page(&pareto_text(table, settings, (&pareto, &metrics), args));
        return Ok(code);
    }
    for one in &pareto.front {
        let mut object = Map::new();
        object.insert("setting".into(), setting_values(table, settings, one.setting));
        let named = args.metrics.0.iter().zip(&metrics);
        for (((name, _), (column, _)), observed) in named.zip(&one.observed) {
            object.insert(
                name.clone(),
                sample_object(
                    &observed.values,
                    args.statistic,
                    Bounded::for_metric(table, *column),
                ),
            );
        }
        object.insert("trials".into(), json!(trial_names(table, &one.observed[0].rows)));
        context.out.json(&Value::Object(object))?;
    }
    Ok(code)
}

fn pareto_text(
    table: &Table,
    settings: &Settings,
    (pareto, metrics): (&Pareto, &[(usize, Goal)]),
    args: &Args,
) -> String {
    let bounds: Vec<_> =
        metrics.iter().map(|(column, _)| Bounded::for_metric(table, *column)).collect();
    let varied = settings.varied();
    let mut head: Vec<String> = varied.iter().map(|c| table.columns[*c].clone()).collect();
    head.extend(args.metrics.0.iter().map(|(name, _)| headed(name, args.statistic)));
    head.extend(["n".to_owned(), "trials".to_owned()]);
    let row = |one: &Member| {
        let mut cells = settings.cells(one.setting, &varied);
        cells.extend(one.observed.iter().zip(&bounds).map(|(own, bounds)| {
            let (value, interval) = args.statistic.estimate(&own.values, *bounds);
            with_interval(value, interval)
        }));
        cells.push(one.observed[0].values.len().to_string());
        cells.push(trials_text(table, &one.observed[0].rows));
        cells
    };
    let rows: Vec<Vec<String>> = pareto.front.iter().map(row).collect();
    let mut out = aligned(&head, &rows);
    out.push_str(&format!(
        "no other setting is as good in {} and better in one: {} of {}\n",
        if args.metrics.0.len() == 2 { "both" } else { "all" },
        pareto.front.len(),
        count(pareto.compared as u64, "setting"),
    ));
    for (at, ((name, _), bounds)) in args.metrics.0.iter().zip(bounds).enumerate() {
        let interval = |one: &Member| args.statistic.estimate(&one.observed[at].values, None).1;
        let has_interval = pareto.front.iter().any(|one| interval(one).is_some());
        out.push_str(&bounds_text(name, bounds.filter(|_| has_interval)));
    }
    out.push_str(&over_text(table, settings));
    let without = settings.list.len() - pareto.compared;
    if without > 0 {
        let numbers = if pareto.least > 1 { "two numbers" } else { "a number" };
        let settings = count(without as u64, "setting");
        out.push_str(&format!(
            "left out: {settings} without {numbers} for each metric, or with trials that failed or gave none\n"
        ));
    }
    out.push_str(&left_text(pareto.left));
    out
}

/// The head of the column of a metric.
fn headed(metric: &str, statistic: Statistic) -> String {
    match statistic {
        Statistic::Mean => metric.to_owned(),
        other => format!("{} of {metric}", other.word()),
    }
}

/// A value with its interval, `0.321 [0.310, 0.333]`; without one, the value to six digits.
pub(super) fn with_interval(value: f64, interval: Option<Interval>) -> String {
    match interval {
        Some([low, high]) => {
            format!("{} {}", within(value, (high - low) / 2.0), words::ends(interval))
        }
        None => words::figures(value, 6),
    }
}

/// Names of trials in a table: numbers, with their sweep where there are several.
fn trial_names(table: &Table, rows: &[usize]) -> Vec<Value> {
    let name = |at: &usize| {
        let row = &table.rows[*at];
        match table.sources.len() {
            1 => json!(row.trial),
            _ => json!(format!("{}/{}", table.cell(row, 0).text(), row.trial)),
        }
    };
    rows.iter().map(name).collect()
}

fn trials_text(table: &Table, rows: &[usize]) -> String {
    match table.sources.len() {
        1 => IdSet::of_trials(rows.iter().map(|at| table.rows[*at].trial)).to_string(),
        _ => {
            let names: Vec<String> = trial_names(table, rows).iter().map(text).collect();
            names.join(",")
        }
    }
}

/// What is averaged over, and why; and whether trials are mixed that their parameters do not tell apart.
pub(super) fn over_text(table: &Table, settings: &Settings) -> String {
    let mixed = match settings.repeated {
        0 => String::new(),
        n => format!(
            "mixed: {} with the parameters of an earlier one, which ran another command or in another plan\n",
            count(n as u64, "trial")
        ),
    };
    let over = &settings.over;
    if over.is_empty() {
        return mixed;
    }
    let word = |over: &Over| {
        let name = &table.columns[over.column];
        match over.why {
            Why::Asked => format!("`{name}`"),
            Why::Replicates => format!("`{name}` (of [replicates])"),
            Why::Name => format!("`{name}` (by its name)"),
        }
    };
    let all: Vec<String> = over.iter().map(word).collect();
    format!("averaged over {}\n{mixed}", all.join(", "))
}

/// What of trials does not count: `left out: 2 failed, 1 not ended`.
pub(super) fn left_text(left: Left) -> String {
    let said = left.words();
    if said.is_empty() { String::new() } else { format!("left out: {}\n", said.join(", ")) }
}

/// Within which bounds intervals stay.
pub(super) fn bounds_text(metric: &str, bounds: Option<Bounded>) -> String {
    bounds.map_or_else(String::new, |bounds| format!("{}\n", bounds.words(metric)))
}

/// The first line where settings have trials that failed or gave no number: `failed` are their names, each with how many.
pub(super) fn failed_text(failed: &[(String, String)], what: &str) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let named = failed.iter().take(MOST_NAMED).map(|(name, part)| format!("{name} ({part})"));
    let named: Vec<String> = named.collect();
    let more = failed.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("warning: trials failed or gave no number, {what}: {}{more}\n", named.join(", "))
}

/// Most settings that are named in one sentence.
const MOST_NAMED: usize = 5;

fn settings_text(
    table: &Table,
    settings: &Settings,
    ranking: &Ranking,
    (shown, curves): (&[Ranked], Option<Vec<String>>),
    args: &Args,
) -> String {
    let (metric, _) = &args.metrics.0[0];
    let varied = settings.varied();
    let has_bootstrap = args.statistic == Statistic::Mean
        && shown.iter().any(|one| stats::bootstrap(&one.observed.values).is_some());
    let mut head: Vec<String> = varied.iter().map(|c| table.columns[*c].clone()).collect();
    head.push(headed(metric, args.statistic));
    head.push("95 % interval".to_owned());
    head.extend(has_bootstrap.then(|| "bootstrap".to_owned()));
    head.extend(["sd", "n"].map(str::to_owned));
    let has_failed = shown.iter().any(|one| one.observed.failed().is_some());
    head.extend(has_failed.then(|| "failed".to_owned()));
    head.push("p".to_owned());
    head.extend(curves.as_ref().map(|_| "curve".to_owned()));
    head.push("trials".to_owned());
    let bootstrap_of = |one: &Ranked| {
        Bounded::keep(ranking.bounds, one.value, stats::bootstrap(&one.observed.values))
    };
    let rows: Vec<Vec<String>> = shown
        .iter()
        .enumerate()
        .map(|(place, one)| {
            let figures = one.figures();
            let mut cells = settings.cells(one.setting, &varied);
            cells.extend([figures.value, figures.interval]);
            let is_whole = one.place != Place::Failed;
            let bootstrap = || words::ends(bootstrap_of(one).filter(|_| is_whole));
            cells.extend(has_bootstrap.then(bootstrap));
            cells.extend([figures.sd, figures.n]);
            cells.extend(has_failed.then_some(figures.failed));
            cells.push(figures.p);
            cells.extend(curves.as_ref().map(|curves| curves[place].clone()));
            cells.push(trials_text(table, &one.observed.rows));
            cells
        })
        .collect();
    let mut out = warning(table, settings, ranking);
    out.push_str(&aligned(&head, &rows));
    let has_interval = shown.iter().any(|one| one.interval.is_some());
    out.push_str(&bounds_text(metric, ranking.bounds.filter(|_| has_interval)));
    out.push_str(&over_text(table, settings));
    if ranking.is_uneven {
        out.push_str(
            "some settings lack trials of others: the first is the one that none, or the fewest, beat by the trials that both have\n",
        );
    }
    out.push_str(&ties_text(table, settings, ranking));
    out.push_str(&chosen_text(table, settings, ranking));
    out.push_str(&left_text(ranking.left));
    let alone = ranking.ranked.iter().filter(|one| one.place == Place::Alone).count() as u64;
    if alone > 0 {
        let alone = count(alone, "setting");
        out.push_str(&format!("ranked last: {alone} with one number, where others have several\n"));
    }
    if ranking.empty > 0 {
        let none = count(ranking.empty as u64, "setting");
        out.push_str(&format!("not ranked: {none} without any number\n"));
    }
    let heavy =
        shown.iter().filter(|one| stats::has_heavy_tails(&one.observed.values)).count() as u64;
    if heavy > 0 && args.statistic == Statistic::Mean {
        out.push_str(&format!(
            "single values lie far out in {} shown: `--statistic iqm` or `--statistic median` says more than the mean\n",
            count(heavy, "setting")
        ));
    }
    out
}

/// Which settings have trials that failed or gave no number.
fn warning(table: &Table, settings: &Settings, ranking: &Ranking) -> String {
    let failed: Vec<(String, String)> = ranking
        .ranked
        .iter()
        .filter_map(|one| {
            let name = settings.list[one.setting].words(table, settings);
            Some((name, one.observed.failed()?))
        })
        .collect();
    let what = match failed.len() == ranking.ranked.len() {
        true => "in each setting, and those with the fewest are first",
        false => "and these settings are ranked last",
    };
    failed_text(&failed, what)
}

/// That the best one was chosen by the numbers that its interval is made of, and what tells more.
fn chosen_text(table: &Table, settings: &Settings, ranking: &Ranking) -> String {
    let among = ranking.ranked.iter().filter(|one| one.place == Place::Ranked).count() as u64;
    let (Some(best), true) = (ranking.ranked.first(), among > 1) else { return String::new() };
    let tied = std::iter::once(best).chain(ranking.ties());
    let tied: Vec<String> =
        tied.filter_map(|one| condition(table, settings, one.setting)).collect();
    let is_short = tied.len() == ranking.ties().count() + 1 && tied.len() <= MOST_NAMED;
    let only = match (is_short, tied.as_slice()) {
        (true, [one]) => format!(" --where {}", words::sh_quote(one)),
        (true, several) => {
            let each: Vec<String> = several.iter().map(|one| format!("({one})")).collect();
            format!(" --where {}", words::sh_quote(&each.join(" or ")))
        }
        (false, _) => String::new(),
    };
    let interval = match best.interval {
        Some(_) => ", and its interval holds the truth in fewer than 95 % of such cases",
        None => "",
    };
    format!(
        "the best of {} was chosen by these numbers: it looks better than it is{interval}. New seeds tell: raise `count` of \
         `[replicates]`, then `hpcsweep submit PLAN{only}`\n",
        count(among, "setting")
    )
}

/// The condition of `--where` that holds for a setting; `None` where names or values have no place in one.
fn condition(table: &Table, settings: &Settings, setting: usize) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let parts: Option<Vec<String>> = settings
        .varied()
        .into_iter()
        .map(|column| {
            let name = &table.columns[column];
            let value = settings.list[setting].values.iter().find(|(own, _)| *own == column)?;
            let is_plain = value.1.is_number() || value.1.is_string();
            let is_known = column >= table.first_parameter && name.chars().all(is_name);
            (is_plain && is_known).then(|| format!("{name} == {}", value.1))
        })
        .collect();
    parts.filter(|parts| !parts.is_empty()).map(|parts| parts.join(" and "))
}

/// Which settings cannot be told from the best one.
fn ties_text(table: &Table, settings: &Settings, ranking: &Ranking) -> String {
    let ties: Vec<&Ranked> = ranking.ties().collect();
    let tested = ranking.ranked.iter().filter(|one| one.p.is_some()).count();
    let how = ranking.test();
    if tested == 0 {
        return String::new();
    }
    if ties.is_empty() {
        return format!("all others are told from the best ({how}, 5 %)\n");
    }
    let named: Vec<String> = ties
        .iter()
        .take(MOST_NAMED)
        .map(|one| {
            let setting = settings.list[one.setting].words(table, settings);
            format!("{setting} (p = {})", words::figures(one.p.unwrap_or(1.0), 2))
        })
        .collect();
    let more = ties.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("cannot be told from the best: {}{more} ({how}, 5 %)\n", named.join(", "))
}

fn interval_json(interval: Option<Interval>) -> Value {
    interval.map_or(Value::Null, |ends| json!(ends.map(float_json)))
}

/// What a sample says of a metric with these bounds.
pub(super) fn sample_object(
    values: &[f64],
    statistic: Statistic,
    bounds: Option<Bounded>,
) -> Value {
    let number = |value: f64| if value.is_nan() { Value::Null } else { float_json(value) };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = stats::mean(values);
    let interval = |statistic: Statistic| interval_json(statistic.estimate(values, bounds).1);
    json!({
        "statistic": statistic.word(),
        "value": number(statistic.estimate(values, None).0),
        "n": values.len(),
        "mean": number(mean),
        "sd": number(stats::sd(values)),
        "bounds": bounds.map(Bounded::ends),
        "interval": interval(Statistic::Mean),
        "bootstrap": interval_json(Bounded::keep(bounds, mean, stats::bootstrap(values))),
        "median": number(stats::median(values)),
        "median_interval": interval(Statistic::Median),
        "iqm": number(stats::iqm(values)),
        "iqm_interval": interval(Statistic::Iqm),
        "least": if values.is_empty() { Value::Null } else { number(least) },
        "greatest": if values.is_empty() { Value::Null } else { number(greatest) },
        "heavy_tails": stats::has_heavy_tails(values),
    })
}

fn setting_values(table: &Table, settings: &Settings, setting: usize) -> Value {
    let values = settings.list[setting].values.iter();
    let named = values.map(|(column, value)| (table.columns[*column].clone(), value.clone()));
    Value::Object(named.collect())
}

fn setting_object(
    table: &Table,
    settings: &Settings,
    (ranked, bounds): (&Ranked, Option<Bounded>),
    args: &Args,
) -> Value {
    let (metric, goal) = &args.metrics.0[0];
    let mut object = Map::new();
    object.insert("setting".into(), setting_values(table, settings, ranked.setting));
    object.insert("metric".into(), json!(metric));
    object.insert("goal".into(), json!(if *goal == Goal::Min { "min" } else { "max" }));
    if let Value::Object(mut sample) =
        sample_object(&ranked.observed.values, args.statistic, bounds)
    {
        if ranked.place == Place::Failed {
            let of_all = ["interval", "bootstrap", "median_interval", "iqm_interval"];
            sample.extend(of_all.map(|name| (name.to_owned(), Value::Null)));
        }
        object.extend(sample);
    }
    object.insert("failed".into(), json!(ranked.observed.left.bad()));
    let place = match ranked.place {
        Place::Ranked => "ranked",
        Place::Alone => "one number",
        Place::Failed => "failed",
    };
    object.insert("place".into(), json!(place));
    object.insert("p".into(), json!(ranked.p));
    object.insert("is_tied".into(), json!(ranked.p.map(|_| ranked.is_tied())));
    let over: Vec<&String> = settings.over.iter().map(|over| &table.columns[over.column]).collect();
    object.insert("over".into(), json!(over));
    object.insert("trials".into(), json!(trial_names(table, &ranked.observed.rows)));
    object.insert("left_out".into(), left_object(ranked.observed.left));
    Value::Object(object)
}

/// How many trials do not count, and why.
pub(super) fn left_object(left: Left) -> Value {
    json!({
        "failed": left.failed, "stopped": left.stopped, "not_ended": left.open,
        "without": left.without, "nan": left.nan,
    })
}

/// The function that is named; `None` if there is only one, and it is that.
///
/// # Errors
/// When no trial calls it.
pub(super) fn meant<'a>(table: &Table, named: Option<&'a str>) -> Result<Option<&'a str>> {
    let Some(name) = named else { return Ok(None) };
    let all = table.functions();
    if all.contains(&name) {
        return Ok(Some(name));
    }
    let fault = Fault::request(format!("no trial is known to call `{name}`"));
    Err(match all.as_slice() {
        [] => fault.hint("leave `--function` out: the trials of each sweep run the same"),
        all => fault.hint(words::suggestion(name, all, "there are")),
    }
    .into())
}

/// The row of a trial, and what of it or of its sweep could not be read.
fn best_object(table: &Table, row: &Trial) -> Value {
    let mut object = collect::object(&table.columns, table.cells(row));
    let source = &table.sources[row.source()];
    let unread = source.unread.iter().find(|(trial, _)| *trial == row.trial);
    let [unread_lines, damaged] = UNREAD.map(str::to_owned);
    object.insert(unread_lines, unread.map_or(0, |(_, lines)| *lines).into());
    object.insert(damaged, json!(source.damage));
    Value::Object(object)
}

/// The log of the attempt that counts, if it has one of its own.
fn log(tree: &Tree, trial: u64) -> Result<Option<PathBuf>> {
    let mut logs = (1..).map(|run| tree.log(trial, run)).take_while(|log| log.is_file());
    let (first, second) = (logs.next(), logs.next());
    if second.is_none() {
        return Ok(first);
    }
    let (record, _) = records::of_trial(tree, trial)?;
    let run = record.decisive().map_or(0, |attempt| attempt.run);
    Ok(Some(tree.log(trial, run)).filter(|log| log.is_file()))
}

/// # Errors
/// When there is no such metric, or a record cannot be read.
fn best_text(
    table: &Table,
    settings: &Settings,
    (shown, curves): (&[usize], Option<Vec<String>>),
    metric: &str,
) -> Result<String> {
    let column = table.metric(metric)?;
    let mut out = String::new();
    for (place, &i) in shown.iter().enumerate() {
        let row = &table.rows[i];
        let parameters: Vec<String> = (table.first_parameter..table.first_metric)
            .filter(|&c| !table.cell(row, c).is_null())
            .map(|c| {
                format!("{}={}", table.columns[c], settings.text(c, &table.cell(row, c).value()))
            })
            .collect();
        let curve = curves.as_ref().map_or(String::new(), |curves| format!("  {}", curves[place]));
        out.push_str(&format!(
            "trial {}: {metric} = {}{curve}  ({})\n",
            row.trial,
            words::short(&table.cell(row, column).text(), usize::MAX),
            parameters.join(" ")
        ));
        let tree = Tree::at(&table.sources[row.source()].dir);
        if let Some(log) = log(&tree, row.trial)? {
            out.push_str(&format!("  log: {}\n", log.display()));
        }
        let work = tree.work(row.trial);
        if work.is_dir() {
            out.push_str(&format!("  files: {}\n", work.display()));
        }
    }
    Ok(out)
}
