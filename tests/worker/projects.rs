//! Projects of `hpcsweep init` that take MPI, libtorch or PyTorch, run on this machine.

use std::collections::BTreeSet;

use std::path::Path;

use crate::support::world::{ROOT, World};

fn world() -> World {
    let mut world = World::new();
    // Debian's Python before any other: PyTorch is its own. The rest is how root may call mpirun.
    let path = std::env::var("PATH").unwrap_or_default();
    world.set("PATH", &format!("/usr/bin:/bin:{path}"));
    world.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    world.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    world
}

/// The states of all trials, and a metric of each, after the project has run.
fn ran(template: &str, metric: &str) -> (World, Vec<f64>) {
    let world = world();
    world.run(&["init", "demo", "--template", template]).ok();
    let ran = world.run(&["submit", "demo/plan.toml", "--local", "-j", "2"]);
    let logs = || ["0", "1", "2", "3"].map(|trial| world.run(&["logs", trial]).whole()).concat();
    assert!(ran.code == 0, "{}\n{}", ran.whole(), logs());
    let states: BTreeSet<String> = world.column("state").into_iter().collect();
    assert_eq!(states, BTreeSet::from(["\"done\"".to_owned()]), "{template}");
    let numbers = world.table(&[]).iter().map(|row| row[metric].as_f64().unwrap()).collect();
    (world, numbers)
}

#[test]
fn a_project_of_ddp_trains() {
    let (world, losses) = ran("ddp", "loss");
    assert_eq!(losses.len(), 4);
    for row in world.table(&[]) {
        assert!(row["loss"].as_f64() < row["loss.max"].as_f64(), "{row:?}");
        assert_eq!(row["epoch"], 5);
    }
}

#[test]
fn a_project_of_mpi_computes_with_all_processes() {
    let (world, errors) = ran("mpi", "error");
    assert!(errors.windows(2).all(|pair| pair[1] < pair[0]), "{errors:?}");
    assert_eq!(world.column("processes"), ["2"; 3]);
}

#[test]
fn a_project_of_train_and_its_script_learn_the_same() {
    let (_, trained) = ran("train", "val_accuracy");
    let (_, exported) = ran("train-pytorch", "val_accuracy");
    assert_eq!((trained.len(), exported.len()), (4, 4));
    for (one, other) in trained.iter().zip(&exported) {
        assert!((one - other).abs() < 0.01, "{trained:?}\n{exported:?}");
    }
    assert!(trained.iter().copied().fold(0.0, f64::max) > 0.9, "{trained:?}");
}

#[test]
fn the_example_of_sapsan_learns_from_hdf5() {
    let world = world();
    let read = |name: &str| std::fs::read_to_string(Path::new(ROOT).join("examples").join(name));
    world.write("sapsan.py", &read("sapsan.py").unwrap());
    let plan = read("sapsan.toml").unwrap();
    // Fewer and smaller snapshots: the cubes are the same.
    let plan = plan.replace("--make 4", "--make 2 --edge 48").replace("epochs = 8", "epochs = 2");
    world.write("sapsan.toml", &plan);
    world.run(&["submit", "sapsan.toml", "--local", "-j", "2"]).ok();
    assert_eq!(world.column("state"), ["\"done\""; 2]);
    for row in world.table(&[]) {
        assert!(row["train_loss"].as_f64() < row["train_loss.max"].as_f64(), "{row:?}");
    }
    let files = world.files("results/sapsan-data");
    assert_eq!(
        files,
        [
            "T0/b_dim48_fm15.h5",
            "T0/u_dim48_fm15.h5",
            "T1/b_dim48_fm15.h5",
            "T1/u_dim48_fm15.h5",
            "cubes.npz"
        ]
    );
    // Nothing is left of trials that came at the same moment.
    assert_eq!(
        world.files("results").iter().filter(|name| name.contains("sapsan-data.")).count(),
        0
    );
}
