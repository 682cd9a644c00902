//! The place of an agent whose trials are calls of a function of its caller: calls that are handed out, their
//! answers, and calls that never return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};

use super::{Failure, Trial};
use crate::base::cause::{self, Cause, Why};
use crate::base::host::{Vars, disk, process, vars};
use crate::cluster::gpu::{Pool, Taken};
use crate::plan::Resources;
use crate::run::pull::membership::Membership;
use crate::run::pull::places::{
    AttemptId, Devices, Exited, Order, Place, Remains, Role, Running, Sheet,
};
use crate::run::worker::hooks;
use crate::run::worker::process::prepare::epoch_of;
use crate::sweep::attempt::exit::Exit;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::tree::Tree;
use crate::sweep::tree::records::{Outcome, Used};
use crate::sweep::tree::table::{Head, Row};

/// How an attempt was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settled {
    pub(crate) trial: u64,
    pub(crate) attempt: u32,
    pub(crate) state: Outcome,
    /// Whether it runs again only on request.
    pub(crate) is_last: bool,
}

/// The caller's answer, the seconds it took, and what it used, if that was measured.
type Answer = (Result<Value, Failure>, f64, Option<Used>);

/// The one place of such an agent. It hands out one call at a time.
pub(super) struct Call {
    running: Option<Running<()>>,
    /// To be handed out.
    offer: Option<Box<Trial>>,
    /// The caller's trial and attempt, even if the agent no longer waits for the answer.
    busy: Option<(u64, u32)>,
    answer: Option<Answer>,
    /// The remains of the last answer.
    left: Remains,
    rows: Vec<Map<String, Value>>,
    /// The process that runs the function, where it may be killed, and when it was started.
    process: Option<(u32, u64)>,
    stop: Arc<AtomicBool>,
    /// Recorded, and not reported to the caller yet.
    pub(super) settled: Vec<Settled>,
    /// The function that the sweep's plan named when the agent joined.
    function: String,
    /// Devices that all trials may use.
    pub(super) devices: Option<String>,
    /// Where each trial has devices of its own: those there are, and those that the last one has.
    pool: Option<Pool>,
    taken: Taken,
    visible: Option<String>,
    tree: Tree,
    agent: String,
    /// Bytes of the log.
    logged: u64,
    host: String,
    vars: Vars,
}

impl Call {
    /// The place of an agent that has joined.
    pub(super) fn new(
        membership: &Membership,
        function: String,
        devices: Option<String>,
        pool: Option<Pool>,
        vars: &Vars,
    ) -> Self {
        Self {
            pool,
            taken: Taken::default(),
            visible: None,
            running: None,
            offer: None,
            busy: None,
            answer: None,
            left: Remains::default(),
            rows: Vec::new(),
            process: None,
            stop: Arc::default(),
            settled: Vec::new(),
            function,
            devices,
            tree: membership.tree.clone(),
            agent: membership.name.clone(),
            logged: 0,
            host: vars::node_name(vars),
            vars: vars.clone(),
        }
    }

    /// The trial that is to be handed out now.
    pub(super) fn take_offer(&mut self) -> Option<Box<Trial>> {
        self.offer.take()
    }

    /// The trial and attempt that the caller runs.
    pub(super) fn busy(&self) -> Option<(u64, u32)> {
        self.busy
    }

    /// How long it has run, while the agent waits for the answer.
    pub(super) fn ran(&self) -> Option<Duration> {
        self.running.as_ref().map(|running| running.since.elapsed())
    }

    /// Whether the caller was asked to end it.
    pub(super) fn is_asked(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.stop.is_some())
    }

    /// Whether what the caller runs is to end soon.
    pub(super) fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the caller runs something whose answer the agent no longer needs.
    pub(super) fn is_void(&self) -> bool {
        self.busy.is_some() && self.running.is_none()
    }

    /// This process runs the function from now on. The agent may kill it when it no longer needs its answer.
    pub(super) fn runs_in(&mut self, pid: u32) {
        self.process = process::started(pid.cast_signed()).map(|started| (pid, started));
    }

    /// The process that ran the function is gone, and its successor asks for the current trial. Returns whether
    /// that is the trial that was handed out last.
    pub(super) fn is_taken_over(&mut self) -> bool {
        self.process = None;
        if self.is_void() {
            self.busy = None;
        }
        self.busy.is_some()
    }

    /// The caller has run it.
    pub(super) fn answered(
        &mut self,
        result: Result<Value, Failure>,
        seconds: Option<f64>,
        used: Option<Used>,
    ) {
        self.busy = None;
        if let (Some(running), None) = (&self.running, &self.answer) {
            let seconds = seconds.unwrap_or_else(|| running.since.elapsed().as_secs_f64());
            self.answer = Some((result, seconds, used));
        }
    }

    /// Gives the devices of a trial back that has ended, and that the caller does not run either.
    pub(super) fn rest(&mut self) -> Result<()> {
        if let Some(pool) = self.pool.as_ref().filter(|_| self.is_free()) {
            pool.give_back(&std::mem::take(&mut self.taken))?;
        }
        Ok(())
    }

    /// The caller is gone: what it ran.
    pub(super) fn abandon(&mut self) -> Option<Running<()>> {
        (self.offer, self.busy) = (None, None);
        self.answer.is_none().then(|| self.running.take()).flatten()
    }

    /// Adds metric lines of what runs.
    pub(super) fn add_metrics(&mut self, rows: Vec<Map<String, Value>>) {
        if self.running.is_some() {
            self.rows.extend(rows);
        }
    }

    /// The agent no longer waits for the answer. It ends the process that owes the answer, if it may.
    fn give_up(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.answer.is_some() {
            return;
        }
        if self.offer.take().is_some() {
            self.busy = None;
        }
        let seconds = self.ran().unwrap_or_default().as_secs_f64();
        let failure = Failure { exit_code: Some(137), ..Failure::default() };
        self.answer = Some((Err(failure), seconds, None));
        if let Some((pid, started)) = self.process.take()
            && process::started(pid.cast_signed()) == Some(started)
        {
            process::kill(pid);
        }
    }

    /// Writes the words of a failure into the agent's log: where they stand.
    fn log(&mut self, details: &str) -> Option<(u64, u64)> {
        if details.is_empty() {
            return None;
        }
        let path = self.tree.agent_file(&self.agent, "0.log");
        let mut text = details.to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        disk::append(&path, text.as_bytes()).ok()?;
        let (from, len) = (self.logged, text.len() as u64);
        self.logged += len;
        Some((from, len))
    }
}

impl Place for Call {
    type Work = ();
    type Ready = (Box<Trial>, Option<u64>, Option<String>);

    fn number(&self) -> u32 {
        0
    }

    fn running(&self) -> Option<&Running<()>> {
        self.running.as_ref()
    }

    fn is_free(&self) -> bool {
        self.running.is_none() && self.busy.is_none()
    }

    fn pid(&self) -> Option<u32> {
        None
    }

    fn refuses(&self, head: &Head) -> Option<String> {
        match &head.run.function {
            Some(name) if *name == self.function => None,
            Some(name) => Some(format!("call `{name}`")),
            None => Some("run a command".to_owned()),
        }
    }

    fn reserve(&mut self, row: &Row, request: &Resources, is_exact: bool) -> Result<Devices> {
        self.rest()?;
        let Some(pool) = &self.pool else {
            let is_named = is_exact && row.gpu_ids_abs.is_some();
            return Ok(if is_named { Devices::Never } else { Devices::There });
        };
        let count = usize::try_from(request.total_gpus())?;
        let taken = match row.gpu_ids_abs.as_deref() {
            Some([]) => Ok(Taken::default()),
            Some(named) => pool.take_named(named)?,
            None if count == 0 => {
                self.visible = None;
                return Ok(Devices::There);
            }
            None => pool.take(count)?,
        };
        let Ok(taken) = taken else { return Ok(Devices::Busy) };
        self.visible = Some(taken.visible.clone());
        self.taken = taken;
        Ok(Devices::There)
    }

    fn prepare(&mut self, order: Order<'_>) -> Result<Self::Ready> {
        let trial = order.row.id;
        let trial = Trial {
            row: order.row.clone(),
            attempt: order.attempt,
            work_dir: self.tree.work(trial),
            checkpoint_dir: self.tree.checkpoints(trial),
            may_end: order.may_end,
            deadline: order.deadline().map(epoch_of),
            devices: self.pool.is_some().then(|| self.visible.clone()),
            stop: Arc::clone(&self.stop),
        };
        let devices = self.visible.clone().or_else(|| self.devices.clone());
        Ok((Box::new(trial), order.request.walltime_s, devices))
    }

    fn sheet(ready: &Self::Ready) -> Sheet {
        Sheet { devices: ready.2.clone(), ..Sheet::default() }
    }

    fn launch(
        &mut self,
        role: Role,
        run: (u32, u64),
        (trial, walltime_s, _): Self::Ready,
    ) -> Result<(), (Role, anyhow::Error)> {
        self.stop.store(false, Ordering::Relaxed);
        self.running = Some(Running::begins(role, trial.row.id, run, walltime_s, ()));
        self.busy = Some((trial.row.id, trial.attempt));
        self.offer = Some(trial);
        Ok(())
    }

    fn stop(&mut self, why: Stop, grace: Duration) -> bool {
        let Some(running) = &mut self.running else { return false };
        let new = running.stop.is_none();
        let at = running.stop.get_or_insert((why, Instant::now())).1;
        self.stop.store(true, Ordering::Relaxed);
        if at.elapsed() >= grace {
            self.give_up();
        }
        new
    }

    fn until_due(&self) -> Option<Duration> {
        self.running.as_ref()?.until_due()
    }

    fn reap(&mut self, _: &[u32], _: Option<Stop>) -> Option<(Running<()>, Exited)> {
        let (result, seconds, used) = self.answer.take()?;
        let running = self.running.take()?;
        self.left = Remains { rows: std::mem::take(&mut self.rows), ..Remains::default() };
        let mut exit = Exit::of_call(0, None, seconds);
        let mut log = None;
        match result {
            Ok(value) => self.left.result = Some(value),
            Err(failure) => {
                exit = failure.exit(seconds);
                log = self.log(&failure.details);
                let words = Some(failure.reason).filter(|reason| !reason.is_empty());
                self.left.why = words.map(|words| {
                    let raised = match exit.signal {
                        Some(_) => Cause::Signal,
                        None => Cause::Exception,
                    };
                    Why::new(cause::log::of_reason(&words).unwrap_or(raised), words)
                });
                self.left.is_interrupted = failure.is_interrupted;
            }
        }
        Some((running, Exited { exit, used, log }))
    }

    fn metrics(&mut self) -> Vec<Map<String, Value>> {
        std::mem::take(&mut self.rows)
    }

    fn collect(&mut self, (): ()) -> Remains {
        std::mem::take(&mut self.left)
    }

    /// Folders are the caller's to make.
    fn tidy(&mut self, _: bool) {}

    fn belongs_to(&mut self, membership: &Membership) {
        membership.name.clone_into(&mut self.agent);
        self.logged = 0;
    }

    fn tail(&self, log: Option<(u64, u64)>) -> String {
        let path = self.tree.agent_file(&self.agent, "0.log");
        log.map_or_else(String::new, |part| hooks::tail_of_part(&path, part))
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn vars(&self) -> &Vars {
        &self.vars
    }

    /// Nothing is printed here but tracebacks.
    fn note(&mut self, _: &str) {}

    fn recorded(&mut self, run: AttemptId, state: Outcome, is_last: bool) {
        let AttemptId { trial, attempt, .. } = run;
        self.settled.push(Settled { trial, attempt, state, is_last });
    }
}
