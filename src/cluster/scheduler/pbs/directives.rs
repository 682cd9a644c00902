//! Values of PBS directives: a request in the words of `qsub -l` (pbs_resources(7B)), chunks, one a node; and
//! the range of an array.

use crate::plan::Resources;

/// The site's names of its resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// GPUs of a chunk; `None` where PBS does not count them.
    pub(crate) gpus: Option<String>,
    /// What `constraint` asks for where it is not `name=value` itself: `gpu_type`.
    pub(crate) constraint: Option<String>,
}

/// A range that PBS accepts for an array of `count` elements, indices from 0. PBS refuses a range of one
/// index; `0-1:2` is the array whose only element is 0.
pub(crate) fn indices(count: u64, max_running: Option<u64>) -> String {
    let range = if count == 1 { "0-1:2".to_owned() } else { format!("0-{}", count - 1) };
    match max_running.filter(|&n| n < count) {
        Some(n) => format!("{range}%{n}"),
        None => range,
    }
}

/// `select=` of a request, without the word.
pub(crate) fn select(r: &Resources, names: &Names) -> String {
    let mut chunks: Vec<(u32, u32)> = Vec::new();
    for ranks in ranks_by_node(r) {
        match chunks.last_mut() {
            Some((n, same)) if *same == ranks => *n += 1,
            _ => chunks.push((1, ranks)),
        }
    }
    let chunk = |(n, ranks): (u32, u32)| {
        let gpus = match r.gpus {
            Some(all) => u64::from(all).div_ceil(u64::from(r.nodes)),
            None => u64::from(ranks) * u64::from(r.gpus_per_rank),
        };
        let ncpus = u64::from(ranks) * u64::from(r.cpus_per_rank);
        // Without ompthreads every rank would take the cores of all of them.
        let mut text = format!("{n}:ncpus={ncpus}:mpiprocs={ranks}:ompthreads={}", r.cpus_per_rank);
        if let (Some(name), 1..) = (&names.gpus, gpus) {
            text.push_str(&format!(":{name}={gpus}"));
        }
        if let Some(mib) = r.memory_mib {
            text.push_str(&format!(":mem={mib}mb"));
        }
        if let Some(constraint) = &r.constraint {
            text.push(':');
            if let (Some(name), false) = (&names.constraint, constraint.contains('=')) {
                text.push_str(&format!("{name}="));
            }
            text.push_str(constraint);
        }
        text
    };
    chunks.into_iter().map(chunk).collect::<Vec<_>>().join("+")
}

/// The resources that a directive asks for by `-l`, each with its value; none of another directive.
fn asked(directive: &str) -> impl Iterator<Item = &str> {
    directive.strip_prefix("-l").into_iter().flat_map(|list| list.trim().split(','))
}

/// Whether one of these directives asks for a resource.
fn asks(directives: &[String], name: &str) -> bool {
    let mut all = directives.iter().flat_map(|directive| asked(directive));
    all.any(|item| item.split('=').next() == Some(name))
}

/// The directives of a site and a plan as qsub reads them: of a resource that is asked for twice it keeps the first, so what
/// the plan asks for is left out of the site's.
pub(crate) fn joined(site: &[String], plan: &[String]) -> Vec<String> {
    let is_free = |item: &&str| !asks(plan, item.split('=').next().unwrap_or_default());
    let own = |directive: &String| match asked(directive).all(|item| is_free(&item)) {
        true => Some(directive.clone()),
        false => {
            let kept: Vec<&str> = asked(directive).filter(is_free).collect();
            (!kept.is_empty()).then(|| format!("-l {}", kept.join(",")))
        }
    };
    site.iter().filter_map(own).chain(plan.iter().cloned()).collect()
}

/// `place=` of a request, without the word, where no directive has it: one chunk a host.
pub(crate) fn place(r: &Resources, directives: &[String]) -> Option<&'static str> {
    (r.nodes > 1 && !asks(directives, "place")).then_some("scatter")
}

/// Ranks of each node: as many as the plan fixes, else spread evenly; never none, as PBS takes a chunk
/// without ranks for one without cores.
fn ranks_by_node(r: &Resources) -> Vec<u32> {
    let nodes = r.nodes.min(r.ranks).max(1);
    let mut left = r.ranks;
    (0..nodes)
        .map(|node| {
            let behind = nodes - node - 1;
            let even = left.div_ceil(behind + 1);
            let here = r.ranks_per_node.map_or(even, |n| n.max(even)).min(left - behind);
            left -= here;
            here
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_one_is_a_range_with_a_step() {
        assert_eq!(indices(10, None), "0-9");
        assert_eq!(indices(10, Some(3)), "0-9%3");
        assert_eq!(indices(10, Some(10)), "0-9");
        assert_eq!(indices(1, Some(1)), "0-1:2");
    }

    #[test]
    fn what_a_plan_asks_for_goes_before_the_sites_and_our_own() {
        let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let check = |site: &[&str], plan: &[&str], expected: &[&str], scatter: Option<&str>| {
            let all = joined(&words(site), &words(plan));
            assert_eq!(all, words(expected));
            let two = Resources { nodes: 2, ..Resources::default() };
            assert_eq!(place(&two, &all), scatter);
            assert_eq!(place(&Resources::default(), &all), None);
        };
        check(
            &["-l filesystems=home"],
            &["-m n"],
            &["-l filesystems=home", "-m n"],
            Some("scatter"),
        );
        check(&["-l place=pack"], &["-lplace=scatter:excl"], &["-lplace=scatter:excl"], None);
        check(
            &["-l place=pack,filesystems=home", "-q x"],
            &["-l place=free"],
            &["-l filesystems=home", "-q x", "-l place=free"],
            None,
        );
        check(&["-l place=pack"], &["-l places=1"], &["-l place=pack", "-l places=1"], None);
    }

    #[test]
    fn a_chunk_is_a_node() {
        let check = |r: Resources, expected: &str| {
            let names = Names { gpus: Some("ngpus".into()), constraint: Some("gpu_type".into()) };
            assert_eq!(select(&r, &names), expected);
        };
        let plain = Resources::default();
        check(plain.clone(), "1:ncpus=1:mpiprocs=1:ompthreads=1");
        check(
            Resources { nodes: 2, ranks: 4, cpus_per_rank: 3, gpus_per_rank: 1, ..plain.clone() },
            "2:ncpus=6:mpiprocs=2:ompthreads=3:ngpus=2",
        );
        check(
            Resources {
                nodes: 3,
                ranks: 5,
                ranks_per_node: Some(2),
                memory_mib: Some(2048),
                ..plain.clone()
            },
            "2:ncpus=2:mpiprocs=2:ompthreads=1:mem=2048mb+1:ncpus=1:mpiprocs=1:ompthreads=1:mem=2048mb",
        );
        check(
            Resources { nodes: 2, ranks: 3, gpus_per_rank: 2, ..plain.clone() },
            "1:ncpus=2:mpiprocs=2:ompthreads=1:ngpus=4+1:ncpus=1:mpiprocs=1:ompthreads=1:ngpus=2",
        );
        check(
            Resources { constraint: Some("a100".into()), gpus: Some(2), ..plain.clone() },
            "1:ncpus=1:mpiprocs=1:ompthreads=1:ngpus=2:gpu_type=a100",
        );
        check(
            Resources { constraint: Some("model=milan".into()), ..plain },
            "1:ncpus=1:mpiprocs=1:ompthreads=1:model=milan",
        );
    }
}
