//! `scripts/validate-cluster`: on a cluster that is in order everything passes, on one that is not it says so,
//! and it leaves nothing behind.

use std::process::{Command, Stdio};

use crate::world::{Cluster, World};

/// The script with these arguments, in the folder `check` of this world.
fn validate(world: &World, args: &[&str]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/validate-cluster");
    let program = env!("CARGO_BIN_EXE_hpcsweep");
    let mut command = world.command("env");
    // The process that runs the tests may ignore Ctrl-C, as a shell does for background processes.
    command.args(["--default-signal=INT", "bash"]);
    command.args([script, "--dir", "check", "--hpcsweep", program]).args(args);
    command
}

/// Each check with its verdict, from the report.
fn verdicts(world: &World) -> Vec<String> {
    let report = world.read("check/report.txt");
    let lines = report.lines().take_while(|line| !line.starts_with("---"));
    let graded =
        lines.filter(|line| ["PASS ", "WARN ", "FAIL "].iter().any(|word| line.starts_with(word)));
    graded.map(|line| line.split(':').next().unwrap().to_owned()).collect()
}

fn everything_passes_on(cluster: Cluster) {
    let world = World::new(cluster, "validate");
    // The profile of these tests lowers `settle_s`: this is what a site has.
    world.site("limits.settle_s = 10\n");
    let output = validate(&world, &[]).output().unwrap();
    let ran = world.ran(&output);
    let mpi = if cfg!(feature = "mpi") { "PASS mpi" } else { "WARN mpi" };
    // The doctor of a machine without GPUs has a note.
    let expected = [
        "WARN doctor",
        "PASS placement",
        "PASS arrays",
        "PASS chains-element",
        "PASS chains-fused",
        "PASS throttle",
        "PASS walltime",
        "PASS ranks",
        "PASS ranks-one",
        mpi,
        "PASS status",
        "PASS recovery-worker",
        "PASS recovery-cancel",
        "PASS recovery-submit",
    ];
    assert_eq!(verdicts(&world), expected, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.code, 0);
    assert!(world.read("check/report.txt").contains("\n--- hpcsweep doctor\nok    installation: "));
    // Where nothing failed the report alone is kept.
    let left: Vec<_> = std::fs::read_dir(world.path("check")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(!world.path("home/.local/state").exists(), "a user's list of sweeps was written to");
}

#[test]
fn everything_passes_without_accounting() {
    everything_passes_on(Cluster::Plain);
}

#[test]
fn everything_passes_with_accounting() {
    everything_passes_on(Cluster::Accounting);
}

/// A cluster whose job scripts neither throttle nor have the umask of the submission.
#[test]
fn what_does_not_hold_fails_with_what_was_expected_and_seen() {
    let world = World::new(Cluster::Plain, "invalid");
    world.hpcsweep(&["templates", "export", "edited"]).ok();
    let template = world.read("edited/slurm.sh.tera");
    let edited = template
        .replace("{% if max_running %}%{{ max_running }}{% endif %}", "")
        .replace("\n# The element finds", "\numask 077\n# The element finds");
    assert_eq!(edited.len() + 49 - 10, template.len(), "the template has changed");
    world.write("edited/slurm.sh.tera", &edited);
    let args = ["--templates", "edited", "--only", "throttle", "--only", "placement"];
    let ran = world.ran(&validate(&world, &args).output().unwrap());
    assert_eq!(verdicts(&world), ["FAIL placement", "FAIL throttle"], "{}", ran.stdout);
    assert_eq!(ran.code, 1);
    let report = world.read("check/report.txt");
    assert!(
        report.contains("mode of a file that trial 0 made: expected 644, seen 600"),
        "{report}"
    );
    assert!(report.contains("trials running at once: expected 2 at most, seen "), "{report}");
    // The files that a user wants to inspect still exist.
    assert!(world.path("check/results/throttle/jobs/0001.sh").is_file());
}

#[test]
fn what_is_stopped_takes_its_jobs_along_and_says_how_far_it_was() {
    let world = World::new(Cluster::Plain, "stopped");
    world.site("[scheduler]\ndirectives = [\"--hold\"]\n");
    let args = ["--only", "arrays", "--only", "chains-element"];
    let child = validate(&world, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    world.until("submitted", || {
        world.read("check/log/chains-element.submit").contains("jobs: ").then_some(())
    });
    let jobs = |name: &str| {
        let log = world.read(&format!("check/log/{name}.submit"));
        let line = log.lines().find_map(|l| l.strip_prefix("jobs: ")).unwrap().to_owned();
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let jobs: Vec<String> = [jobs("arrays"), jobs("chains-element")].concat();
    assert_eq!(jobs.len(), 5, "two arrays, and one a link");
    world.call("kill", &["-INT", &child.id().to_string()]);
    let ran = world.ran(&child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(verdicts(&world), ["WARN arrays", "WARN chains-element"], "{}", ran.stdout);
    assert!(ran.stdout.contains("stopped, as it was: 21 queued"), "{}", ran.stdout);
    let queue = world.call("squeue", &["--noheader", "--format=%F"]);
    let left: Vec<&str> = queue.lines().filter(|id| jobs.iter().any(|job| job == id)).collect();
    assert_eq!(left, Vec::<&str>::new());
}
