//! What the plan at hand says of trials that the sweep has already, where their tables say something else:
//! `terms.json`. Tables are written once; workers and agents look here when it matters.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::damage::Damage;
use super::table::Head;
use super::{FORMAT, Tree, document, write_document};
use crate::host::disk;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Terms {
    format: u32,
    attempts: u32,
}

fn path(tree: &Tree) -> PathBuf {
    tree.dir().join("terms.json")
}

fn read(tree: &Tree) -> Result<Option<Terms>> {
    let path = path(tree);
    disk::read_small_if_there(&path)?.map(|bytes| document(&bytes, &path)).transpose()
}

/// How often a trial is tried; `by_table` is what its table says.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn attempts(tree: &Tree, by_table: u32) -> Result<u32> {
    Ok(read(tree)?.map_or(by_table, |terms| terms.attempts))
}

/// As [`attempts`]; what is damaged counts for nothing, and is said.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn readable(tree: &Tree, by_table: u32, damage: &mut Damage) -> Result<u32> {
    let path = path(tree);
    let Some(bytes) = disk::read_small_if_there(&path)? else { return Ok(by_table) };
    let terms = document::<Terms>(&bytes, &path);
    damage.add("terms.json", u64::from(terms.is_err()));
    Ok(terms.map_or(by_table, |terms| terms.attempts))
}

/// From now on trials are tried so often, whatever the tables in `heads` say. The caller holds the lock.
///
/// # Errors
/// When the disk refuses.
pub fn keep(tree: &Tree, heads: &[Head], attempts: u32) -> Result<()> {
    let known = read(tree)?;
    let is_said = match known {
        Some(terms) => terms.attempts == attempts,
        None => heads.iter().all(|head| head.run.attempts == attempts),
    };
    if is_said {
        return Ok(());
    }
    write_document(&path(tree), &Terms { format: FORMAT, attempts })
}
