//! The plan's hooks, called by an agent without waiting for them: a few at a time, the others in a queue.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::base::fault;
use crate::base::host::Vars;
use crate::run::worker::hooks::{self, Call, Ending, RunningHook};
use crate::sweep::tree::Tree;
use crate::sweep::tree::due::Due;

/// Hooks that run at the same time.
const AT_ONCE: usize = 4;

/// Lines that are kept for a full disk.
const MOST_UNSAID: usize = 1000;

/// The hooks of an agent.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// Calls that wait, with the notes that they are due.
    waiting: VecDeque<(Due, Call)>,
    running: Vec<(Due, RunningHook)>,
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
    pub(super) fn call(&mut self, ending: &Ending<'_>, vars: &Vars, due: Due) {
        match hooks::prepare(ending, vars) {
            Ok(Some(call)) => self.waiting.push_back((due, call)),
            Ok(None) => {}
            Err(error) => self.ended(&due, Some(&fault::sentence(&error))),
        }
        self.look();
    }

    /// Starts what may start, and takes note of what has ended. `true` while there are any.
    pub(super) fn look(&mut self) -> bool {
        let mut ended = Vec::new();
        self.running.retain_mut(|(due, hook)| {
            let end = hook.poll();
            let runs = end.is_none();
            ended.extend(end.map(|end| (due.clone(), end.err())));
            runs
        });
        for (due, complaint) in ended {
            self.ended(&due, complaint.as_deref());
        }
        while self.running.len() < AT_ONCE
            && let Some((due, call)) = self.waiting.pop_front()
        {
            match RunningHook::start(call, &self.log) {
                Ok(hook) => self.running.push((due, hook)),
                Err(complaint) => self.ended(&due, Some(&complaint)),
            }
        }
        self.say();
        !self.running.is_empty()
    }

    /// The process ids of the calls that run.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.running.iter().map(|(_, hook)| hook.pid())
    }

    /// Kills the calls that run and drops those that wait: others find that they are due. The log says so.
    pub(super) fn give_up(&mut self) {
        let n = self.waiting.len();
        self.waiting.clear();
        for (due, mut hook) in std::mem::take(&mut self.running) {
            let complaint = hook.kill("the agent was told to stop");
            self.complain(due.trial, &complaint);
        }
        if n > 0 {
            let hooks = crate::base::words::count(n as u64, "hook");
            self.unsaid.push_back(format!("{hooks} not called: the agent was told to stop"));
        }
        self.say();
    }

    /// A call has been made.
    fn ended(&mut self, due: &Due, complaint: Option<&str>) {
        due.settle();
        if let Some(complaint) = complaint {
            self.complain(due.trial, complaint);
        }
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
