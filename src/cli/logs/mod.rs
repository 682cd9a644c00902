//! `hpcsweep logs`: what trials printed.

mod follow;
pub(super) mod output;

use std::path::Path;

use anyhow::Result;

use super::select::{Named, Select};
use super::{Context, sweeps};
use crate::base::fault::Fault;
use crate::base::idset::IdSet;
use crate::submit::arrays::wave::Waves;
use crate::sweep::status::Status;
use crate::sweep::tree::{Identity, Tree, records, table};
pub(super) use output::of_jobs;
use output::{Output, each};

/// Print what a trial printed
///
/// Of one trial, all of it; of a set, a heading and the last lines of each. With --follow, exit code 1 when a trial has ended
/// without success.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trial's number, or a set of trials (`3-7,12`); the sweep, by default that of this folder, else the last one submitted
    #[arg(value_name = "IDS|SWEEP")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Print what is added, until the trials have ended for good; their next attempts too
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines of each trial; by default all of one, and 10 of each of a set
    #[arg(short = 'n', long, value_name = "LINES")]
    lines: Option<usize>,
}

/// The lines of each trial of a set, unless told otherwise.
const LINES: usize = 10;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named = args.select.read(&args.named)?;
    let (tree, identity) = sweeps::one(&named.sweeps, context)?;
    if named.wanted.is_all() {
        let sentence = format!("which trials of {}?", identity.name);
        return Err(Fault::request(sentence)
            .hint("name one (`hpcsweep logs 3`), several (`hpcsweep logs 3-7,12`), or `--failed`")
            .into());
    }
    let by_number = named.wanted.ids.as_ref().filter(|_| named.wanted.is_by_number());
    let one = by_number.filter(|ids| ids.len() == 1).and_then(|ids| ids.iter().next());
    if let Some(one) = one {
        table::find(&tree, u64::from(one))?;
    }
    if args.follow {
        return follow::run(tree, identity, &named, args.lines, context);
    }
    match one {
        Some(trial) => whole(tree, identity, u64::from(trial), args.lines, context),
        None => set(tree, identity, &named, args.lines.unwrap_or(LINES), context),
    }
}

/// Prints all that one trial printed, or its last lines.
fn whole(
    tree: Tree,
    identity: Identity,
    trial: u64,
    lines: Option<usize>,
    context: &Context,
) -> Result<u8> {
    let (record, _) = records::of_trial(&tree, trial)?;
    let own = Output::of(&tree, trial, &record)?;
    // The output of the scheduler and the launcher; there is a file only if they printed something.
    let of_jobs = of_jobs(&tree, &Waves::read(&tree)?, trial)?;
    match lines {
        Some(lines) => context.out.raw(&own.tail(lines)?),
        None => own.print(|piece| context.out.raw(piece))?,
    }
    for path in &of_jobs {
        print_job(path, lines, context)?;
    }
    if record.attempts.is_empty() && of_jobs.is_empty() {
        let name = identity.name.clone();
        let site = context.site()?;
        let status = crate::sweep::status::read(tree, identity, Some((&site, &context.vars)))?;
        let standing = status.trials().find(|(row, _)| row.id == trial);
        let standing = standing.map_or_else(String::new, |(_, standing)| standing.words());
        let sentence = format!("trial {trial} of {name} has not begun: {standing}");
        return Err(Fault::request(sentence).into());
    }
    if own.is_left_out {
        context.out.say(&output::left_out(&trial.to_string(), false));
    } else if of_jobs.is_empty() && own.is_empty()? {
        context.out.say(&format!("trial {trial} has printed nothing"));
    }
    Ok(0)
}

fn print_job(path: &Path, lines: Option<usize>, context: &Context) -> Result<()> {
    context.out.say(&format!("the job's own output ({}):", path.display()));
    match lines {
        Some(lines) => context.out.raw(&output::tail_of(path, lines)?),
        None => each(path, |piece| context.out.raw(piece))?,
    }
    Ok(())
}

/// Prints the last lines of each trial of a set below a heading.
fn set(
    tree: Tree,
    identity: Identity,
    named: &Named,
    lines: usize,
    context: &Context,
) -> Result<u8> {
    let mut status = named.status(tree, identity, context)?;
    named.wanted.narrow(std::slice::from_mut(&mut status))?;
    if status.rows.is_empty() {
        context.out.say(&format!("{}: no trial is meant", status.identity.name));
        return Ok(0);
    }
    let waves = Waves::read(&status.tree)?;
    let (mut silent, mut left_out) = (Vec::new(), Vec::new());
    let mut gap = "";
    for (row, _) in status.trials() {
        let record = status.records.get(&row.id).cloned().unwrap_or_default();
        let own = Output::of(&status.tree, row.id, &record)?;
        if own.is_left_out {
            left_out.push(row.id);
            continue;
        }
        let own = own.tail(lines)?;
        let of_jobs = of_jobs(&status.tree, &waves, row.id)?;
        if own.is_empty() && of_jobs.is_empty() {
            silent.push(row.id);
            continue;
        }
        context.out.page(&format!("{gap}{}\n", heading(&status, row.id)));
        gap = "\n";
        print_lines(&own, context);
        for path in &of_jobs {
            context.out.page(&format!("the job's own output ({}):\n", path.display()));
            print_lines(&output::tail_of(path, lines)?, context);
        }
    }
    if !left_out.is_empty() {
        let are_many = left_out.len() > 1;
        let ids = IdSet::of_trials(left_out).to_string();
        context.out.say(&output::left_out(&ids, are_many));
    }
    if !silent.is_empty() {
        let trials = if silent.len() == 1 { "trial" } else { "trials" };
        let ids = IdSet::of_trials(silent);
        context.out.say(&format!("nothing was printed by {trials} {ids}"));
    }
    Ok(0)
}

/// Prints lines, of which the last may lack its end.
fn print_lines(lines: &[u8], context: &Context) {
    context.out.raw(lines);
    if lines.last().is_some_and(|last| *last != b'\n') {
        context.out.raw(b"\n");
    }
}

/// What stands above the output of a trial.
fn heading(status: &Status, trial: u64) -> String {
    let standing = status.trials().find(|(row, _)| row.id == trial);
    let words = standing.map_or_else(String::new, |(_, standing)| standing.words());
    format!("==> trial {trial} {words} <==")
}
