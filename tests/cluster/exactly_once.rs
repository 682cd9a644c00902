//! Whatever happens between `submit` and the scheduler: every trial is submitted once.

use std::time::Duration;

use crate::world::{BOTH, Cluster, World};

/// Three arrays of two elements: two chains of three links.
fn chains(cluster: Cluster, name: &str) -> World {
    let world = World::new(cluster, name);
    world.plan(
        "echo $HPCSWEEP_TRIAL >>$HERE/ran",
        "[defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [0, 1]\nstep = [0, 1, 2]",
    );
    world
}

/// A stand-in for sbatch that does something else at its `nth` call.
fn at_call(nth: usize, then: &str) -> String {
    format!(
        "echo call >>$HERE/calls\n[ $(wc -l <$HERE/calls) -ne {nth} ] || {{ {then}; }}\nexec $REAL \"$@\""
    )
}

/// What Slurm's own clients say of a lost connection.
const TIMED_OUT: &str = "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2";

#[test]
fn killed_before_or_after_any_call_a_second_submit_completes() {
    for (moment, then) in [
        ("before", "kill -9 $PPID; exit 1"),
        ("after", "$REAL \"$@\" >/dev/null; kill -9 $PPID; exit 1"),
        // The answer is on its way when we die.
        ("answered", "$REAL \"$@\"; kill -9 $PPID; exit 0"),
    ] {
        for cluster in BOTH {
            std::thread::scope(|scope| {
                for nth in 1..=3 {
                    scope.spawn(move || {
                        let world = chains(cluster, &format!("killed-{moment}-{nth}"));
                        world.fake("sbatch", &at_call(nth, then));
                        assert_eq!(world.submit().code, -1);
                        world.real("sbatch");
                        world.submit().ok();
                        world.assert_each_ran_once(6);
                        let again = world.submit().ok();
                        assert!(again.stderr.contains(": nothing new to submit "), "{again:?}");
                    });
                }
            });
        }
    }
}

#[test]
fn killed_at_forty_moments_a_last_submit_completes() {
    for cluster in BOTH {
        let world = World::new(cluster, "killed-often");
        world.site("limits.max_array_size = 1\n");
        let values: Vec<String> = (0..60).map(|i| i.to_string()).collect();
        world.plan(
            "echo $HPCSWEEP_TRIAL >>$HERE/ran",
            &format!("[grid]\nx = [{}]", values.join(", ")),
        );
        let mut noise = std::process::id();
        for _ in 0..40 {
            // xorshift32
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let mut submit = world.submitting();
            std::thread::sleep(Duration::from_millis(u64::from(noise % 120)));
            submit.kill().unwrap();
            submit.wait().unwrap();
        }
        world.submit().ok();
        world.assert_each_ran_once(60);
    }
}

#[test]
fn a_call_that_fails_after_submitting_is_found_again() {
    for cluster in BOTH {
        // Known words, and those of a site's own plugin.
        let own = "echo 'sbatch: error: the accounts of project 4711 do not answer' >&2";
        for (name, words) in [("timed-out", TIMED_OUT), ("unknown", own)] {
            let world = chains(cluster, name);
            world.fake("sbatch", &format!("$REAL \"$@\" >/dev/null; {words}; exit 1"));
            let ran = world.submit().ok();
            let found = ran.stderr.lines().filter(|line| line.contains(": it is job ")).count();
            assert_eq!(found + ran.stderr.matches(" as job ").count(), 3, "{}", ran.stderr);
            world.assert_each_ran_once(6);
        }
    }
}

#[test]
fn a_call_that_times_out_without_submitting_is_made_again() {
    for cluster in BOTH {
        let world = chains(cluster, "never-came");
        world.fake("sbatch", &at_call(2, &format!("{TIMED_OUT}; exit 1")));
        let ran = world.submit();
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stderr.contains("Socket timed out on send/recv operation"), "{}", ran.stderr);
        world.submit().ok();
        world.assert_each_ran_once(6);
    }
}

#[test]
fn a_refusal_is_told_in_the_schedulers_words_and_nothing_is_lost() {
    for cluster in BOTH {
        let world = chains(cluster, "refused");
        let words = "Batch job submission failed: Requested node configuration is not available";
        world.fake("sbatch", &at_call(2, &format!("echo 'sbatch: error: {words}' >&2; exit 1")));
        let ran = world.submit();
        assert_eq!(ran.code, 3, "{ran:?}");
        let sentence = format!("error: array 2 was not submitted: `sbatch` says: {words}");
        assert!(ran.stderr.lines().any(|line| line == sentence), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("run the same command again: only the rest is submitted"),
            "{}",
            ran.stderr
        );
        world.submit().ok();
        world.assert_each_ran_once(6);
    }
}

#[test]
fn banners_around_the_job_id_do_no_harm() {
    let world = chains(Cluster::Accounting, "banners");
    let banner = "echo '*** Project 4711 has 12 of 2026 hours left ***'";
    world.fake("sbatch", &format!("{banner}\n$REAL \"$@\"\n{banner}\necho 12 jobs >&2"));
    world.submit().ok();
    world.assert_each_ran_once(6);
}

#[test]
fn an_answer_without_a_job_id_is_looked_for() {
    let world = chains(Cluster::Accounting, "no-id");
    world.fake("sbatch", "$REAL \"$@\" >/dev/null; echo thank you");
    world.submit().ok();
    world.assert_each_ran_once(6);
}

/// sbatch and squeue both fail: it is unknown whether the job exists, so nothing more is done.
#[test]
fn with_the_network_lost_nothing_is_submitted_twice() {
    for (submitted, call) in [("arrived", "$REAL \"$@\" >/dev/null;"), ("lost", "")] {
        let world = chains(Cluster::Plain, &format!("network-{submitted}"));
        let lost = "error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
        world.fake("sbatch", &format!("{call} echo 'sbatch: {lost}"));
        world.fake("squeue", &format!("echo 'slurm_load_jobs {lost}"));
        let ran = world.submit();
        assert_eq!(ran.code, 3, "{ran:?}");
        let said = "cannot tell whether the scheduler has the job; nothing was submitted twice";
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        world.real("sbatch");
        world.real("squeue");
        world.submit().ok();
        world.assert_each_ran_once(6);
    }
}

/// A call that hangs is given up; its job may be there all the same.
#[test]
fn a_call_without_an_answer_in_time_is_found_again() {
    let world = chains(Cluster::Accounting, "hangs");
    world.site("limits.call_timeout_s = 2\n");
    world.fake("sbatch", &at_call(1, "$REAL \"$@\"; exec sleep 600"));
    world.submit().ok();
    world.assert_each_ran_once(6);
}

/// Without accounts, and after MinJobAge, only the trials' own records know that the call went through.
#[test]
fn a_job_that_ran_and_was_forgotten_is_known_by_its_records() {
    let world = World::new(Cluster::Plain, "known");
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", "[grid]\nx = [1, 2, 3]");
    world.fake("sbatch", &at_call(1, "$REAL \"$@\" >/dev/null; kill -9 $PPID; exit 1"));
    assert_eq!(world.submit().code, -1);
    world.until_lines("ran", 3);
    world.forgotten();
    world.real("sbatch");
    world.submit().ok();
    world.assert_each_ran_once(3);
}

#[test]
fn of_two_submits_at_a_time_one_waits_for_the_other() {
    for cluster in BOTH {
        let world = chains(cluster, "both");
        world.fake("sbatch", "sleep 0.7; exec $REAL \"$@\"");
        let first = world.submitting();
        world.until("locked", || world.sweep().join("submit.lock").exists().then_some(()));
        let holder = first.id();
        let second = world.submit();
        let host = world.call("uname", &["-n"]);
        let host = host.trim().split('.').next().unwrap();
        let said = format!(
            "another hpcsweep is changing this sweep: process {holder} on {host}; waiting for it\n\
             both: nothing new to submit"
        );
        assert!(second.code == 0 && second.stderr.starts_with(&said), "{second:?}");
        assert!(first.wait_with_output().unwrap().status.success());
        world.assert_each_ran_once(6);
        assert!(!world.sweep().join("submit.lock").exists());
    }
}

/// Eight submissions start at the same moment. Whichever gets the lock first, and however the lock
/// passes on, no job is doubled.
#[test]
fn of_many_submits_at_a_time_nothing_is_doubled() {
    let world = chains(Cluster::Accounting, "many");
    let all: Vec<_> = (0..8).map(|_| world.submitting()).collect();
    let codes: Vec<_> =
        all.into_iter().map(|child| child.wait_with_output().unwrap().status.code()).collect();
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, Some(0 | 4))), "{codes:?}");
    world.assert_each_ran_once(6);
}
