//! PBS: OpenPBS and PBS Professional.

pub mod commands;
pub(crate) mod directives;
pub mod jobs;
pub(crate) mod json;
mod limits;
mod reasons;
pub mod server;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::calls::Calls;
use super::order::{self, Order};
use super::{
    After, Answer, Charged, Facts, Limits, Log, Places, Question, Room, Scheduler, Suspect, Wait,
    Wanted,
};
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock};
use crate::base::units;
use crate::base::words::sh_quote;
use crate::plan::site::caps::Ways;
use crate::plan::site::{SchedulerKind, Site};

/// PBS, with the limits of its server as far as it was asked.
#[derive(Debug)]
pub(crate) struct Pbs {
    said: limits::Read,
}

const FACTS: Facts = Facts {
    kind: SchedulerKind::Pbs,
    name: "PBS",
    submits: "qsub",
    template: "pbs.sh.tera",
    directive: "#PBS ",
    elements: 10_000,
    unasked: "this is by the site profile alone: `submit` asks the server and its queues, which may allow less\n",
    is_elementwise: false,
    holds_elements: false,
    believes_ends: false,
    leaves_stalled: true,
    brings_environment: false,
    options: None,
    ways: Ways {
        walltime: &["walltime=", "min_walltime=", "max_walltime="],
        nodes: &["select=", "nodes=", "nodect="],
        partition: &["-q"],
        bundles: false,
    },
    job: "PBS_JOBID",
    index: "PBS_ARRAY_INDEX",
    cores: "NCPUS",
    sets_threads: true,
    // Ten seconds, unless the queue's kill_delay says otherwise.
    grace_s: 8,
    excludes: None,
    starts_ranks: "put `hpcsweep launch --ranks N --` in front of the worker, or the mpiexec of the MPI it was built with",
};

impl Pbs {
    /// PBS that has not been asked; with a history, ended jobs can be asked for.
    pub(super) fn new(history: bool) -> Self {
        let mut said = limits::Read::default();
        said.limits.accounting = history;
        Self { said }
    }
}

impl Scheduler for Pbs {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn limits(&self) -> &Limits {
        &self.said.limits
    }

    fn ask_limits(&mut self, calls: &mut Calls, wanted: &Wanted<'_>, site: &Site) -> Result<()> {
        self.said = limits::read(calls, wanted, site)?;
        Ok(())
    }

    fn room(
        &self,
        calls: &mut Calls,
        elements: u64,
        _charged: Charged<'_>,
    ) -> Result<Option<Room>> {
        self.said.room(calls, elements)
    }

    fn is_full(&self, stderr: &str) -> bool {
        stderr.contains("would exceed ")
            || stderr.contains("Maximum number of jobs already in queue")
    }

    fn notes(&self) -> &[String] {
        &self.said.notes
    }

    fn places(&self, calls: &mut Calls) -> Result<Option<Places>> {
        self.said.places(calls)
    }

    /// A job that is registered while one that it waits for ends is deleted, or waits for ever. A routing queue does not hand
    /// on what is held, while what waits for it takes the places behind.
    fn holds(&self) -> bool {
        !self.said.routes
    }

    fn deletes_dependents(&self) -> bool {
        !self.said.keeps_jobs
    }

    /// The script's path shows to which job it belongs.
    fn script(&self, _array: u32, token: &str) -> String {
        format!("{token}.sh")
    }

    fn job_name(&self, token: &str) -> String {
        commands::job_name(token)
    }

    fn element(&self, job: &str, index: u64) -> String {
        commands::element(job, index)
    }

    fn check_path(&self, dir: &Path) -> Result<(), Fault> {
        if commands::can_travel(&dir.to_string_lossy()) {
            return Ok(());
        }
        let sentence = format!("PBS cannot pass on the path `{}`", dir.display());
        let hint = "use a folder whose path has ASCII letters alone, and no comma, quote, backslash or `^`";
        Err(Fault::request(sentence).hint(hint))
    }

    fn job_log(&self, folder: &str, single: bool) -> Log {
        let quoted = sh_quote(folder);
        let (directive, of_element) = match single {
            true => ("0", format!("{quoted}/0.log")),
            false => ("^array_index^", format!("{quoted}/\"$PBS_ARRAY_INDEX\".log")),
        };
        Log { directive: format!("{folder}/{directive}.log"), of_element }
    }

    fn walltime(&self, seconds: u64) -> String {
        units::hours_text(seconds)
    }

    /// Without one of the site, `hpcsweep launch` finds the MPI that is loaded.
    fn launcher(
        &self,
        own: Option<&[String]>,
        program: &str,
        ranks: u32,
        _mpi: bool,
    ) -> Vec<String> {
        let words =
            || [program, "launch", "--ranks", &ranks.to_string(), "--"].map(str::to_owned).to_vec();
        own.filter(|own| !own.is_empty()).map_or_else(words, <[String]>::to_vec)
    }

    fn submit(&self, script: &str, after: &After, held: bool) -> Vec<String> {
        commands::submit(script, &after.jobs(), held)
    }

    fn submitted(&self, stdout: &str) -> Option<String> {
        commands::submitted(stdout)
    }

    fn is_refusal(&self, stderr: &str) -> bool {
        commands::is_refusal(stderr)
    }

    fn find(
        &self,
        calls: &mut Calls,
        token: &str,
        script: &str,
        _since: f64,
    ) -> Result<Option<String>> {
        let jobs = commands::ask(calls, &commands::all(self.remembers()))?;
        Ok(jobs::find(&jobs, &self.job_name(token), script))
    }

    fn known(&self, calls: &mut Calls, ids: &[String]) -> Result<HashSet<String>> {
        let jobs = commands::ask_of(calls, ids, self.remembers())?;
        // Without a history a job that has ended is one that PBS deletes dependents for.
        let keeps = self.said.keeps_jobs;
        let lives = |job: &&jobs::Job| keeps || !matches!(job.state.as_str(), "F" | "E");
        Ok(jobs.iter().filter(lives).map(|job| job.id.clone()).collect())
    }

    /// PBS keeps ended jobs for two weeks, or, without a history, forgets them at once. But no job of this very
    /// submission can have ended if the heads of chains are held.
    fn knows_since(&self, began: f64) -> f64 {
        match self.said.keeps_jobs {
            true => clock::now() - 86_400.0,
            false if self.holds() => began,
            false => f64::INFINITY,
        }
    }

    /// PBS is asked once for the jobs of what is open: with its history, where it keeps one.
    fn ask(&self, calls: &mut Calls, question: &Question<'_>) -> Answer {
        let open = question.open.iter().map(|(job, _)| job);
        let before = question.suspects.iter().flat_map(|suspect| &suspect.waits_for);
        let mut ids: Vec<String> = open.chain(before).cloned().collect();
        commands::sort(&mut ids);
        if ids.is_empty() {
            let witness = "the results tree alone".to_owned();
            return Answer { is_sure: true, witness, ..Answer::default() };
        }
        match commands::ask_of(calls, &ids, self.remembers()) {
            Ok(jobs) => Answer {
                elements: jobs::elements(&ids, &jobs),
                is_sure: true,
                witness: "qstat".to_owned(),
            },
            Err(error) => Answer::none(&error),
        }
    }

    fn order(&self, order: Order, ids: &[String]) -> Vec<String> {
        match order {
            Order::Cancel => commands::delete(ids),
            Order::Hold => commands::hold(ids),
            Order::Release => commands::release(ids),
        }
    }

    fn is_no_complaint(&self, line: &str) -> bool {
        commands::is_of_ended(line)
    }

    fn free(
        &self,
        calls: &mut Calls,
        suspects: &[Suspect],
        tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let own = suspects.iter().map(|suspect| &suspect.job);
        let before = suspects.iter().flat_map(|suspect| &suspect.waits_for);
        let mut asked: Vec<String> = own.clone().chain(before).cloned().collect();
        commands::sort(&mut asked);
        let jobs = commands::ask_of(calls, &asked, self.remembers())?;
        let ended = jobs::ended(&asked, &jobs);
        let has_ended = |id: &str| ended.contains(id);
        let mut stalled: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for job in jobs.iter().filter(|job| own.clone().any(|id| *id == job.id)) {
            if job.is_stalled(has_ended) {
                stalled.entry(job.depend_without(has_ended)).or_default().push(job.id.clone());
            }
        }
        for (depend, ids) in stalled {
            // A job that has been deleted meanwhile is not a fault.
            let argv = |some: &[String]| commands::depend(some, &depend);
            order::make(calls, &ids, argv, commands::is_of_ended)?.whole?;
            for id in ids {
                tell(&format!("job {id}: it waited for a job that has ended, and goes on"));
            }
        }
        Ok(())
    }

    fn explain(&self, reason: &str) -> Option<Wait> {
        reasons::explain(reason)
    }

    fn expected_start(&self, calls: &mut Calls, element: &str) -> Option<String> {
        let text = calls.ask(&commands::job(element)).ok()?;
        reasons::read_start(&text).map(str::to_owned)
    }

    fn job_id(&self, vars: &Vars) -> Option<String> {
        vars.get(FACTS.job).cloned()
    }

    fn ask_end(&self, calls: &mut Calls, job: &str, began: Instant) -> Option<Instant> {
        let seconds = commands::read_walltime(&calls.ask(&commands::job(job)).ok()?)?;
        began.checked_add(Duration::from_secs(seconds))
    }
}
