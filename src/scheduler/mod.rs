//! Schedulers as text: how a question is asked and what an answer means.
//!
//! Pure: argument vectors out, text in. Who runs the commands is not known here. A word that is not
//! in a table is kept as it is ([`State::Other`]), never turned into a failure.

pub mod calls;
pub mod launch;
pub mod pbs;
pub mod slurm;

use std::collections::HashMap;

use crate::idset::IdSet;

/// A scheduler's state of one array element, as far as we need to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waiting, held, configuring.
    Queued(String),
    /// Running or ending.
    Running(String),
    /// Ended with exit code 0, says the scheduler.
    Completed,
    /// Ended otherwise, with the scheduler's word: `FAILED`, `TIMEOUT`, `exit status 271` ...
    Ended(End, String),
    /// A word not in our table.
    Other(String),
}

impl State {
    /// What is said of a job that runs still and was deleted: it ends, and nothing more begins in it.
    pub const STOPPING: &str = "stopping";

    /// Whether its job was deleted and has not ended yet.
    pub fn is_stopping(&self) -> bool {
        matches!(self, Self::Running(word) if word == Self::STOPPING)
    }

    /// Whether its job is about to end, or to go back into the queue.
    pub fn is_ending(&self) -> bool {
        let ending = |word: &str| ["COMPLETING", "exiting"].contains(&word);
        self.is_stopping() || matches!(self, Self::Running(word) if ending(word))
    }
}

/// What kind of an end a scheduler speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The job's own, or that of its node.
    Failed,
    /// Its time was over.
    Timeout,
    /// Somebody did not want it any more, or wanted its place.
    Cancelled,
    /// It is over, and the scheduler does not say that it ever ran.
    Unrun,
}

/// What the scheduler says of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its state.
    pub state: State,
    /// Why it waits or ended, in the scheduler's words; empty without one.
    pub reason: String,
}

impl Element {
    /// Whether somebody holds it: its user, an administrator, or Slurm after too many requeues. What waits for another
    /// job, or for room, is not held.
    pub fn is_held(&self) -> bool {
        let State::Queued(word) = &self.state else { return false };
        self.reason == "held"
            || ["JobHeld", "JobHoldMaxRequeue"].iter().any(|held| self.reason.starts_with(held))
            || ["REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"].contains(&word.as_str())
    }
}

/// What is known of the elements of one array, or of one plain job.
#[derive(Debug, Clone, Default)]
pub struct Elements {
    single: HashMap<u64, Element>,
    sets: Vec<(IdSet, Element)>,
    whole: Option<Element>,
}

impl Elements {
    /// Learns of one element; later words win.
    pub fn say_of(&mut self, index: u64, element: Element) {
        self.single.insert(index, element);
    }

    /// Learns of a set of elements that nothing singles out.
    pub fn say_of_all(&mut self, ids: IdSet, element: Element) {
        self.sets.push((ids, element));
    }

    /// Learns what holds for every element of which nothing else is known.
    pub fn say_of_the_rest(&mut self, element: Element) {
        self.whole = Some(element);
    }

    /// Says of every element that waits why it does.
    pub fn hold(&mut self, element: &Element) {
        for known in self.single.values_mut().filter(|e| matches!(e.state, State::Queued(_))) {
            known.clone_from(element);
        }
    }

    /// The element of an index.
    pub fn get(&self, index: u64) -> Option<&Element> {
        self.single.get(&index).or_else(|| {
            let index = u32::try_from(index).ok()?;
            let waiting = self.sets.iter().rfind(|(ids, _)| ids.contains(index));
            waiting.map(|(_, element)| element).or(self.whole.as_ref())
        })
    }
}

/// Bytes of ids that one call names at most. Linux starts no program with a word of more than 128 KiB, and some clients
/// take all ids as one word.
const MOST_IDS: usize = 64 << 10;

/// Ids in as many pieces as it takes to name all of them in calls.
pub fn pieces(ids: &[String]) -> impl Iterator<Item = &[String]> {
    let mut rest = ids;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |id: &&String| {
            bytes += id.len() + 1;
            bytes <= MOST_IDS
        };
        let many = rest.iter().take_while(fits).count().max(1);
        let (piece, others) = rest.split_at_checked(many)?;
        rest = others;
        Some(piece)
    })
}

/// What a site told of itself, as far as it matters for planning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most elements of an array: Slurm's MaxArraySize (one more than the largest index), PBS's
    /// max_array_size.
    pub max_array_size: Option<u64>,
    /// max_array_tasks of SchedulerParameters.
    pub max_array_tasks: Option<u64>,
    /// MaxJobCount.
    pub max_job_count: Option<u64>,
    /// The least of the MaxSubmitJobs, or max_queued, that bind this user.
    pub max_submit_jobs: Option<u64>,
    /// Whether finished jobs can be asked for.
    pub accounting: bool,
    /// Version text.
    pub version: Option<String>,
    /// MPI plugin used when none is named.
    pub mpi_default: Option<String>,
    /// How Slurm's PMIx passes fences on (`PMIxCollFence`): `ring`, `tree`, `mixed`, `(null)` for its default; `None`
    /// where the configuration has no PMIx.
    pub pmix_fence: Option<String>,
    /// Whether the server cannot throttle an array (`%N`).
    pub cannot_throttle: bool,
    /// The longest walltime of the queue that the trials go to.
    pub max_walltime_s: Option<u64>,
}

impl Limits {
    /// The most elements of one array under these limits; without any, the scheduler's own default.
    pub fn elements(&self) -> u64 {
        let size = self.max_array_size.unwrap_or(1001);
        self.max_array_tasks.map_or(size, |tasks| size.min(tasks)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_one_piece_and_no_piece_is_too_long_for_a_word() {
        assert_eq!(pieces(&[]).count(), 0);
        for length in [1, 9, 100, MOST_IDS - 2, MOST_IDS, 2 * MOST_IDS] {
            let id = |n: usize| format!("{}{n}", "x".repeat(length - 1));
            let ids: Vec<String> = (0..(3 * MOST_IDS / length).max(3)).map(id).collect();
            assert_eq!(pieces(&ids).collect::<Vec<_>>().concat(), ids);
            let is_short = |piece: &[String]| piece.len() == 1 || piece.join(",").len() < MOST_IDS;
            assert!(pieces(&ids).all(|piece| !piece.is_empty() && is_short(piece)), "{length}");
            // Two neighbours do not fit into one.
            let all: Vec<&[String]> = pieces(&ids).collect();
            let fits = |two: &[&[String]]| two.concat().join(",").len() < MOST_IDS;
            assert!(!all[..all.len() - 1].windows(2).any(fits), "{length}");
        }
    }
}
