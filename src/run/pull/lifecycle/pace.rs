//! What an agent learns from the trials it has seen end: how long they take, and whether nearly all fail.

use std::collections::VecDeque;

/// Durations of the trials that ended last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: VecDeque<f64>,
}

/// How many durations are kept.
const KEPT: usize = 256;

impl Pace {
    /// A trial has ended well after so many seconds.
    pub(crate) fn add(&mut self, seconds: f64) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(seconds);
    }

    /// The duration that a share of the trials did not exceed; `None` before `least` have ended.
    pub(crate) fn quantile(&self, share: f64, least: usize) -> Option<f64> {
        if self.last.len() < least.max(1) {
            return None;
        }
        let mut all: Vec<f64> = self.last.iter().copied().collect();
        all.sort_by(f64::total_cmp);
        Some(all[((all.len() - 1) as f64 * share).round() as usize])
    }
}

/// Notices that nearly everything fails.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    last: VecDeque<bool>,
}

/// How many ends are looked at.
const WINDOW: usize = 50;
/// How many there must be.
const LEAST: usize = 20;

impl Breaker {
    /// A trial has ended for good; why nearly everything fails if so, given the share that is too much.
    pub(crate) fn add(&mut self, failed: bool, share: Option<f64>) -> Option<String> {
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(failed);
        let bad = self.last.iter().filter(|failed| **failed).count();
        let n = self.last.len();
        let too_many = failed && n >= LEAST && bad as f64 >= share? * n as f64;
        too_many.then(|| format!("{bad} of the last {n} trials failed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_needs_some_trials() {
        let mut pace = Pace::default();
        assert_eq!(pace.quantile(0.5, 1), None);
        for seconds in [3.0, 1.0, 2.0] {
            pace.add(seconds);
        }
        assert_eq!(pace.quantile(0.5, 3), Some(2.0));
        assert_eq!(pace.quantile(0.95, 3), Some(3.0));
        assert_eq!(pace.quantile(0.5, 4), None);
        (0..1000).for_each(|_| pace.add(9.0));
        assert_eq!(pace.quantile(0.0, 3), Some(9.0));
    }

    #[test]
    fn the_breaker_wants_nearly_everything_to_fail() {
        let trip = |good_every: usize, share| {
            let mut breaker = Breaker::default();
            (1..=200).find(|i| breaker.add(i % good_every != 0, share).is_some())
        };
        assert_eq!(trip(1000, Some(0.95)), Some(20));
        assert_eq!(trip(10, Some(0.95)), None);
        assert_eq!(trip(1000, None), None);
    }
}
