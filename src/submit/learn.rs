//! `memory = "auto"` and `walltime = "auto"`: which trials run first to show what the others need, which wait for them, and what
//! those ask for then. Pure decisions over the trials that a submission is about to submit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::base::cause::Cause;
use crate::base::idset::IdSet;
use crate::base::units;
use crate::base::words::count;
use crate::plan::{Learn, Learns, Params, Plan, Resources, TaskId};
use crate::submit::again::Again;
use crate::submit::arrays::wave::Waves;
use crate::submit::grow::{Diff, Todo};
use crate::sweep::attempt::time::Reserve;
use crate::sweep::tree::records::{Attempt, Outcome, Record};
use crate::sweep::tree::waves::Learnt;

/// Of the trials with equal values, one of so many runs first.
const SHARE: u64 = 10;

/// At most so many of them do.
const MOST_FIRST: u64 = 20;

/// The trials of a submission, divided.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    /// Those that are submitted now, with what they ask for.
    pub(crate) todo: Vec<Todo>,
    /// Those that wait until others have shown what they need.
    pub(crate) held: Vec<Todo>,
    /// What was learnt about those that are submitted.
    pub(crate) learnt: Vec<Learnt>,
    /// Those of them that run first, to show what others need.
    pub(crate) first: HashSet<u64>,
}

/// What is known of a sweep.
pub(crate) struct Known<'a> {
    plan: &'a Plan,
    /// The place in the plan of each of its trials.
    places: HashMap<u64, usize>,
    records: &'a HashMap<u64, Record>,
    /// The array that had each trial last, and what it asked for.
    asked: HashMap<u64, (u32, Resources)>,
    /// Whether a trial was submitted and has not ended.
    is_open: &'a dyn Fn(u64) -> bool,
    /// The trials that run again, some with requests of their own.
    again: &'a Again,
    /// Whether the site refuses a request.
    is_refused: &'a dyn Fn(&Resources) -> bool,
}

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Of {
    Memory,
    Walltime,
}

impl Of {
    const ALL: [Self; 2] = [Self::Memory, Self::Walltime];

    fn learn(self, learns: &Learns) -> Option<&Arc<Learn>> {
        match self {
            Self::Memory => learns.memory.as_ref(),
            Self::Walltime => learns.walltime.as_ref(),
        }
    }

    fn asked(self, request: &Resources) -> Option<u64> {
        match self {
            Self::Memory => request.memory_mib,
            Self::Walltime => request.walltime_s,
        }
    }

    fn set(self, request: &mut Resources, amount: u64) {
        match self {
            Self::Memory => request.memory_mib = Some(amount),
            Self::Walltime => request.walltime_s = Some(amount),
        }
    }

    /// What an attempt that is done has used, and the request for `margin` times that.
    fn used(self, attempt: &Attempt, margin: f64) -> Option<(f64, u64)> {
        let end = attempt.end.as_ref()?;
        match self {
            Self::Memory => {
                let mib = end.node_memory()? as f64 / f64::from(1 << 20);
                Some((mib, units::request_of_mib(mib * margin)))
            }
            Self::Walltime => {
                let needs = end.duration_s * margin;
                let reserve = Reserve::of_trial(needs).whole().as_secs_f64();
                Some((end.duration_s, units::request_of_seconds(needs + reserve)))
            }
        }
    }

    /// The least that a trial may ask for: a walltime in which the signal of its plan comes after its start.
    fn least(self, plan: &Plan) -> u64 {
        match (self, plan.run.signal) {
            (Self::Walltime, Some(notice)) => {
                let minutes =
                    (1..).map(|minutes| units::request_of_seconds(f64::from(minutes) * 60.0));
                minutes.into_iter().find(|walltime| notice.comes_within(*walltime)).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether an attempt ended because it had too little.
    fn was_short(self, attempt: &Attempt) -> bool {
        match self {
            Self::Memory => attempt.cause() == Some(Cause::OutOfMemory),
            Self::Walltime => attempt.outcome() == Some(Outcome::Timeout),
        }
    }

    fn text(self, amount: f64) -> String {
        match self {
            Self::Memory => units::memory_text(amount.ceil() as u64),
            Self::Walltime => units::walltime_text(amount.ceil() as u64),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Walltime => "walltime",
        }
    }
}

/// Trials that need the same: all with equal values of the parameters on which it depends.
#[derive(Debug, Default)]
struct Group {
    /// How many trials of the plan need the same.
    members: u64,
    /// Those that are to be submitted now and have run before.
    repeated: u64,
    /// Those that are to be submitted now and have not run.
    fresh: u64,
    /// Those that were submitted before and have not ended.
    open: u64,
    /// Those that have begun, or were submitted and have not ended.
    begun: u64,
    /// Those that are done and measured.
    shown: u64,
    /// The most that those used, and the largest request for that.
    used: f64,
    enough: Option<u64>,
    /// The largest request after which a trial had too little, and what the plan repeats it with.
    short: Option<u64>,
}

/// What the trials of a group do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Decision {
    /// They ask for this; `None`: for what the plan says, because nothing was learnt.
    Ask(Option<u64>),
    /// So many of those that have not run run first, and the others wait.
    First(u64),
    /// All wait for those that run.
    Wait,
}

impl Group {
    fn decision(&self) -> Decision {
        let needed = self.members.div_ceil(SHARE).clamp(1, MOST_FIRST);
        let coming = self.open + self.repeated;
        if self.shown >= needed || (self.shown > 0 && coming == 0) {
            return Decision::Ask(self.enough.max(self.short));
        }
        match needed.saturating_sub(self.begun) {
            0 if coming > 0 => Decision::Wait,
            // All that were to show it have failed.
            0 => Decision::Ask(self.short),
            missing => Decision::First(missing),
        }
    }

    /// Why its trials ask for what they do: `2 trials with width = 64 used 940M at most`.
    fn why(&self, of: Of, values: &str, amount: u64) -> String {
        let asked = of.text(amount as f64);
        let with = if values.is_empty() { String::new() } else { format!(" with {values}") };
        let word = of.word();
        if self.shown == 0 {
            return format!("{word} {asked}: trials{with} had too little");
        }
        let used = of.text(self.used);
        format!("{word} {asked}: {}{with} used {used} at most", count(self.shown, "trial"))
    }
}

/// Groups by what they are about, how they learn, and the values of their parameters.
type Groups = BTreeMap<(Of, usize, String), Group>;

/// The group of a trial; `None` if its request for this is not learnt.
fn key(of: Of, learns: &Learns, params: &Params) -> Option<(Of, usize, String)> {
    let learn = of.learn(learns)?;
    Some((of, Arc::as_ptr(learn) as usize, learn.values(params)))
}

impl<'a> Known<'a> {
    /// What is known of a sweep for a submission of a plan that learns.
    pub(crate) fn new(
        (plan, diff, waves): (&'a Plan, &Diff, &Waves),
        records: &'a HashMap<u64, Record>,
        is_open: &'a dyn Fn(u64) -> bool,
        again: &'a Again,
        is_refused: &'a dyn Fn(&Resources) -> bool,
    ) -> Self {
        let (places, asked) = (diff.by_number(), waves.requests());
        Self { plan, places, records, asked, is_open, again, is_refused }
    }

    fn has_begun(&self, trial: u64) -> bool {
        self.records.get(&trial).is_some_and(|record| !record.attempts.is_empty())
    }
}

/// Divides the trials of a submission.
pub(crate) fn divide(todo: Vec<Todo>, known: &Known<'_>) -> Divided {
    let groups = groups(&todo, known);
    let decisions: BTreeMap<_, Decision> =
        groups.iter().map(|(key, group)| (key, group.decision())).collect();
    // Of those that have not run, the first ones of a group are spread over all.
    let mut turns: HashMap<&(Of, usize, String), u64> = HashMap::new();
    let mut divided = Divided::default();
    let mut gone: HashSet<u64> = HashSet::new();
    let mut requests: HashMap<Resources, Arc<Resources>> = HashMap::new();
    let mut learnt: BTreeMap<(String, Option<u64>, Option<u64>), Vec<u64>> = BTreeMap::new();
    let any_open = groups.values().any(|group| group.open > 0);
    for mut t in todo {
        let own = known.places.get(&t.id).map(|place| &known.plan.trials[*place]);
        let learns = own.and_then(|trial| Some((trial, trial.learns.as_ref()?)));
        let (mut is_first, mut waits) = (false, false);
        if let Some((trial, learns)) = learns.filter(|_| !known.again.asks_for(t.id)) {
            let (mut request, mut why) = (Resources::clone(&t.resources), Vec::new());
            let mut first = Resources::default();
            for of in Of::ALL {
                let Some(key) = key(of, learns, &trial.params) else { continue };
                let Some((key, group)) = groups.get_key_value(&key) else { continue };
                match decisions[key] {
                    Decision::Ask(None) => {}
                    Decision::Ask(Some(amount)) => {
                        let amount = amount.max(of.least(known.plan));
                        of.set(&mut request, amount);
                        of.asked(&t.resources).iter().for_each(|own| of.set(&mut first, *own));
                        why.push(group.why(of, &key.2, amount));
                    }
                    Decision::Wait => waits = true,
                    Decision::First(first) => {
                        let turn = turns.entry(key).or_default();
                        // Every n-th, from the first one on.
                        let at = |turn: u64| (turn * first).div_ceil(group.fresh.max(1));
                        let is_mine = at(*turn) < at(*turn + 1);
                        *turn += 1;
                        is_first |= is_mine;
                        waits |= !is_mine;
                    }
                }
            }
            // One that was submitted before runs again because somebody wants that: no feeder would know.
            is_first |= waits && (known.has_begun(t.id) || known.asked.contains_key(&t.id));
            if !why.is_empty() && !(known.is_refused)(&request) {
                let key = (why.join("; "), first.memory_mib, first.walltime_s);
                learnt.entry(key).or_default().push(t.id);
                let shared = requests.entry(request.clone()).or_insert_with(|| Arc::new(request));
                t.resources = Arc::clone(shared);
            }
        }
        if (waits && !is_first) || t.after.is_some_and(|after| gone.contains(&after)) {
            gone.insert(t.id);
            divided.held.push(t);
        } else {
            divided.first.extend(is_first.then_some(t.id));
            divided.todo.push(t);
        }
    }
    // The first trials of a group may all be behind others that wait. Something must run.
    if divided.todo.is_empty() && !divided.held.is_empty() && !any_open {
        let first = divided.held.remove(0);
        divided.first.insert(first.id);
        divided.todo.push(first);
    }
    let kept: HashSet<u64> = divided.todo.iter().map(|t| t.id).collect();
    for ((why, memory_mib, walltime_s), trials) in learnt {
        let trials: Vec<u64> = trials.into_iter().filter(|trial| kept.contains(trial)).collect();
        if !trials.is_empty() {
            let trials = IdSet::of_trials(trials).to_string();
            divided.learnt.push(Learnt { trials, memory_mib, walltime_s, why });
        }
    }
    divided
}

impl Divided {
    /// What to say of it.
    pub(crate) fn notes(&self) -> Vec<String> {
        let learnt =
            self.learnt.iter().map(|learnt| format!("{} (trials {})", learnt.why, learnt.trials));
        let held = (!self.held.is_empty()).then(|| {
            let held = self.held.len() as u64;
            match self.first.len() as u64 {
                0 => format!(
                    "{} still to be submitted, when those that run have shown what they need",
                    count(held, "trial")
                ),
                first => format!(
                    "{} to run first: {} to ask for what they use",
                    count(first, "trial"),
                    count(held, "other")
                ),
            }
        });
        learnt.chain(held).collect()
    }
}

/// What to say of a plan that has not been submitted.
pub(crate) fn of_new(plan: &Plan) -> Vec<String> {
    if !plan.learns() {
        return Vec::new();
    }
    let mut last: HashMap<&TaskId, u64> = HashMap::new();
    let todo = plan.trials.iter().zip(0..).map(|(trial, id)| {
        let after = trial.task_id.as_ref().and_then(|task| last.insert(task, id));
        Todo { id, chain: id, after, resources: Arc::clone(&trial.resources) }
    });
    let known = Known {
        plan,
        places: (0..).zip(0..plan.trials.len()).collect(),
        records: &HashMap::new(),
        asked: HashMap::new(),
        is_open: &|_| false,
        again: &Again::default(),
        is_refused: &|_| false,
    };
    divide(todo.collect(), &known).notes()
}

/// What is known of each group.
fn groups(todo: &[Todo], known: &Known<'_>) -> Groups {
    let submitted: HashSet<u64> = todo.iter().map(|t| t.id).collect();
    let mut groups = Groups::new();
    for (&id, &place) in &known.places {
        let trial = &known.plan.trials[place];
        let Some(learns) = &trial.learns else { continue };
        let attempts = known.records.get(&id).map_or(&[][..], |record| &record.attempts);
        for of in Of::ALL {
            let Some((learn, key)) = of.learn(learns).zip(key(of, learns, &trial.params)) else {
                continue;
            };
            let group = groups.entry(key).or_default();
            group.members += 1;
            let is_open = !submitted.contains(&id) && (known.is_open)(id);
            group.open += u64::from(is_open);
            group.begun += u64::from(is_open || !attempts.is_empty());
            if submitted.contains(&id) {
                group.fresh += u64::from(attempts.is_empty());
                group.repeated += u64::from(!attempts.is_empty());
            }
            let asked = known.asked.get(&id).and_then(|(_, request)| of.asked(request));
            let done = attempts.iter().find(|attempt| attempt.outcome() == Some(Outcome::Done));
            if let Some((used, enough)) = done.and_then(|done| of.used(done, learn.margin)) {
                // What was enough stays enough, and what was too little before was not.
                let given = |attempt: &Attempt| {
                    let own = attempt.start.resources.as_deref();
                    of.asked(own.unwrap_or(&trial.resources))
                };
                let short = attempts.iter().filter(|attempt| of.was_short(attempt));
                let is_short = short.filter_map(given).any(|short| enough <= short);
                let enough = match asked {
                    Some(asked) if is_short => asked,
                    asked => asked.map_or(enough, |asked| enough.min(asked)),
                };
                group.shown += 1;
                group.used = group.used.max(used);
                group.enough = group.enough.max(Some(enough));
            } else if done.is_none()
                && attempts.last().is_some_and(|last| of.was_short(last))
                && let Some(asked) = asked
            {
                // Where its repeat is on its way, that is what it was repeated with.
                let amount = if is_open { asked } else { more(of, asked, learn, known.plan) };
                group.short = group.short.max(Some(amount));
            }
        }
    }
    groups
}

/// What comes after a request that was too little: what `[retry]` repeats it with, otherwise what the first trials ask for.
fn more(of: Of, asked: u64, learn: &Learn, plan: &Plan) -> u64 {
    let growth = match of {
        Of::Memory => plan.retry.oom,
        Of::Walltime => plan.retry.timeout,
    };
    let grown = growth.and_then(|growth| growth.raise(asked));
    grown.or(learn.first).map_or(asked, |more| more.max(asked))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::testing::plan;

    /// A sweep that is submitted wave by wave; what its trials need is known to the test.
    struct World {
        plan: Plan,
        records: HashMap<u64, Record>,
        asked: HashMap<u64, (u32, Resources)>,
    }

    impl World {
        fn new(text: &str) -> Self {
            Self { plan: plan(text), records: HashMap::new(), asked: HashMap::new() }
        }

        fn divide(&self, open: &[u64]) -> Divided {
            let mut last: HashMap<&TaskId, u64> = HashMap::new();
            let todo = self.plan.trials.iter().zip(0..).filter_map(|(trial, id)| {
                let after = trial.task_id.as_ref().and_then(|task| last.insert(task, id));
                let is_over = self.records.contains_key(&id) || open.contains(&id);
                let resources = Arc::clone(&trial.resources);
                (!is_over).then_some(Todo { id, chain: id, after, resources })
            });
            let known = Known {
                plan: &self.plan,
                places: (0..).zip(0..self.plan.trials.len()).collect(),
                records: &self.records,
                asked: self.asked.clone(),
                is_open: &|trial| open.contains(&trial),
                again: &Again::default(),
                is_refused: &|_| false,
            };
            divide(todo.collect(), &known)
        }

        /// Runs what is submitted; a trial is killed where it needs more MiB than it has.
        fn run(&mut self, divided: &Divided, needs: impl Fn(u64) -> u64) {
            for t in &divided.todo {
                let has = t.resources.memory_mib.unwrap();
                let is_done = needs(t.id) <= has;
                let end = serde_json::json!({
                    "trial": t.id, "attempt": 1, "time": 1.0, "state": if is_done { "done" } else { "failed" },
                    "exit_code": 0, "cause": if is_done { None } else { Some("out-of-memory") },
                    "duration_s": 60.0, "peak_memory": needs(t.id).min(has) << 20,
                });
                let start = serde_json::json!({
                    "trial": t.id, "attempt": 1, "time": 0.0, "host": "n1", "pid": 1, "ranks": 1, "argv": [],
                    "version": "",
                });
                let start = serde_json::from_value(start).unwrap();
                let end = Some(serde_json::from_value(end).unwrap());
                let attempt = Attempt { end, ..Attempt::begun(start, 1, None) };
                let record = Record { attempts: vec![attempt], ..Record::default() };
                self.records.insert(t.id, record);
                self.asked.insert(t.id, (1, Resources::clone(&t.resources)));
            }
        }
    }

    fn ids(todo: &[Todo]) -> Vec<u64> {
        todo.iter().map(|t| t.id).collect()
    }

    fn memories(divided: &Divided) -> Vec<(u64, Option<u64>)> {
        divided.todo.iter().map(|t| (t.id, t.resources.memory_mib)).collect()
    }

    const BY_WIDTH: &str = "[resources]\nmemory = { first = \"4G\", by = [\"width\"] }\n[grid]\nwidth = [1, 2]\nseed = [1, 2, 3]\n";

    #[test]
    fn one_trial_of_each_value_shows_what_the_others_need() {
        let mut world = World::new(BY_WIDTH);
        let first = world.divide(&[]);
        assert_eq!(memories(&first), [(0, Some(4096)), (3, Some(4096))]);
        assert_eq!(ids(&first.held), [1, 2, 4, 5]);
        assert_eq!(first.notes(), ["2 trials to run first: 4 others to ask for what they use"]);
        // As long as they run, the others wait.
        let none = world.divide(&[0, 3]);
        assert_eq!((ids(&none.todo), ids(&none.held)), (vec![], vec![1, 2, 4, 5]));
        world.run(&first, |trial| if trial < 3 { 500 } else { 1000 });
        let rest = world.divide(&[]);
        assert_eq!(
            memories(&rest),
            [(1, Some(608)), (2, Some(608)), (4, Some(1216)), (5, Some(1216))]
        );
        assert_eq!(
            rest.notes(),
            [
                "memory 1216M: 1 trial with width = 2 used 1000M at most (trials 4-5)",
                "memory 608M: 1 trial with width = 1 used 500M at most (trials 1-2)",
            ]
        );
        assert_eq!(rest.learnt[0].memory_mib, Some(4096));
    }

    #[test]
    fn trials_that_had_too_little_do_not_hold_up_the_others() {
        let mut world = World::new(BY_WIDTH);
        let first = world.divide(&[]);
        world.run(&first, |trial| if trial < 3 { 5000 } else { 4000 });
        // What was enough stays enough, whatever the margin.
        let all = [(1, Some(4096)), (2, Some(4096)), (4, Some(4096)), (5, Some(4096))];
        assert_eq!(memories(&world.divide(&[])), all);
        let mut world = World::new(&format!(
            "{BY_WIDTH}[retry]\noom = {{ memory = \"x2\", up_to = \"6G\" }}\n"
        ));
        let first = world.divide(&[]);
        world.run(&first, |trial| if trial < 3 { 5000 } else { 100 });
        let all = [(1, Some(6144)), (2, Some(6144)), (4, Some(128)), (5, Some(128))];
        assert_eq!(memories(&world.divide(&[])), all);
    }

    #[test]
    fn a_repeat_that_is_on_its_way_is_not_enlarged_again() {
        let mut world = World::new(&format!("{BY_WIDTH}[retry]\noom = {{ memory = \"x2\" }}\n"));
        let mut first = world.divide(&[]);
        // One of width 1 is done, one had too little and was submitted again with twice as much.
        first.todo.push(Todo { id: 1, ..first.todo[0].clone() });
        world.run(&first, |trial| if trial == 1 { 5000 } else { 100 });
        let twice = Resources { memory_mib: Some(8192), ..Resources::default() };
        world.asked.insert(1, (2, twice));
        let memory = |divided: &Divided| divided.todo[0].resources.memory_mib;
        assert_eq!(memory(&world.divide(&[1])), Some(8192));
        assert_eq!(memory(&world.divide(&[])), Some(16384));
    }

    /// A program's memory may be gone from what was measured of it by the time that it has too little.
    #[test]
    fn what_was_too_little_for_one_is_not_asked_for_again() {
        let mut world = World::new(&format!("{BY_WIDTH}[retry]\noom = {{ memory = \"x2\" }}\n"));
        let first = world.divide(&[]);
        world.run(&first, |_| 100);
        let short = {
            let mut world = World::new(BY_WIDTH);
            let first = world.divide(&[]);
            world.run(&first, |_| 5000);
            world.records.remove(&0).unwrap().attempts.remove(0)
        };
        world.records.get_mut(&0).unwrap().attempts.insert(0, short);
        world.asked.insert(0, (2, Resources { memory_mib: Some(8192), ..Resources::default() }));
        let all = [(1, Some(8192)), (2, Some(8192)), (4, Some(128)), (5, Some(128))];
        assert_eq!(memories(&world.divide(&[])), all);
    }

    #[test]
    fn a_learnt_walltime_is_long_enough_for_the_signal() {
        let mut world = World::new(
            "run.signal = \"USR1@120\"\n[resources]\nmemory = \"1G\"\nwalltime = { first = \"2h\" }\n\
             [grid]\na = [1, 2]\n",
        );
        let first = world.divide(&[]);
        world.run(&first, |_| 100);
        assert_eq!(world.divide(&[]).todo[0].resources.walltime_s, Some(180));
    }

    #[test]
    fn a_tenth_of_many_trials_runs_first_spread_over_all() {
        let world = World::new("[resources]\nmemory = \"auto\"\n[replicates]\ncount = 40\n");
        let first = world.divide(&[]);
        assert_eq!(ids(&first.todo), [0, 10, 20, 30]);
        assert_eq!(first.held.len(), 36);
    }

    #[test]
    fn both_are_learnt_each_by_its_own_parameters() {
        let mut world = World::new(
            "[resources]\nmemory = { first = \"1G\", by = [\"a\"] }\nwalltime = { first = \"2h\", by = [\"b\"] }\n\
             [grid]\na = [1, 2]\nb = [1, 2]\nc = [1, 2]\n",
        );
        let first = world.divide(&[]);
        assert_eq!(ids(&first.todo), [0, 2, 4]);
        world.run(&first, |_| 100);
        let rest = world.divide(&[]);
        let asked = |t: &Todo| (t.resources.memory_mib, t.resources.walltime_s);
        assert_eq!(rest.todo.iter().map(asked).collect::<Vec<_>>(), [(Some(128), Some(120)); 5]);
    }

    #[test]
    fn of_chains_something_always_runs() {
        // The trial of each value that is to show it is behind others of its chain.
        let mut world = World::new(
            "[resources]\nmemory = { first = \"1G\", by = [\"link\"] }\n\
             [[trials]]\ntask_id = 1\nlink = 1\n[[trials]]\ntask_id = 1\nlink = 2\n\
             [[trials]]\ntask_id = 2\nlink = 1\n[[trials]]\ntask_id = 2\nlink = 2\n",
        );
        let mut waves = Vec::new();
        while world.records.len() < 4 {
            let divided = world.divide(&[]);
            waves.push(ids(&divided.todo));
            world.run(&divided, |_| 100);
        }
        assert_eq!(waves, [vec![0, 1], vec![2, 3]]);
    }

    /// Memory that depends on two parameters, and a little on a third.
    fn needs(trial: u64) -> u64 {
        let (width, depth, seed) = (trial / 40, trial / 10 % 4, trial % 10);
        let exact = 200 * (width + 1) + 90 * (width + 1) * depth;
        exact + exact * (seed * 7 % 10) / 100
    }

    #[test]
    fn two_hundred_trials_save_half_of_the_waste_and_are_not_killed() {
        let mut world = World::new(
            "[resources]\nmemory = { first = \"4G\", by = [\"width\", \"depth\"] }\n[grid]\nwidth = [1, 2, 3, 4, 5]\n\
             depth = [1, 2, 3, 4]\nseed = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n",
        );
        let first = world.divide(&[]);
        assert_eq!((first.todo.len(), first.held.len()), (20, 180));
        world.run(&first, needs);
        let rest = world.divide(&[]);
        assert_eq!(rest.todo.len(), 180);
        let asked = |t: &Todo| t.resources.memory_mib.unwrap();
        let killed = rest.todo.iter().filter(|t| needs(t.id) > asked(t)).count();
        let wasted: u64 = rest.todo.iter().map(|t| asked(t).saturating_sub(needs(t.id))).sum();
        let by_first: u64 = rest.todo.iter().map(|t| 4096 - needs(t.id)).sum();
        assert!(killed <= 4, "{killed}");
        assert!(wasted * 2 <= by_first, "{wasted} of {by_first}");
    }

    proptest! {
        /// Whatever the trials need and however they hang together, every one runs once.
        #[test]
        fn every_trial_is_submitted_once(
            chains in proptest::collection::vec(proptest::collection::vec(0u64..4, 1..5), 1..8),
            first in 100u64..600,
            oom in any::<bool>(),
        ) {
            let mut text = format!("[resources]\nmemory = {{ first = \"{first}M\", by = [\"kind\"] }}\n");
            if oom {
                text.push_str("[retry]\noom = { memory = \"x2\" }\n");
            }
            let mut kinds = Vec::new();
            for (task, links) in chains.iter().enumerate() {
                for kind in links {
                    text.push_str(&format!("[[trials]]\ntask_id = {task}\nkind = {kind}\n"));
                    kinds.push(*kind);
                }
            }
            let mut world = World::new(&text);
            let mut waves = 0;
            while world.records.len() < kinds.len() {
                let divided = world.divide(&[]);
                prop_assert!(!divided.todo.is_empty());
                prop_assert_eq!(
                    divided.todo.len() + divided.held.len() + world.records.len(),
                    kinds.len()
                );
                let kept = ids(&divided.todo);
                world.run(&divided, |trial| 150 * (kinds[trial as usize] + 1));
                prop_assert!(kept.iter().all(|trial| world.records.contains_key(trial)));
                waves += 1;
            }
            prop_assert!(waves <= kinds.len());
        }
    }
}
