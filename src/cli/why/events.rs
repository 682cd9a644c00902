//! What has happened to a sweep, in the order of time.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use crate::cause::group;
use crate::host::clock;
use crate::idset::IdSet;
use crate::tree::Tree;
use crate::tree::damage::Damage;
use crate::tree::journal::{Entry, Journal};
use crate::tree::records::{self, index::Check};
use crate::tree::waves;

/// The most lines that people are shown.
const MOST_LINES: usize = 40;

/// Widths of the intervals in which events of one kind are one line, seconds: the first with few enough lines counts.
const WIDTHS: [f64; 8] = [1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0, 604_800.0];

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Event {
    /// Unix seconds.
    time: f64,
    /// What happened, without what it happened to.
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<u64>,
}

/// Everything that is recorded with a time: calls of the scheduler, holds, starts, stops, ends.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn of(tree: &Tree, token: &str) -> Result<Vec<Event>> {
    let mut all = Vec::new();
    let mut say =
        |time: f64, trial: Option<u64>, what: String| all.push(Event { time, what, trial });
    for wave in waves::read(tree)? {
        say(wave.created, None, format!("submission {} to {}", wave.wave, wave.target));
        for learnt in &wave.learnt {
            let ids = IdSet::of_numbers(&learnt.trials).unwrap_or_default();
            ids.iter().for_each(|id| say(wave.created, Some(u64::from(id)), learnt.why.clone()));
        }
    }
    Journal::entries(tree, |entry| match entry {
        Entry::Answer { array, time, job, .. } => {
            say(time, None, format!("array {array} submitted as job {job}"));
        }
        Entry::Refused { array, time, reason, .. } => {
            say(time, None, format!("array {array} refused: {reason}"));
        }
        Entry::Cancelled { array, time, trials } => match IdSet::of_numbers(&trials) {
            Ok(ids) => ids.iter().for_each(|id| {
                say(time, Some(u64::from(id)), "taken back from the scheduler".to_owned());
            }),
            Err(_) => say(time, None, format!("array {array} taken back from the scheduler")),
        },
        Entry::Hold { time, by } => say(time, None, format!("held by {by}")),
        Entry::Unhold { time } => say(time, None, "released".to_owned()),
        Entry::Released { array, time } => say(time, None, format!("array {array} released")),
        Entry::Decided { time, decisions } => {
            for decision in decisions {
                let what = self::decision(decision.again, &decision.why);
                let ids = IdSet::of_numbers(&decision.trials).unwrap_or_default();
                ids.iter().for_each(|id| say(time, Some(u64::from(id)), what.clone()));
            }
        }
        Entry::Intent { .. } | Entry::Ended { .. } | Entry::Site { .. } => {}
    })?;
    let damage = &mut Damage::default();
    for (trial, record) in records::indexed(tree, token, Check::Changes, damage)? {
        for decided in &record.decisions {
            say(decided.time, Some(trial), decision(decided.again, &decided.why));
        }
        for attempt in &record.attempts {
            let again = if attempt.start.attempt > 1 { " again" } else { "" };
            say(attempt.start.time, Some(trial), format!("started{again}"));
            if let Some(at) = attempt.stopped_at {
                say(at, Some(trial), "asked to stop".to_owned());
            }
            if let Some(end) = &attempt.end {
                let cause = attempt.cause().map(|cause| format!(" ({})", cause.word()));
                let state = format!("{:?}", end.state).to_lowercase();
                say(end.time, Some(trial), format!("{state}{}", cause.unwrap_or_default()));
            }
        }
    }
    all.sort_by(|a, b| a.time.total_cmp(&b.time).then(a.trial.cmp(&b.trial)));
    Ok(all)
}

/// What `[retry]` has decided: the same words for arrays, agents and this machine.
fn decision(again: bool, why: &str) -> String {
    format!("{} ({why})", if again { "retried" } else { "not retried" })
}

/// The events of a sweep as text: few enough lines, each for the events of one kind in one interval.
pub(super) fn page(name: &str, events: &[Event]) -> String {
    if events.is_empty() {
        return format!("{name}: nothing has happened yet\n");
    }
    let all = WIDTHS.map(|width| lines(events, width));
    let mut lines = all.iter().find(|lines| lines.len() <= MOST_LINES).or(all.last()).cloned();
    let lines = lines.get_or_insert_default();
    let left_out = lines.len().saturating_sub(MOST_LINES);
    let mut text = format!("{name}:\n");
    if left_out > 0 {
        text.push_str(&format!("  ... {left_out} lines before (--json shows all)\n"));
    }
    lines[left_out..].iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

/// A line for the events of each kind in each interval.
fn lines(events: &[Event], width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for some in events.chunk_by(|a, b| (a.time / width).floor() == (b.time / width).floor()) {
        let mut kinds: Vec<(&str, f64)> = Vec::new();
        let mut trials: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for event in some {
            let known = trials.entry(&event.what).or_default();
            if !kinds.iter().any(|(what, _)| *what == event.what) {
                kinds.push((&event.what, event.time));
            }
            known.extend(event.trial);
        }
        for (what, time) in kinds {
            let time = clock::local(time);
            let own = trials.get_mut(what).filter(|own| !own.is_empty());
            lines.push(match own {
                None => format!("{time}  {what}"),
                Some(own) => {
                    own.sort_unstable();
                    own.dedup();
                    let many =
                        if own.len() > 1 { format!("{} x ", own.len()) } else { String::new() };
                    format!("{time}  {many}{what}: {}", group::list(own))
                }
            });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: f64, what: &str, trial: Option<u64>) -> Event {
        Event { time, what: what.to_owned(), trial }
    }

    #[test]
    fn events_of_one_kind_at_one_time_are_one_line() {
        let events = [
            event(100.0, "submission 1 to local", None),
            event(100.2, "started", Some(1)),
            event(100.3, "started", Some(0)),
            event(100.4, "done", Some(1)),
            event(105.0, "failed (exit-code)", Some(0)),
        ];
        let lines: Vec<String> = lines(&events, 1.0)
            .iter()
            .map(|line| line.split_once("  ").unwrap().1.to_owned())
            .collect();
        assert_eq!(
            lines,
            [
                "submission 1 to local",
                "2 x started: trials 0-1",
                "done: trial 1",
                "failed (exit-code): trial 0",
            ]
        );
        assert_eq!(page("s", &[]), "s: nothing has happened yet\n");
    }

    #[test]
    fn many_events_are_few_lines() {
        let all: Vec<Event> = (0..10_000)
            .map(|n| event(n as f64 * 7.0, ["started", "done"][n % 2], Some(n as u64)))
            .collect();
        let lines = page("s", &all).lines().count();
        assert!((2..=MOST_LINES + 1).contains(&lines), "{lines}");
    }
}
