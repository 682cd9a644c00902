//! `[retry] auto`: which trials of a sweep run again without a person, with which requests, and why others do not. The feeder
//! decides it under the lock, each time that arrays have ended; the journal keeps each decision with its reason.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Result;

use crate::cause::Cause;
use crate::fault;
use crate::host::clock;
use crate::idset::IdSet;
use crate::plan::Resources;
use crate::plan::Retry;
use crate::scheduler::Facts;
use crate::standing::State;
use crate::status::Status;
use crate::status::progress::{self, Progress};
use crate::submit::again::{self, Again};
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::{self, Diff};
use crate::tree::Tree;
use crate::tree::journal::{Decision, Entry, Journal};
use crate::tree::records::{self, Attempt, Outcome};
use crate::tree::table::{self, Row};
use crate::units;

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

/// How the reason begins that the budget gives.
const BUDGET: &str = "the budget of ";

/// Why trials do not run again that are not done, if that is the budget.
///
/// # Errors
/// When the journal or a record cannot be read.
pub(crate) fn spent(tree: &Tree) -> Result<Option<String>> {
    for (trial, why) in Journal::read(tree)?.left {
        let is_done =
            || anyhow::Ok(records::of_trial(tree, trial)?.0.outcome() == Some(Outcome::Done));
        // A person may have repeated it since.
        if why.starts_with(BUDGET) && !is_done()? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// What is known of a trial that ended without success.
#[derive(Debug)]
struct Case<'a> {
    cause: Cause,
    exit_code: Option<i32>,
    /// Its request, the last time.
    asked: &'a Resources,
    /// Where it ran.
    host: &'a str,
    /// How often it has run again by itself, as far as that counts.
    repeats: u32,
    /// How far it came, and how far the attempt before that, in words.
    came_to: [Option<String>; 2],
    /// Whether the last attempt wrote metrics that advanced, or a checkpoint.
    has_advanced: bool,
}

/// What becomes of such a trial.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It runs again with this request; `counts`: towards the limit.
    Again { request: Resources, counts: bool, why: String },
    /// It does not.
    Left(String),
}

/// Decides about one trial.
fn decide(case: &Case<'_>, retry: &Retry, facts: &Facts) -> Verdict {
    use Cause::*;
    let mut request = case.asked.clone();
    let counts = !(matches!(case.cause, Preempted | Requeued) && retry.preempted.unlimited);
    let is_named = case.exit_code.is_some_and(|code| retry.exit_codes.contains(&code));
    let (what, how) = match case.cause {
        Preempted | Requeued => (case.cause.word().to_owned(), "again".to_owned()),
        NodeFailure | WorkerLost | RankLost | Rendezvous | TreeUnreachable => {
            let what = match case.host {
                "" => case.cause.word().to_owned(),
                host => format!("{} on {host}", case.cause.word()),
            };
            match facts.excludes.filter(|_| retry.node.exclude && !case.host.is_empty()) {
                None => (what, "again".to_owned()),
                Some(option) => {
                    exclude(&mut request.directives, option, case.host);
                    (what, format!("again, not on {}", case.host))
                }
            }
        }
        OutOfMemory => {
            let Some(growth) = retry.oom else {
                return Verdict::Left("out-of-memory: `[retry]` has no `oom`".to_owned());
            };
            let Some(asked) = case.asked.memory_mib else {
                let why = "out-of-memory: it requests no memory that could grow";
                return Verdict::Left(why.to_owned());
            };
            let had = units::memory_text(asked);
            let Some(now) = growth.of(asked) else {
                return Verdict::Left(format!("out-of-memory with {had}: that is all of `up_to`"));
            };
            request.memory_mib = Some(now);
            let how = format!("again with {}", units::memory_text(now));
            (format!("out-of-memory with {had}"), how)
        }
        Walltime => {
            let Some(growth) = retry.timeout else {
                return Verdict::Left("walltime: `[retry]` has no `timeout`".to_owned());
            };
            if !case.has_advanced {
                let why = "walltime: it wrote no checkpoint, and its metrics did not advance";
                return Verdict::Left(why.to_owned());
            }
            let Some(asked) = case.asked.walltime_s else {
                let why = "walltime: it requests none that could grow";
                return Verdict::Left(why.to_owned());
            };
            let had = units::walltime_text(asked);
            match growth.of(asked) {
                Some(now) => {
                    request.walltime_s = Some(now);
                    let how = format!("again with {}", units::walltime_text(now));
                    (format!("walltime of {had}"), how)
                }
                // It continues from its checkpoint.
                None => (format!("walltime of {had}"), "again".to_owned()),
            }
        }
        _ if is_named => {
            (format!("exit code {}", case.exit_code.unwrap_or_default()), "again".to_owned())
        }
        other => {
            return Verdict::Left(format!("{}: nothing in `[retry]` repeats it", other.word()));
        }
    };
    if !counts {
        return Verdict::Again { request, counts, why: format!("{what}: {how}") };
    }
    if case.repeats >= retry.max {
        return Verdict::Left(format!("{what}: it has run again {} times", case.repeats));
    }
    if let [Some(last), Some(before)] = &case.came_to
        && last == before
        && case.cause != OutOfMemory
    {
        return Verdict::Left(format!("{what}: two attempts in a row ended at {last}"));
    }
    let why = format!("{what}: {how} ({} of {})", case.repeats + 1, retry.max);
    Verdict::Again { request, counts, why }
}

/// Adds a node to those that a request stays away from.
fn exclude(directives: &mut Vec<String>, option: &str, host: &str) {
    match directives.iter_mut().find(|directive| directive.starts_with(option)) {
        Some(own) if own[option.len()..].split(',').any(|name| name == host) => {}
        Some(own) => own.push_str(&format!(",{host}")),
        None => directives.push(format!("{option}{host}")),
    }
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
    let used = core_hours(status, &asked);
    let is_spent = retry.budget.is_some_and(|budget| used >= budget);
    let mut requests: HashMap<u64, Resources> = HashMap::new();
    let mut judged: BTreeMap<(bool, bool, String), Vec<u64>> = BTreeMap::new();
    let mut answers: HashMap<Resources, Option<String>> = HashMap::new();
    let bad = status.trials().filter(|(row, standing)| {
        // Of a trial behind one that failed nothing is to be decided.
        standing.state.is_bad()
            && !matches!(standing.state, State::Skipped | State::Cancelled)
            && diff.has(row.id)
            && !pending.has(row.id)
            && asked.contains_key(&row.id)
    });
    for (row, standing) in bad.filter(|_| retry.auto) {
        let Some((_, asked)) = asked.get(&row.id) else { continue };
        let repeats = journal.repeats.get(&row.id).copied().unwrap_or(0);
        let case = case(status, row, standing.cause, asked, repeats)?;
        let mut verdict = match is_spent {
            true if case.cause != Cause::Cancelled => {
                let budget = retry.budget.unwrap_or_default();
                Verdict::Left(format!("{BUDGET}{budget} core-hours is used up"))
            }
            _ => decide(&case, retry, facts),
        };
        if let Verdict::Again { request, .. } = &verdict
            && *request != *asked
        {
            let answer = answers
                .entry(request.clone())
                .or_insert_with(|| refused(request).map(|error| fault::sentence(&error)));
            if let Some(sentence) = answer {
                verdict = Verdict::Left(sentence.clone());
            }
        }
        let key = match verdict {
            Verdict::Again { request, counts, why } => {
                requests.insert(row.id, request);
                (true, counts, why)
            }
            Verdict::Left(_) if case.cause == Cause::Cancelled => continue,
            Verdict::Left(why) if journal.left.get(&row.id) == Some(&why) => continue,
            Verdict::Left(why) => (false, false, why),
        };
        judged.entry(key).or_default().push(row.id);
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
    let wanted: BTreeSet<u64> = requests.keys().copied().collect();
    let on_failure = grow::on_failure(&table::heads(&status.tree)?);
    let mut trials = again::with_chains(status, &wanted, on_failure);
    trials.retain(|trial| diff.has(*trial));
    requests.retain(|trial, request| diff.request(*trial).is_some_and(|own| **own != *request));
    let entry = (!decisions.is_empty()).then(|| Entry::Decided { time: clock::now(), decisions });
    Ok(Decided { again: Again::with_requests(trials, requests), entry, open_trials, open })
}

/// The core-hours of all attempts of a sweep.
fn core_hours(status: &Status, asked: &HashMap<u64, (u32, Resources)>) -> f64 {
    let of = |(trial, record): (&u64, &crate::tree::records::Record)| {
        let cores = asked.get(trial).map_or(1, |(_, asked)| asked.cores());
        let seconds: f64 = record.attempts.iter().filter_map(Attempt::duration_s).sum();
        seconds / 3600.0 * cores as f64
    };
    status.records.iter().map(of).sum()
}

fn case<'a>(
    status: &'a Status,
    row: &Row,
    cause: Option<Cause>,
    asked: &'a Resources,
    repeats: u32,
) -> Result<Case<'a>> {
    let attempts = status.records.get(&row.id).map_or(&[][..], |record| &record.attempts);
    let tree = &status.tree;
    let progress = |attempt: Option<&Attempt>| match attempt {
        Some(attempt) => Progress::of(tree, attempt, &row.params),
        None => Ok(None),
    };
    let last = attempts.last();
    let now = progress(last)?;
    let before = progress(attempts.iter().rev().nth(1))?;
    let came_further = match (&now, &before) {
        (Some(now), Some(before)) => now.last > before.last,
        (Some(_), None) => true,
        (None, _) => last.is_some_and(|attempt| !attempt.metrics.is_empty()),
    };
    let words = |progress: Option<Progress>| progress.map(|progress| progress.words());
    Ok(Case {
        cause: cause.unwrap_or(Cause::Unknown),
        exit_code: last.and_then(|attempt| attempt.end.as_ref()).and_then(|end| end.exit_code),
        asked,
        host: last.map_or("", |attempt| &attempt.start.host),
        repeats,
        came_to: [words(now), words(before)],
        has_advanced: came_further
            || last.is_some_and(|attempt| progress::has_checkpoint(tree, attempt)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::testing::plan;
    use crate::scheduler;
    use crate::site::SchedulerKind;

    const ALL: &str = "[retry]\nauto = true\noom = { memory = \"x2\", up_to = \"6G\" }\n\
        timeout = { walltime = \"x1.5\", up_to = \"2h\" }\nnode = { exclude = true }\n\
        preempted = { unlimited = true }\nexit_codes = { 75 = \"again\" }\n";

    fn asked() -> Resources {
        Resources { memory_mib: Some(2048), walltime_s: Some(3600), ..Resources::default() }
    }

    fn case(cause: Cause, asked: &Resources) -> Case<'_> {
        let came_to = [None, None];
        Case { cause, exit_code: None, asked, host: "n2", repeats: 0, came_to, has_advanced: true }
    }

    /// The verdict about a case in words, and the request where it changes.
    fn said(case: &Case<'_>, text: &str) -> String {
        let facts = scheduler::of(SchedulerKind::Slurm);
        match decide(case, &plan(text).retry, facts.facts()) {
            Verdict::Left(why) => format!("left: {why}"),
            Verdict::Again { request, counts, why } => {
                let mut words = format!("again: {why}");
                if !counts {
                    words.push_str(" [free]");
                }
                if request != *case.asked {
                    let (memory, time) = (request.memory_mib, request.walltime_s);
                    words.push_str(&format!(" {memory:?} {time:?} {:?}", request.directives));
                }
                words
            }
        }
    }

    #[test]
    fn without_keys_only_what_was_not_the_programs_fault_runs_again() {
        let auto = "[retry]\nauto = true\n";
        let asked = asked();
        let of = |cause| said(&case(cause, &asked), auto);
        assert_eq!(of(Cause::Preempted), "again: preempted: again (1 of 3)");
        assert_eq!(of(Cause::NodeFailure), "again: node-failure on n2: again (1 of 3)");
        assert_eq!(of(Cause::WorkerLost), "again: worker-lost on n2: again (1 of 3)");
        assert_eq!(of(Cause::OutOfMemory), "left: out-of-memory: `[retry]` has no `oom`");
        assert_eq!(of(Cause::Walltime), "left: walltime: `[retry]` has no `timeout`");
        for cause in [Cause::ExitCode, Cause::Signal, Cause::Exception, Cause::Stopped] {
            let left = format!("left: {}: nothing in `[retry]` repeats it", cause.word());
            assert_eq!(of(cause), left);
        }
    }

    #[test]
    fn requests_grow_until_their_limit() {
        let asked = asked();
        let grown = Resources { memory_mib: Some(6144), walltime_s: Some(7200), ..asked.clone() };
        assert_eq!(
            said(&case(Cause::OutOfMemory, &asked), ALL),
            "again: out-of-memory with 2G: again with 4G (1 of 3) Some(4096) Some(3600) []"
        );
        assert_eq!(
            said(&case(Cause::OutOfMemory, &grown), ALL),
            "left: out-of-memory with 6G: that is all of `up_to`"
        );
        assert_eq!(
            said(&case(Cause::Walltime, &asked), ALL),
            "again: walltime of 01:00:00: again with 01:30:00 (1 of 3) Some(2048) Some(5400) []"
        );
        // It continues with the longest walltime.
        assert_eq!(
            said(&case(Cause::Walltime, &grown), ALL),
            "again: walltime of 02:00:00: again (1 of 3)"
        );
        let without = Resources::default();
        assert_eq!(
            said(&case(Cause::OutOfMemory, &without), ALL),
            "left: out-of-memory: it requests no memory that could grow"
        );
    }

    #[test]
    fn what_makes_no_progress_stops() {
        let asked = asked();
        let still = Case { has_advanced: false, ..case(Cause::Walltime, &asked) };
        assert_eq!(
            said(&still, ALL),
            "left: walltime: it wrote no checkpoint, and its metrics did not advance"
        );
        let came_to = || [Some("epoch 7".to_owned()), Some("epoch 7".to_owned())];
        let same = |cause| Case { came_to: came_to(), ..case(cause, &asked) };
        assert_eq!(
            said(&same(Cause::NodeFailure), ALL),
            "left: node-failure on n2: two attempts in a row ended at epoch 7"
        );
        // With more memory it may come further, and what is preempted is not at fault.
        assert!(said(&same(Cause::OutOfMemory), ALL).starts_with("again"));
        assert!(said(&same(Cause::Preempted), ALL).starts_with("again"));
        let often = |cause| Case { repeats: 3, ..case(cause, &asked) };
        assert_eq!(
            said(&often(Cause::OutOfMemory), ALL),
            "left: out-of-memory with 2G: it has run again 3 times"
        );
        assert_eq!(said(&often(Cause::Preempted), ALL), "again: preempted: again [free]");
    }

    #[test]
    fn exit_codes_are_repeated_by_name() {
        let asked = asked();
        let code = |code| Case { exit_code: Some(code), ..case(Cause::ExitCode, &asked) };
        assert_eq!(said(&code(75), ALL), "again: exit code 75: again (1 of 3)");
        assert_eq!(said(&code(1), ALL), "left: exit-code: nothing in `[retry]` repeats it");
        let raised = Case { exit_code: Some(75), ..case(Cause::Exception, &asked) };
        assert_eq!(said(&raised, ALL), "again: exit code 75: again (1 of 3)");
    }

    #[test]
    fn nodes_that_failed_are_excluded_one_after_the_other() {
        let first = asked();
        let words = "again: node-failure on n2: again, not on n2 (1 of 3) Some(2048) Some(3600) ";
        assert_eq!(
            said(&case(Cause::NodeFailure, &first), ALL),
            format!("{words}[\"--exclude=n2\"]")
        );
        let second = Resources { directives: vec!["--exclude=n1".to_owned()], ..asked() };
        assert_eq!(
            said(&case(Cause::NodeFailure, &second), ALL),
            format!("{words}[\"--exclude=n1,n2\"]")
        );
        let mut own = vec!["--exclude=n12,n2".to_owned()];
        exclude(&mut own, "--exclude=", "n2");
        exclude(&mut own, "--exclude=", "n1");
        assert_eq!(own, ["--exclude=n12,n2,n1"]);
    }
}
