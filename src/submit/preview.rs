//! A preview of a plan: its trials, chains, arrays, calls and the hours it asks for. Writes nothing and calls no command.

use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;

use super::{Source, check_caps, refuse_share};
use crate::base::host::gpus::DeviceId;
use crate::base::units;
use crate::cluster::graph::shapes::Shapes;
use crate::cluster::graph::{self, Graph, Mapping, Node};
use crate::cluster::render::Templates;
use crate::cluster::scheduler::{self, Facts};
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{Params, Resources, TaskId};
use crate::submit::arrays::mapping::{self, Mapped, Rules};
use crate::submit::arrays::scripts::{Scripts, Shown};
use crate::submit::arrays::wave;
use crate::submit::pilots::{Ask, PilotOptions};
use crate::sweep::tree::waves::{Array, Pilot};

/// A trial of the plan, as JSON shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Trial<'a> {
    /// Its number in the plan, from 0.
    pub(crate) trial: u64,
    /// The name of its chain as text; `None` without a `task_id`.
    pub(crate) task_id: Option<String>,
    /// The number of its chain, from 0.
    pub(crate) chain: u32,
    /// Place in the chain.
    pub(crate) link: u32,
    /// Physical devices, if the plan names them.
    pub(crate) gpu_ids_abs: Option<&'a [DeviceId]>,
    /// Parameters with their values, as nested tables.
    pub(crate) params: &'a Params,
}

/// What the first submission of a plan would do.
pub(crate) struct Preview<'a> {
    /// The plan that is previewed.
    pub(crate) source: &'a Source,
    /// The scheduler that it is planned for.
    pub(crate) facts: &'static Facts,
    /// Its arrays, and which trials they run.
    pub(crate) graph: Graph,
    /// The same, as they are shown.
    pub(crate) arrays: Vec<Shown>,
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
    /// What is asked for.
    pub(crate) hours: Hours,
    /// The distinct requests, by the number that arrays refer to.
    pub(crate) shapes: Vec<Arc<Resources>>,
}

/// Plans a first submission to a scheduler; a plan that runs here is shown as the arrays it would be. `pilots`: in pull
/// mode. `rules`: what decides about arrays, where the scheduler was asked.
///
/// # Errors
/// When the plan breaks a cap of the site, its chains cannot be mapped as it wants, or a script cannot be rendered.
pub(crate) fn of<'a>(
    source: &'a Source,
    site: &Site,
    kind: SchedulerKind,
    templates: &Templates,
    pilots: Option<&PilotOptions>,
    rules: Option<Rules>,
) -> Result<Preview<'a>> {
    let scheduler = scheduler::of(kind);
    let facts = scheduler.facts();
    let plan = &source.plan;
    if plan.run.program.is_empty() {
        plan.run.refuse_function(|| source.author())?;
    }
    check_caps(source, site, facts.kind)?;
    if pilots.is_none() && kind != SchedulerKind::Local {
        refuse_share(plan)?;
    }
    let rules = rules.unwrap_or_else(|| Rules::of(plan, site, facts));
    let (nodes, mut shapes) = graph::shapes::of_plan(&plan.trials);
    let (places, chains, longest) = chains(source, &nodes);
    let (graph, mapped, pilots) = match pilots.map(|options| Ask::of(plan, options)) {
        None => {
            let (graph, mapped) = mapping::map(&nodes, &mut shapes, &[], 0, &rules)?;
            (graph, mapped, None)
        }
        Some(ask) => {
            let n = ask.count(chains.len() as u64);
            let graph = of_pilots(&ask, n, &mut shapes, chains.len(), longest);
            let mapped = Mapped { mapping: Mapping::Elementwise, why: String::new() };
            (graph, mapped, Some((ask.words(n), Pilot { slots: ask.slots })))
        }
    };
    let mut counts = vec![0u64; shapes.list.len()];
    match &pilots {
        None => nodes.iter().for_each(|node| counts[node.shape as usize] += 1),
        Some(_) => graph.arrays.iter().for_each(|a| counts[a.shape as usize] += a.count as u64),
    }
    let asked = || shapes.list.iter().map(|r| &**r).zip(counts.iter().copied());
    let scripts = Scripts::new(source, site, templates, &*scheduler);
    let shown = |(i, a): (usize, &graph::Array)| {
        let array = wave::array(1, i, a, Resources::clone(&shapes.list[a.shape as usize]));
        scripts.shown(&Array { pilot: pilots.as_ref().map(|(_, pilot)| *pilot), ..array })
    };
    Ok(Preview {
        source,
        facts,
        arrays: graph.arrays.iter().enumerate().map(shown).collect::<Result<_>>()?,
        graph,
        places,
        chains,
        element_limit: rules.elements,
        pilots,
        mapped,
        hours: Hours::of(asked()),
        shapes: shapes.list,
    })
}

/// Chain and link of each trial, the names of the chains, and the links of the longest one.
fn chains(source: &Source, nodes: &[Node]) -> (Vec<(u32, u32)>, Vec<Option<TaskId>>, u32) {
    let mut links: Vec<u32> = Vec::new();
    let mut chains: Vec<Option<TaskId>> = Vec::new();
    let mut places = Vec::with_capacity(nodes.len());
    for (node, trial) in nodes.iter().zip(&source.plan.trials) {
        let chain = node.chain as usize;
        if chain >= links.len() {
            links.push(0);
            chains.push(trial.task_id.clone());
        }
        places.push((node.chain, links[chain]));
        links[chain] += 1;
    }
    (places, chains, links.into_iter().max().unwrap_or(0))
}

/// So many pilots as a graph.
fn of_pilots(ask: &Ask, n: u64, shapes: &mut Shapes, chains: usize, longest: u32) -> Graph {
    let shape = shapes.number(&Arc::new(ask.request.clone()));
    Graph::of_pilots(n as usize, shape, chains, longest as usize)
}

/// What requests ask for over their walltimes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Hours {
    /// Cores times hours; `None` where a trial has no walltime.
    #[serde(rename = "core_hours")]
    pub(crate) core: Option<f64>,
    /// GiB of memory times hours; `None` also where a trial asks for no memory.
    #[serde(rename = "gb_hours")]
    pub(crate) gb: Option<f64>,
    /// GPUs times hours; 0 without GPUs.
    #[serde(rename = "gpu_hours")]
    pub(crate) gpu: Option<f64>,
}

impl Hours {
    /// Those of so many of each request.
    pub(crate) fn of<'r>(all: impl Iterator<Item = (&'r Resources, u64)> + Clone) -> Self {
        Self {
            core: hours(all.clone(), |r| Some(r.cores() as f64)),
            gb: hours(all.clone(), Resources::memory_gib),
            gpu: hours(all, |r| Some(r.total_gpus() as f64)),
        }
    }

    /// Each with its name.
    pub(crate) fn named(self) -> [(&'static str, Option<f64>); 3] {
        [("core", self.core), ("GB", self.gb), ("GPU", self.gpu)]
    }
}

/// What so many of each request ask for over their walltimes, in hours.
fn hours<'r>(
    all: impl Iterator<Item = (&'r Resources, u64)>,
    of: fn(&Resources) -> Option<f64>,
) -> Option<f64> {
    let one = |(request, n): (&Resources, u64)| match of(request)? * n as f64 {
        0.0 => Some(0.0),
        amount => Some(amount * request.walltime_s? as f64 / 3600.0),
    };
    // An empty sum is -0.
    all.map(one).sum::<Option<f64>>().map(|hours| hours + 0.0)
}

impl Preview<'_> {
    /// Scheduler calls that a first submission makes: two questions, then one call an array.
    pub(crate) fn calls(&self) -> usize {
        2 + self.graph.arrays.len()
    }

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

    /// All of it as one document: `docs/plan.md` has its members.
    pub(crate) fn document(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Document<'a> {
            sweep: &'a str,
            root: &'a str,
            trials: Vec<Trial<'a>>,
            chains: Vec<Option<String>>,
            arrays: &'a [Shown],
            scheduler_calls: usize,
            scheduler: &'static str,
            submit_calls: usize,
            chains_as: &'static str,
            chains_why: &'a str,
            pilots: Option<Pilot>,
            max_array_size: u64,
            #[serde(flatten)]
            hours: Hours,
        }
        Document {
            sweep: &self.source.plan.name,
            root: &self.source.plan.root,
            trials: (0..self.source.plan.trials.len()).map(|i| self.trial(i)).collect(),
            chains: self.chains.iter().map(|id| id.as_ref().map(ToString::to_string)).collect(),
            arrays: &self.arrays,
            scheduler_calls: self.calls(),
            scheduler: self.facts.kind.word(),
            submit_calls: self.arrays.len(),
            chains_as: self.mapped.mapping.word(),
            chains_why: &self.mapped.why,
            pilots: self.pilots.as_ref().map(|(_, pilot)| *pilot),
            max_array_size: self.element_limit,
            hours: self.hours,
        }
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
