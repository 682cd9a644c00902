//! The calls of the scheduler: the intent before the call, the answer after it.
//!
//! Each submission has one file (`journal/0001.jsonl`) of sealed lines, with one writer. All files read in
//! order show for every array whether it was submitted, and with which result.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Tree;
use super::damage::{self, Damage};
use super::line::{self, Sequence};
use super::records::{Outcome, Record};
use super::rulings::Rulings;
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock, disk, vars};
use crate::base::idset::IdSet;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::job::array_of;
use crate::cluster::scheduler::{self, Scheduler};
use crate::plan::site::{self, SchedulerKind};

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Entry {
    /// About to ask for this array.
    Intent {
        /// Number of the array in the sweep.
        array: u32,
        /// The job name, unique for this call.
        token: String,
        /// Unix seconds.
        time: f64,
        /// The command that is called, with its arguments.
        argv: Vec<String>,
        /// The cluster that the environment names, where the scheduler has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// Whether it is submitted held, to be released when all jobs that wait for it exist.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        held: bool,
    },
    /// The scheduler has it.
    Answer {
        /// Number of the array in the sweep.
        array: u32,
        /// The job name it was asked under.
        token: String,
        /// Unix seconds.
        time: f64,
        /// The scheduler's id of the array.
        job: String,
        /// The cluster that has it, where the scheduler has several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// `submitted`, or `reconciled` when an earlier call turned out to have worked.
        how: String,
    },
    /// The scheduler does not have it and will not: the call was refused, or never arrived.
    Refused {
        /// Number of the array in the sweep.
        array: u32,
        /// The job name it was asked under.
        token: String,
        /// Unix seconds.
        time: f64,
        /// Why, in the words of the scheduler or of hpcsweep.
        reason: String,
        /// Whether it was refused only because the queue had no place for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        full: bool,
    },
    /// A held job was released.
    Released {
        /// Number of the array in the sweep.
        array: u32,
        /// Unix seconds.
        time: f64,
    },
    /// Trials of an array were taken back from the scheduler, on request.
    Cancelled {
        /// Number of the array in the sweep.
        array: u32,
        /// Unix seconds.
        time: f64,
        /// The trials, as `0-9,14`; empty of an array of agents.
        trials: String,
    },
    /// The sweep is held: nothing more of it is submitted.
    Hold {
        /// Unix seconds.
        time: f64,
        /// The name of the user who holds it.
        by: String,
    },
    /// It is no longer held.
    Unhold {
        /// Unix seconds.
        time: f64,
    },
    /// An executor on this machine is through: these trials have ended, well or not.
    Ended {
        /// Unix seconds.
        time: f64,
        /// The trials, as `0-9,14`.
        trials: String,
    },
    /// `[retry] auto`: which trials run again by themselves, and why others do not.
    Decided {
        /// Unix seconds.
        time: f64,
        /// Each with the trials that it is about.
        decisions: Vec<Decision>,
    },
    /// The state of the site when this submission began.
    Site {
        /// Unix seconds.
        time: f64,
        /// Which scheduler, or `local`.
        scheduler: SchedulerKind,
        /// Whether finished jobs can be asked for.
        accounting: bool,
        /// Who submitted: whose jobs to look for.
        user: String,
        /// Absolute path of the plan's file; lines without it are read, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plan: Option<PathBuf>,
        /// Absolute path of the sweep's folder, by which a copy is told from what the plan names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dir: Option<PathBuf>,
    },
}

/// What a feeder decided about trials that ended without success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The trials, as `0-9,14`.
    pub trials: String,
    /// Whether they run again.
    pub again: bool,
    /// Whether that counts towards `[retry] max`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts: bool,
    /// The reason, in words.
    pub why: String,
}

/// The state of one array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Standing {
    /// Asked for, no answer: it may or may not be there.
    Open {
        /// The job name to look for.
        token: String,
        /// When it was asked for.
        time: f64,
    },
    /// It is the scheduler's job.
    Job {
        /// The scheduler's id of the array.
        id: String,
        /// The job name under which it was submitted.
        token: String,
        /// When it was asked for or found.
        time: f64,
    },
    /// It was refused and may be asked for again.
    Refused {
        /// Whether only because the queue had no place for it: then fewer elements may be asked for.
        full: bool,
    },
}

/// The scheduler as a submission found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// Which one it is.
    pub(crate) scheduler: SchedulerKind,
    /// Whether finished jobs can be asked for.
    pub(crate) accounting: bool,
}

/// All journals of a sweep, read together.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The state of each array that was asked for, by its number.
    pub(crate) arrays: BTreeMap<u32, Standing>,
    /// The jobs of arrays that were submitted where the sweep was before it was exported. No scheduler here knows them.
    elsewhere: BTreeMap<u32, String>,
    /// Whether it was submitted nowhere else, or here since it was unpacked.
    pub(crate) is_of_here: bool,
    /// The scheduler that was used last.
    pub(crate) site: Option<Site>,
    /// The file of the plan that was submitted last.
    pub(crate) plan: Option<PathBuf>,
    /// Where the sweep was then.
    pub(crate) dir: Option<PathBuf>,
    /// Where the sweep was when it was submitted first.
    pub(crate) first_dir: Option<PathBuf>,
    /// Where the sweep was when each array was asked for.
    dirs: BTreeMap<u32, PathBuf>,
    /// The cluster that has the jobs, where the scheduler has several: only that one is asked, whatever the environment names.
    pub(crate) cluster: Option<String>,
    /// All users who have submitted.
    pub(crate) users: BTreeSet<String>,
    /// Arrays that were submitted held and have not been released yet.
    held: BTreeSet<u32>,
    /// The user who holds the sweep, if it is held: nothing more of it is submitted.
    pub(crate) on_hold: Option<String>,
    /// Trials that were taken back, by the array that had them.
    cancelled: BTreeMap<u32, IdSet>,
    /// Trials that an executor on this machine has seen end.
    pub(crate) ended: IdSet,
    /// What `[retry]` has decided about each trial.
    pub(crate) rulings: HashMap<u64, Rulings>,
    /// When an executor on this machine was through, the last time, unix seconds.
    pub(crate) ran_here: f64,
    /// When one was begun on this machine, or a queue for agents was made, the last time, unix seconds.
    pub(crate) began_here: f64,
    /// Lines of all journals.
    lines: u64,
}

impl Site {
    /// That of a sweep that runs on this machine.
    pub(crate) const LOCAL: Self = Self { scheduler: SchedulerKind::Local, accounting: false };
}

impl Journal {
    /// The scheduler of the sweep; of one that names none, Slurm.
    pub(crate) fn scheduler(&self) -> Box<dyn Scheduler> {
        let (kind, has_accounting) =
            self.site.map_or_else(Default::default, |site| (site.scheduler, site.accounting));
        scheduler::that_remembers(kind, has_accounting)
    }

    /// Calls about the sweep: its jobs are asked for where they are, whatever cluster the environment names now.
    pub(crate) fn calls(&self, vars: &Vars, site: &site::Site) -> Calls {
        let limit = Duration::from_secs(site.limits.call_timeout_s);
        if self.arrays.is_empty() {
            return Calls::new(vars, limit);
        }
        Calls::on_cluster(self.cluster.as_deref(), vars, limit)
    }

    /// Calls `with` for each entry of all journals that can be read, in order.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(crate) fn entries(tree: &Tree, mut with: impl FnMut(Entry)) -> Result<()> {
        let dir = tree.dir().join("journal");
        for name in disk::list(&dir)?.iter().filter(|n| n.ends_with(".jsonl")) {
            let path = dir.join(name);
            let read = line::each(disk::open(&path)?, |_, line| {
                line::unseal(line).into_iter().for_each(&mut with);
            });
            read.map_err(|e| disk::fault("read", &path, &e))?;
        }
        Ok(())
    }

    /// Reads all journals of a sweep.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(tree: &Tree) -> Result<Self> {
        Self::readable(tree, &mut Damage::default())
    }

    /// As [`Journal::read`]; says which lines were left out.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn readable(tree: &Tree, damage: &mut Damage) -> Result<Self> {
        let mut journal = Self::default();
        let dir = tree.dir().join("journal");
        let foreign = tree.copied()?.map_or(0, |about| about.journals);
        // The journals before the one that is read: lines, and the last file.
        let mut before = (0, "journal".to_owned());
        for name in disk::list(&dir)?.iter().filter(|n| n.ends_with(".jsonl")) {
            let file = format!("journal/{name}");
            let mut lines = Sequence::default();
            let is_foreign = number(name).is_none_or(|number| number <= foreign);
            journal.is_of_here |= !is_foreign;
            let unended =
                line::each(disk::open(&dir.join(name))?, |spot, line| {
                    match line::unseal(line).map(|entry| journal.take_of(entry, is_foreign)) {
                        Some(()) => lines.whole(line),
                        None if spot.len > 0 => lines.damaged(),
                        None => {}
                    }
                });
            damage.add(&file, lines.damaged);
            damage.add(&before.1, lines.earlier.saturating_sub(before.0));
            if unended.map_err(|e| disk::fault("read", &dir.join(name), &e))? {
                damage.add_unended(tree, &file, damage::Writer::Submission);
            }
            before = (before.0 + lines.lines, file);
        }
        journal.lines = before.0;
        Ok(journal)
    }

    /// Takes one entry into account; `is_foreign`: of the place from which the sweep was exported.
    fn take_of(&mut self, entry: Entry, is_foreign: bool) {
        match entry {
            Entry::Answer { array, job, .. } if is_foreign => {
                self.elsewhere.insert(array, job);
            }
            Entry::Intent { .. }
            | Entry::Refused { .. }
            | Entry::Released { .. }
            | Entry::Cancelled { .. }
                if is_foreign => {}
            entry => self.take(entry),
        }
    }

    /// Takes one entry into account.
    pub(crate) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Intent { array, token, time, held, cluster, .. } => {
                if self.jobs().next().is_none() {
                    self.cluster = cluster;
                }
                if held {
                    self.held.insert(array);
                } else {
                    self.held.remove(&array);
                }
                if let Some(dir) = &self.dir {
                    self.dirs.insert(array, dir.clone());
                }
                self.arrays.insert(array, Standing::Open { token, time });
            }
            Entry::Answer { array, token, job, time, cluster, .. } => {
                self.cluster = cluster.or(self.cluster.take());
                self.arrays.insert(array, Standing::Job { id: job, token, time });
            }
            Entry::Refused { array, full, .. } => {
                self.arrays.insert(array, Standing::Refused { full });
            }
            Entry::Released { array, .. } => {
                self.held.remove(&array);
            }
            Entry::Cancelled { array, trials, .. } => {
                let of_array = self.cancelled.entry(array).or_default();
                *of_array = of_array.union(&IdSet::of_numbers(&trials).unwrap_or_default());
            }
            Entry::Hold { by, .. } => self.on_hold = Some(by),
            Entry::Unhold { .. } => self.on_hold = None,
            Entry::Ended { time, trials } => {
                self.ran_here = time;
                self.ended = self.ended.union(&IdSet::of_numbers(&trials).unwrap_or_default());
            }
            Entry::Decided { time, decisions } => {
                decisions.into_iter().for_each(|decision| self.decide(time, &decision));
            }
            Entry::Site { time, scheduler, accounting, user, plan, dir } => {
                if scheduler == SchedulerKind::Local {
                    self.began_here = time;
                }
                self.first_dir = self.first_dir.take().or_else(|| dir.clone());
                if plan.is_some() {
                    (self.plan, self.dir) = (plan, dir);
                }
                // A run on this machine asks no scheduler. The site of an earlier scheduler still holds for
                // its jobs.
                if scheduler != SchedulerKind::Local || self.site.is_none() {
                    self.site = Some(Site { scheduler, accounting });
                }
                self.users.insert(user);
            }
        }
    }

    fn decide(&mut self, time: f64, decision: &Decision) {
        let trials = IdSet::of_numbers(&decision.trials).unwrap_or_default();
        for trial in trials.iter().map(u64::from) {
            let Decision { again, counts, why, .. } = decision;
            self.rulings.entry(trial).or_default().add(time, (*again, *counts), why);
        }
    }

    /// Why trials do not run again by themselves, where that was decided last.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (u64, &str)> {
        self.rulings.iter().filter_map(|(trial, rulings)| Some((*trial, rulings.why()?)))
    }

    /// Why a trial with this record does not run again by itself; `None` where nothing has decided that since its last
    /// attempt began.
    pub(crate) fn left(&self, trial: u64, record: Option<&Record>) -> Option<&str> {
        self.rulings.get(&trial)?.left(record)
    }

    /// Whether `[retry]` has nothing to decide about a trial any more: it is done, or the journal or an agent has recorded
    /// that it does not run again.
    pub(crate) fn has_settled(&self, trial: u64, record: Option<&Record>) -> bool {
        let is_settled =
            |record: &Record| record.outcome() == Some(Outcome::Done) || record.left().is_some();
        self.left(trial, record).is_some() || record.is_some_and(is_settled)
    }

    /// Arrays, with their job ids, that were submitted held and have not been released yet.
    pub fn held(&self) -> impl Iterator<Item = (u32, &str)> {
        self.held.iter().filter_map(|&array| Some((array, self.job(array)?)))
    }

    /// Whether an array is held until its submission is complete.
    pub(crate) fn is_held(&self, array: u32) -> bool {
        self.held.contains(&array)
    }

    /// Whether a call that may have submitted an array has no answer.
    pub(crate) fn has_open_call(&self) -> bool {
        self.arrays.values().any(|standing| matches!(standing, Standing::Open { .. }))
    }

    /// Whether a trial was taken back from the array that had it.
    pub fn is_cancelled(&self, array: u32, trial: u64) -> bool {
        self.cancelled.get(&array).is_some_and(|trials| trials.has(trial))
    }

    /// Whether an array of agents was taken back.
    pub(crate) fn is_taken_back(&self, array: u32) -> bool {
        self.cancelled.contains_key(&array)
    }

    /// Whether the array of agents was taken back that a job is of.
    pub(crate) fn has_taken_back(&self, job: &str) -> bool {
        let of = array_of(job);
        self.cancelled.keys().any(|array| self.job(*array) == Some(&*of))
    }

    /// The scheduler's ids of all arrays.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().filter_map(|array| self.job(*array))
    }

    /// Arrays that were refused because the queue had no place for them.
    pub(crate) fn without_a_place(&self) -> BTreeSet<u32> {
        let is_it = |standing: &Standing| matches!(standing, Standing::Refused { full: true });
        self.arrays.iter().filter(|(_, s)| is_it(s)).map(|(array, _)| *array).collect()
    }

    /// The sweep's folder when an array was asked for; `None` in journals of earlier versions.
    pub(crate) fn dir_of(&self, array: u32) -> Option<&Path> {
        self.dirs.get(&array).map(PathBuf::as_path)
    }

    /// Arrays that were submitted where the sweep was before it was exported.
    pub(crate) fn elsewhere(&self) -> BTreeSet<u32> {
        self.elsewhere.keys().copied().collect()
    }

    /// Whether any array was submitted, wherever that was.
    pub(crate) fn had_jobs(&self) -> bool {
        !self.elsewhere.is_empty() || self.jobs().next().is_some()
    }

    /// The job of an array, wherever it was submitted.
    pub(crate) fn job_anywhere(&self, array: u32) -> Option<&str> {
        self.job(array).or_else(|| self.elsewhere.get(&array).map(String::as_str))
    }

    /// The scheduler's id of an array.
    pub fn job(&self, array: u32) -> Option<&str> {
        match self.arrays.get(&array) {
            Some(Standing::Job { id, .. }) => Some(id),
            _ => None,
        }
    }

    /// When the job of an array was submitted or found, unix seconds.
    pub(crate) fn submitted(&self, array: u32) -> Option<f64> {
        match self.arrays.get(&array) {
            Some(Standing::Job { time, .. }) => Some(*time),
            _ => None,
        }
    }
}

/// The number of the journal with this name.
pub(super) fn number(name: &str) -> Option<u32> {
    name.strip_suffix(".jsonl")?.parse().ok()
}

/// The journal of this submission.
#[derive(Debug)]
pub(crate) struct Writer {
    lines: line::Writer,
}

impl Writer {
    /// Opens the next free journal of the sweep. The caller holds the lock.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn open(tree: &Tree) -> Result<Self> {
        let dir = tree.dir().join("journal");
        disk::make_dir(&dir)?;
        let used = disk::list(&dir)?.len() as u32;
        let earlier = Journal::read(tree)?.lines;
        for number in used + 1.. {
            let path = dir.join(format!("{number:04}.jsonl"));
            if let Some(file) = disk::create_exclusive(&path)? {
                return Ok(Self { lines: line::Writer::new(file, path, earlier) });
            }
        }
        Err(Fault::machine("no free journal number").into())
    }

    /// Appends an entry and waits until it is on disk: the call it speaks of comes after it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn write(&mut self, entry: &Entry) -> Result<()> {
        let done = self.lines.append(entry).and_then(|()| self.lines.sync());
        done.map_err(|e| disk::fault("write", self.lines.path(), &e).into())
    }

    /// Writes the state of the site, and from which file the plan came.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(crate) fn site(&mut self, site: Site, plan: &Path) -> Result<()> {
        let Site { scheduler, accounting } = site;
        let (time, user) = (clock::now(), vars::user_name());
        let plan = Some(disk::absolute(plan));
        let own = disk::absolute(self.lines.path());
        let dir = own.ancestors().nth(2).map(Path::to_owned);
        self.write(&Entry::Site { time, scheduler, accounting, user, plan, dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_names_its_scheduler_by_a_word() {
        let line =
            r#"{"event":"site","time":1.0,"scheduler":"pbs","accounting":true,"user":"ada"}"#;
        let entry: Entry = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
        let mut journal = Journal::default();
        journal.take(entry);
        let pbs = Site { scheduler: SchedulerKind::Pbs, accounting: true };
        assert_eq!(journal.site, Some(pbs));
        // A run on this machine asks no scheduler.
        let local = line.replace("pbs", "local");
        journal.take(serde_json::from_str(&local).unwrap());
        assert_eq!(journal.site, Some(pbs));
    }
}
