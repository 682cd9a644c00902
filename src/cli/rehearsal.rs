//! `hpcsweep submit --dry-run`: what would be done now.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};

use super::out::aligned;
use super::{Context, out, plan};
use crate::plan::{Plan, Resources};
use crate::render::Templates;
use crate::scheduler;
use crate::site::{SchedulerKind, Site};
use crate::submit::arrays::mapping::Rules;
use crate::submit::rehearsal::{self, How, Rehearsal, Runs};
use crate::submit::{Source, local, pilots, preview};
use crate::tree::waves::Array;
use crate::words::{count, short};

/// Trials that are shown at most.
const MOST: usize = 40;

/// What was asked for.
pub(super) struct Asked {
    /// Pull mode.
    pub(super) pull: Option<pilots::PilotOptions>,
    /// Of a run on this machine, and `--retry`.
    pub(super) here: local::LocalOptions,
    /// `--max-running`.
    pub(super) max_running: Option<u32>,
    /// `--json`.
    pub(super) json: bool,
}

/// Shows what submitting would do.
pub(super) fn show(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    templates: &Templates,
    asked: &Asked,
    context: &Context,
) -> Result<()> {
    let scheduler = kind.takes_jobs().then_some(kind);
    let shown = scheduler::of(kind);
    let mut rules = plan::rules(source, site, shown.facts());
    if let Some(wish) = asked.max_running {
        rules.max_running = site.caps.running(Some(u64::from(wish)));
    }
    let how = match (&asked.pull, scheduler) {
        (Some(options), _) => How::Pull(scheduler, options),
        (None, Some(kind)) => How::Arrays(kind, &rules),
        (None, None) => How::Local(&asked.here),
    };
    let all = rehearsal::of(source, site, how, asked.here.retry, &context.vars)?;
    if asked.json {
        let scripts = plan::Scripts::new(source, site, templates, &*shown);
        let value = as_json(&all, source, how, &rules, &scripts)?;
        context.out.raw(&crate::tree::to_json_line(&value)?);
        return Ok(());
    }
    if scheduler.is_some() && !all.exists {
        let pull = asked.pull.as_ref();
        return plan::show(source, site, kind, templates, false, false, pull, context);
    }
    context.out.page(&people(&all, &source.plan, how));
    Ok(())
}

fn people(all: &Rehearsal, plan: &Plan, how: How<'_>) -> String {
    let place = if all.exists { "is in" } else { "would be made in" };
    let mut text = format!("sweep {} {place} {}\n", plan.name, all.tree.dir().display());
    let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
    all.runs.iter().for_each(|run| *groups.entry(&run.state).or_default() += 1);
    let verb = if how.scheduler().is_none() { "would run" } else { "would be submitted" };
    if groups.is_empty() {
        text.push_str("nothing would be done\n");
    }
    let new = groups.remove("new").map(|n| ("new", n));
    for (state, n) in new.into_iter().chain(groups) {
        let _ = writeln!(text, "{verb}: {} ({state})", count(n, "trial"));
    }
    for (state, n) in &all.left {
        let _ = writeln!(text, "left alone: {} ({state})", count(*n, "trial"));
    }
    let notes = all.left_alone.iter().chain(&all.notes);
    notes.for_each(|note| text.push_str(&format!("{note}\n")));
    if !all.runs.is_empty() {
        let shown = &all.runs[..all.runs.len().min(MOST)];
        text.push('\n');
        text.push_str(&trials(shown, plan));
        if shown.len() < all.runs.len() {
            let more = (all.runs.len() - shown.len()) as u64;
            let _ = writeln!(text, "... and {} more (--json has all)", count(more, "trial"));
        }
    }
    if !all.arrays.is_empty() && all.units.is_none() {
        text.push('\n');
        text.push_str(&arrays(&all.arrays));
    }
    let why = all.mapped.as_ref().map(|mapped| &mapped.why).filter(|why| !why.is_empty());
    why.into_iter().for_each(|why| text.push_str(&format!("chains: {why}\n")));
    if let Some((units, pilots)) = all.units {
        let _ = writeln!(text, "\nfor agents: {}", count(units, "unit"));
        match pilots {
            Some(0) if units > 0 => text.push_str("no pilots are needed, there are some\n"),
            Some(0) | None => {}
            Some(n) => {
                let _ = writeln!(text, "would be submitted: {}", count(n, "pilot"));
            }
        }
    }
    if let Some(here) = all.here.as_ref().filter(|_| !all.runs.is_empty()) {
        if all.units.is_none() {
            text.push('\n');
        }
        let (how, cores) = (out::at_a_time(here.at_once), count(here.cores as u64, "core"));
        let _ = writeln!(text, "on this machine: {how}, {cores}");
        if !here.gpus.is_empty() {
            let _ = writeln!(text, "{}", here.gpus);
        }
    }
    text
}

fn trials(runs: &[Runs], plan: &Plan) -> String {
    let head = ["trial", "state", "parameters"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            let params = plan.trials[run.place].params.iter();
            let params: Vec<String> =
                params.map(|(name, value)| format!("{name}={value}")).collect();
            vec![run.trial.to_string(), run.state.clone(), short(&params.join(" "), 120)]
        })
        .collect();
    aligned(&head, &rows)
}

fn arrays(all: &[Array]) -> String {
    let head = ["array", "link", "elements", "after", "request"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|array| {
            let before: Vec<String> =
                array.after.iter().chain(&array.wait).map(ToString::to_string).collect();
            let after = if before.is_empty() { "-".to_owned() } else { before.join(", ") };
            let request = preview::request_words(&array.resources);
            let numbers = [u64::from(array.array), u64::from(array.link), array.count];
            numbers.map(|n| n.to_string()).into_iter().chain([after, request]).collect()
        })
        .collect();
    aligned(&head, &rows)
}

/// The one form that a rehearsal has as JSON, whatever is submitted where: `docs/plan.md` has its members.
fn as_json(
    all: &Rehearsal,
    source: &Source,
    how: How<'_>,
    rules: &Rules,
    scripts: &plan::Scripts<'_>,
) -> Result<Value> {
    let plan = &source.plan;
    let task = |place: usize| plan.trials[place].task_id.as_ref().map(ToString::to_string);
    let run = |run: &Runs| {
        let trial = &plan.trials[run.place];
        json!({
            "trial": run.trial, "state": run.state, "task_id": task(run.place),
            "chain": run.chain.0, "link": run.chain.1,
            "gpu_ids_abs": trial.gpu_ids_abs.as_deref(), "params": trial.params,
        })
    };
    let array = |array: &Array| -> Result<Value> {
        Ok(json!({
            "array": array.array, "block": array.block, "link": array.link, "count": array.count,
            "links": array.links, "after": array.after, "wait": array.wait,
            "directives": scripts.directives(array)?,
        }))
    };
    let mut chains: BTreeMap<u64, Option<String>> = BTreeMap::new();
    all.runs.iter().for_each(|run| drop(chains.insert(run.chain.0, task(run.place))));
    let pilots = all.arrays.iter().find(|array| array.pilot.is_some());
    let hours = |of: fn(&Resources) -> u64| match pilots {
        Some(array) => hours([(&array.resources, array.count)], of),
        None => hours(all.runs.iter().map(|run| (&*plan.trials[run.place].resources, 1)), of),
    };
    let scheduler = how.scheduler();
    let calls = all.arrays.len();
    Ok(json!({
        "sweep": plan.name,
        "root": plan.root,
        "dir": all.tree.dir(),
        "exists": all.exists,
        "scheduler": scheduler.map(SchedulerKind::word),
        "trials": all.runs.iter().map(run).collect::<Vec<_>>(),
        "chains": chains.into_values().collect::<Vec<_>>(),
        "left": all.left,
        "dropped": all.dropped,
        "arrays": all.arrays.iter().map(array).collect::<Result<Vec<_>>>()?,
        "chains_as": all.mapped.as_ref().map(|mapped| mapped.mapping.word()),
        "chains_why": all.mapped.as_ref().map_or("", |mapped| &mapped.why),
        "max_array_size": scheduler.map(|_| rules.elements),
        "submit_calls": calls,
        "scheduler_calls": if scheduler.is_some() { calls + 2 } else { 0 },
        "units": all.units.map(|(units, _)| units),
        "pilots": all.units.and_then(|(_, pilots)| pilots),
        "slots": pilots.and_then(|array| array.pilot).and_then(|pilot| pilot.slots),
        "at_once": all.here.as_ref().map(|here| here.at_once),
        "cores": all.here.as_ref().map(|here| here.cores),
        "gpus": all.here.as_ref().map(|here| &here.gpus),
        "core_hours": hours(Resources::cores),
        "gpu_hours": hours(Resources::total_gpus),
        "notes": all.left_alone.iter().chain(&all.notes).collect::<Vec<_>>(),
    }))
}

/// What so many of each request ask for over their walltimes; `None` where one has no walltime.
fn hours<'a>(
    all: impl IntoIterator<Item = (&'a Resources, u64)>,
    of: fn(&Resources) -> u64,
) -> Option<f64> {
    let one = |(request, n): (&Resources, u64)| match of(request) * n {
        0 => Some(0.0),
        amount => Some(amount as f64 * request.walltime_s? as f64 / 3600.0),
    };
    // An empty sum is -0.
    all.into_iter().map(one).sum::<Option<f64>>().map(|hours| hours + 0.0)
}
