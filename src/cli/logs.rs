//! `hpcsweep logs`: what a trial printed.

use anyhow::Result;

use super::{Context, sweeps};
use crate::fault::Fault;
use crate::host::disk;
use crate::submit::wave::Waves;
use crate::tree::Tree;
use crate::tree::bundle::{self, Place};
use crate::tree::records::{self, Attempt};

/// Print what a trial printed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trial's number
    trial: u64,
    /// The sweep; by default the one in results/, else the last one submitted
    sweep: Option<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named: Vec<String> = args.sweep.iter().cloned().collect();
    let (tree, identity) = sweeps::one(&named, context)?;
    crate::tree::table::find(&tree, args.trial)?;
    let (record, next) = records::of_trial(&tree, args.trial)?;
    for run in 1..next {
        context.out.raw(&disk::read_bytes_if_there(&tree.log(args.trial, run))?);
    }
    for attempt in &record.attempts {
        if let Some(place) = &attempt.bundle {
            context.out.raw(&output_of(&tree, args.trial, attempt, place)?);
        }
    }
    // What the scheduler and the launcher had to say; there is a file only where they had.
    let mut jobs = Vec::new();
    for (_, array, trials) in Waves::read(&tree)?.arrays() {
        if let Some(index) = trials.iter().position(|trial| *trial == args.trial) {
            let path = tree.job_log(array.array, index as u64 % array.count);
            let said = disk::read_bytes_if_there(&path)?;
            if !said.is_empty() {
                context.out.say(&format!("the job's own output ({}):", path.display()));
                jobs.extend(said);
            }
        }
    }
    context.out.raw(&jobs);
    if record.attempts.is_empty() && jobs.is_empty() {
        let name = identity.name.clone();
        let site = context.site()?;
        let status = crate::status::read(tree, identity, Some((&site, &context.vars)))?;
        let standing = status.trials().find(|(row, _)| row.id == args.trial);
        let standing = standing.map_or_else(String::new, |(_, standing)| standing.words());
        let sentence = format!("trial {} of {name} has not begun: {standing}", args.trial);
        return Err(Fault::request(sentence).into());
    }
    Ok(0)
}

/// What an attempt has printed that an agent has run: a part of the log of its slot.
fn output_of(tree: &Tree, trial: u64, attempt: &Attempt, place: &Place) -> Result<Vec<u8>> {
    let path = bundle::path(tree, &place.agent, &format!("{}.log", place.slot));
    match place.log {
        Some((from, len)) => disk::read_at(&path, from, len),
        None if attempt.outcome().is_some() => Ok(Vec::new()),
        // It runs: what stands behind the end of the one before it in its slot.
        None => {
            let bytes = disk::read_bytes_if_there(&bundle::path(tree, &place.agent, "jsonl"))?;
            let (lines, ..) = bundle::lines(&bytes, 0);
            let from = bundle::log_begins(&lines, trial, attempt.start.attempt, place.slot);
            if path.exists() { disk::read_at(&path, from, u64::MAX >> 1) } else { Ok(Vec::new()) }
        }
    }
}
