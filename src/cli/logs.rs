//! `hpcsweep logs`: what a trial printed.

use anyhow::Result;

use super::{Context, sweeps};
use crate::fault::Fault;
use crate::host::disk;
use crate::tree::records;

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
    if record.attempts.is_empty() {
        let sentence = format!("trial {} of {} has not begun", args.trial, identity.name);
        return Err(Fault::request(sentence).hint("`hpcsweep status` says how it stands").into());
    }
    for run in 1..next {
        context.out.raw(&disk::read_bytes_if_there(&tree.log(args.trial, run))?);
    }
    Ok(0)
}
