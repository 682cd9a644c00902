//! `submit --retry` on Slurm: what ended without success runs again, and nothing else does.

use crate::kills::requeue;
use crate::world::{BOTH, Cluster, Ran, World};

fn retry(world: &World) -> Ran {
    world.hpcsweep(&["submit", "plan.toml", "--slurm", "--retry"])
}

/// Two chains of three links; the second link of the first fails until `mended` exists.
fn broken(cluster: Cluster, name: &str) -> World {
    let world = World::new(cluster, name);
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_TRIAL != 1 ] || [ -e $HERE/mended ]",
        "[defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [0, 1]\nstep = [0, 1, 2]",
    );
    world.submit().ok();
    assert_eq!(world.finished().states(), ["done", "failed", "skipped", "done", "done", "done"]);
    world.write("mended", "");
    world
}

#[test]
fn the_rest_of_a_chain_runs_again_from_its_failure() {
    for cluster in BOTH {
        let world = broken(cluster, "retried");
        if cluster == Cluster::Plain {
            world.forgotten();
        }
        world.count_calls();
        retry(&world).ok();
        assert_eq!(world.calls(), 2);
        assert_eq!(world.finished().states(), ["done"; 6], "{}", world.report());
        assert_eq!(world.read("ran").lines().skip(5).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(
            world.table(&["trial", "state", "attempts"])[..3],
            ["0 done 1", "1 done 2", "2 done 1"]
        );
        // Nothing is left to retry.
        retry(&world).ok();
        assert_eq!(world.calls(), 2);
    }
}

#[test]
fn a_retry_that_was_killed_is_completed_once() {
    for (moment, then) in [
        ("before", "kill -9 $PPID; exit 1"),
        ("after", "$REAL \"$@\" >/dev/null; kill -9 $PPID; exit 1"),
    ] {
        for again in ["with", "without"] {
            let world = broken(Cluster::Accounting, &format!("retry-{moment}-{again}"));
            world.fake("sbatch", then);
            assert_eq!(retry(&world).code, -1);
            world.real("sbatch");
            if again == "with" {
                retry(&world).ok()
            } else {
                world.submit().ok()
            };
            assert_eq!(world.finished().states(), ["done"; 6], "{}", world.report());
            assert_eq!(world.lines("ran"), ["0", "1", "1", "2", "3", "4", "5"]);
        }
    }
}

/// One has failed, one runs, one waits behind it: only the first is submitted again.
#[test]
fn what_runs_or_waits_is_left_alone() {
    for cluster in BOTH {
        let world = World::new(cluster, "alone");
        let script = "
            echo $HPCSWEEP_TRIAL >>$HERE/ran
            [ $HPCSWEEP_TRIAL != 0 ] || [ -e $HERE/mended ] || exit 1
            [ $HPCSWEEP_TRIAL != 1 ] || until [ -e $HERE/go ]; do sleep 0.2; done";
        world.plan(
            script,
            "[[trials]]\n[[trials]]\ntask_id = 1\nx = 1\n[[trials]]\ntask_id = 1\nx = 2\n",
        );
        world.submit().ok();
        world.until("failed", || {
            (world.status().states() == ["failed", "running", "queued"]).then_some(())
        });
        world.write("mended", "");
        world.count_calls();
        retry(&world).ok();
        assert_eq!(world.calls(), 1);
        world.until("done", || (world.status().states()[0] == "done").then_some(()));
        world.write("go", "");
        assert_eq!(world.finished().states(), ["done"; 3]);
        assert_eq!(world.lines("ran"), ["0", "0", "1", "2"]);
    }
}

/// The head of a chain has failed, and its job was requeued: what comes behind it waits for that job.
#[test]
fn what_comes_behind_a_requeued_job_waits_for_it() {
    let world = World::new(Cluster::Accounting, "behind");
    let script = "
        echo begin $HPCSWEEP_TRIAL >>$HERE/log
        [ -e $HERE/mended ] || exit 1
        [ $HPCSWEEP_TRIAL != 0 ] || until [ -e $HERE/go ]; do sleep 0.1; done
        echo end $HPCSWEEP_TRIAL >>$HERE/log";
    world.plan(script, "on_failure = \"continue\"\n[defaults]\ntask_id = 1\n[grid]\nx = [1, 2]\n");
    world.submit().ok();
    assert_eq!(world.finished().states(), ["failed", "failed"], "{}", world.report());
    world.write("mended", "");
    let head = format!("{}_0", world.jobs()[0]);
    requeue(&world, &head);
    // As long as Slurm is ending the job of the other, that is left alone, too.
    world.until("submitted again", || {
        let left = "trial 0 ended without success, but its job is still queued or running";
        retry(&world).ok().stderr.contains(left).then_some(())
    });
    world.until_lines("log", 3);
    world.write("go", "");
    assert_eq!(world.finished().states(), ["done", "done"], "{}", world.report());
    let expected = ["begin 0", "begin 1", "begin 0", "end 0", "begin 1", "end 1"];
    assert_eq!(world.read("log").lines().collect::<Vec<_>>(), expected, "{}", world.report());
}

/// Who cannot ask the scheduler cannot know that a trial does not run any more.
#[test]
fn without_an_answer_of_the_scheduler_nothing_runs_again() {
    for cluster in BOTH {
        let world = World::new(cluster, "unasked");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; until [ -e $HERE/go ]; do sleep 0.2; done";
        world.plan(script, "[grid]\nx = [1, 2]");
        world.submit().ok();
        world.until_lines("ran", 2);
        world.count_calls();
        for program in ["squeue", "sacct"] {
            world.fake(
                program,
                "echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            );
        }
        let ran = retry(&world);
        assert!(ran.code == 3 || ran.code == 0, "{ran:?}");
        assert_eq!(world.calls(), 0);
        // An empty answer is as good as none while jobs were there a moment ago.
        world.real("squeue");
        world.real("sacct");
        world.write("go", "");
        world.assert_each_ran_once(2);
    }
}

/// Cancelled, and forgotten by a scheduler without accounts: lost, and found again.
#[test]
fn what_was_lost_is_retried() {
    let world = World::new(Cluster::Plain, "lost");
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ -e $HERE/mended ] || exec sleep 300",
        "[defaults]\ntask_id = 1\n[grid]\nstep = [0, 1]",
    );
    world.submit().ok();
    world.until_lines("ran", 1);
    let jobs = world.jobs();
    world.call("/usr/bin/scancel", &[&jobs[1]]);
    world.call("/usr/bin/scancel", &[&jobs[0]]);
    world.finished();
    world.forgotten();
    let states = world.status().states();
    assert_eq!(states, ["interrupted", "skipped"]);
    world.write("mended", "");
    retry(&world).ok();
    assert_eq!(world.finished().states(), ["done", "done"], "{}", world.report());
    assert_eq!(world.lines("ran"), ["0", "0", "1"]);
}

/// `hpcsweep retry` knows by itself where the sweep was submitted and with which plan; the request differs this time.
#[test]
fn trials_are_retried_by_number_with_another_request_and_their_chain() {
    for cluster in BOTH {
        let world = broken(cluster, "verb");
        std::fs::remove_file(world.path("plan.toml")).unwrap();
        world.count_calls();
        let dry =
            world.hpcsweep(&["retry", "1", "--walltime", "7m", "--cpus", "2", "--dry-run"]).ok();
        assert!(dry.stdout.contains("core-hours asked for: 0.47\n"), "{}", dry.stdout);
        let again = world.hpcsweep(&["retry", "1", "--walltime", "7m", "--cpus", "2"]).ok();
        assert!(again.stderr.contains("2 trials submitted as 2 arrays"), "{}", again.stderr);
        // Queued or running, they are left alone.
        world.hpcsweep(&["retry", "1"]).ok();
        assert_eq!(world.finished().states(), ["done"; 6], "{}", world.report());
        assert_eq!(world.read("ran").lines().skip(5).collect::<Vec<_>>(), ["1", "2"]);
    }
}

#[test]
fn what_the_plan_names_runs_again_by_itself() {
    BOTH.into_iter().for_each(repaired_on);
}

fn repaired_on(cluster: Cluster) {
    let world = World::new(cluster, "repaired");
    let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran
        n=$(grep -cx $HPCSWEEP_TRIAL $HERE/ran)
        case $HPCSWEEP_TRIAL in
          1) [ $SLURM_MEM_PER_NODE -ge 100 ] || { printf 'Traceback (most recent call last):\\nMemoryError\\n'; exit 1; };;
          2) echo '{\"step\": '$n'}' >>$HPCSWEEP_METRICS; [ $n = 2 ] || sleep 300;;
          3) exit 9;;
        esac";
    let mut rest =
        "[retry]\nauto = true\noom = { memory = \"x2\" }\ntimeout = { walltime = \"x2\" }\n\
        [resources]\nmemory = \"50M\"\n"
            .to_owned();
    for x in 0..4 {
        let walltime = if x == 2 { "resources.walltime = \"3s\"\n" } else { "" };
        rest.push_str(&format!("[[trials]]\nx = {x}\ntask_id = {}\n{walltime}", x % 3));
    }
    world.plan(script, &rest);
    world.submit().ok();
    world.until("the end of the feeders", || {
        let status = world.status();
        let is_over = status.json["feeder"].is_null()
            && status.states().iter().all(|state| state == "done" || state == "failed");
        (is_over && world.lines("ran").len() == 6).then_some(())
    });
    assert_eq!(world.status().states(), ["done", "done", "done", "failed"], "{}", world.report());
    let why = world.hpcsweep(&["why", "results/repaired"]).ok().stdout.clone();
    for decision in [
        "retried (out-of-memory with 50M: again with 100M (1 of 3)): trial 1",
        "retried (walltime of 00:00:03: again with 00:00:06 (1 of 3)): trial 2",
        "not retried (exit-code: nothing in `[retry]` repeats it): trial 3",
    ] {
        assert!(why.contains(decision), "{decision}: {why}");
    }
}

/// The trial of width 2 that runs first has too little memory. It runs again with more, and the others learn from that.
#[test]
fn memory_that_was_too_little_for_the_first_is_learnt_from_their_repeats() {
    for cluster in BOTH {
        let world = World::new(cluster, "learnt");
        let script = "echo $HPCSWEEP_TRIAL $SLURM_MEM_PER_NODE >>$HERE/ran
            [ $HPCSWEEP_PARAM_WIDTH = 2 ] || exit 0
            [ $SLURM_MEM_PER_NODE -gt 100 ] || { printf 'Traceback (most recent call last):\\nMemoryError\\n'; exit 1; }
            exec python3 -c \"b = b'x' * 170000000\"";
        world.plan(
            script,
            "[retry]\nauto = true\noom = { memory = \"x2\" }\n\
             [resources]\nmemory = { first = \"100M\", by = [\"width\"] }\nwalltime = { first = \"5m\" }\n\
             [grid]\nwidth = [1, 2]\nseed = [1, 2, 3]\n",
        );
        world.submit().ok();
        world.until("the end", || {
            let status = world.status();
            let is_over = status.json["feeder"].is_null() && status.states() == ["done"; 6];
            is_over.then_some(())
        });
        let mut ran = world.lines("ran");
        ran.sort();
        let expected = ["0 100", "1 64", "2 64", "3 100", "3 200", "4 200", "5 200"];
        assert_eq!(ran, expected, "{}", world.report());
    }
}
