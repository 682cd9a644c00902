//! `hpcsweep schema`: what editors need to complete and check a plan or a site profile.

use anyhow::Result;

use super::Context;
use crate::plan;
use crate::plan::site;

/// Print the JSON schema of plans or of site profiles, for editors
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The files that the schema describes
    #[arg(value_enum)]
    of: Of,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    /// Plans
    Plan,
    /// Site profiles
    Site,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let schema = match args.of {
        Of::Plan => plan::schema(),
        Of::Site => site::schema(),
    };
    context.out.data(&format!("{schema:#}"));
    Ok(0)
}
