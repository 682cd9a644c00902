//! Readers of records see the same with an index as without, whatever happens to a sweep and to its index.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::sweep::tree::records::{Attempt, End, Event, Outcome, Start};

mod bundles;

/// Trials 0 to 2 and 1000 to 1002: two folders of records.
const TRIALS: u64 = 6;

fn trial(number: u64) -> u64 {
    number % 3 + 1000 * (number / 3)
}

/// Gives a file a time of change of its own, as on a file system whose clock is exact: so many seconds after one that lies
/// far back.
fn set_changed(path: &Path, later: u64) {
    let time = SystemTime::now() - Duration::from_secs(100_000) + Duration::from_secs(later);
    if let Ok(file) = File::open(path) {
        file.set_modified(time).unwrap();
    }
}

/// A sweep whose records change.
struct Sweep {
    _dir: tempfile::TempDir,
    tree: Tree,
    /// Of each trial and run the number of lines.
    lines: HashMap<(u64, u32), u64>,
    /// Seconds by which the next change of a file is later.
    later: u64,
}

impl Sweep {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        Self { _dir: dir, tree, lines: HashMap::new(), later: 0 }
    }

    fn path(&self, trial: u64, run: u32) -> PathBuf {
        self.tree.record(trial, run)
    }

    fn last_run(&self, trial: u64) -> u32 {
        (1..).take_while(|run| self.path(trial, *run).exists()).last().unwrap_or(0)
    }

    /// Every change has a time of its own, as on a file system whose clock is exact, and lies far back.
    fn changed(&mut self, path: &Path) {
        self.later += 1;
        set_changed(path, self.later);
    }

    fn append(&mut self, trial: u64, run: u32, event: &Event) {
        let path = self.path(trial, run);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let number = self.lines.entry((trial, run)).or_default();
        *number += 1;
        let bytes = line::seal_numbered(event, *number, 0).unwrap();
        let mut file = File::options().append(true).create(true).open(&path).unwrap();
        file.write_all(&bytes).unwrap();
        self.changed(&path);
        if *self.lines.get(&(trial, run)).unwrap() == 1 {
            self.changed(path.parent().unwrap());
        }
    }

    /// What the worker of a trial writes next: a run begins, logs, and ends.
    fn work(&mut self, trial: u64, end: Option<Outcome>) {
        let run = self.last_run(trial).max(1);
        let time = 1.0;
        let event = match (self.lines.get(&(trial, run)).copied().unwrap_or(0), end) {
            (0, _) => Event::Start(Start { trial, attempt: run, time, ..Start::default() }),
            (_, None) => {
                let rows = vec![json!({"loss": 0.5}).as_object().unwrap().clone()];
                Event::Metrics { trial, attempt: run, rows }
            }
            (_, Some(state)) => {
                let end = json!({
                    "trial": trial, "attempt": run, "time": 2.0, "state": state, "duration_s": 1.0,
                    "result": {"loss": trial},
                });
                Event::End(serde_json::from_value::<End>(end).unwrap())
            }
        };
        self.append(trial, run, &event);
    }

    fn is_done(&self, trial: u64) -> bool {
        let (record, _) = of_trial(&self.tree, trial).unwrap();
        record.outcome() == Some(Outcome::Done)
    }

    /// Everything that is read, as text.
    fn seen(&self, index: Option<&Index>) -> String {
        let mut damage = Damage::default();
        let records =
            with_index(&self.tree, &Keys::all(&self.tree).unwrap(), index, &mut damage).unwrap();
        let mut records: Vec<_> = records.into_iter().collect();
        for (_, record) in &mut records {
            let note = record.note.take();
            assert!(note.is_none_or(|note| note[..] == noted(record)[..]));
        }
        records.sort_by_key(|(trial, _)| *trial);
        format!("{records:?} {:?}", damage.settle(|_| false))
    }

    /// An index that has notes of the lines of metrics: their number and their last place.
    fn index(&self, check: Check) -> Index {
        let mut index = Index::always(&self.tree, "abcdefgh", check);
        index.noter = Some(|_, record| Some(noted(record)));
        index
    }

    /// How trials stand by their records, and the record of trial 1. `briefly`: where no more is asked of those that were
    /// done at once, but for this one.
    fn stands(&self, index: Option<&Index>, briefly: bool) -> String {
        let mut damage = Damage::default();
        let records = match briefly {
            true => {
                let keys = &Keys::all(&self.tree).unwrap();
                let from = SweepRecords { tree: &self.tree, token: "abcdefgh", keys };
                briefly_with(from, index, &|trial| trial == 1, &mut damage).unwrap()
            }
            false => with_index(&self.tree, &Keys::all(&self.tree).unwrap(), index, &mut damage)
                .unwrap()
                .into(),
        };
        let stand = |record: &Record| {
            let first = record.attempts.first().is_some_and(|attempt| attempt.start.behind);
            let why = record.decisive().map(Attempt::why);
            (record.begun(), record.outcome(), record.is_over(0), first, why, record.unread())
        };
        let all: Vec<_> = (0..TRIALS).map(|n| records.get(&trial(n)).map(stand)).collect();
        let whole = records.get(&1).map(|record| Record { note: None, ..record.clone() });
        format!("{all:?} {whole:?} {:?}", damage.settle(|_| false))
    }

    fn entries(&self) -> usize {
        let index = self.index(Check::Changes);
        ["000", "001"].iter().map(|folder| index.read(folder, 0.0).entries().count()).sum()
    }
}

fn noted(record: &Record) -> Vec<u8> {
    let spots = |attempt: &Attempt| (attempt.metrics.len(), attempt.metrics.last().map(|m| m.at));
    format!("{:?}", record.attempts.iter().map(spots).collect::<Vec<_>>()).into_bytes()
}

/// Something that happens to a sweep.
#[derive(Debug, Clone)]
enum Step {
    Work(u64, Option<Outcome>),
    Again(u64),
    Remove(u64),
    Cut(u64, usize),
    Flip(u64, usize),
    /// A look that may write the index.
    Look,
    /// Such a look that keeps no records of trials that were done at once.
    Count,
    CutIndex(bool, usize),
    FlipIndex(bool, usize),
    RemoveIndex,
    /// A process is killed while it writes the index.
    Kill(usize),
    /// The index of a folder takes the place of the other one's.
    Swap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let trial = || (0..TRIALS).prop_map(trial);
    let end = prop_oneof![
        Just(None),
        Just(Some(Outcome::Done)),
        Just(Some(Outcome::Done)),
        Just(Some(Outcome::Failed)),
        Just(Some(Outcome::Interrupted)),
    ];
    let step = prop_oneof![
        12 => (trial(), end).prop_map(|(trial, end)| Step::Work(trial, end)),
        2 => trial().prop_map(Step::Again),
        1 => trial().prop_map(Step::Remove),
        1 => (trial(), 0..900_usize).prop_map(|(trial, at)| Step::Cut(trial, at)),
        1 => (trial(), 0..900_usize).prop_map(|(trial, at)| Step::Flip(trial, at)),
        6 => Just(Step::Look),
        3 => Just(Step::Count),
        1 => (any::<bool>(), 0..900_usize).prop_map(|(first, at)| Step::CutIndex(first, at)),
        1 => (any::<bool>(), 0..900_usize).prop_map(|(first, at)| Step::FlipIndex(first, at)),
        1 => Just(Step::RemoveIndex),
        1 => (0..900_usize).prop_map(Step::Kill),
        1 => Just(Step::Swap),
    ];
    prop::collection::vec(step, 1..60)
}

fn flipped(path: &Path, at: usize) -> bool {
    let Ok(mut bytes) = fs::read(path) else { return false };
    let Some(at) = at.checked_rem(bytes.len()) else { return false };
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    true
}

fn cut(path: &Path, at: usize) -> bool {
    let Ok(file) = File::options().write(true).open(path) else { return false };
    let Some(at) = at.checked_rem(file.metadata().unwrap().len() as usize) else { return false };
    file.set_len(at as u64).unwrap();
    true
}

/// Does a step. Where not all files are looked at, no record of a trial that is done is damaged.
fn act(sweep: &mut Sweep, step: &Step, check: Check) {
    let index = |first: bool| sweep.tree.dir().join(if first { "index/000" } else { "index/001" });
    let spares = |trial: u64| check == Check::Changes && sweep.is_done(trial);
    match *step {
        Step::Work(trial, end) if !sweep.is_done(trial) => sweep.work(trial, end),
        Step::Again(trial) if !sweep.is_done(trial) => {
            let run = sweep.last_run(trial) + 1;
            let start = Start { trial, attempt: run, time: 1.0, ..Start::default() };
            sweep.append(trial, run, &Event::Start(start));
        }
        Step::Remove(trial) => {
            let run = sweep.last_run(trial);
            let path = sweep.path(trial, run);
            if fs::remove_file(&path).is_ok() {
                sweep.changed(path.parent().unwrap());
            }
            sweep.lines.remove(&(trial, run));
        }
        Step::Cut(trial, at) if !spares(trial) => {
            let path = sweep.path(trial, sweep.last_run(trial));
            if cut(&path, at) {
                sweep.changed(&path);
            }
        }
        Step::Flip(trial, at) if !spares(trial) => {
            let path = sweep.path(trial, sweep.last_run(trial));
            if flipped(&path, at) {
                sweep.changed(&path);
            }
        }
        Step::Look => drop(sweep.seen(Some(&sweep.index(check)))),
        Step::Count => drop(sweep.stands(Some(&sweep.index(check)), true)),
        Step::CutIndex(first, at) => drop(cut(&index(first), at)),
        Step::FlipIndex(first, at) => drop(flipped(&index(first), at)),
        Step::RemoveIndex => drop(fs::remove_dir_all(sweep.tree.dir().join("index"))),
        Step::Kill(at) => {
            if let Ok(bytes) = fs::read(index(true)) {
                let part = &bytes[..at.min(bytes.len())];
                fs::write(crate::base::host::disk::aside(&index(true)), part).unwrap();
            }
        }
        Step::Swap => drop(fs::copy(index(true), index(false))),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    /// The claim holds for damage to any record if all files are looked at, and otherwise for damage to records of trials
    /// that are not done.
    #[test]
    fn readers_see_the_same_with_an_index_as_without(steps in steps(), all in any::<bool>()) {
        let check = if all { Check::Damage } else { Check::Changes };
        let mut sweep = Sweep::new();
        for step in &steps {
            act(&mut sweep, step, check);
            // An index that is only read, as another user has it; a look of that user writes nothing.
            let before = sweep.entries();
            let reader = sweep.index(check).of_another();
            prop_assert_eq!(sweep.seen(Some(&reader)), sweep.seen(None), "{:?}", step);
            prop_assert_eq!(sweep.stands(Some(&reader), true), sweep.stands(None, false));
            prop_assert_eq!(sweep.entries(), before);
        }
    }
}

/// Three trials are done and three have failed.
fn ended() -> Sweep {
    let mut sweep = Sweep::new();
    for number in 0..TRIALS {
        let state = if number % 2 == 0 { Outcome::Done } else { Outcome::Failed };
        [None, None, Some(state)].into_iter().for_each(|end| sweep.work(trial(number), end));
    }
    sweep
}

#[test]
fn a_trial_that_is_done_is_read_once() {
    let mut sweep = ended();
    let before = sweep.seen(Some(&sweep.index(Check::Changes)));
    assert_eq!((before.clone(), sweep.entries()), (sweep.seen(None), 6));
    // The files are there, and nothing can be read from them any more.
    for number in [0, 2, 4] {
        let path = sweep.path(trial(number), 1);
        fs::write(&path, "").unwrap();
        sweep.changed(&path);
    }
    assert_eq!(sweep.seen(Some(&sweep.index(Check::Changes))), before);
    // What was noted of their metric lines stays.
    let index = sweep.index(Check::Changes);
    let notes = with_index(
        &sweep.tree,
        &Keys::all(&sweep.tree).unwrap(),
        Some(&index),
        &mut Damage::default(),
    )
    .unwrap();
    assert!(notes.values().all(|record| record.note.is_some()), "{notes:?}");
    // A reader of metric lines notices.
    let noticed = sweep.seen(Some(&sweep.index(Check::Damage)));
    assert_eq!(noticed, sweep.seen(None));
    assert_ne!(noticed, before);
}

#[test]
fn small_sweeps_have_no_index() {
    let sweep = ended();
    let index = Index::of(&sweep.tree, "abcdefgh", Check::Changes, None).unwrap();
    assert_eq!(sweep.seen(Some(&index)), sweep.seen(None));
    assert!(!sweep.tree.dir().join("index").exists());
}

#[test]
fn the_index_of_another_sweep_or_folder_is_not_believed() {
    let sweep = ended();
    sweep.seen(Some(&sweep.index(Check::Changes)));
    let other = Index::always(&sweep.tree, "12345678", Check::Changes);
    assert_eq!(other.read("000", 0.0).entries().count(), 0);
    assert_eq!(sweep.index(Check::Changes).read("000", 0.0).entries().count(), 3);
    fs::copy(sweep.tree.dir().join("index/000"), sweep.tree.dir().join("index/001")).unwrap();
    assert_eq!(sweep.index(Check::Changes).read("001", 0.0).entries().count(), 0);
}

#[test]
fn a_tree_that_takes_no_index_is_read_without_one() {
    let sweep = ended();
    // A file stands where the folder would be made: as on a full disk, nothing can be written there.
    fs::write(sweep.tree.dir().join("index"), "").unwrap();
    assert_eq!(sweep.seen(Some(&sweep.index(Check::Changes))), sweep.seen(None));
    assert_eq!(sweep.entries(), 0);
}

fn rows(from: Origin<'_>, record: &Record) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for attempt in &record.attempts {
        let row = |row| writeln!(all, "{row:?}").unwrap();
        attempt.each_row_in(from, row).ok()?;
    }
    Some(all)
}

#[test]
fn a_note_is_of_the_same_lines_whether_a_record_is_in_memory_or_not() {
    let mut sweep = ended();
    for (run, text) in [(2, "small".to_owned()), (3, "large".repeat(SMALL as usize / 4))] {
        let start = Start { trial: 1, attempt: run, time: 1.0, ..Start::default() };
        let row = json!({ "text": text }).as_object().unwrap().clone();
        let metrics = Event::Metrics { trial: 1, attempt: run, rows: vec![row.clone(), row] };
        [Event::Start(start), metrics].iter().for_each(|event| sweep.append(1, run, event));
        sweep.work(1, Some(Outcome::Failed));
    }
    let mut index = sweep.index(Check::Changes);
    index.noter = Some(rows);
    let records = with_index(
        &sweep.tree,
        &Keys::all(&sweep.tree).unwrap(),
        Some(&index),
        &mut Damage::default(),
    )
    .unwrap();
    for record in records.values() {
        let lines = record.attempts.iter().map(|attempt| attempt.metrics.len());
        assert_eq!(lines.collect::<HashSet<_>>(), HashSet::from([1]));
        let of_files = rows(Origin::Tree(&sweep.tree), record).unwrap();
        assert_eq!(record.note.as_deref(), Some(&of_files[..]));
    }
    assert_eq!(records[&1].attempts.len(), 3);
}
