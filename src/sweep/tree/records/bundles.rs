//! Reads bundles, and keeps in the index what their lines say, so that what agents have recorded is read once.
//!
//! A bundle has one writer, which only appends. So a reader takes what the index has of it and reads the lines behind, unless the
//! bundle is shorter than it was, its last bytes are others, or it is another file. Which lines count depends on the ledger: the index is not
//! believed where the ledger has decided since about a trial that it has.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom};

use anyhow::Result;
use rayon::prelude::*;

use super::assemble::{Read, Records};
use super::index::{self, Entry, Index};
use super::kept::{self, Entries, Head, Kept, Packed};
use super::strangers::{Of, Strangers};
use super::{Origin, Outcome, Record, Source, Start};
use crate::base::host::disk::{self, Mark};
use crate::base::host::threads;
use crate::sweep::tree::damage::{Damage, Writer};
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger::{Agent, Gone, Ledger};
use crate::sweep::tree::line::{self, Sequence, Spot};
use crate::sweep::tree::{Tree, bundle};

/// All bundles, in the order of their names, and what of each could not be read.
///
/// # Errors
/// When one cannot be read.
pub(super) fn all(from: Bundles<'_>, damage: &mut Damage) -> Result<Vec<(Bundle, Damage)>> {
    let names = from.known(damage)?;
    threads::in_parallel(|| names.par_iter().map(|agent| Bundle::read(from, agent)).collect())
}

/// What bundles are read from.
#[derive(Clone, Copy)]
pub(super) struct Bundles<'a> {
    pub(super) tree: &'a Tree,
    pub(super) keys: &'a Keys<'a>,
    pub(super) ledger: &'a Ledger,
    pub(super) index: Option<&'a Index>,
}

impl Bundles<'_> {
    fn without_index(self) -> Self {
        Self { index: None, ..self }
    }

    /// The agents that have bundles. Bundles without an agent of the ledger, and agents of the ledger that have lost their
    /// bundles, come into `damage`.
    fn known(self, damage: &mut Damage) -> Result<Vec<String>> {
        let Self { tree, ledger, .. } = self;
        let mut names = bundle::agents(tree)?;
        let has_lost = |(name, agent): &(&String, &Agent)| agent.size > 0 && !names.contains(name);
        let lost = ledger.agents.iter().filter(has_lost);
        lost.for_each(|(name, _)| damage.add(&bundle::name(name), 1));
        if names.iter().all(|name| ledger.agents.contains_key(name)) {
            return Ok(names);
        }
        // An agent may have joined since: its bundle follows its first entry.
        let now = Ledger::read(tree)?;
        for name in names.extract_if(.., |name| !now.agents.contains_key(name)) {
            let path = tree.agent_file(&name, "jsonl");
            let mut lines = 0;
            line::each(disk::open_stamped(&path)?.0, |_, _| lines += 1)
                .map_err(|e| disk::fault("read", &path, &e))?;
            let words = format!("agent `{name}`, which `claims/` does not know,");
            damage.add_of(&bundle::name(&name), lines.max(1), Some(words));
        }
        Ok(names)
    }
}

/// Adds what all bundles say to the records of trials, and to `damage` what could not be read.
///
/// # Errors
/// When one cannot be read.
pub(in crate::sweep::tree) fn of_bundles(
    tree: &Tree,
    (ledger, keys): (&Ledger, &Keys<'_>),
    records: &mut HashMap<u64, Record>,
    damage: &mut Damage,
) -> Result<()> {
    let from = Bundles { tree, keys, ledger, index: None };
    for (bundle, damaged) in all(from, damage)? {
        for (trial, record) in bundle.open(from)?.1 {
            records.entry(trial).or_default().add(record);
        }
        damage.extend(damaged);
    }
    Ok(())
}

/// A bundle is written to the index again when its new lines are one in so many bytes.
const SHARE: u64 = 8;

/// Whether what the ledger says now would have made the same of the lines of a bundle as the index has.
fn is_by(kept: &Kept, ledger: &Ledger, fence: Option<u64>) -> bool {
    let known = kept.head.fence;
    let is_fence =
        known == fence || (known.is_none() && fence.is_some_and(|fence| fence >= kept.head.length));
    let trials: Vec<u64> =
        if ledger.contests.is_empty() { Vec::new() } else { kept.trials().collect() };
    is_fence && kept.head.contests == contests(ledger, &trials)
}

/// A number that changes with what the ledger has decided about these trials, which are in order.
fn contests(ledger: &Ledger, trials: &[u64]) -> u64 {
    let mut own: Vec<_> =
        ledger.contests.iter().filter(|(trial, _)| trials.binary_search(trial).is_ok()).collect();
    own.sort_by_key(|(trial, _)| **trial);
    let mut hasher = DefaultHasher::new();
    format!("{own:?}").hash(&mut hasher);
    hasher.finish()
}

/// Records from which on those that have ended are packed while a bundle is read. Tests do so all the time.
const MANY: usize = if cfg!(test) { 2 } else { 1 << 15 };

/// What the index has, and what was read behind it.
struct Lines<'a> {
    old: Option<&'a Kept>,
    fresh: HashMap<u64, Record>,
    /// Those that have ended, as long as no line comes about them.
    packed: Packed,
    /// Fresh records from which on those that have ended are packed.
    most: usize,
}

impl Lines<'_> {
    /// Packs the records that have ended, where there are many. `finish` completes each.
    fn pack(&mut self, mut finish: impl FnMut(&mut Record)) {
        if self.fresh.len() < self.most {
            return;
        }
        for (trial, mut record) in self.fresh.extract_if(|_, record| index::has_ended(record)) {
            finish(&mut record);
            self.packed.add(trial, &record);
        }
        // Those that stay are not looked at again for each line.
        self.most = self.most.max(self.fresh.len() * 2);
    }

    /// Adds the records that the index has without a note, to be completed by `finish`.
    fn add_unnoted(&mut self, finish: impl Fn(&mut Record) + Copy) {
        let Some(old) = self.old.filter(|old| !old.is_noted) else { return };
        // What cannot be read stays without a note: readers then look at its lines.
        let _ = old.each(|entry| {
            let is_known = self.fresh.contains_key(&entry.trial) || self.packed.has(entry.trial);
            if entry.note.is_none() && !is_known {
                let record = entry.record().filter(index::has_ended);
                self.fresh.extend(record.map(|record| (entry.trial, record)));
                self.pack(finish);
            }
            Ok(())
        });
    }
}

impl Records for Lines<'_> {
    fn of(&mut self, trial: u64) -> &mut Record {
        let Self { old, fresh, packed, .. } = self;
        let old = || Some(Record { note: None, ..(*old)?.record(trial)? });
        let mut known = || {
            let packed = packed.take(trial).map(|record| Record { note: None, ..record });
            packed.or_else(old)
        };
        fresh.entry(trial).or_insert_with(|| known().unwrap_or_default())
    }

    fn known(&mut self, trial: u64) -> Option<&mut Record> {
        let is_old = || self.packed.has(trial) || self.old.is_some_and(|old| old.has(trial));
        (self.fresh.contains_key(&trial) || is_old()).then(|| self.of(trial))
    }
}

/// A bundle that was read.
pub(super) struct Bundle {
    agent: String,
    /// The trials that it has lines about, in order.
    pub(super) trials: Vec<u64>,
    /// What the index does not have of them.
    fresh: HashMap<u64, Record>,
    packed: Packed,
    /// The checksum of what it has of the others.
    kept: Option<u32>,
    /// Whether its agent has gone: what it ran then has no end.
    is_gone: bool,
}

impl Bundle {
    /// Reads a bundle; with an index, only the lines that it does not have.
    ///
    /// # Errors
    /// When the bundle cannot be read.
    fn read(from: Bundles<'_>, agent: &str) -> Result<(Self, Damage)> {
        let Bundles { tree, keys, ledger, index } = from;
        let path = tree.agent_file(agent, "jsonl");
        let gone = ledger.agents.get(agent).and_then(|agent| agent.gone.as_ref());
        // Lines after a fence do not count, whole or not.
        let fence = if let Some(Gone::Fenced(size)) = gone { Some(*size) } else { None };
        let (mut file, (size, changed)) = disk::open_stamped(&path)?;
        let index = index.filter(|index| index.is_for_bundle(size));
        let kept = index.and_then(|index| {
            let kept = Kept::read(index, agent)?;
            let head = &kept.head;
            let is_same = size == head.length && changed.to_bits() == head.changed.to_bits();
            let may_be = is_same || (!index.looks_for_damage() && size >= head.length);
            let has_only_grown = || Mark::of(&file, head.length) == Some(head.mark);
            let is_its = || is_by(&kept, ledger, fence) && kept.fits(keys);
            (may_be && has_only_grown() && is_its()).then_some(kept)
        });
        let mut source = Source::agent(agent, ledger);
        let mut strangers = Strangers::new(Of::Agent(agent), keys);
        let (mut sequence, mut length) = (Sequence::default(), 0);
        if let Some(Kept { head, .. }) = &kept {
            source = Source::Agent { name: agent, who: head.who.clone(), ledger };
            (sequence, length) = (Sequence::of(head.sequence), head.length);
        }
        let from = length;
        let fault = |e| disk::fault("read", &path, &e);
        file.seek(SeekFrom::Start(from)).map_err(fault)?;
        let noter = index.and_then(|index| index.noter);
        let finish = |record: &mut Record| {
            lose(ledger, agent, record);
            if index::has_ended(record) {
                record.note =
                    noter.and_then(|note| note(Origin::Bundle(tree, &file), record)).map(Vec::into);
            }
        };
        let mut lines = Lines {
            old: kept.as_ref(),
            fresh: HashMap::new(),
            packed: Packed::default(),
            // What the index will not have is needed as it is.
            most: if index.is_some() { MANY } else { usize::MAX },
        };
        let unended = line::each(&file, |Spot { at, len }, line| {
            let spot = Spot { at: from + at, len };
            length = spot.end();
            let read = source.read(&mut lines, &mut strangers, spot, line);
            match fence.is_none_or(|fence| spot.at < fence) && spot.len > 0 {
                true if read == Read::Damaged => sequence.damaged(),
                true => sequence.whole(line),
                false => {}
            }
            lines.pack(finish);
        });
        let unended = unended.map_err(fault)?;
        let mut damage = Damage::default();
        damage.add(&bundle::name(agent), sequence.damaged);
        damage.add_of(&bundle::name(agent), strangers.lines, strangers.first);
        end_damage(tree, agent, ledger, (length, unended), &mut damage);
        if noter.is_some() {
            lines.add_unnoted(finish);
        }
        let Lines { mut fresh, packed, .. } = lines;
        fresh.values_mut().for_each(finish);
        let n_fresh = fresh.len() + packed.trials().len();
        let mut all = Self {
            agent: agent.to_owned(),
            kept: kept.as_ref().map(|kept| kept.checksum),
            is_gone: gone.is_some(),
            trials: merged(kept.as_ref(), fresh.keys().copied().chain(packed.trials())),
            fresh,
            packed,
        };
        // What was left out would be forgotten.
        let is_whole = strangers.lines == 0;
        let is_new = is_whole
            && kept.as_ref().is_none_or(|kept| {
                let many = n_fresh as u64 * SHARE >= all.trials.len() as u64;
                n_fresh > 0
                    && (all.is_gone || many || (length - kept.head.length) * SHARE >= length)
            });
        if let Some(index) = index.filter(|index| is_new && index.may_grow() && length <= size)
            && let Source::Agent { who, .. } = source
            && let Some(mark) = Mark::of(&file, length)
        {
            let head = Head {
                length,
                changed,
                mark,
                sequence: sequence.numbers(),
                who,
                fence,
                contests: contests(ledger, &all.trials),
            };
            all.keep(index, &head, kept.as_ref());
        }
        Ok((all, damage))
    }

    /// Writes the index of the bundle, `head` with the entries of `old` and with what is new.
    fn keep(&mut self, index: &Index, head: &Head, old: Option<&Kept>) {
        for (trial, record) in self.fresh.drain() {
            self.packed.add(trial, &record);
        }
        let fresh = &self.packed;
        let written = index.write_bundle(&self.agent, |out| kept::write(out, head, old, fresh));
        if let Some(checksum) = written {
            self.packed = Packed::default();
            self.kept = Some(checksum);
        }
    }

    /// What the index has of the bundle, and the records of other trials, in order.
    ///
    /// # Errors
    /// When the bundle has to be read again, and cannot be.
    pub(super) fn open(self, from: Bundles<'_>) -> Result<(Opened, Vec<(u64, Record)>)> {
        let Self { agent, trials, mut fresh, packed, kept, is_gone } = self;
        fresh.extend(packed.records());
        drop(packed);
        let entries = kept.and_then(|checksum| Entries::open(from.index?, &agent, checksum));
        // Another process has replaced it.
        if kept.is_some() && entries.is_none() {
            fresh = Self::read(from.without_index(), &agent)?.0.fresh;
            fresh.retain(|trial, _| trials.binary_search(trial).is_ok());
        }
        let fresh = in_order(fresh, is_gone);
        let known = fresh.iter().map(|(trial, _)| *trial).collect();
        Ok((Opened { agent, trials, entries, known, is_gone }, fresh))
    }
}

/// Records in the order of trials; those of an agent that has gone are ended.
fn in_order(records: HashMap<u64, Record>, is_gone: bool) -> Vec<(u64, Record)> {
    let mut all: Vec<(u64, Record)> = records.into_iter().collect();
    all.sort_unstable_by_key(|(trial, _)| *trial);
    if is_gone {
        all.iter_mut().for_each(|(_, record)| orphan(record));
    }
    all
}

/// What the index has of a bundle.
pub(super) struct Opened {
    agent: String,
    /// The trials of the bundle, in order.
    trials: Vec<u64>,
    entries: Option<Entries>,
    /// Trials whose entries are old, in order.
    known: Vec<u64>,
    is_gone: bool,
}

impl Opened {
    /// Calls `with` for some of its entries after the others, without those that are old. Returns the records of those that could
    /// not be read: from the bundle itself.
    ///
    /// # Errors
    /// When the bundle has to be read again, and cannot be.
    pub(super) fn each(
        &self,
        from: Bundles<'_>,
        mut with: impl FnMut(&[Entry<'_>]),
    ) -> Result<Vec<(u64, Record)>> {
        let (mut given, mut pieces) = (None, self.entries.as_ref().map(Entries::pieces));
        while let Some(pieces) = &mut pieces {
            match pieces.next() {
                Ok(Some(piece)) => {
                    let is_new =
                        |entry: &Entry<'_>| self.known.binary_search(&entry.trial).is_err();
                    let all: Vec<Entry<'_>> = kept::entries(piece).filter(is_new).collect();
                    with(&all);
                    given = all.last().map(|entry| entry.trial).or(given);
                }
                Ok(None) => break,
                Err(_) => {
                    let mut rest = Bundle::read(from.without_index(), &self.agent)?.0.fresh;
                    rest.retain(|trial, _| {
                        let is_new = self.known.binary_search(trial).is_err();
                        let is_its = is_new && self.trials.binary_search(trial).is_ok();
                        is_its && given.is_none_or(|given| *trial > given)
                    });
                    return Ok(in_order(rest, self.is_gone));
                }
            }
        }
        Ok(Vec::new())
    }

    /// The record of an entry.
    pub(super) fn record(&self, entry: &Entry<'_>) -> Record {
        let mut record = entry.record().unwrap_or_default();
        if self.is_gone {
            orphan(&mut record);
        }
        record
    }
}

/// Adds to `damage` what the end of a bundle lacks, of which whole lines were read up to `length`.
fn end_damage(
    tree: &Tree,
    agent: &str,
    ledger: &Ledger,
    (length, unended): (u64, bool),
    damage: &mut Damage,
) {
    let (name, known) = (bundle::name(agent), ledger.agents.get(agent));
    let is_fenced = known.is_some_and(|known| matches!(known.gone, Some(Gone::Fenced(_))));
    if known.is_some_and(|known| length < known.size) {
        damage.add(&name, 1);
    } else if !is_fenced && (unended || (length == 0 && known.is_some_and(|k| k.spoke))) {
        // An agent that was killed when it had just joined has an empty one.
        damage.add_unended(tree, &name, Writer::Agent(agent.to_owned()));
    }
}

/// The trials of both, in order.
fn merged(kept: Option<&Kept>, fresh: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut trials: Vec<u64> = fresh.collect();
    trials.extend(kept.into_iter().flat_map(Kept::trials));
    trials.sort_unstable();
    trials.dedup();
    trials
}

/// Marks the attempts that have lost against another run of their trial.
fn lose(ledger: &Ledger, agent: &str, record: &mut Record) {
    if ledger.contests.is_empty() {
        return;
    }
    for attempt in &mut record.attempts {
        let Start { trial, seq, attempt: number, .. } = attempt.start;
        let won = ledger.contest(trial, seq).and_then(|contest| contest.won.as_ref());
        if let (Some(won), Some(place)) = (won, &mut attempt.bundle) {
            place.lost = won.agent != agent || won.attempt != number;
        }
    }
}

/// Ends what the agent of a record ran when it was lost.
fn orphan(record: &mut Record) {
    for attempt in record.attempts.iter_mut().filter(|attempt| attempt.outcome().is_none()) {
        attempt.stopped = Some((Outcome::Interrupted, "its agent was lost".to_owned()));
        attempt.is_orphan = true;
    }
}
