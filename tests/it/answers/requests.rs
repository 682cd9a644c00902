//! What trials asked for: all answers say the same, whoever ran a trial.

use serde_json::Value;

use crate::support::pbs_once::pbs;
use crate::support::plans::shell;
use crate::support::world::{PROGRAM, Started, World};

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
