//! Units that agents hold or may still take when a plan is enqueued again. These units are not enqueued a
//! second time, and trials that the plan no longer has are withdrawn before an agent takes them.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::clock;
use crate::submit::again::Again;
use crate::submit::grow::Diff;
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::ledger::{self, Entry, Ledger, Piece};
use crate::sweep::tree::records::Record;
use crate::sweep::tree::{Tree, terms};

/// Units that are looked at together.
const CHUNK: u64 = 1 << 16;

/// Whether a unit that no agent holds is withdrawn: the plan has dropped one of its remaining trials. The rest is
/// enqueued again. A trial of it that was tried then has all its attempts again.
fn is_withdrawn(trials: &[u64], has: impl Fn(u64) -> bool) -> bool {
    trials.is_empty() || trials.iter().any(|trial| !has(*trial))
}

/// Whether there is something to withdraw that the last submission could not withdraw, because an agent held
/// it then.
///
/// # Errors
/// When a deck or the terms cannot be read.
pub(crate) fn is_to_withdraw(tree: &Tree, decks: &[Deck], ledger: &Ledger) -> Result<bool> {
    let dropped = terms::dropped(tree)?;
    let mut found = false;
    for piece in open(ledger, decks).into_iter().filter(|_| !dropped.is_empty()) {
        each(tree, decks, piece, |_, trials| {
            found |= is_withdrawn(trials, |trial| !dropped.has(trial));
        })?;
    }
    Ok(found)
}

/// The trials that can be taken, or that are in units which living agents hold and of which something may still run.
/// `known` was read after the ledger: a trial that ends meanwhile is in one of the two, if not in both. Trials that
/// [`withdraw`] withdraws are not among them.
///
/// # Errors
/// When a deck cannot be read.
pub(crate) fn in_hand(
    tree: &Tree,
    decks: &[Deck],
    ledger: &Ledger,
    known: &HashMap<u64, Record>,
    diff: &Diff,
) -> Result<HashSet<u64>> {
    let held = ledger.living().flat_map(|(_, agent)| agent.held.iter().map(|held| held.piece));
    let mut all = HashSet::new();
    for piece in open(ledger, decks) {
        each(tree, decks, piece, |_, trials| {
            if !is_withdrawn(trials, |trial| diff.has(trial)) {
                all.extend(trials);
            }
        })?;
    }
    for piece in held {
        each(tree, decks, piece, |unit, trials| {
            let dealt = deck::of_unit(decks, unit).map_or(0, |deck| deck.seq);
            let is_over = |trial| known.get(trial).is_some_and(|record| record.is_over(dealt));
            // A chain is not run by two.
            if !trials.iter().all(is_over) {
                all.extend(trials);
            }
        })?;
    }
    Ok(all)
}

/// Withdraws the units that no agent holds and of which the plan has dropped trials.
///
/// # Errors
/// When the tree cannot be read or written.
pub(crate) fn withdraw(
    tree: &Tree,
    decks: &[Deck],
    ledger: &mut Ledger,
    diff: &Diff,
) -> Result<()> {
    loop {
        let mut units: Vec<Piece> = Vec::new();
        for piece in open(ledger, decks) {
            each(tree, decks, piece, |unit, trials| {
                if !is_withdrawn(trials, |trial| diff.has(trial)) {
                    return;
                }
                match units.last_mut() {
                    Some(last) if last.from + last.count == unit => last.count += 1,
                    _ => units.push(Piece::untouched(unit, 1)),
                }
            })?;
        }
        if units.is_empty() {
            return Ok(());
        }
        let agent = format!("submit-{}", clock::short_token());
        let entry = Entry::Drop { agent, nonce: "1".to_owned(), units };
        if ledger::append(tree, ledger, &entry, ledger::link)? {
            return Ok(());
        }
        ledger.follow(tree)?;
    }
}

/// The units that no agent holds.
fn open(ledger: &Ledger, decks: &[Deck]) -> Vec<Piece> {
    let fresh = deck::total(decks).saturating_sub(ledger.fresh);
    let fresh = (fresh > 0).then(|| Piece::untouched(ledger.fresh, fresh));
    ledger.again.iter().copied().chain(fresh).collect()
}

/// The units of a piece, with what is left of their trials.
fn each(tree: &Tree, decks: &[Deck], piece: Piece, mut see: impl FnMut(u64, &[u64])) -> Result<()> {
    let end = piece.from + piece.count;
    let mut from = piece.from;
    while from < end {
        let count = (end - from).min(CHUNK);
        for (unit, trials) in (from..).zip(deck::units(tree, decks, from, count)?) {
            see(unit, trials.get(piece.link as usize..).unwrap_or_default());
        }
        from += count;
    }
    Ok(())
}

/// Refuses to run a sweep in another way while agents have it: unless it was cancelled, and all of them have left.
///
/// # Errors
/// When they do.
pub(crate) fn refuse_if_dealt(tree: &Tree) -> Result<()> {
    let decks = deck::read(tree)?;
    if decks.is_empty() {
        return Ok(());
    }
    check_left(tree, &decks, &Ledger::read(tree)?)
}

fn check_left(tree: &Tree, decks: &[Deck], ledger: &Ledger) -> Result<()> {
    let are_away = ledger.living().all(|(_, agent)| agent.idle || agent.held.is_empty());
    if ledger.is_over(deck::total(decks)) || (ledger.halted.is_some() && are_away) {
        return Ok(());
    }
    let place = tree.dir().display().to_string();
    if ledger.halted.is_some() {
        return Err(Fault::request("agents have not left this sweep, and have trials of it")
            .at(place)
            .hint("wait until they have left; if one was killed, `hpcsweep worker --pull PLAN` takes its trials over")
            .into());
    }
    let name = tree.named();
    Err(Fault::request("agents have trials of this sweep that have not ended")
        .at(place)
        .hint(format!(
            "`hpcsweep worker --pull {name}` continues them; to submit them otherwise, first run: hpcsweep cancel {name}"
        ))
        .into())
}

/// Whether a retry leaves the rest of a sweep cancelled: a person has cancelled it, and only the trials of the retry are to
/// run. Agents would take whatever units there are.
pub(crate) fn is_rest_cancelled(ledger: &Ledger, retry: &Again) -> bool {
    ledger.is_cancelled() && retry.only().is_some_and(|only| !only.is_empty())
}

/// Takes, in memory alone, what [`take_over`] takes.
///
/// # Errors
/// As [`take_over`].
pub(crate) fn rehearse_take_over(tree: &Tree, decks: &[Deck], ledger: &mut Ledger) -> Result<()> {
    check_left(tree, decks, ledger)?;
    open(ledger, decks).iter().for_each(|piece| ledger.drop_units(piece));
    Ok(())
}

/// Takes all units that are left from the agents of a cancelled sweep, so that it can run in another way. The caller holds
/// the sweep's lock, without which no agent resumes a halted sweep.
///
/// # Errors
/// When agents have trials, see [`refuse_if_dealt`], or the tree cannot be read or written.
pub(crate) fn take_over(tree: &Tree) -> Result<()> {
    let decks = deck::read(tree)?;
    if decks.is_empty() {
        return Ok(());
    }
    let mut ledger = Ledger::read(tree)?;
    loop {
        check_left(tree, &decks, &ledger)?;
        let units = open(&ledger, &decks);
        let (agent, nonce) = (format!("submit-{}", clock::short_token()), "1".to_owned());
        let entry = match ledger.halted {
            _ if !units.is_empty() => Entry::Drop { agent, nonce, units },
            // Nothing is left of what was cancelled.
            Some(_) => Entry::Resume { agent, nonce },
            None => return Ok(()),
        };
        ledger::append(tree, &mut ledger, &entry, ledger::link)?;
        ledger.follow(tree)?;
    }
}
