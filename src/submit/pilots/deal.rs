//! Creates the queue for agents: the chains of a plan become units of a deck, in the order in which they are
//! to begin. Any number of agents may start at once with a plan without a queue; one of them creates it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::base::fault::{Fault, Faults};
use crate::base::host::Vars;
use crate::base::host::gpus::DeviceId;
use crate::base::idset::IdSet;
use crate::cluster::graph::shapes::Shapes;
use crate::cluster::render::Templates;
use crate::plan::site::{SchedulerKind, Site};
use crate::plan::{GpuIds, Learn, Mode, OnFailure, Plan, Resources, Retry, Trial};
use crate::submit::again::Again;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::{self, Diff, Todo};
use crate::submit::local::gpus::Devices;
use crate::submit::local::repeats::Repeats;
use crate::submit::pilots::hands;
use crate::submit::todo::{self, Holdings, Planned};
use crate::submit::{
    Source, check_caps, check_growth, check_writable, local, retry, secure, snapshot,
};
use crate::sweep::status::folders;
use crate::sweep::tree::deck::{self, Deck, Terms};
use crate::sweep::tree::journal::{self, Journal};
use crate::sweep::tree::ledger::{self, Entry, Ledger};
use crate::sweep::tree::lock::{self, Lock};
use crate::sweep::tree::records::{self, Outcome, Record};
use crate::sweep::tree::{Tree, table, terms};

/// Options from the command line.
#[derive(Debug, Default, Clone)]
pub struct DealOptions {
    /// Trials that ended without success and are enqueued again.
    pub retry: Again,
    /// Most trials at once, over all agents.
    pub max_running: Option<u32>,
    /// Whether the agents serve a program that has the function which the plan names.
    pub serves: bool,
}

/// The result of enqueuing.
#[derive(Debug)]
pub struct Dealt {
    /// The sweep that has the queue.
    pub tree: Tree,
    /// Units that were not there before.
    pub(crate) units: u64,
    /// How many trials these units have.
    pub(crate) trials: u64,
    /// What to say of trials of the sweep that the plan no longer has.
    pub(crate) left_alone: Option<String>,
    /// What to say of the code of its trials.
    pub(crate) notes: Vec<String>,
}

impl Dealt {
    /// All of the plan is in the queue already.
    fn nothing(tree: &Tree) -> Self {
        Self { tree: tree.anew(), units: 0, trials: 0, left_alone: None, notes: Vec::new() }
    }
}

/// How long agents wait for the one that creates the queue.
const PATIENCE: Duration = Duration::from_secs(600);

/// Enqueues the part of a plan that is in no unit yet. `told` is called while another process does so, and
/// returns whether to give up.
///
/// # Errors
/// When the plan cannot run by agents, others have the sweep, or the disk refuses.
pub fn deal(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &DealOptions,
    environment: &Vars,
    mut told: impl FnMut() -> bool,
) -> Result<Dealt> {
    check(source, site, options.serves)?;
    let tree = source.tree();
    let hash = hash(source, options);
    let access = secure(&tree, &source.plan, site)?;
    let since = Instant::now();
    let lock = loop {
        if !options.retry.is_wanted() && is_dealt(&tree, source, &hash)? && tree.is_for(access)? {
            return Ok(Dealt::nothing(&tree));
        }
        match Lock::take(&tree) {
            Ok(lock) => break lock,
            Err(error) if told() => return Err(error),
            Err(_) if lock::is_held(&tree) && since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(_) if since.elapsed() < Duration::from_secs(5) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error),
        }
    };
    let identity = tree.create(&source.plan.name, access)?;
    let decks = deck::read(&tree)?;
    let is_known = !options.retry.is_wanted() && is_same(&tree, source, &hash)?;
    if !options.retry.is_wanted() && is_dealt(&tree, source, &hash)? {
        return Ok(Dealt::nothing(&tree));
    }
    let journal = Journal::read(&tree)?;
    retry::check_free(&tree, &identity, &journal, site, environment, SchedulerKind::Local)?;
    ledger::prepare(&tree)?;
    let moved = grow::follow(&tree, source)?;
    let mut diff = grow::diff(&tree, source)?;
    options.retry.change(&mut diff);
    check_growth(&source.plan, site, &diff)?;
    let mut ledger = Ledger::read(&tree)?;
    if hands::is_rest_cancelled(&ledger, &options.retry) {
        hands::take_over(&tree)?;
        ledger.follow(&tree)?;
    }
    hands::withdraw(&tree, &decks, &mut ledger, &diff)?;
    let known = records::all(&tree)?;
    let in_hand = hands::in_hand(&tree, &decks, &ledger, &known, &diff)?;
    // Entries of the ledger about trials whose ends the records already have belong to earlier decks.
    ledger.follow(&tree)?;
    let taken = Holdings {
        in_hand,
        cancelled: Waves::read(&tree)?.cancelled(&journal, &known),
        ..Holdings::default()
    };
    let (repeats, alone) =
        repeats((&tree, &lock, &journal), source, options, &known, &taken, &diff)?;
    let retry = options.retry.clone().and(&repeats).keeping(kept(&decks, &taken.in_hand));
    retry.change(&mut diff);
    let added = grow::added(&tree, source, &diff)?.0;
    let planned = Planned::new(&tree, source, &diff, &added)?;
    let decided = todo::decide(planned, &retry, &known, &taken)?;
    let left = decided.note(&retry, source.author());
    let todo = decided.todo;
    let again = todo.iter().map(|t| t.id).filter(|trial| *trial < diff.known);
    let mut notes = snapshot::keep(&tree, source, &diff, again, (&retry, &known), environment)?;
    notes.extend(moved.into_iter().chain(left));
    notes.extend(folders::notes(&tree, &identity, site, environment)?);
    if source.plan.trials.iter().filter_map(|t| t.learns.as_ref()).any(|l| l.walltime.is_some()) {
        notes.push("walltime is not learnt in pull mode: all trials have `first`".to_owned());
    }
    if calls_and_learns(&source.plan) {
        notes.push(
            "memory is not learnt for calls of a function: all trials have `first`".to_owned(),
        );
    }
    grow::grow(&tree, source, &diff, templates, site)?;
    if (is_known || options.retry.is_alone()) && todo.is_empty() {
        return Ok(Dealt { tree: tree.anew(), units: 0, trials: 0, left_alone: None, notes });
    }
    let units = units(&todo, &known);
    let plan = &source.plan;
    let again = retry.requests();
    let asked = || plan.trials.iter().map(|t| &*t.resources).chain(again.iter().copied());
    let largest = |of: fn(&Resources) -> u64| asked().map(of).max().unwrap_or(0);
    let devices = named_devices(plan);
    let terms = Terms {
        seq: ledger.seq,
        plan: &hash,
        max_running: options.max_running.or(plan.schedule.max_running),
        cores: largest(Resources::cores) as u32,
        gpus: largest(Resources::total_gpus) as u32,
        gpu_share: plan.schedule.gpu_share,
        devices: devices.as_deref(),
        requests: &requests(&diff),
        own_requests: &retry.own_requests(),
        alone: &alone,
        memory: &learnt(plan, &diff, &retry),
        memory_mib: asked().filter_map(|request| request.memory_mib).max(),
        program: &plan.run.program,
        by_plan: plan.schedule.mode == Mode::Pull,
        pull: &plan.schedule.pull,
        retry: rules(plan),
    };
    let deck = deck::write(&tree, &decks, &units, terms)?;
    journal::Writer::open(&tree)?.site(journal::Site::LOCAL, &source.path)?;
    go_on(&tree)?;
    drop(lock);
    let (units, trials) = (deck.count, deck.trials);
    Ok(Dealt { tree: tree.anew(), units, trials, left_alone: diff.left_alone(), notes })
}

/// `[retry]`, where agents decide by it.
fn rules(plan: &Plan) -> Option<&Retry> {
    Some(&plan.retry).filter(|retry| retry.auto && plan.run.function.is_none())
}

/// The trials that `[retry]` repeats of those that others have left without success and undecided: jobs whose feeder was lost,
/// or an executor that was killed. The journal keeps the decisions. Also, as a set, those beside which nothing else runs.
fn repeats(
    (tree, lock, journal): (&Tree, &Lock, &Journal),
    source: &Source,
    options: &DealOptions,
    known: &HashMap<u64, Record>,
    taken: &Holdings,
    diff: &Diff,
) -> Result<(Again, String)> {
    let Some(rules) = rules(&source.plan) else { return Ok(Default::default()) };
    let is_due = |trial: u64| {
        let is_taken = taken.in_hand.contains(&trial) || taken.cancelled.contains(&trial);
        let is_free = !is_taken && diff.has(trial);
        is_free && !options.retry.has(trial) && options.retry.admits(trial)
    };
    let is_left = |(trial, record): &(&u64, &Record)| {
        record.has_failed() && is_due(**trial) && !journal.has_settled(**trial, Some(record))
    };
    if !known.iter().any(|own| is_left(&own)) {
        return Ok(Default::default());
    }
    let (rows, heads) = (table::rows(tree)?, table::heads(tree)?);
    let mut shared = HashMap::new();
    let mut repeats = Repeats::of(tree, Some(rules))?;
    let trials = repeats.of_earlier(
        rows.iter().filter_map(|row| Some((row, known.get(&row.id)?))),
        |row| diff.now(row, &heads, &mut shared).resources,
        is_due,
        true,
        (&mut journal::Writer::open(tree)?, lock),
    )?;
    let grown = trials
        .iter()
        .filter_map(|trial| Some((*trial, Resources::clone(repeats.request(*trial)?))));
    let grown = grown.collect();
    Ok((Again::with_requests(trials, grown), repeats.all_alone()))
}

/// The requests of trials in the hands of agents that hold until they have run.
fn kept(decks: &[Deck], covered: &HashSet<u64>) -> HashMap<u64, Arc<Resources>> {
    let mut all = HashMap::new();
    for (trials, request) in decks.last().map_or(&[][..], |deck| &deck.own_requests) {
        let request = Arc::new(request.clone());
        let trials = IdSet::of_numbers(trials).unwrap_or_default();
        let held = trials.iter().map(u64::from).filter(|trial| covered.contains(trial));
        all.extend(held.map(|trial| (trial, Arc::clone(&request))));
    }
    all
}

/// Whether agents are to learn the memory of calls. They run in the caller's process, which nobody keeps within its memory.
fn calls_and_learns(plan: &Plan) -> bool {
    let mut learns = plan.trials.iter().filter_map(|trial| trial.learns.as_ref());
    plan.run.function.is_some() && learns.any(|learns| learns.memory.is_some())
}

/// The trials whose memory is learnt, and how: but those that a person has asked to run again with a request of their own.
fn learnt(plan: &Plan, diff: &Diff, retry: &Again) -> Vec<(String, Learn)> {
    let mut all: Vec<(&Arc<Learn>, Vec<u64>)> = Vec::new();
    for ((trial, _), planned) in diff.numbers().zip(&plan.trials) {
        let calls = plan.run.function.is_some();
        let learns = planned.learns.as_ref().filter(|_| !calls && !retry.asks_for(trial));
        let Some(learn) = learns.and_then(|learns| learns.memory.as_ref()) else { continue };
        match all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, learn)) {
            Some((_, trials)) => trials.push(trial),
            None => all.push((learn, vec![trial])),
        }
    }
    let set = |(learn, trials): (&Arc<Learn>, Vec<u64>)| {
        (IdSet::of_trials(trials).to_string(), Learn::clone(learn))
    };
    all.into_iter().map(set).collect()
}

/// The plan's current requests for trials whose table says something else: each request once.
fn requests(diff: &Diff) -> Vec<(String, Resources)> {
    let mut numbers = Shapes::default();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for trial in 0..diff.known {
        let Some(request) = diff.request(trial).filter(|_| diff.is_changed(trial)) else {
            continue;
        };
        let number = numbers.number(request) as usize;
        groups.resize(groups.len().max(number + 1), Vec::new());
        groups[number].push(u32::try_from(trial).unwrap_or(u32::MAX));
    }
    let text = |trials: Vec<u32>| trials.into_iter().collect::<IdSet>().to_string();
    let groups = groups.into_iter().map(text);
    groups.zip(numbers.list).map(|(trials, request)| (trials, (*request).clone())).collect()
}

/// Whether the queue needs no change: the plan and its folder are the same, nothing has halted it, no trial is left that no agent has,
/// and no agent can take a trial that the plan has dropped.
fn is_dealt(tree: &Tree, source: &Source, hash: &str) -> Result<bool> {
    Ok(is_same(tree, source, hash)?
        && grow::moved(tree, source)?.is_empty()
        && !is_left_behind(tree)?
        && !hands::is_to_withdraw(tree, &deck::read(tree)?, &Ledger::read(tree)?)?)
}

/// Whether agents got this plan last, and no other plan was submitted since, to a scheduler or to this machine.
fn is_same(tree: &Tree, source: &Source, hash: &str) -> Result<bool> {
    let is_dealt = deck::read(tree)?.last().is_some_and(|deck| deck.plan == hash);
    let same = is_dealt && tree.is_plan(&source.text)?;
    Ok(same && Ledger::read(tree)?.halted.is_none())
}

/// Whether all agents are through, and a trial has no end all the same: its end was damaged, say. Or agents passed over it because
/// the plan had dropped it, and the plan has it again.
fn is_left_behind(tree: &Tree) -> Result<bool> {
    let decks = deck::read(tree)?;
    let total = deck::total(&decks);
    if !Ledger::read(tree)?.is_over(total) {
        return Ok(false);
    }
    let (known, dropped) = (records::all(tree)?, terms::dropped(tree)?);
    for (unit, trials) in (0..).zip(deck::units(tree, &decks, 0, total)?) {
        let dealt = deck::of_unit(&decks, unit).map_or(0, |deck| deck.seq);
        for trial in &trials {
            let record = known.get(trial);
            if !record.is_some_and(|record| record.is_over(dealt)) {
                return Ok(true);
            }
            if record.is_some_and(Record::is_skipped)
                && !dropped.has(*trial)
                && is_free(tree, *trial, &known)?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether no failure stops a chain before a trial.
fn is_free(tree: &Tree, trial: u64, known: &HashMap<u64, Record>) -> Result<bool> {
    let (_, row) = table::find(tree, trial)?;
    let Some(before) = terms::before(tree, &row)? else { return Ok(true) };
    let is_done = known.get(&before).and_then(Record::outcome) == Some(Outcome::Done);
    Ok(is_done || grow::on_failure(&table::heads(tree)?) == OnFailure::Continue)
}

/// An agent with `--serve` cannot run trials that run a command.
pub(crate) fn no_function(sweep: &str) -> Fault {
    Fault::request(format!("the trials of `{sweep}` run a command, and no function"))
        .hint("leave out `--serve`, or write `function` instead of `command` under `[run]`")
}

/// A halted sweep continues.
///
/// # Errors
/// When the ledger cannot be read or written.
pub(crate) fn go_on(tree: &Tree) -> Result<()> {
    let mut ledger = Ledger::read(tree)?;
    while ledger.halted.is_some() {
        let agent = format!("submit-{}", crate::base::host::clock::short_token());
        let entry = Entry::Resume { agent, nonce: "1".to_owned() };
        if !ledger::append(tree, &mut ledger, &entry, ledger::link)? {
            ledger.follow(tree)?;
        }
    }
    Ok(())
}

/// Tells this text, with what the command line changes of it, from any other.
fn hash(source: &Source, options: &DealOptions) -> String {
    let listed = source.plan.listed.as_deref().unwrap_or_default();
    let text = format!("{:?}\n{}{listed}", options.max_running, source.text);
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

/// The chains of what is to be done; where durations are known, long ones first.
fn units(todo: &[Todo], known: &HashMap<u64, Record>) -> Vec<Vec<u64>> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut units: Vec<(Vec<u64>, f64)> = Vec::new();
    for t in todo {
        let place = *places.entry(t.chain).or_insert_with(|| {
            units.push((Vec::new(), 0.0));
            units.len() - 1
        });
        let end = known.get(&t.id).and_then(Record::decisive).and_then(|a| a.end.as_ref());
        let seconds = end.map(|end| end.duration_s).or(t.resources.walltime_s.map(|s| s as f64));
        units[place].0.push(t.id);
        units[place].1 += seconds.unwrap_or(0.0);
    }
    // Stable: equal ones stay in plan order.
    units.sort_by(|a, b| b.1.total_cmp(&a.1));
    units.into_iter().map(|(trials, _)| trials).collect()
}

/// Refuses trials that an agent of this machine can never run. Returns the devices here.
///
/// # Errors
/// When there are such trials among those that have no result yet.
pub(crate) fn check_here(source: &Source, vars: &Vars, retry: &Again) -> Result<Devices> {
    let devices = Devices::find(source, vars)?;
    let (plan, diff) = (&source.plan, Diff::default());
    let chooses = plan.run.function.is_none() || plan.schedule.gpu_ids == GpuIds::Count;
    devices.check(plan, &diff, chooses, || local::left(&source.tree(), source, retry))?;
    Ok(devices)
}

/// As [`deal`] for an agent of this machine: trials that it can never run are refused before anything is
/// written.
///
/// # Errors
/// As [`deal`], and when a trial asks for devices that are not here.
pub(crate) fn deal_here(
    source: &Source,
    site: &Site,
    templates: &Templates,
    options: &DealOptions,
    environment: &Vars,
    told: impl FnMut() -> bool,
) -> Result<Dealt> {
    check(source, site, options.serves)?;
    check_writable(&source.tree(), &source.plan, site)?;
    check_here(source, environment, &options.retry)?;
    deal(source, site, templates, options, environment, told)
}

/// What agents cannot run is refused before anything is written; `serves`: whether they serve the program that has the
/// plan's function.
pub(crate) fn check(source: &Source, site: &Site, serves: bool) -> Result<()> {
    let plan = &source.plan;
    match (&plan.run.function, serves) {
        (None, true) => return Err(no_function(&plan.name).into()),
        (Some(_), false) if plan.run.program.is_empty() => {
            plan.run.refuse_function(|| source.author())?
        }
        _ => {}
    }
    check_caps(source, site, SchedulerKind::Local)?;
    let mut faults = Vec::new();
    if let Some((number, trial)) =
        plan.trials.iter().enumerate().find(|(_, trial)| trial.resources.ranks > 1)
    {
        let ranks = crate::base::words::count(u64::from(trial.resources.ranks), "rank");
        faults.push(
            Fault::request(format!(
                "trial {number} asks for {ranks}, and agents run trials of one"
            ))
            .hint("submit the plan as arrays: leave out `mode = \"pull\"` and `--pull`"),
        );
    }
    if plan.run.function.is_none()
        && let Some(number) = naming(plan)
    {
        faults.push(
            Fault::request(format!(
                "trial {number} names its devices, and agents deal devices out to slots"
            ))
            .hint("write `gpu_ids = \"count\"` under `[schedule]`: then only their number counts"),
        );
    }
    Faults(faults).or(|| Ok(()))
}

/// The first trial that insists on devices of its own choice.
pub(crate) fn naming(plan: &Plan) -> Option<usize> {
    let names = |t: &Trial| t.gpu_ids_abs.as_ref().is_some_and(|ids| !ids.is_empty());
    let is_exact = plan.schedule.gpu_ids == GpuIds::Exact;
    plan.trials.iter().position(names).filter(|_| is_exact)
}

/// The devices on which calls of a function insist, each once; `None` where none does.
fn named_devices(plan: &Plan) -> Option<Vec<DeviceId>> {
    let is_exact = plan.schedule.gpu_ids == GpuIds::Exact && plan.run.function.is_some();
    let mut all: Option<Vec<DeviceId>> = None;
    for ids in plan.trials.iter().filter_map(|t| t.gpu_ids_abs.as_deref()).filter(|_| is_exact) {
        let all = all.get_or_insert_default();
        for id in ids {
            if !all.contains(id) {
                all.push(id.clone());
            }
        }
    }
    all
}
