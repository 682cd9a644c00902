//! A rank other than 0: runs the same program, sends its output and its end to rank 0, and leaves when rank 0
//! asks it to. It writes nothing into the results tree.

use std::fs::File;
use std::process::Child;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::base::cause::{self, Cause, Why};
use crate::base::fault::{self, Fault, Kind};
use crate::base::host::signal::Signals;
use crate::base::host::{clock, process, vars};
use crate::cluster::rank;
use crate::run::worker::Job;
use crate::run::worker::limits::clock_of;
use crate::run::worker::process::child::{self, Happening, Termination};
use crate::run::worker::process::meter::Meter;
use crate::run::worker::process::prepare::Prepared;
use crate::run::worker::process::program::{self, Program};
use crate::run::worker::process::{output, prepare};
use crate::run::worker::ranks::peers::{self, Asked, Down, Line, Meanwhile, Up};
use crate::run::worker::record::room;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::tree::records::Used;

/// Runs a rank to its end; returns its exit code.
///
/// # Errors
/// When rank 0 cannot be found.
pub(crate) fn run(job: &Job, signals: &mut Signals) -> Result<i32> {
    let world = job.world;
    let name = peers::meeting_name(&job.vars, job.row.id)?;
    let deadline = prepare::rendezvous_deadline(&job.vars);
    let mut probe = room::Probe::new(job, deadline);
    let meanwhile = || match signals.next(Duration::ZERO) {
        Some(signal) if signal != Signal::SIGCHLD => Meanwhile::Told,
        _ if probe.is_full() => Meanwhile::Delayed,
        _ => Meanwhile::Nothing,
    };
    let dir = job.tree.dir().join("meet");
    let node = vars::node_identity(&job.vars);
    let seat = peers::Seat { host: &job.host, node: &node };
    let (line, inbox) = peers::join(&dir, &name, job.rank.rank, world, seat, deadline, meanwhile)?;
    // The exit code of its program, once that has ended.
    let mut ended = None;
    let mut told = None;
    loop {
        match next(&inbox, signals, &mut told, ended.is_some()) {
            Some(Down::Begin { attempt, addr, port, hosts }) if told.is_none() => {
                let own_rank = job.rank.clone().placed(&hosts, &job.host);
                let torch = rank::torch_env(&own_rank, &addr, port);
                ended = Some(one(job, attempt, &torch, &line, &inbox, signals));
            }
            Some(Down::Stop) => {}
            Some(Down::Refused { reason }) => {
                return Err(Fault::new(Kind::Trials, format!("rank 0 refused this rank: {reason}"))
                    .hint("`hpcsweep worker --explain` under the same launcher shows where ranks come from")
                    .into());
            }
            // The launcher passes on one of all exit codes; this one is for the job's script.
            Some(Down::Leave { code }) if job.stopped == Some(code) => return Ok(code),
            Some(Down::Leave { code }) => {
                return Ok(if code == 0 { 0 } else { ended.unwrap_or(0).max(code.min(1)) });
            }
            Some(Down::Begin { .. }) | None => return Ok(job.exit_code(1, told)),
        }
    }
}

/// The next message of rank 0; `None` when it is gone. Where this worker is asked to stop, by the signal in `told`, before its
/// program has begun, also `None`. Once that has ended (`has_ended`), rank 0 decides when the ranks leave: it may wait for the
/// preemption of the job, and a launcher ends all ranks when one leaves.
fn next(
    inbox: &Receiver<Down>,
    signals: &mut Signals,
    told: &mut Option<Signal>,
    has_ended: bool,
) -> Option<Down> {
    loop {
        match inbox.recv_timeout(Duration::from_millis(100)) {
            Ok(said) => return Some(said),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                *told = told.or_else(|| child::pending(signals, Duration::ZERO, None));
                if told.is_some() && !has_ended {
                    return None;
                }
            }
        }
    }
}

/// Runs the program of an attempt and reports to rank 0 how it has ended; returns its exit code.
fn one(
    job: &Job,
    number: u32,
    torch: &[(&'static str, String)],
    line: &Line,
    inbox: &Receiver<Down>,
    signals: &mut Signals,
) -> i32 {
    let broken = |Why { cause, words }: Why| {
        line.say(&Up::Broken { reason: words, cause: Some(cause) });
        1
    };
    let mut started = match Started::new(job, number, torch, line) {
        Ok(started) => started,
        Err(reason) => return broken(reason),
    };
    match started.run(job, line, inbox, signals) {
        Ok((ended, code)) => {
            line.say(&ended);
            code
        }
        Err(reason) => broken(reason),
    }
}

/// The program of a rank, and what was made for it.
struct Started {
    prepared: Prepared,
    program: Program,
    at: Instant,
    meter: Meter,
    readers: Vec<JoinHandle<()>>,
    /// Whether rank 0's helper hands over the metric lines that all ranks have in common.
    is_synced: bool,
}

impl Started {
    /// Prepares and starts it; the error is for rank 0.
    fn new(
        job: &Job,
        number: u32,
        torch: &[(&'static str, String)],
        line: &Line,
    ) -> Result<Self, Why> {
        let why = |error: &anyhow::Error| Why::new(fault::cause(error), format!("{error:#}"));
        let of_fault = |fault: Fault| why(&fault.into());
        let mut prepared = prepare::prepare(job, number, torch).map_err(|error| why(&error))?;
        let nowhere = File::options().append(true).open("/dev/null");
        let nowhere = nowhere.map_err(|_| Why::new(Cause::Unknown, "cannot open /dev/null"))?;
        let at = clock::awake();
        let is_synced = prepared.sync.is_some();
        let meter = Meter::of_rank(job);
        prepared.limit(clock_of(job).deadline);
        let mut program = Program::start(&mut prepared, true, &nowhere).map_err(of_fault)?;
        let says = line.clone();
        let piped = output::pipe_lines(&mut program.child, move |text| {
            says.say(&Up::Line { text: text.to_owned() });
        });
        let readers = piped.map_err(|fault| {
            process::kill_group(&program.child, Signal::SIGKILL);
            program.ended(false);
            of_fault(fault)
        })?;
        Ok(Self { prepared, program, at, meter, readers, is_synced })
    }

    /// Waits for its end, and for its helper. Returns the report for rank 0, and the exit code. The error is that of
    /// the helper.
    fn run(
        &mut self,
        job: &Job,
        line: &Line,
        inbox: &Receiver<Down>,
        signals: &mut Signals,
    ) -> Result<(Up, i32), Why> {
        let Self { prepared, program, meter, is_synced, .. } = self;
        let told = || {
            matches!(
                inbox.try_recv(),
                Ok(Down::Stop | Down::Leave { .. } | Down::Refused { .. })
                    | Err(TryRecvError::Disconnected)
            )
        };
        let Program { child, helper } = program;
        let clock = child::Clock { helper: helper.as_ref().map(Child::id), ..clock_of(job) };
        let (at, is_synced) = (self.at, *is_synced);
        let mut ended =
            child::wait(child, at, signals, clock, meter, |happening| match happening {
                Happening::Tick => {
                    hand_over(prepared, line, is_synced, false);
                    if helper.as_mut().is_some_and(program::is_gone) {
                        return Some(Stop::Helper);
                    }
                    told().then_some(Stop::Peer)
                }
                Happening::Stopping(_) => None,
            });
        ended.exit = prepared.exit(ended.exit);
        if ended.stop.is_none() {
            // Rank 0 decides about a program that has declared its end.
            ended.stop = child::overheard(&ended, false, signals, &clock);
        }
        let well = ended.exit.code == 0 && ended.stop.is_none();
        program.ended(well);
        output::drain(&self.readers);
        hand_over(prepared, line, is_synced, true);
        let mut late = None;
        let carried = program.wait_for_helper(|| {
            late = late.or_else(|| child::pending(signals, Duration::ZERO, None));
            well && late.is_none() && !told()
        });
        ended.stop = ended.stop.or(late.map(Stop::Signal));
        if (well && !carried && late.is_none()) || ended.stop == Some(Stop::Helper) {
            let words = prepared.scratch.why_uncarried();
            return Err(Why::new(cause::log::of_reason(&words).unwrap_or(Cause::Unknown), words));
        }
        if let Some(text) = prepared.scratch.complaints() {
            line.say(&Up::Line { text: format!("hpcsweep: {text}") });
        }
        let used = meter.end(ended.spent, prepared.gpu_usage());
        Ok((report(job, prepared, &ended, used, well), ended.exit.code))
    }
}

/// Sends metric lines to rank 0: all of them, where they are the `last`.
fn hand_over(prepared: &mut Prepared, line: &Line, is_synced: bool, last: bool) {
    loop {
        let is_last = last && (is_synced || !prepared.has_more_metrics());
        let rows = match is_synced {
            true => prepared.take_samples(is_last),
            false => prepared.take_metrics(is_last),
        };
        if !rows.is_empty() {
            line.say(&Up::Metrics { rows });
        }
        if is_last == last {
            return;
        }
    }
}

/// The report on an end for rank 0.
fn report(job: &Job, prepared: &mut Prepared, ended: &Termination, used: Used, well: bool) -> Up {
    let exit = ended.exit;
    let memory = || {
        let why = prepared.memory.why(exit.signal, used.memory, job.resources.memory_mib)?;
        Some(Why::new(Cause::OutOfMemory, why))
    };
    let own = |words: String| {
        let of_exit = if exit.signal.is_some() { Cause::Signal } else { Cause::ExitCode };
        Why::new(cause::log::of_reason(&words).unwrap_or(of_exit), words)
    };
    let seen = || memory().or_else(|| prepared.why_set_up_alone());
    let why = prepared.scratch.take_reason().map(own).or_else(seen).filter(|_| !well);
    let (cause, reason) = why.map(|why| (why.cause, why.words)).unzip();
    let stop = match ended.stop {
        Some(Stop::Peer) => Some(Asked::Rank0),
        Some(Stop::Signal(_)) => Some(Asked::Signal),
        Some(_) => Some(Asked::Deadline),
        None => prepared.scratch.is_gone().then_some(Asked::Robbed),
    };
    let ago_s = ended.at.elapsed().as_secs_f64();
    let handler = exit.has_handler;
    Up::Ended { code: exit.code, signal: exit.signal, stop, reason, cause, handler, ago_s, used }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    /// Whether a signal waits for a thread of this process.
    fn is_pending(thread: i32, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigPnd:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as u32 - 1)) != 0
    }

    #[test]
    fn a_signal_ends_a_rank_that_waits_for_its_beginning_and_no_rank_whose_program_has_ended() {
        let mut signals = Signals::listen(&[Signal::SIGUSR2]).unwrap();
        let (to_rank, inbox) = std::sync::mpsc::channel();
        let mut told = None;
        raise(Signal::SIGUSR2).unwrap();
        assert!(next(&inbox, &mut signals, &mut told, false).is_none());
        assert_eq!(told.take(), Some(Signal::SIGUSR2));

        raise(Signal::SIGUSR2).unwrap();
        let own = nix::unistd::gettid().as_raw();
        let rank_0 = std::thread::spawn(move || {
            while is_pending(own, Signal::SIGUSR2) {
                std::thread::yield_now();
            }
            to_rank.send(Down::Leave { code: 3 }).unwrap();
        });
        let said = next(&inbox, &mut signals, &mut told, true);
        assert!(matches!(said, Some(Down::Leave { code: 3 })) && told.is_some());
        rank_0.join().unwrap();
        assert!(next(&inbox, &mut signals, &mut told, true).is_none());
    }
}
