//! The plan's hooks, called by an agent without waiting for them: a few at a time, the others in a queue.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::fault;
use crate::host::Vars;
use crate::tree::Tree;
use crate::worker::hooks::{self, Call, Ending, RunningHook};

/// Hooks that run at the same time.
const AT_ONCE: usize = 4;

/// Lines that are kept for a full disk.
const MOST_UNSAID: usize = 1000;

/// The hooks of an agent.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// Calls that wait, with their trials.
    waiting: VecDeque<(u64, Call)>,
    running: Vec<(u64, RunningHook)>,
    /// What hooks print, of all trials of the agent.
    log: PathBuf,
    /// Lines that a full disk has refused so far.
    unsaid: VecDeque<String>,
}

impl Hooks {
    /// From now on they belong to an agent of this name.
    pub(super) fn belongs_to(&mut self, tree: &Tree, agent: &str) {
        self.log = tree.agent_file(agent, "hooks.log");
    }

    /// A trial has ended for good.
    pub(super) fn call(&mut self, ending: &Ending<'_>, vars: &Vars) {
        match hooks::prepare(ending, vars) {
            Ok(Some(call)) => self.waiting.push_back((ending.row.id, call)),
            Ok(None) => {}
            Err(error) => self.complain(ending.row.id, &fault::sentence(&error)),
        }
        self.look();
    }

    /// Starts what may start, and takes note of what has ended. `true` while there are any.
    pub(super) fn look(&mut self) -> bool {
        let mut ended = Vec::new();
        self.running.retain_mut(|(trial, hook)| {
            let end = hook.poll();
            let runs = end.is_none();
            ended.extend(end.and_then(Result::err).map(|complaint| (*trial, complaint)));
            runs
        });
        for (trial, complaint) in ended {
            self.complain(trial, &complaint);
        }
        while self.running.len() < AT_ONCE
            && let Some((trial, call)) = self.waiting.pop_front()
        {
            match RunningHook::start(call, &self.log) {
                Ok(hook) => self.running.push((trial, hook)),
                Err(complaint) => self.complain(trial, &complaint),
            }
        }
        self.say();
        !self.running.is_empty()
    }

    /// The process ids of the calls that run.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.running.iter().map(|(_, hook)| hook.pid())
    }

    /// Kills the calls that run and drops those that wait. The log says so.
    pub(super) fn give_up(&mut self) {
        let n = self.waiting.len();
        self.waiting.clear();
        for (trial, mut hook) in std::mem::take(&mut self.running) {
            let complaint = hook.kill("the agent was told to stop");
            self.complain(trial, &complaint);
        }
        if n > 0 {
            let hooks = crate::words::count(n as u64, "hook");
            self.unsaid.push_back(format!("{hooks} not called: the agent was told to stop"));
        }
        self.say();
    }

    /// The log is one of many trials.
    fn complain(&mut self, trial: u64, complaint: &str) {
        if self.unsaid.len() < MOST_UNSAID {
            self.unsaid.push_back(format!("trial {trial}: {complaint}"));
        }
    }

    /// Writes the messages, as far as the disk takes them.
    fn say(&mut self) {
        while let Some(line) = self.unsaid.front()
            && hooks::complain(&self.log, line).is_ok()
        {
            self.unsaid.pop_front();
        }
    }
}
