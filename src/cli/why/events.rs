//! What has happened to a sweep, in the order of time.

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::Result;
use serde::Serialize;

use crate::base::cause::group;
use crate::base::host::clock;
use crate::base::idset::IdSet;
use crate::base::words::count;
use crate::sweep::tree::Tree;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::deck;
use crate::sweep::tree::journal::{self, Journal};
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger::{self, CANCELLED, Entry};
use crate::sweep::tree::records::{self, Outcome, Record};
use crate::sweep::tree::waves;

/// The most lines that people are shown.
const MOST_LINES: usize = 40;

/// Widths of the intervals in which events of one kind are one line, seconds: the first with few enough lines counts.
const WIDTHS: [f64; 8] = [1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0, 86400.0, 604_800.0];

/// Something that happened to the sweep, to a trial or to an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Event {
    /// Unix seconds.
    time: f64,
    /// What happened, without what it happened to.
    what: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<u64>,
    /// The agent that it happened to.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Whether it comes after all others of its time: the end of an agent after those of its trials.
    #[serde(skip)]
    is_last: bool,
}

/// Everything that is recorded with a time: calls of the scheduler, holds, starts, stops, ends.
///
/// What of it is damaged comes into `damage`.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn of(tree: &Tree, token: &str, damage: &mut Damage) -> Result<Vec<Event>> {
    let mut taken = OfTrials::default();
    let make = |_: &OfTrials, records: Vec<(u64, Record)>| OfTrials::of(&records);
    let with = (make, |all: &mut OfTrials, some| all.join(some));
    let from = records::SweepRecords { tree, token, keys: &Keys::all(tree)? };
    let kept = records::gathered(from, None, &mut taken, with, damage)?;
    kept.iter().for_each(|(trial, record)| taken.add(*trial, record));
    let OfTrials { mut all, last } = taken;
    of_agents(tree, &last, &mut all)?;
    let mut say = |time: f64, trial: Option<u64>, what: String| {
        let what = what.into();
        all.push(Event { time, what, trial, agent: None, is_last: false });
    };
    for wave in waves::read(tree)? {
        say(wave.created, None, format!("submission {} to {}", wave.wave, wave.target));
        for learnt in &wave.learnt {
            let ids = IdSet::of_numbers(&learnt.trials).unwrap_or_default();
            ids.iter().for_each(|id| say(wave.created, Some(u64::from(id)), learnt.why.clone()));
        }
        for ended in &wave.ended {
            let what = format!("submitted again after: {}", ended.told.cause.word());
            let ids = IdSet::of_numbers(&ended.trials).unwrap_or_default();
            ids.iter().for_each(|id| say(wave.created, Some(u64::from(id)), what.clone()));
        }
    }
    Journal::entries(tree, |entry| match entry {
        journal::Entry::Answer { array, time, job, .. } => {
            say(time, None, format!("array {array} submitted as job {job}"));
        }
        journal::Entry::Refused { array, time, reason, .. } => {
            say(time, None, format!("array {array} refused: {reason}"));
        }
        journal::Entry::Cancelled { array, time, trials } => match IdSet::of_numbers(&trials) {
            Ok(ids) => ids.iter().for_each(|id| {
                say(time, Some(u64::from(id)), "taken back from the scheduler".to_owned());
            }),
            Err(_) => say(time, None, format!("array {array} taken back from the scheduler")),
        },
        journal::Entry::Hold { time, by } => say(time, None, format!("held by {by}")),
        journal::Entry::Unhold { time } => say(time, None, "released".to_owned()),
        journal::Entry::Released { array, time } => {
            say(time, None, format!("array {array} released"))
        }
        journal::Entry::Decided { time, decisions } => {
            for decision in decisions {
                let what = self::decision(decision.again, &decision.why);
                let ids = IdSet::of_numbers(&decision.trials).unwrap_or_default();
                ids.iter().for_each(|id| say(time, Some(u64::from(id)), what.clone()));
            }
        }
        journal::Entry::Intent { .. }
        | journal::Entry::Ended { .. }
        | journal::Entry::Site { .. } => {}
    })?;
    let rest = |event: &Event| (event.is_last, event.trial);
    all.sort_by(|a, b| a.time.total_cmp(&b.time).then(rest(a).cmp(&rest(b))));
    Ok(all)
}

/// What the records of trials say.
#[derive(Default)]
struct OfTrials {
    all: Vec<Event>,
    /// When the last attempt of each agent began or ended.
    last: HashMap<String, f64>,
}

impl OfTrials {
    fn of(records: &[(u64, Record)]) -> Self {
        let mut own = Self::default();
        records.iter().for_each(|(trial, record)| own.add(*trial, record));
        own
    }

    fn join(&mut self, other: Self) {
        self.all.extend(other.all);
        other.last.into_iter().for_each(|(agent, time)| self.is_alive(&agent, time));
    }

    fn is_alive(&mut self, agent: &str, time: f64) {
        match self.last.get_mut(agent) {
            Some(last) => *last = last.max(time),
            None => drop(self.last.insert(agent.to_owned(), time.max(0.0))),
        }
    }

    fn add(&mut self, trial: u64, record: &Record) {
        let say = |all: &mut Vec<Event>, time: f64, what: Cow<'static, str>| {
            all.push(Event { time, what, trial: Some(trial), agent: None, is_last: false });
        };
        for attempt in &record.attempts {
            let again = attempt.start.attempt > 1;
            let began = if again { "started again" } else { "started" };
            say(&mut self.all, attempt.start.time, began.into());
            if let Some(at) = attempt.stopped_at {
                say(&mut self.all, at, "asked to stop".into());
            }
            if let Some(end) = &attempt.end {
                let what = match (end.state, attempt.cause()) {
                    (Outcome::Done, None) => "done".into(),
                    (state, cause) => {
                        let cause = cause.map(|cause| format!(" ({})", cause.word()));
                        let state = format!("{state:?}").to_lowercase();
                        format!("{state}{}", cause.unwrap_or_default()).into()
                    }
                };
                say(&mut self.all, end.time, what);
            }
            if let Some(place) = &attempt.bundle {
                let end = attempt.end.as_ref().map_or(attempt.start.time, |end| end.time);
                self.is_alive(&place.agent, end);
            }
        }
        for decided in &record.decisions {
            // An agent writes it before the end that it is about.
            let is_of = |attempt: &&records::Attempt| {
                let start = &attempt.start;
                start.attempt == decided.attempt && start.seq == decided.seq
            };
            let end = record.attempts.iter().find(is_of).and_then(|own| own.end.as_ref());
            let time = end.map_or(decided.time, |end| end.time.max(decided.time));
            say(&mut self.all, time, decision(decided.again, &decided.why).into());
        }
    }
}

/// What the ledger of agents and their queue say: submissions, agents that come and go, holds and cancellations. `last`: when
/// the last attempt of each agent began or ended, because the file system stamps entries by a clock that may be a moment
/// behind that of the agents.
fn of_agents(tree: &Tree, last: &HashMap<String, f64>, all: &mut Vec<Event>) -> Result<()> {
    for deck in deck::read(tree).unwrap_or_default() {
        let what = format!("{} for agents", count(deck.trials, "trial")).into();
        let (time, trial, agent) = (deck.created, None, None);
        all.push(Event { time, what, trial, agent, is_last: false });
    }
    ledger::each(tree, |seq, entry| {
        let is_last = matches!(entry, Entry::Leave { .. } | Entry::Expire { .. });
        let (what, agent) = match entry {
            Entry::Join { agent, .. } => ("agent joined".into(), Some(agent)),
            Entry::Leave { agent, reason, .. } if reason.is_empty() => {
                ("agent left".into(), Some(agent))
            }
            Entry::Leave { agent, reason, .. } => {
                (format!("agent left: {reason}").into(), Some(agent))
            }
            Entry::Expire { agent, .. } => ("agent lost".into(), Some(agent)),
            Entry::Halt { reason, .. } if reason.starts_with(CANCELLED) => (reason.into(), None),
            Entry::Halt { reason, .. } => (format!("halted: {reason}").into(), None),
            Entry::Resume { .. } => ("continued".into(), None),
            Entry::Hold { by, .. } => (format!("held by {by}").into(), None),
            Entry::Release { .. } => ("released".into(), None),
            _ => return,
        };
        let known = agent.as_deref().filter(|_| is_last).and_then(|agent| last.get(agent));
        let time = ledger::written(tree, seq).unwrap_or_default();
        let time = known.map_or(time, |last| time.max(*last));
        all.push(Event { time, what, trial: None, agent, is_last });
    })
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
    let few = WIDTHS.iter().find_map(|width| lines(events, *width, MOST_LINES));
    let lines = few.or_else(|| lines(events, WIDTHS[WIDTHS.len() - 1], usize::MAX));
    let lines = lines.unwrap_or_default();
    let left_out = lines.len().saturating_sub(MOST_LINES);
    let mut text = format!("{name}:\n");
    if left_out > 0 {
        text.push_str(&format!("  ... {left_out} lines before (--json shows all)\n"));
    }
    lines[left_out..].iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

/// The events of one kind in one interval.
struct Kind<'a> {
    what: &'a str,
    /// When the first of them happened.
    time: f64,
    trials: Vec<u64>,
    agents: Vec<&'a str>,
}

/// A line for the events of each kind in each interval; `None` if they are more than `most`.
fn lines(events: &[Event], width: f64, most: usize) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for some in events.chunk_by(|a, b| (a.time / width).floor() == (b.time / width).floor()) {
        let (mut kinds, mut places): (Vec<Kind<'_>>, HashMap<&str, usize>) = Default::default();
        for Event { what, time, trial, agent, .. } in some {
            let place = *places.entry(what).or_insert(kinds.len());
            if place == kinds.len() {
                if lines.len() + kinds.len() == most {
                    return None;
                }
                kinds.push(Kind { what, time: *time, trials: Vec::new(), agents: Vec::new() });
            }
            kinds[place].trials.extend(trial);
            kinds[place].agents.extend(agent.as_deref());
        }
        lines.extend(kinds.into_iter().map(Kind::line));
    }
    Some(lines)
}

impl Kind<'_> {
    fn line(self) -> String {
        let Self { what, time, mut trials, agents } = self;
        let time = clock::local(time);
        match (&trials[..], &agents[..]) {
            ([], []) => format!("{time}  {what}"),
            ([], [agent]) => format!("{time}  {what}: {agent}"),
            ([], several) => format!("{time}  {} x {what}", several.len()),
            _ => {
                trials.sort_unstable();
                trials.dedup();
                let many = match trials.len() {
                    1 => String::new(),
                    n => format!("{n} x "),
                };
                format!("{time}  {many}{what}: {}", group::list(&trials))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time: f64, what: &str, trial: Option<u64>) -> Event {
        Event { time, what: what.to_owned().into(), trial, agent: None, is_last: false }
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
        let lines: Vec<String> = lines(&events, 1.0, usize::MAX)
            .unwrap()
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
