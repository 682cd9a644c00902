//! How long a GPU has done nothing, from samples that are seconds apart and see moments: work in short bursts must not look
//! like none.

use std::collections::VecDeque;

use crate::base::host::gpus::Sample;

/// How many mean powers are compared: the least of them is that of an idle GPU, whatever a program has made of its clocks.
const KEPT: usize = 24;

/// One GPU's idle time, from its samples in the order of time.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// When it did something last, seconds after the start.
    since: f64,
    /// The counter of energy before, and when.
    before: Option<(f64, f64)>,
    /// Mean watts between the last samples.
    powers: VecDeque<f64>,
}

impl Idle {
    /// Takes in a sample made `seconds` after the start: how long nothing has run by then. `None` if the device does not
    /// report whether something runs.
    pub(super) fn add(&mut self, seconds: f64, sample: &Sample) -> Option<f64> {
        let draws_more = self.draws_more(seconds, sample.energy_j);
        let use_ = sample.utilization.max(sample.busiest)?;
        if use_ > 0 || draws_more {
            self.since = seconds;
        }
        Some(seconds - self.since)
    }

    /// Whether it has taken more power since the last sample than when it is idle: there was a burst in between.
    fn draws_more(&mut self, seconds: f64, energy_j: Option<f64>) -> bool {
        let now = energy_j.map(|joules| (seconds, joules));
        let before = std::mem::replace(&mut self.before, now);
        let Some(((then, first), (now, last))) = before.zip(now).filter(|(a, b)| b.0 > a.0) else {
            return false;
        };
        let power = (last - first) / (now - then);
        if self.powers.len() == KEPT {
            self.powers.pop_front();
        }
        self.powers.push_back(power);
        let least = self.powers.iter().copied().fold(f64::INFINITY, f64::min);
        power > least * 1.1 + 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to 1 that look random and are the same in each run.
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        fn between(&mut self, least: f64, most: f64) -> f64 {
            least + (most - least) * self.next()
        }
    }

    /// A GPU that works in bursts, and how much of that its driver tells.
    struct Trace {
        bursts: Vec<(f64, f64)>,
        counts_energy: bool,
        keeps_samples: bool,
    }

    impl Trace {
        /// Bursts of this length, with pauses of at most nine minutes, for three hours; then nothing.
        fn new(dice: &mut Dice, counts_energy: bool) -> Self {
            let (mut bursts, mut at) = (Vec::new(), dice.between(0.0, 60.0));
            let (pause, length) = (dice.between(2.0, 540.0), dice.between(0.5, 30.0));
            while at < 10_800.0 {
                let end = at + length * dice.between(0.8, 1.2);
                bursts.push((at, end));
                at = end + pause * dice.between(0.2, 1.0);
            }
            Self { bursts, counts_energy, keeps_samples: !counts_energy }
        }

        /// Seconds of work in a span of time.
        fn busy(&self, from: f64, to: f64) -> f64 {
            self.bursts.iter().map(|(a, b)| (b.min(to) - a.max(from)).max(0.0)).sum()
        }

        fn sample(&self, before: f64, at: f64) -> Sample {
            let percent = |from: f64| (100.0 * self.busy(from, at) / (at - from)).ceil() as u32;
            Sample {
                utilization: Some(percent(at - 0.5)),
                busiest: self.keeps_samples.then(|| percent(before)),
                // A program that is there raises the power after a minute.
                energy_j: self
                    .counts_energy
                    .then(|| 50.0 * at + 30.0 * (at - 60.0).max(0.0) + 200.0 * self.busy(0.0, at)),
                ..Sample::default()
            }
        }
    }

    #[test]
    fn bursts_never_look_like_ten_minutes_without_work_and_the_end_of_work_does() {
        let mut dice = Dice(7);
        for run in 0..100 {
            let trace = Trace::new(&mut dice, run % 2 == 0);
            let last = trace.bursts.last().unwrap().1;
            let (mut idle, mut at, mut noticed) = (Idle::default(), 0.5, None);
            while at < last + 1200.0 {
                let next = at + dice.between(5.0, 5.2);
                let seconds = idle.add(next, &trace.sample(at, next)).unwrap();
                at = next;
                assert!(seconds < 600.0 || at > last, "run {run}: idle for {seconds} s at {at}");
                if seconds >= 600.0 {
                    noticed = noticed.or(Some(at - last));
                }
            }
            let noticed = noticed.unwrap();
            assert!((590.0..800.0).contains(&noticed), "run {run}: noticed after {noticed} s");
        }
    }

    #[test]
    fn a_device_that_does_not_tell_is_not_idle() {
        let mut idle = Idle::default();
        let sample = Sample { memory_used: Some(1), ..Sample::default() };
        assert_eq!(idle.add(5000.0, &sample), None);
    }
}
