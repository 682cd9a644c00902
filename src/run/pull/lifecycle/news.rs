//! What an agent reports about itself while it lives, and at its end.

use std::collections::BTreeMap;

use crate::sweep::tree::records::Outcome;

/// An event, for a caller that shows it.
#[derive(Debug)]
pub enum News<'a> {
    /// The agent has joined, with so many slots.
    Joined(&'a str, u32),
    /// It waits, and why.
    Waiting(&'a str),
    /// A trial has ended for good here.
    Ended(u64, Outcome, &'a str, f64),
    /// A remark for the agent's user, one sentence.
    Note(&'a str),
}

/// What an agent has done.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// Trials that ended for good here, by outcome.
    pub ended: BTreeMap<Outcome, u64>,
    /// Why it left before the end of the sweep; empty if it did not.
    pub reason: String,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the machine was why it left.
    pub is_ill: bool,
    /// Whether the sweep stops until it is submitted again or released.
    pub is_halted: bool,
    /// Why no agent goes on with it: too many of its trials fail.
    pub failed: Option<String>,
}
