//! Submitting to a scheduler, exactly once: intent on disk, call, answer on disk; what has no answer is
//! looked for by its token before it is asked for again.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::fault::{self, Fault};
use crate::base::host::process::Output;
use crate::base::host::{Vars, access, clock, disk};
use crate::base::words::count;
use crate::cluster::rank::is_launcher_variable;
use crate::cluster::render::{Templates, context};
use crate::cluster::scheduler::calls::{self, Calls, refusal};
use crate::cluster::scheduler::order::{self, Order};
use crate::cluster::scheduler::{self, JobTime, Room, Scheduler, Wanted};
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{self, Plan, Resources};
use crate::submit::again::Again;
use crate::submit::arrays::environment;
use crate::submit::arrays::holder;
use crate::submit::arrays::job_script::job_script;
use crate::submit::arrays::portion::FEEDER_PLACES;
use crate::submit::arrays::reconcile::{Search, settle_all};
use crate::submit::arrays::unplaced;
use crate::submit::arrays::wave::Waves;
use crate::submit::auto::{self, Decided};
use crate::submit::grow::Diff;
use crate::submit::pilots::{command, hands};
use crate::submit::{
    Source, check_caps, check_growth, check_requests, check_writable, grow, refuse_share, retry,
    secure, wanted,
};
use crate::sweep::status::folders;
use crate::sweep::tree::journal::{self, Entry, Journal, Writer};
use crate::sweep::tree::lock::{Lock, Owner};
use crate::sweep::tree::waves::{Array, Wave};
use crate::sweep::tree::{Identity, Tree};

/// Options from the command line.
#[derive(Debug, Default, Clone)]
pub(crate) struct ArrayOptions {
    /// Most elements of the sweep that run at once.
    pub(crate) max_running: Option<u64>,
    /// Trials that ended without success and are submitted again.
    pub(crate) retry: Again,
    /// The folder of the job script templates, where the command line names one.
    pub(crate) templates: Option<PathBuf>,
    /// The feeder that submits: the number of its array.
    pub(crate) feeder: Option<u32>,
    /// Whether that feeder waits no longer for trials whose jobs are about to end.
    pub(crate) is_impatient: bool,
    /// The most elements to submit, where the scheduler has refused more.
    pub(crate) at_most: Option<u64>,
}

impl ArrayOptions {
    /// Options for fewer elements than an array had for which the queue had no place; `None` if fewer make no difference.
    fn fewer(&self, refused: u64) -> Option<Self> {
        let at_most = (refused / 2).max(FEEDER_PLACES);
        (at_most < refused).then(|| Self { at_most: Some(at_most), ..self.clone() })
    }
}

/// The result of a submission.
#[derive(Debug)]
pub(crate) struct ArrayReport {
    /// Trials that a later submission is to submit, when the trials before them have ended.
    pub(crate) put_off: u64,
    /// Trials that have no place in the queue yet.
    pub(crate) left: u64,
    /// Trials that wait until others have shown what they need.
    pub(crate) held: u64,
    /// The job that submits them, or that repeats what fails.
    pub(crate) feeder: Option<String>,
    /// The places of the queue, if it has none left and no feeder of the sweep waits for one. Nothing was submitted then.
    pub(crate) full: Option<Room>,
    /// Whether the feeder that submits is to look again soon: jobs that it waited for are about to end.
    pub(crate) is_early: bool,
    /// Arrays submitted or found, with their job ids.
    pub(crate) arrays: Vec<(Array, String)>,
    /// Calls of the scheduler's commands.
    pub(crate) calls: u32,
    /// The sweep to which the trials belong.
    pub(crate) tree: Tree,
}

/// How a submission ended.
enum Submitted {
    Whole(Box<ArrayReport>),
    /// The queue had no place for the first array, of so many elements.
    NoPlace {
        fault: anyhow::Error,
        elements: u64,
        calls: u32,
    },
}

/// Submits the part of a plan that is not submitted yet to Slurm or PBS. `tell` is called with the progress. If the scheduler
/// refuses the first array because of a limit that cannot be asked for, fewer elements are submitted.
///
/// # Errors
/// When the plan exceeds a limit of the site (before any job is submitted), the scheduler refuses or
/// cannot be reached, or the disk refuses. Running it again completes what is missing.
pub(crate) fn submit(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &ArrayOptions,
    kind: SchedulerKind,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<ArrayReport> {
    let (mut options, mut earlier, mut said) = (options.clone(), 0, HashSet::new());
    let mut tell = |words: &str| {
        if said.insert(words.to_owned()) {
            tell(words);
        }
    };
    loop {
        match once(source, site, templates, &options, kind, environment, &mut tell)? {
            Submitted::Whole(report) => {
                return Ok(ArrayReport { calls: report.calls + earlier, ..*report });
            }
            Submitted::NoPlace { fault, elements, calls } => {
                let Some(fewer) = options.fewer(elements) else { return Err(fault) };
                tell(&fault::sentence(&fault));
                (options, earlier) = (fewer, earlier + calls);
            }
        }
    }
}

/// Submits what [`submit`] does, with the arrays that these options allow.
fn once(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &ArrayOptions,
    kind: SchedulerKind,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<Submitted> {
    let plan = &source.plan;
    plan.run.refuse_function(|| source.author())?;
    refuse_share(plan)?;
    check_caps(source, site, kind)?;
    check_requests(source, &options.retry.requests(), site, kind)?;
    check_writable(&source.tree(), plan, site)?;
    let mut wanted = wanted(source);
    wanted.requests.extend(options.retry.requests());
    let mut asked = Asked::new(&source.tree(), kind, &wanted, site, environment)?;
    let tree = source.tree();
    scheduler::check_path(kind, tree.dir())?;
    let access = secure(&tree, plan, site)?;
    let lock = locked(&tree, options, &mut asked, environment, &mut tell)?;
    let identity = tree.create(&plan.name, access)?;
    hands::take_over(&tree)?;
    settle_all(&tree, site, &mut asked.calls, true, &mut tell)?;
    let journal = Journal::read(&tree)?;
    retry::check_free(&tree, &identity, &journal, site, environment, kind)?;
    let mut waves = Waves::of_here(&tree, &journal)?;
    grow::follow(&tree, source)?.iter().for_each(|note| tell(note));
    folders::notes(&tree, &identity, site, environment)?.iter().for_each(|note| tell(note));
    let mut diff = grow::diff(&tree, source)?;
    if options.feeder.is_some() {
        diff = diff.without_growth(&tree)?;
    }
    // What was asked for under this plan, and had no place, is still asked for.
    let kept = match tree.is_plan(&source.text)? {
        true => unplaced::trials(&waves, kind.word(), &diff, &journal),
        false => Again::default(),
    };
    kept.change_others(&options.retry, &mut diff);
    let mut options = options.clone();
    let mut decided = Decided::default();
    let is_deciding = options.feeder.is_some() && (plan.is_looked_after() || plan.learns());
    if is_deciding {
        let known = (&identity, &waves, &journal, &diff);
        let pending = options.retry.clone().and(&kept);
        decided = decide(source, site, environment, known, &pending, &mut asked)?;
        options.retry = options.retry.and(&decided.again);
    }
    let options = &options;
    options.retry.change(&mut diff);
    check_growth(plan, site, &diff)?;
    diff.left_alone().iter().for_each(|words| tell(words));
    unused_options(&*asked.scheduler, environment).iter().for_each(|words| tell(words));
    let known = Opened { identity, journal, diff: &diff };
    let mut run = Submission::new(source, site, templates, environment, asked, known);
    let wish = options.max_running.or(plan.schedule.max_running.map(u64::from));
    run.max_running = site.caps.running(wish);
    if is_deciding {
        run.open_trials = Some(std::mem::take(&mut decided.open_trials));
    }
    let next = run.next_wave(source, options, &mut waves, &mut tell)?;

    if let Some(entry) = decided.entry.filter(|_| next.full.is_none()) {
        run.write(&entry)?;
    }

    // Jobs that were found just now had been submitted before.
    run.began = clock::now();
    let mut arrays = Vec::new();
    let mut left = next.left;
    let (mut feeder, mut is_early) = (None, false);
    let is_fed = next.is_fed == Some(true);
    if next.full.is_none() || is_fed {
        match run.arrays(&mut waves, &mut arrays, &lock, &mut tell) {
            Ok(unplaced) => left += unplaced,
            Err(fault) => return run.stop(fault, arrays.is_empty()),
        }
        let is_idle = left == 0 && arrays.is_empty();
        // Where a feeder waits for elements, the next one waits for those that are left.
        is_early = is_idle
            && !options.is_impatient
            && is_early_for(options, &waves, &decided.open)
            && !run.has_open_elements(&decided.open)?;
        let open = (&decided.open, next.is_fed);
        let is_awaited = left > 0 || next.held > 0;
        if !is_early && (is_awaited || run.needs_a_look(plan, options, &waves, open, is_idle)?) {
            let wait = decided.open.into_iter().chain(next.wait).collect();
            let awaited = (wait, next.held > 0);
            let fed = run.feed(source, options, &mut waves, (next.is_fed, awaited), &mut tell);
            feeder = fed.map_err(|error| run.give_up(error, &mut tell))?;
        }
    }
    run.let_go()?;
    run.free_stalled(&waves, &mut tell);
    let (put_off, full) = (next.put_off, next.full.filter(|_| !is_fed));
    let report = ArrayReport {
        put_off,
        left,
        held: next.held,
        feeder,
        full,
        is_early,
        arrays,
        calls: run.calls.made,
        tree: run.tree,
    };
    Ok(Submitted::Whole(Box::new(report)))
}

/// Takes the lock of a sweep; a submission by a person waits for another process.
fn locked(
    tree: &Tree,
    options: &ArrayOptions,
    asked: &mut Asked,
    environment: &Vars,
    tell: &mut impl FnMut(&str),
) -> Result<Lock> {
    let job = scheduler::job::id(environment);
    let journal = Journal::read(tree)?;
    let mut known = None;
    let mut has_ended = |owner: &Owner| {
        holder::has_ended(&*asked.scheduler, &mut asked.calls, &journal, owner, &mut known)
    };
    match options.feeder {
        // It looks again by itself.
        Some(_) => Lock::take_in(tree, job.as_deref(), &mut has_ended),
        None => Lock::wait(tree, job.as_deref(), &mut has_ended, tell),
    }
}

/// Whether the feeder that submits has waited for all arrays that are `open`: they are about to end.
fn is_early_for(options: &ArrayOptions, waves: &Waves, open: &BTreeSet<u32>) -> bool {
    let own = waves.feeders().find(|(_, array)| Some(array.array) == options.feeder);
    own.is_some_and(|(_, own)| !open.is_empty() && open.iter().all(|a| own.wait.contains(a)))
}

/// What the feeder of a sweep with `[retry] auto` is to repeat.
fn decide(
    source: &Source,
    site: &Site,
    environment: &Vars,
    (identity, waves, journal, diff): (&Identity, &Waves, &Journal, &Diff),
    pending: &Again,
    asked: &mut Asked,
) -> Result<Decided> {
    let tree = source.tree();
    let status = retry::sure(&tree, identity, site, environment)?;
    let facts = asked.scheduler.facts();
    let known = auto::Known { status: &status, waves, journal, diff, pending, facts };
    auto::of_sweep(&known, &source.plan.retry, |request| {
        let wanted = Wanted { requests: vec![request], elements: 1, plan: String::new() };
        check_requests(source, &[request], site, facts.kind)
            .and_then(|()| scheduler::asked(facts.kind, &mut asked.calls, &wanted, site).map(drop))
            .err()
    })
}

/// A scheduler with the limits of a submission, and the calls of its commands.
pub(crate) struct Asked {
    pub(crate) calls: Calls,
    pub(crate) scheduler: Box<dyn Scheduler>,
}

impl Asked {
    /// Asks the scheduler of a kind for a sweep that may have jobs there.
    ///
    /// # Errors
    /// When it does not answer, or does not take what is wanted.
    pub(crate) fn new(
        tree: &Tree,
        kind: SchedulerKind,
        wanted: &Wanted<'_>,
        site: &Site,
        environment: &Vars,
    ) -> Result<Self> {
        let mut calls = Journal::read(tree)?.calls(environment, site);
        let scheduler = scheduler::asked(kind, &mut calls, wanted, site)?;
        Ok(Self { calls, scheduler })
    }
}

/// The options of a submission that a person has in the environment: jobs get what the plan says, and these would go
/// before it.
fn unused_options(scheduler: &dyn Scheduler, environment: &Vars) -> Option<String> {
    let family = scheduler.facts().options?;
    let named = environment.keys().filter(|name| name.starts_with(family));
    let unused: Vec<&str> =
        named.filter(|name| is_launcher_variable(name)).map(String::as_str).collect();
    let names = unused.join("`, `");
    let words = format!(
        "`{names}` of the environment not used: `[resources]` of the plan says what jobs get"
    );
    (!unused.is_empty()).then_some(words)
}

/// A sweep as it stands under its lock.
pub(crate) struct Opened<'a> {
    pub(crate) identity: Identity,
    pub(crate) journal: Journal,
    /// The difference between the plan and the sweep.
    pub(crate) diff: &'a Diff,
}

/// One submission under way.
pub(crate) struct Submission<'a> {
    pub(crate) journal: Journal,
    pub(crate) writer: Option<Writer>,
    pub(crate) calls: Calls,
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) site: &'a Site,
    pub(crate) templates: &'a Templates,
    pub(crate) tree: Tree,
    pub(crate) identity: Identity,
    pub(crate) max_running: Option<u64>,
    /// What its trials run.
    pub(crate) run: &'a plan::Run,
    /// Path of the plan's file, which the journal keeps.
    pub(crate) plan: &'a Path,
    /// The plan's requests for the trials that the sweep had before.
    pub(crate) diff: &'a Diff,
    /// The environment of the submission.
    pub(crate) environment: &'a Vars,
    /// When it began, unix seconds.
    pub(crate) began: f64,
    /// The elements of the call made last, if it was refused because the queue has no place for them.
    no_place: Option<u64>,
    /// What the scheduler has said with jobs that it took.
    heard: HashSet<String>,
    /// The trials that are queued or running, where the scheduler was asked.
    pub(crate) open_trials: Option<HashSet<u64>>,
}

impl<'a> Submission<'a> {
    /// A submission that begins now, of a plan whose sweep exists and is locked; only the site limits how many elements
    /// run at once.
    pub(crate) fn new(
        source: &'a Source,
        site: &'a Site,
        templates: &'a Templates,
        environment: &'a Vars,
        asked: Asked,
        known: Opened<'a>,
    ) -> Self {
        let Opened { identity, journal, diff } = known;
        Self {
            journal,
            writer: None,
            calls: asked.calls,
            scheduler: asked.scheduler,
            site,
            templates,
            tree: source.tree(),
            identity,
            max_running: site.caps.running(None),
            run: &source.plan.run,
            plan: &source.path,
            diff,
            environment,
            began: clock::now(),
            no_place: None,
            heard: HashSet::new(),
            open_trials: None,
        }
    }
}

impl Submission<'_> {
    /// Brings all arrays into the queue that have no job yet, and adds them to `done` with their job ids. Returns how
    /// many trials are left because the queue has no place for their arrays.
    fn arrays(
        &mut self,
        waves: &mut Waves,
        done: &mut Vec<(Array, String)>,
        lock: &Lock,
        tell: &mut impl FnMut(&str),
    ) -> Result<u64> {
        let target = self.scheduler.facts().kind.word();
        let ours: Vec<_> = waves.arrays().filter(|(wave, ..)| wave.target == target).collect();
        let last = waves.feeders().next_back().map(|(_, feeder)| feeder);
        for (at, (wave, array, trials)) in ours.iter().enumerate() {
            lock.touch();
            if self.journal.job(array.array).is_some() {
                continue;
            }
            let is_followed =
                ours.iter().map(|(_, other, _)| *other).chain(last).any(|other| {
                    other.after == Some(array.array) || other.wait.contains(&array.array)
                });
            match self.array(wave, array, trials, is_followed, tell) {
                Ok(job) => done.push(((*array).clone(), job)),
                // What has begun continues when some of it has ended.
                Err(error) if self.no_place.is_some() && !done.is_empty() => {
                    tell(&fault::sentence(&error));
                    let rest = ours[at..]
                        .iter()
                        .filter(|(_, array, _)| self.journal.job(array.array).is_none());
                    return Ok(rest.map(|(.., trials)| trials.len() as u64).sum());
                }
                Err(error) => return Err(self.give_up(error, tell)),
            }
        }
        Ok(0)
    }

    /// Whether an array waits for one of this submission: that one is held, or waits for one that is.
    fn is_behind(&self, array: &Array) -> bool {
        let is_new = |before: &u32| self.journal.submitted(*before) >= Some(self.began);
        array.after.iter().chain(&array.wait).any(is_new)
    }

    /// Brings one array into the queue and returns its job id.
    pub(crate) fn array(
        &mut self,
        wave: &Wave,
        array: &Array,
        trials: &[u64],
        is_followed: bool,
        tell: &mut impl FnMut(&str),
    ) -> Result<String> {
        let token = self.token(array);
        let script = self.render(wave, array, trials, &token)?;
        let after = self.dependency(array)?;
        let held = is_followed && !self.is_behind(array) && self.scheduler.holds();
        let argv = self.scheduler.submit(&script, &after, held);
        self.write(&Entry::Intent {
            array: array.array,
            token: token.clone(),
            time: clock::now(),
            argv: argv.clone(),
            cluster: self.calls.cluster().map(str::to_owned),
            held,
        })?;
        let since = clock::now();
        let output = self.calls.make(&argv)?;
        if output.code == Some(0) {
            // A site speaks to everybody who submits, with each array in the same words.
            for words in calls::said(&argv, &output) {
                if self.heard.insert(words.clone()) {
                    tell(&words);
                }
            }
        }
        self.no_place = None;
        let job = match (output.code, self.scheduler.submitted(&output.stdout)) {
            (Some(0), Some(job)) => job,
            (code, _) => {
                // Refused, or anything else: a call that failed may have submitted all the same.
                let unsure = !self.is_refusal(&output);
                let mut fault = refusal(&argv, &output);
                if code == Some(0) {
                    fault.sentence = format!("`{}` printed no job id", argv[0]);
                }
                let found = if unsure {
                    tell(&format!("array {}: {}; looking for it", array.array, fault.sentence));
                    self.search()
                        .reconcile(&token, array, since, trials, tell)
                        .map_err(|error| error.context(fault.sentence.clone()))?
                } else {
                    None
                };
                let Some(job) = found else {
                    // A call that only seems lost stays open: the next submission looks for it first.
                    if !unsure {
                        let is_full = self.scheduler.is_full(&output.stderr);
                        self.no_place = is_full.then_some(array.count);
                        self.refused(array, &token, &fault.sentence)?;
                    }
                    return Err(self.stopped(fault, array).into());
                };
                job
            }
        };
        self.answer(array, &token, &job, self.scheduler.cluster(&output.stdout))?;
        if self.is_swept_away(&after, &job, trials)? {
            self.no_place = None;
            self.refused(array, &token, "deleted: what it waited for had ended by then")?;
            return self.array(wave, array, trials, is_followed, tell);
        }
        let what = match array.feeder {
            Some(_) => "feeder: job".to_owned(),
            None => {
                let of = if array.pilot.is_some() { "pilot" } else { "trial" };
                format!("array {}: {} as job", array.array, count(array.count * array.links, of))
            }
        };
        tell(&format!("{what} {job}{}", after.words()));
        Ok(job)
    }

    /// Whether a feeder is to look at the sweep when more of it has ended: arrays were submitted or are open, or the feeder
    /// was lost.
    fn needs_a_look(
        &self,
        plan: &Plan,
        options: &ArrayOptions,
        waves: &Waves,
        (open, fed): (&BTreeSet<u32>, Option<bool>),
        is_idle: bool,
    ) -> Result<bool> {
        if !plan.is_looked_after() {
            return Ok(false);
        }
        if !is_idle || !open.is_empty() || self.lacks_feeder(waves) {
            return Ok(true);
        }
        let may_be_lost = options.feeder.is_none() && fed == Some(false);
        if may_be_lost && plan.retry.auto && self.is_unsettled(waves)? {
            return Ok(true);
        }
        Ok(may_be_lost && self.owes_a_call(waves)?)
    }

    /// The name by which the job of an array is found whose answer was lost. A copy of a sweep has the same identity and may
    /// have arrays of the same numbers, so it adds where it is.
    fn token(&self, array: &Array) -> String {
        let Identity { name, token, .. } = &self.identity;
        let dir = disk::absolute(self.tree.dir());
        let is_elsewhere = |first: &&PathBuf| !disk::is_same(first, &dir);
        let place = self.journal.first_dir.as_ref().filter(is_elsewhere).map(|_| {
            let hash = crc32fast::hash(dir.as_os_str().as_encoded_bytes());
            format!(".{hash:08x}")
        });
        format!("{name}.{token}{}.{}", place.unwrap_or_default(), array.array)
    }

    /// Looks for jobs of this submission and of earlier ones.
    fn search(&mut self) -> Search<'_> {
        Search {
            tree: &self.tree,
            journal: &self.journal,
            scheduler: &*self.scheduler,
            calls: &mut self.calls,
            settle_s: self.site.limits.settle_s,
        }
    }

    /// Whether a failed call is known to have submitted nothing. Whatever is not, the next look settles.
    fn is_refusal(&self, output: &Output) -> bool {
        !matches!(output.code, None | Some(0))
            && self.scheduler.submitted(&output.stdout).is_none()
            && self.scheduler.is_refusal(&output.stderr)
    }

    /// The script of an array.
    pub(crate) fn script(&self, array: &Array, token: &str) -> PathBuf {
        self.tree.script(&self.scheduler.script(array.array, token))
    }

    /// What a fault in the arrays of this submission makes of it; `is_first`: no array was submitted before.
    fn stop(self, fault: anyhow::Error, is_first: bool) -> Result<Submitted> {
        match self.no_place.filter(|_| is_first) {
            Some(elements) => Ok(Submitted::NoPlace { fault, elements, calls: self.calls.made }),
            None => Err(fault),
        }
    }

    /// The fault that ends this submission: what is held does not wait for jobs that were refused. A call without an answer
    /// may still bring a job that waits for what is held, so that the next submission looks for it first.
    fn give_up(&mut self, error: anyhow::Error, tell: &mut impl FnMut(&str)) -> anyhow::Error {
        if !self.journal.has_open_call()
            && let Err(refusal) = self.let_go()
        {
            tell(&format!("{refusal:#}"));
        }
        error
    }

    /// Lets go what was held until all that waits for it was submitted.
    fn let_go(&mut self) -> Result<()> {
        let held: Vec<(u32, String)> =
            self.journal.held().map(|(a, id)| (a, id.to_owned())).collect();
        if held.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = held.iter().map(|(_, id)| id.clone()).collect();
        let accepted = order::give(&*self.scheduler, &mut self.calls, Order::Release, &ids)?;
        // A job that was deleted meanwhile is not a fault.
        accepted.whole.map_err(|refusal| {
            refusal.hint("the jobs wait; run the same command again to let them go")
        })?;
        for (array, _) in held {
            self.write(&Entry::Released { array, time: clock::now() })?;
        }
        Ok(())
    }

    fn render(&self, wave: &Wave, array: &Array, trials: &[u64], token: &str) -> Result<String> {
        disk::make_dir(&self.tree.dir().join("jobs"))?;
        let words = context::SiteWords {
            readers: self.identity.readable_by,
            environment: (!self.scheduler.facts().brings_environment)
                .then(|| environment::write(&self.tree, self.environment))
                .transpose()?,
            ..context::SiteWords::from_site(self.site, &*self.scheduler, self.run)
        };
        let mut worker = match (array.pilot, &array.feeder) {
            (Some(pilot), _) => command::argv(self.tree.dir(), &array.resources, pilot, self.site)?,
            (None, Some(_)) => feeder_argv(self.tree.dir(), array)?,
            (None, None) => worker_argv(self.tree.dir(), wave, array)?,
        };
        // What waits in the queue may find another sweep in its folder one day.
        worker.extend(["--token".to_owned(), self.identity.token.clone()]);
        if let Some(time) = self.job_time(array) {
            worker.extend(["--job-time".to_owned(), time]);
        }
        if trials.iter().any(|trial| self.diff.is_changed(*trial) || self.diff.learns(*trial))
            && let Some(requests) = array.requests()
        {
            worker.extend(["--resources".to_owned(), Resources::to_words(&requests)?]);
        }
        let names = job_script(
            &self.identity.name,
            self.tree.dir(),
            self.scheduler.job_name(token),
            array,
            self.max_running,
            &words,
            worker,
        );
        let text = self
            .templates
            .render(self.scheduler.facts().template, &context::from_names(&names)?)?;
        let path = self.script(array, token);
        disk::make_dir(&self.tree.dir().join(format!("logs/jobs/{:04}", array.array)))?;
        disk::write_whole(&path, text.as_bytes())?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The option that tells an element's worker how long its job may run; `None` if the worker knows it, or
    /// must ask.
    fn job_time(&self, array: &Array) -> Option<String> {
        let r = &array.resources;
        let is_asked_for = r.walltime_s.is_some()
            || r.directives
                .iter()
                .chain(&self.site.scheduler.directives)
                .any(|d| d.contains("time"));
        // If an element runs several trials one after the other, only the first begins with the job.
        if is_asked_for || array.links > 1 || !array.is_of_trials() {
            return None;
        }
        let named = r.partition.as_deref().or(self.site.scheduler.partition.as_deref());
        Some(match self.scheduler.job_time(named)? {
            JobTime::Unlimited => "unlimited".to_owned(),
            JobTime::Seconds(seconds) => format!("{seconds}s"),
        })
    }

    pub(super) fn write(&mut self, entry: &Entry) -> Result<()> {
        if self.writer.is_none() {
            let mut writer = Writer::open(&self.tree)?;
            let site = journal::Site {
                scheduler: self.scheduler.facts().kind,
                accounting: self.scheduler.remembers(),
            };
            writer.site(site, self.plan)?;
            self.writer = Some(writer);
        }
        if let Some(writer) = &mut self.writer {
            writer.write(entry)?;
        }
        self.journal.take(entry.clone());
        Ok(())
    }

    pub(crate) fn answer(
        &mut self,
        array: &Array,
        token: &str,
        job: &str,
        cluster: Option<String>,
    ) -> Result<()> {
        self.write(&Entry::Answer {
            array: array.array,
            token: token.to_owned(),
            time: clock::now(),
            job: job.to_owned(),
            cluster,
            how: "submitted".to_owned(),
        })
    }

    pub(crate) fn refused(&mut self, array: &Array, token: &str, reason: &str) -> Result<()> {
        self.write(&Entry::Refused {
            array: array.array,
            token: token.to_owned(),
            time: clock::now(),
            reason: reason.to_owned(),
            full: self.no_place.is_some(),
        })
    }

    fn stopped(&self, fault: Fault, array: &Array) -> Fault {
        let jobs: Vec<&str> = self.journal.jobs().collect();
        let hint = if self.no_place.is_some() {
            "run the same command again when some jobs have ended; with the limit as `limits.max_submit_jobs` in the site \
             profile, `submit` sends as many as have a place"
                .to_owned()
        } else if jobs.is_empty() {
            "nothing of this sweep is in the queue; fix it and run the same command again"
                .to_owned()
        } else {
            format!(
                "jobs {} of this sweep are in the queue; fix it and run the same command again: only the rest is submitted",
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

/// The argument vector of the feeder in the script of its array.
fn feeder_argv(dir: &Path, array: &Array) -> Result<Vec<String>> {
    let mut argv = vec![
        disk::own_executable()?.to_string_lossy().into_owned(),
        "feed".to_owned(),
        "--sweep".to_owned(),
        dir.to_string_lossy().into_owned(),
        "--array".to_owned(),
        array.array.to_string(),
    ];
    argv.extend(access::shared_option());
    Ok(argv)
}
