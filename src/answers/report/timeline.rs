//! When and where attempts ran: a lane for each slot, or for each place of a host, with the gaps between them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::rounded;
use crate::base::words::{count, duration, thousands};
use crate::sweep::standing::State;
use crate::sweep::status::Status;
use crate::sweep::tree::records::{Attempt, Outcome, Record};

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
struct Span {
    /// Its place in [`Spans::places`].
    place: u32,
    state: u8,
    begin: f64,
    end: f64,
    trial: u64,
}

/// Where attempts run: a host, then agent and slot of an agent's attempts.
type Place = (String, Option<(String, u32)>);

/// Attempts on the clock.
#[derive(Default)]
pub(super) struct Spans {
    all: Vec<Span>,
    places: Vec<Place>,
    /// The places of hosts.
    of_hosts: HashMap<String, Vec<u32>>,
    /// Attempts that were repeated, and attempts without an end.
    repeated: usize,
    unknown: u64,
}

impl Spans {
    fn place(&mut self, host: &str, slot: Slot<'_>) -> u32 {
        let host_places = self.of_hosts.get(host).map_or(&[][..], Vec::as_slice);
        let is_same_slot = |at: &&u32| slot_of(&self.places[**at as usize]) == slot;
        if let Some(at) = host_places.iter().find(is_same_slot) {
            return *at;
        }
        let place_number = self.places.len() as u32;
        self.places.push((host.to_owned(), slot.map(|(agent, slot)| (agent.to_owned(), slot))));
        self.of_hosts.entry(host.to_owned()).or_default().push(place_number);
        place_number
    }

    /// Adds the attempts of a trial. `now` is given where it runs.
    pub(super) fn add(&mut self, record: &Record, now: Option<f64>) {
        self.repeated += record.begun().saturating_sub(1);
        for attempt in &record.attempts {
            let slot = attempt.bundle.as_ref().map(|place| (place.agent.as_str(), place.slot));
            match span(attempt, now) {
                Some(span) => {
                    let place = self.place(&attempt.start.host, slot);
                    self.all.push(Span { place, ..span });
                }
                None => self.unknown += 1,
            }
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        let places = other.places.iter().map(|place| self.place(&place.0, slot_of(place)));
        let places: Vec<u32> = places.collect();
        let other_spans = other.all.into_iter();
        self.all
            .extend(other_spans.map(|span| Span { place: places[span.place as usize], ..span }));
        self.repeated += other.repeated;
        self.unknown += other.unknown;
    }
}

fn slot_of(place: &Place) -> Slot<'_> {
    place.1.as_ref().map(|(agent, slot)| (agent.as_str(), *slot))
}

/// The timeline of a sweep, if any attempt has begun: of the spans that were taken while it was read, and of the records that
/// the status has.
pub(super) fn lay_out(
    status: &Status,
    mut taken: Spans,
    now: f64,
) -> (Option<Timeline>, Option<Times>) {
    for (row, standing) in status.trials() {
        let Some(record) = status.records.whole(row.id) else { continue };
        taken.add(record, (standing.state == State::Running).then_some(now));
    }
    let Spans { all: mut spans, places, repeated, unknown, .. } = taken;
    let earliest = spans.iter().map(|span| span.begin).fold(f64::INFINITY, f64::min);
    let latest = spans.iter().map(|span| span.end).fold(f64::NEG_INFINITY, f64::max);
    if spans.is_empty() || latest < earliest {
        return (None, None);
    }
    spans.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(a.trial.cmp(&b.trial)));
    let span = (latest - earliest).max(1e-3);
    let running = running(&spans, earliest, span);
    let mut lanes = lanes(&spans, &places);
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
        let first_bar = bars.len();
        for span in &lane.spans {
            let (begin, end) = (span.begin - earliest, span.end - earliest);
            if let Some((_, start, last, state, _, n)) = bars[first_bar..].last_mut()
                && *state == usize::from(span.state)
                && end - *start < least
            {
                *last = end;
                *n += 1;
                continue;
            }
            bars.push((place, begin, end, span.state.into(), span.trial, 1));
        }
    }
    let short = |seconds: f64| (seconds * 100.0).round() / 100.0;
    bars.iter_mut().for_each(|bar| (bar.1, bar.2) = (short(bar.1), short(bar.2)));
    let lanes = lanes.into_iter().map(|lane| lane.label()).collect();
    let timeline =
        Timeline { from: earliest, span, lanes, states: STATES.to_vec(), bars, running, notes };
    (Some(timeline), Some(Times { span, hosts, repeated }))
}

/// `now` is given where the trial runs. The place is still to be found.
fn span(attempt: &Attempt, now: Option<f64>) -> Option<Span> {
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
    let is_time = begin.is_finite() && end.is_finite() && begin > 0.0;
    is_time.then_some(Span { place: 0, begin, end, state, trial: attempt.start.trial })
}

/// An agent and its slot.
type Slot<'a> = Option<(&'a str, u32)>;

struct Lane<'a> {
    host: &'a str,
    slot: Slot<'a>,
    number: usize,
    alone: bool,
    spans: Vec<&'a Span>,
    free: f64,
}

impl Lane<'_> {
    fn label(&self) -> String {
        if self.alone { self.host.to_owned() } else { format!("{} · {}", self.host, self.number) }
    }
}

/// The lanes by host. Attempts of an agent are in the lane of their slot, others in the first lane of their host that
/// is free.
fn lanes<'a>(spans: &'a [Span], places: &'a [Place]) -> Vec<Lane<'a>> {
    let mut hosts: BTreeMap<&str, Vec<Lane<'a>>> = BTreeMap::new();
    for span in spans {
        let span_place = &places[span.place as usize];
        let (host, slot) = (span_place.0.as_str(), slot_of(span_place));
        let host_lanes = hosts.entry(host).or_default();
        let lane_index = host_lanes
            .iter()
            .position(|lane| match slot {
                Some(_) => lane.slot == slot,
                // Clocks of the worker and of its program differ by little.
                None => lane.slot.is_none() && lane.free <= span.begin + 1e-3,
            })
            .unwrap_or(host_lanes.len());
        if lane_index == host_lanes.len() {
            host_lanes.push(Lane {
                host,
                slot,
                number: 0,
                alone: false,
                spans: Vec::new(),
                free: 0.0,
            });
        }
        let lane = &mut host_lanes[lane_index];
        lane.spans.push(span);
        lane.free = lane.free.max(span.end);
    }
    let mut lanes = Vec::new();
    for (_, mut own) in hosts {
        own.sort_by_key(|lane| lane.slot);
        let alone = own.len() == 1;
        let numbered = own.into_iter().enumerate();
        lanes.extend(numbered.map(|(i, lane)| Lane { number: i + 1, alone, ..lane }));
    }
    lanes
}

/// How many attempts ran on average in each step.
fn running(spans: &[Span], from: f64, span: f64) -> Vec<Option<f64>> {
    let step = span / STEPS as f64;
    // What begins and ends in whole steps is a difference, so that long attempts cost no more than short ones.
    let (mut whole, mut part) = (vec![0.0; STEPS + 1], vec![0.0; STEPS]);
    for own in spans {
        let step_at = |time: f64| (((time - from) / step) as usize).min(STEPS - 1);
        let (first, last) = (step_at(own.begin), step_at(own.end));
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
    let mut n_running = 0.0;
    (0..STEPS)
        .map(|i| {
            n_running += whole[i];
            rounded(((n_running + part[i] / step) * 100.0).round() / 100.0)
        })
        .collect()
}

/// The longest time in which nothing ran, in words, if it is a part of the whole that can be seen.
fn gap(spans: &[Span], whole: f64) -> Option<String> {
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

    fn at(place: u32, begin: f64, end: f64) -> Span {
        Span { place, begin, end, state: 0, trial: 0 }
    }

    #[test]
    fn attempts_at_the_same_time_have_lanes_of_their_own() {
        let spans = [at(0, 1.0, 5.0), at(0, 2.0, 3.0), at(1, 2.0, 3.0), at(0, 4.0, 6.0)];
        let places = [("a".to_owned(), None), ("b".to_owned(), None)];
        let lanes = lanes(&spans, &places);
        let shown: Vec<(String, usize)> =
            lanes.iter().map(|lane| (lane.label(), lane.spans.len())).collect();
        let expected = [("a · 1", 1), ("a · 2", 2), ("b", 1)];
        assert_eq!(shown, expected.map(|(label, n)| (label.to_owned(), n)));
    }

    #[test]
    fn what_ran_adds_up_and_gaps_are_found() {
        let spans = [at(0, 0.0, 60.0), at(0, 30.0, 120.0), at(0, 180.0, 240.0)];
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
