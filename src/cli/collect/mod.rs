//! `hpcsweep collect`: the table of results.

mod forms;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::metrics::CurveStatistics;
use super::out::aligned;
use super::select::{Named, Select};
use super::sibling::become_worker;
use super::{Context, next, sweeps};
use crate::answers::collect::attempts::Attempts;
use crate::answers::collect::columns::Column;
use crate::answers::collect::sheet::{Form, Line, Sheet};
use crate::answers::collect::statistics::Statistic;
use crate::answers::collect::steps::Steps;
use crate::answers::collect::{self, Cell, Source, Table, unread_words};
use crate::base::fault::Fault;
use crate::base::host::{disk, named};
use crate::base::words::{self, count};
use crate::submit;
use crate::submit::grow::{self, Diff};
use crate::sweep::status::Status;
use crate::sweep::tree::damage;
use crate::sweep::tree::{Identity, Tree};
pub(super) use forms::object;
use forms::{MOST_CELLS, Shown, check_columns, csv_row, jsonl_row};

/// How a table is written
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns for people
    Table,
    /// Comma-separated values with a head line
    Csv,
    /// One JSON object a line
    Jsonl,
    /// A table of Markdown
    Markdown,
    /// Parquet: columns with types, lists and tables as such, the data dictionary in the metadata
    Parquet,
    /// Arrow (IPC file, Feather): the same columns, for programs on this machine
    Arrow,
    /// A SQLite database: the rows as a table, and the data dictionary as another
    Sqlite,
    /// One JSON object a line, as recorded: parameters nested, the result whole, why and how a trial failed
    Records,
}

impl Format {
    /// The form with types that it is.
    fn form(self) -> Option<Form> {
        match self {
            Self::Parquet => Some(Form::Parquet),
            Self::Arrow => Some(Form::Arrow),
            Self::Sqlite => Some(Form::Sqlite),
            _ => None,
        }
    }
}

/// The endings of files that say how they are written.
const ENDINGS: [(&str, Format); 13] = [
    ("csv", Format::Csv),
    ("jsonl", Format::Jsonl),
    ("ndjson", Format::Jsonl),
    ("md", Format::Markdown),
    ("markdown", Format::Markdown),
    ("parquet", Format::Parquet),
    ("pq", Format::Parquet),
    ("arrow", Format::Arrow),
    ("feather", Format::Arrow),
    ("sqlite", Format::Sqlite),
    ("sqlite3", Format::Sqlite),
    ("db", Format::Sqlite),
    ("txt", Format::Table),
];

/// Make one table of all results: a row a trial with its state, parameters and metrics
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns ('results/*'), by default those in results/, else the last one; sets of trials
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Write to this file; its ending (.csv, .jsonl, .md, .parquet, .arrow, .sqlite, .txt) sets the format
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to write it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Only the trials of the plan as it is now, in its order
    #[arg(long)]
    planned: bool,
    /// Learning curves: a row a metric line instead of a row a trial
    #[arg(long)]
    steps: bool,
    /// A row an attempt: where and when it ran, how it ended, what it asked for and used
    #[arg(long, conflicts_with = "steps")]
    attempts: bool,
    #[command(flatten)]
    statistics: CurveStatistics,
    /// Only these columns, in this order: `trial,lr,loss`; without names, as the last word, list the columns and their meanings
    #[arg(long, value_name = "NAMES", num_args = 0..=1, value_delimiter = ',', action = clap::ArgAction::Append)]
    columns: Option<Vec<String>>,
    /// Sort by this column, or by several: `state,-loss`; `-` before a name turns the order round
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', allow_hyphen_values = true)]
    sort: Vec<String>,
    /// Show all columns in the aligned table, also those in which nothing differs
    #[arg(long)]
    all: bool,
    /// Write a run for each trial into this folder, for TensorBoard: learning curves, parameters and final metrics
    ///
    /// The runs that an earlier call has written there are replaced, and nothing else.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "format", "steps", "attempts", "columns", "sort", "all", "safe_csv"])]
    tensorboard: Option<PathBuf>,
    /// Put `'` before texts of a CSV file that a spreadsheet would take for a formula (=, +, -, @, tab)
    #[arg(long)]
    safe_csv: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

impl Args {
    /// How the table is written.
    fn format(&self) -> Result<Format, Fault> {
        let ending = self.output.as_ref().and_then(|path| path.extension()?.to_str());
        let format = match (self.format, ending) {
            (Some(format), _) => format,
            (None, None) => Format::Table,
            (None, Some(ending)) => {
                let known = ENDINGS.iter().find(|(own, _)| *own == ending);
                known.map(|(_, format)| *format).ok_or_else(|| {
                    let sentence = format!("`.{ending}` says nothing about how to write a table");
                    let endings = ".csv, .jsonl, .md, .parquet, .arrow, .sqlite or .txt";
                    Fault::request(sentence)
                        .hint(format!("end the name in {endings}, or say --format"))
                })?
            }
        };
        if self.safe_csv && format != Format::Csv {
            return Err(Fault::request("`--safe-csv` is about CSV files"));
        }
        if format.form().is_some() && self.output.is_none() && io::stdout().is_terminal() {
            return Err(Fault::request(format!("{format:?} is no text for a terminal"))
                .hint("name a file: `-o results.parquet`"));
        }
        Ok(format)
    }
}

impl Args {
    /// Refuses a sweep that is neither named nor here, if its results go into files.
    fn check_here(&self, named: &Named, context: &Context) -> Result<()> {
        match self.output.is_some() || self.tensorboard.is_some() {
            true => sweeps::check_here(&named.sweeps, context),
            false => Ok(()),
        }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named = args.select.read(&args.named)?;
    args.check_here(&named, context)?;
    if let Some(Format::Records) = args.format {
        let tables_alone = [
            ("steps", args.steps),
            ("attempts", args.attempts),
            ("columns", args.columns.is_some()),
            ("sort", !args.sort.is_empty()),
            ("all", args.all),
            ("curve", !args.statistics.curve.is_empty()),
        ];
        if let Some((option, _)) = tables_alone.iter().find(|(_, is_given)| *is_given) {
            return Err(Fault::request(format!("`--{option}` is about tables, not records")).into());
        }
        return records(args, context);
    }
    let format = args.format()?;
    if format.form().is_some() && context.typed.is_none() {
        let instead = "write another format: `--format csv`";
        return Err(become_worker("table", "writes Parquet, Arrow and SQLite", instead));
    }
    if !args.statistics.curve.is_empty() && (args.steps || args.attempts) {
        return Err(Fault::request("`--curve` is about the table of trials").into());
    }
    let meant = || meant(&named, args.planned, args.offline, context);
    if let Some(dir) = &args.tensorboard {
        return event_files(&meant()?, dir, context);
    }
    let mut sheet = if args.steps {
        Sheet::of_steps(Steps::new(meant()?)?)
    } else if args.attempts {
        Sheet::of_attempts(Attempts::new(meant()?))
    } else {
        let curves = &args.statistics.curve;
        Sheet::of_trials(table(&named, args.planned, args.offline, curves, context)?)
    };
    match args.columns.as_deref() {
        Some([]) => return dictionary(args, &sheet, format, context),
        names => {
            sheet.sort(&args.sort)?;
            names.map(|names| sheet.choose(names)).transpose()?;
        }
    }
    let rows = write(args, "row", context, |out| match (format.form(), context.typed) {
        (Some(form), Some(write)) => {
            check_columns(&sheet.names())?;
            write(&sheet, form, out)
        }
        _ => write_text(args, &sheet, format, out),
    })?;
    if rows == 0 {
        context.out.say(match (args.steps, args.attempts) {
            (true, _) => "no rows: no trial that is meant has logged metrics",
            (_, true) => "no rows: no trial that is meant has begun",
            _ => "no rows: no trial is meant",
        });
    }
    Ok(tell(&sheet.sources, context))
}

/// Writes event files of TensorBoard.
fn event_files(all: &[Status], dir: &Path, context: &Context) -> Result<u8> {
    sweeps::outside(dir)?;
    let runs = collect::tensorboard::write(all, dir)?;
    let dir = disk::named(dir);
    context.out.say(&match runs {
        0 => format!("no runs in {dir}: no trial that is meant has begun"),
        n => format!("{} in {dir}: tensorboard --logdir {dir}", count(n as u64, "run")),
    });
    Ok(tell(&all.iter().map(Source::of).collect::<Vec<Source>>(), context))
}

/// Writes the data dictionary: for each column its meaning, unit and source.
fn dictionary(args: &Args, sheet: &Sheet, format: Format, context: &Context) -> Result<u8> {
    let head = ["column", "meaning", "unit", "source"];
    let cells = |column: &Column| {
        let unit = column.unit.unwrap_or_default();
        [&*column.name, &*column.meaning, unit, column.source].map(str::to_owned)
    };
    let rows: Vec<Vec<String>> =
        sheet.columns.iter().map(|column| cells(column).to_vec()).collect();
    let names = head.map(str::to_owned);
    let write_rows = |out: &mut dyn Write| -> Result<usize> {
        match format {
            Format::Table => out.write_all(aligned(&names, &rows).as_bytes())?,
            Format::Markdown => {
                forms::markdown_row(out, names.iter().map(Cow::from))?;
                forms::markdown_line(out, names.len())?;
                rows.iter()
                    .try_for_each(|row| forms::markdown_row(out, row.iter().map(Cow::from)))?;
            }
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(out);
                let all = std::iter::once(names.as_slice()).chain(rows.iter().map(Vec::as_slice));
                for row in all {
                    csv_row(&mut csv, row.iter().map(|cell| Shown::text(cell)), args.safe_csv)?;
                }
                csv.flush()?;
            }
            Format::Jsonl => {
                for row in &rows {
                    let cells = head.iter().zip(row).map(|(name, cell)| {
                        let value = if cell.is_empty() { Value::Null } else { json!(cell) };
                        ((*name).to_owned(), value)
                    });
                    out.write_all(&crate::sweep::tree::to_json_line(&Value::Object(
                        cells.collect(),
                    ))?)?;
                }
            }
            Format::Parquet | Format::Arrow | Format::Sqlite | Format::Records => {
                return Err(Fault::request(format!(
                    "{format:?} has the meanings of columns beside the rows"
                ))
                .hint("list them as text: `--format table`, `csv`, `jsonl` or `markdown`")
                .into());
            }
        }
        Ok(rows.len())
    };
    write(args, "column", context, write_rows)?;
    Ok(tell(&sheet.sources, context))
}

/// Writes a table as text.
fn write_text(args: &Args, sheet: &Sheet, format: Format, out: &mut dyn Write) -> Result<usize> {
    let names = sheet.names();
    let columns = &sheet.columns;
    let texts = |row: &Line<'_>| -> Vec<String> {
        let cells = columns.iter().enumerate();
        cells.map(|(c, column)| Shown::of(column, row.get(c)).into_text()).collect()
    };
    let rows;
    match format {
        Format::Table => {
            let wide = args.all || args.output.is_some() || !io::stdout().is_terminal();
            if let Some(table) = sheet.whole_table() {
                check_columns(&names)?;
                out.write_all(people(table, &all_rows(table), wide).as_bytes())?;
                return Ok(table.rows.len());
            }
            let mut cells: Vec<Vec<String>> = Vec::new();
            sheet.each(&mut |row| {
                if cells.len() * columns.len() > MOST_CELLS {
                    return Err(forms::too_large().into());
                }
                cells.push(texts(&row));
                Ok(())
            })?;
            rows = cells.len();
            out.write_all(aligned(&names, &cells).as_bytes())?;
        }
        Format::Csv => {
            rows = write_csv(sheet, args.safe_csv, out)?;
        }
        Format::Markdown => {
            check_columns(&names)?;
            forms::markdown_row(out, names.iter().map(Cow::from))?;
            forms::markdown_line(out, names.len())?;
            let form = |lines: &[Line<'_>], out: &mut Vec<u8>| {
                lines.iter().try_for_each(|row| {
                    forms::markdown_row(out, texts(row).into_iter().map(Cow::from))
                })
            };
            rows = sheet.write(&form, out)?;
        }
        Format::Jsonl | Format::Records | Format::Parquet | Format::Arrow | Format::Sqlite => {
            rows = write_jsonl(sheet, out)?;
        }
    }
    Ok(rows)
}

/// Writes a table as CSV. Returns its rows.
fn write_csv(sheet: &Sheet, safe: bool, out: &mut dyn Write) -> Result<usize> {
    let names = sheet.names();
    check_columns(&names)?;
    let mut csv = csv::Writer::from_writer(&mut *out);
    csv_row(&mut csv, names.iter().map(|name| Shown::text(name)), safe)?;
    csv.flush()?;
    drop(csv);
    let form = |lines: &[Line<'_>], out: &mut Vec<u8>| {
        let mut csv = csv::Writer::from_writer(out);
        for row in lines {
            let cells = sheet.columns.iter().enumerate();
            let cells = cells.map(|(c, column)| Shown::of(column, row.get(c)).for_csv());
            csv_row(&mut csv, cells, safe)?;
        }
        Ok(csv.flush()?)
    };
    sheet.write(&form, out)
}

/// Writes a table as JSON lines. Returns its rows.
fn write_jsonl(sheet: &Sheet, out: &mut dyn Write) -> Result<usize> {
    let form = |lines: &[Line<'_>], out: &mut Vec<u8>| {
        lines.iter().try_for_each(|row| jsonl_row(out, &sheet.columns, row))
    };
    sheet.write(&form, out)
}

/// Writes a table as an archive has it: as CSV, or as JSON lines if it has too many columns for that. Returns its name.
pub(super) fn write_archived(sheet: &Sheet, out: &mut dyn Write) -> Result<&'static str> {
    if check_columns(&sheet.names()).is_err() {
        return write_jsonl(sheet, out).map(|_| "table.jsonl");
    }
    write_csv(sheet, false, out).map(|_| "table.csv")
}

/// How the trials stand that are meant; the scheduler is asked, if it may be.
pub(super) fn stand(named: &Named, offline: bool, context: &Context) -> Result<Vec<Status>> {
    let mut all = read(&named.sweeps, offline, context)?;
    named.wanted.narrow(&mut all)?;
    Ok(all)
}

/// As [`stand`], of all trials of some sweeps.
pub(super) fn read(sweeps: &[String], offline: bool, context: &Context) -> Result<Vec<Status>> {
    of_found(sweeps::find(sweeps, context)?, offline, context)
}

/// As [`read`].
pub(super) fn of_found(
    sweeps: Vec<(Tree, Identity)>,
    offline: bool,
    context: &Context,
) -> Result<Vec<Status>> {
    let site = context.site()?;
    let whom = (!offline).then_some((&site, &context.vars));
    sweeps::each_readable(sweeps, context, |(tree, identity)| {
        crate::sweep::status::read(tree, identity, whom)
    })
}

/// The trials of a sweep in the order of its plan as it is now: the plan that is named, else that of the sweep's folder.
/// `None` stands for a trial that the sweep does not have yet.
fn places(status: &Status, named: &Named) -> Result<Vec<Option<u64>>> {
    let mut plan = None;
    for path in named.sweeps.iter().map(Path::new).filter(|path| path.is_file()) {
        let source = submit::Source::read(path)?;
        let (_, identity) = Tree::open(source.tree().dir())?;
        if identity.token == status.identity.token {
            plan = Some(source);
        }
    }
    let plan = plan.map_or_else(|| submit::Source::read(&status.tree.plan()), Ok)?;
    Ok(grow::diff(&status.tree, &plan)?.places)
}

/// As [`stand`]; with `planned` only the trials of the plan as it is now.
pub(super) fn meant(
    named: &Named,
    planned: bool,
    offline: bool,
    context: &Context,
) -> Result<Vec<Status>> {
    if planned { self::planned(named, offline, context) } else { stand(named, offline, context) }
}

/// The table of the trials that are meant; `planned` as for [`meant`].
pub(super) fn table(
    named: &Named,
    planned: bool,
    offline: bool,
    curves: &[Statistic],
    context: &Context,
) -> Result<Table> {
    if planned || !named.wanted.is_all() {
        return collect::collect_with(meant(named, planned, offline, context)?, curves);
    }
    gathered(sweeps::find(&named.sweeps, context)?, offline, curves, context)
}

/// The table of all trials of sweeps.
pub(super) fn gathered(
    sweeps: Vec<(Tree, Identity)>,
    offline: bool,
    curves: &[Statistic],
    context: &Context,
) -> Result<Table> {
    let site = context.site()?;
    let whom = (!offline).then_some((&site, &context.vars));
    let all = sweeps::each_readable(sweeps, context, |(tree, identity)| {
        collect::gather::gather(tree, identity, whom, curves)
    })?;
    collect::gather::joined(all)
}

/// As [`stand`], of the trials of the plan as it is now, in its order. Trials that the sweep does not have yet are
/// reported.
fn planned(named: &Named, offline: bool, context: &Context) -> Result<Vec<Status>> {
    let mut all = stand(named, offline, context)?;
    for status in &mut all {
        let places = places(status, named)?;
        let new = places.iter().filter(|place| place.is_none()).count() as u64;
        if new > 0 {
            let are = if new == 1 { "is" } else { "are" };
            context.out.say(&format!(
                "{}: {} of the plan {are} not in the sweep yet",
                status.tree.dir().display(),
                count(new, "trial")
            ));
        }
        status.arrange(&places.into_iter().flatten().collect::<Vec<u64>>());
    }
    Ok(all)
}

/// Most damaged files of a sweep that are named.
const MOST_WARNINGS: usize = 20;

/// Says what could not be read, and returns the exit code.
pub(super) fn tell(sources: &[Source], context: &Context) -> u8 {
    for source in sources {
        let dir = source.dir.display();
        let (damage, missing) = damage::without_missing(&source.damage, &source.dir);
        if let Some(words) = missing {
            context.out.warn(&format!("{dir}: {words}"));
        }
        for damaged in damage.iter().take(MOST_WARNINGS) {
            context.out.warn(&format!("{dir}: {damaged}; left out"));
        }
        if damage.len() > MOST_WARNINGS {
            let more = count((damage.len() - MOST_WARNINGS) as u64, "further file");
            context.out.warn(&format!("{dir}: {more} with damaged lines; left out"));
        }
        if !source.unread.is_empty() {
            let lines = source.unread.iter().map(|(_, lines)| lines).sum();
            let trials: Vec<String> =
                source.unread.iter().take(5).map(|(trial, _)| trial.to_string()).collect();
            let more = if source.unread.len() > trials.len() { ", ..." } else { "" };
            context.out.warn(&format!(
                "{dir}: {} left out that could not be read (trials {}{more})",
                unread_words(lines),
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
    u8::from(context.out.has_left_out() || sources.iter().any(|source| !source.damage.is_empty()))
}

/// Writes to the file that is named, else to standard output; `fill` returns how many rows it wrote, and so does this.
fn write(
    args: &Args,
    of: &str,
    context: &Context,
    fill: impl FnOnce(&mut dyn Write) -> Result<usize>,
) -> Result<usize> {
    let Some(path) = &args.output else {
        let of_json = matches!(args.format, Some(Format::Jsonl | Format::Records));
        let mut out = io::BufWriter::with_capacity(1 << 16, context.out.stream(of_json));
        let rows = fill(&mut out)?;
        out.flush()?;
        return Ok(rows);
    };
    let rows = named::fill(path, fill)?;
    context.out.say(&format!("{} in {}", count(rows as u64, of), path.display()));
    Ok(rows)
}

/// Trials as they are recorded. Those of a plan that the sweep does not have yet are `null`.
fn records(args: &Args, context: &Context) -> Result<u8> {
    let named = args.select.read(&args.named)?;
    if args.planned && !named.wanted.is_all() {
        let sentence = "`--planned` is about all trials of the plan, and not about a set";
        return Err(Fault::request(sentence)
            .hint("`--format jsonl` writes the table of a set")
            .into());
    }
    let all = stand(&named, args.offline, context)?;
    let orders = all.iter().map(|status| match args.planned {
        true => Ok(Some(places(status, &named)?)),
        false => Ok(None),
    });
    let orders = orders.collect::<Result<Vec<Option<Vec<Option<u64>>>>>>()?;
    write(args, "trial", context, |out| {
        let mut rows = 0;
        for (status, order) in all.iter().zip(&orders) {
            let sweep = (all.len() > 1).then_some(status.identity.name.as_str());
            rows += collect::whole::lines_of(status, sweep, order.as_deref(), |line| {
                out.write_all(line)
            })?;
        }
        Ok(rows)
    })?;
    Ok(tell(&all.iter().map(Source::of).collect::<Vec<Source>>(), context))
}

/// After a local run: the table where it is short, and whether all went well.
pub(super) fn after_local(tree: &Tree, diff: &Diff, context: &Context) -> Result<u8> {
    let (tree, identity) = Tree::open(tree.dir())?;
    let status = crate::sweep::status::read(tree, identity, None)?;
    let next = next::after(&status);
    let table = collect::collect(vec![status])?;
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
    next.lines().for_each(|line| context.out.say(line));
    Ok(tell(&table.sources, context).max(u8::from(bad > 0)))
}

fn all_rows(table: &Table) -> Vec<usize> {
    (0..table.rows.len()).collect()
}

/// Columns of what trials have used, for files: `hpcsweep usage` shows them to people.
const USED: [&str; 4] = ["peak_memory", "cpu_s", "read_bytes", "written_bytes"];

/// The aligned table. The narrow one leaves out columns that say nothing: empty, or of use to machines.
fn people(table: &Table, rows: &[usize], wide: bool) -> String {
    let cell = |row: usize, c: usize| table.cell(&table.rows[row], c);
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
                    Some(f)
                        if matches!(value, Cell::Float(_)) && c >= table.first_metric && !wide =>
                    {
                        words::Figures::EXACT.digits(6).of(f)
                    }
                    Some(f) if table.columns[c].ends_with("duration_s") && !wide => {
                        format!("{f:.3}")
                    }
                    _ if wide => value.text().into_owned(),
                    _ => words::short(&value.text(), 60),
                }
            };
            columns.iter().map(shown).collect()
        })
        .collect();
    aligned(&head, &cells)
}
