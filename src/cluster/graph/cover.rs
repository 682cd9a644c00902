//! Which chains share a block: those whose shapes agree link by link as far as both go.
//!
//! A chain whose shapes are the beginning of longer ones may join any of them. Putting it where a
//! block has room on all of its links costs no call; so the longest such chains choose first, and
//! what is left over goes where it opens the fewest new arrays.

use std::collections::BTreeMap;

use super::{Chains, Node};

/// Chains that may stand in one block.
pub(super) struct Group {
    pub(super) members: Vec<u32>,
    pub(super) continues: bool,
}

/// What chains have in common that may share an array on every link: whether they continue an earlier
/// submission, and the shapes of their links.
type Class = (bool, Vec<u32>);

/// A group while it is being filled: how many of its chains reach each link.
struct Open {
    shapes: Vec<u32>,
    reach: Vec<usize>,
    group: Group,
}

impl Open {
    /// New arrays when `n` more chains of length `depth` join.
    fn cost(&self, n: usize, depth: usize, limit: usize) -> usize {
        let calls = |reach: usize| reach.div_ceil(limit);
        self.reach[..depth].iter().map(|&r| calls(r + n) - calls(r)).sum()
    }

    /// How many chains of length `depth` fit without a new array.
    fn room(&self, depth: usize, limit: usize) -> usize {
        self.reach[..depth].iter().map(|&r| r.div_ceil(limit) * limit - r).min().unwrap_or(0)
    }

    fn join(&mut self, members: &[u32], depth: usize) {
        for reach in &mut self.reach[..depth] {
            *reach += members.len();
        }
        self.group.members.extend_from_slice(members);
    }
}

/// The groups, in the order of their first chain.
pub(super) fn groups(
    nodes: &[Node],
    chains: &Chains,
    limit: usize,
    continues: &[bool],
) -> Vec<Group> {
    // Chains by class. Most plans have one.
    let mut classes: BTreeMap<Class, Vec<u32>> = BTreeMap::new();
    let mut last_class: Option<Class> = None;
    let mut run: Vec<u32> = Vec::new();
    for c in 0..chains.len() {
        let links = chains.links(c);
        if links.is_empty() {
            continue;
        }
        let late = continues.get(c).copied().unwrap_or(false);
        let same = last_class.as_ref().is_some_and(|(was, shapes)| {
            *was == late
                && shapes.len() == links.len()
                && shapes.iter().zip(links).all(|(s, &i)| *s == nodes[i as usize].shape)
        });
        if !same {
            if let Some(key) = last_class.take() {
                classes.entry(key).or_default().append(&mut run);
            }
            last_class = Some((late, links.iter().map(|&i| nodes[i as usize].shape).collect()));
        }
        run.push(c as u32);
    }
    if let Some(key) = last_class {
        classes.entry(key).or_default().append(&mut run);
    }

    // Longest sequences first: one that begins no other opens a group, the others choose one.
    let mut classes: Vec<(Class, Vec<u32>)> = classes.into_iter().collect();
    classes.sort_by_key(|((_, shapes), _)| std::cmp::Reverse(shapes.len()));
    let mut open: Vec<Open> = Vec::new();
    for ((late, shapes), members) in classes {
        let depth = shapes.len();
        let mut fit: Vec<usize> = (0..open.len())
            .filter(|&g| open[g].group.continues == late && open[g].shapes.starts_with(&shapes))
            .collect();
        if fit.is_empty() {
            let mut group = Open {
                reach: vec![0; depth],
                shapes,
                group: Group { members: vec![], continues: late },
            };
            group.join(&members, depth);
            open.push(group);
            continue;
        }
        // Least room first keeps the roomy groups for shorter chains that come later.
        let mut unplaced = &members[..];
        fit.sort_by_key(|&g| open[g].room(depth, limit));
        for &g in &fit {
            let n = open[g].room(depth, limit).min(unplaced.len());
            let (now, later) = unplaced.split_at(n);
            open[g].join(now, depth);
            unplaced = later;
        }
        if let Some(&g) = fit.iter().min_by_key(|&&g| open[g].cost(unplaced.len(), depth, limit)) {
            open[g].join(unplaced, depth);
        }
    }
    let mut groups: Vec<Group> = open.into_iter().map(|o| o.group).collect();
    groups.sort_by_key(|g| g.members.iter().min().copied());
    groups
}
