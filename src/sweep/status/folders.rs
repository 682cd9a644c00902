//! Jobs that name another folder than that of the sweep: it was moved since they were submitted, or is a copy.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use crate::base::host::{Vars, disk};
use crate::base::idset::IdSet;
use crate::plan::site::Site;
use crate::sweep::standing::{Standing, State};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{ByTrial, Record};
use crate::sweep::tree::table::Row;
use crate::sweep::tree::{Identity, Tree};

use super::before_a_plan;
use super::pilots::Pilots;
use super::places::Places;

/// A folder that jobs of a sweep name, and that is not the sweep's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OtherFolder {
    pub(crate) dir: PathBuf,
    /// Whether the sweep there has the same identity: this one is a copy of it.
    pub(crate) is_original: bool,
    /// The trials whose jobs are queued or, where they belong to the original, running, as `0-9,14`.
    pub(crate) trials: String,
    /// The jobs of agents that are queued or running.
    pub(crate) pilots: Vec<String>,
    /// The jobs that submit more, alike.
    pub(crate) feeders: Vec<String>,
}

impl OtherFolder {
    /// What becomes of the job of one of its trials; `None` of others.
    pub(crate) fn of_trial(&self, trial: u64) -> Option<String> {
        let is_its = IdSet::of_numbers(&self.trials).is_ok_and(|ids| ids.has(trial));
        let dir = self.dir.display();
        is_its.then(|| match self.is_original {
            true => format!("its job belongs to `{dir}`, of which this is a copy, and writes its results there"),
            false => format!(
                "its job was submitted in `{dir}`, where this sweep no longer is: it will fail unless its node sees it there"
            ),
        })
    }

    /// What becomes of its jobs, and what can be done, for people.
    pub(crate) fn words(&self, tree: &Tree) -> String {
        let dir = self.dir.display();
        let of = |what: &str, jobs: &[String]| {
            (!jobs.is_empty()).then(|| format!("{what} ({})", jobs.join(", ")))
        };
        let n_trials = IdSet::of_numbers(&self.trials).map_or(0, |ids| ids.len());
        let trials = match n_trials {
            0 => None,
            1 => Some(format!("trial {}", self.trials)),
            _ => Some(format!("trials {}", self.trials)),
        };
        let others = [of("agents", &self.pilots), of("the feeder", &self.feeders)];
        let whose: Vec<String> = trials.into_iter().chain(others.into_iter().flatten()).collect();
        let is_one = self.pilots.is_empty() && n_trials + self.feeders.len() == 1;
        let whose = whose.join(" and of ");
        if self.is_original {
            let belong = match is_one {
                true => format!("job of {whose} belongs"),
                false => format!("jobs of {whose} belong"),
            };
            let results = if is_one { "it writes its" } else { "they write their" };
            return format!(
                "the {belong} to `{dir}`, of which this is a copy: {results} results there\n\
                 hint: to run the same here too, give the plan another `[sweep] name`"
            );
        }
        let (named, trials) = (tree.named(), &self.trials);
        let them = if is_one { "it" } else { "them" };
        let way = match (n_trials, self.pilots.is_empty()) {
            (0, true) => "submit again when it has failed".to_owned(),
            (_, true) => format!(
                "cancel {them} (hpcsweep cancel {named} {trials}) and submit again with --retry"
            ),
            (_, false) => format!("cancel them (hpcsweep cancel {named}) and submit again"),
        };
        let submitted = match is_one {
            true => format!("job of {whose} was submitted"),
            false => format!("jobs of {whose} were submitted"),
        };
        let fail = match is_one {
            true => "it will fail unless its node sees it there",
            false => "they will fail unless their nodes see it there",
        };
        format!(
            "the {submitted} in `{dir}`, where this sweep no longer is: {fail}\n\
             hint: put a link there that leads here; or {way}"
        )
    }
}

/// The other folders that the jobs of a sweep name.
pub(super) struct OtherFolders<'a> {
    /// By array, and whether the original is there.
    of: HashMap<u32, (&'a Path, bool)>,
    places: &'a Places,
    journal: &'a Journal,
}

impl<'a> OtherFolders<'a> {
    pub(super) fn new(
        tree: &Tree,
        originals: &BTreeMap<u32, PathBuf>,
        (journal, places): (&'a Journal, &'a Places),
    ) -> Self {
        let dirs =
            journal.arrays.keys().filter_map(|array| Some((*array, journal.dir_of(*array)?)));
        let dirs: Vec<(u32, &Path)> = dirs.collect();
        let distinct: BTreeSet<&Path> = dirs.iter().map(|(_, dir)| *dir).collect();
        let others = distinct.into_iter().filter(|dir| !disk::is_same(dir, tree.dir()));
        let others: HashSet<&Path> = others.collect();
        let of = dirs.into_iter().filter(|(_, dir)| others.contains(dir));
        let of = of.map(|(array, dir)| (array, (dir, originals.contains_key(&array))));
        Self { of: of.collect(), places, journal }
    }

    /// The folder that the job of a trial names, and whether it has the original.
    fn of(&self, trial: u64) -> Option<(&'a Path, bool)> {
        let (array, _) = self.places.of(trial)?;
        self.journal.job(array)?;
        self.of.get(&array).copied()
    }

    /// Says of the trials that have ended, and of which nothing of their job is on record here, that it named another folder.
    pub(super) fn explain(&self, rows: &[Row], records: &ByTrial, standings: &mut [Standing]) {
        if self.of.is_empty() {
            return;
        }
        for (row, standing) in rows.iter().zip(standings) {
            let Some((dir, is_original)) = self.of(row.id).filter(|_| standing.state.is_bad())
            else {
                continue;
            };
            let job = self.places.of(row.id).and_then(|(array, _)| self.journal.job(array));
            let is_its = |record: &Record| {
                record.attempts.iter().any(|a| job.is_some_and(|job| a.is_of_job(job)))
            };
            // Somebody has cancelled it, or the trial before it has not succeeded: that is why.
            let has_reason = matches!(standing.state, State::Skipped | State::Cancelled);
            if has_reason || records.get(&row.id).is_some_and(is_its) {
                continue;
            }
            let dir = dir.display();
            standing.reason = match is_original {
                true => format!("its job belongs to `{dir}`, of which this is a copy"),
                false => format!("its job was submitted in `{dir}`, where this sweep no longer is"),
            };
        }
    }

    /// The folders that jobs name which will fail, or write elsewhere: those of trials, and these of agents and feeders.
    pub(super) fn open<'b>(
        &self,
        rows: &[Row],
        standings: &[Standing],
        pilots: &[Pilots],
        feeders: impl Iterator<Item = (u32, &'b str)>,
    ) -> Vec<OtherFolder> {
        if self.of.is_empty() {
            return Vec::new();
        }
        let mut folders: BTreeMap<(&Path, bool), Jobs> = BTreeMap::new();
        for (row, standing) in rows.iter().zip(standings) {
            // A worker has opened its files; an agent looks for new ones again and again.
            let is_meant = |&(_, is_original): &(&Path, bool)| match &standing.state {
                State::Queued => true,
                State::Pending => false,
                state => is_original && !state.is_final(),
            };
            if let Some(folder) = self.of(row.id).filter(is_meant) {
                folders.entry(folder).or_default().trials.push(row.id);
            }
        }
        for pilots in pilots.iter().filter(|pilots| pilots.will_work()) {
            if let Some(folder) = self.of.get(&pilots.array) {
                folders.entry(*folder).or_default().pilots.push(pilots.job.clone());
            }
        }
        for (array, job) in feeders {
            if let Some(folder) = self.of.get(&array) {
                folders.entry(*folder).or_default().feeders.push(job.to_owned());
            }
        }
        let folder = |((dir, is_original), jobs): ((&Path, bool), Jobs)| OtherFolder {
            dir: dir.to_owned(),
            is_original,
            trials: IdSet::of_trials(jobs.trials).to_string(),
            pilots: jobs.pilots,
            feeders: jobs.feeders,
        };
        folders.into_iter().map(folder).collect()
    }
}

/// What of a sweep a folder has: the trials with a job, and the jobs of agents and feeders.
#[derive(Default)]
struct Jobs {
    trials: Vec<u64>,
    pilots: Vec<String>,
    feeders: Vec<String>,
}

/// What a submission says of jobs that name another folder and are queued or running. The scheduler is asked where there may
/// be some.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn notes(
    tree: &Tree,
    identity: &Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Vec<String>> {
    let journal = Journal::read(tree)?;
    let mut dirs = journal.arrays.keys().filter_map(|array| journal.dir_of(*array));
    if dirs.all(|dir| disk::is_same(dir, tree.dir())) {
        return Ok(Vec::new());
    }
    let status = before_a_plan(tree.clone(), identity.clone(), site, environment, false)?;
    Ok(status.other_folders.iter().map(|folder| folder.words(tree)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_is_told_as_one() {
        let folder = |is_original, trials: &str, feeders: &[&str]| OtherFolder {
            dir: "/old/s".into(),
            is_original,
            trials: trials.to_owned(),
            pilots: Vec::new(),
            feeders: feeders.iter().map(|&job| job.to_owned()).collect(),
        };
        let said = |folder: OtherFolder| folder.words(&Tree::at(Path::new("/new/s")));
        assert_eq!(
            said(folder(true, "3", &[])),
            "the job of trial 3 belongs to `/old/s`, of which this is a copy: it writes its results there\n\
             hint: to run the same here too, give the plan another `[sweep] name`"
        );
        assert_eq!(
            said(folder(false, "3", &[])),
            "the job of trial 3 was submitted in `/old/s`, where this sweep no longer is: it will fail unless its node \
             sees it there\n\
             hint: put a link there that leads here; or cancel it (hpcsweep cancel /new/s 3) and submit again with --retry"
        );
        assert_eq!(
            said(folder(false, "", &["7"])),
            "the job of the feeder (7) was submitted in `/old/s`, where this sweep no longer is: it will fail unless its \
             node sees it there\n\
             hint: put a link there that leads here; or submit again when it has failed"
        );
        assert_eq!(folder(false, "3-5", &[]).of_trial(6), None);
    }
}
