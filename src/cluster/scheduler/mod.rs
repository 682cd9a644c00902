//! Schedulers: one type for each, with everything that hpcsweep asks of it behind one trait.
//!
//! A scheduler's folder holds how its questions are asked and what its answers mean, as pure functions of text. Its type
//! puts them together, and makes its calls by [`Calls`] alone. A word that is not in a table is kept as it is
//! ([`State::Other`]), never turned into a failure.

pub(crate) mod calls;
pub(crate) mod job;
pub mod launch;
pub(crate) mod order;
pub mod pbs;
pub mod slurm;
mod state;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::base::fault::{self, Fault};
use crate::base::host::Vars;
use crate::base::words::{count, thousands};
use crate::plan::Resources;
use crate::plan::site::caps::Ways;
use crate::plan::site::{SchedulerKind, Site};
use calls::Calls;
use order::Order;
pub(crate) use state::{Element, Elements, End, State};

/// A scheduler: its commands, and its limits as far as it was asked.
pub(crate) trait Scheduler: fmt::Debug {
    /// Its properties that are the same at every site.
    fn facts(&self) -> &'static Facts;

    /// What binds a submission.
    fn limits(&self) -> &Limits;

    /// Asks for its limits, and whether it takes what is wanted at all.
    ///
    /// # Errors
    /// When it does not answer, or would refuse a request or never run it.
    fn ask_limits(&mut self, calls: &mut Calls, wanted: &Wanted<'_>, site: &Site) -> Result<()>;

    /// The places that its queue has left for elements of this user, where a limit is known that so many more could reach.
    ///
    /// # Errors
    /// When it does not answer.
    fn room(&self, calls: &mut Calls, elements: u64, charged: Charged<'_>) -> Result<Option<Room>>;

    /// Whether the message of a refused submission says that the queue has no place for it now.
    fn is_full(&self, stderr: &str) -> bool;

    /// Its limits that users should know of, in words.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The places behind a routing queue, where it hands on only so many elements at a time.
    ///
    /// # Errors
    /// When it does not say which jobs there are.
    fn places(&self, _calls: &mut Calls) -> Result<Option<Places>> {
        Ok(None)
    }

    /// How long a job may run that asks for no walltime, in these partitions (`None`: the default one). `None` where the
    /// job learns that from the scheduler.
    fn job_time(&self, _partition: Option<&str>) -> Option<JobTime> {
        None
    }

    /// Whether it can be asked for jobs that have ended.
    fn remembers(&self) -> bool {
        self.limits().accounting
    }

    /// Whether the first jobs of chains must be held until all that waits for them is there, so that nothing may end too
    /// early.
    fn holds(&self) -> bool {
        false
    }

    /// Whether it deletes a job that waits for one that has ended.
    fn deletes_dependents(&self) -> bool {
        false
    }

    /// The name of the script of an array, whose job has this token.
    fn script(&self, array: u32, token: &str) -> String;

    /// The name of a job with this token.
    fn job_name(&self, token: &str) -> String;

    /// The id of one element of an array.
    fn element(&self, job: &str, index: u64) -> String;

    /// Refuses a folder whose path it cannot pass on to a job.
    ///
    /// # Errors
    /// When it cannot.
    fn check_path(&self, _dir: &Path) -> Result<(), Fault> {
        Ok(())
    }

    /// Where a job puts its own output below this folder; `single`: a plain job, and no element.
    fn job_log(&self, folder: &str, single: bool) -> Log;

    /// A walltime as its directives take it.
    fn walltime(&self, seconds: u64) -> String;

    /// The words that start a worker for each rank. `own` are those of the site profile, `program` is the worker's; with
    /// `mpi` the ranks are wired up for MPI, which a profile's own launcher must do by itself.
    fn launcher(&self, own: Option<&[String]>, program: &str, ranks: u32, mpi: bool)
    -> Vec<String>;

    /// The call that submits a script; `held`: to be released later.
    fn submit(&self, script: &str, after: &After, held: bool) -> Vec<String>;

    /// The job id in what that call printed.
    fn submitted(&self, stdout: &str) -> Option<String>;

    /// The cluster that has the job, by what such a call has printed, where the scheduler has several.
    fn cluster(&self, _stdout: &str) -> Option<String> {
        None
    }

    /// Whether the message of that failed call is known to be a refusal: it made no job.
    fn is_refusal(&self, stderr: &str) -> bool;

    /// The job of a token that was asked for at `since`, if it knows it. `script` is the path of its script.
    ///
    /// # Errors
    /// When it does not answer.
    fn find(
        &self,
        calls: &mut Calls,
        token: &str,
        script: &str,
        since: f64,
    ) -> Result<Option<String>>;

    /// Which of these jobs it still knows, so that another may wait for them.
    ///
    /// # Errors
    /// When it does not answer.
    fn known(&self, calls: &mut Calls, ids: &[String]) -> Result<HashSet<String>>;

    /// The time from which on it surely knows each job that was submitted, in Unix seconds; `began` is when the
    /// submission under way did.
    fn knows_since(&self, began: f64) -> f64;

    /// Asks about the elements in question. If the scheduler gives no answer, that is not an error: the
    /// answer says so.
    fn ask(&self, calls: &mut Calls, question: &Question<'_>) -> Answer;

    /// The call that gives an order about jobs, arrays and elements.
    fn order(&self, order: Order, ids: &[String]) -> Vec<String>;

    /// Whether a line of such a failed call is about a job that has ended, or for which it was done.
    fn is_no_complaint(&self, line: &str) -> bool;

    /// Releases the jobs that wait for others that have ended, and reports them to `tell`.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    fn free(
        &self,
        _calls: &mut Calls,
        _suspects: &[Suspect],
        _tell: &mut dyn FnMut(&str),
    ) -> Result<()> {
        Ok(())
    }

    /// What its reason for a job that waits means.
    fn explain(&self, reason: &str) -> Option<Wait>;

    /// When it expects an element to start, in its own words, where it says so.
    fn expected_start(&self, calls: &mut Calls, element: &str) -> Option<String>;

    /// When it would start a job with these directives if it were submitted now, in its own words, where it says so.
    ///
    /// # Errors
    /// When it would not take the job.
    fn would_start(&self, _calls: &mut Calls, _directives: &[String]) -> Result<Option<String>> {
        Ok(None)
    }

    /// The id of the job that has these variables, as its users know it.
    fn job_id(&self, vars: &Vars) -> Option<String>;

    /// The memory of this host that the job with these variables has, MiB, if the scheduler tells its jobs.
    fn job_memory_mib(&self, _vars: &Vars) -> Option<u64> {
        None
    }

    /// When the job that has these variables ends, in Unix seconds, if the scheduler tells its jobs.
    fn told_end(&self, _vars: &Vars) -> Option<f64> {
        None
    }

    /// Asks whether a job that has got a signal is being preempted, and still has time.
    fn is_preempted(&self, _calls: &mut Calls, _job: &str) -> bool {
        false
    }

    /// Asks when a job ends, which began at about `began`.
    fn ask_end(&self, calls: &mut Calls, job: &str, began: Instant) -> Option<Instant>;
}

/// The words for a job that has been started and stands still.
pub(crate) const SUSPENDED: &str = "suspended by the scheduler; it continues later";

/// Why a job waits, in plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) words: &'static str,
    /// What its user can do.
    pub(crate) remedy: &'static str,
}

/// The fixed properties of a scheduler.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Which one it is.
    pub(crate) kind: SchedulerKind,
    /// What people call it.
    pub(crate) name: &'static str,
    /// The command that submits.
    pub(crate) submits: &'static str,
    /// The file of its job script template.
    pub(crate) template: &'static str,
    /// What its directives begin with.
    pub(crate) directive: &'static str,
    /// Most elements of an array if the site has not changed that.
    pub(crate) elements: u64,
    /// What to say of a plan that was made without asking it; empty where that is nothing.
    pub(crate) unasked: &'static str,
    /// Whether an array can follow another element by element.
    pub(crate) is_elementwise: bool,
    /// Whether it holds and releases single elements of an array.
    pub(crate) holds_elements: bool,
    /// Whether its report of an end may override a record.
    pub(crate) believes_ends: bool,
    /// Whether a job may wait for ever for one that has ended: [`Scheduler::free`] lets it go.
    pub(crate) leaves_stalled: bool,
    /// Whether it gives a job the environment that the job was submitted from.
    pub(crate) brings_environment: bool,
    /// What the names of the variables begin with that are options of a submission, where the scheduler has such.
    pub(crate) options: Option<&'static str>,
    /// Directives that a site's caps forbid.
    pub(crate) ways: Ways,
    /// The variable that holds a job's id.
    pub(crate) job: &'static str,
    /// The variable that holds an element's index.
    pub(crate) index: &'static str,
    /// The variable that holds how many cores of its host a job was granted.
    pub(crate) cores: &'static str,
    /// Whether it counts all of these as threads of one program, in `OMP_NUM_THREADS`.
    pub(crate) sets_threads: bool,
    /// The seconds that a program may take to end after a signal: fewer than the scheduler waits until it kills.
    pub(crate) grace_s: u64,
    /// The option that keeps a job away from the nodes named behind it, where it has one.
    pub(crate) excludes: Option<&'static str>,
    /// How the ranks of a trial are started where not all have been.
    pub(crate) starts_ranks: &'static str,
}

/// The scheduler of a kind, without its limits. Without a scheduler it is Slurm: a sweep on this machine is shown as
/// the arrays that it would be.
pub(crate) fn of(kind: SchedulerKind) -> Box<dyn Scheduler> {
    that_remembers(kind, false)
}

fn all() -> impl Iterator<Item = Box<dyn Scheduler>> {
    SchedulerKind::ALL.into_iter().map(|(_, kind)| kind).filter(|kind| kind.takes_jobs()).map(of)
}

/// As [`of`]; whether it can be asked for jobs that have ended is known.
pub(crate) fn that_remembers(kind: SchedulerKind, ended: bool) -> Box<dyn Scheduler> {
    match kind {
        SchedulerKind::Pbs => Box::new(pbs::Pbs::new(ended)),
        SchedulerKind::Slurm | SchedulerKind::Local | SchedulerKind::Auto => {
            Box::new(slurm::Slurm::new(ended))
        }
    }
}

/// The scheduler of a kind, asked for its limits.
///
/// # Errors
/// As [`Scheduler::ask_limits`].
pub(crate) fn asked(
    kind: SchedulerKind,
    calls: &mut Calls,
    wanted: &Wanted<'_>,
    site: &Site,
) -> Result<Box<dyn Scheduler>> {
    let mut scheduler = of(kind);
    scheduler.ask_limits(calls, wanted, site)?;
    Ok(scheduler)
}

/// Refuses a folder that a scheduler cannot name to a job.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_path(kind: SchedulerKind, dir: &Path) -> Result<(), Fault> {
    let path = dir.to_string_lossy();
    if path.chars().any(char::is_control) {
        // A directive ends at the end of its line.
        let sentence =
            format!("a job cannot be told the path {path:?}: it holds a control character");
        return Err(Fault::request(sentence).hint(
            "use a folder, and a `[sweep] root`, without line breaks and tabs in their names",
        ));
    }
    of(kind).check_path(dir)
}

/// The output of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    /// Its file, as a directive names it.
    pub(crate) directive: String,
    /// The same file as the running element sees it, quoted for the shell.
    pub(crate) of_element: String,
}

/// The request to a scheduler.
pub(crate) struct Wanted<'a> {
    /// The distinct requests of the trials, one each.
    pub(crate) requests: Vec<&'a Resources>,
    /// Elements of arrays, over all of them.
    pub(crate) elements: u64,
    /// The plan as a word of a command to copy.
    pub(crate) plan: String,
}

/// What an array waits for.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// The job it follows: element by element, where the scheduler can.
    pub(crate) follow: Option<String>,
    /// Jobs that must have ended.
    pub(crate) wait: Vec<String>,
    /// Elements of jobs one of which must have ended, where the scheduler knows elements.
    pub(crate) any: Vec<String>,
    /// Whether the scheduler was asked for them: they may have ended since.
    pub(crate) asked: bool,
}

impl After {
    /// The ids of all jobs that it names: the one that it follows, then those that it waits for.
    pub(crate) fn jobs(&self) -> Vec<String> {
        self.follow.iter().chain(&self.wait).cloned().collect()
    }

    /// What an array waits for, in words.
    pub(crate) fn words(&self) -> String {
        let mut jobs = self.jobs();
        // It may follow the elements of a job, and wait for all of it.
        jobs.dedup();
        match (jobs.as_slice(), self.any.as_slice()) {
            ([], []) => String::new(),
            ([], [only]) => format!(", after {only}"),
            ([], [first, ..]) => format!(", after {first} or a later element"),
            (jobs, _) => format!(", after {}", jobs.join(", ")),
        }
    }
}

/// A job that has not begun, although trials that it waits for have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// The number of its array.
    pub(crate) array: u32,
    /// The scheduler's id of the job.
    pub(crate) job: String,
    /// The ids of the jobs whose trials have all ended.
    pub(crate) waits_for: Vec<String>,
}

/// The one question that a scheduler is asked about a sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The ids of its jobs.
    pub(crate) jobs: &'a [String],
    /// The elements that may not have ended, each a job and an index.
    pub(crate) open: &'a [(String, u64)],
    /// All users who have submitted.
    pub(crate) users: &'a BTreeSet<String>,
    /// Jobs that may wait for ever.
    pub(crate) suspects: &'a [Suspect],
}

/// The answer of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Its words, by job.
    pub(crate) elements: HashMap<String, Elements>,
    /// Whether its silence about an element means something.
    pub(crate) is_sure: bool,
    /// Who was asked besides the results tree, in words.
    pub(crate) witness: String,
}

impl Answer {
    /// That of a scheduler that does not answer.
    fn none(why: &anyhow::Error) -> Self {
        let witness = format!("the results tree alone ({})", fault::sentence(why));
        Self { witness, ..Self::default() }
    }
}

/// How long a job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTime {
    /// As long as it likes.
    Unlimited,
    /// At most so many seconds.
    Seconds(u64),
}

/// The limits of a site, as far as they matter for planning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most elements of an array: Slurm's MaxArraySize (one more than the largest index), PBS's
    /// max_array_size.
    pub(crate) max_array_size: Option<u64>,
    /// Slurm's max_array_tasks of SchedulerParameters, or the profile's: the most tasks of an array.
    pub(crate) max_array_tasks: Option<u64>,
    /// Slurm's MaxJobCount, or the profile's: jobs of all users that Slurm can know at once.
    pub(crate) max_job_count: Option<u64>,
    /// The least of the MaxSubmitJobs, or max_queued, that bind this user.
    pub(crate) max_submit_jobs: Option<u64>,
    /// Whether finished jobs can be asked for.
    pub(crate) accounting: bool,
    /// The version, as the scheduler prints it.
    pub(crate) version: Option<String>,
    /// MPI plugin used when none is named.
    pub(crate) mpi_default: Option<String>,
    /// How Slurm's PMIx passes fences on (`PMIxCollFence`): `ring`, `tree`, `mixed`, `(null)` for its default; `None`
    /// where the configuration has no PMIx.
    pub(crate) pmix_fence: Option<String>,
    /// Whether the server cannot throttle an array (`%N`).
    pub(crate) cannot_throttle: bool,
    /// The longest walltime of the queue that the trials go to.
    pub(crate) max_walltime_s: Option<u64>,
}

impl Limits {
    /// The most elements of one array under these limits; without any, the scheduler's own default.
    pub(crate) fn elements(&self) -> u64 {
        let size = self.max_array_size.unwrap_or(1001);
        self.max_array_tasks.map_or(size, |tasks| size.min(tasks)).max(1)
    }
}

/// Who is charged for elements; `None`: the user's defaults.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Charged<'a> {
    pub(crate) account: Option<&'a str>,
    pub(crate) qos: Option<&'a str>,
}

/// The places of a queue for elements of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// The limit, as administrators call it.
    pub(crate) name: String,
    /// The most elements that may have a place.
    pub(crate) limit: u64,
    /// Those that elements have now.
    pub(crate) taken: u64,
    /// Those that are kept for arrays which earlier submissions did not come to.
    pub(crate) kept: u64,
}

impl Room {
    /// The places for so many elements, after the scheduler has refused more and has not told its limit.
    pub(crate) fn tried(limit: u64) -> Self {
        Self { name: "a smaller submission".to_owned(), limit, taken: 0, kept: 0 }
    }

    /// The places that are left.
    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.taken + self.kept)
    }

    /// About how many further submissions bring so many elements into the queue: each when half of the places are free again.
    pub(crate) fn submissions(&self, left: u64) -> u64 {
        left.div_ceil((self.free() / 2).max(1))
    }

    /// Refuses so many elements as more than will ever have a place.
    pub(crate) fn check(&self, elements: u64) -> Result<(), Fault> {
        if elements <= self.limit {
            return Ok(());
        }
        let (elements, limit) = (count(elements, "element"), thousands(self.limit));
        Err(Fault::request(format!("{elements} are more than {} allows: {limit}", self.name))
            .hint("ask for fewer, or raise the limit in the site profile if it is wrong"))
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allows {}", self.name, count(self.limit, "element"))?;
        match self.taken {
            0 => Ok(()),
            n => write!(f, ", {} are in the queue", thousands(n)),
        }
    }
}

/// How many elements of this user a routing queue hands on at a time. Where those that wait could take the places of
/// those that they wait for, all would wait for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// The most elements that it hands on at a time.
    pub(crate) width: u64,
    /// Those that jobs have now that were submitted before.
    pub(crate) taken: u64,
}

impl Places {
    /// Those that are left.
    pub(crate) fn free(&self) -> u64 {
        self.width.saturating_sub(self.taken)
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the routing queue hands on {} at a time", count(self.width, "element"))?;
        match self.taken {
            0 => Ok(()),
            n => write!(f, ", {} are there already", count(n, "element")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_of_the_site_comes_before_that_of_the_scheduler() {
        let check = |kind, own: Option<&[String]>, mpi, expected: &str| {
            assert_eq!(of(kind).launcher(own, "hpcsweep", 4, mpi).join(" "), expected);
        };
        let (slurm, pbs) = (SchedulerKind::Slurm, SchedulerKind::Pbs);
        check(slurm, None, false, "srun --kill-on-bad-exit=1");
        check(slurm, None, true, "srun --kill-on-bad-exit=1 --mpi=pmix");
        check(slurm, Some(&[]), true, "");
        check(pbs, None, true, "hpcsweep launch --ranks 4 --");
        check(pbs, Some(&[]), false, "hpcsweep launch --ranks 4 --");
        let own = ["mpiexec".to_owned()];
        check(slurm, Some(&own), true, "mpiexec");
        check(pbs, Some(&own), true, "mpiexec");
    }

    #[test]
    fn every_scheduler_is_known_by_its_facts() {
        for scheduler in all() {
            let facts = scheduler.facts();
            assert_eq!(of(facts.kind).facts().name, facts.name);
            assert!(
                crate::cluster::render::EMBEDDED.iter().any(|(name, _)| *name == facts.template)
            );
        }
        assert_eq!(all().count(), 2);
    }
}
