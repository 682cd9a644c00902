//! `hpcsweep doctor`: is this installation, this cluster, this file system fit for sweeps?

mod checks;

use std::path::PathBuf;

use anyhow::Result;

use super::Context;
use checks::Severity;

/// Check an installation: scheduler, limits, MPI plugins, results tree, GPUs, clocks
///
/// Every line shows a finding; a line that is not in order says what to do. Exit code 4 when something will
/// go wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder that results will be in
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let checks = checks::examine(&context.site()?, &context.vars, &args.root);
    if args.json {
        context.out.json(&checks)?;
    } else {
        for check in &checks {
            let word = match check.verdict {
                Severity::Ok => "ok  ",
                Severity::Note => "note",
                Severity::Bad => "BAD ",
            };
            context.out.data(&format!("{word}  {}: {}", check.about, check.seen));
            if !check.todo.is_empty() {
                context.out.data(&format!("      {}", check.todo));
            }
        }
    }
    let bad = checks.iter().any(|c| c.verdict == Severity::Bad);
    Ok(if bad { 4 } else { 0 })
}
