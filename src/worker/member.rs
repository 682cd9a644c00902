//! A rank other than 0: runs the same program, sends what it prints and how it ends to rank 0, and
//! leaves when rank 0 says so. It writes nothing into the results tree.

use std::fs::File;
use std::io::Read;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::child::{self, Happening, Stop};
use super::peers::{self, Asked, Down, Line, Up};
use super::{Job, clock_of, output, prepare};
use crate::host::signal::Signals;
use crate::rank;

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
    let (line, inbox) = peers::join(&dir, &name, job.rank.rank, world, &job.host, deadline, told)?;
    let mut own = 0;
    loop {
        match next(&inbox, signals) {
            Some(Down::Begin { attempt, addr, port }) => {
                own = one(job, attempt, &addr, port, &line, &inbox, signals);
            }
            Some(Down::Stop) => {}
            Some(Down::Leave { code }) => {
                return Ok(if code == 0 { 0 } else { own.max(code.min(1)) });
            }
            None => return Ok(1),
        }
    }
}

/// The next word of rank 0; `None` when it is gone or we are told to stop.
fn next(inbox: &Receiver<Down>, signals: &mut Signals) -> Option<Down> {
    loop {
        match inbox.recv_timeout(Duration::from_millis(100)) {
            Ok(said) => return Some(said),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                if signals.next(Duration::ZERO).is_some_and(|s| s != Signal::SIGCHLD) {
                    return None;
                }
            }
        }
    }
}

fn one(
    job: &Job,
    number: u32,
    addr: &str,
    port: u16,
    line: &Line,
    inbox: &Receiver<Down>,
    signals: &mut Signals,
) -> i32 {
    let torch = rank::torch_env(&job.rank, addr, port);
    let broken = |reason: String| {
        line.say(&Up::Broken { reason });
        1
    };
    let mut prepared = match prepare::prepare(job, number, &torch) {
        Ok(prepared) => prepared,
        Err(error) => return broken(format!("{error:#}")),
    };
    let Ok(nowhere) = File::options().append(true).open("/dev/null") else {
        return broken("cannot open /dev/null".into());
    };
    let launched = Instant::now();
    let mut program = match prepare::start_program(&prepared, Some(()), &nowhere) {
        Ok(program) => program,
        Err(fault) => return broken(fault.to_string()),
    };
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        program.stdout.take().map(|p| Box::new(p) as _),
        program.stderr.take().map(|p| Box::new(p) as _),
    ];
    let threads: Vec<_> = pipes
        .into_iter()
        .flatten()
        .map(|pipe| {
            let line = line.clone();
            std::thread::spawn(move || {
                output::each_line(pipe, |text| line.say(&Up::Line { text: text.to_owned() }));
            })
        })
        .collect();
    let ended =
        child::wait(&mut program, launched, signals, clock_of(job), |happening| match happening {
            Happening::Tick => {
                let rows = prepared.scratch.take_metrics(false);
                if !rows.is_empty() {
                    line.say(&Up::Metrics { rows });
                }
                match inbox.try_recv() {
                    Ok(Down::Stop | Down::Leave { .. }) | Err(TryRecvError::Disconnected) => {
                        Some(Stop::Peer)
                    }
                    Ok(Down::Begin { .. }) | Err(TryRecvError::Empty) => None,
                }
            }
            Happening::Stopping(_) => None,
        });
    output::drain(threads);
    let rows = prepared.scratch.take_metrics(true);
    if !rows.is_empty() {
        line.say(&Up::Metrics { rows });
    }
    let stop = ended.stop.map(|why| match why {
        Stop::Peer => Asked::Rank0,
        Stop::Signal(_) => Asked::Signal,
        Stop::Deadline => Asked::Deadline,
    });
    line.say(&Up::Ended { code: ended.code, signal: ended.signal, stop });
    ended.code
}
