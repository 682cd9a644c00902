//! What of a plan is probably not meant: trials that are equal, and rules that leave out nothing.

use super::Context;
use crate::idset::IdSet;
use crate::plan::Plan;
use crate::words::{count, short};

/// Groups of equal trials, and rules, that are named.
const MOST_NAMED: usize = 5;

/// Warns of trials of a plan that are equal: each of them runs, and mostly one was meant.
pub(super) fn warn_of_equal(plan: &Plan, context: &Context) {
    let groups = plan.equal();
    if groups.is_empty() {
        return;
    }
    let mut words: Vec<String> = Vec::new();
    for group in groups.iter().take(MOST_NAMED) {
        let ids: IdSet = group.iter().filter_map(|&i| u32::try_from(i).ok()).collect();
        let params = plan.trials[group[0]].params.iter();
        let params: Vec<String> = params.map(|(name, value)| format!("{name}={value}")).collect();
        words.push(format!("{ids} ({})", short(&params.join(" "), 60)));
    }
    if groups.len() > MOST_NAMED {
        words.push(format!("and {} more", count((groups.len() - MOST_NAMED) as u64, "group")));
    }
    context
        .out
        .warn(&format!("the plan has equal trials, and each of them runs: {}", words.join("; ")));
}

/// Warns of `[[exclude]]` tables without effect: mostly a value is not written as on its axis.
pub(super) fn warn_of_unused_rules(plan: &Plan, context: &Context) {
    let places = &plan.unused_rules;
    for place in places.iter().take(MOST_NAMED) {
        let text = "an `[[exclude]]` leaves out no combination that the others do not";
        context.out.warn(&format!("{text}\n  {place}"));
    }
    if let Some(more @ 1..) = places.len().checked_sub(MOST_NAMED) {
        context
            .out
            .warn(&format!("the same of {} more `[[exclude]]`", count(more as u64, "table")));
    }
}
