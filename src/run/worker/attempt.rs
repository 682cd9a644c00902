//! One attempt of a trial, seen from rank 0: prepare, start, watch, record.

use std::fs::File;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Job, check_world};
use crate::base::cause::{self, Cause, Why};
use crate::base::fault::{self, Fault, one_line};
use crate::base::host::signal::Signals;
use crate::base::host::{clock, disk, process, vars};
use crate::cluster::rank;
use crate::run::worker::limits::clock_of;
use crate::run::worker::process::child::{self, Happening, Termination};
use crate::run::worker::process::meter::Meter;
use crate::run::worker::process::output;
use crate::run::worker::process::prepare::{self, Prepared, prepare};
use crate::run::worker::process::printed::Part;
use crate::run::worker::process::program::{self, LOST_PEERS, Program};
use crate::run::worker::ranks::gather::Crew;
use crate::run::worker::ranks::granted;
use crate::run::worker::ranks::others::{Others, with_rank};
use crate::run::worker::ranks::peers::{self, Down};
use crate::run::worker::record::recorder::Recorder;
use crate::run::worker::record::room;
use crate::sweep::attempt::exit::{self, Exit};
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::verdict;
use crate::sweep::tree::due::Due;
use crate::sweep::tree::key::Key;
use crate::sweep::tree::records::{End, Event, Outcome, Start, Used};

/// Why a program may have failed that reports no reason itself.
const NO_ROOM: &str = "the disk of the results was full when it ended";

/// What the lines of rank 0 begin with in the log of several ranks.
const RANK_0: &str = "[rank 0] ";

/// How much later than a signal to stop the loss of a rank may be noticed that was its reason: srun stops the ranks that
/// are left when it has lost one.
const LOSS_DELAY: Duration = Duration::from_millis(100);

/// How an attempt ended, for the code that decides what follows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttemptEnd {
    /// The end as it was recorded.
    pub(crate) end: End,
    /// Exit code towards the scheduler.
    pub(crate) code: i32,
    /// Whether another attempt could end otherwise.
    pub(crate) retry: Retry,
    /// The signal that announces the end of its job.
    pub(crate) told: Option<Signal>,
}

/// What another attempt of a trial that has failed takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
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
pub(crate) fn run(
    job: &Job,
    number: u32,
    recorder: &mut Recorder,
    crew: &mut Option<Crew>,
    signals: &mut Signals,
) -> Result<AttemptEnd> {
    let began = Instant::now();
    let mut attempt = Attempt { job, number, began, recorder, crew, signals };
    let mut started = match attempt.begin() {
        Ok(started) => started,
        Err(why) => return attempt.not_started(why),
    };
    let ended = attempt.watch(&mut started);
    let ends = attempt.gather_ends(&mut started, ended)?;
    attempt.conclude(&mut started, ends)
}

/// An attempt under way.
struct Attempt<'a> {
    job: &'a Job,
    number: u32,
    began: Instant,
    recorder: &'a mut Recorder,
    crew: &'a mut Option<Crew>,
    signals: &'a mut Signals,
}

/// Why the program of an attempt was not started.
enum NotStarted {
    /// A signal came before.
    Told(Signal),
    /// It failed; with the exit code towards the scheduler.
    Failed(anyhow::Error, i32),
    /// Nothing can be recorded.
    Unrecorded(anyhow::Error),
}

/// The program of an attempt, and what was made for it.
struct Started {
    prepared: Prepared,
    program: Program,
    at: Instant,
    meter: Meter,
    log: Arc<Mutex<File>>,
    readers: Vec<JoinHandle<()>>,
    others: Others,
    limits: child::Clock,
    /// The rank of its metric lines, where they do not come from all ranks together.
    rank: Option<u32>,
}

/// The ends of all ranks.
struct Ends {
    /// That of rank 0.
    own: Termination,
    /// A stop that came when the program of rank 0 had ended, and when.
    late: Option<(Stop, Instant)>,
    /// Why the syncs could not be carried to their end.
    uncarried: Option<String>,
    /// That rank 0 has finished.
    result: Option<Value>,
    /// Whether the private folder was removed.
    is_robbed: bool,
}

impl Attempt<'_> {
    /// Everything up to the start of the program.
    fn begin(&mut self) -> Result<Started, NotStarted> {
        let (job, world) = (self.job, self.job.world);
        let (mut prepared, word) = self.prepare()?;
        let begun = self.start(Some(&prepared));
        let recorder = &mut *self.recorder;
        room::wait(job, self.signals, |_| recorder.write(&begun))
            .map_err(NotStarted::Unrecorded)?;

        let log_path = job.tree.log(job.row.id, self.recorder.run);
        let log = room::wait(job, self.signals, |_| open_log(&log_path))
            .map_err(|error| NotStarted::Failed(error, 4))?;
        let from = log.metadata().map_or(0, |about| about.len());
        let prefix = if world > 1 { RANK_0 } else { "" };
        prepared.follow(&job.head, Part { log: &log_path, from, prefix });
        let at = clock::awake();
        let is_synced = prepared.sync.is_some();
        if is_synced {
            prepared.scratch.follow_reduced();
        }
        let rank = (world > 1 && !is_synced && job.head.run.train.is_none()).then_some(0);
        // The others begin when nothing here has to wait for room any more.
        if let (Some(crew), Some(word)) = (self.crew.as_mut(), word) {
            crew.tell(&word);
        }
        let meter = Meter::of_rank(job);
        let limits = clock_of(job);
        prepared.limit(limits.deadline);
        let mut program = Program::start(&mut prepared, world > 1, &log)
            .map_err(|fault| self.without_a_program(fault, 127))?;
        let log = Arc::new(Mutex::new(log));
        let sink = Arc::clone(&log);
        let piped = output::pipe_lines(&mut program.child, move |text| {
            output::write_line(&sink, RANK_0, text);
        });
        let readers = piped.map_err(|fault| {
            process::kill_group(&program.child, Signal::SIGKILL);
            program.ended(false);
            self.without_a_program(fault, 4)
        })?;
        let helper = program.helper.as_ref().map(Child::id);
        let limits = child::Clock { helper, ..limits };
        let others = Others::new(world);
        Ok(Started { prepared, program, at, meter, log, readers, others, limits, rank })
    }

    /// Gathers the ranks and prepares this one; the word by which the others begin. If that fails, the beginning is recorded.
    fn prepare(&mut self) -> Result<(Prepared, Option<Down>), NotStarted> {
        // A job that is about to end starts nothing, least of all another attempt.
        let mut heard = child::pending(self.signals, Duration::ZERO, None);
        let prepared = match heard {
            Some(_) => Err(anyhow::anyhow!("told to stop")),
            None => room::wait(self.job, self.signals, |signals| {
                gather_and_prepare(self.job, self.number, self.crew, signals, &mut heard)
            }),
        };
        let error = match prepared {
            Ok(prepared) => return Ok(prepared),
            Err(error) if error.is::<room::Told>() => return Err(NotStarted::Unrecorded(error)),
            Err(error) => error,
        };
        if let Some(crew) = self.crew.as_mut() {
            crew.tell(&Down::Leave { code: 1 });
        }
        let begun = self.start(None);
        let recorder = &mut *self.recorder;
        room::wait(self.job, self.signals, |_| recorder.write(&begun))
            .map_err(NotStarted::Unrecorded)?;
        let code = i32::from(crate::base::fault::exit_code(&error));
        Err(heard.map_or(NotStarted::Failed(error, code), NotStarted::Told))
    }

    /// The start of what was prepared, if that was possible.
    fn start(&self, prepared: Option<&Prepared>) -> Event {
        let argv = prepared.map(|own| own.argv.clone());
        Event::Start(Start {
            trial: self.job.row.id,
            attempt: self.number,
            time: clock::now(),
            slot: None,
            host: self.job.host.clone(),
            pid: std::process::id(),
            started: process::started(std::process::id().cast_signed()),
            job: self.job.job_id.clone(),
            ranks: self.job.world,
            argv: argv.unwrap_or_default(),
            devices: prepared.and_then(|own| own.devices.clone()),
            snapshot: prepared.and_then(|own| own.snapshot.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resources: self.job.own_resources().map(Box::new),
            seq: self.recorder.seq,
            unlearnt_mib: 0,
            behind: self.recorder.behind,
            key: Key::of(&self.job.row.key),
            run: self.recorder.run,
        })
    }

    /// The other ranks must not wait for a rank 0 without a program.
    fn without_a_program(&mut self, fault: Fault, code: i32) -> NotStarted {
        self.stop_others();
        NotStarted::Failed(fault.into(), code)
    }

    fn stop_others(&mut self) {
        if let Some(crew) = self.crew.as_mut() {
            crew.tell(&Down::Stop);
        }
    }

    /// Waits for the end of the program. Meanwhile it records metric lines and reads the messages of the
    /// other ranks.
    fn watch(&mut self, started: &mut Started) -> Termination {
        let (trial, number) = (self.job.row.id, self.number);
        let Started { prepared, program, meter, log, others, limits, rank, .. } = started;
        let Program { child, helper } = program;
        let (recorder, crew) = (&mut *self.recorder, &mut *self.crew);
        child::wait(child, started.at, self.signals, *limits, meter, |happening| match happening {
            Happening::Tick => {
                recorder.beat();
                let rows = match recorder.has_unwritten() {
                    true => prepared.take_samples(false),
                    false => prepared.take_metrics(false),
                };
                recorder.metrics(trial, number, with_rank(rows, *rank));
                if helper.as_mut().is_some_and(program::is_gone) {
                    return Some(Stop::Helper);
                }
                let crew = crew.as_mut()?;
                others.hear(crew, log, |rows| recorder.metrics(trial, number, rows));
                others.are_in_trouble().then_some(Stop::Peer)
            }
            Happening::Stopping(why) => {
                let stop = Event::Stop {
                    trial,
                    attempt: number,
                    time: clock::now(),
                    state: why.outcome(),
                    reason: why.reason("worker"),
                };
                if why != Stop::Peer {
                    // The following end records it again, with more patience.
                    let _ = recorder.write(&stop);
                }
                if let Some(crew) = crew.as_mut() {
                    crew.tell(&Down::Stop);
                }
                None
            }
        })
    }

    /// Waits for signals that may explain the end of the program, for its output, for the other ranks and for the
    /// helper, and records the last metric lines.
    fn gather_ends(&mut self, started: &mut Started, mut own: Termination) -> Result<Ends> {
        let (trial, number) = (self.job.row.id, self.number);
        let Started { prepared, program, log, readers, others, limits, rank, .. } = started;
        own.exit = prepared.exit(own.exit);
        let result = prepared.scratch.take_result();
        let is_robbed = prepared.scratch.is_gone();
        if own.stop.is_none() {
            let has_left = own.is_warned && own.exit.is_leave(result.is_some());
            own.stop = child::overheard(&own, result.is_some(), self.signals, limits)
                .or(has_left.then_some(Stop::Walltime));
            own.asked_at = own.stop.map(|_| Instant::now());
        }
        program.ended(own.exit.code == 0 && own.stop.is_none());
        output::drain(readers);
        let recorder = &mut *self.recorder;
        let mut late = None;
        if let Some(crew) = self.crew.as_mut() {
            late = others.finish(crew, log, own, limits.deadline, self.signals, |rows| {
                recorder.metrics(trial, number, rows);
            });
        }
        // The others have ended, so the helpers have all they wait for.
        let carried = program.wait_for_helper_for(Duration::from_secs(10));
        while prepared.has_more_metrics() {
            recorder.catch_up(trial, number)?;
            recorder.metrics(trial, number, with_rank(prepared.take_metrics(false), *rank));
        }
        recorder.metrics(trial, number, with_rank(prepared.take_metrics(true), *rank));
        let uncarried = (!carried).then(|| prepared.scratch.why_uncarried());
        if own.stop.is_none() && late.is_none() {
            let mpirun = limits.mpirun.filter(|_| own.exit.code != 0);
            let signal = child::pending(self.signals, Duration::ZERO, mpirun);
            late = signal.map(|signal| (Stop::Signal(signal), Instant::now()));
        }
        Ok(Ends { own, late, uncarried, result, is_robbed })
    }

    /// Judges the ends and records the outcome.
    fn conclude(&mut self, started: &mut Started, ends: Ends) -> Result<AttemptEnd> {
        let job = self.job;
        let exit = ends.own.exit;
        let delay = if started.limits.mpirun.is_some() { Duration::ZERO } else { LOSS_DELAY };
        let mut judged = judge(&ends, &started.others, delay);
        if ends.is_robbed && matches!(judged.state, Outcome::Done | Outcome::Failed) {
            // That is the machine's fault, and costs no attempt.
            let loss = started.prepared.scratch.loss();
            let why = Some(Why::new(Cause::Unknown, loss));
            judged = Judged { state: Outcome::Interrupted, why, ..judged };
        }
        let is_done = judged.state == Outcome::Done;
        if let Some(unmet) = started.prepared.unmet(ends.result.as_ref()).filter(|_| is_done) {
            let log = self.job.tree.log(self.job.row.id, self.recorder.run);
            let why = Some(unmet.with(log_says(&log, 1, None)));
            judged = Judged { state: Outcome::Failed, code: 1, why, bare: None };
        }
        if judged.state == Outcome::Failed && self.had_no_room(started) {
            // Nor is that the trial's fault.
            let log = self.job.tree.log(self.job.row.id, self.recorder.run);
            let why = Why::new(Cause::DiskFull, NO_ROOM).with(log_says(&log, judged.code, None));
            judged = Judged { state: Outcome::Interrupted, why: Some(why), bare: None, ..judged };
        }
        let (state, code) = (judged.state, judged.code);
        let used = self.used(started, &ends);
        let (cause, reason) = self.why(started, &ends, judged, used.of_a_node());
        let stop = ends.own.stop;
        let end = End {
            trial: job.row.id,
            attempt: self.number,
            time: clock::now(),
            state,
            exit_code: Some(code),
            // The signal with which we ended rank 0 because of something else is not what failed.
            signal: exit.signal.filter(|_| !matches!(stop, Some(Stop::Peer | Stop::Helper))),
            cause,
            reason,
            duration_s: exit.duration_s,
            peak_memory: used.memory,
            usage: Some(Box::new(used.usage)),
            result: ends.result,
            log: None,
            last: false,
            seq: None,
        };
        self.record(&end)?;
        tidy(job);
        let code = if state == Outcome::Done || code != 0 { code } else { 143 };
        let retry = match state {
            Outcome::Failed if job.world > 1 && job.head.run.needs_mpi() => Retry::Relaunch,
            Outcome::Failed if started.others.all_here() => Retry::Here,
            _ => Retry::No,
        };
        let told = match stop.or(ends.late.map(|(why, _)| why)) {
            // An mpirun ends all of its ranks when one has failed.
            Some(Stop::Signal(_))
                if state == Outcome::Failed && started.limits.mpirun.is_some() =>
            {
                None
            }
            Some(Stop::Signal(signal)) => Some(signal),
            _ => None,
        };
        Ok(AttemptEnd { end, code, retry, told })
    }

    /// Whether the program may have failed because it could not write, and not by what it has printed itself. Asked before
    /// the end is written, which waits for room.
    fn had_no_room(&self, started: &Started) -> bool {
        let log = started.log.lock().ok().and_then(|log| log.metadata().ok());
        log.is_none_or(|log| verdict::may_lack_room(log.len()))
            && disk::is_full(self.job.tree.dir())
    }

    /// What all ranks have used that have reported it.
    fn used(&self, started: &mut Started, ends: &Ends) -> Used {
        let own = started.meter.end(ends.own.spent, started.prepared.gpu_usage());
        match self.crew.as_ref() {
            None => own,
            Some(crew) => {
                let others = started.others.used().map(|(rank, used)| (crew.node_of(rank), used));
                Used::together((crew.node_of(0), own), others)
            }
        }
    }

    /// Why the attempt has ended as it was judged, and more there is to say: the program's own reason comes first, and its
    /// log last.
    fn why(
        &self,
        started: &mut Started,
        ends: &Ends,
        judged: Judged,
        peak_memory: u64,
    ) -> (Option<Cause>, Option<String>) {
        let Started { prepared, log, others, .. } = started;
        let Judged { state, code, why, bare } = judged;
        let overlooked = || prepared.overlooked().filter(|_| state == Outcome::Done);
        if let Some(why) = overlooked() {
            output::write_line(log, "hpcsweep: ", &why.words);
            return (Some(why.cause), Some(why.words));
        }
        // A rank that was stopped because of another one does not name the cause.
        let is_own = state == Outcome::Failed && ends.own.stop != Some(Stop::Peer);
        let said = is_own.then(|| prepared.scratch.take_reason()).flatten();
        let complaints = prepared.scratch.complaints();
        if let Some(complaints) = &complaints {
            output::write_line(log, "hpcsweep: ", complaints);
        }
        let exit = Exit { code, ..ends.own.exit };
        let by_exit = if exit.signal.is_some() { Cause::Signal } else { Cause::ExitCode };
        let said =
            said.map(|words| Why::new(cause::log::of_reason(&words).unwrap_or(by_exit), words));
        let seen = || is_own.then(|| prepared.why_failed(self.job, exit, peak_memory)).flatten();
        // Asked before the end is written, which waits for room.
        let no_room = || {
            let is_full = state == Outcome::Failed && disk::is_full(self.job.tree.dir());
            is_full.then(|| Why::new(Cause::DiskFull, NO_ROOM))
        };
        // With several ranks, the reason names at least the rank.
        let is_first = is_own && code != LOST_PEERS && others.are_several();
        let first = is_first.then(|| (0, "rank 0".to_owned()));
        let (why, bare) = match bare {
            Some(bare) => (why, Some(bare)),
            None => (said.or(why).or_else(seen).or_else(no_room), first),
        };
        let logged = || {
            let of = bare.as_ref().map(|(rank, _)| *rank);
            let why = log_says(&self.job.tree.log(self.job.row.id, self.recorder.run), code, of)?;
            Some(match &bare {
                Some((_, place)) => why.of(place),
                None => why,
            })
        };
        let is_dark = state == Outcome::Failed && code != 0 && (why.is_none() || bare.is_some());
        let first = || is_first.then(|| Why::new(by_exit, "rank 0 failed"));
        let why = match is_dark.then(logged).flatten() {
            // A line that only calls itself an error says less than what is known.
            Some(logged)
                if why
                    .as_ref()
                    .is_none_or(|why| !why.cause.says_more() && logged.cause.says_more()) =>
            {
                Some(logged)
            }
            _ => why,
        };
        let why = why.or_else(first);
        let cause = (state != Outcome::Done).then(|| {
            let stop = ends.own.stop.or(ends.late.map(|(why, _)| why)).map(Stop::cause);
            let otherwise = if state == Outcome::Failed { Some(by_exit) } else { stop };
            why.as_ref().map(|why| why.cause).or(otherwise).unwrap_or(Cause::Unknown)
        });
        (cause, why.map(|why| why.words).or(complaints))
    }

    /// Records an attempt whose program was not started.
    fn not_started(&mut self, why: NotStarted) -> Result<AttemptEnd> {
        let (state, why, code, told) = match why {
            NotStarted::Unrecorded(error) => return Err(error),
            NotStarted::Failed(error, code) => {
                let why = Why::new(fault::cause(&error), one_line(&error));
                let state = match why.cause.passes() {
                    true => Outcome::Interrupted,
                    false => Outcome::Failed,
                };
                (state, why, code, None)
            }
            NotStarted::Told(signal) => {
                let stop = Stop::Signal(signal);
                let why = Why::new(stop.cause(), stop.reason("worker"));
                (stop.outcome(), why, 143, Some(signal))
            }
        };
        let end = End {
            trial: self.job.row.id,
            attempt: self.number,
            time: clock::now(),
            state,
            exit_code: None,
            signal: None,
            cause: Some(why.cause),
            reason: Some(why.words),
            duration_s: self.began.elapsed().as_secs_f64(),
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: false,
            seq: None,
        };
        self.record(&end)?;
        Ok(AttemptEnd { end, code, retry: Retry::No, told })
    }

    /// Records the end.
    fn record(&mut self, end: &End) -> Result<()> {
        let Job { tree, head, row, .. } = self.job;
        Due::of_run(tree, row.id, self.recorder.run).note(head, end);
        self.recorder.write(&Event::End(end.clone()))
    }
}

/// Several ranks: everyone must be there before anyone starts. Then the command is filled in. Returns the word by which
/// the others begin as well.
fn gather_and_prepare(
    job: &Job,
    number: u32,
    crew: &mut Option<Crew>,
    signals: &mut Signals,
    heard: &mut Option<Signal>,
) -> Result<(Prepared, Option<Down>)> {
    check_world(job)?;
    let world = job.world;
    if world == 1 {
        return Ok((prepare(job, number, &[])?, None));
    }
    let gathered = match crew {
        Some(crew) => crew,
        None => {
            let name = peers::meeting_name(&job.vars, job.row.id)?;
            let deadline = prepare::rendezvous_deadline(&job.vars);
            let told = || {
                *heard = child::pending(signals, Duration::ZERO, None);
                heard.is_some()
            };
            let node = vars::node_identity(&job.vars);
            let seat = peers::Seat { host: &job.host, node: &node };
            let dir = job.tree.dir().join("meet");
            crew.insert(Crew::gather(&dir, &name, world, seat, deadline, told)?)
        }
    };
    if job.granted {
        granted::check(&job.resources, &gathered.ranks_by_node())?;
    }
    let port = prepare::torch_port()?;
    let addr = gathered.addr.to_string();
    let hosts = gathered.ranks_by_host();
    let own = job.rank.clone().placed(&hosts, &job.host);
    let prepared = prepare(job, number, &rank::torch_env(&own, &addr, port))?;
    Ok((prepared, Some(Down::Begin { attempt: number, addr, port, hosts })))
}

/// The log of a run. A new run makes a new log; a later attempt of the run appends to it.
pub(super) fn open_log(path: &Path) -> Result<File> {
    match disk::create_exclusive_with_parent(path)? {
        Some(file) => Ok(file),
        None => disk::open_to_append(path),
    }
}

/// What the log of a run says about a program that has failed: of one rank alone, where several write into it.
fn log_says(path: &Path, code: i32, rank: Option<u32>) -> Option<Why> {
    cause::log::of(&disk::read_end(path, cause::log::MOST_BYTES).ok()?, code, rank)
}

/// How the trial has ended, from the ends of all its ranks.
struct Judged {
    state: Outcome,
    /// The exit code of the rank that decides.
    code: i32,
    why: Option<Why>,
    /// The other rank that failed first and did not say why, with its place in words.
    bare: Option<(u32, String)>,
}

/// The outcome of the trial from the ends of all its ranks. The first event is the cause: a failure by itself, or a
/// stop, after which ranks fail in any way. After a signal, a rank may be missed with a delay of `delay`.
fn judge(ends: &Ends, others: &Others, delay: Duration) -> Judged {
    let Ends { own: Termination { exit, stop, asked_at, at, .. }, late, uncarried, result, .. } =
        ends;
    let (code, is_declared) = (exit.code, result.is_some());
    let is_own = stop.is_none() && !matches!(code, 0 | LOST_PEERS);
    // Launchers end all ranks after the failure of one.
    let late_at = late.map(|(_, at)| at);
    let first = if is_own { Some(*at) } else { asked_at.or(late_at) };
    let asked = stop.or(late.map(|(why, _)| why));
    let is_signal = !is_own && matches!(asked, Some(Stop::Signal(_)));
    let delay = if is_signal { delay } else { Duration::ZERO };
    let of = |state, code, why| Judged { state, code, why, bare: None };
    if let Some(failure) = others.own_failure(first, delay, is_signal) {
        let bare = failure.is_bare.then_some((failure.rank, failure.place));
        return Judged { bare, ..of(Outcome::Failed, failure.code, Some(failure.why)) };
    }
    let has_finished = is_declared && code == 0 && uncarried.is_none() && others.are_well();
    if let Some(why @ (Stop::Walltime | Stop::Signal(_))) = asked {
        let state = exit::outcome(code, has_finished, Some(why));
        let words = (state != Outcome::Done).then(|| why.reason("worker"));
        return of(state, code, words.map(|words| Why::new(why.cause(), words)));
    }
    let trouble = others.trouble().filter(|_| !has_finished);
    if is_own {
        return of(Outcome::Failed, code, None);
    }
    let uncarried = uncarried
        .clone()
        .map(|words| Why::new(cause::log::of_reason(&words).unwrap_or(Cause::Unknown), words));
    match (trouble, uncarried) {
        (Some((outcome, code, why)), _) => of(outcome, code, Some(why)),
        // The exit code of a program that was ended because its helper failed is no evidence.
        (None, Some(why)) if *stop == Some(Stop::Helper) => of(Outcome::Failed, 1, Some(why)),
        (None, Some(why)) => of(Outcome::Failed, code.max(1), Some(why)),
        (None, None) => of(exit::outcome(code, is_declared, None), code, None),
    }
}

/// Removes the trial's own folders where the program has left nothing in them.
fn tidy(job: &Job) {
    let _ = std::fs::remove_dir(job.tree.checkpoints(job.row.id));
    let _ = std::fs::remove_dir(job.tree.work(job.row.id));
}
