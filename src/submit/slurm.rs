//! Submitting to Slurm, exactly once: intent on disk, call, answer on disk; what has no answer is
//! looked for by its token before it is asked for again.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::grow;
use super::wave::{self, Waves};
use super::{Source, check_caps, check_growth, limits, retry};
use crate::fault::Fault;
use crate::host::{Vars, clock, disk, vars};
use crate::plan;
use crate::render::{Templates, context};
use crate::scheduler::calls::{Calls, refusal};
use crate::scheduler::{Limits, slurm};
use crate::site::{SchedulerKind, Site};
use crate::tree::journal::{Entry, Journal, Standing, Writer};
use crate::tree::lock::Lock;
use crate::tree::waves::{Array, Wave};
use crate::tree::{Identity, Tree, records};

/// What a person chose on the command line.
#[derive(Debug, Default, Clone)]
pub struct Options {
    /// Most elements of an array that run at once.
    pub max_running: Option<u64>,
    /// Submit trials again that ended without success.
    pub retry: bool,
}

/// What a submission did.
#[derive(Debug)]
pub struct Report {
    /// Trials of the sweep that the plan no longer has.
    pub dropped: u64,
    /// Arrays submitted or found, with their job ids.
    pub arrays: Vec<(Array, String)>,
    /// Calls of the scheduler's commands.
    pub calls: u32,
    /// The sweep.
    pub tree: Tree,
}

/// Submits what of a plan is not submitted yet. `tell` hears what is going on.
///
/// # Errors
/// When the plan exceeds a limit of the site (before any call of sbatch), the scheduler refuses or
/// cannot be reached, or the disk refuses. Running it again completes what is missing.
pub fn submit(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &Options,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<Report> {
    let plan = &source.plan;
    check_caps(plan, site, SchedulerKind::Slurm)?;
    let mut calls = Calls::new(environment, Duration::from_secs(site.limits.call_timeout_s));
    let limits = limits::read(&mut calls, site)?;
    limits::check_partitions(&mut calls, source, site)?;

    let account = plan.resources.account.as_deref().or(site.scheduler.account.as_deref());
    let tree = source.tree();
    if tree.identity()?.is_none() {
        // A new sweep that is too large leaves no trace.
        limits::check_queue(&mut calls, plan.trials.len() as u64, &limits, account)?;
    }
    let lock = Lock::take(&tree)?;
    let identity = tree.create(&plan.name)?;
    let before = Waves::read(&tree)?;
    let diff = grow::diff(&tree, source)?;
    check_growth(plan, site, &diff)?;
    let mut covered = before.covered();
    if options.retry {
        let bad = retry::without_success(&tree, &identity, site, environment)?;
        covered.retain(|trial| !bad.contains(trial));
    }
    let mut todo = wave::left_over(&tree, &diff, &covered, options.retry)?;
    if diff.known > 0 {
        limits::check_queue(&mut calls, todo.len() as u64 + diff.added(), &limits, account)?;
    }
    todo.extend(grow::grow(&tree, source, &diff, templates, site)?);
    let mut waves = before;
    if !todo.is_empty() {
        wave::make(&tree, "slurm", &todo, limits::element_limit(&limits), &waves)?;
        waves = Waves::read(&tree)?;
    }

    let mut run = Run {
        journal: Journal::read(&tree)?,
        writer: None,
        calls,
        limits,
        site,
        templates,
        tree,
        identity,
        max_running: options.max_running.or(plan.schedule.max_running.map(u64::from)),
        run: &plan.run,
    };
    let mut arrays = Vec::new();
    for (wave, array, trials) in waves.arrays().filter(|(wave, ..)| wave.target == "slurm") {
        lock.touch();
        if run.journal.job(array.array).is_some() {
            continue;
        }
        let job = run.array(wave, array, trials, &mut tell)?;
        arrays.push((array.clone(), job));
    }
    Ok(Report { dropped: diff.dropped(), arrays, calls: run.calls.made, tree: run.tree })
}

/// One submission under way.
struct Run<'a> {
    journal: Journal,
    writer: Option<Writer>,
    calls: Calls,
    limits: Limits,
    site: &'a Site,
    templates: &'a Templates,
    tree: Tree,
    identity: Identity,
    max_running: Option<u64>,
    /// What its trials run.
    run: &'a plan::Run,
}

impl Run<'_> {
    /// Brings one array into the queue and returns its job id.
    fn array(
        &mut self,
        wave: &Wave,
        array: &Array,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<String> {
        if let Some(Standing::Open { token, time }) = self.journal.arrays.get(&array.array).cloned()
        {
            tell(&format!("array {}: an earlier call has no answer; looking for it", array.array));
            if let Some(job) = self.reconcile(&token, time, trials, tell)? {
                self.answer(array, &token, &job, "reconciled")?;
                tell(&format!("array {}: it is job {job}", array.array));
                return Ok(job);
            }
            self.refused(array, &token, "not found by its token: the call never arrived")?;
        }
        let token = format!("{}.{}.{}", self.identity.name, self.identity.token, array.array);
        let script = self.render(wave, array, &token)?;
        let after = self.dependency(array)?;
        let argv = slurm::submit(&script, after.follow.as_deref(), &after.wait);
        self.write(&Entry::Intent {
            array: array.array,
            token: token.clone(),
            time: clock::now(),
            argv: argv.clone(),
        })?;
        let since = clock::now();
        let output = self.calls.make(&argv)?;
        let job = match (output.code, slurm::submitted(&output.stdout)) {
            (Some(0), Some(job)) => job,
            (code, _) => {
                // Refused, or lost on the way: a call that failed may have submitted all the same.
                let unsure = code.is_none()
                    || code == Some(0)
                    || slurm::is_unsure(&output.stderr)
                    || slurm::submitted(&output.stdout).is_some();
                let mut fault = refusal(&argv, &output);
                if code == Some(0) {
                    fault.sentence = "`sbatch` printed no job id".to_owned();
                }
                let found = if unsure {
                    tell(&format!("array {}: {}; looking for it", array.array, fault.sentence));
                    self.reconcile(&token, since, trials, tell)
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
        tell(&format!(
            "array {}: {} as job {job}{}",
            array.array,
            crate::words::count(array.count, "trial"),
            after.words()
        ));
        Ok(job)
    }

    /// What an array waits for. A parent that the scheduler may have forgotten is left to the worker,
    /// which looks at its predecessor's record anyway.
    fn dependency(&mut self, array: &Array) -> Result<After> {
        let mut after = After::default();
        let known = |journal: &Journal, array: u32| journal.job(array).map(str::to_owned);
        let fresh = |journal: &Journal, array: u32| match journal.arrays.get(&array) {
            Some(Standing::Job { time, .. }) => clock::now() - time < 60.0,
            _ => false,
        };
        if let Some(parent) = array.after {
            after.follow = known(&self.journal, parent);
        }
        after.wait = array.wait.iter().filter_map(|&a| known(&self.journal, a)).collect();
        let recent = array.after.is_none_or(|a| fresh(&self.journal, a));
        if !recent || !after.wait.is_empty() {
            let queue = self.queue()?;
            let there = |job: &String| queue.iter().any(|line| line.job == *job);
            after.follow = after.follow.filter(there);
            after.wait.retain(there);
        }
        Ok(after)
    }

    fn queue(&mut self) -> Result<Vec<slurm::Line>> {
        Ok(slurm::lines(&self.calls.ask(&slurm::queue(&vars::user_name()))?))
    }

    /// Looks for the job of an array by its token: in the queue, in the accounts, in what its elements
    /// have recorded. Not found is believed only when the call is old enough to have arrived.
    fn reconcile(
        &mut self,
        token: &str,
        since: f64,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<String>> {
        let settle = self.site.limits.settle_s as f64;
        let mut tries = 0;
        loop {
            let looked = self.look_for(token, trials, since);
            match looked {
                Ok(Some(job)) => return Ok(Some(job)),
                Ok(None) => {
                    let left = since + settle - clock::now();
                    if left <= 0.0 {
                        return Ok(None);
                    }
                    tell(&format!("not there yet; it may still arrive: waiting {left:.0} s"));
                    std::thread::sleep(Duration::from_secs_f64(left.min(settle)));
                }
                Err(error) if tries >= 3 => {
                    return Err(error.context(
                        "cannot tell whether the scheduler has the job; nothing was submitted twice",
                    ));
                }
                Err(_) => {
                    tries += 1;
                    std::thread::sleep(Duration::from_secs(1 << tries));
                }
            }
        }
    }

    fn look_for(&mut self, token: &str, trials: &[u64], since: f64) -> Result<Option<String>> {
        let found =
            |lines: Vec<slurm::Line>| lines.into_iter().find(|l| l.name == token).map(|l| l.job);
        if let Some(job) = found(self.queue()?) {
            return Ok(Some(job));
        }
        if self.limits.accounting {
            let text = self.calls.ask(&slurm::accounts_by_name(token, since))?;
            if let Some(job) = found(slurm::lines(&text)) {
                return Ok(Some(job));
            }
        }
        // Without accounts, a job that ran and was forgotten has left its id in a record.
        let known = |job: &str| {
            self.journal.arrays.values().any(|s| matches!(s, Standing::Job { id, .. } if id == job))
        };
        for &trial in trials {
            for attempt in records::of_trial(&self.tree, trial)?.0.attempts {
                let base = attempt.start.job.as_deref().and_then(|j| j.split('_').next());
                if let Some(base) = base
                    && attempt.start.time >= since - 60.0
                    && !known(base)
                {
                    return Ok(Some(base.to_owned()));
                }
            }
        }
        Ok(None)
    }

    fn render(&self, wave: &Wave, array: &Array, token: &str) -> Result<String> {
        let words = context::SiteWords::of(self.site, SchedulerKind::Slurm, self.run);
        let worker = worker_argv(self.tree.dir(), wave, array)?;
        let names = context::job_script(
            &self.identity.name,
            self.tree.dir(),
            token.to_owned(),
            array,
            self.max_running,
            &words,
            worker,
        );
        let text = self.templates.render("slurm.sh.tera", &context::of(&names)?)?;
        let path = self.tree.script(array.array);
        disk::make_dir(&self.tree.dir().join("jobs"))?;
        disk::make_dir(&self.tree.dir().join(format!("logs/jobs/{:04}", array.array)))?;
        disk::write_whole(&path, text.as_bytes())?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn write(&mut self, entry: &Entry) -> Result<()> {
        if self.writer.is_none() {
            let mut writer = Writer::open(&self.tree)?;
            writer.site("slurm", self.limits.accounting)?;
            self.writer = Some(writer);
        }
        if let Some(writer) = &mut self.writer {
            writer.write(entry)?;
        }
        self.journal.take(entry.clone());
        Ok(())
    }

    fn answer(&mut self, array: &Array, token: &str, job: &str, how: &str) -> Result<()> {
        self.write(&Entry::Answer {
            array: array.array,
            token: token.to_owned(),
            time: clock::now(),
            job: job.to_owned(),
            how: how.to_owned(),
        })
    }

    fn refused(&mut self, array: &Array, token: &str, reason: &str) -> Result<()> {
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

#[derive(Default)]
struct After {
    follow: Option<String>,
    wait: Vec<String>,
}

impl After {
    /// What an array waits for, in words.
    fn words(&self) -> String {
        let jobs: Vec<&str> = self.follow.iter().chain(&self.wait).map(String::as_str).collect();
        if jobs.is_empty() { String::new() } else { format!(", after {}", jobs.join(", ")) }
    }
}

/// The worker's argument vector in the script of an array.
fn worker_argv(dir: &Path, wave: &Wave, array: &Array) -> Result<Vec<String>> {
    Ok(vec![
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
    ])
}
