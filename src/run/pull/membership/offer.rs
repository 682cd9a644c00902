//! What an agent offers, and how much of it there is room for beside the others.

use std::collections::HashSet;

use crate::sweep::tree::ledger::Ledger;

/// Who the agent is and what it offers.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) host: String,
    /// The scheduler's id of its job.
    pub(crate) job: Option<String>,
    /// Trials it wants to run at once.
    pub(crate) slots: u32,
    /// Cores of each slot, where it binds them: chosen among these.
    pub(crate) cores: Vec<u32>,
    /// Cores a slot needs.
    pub(crate) cores_per_slot: u32,
    /// Whether `slots` may shrink to the cores that other agents on the host leave.
    pub(crate) may_shrink: bool,
}

/// How many slots an agent may have beside the others, and its cores.
pub(crate) fn room(ledger: &Ledger, offer: &Offer, max_running: Option<u32>) -> (u32, Vec<u32>) {
    let busy: u32 = ledger.living().map(|(_, agent)| agent.slots).sum();
    let mut slots = offer.slots;
    if let Some(most) = max_running {
        slots = slots.min(most.saturating_sub(busy));
    }
    let here = ledger.living().filter(|(_, agent)| agent.host == offer.host);
    let bound: HashSet<u32> = here.flat_map(|(_, agent)| agent.cores.iter().copied()).collect();
    let free: Vec<u32> = offer.cores.iter().copied().filter(|core| !bound.contains(core)).collect();
    let each = offer.cores_per_slot.max(1);
    let fit = free.len() as u32 / each;
    if offer.may_shrink && fit > 0 {
        slots = slots.min(fit);
    }
    // Fewer cores than asked for: slots are not bound, rather than bound to the same core.
    let cores = if fit >= slots {
        free.into_iter().take((slots * each) as usize).collect()
    } else {
        Vec::new()
    };
    (slots, cores)
}
