//! How chains become jobs where a scheduler cannot follow an array element by element.
//!
//! PBS knows dependencies between whole jobs only (`jobs`, `barrier`); one element may also run its whole
//! chain (`fused`), on any scheduler.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Array, Chains, Graph, Node, plan};

/// How the chains of a submission are mapped to jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mapping {
    /// Link `k` of a block is an array whose elements follow those of link `k - 1` one by one.
    #[default]
    Elementwise,
    /// Each trial of a chain of two or more is a job of its own behind its predecessor.
    Jobs,
    /// Link `k` of a block is an array behind the whole array of link `k - 1`.
    Barrier,
    /// One element runs its chain link by link.
    Fused,
}

impl Mapping {
    /// The word of a plan.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise",
            Self::Jobs => "jobs",
            Self::Barrier => "barrier",
            Self::Fused => "fused",
        }
    }
}

/// Plans arrays for a mapping. `fuse` gives the number of the shape that runs a whole chain, from the
/// shapes of its links; `None` where no one shape can. `lanes` bounds how many chains of [`Mapping::Jobs`]
/// run at once. Otherwise as [`plan`]; a mapping that does not change anything is `plan` itself.
pub(crate) fn plan_as(
    mapping: Mapping,
    nodes: &[Node],
    limit: usize,
    continues: &[bool],
    lanes: Option<usize>,
    mut fuse: impl FnMut(&[u32]) -> Option<u32>,
) -> Option<Graph> {
    match mapping {
        Mapping::Elementwise | Mapping::Barrier => Some(plan(nodes, limit, continues)),
        Mapping::Jobs => Some(jobs(nodes, limit, continues, lanes)),
        Mapping::Fused => fused(nodes, limit, continues, 1, &mut fuse),
    }
}

/// As [`Mapping::Fused`], with `pack` chains one after the other in each element; what is left over of chains of
/// one shape is an array of one element.
pub(crate) fn packed(
    nodes: &[Node],
    limit: usize,
    continues: &[bool],
    pack: usize,
    mut fuse: impl FnMut(&[u32]) -> Option<u32>,
) -> Option<Graph> {
    fused(nodes, limit, continues, pack.max(1), &mut fuse)
}

/// Calls that [`Mapping::Jobs`] takes: one a trial of a longer chain, and the arrays of the others.
pub(crate) fn calls_of_jobs(nodes: &[Node], limit: usize) -> usize {
    let chains = Chains::new(nodes);
    let lengths = (0..chains.len()).map(|c| chains.links(c).len());
    let longer: usize = lengths.filter(|&len| len > 1).sum();
    longer + plan(&lone(nodes, &chains), limit, &[]).arrays.len()
}

/// The nodes of chains of one, chains numbered anew.
fn lone(nodes: &[Node], chains: &Chains) -> Vec<Node> {
    let alone = (0..chains.len()).filter(|&c| chains.links(c).len() == 1);
    alone
        .enumerate()
        .map(|(new, c)| Node { chain: new as u32, ..nodes[chains.links(c)[0] as usize] })
        .collect()
}

fn jobs(nodes: &[Node], limit: usize, continues: &[bool], lanes: Option<usize>) -> Graph {
    let chains = Chains::new(nodes);
    let is_longer = |c: &usize| chains.links(*c).len() > 1;
    let flags: Vec<bool> = (0..chains.len())
        .filter(|c| !is_longer(c))
        .map(|c| continues.get(c).copied().unwrap_or(false))
        .collect();
    let mut graph = plan(&lone(nodes, &chains), limit, &flags);
    graph.chains = chains.len();
    let next_block = graph.arrays.last().map_or(0, |array| array.block + 1);
    let mut ends: Vec<usize> = Vec::new();
    for (block, chain) in (next_block..).zip((0..chains.len()).filter(is_longer)) {
        let lane = lanes.and_then(|n| ends.len().checked_sub(n.max(1))).map(|i| ends[i]);
        let mut previous_array = None;
        for (link, &node) in chains.links(chain).iter().enumerate() {
            let node = nodes[node as usize];
            graph.arrays.push(Array {
                block,
                link: link as u32,
                shape: node.shape,
                first: graph.order.len(),
                count: 1,
                links: 1,
                single: true,
                after: previous_array,
                wait: lane.filter(|_| link == 0).into_iter().collect(),
                behind: false,
                continues: continues.get(chain).copied().unwrap_or(false),
            });
            graph.order.push(node.trial);
            previous_array = Some(graph.arrays.len() - 1);
        }
        graph.longest = graph.longest.max(chains.links(chain).len());
        ends.push(graph.arrays.len() - 1);
    }
    graph
}

/// Chains of equal shapes share arrays; `None` when a chain has no one shape.
fn fused(
    nodes: &[Node],
    limit: usize,
    continues: &[bool],
    pack: usize,
    fuse: &mut impl FnMut(&[u32]) -> Option<u32>,
) -> Option<Graph> {
    let chains = Chains::new(nodes);
    // Chains by the shapes of their links, in order of appearance.
    let mut numbers: HashMap<(bool, Vec<u32>), usize> = HashMap::new();
    let mut groups: Vec<(bool, Vec<u32>, Vec<usize>)> = Vec::new();
    for chain in 0..chains.len() {
        let links = chains.links(chain).iter();
        let shapes: Vec<u32> = links.map(|&n| nodes[n as usize].shape).collect();
        let flag = continues.get(chain).copied().unwrap_or(false);
        let number = *numbers.entry((flag, shapes.clone())).or_insert(groups.len());
        if number == groups.len() {
            groups.push((flag, shapes, Vec::new()));
        }
        groups[number].2.push(chain);
    }
    let mut graph = Graph {
        chains: chains.len(),
        longest: (0..chains.len()).map(|c| chains.links(c).len()).max().unwrap_or(0),
        ..Graph::default()
    };
    let mut block = 0;
    for (flag, shapes, members) in groups {
        // Whole elements first; one more holds what is left over.
        let (whole, rest) = members.split_at(members.len() / pack * pack);
        let blocks = whole.chunks(limit.max(1) * pack).map(|members| (members, pack));
        let last_block = (!rest.is_empty()).then_some((rest, rest.len()));
        for (members, pack) in blocks.chain(last_block) {
            let pack_shapes = shapes.repeat(pack);
            let shape = if pack_shapes.len() == 1 { pack_shapes[0] } else { fuse(&pack_shapes)? };
            graph.arrays.push(Array {
                block,
                link: 0,
                shape,
                first: graph.order.len(),
                count: members.len() / pack,
                links: pack_shapes.len(),
                single: false,
                after: None,
                wait: Vec::new(),
                behind: false,
                continues: flag,
            });
            for link in 0..pack_shapes.len() {
                let (behind, link) = (link / shapes.len(), link % shapes.len());
                graph.order.extend(
                    members
                        .chunks(pack)
                        .map(|of| nodes[chains.links(of[behind])[link] as usize].trial),
                );
            }
            block += 1;
        }
    }
    Some(graph)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::nodes;
    use super::*;

    /// "block.link [trials] xLINKS job after" of every array.
    fn show(graph: &Graph) -> Vec<String> {
        let one = |a: &Array| {
            let mut text = format!("{}.{} s{}", a.block, a.link, a.shape);
            text.push_str(&format!(" {:?} x{}", &graph.order[a.entries()], a.links));
            if a.single {
                text.push_str(" job");
            }
            if let Some(after) = a.after {
                text.push_str(&format!(" after {after}"));
            }
            text
        };
        graph.arrays.iter().map(one).collect()
    }

    #[test]
    fn every_trial_of_a_longer_chain_is_a_job_behind_its_predecessor() {
        let nodes = nodes(&[vec![0, 1], vec![0], vec![0, 0], vec![0]]);
        let graph = plan_as(Mapping::Jobs, &nodes, 100, &[], None, |_| None).unwrap();
        assert_eq!(
            show(&graph),
            [
                "0.0 s0 [2, 5] x1",
                "1.0 s0 [0] x1 job",
                "1.1 s1 [1] x1 job after 1",
                "2.0 s0 [3] x1 job",
                "2.1 s0 [4] x1 job after 3",
            ]
        );
        assert_eq!(calls_of_jobs(&nodes, 100), 5);
        assert_eq!((graph.chains, graph.longest), (4, 2));
    }

    #[test]
    fn lanes_bound_the_chains_that_run_at_once() {
        let nodes = nodes(&[vec![0, 0], vec![0, 0], vec![0, 0], vec![0, 0]]);
        let graph = plan_as(Mapping::Jobs, &nodes, 100, &[], Some(2), |_| None).unwrap();
        let lanes: Vec<&[usize]> = graph.arrays.iter().map(|a| &a.wait[..]).collect();
        assert_eq!(lanes, [&[] as &[usize], &[], &[], &[], &[1], &[], &[3], &[]]);
    }

    #[test]
    fn a_fused_element_runs_its_chain_link_by_link() {
        let nodes = nodes(&[vec![0, 0], vec![0], vec![0, 0], vec![0, 1]]);
        let fuse = |shapes: &[u32]| Some(10 + shapes.iter().sum::<u32>());
        let graph = plan_as(Mapping::Fused, &nodes, 100, &[], None, fuse).unwrap();
        assert_eq!(show(&graph), ["0.0 s10 [0, 3, 1, 4] x2", "1.0 s0 [2] x1", "2.0 s11 [5, 6] x2"]);
        assert!(plan_as(Mapping::Fused, &nodes, 100, &[], None, |_| None).is_none());
    }

    #[test]
    fn a_packed_element_runs_chains_one_after_the_other() {
        let fuse = |shapes: &[u32]| Some(10 * shapes.len() as u32);
        let pack = |chains: &[Vec<u32>], limit| {
            show(&packed(&nodes(chains), limit, &[], 2, fuse).unwrap())
        };
        // Five trials of one shape, two an element; one is left over. One of another shape.
        let chains = [vec![0], vec![0], vec![1], vec![0], vec![0], vec![0]];
        let all = ["0.0 s20 [0, 3, 1, 4] x2", "1.0 s0 [5] x1", "2.0 s1 [2] x1"];
        assert_eq!(pack(&chains, 100), all);
        let all = ["0.0 s20 [0, 1] x2", "1.0 s20 [3, 4] x2", "2.0 s0 [5] x1", "3.0 s1 [2] x1"];
        assert_eq!(pack(&chains, 1), all);
        // Chains of two: the links of one before those of the next.
        let chains = [vec![0, 0], vec![0, 0], vec![0, 0], vec![0, 0]];
        assert_eq!(pack(&chains, 100), ["0.0 s40 [0, 4, 1, 5, 2, 6, 3, 7] x4"]);
    }

    proptest! {
        #[test]
        fn laws(
            chains in prop::collection::vec(prop::collection::vec(0u32..3, 1..5), 1..40),
            limit in 1usize..8,
            mapping in prop::sample::select(vec![Mapping::Jobs, Mapping::Barrier, Mapping::Fused]),
        ) {
            let nodes = nodes(&chains);
            let graph = plan_as(mapping, &nodes, limit, &[], None, |s| Some(s[0])).unwrap();
            let mut seen = graph.order.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..nodes.len() as u64).collect::<Vec<_>>());
            let mut next = 0;
            for (number, array) in graph.arrays.iter().enumerate() {
                prop_assert_eq!(array.first, next);
                next = array.entries().end;
                prop_assert!(array.count >= 1 && array.count <= limit);
                prop_assert!(!array.single || array.count == 1);
                prop_assert!(array.after.is_none_or(|parent| parent < number));
                for i in 0..array.count {
                    let trial = |j: usize| graph.order[array.first + j * array.count + i];
                    // A fused element runs one chain, in its order, wholly.
                    for j in 1..array.links {
                        prop_assert_eq!(trial(j - 1) + 1, trial(j));
                    }
                    if array.links > 1 {
                        let chain = nodes[trial(0) as usize].chain as usize;
                        prop_assert_eq!(chains[chain].len(), array.links);
                    }
                }
            }
            if mapping == Mapping::Jobs {
                prop_assert_eq!(graph.arrays.len(), calls_of_jobs(&nodes, limit));
            }
        }
    }
}
