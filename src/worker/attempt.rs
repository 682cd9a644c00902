//! One attempt of a trial, seen from rank 0: prepare, start, watch, record.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::child::{self, Ended, Happening, Stop};
use super::gather::Crew;
use super::granted;
use super::limits::clock_of;
use super::others::{Others, with_rank};
use super::output;
use super::peers::{self, Down};
use super::prepare::{self, Prepared, prepare};
use super::program::{self, LOST_PEERS, Program};
use super::recorder::Recorder;
use super::{Job, check_world, room, starting, stopped};
use crate::fault::Fault;
use crate::host::signal::Signals;
use crate::host::{clock, disk, process, vars};
use crate::rank;
use crate::tree::records::{End, Event, Outcome, Start};

/// Why a program may have failed that says nothing itself.
const NO_ROOM: &str = "the disk of the results was full when it ended";

/// How an attempt ended, for the one who decides what follows.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What was recorded.
    pub end: End,
    /// Exit code towards the scheduler.
    pub code: i32,
    /// Whether another attempt could end otherwise.
    pub retry: Retry,
    /// The signal that says that its job is about to end.
    pub told: Option<Signal>,
}

/// What another attempt of a trial that has failed takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It makes no sense, or is not wanted.
    No,
    /// The same workers may start their programs again.
    Here,
    /// An MPI library is wired up once a launch: the ranks must be launched anew.
    Relaunch,
}

/// Runs one attempt and records it.
///
/// # Errors
/// When the record cannot be written.
pub fn run(
    job: &Job,
    number: u32,
    recorder: &mut Recorder,
    crew: &mut Option<Crew>,
    signals: &mut Signals,
) -> Result<Verdict> {
    let trial = job.row.id;
    let world = job.world;
    let began = Instant::now();
    let (seq, behind) = (recorder.seq, recorder.behind);
    let start = |argv: Vec<String>, devices: Option<String>| {
        Event::Start(Start {
            trial,
            attempt: number,
            time: clock::now(),
            host: job.host.clone(),
            pid: std::process::id(),
            started: process::started(std::process::id().cast_signed()),
            job: job.job_id.clone(),
            ranks: world,
            argv,
            devices,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seq,
            behind,
        })
    };
    // In a job that is about to end nothing is begun, least of all another attempt.
    let mut heard = child::pending(signals, Duration::ZERO, None);
    let prepared = match heard {
        Some(_) => Err(anyhow::anyhow!("told to stop")),
        None => room::wait(job, signals, |signals| {
            gather_and_prepare(job, number, crew, signals, &mut heard)
        }),
    };
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) if error.is::<room::Told>() => return Err(error),
        Err(error) => {
            recorder.write(&start(Vec::new(), None))?;
            if let Some(signal) = heard {
                let (state, reason) = words_of(Stop::Signal(signal));
                let verdict = not_begun((trial, number), state, reason, 143, began, recorder)?;
                return Ok(Verdict { told: Some(signal), ..verdict });
            }
            let code = i32::from(crate::fault::exit_code(&error));
            return no_start(trial, number, &error, code, began, recorder);
        }
    };
    let begun = start(command_of(job, &prepared), prepared.devices.clone());
    room::wait(job, signals, |_| recorder.write(&begun))?;

    let log_path = job.tree.log(trial, recorder.run);
    let log = match room::wait(job, signals, |_| open_log(&log_path)) {
        Ok(log) => log,
        Err(error) => return no_start(trial, number, &error, 4, began, recorder),
    };
    let launched = Instant::now();
    let synced = prepared.sync.is_some();
    if synced {
        prepared.scratch.follow_reduced();
    }
    let own_rank = (world > 1 && !synced && job.head.run.train.is_none()).then_some(0);
    let started = Program::start(&mut prepared, world > 1, &log);
    let mut program = match started {
        Ok(program) => program,
        Err(error) => {
            if let Some(crew) = crew {
                crew.tell(&Down::Stop);
            }
            return no_start(trial, number, &error.into(), 127, began, recorder);
        }
    };
    let log = Arc::new(Mutex::new(log));
    let pipes = match world > 1 {
        true => output::pipe_lines(&mut program.child, "[rank 0] ", &log),
        false => Ok(Vec::new()),
    };
    let pipes = match pipes {
        Ok(pipes) => pipes,
        Err(fault) => {
            process::kill_group(&program.child, Signal::SIGKILL);
            program.ended(false);
            if let Some(crew) = crew {
                crew.tell(&Down::Stop);
            }
            return no_start(trial, number, &fault.into(), 4, began, recorder);
        }
    };

    let mut others = Others::new(world);
    let mut limits = clock_of(job);
    let Program { child, helper } = &mut program;
    limits.helper = helper.as_ref().map(std::process::Child::id);
    let mut ended = child::wait(child, launched, signals, limits, |happening| match happening {
        Happening::Tick => {
            recorder.beat();
            let rows = match recorder.has_unwritten() {
                true => prepared.take_samples(false),
                false => prepared.take_metrics(false),
            };
            recorder.metrics(trial, number, with_rank(rows, own_rank));
            if helper.as_mut().is_some_and(program::is_gone) {
                return Some(Stop::Helper);
            }
            let crew = crew.as_mut()?;
            others.hear(crew, &log, |rows| recorder.metrics(trial, number, rows));
            others.trouble().map(|_| Stop::Peer)
        }
        Happening::Stopping(why) => {
            let (state, reason) = words_of(why);
            let stop = Event::Stop {
                trial,
                attempt: number,
                time: clock::now(),
                state,
                reason: reason.clone(),
            };
            if why != Stop::Peer {
                // The end that follows says it again, with more patience.
                let _ = recorder.write(&stop);
            }
            if let Some(crew) = crew.as_mut() {
                crew.tell(&Down::Stop);
            }
            None
        }
    });
    let result = prepared.scratch.take_result();
    let is_robbed = prepared.scratch.is_gone();
    if ended.stop.is_none() {
        ended.stop = child::overheard(&ended, result.is_some(), signals, &limits);
        ended.asked_at = ended.stop.map(|_| Instant::now());
    }
    program.ended(ended.code == 0 && ended.stop.is_none());
    output::drain(pipes);
    let mut late = None;
    if let Some(crew) = crew.as_mut() {
        late = others.finish(crew, &log, ended, limits.deadline, signals, |rows| {
            recorder.metrics(trial, number, rows);
        });
    }
    // The others have ended, so the helpers have all they wait for.
    let carried = program.wait_for_helper_for(Duration::from_secs(10));
    while prepared.has_more_metrics() {
        recorder.catch_up(trial, number)?;
        recorder.metrics(trial, number, with_rank(prepared.take_metrics(false), own_rank));
    }
    recorder.metrics(trial, number, with_rank(prepared.take_metrics(true), own_rank));
    let uncarried = (!carried).then(|| {
        let why = prepared.scratch.take_helper_reason();
        format!("syncs over MPI: {}", why.unwrap_or_else(|| "the helper failed".to_owned()))
    });
    if ended.stop.is_none() && late.is_none() {
        let own = limits.mpirun.filter(|_| ended.code != 0);
        late = child::pending(signals, Duration::ZERO, own).map(Stop::Signal);
    }
    let (mut state, code, mut reason) = judge(ended, late, uncarried, &others, result.is_some());
    if is_robbed && matches!(state, Outcome::Done | Outcome::Failed) {
        // That is the machine's fault, and costs no attempt.
        (state, reason) = (Outcome::Interrupted, Some(prepared.scratch.loss()));
    }
    // What a rank says that was stopped because of another is not why.
    let is_own = state == Outcome::Failed && ended.stop != Some(Stop::Peer);
    let said = || prepared.scratch.take_reason().filter(|_| is_own);
    let reason = said().or(reason);
    let complaints = prepared.scratch.complaints();
    if let Some(complaints) = &complaints {
        output::write_line(&log, "hpcsweep: ", complaints);
    }
    let peak_memory = process::peak_child_memory();
    let memory = || {
        prepared.memory.why(ended.signal, peak_memory, job.resources.memory_mib).filter(|_| is_own)
    };
    let shell = || {
        let skip = if job.head.setup.is_some() { 2 } else { 0 };
        let Prepared { argv, workdir, env, .. } = &prepared;
        starting::said_by_shell(code, &argv[skip], workdir, env).filter(|_| is_own)
    };
    let reason = reason.or_else(memory).or_else(shell);
    // Asked before the end is written, which waits for room.
    let no_room = || state == Outcome::Failed && disk::is_full(job.tree.dir());
    let reason = reason.or_else(|| no_room().then(|| NO_ROOM.to_owned()));
    // Of several ranks it is said at least which one it was.
    let is_first = is_own && code != LOST_PEERS && others.are_several();
    let reason = reason.or_else(|| is_first.then(|| "rank 0 failed".to_owned())).or(complaints);
    let end = End {
        trial,
        attempt: number,
        time: clock::now(),
        state,
        exit_code: Some(code),
        // The signal with which we ended rank 0 because of something else is not what failed.
        signal: ended.signal.filter(|_| !matches!(ended.stop, Some(Stop::Peer | Stop::Helper))),
        reason,
        duration_s: ended.duration_s,
        peak_memory,
        result,
    };
    recorder.write(&Event::End(end.clone()))?;
    tidy(job);
    let code = if state == Outcome::Done || code != 0 { code } else { 143 };
    let retry = match state {
        Outcome::Failed if world > 1 && job.head.run.needs_mpi() => Retry::Relaunch,
        Outcome::Failed if others.all_here() => Retry::Here,
        _ => Retry::No,
    };
    let told = match ended.stop.or(late) {
        // An mpirun ends all of its ranks when one has failed.
        Some(Stop::Signal(_)) if state == Outcome::Failed && limits.mpirun.is_some() => None,
        Some(Stop::Signal(signal)) => Some(signal),
        _ => None,
    };
    Ok(Verdict { end, code, retry, told })
}

/// Several ranks: everyone must be there before anyone starts. Then the command is filled in.
fn gather_and_prepare(
    job: &Job,
    number: u32,
    crew: &mut Option<Crew>,
    signals: &mut Signals,
    heard: &mut Option<Signal>,
) -> Result<Prepared> {
    check_world(job)?;
    let world = job.world;
    if world == 1 {
        return prepare(job, number, &[]);
    }
    if crew.is_none() {
        let name = peers::meeting_name(&job.vars, job.row.id)?;
        let deadline = prepare::rendezvous_deadline(&job.vars);
        let told = || {
            *heard = child::pending(signals, Duration::ZERO, None);
            heard.is_some()
        };
        let node = vars::node_identity(&job.vars);
        let seat = peers::Seat { host: &job.host, node: &node };
        let dir = job.tree.dir().join("meet");
        *crew = Some(Crew::gather(&dir, &name, world, seat, deadline, told)?);
    }
    let Some(gathered) = crew else { return Err(anyhow::anyhow!("the crew has gathered")) };
    if job.granted
        && let Err(fault) = granted::check(&job.resources, &gathered.ranks_by_node())
    {
        gathered.tell(&Down::Leave { code: 1 });
        return Err(fault.into());
    }
    let port = torch_port()?;
    let addr = gathered.addr.to_string();
    let hosts = gathered.ranks_by_host();
    let own = job.rank.clone().placed(&hosts, &job.host);
    let prepared = prepare(job, number, &rank::torch_env(&own, &addr, port));
    match &prepared {
        Ok(_) => gathered.tell(&Down::Begin { attempt: number, addr, port, hosts }),
        Err(_) => gathered.tell(&Down::Leave { code: 1 }),
    }
    prepared
}

/// A free port for torch's rendezvous, outside the range from which the kernel hands out ports itself
/// (such a port may be taken by any outgoing connection before torch binds it).
fn torch_port() -> Result<u16> {
    let range =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bind = |port: u16| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
    rank::free_port_outside_ephemeral(&range, &mut bind, clock::noise())
        .ok_or_else(|| Fault::machine("no free TCP port on this host").into())
}

/// The user's command, without the set-up script in front.
fn command_of(job: &Job, prepared: &Prepared) -> Vec<String> {
    let skip = if job.head.setup.is_some() { 2 } else { 0 };
    prepared.argv[skip..].to_vec()
}

/// The log of a run. A new one is made; a later attempt of this run goes on with it.
pub(super) fn open_log(path: &Path) -> Result<File> {
    match disk::create_exclusive_with_parent(path)? {
        Some(file) => Ok(file),
        None => disk::open_to_append(path),
    }
}

/// The outcome of the trial from the ends of all its ranks. What came first is why: a failure that nobody asked
/// for, or a stop, after which ranks fail in any way.
fn judge(
    ended: Ended,
    late: Option<Stop>,
    uncarried: Option<String>,
    others: &Others,
    is_declared: bool,
) -> (Outcome, i32, Option<String>) {
    let own = ended.stop.is_none() && !matches!(ended.code, 0 | LOST_PEERS);
    // Launchers end all ranks after the failure of one.
    let first = if own { Some(ended.at) } else { ended.asked_at };
    if let Some(failure) = others.own_failure(first) {
        return (Outcome::Failed, failure.code, Some(failure.reason));
    }
    let has_finished = is_declared && ended.code == 0 && uncarried.is_none() && others.are_well();
    if let Some(why @ (Stop::Deadline | Stop::Signal(_))) = ended.stop.or(late) {
        let (asked, reason) = words_of(why);
        let state = stopped::outcome(ended.code, has_finished, Some(asked));
        return (state, ended.code, (state == asked).then_some(reason));
    }
    let trouble = others.trouble().filter(|_| !has_finished);
    if own {
        return (Outcome::Failed, ended.code, None);
    }
    match (trouble, uncarried) {
        (Some((outcome, code, reason)), _) => (outcome, code, Some(reason)),
        // How we ended the program for want of its helper says nothing.
        (None, Some(reason)) if ended.stop == Some(Stop::Helper) => {
            (Outcome::Failed, 1, Some(reason))
        }
        (None, Some(reason)) => (Outcome::Failed, ended.code.max(1), Some(reason)),
        (None, None) => (stopped::outcome(ended.code, is_declared, None), ended.code, None),
    }
}

fn words_of(stop: Stop) -> (Outcome, String) {
    match stop {
        Stop::Deadline => (Outcome::Timeout, "the wall-clock limit was reached".into()),
        Stop::Signal(Signal::SIGINT) => (Outcome::Interrupted, "stopped by Ctrl-C".into()),
        Stop::Signal(signal) => (Outcome::Interrupted, format!("the worker got {signal}")),
        Stop::Peer => (Outcome::Failed, "another rank failed".into()),
        Stop::Helper => (Outcome::Failed, "the helper for syncs ended".into()),
    }
}

fn no_start(
    trial: u64,
    attempt: u32,
    error: &anyhow::Error,
    code: i32,
    began: Instant,
    recorder: &mut Recorder,
) -> Result<Verdict> {
    let text = format!("{error:#}");
    let reason = text.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    not_begun((trial, attempt), Outcome::Failed, reason, code, began, recorder)
}

/// Records an attempt whose program was not started.
fn not_begun(
    (trial, attempt): (u64, u32),
    state: Outcome,
    reason: String,
    code: i32,
    began: Instant,
    recorder: &mut Recorder,
) -> Result<Verdict> {
    let end = End {
        trial,
        attempt,
        time: clock::now(),
        state,
        exit_code: None,
        signal: None,
        reason: Some(reason),
        duration_s: began.elapsed().as_secs_f64(),
        peak_memory: 0,
        result: None,
    };
    recorder.write(&Event::End(end.clone()))?;
    Ok(Verdict { end, code, retry: Retry::No, told: None })
}

/// Removes the trial's own folders where the program has left nothing in them.
fn tidy(job: &Job) {
    let _ = std::fs::remove_dir(job.tree.checkpoints(job.row.id));
    let _ = std::fs::remove_dir(job.tree.work(job.row.id));
}
