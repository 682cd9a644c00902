//! The executor of `--local`: chains in parallel, links in order, by processes of this machine. The
//! same worker, tree and exit codes as under a scheduler.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::grow::{self, Growth};
use super::wave::Waves;
use super::{Source, check_caps};
use crate::fault::{Fault, Faults};
use crate::host::signal::Signals;
use crate::host::{Vars, clock, disk, gpus, process};
use crate::plan::{GpuIds, OnFailure};
use crate::rank::is_launcher_variable;
use crate::render::Templates;
use crate::site::{SchedulerKind, Site};
use crate::tree::lock::{Lock, TOUCH_EVERY};
use crate::tree::records::{self, Outcome};
use crate::tree::table::{self, Row};
use crate::tree::{Tree, journal};

/// What a person chose on the command line.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Chains at once; by default as many as fit the cores.
    pub jobs: Option<usize>,
    /// Run failed, timed-out and skipped trials again.
    pub retry: bool,
}

/// Something that happened, for the one who shows it.
#[derive(Debug)]
pub enum News<'a> {
    /// The executor is about to begin.
    Begin {
        /// Trials to run now.
        todo: u64,
        /// Chains at once.
        jobs: usize,
        /// What to know about GPUs; empty when no trial asks for any.
        gpus: String,
    },
    /// A trial has ended.
    Ended {
        /// The trial.
        row: &'a Row,
        /// How; `None` if its worker left no end.
        outcome: Option<Outcome>,
        /// Why, where there is more to say.
        reason: String,
        /// Seconds.
        duration_s: f64,
    },
    /// Nothing for a while.
    Idle,
    /// We were told to stop and pass it on.
    Stopping,
}

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What the plan added.
    pub growth: Growth,
    /// The sweep.
    pub tree: Tree,
    /// Trials run now, by outcome.
    pub ended: BTreeMap<Outcome, u64>,
    /// Trials whose chain stopped before them.
    pub skipped: u64,
    /// True when a signal ended it.
    pub interrupted: bool,
}

/// A chain on its way.
struct Chain {
    links: VecDeque<usize>,
    /// A link before these has failed in an earlier run.
    dead: bool,
}

struct Running {
    chain: usize,
    row: usize,
    workers: Vec<Child>,
    devices: Vec<u32>,
    since: Instant,
}

/// Runs what of a plan has no result yet.
///
/// # Errors
/// When the plan cannot run here, the sweep is in a scheduler's hands, or the disk refuses.
pub fn run(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &Options,
    vars: &Vars,
    mut tell: impl FnMut(News<'_>),
) -> Result<Report> {
    check_caps(&source.plan, site, SchedulerKind::Local)?;
    let tree = source.tree();
    let devices = Devices::find(source, vars)?;
    let identity = tree.create(&source.plan.name)?;
    let lock = Lock::take(&tree)?;
    refuse_if_queued(&tree)?;
    let mut signals =
        Signals::listen(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD])?;
    let growth = grow::grow(&tree, source, templates, site)?;
    disk::write_whole(&tree.plan(), source.text.as_bytes())?;
    journal::Writer::open(&tree)?.site("local", false)?;

    let rows = table::rows(&tree)?;
    let heads = table::heads(&tree)?;
    let stop_chain = grow::on_failure(&heads) == OnFailure::Stop;
    let records = records::all(&tree)?;
    let mut chains: Vec<Chain> = Vec::new();
    let mut by_number: HashMap<u64, usize> = HashMap::new();
    let mut todo = 0;
    for (i, row) in rows.iter().enumerate() {
        let slot = *by_number.entry(row.chain).or_insert_with(|| {
            chains.push(Chain { links: VecDeque::new(), dead: false });
            chains.len() - 1
        });
        match records.get(&row.id).and_then(records::Record::outcome) {
            Some(Outcome::Done) => {}
            Some(Outcome::Failed | Outcome::Timeout) if !options.retry => {
                chains[slot].dead |= stop_chain;
            }
            _ => {
                if !chains[slot].dead {
                    todo += 1;
                }
                chains[slot].links.push_back(i);
            }
        }
    }
    let mut report =
        Report { growth, tree, ended: BTreeMap::new(), skipped: 0, interrupted: false };
    let mut waiting: VecDeque<usize> = VecDeque::new();
    for (c, chain) in chains.iter().enumerate() {
        if chain.dead {
            report.skipped += chain.links.len() as u64;
        } else if !chain.links.is_empty() {
            waiting.push_back(c);
        }
    }
    let jobs = jobs(source, options);
    tell(News::Begin { todo, jobs, gpus: devices.note() });

    let base = environment(vars);
    let exe = disk::own_executable()?.to_string_lossy().into_owned();
    let mut free = devices;
    let mut running: Vec<Running> = Vec::new();
    let mut touched = Instant::now();
    let mut shared = HashMap::new();
    loop {
        // Start what fits: chains in plan order, one that waits for its devices is passed over.
        let mut passed = 0;
        while !report.interrupted && running.len() < jobs && passed < waiting.len() {
            let Some(c) = waiting.pop_front() else { break };
            let Some(&i) = chains[c].links.front() else { continue };
            let row = &rows[i];
            let resources = grow::resources_of(row, &heads, &mut shared);
            let Some((own, visible)) = free.take(row, resources.total_gpus()) else {
                waiting.push_back(c);
                passed += 1;
                continue;
            };
            chains[c].links.pop_front();
            let mut env = base.clone();
            if let Some(visible) = visible {
                env.insert("CUDA_VISIBLE_DEVICES".to_owned(), visible);
            }
            let argv: Vec<String> =
                [&exe, "worker", "--sweep", &report.tree.dir().to_string_lossy(), "--trial"]
                    .map(str::to_owned)
                    .into_iter()
                    .chain([row.id.to_string()])
                    .collect();
            let meet = format!("{}-{}", identity.token, clock::short_token());
            let mut workers = Vec::new();
            for rank in 0..resources.ranks {
                let mut env = env.clone();
                if resources.ranks > 1 {
                    for (name, value) in [
                        ("HPCSWEEP_RANK", rank.to_string()),
                        ("HPCSWEEP_WORLD_SIZE", resources.ranks.to_string()),
                        ("HPCSWEEP_LOCAL_RANK", rank.to_string()),
                        ("HPCSWEEP_LOCAL_WORLD_SIZE", resources.ranks.to_string()),
                        ("HPCSWEEP_NODE_RANK", "0".to_owned()),
                        ("HPCSWEEP_NNODES", "1".to_owned()),
                        ("HPCSWEEP_MEET", meet.clone()),
                    ] {
                        env.insert(name.to_owned(), value);
                    }
                }
                let folder = report.tree.dir();
                let started =
                    process::start(&argv, &env, folder, process::Sink::Inherit, Signal::SIGTERM);
                match started {
                    Ok(child) => workers.push(child),
                    Err(e) => {
                        for worker in &workers {
                            process::kill_group(worker, Signal::SIGTERM);
                        }
                        return Err(process::not_started(&exe, &e).into());
                    }
                }
            }
            running.push(Running {
                chain: c,
                row: i,
                workers,
                devices: own,
                since: Instant::now(),
            });
        }
        if running.is_empty() {
            break;
        }
        match signals.next(Duration::from_millis(500)) {
            Some(Signal::SIGCHLD) => {}
            Some(_) => {
                // The first asks the workers to end their programs and write it down; a second kills.
                let signal = if report.interrupted { Signal::SIGKILL } else { Signal::SIGTERM };
                for worker in running.iter().flat_map(|r| &r.workers) {
                    process::kill_group(worker, signal);
                }
                if !report.interrupted {
                    tell(News::Stopping);
                }
                report.interrupted = true;
            }
            None => tell(News::Idle),
        }
        if touched.elapsed() > TOUCH_EVERY {
            lock.touch();
            touched = Instant::now();
        }
        let mut i = 0;
        while i < running.len() {
            let over =
                running[i].workers.iter_mut().all(|w| matches!(w.try_wait(), Ok(Some(_)) | Err(_)));
            if !over {
                i += 1;
                continue;
            }
            let was = running.swap_remove(i);
            free.give_back(&was.devices);
            let row = &rows[was.row];
            let (record, _) = records::of_trial(&report.tree, row.id)?;
            let outcome = record.outcome();
            *report.ended.entry(outcome.unwrap_or(Outcome::Interrupted)).or_default() += 1;
            let attempt = record.decisive();
            let end = attempt.and_then(|a| a.end.as_ref());
            tell(News::Ended {
                row,
                outcome,
                reason: attempt.map(reason).unwrap_or_default(),
                duration_s: end.map_or_else(|| was.since.elapsed().as_secs_f64(), |e| e.duration_s),
            });
            let chain = &mut chains[was.chain];
            if outcome != Some(Outcome::Done) && stop_chain && !report.interrupted {
                report.skipped += chain.links.len() as u64;
                chain.links.clear();
            }
            if !chain.links.is_empty() {
                // Front: a chain that has begun goes on before new ones begin.
                waiting.push_front(was.chain);
            }
        }
    }
    Ok(report)
}

fn reason(attempt: &records::Attempt) -> String {
    let code = attempt.end.as_ref().and_then(|end| match (end.signal, end.exit_code) {
        (Some(signal), _) => Some(format!("signal {signal}")),
        (None, Some(code)) if code != 0 => Some(format!("exit code {code}")),
        _ => None,
    });
    let words = attempt.reason().map(str::to_owned);
    code.into_iter().chain(words).collect::<Vec<_>>().join(": ")
}

/// What a worker is started with: our environment without an outer job's ranks, but with what an
/// allocation grants.
fn environment(vars: &Vars) -> Vars {
    const KEPT: [&str; 4] =
        ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_JOB_END_TIME", "SLURMD_NODENAME"];
    vars.iter()
        .filter(|(name, _)| !is_launcher_variable(name) || KEPT.contains(&name.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// As many chains at once as fit the cores, each trial counted with all its ranks.
fn jobs(source: &Source, options: &Options) -> usize {
    let widest = source.plan.trials.iter().map(|t| t.resources.cores()).max().unwrap_or(1).max(1);
    let fit = (process::cores() / widest as usize).max(1);
    let wanted = options.jobs.unwrap_or(fit).max(1);
    source.plan.schedule.max_running.map_or(wanted, |most| wanted.min(most as usize))
}

/// Trials that a scheduler may still run must not be run here too.
fn refuse_if_queued(tree: &Tree) -> Result<()> {
    let waves = Waves::read(tree)?;
    if waves.all.is_empty() {
        return Ok(());
    }
    let records = records::all(tree)?;
    let open = waves
        .covered()
        .into_iter()
        .filter(|id| records.get(id).and_then(records::Record::outcome).is_none())
        .count() as u64;
    if open == 0 {
        return Ok(());
    }
    let sentence =
        format!("{} of this sweep are in a scheduler's hands", crate::words::count(open, "trial"));
    Err(Fault::request(sentence)
        .at(tree.dir().display().to_string())
        .hint("wait for them (`hpcsweep status`), or give the plan another `[sweep] name` to run it here")
        .into())
}

/// The devices of this machine, and which are free.
struct Devices {
    /// Ids that may be handed out; `None` when nobody says which there are.
    all: Option<Vec<u32>>,
    free: BTreeSet<u32>,
    busy: BTreeSet<u32>,
    why_none: Option<String>,
    wanted: bool,
    how: GpuIds,
}

impl Devices {
    /// Finds the devices and refuses trials that name or need more than there are.
    fn find(source: &Source, vars: &Vars) -> Result<Self> {
        let trials = &source.plan.trials;
        let wanted = trials.iter().any(|t| t.resources.total_gpus() > 0);
        let mut devices = Self {
            all: None,
            free: BTreeSet::new(),
            busy: BTreeSet::new(),
            why_none: None,
            wanted,
            how: source.plan.schedule.gpu_ids,
        };
        if !wanted {
            return Ok(devices);
        }
        if let Some((ids, _)) = crate::devices::granted(vars) {
            devices.all = Some(ids.iter().filter_map(|id| id.parse().ok()).collect());
        } else {
            match gpus::list() {
                Ok(list) => devices.all = Some(list.iter().map(|g| g.index).collect()),
                Err(why) => devices.why_none = Some(why),
            }
        }
        devices.free = devices.all.iter().flatten().copied().collect();
        let mut faults = Vec::new();
        for (number, trial) in trials.iter().enumerate() {
            if let Some(fault) = devices.refuse(
                number as u64,
                trial.gpu_ids_abs.as_deref(),
                trial.resources.total_gpus(),
            ) && faults.len() < 10
            {
                faults.push(fault);
            }
        }
        Faults(faults).or(|| Ok(()))?;
        Ok(devices)
    }

    fn refuse(&self, trial: u64, named: Option<&[u32]>, count: u64) -> Option<Fault> {
        let there = || match &self.all {
            Some(all) if all.is_empty() => "none".to_owned(),
            Some(all) => all.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            None => format!("none that NVML can see ({})", self.why_none.as_deref().unwrap_or("?")),
        };
        match (named, &self.all) {
            (Some(named), Some(all)) if self.how == GpuIds::Exact => {
                let missing = named.iter().find(|id| !all.contains(id))?;
                let sentence = format!(
                    "trial {trial} names device {missing} in `gpu_ids_abs`, which is not there"
                );
                Some(Fault::request(sentence).at(format!("devices here: {}", there())))
            }
            // Without NVML nobody can tell: named devices are passed on as they are.
            (Some(_), None) => None,
            _ => {
                let have = self.all.as_ref().map_or(0, Vec::len) as u64;
                (count > have).then(|| {
                    let gpus =
                        if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
                    Fault::request(format!(
                        "trial {trial} asks for {gpus}, more than this machine has"
                    ))
                    .at(format!("devices here: {}", there()))
                })
            }
        }
    }

    fn note(&self) -> String {
        match (&self.all, self.wanted) {
            (_, false) => String::new(),
            (Some(all), true) => {
                format!("{} to hand out", crate::words::count(all.len() as u64, "GPU"))
            }
            (None, true) => format!(
                "no GPU found here ({}): device ids are passed on unchecked",
                self.why_none.as_deref().unwrap_or("no NVML")
            ),
        }
    }

    /// The devices a trial gets and what it may see; `None` if they are not free now.
    fn take(&mut self, row: &Row, count: u64) -> Option<(Vec<u32>, Option<String>)> {
        let text = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let own: Vec<u32> = match &row.gpu_ids_abs {
            Some(named) if self.how == GpuIds::Exact || self.all.is_none() => named.clone(),
            _ if count == 0 => return Some((Vec::new(), None)),
            _ => self.free.iter().copied().take(count as usize).collect(),
        };
        let named = row.gpu_ids_abs.is_some() && (self.how == GpuIds::Exact || self.all.is_none());
        if own.iter().any(|id| self.busy.contains(id)) || (!named && (own.len() as u64) < count) {
            return None;
        }
        for id in &own {
            self.free.remove(id);
            self.busy.insert(*id);
        }
        let visible = (!own.is_empty() || row.gpu_ids_abs.is_some()).then(|| text(&own));
        Some((own, visible))
    }

    fn give_back(&mut self, own: &[u32]) {
        for id in own {
            self.busy.remove(id);
            if self.all.as_ref().is_some_and(|all| all.contains(id)) {
                self.free.insert(*id);
            }
        }
    }
}
