//! An agent whose trials are not programs: it hands them one by one to a function of the caller, or through
//! [`serve`] to the process at the other end of a pipe.
//!
//! The agent records the end of a trial before it hands out the next one, with one call of write(2) for each
//! trial.

mod agent;
mod call;
mod measure;
pub(crate) mod serve;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::base::host::signal::Signals;
use crate::base::host::{Vars, access, threads};
use crate::sweep::attempt::exit::Exit;
use crate::sweep::tree::Tree;
use crate::sweep::tree::table::Row;
use agent::{FunctionAgent, Step};
use measure::Begun;

pub use crate::run::pull::lifecycle::{News, Report};

/// The options of the caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Seconds after which the agent's allocation ends, where the scheduler does not say.
    pub time_left_s: Option<f64>,
    /// Whether the agent may leave before the last trial has ended, if other agents can finish the rest.
    pub may_go: bool,
}

/// A trial that is to be run now.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Its row of the table; `row.params` are its parameters.
    pub row: Row,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The trial's own folder, which may not exist.
    pub work_dir: std::path::PathBuf,
    /// Its folder for checkpoints, the same for every attempt, which may not exist.
    pub checkpoint_dir: std::path::PathBuf,
    /// Whether the agent may end it before it does so by itself: its walltime may be over, or a copy of it may win.
    pub may_end: bool,
    /// When the agent asks it to end, in seconds since the epoch, if anything limits it.
    pub deadline: Option<u64>,
    /// Where trials name their devices: the value of `CUDA_VISIBLE_DEVICES` for this one, `None` as it is. A process cannot
    /// change its devices once it has used CUDA.
    pub devices: Option<Option<String>>,
    stop: Arc<AtomicBool>,
}

impl Trial {
    /// Whether the agent has to leave soon. The result of a function that ends now still counts.
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Why a trial has no result.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    /// Why, in one line: it goes into the record.
    pub reason: String,
    /// More of it, as a traceback: it goes to the log of the trial.
    pub details: String,
    /// The exit code that stands for it; 1 by default.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It was stopped, and is to run elsewhere.
    pub is_interrupted: bool,
}

impl Failure {
    /// The exit that stands for it, after so many seconds.
    fn exit(&self, seconds: f64) -> Exit {
        let code = self.signal.map(|signal| 128 + signal).or(self.exit_code);
        // A function that exits with 0 has no result all the same.
        Exit::of_call(code.filter(|code| *code != 0).unwrap_or(1), self.signal, seconds)
    }
}

/// How often an agent looks up from what the function runs, at least.
const GLANCE: Duration = Duration::from_millis(250);

/// Runs the trials of a sweep whose plan names a function (`[run] function`), by calling `function` for one
/// after the other on this thread, until nothing is left to do or the agent has to go. A panic of the function
/// fails the trial. Where the plan says who may read the sweep, `function` has the umask of before all the same.
///
/// `signals` come from [`crate::run::worker::process::child::listen`], called before any other thread was started; without,
/// a signal does what it does in the caller's program.
///
/// # Errors
/// When the sweep has no queue or its plan has no function, or the tree stays unreachable.
pub fn run<T, F>(
    tree: &Tree,
    options: Options,
    vars: &Vars,
    mut signals: Option<&mut Signals>,
    tell: T,
    mut function: F,
) -> Result<Report>
where
    T: FnMut(News<'_>) + Send,
    F: FnMut(&Trial) -> Result<Value, Failure>,
{
    let mut told = None;
    let joined = FunctionAgent::join(tree, options, vars, tell, |wait| {
        told = pause(&mut signals, wait);
        told.is_none()
    })?;
    let Some(agent) = joined else {
        return Ok(Report { signal: told.map(|s| s as i32), ..Report::default() });
    };
    let agent = Mutex::new(agent);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (says, hears) = mpsc::channel();
        let (agent, over) = (&agent, &over);
        let companion = thread::Builder::new()
            .spawn_scoped(scope, move || {
                // If the other thread has ended, it no longer waits for the answer.
                let _ = says.send(access::part_umask());
                accompany(agent, signals, over)
            })
            .map_err(|error| threads::none(&error))?;
        let has_own_umask = hears.recv().unwrap_or(false);
        // Also when something panics: the scope waits for the companion.
        let _end = Ending { over, companion: companion.thread().clone() };
        loop {
            if companion.is_finished() {
                break;
            }
            let step = lock(agent).next_step()?;
            match step {
                Step::Gone => break,
                Step::Wait(nap) => thread::park_timeout(nap.min(GLANCE)),
                Step::Run(trial) => {
                    let begun = Begun::now();
                    let mut run = || call(&mut function, &trial);
                    let result = match has_own_umask {
                        true => access::with_umask_of_programs(run),
                        // The companion would make files that the sweep's readers cannot read.
                        false => run(),
                    };
                    let used = begun.used();
                    lock(agent).answer(result, None, used);
                }
            }
        }
        drop(_end);
        companion.join().unwrap_or_else(|_| Ok(()))
    })?;
    Ok(agent.into_inner().unwrap_or_else(PoisonError::into_inner).report())
}

/// Tells the companion that it is over.
struct Ending<'a> {
    over: &'a AtomicBool,
    companion: Thread,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.companion.unpark();
    }
}

/// Keeps the agent alive, and listens to signals, while the function is busy.
fn accompany<T: FnMut(News<'_>)>(
    agent: &Mutex<FunctionAgent<T>>,
    mut signals: Option<&mut Signals>,
    over: &AtomicBool,
) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        let due = lock(agent).until_due().min(GLANCE);
        let signal = pause(&mut signals, due);
        let mut agent = lock(agent);
        if let Some(signal) = signal {
            agent.told(signal);
        }
        if agent.running().is_some() {
            agent.watch()?;
        }
    }
    Ok(())
}

/// Waits; a signal that asks us to stop ends it.
fn pause(signals: &mut Option<&mut Signals>, wait: Duration) -> Option<Signal> {
    match signals {
        Some(signals) => signals.next(wait).filter(|signal| *signal != Signal::SIGCHLD),
        None => {
            thread::park_timeout(wait);
            None
        }
    }
}

fn call(
    function: &mut impl FnMut(&Trial) -> Result<Value, Failure>,
    trial: &Trial,
) -> Result<Value, Failure> {
    catch_unwind(AssertUnwindSafe(|| function(trial))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no words");
        let exit_code = Some(101);
        Err(Failure { reason: format!("panicked: {text}"), exit_code, ..Failure::default() })
    })
}

fn lock<T>(agent: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a thread that held the lock is that thread's fault; the records stay whole.
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
