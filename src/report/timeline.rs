//! When and where attempts ran: a lane for each slot, or for each place of a host, with the gaps between them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rounded;
use crate::standing::State;
use crate::status::Status;
use crate::tree::records::{Attempt, Outcome};
use crate::words::{count, duration, thousands};

/// The most lanes, and the most bars of a page.
const LANES: usize = 64;
const BARS: usize = 3_000;

/// Steps of the line that shows how many attempts ran.
const STEPS: usize = 240;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Timeline {
    /// When the first attempt began, unix seconds, and how long after it the last one ended, seconds.
    from: f64,
    span: f64,
    lanes: Vec<String>,
    /// The words of [`STATES`], which bars name by their places.
    states: Vec<&'static str>,
    /// Lane, begin and end in seconds, place of the state, trial, attempts in the bar.
    bars: Vec<(usize, f64, f64, usize, u64, usize)>,
    /// How many attempts ran on average, in steps of equal length.
    running: Vec<Option<f64>>,
    notes: Vec<String>,
}

/// Figures of the sweep's time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    pub(super) span: f64,
    pub(super) hosts: usize,
    /// Attempts that were repeated, because the trial has a later one.
    pub(super) repeated: usize,
}

/// The states of bars, by their places in a page.
const STATES: [&str; 5] = ["done", "failed", "timeout", "interrupted", "running"];

/// An attempt on the clock.
struct Span<'a> {
    /// Host, then agent and slot of an agent's attempt.
    place: (&'a str, Slot<'a>),
    begin: f64,
    end: f64,
    state: usize,
    trial: u64,
}

/// The timeline of a sweep, if any attempt has begun.
pub(super) fn of(status: &Status, now: f64) -> (Option<Timeline>, Option<Times>) {
    let mut spans: Vec<Span<'_>> = Vec::new();
    let (mut repeated, mut unknown) = (0, 0);
    for (row, standing) in status.trials() {
        let Some(record) = status.records.get(&row.id) else { continue };
        repeated += record.begun().saturating_sub(1);
        for attempt in &record.attempts {
            let runs = standing.state == State::Running;
            match span(attempt, runs.then_some(now)) {
                Some(span) => spans.push(span),
                None => unknown += 1,
            }
        }
    }
    let from = spans.iter().map(|span| span.begin).fold(f64::INFINITY, f64::min);
    let to = spans.iter().map(|span| span.end).fold(f64::NEG_INFINITY, f64::max);
    if spans.is_empty() || to < from {
        return (None, None);
    }
    spans.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(a.trial.cmp(&b.trial)));
    let span = (to - from).max(1e-3);
    let running = running(&spans, from, span);
    let mut lanes = lanes(&spans);
    let hosts = lanes.iter().map(|lane| lane.host).collect::<std::collections::BTreeSet<_>>().len();
    let busy: f64 = spans.iter().map(|span| span.end - span.begin).sum();
    let mut notes = vec![format!(
        "{} on {} ran trials for {:.0} % of {}.",
        count(lanes.len() as u64, "place"),
        count(hosts as u64, "host"),
        100.0 * (busy / (lanes.len() as f64 * span)).min(1.0),
        duration(span),
    )];
    notes.extend(gap(&spans, span));
    if lanes.len() > LANES {
        notes.push(format!(
            "The first {LANES} of {} places are drawn.",
            thousands(lanes.len() as u64)
        ));
        lanes.truncate(LANES);
    }
    if unknown > 0 {
        notes.push(format!("{} left no end and are not drawn.", count(unknown, "attempt")));
    }
    let drawn: usize = lanes.iter().map(|lane| lane.spans.len()).sum();
    let least = if drawn > BARS { span * lanes.len() as f64 / BARS as f64 } else { 0.0 };
    if drawn > BARS {
        notes.push(format!(
            "{} attempts are drawn as fewer bars: a bar may have several of one state.",
            thousands(drawn as u64)
        ));
    }
    let mut bars = Vec::new();
    for (place, lane) in lanes.iter().enumerate() {
        let first = bars.len();
        for span in &lane.spans {
            let (begin, end) = (span.begin - from, span.end - from);
            if let Some((_, start, last, state, _, n)) = bars[first..].last_mut()
                && *state == span.state
                && end - *start < least
            {
                *last = end;
                *n += 1;
                continue;
            }
            bars.push((place, begin, end, span.state, span.trial, 1));
        }
    }
    let short = |seconds: f64| (seconds * 100.0).round() / 100.0;
    bars.iter_mut().for_each(|bar| (bar.1, bar.2) = (short(bar.1), short(bar.2)));
    let lanes = lanes.into_iter().map(|lane| lane.label()).collect();
    let timeline = Timeline { from, span, lanes, states: STATES.to_vec(), bars, running, notes };
    (Some(timeline), Some(Times { span, hosts, repeated }))
}

/// `now` is given where the trial runs.
fn span(attempt: &Attempt, now: Option<f64>) -> Option<Span<'_>> {
    let begin = attempt.start.time;
    let ended = attempt.end.as_ref().map(|end| end.time.max(begin));
    let (end, state) = match (attempt.outcome(), ended) {
        (Some(Outcome::Done), Some(end)) => (end, 0),
        (Some(Outcome::Failed), Some(end)) => (end, 1),
        (Some(Outcome::Timeout), Some(end)) => (end, 2),
        (Some(Outcome::Interrupted), Some(end)) => (end, 3),
        (Some(_), None) => (begin + attempt.duration_s()?, 3),
        (None, _) => (now?.max(begin), 4),
    };
    let slot = attempt.bundle.as_ref().map(|place| (place.agent.as_str(), place.slot));
    let is_time = begin.is_finite() && end.is_finite() && begin > 0.0;
    let place = (attempt.start.host.as_str(), slot);
    is_time.then_some(Span { place, begin, end, state, trial: attempt.start.trial })
}

/// An agent and its slot.
type Slot<'a> = Option<(&'a str, u32)>;

struct Lane<'a> {
    host: &'a str,
    slot: Slot<'a>,
    number: usize,
    alone: bool,
    spans: Vec<&'a Span<'a>>,
    free: f64,
}

impl Lane<'_> {
    fn label(&self) -> String {
        if self.alone { self.host.to_owned() } else { format!("{} · {}", self.host, self.number) }
    }
}

/// The lanes by host. Attempts of an agent are in the lane of their slot, others in the first lane of their host that
/// is free.
fn lanes<'a>(spans: &'a [Span<'a>]) -> Vec<Lane<'a>> {
    let mut hosts: BTreeMap<&str, Vec<Lane<'a>>> = BTreeMap::new();
    for span in spans {
        let (host, slot) = span.place;
        let own = hosts.entry(host).or_default();
        let fits = |lane: &Lane<'a>| match slot {
            Some(_) => lane.slot == slot,
            // Clocks of the worker and of its program differ by little.
            None => lane.slot.is_none() && lane.free <= span.begin + 1e-3,
        };
        let place = own.iter().position(fits).unwrap_or(own.len());
        if place == own.len() {
            own.push(Lane { host, slot, number: 0, alone: false, spans: Vec::new(), free: 0.0 });
        }
        let lane = &mut own[place];
        lane.spans.push(span);
        lane.free = lane.free.max(span.end);
    }
    let mut all = Vec::new();
    for (_, mut own) in hosts {
        own.sort_by_key(|lane| lane.slot);
        let alone = own.len() == 1;
        let numbered = own.into_iter().enumerate();
        all.extend(numbered.map(|(i, lane)| Lane { number: i + 1, alone, ..lane }));
    }
    all
}

/// How many attempts ran on average in each step.
fn running(spans: &[Span<'_>], from: f64, span: f64) -> Vec<Option<f64>> {
    let step = span / STEPS as f64;
    // What begins and ends in whole steps is a difference, so that long attempts cost no more than short ones.
    let (mut whole, mut part) = (vec![0.0; STEPS + 1], vec![0.0; STEPS]);
    for own in spans {
        let place = |time: f64| (((time - from) / step) as usize).min(STEPS - 1);
        let (first, last) = (place(own.begin), place(own.end));
        let end_of = |place: usize| from + (place + 1) as f64 * step;
        if first == last {
            part[first] += own.end - own.begin;
            continue;
        }
        part[first] += end_of(first) - own.begin;
        part[last] += own.end - end_of(last - 1);
        whole[first + 1] += 1.0;
        whole[last] -= 1.0;
    }
    let mut now = 0.0;
    (0..STEPS)
        .map(|i| {
            now += whole[i];
            rounded(((now + part[i] / step) * 100.0).round() / 100.0)
        })
        .collect()
}

/// The longest time in which nothing ran, in words, if it is a part of the whole that can be seen.
fn gap(spans: &[Span<'_>], whole: f64) -> Option<String> {
    let (mut until, mut longest, mut total) = (spans.first()?.end, 0.0_f64, 0.0);
    for span in spans {
        let idle = span.begin - until;
        if idle > 0.0 {
            longest = longest.max(idle);
            total += idle;
        }
        until = until.max(span.end);
    }
    (longest > whole / 100.0).then(|| {
        format!(
            "Nothing ran for {} altogether, at most {} at a time.",
            duration(total),
            duration(longest)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, begin: f64, end: f64) -> Span<'_> {
        Span { place: (host, None), begin, end, state: 0, trial: 0 }
    }

    #[test]
    fn attempts_at_the_same_time_have_lanes_of_their_own() {
        let spans = [at("a", 1.0, 5.0), at("a", 2.0, 3.0), at("b", 2.0, 3.0), at("a", 4.0, 6.0)];
        let lanes = lanes(&spans);
        let shown: Vec<(String, usize)> =
            lanes.iter().map(|lane| (lane.label(), lane.spans.len())).collect();
        let expected = [("a · 1", 1), ("a · 2", 2), ("b", 1)];
        assert_eq!(shown, expected.map(|(label, n)| (label.to_owned(), n)));
    }

    #[test]
    fn what_ran_adds_up_and_gaps_are_found() {
        let spans = [at("a", 0.0, 60.0), at("a", 30.0, 120.0), at("a", 180.0, 240.0)];
        let running = running(&spans, 0.0, 240.0);
        let total: f64 = running.iter().flatten().sum();
        assert_eq!(
            (total, running[10], running[45], running[150]),
            (210.0, Some(1.0), Some(2.0), Some(0.0))
        );
        let expected = "Nothing ran for 1 min 00 s altogether, at most 1 min 00 s at a time.";
        assert_eq!(gap(&spans, 240.0).as_deref(), Some(expected));
        assert_eq!(gap(&spans[..2], 240.0), None);
    }
}
