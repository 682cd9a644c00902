//! The units that an agent takes, holds and gives back.

use std::collections::VecDeque;

use anyhow::Result;

use super::{Membership, Unit};
use crate::run::pull::membership::expiry::merge;
use crate::run::pull::membership::share::{self, Own};
use crate::sweep::tree::deck;
use crate::sweep::tree::ledger::{Entry, Piece};
use crate::sweep::tree::table::{self, Row};
use crate::sweep::tree::terms;

/// Units whose rows are read at once: bounds an agent's memory, whatever it holds.
const CHUNK: u64 = 256;

impl Membership {
    /// Takes units if fewer wait than `idle` slots could begin now.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn fill(&mut self, idle: u64, left_s: Option<f64>) -> Result<()> {
        self.deliver()?;
        while self.waiting() < idle && self.ledger.stopped().is_none() && !self.is_fenced() {
            let total = deck::total(&self.decks);
            let open = self.ledger.open(total);
            if open == 0 {
                return Ok(());
            }
            let own = Own {
                slots: self.slots,
                done: self.done,
                busy_s: self.busy_s,
                age_s: self.began.elapsed().as_secs_f64(),
                left_s,
            };
            let others =
                self.ledger.living().filter(|(name, _)| **name != self.name).map(|(_, a)| a);
            let most = share::block(open, idle - self.waiting(), own, others);
            let units = self.choose(total, most);
            if units.is_empty() {
                return Ok(());
            }
            let nonce = self.nonce();
            let entry = Entry::Take {
                agent: self.name.clone(),
                nonce,
                units: units.clone(),
                done: self.done,
                busy_s: (self.busy_s * 1e3).round() / 1e3,
            };
            if self.append(&entry)? {
                self.is_idle = false;
                self.taken.extend(units);
            } else {
                self.look()?;
            }
        }
        Ok(())
    }

    /// The next units for this agent: not those that others are to take.
    fn choose(&self, total: u64, most: u64) -> Vec<Piece> {
        let is_elsewhere = |host: &String| *host != self.offer.host;
        let excludes = self.retry().is_some_and(|retry| retry.node.exclude)
            && self.ledger.living().any(|(_, agent)| !agent.leaving && is_elsewhere(&agent.host));
        self.ledger.choose_but(total, most, |piece| {
            let lost_on = || self.ledger.lost_on.get(&piece.from);
            self.too_long.contains(&piece.from)
                || (excludes && piece.faults > 0 && lost_on() == Some(&self.offer.host))
        })
    }

    /// Leaves a unit to agents that have more time.
    pub(crate) fn leave_to_others(&mut self, unit: &Unit) {
        self.too_long.insert(unit.number);
        self.give_back(vec![unit.piece()]);
    }

    /// Whether all units that can be taken need more time than this agent has.
    pub(crate) fn is_of_no_use(&self) -> bool {
        let open = self.open();
        let too_long = self.ledger.again.iter().filter(|p| self.too_long.contains(&p.from));
        open > 0 && too_long.map(|piece| piece.count).sum::<u64>() == open
    }

    /// Puts a unit in front of all others.
    pub(crate) fn put_first(&mut self, unit: Unit) {
        self.ready.push_front(unit);
    }

    /// Puts a unit behind the first so many.
    pub(crate) fn put_behind(&mut self, first: usize, unit: Unit) {
        self.ready.insert(first.min(self.ready.len()), unit);
    }

    /// The next unit to begin.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub(crate) fn next_unit(&mut self) -> Result<Option<Unit>> {
        if self.ready.is_empty() {
            self.read_ahead()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Whether the plan had dropped a trial when units were last read, and has not added it again since.
    ///
    /// # Errors
    /// When what the plan says now cannot be read.
    pub(crate) fn is_dropped(&mut self, trial: u64) -> Result<bool> {
        if self.dropped.has(trial) {
            self.dropped = terms::dropped(&self.tree)?;
        }
        Ok(self.dropped.has(trial))
    }

    /// The trial behind which the first trial of a unit runs, where that is one of another unit. The plan may drop a chain at any
    /// time: whether it still has the trial ([`Self::is_dropped`]) is answered from what was read for this.
    ///
    /// # Errors
    /// When what the plan says now, or the table, cannot be read.
    pub(crate) fn before(&mut self, unit: &Unit) -> Result<Option<u64>> {
        let Some(row) = unit.rows.front().filter(|row| row.after.is_some()) else {
            return Ok(None);
        };
        if unit.link > 0 || unit.tries > 0 {
            return Ok(None);
        }
        self.dropped = terms::dropped(&self.tree)?;
        self.dropped.before(&self.tree, row)
    }

    fn read_ahead(&mut self) -> Result<()> {
        let mut room = CHUNK;
        if !self.taken.is_empty() {
            self.dropped = terms::dropped(&self.tree)?;
        }
        while let Some(piece) = self.taken.front_mut().filter(|_| room > 0) {
            let count = piece.count.min(room);
            let trials = deck::units(&self.tree, &self.decks, piece.from, count)?;
            let ids: Vec<u64> = trials.iter().flatten().copied().collect();
            let mut rows = table::some(&self.tree, &self.heads, &ids)?.into_iter();
            for (number, unit) in (piece.from..).zip(&trials) {
                let all: VecDeque<Row> = rows.by_ref().take(unit.len()).collect();
                let link = piece.link.min(all.len() as u32);
                let rows: VecDeque<Row> = all.into_iter().skip(link as usize).collect();
                let deck = deck::of_unit(&self.decks, number);
                let is_alone =
                    deck.zip(rows.front()).is_some_and(|(deck, first)| deck.has_alone(first.id));
                self.ready.push_back(Unit {
                    number,
                    rows,
                    link,
                    tries: piece.tries,
                    faults: piece.faults,
                    cuts: piece.cuts,
                    spent: piece.spent,
                    repeats: piece.repeats,
                    grown: piece.grown,
                    alone: piece.alone || is_alone,
                    looks: 0,
                });
            }
            room -= count;
            (piece.from, piece.count) = (piece.from + count, piece.count - count);
            if piece.count == 0 {
                self.taken.pop_front();
            }
        }
        Ok(())
    }

    /// Units that wait, taken out of its hands to be given back: all of them, or at most `most` from the end.
    pub(crate) fn unbegun(&mut self, most: u64) -> Vec<Piece> {
        let mut back = VecDeque::new();
        let mut left = most;
        while let Some(piece) = self.taken.back_mut().filter(|_| left > 0) {
            let count = piece.count.min(left);
            let keep = piece.count - count;
            back.push_front(Piece { from: piece.from + keep, count, ..*piece });
            left -= count;
            piece.count = keep;
            if keep == 0 {
                self.taken.pop_back();
            }
        }
        while left > 0
            && let Some(unit) = self.ready.pop_back()
        {
            left -= 1;
            back.push_front(unit.piece());
        }
        merge(back)
    }
}
