//! `[retry] auto`: which trials of a sweep run again without a person, with which requests, and why others do not. The feeder
//! decides it under the lock, each time that arrays have ended; the journal keeps each decision with its reason.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Result;

use crate::base::cause::Cause;
use crate::base::fault;
use crate::base::host::clock;
use crate::base::idset::IdSet;
use crate::cluster::scheduler::Facts;
use crate::plan::{OnFailure, Resources, Retry};
use crate::submit::again::{self, Again};
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::{self, Diff};
use crate::sweep::attempt::repeat::{self, Case, Ground, Ruling};
use crate::sweep::standing::{Standing, State};
use crate::sweep::status::Status;
use crate::sweep::status::hooks;
use crate::sweep::status::progress::{self, Progress};
use crate::sweep::tree::Tree;
use crate::sweep::tree::deck;
use crate::sweep::tree::journal::{Decision, Entry, Journal};
use crate::sweep::tree::records::{self, Attempt, Decided as OfAgent, Outcome, Record};
use crate::sweep::tree::requests::{Asker, Requests};
use crate::sweep::tree::rulings::Rulings;
use crate::sweep::tree::table::{self, Row};

/// What a feeder is to do about a sweep.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// The trials that run again.
    pub(crate) again: Again,
    /// What the journal keeps of it; `None` where there is nothing new.
    pub(crate) entry: Option<Entry>,
    /// The trials that are queued or running, and the arrays that have them.
    pub(crate) open_trials: HashSet<u64>,
    pub(crate) open: BTreeSet<u32>,
}

/// Why trials do not run again that are not done, if that is the budget.
///
/// # Errors
/// When the journal or a record cannot be read.
pub(crate) fn spent(tree: &Tree) -> Result<Option<String>> {
    let journal = Journal::read(tree)?;
    let is_left =
        |trial| Ok(hooks::is_left(&journal, trial, Some(&records::of_trial(tree, trial)?.0)));
    Ok(hooks::spent(&journal, is_left)?.map(str::to_owned))
}

/// As [`spent`], of a sweep that agents have run.
///
/// # Errors
/// When a record cannot be read.
pub(crate) fn spent_by_agents(tree: &Tree) -> Result<Option<String>> {
    let of = |record: Record| {
        let why = record.left().filter(|why| repeat::is_of_budget(why))?.to_owned();
        (record.outcome() != Some(Outcome::Done)).then_some(why)
    };
    Ok(records::all(tree)?.into_values().find_map(of))
}

/// What is known of a sweep when its feeder decides.
pub(crate) struct Known<'a> {
    pub(crate) status: &'a Status,
    pub(crate) waves: &'a Waves,
    pub(crate) journal: &'a Journal,
    pub(crate) diff: &'a Diff,
    /// What an earlier feeder has decided already.
    pub(crate) pending: &'a Again,
    pub(crate) facts: &'a Facts,
}

/// Decides about all trials of a sweep; `refused`: why a request cannot be made there.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn of_sweep(
    known: &Known<'_>,
    retry: &Retry,
    mut refused: impl FnMut(&Resources) -> Option<anyhow::Error>,
) -> Result<Decided> {
    let Known { status, waves, journal, diff, pending, facts } = known;
    let asked = waves.requests();
    let open = status.trials().filter(|(_, standing)| !standing.state.is_final());
    let open_trials: HashSet<u64> =
        open.map(|(row, _)| row.id).filter(|trial| asked.contains_key(trial)).collect();
    let open = open_trials.iter().filter_map(|trial| Some(asked.get(trial)?.0)).collect();
    let submissions = submissions(waves, journal);
    let requests = Requests::new(&status.tree, journal, waves.arrays())?;
    let is_spent = retry.budget.is_some_and(|budget| core_hours(status, &requests) >= budget);
    let ground = Ground::Jobs { excludes: facts.excludes };
    let mut again: HashMap<u64, Resources> = HashMap::new();
    let mut doubtful: HashMap<u64, u32> = HashMap::new();
    let mut judged: BTreeMap<(bool, bool, String), Vec<u64>> = BTreeMap::new();
    let mut answers: HashMap<Resources, Option<String>> = HashMap::new();
    let bad = status.trials().filter(|(row, standing)| {
        let array = asked.get(&row.id).map(|(array, _)| *array);
        // Of a trial behind one that failed nothing is to be decided.
        standing.state.is_bad()
            && !matches!(standing.state, State::Skipped | State::Cancelled)
            && diff.has(row.id)
            && pending.admits(row.id)
            && !pending.has(row.id)
            && match array {
                Some(array) => !journal.is_cancelled(array, row.id),
                // Agents, or an executor on this machine, have left it undecided.
                None => !journal.has_settled(row.id, status.records.get(&row.id)),
            }
    });
    let bad: Vec<(&Row, &Standing)> = bad.filter(|_| retry.auto).collect();
    let trials = bad.iter().map(|(row, _)| row.id).collect();
    let newest = requests.newest(&deck::with_trials(&status.tree)?, &trials);
    let none = Record::default();
    for (row, standing) in bad {
        let record = status.records.get(&row.id);
        let request = newest.of(Asker::from(row), record.unwrap_or(&none));
        let Some(asked) = request.map(|request| request.resources) else { continue };
        // A repeat that was decided and never submitted, because its feeder was killed, is none.
        let submitted = submissions.get(&row.id).copied().unwrap_or(0);
        let repeats = repeats(journal.rulings.get(&row.id), record, submitted);
        let case = case(&status.tree, record, row, (standing.cause, asked), repeats, ground)?;
        let mut verdict = match is_spent {
            true if case.cause != Cause::Cancelled => repeat::spent(retry),
            _ => repeat::decide(&case, retry),
        };
        if let Ruling::Again { request, .. } = &verdict
            && *request != *asked
        {
            let answer = answers
                .entry(request.clone())
                .or_insert_with(|| refused(request).map(|error| fault::sentence(&error)));
            if let Some(sentence) = answer {
                verdict = Ruling::Left(sentence.clone());
            }
        }
        let key = match verdict {
            Ruling::Again { .. } if standing.state == State::Doubtful => {
                doubtful.insert(row.chain, submitted);
                continue;
            }
            Ruling::Again { request, counts, why, .. } => {
                again.insert(row.id, request);
                (true, counts, why)
            }
            Ruling::Left(why)
                if standing.state == State::Doubtful
                    || journal.left(row.id, record) == Some(&*why) =>
            {
                continue;
            }
            Ruling::Left(why) => (false, false, why),
        };
        judged.entry(key).or_default().push(row.id);
    }
    let wanted: BTreeSet<u64> = again.keys().copied().collect();
    let on_failure = grow::on_failure(&table::heads(&status.tree)?);
    let mut trials = again::with_chains(status, &wanted, on_failure);
    if on_failure == OnFailure::Stop {
        trials.extend(behind_doubtful(known, &asked, &doubtful, &submissions));
    }
    trials.retain(|trial| diff.has(*trial));
    again.retain(|trial, request| diff.request(*trial).is_some_and(|own| **own != *request));
    for (trial, why) in unrun(known, &asked, &trials).filter(|_| retry.auto) {
        judged.entry((false, false, why)).or_default().push(trial);
    }
    let decisions: Vec<Decision> = judged
        .into_iter()
        .map(|((again, counts, why), trials)| Decision {
            trials: IdSet::of_trials(trials).to_string(),
            again,
            counts,
            why,
        })
        .collect();
    let entry = (!decisions.is_empty()).then(|| Entry::Decided { time: clock::now(), decisions });
    Ok(Decided { again: Again::with_requests(trials, again), entry, open_trials, open })
}

/// The trials that the scheduler did not begin because it holds one of their chain for failed, which is done by its record. That
/// is final: they run. `doubtful`: the chains of such trials, with how often these were submitted; what was submitted more often
/// had its chance.
fn behind_doubtful<'a>(
    known: &'a Known<'_>,
    asked: &'a HashMap<u64, (u32, Resources)>,
    doubtful: &'a HashMap<u64, u32>,
    submissions: &'a HashMap<u64, u32>,
) -> impl Iterator<Item = u64> {
    let is_behind = move |row: &Row, state: &State| {
        let stands_still = matches!(state, State::Skipped | State::Cancelled | State::Pending);
        let own = submissions.get(&row.id).copied().unwrap_or(0);
        let array = asked.get(&row.id).map(|(array, _)| *array);
        let is_cancelled = array.is_some_and(|array| known.journal.is_cancelled(array, row.id));
        stands_still && !is_cancelled && doubtful.get(&row.chain).is_some_and(|most| own <= *most)
    };
    let all = known.status.trials().filter(move |(row, own)| is_behind(row, &own.state));
    all.map(|(row, _)| row.id)
}

/// The trials that others have taken out of the queue, and those behind them, but for those that run again, with the reasons.
/// Nothing is to be decided about them; but only the scheduler knows that, and without a decision the next submission would
/// bring a feeder to ask it.
fn unrun<'a>(
    known: &'a Known<'_>,
    asked: &'a HashMap<u64, (u32, Resources)>,
    again: &'a BTreeSet<u64>,
) -> impl Iterator<Item = (u64, String)> {
    let Known { status, journal, diff, pending, .. } = known;
    let is_new = |trial: u64| {
        let record = status.records.get(&trial);
        let Some((array, _)) = asked.get(&trial) else { return false };
        let is_known = record.is_some_and(|record| record.skipped.is_some())
            || journal.is_cancelled(*array, trial)
            || journal.has_settled(trial, record);
        !is_known && diff.has(trial) && pending.admits(trial) && !again.contains(&trial)
    };
    let all =
        status.trials().filter(|(_, own)| matches!(own.state, State::Skipped | State::Cancelled));
    let all = all.filter(move |(row, _)| is_new(row.id));
    all.map(|(row, own)| (row.id, own.words()))
}

/// How often each trial was submitted.
fn submissions(waves: &Waves, journal: &Journal) -> HashMap<u64, u32> {
    let mut all = HashMap::new();
    let submitted = waves.arrays().filter(|(_, array, _)| journal.job(array.array).is_some());
    submitted
        .flat_map(|(.., trials)| trials)
        .for_each(|trial| *all.entry(*trial).or_default() += 1);
    all
}

/// How often a trial has run again by itself, as far as that counts, since a person last ran it again: by decisions of the
/// journal, and by agents. A decision after which it has neither begun nor been submitted is no repeat: who decided was killed.
/// `submitted`: how often it was submitted in all.
pub(super) fn repeats(rulings: Option<&Rulings>, record: Option<&Record>, submitted: u32) -> u32 {
    let none = Rulings::default();
    let rulings = rulings.unwrap_or(&none);
    let since = rulings.since(record);
    let has_begun = |time: &f64| record.is_some_and(|record| record.has_begun_since(*time));
    let decided = rulings.repeats(since).count() as u32;
    let begun = rulings.repeats(since).filter(has_begun).count() as u32;
    let of_agents = record.map_or(&[][..], |record| &record.decisions);
    let counts = |own: &&OfAgent| own.again && own.counts && own.time > since;
    let has_run = |own: &&OfAgent| record.is_some_and(|record| record.has_run_after(own));
    let by_agents = of_agents.iter().filter(counts).filter(has_run).count() as u32;
    submitted.saturating_sub(1).min(decided).max(begun) + by_agents
}

/// The core-hours of all attempts of a sweep, those that run included.
fn core_hours(status: &Status, requests: &Requests) -> f64 {
    let now = clock::now();
    let of = |(row, standing): (&Row, &Standing)| {
        let record = status.records.get(&row.id)?;
        let runs = standing.state == State::Running;
        Some(requests.core_seconds(Asker::from(row), record, runs.then_some(now)))
    };
    status.trials().filter_map(of).sum::<f64>() / 3600.0
}

/// What is known of a trial that ended without success, by its cause and its request the last time.
///
/// # Errors
/// When its metrics cannot be read.
pub(super) fn case<'a>(
    tree: &Tree,
    record: Option<&'a Record>,
    row: &Row,
    (cause, asked): (Option<Cause>, &'a Resources),
    repeats: u32,
    ground: Ground<'a>,
) -> Result<Case<'a>> {
    let attempts = record.map_or(&[][..], |record| &record.attempts);
    let progress = |attempt: Option<&Attempt>| match attempt {
        Some(attempt) => Progress::of(tree, attempt, &row.params),
        None => Ok(None),
    };
    let last = attempts.last();
    let now = progress(last)?;
    let before = progress(attempts.iter().rev().nth(1))?;
    let further = |attempt| progress::has_come_further(attempt, now.as_ref(), before.as_ref());
    let came_further = last.is_some_and(further);
    let words = |progress: Option<Progress>| progress.map(|progress| progress.words());
    Ok(Case {
        cause: cause.unwrap_or(Cause::Unknown),
        exit_code: last.and_then(|attempt| attempt.end.as_ref()).and_then(|end| end.exit_code),
        asked,
        host: last.map_or("", |attempt| &attempt.start.host),
        repeats,
        came_to: [words(now), words(before)],
        ground,
        has_advanced: came_further
            || last.is_some_and(|attempt| progress::has_checkpoint(tree, attempt)),
    })
}
