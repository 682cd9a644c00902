//! `hpcsweep templates`: the job scripts, for editing.

use std::path::PathBuf;

use anyhow::Result;

use super::Context;
use crate::cluster::render;

/// Write the templates of the job scripts, for editing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Write the templates into a folder
    ///
    /// A folder `templates` beside a plan is used by itself; any other by `submit --templates DIR` or the
    /// site profile.
    Export {
        /// The folder
        dir: PathBuf,
    },
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let Verb::Export { dir } = &args.verb;
    for path in render::export(dir)? {
        context.out.data(&path.display().to_string());
    }
    Ok(0)
}
