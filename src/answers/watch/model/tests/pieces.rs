//! The model fed in pieces, beside a slow and simple reading of the same lines.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::sweep::tree::ledger::{self, Gone};

/// A step of a sweep: an entry of the ledger, or a line of an agent's bundle.
#[derive(Debug, Clone)]
enum Step {
    Entry(Entry),
    Line(usize, Event),
}

const AGENTS: [&str; 3] = ["a", "b", "c"];
const TRIALS: u64 = 5;

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Done), Just(Outcome::Failed), Just(Outcome::Timeout)]
}

fn step() -> impl Strategy<Value = Step> {
    let agent = || 0..AGENTS.len();
    let time = || (0..90u32).prop_map(|t| 905.0 + f64::from(t));
    let name = |agent: usize| AGENTS[agent].to_owned();
    let nonce = String::new;
    prop_oneof![
        8 => (agent(), 0..TRIALS, 1..3u32, time(), 0..20u64).prop_map(|(a, trial, attempt, time, seq)| {
            Step::Line(a, begun(trial, attempt, time, seq))
        }),
        8 => (agent(), 0..TRIALS, 1..3u32, time(), outcome(), any::<bool>())
            .prop_map(|(a, trial, n, time, state, last)| Step::Line(a, end(trial, n, time, state, last))),
        1 => (agent(), 0..TRIALS, time(), 0..20u64).prop_map(|(a, trial, time, seq)| {
            Step::Line(a, Event::Skip { trial, time, job: None, seq, reason: String::new() })
        }),
        1 => (agent(), 0..2000u64).prop_map(|(a, size)| Step::Entry(expire(AGENTS[a], size))),
        1 => agent().prop_map(move |a| Step::Entry(Entry::Leave {
            agent: name(a), nonce: nonce(), reason: String::new(), size: 0,
        })),
        2 => (agent(), agent(), 0..TRIALS, 0..1000u64, 0..20u64).prop_map(
            move |(a, of, trial, size, since)| {
                let (agent, of) = (name(a), name(of));
                Step::Entry(Entry::Copy { agent, nonce: nonce(), of, trial, size, since })
            }
        ),
        2 => (agent(), 0..TRIALS, 1..3u32, 0..20u64).prop_map(move |(a, trial, attempt, begun)| {
            Step::Entry(Entry::Won { agent: name(a), nonce: nonce(), trial, attempt, begun })
        }),
    ]
}

/// The state of each trial by going through everything for each of them.
fn slowly(ledger: &Ledger, bundles: &[Vec<Placed>]) -> Vec<State> {
    let state_of = |trial: u64| {
        let mut ends: Vec<(u64, usize, u64, State)> = Vec::new();
        let mut runs = false;
        for (a, lines) in bundles.iter().enumerate() {
            let mut open: Option<(u32, u64)> = None;
            for (at, line) in lines {
                match line {
                    Event::Start(Start { trial: t, attempt, seq, .. }) if *t == trial => {
                        open = Some((*attempt, *seq));
                    }
                    Event::Skip { trial: t, seq, .. }
                        if *t == trial && !ledger.is_fenced(AGENTS[a], *at) =>
                    {
                        ends.push((*seq, a, *at, State::Skipped));
                    }
                    Event::End(end) if end.trial == trial => {
                        let own = open.filter(|(attempt, _)| *attempt == end.attempt);
                        open = open.filter(|_| own.is_none());
                        let seq = own.map_or(0, |(_, seq)| seq);
                        let (agent, at, attempt) = (AGENTS[a], *at, end.attempt);
                        if end.last
                            && ledger.counts(ledger::Ending { agent, at, trial, attempt, seq })
                        {
                            let state = match end.state {
                                Outcome::Done => State::Done,
                                Outcome::Timeout => State::Timeout,
                                _ => State::Failed,
                            };
                            ends.push((seq, a, at, state));
                        }
                    }
                    _ => {}
                }
            }
            runs |= open.is_some() && ledger.agents[AGENTS[a]].gone.is_none();
        }
        if ends.iter().any(|(.., state)| *state == State::Done) {
            return State::Done;
        }
        if runs {
            return State::Running;
        }
        ends.sort_by_key(|(seq, a, at, _)| (*seq, *a, *at));
        ends.pop().map_or(State::Queued, |(.., state)| state)
    };
    (0..TRIALS).map(state_of).collect()
}

proptest! {
    #[test]
    fn neither_pieces_nor_their_order_change_a_frame(
        steps in proptest::collection::vec(step(), 0..60),
        pieces in proptest::collection::vec((0..AGENTS.len() + 1, 1..5usize), 0..40),
    ) {
        let mut entries: Vec<Entry> = AGENTS.iter().map(|agent| join(agent, 2)).collect();
        let mut lines: Vec<Vec<Event>> = AGENTS.iter().map(|agent| vec![who(agent)]).collect();
        for step in steps {
            match step {
                Step::Entry(entry) => entries.push(entry),
                Step::Line(agent, line) => lines[agent].push(line),
            }
        }
        let bundles: Vec<Vec<Placed>> = lines.into_iter().map(placed).collect();
        let mut ledger = Ledger::default();
        entries.iter().for_each(|entry| ledger.take(Some(entry.clone())));

        let mut whole = Model::new("s");
        whole.has_trials(TRIALS);
        whole.ledger = ledger.clone();
        for (agent, lines) in AGENTS.iter().zip(&bundles) {
            whole.feed(agent, lines.clone());
        }
        let frame = whole.frame(NOW);
        prop_assert_eq!(frame.counts.values().sum::<u64>(), TRIALS);
        let mut expected: HashMap<State, u64> = HashMap::new();
        for state in slowly(&ledger, &bundles) {
            *expected.entry(state).or_default() += 1;
        }
        prop_assert_eq!(frame.counts.clone().into_iter().collect::<HashMap<_, _>>(), expected);
        let bad: BTreeSet<u64> = frame.failures.iter().map(|failure| failure.trial).collect();
        prop_assert_eq!(bad.len() as u64, frame.bad() - frame.count(&State::Skipped));

        // A piece of a bundle or of the ledger at a time, and a frame after each.
        let mut parts = Model::new("s");
        parts.has_trials(TRIALS);
        let mut rest: Vec<Vec<Placed>> = bundles.clone();
        let mut to_hear: Vec<Entry> = entries.clone();
        let all = (0..=AGENTS.len()).map(|i| (i, usize::MAX));
        for (i, n) in pieces.into_iter().chain(all) {
            if i < AGENTS.len() {
                let n = n.min(rest[i].len());
                parts.feed(AGENTS[i], rest[i].drain(..n).collect());
            } else {
                let n = n.min(to_hear.len());
                to_hear.drain(..n).for_each(|entry| parts.ledger.take(Some(entry)));
            }
            let seen = parts.frame(NOW);
            prop_assert_eq!(seen.counts.values().sum::<u64>(), seen.total);
        }
        prop_assert_eq!(parts.frame(NOW), frame);
    }

    #[test]
    fn a_fence_hides_what_is_behind_it_and_nothing_else(
        ends in proptest::collection::vec((0..20u64, outcome()), 0..40),
        fence in 0..4500u64,
    ) {
        let lines = ends.iter().map(|(trial, state)| end(*trial, 1, 950.0, *state, true));
        let lines: Vec<Placed> = placed(lines.collect());
        let before: Vec<Placed> = lines.iter().filter(|(at, _)| *at <= fence).cloned().collect();
        let frame = |lines: Vec<Placed>| {
            let mut model = Model::new("s");
            model.has_trials(20);
            model.ledger.take(Some(join("a", 1)));
            model.feed("a", lines);
            model.ledger.take(Some(expire("a", fence)));
            assert!(matches!(model.ledger.agents["a"].gone, Some(Gone::Fenced(_))));
            model.frame(NOW)
        };
        prop_assert_eq!(frame(lines), frame(before));
    }
}
