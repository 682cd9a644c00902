//! What becomes of each trial of a sweep when a plan is submitted, rehearsed, enqueued for agents or run on this machine. The
//! decision is pure: it reads no file and asks nobody. Each of [`RULES`] answers for a trial or passes it on, and the first
//! answer counts. Another rule is one function here, and one line in that list.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::plan::OnFailure;
use crate::sweep::tree::records::{Outcome, Record};

/// What becomes of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It runs, when the trials before it in its chain have ended.
    Run(Why),
    /// A job or agents have it: nothing is to be submitted.
    Wait,
    /// It does not run.
    Leave(Because),
}

/// Why a trial runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has not ended, and no job or agent has it.
    Unended,
    /// It ended without success, and a person or `[retry]` wants it again.
    Wanted,
}

/// Why a trial does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Because {
    /// The plan does not have it any more.
    Dropped,
    /// It is done.
    Done,
    /// A person has cancelled its job.
    Cancelled,
    /// It ended without success, and no one has asked to run it again.
    Failed,
    /// This trial before it in its chain ended so.
    Behind(u64),
    /// Only others were asked for.
    NotAsked,
}

/// Which trials a submission is about.
#[derive(Debug, Default, Clone)]
pub(crate) struct Wish {
    /// Those that run again if they ended without success.
    pub(crate) again: Wanted,
    /// The trials but for which nothing is submitted; `None`: everything that is left is.
    pub(crate) alone: Option<Arc<BTreeSet<u64>>>,
}

/// Trials that run again if they ended without success.
#[derive(Debug, Default, Clone)]
pub(crate) enum Wanted {
    #[default]
    None,
    All,
    These(Arc<BTreeSet<u64>>),
}

impl Wish {
    /// Whether a trial runs again if it ended without success.
    pub(crate) fn wants(&self, trial: u64) -> bool {
        match &self.again {
            Wanted::None => false,
            Wanted::All => true,
            Wanted::These(trials) => trials.contains(&trial),
        }
    }

    /// Whether a trial that has not ended well may be submitted, begun or not.
    pub(crate) fn admits(&self, trial: u64) -> bool {
        self.alone.as_ref().is_none_or(|alone| alone.contains(&trial))
    }
}

/// A trial about which is decided, and its place in the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) trial: u64,
    /// The trial before it in its chain.
    pub(crate) after: Option<u64>,
    /// Whether the plan has it.
    pub(crate) is_planned: bool,
}

/// What is asked, and what is known of the sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) wish: &'a Wish,
    pub(crate) records: &'a HashMap<u64, Record>,
    /// Trials that a scheduler or agents have, or had last and nobody wants again.
    pub(crate) in_hand: &'a HashSet<u64>,
    /// Trials whose jobs a person has cancelled.
    pub(crate) cancelled: &'a HashSet<u64>,
    /// Trials that an earlier submission wanted to run, and no scheduler took.
    pub(crate) due: &'a HashSet<u64>,
    /// Trials that were submitted again since they ended, so that their chains have not stopped.
    pub(crate) coming: &'a HashSet<u64>,
    /// What a failure means for the rest of its chain.
    pub(crate) on_failure: OnFailure,
}

impl Question<'_> {
    fn outcome(&self, trial: u64) -> Option<Outcome> {
        self.records.get(&trial).and_then(Record::outcome)
    }

    /// Whether a trial ended without success and stays so.
    fn has_failed(&self, trial: u64) -> bool {
        // Agents run some again that have failed: their records say so.
        let has_failed = self.records.get(&trial).is_some_and(Record::has_failed);
        let runs_again =
            || self.wish.wants(trial) || self.due.contains(&trial) || self.coming.contains(&trial);
        has_failed && !runs_again()
    }
}

/// Decides about one trial after the other, in the order of the sweep: those of a chain in theirs.
pub(crate) struct Decider<'a> {
    question: Question<'a>,
    /// The trials at which, or before which, their chain has stopped, and the one that stopped it.
    stopped: HashMap<u64, u64>,
    rules: &'a [Rule],
}

/// A rule: an answer for a trial, or none.
type Rule = fn(Candidate, &Decider<'_>) -> Option<Next>;

/// All rules, in their order.
const RULES: &[Rule] = &[dropped, done, cancelled, failed, in_hand, behind, not_asked];

impl<'a> Decider<'a> {
    /// Begins with the first trial of a sweep.
    pub(crate) fn new(question: Question<'a>) -> Self {
        Self { question, stopped: HashMap::new(), rules: RULES }
    }

    /// What becomes of the next trial.
    pub(crate) fn next(&mut self, candidate: Candidate) -> Next {
        if let Some(by) = self.stopper(candidate) {
            self.stopped.insert(candidate.trial, by);
        }
        let answer = self.rules.iter().find_map(|rule| rule(candidate, self));
        answer.unwrap_or(Next::Run(match self.question.outcome(candidate.trial) {
            Some(_) => Why::Wanted,
            None => Why::Unended,
        }))
    }

    /// The trial that stops a chain at or before this place of it.
    fn stopper(&self, candidate: Candidate) -> Option<u64> {
        if self.question.on_failure == OnFailure::Continue {
            return None;
        }
        let is_planned = candidate.is_planned;
        if is_planned && self.question.has_failed(candidate.trial) {
            return Some(candidate.trial);
        }
        // One that the plan does not have stops no chain, and starts none again.
        let goes_on = is_planned && self.question.outcome(candidate.trial).is_some();
        candidate.after.filter(|_| !goes_on).and_then(|before| self.stopped.get(&before).copied())
    }
}

fn dropped(candidate: Candidate, _: &Decider<'_>) -> Option<Next> {
    (!candidate.is_planned).then_some(Next::Leave(Because::Dropped))
}

fn done(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    let is_done = known.question.outcome(candidate.trial) == Some(Outcome::Done);
    is_done.then_some(Next::Leave(Because::Done))
}

fn cancelled(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    let Question { cancelled, wish, due, .. } = known.question;
    let runs_again = || wish.wants(candidate.trial) || due.contains(&candidate.trial);
    let is_cancelled = cancelled.contains(&candidate.trial) && !runs_again();
    is_cancelled.then_some(Next::Leave(Because::Cancelled))
}

fn in_hand(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    known.question.in_hand.contains(&candidate.trial).then_some(Next::Wait)
}

fn failed(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    known.question.has_failed(candidate.trial).then_some(Next::Leave(Because::Failed))
}

fn behind(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    let by = known.stopped.get(&candidate.trial)?;
    Some(Next::Leave(Because::Behind(*by)))
}

fn not_asked(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
    let Question { wish, due, .. } = known.question;
    let is_asked = wish.admits(candidate.trial) || due.contains(&candidate.trial);
    (!is_asked).then_some(Next::Leave(Because::NotAsked))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sweep::tree::records::{Attempt, Start};

    /// What is known of a sweep, and asked.
    #[derive(Debug, Default)]
    struct World {
        records: HashMap<u64, Record>,
        wish: Wish,
        in_hand: HashSet<u64>,
        cancelled: HashSet<u64>,
        due: HashSet<u64>,
        coming: HashSet<u64>,
        goes_on: bool,
    }

    impl World {
        /// One whose first trials ended so; `None`: with an attempt that has not ended.
        fn of(outcomes: &[Option<Outcome>]) -> Self {
            let ended = |outcome: &Option<Outcome>| {
                let end = outcome.map(|state| {
                    serde_json::from_value(serde_json::json!({
                        "trial": 0, "attempt": 1, "time": 1.0, "state": state, "duration_s": 1.0,
                    }))
                    .unwrap()
                });
                let attempt = Attempt { end, ..Attempt::begun(Start::default(), 1, None) };
                Record { attempts: vec![attempt], ..Record::default() }
            };
            Self { records: (0..).zip(outcomes.iter().map(ended)).collect(), ..Self::default() }
        }

        fn wanting(trials: &[u64], outcomes: &[Option<Outcome>]) -> Self {
            let again = Wanted::These(Arc::new(trials.iter().copied().collect()));
            Self { wish: Wish { again, alone: None }, ..Self::of(outcomes) }
        }

        fn decider(&self) -> Decider<'_> {
            let Self { records, wish, in_hand, cancelled, due, coming, goes_on } = self;
            let on_failure = if *goes_on { OnFailure::Continue } else { OnFailure::Stop };
            let own = Question { wish, records, in_hand, cancelled, due, coming, on_failure };
            Decider::new(own)
        }

        /// What becomes of a chain of so many trials, all of which the plan has but for these.
        fn chain(&self, trials: u64, dropped: &[u64]) -> Vec<Next> {
            let mut decider = self.decider();
            let place = |trial: u64| Candidate {
                trial,
                after: trial.checked_sub(1),
                is_planned: !dropped.contains(&trial),
            };
            (0..trials).map(|trial| decider.next(place(trial))).collect()
        }
    }

    const DONE: Option<Outcome> = Some(Outcome::Done);
    const FAILED: Option<Outcome> = Some(Outcome::Failed);
    const UNENDED: Next = Next::Run(Why::Unended);
    const WANTED: Next = Next::Run(Why::Wanted);
    const IS_DONE: Next = Next::Leave(Because::Done);
    const HAS_FAILED: Next = Next::Leave(Because::Failed);
    const DROPPED: Next = Next::Leave(Because::Dropped);

    fn behind(trial: u64) -> Next {
        Next::Leave(Because::Behind(trial))
    }

    #[test]
    fn a_failure_stops_its_chain_until_somebody_wants_it_again() {
        let ended = [DONE, FAILED];
        assert_eq!(World::of(&ended).chain(4, &[]), [IS_DONE, HAS_FAILED, behind(1), behind(1)]);
        assert_eq!(World::wanting(&[1], &ended).chain(4, &[]), [IS_DONE, WANTED, UNENDED, UNENDED]);
        let goes_on = World { goes_on: true, ..World::of(&ended) };
        assert_eq!(goes_on.chain(3, &[]), [IS_DONE, HAS_FAILED, UNENDED]);
        // What ran behind it in spite of that goes on.
        assert_eq!(World::of(&[FAILED, DONE]).chain(3, &[]), [HAS_FAILED, IS_DONE, UNENDED]);
        // A trial that the plan has no longer neither stops a chain nor starts one again.
        assert_eq!(World::of(&[FAILED]).chain(3, &[0]), [DROPPED, UNENDED, UNENDED]);
        assert_eq!(World::of(&[FAILED]).chain(3, &[1]), [HAS_FAILED, DROPPED, behind(0)]);
    }

    #[test]
    fn what_others_have_is_waited_for_and_stops_nothing() {
        let taken =
            World { in_hand: [0, 1].into(), coming: [0].into(), ..World::of(&[FAILED, None]) };
        assert_eq!(taken.chain(3, &[]), [Next::Wait, Next::Wait, UNENDED]);
        // The trial of a cancelled job runs only on request.
        let cancelled = World { in_hand: [0].into(), cancelled: [0].into(), ..World::of(&[]) };
        assert_eq!(cancelled.chain(1, &[]), [Next::Leave(Because::Cancelled)]);
        let due = World { cancelled: [0].into(), due: [0].into(), ..World::of(&[FAILED]) };
        assert_eq!(due.chain(1, &[]), [WANTED]);
    }

    #[test]
    fn with_a_set_nothing_else_runs() {
        let mut world = World::wanting(&[1], &[DONE, FAILED]);
        world.wish.alone = Some(Arc::new([1].into()));
        let not_asked = Next::Leave(Because::NotAsked);
        assert_eq!(world.chain(3, &[]), [IS_DONE, WANTED, not_asked]);
        world.due.insert(2);
        assert_eq!(world.chain(3, &[]), [IS_DONE, WANTED, UNENDED]);
    }

    /// A rule that is not among [`RULES`]: no other trial runs before the first one is done.
    fn canary(candidate: Candidate, known: &Decider<'_>) -> Option<Next> {
        (candidate.trial > 0 && known.question.outcome(0) != DONE).then_some(Next::Wait)
    }

    #[test]
    fn another_rule_is_one_function_and_one_line() {
        let rules = [RULES, &[canary]].concat();
        let decide = |world: World| {
            let mut decider = Decider { rules: &rules, ..world.decider() };
            let place = |trial| Candidate { trial, after: None, is_planned: true };
            (0..3).map(|trial| decider.next(place(trial))).collect::<Vec<_>>()
        };
        assert_eq!(decide(World::of(&[])), [UNENDED, Next::Wait, Next::Wait]);
        assert_eq!(decide(World::of(&[FAILED])), [HAS_FAILED, Next::Wait, Next::Wait]);
        assert_eq!(decide(World::of(&[DONE])), [IS_DONE, UNENDED, UNENDED]);
    }

    /// Sets of the trials 0 to 9.
    fn some() -> impl Strategy<Value = HashSet<u64>> {
        prop::collection::hash_set(0_u64..10, 0..4)
    }

    fn worlds() -> impl Strategy<Value = World> {
        let outcome = prop::sample::select(vec![DONE, FAILED, Some(Outcome::Timeout), None]);
        let outcomes = prop::collection::vec(outcome, 0..8);
        let sets = (some(), some(), some(), some(), some());
        let alone = prop::option::of(some());
        (outcomes, sets, alone, any::<bool>()).prop_map(|(outcomes, sets, alone, goes_on)| {
            let (again, in_hand, cancelled, due, coming) = sets;
            let again = Wanted::These(Arc::new(again.into_iter().collect()));
            let alone = alone.map(|alone| Arc::new(alone.into_iter().collect()));
            let wish = Wish { again, alone };
            let of = World::of(&outcomes);
            World { wish, in_hand, cancelled, due, coming, goes_on, ..of }
        })
    }

    proptest! {
        /// What must never happen, whatever others have done: each line is a law of docs/plan.md.
        #[test]
        fn nothing_runs_twice_unasked_or_behind_a_failure(world in worlds(), dropped in some()) {
            let dropped: Vec<u64> = dropped.into_iter().collect();
            let nexts = world.chain(10, &dropped);
            let outcome = |trial: u64| world.records.get(&trial).and_then(Record::outcome);
            for (trial, next) in (0..).zip(&nexts) {
                let is_wanted = world.wish.wants(trial) || world.due.contains(&trial);
                let runs = matches!(next, Next::Run(_));
                prop_assert!(!(runs && outcome(trial) == DONE));
                prop_assert!(!(runs && world.in_hand.contains(&trial)));
                prop_assert!(!(runs && dropped.contains(&trial)));
                prop_assert!(!(runs && world.cancelled.contains(&trial) && !is_wanted));
                prop_assert!(!(runs && !world.wish.admits(trial) && !is_wanted));
                let is_asked = is_wanted || world.coming.contains(&trial);
                prop_assert!(!(runs && outcome(trial).is_some() && !is_asked));
                if let Next::Leave(Because::Behind(by)) = *next {
                    prop_assert!(by < trial && !world.goes_on);
                    prop_assert!(nexts[by as usize] != WANTED && outcome(by) != DONE);
                    let between = (by + 1..trial).filter(|own| !dropped.contains(own));
                    prop_assert!(between.map(outcome).all(|own| own.is_none()));
                }
            }
        }
    }
}
