//! One realistic environment for every row and every trap. Those marked "captured" were taken from
//! Slurm 22.05.8 and Open MPI 4.1.4 of Debian 12; the others follow the sources named in `rows`.
//! Long because it is one list of like things: an environment and what must come of it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::scrub::TOLD;
use super::*;

type Vars = BTreeMap<String, String>;

/// `A=1 B=2` as a map.
fn vars(text: &str) -> Vars {
    let pair = |word: &str| {
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        (name.to_owned(), value.to_owned())
    };
    text.split_whitespace().map(pair).collect()
}

fn on(text: &str, host: &str) -> Rank {
    derive(&vars(text), host).unwrap()
}

fn here(text: &str) -> Rank {
    on(text, "n2")
}

fn fault(text: &str) -> String {
    derive(&vars(text), "n2").unwrap_err().to_string()
}

/// "rank/world local/size node/nodes", with `-` for what is unknown.
fn numbers(rank: &Rank) -> String {
    let show = |n: Option<u32>| n.map_or("-".to_owned(), |n| n.to_string());
    let pair = |a, b| format!("{}/{}", show(a), show(b));
    [
        pair(Some(rank.rank), rank.world_size),
        pair(rank.local_rank, rank.local_size),
        pair(rank.node_rank, rank.nodes),
    ]
    .join(" ")
}

fn sentences(rank: &Rank) -> Vec<&str> {
    rank.warnings.iter().map(|w| w.sentence.as_str()).collect()
}

fn others(rank: &Rank) -> Vec<(Launcher, bool)> {
    rank.others.iter().map(|o| (o.launcher, o.agrees)).collect()
}

/// Derives without a warning, from these rows.
#[track_caller]
fn clean(text: &str, launcher: Launcher, expected: &str) -> Rank {
    let rank = here(text);
    assert_eq!((rank.launcher, numbers(&rank).as_str()), (launcher, expected), "{text}");
    assert_eq!(sentences(&rank), Vec::<&str>::new(), "{text}");
    rank
}

/// Captured: `srun -N2 -n3`, task 2; without what differs between MPI types.
const STEP: &str = "SLURMD_NODENAME=n2 SLURM_GTIDS=2 SLURM_JOBID=2 SLURM_JOB_ID=2 \
    SLURM_JOB_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 \
    SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODEID=1 SLURM_NODELIST=n[1-2] SLURM_NPROCS=3 \
    SLURM_NTASKS=3 SLURM_PROCID=2 SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] \
    SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1 \
    SLURM_TASKS_PER_NODE=2,1";

/// Captured: the body of `sbatch -N3 -n5`, without srun.
const BODY: &str = "SLURMD_NODENAME=n1 SLURM_GTIDS=0 SLURM_JOBID=4 SLURM_JOB_ID=4 \
    SLURM_JOB_NAME=b.sh SLURM_JOB_NODELIST=n[1-3] SLURM_JOB_NUM_NODES=3 SLURM_LOCALID=0 \
    SLURM_NNODES=3 SLURM_NODEID=0 SLURM_NODELIST=n[1-3] SLURM_NPROCS=5 SLURM_NTASKS=5 \
    SLURM_PROCID=0 SLURM_TASKS_PER_NODE=3,1(x2)";

/// A step of four tasks on this one node.
const ONE_NODE: &str = "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n2 SLURM_PROCID=1 SLURM_LOCALID=1 \
    SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n2 SLURM_STEP_NUM_NODES=1 \
    SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NTASKS=2";

fn both(a: &str, b: &str) -> String {
    format!("{a} {b}")
}

// --- The rows -----------------------------------------------------------------------------------

#[test]
fn row_0_what_is_given_is_believed() {
    let given = "HPCSWEEP_RANK=5 HPCSWEEP_WORLD_SIZE=8 HPCSWEEP_LOCAL_RANK=1 \
        HPCSWEEP_LOCAL_WORLD_SIZE=4 HPCSWEEP_NODE_RANK=1 HPCSWEEP_NNODES=2";
    clean(given, Launcher::Given, "5/8 1/4 1/2");
    clean("HPCSWEEP_RANK=0 HPCSWEEP_WORLD_SIZE=1 HPCSWEEP_SITE=x", Launcher::Given, "0/1 -/- -/-");
    let rank = clean(&both(given, STEP), Launcher::Given, "5/8 1/4 1/2");
    assert_eq!(others(&rank), [(Launcher::SlurmStep, false)]);
}

#[test]
fn row_0_is_all_or_none() {
    let check = |text, expected| assert_eq!(fault(text), expected, "{text}");
    check(
        "HPCSWEEP_RANK=5",
        "`HPCSWEEP_RANK` is set, but `HPCSWEEP_WORLD_SIZE` is not\n\
         hint: set both, or unset `HPCSWEEP_RANK`",
    );
    check(
        "HPCSWEEP_WORLD_SIZE=5",
        "`HPCSWEEP_WORLD_SIZE` is set, but `HPCSWEEP_RANK` is not\n\
         hint: set both, or unset `HPCSWEEP_WORLD_SIZE`",
    );
    check(
        "HPCSWEEP_LOCAL_RANK=0 HPCSWEEP_LOCAL_WORLD_SIZE=1",
        "`HPCSWEEP_LOCAL_RANK` is set, but `HPCSWEEP_RANK` is not\n\
         hint: set `HPCSWEEP_RANK` and `HPCSWEEP_WORLD_SIZE` too, or none of the HPCSWEEP_* ranks",
    );
    check(
        "HPCSWEEP_RANK=0 HPCSWEEP_WORLD_SIZE=2 HPCSWEEP_NNODES=2",
        "`HPCSWEEP_NNODES` is set, but `HPCSWEEP_NODE_RANK` is not\n\
         hint: set both, or unset `HPCSWEEP_NNODES`",
    );
}

#[test]
fn row_1_torchrun_wins_inside_a_step_of_one_task_a_node() {
    let torchrun = "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 RANK=6 WORLD_SIZE=8 \
        LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_RANK=6 \
        ROLE_WORLD_SIZE=8 MASTER_ADDR=n1 MASTER_PORT=29500";
    let rank = clean(torchrun, Launcher::Torchrun, "6/8 2/4 1/2");
    assert_eq!(others(&rank), [], "its own RANK is no second opinion");
    let step = "SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_ID=0 PMIX_RANK=1 \
        SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 \
        SLURM_STEP_TASKS_PER_NODE=1(x2)";
    let rank = clean(&both(torchrun, step), Launcher::Torchrun, "6/8 2/4 1/2");
    assert_eq!(others(&rank), [(Launcher::SlurmStep, false), (Launcher::Pmix, false)]);
    // Four tasks a node each started a torchrun: some ranks get wrong numbers.
    let rank = here(&both(torchrun, STEP));
    assert_eq!(
        sentences(&rank),
        ["torchrun says rank 6 of 8, but a Slurm step (srun) says rank 2 of 3"]
    );
    assert_eq!(
        fault("TORCHELASTIC_RUN_ID=x WORLD_SIZE=2"),
        "`TORCHELASTIC_RUN_ID` is set, but `RANK` is not\n\
         hint: set both, or unset `TORCHELASTIC_RUN_ID`"
    );
}

/// Captured: `mpirun --oversubscribe -n 2`. The node rank is not the node's.
#[test]
fn row_2_open_mpi() {
    let rank = clean(
        "OMPI_APP_CTX_NUM_PROCS=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
         OMPI_COMM_WORLD_NODE_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 \
         OMPI_MCA_orte_num_nodes=1 OMPI_UNIVERSE_SIZE=2 PMIX_RANK=1 PMIX_NAMESPACE=2042232833",
        Launcher::OpenMpi,
        "1/2 1/2 -/-",
    );
    assert_eq!(others(&rank), [(Launcher::Pmix, true)]);
    let names: Vec<&str> = rank.evidence.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE"
        ]
    );
}

/// Captured: mpirun of Open MPI 5.0.7, three ranks on two hosts of two and one places. All get the last host's size.
#[test]
fn the_local_size_that_open_mpi_5_tells_is_that_of_the_last_node() {
    let of = |rank: u32, local: u32| {
        format!(
            "PRTE_LAUNCHED=1 OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=3 \
             OMPI_COMM_WORLD_LOCAL_RANK={local} OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK={rank}"
        )
    };
    let in_pbs = |rank: u32, local: u32, node: u32, nodefile: &str| {
        let job = format!("PBS_JOBID=9.s PBS_NODENUM={node}");
        numbers(&derive_in_pbs(&vars(&both(&of(rank, local), &job)), "n2", nodefile).unwrap())
    };
    let told = [(0, 0, 0), (1, 1, 0), (2, 0, 1)].map(|(r, l, n)| in_pbs(r, l, n, "a\na\nb\n"));
    assert_eq!(told, ["0/3 0/2 -/-", "1/3 1/2 -/-", "2/3 0/1 -/-"]);
    // A node file for another number of ranks, or none: impossible values are ignored, without an error.
    assert_eq!(in_pbs(1, 1, 0, "a\nb\n"), "1/3 1/- -/-");
    clean(&of(1, 1), Launcher::OpenMpi, "1/3 1/- -/-");
    assert!(derive(&vars(&of(1, 1).replace("PRTE_LAUNCHED=1", "")), "n2").is_err());
}

#[test]
fn row_3_jsrun() {
    let jsrun = "LSB_JOBID=812 LSB_DJOB_NUMPROC=85 JSM_NAMESPACE_RANK=7 JSM_NAMESPACE_SIZE=12 \
        JSM_NAMESPACE_LOCAL_RANK=1";
    clean(jsrun, Launcher::Jsrun, "7/12 1/- -/-");
    let spectrum = "OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=12 OMPI_COMM_WORLD_LOCAL_RANK=1 \
        OMPI_COMM_WORLD_LOCAL_SIZE=6 PMIX_RANK=7";
    let rank = clean(&both(jsrun, spectrum), Launcher::OpenMpi, "7/12 1/6 -/-");
    assert_eq!(others(&rank), [(Launcher::Jsrun, true), (Launcher::Pmix, true)]);
}

#[test]
fn row_4_flux() {
    let rank = clean(
        "FLUX_URI=local:///run/flux/local FLUX_JOB_ID=ƒ2oBbKdv FLUX_TASK_RANK=3 FLUX_JOB_SIZE=8 \
         FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2 PMI_RANK=3 PMI_SIZE=8 PMI_FD=17",
        Launcher::Flux,
        "3/8 1/- -/2",
    );
    assert_eq!(others(&rank), [(Launcher::Hydra, true)]);
}

#[test]
fn row_5_mvapich() {
    clean(
        "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 \
         MV2_COMM_WORLD_LOCAL_SIZE=2 MV2_USE_CUDA=1",
        Launcher::Mvapich,
        "3/4 1/2 -/-",
    );
}

#[test]
fn row_6_pals() {
    let pals = "PALS_APID=0b5c PALS_APINFO=/a PALS_SPOOL_DIR=/s PALS_RANKID=5 PALS_NODEID=1 \
        PBS_JOBID=9.s PBS_ENVIRONMENT=PBS_BATCH";
    let local = "PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=4";
    let pmi = "PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4 PMI_JOBID=9";
    clean(pals, Launcher::Pals, "5/- -/- 1/-");
    clean(&both(pals, pmi), Launcher::Pals, "5/8 1/4 1/-");
    clean(&format!("{pals} {local} PALS_SIZE=8"), Launcher::Pals, "5/8 1/4 1/-");
    clean("PALS_APID=0b5c PMI_RANK=5 PMI_SIZE=8", Launcher::Pals, "5/8 -/- -/-");
    clean("PALS_APID=0b5c", Launcher::Nobody, "0/1 0/1 0/1");
    // Slurm's cray_shasta plugin: the step knows the rest.
    let step =
        "PALS_APID=2.0 PALS_RANKID=2 PALS_NODEID=1 PALS_LOCAL_RANKID=0 PMI_RANK=2 PMI_SIZE=3";
    clean(&both(step, STEP), Launcher::Pals, "2/3 0/1 1/2");
}

#[test]
fn row_7_hydra() {
    clean(
        "PMI_RANK=3 PMI_SIZE=4 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 GFORTRAN_UNBUFFERED=y",
        Launcher::Hydra,
        "3/4 1/2 -/-",
    );
    clean(
        "PMI_PORT=n1:4711 PMI_ID=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
        Launcher::Hydra,
        "3/- 1/2 -/-",
    );
}

/// Captured: `srun -N2 -n3 --mpi=pmi2`, task 2. PMI has only rank and size.
#[test]
fn row_7_takes_the_node_from_the_step_that_agrees() {
    let pmi2 = "PMI_FD=11 PMI_JOBID=2.0 PMI_RANK=2 PMI_SIZE=3 SLURM_MPI_TYPE=pmi2";
    let rank = clean(&both(pmi2, STEP), Launcher::Hydra, "2/3 0/1 1/2");
    assert_eq!(others(&rank), [(Launcher::SlurmStep, true)]);
}

/// Captured: `srun -N2 -n3 --mpi=pmix`, task 2.
#[test]
fn row_8_slurm_step() {
    clean(STEP, Launcher::SlurmStep, "2/3 0/1 1/2");
    let pmix = "PMIX_RANK=2 PMIX_NAMESPACE=slurm.pmix.3.0 SLURM_MPI_TYPE=pmix";
    let rank = clean(&both(STEP, pmix), Launcher::SlurmStep, "2/3 0/1 1/2");
    assert_eq!(others(&rank), [(Launcher::Pmix, true)]);
}

/// Captured: `srun -N1 -n1 A : -N1 -n2 B`, the last task: the step's numbers are of all components.
#[test]
fn row_8_heterogeneous_step() {
    clean(
        "SLURM_HET_SIZE=2 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_NPROCS=3 SLURM_NTASKS=3 \
         SLURM_PROCID=2 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2 \
         SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=1,2",
        Launcher::SlurmStep,
        "2/3 1/2 1/2",
    );
}

#[test]
fn row_9_bare_pmix_knows_no_size() {
    clean("PMIX_RANK=3 PMIX_NAMESPACE=x", Launcher::Pmix, "3/- -/- -/-");
    let torch = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1";
    clean(&both("PMIX_RANK=3", torch), Launcher::Pmix, "3/4 1/- -/-");
    let rank = here(&both("PMIX_RANK=2", torch));
    assert_eq!(numbers(&rank), "2/- -/- -/-");
    assert_eq!(
        sentences(&rank),
        ["PMIx says rank 2, but the environment (RANK, WORLD_SIZE) says rank 3 of 4"]
    );
}

#[test]
fn row_10_plain_torch_variables() {
    clean(
        "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500",
        Launcher::TorchVariables,
        "3/4 1/2 -/-",
    );
    clean("RANK=3", Launcher::Nobody, "0/1 0/1 0/1");
}

#[test]
fn row_11_nobody() {
    clean("HOME=/root PATH=/bin", Launcher::Nobody, "0/1 0/1 0/1");
    // One task was asked for, so nothing was forgotten: this is how a serial trial runs.
    clean(
        "SLURM_JOB_ID=4 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_NODELIST=n2",
        Launcher::Nobody,
        "0/1 0/1 0/1",
    );
    clean("SLURM_JOB_ID=4 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=1", Launcher::Nobody, "0/1 0/1 0/1");
    clean("FLUX_URI=local:///run/flux/local", Launcher::Nobody, "0/1 0/1 0/1");
    clean("PBS_JOBID=9.s", Launcher::Nobody, "0/1 0/1 0/1");
}

// --- The traps ----------------------------------------------------------------------------------

#[track_caller]
fn alone(text: &str, host: &str, what: &str) {
    let rank = on(text, host);
    assert_eq!((rank.launcher, numbers(&rank).as_str()), (Launcher::Nobody, "0/1 0/1 0/1"));
    assert_eq!(
        sentences(&rank),
        [format!("allocation has {what}, but no launcher started me")],
        "{text}"
    );
}

#[test]
fn a_batch_script_without_srun_says_so() {
    alone(BODY, "n1", "5 tasks");
    let rank = on(BODY, "n1.cluster.example");
    assert_eq!(
        rank.warnings[0].hint,
        "did you forget srun? Without it this process works alone as rank 0 of 1; \
         `srun ... hpcsweep worker` starts all ranks"
    );
    // Since commit 87077e7c7d (2026-05) the batch step has a number, printed with %d.
    let step = "SLURM_STEP_ID=-5 SLURM_STEP_NUM_TASKS=5 SLURM_STEP_NODELIST=n[1-3]";
    alone(&both(BODY, step), "n1", "5 tasks");
    // Nodes were asked for, tasks were not.
    alone("SLURM_JOB_ID=4 SLURM_PROCID=0 SLURM_JOB_NUM_NODES=2", "n1", "2 nodes");
}

#[test]
fn every_reserved_step_id_is_refused_and_no_other() {
    for id in ["-3", "-4", "-5", "-6", "4294967293", "4294967290"] {
        let text = both(STEP, &format!("SLURM_STEP_ID={id}"));
        assert_eq!(here(&text).launcher, Launcher::Nobody, "{id}");
    }
    for id in ["0", "1", "4294967289", "-7"] {
        let text = both(STEP, &format!("SLURM_STEP_ID={id}"));
        assert_eq!(here(&text).launcher, Launcher::SlurmStep, "{id}");
    }
    assert_eq!(
        fault(&both(STEP, "SLURM_STEP_ID=batch")),
        "`SLURM_STEP_ID` is `batch`, which is not the number of a step\n\
         hint: unset the SLURM_* variables if another job left them behind"
    );
}

/// Captured: `salloc -N2 -n4` running `srun --interactive --preserve-env`, and plain `salloc`.
#[test]
fn a_shell_of_salloc_is_no_step() {
    let shell = "SLURM_JOB_ID=11 SLURM_JOB_NAME=interactive SLURM_JOB_NODELIST=n[3-4] \
        SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=3,1";
    let step = "SLURMD_NODENAME=n3 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 \
        SLURM_STEPID=4294967290 SLURM_STEP_ID=4294967290 SLURM_STEP_NODELIST=n3 \
        SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1";
    alone(&both(shell, step), "n3", "4 tasks");
    alone(shell, "login1", "4 tasks");
    // A Slurm that hides the interactive id: the step's size is still right.
    let hidden = both(shell, &step.replace("SLURM_STEP_ID=4294967290", ""));
    let rank = on(&hidden, "n3");
    assert_eq!((rank.launcher, numbers(&rank).as_str()), (Launcher::SlurmStep, "0/1 0/1 0/1"));
}

#[test]
fn a_login_over_ssh_is_no_step() {
    clean("SLURM_JOB_ID=4", Launcher::Nobody, "0/1 0/1 0/1");
    alone("SLURM_JOB_ID=4 SLURM_PROCID=3 SLURM_NTASKS=8", "n1", "8 tasks");
}

#[test]
fn other_schedulers_know_what_they_allocated() {
    let pbs = vars("PBS_JOBID=9.s PBS_ENVIRONMENT=PBS_BATCH PBS_NODEFILE=/var/spool/pbs/aux/9.s");
    let check = |nodefile, expected: &[&str]| {
        let rank = derive_in_pbs(&pbs, "a", nodefile).unwrap();
        assert_eq!(sentences(&rank), expected);
    };
    check("a\na\nb\nb\n", &["allocation has 4 tasks, but no launcher started me"]);
    check("a\n", &[]);
    alone("LSB_JOBID=8 LSB_DJOB_NUMPROC=12", "n1", "12 tasks");
    let het = "SLURM_JOB_ID=4 SLURM_NTASKS=1 SLURM_HET_SIZE=2 SLURM_NTASKS_HET_GROUP_0=1 \
        SLURM_NTASKS_HET_GROUP_1=6";
    alone(het, "n1", "7 tasks");
}

/// Captured: `mpirun` in the body of `sbatch -N3 -n5`, rank 4, on node 3 of 3. Its daemon was
/// started by `srun --ntasks-per-node=1` and left its own rank behind.
#[test]
fn mpirun_inside_slurm_hides_its_daemons_variables() {
    let rank = on(
        "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_NODE_RANK=0 \
         OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=5 PMIX_RANK=4 SLURMD_NODENAME=n3 \
         SLURM_JOB_ID=4 SLURM_JOB_NODELIST=n[1-3] SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=3 \
         SLURM_PROCID=2 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=n[1-3] SLURM_STEP_NUM_NODES=3 \
         SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=1(x3)",
        "n3",
    );
    assert_eq!((rank.launcher, numbers(&rank).as_str()), (Launcher::OpenMpi, "4/5 0/1 -/-"));
    assert_eq!(others(&rank), [(Launcher::SlurmStep, false), (Launcher::Pmix, true)]);
    assert_eq!(sentences(&rank), Vec::<&str>::new());
}

#[test]
fn a_hydra_proxy_with_the_same_rank_tells_nothing() {
    // Rank 0 of 2, both on node 0, beside the proxy's "0 of 2" with one task a node.
    let hydra = "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 SLURM_PROCID=0 \
        SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[2-3] \
        SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)";
    clean(hydra, Launcher::Hydra, "0/2 0/2 -/-");
}

#[test]
fn stale_variables_of_an_outer_launcher_are_pointed_out() {
    // A job that was submitted from under mpirun, with its environment.
    let rank = here(&both("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", STEP));
    assert_eq!(rank.launcher, Launcher::OpenMpi);
    assert_eq!(
        sentences(&rank),
        ["Open MPI or PRRTE (mpirun) says rank 0 of 1, but a Slurm step (srun) says rank 2 of 3"]
    );
    let rank =
        here(&both("PMI_RANK=abc PMI_SIZE=2", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1"));
    assert_eq!(
        sentences(&rank),
        ["`PMI_RANK` is `abc`, which is not a number from 0 on; these variables are ignored"]
    );
    let rank = here(&both("RANK=4 WORLD_SIZE=2", "PMI_RANK=0 PMI_SIZE=1"));
    assert_eq!(
        sentences(&rank),
        ["the environment (RANK, WORLD_SIZE) gives rank 4 with a world size of 2; \
          these variables are ignored"]
    );
}

#[test]
fn a_job_that_does_not_run_here_is_pointed_out() {
    let rank = on(STEP, "login1.site.org");
    assert_eq!(
        sentences(&rank),
        ["this host `login1.site.org` is not among the nodes of Slurm job `2`: `n[1-2]`"]
    );
    assert_eq!(sentences(&on(STEP, "N1.site.org")), Vec::<&str>::new());
    let stale = on(&both(BODY, "PMI_RANK=0 PMI_SIZE=1"), "login1");
    assert_eq!(sentences(&stale).len(), 1);
}

/// Captured: `srun -E -n 2` in the body of `sbatch -N3 -n5`, task 1.
#[test]
fn the_steps_tasks_count_not_the_jobs() {
    let rank = here(
        "SLURM_JOB_ID=4 SLURM_JOB_NODELIST=n[1-3] SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=5 \
         SLURM_PROCID=1 SLURM_STEP_ID=1 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_NUM_NODES=2 \
         SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)",
    );
    assert_eq!(numbers(&rank), "1/2 0/1 1/2");
    assert_eq!(sentences(&rank), ["`SLURM_NTASKS` is 5, but this step has 2 tasks"]);
}

#[test]
fn torch_variables_beside_a_step_of_several_nodes_must_be_equal() {
    let equal = both(STEP, "RANK=2 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29500");
    let rank = clean(&equal, Launcher::SlurmStep, "2/3 0/1 1/2");
    assert_eq!(others(&rank), [(Launcher::TorchVariables, true)]);
    let expected = "`RANK` and `WORLD_SIZE` contradict the Slurm step that this process is in\n  \
        RANK=0 WORLD_SIZE=3\n  SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0\n\
        hint: unset RANK, WORLD_SIZE and LOCAL_RANK before srun, or set HPCSWEEP_RANK and \
        HPCSWEEP_WORLD_SIZE to what you mean";
    assert_eq!(fault(&both(STEP, "RANK=0 WORLD_SIZE=3")), expected);
    let pmi2 = both(STEP, "PMI_RANK=2 PMI_SIZE=3 RANK=0 WORLD_SIZE=3");
    assert_eq!(fault(&pmi2), expected);
    assert!(fault(&both(STEP, "RANK=2 WORLD_SIZE=3 LOCAL_RANK=1")).contains("LOCAL_RANK=1"));
    let rank = here(&both(STEP, "WORLD_SIZE=16"));
    assert_eq!(sentences(&rank), ["`WORLD_SIZE` is 16, but a Slurm step (srun) gives 3"]);
}

#[test]
fn children_of_one_task_on_one_node_are_believed() {
    let one = "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n2 \
        SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1";
    let child = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3";
    let rank = clean(&both(one, child), Launcher::TorchVariables, "3/4 3/- -/-");
    assert_eq!(others(&rank), [(Launcher::SlurmStep, false)]);
    assert!(fault(&both(ONE_NODE, "RANK=0 WORLD_SIZE=2")).starts_with("`RANK` and `WORLD_SIZE`"));
}

#[test]
fn uneven_nodes_are_counted_from_the_list() {
    for (node, expected) in [(0, "0/7 0/2 0/4"), (2, "0/7 0/2 2/4"), (3, "0/7 0/1 3/4")] {
        let text = format!(
            "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID={node} SLURM_STEP_ID=0 \
             SLURM_STEP_NODELIST=n[1-4] SLURM_STEP_NUM_NODES=4 SLURM_STEP_NUM_TASKS=7 \
             SLURM_STEP_TASKS_PER_NODE=2(x3),1"
        );
        clean(&text, Launcher::SlurmStep, expected);
    }
    let rank = here(&both(STEP, "SLURM_STEP_TASKS_PER_NODE=4,1"));
    assert_eq!(rank.local_size, None);
    assert_eq!(
        sentences(&rank),
        ["`SLURM_STEP_TASKS_PER_NODE` is `4,1`, which does not fit this step"]
    );
}

#[test]
fn local_ranks_map_to_visible_devices() {
    let check = |rank, visible: &[&str], expected: Option<&str>| {
        let device = device_for(rank, visible).map(|d| d.to_string());
        assert_eq!(device.as_deref(), expected);
    };
    let four = ["4", "5", "6", "7"];
    check(2, &four, Some("local rank 2 uses device 2 of 4 visible (`6`)"));
    check(5, &four, Some("local rank 5 uses device 1 of 4 visible (`5`)"));
    check(3, &["GPU-8f"], Some("local rank 3 uses device 0 of 1 visible (`GPU-8f`)"));
    check(0, &[], None);

    let visible = |text| visible_devices(&vars(text)).map(|list| list.join(" "));
    assert_eq!(visible("A=1"), None);
    assert_eq!(visible("CUDA_VISIBLE_DEVICES=0,1"), Some("0 1".into()));
    assert_eq!(visible("CUDA_VISIBLE_DEVICES=0,-1,1"), Some("0".into()));
    assert_eq!(visible("CUDA_VISIBLE_DEVICES=NoDevFiles"), Some(String::new()));
    assert_eq!(visible("CUDA_VISIBLE_DEVICES="), Some(String::new()));
    assert_eq!(visible("CUDA_VISIBLE_DEVICES= ROCR_VISIBLE_DEVICES=3"), Some("3".into()));

    let rank = here(&both(ONE_NODE, "CUDA_VISIBLE_DEVICES=3"));
    assert_eq!(sentences(&rank), Vec::<&str>::new());
    let crowd = ONE_NODE.replace("NUM_TASKS=2", "NUM_TASKS=3").replace("NODE=2", "NODE=3");
    let rank = here(&both(&crowd, "CUDA_VISIBLE_DEVICES=0,1 SLURM_NTASKS=3"));
    assert_eq!(sentences(&rank), ["3 ranks of this node share 2 GPUs"]);
}

/// Captured: `SLURM_HOSTFILE=hf srun -n4 -m arbitrary` with n3, n1, n2, n1 in the file. Rank 0 ran
/// on n3; the list begins with n1.
#[test]
fn with_a_host_file_the_first_host_is_not_rank_0s() {
    let arbitrary = "SLURM_DISTRIBUTION=arbitrary SLURM_HOSTFILE=hf SLURM_LOCALID=0 SLURM_NODEID=2 \
        SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-3] SLURM_STEP_NUM_NODES=3 \
        SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2,1(x2)";
    clean(arbitrary, Launcher::SlurmStep, "0/4 0/1 2/3");
    assert_eq!(head_host(&vars(arbitrary)).unwrap(), None);
    assert_eq!(head_host(&vars(STEP)).unwrap().as_deref(), Some("n1"));
    assert_eq!(head_host(&vars(BODY)).unwrap(), None);
    let rank = here(&both(arbitrary, "MASTER_ADDR=n1"));
    assert_eq!(sentences(&rank), ["ranks follow a host file, so rank 0 need not run on `n1`"]);
}

// --- Wrong values -------------------------------------------------------------------------------

#[test]
fn what_is_no_number_is_a_fault_with_the_variable() {
    assert_eq!(
        fault("OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2"),
        "`OMPI_COMM_WORLD_RANK` is `x`, which is not a number from 0 on\n\
         hint: unset `OMPI_COMM_WORLD_RANK` if nothing needs it, or start the ranks with a launcher"
    );
    for value in ["-1", "+1", "1.0", "4294967296", "1,2"] {
        let text = format!("PMI_RANK=0 PMI_SIZE={value}");
        assert!(fault(&text).starts_with(&format!("`PMI_SIZE` is `{value}`")), "{value}");
    }
    assert!(fault(&both(STEP, "SLURM_STEP_TASKS_PER_NODE=2(y)")).starts_with("`2(y)` does not"));
}

#[test]
fn a_rank_that_is_not_below_its_size_is_a_fault() {
    assert_eq!(
        fault("RANK=4 WORLD_SIZE=4"),
        "the environment (RANK, WORLD_SIZE) gives rank 4 with a world size of 4\n  \
         RANK=4\n  WORLD_SIZE=4\n\
         hint: unset these variables if another job left them behind; ranks count from 0 and are \
         below their size"
    );
    let given = "HPCSWEEP_RANK=0 HPCSWEEP_WORLD_SIZE=4";
    let first = |more: &str| fault(&both(given, more)).lines().next().unwrap().to_owned();
    assert_eq!(
        first("HPCSWEEP_LOCAL_RANK=2 HPCSWEEP_LOCAL_WORLD_SIZE=2"),
        "the environment (HPCSWEEP_*) gives local rank 2 with a local world size of 2"
    );
    assert_eq!(
        first("HPCSWEEP_NODE_RANK=2 HPCSWEEP_NNODES=2"),
        "the environment (HPCSWEEP_*) gives node rank 2 with a number of nodes of 2"
    );
    assert_eq!(
        first("HPCSWEEP_LOCAL_RANK=2 HPCSWEEP_LOCAL_WORLD_SIZE=5"),
        "the environment (HPCSWEEP_*) gives 5 ranks on this node of 4 in all"
    );
    assert!(fault("PMI_RANK=0 PMI_SIZE=0").contains("rank 0 with a world size of 0"));
}

// --- What comes out of it -----------------------------------------------------------------------

#[test]
fn torch_gets_the_variables_of_torchrun() {
    let text = |rank: &Rank| -> String {
        let vars = torch_env(rank, "n1", 29400);
        vars.iter().map(|(name, value)| format!("{name}={value} ")).collect()
    };
    assert_eq!(
        text(&here(STEP)),
        "RANK=2 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 GROUP_WORLD_SIZE=2 \
         ROLE_RANK=2 ROLE_WORLD_SIZE=3 MASTER_ADDR=n1 MASTER_PORT=29400 "
    );
    let pmix = here("PMIX_RANK=3");
    assert_eq!(text(&pmix), "RANK=3 ROLE_RANK=3 MASTER_ADDR=n1 MASTER_PORT=29400 ");
}

#[test]
fn explain_says_what_was_used_and_what_was_not() {
    let rank = here("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=4");
    assert_eq!(
        explain(&rank),
        "\
rank        1 of 2
local rank  unknown of unknown
node        unknown of unknown
started by  Open MPI or PRRTE (mpirun)
only MPI can tell: local rank, local world size, node rank, number of nodes

derived from
  OMPI_COMM_WORLD_RANK=1
  OMPI_COMM_WORLD_SIZE=2

also present
  the environment (RANK, WORLD_SIZE): rank 0 of 4: differs, not used

warning: Open MPI or PRRTE (mpirun) says rank 1 of 2, but the environment (RANK, WORLD_SIZE) says rank 0 of 4
hint: the first is believed; unset what another job left behind: either OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE, or RANK WORLD_SIZE
"
    );
    assert_eq!(
        explain(&here("A=1")),
        "\
rank        0 of 1
local rank  0 of 1
node        0 of 1
started by  no launcher

no variable of any launcher is set, so this process works alone
hint: start it with srun or mpiexec, or set `HPCSWEEP_RANK` and `HPCSWEEP_WORLD_SIZE`
"
    );
}

#[test]
fn the_json_form_has_every_field() {
    let rank = here("PMIX_RANK=1 RANK=0 WORLD_SIZE=4");
    let value = serde_json::to_value(&rank).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "launcher": "pmix",
            "rank": 1,
            "world_size": null,
            "local_rank": null,
            "local_size": null,
            "node_rank": null,
            "nodes": null,
            "evidence": [["PMIX_RANK", "1"]],
            "others": [{
                "launcher": "torch-variables", "rank": 0, "world_size": 4, "agrees": false
            }],
            "warnings": [{
                "sentence": rank.warnings[0].sentence, "hint": rank.warnings[0].hint
            }],
        })
    );
}

#[test]
fn variables_of_the_job_around_us_are_known() {
    for text in [STEP, BODY] {
        assert!(vars(text).keys().all(|name| is_launcher_variable(name)));
    }
    let strip = "SLURMD_NODENAME SRUN_DEBUG SBATCH_EXPORT SALLOC_EXCLUSIVE SUBMITIT_EXECUTOR PBS_JOBID \
        PBS_O_WORKDIR PBS_NODEFILE PBS_ARRAY_INDEX LSB_JOBID JSM_NAMESPACE_RANK FLUX_TASK_RANK \
        PALS_RANKID PMI_RANK PMI_FD PMIX_RANK PMIX_SERVER_URI41 PRTE_LAUNCHED ORTE_SCHIZO_DETECTION \
        OMPI_COMM_WORLD_RANK OMPI_MCA_ess_base_jobid OMPI_MCA_orte_hnp_uri OMPI_MCA_pmix OMPI_COMMAND \
        OMPI_UNIVERSE_SIZE HYDI_CONTROL_FD MPI_LOCALRANKID MPI_LOCALNRANKS MV2_COMM_WORLD_RANK \
        TORCHELASTIC_RUN_ID RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_WORLD_SIZE \
        MASTER_ADDR MASTER_PORT HPCSWEEP_RANK HPCSWEEP_TRIAL";
    let keep = "PATH HOME LD_LIBRARY_PATH OMP_NUM_THREADS CUDA_VISIBLE_DEVICES TMPDIR SLURM_CONF \
        SLURM_CLUSTERS SBATCH_ACCOUNT PBS_CONF_FILE PBS_DEFAULT PBS_SERVER HPCSWEEP_SITE \
        OMPI_MCA_pml OMPI_MCA_btl_tcp_if_include MV2_USE_CUDA HYDRA_FULL_ERROR HYDRA_LAUNCHER \
        I_MPI_PMI_LIBRARY UCX_TLS NCCL_SOCKET_IFNAME SLURMX RANKS MY_RANK GROUP_ID";
    for name in strip.split_whitespace() {
        assert!(is_launcher_variable(name), "{name}");
    }
    for name in keep.split_whitespace() {
        assert!(!is_launcher_variable(name), "{name}");
    }
}

#[test]
fn the_python_module_is_told_each_variable_that_it_compares() {
    let text = include_str!("../../../site/python/hpcsweep/ranks.py");
    let table = text.split_once("LAUNCHERS = (\n").unwrap().1.split_once("\n)\n").unwrap().0;
    let rows = table.lines().filter(|line| line.trim_start().starts_with('('));
    let compared: BTreeSet<&str> =
        rows.flat_map(|line| line.split('"').skip(1).step_by(2)).collect();
    assert_eq!(compared, BTreeSet::from(TOLD));
    let told = told(&vars("RANK=0 PMIX_NAMESPACE=a@1 LOCAL_RANK=1"));
    assert_eq!(told, r#"{"RANK":"0","PMIX_NAMESPACE":"a@1"}"#);
}

#[test]
fn ports_are_outside_the_ephemeral_range() {
    let find = |range, seed| {
        let mut tried = Vec::new();
        let port = free_port_outside_ephemeral(
            range,
            &mut |port| {
                tried.push(port);
                tried.len() == 3
            },
            seed,
        );
        assert_eq!(port, tried.last().copied());
        assert_eq!(tried.len(), 3);
        tried
    };
    for seed in 0..100 {
        let outside = |p: &u16| *p >= 10000 && !(32768..=60999).contains(p);
        assert!(find("32768\t60999\n", seed).iter().all(outside));
        assert!(find("unreadable", seed).iter().all(outside));
        assert!(find("10000 65535", seed).iter().all(|p| (1024..10000).contains(p)));
    }
    let first: std::collections::BTreeSet<u16> =
        (0..100).map(|s| find("32768 60999", s)[0]).collect();
    assert!(first.len() > 95, "neighbouring jobs begin at different ports");
    assert_eq!(find("32768 60999", 7), find("32768 60999", 7));
    assert_eq!(free_port_outside_ephemeral("1024 65535", &mut |_| true, 1), None);
    let mut n = 0;
    let mut never = |_| {
        n += 1;
        false
    };
    assert_eq!(free_port_outside_ephemeral("32768 60999", &mut never, 1), None);
    assert_eq!(n, 512);
}

proptest! {
    /// Whatever the distribution over nodes, the ranks of all nodes are the world.
    #[test]
    fn local_sizes_sum_to_the_world(counts in proptest::collection::vec(1u32..9, 1..12)) {
        let world: u32 = counts.iter().sum();
        let list = counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let (mut total, mut next) = (0, 0);
        for (node, count) in counts.iter().enumerate() {
            for local in 0..*count {
                let text = format!(
                    "SLURM_PROCID={next} SLURM_LOCALID={local} SLURM_NODEID={node} SLURM_STEP_ID=0 \
                     SLURM_STEP_NODELIST=n[1-{n}] SLURM_STEP_NUM_NODES={n} \
                     SLURM_STEP_NUM_TASKS={world} SLURM_STEP_TASKS_PER_NODE={list}",
                    n = counts.len()
                );
                let rank = on(&text, "n1");
                prop_assert_eq!(rank.rank, next);
                prop_assert_eq!(rank.local_size, Some(*count));
                total += u32::from(local == 0) * rank.local_size.unwrap();
                next += 1;
            }
        }
        prop_assert_eq!(total, world);
    }

    /// No mixture of variables panics, and what is derived is consistent.
    #[test]
    fn any_mixture_is_a_fault_or_makes_sense(
        chosen in proptest::collection::vec((0usize..NAMES.len(), 0usize..VALUES.len()), 0..14)
    ) {
        let vars: Vars = chosen
            .iter()
            .map(|(name, value)| (NAMES[*name].to_owned(), VALUES[*value].to_owned()))
            .collect();
        if let Ok(rank) = derive_in_pbs(&vars, "n1", "a\n") {
            prop_assert!(rank.world_size.is_none_or(|size| rank.rank < size));
            prop_assert!(rank.local_rank.zip(rank.local_size).is_none_or(|(a, b)| a < b));
            prop_assert!(rank.node_rank.zip(rank.nodes).is_none_or(|(a, b)| a < b));
            prop_assert!(explain(&rank).ends_with('\n'));
        }
    }
}

const VALUES: [&str; 7] = ["0", "1", "2", "4", "-5", "", "x"];
const NAMES: [&str; 25] = [
    "HPCSWEEP_RANK",
    "HPCSWEEP_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PALS_APID",
    "PALS_RANKID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_LOCAL_SIZE",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NUM_NODES",
    "PMIX_RANK",
];
