//! When to stop before the last epoch, and which weights are the best so far.
//!
//! The two are different questions: the smallest improvement makes weights the best, while patience may
//! ask for one of at least `min_delta`.

use serde::{Deserialize, Serialize};

use crate::train::config::{Direction, Stop};

/// The state so far. Part of a checkpoint, the same on every rank as long as all observe the same metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopping {
    /// The best metric of all epochs. It is finite, so that any format can hold it.
    pub best: Option<f64>,
    /// The epoch it was seen in, from 0.
    pub best_epoch: Option<u64>,
    /// The metric that the next improvement is measured against.
    pub(crate) mark: Option<f64>,
    /// Epochs in a row without an improvement.
    pub(crate) bad_epochs: u64,
    /// How many epochs were observed.
    pub(crate) epochs: u64,
}

/// What an epoch has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochOutcome {
    /// No epoch was better: these weights are to be kept.
    pub is_best: bool,
    /// Training is to end now, and why.
    pub stop: Option<Reason>,
}

/// Why training ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No improvement for as many epochs as patience allows.
    Patience,
    /// The metric is not a number, or infinite on the good side: nothing can become of it.
    NotANumber,
}

impl Stopping {
    /// Takes the metric of an epoch. Without `stop` only the best epoch is kept track of.
    ///
    /// An epoch is an improvement when the metric is better than the best one by `min_delta` or more,
    /// and better at all: a curve that stays flat ends after `patience + 1` epochs also with a
    /// `min_delta` of 0. An infinite metric on the bad side is no improvement.
    pub fn observe(
        &mut self,
        stop: Option<&Stop>,
        direction: Direction,
        metric: f64,
    ) -> EpochOutcome {
        let epoch = self.epochs;
        self.epochs += 1;
        let is_better = |than: f64| match direction {
            Direction::Min => metric < than,
            Direction::Max => metric > than,
        };
        let is_best = metric.is_finite() && self.best.is_none_or(is_better);
        if is_best {
            self.best = Some(metric);
            self.best_epoch = Some(epoch);
        }
        let Some(stop) = stop else {
            return EpochOutcome { is_best, stop: None };
        };
        if metric.is_finite()
            && self.mark.is_none_or(|mark| {
                let delta =
                    if stop.relative { stop.min_delta * mark.abs() } else { stop.min_delta };
                let reaches = match direction {
                    Direction::Min => metric <= mark - delta,
                    Direction::Max => metric >= mark + delta,
                };
                reaches && is_better(mark)
            })
        {
            self.mark = Some(metric);
            self.bad_epochs = 0;
            return EpochOutcome { is_best, stop: None };
        }
        self.bad_epochs += 1;
        let bad_side = match direction {
            Direction::Min => f64::INFINITY,
            Direction::Max => f64::NEG_INFINITY,
        };
        let reason = if !metric.is_finite() && metric != bad_side {
            Some(Reason::NotANumber)
        } else {
            (self.bad_epochs >= stop.patience).then_some(Reason::Patience)
        };
        EpochOutcome { is_best, stop: reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop(patience: u64, min_delta: f64) -> Stop {
        Stop { patience, min_delta, relative: false }
    }

    /// After how many epochs a curve is stopped and why, which epochs were the best so far, and the
    /// best metric; also when the state goes through a checkpoint between any two epochs.
    fn run(
        stop: &Stop,
        direction: Direction,
        curve: &[f64],
    ) -> (Option<(usize, Reason)>, Vec<usize>, Option<f64>) {
        let mut state = Stopping::default();
        let mut best = Vec::new();
        for (epoch, metric) in curve.iter().enumerate() {
            let text = serde_json::to_string(&state).unwrap();
            state = serde_json::from_str(&text).unwrap();
            let verdict = state.observe(Some(stop), direction, *metric);
            if verdict.is_best {
                best.push(epoch);
            }
            assert_eq!(state.best_epoch, best.last().map(|epoch| *epoch as u64));
            if let Some(reason) = verdict.stop {
                return (Some((epoch + 1, reason)), best, state.best);
            }
        }
        (None, best, state.best)
    }

    #[test]
    fn a_flat_curve_stops_after_patience_and_one_epochs() {
        for min_delta in [0.0, 1e-5] {
            let found = run(&stop(10, min_delta), Direction::Min, &[1.0; 40]);
            assert_eq!(found, (Some((11, Reason::Patience)), vec![0], Some(1.0)));
        }
        let found = run(&stop(1, 0.0), Direction::Max, &[0.5; 40]);
        assert_eq!(found, (Some((2, Reason::Patience)), vec![0], Some(0.5)));
    }

    #[test]
    fn a_falling_curve_goes_on() {
        let curve: Vec<f64> = (0..50).map(|k| 1.0 / f64::from(k + 1)).collect();
        let (stopped, best, _) = run(&stop(2, 1e-5), Direction::Min, &curve);
        assert_eq!((stopped, best.len()), (None, 50));
    }

    #[test]
    fn a_change_of_exactly_min_delta_counts() {
        let found = run(&stop(2, 0.25), Direction::Min, &[1.0, 0.75, 0.5, 0.25, 0.0]);
        assert_eq!(found, (None, vec![0, 1, 2, 3, 4], Some(0.0)));
        let found = run(&stop(2, 0.25), Direction::Min, &[1.0, 0.76, 0.74, 0.5, 0.5, 0.5]);
        assert_eq!(found, (Some((5, Reason::Patience)), vec![0, 1, 2, 3], Some(0.5)));
    }

    #[test]
    fn small_steps_keep_the_best_weights_but_not_the_patience() {
        let curve = [1.0, 0.99, 0.98, 0.97, 0.96];
        let found = run(&stop(3, 0.1), Direction::Min, &curve);
        assert_eq!(found, (Some((4, Reason::Patience)), vec![0, 1, 2, 3], Some(0.97)));
        // Together they reach it: they are measured against the last improvement.
        let found = run(&stop(3, 0.02), Direction::Min, &curve);
        assert_eq!(found, (None, vec![0, 1, 2, 3, 4], Some(0.96)));
    }

    #[test]
    fn bad_epochs_are_counted_in_a_row() {
        let curve = [1.0, 1.1, 1.2, 0.9, 1.0, 1.0, 0.8, 0.9, 0.9, 0.9];
        let found = run(&stop(3, 0.0), Direction::Min, &curve);
        assert_eq!(found, (Some((10, Reason::Patience)), vec![0, 3, 6], Some(0.8)));
    }

    #[test]
    fn more_may_be_better() {
        let curve = [0.1, 0.5, 0.4, 0.6, 0.6, 0.55];
        let found = run(&stop(2, 0.01), Direction::Max, &curve);
        assert_eq!(found, (Some((6, Reason::Patience)), vec![0, 1, 3], Some(0.6)));
    }

    #[test]
    fn min_delta_may_be_a_part_of_the_best() {
        let relative = |min_delta| Stop { patience: 2, min_delta, relative: true };
        let found = run(&relative(0.1), Direction::Min, &[100.0, 89.0, 79.0, 78.0, 77.0]);
        assert_eq!(found, (Some((5, Reason::Patience)), vec![0, 1, 2, 3, 4], Some(77.0)));
        let found = run(&relative(0.1), Direction::Max, &[-100.0, -89.0, -80.0, -70.0]);
        assert_eq!(found, (None, vec![0, 1, 2, 3], Some(-70.0)));
        let found = run(&relative(0.1), Direction::Max, &[-100.0, -95.0, -94.0]);
        assert_eq!(found, (Some((3, Reason::Patience)), vec![0, 1, 2], Some(-94.0)));
    }

    #[test]
    fn no_number_stops_at_once() {
        let stopped = |direction, curve: &[f64]| run(&stop(5, 0.0), direction, curve).0;
        let at_once = Some((2, Reason::NotANumber));
        assert_eq!(stopped(Direction::Min, &[1.0, f64::NAN, 0.5]), at_once);
        assert_eq!(stopped(Direction::Min, &[1.0, f64::NEG_INFINITY]), at_once);
        assert_eq!(stopped(Direction::Max, &[1.0, f64::INFINITY]), at_once);
        assert_eq!(stopped(Direction::Max, &[f64::NAN]), Some((1, Reason::NotANumber)));
        // An overflow may pass.
        let found = run(&stop(3, 0.0), Direction::Min, &[f64::INFINITY, f64::INFINITY, 7.0, 6.0]);
        assert_eq!(found, (None, vec![2, 3], Some(6.0)));
    }

    #[test]
    fn without_a_rule_the_best_is_kept_and_nothing_stops() {
        let mut state = Stopping::default();
        let curve = [3.0, f64::NAN, 2.0, 2.0, 4.0];
        let verdicts = curve.map(|metric| state.observe(None, Direction::Min, metric));
        assert!(verdicts.iter().all(|verdict| verdict.stop.is_none()));
        assert_eq!(verdicts.map(|verdict| verdict.is_best), [true, false, true, false, false]);
        assert_eq!((state.best, state.best_epoch, state.epochs), (Some(2.0), Some(2), 5));
    }
}
