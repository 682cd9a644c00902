//! What the script of one array says: its request in the words of the scheduler and of the site.

use std::path::Path;

use crate::base::host::access::Readers;
use crate::base::units;
use crate::cluster::render::context::{JobScript, SiteWords};
use crate::cluster::scheduler::pbs::directives as pbs;
use crate::plan::Resources;
use crate::sweep::tree::waves::Array;

/// Ranks that divide by the nodes are spread evenly: without this, Slurm fills the first node. On one node it
/// is set for the ranks: Lightning refuses a job without `SLURM_NTASKS_PER_NODE`.
fn evenly(r: &Resources) -> Option<u32> {
    (r.ranks > 1 && r.ranks.is_multiple_of(r.nodes)).then(|| r.ranks / r.nodes)
}

/// GPUs of each node of a request.
fn gpus_per_node(r: &Resources) -> u64 {
    r.total_gpus().div_ceil(u64::from(r.nodes))
}

/// The names of one array's script.
pub(super) fn job_script(
    sweep: &str,
    sweep_dir: &Path,
    job_name: String,
    array: &Array,
    max_running: Option<u64>,
    site: &SiteWords<'_>,
    worker: Vec<String>,
) -> JobScript {
    let r = &array.resources;
    let logs = format!("{}/logs/jobs/{:04}", sweep_dir.display(), array.array);
    let scheduler = site.scheduler;
    let log = scheduler.job_log(&logs, array.single);
    let max_running = max_running.filter(|&n| n < array.count);
    let program = worker.first().map_or("", String::as_str);
    let launcher = scheduler.launcher(site.launcher.as_deref(), program, r.ranks, site.mpi);
    let throttle = max_running.filter(|_| !scheduler.limits().cannot_throttle);
    let indices = pbs::indices(array.count, throttle);
    let directives = pbs::joined(&site.directives, &r.directives);
    JobScript {
        shell: site.shell.clone(),
        sweep: sweep.to_owned(),
        sweep_dir: sweep_dir.to_owned(),
        job_name,
        array: array.array,
        block: array.block,
        link: array.link,
        count: array.count,
        last_index: array.count - 1,
        indices: (!array.single).then_some(indices),
        links: array.links,
        pilots: array.pilot.is_some(),
        feeder: array.feeder.is_some(),
        requeue: !array.is_of_trials() || site.resumes,
        max_running,
        job_log: log.directive,
        job_log_of_element: log.of_element,
        job_log_mode: match site.readers {
            Some(Readers::Group) => Some("g+r"),
            Some(Readers::All) => Some("a+r"),
            None | Some(Readers::Owner) => None,
        },
        select: pbs::select(r, &site.pbs),
        place: pbs::place(r, &directives),
        environment: site.environment.clone(),
        nodes: r.nodes,
        ranks: r.ranks,
        ranks_per_node: r.ranks_per_node.or_else(|| evenly(r)),
        cpus_per_rank: r.cpus_per_rank,
        gpus_per_node: gpus_per_node(r),
        memory: r.memory_mib.map(units::memory_text),
        walltime: r.walltime_s.or(site.max_walltime_s).map(|seconds| scheduler.walltime(seconds)),
        partition: r.partition.clone().or_else(|| site.partition.clone()),
        account: r.account.clone().or_else(|| site.account.clone()),
        qos: r.qos.clone().or_else(|| site.qos.clone()),
        constraint: r.constraint.clone(),
        directives,
        step: r.ranks > 1 || (site.single_rank_step && array.feeder.is_none()),
        launches: if r.ranks > 1 { site.launches } else { 1 },
        launcher,
        worker,
    }
}
