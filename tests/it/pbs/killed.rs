//! PBS: a submission that is killed, at every call and at any moment, is completed by the next one: nothing is
//! submitted twice, nothing forgotten, nothing left held.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::support::faults::Dice;
use crate::support::pbs::Pbs;
use crate::support::pbs_once::killer;
use crate::support::pbs_once::{check, pbs, plan, wrap};
use crate::support::plans::shell;

/// A chain of three links, and the links' own order as the oracle.
fn chain() -> String {
    let rest =
        "[schedule]\nchains = \"jobs\"\n[defaults]\ntask_id = \"c\"\n[grid]\na = [0, 1, 2]\n";
    shell("echo $HPCSWEEP_TRIAL >>$EVENTS", rest)
}

#[test]
fn killed_before_or_after_any_call_of_qsub_it_is_completed() {
    for number in 1..=3 {
        for before in [true, false] {
            let pbs = pbs();
            wrap(&pbs.world, "qsub", &killer(number, before));
            assert_eq!(pbs.submit(&plan("s", 5), &["-q"]).code, 137, "call {number} {before}");
            assert_eq!(pbs.names().len() as u32, if before { number - 1 } else { number });
            pbs.again(&["-q"]).ok();
            assert_eq!(pbs.names().len(), 3);
            check(&pbs, 5);
        }
    }
}

#[test]
fn a_sweep_larger_than_the_queue_continues_after_any_call_that_never_arrived() {
    for number in 1..=3 {
        for before in [true, false] {
            let mut pbs = Pbs::start();
            let events = pbs.world.text_path("events");
            pbs.world.set("EVENTS", &events);
            pbs.world.write("events", "");
            pbs.config(|c| {
                c.insert("max_queued".to_owned(), json!(5));
                c.insert("scheduling".to_owned(), json!(false));
            });
            pbs.site("[limits]\nsettle_s = 1\n");
            wrap(&pbs.world, "qsub", &killer(number, before));
            assert_eq!(pbs.submit(&plan("s", 11), &["-q"]).code, 137, "call {number} {before}");
            let ran = pbs.again(&[]);
            assert_eq!(ran.code, 0, "call {number} {before}: {}", ran.whole());
            pbs.set("scheduling", true);
            check(&pbs, 11);
        }
    }
}

#[test]
fn what_a_killed_submission_has_brought_is_cancelled_and_held_too() {
    for number in 1..=2 {
        for (verb, words) in [("cancel", "cancelled"), ("hold", "held")] {
            let mut pbs = pbs();
            pbs.set("cycle", 1000);
            wrap(&pbs.world, "qsub", &killer(number, false));
            assert_eq!(pbs.submit(&plan("s", 5), &["-q"]).code, 137);
            std::fs::remove_file(pbs.world.path("bin/qsub")).unwrap();
            let ran = pbs.world.run(&[verb]).whole();
            let last = number - 1;
            let found = format!(
                "array {number}: an earlier call has no answer: it is job {last}[].pbshead\n"
            );
            assert!(ran.starts_with(&found), "{ran}");
            let done = format!("\ns: {words} {} trials: {last}[].pbshead", 2 * number);
            assert!(ran.contains(&done), "{ran}");
            let states = pbs.states();
            let expected = if verb == "cancel" { "F" } else { "H" };
            assert!(states.iter().all(|(_, state)| state == expected), "{verb}: {states:?}");
        }
    }
}

/// The call arrives when what is known has been taken back.
#[test]
fn what_arrives_after_a_killed_submission_is_cancelled_when_it_does() {
    let mut pbs = pbs();
    pbs.set("cycle", 1000);
    wrap(&pbs.world, "qsub", &killer(2, true));
    assert_eq!(pbs.submit(&plan("s", 5), &["-q"]).code, 137);
    let arrives = "if mkdir \"$EVENTS.once\" 2>/dev/null; then qsub $(ls -t results/s/jobs/*.sh | head -1); fi";
    std::fs::remove_file(pbs.world.path("bin/qsub")).unwrap();
    wrap(&pbs.world, "qdel", &format!("real \"$@\"; code=$?; {arrives}; exit $code"));
    let ran = pbs.world.run(&["cancel"]).whole();
    assert!(ran.contains("s: cancelled 4 trials: 0[].pbshead 1[].pbshead\n"), "{ran}");
    assert!(pbs.states().iter().all(|(_, state)| state == "F"), "{:?}", pbs.states());
}

#[test]
fn pilots_of_a_killed_submission_are_cancelled_too() {
    let mut pbs = pbs();
    pbs.set("cycle", 1000);
    wrap(&pbs.world, "qsub", &killer(1, false));
    assert_eq!(pbs.submit(&plan("s", 5), &["-q", "--pull"]).code, 137);
    let ran = pbs.world.run(&["cancel"]).whole();
    assert!(ran.contains("\ns: cancelled 1 pilot: 0[].pbshead\n"), "{ran}");
    assert_eq!(pbs.states()[0].1, "F");
}

#[test]
fn what_ran_and_was_forgotten_before_its_answer_was_heard_is_known_by_its_records() {
    let mut pbs = pbs();
    pbs.set("history", false);
    wrap(&pbs.world, "qsub", &killer(2, false));
    assert_eq!(pbs.submit(&plan("s", 5), &["-q"]).code, 137);
    pbs.wait_idle();
    assert!(pbs.jobs().is_empty());
    let ran = pbs.again(&[]);
    let said =
        "array 2: an earlier call has no answer; looking for it\narray 2: it is job 1[].pbshead\n";
    assert!(ran.err.starts_with(said), "{}", ran.whole());
    check(&pbs, 5);
}

/// The calls of a client.
fn calls(pbs: &Pbs) -> usize {
    pbs.world.read("events.calls").lines().count()
}

#[test]
fn the_head_is_held_until_all_is_there() {
    [true, false].into_iter().for_each(held_until_all_is_there);
}

fn held_until_all_is_there(history: bool) {
    let mut pbs = pbs();
    pbs.set("history", history);
    pbs.world.write("events.calls", "");
    let first = "[ -s $EVENTS ] && echo early >>$EVENTS; echo \"$*\" >>$EVENTS.calls; real \"$@\"";
    wrap(&pbs.world, "qrls", first);
    let ran = pbs.submit(&chain(), &[]);
    assert_eq!(
        ran.whole(),
        "\
chains as jobs: the plan says so
array 1: 1 trial as job 0.pbshead
array 2: 1 trial as job 1.pbshead, after 0.pbshead
array 3: 1 trial as job 2.pbshead, after 1.pbshead
s: 3 trials submitted as 3 arrays (6 scheduler calls)
jobs: 0.pbshead 1.pbshead 2.pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n2\n");
    assert_eq!(pbs.world.read("events.calls"), "0.pbshead\n");
    assert_eq!(pbs.standings(), ["done"; 3]);
    // No job is released a second time.
    pbs.again(&[]).ok();
    assert_eq!(calls(&pbs), 1);
}

#[test]
fn killed_around_qrls_the_held_head_is_let_go_by_the_next_submission() {
    for (history, before) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pbs = pbs();
        pbs.set("history", history);
        pbs.world.write("events.calls", "");
        wrap(&pbs.world, "qrls", &killer(1, before));
        assert_eq!(pbs.submit(&chain(), &["-q"]).code, 137);
        if before {
            assert_eq!(pbs.states()[0], ("0.pbshead".to_owned(), "H".to_owned()));
            let held = "queued: held until its submission is complete: submit again";
            assert_eq!(pbs.standings()[0], held);
            let why = pbs.world.run(&["why", "0"]);
            assert!(why.out.contains("submit again: this releases it"), "{}", why.whole());
        }
        pbs.again(&["-q"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.world.read("events"), "0\n1\n2\n");
        assert_eq!(calls(&pbs), 2);
        assert_eq!(pbs.standings(), ["done"; 3]);
    }
}

/// The second link is refused, so that nothing is left for the first to wait for.
#[test]
fn a_head_is_let_go_when_a_link_is_refused() {
    for history in [true, false] {
        let mut pbs = pbs();
        pbs.set("history", history);
        let refuses = "case \"$*\" in *depend=*) echo 'qsub: Unknown queue' >&2; exit 170;; esac; real \"$@\"";
        wrap(&pbs.world, "qsub", refuses);
        assert_eq!(pbs.submit(&chain(), &["-q"]).code, 3);
        pbs.wait_idle();
        assert_eq!(pbs.world.read("events"), "0\n", "history {history}");
        std::fs::remove_file(pbs.world.path("bin/qsub")).unwrap();
        pbs.again(&["-q"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.world.read("events"), "0\n1\n2\n", "history {history}");
        assert_eq!(pbs.standings(), ["done"; 3]);
    }
}

#[test]
fn killed_between_the_links_the_rest_follows() {
    for history in [true, false] {
        for before in [true, false] {
            let mut pbs = pbs();
            pbs.set("history", history);
            wrap(&pbs.world, "qsub", &killer(2, before));
            assert_eq!(pbs.submit(&chain(), &["-q"]).code, 137);
            pbs.again(&["-q"]).ok();
            pbs.wait_idle();
            assert_eq!(pbs.world.read("events"), "0\n1\n2\n", "history {history}, before {before}");
            assert_eq!(pbs.standings(), ["done"; 3]);
        }
    }
}

#[test]
fn a_chain_whose_head_had_ended_is_continued_without_it() {
    for history in [true, false] {
        let mut pbs = pbs();
        pbs.set("history", history);
        let grown = |links: &str| chain().replace("[0, 1, 2]", links).replace("jobs", "barrier");
        pbs.submit(&grown("[0]"), &["-q"]).ok();
        pbs.wait_idle();
        pbs.submit(&grown("[0, 1]"), &["-q"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.world.read("events"), "0\n1\n", "history {history}");
        assert_eq!(pbs.standings(), ["done"; 2]);
    }
}

#[test]
fn a_head_that_ends_while_its_link_is_being_submitted_takes_nothing_with_it() {
    let mut pbs = pbs();
    pbs.set("history", false);
    let code = "until [ -e $EVENTS.go ]; do sleep 0.01; done; echo $HPCSWEEP_TRIAL >>$EVENTS";
    let rest = "[defaults]\ntask_id = \"c\"\n[grid]\na = ";
    pbs.submit(&shell(code, &format!("{rest}[0]\n")), &["-q"]).ok();
    // The server is asked for the head, which is there, and then the head ends before qsub is called.
    let ends = "[ -e $EVENTS.go ] || { : >$EVENTS.go; while qstat | grep -q pbshead; do :; done; }; real \"$@\"";
    wrap(&pbs.world, "qsub", ends);
    let ran = pbs.submit(&shell(code, &format!("{rest}[0, 1, 2]\n")), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n2\n", "{}", ran.whole());
    assert_eq!(pbs.standings(), ["done"; 3]);
}

#[test]
fn killed_at_random_moments_every_array_is_asked_for_once() {
    let mut dice = Dice(0xC2B2_AE3D_27D4_EB4F);
    let (mut kills, mut sweeps) = (0, 0);
    while kills < 8 {
        sweeps += 1;
        assert!(sweeps < 40, "only {kills} kills hit");
        let pbs = pbs();
        pbs.world.write("plan.toml", &plan("s", 11));
        loop {
            let mut started = pbs.world.start(&["submit", "plan.toml", "--pbs", "-q"]);
            if kills < 8 {
                std::thread::sleep(Duration::from_micros(dice.below(250_000)));
                let alive = matches!(started.child.try_wait(), Ok(None));
                kills += u32::from(alive && started.child.kill().is_ok());
            }
            let ended = started.end(&pbs.world);
            assert!([0, 137].contains(&ended.code), "{}", ended.whole());
            if ended.code == 0 {
                break;
            }
        }
        let names = pbs.names();
        assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (6, 6), "{names:?}");
        check(&pbs, 11);
    }
}

/// Possible messages of a qsub that fails: known refusals, lost connections, and messages that hpcsweep does
/// not know.
const FAILURES: [&str; 6] = [
    "qsub: Unknown queue",
    "qsub: cannot connect to server pbshead (errno=15010)",
    "qsub: End of File",
    "qsub: Error (15012) submitting job",
    "qsub: the accounts of project 4711 do not answer",
    "",
];

#[test]
fn whatever_a_failing_qsub_says_every_array_is_asked_for_once() {
    let mut dice = Dice(0x27D4_EB2F_1656_67C5);
    for _ in 0..4 {
        let pbs = pbs();
        pbs.world.write("plan.toml", &plan("s", 7));
        let mut fails = 3;
        loop {
            let words = FAILURES[dice.below(6) as usize];
            // A refusal is one: nothing was submitted.
            let is_refusal = words.contains("Unknown queue") || words.contains("cannot connect");
            let submits = if is_refusal || dice.below(2) == 0 { "" } else { "real \"$@\" >&2;" };
            let code = 1 + dice.below(255);
            let nth = 1 + dice.below(3);
            let fault = format!(
                "echo >>$EVENTS.calls; [ $(wc -l <$EVENTS.calls) -ne {nth} ] || \
                 {{ {submits} echo '{words}' >&2; exit {code}; }}; real \"$@\""
            );
            pbs.world.write("events.calls", "");
            wrap(&pbs.world, "qsub", if fails > 0 { &fault } else { "real \"$@\"" });
            let ran = pbs.again(&["-q"]);
            assert!([0, 3].contains(&ran.code), "{}", ran.whole());
            if ran.code == 0 && fails == 0 {
                break;
            }
            fails -= i32::from(fails > 0);
        }
        assert_eq!(pbs.names().len(), 4);
        check(&pbs, 7);
    }
}
