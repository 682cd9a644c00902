//! A rank other than 0: runs the same program, sends what it prints and how it ends to rank 0, and
//! leaves when rank 0 says so. It writes nothing into the results tree.

use std::fs::File;
use std::io::Read;
use std::process::Child;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::child::{self, Happening, Stop};
use super::limits::clock_of;
use super::peers::{self, Asked, Down, Line, Up};
use super::program::{self, Program};
use super::{Job, output, prepare};
use crate::fault::{Fault, Kind};
use crate::host::signal::Signals;
use crate::host::{process, threads, vars};
use crate::rank;
use crate::tree::records;

/// Runs a rank to its end; returns its exit code.
///
/// # Errors
/// When rank 0 cannot be found.
pub fn run(job: &Job, signals: &mut Signals) -> Result<i32> {
    let world = job.world;
    let name = peers::meeting_name(&job.vars, job.row.id)?;
    let deadline = prepare::rendezvous_deadline(&job.vars);
    let told = || signals.next(Duration::ZERO).is_some_and(|s| s != Signal::SIGCHLD);
    let dir = job.tree.dir().join("meet");
    let node = vars::node_identity(&job.vars);
    let seat = peers::Seat { host: &job.host, node: &node };
    let (line, inbox) = peers::join(&dir, &name, job.rank.rank, world, seat, deadline, told)?;
    let mut own = 0;
    loop {
        let mut told = None;
        match next(&inbox, signals, &mut told) {
            Some(Down::Begin { attempt, addr, port, hosts }) => {
                let own_rank = job.rank.clone().placed(&hosts, &job.host);
                let torch = rank::torch_env(&own_rank, &addr, port);
                own = one(job, attempt, &torch, &line, &inbox, signals);
            }
            Some(Down::Stop) => {}
            Some(Down::Refused { reason }) => {
                return Err(Fault::new(Kind::Trials, format!("rank 0 refused this rank: {reason}"))
                    .hint("`hpcsweep worker --explain` under the same launcher shows where ranks come from")
                    .into());
            }
            // Of all codes the launcher passes on one; this one is for the job's script.
            Some(Down::Leave { code }) if job.stopped == Some(code) => return Ok(code),
            Some(Down::Leave { code }) => {
                return Ok(if code == 0 { 0 } else { own.max(code.min(1)) });
            }
            None => return Ok(job.exit_code(1, told)),
        }
    }
}

/// The next word of rank 0; `None` when it is gone or we are told to stop.
fn next(inbox: &Receiver<Down>, signals: &mut Signals, told: &mut Option<Signal>) -> Option<Down> {
    loop {
        match inbox.recv_timeout(Duration::from_millis(100)) {
            Ok(said) => return Some(said),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                *told = child::pending(signals, Duration::ZERO, None);
                if told.is_some() {
                    return None;
                }
            }
        }
    }
}

fn one(
    job: &Job,
    number: u32,
    torch: &[(&'static str, String)],
    line: &Line,
    inbox: &Receiver<Down>,
    signals: &mut Signals,
) -> i32 {
    let broken = |reason: String| {
        line.say(&Up::Broken { reason });
        1
    };
    let mut prepared = match prepare::prepare(job, number, torch) {
        Ok(prepared) => prepared,
        Err(error) => return broken(format!("{error:#}")),
    };
    let Ok(nowhere) = File::options().append(true).open("/dev/null") else {
        return broken("cannot open /dev/null".into());
    };
    let launched = Instant::now();
    let synced = prepared.sync.is_some();
    let mut program = match Program::start(&mut prepared, true, &nowhere) {
        Ok(program) => program,
        Err(fault) => return broken(fault.to_string()),
    };
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        program.child.stdout.take().map(|p| Box::new(p) as _),
        program.child.stderr.take().map(|p| Box::new(p) as _),
    ];
    let readers: Result<Vec<_>, Fault> = pipes
        .into_iter()
        .flatten()
        .map(|pipe| {
            let line = line.clone();
            threads::start("output", move || {
                output::each_line(pipe, |text| line.say(&Up::Line { text: text.to_owned() }));
            })
        })
        .collect();
    let readers = match readers {
        Ok(readers) => readers,
        Err(fault) => {
            process::kill_group(&program.child, Signal::SIGKILL);
            program.ended(false);
            return broken(fault.to_string());
        }
    };
    // With a sync, rank 0's helper hands over what all ranks have in common.
    let mut hand_over = |last: bool| loop {
        let is_last = last && (synced || !prepared.has_more_metrics());
        let rows =
            if synced { prepared.take_samples(is_last) } else { prepared.take_metrics(is_last) };
        if !rows.is_empty() {
            line.say(&Up::Metrics { rows });
        }
        if is_last == last {
            return;
        }
    };
    let told = || {
        matches!(
            inbox.try_recv(),
            Ok(Down::Stop | Down::Leave { .. } | Down::Refused { .. })
                | Err(TryRecvError::Disconnected)
        )
    };
    let Program { child, helper } = &mut program;
    let clock = child::Clock { helper: helper.as_ref().map(Child::id), ..clock_of(job) };
    let mut ended = child::wait(child, launched, signals, clock, |happening| match happening {
        Happening::Tick => {
            hand_over(false);
            if helper.as_mut().is_some_and(program::is_gone) {
                return Some(Stop::Helper);
            }
            told().then_some(Stop::Peer)
        }
        Happening::Stopping(_) => None,
    });
    if ended.stop.is_none() {
        // What is declared is rank 0's to judge.
        ended.stop = child::overheard(&ended, false, signals, &clock);
    }
    let well = ended.code == 0 && ended.stop.is_none();
    program.ended(well);
    output::drain(readers);
    hand_over(true);
    let mut late = None;
    let carried = program.wait_for_helper(|| {
        late = late.or_else(|| child::pending(signals, Duration::ZERO, None));
        well && late.is_none() && !told()
    });
    ended.stop = ended.stop.or(late.map(Stop::Signal));
    if (well && !carried && late.is_none()) || ended.stop == Some(Stop::Helper) {
        let why = prepared.scratch.take_helper_reason();
        return broken(format!(
            "syncs over MPI: {}",
            why.unwrap_or_else(|| "the helper failed".to_owned())
        ));
    }
    if let Some(text) = prepared.scratch.complaints() {
        line.say(&Up::Line { text: format!("hpcsweep: {text}") });
    }
    let memory = || {
        let peak = process::peak_child_memory();
        let why = prepared.memory.why(ended.signal, peak, job.resources.memory_mib)?;
        let how = ended.signal.map(|signal| format!("{}: ", records::signal_text(signal)));
        Some(format!("{}{why}", how.unwrap_or_default()))
    };
    let reason = prepared.scratch.take_reason().or_else(memory).filter(|_| !well);
    let stop = match ended.stop {
        Some(Stop::Peer) => Some(Asked::Rank0),
        Some(Stop::Signal(_)) => Some(Asked::Signal),
        Some(Stop::Deadline | Stop::Helper) => Some(Asked::Deadline),
        None => prepared.scratch.is_gone().then_some(Asked::Robbed),
    };
    let ago_s = ended.at.elapsed().as_secs_f64();
    line.say(&Up::Ended { code: ended.code, signal: ended.signal, stop, reason, ago_s });
    ended.code
}
