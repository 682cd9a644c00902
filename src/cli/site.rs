//! `hpcsweep site`: the values of this site's profile, and where each comes from.

use anyhow::Result;
use serde_json::json;

use super::Context;
use super::out::aligned;

/// Show the site profile
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show every key, its value and where that comes from
    Show {
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let Verb::Show { json } = args.verb;
    let site = context.site()?;
    if json {
        context.out.json(&json!({ "site": site, "rows": site.rows() }))?;
        return Ok(0);
    }
    let head = ["key", "value", "from", "note"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = site
        .rows()
        .into_iter()
        .map(|r| vec![r.key.to_owned(), r.value, r.origin, r.note])
        .collect();
    context.out.page(&aligned(&head, &rows));
    Ok(0)
}
