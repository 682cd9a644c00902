//! What trials requested: every verb says the same, whoever ran a trial. A budget adds up the same requests.

use hpcsweep::sweep::tree::line;
use hpcsweep::sweep::tree::records::{End, Event};
use serde_json::Value;

use crate::support::pbs::Pbs;
use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, Started, World, wait_until};

/// The member of what `why` says that a trial asked for.
fn asked(world: &World, trial: u64, member: &str) -> Value {
    let why = world.run(&["why", &trial.to_string(), "--offline", "--json"]);
    let why: Value = serde_json::from_str(why.ok()).unwrap();
    why["asked"][member].clone()
}

/// The lines of a column of all attempts, with their trials.
fn attempts(world: &World, column: &str) -> String {
    let columns = format!("trial,attempt,{column}");
    let table = ["collect", "--attempts", "--format", "csv", "--columns", &columns];
    world.run(&table).ok().lines().skip(1).map(|line| format!("{line}\n")).collect()
}

/// The requests that `usage` knows, by one member, with the number of their attempts that are done.
fn used(world: &World, member: &str) -> Vec<(u64, u64)> {
    let usage: Value = serde_json::from_str(world.run(&["usage", "--json"]).ok()).unwrap();
    let shapes = usage["shapes"].as_array().unwrap().iter();
    let number = |value: &Value| value.as_u64().unwrap();
    let mut all: Vec<(u64, u64)> =
        shapes.map(|shape| (number(&shape["request"][member]), number(&shape["done"]))).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_trial_of_a_packed_job_asks_for_its_own_walltime() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let numbers: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let rest = format!(
        "[resources]\nwalltime = \"10m\"\n[schedule]\npack = 5\n[grid]\na = [{}]\n",
        numbers.join(", ")
    );
    pbs.submit(&shell("true", &rest), &[]).ok();
    assert_eq!(asked(&pbs.world, 3, "walltime_s"), 600, "while it waits");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(pbs.jobs()["0[].pbshead"]["Resource_List"]["walltime"], "00:50:00");
    assert_eq!(asked(&pbs.world, 3, "walltime_s"), 600);
    assert_eq!(used(&pbs.world, "walltime_s"), [(600, 10)]);
    let each: String = (0..10).map(|trial| format!("{trial},1,600\n")).collect();
    assert_eq!(attempts(&pbs.world, "asked_walltime_s"), each);
}

#[test]
fn each_link_of_a_fused_chain_asks_for_its_own_walltime() {
    let mut pbs = pbs();
    pbs.set("scheduling", false);
    let link = |a: u32, walltime: &str| {
        format!("[[trials]]\ntask_id = 0\na = {a}\n[trials.resources]\nwalltime = \"{walltime}\"\n")
    };
    let rest = format!("[schedule]\nchains = \"fused\"\n{}{}", link(0, "10m"), link(1, "20m"));
    pbs.submit(&shell("true", &rest), &[]).ok();
    let links = || [0, 1].map(|trial| asked(&pbs.world, trial, "walltime_s"));
    assert_eq!(links(), [600, 1200], "while they wait");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    let links = [0, 1].map(|trial| asked(&pbs.world, trial, "walltime_s"));
    assert_eq!(links, [600, 1200]);
    assert_eq!(used(&pbs.world, "walltime_s"), [(600, 1), (1200, 1)]);
}

/// An agent that is a job.
fn pilot(world: &World) -> Started {
    let mut command = world.command(PROGRAM);
    command.args(["worker", "--pull", "plan.toml"]);
    command.env("SLURM_JOB_ID", "12");
    Started { child: command.spawn().unwrap() }
}

#[test]
fn a_trial_of_a_pilot_asks_for_what_retry_and_a_later_submission_gave_it() {
    let world = World::new();
    let code = "[ $HPCSWEEP_TRIAL = 1 ] || [ -e again ] || { touch again; \
                echo '{\"step\": 1}' >>$HPCSWEEP_METRICS; exec sleep 600; }";
    let plan = |memory: &str| {
        shell(
            code,
            &format!(
                "[resources]\nwalltime = \"2s\"\nmemory = \"{memory}\"\n[pull]\nbackoff = 0.01\n\
                 [retry]\nauto = true\ntimeout = {{ walltime = \"x40\" }}\n[grid]\na = [0, 1]\n"
            ),
        )
    };
    world.write("plan.toml", &plan("1G"));
    pilot(&world).end(&world).ok();
    assert_eq!(asked(&world, 0, "walltime_s"), 80);
    assert_eq!(attempts(&world, "asked_walltime_s"), "0,1,2\n0,2,80\n1,1,2\n");
    assert_eq!(used(&world, "walltime_s"), [(2, 1), (80, 1)]);
    // Done trials keep what they asked for, whatever the plan asks for now.
    world.write("plan.toml", &plan("2G"));
    pilot(&world).end(&world).ok();
    assert_eq!(asked(&world, 1, "memory_mib"), 1024);
}

/// A trial waits for agents with what the newest plan asks for, and not with what its table or its old jobs have.
#[test]
fn a_trial_that_waits_for_agents_asks_for_what_they_will_give_it() {
    let mut pbs = pbs();
    let plan = |memory: &str| shell("[ -e now ]", &format!("[resources]\nmemory = \"{memory}\"\n"));
    pbs.submit(&plan("1G"), &["-q"]).ok();
    pbs.wait_idle();
    assert_eq!(asked(&pbs.world, 0, "memory_mib"), 1024);
    pbs.world.write("plan.toml", &plan("2G"));
    pbs.world.write("now", "");
    pbs.set("scheduling", false);
    pbs.again(&["--pull", "--retry"]).ok();
    assert_eq!(asked(&pbs.world, 0, "memory_mib"), 2048, "while it waits");
    pbs.set("scheduling", true);
    pbs.wait_idle();
    assert_eq!(asked(&pbs.world, 0, "memory_mib"), 2048);
    assert_eq!(attempts(&pbs.world, "asked_memory"), "0,1,1073741824\n0,1,2147483648\n");
}

#[test]
fn a_trial_that_was_repeated_here_with_more_asks_for_that() {
    let world = World::new();
    let plan = shell("[ -e now ]", "[resources]\nmemory = \"1G\"\n[grid]\na = [0, 1]\n");
    assert_eq!(world.local(&plan, &["-q"]).code, 1);
    world.write("now", "");
    // Trial 1 is still a failure.
    assert_eq!(world.run(&["retry", "0", "--memory", "3G"]).code, 1);
    assert_eq!([0, 1].map(|trial| asked(&world, trial, "memory_mib")), [3072, 1024]);
    assert_eq!(used(&world, "memory_mib"), [(1024, 0), (3072, 1)]);
}

/// Rules of a budget that one attempt of an hour uses up or not, by its cores; trial 1 fails at first.
fn budget(cores: u32) -> String {
    let code = "[ $HPCSWEEP_TRIAL = 0 ] || [ -e failed ] || { touch failed; exit 75; }";
    let rest = "[retry]\nauto = true\nexit_codes = { 75 = \"again\" }\nbudget = 1.5\n[pull]\nbackoff = 0.01\nbreaker = false\n";
    shell(code, &format!("[resources]\ncpus_per_rank = {cores}\n{rest}"))
}

/// A sweep of which trial 0 has run for an hour with so many cores, and whose plan now asks for so many, and for a second trial.
fn ran_for_an_hour(world: &World, (had, has): (u32, u32)) -> String {
    world.local(&format!("{}[grid]\na = [0]\n", budget(had)), &["-q", "-j", "1"]).ok();
    let file = "results/s/records/000/0.1.jsonl";
    let text = world.read(file);
    let hour = |line: &str| match line::unseal(line.as_bytes()) {
        Some(Event::End(end)) => {
            let end = Event::End(End { duration_s: 3600.0, ..end });
            String::from_utf8(line::seal(&end).unwrap()).unwrap()
        }
        _ => format!("{line}\n"),
    };
    world.write(file, &text.lines().map(hour).collect::<String>());
    format!("{}[grid]\na = [0, 1]\n", budget(has))
}

/// Runs a plan on this machine, by an agent, or as arrays.
fn run(pbs: &Pbs, plan: &str, way: &str) {
    pbs.world.write("plan.toml", plan);
    match way {
        "here" => drop(pbs.world.run(&["submit", "plan.toml", "--local", "-j", "1"])),
        "agents" => drop(pbs.world.run(&["worker", "--pull", "plan.toml", "--slots", "1"])),
        _ => {
            pbs.again(&[]).ok();
            pbs.wait_idle();
        }
    }
}

/// An attempt costs its own cores for its own time, whatever the plan asks for later.
#[test]
fn a_budget_counts_the_cores_that_each_attempt_had() {
    for (cores, end) in [((1, 2), "done"), ((2, 1), "failed: exit code 75")] {
        for way in ["here", "agents", "arrays"] {
            let pbs = Pbs::start();
            let plan = ran_for_an_hour(&pbs.world, cores);
            run(&pbs, &plan, way);
            assert_eq!(pbs.standings(), ["done", end], "{way}, {cores:?}");
        }
    }
}

/// A trial runs with many cores while another one fails, which began half a second later.
#[test]
fn a_budget_counts_what_runs() {
    let code = "case $HPCSWEEP_PARAM_A in 0) until [ -e go ]; do sleep 0.01; done ;; 1) sleep 0.5 ;; \
                2) [ -e failed ] || { touch failed; exit 75; } ;; esac";
    let trial = |a: u32, cores: u32| {
        let task = if a > 0 { "task_id = 1\n" } else { "" };
        format!("[[trials]]\na = {a}\n{task}[trials.resources]\ncpus_per_rank = {cores}\n")
    };
    // 36 core-seconds: of the one that runs, by far more than of the others.
    let rest = format!(
        "[retry]\nauto = true\nexit_codes = {{ 75 = \"again\" }}\nbudget = 0.01\n[pull]\nbackoff = 0.01\nbreaker = false\n{}{}{}",
        trial(0, 200),
        trial(1, 1),
        trial(2, 1)
    );
    let ways: [&[&str]; 2] = [
        &["submit", "plan.toml", "--local", "-j", "2"],
        &["worker", "--pull", "plan.toml", "--slots", "2"],
    ];
    for args in ways {
        let world = World::new();
        world.write("plan.toml", &shell(code, &rest));
        let started = world.start(args);
        let mut told = String::new();
        wait_until("it is decided", || {
            told = world.run(&["why", "results/s"]).out;
            told.contains("retried (")
        });
        world.write("go", "");
        started.end(&world);
        assert!(told.contains("not retried (the budget of 0.01 core-hours"), "{args:?}: {told}");
    }
}
