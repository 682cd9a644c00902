//! What is recorded of trials that the caller runs, and when it is on disk.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::hand::{Hand, Settled};
use super::{Failure, News};
use crate::host::{disk, vars};
use crate::pull::claimer::Claimer;
use crate::pull::slot::{Ended, Role};
use crate::pull::verdict::{self, Next, Run, Verdict};
use crate::tree::bundle;
use crate::tree::records::Outcome;
use crate::worker::hooks::{self, Ending};

impl<T: FnMut(News<'_>)> Hand<T> {
    /// Writes down what waits to be.
    pub(super) fn save(&mut self) -> Result<()> {
        self.desk.claimer.flush()?;
        self.desk.claimer.deliver()?;
        self.desk.out_of_trouble();
        if !self.desk.claimer.is_fenced()
            && let Some(settled) = self.unsaved.take()
        {
            self.saved = Some(settled);
        }
        self.ring()
    }

    /// Has the plan's hooks called for trials that have ended for good.
    fn ring(&mut self) -> Result<()> {
        for (_, row, end) in self.desk.bells.drain(..) {
            let Claimer { tree, name, .. } = &self.desk.claimer;
            let head = self.desk.claimer.head_of(row.id)?;
            if head.run.hooks.is_default() {
                continue;
            }
            let log = bundle::path(tree, name, "0.log");
            let log_tail = end.log.map_or_else(String::new, |(from, len)| {
                let most = len.min(2 * hooks::TAIL_BYTES as u64);
                hooks::log_tail(&disk::read_at(&log, from + len - most, most).unwrap_or_default())
            });
            let (end, host) = (end.into(), &vars::node_name(&self.vars));
            self.hooks
                .ring(&Ending { tree, head, row: &row, end: &end, host, log_tail }, &self.vars);
        }
        let stops = self.desk.leaving.as_ref().is_some_and(|leaving| leaving.stop.is_some());
        if self.hooks.look() && stops {
            self.hooks.give_up();
        }
        Ok(())
    }

    /// Records how the attempt ended that the caller runs, unless that is nobody's business any more.
    pub(super) fn settle(
        &mut self,
        result: Result<Value, Failure>,
        seconds: Option<f64>,
    ) -> Result<()> {
        let Some(busy) = &mut self.busy else { return Ok(()) };
        let (trial, attempt) = (busy.trial, busy.attempt);
        let why = busy.stop.map(|(why, _)| why);
        let run = Run { trial, attempt, seq: busy.seq, slot: 0 };
        let allowed = self.desk.claimer.head_of(trial)?.run.attempts;
        let Some(mut unit) = busy.unit.take() else { return Ok(()) };
        let ran = busy.since.elapsed();
        let seconds = seconds.unwrap_or_else(|| busy.since.elapsed().as_secs_f64());
        let mut ended = Ended {
            code: 0,
            signal: None,
            duration_s: (seconds * 1e6).round() / 1e6,
            peak_memory: 0,
            log: None,
            has_handler: false,
        };
        let mut verdict;
        let value = match result {
            Ok(value) => {
                // What a function returns is its word that it has finished.
                verdict = verdict::judge(ended, true, why, unit.tries, allowed);
                Some(value)
            }
            Err(failure) => {
                let code = failure.signal.map(|signal| 128 + signal).or(failure.exit_code);
                // A function that exits with 0 has no result all the same.
                ended.code = code.filter(|code| *code != 0).unwrap_or(1);
                ended.signal = failure.signal;
                ended.log = self.log(&failure.details);
                verdict = verdict::judge(ended, false, why, unit.tries, allowed);
                if failure.is_interrupted && verdict.state == Outcome::Failed {
                    let (state, next) = (Outcome::Interrupted, Next::Elsewhere);
                    verdict = Verdict { state, reason: None, next };
                }
                if verdict.reason.is_none() && !failure.reason.is_empty() {
                    verdict.reason = Some(failure.reason);
                }
                None
            }
        };
        self.desk.cut_off(&mut unit, why, ran, &mut verdict);
        self.unsaved = Some(Settled {
            trial,
            attempt,
            state: verdict.state,
            is_last: verdict.next == Next::Over,
        });
        self.desk.settle(Role::Unit(unit), run, verdict, ended, value)
    }

    /// How long the trial runs that the caller has.
    pub(super) fn ran(&self) -> Option<Duration> {
        self.busy.as_ref().map(|busy| busy.since.elapsed())
    }

    /// Writes the words of a failure into the agent's log: where they stand.
    fn log(&mut self, details: &str) -> Option<(u64, u64)> {
        if details.is_empty() {
            return None;
        }
        let claimer = &self.desk.claimer;
        let path = bundle::path(&claimer.tree, &claimer.name, "0.log");
        let mut text = details.to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        disk::append(&path, text.as_bytes()).ok()?;
        let (from, len) = (self.logged, text.len() as u64);
        self.logged += len;
        Some((from, len))
    }
}
