//! `hpcsweep submit --dry-run`: what would be done now.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;

use super::out::aligned;
use super::{Context, out, plan};
use crate::base::words::{count, short};
use crate::cluster::render::Templates;
use crate::cluster::scheduler;
use crate::plan::Plan;
use crate::plan::site::{SchedulerKind, Site};
use crate::submit::arrays::batch::ArrayOptions;
use crate::submit::arrays::scripts::Scripts;
use crate::submit::rehearsal::{self, How, Rehearsal, Runs};
use crate::submit::{Source, local, pilots, preview};
use crate::sweep::tree::waves::Array;

/// Trials that are shown at most.
const MOST: usize = 40;

/// The options of `submit` that a rehearsal takes into account.
pub(super) struct Asked {
    /// The options of the pilots; `None` unless in pull mode.
    pub(super) pull: Option<pilots::PilotOptions>,
    /// Of a run on this machine, and `--retry`.
    pub(super) here: local::LocalOptions,
    /// `--max-running`; `None` without the option.
    pub(super) max_running: Option<u32>,
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
    let retry = &asked.here.retry;
    let max_running = asked.max_running.map(u64::from);
    let options = ArrayOptions { max_running, retry: retry.clone(), ..ArrayOptions::default() };
    let how = match (&asked.pull, scheduler) {
        (Some(options), _) => How::Pull(scheduler, options),
        (None, Some(kind)) => How::Arrays(kind, &options),
        (None, None) => How::Local(&asked.here),
    };
    let mut all = rehearsal::of(source, site, how, retry, &context.vars)?;
    let shown = scheduler::of(kind);
    let scripts = Scripts::new(source, site, templates, &*shown);
    all.ask_start(&scripts)?;
    let expected = all.forecast.as_ref().map(|forecast| forecast.lines(all.longest_s()));
    let expected: String = expected.into_iter().flatten().map(|line| line + "\n").collect();
    if asked.json {
        context.out.json(&all.document(source, &scripts)?)?;
    } else if scheduler.is_some() && !all.exists && !all.is_portion {
        let (pull, rules) = (asked.pull.as_ref(), all.rules.clone());
        let preview = preview::of(source, site, kind, templates, pull, rules)?;
        let notes: String = all.notes.iter().map(|note| format!("{note}\n")).collect();
        context.out.page(&(plan::people(&preview, false) + &expected + &notes));
    } else {
        context.out.page(&(people(&all, &source.plan) + &expected));
    }
    Ok(())
}

fn people(all: &Rehearsal, plan: &Plan) -> String {
    let place = if all.exists { "is in" } else { "would be made in" };
    let mut text = format!("sweep {} {place} {}\n", plan.name, all.tree.dir().display());
    let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
    all.runs.iter().for_each(|run| *groups.entry(&run.state).or_default() += 1);
    let verb = if all.scheduler.is_none() { "would run" } else { "would be submitted" };
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
    for (name, hours) in all.hours().named() {
        if let Some(hours) = hours.filter(|hours| *hours > 0.0) {
            let _ = writeln!(text, "{name}-hours asked for: {hours:.2}");
        }
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
