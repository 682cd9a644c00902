//! Copies of what others run for too long, in places that have nothing left to do.

use anyhow::Result;

use super::{Agent, News};
use crate::pull::desk::Desk;
use crate::pull::place::{Devices, Place, Role};
use crate::tree::ledger::Entry;
use crate::tree::table;

impl<P: Place, T: FnMut(News<'_>)> Agent<P, T> {
    /// A copy of a trial that another agent has run for too long, where the plan allows it.
    pub(super) fn copy(&mut self, i: usize) -> Result<bool> {
        let settings = self.desk.claimer.settings();
        if !settings.repeatable || self.desk.claimer.open() > 0 {
            return Ok(false);
        }
        let factor = settings.straggler;
        let Desk { claimer, pace, .. } = &mut self.desk;
        let own = &claimer.name;
        let Some(found) = self.copies.find(&claimer.tree, &claimer.ledger, pace, factor, own)?
        else {
            return Ok(false);
        };
        let named = match claimer.is_exact() {
            true => table::some(&claimer.tree, &claimer.heads, &[found.trial])?.pop(),
            false => None,
        };
        // Not claimed, where it would wait for the devices of the run that it is to overtake.
        if let Some(row) = named
            && !matches!(self.reserve(i, &row)?, Devices::There)
        {
            return Ok(false);
        }
        let claimer = &mut self.desk.claimer;
        let (agent, nonce) = (claimer.name.clone(), claimer.nonce());
        let (trial, size, since) = (found.trial, found.size, found.since);
        let entry = Entry::Copy { agent, nonce, of: found.of.clone(), trial, size, since };
        if !claimer.append(&entry)? {
            claimer.look()?;
            return Ok(true);
        }
        // Who ends it from now on reads the entry before he goes on; who has ended it before has written that.
        let runs = self.copies.still_runs(&claimer.tree, &claimer.ledger, &found);
        let row = match runs {
            Ok(true) => table::some(&claimer.tree, &claimer.heads, &[trial]),
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        match row.map(|mut rows| rows.pop()) {
            Ok(Some(row)) => self.run(i, Role::Copy(Box::new(row)), found.attempt + 1),
            Ok(None) => {
                self.uncopy(trial, true);
                Ok(true)
            }
            Err(error) => {
                self.uncopy(trial, true);
                Err(error)
            }
        }
    }

    pub(in crate::pull) fn uncopy(&mut self, trial: u64, unbegun: bool) {
        let claimer = &mut self.desk.claimer;
        let (agent, nonce) = (claimer.name.clone(), claimer.nonce());
        claimer.say(Entry::Uncopy { agent, nonce, trial, unbegun });
    }
}
