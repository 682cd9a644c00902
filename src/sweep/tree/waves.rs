//! Waves: what one submission asks of the scheduler. `waves/0001.json` lists its arrays and commits
//! the wave; `waves/0001.map` has the trial of every element (see [`super::numbers`]), array after array. An
//! element finds its trial with one small read.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::records::{Record, Told};
use super::{FORMAT, Tree, first_format, numbers, read_document, write_document};
use crate::base::fault::Fault;
use crate::base::host::disk;
use crate::base::idset::IdSet;
use crate::cluster::graph::Mapping;
use crate::plan::{OnFailure, Resources};

/// The arrays of one submission, and how its chains became jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// Format of the tree.
    #[serde(default = "first_format")]
    pub(crate) format: u32,
    /// Number of the wave, from 1.
    pub(crate) wave: u32,
    /// Where it runs: `slurm`, `pbs` or `local`.
    pub(crate) target: String,
    /// Unix seconds.
    pub(crate) created: f64,
    /// How its chains were mapped to jobs.
    #[serde(default)]
    pub(crate) chains: Mapping,
    /// Its arrays, in the order of submission; none for a local wave.
    pub arrays: Vec<Array>,
    /// What was learnt from trials before, where the plan says `"auto"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) learnt: Vec<Learnt>,
    /// Why earlier attempts of its trials ended, where others than the records said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended: Vec<Ended>,
}

/// Why attempts ended, of trials that are submitted again: later, only their new jobs are asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The trials, as `0-9,14`.
    pub(crate) trials: String,
    /// The scheduler's id of the job or array in which the attempts ran.
    pub(crate) job: String,
    /// The cause, and the words for it.
    #[serde(flatten)]
    pub(crate) told: Told,
}

impl Ended {
    /// Tells a record of one of its trials. An attempt that is done needs no cause: its end may have become visible only after
    /// the submission.
    fn tell(&self, record: &mut Record) {
        let last = record.attempts.iter_mut().rfind(|own| own.is_of_job(&self.job));
        if let Some(last) = last.filter(|last| !last.is_done()) {
            last.told = Some(self.told.clone());
        }
    }

    /// Tells the records of its trials.
    pub(crate) fn tell_all(&self, records: &mut HashMap<u64, Record>) {
        for trial in IdSet::of_numbers(&self.trials).unwrap_or_default().iter().map(u64::from) {
            records.get_mut(&trial).into_iter().for_each(|record| self.tell(record));
        }
    }
}

/// Trials whose request was learnt from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learnt {
    /// The trials, as `0-9,14`.
    pub(crate) trials: String,
    /// What they would have asked for instead: memory of a node in MiB, and seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) walltime_s: Option<u64>,
    /// From what: `memory 1152M: 2 trials with width = 64 used 940M at most`.
    pub(crate) why: String,
}

/// One job array of a wave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// Number of the array in the sweep, from 1.
    pub(crate) array: u32,
    /// Block of the wave, from 0.
    pub(crate) block: u32,
    /// Link of the block, from 0.
    pub(crate) link: u32,
    /// Its first entry in the map.
    pub(crate) first: u64,
    /// Its elements, indices `0..count`.
    pub(crate) count: u64,
    /// Links that each element runs one after the other: entry `first + link * count + index` of the map.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) links: u64,
    /// Whether it is a plain job and no array.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) single: bool,
    /// The array it follows: element by element, where the scheduler can do that.
    pub(crate) after: Option<u32>,
    /// Arrays that must have ended before it starts: of earlier waves, which its chains continue, or of this
    /// one, to bound how many run at once.
    pub(crate) wait: Vec<u32>,
    /// The effect of a failure on the rest of a chain.
    pub(crate) on_failure: OnFailure,
    /// What each element asks for.
    pub(crate) resources: Resources,
    /// The walltime of each link in seconds, where an element runs several; that of `resources` is their sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) walltimes_s: Vec<Option<u64>>,
    /// Its elements, if they are not trials: agents, each on its own node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pilot: Option<Pilot>,
    /// Its one element, if that is no trial: the feeder, a job that submits what is left of the sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) feeder: Option<Feeder>,
}

/// A job that submits more of the sweep, with the options of the submission that it continues.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Feeder {
    /// Most elements of the sweep that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_running: Option<u64>,
    /// The folder of the job script templates, where the command line named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) templates: Option<PathBuf>,
    /// Whether trials wait for it that ask for what the trials before them have used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_learning: bool,
    /// Trials without success that are to run again, and had no place in the queue either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) again: Vec<Repeat>,
    /// The trials, as `0-9,14`, but for which it submits nothing; `None`: it submits all that is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) only: Option<String>,
    /// Whether it also decides by `[retry]` what runs again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) decides: bool,
}

impl Feeder {
    /// The trials but for which it submits nothing.
    pub(crate) fn only(&self) -> Option<IdSet> {
        self.only.as_ref().map(|only| IdSet::of_numbers(only).unwrap_or_default())
    }
}

/// Trials that run again with one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Repeat {
    /// The trials, as `0-9,14`.
    pub(crate) trials: String,
    /// Their request; `None`: what the plan asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<Resources>,
}

/// An agent that is a job of the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pilot {
    /// Trials that it must run at once; `None` leaves it to the agent.
    pub(crate) slots: Option<u32>,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_one(links: &u64) -> bool {
    *links == 1
}

impl Array {
    /// Whether its elements are trials, and neither agents nor a feeder.
    pub(crate) fn is_of_trials(&self) -> bool {
        self.pilot.is_none() && self.feeder.is_none()
    }

    /// The trials it runs, in map order; `map` is that of its wave. None, where its elements are no trials, or where
    /// the map does not have them.
    pub fn trials<'m>(&self, map: &'m [u64]) -> &'m [u64] {
        self.entries().and_then(|entries| map.get(entries)).unwrap_or_default()
    }

    /// Its entries of the map, if they can be counted.
    fn entries(&self) -> Option<Range<usize>> {
        if !self.is_of_trials() {
            return Some(0..0);
        }
        let end = self.first.checked_add(self.count.checked_mul(self.links)?)?;
        Some(usize::try_from(self.first).ok()?..usize::try_from(end).ok()?)
    }

    /// The request of the trial of each link; `None` for a fused array of a version that did not record it.
    pub fn requests(&self) -> Option<Vec<Resources>> {
        if self.links == 1 {
            return Some(vec![self.resources.clone()]);
        }
        let own = |&walltime_s| Resources { walltime_s, ..self.resources.clone() };
        (self.walltimes_s.len() as u64 == self.links)
            .then(|| self.walltimes_s.iter().map(own).collect())
    }

    /// The element that runs each of its trials: index, link of the element, trial.
    pub fn places<'m>(&self, map: &'m [u64]) -> impl Iterator<Item = (u64, u64, u64)> + use<'m> {
        let count = self.count;
        let number = move |(n, trial): (usize, &u64)| (n as u64 % count, n as u64 / count, *trial);
        self.trials(map).iter().enumerate().map(number)
    }
}

fn file(tree: &Tree, wave: u32, ending: &str) -> PathBuf {
    tree.dir().join(format!("waves/{wave:04}.{ending}"))
}

/// Writes a wave; `map` has the trial of each element. The list of arrays goes last and commits it.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn write(tree: &Tree, wave: &Wave, map: &[u64]) -> Result<()> {
    disk::make_dir(&tree.dir().join("waves"))?;
    numbers::write(&file(tree, wave.wave, "map"), map.iter().copied())?;
    let wave = Wave { format: FORMAT, ..wave.clone() };
    write_document(&file(tree, wave.wave, "json"), &wave)
}

/// The numbers of all waves of a sweep, in order.
fn numbered(tree: &Tree) -> Result<Vec<u32>> {
    let names = disk::list(&tree.dir().join("waves"))?;
    Ok(names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect())
}

/// All waves of a sweep, in order.
///
/// # Errors
/// When one cannot be read.
pub fn read(tree: &Tree) -> Result<Vec<Wave>> {
    numbered(tree)?.into_iter().map(|wave| read_document(&file(tree, wave, "json"))).collect()
}

/// The trials of a wave's elements, in map order.
///
/// # Errors
/// When the map cannot be read, or does not have all of them.
pub(crate) fn map(tree: &Tree, wave: &Wave) -> Result<Vec<u64>> {
    let path = file(tree, wave.wave, "map");
    let map = numbers::all(&path, entries(wave))?;
    match numbers::faulty(&map, entries(wave)) {
        0 => Ok(map.0),
        _ => Err(numbers::damaged(&path).into()),
    }
}

/// Entries that the map of a wave should have.
fn entries(wave: &Wave) -> u64 {
    let end = |array: &Array| array.entries().map_or(u64::MAX, |entries| entries.end as u64);
    wave.arrays.iter().map(end).max().unwrap_or(0)
}

/// All waves with their maps, as far as they can be believed; an entry that is damaged is [`numbers::DAMAGED`].
///
/// # Errors
/// When a file cannot be read.
pub fn readable(tree: &Tree, damage: &mut Damage) -> Result<Vec<(Wave, Vec<u64>)>> {
    let mut all = Vec::new();
    for number in numbered(tree)? {
        let wave = read_document::<Wave>(&file(tree, number, "json"));
        let Some(wave) = wave.ok().filter(|wave| wave.wave == number) else {
            damage.add(&format!("waves/{number:04}.json"), 1);
            continue;
        };
        let path = file(tree, number, "map");
        let map = numbers::all(&path, entries(&wave))?;
        damage.add(&format!("waves/{number:04}.map"), numbers::faulty(&map, entries(&wave)));
        // The elements that can be read keep their places.
        let mut map = map.0;
        let full = wave.arrays.iter().filter_map(Array::entries).map(|e| e.end).max().unwrap_or(0);
        map.resize(full.min(map.len() + (1 << 20)), numbers::DAMAGED);
        all.push((wave, map));
    }
    Ok(all)
}

/// The trial with the highest number in some maps.
pub(crate) fn last_trial<'m>(maps: impl Iterator<Item = &'m [u64]>) -> Option<u64> {
    maps.flatten().copied().filter(|trial| *trial < numbers::END).max()
}

/// Adds the waves that are missing: before others, and those with the arrays for which jobs were asked.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn missing(
    tree: &Tree,
    waves: &[(Wave, Vec<u64>)],
    mut arrays: impl Iterator<Item = u32>,
    damage: &mut Damage,
) -> Result<()> {
    let all = numbered(tree)?;
    let last = waves.iter().flat_map(|(wave, _)| &wave.arrays).map(|array| array.array).max();
    // A wave that is damaged may have them.
    let is_short = waves.len() == all.len() && arrays.any(|array| Some(array) > last);
    for number in numbers::gaps(&all, is_short) {
        damage.add(&format!("waves/{number:04}.json"), 1);
    }
    Ok(())
}

/// The trial of one element: one small read.
///
/// # Errors
/// When the map has no such entry, or it is damaged.
pub fn element(tree: &Tree, wave: u32, entry: u64) -> Result<u64> {
    let path = file(tree, wave, "map");
    match numbers::some(&path, entry, 1)?[..] {
        [numbers::DAMAGED] => Err(numbers::damaged(&path).into()),
        [trial] => Ok(trial),
        _ => Err(Fault::machine(format!("`{}` has no entry {entry}", path.display()))
            .hint("the job script and the sweep's folder do not belong together")
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Told};
    use crate::base::cause::Cause;
    use crate::sweep::tree::records::{Attempt, Record, Start};

    #[test]
    fn a_cause_is_told_of_the_last_attempt_in_its_job_unless_that_is_done() {
        let attempt = |job: &str, state: Option<&str>| {
            let end = state.map(|state| {
                let line = serde_json::json!({
                    "trial": 0, "attempt": 1, "time": 1.0, "state": state, "duration_s": 1.0, "peak_memory": 0,
                });
                serde_json::from_value(line).unwrap()
            });
            let start = Start { job: Some(job.to_owned()), ..Start::default() };
            Attempt { end, ..Attempt::begun(start, 1, None) }
        };
        let told = Told { cause: Cause::Preempted, reason: String::new() };
        let ended = Ended { trials: "0".to_owned(), job: "7".to_owned(), told };
        let causes = |attempts: Vec<Attempt>| {
            let mut record = Record { attempts, ..Record::default() };
            ended.tell(&mut record);
            record.attempts.into_iter().map(|own| own.told.map(|told| told.cause)).collect()
        };
        let all = [("7_0", Some("interrupted")), ("7_0", None), ("8_0", None)];
        let told: Vec<_> = causes(all.map(|(job, state)| attempt(job, state)).to_vec());
        assert_eq!(told, [None, Some(Cause::Preempted), None]);
        let told: Vec<_> = causes(vec![attempt("7_0", Some("done"))]);
        assert_eq!(told, [None]);
    }
}
