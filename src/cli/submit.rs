//! `hpcsweep submit`: hand a plan to a scheduler, or run it here.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::change::Change;
use super::select::Select;
use super::target::Target;
use super::{
    Context, chosen, collect, ended, out, pull, rehearsal, reproduce, script, smoke, sweeps,
    warnings,
};
use crate::base::fault::Fault;
use crate::base::words::{count, duration, short};
use crate::cluster::render::Templates;
use crate::cluster::scheduler::Room;
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{MOST_SLOTS, Mode};
use crate::run::worker::hooks::lost::Witness;
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::arrays::batch;
use crate::submit::auto;
use crate::submit::local::{self, News};
use crate::submit::pilots;
use crate::sweep::tree::records::Outcome;
use crate::sweep::tree::shard::Shard;

/// The options that `submit` and `run` share: where and how a plan is submitted.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    #[command(flatten)]
    target: Target<true>,
    /// Local: at most this many chains at once
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// At most this many elements of the sweep at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_running: Option<u32>,
    /// Run trials again that ended without success: failed, timed out, interrupted, cancelled, lost, skipped
    #[arg(long)]
    retry: bool,
    /// Enqueue the trials for agents, and submit agents as pilot jobs; with --local, one agent runs here
    ///
    /// As `mode = "pull"` under `[schedule]`.
    #[arg(long)]
    pull: bool,
    /// Pull mode: submit at most this many pilot jobs, each an agent on a node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// Pull mode: each agent runs this many trials at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLOTS)))]
    slots: Option<u32>,
    /// Only show what would be done
    #[arg(long, group = "written")]
    dry_run: bool,
    /// Try one trial here and now, and keep nothing: what it prints, its metrics, how it ends
    ///
    /// The program sees HPCSWEEP_SMOKE=1 and may do less than it would. `each` tries the first trial of each distinct
    /// request, one after the other.
    #[arg(long, value_name = "TRIAL|each", num_args = 0..=1, default_missing_value = "0", conflicts_with = "dry_run")]
    smoke: Option<smoke::Which>,
    /// With --dry-run: write JSON
    #[arg(long, requires = "written")]
    pub(super) json: bool,
    /// Use the edited templates of this folder
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
}

impl How {
    /// Whether nothing is to be written.
    pub(super) fn only_shows(&self) -> bool {
        self.dry_run || self.smoke.is_some()
    }

    /// Whether the user wants to see what would be done.
    pub(super) fn rehearses(&self) -> bool {
        self.dry_run
    }

    /// The trials that run again: all or none.
    pub(super) fn again(&self) -> Again {
        Again::all(self.retry)
    }
}

/// Submit a plan to Slurm or PBS as job arrays, or run it on this machine
///
/// Running it again completes what is missing: a plan that grew submits only its new trials, an interrupted
/// submission continues where it stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan, or a Python script with a sweep, which runs up to its sweep
    plan: PathBuf,
    /// Arguments of the script
    #[arg(last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    how: How,
    /// Trials that run again, or were not submitted yet, run the code as it is now, and not that of their snapshot
    #[arg(long)]
    current_code: bool,
    #[command(flatten)]
    select: Select,
    #[command(flatten, next_help_heading = "Requests of the retried trials, this time")]
    change: Change,
    /// Submit one of several equal parts of the plan, for clusters that share it: `2/3`; `merge` joins the results
    ///
    /// A trial belongs to a part by its key, the trials of a chain stay together. The sweep keeps its part: submissions
    /// without this option keep to it.
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Run this trial of the sweep once more, from its recorded plan, snapshot and seed, and compare its metrics
    ///
    /// The plan can be a sweep folder, here. The trial runs in NAME.reproduced/ID beside the sweep, which does not change: on this
    /// machine unless a scheduler is named. Exit code 1 if a metric differs.
    #[arg(long, value_name = "TRIAL", group = "written", conflicts_with_all = ["shard", "retry", "current_code", "pull", "smoke", "dry_run"])]
    reproduce: Option<u64>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8> {
    let site = context.site()?;
    let how = &args.how;
    if let Some(trial) = args.reproduce {
        let kind = how.target.or_here();
        let templates = how.templates.as_deref();
        let submit = |options: &batch::ArrayOptions, source: &Source, templates: &Templates| {
            to_scheduler(options, source, &site, templates, kind, context)
        };
        let submit: Option<reproduce::Submit<'_>> = kind.takes_jobs().then_some(&submit);
        return reproduce::run((&args.plan, trial), templates, &site, submit, how.json, context);
    }
    let mut source = if how.only_shows() {
        script::preview(&args.plan, &args.arguments, context)?
    } else {
        script::source(&args.plan, &args.arguments, context)?
    };
    let grew = args.shard.map(|shard| source.take_shard(shard)).transpose()?.flatten();
    source.part_words().into_iter().chain(grew).for_each(|words| context.out.say(&words));
    let again = again(args, &source, context)?.with_current_code(args.current_code);
    submit(source, how, again, &site, context)
}

/// Submits a plan, or shows what would be done.
///
/// # Errors
/// When the plan and the options contradict each other, or what they ask for fails.
pub(super) fn submit(
    source: Source,
    how: &How,
    again: Again,
    site: &Site,
    context: &Context,
) -> Result<u8> {
    let kind = how.target.kind(site);
    let pilots = pull_mode(how, &source, &again)?;
    if let Some(trial) = how.smoke {
        return smoke::run(source, trial, how.templates.as_deref(), site, context);
    }
    warnings::warn(&source.plan, context);
    let templates = source.templates(how.templates.as_deref(), site)?;
    let is_here = !kind.takes_jobs();
    if is_here {
        warnings::warn_of_worlds(&source, context);
    }
    if how.jobs.is_some() && pilots.is_none() && !is_here {
        return Err(Fault::request("`--jobs` belongs to `--local`")
            .hint("`--max-running N` throttles an array")
            .into());
    }
    let here = local::LocalOptions {
        jobs: [how.jobs, how.max_running].into_iter().flatten().min().map(|n| n as usize),
        retry: again.clone(),
        repeats: true,
    };
    if how.dry_run {
        let asked =
            rehearsal::Asked { pull: pilots, here, max_running: how.max_running, json: how.json };
        return rehearsal::show(&source, site, kind, &templates, &asked, context).map(|()| 0);
    }
    let is_function = source.plan.run.function.is_some();
    if source.plan.retry.auto && is_function {
        context.out.say(
            "`[retry]` is for programs: here `[run] attempts` repeats failures, and what was interrupted continues",
        );
    }
    if let Some(options) = pilots {
        return match is_here {
            false => pull::submit(&source, site, &templates, &options, kind, context),
            true => pull::submit_here(&source, site, &templates, &options, context),
        };
    }
    match is_here {
        false => {
            let max_running = how.max_running.map(u64::from);
            let options = batch::ArrayOptions {
                max_running,
                retry: again,
                templates: how.templates.clone(),
                ..batch::ArrayOptions::default()
            };
            to_scheduler(&options, &source, site, &templates, kind, context)
        }
        true => run_here(&here, &source, site, &templates, context),
    }
}

/// What pull mode is asked for; `None` where the plan's trials are elements of arrays.
fn pull_mode(how: &How, source: &Source, again: &Again) -> Result<Option<pilots::PilotOptions>> {
    let plan = &source.plan;
    if !how.pull && plan.schedule.mode != Mode::Pull && plan.run.function.is_none() {
        for (name, value) in [("--workers", how.workers), ("--slots", how.slots)] {
            if value.is_some() {
                return Err(Fault::request(format!("`{name}` belongs to pull mode"))
                    .hint("add `--pull`, or write `mode = \"pull\"` under `[schedule]`")
                    .into());
            }
        }
        return Ok(None);
    }
    if plan.run.program.is_empty() {
        plan.run.refuse_function(|| source.author())?;
    }
    if plan.schedule.pack.is_some() {
        return Err(Fault::request("agents take trials one by one: `pack` belongs to arrays")
            .hint("leave `pack` out under `[schedule]`, or `--pull` here")
            .into());
    }
    Ok(Some(pilots::PilotOptions {
        workers: how.workers,
        slots: how.slots.or(how.jobs),
        max_running: how.max_running,
        retry: again.clone(),
    }))
}

/// The trials that run again.
fn again(args: &Args, source: &Source, context: &Context) -> Result<Again> {
    let wanted = args.select.read(&[])?.wanted;
    let change = args.change.read()?;
    if wanted.is_all() && change.is_none() {
        return Ok(args.how.again());
    }
    if !args.how.retry {
        return Err(Fault::request("sets of trials and changed requests belong to `--retry`")
            .hint("add `--retry`; what a plan asks for is under its `[resources]`")
            .into());
    }
    let tree = source.tree();
    let identity = tree.identity()?.ok_or_else(|| {
        Fault::request(format!("{} was not submitted before", source.plan.name))
            .hint("leave out `--retry` and what belongs to it")
    })?;
    let change = change.unwrap_or_default();
    let chosen = chosen::choose(&tree, &identity, source, &wanted, context)?;
    chosen.again(&change, false)
}

pub(super) fn to_scheduler(
    options: &batch::ArrayOptions,
    source: &Source,
    site: &Site,
    templates: &Templates,
    kind: SchedulerKind,
    context: &Context,
) -> Result<u8> {
    let report = batch::submit(source, site, templates, options, kind, &context.vars, |text| {
        context.out.say(text);
    })?;
    sweeps::remember(&report.tree, context);
    if let Some(room) = &report.full {
        return Err(no_place(room, &source.plan.name, report.left).into());
    }
    let submitted: u64 = report.arrays.iter().map(|(array, _)| array.count * array.links).sum();
    let is_retry = options.retry.is_alone();
    let later = report.put_off + report.left + report.held;
    let before = match is_retry {
        true => 0,
        false => (source.plan.trials.len() as u64).saturating_sub(submitted + later),
    };
    let calls = count(u64::from(report.calls), "scheduler call");
    let mut text = if report.arrays.is_empty() {
        let nothing = if is_retry { "nothing to run again" } else { "nothing new to submit" };
        format!("{}: {nothing} ({calls})", source.plan.name)
    } else {
        format!(
            "{}: {} submitted as {} ({calls})",
            source.plan.name,
            count(submitted, "trial"),
            count(report.arrays.len() as u64, "array"),
        )
    };
    if report.left > 0 {
        let left = count(report.left, "trial");
        let (follow, them) = follows(report.left);
        let by = report.feeder.as_ref().map(|job| format!(" (job {job} submits {them})"));
        let by = by.unwrap_or_default();
        text.push_str(&format!("; {left} {follow} when there is a place in the queue{by}"));
    }
    if report.held > 0 {
        let held = count(report.held, "trial");
        let (follow, them) = follows(report.held);
        let by = report.feeder.as_ref().filter(|_| report.left == 0);
        let by = by.map(|job| format!(" (job {job} submits {them})")).unwrap_or_default();
        text.push_str(&format!("; {held} {follow} when others have shown what they need{by}"));
    }
    if let (0, Some(job)) = (report.left + report.held, &report.feeder) {
        let what = match source.plan.retry.auto {
            true => "repeats what fails, by `[retry]`",
            false => "calls the hooks of the sweep",
        };
        text.push_str(&format!("; job {job} {what}"));
    }
    if before > 0 {
        text.push_str(&format!("; {} submitted before", count(before, "trial")));
    }
    context.out.say(&text);
    let jobs: Vec<&str> = report.arrays.iter().map(|(_, job)| job.as_str()).collect();
    if !jobs.is_empty() {
        context.out.say(&format!("jobs: {}", jobs.join(" ")));
    }
    ended::settle(&report.tree, Witness::Scheduler(site), context)?;
    context.out.say(&format!("results: {}", report.tree.dir().display()));
    context.out.say(&format!("next: hpcsweep status {}", report.tree.named()));
    Ok(0)
}

/// The queue has no place for anything of a sweep.
pub(super) fn no_place(room: &Room, sweep: &str, left: u64) -> Fault {
    let left = count(left, "trial");
    Fault::scheduler(format!("the queue has no place for {sweep}: {room}"))
        .at(format!("{left} not submitted yet"))
        .hint("run the same command again when some of the jobs there have ended")
}

pub(super) fn run_here(
    options: &local::LocalOptions,
    source: &Source,
    site: &Site,
    templates: &Templates,
    context: &Context,
) -> Result<u8> {
    let out = &context.out;
    sweeps::remember(&source.tree(), context);
    let mut bar = ProgressBar::hidden();
    let mut total = 0;
    let (mut done, mut bad) = (0u64, 0u64);
    let since = Instant::now();
    let report = local::run(source, site, templates, options, &context.vars, |news| match news {
        News::Begin { todo, jobs, gpus, left_alone } => {
            left_alone.iter().for_each(|words| out.say(words));
            total = todo;
            let how = out::at_a_time(jobs as u64);
            out.say(&if todo == 0 {
                format!("{}: nothing left to run", source.plan.name)
            } else {
                let trials = count(todo, "trial");
                format!("{}: {trials} to run on this machine, {how}", source.plan.name)
            });
            if !gpus.is_empty() {
                out.say(&gpus);
            }
            if out.terminal && !out.quiet && todo > 0 {
                bar = ProgressBar::new(todo);
                bar.set_style(bar_style("{bar:30} {pos}/{len} {elapsed} {msg}"));
            }
        }
        News::Ended { row, outcome, reason, duration_s } => {
            done += 1;
            let word = match outcome {
                Some(Outcome::Done) => "done",
                Some(Outcome::Failed) => "failed",
                Some(Outcome::Timeout) => "timeout",
                Some(Outcome::Interrupted) | None => "interrupted",
            };
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            let parameters = parameters(row);
            let line =
                format!("trial {} {word} in {}{parameters}{reason}", row.id, duration(duration_s));
            if bar.is_hidden() {
                out.say(&format!("[{done}/{total}] {line}"));
            } else {
                if outcome != Some(Outcome::Done) {
                    bar.println(line);
                    bad += 1;
                    bar.set_message(format!("{bad} without success"));
                }
                // Before the first end the time left is unknown.
                bar.set_style(bar_style("{bar:30} {pos}/{len} {elapsed} eta {eta} {msg}"));
                bar.inc(1);
            }
        }
        News::Repeated { row, why } => {
            let line = format!("trial {} runs again: {why}", row.id);
            if bar.is_hidden() { out.say(&line) } else { bar.println(line) }
        }
        News::Idle => bar.tick(),
        News::Note(note) => out.say(&note),
        News::Waiting(why) => out.say(&format!("waiting for GPUs: {why}")),
        News::Stopping => {
            out.say("stopping: the running trials are asked to end; press again to kill them")
        }
    })?;
    bar.finish_and_clear();
    if !report.interrupted {
        ended::settle(&report.tree, Witness::Records, context)?;
        let spent = match source.plan.retry.auto {
            true => auto::spent(&report.tree)?,
            false => None,
        };
        ended::tell(&report.tree, Witness::Records, spent.as_deref(), context)?;
    }
    if total > 0 {
        let took = duration(since.elapsed().as_secs_f64());
        out.say(&format!("{}: {} in {took}", source.plan.name, ends(&report)));
    }
    out.say(&format!("results: {}", report.tree.dir().display()));
    if report.interrupted {
        out.say("the same command goes on where this one stopped");
        return Ok(130);
    }
    collect::after_local(&report.tree, &report.diff, context)
}

/// The verb and the pronoun of so many trials that follow.
fn follows(trials: u64) -> (&'static str, &'static str) {
    if trials == 1 { ("follows", "it") } else { ("follow", "them") }
}

/// How many trials of a run here ended how, in words.
fn ends(report: &local::LocalReport) -> String {
    let of = |outcome| report.ended.get(&outcome).copied().unwrap_or(0);
    let all = [
        (of(Outcome::Failed), "failed"),
        (of(Outcome::Timeout), "timed out"),
        (of(Outcome::Interrupted), "interrupted"),
        (report.skipped, "skipped"),
    ];
    let some = all.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
    let done = format!("{} done", of(Outcome::Done));
    std::iter::once(done).chain(some).collect::<Vec<_>>().join(", ")
}

pub(super) fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The parameters of a trial in a few words, for a line of progress.
fn parameters(row: &crate::sweep::tree::table::Row) -> String {
    let parameters = &row.params;
    let mut words: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", short(&value.to_string(), 40)))
        .collect();
    if words.is_empty() {
        return String::new();
    }
    if words.len() > 6 {
        words.truncate(6);
        words.push("...".into());
    }
    format!(" ({})", words.join(" "))
}
