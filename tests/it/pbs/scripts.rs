//! The scripts that are given to PBS: whole, byte for byte, clean to `bash -n` and shellcheck.
//!
//! `BLESS=1 cargo test` writes the golden files anew; a missing one fails.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::pbs::Pbs;
use crate::support::plans::MINIMAL;
use crate::support::slurm::{compare, shown};
use crate::support::world::ROOT;

/// Every golden file.
const GOLDEN: [&str; 11] = [
    "array.sh",
    "everything.sh",
    "fused.sh",
    "gpus.sh",
    "job.sh",
    "odd-folder.sh",
    "one-element.sh",
    "pilots.sh",
    "ranks.sh",
    "relaunched-ranks.sh",
    "site.sh",
];

fn golden(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/golden/pbs").join(name)
}

/// A server that runs nothing.
fn pbs() -> Pbs {
    let mut pbs = Pbs::start();
    pbs.set("scheduling", false);
    pbs
}

/// Compares the script of an array with its golden file.
#[track_caller]
fn check(pbs: &Pbs, sweep: &str, array: u32, name: &str) {
    assert!(GOLDEN.contains(&name), "add {name} to GOLDEN");
    let files = pbs.world.files(&format!("{sweep}/jobs"));
    let find = |end: &str| files.iter().find(|file| file.ends_with(end)).unwrap();
    let script = find(&format!(".{array}.sh"));
    let environment = files.iter().find(|file| file.starts_with("env-")).unwrap();
    let text =
        shown(&pbs.world, sweep, script).replace(environment.as_str(), "env-0123456789ab.sh");
    let own = pbs.world.text_path(&format!("{sweep}/jobs/{script}"));
    compare(&pbs.world, &text, &own, &golden(name));
}

fn submit(plan: &str, args: &[&str]) -> Pbs {
    let pbs = pbs();
    pbs.submit(plan, args).ok();
    pbs
}

#[test]
fn an_array_and_its_throttle() {
    let pbs = submit(&format!("{MINIMAL}[grid]\na = [1, 2, 3]\n"), &["--max-running", "2"]);
    check(&pbs, "results/demo", 1, "array.sh");
}

#[test]
fn one_trial_is_an_array_whose_only_index_is_0() {
    check(&submit(MINIMAL, &[]), "results/demo", 1, "one-element.sh");
}

/// Two links of two chains, mapped as given.
fn chains(mapping: &str) -> Pbs {
    let rest = "[resources]\nwalltime = \"30m\"\n[defaults]\ntask_id = \"c{{ c }}\"\n[grid]\nc = [1, 2]\na = [1, 2]\n";
    submit(&format!("{MINIMAL}{rest}[schedule]\nchains = \"{mapping}\"\n"), &[])
}

#[test]
fn a_link_of_a_chain_is_a_job_of_its_own() {
    check(&chains("jobs"), "results/demo", 2, "job.sh");
}

#[test]
fn a_fused_chain_runs_link_by_link() {
    check(&chains("fused"), "results/demo", 1, "fused.sh");
}

#[test]
fn pilots_are_agents_on_a_node_each() {
    let rest =
        "[resources]\nwalltime = \"30m\"\n[grid]\na = [1, 2, 3]\n[pull]\nwalltime = \"8h\"\n";
    let args = ["--pull", "--workers", "2", "--slots", "3"];
    check(&submit(&format!("{MINIMAL}{rest}"), &args), "results/demo", 1, "pilots.sh");
}

#[test]
fn ranks_are_started_by_launch_on_scattered_nodes() {
    let plan = format!("{MINIMAL}[resources]\nnodes = 2\nranks = 4\ncpus_per_rank = 3\n");
    check(&submit(&plan, &[]), "results/demo", 1, "ranks.sh");
}

#[test]
fn another_attempt_over_mpi_is_another_launch() {
    let plan = MINIMAL.replace("[run]", "[run]\nattempts = 3")
        + "[metrics]\nsync = \"mpi\"\n[resources]\nranks = 2\n";
    check(&submit(&plan, &[]), "results/demo", 1, "relaunched-ranks.sh");
}

#[test]
fn gpus_are_counted_a_chunk() {
    let plan = format!("{MINIMAL}[resources]\nnodes = 2\nranks = 4\ngpus_per_rank = 1\n");
    check(&submit(&plan, &[]), "results/demo", 1, "gpus.sh");
}

#[test]
fn everything_a_plan_asks_for_is_a_directive() {
    let plan = r#"version = 1
[sweep]
name = "demo"
[run]
command = ["true"]
[resources]
nodes = 3
ranks = 5
cpus_per_rank = 3
gpus_per_rank = 1
memory = "1500M"
walltime = "1-02:03:04"
partition = "workq"
account = "it's mine"
constraint = "model=milan"
directives = ["-p 100", "-l software='two words'"]
[grid]
a = [1, 2, 3, 4]
"#;
    let mut pbs = pbs();
    pbs.set("resources", serde_json::json!(["ngpus", "model", "software"]));
    pbs.submit(plan, &[]).ok();
    check(&pbs, "results/demo", 1, "everything.sh");
    // And the server understands it.
    let job = &pbs.jobs()["0[].pbshead"];
    assert_eq!(
        (&job["Account_Name"], &job["Resource_List"]["software"], &job["Priority"]),
        (&serde_json::json!("it's mine"), &serde_json::json!("two words"), &serde_json::json!(100))
    );
}

#[test]
fn a_site_names_its_own_resources_launcher_and_shell() {
    let mut pbs = pbs();
    pbs.set("resources", serde_json::json!(["gpus", "gpu_type"]));
    pbs.site(
        r#"[scheduler]
partition = "workq"
account = "physics"
launcher = ["mpiexec", "--bind-to", "none", "-x", "A=two words"]
directives = ["-p 7"]
single_rank_step = true
[shell]
path = "/usr/bin/bash"
[pbs]
gpu_resource = "gpus"
constraint_resource = "gpu_type"
[caps]
max_walltime = "02:00:00"
max_running = 5
"#,
    );
    let rest = "[resources]\ngpus_per_rank = 1\nconstraint = \"a100\"\n[grid]\na = [1, 2, 3, 4, 5, 6, 7]\n";
    pbs.submit(&format!("{MINIMAL}{rest}"), &[]).ok();
    check(&pbs, "results/demo", 1, "site.sh");
}

/// All that PBS can pass on, and a shell or a template could stumble over.
const ODD: &str = "it has 100% $(date) `id` {{ a }} #;&|*";

#[test]
fn blanks_and_shell_code_in_paths_stay_text() {
    let pbs = pbs();
    pbs.world.write(&format!("{ODD}/plan.toml"), MINIMAL);
    pbs.world.run(&["submit", &format!("{ODD}/plan.toml"), "--pbs"]).ok();
    check(&pbs, &format!("{ODD}/results/demo"), 1, "odd-folder.sh");
}

#[test]
fn there_is_no_golden_file_without_a_test() {
    let mut found: Vec<String> = fs::read_dir(golden(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, GOLDEN);
}

/// qsub keeps the first `-l` of a resource.
#[test]
fn what_a_plan_asks_for_by_directives_is_asked_for_once() {
    let mut pbs = pbs();
    pbs.set("resources", serde_json::json!(["filesystems"]));
    pbs.site("[scheduler]\ndirectives = [\"-l place=pack,filesystems=home\"]\n");
    let rest = "[resources]\nnodes = 2\nranks = 2\nwalltime = \"10m\"\n\
                directives = [\"-l place=scatter:excl\", \"-M ada@site.org\"]\n";
    pbs.submit(&format!("{MINIMAL}{rest}"), &[]).ok();
    let files = pbs.world.files("results/demo/jobs");
    let script = files.iter().find(|file| file.ends_with(".1.sh")).unwrap();
    let script = pbs.world.read(&format!("results/demo/jobs/{script}"));
    let lines: Vec<&str> = script
        .lines()
        .filter(|line| line.starts_with("#PBS -l") || line.starts_with("#PBS -M"))
        .collect();
    assert_eq!(
        lines,
        [
            "#PBS -l select=2:ncpus=1:mpiprocs=1:ompthreads=1",
            "#PBS -l walltime=00:10:00",
            "#PBS -l filesystems=home",
            "#PBS -l place=scatter:excl",
            "#PBS -M ada@site.org",
        ]
    );
}
