//! The limits of a cluster that a sweep may exceed: read before the first call that submits anything.

use anyhow::Result;

use super::commands::{self, Partition};
use crate::fault::Fault;
use crate::host::vars::user_name;
use crate::plan::Resources;
use crate::scheduler::Limits;
use crate::scheduler::calls::Calls;
use crate::site::{Ask, Site};

/// The cluster's limits, each replaced by the site profile's where that has one.
///
/// # Errors
/// When the scheduler does not answer.
pub(super) fn read(calls: &mut Calls, site: &Site) -> Result<Limits> {
    let mut limits = commands::limits(&calls.ask(&commands::config())?);
    let own = &site.limits;
    limits.max_array_size = own.max_array_size.or(limits.max_array_size);
    limits.max_array_tasks = own.max_array_tasks.or(limits.max_array_tasks);
    limits.max_job_count = own.max_job_count.or(limits.max_job_count);
    limits.max_submit_jobs = own.max_submit_jobs;
    if let Some(cap) = site.caps.max_array_size {
        limits.max_array_size = Some(limits.max_array_size.map_or(cap, |m| m.min(cap)));
    }
    Ok(limits)
}

/// The partitions of the cluster. One that does not exist, is down, or is too short for one of these requests is found
/// before any sbatch.
///
/// # Errors
/// When there is one, or the scheduler does not answer.
pub(super) fn check_partitions(
    calls: &mut Calls,
    requests: &[&Resources],
    site: &Site,
) -> Result<Vec<Partition>> {
    let partitions = commands::read_partitions(&calls.ask(&commands::partitions())?);
    for r in requests {
        let name = r.partition.as_ref().or(site.scheduler.partition.as_ref());
        let found = match name {
            // Slurm takes a list of partitions and chooses.
            Some(list) => {
                for name in list.split(',') {
                    if !partitions.iter().any(|p| p.name == name) {
                        let known: Vec<&str> = partitions.iter().map(|p| p.name.as_str()).collect();
                        let fault =
                            Fault::request(format!("this cluster has no partition `{name}`"));
                        let hint = crate::words::nearest(name, known.iter().copied()).map_or_else(
                            || format!("it has {}", crate::words::ticked(&known)),
                            |near| format!("did you mean `{near}`?"),
                        );
                        return Err(fault.hint(hint).into());
                    }
                }
                partitions
                    .iter()
                    .filter(|p| list.split(',').any(|n| n == p.name))
                    .collect::<Vec<_>>()
            }
            None => {
                let found: Vec<_> = partitions.iter().filter(|p| p.default).collect();
                let name = found.first().map(|p| p.name.as_str());
                let ask = Ask { partition: name, ..Ask::default() };
                if let Some(fault) = site.refusals(&ask).into_iter().next() {
                    return Err(fault.into());
                }
                found
            }
        };
        let longest = found.iter().map(|p| p.max_time_s.unwrap_or(u64::MAX)).max();
        if let (Some(longest), Some(wanted)) = (longest, r.walltime_s)
            && wanted > longest
        {
            let sentence = format!(
                "a walltime of {} is more than partition `{}` allows: {}",
                crate::units::walltime_text(wanted),
                found.first().map_or("", |p| p.name.as_str()),
                crate::units::walltime_text(longest)
            );
            return Err(Fault::request(sentence)
                .hint("lower `walltime` or name another `partition`")
                .into());
        }
        let widest = found.iter().map(|p| p.max_nodes.or(p.total_nodes).unwrap_or(u64::MAX)).max();
        if let Some(widest) = widest
            && u64::from(r.nodes) > widest
        {
            let sentence = format!(
                "a trial asks for {} nodes, partition `{}` gives a job at most {widest}",
                r.nodes,
                found.first().map_or("", |p| p.name.as_str())
            );
            return Err(Fault::request(sentence).into());
        }
    }
    Ok(partitions)
}

/// The limits on how many elements may be queued under an account (`None`: the user's default one).
///
/// # Errors
/// When there are more.
pub(super) fn check_queue(
    calls: &mut Calls,
    elements: u64,
    limits: &Limits,
    account: Option<&str>,
) -> Result<()> {
    if elements == 0 {
        return Ok(());
    }
    let mut submit = limits.max_submit_jobs;
    if submit.is_none() && limits.accounting {
        // Not every site lets users ask; then sbatch itself will report it.
        let output = calls.make(&commands::associations(&user_name()))?;
        submit = commands::max_submit_jobs(&output.stdout, account);
    }
    let too_many = |name: &str, limit: u64| {
        Fault::request(format!(
            "the sweep would put {} into the queue, more than {name} allows: {}",
            crate::words::count(elements, "element"),
            crate::words::thousands(limit)
        ))
        .hint("submit a smaller plan first and let it grow, or raise the limit in the site profile if it is wrong")
    };
    if let Some(limit) = submit.filter(|&limit| elements > limit) {
        return Err(too_many("MaxSubmitJobs", limit).into());
    }
    if let Some(limit) = limits.max_job_count.filter(|&limit| elements >= limit) {
        return Err(too_many("MaxJobCount", limit).into());
    }
    Ok(())
}
