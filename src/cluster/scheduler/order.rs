//! Orders about jobs that a scheduler has, in as many calls as it takes to name all of them.

use std::collections::HashSet;

use anyhow::Result;

use super::Scheduler;
use super::calls::{Calls, refusal};
use crate::base::fault::Fault;

/// An order about jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Taken out of the queue, or stopped.
    Cancel,
    /// Kept from starting until they are released.
    Hold,
    /// Free to begin again after a hold.
    Release,
}

impl Order {
    /// The verb of the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Release => "release",
        }
    }
}

/// The effect of an order on the scheduler's jobs.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The jobs for which it did it, those included that had ended.
    pub(crate) ids: HashSet<String>,
    /// Its refusal, if it has refused any of them.
    pub(crate) whole: Result<(), Fault>,
}

/// Gives an order about all of these jobs.
///
/// # Errors
/// When the scheduler cannot be called.
pub(crate) fn give(
    scheduler: &dyn Scheduler,
    calls: &mut Calls,
    order: Order,
    ids: &[String],
) -> Result<Accepted> {
    let argv = |some: &[String]| scheduler.order(order, some);
    make(calls, ids, argv, |line| scheduler.is_no_complaint(line))
}

/// Makes calls that name jobs. A call of which the scheduler accepts nothing is the last: it may be down.
///
/// # Errors
/// As [`give`].
pub(super) fn make(
    calls: &mut Calls,
    ids: &[String],
    argv: impl Fn(&[String]) -> Vec<String>,
    is_no_complaint: impl Fn(&str) -> bool,
) -> Result<Accepted> {
    let mut all = Accepted { ids: HashSet::new(), whole: Ok(()) };
    for some in pieces(ids) {
        let argv = argv(some);
        let output = calls.make(&argv)?;
        let refused = match output.code {
            Some(0) => Some(HashSet::new()),
            _ => refused(some, &output.stderr, &is_no_complaint),
        };
        if refused.as_ref().is_none_or(|refused| !refused.is_empty()) {
            all.whole = all.whole.and(Err(refusal(&argv, &output)));
        }
        let Some(refused) = refused.filter(|refused| refused.len() < some.len()) else { break };
        all.ids.extend(some.iter().filter(|id| !refused.contains(id.as_str())).cloned());
    }
    Ok(all)
}

/// The jobs that a failed call refused, by its output: the call continues with the others and names those that it
/// refuses. `None` if it names none: then it did nothing.
fn refused<'a>(
    ids: &'a [String],
    said: &str,
    is_no_complaint: impl Fn(&str) -> bool,
) -> Option<HashSet<&'a str>> {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let complaints = lines().filter(|line| !is_no_complaint(line));
    let words = complaints.clone().flat_map(str::split_whitespace);
    let named: HashSet<&str> = words.map(|word| word.trim_end_matches([':', ',', '.'])).collect();
    let refused = ids.iter().map(String::as_str).filter(|id| named.contains(id));
    let refused: HashSet<&str> = refused.collect();
    let is_told = !refused.is_empty() || (complaints.count() == 0 && lines().count() > 0);
    is_told.then_some(refused)
}

/// Bytes of ids that one call names at most. Linux starts no program with a word of more than 128 KiB, and some clients
/// take all ids as one word.
const MOST_IDS: usize = 64 << 10;

/// Ids in as many pieces as it takes to name all of them in calls.
pub(super) fn pieces(ids: &[String]) -> impl Iterator<Item = &[String]> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scheduler;
    use crate::plan::site::SchedulerKind;

    #[test]
    fn only_what_a_scheduler_says_has_ended_is_done_beside_a_refusal() {
        let check = |kind, ids: &[&str], said: &str, expected: Option<&[&str]>| {
            let scheduler = scheduler::of(kind);
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let refused = refused(&ids, said, |line| scheduler.is_no_complaint(line));
            let expected = expected.map(|ids| ids.iter().copied().collect());
            assert_eq!(refused, expected, "{said}");
        };
        let (pbs, slurm) = (SchedulerKind::Pbs, SchedulerKind::Slurm);
        let ended = "qdel: Job has finished 5.s\nqdel: Unknown Job Id 6.s\n";
        check(pbs, &["5.s", "6.s", "7.s"], ended, Some(&[]));
        let both = "qdel: Unauthorized Request 7.s\nqdel: Job has finished 5.s\n";
        check(pbs, &["5.s", "6.s", "7.s"], both, Some(&["7.s"]));
        check(pbs, &["5.s", "6.s"], "qdel: Server shutting down\n", None);
        check(pbs, &["5.s"], "", None);
        let ended = "71_0-3: Job has already finished\n71_4-11: No error\n";
        check(slurm, &["71"], ended, Some(&[]));
        let denied = "71_0-3: Job has already finished\n72: Access denied\n";
        check(slurm, &["71", "72"], denied, Some(&["72"]));
        check(slurm, &["71"], "slurm_load_jobs error: Unable to contact slurm controller\n", None);
    }

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
