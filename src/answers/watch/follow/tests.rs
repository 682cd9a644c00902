//! What following costs, and that nothing is lost on the way.

use serde_json::json;

use super::*;
use crate::base::host::Vars;
use crate::plan::Pull;
use crate::sweep::standing::State;
use crate::sweep::tree::damage::Damaged;
use crate::sweep::tree::deck::Terms;
use crate::sweep::tree::ledger::{self, Entry};
use crate::sweep::tree::line::Writer;
use crate::sweep::tree::records::{End, Event, Start, Who};
use crate::sweep::tree::table::Head;

/// A sweep for agents, and those who write into it.
struct Sweep {
    _dir: tempfile::TempDir,
    tree: Tree,
    ledger: Ledger,
    decks: Vec<Deck>,
    writers: HashMap<String, Writer>,
}

impl Sweep {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        tree.create("s", crate::base::host::access::Access::default()).unwrap();
        ledger::prepare(&tree).unwrap();
        let (ledger, decks, writers) = (Ledger::default(), Vec::new(), HashMap::new());
        Self { _dir: dir, tree, ledger, decks, writers }
    }

    /// Enqueues so many trials more. The table of trials has a head and nothing else: the watcher may not
    /// read more.
    fn deal(&mut self, count: u64) {
        let text = "version = 1\nsweep.name = \"s\"\nrun.command = [\"true\"]\n";
        let plan = crate::plan::parse(text, "plan.toml").unwrap();
        let first = self.decks.last().map_or(0, |deck| deck.first + deck.count);
        let head = Head {
            format: crate::sweep::tree::FORMAT,
            first,
            count,
            sweep: "s".to_owned(),
            seed: 0,
            run: plan.run.clone(),
            workdir: "/".into(),
            site_modules: vec![],
            resources: (*plan.trials[0].resources).clone(),
            gpu_ids: plan.schedule.gpu_ids,
            setup: None,
            keys_crc: None,
            plan_crc: None,
        };
        table::write(&self.tree, &head, std::iter::empty()).unwrap();
        let units: Vec<Vec<u64>> = (first..first + count).map(|trial| vec![trial]).collect();
        let pull = &Pull::default();
        let terms = Terms::new(pull);
        self.decks.push(deck::write(&self.tree, &self.decks, &units, terms).unwrap());
    }

    fn say(&mut self, entry: &Entry) {
        assert!(ledger::append(&self.tree, &mut self.ledger, entry, ledger::link).unwrap());
    }

    fn join(&mut self, agent: &str) {
        let (name, nonce, host) = (agent.to_owned(), "join".to_owned(), "n1".to_owned());
        self.say(&Entry::Join { agent: name, nonce, host, slots: 2, cores: vec![], job: None });
        let who = Who { agent: agent.to_owned(), host: "n1".to_owned(), ..Who::default() };
        self.writers.insert(agent.to_owned(), bundle::create(&self.tree, &who).unwrap());
    }

    /// Appends lines and returns how long the bundle is then.
    fn write(&mut self, agent: &str, lines: &[Event]) -> u64 {
        let writer = self.writers.get_mut(agent).unwrap();
        lines.iter().for_each(|line| writer.push(line).unwrap());
        writer.flush().unwrap();
        std::fs::metadata(writer.path()).unwrap().len()
    }

    fn watcher(&self) -> Watcher {
        let identity = self.tree.identity().unwrap().unwrap();
        let read = |_: &std::path::Path| Ok(None);
        let site = crate::plan::site::load(&Vars::new(), &read, None).unwrap();
        let asking = Asking { site, vars: Vars::new(), may_ask: false };
        Watcher::new(self.tree.clone(), identity, asking)
    }
}

fn start(trial: u64) -> Event {
    Event::Start(Start {
        trial,
        attempt: 1,
        time: 1.0,
        slot: Some(0),
        seq: 0,
        argv: vec![],
        ..Start::default()
    })
}

fn done(trial: u64) -> Event {
    Event::End(End {
        trial,
        attempt: 1,
        time: 2.0,
        state: Outcome::Done,
        exit_code: Some(0),
        signal: None,
        cause: None,
        reason: None,
        duration_s: 1.0,
        peak_memory: 0,
        usage: None,
        result: None,
        log: None,
        last: true,
        seq: None,
    })
}

/// Looks until nothing is left to read; the counts, and what that look cost.
fn look(watcher: &mut Watcher) -> (String, Cost) {
    let before = watcher.cost;
    while watcher.look(Duration::ZERO).unwrap() {}
    let frame = watcher.frame(clock::now());
    let one = |(state, n): (&State, &u64)| format!("{} {n}", state.word());
    let counts = frame.counts.iter().map(one).collect::<Vec<_>>().join(" ");
    let cost = watcher.cost;
    let cost = Cost {
        stamps: cost.stamps - before.stamps,
        files: cost.files - before.files,
        bytes: cost.bytes - before.bytes,
        wholes: cost.wholes - before.wholes,
    };
    (counts, cost)
}

#[test]
fn a_look_with_nothing_new_reads_nothing() {
    let mut sweep = Sweep::new();
    sweep.deal(10);
    for agent in ["a", "b"] {
        sweep.join(agent);
    }
    let a = sweep.write("a", &[start(0), done(0), start(1)]);
    let b = sweep.write("b", &[start(2), done(2)]);
    let mut watcher = sweep.watcher();
    let cost = |stamps, files, bytes| Cost { stamps, files, bytes, wholes: 0 };
    // A deck, two entries, two bundles; and whether others have run trials.
    let first = ("done 2 running 1 queued 7".to_owned(), cost(4, 5, a + b));
    assert_eq!(look(&mut watcher), first);
    assert_eq!(look(&mut watcher), (first.0, cost(2, 0, 0)));
    let longer = sweep.write("a", &[done(1)]);
    assert_eq!(look(&mut watcher), ("done 3 queued 7".to_owned(), cost(2, 1, longer - a)));
    assert_eq!(look(&mut watcher).1, cost(2, 0, 0));
    // A plan that grew.
    sweep.deal(5);
    assert_eq!(look(&mut watcher), ("done 3 queued 12".to_owned(), cost(2, 1, 0)));
}

#[test]
fn who_has_gone_is_not_asked_for_ever() {
    let mut sweep = Sweep::new();
    sweep.deal(3);
    sweep.join("a");
    let size = sweep.write("a", &[start(0), done(0), start(1)]);
    let mut watcher = sweep.watcher();
    assert_eq!(look(&mut watcher).0, "done 1 running 1 queued 1");
    // Lines that a dead agent writes are void, and are not read.
    sweep.write("a", &[done(1)]);
    let (agent, nonce, by) = ("a".to_owned(), "1".to_owned(), "b".to_owned());
    sweep.say(&Entry::Expire { agent, nonce, by, size, units: vec![], unbegun: vec![] });
    let (counts, cost) = look(&mut watcher);
    assert_eq!(
        (counts.as_str(), cost.stamps, cost.files, cost.bytes),
        ("done 1 queued 2", 1, 1, 0)
    );
    assert_eq!(look(&mut watcher).1, Cost::default());
    // One who comes later and reads all of it sees the same.
    assert_eq!(look(&mut sweep.watcher()).0, "done 1 queued 2");
}

#[test]
fn a_line_on_its_way_and_one_that_is_very_long_are_read_once_they_are_whole() {
    let mut sweep = Sweep::new();
    sweep.deal(4);
    sweep.join("a");
    sweep.write("a", &[start(0)]);
    let path = sweep.tree.agent_file("a", "jsonl");
    let mut watcher = sweep.watcher();
    assert_eq!(look(&mut watcher).0, "running 1 queued 3");
    let line = crate::sweep::tree::line::seal(&done(0)).unwrap();
    let (half, rest) = line.split_at(line.len() / 2);
    disk::append(&path, half).unwrap();
    assert_eq!(look(&mut watcher).0, "running 1 queued 3");
    // Half a line does not cause another look.
    assert_eq!(look(&mut watcher).1.bytes, 0);
    disk::append(&path, rest).unwrap();
    let (counts, cost) = look(&mut watcher);
    assert_eq!((counts.as_str(), cost.bytes), ("done 1 queued 3", line.len() as u64));
    // Several pieces long.
    let row = serde_json::Map::from_iter([("text".to_owned(), json!("x".repeat(3 << 20)))]);
    let metrics = Event::Metrics { trial: 1, attempt: 1, rows: vec![row] };
    sweep.write("a", &[start(1), metrics, done(1), start(2)]);
    assert_eq!(look(&mut watcher).0, "done 2 running 1 queued 1");
    assert_eq!(look(&mut sweep.watcher()).0, "done 2 running 1 queued 1");
}

#[test]
fn a_bundle_without_an_end_of_line_is_read_a_piece_at_a_time_and_no_further_than_the_longest_line()
{
    let mut sweep = Sweep::new();
    sweep.deal(2);
    sweep.join("a");
    let size = sweep.write("a", &[start(0), done(0), start(1)]);
    let path = sweep.tree.agent_file("a", "jsonl");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    // A hole: it takes no space.
    file.set_len(1 << 40).unwrap();
    let mut watcher = sweep.watcher();
    let (counts, cost) = look(&mut watcher);
    assert_eq!(counts, "done 1 running 1");
    // The first piece but one byte was read twice.
    assert!((line::LONGEST..=line::LONGEST + size + CHUNK).contains(&cost.bytes), "{cost:?}");
    let damage = watcher.frame(clock::now()).damage;
    let damaged = Damaged::new("agents/a/a.jsonl", 1);
    assert!(damage.contains(&damaged), "{damage:?}");
    assert_eq!(look(&mut watcher).1, Cost::default());
}

#[test]
fn many_bundles_are_read_in_turns() {
    let mut sweep = Sweep::new();
    sweep.deal(200);
    for i in 20..40 {
        // All are of one size.
        let agent = format!("n{i}-a");
        sweep.join(&agent);
        sweep.write(&agent, &(0..5).map(|trial| done(i * 5 + trial)).collect::<Vec<_>>());
    }
    let mut watcher = sweep.watcher();
    assert!(watcher.look(Duration::ZERO).unwrap(), "there is more to read");
    let frame = watcher.frame(clock::now());
    assert_eq!(frame.count(&State::Done), (ABREAST * 5) as u64);
    assert_eq!(frame.notes, ["still reading what agents have recorded: 40 %"]);
    assert_eq!(look(&mut watcher).0, "done 100 queued 100");
    let seconds = |s| Duration::from_secs(s);
    watcher.took = seconds(3);
    assert_eq!((watcher.pause(seconds(2)), watcher.pause(seconds(40))), (seconds(30), seconds(40)));
}

#[test]
fn what_was_run_before_agents_came_counts_too() {
    let mut sweep = Sweep::new();
    sweep.deal(4);
    let record = sweep.tree.record(3, 1);
    let mut file = disk::create_exclusive_with_parent(&record).unwrap().unwrap();
    let head = json!({"event": "start", "trial": 3, "attempt": 1, "time": 1.0, "host": "n9", "pid": 1,
        "started": null, "job": null, "ranks": 1, "argv": [], "devices": null, "version": ""});
    let tail = json!({"event": "end", "trial": 3, "attempt": 1, "time": 2.0, "state": "failed",
        "exit_code": 7, "signal": null, "reason": null, "duration_s": 1.0, "peak_memory": 0,
        "result": null});
    for line in [head, tail] {
        std::io::Write::write_all(&mut file, &crate::sweep::tree::line::seal(&line).unwrap())
            .unwrap();
    }
    sweep.join("a");
    sweep.write("a", &[done(0)]);
    let mut watcher = sweep.watcher();
    let first = look(&mut watcher);
    assert_eq!((first.0.as_str(), first.1.wholes), ("done 1 queued 2 failed 1", 1));
    assert_eq!(look(&mut watcher).1.wholes, 0);
    let frame = watcher.frame(clock::now());
    assert_eq!((&*frame.failures[0].host, &*frame.failures[0].reason), ("n9", "exit code 7"));
}
