//! Makes a frame from what was recorded: one pass over all ends, for each frame anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use super::{Agent, End, Kind, Model, Open};
use crate::answers::watch::pace::Pace;
use crate::answers::watch::{Failure, Frame, MOST_ROWS, Place, Slow, UsedGpu};
use crate::answers::watch::{sort_causes, sort_gpus, sort_slowest};
use crate::base::cause::Cause;
use crate::base::words::{count, duration};
use crate::sweep::standing::State;
use crate::sweep::tree::ledger::{self, Ending, Gone};

impl Model {
    /// How the sweep stands at `now`, seconds since 1970.
    pub(crate) fn frame(&self, now: f64) -> Frame {
        // A silent agent may be dead, and its trials wait for others.
        let is_here = |agent: &&Agent| {
            let known = self.ledger.agents.get(&agent.name);
            known.is_some_and(|known| known.gone.is_none())
                && !agent.is_silent(now, self.patience_s)
        };
        let here: Vec<&Agent> = self.agents.iter().filter(is_here).collect();
        let began = here.iter().filter_map(|agent| agent.began).reduce(f64::min);
        let mut tally = Tally {
            fences: self.agents.iter().map(|agent| self.fence(agent)).collect(),
            running: here.iter().flat_map(|agent| agent.open.keys().copied()).collect(),
            kinds: [0; 6],
            dropped: self.dropped.len(),
            dealt: self.in_hand(),
            by_agent: vec![(0, None); self.agents.len()],
            causes: BTreeMap::new(),
            values: Vec::new(),
            failures: BinaryHeap::new(),
            pace: Pace::new(now, began),
        };
        self.tally(&mut tally);
        tally.dealt.retain(|trial, _| !tally.running.contains(trial));
        let are_running = tally.running.iter().filter(|trial| self.dropped.has(**trial)).count();
        let dropped = tally.dropped.saturating_sub((are_running + tally.dealt.len()) as u64);
        let ended = tally.kinds.iter().sum::<u64>() + dropped;
        let total = self.trials.max(self.ends.len() as u64).max(ended);
        let running = tally.running.len() as u64;
        let open = total - ended;
        let kinds = [Kind::Done, Kind::Failed, Kind::Timeout, Kind::Interrupted, Kind::Skipped];
        let mut counts: BTreeMap<State, u64> =
            kinds.into_iter().map(|kind| (kind.state(), tally.kinds[kind as usize])).collect();
        counts.insert(State::Dropped, dropped);
        counts.insert(State::Running, running);
        counts.insert(State::Queued, open.saturating_sub(running));
        counts.retain(|_, n| *n > 0);
        let median_s = tally.pace.median();
        let until = if open == 0 { tally.pace.latest() } else { Some(now) };
        let places = self.places(&tally, now);
        Frame {
            sweep: self.name.clone(),
            total: total.max(ended + running),
            counts,
            rate: tally.pace.rate().filter(|_| open > 0),
            left_s: tally.pace.left(open),
            took_s: self.began.zip(until).map(|(began, until)| (until - began).max(0.0)),
            median_s,
            notes: self.notes(&places, open),
            best: self.choice.best(tally.values.into_iter()),
            causes: sort_causes(tally.causes.into_iter()),
            places,
            failures: self.failures(tally.failures, now),
            slowest: slowest(&here, now, median_s),
            gpus: used(&here),
            damage: Vec::new(),
        }
    }

    /// Trials that the plan no longer has and that an agent holds or may take, each with how many entries the ledger
    /// had when it was enqueued.
    fn in_hand(&self) -> HashMap<u64, u64> {
        let hands = self.ledger.hands();
        let held = self.dealt.iter().filter(|dealt| hands.holder(dealt.unit).is_some());
        held.map(|dealt| (dealt.trial, dealt.seq)).collect()
    }

    /// Up to where a bundle counts.
    fn fence(&self, agent: &Agent) -> u64 {
        match self.ledger.agents.get(&agent.name).and_then(|known| known.gone.as_ref()) {
            Some(Gone::Fenced(size)) => *size,
            _ => u64::MAX,
        }
    }

    fn tally(&self, tally: &mut Tally) {
        for (trial, first) in self.ends.iter().enumerate() {
            if first.kind == Kind::None {
                continue;
            }
            let Some(end) = self.decisive(trial as u64, first, &tally.fences) else { continue };
            let is_dropped = self.dropped.has(trial as u64);
            if tally.dealt.get(&(trial as u64)).is_some_and(|dealt| u64::from(end.seq) > *dealt) {
                tally.dealt.remove(&(trial as u64));
            }
            if end.kind == Kind::Done {
                tally.running.remove(&(trial as u64));
                tally.pace.took(end.seconds);
                if !end.value.is_nan() {
                    tally.values.push((trial as u64, end.value));
                }
                tally.dropped -= u64::from(is_dropped);
                tally.dealt.remove(&(trial as u64));
            } else if tally.running.contains(&(trial as u64)) {
                // It was asked for again.
                continue;
            } else if !is_dropped && end.kind != Kind::Skipped {
                *tally.causes.entry(end.cause.unwrap_or(Cause::Unknown)).or_default() += 1;
                tally.failures.push(Reverse((end.time.max(0.0).to_bits(), trial as u64)));
                if tally.failures.len() > MOST_ROWS {
                    tally.failures.pop();
                }
            }
            tally.kinds[end.kind as usize] += u64::from(end.kind == Kind::Done || !is_dropped);
            let agent = end.agent as usize;
            let (ended, pace) = &mut tally.by_agent[agent];
            *ended += 1;
            pace.get_or_insert_with(|| Pace::new(tally.pace.now(), self.agents[agent].began))
                .add(end.time);
            tally.pace.add(end.time);
        }
    }

    /// The end that counts: one that is done, else the last.
    fn decisive<'a>(&'a self, trial: u64, first: &'a End, fences: &[u64]) -> Option<&'a End> {
        let counts = |end: &&End| {
            let contests = &self.ledger.contests;
            let agent = &self.agents[end.agent as usize].name;
            // Two agents may run a trial. Only its own agent skips it, and ends from before the agents are
            // not theirs.
            let alone = contests.is_empty() || end.kind == Kind::Skipped || agent.is_empty();
            let (at, attempt, seq) = (end.at, u32::from(end.attempt), u64::from(end.seq));
            at <= fences[end.agent as usize]
                && (alone || self.ledger.counts(Ending { agent, at, trial, attempt, seq }))
        };
        if !first.several {
            return Some(first).filter(counts);
        }
        let others = self.more.get(&trial).map_or(&[][..], Vec::as_slice);
        let later = |a: &&End, b: &&End| {
            // In the order of records: by the ledger, whatever the clocks say; workers of another kind last.
            let order = |end: &End| {
                let agent = &self.agents[end.agent as usize].name;
                (end.kind == Kind::Done, end.seq, agent.is_empty(), agent.clone(), end.at)
            };
            order(a).cmp(&order(b))
        };
        std::iter::once(first).chain(others).filter(counts).max_by(later)
    }

    fn places(&self, tally: &Tally, now: f64) -> Vec<Place> {
        let place = |(name, known): (&String, &ledger::Agent)| {
            let number = self.numbers.get(name).map(|n| *n as usize);
            let agent = number.map(|n| &self.agents[n]);
            Place {
                host: known.host.clone(),
                job: known.job.clone(),
                pid: ledger::pid_of(name),
                busy: agent.map_or(0, |agent| agent.open.len() as u32),
                slots: Some(known.slots),
                ended: number.map_or(0, |n| tally.by_agent[n].0),
                rate: number.and_then(|n| tally.by_agent[n].1.as_ref()?.rate()),
                seen_s: agent.and_then(|agent| agent.seen_s(now)),
                silent: agent.is_some_and(|agent| agent.is_silent(now, self.patience_s)),
            }
        };
        let mut places: Vec<Place> = self.ledger.living().map(place).collect();
        // Agents that may need attention come first; the rest stays in the order of hosts.
        places.sort_by_key(|place| !place.silent);
        places
    }

    fn failures(&self, newest: BinaryHeap<Reverse<(u64, u64)>>, now: f64) -> Vec<Failure> {
        let fences: Vec<u64> = self.agents.iter().map(|agent| self.fence(agent)).collect();
        // Sorted as they are wrapped: the newest first.
        let trials = newest.into_sorted_vec().into_iter().map(|Reverse((_, trial))| trial);
        trials
            .filter_map(|trial| {
                let end = self.decisive(trial, &self.ends[trial as usize], &fences)?;
                let agent = &self.agents[end.agent as usize];
                let told = agent.told.binary_search_by_key(&end.at, |told| told.at);
                let told = told.ok().map(|at| &agent.told[at]);
                let host = told.and_then(|told| told.host.clone());
                Some(Failure {
                    trial,
                    host: host.unwrap_or_else(|| agent.host.clone()),
                    state: end.kind.state(),
                    reason: told.map(|told| told.reason.clone()).unwrap_or_default(),
                    ago_s: Some((now - end.time).max(0.0)),
                })
            })
            .collect()
    }

    fn notes(&self, places: &[Place], open: u64) -> Vec<String> {
        let mut notes = Vec::new();
        let stopped = self.ledger.stopped();
        notes.extend(stopped.clone());
        let fenced = |agent: &&ledger::Agent| matches!(agent.gone, Some(Gone::Fenced(_)));
        let lost = self.ledger.agents.values().filter(fenced).count() as u64;
        if lost > 0 {
            notes.push(format!("{} taken for dead; others have its trials", count(lost, "agent")));
        }
        let silent = places.iter().filter(|place| place.silent).count() as u64;
        if silent > 0 {
            let (agents, patience) = (count(silent, "agent"), duration(self.patience_s));
            notes.push(format!("no sign of life from {agents} for more than {patience}"));
        }
        if open > 0 && silent == places.len() as u64 && stopped.is_none() {
            notes.push(
                "no agent is running: `hpcsweep worker --pull SWEEP` continues it".to_owned(),
            );
        }
        notes
    }
}

/// Sums over all trials.
struct Tally {
    fences: Vec<u64>,
    /// Trials that run and are not done.
    running: HashSet<u64>,
    kinds: [u64; 6],
    /// Trials that the plan no longer has and that are not done.
    dropped: u64,
    /// Those of them that an agent holds or may take and that have not ended since they were enqueued, with when that
    /// was.
    dealt: HashMap<u64, u64>,
    /// Trials that have ended by agent, and how fast.
    by_agent: Vec<(u64, Option<Pace>)>,
    /// How many trials ended without success, by cause.
    causes: BTreeMap<Cause, u64>,
    /// Trials that are done and have the metric.
    values: Vec<(u64, f32)>,
    /// Time and number of the newest.
    failures: BinaryHeap<Reverse<(u64, u64)>>,
    pace: Pace,
}

fn slowest(here: &[&Agent], now: f64, median_s: Option<f64>) -> Vec<Slow> {
    let slow = |agent: &&Agent| {
        let host = agent.host.clone();
        let row = move |(trial, open): (&u64, &Open)| {
            let since_s = (now - open.since).max(0.0);
            let times = median_s.filter(|m| *m > 0.0).map(|median| since_s / median);
            Slow { trial: *trial, host: host.clone(), since_s, times, curve: open.trace.curve() }
        };
        agent.open.iter().map(row).collect::<Vec<_>>()
    };
    let mut all: Vec<Slow> = here.iter().flat_map(slow).collect();
    sort_slowest(&mut all);
    all
}

fn used(here: &[&Agent]) -> Vec<UsedGpu> {
    let mut all = Vec::new();
    for agent in here {
        for (trial, open) in &agent.open {
            let host = || agent.host.clone();
            let used = |(n, gpu): (&u32, &_)| UsedGpu {
                trial: *trial,
                host: host(),
                number: *n,
                gpu: *gpu,
            };
            all.extend(open.gpus.iter().map(used));
        }
    }
    sort_gpus(&mut all);
    all
}
