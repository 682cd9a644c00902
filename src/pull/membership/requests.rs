//! The requests of trials in the newest deck, if they differ from the tables.

use crate::idset::IdSet;
use crate::plan::Resources;
use crate::tree::deck::Deck;

/// Requests by trial: as many as there are trials, where a plan has an axis of them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    list: Vec<Resources>,
    /// First and last trial of a run, and the place of its request; sorted, disjoint.
    runs: Vec<(u32, u32, usize)>,
}

impl Requests {
    pub(super) fn of(decks: &[Deck]) -> Self {
        let all = decks.last().map(|deck| deck.requests.as_slice()).unwrap_or_default();
        let mut requests = Self::default();
        for (text, request) in all {
            let Ok(trials) = IdSet::of_numbers(text) else { continue };
            let place = requests.list.len();
            let runs = trials.runs().iter().map(|(first, last)| (*first, *last, place));
            requests.runs.extend(runs);
            requests.list.push(request.clone());
        }
        requests.runs.sort_unstable();
        requests
    }

    pub(super) fn get(&self, trial: u64) -> Option<&Resources> {
        let trial = u32::try_from(trial).ok()?;
        let after = self.runs.partition_point(|(first, ..)| *first <= trial);
        let (_, last, place) = *self.runs[..after].last()?;
        (trial <= last).then(|| &self.list[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pull;
    use crate::tree::deck::{self, Terms};

    #[test]
    fn each_trial_has_its_request_however_many_there_are_and_whatever_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let tree = crate::tree::Tree::at(dir.path());
        let asks = |walltime: u64| Resources { walltime_s: Some(walltime), ..Resources::default() };
        let requests = [("0-8:2", 1), ("1-9:2,4000001", 2), ("20,9000000-9000009", 3)];
        let requests = requests.map(|(trials, walltime)| (trials.to_owned(), asks(walltime)));
        let pull = Pull::default();
        let terms = Terms { requests: &requests, ..Terms::new(&pull) };
        let deck = deck::write(&tree, &[], &[vec![0]], terms).unwrap();
        let requests = Requests::of(&[deck]);
        for (trial, walltime) in [
            (0, Some(1)),
            (7, Some(2)),
            (8, Some(1)),
            (10, None),
            (20, Some(3)),
            (4_000_001, Some(2)),
            (8_999_999, None),
            (9_000_009, Some(3)),
            (9_000_010, None),
            (1 << 40, None),
        ] {
            let found = requests.get(trial).map(|request| request.walltime_s.unwrap());
            assert_eq!(found, walltime, "trial {trial}");
        }
        assert!(Requests::of(&[]).get(0).is_none());
    }
}
