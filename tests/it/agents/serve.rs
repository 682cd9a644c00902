//! Agents that hand their trials to another process: the messages on the pipe, and the fate of trials whose
//! process or agent is stopped or killed. Long because every claim is a conversation.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::world::{PROGRAM, Ran, Started, World, wait_until};

/// A plan whose trials call the function `f`.
fn plan(more: &str) -> String {
    format!("version = 1\n[sweep]\nname = \"p\"\n[run]\nfunction = \"f\"\n{more}")
}

/// An axis `i` of this length.
fn axis(n: usize) -> String {
    let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!("[grid]\ni = [{}]\n", values.join(", "))
}

/// A process that is served.
struct Client {
    agent: Started,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl World {
    /// Starts the agent and reads its name.
    fn served(&self, what: &str) -> Client {
        let mut command = self.command(PROGRAM);
        command.args(["worker", "--pull", what, "--serve"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut client = Client { agent: Started { child }, to, from };
        let hello = client.hear();
        assert!(hello["agent"].is_string(), "{hello}");
        client
    }
}

/// How many trials are in which state.
fn counts(world: &World) -> String {
    world.status()["counts"].to_string()
}

impl Client {
    /// The next line; `null` at the end.
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    /// The next trial: its number and its attempt. Lines about recorded trials are skipped.
    fn trial(&mut self) -> (u64, u64) {
        loop {
            let line = self.hear();
            if let Some(trial) = line["trial"].as_u64() {
                return (trial, line["attempt"].as_u64().unwrap());
            }
            assert!(line["ended"].is_u64(), "{line}");
        }
    }

    fn say(&mut self, line: &Value) {
        writeln!(self.to.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Answers to a trial; the attempt's answer is `with`.
    fn answer(&mut self, (trial, attempt): (u64, u64), with: Value) {
        let mut line = json!({ "trial": trial, "attempt": attempt });
        line.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        self.say(&line);
    }

    /// Answers all that comes with the trial's number, and returns which that were; then the last line.
    fn work(&mut self) -> (Vec<(u64, u64)>, Value) {
        let mut all = Vec::new();
        loop {
            let line = self.hear();
            if let (Some(trial), Some(attempt)) = (line["trial"].as_u64(), line["attempt"].as_u64())
            {
                all.push((trial, attempt));
                self.answer((trial, attempt), json!({ "value": trial }));
            } else if line["ended"].is_null() {
                return (all, line);
            }
        }
    }

    /// Is gone, as after kill -9.
    fn vanish(mut self, world: &World) -> Ran {
        drop(self.to.take());
        self.end(world)
    }

    fn end(self, world: &World) -> Ran {
        let Self { mut agent, from, to } = self;
        agent.child.stdout = Some(from.into_inner());
        let ran = agent.end(world);
        drop(to);
        ran
    }
}

#[test]
fn a_conversation() {
    let world = World::new();
    world.write(
        "plan.toml",
        "version = 1\n[sweep]\nname = \"p\"\n[run]\nfunction = \"f\"\nattempts = 2\n[pull]\nbackoff = 0\n\
         [grid]\nlr = [0.1, 1e-5]\n[schedule]\nchain_along = \"lr\"\n",
    );
    let mut client = world.served("plan.toml");
    let mut said = vec![client.hear()];
    client
        .say(&json!({ "trial": 0, "attempt": 1, "metrics": [{ "loss": 0.5 }, { "loss": 0.25 }] }));
    client.say(&json!({ "trial": 0, "attempt": 1, "value": { "acc": 0.75 }, "duration_s": 2.5 }));
    said.extend([client.hear(), client.hear()]);
    let error = json!({ "trial": 1, "attempt": 1, "error": "E: no", "details": "line 1\nline 2" });
    client.say(&error);
    said.extend([client.hear(), client.hear()]);
    // An answer to something else is ignored; Python's `NaN` is accepted.
    client.say(&json!({ "trial": 1, "attempt": 1, "value": 7 }));
    writeln!(client.to.as_ref().unwrap(), "{{\"trial\": 1, \"attempt\": 2, \"value\": NaN}}")
        .unwrap();
    said.extend([client.hear(), client.hear(), client.hear()]);
    let said: Vec<String> = said.iter().map(|line| format!("{line}\n")).collect();
    let root = world.text_path("results/p");
    let trial = |trial, attempt, lr| {
        format!(
            r#"{{"trial":{trial},"attempt":{attempt},"params":{{"lr":{lr}}},"task_id":"0","chain":0,"link":{trial},"work_dir":"{root}/work/000/{trial}","checkpoint_dir":"{root}/work/000/{trial}/checkpoint"}}"#
        )
    };
    let ended = |trial, attempt, state, last| {
        format!(r#"{{"ended":{trial},"attempt":{attempt},"state":"{state}","last":{last}}}"#)
    };
    let expected = [
        trial(0, 1, "0.1"),
        ended(0, 1, "done", true),
        trial(1, 1, "0.00001"),
        ended(1, 1, "failed", false),
        trial(1, 2, "0.00001"),
        ended(1, 2, "done", true),
        r#"{"end":true,"reason":"","signal":null,"failed":false}"#.to_owned(),
        "null".to_owned(),
    ];
    assert_eq!(said.concat(), expected.join("\n") + "\n");
    let ran = client.end(&world);
    assert_eq!((ran.code, ran.err.lines().last()), (0, Some("agent: 2 done")), "{}", ran.whole());
    assert_eq!(world.column("result"), ["null", "\"nan\""]);
    assert_eq!(world.column("acc"), ["0.75", "null"]);
    assert_eq!(world.column("loss"), ["0.25", "null"]);
    assert_eq!(world.table(&[])[0]["duration_s"], 2.5);
    assert_eq!(world.column("attempts"), ["1", "2"]);
    assert_eq!(world.run(&["logs", "1"]).ok(), "line 1\nline 2\n");
}

#[test]
fn a_trial_that_fails_for_good_says_why_and_how() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(4)));
    let mut client = world.served("plan.toml");
    for with in [
        json!({ "error": "ValueError: no", "details": "Traceback" }),
        json!({ "error": "SystemExit: 3", "exit_code": 3 }),
        json!({ "error": "it was killed", "signal": 9 }),
    ] {
        let trial = client.trial();
        client.answer(trial, with);
        assert_eq!(client.hear()["last"], true);
    }
    let last = client.trial();
    writeln!(client.to.as_ref().unwrap(), "[1, 2").unwrap();
    assert_eq!(
        client.hear(),
        json!({ "ended": last.0, "attempt": 1, "state": "failed", "last": true })
    );
    assert_eq!(client.hear()["failed"], true);
    assert_eq!(client.end(&world).code, 1);
    let status = world.run(&["status"]);
    assert_eq!(
        world.column("cause"),
        ["\"exception\"", "\"exception\"", "\"signal\"", "\"exception\""]
    );
    assert_eq!(world.column("exit_code"), ["1", "3", "137", "1"]);
    assert!(status.out.contains("the answer is no JSON object: [1, 2"), "{}", status.whole());
    // Failed trials run again when a user asks for it, and only then.
    let again = world.run(&["worker", "--pull", "plan.toml", "--serve"]);
    assert!(again.out.ends_with("\"failed\":false}\n"), "{}", again.whole());
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml", "--serve", "--retry"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
    let mut client = Client { agent: Started { child }, to, from };
    client.hear();
    let mut all = client.work().0;
    all.sort_unstable();
    assert_eq!(all, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    client.end(&world);
    assert_eq!(counts(&world), r#"{"done":4}"#);
}

const SHORT: &str = "[pull]\nlease = 0.6\n";

#[test]
fn the_trial_of_a_process_that_is_gone_goes_to_another_at_once() {
    let world = World::new();
    // No lease expires within the time of a test.
    world.write("plan.toml", &plan(&axis(3)));
    let mut client = world.served("plan.toml");
    assert_eq!(client.trial(), (0, 1));
    let ran = client.vanish(&world);
    assert!(ran.err.contains("the process that ran its trials is gone"), "{}", ran.whole());
    let (mut all, _) = world.served("results/p").work();
    all.sort_unstable();
    assert_eq!(all, [(0, 2), (1, 1), (2, 1)]);
    assert_eq!(counts(&world), r#"{"done":3}"#);
}

#[test]
fn a_trial_that_ends_its_process_each_time_is_given_up() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(1)));
    for attempt in 1..=3 {
        let mut client = world.served("plan.toml");
        assert_eq!(client.trial(), (0, attempt));
        client.vanish(&world);
    }
    assert_eq!(world.served("plan.toml").work().0, []);
    assert_eq!(counts(&world), r#"{"failed":1}"#);
}

#[test]
fn an_agent_that_is_told_to_go_waits_for_the_answer() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGUSR2, 140)] {
        let world = World::new();
        world.write("plan.toml", &plan(&axis(4)));
        let mut client = world.served("plan.toml");
        let first = client.trial();
        client.agent.signal(signal);
        assert_eq!(client.hear(), json!({ "stop": true }));
        // Other agents have the trials that it held and had not begun, while this one still works.
        let mut other = world.served("plan.toml");
        let mut all: Vec<(u64, u64)> = (0..3)
            .map(|_| {
                let trial = other.trial();
                other.answer(trial, json!({ "value": 1 }));
                trial
            })
            .collect();
        client.answer(first, json!({ "value": 2 }));
        assert_eq!(client.hear()["ended"], first.0);
        assert_eq!(client.hear()["signal"], signal as i32);
        assert_eq!(client.end(&world).code, code);
        let (rest, _) = other.work();
        all.extend(rest);
        all.sort_unstable();
        assert_eq!(all, [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(counts(&world), r#"{"done":4}"#);
    }
}

#[test]
fn a_stop_that_is_not_answered_gives_the_trial_back() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(2)));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    client.agent.signal(Signal::SIGTERM);
    assert_eq!(client.hear(), json!({ "stop": true }));
    // A second signal is not patient.
    client.agent.signal(Signal::SIGTERM);
    assert_eq!(client.hear()["state"], "interrupted");
    assert_eq!(client.hear(), json!({ "stop": true, "now": true }));
    assert_eq!(client.hear()["reason"], "it got SIGTERM");
    // The reader of this message may be gone.
    let late = json!({ "trial": first.0, "attempt": first.1, "value": 2 });
    let _ = writeln!(client.to.as_ref().unwrap(), "{late}");
    assert_eq!(client.end(&world).code, 143);
    let (all, _) = world.served("plan.toml").work();
    // Nothing has failed: it is the first attempt still.
    assert_eq!(all, [(0, 1), (1, 1)]);
    assert_eq!(world.column("result"), ["0", "1"]);
}

#[test]
fn a_process_that_is_interrupted_or_stops_says_so() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(3)));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    client.answer(first, json!({ "interrupted": true }));
    let said = client.hear();
    assert_eq!((&said["state"], &said["last"]), (&json!("interrupted"), &json!(false)));
    assert_eq!(client.hear()["reason"], "its function was interrupted");
    client.end(&world);
    let mut client = world.served("plan.toml");
    let second = client.trial();
    client.say(&json!({ "stop": true }));
    client.answer(second, json!({ "value": 1 }));
    assert_eq!(client.hear()["state"], "done");
    assert_eq!(client.hear()["reason"], "the process that runs its trials wants to stop");
    client.end(&world);
    let (all, _) = world.served("plan.toml").work();
    assert_eq!(all.len(), 2);
    assert_eq!(counts(&world), r#"{"done":3}"#);
}

#[test]
fn an_agent_that_others_took_for_dead_drops_the_answer_and_goes_on() {
    let world = World::new();
    world.write("plan.toml", &plan(&format!("{SHORT}{}", axis(3))));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    client.agent.signal(Signal::SIGSTOP);
    let mut other = world.served("plan.toml");
    let (mut seen, mut again) = (Vec::new(), (0, 0));
    while again != (first.0, 2) {
        again = other.trial();
        seen.push(again);
        if again != (first.0, 2) {
            other.answer(again, json!({ "value": "other" }));
        }
    }
    client.agent.signal(Signal::SIGCONT);
    wait_until("it has joined anew", || {
        let agents = world.files("results/p/agents");
        agents.iter().filter(|name| name.ends_with(".jsonl")).count() == 3
    });
    client.answer(first, json!({ "value": "void" }));
    other.answer(again, json!({ "value": "other" }));
    let (rest, _) = other.work();
    assert_eq!(seen.len() + rest.len() + client.work().0.len(), 3);
    assert!(client.end(&world).err.contains("others have taken this agent for dead"));
    other.end(&world);
    assert_eq!(counts(&world), r#"{"done":3}"#);
    assert_eq!(world.table(&[])[first.0 as usize]["result"], "other");
}

#[test]
fn an_agent_that_waits_to_begin_anew_hears_signals() {
    let world = World::new();
    world.write("plan.toml", &plan(&format!("[schedule]\nmax_running = 1\n{SHORT}{}", axis(2))));
    let mut client = world.served("plan.toml");
    client.trial();
    client.agent.signal(Signal::SIGSTOP);
    let mut other = world.served("results/p");
    other.trial();
    client.agent.signal(Signal::SIGCONT);
    let mut said = BufReader::new(client.agent.child.stderr.take().unwrap()).lines();
    let waits = |line: String| line.contains("`max_running` leaves no slot");
    assert!(said.by_ref().map(Result::unwrap).any(waits));
    client.agent.signal(Signal::SIGTERM);
    assert_eq!(client.agent.child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_lease_is_kept_while_the_process_works() {
    let world = World::new();
    world.write("plan.toml", &plan(&format!("{SHORT}{}", axis(2))));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    let mut other = world.served("plan.toml");
    let second = other.trial();
    other.answer(second, json!({ "value": 1 }));
    // It has nothing left to do but to wait for a silent one.
    let path = world.path("results/p/agents");
    let stamp = || {
        let files = world.files("results/p/agents");
        let time = |name: &String| path.join(name).metadata().unwrap().modified().unwrap();
        files.iter().map(time).min().unwrap()
    };
    for _ in 0..12 {
        let before = stamp();
        wait_until("all agents have given a sign of life", || stamp() > before);
    }
    client.answer(first, json!({ "value": 1 }));
    client.work();
    other.work();
    assert_eq!(world.column("attempts"), ["1", "1"]);
    assert_eq!(counts(&world), r#"{"done":2}"#);
}

#[test]
fn a_walltime_is_kept_and_the_process_goes_on_afterwards() {
    for answer in [json!({ "error": "it was asked to" }), json!({ "interrupted": true })] {
        let world = World::new();
        world.write("plan.toml", &plan(&format!("[resources]\nwalltime = \"1s\"\n{}", axis(2))));
        let mut client = world.served("plan.toml");
        let first = client.trial();
        assert_eq!(client.hear(), json!({ "stop": true }));
        client.answer(first, answer);
        assert_eq!(client.hear()["state"], "timeout");
        let (rest, end) = client.work();
        assert_eq!((rest, &end["reason"]), (vec![(1, 1)], &json!("")));
        client.end(&world);
        assert_eq!(counts(&world), r#"{"done":1,"timeout":1}"#);
    }
}

#[test]
fn an_idle_process_is_handed_a_copy_of_what_takes_too_long() {
    let world = World::new();
    world.write("plan.toml", &plan(&format!("[pull]\nrepeatable = true\n{}", axis(6))));
    let mut slow = world.served("plan.toml");
    let first = slow.trial();
    let mut other = world.served("plan.toml");
    let (all, end) = other.work();
    assert_eq!(all.last(), Some(&(first.0, 2)), "{all:?}");
    assert_eq!((all.len(), &end["failed"]), (6, &json!(false)));
    // The agent no longer waits for the slow one: it sends `stop` with `now`, and leaves without an answer.
    let mut said = Vec::new();
    loop {
        said.push(slow.hear());
        if !said[said.len() - 1]["end"].is_null() {
            break;
        }
    }
    let lost = json!({ "ended": first.0, "attempt": 1, "state": "interrupted", "last": false });
    for line in [json!({ "stop": true }), json!({ "stop": true, "now": true }), lost] {
        assert!(said.contains(&line), "{said:?}");
    }
    slow.end(&world);
    assert_eq!(counts(&world), r#"{"done":6}"#);
    assert_eq!(world.column("result")[first.0 as usize], first.0.to_string());
}

#[test]
fn what_hangs_beyond_its_walltime_keeps_nothing_from_others() {
    let world = World::new();
    world.write("plan.toml", &plan(&format!("[resources]\nwalltime = \"1s\"\n{}", axis(40))));
    let mut client = world.served("plan.toml");
    // So quick that it takes many at once.
    for _ in 0..10 {
        let trial = client.trial();
        client.answer(trial, json!({ "value": 1 }));
    }
    let stuck = client.trial();
    assert!(client.hear()["ended"].is_u64() || stuck.0 == 10);
    wait_until("its time is over", || counts(&world).contains("timeout"));
    let (rest, _) = world.served("plan.toml").work();
    assert_eq!(rest.len(), 29, "{rest:?}");
    assert_eq!(counts(&world), r#"{"done":39,"timeout":1}"#);
    // Its agent does not wait for it at the end of the sweep.
    client.end(&world);
}

#[test]
fn only_who_has_the_function_may_have_the_trials() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(2)));
    let mut said = String::new();
    for args in [
        &["submit", "plan.toml", "--local"][..],
        &["submit", "plan.toml", "--slurm"],
        &["submit", "plan.toml", "--smoke=0"],
        &["plan", "plan.toml"],
        &["worker", "--pull", "plan.toml"],
    ] {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?} {}", ran.whole());
        said = ran.err;
        assert_eq!(
            said,
            "error: the plan calls the function `f`, which only its own program can\n\
             hint: start the program that has the function, or name it: `program` under `[run]`\n",
            "{args:?}"
        );
    }
    assert!(!said.is_empty() && !world.exists("results"));
    world.served("plan.toml").vanish(&world);
    for args in [
        &["worker", "--pull", "results/p"][..],
        &["worker", "--sweep", "results/p", "--trial", "0"],
    ] {
        let ran = world.run(args);
        assert!(
            ran.err.contains("the function `f`, which only its own program can"),
            "{}",
            ran.whole()
        );
    }
    assert_eq!(counts(&world), r#"{"queued":2}"#);
    world.write("other.toml", "version = 1\nsweep.name = \"o\"\nrun.command = [\"true\"]\n");
    let ran = world.run(&["worker", "--pull", "other.toml", "--serve"]);
    assert_eq!(ran.code, 2);
    let fault: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        fault,
        json!({
            "fault": "the trials of `o` run a command, and no function\nhint: leave out `--serve`, or write \
                      `function` instead of `command` under `[run]`",
            "exit_code": 2,
        })
    );
    assert!(!world.exists("results/o"));
}

#[test]
fn trials_of_another_function_are_left_to_others() {
    let world = World::new();
    world.write("plan.toml", &plan(&axis(3)));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    // A user changes the program and starts it beside the old one.
    world.write("plan.toml", &plan(&axis(5)).replace("\"f\"", "\"g\""));
    let mut other = world.served("plan.toml");
    let begun = other.trial();
    client.answer(first, json!({ "value": "f" }));
    let (all, end) = client.work();
    let reason = "another plan was laid down for the sweep, whose trials call `g`";
    assert_eq!((all, &end["reason"]), (vec![], &json!(reason)));
    other.answer(begun, json!({ "value": "g" }));
    assert_eq!(other.work().1["reason"], "");
    let results = world.column("result");
    assert_eq!(results.iter().filter(|r| *r == "\"f\"").count(), 1);
}

#[test]
fn a_plan_that_changed_brings_what_is_new_and_drops_what_is_gone() {
    let world = World::new();
    let plan = |values: &str| {
        let more = format!("[grid]\ni = [{values}]\n");
        format!("version = 1\n[sweep]\nname = \"p\"\n[run]\nfunction = \"f\"\n{more}")
    };
    let numbers = |client: &mut Client| {
        let (mut all, _) = client.work();
        all.sort_unstable();
        all.into_iter().map(|(trial, _)| trial).collect::<Vec<_>>()
    };
    world.write("plan.toml", &plan("10, 11, 12, 13"));
    let mut client = world.served("plan.toml");
    let first = client.trial();
    client.answer(first, json!({ "interrupted": true }));
    client.end(&world);
    // Trials 1 and 2 are gone, 4 is new.
    world.write("plan.toml", &plan("10, 13, 14"));
    assert_eq!(numbers(&mut world.served("plan.toml")), [0, 3, 4]);
    assert_eq!(numbers(&mut world.served("plan.toml")), [0; 0]);
    assert_eq!(counts(&world), r#"{"done":3,"dropped":2}"#);
    // One of them is back.
    world.write("plan.toml", &plan("12, 10, 13, 14"));
    assert_eq!(numbers(&mut world.served("plan.toml")), [2]);
    assert_eq!(world.column("attempts"), ["2", "0", "1", "1", "1"]);
}
