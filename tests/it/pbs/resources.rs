//! PBS: what a plan asks for now reaches trials that the sweep has already, and still every array is asked for once
//! and every trial runs once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::support::faults::Dice;
use crate::support::pbs::Pbs;
use crate::support::pbs_once::{check, pbs, wrap};
use crate::support::plans::shell;

/// Five single trials, each of which appends its number to a file, under these requests.
fn five(resources: &str) -> String {
    let rest = format!("[resources]\n{resources}\n[grid]\na = [0, 1, 2, 3, 4]\n");
    shell("echo $HPCSWEEP_TRIAL >>$EVENTS", &rest)
}

/// A qsub that refuses scripts with such a line, and the call of this number by killing the submission before or
/// after it; 0 for none.
fn strict(pbs: &Pbs, line: &str, kill: u32, before: bool) {
    let count = "echo \"$*\" >>$EVENTS.calls; [ $(wc -l <$EVENTS.calls) -eq KILL ]";
    let count = count.replace("KILL", &kill.to_string());
    let refuse = format!(
        "if grep -q '^#PBS {line}' \"${{@: -1}}\"; then echo 'qsub: Unauthorized Request' >&2; exit 1; fi"
    );
    let code = if before {
        format!("if {count}; then kill -9 $PPID; exit 1; fi\n{refuse}\nreal \"$@\"")
    } else {
        format!("{refuse}\nreal \"$@\"; code=$?; if {count}; then kill -9 $PPID; fi; exit $code")
    };
    wrap(&pbs.world, "qsub", &code);
}

/// The requests of the jobs, in the order of their submission.
fn asked(pbs: &Pbs, name: &str) -> Vec<String> {
    let jobs = pbs.jobs();
    let of = |(id, _): &(String, String)| match &jobs[id][name] {
        Value::Null => jobs[id]["Resource_List"][name].to_string(),
        value => value.to_string(),
    };
    pbs.states().iter().map(of).collect()
}

/// The number, what it follows, and what it waits for, of every array of a wave.
fn arrays(pbs: &Pbs, wave: u32) -> Vec<String> {
    let text = pbs.world.read(&format!("results/s/waves/{wave:04}.json"));
    let wave: Value = serde_json::from_str(&text).unwrap();
    let one = |a: &Value| format!("{} after {} wait {}", a["array"], a["after"], a["wait"]);
    wave["arrays"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn a_raised_walltime_is_that_of_the_job_and_of_its_worker() {
    let pbs = pbs();
    let plan =
        |walltime: &str| shell("sleep 5", &format!("[resources]\nwalltime = \"{walltime}\"\n"));
    pbs.submit(&plan("4s"), &["-q"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["timeout: the wall-clock limit was reached"]);
    pbs.submit(&plan("10m"), &["--retry", "-q"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    assert_eq!(asked(&pbs, "walltime"), ["\"00:00:04\"", "\"00:10:00\""]);
}

#[test]
fn each_link_of_a_fused_chain_has_its_own_new_walltime() {
    let pbs = pbs();
    let code = "[ $HPCSWEEP_LINK = 0 ] && exit; sleep 5";
    let plan = |walltime: &str| {
        let rest = format!(
            "[schedule]\nchains = \"fused\"\n[resources]\nwalltime = \"4s\"\n[defaults]\ntask_id = 1\n
            [[trials]]\n[[trials]]\nresources.walltime = \"{walltime}\"\n[[trials]]\nresources.walltime = \"{walltime}\"\n"
        );
        shell(code, &rest)
    };
    pbs.submit(&plan("4s"), &["-q"]).ok();
    pbs.wait_idle();
    let skipped = "skipped: its chain stopped: trial 1 ran into its walltime";
    assert_eq!(pbs.standings(), ["done", "timeout: the wall-clock limit was reached", skipped]);
    pbs.submit(&plan("10m"), &["--retry", "-q"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 3]);
    assert_eq!(asked(&pbs, "walltime"), ["\"00:00:12\"", "\"00:20:00\""]);
}

#[test]
fn another_number_of_ranks_is_started_and_expected() {
    let mut pbs = pbs();
    pbs.world.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    pbs.world.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let code = "echo $RANK of $WORLD_SIZE >>$EVENTS; [ -e $EVENTS.mended ]";
    let plan = |ranks: u32| shell(code, &format!("[resources]\nnodes = 2\nranks = {ranks}\n"));
    pbs.submit(&plan(2), &["-q"]).ok();
    pbs.wait_idle();
    // Either rank may be the first that fails.
    assert!(pbs.standings()[0].contains(": exit code 1"), "{:?}", pbs.standings());
    pbs.world.write("events", "");
    pbs.world.write("events.mended", "");
    pbs.submit(&plan(3), &["--retry", "-q"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    let mut events: Vec<String> = pbs.world.read("events").lines().map(str::to_owned).collect();
    events.sort();
    assert_eq!(events, ["0 of 3", "1 of 3", "2 of 3"]);
}

#[test]
fn a_mended_account_is_submitted_after_the_refusal() {
    let pbs = pbs();
    strict(&pbs, "-A wrong", 0, true);
    let ran = pbs.submit(&five("account = \"wrong\""), &[]);
    assert_eq!(ran.code, 3, "{}", ran.whole());
    assert!(
        ran.err.contains("array 1 was not submitted: `qsub` says: Unauthorized Request"),
        "{}",
        ran.whole()
    );
    // Unmended, it is the same array that is asked for again.
    assert_eq!(pbs.again(&["-q"]).code, 3);
    assert_eq!(pbs.world.files("results/s/waves"), ["0001.json", "0001.map"]);

    let ran = pbs.submit(&five("account = \"right\""), &[]);
    assert_eq!(
        ran.whole(),
        "\
array 1: given up: no scheduler has it, and the plan asks for something else now
array 2: given up: no scheduler has it, and the plan asks for something else now
array 3: given up: no scheduler has it, and the plan asks for something else now
array 4: 2 trials as job 0[].pbshead
array 5: 2 trials as job 1[].pbshead
array 6: 1 trial as job 2[].pbshead
s: 5 trials submitted as 3 arrays (5 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    assert_eq!(asked(&pbs, "Account_Name"), ["\"right\""; 3]);
    check(&pbs, 5);
    // And that was all.
    let ran = pbs.again(&[]);
    assert!(ran.err.starts_with("s: nothing new to submit (2 scheduler calls)"), "{}", ran.whole());
    assert_eq!(pbs.names().len(), 3);
}

#[test]
fn what_was_accepted_stays_and_only_the_rest_is_mended() {
    let pbs = pbs();
    strict(&pbs, "-A wrong", 0, true);
    let plan = |account: &str| {
        let trial = |a: u32, account: &str| {
            format!("[[trials]]\na = {a}\nresources.account = \"{account}\"\n")
        };
        let trials = [trial(0, "right"), trial(1, account), trial(2, "right")];
        shell("echo $HPCSWEEP_TRIAL >>$EVENTS", &trials.concat())
    };
    // The first array holds trials 0 and 2.
    assert_eq!(pbs.submit(&plan("wrong"), &["-q"]).code, 3);
    pbs.submit(&plan("other"), &["-q"]).ok();
    assert_eq!(asked(&pbs, "Account_Name"), ["\"right\"", "\"other\""]);
    check(&pbs, 3);
}

/// The head of a chain of three is running when its second link is refused.
fn the_second_link_is_refused(mapping: &str, history: bool) {
    let mut pbs = pbs();
    pbs.set("history", history);
    strict(&pbs, "-A wrong", 0, true);
    let code = "[ $HPCSWEEP_LINK != 0 ] || until [ -e $EVENTS.go ]; do sleep 0.01; done; echo $HPCSWEEP_TRIAL >>$EVENTS";
    let plan = |account: &str| {
        let trials: String = [(0, "right"), (1, account), (2, "right")]
            .map(|(a, account)| format!("[[trials]]\na = {a}\nresources.account = \"{account}\"\n"))
            .concat();
        let rest = format!("[schedule]\nchains = \"{mapping}\"\n[defaults]\ntask_id = 1\n{trials}");
        shell(code, &rest)
    };
    assert_eq!(pbs.submit(&plan("wrong"), &["-q"]).code, 3);
    assert_eq!(arrays(&pbs, 1), ["1 after null wait []", "2 after 1 wait []", "3 after 2 wait []"]);
    let ran = pbs.submit(&plan("other"), &[]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    // The third link waits for the second, so it is given up with it.
    assert_eq!(arrays(&pbs, 2), ["4 after null wait [1]", "5 after 4 wait []"]);
    assert_eq!(asked(&pbs, "Account_Name"), ["\"right\"", "\"other\"", "\"right\""]);
    assert_eq!(pbs.standings().len(), 3);
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n2\n", "{mapping} {history}");
    check(&pbs, 3);
}

#[test]
fn a_link_that_was_refused_waits_for_the_head_that_was_not() {
    the_second_link_is_refused("jobs", true);
    the_second_link_is_refused("jobs", false);
    the_second_link_is_refused("barrier", true);
}

#[test]
fn a_retry_that_was_refused_is_still_due_with_the_mended_plan() {
    let mut pbs = pbs();
    let code = "echo $HPCSWEEP_TRIAL >>$EVENTS; [ -e $EVENTS.mended ] || [ $HPCSWEEP_LINK != 0 ]";
    let plan = |links: [&str; 2]| {
        let rest = "[defaults]\ntask_id = 1\n";
        let trials =
            links.map(|account| format!("[[trials]]\nresources.account = \"{account}\"\n"));
        shell(code, &format!("{rest}{}", trials.concat()))
    };
    pbs.submit(&plan(["a", "a"]), &["-q"]).ok();
    pbs.wait_idle();
    let skipped = "skipped: its chain stopped: trial 0 failed";
    assert_eq!(pbs.standings(), ["failed: exit code 1", skipped]);
    // The head is taken and waits in the queue, its failure still on record; the link is refused.
    pbs.world.write("events.mended", "");
    pbs.world.write("events", "");
    pbs.set("scheduling", false);
    strict(&pbs, "-A wrong", 0, true);
    assert_eq!(pbs.submit(&plan(["a", "wrong"]), &["--retry", "-q"]).code, 3);
    pbs.submit(&plan(["a", "b"]), &["-q"]).ok();
    assert_eq!(arrays(&pbs, 3), ["5 after null wait [3]"]);
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.world.read("events"), "0\n1\n");
    assert_eq!(pbs.standings(), ["done"; 2]);
    assert_eq!(asked(&pbs, "Account_Name"), ["\"a\"", "\"a\"", "\"a\"", "\"b\""]);
}

#[test]
fn what_the_plan_no_longer_has_is_not_asked_for_after_a_refusal() {
    let pbs = pbs();
    strict(&pbs, "-A wrong", 0, true);
    assert_eq!(pbs.submit(&five("account = \"wrong\""), &["-q"]).code, 3);
    let fewer = |account: &str| five(account).replace("[0, 1, 2, 3, 4]", "[0, 1]");
    pbs.submit(&fewer("account = \"right\""), &["-q"]).ok();
    pbs.wait_idle();
    let mut expected = ["dropped: the plan no longer has it"; 5];
    expected[..2].fill("done");
    assert_eq!(pbs.standings(), expected);
    assert_eq!(pbs.names().len(), 1);
    // They come back with the plan.
    pbs.submit(&five("account = \"right\""), &["-q"]).ok();
    check(&pbs, 5);
}

#[test]
fn what_waits_or_runs_keeps_what_it_asked_for() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.submit(&five("walltime = \"1h\""), &["-q"]).ok();
    let ran = pbs.submit(&five("walltime = \"2h\""), &[]);
    assert_eq!(
        ran.whole(),
        "\
5 trials were submitted with another request and have not ended: they keep it, unless they are cancelled and \
submitted again with `--retry`
s: nothing new to submit (2 scheduler calls); 5 trials submitted before
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
"
    );
    pbs.set("scheduling", true);
    check(&pbs, 5);
    assert_eq!(asked(&pbs, "walltime"), ["\"01:00:00\""; 3]);
    // Ended jobs are not mentioned.
    let ran = pbs.again(&[]);
    assert!(ran.err.starts_with("s: nothing new to submit"), "{}", ran.whole());
}

#[test]
fn named_devices_stay_those_of_the_table() {
    let pbs = pbs();
    strict(&pbs, "-A wrong", 0, true);
    let plan = |account: &str, ids: &str| {
        let rest =
            format!("[resources]\naccount = \"{account}\"\n[[trials]]\ngpu_ids_abs = {ids}\n");
        shell("echo $HPCSWEEP_TRIAL >>$EVENTS; echo $CUDA_VISIBLE_DEVICES >>$EVENTS.gpus", &rest)
            + "[schedule]\ngpu_ids = \"count\"\n"
    };
    assert_eq!(pbs.submit(&plan("wrong", "[0]"), &["-q"]).code, 3);
    pbs.submit(&plan("right", "[0, 1]"), &["-q"]).ok();
    check(&pbs, 1);
    assert_eq!(asked(&pbs, "ngpus"), ["\"1\""]);
}

#[test]
fn killed_between_the_refusal_and_the_end_of_the_mended_submission() {
    for number in 2..=4 {
        for before in [true, false] {
            // The plan with one fix, or with a second one.
            for last in ["right", "other"] {
                let mut pbs = pbs();
                // A trial that has run already would not be asked for again anyway.
                pbs.set("scheduling", false);
                strict(&pbs, "-A wrong", 0, true);
                assert_eq!(pbs.submit(&five("account = \"wrong\""), &["-q"]).code, 3);
                strict(&pbs, "-A wrong", number, before);
                pbs.world.write("events.calls", "refused\n");
                let ran = pbs.submit(&five("account = \"right\""), &["-q"]);
                assert_eq!(ran.code, 137, "call {number} {before}");
                let there = if before { number - 2 } else { number - 1 } as usize;
                assert_eq!(pbs.names().len(), there);
                pbs.submit(&five(&format!("account = \"{last}\"")), &["-q"]).ok();
                // Existing jobs stay. New ones request what the plan says now.
                let mut expected = vec![format!("\"{last}\""); 3];
                expected[..there].fill("\"right\"".to_owned());
                assert_eq!(asked(&pbs, "Account_Name"), expected);
                pbs.set("scheduling", true);
                check(&pbs, 5);
            }
        }
    }
}

#[test]
fn a_plan_that_changes_between_kills_at_random_moments_runs_every_trial_once() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut kills, mut sweeps) = (0, 0);
    while kills < 12 {
        sweeps += 1;
        assert!(sweeps < 40, "only {kills} kills hit");
        let mut pbs = pbs();
        pbs.set("scheduling", sweeps % 3 == 0);
        for minutes in 1.. {
            pbs.world.write("plan.toml", &five(&format!("walltime = \"{minutes}m\"")));
            let mut started = pbs.world.start(&["submit", "plan.toml", "--pbs", "-q"]);
            if kills < 12 {
                std::thread::sleep(Duration::from_micros(dice.below(150_000)));
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
        assert_eq!((names.len(), names.iter().collect::<BTreeSet<_>>().len()), (3, 3), "{names:?}");
        pbs.set("scheduling", true);
        check(&pbs, 5);
    }
}
