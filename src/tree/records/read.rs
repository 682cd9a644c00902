//! Reads records: those of workers, each of one trial, and what agents have recorded together. One line is in memory
//! at a time; metric lines stay where they are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use super::index::{self, Check, Index, Noter, Stamp};
use super::{ByTrial, Record, Source};
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

/// As [`readable`], for a command that only shows a sweep: trials that have ended are not read again if the index has
/// them and `check` lets it be believed.
///
/// # Errors
/// As [`all`].
pub(crate) fn indexed(
    tree: &Tree,
    token: &str,
    check: Check,
    damage: &mut Damage,
) -> Result<HashMap<u64, Record>> {
    let mut all = with_index(tree, Index::of(tree, token, check, None).as_ref(), damage)?;
    of_agents(tree, &mut all, damage)?;
    Ok(all)
}

/// As [`readable`], without what agents have recorded.
///
/// # Errors
/// As [`all`].
pub fn of_workers(tree: &Tree, damage: &mut Damage) -> Result<HashMap<u64, Record>> {
    with_index(tree, None, damage)
}

/// As [`indexed`]. The trials that were done at once are not kept: `make` makes something of some of them, on any thread,
/// and `take` takes it.
///
/// # Errors
/// As [`all`].
pub(crate) fn gathered<T: Sync, P: Send>(
    tree: &Tree,
    token: &str,
    noter: Noter,
    taker: &mut T,
    (make, take): (impl Fn(&T, Vec<(u64, Record)>) -> P + Sync, impl Fn(&mut T, P)),
    damage: &mut Damage,
) -> Result<ByTrial> {
    let index = Index::of(tree, token, Check::Changes, Some(noter));
    let mut all = ByTrial::default();
    // What agents have recorded of a trial may come to what is in its record.
    let keeps_all = tree.dir().join("agents").exists();
    let split = |taker: &T, records: Vec<(u64, Record)>| {
        let is_at_once =
            |(trial, record): &(u64, Record)| !keeps_all && ByTrial::is_at_once(*trial, record);
        let (at_once, whole): (Vec<_>, Vec<_>) = records.into_iter().partition(is_at_once);
        let behind = |(trial, record): &(u64, Record)| (*trial, record.attempts[0].start.behind);
        let done: Vec<(u64, bool)> = at_once.iter().map(behind).collect();
        (whole, done, make(taker, at_once))
    };
    let every = shards(tree)?;
    // What is made of so many folders is in memory at once.
    for some in every.chunks(threads::cores() * 4) {
        let own = &*taker;
        let make = |records| split(own, records);
        let parts = of_shards(tree, index.as_ref(), some, every.len(), &make)?;
        for ((whole, done, part), damaged) in parts {
            all.extend(whole);
            done.into_iter().for_each(|(trial, behind)| all.was_at_once(trial, behind));
            damage.extend(damaged);
            take(taker, part);
        }
    }
    of_agents(tree, &mut all, damage)?;
    Ok(all)
}

fn with_index(
    tree: &Tree,
    index: Option<&Index>,
    damage: &mut Damage,
) -> Result<HashMap<u64, Record>> {
    let shards = shards(tree)?;
    let parts = of_shards(tree, index, &shards, shards.len(), &|records| records)?;
    let mut all = HashMap::with_capacity(parts.iter().map(|(records, _)| records.len()).sum());
    for (records, damaged) in parts {
        all.extend(records);
        damage.extend(damaged);
    }
    Ok(all)
}

/// The folders of records by name.
fn shards(tree: &Tree) -> Result<Vec<String>> {
    let root = tree.dir().join("records");
    let mut shards = Vec::new();
    for name in disk::list(&root)? {
        if name.starts_with('m') {
            let inner = disk::list(&root.join(&name))?;
            shards.extend(inner.into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            shards.push(name);
        }
    }
    Ok(shards)
}

/// What `make` makes of the records of some of the `count` folders, and what of each could not be read.
fn of_shards<P: Send>(
    tree: &Tree,
    index: Option<&Index>,
    shards: &[String],
    count: usize,
    make: &(impl Fn(Vec<(u64, Record)>) -> P + Sync),
) -> Result<Vec<(P, Damage)>> {
    let root = tree.dir().join("records");
    let index = index.filter(|index| index.is_for(count));
    let read = |shard: &String| {
        let part = read_shard(tree, &root.join(shard), index.map(|i| (i, &**shard)));
        part.map(|(records, damage)| (make(records), damage))
    };
    threads::in_parallel(|| shards.par_iter().map(read).collect())
}

/// The records of one folder, by trial, and what of it could not be read.
type Part = (Vec<(u64, Record)>, Damage);

/// The file of a run: trial, run, and its name, if that is not the one which workers give it.
type RunFile = (u64, u32, Option<Box<str>>);

/// The files of a folder, the runs of a trial in order.
fn run_files(dir: &Path) -> Result<Vec<RunFile>> {
    let mut files: Vec<RunFile> = Vec::new();
    disk::each_name(dir, |name| {
        let Some((trial, run)) = name.strip_suffix(".jsonl").and_then(|n| n.split_once('.')) else {
            return;
        };
        if let (Ok(trial), Ok(run)) = (trial.parse::<u64>(), run.parse::<u32>()) {
            let starts_oddly =
                |n: &str| !n.starts_with(|c: char| ('1'..='9').contains(&c)) && n != "0";
            let digits = name.split('.').take(2);
            let is_odd = digits.clone().any(starts_oddly);
            files.push((trial, run, is_odd.then(|| name.into())));
        }
    })?;
    files.sort_unstable();
    Ok(files)
}

fn name_of((trial, run, name): &RunFile) -> Cow<'_, str> {
    match name {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("{trial}.{run}.jsonl")),
    }
}

/// Reads a folder; with `index`, which has the folder under a name, only the trials that it does not have.
fn read_shard(tree: &Tree, dir: &Path, index: Option<(&Index, &str)>) -> Result<Part> {
    // Before it is listed: a file that is added since gives it another time.
    let changed = index.and_then(|_| disk::stamp(dir).ok().flatten()).map_or(0.0, |(_, time)| time);
    let known = index.map(|(index, name)| index.read(name, changed)).unwrap_or_default();
    let files: Vec<RunFile> = match known.is_whole {
        true => known
            .entries()
            .flat_map(|entry| entry.files().collect::<Vec<_>>())
            .map(|(trial, run)| (trial, run, None))
            .collect(),
        false => run_files(dir)?,
    };
    let mut old = known.entries().peekable();
    let is_kept = index.is_some_and(|(index, _)| index.may_grow());
    let noter = index.and_then(|(index, _)| index.noter);
    let (mut entries, mut kept, mut fresh) = (Vec::new(), 0, 0);
    let mut damage = Damage::default();
    let mut records: Vec<(u64, Record)> = Vec::with_capacity(files.len());
    for runs in files.chunk_by(|a, b| a.0 == b.0) {
        let trial = runs[0].0;
        while old.next_if(|entry| entry.trial < trial).is_some() {}
        let entry = old.next_if(|entry| entry.trial == trial);
        let names = runs.iter().map(|file| (file.1, || name_of(file)));
        // Without a note its files are opened, and so they are looked at.
        let looks = |entry: &index::Entry<'_>| {
            known.looks_at_all || (noter.is_some() && entry.note.is_none())
        };
        let unchanged =
            entry.and_then(|entry| Some((entry.record(names, dir, looks(&entry))?, entry)));
        let record = if let Some((mut record, entry)) = unchanged {
            let is_missing = record.note.is_none();
            let made =
                noter.filter(|_| is_missing && is_kept).and_then(|noter| noter(tree, &record));
            if let Some(note) = made {
                entry.noted(&note, &mut entries);
                record.note = Some(note.into());
                fresh += 1;
            } else {
                entries.extend(entry.bytes);
                kept += 1;
            }
            record
        } else {
            let (mut record, stamps) = read_trial(tree, dir, runs, is_kept, &mut damage)?;
            if let Some(stamps) = stamps {
                let note = noter.filter(|_| index::has_ended(&record));
                record.note = note.and_then(|noter| noter(tree, &record)).map(Vec::into);
                fresh += usize::from(index::add(trial, &stamps, &record, &mut entries));
            }
            record
        };
        records.push((trial, record));
    }
    let counts = (fresh, kept, records.len());
    if let Some((index, name)) =
        index.filter(|(index, _)| is_kept && index.is_due(&known, counts, changed))
    {
        let is_odd = |file: &RunFile| file.2.is_some();
        let is_whole = fresh + kept == records.len() && !files.iter().any(is_odd);
        index.write(name, (changed, is_whole), &entries);
    }
    Ok((records, damage))
}

/// The record of a trial; with `stamped` also what its files were when they were read, if nothing of them is damaged.
fn read_trial(
    tree: &Tree,
    dir: &Path,
    runs: &[RunFile],
    stamped: bool,
    damage: &mut Damage,
) -> Result<(Record, Option<Vec<Stamp>>)> {
    let mut record = Record::default();
    let mut stamps = stamped.then(|| Vec::with_capacity(runs.len()));
    // The runs before the one that is read: lines, and the last file.
    let mut before = (0, String::new());
    for of_run in runs {
        let (trial, run) = (of_run.0, of_run.1);
        let path = dir.join(&*name_of(of_run));
        // Before it is read: a change since then has another time.
        let stamp = if stamps.is_some() { disk::stamp(&path)? } else { None };
        let read = read_run(&mut record, run, disk::open(&path)?, &path)?;
        let file = self::file(trial, run);
        damage.add(&file, read.lines.damaged);
        // Lines that existed when this run began, and are missing now.
        let (lines, earlier) = before;
        let last = if earlier.is_empty() { self::file(trial, run - 1) } else { earlier };
        let missing = read.lines.earlier.saturating_sub(lines);
        damage.add(&last, missing);
        before = (lines + read.lines.lines, file.clone());
        // A worker that was killed before it wrote a line has made no log either.
        let is_empty = read.lines.lines == 0;
        if read.is_unended || (is_empty && tree.log(trial, run).exists()) {
            damage.add_unended(tree, &file, Writer::Trial(trial));
        }
        let is_whole = read.lines.damaged + missing == 0 && !read.is_unended && !is_empty;
        match (&mut stamps, stamp.filter(|_| is_whole)) {
            (Some(stamps), Some((_, time))) => stamps.push((run, read.size, time)),
            _ => stamps = None,
        }
    }
    Ok((record, stamps))
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
    /// Bytes of its lines.
    size: u64,
}

fn read_run(record: &mut Record, run: u32, file: std::fs::File, path: &Path) -> Result<Read> {
    let mut lines = Sequence::default();
    let mut source = Source::Run(run);
    let mut size = 0;
    let unended = line::each(file, |spot, line| {
        size = spot.end();
        if !line.is_empty() && source.read(record, spot, line) {
            lines.whole(line);
        } else if spot.len > 0 {
            lines.damaged();
        }
    });
    let is_unended = unended.map_err(|e| disk::fault("read", path, &e))?;
    Ok(Read { lines, is_unended, size })
}

#[cfg(test)]
mod tests;
