//! The cluster of `scripts/dev-cluster` itself: what users of a real one would expect of it.

use std::os::unix::fs::PermissionsExt;

use crate::world::{Cluster, World};

const HELLO: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d, sum %d\n", rank, size, sum);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
"#;

fn compile(world: &World) {
    world.write("hello.c", HELLO);
    world.call("mpicc", &["-o", "hello", "hello.c"]);
}

fn all_four(before: &str) -> Vec<String> {
    (0..4).map(|rank| format!("{before}rank {rank} of 4, sum 6")).collect()
}

#[test]
fn mpi_runs_over_pmix_between_two_nodes() {
    for cluster in [Cluster::Plain, Cluster::Accounting] {
        let world = World::new(cluster, "pmix");
        compile(&world);
        let args = [
            "--job-name=pmix.hello",
            "--mpi=pmix",
            "--nodes=2",
            "--ntasks=4",
            "--mem=200M",
            "./hello",
        ];
        let text = world.call("/usr/bin/srun", &args);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, all_four(""));
    }
}

/// The worker of each rank starts the MPI program once: it becomes that rank.
#[test]
fn an_mpi_program_runs_as_a_trial() {
    // Shared memory is left out under mpirun, which does not know that its nodes are one machine.
    for launcher in ["[\"srun\", \"--mpi=pmix\"]", "[\"mpirun\", \"--mca\", \"btl\", \"self,tcp\"]"]
    {
        let world = World::new(Cluster::Plain, "mpi-trial");
        compile(&world);
        world.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
        world.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        world.site(&format!("[scheduler]\nlauncher = {launcher}\n"));
        world.plan(
            "exec $HERE/hello",
            "[resources]\nnodes = 2\nranks = 4\nranks_per_node = 2\nmemory = \"200M\"\nwalltime = \"00:05:00\"\n",
        );
        world.submit().ok();
        assert_eq!(world.finished().standings(), ["done"], "{launcher}: {}", world.report());
        let log = world.lines("results/mpi-trial/logs/000/0.1.log");
        assert_eq!(
            log,
            (0..4).map(|r| format!("[rank {r}] rank {r} of 4, sum 6")).collect::<Vec<_>>()
        );
    }
}

/// The cluster must work for users other than root: runs as the user `nobody` if the tests run as
/// root, else as the current user.
#[test]
fn an_ordinary_user_can_submit() {
    let world = World::new(Cluster::Plain, "ordinary");
    let root = nix::unistd::getuid().is_root();
    // The program may lie where only root can go.
    std::fs::copy(env!("CARGO_BIN_EXE_hpcsweep"), world.path("bin/hpcsweep")).unwrap();
    world.plan(
        "id -u >>$HERE/shared/users; echo $HPCSWEEP_TRIAL >>$HERE/shared/ran",
        "[grid]\nx = [1, 2]",
    );
    std::fs::create_dir(world.path("shared")).unwrap();
    for name in ["shared", "home", "tmp", "."] {
        std::fs::set_permissions(world.path(name), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let args: &[&str] = if root {
        &[
            "--reuid=nobody",
            "--regid=nogroup",
            "--clear-groups",
            "hpcsweep",
            "submit",
            "plan.toml",
            "--slurm",
        ]
    } else {
        &["--nnp", "hpcsweep", "submit", "plan.toml", "--slurm"]
    };
    world.call("setpriv", args);
    world.until_lines("shared/ran", 2);
    let uid = if root { world.call("id", &["-u", "nobody"]) } else { world.call("id", &["-u"]) };
    let uid = uid.trim();
    assert_eq!(world.lines("shared/users"), [uid, uid]);
}
