//! PBS: pilots that call functions of Python, and what becomes of them when their job is begun again.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::pbs::Pbs;
use crate::support::pbs_once::{meet, pbs};
use crate::support::world::{PROGRAM, ROOT, wait_until};

/// Submits itself, unless a job has found its function. A call ends when the test allows it.
const SCRIPT: &str = "import os, sys, time
import hpcsweep
EVENTS = os.environ['EVENTS']
def fit(x):
    with open(EVENTS, 'a') as file:
        file.write('%d\\n' % x)
    hpcsweep.report(step=1, loss=x)
    while not os.path.exists('%s.go.%d' % (EVENTS, x)):
        time.sleep(0.01)
    return 10 * x
if __name__ == '__main__':
    settings = '''[pull]
lease = 1
[hooks]
finish = [\"sh\", \"-c\", \"echo $HPCSWEEP_TRIAL >>$EVENTS.hooks\"]'''
    sweep = hpcsweep.Sweep('results/s', settings=settings).grid(x=[0, 1, 2, 3])
    sweep.submit('pbs', fit, processes=int(sys.argv[1]), cpus=1)
";

/// A PBS whose user may begin a job again, with the script submitted.
fn submitted(processes: &str) -> Pbs {
    submitted_to(pbs(), processes)
}

fn submitted_to(mut pbs: Pbs, processes: &str) -> Pbs {
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    pbs.world.set("HPCSWEEP_BIN", PROGRAM);
    pbs.world.set("PYTHONPATH", &format!("{ROOT}/site/python"));
    pbs.world.set("PYTHONDONTWRITEBYTECODE", "1");
    pbs.world.write("fit.py", SCRIPT);
    pbs.world.call("python3", &["fit.py", processes]).ok();
    pbs
}

/// Waits until so many calls have begun.
#[track_caller]
fn calls(pbs: &Pbs, n: usize) {
    wait_until(&format!("{n} calls have begun"), || pbs.world.read("events").lines().count() == n);
}

/// Lets all calls end. Each result counts once, with one curve. Its hook was called once, and the function was called
/// as often as stated.
#[track_caller]
fn all_count_once(pbs: &Pbs) {
    (0..4).for_each(|x| pbs.world.write(&format!("events.go.{x}"), ""));
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4], "{}", pbs.world.run(&["status"]).whole());
    assert_eq!(pbs.world.column("result"), ["0", "10", "20", "30"]);
    let events = pbs.world.read("events");
    let called = |x: u32| events.lines().filter(|line| *line == x.to_string()).count().to_string();
    assert_eq!(pbs.world.column("attempts"), [0, 1, 2, 3].map(called));
    let steps = pbs.world.run(&["collect", "--steps", "--format", "csv"]);
    assert_eq!(steps.ok().lines().count(), 5, "{}", steps.out);
    let told = pbs.world.read("events.hooks");
    let mut told: Vec<&str> = told.lines().collect();
    told.sort_unstable();
    assert_eq!(told, ["0", "1", "2", "3"]);
    assert_eq!(pbs.names().len(), 1);
}

#[test]
fn a_pilot_of_functions_that_is_sent_back_calls_again_what_had_not_ended() {
    for processes in ["1", "2"] {
        let at_once = processes.parse().unwrap();
        let pbs = submitted(processes);
        calls(&pbs, at_once);
        // One result exists already, and its hook was called. No other pilot may make it again.
        pbs.world.write("events.go.0", "");
        calls(&pbs, at_once + 1);
        wait_until("the first was told of", || {
            pbs.world.exists("events.hooks") && pbs.world.read("events.hooks") == "0\n"
        });
        pbs.world.call("qrerun", &["0[0]"]).ok();
        calls(&pbs, 2 * at_once + 1);
        all_count_once(&pbs);
        assert_eq!(pbs.world.column("attempts")[0], "1");
    }
}

/// Nothing of the pilot can say that it leaves, as on a node that fails.
#[test]
fn a_pilot_of_functions_whose_node_failed_calls_again_what_had_not_ended() {
    let pbs = submitted("2");
    calls(&pbs, 2);
    let agents = pbs.world.files("results/s/agents");
    let pids = agents.iter().filter_map(|name| name.strip_suffix(".jsonl")?.rsplit('-').nth(1));
    let pids: Vec<&str> = pids.collect();
    assert_eq!(pids.len(), 2, "{agents:?}");
    for pid in pids {
        kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGSTOP).unwrap();
    }
    pbs.world.call("qrerun", &["0[0]"]).ok();
    calls(&pbs, 4);
    all_count_once(&pbs);
}

#[test]
fn pilots_of_functions_whose_submission_had_no_answer_are_there_once() {
    for fault in ["lost", "complains", "hang"] {
        let mut pbs = pbs();
        meet(&mut pbs, fault);
        let pbs = submitted_to(pbs, "2");
        calls(&pbs, 2);
        all_count_once(&pbs);
    }
}
