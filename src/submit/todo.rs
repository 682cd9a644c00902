//! What is left to run of a plan: [`decide`] asks the rules of `sweep::decide` about all trials of its sweep, and about those that
//! it adds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;

use crate::base::words::{count, thousands};
use crate::plan::OnFailure;
use crate::plan::author::Author;
use crate::submit::Source;
use crate::submit::again::Again;
use crate::submit::grow::{self, Diff, Todo};
use crate::sweep::decide::{Because, Candidate, Decider, Next, Question};
use crate::sweep::tree::records::Record;
use crate::sweep::tree::{Tree, table};

/// What becomes of the trials of a plan and its sweep.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    /// Those that run, in the order of the sweep.
    pub(crate) todo: Vec<Todo>,
    /// What becomes of the others.
    others: HashMap<u64, Next>,
}

impl Decided {
    /// How many trials do not run because one before them has failed.
    pub(crate) fn behind(&self) -> u64 {
        let is_behind = |next: &&Next| matches!(next, Next::Leave(Because::Behind(_)));
        self.others.values().filter(is_behind).count() as u64
    }

    /// What to say of trials that run only on request, if there are any and `again` is about all trials.
    pub(crate) fn note(&self, again: &Again, author: Author) -> Option<String> {
        let left = |why: Because| {
            let own = self.others.values().filter(|next| **next == Next::Leave(why));
            own.count() as u64
        };
        let (failed, cancelled) = (left(Because::Failed), left(Because::Cancelled));
        let ended = [(failed, "ended without success"), (cancelled, "cancelled")];
        let ended = ended.into_iter().filter(|(trials, _)| *trials > 0);
        let ended: Vec<String> =
            ended.map(|(trials, how)| format!("{} {how}", count(trials, "trial"))).collect();
        if ended.is_empty() || again.is_alone() {
            return None;
        }
        let they = |trials: u64| if trials == 1 { "it" } else { "them" };
        let behind = match self.behind() {
            0 => String::new(),
            trials => format!(", and {} behind {}", thousands(trials), they(failed + cancelled)),
        };
        let all = failed + cancelled + self.behind();
        let (are, them) = (if all == 1 { "is" } else { "are" }, they(all));
        let retry = match author {
            Author::Person | Author::Run => "--retry",
            Author::Python => "retry=True",
        };
        let ended = ended.join(" and ");
        Some(format!("{ended}{behind} {are} left alone: `{retry}` runs {them} again"))
    }

    /// The trials that run.
    pub(crate) fn runs(&self) -> HashSet<u64> {
        self.todo.iter().map(|todo| todo.id).collect()
    }
}

/// A plan and its sweep, before or after the new trials were added to it.
#[derive(Clone, Copy)]
pub(crate) struct Planned<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) diff: &'a Diff,
    /// The trials that the plan adds.
    pub(crate) added: &'a [Todo],
    /// What a failure means for the rest of its chain.
    pub(crate) on_failure: OnFailure,
}

impl<'a> Planned<'a> {
    /// The trials `added` to a sweep are those of [`grow::added`].
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn new(
        tree: &'a Tree,
        source: &Source,
        diff: &'a Diff,
        added: &'a [Todo],
    ) -> Result<Self> {
        // The plan's terms hold from its first new trial on.
        let on_failure = match added.is_empty() {
            true => grow::on_failure(&table::heads(tree)?),
            false => source.plan.run.on_failure,
        };
        Ok(Self { tree, diff, added, on_failure })
    }
}

/// Which trials are out of reach, and which must run.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Trials that a scheduler or agents have, or had last and nobody wants again.
    pub(crate) in_hand: HashSet<u64>,
    /// Trials whose jobs a person has cancelled.
    pub(crate) cancelled: HashSet<u64>,
    /// Trials that an earlier submission wanted to run, and no scheduler took.
    pub(crate) due: HashSet<u64>,
    /// Trials that were submitted again since they ended.
    pub(crate) coming: HashSet<u64>,
}

/// Decides about all trials of a plan and its sweep.
///
/// # Errors
/// When the table cannot be read.
pub(crate) fn decide(
    planned: Planned<'_>,
    again: &Again,
    records: &HashMap<u64, Record>,
    taken: &Holdings,
) -> Result<Decided> {
    let Planned { tree, diff, added, on_failure } = planned;
    let Holdings { in_hand, cancelled, due, coming } = taken;
    let wish = again.wish();
    let question = Question { wish, records, in_hand, cancelled, due, coming, on_failure };
    let mut decider = Decider::new(question);
    let mut decided = Decided::default();
    if diff.known > 0 {
        table::each(tree, |row| {
            if row.id >= diff.known {
                return;
            }
            let (trial, after, request) = (row.id, row.after, diff.request(row.id));
            let candidate = Candidate { trial, after, is_planned: request.is_some() };
            match (decider.next(candidate), request) {
                (Next::Run(_), Some(request)) => {
                    let (chain, resources) = (row.chain, Arc::clone(request));
                    decided.todo.push(Todo { id: trial, chain, after, resources });
                }
                (other, _) => drop(decided.others.insert(trial, other)),
            }
        })?;
    }
    for new in added {
        match decider.next(Candidate { trial: new.id, after: new.after, is_planned: true }) {
            Next::Run(_) => decided.todo.push(new.clone()),
            other => drop(decided.others.insert(new.id, other)),
        }
    }
    Ok(decided)
}
