//! The plan file, table by table: what is written becomes a [`Plan`], or all faults at once.
//!
//! Never touches the disk, and never stops at the first fault.

use std::sync::Arc;

use super::axes::{self, Group, Special};
use super::check::{self, Places};
use super::exclude::{self, Rule};
use super::expand::{self, Sheet};
use super::reader::{Entry, Reader, entries};
use super::request::{self, Wish};
use super::run;
use super::trials::{self, Given, Tasks};
use super::{GpuIds, MAX_TRIALS, Merge, Plan, Run, Schedule, sample};
use crate::words;

/// The version of plans this program reads.
const VERSION: i64 = 1;

const TABLES: &[&str] = &[
    "version",
    "sweep",
    "run",
    "resources",
    "schedule",
    "defaults",
    "trials",
    "grid",
    "zip",
    "exclude",
    "replicates",
    "sample",
];

/// The longest name of a sweep: it becomes a folder and part of the names of jobs.
const MAX_NAME: usize = 64;

/// `[sweep]` as written.
struct Sweep {
    name: Option<String>,
    root: String,
    seed: i64,
    merge: Merge,
}

/// Everything of a plan that [`expand`] needs, as written.
#[derive(Default)]
struct Written {
    wish: Wish,
    defaults: Given,
    given: Vec<Given>,
    groups: Vec<Group>,
    rules: Vec<Rule>,
    tasks: Tasks,
}

/// Reads a plan; `name` is the name of its file in messages.
///
/// # Errors
/// Returns [`crate::fault::Faults`] with everything that is wrong with it.
pub fn parse(text: &str, name: &str) -> anyhow::Result<Plan> {
    let mut reader = Reader::new(name, text);
    let document = reader.document();
    let tables = entries(&document);
    let find = |key: &str| tables.iter().find(|entry| entry.key == key);
    for entry in &tables {
        if !TABLES.contains(&entry.key) {
            reader.unknown(entry, "the plan", TABLES);
        }
    }
    read_version(&mut reader, find("version"));
    let sweep = read_sweep(&mut reader, find("sweep"));
    let mut places = Places::default();
    let run = run::read(&mut reader, find("run"), &mut places);
    let (schedule, along_at) = read_schedule(&mut reader, find("schedule"));
    let n_before = reader.n_faults();
    let written = read_written(&mut reader, &tables, sweep.seed);
    let is_sound = reader.n_faults() == n_before && !reader.is_broken();
    let plan = if is_sound {
        let at = find("grid").or(find("zip")).or(find("sample")).or(find("replicates"));
        let at = at.or(find("trials")).or(find("resources")).or(tables.first());
        finish(
            &mut reader,
            sweep,
            run,
            &places,
            schedule,
            along_at,
            written,
            at.map_or(0, |e| e.at),
        )
    } else {
        None
    };
    let faults = reader.into_faults();
    match plan {
        Some(plan) if faults.0.is_empty() => Ok(plan),
        _ => Err(faults.into()),
    }
}

fn read_version(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) {
    let Some(entry) = entry else {
        let hint = format!("write `version = {VERSION}` at the top of the plan");
        return reader.missing("the plan has no `version`", hint);
    };
    if let Some(version) = reader.integer(entry)
        && version != VERSION
    {
        let sentence = format!("this program does not read plans of version {version}");
        reader.wrong(entry.at, sentence, format!("it reads `version = {VERSION}`"));
    }
}

fn read_sweep(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) -> Sweep {
    let mut sweep = Sweep { name: None, root: "results".into(), seed: 1, merge: Merge::Deep };
    let mut has_name = false;
    let table = entry.and_then(|entry| reader.table(entry));
    for entry in table.map(entries).unwrap_or_default() {
        match entry.key {
            "name" => {
                has_name = true;
                sweep.name = read_name(reader, &entry);
            }
            "root" => {
                if let Some(root) = reader.line_of_text(&entry) {
                    sweep.root = root.to_owned();
                }
            }
            "seed" => sweep.seed = reader.integer(&entry).unwrap_or(1),
            "merge" => {
                let words = [("deep", Merge::Deep), ("shallow", Merge::Shallow)];
                sweep.merge = reader.word(&entry, &words).unwrap_or(Merge::Deep);
            }
            _ => reader.unknown(&entry, "`[sweep]`", &["name", "root", "seed", "merge"]),
        }
    }
    if !has_name {
        reader.missing("the sweep has no name", "write `name = \"demo\"` under `[sweep]`");
    }
    sweep
}

fn read_name(reader: &mut Reader<'_>, entry: &Entry<'_>) -> Option<String> {
    let name = reader.line_of_text(entry)?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.chars().all(is_letter) || name.starts_with(['.', '-']) || name.len() > MAX_NAME {
        let sentence = format!("the sweep cannot be called `{name}`");
        let hint = format!(
            "it becomes a folder: use up to {MAX_NAME} letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`"
        );
        reader.wrong(entry.at, sentence, hint);
        return None;
    }
    Some(name.to_owned())
}

fn read_schedule(reader: &mut Reader<'_>, entry: Option<&Entry<'_>>) -> (Schedule, usize) {
    let mut schedule =
        Schedule { chain_along: Vec::new(), max_running: None, gpu_ids: GpuIds::Exact };
    let mut along_at = 0;
    let table = entry.and_then(|entry| reader.table(entry));
    for entry in table.map(entries).unwrap_or_default() {
        match entry.key {
            "chain_along" => {
                along_at = entry.at;
                schedule.chain_along = match entry.item.get_ref() {
                    toml::de::DeValue::String(_) => {
                        reader.line_of_text(&entry).map(|s| vec![s.to_owned()])
                    }
                    toml::de::DeValue::Array(_) => {
                        reader.texts(&entry, |reader, e| reader.line_of_text(e).map(str::to_owned))
                    }
                    _ => {
                        reader.expected(&entry, "the name of an axis or a list of names");
                        None
                    }
                }
                .unwrap_or_default();
            }
            "max_running" => schedule.max_running = reader.count(&entry, 1),
            "gpu_ids" => {
                let words = [("exact", GpuIds::Exact), ("count", GpuIds::Count)];
                schedule.gpu_ids = reader.word(&entry, &words).unwrap_or(GpuIds::Exact);
            }
            _ => {
                let known = ["chain_along", "max_running", "gpu_ids"];
                reader.unknown(&entry, "`[schedule]`", &known);
            }
        }
    }
    (schedule, along_at)
}

fn read_written(reader: &mut Reader<'_>, tables: &[Entry<'_>], seed: i64) -> Written {
    let mut written = Written::default();
    let tasks = &mut written.tasks;
    for entry in tables {
        match entry.key {
            "resources" => {
                if let Some(table) = reader.table(entry) {
                    written.wish = request::read_table(reader, table, "`[resources]`");
                }
            }
            "defaults" => {
                written.defaults = trials::read_defaults(reader, tasks, entry).unwrap_or_default();
            }
            "trials" => {
                written.given = trials::read_trials(reader, tasks, entry).unwrap_or_default();
            }
            "grid" => {
                if let Some(table) = reader.table(entry) {
                    written.groups.extend(axes::read_grid(reader, tasks, table));
                }
            }
            "zip" => {
                if let Some(table) = reader.table(entry) {
                    written.groups.extend(axes::read_zip(reader, tasks, table));
                }
            }
            "sample" => written.groups.extend(sample::read(reader, entry, seed)),
            "replicates" => {
                written.groups.extend(axes::read_replicates(reader, entry, seed));
            }
            "exclude" => written.rules = exclude::read(reader, entry).unwrap_or_default(),
            _ => {}
        }
    }
    axes::check_overlaps(reader, &written.groups);
    check_given_against_axes(reader, &written);
    written
}

/// Refuses an axis that sets what an entry of `[[trials]]` sets itself: one of the two is a slip.
fn check_given_against_axes(reader: &mut Reader<'_>, written: &Written) {
    let axes: Vec<_> = written.groups.iter().flat_map(|group| &group.axes).collect();
    for given in &written.given {
        for axis in &axes {
            let is_set = match &axis.special {
                None => given.tree.touches(&axis.name),
                Some(Special::Tasks(_)) => given.task.is_some(),
                Some(Special::Gpus(_)) => given.gpus.is_some(),
                Some(Special::Wishes(wishes)) => {
                    // Both set the key if laying one under the other loses something.
                    wishes.first().is_some_and(|wish| wish.meets(&given.wish))
                }
            };
            if is_set {
                let line = reader.line(axis.at);
                let sentence = format!("this trial sets `{}`, and so does the axis", axis.name);
                let hint = format!("remove it here, or the axis in line {line}");
                reader.wrong(given.at, sentence, hint);
            }
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of a plan, each read on its own")]
fn finish(
    reader: &mut Reader<'_>,
    sweep: Sweep,
    run: Option<Run>,
    places: &Places,
    schedule: Schedule,
    along_at: usize,
    written: Written,
    at: usize,
) -> Option<Plan> {
    let along = chain_groups(reader, &schedule, along_at, &written)?;
    let sheet = Sheet {
        merge: sweep.merge,
        wish: &written.wish,
        defaults: &written.defaults,
        given: &written.given,
        groups: &written.groups,
        rules: &written.rules,
        tasks: &written.tasks,
        along: &along,
        at,
    };
    let expanded = expand::expand(reader, &sheet)?;
    let specials: Vec<Arc<str>> = written
        .groups
        .iter()
        .flat_map(|group| &group.axes)
        .filter(|axis| axis.special.is_some())
        .map(|axis| axis.name.clone())
        .collect();
    check::check_rules(reader, &written.rules, &expanded.forms, &specials);
    check::check_tasks(reader, &written.tasks, &expanded.forms);
    check::check_chains(reader, at, &expanded.trials);
    if expanded.trials.is_empty() {
        let at = written.rules.first().map_or(at, |rule| rule.at);
        reader.wrong(at, "no trial is left: every point is excluded", "loosen the exclusions");
        return None;
    }
    let run = run?;
    check::check_command(reader, &run, places, &expanded);
    let base = written.wish.settle(None, &Wish::default());
    let resources = Arc::new(base.unwrap_or_else(|_| written.wish.unsettled()));
    Some(Plan {
        name: sweep.name?,
        root: sweep.root,
        seed: sweep.seed,
        run,
        resources,
        schedule,
        trials: expanded.trials,
    })
}

/// For each axis group whether chains run along it; empty without `chain_along`.
fn chain_groups(
    reader: &mut Reader<'_>,
    schedule: &Schedule,
    at: usize,
    written: &Written,
) -> Option<Vec<bool>> {
    if schedule.chain_along.is_empty() {
        return Some(Vec::new());
    }
    let n_before = reader.n_faults();
    let names = || written.groups.iter().flat_map(|group| &group.axes).map(|axis| &*axis.name);
    for name in &schedule.chain_along {
        if !names().any(|known| known == name) {
            let known: Vec<&str> = names().collect();
            let hint = match words::nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "chains along an axis need a `[grid]`".to_owned(),
                None => format!("the axes are {}", words::ticked(&known)),
            };
            reader.wrong(at, format!("`chain_along` names no axis `{name}`"), hint);
        }
    }
    let has_task = written.defaults.task.is_some()
        || written.given.iter().any(|given| given.task.is_some())
        || names().any(|name| name == "task_id");
    if has_task {
        let hint = "both make chains: keep `chain_along`, or every `task_id`";
        reader.wrong(at, "`chain_along` and `task_id` are given together", hint);
    }
    let along = |group: &Group| {
        group.axes.iter().any(|axis| schedule.chain_along.iter().any(|name| **name == *axis.name))
    };
    (reader.n_faults() == n_before).then(|| written.groups.iter().map(along).collect())
}

const _: () = assert!(MAX_TRIALS < u32::MAX as u64);
