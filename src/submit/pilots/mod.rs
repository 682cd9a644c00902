//! Pilot jobs: a plan is enqueued for agents, and a scheduler gets one array, each of whose elements is an
//! agent on a node. It is submitted exactly once, as every array. A sweep has no more pilots than it has
//! units to run, and none are submitted while some wait or run.

pub(super) mod command;
pub mod deal;
pub(super) mod hands;

use anyhow::Result;

use super::{Source, check_requests, check_writable, secure, wanted};
use crate::base::fault::Fault;
use crate::base::host::{Vars, clock};
use crate::base::words::{count, duration};
use crate::cluster::graph::Mapping;
use crate::cluster::render::Templates;
use crate::cluster::scheduler::{self, Wanted};
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{Plan, Resources};
use crate::submit::again::Again;
use crate::submit::arrays::batch::{Asked, Opened, Submission};
use crate::submit::arrays::feeder;
use crate::submit::arrays::reconcile::settle_all;
use crate::submit::grow::Diff;
use crate::sweep::status::pilots::{self, Pilots};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::lock::Lock;
use crate::sweep::tree::waves::{self, Array, Pilot, Wave};
use crate::sweep::tree::{FORMAT, Tree, deck};

/// Options from the command line; the plan says the rest.
#[derive(Debug, Default, Clone)]
pub(crate) struct PilotOptions {
    /// The most pilots; `None`: `[pull] workers`.
    pub(crate) workers: Option<u32>,
    /// Trials that each runs at once.
    pub(crate) slots: Option<u32>,
    /// Most trials at once, over all of them.
    pub(crate) max_running: Option<u32>,
    /// Trials that ended without success and run again.
    pub(crate) retry: Again,
}

/// The request to a scheduler for agents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    /// The most pilots that are submitted.
    pub(crate) workers: u32,
    /// Trials that each runs at once; `None`: as many as it finds room for.
    pub(crate) slots: Option<u32>,
    /// What each asks for.
    pub(crate) request: Resources,
}

impl Ask {
    /// Reads it off a plan.
    pub(crate) fn of(plan: &Plan, options: &PilotOptions) -> Self {
        let pull = &plan.schedule.pull;
        let slots = options.slots.or(pull.slots).or(pull.slots_per_gpu);
        let again = options.retry.requests();
        let most = |of: fn(&Resources) -> Option<u64>| {
            let planned = plan.trials.iter().map(|trial| &*trial.resources);
            planned.chain(again.iter().copied()).filter_map(of).max()
        };
        let number = |n: Option<u64>| u32::try_from(n.unwrap_or(0)).unwrap_or(u32::MAX);
        let times = slots.unwrap_or(1);
        let request = Resources {
            nodes: 1,
            ranks: 1,
            ranks_per_node: None,
            cpus_per_rank: number(most(|r| Some(r.cores()))).saturating_mul(times),
            gpus_per_rank: gpus(number(most(|r| Some(r.total_gpus()))), times, plan),
            gpus: None,
            memory_mib: most(|r| r.memory_mib).map(|mib| mib * u64::from(times)),
            walltime_s: pull.walltime_s.or_else(|| most(|r| r.walltime_s)),
            ..Resources::clone(&plan.resources)
        };
        Self { workers: options.workers.unwrap_or(pull.workers), slots, request }
    }

    /// How many pilots so many units keep busy.
    pub(crate) fn count(&self, units: u64) -> u64 {
        u64::from(self.workers).min(units.div_ceil(u64::from(self.slots.unwrap_or(1))))
    }

    /// The array of so many pilots.
    pub(crate) fn array(&self, number: u32, pilots: u64) -> Array {
        Array {
            array: number,
            block: 0,
            link: 0,
            first: 0,
            count: pilots,
            links: 1,
            single: false,
            after: None,
            wait: Vec::new(),
            on_failure: crate::plan::OnFailure::Continue,
            resources: self.request.clone(),
            walltimes_s: Vec::new(),
            pilot: Some(Pilot { slots: self.slots }),
            feeder: None,
        }
    }

    /// So many of them, in words.
    pub(crate) fn words(&self, pilots: u64) -> String {
        let of = self.slots.map(|n| format!(" of {}", count(u64::from(n), "slot")));
        format!("{}{}", count(pilots, "pilot"), of.unwrap_or_default())
    }
}

/// The GPUs of so many slots, each of which needs `each`.
fn gpus(each: u32, slots: u32, plan: &Plan) -> u32 {
    each.saturating_mul(slots).div_ceil(plan.schedule.gpu_share).max(each)
}

/// The result of a submission.
pub(crate) struct PilotReport {
    /// The sweep whose units they take.
    pub(crate) tree: Tree,
    /// Pilots that were submitted, or found to have been, in words, and their job.
    pub(crate) submitted: Option<(String, String)>,
    /// Pilots that were there before.
    pub(crate) there: Vec<Pilots>,
    /// Units that have not ended.
    pub(crate) open: u64,
    /// Why the sweep had been halted, if it was; it continues now.
    pub(crate) was_halted: Option<String>,
    /// Who holds the sweep: no pilot was submitted.
    pub(crate) held: Option<String>,
    /// Calls of the scheduler's commands.
    pub(crate) calls: u32,
}

/// Refuses pilots that could not do their work, or break a cap of the site.
///
/// # Errors
/// When they do.
pub(super) fn check(source: &Source, site: &Site, ask: &Ask, kind: SchedulerKind) -> Result<()> {
    check_time(source, ask)?;
    if let Some(number) = deal::naming(&source.plan) {
        let sentence = format!(
            "trial {number} names its devices in `gpu_ids_abs`, and the scheduler chooses those of a job"
        );
        let count = source.author().set("schedule", "gpu_ids", "\"count\"");
        let hint = format!("write {count}: then only their number counts");
        return Err(Fault::request(sentence).hint(hint).into());
    }
    check_requests(source, &[&ask.request], site, kind)?;
    Ok(scheduler::check_path(kind, source.tree().dir())?)
}

/// No pilot may be too short for a trial: one that is never begun, or is cut off by every pilot, would wait for
/// ever.
fn check_time(source: &Source, ask: &Ask) -> Result<(), Fault> {
    let (plan, author) = (&source.plan, source.author());
    let Some(pilot) = ask.request.walltime_s else { return Ok(()) };
    let has = format!("a pilot has {}", duration(pilot as f64));
    let too_long = |t: &crate::plan::Trial| t.resources.walltime_s.is_some_and(|s| s > pilot);
    if let Some(number) = plan.trials.iter().position(too_long) {
        let asks = duration(plan.trials[number].resources.walltime_s.unwrap_or(0) as f64);
        return Err(Fault::request(format!("trial {number} asks for {asks}, and {has}")).hint(
            format!(
                "raise {}, or leave it out: it is that of the longest trial then",
                author.key("pull", "walltime")
            ),
        ));
    }
    if let Some(needs) = plan.schedule.pull.time_request_s.filter(|needs| *needs >= pilot) {
        let needs = duration(needs as f64);
        return Err(Fault::request(format!("`time_request` asks for {needs}, and {has}")).hint(
            format!(
                "no trial would ever begin: lower {}, or raise {}",
                author.key("pull", "time_request"),
                author.key("pull", "walltime")
            ),
        ));
    }
    Ok(())
}

/// Enqueues a plan and queues pilots if there are none. `tell` is called with the progress.
///
/// # Errors
/// As [`deal::deal`], and when the pilots exceed a limit of the site or cluster, the scheduler refuses or
/// cannot be reached. Running it again completes what is missing.
pub(crate) fn submit(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &PilotOptions,
    kind: SchedulerKind,
    environment: &Vars,
    mut tell: impl FnMut(&str),
) -> Result<PilotReport> {
    let plan = &source.plan;
    let ask = Ask::of(plan, options);
    check(source, site, &ask, kind)?;
    check_writable(&source.tree(), plan, site)?;
    let wanted =
        Wanted { requests: vec![&ask.request], elements: u64::from(ask.workers), ..wanted(source) };
    let mut asked = Asked::new(&source.tree(), kind, &wanted, site, environment)?;
    let was_halted = Ledger::read(&source.tree())?.halted;
    let dealing = deal::DealOptions {
        retry: options.retry.clone(),
        max_running: options.max_running,
        ..deal::DealOptions::default()
    };
    let dealt = deal::deal(source, site, templates, &dealing, environment, || false)?;
    let tree = dealt.tree;
    dealt.left_alone.iter().chain(&dealt.notes).for_each(|words| tell(words));
    if dealt.units > 0 {
        let (units, trials) = (count(dealt.units, "unit"), count(dealt.trials, "trial"));
        tell(&format!("{}: {trials} in {units} for agents", plan.name));
    }

    let access = secure(&tree, plan, site)?;
    let _lock = Lock::take(&tree)?;
    let identity = tree.create(&plan.name, access)?;
    let found = settle_all(&tree, site, &mut asked.calls, true, &mut tell)?;
    let found = found.into_iter().rfind(|(array, _)| array.pilot.is_some());
    let diff = Diff::default();
    let known = Opened { identity, journal: Journal::read(&tree)?, diff: &diff };
    let mut run = Submission::new(source, site, templates, environment, asked, known);
    let mut report = PilotReport {
        tree: run.tree.clone(),
        submitted: None,
        there: Vec::new(),
        open: 0,
        was_halted: None,
        held: None,
        calls: 0,
    };
    let decks = deck::read(&run.tree)?;
    let ledger = Ledger::read(&run.tree)?;
    report.open = left(&ledger, deck::total(&decks));
    report.held = ledger.held.filter(|_| report.open > 0);
    if report.open > 0 && report.held.is_none() {
        deal::go_on(&run.tree)?;
        report.was_halted = was_halted;
        run.pilots(source, &ask, found, &mut report, &mut tell)?;
    }
    report.calls = run.calls.made;
    Ok(report)
}

impl Submission<'_> {
    /// Brings pilots into the queue where there are none that will work. `found`: those of an earlier call without an answer.
    fn pilots(
        &mut self,
        source: &Source,
        ask: &Ask,
        found: Option<(Array, String)>,
        report: &mut PilotReport,
        tell: &mut impl FnMut(&str),
    ) -> Result<()> {
        // Those that have left meanwhile will take nothing.
        let ledger = Ledger::read(&self.tree)?;
        let alive = pilots::ask(&self.tree, &self.journal, &ledger, &mut self.calls)?;
        report.there = alive.ok_or_else(|| {
            Fault::scheduler("cannot tell whether pilots of this sweep wait or run")
                .hint("no pilot was submitted; run the same command again")
        })?;
        report.there.retain(Pilots::will_work);
        if let Some((array, job)) = found
            && report.there.iter().any(|there| there.array == array.array)
        {
            report.there.retain(|there| there.array != array.array);
            report.submitted = Some((ask.words(array.count), job));
        } else if report.there.is_empty() {
            self.scheduler.notes().iter().for_each(|note| tell(note));
            let n = ask.count(report.open);
            let most = self.scheduler.limits().elements();
            if n > most {
                let (most, n) = (count(most, "element"), count(n, "pilot"));
                return Err(Fault::request(format!("an array has {most} at most here, not {n}"))
                    .hint(format!(
                        "lower {}, or raise {}",
                        source.author().key("pull", "workers"),
                        source.author().key("pull", "slots")
                    ))
                    .into());
            }
            let charged = feeder::charged(source, self.site);
            if let Some(room) = self.scheduler.room(&mut self.calls, n, charged)? {
                room.check(n)?;
            }
            let (wave, array) = add(&self.tree, self.scheduler.facts().kind, ask, n)?;
            let job = self.array(&wave, &array, &[], false, tell)?;
            report.submitted = Some((ask.words(n), job));
        }
        Ok(())
    }
}

/// Units that have not ended; of those that agents hold, some may have.
pub(super) fn left(ledger: &Ledger, total: u64) -> u64 {
    if ledger.is_over(total) {
        return 0;
    }
    let busy = ledger.living().filter(|(_, agent)| !agent.idle);
    let held: u64 = busy.flat_map(|(_, agent)| &agent.held).map(|held| held.piece.count).sum();
    (ledger.open(total) + held).max(1)
}

/// Writes a wave of pilots down.
fn add(tree: &Tree, kind: SchedulerKind, ask: &Ask, n: u64) -> Result<(Wave, Array)> {
    let before = waves::read(tree)?;
    let last = before.iter().flat_map(|wave| &wave.arrays).map(|array| array.array).max();
    let array = ask.array(last.unwrap_or(0) + 1, n);
    let wave = Wave {
        format: FORMAT,
        wave: before.last().map_or(0, |wave| wave.wave) + 1,
        target: kind.word().to_owned(),
        created: clock::now(),
        chains: Mapping::Elementwise,
        arrays: vec![array.clone()],
        learnt: Vec::new(),
        ended: Vec::new(),
    };
    waves::write(tree, &wave, &[])?;
    Ok((wave, array))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    fn ask(rest: &str, options: &PilotOptions) -> Ask {
        let text = format!(
            "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"true\"]\n[grid]\na = [1, 2]\n{rest}"
        );
        Ask::of(&plan::parse(&text, "plan.toml").unwrap(), options)
    }

    #[test]
    fn a_pilot_asks_for_its_slots_times_what_a_trial_asks_for() {
        let rest = "[resources]\ncpus_per_rank = 2\ngpus_per_rank = 1\nmemory = \"1G\"\nwalltime = \"1h\"\n\
                    partition = \"long\"\ndirectives = [\"--exclusive\"]\n[pull]\nslots = 4\nworkers = 3\n";
        let expected = Resources {
            cpus_per_rank: 8,
            gpus_per_rank: 4,
            memory_mib: Some(4096),
            walltime_s: Some(3600),
            partition: Some("long".into()),
            directives: vec!["--exclusive".into()],
            ..Resources::default()
        };
        let three = ask(rest, &PilotOptions::default());
        assert_eq!(three, Ask { workers: 3, slots: Some(4), request: expected.clone() });
        let by_hand = PilotOptions { workers: Some(5), slots: Some(1), ..PilotOptions::default() };
        let own = ask(&format!("{rest}walltime = \"8h\"\n"), &by_hand);
        let walltime_s = Some(8 * 3600);
        let (cpus_per_rank, gpus_per_rank, memory_mib) = (2, 1, Some(1024));
        let request =
            Resources { cpus_per_rank, gpus_per_rank, memory_mib, walltime_s, ..expected };
        assert_eq!(own, Ask { workers: 5, slots: Some(1), request });
    }

    #[test]
    fn slots_that_share_gpus_ask_for_fewer() {
        let gpus = |rest: &str| ask(rest, &PilotOptions::default()).request.gpus_per_rank;
        let rest = |each: u32, slots: u32, share: u32| {
            format!(
                "[resources]\ngpus_per_rank = {each}\n[schedule]\ngpu_share = {share}\n[pull]\nslots = {slots}\n"
            )
        };
        assert_eq!(gpus(&rest(1, 8, 4)), 2);
        assert_eq!(gpus(&rest(1, 9, 4)), 3);
        assert_eq!(gpus(&rest(2, 1, 4)), 2);
        assert_eq!(gpus(&rest(0, 8, 4)), 0);
        let four = ask(
            "[resources]\ngpus_per_rank = 1\n[pull]\nslots_per_gpu = 4\n",
            &PilotOptions::default(),
        );
        assert_eq!((four.slots, four.request.gpus_per_rank), (Some(4), 1));
        assert_eq!(four.request.cpus_per_rank, 4);
    }

    #[test]
    fn there_are_no_more_pilots_than_units_keep_busy() {
        let four = ask("[pull]\nslots = 4\nworkers = 3\n", &PilotOptions::default());
        assert_eq!([1, 4, 5, 9, 1000].map(|units| four.count(units)), [1, 1, 2, 3, 3]);
        assert_eq!(
            (four.words(1), four.words(3)),
            ("1 pilot of 4 slots".into(), "3 pilots of 4 slots".into())
        );
        let any = ask("", &PilotOptions { workers: Some(8), ..PilotOptions::default() });
        assert_eq!((any.count(5), any.words(5)), (5, "5 pilots".to_owned()));
    }
}
