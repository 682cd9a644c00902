//! Code snapshots: the files that a plan names are stored when it is submitted, and its trials run from there.
//!
//! A trial keeps the snapshot of the submission that added it to the sweep, until a submission with `--current-code`
//! runs it again. Code is no part of a trial's key: a change is reported, and makes no trial new.

mod about;
mod store;
mod walk;

use std::collections::BTreeSet;

use anyhow::Result;

use crate::host::{Vars, clock};
use crate::idset::IdSet;
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::grow::Diff;
use crate::tree::code::{self, Beside, Manifest, Submission};
use crate::tree::{FORMAT, Tree};
use crate::words::count;

/// A snapshot of more bytes than this is mentioned: it may have data in it.
const LARGE: u64 = 100 << 20;

/// Stores the code of the trials that a plan adds to its sweep, and of the trials `again` where the current code was asked
/// for. Returns what to say. The caller holds the lock and has not yet added the trials.
///
/// # Errors
/// When a file cannot be read, or the disk refuses.
pub(crate) fn keep(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    again: impl Iterator<Item = u64>,
    retry: &Again,
    vars: &Vars,
) -> Result<Vec<String>> {
    let own = source.plan.snapshot.as_ref();
    let earlier = code::trials(tree, diff.known)?;
    let new = diff.known..diff.known + diff.added();
    let mut trials: BTreeSet<u64> = match retry.is_with_current_code() {
        true => again.collect(),
        false => BTreeSet::new(),
    };
    let Some(own) = own else {
        // They run in the plan's own folder again.
        trials.retain(|trial| earlier.iter().any(|(_, has)| has.contains(trial)));
        if !trials.is_empty() {
            let folder = source.folder();
            code::write(tree, &submission(&trials, None, folder, ""), &Beside::default())?;
        }
        return Ok(Vec::new());
    };
    trials.extend(new);
    let found = match walk::find(tree, source, own) {
        // Nothing of it is needed.
        Err(_) if trials.is_empty() => return Ok(Vec::new()),
        found => found?,
    };
    let name = found.manifest.name();
    let mut notes = Vec::new();
    for (old, has) in earlier.iter().filter(|(old, _)| *old != name) {
        let kept = has.iter().filter(|id| diff.has(**id) && !trials.contains(id)).count() as u64;
        if kept == 0 {
            continue;
        }
        let old = code::manifest(tree, old)?;
        // The plan decides itself about what it changes.
        let plan = found.name_of(&source.path);
        let files = found.manifest.changed(&old);
        let files: Vec<&str> =
            files.into_iter().filter(|file| Some(*file) != plan.as_deref()).collect();
        if !files.is_empty() {
            notes.push(changed(&files, kept));
        }
    }
    if !notes.is_empty() && !retry.is_with_current_code() {
        notes.push(
            "`--retry --current-code` runs trials again with the code as it is now".to_owned(),
        );
    }
    if trials.is_empty() {
        return Ok(notes);
    }
    for path in &found.special {
        notes.push(format!(
            "`{path}` is neither a file nor a folder: it is not part of the snapshot"
        ));
    }
    let stored = store::store(tree, &found, &name)?;
    if let Some(note) = large(&found.manifest) {
        notes.push(note);
    }
    let git = about::git(&found.root, vars);
    let versions = about::versions(source, own, vars);
    if let Some(why) = &versions.why_not {
        notes.push(format!("the versions of packages are not recorded: {why}"));
    }
    let (git, diff) = git.map_or((None, None), |(git, diff)| (Some(git), diff));
    let record = Submission {
        git,
        modules: about::modules(vars),
        interpreter: versions.interpreter,
        packages: versions.command,
        no_packages: versions.why_not,
        ..submission(&trials, Some(name.clone()), found.root.clone(), &found.workdir)
    };
    code::write(tree, &record, &Beside { diff, packages: versions.packages })?;
    let files = count(found.manifest.files.len() as u64, "file");
    let what = match stored.files {
        0 => "nothing new to store".to_owned(),
        n => format!("{} stored, {}", count(n, "file"), bytes(stored.bytes)),
    };
    notes.push(format!("code: snapshot {} of {files}, {what}", &name[..8]));
    Ok(notes)
}

fn submission(
    trials: &BTreeSet<u64>,
    snapshot: Option<String>,
    root: std::path::PathBuf,
    workdir: &str,
) -> Submission {
    Submission {
        format: FORMAT,
        created: clock::now(),
        trials: IdSet::of_trials(trials.iter().copied()).to_string(),
        snapshot,
        root,
        workdir: workdir.to_owned(),
        git: None,
        modules: Vec::new(),
        interpreter: None,
        packages: Vec::new(),
        no_packages: None,
    }
}

/// Says that files have changed since so many trials got theirs.
fn changed(files: &[&str], trials: u64) -> String {
    let named = match files {
        [init @ .., last] if !init.is_empty() && files.len() <= 3 => {
            format!("{} and {last}", init.join(", "))
        }
        [a, b, _, ..] => format!("{a}, {b} and {}", count(files.len() as u64 - 2, "further file")),
        _ => files.concat(),
    };
    let verb = if trials == 1 { "has" } else { "have" };
    let old = if files.len() == 1 { "the old one" } else { "the old ones" };
    format!("{named} changed: {} {verb} {old}", count(trials, "trial"))
}

fn large(manifest: &Manifest) -> Option<String> {
    let total: u64 = manifest.files.values().map(|file| file.bytes).sum();
    let (name, file) = manifest.files.iter().max_by_key(|(_, file)| file.bytes)?;
    (total > LARGE).then(|| {
        let (total, own) = (bytes(total), bytes(file.bytes));
        format!("the snapshot has {total}; its largest file is {name} ({own}): `[snapshot] ignore` leaves files out")
    })
}

/// A size in the largest unit of which it has one.
fn bytes(n: u64) -> String {
    match n {
        0..1_000 => count(n, "byte"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}
