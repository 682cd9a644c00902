//! Preemption by a partition of higher priority, on a cluster of its own: on a shared one it would hit other tests.

use std::process::Command;

use crate::world::{Cluster, World};

/// A cluster of two nodes whose partitions give way to `urgent`.
pub(crate) struct Preempting(tempfile::TempDir);

fn dev_cluster(args: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/dev-cluster");
    let output = Command::new(script).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Partitions that give way to `urgent`, by requeues and cancellations.
const BY_END: [&str; 7] = [
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=requeue Nodes=ALL PreemptMode=REQUEUE",
    "PartitionName=cancel Nodes=ALL PreemptMode=CANCEL",
    "PartitionName=patient Nodes=ALL PreemptMode=REQUEUE GraceTime=8",
    "PartitionName=brief Nodes=ALL PreemptMode=CANCEL GraceTime=8",
    "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF",
];

/// One that stands still while `urgent` runs, and one that never gives way. Elements that stand still keep their memory.
const BY_SUSPENSION: [&str; 5] = [
    "PreemptType=preempt/partition_prio",
    "PreemptMode=SUSPEND,GANG",
    "PartitionName=suspend Nodes=ALL PreemptMode=SUSPEND OverSubscribe=FORCE:1",
    "PartitionName=off Nodes=ALL PreemptMode=OFF OverSubscribe=FORCE:1",
    "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF OverSubscribe=FORCE:1",
];

impl Preempting {
    pub(crate) fn start() -> Self {
        Self::with(&BY_END)
    }

    fn with(options: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("hpcsweep-preempting-").tempdir().unwrap();
        // Every user's client connects to the socket of munge in it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let cluster = Self(folder);
        let dir = cluster.dir();
        let mut args = vec!["up", "--dir", &dir, "--nodes", "2", "--cpus", "4", "--gpus", "0"];
        for option in options {
            args.extend(["--option", option]);
        }
        dev_cluster(&args);
        cluster
    }

    /// A world on it.
    pub(crate) fn world(&self, name: &str) -> World {
        World::on(&self.0.path().join("cluster"), Cluster::Plain, name)
    }

    fn dir(&self) -> String {
        self.0.path().join("cluster").to_str().unwrap().to_owned()
    }
}

impl Drop for Preempting {
    fn drop(&mut self) {
        dev_cluster(&["down", "--dir", &self.dir()]);
    }
}

/// Sixteen trials in as many elements as the nodes have cores give way to another job. In their first attempt they end
/// with this exit code when they are asked to stop. Afterwards each is done, once.
fn give_way(cluster: &Preempting, partition: &str, code: u32) {
    let world = cluster.world(partition);
    let script = format!(
        "echo $HPCSWEEP_ATTEMPT $HPCSWEEP_TRIAL >>$HERE/began
        trap 'exit {code}' TERM
        echo kept >>$HPCSWEEP_CHECKPOINT_DIR/state
        [ -e $HERE/go ] || while :; do sleep 300 & wait; done
        echo $HPCSWEEP_TRIAL >>$HERE/ran"
    );
    let rest = format!(
        "attempts = 2\n[schedule]\npack = 2\n[grid]\nx = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]\n\
         [resources]\nmemory = \"50M\"\nwalltime = \"00:10:00\"\npartition = \"{partition}\"\n"
    );
    world.plan(&script, &rest);
    world.submit().ok();
    world.until_lines("began", 8);
    world.call(
        "/usr/bin/sbatch",
        &["-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "true"],
    );
    let queued = partition == "requeue";
    // The second trial of each element had not begun.
    let expected = if queued { ["queued"; 2] } else { ["interrupted", "cancelled"] }.repeat(8);
    world.until("preempted", || {
        let states = world.status().states();
        assert!(!states.iter().any(|s| s == "failed" || s == "done"), "{}", world.report());
        (states == expected).then_some(())
    });

    if !queued {
        let json = world.status().json;
        let trials = json["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["cause"] == "preempted"), "{json}");
    }
    world.write("go", "");
    if queued {
        let job = format!("jobid={}", world.jobs()[0]);
        // Slurm makes what it has requeued wait for some two minutes.
        world.until("let go", || {
            let args = ["update", &job, "starttime=now+3"];
            world.command("/usr/bin/scontrol").args(args).status().unwrap().success().then_some(())
        });
    } else {
        world.retry();
    }
    assert_eq!(world.finished().states(), ["done"; 16], "{}", world.report());
    let all: Vec<String> = (0..16).map(|trial| trial.to_string()).collect();
    assert_eq!(world.lines("ran"), all, "{}", world.report());
}

#[test]
fn what_is_preempted_is_interrupted_whatever_its_exit_code() {
    let cluster = Preempting::start();
    for partition in ["requeue", "cancel"] {
        for code in [0, 1] {
            give_way(&cluster, partition, code);
        }
    }
}

/// A sweep of ten trials that count to forty and write a checkpoint at each step. Jobs of higher priority take nodes away until
/// so many attempts were cut off. Returns its table; no trial may ever look as if it had failed.
fn counting(cluster: &Preempting, name: &str, cuts: usize) -> Vec<String> {
    let world = cluster.world(name);
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/began
        state=$HPCSWEEP_CHECKPOINT_DIR/state
        s=$(cat $state 2>/dev/null || echo 0)
        while [ $s -lt 40 ]; do
          s=$((s + 1))
          echo '{\"step\": '$s', \"loss\": '$((HPCSWEEP_PARAM_X * 1000 - s))'}' >>$HPCSWEEP_METRICS
          echo $s >$state.new && mv $state.new $state
          [ -e $HERE/calm ] || sleep 1
        done
        echo '{\"sum\": '$((HPCSWEEP_PARAM_X + s))'}' >$HPCSWEEP_RESULT";
    let here = world.path("").display().to_string();
    let hook = |name: &str| {
        format!("{name} = [\"sh\", \"-c\", \"echo $HPCSWEEP_TRIAL >>{here}/{name}\"]\n")
    };
    let rest = format!(
        "[hooks]\n{}{}[resources]\nmemory = \"50M\"\nwalltime = \"00:20:00\"\npartition = \"requeue\"\n\
         [grid]\nx = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n",
        hook("finish"),
        hook("error")
    );
    world.plan(script, &rest);
    if cuts == 0 {
        world.write("calm", "");
    }
    world.submit().ok();
    let cut = || world.lines("began").len().saturating_sub(10);
    // Which node is taken, by a generator with a fixed seed (Numerical Recipes).
    let mut random = 1u32;
    while cut() < cuts {
        world.until("something runs", || {
            let running =
                world.status().states().iter().filter(|state| *state == "running").count();
            (running >= 4).then_some(())
        });
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let node = format!("--nodelist=n{}", 1 + (random >> 31));
        let wrap =
            ["-p", "urgent", "--exclusive", "--wait", "--output=/dev/null", "--wrap", "true"];
        world.call("/usr/bin/sbatch", &[&[node.as_str()], &wrap[..]].concat());
        let states = world.status().states();
        assert!(!states.iter().any(|state| state == "failed"), "{}", world.report());
        // Slurm makes what it has requeued wait for some two minutes.
        let job = format!("jobid={}", world.jobs()[0]);
        let args = ["update", &job, "starttime=now"];
        world.command("/usr/bin/scontrol").args(args).output().unwrap();
    }
    world.write("calm", "");
    world.until("the end", || {
        let job = format!("jobid={}", world.jobs()[0]);
        let args = ["update", &job, "starttime=now"];
        world.command("/usr/bin/scontrol").args(args).output().unwrap();
        world.status().is_final().then_some(())
    });
    let mut finished = world.lines("finish");
    finished.sort();
    let all: Vec<String> = (0..10).map(|trial| trial.to_string()).collect();
    assert_eq!(finished, all, "{}", world.report());
    assert!(!world.path("error").exists(), "{}", world.report());
    assert!(cut() >= cuts, "{}", world.report());
    world.table(&["trial", "state", "cause", "x", "step", "loss", "sum"])
}

#[test]
fn a_sweep_that_is_preempted_again_and_again_ends_as_an_undisturbed_one() {
    let cluster = Preempting::start();
    let calm = counting(&cluster, "calm", 0);
    let expected: Vec<String> =
        (0..10).map(|x| format!("{x} done  {x} 40 {} {}", x * 1000 - 40, x + 40)).collect();
    assert_eq!(calm, expected);
    assert_eq!(counting(&cluster, "stormy", 30), expected);
}

/// A sweep whose trials save and exit when they are asked to, and go on from what they saved. `urgent` takes the nodes once.
/// Returns its table.
fn saving(cluster: &Preempting, partition: &str, ranks: u32, rest: &str) -> Vec<String> {
    let name = format!("{partition}{ranks}");
    let world = cluster.world(&name);
    let script = "
        echo $HPCSWEEP_TRIAL >>$HERE/began
        state=$HPCSWEEP_CHECKPOINT_DIR/state.${RANK:-0}
        trap 'echo saved >$state; exit 3' TERM
        until [ -e $state ] || [ -e $HERE/go ]; do sleep 0.2; done
        [ ${RANK:-0} != 0 ] || echo '{\"loss\": '$HPCSWEEP_PARAM_X'}' >>$HPCSWEEP_METRICS";
    let here = world.path("").display().to_string();
    let plan = format!(
        "[hooks]\nerror = [\"sh\", \"-c\", \"echo $HPCSWEEP_TRIAL >>{here}/error\"]\n\
         [resources]\nmemory = \"50M\"\nwalltime = \"00:10:00\"\npartition = \"{partition}\"\nranks = {ranks}\n{rest}\
         [grid]\nx = [0, 1, 2]\n"
    );
    world.plan(script, &plan);
    world.submit().ok();
    world.until_lines("began", 3 * ranks as usize);
    let urgent = ["-p", "urgent", "-N2", "--exclusive", "--wait", "--output=/dev/null"];
    world.call("/usr/bin/sbatch", &[&urgent[..], &["--wrap", "true"]].concat());
    world.until("the end", || {
        let status = world.status();
        assert!(!status.states().iter().any(|state| state == "failed"), "{}", world.report());
        // A job that ends within the grace time is not requeued, also where others of its array are. Slurm says why it was
        // stopped once it has ended the job.
        let trials = status.json["trials"].as_array().unwrap();
        let mut interrupted =
            trials.iter().filter(|trial| trial["state"] == "interrupted").peekable();
        if interrupted.peek().is_some()
            && status.is_final()
            && interrupted.all(|trial| trial["cause"] == "preempted")
        {
            world.retry();
        }
        // Slurm makes what it has requeued wait for some two minutes.
        let job = format!("jobid={}", world.jobs()[0]);
        let args = ["update", &job, "starttime=now"];
        world.command("/usr/bin/scontrol").args(args).output().unwrap();
        let is_done = world.status().states().iter().all(|state| state == "done");
        is_done.then_some(())
    });
    assert!(!world.path("error").exists(), "{}", world.report());
    // Each was interrupted once.
    world.table(&["trial", "state", "attempts", "cause", "loss"])
}

#[test]
fn what_saves_within_a_grace_time_goes_on_and_has_not_failed() {
    let cluster = Preempting::start();
    for partition in ["patient", "brief"] {
        for ranks in [1, 2] {
            let table = saving(&cluster, partition, ranks, "directives = [\"--requeue\"]\n");
            let expected = ["0 done 2  0", "1 done 2  1", "2 done 2  2"];
            assert_eq!(table, expected, "{partition} {ranks}");
        }
    }
}

/// Trials that stand still for longer than their walltime.
#[test]
fn what_is_suspended_is_neither_dead_nor_timed_out_and_what_is_not_preempted_runs_on() {
    let cluster = Preempting::with(&BY_SUSPENSION);
    for ranks in [1, 2] {
        let world = cluster.world(&format!("suspend{ranks}"));
        let script = "
            echo $HPCSWEEP_TRIAL >>$HERE/began
            until [ -e $HERE/go ]; do sleep 0.2; done
            [ ${RANK:-0} != 0 ] || echo '{\"loss\": '$HPCSWEEP_PARAM_X'}' >>$HPCSWEEP_METRICS";
        let here = world.path("").display().to_string();
        let plan = |partition: &str| {
            format!(
                "[hooks]\nerror = [\"sh\", \"-c\", \"echo $HPCSWEEP_TRIAL >>{here}/error\"]\n\
                 [resources]\nmemory = \"50M\"\nwalltime = \"20s\"\npartition = \"{partition}\"\nranks = {ranks}\n\
                 [grid]\nx = [0, 1]\n"
            )
        };
        world.plan(script, &plan("suspend"));
        world.submit().ok();
        world.until_lines("began", 2 * ranks);
        let urgent = ["-p", "urgent", "-n8", "--mem=50M", "--output=/dev/null"];
        let wait = format!("until [ -e {here}/over ]; do sleep 0.2; done");
        world.call("/usr/bin/sbatch", &[&urgent[..], &["--wrap", &wait]].concat());
        let suspended = "suspended by the scheduler; it continues later";
        world.until("suspended", || {
            let json = world.status().json;
            let trials = json["trials"].as_array().unwrap();
            let is_so = |trial: &serde_json::Value| {
                trial["state"] == "running" && trial["reason"] == suspended
            };
            trials.iter().all(is_so).then_some(())
        });
        // Longer than their walltime.
        std::thread::sleep(std::time::Duration::from_secs(25));
        assert_eq!(world.status().states(), ["running"; 2], "{}", world.report());
        world.write("over", "");
        world.until("continued", || {
            let json = world.status().json;
            let trials = json["trials"].as_array().unwrap();
            trials.iter().all(|trial| trial["reason"] == "").then_some(())
        });
        world.write("go", "");
        assert_eq!(world.finished().states(), ["done"; 2], "{}", world.report());
        let table = world.table(&["trial", "state", "attempts", "cause", "loss"]);
        assert_eq!(table, ["0 done 1  0", "1 done 1  1"]);
        assert!(!world.path("error").exists(), "{}", world.report());
    }
    // A partition that is never preempted keeps its nodes: the urgent job waits.
    let world = cluster.world("off");
    let script = "echo $HPCSWEEP_TRIAL >>$HERE/began; until [ -e $HERE/go ]; do sleep 0.2; done";
    let request = "memory = \"3000M\"\nwalltime = \"00:10:00\"\npartition = \"off\"";
    world.plan(script, &format!("[resources]\n{request}\n[grid]\nx = [0, 1]\n"));
    world.submit().ok();
    world.until_lines("began", 2);
    let urgent = ["-p", "urgent", "-N2", "--exclusive", "--output=/dev/null", "--parsable"];
    let job = world.call("/usr/bin/sbatch", &[&urgent[..], &["--wrap", "true"]].concat());
    let state = || {
        let args = ["--noheader", "--format=%T %r", "--jobs", job.trim()];
        world.call("/usr/bin/squeue", &args).trim().to_owned()
    };
    world.until("kept waiting", || (state() == "PENDING Resources").then_some(()));
    assert_eq!(world.status().states(), ["running"; 2], "{}", world.report());
    world.write("go", "");
    assert_eq!(world.finished().states(), ["done"; 2], "{}", world.report());
    assert_eq!(world.table(&["trial", "state", "attempts"]), ["0 done 1", "1 done 1"]);
}

#[test]
fn a_node_that_fails_is_the_cause() {
    let cluster = Preempting::start();
    let world = cluster.world("fails");
    let request = "memory = \"50M\"\npartition = \"urgent\"\ndirectives = [\"--no-requeue\", \"--nodelist=n2\"]";
    world.plan("echo 0 >>$HERE/began; exec sleep 300", &format!("[resources]\n{request}\n"));
    world.submit().ok();
    world.until_lines("began", 1);
    world.call("/usr/bin/scontrol", &["update", "nodename=n2", "state=down", "reason=test"]);
    world.until("its cause", || {
        (world.status().json["trials"][0]["cause"] == "node-failure").then_some(())
    });
    assert_eq!(world.finished().states(), ["interrupted"], "{}", world.report());
}
