//! The plan's hooks, called by an agent without waiting for them: a few at a time, the others in a queue.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::host::{Vars, disk};
use crate::tree::{Tree, bundle};
use crate::worker::hooks::{self, Call, Ending, Running};

/// Hooks that run at the same time.
const AT_ONCE: usize = 4;

/// The hooks of an agent.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// With the trials that they tell of.
    waiting: VecDeque<(u64, Call)>,
    running: Vec<(u64, Running)>,
    /// What hooks print, of all trials of the agent.
    log: PathBuf,
}

impl Hooks {
    /// From now on they are an agent's of this name.
    pub(super) fn belongs_to(&mut self, tree: &Tree, agent: &str) {
        self.log = bundle::path(tree, agent, "hooks.log");
    }

    /// A trial has ended for good.
    pub(super) fn ring(&mut self, ending: &Ending<'_>, vars: &Vars) {
        match hooks::prepare(ending, vars) {
            Ok(Some(call)) => self.waiting.push_back((ending.row.id, call)),
            Ok(None) => {}
            Err(error) => {
                let error = error.to_string();
                complain(&self.log, ending.row.id, error.lines().next().unwrap_or_default());
            }
        }
        self.look();
    }

    /// Starts what may start, and takes note of what has ended. `true` while there are any.
    pub(super) fn look(&mut self) -> bool {
        let log = &self.log;
        self.running.retain_mut(|(trial, hook)| match hook.poll() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(complaint)) => {
                complain(log, *trial, &complaint);
                false
            }
        });
        while self.running.len() < AT_ONCE
            && let Some((trial, call)) = self.waiting.pop_front()
        {
            let started = disk::open_to_append(&self.log)
                .map_err(|error| error.to_string())
                .and_then(|sink| Running::start(call, sink));
            match started {
                Ok(hook) => self.running.push((trial, hook)),
                Err(complaint) => complain(&self.log, trial, &complaint),
            }
        }
        !self.running.is_empty()
    }

    /// Their processes.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.running.iter().map(|(_, hook)| hook.pid())
    }

    /// Ends them all.
    pub(super) fn give_up(&mut self) {
        let n = self.waiting.len();
        self.waiting.clear();
        for (trial, hook) in &mut self.running {
            let complaint = hook.kill("the agent was told to stop");
            complain(&self.log, *trial, &complaint);
        }
        self.running.clear();
        if n > 0 {
            let hooks = crate::words::count(n as u64, "hook");
            hooks::complain(&self.log, &format!("{hooks} not called: the agent was told to stop"));
        }
    }
}

/// The log is one of many trials.
fn complain(log: &Path, trial: u64, complaint: &str) {
    hooks::complain(log, &format!("trial {trial}: {complaint}"));
}
