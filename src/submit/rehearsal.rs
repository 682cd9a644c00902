//! What a submission of a sweep that is there would do now. Asks the scheduler how trials stand, and writes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;

use super::grow::{self, Diff, Todo};
use super::mapping::Rules;
use super::pilots::{self, Ask};
use super::wave::{self, Before, Failures, Waves};
use super::{Source, amend, deal, hands, local, retry};
use crate::host::Vars;
use crate::plan::OnFailure;
use crate::site::{SchedulerKind, Site};
use crate::status::{self, Status};
use crate::tree::journal::Journal;
use crate::tree::ledger::Ledger;
use crate::tree::table::{self, Row};
use crate::tree::waves::Array;
use crate::tree::{Tree, deck};

/// How a sweep is submitted.
#[derive(Debug, Clone, Copy)]
pub enum How<'a> {
    /// Run here.
    Local,
    /// As arrays of a scheduler.
    Arrays(SchedulerKind, &'a Rules),
    /// To agents, by pilots where there is a scheduler.
    Pull(Option<SchedulerKind>, &'a pilots::Options),
}

/// A trial that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// Its number in the sweep.
    pub trial: u64,
    /// Its place in the plan.
    pub place: usize,
    /// How it stands: `new`, or the word of its state.
    pub state: String,
}

/// What would be done.
pub struct Rehearsal {
    /// The sweep.
    pub tree: Tree,
    /// What to say of its trials that the plan no longer has.
    pub left_alone: Option<String>,
    /// How many those are.
    pub dropped: u64,
    /// Trials that would run, by their numbers.
    pub runs: Vec<Runs>,
    /// The plan's other trials, by state.
    pub left: BTreeMap<String, u64>,
    /// Arrays that would be submitted: those that earlier submissions did not come to, then new ones.
    pub arrays: Vec<Array>,
    /// Why chains would become the jobs that they do; empty where there is no choice.
    pub why: String,
    /// Units that agents would be dealt, and pilots that would be submitted for them.
    pub units: Option<(u64, Option<u64>)>,
    /// What else would be said.
    pub notes: Vec<String>,
}

/// What submitting a plan would do; `None` where its sweep is not there yet.
///
/// # Errors
/// As the submission itself, before it writes anything.
pub fn of(
    source: &Source,
    site: &Site,
    how: How<'_>,
    again: bool,
    environment: &Vars,
) -> Result<Option<Rehearsal>> {
    let tree = source.tree();
    let Some(identity) = tree.identity()? else { return Ok(None) };
    if !matches!(how, How::Arrays(..)) {
        retry::refuse_if_queued(&tree, &identity, site, environment)?;
    }
    if !matches!(how, How::Pull(..)) {
        deal::refuse_if_dealt(&tree)?;
    }
    let diff = grow::diff(&tree, source)?;
    super::check_growth(&source.plan, site, &diff)?;
    let status = match again {
        true => status::of_all_open_or_bad(tree.clone(), identity.clone(), site, environment)?,
        false => status::of(tree.clone(), identity.clone(), site, environment, true)?,
    };
    let mut all = Rehearsal {
        left_alone: diff.left_alone(),
        dropped: diff.dropped(),
        runs: Vec::new(),
        left: BTreeMap::new(),
        arrays: Vec::new(),
        why: String::new(),
        units: None,
        notes: Vec::new(),
        tree,
    };
    let now = Now { source, diff: &diff, status: &status, again };
    let runs = match how {
        How::Local => now.local(&all.tree)?,
        How::Arrays(kind, rules) => {
            let retried = match again {
                true => Some(retry::without_success(&all.tree, &identity, site, environment)?),
                false => None,
            };
            all.notes.extend(retried.as_ref().and_then(retry::Retry::note));
            let bad = retried.map(|retried| retried.bad).unwrap_or_default();
            now.arrays(&mut all, kind, rules, &bad)?
        }
        How::Pull(kind, options) => now.pull(&mut all, kind, options)?,
    };
    now.sort(&mut all, &runs);
    Ok(Some(all))
}

/// A plan, and how its sweep stands.
struct Now<'a> {
    source: &'a Source,
    diff: &'a Diff,
    status: &'a Status,
    again: bool,
}

impl Now<'_> {
    /// The trials that would run here.
    fn local(&self, tree: &Tree) -> Result<HashSet<u64>> {
        let mut rows = table::rows(tree)?;
        let (added, places) = grow::added(tree, self.source, self.diff)?;
        let row = |(todo, (chain, link)): (&Todo, &(u64, u64))| Row {
            chain: *chain,
            link: *link,
            after: todo.after,
            ..Row::unknown(todo.id)
        };
        rows.extend(added.iter().zip(&places).map(row));
        // What the plan says holds from its first new trial on.
        let stops = match added.is_empty() {
            true => grow::on_failure(&table::heads(tree)?) == OnFailure::Stop,
            false => self.source.plan.run.on_failure == OnFailure::Stop,
        };
        let (chains, _) = local::chains(&rows, &self.status.records, self.diff, stops, self.again);
        let alive = chains.iter().filter(|chain| !chain.dead);
        Ok(alive.flat_map(|chain| &chain.links).map(|&i| rows[i].id).collect())
    }

    /// The trials that would be elements of arrays; `bad`: those that are to be run again.
    fn arrays(
        &self,
        all: &mut Rehearsal,
        kind: SchedulerKind,
        rules: &Rules,
        bad: &HashSet<u64>,
    ) -> Result<HashSet<u64>> {
        let journal = Journal::read(&all.tree)?;
        let mut waves = Waves::read(&all.tree)?;
        // What has no answer is looked for by the submission itself.
        let mut has_job = |array: &Array, _: &[u64], _| Ok(journal.job(array.array).is_some());
        let amended =
            amend::amend(&mut waves, kind.word(), self.diff, &mut has_job, &mut all.notes)?;
        let mut covered = waves.covered();
        covered.retain(|trial| !amended.due.contains(trial) && !bad.contains(trial));
        let records = &self.status.records;
        all.notes.extend(amended.note(records, &covered));
        let before = Before::new(&waves, &journal);
        let coming = before.coming(records);
        let failures = Failures { retry: self.again, due: amended.due, coming };
        let mut todo = wave::left_over(&all.tree, self.diff, &covered, records, &failures)?.todo;
        todo.extend(grow::added(&all.tree, self.source, self.diff)?.0);
        let mut runs: HashSet<u64> = todo.iter().map(|todo| todo.id).collect();
        for (wave, array, trials) in waves.arrays() {
            if wave.target == kind.word() && journal.job(array.array).is_none() {
                runs.extend(trials);
                all.arrays.push(array.clone());
            }
        }
        if !todo.is_empty() {
            let (wave, _, mapped) =
                wave::plan(&all.tree, kind.word(), &todo, rules, &before, records)?;
            all.arrays.extend(wave.arrays);
            all.why = mapped.why;
        }
        Ok(runs)
    }

    /// The trials that agents would be dealt.
    fn pull(
        &self,
        all: &mut Rehearsal,
        kind: Option<SchedulerKind>,
        options: &pilots::Options,
    ) -> Result<HashSet<u64>> {
        let decks = deck::read(&all.tree)?;
        let ledger = Ledger::read(&all.tree)?;
        let records = &self.status.records;
        let covered = hands::in_hand(&all.tree, &decks, &ledger, records)?;
        let failures = Failures { retry: self.again, ..Failures::default() };
        let old = wave::left_over(&all.tree, self.diff, &covered, records, &failures)?;
        let added = grow::added(&all.tree, self.source, self.diff)?.0;
        let todo = deal::behind(old, added);
        let units: HashSet<u64> = todo.iter().map(|todo| todo.chain).collect();
        let units = units.len() as u64;
        let pilots = kind.map(|_| {
            let there = self.status.pilots.iter().any(status::pilots::Pilots::will_work);
            let open = units + pilots::left(&ledger, deck::total(&decks));
            if there { 0 } else { Ask::of(&self.source.plan, options).count(open) }
        });
        all.units = Some((units, pilots));
        Ok(todo.iter().map(|todo| todo.id).collect())
    }

    /// Tells the plan's trials that would run from the others.
    fn sort(&self, all: &mut Rehearsal, runs: &HashSet<u64>) {
        let known = self.status.trials();
        let states: HashMap<u64, String> =
            known.map(|(row, standing)| (row.id, standing.state.word())).collect();
        let mut next = self.diff.known;
        for (place, id) in self.diff.places.iter().enumerate() {
            let trial = id.unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            let state = states.get(&trial).map_or("new", String::as_str).to_owned();
            if runs.contains(&trial) {
                all.runs.push(Runs { trial, place, state });
            } else {
                let state = if id.is_none() { "new, behind a failure".to_owned() } else { state };
                *all.left.entry(state).or_default() += 1;
            }
        }
        all.runs.sort_by_key(|run| run.trial);
    }
}
