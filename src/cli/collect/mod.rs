//! `hpcsweep collect`: the table of results.

mod forms;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;

use super::out::aligned;
use super::select::{Named, Select};
use super::{Context, sweeps};
use crate::collect::steps::Steps;
use crate::collect::{self, Source, Table, text};
use crate::fault::Fault;
use crate::host::disk;
use crate::status::Status;
use crate::submit;
use crate::submit::grow::{self, Diff};
use crate::tree::Tree;
use crate::words::{self, count};
pub(super) use forms::object;
use forms::{MOST_CELLS, check_columns, csv_row, jsonl_row};

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
    /// Sweep folders, plans or patterns ('results/*'), by default those in results/, else the last one; sets of trials
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Write to this file; its ending (.csv, .jsonl, .txt) sets the format
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
    /// Put `'` before texts of a CSV file that a spreadsheet would take for a formula (=, +, -, @, tab)
    #[arg(long)]
    safe_csv: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    if let Some(Format::Records) = args.format {
        if args.steps || args.all {
            let option = if args.steps { "--steps" } else { "--all" };
            return Err(Fault::request(format!("`{option}` is about tables, not records")).into());
        }
        return records(args, context);
    }
    if args.planned {
        return Err(Fault::request("`--planned` needs `--format records`").into());
    }
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
    if args.safe_csv && format != Format::Csv {
        return Err(Fault::request("`--safe-csv` is about CSV files").into());
    }
    let all = stand(&args.select.read(&args.named)?, args.offline, context)?;
    if args.steps {
        let steps = Steps::new(all)?;
        write(args, "row", context, |out| write_steps(&steps, format, args.safe_csv, out))?;
        return Ok(tell(&steps.sources(), context));
    }
    let table = collect::collect(all)?;
    write(args, "row", context, |out| {
        match format {
            Format::Table => {
                let wide = args.all || args.output.is_some() || !io::stdout().is_terminal();
                check_columns(&table.columns)?;
                out.write_all(people(&table, &all_rows(&table), wide).as_bytes())?;
            }
            Format::Csv => {
                check_columns(&table.columns)?;
                let mut csv = csv::Writer::from_writer(out);
                csv_row(&mut csv, table.columns.iter().map(|name| json!(name)), args.safe_csv)?;
                for row in &table.rows {
                    let cells = (0..table.columns.len()).map(|c| row.cells.get(c).clone());
                    csv_row(&mut csv, cells, args.safe_csv)?;
                }
                csv.flush()?;
            }
            Format::Jsonl | Format::Records => {
                table.rows.iter().try_for_each(|row| jsonl_row(out, &table.columns, &row.cells))?;
            }
        }
        Ok(table.rows.len())
    })?;
    Ok(tell(&table.sources, context))
}

/// How the trials stand that are meant; the scheduler is asked, if it may be.
pub(super) fn stand(named: &Named, offline: bool, context: &Context) -> Result<Vec<Status>> {
    let site = context.site()?;
    let whom = (!offline).then_some((&site, &context.vars));
    let sweeps = sweeps::find(&named.sweeps, context)?.into_iter();
    let read = |(tree, identity)| crate::status::read(tree, identity, whom);
    let mut all = sweeps.map(read).collect::<Result<Vec<Status>>>()?;
    named.wanted.narrow(&mut all)?;
    Ok(all)
}

/// Says what could not be read, and returns the exit code.
pub(super) fn tell(sources: &[Source], context: &Context) -> u8 {
    for source in sources {
        let dir = source.dir.display();
        for damaged in &source.damage {
            context.out.warn(&format!("{dir}: {damaged}; left out"));
        }
        if !source.unread.is_empty() {
            let lines = source.unread.iter().map(|(_, lines)| lines).sum();
            let trials: Vec<String> =
                source.unread.iter().take(5).map(|(trial, _)| trial.to_string()).collect();
            let more = if source.unread.len() > trials.len() { ", ..." } else { "" };
            context.out.warn(&format!(
                "{dir}: {} left out that could not be read (trials {}{more})",
                count(lines, "metric line"),
                trials.join(", ")
            ));
        }
        if let Some(words) = &source.dropped {
            context.out.say(&format!("{dir}: {words}"));
        }
        if let Some(witness) = &source.unsure {
            context.out.say(&format!("{dir}: states are those of {witness}"));
        }
    }
    u8::from(sources.iter().any(|source| !source.damage.is_empty()))
}

fn write_steps(steps: &Steps, format: Format, safe: bool, out: &mut dyn Write) -> Result<usize> {
    let columns = &steps.columns;
    let mut rows = 0;
    match format {
        Format::Table => {
            let mut cells: Vec<Vec<String>> = Vec::new();
            steps.each(|row| {
                if cells.len() * columns.len() > MOST_CELLS {
                    return Err(forms::too_large().into());
                }
                cells.push((0..columns.len()).map(|c| text(row.get(c))).collect());
                Ok(())
            })?;
            rows = cells.len();
            out.write_all(aligned(columns, &cells).as_bytes())?;
        }
        Format::Csv => {
            check_columns(columns)?;
            let mut csv = csv::Writer::from_writer(out);
            csv_row(&mut csv, columns.iter().map(|name| json!(name)), safe)?;
            steps.each(|row| {
                rows += 1;
                csv_row(&mut csv, (0..columns.len()).map(|c| row.get(c).clone()), safe)
            })?;
            csv.flush()?;
        }
        Format::Jsonl | Format::Records => steps.each(|row| {
            rows += 1;
            jsonl_row(out, columns, &row)
        })?,
    }
    Ok(rows)
}

/// Writes to the file that is named, else to standard output; `fill` returns how many rows it wrote.
fn write(
    args: &Args,
    of: &str,
    context: &Context,
    fill: impl FnOnce(&mut dyn Write) -> Result<usize>,
) -> Result<()> {
    let Some(path) = &args.output else {
        let mut out = io::BufWriter::with_capacity(1 << 16, context.out.stream());
        fill(&mut out)?;
        return Ok(out.flush()?);
    };
    let mut filled = Ok(0);
    let written = disk::write_whole_with(path, |out| {
        filled = fill(out);
        match &filled {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("nothing was written")),
        }
    });
    // An error of the rows says more than a missing file.
    let rows = filled? as u64;
    written?;
    context.out.say(&format!("{} in {}", count(rows, of), path.display()));
    Ok(())
}

/// The trials of one sweep as they are recorded.
fn records(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let whom = (!args.offline).then_some((&site, &context.vars));
    let Named { sweeps, wanted } = args.select.read(&args.named)?;
    let (tree, identity) = sweeps::one(&sweeps, context)?;
    if args.planned && !wanted.is_all() {
        let sentence = "`--planned` is about all trials of the plan, and not about a set";
        return Err(Fault::request(sentence).into());
    }
    let places = if args.planned {
        let named = sweeps.first().map(PathBuf::from).filter(|path| path.is_file());
        let source = submit::Source::read(&named.unwrap_or_else(|| tree.plan()))?;
        Some(grow::diff(&tree, &source)?.places)
    } else {
        None
    };
    let mut status = crate::status::read(tree, identity, whom)?;
    wanted.narrow(std::slice::from_mut(&mut status))?;
    write(args, "trial", context, |out| {
        collect::whole::lines(&status, places.as_deref(), |line| out.write_all(line))
    })?;
    Ok(tell(&[Source::of(&status)], context))
}

/// After a local run: the table where it is short, and whether all went well.
pub(super) fn after_local(tree: &Tree, diff: &Diff, context: &Context) -> Result<u8> {
    let (tree, identity) = Tree::open(tree.dir())?;
    let table = collect::collect(vec![crate::status::read(tree, identity, None)?])?;
    // Trials that an earlier plan added and this one no longer has are neither shown nor counted.
    let rows: Vec<usize> =
        (0..table.rows.len()).filter(|&i| diff.has(table.rows[i].trial)).collect();
    let bad = rows.iter().filter(|&&i| table.state(&table.rows[i]) != "done").count();
    if !context.out.quiet && rows.len() <= 50 {
        context.out.raw(b"\n");
        context.out.page(&people(&table, &rows, false));
    } else {
        context.out.say(&format!("the table: hpcsweep collect {}", table.named()));
    }
    Ok(tell(&table.sources, context).max(u8::from(bad > 0)))
}

fn all_rows(table: &Table) -> Vec<usize> {
    (0..table.rows.len()).collect()
}

/// Columns of what trials have used, for files: `hpcsweep usage` shows them to people.
const USED: [&str; 4] = ["peak_memory", "cpu_s", "read_bytes", "written_bytes"];

/// The aligned table. The narrow one leaves out columns that say nothing: empty, or of use to machines.
fn people(table: &Table, rows: &[usize], wide: bool) -> String {
    let cell = |row: usize, c: usize| table.rows[row].cells.get(c);
    let total = table.columns.iter().position(|name| name == "duration_s").unwrap_or(0);
    let says_something = |c: usize| {
        let name = table.columns[c].as_str();
        if wide {
            return true;
        }
        if USED.contains(&name) || name == "job" {
            return false;
        }
        if matches!(name, "link" | "exit_code" | "attempts" | "host") {
            let first = rows.first().map(|&i| cell(i, c));
            let differs = rows.iter().any(|&i| Some(cell(i, c)) != first);
            return differs;
        }
        if name == "last_duration_s" {
            return rows.iter().any(|&i| cell(i, c) != cell(i, total));
        }
        // The best of the steps is a question of its own: `best --metric loss.min`.
        let of_steps =
            c >= table.first_metric && (name.ends_with(".min") || name.ends_with(".max"));
        !of_steps && rows.iter().any(|&i| !cell(i, c).is_null())
    };
    let columns: Vec<usize> = (0..table.columns.len()).filter(|&c| says_something(c)).collect();
    let head: Vec<String> = columns.iter().map(|&c| table.columns[c].clone()).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|&i| {
            let shown = |&c: &usize| {
                let value = cell(i, c);
                match value.as_f64() {
                    // People compare figures; the files keep every bit.
                    Some(f) if value.is_f64() && c >= table.first_metric && !wide => short(f),
                    Some(f) if table.columns[c].ends_with("duration_s") && !wide => {
                        format!("{f:.3}")
                    }
                    _ if wide => text(value),
                    _ => words::short(&text(value), 60),
                }
            };
            columns.iter().map(shown).collect()
        })
        .collect();
    aligned(&head, &cells)
}

/// Six significant digits.
fn short(f: f64) -> String {
    let text = format!("{f:.5e}");
    text.parse::<f64>().map_or(text, crate::plan::value::float_text)
}
