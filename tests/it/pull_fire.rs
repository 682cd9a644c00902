//! Agents under fire: real ones, started, killed, stopped and told to go at random moments, and their programs
//! killed. Nothing is lost, doubled, out of order or stuck, and everything can be read at any moment.
//!
//! `HPCSWEEP_FIRE=FIRST..END` runs other schedules than the few that every run of the tests takes;
//! a schedule that fails names its number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use hpcsweep::tree::{Tree, records};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::kill::{Dice, children};
use crate::world::{Started, World, wait_until};

/// A trial says who runs it when it begins and before it ends, each in one write.
const CODE: &str = "echo begin $HPCSWEEP_TRIAL $HPCSWEEP_SLOT.$$ >>$EVENTS
    echo '{\"step\": 1, \"loss\": 1}' >>$HPCSWEEP_METRICS; sleep $HPCSWEEP_PARAM_T
    echo \"\\\"$HPCSWEEP_SLOT.$$\\\"\" >$HPCSWEEP_RESULT
    echo end $HPCSWEEP_TRIAL $HPCSWEEP_SLOT.$$ >>$EVENTS";

/// A plan of chains of these lengths.
fn plan(lengths: &[usize], dice: &mut Dice) -> String {
    let code = Value::from(CODE);
    let mut text = format!(
        "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\nattempts = 50
        [pull]\nlease = 0.6\nbackoff = 0.01\n"
    );
    for (chain, &length) in lengths.iter().enumerate() {
        for link in 0..length {
            let t = [0, 0, 10, 30, 90][dice.below(5) as usize];
            text +=
                &format!("[[trials]]\ntask_id = \"c{chain}\"\nlink = {link}\nt = \"0.{t:03}\"\n");
        }
    }
    text
}

/// An agent of a schedule, and what was done to it.
struct Agent {
    started: Started,
    asleep: Option<Instant>,
    killed: bool,
}

struct Schedule {
    world: World,
    number: u64,
    lengths: Vec<usize>,
    agents: Vec<Agent>,
    /// Whose end of each trial has been seen to count.
    done: BTreeMap<u64, String>,
}

impl Schedule {
    fn new(number: u64, dice: &mut Dice) -> Self {
        let lengths: Vec<usize> = (0..15).map(|_| 1 + dice.below(3) as usize).collect();
        let mut world = World::new();
        world.set("EVENTS", &world.text_path("events"));
        world.write("events", "");
        world.write("plan.toml", &plan(&lengths, dice));
        Self { world, number, lengths, agents: Vec::new(), done: BTreeMap::new() }
    }

    fn start(&mut self, dice: &mut Dice) {
        let slots = (1 + dice.below(2)).to_string();
        let started = self.world.start(&["worker", "--pull", "plan.toml", "--slots", &slots]);
        self.agents.push(Agent { started, asleep: None, killed: false });
    }

    fn trials(&self) -> u64 {
        self.lengths.iter().sum::<usize>() as u64
    }

    /// Those of the agents that have ended did so as agents do.
    fn bury(&mut self) {
        let mut i = 0;
        while i < self.agents.len() {
            if self.agents[i].started.child.try_wait().unwrap().is_none() {
                i += 1;
                continue;
            }
            let Agent { started, killed, .. } = self.agents.swap_remove(i);
            let ran = started.end(&self.world);
            let allowed: &[i32] =
                if killed { &[0, 1, 130, 137, 140, 143] } else { &[0, 1, 130, 140, 143] };
            assert!(allowed.contains(&ran.code), "schedule {}: {}", self.number, ran.whole());
        }
    }

    /// Lets one thing happen.
    fn fire(&mut self, dice: &mut Dice) {
        self.bury();
        if self.agents.is_empty() || (self.agents.len() < 4 && dice.below(4) == 0) {
            self.start(dice);
        }
        let i = dice.below(self.agents.len() as u64) as usize;
        let agent = &mut self.agents[i];
        let pid = agent.started.pid();
        match dice.below(12) {
            0..3 => {
                agent.killed = true;
                agent.started.signal(Signal::SIGKILL);
            }
            3 => agent.started.signal(Signal::SIGTERM),
            4 => agent.started.signal(Signal::SIGINT),
            5 => agent.started.signal(Signal::SIGUSR2),
            6..8 => {
                agent.started.signal(Signal::SIGSTOP);
                agent.asleep.get_or_insert_with(Instant::now);
            }
            8..10 => {
                let programs = children(pid.as_raw());
                if let Some(&program) = programs.get(dice.below(2) as usize) {
                    let _ = kill(Pid::from_raw(program), Signal::SIGKILL);
                }
            }
            _ => self.look(),
        }
        for agent in &mut self.agents {
            // Most sleep for longer than their lease.
            let long = Duration::from_millis(300 + dice.below(900));
            if agent.asleep.is_some_and(|since| since.elapsed() > long) {
                agent.started.signal(Signal::SIGCONT);
                agent.asleep = None;
            }
        }
    }

    /// What readers see now.
    fn look(&mut self) {
        let number = self.number;
        if !self.world.exists("results/p/sweep.json") {
            return;
        }
        let status = self.world.run(&["status", "--json", "results/p"]);
        assert!(status.code <= 1, "schedule {number}: {}", status.whole());
        let status: Value = serde_json::from_str(&status.out).unwrap();
        let counted: u64 =
            status["counts"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert!([0, self.trials()].contains(&counted), "schedule {number}: {status}");
        let table = self.world.table(&["results/p"]);
        assert!([0, self.trials()].contains(&(table.len() as u64)), "schedule {number}");
        let now: BTreeMap<u64, String> = table
            .iter()
            .filter(|row| row["state"] == "done")
            .map(|row| (row["trial"].as_u64().unwrap(), row["result"].as_str().unwrap().to_owned()))
            .collect();
        for (trial, who) in &self.done {
            assert_eq!(now.get(trial), Some(who), "schedule {number}: trial {trial} was done");
        }
        self.done = now;
    }

    /// Nobody is shot at any more: one agent more, and all that sleep wake up.
    fn finish(&mut self, dice: &mut Dice) {
        for agent in &mut self.agents {
            agent.started.signal(Signal::SIGCONT);
        }
        for round in 0.. {
            assert!(round < 10, "schedule {}: never done", self.number);
            let args: &[&str] = if round == 0 { &[] } else { &["--retry"] };
            let last = self.world.start(&[&["worker", "--pull", "plan.toml"], args].concat());
            self.agents.push(Agent { started: last, asleep: None, killed: false });
            let since = Instant::now();
            while !self.agents.is_empty() {
                if since.elapsed() > Duration::from_secs(40) {
                    let events = self.world.read("events");
                    panic!("schedule {}: stuck\n{}\n{events}", self.number, self.claims());
                }
                self.bury();
                std::thread::sleep(Duration::from_millis(5));
            }
            let table = self.world.table(&["results/p"]);
            if table.iter().all(|row| row["state"] == "done") {
                break;
            }
            self.excuse(&table);
        }
        self.start(dice);
        wait_until("a late agent has ended", || {
            self.agents[0].started.child.try_wait().unwrap().is_some()
        });
        self.bury();
    }

    /// A trial may be given up only after it was lost three times, and what is behind it with it.
    fn excuse(&self, table: &[BTreeMap<String, Value>]) {
        let events = self.world.read("events");
        let status = self.world.status();
        let trials = status["trials"].as_array().unwrap();
        assert!(!table.is_empty() && trials.len() == table.len());
        for row in trials.iter().filter(|row| row["state"] != "done") {
            let begun =
                events.lines().filter(|l| l.starts_with(&format!("begin {} ", row["trial"])));
            let lost = row["reason"] == "its agent or machine was lost 3 times";
            let number = self.number;
            let excused = row["state"] == "skipped" || (lost && begun.count() >= 2);
            assert!(excused, "schedule {number}: {row:?}\n{}\n{events}", self.claims());
        }
    }

    fn claims(&self) -> String {
        let files = self.world.files("results/p/claims");
        files.iter().map(|f| self.world.read(&format!("results/p/claims/{f}"))).collect()
    }

    /// Each trial has one end that counts, of a program that ran to its end, behind the one before it.
    fn judge(&mut self) {
        self.look();
        let number = self.number;
        let events = self.world.read("events");
        assert_eq!(self.done.len() as u64, self.trials(), "schedule {number}: {events}");
        let tree = Tree::at(&self.world.path("results/p"));
        for (trial, record) in records::all(&tree).unwrap() {
            let ends = record
                .attempts
                .iter()
                .filter(|a| a.end.as_ref().is_some_and(|end| end.state == records::Outcome::Done));
            assert_eq!(ends.count(), 1, "schedule {number}: trial {trial}\n{}", self.claims());
        }
        let steps = self.world.run(&["collect", "--steps", "--format", "jsonl", "results/p"]);
        assert_eq!(steps.ok().lines().count() as u64, self.trials(), "schedule {number}");
        let at = |word: &str, trial: u64| {
            let line = format!("{word} {trial} {}", self.done[&trial]);
            let place = events.lines().position(|l| l == line);
            place.unwrap_or_else(|| panic!("schedule {number}: no `{line}` in\n{events}"))
        };
        let mut trial = 0;
        for &length in &self.lengths {
            for link in 0..length as u64 {
                let now = trial + link;
                assert!(at("begin", now) < at("end", now));
                assert!(
                    link == 0 || at("end", now - 1) < at("begin", now),
                    "schedule {number}: trial {now} overtook\n{events}"
                );
            }
            trial += length as u64;
        }
        let folder = self.world.text_path("results/p");
        wait_until("no program of the sweep is left", || programs_of(&folder).is_empty());
    }
}

/// Programs that run for the sweep of this folder.
pub(crate) fn programs_of(folder: &str) -> BTreeSet<String> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|e| e.path());
    let of_ours = |path: &std::path::PathBuf| {
        let env = fs::read(path.join("environ")).unwrap_or_default();
        let mark = format!("HPCSWEEP_SWEEP_DIR={folder}");
        env.split(|&b| b == 0).any(|entry| entry == mark.as_bytes())
    };
    all.filter(of_ours).map(|path| path.display().to_string()).collect()
}

fn schedule(number: u64) {
    let mut dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut schedule = Schedule::new(number, &mut dice);
    for _ in 0..3 {
        schedule.start(&mut dice);
    }
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(dice.below(60)));
        schedule.fire(&mut dice);
    }
    schedule.finish(&mut dice);
    schedule.judge();
}

/// Runs the schedules of these numbers, or of those that a variable names, some at a time.
pub(crate) fn schedules(variable: &str, numbers: &str, run: impl Fn(u64) + Sync) {
    let range = std::env::var(variable).unwrap_or_else(|_| numbers.to_owned());
    let (first, end) = range.split_once("..").unwrap();
    let next = std::sync::atomic::AtomicU64::new(first.parse().unwrap());
    let end: u64 = end.parse().unwrap();
    // Agents wait more than they work.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if number >= end {
                        return;
                    }
                    run(number);
                }
            });
        }
    });
}

#[test]
fn agents_under_fire_lose_and_double_nothing() {
    schedules("HPCSWEEP_FIRE", "1..9", schedule);
}

/// How often a test does what it does: HPCSWEEP_ROUNDS for long runs.
pub(crate) fn rounds(few: u64) -> u64 {
    std::env::var("HPCSWEEP_ROUNDS").map_or(few, |n| n.parse().unwrap())
}

/// So many agents that start at once on a plan that nobody has laid down, and so many trials that do nothing.
fn at_once(agents: usize, trials: u64) {
    let world = World::new();
    let numbers: Vec<String> = (0..trials).map(|i| i.to_string()).collect();
    world.write(
        "plan.toml",
        &format!(
            "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"true\"]\n[grid]\ni = [{}]\n",
            numbers.join(", ")
        ),
    );
    let start = |_| world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let all: Vec<Started> = (0..agents).map(start).collect();
    for agent in all {
        let ran = agent.end(&world);
        assert_eq!(ran.code, 0, "{}", ran.whole());
    }
    assert_eq!(world.status()["counts"].to_string(), format!("{{\"done\":{trials}}}"));
    assert_eq!(world.files("results/p/pull"), ["0001.json", "0001.map"]);
    let records = records::all(&Tree::at(&world.path("results/p"))).unwrap();
    let once = records.values().filter(|r| r.attempts.len() == 1 && r.attempts[0].end.is_some());
    assert_eq!((records.len() as u64, once.count() as u64), (trials, trials));
}

#[test]
fn many_trials_that_do_nothing_are_done_once() {
    (0..rounds(1)).for_each(|_| at_once(8, 2000));
}

#[test]
fn agents_that_start_at_once_lay_a_plan_down_once() {
    (0..rounds(1)).for_each(|_| at_once(24, 48));
}
