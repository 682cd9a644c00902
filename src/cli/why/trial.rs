//! One screen about a trial.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::enough;
use super::places::{self, in_arrays};
use crate::base::cause::Cause;
use crate::base::host::{Vars, clock, disk};
use crate::base::units;
use crate::base::words::{count, duration};
use crate::cli::logs::output::{self, Output};
use crate::cluster::scheduler::Scheduler;
use crate::plan::Resources;
use crate::plan::site::Site;
use crate::submit::Source;
use crate::submit::arrays::wave::Waves;
use crate::sweep::standing::State;
use crate::sweep::status::progress::Progress;
use crate::sweep::status::{self, Status};
use crate::sweep::tree::code::{self, Code};
use crate::sweep::tree::damage::{self, Damaged};
use crate::sweep::tree::deck;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::{Attempt, Record};
use crate::sweep::tree::requests::{Asker, Newest, Requests};
use crate::sweep::tree::table::{self, Row};

/// Lines of the log that are shown.
const LINES: usize = 10;

/// What all trials of a sweep have in common here.
pub(super) struct Facts<'a> {
    status: &'a Status,
    journal: Journal,
    waves: Waves,
    newest: Newest,
    scheduler: Box<dyn Scheduler>,
    whom: Option<(&'a Site, &'a Vars)>,
    /// The plan's file, and the places of trials in it.
    plan: Option<(String, HashMap<u64, usize>)>,
}

/// An attempt, as the answer in JSON has it.
#[derive(Debug, Serialize)]
struct Tried {
    attempt: u32,
    state: String,
    cause: Option<Cause>,
    reason: String,
    start: f64,
    duration_s: Option<f64>,
    host: String,
    job: Option<String>,
    agent: Option<String>,
    /// The snapshot of the code that it ran.
    snapshot: Option<String>,
    exit_code: Option<i32>,
    peak_memory: Option<u64>,
    cpu_s: Option<f64>,
}

/// Why a trial waits.
#[derive(Debug, Default, Serialize)]
struct Waiting {
    reason: String,
    words: Option<&'static str>,
    remedy: Option<String>,
    job: Option<String>,
    expected_start: Option<String>,
}

/// All there is to say of a trial.
#[derive(Debug, Serialize)]
pub(super) struct Sight {
    sweep: String,
    trial: u64,
    state: String,
    cause: Option<Cause>,
    reason: String,
    params: Value,
    /// The code that it runs, unless that is in the plan's own folder.
    code: Option<Code>,
    attempts: Vec<Tried>,
    asked: Resources,
    /// From what that was learnt.
    learnt: Option<String>,
    progress: Option<String>,
    /// The line of `[resources]` that would have been enough, and why.
    enough: Option<(String, String)>,
    waiting: Option<Waiting>,
    /// What becomes of its job, where that names another folder.
    other_folder: Option<String>,
    /// Damaged files that may have held more about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<Damaged>,
    /// The same in words.
    #[serde(skip)]
    left_out: Vec<String>,
    /// Why it did not run again by itself.
    not_retried: Option<String>,
    /// The job that decides by `[retry]` whether it runs again.
    awaits: Option<String>,
    /// The end of its log.
    log: Vec<String>,
    /// The command that prints all of it.
    logs: Option<String>,
    /// The command that runs it here, in a folder that is thrown away.
    by_hand: Option<String>,
}

impl<'a> Facts<'a> {
    /// Reads them, for these trials.
    ///
    /// # Errors
    /// When a file of the sweep cannot be read.
    pub(super) fn read(
        status: &'a Status,
        trials: &BTreeSet<u64>,
        whom: Option<(&'a Site, &'a Vars)>,
    ) -> Result<Self> {
        let journal = Journal::read(&status.tree)?;
        let waves = Waves::read(&status.tree)?;
        // The status reports a damaged deck.
        let decks = deck::with_trials(&status.tree).unwrap_or_default();
        let requests = Requests::new(&status.tree, &journal, waves.arrays())?;
        let newest = requests.newest(&decks, trials);
        let scheduler = journal.scheduler();
        let rows = trials.iter().filter_map(|trial| table::row_of(&status.rows, *trial));
        let rows: Vec<&Row> = rows.collect();
        let plan = status::plan(&status.tree, &journal).and_then(|file| {
            let places = match places::is_plan_of(status, file) {
                true => rows.iter().map(|row| (row.id, row.id as usize)).collect(),
                // A plan that is gone or has faults runs nothing.
                false => places::in_plan(&Source::read(file).ok()?, &rows),
            };
            Some((disk::named(file), places))
        });
        Ok(Self { status, journal, waves, newest, scheduler, whom, plan })
    }

    /// The damaged files of the sweep, without the records of other trials.
    fn damaged(&self, trial: u64) -> Vec<Damaged> {
        let tree = &self.status.tree;
        let record = tree.record(trial, 1);
        let own = record.strip_prefix(tree.dir()).ok().and_then(|path| path.to_str());
        let own = own.and_then(|path| path.strip_suffix("1.jsonl")).unwrap_or_default();
        let is_meant = |damaged: &&Damaged| {
            damaged.file.starts_with(own) || !damaged.file.starts_with("records/")
        };
        self.status.damage.iter().filter(is_meant).cloned().collect()
    }

    fn left_out(&self, damaged: &[Damaged]) -> Vec<String> {
        let (there, gone) = damage::without_missing(damaged, self.status.tree.dir());
        there.into_iter().map(ToString::to_string).chain(gone).collect()
    }

    /// What there is to say of one; `None` if the sweep does not have it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn of(&self, trial: u64) -> Result<Option<Sight>> {
        let status = self.status;
        let Some(place) = table::place_of(&status.rows, trial) else { return Ok(None) };
        let (row, standing) = (&status.rows[place], &status.standings[place]);
        let none = Record::default();
        let record = status.records.get(&trial).unwrap_or(&none);
        let decisive = record.decisive();
        let is_waiting = matches!(standing.state, State::Queued | State::Other(_));
        let Some(request) = self.newest.of(Asker::from(row), record) else { return Ok(None) };
        let asked = request.resources.clone();
        let progress = match decisive {
            Some(attempt) => Progress::of(&status.tree, attempt, &row.params)?,
            None => None,
        };
        let end = decisive.and_then(|attempt| attempt.end.as_ref());
        let enough = standing.cause.and_then(|cause| {
            let seconds = decisive.and_then(Attempt::duration_s);
            let peak = end.map_or(0, |end| end.peak_memory);
            enough::request(cause, &asked, peak, seconds, progress.as_ref())
        });
        let bytes = match Output::of(&status.tree, trial, record)?.tail(LINES)? {
            empty if empty.is_empty() => {
                let jobs = output::of_jobs(&status.tree, &self.waves, trial)?;
                jobs.last()
                    .map(|path| output::tail_of(path, LINES))
                    .transpose()?
                    .unwrap_or_default()
            }
            own => own,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let log: Vec<String> = text.lines().map(str::to_owned).collect();
        let sweep = status.tree.named();
        let at = |(plan, places): &(String, HashMap<u64, usize>)| {
            let place = places.get(&trial)?;
            Some(format!("hpcsweep submit {plan} --smoke {place}"))
        };
        let damaged = self.damaged(trial);
        let mut attempts = tried(record);
        if let Some(last) = attempts.last_mut().filter(|_| standing.state.is_bad()) {
            // The scheduler and the job's log may know more than its end.
            last.cause = standing.cause.or(last.cause);
        }
        Ok(Some(Sight {
            sweep: status.identity.name.clone(),
            trial,
            state: standing.state.word(),
            cause: standing.cause,
            reason: standing.reason.clone(),
            params: serde_json::to_value(&row.params)?,
            code: status.code.code(trial),
            attempts,
            asked,
            learnt: request.learnt.map(str::to_owned),
            progress: progress.as_ref().map(Progress::words),
            enough,
            waiting: match standing.state {
                State::Pending => self.unsubmitted(),
                _ => is_waiting.then(|| self.waiting(trial, &standing.reason)),
            },
            left_out: self.left_out(&damaged),
            damaged,
            other_folder: status.other_folders.iter().find_map(|folder| folder.of_trial(trial)),
            not_retried: self.not_retried(trial, record).filter(|_| standing.state.is_bad()),
            awaits: status.feeder.clone().filter(|_| status.awaited.contains(&trial)),
            logs: (!log.is_empty()).then(|| format!("hpcsweep logs {trial} {sweep}")),
            log,
            by_hand: self.plan.as_ref().and_then(at),
        }))
    }

    /// Why it did not run again by itself: as an agent has decided it, if one had the trial last.
    fn not_retried(&self, trial: u64, record: &Record) -> Option<String> {
        let is_of_agents = record.attempts.last().is_some_and(|last| last.bundle.is_some());
        match is_of_agents {
            true => record.left().map(str::to_owned),
            false => self.journal.left(trial, Some(record)).map(str::to_owned),
        }
    }

    /// Why it is not submitted yet, if the sweep is left to jobs.
    fn unsubmitted(&self) -> Option<Waiting> {
        let status = self.status;
        let reason = match &status.feeder {
            _ if status.unsubmitted == 0 => return None,
            Some(job) => {
                format!("not submitted yet: job {job} submits more when {}", status.when_more())
            }
            None => "not submitted yet".to_owned(),
        };
        let again = status.again.as_ref().filter(|_| status.feeder.is_none() && status.is_sure());
        let remedy = again.map(|command| format!("to submit more: {command}"));
        Some(Waiting { reason, remedy, ..Waiting::default() })
    }

    /// Why it waits, and until when.
    fn waiting(&self, trial: u64, reason: &str) -> Waiting {
        let place = in_arrays(&self.waves, trial);
        let job = place.and_then(|(array, index)| {
            Some(self.scheduler.element(self.journal.job(array)?, index))
        });
        let wait = self.scheduler.explain(reason);
        let expected_start = job.as_ref().zip(self.whom).and_then(|(job, (site, vars))| {
            let mut calls = self.journal.calls(vars, site);
            self.scheduler.expected_start(&mut calls, job)
        });
        Waiting {
            reason: reason.to_owned(),
            words: wait.map(|wait| wait.words),
            remedy: wait.map(|wait| wait.remedy.to_owned()),
            job,
            expected_start,
        }
    }
}

/// The attempts of a trial, in order.
fn tried(record: &Record) -> Vec<Tried> {
    let all = &record.attempts;
    let one = |(i, attempt): (usize, &Attempt)| {
        let end = attempt.end.as_ref();
        Tried {
            attempt: attempt.start.attempt,
            state: record.state_of(i).unwrap_or_else(|| "open".to_owned()),
            cause: record.cause_of(i),
            reason: attempt.why(),
            start: attempt.start.time,
            duration_s: attempt.duration_s(),
            host: attempt.start.host.clone(),
            job: attempt.start.job.clone(),
            agent: attempt.bundle.as_ref().map(|place| place.agent.clone()),
            snapshot: attempt.start.snapshot.clone(),
            exit_code: end.and_then(|end| end.exit_code),
            peak_memory: end.map(|end| end.peak_memory).filter(|bytes| *bytes > 0),
            cpu_s: end
                .and_then(|end| end.usage.as_ref())
                .map(|usage| usage.cpu_user_s + usage.cpu_system_s),
        }
    };
    all.iter().enumerate().map(one).collect()
}

impl Sight {
    /// Whether damaged files may have held more about it.
    pub(super) fn is_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// The answer as lines of text; what is not known has no line.
    pub(super) fn page(&self) -> String {
        let mut text = format!("trial {} of {}: {}", self.trial, self.sweep, self.state);
        if let Some(cause) = self.cause {
            text.push_str(&format!(" ({})", cause.word()));
        }
        text.push('\n');
        let mut line = |name: &str, words: &str| text.push_str(&format!("  {name}: {words}\n"));
        let params: Vec<String> = self
            .params
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !params.is_empty() {
            line("parameters", &params.join(" "));
        }
        match &self.waiting {
            Some(waiting) => waiting.lines(&mut line),
            None if !self.reason.is_empty() => line("why", &self.reason),
            None => {}
        }
        if let Some(code) = &self.code {
            line("code", &code.words());
        }
        let now = self.code.as_ref().map(|code| &code.snapshot);
        for attempt in &self.attempts {
            let mut words = attempt.words(&self.reason);
            // It ran other code.
            if attempt.snapshot.as_ref() != now {
                match &attempt.snapshot {
                    Some(name) => words.push_str(&format!(", snapshot {}", code::short(name))),
                    None => words.push_str(", without a snapshot"),
                }
            }
            line(&format!("attempt {}", attempt.attempt), &words);
        }
        line("asked", &asked(&self.asked));
        self.learnt.iter().for_each(|learnt| line("learnt", learnt));
        if let Some(used) = self.attempts.last().and_then(Tried::used) {
            line("used", &used);
        }
        if let Some(progress) = &self.progress {
            line("progress", progress);
        }
        if let Some((request, why)) = &self.enough {
            line("enough", &format!("`{request}` ({why})"));
        }
        self.left_out.iter().for_each(|words| line("left out", words));
        if let Some(words) = &self.other_folder {
            line("folder", words);
        }
        if let Some(why) = &self.not_retried {
            line("not retried", why);
        }
        if let Some(job) = &self.awaits {
            let when = "when there is a place in the queue";
            line("`[retry]`", &format!("job {job} repeats it, or records why not, {when}"));
        }
        if let Some(logs) = &self.logs {
            line("its log ends", &format!("({logs} prints all)"));
            self.log.iter().for_each(|own| text.push_str(&format!("    {own}\n")));
        }
        if let Some(command) = &self.by_hand {
            text.push_str(&format!("  to run it here by hand: {command}\n"));
        }
        text
    }
}

impl Waiting {
    fn lines(&self, line: &mut dyn FnMut(&str, &str)) {
        let job = self.job.as_ref().map(|job| format!(" (job {job})")).unwrap_or_default();
        match self.words {
            Some(words) => line("waits", &format!("{}: {words}{job}", self.reason)),
            None if self.reason.is_empty() => line("waits", &format!("no reason is known{job}")),
            None => line("waits", &format!("{}{job}", self.reason)),
        }
        self.remedy.iter().for_each(|remedy| line("what can be done", remedy));
        self.expected_start.iter().for_each(|start| line("expected start", start));
    }
}

impl Tried {
    /// In words; the reason only where it is not `said` already.
    fn words(&self, said: &str) -> String {
        let mut parts = vec![clock::local(self.start)];
        if !self.host.is_empty() {
            parts.push(format!("on {}", self.host));
        }
        parts.extend(self.job.as_ref().map(|job| format!("job {job}")));
        parts.extend(self.agent.as_ref().map(|agent| format!("agent {agent}")));
        parts.extend(self.duration_s.map(duration));
        let cause = self.cause.map(|cause| format!(" ({})", cause.word())).unwrap_or_default();
        let is_said = self.reason.is_empty() || self.reason == said;
        let reason = if is_said { String::new() } else { format!(": {}", self.reason) };
        parts.push(format!("{}{cause}{reason}", self.state));
        parts.join(", ")
    }

    fn used(&self) -> Option<String> {
        let memory = self
            .peak_memory
            .map(|bytes| format!("{} memory", units::memory_text(bytes.div_ceil(1 << 20))));
        let cpu = self.cpu_s.map(|seconds| format!("{} of processor time", duration(seconds)));
        let time = self.duration_s.map(duration);
        let all: Vec<String> = memory.into_iter().chain(time).chain(cpu).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// A request in words.
fn asked(asked: &Resources) -> String {
    let mut parts = Vec::new();
    if asked.nodes > 1 {
        parts.push(count(u64::from(asked.nodes), "node"));
    }
    if asked.ranks > 1 {
        parts.push(count(u64::from(asked.ranks), "rank"));
    }
    parts.push(count(u64::from(asked.cpus_per_rank) * u64::from(asked.ranks), "core"));
    let gpus = asked.gpus.unwrap_or(asked.gpus_per_rank * asked.ranks);
    if gpus > 0 {
        parts.push(count(u64::from(gpus), "GPU"));
    }
    parts.extend(asked.memory_mib.map(|mib| format!("{} memory", units::memory_text(mib))));
    parts.extend(asked.walltime_s.map(|s| format!("{} walltime", units::walltime_text(s))));
    parts.extend(asked.partition.as_ref().map(|name| format!("partition {name}")));
    parts.extend(asked.account.as_ref().map(|name| format!("account {name}")));
    parts.extend(asked.qos.as_ref().map(|name| format!("QOS {name}")));
    parts.join(", ")
}
