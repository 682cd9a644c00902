//! Submitting to a scheduler, exactly once: intent on disk, call, answer on disk; what has no answer is
//! looked for by its token before it is asked for again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::backend::Backend;
use super::door::{Door, check_path};
use super::grow::Diff;
use super::mapping::Rules;
use super::wave::{self, Before, Failures, Waves};
use super::{
    Source, Wanted, check_caps, check_growth, check_writable, deal, environment, grow, pilots,
    refuse_share, retry, secure,
};
use crate::fault::Fault;
use crate::host::{Vars, access, clock, disk};
use crate::plan::{self, Resources};
use crate::render::{Templates, context};
use crate::scheduler::calls::{Calls, refusal};
use crate::scheduler::{pbs, slurm};
use crate::site::{SchedulerKind, Site};
use crate::tree::journal::{Entry, Journal, Standing, Writer};
use crate::tree::lock::Lock;
use crate::tree::records;
use crate::tree::waves::{Array, Wave};
use crate::tree::{Identity, Tree};
use crate::words::count;

/// What a person chose on the command line.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Most elements of the sweep that run at once.
    pub max_running: Option<u64>,
    /// Submit trials again that ended without success.
    pub retry: bool,
}

/// What a submission did.
#[derive(Debug)]
pub struct Report {
    /// Trials that a later submission is to bring, when what they come after has ended.
    pub put_off: u64,
    /// Arrays submitted or found, with their job ids.
    pub arrays: Vec<(Array, String)>,
    /// Calls of the scheduler's commands.
    pub calls: u32,
    /// The sweep.
    pub tree: Tree,
}

/// Submits what of a plan is not submitted yet to Slurm or PBS. `tell` hears what is going on.
///
/// # Errors
/// When the plan exceeds a limit of the site (before any job is submitted), the scheduler refuses or
/// cannot be reached, or the disk refuses. Running it again completes what is missing.
pub fn submit(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &Options,
    kind: SchedulerKind,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<Report> {
    let plan = &source.plan;
    plan.run.refuse_function(|| source.author())?;
    refuse_share(plan)?;
    check_caps(source, site, kind)?;
    check_writable(&source.tree(), plan, site)?;
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let wish = options.max_running.or(plan.schedule.max_running.map(u64::from));
    let max_running = site.caps.running(wish);
    let wanted = Wanted::of(source);
    let door = Door::ask(&mut calls, &wanted, site, kind)?;
    let limits = door.limits().clone();
    let account = plan.resources.account.as_deref().or(site.scheduler.account.as_deref());
    let tree = source.tree();
    check_path(&tree, kind)?;
    if tree.identity()?.is_none() {
        // A new sweep that is too large leaves no trace.
        door.check_queue(&mut calls, wanted.elements, account)?;
    }
    let access = secure(&tree, plan, site)?;
    let lock = Lock::take(&tree)?;
    let identity = tree.create(&plan.name, access)?;
    deal::refuse_if_dealt(&tree)?;
    retry::check_free(&tree, &identity, site, environment, kind)?;
    let mut waves = Waves::read(&tree)?;
    let diff = grow::diff(&tree, source)?;
    check_growth(plan, site, &diff)?;
    diff.left_alone().iter().for_each(|words| tell(words));
    let backend = door.backend();
    let mut run = Run {
        journal: Journal::read(&tree)?,
        writer: None,
        calls,
        backend,
        partitions: door.partitions(),
        throttles: !limits.cannot_throttle,
        holds: door.holds(),
        site,
        templates,
        tree,
        identity,
        max_running,
        run: &plan.run,
        plan: &source.path,
        diff: &diff,
        environment,
        began: clock::now(),
    };
    let amended = run.amend(&mut waves, &mut tell)?;
    let mut covered = waves.covered();
    covered.retain(|trial| !amended.due.contains(trial));
    let mut again = match options.retry {
        true => retry::without_success(&run.tree, &run.identity, site, environment)?,
        false => retry::Retry::default(),
    };
    covered.retain(|trial| !again.bad.contains(trial));
    again.note(&diff).iter().for_each(|note| tell(note));
    let records = if diff.known > 0 { records::all(&run.tree)? } else { HashMap::new() };
    amended.note(&records, &covered).iter().for_each(|note| tell(note));
    let known =
        retry::Known { waves: &waves, journal: &run.journal, covered: &covered, records: &records };
    if !options.retry && known.is_behind_a_failure(&run.tree, source, &diff)? {
        again = retry::without_success(&run.tree, &run.identity, site, environment)?;
    }
    let before = Before::new(&waves, &run.journal, &again.busy);
    let coming = before.coming(&records);
    let failures = Failures { retry: options.retry, due: amended.due, coming };
    let mut todo = wave::left_over(&run.tree, &diff, &covered, &records, &failures)?.todo;
    if diff.known > 0 {
        let pack = plan.schedule.pack.map_or(1, u64::from);
        let elements = (todo.len() as u64 + diff.added()).div_ceil(pack);
        door.check_queue(&mut run.calls, elements, account)?;
    }
    todo.extend(grow::grow(&run.tree, source, &diff, templates, site)?);
    let mut put_off = 0;
    let waits = max_running.is_some() || todo.iter().any(|t| t.after.is_some());
    let places = if waits { door.places(&mut run.calls)? } else { None };
    if let Some(places) = places {
        put_off = before.put_off(&run.tree, &mut todo, places.free())?;
        if put_off > 0 {
            tell(&format!(
                "{} put off: {places}, and what waits could take the places of what it waits for; submit again when the \
                 jobs before have ended",
                count(put_off, "trial")
            ));
        }
    }
    if !todo.is_empty() {
        let rules = Rules {
            kind,
            chains: plan.schedule.chains,
            pack: plan.schedule.pack,
            elements: limits.elements(),
            max_calls: site.limits.max_calls,
            max_walltime_s: limits.max_walltime_s.into_iter().chain(site.caps.max_walltime_s).min(),
            max_running,
            cannot_throttle: limits.cannot_throttle,
            places,
        };
        let (_, mapped) = wave::make(&run.tree, kind.word(), &todo, &rules, &before, &records)?;
        door.notes().iter().for_each(|note| tell(note));
        if let (true, Some(n)) = (limits.cannot_throttle, max_running)
            && n < todo.len() as u64
        {
            let version = limits.version.as_deref().unwrap_or_default();
            tell(&format!(
                "PBS {version} cannot throttle arrays: they have {} at most, and wait for each other",
                count(n, "element")
            ));
        }
        if max_running.is_some() && !limits.cannot_throttle && rules.is_too_narrow(todo.len()) {
            tell(
                "`max_running` holds for each array alone: behind this routing queue arrays that wait could take the \
                 places of those that they wait for",
            );
        }
        if !mapped.why.is_empty() {
            tell(&format!("chains as {}: {}", mapped.mapping.word(), mapped.why));
        }
        waves = Waves { given_up: waves.given_up, ..Waves::read(&run.tree)? };
    }

    // What was found just now had been submitted before.
    run.began = clock::now();
    let ours: Vec<_> = waves.arrays().filter(|(wave, ..)| wave.target == kind.word()).collect();
    let mut arrays = Vec::new();
    for (wave, array, trials) in &ours {
        lock.touch();
        if run.journal.job(array.array).is_some() {
            continue;
        }
        let is_followed = ours.iter().any(|(_, other, _)| {
            other.after == Some(array.array) || other.wait.contains(&array.array)
        });
        let job = run.array(wave, array, trials, is_followed, &mut tell)?;
        arrays.push(((*array).clone(), job));
    }
    run.let_go()?;
    run.free_stalled(&waves, &mut tell);
    Ok(Report { put_off, arrays, calls: run.calls.made, tree: run.tree })
}

/// One submission under way.
pub(super) struct Run<'a> {
    pub(super) journal: Journal,
    pub(super) writer: Option<Writer>,
    pub(super) calls: Calls,
    pub(super) backend: Backend,
    /// Partitions whose jobs are not told when they end.
    pub(super) partitions: Vec<slurm::Partition>,
    /// Whether the server throttles arrays.
    pub(super) throttles: bool,
    /// Whether the first jobs of chains are held until all that waits for them is there.
    pub(super) holds: bool,
    pub(super) site: &'a Site,
    pub(super) templates: &'a Templates,
    pub(super) tree: Tree,
    pub(super) identity: Identity,
    pub(super) max_running: Option<u64>,
    /// What its trials run.
    pub(super) run: &'a plan::Run,
    /// The plan's file.
    pub(super) plan: &'a Path,
    /// What the plan asks for the trials that the sweep had before.
    pub(super) diff: &'a Diff,
    /// The environment of the submission.
    pub(super) environment: &'a Vars,
    /// When it began.
    pub(super) began: f64,
}

impl Run<'_> {
    /// Brings one array into the queue and returns its job id.
    pub(super) fn array(
        &mut self,
        wave: &Wave,
        array: &Array,
        trials: &[u64],
        is_followed: bool,
        tell: &mut impl FnMut(&str),
    ) -> Result<String> {
        if let Some(job) = self.settle(array, trials, tell)? {
            return Ok(job);
        }
        let token = self.token(array);
        let script = self.render(wave, array, trials, &token)?;
        let after = self.dependency(array)?;
        // PBS without a history deletes a job that waits for one that has ended: nothing begins before all that
        // waits for it is there.
        let held = is_followed && array.after.is_none() && self.holds;
        let argv = self.backend.submit(&script, &after, held);
        self.write(&Entry::Intent {
            array: array.array,
            token: token.clone(),
            time: clock::now(),
            argv: argv.clone(),
            held,
        })?;
        let since = clock::now();
        let output = self.calls.make(&argv)?;
        let job = match (output.code, self.backend.submitted(&output.stdout)) {
            (Some(0), Some(job)) => job,
            (code, _) => {
                // Refused, or anything else: a call that failed may have submitted all the same.
                let unsure = !self.backend.is_refusal(&output);
                let mut fault = refusal(&argv, &output);
                if code == Some(0) {
                    fault.sentence = format!("`{}` printed no job id", argv[0]);
                }
                let found = if unsure {
                    tell(&format!("array {}: {}; looking for it", array.array, fault.sentence));
                    self.reconcile(&token, array, since, trials, tell)
                        .map_err(|error| error.context(fault.sentence.clone()))?
                } else {
                    None
                };
                let Some(job) = found else {
                    // A call that only seems lost stays open: the next submission looks for it first.
                    if !unsure {
                        self.refused(array, &token, &fault.sentence)?;
                    }
                    return Err(self.stopped(fault, array).into());
                };
                job
            }
        };
        self.answer(array, &token, &job, "submitted")?;
        if self.is_swept_away(&after, &job, trials)? {
            self.refused(array, &token, "deleted: what it waited for had ended by then")?;
            return self.array(wave, array, trials, is_followed, tell);
        }
        tell(&format!(
            "array {}: {} as job {job}{}",
            array.array,
            count(array.count * array.links, if array.pilot.is_some() { "pilot" } else { "trial" }),
            after.words()
        ));
        Ok(job)
    }

    fn token(&self, array: &Array) -> String {
        format!("{}.{}.{}", self.identity.name, self.identity.token, array.array)
    }

    /// The script of an array: of PBS's, its path tells which job it is of.
    pub(super) fn script(&self, array: &Array, token: &str) -> PathBuf {
        match self.backend {
            Backend::Slurm { .. } => self.tree.script(array.array),
            Backend::Pbs { .. } => self.tree.dir().join(format!("jobs/{token}.sh")),
        }
    }

    /// Lets go what was held until all that waits for it was submitted.
    fn let_go(&mut self) -> Result<()> {
        let held: Vec<(u32, String)> =
            self.journal.held().map(|(a, id)| (a, id.to_owned())).collect();
        if held.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = held.iter().map(|(_, id)| id.clone()).collect();
        let argv = pbs::release(&ids);
        let output = self.calls.make(&argv)?;
        // One that was deleted meanwhile is no fault.
        if !pbs::has_answered(output.code) {
            return Err(refusal(&argv, &output)
                .hint("the jobs wait; run the same command again to let them go")
                .into());
        }
        for (array, _) in held {
            self.write(&Entry::Released { array, time: clock::now() })?;
        }
        Ok(())
    }

    fn render(&self, wave: &Wave, array: &Array, trials: &[u64], token: &str) -> Result<String> {
        disk::make_dir(&self.tree.dir().join("jobs"))?;
        let is_pbs = self.backend.kind() == SchedulerKind::Pbs;
        let words = context::SiteWords {
            throttles: self.throttles,
            readers: self.identity.readable_by,
            environment: is_pbs
                .then(|| environment::write(&self.tree, self.environment))
                .transpose()?,
            ..context::SiteWords::of(self.site, self.backend.kind(), self.run)
        };
        let mut worker = match array.pilot {
            Some(pilot) => pilots::argv(self.tree.dir(), &array.resources, pilot, self.site)?,
            None => worker_argv(self.tree.dir(), wave, array)?,
        };
        if let Some(time) = self.job_time(array) {
            worker.extend(["--job-time".to_owned(), time]);
        }
        if trials.iter().any(|trial| self.diff.is_changed(*trial))
            && let Some(requests) = array.requests()
        {
            worker.extend(["--resources".to_owned(), Resources::to_words(&requests)?]);
        }
        let names = context::job_script(
            &self.identity.name,
            self.tree.dir(),
            self.backend.job_name(token),
            array,
            self.max_running,
            &words,
            worker,
        );
        let text = self.templates.render(self.backend.template(), &context::of(&names)?)?;
        let path = self.script(array, token);
        disk::make_dir(&self.tree.dir().join(format!("logs/jobs/{:04}", array.array)))?;
        disk::write_whole(&path, text.as_bytes())?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// What an element's worker is told of how long its job may run; `None` where it knows, or must ask.
    fn job_time(&self, array: &Array) -> Option<String> {
        let r = &array.resources;
        let is_asked_for = r.walltime_s.is_some()
            || self.environment.contains_key("SBATCH_TIMELIMIT")
            || r.directives
                .iter()
                .chain(&self.site.scheduler.directives)
                .any(|d| d.contains("time"));
        // Of several trials one after the other only the first begins with the job.
        if is_asked_for || array.links > 1 || array.pilot.is_some() {
            return None;
        }
        let named = r.partition.as_deref().or(self.site.scheduler.partition.as_deref());
        Some(match slurm::default_time(&self.partitions, named)? {
            slurm::JobTime::Unlimited => "unlimited".to_owned(),
            slurm::JobTime::Seconds(seconds) => format!("{seconds}s"),
        })
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        if self.writer.is_none() {
            let mut writer = Writer::open(&self.tree)?;
            writer.site(self.backend.word(), self.backend.remembers(), self.plan)?;
            self.writer = Some(writer);
        }
        if let Some(writer) = &mut self.writer {
            writer.write(entry)?;
        }
        self.journal.take(entry.clone());
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        array: &Array,
        token: &str,
        job: &str,
        how: &str,
    ) -> Result<()> {
        self.write(&Entry::Answer {
            array: array.array,
            token: token.to_owned(),
            time: clock::now(),
            job: job.to_owned(),
            how: how.to_owned(),
        })
    }

    pub(super) fn refused(&mut self, array: &Array, token: &str, reason: &str) -> Result<()> {
        self.write(&Entry::Refused {
            array: array.array,
            token: token.to_owned(),
            time: clock::now(),
            reason: reason.to_owned(),
        })
    }

    fn stopped(&self, fault: Fault, array: &Array) -> Fault {
        let jobs: Vec<&str> = self
            .journal
            .arrays
            .values()
            .filter_map(|s| if let Standing::Job { id, .. } = s { Some(id.as_str()) } else { None })
            .collect();
        let hint = if jobs.is_empty() {
            "nothing of this sweep is in the queue; mend it and run the same command again"
                .to_owned()
        } else {
            format!(
                "jobs {} of this sweep are in the queue; mend it and run the same command again: only the rest is submitted",
                jobs.join(", ")
            )
        };
        Fault {
            sentence: format!("array {} was not submitted: {}", array.array, fault.sentence),
            ..fault
        }
        .hint(hint)
    }
}

/// The worker's argument vector in the script of an array.
fn worker_argv(dir: &Path, wave: &Wave, array: &Array) -> Result<Vec<String>> {
    let mut argv = vec![
        disk::own_executable()?.to_string_lossy().into_owned(),
        "worker".to_owned(),
        "--sweep".to_owned(),
        dir.to_string_lossy().into_owned(),
        "--wave".to_owned(),
        wave.wave.to_string(),
        "--first".to_owned(),
        array.first.to_string(),
        "--count".to_owned(),
        array.count.to_string(),
        "--gate".to_owned(),
    ];
    argv.extend(access::shared_option());
    Ok(argv)
}
