//! `hpcsweep merge`: results of one plan from several sweeps as one.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::{Context, collect, sweeps};
use crate::answers::collect::Source;
use crate::base::host::disk;
use crate::base::words::count;
use crate::submit::merge;
use crate::sweep::status::Status;
use crate::sweep::tree::export::Without;

/// Join the results of one plan from several clusters, shards or copies into one sweep
///
/// The sweeps are only read. Trials are the same if they run the same. The new sweep has each attempt once: what one run of the
/// whole plan would have recorded. Damaged lines are reported and left out, unless another sweep has them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sweeps' folders or patterns
    #[arg(required = true)]
    sweeps: Vec<String>,
    /// The folder of the new sweep
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The plan, if it reads other files beside it: as of the submission
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Leave this out: `--without checkpoints --without logs`
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    without: Vec<Without>,
    /// Write JSON: what was merged
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    if !args.output.exists() {
        sweeps::outside(&args.output)?;
    }
    let mut all: Vec<Status> = Vec::new();
    for (tree, identity) in sweeps::all(&args.sweeps, context)? {
        all.push(crate::sweep::status::untouched(tree, identity)?);
    }
    let report = merge::merge(&all, args.plan.as_deref(), &args.without, &args.output)?;
    let sources: Vec<Source> = all.iter().map(Source::of).map(without_notes).collect();
    let code = collect::tell(&sources, context);
    let out = &context.out;
    let n = all.len() as u64;
    let running = all.iter().flat_map(|status| &status.standings);
    let running = running.filter(|standing| standing.state.word() == "running").count();
    if args.json {
        let object = json!({
            "sweep": all[0].identity.name,
            "dir": disk::absolute(&args.output),
            "sweeps": n,
            "trials": report.trials,
            "begun": report.begun,
            "common_attempts": report.common,
            "foreign": report.foreign,
            "running": running,
        });
        out.json(&object)?;
        return Ok(code);
    }
    let mut text = format!(
        "{}: {} from {}, {} with attempts",
        all[0].identity.name,
        count(report.trials, "trial"),
        count(n, "sweep"),
        report.begun,
    );
    if report.common > 0 {
        text.push_str(&format!("; {} in several sweeps", count(report.common, "attempt")));
    }
    out.say(&text);
    if report.foreign > 0 {
        let trials = count(report.foreign, "trial");
        out.warn(&format!("{trials} of earlier plans left out: the plan no longer has them"));
    }
    if running > 0 {
        out.warn(&format!(
            "{} still running: merge again when all have ended",
            count(running as u64, "trial")
        ));
    }
    out.say(&format!("results: {}", disk::absolute(&args.output).display()));
    out.say(&format!("next: hpcsweep status {}", disk::named(&args.output)));
    Ok(code)
}

/// What is damaged alone: how trials stand is said of the new sweep.
fn without_notes(source: Source) -> Source {
    Source { unread: Vec::new(), unsure: None, dropped: None, ..source }
}
