//! The ends of programs: their results, their meaning, and the hooks to call.

use anyhow::Result;

use super::{Agent, News};
use crate::base::cause::{self, Cause, Why};
use crate::base::host::disk;
use crate::run::pull::lifecycle::attempts;
use crate::run::pull::membership::Unit;
use crate::run::pull::places::{AttemptId, Exited, Place, Role, Running};
use crate::run::worker::hooks::Ending;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::verdict::{self, Next, Verdict};
use crate::sweep::tree::records::{Event, Outcome};

impl<P: Place, T: FnMut(News<'_>)> Agent<P, T> {
    /// The end of a program.
    pub(super) fn settle(
        &mut self,
        i: usize,
        mut running: Running<P::Work>,
        mut ended: Exited,
    ) -> Result<()> {
        let (trial, attempt, seq) = (running.trial, running.attempt, running.seq);
        let code = ended.exit.code;
        let (tries, faults, is_copy) = match &running.role {
            // Each repeat by `[retry]` has all its attempts.
            Role::Unit(unit) => (unit.tries - unit.spent, unit.faults, false),
            Role::Copy(_) => (0, 0, true),
        };
        let mut stop = running.stop.map(|(why, _)| why);
        // An agent begins a moment after its allocation, and leaves that much before its end.
        let margin = self.lifecycle.margin() * 2;
        if stop == Some(Stop::Allocation) && running.is_nearly_overdue(margin) {
            // It had its whole time: no other allocation has more for it, and it would be handed on for ever.
            stop = Some(Stop::Walltime);
        }
        let ran = running.since.elapsed();
        let left = self.slots[i].collect(running.work);
        if let Some(used) = &mut ended.used {
            used.usage.gpus = left.gpus;
        }
        let result = left.result;
        // Asked for only where it matters: it is a file to be looked at.
        let allowed = match is_copy || (code == 0 && left.unmet.is_none()) {
            true => 1,
            false => self.lifecycle.membership.attempts_of(trial)?,
        };
        let mut verdict = Verdict::of(code, result.is_some(), stop, tries + 1, allowed);
        let logged = || cause::log::of(self.slots[i].tail(ended.log).as_bytes(), code.max(1), None);
        match (left.unmet, left.overlooked) {
            _ if verdict.state != Outcome::Done => {}
            (Some(unmet), _) => {
                let next = Next::after(Outcome::Failed, tries + 1, allowed);
                verdict = Verdict { next, ..Verdict::failed(unmet.with(logged())) };
            }
            (None, overlooked) => verdict.why = overlooked,
        }
        let lost = left.loss.filter(|_| matches!(verdict.state, Outcome::Done | Outcome::Failed));
        let is_robbed = lost.is_some();
        if let Some(reason) = lost {
            verdict = Verdict::of_loss(faults, &reason);
        } else if left.is_interrupted && verdict.state == Outcome::Failed {
            verdict = Verdict::interrupted(left.why.clone());
        }
        let no_room = !is_robbed && verdict.state == Outcome::Failed && self.had_no_room(&ended);
        if no_room {
            let why = Why::new(Cause::DiskFull, "the disk of the results was full");
            verdict = Verdict::of_fault(faults, why);
        }
        if stop == Some(Stop::Fenced) {
            self.slots[i].tidy(false);
            return Ok(());
        }
        let rows = left.rows;
        if !rows.is_empty() {
            self.lifecycle.logged.insert((trial, attempt));
            self.lifecycle.membership.bundle.push(&Event::Metrics { trial, attempt, rows })?;
        }
        if let Role::Unit(unit) = &mut running.role {
            self.lifecycle.cut_off(unit, stop, ran, &mut verdict);
        }
        if verdict.state == Outcome::Failed && !is_robbed {
            verdict.why = left.why.or(verdict.why).or_else(logged);
        }
        if let Some(complaints) = left.complaints {
            self.slots[i].note(&complaints);
            let cause = verdict.cause(Some(code), ended.exit.signal).unwrap_or(Cause::Unknown);
            verdict.why.get_or_insert(Why::new(cause, complaints));
        }
        let folders = self.lifecycle.membership.settings().folders;
        self.slots[i].tidy(folders);
        let run = AttemptId { trial, attempt, seq, slot: i };
        let role = match running.role {
            Role::Unit(unit) => {
                Role::Unit(Unit { faults: faults + u32::from(no_room || is_robbed), ..unit })
            }
            copy @ Role::Copy(_) if verdict.state == Outcome::Done => copy,
            Role::Copy(_) => {
                // The failure of a copy does not affect the trial.
                self.lifecycle.logged.remove(&(trial, attempt));
                verdict.next = Next::Dropped;
                let end = attempts::end_of(trial, attempt, &verdict, Some(ended), None);
                self.lifecycle.membership.bundle.push(&Event::End(end))?;
                self.lifecycle.told.push((run, verdict.state, false));
                if stop != Some(Stop::Overtaken) {
                    self.uncopy(trial, false);
                }
                return Ok(());
            }
        };
        self.lifecycle.settle(role, run, verdict, ended, result)
    }

    /// Whether a program may have failed because it could not write, and not by what it has written itself.
    fn had_no_room(&self, ended: &Exited) -> bool {
        ended.log.is_none_or(|(_, length)| verdict::may_lack_room(length))
            && (self.lifecycle.is_in_trouble()
                || disk::is_full(self.lifecycle.membership.tree.dir()))
    }

    /// Calls the plan's hooks for trials that have ended for good. The ends are recorded before.
    pub(super) fn call_hooks(&mut self) -> Result<()> {
        for (i, row, end) in std::mem::take(&mut self.lifecycle.pending_hooks) {
            let due = self.lifecycle.due(row.id, end.attempt);
            let membership = &self.lifecycle.membership;
            let head = membership.head_of(row.id)?;
            if head.run.hooks.is_default() {
                continue;
            }
            let slot = &self.slots[i];
            let (tree, host, log_tail) = (&membership.tree, slot.host(), slot.tail(end.log));
            let ending = Ending { tree, head, row: &row, end: &end, host, log_tail };
            self.hooks.call(&ending, slot.vars(), due);
        }
        Ok(())
    }
}
