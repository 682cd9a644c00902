//! Copies of trials that take too long, with chains and hooks behind them: what follows from the end of a trial
//! follows from the run that counts, once.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::support::faults::Dice;
use crate::support::faults::rounds;
use crate::support::world::{Ran, Started, World, wait_until};

/// The first link of a chain waits for the shot in each of its two runs, which then end at about the same time, the
/// original with the code OWN, the copy with the code COPY.
const CODE: &str = r#"say() { echo "$1 $HPCSWEEP_TRIAL $HPCSWEEP_SLOT.$$" >>$EVENTS; }
    say begin
    code=0
    if [ $HPCSWEEP_PARAM_PART = first ]; then
        run=copy; code=$HPCSWEEP_PARAM_COPY; nap=$HPCSWEEP_PARAM_COPY_NAP
        if mkdir $EVENTS.$HPCSWEEP_TRIAL 2>/dev/null; then
            run=own; code=$HPCSWEEP_PARAM_OWN; nap=$HPCSWEEP_PARAM_OWN_NAP
        fi
        : >$EVENTS.$run.$HPCSWEEP_TRIAL
        until [ -e $EVENTS.shot ]; do sleep 0.01; done
        sleep $nap
    fi
    echo "\"$HPCSWEEP_SLOT.$$\"" >$HPCSWEEP_RESULT
    say end
    exit $code"#;

const CHAINS: usize = 6;

/// A few trials that are quick, then the chains.
fn plan(dice: &mut Dice) -> String {
    let code = Value::from(CODE);
    let hook = |name| {
        let call = format!("echo {name} $HPCSWEEP_TRIAL >>$EVENTS.hooks");
        format!("{name} = [\"sh\", \"-c\", {}]\n", Value::from(call))
    };
    let mut text = format!(
        "version = 1\n[sweep]\nname = \"p\"\n[run]\ncommand = [\"sh\", \"-c\", {code}]\n\
         [hooks]\n{}{}[pull]\nrepeatable = true\nlease = 2\nbreaker = false\n",
        hook("finish"),
        hook("error")
    );
    for quick in 0..4 {
        writeln!(text, "[[trials]]\ntask_id = \"q{quick}\"\npart = \"quick\"").unwrap();
    }
    for chain in 0..CHAINS {
        let mut code = || [0, 0, 3][dice.below(3) as usize];
        let (own, copy) = (code(), code());
        let (own_nap, copy_nap) = (dice.below(30), dice.below(30));
        writeln!(
            text,
            "[[trials]]\ntask_id = \"c{chain}\"\npart = \"first\"\nown = {own}\ncopy = {copy}\n\
             own_nap = \"0.0{own_nap:02}\"\ncopy_nap = \"0.0{copy_nap:02}\"\n\
             [[trials]]\ntask_id = \"c{chain}\"\npart = \"second\""
        )
        .unwrap();
    }
    text
}

/// How many runs of this kind have begun.
fn begun(world: &World, run: &str) -> usize {
    let prefix = format!("events.{run}.");
    world.files(".").iter().filter(|name| name.starts_with(&prefix)).count()
}

/// Each chain has one story: what its second link did, which hooks were called and in which order all happened agrees
/// with the run of the first link that counts.
fn judge(world: &World, what: &str) {
    let events = world.read("events");
    let claims = world.ledger("results/p").concat();
    let story = format!("{what}\n{events}\n{}\n{claims}", world.read("events.hooks"));
    let table = world.table(&["results/p"]);
    let state = |trial: usize| table[trial]["state"].as_str().unwrap().to_owned();
    let mut hooks: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for line in world.read("events.hooks").lines() {
        let (name, trial) = line.split_once(' ').unwrap();
        hooks.entry(trial.parse().unwrap()).or_default().push(name.to_owned());
    }
    for trial in 0..table.len() {
        let called = hooks.get(&trial).cloned().unwrap_or_default();
        let expected: &[&str] = match state(trial).as_str() {
            "done" => &["finish"],
            "failed" => &["error"],
            "skipped" => &[],
            other => panic!("trial {trial} is {other}: {story}"),
        };
        assert_eq!(called, expected, "hooks of trial {trial}: {story}");
    }
    let place = |line: &str| events.lines().position(|l| l.starts_with(line));
    for chain in 0..CHAINS {
        let (first, second) = (4 + 2 * chain, 5 + 2 * chain);
        if state(first) != "done" {
            assert_eq!(state(second), "skipped", "trial {second}: {story}");
            assert_eq!(place(&format!("begin {second} ")), None, "trial {second} ran: {story}");
            continue;
        }
        assert_eq!(state(second), "done", "trial {second}: {story}");
        let who = table[first]["result"].as_str().unwrap();
        let ended = place(&format!("end {first} {who}")).unwrap();
        let goes_on = place(&format!("begin {second} ")).unwrap();
        assert!(ended < goes_on, "trial {second} began before its turn: {story}");
    }
}

#[test]
fn what_follows_from_a_trial_with_a_copy_follows_from_the_run_that_counts() {
    let mut dice = Dice(0xA076_1D64_78BD_642F);
    for round in 0..rounds(3) {
        let mut world = World::new();
        world.set("EVENTS", &world.text_path("events"));
        world.write("events", "");
        world.write("events.hooks", "");
        world.write("plan.toml", &plan(&mut dice));
        let start = || world.start(&["worker", "--pull", "plan.toml", "--slots", "6"]);
        let first = start();
        wait_until("all chains have begun", || begun(&world, "own") == CHAINS);
        let all: Vec<Started> = vec![first, start()];
        wait_until("all have copies", || begun(&world, "copy") == CHAINS);
        world.write("events.shot", "");
        let ran: Vec<Ran> = all.into_iter().map(|agent| agent.end(&world)).collect();
        assert!(ran.iter().all(|ran| ran.code <= 1), "{}", ran[0].whole());
        judge(&world, &format!("round {round}"));
        fs::remove_file(world.path("events.shot")).unwrap();
    }
}
