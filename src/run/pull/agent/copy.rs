//! Copies of what others run for too long, in places that have nothing left to do.

use anyhow::Result;

use super::{Agent, News};
use crate::run::pull::lifecycle::Lifecycle;
use crate::run::pull::places::{Devices, Place, Role};
use crate::sweep::tree::ledger::Entry;
use crate::sweep::tree::table;

impl<P: Place, T: FnMut(News<'_>)> Agent<P, T> {
    /// A copy of a trial that another agent has run for too long, where the plan allows it.
    pub(super) fn copy(&mut self, i: usize) -> Result<bool> {
        let settings = self.lifecycle.membership.settings();
        if !settings.repeatable || self.lifecycle.membership.open() > 0 {
            return Ok(false);
        }
        let factor = settings.straggler;
        let Lifecycle { membership, pace, .. } = &mut self.lifecycle;
        let own = &membership.name;
        let Some(found) =
            self.copies.find(&membership.tree, &membership.ledger, pace, factor, own)?
        else {
            return Ok(false);
        };
        let named = match membership.is_exact() || membership.learns() {
            true => table::some(&membership.tree, &membership.heads, &[found.trial])?.pop(),
            false => None,
        };
        // It is not claimed if it would wait for memory, or for the devices of the run that it is to overtake.
        if let Some(row) = named
            && (!self.has_room(Some(&row))? || !matches!(self.reserve(i, &row)?, Devices::There))
        {
            return Ok(false);
        }
        let membership = &mut self.lifecycle.membership;
        let (agent, nonce) = (membership.name.clone(), membership.nonce());
        let (trial, size, since) = (found.trial, found.size, found.since);
        let entry = Entry::Copy { agent, nonce, of: found.of.clone(), trial, size, since };
        if !membership.append(&entry)? {
            membership.look()?;
            return Ok(true);
        }
        // An agent that ends the trial from now on reads this entry first. An agent that ended it before has
        // recorded the end.
        let runs = self.copies.still_runs(&membership.tree, &membership.ledger, &found);
        let row = match runs {
            Ok(true) => table::some(&membership.tree, &membership.heads, &[trial]),
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

    pub(in crate::run::pull) fn uncopy(&mut self, trial: u64, unbegun: bool) {
        let membership = &mut self.lifecycle.membership;
        let (agent, nonce) = (membership.name.clone(), membership.nonce());
        membership.say(Entry::Uncopy { agent, nonce, trial, unbegun });
    }
}
