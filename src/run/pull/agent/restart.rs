//! Restarts an agent that others have considered dead.

use std::time::Duration;

use anyhow::Result;

use super::{Agent, News};
use crate::run::pull::lifecycle::Activity;
use crate::run::pull::lifecycle::copies::Copies;
use crate::run::pull::places::Place;
use crate::sweep::attempt::stop::Stop;

impl<P: Place, T: FnMut(News<'_>)> Agent<P, T> {
    /// Others have taken this agent for dead: what it runs is theirs, and it begins anew, as soon as there is room
    /// for it.
    pub(super) fn restart(&mut self) -> Result<Activity> {
        if !self.is_out {
            let note = "others have taken this agent for dead; what it ran is theirs now";
            (self.lifecycle.tell)(News::Note(note));
            self.is_out = true;
        }
        for slot in &mut self.slots {
            slot.stop(Stop::Fenced, Duration::ZERO);
        }
        while self.slots.iter().any(|slot| slot.running().is_some()) {
            for i in 0..self.slots.len() {
                let others = self.pids();
                if let Some((running, _)) = self.slots[i].reap(&others, Some(Stop::Fenced)) {
                    self.slots[i].collect(running.work);
                    self.slots[i].tidy(false);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.copies = Copies::default();
        let turn = self.lifecycle.restart()?;
        if matches!(turn, Activity::Busy) {
            self.is_out = false;
            let membership = &self.lifecycle.membership;
            // Others may have taken slots and cores meanwhile.
            self.slots.truncate(membership.slots as usize);
            self.slots.iter_mut().for_each(|slot| slot.belongs_to(membership));
            self.hooks.belongs_to(&membership.tree, &membership.name);
            if let Some(guard) = &mut self.guard {
                guard.note(&membership.name);
            }
        }
        Ok(turn)
    }
}
