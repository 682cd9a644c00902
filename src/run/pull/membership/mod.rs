//! The membership of an agent in the ledger: joining, taking units, giving them back, staying alive, and taking
//! over from agents that are not.

mod assigned;
mod expiry;
pub(super) mod offer;
mod share;
mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::assigned::Assigned;
use crate::base::fault::Fault;
use crate::base::host::{clock, disk};
use crate::plan::{Learn, OnFailure, Pull, Resources, Retry};
use crate::run::pull::membership::expiry::{Lost, expire};
pub(crate) use crate::run::pull::membership::offer::Offer;
use crate::run::pull::membership::watch::Watch;
use crate::sweep::attempt::repeat::{self, Case, Ruling};
use crate::sweep::attempt::verdict::MAX_FAULTS;
use crate::sweep::tree::code::Known;
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::ledger::{Agent, Entry, Ledger, Link, Piece};
use crate::sweep::tree::line::Writer;
use crate::sweep::tree::records::{Decided, Event, Outcome, Record};
use crate::sweep::tree::table::{self, Head, Row};
use crate::sweep::tree::terms::Dropped;
use crate::sweep::tree::{Tree, records, terms};

/// A unit in an agent's hands.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) number: u64,
    /// Its remaining trials, the next trial first.
    pub(crate) rows: VecDeque<Row>,
    /// Trials of it that have ended for good.
    pub(crate) link: u32,
    /// Failed attempts of the next trial.
    pub(crate) tries: u32,
    /// How often the machine or an agent failed it.
    pub(crate) faults: u32,
    /// How many allocations in a row have cut it off without a checkpoint written.
    pub(crate) cuts: u32,
    /// Those of its failed attempts that were made before `[retry]` repeated it the last time.
    pub(crate) spent: u32,
    /// How often `[retry]` has repeated it, as far as that counts.
    pub(crate) repeats: u32,
    /// How often its walltime has grown by that.
    pub(crate) grown: u32,
    /// Whether nothing else may run beside it.
    pub(crate) alone: bool,
    /// How often this agent has looked for an end that another agent is said to have written.
    pub(crate) looks: u32,
}

impl Unit {
    /// As a piece of the ledger.
    pub(crate) fn piece(&self) -> Piece {
        Piece {
            from: self.number,
            count: 1,
            link: self.link,
            tries: self.tries,
            faults: self.faults,
            cuts: self.cuts,
            spent: self.spent,
            repeats: self.repeats,
            grown: self.grown,
            alone: self.alone,
        }
    }
}

/// An agent's place in the ledger, and what it holds.
pub(crate) struct Membership {
    /// The sweep that it has joined.
    pub(crate) tree: Tree,
    /// The ledger: the state that the agents have agreed on.
    pub(crate) ledger: Ledger,
    /// What there is to do.
    pub(crate) decks: Vec<Deck>,
    /// The heads of the tables.
    pub(crate) heads: Vec<Head>,
    pub(crate) name: String,
    pub(crate) bundle: Writer,
    /// Trials it runs at once.
    pub(crate) slots: u32,
    /// The cores that are its own; empty where it does not bind.
    pub(crate) cores: Vec<u32>,
    /// Trials it has ended.
    pub(crate) done: u64,
    /// Seconds its slots were busy with them.
    pub(crate) busy_s: f64,
    offer: Offer,
    link: Link,
    nonce: u64,
    /// The requests in the newest deck.
    requests: Assigned<Resources>,
    /// How memory is learnt, by the newest deck.
    memory: Assigned<Learn>,
    /// Which code trials run, as it was read with so many decks: a submission writes it before its deck.
    code: Option<(usize, Known)>,
    /// Entries that are to be written, the oldest first.
    outbox: VecDeque<Entry>,
    /// Units it has taken and not begun: read, and not read yet.
    ready: VecDeque<Unit>,
    taken: VecDeque<Piece>,
    /// Trials that the plan had dropped when units were last read.
    dropped: Dropped,
    /// Units that need more time than this agent has left.
    too_long: BTreeSet<u64>,
    /// Trials whose agents it has expired while it had no place itself.
    lost: Vec<Lost>,
    watch: Watch,
    began: Instant,
    last_beat: Instant,
    last_look: Instant,
    /// Whether the ledger calls it idle.
    is_idle: bool,
}

impl Membership {
    /// How agents share the sweep.
    pub(crate) fn settings(&self) -> &Pull {
        settings(&self.decks)
    }

    /// Reads which code trials run, once for the decks that there are.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read_code(&mut self) -> Result<()> {
        let decks = self.decks.len();
        if self.code.as_ref().is_none_or(|(known, code)| *known != decks || !code.is_whole()) {
            self.code = Some((decks, Known::read(&self.tree)?));
        }
        Ok(())
    }

    /// The snapshot of a trial's code, and the working folder there; `None` if it runs in the plan's own folder.
    ///
    /// # Errors
    /// When the record about it cannot be read.
    pub(crate) fn code_of(&self, trial: u64) -> Result<Option<&(String, PathBuf)>> {
        Ok(self.code.as_ref().map_or(Ok(None), |(_, code)| code.of(trial))?)
    }

    /// Which trials agents repeat, if they decide that.
    pub(crate) fn retry(&self) -> Option<&Retry> {
        self.decks.last().and_then(|deck| deck.retry.as_ref())
    }

    /// Its host, and the job that it runs in.
    pub(crate) fn place(&self) -> (&str, Option<&str>) {
        (&self.offer.host, self.offer.job.as_deref())
    }

    /// The share of this agent in what the agents of its job have together on this host, by their slots.
    pub(crate) fn share_of(&self, amount: u64) -> u64 {
        let place = self.place();
        let is_here = |agent: &&Agent| (agent.host.as_str(), agent.job.as_deref()) == place;
        let here = self.ledger.living().map(|(_, agent)| agent).filter(is_here);
        let slots: u64 = here.map(|agent| u64::from(agent.slots)).sum();
        let own = u64::from(self.slots);
        amount * own / slots.max(own).max(1)
    }

    /// Whether trials insist on the devices that they name, and each has its own.
    pub(crate) fn is_exact(&self) -> bool {
        self.decks.last().is_some_and(|deck| deck.devices.is_some())
    }

    /// Units that no agent holds.
    pub(crate) fn open(&self) -> u64 {
        self.ledger.open(deck::total(&self.decks))
    }

    /// Units it holds and has not begun.
    pub(crate) fn waiting(&self) -> u64 {
        self.ready.len() as u64 + self.taken.iter().map(|piece| piece.count).sum::<u64>()
    }

    /// Whether others have taken this agent for dead; or it has left, which a lost answer kept from it.
    pub(crate) fn is_fenced(&self) -> bool {
        self.ledger.agents.get(&self.name).is_some_and(|agent| agent.gone.is_some())
    }

    /// Reads what is new in the ledger. `true` if there was anything.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn look(&mut self) -> Result<bool> {
        self.last_look = Instant::now();
        if follow_decks(&self.tree, &mut self.decks, &mut self.heads)? {
            (self.requests, self.memory) = assigned(&self.decks);
        }
        let (name, outbox, taken) = (&self.name, &mut self.outbox, &mut self.taken);
        let news = self.ledger.follow_with(&self.tree, |entry| {
            let (who, nonce) = entry.signature();
            if who != name {
                return;
            }
            // An entry of ours that seemed to have failed and is there all the same.
            if outbox.front().is_some_and(|waiting| waiting.signature() == (who, nonce)) {
                outbox.pop_front();
            } else if let Entry::Take { units, .. } = entry {
                taken.extend(units);
            }
        })?;
        Ok(news > 0)
    }

    /// How long ago it looked.
    pub(crate) fn since_look(&self) -> Duration {
        self.last_look.elapsed()
    }

    /// Whether it was suspended for so long that it must check its lease before it writes: stopped, or on a
    /// machine that stood still.
    pub(crate) fn was_away(&self) -> bool {
        self.last_beat.elapsed().as_secs_f64() > self.settings().lease_s / 2.0
    }

    /// When the next heartbeat is due.
    pub(crate) fn next_beat(&self) -> Duration {
        let pace = Duration::from_secs_f64(self.settings().lease_s / 6.0);
        pace.saturating_sub(self.last_beat.elapsed())
    }

    /// Renews the lease when it is time, and takes over from agents whose lease has expired. An agent that
    /// was suspended first checks its own lease: `false` means that it has expired.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(crate) fn beat(&mut self) -> Result<bool> {
        if self.was_away() {
            self.look()?;
            if self.is_fenced() {
                return Ok(false);
            }
        }
        if self.next_beat() == Duration::ZERO {
            // A full disk takes no records, but a heartbeat needs no space.
            let flushed = self.flush();
            let path = self.bundle.path().to_owned();
            // All records are on disk before the file's time changes, by the file system's own clock.
            let beaten = self.bundle.sync().and_then(|()| disk::touch(&path));
            beaten.map_err(|e| disk::fault("write", &path, &e))?;
            self.last_beat = Instant::now();
            flushed?;
        }
        for dead in self.watch.look(&self.tree, &self.ledger, &self.name) {
            let name = self.name.clone();
            self.look()?;
            let lost = expire(
                &self.tree,
                &mut self.ledger,
                &self.decks,
                &self.heads,
                &dead,
                &name,
                self.link,
            )?;
            self.decide_about(lost)?;
        }
        Ok(!self.is_fenced())
    }

    /// Records that trials whose agents were lost run again. Where they do not, the agent that takes them says so.
    fn decide_about(&mut self, lost: Vec<Lost>) -> Result<()> {
        let Some(retry) = self.retry().cloned() else { return Ok(()) };
        for Lost { trial, host, piece } in lost {
            let asked = Resources::default();
            let repeats = piece.repeats + piece.faults - 1;
            let case = Case::lost(&asked, &host, repeats);
            if piece.faults < MAX_FAULTS
                && let Ruling::Again { why, counts, .. } = repeat::decide(&case, &retry)
            {
                let (time, seq) = (clock::now(), self.ledger.seq);
                let decided =
                    Decided { trial, time, seq, again: true, counts, why, ..Decided::default() };
                self.bundle.push(&Event::Decided(decided))?;
            }
        }
        Ok(())
    }

    /// The head of a trial's table.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn head_of(&self, trial: u64) -> Result<&Head> {
        let head = self.heads.iter().rfind(|head| head.first <= trial);
        head.ok_or_else(|| Fault::machine(format!("trial {trial} is in no table")).into())
    }

    /// How many attempts a trial has, by the current plan; by its table while the tree is unreachable.
    ///
    /// # Errors
    /// When it is in no table.
    pub(crate) fn attempts_of(&self, trial: u64) -> Result<u32> {
        let by_table = self.head_of(trial)?.run.attempts;
        Ok(terms::attempts(&self.tree, by_table).unwrap_or(by_table))
    }

    /// The plan's current request for a trial, if it differs from the table.
    pub(crate) fn request_of(&self, trial: u64) -> Option<&Resources> {
        self.requests.get(trial)
    }

    /// How the memory of a trial is learnt; `None`: it is not.
    pub(crate) fn learn_of(&self, trial: u64) -> Option<&Learn> {
        self.memory.get(trial)
    }

    /// Whether the memory of any trial is learnt.
    pub(crate) fn learns(&self) -> bool {
        !self.memory.is_empty()
    }

    /// The effect of a failure on the rest of a chain.
    pub(crate) fn on_failure(&self) -> OnFailure {
        self.heads.last().map_or(OnFailure::Stop, |head| head.run.on_failure)
    }

    /// How the trial before a unit's first stands, where that is in no unit that this agent has run:
    /// `None` means that it has not ended.
    ///
    /// # Errors
    /// When records cannot be read.
    pub(crate) fn outcome_of(&self, trial: u64) -> Result<Option<Outcome>> {
        let (record, _) = records::of_trial(&self.tree, trial)?;
        Ok(outcome(&record))
    }

    /// As [`Self::outcome_of`], for a trial of another unit: an end without success that it had before it was enqueued again does
    /// not count.
    ///
    /// # Errors
    /// When records or decks cannot be read.
    pub(crate) fn outcome_before(&self, trial: u64) -> Result<Option<Outcome>> {
        let (record, _) = records::of_trial(&self.tree, trial)?;
        let outcome = outcome(&record);
        if matches!(outcome, None | Some(Outcome::Done)) {
            return Ok(outcome);
        }
        let dealt = deck::newest_of(&self.tree, &self.decks, trial)?;
        Ok(outcome.filter(|_| dealt.is_none_or(|deck| record.is_over(deck.seq))))
    }
}

/// How a trial has ended for good.
fn outcome(record: &Record) -> Option<Outcome> {
    let last = record.decisive().and_then(|a| a.bundle.as_ref()).is_none_or(|place| place.last);
    let skipped = record.skipped.is_some().then_some(Outcome::Failed);
    record.outcome().filter(|o| last || *o == Outcome::Done).or(skipped)
}

/// What the newest deck assigns to its trials.
fn assigned(decks: &[Deck]) -> (Assigned<Resources>, Assigned<Learn>) {
    let last = decks.last();
    let requests = last.map_or(&[][..], |deck| &deck.requests);
    let memory = last.map_or(&[][..], |deck| &deck.memory);
    (Assigned::of(requests), Assigned::of(memory))
}

/// The `[pull]` of the newest deck.
pub(crate) fn settings(decks: &[Deck]) -> &Pull {
    static NONE: std::sync::LazyLock<Pull> = std::sync::LazyLock::new(Pull::default);
    decks.last().map_or(&NONE, |deck| &deck.pull)
}

/// Reads the decks that were added since; returns whether there were any.
fn follow_decks(tree: &Tree, decks: &mut Vec<Deck>, heads: &mut Vec<Head>) -> Result<bool> {
    let new = deck::after(tree, decks)?;
    if new.is_empty() {
        return Ok(false);
    }
    // All or nothing: a deck without the tables of its trials is of no use.
    let all = table::heads(tree)?;
    if all.len() < heads.len() {
        let sentence = format!("tables of `{}` are missing", tree.dir().display());
        return Err(Fault::machine(sentence).into());
    }
    *heads = all;
    decks.extend(new);
    Ok(true)
}

mod events;
mod joining;
mod units;

#[cfg(test)]
mod tests;
