//! What a process can find out about the job that it runs in.

use std::time::{Duration, Instant};

use super::calls::Calls;
use super::{Facts, all};
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock};

/// The scheduler of the job that has these variables; `None` outside of jobs. A Slurm whose wrappers speak the language of
/// PBS is Slurm.
pub(crate) fn scheduler(vars: &Vars) -> Option<&'static Facts> {
    all().map(|scheduler| scheduler.facts()).find(|facts| vars.contains_key(facts.job))
}

/// The scheduler's id of this job, as its users know it: `12_7` for an element.
pub(crate) fn id(vars: &Vars) -> Option<String> {
    all().find_map(|scheduler| scheduler.job_id(vars))
}

/// The job or array that a job id is of: `12` of Slurm's `12_7`, `5[].srv` of PBS's `5[3].srv`.
pub(crate) fn array_of(job: &str) -> String {
    match (job.split_once('['), job.split_once(']')) {
        (Some((number, _)), Some((_, server))) => format!("{number}[]{server}"),
        _ => match job.split_once('_') {
            // A server's name may hold `_` too.
            Some((number, _)) if number.bytes().all(|b| b.is_ascii_digit()) => number.to_owned(),
            _ => job.to_owned(),
        },
    }
}

/// The index of this element of an array.
///
/// # Errors
/// When it is not one.
pub(crate) fn index(vars: &Vars) -> Result<u64, Fault> {
    let names = || all().map(|scheduler| scheduler.facts().index);
    let Some(index) = names().find_map(|name| vars.get(name)) else {
        let names: Vec<&str> = names().collect();
        let names = names.join(" nor ");
        let sentence =
            format!("this worker is not an element of a job array: neither {names} is set");
        return Err(Fault::request(sentence)
            .hint("name the trial instead: `hpcsweep worker --sweep DIR --trial N`"));
    };
    index.parse().map_err(|_| Fault::request(format!("the array index `{index}` is not a number")))
}

/// How long a program may take to end after a signal, in a job of a scheduler: less than the scheduler waits until it kills,
/// however long or short the walltime is.
pub(crate) fn signal_grace(vars: &Vars) -> Option<Duration> {
    scheduler(vars).map(|facts| Duration::from_secs(facts.grace_s))
}

/// Cores of this host that a scheduler has granted to the job.
pub(crate) fn cores(vars: &Vars) -> Option<u32> {
    vars.get(scheduler(vars)?.cores).and_then(|n| n.parse().ok()).filter(|n| *n > 0)
}

/// Memory of this host that a scheduler has granted to the job, MiB.
pub(crate) fn memory_mib(vars: &Vars) -> Option<u64> {
    all().find_map(|scheduler| scheduler.job_memory_mib(vars)).filter(|mib| *mib > 0)
}

/// When the job ends, in Unix seconds, if its scheduler has provided that. An end that has passed is that of another job: of one
/// that a shell has outlived, say.
pub(crate) fn told_end(vars: &Vars) -> Option<f64> {
    all().find_map(|scheduler| scheduler.told_end(vars)).filter(|end| *end > clock::now())
}

/// Asks the scheduler when the job ends, which began at about `began`; `None` where there is no answer within this time.
pub(crate) fn ask_end(vars: &Vars, began: Instant, patience: Duration) -> Option<Instant> {
    let (scheduler, id) = all().find_map(|scheduler| {
        let id = vars.get(scheduler.facts().job)?;
        Some((scheduler, id))
    })?;
    scheduler.ask_end(&mut Calls::new(vars, patience), id, began)
}

/// Asks the scheduler whether this job, which has got a signal, is being preempted, and still has time.
pub(crate) fn is_preempted(vars: &Vars, patience: Duration) -> bool {
    all().any(|scheduler| {
        let job = vars.get(scheduler.facts().job);
        job.is_some_and(|job| scheduler.is_preempted(&mut Calls::new(vars, patience), job))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(names: &[&str]) -> Vars {
        names.iter().map(|name| ((*name).to_owned(), "1000".to_owned())).collect()
    }

    #[test]
    fn a_signal_leaves_less_time_than_the_scheduler_that_sent_it() {
        let grace = |names: &[&str]| signal_grace(&job(names)).map(|grace| grace.as_secs());
        assert_eq!(grace(&["SLURM_JOB_ID"]), Some(18));
        assert_eq!(grace(&["PBS_JOBID"]), Some(8));
        // A Slurm whose wrappers speak the language of PBS.
        assert_eq!(grace(&["SLURM_JOB_ID", "PBS_JOBID"]), Some(18));
        assert_eq!(grace(&[]), None);
    }

    #[test]
    fn a_job_knows_its_id_and_its_end() {
        let of = |names: &[&str]| id(&job(names));
        let array = ["SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"];
        assert_eq!(of(&array).as_deref(), Some("1000_1000"));
        assert_eq!(of(&["PBS_JOBID"]).as_deref(), Some("1000"));
        assert_eq!(of(&[]), None);
        let ends = |text: &str| {
            told_end(&Vars::from([("SLURM_JOB_END_TIME".to_owned(), text.to_owned())]))
        };
        assert_eq!((ends("4000000000"), ends("1000")), (Some(4e9), None));
        assert_eq!(told_end(&job(&["PBS_JOBID"])), None);
        assert_eq!(index(&job(&["PBS_ARRAY_INDEX"])).ok(), Some(1000));
        let fault = index(&job(&[])).unwrap_err();
        assert_eq!(
            fault.sentence,
            "this worker is not an element of a job array: neither SLURM_ARRAY_TASK_ID nor PBS_ARRAY_INDEX is set"
        );
    }

    #[test]
    fn an_element_knows_its_array() {
        for (job, array) in [
            ("12_7", "12"),
            ("12", "12"),
            ("5[3].pbs_head.site", "5[].pbs_head.site"),
            ("5[].s", "5[].s"),
            ("6.pbs_head", "6.pbs_head"),
        ] {
            assert_eq!(array_of(job), array);
        }
    }
}
