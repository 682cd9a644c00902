//! Which element of which array runs a trial.

use std::collections::{HashMap, HashSet};

use crate::sweep::tree::waves::Wave;

/// The places of the trials of a sweep in its arrays; the latest, where several have one.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the order of trials: of each its array and its index there.
    places: Vec<(u64, (u32, u64))>,
    /// Trials that share an element with others of their chain.
    fused: HashSet<u64>,
    /// The trial that the same element runs before one.
    ahead: HashMap<u64, u64>,
}

impl Places {
    pub(super) fn new(waves: &[(Wave, Vec<u64>)]) -> Self {
        let mut all = Self::default();
        for (array, map) in
            waves.iter().flat_map(|(wave, map)| wave.arrays.iter().map(move |a| (a, map)))
        {
            for (index, _, trial) in array.places(map) {
                all.places.push((trial, (array.array, index)));
                if array.links > 1 {
                    all.fused.insert(trial);
                } else {
                    all.fused.remove(&trial);
                }
                all.ahead.remove(&trial);
            }
            let trials = array.trials(map);
            let later = trials.iter().skip(array.count as usize);
            all.ahead.extend(later.zip(trials).map(|(later, earlier)| (*later, *earlier)));
        }
        // Of several places of a trial the last one stays.
        all.places.reverse();
        all.places.sort_by_key(|(trial, _)| *trial);
        all.places.dedup_by_key(|(trial, _)| *trial);
        all
    }

    /// The array and the index of a trial.
    pub(super) fn of(&self, trial: u64) -> Option<(u32, u64)> {
        // Most sweeps have given all of their trials to arrays, in order.
        let guess = usize::try_from(trial).ok().and_then(|at| self.places.get(at));
        let found = guess.filter(|(id, _)| *id == trial).or_else(|| {
            let at = self.places.binary_search_by_key(&trial, |(id, _)| *id).ok()?;
            Some(&self.places[at])
        });
        found.map(|(_, place)| *place)
    }

    /// Whether a trial shares its element with others.
    pub(super) fn is_fused(&self, trial: u64) -> bool {
        self.fused.contains(&trial)
    }

    /// The trial that the same element runs before it.
    pub(super) fn ahead(&self, trial: u64) -> Option<u64> {
        self.ahead.get(&trial).copied()
    }
}
