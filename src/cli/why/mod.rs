//! `hpcsweep why`: why trials stand as they do, and what has happened to a sweep.

mod enough;
mod events;
mod places;
mod trial;

use anyhow::Result;

use super::select::{Named, Select};
use super::{Context, sweeps};
use crate::base::fault::Fault;
use crate::sweep::tree::damage::Damage;
use trial::Facts;

/// Show why trials stand as they do; without trials, what has happened to the sweep
///
/// Of each trial: attempts, cause, what was asked and used, what its job waits for, the end of its log. Asks the scheduler once, and for each trial
/// that waits when it expects it to start.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Trials (`3-7,12`), and the sweep; by default that of this folder, else the last one submitted
    #[arg(value_name = "IDS|SWEEP")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
    /// Write JSON, a line a trial or an event
    #[arg(long)]
    json: bool,
}

/// The most trials that are shown at once.
const MOST: usize = 100;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let Named { sweeps, wanted } = args.select.read(&args.named)?;
    let (tree, identity) = sweeps::one(&sweeps, context)?;
    if wanted.is_all() {
        let mut damage = Damage::default();
        let events = events::of(&tree, &identity.token, &mut damage)?;
        // Of a writer that is in the middle of a line nothing is damaged.
        for damaged in damage.settle(|_| true) {
            context.out.leave_out(&format!("{damaged}; left out"));
        }
        match args.json {
            true => events.iter().try_for_each(|event| {
                context.out.json(event)?;
                anyhow::Ok(())
            })?,
            false => context.out.page(&events::page(&identity.name, &events)),
        }
        return Ok(u8::from(context.out.has_left_out()));
    }
    let site = context.site()?;
    let whom = (!args.offline).then_some((&site, &context.vars));
    let status = wanted.look(tree, identity, whom)?;
    let meant = wanted.trials_in(std::slice::from_ref(&status))?.pop().unwrap_or_default();
    if meant.len() > MOST {
        return Err(Fault::request(format!("{} trials are more than `why` shows", meant.len()))
            .hint("`hpcsweep status --trials` shows a line of each")
            .into());
    }
    let facts = Facts::read(&status, &meant, whom)?;
    let mut is_damaged = false;
    for (i, trial) in meant.into_iter().enumerate() {
        let Some(sight) = facts.of(trial)? else { continue };
        is_damaged |= sight.is_damaged();
        if args.json {
            context.out.json(&sight)?;
        } else {
            if i > 0 {
                context.out.data("");
            }
            context.out.page(&sight.page());
        }
    }
    drop(facts);
    status.leave();
    Ok(u8::from(is_damaged || context.out.has_left_out()))
}
