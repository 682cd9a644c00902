//! What `[retry]` has decided about one trial, as the journal has it.

use super::records::{Decided, Record};

/// The decisions about one trial, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rulings {
    all: Vec<Ruling>,
    /// The reason, where the last decision is that it does not run again.
    why: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Ruling {
    /// Unix seconds.
    time: f64,
    /// Whether the trial runs again.
    again: bool,
    /// Whether that counts towards `[retry] max`.
    counts: bool,
}

impl Rulings {
    /// Adds a decision: whether the trial runs again, whether that counts, and the reason.
    pub(crate) fn add(&mut self, time: f64, (again, counts): (bool, bool), why: &str) {
        self.all.push(Ruling { time, again, counts });
        self.why = (!again).then(|| why.to_owned());
    }

    /// Why it does not run again, where that was decided last.
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// As [`Rulings::why`], unless the trial has begun once more since: a person has run it again.
    pub(crate) fn left(&self, record: Option<&Record>) -> Option<&str> {
        let last = self.all.last()?.time;
        let has_begun = record.is_some_and(|record| record.has_begun_within(last, f64::INFINITY));
        self.why().filter(|_| !has_begun)
    }

    /// The decision, unix seconds, after which a person ran the trial again, the last time: its repeats are counted anew since.
    /// Those of agents, which are in its record, are decisions, too. 0 if there is none.
    pub(crate) fn since(&self, record: Option<&Record>) -> f64 {
        let Some(record) = record else { return 0.0 };
        let by_agent =
            |own: &Decided| Ruling { time: own.time, again: own.again, counts: own.counts };
        let mut all = self.all.clone();
        all.extend(record.decisions.iter().map(by_agent));
        all.sort_by(|a, b| a.time.total_cmp(&b.time));
        let is_by_hand = |(at, left): &(usize, &Ruling)| {
            let next = all.get(at + 1).map_or(f64::INFINITY, |next| next.time);
            !left.again && record.has_begun_within(left.time, next)
        };
        all.iter().enumerate().rfind(is_by_hand).map_or(0.0, |(_, left)| left.time)
    }

    /// When it was decided since then that it runs again, unix seconds, as far as that counts.
    pub(crate) fn repeats(&self, since: f64) -> impl Iterator<Item = f64> {
        let counting = self.all.iter().filter(move |own| own.again && own.counts);
        counting.map(|own| own.time).filter(move |time| *time > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tree::records::{Attempt, Start};

    fn begun(times: &[f64]) -> Record {
        let start = |time: &f64| Start { time: *time, ..Start::default() };
        let attempts = times.iter().map(|time| Attempt::begun(start(time), 1, None)).collect();
        Record { attempts, ..Record::default() }
    }

    fn decided(all: &[(f64, bool)]) -> Rulings {
        let mut rulings = Rulings::default();
        for (time, again) in all.iter().copied() {
            rulings.add(time, (again, again), "why");
        }
        rulings
    }

    fn repeats(rulings: &Rulings, begun_at: &[f64]) -> Vec<f64> {
        rulings.repeats(rulings.since(Some(&begun(begun_at)))).collect()
    }

    #[test]
    fn what_a_person_runs_again_is_counted_anew() {
        let rulings = decided(&[(2.0, true), (4.0, false)]);
        assert_eq!(repeats(&rulings, &[1.0, 3.0]), [2.0]);
        assert_eq!(rulings.left(Some(&begun(&[1.0, 3.0]))), Some("why"));
        assert!(repeats(&rulings, &[1.0, 3.0, 5.0]).is_empty());
        assert_eq!(rulings.left(Some(&begun(&[1.0, 3.0, 5.0]))), None);
        // Its repeats count until a person runs it again once more.
        let rulings = decided(&[(2.0, true), (4.0, false), (6.0, true), (8.0, false)]);
        assert_eq!(repeats(&rulings, &[1.0, 3.0, 5.0, 7.0]), [6.0]);
    }

    #[test]
    fn a_decision_that_another_replaces_counts_nothing_anew() {
        // A person has raised `max`.
        let rulings = decided(&[(2.0, true), (4.0, false), (5.0, true)]);
        assert_eq!(repeats(&rulings, &[1.0, 3.0, 6.0]), [2.0, 5.0]);
        assert_eq!(rulings.left(None), None);
    }
}
