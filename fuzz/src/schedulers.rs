//! Output of the programs of schedulers and launchers.

use hpcsweep::cluster::scheduler::launch;
use hpcsweep::cluster::scheduler::pbs::{commands as pbs, jobs, server};
use hpcsweep::cluster::scheduler::slurm::{commands as slurm, versions};

use crate::text::text;

/// squeue, sacct, sbatch, scontrol and sacctmgr: every reader gets every answer, as a site's wrapper may print anything.
pub(crate) fn slurm(bytes: &[u8]) {
    text(bytes, |text| {
        let _ = slurm::submitted(text);
        let _ = slurm::read_time_left(text);
        let _ = slurm::limits(text);
        let _ = slurm::read_partitions(text);
        let _ = slurm::max_submit_jobs_of(text, "a");
        let _ = slurm::associations_of(text, None);
        for (job, elements) in slurm::elements(slurm::lines(text)) {
            assert!(!job.is_empty());
            let _ = (elements.get(0), elements.get(7));
        }
        let argv = ["squeue", "--array", "--noheader"].map(str::to_owned);
        let _ = versions::without_refused(&argv, text);
        let _ = versions::state(text);
        let _ = versions::reason(text);
        let _ = text.lines().all(versions::is_no_complaint);
        let _ = versions::is_refusal(text);
    });
}

/// qstat, qsub and pbsnodes.
pub(crate) fn pbs(bytes: &[u8]) {
    text(bytes, |text| {
        for jobs in [jobs::jobs(text).unwrap_or_default(), jobs::jobs_from_text(text)] {
            let mut asked: Vec<String> = jobs.iter().map(|job| job.id.clone()).collect();
            asked.push("5[].s".to_owned());
            pbs::sort(&mut asked);
            let _ = jobs::find(&jobs, "name", "path");
            for elements in jobs::elements(&asked, &jobs).values() {
                let _ = (elements.get(0), elements.get(7));
            }
            for job in &jobs {
                let _ = (job.element(), job.depend_without(|id| id.starts_with('5')));
            }
        }
        let server = server::server(text, "ada").unwrap_or_default();
        let queues = server::queues(text, "ada").unwrap_or_default();
        for queue in &queues {
            let _ = server::way(&server, &queues, &queue.name);
        }
        let _ = (server.keeps_jobs(), server.can_throttle());
        let _ = pbs::submitted(text);
        let _ = pbs::read_walltime(text);
        let _ = pbs::is_refusal(text);
        let _ = pbs::can_travel(text);
        let _ = pbs::instead(text, "plan.toml");
    });
}

/// mpirun --version, ompi_info, node files, and the words that a launcher gives its agent.
pub(crate) fn launchers(bytes: &[u8]) {
    text(bytes, |text| {
        let _ = launch::flavour("mpirun", text);
        let _ = launch::version(text);
        let _ = launch::has_tm(text);
        let _ = launch::hosts(text);
        let _ = launch::host_in(text, "n1");
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let _ = launch::agent_request(&words);
    });
}
