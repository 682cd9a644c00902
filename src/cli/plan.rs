//! `hpcsweep plan`: what a plan would do. Writes nothing, calls nobody.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::out::aligned;
use super::target::Target;
use super::{Context, equal, script};
use crate::collect::text;
use crate::graph::Mapping;
use crate::plan::{Mode, OnFailure};
use crate::render::Templates;
use crate::render::context::{self as names, SiteWords};
use crate::scheduler::{self, Facts, Limits, Scheduler};
use crate::site::{SchedulerKind, Site};
use crate::submit::arrays::mapping::{Mapped, Rules};
use crate::submit::pilots::{self, Ask};
use crate::submit::preview::{self, Preview};
use crate::submit::{self, Source};
use crate::tree::Tree;
use crate::tree::waves::{self, Pilot};
use crate::words::{count, thousands};

/// Show what a plan would do: trials, chains, arrays, directives, calls, hours; writes nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan, or a Python script with a sweep: it is run up to there
    plan: PathBuf,
    /// Arguments of the script
    #[arg(last = true)]
    arguments: Vec<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Show every trial, however many there are
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    target: Target<false>,
    /// Use the edited templates of this folder
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let source = script::preview(&args.plan, &args.arguments, context)?;
    let kind = args.target.kind(&site);
    let pull = source.plan.schedule.mode == Mode::Pull || source.plan.run.function.is_some();
    let pilots = pull.then(pilots::PilotOptions::default);
    let templates = source.templates(args.templates.as_deref(), &site)?;
    show(&source, &site, kind, &templates, args.json, args.all, pilots.as_ref(), context)?;
    equal::warn_of_equal(&source.plan, context);
    Ok(0)
}

/// Prints the preview of a plan; also `submit --dry-run` of a new sweep for a scheduler. `pilots`: in pull mode.
#[expect(clippy::too_many_arguments, reason = "what two verbs have chosen")]
pub(super) fn show(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    templates: &Templates,
    json: bool,
    all: bool,
    pilots: Option<&pilots::PilotOptions>,
    context: &Context,
) -> Result<()> {
    // A plan that runs here is shown as the arrays it would be.
    let scheduler = scheduler::of(kind);
    let facts = scheduler.facts();
    if source.plan.run.program.is_empty() {
        source.plan.run.refuse_function(|| source.author())?;
    }
    submit::check_caps(source, site, facts.kind)?;
    if pilots.is_none() && kind != SchedulerKind::Local {
        submit::refuse_share(&source.plan)?;
    }
    let rules = rules(source, site, facts);
    let pilots = pilots.map(|options| Ask::of(&source.plan, options));
    let preview = preview::of(source, &rules, pilots.as_ref())?;
    let scripts = Scripts::new(source, site, templates, &*scheduler);
    let arrays = render(&preview, &scripts)?;
    if json {
        write_json(&preview, &arrays, facts, context)
    } else {
        context.out.page(&people(&preview, &arrays, facts, all));
        Ok(())
    }
}

/// What decides about arrays, by plan and site profile alone.
pub(super) fn rules(source: &Source, site: &Site, facts: &Facts) -> Rules {
    let limits = Limits {
        max_array_size: site
            .limits
            .max_array_size
            .or(Some(facts.elements))
            .map(|size| site.caps.max_array_size.map_or(size, |cap| size.min(cap))),
        max_array_tasks: site.limits.max_array_tasks,
        ..Limits::default()
    };
    Rules {
        is_elementwise: facts.is_elementwise,
        chains: source.plan.schedule.chains,
        pack: source.plan.schedule.pack,
        elements: limits.elements(),
        max_calls: site.limits.max_calls,
        max_walltime_s: site.caps.max_walltime_s,
        max_running: site.caps.running(source.plan.schedule.max_running.map(u64::from)),
        cannot_throttle: false,
        places: None,
    }
}

/// Renders every array's script and returns its directives.
fn render(preview: &Preview<'_>, scripts: &Scripts<'_>) -> Result<Vec<preview::Array>> {
    let one = |(i, a): (usize, &crate::graph::Array)| {
        let array = waves::Array {
            array: i as u32 + 1,
            block: a.block,
            link: a.link,
            first: a.first as u64,
            count: a.count as u64,
            links: a.links as u64,
            single: a.single,
            after: None,
            wait: Vec::new(),
            on_failure: OnFailure::Stop,
            resources: (*preview.shapes[a.shape as usize]).clone(),
            walltimes_s: Vec::new(),
            pilot: preview.pilots.as_ref().map(|(_, pilot)| *pilot),
        };
        Ok(preview::Array {
            array: i + 1,
            block: a.block,
            link: a.link,
            count: a.count,
            links: a.links,
            after: a.after.map(|p| p + 1),
            wait: a.wait.iter().map(|p| p + 1).collect(),
            directives: scripts.directives(&array)?,
        })
    };
    preview.graph.arrays.iter().enumerate().map(one).collect()
}

/// The job scripts of a plan, as far as they are known before its sweep is there.
pub(super) struct Scripts<'a> {
    source: &'a Source,
    templates: &'a Templates,
    tree: Tree,
    words: SiteWords<'a>,
    max_running: Option<u64>,
}

impl<'a> Scripts<'a> {
    pub(super) fn new(
        source: &'a Source,
        site: &Site,
        templates: &'a Templates,
        scheduler: &'a dyn Scheduler,
    ) -> Self {
        let tree = source.tree();
        let words = SiteWords {
            environment: Some(tree.dir().join("jobs/env.sh")),
            ..SiteWords::of(site, scheduler, &source.plan.run)
        };
        let wish = source.plan.schedule.max_running.map(u64::from);
        let max_running = site.caps.running(wish);
        Self { source, templates, tree, words, max_running }
    }

    /// The directives of an array, as its template renders them.
    pub(super) fn directives(&self, array: &waves::Array) -> Result<Vec<String>> {
        let facts = self.words.scheduler.facts();
        let sweep = &self.source.plan.name;
        let script = names::job_script(
            sweep,
            self.tree.dir(),
            format!("{sweep}.<token>.{}", array.array),
            array,
            self.max_running,
            &self.words,
            vec!["hpcsweep".to_owned(), "worker".to_owned()],
        );
        let text = self.templates.render(facts.template, &names::of(&script)?)?;
        let directives = text.lines().filter_map(|l| l.strip_prefix(facts.directive));
        Ok(directives.map(str::to_owned).collect())
    }
}

fn people(preview: &Preview<'_>, arrays: &[preview::Array], facts: &Facts, all: bool) -> String {
    let mut text = String::new();
    let plan = &preview.source.plan;
    let n = plan.trials.len();
    let _ = writeln!(
        text,
        "sweep {}: {} in {}, the longest of {}\n",
        plan.name,
        count(n as u64, "trial"),
        count(preview.graph.chains as u64, "chain"),
        count(preview.graph.longest as u64, "link"),
    );
    let shown = if all || n <= 40 { n } else { 20 };
    text.push_str(&trials(preview, shown));
    if shown < n {
        let _ = writeln!(text, "... and {} more (--all shows them)", thousands((n - shown) as u64));
    }
    text.push('\n');
    if preview.graph.longest > 1 {
        text.push_str(&times(preview, all));
        text.push('\n');
    }
    let elements = if preview.pilots.is_some() { "pilots" } else { "elements" };
    let head: Vec<String> =
        ["array", "block", "link", elements, "after", "request"].map(str::to_owned).to_vec();
    let most = if all || arrays.len() <= 40 { arrays.len() } else { 20 };
    let rows: Vec<Vec<String>> = arrays[..most]
        .iter()
        .zip(&preview.graph.arrays)
        .map(|(a, planned)| {
            vec![
                a.array.to_string(),
                a.block.to_string(),
                a.link.to_string(),
                a.count.to_string(),
                after(preview, planned, a),
                preview.request(planned),
            ]
        })
        .collect();
    text.push_str(&aligned(&head, &rows));
    if most < arrays.len() {
        let _ = writeln!(
            text,
            "... and {} more (--all shows them)",
            thousands((arrays.len() - most) as u64)
        );
    }
    let (prefix, call) = (facts.directive, facts.submits);
    let mut shown: Vec<u32> = Vec::new();
    for (array, planned) in arrays.iter().zip(&preview.graph.arrays) {
        if shown.contains(&planned.shape) || (shown.len() >= 3 && !all) {
            continue;
        }
        shown.push(planned.shape);
        let _ = writeln!(text, "\ndirectives of array {}:", array.array);
        for directive in &array.directives {
            let _ = writeln!(text, "  {prefix}{directive}");
        }
    }
    if !preview.mapped.why.is_empty() {
        let Mapped { mapping, why } = &preview.mapped;
        let _ = writeln!(text, "\nchains as {}: {why}", mapping.word());
    }
    let what = preview.pilots.as_ref().map_or_else(
        || format!("arrays of at most {} elements", thousands(preview.element_limit)),
        |(words, _)| words.clone(),
    );
    let hours =
        |h: Option<f64>| h.map_or_else(|| "unknown (no walltime)".into(), |h| format!("{h:.2}"));
    let _ = writeln!(
        text,
        "\nscheduler calls to submit: {} ({} of {call}, {what})\ncore-hours asked for: {}\nGPU-hours asked for: {}",
        thousands(preview.calls() as u64),
        thousands(arrays.len() as u64),
        hours(preview.core_hours),
        hours(preview.gpu_hours),
    );
    text.push_str(facts.unasked);
    text
}

/// What an array waits for, in words.
fn after(preview: &Preview<'_>, planned: &crate::graph::Array, array: &preview::Array) -> String {
    let follows = array.after.map(|parent| match preview.mapped.mapping {
        Mapping::Elementwise => format!("array {parent}, element by element"),
        _ if planned.single => format!("job {parent}"),
        _ => format!("array {parent} as a whole"),
    });
    let whole = match array.wait[..] {
        [] => None,
        [one] => Some(format!("array {one} as a whole")),
        [first, .., last] => Some(format!("arrays {first} to {last} as a whole")),
    };
    let all: Vec<String> = follows.into_iter().chain(whole).collect();
    if all.is_empty() { "-".to_owned() } else { all.join("; ") }
}

fn trials(preview: &Preview<'_>, shown: usize) -> String {
    let plan = &preview.source.plan;
    let mut head: Vec<String> = ["trial", "task_id", "link"].map(str::to_owned).to_vec();
    let fixed = head.len();
    let mut index: HashMap<String, usize> = HashMap::new();
    for trial in &plan.trials[..shown] {
        for (name, _) in trial.params.iter() {
            if !index.contains_key(name) {
                index.insert(name.to_owned(), head.len());
                head.push(name.to_owned());
            }
        }
    }
    let gpus = plan.trials[..shown].iter().any(|t| t.gpu_ids_abs.is_some());
    if gpus {
        head.push("gpu_ids_abs".into());
    }
    debug_assert!(head.len() >= fixed);
    let rows: Vec<Vec<String>> = (0..shown)
        .map(|i| {
            let t = preview.trial(i);
            let mut row = vec![String::new(); head.len()];
            row[0] = i.to_string();
            row[1] = t.task_id.clone().unwrap_or_else(|| "-".into());
            row[2] = t.link.to_string();
            for (name, value) in t.params.iter() {
                row[index[name]] = value.to_string();
            }
            if let (true, Some(ids)) = (gpus, t.gpu_ids_abs) {
                row[head.len() - 1] = text(&json!(ids));
            }
            row
        })
        .collect();
    aligned(&head, &rows)
}

/// The time x chain table: a column a chain, a row a link.
fn times(preview: &Preview<'_>, all: bool) -> String {
    let plan = &preview.source.plan;
    let most = if all { usize::MAX } else { 8 };
    let depth = if all { usize::MAX } else { 20 };
    // A parameter that every trial shares tells nothing.
    let first = &plan.trials[0].params;
    let varies =
        |name: &str| plan.trials.iter().take(10_000).any(|t| t.params.get(name) != first.get(name));
    let mut memory: HashMap<String, bool> = HashMap::new();
    let chains: Vec<usize> = (0..preview.chains.len()).take(most).collect();
    let mut head = vec!["time".to_owned()];
    head.extend(chains.iter().map(|&c| {
        preview.chains[c]
            .as_ref()
            .map_or_else(|| format!("chain {c}"), |id| format!("task_id {id}"))
    }));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (i, &(chain, link)) in preview.places.iter().enumerate() {
        let (chain, link) = (chain as usize, link as usize);
        if chain >= chains.len() || link >= depth {
            continue;
        }
        while rows.len() <= link {
            let time = if rows.is_empty() { "t".to_owned() } else { format!("t+{}", rows.len()) };
            let mut row = vec![String::new(); head.len()];
            row[0] = time;
            rows.push(row);
        }
        let trial = &plan.trials[i];
        let mut words: Vec<String> = trial
            .params
            .iter()
            .filter(|(name, _)| *memory.entry((*name).to_owned()).or_insert_with(|| varies(name)))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if let Some(ids) = &trial.gpu_ids_abs {
            words.push(format!("gpu={}", text(&json!(**ids))));
        }
        rows[link][chain + 1] =
            if words.is_empty() { format!("trial {i}") } else { words.join(" ") };
    }
    let mut table = aligned(&head, &rows);
    if preview.chains.len() > chains.len() {
        let more = thousands((preview.chains.len() - chains.len()) as u64);
        let _ = writeln!(table, "... and {more} more chains (--all shows them)");
    }
    table
}

fn write_json(
    preview: &Preview<'_>,
    arrays: &[preview::Array],
    facts: &Facts,
    context: &Context,
) -> Result<()> {
    let plan = &preview.source.plan;
    let trials: Vec<preview::Trial<'_>> =
        (0..plan.trials.len()).map(|i| preview.trial(i)).collect();
    let chains: Vec<serde_json::Value> = preview
        .chains
        .iter()
        .map(|c| c.as_ref().map_or(serde_json::Value::Null, |id| json!(id.to_string())))
        .collect();
    #[derive(serde::Serialize)]
    struct Shown<'a> {
        sweep: &'a str,
        root: &'a str,
        trials: Vec<preview::Trial<'a>>,
        chains: Vec<serde_json::Value>,
        arrays: &'a [preview::Array],
        scheduler_calls: usize,
        scheduler: &'static str,
        submit_calls: usize,
        chains_as: &'static str,
        chains_why: &'a str,
        pilots: Option<Pilot>,
        max_array_size: u64,
        core_hours: Option<f64>,
        gpu_hours: Option<f64>,
    }
    let shown = Shown {
        sweep: &plan.name,
        root: &plan.root,
        trials,
        chains,
        arrays,
        scheduler_calls: preview.calls(),
        scheduler: facts.kind.word(),
        submit_calls: arrays.len(),
        chains_as: preview.mapped.mapping.word(),
        chains_why: &preview.mapped.why,
        pilots: preview.pilots.as_ref().map(|(_, pilot)| *pilot),
        max_array_size: preview.element_limit,
        core_hours: preview.core_hours,
        gpu_hours: preview.gpu_hours,
    };
    context.out.raw(&crate::tree::to_json_line(&shown)?);
    Ok(())
}
