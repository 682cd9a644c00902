//! Whether the holder of a sweep's lock still lives, where its process cannot be looked for: its scheduler knows its job.

use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::{Element, Question, Scheduler, State};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::lock::Owner;

/// Whether the owner of a lock ran in a job of this sweep on another host, as a feeder does, and that job has ended. Each job is
/// asked about once; `known`: the last one, and the answer.
pub(crate) fn has_ended(
    scheduler: &dyn Scheduler,
    calls: &mut Calls,
    journal: &Journal,
    owner: &Owner,
    known: &mut Option<(String, bool)>,
) -> bool {
    let Some(job) = owner.job_elsewhere() else { return false };
    if let Some((_, has_ended)) = known.as_ref().filter(|(known, _)| known == job) {
        return *has_ended;
    }
    // Of a job that is not of this sweep, another cluster may know more.
    let is_own = journal.jobs().any(|own| own == job);
    let has_ended = is_own && {
        let (jobs, open) = ([job.to_owned()], [(job.to_owned(), 0)]);
        let question = Question { jobs: &jobs, open: &open, users: &journal.users, suspects: &[] };
        let answer = scheduler.ask(calls, &question);
        let element = answer.elements.get(job).and_then(|elements| elements.get(0));
        let is_over =
            |element: &Element| matches!(element.state, State::Completed | State::Ended(..));
        answer.is_sure && element.is_none_or(is_over)
    };
    *known = Some((job.to_owned(), has_ended));
    has_ended
}
