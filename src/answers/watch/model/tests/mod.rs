//! The model's result for lines and entries, case by case.

mod pieces;

use serde_json::json;

use super::*;
use crate::answers::watch::{Failure, Frame, Place, Slow};
use crate::sweep::standing::State;
use crate::sweep::tree::ledger::Entry;
use crate::sweep::tree::records::Who;

const NOW: f64 = 1000.0;

fn who(agent: &str) -> Event {
    let (agent, host) = (agent.to_owned(), format!("host-of-{agent}"));
    Event::Agent(Who { agent, host, time: 900.0, ..Who::default() })
}

fn start(trial: u64, attempt: u32, time: f64) -> Event {
    begun(trial, attempt, time, 0)
}

fn begun(trial: u64, attempt: u32, time: f64, seq: u64) -> Event {
    Event::Start(Start {
        trial,
        attempt,
        time,
        slot: Some(0),
        seq,
        argv: vec![],
        ..Start::default()
    })
}

fn end(trial: u64, attempt: u32, time: f64, state: Outcome, last: bool) -> Event {
    Event::End(records::End {
        trial,
        attempt,
        time,
        state,
        exit_code: Some(if state == Outcome::Done { 0 } else { 3 }),
        signal: None,
        cause: None,
        reason: None,
        duration_s: 2.0,
        peak_memory: 0,
        usage: None,
        result: None,
        log: None,
        last,
        seq: None,
    })
}

fn done(trial: u64, time: f64) -> Event {
    end(trial, 1, time, Outcome::Done, true)
}

fn join(agent: &str, slots: u32) -> Entry {
    let (host, nonce) = (format!("host-of-{agent}"), "join".to_owned());
    Entry::Join { agent: agent.to_owned(), nonce, host, slots, cores: vec![], job: None }
}

fn expire(agent: &str, size: u64) -> Entry {
    let (agent, nonce, by) = (agent.to_owned(), "1".to_owned(), "b".to_owned());
    Entry::Expire { agent, nonce, by, size, units: vec![], unbegun: vec![] }
}

/// Lines with places, a hundred bytes each.
fn placed(lines: Vec<Event>) -> Vec<Placed> {
    lines.into_iter().zip(1..).map(|(line, i)| (i * 100, line)).collect()
}

fn model(trials: u64, entries: &[Entry], bundles: &[(&str, Vec<Event>)]) -> Model {
    let mut model = Model::new("s");
    model.has_trials(trials);
    entries.iter().for_each(|entry| model.ledger.take(Some(entry.clone())));
    for (agent, lines) in bundles {
        model.feed(agent, placed(lines.clone()));
    }
    model
}

/// `done 3 queued 1`.
fn counts(frame: &Frame) -> String {
    let one = |(state, n): (&State, &u64)| format!("{} {n}", state.word());
    assert_eq!(frame.counts.values().sum::<u64>(), frame.total);
    frame.counts.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_frame_has_all_there_is_to_see() {
    let mut row = serde_json::Map::new();
    row.insert("gpu.0.utilization".to_owned(), json!(80));
    let lines = vec![
        who("a"),
        start(0, 1, 910.0),
        start(1, 1, 910.0),
        done(0, 912.0),
        end(1, 1, 912.0, Outcome::Failed, false),
        start(1, 2, 913.0),
        Event::Metrics { trial: 1, attempt: 2, rows: vec![row] },
        start(2, 1, 920.0),
        end(2, 1, 930.0, Outcome::Failed, true),
        Event::Skip { trial: 3, time: 930.0, job: None, seq: 0, reason: String::new() },
        start(4, 1, 940.0),
        end(4, 1, 990.0, Outcome::Timeout, true),
        done(5, 950.0),
        done(6, 960.0),
    ];
    let mut model = model(9, &[join("a", 4), join("b", 2)], &[("a", lines)]);
    model.patience_s = 60.0;
    model.seen("a", 800.0, 990.0);
    model.seen("a", 801.0, 995.0);
    model.seen("b", 930.0, 995.0);
    let frame = model.frame(NOW);
    let failure = |trial, state, reason: &str, ago| Failure {
        trial,
        host: "host-of-a".to_owned(),
        state,
        reason: reason.to_owned(),
        ago_s: Some(ago),
    };
    let place = |agent: &str, busy, slots, ended, seen, silent| Place {
        pid: None,
        host: format!("host-of-{agent}"),
        job: None,
        busy,
        slots: Some(slots),
        ended,
        rate: (ended > 0).then_some(6.0 / 100.0),
        seen_s: Some(seen),
        silent,
    };
    let gpu = crate::answers::watch::Gpu { utilization: Some(80.0), ..Default::default() };
    let host = || "host-of-a".to_owned();
    let expected = Frame {
        sweep: "s".to_owned(),
        total: 9,
        counts: [
            (State::Done, 3),
            (State::Running, 1),
            (State::Queued, 2),
            (State::Failed, 1),
            (State::Timeout, 1),
            (State::Skipped, 1),
        ]
        .into(),
        rate: Some(6.0 / 100.0),
        left_s: Some(50.0),
        took_s: Some(90.0),
        median_s: Some(2.0),
        places: vec![place("b", 0, 2, 0, 70.0, true), place("a", 1, 4, 6, 5.0, false)],
        failures: vec![
            failure(4, State::Timeout, "", 10.0),
            failure(2, State::Failed, "exit code 3", 70.0),
        ],
        slowest: vec![Slow {
            trial: 1,
            host: host(),
            since_s: 87.0,
            times: Some(43.5),
            curve: None,
        }],
        gpus: vec![crate::answers::watch::UsedGpu { trial: 1, host: host(), number: 0, gpu }],
        damage: vec![],
        causes: vec![(Cause::Walltime, 1), (Cause::ExitCode, 1)],
        best: None,
        notes: vec!["no sign of life from 1 agent for more than 1 min 00 s".to_owned()],
    };
    assert_eq!(frame, expected);
}

#[test]
fn the_best_trial_is_one_whose_end_counts() {
    let run = |trial, time, loss: f64| {
        let row = json!({"epoch": 1, "loss": loss}).as_object().unwrap().clone();
        let rows = vec![row];
        [start(trial, 1, time), Event::Metrics { trial, attempt: 1, rows }, done(trial, time + 1.0)]
    };
    let lines = |all: &[[Event; 3]]| [vec![who("a")], all.concat()].concat();
    let a = lines(&[run(0, 910.0, 3.0), run(1, 920.0, 2.0)]);
    let b = lines(&[run(2, 910.0, 1.0)]);
    let mut model = model(4, &[join("a", 1), join("b", 1)], &[("a", a), ("b", b)]);
    let best = |model: &Model| {
        let best = model.frame(NOW).best.unwrap();
        assert!(best.assumed && !best.max);
        (best.metric, best.trial, best.value)
    };
    assert_eq!(best(&model), ("loss".to_owned(), 2, 1.0));
    // Its end stands behind the fence of its agent.
    model.ledger.take(Some(expire("b", 300)));
    assert_eq!(best(&model), ("loss".to_owned(), 1, 2.0));
}

#[test]
fn what_the_plan_has_dropped_is_neither_open_nor_a_failure() {
    let lines = vec![
        who("a"),
        done(0, 911.0),
        end(1, 1, 912.0, Outcome::Failed, true),
        end(2, 1, 913.0, Outcome::Failed, true),
        start(3, 1, 914.0),
    ];
    let mut model = model(6, &[join("a", 1)], &[("a", lines)]);
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 2 failed 2");
    model.dropped = [0, 1, 3, 4].into_iter().collect();
    let frame = model.frame(NOW);
    assert_eq!(counts(&frame), "done 1 running 1 queued 1 failed 1 dropped 2");
    assert_eq!((frame.failures.len(), frame.failures[0].trial), (1, 2));
    // An agent holds trials 3 and 4: it runs them to their end.
    let held = |trial| Dealt { trial, unit: trial, seq: 0 };
    model.dealt = vec![held(0), held(3), held(4)];
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 2 failed 1 dropped 1");
    // Trial 1 was enqueued again after it had failed; then no agent has it any more.
    model.dealt.push(Dealt { trial: 1, unit: 6, seq: 7 });
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 3 failed 1");
    model.ledger.fresh = 7;
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 1 failed 1 dropped 2");
    model.feed("a", vec![(900, end(3, 1, 920.0, Outcome::Done, true))]);
    assert_eq!(counts(&model.frame(NOW)), "done 2 queued 1 failed 1 dropped 2");
}

#[test]
fn what_was_written_behind_a_fence_is_taken_back() {
    let lines =
        vec![who("a"), start(0, 1, 910.0), done(0, 911.0), start(1, 1, 912.0), done(1, 913.0)];
    let mut model = model(3, &[join("a", 1), join("b", 1)], &[("a", lines)]);
    assert_eq!(counts(&model.frame(NOW)), "done 2 queued 1");
    model.ledger.take(Some(expire("a", 400)));
    let frame = model.frame(NOW);
    assert_eq!(counts(&frame), "done 1 queued 2");
    assert_eq!(frame.notes, ["1 agent taken for dead; others have its trials"]);
    model.feed("b", placed(vec![who("b"), start(1, 2, 920.0)]));
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 1");
    // A done trial stays done, even if the void end is the later one.
    model.feed("b", vec![(900, end(1, 2, 912.5, Outcome::Done, true))]);
    assert_eq!(counts(&model.frame(NOW)), "done 2 queued 1");
    assert_eq!(model.frame(NOW).places[0].ended, 1);
}

#[test]
fn the_trials_of_an_agent_that_is_silent_wait_for_others() {
    let mut model =
        model(3, &[join("a", 2)], &[("a", vec![who("a"), start(0, 1, 910.0), done(1, 920.0)])]);
    model.patience_s = 30.0;
    model.seen("a", 980.0, NOW);
    assert_eq!(counts(&model.frame(NOW)), "done 1 running 1 queued 1");
    let frame = model.frame(NOW + 11.0);
    assert_eq!(counts(&frame), "done 1 queued 2");
    assert_eq!((frame.rate, frame.slowest.len()), (None, 0));
    let nobody = "no agent is running: `hpcsweep worker --pull SWEEP` continues it";
    assert_eq!(frame.notes, ["no sign of life from 1 agent for more than 30 s", nobody]);
    // It was only slow, on a host whose clock is behind.
    model.seen("a", 981.0, NOW + 11.0);
    assert_eq!(counts(&model.frame(NOW + 11.0)), "done 1 running 1 queued 1");
}

#[test]
fn of_a_trial_that_ran_twice_one_end_counts() {
    let nonce = String::new;
    let copy = Entry::Copy {
        agent: "b".into(),
        nonce: nonce(),
        of: "a".into(),
        trial: 0,
        size: 200,
        since: 0,
    };
    let won = |agent: &str, attempt| Entry::Won {
        agent: agent.into(),
        nonce: nonce(),
        trial: 0,
        attempt,
        begun: 0,
    };
    let a = vec![who("a"), start(0, 1, 910.0), end(0, 1, 950.0, Outcome::Failed, true)];
    let b = vec![who("b"), start(0, 2, 940.0), end(0, 2, 945.0, Outcome::Done, true)];
    let entries = [join("a", 1), join("b", 1), copy];
    let mut model = model(1, &entries, &[("a", a), ("b", b)]);
    // The ledger does not say yet whose end counts.
    assert_eq!(counts(&model.frame(NOW)), "queued 1");
    model.ledger.take(Some(won("a", 1)));
    model.ledger.take(Some(won("b", 2)));
    let frame = model.frame(NOW);
    assert_eq!((counts(&frame).as_str(), frame.failures.len()), ("failed 1", 1));
    model.ledger.contests.clear();
    assert_eq!(counts(&model.frame(NOW)), "done 1");
}

#[test]
fn a_trial_that_is_tried_again_runs_and_failed_only_if_that_fails() {
    let failed = |attempt, time| end(0, attempt, time, Outcome::Failed, true);
    let mut lines = vec![who("a"), start(0, 1, 910.0), failed(1, 911.0), start(0, 1, 920.0)];
    let frame = |lines: &[Event]| model(1, &[join("a", 1)], &[("a", lines.to_vec())]).frame(NOW);
    let running = frame(&lines);
    assert_eq!((counts(&running).as_str(), running.failures.len()), ("running 1", 0));
    lines.push(failed(1, 921.0));
    let failed = frame(&lines);
    assert_eq!((counts(&failed).as_str(), failed.failures.len()), ("failed 1", 1));
    assert_eq!(failed.failures[0].ago_s, Some(79.0));
    lines.extend([start(0, 1, 930.0), done(0, 931.0)]);
    let done = frame(&lines);
    assert_eq!((counts(&done).as_str(), done.failures.len()), ("done 1", 0));
}

#[test]
fn what_came_last_counts_whatever_the_clocks_say() {
    let failed = |time| end(0, 1, time, Outcome::Failed, true);
    let late = end(0, 1, 910.0, Outcome::Timeout, true);
    let a = vec![who("a"), begun(0, 1, 990.0, 2), failed(991.0)];
    let b = vec![who("b"), begun(0, 1, 905.0, 5), late];
    let bundles = [("b", b), ("a", a)];
    let frame = model(1, &[join("a", 1), join("b", 1)], &bundles).frame(NOW);
    assert_eq!(counts(&frame), "timeout 1");
}

#[test]
fn what_others_have_run_before_counts_until_agents_run_it_again() {
    let before = |trial, state| Elsewhere {
        trial,
        state,
        time: 100.0,
        seq: 0,
        duration_s: 1.0,
        host: "laptop".to_owned(),
        reason: "exit code 1".to_owned(),
        cause: Some(Cause::ExitCode),
    };
    let mut model = Model::new("s");
    model.has_trials(4);
    model.ledger.take(Some(join("a", 1)));
    model.elsewhere(vec![
        before(0, Outcome::Done),
        before(1, Outcome::Failed),
        before(2, Outcome::Failed),
    ]);
    model.feed("a", placed(vec![who("a"), start(1, 1, 910.0)]));
    let frame = model.frame(NOW);
    assert_eq!(counts(&frame), "done 1 running 1 queued 1 failed 1");
    let said: Vec<_> = frame.failures.iter().map(|f| (f.trial, &*f.host, &*f.reason)).collect();
    assert_eq!(said, [(2, "laptop", "exit code 1")]);
}

#[test]
fn thousands_of_failures_leave_the_newest() {
    let lines = (0..3000).map(|i| end(i, 1, 900.0 + i as f64 / 100.0, Outcome::Failed, true));
    let lines: Vec<Event> = std::iter::once(who("a")).chain(lines).collect();
    let frame = model(5000, &[join("a", 1)], &[("a", lines)]).frame(NOW);
    assert_eq!(counts(&frame), "queued 2000 failed 3000");
    let shown: Vec<u64> = frame.failures.iter().map(|f| f.trial).collect();
    assert_eq!(shown, (2800..3000).rev().collect::<Vec<_>>());
    assert!(frame.failures.iter().all(|f| f.reason == "exit code 3"));
}

#[test]
fn an_end_is_kept_in_few_bytes() {
    assert_eq!(size_of::<End>(), 40);
}
