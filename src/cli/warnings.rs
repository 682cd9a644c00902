//! What of a plan is probably not meant: trials that are equal, and rules that leave out nothing.

use super::Context;
use crate::base::host::disk;
use crate::base::idset::IdSet;
use crate::base::words::{count, short};
use crate::plan::Plan;
use crate::run::worker::process::starting;
use crate::submit::Source;

/// Groups of equal trials, and rules, that are named.
const MOST_NAMED: usize = 5;

/// Warns of all that is probably not meant.
pub(super) fn warn(plan: &Plan, context: &Context) {
    warn_of_equal(plan, context);
    warn_of_unused_rules(plan, context);
    plan.doubts().iter().for_each(|doubt| context.out.warn(doubt));
}

/// Bytes of a program or a script in which MPI is looked for: linkers name libraries near the beginning.
const HEAD: u64 = 1 << 20;

/// Warns of a program of MPI whose ranks are started here one by one: each would be alone in a world of its own.
pub(super) fn warn_of_worlds(source: &Source, context: &Context) {
    let plan = &source.plan;
    let ranks = plan.trials.iter().map(|trial| trial.resources.ranks).max().unwrap_or(1);
    if ranks == 1 || plan.run.needs_mpi() || plan.run.command.is_empty() {
        return;
    }
    let workdir = source.beside(&plan.run.workdir);
    let is_of_mpi = |word: &&String| {
        let Some(file) = starting::find(word, &workdir, &context.vars) else { return false };
        let head = disk::read_at(&file, 0, HEAD).unwrap_or_default();
        let mark: &[u8] = if head.starts_with(b"\x7fELF") { b"libmpi" } else { b"mpi4py" };
        head.windows(mark.len()).any(|part| part == mark)
    };
    if let Some(program) = plan.run.command.iter().find(is_of_mpi) {
        context.out.warn(&format!(
            "`{program}` uses MPI, and `--local` starts each of the {ranks} ranks by itself: each would be rank 0 of 1; \
             write `ranks = 1` and `mpirun -n {ranks}` before it, or submit it to a scheduler"
        ));
    }
}

/// Warns of trials of a plan that are equal: each of them runs, and mostly one was meant.
fn warn_of_equal(plan: &Plan, context: &Context) {
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
fn warn_of_unused_rules(plan: &Plan, context: &Context) {
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
