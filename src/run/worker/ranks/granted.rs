//! Where a trial's ranks run, against what its scheduler has granted.

use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::words::count;
use crate::plan::Resources;

/// Checks that the ranks are spread over as many nodes as the trial asks for, and evenly where it asks for that.
/// `nodes` holds the host of each node and how many ranks run there.
///
/// # Errors
/// When they are elsewhere: then nodes of the allocation stay idle, and others are overloaded.
pub(crate) fn check(asked: &Resources, nodes: &[(String, u32)]) -> Result<(), Fault> {
    let is_even =
        asked.ranks_per_node.is_none_or(|each| nodes.iter().all(|(_, ranks)| *ranks == each));
    if nodes.len() as u64 == u64::from(asked.nodes) && is_even {
        return Ok(());
    }
    let ranks = |n: u32| count(u64::from(n), "rank");
    let found: Vec<String> =
        nodes.iter().map(|(host, n)| format!("{} on {host}", ranks(*n))).collect();
    let wanted = count(u64::from(asked.nodes), "node");
    let wanted = match asked.ranks_per_node {
        Some(each) => format!("{wanted} with {} each", ranks(each)),
        None => wanted,
    };
    let sentence =
        format!("the launcher has not put the ranks where they were granted: {}", found.join(", "));
    let fault = Fault::machine(sentence).at(format!("the trial asks for {wanted}"));
    Err(fault.because(Cause::Launch).hint(
        "give the launcher the hosts of the job, each with its number of places; `scheduler.launcher` in the site \
         profile names it, and on PBS `hpcsweep launch` does so by itself",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_compared_with_the_nodes_that_were_asked_for() {
        let said = |nodes, ranks_per_node, found: &[(&str, u32)]| {
            let asked = Resources { nodes, ranks_per_node, ..Resources::default() };
            let found: Vec<(String, u32)> =
                found.iter().map(|(host, n)| ((*host).to_owned(), *n)).collect();
            check(&asked, &found)
                .err()
                .map(|fault| format!("{}; {}", fault.sentence, fault.place.unwrap_or_default()))
        };
        assert_eq!(said(1, None, &[("a", 4)]), None);
        assert_eq!(said(2, Some(1), &[("a", 1), ("b", 1)]), None);
        assert_eq!(said(2, None, &[("a", 2), ("b", 1)]), None);
        let words = "the launcher has not put the ranks where they were granted:";
        let check = |said: Option<String>, expected: &str| {
            assert_eq!(said, Some(format!("{words} {expected}")));
        };
        check(
            said(2, Some(1), &[("a", 2)]),
            "2 ranks on a; the trial asks for 2 nodes with 1 rank each",
        );
        check(
            said(2, Some(2), &[("a", 3), ("b", 1)]),
            "3 ranks on a, 1 rank on b; the trial asks for 2 nodes with 2 ranks each",
        );
        check(
            said(1, None, &[("a", 1), ("b", 1)]),
            "1 rank on a, 1 rank on b; the trial asks for 1 node",
        );
    }
}
