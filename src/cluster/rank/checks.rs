//! The cross-checks: what contradicts the believed row, and the traps of `ranks-and-ddp.md` 1.5.

use std::collections::BTreeMap;

use super::device::visible_devices;
use super::master::is_arbitrary;
use super::read::{glance, text};
use super::rows::Row;
use super::{Launcher, Rank, Warning};
use crate::base::fault::Fault;
use crate::base::hostlist;
use crate::base::words::count;

type Vars = BTreeMap<String, String>;

/// `RANK` and `WORLD_SIZE` beside a Slurm step, after ignite (`comp_models/native.py`).
///
/// Equal to the step's, they are a site's hook (enroot's `50-slurm-pytorch`). On one node larger
/// ones are children that a task of the step started itself, and are believed. Otherwise they are
/// left over, and either choice would be a guess.
pub(super) fn torch_beside_step(vars: &Vars, found: &mut Vec<Row>) -> Result<(), Fault> {
    let row_of = |launcher| found.iter().position(|row: &Row| row.launcher == launcher);
    let (Some(step), Some(torch)) = (row_of(Launcher::SlurmStep), row_of(Launcher::TorchVariables))
    else {
        return Ok(());
    };
    // Under `srun --mpi=pmi2` PMI's row comes first and has the same values as the step's.
    if found[0].launcher == Launcher::Given || !found[0].agrees(&found[step]) {
        return Ok(());
    }
    let (step, child) = (&found[step], &found[torch]);
    let local = child.local_rank.or(step.local_rank);
    if child.agrees(step) && local == step.local_rank {
        return Ok(());
    }
    let one_node = step.nodes == Some(1);
    if one_node
        && child.rank >= step.rank
        && child.world_size >= step.world_size
        && local >= step.local_rank
    {
        let child = found.remove(torch);
        found.insert(0, child);
        return Ok(());
    }
    let setting = |name: &str| text(vars, name).map(|value| format!("{name}={value}"));
    let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK"];
    let slurm = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"];
    let line =
        |names: &[&str]| names.iter().filter_map(|n| setting(n)).collect::<Vec<_>>().join(" ");
    Err(Fault::request("`RANK` and `WORLD_SIZE` contradict the Slurm step that this process is in")
        .at(format!("{}\n{}", line(&names), line(&slurm)))
        .hint(
            "unset RANK, WORLD_SIZE and LOCAL_RANK before srun, or set HPCSWEEP_RANK and \
             HPCSWEEP_WORLD_SIZE to what you mean",
        ))
}

/// PMIx 5 reports to the ranks of every node how many ranks the last node has, which is another number if ranks do
/// not divide by nodes (Open MPI 5.0.7, PRRTE 3.0.6). In a job of PBS whose node file has a line for each rank, the
/// lines of this host are the number. Elsewhere an impossible number is ignored.
pub(super) fn local_size_of_prrte(vars: &Vars, pbs_nodefile: Option<&str>, row: &mut Row) {
    if text(vars, "PRTE_LAUNCHED").is_none() {
        return;
    }
    let size_here = pbs_nodefile.and_then(|nodefile| places_here(vars, nodefile, row.world_size?));
    let (rank, told) = (row.local_rank, row.local_size);
    row.local_size = size_here.or(told).filter(|&size| rank.is_none_or(|rank| rank < size));
}

/// The lines of a node file that are this host's, if there is one for each rank.
fn places_here(vars: &Vars, nodefile: &str, world: u32) -> Option<u32> {
    let lines: Vec<&str> = nodefile.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.len() != world as usize {
        return None;
    }
    let mut hosts: Vec<&str> = Vec::new();
    for line in &lines {
        if !hosts.contains(line) {
            hosts.push(line);
        }
    }
    let number: usize = text(vars, "PBS_NODENUM")?.parse().ok()?;
    let own_host = hosts.get(number)?;
    u32::try_from(lines.iter().filter(|line| *line == own_host).count()).ok()
}

/// Warns of rows that contradict the believed one, unless that is how things are.
pub(super) fn disagreements(row: &Row, others: &[(Row, bool)], warnings: &mut Vec<Warning>) {
    for (other, agrees) in others {
        if *agrees || is_usual(row, other, others) {
            continue;
        }
        let names = |row: &Row| {
            let names: Vec<&str> = row.evidence.iter().map(|(name, _)| name.as_str()).collect();
            names.join(" ")
        };
        warnings.push(Warning::new(
            format!(
                "{} says {}, but {} says {}",
                row.launcher,
                said(row),
                other.launcher,
                said(other)
            ),
            format!(
                "the first is believed; unset what another job left behind: either {}, or {}",
                names(row),
                names(other)
            ),
        ));
    }
}

fn said(row: &Row) -> String {
    let of_world = row.world_size.map_or(String::new(), |size| format!(" of {size}"));
    format!("rank {}{of_world}", row.rank)
}

fn is_usual(row: &Row, other: &Row, others: &[(Row, bool)]) -> bool {
    let per_node = other.world_size.is_some_and(|world| world <= other.nodes.unwrap_or(1));
    match (row.launcher, other.launcher) {
        // A launcher that gives the rank explicitly is right.
        (Launcher::Given, _) => true,
        // One torchrun a node, started by any launcher: the other rank is the node's.
        (Launcher::Torchrun, _) => other.world_size.is_none_or(|n| n == 1 || Some(n) == row.nodes),
        // mpirun and Hydra start one daemon a node with srun; ranks inherit the daemon's variables.
        (_, Launcher::SlurmStep) if row.launcher < Launcher::SlurmStep => per_node,
        // Children of one task keep that task's variables.
        (Launcher::TorchVariables, _) => other.nodes == Some(1) || other.world_size == Some(1),
        // The PMIx rank of such a daemon, under srun --mpi=pmix.
        (_, Launcher::Pmix) => others
            .iter()
            .any(|(third, _)| third.launcher == Launcher::SlurmStep && third.rank == other.rank),
        _ => false,
    }
}

/// Row 11 says so when the allocation was made for more than one task.
pub(super) fn forgotten_launcher(vars: &Vars, pbs_nodefile: Option<&str>, rank: &mut Rank) {
    let Some((variable, tasks, start)) = allocation(vars, pbs_nodefile) else { return };
    let value = text(vars, variable).unwrap_or_default().to_owned();
    rank.evidence.push((variable.to_owned(), value));
    if let Some(tasks) = tasks.filter(|n| *n != Tasks(1) && *n != Nodes(1)) {
        let allocated = match tasks {
            Tasks(n) => count(n, "task"),
            Nodes(n) => count(n, "node"),
        };
        rank.warnings.push(Warning::new(
            format!("allocation has {allocated}, but no launcher started me"),
            format!(
                "did you forget {start}? Without it this process works alone as rank 0 of 1; \
                 `{start} ... hpcsweep worker` starts all ranks{}",
                if variable == "PBS_JOBID" {
                    ", `hpcsweep launch --ranks N -- hpcsweep worker ...` does so by the mpiexec it finds"
                } else {
                    ""
                }
            ),
        ));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Tasks(u64),
    Nodes(u64),
}
use Size::{Nodes, Tasks};

/// The variable that shows an allocation, its size where that is known, and what starts ranks there.
fn allocation(
    vars: &Vars,
    pbs_nodefile: Option<&str>,
) -> Option<(&'static str, Option<Size>, &'static str)> {
    let number = |name: &str| glance(vars, name).map(u64::from);
    // sbatch sets SLURM_NTASKS only when it was asked for tasks; of a heterogeneous job the plain
    // variable is the first component's.
    if let Some(job) = ["SLURM_JOB_ID", "SLURM_JOBID"].into_iter().find(|n| text(vars, n).is_some())
    {
        let parts = ["SLURM_HET_SIZE", "SLURM_PACK_SIZE"].into_iter().find_map(number);
        let all_parts: Option<u64> = parts.filter(|n| *n <= 1024).and_then(|n| {
            (0..n)
                .map(|i| {
                    number(&format!("SLURM_NTASKS_HET_GROUP_{i}"))
                        .or_else(|| number(&format!("SLURM_NTASKS_PACK_GROUP_{i}")))
                })
                .sum()
        });
        let tasks = all_parts.or_else(|| number("SLURM_NTASKS")).or_else(|| number("SLURM_NPROCS"));
        let nodes = || number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES"));
        return Some((job, tasks.map(Tasks).or_else(|| nodes().map(Nodes)), "srun"));
    }
    // One line a rank (`mpiprocs`), hosts repeated.
    if text(vars, "PBS_JOBID").is_some() {
        return Some((
            "PBS_JOBID",
            pbs_nodefile
                .map(|text| text.lines().filter(|line| !line.trim().is_empty()).count() as u64)
                .map(Tasks),
            "mpiexec",
        ));
    }
    if text(vars, "LSB_JOBID").is_some() {
        return Some(("LSB_JOBID", number("LSB_DJOB_NUMPROC").map(Tasks), "jsrun or mpiexec"));
    }
    // `flux alloc` unsets all FLUX_* of the task on purpose: only the address of the instance stays.
    text(vars, "FLUX_URI").map(|_| ("FLUX_URI", None, "flux run"))
}

/// The traps that do not depend on which other rows are there.
pub(super) fn environment(vars: &Vars, hostname: &str, rank: &mut Rank) {
    let in_step = rank.launcher == Launcher::SlurmStep;
    if let (true, Some(job), Some(step)) = (in_step, glance(vars, "SLURM_NTASKS"), rank.world_size)
        && job != step
    {
        rank.warnings.push(Warning::new(
            format!("`SLURM_NTASKS` is {job}, but this step has {}", count(step.into(), "task")),
            "the step counts; `srun -n` with fewer tasks, or `srun --preserve-env`, makes them differ",
        ));
    }
    if let (true, None, Some(counts)) =
        (in_step, rank.local_size, text(vars, "SLURM_STEP_TASKS_PER_NODE"))
    {
        rank.warnings.push(Warning::new(
            format!("`SLURM_STEP_TASKS_PER_NODE` is `{counts}`, which does not fit this step"),
            "the number of ranks on this node stays unknown; unset what another job left behind",
        ));
    }
    rank.warnings.extend(foreign_job(vars, hostname, rank));
    if let (Some(says), Some(world), None) =
        (glance(vars, "WORLD_SIZE"), rank.world_size, text(vars, "RANK"))
        && says != world
        && rank.launcher != Launcher::Given
    {
        rank.warnings.push(Warning::new(
            format!("`WORLD_SIZE` is {says}, but {} gives {world}", rank.launcher),
            "`WORLD_SIZE` without `RANK` is ignored: unset it",
        ));
    }
    if let (true, true, Some(master)) = (in_step, is_arbitrary(vars), text(vars, "MASTER_ADDR")) {
        rank.warnings.push(Warning::new(
            format!("ranks follow a host file, so rank 0 need not run on `{master}`"),
            "unset `MASTER_ADDR`: rank 0 tells the others where it is",
        ));
    }
    let visible = visible_devices(vars).map_or(0, |list| list.len());
    if let Some(ranks) = rank.local_size.filter(|ranks| visible > 1 && *ranks as usize > visible) {
        rank.warnings.push(Warning::new(
            format!("{} of this node share {visible} GPUs", count(ranks.into(), "rank")),
            "ask for as many GPUs as ranks a node, or for fewer ranks",
        ));
    }
}

/// Variables of a Slurm job that does not run on this host.
fn foreign_job(vars: &Vars, hostname: &str, rank: &Rank) -> Option<Warning> {
    let list = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"].into_iter().find_map(|n| text(vars, n))?;
    // A shell of salloc may well be on a login node; slurmd started nothing there.
    if rank.launcher == Launcher::Nobody && text(vars, "SLURMD_NODENAME").is_none() {
        return None;
    }
    let short = |host: &str| host.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let own_host = short(hostname);
    let hosts = hostlist::expand(list).ok()?;
    if own_host.is_empty() || hosts.iter().any(|host| short(host) == own_host) {
        return None;
    }
    let job = text(vars, "SLURM_JOB_ID").unwrap_or("?");
    Some(Warning::new(
        format!("this host `{hostname}` is not among the nodes of Slurm job `{job}`: `{list}`"),
        "the SLURM_* variables may be left over from another job: unset them, or start me with srun",
    ))
}
