//! Agents, and everything else that a sweep supports, in one random schedule: agents that are killed, stopped and asked
//! to leave, programs that fail and are killed, plans that grow and shrink, `--retry`, hold, release and cancel,
//! copies, hooks, chains that stop or continue, `max_running`, and a disk that fills and is grown again. Trials are
//! commands or calls of a Python function. In the end each trial has one end that counts, and all commands report the
//! same of it.
//!
//! `HPCSWEEP_STORM=FIRST..END` runs other schedules than the few that every run of the tests takes;
//! a schedule that fails names its number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hpcsweep::sweep::tree::Tree;
use hpcsweep::sweep::tree::ledger::{Gone, Ledger};
use hpcsweep::sweep::tree::records::{self, Attempt, Outcome, Record};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::agents::{Chain, trials_of};
use crate::support::faults::schedules;
use crate::support::faults::{Dice, children};
use crate::support::world::{PROGRAM, ROOT, Ran, Started, World, wait_until};

/// A trial says who runs it when it begins and before it ends, each in one write. It fails as often as its parameter
/// says.
const CODE: &str = "say() { echo \"$1 $HPCSWEEP_PARAM_ID $HPCSWEEP_SLOT.$$\" >>$EVENTS; }
    say begin
    echo '{\"step\": 1, \"loss\": 1}' >>$HPCSWEEP_METRICS
    k=$HPCSWEEP_PARAM_FAILS
    while [ $k -gt 0 ]; do
        if mkdir $EVENTS.$HPCSWEEP_PARAM_ID.$k 2>/dev/null; then sleep $HPCSWEEP_PARAM_T; say fail; exit 3; fi
        k=$((k - 1))
    done
    sleep $HPCSWEEP_PARAM_T
    echo \"\\\"$HPCSWEEP_SLOT.$$\\\"\" >$HPCSWEEP_RESULT
    say end";

/// The same as a function.
const FUNCTION: &str = "\
import os, time
import hpcsweep

def fit(id, t, fails):
    events, who = os.environ['EVENTS'], '%d.%d' % (os.getpid(), time.monotonic_ns())

    def say(word):
        with open(events, 'a') as file:
            file.write('%s %s %s\\n' % (word, id, who))

    say('begin')
    hpcsweep.report(step=1, loss=1)
    for k in range(fails, 0, -1):
        try:
            os.mkdir('%s.%s.%d' % (events, id, k))
        except FileExistsError:
            continue
        time.sleep(float(t))
        say('fail')
        raise ValueError('it fails')
    time.sleep(float(t))
    say('end')
    return who
";

/// A small disk under `results` of a world, in a mount namespace that lasts as long as this does.
struct Disk {
    keeper: Started,
    /// Further arguments by which others enter the namespace.
    enter: &'static [&'static str],
    mib: u32,
    is_full: bool,
}

impl Disk {
    fn new(world: &World) -> Self {
        fs::create_dir(world.path("results")).unwrap();
        let mount = "mount -t tmpfs -o size=8m none results && : >mounted && exec cat";
        // Its root, too: the tests may run in another root than that of the namespace.
        let ways: [(&str, &'static [&'static str]); 2] = [
            ("-m", &["--mount", "--root"]),
            ("-rm", &["--user", "--preserve-credentials", "--mount", "--root"]),
        ];
        for (flags, enter) in ways {
            let mut command = world.command("unshare");
            command.args([flags, "sh", "-c", mount]).stdin(std::process::Stdio::piped());
            let mut keeper = Started { child: command.spawn().unwrap() };
            wait_until("the disk is there, or cannot be", || {
                world.exists("mounted") || keeper.child.try_wait().unwrap().is_some()
            });
            if world.exists("mounted") {
                return Self { keeper, enter, mib: 8, is_full: false };
            }
        }
        panic!("no mounts");
    }

    /// The path of a file under `results` of the world, on this host.
    fn path(&self, world: &World, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root{}", self.keeper.pid(), world.text_path("results"));
        PathBuf::from(root).join(name)
    }

    /// Starts a program in the namespace. It keeps its process id.
    fn start(&self, world: &World, program: &str, args: &[&str]) -> Started {
        let mut command = world.command("nsenter");
        command.args(["--target", &self.keeper.pid().to_string()]).args(self.enter);
        let go = ["sh", "-c", "cd \"$0\" && exec \"$@\"", &world.text_path("."), program];
        Started { child: command.args(go).args(args).spawn().unwrap() }
    }

    fn run(&self, world: &World, args: &[&str]) -> Ran {
        self.start(world, PROGRAM, args).end(world)
    }

    /// Uses up what is left, or makes room again, by removing what fills it or by more of it.
    fn turn(&mut self, world: &World, dice: &mut Dice) {
        self.is_full = !self.is_full;
        let filler = self.path(world, "filler");
        if self.is_full {
            let mut file = fs::File::options().create(true).append(true).open(filler).unwrap();
            while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
        } else if dice.below(2) == 0 || self.mib > 32 {
            fs::remove_file(filler).unwrap();
        } else {
            self.mib += 8;
            let size = format!("remount,size={}m", self.mib);
            self.start(world, "mount", &["-o", &size, "results"]).end(world).ok();
        }
    }
}

/// An agent of a schedule, and what was done to it.
struct Agent {
    started: Started,
    asleep: Option<Instant>,
    killed: bool,
}

struct Schedule {
    world: World,
    disk: Disk,
    number: u64,
    chains: Vec<Chain>,
    head: String,
    goes_on: bool,
    agents: Vec<Agent>,
    /// Processes to which something was done.
    touched: Vec<u32>,
    was_full: bool,
    /// Whose end of each trial has been seen to count.
    done: BTreeMap<u64, String>,
    seen: usize,
}

impl Schedule {
    fn new(number: u64, dice: &mut Dice) -> Self {
        let mut world = World::new();
        world.set("EVENTS", &world.text_path("events"));
        world.write("events", "");
        world.write("events.hooks", "");
        world.write("fit.py", FUNCTION);
        world.set("PYTHONPATH", &format!("{ROOT}/site/python"));
        world.set("PYTHONDONTWRITEBYTECODE", "1");
        world.set("HPCSWEEP_BIN", PROGRAM);
        let disk = Disk::new(&world);
        let link = |dice: &mut Dice| {
            (
                [0, 0, 10, 30, 90, 300][dice.below(6) as usize],
                [0, 0, 0, 1, 2][dice.below(5) as usize],
            )
        };
        let chains = (0..14).map(|_| {
            let links: Vec<(u64, u64)> = (0..1 + dice.below(3)).map(|_| link(dice)).collect();
            let now = dice.below(links.len() as u64 + 1) as usize;
            Chain { links, now }
        });
        let mut chains: Vec<Chain> = chains.collect();
        chains[0].now = 1;
        let (goes_on, is_function) = (dice.below(2) == 0, number.is_multiple_of(3));
        let head = head(is_function, goes_on, 1 + dice.below(3), number % 5 < 3);
        let (agents, touched, done) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (was_full, seen) = (false, 0);
        let schedule = Self {
            world,
            disk,
            number,
            chains,
            head,
            goes_on,
            agents,
            touched,
            was_full,

            done,
            seen,
        };
        schedule.write_plan(dice);
        schedule
    }

    /// Writes the plan as it is now, whole or not at all.
    fn write_plan(&self, dice: &mut Dice) {
        let running = match dice.below(4) {
            0..2 => String::new(),
            most => format!("[schedule]\nmax_running = {most}\n"),
        };
        let text = self.head.clone() + &running + &trials_of(&self.chains);
        self.world.write("plan.new", &text);
        fs::rename(self.world.path("plan.new"), self.world.path("plan.toml")).unwrap();
    }

    fn start(&mut self, dice: &mut Dice) {
        let slots = (1 + dice.below(3)).to_string();
        let args: &[&str] = match dice.below(6) {
            0 => &["submit", "plan.toml", "--pull", "--local"],
            1 => &["worker", "--pull", "plan.toml", "--retry"],
            _ => &["worker", "--pull", "plan.toml"],
        };
        let args = [args, &["--slots", &slots]].concat();
        let started = self.disk.start(&self.world, PROGRAM, &args);
        self.agents.push(Agent { started, asleep: None, killed: false });
    }

    fn text(&self, what: &str) -> String {
        let table = self.disk.run(&self.world, &["status", "--json", "results/p"]);
        let events = self.world.read("events");
        let plan = self.world.read("plan.toml");
        let (number, claims) = (self.number, self.claims());
        format!("schedule {number}: {what}\n{plan}\n{claims}\n{events}\n{}", table.out)
    }

    fn claims(&self) -> String {
        let all = ["000", "001"].map(|shard| {
            let Ok(folder) =
                fs::read_dir(self.disk.path(&self.world, &format!("p/claims/{shard}")))
            else {
                return String::new();
            };
            let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
        });
        all.concat()
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
            let is_usual = [0, 1, 130, 140, 143].contains(&ran.code)
                || (killed && ran.code == 137)
                || (self.was_full && ran.code == 4);
            assert!(is_usual, "{}", self.text(&ran.whole()));
        }
    }

    /// Lets one thing happen.
    fn strike(&mut self, dice: &mut Dice) {
        self.bury();
        if self.agents.is_empty() || (self.agents.len() < 4 && dice.below(4) == 0) {
            self.start(dice);
        }
        match dice.below(20) {
            0..4 => self.signal(dice, &[Signal::SIGKILL]),
            4 => self.signal(dice, &[Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR2]),
            5 | 6 => self.signal(dice, &[Signal::SIGSTOP]),
            7 | 8 => {
                let i = dice.below(self.agents.len() as u64) as usize;
                let agent = self.agents[i].started.pid().as_raw();
                let programs = children(agent);
                // Of a function: the agent, or the worker that calls it. A hook is called once, however it ends.
                if let Some(&program) = programs.get(dice.below(2) as usize)
                    && !is_hook(program, agent)
                {
                    let _ = kill(Pid::from_raw(program), Signal::SIGKILL);
                    self.touched.push(program.cast_unsigned());
                }
            }
            9..12 => {
                for _ in 0..=dice.below(3) {
                    let i = dice.below(self.chains.len() as u64) as usize;
                    let chain = &mut self.chains[i];
                    chain.now = dice.below(chain.links.len() as u64 + 1) as usize;
                }
                self.chains[0].now = 1;
                self.write_plan(dice);
                self.start(dice);
            }
            12 | 13 => {
                self.disk.turn(&self.world, dice);
                self.was_full = true;
            }
            word @ 14..18 => {
                let one = dice.below(10).to_string();
                let words: &[&str] = match (word, dice.below(2)) {
                    (14, _) => &["hold"],
                    (15 | 16, _) => &["release"],
                    (_, 0) => &["cancel", "--trial", &one],
                    _ => &["cancel"],
                };
                self.verb(words);
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

    fn signal(&mut self, dice: &mut Dice, signals: &[Signal]) {
        let i = dice.below(self.agents.len() as u64) as usize;
        let signal = signals[dice.below(signals.len() as u64) as usize];
        let agent = &mut self.agents[i];
        agent.started.signal(signal);
        agent.killed |= signal == Signal::SIGKILL;
        if signal == Signal::SIGSTOP {
            agent.asleep.get_or_insert_with(Instant::now);
        }
        self.touched.push(agent.started.child.id());
        self.touched
            .extend(children(agent.started.pid().as_raw()).iter().map(|p| p.cast_unsigned()));
    }

    /// Holds, releases or cancels the sweep, or a trial of it; `false` if it cannot be done now.
    fn verb(&mut self, words: &[&str]) -> bool {
        if !self.disk.path(&self.world, "p/sweep.json").exists() {
            return false;
        }
        let ran = self.disk.run(&self.world, &[words, &["results/p"]].concat());
        // A trial of agents is not a job, and another process may be creating the queue.
        let is_refused = [2, 4].contains(&ran.code) && words[0] == "cancel";
        let is_busy = ["is run by a `hpcsweep submit`", "is being submitted by process"]
            .iter()
            .any(|words| ran.err.contains(words));
        let is_full = self.disk.is_full && ran.code == 4;
        let is_usual = ran.code == 0 || is_refused || is_busy || is_full;
        assert!(is_usual, "{}", self.text(&ran.whole()));
        ran.code == 0
    }

    fn table(&self) -> Vec<BTreeMap<String, Value>> {
        let ran = self.disk.run(&self.world, &["collect", "--format", "jsonl", "results/p"]);
        assert_eq!(ran.code, 0, "{}", self.text(&ran.whole()));
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn status(&self) -> Value {
        let ran = self.disk.run(&self.world, &["status", "--json", "results/p"]);
        assert!(ran.code <= 1, "{}", self.text(&ran.whole()));
        let status: Value = serde_json::from_str(&ran.out).unwrap();
        // Whatever happens to the writers, nothing is damaged.
        let damaged = status["damaged"].as_array().is_some_and(|all| !all.is_empty());
        assert!(!damaged, "{}", self.text(&ran.out));
        status
    }

    /// What readers see now.
    fn look(&mut self) {
        if !self.disk.path(&self.world, "p/sweep.json").exists() {
            return;
        }
        self.status();
        let table = self.table();
        assert!(table.len() >= self.seen, "{}", self.text("trials are gone"));
        self.seen = table.len();
        let now: BTreeMap<u64, String> = table
            .iter()
            .filter(|row| row["state"] == "done")
            .map(|row| (row["trial"].as_u64().unwrap(), row["result"].as_str().unwrap().to_owned()))
            .collect();
        for (trial, who) in &self.done {
            let is_same = now.get(trial) == Some(who);
            assert!(is_same, "{}", self.text(&format!("trial {trial} was done by {who}")));
        }
        self.done = now;
    }

    /// Nothing happens any more: there is room, all that sleep wake up, and agents come until all is done.
    fn finish(&mut self, dice: &mut Dice) {
        if self.disk.is_full {
            self.disk.turn(&self.world, dice);
        }
        for chain in &mut self.chains {
            chain.now = chain.links.len();
        }
        self.write_plan(dice);
        for agent in &mut self.agents {
            agent.started.signal(Signal::SIGCONT);
        }
        // The queue may not exist yet.
        let is_there = self.disk.path(&self.world, "p/pull/0001.json").exists();
        let (world, disk) = (&self.world, &self.disk);
        wait_until("it is released", || {
            !is_there || disk.run(world, &["release", "results/p"]).code == 0
        });
        for round in 0.. {
            assert!(round < 12, "{}", self.text("never done"));
            let args: &[&str] = if round == 0 { &[] } else { &["--retry"] };
            let args = [&["worker", "--pull", "plan.toml"], args].concat();
            let started = self.disk.start(&self.world, PROGRAM, &args);
            self.agents.push(Agent { started, asleep: None, killed: false });
            let since = Instant::now();
            while !self.agents.is_empty() {
                let is_stuck = since.elapsed() > Duration::from_secs(240);
                assert!(!is_stuck, "{}", self.text("stuck"));
                self.bury();
                std::thread::sleep(Duration::from_millis(5));
            }
            let table = self.table();
            let states: Vec<&Value> = table.iter().map(|row| &row["state"]).collect();
            let total: usize = self.chains.iter().map(|chain| chain.links.len()).sum();
            if states.len() == total && states.iter().all(|state| *state == "done") {
                break;
            }
            let is_over =
                |state: &&Value| ["done", "failed", "skipped"].iter().any(|s| *state == s);
            // An agent that has read an older plan may enqueue that plan after the newer one.
            assert!(
                round == 0 || states.iter().all(is_over),
                "{}",
                self.text(&format!("{states:?}"))
            );
        }
    }

    /// Each trial has one end that counts, of a program that ran to its end, behind the one before it; its hooks were
    /// called for that; and `status` and `collect` agree.
    fn judge(&mut self) {
        self.look();
        let (table, status) = (self.table(), self.status());
        let rows = status["trials"].as_array().unwrap();
        assert_eq!(rows.len(), table.len());
        let mut trials: BTreeMap<&str, u64> = BTreeMap::new();
        for (row, other) in table.iter().zip(rows) {
            assert_eq!((&row["trial"], &row["state"]), (&other["trial"], &other["state"]));
            let twice = trials.insert(row["id"].as_str().unwrap(), row["trial"].as_u64().unwrap());
            assert_eq!(twice, None, "{}", self.text("a trial is there twice"));
        }
        let tree = Tree::at(&self.disk.path(&self.world, "p"));
        let (all, ledger) = (records::all(&tree).unwrap(), Ledger::read(&tree).unwrap());
        let events = self.world.read("events");
        let at = |word: &str, id: &str| {
            let line = format!("{word} {id} {}", self.done[&trials[id]]);
            let place = events.lines().position(|l| l == line);
            place.unwrap_or_else(|| panic!("{}", self.text(&format!("no `{line}`"))))
        };
        for (c, chain) in self.chains.iter().enumerate() {
            for l in 0..chain.links.len() {
                let id = format!("{c}.{l}");
                let trial = trials[id.as_str()];
                let record = &all[&trial];
                let ends = record.attempts.iter().filter(|a| state(a) == Some(Outcome::Done));
                assert_eq!(ends.count(), 1, "{}", self.text(&format!("ends of trial {trial}")));
                assert!(at("begin", &id) < at("end", &id));
                self.judge_hooks(trial, record, &ledger);
                if l > 0 {
                    let before = format!("{c}.{}", l - 1);
                    let is_behind = match self.goes_on {
                        true => has_ended_before(&all[&trials[before.as_str()]], record),
                        false => at("end", &before) < at("begin", &id),
                    };
                    assert!(is_behind, "{}", self.text(&format!("{id} overtook {before}")));
                }
            }
        }
        let steps = ["collect", "--steps", "--format", "jsonl", "results/p"];
        let steps = self.disk.run(&self.world, &steps);
        assert_eq!(steps.ok().lines().count(), trials.len(), "{}", self.text("steps"));
        let best = self.disk.run(&self.world, &["best", "--metric", "loss", "--min", "results/p"]);
        assert_eq!(best.code, 0, "{}", self.text(&best.whole()));
        let folder = self.world.text_path("results/p");
        wait_until("no program of the sweep is left", || programs_of(&folder).is_empty());
    }

    /// The hook of a trial that has ended for good was called once, or again where its caller was killed.
    fn judge_hooks(&self, trial: u64, record: &Record, ledger: &Ledger) {
        let gone = |attempt: &Attempt| {
            let agent = attempt.bundle.as_ref().map(|place| &place.agent)?;
            ledger.agents.get(agent)?.gone.clone()
        };
        let is_there = |attempt: &&Attempt| {
            let has_left = matches!(gone(attempt), Some(Gone::Left(_)));
            has_left && !self.touched.contains(&attempt.start.pid)
        };
        // An agent that wakes up while it is considered dead may call a hook for an end that does not count.
        let is_void = |a: &&Attempt| a.end.is_none() && matches!(gone(a), Some(Gone::Fenced(_)));
        let void = record.attempts.iter().filter(is_void).count();
        let mut expired = BTreeSet::new();
        for (name, agent) in &ledger.agents {
            // HOST-PROCESS-TOKEN.
            let process = name.rsplit('-').nth(1).and_then(|word| word.parse::<u32>().ok());
            expired.extend(process.filter(|_| matches!(agent.gone, Some(Gone::Fenced(_)))));
        }
        for (name, outcome) in [("finish", Outcome::Done), ("error", Outcome::Failed)] {
            let is_last =
                |a: &&Attempt| a.bundle.as_ref().is_some_and(|place| place.last && !place.lost);
            let ends =
                || record.attempts.iter().filter(|a| state(a) == Some(outcome)).filter(is_last);
            let (all, least) = (ends().count(), ends().filter(is_there).count());
            let hooks = self.world.read("events.hooks");
            let line = format!("{name} {trial} ");
            let callers: Vec<u32> =
                hooks.lines().filter_map(|l| l.strip_prefix(&line)?.parse().ok()).collect();
            // One that was killed during the call, or is considered dead, is followed by another that calls it again.
            let may_repeat =
                |caller: &&u32| self.touched.contains(caller) || expired.contains(caller);
            let whole = callers.iter().filter(|caller| !may_repeat(caller)).count();
            let is_right = callers.len() >= least && whole <= all + void;
            let what = format!(
                "calls of `{line}` by {callers:?}, {whole} of them whole, for {least} of {all} ends and {void} void ones: {record:#?}"
            );
            assert!(is_right, "{}", self.text(&what));
        }
    }
}

fn state(attempt: &Attempt) -> Option<Outcome> {
    attempt.end.as_ref().map(|end| end.state)
}

/// Whether a trial had ended for good, well or not, when the run of the next that counts began.
fn has_ended_before(before: &Record, next: &Record) -> bool {
    let begun = next.decisive().map_or(0.0, |attempt| attempt.start.time);
    before.attempts.iter().filter_map(|a| a.end.as_ref()).any(|end| end.time <= begun)
}

/// The head of a plan.
fn head(is_function: bool, goes_on: bool, attempts: u64, repeatable: bool) -> String {
    let run = if is_function {
        let job = [
            "python3",
            "-m",
            "hpcsweep.job",
            "--script",
            "fit.py",
            "--name",
            "fit",
            "--sweep",
            "results/p",
        ];
        format!("function = \"fit:fit\"\nprogram = {}", Value::from(job.to_vec()))
    } else {
        format!("command = [\"sh\", \"-c\", {}]", Value::from(CODE))
    };
    let hook = |name| {
        let call = format!("echo {name} $HPCSWEEP_TRIAL $PPID >>$EVENTS.hooks");
        format!("{name} = [\"sh\", \"-c\", {}]\n", Value::from(call))
    };
    let on_failure = if goes_on { "continue" } else { "stop" };
    format!(
        "version = 1\n[sweep]\nname = \"p\"\n[run]\n{run}\n\
         attempts = {attempts}\non_failure = \"{on_failure}\"\n[hooks]\n{}{}[pull]\nlease = 0.6\nbackoff = 0.01\nbreaker = false\n\
         repeatable = {repeatable}\n",
        hook("finish"),
        hook("error")
    )
}

/// Whether a child of an agent is a hook, or may become one.
fn is_hook(child: i32, agent: i32) -> bool {
    let argv = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = argv(child);
    own.contains("EVENTS.hooks") || own == argv(agent)
}

/// Programs that run for the sweep of this folder.
fn programs_of(folder: &str) -> BTreeSet<String> {
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
    for _ in 0..2 {
        schedule.start(&mut dice);
    }
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(dice.below(60)));
        schedule.strike(&mut dice);
    }
    schedule.finish(&mut dice);
    schedule.judge();
}

#[test]
fn whatever_happens_to_a_sweep_of_agents_nothing_is_lost_or_doubled() {
    schedules("HPCSWEEP_STORM", "1..9", schedule);
}
