//! The state of each trial: its own record combined with the scheduler's state.
//!
//! Success needs both: a record that says so and a scheduler that does not contradict it. An unknown state of
//! the scheduler is shown as it is. Every trial has exactly one state, so counts by state add up to the
//! number of trials.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::base::cause::Cause;
use crate::base::idset::IdSet;
use crate::base::words::count;
use crate::cluster::scheduler::{Element, End, State as Word};
use crate::plan::OnFailure;
use crate::sweep::tree::export::{About, Stood};
use crate::sweep::tree::records::{Attempt, Break, ByTrial, Outcome, Record};
use crate::sweep::tree::table::{Row, place_of};
use crate::sweep::tree::terms::Dropped;

/// The state of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// Its result is recorded and nothing contradicts it.
    Done,
    /// It is being run.
    Running,
    /// The scheduler has it and will run it.
    Queued,
    /// Not given to a scheduler yet, or still to be run here.
    Pending,
    /// It ended with an error.
    Failed,
    /// It ran into its wall-clock limit.
    Timeout,
    /// It was asked to stop, or its worker was killed.
    Interrupted,
    /// It was taken out of the queue before it began.
    Cancelled,
    /// Its chain stopped before it.
    Skipped,
    /// The scheduler had it and no longer knows it, and it left no end.
    Lost,
    /// Its record says done; the scheduler says otherwise.
    Doubtful,
    /// It has no result, and the plan no longer has it: no process runs it.
    Dropped,
    /// A state of the scheduler that is not known here.
    Other(String),
}

impl State {
    /// All of them but the words of schedulers.
    pub(crate) const KNOWN: [Self; 12] = [
        Self::Done,
        Self::Running,
        Self::Queued,
        Self::Pending,
        Self::Failed,
        Self::Timeout,
        Self::Interrupted,
        Self::Cancelled,
        Self::Skipped,
        Self::Lost,
        Self::Doubtful,
        Self::Dropped,
    ];

    /// The word shown to people and written by `--json`.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Other(word) => word.to_lowercase(),
            known => format!("{known:?}").to_lowercase(),
        }
    }

    /// Whether nothing will change it but a new submission.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Running | Self::Queued | Self::Pending | Self::Other(_))
    }

    /// Whether it ended without success and can be asked for again.
    pub(crate) fn is_bad(&self) -> bool {
        self.is_final() && !matches!(self, Self::Done | Self::Dropped)
    }
}

/// A state and the reason for it; empty where there is nothing to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: State,
    /// Why it ended without success, in one word; `None` where it did not.
    pub(crate) cause: Option<Cause>,
    pub(crate) reason: String,
}

impl Standing {
    /// In words: "queued: Resources".
    pub(crate) fn words(&self) -> String {
        let word = self.state.word();
        if self.reason.is_empty() { word } else { format!("{word}: {}", self.reason) }
    }
}

impl Standing {
    /// Why a trial ended without success, in one line: what more is to be said than that it failed comes first.
    pub(crate) fn why(&self) -> String {
        let outside = [Cause::Preempted, Cause::Cancelled, Cause::NodeFailure, Cause::OutOfMemory];
        let label = match self.cause {
            Some(cause) if outside.contains(&cause) => cause.word().replace('-', " "),
            _ if self.state == State::Failed && !self.reason.is_empty() => String::new(),
            _ => self.state.word(),
        };
        match (label.as_str(), self.reason.as_str()) {
            ("", reason) => reason.to_owned(),
            (label, "") => label.to_owned(),
            (label, reason) if reason.contains(label) => reason.to_owned(),
            (label, reason) => format!("{label}: {reason}"),
        }
    }
}

/// Marks trials that the plan no longer has as dropped, unless they are done or still run.
pub(crate) fn drop(rows: &[Row], standings: &mut [Standing], dropped: &Dropped) {
    let gone = rows.iter().zip(standings).filter(|(row, _)| dropped.has(row.id));
    for (_, standing) in gone {
        if standing.state.is_bad() || standing.state == State::Pending {
            let was = standing.words();
            let more = if standing.state.is_bad() { format!("; {was}") } else { String::new() };
            let reason = format!("the plan no longer has it{more}");
            *standing = Standing { state: State::Dropped, cause: None, reason };
        }
    }
}

/// What to say where so many trials of a sweep are dropped; `None` where none are.
pub(crate) fn dropped_words(trials: u64) -> Option<String> {
    let them = if trials == 1 { "it" } else { "them" };
    let trials = (trials > 0).then(|| count(trials, "trial"))?;
    Some(format!("dropped: {trials} (the plan no longer has {them})"))
}

/// What is known of the archive from which a sweep was unpacked, or of those it was merged of, for showing how its trials stand.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Attempts that began later have begun in the copy.
    until: f64,
    /// When it was exported, in words; `None` if all trials had ended.
    when: Option<String>,
    /// How trials stood then, where their records alone do not say so.
    stood: HashMap<u64, Standing>,
}

impl Copied {
    /// Reads it off the archive's description.
    pub(crate) fn of(about: &About) -> Self {
        let mut stood = HashMap::new();
        for own in &about.standings {
            let known = State::KNOWN.into_iter().find(|state| state.word() == own.state);
            let state = known.unwrap_or_else(|| State::Other(own.state.clone()));
            let standing = Standing { state, cause: own.cause, reason: own.reason.clone() };
            let trials = IdSet::of_numbers(&own.trials).unwrap_or_default();
            stood.extend(trials.iter().map(|trial| (u64::from(trial), standing.clone())));
        }
        Self { until: about.exported.unwrap_or(about.until), when: about.when(), stood }
    }

    /// The standing of a trial that nobody has taken up since; `None` if its record decides.
    fn standing(&self, trial: u64, attempt: Option<&Attempt>) -> Option<Standing> {
        let stood = self.stood.get(&trial);
        if attempt.is_some_and(|attempt| attempt.start.time > self.until) {
            return None;
        }
        let ran = || say(State::Running, self.when.as_deref().unwrap_or_default());
        match (attempt.map(Attempt::outcome), stood) {
            (Some(Some(Outcome::Done)), Some(stood)) if stood.state == State::Doubtful => {
                Some(stood.clone())
            }
            (Some(Some(_)), _) => None,
            (Some(None), None) if self.when.is_some() => Some(ran()),
            // It may have begun while the archive was written.
            (Some(None), Some(stood)) if !stood.state.is_final() => Some(ran()),
            (_, stood) => stood.cloned(),
        }
    }
}

/// How trials stand that records alone would show otherwise, in groups, for [`Copied`].
pub(crate) fn beyond_records(
    rows: &[Row],
    records: &ByTrial,
    standings: &[Standing],
) -> Vec<Stood> {
    let is_plain = |(trial, standing): &(u64, &Standing)| {
        let attempt = records.get(trial).and_then(Record::decisive);
        match attempt.map(Attempt::outcome) {
            None => standing.state == State::Pending && standing.reason.is_empty(),
            Some(None) => false,
            Some(Some(_)) => standing.state != State::Doubtful,
        }
    };
    let all = rows.iter().map(|row| row.id).zip(standings);
    groups(all.filter(|own| !is_plain(own)))
}

/// Trials by how they stand, for [`Copied`].
pub(crate) fn groups<'a>(trials: impl IntoIterator<Item = (u64, &'a Standing)>) -> Vec<Stood> {
    let mut groups: BTreeMap<(String, Option<Cause>, &str), Vec<u64>> = BTreeMap::new();
    for (trial, standing) in trials {
        // What a program did at that time is not of interest later.
        let is_running = standing.state == State::Running;
        let reason = if is_running { "" } else { standing.reason.as_str() };
        let key = (standing.state.word(), standing.cause, reason);
        groups.entry(key).or_default().push(trial);
    }
    let stood = |((state, cause, reason), trials): ((String, _, &str), _)| Stood {
        state,
        cause,
        reason: reason.to_owned(),
        trials: IdSet::of_trials(trials).to_string(),
    };
    groups.into_iter().map(stood).collect()
}

/// Everything that is known besides rows and records.
pub(crate) struct Witness<'a> {
    /// The scheduler's state of a trial; `None` if it has none.
    pub(crate) element: &'a dyn Fn(u64) -> Option<Cow<'a, Element>>,
    /// Whether a trial was given to a scheduler.
    pub(crate) submitted: &'a dyn Fn(u64) -> bool,
    /// Whether the scheduler answered (or there is none). If not, a trial that it does not name is not lost.
    pub(crate) asked: bool,
    /// Whether the scheduler's report of an end may override a record. PBS's may not.
    pub(crate) believes_ends: bool,
    /// Whether an executor on some host holds the sweep now.
    pub(crate) executor: bool,
    /// Whether it is an executor other than this process: it runs the trials that no scheduler was given.
    pub(crate) runs_here: bool,
    /// How often a trial may be tried.
    pub(crate) attempts: u32,
    /// The effect of a failure on the rest of a chain.
    pub(crate) on_failure: OnFailure,
    /// The archive from which the sweep was unpacked, if it was, for a caller that shows how trials stand: what runs them
    /// on here takes them for trials that no process runs.
    pub(crate) copied: Option<&'a Copied>,
}

/// The standing of every row, in the order of the rows (by trial number).
pub(crate) fn of(rows: &[Row], records: &ByTrial, witness: &Witness<'_>) -> Vec<Standing> {
    let mut all: Vec<Standing> = Vec::with_capacity(rows.len());
    for row in rows {
        // A damaged row may name one that comes later.
        let place = |id: u64| all.get(place_of(rows, id)?);
        let before = row.after.and_then(|id| Some((id, &place(id)?.state)));
        let standing = one(row.id, records.get(&row.id), before, witness);
        all.push(standing);
    }
    all
}

/// Counts by state, in the order of [`State`].
pub(crate) fn counts(all: &[Standing]) -> BTreeMap<State, u64> {
    let mut counts = BTreeMap::new();
    for standing in all {
        *counts.entry(standing.state.clone()).or_default() += 1;
    }
    counts
}

fn one(
    trial: u64,
    record: Option<&Record>,
    before: Option<(u64, &State)>,
    witness: &Witness<'_>,
) -> Standing {
    let attempt = record.and_then(Record::decisive);
    let runs = attempt.is_some_and(|attempt| attempt.outcome().is_none());
    // Half an answer is late: the accounting still has a job as waiting whose worker runs.
    let is_late = |element: &Cow<'_, Element>| runs && !witness.asked && element.state.waits();
    let element = (witness.element)(trial).filter(|element| !is_late(element));
    let known = Known { trial, record, attempt, element: element.as_deref(), witness };
    let recorded = known.copied().or_else(|| known.closed()).or_else(|| known.skipped());
    let recorded = recorded.or_else(|| known.at_scheduler());
    recorded.unwrap_or_else(|| match attempt {
        Some(_) => known.begun(),
        None => known.unbegun(before),
    })
}

fn say(state: State, reason: &str) -> Standing {
    Standing { state, cause: None, reason: reason.to_owned() }
}

/// As [`say`], of a trial that ended without success.
fn bad(state: State, cause: Cause, reason: &str) -> Standing {
    Standing { cause: Some(cause), ..say(state, reason) }
}

/// The facts about one trial.
struct Known<'a, 'w> {
    trial: u64,
    record: Option<&'a Record>,
    /// The attempt that counts.
    attempt: Option<&'a Attempt>,
    element: Option<&'a Element>,
    witness: &'a Witness<'w>,
}

impl Known<'_, '_> {
    fn word(&self) -> Option<&Word> {
        self.element.map(|element| &element.state)
    }

    fn is_submitted(&self) -> bool {
        // The attempt that counts may have begun outside of all jobs.
        let is_elsewhere = self.attempt.is_some_and(|attempt| attempt.start.job.is_none());
        (self.witness.submitted)(self.trial) && !(is_elsewhere && self.element.is_none())
    }

    /// By the archive from which the sweep was unpacked, unless it was taken up here.
    fn copied(&self) -> Option<Standing> {
        let copied = self.witness.copied?;
        let runs = matches!(self.word(), Some(Word::Running(_)));
        match runs || self.is_submitted() {
            true => None,
            false => copied.standing(self.trial, self.attempt),
        }
    }

    /// By the record, if that is closed.
    fn closed(&self) -> Option<Standing> {
        let attempt = self.attempt?;
        let outcome = attempt.outcome()?;
        let is_here = self.witness.runs_here && !self.is_submitted();
        Some(match (outcome, self.word()) {
            (Outcome::Done, Some(Word::Ended(End::Failed | End::Node | End::Memory, word)))
                if self.witness.believes_ends =>
            {
                let cause = self.word().and_then(Word::cause).unwrap_or(Cause::Unknown);
                let reason = format!("recorded as done, but the scheduler says {word}");
                bad(State::Doubtful, cause, &reason)
            }
            (Outcome::Done, _) => say(State::Done, &attempt.why()),
            // Given back to the queue after its attempt had ended.
            (_, Some(Word::Queued(word) | Word::Held(word))) => say(State::Queued, word),
            // Its worker was asked to stop, and has still to say what became of it.
            (_, Some(word)) if word.is_stopping() && attempt.end.is_none() => {
                say(State::Running, Word::STOPPING)
            }
            // Between two attempts of one job; what has really ended is not RUNNING for long.
            (_, Some(word @ Word::Running(_))) if !word.is_stopping() => say(State::Running, ""),
            (Outcome::Interrupted, None) if is_here => say(State::Pending, ""),
            (_, None) if is_here && self.may_go_on() => say(State::Running, ""),
            (Outcome::Failed, _) => self.recorded(State::Failed, attempt),
            (Outcome::Timeout, _) => self.recorded(State::Timeout, attempt),
            (Outcome::Interrupted, _) => self.recorded(State::Interrupted, attempt),
        })
    }

    /// An end without success as it is recorded. Of what has ended the program from outside, the scheduler knows more.
    fn recorded(&self, state: State, attempt: &Attempt) -> Standing {
        let own = attempt.cause().unwrap_or(Cause::Unknown);
        let is_outside = matches!(own, Cause::Stopped | Cause::Signal | Cause::Unknown);
        let before = attempt.told.as_ref().map(|told| told.cause);
        let told = self.word().and_then(Word::cause).or(before).filter(|_| is_outside);
        let why = attempt.why();
        let by = self.element.map_or("", |element| &element.reason);
        match told {
            Some(Cause::Cancelled) if by.starts_with("by ") => {
                bad(state, Cause::Cancelled, &format!("{why}: cancelled {by}"))
            }
            told => bad(state, told.unwrap_or(own), &why),
        }
    }

    fn may_go_on(&self) -> bool {
        self.record.is_some_and(|record| record.may_go_on(self.witness.attempts))
    }

    /// By the record, if the chain stopped before it and it was not queued again.
    fn skipped(&self) -> Option<Standing> {
        let why = self.record.and_then(|record| record.skipped.as_deref())?;
        let is_queued = self.word().is_some_and(Word::waits);
        (self.attempt.is_none() && !is_queued)
            .then(|| bad(State::Skipped, Cause::ChainStopped, why))
    }

    /// By the scheduler, which has it.
    fn at_scheduler(&self) -> Option<Standing> {
        let element = self.element?;
        match &element.state {
            Word::Queued(word) | Word::Held(word) if element.reason.is_empty() => {
                Some(say(State::Queued, word))
            }
            Word::Queued(_) | Word::Held(_) => Some(say(State::Queued, &element.reason)),
            Word::Running(word) => {
                Some(say(State::Running, if word == "RUNNING" { "" } else { word }))
            }
            Word::Other(word) => Some(say(State::Other(word.clone()), "")),
            _ => None,
        }
    }

    /// For a trial that has begun, whose record is open, and which no scheduler has.
    fn begun(&self) -> Standing {
        let lost = |reason| bad(State::Lost, Cause::WorkerLost, reason);
        match self.word() {
            Some(Word::Ended(End::Unrun, _)) => lost("it began, and left no end"),
            Some(state @ Word::Ended(end, word)) => {
                let cause = state.cause().unwrap_or(Cause::WorkerLost);
                let state = match end {
                    End::Timeout => State::Timeout,
                    End::Cancelled | End::Preempted | End::Unrun => State::Interrupted,
                    End::Failed | End::Node | End::Memory => State::Failed,
                };
                bad(state, cause, &format!("the scheduler says {word}"))
            }
            Some(_) => lost("the scheduler says COMPLETED, but no end was recorded"),
            None if !self.is_submitted() && !self.witness.executor => {
                bad(State::Interrupted, Cause::WorkerLost, "its worker was killed")
            }
            None if !self.is_submitted() || !self.witness.asked => say(State::Running, ""),
            None => lost("it began, and the scheduler no longer knows it"),
        }
    }

    /// For a trial that has not begun, and which no scheduler has; `before` is the one before it in its
    /// chain.
    fn unbegun(&self, before: Option<(u64, &State)>) -> Standing {
        let lost = |reason| bad(State::Lost, Cause::WorkerLost, reason);
        let stopped = before
            .filter(|(_, state)| self.witness.on_failure == OnFailure::Stop && state.is_bad())
            .map(|(before, state)| (state, broken(state).reason(before)));
        match (self.word(), stopped) {
            (
                Some(state @ Word::Ended(End::Cancelled | End::Preempted | End::Unrun, word)),
                None,
            ) => {
                let why = match word.as_str() {
                    "CANCELLED" => "cancelled before it began".to_owned(),
                    word => word.to_owned(),
                };
                let by = self.element.map_or("", |element| &element.reason);
                let why = if by.starts_with("by ") { format!("{why} {by}") } else { why };
                bad(State::Cancelled, state.cause().unwrap_or(Cause::Cancelled), &why)
            }
            // On this machine, a trial that was only interrupted continues with the next `submit`.
            (_, Some((State::Interrupted | State::Lost, _))) if !self.is_submitted() => {
                say(State::Pending, "")
            }
            (_, Some((_, why))) => bad(State::Skipped, Cause::ChainStopped, &why),
            (Some(state @ Word::Ended(_, word)), None) => {
                let cause = state.cause().unwrap_or(Cause::WorkerLost);
                let reason = format!("the scheduler says {word}, and nothing was recorded");
                bad(State::Failed, cause, &reason)
            }
            (Some(_), None) => lost("the scheduler says COMPLETED, but nothing was recorded"),
            (None, None) if !self.is_submitted() => say(State::Pending, ""),
            (None, None) if !self.witness.asked => {
                say(State::Queued, "the scheduler was not asked")
            }
            (None, None) => lost("the scheduler no longer knows it"),
        }
    }
}

/// What became of a trial that ended without success, for those behind it.
fn broken(state: &State) -> Break {
    match state {
        State::Failed => Break::Ended(Outcome::Failed),
        State::Timeout => Break::Ended(Outcome::Timeout),
        State::Interrupted => Break::Ended(Outcome::Interrupted),
        State::Skipped => Break::Skipped,
        State::Lost => Break::NoEnd,
        State::Doubtful => Break::Doubtful,
        _ => Break::Unrun,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::sweep::tree::records::{End, Start};

    fn row(id: u64, after: Option<u64>) -> Row {
        serde_json::from_value(serde_json::json!({
            "id": id, "chain": 0, "link": id, "after": after, "task_id": null, "key": "",
            "gpu_ids_abs": null, "params": {}, "resources": null,
        }))
        .unwrap()
    }

    fn attempt(outcome: Option<Outcome>, exit_code: i32) -> Record {
        let job = Some("84_0".to_owned());
        let start =
            Start { attempt: 1, host: "n1".into(), pid: 1, job, ranks: 1, ..Start::default() };
        let end = outcome.map(|state| End {
            trial: 0,
            attempt: 1,
            time: 1.0,
            state,
            exit_code: Some(exit_code),
            signal: None,
            cause: None,
            reason: None,
            duration_s: 1.0,
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: false,
            seq: None,
        });
        let attempt = Attempt { end, ..Attempt::begun(start, 1, None) };
        Record { attempts: vec![attempt], ..Record::default() }
    }

    /// The process that was asked to run the trial.
    #[derive(Clone, Copy)]
    enum Where {
        /// No process was ever asked to run it; an executor may hold the sweep.
        Here(bool),
        /// A scheduler that answered.
        Asked,
        /// A scheduler that did not.
        Silent,
    }

    /// The state of a trial with this record and this state of the scheduler, if its chain has not stopped.
    fn check(record: Option<Record>, word: Option<&str>, place: Where, expected: &str) {
        let rows = [row(0, None)];
        let records = record.map(|r| (0, r)).into_iter().collect::<HashMap<_, _>>().into();
        let element = |_| {
            word.map(|w| Cow::Owned(crate::cluster::scheduler::slurm::versions::element(w, "None")))
        };
        let witness = Witness {
            element: &element,
            submitted: &|_| !matches!(place, Where::Here(_)),
            asked: !matches!(place, Where::Silent),
            believes_ends: true,
            executor: matches!(place, Where::Here(true)),
            runs_here: matches!(place, Where::Here(true)),
            attempts: 1,
            on_failure: OnFailure::Stop,
            copied: None,
        };
        let all = of(&rows, &records, &witness);
        let said = format!("{} {}", all[0].state.word(), all[0].reason);
        assert_eq!(said.trim(), expected, "{word:?}");
    }

    #[test]
    fn success_needs_a_record_that_nothing_contradicts() {
        let done = || Some(attempt(Some(Outcome::Done), 0));
        check(done(), None, Where::Here(false), "done");
        check(done(), None, Where::Silent, "done");
        check(done(), Some("COMPLETED"), Where::Asked, "done");
        check(done(), Some("CANCELLED by 7"), Where::Asked, "done");
        let doubt = "doubtful recorded as done, but the scheduler says OUT_OF_MEMORY";
        check(done(), Some("OUT_OF_MEMORY"), Where::Asked, doubt);
        let nothing = "lost the scheduler says COMPLETED, but nothing was recorded";
        check(None, Some("COMPLETED"), Where::Asked, nothing);
    }

    #[test]
    fn a_word_that_is_not_known_is_shown_as_it_is() {
        check(None, Some("HIBERNATING"), Where::Asked, "hibernating");
        check(Some(attempt(None, 0)), Some("HIBERNATING"), Where::Asked, "hibernating");
    }

    #[test]
    fn failures_are_told_apart() {
        let failed = || Some(attempt(Some(Outcome::Failed), 3));
        check(failed(), None, Where::Asked, "failed exit code 3");
        check(failed(), Some("PENDING"), Where::Asked, "queued PENDING");
        check(failed(), Some("RUNNING"), Where::Asked, "running");
        check(Some(attempt(Some(Outcome::Timeout), 143)), None, Where::Here(false), "timeout");
        let began = || Some(attempt(None, 0));
        check(began(), Some("RUNNING"), Where::Asked, "running");
        check(began(), Some("TIMEOUT"), Where::Asked, "timeout the scheduler says TIMEOUT");
        check(began(), Some("NODE_FAIL"), Where::Asked, "failed the scheduler says NODE_FAIL");
        check(began(), None, Where::Asked, "lost it began, and the scheduler no longer knows it");
        check(began(), None, Where::Silent, "running");
        // The queue did not answer, and the accounting learns late.
        check(began(), Some("PENDING"), Where::Silent, "running");
        check(began(), Some("PENDING"), Where::Asked, "queued PENDING");
        check(None, Some("PENDING"), Where::Silent, "queued PENDING");
        check(began(), None, Where::Here(true), "running");
        check(began(), None, Where::Here(false), "interrupted its worker was killed");
    }

    #[test]
    fn what_its_own_worker_did_not_run_is_skipped_until_it_is_asked_for_again() {
        let skipped =
            || Some(Record { skipped: Some("trial 3 failed".to_owned()), ..Record::default() });
        check(skipped(), Some("FAILED"), Where::Asked, "skipped trial 3 failed");
        check(skipped(), Some("COMPLETING"), Where::Asked, "skipped trial 3 failed");
        check(skipped(), None, Where::Silent, "skipped trial 3 failed");
        check(skipped(), Some("PENDING"), Where::Asked, "queued PENDING");
    }

    #[test]
    fn where_a_scheduler_lies_about_ends_the_record_decides() {
        let rows = [row(0, None)];
        let records = HashMap::from([(0, attempt(Some(Outcome::Done), 0))]).into();
        let state = Word::Ended(crate::cluster::scheduler::End::Failed, "exit status 1".to_owned());
        let element = |_| Some(Cow::Owned(Element { state: state.clone(), reason: String::new() }));
        let witness = Witness {
            element: &element,
            submitted: &|_| true,
            asked: true,
            believes_ends: false,
            executor: false,
            runs_here: false,
            attempts: 1,
            on_failure: OnFailure::Stop,
            copied: None,
        };
        assert_eq!(of(&rows, &records, &witness)[0].state, State::Done);
    }

    #[test]
    fn a_trial_without_a_record_waits_or_is_lost() {
        check(None, None, Where::Here(false), "pending");
        check(None, None, Where::Silent, "queued the scheduler was not asked");
        check(None, None, Where::Asked, "lost the scheduler no longer knows it");
        check(None, Some("PENDING"), Where::Asked, "queued PENDING");
        check(None, Some("RUNNING"), Where::Asked, "running");
        check(None, Some("CANCELLED"), Where::Asked, "cancelled cancelled before it began");
    }

    #[test]
    fn the_rest_of_a_stopped_chain_is_skipped_and_counts_add_up() {
        let rows = [row(0, None), row(1, Some(0)), row(2, Some(1))];
        let count = |on_failure| {
            let records = HashMap::from([(0, attempt(Some(Outcome::Failed), 1))]).into();
            let witness = Witness {
                element: &|_| None,
                submitted: &|_| true,
                asked: false,
                believes_ends: true,
                executor: false,
                runs_here: false,
                attempts: 1,
                on_failure,
                copied: None,
            };
            let all = of(&rows, &records, &witness);
            let stopped = ["trial 0 failed", "trial 1 was skipped"];
            for (standing, why) in all[1..].iter().zip(stopped) {
                let why = format!("its chain stopped: {why}");
                assert!(standing.state != State::Skipped || standing.reason == why, "{standing:?}");
            }
            let counts = counts(&all);
            counts.iter().map(|(s, n)| format!("{} {n}", s.word())).collect::<Vec<_>>()
        };
        assert_eq!(count(OnFailure::Stop), ["failed 1", "skipped 2"]);
        assert_eq!(count(OnFailure::Continue), ["queued 2", "failed 1"]);
    }
}
