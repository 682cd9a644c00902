//! The scripts that are given to Slurm: whole, byte for byte, clean to `bash -n` and shellcheck, and run
//! the way an element of an array would.
//!
//! `BLESS=1 cargo test` writes the golden files anew; a missing one fails.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::faults::{FILLS, MEETS};
use crate::support::plans::MINIMAL;
use crate::support::slurm::{compare, element, shown, slurm};
use crate::support::world::{PROGRAM, ROOT, World};

/// Every golden file.
const GOLDEN: [&str; 10] = [
    "everything.sh",
    "minimal.sh",
    "odd-folder.sh",
    "pilots.sh",
    "ranks.sh",
    "relaunched-ranks.sh",
    "second-link.sh",
    "setup-modules.sh",
    "setup-site-modules.sh",
    "site.sh",
];

fn golden(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/golden/slurm").join(name)
}

/// Compares a script with its golden file, and asks bash and shellcheck what they think of it.
#[track_caller]
fn check(world: &World, sweep: &str, script: &str, name: &str) {
    assert!(GOLDEN.contains(&name), "add {name} to GOLDEN");
    let own = world.text_path(&format!("{sweep}/jobs/{script}"));
    compare(world, &shown(world, sweep, script), &own, &golden(name));
}

#[track_caller]
fn submit(world: &World, plan: &str, args: &[&str]) {
    world.write("plan.toml", plan);
    world.run(&[&["submit", "plan.toml", "--slurm"], args].concat()).ok();
}

#[test]
fn a_plan_without_requests_makes_a_short_script() {
    let world = slurm();
    submit(&world, MINIMAL, &[]);
    check(&world, "results/demo", "0001.sh", "minimal.sh");
}

#[test]
fn everything_a_plan_asks_for_is_a_directive() {
    let world = slurm();
    let plan = r#"version = 1
[sweep]
name = "demo"
[run]
command = ["true"]
[resources]
nodes = 2
ranks = 4
ranks_per_node = 2
cpus_per_rank = 3
gpus_per_rank = 1
memory = "1500M"
walltime = "1-02:03:04"
partition = "main"
account = "it's mine"
qos = "high"
constraint = "avx2&[rack1|rack2]"
directives = ["--mail-type=END", "--comment='two words'", "--exclusive"]
[grid]
a = [1, 2, 3, 4]
"#;
    submit(&world, plan, &["--max-running", "2"]);
    check(&world, "results/demo", "0001.sh", "everything.sh");
}

#[test]
fn pilots_are_agents_on_a_node_each() {
    let world = slurm();
    let rest = "[resources]\nwalltime = \"30m\"\ncpus_per_rank = 2\npartition = \"main\"\n[grid]\na = [1, 2, 3]\n\
                [pull]\nwalltime = \"8h\"\nslots = 1\nworkers = 5\n";
    submit(&world, &format!("{MINIMAL}{rest}"), &["--pull"]);
    check(&world, "results/demo", "0001.sh", "pilots.sh");
}

/// A job of `[train]` resumes from what it has saved, so it is requeued. For other programs only their author
/// knows whether they can resume.
#[test]
fn trials_that_keep_checkpoints_are_begun_again_by_slurm() {
    let world = slurm();
    let directives = |rest: &str| {
        world.write("plan.toml", &format!("version = 1\nsweep.name = \"s\"\n{rest}"));
        let ran = world.run(&["plan", "--json", "plan.toml"]);
        let planned: serde_json::Value = serde_json::from_str(ran.ok()).unwrap();
        planned["arrays"][0]["directives"].to_string()
    };
    let train = "[train]\nmodel = { kind = \"mlp\", hidden = [4], outputs = 10 }\n\
                 data = { train = \"d.npz\" }\nepochs = 2\nbatch_size = 8\n\
                 optimizer = { kind = \"sgd\", lr = 0.1 }\n";
    assert!(directives(train).contains("--requeue"), "{}", directives(train));
    let command = "[run]\ncommand = [\"true\"]\n";
    assert!(!directives(command).contains("requeue"));
    let asked = format!("{command}[resources]\ndirectives = [\"--requeue\"]\n");
    assert!(directives(&asked).contains("--requeue"));
}

/// Ranks over MPI cannot begin anew within one launch.
#[test]
fn another_attempt_over_mpi_is_another_launch() {
    let world = slurm();
    let plan = MINIMAL.replace("[run]", "[run]\nattempts = 3")
        + "[metrics]\nsync = \"mpi\"\n[resources]\nranks = 2\n";
    submit(&world, &plan, &[]);
    check(&world, "results/demo", "0001.sh", "relaunched-ranks.sh");
}

#[test]
fn several_ranks_are_started_by_the_launcher() {
    let world = slurm();
    submit(&world, &format!("{MINIMAL}[resources]\nranks = 4\n"), &[]);
    check(&world, "results/demo", "0001.sh", "ranks.sh");
}

#[test]
fn a_link_of_a_chain_has_an_array_of_its_own_that_follows() {
    let world = slurm();
    let plan = format!(
        "{MINIMAL}[defaults]\ntask_id = \"c{{{{ c }}}}\"\n[grid]\nc = [1, 2]\na = [1, 2]\n"
    );
    submit(&world, &plan, &[]);
    check(&world, "results/demo", "0002.sh", "second-link.sh");
    let calls = world.read("calls").replace(&world.text_path(""), "");
    assert_eq!(
        calls,
        "\
scontrol show config
scontrol --oneliner show partition
sbatch --parsable results/demo/jobs/0001.sh
sbatch --parsable --dependency=aftercorr:101 --kill-on-invalid-dep=yes results/demo/jobs/0002.sh
"
    );
}

#[test]
fn a_site_profile_fills_in_what_the_plan_leaves_open() {
    let world = slurm();
    let profile = r#"version = 1
[scheduler]
partition = "main"
account = "physics"
qos = "normal"
launcher = ["mpiexec", "--bind-to", "none", "-x", "A=two words"]
directives = ["--export=NONE"]
single_rank_step = true
[shell]
path = "/usr/bin/bash"
[caps]
max_walltime = "02:00:00"
max_running = 5
"#;
    world.write("home/config/hpcsweep/site.toml", profile);
    submit(&world, &format!("{MINIMAL}[grid]\na = [1, 2, 3, 4, 5, 6, 7]\n"), &[]);
    check(&world, "results/demo", "0001.sh", "site.sh");
}

/// A folder whose name is all that a shell, Slurm or a template could stumble over.
const ODD: &str = "it's 100% \"odd\" $(date) `id` \\ {{ a }} #;&|*";

#[test]
fn quotes_blanks_and_percent_signs_in_paths_stay_text() {
    let world = slurm();
    world.write(&format!("{ODD}/plan.toml"), MINIMAL);
    let plan = format!("{ODD}/plan.toml");
    world.run(&["submit", &plan, "--slurm"]).ok();
    check(&world, &format!("{ODD}/results/demo"), "0001.sh", "odd-folder.sh");
}

#[test]
fn modules_and_set_up_lines_stand_in_a_script_that_becomes_the_command() {
    let world = slurm();
    let plan = r#"version = 1
[sweep]
name = "demo"
[run]
command = ["true"]
modules = ["cuda/12.4", "my module's"]
setup = ["source /etc/profile", "export A=\"$HOME\"", "cd / && umask 077"]
"#;
    submit(&world, plan, &[]);
    check(&world, "results/demo", "setup-000000000000.sh", "setup-modules.sh");
}

#[test]
fn the_sites_modules_come_first_and_by_the_sites_own_door() {
    let world = slurm();
    let profile =
        "version = 1\n[modules]\nload = [\"gcc/12\"]\ninit = \"/opt/my modules/init/bash\"\n";
    world.write("home/config/hpcsweep/site.toml", profile);
    let plan = MINIMAL.replace("[run]", "[run]\nmodules = [\"cuda/12.4\"]");
    submit(&world, &plan, &[]);
    check(&world, "results/demo", "setup-000000000000.sh", "setup-site-modules.sh");
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

#[test]
fn nothing_of_an_outer_job_reaches_sbatch() {
    let mut world = slurm();
    for name in
        ["SLURM_JOB_ID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK", "WORLD_SIZE"]
    {
        world.set(name, "7");
    }
    world.set("MINE", "kept");
    submit(&world, MINIMAL, &[]);
    let env = world.read("calls.env");
    let leaked: Vec<&str> = env
        .lines()
        .filter(|line| line.starts_with("SLURM_JOB") || line.starts_with("SLURM_NTASKS"))
        .chain(env.lines().filter(|line| line.contains("RANK") || line.starts_with("WORLD_SIZE")))
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    assert!(env.contains("\nMINE=kept\n") || env.starts_with("MINE=kept\n"), "{env}");
}

#[test]
fn an_element_of_the_array_runs_its_own_trial() {
    let world = slurm();
    let plan = r#"version = 1
[sweep]
name = "demo"
[run]
command = ["sh", "-c", "echo trial $HPCSWEEP_TRIAL a={{ a }}; exit {{ a }}"]
[grid]
a = [0, 3]
"#;
    let folder = format!("{ODD}/plan.toml");
    world.write(&folder, plan);
    world.run(&["submit", &folder, "--slurm"]).ok();
    let sweep = format!("{ODD}/results/demo");
    let script = format!("{sweep}/jobs/0001.sh");
    // The program's own exit code reaches the scheduler.
    assert_eq!(element(&world, &script, 1, 2).whole(), "exit code 3\n");
    assert_eq!(element(&world, &script, 0, 2).whole(), "exit code 0\n");
    let table = world.table(&[&world.text_path(&sweep)]);
    let rows: Vec<String> = table
        .iter()
        .map(|r| format!("{} {} {} {}", r["trial"], r["state"], r["exit_code"], r["job"]))
        .collect();
    assert_eq!(rows, ["0 \"done\" 0 \"101_0\"", "1 \"failed\" 3 \"101_1\""]);
    assert_eq!(world.run(&["logs", "1", &world.text_path(&sweep)]).ok(), "trial 1 a=3\n");
    // An element that is run again makes nothing anew.
    assert_eq!(element(&world, &script, 0, 2).whole(), "exit code 0\n");
    assert_eq!(world.table(&[&world.text_path(&sweep)])[0]["attempts"], 1);
    // An index that the array does not have is the request's fault.
    let ran = element(&world, &script, 2, 2);
    assert_eq!(
        ran.whole(),
        "error: array index 2 is beyond the 2 elements of this array\nexit code 2\n"
    );
}

#[test]
fn a_second_submission_submits_only_what_is_new() {
    let world = slurm();
    let plan = format!("{MINIMAL}[grid]\na = [1, 2]\n");
    submit(&world, &plan, &[]);
    submit(&world, &plan, &[]);
    let sbatch = || world.read("calls").lines().filter(|l| l.starts_with("sbatch")).count();
    assert_eq!(sbatch(), 1);
    let ran = {
        world.write("plan.toml", &plan.replace("[1, 2]", "[1, 2, 3]"));
        world.run(&["submit", "plan.toml", "--slurm"])
    };
    assert_eq!(
        ran.whole(),
        "\
array 2: 1 trial as job 102
demo: 1 trial submitted as 1 array (3 scheduler calls); 2 trials submitted before
jobs: 102
results: $WORLD/results/demo
next: hpcsweep status results/demo
exit code 0
"
    );
    assert!(world.read("results/demo/jobs/0002.sh").contains("--array=0-0\n"));
}

#[test]
fn a_scheduler_that_refuses_is_quoted_and_nothing_is_lost() {
    let world = slurm();
    let good = world.read("bin/sbatch");
    world.program(
        "sbatch",
        "#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Invalid account or account/partition \
         combination specified' >&2\nexit 1\n",
    );
    world.write("plan.toml", MINIMAL);
    assert_eq!(
        world.run(&["submit", "plan.toml", "--slurm"]).whole(),
        "\
error: array 1 was not submitted: `sbatch` says: Batch job submission failed: Invalid account or account/partition combination specified
  ran: sbatch --parsable $WORLD/results/demo/jobs/0001.sh
hint: nothing of this sweep is in the queue; fix it and run the same command again
exit code 3
"
    );
    world.program("sbatch", &good);
    let ran = world.run(&["submit", "plan.toml", "--slurm"]);
    assert!(ran.err.starts_with("array 1: 1 trial as job 101\n"), "{}", ran.whole());
}

#[test]
fn a_folder_with_a_line_break_in_its_name_is_refused() {
    let world = slurm();
    world.write("two\nlines/plan.toml", MINIMAL);
    let ran = world.run_in("two\nlines", &["submit", "plan.toml", "--slurm"]);
    assert_eq!(ran.code, 2, "{}", ran.whole());
    assert!(ran.err.contains("two\\nlines/results"), "{}", ran.err);
    assert!(ran.err.contains("it holds a control character"), "{}", ran.err);
    assert!(!world.read("calls").contains("sbatch"));
}

/// What Slurm begins again after a node has failed: the worker could write nothing down.
#[test]
fn an_element_that_is_begun_again_has_one_curve_and_is_told_of_once() {
    let world = slurm();
    let plan = r#"version = 1
[sweep]
name = "demo"
[run]
command = ["sh", "-c", """echo '{"step": 1, "loss": 1}' >>$HPCSWEEP_METRICS
    [ -e once ] || { : >once; kill -9 $PPID; sleep 600; }"""]
[hooks]
finish = ["sh", "-c", "echo told >>hooks"]
error = ["sh", "-c", "echo failed >>hooks"]
"#;
    submit(&world, plan, &[]);
    let script = "results/demo/jobs/0001.sh";
    assert_eq!(element(&world, script, 0, 1).code, 137);
    assert!(!world.exists("hooks"));
    for _ in 0..2 {
        assert_eq!(element(&world, script, 0, 1).whole(), "exit code 0\n");
    }
    assert_eq!(world.read("hooks"), "told\n");
    assert_eq!(world.column("attempts"), ["2"]);
    let steps = world.run(&["collect", "--steps", "--format", "csv"]);
    assert_eq!(steps.ok().lines().count(), 2, "{}", steps.out);
}

/// Elements that begin on a full disk wait for room, or until they are asked to stop.
#[test]
fn an_element_that_begins_on_a_full_disk_waits_for_room() {
    let world = slurm();
    fs::create_dir(world.path("results")).unwrap();
    let code = serde_json::json!(["sh", "-c", "echo ran >>ran"]).to_string();
    world.write("plan.toml", &MINIMAL.replace("[\"true\"]", &code));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --slurm -q || exit 91
        dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
        element() {{
            exec env SLURM_ARRAY_JOB_ID=101 SLURM_JOB_ID=102 SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=1 SLURM_PROCID=0 \
                SLURM_NTASKS=1 bash results/demo/jobs/0001.sh 2>said.$1
        }}
        waits() {{ until grep -q 'disk of the results is full' said.$1 || ! kill -0 $2; do sleep 0.01; done; }}
        element 1 & first=$!; waits 1 $first
        kill -TERM $first; wait $first; echo stopped: $?
        element 2 & second=$!; waits 2 $second
        rm results/filler; wait $second; echo ran: $?; cat said.2
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'"
    );
    let Some(ran) = crate::support::faults::in_own_mounts(&world, &script) else {
        panic!("no mounts")
    };
    let expected = "stopped: 143\nran: 0\nhpcsweep: the disk of the results is full: the trial begins when there is room\n\
                    \"counts\":{\"done\":1}\n";
    assert_eq!(ran.out, expected, "{}", ran.whole());
    assert_eq!(world.read("ran"), "ran\n");
}

/// As above, with two ranks: rank 0 waits for room, and rank 1 for rank 0, for longer than it would wait otherwise.
#[test]
fn the_ranks_of_an_element_wait_for_room_together() {
    let world = slurm();
    fs::create_dir(world.path("results")).unwrap();
    let code = serde_json::json!(["sh", "-c", "echo $RANK >>ran"]).to_string();
    let plan = MINIMAL.replace("[\"true\"]", &code) + "[resources]\nranks = 2\n";
    world.write("plan.toml", &plan);
    world.program(
        "srun",
        "#!/bin/bash\nshift; for rank in 1 0; do SLURM_PROCID=$rank \"$@\" 2>>said.$rank & echo $! >pid.$rank; done; wait $!; code=$?; wait; exit $code\n",
    );
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --slurm -q || exit 91
        dd if=/dev/zero of=results/filler bs=1k count=1000 2>/dev/null
        (
            export SLURM_ARRAY_JOB_ID=101 SLURM_JOB_ID=102 SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=1 SLURM_NTASKS=2 \
                SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n1 HPCSWEEP_RENDEZVOUS_S=1
            exec bash results/demo/jobs/0001.sh
        ) & job=$!
        until grep -q 'disk of the results is full' said.0 || ! kill -0 $job; do sleep 0.01; done 2>/dev/null
        # Until rank 1 is older than its deadline of a second, or gone.
        while age=$(ps -o etimes= -p $(cat pid.1)) && [ $age -lt 2 ]; do sleep 0.01; done
        rm results/filler; wait $job; echo ran: $?; cat said.0 said.1
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'"
    );
    let Some(ran) = crate::support::faults::in_own_mounts(&world, &script) else {
        panic!("no mounts")
    };
    let expected = "ran: 0\nhpcsweep: the disk of the results is full: the trial begins when there is room\n\
                    \"counts\":{\"done\":1}\n";
    assert_eq!(ran.out, expected, "{}", ran.whole());
    let mut ranks: Vec<String> = world.read("ran").lines().map(str::to_owned).collect();
    ranks.sort();
    assert_eq!(ranks, ["0", "1"]);
}

/// The end of an element meets a full disk, and waits for room.
#[test]
fn an_element_whose_disk_fills_up_loses_no_result() {
    let world = slurm();
    fs::create_dir(world.path("results")).unwrap();
    let command = serde_json::json!(["sh", "-c", FILLS]).to_string();
    world.write("plan.toml", &MINIMAL.replace("[\"true\"]", &command));
    let script = format!(
        "set -u; mount -t tmpfs -o size=256k none results || exit 90
        '{PROGRAM}' submit plan.toml --slurm -q || exit 91
        element() {{
            env SLURM_ARRAY_JOB_ID=101 SLURM_JOB_ID=102 SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=1 SLURM_PROCID=0 \
                SLURM_NTASKS=1 bash results/demo/jobs/0001.sh
        }}
        element & first=$!
        {MEETS}
        rm results/filler; wait $first
        element; echo again: $?
        '{PROGRAM}' collect --steps --format csv | tail -n +2 | sort | uniq -c | tr -s ' '
        '{PROGRAM}' status --json | grep -o '\"counts\":[^}}]*}}'"
    );
    let Some(ran) = crate::support::faults::in_own_mounts(&world, &script) else {
        panic!("no mounts")
    };
    let expected = "again: 0\n 2000 0,,1\n\"counts\":{\"done\":1}\n";
    assert_eq!(ran.out, expected, "{}", ran.whole());
    assert_eq!(world.read("ran"), "ran\n");
}
