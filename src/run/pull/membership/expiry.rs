//! Takes over from an agent whose lease has expired: trials that it had not ended by then go back.

use std::collections::HashMap;

use anyhow::Result;

use crate::base::host::{clock, disk, process};
use crate::plan::OnFailure;
use crate::run::pull::places::guard::MARK;
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::ledger::{self, Ending, Entry, Held, Ledger, Link, Piece};
use crate::sweep::tree::records::{Decided, Event, Outcome, Start};
use crate::sweep::tree::table::Head;
use crate::sweep::tree::{Tree, bundle};

/// Adjacent units that no agent has begun become one piece.
pub(crate) fn merge(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
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

/// A bundle's line about a trial: the end of a run that began when its agent had read `seq` entries.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Told {
    seq: u64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// It began, and has no end.
    Open,
    /// It is over, and its chain perhaps with it.
    Over { stops: bool },
    /// It failed, and is to be tried again.
    Failed,
    /// Machine or agent were to blame.
    Fault,
    /// It was stopped: no attempt is counted.
    Stopped,
    /// `[retry]` repeats it after this attempt: how often that counts, and as what it runs.
    Repeated { attempt: u32, repeats: u32, grown: u32, alone: bool },
}

/// A trial that was lost with its agent, and runs again elsewhere.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) trial: u64,
    /// The host of the agent.
    pub(crate) host: String,
    /// Its unit as it was given back.
    pub(crate) piece: Piece,
}

/// Expires an agent's lease: units that it had not ended go back. Returns the trials that it was running.
pub(crate) fn expire(
    tree: &Tree,
    ledger: &mut Ledger,
    decks: &[Deck],
    heads: &[Head],
    dead: &str,
    by: &str,
    link: Link,
) -> Result<Vec<Lost>> {
    ledger.follow(tree)?;
    loop {
        let Some(agent) = ledger.agents.get(dead).filter(|agent| agent.gone.is_none()) else {
            return Ok(Vec::new());
        };
        let (lines, size) = whole_bundle(tree, dead)?;
        let who = lines.iter().find_map(|(_, line)| match line {
            Event::Agent(who) => Some((who.pid, who.started)),
            _ => None,
        });
        let stop = heads.last().is_none_or(|head| head.run.on_failure == OnFailure::Stop);
        let told = told(ledger, dead, lines, stop);
        let (units, lost) = unfinished(tree, decks, &agent.held, &told)?;
        let host = agent.host.clone();
        let unbegun = unbegun(ledger, dead, &told);
        let (agent, by) = (dead.to_owned(), by.to_owned());
        let nonce = clock::short_token();
        let entry = Entry::Expire { agent, nonce, by, size, units, unbegun };
        if ledger::append(tree, ledger, &entry, link)? {
            // Processes that its programs have started may live on, on this host if the agent was here. An agent
            // that only sleeps ends them itself when it wakes up.
            let lives = who.is_some_and(|(pid, started)| {
                started.is_some() && process::started(pid.cast_signed()) == started
            });
            if !lives {
                process::end_orphans(MARK, &format!("{dead}."));
            }
            let of = |(trial, piece)| Lost { trial, host: host.clone(), piece };
            return Ok(lost.into_iter().map(of).collect());
        }
        ledger.follow(tree)?;
    }
}

/// All that an agent has written; nothing only if it has never made its bundle. While the tree is away for a
/// moment there seems to be none either, and what has ended would be void.
fn whole_bundle(tree: &Tree, agent: &str) -> Result<(Vec<bundle::Placed>, u64)> {
    let path = tree.agent_file(agent, "jsonl");
    let read = bundle::deeds(tree, agent, 0)?;
    let (Some(shard), (_, 0)) = (path.parent(), &read) else { return Ok(read) };
    if disk::has(&tree.dir().join("agents"), shard)? && disk::has(shard, &path)? {
        return bundle::deeds(tree, agent, 0);
    }
    Ok(read)
}

fn told(
    ledger: &Ledger,
    agent: &str,
    lines: Vec<bundle::Placed>,
    stop: bool,
) -> HashMap<u64, Vec<Told>> {
    let mut all: HashMap<u64, Vec<Told>> = HashMap::new();
    for (at, line) in lines {
        match line {
            Event::Start(Start { trial, seq, .. }) => {
                all.entry(trial).or_default().push(Told { seq, what: What::Open });
            }
            Event::Skip { trial, seq, .. } => {
                let what = What::Over { stops: false };
                all.entry(trial).or_default().push(Told { seq, what });
            }
            Event::Decided(decided) => {
                let told = all.entry(decided.trial).or_default();
                if decided.again && decided.attempt > 0 {
                    // The attempt is over, whether its end is there or not.
                    told.pop_if(|told| told.what == What::Open);
                    let Decided { seq, attempt, grown, alone, counts, .. } = decided;
                    let (repeats, grown) = (u32::from(counts), u32::from(grown));
                    let what = What::Repeated { attempt, repeats, grown, alone };
                    told.push(Told { seq, what });
                }
            }
            Event::End(end) => {
                let told = all.entry(end.trial).or_default();
                let is_decided = |last: &Told| matches!(last.what, What::Repeated { attempt, .. } if attempt == end.attempt);
                if told.last().is_some_and(is_decided) {
                    continue;
                }
                let open = told.pop_if(|told| told.what == What::Open).map(|told| told.seq);
                let (trial, attempt) = (end.trial, end.attempt);
                let seq = open.or(end.seq).unwrap_or(0);
                let what = if end.last && ledger.counts(Ending { agent, at, trial, attempt, seq }) {
                    What::Over { stops: stop && end.state != Outcome::Done }
                } else if end.exit_code.is_none() {
                    What::Fault
                } else if end.state == Outcome::Failed {
                    What::Failed
                } else {
                    What::Stopped
                };
                told.push(Told { seq, what });
            }
            _ => {}
        }
    }
    all
}

/// Adds what was said of a trial to what its unit says of it.
fn count(left: &mut Piece, what: What) {
    match what {
        What::Failed => left.tries += 1,
        What::Fault | What::Open => left.faults += 1,
        What::Repeated { repeats, grown, alone, .. } => {
            left.tries += 1;
            left.spent = left.tries;
            left.repeats += repeats;
            left.grown += grown;
            left.alone |= alone;
        }
        What::Over { .. } | What::Stopped => {}
    }
}

/// Trials of which an agent had announced a copy, and that it had not begun.
fn unbegun(ledger: &Ledger, agent: &str, told: &HashMap<u64, Vec<Told>>) -> Vec<u64> {
    let of_agent = ledger.contests.iter().filter_map(|(trial, all)| {
        let last = all.last().filter(|last| last.copy.as_deref() == Some(agent))?;
        let began = told.get(trial).is_some_and(|all| all.iter().any(|told| told.seq >= last.at));
        (!began).then_some(*trial)
    });
    let mut all: Vec<u64> = of_agent.collect();
    all.sort_unstable();
    all
}

/// A trial that its agent was running, and its unit as it goes back.
type LostTrial = (u64, Piece);

fn unfinished(
    tree: &Tree,
    decks: &[Deck],
    held: &[Held],
    told: &HashMap<u64, Vec<Told>>,
) -> Result<(Vec<Piece>, Vec<LostTrial>)> {
    let (mut back, mut lost) = (Vec::new(), Vec::new());
    for held in held {
        let piece = &held.piece;
        let mut from = piece.from;
        let end = piece.from + piece.count;
        while from < end {
            let count = (end - from).min(4096);
            for (number, trials) in (from..).zip(deck::units(tree, decks, from, count)?) {
                let Some(left) = left_of(number, &trials, held, told) else { continue };
                let before = if left.link == held.piece.link { held.piece.faults } else { 0 };
                let trial = trials.get(left.link as usize).filter(|_| left.faults > before);
                lost.extend(trial.map(|trial| (*trial, left)));
                back.push(left);
            }
            from += count;
        }
    }
    Ok((merge(back), lost))
}

/// The rest of one unit.
fn left_of(
    number: u64,
    trials: &[u64],
    held: &Held,
    told: &HashMap<u64, Vec<Told>>,
) -> Option<Piece> {
    let mut left = Piece { from: number, count: 1, ..held.piece };
    // Runs that began before the unit was taken are counted in the piece, or belong to an earlier unit.
    let said_of = |trial: &u64| {
        let all = told.get(trial).map_or(&[][..], Vec::as_slice);
        all.iter().filter(|told| told.seq >= held.since).map(|told| told.what)
    };
    // All trials before the one that it has begun are over, though the end that counts may be another agent's.
    let reached = trials.iter().rposition(|trial| said_of(trial).next().is_some()).unwrap_or(0);
    for (i, trial) in trials.iter().enumerate().skip(held.piece.link as usize) {
        let said = || said_of(trial);
        let over = said().find_map(|what| match what {
            What::Over { stops } => Some(stops),
            _ => None,
        });
        match over {
            Some(true) => return None,
            Some(false) => {}
            None if i < reached => {}
            None => {
                said().for_each(|what| count(&mut left, what));
                return Some(left);
            }
        }
        left = Piece { link: left.link + 1, ..Piece::untouched(number, 1) };
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
        let read = || whole_bundle(&tree, "n1-a").map(|(_, size)| size).map_err(|e| e.to_string());
        let away = |what: &str| {
            let path = dir.path().join("sweep").join(what);
            Err(format!("cannot list `{}`: no such file or directory", path.display()))
        };
        assert_eq!(read(), away("agents"));
        ledger::prepare(&tree).unwrap();
        assert_eq!(read(), Ok(0));
        let path = tree.agent_file("n1-a", "jsonl");
        disk::make_dir(path.parent().unwrap()).unwrap();
        assert_eq!(read(), Ok(0));
        disk::append(&path, b"x\n").unwrap();
        assert_eq!(read(), Ok(2));
    }

    fn told_of(what: &[(u64, What)]) -> HashMap<u64, Vec<Told>> {
        HashMap::from([(7, what.iter().map(|&(seq, what)| Told { seq, what }).collect())])
    }

    fn left(since: u64, tries: u32, faults: u32, what: &[(u64, What)]) -> Option<(u32, u32)> {
        let piece = Piece { tries, faults, ..Piece::untouched(0, 1) };
        let left = left_of(0, &[7], &Held { since, piece }, &told_of(what))?;
        Some((left.tries, left.faults))
    }

    #[test]
    fn what_was_given_back_and_taken_again_is_counted_once() {
        // Attempt 1 failed, the machine failed attempt 2, which went back and was taken again; attempt 3 is open.
        let what = [(10, What::Failed), (12, What::Fault), (20, What::Open)];
        assert_eq!(left(9, 0, 0, &what), Some((1, 2)));
        assert_eq!(left(11, 1, 0, &what), Some((1, 2)));
        assert_eq!(left(15, 1, 1, &what), Some((1, 2)));
    }

    #[test]
    fn what_was_decided_before_an_agent_was_killed_counts_once() {
        let repeated = |grown, alone| What::Repeated { attempt: 2, repeats: 1, grown, alone };
        // Two attempts of a job failed, the repeat is to have more time; the next one is open.
        let what = [(10, What::Failed), (10, repeated(1, false)), (20, What::Open)];
        let left = |what: &[(u64, What)]| {
            let held = Held { since: 9, piece: Piece::untouched(0, 1) };
            left_of(0, &[7], &held, &told_of(what)).unwrap()
        };
        let expected = Piece { tries: 2, spent: 2, repeats: 1, grown: 1, ..Piece::untouched(0, 1) };
        assert_eq!(left(&what[..2]), expected);
        assert_eq!(left(&what), Piece { faults: 1, ..expected });
        let twice = [what[1], (12, repeated(0, true))];
        assert_eq!(left(&twice), Piece { repeats: 2, alone: true, ..expected });
    }

    #[test]
    fn a_decision_ends_an_attempt_whose_end_is_not_there() {
        let lines = |with_end: bool| {
            let start = Start { trial: 7, attempt: 1, seq: 3, ..Start::default() };
            let decided = Decided {
                trial: 7,
                attempt: 1,
                seq: 3,
                again: true,
                counts: true,
                ..Decided::default()
            };
            let end = serde_json::json!({ "event": "end", "trial": 7, "attempt": 1, "time": 1.0,
                "state": "failed", "exit_code": 75, "duration_s": 1.0 });
            let end: Event = serde_json::from_value(end).unwrap();
            let all = [Event::Start(start), Event::Decided(decided), end];
            let all = all.into_iter().take(if with_end { 3 } else { 2 });
            told(&Ledger::default(), "n1-a", all.map(|line| (1, line)).collect(), true)
        };
        let expected = What::Repeated { attempt: 1, repeats: 1, grown: 0, alone: false };
        for with_end in [false, true] {
            assert_eq!(lines(with_end), told_of(&[(3, expected)]), "{with_end}");
        }
    }

    #[test]
    fn what_others_have_ended_before_the_chain_went_on_here_is_over() {
        let held = Held { since: 9, piece: Piece { tries: 2, ..Piece::untouched(0, 1) } };
        let told = |seq, what| vec![Told { seq, what }];
        let over = What::Over { stops: false };
        // The end of trial 7 here is not the one that counts; trial 8 was begun, and ended.
        let mut all = HashMap::from([(7, told(10, What::Stopped)), (8, told(12, What::Open))]);
        let expected = Piece { link: 1, faults: 1, ..Piece::untouched(0, 1) };
        assert_eq!(left_of(0, &[7, 8], &held, &all), Some(expected));
        all.insert(8, told(12, over));
        assert_eq!(left_of(0, &[7, 8], &held, &all), None);
    }

    #[test]
    fn what_was_over_before_it_was_asked_for_again_says_nothing_of_the_unit_that_was_taken_since() {
        let over = (10, What::Over { stops: false });
        assert_eq!(left(9, 0, 0, &[over, (20, What::Open)]), None);
        assert_eq!(left(15, 0, 0, &[over]), Some((0, 0)));
        assert_eq!(left(15, 0, 0, &[over, (20, What::Open)]), Some((0, 1)));
    }
}
