//! `hpcsweep init`: a project that runs at once.

use std::path::PathBuf;

use anyhow::Result;

use super::Context;
use crate::project;

/// Make a project: a plan, a small training program, and its own copy of the job scripts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the project; its name becomes the sweep's
    name: PathBuf,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    for path in project::create(&args.name)? {
        context.out.data(&path.display().to_string());
    }
    let plan = args.name.join("plan.toml");
    context.out.say(&format!("next: hpcsweep submit {}", plan.display()));
    Ok(0)
}
