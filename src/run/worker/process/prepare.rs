//! Prepares a rank before its program starts: the command filled in, the environment, the folders.

use std::fs::{self, File};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use crate::base::cause::{Cause, Why};
use crate::base::fault::Fault;
use crate::base::host::{Vars, access, clock, disk, gpus, process};
use crate::cluster::devices;
use crate::cluster::rank;
use crate::plan::Notice;
use crate::plan::value::variable_of;
use crate::plan::{CommandTemplate, Params, Runtime, TrialNames, names_of};
use crate::run::worker::Job;
use crate::run::worker::process::container::{self, Inside};
use crate::run::worker::process::expected::Expected;
use crate::run::worker::process::gpu_samples::Sampler;
use crate::run::worker::process::memory::Memory;
use crate::run::worker::process::printed::{Part, Printed};
use crate::run::worker::process::scratch::Scratch;
use crate::run::worker::process::written::Written;
use crate::run::worker::process::{heavy, launch, starting};
use crate::sweep::attempt::exit::Exit;
use crate::sweep::tree::records::GpuUsage;
use crate::sweep::tree::table::{Head, Row};
use crate::sweep::tree::{Tree, code, terms};

/// Everything that a rank needs to start its program.
pub(crate) struct Prepared {
    /// The argument vector of the command.
    pub(crate) argv: Vec<String>,
    /// The words that start the set-up, which becomes the command.
    setup: Option<Vec<String>>,
    /// Whether it is our own trainer.
    pub(crate) is_trainer: bool,
    /// All variables that the program gets.
    pub(crate) env: Vars,
    /// The folder in which the program starts.
    pub(crate) workdir: PathBuf,
    /// The snapshot that it is in.
    pub(crate) snapshot: Option<String>,
    /// `CUDA_VISIBLE_DEVICES`, where the worker sets it.
    pub(crate) devices: Option<String>,
    /// The attempt's private folder.
    pub(crate) scratch: Scratch,
    /// The helper for syncs over MPI and the program's end of the socket to it.
    pub(crate) sync: Option<(heavy::Helper, OwnedFd)>,
    /// Watches the trial's GPUs, where this rank does so.
    pub(crate) gpus: Option<Sampler>,
    /// Tells whether memory is why it failed.
    pub(crate) memory: Memory,
    /// What must be there in the end.
    expected: Expected,
    /// Finds metrics in what it prints, where the plan has patterns.
    printed: Option<Printed>,
    /// Finds metrics in the files that it leaves.
    written: Written,
}

/// The variable that says when a program must have ended, in seconds since the epoch.
const DEADLINE: &str = "HPCSWEEP_DEADLINE";

/// A time of [`clock::awake`] in whole seconds since the epoch.
pub(crate) fn epoch_of(at: Instant) -> u64 {
    let left = at.saturating_duration_since(clock::awake());
    (clock::now() + left.as_secs_f64()) as u64
}

/// When a program gets its signal before the deadline; `None` if the moment has passed: a program that has just begun may
/// not handle the signal yet, and would be killed by it.
pub(crate) fn notice_at(notice: Notice, deadline: Instant) -> Option<(Signal, Instant)> {
    let at = deadline.checked_sub(Duration::from_secs(notice.seconds.into()))?;
    (at > clock::awake()).then_some((notice.signal, at))
}

impl Prepared {
    /// The words that are started: those of the command, or of the set-up that becomes the command.
    pub(crate) fn words(&self) -> &[String] {
        self.setup.as_ref().unwrap_or(&self.argv)
    }

    /// Whether a set-up has not become the command, whatever it has ended with.
    fn is_set_up_alone(&self) -> bool {
        self.setup.is_some() && self.scratch.command().exists()
    }

    /// The exit of the command, of which this is the process: a set-up that ends with 0 has failed.
    pub(crate) fn exit(&self, exit: Exit) -> Exit {
        match exit.code {
            0 if self.is_set_up_alone() => Exit { code: 1, ..exit },
            _ => exit,
        }
    }

    /// Why there was no command, where nobody says so.
    pub(crate) fn why_set_up_alone(&self) -> Option<Why> {
        let words = "the set-up ended before the command began";
        self.is_set_up_alone().then(|| Why::new(Cause::SetUp, words))
    }

    /// Tells the program when it is asked to end, if anything limits it.
    pub(crate) fn limit(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.env.insert(DEADLINE.to_owned(), epoch_of(deadline).to_string());
        }
    }

    /// Searches the program's output in this part of a log for the metrics of a plan.
    pub(crate) fn follow(&mut self, head: &Head, part: Part<'_>) {
        self.printed = Printed::of(&head.run.metrics.output, part);
    }

    /// The new metric lines of the program, a megabyte at most, what it has printed, and the new samples of its GPUs. With
    /// `last` nothing will follow.
    pub(crate) fn take_metrics(&mut self, last: bool) -> Vec<Map<String, Value>> {
        let mut rows = self.scratch.take_metrics(last);
        rows.extend(self.printed.as_mut().map(|printed| printed.take(last)).unwrap_or_default());
        if last {
            rows.extend(self.written.take());
        }
        rows.extend(self.take_samples(last));
        rows.iter().for_each(|row| self.expected.see(row));
        rows
    }

    /// Why a program that ended with 0 and this result has failed all the same, once its last lines were taken.
    pub(crate) fn unmet(&self, result: Option<&Value>) -> Option<Why> {
        self.expected.lacks(result)
    }

    /// What a program that is done has not noticed: processes of it that the kernel killed for lack of memory.
    pub(crate) fn overlooked(&self) -> Option<Why> {
        Some(Why::new(Cause::OutOfMemory, self.memory.overlooked()?))
    }

    /// Whether there are more of them than the next call takes.
    pub(crate) fn has_more_metrics(&self) -> bool {
        self.scratch.has_more_metrics() || self.printed.as_ref().is_some_and(Printed::has_more)
    }

    /// Only the samples of these.
    pub(crate) fn take_samples(&mut self, last: bool) -> Vec<Map<String, Value>> {
        self.gpus.as_mut().map(|gpus| gpus.take(last)).unwrap_or_default()
    }

    /// What its GPUs have done, once the last lines were taken.
    pub(crate) fn gpu_usage(&self) -> Vec<GpuUsage> {
        self.gpus.as_ref().map(|gpus| gpus.used.clone()).unwrap_or_default()
    }

    /// Why a program of which the largest process had `peak_memory` bytes has failed, if the machine shows it.
    pub(crate) fn why_failed(&self, job: &Job, exit: Exit, peak_memory: u64) -> Option<Why> {
        if exit.code == 0 {
            return None;
        }
        let memory = self.memory.why(exit.signal, peak_memory, job.resources.memory_mib);
        memory.map(|words| Why::new(Cause::OutOfMemory, words)).or_else(|| {
            let program = self.argv.first()?;
            starting::said_by_shell(exit.code, program, &self.workdir, &self.env)
                .or_else(|| self.why_set_up_alone())
        })
    }
}

/// How long ranks wait for each other: `HPCSWEEP_RENDEZVOUS_S`, 120 s without it.
pub(crate) fn rendezvous_deadline(vars: &Vars) -> Duration {
    let seconds = vars.get("HPCSWEEP_RENDEZVOUS_S").and_then(|s| s.parse().ok()).unwrap_or(120.0);
    Duration::from_secs_f64(f64::max(seconds, 0.1))
}

/// Fills in the parameters and makes the attempt's folders.
///
/// # Errors
/// When the command cannot be rendered, a device is not granted, or a folder cannot be made.
pub(crate) fn prepare(
    job: &Job,
    attempt: u32,
    torch: &[(&'static str, String)],
) -> Result<Prepared> {
    /// Files of a snapshot that a job looks at for a single trial: an array has thousands of them.
    const MOST: usize = 100;
    let code = code(&job.tree, &job.head, &job.row)?;
    if let Some(name) = code.0.as_ref().filter(|_| job.rank.rank == 0) {
        code::check(&job.tree, name, MOST)?;
    }
    prepare_in(job, attempt, torch, code, None, true)
}

/// As [`prepare`], with the trial's `code`, in the private folder of an attempt before it, where there was one. Without `folders` the
/// trial's own are named to the program and not made.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_in(
    job: &Job,
    attempt: u32,
    torch: &[(&'static str, String)],
    (snapshot, workdir): Code,
    scratch: Option<Scratch>,
    folders: bool,
) -> Result<Prepared> {
    let Job { head, row, tree, .. } = job;
    if let Some(name) = &snapshot {
        access::check_use(&code::snapshot(tree, name))?;
    }
    let params = &row.params;
    let extra = names(tree, head, row, attempt);
    let rendered = CommandTemplate::new(&head.run)?.render(params, &extra).map_err(|fault| {
        Fault { sentence: format!("trial {}: {}", row.id, fault.sentence), ..fault }
    })?;
    let devices = visible(head, row, &job.vars)?;
    let scratch = match scratch.map_or(Ok(None), |scratch| scratch.again(params))? {
        Some(scratch) => scratch,
        None => Scratch::make(&container::vars(&head.run, &job.vars), tree.dir(), row.id, params)?,
    };
    if folders {
        // Removed again when the program has left nothing there.
        disk::make_dir(&tree.work(row.id))?;
        disk::make_folder(&tree.checkpoints(row.id))?;
    }

    let mut env = environment(&job.vars, params);
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    for (name, value) in own(job, attempt, &scratch) {
        set(name, value);
    }
    if let Some(before) = terms::before(tree, row)? {
        set("HPCSWEEP_PREVIOUS_WORK_DIR", path_text(&tree.work(before)));
    }
    for (name, value) in torch {
        set(name, value.clone());
    }
    if torch.is_empty()
        && let Ok(port) = torch_port()
    {
        // Where ranks meet that the program starts itself; torchrun reads the second, and would take 29500 in each trial.
        for name in ["MASTER_PORT", "PET_MASTER_PORT"] {
            set(name, port.to_string());
        }
    }
    let launcher = rank::told(&env);
    let mut set = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    set("HPCSWEEP_LAUNCHER", launcher);
    if let Some(devices) = &devices {
        set("CUDA_VISIBLE_DEVICES", devices.clone());
    }
    if job.vars.contains_key(devices::CHOSEN) {
        set(devices::WITHIN, format!("{}-{}", row.id, clock::short_token()));
    }
    for (name, value) in &rendered.env {
        set(name, value.clone());
    }
    match (&head.run.container, module()?) {
        // A container sees the private folder, whatever is in its image.
        (Some(_), Some(module)) => add_to_python(&mut env, &scratch.keep_module(&module)?),
        (_, module) => module.iter().for_each(|module| add_to_python(&mut env, module)),
    }
    let mut argv = rendered.argv;
    if head.run.train.is_some() {
        argv = heavy::trainer(job, attempt, &extra, &scratch)?;
        env.insert(launch::VERSION_VARIABLE.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        // Without it cuBLAS may add in another order each time.
        env.entry("CUBLAS_WORKSPACE_CONFIG".to_owned()).or_insert_with(|| ":4096:8".to_owned());
    }
    let sync = match head.run.metrics.mpi && job.world > 1 {
        true => Some(heavy::helper(job, &scratch, &mut env)?),
        false => None,
    };
    if let Some(own) = &head.run.container {
        let folders = [tree.dir(), &*workdir, &*head.workdir, scratch.dir()];
        let inside = Inside {
            workdir: &workdir,
            source: &head.workdir,
            folders: folders.map(Path::to_owned).to_vec(),
            gpus: own.gpus.unwrap_or(job.resources.total_gpus() > 0),
            env: &env,
        };
        container::check(own, &inside)?;
        argv = container::argv(own, &inside, argv);
        if own.runtime == Runtime::Charliecloud {
            // It mounts the one over `/tmp`, and insists on the other.
            env.remove("TMPDIR");
            env.entry("USER".to_owned()).or_insert_with(access::own_name);
        }
    }
    Ok(Prepared {
        setup: set_up(job, &argv, &scratch)?,
        expected: Expected::of(&head.run.expect, (params, &extra), &workdir)?,
        printed: None,
        written: match job.rank.rank {
            0 => Written::of(&head.run.metrics.file, (params, &extra), &workdir)?,
            _ => Written::default(),
        },
        gpus: Sampler::start(job, &env),
        is_trainer: head.run.train.is_some(),
        memory: Memory::watch(),
        argv,
        env,
        workdir,
        snapshot,
        devices,
        scratch,
        sync,
    })
}

/// A free port for torch's rendezvous, outside the range from which the kernel hands out ports itself
/// (such a port may be taken by any outgoing connection before torch binds it).
///
/// # Errors
/// When there is none.
pub(crate) fn torch_port() -> Result<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bind = |port: u16| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
    rank::free_port_outside_ephemeral(&range, &mut bind, clock::noise())
        .ok_or_else(|| Fault::machine("no free TCP port on this host").into())
}

/// The words that start a set-up script, which becomes the command of its own accord: what it runs in the end is a program
/// of ours, which takes the command from a file. So nothing that the script sources can change the command, and an end before
/// is told from the command's.
///
/// # Errors
/// When the node's disk refuses.
fn set_up(job: &Job, argv: &[String], scratch: &Scratch) -> Result<Option<Vec<String>>> {
    let Some((shell, script)) = &job.head.setup else { return Ok(None) };
    // A sweep may have been moved since the script was written down.
    let moved = job.tree.setup_script(job.head.first);
    let script = if access::check_use(&moved)? { &moved } else { script };
    let file = scratch.command();
    fs::write(&file, serde_json::to_vec(argv)?).map_err(|e| disk::fault("write", &file, &e))?;
    let own = disk::own_executable()?;
    let paths = [shell, script, &own].map(|path| path_text(path));
    let words = paths.into_iter().chain(["worker", "--become"].map(str::to_owned));
    Ok(Some(words.chain([path_text(&file)]).collect()))
}

/// Becomes the command that [`set_up`] has left in this file. Returns only if that fails: the words and the exit code with
/// which a shell says so.
///
/// # Errors
/// When the file cannot be read or removed.
pub(crate) fn become_command(file: &Path) -> Result<(String, u8)> {
    let argv: Vec<String> = serde_json::from_str(&disk::read(file)?)?;
    disk::remove_if_there(file)?;
    let error = process::try_to_become(&argv);
    let program = argv.first().map_or("", String::as_str);
    let words = format!("{program}: {}", nix::Error::from_raw(error).desc());
    Ok((words, if error == nix::libc::ENOENT { 127 } else { 126 }))
}

/// The variables by which a program knows its trial and its files.
fn own(job: &Job, attempt: u32, scratch: &Scratch) -> [(&'static str, String); 14] {
    let Job { head, row, tree, .. } = job;
    [
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
        ("HPCSWEEP_REASON", path_text(&scratch.reason())),
        ("HPCSWEEP_WORK_DIR", path_text(&tree.work(row.id))),
        ("HPCSWEEP_CHECKPOINT_DIR", path_text(&tree.checkpoints(row.id))),
        ("HPCSWEEP_SOURCE", path_text(&head.workdir)),
    ]
}

/// The snapshot that a trial runs from, if it has one, and its working folder.
pub(crate) type Code = (Option<String>, PathBuf);

/// The code of a trial.
///
/// # Errors
/// When the records of snapshots cannot be read.
pub(crate) fn code(tree: &Tree, head: &Head, row: &Row) -> Result<Code> {
    Ok(match code::of_trial(tree, row.id)? {
        Some((name, workdir)) => (Some(name), workdir),
        None => (None, head.workdir.clone()),
    })
}

/// The value of `CUDA_VISIBLE_DEVICES` for a trial, where the worker sets it.
///
/// # Errors
/// When a device is not granted.
pub(crate) fn visible(head: &Head, row: &Row, vars: &Vars) -> Result<Option<String>, Fault> {
    let nvml = || gpus::machine(vars).map(|machine| machine.devices).unwrap_or_default();
    devices::visible(row.id, row.gpu_ids_abs.as_deref(), head.gpu_ids, vars, nvml)
}

/// `trial` and `sweep` of the expressions of a plan.
pub(crate) fn names(
    tree: &Tree,
    head: &Head,
    row: &Row,
    attempt: u32,
) -> [(&'static str, Value); 2] {
    let trial = TrialNames {
        id: row.id,
        task_id: json!(row.task_id),
        chain: row.chain,
        link: row.link,
        attempt,
        work_dir: &tree.work(row.id),
        checkpoint_dir: &tree.checkpoints(row.id),
        gpu_ids_abs: json!(row.gpu_ids_abs),
    };
    names_of(trial, &head.sweep, head.seed, tree.dir())
}

/// The variables of the worker that are for others too, and the trial's parameters.
pub(crate) fn environment(vars: &Vars, params: &Params) -> Vars {
    let mut env = vars.clone();
    env.retain(|name, _| !is_private(name));
    let (name, value) = devices::ORDER;
    env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    for (name, value) in params.iter() {
        let text = value.to_string();
        // Linux takes no variable of more than 128 KiB (MAX_ARG_STRLEN); the JSON file has them all.
        if text.len() < 100 * 1024 {
            env.insert(variable_of(name), text);
        }
    }
    env
}

/// Variables that give a worker its rank; a program below must not mistake them for its own.
fn is_private(name: &str) -> bool {
    name.starts_with("HPCSWEEP_") && !["HPCSWEEP_SITE", "HPCSWEEP_SMOKE"].contains(&name)
}

/// Lets Python find our module: in the installation (`bin/../share/hpcsweep/python`), or in the sources of
/// this build. The user's PYTHONPATH comes first.
///
/// # Errors
/// When this program cannot find its own path.
pub(crate) fn find_module(env: &mut Vars) -> Result<()> {
    if let Some(folder) = module()? {
        add_to_python(env, &folder);
    }
    Ok(())
}

/// The folder of our module, looked for once: an agent starts thousands of programs.
fn module() -> Result<Option<PathBuf>> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let exe = disk::own_executable()?;
    let prefix = exe.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places = [prefix.join("share/hpcsweep/python"), prefix.join("../site/python")];
    let found = places.iter().find(|folder| folder.join("hpcsweep").is_dir());
    Ok(FOUND.get_or_init(|| found.map(|folder| disk::absolute(folder))).clone())
}

fn add_to_python(env: &mut Vars, folder: &Path) {
    let folder = path_text(folder);
    let paths = env.entry("PYTHONPATH".to_owned()).or_default();
    if paths.split(':').any(|path| path == folder) {
        return;
    }
    // An empty entry is the current folder to Python.
    if !paths.is_empty() {
        paths.push(':');
    }
    paths.push_str(&folder);
}

pub(crate) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Starts a rank's program. With `piped` its output comes through pipes, otherwise straight into the
/// log; it inherits `keep`.
///
/// # Errors
/// Why it could not be started, in words.
pub(crate) fn start_program(
    prepared: &Prepared,
    piped: bool,
    log: &File,
    keep: Option<BorrowedFd<'_>>,
) -> Result<Child, Fault> {
    let sink = match piped {
        true => process::Sink::Pipes,
        false => process::Sink::File(log.try_clone().map_err(|e| process::start_fault("log", &e))?),
    };
    let Prepared { env, workdir, .. } = prepared;
    let words = prepared.words();
    process::start(words, env, workdir, sink, Signal::SIGKILL, keep, &[])
        .map_err(|e| starting::start_fault(&words[0], workdir, env, &e))
}
