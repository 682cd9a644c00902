//! Places of an agent, each of which runs one trial at a time: a slot (`slot`) runs programs, the place of an agent
//! that is served by its caller ([`crate::run::pull::solo`]) calls a function of the caller. The agent treats both alike:
//! copies, attempts, walltimes, chains and hooks know no difference.

pub(crate) mod bind;
pub(crate) mod guard;
pub(super) mod slot;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Map, Value};

use crate::base::cause::Why;
use crate::base::host::{Vars, clock};
use crate::plan::Resources;
use crate::run::pull::membership::{Membership, Unit};
use crate::sweep::attempt::exit::Exit;
use crate::sweep::attempt::stop::Stop;
use crate::sweep::attempt::verdict::MAX_FAULTS;
use crate::sweep::tree::records::{GpuUsage, Outcome, Used};
use crate::sweep::tree::table::{Head, Row};

/// An attempt that this agent makes, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptId {
    pub(crate) trial: u64,
    pub(crate) attempt: u32,
    /// How many entries of the ledger were read when it began.
    pub(crate) seq: u64,
    pub(crate) slot: usize,
}

/// On whose behalf a trial runs.
#[derive(Debug)]
pub(crate) enum Role {
    /// As the next trial of a unit.
    Unit(Unit),
    /// As a copy of a trial that another agent has run for too long.
    Copy(Box<Row>),
}

impl Role {
    /// The trial that is run; `None` if the unit has no trial left.
    pub(crate) fn row(&self) -> Option<&Row> {
        match self {
            Self::Unit(unit) => unit.rows.front(),
            Self::Copy(row) => Some(row),
        }
    }
}

/// The trial that runs in a place; `work` is what the place knows of it.
pub(crate) struct Running<W> {
    /// Whose trial it is.
    pub(crate) role: Role,
    pub(crate) trial: u64,
    pub(crate) attempt: u32,
    /// How many entries of the ledger were read when it began.
    pub(crate) seq: u64,
    /// When it was started.
    pub(crate) since: Instant,
    /// Why and when it was asked to end.
    pub(crate) stop: Option<(Stop, Instant)>,
    /// The program or function.
    pub(crate) work: W,
    /// When its walltime is over, by [`clock::awake`], which ignores suspended time; `None`: never.
    deadline: Option<Instant>,
}

impl<W> Running<W> {
    /// What begins now and may take so many seconds.
    pub(crate) fn begins(
        role: Role,
        trial: u64,
        (attempt, seq): (u32, u64),
        walltime_s: Option<u64>,
        work: W,
    ) -> Self {
        let since = Instant::now();
        let awake = clock::awake();
        let deadline = walltime_s.and_then(|s| awake.checked_add(Duration::from_secs(s)));
        Self { role, trial, attempt, seq, since, stop: None, work, deadline }
    }

    /// Whether its own time is over.
    pub(crate) fn is_overdue(&self) -> bool {
        self.stop.is_none() && self.deadline.is_some_and(|deadline| clock::awake() >= deadline)
    }

    /// Whether its own time would have been over within so long after it was asked to end.
    pub(crate) fn is_nearly_overdue(&self, margin: Duration) -> bool {
        let suspended = Instant::now().saturating_duration_since(clock::awake());
        let asked = self.stop.and_then(|(_, at)| at.checked_sub(suspended));
        asked.zip(self.deadline).is_some_and(|(at, deadline)| at + margin >= deadline)
    }

    /// The time until its own time is over.
    pub(crate) fn until_due(&self) -> Option<Duration> {
        let open = self.stop.is_none().then_some(self.deadline)??;
        Some(open.saturating_duration_since(clock::awake()))
    }

    /// Whether nothing else may run beside it.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(&self.role, Role::Unit(unit) if unit.alone)
    }

    /// Whether it is the unit of [`is_on_trial`].
    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(&self.role, Role::Unit(unit) if is_on_trial(unit))
    }
}

/// Whether one more lost agent would be one too many for the next trial of a unit. Two of these never run in
/// the same agent: a trial that takes its agents with it takes no other past that number.
pub(crate) fn is_on_trial(unit: &Unit) -> bool {
    unit.faults + 1 == MAX_FAULTS
}

/// How what ran has ended.
#[derive(Debug, Clone)]
pub(crate) struct Exited {
    /// Exit code, signal, and how long it ran.
    pub(crate) exit: Exit,
    /// What it has used, if that is known.
    pub(crate) used: Option<Used>,
    /// Where its output stands in the place's log: offset and length.
    pub(crate) log: Option<(u64, u64)>,
}

impl Exited {
    /// Its peak memory, bytes; 0 if that is not known.
    pub(crate) fn memory(&self) -> u64 {
        self.used.as_ref().map_or(0, |used| used.memory)
    }
}

/// The files that a trial has left.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Metric lines that were not taken yet.
    pub(crate) rows: Vec<Map<String, Value>>,
    /// What its GPUs have done.
    pub(crate) gpus: Vec<GpuUsage>,
    /// Its result: that it finished.
    pub(crate) result: Option<Value>,
    /// Why it failed: its own words come first.
    pub(crate) why: Option<Why>,
    /// Why it has failed although it ended with 0.
    pub(crate) unmet: Option<Why>,
    /// What it has not noticed, if it is done.
    pub(crate) overlooked: Option<Why>,
    /// Errors in these files.
    pub(crate) complaints: Option<String>,
    /// What is lost with its private folder, if that was removed.
    pub(crate) loss: Option<String>,
    /// Whether it says that it stopped early and is to run elsewhere.
    pub(crate) is_interrupted: bool,
}

/// Everything that a run of a trial needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order<'a> {
    /// The head of its table.
    pub(crate) head: &'a Head,
    /// The row of the trial in the table.
    pub(crate) row: &'a Row,
    /// The snapshot of its code, and the working folder there; `None`: the plan's own folder.
    pub(crate) code: Option<&'a (String, PathBuf)>,
    /// The plan's current request.
    pub(crate) request: &'a Resources,
    /// The attempt, from 1.
    pub(crate) attempt: u32,
    /// Whether every trial gets a folder of its own.
    pub(crate) folders: bool,
    /// Whether it may be ended before it does so by itself: its time may be over, or a copy of it may win.
    pub(crate) may_end: bool,
    /// When the agent asks all that runs to end, because its allocation does.
    pub(crate) until: Option<Instant>,
}

impl Order<'_> {
    /// When the trial is asked to end if it begins now, where anything limits it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let walltime = self.request.walltime_s.map(Duration::from_secs);
        let own = walltime.and_then(|walltime| clock::awake().checked_add(walltime));
        own.into_iter().chain(self.until).min()
    }
}

/// Whether a place can have the devices of a trial.
pub(crate) enum Devices {
    /// It has them: the trial can begin.
    There,
    /// Other trials have them now: the trial can begin later.
    Busy,
    /// Not as this agent has joined.
    Never,
}

/// What the record of a start says of a prepared trial.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    /// The argument vector; empty for a call.
    pub(crate) argv: Vec<String>,
    /// Its devices, where they were chosen.
    pub(crate) devices: Option<String>,
    /// The snapshot of its code.
    pub(crate) snapshot: Option<String>,
}

/// A place of an agent, which runs one trial at a time. The trait hides what runs it: a program or the caller.
pub(super) trait Place {
    /// The place's data about its run.
    type Work;
    /// A trial that is about to run.
    type Ready;

    /// Its number, from 0.
    fn number(&self) -> u32;
    /// The trial that runs in it.
    fn running(&self) -> Option<&Running<Self::Work>>;
    /// Whether a trial may begin in it.
    fn is_free(&self) -> bool {
        self.running().is_none()
    }
    /// The process that runs in it.
    fn pid(&self) -> Option<u32>;
    /// Why trials of this table cannot run here, if they cannot.
    fn refuses(&self, head: &Head) -> Option<String>;
    /// Takes the devices of a trial, where each has its own; `is_exact`: whether trials insist on those they name.
    fn reserve(&mut self, _: &Row, _: &Resources, _is_exact: bool) -> Result<Devices> {
        Ok(Devices::There)
    }
    /// Sends the plan's signal to what runs, once its moment has come.
    fn notify(&mut self) {}
    /// Prepares a trial; [`Place::launch`] follows.
    fn prepare(&mut self, order: Order<'_>) -> Result<Self::Ready>;
    /// What is recorded about the start of what was prepared.
    fn sheet(ready: &Self::Ready) -> Sheet;
    /// Starts the prepared trial; the error says why it could not be started.
    fn launch(
        &mut self,
        role: Role,
        run: (u32, u64),
        ready: Self::Ready,
    ) -> Result<(), (Role, anyhow::Error)>;
    /// Asks what runs to end, or ends it where `grace` is over since it was asked. `true` if it was asked just now.
    fn stop(&mut self, why: Stop, grace: Duration) -> bool;
    /// The time until something is to be done here.
    fn until_due(&self) -> Option<Duration>;
    /// What ran, if it has ended; `why` the agent stops, if it does, and `others` are processes of other places.
    fn reap(&mut self, others: &[u32], why: Option<Stop>) -> Option<(Running<Self::Work>, Exited)>;
    /// Measures what runs, now and then.
    fn measure(&mut self) {}
    /// Metric lines of what runs that are not taken yet, a megabyte at most.
    fn metrics(&mut self) -> Vec<Map<String, Value>>;
    /// Whether there are more of them than that.
    fn has_more_metrics(&self) -> bool {
        false
    }
    /// Takes what a trial that has ended has left behind.
    fn collect(&mut self, work: Self::Work) -> Remains;
    /// Removes folders in which nothing was left.
    fn tidy(&mut self, folders: bool);
    /// From now on it belongs to this agent.
    fn belongs_to(&mut self, membership: &Membership);
    /// The end of what a trial has printed.
    fn tail(&self, log: Option<(u64, u64)>) -> String;
    fn host(&self) -> &str;
    /// The environment of its trials before what each adds.
    fn vars(&self) -> &Vars;
    /// Writes a line into its log, as part of what the trial printed.
    fn note(&mut self, text: &str);
    /// The end of a run is written down; `is_last` where the trial runs again only on request.
    fn recorded(&mut self, run: AttemptId, state: Outcome, is_last: bool);
}
