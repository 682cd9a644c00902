//! `hpcsweep plot`: one picture of a sweep, for a paper or for the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use ratatui::crossterm::terminal;

use super::best::{Repeats, meant};
use super::select::Select;
use super::sibling::become_worker;
use super::{Context, collect, sweeps};
use crate::answers::collect::{self as results, Goal, Table};
use crate::answers::plot::term::Room;
use crate::answers::plot::{self, Band, Figure, Form, Size, Wish};
use crate::base::fault::Fault;
use crate::base::host::named;
use crate::base::words::ticked;

/// What a picture shows
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Learning curves: mean and band of a metric along its steps, a line for each setting
    Curves,
    /// The mean of a metric over two parameters
    Heatmap,
    /// Which parameters matter for a metric, as `hpcsweep effects` finds it
    Effects,
    /// A time, a cost or a metric along a parameter such as ranks, on logarithmic axes
    Scaling,
    /// The distribution of a metric for each value of a parameter
    Box,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Curves => "curves",
            Self::Heatmap => "heatmap",
            Self::Effects => "effects",
            Self::Scaling => "scaling",
            Self::Box => "box",
        }
    }
}

/// Draw a picture for a paper: curves, heat map, effects, scaling or box plot
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").multiple(false))]
pub(crate) struct Args {
    /// What to draw
    #[arg(value_enum)]
    kind: Kind,
    /// Sweep folders, plans or patterns, by default those in results/, else the last one; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Write to this file; its ending (.svg, .png, .pdf) sets the format
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw in the terminal
    #[arg(long, conflicts_with_all = ["output", "width", "height"])]
    term: bool,
    /// The metric: any column of numbers; of `scaling` by default the duration
    #[arg(short, long)]
    metric: Option<String>,
    /// The least is best: its settings have colours, its cell is marked
    #[arg(long, group = "goal")]
    min: bool,
    /// The greatest is best
    #[arg(long, group = "goal")]
    max: bool,
    /// The parameter to the right, of `heatmap`, `scaling` and `box`
    #[arg(long, value_name = "AXIS")]
    x: Option<String>,
    /// The parameter upwards, of `heatmap`
    #[arg(long, value_name = "AXIS")]
    y: Option<String>,
    #[command(flatten)]
    repeats: Repeats,
    /// What to show around the means of `curves` and `scaling`; by default `sd`
    #[arg(long, value_enum)]
    band: Option<Band>,
    /// The function whose trials are drawn, in a sweep of functions; by default that of its plan
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// A logarithmic axis to the right
    #[arg(long)]
    log_x: bool,
    /// A logarithmic axis upwards, of `heatmap` logarithmic colours
    #[arg(long)]
    log_y: bool,
    /// A text above the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// A name for the axis to the right
    #[arg(long, value_name = "TEXT")]
    x_label: Option<String>,
    /// A name for the axis upwards, of `heatmap` for that of the metric
    #[arg(long, value_name = "TEXT")]
    y_label: Option<String>,
    /// The width: millimetres, or `3.3in`, `8.5cm`, `240pt`
    #[arg(long, value_name = "LENGTH", default_value = "85mm", value_parser = length)]
    width: f64,
    /// The height; by default what suits the picture
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    height: Option<f64>,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

/// Millimetres of an inch, and points.
const INCH: (f64, f64) = (25.4, 72.0);

/// The lengths that a picture may have, in points: 10 mm to 2 m.
const LENGTHS: std::ops::RangeInclusive<f64> = 10.0 / 25.4 * 72.0..=2000.0 / 25.4 * 72.0;

/// A length in points.
fn length(word: &str) -> Result<f64, String> {
    let units =
        [("mm", INCH.1 / INCH.0), ("cm", 10.0 * INCH.1 / INCH.0), ("in", INCH.1), ("pt", 1.0)];
    let unit = units.iter().find_map(|(unit, points)| Some((word.strip_suffix(unit)?, *points)));
    let (number, points) = unit.unwrap_or((word, units[0].1));
    match number.trim().parse::<f64>().map(|number| number * points) {
        Ok(points) if LENGTHS.contains(&points) => Ok(points),
        Ok(_) => Err("a picture is 10 mm to 2000 mm wide and high".to_owned()),
        Err(_) => {
            Err("write millimetres, or a length such as `85mm`, `8.5cm`, `3.3in` or `240pt`"
                .to_owned())
        }
    }
}

/// The endings of files that say how a picture is stored.
const ENDINGS: [(&str, Form); 3] = [("svg", Form::Svg), ("png", Form::Png), ("pdf", Form::Pdf)];

impl Args {
    /// How the picture is stored; `None` for the terminal.
    fn form(&self) -> Result<Option<Form>, Fault> {
        let Some(path) = &self.output else {
            return match self.term {
                true => Ok(None),
                false => Err(Fault::request("where is the picture to be drawn?").hint(format!(
                    "name a file, `-o {}.svg` (or .png, .pdf), or draw in the terminal: `--term`",
                    self.kind.word()
                ))),
            };
        };
        if path.is_dir() {
            let sentence = format!("`{}` is a folder", path.display());
            return Err(Fault::request(sentence)
                .hint(format!("name a file: `-o {}.svg`", self.kind.word())));
        }
        let ending = path
            .extension()
            .map(|ending| ending.to_string_lossy().into_owned())
            .unwrap_or_default();
        let known = ENDINGS.iter().find(|(own, _)| own.eq_ignore_ascii_case(&ending));
        known.map(|(_, form)| Some(*form)).ok_or_else(|| {
            let sentence = match ending.as_str() {
                "" => {
                    format!("`{}` has no ending that says how to store a picture", path.display())
                }
                ending => format!("`.{ending}` is no format of pictures"),
            };
            Fault::request(sentence).hint("end the name in .svg, .png or .pdf")
        })
    }

    /// Refuses options that say nothing about this kind of picture.
    fn check(&self) -> Result<(), Fault> {
        let given = [
            ("--x", self.x.is_some()),
            ("--y", self.y.is_some()),
            ("--by", !self.repeats.by.is_empty()),
            ("--over", !self.repeats.over.is_empty()),
            ("--band", self.band.is_some()),
            ("--log-x", self.log_x),
            ("--log-y", self.log_y),
        ];
        let (takes, hint): (&[&str], _) = match self.kind {
            Kind::Curves => (
                &["--by", "--over", "--band", "--log-x", "--log-y"],
                "curves are drawn along their steps; `--by` names what tells lines apart",
            ),
            Kind::Heatmap => {
                (&["--x", "--y", "--log-y"], "each cell is the mean of all its trials")
            }
            Kind::Effects => (&["--by", "--over"], "its bars are parts of the variance"),
            Kind::Scaling => (
                &["--x", "--by", "--band"],
                "its axes are logarithmic, and what neither `--x` nor `--by` names is averaged over",
            ),
            Kind::Box => (&["--x", "--log-y"], "each box has all trials of its value"),
        };
        let odd: Vec<&str> = given
            .iter()
            .filter(|(option, is_given)| *is_given && !takes.contains(option))
            .map(|(option, _)| *option)
            .collect();
        if odd.is_empty() {
            return Ok(());
        }
        let say = if odd.len() == 1 { "says" } else { "say" };
        Err(Fault::request(format!("{} {say} nothing about `{}`", ticked(&odd), self.kind.word()))
            .hint(hint))
    }

    /// The column that is drawn.
    fn metric(&self) -> Result<&str, Fault> {
        match (&self.metric, self.kind) {
            (Some(metric), _) => Ok(metric),
            (None, Kind::Scaling) => Ok("duration_s"),
            (None, kind) => Err(Fault::request(format!("`{}` is drawn of a metric", kind.word()))
                .hint(
                    "name one, such as `--metric loss`; `hpcsweep collect --columns` lists them",
                )),
        }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let form = args.form()?;
    args.check()?;
    let metric = args.metric()?;
    if form.is_some() && context.draw.is_none() {
        return Err(become_worker("picture", "draws pictures", "draw in the terminal: `--term`"));
    }
    let named = args.select.read(&args.named)?;
    if args.output.is_some() {
        sweeps::check_here(&named.sweeps, context)?;
    }
    let sweeps = collect::stand(&named, args.offline, context)?;
    let table = results::table(&sweeps, &[])?;
    let code = collect::tell(&table.sources, context);
    check_finished(&table)?;
    let band = args.band.unwrap_or(Band::Sd);
    let wish = Wish {
        sweeps: &sweeps,
        table: &table,
        metric,
        goal: if args.max { Some(Goal::Max) } else { args.min.then_some(Goal::Min) },
        axes: [args.x.as_deref(), args.y.as_deref()],
        by: &args.repeats.by,
        over: &args.repeats.over,
        function: meant(&table, args.function.as_deref())?,
        // A terminal has no room for a band.
        band: if form.is_some() { band } else { Band::None },
        log: [args.log_x, args.log_y],
    };
    let mut figure = match args.kind {
        Kind::Curves => plot::curves(&wish)?,
        Kind::Heatmap => plot::heatmap(&wish)?,
        Kind::Effects => plot::shares(&wish)?,
        Kind::Scaling => plot::scaling(&wish)?,
        Kind::Box => plot::boxes(&wish)?,
    };
    rename(args, &mut figure);
    match (form, context.draw, &args.output) {
        (Some(form), Some(draw), Some(path)) => {
            let mut bytes = Vec::new();
            draw(&figure, Size { width: args.width, height: args.height }, form, &mut bytes)?;
            named::write(path, |out| out.write_all(&bytes))?;
            context.out.say(&format!("{} of `{metric}` in {}", args.kind.word(), path.display()));
            context.out.say(&format!("for its caption: {}", figure.caption.join("; ")));
        }
        _ => context.out.raw(plot::term::draw(&figure, room(context)).as_bytes()),
    }
    Ok(code)
}

/// There is no empty picture.
fn check_finished(table: &Table) -> Result<(), Fault> {
    let is_done = |row: &results::Trial| table.state(row) == "done";
    if table.rows.is_empty() || table.rows.iter().any(is_done) {
        return Ok(());
    }
    Err(Fault::request("no trial has finished: there is nothing to draw")
        .hint(format!("`hpcsweep status {}` shows how the trials stand", table.named())))
}

/// Gives a figure the texts of the command line.
fn rename(args: &Args, figure: &mut Figure) {
    figure.title.clone_from(&args.title);
    if let Some(label) = &args.x_label {
        figure.x.label.clone_from(label);
    }
    if let Some(label) = &args.y_label {
        match &mut figure.body {
            plot::Body::Cells { values, .. } => values.label.clone_from(label),
            _ => figure.y.label.clone_from(label),
        }
    }
}

/// Where output is no terminal, a page of text has this width; and the height of a picture in rows.
const PAPER: (usize, usize) = (80, 16);

/// Rows of a terminal that are not for the picture itself, and the least and the most rows of a picture.
const ROWS: (usize, [usize; 2]) = (12, [8, 24]);

/// The room of a picture in the terminal.
fn room(context: &Context) -> Room {
    let size = if io::stdout().is_terminal() { terminal::size().ok() } else { None };
    match size {
        Some((width, rows)) if width > 0 => Room {
            width: usize::from(width),
            height: usize::from(rows).saturating_sub(ROWS.0).clamp(ROWS.1[0], ROWS.1[1]),
            colour: context.vars.get("NO_COLOR").is_none_or(String::is_empty),
        },
        _ => {
            let columns = context.vars.get("COLUMNS").and_then(|columns| columns.parse().ok());
            Room {
                width: columns.unwrap_or(PAPER.0).clamp(20, 500),
                height: PAPER.1,
                colour: false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units() {
        for (word, points) in
            [("85", 240.94), ("85mm", 240.94), ("8.5 cm", 240.94), ("3in", 216.0), ("240pt", 240.0)]
        {
            assert!((length(word).unwrap() - points).abs() < 0.01, "{word}");
        }
        for word in ["", "mm", "wide", "9", "-5in", "1e9", "NaN", "inf"] {
            assert!(length(word).is_err(), "{word}");
        }
    }
}
