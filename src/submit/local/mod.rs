//! The executor of `--local`: chains in parallel, links in order, by processes of this machine. The
//! same worker, tree and exit codes as under a scheduler.

pub(super) mod gpus;
pub(super) mod repeats;
mod starter;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{Source, check_caps, check_growth, check_writable, secure};
use crate::base::fault::Fault;
use crate::base::host::gpus::DeviceId;
use crate::base::host::signal::Signals;
use crate::base::host::{Vars, clock, process, threads, vars};
use crate::base::idset::IdSet;
use crate::cluster::gpu::Taken;
use crate::cluster::render::Templates;
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{OnFailure, Resources, Run};
use crate::submit::again::Again;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::{self, Diff, Request, Todo};
use crate::submit::local::gpus::Devices;
use crate::submit::local::repeats::{Others, Repeats};
use crate::submit::local::starter::{Deserted, Starter};
use crate::submit::pilots::hands;
use crate::submit::todo::{self, Decided, Holdings, Planned};
use crate::submit::{retry, snapshot};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::lock::{Lock, TOUCH_EVERY};
use crate::sweep::tree::records::{self, Outcome, Record};
use crate::sweep::tree::table::{self, Head, Row};
use crate::sweep::tree::{Tree, journal, terms};

/// Options from the command line.
#[derive(Debug, Default, Clone)]
pub(crate) struct LocalOptions {
    /// Chains at once; by default as many as fit the cores.
    pub(crate) jobs: Option<usize>,
    /// Failed, timed-out and skipped trials that run again.
    pub(crate) retry: Again,
    /// Whether the rules of `[retry]` hold.
    pub(crate) repeats: bool,
}

/// An event, for a caller that shows it.
#[derive(Debug)]
pub(crate) enum News<'a> {
    /// The executor is about to begin.
    Begin {
        /// Trials to run now.
        todo: u64,
        /// The most chains that run at once.
        jobs: usize,
        /// What to know about GPUs; empty when no trial asks for any.
        gpus: String,
        /// What to say of trials of the sweep that the plan no longer has.
        left_alone: Option<String>,
    },
    /// A trial has ended.
    Ended {
        /// Its row of the table.
        row: &'a Row,
        /// How; `None` if its worker left no end.
        outcome: Option<Outcome>,
        /// Why, where there is more to say.
        reason: String,
        /// Seconds that its last attempt ran.
        duration_s: f64,
    },
    /// A trial has ended without success and runs again, by `[retry]`.
    Repeated {
        /// Its row of the table.
        row: &'a Row,
        /// What happened, and what is different now.
        why: String,
    },
    /// What to know about the code of the trials.
    Note(String),
    /// Nothing for a while.
    Idle,
    /// Nothing runs, as others have the devices that the next trial needs: why, in words.
    Waiting(String),
    /// The executor was asked to stop and passes that on.
    Stopping,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct LocalReport {
    /// The difference between the plan and the sweep.
    pub(crate) diff: Diff,
    /// The sweep whose trials were run.
    pub(crate) tree: Tree,
    /// Trials run now, by outcome.
    pub(crate) ended: BTreeMap<Outcome, u64>,
    /// Trials whose chain stopped before them.
    pub(crate) skipped: u64,
    /// True when a signal ended it.
    pub(crate) interrupted: bool,
}

/// A chain on its way.
struct Chain {
    /// Places of its links among the rows.
    links: VecDeque<usize>,
}

struct RunningTrial {
    chain: usize,
    row: usize,
    workers: Vec<Child>,
    /// Its one child is mpirun, which kills its ranks a second after a SIGTERM, but hands SIGUSR2 on.
    by_mpirun: bool,
    /// How often mpirun has been started for it: another attempt takes another launch.
    launches: u32,
    deserted: Deserted,
    devices: Taken,
    visible: Option<String>,
    since: Instant,
    /// The same in Unix seconds: its walltime holds for all launches together.
    began: f64,
}

impl RunningTrial {
    /// Why nothing of the trial was recorded, by what started its ranks: an `mpirun` that fails, or a worker that was killed.
    fn why_unbegun(&mut self) -> Option<String> {
        let ends = self.workers.iter_mut().filter_map(|worker| worker.try_wait().ok().flatten());
        let end = ends.into_iter().find(|end| !end.success())?;
        let who = if self.by_mpirun { "`mpirun`" } else { "its worker" };
        let how = match end.signal() {
            Some(number) => format!("was ended by {}", records::signal_text(number)),
            None => format!("exited with code {}", process::code_of(end)),
        };
        Some(format!("{who} {how} before the trial began"))
    }
}

/// Runs what of a plan has no result yet.
///
/// # Errors
/// When the plan cannot run here, the sweep is queued or running, or the disk refuses.
pub(crate) fn run(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &LocalOptions,
    environment: &Vars,
    mut tell: impl FnMut(News<'_>),
) -> Result<LocalReport> {
    source.plan.run.refuse_function(|| source.author())?;
    check_caps(source, site, SchedulerKind::Local)?;
    let tree = source.tree();
    let devices = Devices::find(source, environment)?;
    check_writable(&tree, &source.plan, site)?;
    let check = |diff: &Diff| {
        devices.check(&source.plan, diff, false, || left(&tree, source, &options.retry))
    };
    if tree.identity()?.is_none() {
        // A new sweep that is refused leaves no trace.
        check(&Diff::default())?;
    }
    let access = secure(&tree, &source.plan, site)?;
    let lock = Lock::take(&tree)?;
    let identity = tree.create(&source.plan.name, access)?;
    let earlier = Journal::read(&tree)?;
    retry::check_free(&tree, &identity, &earlier, site, environment, SchedulerKind::Local)?;
    hands::take_over(&tree)?;
    let mut signals =
        Signals::listen(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD])?;
    grow::follow(&tree, source)?.into_iter().for_each(|note| tell(News::Note(note)));
    let mut diff = grow::diff(&tree, source)?;
    options.retry.change(&mut diff);
    check_growth(&source.plan, site, &diff)?;
    check(&diff)?;
    let records = records::all(&tree)?;
    let added = grow::added(&tree, source, &diff)?.0;
    let planned = Planned::new(&tree, source, &diff, &added)?;
    let again = match options.retry.is_with_current_code() {
        true => decide(planned, &records, &earlier, &options.retry)?.runs(),
        false => HashSet::new(),
    };
    let again = again.into_iter().filter(|trial| *trial < diff.known);
    let notes =
        snapshot::keep(&tree, source, &diff, again, (&options.retry, &records), environment)?;
    notes.into_iter().for_each(|note| tell(News::Note(note)));
    grow::grow(&tree, source, &diff, templates, site)?;
    let mut journal = journal::Writer::open(&tree)?;
    journal.site(journal::Site::LOCAL, &source.path)?;

    let rows = table::rows(&tree)?;
    let heads = table::heads(&tree)?;
    wait_for_orphans(&records)?;
    let stop_chain = planned.on_failure == OnFailure::Stop;
    let jobs = jobs(source, options);
    let mut repeats = Repeats::of(&tree, options.repeats.then_some(&source.plan.retry))?;
    let mut shared = HashMap::new();
    let known = rows.iter().filter(|row| diff.has(row.id));
    let again = repeats.of_earlier(
        known.filter_map(|row| Some((row, records.get(&row.id)?))),
        |row| diff.now(row, &heads, &mut shared).resources,
        |trial| !options.retry.has(trial) && options.retry.admits(trial),
        jobs > 1,
        (&mut journal, &lock),
    )?;
    let retry = options.retry.clone().and(&Again::with_requests(again, HashMap::new()));
    let decided = decide(planned, &records, &earlier, &retry)?;
    let note = decided.note(&retry, source.author());
    note.into_iter().for_each(|note| tell(News::Note(note)));
    let (chains, todo) = (chains(&rows, &decided.todo), decided.todo.len() as u64);
    let gpus = if todo > 0 { devices.note() } else { String::new() };
    tell(News::Begin { todo, jobs, gpus, left_alone: diff.left_alone() });

    let mut executor = Executor {
        tree: &tree,
        rows: &rows,
        heads: &heads,
        diff: &diff,
        shared,
        repeats,
        journal: &mut journal,
        starter: Starter::new(&tree, &identity.token, environment)?,
        devices,
        waiting: (0..chains.len()).collect(),
        skipped: decided.behind(),
        chains,
        stop_chain,
        jobs,
        running: Vec::new(),
        ended: BTreeMap::new(),
        seen: Vec::new(),
        interrupted: false,
        told: None,
        blocked: None,
        waits: None,
    };
    executor.run(&mut signals, &lock, &mut tell)?;
    let Executor { ended, seen, skipped, interrupted, .. } = executor;
    let trials = seen.into_iter().collect::<IdSet>().to_string();
    journal.write(&journal::Entry::Ended { time: clock::now(), trials })?;
    Ok(LocalReport { diff, tree, ended, skipped, interrupted })
}

/// The trials of a plan that have no result yet: places in the plan, with the numbers in the sweep. Reads the tree
/// as it is now.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn left(tree: &Tree, source: &Source, retry: &Again) -> Result<HashMap<usize, u64>> {
    let mut diff = grow::diff(tree, source)?;
    retry.change(&mut diff);
    let added = grow::added(tree, source, &diff)?.0;
    let planned = Planned::new(tree, source, &diff, &added)?;
    let runs = decide(planned, &records::all(tree)?, &Journal::read(tree)?, retry)?.runs();
    let numbers = diff.numbers().map(|(trial, _)| trial).enumerate();
    Ok(numbers.filter(|(_, trial)| runs.contains(trial)).collect())
}

/// What becomes of the trials of a plan on this machine.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn decide(
    planned: Planned<'_>,
    records: &HashMap<u64, Record>,
    journal: &Journal,
    retry: &Again,
) -> Result<Decided> {
    let cancelled = Waves::read(planned.tree)?.cancelled(journal, records);
    todo::decide(planned, retry, records, &Holdings { cancelled, ..Holdings::default() })
}

/// The chains of what is left to run, in their order: places among the rows.
fn chains(rows: &[Row], todo: &[Todo]) -> Vec<Chain> {
    let mut chains: BTreeMap<u64, Chain> = BTreeMap::new();
    for todo in todo {
        let Ok(place) = rows.binary_search_by_key(&todo.id, |row| row.id) else { continue };
        let chain = chains.entry(todo.chain).or_insert_with(|| Chain { links: VecDeque::new() });
        chain.links.push_back(place);
    }
    chains.into_values().collect()
}

/// Workers of an executor that was killed end by themselves, but may take a moment to end their
/// programs; until then their trials must not run a second time.
fn wait_for_orphans(records: &HashMap<u64, Record>) -> Result<()> {
    let host = vars::hostname();
    let since = Instant::now();
    for record in records.values() {
        let Some(attempt) = record.attempts.last().filter(|a| a.end.is_none()) else { continue };
        let pid = attempt.start.pid.cast_signed();
        let started = attempt.start.started;
        while attempt.start.host == host && started.is_some() && process::started(pid) == started {
            if since.elapsed() > Duration::from_secs(60) {
                let sentence = format!("trial {} still runs in process {pid}", attempt.start.trial);
                return Err(Fault::machine(sentence)
                    .hint("wait until it has ended, or end it, and run the same command again")
                    .into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// A run under way.
struct Executor<'a> {
    tree: &'a Tree,
    rows: &'a [Row],
    heads: &'a [Head],
    diff: &'a Diff,
    shared: HashMap<u64, Arc<Resources>>,
    repeats: Repeats<'a>,
    journal: &'a mut journal::Writer,
    starter: Starter<'a>,
    devices: Devices,
    chains: Vec<Chain>,
    /// Chains whose next link may start.
    waiting: VecDeque<usize>,
    stop_chain: bool,
    jobs: usize,
    running: Vec<RunningTrial>,
    ended: BTreeMap<Outcome, u64>,
    /// Trials whose ends are on record.
    seen: Vec<u32>,
    skipped: u64,
    interrupted: bool,
    /// When the workers were last asked to stop.
    told: Option<Instant>,
    /// Why a trial could not have its devices, and what was last reported of it.
    blocked: Option<Fault>,
    waits: Option<String>,
}

impl Executor<'_> {
    /// Runs until nothing is left, or it was asked to stop and nothing runs any more.
    fn run(
        &mut self,
        signals: &mut Signals,
        lock: &Lock,
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<()> {
        let mut touched = Instant::now();
        loop {
            self.start_ready()?;
            if self.running.is_empty() && self.is_over(tell) {
                return Ok(());
            }
            match signals.next(Duration::from_millis(500)) {
                Some(Signal::SIGCHLD) => {}
                Some(signal) => {
                    if !self.interrupted {
                        tell(News::Stopping);
                    }
                    self.stop(signal);
                }
                None => tell(News::Idle),
            }
            if touched.elapsed() > TOUCH_EVERY {
                lock.touch();
                touched = Instant::now();
            }
            // A worker that was asked to stop ends within its grace. One that does not is killed.
            if self.told.is_some_and(|since| since.elapsed() > Duration::from_secs(60)) {
                self.stop(Signal::SIGKILL);
            }
            self.reap(tell)?;
        }
    }

    /// Whether nothing is left to run, while nothing runs. Trials that are left wait for devices that other
    /// programs have.
    fn is_over(&mut self, tell: &mut impl FnMut(News<'_>)) -> bool {
        if self.interrupted || self.waiting.is_empty() {
            return true;
        }
        let why = self.blocked.take().map(|fault| fault.to_string()).unwrap_or_default();
        if self.waits.as_ref() != Some(&why) {
            tell(News::Waiting(why.clone()));
        }
        self.waits = Some(why);
        false
    }

    /// Starts the trials that fit, in plan order; a chain that waits for its devices is skipped.
    fn start_ready(&mut self) -> Result<()> {
        let mut passed = 0;
        // Each set of devices that is not free now is tried once: holds are files.
        let mut refused: HashSet<(Option<Vec<DeviceId>>, u64)> = HashSet::new();
        while !self.interrupted && self.running.len() < self.jobs && passed < self.waiting.len() {
            if self.running.iter().any(|other| self.repeats.is_alone(self.rows[other.row].id)) {
                break;
            }
            let Some(chain) = self.waiting.pop_front() else { break };
            let Some(&row) = self.chains[chain].links.front() else { continue };
            if !self.running.is_empty() && self.repeats.is_alone(self.rows[row].id) {
                self.waiting.push_back(chain);
                passed += 1;
                continue;
            }
            let request = self.request(row);
            let gpus = request.resources.total_gpus();
            let asked = (self.rows[row].gpu_ids_abs.clone(), gpus);
            let taken = match refused.contains(&asked) {
                true => None,
                false => Some(self.devices.take(&self.rows[row], gpus)?),
            };
            let Some(Ok((devices, visible))) = taken else {
                self.blocked = taken.and_then(Result::err).or(self.blocked.take());
                refused.insert(asked);
                self.waiting.push_back(chain);
                passed += 1;
                continue;
            };
            self.chains[chain].links.pop_front();
            let id = self.rows[row].id;
            let several = request.resources.ranks > 1;
            let by_mpirun = several && self.run_of(id).is_some_and(Run::needs_mpi);
            let began = clock::now();
            let workers = self.starter.start(id, &request, by_mpirun, visible.as_deref(), began)?;
            let since = Instant::now();
            self.running.push(RunningTrial {
                chain,
                row,
                workers,
                by_mpirun,
                launches: 1,
                deserted: Deserted::default(),
                devices,
                visible,
                since,
                began,
            });
        }
        Ok(())
    }

    /// What a trial asks for now.
    fn request(&mut self, row: usize) -> Request {
        let row = &self.rows[row];
        match self.repeats.request(row.id) {
            Some(grown) => Request { resources: Arc::clone(grown), is_in_table: false },
            None => self.diff.now(row, self.heads, &mut self.shared),
        }
    }

    /// Core-seconds of the trials that run, since they began.
    fn running_core_seconds(&mut self) -> f64 {
        let running: Vec<(usize, Duration)> =
            self.running.iter().map(|own| (own.row, own.since.elapsed())).collect();
        let of = |(row, time): (usize, Duration)| {
            time.as_secs_f64() * self.request(row).resources.cores() as f64
        };
        running.into_iter().map(of).sum()
    }

    /// Whether a trial that has ended runs again, by `[retry]`.
    fn repeat(
        &mut self,
        was: &RunningTrial,
        record: &Record,
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<bool> {
        let core_seconds = self.running_core_seconds();
        let row = &self.rows[was.row];
        let asked = self.request(was.row).resources;
        self.repeats.count(row, record);
        if self.interrupted {
            return Ok(false);
        }
        let were_there = self.jobs > 1 && self.chains.len() > 1;
        let others = Others { were_there, core_seconds };
        let why = self.repeats.decide((row, record), &asked, others, self.journal)?;
        let Some(why) = why else { return Ok(false) };
        tell(News::Repeated { row, why });
        self.chains[was.chain].links.push_front(was.row);
        match self.repeats.is_alone(row.id) {
            true => self.waiting.push_back(was.chain),
            false => self.waiting.push_front(was.chain),
        }
        Ok(true)
    }

    fn run_of(&self, trial: u64) -> Option<&Run> {
        let head = self.heads.iter().rev().find(|head| head.first <= trial);
        head.map(|head| &head.run)
    }

    /// Starts the ranks of a trial once more if they have failed and an attempt is left. A worker does this
    /// by itself, except if ranks talk over MPI: then it needs another mpirun.
    fn relaunch(&mut self, i: usize, record: &Record) -> Result<bool> {
        let was = &self.running[i];
        let id = self.rows[was.row].id;
        let by_table = self.run_of(id).map_or(1, |run| run.attempts);
        let allowed = terms::attempts(self.tree, by_table)?;
        // A trial that could not even begin would not begin now.
        let ran =
            record.decisive().and_then(|a| a.end.as_ref()).is_some_and(|e| e.exit_code.is_some());
        let failed = record.outcome() == Some(Outcome::Failed) && ran;
        if !was.by_mpirun || !failed || was.launches >= allowed || self.interrupted {
            return Ok(false);
        }
        let row = was.row;
        let request = self.request(row);
        let was = &self.running[i];
        let visible = was.visible.as_deref();
        let workers = self.starter.start(id, &request, true, visible, was.began)?;
        let again = &mut self.running[i];
        again.workers = workers;
        again.launches += 1;
        again.deserted = Deserted::default();
        Ok(true)
    }

    /// The first call asks the workers to end their programs and write it down; a second kills.
    fn stop(&mut self, signal: Signal) {
        let signal = if self.interrupted { Signal::SIGKILL } else { signal };
        for running in &self.running {
            let asks = running.by_mpirun && signal != Signal::SIGKILL;
            let signal = if asks { Signal::SIGUSR2 } else { signal };
            running.workers.iter().for_each(|worker| process::kill_group(worker, signal));
        }
        self.interrupted = true;
        self.told = Some(Instant::now());
    }

    /// Records the trials that have ended, and continues their chains.
    fn reap(&mut self, tell: &mut impl FnMut(News<'_>)) -> Result<()> {
        let over = |w: &mut Child| matches!(w.try_wait(), Ok(Some(_)) | Err(_));
        let mut i = 0;
        while i < self.running.len() {
            let running = &mut self.running[i];
            if !running.workers.iter_mut().all(over) {
                if let (true, [mpirun]) = (running.by_mpirun, running.workers.as_slice()) {
                    running.deserted.look(mpirun);
                }
                i += 1;
                continue;
            }
            let row = &self.rows[self.running[i].row];
            let (record, _) = records::of_trial(self.tree, row.id)?;
            if self.relaunch(i, &record)? {
                i += 1;
                continue;
            }
            let mut was = self.running.swap_remove(i);
            self.devices.give_back(&was.devices)?;
            if self.repeat(&was, &record, tell)? {
                continue;
            }
            let outcome = record.outcome();
            self.seen.extend(outcome.and_then(|_| u32::try_from(row.id).ok()));
            *self.ended.entry(outcome.unwrap_or(Outcome::Interrupted)).or_default() += 1;
            let attempt = record.decisive();
            let end = attempt.and_then(|a| a.end.as_ref());
            tell(News::Ended {
                row,
                outcome,
                reason: match attempt {
                    Some(attempt) => attempt.why(),
                    None if self.interrupted => String::new(),
                    None => was.why_unbegun().unwrap_or_default(),
                },
                duration_s: end.map_or_else(|| was.since.elapsed().as_secs_f64(), |e| e.duration_s),
            });
            let chain = &mut self.chains[was.chain];
            if outcome != Some(Outcome::Done) && self.stop_chain && !self.interrupted {
                self.skipped += chain.links.len() as u64;
                chain.links.clear();
            }
            if !chain.links.is_empty() {
                // In front: a chain that has begun continues before new ones begin.
                self.waiting.push_front(was.chain);
            }
        }
        Ok(())
    }
}

/// As many chains at once as fit the cores, each trial counted with all its ranks.
pub(super) fn jobs(source: &Source, options: &LocalOptions) -> usize {
    let widest = source.plan.trials.iter().map(|t| t.resources.cores()).max().unwrap_or(1).max(1);
    let fit = (threads::cores() / widest as usize).max(1);
    let wanted = options.jobs.unwrap_or(fit).max(1);
    source.plan.schedule.max_running.map_or(wanted, |most| wanted.min(most as usize))
}
