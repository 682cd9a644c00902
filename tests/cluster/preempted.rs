//! Preemption by a partition of higher priority, on a cluster of its own: on a shared one it would hit other tests.

use std::process::Command;

use crate::world::{Cluster, World};

/// A cluster of two nodes whose partitions `requeue` and `cancel` give way to `urgent`.
struct Preempting(tempfile::TempDir);

fn dev_cluster(args: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/dev-cluster");
    let output = Command::new(script).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Preempting {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("hpcsweep-preempting-").tempdir().unwrap();
        // Every user's client connects to the socket of munge in it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let cluster = Self(folder);
        let dir = cluster.dir();
        let mut args = vec!["up", "--dir", &dir, "--nodes", "2", "--cpus", "4", "--gpus", "0"];
        for option in [
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            "PartitionName=requeue Nodes=ALL PreemptMode=REQUEUE",
            "PartitionName=cancel Nodes=ALL PreemptMode=CANCEL",
            "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF",
        ] {
            args.extend(["--option", option]);
        }
        dev_cluster(&args);
        cluster
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
    let world = World::on(cluster.0.path().join("cluster").as_path(), Cluster::Plain, partition);
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

#[test]
fn a_node_that_fails_is_the_cause() {
    let cluster = Preempting::start();
    let world = World::on(cluster.0.path().join("cluster").as_path(), Cluster::Plain, "fails");
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
