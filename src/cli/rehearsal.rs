//! `hpcsweep submit --dry-run` of a sweep that is there: what would be done now.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::json;

use super::out::aligned;
use super::{Context, plan};
use crate::plan::Plan;
use crate::site::{SchedulerKind, Site};
use crate::submit::rehearsal::{self, How, Rehearsal, Runs};
use crate::submit::{Source, check_caps, pilots, preview, refuse_share};
use crate::tree::waves::Array;
use crate::words::{count, short};

/// Trials that are shown at most.
const MOST: usize = 40;

/// What was asked for.
pub(super) struct Asked {
    /// Pull mode.
    pub(super) pull: Option<pilots::Options>,
    /// `--retry`.
    pub(super) retry: bool,
    /// `--max-running`.
    pub(super) max_running: Option<u32>,
    /// `--json`.
    pub(super) json: bool,
}

/// Shows what submitting would do; `false` where the sweep is new.
pub(super) fn show(
    source: &Source,
    site: &Site,
    kind: SchedulerKind,
    asked: &Asked,
    context: &Context,
) -> Result<bool> {
    let scheduler = matches!(kind, SchedulerKind::Slurm | SchedulerKind::Pbs).then_some(kind);
    let mut rules = plan::rules(source, site, kind);
    if let Some(wish) = asked.max_running {
        rules.max_running = site.caps.running(Some(u64::from(wish)));
    }
    check_caps(&source.plan, site, kind)?;
    let how = match (&asked.pull, scheduler) {
        (Some(options), _) => How::Pull(scheduler, options),
        (None, Some(kind)) => {
            refuse_share(&source.plan)?;
            How::Arrays(kind, &rules)
        }
        (None, None) => How::Local,
    };
    let Some(all) = rehearsal::of(source, site, how, asked.retry, &context.vars)? else {
        return Ok(false);
    };
    if asked.json {
        context.out.raw(&crate::tree::to_json_line(&as_json(&all, &source.plan))?);
    } else {
        context.out.page(&people(&all, &source.plan, how));
    }
    Ok(true)
}

fn people(all: &Rehearsal, plan: &Plan, how: How<'_>) -> String {
    let mut text = format!("sweep {} is in {}\n", plan.name, all.tree.dir().display());
    let mut groups: BTreeMap<&str, u64> = BTreeMap::new();
    all.runs.iter().for_each(|run| *groups.entry(&run.state).or_default() += 1);
    let verb = if matches!(how, How::Local) { "would run" } else { "would be submitted" };
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
    if !all.arrays.is_empty() {
        text.push('\n');
        text.push_str(&arrays(&all.arrays));
    }
    if !all.why.is_empty() {
        let _ = writeln!(text, "chains: {}", all.why);
    }
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

fn as_json(all: &Rehearsal, plan: &Plan) -> serde_json::Value {
    let run = |run: &Runs| json!({ "trial": run.trial, "state": run.state, "params": plan.trials[run.place].params });
    let array = |array: &Array| {
        json!({
            "array": array.array, "block": array.block, "link": array.link, "count": array.count,
            "links": array.links, "after": array.after, "wait": array.wait,
        })
    };
    json!({
        "sweep": plan.name,
        "dir": all.tree.dir(),
        "exists": true,
        "trials": all.runs.iter().map(run).collect::<Vec<_>>(),
        "left": all.left,
        "dropped": all.dropped,
        "arrays": all.arrays.iter().map(array).collect::<Vec<_>>(),
        "units": all.units.map(|(units, _)| units),
        "pilots": all.units.and_then(|(_, pilots)| pilots),
        "notes": all.left_alone.iter().chain(&all.notes).collect::<Vec<_>>(),
    })
}
