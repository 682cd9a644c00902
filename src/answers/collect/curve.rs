//! The learning curve of a trial: the metric lines of all its attempts as one.
//!
//! An attempt that resumes from a checkpoint logs some steps again. Of such a step the values of the latest attempt
//! count; those that only an earlier one has logged stay.

use std::collections::HashMap;

use anyhow::Result;
use serde_json::{Map, Value};

use super::leaves;
use crate::sweep::tree::records::{Attempt, Origin, Record};

/// One metric line: its values by dotted name.
pub(super) type Line = Vec<(String, Value)>;

/// The attempts whose lines belong to the curve: not those that ran beside another one and have lost against it, nor those
/// that began after the one that is done, in another sweep that was merged with this one.
pub(super) fn attempts(record: &Record) -> impl Iterator<Item = &Attempt> + Clone {
    let decisive = record.decisive();
    let is_decisive = move |a: &Attempt| decisive.is_some_and(|decisive| std::ptr::eq(decisive, a));
    let has_lost = |a: &Attempt| a.bundle.as_ref().is_some_and(|place| place.lost);
    let is_done = decisive.is_some_and(Attempt::is_done);
    let last = record.attempts.iter().position(|a| is_done && is_decisive(a));
    let counted = last.map_or(record.attempts.len(), |last| last + 1);
    record.attempts[..counted].iter().filter(move |a| is_decisive(a) || !has_lost(a))
}

/// Calls `with` for the lines of a trial's curve, in the order in which they were logged, one in memory at a time.
///
/// # Errors
/// When a record cannot be read.
pub(super) fn each<'a>(
    from: impl Into<Origin<'a>>,
    record: &Record,
    mut with: impl FnMut(Line),
) -> Result<()> {
    let from = from.into();
    let attempts = attempts(record);
    let mut later = Later::default();
    for (number, attempt) in attempts.clone().enumerate().skip(1) {
        attempt.each_row_in(from, |row| later.note(number, &flat(&row)))?;
    }
    for (number, attempt) in attempts.enumerate() {
        attempt.each_row_in(from, |row| {
            let mut line = flat(&row);
            later.leave(number, &mut line);
            if !line.is_empty() {
                with(line);
            }
        })?;
    }
    Ok(())
}

fn flat(row: &Map<String, Value>) -> Line {
    let mut out = Vec::with_capacity(row.len());
    for (key, value) in row {
        leaves(key, value, &mut out);
    }
    out
}

/// The members that name the step and the rank of a line.
const PLACE: [&str; 3] = ["rank", "epoch", "step"];

/// A rank's step, as bits of its numbers; `None` where a line is about none.
type Step = [Option<u64>; 3];

fn step(line: &Line) -> Option<Step> {
    let bits = |name: &str| {
        let value = line.iter().find(|(other, _)| other == name);
        value.and_then(|(_, value)| value.as_f64()).map(f64::to_bits)
    };
    let step = PLACE.map(bits);
    (step[1].is_some() || step[2].is_some()).then_some(step)
}

/// The last attempt that has logged a value of a step.
#[derive(Default)]
struct Later {
    names: HashMap<String, u32>,
    last: HashMap<(Step, u32), usize>,
}

impl Later {
    fn note(&mut self, attempt: usize, line: &Line) {
        let Some(step) = step(line) else { return };
        for (name, _) in line.iter().filter(|(name, _)| !PLACE.contains(&name.as_str())) {
            let next = self.names.len() as u32;
            let number = match self.names.get(name) {
                Some(number) => *number,
                None => *self.names.entry(name.clone()).or_insert(next),
            };
            self.last.insert((step, number), attempt);
        }
    }

    /// Removes from a line the values that a later attempt has logged again; the whole line, if only its step and
    /// rank are left.
    fn leave(&self, attempt: usize, line: &mut Line) {
        let Some(step) = step(line).filter(|_| !self.last.is_empty()) else { return };
        let is_place = |name: &str| PLACE.contains(&name);
        let is_superseded = |name: &str| {
            let last = self.names.get(name).and_then(|number| self.last.get(&(step, *number)));
            !is_place(name) && last.is_some_and(|last| *last > attempt)
        };
        let before = line.len();
        line.retain(|(name, _)| !is_superseded(name));
        if line.len() < before && line.iter().all(|(name, _)| is_place(name)) {
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The curve of attempts with these lines.
    fn check(attempts: &[&[Value]], expected: &[Value]) {
        let lines = |rows: &[Value]| -> Vec<Line> {
            rows.iter().map(|row| flat(row.as_object().unwrap())).collect()
        };
        let mut later = Later::default();
        for (number, rows) in attempts.iter().enumerate().skip(1) {
            lines(rows).iter().for_each(|line| later.note(number, line));
        }
        let mut curve = Vec::new();
        for (number, rows) in attempts.iter().enumerate() {
            for mut line in lines(rows) {
                later.leave(number, &mut line);
                curve.extend((!line.is_empty()).then_some(line));
            }
        }
        assert_eq!(curve, lines(expected));
    }

    #[test]
    fn a_later_value_of_the_same_step_wins() {
        let at = |step: u32, loss: f64| json!({"step": step, "loss": loss});
        check(
            &[&[at(1, 9.0), at(2, 8.0), at(3, 7.0)], &[at(2, 4.0), at(3, 3.0)], &[at(3, 1.0)]],
            &[at(1, 9.0), at(2, 4.0), at(3, 1.0)],
        );
        // Values that only the earlier attempt has logged stay, and so do lines without a step.
        let both = json!({"step": 2, "loss": 8, "acc": 0.5});
        check(
            &[&[at(1, 9.0), both, json!({"note": "a"})], &[json!({"note": "b"}), at(2, 4.0)]],
            &[
                at(1, 9.0),
                json!({"step": 2, "acc": 0.5}),
                json!({"note": "a"}),
                json!({"note": "b"}),
                at(2, 4.0),
            ],
        );
    }

    #[test]
    fn a_step_is_that_of_its_epoch_and_rank_and_whole_within_an_attempt() {
        let at = |epoch: u32, step: u32, rank: u32| json!({"epoch": epoch, "step": step, "rank": rank, "x": 1});
        let first = [at(0, 0, 0), at(0, 0, 1), at(1, 0, 0)];
        let second = [at(1, 0, 0), at(1, 0, 0)];
        check(&[&first, &second], &[at(0, 0, 0), at(0, 0, 1), at(1, 0, 0), at(1, 0, 0)]);
        // 1 and 1.0 are the same step.
        check(
            &[&[json!({"epoch": 1, "a": {"b": 2}})], &[json!({"epoch": 1.0, "a": {"b": 3}})]],
            &[json!({"epoch": 1.0, "a": {"b": 3}})],
        );
    }
}
