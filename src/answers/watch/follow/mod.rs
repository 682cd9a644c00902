//! Follows a sweep: reads what is new, and that alone.
//!
//! If agents run the sweep, a look costs one small read for each new entry of the ledger, one query of the size
//! of each living agent's bundle, and reading what was appended to it. Without agents, everything is read as
//! `status` reads it, and seldom.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use rayon::prelude::*;

use super::Frame;
use super::best::Parameters;
use super::model::{Dealt, Elsewhere, Model};
use super::whole::{Asking, Whole};
use crate::answers::collect::{Goal, text};
use crate::base::host::{clock, disk, threads};
use crate::sweep::standing::State;
use crate::sweep::status;
use crate::sweep::tree::bundle::{self, Placed};
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::ledger::{self, Agent, Gone, Ledger};
use crate::sweep::tree::records::{self, Outcome};
use crate::sweep::tree::terms::Dropped;
use crate::sweep::tree::{Identity, Tree, line, table, terms};

/// Bytes of a bundle that are read at once. Lines take several times as much as they are read.
const CHUNK: u64 = 1 << 20;

/// Bundles that are read at once.
const ABREAST: usize = 8;

/// What an agent has written before it left may be seen so much later, seconds: others may look at the same file
/// system through another host.
const LATE_S: f64 = 120.0;

/// The value of [`Watcher::most`], unless one look is to read all trials.
const MOST_READ: usize = 1_000;

/// Looking takes at most one in so many parts of the time.
const SHARE: u32 = 10;

/// What looking has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Files asked for their size.
    pub(crate) stamps: u64,
    /// Files opened and read: bundles, entries of the ledger, decks.
    pub(crate) files: u64,
    /// Bytes read of bundles.
    pub(crate) bytes: u64,
    /// Times that the records of all trials were read.
    pub(crate) wholes: u64,
}

/// A sweep that is watched.
pub struct Watcher {
    tree: Tree,
    identity: Identity,
    asking: Asking,
    wish: Option<(String, Goal)>,
    /// Trials whose metric is read in one look, where no agents run the sweep.
    most: usize,
    /// The best trial of the last frame and its parameters.
    described: RefCell<Option<(u64, Parameters)>>,
    decks: Vec<Deck>,
    engine: Engine,
    cost: Cost,
    took: Duration,
}

enum Engine {
    Agents(Box<Agents>),
    Whole(Box<Whole>),
}

/// A sweep that agents run.
struct Agents {
    model: Model,
    bundles: HashMap<String, Bundle>,
    /// Of the bytes to read: those that were read, and all.
    progress: (u64, u64),
    /// Whether workers of another kind have left records.
    mixed: bool,
    /// Damage besides that of bundles and ledger.
    damage: Damage,
}

/// How far a bundle has been read.
#[derive(Debug, Default)]
struct Bundle {
    /// Bytes that were read as whole lines.
    read: u64,
    /// The same with what was seen of the line behind them, which has not ended there.
    seen: u64,
    /// Bytes of the file when its size was asked for last.
    length: u64,
    /// Whether it turned out to be shorter than its size: to be tried again with the next look.
    short: bool,
    /// Lines that are damaged.
    damaged: u64,
    /// When its agent was seen to have gone, unix seconds.
    gone: Option<f64>,
    /// Nothing more will come.
    closed: bool,
}

/// A piece of a bundle.
struct Part {
    name: String,
    /// Bytes that were read for it.
    cost: u64,
    lines: Vec<Placed>,
    /// Lines that are damaged.
    damaged: u64,
    /// Where its last whole line ends.
    end: u64,
    /// The new [`Bundle::seen`], after this piece.
    seen: u64,
    /// The new [`Bundle::short`], after this piece.
    short: bool,
}

impl Watcher {
    /// A sweep of which nothing has been read yet.
    pub fn new(tree: Tree, identity: Identity, asking: Asking) -> Self {
        let engine = Engine::Whole(Box::default());
        let (decks, cost, took) = (Vec::new(), Cost::default(), Duration::ZERO);
        let (wish, most, described) = (None, MOST_READ, RefCell::default());
        Self { tree, identity, asking, wish, most, described, decks, engine, cost, took }
    }

    /// Trials are compared by this metric; without one, by one that its name tells. With `at_once`, the first look reads the
    /// metric of all trials.
    pub(crate) fn compare_by(&mut self, wish: Option<(String, Goal)>, at_once: bool) {
        (self.wish, self.most) = (wish, if at_once { usize::MAX } else { MOST_READ });
        self.begin_whole();
    }

    fn begin_whole(&mut self) {
        let mut whole = Whole::default();
        whole.compare_by(self.wish.as_ref(), self.most);
        self.engine = Engine::Whole(Box::new(whole));
    }

    /// The parameters of a trial as text: a few small reads, once for each best trial.
    fn parameters(&self, trial: u64) -> Parameters {
        if let Some((known, parameters)) = &*self.described.borrow()
            && *known == trial
        {
            return parameters.clone();
        }
        let parameters = self.read_parameters(trial).unwrap_or_default();
        *self.described.borrow_mut() = Some((trial, parameters.clone()));
        parameters
    }

    fn read_parameters(&self, trial: u64) -> Result<Parameters> {
        let of = |trial: u64| table::find(&self.tree, trial).map(|(_, row)| row.params.clone());
        let end = table::heads(&self.tree)?.last().map_or(0, |head| head.first + head.count);
        let (own, first, last) = (of(trial)?, of(0)?, of(end.saturating_sub(1))?);
        let is_varied = |name: &&str| first.get(name) != last.get(name);
        let names = || own.iter().map(|(name, _)| name);
        let varied = names().filter(is_varied).map(str::to_owned).collect();
        let all = own.iter().map(|(name, value)| (name.to_string(), text(&value.to_json())));
        Ok(Parameters { all: all.collect(), varied })
    }

    /// Reads what is new, for about `patience`; `true` if that was not enough.
    ///
    /// # Errors
    /// When the tree cannot be read. The next look continues where this one stopped.
    pub fn look(&mut self, patience: Duration) -> Result<bool> {
        let since = Instant::now();
        let more = self.look_from(since, patience);
        self.took = since.elapsed();
        more
    }

    fn look_from(&mut self, since: Instant, patience: Duration) -> Result<bool> {
        let new = deck::after(&self.tree, &self.decks)?;
        let news = new.len();
        self.decks.extend(new);
        self.cost.files += news as u64;
        if self.decks.is_empty() {
            return self.look_at_all();
        }
        let total = deck::total(&self.decks);
        // When agents get more trials, workers that ran trials before them are looked for again.
        let is_stale = matches!(&self.engine, Engine::Agents(agents) if news > 0 && agents.mixed);
        if is_stale || matches!(self.engine, Engine::Whole(_)) {
            let mixed = self.others_ran()?;
            if mixed && self.ledger()?.is_over(total) {
                return self.look_at_all();
            }
            let mut agents = Agents::new(&self.tree, &self.identity, mixed)?;
            agents.model.compare_by(self.wish.as_ref());
            self.cost.wholes += u64::from(mixed);
            self.engine = Engine::Agents(Box::new(agents));
        }
        let Engine::Agents(agents) = &mut self.engine else { return Ok(false) };
        if news > 0 || agents.model.trials() == 0 {
            agents.model.has_trials(table::count(&self.tree)?);
            // Its damage was reported with that of the other files.
            let terms = terms::readable(&self.tree, 1, &mut Damage::default())?;
            agents.model.dropped = terms.dropped;
            agents.model.dealt = dealt(&self.tree, &self.decks, &agents.model.dropped);
        }
        let deck = self.decks.last();
        agents.model.patience_s = deck.map_or(f64::INFINITY, |deck| deck.pull.patience_s());
        let more = agents.look(&self.tree, since + patience, &mut self.cost)?;
        if !more && agents.model.ledger.is_over(total) && self.others_ran()? {
            // Agents are through, and others may be at it now.
            return self.look_at_all();
        }
        Ok(more)
    }

    fn look_at_all(&mut self) -> Result<bool> {
        self.cost.wholes += 1;
        if !matches!(self.engine, Engine::Whole(_)) {
            self.begin_whole();
        }
        if let Engine::Whole(whole) = &mut self.engine {
            whole.look(&self.tree, &self.identity, &self.asking)?;
        }
        Ok(false)
    }

    /// The whole ledger, for one question.
    fn ledger(&mut self) -> Result<Ledger> {
        let ledger = Ledger::read(&self.tree)?;
        self.cost.files += ledger.seq;
        Ok(ledger)
    }

    /// Whether trials were run by others than agents, or given to a scheduler.
    fn others_ran(&mut self) -> Result<bool> {
        for name in ["records", "waves"] {
            self.cost.stamps += 1;
            if disk::stamp(&self.tree.dir().join(name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How the sweep stands at `now` (unix seconds), as far as it was read.
    pub fn frame(&self, now: f64) -> Frame {
        let mut frame = match &self.engine {
            Engine::Whole(whole) => whole.frame(&self.identity.name, now),
            Engine::Agents(agents) => agents.frame(now),
        };
        if let Some(best) = &mut frame.best {
            best.parameters = self.parameters(best.trial);
        } else if let Some((name, _)) = &self.wish
            && frame.count(&State::Done) > 0
        {
            frame.notes.push(format!("no trial that is done has a metric `{name}`"));
        }
        frame
    }

    /// How long to wait before the next look, if the user wants one every `interval`.
    pub(crate) fn pause(&self, interval: Duration) -> Duration {
        interval.max(self.took * SHARE)
    }
}

impl Agents {
    fn new(tree: &Tree, identity: &Identity, mixed: bool) -> Result<Self> {
        let mut model = Model::new(&identity.name);
        let mut damage = status::damage_of_submissions(tree, identity)?;
        if mixed {
            model.elsewhere(elsewhere(tree, &mut damage)?);
        }
        Ok(Self { model, bundles: HashMap::new(), progress: (0, 0), mixed, damage })
    }

    fn look(&mut self, tree: &Tree, until: Instant, cost: &mut Cost) -> Result<bool> {
        // The ledger comes before the bundles: an agent that took a trial over did so after the last line of the
        // other agent that counts.
        let before = self.model.ledger.seq;
        self.model.ledger.follow(tree)?;
        cost.files += self.model.ledger.seq - before;
        let now = clock::now();
        let Self { model, bundles, .. } = self;
        let mut signs = Vec::new();
        for (name, agent) in &model.ledger.agents {
            let bundle = bundles.entry(name.clone()).or_default();
            if bundle.closed {
                continue;
            }
            cost.stamps += 1;
            let stamp = disk::stamp(&tree.agent_file(name, "jsonl"))?;
            if let Some((length, modified)) = stamp {
                (bundle.length, bundle.short) = (length, false);
                signs.push((name.clone(), modified));
            }
            bundle.mark(agent, stamp.map(|(_, modified)| modified), now);
        }
        for (name, modified) in signs {
            model.seen(&name, modified, now);
        }
        self.read(tree, until, cost)
    }

    /// Reads what was appended, some bundles at a time.
    fn read(&mut self, tree: &Tree, until: Instant, cost: &mut Cost) -> Result<bool> {
        let Self { model, bundles, .. } = self;
        let mut names: Vec<String> =
            bundles.iter().filter(|(_, b)| b.is_behind()).map(|(name, _)| name.clone()).collect();
        // The same order every time, whatever a map's.
        names.sort_unstable();
        while !names.is_empty() {
            let batch = &names[..names.len().min(ABREAST)];
            let read = |name: &String| bundles[name].read_on(tree, name);
            let parts: Result<Vec<Part>> = match batch {
                [one] => read(one).map(|part| vec![part]),
                several => threads::in_parallel(|| several.par_iter().map(read).collect()),
            };
            for part in parts? {
                (cost.files, cost.bytes) = (cost.files + 1, cost.bytes + part.cost);
                if let Some(bundle) = bundles.get_mut(&part.name) {
                    bundle.has_read(&part);
                }
                model.feed(&part.name, part.lines);
            }
            names.retain(|name| bundles[name].is_behind());
            if Instant::now() >= until {
                break;
            }
        }
        self.progress = bundles.values().fold((0, 0), |(read, all), bundle| {
            (read + bundle.read, all + bundle.length.max(bundle.read))
        });
        Ok(!names.is_empty())
    }

    fn frame(&self, now: f64) -> Frame {
        let mut frame = self.model.frame(now);
        let mut damage = self.damage.clone();
        for (name, bundle) in &self.bundles {
            damage.add(&bundle::name(name), bundle.damaged);
        }
        self.model.ledger.damaged.iter().for_each(|seq| damage.add(&ledger::name(*seq), 1));
        frame.damage = damage.settle(|_| true);
        let (read, all) = self.progress;
        if self.bundles.values().any(Bundle::is_behind) {
            let percent = read * 100 / all.max(1);
            frame.notes.insert(0, format!("still reading what agents have recorded: {percent} %"));
        }
        frame
    }
}

impl Bundle {
    /// Whether there is something to read.
    fn is_behind(&self) -> bool {
        !self.closed && !self.short && self.length > self.seen
    }

    /// A piece, from where it was left on. A line of several pieces is held once its end has been seen, and not before.
    fn read_on(&self, tree: &Tree, name: &str) -> Result<Part> {
        let path = tree.agent_file(name, "jsonl");
        let is_within = self.seen - self.read >= CHUNK;
        let from = if is_within { self.seen } else { self.read };
        let mut bytes = disk::read_at(&path, from, CHUNK)?;
        let (mut cost, is_full) = (bytes.len() as u64, bytes.len() as u64 == CHUNK);
        let upto = from + cost;
        if is_within {
            let len = if bytes.contains(&b'\n') { upto - self.read } else { 0 };
            bytes = disk::read_at(&path, self.read, len)?;
            cost += bytes.len() as u64;
        }
        let (lines, end, torn) = bundle::lines(&bytes, self.read);
        // Bytes after the last line of a full piece are read again with the next.
        let seen = if is_full && end > self.read { end } else { upto };
        let short = !is_full && upto < self.length;
        Ok(Part { name: name.to_owned(), cost, lines, damaged: torn as u64, end, seen, short })
    }

    fn has_read(&mut self, part: &Part) {
        (self.read, self.seen, self.short) = (part.end, part.seen, part.short);
        self.damaged += part.damaged;
        if self.seen - self.read >= line::LONGEST {
            (self.closed, self.damaged) = (true, self.damaged + 1);
        }
    }

    /// Takes into account that its agent may have gone.
    fn mark(&mut self, agent: &Agent, modified: Option<f64>, now: f64) {
        let Some(gone) = &agent.gone else { return };
        let since = *self.gone.get_or_insert(now);
        let all_that_counts = matches!(gone, Gone::Fenced(size) if self.read >= *size);
        let late = now - since >= LATE_S || modified.is_none_or(|time| now - time >= LATE_S);
        self.closed = all_that_counts || (late && self.length <= self.seen);
    }
}

/// Where the decks have these trials. A damaged deck is reported as such, and its trials are skipped.
fn dealt(tree: &Tree, decks: &[Deck], dropped: &Dropped) -> Vec<Dealt> {
    let mut all = Vec::new();
    for deck in decks.iter().filter(|_| !dropped.is_empty()) {
        let units = deck::units(tree, decks, deck.first, deck.count).unwrap_or_default();
        for (unit, trials) in (deck.first..).zip(units) {
            let gone = trials.into_iter().filter(|trial| dropped.has(*trial));
            all.extend(gone.map(|trial| Dealt { trial, unit, seq: deck.seq }));
        }
    }
    all
}

/// Trials that ended before agents came.
fn elsewhere(tree: &Tree, damage: &mut Damage) -> Result<Vec<Elsewhere>> {
    let records = records::of_workers(tree, damage)?;
    let mut all: Vec<Elsewhere> = records
        .iter()
        .filter_map(|(trial, record)| {
            let attempt = record.decisive()?;
            // Whatever was interrupted agents have been given.
            let state = attempt.outcome().filter(|state| *state != Outcome::Interrupted)?;
            let end = attempt.end.as_ref();
            Some(Elsewhere {
                trial: *trial,
                state,
                time: end.map_or(attempt.start.time, |end| end.time),
                seq: attempt.start.seq,
                duration_s: end.map_or(0.0, |end| end.duration_s),
                host: attempt.start.host.clone(),
                reason: attempt.why(),
                cause: attempt.cause(),
            })
        })
        .collect();
    all.sort_unstable_by_key(|end| end.trial);
    Ok(all)
}

#[cfg(test)]
mod tests;
