//! A slot of an agent: one trial at a time, with its cores, its devices, its private folder and its log.

use std::fs::File;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::claimer::{Claimer, MAX_FAULTS, Unit};
use crate::fault::{Fault, Kind};
use crate::host::{Vars, disk, process};
use crate::plan::Resources;
use crate::tree::bundle;
use crate::tree::table::{self, Head, Row};
use crate::worker::prepare::{Prepared, prepare_in};
use crate::worker::scratch::Scratch;
use crate::worker::{Job, derive_rank, hooks};

mod reap;

/// The variable that marks what a slot's program has started.
pub(super) const MARK: &str = "HPCSWEEP_SLOT";

/// Why a program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its own wall-clock time is over.
    Walltime,
    /// The allocation ends.
    Allocation,
    /// The agent was told to stop.
    Signal(Signal),
    /// Another agent's end of the trial counts.
    Lost,
    /// Others have taken the agent for dead.
    Fenced,
}

/// On whose behalf a trial runs.
#[derive(Debug)]
pub enum Role {
    /// As the next trial of a unit.
    Unit(Unit),
    /// As a copy of a trial that another agent has run for too long.
    Copy(Box<Row>),
}

impl Role {
    /// The trial.
    pub fn row(&self) -> Option<&Row> {
        match self {
            Self::Unit(unit) => unit.rows.front(),
            Self::Copy(row) => Some(row),
        }
    }
}

/// A program that runs.
pub struct Running {
    /// Whose trial it is.
    pub role: Role,
    /// The trial.
    pub trial: u64,
    /// The attempt.
    pub attempt: u32,
    /// How many entries of the ledger were read when it began.
    pub seq: u64,
    /// When it was started.
    pub since: Instant,
    /// Why and when it was asked to end.
    pub stop: Option<(Why, Instant)>,
    /// Its private folder and what else was made for it.
    pub prepared: Prepared,
    deadline: Option<Instant>,
    killed: bool,
    pid: u32,
    from: u64,
    /// How it has ended, and until when a signal may still explain it.
    over: Option<(Ended, Instant)>,
    /// What it has left as its result, once it has ended.
    pub result: Option<serde_json::Value>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Seconds it ran.
    pub duration_s: f64,
    /// Largest resident set, bytes.
    pub peak_memory: u64,
    /// Where its output stands in the slot's log: offset and length.
    pub log: Option<(u64, u64)>,
    /// Whether it could have done something about a signal to stop.
    pub has_handler: bool,
}

/// One slot.
pub struct Slot {
    /// Its number, from 0.
    pub number: u32,
    /// What runs in it.
    pub running: Option<Running>,
    cores: Vec<u32>,
    job: Job,
    scratch: Option<Scratch>,
    log: Option<File>,
    agent: String,
    mark: String,
}

impl Slot {
    /// The slots of an agent that has joined; `devices` has the value of CUDA_VISIBLE_DEVICES of each, where
    /// they are bound to some.
    ///
    /// # Errors
    /// When the tables cannot be read, or the environment contradicts itself.
    pub fn all(
        claimer: &Claimer,
        devices: &[String],
        vars: &Vars,
        host: &str,
        job_id: Option<&String>,
    ) -> Result<Vec<Self>> {
        let head = claimer.head_of(0)?;
        let row = table::find(&claimer.tree, head.first)?.1;
        let mut all = Vec::new();
        for number in 0..claimer.slots {
            let at = number as usize;
            let mut vars = vars.clone();
            if let Some(devices) = devices.get(at) {
                vars.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices.clone());
                vars.insert(crate::devices::CHOSEN.to_owned(), devices.clone());
            }
            let job = Job {
                tree: claimer.tree.clone(),
                head: head.clone(),
                row: row.clone(),
                resources: head.resources.clone(),
                rank: derive_rank(&Vars::new(), host)?,
                world: 1,
                vars,
                host: host.to_owned(),
                job_id: job_id.cloned(),
                launcher: 0,
                began: Instant::now(),
                ends: None,
            };
            let mut slot = Self {
                number,
                running: None,
                cores: Vec::new(),
                job,
                scratch: None,
                log: None,
                agent: String::new(),
                mark: String::new(),
            };
            slot.belongs_to(claimer);
            all.push(slot);
        }
        Ok(all)
    }

    /// From now on it writes for this agent, on the cores that it has.
    pub fn belongs_to(&mut self, claimer: &Claimer) {
        let each = claimer.cores.len() / claimer.slots.max(1) as usize;
        let cores = claimer.cores.chunks(each.max(1)).nth(self.number as usize);
        self.cores = cores.unwrap_or_default().to_vec();
        claimer.name.clone_into(&mut self.agent);
        self.mark = format!("{}.{}", claimer.name, self.number);
        self.log = None;
    }

    /// The slot's log, opened where it is not.
    fn log(&mut self) -> Result<&mut File> {
        if self.log.is_none() {
            let ending = format!("{}.log", self.number);
            let path = bundle::path(&self.job.tree, &self.agent, &ending);
            self.log = Some(disk::open_to_append(&path)?);
        }
        self.log.as_mut().ok_or_else(|| anyhow::anyhow!("opened above"))
    }

    /// Prepares a trial; [`Slot::launch`] follows. `request` is what the plan asks for now, where the table
    /// says something else.
    ///
    /// # Errors
    /// When it cannot be prepared: the request's fault, or the machine's.
    pub fn prepare(
        &mut self,
        head: &Head,
        row: &Row,
        request: Option<&Resources>,
        attempt: u32,
        folders: bool,
    ) -> Result<Prepared> {
        if self.job.head.first != head.first {
            self.job.head = head.clone();
        }
        self.job.row = row.clone();
        let request = request.or(row.resources.as_ref()).unwrap_or(&head.resources);
        self.job.resources = request.clone();
        let folders = folders || names_folders(head);
        let mut prepared = prepare_in(&self.job, attempt, &[], self.scratch.take(), folders)?;
        prepared.env.insert(MARK.to_owned(), self.mark.clone());
        Ok(prepared)
    }

    /// Starts what was prepared.
    ///
    /// # Errors
    /// Why it could not be started; what was prepared is lost then.
    pub fn launch(
        &mut self,
        role: Role,
        (attempt, seq): (u32, u64),
        prepared: Prepared,
    ) -> Result<(), (Role, anyhow::Error)> {
        let started = self.log().and_then(|log| {
            let from = log.metadata().map(|m| m.len()).unwrap_or(0);
            let output = log.try_clone().map_err(|e| process::not_started("log", &e))?;
            Ok((from, output))
        });
        let (from, output) = match started {
            Ok(started) => started,
            Err(error) => return Err((role, error)),
        };
        let Prepared { argv, env, workdir, .. } = &prepared;
        let pid = match process::start_on(argv, env, workdir, output, &self.cores) {
            Ok(pid) => pid,
            Err(e) if !workdir.is_dir() => {
                let sentence =
                    format!("the working folder `{}` does not exist here", workdir.display());
                let _ = e;
                self.scratch = Some(prepared.scratch);
                return Err((role, Fault::machine(sentence).into()));
            }
            Err(e) => {
                let mut fault = process::not_started(&argv[0], &e);
                if is_of_command(&e) {
                    fault.kind = Kind::Request;
                }
                self.scratch = Some(prepared.scratch);
                return Err((role, fault.into()));
            }
        };
        let since = Instant::now();
        let limit = self.job.resources.walltime_s;
        let deadline = limit.and_then(|s| since.checked_add(Duration::from_secs(s)));
        let trial = self.job.row.id;
        self.running = Some(Running {
            role,
            trial,
            attempt,
            seq,
            since,
            stop: None,
            prepared,
            deadline,
            killed: false,
            pid,
            from,
            over: None,
            result: None,
        });
        Ok(())
    }

    /// Whether what runs in it is the unit of [`is_on_trial`].
    pub fn is_on_trial(&self) -> bool {
        matches!(&self.running, Some(Running { role: Role::Unit(unit), .. }) if is_on_trial(unit))
    }

    /// The process that runs in it.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    /// Asks the program to end, or kills it where `grace` is over since it was asked. `true` if it was asked
    /// just now.
    pub fn stop(&mut self, why: Why, grace: Duration) -> bool {
        let Some(running) = &mut self.running else { return false };
        if running.over.is_some() {
            // Nobody is left to be asked; what a clock says now does not explain an end before.
            if !matches!(why, Why::Walltime | Why::Allocation) {
                running.stop.get_or_insert((why, Instant::now()));
            }
            return false;
        }
        let new = running.stop.is_none();
        let at = running.stop.get_or_insert((why, Instant::now())).1;
        if new && grace > Duration::ZERO {
            process::signal_group(running.pid, Signal::SIGTERM);
        } else if !running.killed && at.elapsed() >= grace {
            process::signal_group(running.pid, Signal::SIGKILL);
            running.killed = true;
        }
        new
    }

    /// Whether the program's own time is over.
    pub fn is_overdue(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|r| r.stop.is_none() && r.deadline.is_some_and(|d| Instant::now() >= d))
    }

    /// Whether the program's own time would have been over within so long after it was asked to end.
    pub fn is_nearly_overdue(running: &Running, margin: Duration) -> bool {
        let asked = running.stop.map(|(_, at)| at);
        asked.zip(running.deadline).is_some_and(|(at, deadline)| at + margin >= deadline)
    }

    /// The time until its program's own time is over, or the wait for a signal that may explain its end.
    pub fn until_due(&self) -> Option<Duration> {
        let running = self.running.as_ref()?;
        if let Some((_, until)) = running.over {
            return Some(until.saturating_duration_since(Instant::now()));
        }
        let open = running.stop.is_none().then_some(running.deadline)??;
        Some(open.saturating_duration_since(Instant::now()))
    }

    /// Takes back what was made for a trial that has ended, and tidies up behind it.
    pub fn tidy(&mut self, prepared: Prepared, folders: bool) {
        self.scratch = Some(prepared.scratch);
        if folders || names_folders(&self.job.head) {
            let trial = self.job.row.id;
            let _ = std::fs::remove_dir(self.job.tree.checkpoints(trial));
            let _ = std::fs::remove_dir(self.job.tree.work(trial));
        }
    }

    /// The end of what a trial has printed.
    pub fn tail(&self, log: Option<(u64, u64)>) -> String {
        let Some((from, len)) = log else { return String::new() };
        let path = bundle::path(&self.job.tree, &self.agent, &format!("{}.log", self.number));
        let most = len.min(2 * hooks::TAIL_BYTES as u64);
        hooks::log_tail(&disk::read_at(&path, from + len - most, most).unwrap_or_default())
    }

    /// Its host.
    pub fn host(&self) -> &str {
        &self.job.host
    }

    /// The environment of its programs before what a trial adds.
    pub fn vars(&self) -> &Vars {
        &self.job.vars
    }

    /// Writes a line into the slot's log, as part of what the trial printed.
    pub fn note(&mut self, text: &str) {
        use std::io::Write;
        if let Ok(log) = self.log() {
            let _ = writeln!(log, "hpcsweep: {text}");
        }
    }
}

/// Whether one more lost agent would be one too many for the next trial of a unit. Two of these never run in
/// the same agent: a trial that takes its agents with it takes no other past that number.
pub fn is_on_trial(unit: &Unit) -> bool {
    unit.faults + 1 == MAX_FAULTS
}

/// Whether an error is about the command itself, on any machine: no permission, no format of programs, too long.
fn is_of_command(error: &std::io::Error) -> bool {
    use nix::libc::{E2BIG, EACCES, ENOEXEC};
    error.raw_os_error().is_some_and(|number| [E2BIG, EACCES, ENOEXEC].contains(&number))
}

/// Whether the command asks for the trial's own folder.
pub(super) fn names_folders(head: &Head) -> bool {
    let asks = |text: &String| text.contains("work_dir") || text.contains("checkpoint_dir");
    let run = &head.run;
    run.train.is_some()
        || run.command.iter().any(asks)
        || run.env.iter().any(|(_, text)| asks(text))
}
