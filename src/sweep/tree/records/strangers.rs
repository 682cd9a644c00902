//! Notices lines that are not of the trial, the run or the agent whose file they stand in, as after a copy over another file.

use std::collections::HashSet;

use super::{Event, Start, Who};
use crate::sweep::tree::keys::Keys;

/// The file that lines must be of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of<'a> {
    /// A run of a trial.
    Run(u64, u32),
    /// An agent, which runs many.
    Agent(&'a str),
}

/// Decides of each line of one file whether it is of what the file's name says.
pub(super) struct Strangers<'a> {
    of: Of<'a>,
    keys: &'a Keys<'a>,
    /// Trials whose lines are left out until an attempt of the right trial begins.
    left_out: HashSet<u64>,
    /// Whether another agent has written the file.
    is_of_another: bool,
    /// Lines that were left out.
    pub(super) lines: u64,
    /// The first of them in words, such as `trial 3`.
    pub(super) first: Option<String>,
}

impl<'a> Strangers<'a> {
    pub(super) fn new(of: Of<'a>, keys: &'a Keys<'a>) -> Self {
        let (left_out, is_of_another) = (HashSet::new(), false);
        Self { of, keys, left_out, is_of_another, lines: 0, first: None }
    }

    /// The run whose file it is; 0 of an agent.
    pub(super) fn run(&self) -> u32 {
        if let Of::Run(_, run) = self.of { run } else { 0 }
    }

    /// Whether a line about this trial is of the file.
    pub(super) fn has(&mut self, trial: u64) -> bool {
        match self.of {
            Of::Run(own, _) if own != trial => self.leave_out(|| format!("trial {trial}")),
            _ if self.is_of_another || self.left_out.contains(&trial) => {
                self.leave_out(String::new)
            }
            _ => true,
        }
    }

    /// Whether an event is of the file.
    pub(super) fn takes(&mut self, event: &Event) -> bool {
        let start = match event {
            Event::Agent(Who { agent, .. }) => {
                self.is_of_another = !matches!(self.of, Of::Agent(own) if own == agent);
                return !self.is_of_another || self.leave_out(|| format!("agent `{agent}`"));
            }
            Event::Start(start) => start,
            other => return other.trial().is_none_or(|trial| self.has(trial)),
        };
        self.left_out.remove(&start.trial);
        if !self.has(start.trial) {
            return false;
        }
        let Some(words) = self.other(start) else { return true };
        self.left_out.insert(start.trial);
        self.leave_out(|| words)
    }

    /// Of what a start is, if that is not its trial of the table, or not the run of the file.
    fn other(&self, start: &Start) -> Option<String> {
        let Start { trial, run, key, .. } = start;
        if !self.keys.fits(*trial, *key) {
            return Some(format!("a trial {trial} with other parameters or another command"));
        }
        match self.of {
            Of::Run(_, own) if *run > 0 && *run != own => Some(format!("run {run}")),
            _ => None,
        }
    }

    fn leave_out(&mut self, words: impl FnOnce() -> String) -> bool {
        self.lines += 1;
        self.first.get_or_insert_with(words);
        false
    }
}
