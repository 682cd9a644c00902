//! Hooks, which are called when a trial has ended: a program of the plan (`[hooks]`) or a closure of a
//! program that links this library ([`Told`], given to [`super::run`]).
//!
//! [`prepare()`] makes of an [`Ending`] the [`Call`] of the plan's hook. [`RunningHook`] is a running call,
//! which the caller polls and never waits for, so that it can continue with other trials. Nothing here
//! changes the records: the outcome of a hook is a line of the trial's log.

pub(crate) mod lost;
pub(crate) mod sweep;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::Job;
use crate::base::fault;
use crate::base::host::signal::Signals;
use crate::base::host::{Vars, disk, process};
use crate::plan::CommandTemplate;
use crate::run::worker::attempt::{self, AttemptEnd, Retry};
use crate::run::worker::process::scratch::private_folder;
use crate::run::worker::process::{heavy, prepare, starting};
use crate::sweep::attempt::log_tail;
use crate::sweep::tree::Tree;
use crate::sweep::tree::due::{self, Due};
use crate::sweep::tree::records::{self, Attempt, End, Outcome, Record};
use crate::sweep::tree::table::{Head, Row};

/// A trial that has ended for good, done or not.
#[derive(Debug, Clone)]
pub struct Ending<'a> {
    /// The sweep that the trial is of.
    pub(crate) tree: &'a Tree,
    /// The head of its table.
    pub(crate) head: &'a Head,
    /// The trial's row of the table.
    pub(crate) row: &'a Row,
    /// The end of its last attempt, as recorded.
    pub(crate) end: &'a End,
    /// The host of that attempt's rank 0.
    pub(crate) host: &'a str,
    /// The end of its log, as [`log_tail::of`] makes it.
    pub(crate) log_tail: String,
}

/// The function in the worker's own process that is called with an ending. It takes the worker's time.
pub(crate) type Told<'a> = &'a mut dyn FnMut(&Ending<'_>);

impl Ending<'_> {
    /// All of it, as it stands in the file `$HPCSWEEP_OUTCOME`.
    pub fn to_json(&self) -> Value {
        let Self { tree, head, row, end, host, log_tail } = self;
        json!({
            "sweep": head.sweep, "sweep_dir": tree.dir(), "trial": row.id, "task_id": row.task_id,
            "params": row.params, "attempt": end.attempt, "state": end.state,
            "exit_code": end.exit_code, "signal": end.signal, "cause": end.cause, "reason": end.why(),
            "duration_s": end.duration_s, "host": host, "result": end.result, "log_tail": log_tail,
        })
    }
}

/// Bytes of which [`log_tail::of`] makes a tail.
const TAIL_BYTES: u64 = 2 * log_tail::MOST_BYTES as u64;

/// [`log_tail::of`] a part of a file, from an offset on for so many bytes; empty if it cannot be read.
pub(crate) fn tail_of_part(path: &Path, (from, length): (u64, u64)) -> String {
    let most = length.min(TAIL_BYTES);
    log_tail::of(&disk::read_log_at(path, from + length - most, most).unwrap_or_default())
}

/// A private folder, removed when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        disk::remove_tree(&self.0);
    }
}

/// The plan's hook for an ending, ready to be started.
#[derive(Debug)]
pub(crate) struct Call {
    /// The key of `[hooks]`: `finish` or `error`.
    pub(crate) name: &'static str,
    /// Program and arguments, with expressions filled in.
    pub(crate) argv: Vec<String>,
    /// All variables of the hook, those with the outcome included.
    pub(crate) env: Vars,
    /// The folder in which the trial's command runs.
    pub(crate) workdir: PathBuf,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// What is missing for the call, for the trial's log.
    wants: Vec<String>,
    /// The folder of `$HPCSWEEP_OUTCOME`, removed with the call; `None` if the file could not be written.
    _folder: Option<Folder>,
}

/// The call of the plan's hook for an ending. `None` if the plan has no such hook, and for every interrupted
/// trial. `vars` is the environment of the worker.
///
/// # Errors
/// When an expression cannot be filled in.
pub(crate) fn prepare(ending: &Ending<'_>, vars: &Vars) -> Result<Option<Call>> {
    let Ending { tree, head, row, end, host, log_tail } = ending;
    let Some((name, argv)) = due::hook(head, end) else { return Ok(None) };
    let what = if name == "finish" { "hooks.finish" } else { "hooks.error" };
    let params = &row.params;
    let names = prepare::names(tree, head, row, end.attempt);
    let filled = |what, argv: &[String], env: &[(String, String)]| {
        CommandTemplate::named(what, argv, env)?.render(params, &names)
    };
    let argv = filled(what, argv, &[])?.argv;
    let mut env = prepare::environment(vars, params);
    // The hook may have to report that a device is missing.
    if let Ok(Some(devices)) = prepare::visible(head, row, vars) {
        env.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices);
    }
    // The hook may have to report that these cannot be filled in.
    env.extend(filled("", &[], &head.run.env).map(|run| run.env).unwrap_or_default());
    // The worker's place among MPI processes is not the hook's.
    env.retain(|name, _| !heavy::is_mpi_variable(name));
    let outcome = ending.to_json();
    // The hook may have to report that a disk is full.
    let (folder, file, wants) = match write_outcome(vars, ending, &outcome) {
        Ok((folder, file)) => (Some(folder), Some(file), Vec::new()),
        Err(error) => {
            (None, None, vec![format!("no $HPCSWEEP_OUTCOME: {}", fault::sentence(&error))])
        }
    };
    let number = |n: Option<i32>| n.map(|n| n.to_string()).unwrap_or_default();
    for (name, value) in [
        ("HPCSWEEP_SWEEP", head.sweep.clone()),
        ("HPCSWEEP_SWEEP_DIR", prepare::path_text(tree.dir())),
        ("HPCSWEEP_TRIAL", row.id.to_string()),
        ("HPCSWEEP_TASK_ID", row.task_text()),
        ("HPCSWEEP_ATTEMPT", end.attempt.to_string()),
        ("HPCSWEEP_STATE", outcome["state"].as_str().unwrap_or_default().to_owned()),
        ("HPCSWEEP_EXIT_CODE", number(end.exit_code)),
        ("HPCSWEEP_SIGNAL", number(end.signal)),
        ("HPCSWEEP_REASON", end.why().replace('\0', "\u{fffd}")),
        ("HPCSWEEP_DURATION_S", end.duration_s.to_string()),
        ("HPCSWEEP_HOST", (*host).to_owned()),
        ("HPCSWEEP_LOG_TAIL", log_tail.clone()),
    ] {
        env.insert(name.to_owned(), value);
    }
    if let Some(file) = file {
        env.insert("HPCSWEEP_OUTCOME".to_owned(), prepare::path_text(&file));
    }
    let limit = Duration::from_secs(head.run.hooks.timeout_s);
    let workdir = prepare::code(tree, head, row)?.1;
    env.insert("HPCSWEEP_SOURCE".to_owned(), prepare::path_text(&head.workdir));
    Ok(Some(Call { name, argv, env, workdir, limit, wants, _folder: folder }))
}

/// Writes the file `$HPCSWEEP_OUTCOME`, in a folder of its own.
fn write_outcome(vars: &Vars, ending: &Ending<'_>, outcome: &Value) -> Result<(Folder, PathBuf)> {
    let folder = Folder(private_folder(vars, ending.tree.dir(), ending.row.id)?);
    let file = folder.0.join("outcome.json");
    disk::append(&file, outcome.to_string().as_bytes())?;
    Ok((folder, file))
}

/// A hook under way; killed when dropped.
#[derive(Debug)]
pub(crate) struct RunningHook {
    call: Call,
    child: Child,
    since: Instant,
    over: bool,
}

impl RunningHook {
    /// Starts a hook in a process group of its own. Its output goes into the log, or is dropped if the log takes no
    /// more.
    ///
    /// # Errors
    /// Why it could not be started, as a line for the trial's log.
    pub(crate) fn start(mut call: Call, log: &Path) -> Result<Self, String> {
        let opened = match log.parent() {
            Some(folder) if disk::is_full(folder) => Err("its disk is full".to_owned()),
            _ => attempt::open_log(log).map_err(|error| fault::sentence(&error)),
        };
        let opened = opened.or_else(|why| {
            call.wants.push(format!("what it printed is lost: {why}"));
            disk::open_nowhere()
        });
        let sink =
            process::Sink::File(opened.map_err(|e| complaint(call.name, &fault::sentence(&e)))?);
        let Call { argv, env, workdir, .. } = &call;
        match process::start(argv, env, workdir, sink, Signal::SIGKILL, None, &[]) {
            Ok(child) => Ok(Self { call, child, since: Instant::now(), over: false }),
            Err(e) => {
                let fault = starting::start_fault(&argv[0], workdir, env, &e);
                Err(complaint(call.name, &fault.sentence))
            }
        }
    }

    /// Looks at it, and kills it when its time is over. `None`: it runs. Otherwise it has ended, and if
    /// it did not end well, this is a line for the trial's log.
    pub(crate) fn poll(&mut self) -> Option<Result<(), String>> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                self.over = true;
                // Processes that the hook has left running end with it.
                process::kill_group(&self.child, Signal::SIGKILL);
                let what = match (status.signal(), process::code_of(status)) {
                    (None, 0) if self.call.wants.is_empty() => return Some(Ok(())),
                    (None, 0) => None,
                    (None, code) => Some(format!("exit code {code}")),
                    (Some(signal), _) => Some(records::signal_text(signal)),
                };
                Some(Err(self.complaint(what)))
            }
            Ok(None) if !self.left().is_zero() => None,
            _ => {
                let limit = self.call.limit.as_secs();
                Some(Err(self.kill(&format!("killed after {limit} s"))))
            }
        }
    }

    /// Its process id, which is also that of its group.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it may still take.
    pub(crate) fn left(&self) -> Duration {
        self.call.limit.saturating_sub(self.since.elapsed())
    }

    /// Kills it and everything in its process group; returns a line for the trial's log that says `why`.
    pub(crate) fn kill(&mut self, why: &str) -> String {
        self.over = true;
        process::kill_group(&self.child, Signal::SIGKILL);
        // One that hangs in the kernel is left to it.
        process::wait_for(&mut self.child, Duration::from_secs(1));
        self.complaint(Some(why.to_owned()))
    }

    /// How it ended, with what it had to do without.
    fn complaint(&self, what: Option<String>) -> String {
        let parts: Vec<String> = what.into_iter().chain(self.call.wants.iter().cloned()).collect();
        complaint(self.call.name, &parts.join("; "))
    }
}

impl Drop for RunningHook {
    fn drop(&mut self) {
        if !self.over {
            self.kill("dropped");
        }
    }
}

fn complaint(name: &str, what: &str) -> String {
    format!("hook {name}: {what}")
}

/// Appends what became of a hook to the trial's log, on a line of its own.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn complain(log: &Path, complaint: &str) -> Result<()> {
    let is_open = disk::read_end(log, 1).is_ok_and(|end| !matches!(*end, [] | [b'\n']));
    let gap = if is_open { "\n" } else { "" };
    disk::append(log, format!("{gap}hpcsweep: {complaint}\n").as_bytes())
}

/// Whether the trial does not run again after this attempt: not in this worker, not in a later launch of the
/// same job, and not elsewhere, as after an interruption. `before` is the record before this run.
fn is_for_good(job: &Job, before: &Record, verdict: &AttemptEnd) -> bool {
    let relaunched = verdict.retry == Retry::Relaunch
        && (job.vars.contains_key("HPCSWEEP_AGAIN")
            || (job.vars.contains_key("HPCSWEEP_MEET") && job.job_id.is_none()));
    match verdict.end.state {
        Outcome::Done | Outcome::Timeout => true,
        Outcome::Interrupted => false,
        // As many launches as attempts, and each of them makes one.
        Outcome::Failed => {
            let tried = failures_in_a_row(before, job.job_id.as_deref()) + 1;
            !relaunched || tried.is_multiple_of(job.attempts().max(1))
        }
    }
}

/// How many attempts at the end of a record have failed one after the other in the same job.
fn failures_in_a_row(record: &Record, job: Option<&str>) -> u32 {
    let failed = |a: &&Attempt| {
        let ran = |end: &End| end.state == Outcome::Failed && end.exit_code.is_some();
        a.start.job.as_deref() == job && a.end.as_ref().is_some_and(ran)
    };
    record.attempts.iter().rev().take_while(failed).count() as u32
}

/// Reports the end of a run if the trial has ended for good: to the caller's function and to the plan's hook.
/// Waits for the hook, at most its time. A signal that asks the worker to end also ends the hook, and is
/// returned.
pub(super) fn tell(
    job: &Job,
    before: &Record,
    verdict: &AttemptEnd,
    run: u32,
    signals: &mut Signals,
    told: Option<Told<'_>>,
) -> Option<Signal> {
    let Job { tree, head, row, host, .. } = job;
    let end = &verdict.end;
    let due = Due::of_run(tree, row.id, run);
    if told.is_none() && head.run.hooks.is_default() {
        return None;
    }
    if !is_for_good(job, before, verdict) {
        due.settle();
        return None;
    }
    let log = tree.log(row.id, run);
    let log_tail = log_tail::of(&disk::read_end(&log, TAIL_BYTES).unwrap_or_default());
    let ending = Ending { tree, head, row, end, host, log_tail };
    if let Some(told) = told {
        told(&ending);
    }
    call(&ending, &log, &due, &job.vars, signals)
}

/// Calls the hook for the end of a trial that is done, if an earlier run in the same job was killed before it had. As
/// [`tell`], returns a signal.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn tell_late(
    job: &Job,
    record: &Record,
    signals: &mut Signals,
) -> Result<Option<Signal>> {
    let Job { tree, head, row, .. } = job;
    let Some(attempt) = record.decisive().filter(|own| own.bundle.is_none()) else {
        return Ok(None);
    };
    let is_requeued = job.job_id.is_some() && attempt.start.job == job.job_id;
    let is_alive = attempt.start.host == job.host && attempt.start.is_process();
    if head.run.hooks.is_default() || !is_requeued || is_alive {
        return Ok(None);
    }
    let mut due = Due::of_run(tree, row.id, attempt.run);
    let Some(end) = attempt.end.as_ref().filter(|end| due::hook(head, end).is_some()) else {
        return Ok(None);
    };
    if !due.take()? {
        return Ok(None);
    }
    let log = tree.log(row.id, attempt.run);
    let log_tail = log_tail::of(&disk::read_end(&log, TAIL_BYTES).unwrap_or_default());
    let ending = Ending { tree, head, row, end, host: &attempt.start.host, log_tail };
    Ok(call(&ending, &log, &due, &job.vars, signals))
}

/// Calls the plan's hook, waits for it, and settles the note that it is due unless a signal has ended the call, which is
/// returned.
fn call(
    ending: &Ending<'_>,
    log: &Path,
    due: &Due,
    vars: &Vars,
    signals: &mut Signals,
) -> Option<Signal> {
    let mut stop = None;
    let called = match prepare(ending, vars) {
        Ok(None) => return None,
        Ok(Some(call)) => run_to_its_end(call, log, signals, &mut stop),
        Err(error) => Err(complaint(due::name(ending.end), &fault::sentence(&error))),
    };
    // Processes that have left the hook's group or session end with it too.
    process::end_strays(None);
    if let Err(said) = called {
        // A full disk has no place for it.
        let _ = complain(log, &said);
    }
    if stop.is_none() {
        due.settle();
    }
    stop
}

fn run_to_its_end(
    call: Call,
    log: &Path,
    signals: &mut Signals,
    stop: &mut Option<Signal>,
) -> Result<(), String> {
    let mut running = RunningHook::start(call, log)?;
    // In a program with several threads, another thread may get a signal.
    let mut nap = Duration::from_millis(10);
    loop {
        if let Some(ended) = running.poll() {
            return ended;
        }
        match signals.next(nap.min(running.left())) {
            None => nap = (nap * 2).min(Duration::from_secs(1)),
            Some(Signal::SIGCHLD) => {}
            Some(signal) => {
                *stop = Some(signal);
                return Err(running.kill(&format!("the worker got {signal}")));
            }
        }
    }
}

#[cfg(test)]
mod tests;
