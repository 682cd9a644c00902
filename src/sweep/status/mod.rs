//! The state of every trial of a sweep: from its tree, and from one call of its scheduler if that may be asked.
//! All commands that show or collect trials use this module.

mod agents;
mod ask;
mod ends;
pub(crate) mod feeder;
pub(crate) mod folders;
pub(crate) mod gpus;
pub(crate) mod hooks;
mod job_log;
pub(crate) mod originals;
pub(crate) mod pilots;
mod places;
pub(crate) mod progress;
pub(crate) mod stalled;
pub mod told;
pub(crate) mod verify;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use anyhow::Result;

use crate::base::cause::Cause;
use crate::base::host::{Vars, disk};
use crate::cluster::scheduler::job::array_of;
use crate::cluster::scheduler::{Element, End, Scheduler, State as Word};
use crate::plan::OnFailure;
use crate::plan::site::Site;
use crate::sweep::standing::{self, Copied, Standing, State, Witness};
use crate::sweep::tree::code;
use crate::sweep::tree::damage::{Damage, Damaged, Writer};
use crate::sweep::tree::deck::{self, Deck};
use crate::sweep::tree::due::Due;
use crate::sweep::tree::journal::Journal;
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger::{self, Ledger};
use crate::sweep::tree::records::index::{Check, Noter};
use crate::sweep::tree::records::{self, Attempt, ByTrial, Outcome, Record};
use crate::sweep::tree::shard::Shards;
use crate::sweep::tree::table::{self, Head, Readable, Row, Which};
use crate::sweep::tree::terms::{self, Dropped, Terms};
use crate::sweep::tree::waves::{self, Array, Ended, Wave};
use crate::sweep::tree::{Identity, Tree, lock};
use ask::Heard;
use feeder::Fed;
use folders::{OtherFolder, OtherFolders};
use pilots::{Given, Pilots};
use places::Places;

/// All that is known of a sweep.
pub struct Status {
    /// The sweep's folder; all files are read from there.
    pub(crate) tree: Tree,
    /// What its `sweep.json` says.
    pub(crate) identity: Identity,
    /// Its trials, in order.
    pub(crate) rows: Vec<Row>,
    /// How each stands, in the same order.
    pub(crate) standings: Vec<Standing>,
    pub(crate) records: ByTrial,
    /// The source besides the tree: `sacct`, `squeue`, or why none was asked.
    pub(crate) witness: String,
    /// Calls of the scheduler's commands that were made.
    pub(crate) calls: u32,
    /// Job ids of its arrays.
    pub(crate) jobs: Vec<String>,
    /// Its pilot jobs that have not ended, while trials are open.
    pub(crate) pilots: Vec<Pilots>,
    /// Trials that were never given to its scheduler, although others were.
    pub(crate) unsubmitted: u64,
    /// The job that submits them.
    pub(crate) feeder: Option<String>,
    /// Whether what is not submitted waits until other trials have shown what it needs.
    pub(crate) is_learning: bool,
    /// Trials without success of which `[retry]` has still to decide.
    pub(crate) undecided: HashSet<u64>,
    /// Trials without success about which a feeder decides that is queued or running, or that it submits again.
    pub(crate) awaited: HashSet<u64>,
    /// How many of these it submits again when there is a place in the queue.
    pub(crate) repeated: u64,
    /// The hooks of trials that are due and whose callers are gone, each with the attempt for the end of which it is.
    pub(crate) owed: Vec<(Due, Attempt)>,
    /// The hook for the end of the sweep that no job will call, because the feeder was lost.
    pub(crate) uncalled: Option<&'static str>,
    /// Whether trials are left to agents, and none is at work or will come.
    pub(crate) lacks_agents: bool,
    /// Whether its trials are a function of a program, which alone can run them.
    pub(crate) calls_a_function: bool,
    /// The functions that its trials call: of each table its first trial and its function.
    pub(crate) functions: Vec<(u64, Option<String>)>,
    /// The command that submits it again, where that is known.
    pub(crate) again: Option<String>,
    /// Folders that its jobs name which are queued or running, and that are not its own.
    pub(crate) other_folders: Vec<OtherFolder>,
    /// Trials that the plan no longer has, those included that are done.
    pub(crate) dropped: Dropped,
    /// The part of its plan that it has; `None` if it was not divided.
    pub(crate) shards: Option<Shards>,
    /// The code of its trials.
    pub(crate) code: code::Submissions,
    /// The damaged parts of its files, which were left out.
    pub damage: Vec<Damaged>,
    /// Trials that are held, or run though they have ended; empty unless [`of_all`] was called.
    pub(crate) jobs_of: JobsOf,
    asked: bool,
    /// Why earlier attempts ended, as submissions have written it down.
    ended: Vec<Ended>,
}

/// Trials by the scheduler's state of their jobs.
#[derive(Debug, Default)]
pub(crate) struct JobsOf {
    /// Their jobs are held.
    pub(crate) held: HashSet<u64>,
    /// They have ended and their jobs run, as while a hook is called.
    pub(crate) over: HashSet<u64>,
}

/// The trials that a scheduler is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Open,
    OpenOrBad,
    All,
}

/// What a caller does with a status.
#[derive(Clone, Copy)]
enum Use<'a> {
    /// It shows how trials stand.
    Show,
    /// It counts them, and shows those that were not done at once and these.
    Count(Which<'a>),
    /// It reads their metric lines.
    Read,
    /// It cancels, holds or merges trials: it reads their records themselves.
    Act,
    /// It runs trials. Those that ran where the sweep was exported run nowhere here.
    Submit,
}

/// As [`glance`], for a submission: no trial is dropped, because its plan is not the one that decides this. With `bad`, the
/// scheduler is asked about every trial that is not done, even if all have ended by their records: a user may have
/// requeued a job.
///
/// # Errors
/// As [`glance`].
pub(crate) fn before_a_plan(
    tree: Tree,
    identity: Identity,
    site: &Site,
    environment: &Vars,
    bad: bool,
) -> Result<Status> {
    let about = if bad { About::OpenOrBad } else { About::Open };
    as_recorded(tree, identity, Some((site, environment)), about, Use::Submit)
}

/// As [`glance`], and the scheduler is asked about every trial: the job of one that is done may still run.
///
/// # Errors
/// As [`glance`].
pub(crate) fn of_all(
    tree: Tree,
    identity: Identity,
    site: &Site,
    environment: &Vars,
) -> Result<Status> {
    look(tree, identity, Some((site, environment)), About::All, Use::Act)
}

/// As [`glance`], for a caller that reads metric lines, too: damage to the record of a trial that is done is noticed.
///
/// # Errors
/// As [`glance`].
pub fn read(tree: Tree, identity: Identity, whom: Option<(&Site, &Vars)>) -> Result<Status> {
    look(tree, identity, whom, About::Open, Use::Read)
}

/// Something that takes the trials of a sweep while they are read.
pub(crate) trait Taker: Sync {
    /// What it makes of some records.
    type Part: Send;

    /// What the index is to have of metric lines, so that they need not be read again.
    const NOTER: Option<Noter>;

    /// Whether it takes all that trials run, and not only the requests that the table has of them.
    const TAKES_PARAMETERS: bool;

    /// Takes the row of a trial, which stands at this place among the rows.
    fn row(&mut self, place: usize, row: &Row);

    /// Makes something of records of the trials of these rows, on any thread; of a record without a row, nothing.
    fn part(&self, tree: &Tree, rows: &[Row], records: &[(u64, Record)]) -> Self::Part;

    /// Takes what it has made.
    fn take(&mut self, part: Self::Part);
}

/// As [`glance`]. What trials run, and the records of those that were done at once, go to `taker` and are not kept.
///
/// # Errors
/// As [`glance`].
pub(crate) fn gathered<T: Taker>(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
    taker: &mut T,
) -> Result<Status> {
    let mut damage = Damage::default();
    let with = &mut |place, row: &Row| taker.row(place, row);
    let rows = match T::TAKES_PARAMETERS {
        true => table::gathered(&tree, &mut damage, with)?,
        false => table::asked(&tree, &mut damage, with)?,
    };
    // As in [`Files::of`].
    let ledger = Ledger::read(&tree)?;
    let make = |taker: &T, records: Vec<_>| taker.part(&tree, &rows.rows, &records);
    let with = (make, |taker: &mut T, part| taker.take(part));
    let keys = &Keys::of_tables(&rows.keys);
    let from = records::SweepRecords { tree: &tree, token: &identity.token, keys };
    let records = records::gathered(from, T::NOTER, taker, with, &mut damage)?;
    let files = Files::with(&tree, &identity, rows, (ledger, records), damage)?;
    Ok(without_dropped(stand(tree, identity, files, whom, (About::Open, Use::Read))?))
}

/// As [`read`], for merging: from the tree alone, to which nothing is written, not even its index.
///
/// # Errors
/// As [`read`].
pub(crate) fn untouched(tree: Tree, identity: Identity) -> Result<Status> {
    look(tree, identity, None, About::Open, Use::Act)
}

/// Reads a sweep and, where it was given to a scheduler, asks that once if one is given. For a caller that reads no metric
/// lines.
///
/// # Errors
/// When the tree cannot be read; a scheduler that does not answer is not an error.
pub(crate) fn glance(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
) -> Result<Status> {
    look(tree, identity, whom, About::Open, Use::Show)
}

/// As [`glance`]. What a trial runs is not kept, nor the record of one that was done at once, but for those that are `whole`.
///
/// # Errors
/// As [`glance`].
pub(crate) fn counted(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
    whole: Which<'_>,
) -> Result<Status> {
    look(tree, identity, whom, About::Open, Use::Count(whole))
}

fn look(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
    about: About,
    wants: Use<'_>,
) -> Result<Status> {
    Ok(without_dropped(as_recorded(tree, identity, whom, about, wants)?))
}

fn without_dropped(mut status: Status) -> Status {
    standing::drop(&status.rows, &mut status.standings, &status.dropped);
    status
}

/// As [`look`], but also for trials that the plan has dropped.
fn as_recorded(
    tree: Tree,
    identity: Identity,
    whom: Option<(&Site, &Vars)>,
    about: About,
    wants: Use<'_>,
) -> Result<Status> {
    let files = Files::of(&tree, &identity, wants)?;
    let status = stand(tree.clone(), identity.clone(), files, whom, (about, wants))?;
    // The feeder that was known may have ended after it had submitted the next one, and before the scheduler answered.
    match status.lacks_feeder() && Journal::read(&tree)?.jobs().count() > status.jobs.len() {
        true => {
            let files = Files::of(&tree, &identity, wants)?;
            stand(tree, identity, files, whom, (about, wants))
        }
        false => Ok(status),
    }
}

/// How the trials stand of a sweep with these files.
fn stand(
    tree: Tree,
    identity: Identity,
    mut files: Files,
    whom: Option<(&Site, &Vars)>,
    (about, wants): (About, Use<'_>),
) -> Result<Status> {
    let scheduler = files.journal.scheduler();
    let given = pilots::given(files.waves.iter().map(|(wave, _)| wave), &files.journal);
    let feeders = feeder::jobs(files.waves.iter().map(|(wave, _)| wave), &files.journal, |_| true);
    let known = files.known();
    let is_due = |trial: u64| files.due.iter().any(|(due, _)| due.trial == trial);
    let is_meant = |trial: &u64| known.is_meant(*trial, about) || is_due(*trial);
    let open: Vec<u64> = files.rows.iter().map(|row| row.id).filter(is_meant).collect();
    let heard = files.ask(whom, &*scheduler, &open, &given, &feeders);
    let all_pilots = pilots::read(&given, &*scheduler, &heard.elements, &files.ledger);
    // Pilots and feeders of the original do nothing for a copy.
    let originals = originals::of_originals(&tree, &files.journal)?;
    let is_own = |array: u32| !originals.contains_key(&array);
    let pilots: Vec<Pilots> =
        all_pilots.iter().filter(|pilots| is_own(pilots.array)).cloned().collect();
    let about_copy = tree.copied()?;
    let own = (&files.ledger, &files.records);
    let agents = agents::Words::read(&tree, own, &pilots, about_copy.as_ref())?;
    files.look_again(&tree, &heard, open)?;
    let ended: Vec<Ended> = files.waves.iter().flat_map(|(wave, _)| wave.ended.clone()).collect();
    ended.iter().for_each(|ended| ended.tell_all(&mut files.records));
    files.check_ledger(&tree)?;

    let known = files.known();
    let is_elsewhere = lock::is_held_by_another(&tree);
    let about_copy = about_copy.filter(|_| !matches!(wants, Use::Submit));
    let copied = about_copy.as_ref().map(Copied::of);
    let is_at_work = is_elsewhere || agents.alive();
    let jobs_of = (about == About::All).then(|| known.jobs_of(&heard, &files.rows));
    let jobs_of = jobs_of.unwrap_or_default();
    let before = |trial| table::row_of(&files.rows, trial).and_then(|row| row.after);
    let witness = Witness {
        element: &|trial| {
            let held = agents.of(trial).map(Cow::Borrowed);
            held.or_else(|| known.element(&heard, trial, before(trial)))
        },
        submitted: &|trial| known.is_submitted(trial),
        asked: heard.is_sure,
        believes_ends: scheduler.facts().believes_ends,
        executor: is_elsewhere || lock::is_held(&tree) || agents.alive(),
        runs_here: is_elsewhere,
        attempts: files.attempts,
        on_failure: files.heads.last().map_or(OnFailure::Stop, |h| h.run.on_failure),
        copied: copied.as_ref(),
    };
    let mut standings = standing::of(&files.rows, &files.records, &witness);
    let (waves, places) = (&files.waves, &files.places);
    let log = |array, index| job_log::end(&tree, array, index);
    let is_of = |trial, attempt: &Attempt| known.ran_in_place(trial, attempt);
    let killed =
        job_log::Jobs { log: &log, waves, places, element: witness.element, is_of: &is_of };
    killed.explain(files.rows.iter().map(|row| row.id), &files.records, &mut standings);
    let all_alive = feeder::alive(&feeders, &files.waves, &heard.elements);
    // Where its scheduler is not, as on another cluster, the folder may have another name.
    let mut other_folders = Vec::new();
    if heard.is_sure {
        let others = OtherFolders::new(&tree, &originals, (&files.journal, places));
        others.explain(&files.rows, &files.records, &mut standings);
        let feeders = all_alive.iter().map(|feeder| (feeder.array, feeder.job));
        other_folders = others.open(&files.rows, &standings, &all_pilots, feeders);
    }
    let alive: Vec<_> = all_alive.into_iter().filter(|feeder| is_own(feeder.array)).collect();
    let is_given = files.was_given() && !is_elsewhere;
    let left = if is_given { known.left(&files.rows, &standings) } else { 0 };
    // A run on another machine calls its own, and holds the lock meanwhile.
    let may_run =
        |attempt: &Attempt| attempt.start.job.is_none() && lock::is_held_by_another(&tree);
    let is_owed = |(due, attempt): &(Due, Attempt)| match &attempt.bundle {
        Some(place) => !agents.is_alive(&place.agent),
        None => !is_elsewhere && !may_run(attempt) && known.has_left(&heard, due.trial, attempt),
    };
    let owed = files.due.iter().filter(|own| is_owed(own)).cloned().collect();
    let runs = running(&files.rows, &standings, is_elsewhere);
    let undecided = files.undecided(&heard, &standings);
    let damage = files.damage.settle(|writer| match writer {
        Writer::Trial(trial) => runs.contains(trial),
        Writer::Agent(agent) => agents.is_alive(agent),
        Writer::Submission => lock::is_held(&tree),
    });
    let bad = files.rows.iter().zip(&standings).filter(|(_, standing)| standing.state.is_bad());
    let fed = Fed::of(&alive, left, &undecided, bad.map(|(row, _)| row.id));
    let has_ended = left == 0 && standings.iter().all(|standing| standing.state.is_final());
    let is_over = heard.is_sure && has_ended && !lock::is_held(&tree);
    let uncalled = files.uncalled.filter(|_| is_over && alive.is_empty());
    let lacks_agents = heard.is_sure && agents.are_missing() && !is_elsewhere;
    let Files { heads, rows, records, journal, waves, dropped, shards, code, .. } = files;
    let jobs: Vec<String> = journal.jobs().map(str::to_owned).collect();
    let of_copy = about_copy.filter(|_| jobs.is_empty() && !is_at_work);
    let by = of_copy.map(|about| format!("the results tree alone: {}", about.words()));
    let by = by.unwrap_or_else(|| agents.witness(&heard.witness, jobs.is_empty()));
    let held = journal.on_hold.as_ref().map(|user| format!("; held by {user}"));
    let witness = by + &held.unwrap_or_default();
    Ok(Status {
        again: again(&tree, &heads, &journal, &waves),
        calls_a_function: heads.last().is_some_and(|head| head.run.function.is_some()),
        functions: heads.into_iter().map(|head| (head.first, head.run.function)).collect(),
        calls: heard.calls,
        asked: heard.is_sure,
        tree,
        identity,
        rows,
        standings,
        records,
        witness,
        jobs,
        pilots,
        unsubmitted: left as u64,
        feeder: fed.job,
        is_learning: feeder::is_learning(waves.iter().map(|(wave, _)| wave)),
        undecided,
        awaited: fed.awaited,
        repeated: fed.repeated,
        owed,
        uncalled,
        lacks_agents,
        other_folders,
        dropped,
        shards,
        code,
        damage,
        jobs_of,
        ended,
    })
}

/// The content of a sweep's files.
struct Files {
    heads: Vec<Head>,
    rows: Vec<Row>,
    ledger: Ledger,
    records: ByTrial,
    journal: Journal,
    waves: Vec<(Wave, Vec<u64>)>,
    places: Places,
    /// How often a trial may be tried.
    attempts: u32,
    dropped: Dropped,
    shards: Option<Shards>,
    code: code::Submissions,
    /// The hooks of trials that are due, each with the attempt for the end of which it is.
    due: Vec<(Due, Attempt)>,
    /// The hook for the end of the sweep, by the records, that was not called yet; where somebody is shown that.
    uncalled: Option<&'static str>,
    damage: Damage,
}

impl Files {
    /// Whether trials were submitted to a scheduler.
    fn was_given(&self) -> bool {
        self.waves.iter().any(|(wave, _)| wave.arrays.iter().any(Array::is_of_trials))
    }

    fn of(tree: &Tree, identity: &Identity, wants: Use<'_>) -> Result<Self> {
        let mut damage = Damage::default();
        let rows = match wants {
            Use::Count(whole) => table::in_order(tree, &mut damage, whole)?,
            _ => table::readable(tree, &mut damage)?,
        };
        // The ledger comes before the records: a trial that no agent holds now has its end in the records, or
        // will never have one.
        let ledger = Ledger::read(tree)?;
        let keys = &Keys::of_tables(&rows.keys);
        let from = records::SweepRecords { tree, token: &identity.token, keys };
        let indexed = |check, damage| records::indexed(from, check, damage);
        let records = match wants {
            Use::Act | Use::Submit => records::readable(tree, &mut damage)?.into(),
            Use::Read => indexed(Check::Damage, &mut damage)?.into(),
            Use::Show => indexed(Check::Changes, &mut damage)?.into(),
            Use::Count(whole) => records::briefly(from, whole, &mut damage)?,
        };
        let mut files = Self::with(tree, identity, rows, (ledger, records), damage)?;
        if !matches!(wants, Use::Act | Use::Submit) {
            let Self { heads, rows, waves, journal, records, .. } = &files;
            let waves = waves.iter().map(|(wave, _)| wave);
            let all = (heads.as_slice(), rows.len() as u64);
            let record = |trial: u64| records.get(&trial);
            files.uncalled = hooks::uncalled(tree, all, waves, journal, &record)?;
        }
        Ok(files)
    }

    /// Adds the damage of the ledger, and what it should have by other files.
    fn check_ledger(&mut self, tree: &Tree) -> Result<()> {
        self.ledger.damage(tree, &mut self.damage)?;
        let last = self.records.last_entry();
        // Agents go on while the records are read: what they have written since is there now.
        if last > self.ledger.seq {
            let seq = Ledger::read(tree)?.seq;
            self.damage.add(&ledger::name(seq + 1), u64::from(last > seq));
        }
        deck::missing(tree, !self.ledger.agents.is_empty(), &mut self.damage)
    }

    /// `rows` and then `records`, as they were read, with all other files.
    fn with(
        tree: &Tree,
        identity: &Identity,
        Readable { heads, rows, .. }: Readable,
        (ledger, records): (Ledger, ByTrial),
        mut damage: Damage,
    ) -> Result<Self> {
        let journal = Journal::readable(tree, &mut damage)?;
        let waves = waves::readable(tree, &mut damage)?;
        deck::damage(tree, &mut damage)?;
        tree.check_plan(identity.format, &mut damage)?;
        ends::missing(tree, &rows, &records, &journal, &mut damage)?;
        waves::missing(tree, &waves, journal.arrays.keys().copied(), &mut damage)?;
        let in_waves = waves::last_trial(waves.iter().map(|(_, map)| &map[..]));
        for first in table::missing(tree, records.last().max(in_waves))? {
            let name = format!("trials/{first:012}.json");
            // NFS may list a folder as it was before another host added a table.
            let is_gone = disk::stamp(&tree.dir().join(&name))?.is_none();
            damage.add(&name, u64::from(is_gone));
        }
        let places = Places::new(&waves);
        let by_table = heads.last().map_or(1, |h| h.run.attempts);
        let Terms { attempts, dropped, .. } = terms::readable(tree, by_table, &mut damage)?;
        let code = code::Submissions::readable(tree, &mut damage)?;
        let shards = Shards::readable(tree, &mut damage);
        Ok(Self {
            heads,
            rows,
            ledger,
            records,
            journal,
            waves,
            places,
            attempts,
            dropped,
            shards,
            code,
            due: hooks::due(tree)?,
            uncalled: None,
            damage,
        })
    }

    fn known(&self) -> Known<'_> {
        let Self { journal, places, records, attempts, .. } = self;
        Known { journal, places, records, attempts: *attempts }
    }

    /// Trials without success of which no feeder has decided by `[retry]`, as far as the scheduler has answered.
    fn undecided(&self, heard: &Heard, standings: &[Standing]) -> HashSet<u64> {
        let Self { waves, journal, rows, records, places, .. } = self;
        match heard.is_sure {
            true => feeder::undecided(waves, journal, rows, standings, records, places),
            false => HashSet::new(),
        }
    }

    /// Asks the scheduler about the trials that are `open`, pilots, and jobs that may wait for ever.
    fn ask(
        &self,
        whom: Option<(&Site, &Vars)>,
        scheduler: &dyn Scheduler,
        open: &[u64],
        given: &[Given],
        feeders: &[(u32, String)],
    ) -> Heard {
        let arrays = self.waves.iter().flat_map(|(wave, map)| {
            wave.arrays.iter().map(move |array| (array, array.trials(map)))
        });
        let suspects = match scheduler.facts().leaves_stalled {
            true => stalled::suspects(arrays, &self.journal, &self.records),
            false => Vec::new(),
        };
        let may_decide = feeder::may_decide(&self.waves, &self.journal, &self.records);
        let may_have_to = may_decide || self.uncalled.is_some();
        let others = ask::Others { given, feeders: (feeders, may_have_to), suspects: &suspects };
        ask::ask(whom, scheduler, &self.journal, &self.places, open, others)
    }

    /// A trial may have ended between the reading of its record and the scheduler's answer: a trial that looks as if it had
    /// left no end is read again.
    fn look_again(&mut self, tree: &Tree, heard: &Heard, open: Vec<u64>) -> Result<()> {
        for trial in open {
            let Some((array, index)) = self.places.of(trial) else { continue };
            if self.records.get(&trial).and_then(Record::outcome) == Some(Outcome::Done) {
                continue;
            }
            let job = self.journal.job(array);
            let element = job.and_then(|job| heard.elements.get(job)?.get(index));
            // Half an answer shows some as ended, and does not name the others.
            let may_have_ended = element.map_or(heard.is_sure, |e| match &e.state {
                Word::Queued(_) | Word::Held(_) => false,
                Word::Running(_) => e.state.is_ending(),
                _ => true,
            });
            if !may_have_ended {
                continue;
            }
            let (record, _) = records::of_trial(tree, trial)?;
            if !record.attempts.is_empty() {
                self.records.insert(trial, record);
            }
        }
        Ok(())
    }
}

/// The command that submits a sweep again where it was submitted before; `None` where its plan is not known any more, or
/// calls a function that no program is known to have.
fn again(
    tree: &Tree,
    heads: &[Head],
    journal: &Journal,
    waves: &[(Wave, Vec<u64>)],
) -> Option<String> {
    let plan = plan(tree, journal)?;
    let decks = deck::read(tree).ok()?;
    let is_function = heads.last()?.run.function.is_some();
    let mode = match decks.last() {
        Some(deck) if is_function && deck.program.is_empty() => return None,
        Some(deck) if !is_function && !deck.by_plan && !others_had_it(deck, journal, waves) => {
            " --pull"
        }
        _ => "",
    };
    let scheduler = journal.site?.scheduler.word();
    Some(format!("hpcsweep submit {} --{scheduler}{mode}", disk::named(plan)))
}

/// The plan that a sweep was submitted with last, as far as it is there. `None` of a copy, and of a sweep that was moved: the
/// plan names another folder.
pub(crate) fn plan<'a>(tree: &Tree, journal: &'a Journal) -> Option<&'a Path> {
    let plan = journal.plan.as_deref().filter(|plan| plan.is_file() && journal.is_of_here)?;
    let is_there = match &journal.dir {
        Some(dir) => disk::is_same(dir, tree.dir()),
        None => tree.dir().file_name()? == tree.identity().ok()??.name.as_str(),
    };
    is_there.then_some(plan)
}

/// Whether it was submitted to others than agents since a deck was created.
fn others_had_it(deck: &Deck, journal: &Journal, waves: &[(Wave, Vec<u64>)]) -> bool {
    let is_of_trials = |wave: &Wave| wave.arrays.iter().any(Array::is_of_trials);
    let mut later = waves.iter().filter(|(wave, _)| wave.created > deck.created);
    journal.ran_here > deck.created || later.any(|(wave, _)| is_of_trials(wave))
}

/// Damage in everything that submissions have written: tables, waves, decks, journals, terms and the plan.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn damage_of_submissions(tree: &Tree, identity: &Identity) -> Result<Damage> {
    let mut damage = Damage::default();
    table::damage(tree, &mut damage)?;
    Journal::readable(tree, &mut damage)?;
    waves::readable(tree, &mut damage)?;
    deck::damage(tree, &mut damage)?;
    terms::readable(tree, 1, &mut damage)?;
    code::Submissions::readable(tree, &mut damage)?;
    tree.check_plan(identity.format, &mut damage)?;
    Ok(damage)
}

/// Trials at which a worker may be at work, whose records may grow: what an executor has still to run may begin at any
/// moment.
fn running(rows: &[Row], standings: &[Standing], here: bool) -> HashSet<u64> {
    let may_grow = |standing: &Standing| match standing.state {
        State::Running | State::Other(_) => true,
        State::Pending => here,
        _ => false,
    };
    let all = rows.iter().zip(standings).filter(|(_, standing)| may_grow(standing));
    all.map(|(row, _)| row.id).collect()
}

/// Data about trials that were given to a scheduler.
struct Known<'a> {
    journal: &'a Journal,
    places: &'a Places,
    records: &'a ByTrial,
    /// How often a trial may be tried.
    attempts: u32,
}

impl Known<'_> {
    /// Whether the scheduler is to be asked about a trial. One is open that may still be run without being asked for
    /// again.
    fn is_meant(&self, trial: u64, about: About) -> bool {
        self.records.get(&trial).is_none_or(|r| {
            // An interrupted trial may have been requeued.
            matches!(r.outcome(), None | Some(Outcome::Interrupted))
                || about == About::All
                || (about == About::OpenOrBad && r.outcome() != Some(Outcome::Done))
                || r.may_go_on(self.attempts)
                || self.is_due_again(trial, r)
        })
    }

    /// Whether it was submitted again after it had ended: the job that it has now is in none of its attempts.
    fn is_due_again(&self, trial: u64, record: &Record) -> bool {
        let job = self.places.of(trial).and_then(|(array, _)| self.journal.job(array));
        let ran = |job: &str| record.attempts.iter().any(|attempt| attempt.is_of_job(job));
        record.outcome() != Some(Outcome::Done) && job.is_some_and(|job| !ran(job))
    }

    /// How many trials have still to be submitted.
    fn left(&self, rows: &[Row], standings: &[Standing]) -> usize {
        let is_left = |(row, standing): &(&Row, &Standing)| {
            standing.state == State::Pending && !self.is_submitted(row.id)
        };
        rows.iter().zip(standings).filter(is_left).count()
    }

    /// Whether a scheduler has a job for it.
    fn is_submitted(&self, trial: u64) -> bool {
        self.places.of(trial).is_some_and(|(array, _)| self.journal.job(array).is_some())
    }

    /// The scheduler's state of the element of a trial.
    fn of_place<'h>(&self, heard: &'h Heard, trial: u64) -> Option<Cow<'h, Element>> {
        let (array, index) = self.places.of(trial)?;
        let known = heard.elements.get(self.journal.job(array)?).and_then(|e| e.get(index));
        // A scheduler may forget a job that we have cancelled at once, and its accounting may report it as
        // pending for a while.
        let waits = known.is_none_or(|e| e.state.waits());
        if waits && self.journal.is_cancelled(array, trial) {
            let state = Word::Ended(End::Cancelled, "CANCELLED".to_owned());
            return Some(Cow::Owned(Element { state, reason: String::new() }));
        }
        let known = known?;
        if matches!(known.state, Word::Held(_)) && self.journal.is_held(array) {
            let reason = "held until its submission is complete: submit again".to_owned();
            return Some(Cow::Owned(Element { state: known.state.clone(), reason }));
        }
        Some(Cow::Borrowed(known))
    }

    /// Trials that are held, and trials that have ended and have a job that runs.
    fn jobs_of(&self, heard: &Heard, rows: &[Row]) -> JobsOf {
        let mut jobs = JobsOf::default();
        for row in rows {
            let Some(element) = self.of_place(heard, row.id) else { continue };
            let runs = matches!(element.state, Word::Running(_)) && !element.state.is_ending();
            // An interrupted trial may have begun again.
            let record = self.records.get(&row.id);
            let is_stopped = record.and_then(Record::outcome) == Some(Outcome::Interrupted);
            if matches!(element.state, Word::Held(_)) {
                jobs.held.insert(row.id);
            } else if runs
                && self.is_over(row.id)
                && !is_stopped
                && !record.is_some_and(|r| self.is_due_again(row.id, r))
            {
                jobs.over.insert(row.id);
            }
        }
        jobs
    }

    /// Whether it will not run any more, according to its record.
    fn is_over(&self, trial: u64) -> bool {
        self.records.get(&trial).is_some_and(|r| {
            r.skipped.is_some() || (r.outcome().is_some() && !r.may_go_on(self.attempts))
        })
    }

    /// Whether an attempt ran in the job that its trial was submitted as last: otherwise the end of that job, and its log, say
    /// nothing about it.
    fn ran_in_place(&self, trial: u64, attempt: &Attempt) -> bool {
        if self.records.whole(trial).is_none() {
            // No more is known of it.
            return attempt.start.job.is_some();
        }
        let job = self.places.of(trial).and_then(|(array, _)| self.journal.job(array));
        let own = attempt.start.job.as_deref().map(array_of);
        job.is_some_and(|job| own.as_deref() == Some(job))
    }

    /// Whether the worker of an attempt that has recorded its end is gone, and was not cancelled.
    fn has_left(&self, heard: &Heard, trial: u64, attempt: &Attempt) -> bool {
        if attempt.start.job.is_none() {
            return !attempt.start.is_process();
        }
        let place = self.places.of(trial);
        let is_cancelled = place.is_some_and(|(array, _)| self.journal.is_cancelled(array, trial));
        let is_alive = |element: Cow<'_, Element>| element.state.is_alive();
        heard.is_sure && !is_cancelled && !self.of_place(heard, trial).is_some_and(is_alive)
    }

    /// Whether an attempt began after its trial was submitted last, as far as that is known.
    fn began_after_job(&self, trial: u64, attempt: &Attempt) -> bool {
        let submitted = self.places.of(trial).and_then(|(array, _)| self.journal.submitted(array));
        self.records.whole(trial).is_none()
            || submitted.is_some_and(|submitted| attempt.start.time > submitted)
    }

    /// The scheduler's state of a trial; `before` is the trial before it in its chain. An element that runs a whole
    /// chain runs one trial of it at a time.
    fn element<'h>(
        &self,
        heard: &'h Heard,
        trial: u64,
        before: Option<u64>,
    ) -> Option<Cow<'h, Element>> {
        let element = self.of_place(heard, trial)?;
        let decisive = self.records.get(&trial).and_then(Record::decisive);
        let is_elsewhere = |attempt: &Attempt| {
            let says_how = attempt.outcome().is_some() || attempt.start.job.is_none();
            // A later job may have ended before its worker could begin.
            says_how && !self.ran_in_place(trial, attempt) && self.began_after_job(trial, attempt)
        };
        if matches!(element.state, Word::Ended(..)) && decisive.is_some_and(is_elsewhere) {
            return None;
        }
        if element.state.is_ending() && !self.records.contains_key(&trial) {
            let state = match element.state.is_stopping() {
                true => Word::Ended(End::Cancelled, "CANCELLED".to_owned()),
                // It may be given back to the queue.
                false => Word::Queued("its job is ending".to_owned()),
            };
            return Some(Cow::Owned(Element { state, reason: String::new() }));
        }
        if !self.places.is_fused(trial) {
            return Some(element);
        }
        let record = self.records.get(&trial);
        let is_open = |a: &Attempt| a.end.is_none();
        if element.state.is_stopping() && record.and_then(Record::decisive).is_some_and(is_open) {
            return Some(element);
        }
        // The state of its other links does not affect one that has ended.
        let has_ended =
            record.is_some_and(|r| r.outcome().is_some() && !r.may_go_on(self.attempts));
        match element.state {
            Word::Queued(_) | Word::Held(_) => return Some(element),
            _ if has_ended => return None,
            Word::Running(_) => {}
            _ => return Some(element),
        }
        let done = |id: u64| self.records.get(&id).and_then(Record::outcome) == Some(Outcome::Done);
        let behind = record.is_none()
            && (before.is_some_and(|id| self.places.is_fused(id) && !done(id))
                || self.places.ahead(trial).is_some_and(|id| !self.is_over(id)));
        let waits = Element {
            state: Word::Queued("behind the trial before it".to_owned()),
            reason: String::new(),
        };
        Some(if behind { Cow::Owned(waits) } else { element })
    }
}

impl Status {
    /// The function that a trial calls; `None` where it runs a command.
    pub(crate) fn function(&self, trial: u64) -> Option<&str> {
        let table = self.functions.iter().rfind(|(first, _)| *first <= trial);
        table.and_then(|(_, function)| function.as_deref())
    }

    /// Whether its trials call more than one function, as after a rename.
    pub(crate) fn has_several_functions(&self) -> bool {
        self.functions.windows(2).any(|two| two[0].1 != two[1].1)
    }

    /// Whether its trials have run from more than one snapshot.
    pub(crate) fn has_several_snapshots(&self) -> bool {
        let of = |row: &Row| {
            let attempt = self.records.get(&row.id)?.decisive()?;
            Some(attempt.start.snapshot.as_deref())
        };
        let mut ran = self.rows.iter().filter_map(of);
        ran.next().is_some_and(|first| ran.any(|other| other != first))
    }

    /// Whether the scheduler's silence means something: it answered, or was never given anything.
    pub(crate) fn is_sure(&self) -> bool {
        self.asked
    }

    /// Whether something is left to a feeder, and none is queued or running.
    fn lacks_feeder(&self) -> bool {
        let is_needed = self.unsubmitted > 0 || !self.undecided.is_empty();
        self.asked && self.feeder.is_none() && (is_needed || self.uncalled.is_some())
    }

    /// When its feeder submits more.
    pub(crate) fn when_more(&self) -> &'static str {
        match self.is_learning {
            true => "others have shown what they need",
            false => "there is a place in the queue",
        }
    }

    /// Reads the records of these trials where no more is known than that they were done at once.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn complete(&mut self, trials: &HashSet<u64>) -> Result<()> {
        let lacks = |trial: u64| trials.contains(&trial) && self.records.whole(trial).is_none();
        if trials.iter().any(|trial| lacks(*trial)) {
            let (tree, token) = (&self.tree, &self.identity.token);
            let from = records::SweepRecords { tree, token, keys: &Keys::all(tree)? };
            let read = records::briefly(from, &lacks, &mut Damage::default())?;
            let own = read.into_whole().into_iter().filter(|(trial, _)| lacks(*trial));
            let mut own: HashMap<u64, Record> = own.collect();
            self.ended.iter().for_each(|ended| ended.tell_all(&mut own));
            self.records.extend(own);
        }
        Ok(())
    }

    /// Leaves it to the end of the process, which is near: to free each of its values takes longer than to read some.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// Counts by state; they add up to the number of trials.
    pub(crate) fn counts(&self) -> BTreeMap<State, u64> {
        standing::counts(&self.standings)
    }

    /// What to say of trials that the plan has dropped; `None` where there are none.
    pub(crate) fn dropped_words(&self) -> Option<String> {
        standing::dropped_words(self.counts().get(&State::Dropped).copied().unwrap_or(0))
    }

    /// Trials that have logged metric lines that could not be read, and how many.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (u64, u64)> {
        let of = |row: &Row| (row.id, self.records.get(&row.id).map_or(0, Record::unread));
        self.rows.iter().map(of).filter(|(_, lines)| *lines > 0)
    }

    /// Trials that are done without a metric or a result, if others have any.
    pub(crate) fn silent(&self) -> Vec<u64> {
        let silent = self.done().filter(|(_, attempt)| attempt.is_silent());
        let silent: Vec<u64> = silent.map(|(trial, _)| trial).collect();
        if silent.len() < self.done().count() { silent } else { Vec::new() }
    }

    /// Trials that are done although the kernel killed processes of them for lack of memory.
    pub(crate) fn cut_short(&self) -> impl Iterator<Item = u64> {
        let is_cut = |attempt: &&Attempt| attempt.cause() == Some(Cause::OutOfMemory);
        self.done().filter(move |(_, attempt)| is_cut(attempt)).map(|(trial, _)| trial)
    }

    fn done(&self) -> impl Iterator<Item = (u64, &Attempt)> {
        let of = |row: &Row| Some((row.id, self.records.get(&row.id)?.decisive()?));
        self.rows.iter().filter_map(of).filter(|(_, attempt)| attempt.is_done())
    }

    /// Leaves out all trials but these.
    pub(crate) fn retain(&mut self, kept: &BTreeSet<u64>) {
        let mut is_kept = self.rows.iter().map(|row| kept.contains(&row.id));
        self.standings.retain(|_| is_kept.next().unwrap_or(false));
        self.rows.retain(|row| kept.contains(&row.id));
    }

    /// Leaves these trials, as far as they are there, in this order.
    pub(crate) fn arrange(&mut self, order: &[u64]) {
        let rows = std::mem::take(&mut self.rows).into_iter();
        let standings = std::mem::take(&mut self.standings);
        let mut all: HashMap<u64, (Row, Standing)> =
            rows.zip(standings).map(|(row, standing)| (row.id, (row, standing))).collect();
        (self.rows, self.standings) = order.iter().filter_map(|id| all.remove(id)).unzip();
    }

    /// Trials with their standings.
    pub(crate) fn trials(&self) -> impl Iterator<Item = (&Row, &Standing)> {
        self.rows.iter().zip(&self.standings)
    }
}
