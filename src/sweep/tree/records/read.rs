//! Reads records: those of workers, each of one trial, and what agents have recorded together. One line is in memory
//! at a time; metric lines stay where they are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use super::agents::{Agents, AtOnce};
use super::assemble::Read;
use super::by_trial::Part;
use super::index::{self, Check, Index, Noter, Stamp};
use super::strangers::{Of, Strangers};
use super::{ByTrial, Origin, Record, Source};
use crate::base::host::{disk, threads};
use crate::sweep::tree::damage::{Damage, Writer};
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::line::{self, Sequence};
use crate::sweep::tree::table::Which;
use crate::sweep::tree::{Tree, shard};

/// Bytes of the largest record that is in memory as a whole while it is read.
const SMALL: u64 = 1 << 20;

/// The records of a sweep, to be read.
#[derive(Clone, Copy)]
pub(crate) struct SweepRecords<'a> {
    pub(crate) tree: &'a Tree,
    /// The token of its `sweep.json`.
    pub(crate) token: &'a str,
    /// The keys of its trials, with which its records are compared.
    pub(crate) keys: &'a Keys<'a>,
}

impl SweepRecords<'_> {
    fn index(self, check: Check, noter: Option<Noter>) -> Option<Index> {
        Index::of(self.tree, self.token, check, noter)
    }
}

/// The record of one trial: tries run 1, 2, ... until one is missing.
///
/// # Errors
/// When a file exists but cannot be read.
pub fn of_trial(tree: &Tree, trial: u64) -> Result<(Record, u32)> {
    let mut record = Record::default();
    let mut run = 1;
    let keys = Keys::one(tree, trial);
    loop {
        let path = tree.record(trial, run);
        match disk::open_plain(&path) {
            Ok(file) => {
                let strangers = Strangers::new(Of::Run(trial, run), &keys);
                read_run(&mut record, strangers, BufReader::new(file), &path)?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(_) if disk::is_special(&path) => {}
            Err(e) => return Err(disk::fault("read", &path, &e).into()),
        }
        run += 1;
    }
    // Agents keep what they record together; asking for one trial of theirs is rare.
    let mut all = HashMap::from([(trial, record)]);
    of_agents(tree, &keys, &mut all, &mut Damage::default())?;
    Ok((all.remove(&trial).unwrap_or_default(), run))
}

/// What agents have recorded, where there were any.
fn of_agents(
    tree: &Tree,
    keys: &Keys<'_>,
    records: &mut HashMap<u64, Record>,
    damage: &mut Damage,
) -> Result<()> {
    if !tree.dir().join("agents").exists() {
        return Ok(());
    }
    // The ledger after the bundles could void what was read; before them, it is at most too kind to what
    // was written since, and the next look puts it right.
    let ledger = Ledger::read(tree)?;
    super::of_bundles(tree, (&ledger, keys), records, damage)
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
    let keys = Keys::all(tree)?;
    let mut all = with_index(tree, &keys, None, damage)?;
    of_agents(tree, &keys, &mut all, damage)?;
    Ok(all)
}

/// As [`readable`], for a command that only shows a sweep: trials that have ended are not read again if the index has
/// them and `check` lets it be believed.
///
/// # Errors
/// As [`all`].
pub(crate) fn indexed(
    from: SweepRecords<'_>,
    check: Check,
    damage: &mut Damage,
) -> Result<HashMap<u64, Record>> {
    all_with_index(from, from.index(check, None).as_ref(), damage)
}

/// As [`readable`], by an index.
fn all_with_index(
    SweepRecords { tree, keys, .. }: SweepRecords<'_>,
    index: Option<&Index>,
    damage: &mut Damage,
) -> Result<HashMap<u64, Record>> {
    let mut all = with_index(tree, keys, index, damage)?.into();
    Agents { tree, keys, index, at_once: AtOnce::Kept }.keep(&mut all, damage)?;
    Ok(all.into_whole())
}

/// As [`indexed`], for a caller that asks of trials that were done at once nothing but that, unless they are `whole`: their
/// records are not kept.
///
/// # Errors
/// As [`all`].
pub(crate) fn briefly(
    from: SweepRecords<'_>,
    whole: Which<'_>,
    damage: &mut Damage,
) -> Result<ByTrial> {
    briefly_with(from, from.index(Check::Changes, None).as_ref(), whole, damage)
}

fn briefly_with(
    SweepRecords { tree, keys, .. }: SweepRecords<'_>,
    index: Option<&Index>,
    whole: Which<'_>,
    damage: &mut Damage,
) -> Result<ByTrial> {
    let (every, mut all) = (shards(tree)?, ByTrial::default());
    // What agents have recorded of a trial may come to what is in its record.
    let are_all = tree.dir().join("agents").exists();
    let is_whole = |trial| are_all || whole(trial);
    let make = |mut part: Part| {
        part.split(&is_whole);
        part
    };
    let from = Folders { tree, keys, index };
    for part in from.shards((&every, every.len()), &is_whole, &make)? {
        part.given_to(&mut all, damage);
    }
    Agents { tree, keys, index, at_once: AtOnce::Unread(whole) }.keep(&mut all, damage)?;
    Ok(all)
}

/// As [`readable`], without what agents have recorded.
///
/// # Errors
/// As [`all`].
pub fn of_workers(tree: &Tree, damage: &mut Damage) -> Result<HashMap<u64, Record>> {
    with_index(tree, &Keys::all(tree)?, None, damage)
}

/// As [`indexed`]. The trials that were done at once are not kept: `make` makes something of some of them, on any thread,
/// and `take` takes it.
///
/// # Errors
/// As [`all`].
pub(crate) fn gathered<T: Sync, P: Send>(
    from: SweepRecords<'_>,
    noter: Option<Noter>,
    taker: &mut T,
    (make, take): (impl Fn(&T, Vec<(u64, Record)>) -> P + Sync, impl Fn(&mut T, P)),
    damage: &mut Damage,
) -> Result<ByTrial> {
    let index = from.index(Check::Changes, noter);
    gathered_with(from, index.as_ref(), taker, (make, take), damage)
}

fn gathered_with<T: Sync, P: Send>(
    SweepRecords { tree, keys, .. }: SweepRecords<'_>,
    index: Option<&Index>,
    taker: &mut T,
    (make, take): (impl Fn(&T, Vec<(u64, Record)>) -> P + Sync, impl Fn(&mut T, P)),
    damage: &mut Damage,
) -> Result<ByTrial> {
    let mut all = ByTrial::default();
    // What agents have recorded of a trial may come to what is in its record.
    let are_all = tree.dir().join("agents").exists();
    let split = |taker: &T, mut part: Part| {
        let at_once = part.split(&|_| are_all);
        (part, make(taker, at_once))
    };
    let every = shards(tree)?;
    // What is made of so many folders is in memory at once.
    for some in every.chunks(threads::cores() * 2) {
        let own = &*taker;
        let make = |part| split(own, part);
        let from = Folders { tree, keys, index };
        let parts = from.shards((some, every.len()), &|_| true, &make)?;
        for (part, made) in parts {
            part.given_to(&mut all, damage);
            take(taker, made);
        }
    }
    let agents = Agents { tree, keys, index, at_once: AtOnce::Taken };
    agents.add(&mut all, damage, taker, (make, take))?;
    Ok(all)
}

fn with_index(
    tree: &Tree,
    keys: &Keys<'_>,
    index: Option<&Index>,
    damage: &mut Damage,
) -> Result<HashMap<u64, Record>> {
    let shards = shards(tree)?;
    let from = Folders { tree, keys, index };
    let parts = from.shards((&shards, shards.len()), &|_| true, &|part| part)?;
    let mut all = HashMap::with_capacity(parts.iter().map(|part| part.records.len()).sum());
    for part in parts {
        all.extend(part.records);
        damage.extend(part.damage);
    }
    Ok(all)
}

/// The trial with the highest number of those that have a record of a worker, by the names of the files.
///
/// # Errors
/// When a folder cannot be listed.
pub(in crate::sweep::tree) fn last_trial(tree: &Tree) -> Result<Option<u64>> {
    let root = tree.dir().join("records");
    let mut shards = shards(tree)?;
    // Numbers of seven digits have folders of their own.
    shards.sort_by_key(|name| (name.len(), name.clone()));
    for shard in shards.iter().rev() {
        let last = run_files(&root.join(shard))?.last().map(|file| file.0);
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
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

/// What records of workers are read from.
#[derive(Clone, Copy)]
struct Folders<'a> {
    tree: &'a Tree,
    keys: &'a Keys<'a>,
    index: Option<&'a Index>,
}

impl Folders<'_> {
    /// What `make` makes of some of the `count` folders; `whole` as in [`Reading`].
    fn shards<P: Send>(
        self,
        (shards, count): (&[String], usize),
        whole: Which<'_>,
        make: &(impl Fn(Part) -> P + Sync),
    ) -> Result<Vec<P>> {
        let index = self.index.filter(|index| index.is_for(count));
        let from = Folders { index, ..self };
        let read = |shard: &String| from.shard(shard, whole).map(make);
        threads::in_parallel(|| shards.par_iter().map(read).collect())
    }
}

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

impl Folders<'_> {
    /// Reads a folder; with `index`, only the trials that it does not have.
    fn shard(self, name: &str, whole: Which<'_>) -> Result<Part> {
        let Self { tree, keys, index } = self;
        let dir = &*tree.dir().join("records").join(name);
        // Before it is listed: a file that is added since gives it another time.
        let changed =
            index.and_then(|_| disk::stamp(dir).ok().flatten()).map_or(0.0, |(_, time)| time);
        let known = index.map(|index| index.read(name, changed)).unwrap_or_default();
        let is_kept = index.is_some_and(Index::may_grow);
        let noter = index.and_then(|index| index.noter);
        let (part, entries) = (Part::default(), Vec::new());
        let (kept, fresh) = (0, 0);
        let mut reading = Reading {
            tree,
            keys,
            dir,
            known: &known,
            is_kept,
            noter,
            whole,
            part,
            entries,
            kept,
            fresh,
        };
        let mut is_odd = false;
        if known.is_whole {
            for entry in known.entries() {
                if !keys.fits(entry.trial, entry.key) || !reading.passes(&entry) {
                    let files: Vec<RunFile> =
                        entry.files().map(|(trial, run)| (trial, run, None)).collect();
                    reading.trial(&files, Some(entry))?;
                }
            }
        } else {
            let files = run_files(dir)?;
            is_odd = files.iter().any(|file| file.2.is_some());
            let mut old = known.entries().peekable();
            for runs in files.chunk_by(|a, b| a.0 == b.0) {
                let trial = runs[0].0;
                while old.next_if(|entry| entry.trial < trial).is_some() {}
                let entry = old.next_if(|entry| entry.trial == trial);
                reading.trial(runs, entry)?;
            }
        }
        let Reading { part, entries, kept, fresh, .. } = reading;
        let listed = part.records.len() + part.at_once.len();
        let counts = (fresh, kept, listed);
        if let Some(index) = index.filter(|index| is_kept && index.is_due(&known, counts, changed))
        {
            let is_whole = fresh + kept == listed && !is_odd;
            index.write(name, (changed, is_whole), &entries);
        }
        Ok(part)
    }
}

/// A folder that is being read.
struct Reading<'a> {
    tree: &'a Tree,
    keys: &'a Keys<'a>,
    dir: &'a Path,
    known: &'a index::Known,
    /// Whether this process may write the index.
    is_kept: bool,
    noter: Option<Noter>,
    /// The trials whose records are wanted, although they were done at once.
    whole: Which<'a>,
    part: Part,
    /// The entries of its trials, the number of those that the index had, and of the others.
    entries: Vec<Cow<'a, [u8]>>,
    kept: usize,
    fresh: usize,
}

impl<'a> Reading<'a> {
    /// Takes a trial that was done at once without its record, if that is not wanted and no file is to be looked at.
    fn passes(&mut self, entry: &index::Entry<'a>) -> bool {
        let is_wanted = entry.may_grow || self.looks_at(entry) || (self.whole)(entry.trial);
        let at_once = entry.at_once.filter(|_| !is_wanted);
        if let Some(place) = at_once {
            self.keep(entry);
            self.part.at_once.push((entry.trial, place));
        }
        at_once.is_some()
    }

    /// Without a note its files are opened, and so they are looked at.
    fn looks_at(&self, entry: &index::Entry<'_>) -> bool {
        self.known.looks_at_all || (self.noter.is_some() && entry.note.is_none())
    }

    fn keep(&mut self, entry: &index::Entry<'a>) {
        self.entries.push(Cow::Borrowed(entry.bytes));
        self.kept += 1;
    }

    /// Takes a trial with these files, by the entry that it has, if that is about them.
    fn trial(&mut self, runs: &[RunFile], entry: Option<index::Entry<'a>>) -> Result<()> {
        let trial = runs[0].0;
        let names = runs.iter().map(|file| (file.1, || name_of(file)));
        let entry = entry.filter(|entry| self.keys.fits(trial, entry.key));
        let entry = entry.filter(|entry| entry.is_of(names, self.dir, self.looks_at(entry)));
        if let Some((entry, place)) =
            entry.as_ref().filter(|_| !(self.whole)(trial)).and_then(|e| Some((e, e.at_once?)))
        {
            self.keep(entry);
            self.part.at_once.push((trial, place));
            return Ok(());
        }
        let unchanged = entry.and_then(|entry| Some((entry.record()?, entry)));
        let record = match unchanged {
            Some((record, entry)) => self.known(record, &entry),
            None => self.read(trial, runs)?,
        };
        self.part.records.push((trial, record));
        Ok(())
    }

    /// A record that the index has, with a note if notes are made.
    fn known(&mut self, mut record: Record, entry: &index::Entry<'a>) -> Record {
        let is_wanted = record.note.is_none() && self.is_kept;
        let noter = self.noter.filter(|_| is_wanted);
        if let Some(note) = noter.and_then(|noter| noter(self.tree.into(), &record)) {
            self.entries.push(Cow::Owned(entry.noted(&note)));
            record.note = Some(note.into());
            self.fresh += 1;
        } else {
            self.keep(entry);
        }
        record
    }

    fn read(&mut self, trial: u64, runs: &[RunFile]) -> Result<Record> {
        let damage = &mut self.part.damage;
        let (mut record, read) = read_trial((self.tree, self.keys), self.dir, runs, damage)?;
        if let Some((stamps, bytes)) = read.filter(|_| self.is_kept) {
            let noter = self.noter.filter(|_| index::has_ended(&record));
            let from = Origin::Runs(self.tree, &bytes);
            record.note = noter.and_then(|noter| noter(from, &record)).map(Vec::into);
            if let Some(entry) = index::of(trial, &stamps, &record) {
                self.entries.push(Cow::Owned(entry));
                self.fresh += 1;
            }
        }
        Ok(record)
    }
}

/// What the files of a trial were when they were read, and the bytes of those that are small, by run.
type Whole = (Vec<Stamp>, Vec<(u32, Vec<u8>)>);

/// The record of a trial, and the files that it was read from, if nothing of them is damaged.
fn read_trial(
    (tree, keys): (&Tree, &Keys<'_>),
    dir: &Path,
    runs: &[RunFile],
    damage: &mut Damage,
) -> Result<(Record, Option<Whole>)> {
    let mut record = Record::default();
    let mut whole = Some((Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len())));
    // The runs before the one that is read: lines, and the last file.
    let mut before = (0, String::new());
    let mut is_before_whole = true;
    for of_run in runs {
        let (trial, run) = (of_run.0, of_run.1);
        let path = dir.join(&*name_of(of_run));
        // A change since it was opened gives it another time.
        let (file, (size, time)) = match disk::open_stamped(&path) {
            // A folder or a pipe that a program has made there costs no other trial its record.
            Err(_) if disk::is_special(&path) => {
                damage.add(&self::file(trial, run), 1);
                whole = None;
                continue;
            }
            opened => opened?,
        };
        let mut bytes = Vec::new();
        let strangers = Strangers::new(Of::Run(trial, run), keys);
        let read = if size <= SMALL {
            bytes.reserve_exact(size as usize + 1);
            (&file).read_to_end(&mut bytes).map_err(|e| disk::fault("read", &path, &e))?;
            read_run(&mut record, strangers, &*bytes, &path)?
        } else {
            read_run(&mut record, strangers, BufReader::with_capacity(1 << 16, file), &path)?
        };
        let file = self::file(trial, run);
        damage.add(&file, read.lines.damaged);
        damage.add_of(&file, read.strangers, read.of);
        // Lines that existed when this run began, and are missing now.
        let (lines, earlier) = before;
        let last = if earlier.is_empty() { self::file(trial, run - 1) } else { earlier };
        let missing = read.lines.earlier.saturating_sub(lines);
        // Of lines of another trial, more need not be said.
        damage.add(&last, if is_before_whole { missing } else { 0 });
        is_before_whole = read.strangers == 0;
        before = (lines + read.lines.lines, file.clone());
        // A worker that was killed before it wrote a line has made no log either.
        let is_empty = read.lines.lines + read.strangers == 0;
        if read.is_unended || (is_empty && tree.log(trial, run).exists()) {
            damage.add_unended(tree, &file, Writer::Trial(trial));
        }
        let is_whole =
            read.lines.damaged + missing + read.strangers == 0 && !read.is_unended && !is_empty;
        match &mut whole {
            Some((stamps, all)) if is_whole => {
                stamps.push((run, read.size, time));
                all.extend((size <= SMALL).then_some((run, bytes)));
            }
            _ => whole = None,
        }
    }
    Ok((record, whole))
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
    let keys = Keys::one(tree, trial);
    for earlier in 1..run {
        let path = tree.record(trial, earlier);
        match disk::open_plain(&path) {
            Ok(file) => {
                let file = BufReader::new(file);
                let strangers = Strangers::new(Of::Run(trial, earlier), &keys);
                lines += read_run(&mut Record::default(), strangers, file, &path)?.lines.lines;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) if disk::is_special(&path) => {}
            Err(e) => return Err(disk::fault("read", &path, &e).into()),
        }
    }
    Ok(lines)
}

/// The parts of the record of a run that were read.
struct OfRun {
    lines: Sequence,
    /// Whether the last line has no end.
    is_unended: bool,
    /// Bytes of its lines.
    size: u64,
    /// Lines of another trial or run, and in words of which: they are no lines of this one.
    strangers: u64,
    of: Option<String>,
}

fn read_run(
    record: &mut Record,
    mut strangers: Strangers<'_>,
    file: impl BufRead,
    path: &Path,
) -> Result<OfRun> {
    let mut lines = Sequence::default();
    let mut source = Source::Run(strangers.run());
    let mut size = 0;
    let unended = line::each_in(file, |spot, line| {
        size = spot.end();
        match source.read(record, &mut strangers, spot, line) {
            Read::Whole => lines.whole(line),
            Read::Damaged if spot.len > 0 => lines.damaged(),
            Read::Damaged | Read::Stranger => {}
        }
    });
    let is_unended = unended.map_err(|e| disk::fault("read", path, &e))?;
    let Strangers { lines: n, first: of, .. } = strangers;
    Ok(OfRun { lines, is_unended, size, strangers: n, of })
}

#[cfg(test)]
mod tests;
