//! PBS: ranks on several hosts, started by the available Open MPI through `hpcsweep launch`.

use crate::support::pbs::Pbs;
use crate::support::plans::shell;
use crate::support::world::wait_until;

/// A server with two hosts, and an Open MPI that lets root start something.
fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    let events = pbs.world.text_path("events");
    pbs.world.set("EVENTS", &events);
    pbs.world.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    pbs.world.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    pbs
}

/// A plan of one trial with so many ranks on two hosts.
fn plan(code: &str, ranks: u32) -> String {
    shell(code, &format!("[resources]\nnodes = 2\nranks = {ranks}\n"))
}

/// The lines that the ranks have written, sorted.
fn events(pbs: &Pbs) -> Vec<String> {
    let text = pbs.world.read("events");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn ranks_on_two_hosts_know_who_they_are() {
    let pbs = pbs();
    let code =
        "echo $RANK of $WORLD_SIZE, $LOCAL_RANK on $PBS_NODENUM, trial $HPCSWEEP_TRIAL >>$EVENTS
        echo \"{\\\"r\\\": $RANK}\" >>$HPCSWEEP_METRICS";
    // Two elements, whose ranks must not meet each other.
    pbs.submit(&format!("{}[grid]\na = [0, 1]\n", plan(code, 4)), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 2]);
    let expected: Vec<String> =
        ["0 of 4, 0 on 0", "1 of 4, 1 on 0", "2 of 4, 0 on 1", "3 of 4, 1 on 1"]
            .iter()
            .flat_map(|rank| [format!("{rank}, trial 0"), format!("{rank}, trial 1")])
            .collect();
    assert_eq!(events(&pbs), expected);
    assert_eq!(pbs.world.column("attempts"), ["1", "1"]);
}

#[test]
fn ranks_that_do_not_divide_are_spread_over_the_hosts() {
    let pbs = pbs();
    pbs.submit(&plan("echo $RANK of $WORLD_SIZE on $PBS_NODENUM >>$EVENTS", 3), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    assert_eq!(events(&pbs), ["0 of 3 on 0", "1 of 3 on 0", "2 of 3 on 1"]);
}

#[test]
fn one_rank_a_host_runs_on_each() {
    let pbs = pbs();
    let code = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK on $PBS_NODENUM >>$EVENTS";
    let rest = "[resources]\nnodes = 2\nranks_per_node = 1\n";
    pbs.submit(&shell(code, rest), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    assert_eq!(events(&pbs), ["0 of 2, 0 on 0", "1 of 2, 0 on 1"]);
}

#[test]
fn ranks_that_are_not_where_they_were_granted_do_not_begin() {
    let pbs = pbs();
    // A site's launcher that knows nothing of PBS and uses only the first host.
    let launcher = "[\"env\", \"-u\", \"PBS_ENVIRONMENT\", \"mpirun\", \"-n\", \"2\", \"--bind-to\", \"none\", \"--oversubscribe\"]";
    pbs.site(&format!("[scheduler]\nlauncher = {launcher}\n"));
    let code = "echo begun >>$EVENTS";
    let rest = "[resources]\nnodes = 2\nranks_per_node = 1\n";
    pbs.submit(&shell(code, rest), &[]).ok();
    pbs.wait_idle();
    let host = pbs.world.call("uname", &["-n"]).out;
    let host = host.trim().split('.').next().unwrap();
    let expected = format!(
        "failed: the launcher has not put the ranks where they were granted: 2 ranks on {host}; the trial asks for \
         2 nodes with 1 rank each; hint: give the launcher the hosts of the job, each with its number of places; \
         `scheduler.launcher` in the site profile names it, and on PBS `hpcsweep launch` does so by itself"
    );
    assert_eq!(pbs.standings(), [expected]);
    assert_eq!(pbs.world.column("cause"), ["\"launch\""]);
    assert!(!pbs.world.exists("events"));
}

#[test]
fn links_of_a_fused_chain_meet_each_for_itself() {
    let pbs = pbs();
    let rest = "[schedule]\nchains = \"fused\"\n[defaults]\ntask_id = 1\n[grid]\na = [0, 1]\n";
    let code = "[ $RANK != 0 ] || sleep 0.2; echo $HPCSWEEP_TRIAL $RANK >>$EVENTS";
    pbs.submit(&format!("{}{rest}", plan(code, 2)), &[]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"; 2]);
    assert_eq!(pbs.world.read("events").len(), 16);
    let text = pbs.world.read("events");
    let firsts: Vec<&str> = text.lines().map(|line| &line[..1]).collect();
    assert_eq!(firsts, ["0", "0", "1", "1"], "{text}");
}

#[test]
fn a_rank_that_fails_on_another_host_ends_the_trial() {
    let pbs = pbs();
    let code = "echo $$ >>$EVENTS; until [ $(wc -l <$EVENTS) -ge 4 ]; do sleep 0.01; done
        [ $RANK != 3 ] || exit 5; exec sleep 600";
    pbs.submit(&plan(code, 4), &[]).ok();
    pbs.wait_idle();
    let host = pbs.world.call("uname", &["-n"]).out;
    let expected = format!("failed: rank 3 on {}: exit code 5", host.trim());
    assert_eq!(pbs.standings(), [expected]);
    assert_eq!(pbs.world.column("cause"), ["\"exit-code\""]);
    for pid in events(&pbs) {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    }
}

#[test]
fn ranks_on_every_host_are_told_to_end_and_have_the_time_to() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 10);
    let code = "trap 'sleep 0.3; echo saved >>$EVENTS; exit 0' TERM; echo begun >>$EVENTS; sleep 600 & wait";
    pbs.submit(&plan(code, 4), &[]).ok();
    wait_until("all ranks run", || {
        pbs.world.exists("events") && pbs.world.read("events").lines().count() == 4
    });
    pbs.world.run(&["cancel"]).ok();
    pbs.wait_idle();
    assert_eq!(events(&pbs), [["begun"; 4], ["saved"; 4]].concat());
    assert_eq!(pbs.standings(), ["interrupted: the worker got SIGTERM"]);
}

/// One of two trials, while the ranks of both run; before that neither began while they were held.
#[test]
fn trials_of_several_ranks_are_held_released_and_cancelled() {
    let mut pbs = pbs();
    pbs.set("kill_delay", 10);
    pbs.set("scheduling", false);
    pbs.world.write("events", "");
    // The signal may come from the server, from mpirun and from the worker.
    let code = "trap 'trap \"\" TERM; echo $HPCSWEEP_TRIAL saved >>$EVENTS; exit 0' TERM; echo $HPCSWEEP_TRIAL begun >>$EVENTS
        until [ -e $EVENTS.go ]; do sleep 0.01; done; echo $HPCSWEEP_TRIAL ended >>$EVENTS";
    pbs.submit(&format!("{}[grid]\na = [0, 1]\n", plan(code, 4)), &[]).ok();
    let held = pbs.world.run(&["hold"]);
    assert_eq!(
        held.whole(),
        "s: held 2 trials: 0[].pbshead\nuntil `hpcsweep release results/s`, nothing more of it is submitted\nexit code 0\n"
    );
    pbs.set("scheduling", true);
    assert_eq!(pbs.standings(), ["queued: held"; 2]);
    pbs.world.run(&["release"]).ok();
    wait_until("all ranks run", || events(&pbs).len() >= 8);
    let cancelled = pbs.world.run(&["cancel", "--trial", "1"]);
    assert_eq!(cancelled.whole(), "s: cancelled 1 trial: 0[1].pbshead\nexit code 0\n");
    wait_until("its ranks have ended", || events(&pbs).len() >= 12);
    pbs.world.write("events.go", "");
    pbs.wait_idle();
    // Rank 0 hears of its own signal or of another rank's, whichever comes first.
    let standings = pbs.standings();
    assert_eq!(standings.len(), 2);
    assert_eq!(standings[0], "done");
    assert!(
        standings[1] == "interrupted: the worker got SIGTERM"
            || standings[1].starts_with("interrupted: rank ")
                && standings[1].ends_with(" got a signal"),
        "{}",
        standings[1]
    );
    let expected = [["0 begun"; 4], ["0 ended"; 4], ["1 begun"; 4], ["1 saved"; 4]];
    assert_eq!(events(&pbs), expected.concat());
    let ended = pbs.world.run(&["cancel", "--trial", "1"]);
    assert_eq!(ended.whole(), "s: trial 1 has ended\nexit code 0\n");
}

#[test]
fn a_forgotten_launcher_is_told() {
    let pbs = pbs();
    pbs.site("[scheduler]\nlauncher = [\"env\"]\n");
    pbs.submit(&plan("true", 4), &[]).ok();
    pbs.wait_idle();
    let said = "failed: trial 0 asks for 4 ranks, but 1 was started; launcher: no launcher; hint: put \
                `hpcsweep launch --ranks N --` in front of the worker, or the mpiexec of the MPI it was built \
                with; `hpcsweep worker --explain` shows what this one sees";
    assert_eq!(pbs.standings(), [said]);
    assert_eq!(pbs.world.column("cause"), ["\"launch\""]);
}

#[test]
fn a_launcher_that_cannot_start_leaves_its_words_in_the_jobs_log() {
    let pbs = pbs();
    pbs.site("[scheduler]\nlauncher = [\"no-such-mpiexec\"]\n");
    pbs.submit(&plan("true", 4), &[]).ok();
    pbs.wait_idle();
    let ran = pbs.world.run(&["logs", "0"]);
    assert!(ran.ok().ends_with(": no-such-mpiexec: command not found\n"), "{}", ran.whole());
    // `status` says it too.
    let said = "failed: the scheduler says exit status 127, and nothing was recorded";
    let line = ran.out.lines().last().unwrap();
    let reason = pbs.world.shown(pbs.standings()[0].as_bytes());
    assert_eq!(reason, format!("{said}: {line} (from the job's log)"));
    assert_eq!(pbs.world.column("cause"), ["\"command-not-found\""]);
}

#[test]
fn ranks_that_are_sent_back_leave_one_curve_and_are_told_of_once() {
    let mut pbs = pbs();
    pbs.world.set("TEST_PBS_OPERATOR", "1");
    pbs.world.write("events", "");
    // Only the second run continues after its first line.
    let code =
        "echo \"{\\\"step\\\": 1, \\\"r\\\": $RANK}\" >>$HPCSWEEP_METRICS; echo $RANK >>$EVENTS
        until [ $(wc -l <$EVENTS) -ge 4 ]; do sleep 0.01; done
        echo \"{\\\"step\\\": 2, \\\"r\\\": $RANK}\" >>$HPCSWEEP_METRICS";
    let hook = "[hooks]\nfinish = [\"sh\", \"-c\", \"echo told >>$EVENTS.hooks\"]\n";
    pbs.submit(&format!("{}{hook}", plan(code, 2)), &[]).ok();
    wait_until("both have begun", || pbs.world.read("events").lines().count() == 2);
    pbs.world.call("qrerun", &["0[0]"]).ok();
    pbs.wait_idle();
    assert_eq!(pbs.standings(), ["done"]);
    assert_eq!(pbs.world.column("attempts"), ["2"]);
    assert_eq!(pbs.world.read("events.hooks"), "told\n");
    let steps = pbs.world.run(&["collect", "--steps", "--format", "csv"]);
    let mut rows: Vec<&str> = steps.ok().lines().skip(1).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["0,,1,0,0", "0,,1,1,1", "0,,2,0,0", "0,,2,1,1"], "{}", steps.out);
}

#[test]
fn trials_of_a_packed_element_have_their_own_ranks() {
    let pbs = pbs();
    let pack = "[schedule]\npack = 3\n[grid]\na = [0, 1, 2]\n";
    let code = "echo $HPCSWEEP_TRIAL $RANK of $WORLD_SIZE >>$EVENTS; [ $HPCSWEEP_TRIAL$RANK != 11 ] || exit 4";
    pbs.submit(&format!("{}{pack}", plan(code, 2)), &[]).ok();
    pbs.wait_idle();
    let host = pbs.world.call("uname", &["-n"]).out;
    let failed = format!("failed: rank 1 on {}: exit code 4", host.trim());
    assert_eq!(pbs.standings(), ["done", &failed, "done"]);
    let all = ["0 0 of 2", "0 1 of 2", "1 0 of 2", "1 1 of 2", "2 0 of 2", "2 1 of 2"];
    assert_eq!(events(&pbs), all);
}
