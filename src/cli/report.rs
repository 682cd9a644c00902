//! `hpcsweep report`: a sweep as one HTML file.

use std::path::PathBuf;

use anyhow::Result;

use super::select::Select;
use super::{Context, collect, sweeps};
use crate::collect::Goal;
use crate::fault::Fault;
use crate::host::{clock, disk};
use crate::report::Report;
use crate::words::{count, thousands};

/// Write a sweep as one HTML file: summary, charts, failures, cost, and the table
///
/// The file needs no network, and nothing but a browser: it can be sent or put beside a paper. It has the plan and names of
/// hosts, folders and jobs in it.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("goal").multiple(false))]
pub(crate) struct Args {
    /// A sweep folder or a plan, by default the one in results/, else the last one submitted; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// The metric by which trials are compared: any column of numbers; by default one is chosen by its name
    #[arg(short, long, requires = "goal")]
    metric: Option<String>,
    /// The least is best
    #[arg(long, group = "goal", requires = "metric")]
    min: bool,
    /// The greatest is best
    #[arg(long, group = "goal", requires = "metric")]
    max: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named = args.select.read(&args.named)?;
    let (tree, identity) = sweeps::one(&named.sweeps, context)?;
    if args.output.is_dir() {
        return Err(Fault::request(format!("`{}` is a folder", args.output.display()))
            .hint("name a file: `-o report.html`")
            .into());
    }
    let site = context.site()?;
    let whom = (!args.offline).then_some((&site, &context.vars));
    let mut status = crate::status::read(tree, identity, whom)?;
    named.wanted.narrow(std::slice::from_mut(&mut status))?;
    let goal = if args.max { Goal::Max } else { Goal::Min };
    let wish = args.metric.as_deref().map(|metric| (metric, goal));
    let report = Report::of(&status, wish, clock::now())?;
    let code = collect::tell(&report.source, context);
    disk::write_named(&args.output, |out| report.write(out))?;
    let shown = match report.shown < report.trials {
        true => format!(" ({} are in its table)", thousands(report.shown as u64)),
        false => String::new(),
    };
    let trials = count(report.trials as u64, "trial");
    context.out.say(&format!("{trials}{shown} in {}", args.output.display()));
    status.leave();
    Ok(code)
}
