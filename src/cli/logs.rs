//! `hpcsweep logs`: what a trial printed.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, sweeps};
use crate::fault::Fault;
use crate::host::disk;
use crate::submit::arrays::wave::Waves;
use crate::tree::Tree;
use crate::tree::bundle;
use crate::tree::records::Place;
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
    let print = |path: &Path, (from, len): (u64, u64)| {
        disk::each_piece(path, from, len, |piece| context.out.raw(piece))
    };
    for run in 1..next {
        print(&tree.log(args.trial, run), WHOLE)?;
    }
    for attempt in &record.attempts {
        if let Some(place) = &attempt.bundle
            && let Some(part) = output_of(&tree, args.trial, attempt, place)?
        {
            let path = tree.agent_file(&place.agent, &format!("{}.log", place.slot));
            if place.log.is_some_and(|(_, len)| len > 0) {
                // This reports a missing log, which is not an empty one.
                disk::open(&path)?;
            }
            print(&path, part)?;
        }
    }
    // The output of the scheduler and the launcher; there is a file only if they printed something.
    let of_jobs = of_jobs(&tree, &Waves::read(&tree)?, args.trial)?;
    for path in &of_jobs {
        context.out.say(&format!("the job's own output ({}):", path.display()));
        print(path, WHOLE)?;
    }
    if record.attempts.is_empty() && of_jobs.is_empty() {
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

/// The logs of a trial's jobs that are not empty.
pub(super) fn of_jobs(tree: &Tree, waves: &Waves, trial: u64) -> Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for (_, array, trials) in waves.arrays() {
        if let Some(index) = trials.iter().position(|one| *one == trial) {
            let path = tree.job_log(array.array, index as u64 % array.count);
            if disk::stamp(&path)?.is_some_and(|(len, _)| len > 0) {
                logs.push(path);
            }
        }
    }
    Ok(logs)
}

/// A file from its beginning to its end.
const WHOLE: (u64, u64) = (0, u64::MAX);

/// Where the output of an attempt that an agent has run stands in the log of its slot: offset and length.
fn output_of(
    tree: &Tree,
    trial: u64,
    attempt: &Attempt,
    place: &Place,
) -> Result<Option<(u64, u64)>> {
    if place.log.is_some() || attempt.outcome().is_some() {
        return Ok(place.log);
    }
    // It runs: what stands behind the end of the one before it in its slot.
    let (lines, _) = bundle::deeds(tree, &place.agent, 0)?;
    let from = bundle::log_begins(&lines, trial, attempt.start.attempt, place.slot);
    Ok(Some((from, u64::MAX)))
}
