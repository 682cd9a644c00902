//! Copies of trials that take too long, for slots that have nothing left to do.

use std::collections::HashMap;

use anyhow::Result;

use super::pace::Pace;
use crate::host::{clock, disk};
use crate::tree::bundle::{self, Line};
use crate::tree::ledger::Ledger;
use crate::tree::records::Outcome;
use crate::tree::{Tree, bundle::Placed};

/// What was read of the bundles of others.
#[derive(Debug, Default)]
pub(super) struct Copies {
    agents: HashMap<String, Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    /// Bytes read as whole lines.
    size: u64,
    /// Trials that run there: attempt, start (unix seconds), and the entries that their agent had read.
    open: HashMap<u64, (u32, f64, u64)>,
}

/// A trial that has taken too long.
#[derive(Debug, PartialEq)]
pub(super) struct Straggler {
    /// Who runs it.
    pub of: String,
    /// The trial.
    pub trial: u64,
    /// Its attempt there.
    pub attempt: u32,
    /// Bytes of that agent's bundle that were read.
    pub size: u64,
    /// How many entries that agent had read when it began the trial.
    pub since: u64,
}

impl Copies {
    /// The trial that has run longest, if that is more than `factor` times the median and it has no copy.
    /// Durations read on the way are added to `pace`.
    ///
    /// # Errors
    /// When a bundle cannot be read.
    pub(super) fn find(
        &mut self,
        tree: &Tree,
        ledger: &Ledger,
        pace: &mut Pace,
        factor: f64,
    ) -> Result<Option<Straggler>> {
        let holders = ledger.living().filter(|(_, agent)| !agent.held.is_empty());
        for (name, _) in holders {
            let followed = self.agents.entry(name.clone()).or_default();
            let path = bundle::path(tree, name, "jsonl");
            if !path.exists() {
                continue;
            }
            let bytes = disk::read_at(&path, followed.size, u64::MAX >> 1)?;
            let (lines, size, _) = bundle::lines(&bytes, followed.size);
            followed.size = size;
            followed.take(lines, pace);
        }
        let Some(median) = pace.quantile(0.5, 3) else { return Ok(None) };
        let now = clock::now();
        let mut worst: Option<(f64, Straggler)> = None;
        for (name, followed) in &self.agents {
            if ledger.agents.get(name).is_none_or(|agent| agent.gone.is_some()) {
                continue;
            }
            for (&trial, &(attempt, began, since)) in &followed.open {
                let age = now - began;
                let is_worst = worst.as_ref().is_none_or(|(other, _)| age > *other);
                if age > median * factor && is_worst && ledger.may_be_copied(trial, since) {
                    let (of, size) = (name.clone(), followed.size);
                    worst = Some((age, Straggler { of, trial, attempt, size, since }));
                }
            }
        }
        Ok(worst.map(|(_, straggler)| straggler))
    }
}

impl Followed {
    fn take(&mut self, lines: Vec<Placed>, pace: &mut Pace) {
        for (_, line) in lines {
            match line {
                Line::Start { trial, attempt, time, seq, .. } => {
                    self.open.insert(trial, (attempt, time, seq));
                }
                Line::End(end) => {
                    self.open.remove(&end.trial);
                    if end.state == Outcome::Done {
                        pace.add(end.duration_s);
                    }
                }
                _ => {}
            }
        }
    }
}
