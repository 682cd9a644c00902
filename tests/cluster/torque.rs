//! Debian's slurm-wlm-torque: programs with the names of PBS's that pass their work to Slurm. Plain scripts of PBS run
//! through them. hpcsweep refuses to submit a sweep through them and prints the reason.

use std::path::{Path, PathBuf};

use crate::world::{Cluster, World};

/// The wrappers that `scripts/setup --for test` unpacks.
fn wrappers() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/slurm-wlm-torque/usr");
    assert!(folder.exists(), "{} is missing: run `scripts/setup --for test`", folder.display());
    folder
}

/// A world in which they are found, with the Perl that they need.
fn world(name: &str) -> World {
    let world = World::new(Cluster::Plain, name);
    let usr = wrappers();
    // They look for Slurm's commands beside themselves.
    let beside = [("qsub", usr.join("bin/qsub")), ("qstat", usr.join("bin/qstat"))];
    let slurm =
        ["sbatch", "squeue", "scontrol"].map(|name| (name, Path::new("/usr/bin").join(name)));
    for (name, at) in beside.into_iter().chain(slurm) {
        std::os::unix::fs::symlink(at, world.path("bin").join(name)).unwrap();
    }
    let mut folders = vec![usr.join("share/perl5")];
    for arch in usr.join("lib").read_dir().unwrap() {
        let arch = arch.unwrap().path();
        world.set("LD_LIBRARY_PATH", &arch.display().to_string());
        // Debian 12 has `perl5/5.36` there, Debian 13 `perl/5.40.1`.
        let versions = ["perl5", "perl"].map(|name| arch.join(name).read_dir());
        folders.extend(versions.into_iter().flatten().flatten().map(|found| found.unwrap().path()));
    }
    let folders: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
    world.set("PERL5LIB", &folders.join(":"));
    world
}

#[test]
fn a_plain_array_script_runs() {
    let world = world("torque-plain");
    // What their plugin for slurmd would set, this cluster sets for no job: other tests share it.
    let script = "#!/bin/sh\n#PBS -l walltime=00:02:00\n: \"${PBS_ARRAY_INDEX:=$SLURM_ARRAY_TASK_ID}\"\n\
                  echo \"$PBS_ARRAY_INDEX\" >>\"$SLURM_SUBMIT_DIR/ran\"\n";
    world.program("plain.sh", script);
    let qsub = world.path("bin/qsub");
    let args = ["-N", "torque-plain.a", "-J", "0-2", "-l", "mem=50mb", "plain.sh"];
    let output = world.command(qsub.to_str().unwrap()).args(args).output().unwrap();
    // Errors go there, too.
    let said = String::from_utf8(output.stdout).unwrap();
    // A plain number, without brackets and without a server.
    assert!(said.trim().parse::<u64>().is_ok(), "{said}");
    world.until("all elements have run", || (world.lines("ran") == ["0", "1", "2"]).then_some(()));
}

#[test]
fn the_doctor_knows_them_and_no_sweep_goes_through_them() {
    let world = world("torque-sweep");
    let said = world.hpcsweep(&["doctor"]).stdout;
    let line =
        "qsub and qstat are here, but they are wrappers for Slurm (slurm-wlm-torque), not PBS";
    assert!(said.contains(line), "{said}");
    world.plan("true", "");
    let ran = world.hpcsweep(&["submit", "plan.toml", "--pbs"]);
    let refused = "error: `qstat` does not answer as PBS does: Unknown option: Bf\n\
                   hint: `hpcsweep doctor` says what is there; Torque and its likes are not supported\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (3, refused));
    assert!(!world.sweep().exists());
}
