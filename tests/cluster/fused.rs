//! `[schedule] chains = "fused"` on a real Slurm, and taking back, holding and releasing what was submitted.

use std::collections::BTreeMap;

use crate::kills::requeue;
use crate::world::{BOTH, Cluster, World};

const CHAINS: &str = "[schedule]\nchains = \"fused\"\n[defaults]\ntask_id = \"c{{ chain }}\"\n[grid]\nchain = [0, 1]\nstep = [0, 1, 2]";

#[test]
fn a_fused_chain_runs_in_one_job_link_by_link() {
    for cluster in BOTH {
        let world = World::new(cluster, "fused");
        let script = "echo $HPCSWEEP_TRIAL >>$HERE/ran; [ $HPCSWEEP_TRIAL != 4 ] || exit 3";
        world.plan(script, CHAINS);
        world.count_calls();
        world.submit().ok();
        // One array for all links of both chains.
        assert_eq!((world.calls(), world.jobs().len()), (1, 1));
        let status = world.finished();
        let mut expected = vec!["done".to_owned(); 6];
        expected[4] = "failed: exit code 3".into();
        expected[5] = "skipped: its chain stopped: trial 4 failed".into();
        assert_eq!(status.standings(), expected, "{}", world.report());
        let ran = world.lines("ran");
        let of = |chain: &[&str]| -> Vec<String> {
            ran.iter().filter(|t| chain.contains(&t.as_str())).cloned().collect()
        };
        assert_eq!(
            (of(&["0", "1", "2"]), of(&["3", "4", "5"])),
            (
                vec!["0".to_owned(), "1".to_owned(), "2".to_owned()],
                vec!["3".to_owned(), "4".to_owned()],
            )
        );
    }
}

#[test]
fn a_requeued_chain_goes_on_from_the_link_that_broke() {
    let world = World::new(Cluster::Accounting, "fused-again");
    let script = "
        echo $HPCSWEEP_TRIAL $HPCSWEEP_ATTEMPT >>$HERE/ran
        [ $HPCSWEEP_TRIAL$HPCSWEEP_ATTEMPT != 11 ] || exec sleep 300";
    world.plan(script, &CHAINS.replace("[0, 1]\n", "[0]\n"));
    world.submit().ok();
    world.until_lines("ran", 2);
    let status = world.status();
    assert_eq!(status.states(), ["done", "running", "queued"], "{}", world.report());
    requeue(&world, &format!("{}_0", world.jobs()[0]));
    let status = world.until("done", || {
        let status = world.status();
        (status.states() == ["done", "done", "done"]).then_some(status)
    });
    assert_eq!(status.code, 0);
    assert_eq!(world.lines("ran"), ["0 1", "1 1", "1 2", "2 1"]);
}

#[test]
fn what_was_submitted_can_be_held_released_and_taken_back() {
    for cluster in BOTH {
        let world = World::new(cluster, "taken-back");
        world.plan(
            "echo $HPCSWEEP_TRIAL >>$HERE/ran; exec sleep 300",
            "[resources]\nmemory = \"50M\"\ndirectives = [\"--begin=now+1hour\"]\n[grid]\nx = [0, 1, 2]",
        );
        world.submit().ok();
        let job = world.jobs()[0].clone();
        let say = |verb: &str, rest: &[&str]| {
            let mut args = vec![verb];
            args.extend(rest);
            world.hpcsweep(&args).ok().stderr
        };
        let held = say("hold", &["results/taken-back"]);
        assert_eq!(
            held,
            format!(
                "taken-back: held 3 trials: {job}\nuntil `hpcsweep release results/taken-back`, nothing more of it is submitted\n"
            )
        );
        let status = world.status();
        assert!(
            status.standings().iter().all(|s| s.contains("JobHeld")),
            "{:?}",
            status.standings()
        );
        let one = say("cancel", &["results/taken-back", "--trial", "1"]);
        assert_eq!(one, format!("taken-back: cancelled 1 trial: {job}_1\n"));
        let released = say("release", &["results/taken-back"]);
        assert_eq!(released, format!("taken-back: released 2 trials: {job}\n"));
        let now = format!("jobid={job}");
        world.call("/usr/bin/scontrol", &["update", &now, "starttime=now"]);
        world.until("running", || (world.lines("ran").len() == 2).then_some(()));
        let all = say("cancel", &["results/taken-back"]);
        assert_eq!(all, format!("taken-back: cancelled 2 trials: {job}\n"));
        let status = world.finished();
        let counts = [("cancelled".to_owned(), 1), ("interrupted".to_owned(), 2)];
        assert_eq!(status.counts(), BTreeMap::from(counts), "{}", world.report());
        let nothing = say("cancel", &["results/taken-back"]);
        assert_eq!(nothing, "taken-back: nothing of it is queued or running\n");
    }
}

/// A hook that does not end keeps a job in which nothing is left to run.
#[test]
fn a_job_whose_hook_runs_is_taken_back_and_its_trial_stays_done() {
    for cluster in BOTH {
        let world = World::new(cluster, "hooked");
        let said = world.path("hooked").display().to_string();
        let hook = format!("finish = [\"sh\", \"-c\", \"echo hooked >>'{said}'; exec sleep 300\"]");
        world.plan(
            "echo $HPCSWEEP_TRIAL >>$HERE/ran",
            &format!("[hooks]\n{hook}\ntimeout = \"10m\"\n[grid]\nx = [0]"),
        );
        world.submit().ok();
        let job = world.jobs()[0].clone();
        world.until_lines("hooked", 1);
        let ran = world.hpcsweep(&["cancel", "results/hooked"]).ok();
        let expected = format!("hooked: cancelled the job of 1 trial that has ended: {job}\n");
        assert_eq!(ran.stderr, expected);
        world.until("the job has gone", || {
            world
                .call("/usr/bin/squeue", &["-h", "-j", &job, "-o", "%T"])
                .trim()
                .is_empty()
                .then_some(())
        });
        assert_eq!(world.finished().states(), ["done"], "{}", world.report());
        assert_eq!(world.lines("ran"), ["0"]);
    }
}
