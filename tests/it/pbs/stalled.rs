//! PBS: chains of jobs that would stand still or vanish, as dependencies are registered too late, a history is short, or a
//! routing queue has few places.

use serde_json::json;

use crate::support::faults::Dice;
use crate::support::pbs::Pbs;
use crate::support::pbs_once::wrap;
use crate::support::plans::shell;
use crate::support::world::wait_until;

/// A server, and a file in which trials write that they begin.
fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs.world.write("events", "");
    pbs.site("[limits]\nsettle_s = 1\n");
    pbs
}

/// Two chains of three: trials 0 1 2 and 3 4 5.
fn plan(rest: &str) -> String {
    let axes = "[defaults]\ntask_id = \"{{ c }}\"\n[grid]\nc = [\"a\", \"b\"]\nn = [0, 1, 2]\n";
    shell("echo $HPCSWEEP_TRIAL >>$EVENTS", &format!("{rest}{axes}"))
}

/// Every trial has run once, each after the one before it.
#[track_caller]
fn check(pbs: &Pbs) {
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 6]);
    let events = pbs.world.read("events");
    let of = |chain: [&str; 3]| events.lines().filter(|t| chain.contains(t)).collect::<Vec<_>>();
    for chain in [["0", "1", "2"], ["3", "4", "5"]] {
        assert_eq!(of(chain), chain, "{events}");
    }
}

/// A call of qsub for a job that depends on this one waits for what the code waits for.
fn slow(pbs: &Pbs, head: &str, code: &str) {
    let head = head.replace("[]", "'[]'");
    let late = format!("case \"$*\" in *depend=afterany:{head}*) {code} ;; esac; real \"$@\"");
    wrap(&pbs.world, "qsub", &late);
}

/// What waits until a job, or each element of an array of one, has ended, or until that job is held.
fn until_ended(head: &str) -> String {
    format!("until qstat -x -f '{head}' | grep -qE 'job_state = (E|H)|Expired:1'; do :; done")
}

/// `qsub` takes as long as the head needs to end, if it may begin.
#[test]
fn with_a_slow_qsub_no_link_is_registered_too_late() {
    for (chains, head) in [("jobs", "0.pbshead"), ("barrier", "0[].pbshead")] {
        let mut pbs = pbs();
        pbs.set("ends_late", 600);
        slow(&pbs, head, &until_ended(head));
        let chains = format!("[schedule]\nchains = \"{chains}\"\n");
        pbs.submit(&plan(&chains).replace(", \"b\"", ""), &["-q"]).ok();
        wait_until("all have run", || pbs.world.read("events").lines().count() == 3);
        pbs.set("ends_late", 0);
        pbs.wait_idle();
        assert_eq!(pbs.standings(), ["done"; 3]);
    }
}

/// A chain of two grows by a link, which is submitted after PBS has released the jobs that wait for the second one, and before
/// that one is history.
fn registered_too_late(chains: &str, jobs: [&str; 2]) {
    let mut pbs = pbs();
    let [parent, link] = jobs;
    let chain = |n: &str| {
        let plan = plan(&format!("[schedule]\nchains = \"{chains}\"\n"));
        let code = "[ $HPCSWEEP_TRIAL != 1 ] || until [ -e $EVENTS.go ]; do sleep 0.01; done; echo";
        plan.replace(", \"b\"", "").replace("[0, 1, 2]", n).replace("echo", code)
    };
    pbs.submit(&chain("[0, 1]"), &["-q"]).ok();
    wait_until("the first has ended", || pbs.world.read("events") == "0\n");
    pbs.set("ends_late", 600);
    slow(&pbs, parent, &format!(": >$EVENTS.go; {}", until_ended(parent).replace("(E|H)", "E")));
    pbs.submit(&chain("[0, 1, 2]"), &["-q"]).ok();
    pbs.set("ends_late", 0);
    let state = |id: &str| pbs.jobs()[id]["job_state"].clone();
    wait_until("the job before is history", || state(parent) == "F");
    assert_eq!(state(link), "H");
    let waits = "queued: waits for a job that has ended: submit again";
    assert_eq!(pbs.standings(), ["done", "done", waits]);
    let ran = pbs.again(&[]);
    let said = format!("job {link}: it waited for a job that has ended, and goes on\n");
    assert!(ran.err.contains(&said), "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n2\n");
    // No job is left to be released.
    let ran = pbs.again(&[]);
    assert!(!ran.err.contains("goes on"), "{}", ran.whole());
}

#[test]
fn a_job_registered_too_late_is_named_and_let_go_by_the_next_submission() {
    registered_too_late("jobs", ["1.pbshead", "2[].pbshead"]);
}

#[test]
fn an_array_registered_too_late_is_named_and_let_go_by_the_next_submission() {
    registered_too_late("barrier", ["1[].pbshead", "2[].pbshead"]);
}

/// A routing queue before one that holds so many elements.
fn routing(pbs: &mut Pbs, places: u64) {
    let queues = json!({
        "route": { "route_destinations": ["small"] }, "small": { "max_queued": places },
    });
    pbs.set("queues", queues);
    pbs.set("routes_dependents", true);
}

#[test]
fn behind_a_routing_queue_with_few_places_chains_are_fused() {
    for rest in ["", "[schedule]\nchains = \"jobs\"\n", "[schedule]\nchains = \"barrier\"\n"] {
        let mut pbs = pbs();
        routing(&mut pbs, 2);
        let ran = pbs.submit(&plan(rest), &[]);
        let said = "chains as fused: the routing queue hands on 2 elements at a time, and those that wait could take the \
                    places of those that they wait for\n";
        assert!(ran.err.contains(said), "{}", ran.whole());
        check(&pbs);
    }
    // Where all have a place none is taken from another.
    let mut pbs = pbs();
    routing(&mut pbs, 6);
    let ran = pbs.submit(&plan(""), &[]);
    assert!(ran.err.contains("chains as jobs: "), "{}", ran.whole());
    check(&pbs);
}

#[test]
fn behind_a_routing_queue_sweeps_do_not_take_each_others_places() {
    let mut pbs = pbs();
    routing(&mut pbs, 7);
    let code = "until [ -e $EVENTS.go ]; do sleep 0.01; done; echo $HPCSWEEP_TRIAL >>$EVENTS";
    let gated = |name: &str| {
        let plan = plan("").replace("echo $HPCSWEEP_TRIAL >>$EVENTS", code);
        plan.replace("\"s\"", &format!("\"{name}\""))
    };
    let submit = |pbs: &Pbs, name: &str| {
        let ran = pbs.submit(&gated(name), &[]);
        let chains = ran.err.lines().find(|line| line.starts_with("chains as ")).unwrap();
        chains.split(", and those").next().unwrap().split(" qsub").next().unwrap().to_owned()
    };
    assert_eq!(submit(&pbs, "s"), "chains as jobs: 6 calls of");
    let few = "chains as fused: the routing queue hands on 7 elements at a time";
    // The two elements of the second run their trials one after the other, so they need no place for what waits.
    assert_eq!(submit(&pbs, "t"), format!("{few}, 6 elements are there already"));
    assert_eq!(submit(&pbs, "u"), format!("{few}, 8 elements are there already"));
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    let ran = pbs.world.read("events");
    let times = |trial: &str| ran.lines().filter(|line| *line == trial).count();
    assert_eq!(["0", "1", "2", "3", "4", "5"].map(times), [3; 6], "{ran}");
    // The places are free again.
    assert_eq!(submit(&pbs, "v"), "chains as jobs: 6 calls of");
    pbs.wait_idle();
}

#[test]
fn behind_a_routing_queue_with_few_places_what_a_chain_grows_by_is_put_off() {
    let mut pbs = pbs();
    routing(&mut pbs, 2);
    // Another sweep has both places, and gives them back one by one.
    let gate = "until [ -e $EVENTS.$HPCSWEEP_TRIAL ]; do sleep 0.01; done";
    let other = shell(gate, "[grid]\nn = [0, 1]\n").replace("\"s\"", "\"other\"");
    pbs.submit(&other, &["-q"]).ok();
    let trials = |all: &[(&str, u32)]| {
        let one = |(c, n): &(&str, u32)| format!("[[trials]]\ntask_id = \"{c}\"\nn = {n}\n");
        shell("echo $HPCSWEEP_TRIAL >>$EVENTS", &all.iter().map(one).collect::<String>())
    };
    pbs.submit(&trials(&[("a", 0), ("b", 0)]), &["-q"]).ok();
    let grown = trials(&[("a", 0), ("b", 0), ("a", 1)]);
    let ran = pbs.submit(&grown, &[]);
    let said = "1 trial put off: the routing queue hands on 2 elements at a time, 4 elements are there already, and what \
                waits could take the places of what it waits for; submit again when the jobs before have ended\n\
                s: nothing new to submit (3 scheduler calls); 2 trials submitted before\n";
    assert!(ran.err.contains(said), "{}", ran.whole());
    let state = |trial: usize| {
        let ran = pbs.world.run(&["status", "--json", "results/s"]);
        let status: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        status["trials"][trial]["state"].clone()
    };
    assert_eq!(state(2), "pending");
    for n in [0, 1] {
        pbs.world.write(&format!("events.{n}"), "");
        wait_until("a place is free", || {
            pbs.jobs()[&format!("0[{n}].pbshead")]["job_state"] != "R"
        });
    }
    pbs.wait_idle();
    let mut events: Vec<String> = pbs.world.read("events").lines().map(str::to_owned).collect();
    events.sort_unstable();
    assert_eq!(events, ["0", "1"]);
    pbs.again(&["-q"]).ok();
    pbs.wait_idle();
    assert_eq!(state(2), "done");
}

#[test]
fn chains_that_no_allocation_fits_are_refused_there() {
    let mut pbs = pbs();
    routing(&mut pbs, 2);
    let rest = "[[trials]]\ntask_id = 1\nn = 0\n[[trials]]\ntask_id = 1\nn = 1\nresources.ranks = 2\n\
                [[trials]]\nn = 2\n";
    let ran = pbs.submit(&shell("true", rest), &[]);
    assert_eq!(
        ran.whole(),
        "error: the routing queue hands on 2 elements at a time, and those that wait could take the places of those that \
         they wait for; the links of a chain ask for different resources\nhint: name a queue that runs jobs itself as \
         `partition`: behind this one only chains that fit one allocation can run\nexit code 2\n"
    );
    assert!(pbs.jobs().is_empty());
}

#[test]
fn with_a_history_of_seconds_heads_are_held_until_all_is_there() {
    let mut pbs = pbs();
    pbs.set("history_duration", 0.2);
    let early = "[ ! -s $EVENTS ] || echo early >>$EVENTS; real \"$@\"";
    wrap(&pbs.world, "qsub", early);
    pbs.submit(&plan("[schedule]\nchains = \"jobs\"\n"), &["-q"]).ok();
    check(&pbs);
}

#[test]
fn what_a_short_history_has_forgotten_takes_nothing_with_it() {
    let mut pbs = pbs();
    pbs.set("history_duration", 0.2);
    let grown = |n: &str| plan("").replace("[0, 1, 2]", n).replace("\"a\", \"b\"", "\"a\"");
    pbs.submit(&grown("[0]"), &["-q"]).ok();
    wait_until("the head is forgotten", || pbs.jobs().is_empty());
    pbs.submit(&grown("[0, 1]"), &["-q"]).ok();
    wait_until("the second is forgotten", || pbs.jobs().is_empty());
    // The server is asked for the head, which is there, and then the head ends and is forgotten before qsub is called.
    let code = "until [ -e $EVENTS.go ]; do sleep 0.01; done; echo $HPCSWEEP_TRIAL >>$EVENTS";
    let gated = |n: &str| {
        grown(n).replace("echo $HPCSWEEP_TRIAL >>$EVENTS", code).replace("\"s\"", "\"t\"")
    };
    pbs.submit(&gated("[0]"), &["-q"]).ok();
    let ends = "[ -e $EVENTS.go ] || { : >$EVENTS.go; while qstat -x | grep -q pbshead; do :; done; }; real \"$@\"";
    wrap(&pbs.world, "qsub", ends);
    pbs.again(&["-q"]).ok();
    pbs.submit(&gated("[0, 1, 2]"), &["-q"]).ok();
    wait_until("all have run", || pbs.world.read("events").lines().count() >= 5);
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n0\n1\n2\n");
}

#[test]
fn whatever_the_server_forgets_or_is_late_with_chains_end() {
    let mut dice = Dice(0x1656_67B1_9E37_79F9);
    for _ in 0..8 {
        let mut pbs = pbs();
        let mut said = Vec::new();
        for (key, values) in [
            ("history", [json!(true), json!(true), json!(false)]),
            ("history_duration", [json!(null), json!(0.1), json!(3600)]),
            ("ends_late", [json!(0), json!(0.05), json!(0.2)]),
            ("delay", [json!(0), json!(0.02), json!(0.05)]),
        ] {
            let value = values[dice.below(3) as usize].clone();
            said.push(format!("{key} {value}"));
            pbs.set(key, value);
        }
        if dice.below(3) == 0 {
            routing(&mut pbs, 2 + dice.below(5));
            said.push("routing".to_owned());
        }
        let chains = ["jobs", "barrier"][dice.below(2) as usize];
        let whole = plan(&format!("[schedule]\nchains = \"{chains}\"\n"));
        // The chains grow while they run.
        for n in ["[0]", "[0, 1]", "[0, 1, 2]"].into_iter().skip(dice.below(3) as usize) {
            let part = whole.replace("[0, 1, 2]", n);
            pbs.submit(&part, &["-q"]).ok();
        }
        let mut submissions = 0;
        let is_over = |pbs: &Pbs| pbs.standings().iter().all(|s| s == "done");
        while !is_over(&pbs) {
            submissions += 1;
            assert!(
                submissions < 200,
                "{said:?} {chains}: {:?}\n{:?}",
                pbs.standings(),
                pbs.states()
            );
            pbs.again(&["-q"]).ok();
        }
        pbs.wait_idle();
        let events = pbs.world.read("events");
        let mut ran: Vec<&str> = events.lines().collect();
        ran.sort_unstable();
        assert_eq!(ran, ["0", "1", "2", "3", "4", "5"], "{said:?} {chains}");
    }
}
