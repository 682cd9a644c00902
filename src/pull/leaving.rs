//! Why and when an agent goes before the sweep is over.

use std::time::{Duration, Instant};

use super::place::Why;
use crate::host::{Vars, clock};

/// Why an agent takes no more.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    /// In words.
    pub reason: String,
    /// The trials that run are asked to end.
    pub stop: Option<Why>,
    /// Whether the machine is why.
    pub is_ill: bool,
    /// Whether it stays after all if the sweep is released.
    pub is_held: bool,
}

impl Leaving {
    /// What runs may end in peace.
    pub(super) fn because(reason: String) -> Self {
        Self { reason, stop: None, is_ill: false, is_held: false }
    }
}

/// When an agent's time is over, and how long what runs may take to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    /// When the agent began.
    pub began: Instant,
    /// The end of the allocation.
    pub until: Option<Instant>,
    /// How long after a signal what runs is waited for.
    pub grace: Duration,
}

impl Time {
    /// As the scheduler says, else what is left of a time that a person gave.
    pub(super) fn of(vars: &Vars, left_s: Option<f64>) -> Self {
        let end = vars.get("SLURM_JOB_END_TIME").and_then(|t| t.parse::<f64>().ok());
        let left = end.map(|end| end - clock::now()).or(left_s);
        let until = left.map(|s| Instant::now() + Duration::from_secs_f64(s.clamp(0.0, 1e9)));
        let grace = match (vars.contains_key("SLURM_JOB_ID"), vars.contains_key("PBS_JOBID")) {
            (true, _) => 18,
            (false, true) => 8,
            _ => 30,
        };
        Self { began: Instant::now(), until, grace: Duration::from_secs(grace) }
    }
}
