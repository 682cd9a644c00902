//! `hpcsweep-worker sync FILE`: the MPI process beside a program that is not one. It carries out the
//! program's requests over its socket (docs/sync-protocol.md), and reduces the metric lines of all ranks.
//!
//! Ranks act in rounds: each announces what it has (a request, lines, an end), and all ranks do what all of
//! them have. Between rounds they sleep, because the cores belong to the programs.

use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hpcsweep::base::fault::{Fault, Kind};
use hpcsweep::base::host::signal::Signals;
use hpcsweep::base::host::{disk, process, threads};
use hpcsweep::run::sync::absent;
use hpcsweep::run::sync::frame::{Answer, Request};
use hpcsweep::run::sync::peers::Peers;
use hpcsweep::run::sync::serve::serve_one;
use hpcsweep::run::worker::process::heavy::SyncJob;
use hpcsweep::run::worker::process::lines::Lines;
use hpcsweep::run::worker::ranks::rows;
use hpcsweep::sweep::tree::records::UNREAD;
use nix::sys::signal::Signal;
use serde_json::{Map, Value};

use crate::end;
use crate::mpi::World;

/// How long a rank with nothing to do sleeps, at most.
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// A rank's announcement at the beginning of a round: a byte of flags (it has a request; its program has ended; it will
/// make no more requests), from the fifth on how many lines it has, and from the ninth on how many lines of its program
/// could not be read so far.
const PENDING: u8 = 1;
const ENDED: u8 = 2;
const SILENT: u8 = 4;
const SAID: usize = 16;

/// The verb: serves the program of the job in this file to its end.
pub(crate) fn main(file: &Path) -> ExitCode {
    let job = disk::read_bytes(file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    let job: SyncJob = match job {
        Ok(job) => job,
        Err(error) => end::fail(Path::new(""), &format!("{error:#}")),
    };
    end::arm(&job.reason);
    match run(&job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end::fail(&job.reason, &format!("{error:#}")),
    }
}

/// Serves one rank's program to its end.
///
/// # Errors
/// When MPI does not see the ranks that the launcher started, or one of them is gone.
fn run(job: &SyncJob) -> Result<()> {
    let mut signals = Signals::listen(&[Signal::SIGUSR1])?;
    let socket = process::take_stdin_socket()
        .map_err(|e| Fault::machine(format!("no socket to the program: {}", disk::reason(&e))))?;
    let mut world = crate::launch::start(job.rank, job.world, &job.host, &job.reason)?;
    let mut served = Served {
        requests: listen(socket.try_clone()?)?,
        socket,
        pending: None,
        lines: Lines::of(job.metrics.clone()),
        rows: VecDeque::new(),
        ended: false,
        silent: false,
        closed_at: None,
    };
    let (mut nap, mut told) = (Duration::ZERO, 0);
    loop {
        served.look(&mut signals, nap, job.rank, job.world);
        let flags = exchange(&mut world, served.say(), served.pending.is_some())?;
        let mut moved = false;
        let is = |rank: &[u8; SAID], flag: u8| rank[0] & flag != 0;
        if flags.iter().any(|r| is(r, PENDING)) && flags.iter().all(|r| is(r, PENDING | SILENT)) {
            served.sync(&mut world)?;
            moved = true;
        }
        let lines = common_lines(&flags);
        if lines > 0 {
            served.reduce(&mut world, job, lines)?;
            moved = true;
        }
        let unread = flags.iter().map(unread_of).sum();
        if job.rank == 0 && unread > told {
            let row = Map::from_iter([(UNREAD.to_owned(), Value::from(unread - told))]);
            disk::append(&job.reduced, format!("{}\n", Value::Object(row)).as_bytes())?;
            told = unread;
        }
        if flags.iter().all(|r| is(r, ENDED) && !is(r, PENDING) && lines_of(r) == 0) {
            if let Some(text) = served.lines.complaint() {
                disk::write_whole(&job.odd, text.as_bytes())?;
            }
            world.finish()?;
            return Ok(());
        }
        // A program that has just synced may do so again at once.
        nap = if moved { FIRST_NAP } else { (nap * 2).clamp(FIRST_NAP, LONGEST_NAP) };
    }
}

/// Lines that wait for those of the other ranks.
const MOST_ROWS: usize = 100_000;

const FIRST_NAP: Duration = Duration::from_micros(500);

/// The error of the other ranks about a rank that makes no more requests. The socket closes first and the
/// worker's message comes after it, so that nothing more precise can be reported at once.
const SILENCE: &str = "its program has ended or closed the socket";

/// How long a worker may take to report the end of a program whose socket is closed.
const TO_SAY_HOW: Duration = Duration::from_millis(500);

/// How many lines all ranks have that still write any.
fn common_lines(said: &[[u8; SAID]]) -> u32 {
    let writing = said.iter().filter(|r| r[0] & ENDED == 0 || lines_of(r) > 0);
    writing.map(lines_of).min().unwrap_or(0)
}

fn lines_of(said: &[u8; SAID]) -> u32 {
    u32::from_le_bytes([said[4], said[5], said[6], said[7]])
}

fn unread_of(said: &[u8; SAID]) -> u64 {
    said[8..].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The announcements of all ranks in this round.
fn exchange(world: &mut World, mine: [u8; SAID], eager: bool) -> Result<Vec<[u8; SAID]>, Fault> {
    let rank_flags = world.all_gather_quietly(&mine, |looks| {
        // A program that waits for its sync is worth a spin: the others are about to ask too.
        Ok(match looks {
            0..2000 if eager => Duration::ZERO,
            0..20 => Duration::from_micros(50),
            20..100 => Duration::from_micros(500),
            _ => Duration::from_millis(2),
        })
    })?;
    Ok(rank_flags
        .chunks_exact(SAID)
        .map(|one| <[u8; SAID]>::try_from(one).unwrap_or_default())
        .collect())
}

/// One rank's program, as its helper sees it.
struct Served {
    requests: Receiver<Request>,
    socket: UnixStream,
    pending: Option<Request>,
    lines: Lines,
    rows: VecDeque<Map<String, Value>>,
    ended: bool,
    /// Whether there will be no more requests.
    silent: bool,
    /// When the socket was at its end.
    closed_at: Option<Instant>,
}

/// Reads requests beside the thread that owns MPI.
fn listen(mut socket: UnixStream) -> Result<Receiver<Request>, Fault> {
    let (sender, receiver) = mpsc::channel();
    threads::start("requests", move || {
        loop {
            match Request::read(&mut socket) {
                Ok(Some(request)) => {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(fault) => {
                    let _ = sender.send(Request::Broken(fault.sentence));
                    return;
                }
            }
        }
    })?;
    Ok(receiver)
}

impl Served {
    /// Takes in what the program has done, waiting for a request no longer than `nap`.
    fn look(&mut self, signals: &mut Signals, nap: Duration, rank: u32, world: u32) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Answer::Hello { rank, world, version };
        while signals.next(Duration::ZERO).is_some() {
            self.ended = true;
            self.silent = true;
        }
        if self.pending.is_none() {
            match self.requests.recv_timeout(nap) {
                // Who a rank is it knows by itself.
                Ok(Request::Hello) => self.answer(&hello),
                Ok(request) => self.pending = Some(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.closed();
                    std::thread::sleep(nap);
                }
            }
        }
        while self.rows.len() < MOST_ROWS {
            let is_last = self.ended && !self.lines.has_more();
            self.rows.extend(self.lines.take(is_last));
            if is_last == self.ended {
                break;
            }
        }
    }

    /// No request can come any more. Usually the program has ended, and its worker is about to say how: if
    /// badly, the trial ends for that reason and not for a sync that failed because of it.
    fn closed(&mut self) {
        if self.silent {
            return;
        }
        match self.closed_at {
            None => {
                self.closed_at = Some(Instant::now());
                // A program that still writes must not wait for an answer.
                let _ = self.socket.shutdown(Shutdown::Both);
            }
            Some(at) if at.elapsed() < TO_SAY_HOW => {}
            Some(_) => self.silent = true,
        }
    }

    fn say(&self) -> [u8; SAID] {
        let mut own_flags = [0; SAID];
        own_flags[0] = if self.pending.is_some() { PENDING } else { 0 };
        own_flags[0] |= if self.ended { ENDED } else { 0 };
        own_flags[0] |= if self.silent { SILENT } else { 0 };
        let lines = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        own_flags[4..8].copy_from_slice(&lines.to_le_bytes());
        own_flags[8..].copy_from_slice(&self.lines.left_out().to_le_bytes());
        own_flags
    }

    /// Carries out one request, together with all ranks.
    fn sync(&mut self, world: &mut World) -> Result<(), Fault> {
        let Some(request) = self.pending.take() else {
            absent(world, SILENCE)?;
            return Ok(());
        };
        let answer = serve_one(world, request);
        self.answer(&answer);
        match answer {
            // A rank is gone: nothing more can be synced.
            Answer::Failed(fault) if fault.kind == Kind::Machine => Err(fault),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, answer: &Answer) {
        // The program ended while it was served: its worker reports its end.
        let _ = answer.write(&mut self.socket).and_then(|()| self.socket.flush());
    }

    /// Reduces so many lines of each rank that has any; rank 0 writes them.
    fn reduce(&mut self, world: &mut World, job: &SyncJob, lines: u32) -> Result<()> {
        let lines = (lines as usize).min(self.rows.len());
        let mine: Vec<Map<String, Value>> = self.rows.drain(..lines).collect();
        let mine = serde_json::to_vec(&mine)?;
        let size = world.size() as usize;
        let mut lens = vec![0; 8 * size];
        world.all_gather(&(mine.len() as u64).to_le_bytes(), &mut lens)?;
        let lens: Vec<usize> = lens
            .chunks_exact(8)
            .map(|len| <[u8; 8]>::try_from(len).map_or(0, u64::from_le_bytes) as usize)
            .collect();
        let mut gathered = vec![0; lens.iter().sum()];
        world.all_gather_pieces(&mine, &lens, &mut gathered)?;
        if world.rank() > 0 {
            return Ok(());
        }
        let mut unread = gathered.as_slice();
        let mut ranks: Vec<VecDeque<Map<String, Value>>> = Vec::new();
        for len in lens {
            let (piece, after) = unread.split_at(len);
            ranks.push(serde_json::from_slice(piece)?);
            unread = after;
        }
        let mut text = Vec::new();
        loop {
            let row: Vec<_> = ranks.iter_mut().filter_map(VecDeque::pop_front).collect();
            if row.is_empty() {
                break;
            }
            serde_json::to_writer(&mut text, &rows::reduce(&row, &job.reduce))?;
            text.push(b'\n');
        }
        disk::append(&job.reduced, &text)
    }
}
