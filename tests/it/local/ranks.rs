//! Several ranks of one trial on this machine: who they are, one record, one log, and their ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::plans::shell;
use crate::support::world::{PROGRAM, World, wait_until};

fn ranks(code: &str, n: u32, rest: &str) -> String {
    let resources = format!("[resources]\nranks = {n}\n");
    shell(code, rest) + &resources
}

#[test]
fn ranks_that_a_trial_starts_itself_have_a_free_port_to_meet_at() {
    let code =
        "env | grep -E '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_MASTER_PORT)=' | sort >seen";
    let world = World::new();
    world.local(&shell(code, ""), &[]).ok();
    let text = world.read("seen");
    let port = text.strip_prefix("MASTER_PORT=").and_then(|rest| rest.lines().next()).unwrap();
    assert_eq!(text, format!("MASTER_PORT={port}\nPET_MASTER_PORT={port}\n"));
    std::net::TcpListener::bind(("0.0.0.0", port.parse().unwrap())).unwrap();
    // What the plan says stays.
    let world = World::new();
    world.local(&shell(code, "env = { MASTER_PORT = \"29777\" }\n"), &[]).ok();
    assert!(world.read("seen").starts_with("MASTER_PORT=29777\nPET_MASTER_PORT="));
}

/// The lines of a sweep's first trial: the rank and the value of each, in order.
fn told(world: &World) -> Vec<(u64, f64)> {
    let table = world.run(&["collect", "--steps", "--format", "jsonl"]);
    let mut all: Vec<(u64, f64)> = table
        .ok()
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["rank"].as_u64().unwrap_or(0), line["loss"].as_f64().unwrap())
        })
        .collect();
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all
}

#[test]
fn the_values_of_rank_0_count_among_ranks_that_a_trial_starts_with_mpirun() {
    let world = World::new();
    let program = "import os, hpcsweep; r = int(os.environ['OMPI_COMM_WORLD_RANK']); hpcsweep.report(loss=r + 0.5); hpcsweep.result(r)";
    let code = format!("mpirun --allow-run-as-root --oversubscribe -n 2 python3 -c \"{program}\"");
    world.local(&shell(&code, ""), &[]).ok();
    assert_eq!(told(&world), [(0, 0.5), (1, 1.5)]);
    let table = world.run(&["collect", "--format", "jsonl"]);
    let row: serde_json::Value = serde_json::from_str(table.ok()).unwrap();
    assert_eq!((&row["loss"], &row["result"]), (&json!(0.5), &json!(0)));
}

#[test]
fn torchrun_in_each_of_several_ranks_leaves_one_rank_0() {
    // Once for each rank alone, and once for all of them together, as torchrun numbers its ranks.
    for (first, size) in [("0", 2), ("2*$RANK", 4)] {
        let world = World::new();
        let program = "import os, hpcsweep; hpcsweep.report(loss=int(os.environ['OUTER']) * 10 + int(os.environ['INNER']))";
        let code = format!(
            "export OUTER=$RANK; first=$(({first})); for i in 0 1; do INNER=$i RANK=$((first + i)) \
             WORLD_SIZE={size} TORCHELASTIC_RUN_ID=x python3 -c \"{program}\"; done"
        );
        world.local(&ranks(&code, 2, ""), &[]).ok();
        let expected = match size {
            2 => [(0, 0.0), (1, 1.0), (1, 10.0), (1, 11.0)],
            _ => [(0, 0.0), (1, 1.0), (2, 10.0), (3, 11.0)],
        };
        assert_eq!(told(&world), expected);
        assert_eq!(world.column("loss"), ["0"]);
    }
}

#[test]
fn ranks_see_the_variables_of_torchrun() {
    let world = World::new();
    let code = "env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT)=' \
                | sort >seen.$RANK; echo $HPCSWEEP_TRIAL.$HPCSWEEP_ATTEMPT >trial.$RANK";
    world.local(&ranks(code, 3, ""), &[]).ok();
    let meeting: Vec<(std::net::IpAddr, u16)> = (0..3)
        .map(|rank| {
            let text = world.read(&format!("seen.{rank}"));
            let value = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            let (addr, port) = (value("MASTER_ADDR="), value("MASTER_PORT="));
            assert_eq!(
                text,
                format!(
                    "GROUP_RANK=0\nLOCAL_RANK={rank}\nLOCAL_WORLD_SIZE=3\nMASTER_ADDR={addr}\n\
                     MASTER_PORT={port}\nRANK={rank}\nWORLD_SIZE=3\n"
                )
            );
            assert_eq!(world.read(&format!("trial.{rank}")), "0.1\n");
            (addr.parse().unwrap(), port.parse().unwrap())
        })
        .collect();
    // All ranks meet at one place that a program of rank 0 may bind.
    assert!(meeting.iter().all(|place| *place == meeting[0]), "{meeting:?}");
    assert!(meeting[0].1 >= 1024);
    std::net::TcpListener::bind(meeting[0]).unwrap();
}

#[test]
fn several_ranks_leave_one_record_and_one_log_with_their_names() {
    let world = World::new();
    let code = "echo out of $RANK; echo err of $RANK >&2; printf 'no end of line'
        echo \"{\\\"loss\\\": $RANK.5}\" >>$HPCSWEEP_METRICS; [ $RANK != 1 ] || echo '{\"only\": 1}' >>$HPCSWEEP_METRICS";
    world.local(&ranks(code, 2, ""), &[]).ok();
    let log = world.run(&["logs", "0"]);
    let mut lines: Vec<&str> = log.ok().lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "[rank 0] err of 0",
            "[rank 0] no end of line",
            "[rank 0] out of 0",
            "[rank 1] err of 1",
            "[rank 1] no end of line",
            "[rank 1] out of 1",
        ]
    );
    assert_eq!(world.files("results/s/records"), ["000/0.1.jsonl"]);
    assert_eq!(world.files("results/s/logs"), ["000/0.1.log"]);
    assert_eq!(world.files("results/s/meet"), Vec::<String>::new());
    let row = &world.table(&[])[0];
    // The lowest rank that logs a metric speaks for it.
    assert_eq!(
        (&row["state"], &row["loss"], &row["only"]),
        (&json!("done"), &json!(0.5), &json!(1))
    );
    assert!(world.files("tmp").is_empty(), "{:?}", world.files("tmp"));
}

#[test]
fn a_rank_that_fails_ends_the_trial() {
    for failing in [0, 1, 2] {
        let world = World::new();
        let code = format!(": >here.$RANK; [ $RANK != {failing} ] || exit 7; exec sleep 600");
        let ran = world.local(&ranks(&code, 3, ""), &["-j", "1"]);
        assert_eq!(ran.code, 1, "{}", ran.whole());
        let trial = world.status()["trials"][0].clone();
        assert_eq!(
            (&trial["state"], &trial["exit_code"]),
            (&json!("failed"), &json!(7)),
            "{trial}"
        );
        let reason = trial["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("rank {failing}")), "{reason}");
    }
}

#[test]
fn a_rank_killed_by_a_signal_is_named() {
    let world = World::new();
    let code = "[ $RANK != 1 ] || kill -9 $$; exec sleep 600";
    assert_eq!(world.local(&ranks(code, 2, ""), &[]).code, 1);
    let reason = world.status()["trials"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("rank 1") && reason.contains("signal 9"), "{reason}");
}

#[test]
fn every_attempt_gathers_all_ranks_again() {
    let world = World::new();
    let code = "echo $RANK.$HPCSWEEP_ATTEMPT >>ran; [ $HPCSWEEP_ATTEMPT = 2 ]";
    world.local(&ranks(code, 2, "attempts = 2\n"), &[]).ok();
    let ran = world.read("ran");
    let mut lines: Vec<&str> = ran.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0.1", "0.2", "1.1", "1.2"]);
    assert_eq!(world.column("attempts"), ["2"]);
}

#[test]
fn a_set_up_that_fails_on_one_rank_ends_the_trial() {
    let world = World::new();
    let ran = world.local(&ranks("exec sleep 600", 2, "setup = [\"[ $RANK = 0 ]\"]\n"), &[]);
    assert_eq!(ran.code, 1);
    let log = world.run(&["logs", "0"]);
    assert_eq!(log.ok(), "[rank 1] the set-up failed at: [ $RANK = 0 ]\n");
}

/// Starts one rank by hand, the way a launcher does.
fn rank(world: &World, rank: u32, size: u32) -> std::process::Command {
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--sweep", "results/s", "--trial", "1"]);
    for (name, value) in [
        ("HPCSWEEP_RANK", rank),
        ("HPCSWEEP_WORLD_SIZE", size),
        ("HPCSWEEP_LOCAL_RANK", rank),
        ("HPCSWEEP_LOCAL_WORLD_SIZE", size),
        ("HPCSWEEP_NODE_RANK", 0),
        ("HPCSWEEP_NNODES", 1),
    ] {
        command.env(name, value.to_string());
    }
    command.env("HPCSWEEP_MEET", "here").env("HPCSWEEP_RENDEZVOUS_S", "0.5");
    command
}

/// A sweep whose trial 1, of so many ranks, has not run yet.
fn laid_down(size: u32) -> World {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 1 ] || exit 1; echo ran >>ran.$RANK";
    let first = "[[trials]]\ntask_id = 1\n";
    let trials = format!("{first}{first}resources.ranks = {size}\n");
    assert_eq!(world.local(&shell(code, &trials), &["-j", "1"]).code, 1);
    world
}

#[test]
fn ranks_that_do_not_come_are_named_at_the_deadline() {
    let world = laid_down(4);
    let late = |number| {
        let mut command = rank(&world, number, 4);
        command.env("HPCSWEEP_RENDEZVOUS_S", "3");
        command
    };
    let mut second = late(2).spawn().unwrap();
    let output = late(0).output().unwrap();
    let other = second.wait().unwrap();
    assert!(!output.status.success() && !other.success());
    let status = world.status();
    let reason = status["trials"][1]["reason"].as_str().unwrap();
    assert!(reason.contains("ranks 1, 3 did not arrive within 3.0 s"), "{reason}");
    assert_eq!(status["trials"][1]["cause"], "rendezvous");
    assert!(!world.exists("ran.0") && !world.exists("ran.2"));
}

#[test]
fn a_rank_without_a_rank_zero_says_so() {
    let world = laid_down(2);
    let output = rank(&world, 1, 2).output().unwrap();
    let said = world.shown(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: rank 1 on "), "{said}");
    assert!(said.contains(" found no rank 0 within 0.5 s\n"), "{said}");
    // It leaves no record: rank 0 alone writes.
    assert_eq!(world.files("results/s/records"), ["000/0.1.jsonl"]);
}

#[test]
fn more_or_fewer_ranks_than_the_trial_asks_for_are_refused() {
    let world = laid_down(2);
    for (size, started) in [(3, "3 were"), (1, "1 was")] {
        assert!(!rank(&world, 0, size).output().unwrap().status.success());
        let status = world.status();
        let reason = status["trials"][1]["reason"].as_str().unwrap();
        let says = format!("trial 1 asks for 2 ranks, but {started} started; ");
        assert!(reason.starts_with(&says), "{reason}");
    }
    // A rank that is not the first has no record to say it in.
    let output = rank(&world, 1, 3).output().unwrap();
    let said = world.shown(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: trial 1 asks for 2 ranks, but 3 were started\n"), "{said}");
    assert!(!world.exists("ran.0") && !world.exists("ran.1"));
}

#[test]
fn ranks_started_one_after_the_other_still_meet() {
    let world = laid_down(2);
    let first = rank(&world, 0, 2).env("HPCSWEEP_RENDEZVOUS_S", "60").spawn().unwrap();
    wait_until("rank 0 can be met", || !world.files("results/s/meet").is_empty());
    let second = rank(&world, 1, 2).output().unwrap();
    assert!(second.status.success(), "{}", world.shown(&second.stderr));
    assert!(first.wait_with_output().unwrap().status.success());
    assert_eq!(
        (world.read("ran.0"), world.read("ran.1")),
        ("ran\n".to_owned(), "ran\n".to_owned())
    );
}

#[test]
fn a_worker_explains_who_it_is() {
    let mut world = World::new();
    for (name, value) in [
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "1"),
        ("SLURM_JOB_ID", "12"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NUM_TASKS", "8"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "4(x2)"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
    ] {
        world.set(name, value);
    }
    let json = world.run(&["worker", "--explain", "--json"]);
    let rank: serde_json::Value = serde_json::from_str(json.ok()).unwrap();
    assert_eq!(
        (&rank["rank"], &rank["world_size"], &rank["local_rank"]),
        (&json!(5), &json!(8), &json!(1))
    );
    let text = world.run(&["worker", "--explain"]);
    assert!(text.ok().contains("SLURM_PROCID"), "{}", text.out);
}

#[test]
fn of_ranks_that_fail_one_after_the_other_the_first_is_named() {
    let world = World::new();
    // Rank 3 fails, and the others a moment after they have lost it.
    let code = "[ $RANK != 3 ] || { : >gone; exit 17; }
        while [ ! -e gone ]; do sleep 0.001; done; sleep 0.02; exit 1";
    assert_eq!(world.local(&ranks(code, 4, ""), &[]).code, 1);
    let trial = world.status()["trials"][0].clone();
    let reason = trial["reason"].as_str().unwrap();
    assert!(reason.contains("rank 3 on ") && reason.ends_with(": exit code 17"), "{reason}");
    assert_eq!(trial["exit_code"], json!(17));
}

#[test]
fn of_a_rank_that_is_killed_near_its_limit_of_memory_that_is_why() {
    let world = World::new();
    // `tail` keeps a line that does not end.
    let code = "[ $RANK = $HPCSWEEP_PARAM_R ] || exec sleep 600
        head -c 60000000 /dev/zero | tail -n 1 >/dev/null; kill -9 $$";
    let plan = ranks(code, 2, "") + "memory = \"60M\"\n[grid]\nr = [0, 1]\n";
    assert_eq!(world.local(&plan, &[]).code, 1);
    let why = "perhaps out of memory: its processes had ";
    for trial in [0, 1] {
        let own = world.status()["trials"][trial].clone();
        let reason = own["reason"].as_str().unwrap();
        assert!(reason.contains(why), "{reason}");
        assert_eq!(own["cause"], "out-of-memory");
        assert_eq!(reason.contains("rank 1 on "), trial == 1, "{reason}");
    }
}

#[test]
fn a_rank_that_is_lost_is_why_its_launcher_stops_the_others() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 1 ] || exit 1; : >ran.$RANK; exec sleep 600";
    let first = "[[trials]]\ntask_id = 1\n";
    let trials = format!("{first}{first}resources.ranks = 3\n");
    assert_eq!(world.local(&shell(code, &trials), &["-j", "1"]).code, 1);
    let mut started: Vec<std::process::Child> = (0..3)
        .map(|number| rank(&world, number, 3).env("HPCSWEEP_RENDEZVOUS_S", "60").spawn().unwrap())
        .collect();
    wait_until("they run", || (0..3).all(|rank| world.exists(&format!("ran.{rank}"))));
    for (rank, signal) in [(2, Signal::SIGKILL), (0, Signal::SIGTERM), (1, Signal::SIGTERM)] {
        kill(Pid::from_raw(started[rank].id().cast_signed()), signal).unwrap();
    }
    for rank in &mut started {
        assert!(!rank.wait().unwrap().success());
    }
    let trial = world.status()["trials"][1].clone();
    let reason = trial["reason"].as_str().unwrap();
    assert_eq!(trial["state"], "failed", "{reason}");
    assert!(reason.contains("rank 2 on ") && reason.ends_with(" vanished"), "{reason}");
    assert_eq!(trial["cause"], "rank-lost");
}

#[test]
fn what_open_mpi_does_not_tell_of_nodes_the_ranks_tell_each_other() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 1 ] || exit 1
        env | grep -E '^(GROUP_RANK|GROUP_WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE)=' | sort >seen.$RANK";
    let first = "[[trials]]\ntask_id = 1\n";
    let trials = format!("{first}{first}resources.ranks = 3\n");
    assert_eq!(world.local(&shell(code, &trials), &["-j", "1"]).code, 1);
    let places = [("n7", 0), ("n3", 0), ("n7", 1)];
    let ranks = places.iter().enumerate().map(|(rank, (host, local))| {
        let mut command = world.command(PROGRAM);
        command.args(["worker", "--sweep", "results/s", "--trial", "1"]);
        command.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", "3");
        command.env("OMPI_COMM_WORLD_LOCAL_RANK", local.to_string());
        command.env("SLURMD_NODENAME", host).env("HPCSWEEP_MEET", "here");
        command.spawn().unwrap()
    });
    let ranks: Vec<std::process::Child> = ranks.collect();
    for mut rank in ranks {
        assert!(rank.wait().unwrap().success());
    }
    let seen: Vec<String> = (0..3).map(|rank| world.read(&format!("seen.{rank}"))).collect();
    let expected = |group: u32, local: u32, here: u32| {
        format!(
            "GROUP_RANK={group}\nGROUP_WORLD_SIZE=2\nLOCAL_RANK={local}\nLOCAL_WORLD_SIZE={here}\n"
        )
    };
    assert_eq!(seen, [expected(0, 0, 2), expected(1, 0, 1), expected(0, 1, 2)]);
}
