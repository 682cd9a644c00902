//! Sweeps for agents, and agents for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hpcsweep::plan::{self, Pull};
use hpcsweep::sweep::tree::bundle;
use hpcsweep::sweep::tree::deck::{self, Terms};
use hpcsweep::sweep::tree::ledger::{self, Entry, Ledger};
use hpcsweep::sweep::tree::records::{End, Event, Outcome, Start, Who};
use hpcsweep::sweep::tree::table::{self, Head, RowOut};
use hpcsweep::sweep::tree::{FORMAT, Tree};
use serde_json::Value;

use crate::support::world::{PROGRAM, Started, World};

/// A plan of trials 0 to `n - 1` that run this shell code; `more` is further TOML.
pub(crate) fn plan(code: &str, n: usize, more: &str) -> String {
    let (code, numbers) = (Value::from(code), (0..n).map(|i| i.to_string()).collect::<Vec<_>>());
    let numbers = numbers.join(", ");
    format!(
        "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n{more}\n[grid]\ni = [{numbers}]\n"
    )
}

pub(crate) const SHORT: &str = "[pull]\nlease = 0.6\n";

/// Each trial writes its number, and waits while there is a file `wait`.
pub(crate) const SAYS: &str =
    "echo $HPCSWEEP_TRIAL >>$EVENTS; while [ -e $EVENTS.wait ]; do sleep 0.01; done";

pub(crate) fn world(plan: &str) -> World {
    let mut world = World::new();
    world.set("EVENTS", &world.text_path("events"));
    world.write("events", "");
    world.write("plan.toml", plan);
    world
}

pub(crate) fn start(world: &World, slots: &str) -> Started {
    world.start(&["worker", "--pull", "plan.toml", "--slots", slots])
}

/// How often each trial wrote its number.
pub(crate) fn begun(world: &World) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for line in world.read("events").lines() {
        *counts.entry(line.parse().unwrap()).or_default() += 1;
    }
    counts
}

pub(crate) fn counts(world: &World) -> String {
    world.status()["counts"].to_string()
}

/// Starts an agent of one slot, which says into this file what it does.
pub(crate) fn agent(world: &World, said: &str) -> Started {
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--slots", "1"]);
    command.stderr(std::fs::File::create(world.path(said)).unwrap());
    Started { child: command.spawn().unwrap() }
}

/// A chain of a plan: how long it is in the end, and how much of it the plan has now.
pub(crate) struct Chain {
    /// Of each link: milliseconds that it runs, and how often it fails.
    pub(crate) links: Vec<(u64, u64)>,
    pub(crate) now: usize,
}

/// The trials that a plan has now: link `l` of chain `c` has the parameter `id`, `c.l`.
pub(crate) fn trials_of(chains: &[Chain]) -> String {
    let mut text = String::new();
    for (c, chain) in chains.iter().enumerate() {
        for (l, (millis, fails)) in chain.links.iter().enumerate().take(chain.now) {
            let t = format!("0.{millis:03}");
            writeln!(
                text,
                "[[trials]]\ntask_id = \"c{c}\"\nid = \"{c}.{l}\"\nt = \"{t}\"\nfails = {fails}"
            )
            .unwrap();
        }
    }
    text
}

/// A sweep of this many trials as agents leave it: every tenth trial has failed, the last hundred of each agent have
/// not begun, and the one before them runs.
pub(crate) fn made_up(world: &World, trials: u64, agents: u64) {
    let tree = Tree::at(&world.path("results/big"));
    std::fs::create_dir_all(tree.dir()).unwrap();
    tree.create("big", hpcsweep::base::host::access::Access::default()).unwrap();
    let text = "version = 1\nsweep.name = \"big\"\nrun.command = [\"true\"]\n";
    let plan = plan::parse(text, "plan.toml").unwrap();
    let head = Head {
        format: FORMAT,
        first: 0,
        count: trials,
        sweep: "big".to_owned(),
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
    let (key, params) = ("0".repeat(32), serde_json::from_str("{}").unwrap());
    let rows = (0..trials).map(|id| RowOut {
        id,
        chain: id,
        link: 0,
        after: None,
        task_id: None,
        key: &key,
        gpu_ids_abs: None,
        params: &params,
        resources: None,
    });
    table::write(&tree, &head, rows).unwrap();
    let units: Vec<Vec<u64>> = (0..trials).map(|trial| vec![trial]).collect();
    let pull = &Pull::default();
    let terms = Terms::new(pull);
    deck::write(&tree, &[], &units, terms).unwrap();
    ledger::prepare(&tree).unwrap();
    let mut ledger = Ledger::default();
    let share = trials / agents;
    let began = hpcsweep::base::host::clock::now() - share as f64 / 10.0;
    for number in 0..agents {
        let (agent, host) = (format!("n{number}-{number}"), format!("n{number}"));
        let nonce = "join".to_owned();
        let (slots, cores, job) = (8, vec![], None);
        let join =
            Entry::Join { agent: agent.clone(), nonce, host: host.clone(), slots, cores, job };
        assert!(ledger::append(&tree, &mut ledger, &join, ledger::link).unwrap());
        let who = Who { agent, host, time: began, slots, ..Who::default() };
        let mut bundle = bundle::create(&tree, &who).unwrap();
        for i in 0..share - 100 {
            let (trial, attempt, time) = (number * share + i, 1, began + i as f64 / 10.0);
            let argv = vec!["true".to_owned()];
            bundle
                .push(&Event::Start(Start {
                    trial,
                    attempt,
                    time,
                    slot: Some(0),
                    seq: 0,
                    argv,
                    ..Start::default()
                }))
                .unwrap();
            if i == share - 101 {
                break;
            }
            let failed = trial % 10 == 0;
            let end = End {
                trial,
                attempt,
                time: time + 0.1,
                state: if failed { Outcome::Failed } else { Outcome::Done },
                exit_code: Some(i32::from(failed)),
                signal: None,
                cause: None,
                reason: None,
                duration_s: 0.1,
                peak_memory: 0,
                usage: None,
                result: None,
                log: None,
                last: true,
                seq: None,
            };
            bundle.push(&Event::End(end)).unwrap();
        }
        bundle.flush().unwrap();
    }
}
