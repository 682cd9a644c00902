//! What is to be asked of a scheduler for a plan, beside what earlier submissions have asked for. The submission and its rehearsal
//! decide it here.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use crate::submit::again::Again;
use crate::submit::arrays::amend::{self, Amended};
use crate::submit::arrays::wave::{Before, Waves};
use crate::submit::retry::{self, Retry};
use crate::submit::todo::{self, Decided, Holdings, Planned};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::Record;

/// A plan, and what a person wants of it.
#[derive(Clone, Copy)]
pub(crate) struct Demand<'a> {
    pub(crate) planned: Planned<'a>,
    pub(crate) journal: &'a Journal,
    pub(crate) again: &'a Again,
    /// Asks the scheduler for the trials that ended without success.
    pub(crate) ask: &'a dyn Fn() -> Result<Retry>,
}

/// What earlier submissions have left.
pub(crate) struct Due {
    amended: Amended,
    /// Trials that are not asked for again.
    pub(crate) covered: HashSet<u64>,
    /// Trials that ended without success, where the scheduler was asked.
    pub(crate) retried: Retry,
}

impl Due {
    /// Gives up arrays that the plan does not ask for any more. Asks the scheduler which trials ended without success, if a person
    /// wants some of those again.
    ///
    /// # Errors
    /// When the scheduler does not answer.
    pub(crate) fn find(
        of: &Demand<'_>,
        target: &str,
        waves: &mut Waves,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let diff = of.planned.diff;
        let amended = amend::amend(waves, target, diff, of.journal, notes);
        let retried = match of.again.is_wanted() {
            true => (of.ask)()?.of(of.again),
            false => Retry::default(),
        };
        let mut covered = waves.covered();
        covered.retain(|trial| !amended.due.contains(trial) && !retried.bad.contains(trial));
        notes.extend(retried.note(diff, of.again));
        Ok(Self { amended, covered, retried })
    }

    /// Asks the scheduler whether trials that ended without success run again, if something is to be submitted behind one.
    ///
    /// # Errors
    /// When the scheduler does not answer, or the tree cannot be read.
    pub(crate) fn look_behind(
        &mut self,
        of: &Demand<'_>,
        waves: &Waves,
        records: &HashMap<u64, Record>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        notes.extend(self.amended.note(records, &self.covered));
        let covered = &self.covered;
        let known = retry::Known { waves, journal: of.journal, covered, records };
        if !of.again.is_wanted() && known.is_behind_a_failure(&of.planned)? {
            self.retried = (of.ask)()?;
        }
        Ok(())
    }

    /// Decides about all trials of the plan and its sweep. `before`: the `waves`, and what came of them.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn decide(
        &self,
        of: &Demand<'_>,
        (waves, before): (&Waves, &Before<'_>),
        records: &HashMap<u64, Record>,
    ) -> Result<(Decided, Holdings)> {
        let mut coming = before.coming(records);
        coming.extend(&self.retried.busy);
        let taken = Holdings {
            in_hand: self.covered.clone(),
            cancelled: waves.cancelled(of.journal, records),
            due: self.amended.due.clone(),
            coming,
        };
        Ok((todo::decide(of.planned, of.again, records, &taken)?, taken))
    }
}
