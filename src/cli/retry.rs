//! `hpcsweep retry`: trials that ended without success run again, as their sweep was submitted last.

use anyhow::Result;

use super::change::Change;
use super::chosen::choose;
use super::rehearsal::{self, Asked};
use super::select::Select;
use super::{Context, pull, submit, sweeps};
use crate::submit::arrays::batch;
use crate::submit::last::{self, Way};
use crate::submit::{local, pilots};

/// Run trials again that ended without success, with other requests if need be
///
/// The trials go where their sweep was submitted last, with the plan of that submission. Chains continue where they broke. Trials
/// that are queued or running are left alone, and nothing else of the plan is submitted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sweep's folder or plan, by default the one of this folder; sets of its trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    #[command(flatten, next_help_heading = "Requests of the retried trials, this time")]
    change: Change,
    /// On this machine: at most this many chains at once
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// At most this many elements of the sweep at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,
    /// Run the code as it is now, and not the snapshot of each trial
    #[arg(long)]
    current_code: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: write JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let named = args.select.read(&args.named)?;
    let change = args.change.read()?.unwrap_or_default();
    let (tree, identity) = sweeps::one_to_change(&named.sweeps, &site, context)?;
    tree.trust_to_change()?;
    let way = Way::of(&tree)?;
    let (source, note) = last::source(&tree)?;
    note.iter().for_each(|note| context.out.say(note));
    let chosen = choose(&tree, &identity, &source, &named.wanted, context)?;
    if !args.dry_run {
        chosen.say_left(&identity.name, context);
    }
    let again = chosen.again(&change, true)?.with_current_code(args.current_code);
    let here = local::LocalOptions {
        jobs: [args.jobs, args.max_running].into_iter().flatten().min().map(|n| n as usize),
        retry: again.clone(),
        repeats: true,
    };
    let agents = pilots::PilotOptions {
        max_running: args.max_running,
        retry: again.clone(),
        ..pilots::PilotOptions::default()
    };
    let templates = source.templates(None, &site)?;
    let max_running = args.max_running;
    if args.dry_run {
        let (pull, kind) = match way {
            Way::Agents(kind) => (Some(agents), kind),
            Way::Arrays(kind) => (None, Some(kind)),
            Way::Here => (None, None),
        };
        let kind = kind.unwrap_or(crate::plan::site::SchedulerKind::Local);
        let asked = Asked { pull, here, max_running, json: args.json };
        return rehearsal::show(&source, &site, kind, &templates, &asked, context).map(|()| 0);
    }
    match way {
        Way::Arrays(kind) => {
            let options = batch::ArrayOptions {
                max_running: max_running.map(u64::from),
                retry: again,
                ..Default::default()
            };
            submit::to_scheduler(&options, &source, &site, &templates, kind, context)
        }
        Way::Here => submit::run_here(&here, &source, &site, &templates, context),
        Way::Agents(Some(kind)) => pull::submit(&source, &site, &templates, &agents, kind, context),
        Way::Agents(None) => pull::enqueue(&source, &site, &templates, &agents, context),
    }
}
