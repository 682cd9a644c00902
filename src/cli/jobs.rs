//! `hpcsweep cancel`, `hold` and `release`: what a sweep has queued or running.

use std::collections::BTreeSet;

use anyhow::Result;

use super::select::Select;
use super::{Context, sweeps};
use crate::base::fault::Fault;
use crate::base::idset::IdSet;
use crate::base::words;
use crate::cluster::scheduler::order::Order;
use crate::plan::site::Site;
use crate::submit::control;
use crate::sweep::tree::{Identity, Tree, deck, journal, lock};

/// Cancel the trials of a sweep that have not ended
///
/// Running trials are asked to end and are recorded as interrupted; the same `hpcsweep submit` with --retry
/// submits all of them again.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    what: What,
}

/// Hold the trials of a sweep that have not begun
///
/// Until the release, `hpcsweep submit` refuses the sweep. Agents (pull mode) finish the trials that they run and leave. With
/// trials named, only these are held, and the sweep can still be submitted.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    what: What,
}

/// Release the held trials of a sweep
///
/// Agents that have left do not come back by themselves: submit the plan again, or start some.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    what: What,
}

#[derive(Debug, clap::Args)]
struct What {
    /// The sweep's folder or plan, by default the one of this folder; sets of its trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
}

pub(super) fn cancel(args: &CancelArgs, context: &Context) -> Result<u8> {
    run(&args.what, Order::Cancel, "cancelled", context)
}

pub(super) fn hold(args: &HoldArgs, context: &Context) -> Result<u8> {
    run(&args.what, Order::Hold, "held", context)
}

pub(super) fn release(args: &ReleaseArgs, context: &Context) -> Result<u8> {
    run(&args.what, Order::Release, "released", context)
}

fn run(what: &What, order: Order, word: &str, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let named = what.select.read(&what.named)?;
    let (tree, identity) = sweeps::one_to_change(&named.sweeps, &site, context)?;
    let lost = control::lost_jobs(&tree)?;
    let trials = named.trials(&tree, &identity, context)?;
    if trials.as_ref().is_some_and(Vec::is_empty) {
        context.out.say(&format!("{}: no trial is meant", identity.name));
        return Ok(0);
    }
    let trials = trials.unwrap_or_default();
    let code = act(&tree, &identity, &trials, order, word, &site, context)?;
    for damaged in &lost {
        context.out.warn(&format!(
            "{damaged}: a job that is recorded only there is not {word}; the names of this sweep's jobs begin with `{}.{}.` in the queue",
            identity.name, identity.token
        ));
    }
    Ok(if lost.is_empty() { code } else { 1 })
}

/// Does it, and reports what was done.
fn act(
    tree: &Tree,
    identity: &Identity,
    trials: &[u64],
    order: Order,
    word: &str,
    site: &Site,
    context: &Context,
) -> Result<u8> {
    let tell = |text: &str| context.out.say(text);
    let done = control::control(tree, identity, trials, order, site, &context.vars, tell)?;
    if done.is_told && (done.ids.is_empty() || order != Order::Cancel) {
        let text = match order {
            Order::Cancel => "cancelled: agents end what they run and take no more trials",
            Order::Hold => {
                let sweep = tree.named();
                &format!(
                    "held: agents end what they run and take no more trials; `hpcsweep release {sweep}` continues it"
                )
            }
            Order::Release if done.ids.is_empty() => {
                "released: agents that are still there go on; where none are, submit it again or start some"
            }
            Order::Release => "released: agents go on with it",
        };
        context.out.say(&format!("{}: {text}", identity.name));
        if done.ids.is_empty() {
            return Ok(0);
        }
    }
    if let Some(owner) = lock::holder(tree).filter(|_| done.ids.is_empty()) {
        return Err(in_the_way(tree, identity, &owner).into());
    }
    let (unsubmitted, awaited) = (&done.unsubmitted, &done.awaited);
    if !unsubmitted.is_empty() {
        let how = |are: &str| format!("{are} not submitted yet and left alone");
        context.out.say(&left_alone(tree, identity, unsubmitted, how, order));
    }
    if !awaited.is_empty() {
        let how = |are: &str| format!("may run again by `[retry]` and {are} left alone");
        context.out.say(&left_alone(tree, identity, awaited, how, order));
    }
    if done.ids.is_empty() && !(unsubmitted.is_empty() && awaited.is_empty()) {
        return Ok(0);
    }
    if done.ids.is_empty() && !done.ended.is_empty() {
        let (trials, have) =
            if done.ended.len() == 1 { ("trial", "has") } else { ("trials", "have") };
        let numbers = IdSet::of_trials(done.ended.iter().copied());
        context.out.say(&format!("{}: {trials} {numbers} {have} ended", identity.name));
        return Ok(0);
    }
    let sweep = tree.named();
    let stays = format!("until `hpcsweep release {sweep}`, nothing more of it is submitted");
    if done.ids.is_empty() && done.is_sweep && order == Order::Release {
        context.out.say(&format!("{}: released: it can be submitted again", identity.name));
        return Ok(0);
    }
    if done.ids.is_empty() {
        let nothing = match order {
            Order::Cancel => "is queued or running",
            Order::Hold => "waits to begin",
            Order::Release => "is held",
        };
        context.out.say(&format!("{}: nothing of it {nothing}", identity.name));
        if done.is_sweep && order == Order::Hold {
            context.out.say(&stays);
        }
        return Ok(0);
    }
    let ids = shown(&done.ids);
    context.out.say(&format!("{}: {word} {}: {ids}", identity.name, done.words()));
    if order == Order::Hold && done.is_sweep {
        context.out.say(&stays);
    }
    Ok(0)
}

/// The note about trials that were named and have no job now: only an order about the whole sweep reaches them.
fn left_alone(
    tree: &Tree,
    identity: &Identity,
    left: &BTreeSet<u64>,
    how: impl Fn(&str) -> String,
    order: Order,
) -> String {
    let (trials, are) = if left.len() == 1 { ("trial", "is") } else { ("trials", "are") };
    let (how, numbers) = (how(are), IdSet::of_trials(left.iter().copied()));
    format!(
        "{}: {trials} {numbers} {how}; `hpcsweep {} {}` stops the whole sweep",
        identity.name,
        order.word(),
        tree.named()
    )
}

/// Ids that are shown one by one.
const MOST_IDS: usize = 20;

/// The first ids, and how many more there are.
fn shown(ids: &[String]) -> String {
    let first = ids[..ids.len().min(MOST_IDS)].join(" ");
    match ids.len() - ids.len().min(MOST_IDS) {
        0 => first,
        more => format!("{first} and {} more", words::thousands(more as u64)),
    }
}

/// Nothing of a sweep is queued or running, as another process has it: one that runs it, or is about to submit it.
fn in_the_way(tree: &Tree, identity: &Identity, owner: &lock::Owner) -> Fault {
    let (name, process) = (&identity.name, owner.words());
    // A process that enqueues a plan for agents, or submits it, holds the lock for a moment only.
    let runs_here = deck::read(tree).is_ok_and(|decks| decks.is_empty())
        && journal::Journal::read(tree)
            .is_ok_and(|journal| journal.site == Some(journal::Site::LOCAL));
    if runs_here {
        return Fault::request(format!("{name} is run by a `hpcsweep submit`: {process}"))
            .hint("press Ctrl-C where it runs; its trials end and are recorded");
    }
    Fault::request(format!("{name} is being submitted by {process}"))
        .hint("wait until it has submitted, and run the same command again; or end that process")
}
