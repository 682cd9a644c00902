//! `hpcsweep logs`: what a trial printed.

use anyhow::Result;

use super::{Context, sweeps};
use crate::fault::Fault;
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
    for (tree, identity) in sweeps::find(&named, context)? {
        crate::tree::table::find(&tree, args.trial)?;
        let (_, next) = records::of_trial(&tree, args.trial)?;
        let mut any = false;
        for run in 1..next {
            if let Ok(bytes) = std::fs::read(tree.log(args.trial, run)) {
                context.out.raw(&bytes);
                any = true;
            }
        }
        if any {
            return Ok(0);
        }
        let sentence = format!("trial {} of {} has printed nothing yet", args.trial, identity.name);
        return Err(Fault::request(sentence).hint("`hpcsweep status` says how it stands").into());
    }
    Ok(0)
}
