//! What cancelling, holding or releasing has done.

use std::collections::BTreeSet;

use crate::base::words::count;

/// The result of an order.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Trials that it was done for.
    pub(crate) trials: BTreeSet<u64>,
    /// Trials that have ended and whose jobs it was done for.
    pub(crate) over: BTreeSet<u64>,
    /// Ids as the scheduler was given them.
    pub(crate) ids: Vec<String>,
    /// Agents that it was done for: jobs of the scheduler.
    pub(crate) pilots: u64,
    /// Whether the job that submits the rest was one of them.
    pub(crate) has_feeder: bool,
    /// Whether agents, if there are any, were notified.
    pub(crate) is_told: bool,
    /// Trials that were named and have ended.
    pub(crate) ended: Vec<u64>,
    /// Trials that were named and have no job yet.
    pub(crate) unsubmitted: BTreeSet<u64>,
    /// Trials that were named, ended without success, and may be submitted again by the feeder.
    pub(crate) awaited: BTreeSet<u64>,
    /// Whether the sweep itself was held or released, so that this holds for later submissions.
    pub(crate) is_sweep: bool,
}

impl Done {
    /// Adds what was done after it.
    pub(super) fn add(&mut self, later: Self) {
        self.trials.extend(later.trials);
        self.over.extend(later.over);
        let new = later.ids.into_iter().filter(|id| !self.ids.contains(id));
        self.ids.extend(new.collect::<Vec<_>>());
        self.unsubmitted = later.unsubmitted;
        self.awaited = later.awaited;
        self.is_sweep |= later.is_sweep;
        self.has_feeder |= later.has_feeder;
    }

    /// How many trials, or agents, in words.
    pub(crate) fn words(&self) -> String {
        let trials = count(self.trials.len() as u64, "trial");
        let over = match self.over.len() as u64 {
            0 => None,
            1 => Some("the job of 1 trial that has ended".to_owned()),
            n => Some(format!("the jobs of {n} trials that have ended")),
        };
        let feeder = "the feeder";
        match (self.pilots, over) {
            (0, None) if self.trials.is_empty() && self.has_feeder => feeder.to_owned(),
            (0, None) if self.has_feeder => format!("{trials} and {feeder}"),
            (0, None) => trials,
            (0, Some(over)) if self.trials.is_empty() => over,
            (0, Some(over)) => format!("{trials} and {over}"),
            (n, _) => count(n, "pilot"),
        }
    }
}
