//! The worker: one process a rank, from "who am I" to the record of the trial.
//!
//! Rank 0 finds the trial, opens the record, and is its only writer; other ranks run the same program and
//! report to rank 0. A single rank connects to no other and pays nothing for it. The worker never decides
//! what to run next and never talks to a scheduler.
//!
//! `process` prepares and starts the program of a rank, `ranks` connects the ranks of a trial, `record` writes what
//! happened; `attempt` uses all three.

pub(crate) mod attempt;
pub mod hooks;
pub(crate) mod limits;
pub mod process;
pub mod ranks;
pub(crate) mod record;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use attempt::Retry;
use nix::sys::signal::Signal;

use crate::base::cause::Cause;
use crate::base::fault::{Fault, Kind};
use crate::base::host::signal::Signals;
use crate::base::host::{Vars, clock, disk, vars};
use crate::base::words;
use crate::cluster::rank;
use crate::cluster::scheduler::{self, JobTime};
use crate::plan::{OnFailure, Resources};
use crate::sweep::attempt::verdict::Next;
use crate::sweep::tree::records::{self, Break, Event, Outcome, Record};
use crate::sweep::tree::table::{self, Head, Row};
use crate::sweep::tree::{Tree, terms, waves};

use process::{child, output, scratch};
use ranks::{member, peers};
use record::recorder::Recorder;
use record::{alive, room};

/// Which trial a worker is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The one of this element of a job array: entry `first + index` of the wave's map.
    Element {
        /// Number of the wave.
        wave: u32,
        /// Entry of the array's first element.
        first: u64,
        /// Elements of the array.
        count: u64,
        /// Which of the trials that the element runs one after the other.
        link: u64,
    },
    /// The trial of this number.
    Trial(u64),
}

/// The request to a worker.
#[derive(Debug, Clone)]
pub struct Request {
    /// Path of the sweep's folder.
    pub sweep: PathBuf,
    /// The trial, by its number or by the element of an array.
    pub which: Which,
    /// Run only if the trial before it in its chain is done (or the plan continues after failures).
    pub gate: bool,
    /// The request at the submission, if it differs from the table.
    pub resources: Option<Resources>,
    /// How long the job may run, where the job script says so.
    pub job_time: Option<JobTime>,
    /// The exit code, used for nothing else, that tells a script with further trials for this job that the worker had a signal
    /// to stop: the script may not have had it yet.
    pub stopped: Option<i32>,
    /// Writes a line to the output of the job, which its user reads.
    pub say: fn(&str),
}

/// Everything about the trial that every rank knows.
pub(crate) struct Job {
    /// The sweep that the trial is of.
    pub(crate) tree: Tree,
    /// What all its trials share.
    pub(crate) head: Head,
    /// The trial's row of the table.
    pub(crate) row: Row,
    /// What the trial asks for: the request at the submission, else that of the table.
    pub(crate) resources: Resources,
    /// Who this process is.
    pub rank: rank::Rank,
    /// How many ranks the trial has.
    pub world: u32,
    /// The environment the worker was started with.
    pub(crate) vars: Vars,
    /// The name of this process's node.
    pub host: String,
    /// The scheduler's id of this job.
    pub(crate) job_id: Option<String>,
    /// The exit code that tells the job's script that the worker had a signal to stop, where it asks for one.
    pub(crate) stopped: Option<i32>,
    /// Writes a line to the output of the job, which its user reads.
    pub(crate) say: fn(&str),
    /// Whether a scheduler has granted the resources that the trial asks for.
    pub(crate) granted: bool,
    /// The process that started this one.
    pub(crate) launcher: u32,
    /// When it began to use up its walltime.
    pub(crate) began: Instant,
    /// When the job ends, if only its scheduler knows that.
    pub(crate) ends: Option<Instant>,
}

impl Job {
    /// The exit code for the job's script: after a signal to stop, `told`, nothing more is to begin in the job, however the
    /// trial has ended.
    fn exit_code(&self, code: i32, told: Option<Signal>) -> i32 {
        match self.stopped {
            Some(stopped) if told.is_some() => stopped,
            Some(stopped) if stopped == code => 1,
            _ => code,
        }
    }

    /// What the trial asks for, where that is not what the table has for it.
    pub(crate) fn own_resources(&self) -> Option<Resources> {
        (self.resources != *self.head.asks(&self.row)).then(|| self.resources.clone())
    }

    /// How often the trial is tried, by the plan as it is now.
    pub(crate) fn attempts(&self) -> u32 {
        let by_table = self.head.run.attempts;
        terms::attempts(&self.tree, by_table).unwrap_or(by_table)
    }
}

/// The rank of this process. In a job of PBS the node file shows how many ranks there should be; hosts other
/// than the first may have none, and there only a launcher starts anything.
///
/// # Errors
/// As [`rank::derive`].
pub(crate) fn derive_rank(vars: &Vars, host: &str) -> Result<rank::Rank, Fault> {
    let nodefile = vars.get("PBS_NODEFILE").map(std::path::Path::new);
    match nodefile.and_then(|path| disk::read(path).ok()) {
        Some(text) if vars.contains_key("PBS_JOBID") => rank::derive_in_pbs(vars, host, &text),
        _ => rank::derive(vars, host),
    }
}

/// Runs a worker to its end and returns the exit code for the scheduler: the program's own, or 0 for a
/// failure after which its chain continues. The worker of rank 0 calls `told` with how the trial has ended
/// for good, after it has recorded the end and before it calls the plan's own hook. The process is the
/// worker's: the worker handles signals that ask it to end, and ends all children.
///
/// # Errors
/// When the trial cannot be found or its record cannot be written.
pub fn run(request: &Request, vars: Vars, told: Option<hooks::Told<'_>>) -> Result<i32> {
    let mut signals = child::listen()?;
    let launcher = std::os::unix::process::parent_id();
    let host = vars::node_name(&vars);
    let rank = derive_rank(&vars, &host)?;
    let tree = Tree::at(&request.sweep);
    tree.trust()?;
    let trial = which(&tree, &request.which, &vars)?;
    let (head, row) = table::find(&tree, trial)?;
    head.run.refuse_function(|| tree.author())?;
    let resources = request.resources.clone().unwrap_or_else(|| head.asks(&row).clone());
    let job_id = scheduler::job::id(&vars);
    // Bare PMIx does not say how many ranks there are; the plan does.
    let world = rank.world_size.unwrap_or(resources.ranks);
    let granted = matches!(request.which, Which::Element { .. });
    let (began, ends) = (limits::began(&vars), None);
    let mut job = Job {
        tree,
        head,
        row,
        resources,
        rank,
        world,
        vars,
        host,
        job_id,
        granted,
        launcher,
        began,
        ends,
        stopped: request.stopped,
        say: request.say,
    };
    let (record, next_run) = records::of_trial(&job.tree, trial)?;
    if record.outcome() == Some(Outcome::Done) {
        // Requeued after its end, or submitted twice: a finished result is never made again.
        let told = match job.rank.rank {
            0 => hooks::tell_late(&job, &record, &mut signals)?,
            _ => None,
        };
        output::drop_empty_job_log();
        let told = told.or_else(|| child::pending(&mut signals, Duration::ZERO, None));
        return Ok(job.exit_code(0, told));
    }
    if request.gate
        && let Some(reason) = why_gate_is_closed(&job)?
    {
        let skipped = match job.rank.rank {
            0 => skip(&job, next_run, reason, &mut signals),
            _ => Ok(()),
        };
        output::drop_empty_job_log();
        let code =
            skipped.map(|()| job.exit_code(1, child::pending(&mut signals, Duration::ZERO, None)));
        return told_to_stop(&job, code);
    }
    if world > 1 && job.rank.rank > 0 {
        check_world(&job)?;
        return member::run(&job, &mut signals);
    }
    let record = match alive::wait(&job, record, None, &mut signals)? {
        alive::Others::Gone(record) => record,
        other => return leave_it(&job, other, &mut signals),
    };
    job.ends = limits::ask_end(&job, request.job_time);
    let code = lead(&job, record, next_run, &mut signals, told);
    told_to_stop(&job, code)
}

/// The exit code of a worker that was asked to stop before its trial began.
fn told_to_stop(job: &Job, code: Result<i32>) -> Result<i32> {
    let told = |error: &anyhow::Error| error.downcast_ref().map(|room::Told(signal)| *signal);
    match code {
        Err(error) => {
            told(&error).map(|signal| job.exit_code(128 + signal as i32, Some(signal))).ok_or(error)
        }
        code => code,
    }
}

/// Records that the chain has stopped before the trial.
fn skip(job: &Job, next_run: u32, reason: String, signals: &mut Signals) -> Result<()> {
    let (trial, time, job_id) = (job.row.id, clock::now(), job.job_id.clone());
    let mut recorder = room::wait(job, signals, |_| Recorder::open(&job.tree, trial, next_run))?;
    let skip = Event::Skip { trial, time, job: job_id, reason, seq: recorder.seq };
    room::wait(job, signals, |_| recorder.write(&skip))
}

/// The exit code of a worker whose trial belongs to another run; an error that names that run.
fn leave_it(job: &Job, other: alive::Others, signals: &mut Signals) -> Result<i32> {
    let place = match other {
        alive::Others::Gone(_) | alive::Others::Done => {
            output::drop_empty_job_log();
            return Ok(job.exit_code(0, child::pending(signals, Duration::ZERO, None)));
        }
        alive::Others::Told(signal) => return Ok(job.exit_code(128 + signal as i32, Some(signal))),
        alive::Others::Alive(place) => place,
    };
    let sentence = format!("trial {} is being run already: {place}", job.row.id);
    Err(Fault::new(Kind::Trials, sentence)
        .hint(format!(
            "a trial never runs beside itself; `hpcsweep status {}` shows what becomes of it",
            words::sh_quote(&job.tree.dir().to_string_lossy())
        ))
        .into())
}

/// The launcher must have started as many ranks as the plan asked for.
fn check_world(job: &Job) -> Result<(), Fault> {
    let (asked, world) = (job.resources.ranks, job.world);
    if world == asked {
        return Ok(());
    }
    let started = if world == 1 { "1 was".to_owned() } else { format!("{world} were") };
    let asked = words::count(u64::from(asked), "rank");
    let sentence = format!("trial {} asks for {asked}, but {started} started", job.row.id);
    let by_hand = "start one worker a rank (srun, mpiexec)";
    let how = scheduler::job::scheduler(&job.vars).map_or(by_hand, |facts| facts.starts_ranks);
    let hint = format!("{how}; `hpcsweep worker --explain` shows what this one sees");
    let fault = Fault::request(sentence).because(Cause::Launch);
    Err(fault.at(format!("launcher: {}", job.rank.launcher)).hint(hint))
}

/// Rank 0: opens the record and runs attempts until one is done or none is left.
fn lead(
    job: &Job,
    mut record: Record,
    next_run: u32,
    signals: &mut Signals,
    told: Option<hooks::Told<'_>>,
) -> Result<i32> {
    let mut recorder =
        room::wait(job, signals, |_| Recorder::open(&job.tree, job.row.id, next_run))?;
    // One that was skipped begins no attempt.
    let latest = record.attempts.iter().map(|attempt| attempt.run).max().unwrap_or(0);
    let may_begin = latest + 1 < next_run && record.skipped.is_none();
    if recorder.run > next_run || may_begin {
        // Another worker has started the trial since we looked, or just before, and may not have recorded the start yet.
        std::thread::sleep(Duration::from_secs(1));
        let again = records::of_trial(&job.tree, job.row.id)?.0;
        record = match alive::wait(job, again, Some(recorder.run), signals)? {
            alive::Others::Gone(record) => record,
            other => return leave_it(job, other, signals),
        };
    }
    // That of its table: readers compare the two records, whatever the plan has dropped since.
    if let Some(before) = job.row.after {
        let (before, _) = records::of_trial(&job.tree, before)?;
        recorder.behind = before.outcome() == Some(Outcome::Done);
    }
    scratch::sweep_up(&job.vars);
    let mut crew = None;
    let mut tried = 0;
    let first = record.attempts.iter().map(|a| a.start.attempt).max().unwrap_or(0) + 1;
    let end = loop {
        let number = first + tried;
        let end = attempt::run(job, number, &mut recorder, &mut crew, signals)?;
        tried += 1;
        // The plan may have changed its mind while the job waited or ran.
        if end.retry != Retry::Here
            || Next::after(end.end.state, tried, job.attempts()) != Next::Again
        {
            break end;
        }
    };
    let told = hooks::tell(job, &record, &end, recorder.run, signals, told).or(end.told);
    // A launcher may end all of its ranks because this one has failed.
    let launcher = (end.code != 0).then_some(job.launcher);
    let told = told.or_else(|| child::pending(signals, Duration::ZERO, launcher));
    if end.retry == Retry::Relaunch && told.is_none() {
        ask_for_another_launch(&job.vars);
    }
    let code = match end.end.state {
        Outcome::Done => 0,
        // A failure after which the chain continues must look like success: aftercorr asks for 0.
        Outcome::Failed | Outcome::Timeout if job.head.run.on_failure == OnFailure::Continue => 0,
        _ => end.code,
    };
    let code = job.exit_code(code, told);
    if end.end.state == Outcome::Interrupted && job.world > 1 && told.is_some() {
        wait_for_preemption(job, signals);
    }
    if let Some(crew) = &mut crew {
        crew.tell(&peers::Down::Leave { code });
    }
    output::drop_empty_job_log();
    Ok(code)
}

/// Keeps the ranks until their job is preempted. With a GraceTime, Slurm asks steps to end some time before the job, and a
/// job that ends by itself within that time is neither requeued nor called preempted.
fn wait_for_preemption(job: &Job, signals: &mut Signals) {
    /// The longest grace that is waited for.
    const MOST: Duration = Duration::from_secs(3600);
    if scheduler::job::is_preempted(&job.vars, Duration::from_secs(10)) {
        child::pending(signals, MOST, None);
    }
}

/// Tells the job script that another launch of the ranks makes sense; how many there may be, it knows.
fn ask_for_another_launch(vars: &Vars) {
    let Some(file) = vars.get("HPCSWEEP_AGAIN") else { return };
    // Without it the trial stays as recorded: failed.
    let _ = disk::append(std::path::Path::new(file), b"");
}

/// Why the chain has stopped before this trial, if it has.
fn why_gate_is_closed(job: &Job) -> Result<Option<String>> {
    let Some(before) = terms::before(&job.tree, &job.row)? else { return Ok(None) };
    if job.head.run.on_failure == OnFailure::Continue {
        return Ok(None);
    }
    // A record just written on another node may take a moment to be seen here (NFS).
    let since = Instant::now();
    loop {
        let (record, _) = records::of_trial(&job.tree, before)?;
        let what = match record.outcome() {
            Some(Outcome::Done) => return Ok(None),
            Some(outcome) => Break::Ended(outcome),
            None if record.skipped.is_some() => Break::Skipped,
            None if since.elapsed() <= Duration::from_secs(3) => {
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
            None if record.attempts.is_empty() => Break::Unrun,
            None => Break::NoEnd,
        };
        return Ok(Some(what.reason(before)));
    }
}

fn which(tree: &Tree, which: &Which, vars: &Vars) -> Result<u64> {
    match which {
        Which::Trial(trial) => Ok(*trial),
        Which::Element { wave, first, count, link } => {
            let index = scheduler::job::index(vars)?;
            if index >= *count {
                let sentence =
                    format!("array index {index} is beyond the {count} elements of this array");
                return Err(Fault::request(sentence).into());
            }
            waves::element(tree, *wave, first + link * count + index)
        }
    }
}
