//! The part of a sweep that has a place in the queue now.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use crate::cluster::graph::Mapping;
use crate::submit::arrays::mapping::Rules;
use crate::submit::arrays::wave::{self, Before};
use crate::submit::grow::Todo;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::Record;

/// The places that a feeder needs at a time: its own, one for an element, and one for the next feeder.
pub(crate) const FEEDER_PLACES: u64 = 3;

/// Trials that have a place in the queue now.
pub(crate) struct Portion {
    /// These, in the order of the sweep.
    pub(crate) todo: Vec<Todo>,
    /// Those that have none.
    pub(crate) left: Vec<Todo>,
    /// Elements of all of them.
    pub(crate) elements: u64,
    /// How they become arrays: so that about half of them end together.
    pub(crate) rules: Rules,
}

/// What a portion is chosen by.
pub(crate) struct Choice<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) target: &'a str,
    pub(crate) rules: Rules,
    pub(crate) before: &'a Before<'a>,
    pub(crate) records: &'a HashMap<u64, Record>,
}

impl Choice<'_> {
    /// All trials where nothing limits the queue, otherwise as [`Choice::portion`].
    ///
    /// # Errors
    /// As [`wave::plan`].
    pub(crate) fn within(
        self,
        free: Option<u64>,
        todo: Vec<Todo>,
        feeder: (bool, bool),
    ) -> Result<Portion> {
        match free {
            None => Ok(self.all(todo)),
            Some(free) => self.portion(todo, free, feeder),
        }
    }

    /// The portion with all trials, where no limit of the queue is in the way.
    fn all(self, todo: Vec<Todo>) -> Portion {
        Portion { todo, left: Vec::new(), elements: 0, rules: self.rules }
    }

    /// As many trials as have a place if so many are `free`, one of which a feeder takes unless there `is_fed` one already; with
    /// `always` it does so even where all trials have a place. Of each
    /// chain the first trials come first, and chains that wait for nothing come before others, so that as many as possible run
    /// at once. Of these, trials that ran before and chains that have begun come first. A job that runs a whole chain is not
    /// divided.
    ///
    /// # Errors
    /// As [`wave::plan`].
    fn portion(
        self,
        todo: Vec<Todo>,
        free: u64,
        (is_fed, always): (bool, bool),
    ) -> Result<Portion> {
        let (elements, mapping) = self.elements(&todo, &self.rules)?;
        if elements + u64::from(always && !is_fed) <= free {
            return Ok(Portion { elements, ..self.all(todo) });
        }
        let places = free - u64::from(!is_fed);
        let waits = self.before.waits(self.tree, &todo)?;
        let mut depths: HashMap<u64, usize> = HashMap::new();
        let mut order: Vec<(usize, bool, bool, usize)> = Vec::with_capacity(todo.len());
        for (i, t) in todo.iter().enumerate() {
            let depth = depths.entry(t.chain).or_default();
            let was_run = self.records.get(&t.id).is_some_and(|record| record.begun() > 0);
            let has_begun = was_run || (*depth == 0 && t.after.is_some());
            order.push((*depth, waits.contains_key(&t.chain), !has_begun, i));
            *depth += 1;
        }
        let is_whole = mapping == Mapping::Fused;
        // Where chains are not divided: the chain of each place in the order.
        let chains: Vec<u64> = todo.iter().map(|t| t.chain).collect();
        match is_whole {
            true => order.sort_by_key(|(_, waits, new, i)| (*waits, *new, chains[*i], *i)),
            false => order.sort_unstable(),
        }
        let rules = Rules {
            elements: self.rules.elements.min(places.div_ceil(2).max(1)),
            ..self.rules.clone()
        };
        let first = |n: usize| -> Vec<Todo> {
            let mut n = n;
            while is_whole
                && n < order.len()
                && n > 0
                && chains[order[n].3] == chains[order[n - 1].3]
            {
                n += 1;
            }
            let chosen: HashSet<usize> = order[..n].iter().map(|(.., i)| *i).collect();
            let kept = todo.iter().enumerate().filter(|(i, _)| chosen.contains(i));
            kept.map(|(_, t)| t.clone()).collect()
        };
        // The most trials whose elements have a place: no element has fewer than one trial.
        let pack = u64::from(self.rules.pack.unwrap_or(1));
        let longest = depths.values().max().copied().unwrap_or(1) as u64;
        let per_element = if is_whole { pack.saturating_mul(longest) } else { pack };
        let (mut fits, mut beyond) =
            (0, todo.len().min(places.saturating_mul(per_element) as usize) + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            match self.elements(&first(middle), &rules)?.0 <= places {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        let some = first(fits);
        let chosen: HashSet<u64> = some.iter().map(|t| t.id).collect();
        let left = todo.into_iter().filter(|t| !chosen.contains(&t.id)).collect();
        Ok(Portion { todo: some, left, elements, rules })
    }

    /// How many elements these trials become, and how chains become jobs.
    ///
    /// # Errors
    /// As [`wave::plan`].
    pub(crate) fn elements(&self, todo: &[Todo], rules: &Rules) -> Result<(u64, Mapping)> {
        if todo.is_empty() {
            return Ok((0, Mapping::Elementwise));
        }
        let (wave, _, mapped) =
            wave::plan(self.tree, self.target, todo, rules, self.before, self.records)?;
        Ok((wave.arrays.iter().map(|array| array.count).sum(), mapped.mapping))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::scheduler;
    use crate::plan;
    use crate::plan::site::SchedulerKind;
    use crate::plan::site::Site;
    use crate::submit::arrays::wave::Waves;
    use crate::sweep::tree::journal::Journal;

    /// What is chosen of chains of these lengths, as numbers of trials, and how many are left.
    fn chosen(lengths: &[usize], free: u64, is_fed: bool, chains: &str) -> (Vec<u64>, u64) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        let mut todo: Vec<Todo> = Vec::new();
        for (chain, length) in lengths.iter().enumerate() {
            for link in 0..*length {
                let id = todo.len() as u64;
                let after = (link > 0).then(|| id - 1);
                todo.push(Todo { id, chain: chain as u64, after, resources: Arc::default() });
            }
        }
        let head = "version = 1\nsweep.name = \"s\"\nrun.command = [\"true\"]\n[grid]\na = [1]\n";
        let plan = plan::parse(&format!("{head}[schedule]\n{chains}"), "plan.toml").unwrap();
        let facts = scheduler::of(SchedulerKind::Slurm).facts();
        let rules = Rules::of(&plan, &Site::default(), facts);
        let (waves, journal, busy) = (Waves::default(), Journal::default(), BTreeSet::new());
        let before = Before::new(&waves, &journal, &busy);
        let records = HashMap::new();
        let choice =
            Choice { tree: &tree, target: "slurm", rules, before: &before, records: &records };
        let portion = choice.portion(todo, free, (is_fed, false)).unwrap();
        (portion.todo.iter().map(|t| t.id).collect(), portion.left.len() as u64)
    }

    #[test]
    fn what_can_run_at_once_comes_first_and_the_feeder_has_a_place() {
        let of = |lengths: &[usize], free, is_fed| chosen(lengths, free, is_fed, "");
        assert_eq!(of(&[1; 9], 4, false), (vec![0, 1, 2], 6));
        assert_eq!(of(&[1; 9], 4, true), (vec![0, 1, 2, 3], 5));
        assert_eq!(of(&[1; 9], 9, false), ((0..9).collect(), 0));
        // The heads of chains, then their second links.
        assert_eq!(of(&[3, 3, 3], 4, false), (vec![0, 3, 6], 6));
        assert_eq!(of(&[3, 3, 3], 6, false), (vec![0, 1, 3, 4, 6], 4));
        // A job runs a whole chain.
        assert_eq!(chosen(&[3; 4], 3, false, "chains = \"fused\""), (vec![0, 1, 2, 3, 4, 5], 6));
        assert_eq!(chosen(&[1; 12], 3, false, "pack = 3"), (vec![0, 1, 2, 3, 4, 5], 6));
    }

    proptest! {
        #[test]
        fn no_trial_comes_before_the_one_that_it_follows(
            lengths in prop::collection::vec(1usize..4, 1..9),
            free in 2u64..20,
            is_fed in any::<bool>(),
        ) {
            let (ids, left) = chosen(&lengths, free, is_fed, "");
            let all: usize = lengths.iter().sum();
            prop_assert_eq!(ids.len() as u64 + left, all as u64);
            prop_assert!(!ids.is_empty());
            let places = if left > 0 { free - u64::from(!is_fed) } else { free };
            prop_assert!(ids.len() as u64 <= places);
            let mut first = 0;
            for length in lengths {
                let of_chain: Vec<u64> =
                    (first..first + length as u64).filter(|id| ids.contains(id)).collect();
                let expected: Vec<u64> = (first..).take(of_chain.len()).collect();
                prop_assert_eq!(of_chain, expected);
                first += length as u64;
            }
        }
    }
}
