//! Killed at random moments, and out of space: nothing is lost, nothing is done twice, everything can be
//! read at any time. Long because the victims differ and the ways to look at what is left do not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::faults::{Dice, children, in_own_mounts};
use crate::support::plans::shell;
use crate::support::slurm::remembering_slurm;
use crate::support::world::{PROGRAM, World};

/// Trials of one sweep, in chains of two.
const TRIALS: usize = 24;

/// Each trial says in one write to a shared file that it begins and that it is about to end.
const CODE: &str = "echo begin $HPCSWEEP_TRIAL $HPCSWEEP_ATTEMPT >>$EVENTS
    echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS; echo hello
    echo end $HPCSWEEP_TRIAL $HPCSWEEP_ATTEMPT >>$EVENTS";

/// The process that is killed.
#[derive(Clone, Copy)]
enum Victim {
    Executor,
    Worker,
    Program,
    Any,
}

/// One sweep under fire: submits until it is complete, killing on the way. Returns the kills that hit.
fn under_fire(victim: Victim, seed: u64, wanted: u32) -> u32 {
    let mut dice = Dice(seed);
    let mut hits = 0;
    let mut sweeps = 0;
    let mut world = World::new();
    world.set("EVENTS", &world.text_path("events"));
    while hits < wanted {
        sweeps += 1;
        assert!(sweeps < 200, "only {hits} kills hit");
        hits += one_sweep(&world, victim, &mut dice, sweeps, wanted - hits);
    }
    hits
}

fn one_sweep(world: &World, victim: Victim, dice: &mut Dice, number: u32, wanted: u32) -> u32 {
    let values: Vec<String> = (0..TRIALS / 2).map(|n| n.to_string()).collect();
    let rest = format!(
        "[defaults]\ntask_id = \"{{{{ c }}}}\"\n[grid]\nc = [{}]\nlink = [0, 1]\n",
        values.join(", ")
    );
    let plan = shell(CODE, &rest).replace("\"s\"", &format!("\"s{number}\""));
    let sweep = format!("results/s{number}");
    world.write("plan.toml", &plan);
    world.write("events", "");
    let mut hits = 0;
    // The trials that were recorded as done after each round, and how often they had begun by then.
    let mut done: BTreeMap<u64, usize> = BTreeMap::new();
    for _round in 0..400 {
        let mut started =
            world.start(&["submit", "plan.toml", "--local", "-j", "3", "--retry", "-q"]);
        if hits < wanted {
            hits += shoot(&mut started.child, victim, dice);
        }
        let finished = started.child.wait().unwrap().success();
        // Nothing of the round is left before its result is looked at.
        let table = settled(world, &sweep);
        check_round(world, &sweep, &table, &mut done);
        if finished && !table.is_empty() && table.iter().all(|row| row["state"] == "done") {
            check_end(world, &sweep, &table);
            return hits;
        }
    }
    panic!("the sweep never came to its end: {}", world.read("events"));
}

/// Kills at random moments until the executor has ended; returns how often something was hit.
fn shoot(executor: &mut std::process::Child, victim: Victim, dice: &mut Dice) -> u32 {
    let pid = executor.id().cast_signed();
    let mut hits = 0;
    loop {
        let victim = match victim {
            Victim::Any => {
                [Victim::Executor, Victim::Worker, Victim::Program][dice.below(3) as usize]
            }
            chosen => chosen,
        };
        let longest = if matches!(victim, Victim::Executor) { 50_000 } else { 8_000 };
        let (since, moment) = (Instant::now(), Duration::from_micros(dice.below(longest)));
        // A nap alone is too coarse to hit every moment.
        std::thread::sleep(moment / 2);
        while since.elapsed() < moment {
            std::thread::yield_now();
        }
        let target = match victim {
            Victim::Executor => Some(pid),
            Victim::Worker => pick(&children(pid), dice),
            _ => {
                let programs: Vec<i32> = children(pid).into_iter().flat_map(children).collect();
                pick(&programs, dice)
            }
        };
        if !matches!(executor.try_wait(), Ok(None)) {
            return hits;
        }
        hits += u32::from(target.is_some_and(|t| kill(Pid::from_raw(t), Signal::SIGKILL).is_ok()));
        if target == Some(pid) {
            return hits;
        }
    }
}

fn pick(from: &[i32], dice: &mut Dice) -> Option<i32> {
    (!from.is_empty()).then(|| from[dice.below(from.len() as u64) as usize])
}

/// The table once no process of the sweep is left: workers outlive a killed executor for a moment.
fn settled(world: &World, sweep: &str) -> Vec<BTreeMap<String, Value>> {
    let folder = world.text_path(sweep);
    crate::support::world::wait_until("no worker of the sweep is left", || {
        !fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let cmdline = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&cmdline);
            text.contains("\0worker\0") && text.split('\0').any(|word| word == folder)
        })
    });
    if !world.exists(&format!("{sweep}/sweep.json")) {
        return Vec::new();
    }
    let status = world.run(&["status", "--json", "--offline", sweep]);
    assert!(status.code <= 1, "{}", status.whole());
    let status: Value = serde_json::from_str(&status.out).unwrap();
    let table = world.table(&[sweep]);
    let counted: u64 =
        status["counts"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counted, table.len() as u64);
    assert!(table.is_empty() || table.len() == TRIALS, "{} trials of {TRIALS}", table.len());
    table
}

/// Done trials stay done and do not begin again.
fn check_round(
    world: &World,
    sweep: &str,
    table: &[BTreeMap<String, Value>],
    done: &mut BTreeMap<u64, usize>,
) {
    let events = world.read("events");
    let begun = |trial: u64| {
        let start = format!("begin {trial} ");
        events.lines().filter(|line| line.starts_with(&start)).count()
    };
    for row in table {
        let trial = row["trial"].as_u64().unwrap();
        let is_done = row["state"] == "done";
        if let Some(times) = done.get(&trial) {
            assert!(is_done, "trial {trial} of {sweep} was done and is {}", row["state"]);
            assert_eq!(begun(trial), *times, "trial {trial} of {sweep} was done and began again");
        }
        if is_done {
            assert_eq!(row["loss"], 1, "{row:?}");
            done.insert(trial, begun(trial));
        }
    }
}

/// Every trial has exactly one attempt that is done, it really ran to its end, and no attempt has two
/// starts or ends.
fn check_end(world: &World, sweep: &str, table: &[BTreeMap<String, Value>]) {
    let numbers: Vec<u64> = table.iter().map(|row| row["trial"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..TRIALS as u64).collect::<Vec<_>>());
    let events = world.read("events");
    let ended: BTreeSet<&str> = events.lines().filter_map(|l| l.strip_prefix("end ")).collect();
    let mut starts: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut good: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for file in world.files(&format!("{sweep}/records")) {
        let text = world.read(&format!("{sweep}/records/{file}"));
        for line in text.lines() {
            // A torn line is that of a killed worker.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let attempt = (event["trial"].as_u64().unwrap(), event["attempt"].as_u64().unwrap());
            match event["event"].as_str().unwrap() {
                "start" => assert!(starts.insert(attempt), "two starts of {attempt:?} in {sweep}"),
                "end" if event["state"] == "done" => {
                    good.entry(attempt.0).or_default().push(attempt.1)
                }
                _ => {}
            }
        }
    }
    for trial in numbers {
        let attempts = &good[&trial];
        assert_eq!(attempts.len(), 1, "trial {trial} of {sweep} is done in attempts {attempts:?}");
        let said = format!("{trial} {}", attempts[0]);
        assert!(ended.contains(said.as_str()), "trial {trial} never ran to its end: {events}");
    }
    // Within a chain nothing overtakes: a link begins only after its predecessor was done once.
    for trial in (1..TRIALS as u64).step_by(2) {
        let before = format!("end {} ", trial - 1);
        let first_end = events.lines().position(|l| l.starts_with(&before));
        let begin = format!("begin {trial} ");
        let first_begin = events.lines().position(|l| l.starts_with(&begin));
        assert!(first_end < first_begin, "trial {trial} overtook its predecessor: {events}");
    }
}

#[test]
fn a_killed_executor_loses_and_doubles_nothing() {
    assert!(under_fire(Victim::Executor, 0x9E37_79B9_7F4A_7C15, 100) >= 100);
}

#[test]
fn a_killed_worker_loses_and_doubles_nothing() {
    assert!(under_fire(Victim::Worker, 0xD1B5_4A32_D192_ED03, 100) >= 100);
}

#[test]
fn a_killed_program_is_a_failure_that_can_be_run_again() {
    assert!(under_fire(Victim::Program, 0x8CB9_2BA7_2F3D_8DD7, 80) >= 80);
}

#[test]
fn whoever_is_killed_nothing_is_lost_or_doubled() {
    assert!(under_fire(Victim::Any, 0xA076_1D64_78BD_642F, 80) >= 80);
}

#[test]
fn submits_at_the_same_time_run_every_trial_once() {
    let world = World::new();
    let code = "echo $HPCSWEEP_TRIAL >>ran";
    world.write("plan.toml", &shell(code, "[grid]\na = [0, 1, 2, 3, 4, 5]\n"));
    let all: Vec<_> =
        (0..6).map(|_| world.start(&["submit", "plan.toml", "--local", "-q"])).collect();
    let codes: Vec<i32> = all.into_iter().map(|started| started.end(&world).code).collect();
    assert!(codes.contains(&0), "{codes:?}");
    assert!(codes.iter().all(|code| [0, 4].contains(code)), "{codes:?}");
    let ran = world.read("ran");
    let mut ran: Vec<&str> = ran.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(world.column("attempts"), ["1"; 6]);
}

#[test]
fn nothing_outlives_a_killed_executor() {
    let world = World::new();
    world.write("plan.toml", &shell("echo $$ >pid; exec sleep 600", ""));
    let mut started = world.start(&["submit", "plan.toml", "--local"]);
    let running = |pid: &str| fs::metadata(format!("/proc/{pid}")).is_ok();
    crate::support::world::wait_until("the program runs", || {
        world.exists("pid") && world.read("pid").ends_with('\n')
    });
    let program = world.read("pid").trim().to_owned();
    assert!(running(&program));
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    crate::support::world::wait_until("the program is gone", || !running(&program));
    // Its worker had the time to write down what happened.
    crate::support::world::wait_until("the trial is recorded", || {
        world.read("results/s/records/000/0.1.jsonl").contains("\"event\":\"end\"")
    });
    assert_eq!(world.status()["counts"], json!({"interrupted": 1}));
}

#[test]
fn a_submit_right_after_a_killed_executor_never_runs_a_trial_beside_itself() {
    let world = World::new();
    // The first attempt takes its time to end when it is asked to; the second ends at once.
    let code = "mkdir running || echo beside >>beside
        [ $HPCSWEEP_ATTEMPT = 1 ] || { rmdir running; exit 0; }
        trap 'sleep 0.5; rmdir running; exit 3' TERM; : >begun; sleep 600 & wait";
    world.write("plan.toml", &shell(code, ""));
    let mut started = world.start(&["submit", "plan.toml", "--local"]);
    crate::support::world::wait_until("the program runs", || world.exists("begun"));
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    assert!(!world.exists("beside"), "two attempts ran at the same time");
    assert_eq!(world.column("attempts"), ["2"]);
}

#[test]
fn nothing_outlives_a_killed_worker() {
    let world = World::new();
    world.write("plan.toml", &shell("echo $$ >pid; exec sleep 600", ""));
    let started = world.start(&["submit", "plan.toml", "--local"]);
    crate::support::world::wait_until("the program runs", || {
        world.exists("pid") && world.read("pid").ends_with('\n')
    });
    let program = world.read("pid").trim().to_owned();
    let workers = children(started.child.id().cast_signed());
    assert_eq!(workers.len(), 1);
    kill(Pid::from_raw(workers[0]), Signal::SIGKILL).unwrap();
    let ran = started.end(&world);
    assert_eq!(ran.code, 1, "{}", ran.whole());
    crate::support::world::wait_until("the program is gone", || {
        fs::metadata(format!("/proc/{program}")).is_err()
    });
    assert_eq!(world.status()["counts"], json!({"interrupted": 1}));
    assert_eq!(world.status()["trials"][0]["reason"], "its worker was killed");
}

#[test]
fn a_file_that_may_not_grow_is_said_and_the_next_submit_completes() {
    let world = World::new();
    // Every row holds the long parameter: the table is larger than the 16 KiB a file may have here.
    let numbers: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let long = "x".repeat(1000);
    let rest = format!("[defaults]\nlong = \"{long}\"\n[grid]\na = [{}]\n", numbers.join(", "));
    world.write("plan.toml", &shell("true", &rest));
    let limited = format!("ulimit -f 16; exec '{PROGRAM}' submit plan.toml --local -q");
    let ran = world.call("bash", &["-c", &limited]);
    assert_eq!(
        ran.whole(),
        "error: cannot write `$WORLD/results/s/trials/000000000000.jsonl`: file too large\n\
         hint: raise the limit of file sizes (`ulimit -f`) and run the same command again\nexit code 4\n"
    );
    // Half a table is no table.
    assert_eq!(world.table(&[]).len(), 0);
    assert_eq!(world.files("results/s/trials"), Vec::<String>::new());
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    assert_eq!(world.status()["counts"], json!({"done": 20}));
}

#[test]
fn a_program_is_killed_when_its_file_may_not_grow_and_hpcsweep_is_not() {
    let world = World::new();
    // The log of the trial may have 64 KiB.
    world.write("plan.toml", &shell("exec head -c 100000 /dev/zero", ""));
    let code = format!("ulimit -f 64; exec '{PROGRAM}' submit plan.toml --local -q");
    assert_eq!(world.call("bash", &["-c", &code]).code, 1);
    let status = world.status();
    let trial = &status["trials"][0];
    assert_eq!(
        (&trial["state"], &trial["reason"]),
        (&json!("failed"), &json!("signal 25 (SIGXFSZ)"))
    );
}

#[test]
fn a_trial_for_which_no_descriptors_are_left_is_interrupted_and_runs_next_time() {
    let world = World::new();
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2, 3]\n"));
    // Enough for the executor and the record, and not for the program.
    let limited = format!("ulimit -n 8; exec '{PROGRAM}' submit plan.toml --local -q -j 1");
    assert_eq!(world.call("bash", &["-c", &limited]).code, 1);
    let status = world.status();
    assert_eq!(status["counts"], json!({"interrupted": 3}), "{status}");
    let said = "cannot start `sh`: too many open files; \
        hint: raise the limit of open files (`ulimit -n`) and run the same command again";
    for trial in status["trials"].as_array().unwrap() {
        assert_eq!((&trial["cause"], &trial["reason"]), (&json!("limit"), &json!(said)));
    }
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    assert_eq!(world.status()["counts"], json!({"done": 3}));
}

#[test]
fn a_full_disk_is_said_and_the_next_submit_completes() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2, 3]\n"));
    let script = format!(
        "set -u; mount -t tmpfs -o size=64k none results || exit 90
        dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
        '{PROGRAM}' submit plan.toml --local -q; echo full: $?
        rm results/filler
        '{PROGRAM}' submit plan.toml --local -q; echo free: $?
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'"
    );
    match in_own_mounts(&world, &script) {
        Some(ran) => {
            assert_eq!(
                ran.whole(),
                "\
full: 4
free: 0
\"counts\":{\"done\":3}
error: cannot write `$WORLD/results/s/submit.lock`: no space left on device
hint: free some space (or inodes) and run the same command again; nothing is lost
exit code 0
"
            );
        }
        None => {
            // A device that is always full: the one write that can be aimed at it fails as the disk would.
            let plan = world.run(&["submit", "plan.toml", "--dry-run"]);
            plan.ok();
            let ran =
                world.call("bash", &["-c", &format!("'{PROGRAM}' plan plan.toml >/dev/full")]);
            assert_eq!(
                ran.whole(),
                "error: cannot write to standard output: no space left on device\nexit code 4\n"
            );
        }
    }
}

#[test]
fn a_disk_that_fills_up_under_way_loses_no_result() {
    for more in ["", "[resources]\nranks = 2\n", "[resources]\ngpus_per_rank = 1\n"] {
        fills_up_under_way(more);
    }
}

fn fills_up_under_way(more: &str) {
    let world = crate::support::gpus::idle(1);
    fs::create_dir(world.path("results")).unwrap();
    // The first trial fills the disk before it ends: its end has to wait until there is room again.
    let code = "[ ${RANK:-0} = 0 ] || exit 0; echo $HPCSWEEP_TRIAL >>ran; [ $HPCSWEEP_TRIAL != 0 ] || dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
        for i in $(seq 500); do echo '{\"loss\": 1}'; done >>$HPCSWEEP_METRICS; : >filled.$HPCSWEEP_TRIAL";
    let rest = format!("[defaults]\ntask_id = 1\n[grid]\na = [1, 2]\n{more}");
    world.write("plan.toml", &shell(code, &rest));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --local -q & submit=$!
        until [ -e filled.0 ]; do sleep 0.01; done
        sleep 0.3 # so that the end of the trial meets the full disk; it is kept either way
        rm results/filler; wait $submit; echo first: $?
        '{PROGRAM}' submit plan.toml --local -q; echo second: $?
        '{PROGRAM}' collect --steps --format jsonl | grep -o '\"trial\":[01].*\"loss\":1' |
            sed 's/,.*,/ /' | sort | uniq -c | tr -s ' '
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'"
    );
    let Some(ran) = in_own_mounts(&world, &script) else {
        // Without a mount of its own: what a killed worker leaves is the same torn record.
        nothing_outlives_a_killed_worker();
        return;
    };
    // Nor are the metrics lost that met the full disk.
    let expected = "second: 0\n 500 \"trial\":0 \"loss\":1\n 500 \"trial\":1 \"loss\":1\n\
        \"counts\":{\"done\":2}\n";
    assert!(ran.out.ends_with(expected), "{more}: {}", ran.whole());
    // The trial that had run was not run again.
    assert_eq!(world.read("ran"), "0\n1\n");
}

#[test]
fn a_trial_that_fails_on_a_full_disk_is_interrupted_and_runs_when_there_is_room() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    // The record has room in its last block.
    let code = "[ -e ran ] || dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
        : >ran; head -c 9000 /dev/zero";
    world.write("plan.toml", &shell(code, ""));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --local -q; echo first: $?
        rm results/filler
        look() {{ '{PROGRAM}' status --json | grep -Eo '\"(counts\":[^}}]*}}|(cause|reason)\":\"[^\"]*\")'; }}; look
        '{PROGRAM}' submit plan.toml --local -q; echo second: $?; look"
    );
    let Some(ran) = in_own_mounts(&world, &script) else { panic!("no mounts") };
    let expected = "\
first: 1
\"counts\":{\"interrupted\":1}
\"cause\":\"disk-full\"
\"reason\":\"the disk of the results was full when it ended\"
second: 0
\"counts\":{\"done\":1}
\"reason\":\"\"
";
    assert_eq!(ran.out, expected, "{}", ran.whole());
}

#[test]
fn a_killed_submission_is_completed_with_every_array_asked_for_once() {
    let world = remembering_slurm();
    let chains: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    let rest = format!(
        "[defaults]\ntask_id = \"{{{{ c }}}}\"\n[grid]\nc = [{}]\nlink = [0, 1]\n",
        chains.join(", ")
    );
    let mut dice = Dice(0xC2B2_AE3D_27D4_EB4F);
    let (mut kills, mut sweeps) = (0, 0);
    while kills < 25 {
        sweeps += 1;
        assert!(sweeps < 40, "only {kills} kills hit");
        let name = format!("s{sweeps}");
        world.write("plan.toml", &shell("true", &rest).replace("\"s\"", &format!("\"{name}\"")));
        world.write("jobs", "");
        loop {
            let mut started = world.start(&["submit", "plan.toml", "--slurm", "-q"]);
            if kills < 25 {
                std::thread::sleep(Duration::from_micros(dice.below(150_000)));
                let alive = matches!(started.child.try_wait(), Ok(None));
                kills += u32::from(alive && started.child.kill().is_ok());
            }
            let ended = started.end(&world);
            assert!([0, 137].contains(&ended.code), "{}", ended.whole());
            // A part of a plan is never seen.
            if world.exists(&format!("results/{name}/sweep.json")) {
                let status =
                    world.run(&["status", "--json", "--offline", &format!("results/{name}")]);
                let status: Value = serde_json::from_str(status.ok()).unwrap();
                let total = status["trials_total"].as_u64().unwrap();
                assert!([0, 1000].contains(&total), "{total} trials of 1000");
            }
            if ended.code == 0 {
                break;
            }
        }
        // Ten arrays of 100 elements, each once, and the sweep knows them all.
        let jobs = world.read("jobs");
        let names: BTreeSet<&str> = jobs.lines().filter_map(|l| l.split('|').nth(1)).collect();
        assert_eq!((jobs.lines().count(), names.len()), (10, 10), "{jobs}");
        let status = world.run(&["status", "--json", "--offline", &format!("results/{name}")]);
        let status: Value = serde_json::from_str(status.ok()).unwrap();
        let known: Vec<&str> =
            status["jobs"].as_array().unwrap().iter().map(|j| j.as_str().unwrap()).collect();
        let given: Vec<&str> = jobs.lines().filter_map(|l| l.split('|').next()).collect();
        assert_eq!(known, given);
        assert_eq!(status["counts"], json!({"queued": 1000}));
    }
}

#[test]
fn readers_say_the_same_on_a_full_disk() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    let code = "echo said; echo '{\"loss\": 1}' >>$HPCSWEEP_METRICS; [ $HPCSWEEP_TRIAL = 0 ]";
    world.write("plan.toml", &shell(code, "[grid]\na = [1, 2]\n"));
    // Also what readers keep for themselves is full.
    let script = format!(
        "set -u; for at in results home tmp; do mount -t tmpfs -o size=256k none $at || exit 90; done
        '{PROGRAM}' submit plan.toml --local -q
        look() {{
            for verb in status 'status --json' 'status --trials' collect 'collect --steps' 'best --metric loss --min' \
                'watch --once' 'logs 0'; do echo \"== $verb\"; '{PROGRAM}' $verb results/s 2>&1; echo $?; done
        }}
        timeless() {{ sed 's/[0-9.]* s ago//'; }}; look | timeless >before
        for at in results home tmp; do dd if=/dev/zero of=$at/filler bs=1k count=1000 2>/dev/null; done
        look | timeless >after; ! echo more >results/more"
    );
    let Some(ran) = in_own_mounts(&world, &script) else { panic!("no mounts") };
    assert!(ran.code == 0 && ran.err.contains("No space left"), "{}", ran.whole());
    let (before, after) = (world.read("before"), world.read("after"));
    assert!(before.contains("said") && before.contains("failed 1"), "{before}");
    assert_eq!(after, before);
}
