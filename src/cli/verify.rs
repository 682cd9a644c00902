//! `hpcsweep verify`: whether all files of a sweep are whole and fit together.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::{Context, sweeps};
use crate::base::words::count;
use crate::sweep::status::verify::{self, Finding};

/// Check that all files of a sweep are whole and fit together
///
/// Finds damage, files that are missing, swapped or of another sweep, and changed code. Reads every file except logs and what
/// programs saved, and writes nothing. Exit code 1 when something does not fit.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those of this folder, else the last one submitted
    #[arg(value_name = "SWEEP")]
    sweeps: Vec<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// A sweep as JSON.
#[derive(Serialize)]
struct Told<'a> {
    sweep: &'a str,
    dir: &'a Path,
    findings: &'a [Finding],
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let mut has_any = false;
    for (tree, identity) in sweeps::all(&args.sweeps, context)? {
        let findings = verify::findings(&tree, &identity)?;
        has_any |= !findings.is_empty();
        if args.json {
            let (sweep, dir) = (&*identity.name, tree.dir());
            context.out.json(&Told { sweep, dir, findings: &findings })?;
            continue;
        }
        let dir = tree.dir().display();
        match findings.len() as u64 {
            0 => context.out.data(&format!("{dir}: all files fit")),
            n => context.out.data(&format!("{dir}: {}", count(n, "finding"))),
        }
        for Finding { file, what, hint } in &findings {
            context.out.data(&format!("  {file} {what} ({hint})"));
        }
    }
    Ok(u8::from(has_any || context.out.has_left_out()))
}
