//! A slot of an agent: one trial at a time, with its cores, its devices, its private folder and its log.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;
use serde_json::{Map, Value};

use crate::base::cause::{self, Cause, Why};
use crate::base::host::process::tree;
use crate::base::host::{Vars, clock, disk, process};
use crate::run::pull::membership::Membership;
use crate::run::pull::places::guard::MARK;
use crate::run::pull::places::{AttemptId, Exited, Order, Place, Remains, Role, Running, Sheet};
use crate::run::worker::process::meter::Meter;
use crate::run::worker::process::prepare::{Prepared, notice_at, prepare_in};
use crate::run::worker::process::printed::Part;
use crate::run::worker::process::scratch::Scratch;
use crate::run::worker::process::starting;
use crate::run::worker::{Job, derive_rank, hooks};
use crate::sweep::attempt::stop::Stop;
use crate::sweep::tree::code;
use crate::sweep::tree::records::Outcome;
use crate::sweep::tree::table::{self, Head};

mod reap;

/// A program that runs.
pub(crate) struct Program {
    /// Its private folder and what else was made for it.
    prepared: Prepared,
    killed: bool,
    /// A signal that it still gets, and when.
    notice: Option<(Signal, Instant)>,
    /// Whether it has got that signal.
    is_warned: bool,
    pid: u32,
    meter: Meter,
    from: u64,
    /// How it has ended, and until when a signal may still explain it.
    over: Option<(Exited, Instant)>,
    /// Its result, once it has ended.
    result: Option<Value>,
}

pub(crate) struct Slot {
    number: u32,
    running: Option<Running<Program>>,
    cores: Vec<u32>,
    /// How many slots the agent has.
    beside: u32,
    job: Job,
    scratch: Option<Scratch>,
    log: Option<File>,
    agent: String,
    mark: String,
    /// When the trial that is prepared or runs is asked to end.
    deadline: Option<Instant>,
}

impl Slot {
    /// The slots of an agent that has joined; `devices` has the value of CUDA_VISIBLE_DEVICES of each, where
    /// they are bound to some.
    ///
    /// # Errors
    /// When the tables cannot be read, or the environment contradicts itself.
    pub(crate) fn all(
        membership: &Membership,
        devices: &[String],
        vars: &Vars,
        host: &str,
        job_id: Option<&String>,
    ) -> Result<Vec<Self>> {
        let head = membership.head_of(0)?;
        let row = table::find(&membership.tree, head.first)?.1;
        let mut all = Vec::new();
        for number in 0..membership.slots {
            let at = number as usize;
            let mut vars = vars.clone();
            if let Some(devices) = devices.get(at) {
                vars.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices.clone());
                vars.insert(crate::cluster::devices::CHOSEN.to_owned(), devices.clone());
            }
            let job = Job {
                tree: membership.tree.clone(),
                head: head.clone(),
                row: row.clone(),
                resources: head.resources.clone(),
                rank: derive_rank(&Vars::new(), host)?,
                world: 1,
                vars,
                host: host.to_owned(),
                job_id: job_id.cloned(),
                granted: false,
                launcher: 0,
                began: Instant::now(),
                ends: None,
                stopped: None,
                say: |_| {},
            };
            let mut slot = Self {
                number,
                running: None,
                cores: Vec::new(),
                beside: 1,
                job,
                scratch: None,
                log: None,
                agent: String::new(),
                mark: String::new(),
                deadline: None,
            };
            slot.belongs_to(membership);
            all.push(slot);
        }
        Ok(all)
    }

    fn log_path(&self) -> PathBuf {
        self.job.tree.agent_file(&self.agent, &format!("{}.log", self.number))
    }

    fn open_log(&self) -> Result<File> {
        disk::open_to_append(&self.log_path())
    }

    /// The slot's log, opened where it is not.
    fn log(&mut self) -> Result<&mut File> {
        let log = self.log.take().map_or_else(|| self.open_log(), Ok)?;
        Ok(self.log.insert(log))
    }
}

impl Place for Slot {
    type Work = Program;
    type Ready = Prepared;

    fn number(&self) -> u32 {
        self.number
    }

    fn running(&self) -> Option<&Running<Program>> {
        self.running.as_ref()
    }

    fn refuses(&self, head: &Head) -> Option<String> {
        head.run.function.as_ref().map(|name| format!("call `{name}`"))
    }

    /// It writes for this agent, on the cores that it has.
    fn belongs_to(&mut self, membership: &Membership) {
        let each = membership.cores.len() / membership.slots.max(1) as usize;
        let cores = membership.cores.chunks(each.max(1)).nth(self.number as usize);
        self.cores = cores.unwrap_or_default().to_vec();
        self.beside = membership.slots.max(1);
        membership.name.clone_into(&mut self.agent);
        self.mark = format!("{}.{}", membership.name, self.number);
        self.log = None;
    }

    fn notify(&mut self) {
        let Some(running) = &mut self.running else { return };
        let is_open = running.stop.is_none() && running.work.over.is_none();
        let due = running.work.notice.take_if(|(_, at)| clock::awake() >= *at);
        if let Some((signal, _)) = due.filter(|_| is_open) {
            process::signal_group(running.work.pid, signal);
            running.work.is_warned = true;
        }
    }

    fn prepare(&mut self, order: Order<'_>) -> Result<Prepared> {
        self.deadline = order.deadline();
        let Order { head, row, code, request, attempt, folders, .. } = order;
        if self.job.head.first != head.first {
            self.job.head = head.clone();
        }
        self.job.row = row.clone();
        self.job.resources = request.clone();
        let folders = folders || names_folders(head);
        let code = match code {
            Some((name, workdir)) => (Some(name.clone()), workdir.clone()),
            None => (None, head.workdir.clone()),
        };
        if let Some(name) = &code.0 {
            code::check(&self.job.tree, name, usize::MAX)?;
        }
        let scratch = self.scratch.take();
        let mut prepared = prepare_in(&self.job, attempt, &[], code, scratch, folders)?;
        prepared.limit(self.deadline);
        prepared.env.insert(MARK.to_owned(), self.mark.clone());
        Ok(prepared)
    }

    fn sheet(ready: &Prepared) -> Sheet {
        Sheet {
            argv: ready.argv.clone(),
            devices: ready.env.get("CUDA_VISIBLE_DEVICES").cloned(),
            snapshot: ready.snapshot.clone(),
        }
    }

    fn launch(
        &mut self,
        role: Role,
        run: (u32, u64),
        mut prepared: Prepared,
    ) -> Result<(), (Role, anyhow::Error)> {
        let log = match self.log.take().map_or_else(|| self.open_log(), Ok) {
            Ok(log) => log,
            Err(error) => return Err((role, error)),
        };
        let from = log.metadata().map(|m| m.len()).unwrap_or(0);
        let path = self.log_path();
        prepared.follow(&self.job.head, Part { log: &path, from, prefix: "" });
        let Prepared { env, workdir, .. } = &prepared;
        let argv = prepared.words();
        let mut meter = Meter::begin(self.beside, false);
        let pid = match process::start_on(argv, env, workdir, self.log.insert(log), &self.cores) {
            Ok(pid) => pid,
            Err(e) => {
                let fault = starting::start_fault(&argv[0], workdir, env, &e);
                self.scratch = Some(prepared.scratch);
                return Err((role, fault.into()));
            }
        };
        meter.began_here();
        let notice = self.job.head.run.signal.zip(self.deadline);
        let notice = notice.and_then(|(notice, deadline)| notice_at(notice, deadline));
        let program = Program {
            prepared,
            killed: false,
            notice,
            is_warned: false,
            pid,
            meter,
            from,
            over: None,
            result: None,
        };
        let (trial, limit) = (self.job.row.id, self.job.resources.walltime_s);
        self.running = Some(Running::begins(role, trial, run, limit, program));
        Ok(())
    }

    fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.work.pid)
    }

    fn stop(&mut self, why: Stop, grace: Duration) -> bool {
        let Some(running) = &mut self.running else { return false };
        if running.work.over.is_some() {
            // The program has ended already. A limit that is reached now does not explain its end.
            if !matches!(why, Stop::Walltime | Stop::Allocation) {
                running.stop.get_or_insert((why, Instant::now()));
            }
            return false;
        }
        let new = running.stop.is_none();
        let at = running.stop.get_or_insert((why, Instant::now())).1;
        if new && grace > Duration::ZERO {
            process::signal_group(running.work.pid, Signal::SIGTERM);
        } else if !running.work.killed && at.elapsed() >= grace {
            process::signal_group(running.work.pid, Signal::SIGKILL);
            running.work.killed = true;
        }
        new
    }

    /// Until its program's own time is over, or the wait for a signal that may explain its end.
    fn until_due(&self) -> Option<Duration> {
        let running = self.running.as_ref()?;
        match running.work.over {
            Some((_, until)) => Some(until.saturating_duration_since(Instant::now())),
            None => {
                let sample = running.work.meter.until_due();
                let due = running.until_due().map_or(sample, |due| due.min(sample));
                let notice = running.work.notice.filter(|_| running.stop.is_none());
                let until = notice.map(|(_, at)| at.saturating_duration_since(clock::awake()));
                Some(until.map_or(due, |until| until.min(due)))
            }
        }
    }

    fn reap(&mut self, others: &[u32], why: Option<Stop>) -> Option<(Running<Program>, Exited)> {
        self.bury(others, why)
    }

    fn measure(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|running| running.work.over.is_none()) {
            let pid = running.work.pid;
            running.work.meter.look(|| tree::below(pid));
        }
    }

    fn metrics(&mut self) -> Vec<Map<String, Value>> {
        let running = self.running.as_mut();
        running.map_or_else(Vec::new, |running| running.work.prepared.take_metrics(false))
    }

    fn has_more_metrics(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.work.prepared.has_more_metrics())
    }

    fn collect(&mut self, program: Program) -> Remains {
        let mut prepared = program.prepared;
        let loss = prepared.scratch.is_gone().then(|| prepared.scratch.loss());
        let why = |ended: &Exited| prepared.why_failed(&self.job, ended.exit, ended.memory());
        let own = |words: String| {
            let signal = program.over.as_ref().and_then(|(ended, _)| ended.exit.signal);
            let by_exit = if signal.is_some() { Cause::Signal } else { Cause::ExitCode };
            Why::new(cause::log::of_reason(&words).unwrap_or(by_exit), words)
        };
        let said = prepared.scratch.take_reason().map(own);
        let why = said.or_else(|| program.over.as_ref().and_then(|(ended, _)| why(ended)));
        let rows = prepared.take_metrics(true);
        // Only where the agent has to leave and has no time for them.
        let cut = prepared.has_more_metrics().then(|| "the last metric lines left out".to_owned());
        let complaints = prepared.scratch.complaints().or(cut);
        let is_well = program.over.as_ref().is_some_and(|(ended, _)| ended.exit.code == 0);
        let remains = Remains {
            unmet: prepared.unmet(program.result.as_ref()).filter(|_| is_well),
            overlooked: prepared.overlooked().filter(|_| is_well),
            loss,
            rows,
            gpus: prepared.gpu_usage(),
            result: program.result,
            why,
            complaints,
            is_interrupted: false,
        };
        self.scratch = Some(prepared.scratch);
        remains
    }

    fn tidy(&mut self, folders: bool) {
        if folders || names_folders(&self.job.head) {
            let trial = self.job.row.id;
            let _ = std::fs::remove_dir(self.job.tree.checkpoints(trial));
            let _ = std::fs::remove_dir(self.job.tree.work(trial));
        }
    }

    fn tail(&self, log: Option<(u64, u64)>) -> String {
        let path = self.log_path();
        log.map_or_else(String::new, |part| hooks::tail_of_part(&path, part))
    }

    fn host(&self) -> &str {
        &self.job.host
    }

    fn vars(&self) -> &Vars {
        &self.job.vars
    }

    fn note(&mut self, text: &str) {
        use std::io::Write;
        if let Ok(log) = self.log() {
            let _ = writeln!(log, "hpcsweep: {text}");
        }
    }

    fn recorded(&mut self, _: AttemptId, _: Outcome, _: bool) {}
}

/// Whether the command asks for the trial's own folder.
pub(crate) fn names_folders(head: &Head) -> bool {
    let asks = |text: &String| text.contains("work_dir") || text.contains("checkpoint_dir");
    let run = &head.run;
    run.train.is_some()
        || run.command.iter().any(asks)
        || run.env.iter().any(|(_, text)| asks(text))
        || run.metrics.file.iter().any(asks)
}
