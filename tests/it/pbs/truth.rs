//! PBS: what it says of elements that were deleted, ended, or forgotten, and how the sweep stands all the same.

use serde_json::json;

use crate::support::pbs_waiting::{begun, end, go, pbs, plan};

#[test]
fn an_element_deleted_while_it_waited_is_cancelled() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0; 4]), &[]).ok();
    begun(&pbs, 0);
    pbs.world.call("qdel", &["0[2]"]).ok();
    let waits = "queued: Q";
    assert_eq!(pbs.standings(), ["running", waits, "cancelled: it ended before it began", waits]);
    (0..4).for_each(|trial| go(&pbs, trial));
    pbs.wait_idle();
    // PBS says now that it has ended with exit status 0.
    assert_eq!(pbs.jobs()["0[2].pbshead"]["Exit_status"], json!(0));
    let expected = ["done", "done", "cancelled: it ended before it began", "done"];
    assert_eq!(pbs.standings(), expected);
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 4]);
    assert_eq!(pbs.world.column("attempts"), ["1"; 4]);
}

#[test]
fn deleting_an_array_changes_nothing_of_what_has_ended() {
    let pbs = pbs(1);
    pbs.submit(&plan(&[0, 7, 0, 0]), &[]).ok();
    begun(&pbs, 0);
    end(&pbs, 0, "0[0].pbshead");
    begun(&pbs, 1);
    end(&pbs, 1, "0[1].pbshead");
    begun(&pbs, 2);
    assert_eq!(pbs.standings(), ["done", "failed: exit code 7", "running", "queued: Q"]);
    pbs.world.call("qdel", &["0[]"]).ok();
    pbs.wait_idle();
    // PBS has forgotten that the first was well.
    assert_eq!(pbs.jobs()["0[0].pbshead"]["Exit_status"], json!(1));
    assert_eq!(
        pbs.standings(),
        [
            "done",
            "failed: exit code 7",
            "interrupted: the worker got SIGTERM",
            "cancelled: it ended before it began",
        ]
    );
}

#[test]
fn the_last_element_to_end_decides_nothing() {
    for (codes, expected) in
        [([3, 0], ["failed: exit code 3", "done"]), ([0, 3], ["done", "failed: exit code 3"])]
    {
        let pbs = pbs(2);
        pbs.submit(&plan(&codes), &[]).ok();
        begun(&pbs, 0);
        begun(&pbs, 1);
        end(&pbs, 0, "0[0].pbshead");
        end(&pbs, 1, "0[1].pbshead");
        pbs.wait_idle();
        assert_eq!(pbs.jobs()["0[].pbshead"]["Exit_status"], json!(u32::from(codes[1] > 0)));
        assert_eq!(pbs.standings(), expected);
    }
}

#[test]
fn without_a_history_an_array_lies_of_its_elements_while_it_lives_and_is_forgotten() {
    let mut pbs = pbs(1);
    pbs.set("history", false);
    pbs.submit(&plan(&[0, 7, 0, 0]), &[]).ok();
    begun(&pbs, 0);
    pbs.world.call("qdel", &["0[3]"]).ok();
    end(&pbs, 0, "0[0].pbshead");
    begun(&pbs, 1);
    end(&pbs, 1, "0[1].pbshead");
    begun(&pbs, 2);
    // The element that was well has the array's exit status now.
    assert_eq!(pbs.jobs()["0[0].pbshead"]["Exit_status"], json!(1));
    let known = ["done", "failed: exit code 7"];
    let status = pbs.standings();
    assert_eq!(status[..2], known);
    assert_eq!(status[2..], ["running", "cancelled: it ended before it began"]);
    end(&pbs, 2, "0[2].pbshead");
    pbs.wait_idle();
    assert!(pbs.jobs().is_empty());
    let status = pbs.standings();
    assert_eq!(status[..2], known);
    // Neither PBS nor a record says any more why the last job has left nothing.
    assert_eq!(status[2..], ["done", "lost: the scheduler no longer knows it"]);
    // `status` does not ask for ended jobs.
    go(&pbs, 3);
    pbs.world.write("events.go.1", "");
    pbs.submit(&plan(&[0, 7, 0, 0]), &["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done", "failed: exit code 7", "done", "done"]);
    let status = pbs.world.status();
    assert_eq!(status["witness"], "the results tree alone: every trial has ended");
    assert_eq!(status["scheduler_calls"], 0);
}

#[test]
fn what_has_vanished_is_lost_and_can_be_run_again() {
    for history in [true, false] {
        let mut pbs = pbs(4);
        pbs.set("history", history);
        pbs.set("scheduling", false);
        pbs.submit(&plan(&[0, 0]), &[]).ok();
        assert_eq!(pbs.standings(), ["queued: Q", "queued: Q"]);
        // With its history, whose time may be over.
        pbs.world.call("qdel", &["-x", "0[]"]).ok();
        let lost = "lost: the scheduler no longer knows it";
        assert_eq!(pbs.standings(), [lost, lost]);
        pbs.set("scheduling", true);
        (0..2).for_each(|trial| go(&pbs, trial));
        pbs.again(&["--retry"]).ok();
        pbs.wait_idle();
        assert_eq!(pbs.standings(), ["done"; 2]);
    }
}

#[test]
fn a_chain_whose_head_was_deleted_says_so() {
    let pbs = pbs(4);
    let chain = plan(&[0, 0, 0]).replace("[[trials]]", "[[trials]]\ntask_id = 1");
    pbs.submit(&chain, &[]).ok();
    begun(&pbs, 0);
    // Not by us, and not what waits for it: that finds out for itself.
    pbs.world.call("qdel", &["0"]).ok();
    pbs.wait_idle();
    assert_eq!(
        pbs.standings(),
        [
            "interrupted: the worker got SIGTERM",
            "skipped: its chain stopped: trial 0 was interrupted",
            "skipped: its chain stopped: trial 1 was skipped",
        ]
    );
    (0..3).for_each(|trial| go(&pbs, trial));
    pbs.again(&["--retry"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 3]);
    assert_eq!(pbs.world.column("attempts"), ["2", "1", "1"]);
}

#[test]
fn a_chain_deleted_before_its_head_began_says_so() {
    let mut pbs = pbs(4);
    pbs.set("scheduling", false);
    let chain = plan(&[0, 0]).replace("[[trials]]", "[[trials]]\ntask_id = 1");
    pbs.submit(&chain, &[]).ok();
    pbs.world.call("qdel", &["0"]).ok();
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(
        pbs.standings(),
        ["cancelled: deleted before it began", "skipped: its chain stopped: trial 0 has not run"]
    );
}

#[test]
fn a_scheduler_that_does_not_answer_is_said_and_changes_nothing() {
    let mut pbs = pbs(1);
    pbs.submit(&plan(&[0, 0]), &[]).ok();
    begun(&pbs, 0);
    for fault in ["down", "garbage"] {
        pbs.set("qstat_fault", fault);
        assert_eq!(pbs.standings(), ["running", "queued: the scheduler was not asked"]);
        let witness = pbs.world.status()["witness"].as_str().unwrap().to_owned();
        assert!(witness.starts_with("the results tree alone (`qstat` says"), "{witness}");
        let ran = pbs.again(&["--retry"]);
        assert_eq!(ran.code, 3, "{}", ran.whole());
    }
    assert_eq!(pbs.names().len(), 1);
}
