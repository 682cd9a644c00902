//! A sweep without agents, read as `status` reads it: all of it, the scheduler asked once in a while.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::best::{Choice, Logged};
use super::gpus::{self, Gpus};
use super::pace::Pace;
use super::trace::Trace;
use super::{Failure, Frame, MOST_ROWS, Place, Slow, UsedGpu};
use crate::answers::collect::Goal;
use crate::base::cause::Cause;
use crate::base::words::count;
use crate::sweep::standing::{self, Standing, State};
pub use crate::sweep::status::told::Asking;
use crate::sweep::status::told::Told;
use crate::sweep::status::{self, Status};
use crate::sweep::tree::damage::Damaged;
use crate::sweep::tree::records::{Attempt, Record};
use crate::sweep::tree::{Identity, Tree};

/// What the last look has read, of which frames are made.
#[derive(Default)]
pub(super) struct Whole {
    told: Told,
    counts: BTreeMap<State, u64>,
    total: u64,
    began: Option<f64>,
    /// When trials ended, and how long the done ones took; in no order.
    ends: Vec<f64>,
    durations: Vec<f32>,
    running: Vec<RunningTrial>,
    failures: Vec<(Option<f64>, Failure)>,
    /// Hosts, when something has last happened there, and when trials ended there.
    places: BTreeMap<String, (Place, f64, Vec<f64>)>,
    damage: Vec<Damaged>,
    causes: BTreeMap<Cause, u64>,
    choice: Choice,
    /// The metric of each trial that is done and whose lines have been read.
    values: HashMap<u64, f32>,
    /// Trials whose lines are read in one look.
    most: usize,
    /// Trials that are done and whose lines are still to be read.
    unread: u64,
}

struct RunningTrial {
    trial: u64,
    host: String,
    since: f64,
    gpus: Gpus,
    trace: Trace,
}

impl Whole {
    pub(super) fn look(&mut self, tree: &Tree, identity: &Identity, asking: &Asking) -> Result<()> {
        let (tree, identity) = (tree.clone(), identity.clone());
        let status = self.told.look(asking, |whom| status::glance(tree, identity, whom))?;
        let (told, damage) = (std::mem::take(&mut self.told), status.damage.clone());
        let (choice, values) = (std::mem::take(&mut self.choice), std::mem::take(&mut self.values));
        *self = Self { told, damage, choice, values, most: self.most, ..Self::default() };
        self.add_all(&status, &status.standings);
        self.read_metrics(&status);
        Ok(())
    }

    /// Trials are compared by this metric, which is read of at most so many trials in one look.
    pub(super) fn compare_by(&mut self, wish: Option<&(String, Goal)>, most: usize) {
        (self.choice, self.most) = (Choice::new(wish), most);
    }

    /// Reads the metric of trials that are done, each once: their records do not change any more. A large sweep takes several
    /// looks.
    fn read_metrics(&mut self, status: &Status) {
        let mut left = self.most;
        for (row, standing) in status.trials() {
            if standing.state != State::Done || self.values.contains_key(&row.id) {
                continue;
            }
            if left == 0 {
                self.unread += 1;
                continue;
            }
            let attempt = status.records.get(&row.id).and_then(Record::decisive);
            let Some(attempt) = attempt else { continue };
            left -= 1;
            let mut logged = Logged::new();
            // Lines that cannot be read now are read with the next look.
            if attempt.each_row(&status.tree, |row| self.choice.take(&mut logged, &[row])).is_ok() {
                let result = attempt.end.as_ref().and_then(|end| end.result.as_ref());
                self.values.insert(row.id, self.choice.value(logged, result));
            }
        }
    }

    fn add_all(&mut self, status: &Status, standings: &[Standing]) {
        self.counts = standing::counts(standings);
        self.total = standings.len() as u64;
        for (row, standing) in status.rows.iter().zip(standings) {
            self.add(&status.tree, row.id, standing, status.records.get(&row.id));
        }
        self.failures.sort_by(|a, b| {
            let order = b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal);
            order.then(b.1.trial.cmp(&a.1.trial))
        });
        self.failures.truncate(MOST_ROWS);
    }

    fn add(&mut self, tree: &Tree, trial: u64, standing: &Standing, record: Option<&Record>) {
        let attempt = record.and_then(Record::decisive);
        let end = attempt.and_then(|attempt| attempt.end.as_ref());
        if let Some(start) = record.and_then(|record| record.attempts.first()).map(|a| &a.start) {
            self.began = Some(self.began.map_or(start.time, |began| began.min(start.time)));
        }
        let is_final = standing.state.is_final();
        if let (true, Some(end)) = (is_final, end) {
            self.ends.push(end.time);
            if standing.state == State::Done {
                self.durations.push(end.duration_s as f32);
            }
        }
        let is_running = standing.state == State::Running && end.is_none();
        if let Some(attempt) = attempt {
            let host = &attempt.start.host;
            let fresh = || (Place { host: host.clone(), ..Place::default() }, 0.0, Vec::new());
            let (place, seen, ends) = self.places.entry(host.clone()).or_insert_with(fresh);
            place.busy += u32::from(is_running);
            place.ended += u64::from(is_final);
            if let (true, Some(end)) = (is_final, end) {
                ends.push(end.time);
            }
            *seen = seen.max(end.map_or(attempt.start.time, |end| end.time));
            if is_running {
                self.running.push(running(tree, trial, attempt));
            }
        }
        if standing.state.is_bad() && standing.state != State::Skipped {
            let cause = standing.cause.unwrap_or(Cause::Unknown);
            *self.causes.entry(cause).or_default() += 1;
            let failure = Failure {
                trial,
                host: attempt.map(|attempt| attempt.start.host.clone()).unwrap_or_default(),
                state: standing.state.clone(),
                reason: standing.reason.clone(),
                ago_s: None,
            };
            self.failures.push((end.map(|end| end.time), failure));
        }
    }

    /// The trials that are done, in order, with their metrics.
    fn ranked(&self) -> impl Iterator<Item = (u64, f32)> {
        let mut all: Vec<(u64, f32)> = self.values.iter().map(|(trial, n)| (*trial, *n)).collect();
        all.sort_unstable_by_key(|(trial, _)| *trial);
        all.into_iter()
    }

    pub(super) fn frame(&self, name: &str, now: f64) -> Frame {
        let mut pace = Pace::new(now, self.began);
        self.ends.iter().for_each(|time| pace.add(*time));
        self.durations.iter().for_each(|seconds| pace.took(*seconds));
        let median_s = pace.median();
        let ended: u64 =
            self.counts.iter().filter(|(state, _)| state.is_final()).map(|(_, n)| n).sum();
        let open = self.total - ended;
        let until = if open == 0 { pace.latest() } else { Some(now) };
        let slow = |running: &RunningTrial| {
            let since_s = (now - running.since).max(0.0);
            let times = median_s.filter(|m| *m > 0.0).map(|median| since_s / median);
            let curve = running.trace.curve();
            Slow { trial: running.trial, host: running.host.clone(), since_s, times, curve }
        };
        let mut slowest: Vec<Slow> = self.running.iter().map(slow).collect();
        super::sort_slowest(&mut slowest);
        let used = |running: &RunningTrial| {
            let one = |(number, gpu): (&u32, &gpus::Gpu)| UsedGpu {
                trial: running.trial,
                host: running.host.clone(),
                number: *number,
                gpu: *gpu,
            };
            running.gpus.iter().map(one).collect::<Vec<_>>()
        };
        let mut gpus: Vec<UsedGpu> = self.running.iter().flat_map(used).collect();
        super::sort_gpus(&mut gpus);
        let places = self.places.values().filter(|(place, ..)| place.busy > 0);
        let mut notes = Vec::new();
        let (witness, ago) = self.told.witness();
        if !witness.is_empty() {
            let ago = ago.map(|s| format!(", {s} s ago")).unwrap_or_default();
            notes.push(format!("seen by: {witness}{ago}"));
        }
        if self.unread > 0 {
            notes
                .push(format!("the metric of {} is still to be read", count(self.unread, "trial")));
        }
        let place = |(place, seen, ends): &(Place, f64, Vec<f64>)| {
            let mut pace = Pace::new(now, self.began);
            ends.iter().for_each(|time| pace.add(*time));
            Place { seen_s: Some((now - seen).max(0.0)), rate: pace.rate(), ..place.clone() }
        };
        Frame {
            best: self.choice.best(self.ranked()),
            causes: super::sort_causes(self.causes.iter().map(|(cause, n)| (*cause, *n))),
            sweep: name.to_owned(),
            total: self.total,
            counts: self.counts.clone(),
            rate: pace.rate().filter(|_| open > 0),
            left_s: pace.left(open),
            took_s: self.began.zip(until).map(|(began, until)| (until - began).max(0.0)),
            median_s,
            places: places.map(place).collect(),
            failures: self
                .failures
                .iter()
                .map(|(time, failure)| Failure {
                    ago_s: time.map(|time| (now - time).max(0.0)),
                    ..failure.clone()
                })
                .collect(),
            slowest,
            gpus,
            notes,
            damage: self.damage.clone(),
        }
    }
}

/// Metric events of a running trial that are looked at for what its GPUs do and how its metrics go.
const NEWEST: usize = super::trace::NEWEST;

fn running(tree: &Tree, trial: u64, attempt: &Attempt) -> RunningTrial {
    let (mut gpus, mut trace) = (Gpus::new(), Trace::default());
    // Samples that cannot be read now are read with the next look.
    let _ = attempt.each_new_row(tree, NEWEST, |row| {
        let row = [row];
        gpus::take(&mut gpus, &row);
        trace.take(&row);
    });
    RunningTrial { trial, host: attempt.start.host.clone(), since: attempt.start.time, gpus, trace }
}
