//! Code snapshots, from which the programs of trials run: `code/`.
//!
//! `code/objects/ab/HASH` has the content of one file, `code/HASH/` a snapshot as a folder of links to objects,
//! `code/HASH.json` its list of files. `code/submissions/0001.json` says which trials run from which snapshot; a later
//! submission overrides an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::{Tree, numbers, read_document, write_document};
use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::host::{content, disk};
use crate::base::idset::IdSet;
use crate::base::words::count;

/// A list of the files of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Format of the tree.
    pub(crate) format: u32,
    /// The files by their paths in the snapshot.
    pub(crate) files: BTreeMap<String, File>,
}

/// A file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    /// BLAKE3 of its content, 32 hexadecimal digits; empty for a link.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) hash: String,
    /// Bytes of its content; 0 for a link.
    #[serde(default)]
    pub(crate) bytes: u64,
    /// Whether its owner may execute it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) executable: bool,
    /// Where it leads, if it is a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
}

impl Manifest {
    /// The name of the snapshot: a hash of its files' paths and contents.
    pub(crate) fn name(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (path, file) in &self.files {
            let File { hash, executable, link, .. } = file;
            for part in [path, hash, link.as_deref().unwrap_or_default()] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part.as_bytes());
            }
            hasher.update(&[u8::from(*executable), u8::from(link.is_some())]);
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// The paths of which content, mode or target differ, or that only one of both has.
    pub(crate) fn changed<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let differs = |path: &&String| self.files.get(*path) != other.files.get(*path);
        let gone = other.files.keys().filter(|path| !self.files.contains_key(*path));
        let mut all: Vec<&str> =
            self.files.keys().filter(differs).chain(gone).map(String::as_str).collect();
        all.sort_unstable();
        all
    }
}

/// One submission: which trials run from which snapshot from then on, and what was there at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// Format of the tree.
    pub(crate) format: u32,
    /// Unix seconds.
    pub(crate) created: f64,
    /// The trials that it is about, as `0-9,14`.
    pub(crate) trials: String,
    /// The name of their snapshot; absent if they run in the plan's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// The folder that was stored.
    pub(crate) root: PathBuf,
    /// The working folder within it.
    pub(crate) workdir: String,
    /// The commit, where the folder is in a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) git: Option<Git>,
    /// The environment modules that were loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) modules: Vec<String>,
    /// What the interpreter of the command says of its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interpreter: Option<String>,
    /// The command that listed packages; its output is in `NNNN.packages.txt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) packages: Vec<String>,
    /// Why it listed none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) no_packages: Option<String>,
}

/// The state of a git repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Git {
    /// The commit; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The branch; absent with a detached HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// Whether files differed from the commit; the difference is in `NNNN.diff`.
    pub(crate) dirty: bool,
}

/// What was recorded beside a submission.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The difference between files and commit.
    pub(crate) diff: Option<String>,
    /// Packages with their versions.
    pub(crate) packages: Option<String>,
}

/// The folder of snapshots.
pub(crate) fn folder(tree: &Tree) -> PathBuf {
    tree.dir().join("code")
}

/// A snapshot as a folder.
pub(crate) fn snapshot(tree: &Tree, name: &str) -> PathBuf {
    folder(tree).join(name)
}

fn submissions(tree: &Tree) -> PathBuf {
    folder(tree).join("submissions")
}

fn manifest_file(tree: &Tree, name: &str) -> PathBuf {
    folder(tree).join(format!("{name}.json"))
}

/// The list of files of a snapshot.
///
/// # Errors
/// When it cannot be read or is damaged.
pub(crate) fn manifest(tree: &Tree, name: &str) -> Result<Manifest> {
    read_document(&manifest_file(tree, name))
}

/// Writes it.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write_manifest(tree: &Tree, name: &str, manifest: &Manifest) -> Result<()> {
    write_document(&manifest_file(tree, name), manifest)
}

/// The files of a snapshot that are no longer what its list says, or gone. Files beside them are programs' own.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn changed(tree: &Tree, name: &str, manifest: &Manifest) -> Result<Vec<String>> {
    let folder = snapshot(tree, name);
    let mut changed = Vec::new();
    for (path, File { hash, bytes, link, .. }) in &manifest.files {
        let file = folder.join(path);
        let is_same = match link {
            Some(target) => content::is_link(&file, target),
            None => {
                content::is_file(&file, hash, *bytes).map_err(|e| disk::fault("read", &file, &e))?
            }
        };
        if !is_same {
            changed.push(path.clone());
        }
    }
    Ok(changed)
}

/// Refuses a snapshot of at most so many files that is no longer what was stored. A process reads each snapshot once.
///
/// # Errors
/// When a file of it has changed or cannot be read, or its list is damaged.
pub(crate) fn check(tree: &Tree, name: &str, most: usize) -> Result<()> {
    static WHOLE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let whole = || WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = snapshot(tree, name);
    if whole().contains(&folder) {
        return Ok(());
    }
    let manifest = manifest(tree, name)?;
    if manifest.name() != name {
        return Err(numbers::damaged(&manifest_file(tree, name)).into());
    }
    if manifest.files.len() > most {
        return Ok(());
    }
    let changed = changed(tree, name, &manifest)?;
    let Some(first) = changed.first() else {
        whole().insert(folder);
        return Ok(());
    };
    let more = match changed.len() - 1 {
        0 => String::new(),
        n => format!(" and {}", count(n as u64, "further file")),
    };
    let sentence = format!("`{}`{more} changed after it was stored", folder.join(first).display());
    Err(Fault::machine(sentence)
        .because(Cause::CodeChanged)
        .hint("restore it, or run the trial with the code as it is now: `submit --retry --current-code`")
        .into())
}

/// The numbers of all submissions with a record here, in order.
fn all(tree: &Tree) -> Result<Vec<u32>> {
    let names = disk::list(&submissions(tree))?;
    let mut all: Vec<u32> =
        names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
    // From 10,000 on, names are not in the order of numbers.
    all.sort_unstable();
    Ok(all)
}

/// The record of a submission, relative to the sweep's folder.
fn record(number: u32) -> String {
    format!("code/submissions/{number:04}.json")
}

/// Adds the record of a submission. The caller holds the lock.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write(tree: &Tree, submission: &Submission, beside: &Beside) -> Result<()> {
    let number = all(tree)?.last().map_or(1, |last| last + 1);
    disk::make_dir(&submissions(tree))?;
    let file = |ending: &str| submissions(tree).join(format!("{number:04}.{ending}"));
    for (ending, text) in [("diff", &beside.diff), ("packages.txt", &beside.packages)] {
        if let Some(text) = text {
            disk::write_whole(&file(ending), text.as_bytes())?;
        }
    }
    write_document(&file("json"), submission)
}

/// Removes the records of submissions that were killed before their trials, numbered from `known` on, were part of the
/// sweep. Returns whether there were any. The caller holds the lock.
///
/// # Errors
/// When a record cannot be read or removed.
pub(crate) fn remove_unfinished(tree: &Tree, known: u64) -> Result<bool> {
    let mut found = false;
    for number in all(tree)? {
        let (_, ids) = read(tree, number)?;
        if ids.iter().any(|id| u64::from(id) < known) {
            continue;
        }
        found = true;
        // What is beside a record goes first: without the record nobody would look for it.
        for ending in ["diff", "packages.txt", "json"] {
            disk::remove_if_there(&submissions(tree).join(format!("{number:04}.{ending}")))?;
        }
    }
    Ok(found)
}

/// The names of all snapshots that a submission has given to trials.
///
/// # Errors
/// As [`of_trial`].
pub(crate) fn named(tree: &Tree) -> Result<BTreeSet<String>> {
    let own = |number| read(tree, number).map(|(own, _)| own.snapshot);
    all(tree)?.into_iter().map(own).filter_map(Result::transpose).collect()
}

/// What each submission recorded, the first one first. Damaged ones are left out.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn recorded(tree: &Tree) -> Result<Vec<(Submission, IdSet, Beside)>> {
    let mut found = Vec::new();
    for number in all(tree)? {
        let Ok((own, ids)) = read(tree, number) else { continue };
        let file =
            |ending| disk::read_if_there(&submissions(tree).join(format!("{number:04}.{ending}")));
        let beside = Beside { diff: file("diff")?, packages: file("packages.txt")? };
        found.push((own, ids, beside));
    }
    Ok(found)
}

/// The submissions that gave trials their code, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Submissions(Vec<(Submission, IdSet)>);

impl Submissions {
    /// Reads them. Damaged ones are left out and reported.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub(crate) fn readable(tree: &Tree, damage: &mut Damage) -> Result<Self> {
        let mut found = Vec::new();
        for number in all(tree)?.into_iter().rev() {
            match read(tree, number) {
                Ok(own) => found.push(own),
                Err(_) => damage.add(&record(number), 1),
            }
        }
        Ok(Self(found))
    }

    fn about(&self, trial: u64) -> impl Iterator<Item = &Submission> {
        let id = u32::try_from(trial).ok();
        self.0
            .iter()
            .filter(move |(_, ids)| id.is_some_and(|id| ids.contains(id)))
            .map(|(own, _)| own)
    }

    /// The code that a trial runs from now on; `None` if it runs in the plan's own folder.
    pub(crate) fn code(&self, trial: u64) -> Option<Code> {
        Code::of(self.about(trial).next()?)
    }

    /// The submissions, the newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Submission> {
        self.0.iter().map(|(submission, _)| submission)
    }

    /// The code that a trial ran from a snapshot of this name.
    pub(crate) fn code_of(&self, trial: u64, snapshot: &str) -> Code {
        let own = self.about(trial).find(|own| own.snapshot.as_deref() == Some(snapshot));
        let bare =
            || Code { snapshot: snapshot.to_owned(), commit: None, branch: None, dirty: None };
        own.and_then(Code::of).unwrap_or_else(bare)
    }
}

/// Where the code of a trial is, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Code {
    /// The name of the snapshot.
    pub(crate) snapshot: String,
    /// The commit of its git repository; absent without one.
    pub(crate) commit: Option<String>,
    /// The branch that was checked out; absent without one.
    pub(crate) branch: Option<String>,
    /// Whether files differed from the commit.
    pub(crate) dirty: Option<bool>,
}

impl Code {
    fn of(own: &Submission) -> Option<Self> {
        let git = own.git.clone();
        Some(Self {
            snapshot: own.snapshot.clone()?,
            dirty: git.as_ref().map(|git| git.dirty),
            commit: git.as_ref().and_then(|git| git.commit.clone()),
            branch: git.and_then(|git| git.branch),
        })
    }

    /// In words: `snapshot 1a2b3c4d, commit 0123456789ab on main with changes`.
    pub(crate) fn words(&self) -> String {
        let mut text = format!("snapshot {}", short(&self.snapshot));
        if let Some(commit) = &self.commit {
            text.push_str(&format!(", commit {}", commit.get(..12).unwrap_or(commit)));
        }
        if let Some(branch) = &self.branch {
            text.push_str(&format!(" on {branch}"));
        }
        if self.dirty == Some(true) && self.commit.is_some() {
            text.push_str(" with changes");
        }
        text
    }
}

/// The short form of a snapshot's name.
pub(crate) fn short(name: &str) -> &str {
    name.get(..8).unwrap_or(name)
}

/// A record whose members can be true.
fn read(tree: &Tree, number: u32) -> Result<(Submission, IdSet)> {
    let path = tree.dir().join(record(number));
    let own: Submission = read_document(&path)?;
    let is_inside =
        |path: &str| Path::new(path).components().all(|c| matches!(c, Component::Normal(_)));
    let is_name = |name: &String| name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    match IdSet::of_numbers(&own.trials) {
        Ok(ids) if is_inside(&own.workdir) && own.snapshot.iter().all(is_name) => Ok((own, ids)),
        _ => Err(numbers::damaged(&path).into()),
    }
}

/// Which trials run which code, as it was read.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The snapshot with its working folder and trials, the latest submission first.
    submissions: Vec<(Option<(String, PathBuf)>, IdSet)>,
    /// Why no more were read, if one could not be read.
    error: Option<Fault>,
}

impl Known {
    /// Reads it, up to a record that cannot be read.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub(crate) fn read(tree: &Tree) -> Result<Self> {
        let mut known = Self::default();
        for number in all(tree)?.into_iter().rev() {
            match read(tree, number) {
                Ok((own, ids)) => {
                    let folder = |name: String| {
                        let workdir = snapshot(tree, &name).join(&own.workdir);
                        (name, workdir)
                    };
                    known.submissions.push((own.snapshot.map(folder), ids));
                }
                Err(error) => {
                    known.error = Some(error.downcast::<Fault>()?);
                    break;
                }
            }
        }
        Ok(known)
    }

    /// Whether all of it could be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.error.is_none()
    }

    /// The code that a trial runs: the name of a snapshot and the working folder there. `None` if it runs in the plan's
    /// own folder.
    ///
    /// # Errors
    /// When the trial is in no record before one that could not be read.
    pub(crate) fn of(&self, trial: u64) -> Result<Option<&(String, PathBuf)>, Fault> {
        let Ok(id) = u32::try_from(trial) else { return Ok(None) };
        match self.submissions.iter().find(|(_, ids)| ids.contains(id)) {
            Some((code, _)) => Ok(code.as_ref()),
            None => self.error.clone().map_or(Ok(None), Err),
        }
    }
}

/// As [`Known::of`], as it is now.
///
/// # Errors
/// As [`Known::of`].
pub(crate) fn of_trial(tree: &Tree, trial: u64) -> Result<Option<(String, PathBuf)>> {
    Ok(Known::read(tree)?.of(trial)?.cloned())
}

/// The trials below `count` of each snapshot that has any, the latest snapshot first.
///
/// # Errors
/// As [`of_trial`].
pub(crate) fn trials(tree: &Tree, count: u64) -> Result<Vec<(String, Vec<u64>)>> {
    let mut is_known = vec![false; usize::try_from(count)?];
    let mut found: Vec<(String, Vec<u64>)> = Vec::new();
    for number in all(tree)?.into_iter().rev() {
        let (own, ids) = read(tree, number)?;
        let new: Vec<u64> = ids
            .iter()
            .filter(|id| is_known.get(*id as usize) == Some(&false))
            .map(u64::from)
            .collect();
        new.iter().for_each(|id| is_known[*id as usize] = true);
        let Some(name) = own.snapshot.filter(|_| !new.is_empty()) else { continue };
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, trials)) => trials.extend(new),
            None => found.push((name, new)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tree::FORMAT;

    fn submission(trials: &str, snapshot: Option<char>) -> Submission {
        Submission {
            format: FORMAT,
            created: 1.0,
            trials: trials.to_owned(),
            snapshot: snapshot.map(|c| c.to_string().repeat(32)),
            root: "/p".into(),
            workdir: "a/b".to_owned(),
            git: None,
            modules: Vec::new(),
            interpreter: None,
            packages: Vec::new(),
            no_packages: None,
        }
    }

    #[test]
    fn a_later_submission_overrides_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        assert_eq!(of_trial(&tree, 0).unwrap(), None);
        for (trials, snapshot) in [("0-4", Some('a')), ("5-6", Some('b')), ("1,5", None)] {
            write(&tree, &submission(trials, snapshot), &Beside::default()).unwrap();
        }
        write(&tree, &submission("2", Some('b')), &Beside::default()).unwrap();
        let name = |trial| of_trial(&tree, trial).unwrap().map(|(name, _)| name[..1].to_owned());
        let names: Vec<String> = (0..8).map(|trial| name(trial).unwrap_or_default()).collect();
        assert_eq!(names, ["a", "", "b", "a", "a", "", "b", ""]);
        let (a, b) = ("a".repeat(32), "b".repeat(32));
        let all = trials(&tree, 8).unwrap();
        assert_eq!(all, [(b.clone(), vec![2, 6]), (a, vec![0, 3, 4])]);
        let folder = tree.dir().join("code").join(&b).join("a/b");
        assert_eq!(of_trial(&tree, 6).unwrap(), Some((b, folder)));
    }

    #[test]
    fn what_a_killed_submission_has_recorded_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        for (trials, snapshot) in [("0-4", Some('a')), ("1,7", Some('b')), ("5-7", Some('c'))] {
            let beside = Beside { diff: Some("x".to_owned()), packages: None };
            write(&tree, &submission(trials, snapshot), &beside).unwrap();
        }
        assert!(remove_unfinished(&tree, 5).unwrap());
        assert!(!remove_unfinished(&tree, 5).unwrap());
        let names = disk::list(&submissions(&tree)).unwrap();
        assert_eq!(names, ["0001.diff", "0001.json", "0002.diff", "0002.json"]);
        let left: Vec<String> =
            named(&tree).unwrap().into_iter().map(|n| n[..1].to_owned()).collect();
        assert_eq!(left, ["a", "b"]);
    }

    #[test]
    fn a_submission_whose_record_is_damaged_is_left_out_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        for snapshot in ['a', 'b'] {
            write(&tree, &submission("0", Some(snapshot)), &Beside::default()).unwrap();
        }
        let mut damage = Damage::default();
        let all = Submissions::readable(&tree, &mut damage).unwrap();
        assert_eq!(all.code(0).unwrap().words(), "snapshot bbbbbbbb");
        assert_eq!(damage, Damage::default());
        disk::write_whole(&tree.dir().join(record(2)), b"{").unwrap();
        let all = Submissions::readable(&tree, &mut damage).unwrap();
        assert_eq!(all.code(0).unwrap().words(), "snapshot aaaaaaaa");
        let found = damage.settle(|_| true);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "1 damaged line in code/submissions/0002.json");
    }

    #[test]
    fn a_record_that_leads_out_of_its_snapshot_is_damage() {
        for workdir in ["../x", "/x", "a/../../x"] {
            let dir = tempfile::tempdir().unwrap();
            let tree = Tree::at(dir.path());
            let own = Submission { workdir: workdir.to_owned(), ..submission("0", Some('a')) };
            write(&tree, &own, &Beside::default()).unwrap();
            assert!(of_trial(&tree, 0).is_err(), "{workdir}");
        }
    }
}
