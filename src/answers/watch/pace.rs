//! How fast trials end: arithmetic on the times of ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Ends of so many seconds are looked at...
const WINDOW_S: f64 = 60.0;
/// ... or, where these are fewer, so many of the last ones.
const LEAST: usize = 20;

/// Counts ends, in any order.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    now: f64,
    /// Ends before this time do not count: no agent was at work, or others were.
    since: f64,
    recent: u64,
    /// The last ends, as numbers that sort as they do.
    last: BinaryHeap<Reverse<u64>>,
    durations: Vec<f32>,
    latest: f64,
}

impl Pace {
    /// Times are seconds since 1970; `since` is when the current agents began.
    pub(super) fn new(now: f64, since: Option<f64>) -> Self {
        Self {
            now,
            since: since.unwrap_or(f64::INFINITY),
            recent: 0,
            last: BinaryHeap::with_capacity(LEAST + 1),
            durations: Vec::new(),
            latest: 0.0,
        }
    }

    /// The time of the sight.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// A trial has ended for good.
    pub(super) fn add(&mut self, time: f64) {
        self.latest = self.latest.max(time);
        if time < self.since {
            return;
        }
        if time > self.now - WINDOW_S {
            self.recent += 1;
        }
        // Bits of numbers that are not negative sort as the numbers do.
        let key = Reverse(time.max(0.0).to_bits());
        if self.last.len() < LEAST {
            self.last.push(key);
        } else if self.last.peek().is_some_and(|oldest| key < *oldest) {
            self.last.pop();
            self.last.push(key);
        }
    }

    /// A done trial has taken so long.
    pub(super) fn took(&mut self, seconds: f32) {
        self.durations.push(seconds);
    }

    /// The time of the last end; `None` if there was none.
    pub(super) fn latest(&self) -> Option<f64> {
        (self.latest > 0.0).then_some(self.latest)
    }

    /// Trials that ended a second; `None` before the first end of the current agents.
    pub(super) fn rate(&self) -> Option<f64> {
        let oldest = f64::from_bits(self.last.peek()?.0);
        // A moment is too short to say anything.
        let span = |from: f64| (self.now - from).max(1.0);
        if self.recent >= LEAST as u64 {
            return Some(self.recent as f64 / span(self.since).min(WINDOW_S));
        }
        if self.last.len() < LEAST {
            return Some(self.last.len() as f64 / span(self.since));
        }
        Some((LEAST - 1) as f64 / span(oldest))
    }

    /// Seconds until `open` trials have ended at this rate.
    pub(super) fn left(&self, open: u64) -> Option<f64> {
        let rate = self.rate()?;
        (open > 0 && rate > 0.0).then(|| open as f64 / rate)
    }

    /// The median duration; `None` before three are known.
    pub(super) fn median(&mut self) -> Option<f64> {
        let middle = self.durations.len() / 2;
        if self.durations.len() < 3 {
            return None;
        }
        let (_, median, _) = self.durations.select_nth_unstable_by(middle, f32::total_cmp);
        Some(f64::from(*median))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate at second 1000 of these ends, of agents that began at `since`.
    fn rate(since: f64, ends: impl IntoIterator<Item = f64>) -> Option<f64> {
        let mut pace = Pace::new(1000.0, Some(since));
        ends.into_iter().for_each(|time| pace.add(time));
        pace.rate()
    }

    #[test]
    fn the_last_minute_counts() {
        let four_a_second = (0..4000).map(|i| f64::from(i) / 4.0);
        assert_eq!(rate(0.0, four_a_second.clone().map(|t| t + 0.1)), Some(4.0));
        // Whatever the order.
        assert_eq!(rate(0.0, four_a_second.map(|t| 1000.0 - t)), Some(4.0));
        // Those who began ten seconds ago had no minute yet.
        assert_eq!(rate(990.0, (0..40).map(|i| 990.0 + f64::from(i) / 4.0)), Some(4.0));
    }

    #[test]
    fn long_trials_are_looked_at_for_longer() {
        // One in a hundred seconds.
        assert_eq!(rate(0.0, (1..10).map(|i| f64::from(i) * 100.0)), Some(9.0 / 1000.0));
        let ends = (1..100).map(|i| f64::from(i) * 10.0);
        assert_eq!(rate(0.0, ends), Some(19.0 / 200.0));
        // Nothing ends any more.
        assert_eq!(rate(0.0, (0..20).map(f64::from)), Some(19.0 / 1000.0));
        // Ends of earlier agents do not count.
        assert_eq!(rate(999.0, (0..500).map(f64::from)), None);
    }

    #[test]
    fn the_time_left_is_a_division() {
        let mut pace = Pace::new(100.0, Some(0.0));
        assert_eq!((pace.left(5), pace.median()), (None, None));
        (0..10).for_each(|i| pace.add(f64::from(i)));
        assert_eq!((pace.left(5), pace.left(0)), (Some(50.0), None));
        [3.0, 1.0, 2.0].iter().for_each(|s| pace.took(*s));
        assert_eq!(pace.median(), Some(2.0));
    }
}
