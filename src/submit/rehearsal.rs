//! A preview of a submission now. It asks the scheduler how trials of an existing sweep stand, refuses what the
//! submission refuses before it asks a scheduler for jobs, and writes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Source, check_caps, check_writable, refuse_share, wanted};
use crate::base::host::{Vars, process, threads};
use crate::cluster::scheduler::{self, Room, Wanted};
use crate::plan::Resources;
use crate::plan::site::{SchedulerKind, Site};
use crate::submit::again::Again;
use crate::submit::arrays::batch::{ArrayOptions, Asked};
use crate::submit::arrays::due::{Demand, Due};
use crate::submit::arrays::mapping::{Mapped, Rules};
use crate::submit::arrays::portion::{Choice, Portion};
use crate::submit::arrays::scripts::Scripts;
use crate::submit::arrays::wave::{self, Before, Waves};
use crate::submit::arrays::{feeder, next};
use crate::submit::forecast::{self, Forecast};
use crate::submit::grow::{self, Diff, Todo};
use crate::submit::learn;
use crate::submit::local::gpus::Devices;
use crate::submit::pilots::{self, Ask, deal, hands};
use crate::submit::preview::Hours;
use crate::submit::todo::{self, Decided, Holdings, Planned};
use crate::submit::{local, retry, snapshot};
use crate::sweep::status::{self, Status};
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::ledger::Ledger;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::waves::Array;
use crate::sweep::tree::{Identity, Tree, deck, lock};

/// How a sweep is submitted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How<'a> {
    /// As processes of this machine.
    Local(&'a local::LocalOptions),
    /// As arrays of a scheduler.
    Arrays(SchedulerKind, &'a ArrayOptions),
    /// To agents, by pilots where there is a scheduler.
    Pull(Option<SchedulerKind>, &'a pilots::PilotOptions),
}

impl How<'_> {
    /// The scheduler, unless all is done here.
    pub(crate) fn scheduler(self) -> Option<SchedulerKind> {
        match self {
            Self::Local(_) => None,
            Self::Arrays(kind, _) => Some(kind),
            Self::Pull(kind, _) => kind,
        }
    }

    /// What decides about arrays.
    fn rules(self, source: &Source, site: &Site) -> Rules {
        let kind = self.scheduler().unwrap_or(SchedulerKind::Local);
        let rules = Rules::of(&source.plan, site, scheduler::of(kind).facts());
        match self {
            Self::Arrays(_, ArrayOptions { max_running: Some(wish), .. }) => {
                Rules { max_running: site.caps.running(Some(*wish)), ..rules }
            }
            _ => rules,
        }
    }
}

/// A trial that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Its number in the sweep.
    pub(crate) trial: u64,
    /// Its place in the plan.
    pub(crate) place: usize,
    /// Its state in words, or `new`.
    pub(crate) state: String,
    /// Its chain, and its place there.
    pub(crate) chain: (u64, u64),
    /// What it asks for.
    pub(crate) request: Arc<Resources>,
}

/// How trials would run on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Here {
    /// How many chains at once.
    pub(crate) at_once: u64,
    /// The cores that there are for them.
    pub(crate) cores: usize,
    /// What to know of GPUs; empty where no trial asks for any.
    pub(crate) gpus: String,
}

/// The steps that a submission would take.
pub(crate) struct Rehearsal {
    /// The sweep's folder, which may not exist yet.
    pub(crate) tree: Tree,
    /// The scheduler, unless all is done here.
    pub(crate) scheduler: Option<SchedulerKind>,
    /// Whether it is there.
    pub(crate) exists: bool,
    /// What to say of its trials that the plan no longer has.
    pub(crate) left_alone: Option<String>,
    /// How many those are.
    pub(crate) dropped: u64,
    /// Trials that would run, by their numbers.
    pub(crate) runs: Vec<Runs>,
    /// The plan's other trials, by state.
    pub(crate) left: BTreeMap<String, u64>,
    /// Those that wait until others have shown what they need.
    pub(crate) held: HashSet<u64>,
    /// Arrays that would be submitted: those that earlier submissions did not come to, then new ones.
    pub(crate) arrays: Vec<Array>,
    /// Most elements of an array.
    pub(crate) elements: u64,
    /// How chains would become jobs, and why.
    pub(crate) mapped: Option<Mapped>,
    /// Units that would be enqueued for agents, and pilots that would be submitted for them.
    pub(crate) units: Option<(u64, Option<u64>)>,
    /// How trials would run here; `None` where a scheduler runs them.
    pub(crate) here: Option<Here>,
    /// What the scheduler expects of the arrays.
    pub(crate) forecast: Option<Forecast>,
    /// The scheduler, if it was asked for its limits.
    asked: Option<Asked>,
    /// What decides about arrays of trials, if it was.
    pub(crate) rules: Option<Rules>,
    /// Whether trials have no place in the queue yet.
    pub(crate) is_portion: bool,
    /// The plan's code, unless it runs where it is.
    code: Option<snapshot::Look>,
    /// Further remarks, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// What submitting a plan would do.
///
/// # Errors
/// As the submission itself, before it writes anything.
pub(crate) fn of(
    source: &Source,
    site: &Site,
    how: How<'_>,
    again: &Again,
    environment: &Vars,
) -> Result<Rehearsal> {
    let tree = source.tree();
    refuse(source, site, how)?;
    check_writable(&tree, &source.plan, site)?;
    let identity = tree.identity()?;
    if let Some(identity) = &identity {
        let by = match how {
            How::Arrays(kind, _) => kind,
            _ => SchedulerKind::Local,
        };
        let journal = Journal::read(&tree)?;
        retry::check_free(&tree, identity, &journal, site, environment, by)?;
        if !matches!(how, How::Pull(..)) {
            hands::refuse_if_dealt(&tree)?;
        }
    }
    let mut diff = grow::diff(&tree, source)?;
    again.change(&mut diff);
    super::check_growth(&source.plan, site, &diff)?;
    let here = here(source, how, &diff, again, environment)?;
    let exists = identity.is_some();
    let identity = identity.unwrap_or_else(|| Identity::new(&source.plan.name));
    let status = status::before_a_plan(
        tree.clone(),
        identity.clone(),
        site,
        environment,
        again.is_wanted(),
    )?;
    let rules = how.rules(source, site);
    let mut all = Rehearsal {
        scheduler: how.scheduler(),
        exists,
        left_alone: diff.left_alone(),
        dropped: diff.dropped(),
        runs: Vec::new(),
        left: BTreeMap::new(),
        held: HashSet::new(),
        arrays: Vec::new(),
        elements: rules.elements,
        mapped: None,
        units: None,
        here,
        forecast: None,
        asked: None,
        rules: None,
        is_portion: false,
        code: None,
        notes: lock::holder(&tree).map(|owner| owner.is_at_work()).into_iter().collect(),
        tree,
    };
    let (added, places) = grow::added(&all.tree, source, &diff)?;
    let (added, places) = (&*added, &*places);
    let now = Now { source, site, environment, diff: &diff, status: &status, again, added, places };
    let runs = match how {
        How::Local(_) => {
            let planned = Planned::new(&all.tree, source, &diff, added)?;
            let journal = Journal::read(&all.tree)?;
            local::decide(planned, &status.records, &journal, again)?.runs()
        }
        How::Arrays(kind, options) => {
            let tree = all.tree.clone();
            let ask = || match again.is_wanted() {
                true => retry::of_status(&status),
                false => retry::without_success(&tree, &identity, site, environment),
            };
            now.arrays(&mut all, (kind, options), rules, &ask)?
        }
        How::Pull(kind, options) => now.pull(&mut all, kind, options)?,
    };
    let repeated = runs.iter().copied().filter(|trial| *trial < diff.known);
    all.code = snapshot::look(&all.tree, source, &diff, repeated, (again, &status.records))?;
    let damaged = status.damage.iter().take(MOST_DAMAGED);
    all.notes.extend(damaged.map(|damaged| format!("left out: {damaged}")));
    all.notes.extend(all.code.iter().flat_map(|code| code.notes(again)));
    now.sort(&mut all, &runs)?;
    Ok(all)
}

/// Most damaged files that are named.
const MOST_DAMAGED: usize = 20;

impl Rehearsal {
    /// What is asked for over the walltimes.
    pub(crate) fn hours(&self) -> Hours {
        match self.arrays.iter().find(|array| array.pilot.is_some()) {
            Some(array) => Hours::of([(&array.resources, array.count)].into_iter()),
            None => Hours::of(self.runs.iter().map(|run| (&*run.request, 1))),
        }
    }

    /// Seconds within which the longest chain ends by its walltimes, once it has begun.
    pub(crate) fn longest_s(&self) -> Option<u64> {
        let mut chains: HashMap<u64, u64> = HashMap::new();
        for run in &self.runs {
            *chains.entry(run.chain.0).or_default() += run.request.walltime_s?;
        }
        chains.into_values().max()
    }

    /// Asks the scheduler when the first array would start.
    ///
    /// # Errors
    /// When its script cannot be rendered.
    pub(crate) fn ask_start(&mut self, scripts: &Scripts<'_>) -> Result<()> {
        let (Some(forecast), Some(asked)) = (&mut self.forecast, &mut self.asked) else {
            return Ok(());
        };
        if let Some(array) = self.arrays.first().filter(|_| forecast.why.is_none()) {
            forecast.ask_start(asked, &scripts.shown(array)?.directives);
        }
        Ok(())
    }

    /// All of it as one document, the same whatever is submitted where: `docs/plan.md` has its members.
    ///
    /// # Errors
    /// When a script cannot be rendered.
    pub(crate) fn document(&self, source: &Source, scripts: &Scripts<'_>) -> Result<Value> {
        let plan = &source.plan;
        let task = |place: usize| plan.trials[place].task_id.as_ref().map(ToString::to_string);
        let run = |run: &Runs| {
            let trial = &plan.trials[run.place];
            json!({
                "trial": run.trial, "state": run.state, "task_id": task(run.place),
                "chain": run.chain.0, "link": run.chain.1,
                "gpu_ids_abs": trial.gpu_ids_abs.as_deref(), "params": trial.params,
            })
        };
        let mut chains: BTreeMap<u64, Option<String>> = BTreeMap::new();
        self.runs.iter().for_each(|run| drop(chains.insert(run.chain.0, task(run.place))));
        let pilots = self.arrays.iter().find(|array| array.pilot.is_some());
        let arrays = self.arrays.iter().map(|array| scripts.shown(array));
        let calls = self.arrays.len();
        let hours = self.hours();
        Ok(json!({
            "sweep": plan.name,
            "root": plan.root,
            "dir": self.tree.dir(),
            "exists": self.exists,
            "scheduler": self.scheduler.map(SchedulerKind::word),
            "trials": self.runs.iter().map(run).collect::<Vec<_>>(),
            "chains": chains.into_values().collect::<Vec<_>>(),
            "left": self.left,
            "dropped": self.dropped,
            "shard": source.part.as_ref().map(|part| part.shards.json()),
            "arrays": arrays.collect::<Result<Vec<_>>>()?,
            "chains_as": self.mapped.as_ref().map(|mapped| mapped.mapping.word()),
            "chains_why": self.mapped.as_ref().map_or("", |mapped| &mapped.why),
            "max_array_size": self.scheduler.map(|_| self.elements),
            "submit_calls": calls,
            "scheduler_calls": if self.scheduler.is_some() { calls + 2 } else { 0 },
            "units": self.units.map(|(units, _)| units),
            "pilots": self.units.and_then(|(_, pilots)| pilots),
            "slots": pilots.and_then(|array| array.pilot).and_then(|pilot| pilot.slots),
            "at_once": self.here.as_ref().map(|here| here.at_once),
            "cores": self.here.as_ref().map(|here| here.cores),
            "gpus": self.here.as_ref().map(|here| &here.gpus),
            "core_hours": hours.core,
            "gb_hours": hours.gb,
            "gpu_hours": hours.gpu,
            "submissions": self.forecast.as_ref().and_then(|forecast| forecast.submissions),
            "refused": self.forecast.as_ref().and_then(|forecast| forecast.refused.as_ref()),
            "expected_start": self.forecast.as_ref().and_then(|forecast| forecast.start.as_ref()),
            "code": self.code.as_ref().map(snapshot::Look::document),
            "notes": self.left_alone.iter().chain(&self.notes).collect::<Vec<_>>(),
        }))
    }
}

/// Refuses what the submission refuses for the plan and the site alone.
fn refuse(source: &Source, site: &Site, how: How<'_>) -> Result<()> {
    let plan = &source.plan;
    match how {
        How::Local(_) => {
            plan.run.refuse_function(|| source.author())?;
            check_caps(source, site, SchedulerKind::Local)
        }
        How::Arrays(kind, _) => {
            plan.run.refuse_function(|| source.author())?;
            refuse_share(plan)?;
            check_caps(source, site, kind)?;
            Ok(scheduler::check_path(kind, source.tree().dir())?)
        }
        How::Pull(kind, options) => {
            kind.map_or(Ok(()), |kind| pilots::check(source, site, &Ask::of(plan, options), kind))?;
            deal::check(source, site, false)
        }
    }
}

/// How trials would run on this machine, which refuses what it could never run.
fn here(
    source: &Source,
    how: How<'_>,
    diff: &Diff,
    again: &Again,
    environment: &Vars,
) -> Result<Option<Here>> {
    let plan = &source.plan;
    match how {
        How::Arrays(..) | How::Pull(Some(_), _) => Ok(None),
        How::Local(options) => {
            let devices = Devices::find(source, environment)?;
            devices.check(plan, diff, false, || local::left(&source.tree(), source, again))?;
            let at_once = local::jobs(source, options) as u64;
            Ok(Some(Here { at_once, cores: threads::cores(), gpus: devices.note() }))
        }
        How::Pull(None, options) => {
            let devices = deal::check_here(source, environment, again)?;
            let most = |of: fn(&Resources) -> u64| {
                plan.trials.iter().map(|trial| of(&trial.resources)).max().unwrap_or(0)
            };
            let (cores, gpus) = (process::own_cores().len(), most(Resources::total_gpus));
            let fit = match plan.run.function {
                Some(_) => 1,
                None => (cores as u64 / most(Resources::cores).max(1)).max(1),
            };
            let wanted = Ask::of(plan, options).slots.map_or(fit, u64::from);
            let room = devices.room().filter(|_| gpus > 0).map(|places| places / gpus);
            let at_once = room.map_or(wanted, |room| wanted.min(room));
            Ok(Some(Here { at_once, cores, gpus: devices.note() }))
        }
    }
}

/// A plan, and how its sweep stands.
struct Now<'a> {
    source: &'a Source,
    site: &'a Site,
    environment: &'a Vars,
    diff: &'a Diff,
    status: &'a Status,
    again: &'a Again,
    /// The trials that the plan adds, and the chain of each with its place there.
    added: &'a [Todo],
    places: &'a [(u64, u64)],
}

/// What was submitted before, and what came of it.
struct Earlier<'a> {
    waves: &'a Waves,
    journal: &'a Journal,
    before: &'a Before<'a>,
    records: &'a HashMap<u64, Record>,
}

impl Now<'_> {
    /// The trials that would be elements of arrays.
    fn arrays(
        &self,
        all: &mut Rehearsal,
        (kind, options): (SchedulerKind, &ArrayOptions),
        rules: Rules,
        ask: &dyn Fn() -> Result<retry::Retry>,
    ) -> Result<HashSet<u64>> {
        let journal = Journal::read(&all.tree)?;
        let mut waves = Waves::of_here(&all.tree, &journal)?;
        let (records, tree) = (&self.status.records, all.tree.clone());
        let submitted = Demand {
            planned: Planned::new(&tree, self.source, self.diff, self.added)?,
            journal: &journal,
            again: self.again,
            ask,
        };
        // The submission itself looks for jobs without an answer.
        let mut due = Due::find(&submitted, kind.word(), &mut waves, &mut all.notes)?;
        due.look_behind(&submitted, &waves, records, &mut all.notes)?;
        let before = Before::new(&waves, &journal, &due.retried.busy);
        let (Decided { mut todo, .. }, taken) =
            due.decide(&submitted, (&waves, &before), records)?;
        let ended = self.status.trials().filter(|(_, standing)| standing.state.is_final());
        let ended: HashSet<u64> = ended.map(|(row, _)| row.id).collect();
        if self.source.plan.learns() {
            let of = (&self.source.plan, self.diff, &waves);
            let is_open = |trial| taken.in_hand.contains(&trial) && !ended.contains(&trial);
            let known = learn::Known::new(of, records, &is_open, self.again, &|_| false);
            let divided = learn::divide(todo, &known);
            all.notes.extend(divided.notes());
            all.held = divided.held.iter().map(|todo| todo.id).collect();
            todo = divided.todo;
        }
        let mut runs = HashSet::new();
        for (wave, array, trials) in waves.arrays() {
            if wave.target == kind.word() && journal.job(array.array).is_none() {
                runs.extend(trials);
                all.arrays.push(array.clone());
            }
        }
        let earlier = Earlier { waves: &waves, journal: &journal, before: &before, records };
        let portion = self.portion(all, (kind, options), rules, todo, &earlier)?;
        runs.extend(portion.todo.iter().chain(&portion.left).map(|todo| todo.id));
        Ok(runs)
    }

    /// Adds the arrays of the trials that have a place in the queue now, as far as the scheduler says it.
    fn portion(
        &self,
        all: &mut Rehearsal,
        (kind, options): (SchedulerKind, &ArrayOptions),
        rules: Rules,
        todo: Vec<Todo>,
        due: &Earlier<'_>,
    ) -> Result<Portion> {
        let own = Portion { todo, left: Vec::new(), elements: 0, rules };
        if own.todo.is_empty() && all.arrays.is_empty() {
            return Ok(own);
        }
        let mut wanted = wanted(self.source);
        wanted.requests.extend(self.again.requests());
        let (source, site) = (self.source, self.site);
        let mut forecast = Forecast { submissions: Some(1), ..Forecast::default() };
        let (room, portion) = match forecast::limits(source, site, kind, &wanted, self.environment)?
        {
            Err(why) => {
                forecast = Forecast { why: Some(why), ..Forecast::default() };
                (None, own)
            }
            Ok(mut asked) => {
                let todo = own.todo.clone();
                let within = self.within(all, (&mut asked, options), &own.rules, todo, due);
                let within = match within {
                    Ok(within) => within,
                    Err(error) => {
                        let why = Some(forecast::told(error)?);
                        forecast = Forecast { why, ..Forecast::default() };
                        (None, own)
                    }
                };
                all.notes.extend(within.1.rules.notes(&*asked.scheduler, within.1.todo.len()));
                all.asked = Some(asked);
                within
            }
        };
        let (before, target) = (due.before, kind.word());
        let mut arrays = Vec::new();
        if !portion.todo.is_empty() {
            let (wave, _, mapped) =
                wave::plan(&all.tree, target, &portion.todo, &portion.rules, before, due.records)?;
            arrays = wave.arrays;
            all.mapped = Some(mapped);
        }
        if let Some(room) = room.filter(|_| !portion.left.is_empty()) {
            let parts = next::parts(&room, &portion, &arrays);
            forecast.submissions = Some(1 + parts.later);
            forecast.places = Some(parts.words);
            all.is_portion = true;
        }
        all.elements = portion.rules.elements;
        all.rules = Some(portion.rules.clone());
        all.arrays.extend(arrays);
        all.forecast = Some(forecast);
        Ok(portion)
    }

    /// The trials that have a place in the queue now, and its places, where something limits them.
    fn within(
        &self,
        all: &mut Rehearsal,
        (asked, options): (&mut Asked, &ArrayOptions),
        own: &Rules,
        mut todo: Vec<Todo>,
        due: &Earlier<'_>,
    ) -> Result<(Option<Room>, Portion)> {
        let Earlier { waves, journal, before, records } = *due;
        let (source, site) = (self.source, self.site);
        let target = asked.scheduler.facts().kind.word();
        let pack = source.plan.schedule.pack.map_or(1, u64::from);
        let elements = (todo.len() as u64).div_ceil(pack);
        let counts = (elements, next::missing(waves, journal, target));
        let known = (&all.tree, waves, journal);
        let scheduler = (&*asked.scheduler, &mut asked.calls);
        let queue = next::queue(scheduler, known, source, site, options, counts)?;
        let waits = own.max_running.is_some() || todo.iter().any(|todo| todo.after.is_some());
        let scheduler = (&*asked.scheduler, &mut asked.calls);
        let (places, _) = match waits {
            true => next::put_off(scheduler, &all.tree, before, &mut todo, &mut |note| {
                all.notes.push(note.to_owned());
            })?,
            false => (None, 0),
        };
        let rules = own.clone().within(asked.scheduler.limits(), places);
        let choice = Choice { tree: &all.tree, target, rules, before, records };
        let Some(room) = queue.room else {
            return Ok((None, choice.within(None, todo, (false, false))?));
        };
        let (elements, _) = choice.elements(&todo, &choice.rules)?;
        let kind = asked.scheduler.facts().kind;
        feeder::check_places(source, kind, &room, elements + all.held.len() as u64)?;
        let is_fed = queue.fed == Some(true);
        let follows = source.plan.is_looked_after() || !all.held.is_empty();
        let least = if is_fed { 1 } else { (elements + u64::from(follows)).min(2) };
        let portion = match room.free() < least {
            true => Portion { todo: Vec::new(), left: todo, elements, rules: choice.rules },
            false => choice.within(Some(room.free()), todo, (is_fed, follows))?,
        };
        Ok((Some(room), portion))
    }

    /// The trials that would be enqueued for agents.
    fn pull(
        &self,
        all: &mut Rehearsal,
        kind: Option<SchedulerKind>,
        options: &pilots::PilotOptions,
    ) -> Result<HashSet<u64>> {
        let decks = deck::read(&all.tree)?;
        let mut ledger = Ledger::read(&all.tree)?;
        if hands::is_rest_cancelled(&ledger, self.again) {
            hands::rehearse_take_over(&all.tree, &decks, &mut ledger)?;
        }
        let records = &self.status.records;
        let taken = Holdings {
            in_hand: hands::in_hand(&all.tree, &decks, &ledger, records, self.diff)?,
            cancelled: Waves::read(&all.tree)?.cancelled(&Journal::read(&all.tree)?, records),
            ..Holdings::default()
        };
        let planned = Planned::new(&all.tree, self.source, self.diff, self.added)?;
        let todo = todo::decide(planned, self.again, records, &taken)?.todo;
        let units: HashSet<u64> = todo.iter().map(|todo| todo.chain).collect();
        let units = units.len() as u64;
        let pilots = kind.map(|_| {
            let there = self.status.pilots.iter().any(status::pilots::Pilots::will_work);
            let open = units + pilots::left(&ledger, deck::total(&decks));
            if there { 0 } else { Ask::of(&self.source.plan, options).count(open) }
        });
        if let Some((kind, pilots)) = kind.zip(pilots.filter(|pilots| *pilots > 0)) {
            let waves = Waves::read(&all.tree)?;
            let last = waves.all.iter().flat_map(|wave| &wave.arrays).map(|a| a.array).max();
            let array = Ask::of(&self.source.plan, options).array(last.unwrap_or(0) + 1, pilots);
            self.of_pilots(all, kind, &array)?;
            all.arrays.push(array);
        }
        all.units = Some((units, pilots));
        Ok(todo.iter().map(|todo| todo.id).collect())
    }

    /// Asks for the places of pilots.
    fn of_pilots(&self, all: &mut Rehearsal, kind: SchedulerKind, array: &Array) -> Result<()> {
        let (source, site) = (self.source, self.site);
        let wanted = wanted(source);
        let wanted = Wanted { requests: vec![&array.resources], elements: array.count, ..wanted };
        match forecast::limits(source, site, kind, &wanted, self.environment)? {
            Err(why) => {
                all.forecast = Some(Forecast { why: Some(why), ..Forecast::default() });
            }
            Ok(mut asked) => {
                all.forecast = Some(forecast::of_pilots(source, site, &mut asked, array.count)?);
                all.asked = Some(asked);
            }
        }
        Ok(())
    }

    /// Tells the plan's trials that would run from the others.
    fn sort(&self, all: &mut Rehearsal, runs: &HashSet<u64>) -> Result<()> {
        let added = self.added.iter().map(|todo| todo.id).zip(self.places.iter().copied());
        let known = self.status.rows.iter().map(|row| (row.id, (row.chain, row.link)));
        let chains: HashMap<u64, (u64, u64)> = known.chain(added).collect();
        let known = self.status.trials();
        let states: HashMap<u64, String> =
            known.map(|(row, standing)| (row.id, standing.state.word())).collect();
        for (place, (trial, is_new)) in self.diff.numbers().enumerate() {
            let state = states.get(&trial).map_or("new", String::as_str).to_owned();
            if runs.contains(&trial) {
                let chain = chains.get(&trial).copied().unwrap_or_default();
                let planned = || &self.source.plan.trials[place].resources;
                let request = Arc::clone(self.diff.request(trial).unwrap_or_else(planned));
                all.runs.push(Runs { trial, place, state, chain, request });
            } else {
                let state = match is_new && !self.again.is_alone() {
                    _ if all.held.contains(&trial) => {
                        "when others have shown what it needs".to_owned()
                    }
                    true => "new, behind a failure".to_owned(),
                    false => state,
                };
                *all.left.entry(state).or_default() += 1;
            }
        }
        all.runs.sort_by_key(|run| run.trial);
        Ok(())
    }
}
