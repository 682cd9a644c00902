//! Most elements that run at once, over all arrays of a sweep.
//!
//! A scheduler throttles one array (`%N`). Arrays that together could run more elements than that make groups, and a
//! group begins when all arrays of the one before have ended. Of chains that follow each other element by element no
//! more run than there are chains; where these are too many, each link waits for the whole one before it.

use super::Graph;

/// Adds to what each array of a graph waits for, so that never more than `most` elements run at once, up to `earlier`
/// elements of arrays of earlier submissions included. Jobs of chains of their own ([`super::Array::single`]) have lanes,
/// which bound them among themselves. `elementwise`: links follow each other element by element.
pub(crate) fn bound(graph: &mut Graph, most: usize, elementwise: bool, earlier: usize) {
    let max_running = most.max(1);
    let singles = graph.arrays.iter().filter(|a| a.single && a.link == 0).count();
    let mut group =
        Group { load: earlier.min(max_running), behind: earlier > 0, arrays: Vec::new() };
    // The arrays that the current group waits for.
    let mut barrier = Group::default();
    let mut of_singles = false;
    let mut next_array = 0;
    for block in graph.arrays.chunk_by_mut(|a, b| a.block == b.block) {
        let first_array = next_array;
        next_array += block.len();
        let widest = block.iter().map(|a| a.count).max().unwrap_or(0);
        let is_single = block[0].single;
        // All chains that are jobs are one weight.
        if !(is_single && of_singles) {
            let weight = if is_single { singles } else { widest }.min(max_running);
            if group.load + weight > max_running {
                barrier = std::mem::take(&mut group);
            }
            group.load += weight;
        }
        of_singles = is_single;
        for (i, array) in (first_array..).zip(block) {
            if array.after.is_none() {
                array.wait.extend(&barrier.arrays);
                array.behind = barrier.behind;
            } else if elementwise && widest > max_running {
                array.wait.push(i - 1);
            }
            group.arrays.push(i);
        }
    }
}

/// Arrays that may run beside each other.
#[derive(Default)]
struct Group {
    /// Elements of them that may run at once.
    load: usize,
    /// Whether those of earlier submissions are among them.
    behind: bool,
    arrays: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Array;
    use super::super::mapping::{Mapping, plan_as};
    use super::super::tests::nodes;
    use super::*;

    /// What each array waits for, but for the link before it; `e` for those of earlier submissions.
    fn waits(chains: &[Vec<u32>], mapping: Mapping, most: usize, earlier: usize) -> Vec<String> {
        let mut graph =
            plan_as(mapping, &nodes(chains), 100, &[], Some(most), |s| Some(s[0])).unwrap();
        bound(&mut graph, most, mapping == Mapping::Elementwise, earlier);
        let show = |a: &Array| {
            let behind = a.behind.then(|| "e".to_owned());
            behind.into_iter().chain(a.wait.iter().map(usize::to_string)).collect::<Vec<_>>()
        };
        graph.arrays.iter().map(|a| format!("{}: {}", a.count, show(a).join(" "))).collect()
    }

    #[test]
    fn arrays_that_fit_run_beside_each_other_and_others_wait() {
        let shapes = |counts: &[usize]| -> Vec<Vec<u32>> {
            let one = |(shape, n): (usize, &usize)| vec![vec![shape as u32]; *n];
            counts.iter().enumerate().flat_map(one).collect()
        };
        let all = |counts: &[usize], most, earlier| {
            waits(&shapes(counts), Mapping::Elementwise, most, earlier)
        };
        assert_eq!(all(&[2, 1, 9, 3], 3, 0), ["2: ", "1: ", "9: 0 1", "3: 2"]);
        // Jobs of an earlier submission count, too: all of them may run, or one element of them.
        assert_eq!(all(&[2, 1], 3, 9), ["2: e", "1: e"]);
        assert_eq!(all(&[2, 1], 3, 1), ["2: ", "1: e 0"]);
        assert_eq!(all(&[2], 3, 1), ["2: "]);
    }

    #[test]
    fn links_wait_for_whole_links_where_there_are_more_chains_than_may_run() {
        let chains = [vec![0, 0], vec![0, 0], vec![0], vec![0]];
        assert_eq!(waits(&chains, Mapping::Elementwise, 4, 0), ["4: ", "2: "]);
        assert_eq!(waits(&chains, Mapping::Elementwise, 3, 0), ["4: ", "2: 0"]);
        assert_eq!(waits(&chains, Mapping::Barrier, 3, 0), ["4: ", "2: "]);
        // Two arrays and then two chains in one lane each: 2 elements, and 2 chains.
        assert_eq!(waits(&chains, Mapping::Jobs, 4, 0), ["2: ", "1: ", "1: ", "1: ", "1: "]);
        assert_eq!(waits(&chains, Mapping::Jobs, 3, 0), ["2: ", "1: 0", "1: ", "1: 0", "1: "]);
        assert_eq!(waits(&chains, Mapping::Jobs, 1, 0), ["2: ", "1: 0", "1: ", "1: 2 0", "1: "]);
    }

    proptest! {
        /// Runs the elements in any order that a scheduler may choose, and counts.
        #[test]
        fn never_more_than_so_many_run_at_once_and_all_run(
            chains in prop::collection::vec(prop::collection::vec(0u32..3, 1..4), 1..14),
            earlier in 0usize..5,
            most in 1usize..6,
            limit in 1usize..6,
            mapping in prop::sample::select(
                vec![Mapping::Elementwise, Mapping::Jobs, Mapping::Barrier, Mapping::Fused]
            ),
            choices in prop::collection::vec(0usize..1000, 120),
        ) {
            let elementwise = mapping == Mapping::Elementwise;
            let nodes = nodes(&chains);
            let mut graph =
                plan_as(mapping, &nodes, limit, &[], Some(most), |s| Some(s[0])).unwrap();
            bound(&mut graph, most, elementwise, earlier);
            // 0 waits, 1 runs, 2 has ended; the last array is that of earlier submissions.
            let mut states: Vec<Vec<u8>> =
                graph.arrays.iter().map(|a| vec![0; a.count]).chain([vec![0; earlier]]).collect();
            let last = graph.arrays.len();
            for choice in choices {
                let is_over = |array: usize| states[array].iter().all(|s| *s == 2);
                let may_begin = |a: usize, e: usize| {
                    let Some(array) = graph.arrays.get(a) else { return true };
                    array.wait.iter().all(|w| is_over(*w))
                        && (!array.behind || is_over(last))
                        && array.after.is_none_or(|p| {
                            if elementwise { states[p][e] == 2 } else { is_over(p) }
                        })
                };
                let mut can: Vec<(usize, usize)> = Vec::new();
                for (a, elements) in states.iter().enumerate() {
                    let running = elements.iter().filter(|s| **s == 1).count();
                    let which = elements.iter().enumerate();
                    can.extend(which.filter_map(|(e, state)| match state {
                        0 => (running < most && may_begin(a, e)).then_some((a, e)),
                        1 => Some((a, e)),
                        _ => None,
                    }));
                }
                if can.is_empty() {
                    let is_done = states.iter().flatten().all(|s| *s == 2);
                    prop_assert!(is_done, "waits for ever: {:?}", graph.arrays);
                    break;
                }
                let (a, e) = can[choice % can.len()];
                states[a][e] += 1;
                let running = states.iter().flatten().filter(|s| **s == 1).count();
                prop_assert!(running <= most, "{running} of {most}: {:?}", graph.arrays);
            }
        }
    }
}
