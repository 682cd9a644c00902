//! Which mapping of chains to jobs a submission uses, and why.
//!
//! Slurm follows an array element by element, so there only a plan with `chains = "fused"` changes anything.
//! PBS has dependencies between whole jobs only: few chains become jobs of their own, many are fused, and
//! chains that cannot be fused wait at a barrier.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::units;
use crate::base::words::{count, thousands};
use crate::cluster::graph::shapes::Shapes;
use crate::cluster::graph::{Graph, Mapping, Node, mapping, throttle};
use crate::cluster::scheduler::{Facts, Limits, Places, Scheduler};
use crate::plan::site::Site;
use crate::plan::{ChainsAs, Plan, Resources};

/// What decides about the mapping.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Whether the scheduler follows an array element by element.
    pub(crate) is_elementwise: bool,
    /// The plan's own choice.
    pub(crate) chains: Option<ChainsAs>,
    /// Chains that each element is to run one after the other.
    pub(crate) pack: Option<u32>,
    /// Most elements of an array.
    pub(crate) elements: u64,
    /// Calls of qsub that one submission may make for chains.
    pub(crate) max_calls: u64,
    /// The longest walltime of a job, where it is known.
    pub(crate) max_walltime_s: Option<u64>,
    /// At most so many elements are to run at once, those of earlier submissions included.
    pub(crate) max_running: Option<u64>,
    /// Whether the server cannot throttle an array itself.
    pub(crate) cannot_throttle: bool,
    /// The places behind a routing queue, where it hands on only so many elements at a time.
    pub(crate) places: Option<Places>,
}

impl Rules {
    /// The settings of a plan and a site profile, before a scheduler was asked for its limits.
    pub(crate) fn of(plan: &Plan, site: &Site, facts: &Facts) -> Self {
        let cap = |size: u64| site.caps.max_array_size.map_or(size, |cap| size.min(cap));
        let limits = Limits {
            max_array_size: Some(cap(site.limits.max_array_size.unwrap_or(facts.elements))),
            max_array_tasks: site.limits.max_array_tasks,
            ..Limits::default()
        };
        Self {
            is_elementwise: facts.is_elementwise,
            chains: plan.schedule.chains,
            pack: plan.schedule.pack,
            elements: limits.elements(),
            max_calls: site.limits.max_calls,
            max_walltime_s: site.caps.max_walltime_s,
            max_running: site.caps.running(plan.schedule.max_running.map(u64::from)),
            cannot_throttle: false,
            places: None,
        }
    }

    /// The same with the limits of the scheduler, which was asked, and the places of its routing queue.
    pub(crate) fn within(self, limits: &Limits, places: Option<Places>) -> Self {
        Self {
            elements: limits.elements(),
            max_walltime_s: limits.max_walltime_s.into_iter().chain(self.max_walltime_s).min(),
            cannot_throttle: limits.cannot_throttle,
            places,
            ..self
        }
    }

    /// What of a scheduler shapes the arrays of so many trials in a way that users may not expect, in words.
    pub(crate) fn notes(&self, scheduler: &dyn Scheduler, trials: usize) -> Vec<String> {
        let mut notes = scheduler.notes().to_vec();
        if let (true, Some(n)) = (self.cannot_throttle, self.max_running)
            && n < trials as u64
        {
            let version = scheduler.limits().version.as_deref().unwrap_or_default();
            notes.push(format!(
                "{} {version} cannot throttle arrays: they have {} at most, and wait for each other",
                scheduler.facts().name,
                count(n, "element")
            ));
        }
        if self.max_running.is_some() && !self.cannot_throttle && self.is_too_narrow(trials) {
            let note = "`max_running` holds for each array alone: behind this routing queue arrays that wait could take the \
                 places of those that they wait for";
            notes.push(note.to_owned());
        }
        notes
    }

    /// Whether a routing queue has fewer places than so many elements need. There `max_running` holds for each array
    /// alone.
    pub(crate) fn is_too_narrow(&self, elements: usize) -> bool {
        self.places.is_some_and(|places| elements as u64 > places.free())
    }
}

/// How the chains of a submission become jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) mapping: Mapping,
    /// Why, in words; empty where there was no choice.
    pub(crate) why: String,
}

/// Plans the arrays of nodes whose shapes are numbered in `shapes`; a fused chain adds the shape of its
/// whole run. `running`: elements of earlier submissions that may be running.
///
/// # Errors
/// When the plan asks for fused chains that no one allocation can run.
pub(crate) fn map(
    nodes: &[Node],
    shapes: &mut Shapes,
    continues: &[bool],
    running: u64,
    rules: &Rules,
) -> Result<(Graph, Mapped)> {
    let throttled = rules.max_running.filter(|_| rules.cannot_throttle);
    let limit = throttled.map_or(rules.elements, |n| n.min(rules.elements)) as usize;
    let mapped = choose(nodes, shapes, limit, throttled.is_some(), rules)?;
    let lanes = rules.max_running.map(|n| n as usize);
    let fuse = |links: &[u32]| fuse(shapes, links, None).ok();
    let graph = match rules.pack {
        Some(pack) => mapping::packed(nodes, limit, continues, pack as usize, fuse),
        None => mapping::plan_as(mapped.mapping, nodes, limit, continues, lanes, fuse),
    };
    let mut graph = graph.ok_or_else(|| anyhow::anyhow!("a mapping that was chosen fits"))?;
    if let Some(most) = lanes.filter(|_| throttled.is_some() || !rules.is_too_narrow(nodes.len())) {
        let elementwise = mapped.mapping == Mapping::Elementwise;
        throttle::bound(&mut graph, most, elementwise, running as usize);
    }
    Ok((graph, mapped))
}

fn choose(
    nodes: &[Node],
    shapes: &mut Shapes,
    limit: usize,
    throttled: bool,
    rules: &Rules,
) -> Result<Mapped> {
    let say = |mapping, why: String| Ok(Mapped { mapping, why });
    if let Some(pack) = rules.pack {
        for (links, n) in chains(nodes) {
            fuse(shapes, &links.repeat(n.min(pack as usize)), rules.max_walltime_s)?;
        }
        let why = format!("`pack` puts {} into an element", count(u64::from(pack), "chain"));
        return say(Mapping::Fused, why);
    }
    let longer = chains(nodes).into_keys().filter(|links| links.len() > 1);
    let longer: Vec<Vec<u32>> = longer.collect();
    if longer.is_empty() {
        return say(plain(rules), String::new());
    }
    let by_plan = "the plan says so".to_owned();
    let mut can_fuse = || {
        longer.iter().try_for_each(|links| fuse(shapes, links, rules.max_walltime_s).map(|_| ()))
    };
    if rules.is_elementwise {
        return match rules.chains {
            Some(ChainsAs::Fused) => {
                can_fuse()?;
                say(Mapping::Fused, by_plan)
            }
            _ => say(Mapping::Elementwise, String::new()),
        };
    }
    if let Some(places) = rules.places.filter(|_| rules.is_too_narrow(nodes.len()))
        && rules.chains != Some(ChainsAs::Fused)
    {
        // It hands on dependents before what they wait for, until they have all places.
        let why = format!(
            "{places}, and those that wait could take the places of those that they wait for"
        );
        can_fuse().map_err(|fault| {
            let hint = "name a queue that runs jobs itself as `partition`: behind this one only chains that fit one \
                        allocation can run";
            let later = ", or wait until the jobs that are there have ended";
            let later = if nodes.len() as u64 <= places.width { later } else { "" };
            Fault::request(format!("{why}; {}", fault.sentence)).hint(format!("{hint}{later}"))
        })?;
        return say(Mapping::Fused, why);
    }
    let calls = mapping::calls_of_jobs(nodes, limit) as u64;
    let many = || {
        format!(
            "{} of qsub, one a trial, are more than {}",
            count(calls, "call"),
            thousands(rules.max_calls)
        )
    };
    match rules.chains {
        Some(ChainsAs::Fused) => {
            can_fuse()?;
            say(Mapping::Fused, by_plan)
        }
        Some(ChainsAs::Barrier) => say(Mapping::Barrier, by_plan),
        Some(ChainsAs::Jobs) if !throttled => say(Mapping::Jobs, by_plan),
        None if calls <= rules.max_calls && !throttled => {
            let allowed = thousands(rules.max_calls);
            say(Mapping::Jobs, format!("{} of qsub, {allowed} are allowed", count(calls, "call")))
        }
        _ => {
            let first =
                if throttled { "this server cannot throttle jobs".to_owned() } else { many() };
            match can_fuse() {
                Ok(()) => say(Mapping::Fused, format!("{first}; one allocation fits all links")),
                Err(fault) => say(Mapping::Barrier, format!("{first}, and {}", fault.sentence)),
            }
        }
    }
}

/// The mapping of chains of one trial.
fn plain(rules: &Rules) -> Mapping {
    if rules.is_elementwise { Mapping::Elementwise } else { Mapping::Barrier }
}

/// The distinct sequences of shapes of chains, and how many chains have each.
fn chains(nodes: &[Node]) -> BTreeMap<Vec<u32>, usize> {
    let n_chains = nodes.iter().map(|n| n.chain as usize + 1).max().unwrap_or(0);
    let mut chains = vec![Vec::new(); n_chains];
    for node in nodes {
        chains[node.chain as usize].push(node.shape);
    }
    let mut counts = BTreeMap::new();
    chains.into_iter().for_each(|links| *counts.entry(links).or_insert(0) += 1);
    counts
}

/// The shape of one allocation that runs these links one after the other: theirs, but for the walltime, which
/// is the sum.
fn fuse(shapes: &mut Shapes, links: &[u32], longest: Option<u64>) -> Result<u32, Fault> {
    let of = |&shape: &u32| &shapes.list[shape as usize];
    let mut whole = Resources::clone(of(&links[0]));
    let without = |r: &Resources| Resources { walltime_s: None, ..r.clone() };
    if links.iter().any(|link| without(of(link)) != without(&whole)) {
        return Err(Fault::request("the links of a chain ask for different resources").hint(
            "chains whose links differ in more than `walltime` cannot be fused: leave `chains` out",
        ));
    }
    whole.walltime_s = links.iter().map(|link| of(link).walltime_s).sum();
    if let (Some(asked), Some(longest)) = (whole.walltime_s, longest)
        && asked > longest
    {
        let [asked, longest] = [asked, longest].map(units::walltime_text);
        let trials = count(links.len() as u64, "trial");
        return Err(Fault::request(format!(
            "{trials} one after the other take {asked}, and a job may take {longest}"
        ))
        .hint("lower `walltime` or `pack`, or leave `chains` out"));
    }
    Ok(shapes.number(&std::sync::Arc::new(whole)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rules() -> Rules {
        Rules {
            is_elementwise: false,
            chains: None,
            pack: None,
            elements: 100,
            max_calls: 4,
            max_walltime_s: None,
            max_running: None,
            cannot_throttle: false,
            places: None,
        }
    }

    /// Chains whose links have these walltimes (in minutes) and ranks.
    fn mapped(chains: &[&[(u64, u32)]], rules: &Rules) -> String {
        let mut shapes = Shapes::default();
        let mut nodes = Vec::new();
        for (chain, links) in chains.iter().enumerate() {
            for &(minutes, ranks) in *links {
                let walltime_s = Some(60 * minutes);
                let shape = shapes.number(&Arc::new(Resources {
                    walltime_s,
                    ranks,
                    ..Resources::default()
                }));
                nodes.push(Node { trial: nodes.len() as u64, chain: chain as u32, shape });
            }
        }
        match map(&nodes, &mut shapes, &[], 0, rules) {
            Ok((graph, mapped)) => {
                let times: Vec<String> = graph
                    .arrays
                    .iter()
                    .map(|a| shapes.list[a.shape as usize].walltime_s.unwrap_or(0) / 60)
                    .zip(&graph.arrays)
                    .map(|(minutes, a)| {
                        let wait: String = a.wait.iter().map(|i| format!(" after {i}")).collect();
                        format!("{}x{} of {minutes} min{wait}", a.count, a.links)
                    })
                    .collect();
                format!("{}: {}: {}", mapped.mapping.word(), mapped.why, times.join(", "))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn few_chains_are_jobs_many_are_fused_and_the_rest_waits() {
        let (two, one): (&[_], &[_]) = (&[(5, 1), (5, 1)], &[(5, 1)]);
        assert_eq!(mapped(&[one, one], &rules()), "barrier: : 2x1 of 5 min");
        assert_eq!(
            mapped(&[two, one, one], &rules()),
            "jobs: 3 calls of qsub, 4 are allowed: 2x1 of 5 min, 1x1 of 5 min, 1x1 of 5 min"
        );
        assert_eq!(
            mapped(&[two, two, two], &rules()),
            "fused: 6 calls of qsub, one a trial, are more than 4; one allocation fits all links: \
             3x2 of 10 min"
        );
        let short = Rules { max_walltime_s: Some(540), ..rules() };
        assert_eq!(
            mapped(&[two, two, two], &short),
            "barrier: 6 calls of qsub, one a trial, are more than 4, and 2 trials one after the other take 00:10:00, \
             and a job may take 00:09:00: 3x1 of 5 min, 3x1 of 5 min"
        );
        let wide: &[_] = &[(5, 1), (5, 2)];
        assert_eq!(
            mapped(&[wide, wide, wide], &rules()),
            "barrier: 6 calls of qsub, one a trial, are more than 4, and the links of a chain ask for \
             different resources: 3x1 of 5 min, 3x1 of 5 min"
        );
    }

    #[test]
    fn a_plan_may_choose() {
        let two: &[_] = &[(5, 1), (7, 1)];
        let by = |chains| mapped(&[two, two], &Rules { chains: Some(chains), ..rules() });
        assert_eq!(by(ChainsAs::Fused), "fused: the plan says so: 2x2 of 12 min");
        assert_eq!(by(ChainsAs::Barrier), "barrier: the plan says so: 2x1 of 5 min, 2x1 of 7 min");
        let many = Rules { chains: Some(ChainsAs::Jobs), max_calls: 1, ..rules() };
        assert!(mapped(&[two, two], &many).starts_with("jobs: the plan says so: 1x1"));
        let wide: &[_] = &[(5, 1), (5, 2)];
        let fused = Rules { chains: Some(ChainsAs::Fused), ..rules() };
        assert_eq!(
            mapped(&[wide], &fused),
            "the links of a chain ask for different resources
hint: chains whose links differ in more than `walltime` cannot be fused: leave `chains` out"
        );
    }

    #[test]
    fn behind_a_routing_queue_with_few_places_chains_are_fused() {
        let two: &[_] = &[(5, 1), (7, 1)];
        let why = "the routing queue hands on 3 elements at a time, and those that wait could take the places of those \
                   that they wait for";
        for chains in [None, Some(ChainsAs::Jobs), Some(ChainsAs::Barrier)] {
            let few = Rules { places: Some(Places { width: 3, taken: 0 }), chains, ..rules() };
            assert_eq!(mapped(&[two, two], &few), format!("fused: {why}: 2x2 of 12 min"));
            // All of them fit.
            assert!(!mapped(&[two], &few).starts_with("fused"));
            let wide: &[_] = &[(5, 1), (5, 2)];
            assert_eq!(
                mapped(&[wide, wide], &few),
                format!(
                    "{why}; the links of a chain ask for different resources\nhint: name a queue that runs jobs itself \
                     as `partition`: behind this one only chains that fit one allocation can run"
                )
            );
        }
    }

    #[test]
    fn behind_a_routing_queue_with_few_places_no_array_waits_for_another() {
        let (short, long): (&[_], &[_]) = (&[(5, 1)], &[(6, 1)]);
        let at_most = |width, taken| Rules {
            places: Some(Places { width, taken }),
            max_running: Some(1),
            ..rules()
        };
        let all = "barrier: : 1x1 of 5 min, 1x1 of 6 min";
        assert_eq!(mapped(&[short, long], &at_most(2, 0)), format!("{all} after 0"));
        assert_eq!(mapped(&[short, long], &at_most(1, 0)), all);
        assert_eq!(mapped(&[short, long], &at_most(3, 2)), all);
    }

    #[test]
    fn slurm_needs_no_mapping_but_can_fuse() {
        let two: &[_] = &[(5, 1), (5, 1)];
        let slurm = |chains| Rules { is_elementwise: true, chains, max_calls: 1, ..rules() };
        let plain = "elementwise: : 2x1 of 5 min, 2x1 of 5 min";
        assert_eq!(mapped(&[two, two], &slurm(None)), plain);
        assert_eq!(mapped(&[two, two], &slurm(Some(ChainsAs::Jobs))), plain);
        let fused = mapped(&[two, two], &slurm(Some(ChainsAs::Fused)));
        assert_eq!(fused, "fused: the plan says so: 2x2 of 10 min");
    }

    #[test]
    fn packed_elements_are_fewer_and_take_longer() {
        let (two, one): (&[_], &[_]) = (&[(5, 1), (5, 1)], &[(5, 1)]);
        for is_elementwise in [true, false] {
            let packed = Rules { is_elementwise, pack: Some(3), ..rules() };
            assert_eq!(
                mapped(&[one; 7], &packed),
                "fused: `pack` puts 3 chains into an element: 2x3 of 15 min, 1x1 of 5 min"
            );
            assert_eq!(
                mapped(&[two, one, two], &packed),
                "fused: `pack` puts 3 chains into an element: 1x4 of 20 min, 1x1 of 5 min"
            );
        }
        let short = Rules { pack: Some(3), max_walltime_s: Some(600), ..rules() };
        assert_eq!(
            mapped(&[one; 7], &short),
            "3 trials one after the other take 00:15:00, and a job may take 00:10:00
hint: lower `walltime` or `pack`, or leave `chains` out"
        );
        let wide: &[_] = &[(5, 1), (5, 2)];
        assert!(mapped(&[wide], &short).starts_with("the links of a chain ask for different"));
    }

    #[test]
    fn a_server_that_cannot_throttle_gets_blocks_one_behind_the_other() {
        let old = Rules { cannot_throttle: true, max_running: Some(2), ..rules() };
        let (two, one): (&[_], &[_]) = (&[(5, 1), (5, 1)], &[(5, 1)]);
        assert_eq!(mapped(&[one; 3], &old), "barrier: : 2x1 of 5 min, 1x1 of 5 min after 0");
        assert_eq!(
            mapped(&[two], &old),
            "fused: this server cannot throttle jobs; one allocation fits all links: 1x2 of 10 min"
        );
    }
}
