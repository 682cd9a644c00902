//! Several ranks of one trial, and what a worker finds out about its rank.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world::{Cluster, World};

/// Every rank writes down what it was given; rank 0 listens as torch's rendezvous would, the others
/// reach it.
const MEET: &str = r#"
echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $SLURMD_NODENAME >>$HERE/ranks-$HPCSWEEP_TRIAL
echo $MASTER_ADDR $MASTER_PORT >>$HERE/master-$HPCSWEEP_TRIAL
[ $RANK != 0 ] || echo $HPCSWEEP_TRIAL >>$HERE/ran
echo "{\"loss\": $RANK}" >>$HPCSWEEP_METRICS
python3 - <<'END'
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", place[1])) as server:
        met = {server.accept()[0].recv(100).decode() for _ in range(world - 1)}
    print("met", sorted(met), flush=True)
else:
    for attempt in range(200):
        try:
            s = socket.create_connection(place, timeout=5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    s.sendall(str(rank).encode())
    print("hello", flush=True)
END
"#;

const FOUR: &str = "[resources]\nnodes = 2\nranks = 4\nranks_per_node = 2\nmemory = \"100M\"\nwalltime = \"00:05:00\"\n";

#[test]
fn four_ranks_on_two_nodes_get_what_torchrun_gives() {
    let world = World::new(Cluster::Accounting, "four");
    world.plan(MEET, FOUR);
    world.submit().ok();
    world.assert_each_ran_once(1);
    let ranks = world.lines("ranks-0");
    let nodes: Vec<&str> = ranks.iter().map(|l| l.rsplit(' ').next().unwrap()).collect();
    let (a, b) = (nodes[0], nodes[3]);
    assert_ne!(a, b);
    let expected = [
        format!("0 4 0 2 0 {a}"),
        format!("1 4 1 2 0 {a}"),
        format!("2 4 0 2 1 {b}"),
        format!("3 4 1 2 1 {b}"),
    ];
    assert_eq!(ranks, expected);
    let mut masters = world.lines("master-0");
    masters.dedup();
    assert_eq!(masters.len(), 1, "{masters:?}");
    // One record, one log, in which every line says whose it is.
    assert_eq!(world.files("records"), ["records/000/0.1.jsonl"]);
    // After the trial's end, the job script removes the job's own output if it is empty.
    world.until("without an empty output of its job", || {
        (world.files("logs") == ["logs/000/0.1.log"]).then_some(())
    });
    assert_eq!(world.files("meet"), Vec::<String>::new());
    assert_eq!(
        world.lines("results/four/logs/000/0.1.log"),
        ["[rank 0] met ['1', '2', '3']", "[rank 1] hello", "[rank 2] hello", "[rank 3] hello"]
    );
    // Of a name that all ranks log, the lowest rank's value is the trial's.
    assert_eq!(world.table(&["trial", "state", "host", "loss"]), [format!("0 done {a} 0")]);
}

#[test]
fn ranks_that_do_not_divide_evenly_know_their_own_node() {
    let world = World::new(Cluster::Plain, "uneven");
    world.plan(
        MEET,
        "[resources]\nnodes = 2\nranks = 3\nmemory = \"100M\"\nwalltime = \"00:05:00\"\n",
    );
    world.submit().ok();
    world.assert_each_ran_once(1);
    let without_node: Vec<String> =
        world.lines("ranks-0").iter().map(|l| l.rsplit_once(' ').unwrap().0.to_owned()).collect();
    // Which node has two of them depends on the cores that other jobs have left, and on the release of Slurm.
    let layouts =
        [["0 3 0 2 0", "1 3 1 2 0", "2 3 0 1 1"], ["0 3 0 1 0", "1 3 0 2 1", "2 3 1 2 1"]];
    assert!(layouts.iter().any(|layout| without_node == *layout), "{without_node:?}");
}

/// All on one node, at one time: ports, meeting files and scratch folders are each trial's own.
#[test]
fn trials_of_several_ranks_on_one_node_do_not_collide() {
    let world = World::new(Cluster::Plain, "beside");
    world.plan(
        MEET,
        "[resources]\nranks = 2\nmemory = \"100M\"\nwalltime = \"00:05:00\"\ndirectives = [\"--nodelist=n4\"]\n[grid]\nx = [1, 2, 3, 4]",
    );
    world.submit().ok();
    world.assert_each_ran_once(4);
    for trial in 0..4 {
        let ranks = world.lines(&format!("ranks-{trial}"));
        assert_eq!(ranks, ["0 2 0 2 0 n4", "1 2 1 2 0 n4"]);
    }
}

#[test]
fn a_rank_that_fails_ends_the_trial_and_is_named() {
    let world = World::new(Cluster::Accounting, "failing");
    let script = "echo $SLURMD_NODENAME >$HERE/node-$RANK; [ $RANK != 2 ] || { sleep 1; exit 3; }; sleep 300";
    world.plan(script, FOUR);
    let since = Instant::now();
    world.submit().ok();
    let status = world.finished();
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    let node = world.read("node-2");
    let node = node.trim();
    let said = &status.standings()[0];
    assert!(said.starts_with("failed: ") && said.contains(&format!("rank 2 on {node}")), "{said}");
    assert!(said.contains("exit code 3") && !said.contains("signal"), "{said}");
    assert_eq!(world.files("records").len(), 1);
}

#[test]
fn rank_0_that_fails_ends_the_trial_too() {
    let world = World::new(Cluster::Accounting, "first-fails");
    world.plan("[ $RANK != 0 ] || { sleep 1; exit 4; }; sleep 300", FOUR);
    let since = Instant::now();
    world.submit().ok();
    assert_eq!(world.finished().states(), ["failed"]);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!(world.table(&["exit_code"]), ["4"]);
}

/// The worker of a rank is killed, as by a node that runs out of memory.
#[test]
fn a_rank_that_vanishes_ends_the_trial_and_is_named() {
    for cluster in [Cluster::Plain, Cluster::Accounting] {
        let world = World::new(cluster, "vanishing");
        world.plan("echo $PPID >$HERE/worker-$RANK; echo $$ >$HERE/pid-$RANK; sleep 300", FOUR);
        world.submit().ok();
        let worker = world.until("four ranks", || {
            (0..4)
                .all(|r| !world.read(&format!("pid-{r}")).is_empty())
                .then(|| world.read("worker-3"))
        });
        kill(Pid::from_raw(worker.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
        let status = world.finished();
        let said = &status.standings()[0];
        assert!(
            said.starts_with("failed: ")
                && said.contains("rank 3 on n")
                && said.ends_with(" vanished"),
            "{said}"
        );
        // Nothing is left of any rank.
        for rank in 0..4 {
            let pid: i32 = world.read(&format!("pid-{rank}")).trim().parse().unwrap();
            world.until("gone", || kill(Pid::from_raw(pid), None).err());
        }
        // Rank 0 leaves after the record is whole.
        world.until("without a meeting", || world.files("meet").is_empty().then_some(()));
    }
}

/// A chain of trials of several ranks with a retry: ranks meet again for every attempt.
#[test]
fn ranks_meet_again_for_a_second_attempt_and_the_next_link() {
    let world = World::new(Cluster::Plain, "again");
    let script = format!("[ $HPCSWEEP_ATTEMPT = 2 ] || exit 1\n{MEET}");
    world.plan(
        &script,
        &format!("attempts = 2\n{FOUR}[defaults]\ntask_id = 1\n[grid]\nstep = [1, 2]"),
    );
    world.submit().ok();
    let status = world.finished();
    assert_eq!(status.states(), ["done", "done"], "{}", world.report());
    assert_eq!(world.lines("ran"), ["0", "1"]);
    assert_eq!(world.table(&["state", "attempts"]), ["done 2", "done 2"]);
}

fn explained(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    all.sort_by_key(|rank| rank["rank"].as_u64());
    all
}

fn places(all: &[Value]) -> Vec<Value> {
    let keys = ["rank", "world_size", "local_rank", "local_size", "node_rank", "nodes"];
    all.iter().map(|r| keys.iter().map(|k| r[k].clone()).collect::<Value>()).collect()
}

#[test]
fn explain_under_srun_derives_every_rank() {
    let world = World::new(Cluster::Plain, "explain");
    let worker = [env!("CARGO_BIN_EXE_hpcsweep"), "worker", "--explain"];
    let run = |options: &[&str], json: &[&str]| {
        let args: Vec<&str> = ["--job-name=explain.srun", "--mem=50M"]
            .iter()
            .chain(options)
            .chain(&worker)
            .chain(json)
            .copied()
            .collect();
        world.call("/usr/bin/srun", &args)
    };
    let all = explained(&run(&["--nodes=2", "--ntasks=4", "--ntasks-per-node=2"], &["--json"]));
    assert!(
        all.iter().all(|r| r["launcher"] == "slurm-step" && r["warnings"] == json!([])),
        "{all:?}"
    );
    assert_eq!(
        places(&all),
        [
            json!([0, 4, 0, 2, 0, 2]),
            json!([1, 4, 1, 2, 0, 2]),
            json!([2, 4, 0, 2, 1, 2]),
            json!([3, 4, 1, 2, 1, 2])
        ]
    );
    // --ntasks of an allocation and of its step differ: the step's counts.
    let text = run(&["--nodes=1", "--ntasks=1", "--nodelist=n3"], &[]);
    let derived: Vec<&str> = text.lines().take(4).collect();
    assert_eq!(
        derived,
        [
            "rank        0 of 1",
            "local rank  0 of 1",
            "node        0 of 1",
            "started by  a Slurm step (srun)"
        ]
    );
}

/// The three ways in which a job of four tasks starts workers: not at all, by mpirun, by a smaller step.
#[test]
fn explain_in_a_job_says_who_started_it_or_that_nobody_did() {
    let world = World::new(Cluster::Plain, "explain-job");
    let worker = format!("{} worker --explain --json", env!("CARGO_BIN_EXE_hpcsweep"));
    world.program(
        "outer.sh",
        &format!(
            "#!/bin/sh\n{worker} >body\nsrun --ntasks=2 --nodes=1 {worker} >step\n\
             export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\nmpirun -n 4 {worker} >mpirun\n"
        ),
    );
    let args = [
        "--job-name=explain-job.outer",
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--mem=100M",
        "--wait",
        "--output=outer.log",
        "outer.sh",
    ];
    world.call("/usr/bin/sbatch", &args);
    let body = explained(&world.read("body"));
    assert_eq!(places(&body), [json!([0, 1, 0, 1, 0, 1])]);
    assert_eq!(body[0]["launcher"], "nobody");
    let warning = &body[0]["warnings"][0];
    assert_eq!(warning["sentence"], "allocation has 4 tasks, but no launcher started me");
    assert!(warning["hint"].as_str().unwrap().starts_with("did you forget srun?"), "{warning}");

    let step = explained(&world.read("step"));
    assert!(step.iter().all(|r| r["launcher"] == "slurm-step"), "{step:?}");
    assert_eq!(places(&step), [json!([0, 2, 0, 2, 0, 1]), json!([1, 2, 1, 2, 0, 1])]);

    let mpirun = explained(&world.read("mpirun"));
    assert!(
        mpirun.iter().all(|r| r["launcher"] == "open-mpi"),
        "{mpirun:?} {}",
        world.read("outer.log")
    );
    let ranks: Vec<Value> =
        places(&mpirun).iter().map(|r| json!([r[0], r[1], r[2], r[3]])).collect();
    assert_eq!(
        ranks,
        [json!([0, 4, 0, 2]), json!([1, 4, 1, 2]), json!([2, 4, 0, 2]), json!([3, 4, 1, 2])]
    );
}

/// No launcher started these ranks: the job script was edited to lack srun.
#[test]
fn a_worker_without_its_launcher_does_not_run_as_if_it_were_alone() {
    let world = World::new(Cluster::Plain, "forgot");
    world.hpcsweep(&["templates", "export", "templates"]).ok();
    let text = world.read("templates/slurm.sh.tera");
    let edited =
        text.replace("{{ launcher | words }} {{ worker | words }}", "{{ worker | words }}");
    assert_ne!(text, edited);
    world.write("templates/slurm.sh.tera", &edited);
    world.plan("echo $HPCSWEEP_TRIAL >>$HERE/ran", FOUR);
    world.submit().ok();
    let said = &world.finished().standings()[0];
    assert!(said.starts_with("failed: trial 0 asks for 4 ranks, but 1 was started"), "{said}");
    assert!(said.contains("start one worker a rank (srun, mpiexec)"), "{said}");
    assert_eq!(world.read("ran"), "");
}
