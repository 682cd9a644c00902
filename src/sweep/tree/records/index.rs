//! The index of a sweep's records: what has been read of trials that have ended, so that readers need not open a hundred
//! thousand files again. It is made of the records, and may be removed at any time.
//!
//! Each folder of records has a file in `index/`, which is written aside and renamed. It has of each trial that has ended the
//! names, sizes and times of its record files, and what they say. A reader believes it of a trial whose files are the
//! same. In a folder to which no file was added since, and from which none was removed, the files of trials that are done in
//! one run are not looked at: such a record never grows. A reader that opens records anyway looks at all files. A file of
//! the index that cannot be believed counts as none.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::packed::{self, In, Out};
use super::{ByTrial, Origin, Outcome, Record};
use crate::base::host::derived::{Owner, Parts};
use crate::base::host::{clock, disk};
use crate::sweep::tree::Tree;
use crate::sweep::tree::key::Key;

/// The first words of a file: its format, and the program that wrote it.
const FORMAT: &str = concat!("hpcsweep index 11 ", env!("CARGO_PKG_VERSION"));

/// Folders of records, of a thousand trials each, from which on a sweep has an index.
const LEAST: usize = 5;

/// Bytes of the smallest bundle that is in the index.
const LEAST_BUNDLE: u64 = 256 << 10;

/// The value of [`Index::fresh`], but for tests.
const FRESH: usize = 50;

/// Seconds between the last change of a folder and the writing of its file, by the clock of the disk: another file that is added
/// after that gives the folder another time.
const SETTLED_S: f64 = 2.0;

/// Seconds without a change of a folder after which its file is written again only to have the folder's time.
const QUIET_S: f64 = 60.0;

/// Bytes of the largest file that is read.
const MOST: u64 = 256 << 20;

/// Which record files are looked at although the index has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Those that may have grown or been replaced: damage to the record of a trial that is done is not noticed.
    Changes,
    /// All: damage is noticed.
    Damage,
}

/// The index of one sweep.
pub(crate) struct Index {
    dir: PathBuf,
    token: String,
    owner: Owner,
    check: Check,
    /// Folders of records from which on it is used.
    least: usize,
    /// Trials that have ended since the file of a folder was written and for which it is written again.
    fresh: usize,
    /// Whether a file could not be written: then no other is tried.
    is_refused: AtomicBool,
    /// Makes the notes that the trials' entries have.
    pub(super) noter: Option<Noter>,
}

/// Says what a reader of metric lines wants to know of those of a record again; `None` where they cannot be read.
pub(crate) type Noter = fn(Origin<'_>, &Record) -> Option<Vec<u8>>;

impl Index {
    /// The index of the sweep with this token; `None` if its folder cannot be looked at.
    pub(crate) fn of(tree: &Tree, token: &str, check: Check, noter: Option<Noter>) -> Option<Self> {
        let owner = Owner::of(tree.dir())?;
        let is_refused = AtomicBool::new(!owner.is_this_user());
        let dir = tree.dir().join("index");
        Some(Self {
            dir,
            token: token.to_owned(),
            owner,
            check,
            least: LEAST,
            fresh: FRESH,
            is_refused,
            noter,
        })
    }

    /// As [`Index::of`], also for a sweep of few trials.
    #[cfg(test)]
    pub(super) fn always(tree: &Tree, token: &str, check: Check) -> Self {
        Self { least: 0, fresh: 1, ..Self::of(tree, token, check, None).unwrap() }
    }

    /// The same of a user who may not write it.
    #[cfg(test)]
    pub(super) fn of_another(self) -> Self {
        Self { is_refused: true.into(), ..self }
    }

    /// Whether it is used for a sweep with so many folders of records.
    pub(super) fn is_for(&self, folders: usize) -> bool {
        folders >= self.least
    }

    /// Whether this process may write it.
    pub(super) fn may_grow(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// What it has of a folder of records, which was changed last at this time.
    pub(super) fn read(&self, folder: &str, changed: f64) -> Known {
        let Some((bytes, body, written)) = self.file(folder) else { return Known::default() };
        let end = body.end;
        let mut known = Known { bytes, from: body, ..Known::default() };
        let mut from = In(&known.bytes[known.from.clone()]);
        let (Some(time), Some(is_whole)) = (from.float(), from.flag()) else {
            return Known::default();
        };
        known.from.start = end - from.0.len();
        let is_of_now = time.to_bits() == changed.to_bits();
        known.is_settled = is_of_now && written - time >= SETTLED_S;
        known.looks_at_all = self.check == Check::Damage || !known.is_settled;
        known.is_whole = is_whole && known.is_settled;
        known
    }

    /// Whether the file of a folder is to be written again. `fresh` of its `listed` trials have ended since, it has the
    /// entries of `kept`, and the folder was changed last at this time.
    pub(super) fn is_due(
        &self,
        known: &Known,
        (fresh, kept, listed): (usize, usize, usize),
        changed: f64,
    ) -> bool {
        let is_complete = fresh + kept == listed;
        let is_quiet = || clock::now() - changed >= QUIET_S;
        fresh >= self.fresh
            || (is_complete && fresh > 0)
            || (kept > 0 && !known.is_settled && is_quiet())
    }

    /// Keeps entries of a folder of records, which was changed last at this time. A disk that refuses them is no fault: the
    /// records have everything.
    /// `is_whole`: no file of the folder is missing there, and each has the name that workers give it.
    pub(super) fn write(
        &self,
        folder: &str,
        (changed, is_whole): (f64, bool),
        entries: &[Cow<'_, [u8]>],
    ) {
        if !self.may_grow() {
            return;
        }
        let mut bytes = self.head(folder);
        bytes.extend(changed.to_le_bytes());
        bytes.push(u8::from(is_whole));
        entries.iter().for_each(|entry| bytes.extend(&**entry));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        if self.owner.write(&self.dir.join(folder), &bytes).is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
    }

    /// A file that can be believed, the place of what it says, and when it was written.
    fn file(&self, name: &str) -> Option<(Vec<u8>, Range<usize>, f64)> {
        let head = self.head(name);
        let (bytes, written) = self.owner.read(&self.dir.join(name), MOST)?;
        let (body, crc) = bytes.split_last_chunk()?;
        let is_it = body.starts_with(&head) && crc32fast::hash(body) == u32::from_le_bytes(*crc);
        let range = head.len()..body.len();
        is_it.then_some((bytes, range, written))
    }

    /// The file of the bundle of an agent.
    pub(super) fn open_bundle(&self, agent: &str) -> Option<Parts> {
        self.owner.open(&self.dir.join(bundle(agent)))
    }

    /// The first bytes of that file.
    pub(super) fn head_of_bundle(&self, agent: &str) -> Vec<u8> {
        self.head(&bundle(agent))
    }

    /// Keeps what the lines of a bundle say, as `body` writes it; the checksum of its file, if there is one now.
    pub(super) fn write_bundle(
        &self,
        agent: &str,
        body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Option<u32> {
        if !self.may_grow() {
            return None;
        }
        let path = self.dir.join(bundle(agent));
        // Of a large bundle, it is large.
        Owner::clear(&path);
        let mut checksum = 0;
        let written = self.owner.write_with(&path, |file| {
            let mut out = Summed { out: file, sum: crc32fast::Hasher::new() };
            out.write_all(&self.head_of_bundle(agent))?;
            body(&mut out)?;
            checksum = out.sum.finalize();
            file.write_all(&checksum.to_le_bytes())
        });
        if written.is_err() {
            self.is_refused.store(true, Ordering::Relaxed);
        }
        written.is_ok().then_some(checksum)
    }

    /// Whether it has bundles of so many bytes.
    pub(super) fn is_for_bundle(&self, bytes: u64) -> bool {
        self.least == 0 || bytes >= LEAST_BUNDLE
    }

    /// Whether damage is to be noticed, wherever it is.
    pub(super) fn looks_for_damage(&self) -> bool {
        self.check == Check::Damage
    }

    fn head(&self, folder: &str) -> Vec<u8> {
        format!("{FORMAT} {} {folder}\n", self.token).into_bytes()
    }
}

/// Writes, and makes the checksum of what it has written.
struct Summed<'a> {
    out: &'a mut dyn Write,
    sum: crc32fast::Hasher,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The entries of one folder.
#[derive(Default)]
pub(super) struct Known {
    bytes: Vec<u8>,
    from: Range<usize>,
    /// Whether nothing was added to the folder since then, and nothing removed.
    is_settled: bool,
    /// Whether no record file is passed over.
    pub(super) looks_at_all: bool,
    /// Whether the folder has the files of the entries and no other.
    pub(super) is_whole: bool,
}

impl Known {
    /// In the order of trials.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut from = In(&self.bytes[self.from.clone()]);
        std::iter::from_fn(move || entry(&mut from))
    }
}

/// The file of an agent's bundle.
fn bundle(agent: &str) -> String {
    format!("agents/{agent}")
}

/// The file of a run: its number, its size and its time of change.
pub(super) type Stamp = (u32, u64, f64);

/// A trial of the index.
pub(super) struct Entry<'a> {
    pub(super) trial: u64,
    files: Vec<Stamp>,
    /// Whether a file of it may have grown.
    pub(super) may_grow: bool,
    /// Whether it was done at once, and then how: see [`ByTrial::at_once`].
    pub(super) at_once: Option<u8>,
    /// The key of the trial in the table when its files were read, if they name it.
    pub(super) key: Option<Key>,
    packed: &'a [u8],
    pub(super) note: Option<&'a [u8]>,
    /// All of its bytes.
    pub(super) bytes: &'a [u8],
}

pub(super) fn entry<'a>(from: &mut In<'a>) -> Option<Entry<'a>> {
    let whole = from.0;
    let trial = from.number()?;
    let files = from.list(|from| Some((from.short()?, from.number()?, from.float()?)))?;
    let may_grow = from.flag()?;
    let at_once = from.byte()?.checked_sub(1);
    let key = from.maybe(In::key)?;
    let packed = from.slice()?;
    let note = if from.flag()? { Some(from.slice()?) } else { None };
    let bytes = &whole[..whole.len() - from.0.len()];
    Some(Entry { trial, files, may_grow, at_once, key, packed, note, bytes })
}

impl Entry<'_> {
    /// The files that the trial had: trial and run.
    pub(super) fn files(&self) -> impl Iterator<Item = (u64, u32)> {
        self.files.iter().map(|(run, ..)| (self.trial, *run))
    }

    /// The entry with a note.
    pub(super) fn noted(&self, note: &[u8]) -> Vec<u8> {
        // The flag is the last byte of an entry without one.
        let mut entry = self.bytes[..self.bytes.len() - 1].to_vec();
        add_note(Some(note), &mut entry);
        entry
    }

    /// The record; `None` if it cannot be read.
    pub(super) fn record(&self) -> Option<Record> {
        let mut record = packed::unpack(self.packed)?;
        record.note = self.note.map(Box::from);
        Some(record)
    }

    /// Whether the trial still has these files: of each its run and its name in the folder.
    pub(super) fn is_of<'n>(
        &self,
        files: impl ExactSizeIterator<Item = (u32, impl Fn() -> Cow<'n, str>)>,
        folder: &Path,
        looks_at_all: bool,
    ) -> bool {
        let is_unchanged = |name: &dyn Fn() -> Cow<'n, str>, size: u64, time: f64| {
            let stamp = || disk::stamp(&folder.join(&*name())).ok().flatten();
            let is_same =
                |(len, changed): (u64, f64)| len == size && changed.to_bits() == time.to_bits();
            !(looks_at_all || self.may_grow) || stamp().is_some_and(is_same)
        };
        files.len() == self.files.len()
            && files.zip(&self.files).all(|((run, name), (known, size, time))| {
                run == *known && is_unchanged(&name, *size, *time)
            })
    }
}

fn add_note(note: Option<&[u8]>, entries: &mut Vec<u8>) {
    let mut out = Out(entries);
    out.byte(u8::from(note.is_some()));
    if let Some(note) = note {
        out.number(note.len() as u64);
        entries.extend(note);
    }
}

/// Whether a trial has an entry.
pub(super) fn has_ended(record: &Record) -> bool {
    record.outcome().is_some() || record.skipped.is_some()
}

/// The entry of a trial whose files were read whole and without damage; `None` if the trial has not ended.
pub(super) fn of(trial: u64, files: &[Stamp], record: &Record) -> Option<Vec<u8>> {
    has_ended(record).then(|| packed(trial, files, record))
}

/// The entry of a trial with these files, whether it has ended or not.
pub(super) fn packed(trial: u64, files: &[Stamp], record: &Record) -> Vec<u8> {
    let (mut packed, mut entry) = (Vec::new(), Vec::new());
    packed::pack(record, &mut packed);
    let is_done = record.attempts.last().and_then(|last| last.end.as_ref());
    let is_done = is_done.is_some_and(|end| end.state == Outcome::Done) && files.len() == 1;
    let mut out = Out(&mut entry);
    out.number(trial);
    out.number(files.len() as u64);
    for (run, size, time) in files {
        out.number((*run).into());
        out.number(*size);
        out.float(*time);
    }
    out.byte(u8::from(!is_done));
    let at_once = ByTrial::at_once(trial, record);
    out.byte(at_once.map_or(0, |place| 1 + place));
    let key = record.attempts.iter().find_map(|attempt| attempt.start.key);
    out.maybe(key, Out::key);
    out.number(packed.len() as u64);
    entry.extend(packed);
    add_note(record.note.as_deref(), &mut entry);
    entry
}
