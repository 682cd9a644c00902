//! Code snapshots: the files that a plan names are stored when it is submitted, and its trials run from there.
//!
//! A trial keeps the snapshot of the submission that added it to the sweep, until a submission with `--current-code`
//! runs it again. Code is no part of a trial's key: a change is reported, and makes no trial new.

mod about;
mod store;
mod walk;

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use serde_json::{Value, json};

use crate::base::host::{Vars, clock};
use crate::base::idset::IdSet;
use crate::base::words::count;
use crate::plan::Snapshot;
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::grow::Diff;
use crate::sweep::tree::code::{self, Beside, Manifest, Submission};
use crate::sweep::tree::records::Record;
use crate::sweep::tree::{FORMAT, Tree};
use store::{Outcome, Stored};
use walk::Found;

/// A snapshot of more bytes than this is mentioned: it may have data in it.
const LARGE: u64 = 100 << 20;

/// Stores the code of the trials that a plan adds to its sweep, and of the trials `again` where the current code was asked
/// for. `records`: those of the sweep. Removes what submissions that were killed have left. Returns what to say. The caller holds the lock and has not yet
/// added the trials.
///
/// # Errors
/// When a file cannot be read, or the disk refuses.
pub(crate) fn keep(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    again: impl Iterator<Item = u64>,
    (retry, records): (&Again, &HashMap<u64, Record>),
    vars: &Vars,
) -> Result<Vec<String>> {
    let is_unfinished = code::remove_unfinished(tree, diff.known)?;
    let mut is_left = is_unfinished || store::is_left(tree)?;
    let kept = keep_all(tree, source, diff, again, (retry, records, vars), &mut is_left);
    if is_left {
        let cleared = store::clear(tree);
        return kept.and_then(|notes| cleared.map(|()| notes));
    }
    kept
}

/// As [`keep`]; `is_left` becomes true if something may be stored that no trial has.
fn keep_all(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    again: impl Iterator<Item = u64>,
    (retry, records, vars): (&Again, &HashMap<u64, Record>, &Vars),
    is_left: &mut bool,
) -> Result<Vec<String>> {
    let mut trials = trials(diff, again, retry);
    let Some(own) = source.plan.snapshot.as_ref() else {
        // They run in the plan's own folder, also those of which a killed submission has stored the code.
        let earlier = code::trials(tree, diff.known + diff.added())?;
        trials.retain(|trial| earlier.iter().any(|(_, has)| has.contains(trial)));
        if !trials.is_empty() {
            let folder = source.folder();
            code::write(tree, &submission(&trials, None, folder, ""), &Beside::default())?;
        }
        return Ok(Vec::new());
    };
    if trials.is_empty() {
        let look =
            look_at(tree, source, diff, (trials, records), || walk::find(tree, source, own))?;
        return Ok(look.map(|look| look.changes(retry)).unwrap_or_default());
    }
    let (found, name, stored) = store_still(tree, source, own, is_left)?;
    let look = Look::of(tree, source, diff, (trials, records), found)?;
    let mut notes = look.changes(retry);
    notes.extend(look.about_files());
    let Look { found, trials, .. } = look;
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
    notes.push(format!("code: snapshot {} of {files}, {what}", code::short(&name)));
    Ok(notes)
}

/// The trials that get the code as it is now.
fn trials(diff: &Diff, again: impl Iterator<Item = u64>, retry: &Again) -> BTreeSet<u64> {
    let new = diff.known..diff.known + diff.added();
    match retry.is_with_current_code() {
        true => again.chain(new).collect(),
        false => new.collect(),
    }
}

/// Stores the files that a plan names as they are at one time: once more if one of them changes meanwhile.
fn store_still(
    tree: &Tree,
    source: &Source,
    own: &Snapshot,
    is_left: &mut bool,
) -> Result<(Found, String, Stored)> {
    let mut changed = None;
    for _ in 0..walk::TRIES {
        let found = walk::find(tree, source, own)?;
        let name = found.manifest.name();
        let outcome = store::store(tree, &found, &name);
        *is_left |= !matches!(outcome, Ok(Outcome::Stored(_)));
        match outcome? {
            Outcome::Stored(stored) => return Ok((found, name, stored)),
            Outcome::Changed(path) => changed = Some(path),
        }
    }
    Err(walk::changes(&changed.unwrap_or_default()).into())
}

/// A plan's code as it is now, compared with what is stored.
pub(crate) struct Look {
    found: Found,
    /// The name that its snapshot has.
    name: String,
    /// The trials that get it.
    trials: BTreeSet<u64>,
    changed: Vec<Change>,
    /// Whether one of these trials has ended without success.
    may_run_again: bool,
    missing: Stored,
}

/// The files that trials of the plan have in another form.
struct Change {
    /// The snapshot of these trials.
    snapshot: String,
    files: Vec<String>,
    trials: u64,
}

/// What a submission would store; `None` without `[snapshot]`, or if there is nothing to say. `again`: the trials that would
/// run again; `records`: those of the sweep.
///
/// # Errors
/// As the submission.
pub(crate) fn look(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    again: impl Iterator<Item = u64>,
    (retry, records): (&Again, &HashMap<u64, Record>),
) -> Result<Option<Look>> {
    let Some(own) = source.plan.snapshot.as_ref() else { return Ok(None) };
    let trials = trials(diff, again, retry);
    look_at(tree, source, diff, (trials, records), || walk::find(tree, source, own))
}

/// Looks; where no trial gets the code, files that cannot be read are no reason not to submit.
fn look_at(
    tree: &Tree,
    source: &Source,
    diff: &Diff,
    (trials, records): (BTreeSet<u64>, &HashMap<u64, Record>),
    find: impl FnOnce() -> Result<Found>,
) -> Result<Option<Look>> {
    match find() {
        Err(_) if trials.is_empty() => Ok(None),
        found => Look::of(tree, source, diff, (trials, records), found?).map(Some),
    }
}

impl Look {
    fn of(
        tree: &Tree,
        source: &Source,
        diff: &Diff,
        (trials, records): (BTreeSet<u64>, &HashMap<u64, Record>),
        found: Found,
    ) -> Result<Self> {
        let name = found.manifest.name();
        let (mut changed, mut may_run_again) = (Vec::new(), false);
        for (old, has) in
            code::trials(tree, diff.known)?.into_iter().filter(|(old, _)| *old != name)
        {
            let keeps = |id: &&u64| diff.has(**id) && !trials.contains(id);
            let kept = has.iter().filter(keeps).count() as u64;
            if kept == 0 {
                continue;
            }
            // The plan decides itself about what it changes.
            let plan = found.name_of(&source.path);
            let manifest = code::manifest(tree, &old)?;
            let files = found.manifest.changed(&manifest).into_iter();
            let files: Vec<String> =
                files.filter(|file| Some(*file) != plan.as_deref()).map(str::to_owned).collect();
            if !files.is_empty() {
                let is_bad = |id: &u64| records.get(id).is_some_and(Record::is_without_success);
                may_run_again |= has.iter().filter(keeps).any(is_bad);
                changed.push(Change { snapshot: old, files, trials: kept });
            }
        }
        let missing = match trials.is_empty() {
            true => Stored::default(),
            false => store::missing(tree, &found, &name),
        };
        Ok(Self { found, name, trials, changed, may_run_again, missing })
    }

    /// What has changed since trials got their code.
    fn changes(&self, retry: &Again) -> Vec<String> {
        let mut notes: Vec<String> = self.changed.iter().map(Change::words).collect();
        if self.may_run_again && !retry.is_with_current_code() {
            notes.push(
                "`--retry --current-code` runs trials again with the code as it is now".to_owned(),
            );
        }
        notes
    }

    /// What to know of the files that are stored.
    fn about_files(&self) -> Vec<String> {
        let special = self.found.special.iter().map(|path| {
            format!("`{path}` is neither a file nor a folder: it is not part of the snapshot")
        });
        special.chain(large(&self.found.manifest)).collect()
    }

    /// What the submission would say, and what it would store.
    pub(crate) fn notes(&self, retry: &Again) -> Vec<String> {
        let mut notes = self.changes(retry);
        if !self.trials.is_empty() {
            notes.extend(self.about_files());
            let files = count(self.found.manifest.files.len() as u64, "file");
            let what = match self.missing.files {
                0 => "nothing new to store".to_owned(),
                n => format!("{} would be stored, {}", count(n, "file"), bytes(self.missing.bytes)),
            };
            notes.push(format!("code: snapshot of {files}, {what}"));
        }
        notes
    }

    /// The same as a document: `docs/plan.md` has its members.
    pub(crate) fn document(&self) -> Value {
        let change = |change: &Change| {
            json!({
                "snapshot": change.snapshot, "trials": change.trials, "files": change.files,
            })
        };
        json!({
            "snapshot": self.name,
            "files": self.found.manifest.files.len(),
            "bytes": total(&self.found.manifest),
            "new_files": self.missing.files,
            "new_bytes": self.missing.bytes,
            "trials": self.trials.len(),
            "changed": self.changed.iter().map(change).collect::<Vec<_>>(),
        })
    }
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

impl Change {
    /// Says that files have changed since so many trials got theirs.
    fn words(&self) -> String {
        let named = match self.files.as_slice() {
            [init @ .., last] if !init.is_empty() && self.files.len() <= 3 => {
                format!("{} and {last}", init.join(", "))
            }
            [a, b, _, ..] => {
                format!("{a}, {b} and {}", count(self.files.len() as u64 - 2, "further file"))
            }
            _ => self.files.concat(),
        };
        let verb = if self.trials == 1 { "has" } else { "have" };
        let old = if self.files.len() == 1 { "the old one" } else { "the old ones" };
        format!("{named} changed: {} {verb} {old}", count(self.trials, "trial"))
    }
}

/// Bytes of all files of a snapshot.
fn total(manifest: &Manifest) -> u64 {
    manifest.files.values().map(|file| file.bytes).sum()
}

fn large(manifest: &Manifest) -> Option<String> {
    let total = total(manifest);
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
