//! How many units an agent takes at once: arithmetic alone.
//!
//! Blocks shrink towards the end (guided self-scheduling, Polychronopoulos and Kuck 1987), weighed by how
//! fast each agent has been, and grow no faster than a share of the time that the agent has been at it. So
//! the number of claims grows with agents and with the logarithm of time, not with trials, and a slow
//! agent never sits on work that others could do.

use crate::sweep::tree::ledger::Agent;

/// Time whose work an agent may claim from the start on, seconds.
const HORIZON_S: f64 = 2.0;

/// The share of the time since an agent began whose work it may claim at once.
const HORIZON_SHARE: f64 = 0.25;

/// Trials a second of an agent that has ended `done` in `busy_s` seconds of `slots` slots.
fn rate(done: u64, busy_s: f64, slots: u32) -> Option<f64> {
    (done > 0).then(|| done as f64 * f64::from(slots.max(1)) / busy_s.max(1e-6))
}

/// What an agent knows of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Trials it runs at once.
    pub(crate) slots: u32,
    /// Trials it has ended.
    pub(crate) done: u64,
    /// Seconds its slots were busy with them.
    pub(crate) busy_s: f64,
    /// Seconds since it began.
    pub(crate) age_s: f64,
    /// Seconds until its allocation ends.
    pub(crate) left_s: Option<f64>,
}

/// How many units to take of `open`, when `idle` slots wait; `others` are the living agents but this one.
pub(crate) fn block<'a>(
    open: u64,
    idle: u64,
    own: Own,
    others: impl Iterator<Item = &'a Agent>,
) -> u64 {
    let Some(mine) = rate(own.done, own.busy_s, own.slots) else { return idle.min(open) };
    let mut known = (mine, f64::from(own.slots.max(1)));
    let mut unknown = 0.0;
    for other in others {
        let slots = f64::from(other.slots.max(1));
        match rate(other.done, other.busy_s, other.slots) {
            Some(rate) => known = (known.0 + rate, known.1 + slots),
            None => unknown += slots,
        }
    }
    // An agent that has ended no trial yet counts as one with average slots.
    let all = known.0 + unknown * known.0 / known.1;
    let share = open as f64 * mine / all / 2.0;
    let mut horizon = (own.age_s * HORIZON_SHARE).max(HORIZON_S);
    if let Some(left) = own.left_s {
        horizon = horizon.min(left * 0.5);
    }
    let most = (mine * horizon).min(share);
    (most.round() as u64).max(idle).min(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(done: u64, busy_s: f64) -> Own {
        Own { slots: 4, done, busy_s, age_s: 1e6, left_s: None }
    }

    fn other(done: u64, busy_s: f64) -> Agent {
        Agent { slots: 4, done, busy_s, ..Agent::default() }
    }

    #[test]
    fn who_has_ended_nothing_takes_what_its_slots_need() {
        assert_eq!(block(1000, 4, own(0, 0.0), [].iter()), 4);
        assert_eq!(block(3, 4, own(0, 0.0), [].iter()), 3);
    }

    #[test]
    fn blocks_are_half_of_the_share_that_speed_gives() {
        assert_eq!(block(1000, 1, own(10, 10.0), [].iter()), 500);
        assert_eq!(block(1000, 1, own(10, 10.0), [other(10, 10.0)].iter()), 250);
        // One that is ten times slower leaves ten elevenths; one that is new counts as an average.
        assert_eq!(block(1100, 1, own(10, 10.0), [other(1, 10.0)].iter()), 500);
        assert_eq!(block(1000, 1, own(10, 10.0), [other(0, 0.0)].iter()), 250);
        assert_eq!(block(1, 1, own(10, 10.0), [other(10, 10.0)].iter()), 1);
    }

    #[test]
    fn nobody_claims_more_than_a_share_of_the_time_it_has_been_there() {
        let young = Own { age_s: 1.0, ..own(10, 10.0) };
        // Four trials a second, for two seconds.
        assert_eq!(block(1000, 1, young, [].iter()), 8);
        let old = Own { age_s: 100.0, ..own(10, 10.0) };
        assert_eq!(block(1000, 1, old, [].iter()), 100);
        let late = Own { left_s: Some(10.0), ..old };
        assert_eq!(block(1000, 1, late, [].iter()), 20);
    }

    #[test]
    fn the_number_of_claims_grows_with_the_logarithm_of_trials() {
        let claims = |trials: u64| {
            let (mut open, mut done, mut n) = (trials, 0u64, 0u32);
            while open > 0 {
                // A thousand trials a second.
                let own = Own {
                    slots: 1,
                    done,
                    busy_s: done as f64 / 1000.0,
                    age_s: done as f64 / 1000.0,
                    left_s: None,
                };
                let block = block(open, 1, own, [].iter());
                (open, done, n) = (open - block, done + block, n + 1);
            }
            n
        };
        assert!(claims(1_000) < 15 && claims(1_000_000) < 60, "{}", claims(1_000_000));
    }
}
