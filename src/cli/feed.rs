//! `hpcsweep feed`: the feeder, a job of a sweep that submits what had no place in the queue before.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Context, ended, submit};
use crate::base::fault::{self, Fault, Kind};
use crate::base::host::access;
use crate::cluster::scheduler::job as scheduler;
use crate::run::worker::hooks::lost::Witness;
use crate::submit::again::Again;
use crate::submit::arrays::batch::{self, ArrayOptions, ArrayReport};
use crate::submit::auto;
use crate::submit::last;
use crate::sweep::tree::Tree;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::lock;
use crate::sweep::tree::waves::{self, Feeder};

/// Submit more of a sweep, from a job of it (job scripts call this)
///
/// Submits as many of the trials that were left as have a place in the queue now, and the job that goes on after it.
/// Where other jobs have all places, waits for some.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The sweep's folder
    #[arg(long, value_name = "DIR")]
    sweep: PathBuf,
    /// The number of its own array in the sweep
    #[arg(long, value_name = "N")]
    array: u32,
    /// The sweep's token when it was submitted
    #[arg(long)]
    token: Option<String>,
    /// The sweep belongs to a group
    #[arg(long, hide = true)]
    shared: bool,
}

/// Pauses between questions for a place: they double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// How long places are waited for if the job does not know its walltime.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    if args.shared {
        access::share_with_group();
    }
    let site = context.site()?;
    let (tree, identity) = Tree::open(&args.sweep)?;
    args.token.iter().try_for_each(|token| tree.is_of(token))?;
    tree.trust_to_change()?;
    let (feeder, walltime_s) = own(&tree, args.array, &identity.name)?;
    let told = scheduler::told_end(&context.vars).map(|end| end - crate::base::host::clock::now());
    let time = told.or(walltime_s.map(|seconds| seconds as f64));
    let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let until = Instant::now() + time.map_or(PATIENCE, |time| time * 2 / 3);
    let mut pause = PAUSES.0;
    loop {
        let journal = Journal::read(&tree)?;
        if journal.is_taken_back(args.array) || journal.on_hold.is_some() {
            context
                .out
                .say(&format!("{}: held or cancelled: nothing was submitted", identity.name));
            return Ok(0);
        }
        let Some(on) = journal.site else {
            return Err(Fault::request(format!("{} was never submitted", identity.name)).into());
        };
        let is_impatient = Instant::now() + pause > until;
        let (source, _) = last::source(&tree)?;
        let templates = source.templates(feeder.templates.as_deref(), &site)?;
        let options = ArrayOptions {
            max_running: feeder.max_running,
            retry: Again::repeated(&feeder.again).within(feeder.only()),
            templates: feeder.templates.clone(),
            feeder: Some(args.array),
            is_impatient,
            ..ArrayOptions::default()
        };
        let vars = &context.vars;
        let report =
            batch::submit(&source, &site, &templates, &options, on.scheduler, vars, |text| {
                context.out.say(text);
            });
        let what = match report {
            // It may be restarting; or somebody submits at this moment.
            Err(error)
                if !is_impatient
                    && (fault::exit_code(&error) == Kind::Scheduler.exit_code()
                        || lock::is_held(&tree)) =>
            {
                fault::sentence(&error)
            }
            Err(error) => return Err(error),
            Ok(ArrayReport { full: Some(room), left, .. }) if is_impatient => {
                return Err(submit::no_place(&room, &identity.name, left).into());
            }
            Ok(ArrayReport { full: Some(room), .. }) => format!("{room}: no place"),
            Ok(ArrayReport { is_early: true, .. }) => "jobs are about to end".to_owned(),
            Ok(report) => {
                ended::settle(&tree, Witness::Scheduler(&site), context)?;
                if report.feeder.is_none()
                    && report.left + report.held == 0
                    && source.plan.run.hooks.has_end()
                {
                    let spent = auto::spent(&tree)?;
                    ended::tell(&tree, Witness::Scheduler(&site), spent.as_deref(), context)?;
                }
                return Ok(0);
            }
        };
        context.out.say(&format!("{what}; asking again in {} s", pause.as_secs()));
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// The options of the submission that a feeder continues, and its walltime.
fn own(tree: &Tree, number: u32, sweep: &str) -> Result<(Feeder, Option<u64>)> {
    let mut arrays = waves::read(tree)?.into_iter().flat_map(|wave| wave.arrays);
    let own = arrays.find(|array| array.array == number);
    own.and_then(|array| Some((array.feeder?, array.resources.walltime_s)))
        .ok_or_else(|| Fault::request(format!("array {number} of {sweep} is no feeder")).into())
}
