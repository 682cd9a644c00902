//! PBS, and everything that a sweep of arrays supports, in one random schedule: submissions that are killed, plans that
//! grow, `--retry`, trials and sweeps that are cancelled, held and released, elements that are requeued, workers that
//! are killed, programs that fail, hooks, `max_running`, chains as jobs, fused and packed. In the end each trial is
//! done once, its hook was called once, or again if its run was struck, and it never ran beside itself.
//!
//! `HPCSWEEP_PBS_STORM=FIRST..END` runs other schedules than the few that every run of the tests takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hpcsweep::sweep::tree::Tree;
use hpcsweep::sweep::tree::records::{self, Attempt, Outcome};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::agents::{Chain, trials_of};
use crate::support::faults::Dice;
use crate::support::faults::schedules;
use crate::support::pbs::Pbs;
use crate::support::pbs_once::pbs;

/// A trial says when it begins and when it ends, and whether it runs beside itself. It fails as often as its parameter
/// says.
const CODE: &str = "say() { echo \"$1 $HPCSWEEP_TRIAL $$\" >>$EVENTS; }
    at=$EVENTS.at.$HPCSWEEP_TRIAL
    if kill -0 $(cat $at 2>/dev/null) 2>/dev/null; then say beside; fi
    echo $$ >$at; echo $PPID >$EVENTS.worker; say begin
    echo '{\"step\": 1, \"loss\": 1}' >>$HPCSWEEP_METRICS
    sleep $HPCSWEEP_PARAM_T
    k=$HPCSWEEP_PARAM_FAILS
    while [ $k -gt 0 ]; do
        if mkdir $EVENTS.$HPCSWEEP_PARAM_ID.$k 2>/dev/null; then say fail; rm -f $at; exit 3; fi
        k=$((k - 1))
    done
    echo $$ >$HPCSWEEP_RESULT; say end; rm -f $at";

struct Schedule {
    pbs: Pbs,
    number: u64,
    head: String,
    chains: Vec<Chain>,
    /// Runs that were struck: their hook may have been cancelled before it was called, or called again.
    struck: usize,
}

impl Schedule {
    fn new(number: u64, dice: &mut Dice) -> Self {
        let mut pbs = pbs();
        // The user who may requeue jobs.
        pbs.world.set("TEST_PBS_OPERATOR", "1");
        // A machine with too much to do may take its time for an answer.
        pbs.site("[limits]\nsettle_s = 1\ncall_timeout_s = 60\n");
        pbs.set("history", dice.below(3) > 0);
        let link = |dice: &mut Dice| (dice.below(4) * 40, [0, 0, 0, 1, 2][dice.below(5) as usize]);
        let mut chain = || {
            let links: Vec<(u64, u64)> = (0..1 + dice.below(3)).map(|_| link(dice)).collect();
            Chain { now: 1, links }
        };
        let chains: Vec<Chain> = (0..4).map(|_| chain()).collect();
        let way = ["chains = \"jobs\"", "chains = \"fused\"", "pack = 2"][number as usize % 3];
        let most = ["", "max_running = 2\n"][dice.below(2) as usize];
        let hook = |name| {
            let call = Value::from(format!("echo {name} $HPCSWEEP_TRIAL >>$EVENTS.hooks"));
            format!("{name} = [\"sh\", \"-c\", {call}]\n")
        };
        pbs.world.write("events.hooks", "");
        let head = format!(
            "version = 1\n[sweep]\nname = \"s\"\n[run]\ncommand = [\"sh\", \"-c\", {}]\nattempts = {}\n\
             [hooks]\n{}{}[resources]\nwalltime = \"5m\"\n[schedule]\n{way}\n{most}",
            Value::from(CODE),
            1 + dice.below(2),
            hook("finish"),
            hook("error")
        );
        let schedule = Self { pbs, number, head, chains, struck: 0 };
        schedule.write_plan();
        schedule
    }

    fn write_plan(&self) {
        let text = self.head.clone() + &trials_of(&self.chains);
        self.pbs.world.write("plan.toml", &text);
    }

    fn text(&self, what: &str) -> String {
        let world = &self.pbs.world;
        let status = world.run(&["status", "--json"]);
        let events = world.read("events");
        format!("schedule {}: {what}\n{events}\n{}", self.number, status.whole())
    }

    /// A submission, which is killed at some moment or not.
    fn submit(&self, dice: &mut Dice, is_killed: bool) {
        let retry: &[&str] = if dice.below(3) == 0 { &["--retry"] } else { &[] };
        let args = [&["submit", "plan.toml", "--pbs", "-q"], retry].concat();
        let mut started = self.pbs.world.start(&args);
        if is_killed {
            std::thread::sleep(Duration::from_micros(dice.below(300_000)));
            let _ = started.child.kill();
        }
        let ran = started.end(&self.pbs.world);
        let is_held = ran.code == 2 && ran.err.contains(" is held by ");
        assert!(is_held || [0, 137].contains(&ran.code), "{}", self.text(&ran.whole()));
    }

    /// Jobs and elements that run.
    fn running(&self) -> Vec<String> {
        let jobs = self.pbs.jobs().into_iter();
        jobs.filter(|(_, job)| job["job_state"] == "R").map(|(id, _)| id).collect()
    }

    /// Lets one thing happen.
    fn strike(&mut self, dice: &mut Dice) {
        let world = &self.pbs.world;
        match dice.below(12) {
            0 | 1 => {
                let i = dice.below(self.chains.len() as u64) as usize;
                let chain = &mut self.chains[i];
                chain.now = (chain.now + 1).min(chain.links.len());
                self.write_plan();
                let is_killed = dice.below(2) == 0;
                self.submit(dice, is_killed);
            }
            2 => self.submit(dice, true),
            3 => self.submit(dice, false),
            4 => {
                let one = dice.below(8).to_string();
                let args: &[&str] =
                    if dice.below(4) == 0 { &["cancel"] } else { &["cancel", "--trial", &one] };
                if world.exists("results/s/sweep.json") {
                    self.struck += self.running().len();
                    let ran = world.run(args);
                    assert!([0, 2].contains(&ran.code), "{}", self.text(&ran.whole()));
                }
            }
            5 | 6 => {
                let running = self.running();
                if !running.is_empty() {
                    self.struck += 1;
                    let id = &running[dice.below(running.len() as u64) as usize];
                    let ran = world.call("qrerun", &[id]);
                    // It may have ended meanwhile.
                    assert!(ran.code == 0 || !ran.err.contains("Unauthorized"), "{}", ran.whole());
                }
            }
            7 | 8 => {
                // The last one whose program has begun, if it still runs a trial.
                let worker = std::fs::read_to_string(world.path("events.worker"));
                if let Ok(Ok(pid)) = worker.map(|text| text.trim().parse::<i32>())
                    && std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                        .is_ok_and(|line| line.contains(&world.text_path("results/s")))
                {
                    self.struck += 1;
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
            9 => {
                if world.exists("results/s/sweep.json") {
                    let ran = world.run(&[["hold", "release"][dice.below(2) as usize]]);
                    assert!([0, 2, 3].contains(&ran.code), "{}", self.text(&ran.whole()));
                }
            }
            _ => {
                if world.exists("results/s/sweep.json") {
                    let ran = world.run(&["status", "--json"]);
                    assert!(ran.code <= 1, "{}", self.text(&ran.whole()));
                    let status: Value = serde_json::from_str(&ran.out).unwrap();
                    let rows = world.run(&["collect", "--steps", "--format", "jsonl"]);
                    assert_eq!(rows.code, 0, "{}", self.text(&rows.whole()));
                    let damaged = status["damaged"].as_array().is_some_and(|all| !all.is_empty());
                    assert!(!damaged, "{}", self.text("damage"));
                }
            }
        }
    }

    /// Nothing happens any more: the whole plan is submitted until all is done.
    fn finish(&mut self) {
        for chain in &mut self.chains {
            chain.now = chain.links.len();
        }
        self.write_plan();
        if self.pbs.world.exists("results/s/sweep.json") {
            self.pbs.world.run(&["release"]);
        }
        for round in 0.. {
            assert!(round < 20, "{}", self.text("never done"));
            let retry: &[&str] = if round == 0 { &[] } else { &["--retry"] };
            let ran = self.pbs.again(&[&["-q"], retry].concat());
            assert_eq!(ran.code, 0, "{}", self.text(&ran.whole()));
            self.pbs.wait_idle();
            let total = self.chains.iter().map(|chain| chain.links.len()).sum();
            if self.pbs.standings() == vec!["done"; total] {
                return;
            }
        }
    }

    /// Each trial is done once, behind the one before it, and never ran beside itself.
    fn judge(&self) {
        let world = &self.pbs.world;
        let events = world.read("events");
        assert!(!events.contains("beside"), "{}", self.text("a trial ran beside itself"));
        let names = self.pbs.names();
        let once = names.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(once, names.len(), "{}", self.text(&format!("{names:?}")));
        let table = world.table(&[]);
        let all = records::all(&Tree::at(&world.path("results/s"))).unwrap();
        let mut trials: BTreeMap<&str, (u64, String)> = BTreeMap::new();
        for row in &table {
            assert_eq!(row["state"], "done");
            let trial = row["trial"].as_u64().unwrap();
            trials.insert(row["id"].as_str().unwrap(), (trial, row["result"].to_string()));
            let done = |a: &&Attempt| a.outcome() == Some(Outcome::Done);
            let ends = all[&trial].attempts.iter().filter(done).count();
            assert_eq!(ends, 1, "{}", self.text(&format!("ends of trial {trial}")));
        }
        let steps = world.run(&["collect", "--steps", "--format", "jsonl"]);
        assert_eq!(steps.ok().lines().count(), table.len(), "{}", self.text("steps"));
        let hooks = world.read("events.hooks");
        let told = |trial: &u64| hooks.lines().filter(|l| **l == format!("finish {trial}")).count();
        let told: Vec<usize> = trials.values().map(|(trial, _)| told(trial)).collect();
        let missing = told.iter().filter(|count| **count == 0).count();
        let twice: usize = told.iter().map(|count| count.saturating_sub(1)).sum();
        let is_right = missing + twice <= self.struck;
        assert!(is_right, "{}", self.text(&format!("{} struck\n{hooks}", self.struck)));
        let at = |word: &str, id: &str| {
            let (trial, who) = &trials[id];
            let line = format!("{word} {trial} {who}");
            let place = events.lines().position(|l| l == line);
            place.unwrap_or_else(|| panic!("{}", self.text(&format!("no `{line}`"))))
        };
        for (c, chain) in self.chains.iter().enumerate() {
            for l in 1..chain.links.len() {
                let (before, now) = (format!("{c}.{}", l - 1), format!("{c}.{l}"));
                let is_behind = at("end", &before) < at("begin", &now);
                assert!(is_behind, "{}", self.text(&format!("{now} overtook {before}")));
            }
        }
    }
}

fn schedule(number: u64) {
    let mut dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut schedule = Schedule::new(number, &mut dice);
    for _ in 0..14 {
        schedule.strike(&mut dice);
        std::thread::sleep(Duration::from_millis(dice.below(80)));
    }
    schedule.finish();
    schedule.judge();
}

#[test]
fn whatever_happens_to_a_sweep_of_arrays_each_trial_is_done_once() {
    schedules("HPCSWEEP_PBS_STORM", "1..7", schedule);
}
