//! Which cores and devices an agent has, and how it divides them among its slots. Two slots never share one, and no
//! core is bound that may be another job's.

use anyhow::Result;

use crate::base::fault::Fault;
use crate::base::host::{Vars, cgroup, process};
use crate::cluster::gpu::Pool;
use crate::cluster::scheduler::job;
use crate::plan::author::Author;
use crate::sweep::tree::Tree;
use crate::sweep::tree::deck::Deck;

/// What an agent can offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Trials that it can run at once, at least 1.
    pub(crate) slots: u32,
    /// Whether that was asked for, and not counted.
    pub(crate) is_asked: bool,
    /// Cores that may be bound; empty where slots are not bound.
    pub(crate) cores: Vec<u32>,
    /// The value of CUDA_VISIBLE_DEVICES for each slot; empty where trials ask for none.
    pub(crate) devices: Vec<String>,
}

/// Finds out. `asked` is the number of slots that a person wants.
///
/// # Errors
/// When trials need devices and there are not enough for one slot.
pub(crate) fn find(tree: &Tree, deck: &Deck, asked: Option<u32>, vars: &Vars) -> Result<Bounds> {
    let cores = process::own_cores();
    let each = deck.cores.max(1);
    let asked = asked.or(deck.pull.slots);
    // Not every scheduler binds a job to the cores that it was granted.
    let own =
        job::cores(vars).map_or(cores.len() as u32, |granted| granted.min(cores.len() as u32));
    let fit = (own / each).max(1);
    let on_each = deck.pull.slots_per_gpu.filter(|_| deck.gpus > 0);
    let mut slots = asked.unwrap_or(if on_each.is_some() { u32::MAX } else { fit });
    let deals = deck.gpus > 0 && deck.devices.is_none();
    let devices = if deals { deal_devices(tree, deck, slots, vars)? } else { Vec::new() };
    if deals {
        slots = slots.min(devices.len() as u32);
    }
    // A job that sees more cores than it was granted does not know which are its own, and others would choose the
    // same.
    let are_own = job::cores(vars).is_none_or(|granted| cores.len() as u32 <= granted);
    let cores = if deck.pull.bind && are_own { cores } else { Vec::new() };
    let is_asked = asked.or(on_each).is_some();
    Ok(Bounds { slots, is_asked, cores, devices })
}

/// The memory for the agents of this job on this host, MiB: what the job has here, and no more than its control group and this
/// machine have.
pub(crate) fn memory_mib(vars: &Vars) -> Option<u64> {
    let granted = job::memory_mib(vars);
    let group = cgroup::own().and_then(|group| group.limit()).map(|bytes| bytes >> 20);
    let machine = nix::sys::sysinfo::sysinfo().ok().map(|info| info.ram_total() >> 20);
    [granted, group, machine].into_iter().flatten().min()
}

/// The memory of a slot for which its job has asked, MiB, where the scheduler does not tell the job what it has: other jobs may
/// have the rest of this machine.
pub(crate) fn asked_mib(deck: &Deck, vars: &Vars) -> Option<u64> {
    let is_silent = job::id(vars).is_some() && job::memory_mib(vars).is_none();
    deck.memory_mib.filter(|_| is_silent)
}

/// The variables of a slot: PBS counts all cores of the job as threads of one program, and a slot has those of a trial.
pub(crate) fn vars_of_slot(deck: &Deck, vars: &Vars) -> Vars {
    let mut vars = vars.clone();
    let threads = vars.get("OMP_NUM_THREADS");
    let facts = job::scheduler(&vars).filter(|facts| facts.sets_threads);
    if let (Some(facts), Some(_)) = (facts, threads)
        && threads == vars.get(facts.cores)
    {
        vars.insert("OMP_NUM_THREADS".to_owned(), deck.cores.max(1).to_string());
    }
    vars
}

/// The devices of an agent that takes them for each trial, as trials name theirs; `None` where its slots have some.
///
/// # Errors
/// When one that is named is not here.
pub(crate) fn by_name(deck: &Deck, vars: &Vars) -> Result<Option<Pool>> {
    let Some(named) = &deck.devices else { return Ok(None) };
    let pool = Pool::find(deck.gpu_share, vars)?;
    if let Some(missing) = named.iter().find(|id| !pool.has(id)) {
        let sentence = format!("trials name device {missing} in `gpu_ids_abs`, which is not there");
        let here = format!("devices here: {}", pool.words());
        return Err(Fault::request(sentence).at(here).into());
    }
    Ok(Some(pool))
}

/// Devices for up to `slots` slots: of those that were granted, else the best ones, that others leave.
fn deal_devices(tree: &Tree, deck: &Deck, slots: u32, vars: &Vars) -> Result<Vec<String>> {
    let (pool, each) = (Pool::find(deck.gpu_share, vars)?, deck.gpus as usize);
    let mut sets = Vec::new();
    while (sets.len() as u32) < slots {
        match pool.take(each)? {
            Ok(taken) => sets.push(taken.visible),
            Err(fault) if sets.is_empty() && pool.is_held(each) => {
                return Err(fault.hint(share_hint(tree.author(), deck.gpu_share)).into());
            }
            Err(fault) if sets.is_empty() => return Err(fault.into()),
            Err(_) => break,
        }
    }
    Ok(sets)
}

/// What helps where others hold devices that would do.
fn share_hint(author: Author, share: u32) -> String {
    let more = author.set("schedule", "gpu_share", &(share + 1).to_string());
    let fewer = match author {
        Author::Person | Author::Run => "start fewer agents here",
        Author::Python => "start fewer processes here",
    };
    format!(
        "wait until they are free, {fewer}, or let more trials of this sweep share a GPU: {more}"
    )
}
