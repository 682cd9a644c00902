//! `logs` of sets, their last lines, and `logs --follow`.

use std::io::{Read, Write};

use nix::sys::signal::Signal;

use crate::support::plans::shell;
use crate::support::world::{World, wait_until};

#[test]
fn the_last_lines_of_a_trial_and_of_each_of_a_set() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 2 ] || for n in $(seq 12); do echo $HPCSWEEP_TRIAL.$n; done; printf end";
    world.local(&shell(code, "[grid]\na = [1, 2]\n"), &["-q"]).ok();
    assert_eq!(world.run(&["logs", "1", "-n", "2"]).ok(), "1.12\nend");
    assert_eq!(world.run(&["logs", "1"]).ok().lines().count(), 13);
    assert_eq!(
        world.run(&["logs", "0-1", "-n", "2"]).ok(),
        "==> trial 0 done <==\n0.12\nend\n\n==> trial 1 done <==\n1.12\nend\n"
    );
    // Ten lines by default.
    assert_eq!(world.run(&["logs", "0-1"]).ok().lines().count(), 2 * 11 + 1);
}

#[test]
fn a_trial_that_printed_nothing_is_said_to_have_printed_nothing() {
    let code = "[ $HPCSWEEP_TRIAL = 0 ] || echo x";
    let nothing = "trial 0 has printed nothing\nexit code 0\n";
    for args in [
        &["submit", "plan.toml", "--local", "-q"][..],
        &["worker", "--pull", "plan.toml", "--slots", "1", "-q"],
    ] {
        let world = World::new();
        world.write("plan.toml", &shell(code, "[grid]\na = [1, 2]\n"));
        world.run(args).ok();
        for args in [&["logs", "0"][..], &["logs", "0", "-n", "3"], &["logs", "0", "-n", "0"]] {
            assert_eq!(world.run(args).whole(), nothing, "{args:?}");
        }
        assert_eq!(world.run(&["logs", "1"]).whole(), "x\nexit code 0\n");
        assert_eq!(world.run(&["logs", "1", "-n", "0"]).whole(), "exit code 0\n");
        assert_eq!(
            world.run(&["logs", "0-1"]).whole(),
            "==> trial 1 done <==\nx\nnothing was printed by trial 0\nexit code 0\n"
        );
    }
}

/// A plan whose trial fails once, and prints when files appear.
const TWICE: &str = "echo attempt $HPCSWEEP_ATTEMPT
    n=0; until [ -e go$HPCSWEEP_ATTEMPT ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.01; done
    echo went $HPCSWEEP_ATTEMPT; [ $HPCSWEEP_ATTEMPT = 2 ]";

#[test]
fn a_trial_is_followed_over_its_attempts_until_it_has_ended() {
    let world = World::new();
    let plan = shell(TWICE, "").replace("[run]", "[run]\nattempts = 2");
    world.write("plan.toml", &plan);
    let sweep = world.start(&["submit", "plan.toml", "--local"]);
    wait_until("it prints", || {
        world.exists("results/s/logs") && world.run(&["logs", "0"]).out == "attempt 1\n"
    });
    let mut follow = world.start(&["logs", "-f", "0"]);
    let mut first = [0; 10];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"attempt 1\n");
    world.write("go1", "");
    let mut second = [0; 17];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut second).unwrap();
    assert_eq!(std::str::from_utf8(&second), Ok("went 1\nattempt 2\n"));
    world.write("go2", "");
    assert_eq!(follow.end(&world).whole(), "went 2\ntrial 0 done\nexit code 0\n");
    sweep.end(&world).ok();
    // One that has ended is printed, and that is all; a set says whose output it is.
    let failed = shell("echo x; exit 1", "").replace("name = \"s\"", "name = \"t\"");
    world.local(&failed, &["-q"]);
    assert_eq!(
        world.run(&["logs", "-f", "0", "results/t"]).whole(),
        "x\ntrial 0 failed: exit code 1\nexit code 1\n"
    );
}

#[test]
fn a_log_that_is_replaced_or_written_anew_is_followed_from_its_beginning() {
    let world = World::new();
    let code = "echo first; until [ -e go ]; do sleep 0.01; done; exit 3";
    world.write("plan.toml", &shell(code, ""));
    let sweep = world.start(&["submit", "plan.toml", "--local", "-q"]);
    let log = "results/s/logs/000/0.1.log";
    wait_until("it prints", || world.exists(log) && world.read(log) == "first\n");
    let mut follow = world.start(&["logs", "-f", "0"]);
    let mut next = |expected: &str| {
        let mut seen = vec![0; expected.len()];
        follow.child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
        assert_eq!(String::from_utf8_lossy(&seen), expected);
    };
    next("first\n");
    // Another file, which is longer.
    world.write("aside", "second and more\n");
    std::fs::rename(world.path("aside"), world.path(log)).unwrap();
    next("second and more\n");
    // The same file, shorter; then as long as it was, with other words.
    world.write(log, "third\n");
    next("third\n");
    world.write(log, "again\n");
    next("again\n");
    // What is added to it comes alone.
    let mut file = std::fs::OpenOptions::new().append(true).open(world.path(log)).unwrap();
    file.write_all(b"last\n").unwrap();
    next("last\n");
    world.write("go", "");
    sweep.end(&world);
    let anew = "trial 0: its log was written anew: what follows is its beginning\n".repeat(3);
    let ended = format!("{anew}trial 0 failed: exit code 3\nexit code 1\n");
    assert_eq!(follow.end(&world).whole(), ended);
}

#[test]
fn ctrl_c_ends_following_a_log() {
    let world = World::new();
    world.write("plan.toml", &shell(TWICE, "[grid]\na = [1, 2]\n"));
    let sweep = world.start(&["submit", "plan.toml", "--local", "-j", "2"]);
    wait_until("both print", || {
        world.exists("results/s/logs")
            && (0..2).all(|n| world.run(&["logs", &n.to_string()]).out == "attempt 1\n")
    });
    let mut follow = world.start(&["logs", "-f", "0-1", "-n", "1"]);
    let expected = "==> trial 0 <==\nattempt 1\n==> trial 1 <==\nattempt 1\n";
    let mut seen = vec![0; expected.len()];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), expected);
    follow.signal(Signal::SIGINT);
    assert_eq!(follow.end(&world).whole(), "exit code 130\n");
    world.write("go1", "");
    sweep.end(&world);
}

#[test]
fn why_nothing_comes_of_a_trial_is_said() {
    let world = World::new();
    world.write(
        "plan.toml",
        &shell(": >begun; until [ -e go ]; do sleep 0.01; done", "[grid]\na = [1, 2, 3]\n"),
    );
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    wait_until("trial 0 runs", || world.exists("begun"));
    world.run(&["cancel", "plan.toml"]).ok();
    world.write("go", "");
    agent.end(&world);
    let mut follow = world.start(&["logs", "-f", "0-2", "plan.toml"]);
    let mut said = [0; 15];
    follow.child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"trial 1 waits: ");
    follow.signal(Signal::SIGINT);
    let rest = follow.end(&world);
    assert!(rest.err.contains("cancelled by "), "{}", rest.whole());
    assert!(rest.err.contains(", and 1 other\n"), "{}", rest.whole());
}

/// The agent's log holds the output of all its trials: of each only its own part is printed, while it runs and afterwards.
#[test]
fn trials_of_one_agent_are_followed_side_by_side() {
    let world = World::new();
    let code = "echo begin $HPCSWEEP_TRIAL; until [ -e go$HPCSWEEP_TRIAL ]; do sleep 0.01; done; echo end $HPCSWEEP_TRIAL";
    world.write("plan.toml", &shell(code, "[grid]\na = [1, 2, 3]\n"));
    let agent = world.start(&["worker", "--pull", "plan.toml", "--slots", "1"]);
    let printed = |trial: &str| world.run(&["logs", trial]).out;
    wait_until("trial 0 runs", || printed("0") == "begin 0\n");
    let mut follow = world.start(&["logs", "-f", "0-1", "results/s"]);
    let expected = "==> trial 0 <==\nbegin 0\n";
    let mut seen = vec![0; expected.len()];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), expected);
    world.write("go0", "");
    wait_until("trial 1 runs", || printed("1") == "begin 1\n");
    world.write("go1", "");
    wait_until("trial 2 runs", || printed("2") == "begin 2\n");
    let rest = follow.end(&world);
    assert_eq!(rest.code, 0, "{}", rest.whole());
    let own = |trial: &str| rest.out.lines().filter(|line| line.ends_with(trial)).count();
    assert!(own("end 0") == 1 && own("begin 1") == 1 && own("end 1") == 1, "{}", rest.out);
    assert!(!rest.out.contains("begin 2"), "{}", rest.out);
    world.write("go2", "");
    agent.end(&world).ok();
}

/// The job of a trial is sent back to the queue: its next run has a log of its own, and is followed too.
#[test]
fn a_trial_is_followed_into_the_next_run_of_its_job() {
    let mut pbs = crate::support::pbs_once::pbs();
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    let code =
        "echo begin $$; [ -e $EVENTS.again ] || { : >$EVENTS.again; exec sleep 600; }; echo end";
    let chain = "[schedule]\nchains = \"jobs\"\n[defaults]\ntask_id = 1\n[grid]\na = [1, 2]\n";
    pbs.submit(&shell(code, chain), &["-q"]).ok();
    wait_until("it runs", || pbs.world.exists("events.again"));
    let follow = pbs.world.start(&["logs", "-f", "0"]);
    wait_until("it is sent back", || pbs.world.call("qrerun", &["0"]).code == 0);
    let ran = follow.end(&pbs.world);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    let lines: Vec<&str> = ran.out.lines().map(|line| &line[..line.len().min(5)]).collect();
    assert_eq!(lines, ["begin", "begin", "end"], "{}", ran.out);
    pbs.wait_idle();
}

/// The trial fails, and the feeder that will repeat it waits.
#[test]
fn a_trial_is_followed_into_the_job_that_repeats_it() {
    let mut pbs = crate::support::pbs_once::pbs();
    pbs.set("scheduling", false);
    let code = "echo begin; [ -e $EVENTS.again ] || { : >$EVENTS.again; exit 75; }; echo end";
    let rest = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\n";
    pbs.submit(&shell(code, rest), &["-q"]).ok();
    pbs.world.call("qhold", &["1.pbshead"]).ok();
    pbs.set("scheduling", true);
    wait_until("it has failed", || pbs.standings() == ["failed: exit code 75"]);
    let mut follow = pbs.world.start(&["logs", "-f", "0"]);
    let mut first = [0; 6];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"begin\n");
    pbs.world.call("qrls", &["1.pbshead"]).ok();
    assert_eq!(follow.end(&pbs.world).whole(), "begin\nend\ntrial 0 done\nexit code 0\n");
    pbs.wait_idle();
}

/// Its feeder submits this trial alone, although others were never submitted.
#[test]
fn a_trial_that_is_retried_alone_is_followed_into_the_job_that_repeats_it() {
    let mut pbs = crate::support::pbs_once::pbs();
    pbs.set("scheduling", false);
    let code = "[ $HPCSWEEP_TRIAL = 0 ] || exit 0
        echo begin; [ -e $EVENTS.again ] || { : >$EVENTS.again; exit 75; }; echo end";
    let rest = "[grid]\na = [0, 1]\n[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\n";
    pbs.submit(&shell(code, rest), &["-q"]).ok();
    pbs.world.run(&["cancel"]).ok();
    let retried = pbs.world.run(&["retry", "0"]);
    let feeder = retried.whole();
    let feeder = feeder.split_once("feeder: job ").unwrap().1.split(',').next().unwrap();
    pbs.world.call("qhold", &[feeder]).ok();
    pbs.set("scheduling", true);
    wait_until("it has failed", || pbs.standings()[0] == "failed: exit code 75");
    let mut follow = pbs.world.start(&["logs", "-f", "0"]);
    let mut first = [0; 6];
    follow.child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"begin\n");
    pbs.world.call("qrls", &[feeder]).ok();
    assert_eq!(follow.end(&pbs.world).whole(), "begin\nend\ntrial 0 done\nexit code 0\n");
    pbs.wait_idle();
}
