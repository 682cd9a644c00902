//! A preview of a plan: its trials, chains, arrays, calls and the hours it asks for. Writes nothing.

use serde::Serialize;

use super::Source;
use crate::graph::{self, Graph, Mapping};
use crate::host::gpus::DeviceId;
use crate::plan::{Params, TaskId};
use crate::submit::arrays::mapping::{self, Mapped, Rules};
use crate::submit::pilots::Ask;
use crate::tree::waves::Pilot;
use crate::units;

/// A planned array.
#[derive(Debug, Serialize)]
pub(crate) struct Array {
    /// Number, from 1.
    pub(crate) array: usize,
    /// Block, from 0.
    pub(crate) block: u32,
    /// Link, from 0.
    pub(crate) link: u32,
    /// Elements.
    pub(crate) count: usize,
    /// Trials that each element runs one after the other.
    pub(crate) links: usize,
    /// The array it follows: element by element where the scheduler can, else as a whole.
    pub(crate) after: Option<usize>,
    /// Arrays that must have ended before it begins, to keep to `max_running`.
    pub(crate) wait: Vec<usize>,
    /// Its directives, as the template renders them.
    pub(crate) directives: Vec<String>,
}

/// A planned trial.
#[derive(Debug, Serialize)]
pub(crate) struct Trial<'a> {
    /// Number, from 0.
    pub trial: u64,
    /// The chain's name.
    pub(crate) task_id: Option<String>,
    /// Chain, from 0.
    pub(crate) chain: u32,
    /// Place in the chain.
    pub(crate) link: u32,
    /// Physical devices.
    pub(crate) gpu_ids_abs: Option<&'a [DeviceId]>,
    /// Parameters, nested.
    pub params: &'a Params,
}

/// The whole preview.
pub(crate) struct Preview<'a> {
    /// The plan.
    pub(crate) source: &'a Source,
    /// Its arrays.
    pub(crate) graph: Graph,
    /// Chain and link of each trial.
    pub(crate) places: Vec<(u32, u32)>,
    /// Names of the chains; empty for a trial without a task id.
    pub(crate) chains: Vec<Option<TaskId>>,
    /// Largest array under the limits used.
    pub(crate) element_limit: u64,
    /// In pull mode, the pilots that are the one array: in words, and as a wave has them.
    pub(crate) pilots: Option<(String, Pilot)>,
    /// How chains become jobs, and why.
    pub(crate) mapped: Mapped,
    /// Core-hours asked for: cores times walltime, summed; `None` when a trial has no walltime.
    pub(crate) core_hours: Option<f64>,
    /// GPU-hours asked for.
    pub(crate) gpu_hours: Option<f64>,
    /// The distinct requests, by the number that arrays refer to.
    pub(crate) shapes: Vec<std::sync::Arc<crate::plan::Resources>>,
}

/// Plans without touching anything; `ask` is what pull mode asks for.
///
/// # Errors
/// When chains cannot be mapped as the plan wants.
pub(crate) fn of<'a>(
    source: &'a Source,
    rules: &Rules,
    ask: Option<&Ask>,
) -> anyhow::Result<Preview<'a>> {
    let trials = &source.plan.trials;
    let (nodes, mut shapes) = graph::shapes::of_plan(trials);
    let mut links: Vec<u32> = Vec::new();
    let mut chains: Vec<Option<TaskId>> = Vec::new();
    let mut places = Vec::with_capacity(nodes.len());
    for (node, trial) in nodes.iter().zip(trials) {
        let chain = node.chain as usize;
        if chain >= links.len() {
            links.push(0);
            chains.push(trial.task_id.clone());
        }
        places.push((node.chain, links[chain]));
        links[chain] += 1;
    }
    let mut counts = vec![0u64; shapes.list.len()];
    for node in &nodes {
        counts[node.shape as usize] += 1;
    }
    let pilots = ask.map(|ask| {
        let n = ask.count(links.len() as u64);
        let shape = shapes.number(&std::sync::Arc::new(ask.request.clone()));
        counts = vec![0; shapes.list.len()];
        counts[shape as usize] = n;
        (n, shape, ask)
    });
    let hours = |of: &dyn Fn(&crate::plan::Resources) -> u64| -> Option<f64> {
        shapes
            .list
            .iter()
            .zip(&counts)
            .map(|(r, &n)| {
                let amount = of(r);
                if amount == 0 || n == 0 {
                    return Some(0.0);
                }
                Some(amount as f64 * n as f64 * r.walltime_s? as f64 / 3600.0)
            })
            .sum()
    };
    let (core_hours, gpu_hours) = (hours(&|r| r.cores()), hours(&|r| r.total_gpus()));
    let (graph, mapped) = match pilots {
        None => mapping::map(&nodes, &mut shapes, &[], 0, rules)?,
        Some((n, shape, _)) => {
            let longest = links.iter().max().map_or(0, |&n| n as usize);
            let graph = Graph::of_pilots(n as usize, shape, links.len(), longest);
            (graph, Mapped { mapping: Mapping::Elementwise, why: String::new() })
        }
    };
    let pilots = pilots.map(|(n, _, ask)| (ask.words(n), Pilot { slots: ask.slots }));
    Ok(Preview {
        source,
        graph,
        places,
        chains,
        element_limit: rules.elements,
        pilots,
        mapped,
        core_hours,
        gpu_hours,
        shapes: shapes.list,
    })
}

impl Preview<'_> {
    /// Scheduler calls that a first submission makes: two questions, then one call an array.
    pub(crate) fn calls(&self) -> usize {
        2 + self.graph.arrays.len()
    }

    /// One trial.
    pub(crate) fn trial(&self, i: usize) -> Trial<'_> {
        let trial = &self.source.plan.trials[i];
        let (chain, link) = self.places[i];
        Trial {
            trial: i as u64,
            task_id: trial.task_id.as_ref().map(ToString::to_string),
            chain,
            link,
            gpu_ids_abs: trial.gpu_ids_abs.as_deref(),
            params: &trial.params,
        }
    }

    /// What an array asks for, in the plan's own words.
    pub(crate) fn request(&self, array: &graph::Array) -> String {
        request_words(&self.shapes[array.shape as usize])
    }
}

/// A request in the plan's own words.
pub(crate) fn request_words(r: &crate::plan::Resources) -> String {
    let mut words = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("{name}={value}"));
        }
    };
    say("nodes", Some(r.nodes.to_string()));
    say("ranks", Some(r.ranks.to_string()));
    say("cpus_per_rank", Some(r.cpus_per_rank.to_string()));
    say("gpus", (r.total_gpus() > 0).then(|| r.total_gpus().to_string()));
    say("memory", r.memory_mib.map(units::memory_text));
    say("walltime", r.walltime_s.map(units::walltime_text));
    say("partition", r.partition.clone());
    say("account", r.account.clone());
    say("qos", r.qos.clone());
    say("constraint", r.constraint.clone());
    words.join(" ")
}
