//! PBS: every array is asked for once and every trial runs once, whatever becomes of the calls.

use crate::support::pbs::Pbs;
use crate::support::pbs_once::{check, meet, pbs, plan, wrap};
use crate::support::slurm::add_slurm;

/// The output and the exit code of a submission whose second call of qsub meets this fault.
fn with_fault(pbs: &mut Pbs, fault: &str) -> String {
    meet(pbs, fault);
    let ran = pbs.submit(&plan("s", 5), &[]);
    let token: serde_json::Value =
        serde_json::from_str(&pbs.world.read("results/s/sweep.json")).unwrap();
    ran.whole().replace(token["token"].as_str().unwrap(), "TOKEN")
}

const REST: &str = "\
array 2: 2 trials as job 1[].pbshead
array 3: 1 trial as job 2[].pbshead
s: 5 trials submitted as 3 arrays (6 scheduler calls)
jobs: 0[].pbshead 1[].pbshead 2[].pbshead
results: $WORLD/results/s
next: hpcsweep status results/s
exit code 0
";

#[test]
fn a_call_whose_answer_is_lost_is_found() {
    let mut pbs = pbs();
    let said = "\
array 1: `qsub` says: Connection timed out; looking for it
array 1: 2 trials as job 0[].pbshead
";
    assert_eq!(with_fault(&mut pbs, "lost"), format!("{said}{REST}"));
    check(&pbs, 5);
}

#[test]
fn a_call_that_fails_for_an_unknown_reason_is_looked_for() {
    let mut pbs = pbs();
    let said = "\
array 1: `qsub` says: the accounts of project 4711 do not answer; looking for it
array 1: 2 trials as job 0[].pbshead
";
    assert_eq!(with_fault(&mut pbs, "complains"), format!("{said}{REST}"));
    check(&pbs, 5);
}

#[test]
fn a_call_that_hangs_is_given_up_and_found() {
    let mut pbs = pbs();
    let said = "\
array 1: `qsub` gave no answer in time; looking for it
array 1: 2 trials as job 0[].pbshead
";
    assert_eq!(with_fault(&mut pbs, "hang"), format!("{said}{REST}"));
    check(&pbs, 5);
}

#[test]
fn a_banner_around_the_id_is_passed_over() {
    let mut pbs = pbs();
    let said = format!("array 1: 2 trials as job 0[].pbshead\n{}", REST.replace("(6 ", "(5 "));
    assert_eq!(with_fault(&mut pbs, "banner"), said);
    check(&pbs, 5);
}

#[test]
fn a_refused_connection_has_submitted_nothing() {
    let mut pbs = pbs();
    let said = "\
error: array 1 was not submitted: `qsub` says: Connection refused
  cannot connect to server pbshead (errno=15010)
  ran: qsub -f -v HPCSWEEP_JOB=$WORLD/results/s/jobs/s.TOKEN.1.sh $WORLD/results/s/jobs/s.TOKEN.1.sh
hint: nothing of this sweep is in the queue; fix it and run the same command again
exit code 3
";
    assert_eq!(with_fault(&mut pbs, "refused_connection"), said);
    assert!(pbs.jobs().is_empty());
    pbs.again(&[]).ok();
    check(&pbs, 5);
}

/// The answer is lost, and so is every answer to the question for the job.
fn nobody_can_tell(qstat: &str) {
    let mut pbs = pbs();
    let down = format!("case \"$*\" in *-[BQ]f*) real \"$@\" ;; *) {qstat} ;; esac");
    wrap(&pbs.world, "qstat", &down);
    let said = with_fault(&mut pbs, "lost");
    assert!(
        said.contains("cannot tell whether the scheduler has the job; nothing was submitted twice"),
        "{said}"
    );
    assert!(said.ends_with("exit code 3\n"), "{said}");
    assert_eq!(pbs.names().len(), 1);
    // Its answers arrive again.
    wrap(&pbs.world, "qstat", "real \"$@\"");
    let ran = pbs.again(&[]);
    assert!(
        ran.err.starts_with(
            "array 1: an earlier call has no answer; looking for it\narray 1: it is job 0[].pbshead\n"
        ),
        "{}",
        ran.whole()
    );
    check(&pbs, 5);
}

#[test]
fn while_nobody_can_tell_nothing_is_submitted_again() {
    nobody_can_tell("echo 'qstat: cannot connect to server pbshead (errno=15010)' >&2; exit 255");
}

#[test]
fn an_answer_that_cannot_be_read_is_none() {
    nobody_can_tell("printf '{\\n    \"timestamp\":17952\\n\\033[31mqstat: bad'");
}

#[test]
fn a_call_that_never_arrived_is_made_again() {
    let pbs = pbs();
    // The connection breaks before the server has the request.
    wrap(
        &pbs.world,
        "qsub",
        "[ -e $EVENTS.ok ] || { echo 'qsub: End of File' >&2; exit 1; }; real \"$@\"",
    );
    let ran = pbs.submit(&plan("s", 5), &[]);
    assert_eq!(ran.code, 3, "{}", ran.whole());
    assert!(
        ran.err.contains("not there yet; it may still arrive: waiting 1 s\n"),
        "{}",
        ran.whole()
    );
    assert!(pbs.jobs().is_empty());
    pbs.world.write("events.ok", "");
    pbs.again(&[]).ok();
    check(&pbs, 5);
}

/// JSON up to 23.06 makes numbers of what looks like one, and swallows variables.
#[test]
fn names_that_json_takes_for_numbers_are_found_again() {
    for (name, json) in [("1e5", "old"), ("007", "old"), ("1e5", "new"), ("1.5", "old")] {
        let mut pbs = pbs();
        pbs.config(|c| {
            c.insert("json".to_owned(), json.into());
            c.insert("qsub_fault".to_owned(), "lost".into());
        });
        // Each of the three calls loses its answer.
        let ran = pbs.submit(&plan(name, 5), &[]);
        assert_eq!(ran.code, 0, "{}", ran.whole());
        check(&pbs, 5);
        let names = pbs.names();
        assert_eq!(names.len(), 3);
        assert!(names[0].starts_with(&format!("s{name}.")), "{names:?}");
    }
}

#[test]
fn two_submissions_at_once_submit_every_array_once() {
    let pbs = pbs();
    pbs.world.write("plan.toml", &plan("s", 9));
    let submit = ["submit", "plan.toml", "--pbs", "-q"];
    let both: Vec<_> = (0..3).map(|_| pbs.world.start(&submit)).collect();
    let codes: Vec<i32> = both.into_iter().map(|started| started.end(&pbs.world).code).collect();
    assert!(codes.contains(&0), "{codes:?}");
    assert!(codes.iter().all(|code| [0, 4].contains(code)), "{codes:?}");
    assert_eq!(pbs.names().len(), 5);
    check(&pbs, 9);
}

#[test]
fn what_pbs_may_still_run_is_run_by_nobody_else() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    pbs.submit(&plan("s", 2), &[]).ok();
    add_slurm(&pbs.world);
    let here = "give the plan another `[sweep] name` to run it here";
    let there = "give the plan another `[sweep] name` to submit it with `--slurm`";
    let others: [(&[&str], &str); 4] = [
        (&["--local"], here),
        (&["--local", "--pull"], here),
        (&["--slurm"], there),
        (&["--slurm", "--retry"], there),
    ];
    let submit = |args: &[&str]| pbs.world.run(&[&["submit", "plan.toml"], args].concat());
    // Also what is new.
    pbs.world.write("plan.toml", &plan("s", 3));
    for (args, hint) in others {
        for rehearsed in [&["--dry-run"][..], &[]] {
            let ran = submit(&[args, rehearsed].concat());
            assert_eq!(
                ran.whole(),
                format!(
                    "error: 2 trials of this sweep are queued or running\n  $WORLD/results/s\n  seen by: qstat\n\
                     hint: wait for them (`hpcsweep status results/s`), or {hint}\nexit code 2\n"
                ),
                "{args:?}"
            );
        }
    }
    assert!(!pbs.world.read("calls").contains("sbatch"));
    // When they have ended, the rest may go anywhere.
    pbs.set("scheduling", true);
    pbs.wait_idle();
    pbs.world.run(&["submit", "plan.toml", "--slurm"]).ok();
    assert_eq!(pbs.standings()[..2], ["done", "done"]);
    let calls = pbs.world.read("calls");
    assert_eq!(calls.lines().filter(|call| call.starts_with("sbatch")).count(), 1, "{calls}");
}
