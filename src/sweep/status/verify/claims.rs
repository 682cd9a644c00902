//! Whether the entries of `claims/` follow from each other, and agents ran what they had claimed. An entry does not name its
//! number, but those of an agent are counted: two that were swapped are noticed where they are of one agent, or one of them cannot come
//! before the other.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::{Findings, RESTORE};
use crate::sweep::status::Status;
use crate::sweep::tree::ledger::{self, Entry, Ledger, Piece};
use crate::sweep::tree::{bundle, deck};

/// Adds what does not fit. An entry or a deck that cannot be read has been reported; what depends on it is left open.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn check(found: &mut Findings<'_>, status: &Status) -> Result<()> {
    let mut history = History::default();
    let mut odd: Vec<(u64, String)> = Vec::new();
    ledger::each(found.tree, |seq, entry| {
        let words = (history.ledger.seq + 1 == seq).then(|| history.oddity(&entry)).flatten();
        odd.extend(words.map(|words| (seq, words)));
        history.take(seq, entry);
    })?;
    let is_whole = history.ledger.seq == ledger::length(found.tree)?;
    for (agent, _) in history.ledger.agents.iter().filter(|(_, agent)| agent.spoke) {
        let file = bundle::name(agent);
        if !found.tree.dir().join(&file).exists() && !found.has(&file) {
            found
                .add(file, RESTORE, || "does not exist, although its agent was at work".to_owned());
        }
    }
    for (seq, words) in odd.into_iter().filter(|_| is_whole) {
        let what = || format!("does not follow from the entries before it: {words}");
        found.add(ledger::name(seq), RESTORE, what);
    }
    let Ok(decks) = deck::read(found.tree) else { return Ok(()) };
    let Ok(units) = deck::units(found.tree, &decks, 0, deck::total(&decks)) else { return Ok(()) };
    if !is_whole || units.is_empty() {
        return Ok(());
    }
    let mut units_of: HashMap<u64, Vec<u64>> = HashMap::new();
    for (unit, trials) in (0..).zip(units) {
        trials.into_iter().for_each(|trial| units_of.entry(trial).or_default().push(unit));
    }
    for (trial, record) in status.records.iter() {
        let units = units_of.get(trial).map_or(&[][..], Vec::as_slice);
        for attempt in &record.attempts {
            let Some(place) = attempt.bundle.as_ref().filter(|place| place.begun) else { continue };
            let began = Began { agent: &place.agent, trial: *trial, seq: attempt.start.seq };
            if began.seq > 0 && !history.has_given(began, units) {
                let what = || {
                    let entries = began.seq;
                    format!(
                        "began trial {trial} after {entries} entries of claims/, none of which gives it to this agent"
                    )
                };
                found.add(bundle::name(&place.agent), RESTORE, what);
            }
        }
    }
    Ok(())
}

/// The beginning of an attempt: its agent had read so many entries.
#[derive(Clone, Copy)]
struct Began<'a> {
    agent: &'a str,
    trial: u64,
    seq: u64,
}

/// The agent of an entry, and whether it waits for no other entry of the agent: those that wait keep their order, and so do
/// those that do not.
type Line = (String, bool);

/// The place of an entry among those of its agent.
struct Count {
    line: Line,
    number: u64,
}

impl Count {
    /// That of an entry; `None` of one that is not counted.
    fn of(entry: &Entry) -> Option<Self> {
        let is_at_once = match entry {
            Entry::Take { .. } | Entry::Idle { .. } | Entry::Leave { .. } => true,
            Entry::Back { .. } | Entry::Copy { .. } | Entry::Uncopy { .. } | Entry::Won { .. } => {
                false
            }
            _ => return None,
        };
        let (by, nonce) = entry.signature();
        Some(Self { line: (by.to_owned(), is_at_once), number: nonce.parse().ok()? })
    }
}

/// What agents have claimed.
#[derive(Default)]
struct History {
    ledger: Ledger,
    /// The signatures of all entries.
    known: HashSet<(String, String)>,
    /// The number of the last entry in each line of an agent.
    counts: HashMap<Line, u64>,
    /// By agent: the units that it took, each with the number of the entry.
    taken: HashMap<String, Vec<(u64, Piece)>>,
    /// By agent: the trials of which it ran a copy, likewise.
    copied: HashMap<String, Vec<(u64, u64)>>,
}

impl History {
    /// Why an entry cannot be the next one.
    fn oddity(&self, entry: &Entry) -> Option<String> {
        let (by, nonce) = entry.signature();
        if self.known.contains(&(by.to_owned(), nonce.to_owned())) {
            return Some("it is there twice".to_owned());
        }
        if let Some(count) = Count::of(entry)
            && self.counts.get(&count.line).is_some_and(|last| *last >= count.number)
        {
            return Some(format!("agent `{by}` has written it before one of these"));
        }
        let agent = match entry {
            Entry::Take { agent, .. }
            | Entry::Back { agent, .. }
            | Entry::Idle { agent, .. }
            | Entry::Leave { agent, .. }
            | Entry::Expire { agent, .. }
            | Entry::Copy { agent, .. }
            | Entry::Won { agent, .. } => agent,
            _ => return None,
        };
        let Some(known) = self.ledger.agents.get(agent) else {
            return Some(format!("agent `{agent}` has not joined"));
        };
        match entry {
            Entry::Take { units, .. } => {
                if known.gone.is_some() {
                    return Some(format!("agent `{agent}` has left"));
                }
                let piece = self.unavailable(units)?;
                Some(format!("it takes unit {}, which is not open", piece.from))
            }
            Entry::Won { trial, .. } if !self.ledger.contests.contains_key(trial) => {
                Some(format!("trial {trial} has no copy"))
            }
            _ => None,
        }
    }

    /// The first of some units that cannot be taken.
    fn unavailable<'p>(&self, units: &'p [Piece]) -> Option<&'p Piece> {
        let mut fresh = self.ledger.fresh;
        units.iter().find(|piece| {
            if piece.from == fresh && piece.is_untouched() {
                fresh += piece.count;
                return false;
            }
            !self.ledger.again.iter().any(|open| open.from == piece.from)
        })
    }

    fn take(&mut self, seq: u64, entry: Entry) {
        let (by, nonce) = entry.signature();
        self.known.insert((by.to_owned(), nonce.to_owned()));
        self.counts.extend(Count::of(&entry).map(|count| (count.line, count.number)));
        match &entry {
            Entry::Take { agent, units, .. } => {
                let units = units.iter().map(|piece| (seq, *piece));
                self.taken.entry(agent.clone()).or_default().extend(units);
            }
            Entry::Copy { agent, trial, .. } => {
                self.copied.entry(agent.clone()).or_default().push((seq, *trial));
            }
            _ => {}
        }
        self.ledger.take(Some(entry));
    }

    /// Whether an entry before the beginning of an attempt gives its agent one of the units of its trial, or a copy of it.
    fn has_given(&self, began: Began<'_>, units: &[u64]) -> bool {
        let taken = self.taken.get(began.agent).into_iter().flatten();
        let copied = self.copied.get(began.agent).into_iter().flatten();
        let has = |piece: &Piece| units.iter().any(|unit| piece.has(*unit));
        taken.into_iter().any(|(seq, piece)| *seq <= began.seq && has(piece))
            || copied.into_iter().any(|(seq, trial)| *seq <= began.seq && *trial == began.trial)
    }
}
