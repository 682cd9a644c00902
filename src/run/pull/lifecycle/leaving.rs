//! Why and when an agent leaves before the sweep is over.

use std::time::{Duration, Instant};

use crate::base::host::{Vars, clock};
use crate::cluster::scheduler::job;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::time;

/// Why an agent takes no more.
#[derive(Debug, Clone)]
pub(crate) struct Leaving {
    /// Why, in words, for the ledger and the agent's user.
    pub(crate) reason: String,
    /// The trials that run are asked to end.
    pub(crate) stop: Option<Stop>,
    /// Whether the machine is why.
    pub(crate) is_ill: bool,
    /// Whether it stays after all if the sweep is released.
    pub(crate) is_held: bool,
}

impl Leaving {
    /// Leaves when running trials have ended by themselves.
    pub(crate) fn because(reason: String) -> Self {
        Self { reason, stop: None, is_ill: false, is_held: false }
    }
}

/// When an agent's time is over, and how long what runs may take to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// When the agent began, by [`clock::awake`] as the end.
    pub(crate) began: Instant,
    /// The end of the allocation.
    pub(crate) until: Option<Instant>,
    /// How long after a signal what runs is waited for.
    pub(crate) grace: Duration,
}

impl Time {
    /// The scheduler's value, else the rest of a time that the user gave.
    pub(crate) fn of(vars: &Vars, left_s: Option<f64>) -> Self {
        let left = job::told_end(vars).map(|end| end - clock::now()).or(left_s);
        let until = left.map(|s| clock::awake() + Duration::from_secs_f64(s.clamp(0.0, 1e9)));
        let grace = job::signal_grace(vars).unwrap_or(time::GRACE);
        Self { began: clock::awake(), until, grace }
    }
}
