//! What the ledger of agents says of trials that have not ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use anyhow::Result;

use super::pilots::Pilots;
use crate::scheduler::{Element, State as Word};
use crate::tree::ledger::{Ledger, Piece};
use crate::tree::records::Record;
use crate::tree::{Tree, bundle, deck};
use crate::words;

/// The word of the agents on trials that are theirs and have not ended.
#[derive(Debug, Default)]
pub(super) struct Words {
    open: HashMap<u64, Element>,
    /// What is known of the agents, in words; empty where there never were any.
    pub(super) seen: String,
    /// Whether an agent is at work.
    pub(super) alive: bool,
}

impl Words {
    /// What `ledger`, read before the `records`, says of them; `pilots` are agents that a scheduler knows of.
    pub(super) fn read(
        tree: &Tree,
        ledger: &Ledger,
        records: &HashMap<u64, Record>,
        pilots: &[Pilots],
    ) -> Result<Self> {
        let decks = deck::read(tree)?;
        if decks.is_empty() {
            return Ok(Self::default());
        }
        let patience_s = decks.last().map_or(60.0, |deck| deck.pull.patience_s());
        let living = alive(tree, ledger, Duration::from_secs_f64(patience_s));
        let stopped = ledger.stopped();
        let why = match (&stopped, living.len()) {
            (Some(why), _) => why.clone(),
            (None, 0) if pilots.iter().any(Pilots::will_work) => "for a pilot job".to_owned(),
            (None, 0) => "no agent is at work".to_owned(),
            (None, _) => "for an agent".to_owned(),
        };
        let hands = Hands::of(ledger);
        let (mut open, mut left) = (HashMap::new(), 0u64);
        for (unit, trials) in (0..).zip(deck::units(tree, &decks, 0, deck::total(&decks))?) {
            let dealt = deck::of_unit(&decks, unit).map_or(0, |deck| deck.seq);
            // A changed plan has dropped it, or it has ended.
            if !hands.have(unit) {
                continue;
            }
            for trial in trials {
                let record = records.get(&trial);
                if record.is_some_and(|record| record.is_over(dealt)) {
                    continue;
                }
                left += 1;
                let attempt = record.and_then(|r| r.attempts.last());
                let place =
                    attempt.filter(|a| a.outcome().is_none()).and_then(|a| a.bundle.as_ref());
                let runs = place.is_some_and(|place| living.contains(&place.agent));
                let state = if runs {
                    Word::Running("RUNNING".to_owned())
                } else {
                    Word::Queued(why.clone())
                };
                open.insert(trial, Element { state, reason: String::new() });
            }
        }
        let mut seen: Vec<String> = match living.len() {
            _ if left == 0 => Vec::new(),
            0 if stopped.is_some() || !pilots.iter().any(Pilots::will_work) => vec![why],
            0 => Vec::new(),
            n => {
                let agents = format!("{} at work", words::count(n as u64, "agent"));
                [Some(agents), stopped].into_iter().flatten().collect()
            }
        };
        if left > 0 {
            seen.extend(pilots.iter().map(Pilots::words));
        }
        let seen = seen.join("; ");
        Ok(Self { open, seen, alive: !living.is_empty() })
    }

    /// The word on a trial.
    pub(super) fn of(&self, trial: u64) -> Option<Element> {
        self.open.get(&trial).cloned()
    }
}

/// Units that somebody has taken or may take.
struct Hands(Vec<Piece>);

impl Hands {
    fn of(ledger: &Ledger) -> Self {
        let held = ledger.living().flat_map(|(_, agent)| &agent.held).map(|held| held.piece);
        let mut pieces: Vec<Piece> = held.chain(ledger.again.iter().copied()).collect();
        pieces.push(Piece::untouched(ledger.fresh, u64::MAX - ledger.fresh));
        pieces.sort_by_key(|piece| piece.from);
        Self(pieces)
    }

    fn have(&self, unit: u64) -> bool {
        let after = self.0.partition_point(|piece| piece.from <= unit);
        self.0[..after].last().is_some_and(|piece| unit - piece.from < piece.count)
    }
}

/// Agents that have given a sign not too long ago.
fn alive(tree: &Tree, ledger: &Ledger, patience: Duration) -> HashSet<String> {
    let fresh = |name: &String| {
        let changed =
            std::fs::metadata(bundle::path(tree, name, "jsonl")).and_then(|m| m.modified());
        changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age < patience))
    };
    ledger.living().map(|(name, _)| name).filter(|name| fresh(name)).cloned().collect()
}
