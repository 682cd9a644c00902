//! PBS: how trials end there: at their walltime, deleted, rerun by an operator, with their worker killed.

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use crate::support::faults::in_own_mounts;
use crate::support::faults::{FILLS, MEETS};
use crate::support::pbs::{Pbs, server};
use crate::support::pbs_waiting::worker;
use crate::support::pbs_waiting::{WAIT, begun, go, pbs, plan};
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, wait_until};

/// The attempts of a trial: number and state.
fn attempts(pbs: &Pbs, trial: u32) -> Vec<String> {
    let own = format!("{trial}.");
    let mut found = Vec::new();
    for file in pbs.world.files("results/s/records/000").iter().filter(|f| f.starts_with(&own)) {
        for line in pbs.world.read(&format!("results/s/records/000/{file}")).lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let number = &event["attempt"];
            match event["event"].as_str().unwrap() {
                "start" => found.push(format!("{number} starts")),
                "end" => found.push(format!("{number} {}", event["state"].as_str().unwrap())),
                _ => {}
            }
        }
    }
    found
}

#[test]
fn a_trial_has_its_time_and_the_time_to_save_before_pbs_kills() {
    let pbs = pbs(2);
    let code =
        "trap 'sleep 0.2; echo saved >>$EVENTS; exit 0' TERM; : >$EVENTS.0; sleep 600 & wait";
    pbs.submit(&shell(code, "[resources]\nwalltime = \"00:00:04\"\n"), &[]).ok();
    begun(&pbs, 0);
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["timeout: the wall-clock limit was reached"]);
    assert_eq!(pbs.world.read("events"), "saved\n");
    // PBS itself had nothing to kill.
    assert_eq!(pbs.jobs()["0[0].pbshead"]["Exit_status"], json!(143));
}

#[test]
fn what_a_trial_leaves_in_a_session_of_its_own_ends_with_it() {
    let pbs = pbs(2);
    let stray = "setsid sh -c 'echo $$ >>$EVENTS.strays; exec sleep 600' & sleep 0.01; setsid -f sh -c 'echo $$ >>$EVENTS.strays; exec sleep 600'
        until [ $(wc -l <$EVENTS.strays) -ge 2 ]; do sleep 0.01; done; ";
    // At its own end, and deleted.
    for deleted in [false, true] {
        pbs.world.write("events.strays", "");
        let name = if deleted { "deleted" } else { "ended" };
        let code = format!("{stray}{WAIT}");
        pbs.submit(&shell(&code, "").replace("\"s\"", &format!("\"{name}\"")), &[]).ok();
        wait_until("both strays run", || pbs.world.read("events.strays").lines().count() == 2);
        if deleted {
            pbs.world.call("qdel", &["1[]"]).ok();
        } else {
            go(&pbs, 0);
        }
        pbs.wait_idle();
        for pid in pbs.world.read("events.strays").lines() {
            assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} {name}");
        }
        std::fs::remove_file(pbs.world.path("events.go.0")).ok();
    }
}

#[test]
fn what_an_operator_runs_again_is_another_attempt() {
    let mut pbs = pbs(2);
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    pbs.submit(&plan(&[0, 0]), &[]).ok();
    begun(&pbs, 0);
    begun(&pbs, 1);
    std::fs::remove_file(pbs.world.path("events.0")).unwrap();
    pbs.world.call("qrerun", &["0[0]"]).ok();
    begun(&pbs, 0);
    // Once more, and this time its worker cannot write down why it ended.
    std::fs::remove_file(pbs.world.path("events.0")).unwrap();
    kill(worker(&pbs, 0), Signal::SIGSTOP).unwrap();
    pbs.world.call("qrerun", &["0[0]"]).ok();
    begun(&pbs, 0);
    assert_eq!(pbs.standings(), ["running", "running"]);
    (0..2).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 2]);
    assert_eq!(attempts(&pbs, 0), ["1 starts", "1 interrupted", "2 starts", "3 starts", "3 done"]);
    assert_eq!(attempts(&pbs, 1), ["1 starts", "1 done"]);
}

#[test]
fn an_element_that_was_done_is_not_run_again_by_an_operator() {
    let mut pbs = pbs(2);
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    // The job lives a moment longer than its trial. If it is requeued then, nothing runs twice.
    let chain = plan(&[0, 0]).replace("[[trials]]", "[[trials]]\ntask_id = 1");
    pbs.submit(&format!("{chain}[schedule]\nchains = \"fused\"\n"), &[]).ok();
    begun(&pbs, 0);
    go(&pbs, 0);
    begun(&pbs, 1);
    std::fs::remove_file(pbs.world.path("events.0")).unwrap();
    std::fs::remove_file(pbs.world.path("events.1")).unwrap();
    pbs.world.call("qrerun", &["0[0]"]).ok();
    begun(&pbs, 1);
    go(&pbs, 1);
    pbs.wait_idle();
    assert!(!pbs.world.exists("events.0"), "the first link ran again");
    assert_eq!(attempts(&pbs, 0), ["1 starts", "1 done"]);
    assert_eq!(attempts(&pbs, 1), ["1 starts", "1 interrupted", "2 starts", "2 done"]);
    assert_eq!(pbs.standings(), ["done"; 2]);
}

#[test]
fn a_killed_worker_is_told_by_pbs_or_lost() {
    for (history, expected) in [
        (true, "failed: the scheduler says exit status 137"),
        (false, "lost: it began, and the scheduler no longer knows it"),
    ] {
        let mut pbs = pbs(2);
        pbs.set("history", history);
        pbs.submit(&plan(&[0, 0]), &[]).ok();
        begun(&pbs, 0);
        begun(&pbs, 1);
        kill(worker(&pbs, 0), Signal::SIGKILL).unwrap();
        wait_until("the element has ended", || pbs.jobs()["0[0].pbshead"]["job_state"] == "X");
        // Without a history nothing of it is known from here on, though its array lives.
        let alive = if history { expected } else { "lost: it began, and left no end" };
        assert_eq!(pbs.standings(), [alive, "running"]);
        go(&pbs, 1);
        pbs.wait_idle();
        assert_eq!(pbs.standings(), [expected, "done"]);
        go(&pbs, 0);
        pbs.again(&["--retry"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.standings(), ["done"; 2]);
        assert_eq!(attempts(&pbs, 0), ["1 starts", "2 starts", "2 done"]);
    }
}

#[test]
fn a_fused_chain_whose_worker_was_killed_goes_on_where_it_broke() {
    let pbs = pbs(2);
    let chain = plan(&[0, 0, 0]).replace("[[trials]]", "[[trials]]\ntask_id = 1");
    pbs.submit(&format!("{chain}[schedule]\nchains = \"fused\"\n"), &[]).ok();
    go(&pbs, 0);
    begun(&pbs, 1);
    assert_eq!(pbs.standings(), ["done", "running", "queued: behind the trial before it"]);
    kill(worker(&pbs, 1), Signal::SIGKILL).unwrap();
    pbs.wait_idle();
    assert_eq!(
        pbs.standings(),
        [
            "done",
            "failed: the scheduler says exit status 1",
            "skipped: its chain stopped: trial 1 left no end",
        ]
    );
    (1..3).for_each(|trial| go(&pbs, trial));
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 3]);
    assert_eq!(pbs.world.column("attempts"), ["1", "2", "1"]);
    assert_eq!(pbs.states().len(), 2);
}

#[test]
fn a_walltime_of_a_fused_chain_is_that_of_all_its_links() {
    let pbs = pbs(2);
    // Both links together fit; each has its own clock.
    let code = "trap 'echo told $HPCSWEEP_TRIAL >>$EVENTS; exit 0' TERM; [ $HPCSWEEP_TRIAL = 1 ] || exit 0; sleep 600 & wait";
    let rest = "[resources]\nwalltime = \"00:00:04\"\n[schedule]\nchains = \"fused\"\n[defaults]\ntask_id = 1\n[grid]\na = [0, 1, 2]\n";
    pbs.submit(&shell(code, rest), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.jobs()["0[].pbshead"]["Resource_List"]["walltime"], "00:00:12");
    assert_eq!(
        pbs.standings(),
        [
            "done",
            "timeout: the wall-clock limit was reached",
            "skipped: its chain stopped: trial 1 ran into its walltime",
        ]
    );
    assert_eq!(pbs.world.read("events"), "told 1\n");
}

/// The end of a trial meets a full disk: it waits for room, and what is packed behind it runs.
#[test]
fn an_element_whose_disk_fills_up_loses_no_result() {
    let (world, _) = Pbs::place();
    std::fs::create_dir(world.path("results")).unwrap();
    // One element: another that begins while the disk is full waits, too.
    let code = format!("[ $HPCSWEEP_TRIAL = 0 ] || {{ echo ran >>ran; exit 0; }}; {FILLS}");
    let rest = "[schedule]\npack = 2\n[grid]\na = [1, 2]\n";
    world.write("plan.toml", &shell(&code, rest));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        {}
        '{PROGRAM}' submit plan.toml --pbs -q || exit 91
        {MEETS}
        rm results/filler
        counts() {{ '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'; }}
        while counts | grep -q 'running\\|queued'; do sleep 0.01; done; counts
        '{PROGRAM}' collect --steps --format csv | tail -n +2 | sort | uniq -c | tr -s ' '
        '{PROGRAM}' submit plan.toml --pbs 2>&1 | head -1",
        server()
    );
    let Some(ran) = in_own_mounts(&world, &script) else { panic!("no mounts") };
    let expected = "\
\"counts\":{\"done\":2}
 2000 0,,1
s: nothing new to submit (2 scheduler calls); 2 trials submitted before
exit code 0
";
    assert_eq!(ran.whole(), expected);
    assert_eq!(world.read("ran"), "ran\nran\n");
}
