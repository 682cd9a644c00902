//! `hpcsweep export`: a sweep as one archive.

use std::path::{Path, PathBuf};

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::json;

use super::submit::bar_style;
use super::{Context, collect, sweeps};
use crate::answers::collect::sheet::Sheet;
use crate::answers::report::{Report, Taken};
use crate::base::fault::Fault;
use crate::base::host::archive::{Archive, Compression};
use crate::base::host::{access, named};
use crate::base::words::{count, thousands};
use crate::sweep::standing;
use crate::sweep::status::Status;
use crate::sweep::tree::Tree;
use crate::sweep::tree::export::{self, About, Without};

/// Write a sweep as one archive: results tree, plan, code, table and report
///
/// `tar -xf` unpacks a folder that `status`, `collect`, `best`, `report` and `merge` read like the sweep itself. Its folder
/// `export` has the table and the report. While the sweep runs, the archive has what was recorded until then.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A sweep folder or a plan, by default the one of this folder
    sweep: Option<String>,
    /// Write to this file: .tar.zst, .tar.gz or .tar; by default NAME.tar.zst here
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave this out: `--without checkpoints --without logs`
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    without: Vec<Without>,
    /// Write JSON: what is in the archive
    #[arg(long)]
    json: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let named: Vec<String> = args.sweep.iter().cloned().collect();
    sweeps::check_here(&named, context)?;
    let (tree, identity) = sweeps::one(&named, context)?;
    let name = folder_name(&tree)?;
    let output = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.tar.zst", name.display())),
    };
    let compression = compression(&output)?;
    if export::is_within(&tree, &output) {
        return Err(Fault::request(format!("`{}` lies within the sweep", output.display()))
            .hint("write the archive elsewhere: it would be a part of itself")
            .into());
    }
    access::make_for(identity.access());
    let site = context.site()?;
    let whom = (!args.offline).then_some((&site, &context.vars));
    let mut status = crate::sweep::status::read(tree.clone(), identity.clone(), whom)?;
    let until = until(&status);
    let (beside, code) = beside(&mut status, until, context)?;

    let files = export::list(&tree, &args.without)?;
    let open = status.standings.iter().filter(|standing| !standing.state.is_final()).count();
    let states = status.counts().into_iter().map(|(state, n)| (state.word(), n)).collect();
    let mut without = [args.without.clone(), tree.left_out()?].concat();
    without.sort_unstable();
    without.dedup();
    let skipped = files.skipped.clone();
    let standings = standing::beyond_records(&status.rows, &status.records, &status.standings);
    // A copy that nobody has taken up is as old as its archive.
    let exported = tree.copied()?.and_then(|about| about.exported).filter(|time| until <= *time);
    let exported = exported.filter(|_| open > 0);
    let new = About::new(states, open == 0, until);
    let about = About { exported, standings, without, skipped, ..new };
    let bar = bar(context.out.terminal && !context.out.quiet, files.bytes());
    let read = |bytes| bar.inc(bytes);
    let report = named::fill(&output, |out| {
        let mut archive = Archive::new(out, compression, &read)?;
        let report = files.store(&tree, &identity, &mut archive, (&name, &about), &beside)?;
        archive.finish()?;
        Ok(report)
    })?;

    bar.finish_and_clear();
    let out = &context.out;
    for path in &files.skipped {
        out.warn(&format!("`{path}` is neither a file nor a folder: it is not in the archive"));
    }
    for path in &report.short {
        out.warn(&format!("`{path}` became shorter while it was read: zeros stand for the rest"));
    }
    if report.outward > 0 {
        let links = count(report.outward, "symbolic link");
        let lead = if report.outward == 1 { "leads out" } else { "lead out" };
        out.say(&format!("{links} {lead} of the sweep: stored as links, without their targets"));
    }
    if args.json {
        let object = json!({
            "sweep": status.identity.name,
            "file": &output,
            "files": report.files,
            "trials": status.rows.len(),
            "unfinished": open,
            "without": &about.without,
            "skipped": &files.skipped,
            "short": &report.short,
            "outward_links": report.outward,
        });
        out.json(&object)?;
        status.leave();
        return Ok(code);
    }
    if open > 0 {
        let all = thousands(status.rows.len() as u64);
        let words = format!("unfinished: {} of {all} had not ended", count(open as u64, "trial"));
        out.say(&words);
    }
    let files = count(report.files, "file");
    out.say(&format!("{}: {files} in {}", name.display(), output.display()));
    status.leave();
    Ok(code)
}

/// The name of the folder that an archive has: that of the sweep's folder.
fn folder_name(tree: &Tree) -> Result<PathBuf> {
    let dir = tree.dir();
    let name = dir.file_name().map(PathBuf::from);
    Ok(name.ok_or_else(|| Fault::request(format!("`{}` has no name", dir.display())))?)
}

/// The progress that a terminal shows while files of so many bytes are stored.
fn bar(is_shown: bool, bytes: u64) -> ProgressBar {
    if !is_shown {
        return ProgressBar::hidden();
    }
    let style = bar_style("{bar:30} {bytes} of {total_bytes} {binary_bytes_per_sec} eta {eta}");
    ProgressBar::new(bytes).with_style(style)
}

/// How a file is compressed. Pipes and devices have no endings.
fn compression(output: &Path) -> Result<Compression, Fault> {
    if output.is_dir() {
        return Err(Fault::request(format!("`{}` is a folder", output.display()))
            .hint("name a file: `-o sweep.tar.zst`"));
    }
    let is_special = output.exists() && !output.is_file();
    Compression::of(output).or(is_special.then_some(Compression::Zstd)).ok_or_else(|| {
        let sentence = format!("`{}` does not say how to write an archive", output.display());
        Fault::request(sentence).hint("end the name in .tar.zst, .tar.gz or .tar")
    })
}

/// The time of the last event of a sweep, so that a sweep that has ended always makes the same archive.
fn until(status: &Status) -> f64 {
    let attempts = status.records.values().flat_map(|record| &record.attempts);
    let times = attempts.map(|attempt| attempt.end.as_ref().map_or(attempt.start.time, |e| e.time));
    times.fold(status.identity.created, f64::max)
}

/// A file of an archive: its name and its content.
type File = (&'static str, Vec<u8>);

/// The table and the report, and the exit code for what could not be read.
fn beside(status: &mut Status, until: f64, context: &Context) -> Result<(Vec<File>, u8)> {
    let sheet =
        Sheet::of_trials(crate::answers::collect::table(std::slice::from_ref(status), &[])?);
    let mut table = Vec::new();
    let name = collect::write_archived(&sheet, &mut table)?;
    let taken = Taken::start(&status.tree, false)?;
    let report = Report::build(status, taken, None, until)?;
    let code = collect::tell(&report.source, context);
    let mut page = Vec::new();
    report.write(&mut page)?;
    Ok((vec![("report.html", page), (name, table)], code))
}
