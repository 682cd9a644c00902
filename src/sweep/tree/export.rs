//! A sweep as one archive: which of its files travel, and in which state.
//!
//! Names are listed in the order in which files refer to each other: what refers before what is referred to. So an
//! archive that is written while the sweep runs has, for whatever it mentions, the file that was mentioned.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{FORMAT, Identity, Tree, journal, line};
use crate::base::cause::Cause;
use crate::base::host::archive::{self, Archive, Found, Part, Stored};
use crate::base::host::{clock, disk};
use crate::base::idset::IdSet;
use crate::base::words::count;

/// The folder of what an archive has besides the sweep: the table, the report, and `about.json`.
pub(crate) const FOLDER: &str = "export";

/// What the archive is, in that folder.
const ABOUT: &str = "about.json";

/// What was left out of a merged sweep, in its folder.
const MERGED: &str = "merged.json";

/// `merged.json`: what the records of a merged sweep do not say of those that it was made of.
#[derive(Debug, Serialize, Deserialize)]
struct Merged {
    format: u32,
    /// What was left out.
    without: Vec<Without>,
    /// How trials stood, if some had not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<About>,
}

/// For an archive that does not say which journals it has.
fn all_journals() -> u32 {
    u32::MAX
}

/// What can be left out.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Without {
    /// The folders `checkpoint` of trials
    Checkpoints,
    /// What trials, jobs and hooks printed
    Logs,
    /// All that trials saved, checkpoints included
    Work,
}

/// `export/about.json`: what the archive is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Format of the tree.
    pub(crate) format: u32,
    /// The program's version that wrote the archive.
    pub(crate) version: String,
    /// The time of the last event that is in it, unix seconds.
    pub(crate) until: f64,
    /// Trials by state, as `status` shows them.
    pub(crate) states: BTreeMap<String, u64>,
    /// Whether every trial had ended.
    pub(crate) finished: bool,
    /// When the archive was written, unix seconds, if trials had not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exported: Option<f64>,
    /// How trials stood, where their records alone do not say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) standings: Vec<Stood>,
    /// The number of the last journal in the archive: the jobs of all journals up to it are those of another place.
    #[serde(default = "all_journals")]
    pub(crate) journals: u32,
    /// What was left out on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without: Vec<Without>,
    /// Pipes, sockets and devices, which no archive has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<String>,
    /// Whether this is no archive, but several sweeps that were merged.
    #[serde(skip)]
    pub(crate) is_merged: bool,
}

/// How some trials stood when they were exported or merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stood {
    /// The word of their state.
    pub(crate) state: String,
    /// Why they ended without success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<Cause>,
    /// The words beside it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// The trials, as `0-9,14`.
    pub(crate) trials: String,
}

/// The files of a sweep, as they are to be stored.
#[derive(Debug)]
pub(crate) struct Files {
    all: Vec<Found>,
    /// Pipes, sockets and devices, relative to the sweep's folder.
    pub(crate) skipped: Vec<String>,
}

/// What was put into an archive, and what could not be put in as it is.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How many files and links were stored.
    pub(crate) files: u64,
    /// Links that lead out of the sweep.
    pub(crate) outward: u64,
    /// Files that became shorter while they were read.
    pub(crate) short: Vec<String>,
}

/// The entries of a sweep's folder that refer to others, each before those that it refers to. All others follow.
const ORDER: [&str; 12] = [
    "claims",
    "journal",
    "agents",
    "records",
    "pull",
    "waves",
    "terms.json",
    "trials",
    "plans",
    "plan.toml",
    "code",
    "sweep.json",
];

/// Lists what is to be stored.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn list(tree: &Tree, without: &[Without]) -> Result<Files> {
    let mut all = Vec::new();
    let wants = |name: &Path| travels(name, without);
    let first = ORDER.iter().map(|name| OsStr::new(name).to_owned());
    let others = archive::names(tree.dir())?;
    let others = others.into_iter().filter(|name| !ORDER.iter().any(|known| name == known));
    for name in first.chain(others).map(PathBuf::from).filter(|name| wants(name)) {
        archive::walk(tree.dir(), &name, &wants, &mut all)?;
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let (skipped, all): (Vec<Found>, Vec<Found>) = all.into_iter().partition(Found::is_special);
    let skipped = skipped.iter().map(|found| found.name.display().to_string()).collect();
    Ok(Files { all, skipped })
}

/// Whether a path of a sweep's folder is part of an archive.
fn travels(name: &Path, without: &[Without]) -> bool {
    let parts: Vec<&OsStr> = name.iter().collect();
    let has = |own| without.contains(&own);
    let is = |at: usize, word: &str| parts.get(at).is_some_and(|part| *part == word);
    let last = name.file_name().unwrap_or_default().as_encoded_bytes();
    // Of a million trials on, there is one more folder on the way.
    let of_trial =
        if parts.get(1).is_some_and(|p| p.as_encoded_bytes().starts_with(b"m")) { 4 } else { 3 };
    match parts[0].to_str() {
        Some("index" | "meet" | "submit.lock" | FOLDER) => false,
        Some("work") => {
            let is_checkpoint = parts.len() == of_trial + 1 && is(of_trial, "checkpoint");
            !(has(Without::Work) || (has(Without::Checkpoints) && is_checkpoint))
        }
        Some("logs") if has(Without::Logs) => false,
        // Those of programs. Any name can be one of a snapshot, but for unfinished ones.
        Some("code") => !(parts.len() == 2 && last.starts_with(b".")),
        _ if last.starts_with(b".") => false,
        Some("jobs") => !last.starts_with(b"env-"),
        Some("agents" | "hooks") if has(Without::Logs) => !last.ends_with(b".log"),
        _ => true,
    }
}

impl Files {
    /// Whether there is such a link, that leads out of the folder it is in.
    fn leads_out(name: &Path, target: &Path) -> bool {
        let mut depth = name.iter().count().saturating_sub(1);
        for part in target.components() {
            match part {
                Component::Normal(_) => depth += 1,
                Component::CurDir => {}
                Component::ParentDir if depth > 0 => depth -= 1,
                _ => return true,
            }
        }
        false
    }

    /// How many bytes the files have.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.all.iter().filter(|found| found.about.is_file());
        files.map(|found| found.about.len()).sum()
    }

    /// The number of the last journal among them, 0 if there is none.
    fn journals(&self) -> u32 {
        let number = |found: &Found| {
            let is_journal = found.name.parent() == Some(Path::new("journal"));
            journal::number(found.name.file_name()?.to_str()?).filter(|_| is_journal)
        };
        self.all.iter().filter_map(number).max().unwrap_or(0)
    }

    /// Writes them to an archive, below the folder of this name; `beside`: further files, by their names in [`FOLDER`].
    ///
    /// # Errors
    /// When a file cannot be read, or the archive not be written.
    pub(crate) fn store(
        &self,
        tree: &Tree,
        identity: &Identity,
        to: &mut Archive<'_>,
        (name, about): (&Path, &About),
        beside: &[(&str, Vec<u8>)],
    ) -> Result<Report> {
        let mut report = Report::default();
        // Reading a sweep may change the times of its folders.
        let created = identity.created as u64;
        let until = about.until as u64;
        to.folder(name, created)?;
        to.folder(&name.join(FOLDER), created)?;
        for (file, bytes) in beside {
            to.bytes(&name.join(FOLDER).join(file), bytes, until)?;
        }
        for found in &self.all {
            let path = tree.dir().join(&found.name);
            if found.about.is_dir() {
                to.folder(&name.join(&found.name), created)?;
                continue;
            }
            let stored = to.add(&name.join(&found.name), &path, &found.about, part(found))?;
            report.files += u64::from(stored != Stored::Gone);
            if stored == Stored::Short {
                report.short.push(found.name.display().to_string());
            }
            if found.about.is_symlink() {
                let target = archive::target(&path);
                let leads_out = target.is_some_and(|target| Self::leads_out(&found.name, &target));
                report.outward += u64::from(leads_out);
            }
        }
        // Last, so that no attempt in the archive began later than it says.
        let exported = about.exported.or_else(|| (!about.finished).then(clock::now));
        let about = About { exported, journals: self.journals(), ..about.clone() };
        to.bytes(&name.join(FOLDER).join(ABOUT), &line::seal(&about)?, until)?;
        Ok(report)
    }
}

/// Which bytes of a file are stored: whole lines of those that grow by lines, so that no record is torn.
fn part(found: &Found) -> Part {
    let folder = found.name.iter().next().and_then(OsStr::to_str);
    let is_lines = found.name.extension().is_some_and(|ending| ending == "jsonl");
    match folder {
        // It says which records have ended, and these are read after it was listed.
        Some("journal") if is_lines => Part::Lines(found.about.len()),
        Some("records" | "agents") if is_lines => Part::Lines(u64::MAX),
        _ => Part::All,
    }
}

impl About {
    /// When it was made, in words: "when this copy was exported, 2026-11-24 12:00:00"; `None` if all trials had ended.
    pub(crate) fn when(&self) -> Option<String> {
        let what = if self.is_merged { "it was merged" } else { "this copy was exported" };
        Some(format!("when {what}, {}", clock::local(self.exported?)))
    }

    /// What it is, in words: "a copy, exported 2026-11-24 12:00:00 while 1 trial was running".
    pub(crate) fn words(&self) -> String {
        let Some(exported) = self.exported else { return "a copy of a sweep".to_owned() };
        let made = if self.is_merged { "merged" } else { "a copy, exported" };
        let of = |state: &str| self.states.get(state).copied().unwrap_or(0);
        let what = match of("running") {
            0 => "trials had not ended".to_owned(),
            1 => "1 trial was running".to_owned(),
            n => format!("{} were running", count(n, "trial")),
        };
        format!("{made} {} while {what}", clock::local(exported))
    }

    /// That of a sweep in these states.
    pub(crate) fn new(states: BTreeMap<String, u64>, finished: bool, until: f64) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            until,
            states,
            finished,
            exported: None,
            standings: Vec::new(),
            journals: 0,
            without: Vec::new(),
            skipped: Vec::new(),
            is_merged: false,
        }
    }
}

impl Tree {
    /// What was left out when this sweep was exported or merged, sorted.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn left_out(&self) -> Result<Vec<Without>> {
        let mut all = self.copied()?.map(|about| about.without).unwrap_or_default();
        all.extend(self.merged()?.map(|merged| merged.without).unwrap_or_default());
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// Writes down of a merged sweep what was left out, and how trials stand that have not ended, if there is any of that.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn set_merged(&self, without: Vec<Without>, open: Vec<Stood>) -> Result<()> {
        if without.is_empty() && open.is_empty() {
            return Ok(());
        }
        let about = (!open.is_empty()).then(|| {
            let mut states = BTreeMap::new();
            for stood in &open {
                let trials = IdSet::of_numbers(&stood.trials).map_or(0, |ids| ids.len() as u64);
                *states.entry(stood.state.clone()).or_default() += trials;
            }
            let now = clock::now();
            About { exported: Some(now), standings: open, ..About::new(states, false, now) }
        });
        let merged = Merged { format: FORMAT, without, about };
        disk::write_whole(&self.dir().join(MERGED), &line::seal(&merged)?)
    }

    fn merged(&self) -> Result<Option<Merged>> {
        let text = disk::read_if_there(&self.dir().join(MERGED))?.unwrap_or_default();
        Ok(line::unseal(text.trim_end().as_bytes()))
    }

    /// What is known of the archive from which this sweep was unpacked, or of the sweeps that it was merged of while they ran;
    /// `None` if it was neither. Of a damaged file, only that it was one.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn copied(&self) -> Result<Option<About>> {
        let path = self.dir().join(FOLDER).join(ABOUT);
        let Some(text) = disk::read_if_there(&path)? else {
            let about = self.merged()?.and_then(|merged| merged.about);
            return Ok(about.map(|about| About { is_merged: true, ..about }));
        };
        let unknown =
            || About { journals: all_journals(), ..About::new(BTreeMap::new(), true, 0.0) };
        Ok(Some(line::unseal(text.trim_end().as_bytes()).unwrap_or_else(unknown)))
    }
}

/// Whether a path lies in the sweep's folder: an archive there would be a part of itself.
pub(crate) fn is_within(tree: &Tree, path: &Path) -> bool {
    let path = disk::absolute(path);
    path.parent().is_some_and(|parent| disk::real(parent).starts_with(disk::real(tree.dir())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_unfinished_or_not_wanted_stays() {
        let check = |name: &str, without: &[Without], expected: bool| {
            assert_eq!(travels(Path::new(name), without), expected, "{name} {without:?}");
        };
        for name in ["index", "meet", "submit.lock", "export", ".plan.toml.x.tmp", "jobs/env-0.sh"]
        {
            check(name, &[], false);
        }
        check("code/.new-1", &[], false);
        check("records/000/.x.tmp", &[], false);
        for name in
            ["code/a/.gitignore", "work/000/7/.hidden", "work/000/7/index", "agents/k/a.0.log"]
        {
            check(name, &[], true);
        }
        let (checkpoints, logs, work) = ([Without::Checkpoints], [Without::Logs], [Without::Work]);
        check("work/000/7/checkpoint", &checkpoints, false);
        check("work/m1/000/1000007/checkpoint", &checkpoints, false);
        check("work/000/7/own/checkpoint", &checkpoints, true);
        check("work/000/7", &checkpoints, true);
        check("work", &work, false);
        check("logs", &logs, false);
        check("agents/k/a.0.log", &logs, false);
        check("agents/k/a.jsonl", &logs, true);
    }

    #[test]
    fn a_link_leads_out_if_its_target_is_elsewhere() {
        let check = |name: &str, target: &str, expected: bool| {
            let found = Files::leads_out(Path::new(name), Path::new(target));
            assert_eq!(found, expected, "{name} -> {target}");
        };
        check("work/000/7/a", "b", false);
        check("work/000/7/a", "../../../plan.toml", false);
        check("work/000/7/a", "../../../../plan.toml", true);
        check("work/000/7/a", "/etc/passwd", true);
        check("a", "../a", true);
    }
}
