//! The one question that a scheduler is asked about a sweep.

use std::collections::HashMap;

use super::pilots::Given;
use super::places::Places;
use crate::base::host::Vars;
use crate::cluster::scheduler::{Answer, Elements, Question, Scheduler, Suspect};
use crate::plan::site::Site;
use crate::sweep::tree::journal::Journal;

/// The answer of a scheduler.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Its words, by job.
    pub(super) elements: HashMap<String, Elements>,
    /// Whether its silence means something: it answered, or was never given anything.
    pub(super) is_sure: bool,
    /// Who was asked besides the tree, in words.
    pub(super) witness: String,
    /// Calls of the scheduler's commands that were made.
    pub(super) calls: u32,
}

/// Questions besides those about trials.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    /// Arrays of pilots, of which all elements are asked about.
    pub(super) given: &'a [Given],
    /// Feeders, by array and job, and whether one may have something to do when every trial has ended.
    pub(super) feeders: (&'a [(u32, String)], bool),
    /// Jobs that may wait for ever.
    pub(super) suspects: &'a [Suspect],
}

/// Asks about the trials that are `open` and about feeders, if there are any and a scheduler may be asked.
pub(super) fn ask(
    whom: Option<(&Site, &Vars)>,
    scheduler: &dyn Scheduler,
    journal: &Journal,
    places: &Places,
    open: &[u64],
    others: Others<'_>,
) -> Heard {
    let jobs: Vec<String> = journal.jobs().map(str::to_owned).collect();
    let silent =
        |is_sure, witness: &str| Heard { is_sure, witness: witness.to_owned(), ..Heard::default() };
    if jobs.is_empty() {
        return silent(true, "the results tree alone: no job was submitted");
    }
    let Some((site, environment)) = whom else { return silent(false, "the results tree alone") };
    let (feeders, are_needed) = others.feeders;
    let has_open = !open.is_empty() || (are_needed && !feeders.is_empty());
    let knows_more = scheduler.remembers() && scheduler.facts().believes_ends;
    if !(has_open || knows_more) {
        return silent(true, "the results tree alone: every trial has ended");
    }
    let element = |trial: &u64| {
        let (array, index) = places.of(*trial)?;
        Some((journal.job(array)?.to_owned(), index))
    };
    let mut elements: Vec<(String, u64)> = open.iter().filter_map(element).collect();
    if has_open {
        elements.extend(others.given.iter().flat_map(Given::elements));
        elements.extend(feeders.iter().map(|(_, job)| (job.clone(), 0)));
    }
    let mut calls = journal.calls(environment, site);
    let question =
        Question { jobs: &jobs, open: &elements, users: &journal.users, suspects: others.suspects };
    let Answer { elements, is_sure, witness } = scheduler.ask(&mut calls, &question);
    Heard { elements, is_sure, witness, calls: calls.made }
}
