//! The commands that come next when a sweep is over.

use crate::answers::collect;
use crate::base::words::sh_quote;
use crate::sweep::standing::State;
use crate::sweep::status::Status;
use crate::sweep::tree::records;

/// Which commands mean a sweep though they do not name it.
#[derive(Clone, Copy)]
pub(super) struct Unnamed {
    /// Those that only show something.
    pub(super) shows: bool,
    /// Those that write a file.
    pub(super) writes: bool,
}

/// What comes next for a sweep that has just run here: why trials failed, and the results.
pub(super) fn after(status: &Status) -> String {
    let has_failed = status.trials().any(|(_, standing)| standing.state.is_bad());
    let named = status.tree.named();
    let why = has_failed.then(|| format!("what failed, and why: hpcsweep status {named}\n"));
    // Other sweeps may lie beside it.
    why.unwrap_or_default() + &results(status, Unnamed { shows: false, writes: false })
}

/// The commands that show the results of a sweep that is over. Nothing where it goes on, or has no results.
pub(super) fn results(status: &Status, unnamed: Unnamed) -> String {
    let may_go_on = status.standings.iter().any(|standing| !standing.state.is_final());
    let is_left = status.unsubmitted > 0 || !status.undecided.is_empty();
    if may_go_on || is_left || status.feeder.is_some() || status.lacks_agents {
        return String::new();
    }
    let done = status.trials().filter(|(_, standing)| standing.state == State::Done);
    let done: Vec<u64> = done.map(|(row, _)| row.id).collect();
    let named = format!(" {}", status.tree.named());
    let sweep = |is_unnamed: bool| if is_unnamed { "" } else { named.as_str() };
    let Some(first) = done.first() else { return String::new() };
    let mut commands = vec![format!("hpcsweep collect{}", sweep(unnamed.shows))];
    if let Some((metric, goal)) = metric(status, *first).filter(|_| done.len() > 1) {
        let metric = sh_quote(&metric);
        commands.push(format!("hpcsweep best{} --metric {metric} --{goal}", sweep(unnamed.shows)));
    }
    commands.push(format!("hpcsweep report{}", sweep(unnamed.writes)));
    format!("for the results: {}\n", commands.join("; "))
}

/// The metric by which trials may be compared, by what one of them has reported, and what is best.
fn metric(status: &Status, trial: u64) -> Option<(String, &'static str)> {
    let (record, _) = records::of_trial(&status.tree, trial).ok()?;
    let metrics = collect::metrics_of(&status.tree, &record).ok()?;
    let numbers = metrics.iter().filter(|(_, value)| value.is_number());
    let names: Vec<&str> = numbers.map(|(name, _)| name.as_str()).collect();
    let (name, is_max) = collect::assumed(&names)?;
    Some((name.to_owned(), if is_max { "max" } else { "min" }))
}
