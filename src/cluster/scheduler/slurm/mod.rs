//! Slurm.

pub mod commands;
mod limits;
mod reasons;
pub mod versions;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::calls::{Calls, refusal};
use super::order::{Order, pieces};
use super::{
    After, Answer, Charged, Facts, JobTime, Limits, Log, Question, Room, Scheduler, Wait, Wanted,
};
use crate::base::fault;
use crate::base::host::{Vars, clock, vars};
use crate::base::units;
use crate::base::words::sh_quote;
use crate::plan::site::caps::Ways;
use crate::plan::site::{SchedulerKind, Site};

/// Slurm, with its limits as far as it was asked.
#[derive(Debug)]
pub(crate) struct Slurm {
    limits: Limits,
    partitions: Vec<commands::Partition>,
}

const FACTS: Facts = Facts {
    kind: SchedulerKind::Slurm,
    name: "Slurm",
    submits: "sbatch",
    template: "slurm.sh.tera",
    directive: "#SBATCH ",
    elements: 1001,
    unasked: "",
    is_elementwise: true,
    holds_elements: true,
    believes_ends: true,
    leaves_stalled: false,
    brings_environment: true,
    options: Some("SBATCH_"),
    ways: Ways {
        walltime: &["--time", "-t"],
        nodes: &["--nodes", "-N", "--nodelist", "-w", "--nodefile", "-F"],
        partition: &["--partition", "-p"],
        bundles: true,
    },
    job: "SLURM_JOB_ID",
    index: "SLURM_ARRAY_TASK_ID",
    cores: "SLURM_CPUS_ON_NODE",
    sets_threads: false,
    // KillWait is thirty seconds.
    grace_s: 18,
    excludes: Some("--exclude="),
    starts_ranks: "start one worker a rank (srun, mpiexec)",
};

impl Slurm {
    /// Slurm that has not been asked; with `accounting`, ended jobs can be asked for.
    pub(super) fn new(accounting: bool) -> Self {
        Self { limits: Limits { accounting, ..Limits::default() }, partitions: Vec::new() }
    }
}

impl Scheduler for Slurm {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn ask_limits(&mut self, calls: &mut Calls, wanted: &Wanted<'_>, site: &Site) -> Result<()> {
        self.limits = limits::read(calls, site)?;
        self.partitions = limits::check_partitions(calls, &wanted.requests, site)?;
        Ok(())
    }

    fn room(&self, calls: &mut Calls, elements: u64, charged: Charged<'_>) -> Result<Option<Room>> {
        limits::room(calls, elements, &self.limits, charged)
    }

    fn is_full(&self, stderr: &str) -> bool {
        versions::is_full(stderr)
    }

    /// Slurm 22.05 does not tell its jobs when they end. Their workers learn it from the job script: a question of each
    /// element would be one too many.
    fn job_time(&self, partition: Option<&str>) -> Option<JobTime> {
        if self.limits.version.as_deref().is_some_and(commands::tells_end) {
            return None;
        }
        commands::default_time(&self.partitions, partition)
    }

    fn script(&self, array: u32, _token: &str) -> String {
        format!("{array:04}.sh")
    }

    fn job_name(&self, token: &str) -> String {
        token.to_owned()
    }

    fn element(&self, job: &str, index: u64) -> String {
        format!("{job}_{index}")
    }

    fn job_log(&self, folder: &str, _single: bool) -> Log {
        Log {
            directive: format!("{}/%a.log", folder.replace('%', "%%")),
            of_element: format!("{}/\"$SLURM_ARRAY_TASK_ID\".log", sh_quote(folder)),
        }
    }

    fn walltime(&self, seconds: u64) -> String {
        units::walltime_text(seconds)
    }

    /// Slurm keeps the other ranks alive after one has died unless it is told otherwise.
    fn launcher(
        &self,
        own: Option<&[String]>,
        _program: &str,
        _ranks: u32,
        mpi: bool,
    ) -> Vec<String> {
        let wired = mpi.then_some("--mpi=pmix");
        let words = ["srun", "--kill-on-bad-exit=1"].into_iter().chain(wired);
        own.map_or_else(|| words.map(str::to_owned).collect(), <[String]>::to_vec)
    }

    fn submit(&self, script: &str, after: &After, _held: bool) -> Vec<String> {
        commands::submit(script, after)
    }

    fn submitted(&self, stdout: &str) -> Option<String> {
        commands::submitted(stdout)
    }

    fn cluster(&self, stdout: &str) -> Option<String> {
        commands::cluster(stdout)
    }

    fn is_refusal(&self, stderr: &str) -> bool {
        versions::is_refusal(stderr)
    }

    fn find(
        &self,
        calls: &mut Calls,
        token: &str,
        _script: &str,
        since: f64,
    ) -> Result<Option<String>> {
        let of_token = |text: &str| {
            let found = commands::lines(text).find(|line| line.name == token);
            found.map(|line| line.job.to_string())
        };
        let found = of_token(&queue(calls)?);
        if found.is_some() || !self.remembers() {
            return Ok(found);
        }
        let text = calls.ask(&commands::accounts_by_name(token, since))?;
        Ok(of_token(&text))
    }

    fn known(&self, calls: &mut Calls, _ids: &[String]) -> Result<HashSet<String>> {
        Ok(commands::lines(&queue(calls)?).map(|line| line.job.to_string()).collect())
    }

    /// The queue knows what waits, runs, or has just ended. The accounting knows the rest, but learns of it late: if it
    /// does not know a job, that means nothing. So the queue is asked while something is open. The accounting, if there
    /// is one, is asked when nothing is open, or when the queue has forgotten some of it.
    fn ask(&self, calls: &mut Calls, question: &Question<'_>) -> Answer {
        let Question { jobs, open, .. } = *question;
        let users = question.users.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let elements = |texts: &[String]| {
            commands::elements(texts.iter().flat_map(|text| commands::lines(text)))
        };
        let mut texts = Vec::new();
        let mut asked = Vec::new();
        let mut silent = None;
        if !open.is_empty() {
            match calls.ask(&commands::queue(&users)) {
                Ok(text) => {
                    texts.push(text);
                    asked.push("squeue");
                }
                Err(error) => silent = Some(error),
            }
        }
        let mut known = elements(&texts);
        let is_known = |(job, index): &(String, u64)| {
            known.get(job).is_some_and(|elements| elements.get(*index).is_some())
        };
        if self.remembers() && (open.is_empty() || !open.iter().all(is_known)) {
            let answers: Result<Vec<String>> =
                pieces(jobs).map(|some| calls.ask(&commands::accounts(some))).collect();
            match answers {
                Ok(answers) => {
                    // Later lines win: the queue is never behind.
                    texts.splice(0..0, answers);
                    known = elements(&texts);
                    asked.push("sacct");
                }
                Err(error) => silent = Some(error),
            }
        }
        let witness = match &silent {
            Some(error) if asked.is_empty() => return Answer::none(error),
            Some(error) => format!("{} alone ({})", asked.join(" and "), fault::sentence(error)),
            None => asked.join(" and "),
        };
        // What half an answer does not hold may still be there.
        Answer { elements: known, is_sure: silent.is_none(), witness }
    }

    fn order(&self, order: Order, ids: &[String]) -> Vec<String> {
        match order {
            Order::Cancel => commands::cancel(ids),
            Order::Hold => commands::hold(ids),
            Order::Release => commands::release(ids),
        }
    }

    fn is_no_complaint(&self, line: &str) -> bool {
        versions::is_no_complaint(line)
    }

    fn knows_since(&self, _began: f64) -> f64 {
        clock::now() - 60.0
    }

    fn explain(&self, reason: &str) -> Option<Wait> {
        reasons::explain(reason)
    }

    fn expected_start(&self, calls: &mut Calls, element: &str) -> Option<String> {
        commands::read_start(&calls.ask(&commands::start(element)).ok()?)
    }

    fn would_start(&self, calls: &mut Calls, directives: &[String]) -> Result<Option<String>> {
        let argv = commands::test(directives);
        let output = calls.make(&argv)?;
        match output.code {
            Some(0) => Ok(commands::read_test(&output.stderr)),
            _ => Err(refusal(&argv, &output).into()),
        }
    }

    fn job_id(&self, vars: &Vars) -> Option<String> {
        match (vars.get("SLURM_ARRAY_JOB_ID"), vars.get(FACTS.index)) {
            (Some(job), Some(index)) => Some(format!("{job}_{index}")),
            _ => vars.get(FACTS.job).cloned(),
        }
    }

    fn job_memory_mib(&self, vars: &Vars) -> Option<u64> {
        let number = |name: &str| vars.get(name)?.parse::<u64>().ok();
        let by_core = || {
            let cores = number(FACTS.cores)?;
            number("SLURM_MEM_PER_CPU")?.checked_mul(cores)
        };
        number("SLURM_MEM_PER_NODE").or_else(by_core)
    }

    /// Slurm 22.05 does not tell a job its end; newer ones do.
    fn told_end(&self, vars: &Vars) -> Option<f64> {
        vars.get("SLURM_JOB_END_TIME")?.parse().ok()
    }

    fn is_preempted(&self, calls: &mut Calls, job: &str) -> bool {
        calls.ask(&commands::about(job)).is_ok_and(|answer| commands::read_preempted(&answer))
    }

    fn ask_end(&self, calls: &mut Calls, job: &str, _began: Instant) -> Option<Instant> {
        let left = commands::read_time_left(&calls.ask(&commands::time_left(job)).ok()?)?;
        Instant::now().checked_add(Duration::from_secs(left))
    }
}

/// What this user has in the queue, in squeue's lines.
fn queue(calls: &mut Calls) -> Result<String> {
    calls.ask(&commands::queue(&vars::user_name()))
}
