//! Pilot jobs: agents that are queued or running as jobs.

use std::collections::HashMap;

use anyhow::Result;

use super::originals::of_originals;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::{Elements, Question, Scheduler, State as Word};
use crate::sweep::tree::Tree;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::ledger::{Gone, Ledger};
use crate::sweep::tree::waves::{self, Wave};

/// The pilots of one array that have not ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Pilots {
    /// Number of the array in the sweep.
    pub(crate) array: u32,
    /// The scheduler's id of it.
    pub(crate) job: String,
    /// Agents that wait, held ones among them.
    pub(crate) queued: u64,
    /// Those of them that are held.
    pub(crate) held: u64,
    /// Agents that run, or have a state of the scheduler that is not known here.
    pub(crate) running: u64,
    /// Agents that have left, in jobs that the scheduler has not seen end: PBS reports a deleted job as running
    /// until its grace is over.
    pub(crate) leaving: u64,
}

impl Pilots {
    /// Whether any of them will take trials.
    pub(crate) fn will_work(&self) -> bool {
        self.queued + self.running > 0
    }

    pub(crate) fn words(&self) -> String {
        let parts =
            [(self.running, "running"), (self.queued, "queued"), (self.leaving, "about to end")];
        let said = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}"));
        format!("pilot job {}: {}", self.job, said.collect::<Vec<_>>().join(", "))
    }
}

/// An array of pilots that a scheduler was given and that was not cancelled.
pub(super) struct Given {
    array: u32,
    job: String,
    count: u64,
}

impl Given {
    /// Its elements, for a question.
    pub(super) fn elements(&self) -> impl Iterator<Item = (String, u64)> + use<'_> {
        (0..self.count).map(|index| (self.job.clone(), index))
    }
}

/// The arrays of pilots that have a job and were not cancelled.
pub(super) fn given<'a>(waves: impl Iterator<Item = &'a Wave>, journal: &Journal) -> Vec<Given> {
    let arrays = waves.flat_map(|wave| &wave.arrays).filter(|array| array.pilot.is_some());
    arrays
        .filter(|array| !journal.is_taken_back(array.array))
        .filter_map(|array| {
            let job = journal.job(array.array)?.to_owned();
            Some(Given { array: array.array, job, count: array.count })
        })
        .collect()
}

/// The scheduler's answer about them, combined with their own records that they have left.
pub(super) fn read(
    given: &[Given],
    scheduler: &dyn Scheduler,
    elements: &HashMap<String, Elements>,
    ledger: &Ledger,
) -> Vec<Pilots> {
    let one = |given: &Given| {
        let (array, job) = (given.array, given.job.clone());
        let mut pilots = Pilots { array, job, queued: 0, held: 0, running: 0, leaving: 0 };
        let known = elements.get(&given.job)?;
        for (index, element) in
            (0..given.count).filter_map(|index| Some((index, known.get(index)?)))
        {
            match element.state {
                Word::Queued(_) => pilots.queued += 1,
                Word::Held(_) => {
                    pilots.queued += 1;
                    pilots.held += 1;
                }
                Word::Running(_) if has_left(ledger, &scheduler.element(&given.job, index)) => {
                    pilots.leaving += 1
                }
                Word::Running(_) | Word::Other(_) => pilots.running += 1,
                Word::Completed | Word::Ended(..) => {}
            }
        }
        (pilots.queued + pilots.running + pilots.leaving > 0).then_some(pilots)
    };
    given.iter().filter_map(one).collect()
}

/// Whether the agent of a pilot has left by itself, or is about to. An agent whose lease has expired may wake and
/// continue.
fn has_left(ledger: &Ledger, element: &str) -> bool {
    let of_it = || ledger.agents.values().filter(|agent| agent.job.as_deref() == Some(element));
    of_it().all(|agent| agent.leaving || agent.gone.is_some())
        && of_it().any(|agent| agent.leaving || matches!(agent.gone, Some(Gone::Left(_))))
}

/// Asks the scheduler for the pilots of a sweep, without those of the original of which it is a copy; `None` if it does not
/// answer. Without pilots it is not asked.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn ask(
    tree: &Tree,
    journal: &Journal,
    ledger: &Ledger,
    calls: &mut Calls,
) -> Result<Option<Vec<Pilots>>> {
    let mut given = given(waves::read(tree)?.iter(), journal);
    let originals = of_originals(tree, journal)?;
    given.retain(|given| !originals.contains_key(&given.array));
    if given.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let scheduler = journal.scheduler();
    let open: Vec<(String, u64)> = given.iter().flat_map(Given::elements).collect();
    let jobs: Vec<String> = given.iter().map(|given| given.job.clone()).collect();
    let question = Question { jobs: &jobs, open: &open, users: &journal.users, suspects: &[] };
    let answer = scheduler.ask(calls, &question);
    Ok(answer.is_sure.then(|| read(&given, &*scheduler, &answer.elements, ledger)))
}
