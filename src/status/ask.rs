//! The one question that a scheduler is asked about a sweep.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;

use super::pilots::Given;
use super::places::Places;
use super::stalled::Suspect;
use crate::fault;
use crate::host::Vars;
use crate::scheduler::calls::Calls;
use crate::scheduler::{self, Elements, pbs, slurm};
use crate::site::Site;
use crate::tree::journal::Journal;

/// What a scheduler has answered.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Its words, by job.
    pub(super) elements: HashMap<String, Elements>,
    /// Whether its silence means something: it answered, or was never given anything.
    pub(super) is_sure: bool,
    /// Who was asked besides the tree, in words.
    pub(super) witness: String,
    /// Calls made.
    pub(super) calls: u32,
}

/// What is asked about besides trials.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    /// Pilots.
    pub(super) given: &'a [Given],
    /// Jobs that may wait for ever.
    pub(super) suspects: &'a [Suspect],
}

/// Asks about the trials that are `open`, if there is anything to ask and somebody may be asked.
pub(super) fn ask(
    whom: Option<(&Site, &Vars)>,
    journal: &Journal,
    places: &Places,
    open: &[u64],
    others: Others<'_>,
) -> Heard {
    let jobs = jobs(journal);
    let silent =
        |is_sure, witness: &str| Heard { is_sure, witness: witness.to_owned(), ..Heard::default() };
    if jobs.is_empty() {
        return silent(true, "the results tree alone: no job was submitted");
    }
    let Some((site, environment)) = whom else { return silent(false, "the results tree alone") };
    let accounting = journal.site.as_ref().is_some_and(|(_, accounting)| *accounting);
    let is_pbs = is_pbs(journal);
    if (is_pbs || !accounting) && open.is_empty() {
        return silent(true, "the results tree alone: every trial has ended");
    }
    let element = |trial: &u64| {
        let (array, index) = places.of(*trial)?;
        Some((journal.job(array)?.to_owned(), index))
    };
    let mut elements: Vec<(String, u64)> = open.iter().filter_map(element).collect();
    if !open.is_empty() {
        elements.extend(others.given.iter().flat_map(Given::elements));
    }
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let (elements, is_sure, witness) = if is_pbs {
        ask_pbs(&mut calls, &elements, others.suspects, accounting)
    } else {
        ask_scheduler(&mut calls, &jobs, journal, &elements, accounting)
    };
    Heard { elements, is_sure, witness, calls: calls.made }
}

/// Whether the scheduler of a sweep is PBS.
pub(super) fn is_pbs(journal: &Journal) -> bool {
    journal.site.as_ref().is_some_and(|(scheduler, _)| scheduler == "pbs")
}

/// Job ids of all arrays.
pub(super) fn jobs(journal: &Journal) -> Vec<String> {
    journal.arrays.keys().filter_map(|&a| journal.job(a).map(str::to_owned)).collect()
}

/// PBS is asked once for the jobs of the trials that are open: with its history, where it keeps one.
pub(super) fn ask_pbs(
    calls: &mut Calls,
    open: &[(String, u64)],
    suspects: &[Suspect],
    history: bool,
) -> (HashMap<String, Elements>, bool, String) {
    let mut ids: Vec<String> = open.iter().map(|(job, _)| job.clone()).collect();
    ids.extend(suspects.iter().flat_map(|suspect| suspect.waits_for.iter().cloned()));
    pbs::sort(&mut ids);
    if ids.is_empty() {
        return (HashMap::new(), true, "the results tree alone".to_owned());
    }
    match pbs::ask_of(calls, &ids, history) {
        Ok(jobs) => (pbs::jobs::elements(&ids, &jobs), true, "qstat".to_owned()),
        Err(error) => {
            let why = fault::sentence(&error);
            (HashMap::new(), false, format!("the results tree alone ({why})"))
        }
    }
}

/// The queue knows what waits, runs, or has just ended; the accounts know the rest, but hear of it late:
/// their silence alone means nothing. So the queue is asked while a trial is open (its element is in
/// `open`); the accounts, where they are kept, when none is, or when the queue has forgotten one.
pub(super) fn ask_scheduler(
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
        let answers: Result<Vec<String>> =
            scheduler::pieces(jobs).map(|some| calls.ask(&slurm::accounts(some))).collect();
        match answers {
            Ok(texts) => {
                // Later lines win: the queue is never behind.
                lines.splice(0..0, texts.iter().flat_map(|text| slurm::lines(text)));
                asked.push("sacct");
            }
            Err(error) => silent = Some(error),
        }
    }
    match silent {
        Some(error) if asked.is_empty() => {
            let why = fault::sentence(&error);
            (HashMap::new(), false, format!("the results tree alone ({why})"))
        }
        // Half an answer: what it does not hold may still be there.
        Some(_) => (slurm::elements(&lines), false, asked.join(" and ")),
        None => (slurm::elements(&lines), true, asked.join(" and ")),
    }
}
