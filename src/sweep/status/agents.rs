//! The ledger's state of trials that have not ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::UNIX_EPOCH;

use anyhow::Result;

use super::pilots::Pilots;
use crate::base::host::{clock, disk};
use crate::base::words;
use crate::cluster::scheduler::{Element, State as Word};
use crate::plan::Pull;
use crate::sweep::tree::export::About;
use crate::sweep::tree::ledger::{self, Ledger};
use crate::sweep::tree::records::ByTrial;
use crate::sweep::tree::{Tree, deck};

/// The agents' states of trials that are theirs and have not ended.
#[derive(Debug, Default)]
pub(super) struct Words {
    open: HashMap<u64, Element>,
    /// The state of the agents, in words; empty if there never were any.
    seen: String,
    /// Agents that are at work.
    living: HashSet<String>,
    /// Whether trials are left, and no agent takes them before somebody submits again or starts one.
    are_missing: bool,
}

impl Words {
    /// Their state by `ledger`, which was read before the `records`; `pilots` are agents that a scheduler
    /// knows; `copied`: the archive from which the sweep was unpacked, whose agents are not here.
    pub(super) fn read(
        tree: &Tree,
        (ledger, records): (&Ledger, &ByTrial),
        pilots: &[Pilots],
        copied: Option<&About>,
    ) -> Result<Self> {
        // A damaged deck is reported as such. No agent can take its trials.
        let decks = deck::read(tree).unwrap_or_default();
        if decks.is_empty() {
            return Ok(Self::default());
        }
        let elsewhere = copied.map(|about| about.exported.unwrap_or(about.until));
        let signs = Signs::read(tree, ledger, decks.last().map(|deck| &deck.pull), elsewhere);
        let stopped = ledger.stopped();
        let why = match (&stopped, signs.living().count()) {
            (Some(why), _) => why.clone(),
            (None, 0) if pilots.iter().any(Pilots::will_work) => "for a pilot job".to_owned(),
            (None, 0) => "no agent is at work".to_owned(),
            (None, _) => "for an agent".to_owned(),
        };
        let hands = ledger.hands();
        let units = deck::units(tree, &decks, 0, deck::total(&decks)).unwrap_or_default();
        let (mut open, mut left) = (HashMap::new(), 0u64);
        let mut stranded: BTreeMap<&str, u64> = BTreeMap::new();
        for (unit, trials) in (0..).zip(units) {
            let dealt = deck::of_unit(&decks, unit).map_or(0, |deck| deck.seq);
            // A changed plan has dropped it, or it has ended.
            let Some(holder) = hands.holder(unit) else { continue };
            let silent = holder.filter(|name| signs.is_silent(name));
            for trial in trials {
                let record = records.get(&trial);
                if record.is_some_and(|record| record.is_over(dealt)) {
                    continue;
                }
                left += 1;
                let attempt = record.and_then(|r| r.attempts.last());
                let place =
                    attempt.filter(|a| a.outcome().is_none()).and_then(|a| a.bundle.as_ref());
                let runs = place.is_some_and(|place| signs.is_living(&place.agent));
                let state = match silent.filter(|_| stopped.is_none()) {
                    _ if runs => Word::Running("RUNNING".to_owned()),
                    Some(name) => Word::Queued(signs.wait(name)),
                    None => Word::Queued(why.clone()),
                };
                if let Some(name) = silent {
                    *stranded.entry(name).or_default() += 1;
                }
                open.insert(trial, Element { state, reason: String::new() });
            }
        }
        let mut seen: Vec<String> = match signs.well().count() {
            _ if left == 0 => Vec::new(),
            0 if stopped.is_some() || !pilots.iter().any(Pilots::will_work) => {
                vec![stopped.unwrap_or_else(|| "no agent is at work".to_owned())]
            }
            0 => Vec::new(),
            n => {
                let agents = format!("{} at work", words::count(n as u64, "agent"));
                [Some(agents), stopped].into_iter().flatten().collect()
            }
        };
        for (name, trials) in stranded {
            let trials = words::count(trials, "trial");
            seen.push(format!("{trials} of agent {}: {}", ledger.describe(name), signs.wait(name)));
        }
        if left > 0 {
            seen.extend(pilots.iter().map(Pilots::words));
        }
        let seen = seen.join("; ");
        let living: HashSet<String> = signs.living().map(ToString::to_string).collect();
        let will_come = pilots.iter().any(Pilots::will_work) || ledger.held.is_some();
        let are_missing = left > 0 && living.is_empty() && !will_come;
        Ok(Self { open, seen, living, are_missing })
    }

    /// Whether an agent is at work.
    pub(super) fn alive(&self) -> bool {
        !self.living.is_empty()
    }

    /// Whether trials are left to agents, none is at work, none will come, and the sweep is not held.
    pub(super) fn are_missing(&self) -> bool {
        self.are_missing
    }

    /// Whether this one is.
    pub(super) fn is_alive(&self, agent: &str) -> bool {
        self.living.contains(agent)
    }

    /// The sources of a status in words: the scheduler's part and theirs.
    pub(super) fn witness(&self, heard: &str, no_jobs: bool) -> String {
        match self.seen.is_empty() {
            true => heard.to_owned(),
            false if no_jobs || heard.is_empty() => format!("the results tree: {}", self.seen),
            false => format!("{heard}; {}", self.seen),
        }
    }

    /// The state of a trial.
    pub(super) fn of(&self, trial: u64) -> Option<&Element> {
        self.open.get(&trial)
    }
}

/// When each agent that has not left renewed its lease last.
struct Signs {
    /// Seconds ago; unknown where the agent has no file.
    ages_s: HashMap<String, Option<f64>>,
    lease_s: f64,
    patience_s: f64,
    /// Seconds since the first of the living agents joined: it has looked at the others for so long.
    watched_s: Option<f64>,
}

impl Signs {
    /// `elsewhere`: until when agents were those of another place, unix seconds.
    fn read(tree: &Tree, ledger: &Ledger, pull: Option<&Pull>, elsewhere: Option<f64>) -> Self {
        let now = clock::now();
        let joined = |name: &String| ledger::written(tree, ledger.agents.get(name)?.joined);
        let age = |name: &String| {
            if elsewhere.is_some_and(|until| joined(name).is_none_or(|joined| joined <= until)) {
                return None;
            }
            // Opened, not only looked up: NFS asks the server again when a file is opened.
            let file = disk::open_plain(&tree.agent_file(name, "jsonl")).ok()?;
            let changed = file.metadata().and_then(|about| about.modified()).ok()?;
            Some((now - changed.duration_since(UNIX_EPOCH).ok()?.as_secs_f64()).max(0.0))
        };
        let ages_s = ledger.living().map(|(name, _)| (name.clone(), age(name))).collect();
        let lease_s = pull.map_or(60.0, |pull| pull.lease_s);
        let patience_s = pull.map_or(60.0, Pull::patience_s);
        let mut signs = Self { ages_s, lease_s, patience_s, watched_s: None };
        let first = signs.well().filter_map(joined).min_by(f64::total_cmp);
        signs.watched_s = first.map(|first| (now - first).max(0.0));
        signs
    }

    /// Agents that have given a sign within a lease, or little more.
    fn living(&self) -> impl Iterator<Item = &String> {
        self.ages_s.keys().filter(|name| self.is_living(name))
    }

    fn is_living(&self, name: &str) -> bool {
        let age = self.ages_s.get(name).copied().flatten();
        age.is_some_and(|age| age < self.patience_s)
    }

    /// Those that have given every sign that was due.
    fn well(&self) -> impl Iterator<Item = &String> {
        self.ages_s.keys().filter(|name| !self.is_silent(name))
    }

    /// Whether an agent has missed its signs: it is dead, or stands still, and holds what it has until its lease is
    /// over.
    fn is_silent(&self, name: &str) -> bool {
        let Some(age) = self.ages_s.get(name) else { return false };
        age.is_none_or(|age| age > self.lease_s / 2.0 + 1.0)
    }

    /// The note about a silent agent that holds something: what is waited for, and until when.
    fn wait(&self, name: &str) -> String {
        let age = self.ages_s.get(name).copied().flatten();
        let silent = age.map_or_else(
            || "no sign of life yet".to_owned(),
            |age| format!("no sign of life for {}", words::duration(age)),
        );
        let lease = words::duration(self.lease_s);
        match self.watched_s {
            None => format!("{silent}; an agent that comes takes over after a lease of {lease}"),
            Some(watched) => {
                let left = self.lease_s - watched.min(age.unwrap_or(watched));
                let when = match left > 0.0 {
                    true => format!("in {}", words::duration(left.ceil())),
                    false => "any moment".to_owned(),
                };
                format!("{silent}; its lease ends {when}")
            }
        }
    }
}
