//! `hpcsweep collect` and `hpcsweep best`: the table of results, and its best rows.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::out::aligned;
use super::{Context, sweeps};
use crate::collect::{self, Goal, Table, text};
use crate::fault::Fault;
use crate::host::disk;
use crate::submit::Source;
use crate::submit::grow::{self, Diff};
use crate::tree::Tree;
use crate::words::{self, count};

/// How a table is written
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns for people
    Table,
    /// Comma-separated values with a head line
    Csv,
    /// One JSON object a line
    Jsonl,
    /// One JSON object a line, as recorded: parameters nested, the result whole, why and how a trial failed
    Records,
}

/// Make one table of all results: a row a trial with its state, parameters and metrics
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns ('results/*'); by default those in results/, else the last one
    sweeps: Vec<String>,
    /// Write to this file; its ending (.csv, .jsonl, .txt) says how
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to write it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Only the trials of the plan as it is now, in its order, of one sweep, with --format records
    #[arg(long, conflicts_with_all = ["steps", "all"])]
    planned: bool,
    /// Learning curves: a row a metric line instead of a row a trial
    #[arg(long)]
    steps: bool,
    /// Show all columns in the aligned table, also those in which nothing differs
    #[arg(long)]
    all: bool,
}

/// Show the best finished trials by a metric
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").required(true).multiple(false))]
pub(crate) struct BestArgs {
    /// Sweep folders, plans or patterns; by default those in results/, else the last one
    sweeps: Vec<String>,
    /// The metric: any column of numbers, `loss` (last value) or `loss.min` (best of its steps)
    #[arg(short, long)]
    metric: String,
    /// The least is best
    #[arg(long, group = "goal")]
    min: bool,
    /// The greatest is best
    #[arg(long, group = "goal")]
    max: bool,
    /// How many to show
    #[arg(short = 'n', long, default_value_t = 1)]
    top: usize,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    if let Some(Format::Records) = args.format {
        if args.steps || args.all {
            let option = if args.steps { "--steps" } else { "--all" };
            return Err(Fault::request(format!("`{option}` is about tables, not records")).into());
        }
        let bytes = records(args, context)?;
        let n = bytes.iter().filter(|byte| **byte == b'\n').count();
        return write(args, n, "trial", &bytes, context);
    }
    if args.planned {
        return Err(Fault::request("`--planned` needs `--format records`").into());
    }
    let sweeps = sweeps::find(&args.sweeps, context)?;
    let table = if args.steps { collect::steps(&sweeps)? } else { collect::collect(&sweeps)? };
    let format = match (args.format, args.output.as_ref().and_then(|p| p.extension()?.to_str())) {
        (Some(format), _) => format,
        (None, Some("csv")) => Format::Csv,
        (None, Some("jsonl" | "ndjson")) => Format::Jsonl,
        (None, Some("txt") | None) => Format::Table,
        (None, Some(other)) => {
            return Err(Fault::request(format!(
                "`.{other}` says nothing about how to write a table"
            ))
            .hint("end the name in .csv, .jsonl or .txt, or say --format")
            .into());
        }
    };
    let bytes = match format {
        Format::Csv => csv(&table)?,
        Format::Jsonl | Format::Records => jsonl(&table)?,
        Format::Table => {
            let wide = args.all || args.output.is_some() || !std::io::stdout().is_terminal();
            people(&table, &all_rows(&table), wide).into_bytes()
        }
    };
    write(args, table.rows.len(), "row", &bytes, context)
}

fn write(args: &Args, n: usize, of: &str, bytes: &[u8], context: &Context) -> Result<u8> {
    match &args.output {
        Some(path) => {
            disk::write_whole(path, bytes)?;
            context.out.say(&format!("{} in {}", count(n as u64, of), path.display()));
        }
        None => context.out.raw(bytes),
    }
    Ok(0)
}

/// The trials of one sweep as they are recorded.
fn records(args: &Args, context: &Context) -> Result<Vec<u8>> {
    let (tree, _) = sweeps::one(&args.sweeps, context)?;
    if !args.planned {
        return collect::whole::lines(&tree, None);
    }
    let named = args.sweeps.first().map(PathBuf::from).filter(|path| path.is_file());
    let source = Source::read(&named.unwrap_or_else(|| tree.plan()))?;
    let places = grow::diff(&tree, &source)?.places;
    collect::whole::lines(&tree, Some(&places))
}

pub(super) fn best(args: &BestArgs, context: &Context) -> Result<u8> {
    let table = collect::collect(&sweeps::find(&args.sweeps, context)?)?;
    let goal = if args.min { Goal::Min } else { Goal::Max };
    let ranked = table.ranked(&args.metric, goal)?;
    let shown = &ranked[..args.top.clamp(1, ranked.len())];
    if args.json {
        for &i in shown {
            context.out.raw(&crate::tree::to_json_line(&object(&table, i))?);
        }
        return Ok(0);
    }
    context.out.raw(best_text(&table, shown, &args.metric).as_bytes());
    Ok(0)
}

fn best_text(table: &Table, shown: &[usize], metric: &str) -> String {
    let column = table.columns.iter().position(|c| c == metric).unwrap_or(0);
    let mut out = String::new();
    for &i in shown {
        let row = &table.rows[i];
        let parameters: Vec<String> = (table.first_parameter..table.first_metric)
            .filter(|&c| !row[c].is_null())
            .map(|c| format!("{}={}", table.columns[c], text(&row[c])))
            .collect();
        out.push_str(&format!(
            "trial {}: {metric} = {}  ({})\n",
            table.trials[i],
            text(&row[column]),
            parameters.join(" ")
        ));
        let tree = Tree::at(&table.sweeps[i]);
        let logs = (1..).map(|run| tree.log(table.trials[i], run)).take_while(|log| log.is_file());
        if let Some(log) = logs.last() {
            out.push_str(&format!("  log: {}\n", log.display()));
        }
        let work = tree.work(table.trials[i]);
        if work.is_dir() {
            out.push_str(&format!("  files: {}\n", work.display()));
        }
    }
    out
}

/// After a local run: the table where it is short, and whether all went well.
pub(super) fn after_local(tree: &Tree, diff: &Diff, context: &Context) -> Result<u8> {
    let (tree, identity) = Tree::open(tree.dir())?;
    let table = collect::collect(&[(tree, identity)])?;
    // What an earlier plan brought and this one no longer has is neither shown nor judged.
    let rows: Vec<usize> = (0..table.rows.len()).filter(|&i| diff.has(table.trials[i])).collect();
    let bad = rows.iter().filter(|&&i| table.state(&table.rows[i]) != "done").count();
    if !context.out.quiet && rows.len() <= 50 {
        context.out.raw(b"\n");
        context.out.raw(people(&table, &rows, false).as_bytes());
    } else {
        context.out.say("the table: hpcsweep collect");
    }
    Ok(u8::from(bad > 0))
}

fn all_rows(table: &Table) -> Vec<usize> {
    (0..table.rows.len()).collect()
}

/// The aligned table. The narrow one leaves out columns that say nothing: empty, or of use to machines.
fn people(table: &Table, rows: &[usize], wide: bool) -> String {
    let says_something = |c: usize| {
        let name = table.columns[c].as_str();
        if wide {
            return true;
        }
        if matches!(name, "peak_memory" | "job" | "link" | "exit_code" | "attempts" | "host") {
            let first = rows.first().map(|&i| &table.rows[i][c]);
            let differs = rows.iter().any(|&i| Some(&table.rows[i][c]) != first);
            return differs && !matches!(name, "peak_memory" | "job");
        }
        // The best of the steps is a question of its own: `best --metric loss.min`.
        let of_steps =
            c >= table.first_metric && (name.ends_with(".min") || name.ends_with(".max"));
        !of_steps && rows.iter().any(|&i| !table.rows[i][c].is_null())
    };
    let columns: Vec<usize> = (0..table.columns.len()).filter(|&c| says_something(c)).collect();
    let head: Vec<String> = columns.iter().map(|&c| table.columns[c].clone()).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|&i| {
            let cell = |&c: &usize| {
                let value = &table.rows[i][c];
                match value.as_f64() {
                    // People compare figures; the files keep every bit.
                    Some(f) if value.is_f64() && c >= table.first_metric && !wide => short(f),
                    Some(f) if table.columns[c] == "duration_s" && !wide => format!("{f:.3}"),
                    _ if wide => text(value),
                    _ => words::short(&text(value), 60),
                }
            };
            columns.iter().map(cell).collect()
        })
        .collect();
    aligned(&head, &cells)
}

/// Six significant digits.
fn short(f: f64) -> String {
    let text = format!("{f:.5e}");
    text.parse::<f64>().map_or(text, crate::plan::value::float_text)
}

fn csv(table: &Table) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::with_capacity(table.rows.len() * 64));
    writer.write_record(&table.columns)?;
    for row in &table.rows {
        writer.write_record(row.iter().map(text))?;
    }
    Ok(writer.into_inner()?)
}

fn jsonl(table: &Table) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(table.rows.len() * 256);
    for i in 0..table.rows.len() {
        serde_json::to_writer(&mut out, &object(table, i))?;
        out.write_all(b"\n")?;
    }
    Ok(out)
}

fn object(table: &Table, row: usize) -> Value {
    let cells = table.columns.iter().zip(&table.rows[row]);
    let map: Map<String, Value> = cells.map(|(name, value)| (name.clone(), json!(value))).collect();
    Value::Object(map)
}
