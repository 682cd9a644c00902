//! The limits of a cluster that a sweep may exceed: read before the first call that submits anything.

use anyhow::Result;

use super::commands::{self, Partition};
use crate::base::fault::Fault;
use crate::base::host::vars::user_name;
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::{Charged, Limits, Room};
use crate::plan::Resources;
use crate::plan::site::{Ask, Site};

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
                        let hint = crate::base::words::suggestion(name, &known, "it has");
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
                crate::base::units::walltime_text(wanted),
                found.first().map_or("", |p| p.name.as_str()),
                crate::base::units::walltime_text(longest)
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
            return Err(Fault::request(sentence)
                .hint("lower `nodes` or name another `partition`")
                .into());
        }
    }
    Ok(partitions)
}

/// The places that are left for elements under an account and a quality of service: by the limit that leaves the fewest.
/// The queue is asked what is there only if so many more elements could reach a limit.
///
/// # Errors
/// When Slurm does not answer.
pub(super) fn room(
    calls: &mut Calls,
    elements: u64,
    limits: &Limits,
    charged: Charged<'_>,
) -> Result<Option<Room>> {
    if elements == 0 {
        return Ok(None);
    }
    let mut bounds: Vec<Bound> = Vec::new();
    // MaxJobCount holds for all users together. Of the others' jobs nothing is known here.
    if let Some(most) = limits.max_job_count.filter(|most| elements.saturating_mul(2) > *most) {
        bounds.push(Bound::of_all("MaxJobCount", most.saturating_sub(1)));
    }
    if let Some(most) = limits.max_submit_jobs {
        bounds.push(Bound::of_all("MaxSubmitJobs", most));
    } else if limits.accounting {
        // Not every site lets users ask; then sbatch itself will report it.
        let output = calls.make(&commands::associations(&user_name()))?;
        let own = commands::associations_of(&output.stdout, charged.account);
        bounds.extend(own.max_submit_jobs.map(|most| Bound {
            account: own.account.clone(),
            ..Bound::of_all("MaxSubmitJobs", most)
        }));
        let qos = charged.qos.map(str::to_owned).or(own.qos).unwrap_or_else(|| "normal".to_owned());
        let output = calls.make(&commands::qualities())?;
        let of_qos = commands::max_submit_jobs_of(&output.stdout, &qos);
        let name = format!("MaxSubmitJobsPerUser of QOS `{qos}`");
        bounds.extend(of_qos.map(|most| Bound { qos: Some(qos), ..Bound::of_all(&name, most) }));
    }
    if bounds.is_empty() {
        return Ok(None);
    }
    let text = calls.ask(&commands::queue_of(&user_name()))?;
    let queued: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('|')).collect();
    let rooms = bounds.into_iter().map(|bound| {
        let taken = queued.iter().filter(|(account, qos)| bound.counts(account, qos)).count();
        Room { name: bound.name, limit: bound.most, taken: taken as u64, kept: 0 }
    });
    Ok(rooms.min_by_key(Room::free))
}

/// A limit on the elements of this user that wait or run.
struct Bound {
    name: String,
    most: u64,
    /// Only elements of this account count.
    account: Option<String>,
    /// Only elements of this quality of service count.
    qos: Option<String>,
}

impl Bound {
    fn of_all(name: &str, most: u64) -> Self {
        Self { name: name.to_owned(), most, account: None, qos: None }
    }

    fn counts(&self, account: &str, qos: &str) -> bool {
        self.account.as_deref().is_none_or(|own| own == account.trim())
            && self.qos.as_deref().is_none_or(|own| own == qos.trim())
    }
}
