//! The end of what runs in a slot, and the moment after it in which a signal may still come that explains it.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Ended, MARK, Program, Running, Slot, Why};
use crate::host::process;
use crate::worker::prepare::Prepared;
use crate::worker::starting;
use crate::worker::stopped::{self, Leave};

impl Ended {
    /// The same for [`stopped::moment`].
    fn leave(&self, is_declared: bool) -> Leave {
        let ran = Duration::try_from_secs_f64(self.duration_s).unwrap_or_default();
        let Self { code, signal, has_handler, .. } = *self;
        Leave { code, signal, ran, has_handler, is_declared }
    }
}

impl Slot {
    /// What ran, if it has ended and no signal may yet come that explains it; `why` the agent stops, if it does,
    /// and `others` are processes of other slots.
    pub(super) fn bury(
        &mut self,
        others: &[u32],
        why: Option<Why>,
    ) -> Option<(Running<Program>, Ended)> {
        let (ended, until) = match self.running.as_ref()?.work.over {
            Some(over) => over,
            None => {
                let ended = self.look(others)?;
                let program = &mut self.running.as_mut()?.work;
                program.result = program.prepared.scratch.take_result();
                let until =
                    Instant::now() + stopped::moment(&ended.leave(program.result.is_some()));
                *program.over.insert((ended, until))
            }
        };
        let running = self.running.as_mut()?;
        let told = why.filter(|why| matches!(why, Why::Signal(_) | Why::Fenced));
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

    /// Why a program that says nothing has failed, where the machine does.
    pub(super) fn why_failed(&self, ended: Ended, prepared: &Prepared) -> Option<String> {
        if ended.code == 0 {
            return None;
        }
        let asked = self.job.resources.memory_mib;
        let memory = prepared.memory.why(ended.signal, ended.peak_memory, asked);
        let Prepared { argv, workdir, env, .. } = prepared;
        let program = &argv[if self.job.head.setup.is_some() { 2 } else { 0 }];
        memory.or_else(|| starting::said_by_shell(ended.code, program, workdir, env))
    }

    /// How the program has ended, if it has.
    fn look(&self, others: &[u32]) -> Option<Ended> {
        let running = self.running.as_ref()?;
        let pid = running.work.pid;
        let has_handler = process::has_ended(pid, &[Signal::SIGTERM, Signal::SIGUSR2])?;
        let (status, peak_memory) = match process::reap(pid) {
            Ok(None) => return None,
            Ok(Some(ended)) => ended,
            // Gone, and nobody can say how.
            Err(_) => (std::process::ExitStatus::from_raw(0x100), 0),
        };
        let duration_s = (running.since.elapsed().as_secs_f64() * 1e6).round() / 1e6;
        process::signal_group(pid, Signal::SIGKILL);
        process::end_marked(others, MARK, &self.mark);
        let len = self.log.as_ref().and_then(|log| log.metadata().ok()).map_or(0, |m| m.len());
        let log =
            len.checked_sub(running.work.from).filter(|n| *n > 0).map(|n| (running.work.from, n));
        let code = process::code_of(status);
        Some(Ended { code, signal: status.signal(), duration_s, peak_memory, log, has_handler })
    }
}
