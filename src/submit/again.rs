//! Which trials without success a submission runs again, and what they ask for this time. A trial that a scheduler, an agent
//! or this machine may still run is never among them, whatever was asked for: that is looked at under the lock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::idset::IdSet;
use crate::plan::{OnFailure, Resources};
use crate::submit::grow::{Diff, Todo};
use crate::sweep::decide::{Wanted, Wish};
use crate::sweep::standing::State;
use crate::sweep::status::Status;
use crate::sweep::tree::waves::{Feeder, Repeat};

/// Trials that run again.
#[derive(Debug, Default, Clone)]
pub struct Again {
    wish: Wish,
    /// The requests that hold this time in place of the plan's.
    requests: Arc<HashMap<u64, Arc<Resources>>>,
    /// Whether they run the code as it is now, and not that of their snapshot.
    current_code: bool,
}

/// What is to be different about a request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Memory of a node, MiB.
    pub(crate) memory_mib: Option<u64>,
    /// Walltime in seconds; `None` leaves it as it was.
    pub(crate) walltime_s: Option<u64>,
    /// Cores of each rank.
    pub(crate) cpus_per_rank: Option<u32>,
    /// GPUs of each rank.
    pub(crate) gpus_per_rank: Option<u32>,
    pub(crate) partition: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) qos: Option<String>,
    pub(crate) constraint: Option<String>,
}

impl Change {
    /// A request with the changes.
    fn of(&self, before: &Resources, trial: u64) -> Result<Resources, Fault> {
        if self.gpus_per_rank.is_some() && before.gpus.is_some() {
            let sentence = format!("`gpu_ids_abs` counts the GPUs of trial {trial}");
            return Err(Fault::request(sentence).hint("leave out `--gpus`"));
        }
        let or = |new: &Option<String>, old: &Option<String>| new.clone().or_else(|| old.clone());
        Ok(Resources {
            memory_mib: self.memory_mib.or(before.memory_mib),
            walltime_s: self.walltime_s.or(before.walltime_s),
            cpus_per_rank: self.cpus_per_rank.unwrap_or(before.cpus_per_rank),
            gpus_per_rank: self.gpus_per_rank.unwrap_or(before.gpus_per_rank),
            partition: or(&self.partition, &before.partition),
            account: or(&self.account, &before.account),
            qos: or(&self.qos, &before.qos),
            constraint: or(&self.constraint, &before.constraint),
            ..before.clone()
        })
    }
}

impl Again {
    /// All trials that ended without success, as the plan asks for them, or none.
    pub(crate) fn all(retry: bool) -> Self {
        let again = if retry { Wanted::All } else { Wanted::None };
        Self { wish: Wish { again, alone: None }, ..Self::default() }
    }

    /// These trials, with a change of what the plan asks for. `alone`: nothing else is submitted.
    ///
    /// # Errors
    /// When a request cannot be changed so.
    pub(crate) fn these(
        trials: BTreeSet<u64>,
        change: &Change,
        diff: &Diff,
        alone: bool,
    ) -> Result<Self> {
        let mut requests = HashMap::new();
        let mut changed: HashMap<&Arc<Resources>, Arc<Resources>> = HashMap::new();
        for &trial in trials.iter().filter(|_| *change != Change::default()) {
            let Some(before) = diff.request(trial) else { continue };
            let now = match changed.get(before) {
                Some(now) => Arc::clone(now),
                None => Arc::new(change.of(before, trial)?),
            };
            changed.insert(before, Arc::clone(&now));
            requests.insert(trial, now);
        }
        let trials = Arc::new(trials);
        let wish =
            Wish { again: Wanted::These(Arc::clone(&trials)), alone: alone.then_some(trials) };
        Ok(Self { wish, requests: Arc::new(requests), ..Self::default() })
    }

    /// These trials, some with requests of their own.
    pub(crate) fn with_requests(trials: BTreeSet<u64>, requests: HashMap<u64, Resources>) -> Self {
        if trials.is_empty() {
            return Self::default();
        }
        let requests = requests.into_iter().map(|(trial, own)| (trial, Arc::new(own))).collect();
        let wish = Wish { again: Wanted::These(Arc::new(trials)), alone: None };
        Self { wish, requests: Arc::new(requests), ..Self::default() }
    }

    /// These trials and others, none of which are all.
    #[must_use]
    pub(crate) fn and(self, others: &Self) -> Self {
        let these = |again: &Self| match &again.wish.again {
            Wanted::These(trials) => BTreeSet::clone(trials),
            Wanted::None | Wanted::All => BTreeSet::new(),
        };
        let mut trials = these(&self);
        trials.extend(these(others));
        let mut requests = HashMap::clone(&self.requests);
        requests.extend(others.requests.iter().map(|(trial, own)| (*trial, Arc::clone(own))));
        if trials.is_empty() {
            return self;
        }
        let wish = Wish { again: Wanted::These(Arc::new(trials)), ..self.wish };
        Self { wish, requests: Arc::new(requests), ..self }
    }

    /// The same with requests of trials that have no other this time, and do not run again.
    #[must_use]
    pub(crate) fn keeping(self, others: HashMap<u64, Arc<Resources>>) -> Self {
        if others.is_empty() {
            return self;
        }
        let requests = others.into_iter().chain(HashMap::clone(&self.requests)).collect();
        Self { requests: Arc::new(requests), ..self }
    }

    /// The requests that hold this time in place of the plan's, with their trials (`0-9,14`).
    pub(crate) fn own_requests(&self) -> Vec<(String, Resources)> {
        let mut groups: HashMap<&Resources, Vec<u64>> = HashMap::new();
        for (trial, request) in &*self.requests {
            groups.entry(request).or_default().push(*trial);
        }
        let set = |(request, trials): (&Resources, Vec<u64>)| {
            (IdSet::of_trials(trials).to_string(), request.clone())
        };
        let mut all: Vec<(String, Resources)> = groups.into_iter().map(set).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Those that a feeder is to run again.
    pub(crate) fn repeated(repeats: &[Repeat]) -> Self {
        let (mut trials, mut requests) = (BTreeSet::new(), HashMap::new());
        for repeat in repeats {
            let ids = IdSet::of_numbers(&repeat.trials).unwrap_or_default();
            let request = repeat.resources.clone().map(Arc::new);
            for trial in ids.iter().map(u64::from) {
                trials.insert(trial);
                requests.extend(request.iter().map(|request| (trial, Arc::clone(request))));
            }
        }
        if trials.is_empty() {
            return Self::default();
        }
        let wish = Wish { again: Wanted::These(Arc::new(trials)), alone: None };
        Self { wish, requests: Arc::new(requests), ..Self::default() }
    }

    /// Of the trials that have no place in the queue, those that run again, for the feeder; `bad` are all without success.
    pub(crate) fn repeats(&self, left: &[Todo], bad: &HashSet<u64>) -> Vec<Repeat> {
        let mut groups: HashMap<Option<&Resources>, IdSet> = HashMap::new();
        for trial in left.iter().map(|todo| todo.id).filter(|id| self.has(*id) && bad.contains(id))
        {
            let request = self.requests.get(&trial).map(|request| &**request);
            let group = groups.entry(request).or_default();
            *group = group.union(&IdSet::of_trials([trial]));
        }
        let repeat = |(request, ids): (Option<&Resources>, IdSet)| Repeat {
            trials: ids.to_string(),
            resources: request.cloned(),
        };
        let mut repeats: Vec<Repeat> = groups.into_iter().map(repeat).collect();
        repeats.sort_by(|a, b| a.trials.cmp(&b.trials));
        repeats
    }

    /// Whether any trial without success may run again.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self.wish.again, Wanted::None)
    }

    /// Whether a trial runs again if it ended without success.
    pub(crate) fn has(&self, trial: u64) -> bool {
        self.wish.wants(trial)
    }

    /// Which trials it is about.
    pub(crate) fn wish(&self) -> &Wish {
        &self.wish
    }

    /// The same with the code as it is now, if `wanted`.
    #[must_use]
    pub(crate) fn with_current_code(self, wanted: bool) -> Self {
        Self { current_code: wanted, ..self }
    }

    /// Whether what is submitted again runs the code as it is now.
    pub(crate) fn is_with_current_code(&self) -> bool {
        self.current_code
    }

    /// Whether nothing else is submitted.
    pub(crate) fn is_alone(&self) -> bool {
        self.wish.alone.is_some()
    }

    /// Whether a trial that has not ended well may be submitted, begun or not.
    pub(crate) fn admits(&self, trial: u64) -> bool {
        self.wish.admits(trial)
    }

    /// The same for a feeder that submits nothing but the trials of a set, if there is one.
    #[must_use]
    pub(crate) fn within(self, only: Option<IdSet>) -> Self {
        let alone = only.map(|ids| Arc::new(ids.iter().map(u64::from).collect()));
        Self { wish: Wish { alone, ..self.wish }, ..self }
    }

    /// The set of trials for [`Again::within`].
    pub(crate) fn only(&self) -> Option<String> {
        Some(IdSet::of_trials(self.wish.alone.as_ref()?.iter().copied()).to_string())
    }

    /// Whether a feeder submits all that this submission may leave to one.
    pub(crate) fn is_left_to(&self, feeder: &Feeder) -> bool {
        let Some(only) = feeder.only() else { return true };
        self.wish.alone.as_ref().is_some_and(|alone| alone.iter().all(|trial| only.has(*trial)))
    }

    /// Whether a trial has a request of its own this time.
    pub(crate) fn asks_for(&self, trial: u64) -> bool {
        self.requests.contains_key(&trial)
    }

    /// The requests that hold this time in place of the plan's, each once.
    pub(crate) fn requests(&self) -> Vec<&Resources> {
        let distinct: HashSet<&Resources> = self.requests.values().map(|r| &**r).collect();
        distinct.into_iter().collect()
    }

    /// Changes what a plan asks for.
    pub(crate) fn change(&self, diff: &mut Diff) {
        self.requests.iter().for_each(|(trial, request)| diff.ask_for(*trial, request));
        if self.is_alone() {
            diff.leave_out_new();
        }
    }

    /// As [`Again::change`], but for trials that `others` has.
    pub(crate) fn change_others(&self, others: &Self, diff: &mut Diff) {
        let kept = self.requests.iter().filter(|(trial, _)| !others.has(**trial));
        kept.for_each(|(trial, request)| diff.ask_for(*trial, request));
    }
}

/// The wanted trials that did not end well, with all others of their chains that must run for them to run, or that stopped
/// because of them.
pub(crate) fn with_chains(
    status: &Status,
    wanted: &BTreeSet<u64>,
    on_failure: OnFailure,
) -> BTreeSet<u64> {
    let ran_badly = status.trials().filter(|(_, standing)| standing.state.is_bad());
    let mut again: BTreeSet<u64> =
        ran_badly.map(|(row, _)| row.id).filter(|trial| wanted.contains(trial)).collect();
    if on_failure == OnFailure::Continue {
        return again;
    }
    let of_chain = status.rows.iter().filter(|row| again.contains(&row.id));
    let chains: HashSet<u64> = of_chain.map(|row| row.chain).collect();
    let stands_still = |state: &State| state.is_bad() || *state == State::Pending;
    let others = status
        .trials()
        .filter(|(row, standing)| chains.contains(&row.chain) && stands_still(&standing.state));
    again.extend(others.map(|(row, _)| row.id));
    again
}
