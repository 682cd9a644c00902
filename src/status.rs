//! The state of a sweep: its tree, and one call of its scheduler.

mod agents;
pub mod pilots;
pub mod stalled;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;

use crate::host::Vars;
use crate::plan::OnFailure;
use crate::scheduler::calls::Calls;
use crate::scheduler::{Element, Elements, End, State as Word, pbs, slurm};
use crate::site::Site;
use crate::standing::{self, Standing, State, Witness};
use crate::tree::journal::Journal;
use crate::tree::ledger::Ledger;
use crate::tree::lock;
use crate::tree::records::{self, Outcome, Record};
use crate::tree::table::{self, Row};
use crate::tree::{Identity, Tree, terms, waves};
use pilots::{Given, Pilots};

/// All that is known of a sweep.
pub struct Status {
    /// The sweep.
    pub tree: Tree,
    /// What it says of itself.
    pub identity: Identity,
    /// Its trials.
    pub rows: Vec<Row>,
    /// How each stands, in the same order.
    pub standings: Vec<Standing>,
    /// Its records.
    pub records: HashMap<u64, Record>,
    /// Who was asked besides the tree: `sacct`, `squeue`, or why nobody.
    pub witness: String,
    /// Scheduler calls made.
    pub calls: u32,
    /// Job ids of its arrays.
    pub jobs: Vec<String>,
    /// Its pilot jobs that have not ended, while trials are open.
    pub pilots: Vec<Pilots>,
    /// Whether its trials are a function of a program, which alone can run them.
    pub calls_a_function: bool,
    asked: bool,
}

/// Reads a sweep and, where it was given to a scheduler, asks that once.
///
/// # Errors
/// When the tree cannot be read; a scheduler that does not answer is no error.
pub fn of(
    tree: Tree,
    identity: Identity,
    site: &Site,
    environment: &Vars,
    ask: bool,
) -> Result<Status> {
    read(tree, identity, site, environment, ask, false)
}

/// As [`of`], and the scheduler is asked about every trial that is not done, also where all have ended by their
/// records: somebody may have put a job of one back into the queue.
///
/// # Errors
/// As [`of`].
pub fn of_all_open_or_bad(
    tree: Tree,
    identity: Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Status> {
    read(tree, identity, site, environment, true, true)
}

fn read(
    tree: Tree,
    identity: Identity,
    site: &Site,
    environment: &Vars,
    ask: bool,
    asks_of_bad: bool,
) -> Result<Status> {
    let rows = table::rows(&tree)?;
    let heads = table::heads(&tree)?;
    // Before the records: what is in nobody's hands by now has its end there, or never will.
    let ledger = Ledger::read(&tree)?;
    let mut records = records::all(&tree)?;
    let journal = Journal::read(&tree)?;
    let mut places: HashMap<u64, (u32, u64)> = HashMap::new();
    // Trials that share an element with others, and the one that it runs before each of them.
    let mut fused: HashSet<u64> = HashSet::new();
    let mut ahead: HashMap<u64, u64> = HashMap::new();
    let waves = waves::read(&tree)?;
    let mut arrays: Vec<(waves::Array, Vec<u64>)> = Vec::new();
    for wave in &waves {
        let map = waves::map(&tree, wave.wave)?;
        for array in &wave.arrays {
            for (index, _, trial) in array.places(&map) {
                places.insert(trial, (array.array, index));
                if array.links > 1 {
                    fused.insert(trial);
                } else {
                    fused.remove(&trial);
                }
                ahead.remove(&trial);
            }
            let trials = array.trials(&map);
            arrays.push((array.clone(), trials.to_vec()));
            let later = trials.iter().skip(array.count as usize);
            ahead.extend(later.zip(trials).map(|(later, earlier)| (*later, *earlier)));
        }
    }
    let is_pbs = journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs");
    let jobs: Vec<String> =
        journal.arrays.keys().filter_map(|&a| journal.job(a).map(str::to_owned)).collect();
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let attempts = terms::attempts(&tree, heads.last().map_or(1, |h| h.run.attempts))?;
    // Submitted again after it had ended: the job that it has now is in none of its attempts.
    let is_due_again = |trial: u64, record: &Record| {
        let job = places.get(&trial).and_then(|(array, _)| journal.job(*array));
        let ran = |job: &str| record.attempts.iter().any(|attempt| attempt.is_of_job(job));
        record.outcome() != Some(Outcome::Done) && job.is_some_and(|job| !ran(job))
    };
    let is_open = |trial: u64| {
        records.get(&trial).is_none_or(|r| {
            // What was interrupted may have been given back to the queue.
            matches!(r.outcome(), None | Some(Outcome::Interrupted))
                || (asks_of_bad && r.outcome() != Some(Outcome::Done))
                || r.may_go_on(attempts)
                || is_due_again(trial, r)
        })
    };
    let open: Vec<u64> = rows.iter().map(|row| row.id).filter(|id| is_open(*id)).collect();
    let given = pilots::given(&waves, &journal);
    let (elements, asked, witness) = if jobs.is_empty() {
        (HashMap::new(), true, "the results tree alone: no job was submitted".to_owned())
    } else if !ask {
        (HashMap::new(), false, "the results tree alone".to_owned())
    } else {
        let accounting = journal.site.as_ref().is_some_and(|(_, accounting)| *accounting);
        if (is_pbs || !accounting) && open.is_empty() {
            (HashMap::new(), true, "the results tree alone: every trial has ended".to_owned())
        } else {
            let elements = open.iter().filter_map(|trial| {
                let (array, index) = places.get(trial)?;
                Some((journal.job(*array)?.to_owned(), *index))
            });
            let mut elements: Vec<(String, u64)> = elements.collect();
            if !open.is_empty() {
                elements.extend(given.iter().flat_map(Given::elements));
            }
            if is_pbs {
                let suspects =
                    stalled::suspects(arrays.iter().map(|(a, t)| (a, &t[..])), &journal, &records);
                ask_pbs(&mut calls, &elements, &suspects, accounting)
            } else {
                ask_scheduler(&mut calls, &jobs, &journal, &elements, accounting)
            }
        }
    };
    let executor = lock::is_held(&tree);
    let pilots = pilots::read(&given, &elements, &ledger);
    let agents = agents::Words::read(&tree, &ledger, &records, &pilots)?;
    let witness = match agents.seen.is_empty() {
        true => witness,
        false if jobs.is_empty() || witness.is_empty() => {
            format!("the results tree: {}", agents.seen)
        }
        false => format!("{witness}; {}", agents.seen),
    };
    // A trial may have ended between the reading of its record and the scheduler's answer: what looks
    // as if it had left no end is looked at again.
    for trial in open {
        let element = places
            .get(&trial)
            .and_then(|(array, index)| elements.get(journal.job(*array)?)?.get(*index));
        // Half an answer says of some that they have ended, and of the others nothing.
        let may_have_ended = element.map_or(asked && places.contains_key(&trial), |e| {
            !matches!(e.state, Word::Queued(_) | Word::Running(_))
        });
        if may_have_ended {
            let (record, _) = records::of_trial(&tree, trial)?;
            if !record.attempts.is_empty() {
                records.insert(trial, record);
            }
        }
    }
    let standings = {
        let of_place = |trial: u64| {
            let (array, index) = places.get(&trial)?;
            let known = elements.get(journal.job(*array)?).and_then(|e| e.get(*index));
            // What we have taken back ourselves a scheduler may forget at once, and its accounts may go on
            // calling it pending for a while.
            let waits = known.is_none_or(|e| matches!(e.state, Word::Queued(_)));
            if waits && journal.is_cancelled(*array, trial) {
                let state = Word::Ended(End::Cancelled, "CANCELLED".to_owned());
                return Some(Element { state, reason: String::new() });
            }
            known.cloned()
        };
        let before: HashMap<u64, Option<u64>> = rows.iter().map(|r| (r.id, r.after)).collect();
        // An element that runs a whole chain runs one trial of it at a time.
        let element = |trial: u64| {
            if let Some(word) = agents.of(trial) {
                return Some(word);
            }
            let element = of_place(trial)?;
            if !fused.contains(&trial) {
                return Some(element);
            }
            // What becomes of its other links says nothing of one that has ended.
            let record = records.get(&trial);
            let has_ended = record.is_some_and(|r| r.outcome().is_some() && !r.may_go_on(attempts));
            match element.state {
                Word::Queued(_) => return Some(element),
                _ if has_ended => return None,
                Word::Running(_) => {}
                _ => return Some(element),
            }
            let done = |id: u64| records.get(&id).and_then(Record::outcome) == Some(Outcome::Done);
            let first = before.get(&trial).copied().flatten();
            let is_over = |id: &u64| {
                records.get(id).is_some_and(|r| {
                    r.skipped.is_some() || (r.outcome().is_some() && !r.may_go_on(attempts))
                })
            };
            let behind = record.is_none()
                && (first.is_some_and(|id| fused.contains(&id) && !done(id))
                    || ahead.get(&trial).is_some_and(|id| !is_over(id)));
            let waits = Element {
                state: Word::Queued("behind the trial before it".to_owned()),
                reason: String::new(),
            };
            Some(if behind { waits } else { element })
        };
        let submitted =
            |trial: u64| places.get(&trial).is_some_and(|(array, _)| journal.job(*array).is_some());
        let witness = Witness {
            element: &element,
            submitted: &submitted,
            asked,
            believes_ends: !is_pbs,
            executor: executor || agents.alive,
            on_failure: heads.last().map_or(OnFailure::Stop, |h| h.run.on_failure),
        };
        standing::of(&rows, &records, &witness)
    };
    let calls = calls.made;
    let calls_a_function = heads.last().is_some_and(|head| head.run.function.is_some());
    Ok(Status {
        tree,
        identity,
        rows,
        standings,
        records,
        witness,
        calls,
        jobs,
        pilots,
        calls_a_function,
        asked,
    })
}

/// PBS is asked once for the jobs of the trials that are open: with its history, where it keeps one.
fn ask_pbs(
    calls: &mut Calls,
    open: &[(String, u64)],
    suspects: &[stalled::Suspect],
    history: bool,
) -> (HashMap<String, Elements>, bool, String) {
    let mut ids: Vec<String> = open.iter().map(|(job, _)| job.clone()).collect();
    ids.extend(suspects.iter().flat_map(|suspect| suspect.waits_for.iter().cloned()));
    pbs::sort(&mut ids);
    if ids.is_empty() {
        return (HashMap::new(), true, "the results tree alone".to_owned());
    }
    match pbs::ask(calls, &pbs::status(&ids, history)) {
        Ok(jobs) => (pbs::jobs::elements(&ids, &jobs), true, "qstat".to_owned()),
        Err(error) => {
            let why = error.to_string();
            let first = why.lines().next().unwrap_or_default().to_owned();
            (HashMap::new(), false, format!("the results tree alone ({first})"))
        }
    }
}

/// The queue knows what waits, runs, or has just ended; the accounts know the rest, but hear of it late:
/// their silence alone means nothing. So the queue is asked while a trial is open (its element is in
/// `open`); the accounts, where they are kept, when none is, or when the queue has forgotten one.
fn ask_scheduler(
    calls: &mut Calls,
    jobs: &[String],
    journal: &Journal,
    open: &[(String, u64)],
    accounting: bool,
) -> (HashMap<String, Elements>, bool, String) {
    let users = journal.users.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let mut lines = Vec::new();
    let mut asked = Vec::new();
    let mut silent = None;
    if !open.is_empty() {
        match calls.ask(&slurm::queue(&users)) {
            Ok(text) => {
                lines = slurm::lines(&text);
                asked.push("squeue");
            }
            Err(error) => silent = Some(error),
        }
    }
    let elements = slurm::elements(&lines);
    let known = |(job, index): &(String, u64)| {
        elements.get(job).is_some_and(|elements| elements.get(*index).is_some())
    };
    if accounting && (open.is_empty() || !open.iter().all(known)) {
        match calls.ask(&slurm::accounts(jobs)) {
            Ok(text) => {
                // Later lines win: the queue is never behind.
                lines.splice(0..0, slurm::lines(&text));
                asked.push("sacct");
            }
            Err(error) => silent = Some(error),
        }
    }
    match silent {
        Some(error) if asked.is_empty() => {
            let why = error.to_string();
            let first = why.lines().next().unwrap_or_default().to_owned();
            (HashMap::new(), false, format!("the results tree alone ({first})"))
        }
        // Half an answer: what it does not hold may still be there.
        Some(_) => (slurm::elements(&lines), false, asked.join(" and ")),
        None => (slurm::elements(&lines), true, asked.join(" and ")),
    }
}

impl Status {
    /// Whether the scheduler's silence means something: it answered, or was never given anything.
    pub fn is_sure(&self) -> bool {
        self.asked
    }

    /// Counts by state; they add up to the number of trials.
    pub fn counts(&self) -> BTreeMap<State, u64> {
        standing::counts(&self.standings)
    }

    /// Trials with their standings.
    pub fn trials(&self) -> impl Iterator<Item = (&Row, &Standing)> {
        self.rows.iter().zip(&self.standings)
    }
}
