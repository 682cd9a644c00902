//! Reads records: those of workers, each of one trial, and what agents have recorded together. One line is in memory
//! at a time; metric lines stay where they are.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use super::{Record, Source};
use crate::host::{disk, threads};
use crate::tree::damage::{Damage, Writer};
use crate::tree::ledger::Ledger;
use crate::tree::line::{self, Sequence};
use crate::tree::{Tree, bundle, shard};

/// The record of one trial: tries run 1, 2, ... until one is missing.
///
/// # Errors
/// When a file exists but cannot be read.
pub fn of_trial(tree: &Tree, trial: u64) -> Result<(Record, u32)> {
    let mut record = Record::default();
    let mut run = 1;
    loop {
        let path = tree.record(trial, run);
        match disk::open_plain(&path) {
            Ok(file) => read_run(&mut record, run, file, &path)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => return Err(disk::fault("read", &path, &e).into()),
        };
        run += 1;
    }
    // Agents keep what they record together; asking for one trial of theirs is rare.
    let mut all = HashMap::from([(trial, record)]);
    of_agents(tree, &mut all, &mut Damage::default())?;
    Ok((all.remove(&trial).unwrap_or_default(), run))
}

/// What agents have recorded, where there were any.
fn of_agents(tree: &Tree, records: &mut HashMap<u64, Record>, damage: &mut Damage) -> Result<()> {
    if !tree.dir().join("agents").exists() {
        return Ok(());
    }
    // The ledger after the bundles could void what was read; before them, it is at most too kind to what
    // was written since, and the next look puts it right.
    let ledger = Ledger::read(tree)?;
    bundle::readable(tree, &ledger, records, damage)
}

/// The records of all trials that have any. Folders are read in parallel.
///
/// # Errors
/// When a file or folder cannot be read.
pub fn all(tree: &Tree) -> Result<HashMap<u64, Record>> {
    readable(tree, &mut Damage::default())
}

/// As [`all`]; says which lines were left out.
///
/// # Errors
/// As [`all`].
pub fn readable(tree: &Tree, damage: &mut Damage) -> Result<HashMap<u64, Record>> {
    let mut all = of_workers(tree, damage)?;
    of_agents(tree, &mut all, damage)?;
    Ok(all)
}

/// As [`readable`], without what agents have recorded.
///
/// # Errors
/// As [`all`].
pub fn of_workers(tree: &Tree, damage: &mut Damage) -> Result<HashMap<u64, Record>> {
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
    let read = |dir: &std::path::PathBuf| read_shard(tree, dir);
    let parts: Result<Vec<Part>> = threads::in_parallel(|| shards.par_iter().map(read).collect());
    let mut all = HashMap::new();
    for (records, damaged) in parts? {
        all.extend(records);
        damage.extend(damaged);
    }
    Ok(all)
}

/// The records of one folder, by trial, and what of it could not be read.
type Part = (Vec<(u64, Record)>, Damage);

fn read_shard(tree: &Tree, dir: &Path) -> Result<Part> {
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
    let mut damage = Damage::default();
    let mut records: Vec<(u64, Record)> = Vec::with_capacity(files.len());
    // The runs before the one that is read: lines, and the last file.
    let mut before = (0, String::new());
    for ((trial, run), name) in files {
        if records.last().is_none_or(|(last, _)| *last != trial) {
            records.push((trial, Record::default()));
            before = (0, String::new());
        }
        let Some((_, record)) = records.last_mut() else { continue };
        let path = dir.join(&name);
        let read = read_run(record, run, disk::open(&path)?, &path)?;
        let file = self::file(trial, run);
        damage.add(&file, read.lines.damaged);
        // Lines that existed when this run began, and are missing now.
        let (lines, earlier) = before;
        let last = if earlier.is_empty() { self::file(trial, run - 1) } else { earlier };
        damage.add(&last, read.lines.earlier.saturating_sub(lines));
        before = (lines + read.lines.lines, file.clone());
        // A worker that was killed before it wrote a line has made no log either.
        if read.is_unended || (read.lines.lines == 0 && tree.log(trial, run).exists()) {
            damage.add_unended(tree, &file, Writer::Trial(trial));
        }
    }
    Ok((records, damage))
}

/// The record of a run as messages name it.
pub fn file(trial: u64, run: u32) -> String {
    format!("records/{}/{trial}.{run}.jsonl", shard(trial))
}

/// Lines in the records of the runs of a trial before `run`, for the first line of a new record.
///
/// # Errors
/// When a file exists but cannot be read.
pub fn lines_before(tree: &Tree, trial: u64, run: u32) -> Result<u64> {
    let mut lines = 0;
    for earlier in 1..run {
        let path = tree.record(trial, earlier);
        match disk::open_plain(&path) {
            Ok(file) => {
                lines += read_run(&mut Record::default(), earlier, file, &path)?.lines.lines;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(disk::fault("read", &path, &e).into()),
        }
    }
    Ok(lines)
}

/// The parts of the record of a run that were read.
struct Read {
    lines: Sequence,
    /// Whether the last line has no end.
    is_unended: bool,
}

fn read_run(record: &mut Record, run: u32, file: std::fs::File, path: &Path) -> Result<Read> {
    let mut lines = Sequence::default();
    let mut source = Source::Run(run);
    let unended = line::each(file, |spot, line| {
        if !line.is_empty() && source.read(record, spot, line) {
            lines.whole(line);
        } else if spot.len > 0 {
            lines.damaged();
        }
    });
    let is_unended = unended.map_err(|e| disk::fault("read", path, &e))?;
    Ok(Read { lines, is_unended })
}
