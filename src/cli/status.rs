//! `hpcsweep status`: how a sweep stands.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::logs::output::Output;
use super::next::{self, Unnamed};
use super::out::aligned;
use super::select::{Named, Select};
use super::{Context, logs, sweeps};
use crate::answers::collect::unread_words;
use crate::base::cause::{group, log};
use crate::base::words::{count, duration};
use crate::submit::arrays::wave::Waves;
use crate::sweep::standing::{Standing, State};
use crate::sweep::status::folders::OtherFolder;
use crate::sweep::status::gpus::IdleGpu;
use crate::sweep::status::pilots::Pilots;
use crate::sweep::status::{self, Status};
use crate::sweep::tree::damage::{self, Damaged};
use crate::sweep::tree::records::{self, Record};
use crate::sweep::tree::shard::Shards;
use crate::sweep::tree::table::Row;

/// Show how a sweep stands: counts by state, what failed and why
///
/// Reads the results tree and asks the scheduler once. Exit code 1 when a trial has ended without success, or a file
/// of the sweep is damaged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sweep folders, plans or patterns, by default those of this folder, else the last one submitted; sets of trials (`3-7,12`)
    #[arg(value_name = "SWEEP|IDS")]
    named: Vec<String>,
    #[command(flatten)]
    select: Select,
    /// Show every chain
    #[arg(long)]
    chains: bool,
    /// Show every trial
    #[arg(long)]
    trials: bool,
    /// Do not ask the scheduler
    #[arg(long)]
    offline: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let mut bad = false;
    let Named { sweeps, wanted } = args.select.read(&args.named)?;
    let found = sweeps::find(&sweeps, context)?;
    let alone = sweeps.is_empty() && found.len() == 1;
    let unnamed =
        Unnamed { shows: alone, writes: alone && sweeps::check_here(&[], context).is_ok() };
    let last = found.len().saturating_sub(1);
    for (i, (tree, identity)) in found.into_iter().enumerate() {
        let whom = (!args.offline).then_some((&site, &context.vars));
        let counts = wanted.is_all() && !(args.json || args.trials || args.chains);
        let mut status = match counts {
            true => status::counted(tree, identity, whom, &|_| false)?,
            false => wanted.look(tree, identity, whom)?,
        };
        let all = status.rows.len();
        wanted.narrow(std::slice::from_mut(&mut status))?;
        let of = (!wanted.is_all()).then_some(all);
        bad |= status.standings.iter().any(|s| s.state.is_bad()) || !status.damage.is_empty();
        if args.json {
            context.out.json(&told(&status, of))?;
        } else {
            if i > 0 {
                context.out.data("");
            }
            context.out.page(&people(&status, args, of, unnamed));
        }
        if i == last {
            status.leave();
        }
    }
    Ok(u8::from(bad || context.out.has_left_out()))
}

/// A sweep as JSON; its trials are made as they are written.
#[derive(Serialize)]
struct Told<'a> {
    sweep: &'a str,
    dir: &'a Path,
    trials_total: usize,
    /// The trials that are meant, where a set was asked for: everything below is about these.
    #[serde(skip_serializing_if = "Option::is_none")]
    trials_meant: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<serde_json::Value>,
    counts: BTreeMap<String, u64>,
    witness: &'a str,
    scheduler_calls: u32,
    jobs: &'a [String],
    pilots: &'a [Pilots],
    unsubmitted: u64,
    feeder: Option<&'a str>,
    damaged: &'a [Damaged],
    /// GPUs that running trials have not used for ten minutes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle_gpus: Vec<IdleGpu>,
    unread_lines: u64,
    /// Trials that are done and have reported nothing, though others have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<u64>,
    /// Trials that are done although processes of them were killed for lack of memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut_short: Vec<u64>,
    /// Trials that have ended and whose hooks nobody has called to their end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uncalled_hooks: Vec<u64>,
    /// Folders, not the sweep's own, that jobs name which have not ended.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    other_folders: &'a [OtherFolder],
    trials: Trials<'a>,
}

struct Trials<'a>(&'a Status);

impl Serialize for Trials<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.trials().map(|(row, standing)| trial(self.0, row, standing)))
    }
}

/// `of`: how many trials the sweep has, where a set of them is shown.
fn told(status: &Status, of: Option<usize>) -> Told<'_> {
    Told {
        sweep: &status.identity.name,
        dir: status.tree.dir(),
        trials_total: of.unwrap_or(status.rows.len()),
        trials_meant: of.map(|_| status.rows.len()),
        shard: status.shards.as_ref().map(Shards::json),
        counts: status.counts().into_iter().map(|(s, n)| (s.word(), n)).collect(),
        witness: &status.witness,
        scheduler_calls: status.calls,
        jobs: &status.jobs,
        pilots: &status.pilots,
        unsubmitted: status.unsubmitted,
        feeder: status.feeder.as_deref(),
        damaged: &status.damage,
        idle_gpus: status.idle_gpus(),
        unread_lines: status.unread().map(|(_, lines)| lines).sum(),
        silent: status.silent(),
        cut_short: status.cut_short().collect(),
        uncalled_hooks: status.owed.iter().map(|(due, _)| due.trial).collect(),
        other_folders: &status.other_folders,
        trials: Trials(status),
    }
}

fn trial(status: &Status, row: &Row, standing: &Standing) -> serde_json::Value {
    let record = status.records.get(&row.id);
    let attempt = record.and_then(|r| r.decisive());
    json!({
        "trial": row.id,
        "task_id": row.task_id,
        "chain": row.chain,
        "link": row.link,
        "function": status.function(row.id),
        "state": standing.state.word(),
        "cause": standing.cause,
        "reason": standing.reason,
        "attempts": record.map_or(0, Record::begun),
        "host": attempt.map(|a| a.start.host.clone()),
        "job": attempt.and_then(|a| a.start.job.clone()),
        "exit_code": attempt.and_then(|a| a.end.as_ref()).and_then(|e| e.exit_code),
        "duration_s": attempt.and_then(|a| a.end.as_ref()).map(|e| e.duration_s),
        "unread_lines": record.map_or(0, Record::unread),
    })
}

/// The most groups of failures that are shown.
const MOST_GROUPS: usize = 10;

fn people(status: &Status, args: &Args, of: Option<usize>, unnamed: Unnamed) -> String {
    let shown = status.rows.len() as u64;
    let total = count(of.map_or(shown, |all| all as u64), "trial");
    let total = if of.is_some() { format!("{shown} of {total}") } else { total };
    let mut text =
        format!("{}: {total} in {}\n", status.identity.name, status.tree.dir().display());
    if let Some(shards) = status.shards.as_ref().filter(|shards| !shards.is_whole()) {
        text.push_str(&format!("{} of the plan\n", shards.words()));
    }
    let counts = status.counts();
    let head = vec!["state".to_owned(), "trials".to_owned()];
    let rows: Vec<Vec<String>> =
        counts.iter().map(|(state, n)| vec![state.word(), n.to_string()]).collect();
    if shown > 0 {
        text.push_str(&indent(&aligned(&head, &rows)));
    }
    status.dropped_words().iter().for_each(|words| text.push_str(&format!("{words}\n")));
    text.push_str(&format!("seen by: {}\n", status.witness));
    for folder in &status.other_folders {
        text.push_str(&format!("{}\n", folder.words(&status.tree)));
    }
    text.push_str(&unsubmitted(status));
    text.push_str(&without_agents(status));
    text.push_str(&owed(status));
    text.push_str(&left_out(status));
    text.push_str(&doubtful(status));
    text.push_str(&unused(&status.idle_gpus()));
    if of.is_none() {
        text.push_str(&next::results(status, unnamed));
    }
    if args.chains {
        text.push('\n');
        text.push_str(&chains(status));
    }
    let lists = args.trials || of.is_some();
    if lists && shown > 0 {
        text.push('\n');
        text.push_str(&trials(status));
    }
    let bad: Vec<_> =
        status.trials().filter(|(_, s)| s.state.is_bad() && s.state != State::Skipped).collect();
    if !bad.is_empty() && !lists {
        text.push_str(&format!("\n{} without success:\n", count(bad.len() as u64, "trial")));
        let sweep = if unnamed.shows { String::new() } else { format!(" {}", status.tree.named()) };
        let groups = group::of(bad.iter().map(|(row, standing)| (row.id, standing.why())));
        for group in groups.iter().take(MOST_GROUPS) {
            text.push_str(&format!("  {}\n", group.line()));
            if let Some(trial) = printed(status, group.trials.iter().copied()) {
                text.push_str(&format!(
                    "    what trial {trial} printed: hpcsweep logs {trial}{sweep}\n"
                ));
            }
        }
        if let Some(others @ [_, ..]) = groups.get(MOST_GROUPS..) {
            let trials = others.iter().map(|group| group.trials.len() as u64).sum();
            text.push_str(&format!(
                "  ... and {} more (--trials shows all)\n",
                count(trials, "trial")
            ));
        }
        // What is recorded as done runs never again, and about these a feeder decides.
        let is_left = |(row, s): &(&Row, &Standing)| {
            s.state != State::Doubtful && !status.awaited.contains(&row.id)
        };
        let left: Vec<_> = bad.iter().filter(|trial| is_left(trial)).collect();
        if !left.is_empty() {
            text.push_str(&again(status, left.iter().all(|(_, s)| s.state == State::Interrupted)));
        }
    }
    if status.standings.iter().any(|s| s.reason.starts_with("JobHoldMaxRequeue")) {
        text.push_str(&format!(
            "to release what is held: hpcsweep release {}\n",
            status.tree.named()
        ));
    }
    text
}

/// Who submits the trials that had no place in the queue.
fn unsubmitted(status: &Status) -> String {
    let command = status.again.as_deref().unwrap_or("the same `hpcsweep submit`");
    if status.unsubmitted == 0 {
        let has_open = status.standings.iter().any(|standing| !standing.state.is_final());
        return match (&status.feeder, status.undecided.len() as u64) {
            (Some(job), _) if status.repeated > 0 => {
                let trials = count(status.repeated, "trial");
                format!("job {job} submits {trials} again when there is a place in the queue\n")
            }
            (Some(job), n) if n > 0 && !has_open => {
                let trials = count(n, "trial");
                format!(
                    "`[retry]`: job {job} repeats {trials} without success, or records why not, when there is a \
                     place in the queue\n"
                )
            }
            (Some(job), _) => format!("job {job} looks at it when some of its jobs have ended\n"),
            (None, 0) => match status.uncalled {
                Some(hook) => {
                    format!("no job waits that calls the hook `{hook}`; to bring one: {command}\n")
                }
                None => String::new(),
            },
            (None, n) => {
                let trials = count(n, "trial");
                format!(
                    "`[retry]`: no job waits that decides about {trials} without success; to bring one: {command}\n"
                )
            }
        };
    }
    let left = format!("{} not submitted yet", count(status.unsubmitted, "trial"));
    match &status.feeder {
        Some(job) => format!("{left}: job {job} submits more when {}\n", status.when_more()),
        None if !status.is_sure() => format!("{left}\n"),
        None => format!("{left}; to submit more: {command}\n"),
    }
}

/// Hooks of trials that nobody has called to their end.
fn owed(status: &Status) -> String {
    let trials: Vec<u64> = status.owed.iter().map(|(due, _)| due.trial).collect();
    let (n, command) = (status.owed.len() as u64, status.again.as_deref());
    match n {
        0 => String::new(),
        _ => format!(
            "{} not called to the end, as the callers were lost ({}); to call {}: {}\n",
            count(n, "hook"),
            group::list(&trials),
            if n == 1 { "it" } else { "them" },
            command.unwrap_or("the same `hpcsweep submit`")
        ),
    }
}

/// How a sweep goes on that is left to agents, where none is at work.
fn without_agents(status: &Status) -> String {
    if !status.lacks_agents {
        return String::new();
    }
    let command = match (&status.again, status.calls_a_function) {
        (Some(command), _) => command.clone(),
        (None, true) => "start the program again that has their function".to_owned(),
        (None, false) => format!("hpcsweep worker --pull {}", status.tree.named()),
    };
    format!("to go on with what is queued: {command}\n")
}

/// The first of these trials that `logs` has something of: it began, or its job had something to say.
fn printed(status: &Status, bad: impl Iterator<Item = u64> + Clone) -> Option<u64> {
    let has_begun = |id: &u64| status.records.get(id).is_some_and(|r| !r.attempts.is_empty());
    bad.clone().find(has_begun).or_else(|| {
        let waves = Waves::read(&status.tree).ok()?;
        let has_said =
            |id: &u64| logs::of_jobs(&status.tree, &waves, *id).is_ok_and(|logs| !logs.is_empty());
        // One for each that is shown.
        bad.take(10).find(has_said)
    })
}

/// How trials without success run again; `only_stopped`: all of them were interrupted.
fn again(status: &Status, only_stopped: bool) -> String {
    // On this machine, and under agents, trials that were only interrupted continue by themselves.
    let goes_on = only_stopped && (status.jobs.is_empty() || status.calls_a_function);
    let what = if goes_on { "to go on with them" } else { "to run them again" };
    let how = match (&status.again, status.calls_a_function, goes_on) {
        (Some(command), _, true) => command.clone(),
        (Some(command), _, false) => format!("{command} --retry"),
        (None, true, true) => "start the program again that has their function".to_owned(),
        (None, true, false) => {
            "start the program again that has their function; in Python, run(..., retry=True)"
                .to_owned()
        }
        (None, false, true) => "the same `hpcsweep submit`".to_owned(),
        (None, false, false) => "the same `hpcsweep submit`, with --retry".to_owned(),
    };
    format!("{what}: {how}\n")
}

/// GPUs that running trials do not use, a line each up to ten.
fn unused(gpus: &[IdleGpu]) -> String {
    let line = |idle: &IdleGpu| {
        let IdleGpu { trial, gpu, idle_s } = idle;
        format!("unused: GPU {gpu} of trial {trial} has done nothing for {}\n", duration(*idle_s))
    };
    let mut text: String = gpus.iter().take(10).map(line).collect();
    if gpus.len() > 10 {
        text.push_str(&format!(
            "... and {} more (--json shows all)\n",
            count(gpus.len() as u64 - 10, "GPU")
        ));
    }
    text
}

/// The damaged files, a line each.
fn left_out(status: &Status) -> String {
    let (damage, missing) = damage::without_missing(&status.damage, status.tree.dir());
    let missing = missing.map(|words| format!("left out: {words}\n"));
    let damage = damage.iter().map(|damaged| format!("left out: {damaged}\n"));
    let mut text: String = missing.into_iter().chain(damage).collect();
    let mut unread = status.unread().peekable();
    if let Some((first, _)) = unread.peek().copied() {
        let (trials, lines) = unread.fold((0, 0), |(n, sum), (_, lines)| (n + 1, sum + lines));
        let lines = unread_words(lines);
        text.push_str(&format!(
            "left out: {lines} of {} that could not be read, the first of trial {first}\n",
            count(trials, "trial")
        ));
    }
    text
}

/// Most trials whose logs are read for why they may not be done.
const MOST_READ: usize = 5;

/// Trials that are done, and perhaps only look so.
fn doubtful(status: &Status) -> String {
    let mut text = String::new();
    let cut: Vec<u64> = status.cut_short().collect();
    if !cut.is_empty() {
        text.push_str(&format!(
            "doubtful: {} done although the kernel killed processes for lack of memory ({})\n",
            count(cut.len() as u64, "trial"),
            group::list(&cut)
        ));
    }
    let silent = status.silent();
    let Some(first) = silent.first() else { return text };
    text.push_str(&format!(
        "doubtful: {} done without a metric or a result, which others have ({})\n",
        count(silent.len() as u64, "trial"),
        group::list(&silent)
    ));
    let said = |trial: &u64| {
        let (record, _) = records::of_trial(&status.tree, *trial).ok()?;
        let output = Output::of(&status.tree, *trial, &record).ok()?;
        Some((*trial, log::of(&output.tail(200).ok()?, 1, None)?.words))
    };
    text.push_str(&match silent.iter().take(MOST_READ).find_map(said) {
        Some((trial, words)) => format!("  trial {trial}: {words}\n"),
        None => format!("  what trial {first} printed: hpcsweep logs {first}\n"),
    });
    text
}

fn indent(table: &str) -> String {
    table.lines().map(|line| format!("  {line}\n")).collect()
}

/// A line a chain: how far it is.
fn chains(status: &Status) -> String {
    let mut chains: BTreeMap<u64, (String, Vec<State>)> = BTreeMap::new();
    for (row, standing) in status.trials() {
        let chain = chains.entry(row.chain).or_insert_with(|| (row.task_text(), Vec::new()));
        chain.1.push(standing.state.clone());
    }
    let head = ["chain", "task_id", "links", "done", "now"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = chains
        .into_iter()
        .map(|(number, (task, states))| {
            let done = states.iter().filter(|s| **s == State::Done).count();
            let now = states
                .iter()
                .find(|s| !matches!(s, State::Done | State::Dropped))
                .map_or_else(|| "done".into(), State::word);
            let task = if task.is_empty() { "-".into() } else { task };
            vec![number.to_string(), task, states.len().to_string(), done.to_string(), now]
        })
        .collect();
    aligned(&head, &rows)
}

fn trials(status: &Status) -> String {
    let several = status.has_several_functions();
    let mut head = vec!["trial", "task_id", "link"];
    head.extend(several.then_some("function"));
    head.extend(["state", "time", "host", "job", "reason"]);
    let row = |(row, standing): (&Row, &Standing)| {
        let attempt = status.records.get(&row.id).and_then(|r| r.decisive());
        let time = attempt.and_then(|a| a.end.as_ref()).map(|e| duration(e.duration_s));
        let mut cells = vec![row.id.to_string(), row.task_text(), row.link.to_string()];
        cells.extend(several.then(|| status.function(row.id).unwrap_or_default().to_owned()));
        cells.extend([
            standing.state.word(),
            time.unwrap_or_default(),
            attempt.map(|a| a.start.host.clone()).unwrap_or_default(),
            attempt.and_then(|a| a.start.job.clone()).unwrap_or_default(),
            standing.reason.clone(),
        ]);
        cells
    };
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    aligned(&head, &status.trials().map(row).collect::<Vec<_>>())
}
