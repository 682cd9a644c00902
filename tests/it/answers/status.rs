//! `status`: the tree and the scheduler's answer combined, in one call, each trial counted once.

use serde_json::{Value, json};

use crate::support::plans::shell;
use crate::support::slurm::slurm;
use crate::support::slurm_sweep::{TRIALS, answer, element, submitted};
use crate::support::world::{PROGRAM, World, wait_until};

/// Runs the first element of an array, whose jobs are 101 and so on; its exit code.
fn job(world: &World, array: u32) -> i32 {
    let mut command = world.command("bash");
    command.arg(world.path(&format!("results/s/jobs/{array:04}.sh")));
    for name in ["SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"] {
        command.env(name, (100 + array).to_string());
    }
    command.env("SLURM_ARRAY_TASK_ID", "0").env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
    command.output().unwrap().status.code().unwrap()
}

fn by_trial(status: &Value) -> Vec<String> {
    let trials = status["trials"].as_array().unwrap();
    let word =
        |t: &Value| format!("{}: {}", t["state"].as_str().unwrap(), t["reason"].as_str().unwrap());
    trials.iter().map(word).collect()
}

#[test]
fn the_queue_is_asked_once_and_an_unknown_word_is_shown_as_it_is() {
    let world = submitted();
    element(&world, 0);
    element(&world, 1);
    answer(
        &world,
        "squeue",
        "banner of the site\n101_2|RUNNING|None|x\n101_3|HIBERNATING|None|x\n101_[4-5]|PENDING|Resources|x\n",
    );
    let status = world.status();
    assert_eq!(
        by_trial(&status),
        [
            "done: ",
            "failed: exit code 1",
            "running: ",
            "hibernating: ",
            "queued: Resources",
            "queued: Resources"
        ]
    );
    assert_eq!(
        status["counts"],
        json!({"done": 1, "failed": 1, "hibernating": 1, "queued": 2, "running": 1})
    );
    assert_eq!((&status["witness"], &status["scheduler_calls"]), (&json!("squeue"), &json!(1)));
    assert_eq!(world.read("calls").lines().count(), 1, "{}", world.read("calls"));
}

#[test]
fn what_has_not_begun_in_a_job_that_completes_does_not_run() {
    let world = slurm();
    let rest = "[grid]\na = [0, 1]\n[schedule]\npack = 2\n";
    world.write("plan.toml", &shell("kill -TERM $PPID; exec sleep 1000", rest));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    element(&world, 0);
    let first = "interrupted: the worker got SIGTERM";
    for (job, second) in [
        ("RUNNING", "running: "),
        ("COMPLETING", "queued: its job is ending"),
        ("CANCELLED", "cancelled: cancelled before it began"),
    ] {
        answer(&world, "squeue", &format!("101_0|{job}|None|x\n"));
        assert_eq!(by_trial(&world.status()), [first, second], "{job}");
    }
}

/// Options come and go with the versions of Slurm: `status` does without those that are refused.
#[test]
fn a_refused_option_of_squeue_does_not_end_a_verb() {
    let world = submitted();
    element(&world, 0);
    world.program(
        "squeue",
        "#!/bin/sh\nfor word; do case $word in --array* | --states*)\n\
         echo \"squeue: unrecognized option '$word'\" >&2\n\
         echo 'Try \"squeue --help\" for more information' >&2; exit 1;; esac; done\n\
         echo '101_[1-5]|PENDING|Resources|x'\n",
    );
    let status = world.status();
    let waits = "queued: Resources";
    assert_eq!(by_trial(&status), ["done: ", waits, waits, waits, waits, waits]);
    assert_eq!((&status["witness"], &status["scheduler_calls"]), (&json!("squeue"), &json!(3)));
    let ran = world.run(&["submit", "plan.toml", "--slurm", "--retry"]);
    assert!(ran.err.contains("nothing new to submit"), "{}", ran.whole());
}

/// The queue is empty, and a trial ends after its record was looked for and before the accounting answers.
#[test]
fn what_has_ended_by_the_time_of_half_an_answer_is_not_lost() {
    let world = slurm();
    let config = world.read("bin/scontrol").replace("storage/none", "storage/slurmdbd");
    world.program("scontrol", &config);
    world.program("sacctmgr", "#!/bin/sh\n");
    world.write("plan.toml", &shell("exit $HPCSWEEP_PARAM_A", TRIALS));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    world.program("squeue", "#!/bin/sh\necho 'squeue: error: no route' >&2\nexit 1\n");
    world.program(
        "sacct",
        "#!/bin/sh\nexport SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_JOB_ID=101 SLURM_JOB_ID=102\n\
         SLURM_PROCID=0 SLURM_NTASKS=1 bash results/s/jobs/0001.sh >/dev/null 2>&1\n\
         echo '101_0|COMPLETED|None|x'; echo '101_[1-5]|PENDING|None|x'\n",
    );
    let status = world.status();
    assert_eq!(by_trial(&status)[..2], ["done: ", "queued: PENDING"], "{status}");
    assert_eq!(status["witness"], "sacct alone (`squeue` says: no route)");
}

#[test]
fn a_job_that_the_scheduler_forgot_is_lost_unless_its_record_says_more() {
    let world = submitted();
    element(&world, 0);
    answer(&world, "squeue", "");
    let status = world.status();
    let lost = "lost: the scheduler no longer knows it";
    assert_eq!(by_trial(&status), ["done: ", lost, lost, lost, lost, lost]);
    assert_eq!(world.run(&["status"]).code, 1);
}

/// Slurm with accounting, and a sweep of one trial that it has as job 101.
fn with_accounting(code: &str) -> World {
    with_accounting_of(code, "")
}

/// The same with more lines of its plan.
fn with_accounting_of(code: &str, rest: &str) -> World {
    let world = slurm();
    let config = world.read("bin/scontrol").replace("storage/none", "storage/slurmdbd");
    world.program("scontrol", &config);
    world.program("sacctmgr", "#!/bin/sh\n");
    world.write("code", code);
    let grid = if rest.contains("[grid]") { "" } else { "[grid]\na = [1]\n" };
    world.write("plan.toml", &shell(". ./code", &format!("{rest}{grid}")));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "squeue", "");
    world
}

/// Each way to look sees it, whether it keeps the records of trials that were done at once or not.
#[test]
fn success_that_the_accounting_contradicts_is_doubtful_for_all_readers() {
    let world = with_accounting("true\n");
    element(&world, 0);
    answer(&world, "sacct", "101_0|OUT_OF_MEMORY|None|x\n");
    let doubtful = "doubtful: recorded as done, but the scheduler says OUT_OF_MEMORY";
    assert_eq!(by_trial(&world.status()), [doubtful]);
    let plain = world.run(&["status"]);
    assert!(plain.code == 1 && plain.out.contains("  doubtful       1\n"), "{}", plain.whole());
    let table = world.run(&["collect", "--format", "csv", "--columns", "state"]);
    assert_eq!(table.out, "state\ndoubtful\n");
    // It ran outside of that job: nothing contradicts it.
    let world = with_accounting("true\n");
    answer(&world, "sacct", "101_0|NODE_FAIL|None|x\n");
    world.run(&["submit", "plan.toml", "--local", "--retry"]).ok();
    assert_eq!(by_trial(&world.status()), ["done: "]);
    let plain = world.run(&["status"]);
    assert!(plain.code == 0 && plain.out.contains("  done        1\n"), "{}", plain.whole());
    let table = world.run(&["collect", "--format", "csv", "--columns", "state"]);
    assert_eq!(table.out, "state\ndone\n");
}

/// What its first attempt said is not the last word: the second job tells more.
#[test]
fn a_later_job_that_ends_before_its_worker_begins_says_why() {
    let world = with_accounting("kill -TERM $PPID; exec sleep 600\n");
    element(&world, 0);
    answer(&world, "sacct", "101_0|FAILED|None|x\n");
    let stopped = by_trial(&world.status());
    assert!(stopped[0].starts_with("interrupted: "), "{stopped:?}");
    world.program("sbatch", "#!/bin/sh\necho 102\n");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
    answer(&world, "sacct", "101_0|FAILED|None|x\n102_0|NODE_FAIL|None|x\n");
    let status = world.status();
    assert_eq!(status["trials"][0]["cause"], "node-failure", "{status}");
}

/// The commands can be copied: they answer.
#[test]
fn a_sweep_that_is_over_names_the_commands_for_its_results() {
    let said = |world: &World, args: &[&str]| -> Vec<String> {
        let page = world.run(&[&["status"], args].concat()).out;
        let line = page.lines().find_map(|line| line.strip_prefix("for the results: "));
        line.map_or(Vec::new(), |line| line.split("; ").map(str::to_owned).collect())
    };
    let world = World::new();
    let code = "echo \"{\\\"epoch\\\": 1, \\\"val acc\\\": 0.$HPCSWEEP_PARAM_A}\" >>$HPCSWEEP_METRICS; exit $HPCSWEEP_PARAM_B";
    world.local(&shell(code, "[zip]\na = [1, 2, 3]\nb = [0, 0, 1]\n"), &["-q"]);
    let best = "hpcsweep best --metric 'val acc' --max";
    assert_eq!(said(&world, &[]), ["hpcsweep collect", best, "hpcsweep report"]);
    let named = said(&world, &["results/s"]);
    assert!(named.iter().all(|command| command.contains(" results/s")), "{named:?}");
    for command in [said(&world, &[]), named].concat() {
        let ran = world.call("sh", &["-c", &command.replace("hpcsweep", PROGRAM)]);
        assert!(ran.code < 2, "{command}: {}", ran.whole());
    }
    assert!(said(&world, &["--failed"]).is_empty());
    // Elsewhere, a file is written for a sweep that is named.
    std::fs::create_dir(world.path("elsewhere")).unwrap();
    let page = world.run_in(&world.text_path("elsewhere"), &["status"]).out;
    assert!(page.contains("; hpcsweep report $WORLD/results/s\n"), "{page}");
    // Without numbers none is the best, and without results there is nothing to see.
    world.write("plan.toml", &shell("true", "[grid]\na = [1, 2]\n").replace("\"s\"", "\"t\""));
    world.run(&["submit", "plan.toml", "--local", "-q"]).ok();
    let plain = said(&world, &["results/t"]);
    assert_eq!(plain, ["hpcsweep collect results/t", "hpcsweep report results/t"]);
    let world = World::new();
    world.local(&shell("exit 1", ""), &["-q"]);
    assert!(said(&world, &[]).is_empty());
    assert!(said(&submitted(), &[]).is_empty());
}

/// Only the newest job of a trial is asked about, and the accounting forgets: what was known of the earlier one is kept.
#[test]
fn the_cause_of_an_attempt_is_kept_when_its_trial_is_submitted_again() {
    let world = with_accounting("[ -e mended ] || { kill -TERM $PPID; exec sleep 600; }\n");
    element(&world, 0);
    answer(&world, "sacct", "101_0|PREEMPTED|None|x\n");
    world.program("sbatch", "#!/bin/sh\necho 102\n");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
    let causes = |world: &World| -> (String, String) {
        let why: Value =
            serde_json::from_str(world.run(&["why", "0", "--json", "--offline"]).ok()).unwrap();
        let attempts = why["attempts"].as_array().unwrap();
        let all: Vec<&str> =
            attempts.iter().map(|own| own["cause"].as_str().unwrap_or("-")).collect();
        let table = ["collect", "--attempts", "--format", "csv", "--columns", "cause", "--offline"];
        (all.join(" "), world.run(&table).out.lines().skip(1).collect::<Vec<_>>().join(" "))
    };
    answer(&world, "sacct", "102_0|PENDING|None|x\n");
    assert_eq!(causes(&world), ("preempted".to_owned(), "preempted".to_owned()));
    // The second job vanished before it began, and the accounting has forgotten both.
    answer(&world, "sacct", "");
    assert_eq!(world.status()["trials"][0]["cause"], "preempted");
    world.write("mended", "");
    assert_eq!(job(&world, 2), 0);
    let (why, table) = causes(&world);
    assert_eq!((why.as_str(), table.as_str()), ("preempted -", "preempted \"\""));
    let events = world.run(&["why"]).ok().to_owned();
    assert!(events.contains("submitted again after: preempted: trial 0"), "{events}");
}

/// A worker that was lost with its node leaves no end: the words of the scheduler are the reason.
#[test]
fn the_reason_of_an_attempt_without_an_end_is_kept_too() {
    let world = with_accounting("[ -e mended ] || { kill -KILL $PPID; exit; }\n");
    element(&world, 0);
    answer(&world, "sacct", "101_0|NODE_FAIL|None|x\n");
    world.program("sbatch", "#!/bin/sh\necho 102\n");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
    world.write("mended", "");
    assert_eq!(job(&world, 2), 0);
    let why: Value = serde_json::from_str(world.run(&["why", "0", "--json"]).ok()).unwrap();
    let first = &why["attempts"][0];
    let said = "the scheduler says NODE_FAIL";
    assert_eq!(
        (&first["cause"], &first["reason"]),
        (&json!("node-failure"), &json!(said)),
        "{why}"
    );
}

/// A child of a program was killed for its memory, and the program was done all the same. Slurm says OUT_OF_MEMORY. The record is
/// final: nobody runs the trial again, and nobody claims to.
#[test]
fn what_is_recorded_as_done_is_not_repeated_whatever_the_accounting_says() {
    let rules = "[resources]\nmemory = \"1G\"\n\
                 [retry]\nauto = true\noom = { memory = \"x2\", up_to = \"8G\" }\n";
    let world = with_accounting_of("true\n", rules);
    element(&world, 0);
    answer(&world, "sacct", "101_0|OUT_OF_MEMORY|None|x\n");
    let doubtful = "doubtful: recorded as done, but the scheduler says OUT_OF_MEMORY";
    assert_eq!(by_trial(&world.status()), [doubtful]);
    assert_eq!(job(&world, 2), 0, "{}", world.read("results/s/logs/jobs/0002/0.log"));
    let events = world.run(&["why"]).ok().to_owned();
    assert!(events.contains("done: trial 0") && !events.contains("retried"), "{events}");
    let status = world.run(&["status"]);
    assert!(!status.out.contains("to run them again"), "{}", status.whole());
}

/// Slurm ends the chain behind such a trial. It goes on, once: what fails there itself is not repeated for ever.
#[test]
fn behind_a_success_that_slurm_contradicts_the_chain_goes_on_once() {
    let rules = "[defaults]\ntask_id = 1\n[resources]\nmemory = \"1G\"\n[grid]\na = [1, 2]\n\
                 [retry]\nauto = true\nmax = 2\noom = { memory = \"x2\", up_to = \"8G\" }\n";
    let world = with_accounting_of("exit $((HPCSWEEP_PARAM_A - 1))\n", rules);
    let jobs = || world.files("results/s/jobs").len();
    let before = jobs();
    assert_eq!(job(&world, 1), 0);
    let sacct = "101_0|OUT_OF_MEMORY|None|x\n102_0|CANCELLED|None|x\n";
    answer(&world, "sacct", sacct);
    let doubtful = "doubtful: recorded as done, but the scheduler says OUT_OF_MEMORY";
    assert_eq!(by_trial(&world.status())[0], doubtful);
    assert_eq!(job(&world, 3), 0, "{}", world.read("results/s/logs/jobs/0003/0.log"));
    // An array of trial 1 alone, and the feeder that looks at it.
    assert_eq!(jobs(), before + 2);
    assert_eq!(job(&world, 4), 1);
    answer(&world, "sacct", &format!("{sacct}104_0|FAILED|NonZeroExitCode|x\n"));
    assert_eq!(job(&world, 5), 0, "{}", world.read("results/s/logs/jobs/0005/0.log"));
    assert_eq!(by_trial(&world.status()), [doubtful, "failed: exit code 1"]);
    assert_eq!((jobs(), world.column("attempts")), (before + 2, vec!["1".to_owned(); 2]));
}

/// Of the two commands one answers: it is the other one that has to be mended.
#[test]
fn half_an_answer_names_the_command_that_is_silent() {
    let world = with_accounting("exit 3\n");
    element(&world, 0);
    world.program("sacct", "#!/bin/sh\necho 'sacct: error: no answer' >&2\nexit 1\n");
    let half = "squeue alone (`sacct` says: no answer)";
    assert_eq!(
        world.run(&["retry"]).whole(),
        format!(
            "error: cannot tell which trials are still queued or running\n  {half}\n\
             hint: nothing was submitted; run the same command again when the scheduler answers\nexit code 3\n"
        )
    );
}

/// The job of a trial has failed, and another process has run the trial since: its end is no end of that job.
#[test]
fn the_end_of_an_earlier_job_contradicts_no_later_attempt() {
    for way in [&["--local"][..], &["--pull", "--local"]] {
        let world = with_accounting("kill -9 $$\n");
        element(&world, 0);
        answer(&world, "sacct", "101_0|FAILED|NonZeroExitCode|x\n");
        let killed = "failed: signal 9 (SIGKILL)";
        assert_eq!(by_trial(&world.status()), [killed]);
        // The log of that job does not explain a later attempt either.
        let again = [&["submit", "plan.toml", "--retry"], way].concat();
        let ran = world.run(&again);
        assert_eq!(ran.code, 1, "{}", ran.whole());
        let log = "results/s/logs/jobs/0001/0.log";
        world.write(log, "slurmstepd: error: Detected 1 oom_kill event\n");
        assert_eq!(by_trial(&world.status()), [killed]);
        world.write("code", "until [ -e go ]; do sleep 0.01; done\nkill -9 $PPID");
        if way.len() == 1 {
            // It runs, whatever the accounts say, and is interrupted if its executor is killed.
            let own = world.start(&[&again[..], &["-q"]].concat());
            wait_until("it runs", || by_trial(&world.status()) == ["running: "]);
            own.signal(nix::sys::signal::Signal::SIGKILL);
            own.end(&world);
            world.write("go", "");
            let is_over = || by_trial(&world.status())[0].starts_with("interrupted: ");
            wait_until("it was interrupted", is_over);
        }
        world.write("code", "true\n");
        world.run(&again).ok();
        assert_eq!(by_trial(&world.status()), ["done: "]);
        let best = ["best", "--metric", "attempts", "--max", "--json"];
        assert!(world.run(&best).ok().contains("\"trial\":0"));
    }
}

#[test]
fn a_scheduler_that_does_not_answer_contradicts_nothing() {
    let world = submitted();
    element(&world, 0);
    world.program(
        "squeue",
        "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n",
    );
    let status = world.status();
    let queued = "queued: the scheduler was not asked";
    assert_eq!(by_trial(&status), ["done: ", queued, queued, queued, queued, queued]);
    assert!(
        status["witness"].as_str().unwrap().starts_with("the results tree alone (`squeue` says: "),
        "{status}"
    );
    // The same without asking.
    let offline = world.run(&["status", "--json", "--offline"]);
    let offline: Value = serde_json::from_str(offline.ok()).unwrap();
    assert_eq!(offline["counts"], json!({"done": 1, "queued": 5}));
    assert_eq!(offline["scheduler_calls"], 0);
}

#[test]
fn chains_and_trials_are_shown_when_asked_for() {
    let world = World::new();
    let code = "exit $HPCSWEEP_PARAM_CODE";
    let rest = "[[trials]]\ntask_id = \"a\"\ncode = 0\n[[trials]]\ntask_id = \"a\"\ncode = 3\n\
                [[trials]]\ntask_id = \"a\"\ncode = 0\n[[trials]]\ncode = 0\n";
    assert_eq!(world.local(&shell(code, rest), &[]).code, 1);
    let ran = world.run(&["status", "--chains"]);
    let chains = "
chain  task_id  links  done  now
    0  a            3     1  failed
    1  -            1     1  done
";
    assert!(ran.out.contains(chains), "{}", ran.out);
    let ran = world.run(&["status", "--trials"]);
    let shown: Vec<Vec<&str>> = ran
        .out
        .lines()
        .skip_while(|l| !l.starts_with("trial"))
        .map(|l| l.split_whitespace().filter(|w| !w.contains('.') && *w != "s").collect())
        .collect();
    assert_eq!(shown[0], ["trial", "task_id", "link", "state", "time", "host", "job", "reason"]);
    assert_eq!(shown[1][..4], ["0", "a", "0", "done"]);
    assert_eq!(shown[2][..4], ["1", "a", "1", "failed"]);
    assert_eq!(shown[2][5..], ["exit", "code", "3"]);
    assert_eq!(shown[3].join(" "), "2 a 2 skipped its chain stopped: trial 1 failed");
    assert_eq!(shown[4][..3], ["3", "0", "done"]);
}

#[test]
fn a_sweep_in_a_schedulers_hands_is_not_run_here_too() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    assert_eq!(
        world.run(&["submit", "plan.toml", "--local"]).whole(),
        "\
error: 6 trials of this sweep are queued or running
  $WORLD/results/s
  seen by: squeue
hint: wait for them (`hpcsweep status results/s`), or give the plan another `[sweep] name` to run it here
exit code 2
"
    );
    assert_eq!(world.files("results/s/records"), Vec::<String>::new());
    // A scheduler that cannot be asked may still run them.
    world.program("squeue", "#!/bin/sh\nexit 1\n");
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert!(ran.code == 2 && ran.err.contains("queued or running"), "{}", ran.whole());
    // A trial that the scheduler no longer knows and that has not run runs here.
    element(&world, 0);
    answer(&world, "squeue", "");
    let ran = world.run(&["submit", "plan.toml", "--local"]);
    assert!(ran.err.starts_with("s: 5 trials to run on this machine"), "{}", ran.whole());
}

/// Slurm forgets at once what is cancelled before it began: `cancel` remembers it.
#[test]
fn what_was_cancelled_in_the_queue_is_not_lost_when_the_scheduler_forgets_it() {
    let world = submitted();
    world.program("scancel", "#!/bin/sh\nexit 0\n");
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    world.run(&["cancel", "--trial", "2", "--trial", "4", "results/s"]).ok();
    element(&world, 0);
    answer(&world, "squeue", "101_[1,3]|PENDING|Resources|x\n");
    let cancelled = "cancelled: cancelled before it began";
    let lost = "lost: the scheduler no longer knows it";
    let waits = "queued: Resources";
    let states = ["done: ", waits, cancelled, waits, cancelled, lost];
    assert_eq!(by_trial(&world.status()), states);

    // Brought back, it is the scheduler's again.
    world.program("sbatch", "#!/bin/sh\necho 102\n");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
    answer(&world, "squeue", "101_[1,3]|PENDING|Resources|x\n102_[0-2]|PENDING|Priority|x\n");
    let waits_again = "queued: Priority";
    assert_eq!(
        by_trial(&world.status()),
        ["done: ", waits, waits_again, waits, waits_again, waits_again]
    );
}

/// The journal does not record refused calls, so a trial that continues does not count as cancelled or held.
#[test]
fn what_slurm_refuses_to_take_back_or_hold_is_told_and_can_be_asked_for_again() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    let journal = || {
        let files = world.files("results/s/journal");
        files.iter().map(|f| world.read(&format!("results/s/journal/{f}"))).collect::<String>()
    };
    let before = journal();
    let refusal = "Access/permission denied";
    let scontrol = world.read("bin/scontrol");
    for client in ["scancel", "scontrol"] {
        let text = format!("#!/bin/sh\necho '{client}: error: {refusal}' >&2\nexit 1\n");
        world.program(client, &text);
    }
    for (verb, call, reason) in [
        ("cancel", "scancel 101", "Resources"),
        ("hold", "scontrol hold 101", "Resources"),
        ("release", "scontrol release 101", "JobHeldUser"),
    ] {
        answer(&world, "squeue", &format!("101_[0-5]|PENDING|{reason}|x\n"));
        let client = call.split(' ').next().unwrap();
        let expected = format!("error: `{client}` says: {refusal}\n  ran: {call}\nexit code 3\n");
        assert_eq!(world.run(&[verb, "results/s"]).whole(), expected);
        assert_eq!(by_trial(&world.status()), vec![format!("queued: {reason}"); 6]);
    }
    assert_eq!(journal(), before);
    // Trials that the scheduler no longer knows were not cancelled.
    answer(&world, "squeue", "");
    assert_eq!(by_trial(&world.status()), ["lost: the scheduler no longer knows it"; 6]);
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    world.program("scancel", "#!/bin/sh\nexit 0\n");
    world.program("scontrol", &scontrol);
    world.run(&["hold", "results/s"]).ok();
    world.run(&["cancel", "results/s"]).ok();
    answer(&world, "squeue", "");
    assert_eq!(by_trial(&world.status()), ["cancelled: cancelled before it began"; 6]);
}

/// A sweep of 16,000 trials in the hands of a Slurm that takes them as one array.
fn sixteen_thousand() -> World {
    let world = slurm();
    let large = world.read("bin/scontrol").replace("= 1001", "= 20001").replace("10000", "100000");
    world.program("scontrol", &large);
    world.write("plan.toml", &shell("true", "[replicates]\ncount = 16000\n"));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    world
}

/// Linux starts no program with a word of more than 128 KiB, and `scontrol` takes all ids as one word.
#[test]
fn fifteen_thousand_elements_are_held_released_and_cancelled_in_calls_that_can_be_made() {
    let world = sixteen_thousand();
    for client in ["scancel", "scontrol"] {
        world.program(client, "#!/bin/sh\nprintf '%s\\n' \"${0##*/} $*\" >>told\n");
    }
    let named: Vec<String> = (0..15_000).map(|trial| format!("--trial={trial}")).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let expected: Vec<String> = (0..15_000).map(|index| format!("101_{index}")).collect();
    for (verb, call, reason) in [
        ("hold", "scontrol hold", "Resources"),
        ("release", "scontrol release", "JobHeldUser"),
        ("cancel", "scancel", "Resources"),
    ] {
        answer(&world, "squeue", &format!("101_[0-15999]|PENDING|{reason}|x\n"));
        world.write("told", "");
        let ran = world.run(&[&[verb], &named[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.whole());
        let shown = format!(" 15,000 trials: {} and 14,980 more\n", expected[..20].join(" "));
        assert!(ran.err.starts_with("s: ") && ran.err.ends_with(&shown), "{}", ran.err);
        let told = world.read("told");
        let ids = told.lines().map(|line| line.strip_prefix(call).unwrap().trim());
        assert!(ids.clone().all(|ids| ids.len() < 128 << 10), "{verb}");
        let ids: Vec<&str> = ids.flat_map(|ids| ids.split([' ', ','])).collect();
        assert_eq!(ids, expected, "{verb}");
    }
    // Several calls about one array are recorded as one.
    answer(&world, "squeue", "");
    let counts = json!({"cancelled": 15_000, "lost": 1000});
    assert_eq!(world.status()["counts"], counts);
}

/// Slurm refuses one job of the first call; those of the others are taken back all the same.
#[test]
fn a_refusal_in_one_of_several_calls_keeps_no_other_from_being_made() {
    let world = sixteen_thousand();
    let refusal = "Kill job error on job id 101_0: Access/permission denied";
    world.program(
        "scancel",
        &format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" >>told\n[ \"$1\" = 101_0 ] || exit 0\n\
             echo 'scancel: error: {refusal}' >&2\nexit 1\n"
        ),
    );
    let named: Vec<String> = (0..15_000).map(|trial| format!("--trial={trial}")).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    answer(&world, "squeue", "101_[0-15999]|PENDING|Resources|x\n");
    let ran = world.run(&[&["cancel"], &named[..]].concat());
    assert_eq!(ran.code, 3, "{}", ran.whole());
    assert!(ran.err.starts_with(&format!("error: `scancel` says: {refusal}\n")), "{}", ran.err);
    let expected: Vec<String> = (0..15_000).map(|index| format!("101_{index}")).collect();
    assert_eq!(world.read("told").lines().collect::<Vec<_>>(), expected);
    answer(&world, "squeue", "101_0|PENDING|Resources|x\n101_[15000-15999]|PENDING|Resources|x\n");
    assert_eq!(world.status()["counts"], json!({"cancelled": 14_999, "queued": 1001}));
}

/// A sweep that is held stays held: nothing more of it is submitted, however it has changed.
#[test]
fn nothing_more_of_a_sweep_that_is_held_is_submitted() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    let scontrol = world.read("bin/scontrol");
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    let stays = "until `hpcsweep release results/s`, nothing more of it is submitted\n";
    let ran = world.run(&["hold"]);
    assert_eq!(ran.whole(), format!("s: held 6 trials: 101\n{stays}exit code 0\n"));
    world.program("scontrol", &scontrol);
    let user = hpcsweep::base::host::vars::user_name();
    let refused = format!(
        "error: s is held by {user}\nhint: `hpcsweep release results/s` continues it; then submit it again\nexit code 2\n"
    );
    let plan = world.read("plan.toml");
    world.write("plan.toml", &plan.replace("a = [", "a = [77, "));
    for how in [
        &["--slurm"][..],
        &["--slurm", "--retry"],
        &["--slurm", "--dry-run"],
        &["--local", "--pull"],
    ] {
        assert_eq!(
            world.run(&[&["submit", "plan.toml"], how].concat()).whole(),
            refused,
            "{how:?}"
        );
    }
    // A sweep whose jobs were released in another way is still held.
    answer(&world, "squeue", "101_[0-5]|RUNNING|None|x\n");
    let ran = world.run(&["release"]);
    assert_eq!(ran.whole(), "s: released: it can be submitted again\nexit code 0\n");
    assert_eq!(world.run(&["release"]).whole(), "s: nothing of it is held\nexit code 0\n");
    let ran = world.run(&["submit", "plan.toml", "--slurm"]);
    assert!(ran.err.contains("s: 1 trial submitted as 1 array"), "{}", ran.whole());
    // It holds, too, where all of it runs; and ends when the sweep is taken back.
    let ran = world.run(&["hold"]);
    assert_eq!(ran.whole(), format!("s: nothing of it waits to begin\n{stays}exit code 0\n"));
    world.program("scancel", "#!/bin/sh\nexit 0\n");
    world.run(&["cancel"]).ok();
    answer(&world, "squeue", "");
    world.run(&["submit", "plan.toml", "--slurm", "--retry"]).ok();
}

#[test]
fn single_trials_that_are_held_hold_up_no_submission() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    let scontrol = world.read("bin/scontrol");
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    let ran = world.run(&["hold", "--trial", "1"]);
    assert_eq!(ran.whole(), "s: held 1 trial: 101_1\nexit code 0\n");
    world.program("scontrol", &scontrol);
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
}

/// New links of a chain wait for a failed head that was requeued, with `--retry` and without.
#[test]
fn what_grows_behind_a_requeued_job_waits_for_it() {
    let plan = |values: &str| {
        let rest =
            format!("on_failure = \"continue\"\n[defaults]\ntask_id = 1\n[grid]\na = [{values}]\n");
        shell("exit 3", &rest)
    };
    for (word, waits) in [("PENDING|BeginTime", true), ("FAILED|NonZeroExitCode", false)] {
        let world = slurm();
        world.write("plan.toml", &plan("1"));
        world.run(&["submit", "plan.toml", "--slurm"]).ok();
        element(&world, 0);
        answer(&world, "squeue", &format!("101_0|{word}|x\n"));
        world.write("plan.toml", &plan("1, 2"));
        let dry = world.run(&["submit", "plan.toml", "--slurm", "--dry-run", "--json"]);
        let dry: Value = serde_json::from_str(&dry.out).unwrap();
        assert_eq!(dry["arrays"][0]["wait"] == serde_json::json!([1]), waits, "{word}: {dry}");
        let ran = world.run(&["submit", "plan.toml", "--slurm"]);
        assert_eq!(
            ran.err.contains("1 trial as job 101, after 101"),
            waits,
            "{word}: {}",
            ran.whole()
        );
    }
}

/// A scheduler that does not answer may hold jobs: nothing is called released.
#[test]
fn what_is_held_stays_held_while_its_scheduler_does_not_answer() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    world.run(&["hold"]).ok();
    world.program("squeue", "#!/bin/sh\necho 'slurm_load_jobs error: no answer' >&2\nexit 1\n");
    for args in [&["release"][..], &["release", "--trial", "1"]] {
        let user = hpcsweep::base::host::vars::user_name();
        let said = format!(
            "error: cannot tell which jobs of s are held; seen by: the results tree alone (`squeue` says: no answer); \
             held by {user}\nhint: try again\nexit code 3\n"
        );
        assert_eq!(world.run(args).whole(), said);
    }
    answer(&world, "squeue", "101_[0-5]|PENDING|JobHeldUser|x\n");
    assert_eq!(world.run(&["release"]).whole(), "s: released 6 trials: 101\nexit code 0\n");
}

/// The accounts do not know of a hold as soon as the queue does: what they leave out may be held.
#[test]
fn what_half_an_answer_leaves_out_may_be_held() {
    let world = slurm();
    let config = world
        .read("bin/scontrol")
        .replace("accounting_storage/none", "accounting_storage/slurmdbd");
    world.program("scontrol", &config);
    let sixteen = "[grid]\na = [0, 1, 2, 3]\nresources.memory = [\"1G\", \"2G\"]\n";
    world.write("plan.toml", &shell("true", sixteen));
    world.program("sacct", "#!/bin/sh\n");
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    let queue = |reason: &str| {
        let lines = format!("101_[0-3]|PENDING|{reason}|x\n102_[0-3]|PENDING|{reason}|x\n");
        answer(&world, "squeue", &lines);
    };
    queue("Resources");
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    world.run(&["hold"]).ok();
    world.program("squeue", "#!/bin/sh\necho 'slurm_load_jobs error: no answer' >&2\nexit 1\n");
    answer(&world, "sacct", "101_[0-3]|PENDING|JobHeldUser|x\n102_[0-3]|PENDING|None|x\n");
    let user = hpcsweep::base::host::vars::user_name();
    let said = format!(
        "error: released 1 job, but cannot tell which other jobs of s are held; \
         seen by: sacct alone (`squeue` says: no answer); held by {user}\n\
         hint: try again\nexit code 3\n"
    );
    assert_eq!(world.run(&["release"]).whole(), said);
    let first = world.run(&["release", "--trial", "0"]).whole();
    assert_eq!(first, "s: released 1 trial: 101_0\nexit code 0\n");
    queue("JobHeldUser");
    assert_eq!(world.run(&["release"]).whole(), "s: released 8 trials: 102 101\nexit code 0\n");
}

#[test]
fn readers_say_who_holds_a_sweep() {
    let world = submitted();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n");
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    let user = hpcsweep::base::host::vars::user_name();
    world.run(&["hold"]).ok();
    for verb in [&["status"][..], &["watch", "--once"]] {
        let ran = world.run(verb);
        assert!(
            ran.out.contains(&format!("\nseen by: squeue; held by {user}\n")),
            "{}",
            ran.whole()
        );
    }
    world.run(&["release"]).ok();
    let ran = world.run(&["status"]);
    assert!(ran.out.contains("\nseen by: squeue\n"), "{}", ran.whole());
}

/// Of several jobs of which it refuses one, Slurm takes the others back.
#[test]
fn what_was_taken_back_beside_a_refusal_is_cancelled() {
    let world = submitted();
    world.write("plan.toml", &world.read("plan.toml").replace("a = [", "a = [77, "));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "squeue", "101_[0-5]|PENDING|Resources|x\n102_0|PENDING|Resources|x\n");
    let refusal = "Kill job error on job id 102: Access/permission denied";
    world.program("scancel", &format!("#!/bin/sh\necho 'scancel: error: {refusal}' >&2\nexit 1\n"));
    let ran = world.run(&["cancel"]);
    assert_eq!(ran.code, 3, "{}", ran.whole());
    assert!(ran.err.starts_with(&format!("error: `scancel` says: {refusal}\n")), "{}", ran.err);
    answer(&world, "squeue", "102_0|PENDING|Resources|x\n");
    let mut expected = ["cancelled: cancelled before it began"; 7];
    expected[6] = "queued: Resources";
    assert_eq!(by_trial(&world.status()), expected);
}

/// What waits for another job or for room was never held.
#[test]
fn only_what_is_held_is_released() {
    let world = submitted();
    world.program("scontrol", "#!/bin/sh\nexit 0\n");
    element(&world, 0);
    let waits =
        "101_1|PENDING|Dependency|x\n101_2|PENDING|JobArrayTaskLimit|x\n101_3|RUNNING|None|x\n";
    answer(&world, "squeue", waits);
    let nothing = "s: nothing of it is held\nexit code 0\n";
    for args in [&["release"][..], &["release", "--trial", "1", "--trial", "2"]] {
        assert_eq!(world.run(args).whole(), nothing);
    }
    for held in ["JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue"] {
        answer(&world, "squeue", &format!("{waits}101_4|PENDING|{held}|x\n"));
        let ran = world.run(&["release"]);
        assert_eq!(ran.whole(), "s: released 1 trial: 101\nexit code 0\n", "{held}");
        let ran = world.run(&["release", "--trial", "2", "--trial", "4"]);
        assert_eq!(ran.whole(), "s: released 1 trial: 101_4\nexit code 0\n", "{held}");
    }
}

/// A hook that does not end keeps a job in which nothing is left to run.
#[test]
fn a_job_that_runs_after_its_trial_has_ended_is_cancelled() {
    let world = submitted();
    element(&world, 0);
    element(&world, 1);
    answer(&world, "scancel", "");
    let squeue = |text: &str| {
        world.program("squeue", &format!("#!/bin/sh\ncat <<'END'\n{text}END\n"));
    };
    squeue("101_0|RUNNING|None|x\n101_1|RUNNING|None|x\n101_2|PENDING|Resources|x\n");
    let ran = world.run(&["cancel", "--trial", "0"]);
    assert_eq!(ran.whole(), "s: cancelled the job of 1 trial that has ended: 101_0\nexit code 0\n");
    let ran = world.run(&["cancel"]);
    let all = "s: cancelled 1 trial and the jobs of 2 trials that have ended: 101\nexit code 0\n";
    assert_eq!(ran.whole(), all);
    squeue("101_0|COMPLETING|None|x\n101_1|FAILED|None|x\n101_2|CANCELLED|None|x\n");
    for trial in [0, 2] {
        let ran = world.run(&["cancel", "--trial", &trial.to_string()]);
        assert_eq!(ran.whole(), format!("s: trial {trial} has ended\nexit code 0\n"));
    }
    assert_eq!(by_trial(&world.status())[..2], ["done: ", "failed: exit code 1"]);
    assert_eq!(world.read("calls"), "scancel 101_0\nscancel 101\n");
}

/// An element of a whole chain ends as its failed trial did, which does not affect the others.
#[test]
fn the_failure_of_one_link_casts_no_doubt_on_a_link_before_it() {
    let world = slurm();
    let chains =
        "[schedule]\nchains = \"fused\"\n[defaults]\ntask_id = \"t\"\n[grid]\na = [0, 3, 0]\n";
    world.write("plan.toml", &shell("exit $HPCSWEEP_PARAM_A", chains));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    element(&world, 0);
    answer(&world, "squeue", "101_0|FAILED|NonZeroExitCode|x\n");
    let states = ["done: ", "failed: exit code 3", "skipped: its chain stopped: trial 1 failed"];
    assert_eq!(by_trial(&world.status()), states);
}

#[test]
fn the_hints_of_a_status_can_be_copied_from_where_it_was_asked() {
    let world = slurm();
    let plan = shell("exit 3", "[grid]\na = [0, 1]\n");
    let last = |args: &[&str]| {
        let ran = world.run(&[&["status"], args].concat());
        let lines: Vec<&str> = ran.out.lines().rev().take(2).collect();
        format!("{}\n{}", lines[1], lines[0])
    };
    let folder = "my 1st";
    world.write(&format!("{folder}/plan.toml"), &plan);
    world.run(&["submit", "my 1st/plan.toml", "--local"]);
    let (own, shown) = ("my 1st/results/s", "'my 1st/results/s'");
    let printed = format!("what trial 0 printed: hpcsweep logs 0 {shown}");
    let again = "to run them again: hpcsweep submit 'my 1st/plan.toml' --local --retry";
    assert_eq!(last(&[own]), format!("    {printed}\n{again}"));
    let ran = world.run_in(folder, &["status"]);
    let copied =
        "printed: hpcsweep logs 0\nto run them again: hpcsweep submit plan.toml --local --retry\n";
    assert!(ran.out.ends_with(copied), "{}", ran.out);
    // It is the command that does it.
    let copied = again[again.find("submit").unwrap()..].to_owned();
    assert_eq!(world.call("sh", &["-c", &format!("'{PROGRAM}' {copied}")]).code, 1);
    assert!(world.exists("my 1st/results/s/records/000/0.2.jsonl"));

    // Agents, and a scheduler.
    let plan = plan.replace("name = \"s\"", "name = \"p\"");
    world.write("plan.toml", &plan);
    world.run(&["submit", "plan.toml", "--local", "--pull"]);
    let pull = last(&["results/p"]);
    assert!(pull.ends_with("again: hpcsweep submit plan.toml --local --pull --retry"), "{pull}");
    // Agents had it; others have it now.
    world.run(&["submit", "plan.toml", "--local", "--retry"]);
    let here = last(&["results/p"]);
    assert!(here.ends_with("again: hpcsweep submit plan.toml --local --retry"), "{here}");
    // A plan that asks for agents itself.
    let own = plan.replace("name = \"p\"", "name = \"o\"");
    world.write("plan.toml", &format!("{own}[schedule]\nmode = \"pull\"\n"));
    world.run(&["submit", "plan.toml", "--local"]);
    let own = last(&["results/o"]);
    assert!(own.ends_with("again: hpcsweep submit plan.toml --local --retry"), "{own}");
    world.write("plan.toml", &plan.replace("name = \"p\"", "name = \"q\""));
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    answer(&world, "squeue", "101_0|FAILED|NonZeroExitCode|x\n101_1|FAILED|NonZeroExitCode|x\n");
    let slurm = last(&["results/q"]);
    assert!(slurm.ends_with("again: hpcsweep submit plan.toml --slurm --retry"), "{slurm}");
    // A plan that is gone cannot be submitted.
    std::fs::remove_file(world.path("plan.toml")).unwrap();
    let gone = last(&["results/q"]);
    assert!(
        gone.ends_with("to run them again: the same `hpcsweep submit`, with --retry"),
        "{gone}"
    );
}

/// A trial that was cancelled before it began has printed nothing: `logs` of it is an error.
#[test]
fn a_status_names_only_logs_that_are_there() {
    let world = submitted();
    let hint = |squeue: &str| {
        answer(&world, "squeue", squeue);
        let ran = world.run(&["status"]);
        let lines = ran.out.lines().map(str::trim).filter(|line| line.starts_with("what trial"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let all = "101_[0-5]|CANCELLED|None|x\n";
    assert_eq!(hint(all), [""; 0]);
    // Its job had something to say.
    world.write("results/s/logs/jobs/0001/2.log", "no such module\n");
    let second = "what trial 2 printed: hpcsweep logs 2";
    assert_eq!(hint(all), [second]);
    assert!(world.run(&["logs", "2"]).ok().contains("no such module"));
    element(&world, 4);
    assert_eq!(hint(all), [second, "what trial 4 printed: hpcsweep logs 4"]);
}

/// Slurm kills all processes of a step that is out of memory, the worker among them: its record has no end.
#[test]
fn a_job_that_was_killed_for_its_memory_says_so() {
    let world = slurm();
    // Trial 0 takes its worker with it; of trial 1 the worker has seen the signal.
    let code = "[ {{ a }} = 0 ] && kill -9 $PPID; kill -9 $$";
    let plan = shell(code, "[resources]\nmemory = \"2G\"\n[grid]\na = [0, 1]\n");
    world.write("plan.toml", &plan);
    world.run(&["submit", "plan.toml", "--slurm"]).ok();
    element(&world, 0);
    element(&world, 1);
    answer(
        &world,
        "squeue",
        "101_0|OUT_OF_MEMORY|OutOfMemory|x\n101_1|OUT_OF_MEMORY|OutOfMemory|x\n",
    );
    let why = "failed: out of memory: the whole job was killed, 2G asked for";
    assert_eq!(by_trial(&world.status())[0], why);
    answer(&world, "squeue", "101_0|FAILED|NonZeroExitCode|x\n101_1|FAILED|NonZeroExitCode|x\n");
    let other = ["failed: the scheduler says FAILED", "failed: signal 9"];
    let said = by_trial(&world.status());
    assert!(said[0] == other[0] && said[1].starts_with(other[1]), "{said:?}");
    // `status` reads the jobs' logs when the queue has forgotten the jobs.
    let said = "slurmstepd: error: Detected 1 oom_kill event in StepId=101.batch. Some of the step tasks have been OOM Killed.";
    world.write("results/s/logs/jobs/0001/0.log", &format!("starting\n{said}\n"));
    world.write("results/s/logs/jobs/0001/1.log", &format!("{said}\n"));
    answer(&world, "squeue", "");
    let told = format!("{why} ({said})");
    assert_eq!(by_trial(&world.status()), [told.clone(), told.clone()]);
    // PBS writes the same of every resource.
    let said = "=>> PBS: job killed: vmem 2147484kb exceeded limit 2097152kb";
    world.write("results/s/logs/jobs/0001/0.log", &format!("{said}\n"));
    let limit = "=>> PBS: job killed: walltime 125 exceeded limit 60";
    world.write("results/s/logs/jobs/0001/1.log", &format!("{limit}\n"));
    let now = by_trial(&world.status());
    assert_eq!(now[0], format!("{why} ({said})"));
    assert!(now[1].starts_with("failed: signal 9"), "{now:?}");
    world.write("results/s/logs/jobs/0001/1.log", &format!("{said}\n"));
    let table = world.run(&["collect", "--format", "csv"]);
    assert!(
        table.out.lines().filter(|line| line.contains(",failed,")).count() == 2,
        "{}",
        table.whole()
    );
}

/// Before 23.02 Slurm does not tell a job when it ends: the job script does, and no element asks.
#[test]
fn an_element_without_a_walltime_asks_nobody_for_the_end_of_its_job() {
    let world = slurm();
    let scontrol = world.read("bin/scontrol");
    let check = |default: &str, state: &str| {
        world.program(
            "scontrol",
            &scontrol.replace("DefaultTime=NONE", &format!("DefaultTime={default}")),
        );
        let plan = shell("exec sleep {{ a }}", "[grid]\na = [600]\n");
        let plan = if state == "done" { plan.replace("600", "0") } else { plan };
        let name = format!("name = \"{state}\"");
        world.write("plan.toml", &plan.replace("name = \"s\"", &name));
        world.write("calls", "");
        world.run(&["submit", "plan.toml", "--slurm"]).ok();
        let mut command = world.command("bash");
        command
            .arg(world.path(&format!("results/{state}/jobs/0001.sh")))
            .env("SLURM_ARRAY_TASK_ID", "0");
        command.env("SLURM_ARRAY_JOB_ID", "101").env("SLURM_JOB_ID", "101");
        command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "1");
        command.output().unwrap();
        let calls = world.read("calls");
        assert!(!calls.contains("--format=%L"), "{calls}");
        let record = world.read(&format!("results/{state}/records/000/0.1.jsonl"));
        assert!(record.contains(&format!("\"{state}\"")), "{record}");
    };
    check("00:00:04", "timeout");
    check("NONE", "done");
}

/// Lines of users' text end at a newline; a carriage return before it belongs to the text.
#[test]
fn a_carriage_return_at_the_end_of_a_line_is_kept_where_it_means_something() {
    let world = World::new();
    let code = "printf 'a\\r\\nb\\rc\\r\\n'; printf '{\"loss\": 1}\\r\\n{\"loss\": 2}\\r\\n' >>\"$HPCSWEEP_METRICS\"; \
                [ \"$HPCSWEEP_PARAM_P\" = \"$(printf 'x\\r')\" ]";
    let plan = shell(code, "[grid]\np = [\"x\\r\"]\n");
    let folder = "odd\r";
    world.write(&format!("{folder}/plan.toml"), &plan);
    let ran = world.run_in(folder, &["submit", "plan.toml", "--local", "-q"]);
    assert_eq!(ran.code, 0, "{}", ran.whole());
    // The sweep that was submitted last is found by its name.
    let output = world.command(PROGRAM).args(["logs", "0"]).output().unwrap();
    assert_eq!(output.stdout, b"a\r\nb\rc\r\n", "{}", String::from_utf8_lossy(&output.stderr));
    let row = &world.table(&[])[0];
    assert_eq!((&row["p"], &row["loss"]), (&json!("x\r"), &json!(2)));
    assert_eq!(world.status()["unread_lines"], 0);
}
