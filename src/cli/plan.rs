//! `hpcsweep plan`: prints what a plan would do.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::out::aligned;
use super::target::Target;
use super::{Context, script, warnings};
use crate::answers::collect::text;
use crate::base::words::{count, thousands};
use crate::cluster::graph::{self, Mapping};
use crate::plan::Mode;
use crate::submit::arrays::mapping::Mapped;
use crate::submit::arrays::scripts::Shown;
use crate::submit::learn;
use crate::submit::pilots::PilotOptions;
use crate::submit::preview::{self, Hours, Preview};
use crate::sweep::tree::shard::Shard;

/// Show what a plan would do: trials, chains, arrays, directives, calls, hours; writes nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan, or a Python script with a sweep, which runs up to its sweep
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
    /// Show one of several equal parts of the plan, as `submit --shard` would submit it: `2/3`
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Use the edited templates of this folder
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let mut source = script::preview(&args.plan, &args.arguments, context)?;
    let grew = args.shard.map(|shard| source.take_shard(shard)).transpose()?.flatten();
    source.part_words().into_iter().chain(grew).for_each(|words| context.out.say(&words));
    let kind = args.target.kind(&site);
    let pull = source.plan.schedule.mode == Mode::Pull || source.plan.run.function.is_some();
    let pilots = pull.then(PilotOptions::default);
    let templates = source.templates(args.templates.as_deref(), &site)?;
    let preview = preview::of(&source, &site, kind, &templates, pilots.as_ref(), None)?;
    match args.json {
        true => context.out.json(&preview.document())?,
        false => context.out.page(&people(&preview, args.all)),
    }
    warnings::warn(&source.plan, context);
    Ok(0)
}

/// A preview for people; also that of `submit --dry-run` of a new sweep for a scheduler.
pub(super) fn people(preview: &Preview<'_>, all: bool) -> String {
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
    text.push_str(&more(n - shown));
    text.push('\n');
    if preview.graph.longest > 1 {
        text.push_str(&times(preview, all));
        text.push('\n');
    }
    text.push_str(&arrays(preview, all));
    text.push_str(&directives(preview, all));
    if !preview.mapped.why.is_empty() {
        let Mapped { mapping, why } = &preview.mapped;
        let _ = writeln!(text, "\nchains as {}: {why}", mapping.word());
    }
    text.push_str(&totals(preview));
    text.push_str(preview.facts.unasked);
    text
}

/// That a table has more rows than are shown.
fn more(rows: usize) -> String {
    match rows {
        0 => String::new(),
        n => format!("... and {} more (--all shows them)\n", thousands(n as u64)),
    }
}

fn arrays(preview: &Preview<'_>, all: bool) -> String {
    let elements = if preview.pilots.is_some() { "pilots" } else { "elements" };
    let head: Vec<String> =
        ["array", "block", "link", elements, "after", "request"].map(str::to_owned).to_vec();
    let n = preview.arrays.len();
    let most = if all || n <= 40 { n } else { 20 };
    let planned = preview.arrays[..most].iter().zip(&preview.graph.arrays);
    let row = |(a, planned): (&Shown, &graph::Array)| {
        vec![
            a.array.to_string(),
            a.block.to_string(),
            a.link.to_string(),
            a.count.to_string(),
            after(preview, planned, a),
            preview.request(planned),
        ]
    };
    let rows: Vec<Vec<String>> = planned.map(row).collect();
    aligned(&head, &rows) + &more(n - most)
}

/// The directives of one array of each request.
fn directives(preview: &Preview<'_>, all: bool) -> String {
    let mut text = String::new();
    let mut shown: Vec<u32> = Vec::new();
    for (array, planned) in preview.arrays.iter().zip(&preview.graph.arrays) {
        if shown.contains(&planned.shape) || (shown.len() >= 3 && !all) {
            continue;
        }
        shown.push(planned.shape);
        let _ = writeln!(text, "\ndirectives of array {}:", array.array);
        for directive in &array.directives {
            let _ = writeln!(text, "  {}{directive}", preview.facts.directive);
        }
    }
    text
}

/// The calls of a submission, and what it asks for.
fn totals(preview: &Preview<'_>) -> String {
    let what = preview.pilots.as_ref().map_or_else(
        || format!("arrays of at most {} elements", thousands(preview.element_limit)),
        |(words, _)| words.clone(),
    );
    let mut text = format!(
        "\nscheduler calls to submit: {} ({} of {}, {what})\n",
        thousands(preview.calls() as u64),
        thousands(preview.arrays.len() as u64),
        preview.facts.submits,
    );
    let Hours { core, .. } = preview.hours;
    for (name, hours) in preview.hours.named() {
        let _ = match hours {
            Some(hours) => writeln!(text, "{name}-hours asked for: {hours:.2}"),
            None if core.is_some() => writeln!(text, "{name}-hours asked for: unknown (no memory)"),
            None => writeln!(text, "{name}-hours asked for: unknown (no walltime)"),
        };
    }
    if preview.pilots.is_none() {
        for note in learn::of_new(&preview.source.plan) {
            let _ = writeln!(text, "{note}; the hours are those of `first`");
        }
    }
    text
}

/// What an array waits for, in words.
fn after(preview: &Preview<'_>, planned: &graph::Array, array: &Shown) -> String {
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
    // A parameter that every trial shares is not shown.
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
