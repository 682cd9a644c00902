//! What the index has of the bundle of an agent. An agent may have run a million trials, of which the entries take hundreds of
//! megabytes: they are read and written some at a time.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

use super::index::{self, Entry, Index};
use super::{In, Out, Record, Who};
use crate::base::host::derived::Parts;
use crate::base::host::disk::Mark;
use crate::sweep::tree::key::Key;
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::line::LONGEST;

/// Bytes of entries that are in memory at once; more where a single entry is larger. Tests have pieces of few entries.
const PIECE: u64 = if cfg!(test) { 256 } else { 4 << 20 };

/// Bytes in which everything before the first entry is.
const HEAD: u64 = 64 << 10;

/// What is known of a bundle whose lines were read up to somewhere.
pub(super) struct Head {
    /// Bytes of the lines that were read.
    pub(super) length: u64,
    /// When the file was changed last, before it was read.
    pub(super) changed: f64,
    /// What the file was when they were read.
    pub(super) mark: Mark,
    pub(super) sequence: [u64; 5],
    pub(super) who: Who,
    pub(super) fence: Option<u64>,
    /// What the ledger had decided about its trials.
    pub(super) contests: u64,
}

impl Head {
    fn read(from: &mut In<'_>) -> Option<Self> {
        let (length, changed) = (from.number()?, from.float()?);
        let mark = Mark { inode: from.number()?, tail: from.short()? };
        let sequence = from.list(In::number)?.try_into().ok()?;
        let who = serde_json::from_str(from.str()?).ok()?;
        let fence = if from.flag()? { Some(from.number()?) } else { None };
        let contests = from.number()?;
        Some(Self { length, changed, mark, sequence, who, fence, contests })
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut out = Out(&mut bytes);
        out.number(self.length);
        out.float(self.changed);
        out.number(self.mark.inode);
        out.number(self.mark.tail.into());
        out.number(self.sequence.len() as u64);
        self.sequence.iter().for_each(|number| out.number(*number));
        out.text(&serde_json::to_string(&self.who)?);
        out.byte(u8::from(self.fence.is_some()));
        self.fence.iter().for_each(|fence| out.number(*fence));
        out.number(self.contests);
        Ok(bytes)
    }
}

/// The entries of a bundle in a file of the index, in the order of trials.
pub(super) struct Entries {
    file: Parts,
    at: Range<u64>,
}

impl Entries {
    /// Those of a bundle, if the file has this checksum: then it was found whole before.
    pub(super) fn open(index: &Index, agent: &str, checksum: u32) -> Option<Self> {
        let (own, crc, _) = Self::unchecked(index, agent)?;
        (crc == checksum).then_some(own)
    }

    /// The entries, the checksum that stands behind them, and the bytes before them.
    fn unchecked(index: &Index, agent: &str) -> Option<(Self, u32, Vec<u8>)> {
        let file = index.open_bundle(agent)?;
        let end = file.size.checked_sub(size_of::<u32>() as u64)?;
        let mut crc = [0; size_of::<u32>()];
        file.read(&mut crc, end).ok()?;
        let mut first = vec![0; HEAD.min(end) as usize];
        file.read(&mut first, 0).ok()?;
        let mut from = In(first.strip_prefix(&*index.head_of_bundle(agent))?);
        Head::read(&mut from)?;
        let start = first.len() - from.0.len();
        first.truncate(start);
        Some((Self { file, at: start as u64..end }, u32::from_le_bytes(crc), first))
    }

    /// Some entries after the others.
    pub(super) fn pieces(&self) -> Pieces<'_> {
        Pieces { of: self, at: self.at.start, bytes: Vec::new(), given: 0 }
    }
}

/// The entries of a file, some at a time.
pub(super) struct Pieces<'a> {
    of: &'a Entries,
    /// The byte behind those that were read.
    at: u64,
    bytes: Vec<u8>,
    /// The first of these bytes, which were given.
    given: usize,
}

impl Pieces<'_> {
    /// The bytes of the next entries; `None` behind the last one.
    ///
    /// # Errors
    /// When the file cannot be read, as on a shared disk where another host has replaced it.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.bytes.drain(..self.given);
        self.given = 0;
        while self.given == 0 {
            let more = PIECE.min(self.of.at.end - self.at);
            // No entry is larger than the lines that it is made of.
            if more == 0 || self.bytes.len() as u64 > LONGEST {
                return if self.bytes.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::InvalidData.into())
                };
            }
            let known = self.bytes.len();
            self.bytes.resize(known + more as usize, 0);
            self.of.file.read(&mut self.bytes[known..], self.at)?;
            self.at += more;
            let mut from = In(&self.bytes);
            while let Some(entry) = index::entry(&mut from) {
                self.given += entry.bytes.len();
            }
        }
        Ok(Some(&self.bytes[..self.given]))
    }
}

/// The entries in some bytes.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut from = In(bytes);
    std::iter::from_fn(move || index::entry(&mut from))
}

/// What the index has of a bundle.
pub(super) struct Kept {
    pub(super) head: Head,
    entries: Entries,
    /// The trials, in order, and the places of their entries.
    places: Vec<(u64, u64)>,
    /// The keys that entries have.
    keys: Vec<(u64, Key)>,
    /// Whether every entry has a note.
    pub(super) is_noted: bool,
    pub(super) checksum: u32,
}

impl Kept {
    /// That of a bundle; `None` if there is none that can be believed.
    pub(super) fn read(index: &Index, agent: &str) -> Option<Self> {
        let (entries, checksum, first) = Entries::unchecked(index, agent)?;
        let head = Head::read(&mut In(first.strip_prefix(&*index.head_of_bundle(agent))?))?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&first);
        let (mut places, mut keys, mut is_noted) = (Vec::new(), Vec::new(), true);
        let (mut at, mut pieces) = (entries.at.start, entries.pieces());
        while let Some(piece) = pieces.next().ok()? {
            hasher.update(piece);
            for entry in self::entries(piece) {
                if places.last().is_some_and(|(before, _)| *before >= entry.trial) {
                    return None;
                }
                places.push((entry.trial, at));
                keys.extend(entry.key.map(|key| (entry.trial, key)));
                is_noted &= entry.note.is_some();
                at += entry.bytes.len() as u64;
            }
        }
        let is_whole = hasher.finalize() == checksum;
        is_whole.then_some(Self { head, entries, places, keys, is_noted, checksum })
    }

    /// Whether its entries are of the trials that the tables have.
    pub(super) fn fits(&self, keys: &Keys<'_>) -> bool {
        self.keys.iter().all(|(trial, key)| keys.fits(*trial, Some(*key)))
    }

    /// In order.
    pub(super) fn trials(&self) -> impl Iterator<Item = u64> {
        self.places.iter().map(|(trial, _)| *trial)
    }

    /// Whether it has an entry of a trial.
    pub(super) fn has(&self, trial: u64) -> bool {
        self.place(trial).is_some()
    }

    fn place(&self, trial: u64) -> Option<usize> {
        self.places.binary_search_by_key(&trial, |(known, _)| *known).ok()
    }

    /// The record of a trial; `None` if it has none, or cannot be read.
    pub(super) fn record(&self, trial: u64) -> Option<Record> {
        let place = self.place(trial)?;
        let from = self.places[place].1;
        let end = self.places.get(place + 1).map_or(self.entries.at.end, |(_, at)| *at);
        let mut bytes = vec![0; (end - from) as usize];
        self.entries.file.read(&mut bytes, from).ok()?;
        index::entry(&mut In(&bytes))?.record()
    }

    /// Calls `with` for the entries, in the order of trials.
    ///
    /// # Errors
    /// When the file cannot be read, and those of `with`.
    pub(super) fn each(&self, mut with: impl FnMut(Entry<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut pieces = self.entries.pieces();
        while let Some(piece) = pieces.next()? {
            entries(piece).try_for_each(&mut with)?;
        }
        Ok(())
    }
}

/// Records as entries in memory, which take a fifth of what they take as records.
#[derive(Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// By trial, the place of its entry.
    places: HashMap<u64, Range<usize>>,
}

impl Packed {
    pub(super) fn add(&mut self, trial: u64, record: &Record) {
        let from = self.bytes.len();
        self.bytes.extend(index::packed(trial, &[], record));
        self.places.insert(trial, from..self.bytes.len());
    }

    /// Takes out the record of a trial.
    pub(super) fn take(&mut self, trial: u64) -> Option<Record> {
        let place = self.places.remove(&trial)?;
        index::entry(&mut In(&self.bytes[place]))?.record()
    }

    pub(super) fn has(&self, trial: u64) -> bool {
        self.places.contains_key(&trial)
    }

    pub(super) fn trials(&self) -> impl ExactSizeIterator<Item = u64> {
        self.places.keys().copied()
    }

    /// The entries, in the order of trials.
    fn entries(&self) -> Vec<(u64, &[u8])> {
        let all = self.places.iter().map(|(trial, place)| (*trial, &self.bytes[place.clone()]));
        let mut all: Vec<(u64, &[u8])> = all.collect();
        all.sort_unstable_by_key(|(trial, _)| *trial);
        all
    }

    /// The records.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, Record)> {
        let record =
            |place: &Range<usize>| index::entry(&mut In(&self.bytes[place.clone()]))?.record();
        self.places.iter().filter_map(move |(trial, place)| Some((*trial, record(place)?)))
    }
}

/// Writes what the index has of a bundle: `head`, the entries of `old`, and instead of them those of `fresh` records, in the order of
/// trials.
///
/// # Errors
/// When the disk refuses, or `old` cannot be read.
pub(super) fn write(
    out: &mut dyn Write,
    head: &Head,
    old: Option<&Kept>,
    fresh: &Packed,
) -> io::Result<()> {
    out.write_all(&head.bytes()?)?;
    let fresh = fresh.entries();
    let mut fresh = fresh.iter().peekable();
    if let Some(old) = old {
        old.each(|entry| {
            while let Some((_, bytes)) = fresh.next_if(|(trial, _)| *trial < entry.trial) {
                out.write_all(bytes)?;
            }
            let own = fresh.next_if(|(trial, _)| *trial == entry.trial);
            out.write_all(own.map_or(entry.bytes, |(_, bytes)| bytes))
        })?;
    }
    fresh.try_for_each(|(_, bytes)| out.write_all(bytes))
}
