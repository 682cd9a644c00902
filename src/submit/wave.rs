//! A wave: the trials that nobody has been asked to run yet, as job arrays.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::grow::{self, Diff, Todo};
use super::mapping::{self, Mapped, Rules};
use crate::graph::Node;
use crate::graph::shapes::Shapes;
use crate::host::clock;
use crate::plan::OnFailure;
use crate::tree::Tree;
use crate::tree::records::{self, Outcome};
use crate::tree::table::{self, Head};
use crate::tree::waves::{self, Array, Wave};

/// Every array that a sweep has asked for or means to.
#[derive(Debug, Default)]
pub struct Waves {
    /// All waves, in order.
    pub all: Vec<Wave>,
    /// Their maps.
    pub maps: Vec<Vec<u64>>,
}

impl Waves {
    /// Reads all waves.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(tree: &Tree) -> Result<Self> {
        let all = waves::read(tree)?;
        let maps = all.iter().map(|w| waves::map(tree, w.wave)).collect::<Result<_>>()?;
        Ok(Self { all, maps })
    }

    /// All arrays with the trials of their elements, in the order of submission.
    pub fn arrays(&self) -> impl Iterator<Item = (&Wave, &Array, &[u64])> {
        self.all.iter().zip(&self.maps).flat_map(|(wave, map)| {
            wave.arrays.iter().map(move |array| (wave, array, array.trials(map)))
        })
    }

    /// Trials that some array runs.
    pub fn covered(&self) -> HashSet<u64> {
        self.maps.iter().flatten().copied().collect()
    }

    /// The array and index that runs a trial; the latest, if several have.
    pub fn places(&self) -> HashMap<u64, (u32, u64)> {
        let mut places = HashMap::new();
        for (wave, map) in self.all.iter().zip(&self.maps) {
            for array in &wave.arrays {
                for (index, _, trial) in array.places(map) {
                    places.insert(trial, (array.array, index));
                }
            }
        }
        places
    }
}

/// The older trials of a sweep that no array runs yet and that still need to run: an earlier submission
/// did not get to them, or (`retry`) they ended without success. What the plan no longer has is left.
///
/// # Errors
/// When the tree cannot be read.
pub fn left_over(
    tree: &Tree,
    diff: &Diff,
    covered: &HashSet<u64>,
    retry: bool,
) -> Result<Vec<Todo>> {
    if diff.known == 0 {
        return Ok(Vec::new());
    }
    let records = records::all(tree)?;
    let heads = table::heads(tree)?;
    let stop = grow::on_failure(&heads) == OnFailure::Stop;
    let mut shared = HashMap::new();
    let mut dead: HashSet<u64> = HashSet::new();
    let mut all = Vec::new();
    for row in table::rows(tree)?.into_iter().filter(|row| diff.has(row.id)) {
        let outcome = records.get(&row.id).and_then(records::Record::outcome);
        let bad = !retry && matches!(outcome, Some(Outcome::Failed | Outcome::Timeout));
        let behind_dead = row.after.is_some_and(|id| dead.contains(&id));
        if stop && (bad || (behind_dead && outcome.is_none())) {
            dead.insert(row.id);
        }
        let is_done = outcome == Some(Outcome::Done);
        if covered.contains(&row.id) || bad || is_done || dead.contains(&row.id) {
            continue;
        }
        let resources = grow::resources_of(&row, &heads, &mut shared);
        all.push(Todo { id: row.id, chain: row.chain, after: row.after, resources });
    }
    Ok(all)
}

/// Plans the arrays of a wave and writes it. Chains whose predecessors belong to earlier waves and have
/// not ended get arrays of their own, which wait for those of the predecessors.
///
/// # Errors
/// When the tree cannot be read or written, or the chains cannot be mapped as wished.
pub fn make(
    tree: &Tree,
    target: &str,
    todo: &[Todo],
    rules: &Rules,
    before: &Waves,
) -> Result<(Wave, Mapped)> {
    let mut shapes = Shapes::default();
    let mut chains: HashMap<u64, u32> = HashMap::new();
    let mut waits: Vec<Option<u32>> = Vec::new();
    let ours: HashSet<u64> =
        if before.all.is_empty() { HashSet::new() } else { todo.iter().map(|t| t.id).collect() };
    let places = before.places();
    let mut nodes = Vec::with_capacity(todo.len());
    for t in todo {
        let next = chains.len() as u32;
        let chain = *chains.entry(t.chain).or_insert(next);
        if chain == next {
            let waits_for = match t.after {
                Some(id) if !before.all.is_empty() && !ours.contains(&id) => {
                    let ended = records::of_trial(tree, id)?.0.outcome().is_some();
                    if ended { None } else { places.get(&id).map(|(array, _)| *array) }
                }
                _ => None,
            };
            waits.push(waits_for);
        }
        nodes.push(Node { trial: t.id, chain, shape: shapes.number(&t.resources) });
    }
    let continues: Vec<bool> = waits.iter().map(Option::is_some).collect();
    let (graph, mapped) = mapping::map(&nodes, &mut shapes, &continues, rules)?;
    let chain_of: HashMap<u64, u32> = if continues.iter().any(|&c| c) {
        nodes.iter().map(|n| (n.trial, n.chain)).collect()
    } else {
        HashMap::new()
    };

    let number = before.all.last().map_or(0, |w| w.wave) + 1;
    let first_array =
        before.all.iter().flat_map(|w| &w.arrays).map(|a| a.array).max().unwrap_or(0) + 1;
    let heads: Vec<Head> = table::heads(tree)?;
    let arrays = graph
        .arrays
        .iter()
        .enumerate()
        .map(|(i, a)| {
            let trials = &graph.order[a.first..a.first + a.count];
            let mut wait: Vec<u32> = if a.continues && a.link == 0 {
                trials.iter().filter_map(|t| waits[*chain_of.get(t)? as usize]).collect()
            } else {
                Vec::new()
            };
            wait.extend(a.lane.map(|lane| first_array + lane as u32));
            wait.sort_unstable();
            wait.dedup();
            Array {
                array: first_array + i as u32,
                block: a.block,
                link: a.link,
                first: a.first as u64,
                count: a.count as u64,
                links: a.links as u64,
                single: a.single,
                after: a.after.map(|parent| first_array + parent as u32),
                wait,
                on_failure: grow::on_failure(&heads),
                resources: (*shapes.list[a.shape as usize]).clone(),
            }
        })
        .collect();
    let wave = Wave {
        wave: number,
        target: target.to_owned(),
        created: clock::now(),
        chains: mapped.mapping,
        arrays,
    };
    waves::write(tree, &wave, &graph.order)?;
    Ok((wave, mapped))
}
