//! Taking over from an agent that is taken for dead: what it had not ended by then goes back.

use std::collections::HashMap;

use anyhow::Result;

use crate::host::{clock, disk};
use crate::plan::OnFailure;
use crate::tree::Tree;
use crate::tree::bundle::{self, Line};
use crate::tree::deck::{self, Deck};
use crate::tree::ledger::{self, Entry, Ledger, Link, Piece};
use crate::tree::records::Outcome;
use crate::tree::table::Head;

/// Neighbours that nobody has begun become one piece.
pub(super) fn merge(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match all.last_mut() {
            Some(last)
                if last.is_untouched()
                    && piece.is_untouched()
                    && last.from + last.count == piece.from =>
            {
                last.count += piece.count;
            }
            _ => all.push(piece),
        }
    }
    all
}

/// What a bundle says of a trial that is not over.
#[derive(Debug, Default, Clone)]
struct Told {
    over: bool,
    /// Whether the chain stops behind it.
    stops: bool,
    /// Attempts that ended otherwise, and whether machine or agent were to blame.
    attempts: Vec<(u32, bool)>,
    /// The one that has no end.
    open: Option<u32>,
}

impl Told {
    /// Failed attempts and faults that came after so many.
    fn after(&self, known: u32) -> (u32, u32) {
        let mut counts = (0, 0);
        let all = self.attempts.iter().copied().chain(self.open.map(|attempt| (attempt, true)));
        // What an agent had given back and took again stands in the piece already.
        for (_, is_fault) in all.filter(|(attempt, _)| *attempt > known) {
            counts = if is_fault { (counts.0, counts.1 + 1) } else { (counts.0 + 1, counts.1) };
        }
        counts
    }
}

/// Takes an agent for dead: what it had not ended goes back.
pub(super) fn expire(
    tree: &Tree,
    ledger: &mut Ledger,
    decks: &[Deck],
    heads: &[Head],
    dead: &str,
    by: &str,
    link: Link,
) -> Result<()> {
    ledger.follow(tree)?;
    loop {
        let Some(agent) = ledger.agents.get(dead).filter(|agent| agent.gone.is_none()) else {
            return Ok(());
        };
        let bytes = whole_bundle(tree, dead)?;
        let (lines, size, _) = bundle::lines(&bytes, 0);
        let stop = heads.last().is_none_or(|head| head.run.on_failure == OnFailure::Stop);
        let told = told(ledger, dead, lines, stop);
        let units = unfinished(tree, decks, &agent.held.clone(), &told)?;
        let (agent, by) = (dead.to_owned(), by.to_owned());
        let nonce = clock::short_token();
        let entry = Entry::Expire { agent, nonce, by, size, units };
        if ledger::append(tree, ledger, &entry, link)? {
            return Ok(());
        }
        ledger.follow(tree)?;
    }
}

/// All that an agent has written; nothing only if it has never made its bundle. While the tree is away for a
/// moment there seems to be none either, and what has ended would be void.
fn whole_bundle(tree: &Tree, agent: &str) -> Result<Vec<u8>> {
    let path = bundle::path(tree, agent, "jsonl");
    let bytes = disk::read_bytes_if_there(&path)?;
    let (Some(shard), true) = (path.parent(), bytes.is_empty()) else { return Ok(bytes) };
    if disk::has(&tree.dir().join("agents"), shard)? && disk::has(shard, &path)? {
        return disk::read_bytes(&path);
    }
    Ok(bytes)
}

fn told(
    ledger: &Ledger,
    agent: &str,
    lines: Vec<bundle::Placed>,
    stop: bool,
) -> HashMap<u64, Told> {
    let mut all: HashMap<u64, Told> = HashMap::new();
    for (at, line) in lines {
        match line {
            Line::Start { trial, attempt, .. } => {
                all.entry(trial).or_default().open = Some(attempt);
            }
            Line::Skip { trial, .. } => all.entry(trial).or_default().over = true,
            Line::End(end) => {
                let told = all.entry(end.trial).or_default();
                told.open = None;
                if end.last && ledger.counts(agent, at, end.trial, end.attempt) {
                    told.over = true;
                    told.stops = stop && end.state != Outcome::Done;
                } else if end.exit_code.is_none() {
                    told.attempts.push((end.attempt, true));
                } else if end.state == Outcome::Failed {
                    told.attempts.push((end.attempt, false));
                }
            }
            _ => {}
        }
    }
    all
}

fn unfinished(
    tree: &Tree,
    decks: &[Deck],
    held: &[Piece],
    told: &HashMap<u64, Told>,
) -> Result<Vec<Piece>> {
    let mut back = Vec::new();
    for piece in held {
        let mut from = piece.from;
        let end = piece.from + piece.count;
        while from < end {
            let count = (end - from).min(4096);
            for (number, trials) in (from..).zip(deck::units(tree, decks, from, count)?) {
                back.extend(left_of(number, &trials, piece, told));
            }
            from += count;
        }
    }
    Ok(merge(back))
}

/// What is left of one unit.
fn left_of(number: u64, trials: &[u64], piece: &Piece, told: &HashMap<u64, Told>) -> Option<Piece> {
    let mut left = Piece { from: number, count: 1, ..*piece };
    for trial in trials.iter().skip(piece.link as usize) {
        let Some(said) = told.get(trial) else { return Some(left) };
        if said.stops {
            return None;
        }
        if !said.over {
            let (tries, faults) = said.after(left.tries + left.faults);
            (left.tries, left.faults) = (left.tries + tries, left.faults + faults);
            return Some(left);
        }
        left = Piece { from: number, count: 1, link: left.link + 1, tries: 0, faults: 0 };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_agent_that_never_wrote_has_written_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(&dir.path().join("sweep"));
        let read = || whole_bundle(&tree, "n1-a").map_err(|e| e.to_string());
        let away = |what: &str| {
            let path = dir.path().join("sweep").join(what);
            Err(format!("cannot list `{}`: no such file or directory", path.display()))
        };
        assert_eq!(read(), away("agents"));
        ledger::prepare(&tree).unwrap();
        assert_eq!(read(), Ok(Vec::new()));
        let path = bundle::path(&tree, "n1-a", "jsonl");
        disk::make_dir(path.parent().unwrap()).unwrap();
        assert_eq!(read(), Ok(Vec::new()));
        disk::append(&path, b"x").unwrap();
        assert_eq!(read(), Ok(b"x".to_vec()));
    }

    #[test]
    fn what_was_given_back_and_taken_again_is_counted_once() {
        // Attempt 1 failed, the machine failed attempt 2, which went back and was taken again; attempt 3 is open.
        let said = Told { attempts: vec![(1, false), (2, true)], open: Some(3), ..Told::default() };
        let told = HashMap::from([(7, said)]);
        let left = |tries, faults| {
            let piece = Piece { from: 0, count: 1, link: 0, tries, faults };
            let left = left_of(0, &[7], &piece, &told).unwrap();
            (left.tries, left.faults)
        };
        assert_eq!([left(0, 0), left(1, 0), left(1, 1)], [(1, 2); 3]);
    }
}
