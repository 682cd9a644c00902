//! Programs and their workers that are signalled at the same moment, as schedulers do: in any order, a moment
//! apart, and whatever the program makes of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::faults::Dice;
use crate::support::world::{Started, World, wait_until};

/// The behaviour of a program that is asked to stop, and the state of its trial then.
const MANNERS: [(&str, &str); 8] = [
    ("os._exit(0)", "interrupted"),
    ("os._exit(1)", "interrupted"),
    ("os._exit(143)", "interrupted"),
    ("sys.exit(0)", "interrupted"),
    ("os.abort()", "interrupted"),
    (
        "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)",
        "interrupted",
    ),
    ("declare('null'); os._exit(0)", "done"),
    ("declare('{\"loss\": '); os._exit(0)", "interrupted"),
];

/// A plan of one trial that may be tried three times, and says so; hooks say that they were called.
fn plan(manner: &str) -> String {
    // Python removes its handlers before it exits, so only its running time decides how long the worker waits for a
    // signal that explains its end.
    let ready = if manner == "sys.exit(0)" { "time.sleep(2)" } else { "" };
    let code = format!(
        r#"
import os, signal, sys, time
def declare(text):
    with open(os.environ["HPCSWEEP_RESULT"], "w") as file:
        file.write(text)
def stop(*_):
    {manner}
{ready}
signal.signal(signal.SIGTERM, stop)
name = "began." + os.environ["HPCSWEEP_ATTEMPT"]
open(name + ".new", "w").write(str(os.getpid()))
os.rename(name + ".new", name)
while True:
    signal.pause()
"#
    );
    format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\nattempts = 3\ncommand = [\"python3\", \"-S\", \"-c\", '''{code}''']\n\
         [hooks]\nfinish = [\"touch\", \"finished\"]\nerror = [\"touch\", \"erred\"]\n"
    )
}

/// Signals all of them, in an order and with pauses that the dice choose.
fn signal_all(mut whom: Vec<Pid>, dice: &mut Dice) {
    while !whom.is_empty() {
        let one = whom.swap_remove(dice.below(whom.len() as u64) as usize);
        // One that has reacted to the first signal may be gone.
        let _ = kill(one, Signal::SIGTERM);
        let pause = [0, 30, 300, 3_000][dice.below(4) as usize];
        let until = Instant::now() + Duration::from_micros(pause);
        while Instant::now() < until {
            if pause > 1000 { sleep(Duration::from_micros(200)) } else { std::hint::spin_loop() }
        }
    }
}

/// Runs `MANNERS`, `times` times, under the command of `start`. The program and all processes above it are
/// signalled at once, with the uppermost or without.
fn under_fire(seed: u64, times: usize, with_uppermost: bool, start: impl Fn(&World) -> Started) {
    let mut dice = Dice(seed);
    for (manner, state) in MANNERS.into_iter().cycle().take(times) {
        let world = World::new();
        world.write("plan.toml", &plan(manner));
        let started = start(&world);
        wait_until("the program waits", || world.exists("began.1"));
        let program: i32 = world.read("began.1").parse().unwrap();
        let mut whom = vec![program];
        while whom.last() != Some(&started.pid().as_raw()) {
            whom.push(parent_of(whom[whom.len() - 1]));
        }
        whom.truncate(if with_uppermost { whom.len() } else { whom.len() - 1 });
        sleep(Duration::from_micros(dice.below(60_000)));
        signal_all(whom.into_iter().map(Pid::from_raw).collect(), &mut dice);
        let _ = started.end(&world);

        let status = world.status();
        // What an agent gives back waits for the next one.
        let now = status["trials"][0]["state"].as_str().unwrap().replace("queued", "interrupted");
        assert_eq!(now, state, "{manner}: {status}");
        assert!(!world.exists("began.2"), "{manner}: another attempt was begun");
        assert!(!world.exists("erred"), "{manner}: the error hook was called");
        // A signal to the worker ends a hook, too.
        assert!(state == "done" || !world.exists("finished"), "{manner}");
    }
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `submit --local`, whose worker stands between it and the program.
fn local(world: &World) -> Started {
    world.start(&["submit", "plan.toml", "--local", "-q"])
}

#[test]
fn a_worker_and_its_program_are_told_to_stop_at_once() {
    under_fire(0x5eed_0001, 64, false, local);
}

#[test]
fn an_executor_its_worker_and_the_program_are_told_to_stop_at_once() {
    under_fire(0x5eed_0002, 32, true, local);
}

#[test]
fn an_agent_and_its_program_are_told_to_stop_at_once() {
    under_fire(0x5eed_0003, 64, true, |world| world.start(&["worker", "--pull", "plan.toml"]));
}

/// Python code of a program that writes its process id to `pid.RANK` and waits; `manner` is what it does at SIGTERM and SIGINT.
fn waiting(manner: &str, rest: &str) -> String {
    let code = format!(
        r#"
import os, signal
def stop(*_):
    {manner}
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
name = "pid." + os.environ.get("RANK", "0")
open(name + ".new", "w").write(str(os.getpid()))
os.rename(name + ".new", name)
while True:
    signal.pause()
"#
    );
    format!(
        "version = 1\n[sweep]\nname = \"s\"\n[run]\nattempts = 2\ncommand = [\"python3\", \"-S\", \"-c\", '''{code}''']\n\
         [hooks]\nerror = [\"touch\", \"erred\"]\n{rest}"
    )
}

/// A program that dies by the signal that it gets.
const BY_SIGNAL: &str = "signal.signal(_[0], signal.SIG_DFL); os.kill(os.getpid(), _[0])";

/// The program of a rank, once it waits.
fn program(world: &World, rank: u32) -> i32 {
    let name = format!("pid.{rank}");
    wait_until("the program waits", || world.exists(&name));
    world.read(&name).parse().unwrap()
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Waits for the state of a process: `T` stopped, `Z` ended and not reaped; `None` reaped.
fn wait_state(pid: i32, state: Option<&str>) {
    wait_until("the process is in that state", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let now =
            stat.as_ref().map(|s| s.rsplit_once(')').unwrap().1[1..].split(' ').next().unwrap());
        now == state
    });
}

#[test]
fn a_program_that_has_ended_before_its_worker_reads_the_signal_is_interrupted() {
    for manner in ["os._exit(0)", "os._exit(1)", "os._exit(143)", BY_SIGNAL] {
        for (signal, pull) in [
            (Signal::SIGTERM, false),
            (Signal::SIGINT, false),
            (Signal::SIGTERM, true),
            (Signal::SIGINT, true),
        ] {
            let world = World::new();
            world.write("plan.toml", &waiting(manner, ""));
            let started = match pull {
                true => world.start(&["worker", "--pull", "plan.toml"]),
                false => local(&world),
            };
            let program = program(&world, 0);
            let worker = parent_of(program);
            send(worker, Signal::SIGSTOP);
            wait_state(worker, Some("T"));
            send(program, signal);
            wait_state(program, Some("Z"));
            send(worker, signal);
            send(worker, Signal::SIGCONT);
            let _ = started.end(&world);
            let status = world.status();
            let state = status["trials"][0]["state"].as_str().unwrap();
            let state =
                if pull { state.replace("queued", "interrupted") } else { state.to_owned() };
            assert_eq!(state, "interrupted", "{manner} {signal} {pull}: {status}");
            assert!(!world.exists("erred"), "{manner} {signal} {pull}");
        }
    }
}

#[test]
fn a_rank_whose_program_ends_before_rank_zero_reads_the_signal_is_interrupted() {
    for manner in ["os._exit(143)", "os._exit(1)", "os._exit(3)", BY_SIGNAL] {
        let world = World::new();
        world.write("plan.toml", &waiting(manner, "[resources]\nranks = 2\n"));
        let started = local(&world);
        let first = parent_of(program(&world, 0));
        let other = program(&world, 1);
        send(first, Signal::SIGSTOP);
        wait_state(first, Some("T"));
        // The signal reaches the other rank's program, and not its worker.
        send(other, Signal::SIGTERM);
        wait_state(other, None);
        send(first, Signal::SIGTERM);
        send(first, Signal::SIGCONT);
        let _ = started.end(&world);
        let status = world.status();
        assert_eq!(status["trials"][0]["state"], "interrupted", "{manner}: {status}");
        assert!(!world.exists("erred"), "{manner}");
    }
}

#[test]
fn a_program_that_alone_is_killed_by_sigterm_has_failed() {
    for ranks in [1, 2] {
        let world = World::new();
        let plan = waiting(BY_SIGNAL, &format!("[resources]\nranks = {ranks}\n"));
        world.write("plan.toml", &plan.replace("attempts = 2", "attempts = 1"));
        let started = local(&world);
        for rank in 0..ranks {
            program(&world, rank);
        }
        send(program(&world, ranks - 1), Signal::SIGTERM);
        assert_eq!(started.end(&world).code, 1);
        let trial = world.status()["trials"][0].clone();
        assert_eq!(
            (&trial["state"], &trial["cause"]),
            (&"failed".into(), &"signal".into()),
            "{trial}"
        );
        assert!(world.exists("erred"));
    }
}
