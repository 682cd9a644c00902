//! Hundreds of random schedules: agents take, run, end, sleep, die and lose their lease at any moment, and
//! links report errors, having worked or not. An oracle that knows what ran checks whether anything was lost,
//! counted twice, run out of order, or stuck.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;

use super::*;
use crate::sweep::tree::damage::Damage;
use crate::sweep::tree::deck::Terms;
use crate::sweep::tree::records::{End, Event, Start};
use crate::sweep::tree::table::RowOut;
use crate::sweep::tree::{bundle, ledger};

thread_local! {
    static DICE: Cell<u64> = const { Cell::new(1) };
}

/// Numbers that look random and are the same in every run (xorshift64).
fn below(n: u64) -> u64 {
    let mut x = DICE.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    DICE.set(x);
    x % n
}

/// A server that now and then does not carry out a request, or carries it out and reports that it has not.
fn flaky(from: &Path, to: &Path) -> io::Result<()> {
    match below(12) {
        0 => Err(io::Error::other("not done")),
        1 => std::fs::hard_link(from, to).and(Err(io::Error::other("done, and the answer lost"))),
        2 => std::fs::hard_link(from, to).and_then(|()| std::fs::hard_link(from, to)),
        _ => std::fs::hard_link(from, to),
    }
}

/// A sweep of chains of these lengths, enqueued.
fn sweep(dir: &Path, lengths: &[u64]) -> Tree {
    let tree = Tree::at(dir);
    tree.create("s", crate::base::host::access::Access::default()).unwrap();
    let plan = crate::plan::parse(
        "version = 1\nsweep.name = \"s\"\nrun.command = [\"true\"]\n",
        "plan.toml",
    )
    .unwrap();
    let count = lengths.iter().sum();
    let head = Head {
        format: crate::sweep::tree::FORMAT,
        first: 0,
        count,
        sweep: "s".into(),
        seed: 1,
        run: plan.run.clone(),
        workdir: "/".into(),
        site_modules: Vec::new(),
        resources: crate::plan::Resources::default(),
        gpu_ids: crate::plan::GpuIds::Exact,
        setup: None,
        keys_crc: None,
        plan_crc: None,
    };
    let params = &plan.trials[0].params;
    let mut units: Vec<Vec<u64>> = Vec::new();
    let mut rows = Vec::new();
    for (chain, &length) in lengths.iter().enumerate() {
        let first = rows.len() as u64;
        for link in 0..length {
            let id = first + link;
            rows.push(RowOut {
                id,
                chain: chain as u64,
                link,
                after: (link > 0).then(|| id - 1),
                task_id: None,
                key: "00000000000000000000000000000000",
                gpu_ids_abs: None,
                params,
                resources: None,
            });
        }
        units.push((first..first + length).collect());
    }
    table::write(&tree, &head, rows.into_iter()).unwrap();
    ledger::prepare(&tree).unwrap();
    let pull = Pull::default();
    let terms = Terms::new(&pull);
    deck::write(&tree, &[], &units, terms).unwrap();
    tree
}

fn offer(slots: u32) -> Offer {
    Offer {
        host: "n1".into(),
        job: None,
        slots,
        cores: Vec::new(),
        cores_per_slot: 1,
        may_shrink: false,
    }
}

fn join(tree: &Tree) -> Membership {
    loop {
        match Membership::join(tree, offer(1 + below(3) as u32), flaky, |_| {}, || true) {
            Ok(Some(membership)) => return membership,
            Ok(None) => unreachable!("it goes on"),
            // A join that seemed to fail leaves an agent that never lives: others bury it.
            Err(_) => {}
        }
    }
}

/// An agent of the test: what it would do with programs it does at once, a step at a time.
struct Agent {
    membership: Membership,
    running: Vec<Unit>,
}

impl Agent {
    fn begin(&mut self, oracle: &mut Oracle) {
        let _ = self.membership.look();
        if self.membership.fill(1, None).is_err() {
            return;
        }
        if let Some(unit) = self.membership.next_unit().unwrap() {
            let row = &unit.rows[0];
            oracle.begins(&self.membership, row);
            let line = Event::Start(Start {
                trial: row.id,
                attempt: unit.tries + unit.faults + 1,
                time: 0.0,
                slot: Some(0),
                seq: self.membership.ledger.seq,
                argv: Vec::new(),
                ..Start::default()
            });
            self.membership.bundle.push(&line).unwrap();
            self.running.push(unit);
        }
    }

    fn end(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let mut unit = self.running.swap_remove(below(self.running.len() as u64) as usize);
        let row = unit.rows.pop_front().unwrap();
        let line = Event::End(End {
            trial: row.id,
            attempt: unit.tries + unit.faults + 1,
            time: 0.0,
            state: Outcome::Done,
            exit_code: Some(0),
            signal: None,
            cause: None,
            reason: None,
            duration_s: 0.01,
            peak_memory: 0,
            usage: None,
            result: None,
            log: None,
            last: true,
            seq: None,
        });
        self.membership.bundle.push(&line).unwrap();
        self.membership.done += 1;
        self.membership.busy_s += 0.01;
        (unit.link, unit.tries, unit.faults) = (unit.link + 1, 0, 0);
        if !unit.rows.is_empty() {
            self.membership.put_first(unit);
        }
        if below(2) == 0 {
            let _ = self.membership.flush();
        }
    }

    fn give_back(&mut self) {
        let back = self.membership.unbegun(1 + below(4));
        self.membership.give_back(back);
        if let Some(unit) = self.running.pop() {
            self.membership.give_back(vec![unit.piece()]);
        }
        let _ = self.membership.deliver();
    }
}

/// Knows what ran.
struct Oracle {
    begun: BTreeMap<u64, u32>,
    /// The ledger, read as it grows.
    ledger: Ledger,
}

impl Oracle {
    fn now(&mut self, tree: &Tree) -> &Ledger {
        self.ledger.follow(tree).unwrap();
        &self.ledger
    }

    /// The trial before one that begins must have an end that counts, unless the lease of the agent has
    /// expired and the agent does not know it yet.
    fn begins(&mut self, membership: &Membership, row: &Row) {
        *self.begun.entry(row.id).or_default() += 1;
        let Some(before) = row.after.filter(|_| below(8) == 0) else { return };
        let now = self.now(&membership.tree);
        if now.agents[&membership.name].gone.is_some() || membership.bundle.waiting() > 0 {
            return;
        }
        let mut records = HashMap::new();
        bundle::readable(&membership.tree, now, &mut records, &mut Damage::default()).unwrap();
        let outcome = records.get(&before).and_then(records::Record::outcome);
        assert_eq!(outcome, Some(Outcome::Done), "trial {} before {before}", row.id);
    }

    /// Every trial has one end that counts.
    fn judge(&self, tree: &Tree, trials: u64) {
        let ledger = Ledger::read(tree).unwrap();
        let mut records = HashMap::new();
        bundle::readable(tree, &ledger, &mut records, &mut Damage::default()).unwrap();
        for trial in 0..trials {
            let ends = |r: &records::Record| r.attempts.iter().filter(|a| a.end.is_some()).count();
            assert_eq!(records.get(&trial).map(ends), Some(1), "trial {trial}");
        }
        let all: BTreeSet<u64> = self.begun.keys().copied().collect();
        assert_eq!(all, (0..trials).collect());
    }
}

fn schedule(seed: u64) {
    DICE.set(seed);
    (0..5).for_each(|_| {
        below(2);
    });
    // In memory where there is such a place: every entry is flushed to disk, thousands of times.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(place).unwrap();
    let lengths: Vec<u64> = (0..6 + below(30)).map(|_| 1 + below(3)).collect();
    let trials = lengths.iter().sum();
    let tree = sweep(dir.path(), &lengths);
    let mut oracle = Oracle { begun: BTreeMap::new(), ledger: Ledger::default() };
    let mut agents: Vec<Agent> = Vec::new();
    for step in 0.. {
        assert!(step < 20_000, "stuck");
        // After a while no agent dies any more, so that the sweep can end.
        let calm = step > 300;
        if agents.is_empty() || (!calm && agents.len() < 5 && below(20) == 0) {
            agents.push(Agent { membership: join(&tree), running: Vec::new() });
        }
        let i = below(agents.len() as u64) as usize;
        match below(if calm { 8 } else { 12 }) {
            0..3 => agents[i].begin(&mut oracle),
            3..6 => agents[i].end(),
            6 => {
                let _ = agents[i].membership.flush();
            }
            7 => {
                let agent = &mut agents[i];
                let _ = agent.membership.look();
                if agent.membership.is_fenced() {
                    agent.running.clear();
                    agent.membership = join(&tree);
                } else if agent.running.is_empty()
                    && agent.membership.waiting() == 0
                    && agent.membership.open() == 0
                {
                    let _ = agent.membership.say_idle();
                }
            }
            8 => agents[i].give_back(),
            // Dead, with all that it has not written.
            9 => drop(agents.swap_remove(i)),
            // Taken for dead, whether it is or not.
            10 => bury(&tree, &mut oracle, &agents[i].membership),
            _ => {
                let _ = agents[i].membership.beat();
            }
        }
        if calm && below(10) == 0 {
            // In the end every dead agent is detected.
            let names: BTreeSet<String> =
                agents.iter().map(|a| a.membership.name.clone()).collect();
            let ledger = oracle.now(&tree);
            let dead = ledger.living().map(|(name, _)| name).find(|name| !names.contains(*name));
            if let Some(dead) = dead.cloned() {
                expire_now(&tree, &mut oracle, &agents[0].membership, &dead);
            } else if ledger.is_over(deck::total(&agents[0].membership.decks)) {
                break;
            }
        }
    }
    oracle.judge(&tree, trials);
}

/// Takes some living agent for dead.
fn bury(tree: &Tree, oracle: &mut Oracle, by: &Membership) {
    let names: Vec<String> = by.ledger.living().map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return;
    }
    let dead = names[below(names.len() as u64) as usize].clone();
    if dead != by.name {
        expire_now(tree, oracle, by, &dead);
    }
}

fn expire_now(tree: &Tree, oracle: &mut Oracle, by: &Membership, dead: &str) {
    // Own entries are to be seen by the membership itself.
    let mut ledger = oracle.now(tree).clone();
    let _ = expire(tree, &mut ledger, &by.decks, &by.heads, dead, &by.name, flaky);
}

#[test]
fn nothing_is_lost_or_counted_twice_in_random_schedules() {
    use rayon::prelude::*;
    (1..=60u64).into_par_iter().for_each(|seed| schedule(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
}

#[test]
fn a_trial_that_the_plan_has_brought_back_is_not_taken_for_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), &[3]);
    let heads = table::heads(&tree).unwrap();
    let drop = |trials: &[u64]| {
        terms::keep(&tree, &heads, 1, trials.iter().copied().collect()).unwrap();
    };
    drop(&[1]);
    let agent = Membership::join(&tree, offer(1), ledger::link, |_| {}, || true);
    let mut agent = agent.unwrap().unwrap();
    agent.fill(1, None).unwrap();
    assert!(agent.next_unit().unwrap().is_some());
    assert!(agent.is_dropped(1).unwrap());
    drop(&[]);
    assert!(!agent.is_dropped(1).unwrap());
}

#[test]
fn a_trial_whose_chain_was_dropped_is_free_of_the_one_before_it_and_dropped_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), &[1, 1]);
    let heads = table::heads(&tree).unwrap();
    let agent = Membership::join(&tree, offer(1), ledger::link, |_| {}, || true);
    let mut agent = agent.unwrap().unwrap();
    agent.fill(2, None).unwrap();
    agent.next_unit().unwrap();
    let mut unit = agent.next_unit().unwrap().unwrap();
    unit.rows[0].after = Some(0);
    assert_eq!((agent.before(&unit).unwrap(), agent.is_dropped(1).unwrap()), (Some(0), false));
    terms::keep(&tree, &heads, 1, [0, 1].into_iter().collect()).unwrap();
    assert_eq!((agent.before(&unit).unwrap(), agent.is_dropped(1).unwrap()), (None, true));
}

#[test]
fn an_end_without_success_does_not_count_once_the_trial_is_enqueued_again() {
    let dir = tempfile::tempdir().unwrap();
    let tree = sweep(dir.path(), &[3]);
    let agent = Membership::join(&tree, offer(1), ledger::link, |_| {}, || true);
    let mut agent = agent.unwrap().unwrap();
    agent.fill(1, None).unwrap();
    let (seq, reason) = (agent.ledger.seq, "trial 0 failed".to_owned());
    agent.bundle.push(&Event::Skip { trial: 1, time: 0.0, job: None, seq, reason }).unwrap();
    agent.flush().unwrap();
    assert_eq!(agent.outcome_before(1).unwrap(), Some(Outcome::Failed));
    let pull = Pull::default();
    let terms = Terms { seq, ..Terms::new(&pull) };
    deck::write(&tree, &agent.decks, &[vec![1]], terms).unwrap();
    agent.look().unwrap();
    assert_eq!(agent.outcome_before(1).unwrap(), None);
}
