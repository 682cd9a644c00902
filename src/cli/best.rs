//! `hpcsweep best`: the best trials by a metric.

use anyhow::Result;
use serde_json::{Value, json};

use super::select::Select;
use super::{Context, collect};
use crate::collect::{self as results, Goal, Table, Trial, UNREAD, text};
use crate::fault::Fault;
use crate::tree::Tree;
use crate::words::{self, count};

/// Show the best finished trials by a metric
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").required(true).multiple(false))]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those in results/, else the last one; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// The metric: any column of numbers, `loss` (last value) or `loss.min` (best of its steps)
    #[arg(short, long)]
    metric: String,
    /// The function whose trials are ranked, in a sweep of functions; by default that of its plan
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// The least is best
    #[arg(long, group = "goal")]
    min: bool,
    /// The greatest is best
    #[arg(long, group = "goal")]
    max: bool,
    /// How many to show
    #[arg(short = 'n', long, default_value_t = 1)]
    top: usize,
    /// Write JSON: of each trial the row of the table, `unread_lines` and the `damaged` files of its sweep
    #[arg(long)]
    json: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let table =
        results::collect(collect::stand(&args.select.read(&args.named)?, args.offline, context)?)?;
    let goal = if args.min { Goal::Min } else { Goal::Max };
    let function = meant(&table, args.function.as_deref())?;
    let ranked = table.ranked(&args.metric, goal, function);
    let code = collect::tell(&table.sources, context);
    // Results of other functions are not alternatives: a user who wants them names the function.
    for other in table.functions() {
        let of_it =
            |row: &&Trial| table.function(row) == Some(other) && !table.is_meant(row, function);
        let left_out = table.rows.iter().filter(of_it).count() as u64;
        if left_out == 0 {
            continue;
        }
        let (trials, are) = (count(left_out, "trial"), if left_out == 1 { "is" } else { "are" });
        let done = table.ranked(&args.metric, goal, Some(other)).map_or(0, |ranked| ranked.len());
        let goal = if args.min { "--min" } else { "--max" };
        let (metric, other_word) = (words::sh_quote(&args.metric), words::sh_quote(other));
        context.out.say(&format!(
            "{trials} of `{other}` {are} left out, of which {done} have a number for `{}`: hpcsweep best {} --metric \
             {metric} {goal} --function {other_word}",
            args.metric,
            table.named(),
        ));
    }
    let ranked = ranked?;
    let shown = &ranked[..args.top.clamp(1, ranked.len())];
    if args.json {
        for &i in shown {
            context.out.raw(&crate::tree::to_json_line(&best_object(&table, &table.rows[i]))?);
        }
        return Ok(code);
    }
    context.out.page(&best_text(&table, shown, &args.metric));
    Ok(code)
}

/// The function that is named; `None` if there is only one, and it is that.
///
/// # Errors
/// When no trial calls it.
fn meant<'a>(table: &Table, named: Option<&'a str>) -> Result<Option<&'a str>> {
    let Some(name) = named else { return Ok(None) };
    let all = table.functions();
    if all.contains(&name) {
        return Ok(Some(name));
    }
    let fault = Fault::request(format!("no trial is known to call `{name}`"));
    Err(match (words::nearest(name, all.iter().copied()), all.as_slice()) {
        (Some(near), _) => fault.hint(format!("did you mean `{near}`?")),
        (None, []) => fault.hint("leave `--function` out: the trials of each sweep run the same"),
        (None, all) => fault.hint(format!("there are {}", words::ticked(all))),
    }
    .into())
}

/// The row of a trial, and what of it or of its sweep could not be read.
fn best_object(table: &Table, row: &Trial) -> Value {
    let mut object = collect::object(&table.columns, &row.cells);
    let source = &table.sources[row.source];
    let unread = source.unread.iter().find(|(trial, _)| *trial == row.trial);
    let [unread_lines, damaged] = UNREAD.map(str::to_owned);
    object.insert(unread_lines, unread.map_or(0, |(_, lines)| *lines).into());
    object.insert(damaged, json!(source.damage));
    Value::Object(object)
}

fn best_text(table: &Table, shown: &[usize], metric: &str) -> String {
    let column = table.columns.iter().position(|c| c == metric).unwrap_or(0);
    let mut out = String::new();
    for &i in shown {
        let row = &table.rows[i];
        let parameters: Vec<String> = (table.first_parameter..table.first_metric)
            .filter(|&c| !row.cells.get(c).is_null())
            .map(|c| format!("{}={}", table.columns[c], text(row.cells.get(c))))
            .collect();
        out.push_str(&format!(
            "trial {}: {metric} = {}  ({})\n",
            row.trial,
            text(row.cells.get(column)),
            parameters.join(" ")
        ));
        let tree = Tree::at(&table.sources[row.source].dir);
        let logs = (1..).map(|run| tree.log(row.trial, run)).take_while(|log| log.is_file());
        if let Some(log) = logs.last() {
            out.push_str(&format!("  log: {}\n", log.display()));
        }
        let work = tree.work(row.trial);
        if work.is_dir() {
            out.push_str(&format!("  files: {}\n", work.display()));
        }
    }
    out
}
