//! The next wave of a submission: what is to be asked for of the plan, and how it becomes arrays.

use std::collections::HashMap;

use anyhow::Result;

use crate::base::words::{count, thousands};
use crate::cluster::scheduler::calls::Calls;
use crate::cluster::scheduler::{Places, Room, Scheduler};
use crate::plan::site::Site;
use crate::submit::arrays::batch::{ArrayOptions, Submission};
use crate::submit::arrays::due::{Demand, Due};
use crate::submit::arrays::feeder;
use crate::submit::arrays::mapping::{Mapped, Rules};
use crate::submit::arrays::portion::{Choice, FEEDER_PLACES, Portion};
use crate::submit::arrays::wave::{self, Before, Waves};
use crate::submit::grow::Todo;
use crate::submit::learn::{self, Divided};
use crate::submit::todo::{Holdings, Planned};
use crate::submit::{Source, check_requests, grow, retry, snapshot};
use crate::sweep::tree::Tree;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::records::Record;
use crate::sweep::tree::waves::{Array, Wave};
use crate::sweep::tree::{records, waves};

/// What is left to others when a wave was written down.
#[derive(Debug, Default)]
pub(crate) struct Next {
    /// Trials that a later submission is to submit, when the trials before them have ended.
    pub(crate) put_off: u64,
    /// Trials that have no place in the queue yet.
    pub(crate) left: u64,
    /// Trials that wait until others have shown what they need, and the arrays of those that were submitted before.
    pub(crate) held: u64,
    pub(crate) wait: Vec<u32>,
    /// The places of the queue, where it has none for anything of the sweep.
    pub(crate) full: Option<Room>,
    /// Whether a job of the sweep waits that submits what is left; `None`: nobody was asked.
    pub(crate) is_fed: Option<bool>,
}

/// The queue before a submission.
pub(crate) struct Queue {
    /// Its places, if something limits them.
    pub(crate) room: Option<Room>,
    /// Whether a feeder of the sweep is there; `None`: nobody was asked.
    pub(crate) fed: Option<bool>,
}

/// Elements of a scheduler's arrays that earlier submissions did not come to, and the last feeder if they did not come to that.
/// They are submitted before anything new.
pub(crate) fn missing(waves: &Waves, journal: &Journal, target: &str) -> u64 {
    let arrays = waves.arrays().map(|(wave, array, _)| (wave, array));
    let all = arrays.chain(waves.feeders().next_back());
    let missing =
        all.filter(|(wave, array)| wave.target == target && journal.job(array.array).is_none());
    missing.map(|(_, array)| array.count).sum()
}

/// Asks for the places of the queue, where the sweep needs so many, and for a feeder where that matters.
pub(crate) fn queue(
    (scheduler, calls): (&dyn Scheduler, &mut Calls),
    (tree, waves, journal): (&Tree, &Waves, &Journal),
    source: &Source,
    site: &Site,
    options: &ArrayOptions,
    (elements, missing): (u64, u64),
) -> Result<Queue> {
    let room = scheduler.room(calls, elements + missing, feeder::charged(source, site))?;
    let tried = options.at_most.map(Room::tried);
    let room = room.into_iter().chain(tried).min_by_key(Room::free);
    let room = room.map(|room| Room { kept: missing, ..room });
    let auto = source.plan.is_looked_after() || source.plan.learns();
    let is_short = room.as_ref().is_some_and(|room| elements + u64::from(auto) > room.free());
    let fed = match (is_short, auto) {
        (false, false) => None,
        // Another feeder does not know what is to run again.
        (true, _) if options.retry.is_wanted() => Some(false),
        _ => Some(feeder::is_fed(scheduler, calls, (tree, waves, journal), options)?),
    };
    Ok(Queue { room, fed })
}

/// Asks for the places of a routing queue, and leaves out the chains that must wait for another submission there. Returns the
/// places, where there is such a queue, and how many trials are left out.
pub(crate) fn put_off(
    (scheduler, calls): (&dyn Scheduler, &mut Calls),
    tree: &Tree,
    before: &Before<'_>,
    todo: &mut Vec<Todo>,
    tell: &mut impl FnMut(&str),
) -> Result<(Option<Places>, u64)> {
    let Some(places) = scheduler.places(calls)? else { return Ok((None, 0)) };
    let put_off = before.put_off(tree, todo, places.free())?;
    if put_off > 0 {
        tell(&format!(
            "{} put off: {places}, and what waits could take the places of what it waits for; submit again when the jobs \
             before have ended",
            count(put_off, "trial")
        ));
    }
    Ok((Some(places), put_off))
}

/// The places of a queue that are free for so many elements, without those that are kept for repeats.
fn free_places(room: &Room, kept: u64, elements: u64, tell: &mut impl FnMut(&str)) -> u64 {
    if kept > 0 && elements > 0 {
        tell(&format!("{} kept for trials that `[retry]` may repeat", count(kept, "place")));
    }
    room.free().saturating_sub(kept)
}

/// In how many parts a sweep is submitted.
pub(crate) struct Parts {
    /// Those after the first.
    pub(crate) later: u64,
    pub(crate) words: String,
}

/// The parts of a sweep of which a portion has become these arrays.
pub(crate) fn parts(room: &Room, portion: &Portion, arrays: &[Array]) -> Parts {
    let arrays = arrays.iter().filter(|array| array.is_of_trials());
    let placed: u64 = arrays.map(|array| array.count).sum();
    let later = room.submissions(portion.elements - placed);
    let words = format!(
        "{room}: {} now, {} later, in about {}",
        count(portion.todo.len() as u64, "trial"),
        thousands(portion.left.len() as u64),
        count(later, "further submission")
    );
    Parts { later, words }
}

impl Divided {
    /// The arrays that a feeder waits for: `earlier` ones and those of a wave. Where trials have no place (`is_short`), those of the
    /// wave, or half of them where it waits for whole arrays; where trials are held, the arrays that show what those need; otherwise all, because the feeder
    /// looks at what has failed.
    fn awaited(
        &self,
        (wave, map): (&Wave, &[u64]),
        earlier: impl Iterator<Item = u32>,
        (is_short, is_elementwise): (bool, bool),
    ) -> Vec<u32> {
        if is_short && !is_elementwise {
            return feeder::half(&wave.arrays);
        }
        if is_short {
            return wave.arrays.iter().map(|array| array.array).collect();
        }
        let shows = |array: &&Array| {
            self.held.is_empty() || array.trials(map).iter().any(|t| self.first.contains(t))
        };
        earlier.chain(wave.arrays.iter().filter(shows).map(|array| array.array)).collect()
    }
}

impl Submission<'_> {
    /// Writes down a wave with all that is to be asked for and has a place in the queue, where that is anything.
    pub(crate) fn next_wave(
        &mut self,
        source: &Source,
        options: &ArrayOptions,
        all: &mut Waves,
        tell: &mut impl FnMut(&str),
    ) -> Result<Next> {
        let (diff, site, mut notes) = (self.diff, self.site, Vec::new());
        let target = self.scheduler.facts().kind.word();
        let added = grow::added(&self.tree, source, diff)?.0;
        let submitted = Demand {
            planned: Planned::new(&self.tree, source, diff, &added)?,
            journal: &self.journal,
            again: &options.retry,
            ask: &|| retry::without_success(&self.tree, &self.identity, site, self.environment),
        };
        let mut due = Due::find(&submitted, target, all, &mut notes)?;
        let records = if diff.known > 0 { records::all(&self.tree)? } else { HashMap::new() };
        due.look_behind(&submitted, all, &records, &mut notes)?;
        let before = Before::new(all, &self.journal, &due.retried.busy);
        let (decided, taken) = due.decide(&submitted, (all, &before), &records)?;
        // A feeder decides about these by `[retry]`, and does what a person was told before.
        let asks = options.feeder.is_none() && !source.plan.retry.auto;
        notes.extend(decided.note(&options.retry, source.author()).filter(|_| asks));
        notes.iter().for_each(|words| tell(words));
        let todo = decided.todo;
        let pack = source.plan.schedule.pack.map_or(1, u64::from);
        let elements = (todo.len() as u64).div_ceil(pack);
        let known = (&self.tree, &*all, &self.journal);
        let asked = (&*self.scheduler, &mut self.calls);
        let missing = missing(all, &self.journal, target);
        let Queue { room, fed } = queue(asked, known, source, site, options, (elements, missing))?;
        let auto = source.plan.is_looked_after();
        let is_fed = fed == Some(true);
        if let Some(room) = &room {
            self.check_room(source, room, (&todo, &before, &records))?;
        }
        // A place for an element, and one for the feeder.
        let least = if is_fed { 1 } else { (elements + u64::from(auto)).min(2) };
        // A feeder that begins when one element has ended waits until about half of the queue is free.
        let waits = options.feeder.is_some() && !options.is_impatient;
        let half = room.as_ref().filter(|_| waits && self.scheduler.facts().is_elementwise);
        let least = half.map_or(least, |room| least.max(elements.min(room.limit / 2)));
        let keeps = is_fed && options.feeder.is_none() && source.plan.retry.auto;
        let kept = if keeps { before.repeated(&records) } else { 0 };
        let free = room.as_ref().map(|room| free_places(room, kept, elements, tell));
        if elements > 0
            && let Some(room) = room.as_ref().filter(|_| free.is_some_and(|free| free < least))
        {
            let left = todo.len() as u64;
            // What earlier submissions did not come to is submitted: the queue may have no place for anything else.
            let is_missing = missing > 0;
            if (is_fed || is_missing) && options.feeder.is_none() {
                // The feeder submits what the sweep has.
                self.grow(source, options, (&todo, &records), tell)?;
            }
            let full = (!is_missing).then(|| room.clone());
            return Ok(Next { left, full, is_fed: fed, ..Next::default() });
        }
        if options.feeder.is_none() {
            self.grow(source, options, (&todo, &records), tell)?;
        }
        let known = (&*all, &records, &taken);
        let mut divided = self.divide(source, options, todo, known);
        divided.notes().iter().for_each(|note| tell(note));
        let mut todo = std::mem::take(&mut divided.todo);
        let waits = self.max_running.is_some() || todo.iter().any(|t| t.after.is_some());
        let asked = (&*self.scheduler, &mut self.calls);
        let (places, put_off) = match waits {
            true => put_off(asked, &self.tree, &before, &mut todo, tell)?,
            false => (None, 0),
        };
        if todo.is_empty() {
            let held = divided.held.len() as u64;
            let open = if held > 0 { before.open(&records) } else { Vec::new() };
            let wait = open.into_iter().map(|(array, _)| array).collect();
            return Ok(Next { put_off, held, wait, is_fed: fed, ..Next::default() });
        }
        let rules = self.rules(source, places);
        let target = self.scheduler.facts().kind.word();
        let known = (&before, &records);
        let choice = Choice { tree: &self.tree, target, rules, before: &before, records: &records };
        let is_followed = auto || !divided.held.is_empty();
        let portion = choice.within(free, todo, (is_fed, is_followed))?;
        let is_awaited = !portion.left.is_empty() || !divided.held.is_empty();
        let again = (&due.retried, (auto || is_awaited) && !is_fed);
        let (wave, mapped) =
            self.write_wave(source, options, (&portion, &mut divided), known, again)?;
        let Portion { todo, left, rules, .. } = &portion;
        self.explain(todo.len(), rules, &mapped, tell);
        if let Some(room) = room.filter(|_| !left.is_empty()) {
            tell(&parts(&room, &portion, &wave.arrays).words);
        }
        *all = Waves { given_up: std::mem::take(&mut all.given_up), ..Waves::read(&self.tree)? };
        let (left, held) = (left.len() as u64, divided.held.len() as u64);
        Ok(Next { put_off, left, held, is_fed: fed, ..Next::default() })
    }

    /// Writes a portion down as a wave, with a feeder behind it where that `needs_feeder` to repeat trials or to submit more.
    /// Returns the wave, and how its chains are mapped.
    fn write_wave(
        &self,
        source: &Source,
        options: &ArrayOptions,
        (portion, divided): (&Portion, &mut Divided),
        (before, records): (&Before<'_>, &HashMap<u64, Record>),
        (again, needs_feeder): (&retry::Retry, bool),
    ) -> Result<(Wave, Mapped)> {
        let Portion { todo, left, rules, .. } = portion;
        let target = self.scheduler.facts().kind.word();
        let (mut wave, order, mapped) =
            wave::plan(&self.tree, target, todo, rules, before, records)?;
        wave.ended = again.ended(&order);
        if needs_feeder {
            let repeats = options.retry.repeats(left, &again.bad);
            let earlier = before.open(records).into_iter().map(|(array, _)| array);
            let is_elementwise = self.scheduler.facts().is_elementwise;
            let is_short = !left.is_empty();
            let wait = divided.awaited((&wave, &order), earlier, (is_short, is_elementwise));
            let of = (wave.arrays.as_slice(), order.len() as u64);
            let is_learning = !divided.held.is_empty();
            wave.arrays.push(self.feeder_of(source, options, of, (wait, is_learning), repeats));
        }
        wave.learnt = std::mem::take(&mut divided.learnt);
        waves::write(&self.tree, &wave, &order)?;
        Ok((wave, mapped))
    }

    /// Refuses trials that need a feeder, if the queue never has the places for one.
    fn check_room(
        &self,
        source: &Source,
        room: &Room,
        (todo, before, records): (&[Todo], &Before<'_>, &HashMap<u64, Record>),
    ) -> Result<()> {
        if room.limit >= FEEDER_PLACES {
            return Ok(());
        }
        let (tree, kind) = (&self.tree, self.scheduler.facts().kind);
        let rules = self.rules(source, None);
        let choice = Choice { tree, target: kind.word(), rules, before, records };
        let (elements, _) = choice.elements(todo, &choice.rules)?;
        Ok(feeder::check_places(source, kind, room, elements)?)
    }

    /// Stores the code of a submission, and adds the new trials of its plan to the sweep.
    fn grow(
        &self,
        source: &Source,
        options: &ArrayOptions,
        (todo, records): (&[Todo], &HashMap<u64, Record>),
        tell: &mut impl FnMut(&str),
    ) -> Result<()> {
        let again = todo.iter().map(|t| t.id).filter(|trial| *trial < self.diff.known);
        let (tree, known) = (&self.tree, (&options.retry, records));
        let notes = snapshot::keep(tree, source, self.diff, again, known, self.environment)?;
        notes.iter().for_each(|note| tell(note));
        grow::grow(tree, source, self.diff, self.templates, self.site)
    }

    /// Divides the trials into those that are submitted now and those that wait until others have shown what they need.
    fn divide(
        &self,
        source: &Source,
        options: &ArrayOptions,
        todo: Vec<Todo>,
        (waves, records, taken): (&Waves, &HashMap<u64, Record>, &Holdings),
    ) -> Divided {
        if !source.plan.learns() {
            return Divided { todo, ..Divided::default() };
        }
        let places = waves.places();
        let is_left = |trial: u64| {
            let place = places.get(&trial);
            place.is_some_and(|(array, _)| !self.journal.is_cancelled(*array, trial))
        };
        let is_unended = |trial: u64| {
            records.get(&trial).is_none_or(Record::is_open) || taken.coming.contains(&trial)
        };
        let is_open = |trial: u64| match &self.open_trials {
            Some(open) => open.contains(&trial),
            None => taken.in_hand.contains(&trial) && is_left(trial) && is_unended(trial),
        };
        let (site, kind) = (self.site, self.scheduler.facts().kind);
        let is_refused = |request: &_| check_requests(source, &[request], site, kind).is_err();
        let of = (&source.plan, self.diff, waves);
        learn::divide(todo, &learn::Known::new(of, records, &is_open, &options.retry, &is_refused))
    }

    /// What decides about the arrays of a wave.
    fn rules(&self, source: &Source, places: Option<Places>) -> Rules {
        let own = Rules::of(&source.plan, self.site, self.scheduler.facts());
        Rules { max_running: self.max_running, ..own.within(self.scheduler.limits(), places) }
    }

    /// Says why a wave of so many trials has the arrays that it has.
    fn explain(&self, trials: usize, rules: &Rules, mapped: &Mapped, tell: &mut impl FnMut(&str)) {
        rules.notes(&*self.scheduler, trials).iter().for_each(|note| tell(note));
        if !mapped.why.is_empty() {
            tell(&format!("chains as {}: {}", mapped.mapping.word(), mapped.why));
        }
    }
}
