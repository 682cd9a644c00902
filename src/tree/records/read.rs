//! Reads records: those of workers, each of one trial, and what agents have recorded together.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use super::Record;
use crate::host::disk;
use crate::tree::ledger::Ledger;
use crate::tree::{Tree, bundle};

/// The record of one trial: tries run 1, 2, ... until one is missing.
///
/// # Errors
/// When a file exists but cannot be read.
pub fn of_trial(tree: &Tree, trial: u64) -> Result<(Record, u32)> {
    let mut record = Record::default();
    let mut run = 1;
    loop {
        let path = tree.record(trial, run);
        match std::fs::read(&path) {
            Ok(bytes) => record.take(run, &bytes),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => return Err(disk::fault("read", &path, &e).into()),
        }
        run += 1;
    }
    // Agents keep what they record together; asking for one trial of theirs is rare.
    let mut all = HashMap::from([(trial, record)]);
    of_agents(tree, &mut all)?;
    Ok((all.remove(&trial).unwrap_or_default(), run))
}

/// What agents have recorded, where there were any.
fn of_agents(tree: &Tree, records: &mut HashMap<u64, Record>) -> Result<()> {
    if !tree.dir().join("agents").exists() {
        return Ok(());
    }
    // The ledger after the bundles could void what was read; before them, it is at most too kind to what
    // was written since, and the next look puts it right.
    let ledger = Ledger::read(tree)?;
    bundle::add(tree, &ledger, records)
}

/// The records of all trials that have any. Folders are read in parallel.
///
/// # Errors
/// When a file or folder cannot be read.
pub fn all(tree: &Tree) -> Result<HashMap<u64, Record>> {
    let mut all = of_workers(tree)?;
    of_agents(tree, &mut all)?;
    Ok(all)
}

/// As [`all`], without what agents have recorded.
///
/// # Errors
/// As [`all`].
pub fn of_workers(tree: &Tree) -> Result<HashMap<u64, Record>> {
    let root = tree.dir().join("records");
    let mut shards = Vec::new();
    for name in disk::list(&root)? {
        if name.starts_with('m') {
            let inner = disk::list(&root.join(&name))?;
            shards.extend(inner.into_iter().map(|n| root.join(&name).join(n)));
        } else {
            shards.push(root.join(name));
        }
    }
    let parts: Result<Vec<Vec<(u64, Record)>>> =
        shards.par_iter().map(|dir| read_shard(dir)).collect();
    Ok(parts?.into_iter().flatten().collect())
}

fn read_shard(dir: &Path) -> Result<Vec<(u64, Record)>> {
    // Runs in order, whatever the order of the folder.
    let mut files: BTreeMap<(u64, u32), String> = BTreeMap::new();
    for name in disk::list(dir)? {
        let Some((trial, run)) = name.strip_suffix(".jsonl").and_then(|n| n.split_once('.')) else {
            continue;
        };
        if let (Ok(trial), Ok(run)) = (trial.parse(), run.parse()) {
            files.insert((trial, run), name);
        }
    }
    let mut records: Vec<(u64, Record)> = Vec::with_capacity(files.len());
    for ((trial, run), name) in files {
        let bytes = disk::read_bytes(&dir.join(name))?;
        if records.last().is_none_or(|(last, _)| *last != trial) {
            records.push((trial, Record::default()));
        }
        if let Some((_, record)) = records.last_mut() {
            record.take(run, &bytes);
        }
    }
    Ok(records)
}
