//! One attempt of a trial, seen from rank 0: prepare, start, watch, record.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use super::child::{self, Ended, Happening, Stop};
use super::peers::{self, Crew, Down, Up};
use super::scratch::Scratch;
use super::{Job, Recorder, clock_of};
use crate::devices;
use crate::fault::Fault;
use crate::host::signal::Signals;
use crate::host::{Vars, clock, disk, process};
use crate::plan::CommandTemplate;
use crate::rank;
use crate::tree::records::{End, Event, Outcome, Start};

/// How an attempt ended, for the one who decides what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What was recorded.
    pub state: Outcome,
    /// Exit code towards the scheduler.
    pub code: i32,
    /// Whether another attempt could end otherwise.
    pub retry: bool,
}

/// What a rank needs to start its program.
pub struct Prepared {
    /// The argument vector, set-up script included.
    pub argv: Vec<String>,
    /// Its environment.
    pub env: Vars,
    /// Its working folder.
    pub workdir: PathBuf,
    /// `CUDA_VISIBLE_DEVICES`, where the worker sets it.
    pub devices: Option<String>,
    /// The attempt's private folder.
    pub scratch: Scratch,
}

/// How long ranks wait for each other: `HPCSWEEP_RENDEZVOUS_S`, 120 s without it.
pub fn rendezvous_deadline(vars: &Vars) -> Duration {
    let seconds = vars.get("HPCSWEEP_RENDEZVOUS_S").and_then(|s| s.parse().ok()).unwrap_or(120.0);
    Duration::from_secs_f64(f64::max(seconds, 0.1))
}

/// Fills in the parameters and makes the attempt's folders.
///
/// # Errors
/// When the command cannot be rendered, a device is not granted, or a folder cannot be made.
pub fn prepare(job: &Job, attempt: u32, torch: &[(&'static str, String)]) -> Result<Prepared> {
    let Job { head, row, tree, .. } = job;
    let params = row.parameters();
    let work = tree.work(row.id);
    let checkpoints = tree.checkpoints(row.id);
    let trial = json!({
        "id": row.id, "task_id": row.task_id, "chain": row.chain, "link": row.link, "attempt": attempt,
        "work_dir": work, "checkpoint_dir": checkpoints, "gpu_ids_abs": row.gpu_ids_abs,
    });
    let sweep = json!({ "name": head.sweep, "seed": head.seed, "dir": tree.dir() });
    let rendered = CommandTemplate::new(&head.run)?
        .render(&params, &[("trial", trial), ("sweep", sweep)])
        .map_err(|fault| Fault {
            sentence: format!("trial {}: {}", row.id, fault.sentence),
            ..fault
        })?;
    let devices = devices::visible(row.id, row.gpu_ids_abs.as_deref(), head.gpu_ids, &job.vars)?;
    let scratch = Scratch::make(&job.vars, row.id, &row.params)?;
    // Made on demand: removed again when the program has left nothing there.
    disk::make_dir(&checkpoints)?;

    let mut env: Vars = job
        .vars
        .iter()
        .filter(|(k, _)| !is_private(k))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    for (name, value) in params.iter() {
        set(&format!("HPCSWEEP_PARAM_{}", env_name(name)), value.to_string());
    }
    let own = [
        ("HPCSWEEP_SWEEP", head.sweep.clone()),
        ("HPCSWEEP_SWEEP_DIR", path_text(tree.dir())),
        ("HPCSWEEP_TRIAL", row.id.to_string()),
        ("HPCSWEEP_TASK_ID", row.task_text()),
        ("HPCSWEEP_CHAIN", row.chain.to_string()),
        ("HPCSWEEP_LINK", row.link.to_string()),
        ("HPCSWEEP_ATTEMPT", attempt.to_string()),
        ("HPCSWEEP_PARAMS", path_text(&scratch.params())),
        ("HPCSWEEP_METRICS", path_text(&scratch.metrics())),
        ("HPCSWEEP_RESULT", path_text(&scratch.result())),
        ("HPCSWEEP_WORK_DIR", path_text(&work)),
        ("HPCSWEEP_CHECKPOINT_DIR", path_text(&checkpoints)),
    ];
    for (name, value) in own {
        set(name, value);
    }
    for (name, value) in torch {
        set(name, value.clone());
    }
    if let Some(devices) = &devices {
        set("CUDA_VISIBLE_DEVICES", devices.clone());
    }
    for (name, value) in &rendered.env {
        set(name, value.clone());
    }
    let mut argv = rendered.argv;
    if let Some((shell, script)) = &head.setup {
        argv.splice(0..0, [path_text(shell), path_text(script)]);
    }
    Ok(Prepared { argv, env, workdir: head.workdir.clone(), devices, scratch })
}

/// Variables that tell a worker who it is; a program below must not mistake them for its own.
fn is_private(name: &str) -> bool {
    name.starts_with("HPCSWEEP_") && name != "HPCSWEEP_SITE"
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// `opt.lr` is `OPT_LR`.
pub fn env_name(parameter: &str) -> String {
    parameter
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
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
    let world = job.rank.world_size.unwrap_or(1);
    let began = Instant::now();
    let start = |argv: Vec<String>, devices: Option<String>| {
        Event::Start(Start {
            trial,
            attempt: number,
            time: clock::now(),
            host: job.host.clone(),
            pid: std::process::id(),
            job: job.job_id.clone(),
            ranks: world,
            argv,
            devices,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    };
    let mut prepared = match gather_and_prepare(job, number, crew, signals) {
        Ok(prepared) => prepared,
        Err(error) => {
            recorder.write(&start(Vec::new(), None))?;
            let told = crate::fault::exit_code(&error) == crate::fault::Kind::Machine.exit_code();
            return no_start(trial, number, &error, told, began, recorder);
        }
    };
    recorder.write(&start(command_of(job, &prepared), prepared.devices.clone()))?;

    let log_path = job.tree.log(trial, recorder.run);
    let log = match open_log(&log_path) {
        Ok(log) => log,
        Err(error) => return no_start(trial, number, &error, true, began, recorder),
    };
    let launched = Instant::now();
    let started = start_program(&prepared, (world > 1).then_some(()), &log);
    let mut program = match started {
        Ok(program) => program,
        Err(error) => {
            if let Some(crew) = crew {
                crew.tell(&Down::Stop);
            }
            return no_start(trial, number, &error.into(), false, began, recorder);
        }
    };
    let log = Arc::new(Mutex::new(log));
    let pipes = if world > 1 { pipe_lines(&mut program, "[rank 0] ", &log) } else { Vec::new() };

    let mut others = Others::new(world);
    let mut failed_write = None;
    let ended =
        child::wait(&mut program, launched, signals, clock_of(job), |happening| match happening {
            Happening::Tick => {
                let rows = prepared.scratch.take_metrics(false);
                note(
                    recorder,
                    trial,
                    number,
                    with_rank(rows, (world > 1).then_some(0)),
                    &mut failed_write,
                );
                let crew = crew.as_mut()?;
                others.hear(crew, &log, |rows| {
                    note(recorder, trial, number, rows, &mut failed_write)
                });
                others.trouble().then_some(Stop::Peer)
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
                    failed_write = recorder.write(&stop).err();
                }
                if let Some(crew) = crew.as_mut() {
                    crew.tell(&Down::Stop);
                }
                None
            }
        });
    drain(pipes);
    if let Some(crew) = crew.as_mut() {
        others.finish(crew, &log, ended, signals, |rows| {
            note(recorder, trial, number, rows, &mut failed_write);
        });
    }
    let rows = prepared.scratch.take_metrics(true);
    note(recorder, trial, number, with_rank(rows, (world > 1).then_some(0)), &mut failed_write);
    let (state, code, reason) = judge(ended, &others);
    let reason = reason.or_else(|| odd_lines(&prepared.scratch));
    let end = End {
        trial,
        attempt: number,
        time: clock::now(),
        state,
        exit_code: Some(code),
        signal: ended.signal,
        reason,
        duration_s: ended.duration_s,
        peak_memory: process::peak_child_memory(),
        result: prepared.scratch.take_result(),
    };
    recorder.write(&Event::End(end))?;
    tidy(job);
    let code = if state == Outcome::Done || code != 0 { code } else { 143 };
    Ok(Verdict { state, code, retry: state == Outcome::Failed })
}

/// Several ranks: everyone must be there before anyone starts. Then the command is filled in.
fn gather_and_prepare(
    job: &Job,
    number: u32,
    crew: &mut Option<Crew>,
    signals: &mut Signals,
) -> Result<Prepared> {
    let world = job.rank.world_size.unwrap_or(1);
    if world == 1 {
        return prepare(job, number, &[]);
    }
    if crew.is_none() {
        let name = peers::meeting_name(&job.vars, job.row.id)?;
        let deadline = rendezvous_deadline(&job.vars);
        let told = || signals.next(Duration::ZERO).is_some_and(|s| s != Signal::SIGCHLD);
        *crew = Some(Crew::gather(
            &job.tree.dir().join("meet"),
            &name,
            world,
            &job.host,
            deadline,
            told,
        )?);
    }
    let Some(gathered) = crew else { return Err(anyhow::anyhow!("the crew has gathered")) };
    let port = torch_port()?;
    let addr = gathered.addr.to_string();
    let prepared = prepare(job, number, &rank::torch_env(&job.rank, &addr, port));
    match &prepared {
        Ok(_) => gathered.tell(&Down::Begin { attempt: number, addr, port }),
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

fn open_log(path: &Path) -> Result<File> {
    let open = || File::options().append(true).create(true).open(path);
    let file = open().or_else(|e| {
        if e.kind() != std::io::ErrorKind::NotFound {
            return Err(e);
        }
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        open()
    });
    file.map_err(|e| disk::fault("open", path, &e).into())
}

/// Starts a rank's program. With `piped` its output comes through pipes, otherwise straight into the log.
///
/// # Errors
/// Why it could not be started, in words.
pub fn start_program(prepared: &Prepared, piped: Option<()>, log: &File) -> Result<Child, Fault> {
    let sink = match piped {
        Some(()) => process::Sink::Pipes,
        None => process::Sink::File(log.try_clone().map_err(|e| process::not_started("log", &e))?),
    };
    process::start(&prepared.argv, &prepared.env, &prepared.workdir, sink, Signal::SIGKILL).map_err(
        |e| {
            if !prepared.workdir.is_dir() {
                let sentence = format!(
                    "the working folder `{}` does not exist here",
                    prepared.workdir.display()
                );
                return Fault::machine(sentence);
            }
            process::not_started(&prepared.argv[0], &e)
        },
    )
}

/// Copies a program's output, line by line, behind a prefix.
fn pipe_lines(
    program: &mut Child,
    prefix: &'static str,
    log: &Arc<Mutex<File>>,
) -> Vec<std::thread::JoinHandle<()>> {
    let mut threads = Vec::new();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        program.stdout.take().map(|p| Box::new(p) as _),
        program.stderr.take().map(|p| Box::new(p) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        let log = Arc::clone(log);
        threads.push(std::thread::spawn(move || {
            each_line(pipe, |text| write_line(&log, prefix, text));
        }));
    }
    threads
}

/// Waits until all output has been read; not for ever, as something the program left behind may hold
/// the pipe open.
pub fn drain(pipes: Vec<std::thread::JoinHandle<()>>) {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until && !pipes.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls `with` for every line of a stream; bytes that are not UTF-8 are replaced.
pub fn each_line(pipe: Box<dyn Read + Send>, mut with: impl FnMut(&str)) {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
        with(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).as_ref());
        bytes.clear();
    }
}

fn write_line(log: &Arc<Mutex<File>>, prefix: &str, text: &str) {
    if let Ok(mut log) = log.lock() {
        let _ = log.write_all(format!("{prefix}{text}\n").as_bytes());
    }
}

fn with_rank(rows: Vec<Map<String, Value>>, rank: Option<u32>) -> Vec<Map<String, Value>> {
    let Some(rank) = rank else { return rows };
    let tag = |mut row: Map<String, Value>| {
        row.entry("rank").or_insert_with(|| json!(rank));
        row
    };
    rows.into_iter().map(tag).collect()
}

fn note(
    recorder: &mut Recorder,
    trial: u64,
    attempt: u32,
    rows: Vec<Map<String, Value>>,
    failed: &mut Option<anyhow::Error>,
) {
    if !rows.is_empty()
        && let Err(error) = recorder.write(&Event::Metrics { trial, attempt, rows })
    {
        *failed = Some(error);
    }
}

/// The other ranks, as far as they have been heard.
struct Others {
    world: u32,
    ended: std::collections::BTreeMap<u32, (i32, Option<i32>, bool)>,
    broken: Option<(u32, String)>,
    gone: std::collections::BTreeSet<u32>,
    hosts: std::collections::BTreeMap<u32, String>,
}

impl Others {
    fn new(world: u32) -> Self {
        Self {
            world,
            ended: Default::default(),
            broken: None,
            gone: Default::default(),
            hosts: Default::default(),
        }
    }

    /// Takes in what the ranks have said since the last time.
    fn hear(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) {
        if self.hosts.is_empty() {
            self.hosts.clone_from(&crew.hosts);
        }
        while let Ok(peers::FromRank { rank, said }) = crew.inbox.try_recv() {
            match said {
                Some(Up::Line { text }) => write_line(log, &format!("[rank {rank}] "), &text),
                Some(Up::Metrics { rows }) => metrics(with_rank(rows, Some(rank))),
                Some(Up::Ended { code, signal, stopped }) => {
                    self.ended.insert(rank, (code, signal, stopped));
                }
                Some(Up::Broken { reason }) => {
                    self.broken.get_or_insert((rank, reason));
                    self.ended.insert(rank, (1, None, false));
                }
                Some(Up::Hello { .. }) => {}
                None => {
                    if !self.ended.contains_key(&rank) {
                        self.gone.insert(rank);
                    }
                }
            }
        }
    }

    fn failed(&self) -> Option<(u32, i32, Option<i32>)> {
        let bad =
            |(_, (code, _, stopped)): &(&u32, &(i32, Option<i32>, bool))| *code != 0 && !stopped;
        self.ended.iter().find(bad).map(|(rank, (code, signal, _))| (*rank, *code, *signal))
    }

    fn trouble(&self) -> bool {
        self.failed().is_some() || !self.gone.is_empty()
    }

    fn all_in(&self) -> bool {
        self.ended.len() + self.gone.len() + 1 >= self.world as usize
    }

    /// After rank 0's own program has ended: waits for the others, stopping them if it failed.
    fn finish(
        &mut self,
        crew: &mut Crew,
        log: &Arc<Mutex<File>>,
        ended: Ended,
        signals: &mut Signals,
        mut metrics: impl FnMut(Vec<Map<String, Value>>),
    ) {
        let mut told: Option<Instant> = None;
        loop {
            self.hear(crew, log, &mut metrics);
            if self.all_in() {
                return;
            }
            let asked =
                signals.next(Duration::from_millis(20)).is_some_and(|s| s != Signal::SIGCHLD);
            if (ended.code != 0 || ended.stop.is_some() || self.trouble() || asked)
                && told.is_none()
            {
                crew.tell(&Down::Stop);
                told = Some(Instant::now());
            }
            // A rank that cannot even say goodbye is left to the launcher.
            if told.is_some_and(|since| since.elapsed() > Duration::from_secs(60)) {
                return;
            }
        }
    }

    fn place(&self, rank: u32) -> String {
        self.hosts.get(&rank).map_or_else(String::new, |host| format!(" on {host}"))
    }
}

/// The outcome of the trial from the ends of all its ranks: the first failure that nobody asked for.
fn judge(ended: Ended, others: &Others) -> (Outcome, i32, Option<String>) {
    match ended.stop {
        Some(why @ (Stop::Deadline | Stop::Signal(_))) => {
            let (state, reason) = words_of(why);
            return (state, ended.code, Some(reason));
        }
        None if ended.code != 0 => {
            let reason = (others.world > 1).then(|| "rank 0 failed".to_owned());
            return (Outcome::Failed, ended.code, reason);
        }
        _ => {}
    }
    if let Some((rank, reason)) = &others.broken {
        return (Outcome::Failed, 1, Some(format!("rank {rank}{}: {reason}", others.place(*rank))));
    }
    if let Some((rank, code, signal)) = others.failed() {
        let how = signal.map_or_else(|| format!("exit code {code}"), |s| format!("signal {s}"));
        return (Outcome::Failed, code, Some(format!("rank {rank}{}: {how}", others.place(rank))));
    }
    if let Some(rank) = others.gone.first() {
        return (Outcome::Failed, 1, Some(format!("rank {rank}{} vanished", others.place(*rank))));
    }
    match ended.code {
        0 => (Outcome::Done, 0, None),
        code => (Outcome::Failed, code, None),
    }
}

fn words_of(stop: Stop) -> (Outcome, String) {
    match stop {
        Stop::Deadline => (Outcome::Timeout, "the wall-clock limit was reached".into()),
        Stop::Signal(signal) => (Outcome::Interrupted, format!("the worker got {signal}")),
        Stop::Peer => (Outcome::Failed, "another rank failed".into()),
    }
}

fn odd_lines(scratch: &Scratch) -> Option<String> {
    let n = scratch.odd_lines;
    (n > 0).then(|| {
        format!("{} of $HPCSWEEP_METRICS left out: no JSON object", crate::words::count(n, "line"))
    })
}

fn no_start(
    trial: u64,
    attempt: u32,
    error: &anyhow::Error,
    machine: bool,
    began: Instant,
    recorder: &mut Recorder,
) -> Result<Verdict> {
    let text = format!("{error:#}");
    recorder.write(&Event::End(End {
        trial,
        attempt,
        time: clock::now(),
        state: Outcome::Failed,
        exit_code: None,
        signal: None,
        reason: Some(text.replace('\n', "; ")),
        duration_s: began.elapsed().as_secs_f64(),
        peak_memory: 0,
        result: None,
    }))?;
    let code = if machine { 4 } else { 127 };
    Ok(Verdict { state: Outcome::Failed, code, retry: false })
}

/// Removes the trial's own folders where the program has left nothing in them.
fn tidy(job: &Job) {
    let _ = std::fs::remove_dir(job.tree.checkpoints(job.row.id));
    let _ = std::fs::remove_dir(job.tree.work(job.row.id));
}
