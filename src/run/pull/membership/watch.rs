//! Which other agents are still alive. No clock of another host is read: what counts is whether the time of
//! change of an agent's bundle, which the file system stamps, is another one than at the last look.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use crate::base::host::disk;
use crate::sweep::tree::Tree;
use crate::sweep::tree::ledger::Ledger;

/// How many agents each one watches: those that follow it in the order of names.
const WATCHED: usize = 8;

/// The last observation of an agent.
#[derive(Debug)]
struct Seen {
    stamp: Option<(SystemTime, u64)>,
    /// Time that has passed with looks often enough, and no change.
    silent: Duration,
    last: Instant,
    looks: u32,
    /// Whether it has given a sign since it was first looked at.
    has_signed: bool,
}

/// Looks at other agents.
#[derive(Debug)]
pub(crate) struct Watch {
    lease: Duration,
    seen: HashMap<String, Seen>,
    last: Option<Instant>,
}

impl Watch {
    /// No agent has been observed yet.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, seen: HashMap::new(), last: None }
    }

    /// How often to look.
    pub(crate) fn pace(&self) -> Duration {
        self.lease / 8
    }

    /// Looks at the next few living agents behind `own`, if it is time to, and returns those that have
    /// given no sign for a whole lease.
    pub(crate) fn look(&mut self, tree: &Tree, ledger: &Ledger, own: &str) -> Vec<String> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < self.pace()) {
            return Vec::new();
        }
        self.last = Some(now);
        let living = |(name, agent): &(&String, &_)| {
            let agent: &crate::sweep::tree::ledger::Agent = agent;
            name.as_str() != own && agent.gone.is_none()
        };
        use std::ops::Bound::{Excluded, Unbounded};
        let after = ledger.agents.range::<str, _>((Excluded(own), Unbounded));
        let before = ledger.agents.range::<str, _>((Unbounded, Excluded(own)));
        let ring = after.chain(before).filter(living).take(WATCHED);
        let names: Vec<String> = ring.map(|(name, _)| name.clone()).collect();
        self.seen.retain(|name, _| names.contains(name));
        names.into_iter().filter(|name| self.is_silent(tree, name, now)).collect()
    }

    /// How many of the agents that it looks at are known to live: they have given a sign since it began to look, and
    /// not long ago. One that was killed before that is in the ledger like any other until its lease is over.
    pub(crate) fn well(&self, ledger: &Ledger) -> usize {
        let is_well = |name: &String| {
            let seen = self.seen.get(name);
            seen.is_some_and(|seen| seen.has_signed && seen.silent < self.lease / 2)
        };
        ledger.living().filter(|(name, agent)| !agent.leaving && is_well(name)).count()
    }

    /// The agent whose lease ends first, of those that hold something and have missed their heartbeats: its name, and
    /// the time until then as this agent measures it.
    pub(crate) fn missed(&self, ledger: &Ledger) -> Option<(String, Duration)> {
        let holders = ledger.living().filter(|(_, agent)| !agent.held.is_empty());
        let missed = holders.filter_map(|(name, _)| {
            let seen = self.seen.get(name).filter(|seen| seen.silent >= self.lease / 2)?;
            Some((name.clone(), self.lease.saturating_sub(seen.silent)))
        });
        missed.min_by_key(|(_, left)| *left)
    }

    fn is_silent(&mut self, tree: &Tree, name: &str, now: Instant) -> bool {
        // Opened, not only looked up: NFS asks the server again when a file is opened.
        let file = disk::open_plain(&tree.agent_file(name, "jsonl"));
        let stamp = file.and_then(|f| f.metadata()).and_then(|m| Ok((m.modified()?, m.len()))).ok();
        let fresh =
            |has_signed| Seen { stamp, silent: Duration::ZERO, last: now, looks: 0, has_signed };
        let seen = self.seen.entry(name.to_owned()).or_insert_with(|| fresh(false));
        if seen.stamp != stamp {
            *seen = fresh(true);
            return false;
        }
        // An agent that was suspended itself has observed nothing meanwhile, so a long gap counts as a short
        // one.
        seen.silent += (now - seen.last).min(self.lease / 4);
        seen.last = now;
        seen.looks += 1;
        seen.silent >= self.lease && seen.looks >= 4
    }
}
