//! The ledger of pull mode: who may run what. `claims/000/000001.json`, `000002.json`, ... are entries
//! of one log; each exists whole or not at all, and no two agents can write the same number.
//!
//! A writer writes an entry under a temporary name and links it to the next free number. The link fails if
//! another agent was faster; the writer reads that agent's entry first. So all agents see the same entries in
//! the same order, and the meaning of an entry follows from those before it. The exclusive step is one
//! `link(2)`, which NFS and Lustre support. A link whose answer was lost is recognised by the entry under the
//! number.
//!
//! An agent whose lease has expired is fenced: the entry that fences it names the length of its bundle up to
//! which lines count. Every reader ignores what the agent writes there afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Tree;
use super::damage::Damage;
use pieces::{let_go, remove};

mod entry;
mod hands;
mod log;
mod pieces;

pub use entry::{Entry, Piece};
pub(crate) use log::each;
pub use log::{Link, append, length, link, name, prepare, written};

/// How the reason begins for which a person has halted a sweep.
pub(crate) const CANCELLED: &str = "cancelled by ";

/// The state of an agent in the ledger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub(crate) host: String,
    /// Trials it runs at once.
    pub(crate) slots: u32,
    /// The cores it has bound.
    pub(crate) cores: Vec<u32>,
    /// The scheduler's id of its job.
    pub(crate) job: Option<String>,
    /// The units that it took and did not give back; some of them may have ended.
    pub(crate) held: Vec<Held>,
    /// Whether it found nothing to take.
    pub(crate) idle: bool,
    /// Whether it has asked all that it runs to end, and leaves then.
    #[serde(default)]
    pub(crate) leaving: bool,
    /// Trials it had ended when it took last.
    pub(crate) done: u64,
    /// Seconds that its slots had been busy by then.
    pub(crate) busy_s: f64,
    /// How it went; `None` while it lives.
    pub gone: Option<Gone>,
    /// Number of the entry by which it joined.
    #[serde(default)]
    pub(crate) joined: u64,
    /// Whether it has any entry besides `join`: its bundle existed before that.
    #[serde(default)]
    pub(crate) spoke: bool,
    /// Bytes that its bundle had at least when it left, or when its lease expired.
    #[serde(default)]
    pub(crate) size: u64,
}

/// Units in an agent's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The entry by which it took them: what it began before stands in `piece` already.
    pub(crate) since: u64,
    /// The units, as they were then.
    pub(crate) piece: Piece,
}

/// How an agent went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gone {
    /// It left by itself, with the reason.
    Left(String),
    /// Its lease has expired: only so many bytes of its bundle count.
    Fenced(u64),
}

/// A trial that runs twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contest {
    /// Who ran it first.
    pub(crate) of: String,
    /// Bytes of that agent's bundle: an end before this point counts as usual.
    pub(crate) size: u64,
    /// What its run knew of the ledger when it began: what began before has no part in this.
    pub(crate) since: u64,
    /// The agent that runs the copy; `None` once the copy was given up.
    pub(crate) copy: Option<String>,
    /// The end that counts; `None` while neither run has ended.
    pub(crate) won: Option<Won>,
    /// The entry by which the copy began.
    #[serde(default)]
    pub(crate) at: u64,
}

/// How a contest was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Won {
    /// The agent whose end counts.
    pub(crate) agent: String,
    pub(crate) attempt: u32,
    /// The number of the entry. A run that begins after its agent has read this entry is a new run, which a
    /// user has asked for.
    pub(crate) at: u64,
}

impl Contest {
    /// Whether a run has a part in this that began when its agent had read `seq` entries.
    fn is_about(&self, seq: u64) -> bool {
        seq >= self.since && self.won.as_ref().is_none_or(|won| seq < won.at)
    }
}

/// The end of an attempt, as an agent's bundle has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) agent: &'a str,
    /// The length of the bundle behind it.
    pub(crate) at: u64,
    pub(crate) trial: u64,
    pub(crate) attempt: u32,
    /// How many entries of the ledger the agent had read when the attempt began.
    pub(crate) seq: u64,
}

/// What all entries up to one come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Number of the last entry.
    pub(crate) seq: u64,
    /// The first unit that no agent has ever taken.
    pub(crate) fresh: u64,
    /// Units that were given back, in order: first those that no agent has begun.
    pub(crate) again: VecDeque<Piece>,
    /// All agents that ever joined.
    pub agents: BTreeMap<String, Agent>,
    /// Trials that ran twice; more than once where they were asked for again. All but the last are decided.
    pub(crate) contests: HashMap<u64, Vec<Contest>>,
    /// Why nothing is to be taken any more.
    pub(crate) halted: Option<String>,
    /// The user who holds the sweep. A new submission of a held sweep leaves it held, but it resumes a halted
    /// one.
    #[serde(default)]
    pub(crate) held: Option<String>,
    /// Hosts whose agents were lost with a unit, by unit: the last of each.
    #[serde(default)]
    pub(crate) lost_on: HashMap<u64, String>,
    /// Entries that could not be read.
    #[serde(default)]
    pub(crate) damaged: Vec<u64>,
}

impl Ledger {
    /// All of a sweep's ledger.
    ///
    /// # Errors
    /// When an entry exists but cannot be read.
    pub fn read(tree: &Tree) -> Result<Self> {
        let mut ledger = Self::default();
        ledger.follow(tree)?;
        Ok(ledger)
    }

    /// Reads the entries that are new, and returns how many.
    ///
    /// # Errors
    /// When an entry exists but cannot be read.
    pub(crate) fn follow(&mut self, tree: &Tree) -> Result<u64> {
        self.follow_with(tree, |_| {})
    }

    /// As [`Ledger::follow`]; `hear` is called with each entry.
    ///
    /// # Errors
    /// As [`Ledger::follow`].
    pub(crate) fn follow_with(&mut self, tree: &Tree, mut hear: impl FnMut(&Entry)) -> Result<u64> {
        let before = self.seq;
        log::look_again(tree, self.seq + 1);
        while let Some(entry) = log::read(tree, self.seq + 1)? {
            entry.iter().for_each(&mut hear);
            self.take(entry);
        }
        Ok(self.seq - before)
    }

    /// Adds the entries that could not be read, and the first that is missing before others.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn damage(&mut self, tree: &Tree, damage: &mut Damage) -> Result<()> {
        let last = log::length(tree)?;
        // This also reads entries that were written since. Entries after a gap stay unread.
        self.follow(tree)?;
        let missing = (self.seq < last).then_some(self.seq + 1);
        for seq in self.damaged.iter().copied().chain(missing) {
            damage.add(&log::name(seq), 1);
        }
        Ok(())
    }

    /// Units that can be taken, of `total` that there are.
    pub fn open(&self, total: u64) -> u64 {
        total.saturating_sub(self.fresh) + self.again.iter().map(|piece| piece.count).sum::<u64>()
    }

    /// Why nothing is to be taken now, in words.
    pub fn stopped(&self) -> Option<String> {
        let held = self.held.as_ref().map(|by| format!("held by {by}"));
        held.or_else(|| self.halted.as_ref().map(|why| format!("halted: {why}")))
    }

    /// Why agents have halted it; `None` where a person cancelled it.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.halted.as_deref().filter(|why| !why.starts_with(CANCELLED))
    }

    /// Whether a person has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.halted.is_some() && self.failed().is_none()
    }

    /// The next units to take, at most `most`: untouched ones first, then what has failed elsewhere.
    pub fn choose(&self, total: u64, most: u64) -> Vec<Piece> {
        self.choose_but(total, most, |_| false)
    }

    /// As [`Ledger::choose`], without units that have failed elsewhere and are `left` to others.
    pub(crate) fn choose_but(
        &self,
        total: u64,
        most: u64,
        left_to_others: impl Fn(&Piece) -> bool,
    ) -> Vec<Piece> {
        let mut chosen = Vec::new();
        let mut left = most;
        let mut add = |piece: Piece, left: &mut u64| {
            let count = piece.count.min(*left);
            *left -= count;
            if count > 0 {
                chosen.push(Piece { count, ..piece });
            }
        };
        for piece in self.again.iter().take_while(|piece| piece.is_new()) {
            add(*piece, &mut left);
        }
        add(Piece::untouched(self.fresh, total.saturating_sub(self.fresh)), &mut left);
        let failed = self.again.iter().skip_while(|piece| piece.is_new());
        for piece in failed.filter(|piece| !left_to_others(piece)) {
            add(*piece, &mut left);
        }
        chosen
    }

    /// Agents that have not gone.
    pub(crate) fn living(&self) -> impl Iterator<Item = (&String, &Agent)> {
        self.agents.iter().filter(|(_, agent)| agent.gone.is_none())
    }

    /// An agent in words: its process, its host and its job.
    pub fn describe(&self, name: &str) -> String {
        let Some(agent) = self.agents.get(name) else { return name.to_owned() };
        let pid = pid_of(name).map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        let job = agent.job.as_ref().map_or_else(String::new, |job| format!(", job {job}"));
        format!("{pid} on {}{job}", agent.host)
    }

    /// Whether everything has ended, of `total` units: nothing is left to take, and no agent is at work.
    pub fn is_over(&self, total: u64) -> bool {
        self.open(total) == 0 && self.living().all(|(_, agent)| agent.idle || agent.held.is_empty())
    }

    /// Whether the end of an attempt counts. If a trial ran twice, the end that the first `won` entry names
    /// counts.
    pub(crate) fn counts(&self, end: Ending<'_>) -> bool {
        if self.is_fenced(end.agent, end.at) {
            return false;
        }
        let Some(contest) = self.contest(end.trial, end.seq) else { return true };
        if contest.of == end.agent && end.at <= contest.size {
            return true;
        }
        contest.won.as_ref().is_some_and(|w| w.agent == end.agent && w.attempt == end.attempt)
    }

    /// The contest that a run of a trial is part of; the run began when its agent had read `seq` entries.
    pub(crate) fn contest(&self, trial: u64, seq: u64) -> Option<&Contest> {
        self.contests.get(&trial)?.iter().find(|contest| contest.is_about(seq))
    }

    /// Whether such a run has won or lost against another.
    pub(crate) fn is_decided(&self, trial: u64, seq: u64) -> bool {
        self.contest(trial, seq).is_some_and(|contest| contest.won.is_some())
    }

    /// Whether no run has won yet.
    pub fn is_undecided(&self, trial: u64, seq: u64) -> bool {
        self.contest(trial, seq).is_some_and(|contest| contest.won.is_none())
    }

    /// Whether a trial was won after so many entries.
    pub(crate) fn is_won_since(&self, trial: u64, seq: u64) -> bool {
        let all = self.contests.get(&trial).map_or(&[][..], Vec::as_slice);
        all.iter().any(|contest| contest.won.as_ref().is_some_and(|won| won.at > seq))
    }

    /// Whether a run of a trial, which began when its agent had read `seq` entries, may have a copy: one, and
    /// only before the trial is won.
    pub fn may_be_copied(&self, trial: u64, seq: u64) -> bool {
        let last = self.contests.get(&trial).and_then(|all| all.last());
        last.is_none_or(|last| last.won.as_ref().is_some_and(|won| seq >= won.at))
    }

    /// Whether a line of an agent's bundle was written after the agent's lease had expired.
    pub(crate) fn is_fenced(&self, agent: &str, end: u64) -> bool {
        let gone = self.agents.get(agent).and_then(|a| a.gone.as_ref());
        matches!(gone, Some(Gone::Fenced(size)) if end > *size)
    }

    /// Takes the next entry into account. One that could not be read (`None`) changes nothing.
    pub fn take(&mut self, entry: Option<Entry>) {
        self.seq += 1;
        let seq = self.seq;
        let Some(entry) = entry else { return self.damaged.push(seq) };
        match entry {
            Entry::Join { agent, host, slots, cores, job, .. } => {
                let new = Agent { host, slots, cores, job, joined: self.seq, ..Agent::default() };
                self.agents.insert(agent, new);
            }
            Entry::Take { agent, units, done, busy_s, .. } => {
                for piece in &units {
                    self.withdraw(*piece);
                }
                let agent = self.agents.entry(agent).or_default();
                (agent.done, agent.busy_s, agent.idle, agent.spoke) = (done, busy_s, false, true);
                agent.held.extend(units.into_iter().map(|piece| Held { since: seq, piece }));
            }
            Entry::Back { agent, units, leaving, .. } => {
                let agent = self.agents.entry(agent).or_default();
                agent.leaving |= leaving;
                units.iter().for_each(|piece| let_go(&mut agent.held, piece));
                self.put_back(units);
            }
            Entry::Idle { agent, .. } => {
                let agent = self.agents.entry(agent).or_default();
                (agent.idle, agent.spoke) = (true, true);
                agent.held.clear();
            }
            Entry::Leave { agent, reason, size, .. } => {
                let agent = self.agents.entry(agent).or_default();
                agent.size = size;
                agent.held.clear();
                agent.gone = Some(Gone::Left(reason));
            }
            Entry::Expire { agent: name, size, units, unbegun, .. } => {
                for trial in unbegun {
                    self.forget_copy(trial, &name);
                }
                let agent = self.agents.entry(name.clone()).or_default();
                agent.held.clear();
                (agent.gone, agent.size) = (Some(Gone::Fenced(size)), size);
                let lost = units.iter().filter(|piece| piece.faults > 0);
                self.lost_on.extend(lost.map(|piece| (piece.from, agent.host.clone())));
                for contest in self.contests.values_mut().flatten() {
                    if contest.copy.as_deref() == Some(&*name) {
                        contest.copy = None;
                    }
                }
                self.put_back(units);
            }
            Entry::Copy { agent, of, trial, size, since, .. } => {
                self.agents.entry(agent.clone()).and_modify(|agent| agent.spoke = true);
                if self.may_be_copied(trial, since) {
                    let contest =
                        Contest { of, size, since, copy: Some(agent), won: None, at: seq };
                    self.contests.entry(trial).or_default().push(contest);
                }
            }
            Entry::Won { agent, trial, attempt, begun, .. } => {
                let last = self.contests.get_mut(&trial).and_then(|all| all.last_mut());
                if let Some(contest) = last.filter(|last| begun >= last.since) {
                    contest.won.get_or_insert(Won { agent, attempt, at: seq });
                }
            }
            Entry::Uncopy { agent, trial, unbegun: true, .. } => self.forget_copy(trial, &agent),
            Entry::Uncopy { agent, trial, .. } => {
                if let Some(contest) = self.contests.get_mut(&trial).and_then(|all| all.last_mut())
                    && contest.copy.as_deref() == Some(&*agent)
                {
                    contest.copy = None;
                }
            }
            Entry::Halt { reason, .. } => self.halted = Some(reason),
            Entry::Hold { by, .. } => self.held = Some(by),
            Entry::Release { .. } => self.held = None,
            Entry::Drop { units, .. } => units.iter().for_each(|piece| self.drop_units(piece)),
            Entry::Resume { .. } => self.halted = None,
        }
    }

    /// A copy was announced and never began: the run that it was a copy of stands alone, as before.
    fn forget_copy(&mut self, trial: u64, by: &str) {
        let Some(all) = self.contests.get_mut(&trial) else { return };
        all.pop_if(|last| last.won.is_none() && last.copy.as_deref() == Some(by));
        if all.is_empty() {
            self.contests.remove(&trial);
        }
    }

    /// Takes a piece out of what can be taken.
    fn withdraw(&mut self, piece: Piece) {
        if piece.from >= self.fresh && piece.is_untouched() {
            self.fresh = self.fresh.max(piece.from + piece.count);
            return;
        }
        let Some(at) = self.again.iter().position(|p| p.from == piece.from) else { return };
        let rest = self.again[at].count.saturating_sub(piece.count);
        if rest == 0 {
            self.again.remove(at);
        } else {
            let was = self.again[at];
            self.again[at] = Piece { from: was.from + piece.count, count: rest, ..was };
        }
    }

    /// Takes units out of what can be taken, wherever they are; those around them stay.
    pub(crate) fn drop_units(&mut self, gone: &Piece) {
        let end = gone.from + gone.count;
        if end > self.fresh {
            let from = gone.from.max(self.fresh);
            if from > self.fresh {
                self.put_back(vec![Piece::untouched(self.fresh, from - self.fresh)]);
            }
            self.fresh = end;
        }
        let mut again: Vec<Piece> = self.again.drain(..).collect();
        remove(&mut again, gone);
        self.again = again.into();
    }

    /// Units that no agent has tried come before units that have failed somewhere.
    fn put_back(&mut self, units: Vec<Piece>) {
        for piece in units {
            let at = self.again.iter().position(|p| piece.is_new() && !p.is_new());
            self.again.insert(at.unwrap_or(self.again.len()), piece);
        }
    }
}

/// The process of an agent: its name is host, process id and a token.
pub(crate) fn pid_of(name: &str) -> Option<u32> {
    name.rsplit('-').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
