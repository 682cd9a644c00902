//! What the newest deck assigns to sets of trials: requests that differ from the tables, and how memory is learnt.

use crate::base::idset::IdSet;

/// Values by trial: as many as there are trials, where a plan has an axis of them.
#[derive(Debug)]
pub(super) struct Assigned<T> {
    list: Vec<T>,
    /// First and last trial of a run, and the place of its value; sorted, disjoint.
    runs: Vec<(u32, u32, usize)>,
}

impl<T: Clone> Assigned<T> {
    /// The values of sets (`0-9,14`), which are disjoint.
    pub(super) fn of(all: &[(String, T)]) -> Self {
        let (mut list, mut runs) = (Vec::new(), Vec::new());
        for (text, value) in all {
            let Ok(trials) = IdSet::of_numbers(text) else { continue };
            let place = list.len();
            runs.extend(trials.runs().iter().map(|(first, last)| (*first, *last, place)));
            list.push(value.clone());
        }
        runs.sort_unstable();
        Self { list, runs }
    }

    pub(super) fn get(&self, trial: u64) -> Option<&T> {
        let trial = u32::try_from(trial).ok()?;
        let after = self.runs.partition_point(|(first, ..)| *first <= trial);
        let (_, last, place) = *self.runs[..after].last()?;
        (trial <= last).then(|| &self.list[place])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trial_has_its_value_however_many_there_are_and_whatever_its_number() {
        let all = [("0-8:2", 1), ("1-9:2,4000001", 2), ("20,9000000-9000009", 3)];
        let assigned = Assigned::of(&all.map(|(trials, value)| (trials.to_owned(), value)));
        for (trial, value) in [
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
            assert_eq!(assigned.get(trial).copied(), value, "trial {trial}");
        }
        assert!(Assigned::<u8>::of(&[]).get(0).is_none());
    }
}
