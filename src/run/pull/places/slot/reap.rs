//! The end of what runs in a slot, and the moment after it in which a signal may still come that explains it.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Exited, Program, Running, Slot, Stop};
use crate::base::host::clock;
use crate::base::host::process::{self, Spent};
use crate::run::pull::places::guard::MARK;
use crate::sweep::attempt::exit::Exit;

impl Slot {
    /// What ran, if it has ended and no signal may yet come that explains it; `why` the agent stops, if it does,
    /// and `others` are processes of other slots.
    pub(crate) fn bury(
        &mut self,
        others: &[u32],
        why: Option<Stop>,
    ) -> Option<(Running<Program>, Exited)> {
        let (ended, until) = match self.running.as_ref()?.work.over.clone() {
            Some(over) => over,
            None => {
                let ended = self.look(others)?;
                let program = &mut self.running.as_mut()?.work;
                program.prepared.scratch.close();
                program.result = program.prepared.scratch.take_result();
                let has_left = program.is_warned && ended.exit.is_leave(program.result.is_some());
                let until = Instant::now() + ended.exit.moment(program.result.is_some());
                let over = program.over.insert((ended, until)).clone();
                if has_left {
                    let why = self.what_was_due();
                    let running = self.running.as_mut()?;
                    running.stop.get_or_insert((why, Instant::now()));
                }
                over
            }
        };
        let running = self.running.as_mut()?;
        let told = why.filter(|why| matches!(why, Stop::Signal(_) | Stop::Fenced));
        running.stop = running.stop.or(told.map(|why| (why, Instant::now())));
        if running.stop.is_none() && Instant::now() < until {
            return None;
        }
        // They are taken a megabyte at a time.
        if why.is_none() && running.work.prepared.has_more_metrics() {
            return None;
        }
        Some((self.running.take()?, ended))
    }

    /// Which time the signal of the plan has come before: the trial's own, or that of the allocation.
    fn what_was_due(&self) -> Stop {
        let own = self.running.as_ref().and_then(Running::until_due);
        let any = self.deadline.map(|at| at.saturating_duration_since(clock::awake()));
        let is_own = own.zip(any).is_some_and(|(own, any)| own <= any + Duration::from_secs(1));
        if is_own { Stop::Walltime } else { Stop::Allocation }
    }

    /// How the program has ended, if it has.
    fn look(&mut self, others: &[u32]) -> Option<Exited> {
        let running = self.running.as_mut()?;
        let pid = running.work.pid;
        let has_handler = process::has_ended(pid, &[Signal::SIGTERM, Signal::SIGUSR2])?;
        let (status, spent) = match process::reap(pid) {
            Ok(None) => return None,
            Ok(Some(ended)) => ended,
            // The process is gone, and its status is unknown.
            Err(_) => (std::process::ExitStatus::from_raw(0x100), Spent::default()),
        };
        let exit = Exit::of(status, running.since.elapsed(), has_handler);
        let exit = running.work.prepared.exit(exit);
        process::end_but_filters(others, Some((MARK, &self.mark)));
        process::signal_group(pid, Signal::SIGKILL);
        let spent = spent.and(process::end_marked(others, MARK, &self.mark));
        let len = self.log.as_ref().and_then(|log| log.metadata().ok()).map_or(0, |m| m.len());
        let log =
            len.checked_sub(running.work.from).filter(|n| *n > 0).map(|n| (running.work.from, n));
        // The GPUs are asked until the end of the trial is recorded.
        let used = running.work.meter.end(spent, Vec::new());
        Some(Exited { exit, used: Some(used), log })
    }
}
