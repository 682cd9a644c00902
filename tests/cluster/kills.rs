//! Jobs that do not end by themselves: cancelled, over their time, killed, requeued; and schedulers that
//! say odd things.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::world::{BOTH, Cluster, World};

#[test]
fn a_cancelled_element_is_interrupted_and_its_chain_stops() {
    for cluster in BOTH {
        let world = World::new(cluster, "cancelled");
        let script =
            "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_TRIAL != 0 ] || exec sleep 300; sleep 1";
        world.plan(
            script,
            "[defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [0, 1]\nstep = [0, 1]",
        );
        world.submit().ok();
        world.until("running", || world.lines("ran").contains(&"0".to_owned()).then_some(()));
        let first = world.jobs()[0].clone();
        world.call("/usr/bin/scancel", &[&format!("{first}_0")]);
        let status = world.finished();
        assert_eq!(
            status.states(),
            ["interrupted", "skipped", "done", "done"],
            "{}",
            world.report()
        );
        let said = &status.standings()[0];
        assert!(said.contains("the worker got SIGTERM"), "{said}");
        assert_eq!(world.lines("ran"), ["0", "2", "3"]);
        assert_eq!(world.files("records").len(), 3);
    }
}

#[test]
fn a_job_cancelled_before_it_began_is_interrupted() {
    let world = World::new(Cluster::Accounting, "never-began");
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/ran",
        "[resources]\nmemory = \"50M\"\ndirectives = [\"--begin=now+1hour\"]\n[defaults]\ntask_id = 1\n[grid]\nstep = [0, 1]",
    );
    world.submit().ok();
    assert_eq!(world.status().states(), ["queued", "queued"]);
    world.call("/usr/bin/scancel", &[&world.jobs()[0]]);
    let status = world.finished();
    assert_eq!(
        status.standings(),
        ["cancelled: cancelled before it began", "skipped: its chain stopped: trial 0 has not run"]
    );
    assert_eq!(world.read("ran"), "");
}

/// Slurm counts in minutes, so this takes one.
#[test]
fn the_worker_ends_a_trial_before_its_time_is_over() {
    let world = World::new(Cluster::Accounting, "overdue");
    world.plan(
        "echo '{\"epoch\": 3}' >>$HPCSWEEP_METRICS; echo $HPCSWEEP_TRIAL >>$HERE/ran; trap 'echo told; exit 1' TERM; sleep 300 & wait",
        "[resources]\nmemory = \"50M\"\nwalltime = \"00:01:00\"\n[defaults]\ntask_id = 1\n[grid]\nstep = [0, 1]",
    );
    world.submit().ok();
    let status = world.finished();
    assert_eq!(status.states(), ["timeout", "skipped"], "{}", world.report());
    assert!(
        status.standings()[0].contains("the wall-clock limit was reached"),
        "{:?}",
        status.standings()
    );
    // The program was asked to end and had the time to, and what it had noted is kept.
    assert_eq!(world.read("results/overdue/logs/000/0.1.log"), "told\n");
    assert_eq!(world.table(&["trial", "epoch"])[0], "0 3");
    let seconds: f64 = world.table(&["duration_s"])[0].parse().unwrap();
    assert!((45.0..59.0).contains(&seconds), "{seconds}");
}

/// Gives a job back to the queue, and takes away most of the two minutes that Slurm then makes it wait.
/// (In the same second the node would not take it: it remembers that the job was killed.)
pub(crate) fn requeue(world: &World, id: &str) {
    world.call("/usr/bin/scontrol", &["requeue", id]);
    world.until("in the queue again", || {
        let job = format!("jobid={id}");
        let args = ["update", job.as_str(), "starttime=now+3"];
        let show = world.call("/usr/bin/scontrol", &["--oneliner", "show", "job", id]);
        let pending = show.contains(" JobState=PENDING ");
        (pending && world.command("/usr/bin/scontrol").args(args).status().unwrap().success())
            .then_some(())
    });
}

#[test]
fn a_requeued_trial_runs_again_and_counts_once() {
    for cluster in BOTH {
        let world = World::new(cluster, "requeued");
        let script = "
            echo $HPCSWEEP_TRIAL $HPCSWEEP_ATTEMPT >>$HERE/ran
            echo kept >>$HPCSWEEP_CHECKPOINT_DIR/state
            echo \"{\\\"run\\\": $HPCSWEEP_ATTEMPT}\" >>$HPCSWEEP_METRICS
            [ $HPCSWEEP_ATTEMPT != 1 ] || exec sleep 300";
        world.plan(script, "[defaults]\ntask_id = 1\n[grid]\nstep = [0]");
        world.submit().ok();
        world.until_lines("ran", 1);
        let id = format!("{}_0", world.jobs()[0]);
        requeue(&world, &id);
        // Its first attempt is recorded as interrupted; it waits all the same.
        assert!(["queued", "running", "done"].contains(&&*world.status().states()[0]));
        let status = world.until("done", || {
            let status = world.status();
            (status.states() == ["done"]).then_some(status)
        });
        assert_eq!(status.trials()[0]["attempts"], 2);
        assert_eq!(world.lines("ran"), ["0 1", "0 2"]);
        assert_eq!(world.table(&["trial", "state", "attempts", "run"]), ["0 done 2 2"]);
        assert_eq!(world.files("records"), ["records/000/0.1.jsonl", "records/000/0.2.jsonl"]);
        let saved = world.files("work");
        assert_eq!(saved.len(), 1, "{saved:?}");
        assert_eq!(world.read(&format!("results/requeued/{}", saved[0])), "kept\nkept\n");
    }
}

#[test]
fn a_trial_requeued_after_its_end_does_not_run_again() {
    let world = World::new(Cluster::Accounting, "ended");
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", "");
    world.submit().ok();
    world.assert_each_ran_once(1);
    let id = format!("{}_0", world.jobs()[0]);
    let show = |key: &str| {
        let text = world.call("/usr/bin/scontrol", &["--oneliner", "show", "job", &id]);
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(key))
            .unwrap_or_default()
            .to_owned()
    };
    world.until("completed", || (show("JobState=") == "COMPLETED").then_some(()));
    requeue(&world, &id);
    world.until("completed again", || {
        (show("Restarts=") == "1" && show("JobState=") == "COMPLETED").then_some(())
    });
    world.assert_each_ran_once(1);
    assert_eq!(world.files("logs"), ["logs/000/0.1.log"]);
}

/// Pids of the workers of a sweep that run now, as their records say.
fn workers(world: &World) -> Vec<i32> {
    let mut pids = Vec::new();
    for name in world.files("records") {
        let text = world.read(&format!("results/{}/{name}", world.name));
        let ended = text.contains("\"event\":\"end\"");
        if let (false, Some(line)) = (ended, text.lines().next()) {
            let start: Value = serde_json::from_str(line).unwrap();
            pids.push(i32::try_from(start["pid"].as_i64().unwrap()).unwrap());
        }
    }
    pids
}

fn parent(pid: i32) -> Option<(i32, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    Some((parent, name.trim().to_owned()))
}

/// Fifty trials, of which many lose their worker: each is counted once, what is done stays done, and the
/// program of a dead worker dies with it.
#[test]
fn workers_killed_at_random_moments_lose_and_double_nothing() {
    for cluster in BOTH {
        let world = World::new(cluster, "massacre");
        let script = "
            echo $HPCSWEEP_TRIAL >>$HERE/begun
            echo '{\"half\": 1}' >>$HPCSWEEP_METRICS; sleep 1.$HPCSWEEP_PARAM_X
            echo $HPCSWEEP_TRIAL >>$HERE/ran";
        let values: Vec<String> = (10..60).map(|i| i.to_string()).collect();
        world.plan(script, &format!("[grid]\nx = [{}]", values.join(", ")));
        world.submit().ok();
        let mut noise = std::process::id() | 1;
        let mut killed = 0;
        let since = Instant::now();
        let status = loop {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            std::thread::sleep(Duration::from_millis(u64::from(noise % 60)));
            let alive = workers(&world);
            if killed < 25 && !alive.is_empty() {
                let victim = alive[noise as usize % alive.len()];
                killed += usize::from(kill(Pid::from_raw(victim), Signal::SIGKILL).is_ok());
                if !noise.is_multiple_of(5) {
                    continue;
                }
            }
            let status = world.status();
            if status.is_final() {
                break status;
            }
            assert!(since.elapsed() < crate::world::PATIENCE, "{}", world.report());
        };
        let states = status.states();
        let done: Vec<String> =
            (0..50).filter(|&i| states[i] == "done").map(|i| i.to_string()).collect();
        // Doubtful: it was killed in the moment between the end on record and its own.
        let allowed = ["done", "failed", "lost", "doubtful"];
        assert!(states.iter().all(|s| allowed.contains(&s.as_str())), "{:?}", status.standings());
        assert!(killed >= 5 && done.len() >= 50 - killed, "{killed} killed, {} done", done.len());
        // Done means that the program ran to its end, once, and that it was not started twice.
        let ran = world.lines("ran");
        assert!(done.iter().all(|trial| ran.iter().filter(|r| *r == trial).count() == 1));
        let mut begun = world.lines("begun");
        begun.dedup();
        assert_eq!(begun.len(), world.lines("begun").len());
        assert_eq!(world.table(&["state"]).len(), 50);
        // The others run again, and then every one is done.
        world.retry();
        let last = world.finished().states();
        let is_done =
            |(now, was): (&String, &String)| now == "done" || (now == was && was == "doubtful");
        assert!(last.iter().zip(&states).all(is_done), "{last:?}");
        let ran = world.lines("ran");
        assert!(done.iter().all(|trial| ran.iter().filter(|r| *r == trial).count() == 1));
    }
}

/// slurmstepd is gone: Slurm finds out late. Whatever it then says, a result that was recorded counts.
#[test]
fn step_daemons_killed_under_workers_lose_no_result() {
    let world = World::new(Cluster::Accounting, "stepd");
    let values: Vec<String> = (10..30).map(|i| i.to_string()).collect();
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/begun; sleep 2.$HPCSWEEP_PARAM_X; echo $HPCSWEEP_TRIAL >>$HERE/ran",
        &format!("[grid]\nx = [{}]", values.join(", ")),
    );
    world.submit().ok();
    let mut killed = 0;
    let mut noise = std::process::id() | 1;
    while world.lines("ran").len() < 20 {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        std::thread::sleep(Duration::from_millis(u64::from(noise % 100)));
        let alive = workers(&world);
        let Some(worker) = alive.get(noise as usize % alive.len().max(1)) else { continue };
        if killed < 12
            && let Some((pid, name)) = parent(*worker)
            && name == "slurmstepd"
        {
            killed += usize::from(kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok());
        }
    }
    world.until("recorded", || workers(&world).is_empty().then_some(()));
    // As many as this machine had the time for.
    assert!(killed > 0, "none was killed");
    // Each ran to its end, once, and is done; the scheduler has not made up its mind, or says so too.
    let numbers: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    assert_eq!(world.lines("ran"), numbers);
    assert_eq!(world.lines("begun"), numbers);
    let states = world.status().states();
    assert!(states.iter().all(|s| s == "done" || s == "doubtful"), "{states:?}");
    assert_eq!(world.table(&["exit_code"]), ["0"; 20]);
}

#[test]
fn a_word_of_the_scheduler_that_nobody_knows_is_shown_as_it_is() {
    for cluster in BOTH {
        let world = World::new(cluster, "odd");
        world.plan(
            "echo $HPCSWEEP_TRIAL >>$HERE/ran; until [ -e $HERE/go ]; do sleep 0.2; done",
            "",
        );
        world.submit().ok();
        world.until_lines("ran", 1);
        for program in ["squeue", "sacct"] {
            world.fake(program, "$REAL \"$@\" | sed 's/RUNNING/HIBERNATING/'");
        }
        let status = world.until("hibernating", || {
            let status = world.status();
            (status.states() != ["queued"] && status.states() != ["running"]).then_some(status)
        });
        assert_eq!(status.states(), ["hibernating"]);
        assert_eq!(status.code, 0);
        world.real("squeue");
        world.real("sacct");
        world.write("go", "");
        world.assert_each_ran_once(1);
    }
}

/// The record says done, the scheduler out of memory: neither is believed alone.
#[test]
fn a_scheduler_that_contradicts_a_record_makes_it_doubtful() {
    let world = World::new(Cluster::Accounting, "doubt");
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", "[grid]\nx = [1, 2]");
    world.submit().ok();
    world.assert_each_ran_once(2);
    world.until("completed", || {
        let id = world.jobs()[0].clone();
        let args = ["--noheader", "--allocations", "--format=State", "-j", &id];
        let text = world.call("/usr/bin/sacct", &args);
        (text.lines().count() == 2 && text.lines().all(|l| l.trim() == "COMPLETED")).then_some(())
    });
    for program in ["squeue", "sacct"] {
        world.fake(program, "$REAL \"$@\" | sed '/_1|/s/COMPLETED/OUT_OF_MEMORY/'");
    }
    let status = world.status();
    assert_eq!(
        status.standings(),
        ["done", "doubtful: recorded as done, but the scheduler says OUT_OF_MEMORY"]
    );
    assert_eq!(status.code, 1);
}

/// One call of each command that knows for a whole sweep of several arrays, and nothing else.
#[test]
fn status_asks_each_witness_once() {
    for (cluster, most) in
        [(Cluster::Plain, vec!["squeue"]), (Cluster::Accounting, vec!["squeue", "sacct"])]
    {
        let world = World::new(cluster, "asks");
        for name in ["squeue", "sacct", "scontrol", "sinfo"] {
            world.fake(name, &format!("echo {name} >>$HERE/asked\nexec $REAL \"$@\""));
        }
        world.plan("sleep 2", "[defaults]\ntask_id = 1\n[grid]\nstep = [1, 2, 3]");
        world.submit().ok();
        loop {
            std::fs::write(world.path("asked"), "").unwrap();
            let status = world.status();
            let asked = world.read("asked");
            let asked: Vec<&str> = asked.lines().collect();
            assert!(
                asked.len() <= most.len() && asked.iter().all(|name| most.contains(name)),
                "{asked:?}"
            );
            assert_eq!(status.json["scheduler_calls"], asked.len());
            if status.is_final() {
                break;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}
