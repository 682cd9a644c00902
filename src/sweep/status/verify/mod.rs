//! Checks a whole sweep: whether its files are whole, and whether they fit together. Readers look at what they need; this looks
//! at everything, and writes nothing.

mod claims;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;

use super::Status;
use crate::base::host::disk;
use crate::base::words::count;
use crate::cluster::scheduler::job::array_of;
use crate::sweep::tree::damage::{Damage, Damaged};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{self, Attempt};
use crate::sweep::tree::waves::{self, Array};
use crate::sweep::tree::{Identity, Tree, code, table};

/// Something that does not fit.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The file, relative to the sweep's folder.
    pub(crate) file: String,
    /// What is wrong with it.
    pub(crate) what: String,
    /// How to fix it.
    pub(crate) hint: &'static str,
}

/// What to do about a file that is damaged or gone, and about one that belongs elsewhere.
const RESTORE: &str = "restore the file from a backup";
const REPLACE: &str = "restore the file from a backup, or remove it";

/// Everything that does not fit in a sweep, in the order of files.
///
/// # Errors
/// When a file or folder cannot be read.
pub(crate) fn findings(tree: &Tree, identity: &Identity) -> Result<Vec<Finding>> {
    let status = super::untouched(tree.clone(), identity.clone())?;
    let mut found = Findings { tree, all: BTreeMap::new() };
    found.add_damage(&status.damage);
    let mut damage = Damage::default();
    table::misplaced(tree, &mut damage)?;
    found.add_damage(&damage.settle(|_| false));
    found.check_plan(&status);
    found.check_code(&status)?;
    found.check_arrays(&status)?;
    found.check_logs(&status)?;
    claims::check(&mut found, &status)?;
    Ok(found.into_list())
}

/// What was found so far.
struct Findings<'a> {
    tree: &'a Tree,
    /// By file and hint: the first finding in words, and how many more there are.
    all: BTreeMap<(String, &'static str), (String, u64)>,
}

impl Findings<'_> {
    fn add(&mut self, file: String, hint: &'static str, what: impl FnOnce() -> String) {
        let known = self.all.entry((file, hint));
        known.and_modify(|(_, more)| *more += 1).or_insert_with(|| (what(), 0));
    }

    /// Whether a file is known to be damaged or gone.
    fn has(&self, file: &str) -> bool {
        self.all.contains_key(&(file.to_owned(), RESTORE))
    }

    fn into_list(self) -> Vec<Finding> {
        let finding = |((file, hint), (first, more))| {
            let what = match more {
                0 => first,
                n => format!("{first}; {} about this file", count(n, "more finding")),
            };
            Finding { file, what, hint }
        };
        self.all.into_iter().map(finding).collect()
    }

    fn add_damage(&mut self, damage: &[Damaged]) {
        for Damaged { file, lines, of } in damage {
            let is_gone = !self.tree.dir().join(file).exists();
            let hint = if of.is_some() { REPLACE } else { RESTORE };
            self.add(file.clone(), hint, || match of {
                _ if is_gone => "does not exist, although other files refer to it".to_owned(),
                Some(of) => format!("has {} of {of}", count(*lines, "line")),
                None => format!("has {}", count(*lines, "damaged line")),
            });
        }
    }

    fn check_plan(&mut self, status: &Status) {
        if !status.rows.is_empty() && !self.tree.plan().exists() {
            let what = || "does not exist, although the sweep has trials".to_owned();
            self.add("plan.toml".to_owned(), RESTORE, what);
        }
    }

    /// Compares the snapshots of the code with the hashes in their lists.
    fn check_code(&mut self, status: &Status) -> Result<()> {
        let submissions = status.code.all();
        let named: BTreeSet<&str> = submissions.filter_map(|own| own.snapshot.as_deref()).collect();
        for name in &named {
            let list = format!("code/{name}.json");
            let Ok(manifest) = code::manifest(self.tree, name) else {
                self.add(list, RESTORE, || "is missing or damaged".to_owned());
                continue;
            };
            if manifest.name() != *name {
                self.add(list, RESTORE, || "lists the files of another snapshot".to_owned());
                continue;
            }
            for file in code::changed(self.tree, name, &manifest)? {
                let what = || "is missing, or has changed after it was stored".to_owned();
                self.add(format!("code/{name}/{file}"), RESTORE, what);
            }
        }
        for (trial, record) in status.records.iter() {
            let used = record.attempts.iter().filter_map(|own| own.start.snapshot.as_deref());
            for name in used.filter(|name| !named.contains(name)) {
                let what = || format!("have no submission with the code of trial {trial}, {name}");
                self.add("code/submissions".to_owned(), RESTORE, what);
            }
        }
        Ok(())
    }

    /// Compares the arrays with the jobs in which trials say that they ran.
    fn check_arrays(&mut self, status: &Status) -> Result<()> {
        let unused = &mut Damage::default();
        let waves = waves::readable(self.tree, unused)?;
        let journal = Journal::readable(self.tree, unused)?;
        // Several arrays of a job: a scheduler that was purged counts from the beginning.
        let mut of_job: HashMap<&str, Vec<Elements<'_>>> = HashMap::new();
        let mut without_job: BTreeSet<u64> = BTreeSet::new();
        for (wave, map) in &waves {
            let file = format!("waves/{:04}.map", wave.wave);
            for array in wave.arrays.iter().filter(|array| array.is_of_trials()) {
                let trials = array.trials(map);
                let is_known = |trial: &&u64| table::row_of(&status.rows, **trial).is_some();
                if let Some(trial) = trials.iter().find(|trial| !is_known(trial)) {
                    self.add(file.clone(), RESTORE, || {
                        format!("has trial {trial}, which does not exist")
                    });
                }
                match journal.job(array.array) {
                    Some(job) => of_job.entry(job).or_default().push(Elements {
                        wave: wave.wave,
                        array,
                        map,
                    }),
                    None => without_job.extend(trials),
                }
            }
        }
        for (trial, record) in status.records.iter() {
            for attempt in record.attempts.iter().filter(|attempt| attempt.bundle.is_none()) {
                let Some((job, index)) = element(attempt) else { continue };
                match of_job.get(&*job).map_or(&[][..], Vec::as_slice) {
                    [] if without_job.contains(trial) => {
                        let what = || format!("has no job {job}, in which trial {trial} ran");
                        self.add("journal".to_owned(), RESTORE, what);
                    }
                    [] => {}
                    all if all.iter().any(|elements| elements.have(index, *trial)) => {}
                    [first, ..] => {
                        let what = || {
                            format!(
                                "has another trial for element {index} of job {job}, in which trial {trial} ran"
                            )
                        };
                        self.add(format!("waves/{:04}.map", first.wave), RESTORE, what);
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks for the records of runs that have left logs: a worker begins its record first.
    fn check_logs(&mut self, status: &Status) -> Result<()> {
        let root = self.tree.dir().join("logs");
        let mut folders = Vec::new();
        for name in disk::list(&root)?.into_iter().filter(|name| name != "jobs") {
            match name.starts_with('m') {
                true => folders.extend(
                    disk::list(&root.join(&name))?.iter().map(|inner| root.join(&name).join(inner)),
                ),
                false => folders.push(root.join(name)),
            }
        }
        for folder in folders {
            for name in disk::list(&folder)? {
                let Some((trial, run)) = run_of(&name) else { continue };
                let is_known = status
                    .records
                    .get(&trial)
                    .is_some_and(|record| record.attempts.iter().any(|attempt| attempt.run == run));
                if !is_known
                    && !self.has(&records::file(trial, run))
                    && !self.tree.record(trial, run).exists()
                {
                    let what =
                        || format!("does not exist, although run {run} of trial {trial} has a log");
                    self.add(records::file(trial, run), RESTORE, what);
                }
            }
        }
        Ok(())
    }
}

/// The elements of an array.
struct Elements<'a> {
    wave: u32,
    array: &'a Array,
    map: &'a [u64],
}

impl Elements<'_> {
    /// Whether one with this index runs a trial.
    fn have(&self, index: u64, trial: u64) -> bool {
        let Array { count, links, .. } = self.array;
        let step = usize::try_from(*count).unwrap_or(usize::MAX).max(1);
        let own =
            self.array.trials(self.map).iter().skip(usize::try_from(index).unwrap_or(usize::MAX));
        let mut of_links = own.step_by(step).take(usize::try_from(*links).unwrap_or(usize::MAX));
        index < *count && of_links.any(|of| *of == trial)
    }
}

/// The array's job and the index of the element in which an attempt ran, where it names both.
fn element(attempt: &Attempt) -> Option<(String, u64)> {
    let own = attempt.start.job.as_deref()?;
    let job = array_of(own);
    let after = if job.contains('[') {
        own.split_once('[')?.1
    } else {
        own.strip_prefix(&*job)?.strip_prefix('_')?
    };
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((job, digits.parse().ok()?))
}

/// The trial and the run of a log.
fn run_of(name: &str) -> Option<(u64, u32)> {
    let (trial, run) = name.strip_suffix(".log")?.split_once('.')?;
    Some((trial.parse().ok()?, run.parse().ok()?))
}
