//! What agents agree on, however they come together.

use std::io;
use std::path::Path;

use super::*;
use crate::base::host::disk;

fn take(agent: &str, units: Vec<Piece>) -> Entry {
    let nonce = crate::base::host::clock::short_token();
    Entry::Take { agent: agent.into(), nonce, units, done: 0, busy_s: 0.0 }
}

fn tree() -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::at(dir.path());
    prepare(&tree).unwrap();
    (dir, tree)
}

#[test]
fn of_many_that_append_at_once_each_entry_has_one_place_and_none_is_lost() {
    let (_dir, tree) = tree();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let run = |name: usize| {
            let tree = &tree;
            move || {
                let mut ledger = Ledger::default();
                let mut taken = 0;
                loop {
                    ledger.follow(tree).unwrap();
                    let units = ledger.choose(200, 3);
                    if units.is_empty() {
                        return taken;
                    }
                    let n: u64 = units.iter().map(|piece| piece.count).sum();
                    let entry = take(&format!("a{name}"), units);
                    if append(tree, &mut ledger, &entry, link).unwrap() {
                        taken += n;
                    }
                }
            }
        };
        let all: Vec<_> = (0..8).map(|name| scope.spawn(run(name))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<u64>(), 200);
    let ledger = Ledger::read(&tree).unwrap();
    let mut held: Vec<u64> = ledger
        .agents
        .values()
        .flat_map(|a| &a.held)
        .flat_map(|held| held.piece.from..held.piece.from + held.piece.count)
        .collect();
    held.sort_unstable();
    assert_eq!(held, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_link_that_worked_and_reported_an_error_is_recognised() {
    fn sent_twice(from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)?;
        std::fs::hard_link(from, to)
    }
    let (_dir, tree) = tree();
    let mut ledger = Ledger::default();
    let entry = take("a", vec![Piece::untouched(0, 2)]);
    assert!(append(&tree, &mut ledger, &entry, sent_twice).unwrap());
    // Another agent that has read nothing yet meets the entry and knows that it is not its own.
    let mut other = Ledger::default();
    let again = take("b", vec![Piece::untouched(0, 2)]);
    assert!(!append(&tree, &mut other, &again, sent_twice).unwrap());
    other.follow(&tree).unwrap();
    assert_eq!(other, ledger);
    assert_eq!(disk::list(&tree.dir().join("claims/000")).unwrap(), ["000001.json"]);
}

#[test]
fn what_was_given_back_is_taken_before_fresh_units_and_what_failed_after_them() {
    let mut ledger = Ledger::default();
    ledger.take(Some(take("a", vec![Piece::untouched(0, 6)])));
    let failed = Piece { tries: 1, ..Piece::untouched(1, 1) };
    let units = vec![failed, Piece::untouched(3, 3)];
    ledger.take(Some(Entry::Back {
        agent: "a".into(),
        nonce: String::new(),
        units,
        leaving: false,
    }));
    let held = |from| Held { since: 1, piece: Piece::untouched(from, 1) };
    assert_eq!(ledger.agents["a"].held, [held(0), held(2)]);
    assert_eq!(ledger.open(8), 6);
    assert_eq!(ledger.choose(8, 4), [Piece::untouched(3, 3), Piece::untouched(6, 1)]);
    let all = ledger.choose(8, 100);
    assert_eq!(all, [Piece::untouched(3, 3), Piece::untouched(6, 2), failed]);
    ledger.take(Some(take("b", all)));
    assert_eq!((ledger.open(8), ledger.fresh), (0, 8));
    // One more plan with two units; a part of a piece is taken.
    let units = vec![Piece::untouched(3, 3)];
    ledger.take(Some(Entry::Back {
        agent: "b".into(),
        nonce: String::new(),
        units,
        leaving: false,
    }));
    ledger.take(Some(take("c", vec![Piece::untouched(3, 1)])));
    assert_eq!(ledger.choose(10, 9), [Piece::untouched(4, 2), Piece::untouched(8, 2)]);
}

#[test]
fn units_that_the_plan_dropped_are_taken_by_nobody() {
    let mut ledger = Ledger::default();
    ledger.take(Some(take("a", vec![Piece::untouched(0, 5)])));
    let back = vec![Piece::untouched(1, 4)];
    ledger.take(Some(Entry::Back {
        agent: "a".into(),
        nonce: String::new(),
        units: back,
        leaving: false,
    }));
    let units = vec![Piece::untouched(2, 2), Piece::untouched(7, 2)];
    ledger.take(Some(Entry::Drop { agent: "s".into(), nonce: String::new(), units }));
    let left = [(1, 1), (4, 1), (5, 2), (9, 1)].map(|(from, n)| Piece::untouched(from, n));
    assert_eq!((ledger.choose(10, 9), ledger.open(10)), (left.to_vec(), 5));
    ledger.take(Some(take("b", left.to_vec())));
    assert_eq!((ledger.open(10), ledger.fresh), (0, 10));
}

/// Whether the end of attempt 1 counts that stands there, of a trial begun when its agent had read `seq` entries.
fn counts(ledger: &Ledger, agent: &str, at: u64, trial: u64, seq: u64) -> bool {
    ledger.counts(Ending { agent, at, trial, attempt: 1, seq })
}

#[test]
fn the_word_of_a_fenced_agent_counts_up_to_the_fence() {
    let mut ledger = Ledger::default();
    ledger.take(Some(take("a", vec![Piece::untouched(0, 6)])));
    assert!(counts(&ledger, "a", 900, 0, 1));
    let units = vec![Piece::untouched(2, 4)];
    let (agent, nonce, by) = ("a".to_owned(), String::new(), "b".to_owned());
    ledger.take(Some(Entry::Expire { agent, nonce, by, size: 500, units, unbegun: vec![] }));
    assert!(counts(&ledger, "a", 500, 0, 1));
    assert!(!counts(&ledger, "a", 501, 0, 1));
    assert_eq!(ledger.open(6), 4);
}

/// A copy of trial 7 begins by `agent`, of a run that began when its agent had read `since` entries.
fn copy(agent: &str, of: &str, size: u64, since: u64) -> Option<Entry> {
    let (agent, of, nonce) = (agent.to_owned(), of.to_owned(), String::new());
    Some(Entry::Copy { agent, nonce, of, trial: 7, size, since })
}

fn won(agent: &str, begun: u64) -> Option<Entry> {
    let (agent, nonce) = (agent.to_owned(), String::new());
    Some(Entry::Won { agent, nonce, trial: 7, attempt: 1, begun })
}

#[test]
fn of_a_trial_that_runs_twice_one_end_counts() {
    let mut ledger = Ledger::default();
    ledger.take(copy("b", "a", 500, 0));
    // At most one copy.
    ledger.take(copy("b", "a", 900, 0));
    assert_eq!((ledger.contests[&7].len(), ledger.contests[&7][0].size), (1, 500));
    assert!(counts(&ledger, "a", 400, 7, 0), "it had ended before");
    let open = ledger.clone();
    assert!(!counts(&ledger, "a", 600, 7, 0), "nobody has won yet");
    assert!(!counts(&ledger, "b", 10, 7, 1), "nobody has won yet");
    ledger.take(won("b", 1));
    ledger.take(won("a", 0));
    assert!(counts(&ledger, "b", 10, 7, 1) && !counts(&ledger, "a", 600, 7, 0));
    let mut ledger = open;
    ledger.take(Some(Entry::Uncopy {
        agent: "b".into(),
        nonce: String::new(),
        trial: 7,
        unbegun: false,
    }));
    assert!(!counts(&ledger, "a", 600, 7, 0), "it has to say so");
    ledger.take(won("a", 0));
    assert!(counts(&ledger, "a", 600, 7, 0) && !counts(&ledger, "b", 10, 7, 1));
}

#[test]
fn a_trial_that_is_asked_for_again_has_nothing_to_do_with_who_won_before() {
    let mut ledger = Ledger::default();
    ledger.take(copy("b", "a", 500, 0));
    ledger.take(won("a", 0));
    // The loser may begin another attempt before it reads the entry. That attempt gets no copy either.
    assert!(!counts(&ledger, "b", 900, 7, 1) && !ledger.may_be_copied(7, 1));
    assert!(ledger.is_won_since(7, 0) && !ledger.is_won_since(7, 2));
    // A run that begins after its agent has read the entry was asked for by a user.
    assert!(counts(&ledger, "b", 990, 7, 2) && ledger.may_be_copied(7, 2));
    ledger.take(copy("a", "b", 950, 2));
    assert!(!counts(&ledger, "b", 990, 7, 2), "nobody has won yet");
    assert!(counts(&ledger, "a", 600, 7, 0) && !counts(&ledger, "b", 900, 7, 1));
    // A late entry about the first run does not affect the second.
    ledger.take(won("b", 1));
    assert!(ledger.is_undecided(7, 2));
    ledger.take(won("b", 2));
    assert!(counts(&ledger, "b", 990, 7, 2) && !counts(&ledger, "a", 700, 7, 3));
}

#[test]
fn its_length_is_known_without_reading_it() {
    let (_dir, tree) = tree();
    assert_eq!(length(&tree).unwrap(), 0);
    let mut ledger = Ledger::default();
    for n in 1..4 {
        append(&tree, &mut ledger, &take("a", vec![]), link).unwrap();
        assert_eq!(length(&tree).unwrap(), n);
    }
    ledger.seq = 1999;
    append(&tree, &mut ledger, &take("a", vec![]), link).unwrap();
    assert_eq!(length(&tree).unwrap(), 2000);
}

#[test]
fn an_entry_whose_numbers_cannot_be_true_is_damaged() {
    for (from, count, is_sound) in [(3, 9, true), (u64::MAX, 1, false), (1, u64::MAX, false)] {
        let (_dir, tree) = tree();
        append(&tree, &mut Ledger::default(), &take("a", Vec::new()), link).unwrap();
        let sealed =
            crate::sweep::tree::line::seal(&take("a", vec![Piece::untouched(from, count)]));
        std::fs::write(tree.dir().join(name(1)), sealed.unwrap()).unwrap();
        let read = Ledger::read(&tree).unwrap();
        assert_eq!((read.seq, read.damaged.is_empty()), (1, is_sound), "{from} {count}");
    }
}

#[test]
fn a_damaged_entry_means_nothing_to_anybody() {
    let (_dir, tree) = tree();
    let mut ledger = Ledger::default();
    append(&tree, &mut ledger, &take("a", vec![Piece::untouched(0, 1)]), link).unwrap();
    std::fs::write(tree.dir().join("claims/000/000002.json"), b"{\"event\":\"ta").unwrap();
    assert_eq!(ledger.follow(&tree).unwrap(), 1);
    assert!(append(&tree, &mut ledger, &take("a", vec![Piece::untouched(1, 1)]), link).unwrap());
    let read = Ledger::read(&tree).unwrap();
    assert_eq!((read.seq, read.fresh), (3, 2));
    assert_eq!(read, ledger);
}
