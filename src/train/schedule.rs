//! The learning rate: a pure function of the step, but for plateaus, which keep a small state.
//!
//! Powers and cosines are those of a library of ours: the rate has the same bits on every
//! rank, whatever the machine.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::train::config::{Direction, Schedule};

/// The inputs of a rate, besides the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The rate of the optimizer.
    pub base: f64,
    /// Steps of the optimizer in an epoch, at least 1.
    pub steps_per_epoch: u64,
    /// Epochs, at least 1.
    pub epochs: u64,
}

impl Span {
    fn steps(self) -> u64 {
        (self.steps_per_epoch * self.epochs).max(1)
    }
}

/// The rate of a step, counted from 0 over all epochs. A step behind the last has the rate of the last.
///
/// * `step`: torch's `StepLR` with one call an epoch.
/// * `cosine`: with W steps of warm-up, torch's `LinearLR(1 / (W + 1), total_iters = W)` followed by
///   `CosineAnnealingLR` that ends at the last step. The first step has a rate above 0.
/// * `one_cycle`: torch's `OneCycleLR` with `anneal_strategy="cos"`, `cycle_momentum=False`,
///   `three_phase=False`.
/// * `plateau`: the rate it begins with; [`Plateau`] lowers it.
pub fn rate(schedule: &Schedule, span: Span, step: u64) -> f64 {
    let last_step = span.steps() - 1;
    let step = step.min(last_step);
    match *schedule {
        Schedule::Constant | Schedule::Plateau { .. } => span.base,
        Schedule::Step { every, gamma } => {
            let epoch = step / span.steps_per_epoch.max(1);
            span.base * libm::pow(gamma, (epoch / every.max(1)) as f64)
        }
        Schedule::Cosine { warmup, min } => {
            let rising = (warmup * span.steps_per_epoch as f64).round() as u64;
            if step < rising {
                return span.base * (step + 1) as f64 / (rising + 1) as f64;
            }
            falling(span.base, min, part(step - rising, last_step.saturating_sub(rising)))
        }
        Schedule::OneCycle { rise, first_factor, last_factor } => {
            let first_rate = span.base / first_factor;
            // torch counts the phases so; the first may end before step 0.
            let top = rise * span.steps() as f64 - 1.0;
            let (step, last_step) = (step as f64, last_step as f64);
            if step <= top {
                let upto = if top > 0.0 { step / top } else { 1.0 };
                falling(first_rate, span.base, upto)
            } else {
                falling(span.base, first_rate / last_factor, (step - top) / (last_step - top))
            }
        }
    }
}

/// Half a cosine from `from` (at 0) to `to` (at 1).
fn falling(from: f64, to: f64, part: f64) -> f64 {
    to + (from - to) / 2.0 * (1.0 + libm::cos(PI * part))
}

/// The part of the schedule that is over; none if it has no length.
fn part(gone: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { gone as f64 / whole as f64 }
}

/// The smallest change of a rate that is made: torch's `eps` of `ReduceLROnPlateau`.
const SMALLEST_CHANGE: f64 = 1e-8;

/// A rate that falls when the metric stays: torch's `ReduceLROnPlateau` with a relative threshold and
/// without cool-down. Part of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// The rate of the next epoch.
    pub rate: f64,
    /// The best metric so far. It is finite, so that any format can hold it.
    pub(crate) best: Option<f64>,
    /// Epochs without a better metric, since the best one or since the rate fell.
    pub(crate) bad_epochs: u64,
}

impl Plateau {
    /// Begins with the rate of the optimizer.
    pub fn new(base: f64) -> Self {
        Self { rate: base, best: None, bad_epochs: 0 }
    }

    /// Takes the metric of an epoch and returns the rate of the next. Other schedules than `plateau` leave it
    /// as it is. A metric that is not a finite number is not better.
    pub fn observe(&mut self, schedule: &Schedule, direction: Direction, metric: f64) -> f64 {
        let Schedule::Plateau { factor, patience, threshold, min } = *schedule else {
            return self.rate;
        };
        let is_better = metric.is_finite()
            && self.best.is_none_or(|best| match direction {
                Direction::Min => metric < best * (1.0 - threshold),
                Direction::Max => metric > best * (1.0 + threshold),
            });
        if is_better {
            self.best = Some(metric);
            self.bad_epochs = 0;
        } else {
            self.bad_epochs += 1;
        }
        if self.bad_epochs > patience {
            self.bad_epochs = 0;
            let lower = (self.rate * factor).max(min);
            if self.rate - lower > SMALLEST_CHANGE {
                self.rate = lower;
            }
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rates of a run of `epochs` with `steps` each, against those of PyTorch 2.11.
    fn check(schedule: Schedule, base: f64, steps: u64, epochs: u64, expected: &[f64]) {
        let span = Span { base, steps_per_epoch: steps, epochs };
        let found: Vec<f64> = (0..steps * epochs).map(|step| rate(&schedule, span, step)).collect();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-15 * base, "{found} is not {expected}");
        }
        assert_eq!(rate(&schedule, span, steps * epochs), *found.last().unwrap());
    }

    #[test]
    fn a_constant_rate_stays() {
        check(Schedule::Constant, 0.1, 2, 2, &[0.1; 4]);
    }

    #[test]
    fn steps_are_those_of_torch() {
        // StepLR(step_size=2, gamma=0.1), once an epoch.
        let expected = [0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005, 0.00005];
        check(Schedule::Step { every: 2, gamma: 0.1 }, 0.05, 1, 7, &expected);
        let twice: Vec<f64> = expected.iter().flat_map(|rate| [*rate; 2]).collect();
        check(Schedule::Step { every: 2, gamma: 0.1 }, 0.05, 2, 7, &twice);
    }

    #[test]
    fn a_cosine_with_warm_up_is_that_of_torch() {
        // SequentialLR([LinearLR(1 / 7, 1, 6), CosineAnnealingLR(13, 1e-3)], [6]).
        let expected = [
            0.014285714285714285,
            0.02857142857142857,
            0.04285714285714286,
            0.05714285714285714,
            0.07142857142857142,
            0.0857142857142857,
            0.1,
            0.09856161996258958,
            0.09433007326983389,
            0.0875512820344695,
            0.07861920496319222,
            0.0680529419086055,
            0.056466565672638476,
            0.04453343432736151,
            0.03294705809139449,
            0.022380795036807788,
            0.013448717965530488,
            0.006669926730166124,
            0.002438380037410425,
            0.001,
        ];
        check(Schedule::Cosine { warmup: 1.5, min: 1e-3 }, 0.1, 4, 5, &expected);
        // CosineAnnealingLR(4, 0).
        let expected = [0.1, 0.08535533905932738, 0.05, 0.014644660940672627, 0.0];
        check(Schedule::Cosine { warmup: 0.0, min: 0.0 }, 0.1, 5, 1, &expected);
        check(Schedule::Cosine { warmup: 0.0, min: 0.0 }, 0.1, 1, 1, &[0.1]);
    }

    #[test]
    fn one_cycle_is_that_of_torch() {
        let usual = Schedule::OneCycle { rise: 0.3, first_factor: 25.0, last_factor: 1e4 };
        let expected = [
            0.0040000000000000036,
            0.013167184270002533,
            0.037167184270002526,
            0.06683281572999747,
            0.09083281572999748,
            0.1,
            0.09874640062350874,
            0.09504846320134738,
            0.089091617757105,
            0.0811745653949763,
            0.07169430017913009,
            0.06112620219362893,
            0.0500002,
            0.03887419780637107,
            0.028306099820869922,
            0.0188258346050237,
            0.010908782242895003,
            0.004951936798652629,
            0.0012539993764912555,
            4e-07,
        ];
        check(usual.clone(), 0.1, 10, 2, &expected);
        let steep = Schedule::OneCycle { rise: 0.5, first_factor: 10.0, last_factor: 100.0 };
        let expected = [
            0.02999999999999997,
            0.12328270575938208,
            0.27421729424061786,
            0.28516018485517747,
            0.18349476195335368,
            0.056720053191468785,
            0.0003,
        ];
        check(steep, 0.3, 7, 1, &expected);
        check(usual.clone(), 0.3, 2, 1, &[0.24352369618492892, 1.2e-06]);
        check(usual, 0.3, 1, 1, &[1.2e-06]);
        // torch divides by zero here: the rise ends at the first step.
        let span = Span { base: 0.3, steps_per_epoch: 5, epochs: 1 };
        let short = Schedule::OneCycle { rise: 0.2, first_factor: 25.0, last_factor: 1e4 };
        assert_eq!(rate(&short, span, 0), 0.3);
    }

    /// The rates after each epoch, also when the state goes through a checkpoint between any two.
    fn plateau(schedule: &Schedule, direction: Direction, metrics: &[f64]) -> Vec<f64> {
        let mut state = Plateau::new(0.1);
        let next = |metric: &f64| {
            let text = serde_json::to_string(&state).unwrap();
            state = serde_json::from_str(&text).unwrap();
            state.observe(schedule, direction, *metric)
        };
        metrics.iter().map(next).collect()
    }

    fn schedule(factor: f64, patience: u64, threshold: f64, min: f64) -> Schedule {
        Schedule::Plateau { factor, patience, threshold, min }
    }

    #[test]
    fn plateaus_are_those_of_torch() {
        let flat = plateau(&schedule(0.1, 2, 1e-4, 1e-3), Direction::Min, &[1.0; 12]);
        let (low, least) = (0.010000000000000002, 0.0010000000000000002);
        let expected = [0.1, 0.1, 0.1, low, low, low, least, least, least, least, least, least];
        assert_eq!(flat, expected);
        let metrics = [1.0, 0.99995, 0.9998, 0.5, f64::NAN, 0.6, 0.6, 0.4, 0.41, 0.42, 0.43];
        let found = plateau(&schedule(0.5, 1, 1e-4, 0.0), Direction::Min, &metrics);
        assert_eq!(found, [0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025]);
        let metrics = [0.1, 0.2, 0.20001, 0.2, 0.3, 0.3, 0.3, 0.3, -1.0, 0.4];
        let found = plateau(&schedule(0.5, 1, 1e-3, 0.02), Direction::Max, &metrics);
        assert_eq!(found, [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.02, 0.02]);
        // Below zero a relative threshold makes worse values better; torch does so too.
        let metrics = [-1.0, -1.00005, -1.1, -1.1, -1.1, -1.0];
        let found = plateau(&schedule(0.5, 0, 1e-4, 0.0), Direction::Min, &metrics);
        assert_eq!(found, [0.1, 0.1, 0.1, 0.1, 0.1, 0.05]);
    }

    #[test]
    fn a_change_that_is_too_small_is_not_made() {
        let found = plateau(&schedule(0.1, 0, 1e-4, 0.0), Direction::Min, &[1.0; 40]);
        assert_eq!(found[39], 1.0000000000000005e-08);
    }

    #[test]
    fn what_is_not_finite_is_never_better() {
        let found = plateau(
            &schedule(0.5, 1, 1e-4, 0.0),
            Direction::Min,
            &[f64::INFINITY, 1.0, f64::NEG_INFINITY, 2.0],
        );
        assert_eq!(found, [0.1, 0.1, 0.1, 0.05]);
    }

    #[test]
    fn a_lower_rate_comes_before_the_stop_on_a_flat_curve() {
        use crate::train::config::Stop;
        use crate::train::stopping::Stopping;
        let stop = Stop { patience: 10, min_delta: 1e-5, relative: false };
        let schedule = schedule(0.1, 4, 1e-4, 0.0);
        let (mut state, mut stopping) = (Plateau::new(0.1), Stopping::default());
        let mut epochs = 0;
        loop {
            epochs += 1;
            state.observe(&schedule, Direction::Min, 1.0);
            if stopping.observe(Some(&stop), Direction::Min, 1.0).stop.is_some() {
                break;
            }
        }
        assert_eq!((epochs, state.rate < 0.1), (11, true));
    }
}
