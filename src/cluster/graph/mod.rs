//! From trials to job arrays: chains, groups of equal shape, blocks under the array limit, links.
//!
//! Pure arithmetic. Link `k` of a block is one array `0..n_k`; within a block
//! chains are sorted longest first, so the chains that still have a link `k` are exactly the first
//! `n_k`: indices stay dense and element `i` of a link continues element `i` of the link before.

mod cover;
pub(crate) mod mapping;
pub(crate) mod shapes;
pub(crate) mod throttle;

pub(crate) use mapping::Mapping;

/// The properties of a trial that the graph needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    /// Trial number; nodes of one chain come in the order they must run.
    pub(crate) trial: u64,
    /// Chain, any dense numbering.
    pub(crate) chain: u32,
    /// Which resource request it makes; equal numbers may share an array.
    pub(crate) shape: u32,
}

/// One job array: a link of a block's chains, or whole chains if they are fused or packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    /// Block it belongs to, from 0.
    pub(crate) block: u32,
    /// Link of the block, from 0.
    pub(crate) link: u32,
    /// The resource request of all its elements.
    pub(crate) shape: u32,
    /// Where its elements begin in [`Graph::order`].
    pub(crate) first: usize,
    /// How many elements it has, indices `0..count`.
    pub(crate) count: usize,
    /// Trials that each element runs one after the other: 1 unless chains are fused or packed. Trial `j` of
    /// element `i` is `order[first + j * count + i]`.
    pub(crate) links: usize,
    /// Whether it is a plain job rather than an array; then it has one element.
    pub(crate) single: bool,
    /// The array (number in [`Graph::arrays`]) that it follows.
    pub(crate) after: Option<usize>,
    /// Arrays that must have ended before this one starts, for no other reason than to bound how many elements
    /// run at once.
    pub(crate) wait: Vec<usize>,
    /// Whether all arrays of earlier submissions must have ended, for the same reason.
    pub(crate) behind: bool,
    /// True when its chains continue chains of an earlier submission.
    pub(crate) continues: bool,
}

impl Array {
    /// Its part of [`Graph::order`].
    pub(crate) fn entries(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count * self.links
    }
}

/// All arrays and the trials they run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Graph {
    /// Arrays in the order in which they must be submitted.
    pub(crate) arrays: Vec<Array>,
    /// Trial numbers; array `a` runs `order[a.entries()]`, link by link, element by element.
    pub(crate) order: Vec<u64>,
    /// Number of chains, over all blocks.
    pub(crate) chains: usize,
    /// Length of the longest chain.
    pub(crate) longest: usize,
}

impl Graph {
    /// One array of so many agents, which share these chains.
    pub(crate) fn of_pilots(count: usize, shape: u32, chains: usize, longest: usize) -> Self {
        let array = Array {
            block: 0,
            link: 0,
            shape,
            first: 0,
            count,
            links: 1,
            single: false,
            after: None,
            wait: Vec::new(),
            behind: false,
            continues: false,
        };
        Self { arrays: vec![array], order: Vec::new(), chains, longest }
    }
}

/// Plans the arrays. `limit` is the largest number of elements of one array (MaxArraySize, as its
/// largest index is one less); `continues[chain]` marks chains whose first node here waits for an
/// earlier submission (they get blocks of their own; an empty slice means none).
///
/// The number of arrays is minimal for a group of chains whose shapes agree link by link:
/// `sum over k of ceil(n_k / limit)`.
pub(crate) fn plan(nodes: &[Node], limit: usize, continues: &[bool]) -> Graph {
    let limit = limit.max(1);
    let chains = Chains::new(nodes);
    let groups = cover::groups(nodes, &chains, limit, continues);

    let mut graph = Graph {
        arrays: Vec::new(),
        order: Vec::with_capacity(nodes.len()),
        chains: chains.len(),
        longest: (0..chains.len()).map(|c| chains.links(c).len()).max().unwrap_or(0),
    };
    let mut block = 0;
    for mut group in groups {
        group
            .members
            .sort_unstable_by_key(|&c| (std::cmp::Reverse(chains.links(c as usize).len()), c));
        for members in group.members.chunks(limit) {
            let mut previous_array = None;
            let depth = chains.links(members[0] as usize).len();
            for link in 0..depth {
                let count = members.partition_point(|&c| chains.links(c as usize).len() > link);
                let first_element = graph.order.len();
                let node = |c: u32| nodes[chains.links(c as usize)[link] as usize];
                graph.order.extend(members[..count].iter().map(|&c| node(c).trial));
                graph.arrays.push(Array {
                    block,
                    link: link as u32,
                    shape: node(members[0]).shape,
                    first: first_element,
                    count,
                    links: 1,
                    single: false,
                    after: previous_array,
                    wait: Vec::new(),
                    behind: false,
                    continues: group.continues,
                });
                previous_array = Some(graph.arrays.len() - 1);
            }
            block += 1;
        }
    }
    graph
}

/// The nodes of each chain, in order, in two flat lists.
pub(crate) struct Chains {
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Chains {
    fn new(nodes: &[Node]) -> Self {
        let n_chains = nodes.iter().map(|n| n.chain as usize + 1).max().unwrap_or(0);
        let mut starts = vec![0u32; n_chains + 1];
        for node in nodes {
            starts[node.chain as usize + 1] += 1;
        }
        for c in 0..n_chains {
            starts[c + 1] += starts[c];
        }
        let mut free_slots = starts.clone();
        let mut flat = vec![0u32; nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            let slot = &mut free_slots[node.chain as usize];
            flat[*slot as usize] = i as u32;
            *slot += 1;
        }
        Self { starts, nodes: flat }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The node numbers of a chain, in the order they run.
    pub(crate) fn links(&self, chain: usize) -> &[u32] {
        &self.nodes[self.starts[chain] as usize..self.starts[chain + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Chains given as lists of shapes; trials are numbered chain by chain.
    pub(super) fn nodes(chains: &[Vec<u32>]) -> Vec<Node> {
        let mut out = Vec::new();
        for (chain, shapes) in chains.iter().enumerate() {
            for &shape in shapes {
                out.push(Node { trial: out.len() as u64, chain: chain as u32, shape });
            }
        }
        out
    }

    /// "block.link shape [trials] after" of every array.
    fn show(graph: &Graph) -> Vec<String> {
        graph
            .arrays
            .iter()
            .map(|a| {
                let trials = &graph.order[a.first..a.first + a.count];
                format!("{}.{} s{} {trials:?} {:?}", a.block, a.link, a.shape, a.after)
            })
            .collect()
    }

    #[test]
    fn chains_of_one_shape_share_one_array_a_link_longest_first() {
        let graph = plan(&nodes(&[vec![0], vec![0, 0, 0], vec![0, 0]]), 1001, &[]);
        assert_eq!(
            show(&graph),
            ["0.0 s0 [1, 4, 0] None", "0.1 s0 [2, 5] Some(0)", "0.2 s0 [3] Some(1)"]
        );
    }

    #[test]
    fn ten_thousand_trials_in_five_thousand_chains_of_two_are_ten_calls() {
        let chains = vec![vec![0, 0]; 5000];
        assert_eq!(plan(&nodes(&chains), 1001, &[]).arrays.len(), 10);
    }

    #[test]
    fn shapes_that_differ_link_by_link_get_blocks_of_their_own() {
        let graph = plan(&nodes(&[vec![0, 1], vec![0, 2], vec![0, 1]]), 10, &[]);
        assert_eq!(
            show(&graph),
            [
                "0.0 s0 [0, 4] None",
                "0.1 s1 [1, 5] Some(0)",
                "1.0 s0 [2] None",
                "1.1 s2 [3] Some(2)"
            ]
        );
    }

    #[test]
    fn chains_that_continue_an_earlier_submission_are_kept_apart() {
        let graph = plan(&nodes(&[vec![0], vec![0]]), 10, &[false, true]);
        assert_eq!(graph.arrays.iter().map(|a| a.continues).collect::<Vec<_>>(), [false, true]);
    }

    /// The fewest arrays over every way to put the chains into groups whose shapes agree.
    fn fewest_calls(chains: &[Vec<u32>], limit: usize) -> usize {
        fn cost(group: &[&Vec<u32>], limit: usize) -> Option<usize> {
            let depth = group.iter().map(|c| c.len()).max()?;
            let mut calls = 0;
            for k in 0..depth {
                let at: Vec<u32> = group.iter().filter_map(|c| c.get(k).copied()).collect();
                if at.iter().any(|&s| s != at[0]) {
                    return None;
                }
                calls += at.len().div_ceil(limit);
            }
            Some(calls)
        }
        fn search<'a>(
            rest: &'a [Vec<u32>],
            groups: &mut Vec<Vec<&'a Vec<u32>>>,
            limit: usize,
            best: &mut usize,
        ) {
            let Some((chain, rest)) = rest.split_first() else {
                let total: Option<usize> = groups.iter().map(|g| cost(g, limit)).sum();
                *best = (*best).min(total.unwrap_or(usize::MAX));
                return;
            };
            for g in 0..groups.len() {
                groups[g].push(chain);
                if cost(&groups[g], limit).is_some() {
                    search(rest, groups, limit, best);
                }
                groups[g].pop();
            }
            groups.push(vec![chain]);
            search(rest, groups, limit, best);
            groups.pop();
        }
        let mut best = usize::MAX;
        search(chains, &mut Vec::new(), limit, &mut best);
        best
    }

    proptest! {
        #[test]
        fn laws(
            chains in prop::collection::vec(prop::collection::vec(0u32..3, 1..5), 1..60),
            limit in 1usize..8,
        ) {
            let nodes = nodes(&chains);
            let graph = plan(&nodes, limit, &[]);
            // Every trial is in exactly one element.
            let mut seen = graph.order.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..nodes.len() as u64).collect::<Vec<_>>());
            let mut next = 0;
            for (number, array) in graph.arrays.iter().enumerate() {
                // Arrays tile the order; no index exceeds the limit.
                prop_assert_eq!(array.first, next);
                next += array.count;
                prop_assert!(array.count >= 1 && array.count <= limit);
                for i in 0..array.count {
                    let trial = graph.order[array.first + i] as usize;
                    prop_assert_eq!(nodes[trial].shape, array.shape);
                    match array.after {
                        None => prop_assert_eq!(array.link, 0),
                        Some(parent) => {
                            // Element i continues element i of the array before it.
                            prop_assert!(parent < number);
                            let parent = &graph.arrays[parent];
                            prop_assert_eq!(parent.link + 1, array.link);
                            prop_assert!(i < parent.count);
                            let before = graph.order[parent.first + i] as usize;
                            prop_assert_eq!(before + 1, trial);
                            prop_assert_eq!(nodes[before].chain, nodes[trial].chain);
                        }
                    }
                }
            }
        }

        #[test]
        fn the_number_of_calls_is_minimal(
            chains in prop::collection::vec(prop::collection::vec(0u32..2, 1..4), 1..8),
            limit in 1usize..4,
        ) {
            let calls = plan(&nodes(&chains), limit, &[]).arrays.len();
            prop_assert_eq!(calls, fewest_calls(&chains, limit));
        }
    }
}
