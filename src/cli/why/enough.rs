//! The request that would have been enough.

use anyhow::Result;
use serde_json::{Map, Value};

use crate::cause::Cause;
use crate::plan::{Params, Resources};
use crate::tree::Tree;
use crate::tree::records::Attempt;
use crate::units;

/// What a trial gets beyond what it has needed.
const MARGIN: f64 = 1.2;

/// The names by which programs count, the coarse ones first.
const COUNTERS: [&str; 6] = ["epoch", "step", "global_step", "iteration", "iter", "generation"];

/// How far a program came, by its metrics.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Progress {
    counter: &'static str,
    first: f64,
    last: f64,
    /// How far it is to come, where a parameter says so.
    target: Option<f64>,
}

impl Progress {
    /// The progress of an attempt.
    ///
    /// # Errors
    /// When its metrics cannot be read.
    pub(super) fn of(tree: &Tree, attempt: &Attempt, params: &Params) -> Result<Option<Self>> {
        let mut seen = [None::<(f64, f64)>; COUNTERS.len()];
        attempt.each_row(tree, |row: Map<String, Value>| {
            for (name, seen) in COUNTERS.iter().zip(&mut seen) {
                if let Some(value) = row.get(*name).and_then(Value::as_f64) {
                    *seen = Some((seen.map_or(value, |(first, _)| first), value));
                }
            }
        })?;
        let all = COUNTERS.iter().zip(seen).filter_map(|(counter, seen)| {
            let (first, last) = seen?;
            Some(Self { counter, first, last, target: target(counter, params) })
        });
        let all: Vec<Self> = all.collect();
        Ok(all.iter().find(|one| one.target.is_some()).or(all.first()).cloned())
    }

    /// In words: `epoch 7 of 10`.
    pub(super) fn words(&self) -> String {
        let of = self.target.map(|target| format!(" of {target}")).unwrap_or_default();
        format!("{} {}{of}", self.counter, self.last)
    }

    /// Seconds in which a whole run would have ended, by the pace of one that took so many.
    fn whole(&self, seconds: f64) -> Option<f64> {
        let target = self.target.filter(|target| *target > self.last)?;
        // What counts from 0 has counted one more than its number says.
        let start = if self.first >= 1.0 { self.first - 1.0 } else { self.first };
        let pace = (self.last - start) / seconds;
        (pace > 0.0).then(|| target / pace * MARGIN)
    }
}

/// The parameter that says how far a counter goes.
fn target(counter: &str, params: &Params) -> Option<f64> {
    let names = ["{}s", "max_{}s", "num_{}s", "n_{}s", "total_{}s", "max_{}", "{}s_max"];
    let names = names.map(|name| name.replace("{}", counter));
    let value = |name: &String| {
        let of = |(own, value): (&str, &crate::plan::Value)| {
            (own == name).then(|| value.to_json().as_f64()).flatten()
        };
        params.iter().find_map(of)
    };
    names.iter().find_map(value)
}

/// The lines of `[resources]` that would have been enough for an attempt that ended because of this, and why it is thought
/// so. `peak`: bytes that it had at most.
pub(super) fn request(
    cause: Cause,
    asked: &Resources,
    peak: u64,
    seconds: Option<f64>,
    progress: Option<&Progress>,
) -> Option<(String, String)> {
    match cause {
        Cause::OutOfMemory => {
            let had = peak.div_ceil(1 << 20);
            // What was killed at its limit may have wanted any amount.
            let doubled = asked.memory_mib.map_or(0, |asked| 2 * asked);
            let least = doubled.max((had as f64 * MARGIN) as u64);
            let step = if least > 8192 { 1024 } else { 256 };
            let memory = units::memory_text(least.div_ceil(step) * step);
            let why = match asked.memory_mib {
                Some(_) => "twice the request: it was ended at its limit",
                None => "1.2 times what it had when it ended",
            };
            (least > 0).then(|| (format!("memory = \"{memory}\""), why.to_owned()))
        }
        Cause::Walltime => {
            let progress = progress?;
            let whole = progress.whole(seconds?)?;
            let minutes = (whole / 60.0).ceil() as u64;
            let walltime = units::walltime_text(minutes.max(1) * 60);
            let why = format!("by its pace until {}, and 1.2 times that", progress.words());
            Some((format!("walltime = \"{walltime}\""), why))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: Value) -> Params {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn memory_that_was_not_enough_is_doubled() {
        let asked = |memory_mib| Resources { memory_mib, ..Resources::default() };
        let request =
            |asked: Resources, peak| request(Cause::OutOfMemory, &asked, peak, None, None);
        let (line, _) = request(asked(Some(4096)), 4000 << 20).unwrap();
        assert_eq!(line, "memory = \"8G\"");
        // The limit was not its request.
        let (line, _) = request(asked(Some(1024)), 20000 << 20).unwrap();
        assert_eq!(line, "memory = \"24G\"");
        let (line, _) = request(asked(None), 1000 << 20).unwrap();
        assert_eq!(line, "memory = \"1280M\"");
        assert_eq!(request(asked(None), 0), None);
    }

    #[test]
    fn a_walltime_that_is_enough_follows_from_the_pace() {
        let progress = |first, last, target| Progress { counter: "epoch", first, last, target };
        let line = |progress: &Progress| {
            let asked = Resources::default();
            request(Cause::Walltime, &asked, 0, Some(3600.0), Some(progress)).map(|(line, _)| line)
        };
        let five = progress(1.0, 5.0, Some(10.0));
        assert_eq!(line(&five).as_deref(), Some("walltime = \"02:24:00\""));
        assert_eq!(five.words(), "epoch 5 of 10");
        // It had resumed: a whole run takes longer than what is left.
        let resumed = progress(6.0, 8.0, Some(10.0));
        assert_eq!(line(&resumed).as_deref(), Some("walltime = \"04:00:00\""));
        assert_eq!(line(&progress(1.0, 5.0, None)), None);
        assert_eq!(line(&progress(1.0, 10.0, Some(10.0))), None);
        assert_eq!(line(&progress(0.0, 0.0, Some(10.0))), None);
    }

    #[test]
    fn a_parameter_says_how_far_a_counter_goes() {
        let params = params(serde_json::json!({ "lr": 0.1, "max_steps": 500, "epochs": "ten" }));
        assert_eq!(target("step", &params), Some(500.0));
        assert_eq!(target("epoch", &params), None);
    }
}
