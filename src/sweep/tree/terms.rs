//! The terms of the current plan for trials that the sweep already has, if they differ from their tables:
//! `terms.json`. Tables are written once; workers and agents read this file when it matters.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::table::{self, Head, Row};
use super::{FORMAT, Tree, document, numbers, write_document};
use crate::base::host::disk;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    format: u32,
    /// How often a trial is tried.
    pub(crate) attempts: u32,
    /// Trials that the plan no longer has.
    #[serde(default, skip_serializing_if = "Dropped::is_empty")]
    pub(crate) dropped: Dropped,
}

/// Trials of a sweep that the plan no longer has: runs of them, each with its first and last, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dropped(Vec<(u64, u64)>);

impl Dropped {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| (last - first).saturating_add(1)).sum()
    }

    /// Whether a trial is one of them.
    pub(crate) fn has(&self, trial: u64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= trial);
        after > 0 && trial <= self.0[after - 1].1
    }

    /// The trial before one of the table in its chain that is not one of these.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(crate) fn before(&self, tree: &Tree, row: &Row) -> Result<Option<u64>> {
        let mut before = row.after;
        while let Some(trial) = before.filter(|trial| self.has(*trial)) {
            before = table::find(tree, trial)?.1.after;
        }
        Ok(before)
    }
}

impl FromIterator<u64> for Dropped {
    /// From trials in order.
    fn from_iter<I: IntoIterator<Item = u64>>(trials: I) -> Self {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for trial in trials {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == trial => *last = trial,
                _ => runs.push((trial, trial)),
            }
        }
        Self(runs)
    }
}

fn path(tree: &Tree) -> PathBuf {
    tree.dir().join("terms.json")
}

fn read(tree: &Tree) -> Result<Option<Terms>> {
    let path = path(tree);
    disk::read_small_if_there(&path)?.map(|bytes| sound(&bytes, &path)).transpose()
}

/// Terms that can be true.
fn sound(bytes: &[u8], path: &Path) -> Result<Terms> {
    let terms: Terms = document(bytes, path)?;
    let runs = &terms.dropped.0;
    let is_sound = runs.iter().all(|(first, last)| first <= last && *last < numbers::END)
        && runs.windows(2).all(|two| two[0].1 < two[1].0);
    if is_sound { Ok(terms) } else { Err(numbers::damaged(path).into()) }
}

/// How many attempts a trial has; `by_table` is its table's value.
///
/// # Errors
/// When the file is there and cannot be read.
pub(crate) fn attempts(tree: &Tree, by_table: u32) -> Result<u32> {
    Ok(read(tree)?.map_or(by_table, |terms| terms.attempts))
}

/// The trials of the sweep that the plan no longer has.
///
/// # Errors
/// When the file is there and cannot be read.
pub(crate) fn dropped(tree: &Tree) -> Result<Dropped> {
    Ok(read(tree)?.map(|terms| terms.dropped).unwrap_or_default())
}

/// The trial behind which a trial of the table runs: the one before it in its chain that the plan still has.
///
/// # Errors
/// When the file or the table cannot be read.
pub(crate) fn before(tree: &Tree, row: &Row) -> Result<Option<u64>> {
    if row.after.is_none() {
        return Ok(None);
    }
    dropped(tree)?.before(tree, row)
}

/// The content of the file; if there is none, trials have as many attempts as their tables say, `by_table`. A damaged
/// file is ignored and reported.
///
/// # Errors
/// When the file is there and cannot be read.
pub(crate) fn readable(tree: &Tree, by_table: u32, damage: &mut Damage) -> Result<Terms> {
    let path = path(tree);
    let plain = Terms { format: FORMAT, attempts: by_table, dropped: Dropped::default() };
    let Some(bytes) = disk::read_small_if_there(&path)? else { return Ok(plain) };
    let terms = sound(&bytes, &path);
    damage.add("terms.json", u64::from(terms.is_err()));
    Ok(terms.unwrap_or(plain))
}

/// From now on trials have so many attempts, whatever the tables in `heads` say, and these trials have been dropped.
/// The caller holds the lock.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn keep(tree: &Tree, heads: &[Head], attempts: u32, dropped: Dropped) -> Result<()> {
    let is_said = match read(tree)? {
        Some(terms) => terms.attempts == attempts && terms.dropped == dropped,
        None => dropped.is_empty() && heads.iter().all(|head| head.run.attempts == attempts),
    };
    if is_said {
        return Ok(());
    }
    write_document(&path(tree), &Terms { format: FORMAT, attempts, dropped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_trials_are_kept_as_runs() {
        let all: Vec<u64> = vec![0, 1, 2, 7, 9, 10];
        let dropped: Dropped = all.iter().copied().collect();
        assert_eq!(serde_json::to_string(&dropped).unwrap(), "[[0,2],[7,7],[9,10]]");
        assert_eq!((0..20).filter(|trial| dropped.has(*trial)).collect::<Vec<_>>(), all);
        assert_eq!(dropped.len(), 6);
    }

    #[test]
    fn terms_that_cannot_be_true_are_damage() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        for runs in [vec![(3, 2)], vec![(4, 5), (5, 6)], vec![(0, u64::MAX)]] {
            keep(&tree, &[], 1, Dropped(runs)).ok();
            let mut damage = Damage::default();
            assert!(readable(&tree, 1, &mut damage).unwrap().dropped.is_empty());
            assert_eq!(damage.settle(|_| false).len(), 1);
            std::fs::remove_file(path(&tree)).unwrap();
        }
    }
}
