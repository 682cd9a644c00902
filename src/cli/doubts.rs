//! What of a plan is probably not meant: trials that are equal, and rules that leave out nothing.

use super::Context;
use crate::idset::IdSet;
use crate::plan::Plan;
use crate::words::{count, short};

/// Groups of equal trials that are named.
const MOST_EQUAL: usize = 5;

/// Warns of trials of a plan that are equal: each of them runs, and mostly one was meant.
pub(super) fn warn_of_equal(plan: &Plan, context: &Context) {
    let groups = plan.equal();
    if groups.is_empty() {
        return;
    }
    let mut words: Vec<String> = Vec::new();
    for group in groups.iter().take(MOST_EQUAL) {
        let ids: IdSet = group.iter().filter_map(|&i| u32::try_from(i).ok()).collect();
        let params = plan.trials[group[0]].params.iter();
        let params: Vec<String> = params.map(|(name, value)| format!("{name}={value}")).collect();
        words.push(format!("{ids} ({})", short(&params.join(" "), 60)));
    }
    if groups.len() > MOST_EQUAL {
        words.push(format!("and {} more", count((groups.len() - MOST_EQUAL) as u64, "group")));
    }
    context
        .out
        .warn(&format!("the plan has equal trials, and each of them runs: {}", words.join("; ")));
}

/// Warns of `[[exclude]]` tables without effect: mostly a value is not written as on its axis.
pub(super) fn warn_of_idle_rules(plan: &Plan, context: &Context) {
    for place in plan.idle_rules.iter().take(MOST_EQUAL) {
        let text =
            "an `[[exclude]]` leaves out no combination, or none that those before it do not";
        context.out.warn(&format!("{text}\n  {place}"));
    }
}
