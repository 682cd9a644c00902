//! Hooks of trials whose callers were lost: somebody else calls them.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Ending, RunningHook, TAIL_BYTES, complain, complaint, prepare, tail_of_part};
use crate::base::fault;
use crate::base::host::{Vars, disk};
use crate::plan::site::Site;
use crate::sweep::attempt::log_tail;
use crate::sweep::status;
use crate::sweep::tree::due::{self, Due};
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::records::Attempt;
use crate::sweep::tree::{Tree, table};

/// Who asks how the trials stand.
#[derive(Clone, Copy)]
pub(crate) enum Witness<'a> {
    /// The records alone tell, as no scheduler has anything of it: what was interrupted goes on.
    Records,
    /// The scheduler is asked, too: some trials may be its jobs.
    Scheduler(&'a Site),
}

impl<'a> Witness<'a> {
    /// Whom a status asks.
    pub(super) fn whom(self, vars: &'a Vars) -> Option<(&'a Site, &'a Vars)> {
        match self {
            Self::Records => None,
            Self::Scheduler(site) => Some((site, vars)),
        }
    }
}

/// Pauses between looks at a running hook, or at the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the sweep's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Calls the hooks that are due and whose callers are gone; for how many trials.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn call(tree: &Tree, witness: Witness<'_>, vars: &Vars) -> Result<u64> {
    if due::read(tree)?.is_empty() {
        return Ok(0);
    }
    // The notes stay: the next caller finds them.
    let Ok(lock) = wait_for_lock(tree, PATIENCE) else { return Ok(0) };
    let (tree, identity) = Tree::open(tree.dir())?;
    let status = status::read(tree.clone(), identity, witness.whom(vars))?;
    let mut called = 0;
    for (mut due, attempt) in status.owed {
        if due.take()? {
            call_one(&tree, &due, &attempt, vars, &lock)?;
            called += 1;
        }
    }
    Ok(called)
}

/// Takes the sweep's lock, for which it waits for so long.
///
/// # Errors
/// When somebody else still holds it then.
pub(super) fn wait_for_lock(tree: &Tree, patience: Duration) -> Result<Lock> {
    let until = Instant::now() + patience;
    loop {
        match Lock::take(tree) {
            Ok(lock) => return Ok(lock),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Calls the hook for the end of an attempt.
fn call_one(tree: &Tree, due: &Due, attempt: &Attempt, vars: &Vars, lock: &Lock) -> Result<()> {
    let Some(end) = &attempt.end else { return Ok(()) };
    let (head, row) = table::find(tree, due.trial)?;
    let (log, log_tail) = match &attempt.bundle {
        Some(own) => {
            let slot = tree.agent_file(&own.agent, &format!("{}.log", own.slot));
            let tail = own.log.map_or_else(String::new, |part| tail_of_part(&slot, part));
            (tree.agent_file(&own.agent, "hooks.log"), tail)
        }
        None => {
            let log = tree.log(due.trial, attempt.run);
            let tail = log_tail::of(&disk::read_end(&log, TAIL_BYTES).unwrap_or_default());
            (log, tail)
        }
    };
    let host = &attempt.start.host;
    let ending = Ending { tree, head: &head, row: &row, end, host, log_tail };
    let ended = match prepare(&ending, vars) {
        Ok(Some(call)) => RunningHook::start(call, &log).and_then(|hook| wait(hook, lock)),
        Ok(None) => Ok(()),
        Err(error) => Err(complaint(due::name(end), &fault::sentence(&error))),
    };
    if let Err(said) = ended {
        // A full disk has no place for it.
        let _ = complain(&log, &said);
    }
    due.settle();
    Ok(())
}

/// Waits for the end of a hook with the sweep's lock; what went wrong with it.
pub(super) fn wait(mut hook: RunningHook, lock: &Lock) -> Result<(), String> {
    loop {
        if let Some(ended) = hook.poll() {
            return ended;
        }
        std::thread::sleep(PAUSE);
        lock.touch();
    }
}
