//! `submit` finds what the cluster would refuse before the first sbatch, and reports a cluster that is
//! not there.

use crate::preempted::Preempting;
use crate::world::{Cluster, World};

/// Only this is printed, with exit code 2, and sbatch is not called. A rehearsal says the same.
fn check(world: &World, rest: &str, said: &str) {
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", rest);
    world.count_calls();
    world.hpcsweep(&["submit", "plan.toml", "--slurm", "--dry-run"]).refused(2, said);
    world.submit().refused(2, said);
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_unknown_partition_is_found_before_sbatch() {
    let world = World::new(Cluster::Plain, "partition");
    check(
        &world,
        "[resources]\nmemory = \"50M\"\npartition = \"shrt\"",
        "error: this cluster has no partition `shrt`\nhint: did you mean `short`?\n",
    );
}

#[test]
fn a_walltime_beyond_the_partitions_is_found_before_sbatch() {
    let world = World::new(Cluster::Plain, "walltime");
    check(
        &world,
        "[resources]\nmemory = \"50M\"\npartition = \"short\"\nwalltime = \"00:06:00\"",
        "error: a walltime of 00:06:00 is more than partition `short` allows: 00:05:00\n\
         hint: lower `walltime` or name another `partition`\n",
    );
}

/// One trial of many asks for too much.
#[test]
fn too_many_nodes_are_found_before_sbatch() {
    let world = World::new(Cluster::Plain, "nodes");
    check(
        &world,
        "[resources]\nmemory = \"50M\"\n[grid]\nx = [1, 2]\n[[trials]]\n[[trials]]\nresources.nodes = 5\nresources.ranks = 5",
        "error: a trial asks for 5 nodes, partition `main` gives a job at most 4\n\
         hint: lower `nodes` or name another `partition`\n",
    );
}

fn many(n: usize) -> String {
    let values: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    format!("[grid]\nx = [{}]", values.join(", "))
}

/// An account whose users may have 300 elements in the queue each. Other tests submit under another one.
fn account(world: &World, name: &str) {
    let args = ["-i", "add", "account", name, "cluster=hpcsweep", "MaxSubmitJobs=300"];
    world.call("/usr/bin/sacctmgr", &args);
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let account = format!("account={name}");
    world.call("/usr/bin/sacctmgr", &["-i", "add", "user", &user, &account, "cluster=hpcsweep"]);
}

/// The limit of the user's association.
#[test]
fn a_sweep_larger_than_the_queue_is_submitted_by_jobs_that_follow_each_other() {
    let world = World::new(Cluster::Accounting, "places");
    account(&world, "places");
    // Nothing begins: this fills the queue.
    let request = "account = \"places\"\ndirectives = [\"--hold\"]";
    world.plan("true", &format!("[resources]\n{request}\n{}", many(400)));
    let dry = world.hpcsweep(&["submit", "plan.toml", "--slurm", "--dry-run"]).ok();
    let places = "\nMaxSubmitJobs allows 300 elements: 299 trials now, 101 later, in about 1 further submission\nexpected start: 20";
    assert!(dry.stdout.contains(places), "{}", dry.stdout);
    let ran = world.submit();
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = ran.stderr.lines().next().unwrap();
    assert_eq!(
        first,
        "MaxSubmitJobs allows 300 elements: 299 trials now, 101 later, in about 1 further submission"
    );
    let status = world.status();
    assert_eq!(
        (&status.json["unsubmitted"], &status.json["counts"]["pending"]),
        (&101.into(), &101.into())
    );
    assert!(status.json["feeder"].is_string(), "{}", status.json);
    world.hpcsweep(&["cancel"]).ok();
    assert_eq!(world.status().json["feeder"], serde_json::Value::Null);
}

/// Users of this site may not ask for their limits: sbatch refuses what has no place.
#[test]
fn a_limit_that_only_sbatch_knows_is_met_on_the_way() {
    let world = World::new(Cluster::Accounting, "unknown");
    world.site("limits.max_array_size = 16\n");
    account(&world, "unknown");
    world.fake("sacctmgr", "exit 1");
    let request = "account = \"unknown\"\ndirectives = [\"--hold\"]";
    world.plan("true", &format!("[resources]\n{request}\n{}", many(400)));
    let ran = world.submit();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("288 trials submitted as 18 arrays"), "{ran:?}");
    assert!(
        ran.stderr.contains("; 112 trials follow when there is a place in the queue (job "),
        "{ran:?}"
    );
    let status = world.status();
    assert_eq!(status.json["unsubmitted"], 112);
    assert!(status.json["feeder"].is_string(), "{}", status.json);
    world.hpcsweep(&["cancel"]).ok();
}

/// The slow trial ends when all others have, with a repeat of one of them.
#[test]
fn a_slow_trial_keeps_neither_the_feeder_nor_repeats_waiting() {
    let cluster = Preempting::start();
    let world = cluster.world("straggler");
    world.site("limits.max_submit_jobs = 8\n");
    let script = "[ $HPCSWEEP_TRIAL != 1 ] || until [ -e $HERE/go ]; do sleep 0.1; done
        echo $HPCSWEEP_TRIAL >>$HERE/ran
        [ $HPCSWEEP_TRIAL != 2 ] || [ $(grep -cx 2 $HERE/ran) = 2 ] || exit 75";
    let auto = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\n";
    world.plan(script, &format!("{auto}{}", many(20)));
    world.submit().ok();
    world.until_lines("ran", 20);
    assert_eq!(world.status().counts()["running"], 1);
    world.write("go", "");
    world.until("the end of the feeders", || {
        let status = world.status();
        (status.json["feeder"].is_null() && status.states() == ["done"; 20]).then_some(())
    });
    assert_eq!(world.lines("ran").len(), 21);
}

#[test]
fn every_trial_runs_once_though_only_a_few_have_a_place() {
    // The profile's limit counts all jobs of the user.
    let cluster = Preempting::start();
    let world = cluster.world("waves");
    world.site("limits.max_submit_jobs = 5\n");
    let rest = format!("[schedule]\nmax_running = 2\n{}", many(13));
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", &rest);
    world.submit().ok();
    world.until_lines("ran", 13);
    world.assert_each_ran_once(13);
    assert_eq!(world.status().json["unsubmitted"], 0);
}

#[test]
fn a_scheduler_that_does_not_answer_is_said_and_nothing_is_lost() {
    let world = World::new(Cluster::Plain, "down");
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", "[grid]\nx = [1, 2]");
    let dead: String = std::fs::read_to_string(world.conf())
        .unwrap()
        .lines()
        .map(|line| if line.starts_with("SlurmctldPort=") { "SlurmctldPort=9" } else { line })
        .chain(["MessageTimeout=2"])
        .flat_map(|line| [line, "\n"])
        .collect();
    world.write("dead.conf", &dead);
    world.set("SLURM_CONF", world.path("dead.conf").to_str().unwrap());
    let ran = world.submit();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr.starts_with("error: `scontrol` says: ")
            && ran.stderr.contains("Unable to contact")
            && ran.stderr.ends_with(
                "hint: the scheduler is out of reach now; try the same again when it answers\n"
            ),
        "{}",
        ran.stderr
    );
    world.set("SLURM_CONF", world.conf().to_str().unwrap());
    world.submit().ok();
    world.until_lines("ran", 2);
    // Status knows what the tree knows, and says who was not there.
    world.set("SLURM_CONF", world.path("dead.conf").to_str().unwrap());
    let status = world.status();
    assert_eq!(status.json["trials_total"], 2);
    world.set("SLURM_CONF", world.conf().to_str().unwrap());
    world.assert_each_ran_once(2);
}

#[test]
fn a_machine_without_slurm_is_told_so() {
    let world = World::new(Cluster::Plain, "without");
    world.plan("true", "");
    world.set("PATH", world.path("bin").to_str().unwrap());
    world.submit().refused(
        3,
        "error: cannot start `scontrol`: no such file or directory\n\
         hint: is this a host from which jobs can be submitted? `--local` runs the plan here\n",
    );
    // sbatch alone is missing: known only when it is called.
    for program in ["scontrol", "squeue"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{program}"), world.path("bin").join(program))
            .unwrap();
    }
    let ran = world.submit();
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr.starts_with("error: cannot start `sbatch`: no such file or directory\n"),
        "{}",
        ran.stderr
    );
}
