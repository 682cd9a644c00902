//! `[retry]` on this machine: the executor decides whether a trial that ended without success runs again, and who enqueues a
//! sweep for agents decides about what others have left. The journal keeps each decision with its reason.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;

use crate::base::cause::Cause;
use crate::base::host::clock;
use crate::base::idset::IdSet;
use crate::plan::{Resources, Retry};
use crate::submit::auto;
use crate::sweep::attempt::repeat::{self, Ground, Ruling};
use crate::sweep::tree::Tree;
use crate::sweep::tree::journal::{self, Decision, Entry, Journal};
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::records::{Outcome, Record};
use crate::sweep::tree::requests::{Asker, Requests};
use crate::sweep::tree::rulings::Rulings;
use crate::sweep::tree::table::Row;

/// What was decided about the trials of a sweep, and what follows from it.
pub(in crate::submit) struct Repeats<'a> {
    tree: &'a Tree,
    /// `None`: nothing runs again by itself.
    retry: Option<&'a Retry>,
    /// What was decided about each trial.
    rulings: HashMap<u64, Rulings>,
    /// Requests that have grown.
    grown: HashMap<u64, Arc<Resources>>,
    /// Trials beside which nothing else runs.
    alone: HashSet<u64>,
    /// What attempts asked for, where the plan has a budget.
    requests: Option<Requests>,
    /// Core-seconds of the attempts of each trial.
    used: HashMap<u64, f64>,
    /// Core-seconds of all of them.
    used_by_all: f64,
}

/// What runs when a trial has ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::submit) struct Others {
    /// Whether other trials may have run beside it.
    pub(in crate::submit) were_there: bool,
    /// Core-seconds of those that run now.
    pub(in crate::submit) core_seconds: f64,
}

impl<'a> Repeats<'a> {
    /// Those of a sweep, as its journal has them.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(in crate::submit) fn of(tree: &'a Tree, retry: Option<&'a Retry>) -> Result<Self> {
        let Journal { rulings, .. } = match retry.is_some_and(|retry| retry.auto) {
            true => Journal::read(tree)?,
            false => Journal::default(),
        };
        let has_budget = retry.is_some_and(|retry| retry.budget.is_some());
        let requests = has_budget.then(|| Requests::of(tree)).transpose()?;
        let (grown, alone, used) = (HashMap::new(), HashSet::new(), HashMap::new());
        Ok(Self { tree, retry, rulings, grown, alone, requests, used, used_by_all: 0.0 })
    }

    /// The request of a trial, if it has grown.
    pub(in crate::submit) fn request(&self, trial: u64) -> Option<&Arc<Resources>> {
        self.grown.get(&trial)
    }

    /// Whether nothing else may run beside a trial.
    pub(in crate::submit) fn is_alone(&self, trial: u64) -> bool {
        self.alone.contains(&trial)
    }

    /// All trials beside which nothing else may run (`0-9,14`).
    pub(in crate::submit) fn all_alone(&self) -> String {
        IdSet::of_trials(self.alone.iter().copied()).to_string()
    }

    /// Why a trial was left at its end, if nothing has run it again since.
    fn left(&self, trial: u64, record: &Record) -> Option<&str> {
        self.rulings.get(&trial)?.left(Some(record))
    }

    /// Takes note of what a trial has used until now.
    pub(in crate::submit) fn count(&mut self, row: &Row, record: &Record) {
        if let Some(requests) = &self.requests {
            let used = requests.core_seconds(Asker::from(row), record, None);
            self.used_by_all += used - self.used.insert(row.id, used).unwrap_or(0.0);
        }
    }

    /// Whether the budget is used up, by the attempts that have ended and those of others that run.
    fn is_spent(&self, retry: &Retry, others: Others) -> bool {
        let used = self.used_by_all + others.core_seconds;
        retry.budget.is_some_and(|budget| used / 3600.0 >= budget)
    }

    /// Decides about the trials that earlier executors have left without success, because they were killed, and takes note of
    /// what all have used. `asked`: the request of a trial; `is_left`: whether nothing else runs it again. Returns those that
    /// run again.
    ///
    /// # Errors
    /// As [`Repeats::decide`].
    pub(in crate::submit) fn of_earlier<'r>(
        &mut self,
        trials: impl Iterator<Item = (&'r Row, &'r Record)> + Clone,
        mut asked: impl FnMut(&Row) -> Arc<Resources>,
        is_left: impl Fn(u64) -> bool,
        has_others: bool,
        (journal, lock): (&mut journal::Writer, &Lock),
    ) -> Result<BTreeSet<u64>> {
        let mut again = BTreeSet::new();
        if !self.retry.is_some_and(|retry| retry.auto) {
            return Ok(again);
        }
        trials.clone().for_each(|(row, record)| self.count(row, record));
        for (row, record) in trials {
            let asked = asked(row);
            // Agents have decided about what they left.
            let is_of_agents = record.decisive().is_some_and(|last| last.bundle.is_some());
            let is_settled = is_of_agents && record.left().is_some();
            if !record.has_failed() || is_settled || !is_left(row.id) {
                continue;
            }
            lock.touch();
            // Whether others ran beside it was known to who decided.
            let were_there = has_others && self.left(row.id, record).is_none();
            let others = Others { were_there, core_seconds: 0.0 };
            if self.decide((row, record), &asked, others, journal)?.is_some() {
                again.insert(row.id);
            }
        }
        Ok(again)
    }

    /// Decides about a trial that has ended: why it runs again, or `None` if it does not. `asked`: its request, the last
    /// time.
    ///
    /// # Errors
    /// When the tree cannot be read or written.
    pub(in crate::submit) fn decide(
        &mut self,
        (row, record): (&Row, &Record),
        asked: &Resources,
        others: Others,
        journal: &mut journal::Writer,
    ) -> Result<Option<String>> {
        let Some(retry) = self.retry.filter(|retry| retry.auto) else { return Ok(None) };
        let Some(last) = record.decisive().filter(|_| record.skipped.is_none()) else {
            return Ok(None);
        };
        let cause = match record.outcome() {
            Some(Outcome::Done) => return Ok(None),
            Some(_) => last.cause().unwrap_or(Cause::Unknown),
            None => Cause::WorkerLost,
        };
        if cause == Cause::Cancelled {
            return Ok(None);
        }
        let repeats = auto::repeats(self.rulings.get(&row.id), Some(record), 0);
        let has_others = others.were_there && !self.is_alone(row.id);
        let ground = Ground::Slots { has_others, is_of_many: false };
        let ruling = match self.is_spent(retry, others) {
            true => repeat::spent(retry),
            false => {
                let case = auto::case(
                    self.tree,
                    Some(record),
                    row,
                    (Some(cause), asked),
                    repeats,
                    ground,
                )?;
                repeat::decide(&case, retry)
            }
        };
        let now = clock::now();
        let (again, counts, why) = match ruling {
            Ruling::Again { request, counts, alone, why } => {
                if request != *asked {
                    self.grown.insert(row.id, Arc::new(request));
                }
                if alone {
                    self.alone.insert(row.id);
                }
                (true, counts, why)
            }
            Ruling::Left(why) if self.left(row.id, record) == Some(&*why) => return Ok(None),
            Ruling::Left(why) => (false, false, why),
        };
        let trials = IdSet::of_trials([row.id]).to_string();
        self.rulings.entry(row.id).or_default().add(now, (again, counts), &why);
        let decisions = vec![Decision { trials, again, counts, why: why.clone() }];
        journal.write(&Entry::Decided { time: now, decisions })?;
        Ok(again.then_some(why))
    }
}
