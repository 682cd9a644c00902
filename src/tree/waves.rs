//! Waves: what one submission asks of the scheduler. `waves/0001.json` lists its arrays and commits
//! the wave; `waves/0001.map` has the trial of every element, as twelve digits and a newline each,
//! array after array. An element finds its trial with one small read.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Tree, parse_json, to_json_line};
use crate::fault::Fault;
use crate::graph::Mapping;
use crate::host::disk;
use crate::plan::{OnFailure, Resources};

/// Bytes of one entry of a `.map` file.
const ENTRY: u64 = 13;

/// One submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// Number of the wave, from 1.
    pub wave: u32,
    /// Where it runs: `slurm`, `pbs` or `local`.
    pub target: String,
    /// Unix seconds.
    pub created: f64,
    /// How its chains were mapped to jobs.
    #[serde(default)]
    pub chains: Mapping,
    /// Its arrays, in the order of submission; none for a local wave.
    pub arrays: Vec<Array>,
}

/// One job array of a wave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// Number of the array in the sweep, from 1.
    pub array: u32,
    /// Block of the wave, from 0.
    pub block: u32,
    /// Link of the block, from 0.
    pub link: u32,
    /// Its first entry in the map.
    pub first: u64,
    /// Its elements, indices `0..count`.
    pub count: u64,
    /// Links that each element runs one after the other: entry `first + link * count + index` of the map.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub links: u64,
    /// Whether it is a plain job and no array.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub single: bool,
    /// The array it follows: element by element, where the scheduler can do that.
    pub after: Option<u32>,
    /// Arrays that must have ended before it starts: of earlier waves, which its chains continue, or of this
    /// one, to bound how many run at once.
    pub wait: Vec<u32>,
    /// What a failure does to the rest of a chain.
    pub on_failure: OnFailure,
    /// What each element asks for.
    pub resources: Resources,
    /// The walltime of each link in seconds, where an element runs several; that of `resources` is their sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walltimes_s: Vec<Option<u64>>,
    /// What its elements are where they are no trials: agents, each on its own node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
}

/// An agent that is a job of the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pilot {
    /// Trials that it is told to run at once; `None` leaves it to the agent.
    pub slots: Option<u32>,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_one(links: &u64) -> bool {
    *links == 1
}

impl Array {
    /// The trials it runs, in map order; `map` is that of its wave. None, where its elements are agents.
    pub fn trials<'m>(&self, map: &'m [u64]) -> &'m [u64] {
        if self.pilot.is_some() {
            return &[];
        }
        let from = self.first as usize;
        &map[from..from + (self.count * self.links) as usize]
    }

    /// What the trial of each link asks for; `None` for a fused array of a version that did not write it down.
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
pub fn write(tree: &Tree, wave: &Wave, map: &[u64]) -> Result<()> {
    disk::make_dir(&tree.dir().join("waves"))?;
    disk::write_whole_with(&file(tree, wave.wave, "map"), |out| {
        map.iter().try_for_each(|trial| writeln!(out, "{trial:012}"))
    })?;
    disk::write_whole(&file(tree, wave.wave, "json"), &to_json_line(wave)?)
}

/// All waves of a sweep, in order.
///
/// # Errors
/// When one cannot be read.
pub fn read(tree: &Tree) -> Result<Vec<Wave>> {
    let mut waves = Vec::new();
    for name in disk::list(&tree.dir().join("waves"))? {
        if name.ends_with(".json") && !name.starts_with('.') {
            let path = tree.dir().join("waves").join(name);
            waves.push(parse_json(&disk::read(&path)?, &path)?);
        }
    }
    Ok(waves)
}

/// The trials of a wave's elements, in map order.
///
/// # Errors
/// When the map cannot be read.
pub fn map(tree: &Tree, wave: u32) -> Result<Vec<u64>> {
    let path = file(tree, wave, "map");
    let text = disk::read(&path)?;
    text.lines()
        .map(|line| {
            let damaged = || Fault::machine(format!("`{}` is damaged", path.display()));
            line.parse().map_err(|_| damaged().into())
        })
        .collect()
}

/// The trial of one element: one small read.
///
/// # Errors
/// When the map has no such entry.
pub fn element(tree: &Tree, wave: u32, entry: u64) -> Result<u64> {
    let path = file(tree, wave, "map");
    let bytes = disk::read_at(&path, entry * ENTRY, ENTRY)?;
    std::str::from_utf8(&bytes).ok().and_then(|digits| digits.trim_end().parse().ok()).ok_or_else(
        || {
            Fault::machine(format!("`{}` has no entry {entry}", path.display()))
                .hint("the job script and the sweep's folder do not belong together")
                .into()
        },
    )
}
