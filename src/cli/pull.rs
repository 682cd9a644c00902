//! `hpcsweep worker --pull`: an agent on this host; `hpcsweep submit --pull`: a plan that agents run.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{Context, collect, ended, sweeps};
use crate::base::fault::Fault;
use crate::base::host::signal::Signals;
use crate::base::host::{access, disk, process};
use crate::base::words::{count, duration};
use crate::cluster::render::Templates;
use crate::plan::site::{SchedulerKind, Site};
use crate::run::pull::agent::{self, News, Options, Report};
use crate::run::pull::{program, solo};
use crate::run::worker::hooks::lost::Witness;
use crate::run::worker::process::child;
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::auto;
use crate::submit::grow;
use crate::submit::pilots;
use crate::submit::pilots::deal;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::records::Outcome;
use crate::sweep::tree::{Tree, deck};

/// Runs an agent for a sweep's folder, or for a plan. It first creates the queue if there is none.
///
/// # Errors
/// As [`deal::deal`] and [`agent::run`].
pub(super) fn run(what: &str, options: &Options, retry: bool, context: &Context) -> Result<u8> {
    // Before any thread is started: one that has the signals not blocked would end us.
    let mut signals = child::listen()?;
    let asked = deal::DealOptions { retry: Again::all(retry), ..deal::DealOptions::default() };
    let tree = match laid_down(what, &asked, &mut signals, context)? {
        Ok(tree) => tree,
        Err(signal) => return Ok(u8::try_from(128 + signal as i32).unwrap_or(1)),
    };
    become_program(&tree, options, context)?;
    if Path::new(what).is_file() {
        return Err(again(&tree, options, context)?.into());
    }
    let report = here(&tree, options, &mut signals, context)?;
    Ok(code(&report))
}

/// The tree of a sweep's folder, or of a plan, whose queue is created first if there is none; or the signal that
/// came meanwhile.
fn laid_down(
    what: &str,
    asked: &deal::DealOptions,
    signals: &mut Signals,
    context: &Context,
) -> Result<std::result::Result<Tree, Signal>> {
    let tree = if Path::new(what).is_file() {
        let site = context.site()?;
        let source = Source::read(Path::new(what))?;
        let templates = source.templates(None, &site)?;
        let mut told = None;
        let listen = || {
            told = signals.next(Duration::ZERO).filter(|signal| *signal != Signal::SIGCHLD);
            told.is_some()
        };
        let dealt = deal::deal(&source, &site, &templates, asked, &context.vars, listen);
        if let (Err(_), Some(signal)) = (&dealt, told) {
            context
                .out
                .say(&format!("it got {signal} while it waited for the plan to be laid down"));
            return Ok(Err(signal));
        }
        let dealt = dealt?;
        say_dealt(&source.plan.name, &dealt, context);
        dealt.tree
    } else if asked.retry.is_wanted() {
        return Err(Fault::request("`--retry` needs the plan, not the folder of the sweep").into());
    } else {
        let tree = Tree::open(Path::new(what))?.0;
        tree.trust()?;
        tree
    };
    sweeps::remember(&tree, context);
    Ok(Ok(tree))
}

/// Runs an agent that hands the trials to the process at the other end of standard input and output. It
/// reports its own errors there too.
///
/// # Errors
/// As [`run`], where that process is gone already.
pub(super) fn serve(what: &str, options: &Options, retry: bool, context: &Context) -> Result<u8> {
    let out = &context.out;
    let served = try_to_serve(what, options, retry, context);
    let report = match served {
        Ok(report) => report,
        Err(error) => {
            let code = crate::base::fault::exit_code(&error);
            let words = serde_json::json!({ "fault": format!("{error:#}"), "exit_code": code });
            return match out.line_now(format!("{words}\n").as_bytes()) {
                Ok(()) => Ok(code),
                Err(_) => Err(error),
            };
        }
    };
    sum_up(&report, context);
    Ok(code(&report))
}

/// Becomes the program that has the function of the sweep's trials, where there is one; otherwise returns.
///
/// # Errors
/// When it cannot be started.
fn become_program(tree: &Tree, options: &Options, context: &Context) -> Result<()> {
    if let Some((argv, env)) = program::of(tree, options, &context.vars)? {
        let vars: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        return Err(process::become_program(&argv, &vars).into());
    }
    Ok(())
}

/// Becomes an agent of a sweep whose queue exists: creating the queue takes memory that an agent would keep,
/// and copy with every program it starts.
fn again(tree: &Tree, options: &Options, context: &Context) -> Result<Fault> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![text(&disk::own_executable()?)];
    argv.extend(context.out.quiet.then(|| "--quiet".to_owned()));
    argv.extend(["worker".to_owned(), "--pull".to_owned(), text(tree.dir())]);
    argv.extend(options.slots.iter().flat_map(|n| ["--slots".to_owned(), n.to_string()]));
    let left = options.time_left_s.map(|s| format!("{}s", s as u64));
    argv.extend(left.into_iter().flat_map(|left| ["--time-left".to_owned(), left]));
    argv.extend(access::shared_option());
    argv.extend(options.may_go.then(|| "--may-go".to_owned()));
    Ok(process::become_program(&argv, &[]))
}

fn try_to_serve(what: &str, options: &Options, retry: bool, context: &Context) -> Result<Report> {
    let mut signals = child::listen()?;
    // Who kills the client's process group wants its trials given back.
    process::stand_apart();
    let asked = deal::DealOptions {
        retry: Again::all(retry),
        serves: true,
        ..deal::DealOptions::default()
    };
    let tree = match laid_down(what, &asked, &mut signals, context)? {
        Ok(tree) => tree,
        Err(signal) => {
            let report = Report { signal: Some(signal as i32), ..Report::default() };
            let _ =
                context.out.line_now(format!("{}\n", solo::serve::farewell(&report)).as_bytes());
            return Ok(report);
        }
    };
    let options = solo::Options { time_left_s: options.time_left_s, may_go: options.may_go };
    let send = |bytes: &[u8]| context.out.line_now(bytes);
    let tell = |news: News<'_>| show(&news, context);
    let stdin = std::io::stdin();
    let report =
        solo::serve::serve(&tree, options, &context.vars, &mut signals, stdin, send, tell)?;
    tell_end(&tree, &report, context)?;
    Ok(report)
}

/// An agent in this process, with its news on standard error.
///
/// # Errors
/// As [`agent::run`].
pub(super) fn here(
    tree: &Tree,
    options: &Options,
    signals: &mut Signals,
    context: &Context,
) -> Result<Report> {
    let show = |news: News<'_>| show(&news, context);
    let report = agent::run(tree, options, &context.vars, signals, show)?;
    sum_up(&report, context);
    tell_end(tree, &report, context)?;
    Ok(report)
}

/// Calls the hook of a sweep that an agent has seen end, or stop because too many trials fail.
fn tell_end(tree: &Tree, report: &Report, context: &Context) -> Result<()> {
    // One that a signal ends has no time for it.
    if report.signal.is_none() {
        ended::settle(tree, Witness::Records, context)?;
        let stopped = match &report.failed {
            Some(why) => Some(why.clone()),
            None => spent(tree)?,
        };
        ended::tell(tree, Witness::Records, stopped.as_deref(), context)?;
    }
    Ok(())
}

/// Why trials of a sweep that is over do not run again, if that is the budget.
fn spent(tree: &Tree) -> Result<Option<String>> {
    let decks = deck::read(tree)?;
    let retry = decks.last().and_then(|deck| deck.retry.as_ref());
    let has_budget = retry.is_some_and(|retry| retry.budget.is_some());
    match has_budget && Ledger::read(tree)?.is_over(deck::total(&decks)) {
        true => auto::spent_by_agents(tree),
        false => Ok(None),
    }
}

/// Tells what happens to an agent.
fn show(news: &News<'_>, context: &Context) {
    let out = &context.out;
    match news {
        News::Joined(name, slots) => {
            let slots = count(u64::from(*slots), "slot");
            out.say(&format!("agent {name}: {slots}"));
        }
        News::Waiting(why) | News::Note(why) => out.say(why),
        News::Ended(_, Outcome::Done, _, _) => {}
        News::Ended(trial, outcome, reason, seconds) => {
            let word = format!("{outcome:?}").to_lowercase();
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            out.say(&format!("trial {trial} {word} in {}{reason}", duration(*seconds)));
        }
    }
}

/// Tells what an agent has done.
fn sum_up(report: &Report, context: &Context) {
    let mut parts: Vec<String> = Vec::new();
    for (outcome, n) in &report.ended {
        parts.push(format!("{n} {}", format!("{outcome:?}").to_lowercase()));
    }
    if parts.is_empty() {
        parts.push("no trial ended here".to_owned());
    }
    let why = if report.reason.is_empty() {
        String::new()
    } else {
        format!("; it left: {}", report.reason)
    };
    context.out.say(&format!("agent: {}{why}", parts.join(", ")));
}

/// Enqueues a plan and submits pilots to a scheduler.
///
/// # Errors
/// As [`pilots::submit`].
pub(super) fn submit(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &pilots::PilotOptions,
    kind: SchedulerKind,
    context: &Context,
) -> Result<u8> {
    let (out, name) = (&context.out, &source.plan.name);
    let report = pilots::submit(source, site, templates, options, kind, &context.vars, |text| {
        out.say(text)
    })?;
    sweeps::remember(&report.tree, context);
    let calls = count(u64::from(report.calls), "scheduler call");
    if let Some(why) = &report.was_halted {
        out.say(&format!("{name}: it was halted ({why}) and goes on"));
    }
    out.say(&match (&report.submitted, report.open) {
        (Some((pilots, _)), _) => format!("{name}: {pilots} submitted ({calls})"),
        (None, _) if let Some(by) = &report.held => {
            let sweep = report.tree.named();
            format!("{name}: it is held by {by}: `hpcsweep release {sweep}` continues it ({calls})")
        }
        (None, 0) => format!("{name}: nothing left to run ({calls})"),
        (None, _) => format!("{name}: no pilots are needed, there are some ({calls})"),
    });
    for there in &report.there {
        out.say(&there.words());
    }
    if !report.there.is_empty() && report.was_halted.is_some() {
        out.say("some of them may be about to leave: submit again when they are gone");
    }
    if let Some((_, job)) = &report.submitted {
        out.say(&format!("jobs: {job}"));
    }
    ended::settle(&report.tree, Witness::Records, context)?;
    if report.submitted.is_none() && report.open == 0 {
        // The agent that was to call it may have been killed.
        ended::tell(&report.tree, Witness::Records, spent(&report.tree)?.as_deref(), context)?;
    }
    out.say(&format!("results: {}", report.tree.dir().display()));
    out.say(&format!("next: hpcsweep status {}", report.tree.named()));
    Ok(0)
}

/// Deals a plan, runs an agent here until all has ended, and shows the results.
///
/// # Errors
/// As [`deal::deal`] and [`agent::run`].
pub(super) fn submit_here(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &pilots::PilotOptions,
    context: &Context,
) -> Result<u8> {
    // Before any thread is started: one that has the signals not blocked would end us.
    let mut signals = child::listen()?;
    let asked = deal::DealOptions {
        retry: options.retry.clone(),
        max_running: options.max_running,
        ..deal::DealOptions::default()
    };
    let told = || signals.next(Duration::ZERO).is_some_and(|s| s != Signal::SIGCHLD);
    let dealt = deal::deal_here(source, site, templates, &asked, &context.vars, told)?;
    say_dealt(&source.plan.name, &dealt, context);
    sweeps::remember(&dealt.tree, context);
    let slots = Options { slots: options.slots, quiet: context.out.quiet, ..Options::default() };
    if source.plan.run.function.is_some() {
        context.out.say(&format!("results: {}", dealt.tree.dir().display()));
    }
    become_program(&dealt.tree, &slots, context)?;
    let report = here(&dealt.tree, &slots, &mut signals, context)?;
    context.out.say(&format!("results: {}", dealt.tree.dir().display()));
    if let Some(signal) = report.signal {
        context.out.say("the same command goes on where this one stopped");
        return Ok(u8::try_from(128 + signal).unwrap_or(1));
    }
    if !report.reason.is_empty() {
        return Ok(code(&report).max(1));
    }
    collect::after_local(&dealt.tree, &grow::diff(&dealt.tree, source)?, context)
}

/// Enqueues trials of a sweep whose agents were started by hand.
///
/// # Errors
/// As [`deal::deal`].
pub(super) fn enqueue(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &pilots::PilotOptions,
    context: &Context,
) -> Result<u8> {
    let asked = deal::DealOptions {
        retry: options.retry.clone(),
        max_running: options.max_running,
        ..deal::DealOptions::default()
    };
    let dealt = deal::deal(source, site, templates, &asked, &context.vars, || false)?;
    let (out, name) = (&context.out, &source.plan.name);
    if dealt.units == 0 {
        out.say(&format!("{name}: nothing to run again"));
        return Ok(0);
    }
    say_dealt(name, &dealt, context);
    let sweep = dealt.tree.named();
    out.say(&format!("agents at work take them; to start one: hpcsweep worker --pull {sweep}"));
    Ok(0)
}

fn say_dealt(sweep: &str, dealt: &deal::Dealt, context: &Context) {
    dealt.left_alone.iter().chain(&dealt.notes).for_each(|words| context.out.say(words));
    if dealt.units > 0 {
        let (units, trials) = (count(dealt.units, "unit"), count(dealt.trials, "trial"));
        context.out.say(&format!("{sweep}: {trials} in {units} for agents"));
    }
}

/// The exit code of an agent: 128 + the signal that ended it, 4 where the machine was to blame, 1 if trials
/// failed here.
pub(super) fn code(report: &Report) -> u8 {
    let failed = report.ended.keys().any(|outcome| *outcome != Outcome::Done);
    match report.signal {
        Some(signal) => u8::try_from(128 + signal).unwrap_or(1),
        None if report.is_ill => 4,
        // Trials are left, and a process that waits for them would wait in vain.
        None => u8::from(failed || report.is_halted),
    }
}
