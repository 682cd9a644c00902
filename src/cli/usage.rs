//! `hpcsweep usage`: requests, beside what was used.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::out::aligned;
use super::select::Select;
use super::{Context, sweeps};
use crate::answers::usage::{self, AllHours, Enough, Hours, Learnt, Report, Shape, Spread, Taken};
use crate::base::fault::Fault;
use crate::base::units::{memory_text, walltime_text};
use crate::base::words::count;
use crate::sweep::status::{self, Status};

/// Show what trials asked for and what they used, and which request would have been enough
///
/// Figures are of attempts that are done (of all, where none is), grouped by what they asked for; hours are those of all
/// attempts. Reads the results tree alone.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those of this folder, else the last one submitted; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// How much more than the most that was used would have been asked for
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2)]
    margin: f64,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    if !(1.0..=100.0).contains(&args.margin) {
        return Err(Fault::request(format!("`--margin {}` is not from 1 to 100", args.margin))
            .hint("1.2 asks for a fifth more than the most that was used")
            .into());
    }
    let named = args.select.read(&args.named)?;
    let found = sweeps::find(&named.sweeps, context)?;
    let last = found.len().saturating_sub(1);
    for (i, (tree, identity)) in found.into_iter().enumerate() {
        let mut taken = Taken::of(&tree)?;
        let mut status = match named.wanted.is_all() {
            true => status::gathered(tree, identity, None, &mut taken)?,
            false => named.status(tree, identity, context)?,
        };
        named.wanted.narrow(std::slice::from_mut(&mut status))?;
        status
            .damage
            .iter()
            .for_each(|damaged| context.out.leave_out(&format!("left out: {damaged}")));
        let report = usage::report(&taken.ended(&status), args.margin);
        if args.json {
            let told = Told {
                sweep: &status.identity.name,
                dir: status.tree.dir(),
                margin: args.margin,
                report: &report,
            };
            context.out.json(&told)?;
        } else {
            if i > 0 {
                context.out.data("");
            }
            context.out.page(&people(&status, &report, args.margin));
        }
        if i == last {
            status.leave();
        }
    }
    Ok(u8::from(context.out.has_left_out()))
}

#[derive(Serialize)]
struct Told<'a> {
    sweep: &'a str,
    dir: &'a Path,
    margin: f64,
    #[serde(flatten)]
    report: &'a Report,
}

fn people(status: &Status, report: &Report, margin: f64) -> String {
    let attempts: usize = report.shapes.iter().map(|shape| shape.attempts).sum();
    let (name, dir) = (&status.identity.name, status.tree.dir().display());
    let mut text = format!("{name}: {} that ended, in {dir}\n", count(attempts as u64, "attempt"));
    for shape in &report.shapes {
        text.push('\n');
        text.push_str(&of_shape(shape, margin));
    }
    if report.shapes.len() > 1 {
        text.push_str("\nall together\n");
        text.push_str(&hours(&report.hours));
    }
    if let Some(learnt) = report.learnt_memory {
        let Learnt { attempts, out_of_memory, wasted, wasted_by_first } = learnt;
        text.push_str(&format!(
            "memory learnt from other trials: {} wasted {} GB-hours, and would have wasted {} with `first`: {} saved\n",
            count(attempts as u64, "attempt"),
            figure(wasted),
            figure(wasted_by_first),
            figure(wasted_by_first - wasted),
        ));
        if out_of_memory > 0 {
            text.push_str(&format!("  {out_of_memory} of them ran out of memory\n"));
        }
    }
    for (joules, what) in [(report.gpu_energy_j, "GPUs"), (report.node_energy_j, "nodes")] {
        if let Some(joules) = joules {
            text.push_str(&format!("energy of {what}: {} kWh\n", figure(joules / 3.6e6)));
        }
    }
    text
}

fn of_shape(shape: &Shape, margin: f64) -> String {
    let mut text = format!("{}: {}", title(shape), count(shape.trials as u64, "trial"));
    if shape.attempts != shape.trials {
        text.push_str(&format!(", {}", count(shape.attempts as u64, "attempt")));
    }
    text.push_str(&format!(", {} done\n", shape.done));
    let head = ["", "requested", "median", "p95", "largest"].map(str::to_owned);
    let request = &shape.request;
    let all = request.nodes > 1;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |what: &str, asked: String, used: Option<Spread>, show: fn(f64) -> String| {
        let Some(Spread { median, p95, largest }) = used else { return };
        rows.push(vec![what.to_owned(), asked, show(median), show(p95), show(largest)]);
    };
    let asked_memory = request.memory_mib.map_or_else(dash, memory_text);
    let asked_time = request.walltime_s.map_or_else(dash, walltime_text);
    let memory = if all { "memory of a node" } else { "memory" };
    row("cores", shape.cores.to_string(), shape.busy_cores, figure);
    row(memory, asked_memory, shape.memory_mib, |mib| memory_text(mib.ceil() as u64));
    row("walltime", asked_time, shape.duration_s, |s| walltime_text(s.ceil() as u64));
    row("GPUs", shape.gpus.to_string(), shape.busy_gpus, figure);
    text.push_str(&indent(&aligned(&head, &rows)));
    text.push_str(&hours(&shape.hours));
    for (n, what) in
        [(shape.out_of_memory, "ran out of memory"), (shape.out_of_time, "reached the walltime")]
    {
        if n > 0 {
            text.push_str(&format!(
                "  {} {what}: what they need is more\n",
                count(n as u64, "attempt")
            ));
        }
    }
    if shape.unmeasured > 0 {
        let n = count(shape.unmeasured as u64, "attempt");
        text.push_str(&format!("  {n} without figures of usage\n"));
    }
    text.push_str(&lines(&shape.enough, margin));
    text
}

/// The request in one line.
fn title(shape: &Shape) -> String {
    let request = &shape.request;
    let mut parts = vec![count(shape.cores, "core")];
    if request.nodes > 1 {
        parts.insert(0, count(request.nodes.into(), "node"));
    }
    if shape.gpus > 0 {
        parts.push(count(shape.gpus, "GPU"));
    }
    parts.extend(request.memory_mib.map(memory_text));
    parts.extend(request.walltime_s.map(walltime_text));
    parts.extend(request.partition.clone());
    parts.join(", ")
}

fn hours(all: &AllHours) -> String {
    let head = ["hours", "requested", "used", "wasted"].map(str::to_owned);
    let row = |(what, hours): (&str, Hours)| {
        let Hours { requested, used, wasted } = hours;
        (requested > 0.0).then(|| {
            let share = 100.0 * wasted / requested;
            let wasted = format!("{} ({share:.0} %)", figure(wasted));
            vec![what.to_owned(), figure(requested), figure(used), wasted]
        })
    };
    let rows: Vec<Vec<String>> = [("core", all.core), ("GB", all.gib), ("GPU", all.gpu)]
        .into_iter()
        .filter_map(row)
        .collect();
    if rows.is_empty() { String::new() } else { indent(&aligned(&head, &rows)) }
}

/// The lines of a plan that would have been enough.
fn lines(enough: &Enough, margin: f64) -> String {
    let lines: Vec<String> = [
        enough.cpus_per_rank.map(|n| format!("cpus_per_rank = {n}")),
        enough.gpus_per_rank.map(|n| format!("gpus_per_rank = {n}")),
        enough.memory_mib.map(|mib| format!("memory = \"{}\"", memory_text(mib))),
        enough.walltime_s.map(|s| format!("walltime = \"{}\"", walltime_text(s))),
    ]
    .into_iter()
    .flatten()
    .map(|line| format!("    {line}\n"))
    .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "  would have been enough, with a margin of {margin}:\n    [resources]\n{}",
        lines.concat()
    )
}

fn dash() -> String {
    "-".to_owned()
}

/// Three digits that matter.
fn figure(n: f64) -> String {
    match n.abs() {
        0.0 => "0".to_owned(),
        0.0..0.1 => format!("{n:.3}"),
        0.1..10.0 => format!("{n:.2}"),
        10.0..100.0 => format!("{n:.1}"),
        _ => format!("{n:.0}"),
    }
}

fn indent(table: &str) -> String {
    table.lines().map(|line| format!("  {line}\n")).collect()
}
