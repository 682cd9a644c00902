//! Submitting to Slurm, exactly once: intent on disk, call, answer on disk; what has no answer is
//! looked for by its token before it is asked for again.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::grow::{self, Growth};
use super::wave::{self, Waves};
use super::{Source, check_caps};
use crate::fault::Fault;
use crate::host::{Vars, clock, disk};
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
}

/// What a submission did.
#[derive(Debug)]
pub struct Report {
    /// What the plan added.
    pub growth: Growth,
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
    vars: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<Report> {
    let plan = &source.plan;
    check_caps(plan, site, SchedulerKind::Slurm)?;
    let mut calls = Calls::new(vars, Duration::from_secs(site.limits.call_timeout_s));
    let limits = read_limits(&mut calls, site)?;
    check_partitions(&mut calls, source, site)?;

    let tree = source.tree();
    let identity = tree.create(&plan.name)?;
    let lock = Lock::take(&tree)?;
    let before = Waves::read(&tree)?;
    let growth = grow::grow(&tree, source, templates, site)?;
    let todo = wave::todo(&tree, growth.known, growth.added.clone(), &before.covered())?;
    check_submit_limit(&mut calls, todo.len() as u64, &limits)?;
    let mut waves = before;
    if !todo.is_empty() {
        let made = wave::make(&tree, "slurm", &todo, element_limit(&limits), &waves)?;
        disk::make_dir(&tree.dir().join("plans"))?;
        disk::write_whole(&tree.plan_of(made.wave), source.text.as_bytes())?;
        waves = Waves::read(&tree)?;
    }
    disk::write_whole(&tree.plan(), source.text.as_bytes())?;

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
    Ok(Report { growth, arrays, calls: run.calls.made, tree: run.tree })
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
            if let Some(job) = self.reconcile(&token, time, array, trials, tell)? {
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
                let unsure = code.is_none() || code == Some(0) || slurm::is_unsure(&output.stderr);
                let mut fault = refusal(&argv, &output);
                if code == Some(0) {
                    fault.sentence = "`sbatch` printed no job id".to_owned();
                }
                let found = if unsure {
                    tell(&format!("array {}: {}; looking for it", array.array, fault.sentence));
                    self.reconcile(&token, since, array, trials, tell)
                        .map_err(|error| error.context(fault.sentence.clone()))?
                } else {
                    None
                };
                let Some(job) = found else {
                    self.refused(array, &token, &fault.sentence)?;
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
            after.follow.map_or_else(String::new, |parent| format!(", after {parent}"))
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
        Ok(slurm::lines(&self.calls.ask(&slurm::queue(&user_name()))?))
    }

    /// Looks for the job of an array by its token: in the queue, in the accounts, in what its elements
    /// have recorded. Not found is believed only when the call is old enough to have arrived.
    fn reconcile(
        &mut self,
        token: &str,
        since: f64,
        array: &Array,
        trials: &[u64],
        tell: &mut impl FnMut(&str),
    ) -> Result<Option<String>> {
        let settle = self.site.limits.settle_s as f64;
        let mut tries = 0;
        loop {
            let looked = self.look_for(token, array, trials, since);
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

    fn look_for(
        &mut self,
        token: &str,
        array: &Array,
        trials: &[u64],
        since: f64,
    ) -> Result<Option<String>> {
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
        let _ = array;
        Ok(None)
    }

    fn render(&self, wave: &Wave, array: &Array, token: &str) -> Result<String> {
        let site = &self.site;
        let words = context::SiteWords {
            shell: site.shell.path.clone(),
            partition: site.scheduler.partition.clone(),
            account: site.scheduler.account.clone(),
            qos: site.scheduler.qos.clone(),
            directives: site.scheduler.directives.clone(),
            launcher: site.scheduler.launcher_on(SchedulerKind::Slurm),
            single_rank_step: site.scheduler.single_rank_step,
            max_walltime_s: site.caps.max_walltime_s,
        };
        let cap = site.caps.max_running;
        let max_running = match (self.max_running, cap) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let worker = worker_argv(self.tree.dir(), wave, array)?;
        let names = context::job_script(
            &self.identity.name,
            self.tree.dir(),
            token.to_owned(),
            array,
            max_running,
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

/// The cluster's limits, each replaced by the site profile's where that has one.
///
/// # Errors
/// When the scheduler does not answer.
pub fn read_limits(calls: &mut Calls, site: &Site) -> Result<Limits> {
    let mut limits = slurm::limits(&calls.ask(&slurm::config())?);
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

/// The most elements of one array under these limits (Slurm's default where nobody says).
pub fn element_limit(limits: &Limits) -> u64 {
    let size = limits.max_array_size.unwrap_or(1001);
    limits.max_array_tasks.map_or(size, |tasks| size.min(tasks)).max(1)
}

/// A partition that does not exist, is down, or is too short for a trial is found before any sbatch.
fn check_partitions(calls: &mut Calls, source: &Source, site: &Site) -> Result<()> {
    let partitions = slurm::read_partitions(&calls.ask(&slurm::partitions())?);
    let mut last = None;
    for trial in &source.plan.trials {
        let r = &trial.resources;
        if last.is_some_and(|seen| std::sync::Arc::ptr_eq(seen, r)) {
            continue;
        }
        last = Some(r);
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
            None => partitions.iter().filter(|p| p.default).collect(),
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
    Ok(())
}

/// The limits on how many elements may be queued.
fn check_submit_limit(calls: &mut Calls, elements: u64, limits: &Limits) -> Result<()> {
    if elements == 0 {
        return Ok(());
    }
    let mut submit = limits.max_submit_jobs;
    if submit.is_none() && limits.accounting {
        // Not every site lets users ask; then sbatch itself will say it.
        let output = calls.make(&slurm::associations(&user_name()))?;
        submit = slurm::max_submit_jobs(&output.stdout);
    }
    let too_many = |name: &str, limit: u64| {
        Fault::request(format!(
            "the sweep would put {} into the queue, more than {name} allows: {limit}",
            crate::words::count(elements, "element")
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

/// The name of the user, as the scheduler knows it.
pub fn user_name() -> String {
    let uid = nix::unistd::getuid();
    nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}
