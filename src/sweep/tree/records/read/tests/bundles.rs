//! Readers of bundles see the same with an index as without, whatever agents, the ledger and the disk do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use super::rows;
use crate::sweep::tree::keys::Keys;
use crate::sweep::tree::ledger;
use crate::sweep::tree::records::{self, index::Entry};
use crate::sweep::tree::records::{Attempt, Decided, End, Event, Outcome, Start, Who};

const AGENTS: [&str; 3] = ["n1-a", "n2-b", "n3-a"];

const TRIALS: u64 = 4;

struct Sweep {
    _dir: tempfile::TempDir,
    tree: Tree,
    ledger: Ledger,
    /// Lines of each bundle, and the trials that its agent has begun and not ended.
    lines: [u64; 3],
    open: [Vec<u64>; 3],
    later: u64,
}

impl Sweep {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        ledger::prepare(&tree).unwrap();
        let ledger = Ledger::default();
        let mut own =
            Self { _dir: dir, tree, ledger, lines: [0; 3], open: Default::default(), later: 0 };
        for agent in AGENTS.map(str::to_owned) {
            let (nonce, host, slots) = (agent.clone(), "n".to_owned(), 1);
            own.claim(&ledger::Entry::Join { agent, nonce, host, slots, cores: vec![], job: None });
        }
        own
    }

    fn path(&self, agent: usize) -> PathBuf {
        self.tree.agent_file(AGENTS[agent], "jsonl")
    }

    fn size(&self, agent: usize) -> u64 {
        fs::metadata(self.path(agent)).map_or(0, |about| about.len())
    }

    /// Every change has a time of its own.
    fn changed(&mut self, path: &Path) {
        self.later += 1;
        super::set_changed(path, self.later);
    }

    fn append(&mut self, agent: usize, event: &Event) {
        let path = self.path(agent);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if self.lines[agent] == 0 {
            let who = Who { agent: AGENTS[agent].into(), host: "n".into(), ..Who::default() };
            self.write(agent, &Event::Agent(who));
        }
        self.write(agent, event);
        self.changed(&path);
    }

    fn write(&mut self, agent: usize, event: &Event) {
        self.lines[agent] += 1;
        let bytes = line::seal_numbered(event, self.lines[agent], 0).unwrap();
        let mut file = File::options().append(true).create(true).open(self.path(agent)).unwrap();
        file.write_all(&bytes).unwrap();
    }

    /// What an agent writes next about a trial.
    fn work(&mut self, agent: usize, trial: u64, end: Option<Outcome>) {
        let is_open = self.open[agent].contains(&trial);
        let seq = self.ledger.seq;
        let event = match end {
            _ if !is_open => {
                self.open[agent].push(trial);
                Event::Start(Start { trial, attempt: 1, time: 1.0, seq, ..Start::default() })
            }
            None => {
                let rows = vec![json!({"loss": 0.5}).as_object().unwrap().clone()];
                Event::Metrics { trial, attempt: 1, rows }
            }
            Some(state) => {
                self.open[agent].retain(|open| *open != trial);
                Event::End(ended(trial, state))
            }
        };
        self.append(agent, &event);
    }

    fn claim(&mut self, entry: &ledger::Entry) {
        assert!(ledger::append(&self.tree, &mut self.ledger, entry, ledger::link).unwrap());
    }

    fn records<'a>(&'a self, keys: &'a Keys<'a>) -> SweepRecords<'a> {
        SweepRecords { tree: &self.tree, token: "abcdefgh", keys }
    }

    fn index(&self, check: Check) -> Index {
        let mut index = Index::always(&self.tree, "abcdefgh", check);
        index.noter = Some(rows);
        index
    }

    /// Everything that is read, as text: the records of all trials, and what could not be read.
    fn seen(&self, index: Option<&Index>) -> String {
        let mut damage = Damage::default();
        let keys = &Keys::all(&self.tree).unwrap();
        let records = all_with_index(self.records(keys), index, &mut damage).unwrap();
        self.text(records.into_iter().collect(), damage)
    }

    /// The same, where the records of trials that were done at once are taken.
    fn taken(&self, index: Option<&Index>) -> String {
        let (mut damage, mut taken) = (Damage::default(), BTreeMap::new());
        let make = |_: &BTreeMap<u64, Record>, records: Vec<(u64, Record)>| records;
        let take = |all: &mut BTreeMap<u64, Record>, records: Vec<(u64, Record)>| {
            for (trial, record) in records {
                assert!(all.insert(trial, record).is_none(), "{trial} was taken twice");
            }
        };
        let keys = &Keys::all(&self.tree).unwrap();
        let (from, with) = (self.records(keys), (make, take));
        let records = gathered_with(from, index, &mut taken, with, &mut damage).unwrap();
        for trial in taken.keys() {
            assert!(records.whole(*trial).is_none() && records.contains_key(trial));
        }
        taken.extend(records.into_whole());
        self.text(taken, damage)
    }

    fn text(&self, mut records: BTreeMap<u64, Record>, damage: Damage) -> String {
        for record in records.values_mut() {
            let note = record.note.take();
            let lines = rows(Origin::Tree(&self.tree), record);
            assert!(note.is_none_or(|note| Some(&*note) == lines.as_deref()));
        }
        format!("{records:?} {:?}", damage.settle(|_| false))
    }

    /// How trials stand, where no more is asked of those that were done at once, but for trial 1.
    fn stands(&self, index: Option<&Index>) -> String {
        let mut damage = Damage::default();
        let keys = &Keys::all(&self.tree).unwrap();
        let from = self.records(keys);
        let records = briefly_with(from, index, &|trial| trial == 1, &mut damage).unwrap();
        self.standing(&records)
    }

    fn standing(&self, records: &ByTrial) -> String {
        let stand = |record: &Record| {
            let why = record.decisive().map(Attempt::why);
            (record.begun(), record.outcome(), record.has_failed(), why, record.skipped.is_some())
        };
        let all: Vec<_> = (0..TRIALS).map(|trial| records.get(&trial).map(stand)).collect();
        let whole = records.get(&1).map(|record| Record { note: None, ..record.clone() });
        format!("{all:?} {whole:?}")
    }
}

fn ended(trial: u64, state: Outcome) -> End {
    let end = json!({
        "trial": trial, "attempt": 1, "time": 2.0, "state": state, "duration_s": 1.0, "last": true,
        "log": [3, 4],
    });
    serde_json::from_value(end).unwrap()
}

/// Something that happens to a sweep.
#[derive(Debug, Clone)]
enum Step {
    Work(usize, u64, Option<Outcome>),
    Skip(usize, u64),
    Decide(usize, u64),
    /// A worker of a job has run the trial.
    Worker(u64, Outcome),
    /// An agent leaves or is fenced, with so much of its bundle.
    Leave(usize),
    Fence(usize, u64),
    Copy(usize, usize, u64),
    Won(usize, u64),
    /// The agent renews its lease, and writes nothing.
    Touch(usize),
    Torn(usize),
    Cut(usize, u64),
    Flip(usize, u64),
    Look,
    Take,
    Count,
    FlipIndex(usize, usize),
    RemoveIndex,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let agent = || 0..3_usize;
    let trial = || 0..TRIALS;
    let end = prop_oneof![
        2 => Just(None),
        3 => Just(Some(Outcome::Done)),
        1 => Just(Some(Outcome::Failed)),
        1 => Just(Some(Outcome::Interrupted)),
    ];
    let step = prop_oneof![
        24 => (agent(), trial(), end).prop_map(|(a, t, end)| Step::Work(a, t, end)),
        1 => (agent(), trial()).prop_map(|(a, t)| Step::Skip(a, t)),
        1 => (agent(), trial()).prop_map(|(a, t)| Step::Decide(a, t)),
        1 => trial().prop_map(|t| Step::Worker(t, Outcome::Done)),
        1 => trial().prop_map(|t| Step::Worker(t, Outcome::Failed)),
        1 => agent().prop_map(Step::Leave),
        1 => (agent(), 0..400_u64).prop_map(|(a, less)| Step::Fence(a, less)),
        2 => (agent(), agent(), trial()).prop_map(|(a, of, t)| Step::Copy(a, of, t)),
        2 => (agent(), trial()).prop_map(|(a, t)| Step::Won(a, t)),
        1 => agent().prop_map(Step::Touch),
        1 => agent().prop_map(Step::Torn),
        1 => (agent(), 1..600_u64).prop_map(|(a, less)| Step::Cut(a, less)),
        1 => (agent(), 1..600_u64).prop_map(|(a, at)| Step::Flip(a, at)),
        4 => Just(Step::Look),
        4 => Just(Step::Take),
        2 => Just(Step::Count),
        1 => (agent(), 0..900_usize).prop_map(|(a, at)| Step::FlipIndex(a, at)),
        1 => Just(Step::RemoveIndex),
    ];
    prop::collection::vec(step, 1..60)
}

fn act(sweep: &mut Sweep, step: &Step, check: Check) {
    let name = |agent: usize| AGENTS[agent].to_owned();
    let nonce = sweep.ledger.seq.to_string();
    match *step {
        Step::Work(agent, trial, end) => sweep.work(agent, trial, end),
        Step::Skip(agent, trial) => {
            let (seq, reason) = (sweep.ledger.seq, "its chain stopped".to_owned());
            let skip =
                json!({"event": "skip", "trial": trial, "time": 1.0, "seq": seq, "reason": reason});
            sweep.append(agent, &serde_json::from_value(skip).unwrap());
        }
        Step::Decide(agent, trial) => {
            let decided =
                Decided { trial, attempt: 1, seq: sweep.ledger.seq, ..Decided::default() };
            sweep.append(agent, &Event::Decided(decided));
        }
        Step::Worker(trial, state) => {
            let path = sweep.tree.record(trial, 1);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let start = Start { trial, attempt: 1, time: 1.0, ..Start::default() };
            let events = [Event::Start(start), Event::End(ended(trial, state))];
            let lines = (1..).zip(&events).map(|(n, event)| line::seal_numbered(event, n, 0));
            fs::write(&path, lines.flat_map(Result::unwrap).collect::<Vec<u8>>()).unwrap();
            sweep.changed(&path);
            sweep.changed(path.parent().unwrap());
        }
        Step::Leave(agent) => {
            let size = sweep.size(agent);
            sweep.claim(&ledger::Entry::Leave {
                agent: name(agent),
                nonce,
                reason: String::new(),
                size,
            });
        }
        Step::Fence(agent, less) => {
            let size = sweep.size(agent).saturating_sub(less);
            let (agent, by, units, unbegun) = (name(agent), "n9".to_owned(), vec![], vec![]);
            sweep.claim(&ledger::Entry::Expire { agent, nonce, by, size, units, unbegun });
        }
        Step::Copy(agent, of, trial) => {
            let (size, since) = (sweep.size(of), sweep.ledger.seq / 2);
            let (agent, of) = (name(agent), name(of));
            sweep.claim(&ledger::Entry::Copy { agent, nonce, of, trial, size, since });
        }
        Step::Won(agent, trial) => {
            let begun = sweep.ledger.seq;
            sweep.claim(&ledger::Entry::Won {
                agent: name(agent),
                nonce,
                trial,
                attempt: 1,
                begun,
            });
        }
        Step::Touch(agent) => sweep.changed(&sweep.path(agent)),
        Step::Torn(agent) if sweep.lines[agent] > 0 => {
            let path = sweep.path(agent);
            File::options().append(true).open(&path).unwrap().write_all(b"{\"event\":").unwrap();
            sweep.changed(&path);
        }
        Step::Cut(agent, less) => {
            let (path, size) = (sweep.path(agent), sweep.size(agent));
            if let Ok(file) = File::options().write(true).open(&path) {
                file.set_len(size.saturating_sub(less)).unwrap();
                sweep.changed(&path);
            }
        }
        Step::Flip(agent, before) => {
            let path = sweep.path(agent);
            let bytes = fs::read(&path).unwrap_or_default();
            let at = bytes.len().checked_sub(before as usize);
            if let Some(at) = at {
                let mut bytes = bytes;
                bytes[at] ^= 1;
                fs::write(&path, bytes).unwrap();
                sweep.changed(&path);
            }
        }
        Step::Look => drop(sweep.seen(Some(&sweep.index(check)))),
        Step::Take => drop(sweep.taken(Some(&sweep.index(check)))),
        Step::Count => {
            let index = Index::always(&sweep.tree, "abcdefgh", check);
            sweep.stands(Some(&index));
        }
        Step::FlipIndex(agent, at) => {
            let path = sweep.tree.dir().join("index/agents").join(AGENTS[agent]);
            let Ok(mut bytes) = fs::read(&path) else { return };
            let at = at % bytes.len();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        Step::RemoveIndex => drop(fs::remove_dir_all(sweep.tree.dir().join("index"))),
        Step::Torn(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn readers_of_bundles_see_the_same_with_an_index_as_without(
        steps in steps(),
        all in any::<bool>(),
    ) {
        let check = if all { Check::Damage } else { Check::Changes };
        let mut sweep = Sweep::new();
        for step in &steps {
            act(&mut sweep, step, check);
            let reader = sweep.index(check).of_another();
            let without = sweep.seen(None);
            prop_assert_eq!(&sweep.seen(Some(&reader)), &without, "{:?}", step);
            prop_assert_eq!(&sweep.taken(Some(&reader)), &without, "{:?}", step);
            let keys = &Keys::all(&sweep.tree).unwrap();
            let from = sweep.records(keys);
            let records = all_with_index(from, None, &mut Damage::default()).unwrap();
            prop_assert_eq!(sweep.stands(Some(&reader)), sweep.standing(&records.into()));
        }
    }
}

#[test]
fn lines_that_the_index_has_are_not_read_again() {
    let mut sweep = Sweep::new();
    for trial in 0..40 {
        [None, None, Some(Outcome::Done)].into_iter().for_each(|end| sweep.work(0, trial, end));
    }
    let before = sweep.taken(Some(&sweep.index(Check::Changes)));
    assert_eq!(before, sweep.seen(None));
    // A line far before the end, which alone tells this reader that the bundle is the same.
    let mut bytes = fs::read(sweep.path(0)).unwrap();
    bytes[300] ^= 1;
    fs::write(sweep.path(0), bytes).unwrap();
    let damaged = sweep.seen(None);
    assert_ne!(damaged, before);
    let index = sweep.index(Check::Changes);
    let keys = &Keys::all(&sweep.tree).unwrap();
    let from = sweep.records(keys);
    let again = all_with_index(from, Some(&index), &mut Damage::default()).unwrap();
    assert_eq!(again.len(), 40);
    sweep.work(1, 41, None);
    let index = sweep.index(Check::Changes);
    let from = sweep.records(keys);
    let more = all_with_index(from, Some(&index), &mut Damage::default()).unwrap();
    assert_eq!(more.len(), 41);
    // Who looks for damage finds it.
    let index = sweep.index(Check::Damage);
    assert_eq!(sweep.seen(Some(&index)), sweep.seen(None));
}

#[test]
fn entries_that_cannot_be_read_any_more_come_from_the_bundle() {
    let mut sweep = Sweep::new();
    for trial in 0..40 {
        [None, None, Some(Outcome::Done)].into_iter().for_each(|end| sweep.work(0, trial, end));
    }
    let index = sweep.index(Check::Changes);
    drop(sweep.seen(Some(&index)));
    let (tree, ledger, keys) = (&sweep.tree, &sweep.ledger, &Keys::all(&sweep.tree).unwrap());
    let from = records::bundles::Bundles { tree, keys, ledger, index: Some(&index) };
    let bundles = || records::bundles::all(from, &mut Damage::default()).unwrap();
    let path = sweep.tree.dir().join("index/agents").join(AGENTS[0]);
    let whole = fs::read(&path).unwrap();
    // As an open file of a shared disk, which another host has replaced: it ends somewhere.
    for end in (0..whole.len() as u64).step_by(100) {
        let (bundle, _) = bundles().remove(0);
        let (opened, fresh) = bundle.open(from).unwrap();
        assert_eq!(fresh.len(), 0);
        File::options().write(true).open(&path).unwrap().set_len(end).unwrap();
        let mut trials = Vec::new();
        let add = |all: &[Entry<'_>]| trials.extend(all.iter().map(|entry| entry.trial));
        let rest = opened.each(from, add).unwrap();
        trials.extend(rest.iter().map(|(trial, _)| *trial));
        assert_eq!(trials, (0..40).collect::<Vec<u64>>(), "{end}");
        fs::write(&path, &whole).unwrap();
    }
}
