//! `hpcsweep worker`: run one trial as one of its ranks. Job scripts call it.

use std::path::PathBuf;

use anyhow::Result;

use super::out::Out;
use crate::fault::Fault;
use crate::host::{Vars, vars};
use crate::rank;
use crate::worker::{self, Request, Which};

/// Run one trial as one of its ranks (job scripts call this)
///
/// Started once a rank by srun, mpirun or the like; derives its rank from what the launcher sets.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say which rank this process is, from which variables, and what contradicts it; run nothing
    #[arg(long)]
    explain: bool,
    /// With --explain: write JSON
    #[arg(long, requires = "explain")]
    json: bool,
    /// The sweep's folder
    #[arg(long, value_name = "DIR", required_unless_present = "explain")]
    sweep: Option<PathBuf>,
    /// Run this trial
    #[arg(long, value_name = "N", conflicts_with = "wave")]
    trial: Option<u64>,
    /// Run the trial of this element of an array: the wave it belongs to,
    #[arg(long, value_name = "N", requires_all = ["first", "count"])]
    wave: Option<u32>,
    /// the entry of its first element in the wave's map,
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// and how many elements it has
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Of an element that runs a whole chain, this trial of it
    #[arg(long, value_name = "N", default_value_t = 0)]
    link: u64,
    /// The index of the element, where the launcher does not pass on what the scheduler has set
    #[arg(long, value_name = "N")]
    index: Option<u64>,
    /// The scheduler's id of the job, likewise
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Run only if the chain has not stopped before this trial
    #[arg(long)]
    gate: bool,
}

pub(super) fn run(args: Args, mut vars: Vars, out: &Out) -> Result<u8> {
    if args.explain {
        let host = vars::node_name(&vars);
        let rank = worker::derive_rank(&vars, &host)?;
        if args.json {
            out.raw(&crate::tree::to_json_line(&rank)?);
        } else {
            out.raw(rank::explain(&rank).as_bytes());
        }
        return Ok(0);
    }
    let which = match (args.trial, args.wave, args.first, args.count) {
        (Some(trial), ..) => Which::Trial(trial),
        (None, Some(wave), Some(first), Some(count)) => {
            Which::Element { wave, first, count, link: args.link }
        }
        _ => {
            return Err(Fault::request("which trial? `--trial N` is missing")
                .hint("job scripts name theirs by --wave, --first and --count")
                .into());
        }
    };
    let Some(sweep) = args.sweep else {
        return Err(Fault::request("`--sweep DIR` is missing").into());
    };
    // Launchers pass these on or not; the script always does.
    if let Some(job) = args.job {
        vars.insert("PBS_JOBID".to_owned(), job);
        let index = args.index.unwrap_or(0);
        vars.insert("PBS_ARRAY_INDEX".to_owned(), index.to_string());
    }
    let code = worker::run(&Request { sweep, which, gate: args.gate }, vars)?;
    Ok(u8::try_from(code.clamp(0, 255)).unwrap_or(1))
}
