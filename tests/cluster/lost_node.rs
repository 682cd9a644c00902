//! A node whose daemon is gone while its jobs run on, on a cluster of its own: the shared ones need their nodes.

use std::fs;
use std::time::{Duration, Instant};

use crate::preempted::Preempting;
use crate::world::World;

/// The process of the daemon of a node.
fn daemon(conf: &str, node: &str) -> String {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        if words.contains(&conf.as_bytes())
            && words.windows(2).any(|w| w == [&b"-N"[..], node.as_bytes()])
        {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    assert_eq!(found.len(), 1, "{node}: {found:?}");
    found.remove(0)
}

/// The state and the node of an element.
fn place(world: &World, id: &str) -> String {
    world.call("/usr/bin/squeue", &["-h", "-j", id, "-o", "%t %N"]).trim().to_owned()
}

#[test]
fn a_job_that_is_requeued_from_a_lost_node_does_not_run_beside_itself() {
    let cluster = Preempting::start();
    let world = cluster.world("lost");
    let script = "
        echo $HPCSWEEP_ATTEMPT >>$HERE/ran
        until [ -e $HERE/go ]; do sleep 0.1; done";
    world.plan(script, "[defaults]\ntask_id = 1\n[grid]\nstep = [0, 1]");
    world.submit().ok();
    world.until_lines("ran", 1);
    let id = format!("{}_0", world.jobs()[0]);
    let first = place(&world, &id);
    let node = first.strip_prefix("R ").unwrap().to_owned();
    world.call("/bin/kill", &["-KILL", &daemon(world.conf().to_str().unwrap(), &node)]);
    let of_node = format!("nodename={node}");
    let set =
        |state: &str| world.call("/usr/bin/scontrol", &["update", &of_node, state, "reason=lost"]);
    // An answer that the daemon gave before it was killed can bring the node back; drained, it gets no job then.
    set("state=drain");
    set("state=down");
    let mut brought_forward: Option<Instant> = None;
    world.until("begun again elsewhere", || {
        let now = place(&world, &id);
        // Brought back, the node would have to say that the job has ended there.
        if now.starts_with("CG") {
            set("state=down");
        }
        // Slurm would begin it two minutes later. Each order moves it to the next second, so a second one soon delays it.
        let is_due = brought_forward.is_none_or(|at| at.elapsed() > Duration::from_secs(10));
        if now.starts_with("PD") && is_due {
            let job = format!("jobid={id}");
            let update = ["update", &job, "starttime=now+1"];
            let ran = world.command("/usr/bin/scontrol").args(update).output().unwrap();
            brought_forward = ran.status.success().then(Instant::now);
        }
        (now.starts_with("R ") && now != first).then_some(())
    });
    // Its worker finds the program on the lost node at work.
    let marks = |pid: &str| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let sweep = world.sweep();
    let is_worker = |pid: &str| {
        let line = String::from_utf8_lossy(&marks(pid)).into_owned();
        line.contains("worker\0--sweep") && line.contains(sweep.to_str().unwrap())
    };
    let workers = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        pids.filter(|pid| is_worker(pid)).collect::<Vec<String>>()
    };
    let both = world.until("begun", || Some(workers()).filter(|pids| pids.len() == 2));
    // Each look, or each wait for a program, ends with a sleep.
    let sleeps = |pid: &String| -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let found = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        found.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    let before: Vec<u64> = both.iter().map(sleeps).collect();
    world.until("looked several times", || {
        let mut counts = both.iter().map(sleeps).zip(&before);
        counts.all(|(now, before)| now >= before + 4).then_some(())
    });
    assert_eq!(world.lines("ran"), ["1"], "{}", world.report());
    world.write("go", "");
    assert_eq!(world.finished().states(), ["done"; 2], "{}", world.report());
    assert_eq!(world.lines("ran"), ["1", "1"]);
    assert_eq!(world.table(&["attempts"]), ["1", "1"]);
}
