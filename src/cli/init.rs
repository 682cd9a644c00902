//! `hpcsweep init`: a project that runs at once.

use std::path::PathBuf;

use anyhow::Result;

use super::Context;
use crate::cli::project::{self, Template};

/// Make a project that runs at once: a plan, a small program, and its own copy of the job scripts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the project; its name becomes the sweep's
    name: PathBuf,
    /// The template it begins with
    #[arg(short, long, value_name = "TEMPLATE", value_enum, default_value_t = Template::Command)]
    template: Template,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let files = project::create(&args.name, args.template)?;
    for path in &files {
        context.out.data(&path.display().to_string());
    }
    if let Some(first) = files.first() {
        context.out.say(&format!("next: hpcsweep submit {}", first.display()));
    }
    Ok(0)
}
